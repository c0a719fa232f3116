"""Solvers: one file per algorithm, and `exchange/` for the search.  ``SOLVERS`` names all that `minimize` can run.

`base.py` is what all share, `pursuit.py` what pursuits share, `descent.py` what methods with full gradients share.  The
loop around them is `ksparse.engine`.
"""

from typing import Any

from .cosamp import CoSaMP
from .exchange import Exchange
from .grahtp import GraHTP
from .grasp import GraSP
from .htp import HTP
from .htsaga import HTSAGA
from .htsvrg import HTSVRG
from .iht import IHT
from .niht import NIHT
from .omp import OMP
from .ompr import OMPR
from .pgd import PGD
from .romp import ROMP
from .sp import SubspacePursuit
from .stoiht import StoIHT

SOLVERS: dict[str, type[Any]] = {
    "ht-svrg": HTSVRG,
    "ht-saga": HTSAGA,
    "stoiht": StoIHT,
    "iht": IHT,
    "niht": NIHT,
    "pgd": PGD,
    "htp": HTP,
    "cosamp": CoSaMP,
    "sp": SubspacePursuit,
    "omp": OMP,
    "romp": ROMP,
    "ompr": OMPR,
    "grasp": GraSP,
    "grahtp": GraHTP,
    "exchange": Exchange,
}

__all__ = [
    "HTP",
    "HTSAGA",
    "HTSVRG",
    "IHT",
    "NIHT",
    "OMP",
    "OMPR",
    "PGD",
    "ROMP",
    "SOLVERS",
    "CoSaMP",
    "Exchange",
    "GraHTP",
    "GraSP",
    "StoIHT",
    "SubspacePursuit",
]
