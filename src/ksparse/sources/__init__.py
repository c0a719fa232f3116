"""Where rows come from when they are not one array: blocks, files, a cluster.

A source stands wherever an array X does: ``minimize(source, y, k)``, ``KSparseRegressor().fit(source, source.y)``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ..design import Source as Source
from ..design.blocks import Times as Times

if TYPE_CHECKING:
    from .blocks import Blocks as Blocks
    from .dask import Partitions as Partitions
    from .files import Files as Files
    from .files import open_files as open_files

_HOME = {"Blocks": "blocks", "Files": "files", "Partitions": "dask", "open_files": "files"}

__all__ = ["Source", "Times", "as_source", *_HOME]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'ksparse.sources' has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)


def as_source(X: Any) -> Any:
    """X itself; a Dask collection as a source."""
    if hasattr(X, "__dask_graph__") and not isinstance(X, Source):
        from .dask import Partitions

        return Partitions(X)
    return X
