"""Work on a Dask cluster, results in order.  Needs the `dask` extra."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

from ..._dask import ClusterError, ClusterWatch, TookLonger, cancel, check_version, check_workers, quiet, result_of
from ..._threads import one_thread
from ..._validate import check_count
from ._parallel import Done, Pool, Workers, in_batches, pack, perform

T = TypeVar("T")
CONNECT = 5.0  # seconds that a scheduler has to answer
JOIN = 10.0  # seconds that its first worker has to be there
REFRESH = 2.0  # seconds between two looks at how many workers there are


class Cluster:
    """The workers of a Dask cluster, used like a `Pool`, with results of the same bits.

    Work of a worker that was lost is done again by another; workers may join at any time, and may have several threads.
    Work that was under way on four lost workers is taken for their cause and is an error (the scheduler's setting
    ``distributed.scheduler.allowed-failures`` says how many); errors of the work itself would come again, and are not
    tried twice.

    Parameters
    ----------
    address : str
        Of the scheduler, such as ``"tcp://host:8786"``.  Its workers must have this version of ksparse.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self.cpu_seconds = 0.0
        self._client = _connect(address)
        self._running: dict[Any, Any] = {}
        self._threads, self._seen = 0, float("-inf")
        try:
            self._check_workers()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave the cluster, which goes on; work that nobody waits for any more is cancelled."""
        self._cancel()
        with quiet(self._client):  # the scheduler may be gone
            self._client.close()

    @property
    def jobs(self) -> int:
        """How many trials can be under way: the threads of all workers, which come and go; at least 1."""
        if time.monotonic() - self._seen >= REFRESH:
            self._count()
        return max(1, self._threads)

    def map(self, function: Callable[..., T], items: Iterable[tuple[Any, ...]]) -> Iterator[T]:
        """``function(*item)`` of every item, in order."""
        try:
            yield from in_batches(self, lambda batch: self._submit(function, batch), items)
        finally:  # after an error or Ctrl-C
            self._cancel()

    def _count(self) -> int:
        if self._client.status == "running":
            with suppress(OSError):  # a lost scheduler is noticed where results are waited for
                self._threads = sum(self._client.nthreads().values())
        self._seen = time.monotonic()
        return self._threads

    def _submit(self, function: Callable[..., Any], batch: list[tuple[Any, ...]]) -> _Batch:
        from ... import __version__

        # packed here, for Dask would look into the arguments; not pure: an estimate wants the same work done twice
        future = self._client.submit(do_trials, __version__, pack(function, batch), pure=False)
        self._running[future.key] = future
        return _Batch(self, future)

    def _wait(self, future: Any) -> Done:
        try:
            done = result_of(future, ClusterWatch(self.address, self._count), "trials")
        except ClusterError:
            raise
        except Exception as trouble:  # Dask's own: those of the work come as results
            raise RuntimeError(f"the cluster at {self.address} cannot do the work: {trouble}") from trouble
        self._running.pop(future.key, None)
        return done

    def _cancel(self) -> None:
        cancel(self._client, list(self._running.values()))
        self._running.clear()

    def _check_workers(self) -> None:
        """Refuse a cluster without workers, and workers with another version of ksparse."""
        try:
            self._client.wait_for_workers(1, timeout=JOIN)
        except TookLonger:
            raise ValueError(
                f"the scheduler at {self.address} has no workers; start some with: "
                f"dask worker {self.address} --nworkers -1 --nthreads 1"
            ) from None
        check_workers(self._client)


class _Batch(NamedTuple):
    """What comes of a batch that a cluster has."""

    cluster: Cluster
    future: Any

    def result(self) -> Done:
        return self.cluster._wait(self.future)


def make_pool(jobs: int | None = None, scheduler: str | None = None) -> Workers:
    """Processes of this machine (see `Pool`), or the workers of a Dask cluster (see `Cluster`) if an address is given.

    It is jobs or scheduler: a cluster has as many workers as it has.
    """
    if scheduler is None:
        return Pool(None if jobs is None else check_count(jobs, "jobs"))
    if jobs is not None:
        raise ValueError(
            "jobs is for processes of this machine, and scheduler for a cluster's workers: give one of them"
        )
    return Cluster(scheduler)


def do_trials(version: str, work: bytes) -> Done:
    """What a worker does: a batch, on one thread, if its ksparse is that of the caller."""
    from ... import __version__

    try:
        check_version(version, __version__, "that joined")
    except ValueError as trouble:
        return Done(0.0, 0.0, [], trouble)
    with one_thread():
        return perform(work)


def _connect(address: Any) -> Any:
    """A client of the scheduler."""
    try:
        from distributed import Client
    except ImportError:
        raise ValueError("a scheduler needs Dask; pip install 'ksparse[dask]' brings it") from None
    if not isinstance(address, str) or not address:
        raise ValueError(f"scheduler must be the address of a Dask scheduler, such as tcp://host:8786, got {address!r}")
    try:
        with ThreadPoolExecutor(1) as thread:  # a notebook has an event loop of its own in this one
            thread.submit(asyncio.run, _greet(address)).result()
        return Client(address, timeout=CONNECT, set_as_default=False)
    except Exception as error:  # whatever answers there, if anything, may say anything
        trouble = str(error) or f"no answer in {CONNECT:g} s"
    raise ValueError(
        f"no Dask scheduler can be reached at {address} ({trouble}); start one with: dask scheduler, and give the "
        "address that it prints"
    )


async def _greet(address: str) -> None:
    """See whether a scheduler answers: a client would wait without end for one that takes calls and says nothing."""
    from distributed import Security, rpc

    async with rpc(address, timeout=CONNECT, connection_args=Security().get_connection_args("client")) as place:
        kind = (await asyncio.wait_for(place.identity(), CONNECT))["type"]
    if kind != "Scheduler":
        raise ValueError(f"a {kind} is there")
