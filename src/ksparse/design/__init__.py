"""The matrix A as one object, however it is stored: in memory (dense or CSR), in blocks, or standardised.

`Design` is the interface that problems and solvers see.  Readers of files and clusters are in `ksparse.sources`; losses
and constraints are in `ksparse.problem`.
"""

from __future__ import annotations

from .base import Design as Design
from .base import Point as Point
from .base import Stage as Stage
from .blocks import Source as Source
from .matrix import InMemory as InMemory
from .matrix import as_design as as_design
from .standardized import Standardized as Standardized
from .standardized import standardize as standardize
