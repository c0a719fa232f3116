"""The partitions of a Dask collection: what they are, and what is done with one where it is."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._dask import check_version, portable
from .._threads import one_thread
from ..design.matrix import canonical

LARGE = 1 << 27  # bytes of a partition that joining columns may make
SMALL, MANY = 1 << 20, 256  # more partitions than these, each of fewer bytes, are joined
NO_NUMBERS = (
    "{name} holds {what} (dtype {dtype}), not numbers; encode it (dask.dataframe.get_dummies after X.categorize()), or "
    "leave it out: X.drop(columns=[...])"
)


class Layout(NamedTuple):
    """A collection taken apart, as far as it says before anything is computed."""

    parts: list[Any]  # Delayed objects
    rows: list[int] | None  # of every partition
    names: list[str] | None


class Look(NamedTuple):
    """What a partition turned out to be."""

    rows: int
    columns: int
    dtype: np.dtype[Any]
    entries: int | None  # None: dense
    names: list[str] | None


class Form(NamedTuple):
    """What every block looks like."""

    dtype: np.dtype[Any]
    sparse: bool
    columns: int


class Order(NamedTuple):
    """What a pass wants of every partition."""

    version: str
    function: Callable[..., Any]
    columns: NDArray[np.int64] | None
    form: Form


class Done(NamedTuple):
    """What came of a partition: the result, its bytes, and the seconds of reading the block and of the function."""

    result: Any
    size: int = 0
    read: float = 0.0
    compute: float = 0.0
    error: Exception | None = None


class Lazy:
    """A partition as a graph of its own: whoever needs it computes it, in the thread that needs it."""

    def __init__(self, graph: dict[Any, Any], key: Any) -> None:
        self.graph, self.key = graph, key
        self.get: Callable[..., Any] | None = None  # a scheduler that is not one of Dask's own

    def load(self) -> Any:
        from dask.local import get_sync

        return (self.get or get_sync)(self.graph, self.key)


# --- taking a collection apart ---------------------------------------------------------------------------------------
def lay_out(X: Any) -> Layout:
    """The partitions of an array, a dataframe, or a list of delayed objects or futures."""
    from dask.array import Array
    from dask.delayed import Delayed
    from dask.utils import is_dataframe_like, is_series_like

    if isinstance(X, Array):
        return _lay_out_array(X)
    if hasattr(X, "__dask_graph__") and is_dataframe_like(X):
        return Layout(X.to_delayed(), None, _names(X))
    if hasattr(X, "__dask_graph__") and is_series_like(X):
        raise ValueError("X is a Dask series, one column: give a dataframe, X.to_frame()")
    items = list(X) if isinstance(X, (list, tuple)) else [X]
    if not items or not all(isinstance(item, Delayed) or _is_future(item) for item in items):
        raise ValueError(
            "X must be a Dask array or dataframe, or a list of delayed objects or futures (one a block of rows), "
            f"got {type(X).__name__}"
        )
    return Layout([Delayed(item.key, {item.key: item}) if _is_future(item) else item for item in items], None, None)


def _is_future(item: Any) -> bool:
    return type(item).__module__.startswith("distributed.") and hasattr(item, "key")


def _lay_out_array(X: Any) -> Layout:
    from dask.array import Array
    from dask.utils import ensure_dict

    if X.ndim != 2:
        raise ValueError(f"X must be a matrix (rows are samples), got {X.ndim} dimensions")
    _check_numbers(X.dtype, "X")
    if np.isnan(X.chunks[1]).any():
        X = Array(X.dask, X.name, X.chunks, meta=X._meta)  # a shell of its own: the sizes are written into it
        X.compute_chunk_sizes()
    rows, width = X.chunks[0], X.shape[1] * X.dtype.itemsize
    known = not np.isnan(rows).any()
    if len(X.chunks[1]) > 1 and known and max(rows) * width > LARGE:
        X = X.rechunk({0: max(1, LARGE // max(1, width)), 1: -1})
    elif known and len(rows) > MANY and sum(rows) * width < SMALL * len(rows):
        X = X.rechunk({0: max(1, SMALL // max(1, width)), 1: -1})
    else:
        X = X.rechunk({1: -1})
    there = any(map(_is_future, ensure_dict(X.dask).values()))  # optimising would drop them, and their data with them
    parts = list(X.to_delayed(optimize_graph=not there).ravel())
    return Layout(parts, [int(count) for count in X.chunks[0]] if known else None, None)


def _names(X: Any) -> list[str] | None:
    names = [str(name) for name in X.columns]
    if len(set(names)) < len(names):
        twice = next(name for i, name in enumerate(names) if name in names[:i])
        raise ValueError(f"X has two columns of the name {twice!r}; rename one")
    for name, dtype in zip(names, X.dtypes, strict=True):
        _check_numbers(dtype, f"column {name!r} of X")
    return names if any(isinstance(name, str) for name in X.columns) else None


def _check_numbers(dtype: Any, name: str) -> None:
    kind = getattr(getattr(dtype, "subtype", dtype), "kind", "O")  # a sparse column's is that of its numbers
    if kind not in "biuf":
        kinds = {"M": "dates", "m": "durations", "c": "complex numbers", "V": "records"}
        what = "categories" if type(dtype).__name__ == "CategoricalDtype" else kinds.get(kind, "text or objects")
        raise ValueError(NO_NUMBERS.format(name=name, what=what, dtype=dtype))


def without_others(parts: list[Any]) -> list[Lazy]:
    """Every partition with the part of the graph that it needs."""
    from dask.optimization import cull
    from dask.utils import ensure_dict

    found, graphs = [], {}
    for part in parts:
        graph = part.dask  # most have it in common; it is held, so that no other one can have its id
        if id(graph) not in graphs:
            graphs[id(graph)] = graph, ensure_dict(graph)
        found.append(Lazy(cull(graphs[id(graph)][1], [part.key])[0], part.key))
    return found


def client_of(parts: list[Lazy]) -> Any:
    """The client of the cluster that something of these is on already, and that alone can go on from there; or None."""
    nodes = (getattr(node, "value", node) for part in parts for node in part.graph.values())
    return next((node.client for node in nodes if _is_future(node)), None)


# --- with a partition ------------------------------------------------------------------------------------------------
def look(raw: Any) -> Look:
    """See what a partition is."""
    if raw is None or not hasattr(raw, "shape") or len(raw.shape) != 2:
        raise ValueError(
            f"a partition of X is {f'of shape {raw.shape}' if hasattr(raw, 'shape') else type(raw).__name__}; it must "
            "be a matrix (rows are samples): an array, a SciPy sparse matrix or a dataframe"
        )
    names = None
    if hasattr(raw, "dtypes"):
        names = _names(raw)
        dtype = np.result_type(*(_plain(dtype) for dtype in raw.dtypes)) if len(raw.columns) else np.float64
        entries = int(raw.sparse.to_coo().nnz) if hasattr(raw, "sparse") else None
    else:
        _check_numbers(raw.dtype, "X")
        dtype, entries = raw.dtype, int(raw.nnz) if hasattr(raw, "nnz") else None
    return Look(int(raw.shape[0]), int(raw.shape[1]), np.dtype(dtype), entries, names)


def _plain(dtype: Any) -> Any:
    """NumPy's counterpart of a dtype of pandas."""
    dtype = getattr(dtype, "subtype", dtype)
    return dtype if isinstance(dtype, np.dtype) else getattr(dtype, "numpy_dtype", np.dtype(np.float64))


def as_block(raw: Any, form: Form, rows: int | None = None) -> Any:
    """A partition as kernels take it: a C-ordered array or a canonical CSR matrix; not copied if it is one."""
    if hasattr(raw, "shape") and (
        raw.shape[1] != form.columns or raw.shape[0] != (raw.shape[0] if rows is None else rows)
    ):
        wanted = (raw.shape[0] if rows is None else rows, form.columns)
        raise ValueError(
            f"a partition of X has shape {tuple(raw.shape)} where {wanted} was expected: partitions must be the same "
            "in every pass, and have the same columns"
        )
    if hasattr(raw, "dtypes"):
        raw = raw.sparse.to_coo() if hasattr(raw, "sparse") else raw.to_numpy(dtype=form.dtype, na_value=np.nan)
    if np.ma.isMaskedArray(raw) and np.ma.is_masked(raw):
        raise ValueError("X has masked entries; fill them: dask.array.ma.filled(X, value)")
    if form.sparse:
        from scipy import sparse

        return canonical(sparse.csr_array(raw, dtype=form.dtype), "a partition of X")
    return np.ascontiguousarray(raw.toarray() if hasattr(raw, "toarray") else raw, dtype=form.dtype)


def do_part(order: Order, part: Any, rows: int, arrays: tuple[NDArray[Any], ...]) -> Done:
    """What is done where a partition is: the function, on one thread; errors come as results."""
    from dask.sizeof import sizeof

    from .. import __version__

    try:
        check_version(order.version, __version__, "that joined")
        with one_thread():
            began = time.perf_counter()
            block = as_block(part.load() if isinstance(part, Lazy) else part, order.form, rows)
            if order.columns is not None:
                block = block[:, order.columns] if order.form.sparse else np.take(block, order.columns, axis=1)
            there = time.perf_counter()
            result = order.function(block, *arrays)
            ended = time.perf_counter()
        return Done(result, sizeof(result), there - began, ended - there)
    except Exception as trouble:
        return Done(None, error=portable(trouble))
