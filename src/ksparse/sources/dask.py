"""`Partitions`: rows in the partitions of a Dask array or dataframe, which stay where they are.

dask_local.py and dask_cluster.py run the function of a pass on the partitions.  This module can be imported without
Dask; those two need the `dask` extra.
"""

from __future__ import annotations

import functools
import itertools
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from .._threads import between_blocks
from ..design.blocks import MEMORY, SHARE_OF_BLOCKS, Source, Times, _copy_block
from .encoding import repeated
from .storage import check_memory

if TYPE_CHECKING:
    from .dask_local import LazyPart, PartResult, PassTask

T = TypeVar("T")
AHEAD = 2  # partitions submitted for each thread of a worker: one is computed while the next one is sent
FAR = 32  # the same if results are known to be small
TRIES = 4  # how often lost work is submitted again
LARGE = 1 << 27  # maximum bytes of a partition that is made by joining chunks of columns
SMALL, MANY = 1 << 20, 256  # more than MANY partitions of fewer than SMALL bytes are joined
NO_NUMBERS = (
    "{name} holds {what} (dtype {dtype}), not numbers; encode it (dask.dataframe.get_dummies after X.categorize()), or "
    "leave it out: X.drop(columns=[...])"
)


class Partitions(Source):
    """The rows of a Dask array or dataframe.

    A pass runs a function on every partition where it is: in threads or processes of this machine, or on the workers of
    a cluster.  Only the results come here: the d numbers of a gradient, sampled rows.  On a cluster the partitions are
    kept in its memory if they fit there; else, and on one machine, every pass computes them from their graph, in the
    task that uses them.

    A worker that is lost costs the time to compute its partitions and results again; workers may join and leave.  Every
    task uses one thread.

    Parameters
    ----------
    X : Dask array or dataframe, or list of delayed objects or futures
        Numbers.  The columns of an array are brought into one chunk, and unknown chunk sizes are computed.  Blocks may
        be SciPy sparse matrices, which are used as CSR.
    client : distributed.Client, default=None
        The client of the cluster; None for what Dask would use: the current client, or the configured scheduler.
    memory : int or str, default=2**30
        Bytes that work on the rows may use in this process, as a number or as a text such as "1GB".
    y : Dask array or series, or array, default=None
        Targets; they are brought here, and are the attribute `y`.

    Attributes
    ----------
    held : bool
        Whether the partitions are kept in the memory of a cluster.
    close : callable
        Ends processes and frees the cluster's memory; this also happens when the source is garbage-collected.
    times : Times
        Seconds of the last pass.  `read` (until the partition was there as a block) and `compute` (the function) are
        measured in the tasks and summed over them.  `transfer` is the rest of the time of all threads that could work
        (their number times `wall`): sending, scheduling, waiting for each other and for this process.

    Examples
    --------
    >>> import dask.array as da
    >>> import numpy as np
    >>> from ksparse.sources import Partitions
    >>> rows = Partitions(da.from_array(np.arange(12.0).reshape(6, 2), chunks=(4, 1)))
    >>> rows.shape, [total.tolist() for total in rows.map(np.sum)]
    ((6, 2), [28.0, 38.0])
    """

    def __init__(self, X: Any, *, client: Any = None, memory: int | str = MEMORY, y: Any = None) -> None:
        memory = check_memory(memory)
        try:
            from .dask_local import BlockFormat, check_client, choose_runner
        except ImportError as trouble:
            raise ImportError(f"{trouble}; pip install 'ksparse[dask]' brings what Dask needs here") from trouble
        if client is not None:
            check_client(client)
        with nullcontext() if client is None else client.as_current():
            parts, known_rows, names = _take_apart(X)
        lazy = _separate_graphs(parts)
        owner = _client_of(lazy)
        self._runner = runner = choose_runner(parts, client or owner)
        self.close = weakref.finalize(self, runner.close)
        try:
            found, rows, y = _inspect(runner, parts, known_rows, y)
        except BaseException:
            self.close()
            raise
        super().__init__(
            (found.rows, found.columns), found.dtype, sparse=found.entries is not None, entries=found.entries,
            names=names or found.names, y=y, memory=memory,
        )  # fmt: skip
        filled = [i for i, count in enumerate(rows) if count]  # functions of a pass are not called without rows
        rows = [rows[i] for i in filled]
        runner.set_parts([parts[i] for i in filled], [lazy[i] for i in filled], rows)
        self._format = BlockFormat(self.dtype, self.sparse, self.shape[1])
        self._starts = np.concatenate(([0], np.cumsum(rows))).tolist()
        self._sizes: dict[Any, int] = {}  # bytes of the results of functions, by their names
        self.held: bool = runner.hold(self._format, self.row_bytes * self.shape[0], there=owner is not None)

    def __repr__(self) -> str:
        kind = "sparse" if self.sparse else "dense"
        where = "held by a cluster" if self.held else "computed in every pass"
        return f"Partitions({len(self._starts) - 1} of {self.shape[0]} x {self.shape[1]}, {kind} {self.dtype}, {where})"

    def blocks(self, columns: NDArray[np.int64] | None = None) -> Iterator[Any]:
        """The blocks in order, brought to this process."""
        return self.map(_copy_block, columns=columns)

    def map(
        self, function: Callable[..., T], *arrays: NDArray[Any], columns: NDArray[np.int64] | None = None
    ) -> Iterator[T]:
        """``function(block, *slices)`` for every partition, where it is; results in order.

        To a cluster the function is sent once per pass, slices of read-only arrays only once, those of other arrays in
        every pass.
        """
        from .. import __version__
        from .dask_local import PassTask

        if not self.close.alive:
            raise ValueError("the source is closed; make another one")
        for array in arrays:
            if array.size and array.shape[0] != self.shape[0]:
                raise ValueError(f"an array of shape {array.shape} has no entry for each of {self.shape[0]} rows")
        began, read, compute = time.perf_counter(), 0.0, 0.0
        for done in self._in_order(PassTask(__version__, function, columns, self._format), arrays):
            if done.error is not None:
                raise done.error
            read, compute = read + done.read, compute + done.compute
            yield done.result
            between_blocks.get()()
        wall = time.perf_counter() - began
        self.times = Times(wall, read, compute, max(0.0, self._runner.total * wall - read - compute))

    def _in_order(self, task: PassTask, arrays: tuple[NDArray[Any], ...]) -> Iterator[PartResult]:
        """The results of all partitions.

        A few partitions are submitted for each thread, more if their results are known to fit into memory.
        """
        from .dask_local import LostWork

        runner, starts, news = self._runner, self._starts, threading.Event()
        count, lost, name = len(starts) - 1, 0, _name(task.function)
        running: dict[int, Any] = {}

        def submit(which: list[int]) -> None:
            futures = runner.submit(begun, [(i, starts[i], starts[i + 1]) for i in which])
            for i, future in zip(which, futures, strict=True):
                running[i] = future
                future.add_done_callback(lambda _: news.set())

        def top_up(head: int) -> None:
            """Submit more partitions, those of all workers in one message."""
            fits = int(self.memory * SHARE_OF_BLOCKS) // max(1, self._sizes.get(name, self.memory))
            window = max(AHEAD * runner.total + 2, fits)
            fresh: list[int] = []
            for threads, left, under_way in queues:
                while under_way and (under_way[0] not in running or running[under_way[0]].done()):
                    under_way.popleft()
                most = threads * (FAR if fits else AHEAD)
                # many at a time cost less: a queue is filled again when it is half empty
                if left and (left[0] == head or len(under_way) <= most // 2):
                    while left and (left[0] == head or (left[0] < head + window and len(under_way) < most)):
                        under_way.append(left.popleft())
                        fresh.append(under_way[-1])
            if fresh:
                submit(sorted(fresh))

        begun, head = runner.begin(task, arrays), 0
        try:
            queues = [(threads, deque(left), deque[int]()) for threads, left in runner.places().values()]
            while head < count:
                top_up(head)
                seconds = runner.wait_seconds(waited=False)
                while not running[head].done():
                    if not news.wait(seconds):
                        seconds = runner.wait_seconds(waited=True)
                    news.clear()
                    top_up(head)
                ready = list(itertools.takewhile(lambda i: i in running and running[i].done(), range(head, count)))
                try:
                    found = runner.results([running[i] for i in ready])
                except LostWork as trouble:
                    lost += 1
                    if lost > TRIES:
                        raise RuntimeError(f"{trouble}; it was tried {TRIES} times") from None
                    runner.end(begun, [])
                    runner.renew()
                    begun = runner.begin(task, arrays)
                    submit(list(running))
                    continue
                self._sizes[name] = max(done.size for done in found)
                for i in ready:
                    del running[i]
                head += len(ready)
                yield from found
        finally:  # also after an error or Ctrl-C
            runner.end(begun, list(running.values()))


def _name(function: Any) -> Any:
    """The name of a function, with those of the functions it is made of: its results will be as large as last time."""
    if not isinstance(function, functools.partial):
        return getattr(function, "__qualname__", None)
    return _name(function.func), *(_name(item) for item in function.args if callable(item))


# --- taking a collection apart ---------------------------------------------------------------------------------------
def _take_apart(X: Any) -> tuple[list[Any], list[int] | None, list[str] | None]:
    """The partitions of a collection as delayed objects, with their numbers of rows and the columns, if known."""
    from dask.array import Array
    from dask.delayed import Delayed
    from dask.utils import is_dataframe_like, is_series_like

    if isinstance(X, Array):
        return _take_array_apart(X)
    if hasattr(X, "__dask_graph__") and is_dataframe_like(X):
        return X.to_delayed(), None, _column_names(X)
    if hasattr(X, "__dask_graph__") and is_series_like(X):
        raise ValueError("X is a Dask series, one column: give a dataframe, X.to_frame()")
    items = list(X) if isinstance(X, (list, tuple)) else [X]
    if not items or not all(isinstance(item, Delayed) or _is_future(item) for item in items):
        raise ValueError(
            "X must be a Dask array or dataframe, or a list of delayed objects or futures (one per block of rows), "
            f"got {type(X).__name__}"
        )
    return [Delayed(item.key, {item.key: item}) if _is_future(item) else item for item in items], None, None


def _take_array_apart(X: Any) -> tuple[list[Any], list[int] | None, None]:
    from dask.array import Array
    from dask.utils import ensure_dict

    if X.ndim != 2:
        raise ValueError(f"X must be a matrix (rows are samples), got {X.ndim} dimensions")
    _check_numbers(X.dtype, "X")
    if np.isnan(X.chunks[1]).any():
        X = Array(X.dask, X.name, X.chunks, meta=X._meta)  # the caller's array is left as it is
        X.compute_chunk_sizes()
    rows, width = X.chunks[0], X.shape[1] * X.dtype.itemsize
    known = not np.isnan(rows).any()
    chunks = {1: -1}
    if len(X.chunks[1]) > 1 and known and max(rows) * width > LARGE:
        chunks[0] = max(1, LARGE // max(1, width))
    elif known and len(rows) > MANY and sum(rows) * width < SMALL * len(rows):
        chunks[0] = max(1, SMALL // max(1, width))
    X = X.rechunk(chunks)
    futures = any(map(_is_future, ensure_dict(X.dask).values()))  # optimising would drop them together with their data
    parts = list(X.to_delayed(optimize_graph=not futures).ravel())
    return parts, [int(count) for count in X.chunks[0]] if known else None, None


def _separate_graphs(parts: list[Any]) -> list[LazyPart]:
    """Every partition with only those tasks of the graph that it needs."""
    from dask.optimization import cull
    from dask.utils import ensure_dict

    from .dask_local import LazyPart

    found, graphs = [], {}
    for part in parts:
        graph = part.dask  # often shared; it is held in `graphs`, so that no other graph can have its id
        if id(graph) not in graphs:
            graphs[id(graph)] = graph, ensure_dict(graph)
        found.append(LazyPart(cull(graphs[id(graph)][1], [part.key])[0], part.key))
    return found


def _client_of(parts: list[LazyPart]) -> Any:
    """The client of the cluster that holds data of these partitions as futures; None if there are none."""
    nodes = (getattr(node, "value", node) for part in parts for node in part.graph.values())
    return next((node.client for node in nodes if _is_future(node)), None)


def _is_future(item: Any) -> bool:
    return type(item).__module__.startswith("distributed.") and hasattr(item, "key")


# --- what partitions hold --------------------------------------------------------------------------------------------
class PartInfo(NamedTuple):
    """What a computed partition holds."""

    rows: int
    columns: int
    dtype: np.dtype[Any]
    entries: int | None  # None: dense
    names: list[str] | None


def _inspect(runner: Any, parts: list[Any], known: list[int] | None, y: Any) -> tuple[PartInfo, list[int], Any]:
    """Compute what the partitions hold, their numbers of rows if they are not known, and the targets."""
    from dask.delayed import delayed

    pieces = [delayed(_as_array)(piece) for piece in _delayed_pieces(y)]
    first = next((i for i, count in enumerate(known or []) if count), 0)
    some = parts if known is None else parts[first : first + 1]
    computed = runner.compute([*map(delayed(inspect_part), some), *pieces])
    infos = list(computed[: len(some)])
    if known is not None and infos and infos[0].entries is not None:
        infos = runner.compute(list(map(delayed(inspect_part), parts)))
    rows = known or [found.rows for found in infos]
    found = _in_common(infos, sum(rows))
    if y is not None:
        y = _as_array(np.concatenate(computed[len(some) :]) if pieces else y)
        if y.ndim == 0 or y.shape[0] != found.rows:
            raise ValueError(f"y has {y.shape[0] if y.ndim else 'no'} entries, and X has {found.rows} rows")
    return found, rows, y


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


def _in_common(infos: list[PartInfo], n: int) -> PartInfo:
    """What all n rows hold, from what partitions hold; of dense ones, some partitions are enough."""
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
    return PartInfo(n, first.columns, dtype, sum(counts) if sparse else None, first.names)


def _delayed_pieces(y: Any) -> list[Any]:
    """The targets as delayed objects, if they are a Dask collection."""
    from dask.base import is_dask_collection

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
