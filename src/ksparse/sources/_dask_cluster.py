"""Passes over Dask partitions on a cluster: they stay where they are, and what was lost is made again."""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import cloudpickle
import numpy as np
from numpy.typing import NDArray

from .._dask import PATIENCE, Cancelled, Watch, cancel, check_workers, result_of
from ._dask_here import Lost
from ._dask_parts import Done, Form, Lazy, Order, as_block, client_of, do_part
from ._dask_sent import Sent

SHARE = 0.6  # of a worker's memory that rows may take: beyond it Dask begins to move them to disk
SMALL = 1 << 16  # bytes that may travel with every task
SPENT = 1 << 20  # bytes of a result that may stay where it is until the next pass has begun
UNLIMITED = {"distributed.admin.large-graph-warning-threshold": 1 << 62}


class OnCluster:
    """The workers of a client's cluster.

    Whatever is sent is the argument of a task, not scattered: the scheduler then makes it again when a worker is lost.
    """

    def __init__(self, client: Any, delayed: list[Any], parts: list[Lazy], rows: list[int]) -> None:
        self.client, self.parts, self.rows = client, parts, rows
        self.total = 1
        self._delayed = delayed
        self._blocks: list[Any] | None = None
        self._form: Form | None = None
        self._holders: list[tuple[str, ...]] = [()] * len(parts)
        self._kept: Sent[dict[int, Any]] = Sent()
        self._lanes: dict[str, int] = {}
        self._spent: list[Any] = []  # results of the last pass
        self._watch = watch(client)

    def hold(self, form: Form, size: int) -> bool:
        """Keep the partitions on the cluster, if they fit or are there already; gives whether."""
        if client_of(self.parts) is None and size > self._free():
            return False
        self._form = form
        self._persist()
        return True

    def _persist(self) -> None:
        from dask.delayed import delayed

        name, form = uuid.uuid4().hex, self._form
        blocks = [
            delayed(as_block)(part, form, rows, dask_key_name=f"ksparse-block-{name}-{i}")
            for i, (part, rows) in enumerate(zip(self._delayed, self.rows, strict=True))
        ]
        there = client_of(self.parts) is not None
        # in turn, where Dask would give neighbours to the same worker: passes go through the rows in their order
        workers = [None] if there else sorted(self.client.nthreads()) or [None]
        futures: list[Any] = [None] * len(blocks)
        with _large_graphs():
            for place, worker in enumerate(workers):
                mine = range(place, len(blocks), len(workers))
                near = {} if worker is None else {"workers": [worker], "allow_other_workers": True}
                for i, future in zip(mine, self.client.compute([blocks[i] for i in mine], **near), strict=True):
                    futures[i] = future
        self._blocks = futures

    def _free(self) -> float:
        """Bytes that rows may take on all workers."""
        found = [f for f in self.client.run(_memory, on_error="return").values() if isinstance(f, tuple)]
        beside = {host: sum(other == host for other, *_ in found) for host, *_ in found}
        total = 0.0
        for host, available, limit, used in found:
            own = SHARE * available / beside[host]
            total += min(own, SHARE * limit - used) if limit else own
        return total

    # --- a pass ------------------------------------------------------------------------------------------------------
    def begin(self, order: Order, arrays: tuple[NDArray[Any], ...]) -> Any:
        self._check_client()
        if self._blocks is not None and any(block.cancelled() for block in self._blocks):
            self.renew()  # restarted, or cancelled by others
        self._watch = watch(self.client)
        packed: Any = cloudpickle.dumps(order)
        # a task of its own, which others then wait for, only where sending it with all of them costs more
        order_there = packed if len(packed) < SMALL else self._task(_unpack, packed)
        return order_there, [(array, self._made(array)) for array in arrays]

    def _made(self, array: NDArray[Any]) -> dict[int, Any] | None:
        """The parts of a read-only array that were sent; None for others."""
        if array.flags.writeable:
            return None
        made = self._kept.get(array)
        if made is None:
            made = {}
            self._kept.add(array, made)
        return made

    def places(self) -> dict[Any, tuple[int, list[int]]]:
        """Every partition at the worker that has it; at any one if it is nowhere, or at several."""
        before, self._lanes = self._lanes, threads(self.client)
        self.total = max(1, sum(self._lanes.values()))
        if self._blocks is not None and not (before == self._lanes and all(self._holders)):
            where = self.client.who_has(self._blocks)
            self._holders = [tuple(where.get(block.key, ())) for block in self._blocks]
            self._even_out(self._blocks)
        found: dict[Any, tuple[int, list[int]]] = {}
        for i, holders in enumerate(self._holders):
            place = holders[0] if len(holders) == 1 and holders[0] in self._lanes else None
            found.setdefault(place, (self.total if place is None else self._lanes[place], []))[1].append(i)
        return found

    def _even_out(self, blocks: list[Any]) -> None:
        """Move blocks to workers that have less than half of their share: those that joined, or came again."""
        mine: dict[str, list[int]] = {worker: [] for worker in self._lanes}
        for i, holders in enumerate(self._holders):
            if holders and holders[0] in mine:
                mine[holders[0]].append(i)
        share = {worker: len(blocks) * count // self.total for worker, count in self._lanes.items()}
        for worker in [worker for worker in mine if len(mine[worker]) < share[worker] / 2]:
            while len(mine[worker]) < share[worker]:
                fullest = max(mine, key=lambda other: len(mine[other]) - share[other])
                if len(mine[fullest]) <= share[fullest]:
                    break
                i = mine[fullest].pop()
                mine[worker].append(i)
                blocks[i] = self._task(_same, blocks[i], workers=[worker], allow_other_workers=True)
                self._holders[i] = (worker,)

    def submit(self, sent: Any, spans: list[tuple[int, int, int]]) -> list[Any]:
        """In one message: Dask sends the next one to the scheduler not before 10 ms have passed."""
        order, arrays = sent
        which = [i for i, *_ in spans]
        for array, made in arrays:
            missing = [span for span in spans if made is not None and span[0] not in made]
            parts = [_pack_part(array[low:high]) for _, low, high in missing]
            # beside its block, which is an argument for that reason only
            for (i, *_), part in zip(missing, self._tasks(_unpack_part, [i for i, *_ in missing], parts), strict=True):
                made[i] = part
        columns = [
            [_pack_part(array[low:high]) if made is None else made[i] for i, low, high in spans]
            for array, made in arrays
        ]
        futures = self._tasks(_do, which, [self.rows[i] for i in which], *columns, order=order)
        self._spent.clear()  # a message, too: it goes behind the one that is waited for
        return futures

    def _tasks(self, function: Any, which: list[int], *columns: list[Any], **common: Any) -> list[Any]:
        """``function(block, *arguments)`` for these partitions, where they are; a worker that idles may fetch one."""
        if not which:
            return []
        if self._blocks is None:
            parts = [cloudpickle.dumps(self.parts[i]) if function is _do else None for i in which]
        else:
            parts = [self._blocks[i] for i in which]
        with _large_graphs():
            return self.client.map(function, parts, *columns, pure=False, **common)

    def _task(self, function: Any, *arguments: Any, **near: Any) -> Any:
        with _large_graphs():
            return self.client.submit(function, *arguments, pure=False, **near)

    def patience(self) -> float:
        self._watch.seconds = PATIENCE[0]
        return self._watch.seconds

    def look(self) -> float:
        self._watch.look()
        return self._watch.seconds

    def results(self, futures: list[Any]) -> list[Done]:
        found: list[Done] = []
        if len(futures) > 1:  # in one message, if nobody is lost
            with suppress(Exception):
                found = self.client.sync(self.client._gather, futures, callback_timeout=self._watch.seconds)
        found = found or [self._result(future) for future in futures]
        self._spent += [future for future, done in zip(futures, found, strict=True) if done.size < SPENT]
        return found

    def _result(self, future: Any) -> Done:
        try:
            return result_of(future, self._watch, "partition")
        except Cancelled as trouble:
            if self.client.status != "running":
                raise
            raise Lost(  # restarted, or cancelled by others
                f"the cluster at {address(self.client)} has cancelled the work, or lost data that it cannot make again "
                "(data that were scattered; let a collection read them instead)"
            ) from trouble
        except ImportError as trouble:
            if "ksparse" not in str(trouble):
                raise
            raise ValueError(f"a worker that joined cannot import ksparse ({trouble}); install it there") from None

    def renew(self) -> None:
        self._kept.clear()
        self._holders = [()] * len(self.parts)
        if self._blocks is not None:
            self._persist()

    def end(self, sent: Any, running: list[Any]) -> None:
        cancel(self.client, running)

    def close(self) -> None:
        self._blocks = None
        self._kept.clear()
        self._spent.clear()

    def _check_client(self) -> None:
        if self.client.status != "running":
            raise Cancelled(
                f"the client of the cluster at {address(self.client)} is {self.client.status}: its scheduler is gone, "
                "or it was closed; make another client and another source"
            )


def compute(client: Any, items: list[Any]) -> list[Any]:
    """What Dask collections and delayed objects come to, on workers that have this version of ksparse."""
    check_workers(client)
    with _large_graphs():
        futures = client.compute(items)
    try:
        return [result_of(future, watch(client), "partition") for future in futures]
    finally:
        cancel(client, [future for future in futures if not future.done()])


def address(client: Any) -> str:
    return client.scheduler.address if client.scheduler is not None else "?"


def threads(client: Any) -> dict[str, int]:
    """Of every worker there is."""
    if client.status != "running":
        return {}
    with suppress(OSError):  # a lost scheduler is noticed where results are waited for
        return {worker: count for worker, count in client.nthreads().items() if count}
    return {}


def watch(client: Any) -> Watch:
    return Watch(address(client), lambda: len(threads(client)))


@contextmanager
def _large_graphs() -> Iterator[None]:
    """Without Dask's warning that much is sent: it is sent once."""
    import dask

    with dask.config.set(UNLIMITED):
        yield


def _memory(dask_worker: Any) -> tuple[str, int, int, int]:
    """Of a worker: its machine, the bytes free there, its limit (0: none) and what it uses."""
    import psutil

    limit = getattr(getattr(dask_worker, "memory_manager", None), "memory_limit", None) or 0
    return socket.gethostname(), psutil.virtual_memory().available, limit, psutil.Process(os.getpid()).memory_info().rss


def _same(block: Any) -> Any:
    return block


def _unpack(work: bytes) -> Any:
    return cloudpickle.loads(work)


def _pack_part(part: NDArray[Any]) -> bytes:
    """Bits for flags, which travel in every stage."""
    return cloudpickle.dumps((np.packbits(part), part.size) if part.dtype == bool and part.ndim == 1 else part)


def _unpacked(work: bytes) -> NDArray[Any]:
    part = cloudpickle.loads(work)
    return np.unpackbits(part[0], count=part[1]).view(bool) if isinstance(part, tuple) else np.asarray(part)


def _unpack_part(block: Any, work: bytes) -> NDArray[Any]:
    part = _unpacked(work)
    part.flags.writeable = False
    return part


def _do(part: Any, rows: int, *arrays: Any, order: Any) -> Done:
    """What a worker does; bytes are packed arguments."""
    unpacked = tuple(_unpacked(array) if isinstance(array, bytes) else array for array in arrays)
    order = _unpack(order) if isinstance(order, bytes) else order
    return do_part(order, _unpack(part) if isinstance(part, bytes) else part, rows, unpacked)
