"""Passes over Dask partitions on the workers of a cluster: the rows stay there, and lost work is done again."""

from __future__ import annotations

import hashlib
import os
import socket
import uuid
from collections import OrderedDict
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from typing import Any, Generic, TypeVar

import cloudpickle
import dask
import numpy as np
from dask.delayed import delayed
from numpy.typing import NDArray

from .._dask import PATIENCE, Cancelled, ClusterWatch, cancel, check_workers, result_of
from .dask_local import BlockFormat, LazyPart, LostWork, PartResult, PassTask, as_block, run_part

T = TypeVar("T")
REMEMBERED = 8  # arrays whose sent copies are remembered: targets, weights, and a few more
SHARE = 0.6  # of a worker's memory that rows may take: beyond it Dask begins to move them to disk
SMALL = 1 << 16  # bytes that may be sent with every task
SPENT = 1 << 20  # bytes of a result that may stay on its worker until the next pass has begun


class SentArrays(Generic[T]):
    """Remembers what was made of the last few read-only arrays when they were sent: the futures of their slices.

    Arrays are recognised by their content, so that the targets of the next fit are not sent again.  An array that
    nobody can write to is recognised by its identity, without reading its numbers again.
    """

    def __init__(self, forget: Callable[[T], object] = lambda made: None) -> None:
        self._known: OrderedDict[Any, tuple[NDArray[Any], T]] = OrderedDict()
        self._forget = forget  # called with what was made of an array that is no longer remembered

    def find(self, array: NDArray[Any], make: Callable[[], T]) -> T:
        """What was made of an array with the same content; else make it now."""
        key = self._key(array)
        made = self._known[key][1] if key in self._known else make()
        self._known[key] = array, made
        self._known.move_to_end(key)
        if len(self._known) > REMEMBERED:
            self._forget(self._known.popitem(last=False)[1][1])
        return made

    def clear(self) -> None:
        self._known.clear()

    def _key(self, array: NDArray[Any]) -> Any:
        if not _may_change(array):
            known = next((key for key, (held, _) in self._known.items() if held is array), None)
            if known is not None:
                return known
        if array.dtype.hasobject:
            return id(array)  # the array is held, so that no other one can have its id
        return array.shape, array.dtype.str, hashlib.sha1(np.ascontiguousarray(array).data).digest()


def _may_change(array: NDArray[Any]) -> bool:
    """Whether somebody can write to an array, or to the array behind a read-only view."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array.flags.writeable or array.base is not None


class ClusterWorkers:
    """Runs passes on the workers of a cluster; its methods are those of `LocalThreads`.

    Whatever is sent is the argument of a task, and is not scattered: then the scheduler sends it again when a worker
    is lost.  A pass needs few messages to the scheduler, since Dask waits 10 ms between two of them.
    """

    def __init__(self, client: Any) -> None:
        self.client = client
        self.total = 1
        self.rows: list[int] = []
        self._delayed: list[Any] = []
        self._parts: list[LazyPart] = []
        self._there = False  # whether the data of the partitions were on the cluster from the beginning
        self._blocks: list[Any] | None = None  # futures, if the cluster keeps the partitions
        self._format: BlockFormat | None = None
        self._holders: list[tuple[str, ...]] = []
        self._sent: SentArrays[dict[int, Any]] = SentArrays()
        self._threads: dict[str, int] = {}
        self._spent: list[Any] = []  # futures of the last pass
        self._watch = watch(client)

    def compute(self, items: list[Any]) -> list[Any]:
        """The values of delayed objects, from workers that have this version of ksparse."""
        check_workers(self.client)
        with _large_graphs():
            futures = self.client.compute(items)
        try:
            return [result_of(future, watch(self.client), "partition") for future in futures]
        finally:
            cancel(self.client, [future for future in futures if not future.done()])

    def set_parts(self, parts: list[Any], lazy: list[LazyPart], rows: list[int]) -> None:
        self._delayed, self._parts, self.rows = parts, lazy, rows
        self._holders = [()] * len(parts)

    # --- partitions in the memory of the cluster ---------------------------------------------------------------------
    def hold(self, format: BlockFormat, size: int, *, there: bool) -> bool:
        """Keep the partitions in the memory of the cluster, if they fit or are there already; returns whether."""
        if not there and size > self._free():
            return False
        self._format, self._there = format, there
        self._persist()
        return True

    def _persist(self) -> None:
        """Compute the blocks, in turn on each worker.

        `Client.persist` would give neighbours to the same worker; but passes go through the blocks in their order.
        """
        name = uuid.uuid4().hex
        blocks = [
            delayed(as_block)(part, self._format, rows, dask_key_name=f"ksparse-block-{name}-{i}")
            for i, (part, rows) in enumerate(zip(self._delayed, self.rows, strict=True))
        ]
        workers = [None] if self._there else sorted(self.client.nthreads()) or [None]
        futures: list[Any] = [None] * len(blocks)
        with _large_graphs():
            for place, worker in enumerate(workers):
                mine = slice(place, None, len(workers))
                near = {} if worker is None else {"workers": [worker], "allow_other_workers": True}
                futures[mine] = self.client.compute(blocks[mine], **near)
        self._blocks = futures

    def _free(self) -> float:
        """Bytes that rows may take on all workers together."""
        found = [f for f in self.client.run(_memory, on_error="return").values() if isinstance(f, tuple)]
        beside = {host: sum(other == host for other, *_ in found) for host, *_ in found}
        total = 0.0
        for host, available, limit, used in found:
            own = SHARE * available / beside[host]
            total += min(own, SHARE * limit - used) if limit else own
        return total

    def _even_out(self, blocks: list[Any]) -> None:
        """Move blocks to workers that have less than half of their share, because they joined or were restarted.

        `Client.rebalance` would move nothing from workers that use less than 30% of their memory.
        """
        mine: dict[str, list[int]] = {worker: [] for worker in self._threads}
        for i, holders in enumerate(self._holders):
            if holders and holders[0] in mine:
                mine[holders[0]].append(i)
        share = {worker: len(blocks) * count // self.total for worker, count in self._threads.items()}
        for worker in [worker for worker in mine if len(mine[worker]) < share[worker] / 2]:
            while len(mine[worker]) < share[worker]:
                fullest = max(mine, key=lambda other: len(mine[other]) - share[other])
                if len(mine[fullest]) <= share[fullest]:
                    break
                i = mine[fullest].pop()
                mine[worker].append(i)
                blocks[i] = self._task(_same, blocks[i], workers=[worker], allow_other_workers=True)
                self._holders[i] = (worker,)

    # --- a pass ------------------------------------------------------------------------------------------------------
    def begin(self, task: PassTask, arrays: tuple[NDArray[Any], ...]) -> Any:
        if self.client.status != "running":
            raise Cancelled(
                f"the client of the cluster at {address(self.client)} is {self.client.status}: its scheduler is gone, "
                "or it was closed; make another client and another source"
            )
        if self._blocks is not None and any(block.cancelled() for block in self._blocks):
            self.renew()  # the cluster was restarted, or somebody else cancelled them
        self._watch = watch(self.client)
        sent: Any = cloudpickle.dumps(task)
        if len(sent) >= SMALL:  # a small one is sent with every partition, which then need not wait for it
            sent = self._task(_unpack, sent)
        # with a read-only array, the slices of it that were sent, by partition
        return sent, [(array, None if array.flags.writeable else self._sent.find(array, dict)) for array in arrays]

    def places(self) -> dict[Any, tuple[int, list[int]]]:
        """Every worker with its threads and its partitions; those that no worker has, or several, at None."""
        before, self._threads = self._threads, threads(self.client)
        self.total = max(1, sum(self._threads.values()))
        if self._blocks is not None and not (before == self._threads and all(self._holders)):
            where = self.client.who_has(self._blocks)
            self._holders = [tuple(where.get(block.key, ())) for block in self._blocks]
            self._even_out(self._blocks)
        found: dict[Any, tuple[int, list[int]]] = {}
        for i, holders in enumerate(self._holders):
            place = holders[0] if len(holders) == 1 and holders[0] in self._threads else None
            found.setdefault(place, (self.total if place is None else self._threads[place], []))[1].append(i)
        return found

    def submit(self, begun: Any, spans: list[tuple[int, int, int]]) -> list[Any]:
        """Submit partitions in one message; slices of read-only arrays that were not sent yet need one more."""
        task, arrays = begun
        which = [i for i, *_ in spans]
        for array, slices in arrays:
            if slices is None:
                continue
            missing = [span for span in spans if span[0] not in slices]
            numbers, parts = [i for i, *_ in missing], [_pack_array(array[low:high]) for _, low, high in missing]
            # their block is an argument only so that the slices are kept on the same worker
            slices.update(zip(numbers, self._tasks(_unpack_slice, numbers, parts), strict=True))
        columns = [
            [_pack_array(array[low:high]) if slices is None else slices[i] for i, low, high in spans]
            for array, slices in arrays
        ]
        futures = self._tasks(_run, which, [self.rows[i] for i in which], *columns, task=task)
        self._spent.clear()  # freeing them is a message too, which is sent after the urgent one
        return futures

    def _tasks(self, function: Any, which: list[int], *columns: list[Any], **common: Any) -> list[Any]:
        """``function(block, *arguments)`` for these partitions where they are; idle workers may fetch some."""
        if not which:
            return []
        if self._blocks is None:
            parts = [cloudpickle.dumps(self._parts[i]) if function is _run else None for i in which]
        else:
            parts = [self._blocks[i] for i in which]
        with _large_graphs():
            return self.client.map(function, parts, *columns, pure=False, **common)

    def _task(self, function: Any, *arguments: Any, **near: Any) -> Any:
        with _large_graphs():
            return self.client.submit(function, *arguments, pure=False, **near)

    def wait_seconds(self, waited: bool) -> float:
        if waited:
            self._watch.look()
        else:
            self._watch.seconds = PATIENCE[0]
        return self._watch.seconds

    def results(self, futures: list[Any]) -> list[PartResult]:
        found: list[PartResult] = []
        if len(futures) > 1:  # all in one message, which fails if a worker was lost
            with suppress(Exception):
                found = self.client.sync(self.client._gather, futures, callback_timeout=self._watch.seconds)
        found = found or [self._result(future) for future in futures]
        self._spent += [future for future, done in zip(futures, found, strict=True) if done.size < SPENT]
        return found

    def _result(self, future: Any) -> PartResult:
        try:
            return result_of(future, self._watch, "partition")
        except Cancelled as trouble:
            if self.client.status != "running":
                raise
            raise LostWork(
                f"the cluster at {address(self.client)} has cancelled the work, or lost data that it cannot make again "
                "(data that were scattered; let a collection read them instead)"
            ) from trouble
        except ImportError as trouble:
            if "ksparse" not in str(trouble):
                raise
            raise ValueError(f"a worker that joined cannot import ksparse ({trouble}); install it there") from None

    def renew(self) -> None:
        self._sent.clear()
        self._holders = [()] * len(self._parts)
        if self._blocks is not None:
            self._persist()

    def end(self, begun: Any, running: list[Any]) -> None:
        cancel(self.client, running)

    def close(self) -> None:
        self._blocks = None
        self._sent.clear()
        self._spent.clear()


def address(client: Any) -> str:
    return client.scheduler.address if client.scheduler is not None else "?"


def threads(client: Any) -> dict[str, int]:
    """The number of threads of every worker."""
    if client.status != "running":
        return {}
    with suppress(OSError):  # a lost scheduler is noticed where results are waited for
        return {worker: count for worker, count in client.nthreads().items() if count}
    return {}


def watch(client: Any) -> ClusterWatch:
    return ClusterWatch(address(client), lambda: len(threads(client)))


def _large_graphs() -> AbstractContextManager[Any]:
    """Without Dask's warning that much is sent: it is sent only once."""
    return dask.config.set({"distributed.admin.large-graph-warning-threshold": 1 << 62})


# --- what runs on a worker -------------------------------------------------------------------------------------------
def _memory(dask_worker: Any) -> tuple[str, int, int, int]:
    """A worker's machine, the bytes free there, its memory limit (0: none) and what it uses."""
    import psutil

    limit = getattr(getattr(dask_worker, "memory_manager", None), "memory_limit", None) or 0
    return socket.gethostname(), psutil.virtual_memory().available, limit, psutil.Process(os.getpid()).memory_info().rss


def _same(block: Any) -> Any:
    return block


def _unpack(work: bytes) -> Any:
    return cloudpickle.loads(work)


def _pack_array(array: NDArray[Any]) -> bytes:
    """An array as bytes; flags, which are sent in every stage, as one bit each."""
    return cloudpickle.dumps((np.packbits(array), array.size) if array.dtype == bool and array.ndim == 1 else array)


def _unpack_array(work: bytes) -> NDArray[Any]:
    array = cloudpickle.loads(work)
    return np.unpackbits(array[0], count=array[1]).view(bool) if isinstance(array, tuple) else np.asarray(array)


def _unpack_slice(block: Any, work: bytes) -> NDArray[Any]:
    array = _unpack_array(work)
    array.flags.writeable = False
    return array


def _run(part: Any, rows: int, *arrays: Any, task: Any) -> PartResult:
    """Run the function of a pass; arguments that are bytes are packed."""
    unpacked = tuple(_unpack_array(array) if isinstance(array, bytes) else array for array in arrays)
    task = _unpack(task) if isinstance(task, bytes) else task
    return run_part(task, _unpack(part) if isinstance(part, bytes) else part, rows, unpacked)
