"""Readers of rows that are not one array: arrays.py (Blocks), files.py (open_files), dask.py (Partitions).

A source is accepted wherever an array X is: ``minimize(source, y, k)``, ``KSparseRegressor().fit(source, source.y)``.
What solvers do with the blocks is not here: a source only hands them to the function of a pass.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ..design.blocks import Source as Source
from ..design.blocks import Times as Times
from ..design.matrix import FOREIGN
from ..design.matrix import as_source as as_source

if TYPE_CHECKING:
    from .arrays import Blocks as Blocks
    from .dask import Partitions as Partitions
    from .files import Files as Files
    from .files import open_files as open_files

_HOME = {"Blocks": "arrays", "Files": "files", "Partitions": "dask", "open_files": "files"}

__all__ = ["Source", "Times", "as_source", *_HOME]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'ksparse.sources' has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)


def _open_dask(collection: Any) -> Source:
    from .dask import Partitions

    return Partitions(collection)


FOREIGN["__dask_graph__"] = _open_dask
