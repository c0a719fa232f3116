"""Opening a Dask collection: its partitions, what they hold, and which threads, processes or cluster work on them."""

from __future__ import annotations

import functools
import multiprocessing.pool
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any, NamedTuple

import dask
import numpy as np
from dask.base import get_scheduler, is_dask_collection
from dask.delayed import Delayed, delayed
from dask.system import CPU_COUNT
from dask.utils import ensure_dict, is_dataframe_like, is_series_like
from numpy.typing import NDArray

from .dask_local import BlockFormat, LazyPart, LocalProcesses, LocalThreads, start_processes
from .encoding import repeated

LARGE = 1 << 27  # maximum bytes of a partition that is made by joining chunks of columns
SMALL, MANY = 1 << 20, 256  # more than MANY partitions of fewer than SMALL bytes are joined
NO_NUMBERS = (
    "{name} holds {what} (dtype {dtype}), not numbers; encode it (dask.dataframe.get_dummies after X.categorize()), or "
    "leave it out: X.drop(columns=[...])"
)


class OpenedCollection(NamedTuple):
    """All that a source over partitions needs."""

    shape: tuple[int, int]
    format: BlockFormat
    entries: int | None
    names: list[str] | None
    y: NDArray[Any] | None
    runner: Any  # LocalThreads, LocalProcesses or ClusterWorkers


class Layout(NamedTuple):
    """A collection taken apart, with what is known before anything is computed."""

    parts: list[Any]  # Delayed objects
    rows: list[int] | None  # of every partition
    names: list[str] | None


class PartInfo(NamedTuple):
    """What a computed partition holds."""

    rows: int
    columns: int
    dtype: np.dtype[Any]
    entries: int | None  # None: dense
    names: list[str] | None


def open_collection(X: Any, client: Any, y: Any) -> OpenedCollection:
    """Take a collection apart, and compute what is not known about it."""
    if client is not None:
        _check_client(client)
    with nullcontext() if client is None else client.as_current():
        layout = _take_apart(X)
    lazy = _separate_graphs(layout.parts)
    backend = Backend(layout.parts, client or client_of(lazy))
    try:
        if layout.rows is None:  # all partitions and the targets in one computation
            infos, y = backend.compute(layout.parts, y)
        else:
            first = next((i for i, count in enumerate(layout.rows) if count), 0)
            infos, y = backend.compute(layout.parts[first : first + 1], y)
            if infos and infos[0].entries is not None:
                infos, _ = backend.compute(layout.parts, None)
        rows = layout.rows or [found.rows for found in infos]
        n = sum(rows)
        d, dtype, entries, names = _in_common(infos, n)
        kept = [i for i, count in enumerate(rows) if count]  # functions of a pass are not called without rows
        if y is not None:
            y = _as_array(y)
            if y.ndim == 0 or y.shape[0] != n:
                raise ValueError(f"y has {y.shape[0] if y.ndim else 'no'} entries, and X has {n} rows")
        runner = backend.runner([layout.parts[i] for i in kept], [lazy[i] for i in kept], [rows[i] for i in kept])
    except BaseException:
        backend.close()
        raise
    return OpenedCollection(
        (n, d), BlockFormat(dtype, entries is not None, d), entries, layout.names or names, y, runner
    )


# --- taking a collection apart ---------------------------------------------------------------------------------------
def _take_apart(X: Any) -> Layout:
    """The partitions of an array, a dataframe, or a list of delayed objects or futures."""
    from dask.array import Array

    if isinstance(X, Array):
        return _take_array_apart(X)
    if hasattr(X, "__dask_graph__") and is_dataframe_like(X):
        return Layout(X.to_delayed(), None, _column_names(X))
    if hasattr(X, "__dask_graph__") and is_series_like(X):
        raise ValueError("X is a Dask series, one column: give a dataframe, X.to_frame()")
    items = list(X) if isinstance(X, (list, tuple)) else [X]
    if not items or not all(isinstance(item, Delayed) or _is_future(item) for item in items):
        raise ValueError(
            "X must be a Dask array or dataframe, or a list of delayed objects or futures (one per block of rows), "
            f"got {type(X).__name__}"
        )
    return Layout([Delayed(item.key, {item.key: item}) if _is_future(item) else item for item in items], None, None)


def _take_array_apart(X: Any) -> Layout:
    from dask.array import Array

    if X.ndim != 2:
        raise ValueError(f"X must be a matrix (rows are samples), got {X.ndim} dimensions")
    _check_numbers(X.dtype, "X")
    if np.isnan(X.chunks[1]).any():
        X = Array(X.dask, X.name, X.chunks, meta=X._meta)  # the caller's array is left as it is
        X.compute_chunk_sizes()
    rows, width = X.chunks[0], X.shape[1] * X.dtype.itemsize
    known = not np.isnan(rows).any()
    if len(X.chunks[1]) > 1 and known and max(rows) * width > LARGE:
        X = X.rechunk({0: max(1, LARGE // max(1, width)), 1: -1})
    elif known and len(rows) > MANY and sum(rows) * width < SMALL * len(rows):
        X = X.rechunk({0: max(1, SMALL // max(1, width)), 1: -1})
    else:
        X = X.rechunk({1: -1})
    futures = any(map(_is_future, ensure_dict(X.dask).values()))  # optimising would drop them together with their data
    parts = list(X.to_delayed(optimize_graph=not futures).ravel())
    return Layout(parts, [int(count) for count in X.chunks[0]] if known else None, None)


def _separate_graphs(parts: list[Any]) -> list[LazyPart]:
    """Every partition with only those tasks of the graph that it needs."""
    from dask.optimization import cull

    found, graphs = [], {}
    for part in parts:
        graph = part.dask  # often shared; it is held in `graphs`, so that no other graph can have its id
        if id(graph) not in graphs:
            graphs[id(graph)] = graph, ensure_dict(graph)
        found.append(LazyPart(cull(graphs[id(graph)][1], [part.key])[0], part.key))
    return found


def client_of(parts: list[LazyPart]) -> Any:
    """The client of the cluster that holds data of these partitions as futures; None if there are none."""
    nodes = (getattr(node, "value", node) for part in parts for node in part.graph.values())
    return next((node.client for node in nodes if _is_future(node)), None)


def _is_future(item: Any) -> bool:
    return type(item).__module__.startswith("distributed.") and hasattr(item, "key")


# --- what partitions hold --------------------------------------------------------------------------------------------
def inspect_part(raw: Any) -> PartInfo:
    """What a partition holds; this runs where the partition is."""
    if not hasattr(raw, "shape") or len(raw.shape) != 2:
        raise ValueError(
            f"a partition of X is {f'of shape {raw.shape}' if hasattr(raw, 'shape') else type(raw).__name__}; it must "
            "be a matrix (rows are samples): an array, a SciPy sparse matrix or a dataframe"
        )
    names = None
    if hasattr(raw, "dtypes"):
        names = _column_names(raw)
        dtype = np.result_type(*map(_numpy_dtype, raw.dtypes)) if len(raw.columns) else np.float64
        entries = int(raw.sparse.to_coo().nnz) if hasattr(raw, "sparse") else None
    else:
        _check_numbers(raw.dtype, "X")
        dtype, entries = raw.dtype, int(raw.nnz) if hasattr(raw, "nnz") else None
    return PartInfo(int(raw.shape[0]), int(raw.shape[1]), np.dtype(dtype), entries, names)


def _column_names(X: Any) -> list[str] | None:
    names = [str(name) for name in X.columns]
    twice = repeated(names)
    if twice is not None:
        raise ValueError(f"X has two columns of the name {twice!r}; rename one")
    for name, dtype in zip(names, X.dtypes, strict=True):
        _check_numbers(dtype, f"column {name!r} of X")
    return names if any(isinstance(name, str) for name in X.columns) else None


def _check_numbers(dtype: Any, name: str) -> None:
    kind = getattr(getattr(dtype, "subtype", dtype), "kind", "O")  # the subtype is that of a sparse column's numbers
    if kind not in "biuf":
        kinds = {"M": "dates", "m": "durations", "c": "complex numbers", "V": "records"}
        what = "categories" if type(dtype).__name__ == "CategoricalDtype" else kinds.get(kind, "text or objects")
        raise ValueError(NO_NUMBERS.format(name=name, what=what, dtype=dtype))


def _numpy_dtype(dtype: Any) -> Any:
    """The NumPy dtype that a pandas dtype becomes."""
    dtype = getattr(dtype, "subtype", dtype)
    return dtype if isinstance(dtype, np.dtype) else getattr(dtype, "numpy_dtype", np.dtype(np.float64))


def _in_common(infos: list[PartInfo], n: int) -> tuple[int, np.dtype[Any], int | None, list[str] | None]:
    """What all partitions have in common: columns, dtype, entries if they are sparse, names."""
    infos = [found for found in infos if found.rows]
    if not n or not infos:
        raise ValueError("X has no rows")
    first = infos[0]
    if not first.columns:
        raise ValueError("X has no columns")
    for found in infos:
        if found.columns != first.columns:
            raise ValueError(f"X has partitions of {first.columns} and of {found.columns} columns")
        if found.names != first.names:
            raise ValueError(f"X has partitions with other columns, or in another order: {first.names}, {found.names}")
    dtype = np.dtype(np.float32 if all(found.dtype == np.float32 for found in infos) else np.float64)
    sparse = any(found.entries is not None for found in infos)
    counts = (found.rows * found.columns if found.entries is None else found.entries for found in infos)
    return first.columns, dtype, sum(counts) if sparse else None, first.names


# --- targets ---------------------------------------------------------------------------------------------------------
def _delayed_pieces(y: Any) -> list[Any]:
    """The targets as delayed objects, if they are a Dask collection."""
    if not is_dask_collection(y):
        return []
    if not hasattr(y, "to_delayed"):
        return [y]
    if getattr(y, "ndim", 1) == 2 and hasattr(y, "rechunk"):
        y = y.rechunk({1: -1})
    return list(np.ravel(y.to_delayed()))


def _as_array(piece: Any) -> NDArray[Any]:
    if hasattr(piece, "to_numpy") and getattr(getattr(piece, "dtype", None), "kind", "O") in "biuf":
        return piece.to_numpy(dtype=None if isinstance(piece.dtype, np.dtype) else np.float64, na_value=np.nan)
    return np.atleast_1d(np.asarray(piece))


# --- who computes ----------------------------------------------------------------------------------------------------
class Backend:
    """The threads, processes or cluster that compute: those of a client, or what Dask is configured to use."""

    def __init__(self, parts: list[Any], client: Any) -> None:
        scheduler = get_scheduler(collections=parts[:1]) if client is None else None
        self.client = client or getattr(scheduler, "__self__", None)
        self.lanes = int(dask.config.get("num_workers", None) or CPU_COUNT)
        self._get: Callable[..., Any] | None = None  # a scheduler that is not one of Dask's own
        self._pool: Executor | None = None
        self._processes = self._own = False
        if self.client is not None:
            _check_client(self.client)
        else:
            self._choose(scheduler)

    def _choose(self, scheduler: Any) -> None:
        from dask.local import get_async, get_sync
        from dask.multiprocessing import MultiprocessingPoolExecutor
        from dask.multiprocessing import get as get_processes
        from dask.threaded import get as get_threads

        pool = dask.config.get("pool", None)
        if isinstance(scheduler, functools.partial) and scheduler.func is get_async:  # an executor as the scheduler
            pool = dask.config.get("scheduler")
            scheduler = get_threads if isinstance(pool, ThreadPoolExecutor) else get_processes
        if isinstance(pool, multiprocessing.pool.Pool):
            threads = isinstance(pool, multiprocessing.pool.ThreadPool)
            pool = None if threads else MultiprocessingPoolExecutor(pool)
        self.lanes = getattr(pool, "_max_workers", self.lanes)
        if scheduler is get_processes:
            self._processes, self._own = True, pool is None
            self._pool = start_processes(self.lanes) if pool is None else pool
        elif scheduler in (get_threads, None):
            self._pool = pool
        else:
            self.lanes = 1
            self._get = None if scheduler is get_sync else scheduler

    def compute(self, parts: list[Any], y: Any) -> tuple[list[PartInfo], Any]:
        """What some partitions hold, and the targets in memory."""
        pieces = [delayed(_as_array)(piece) for piece in _delayed_pieces(y)]
        wanted = [*(delayed(inspect_part)(part) for part in parts), *pieces]
        if self.client is not None:
            from .dask_cluster import compute

            found = compute(self.client, wanted)
        else:
            found = dask.compute(*wanted, **({"pool": self._pool} if self._processes else {}))
        return list(found[: len(parts)]), np.concatenate(found[len(parts) :]) if pieces else y

    def runner(self, parts: list[Any], lazy: list[LazyPart], rows: list[int]) -> Any:
        """What runs passes over the partitions, which are given as delayed objects and with separate graphs."""
        if self.client is not None:
            from .dask_cluster import ClusterWorkers

            return ClusterWorkers(self.client, parts, rows, lazy, client_of(lazy) is not None)
        for part in lazy:
            part.get = self._get
        if self._processes:
            assert self._pool is not None
            return LocalProcesses(lazy, rows, self.lanes, self._pool, self._own)
        return LocalThreads(lazy, rows, self.lanes, self._pool)

    def close(self) -> None:
        if self._own and self._pool is not None:
            self._pool.shutdown(cancel_futures=True)


def _check_client(client: Any) -> None:
    from distributed import Client

    if not isinstance(client, Client):
        raise ValueError(f"client must be a distributed.Client, got {type(client).__name__}")
    if client.asynchronous:
        raise ValueError("client is asynchronous; make one with Client(address), outside a coroutine")
    if client.status != "running":
        raise ValueError(f"client is {client.status}; make another one: Client(address)")
