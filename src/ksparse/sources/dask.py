"""Rows in the partitions of a Dask array or dataframe: they stay where they are.  Needs the `dask` extra."""

from __future__ import annotations

import functools
import itertools
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..design.blocks import MEMORY, SHARE_OF_BLOCKS, Source, Times, _copy_block, between_blocks
from ._memory import check_memory

T = TypeVar("T")
AHEAD = 2  # partitions under way for each thread of a worker: one is computed while the next one is sent
FAR = 32  # the same where it is known that results are small
TRIES = 4  # times that lost work is asked for again


class Partitions(Source):
    """The rows of a Dask array or dataframe.

    A pass runs a function on every partition where it is: in threads or processes of this machine, or on the workers of
    a cluster.  Only what the function returns comes here: the d numbers of a gradient, sampled rows.  On a cluster the
    partitions are kept in its memory if they fit there; else, and on one machine, every pass computes them from their
    graph, in the task that uses them.

    A worker that is lost costs the time to make its partitions and results again; workers may join and leave.  Every
    task uses one thread.

    Parameters
    ----------
    X : Dask array or dataframe, or list of delayed objects or futures
        Numbers.  Columns of an array are brought into one chunk, sizes that are not known are computed.  Blocks may be
        sparse matrices of SciPy, which are used as CSR.
    client : distributed.Client, optional
        Of the cluster.  By default what Dask would use: the client there is, or the scheduler it was told.
    memory : int or str
        Bytes (or such as ``"2GB"``) that work on the rows may take in this process.
    y : Dask array or series, or array, optional
        Targets; they are brought here.

    Attributes
    ----------
    held : bool
        Whether the partitions are kept in the memory of a cluster.
    close : callable
        Ends processes and frees the cluster's memory; so does losing the last reference to the source.
    times : Times
        Of the last pass.  `read` and `compute` are measured in the tasks and summed over them: until the partition was
        in hand as a block, and the function.  `transfer` is the rest of the time of all the threads that could work
        (their number times `wall`): sending, scheduling, waiting for each other and for this process.

    Examples
    --------
    >>> import dask.array as da
    >>> import numpy as np
    >>> rows = Partitions(da.from_array(np.arange(12.0).reshape(6, 2), chunks=(4, 1)))
    >>> rows.shape, [total.tolist() for total in rows.map(np.sum)]
    ((6, 2), [28.0, 38.0])
    """

    def __init__(self, X: Any, *, client: Any = None, memory: int | str = MEMORY, y: Any = None) -> None:
        memory = check_memory(memory)
        try:
            from ._dask_open import open_parts
        except ImportError as trouble:
            raise ImportError(f"{trouble}; pip install 'ksparse[dask]' brings what Dask needs here") from trouble
        found = open_parts(X, client, y)
        sparse = found.entries is not None
        super().__init__(
            found.shape,
            found.form.dtype,
            sparse=sparse,
            entries=found.entries,
            names=found.names,
            y=found.y,
            memory=memory,
        )
        self._form, self._runner = found.form, found.runner
        self._starts = np.concatenate(([0], np.cumsum(found.runner.rows))).tolist()
        self._sizes: dict[Any, int] = {}  # bytes that functions returned
        self.close = weakref.finalize(self, self._runner.close)
        self.held: bool = self._runner.hold(self._form, self.row_bytes * self.shape[0])

    def __repr__(self) -> str:
        kind, where = "sparse" if self.sparse else "dense", "held by a cluster" if self.held else "computed when wanted"
        return f"Partitions({len(self._starts) - 1} of {self.shape[0]} x {self.shape[1]}, {kind} {self.dtype}, {where})"

    def blocks(self, columns: NDArray[np.int64] | None = None) -> Iterator[Any]:
        """The blocks in order, brought here."""
        return self.map(_copy_block, columns=columns)

    def map(
        self, function: Callable[..., T], *arrays: NDArray[Any], columns: NDArray[np.int64] | None = None
    ) -> Iterator[T]:
        """``function(block, *parts)`` for every partition, where it is; results in order.

        The function travels once a pass, parts of read-only arrays once; parts of others with every call.
        """
        from .. import __version__
        from ._dask_parts import Order

        if not self.close.alive:
            raise ValueError("the source is closed; make another one")
        for array in arrays:
            if array.size and array.shape[0] != self.shape[0]:
                raise ValueError(f"an array of shape {array.shape} has no entry for each of {self.shape[0]} rows")
        began, read, compute = time.perf_counter(), 0.0, 0.0
        for done in self._in_order(Order(__version__, function, columns, self._form), arrays):
            if done.error is not None:
                raise done.error
            read, compute = read + done.read, compute + done.compute
            yield done.result
            between_blocks.get()()
        wall = time.perf_counter() - began
        self.times = Times(wall, read, compute, max(0.0, self._runner.total * wall - read - compute))

    def _in_order(self, order: Any, arrays: tuple[NDArray[Any], ...]) -> Iterator[Any]:
        """Every partition's `Done`.  Some are under way for each thread, and results wait while they fit the memory."""
        from ._dask_here import Lost

        runner, starts, news = self._runner, self._starts, threading.Event()
        count, lost, name = len(starts) - 1, 0, _name(order.function)
        running: dict[int, Any] = {}

        def submit(which: list[int]) -> None:
            for i, future in zip(
                which, runner.submit(sent, [(i, starts[i], starts[i + 1]) for i in which]), strict=True
            ):
                running[i] = future
                future.add_done_callback(lambda _: news.set())

        def top_up(head: int) -> None:
            fits = int(self.memory * SHARE_OF_BLOCKS) // max(1, self._sizes.get(name, self.memory))
            window = max(AHEAD * runner.total + 2, fits)
            fresh: list[int] = []  # for all places at once: a message each would have to wait for the one before
            for threads, left, under_way in queues:
                while under_way and (under_way[0] not in running or running[under_way[0]].done()):
                    under_way.popleft()
                most = threads * (FAR if fits else AHEAD)
                # many at a time cost less; half of them are left when more are sent
                if left and (left[0] == head or len(under_way) <= most // 2):
                    while left and (left[0] == head or (left[0] < head + window and len(under_way) < most)):
                        under_way.append(left.popleft())
                        fresh.append(under_way[-1])
            if fresh:
                submit(sorted(fresh))

        sent, head = runner.begin(order, arrays), 0
        try:
            queues = [(threads, deque(left), deque[int]()) for threads, left in runner.places().values()]
            while head < count:
                top_up(head)
                patience = runner.patience()
                while not running[head].done():
                    if not news.wait(patience):
                        patience = runner.look()
                    news.clear()
                    top_up(head)
                ready = list(itertools.takewhile(lambda i: i in running and running[i].done(), range(head, count)))
                try:
                    found = runner.results([running[i] for i in ready])
                except Lost as trouble:
                    lost += 1
                    if lost > TRIES:
                        raise RuntimeError(f"{trouble}; it was tried {TRIES} times") from None
                    runner.end(sent, [])
                    runner.renew()
                    sent = runner.begin(order, arrays)
                    submit(list(running))
                    continue
                self._sizes[name] = max(done.size for done in found)
                for i in ready:
                    del running[i]
                head += len(ready)
                yield from found
        finally:  # also after an error or Ctrl-C
            runner.end(sent, list(running.values()))


def _name(function: Any) -> Any:
    """What a function is called, with those that it is made of: it will return as much as the last time."""
    if not isinstance(function, functools.partial):
        return getattr(function, "__qualname__", None)
    return _name(function.func), *(_name(item) for item in function.args if callable(item))
