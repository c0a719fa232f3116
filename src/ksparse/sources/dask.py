"""`Partitions`: rows in the partitions of a Dask array or dataframe, which stay where they are.

dask_open.py takes a collection apart, dask_local.py and dask_cluster.py run the function of a pass on its partitions.
This module can be imported without Dask; all others need the `dask` extra.
"""

from __future__ import annotations

import functools
import itertools
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..design.blocks import MEMORY, SHARE_OF_BLOCKS, Source, Times, _copy_block, between_blocks
from .storage import check_memory

if TYPE_CHECKING:
    from .dask_local import PartResult, PassTask

T = TypeVar("T")
AHEAD = 2  # partitions submitted for each thread of a worker: one is computed while the next one is sent
FAR = 32  # the same if results are known to be small
TRIES = 4  # how often lost work is submitted again


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
            from .dask_open import open_collection
        except ImportError as trouble:
            raise ImportError(f"{trouble}; pip install 'ksparse[dask]' brings what Dask needs here") from trouble
        found = open_collection(X, client, y)
        super().__init__(
            found.shape, found.format.dtype, sparse=found.entries is not None, entries=found.entries,
            names=found.names, y=found.y, memory=memory,
        )  # fmt: skip
        self._format, self._runner = found.format, found.runner
        self._starts = np.concatenate(([0], np.cumsum(found.runner.rows))).tolist()
        self._sizes: dict[Any, int] = {}  # bytes of the results of functions, by their names
        self.close = weakref.finalize(self, self._runner.close)
        self.held: bool = self._runner.hold(self._format, self.row_bytes * self.shape[0])

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

        The function is sent once per pass, slices of read-only arrays only once, those of other arrays in every pass.
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
