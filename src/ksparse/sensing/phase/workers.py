"""Workers that run trials and return the results in order: processes of this machine, or a Dask cluster.

Both give the same bits whatever the number of workers: every worker computes on one thread.
"""

from __future__ import annotations

import asyncio
import functools
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import islice
from queue import SimpleQueue
from typing import Any, NamedTuple, Protocol, TypeVar

from ..._dask import (
    ClusterError,
    ClusterWatch,
    TookLonger,
    cancel,
    check_version,
    check_workers,
    portable,
    quiet,
    result_of,
)  # fmt: skip
from ..._threads import one_thread
from ..._validate import check_count

T = TypeVar("T")
Items = list[tuple[Any, ...]]  # arguments of several calls
BATCH = 0.2  # seconds of work that a worker is sent at once
AHEAD = 3  # batches per worker that may be running, or finished and waiting for an earlier one
CONNECT = 5.0  # seconds that a scheduler has to answer
JOIN = 10.0  # seconds to wait for the first worker of a cluster
REFRESH = 2.0  # seconds between two counts of the workers of a cluster
START = "import pickle, sys; sys.path[:] = pickle.load(sys.stdin.buffer); from {} import serve; serve()"
ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS", "NUMBA_NUM_THREADS"), "1"
)


class Workers(Protocol):
    """What `Pool` and `Cluster` have in common; both are context managers.

    Attributes
    ----------
    jobs : int
        How many calls can run at the same time.
    cpu_seconds : float
        CPU time of all calls so far.
    """

    cpu_seconds: float

    @property
    def jobs(self) -> int: ...
    def map(self, function: Callable[..., T], items: Iterable[tuple[Any, ...]]) -> Iterator[T]: ...
    def __enter__(self) -> Any: ...
    def __exit__(self, *error: object) -> None: ...


def make_pool(jobs: int | None = None, scheduler: str | None = None) -> Workers:
    """A `Pool` of processes of this machine, or a `Cluster` if the address of a Dask scheduler is given.

    Parameters
    ----------
    jobs : int, default=None
        Number of processes; by default one for each core that this process may use.
    scheduler : str, default=None
        Address of a Dask scheduler, such as ``"tcp://host:8786"``.  Not together with jobs.

    Examples
    --------
    >>> with make_pool(jobs=1) as pool:
    ...     list(pool.map(divmod, [(9, 7), (8, 3)]))
    [(1, 2), (2, 2)]
    """
    if scheduler is None:
        return Pool(None if jobs is None else check_count(jobs, "jobs"))
    if jobs is not None:
        raise ValueError("jobs is for processes of this machine, scheduler for a cluster's workers: give one of them")
    return Cluster(scheduler)


class Done(NamedTuple):
    """The outcome of a batch: the time it took, its results, and the error that ended it."""

    seconds: float
    cpu_seconds: float
    results: list[Any]
    error: Exception | None


def in_batches(
    workers: Workers, submit: Callable[[Items], Callable[[], Done]], items: Iterable[tuple[Any, ...]]
) -> Iterator[Any]:
    """The results of all items in order, from batches of about `BATCH` seconds, `AHEAD` batches per worker at once.

    `submit` starts a batch, and returns a function that waits for its outcome.
    """
    left, size = iter(items), 1
    running: deque[Callable[[], Done]] = deque()
    while True:
        while len(running) < AHEAD * workers.jobs and (batch := list(islice(left, size))):
            running.append(submit(batch))
        if not running:
            return
        done = running.popleft()()
        if done.error is not None:
            raise done.error
        workers.cpu_seconds += done.cpu_seconds
        size = max(1, min(2 * size, int(BATCH * len(done.results) / max(done.seconds, 1e-9))))
        yield from done.results


def pack(function: Callable[..., Any], batch: Items) -> bytes:
    """A batch as bytes; functions of a script or a notebook are sent by value."""
    from joblib import wrap_non_picklable_objects

    return pickle.dumps(wrap_non_picklable_objects((function, batch), keep_wrapper=False))


def perform(work: bytes) -> Done:
    """Run a packed batch."""
    begin, cpu_begin = time.monotonic(), time.thread_time()
    results: list[Any] = []
    error: Exception | None = None
    try:
        function, batch = pickle.loads(work)
        results = [function(*item) for item in batch]
    except Exception as trouble:
        error = portable(trouble)
    return Done(time.monotonic() - begin, time.thread_time() - cpu_begin, results, error)


# --- processes of this machine ---------------------------------------------------------------------------------------
class Pool:
    """Processes of this machine.

    They start when they are needed, and end with the ``with`` block or with this process, even if it is killed (their
    input then ends).  Pools of other libraries leave workers behind when the parent is killed, or run the caller's
    script again in each worker.  The workers are in a session of their own, so that Ctrl-C reaches this process only,
    and have one thread each for linear algebra: more threads would slow down the other workers, and would add up
    numbers in another order.

    Parameters
    ----------
    jobs : int, default=None
        Number of processes; by default one for each core that this process may use.  With 1, the calls run in this
        process.

    Attributes
    ----------
    cpu_seconds : float
        CPU time of all calls so far.

    Examples
    --------
    >>> with Pool(1) as pool:
    ...     list(pool.map(divmod, [(9, 7), (8, 3)]))
    [(1, 2), (2, 2)]
    """

    def __init__(self, jobs: int | None = None) -> None:
        from joblib import cpu_count

        self.jobs: int = cpu_count() if jobs is None else jobs
        self.cpu_seconds = 0.0
        self._workers: list[subprocess.Popen[bytes]] = []
        self._idle: SimpleQueue[subprocess.Popen[bytes]] = SimpleQueue()

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *error: object) -> None:
        for worker in self._workers:
            worker.kill()
        for worker in self._workers:
            worker.communicate()  # also closes its pipes
        self._workers.clear()

    def map(self, function: Callable[..., T], items: Iterable[tuple[Any, ...]]) -> Iterator[T]:
        """``function(*item)`` of every item, in order.  After an error the pool cannot be used again."""
        if self.jobs == 1:
            yield from self._map_here(function, items)
            return
        self._start()
        with ThreadPoolExecutor(self.jobs) as threads:  # each thread waits for one worker
            try:
                yield from in_batches(self, lambda batch: threads.submit(self._ask, function, batch).result, items)
            except BaseException:
                threads.shutdown(wait=False, cancel_futures=True)
                for worker in self._workers:  # which also ends the threads
                    worker.kill()
                raise

    def _map_here(self, function: Callable[..., T], items: Iterable[tuple[Any, ...]]) -> Iterator[T]:
        from threadpoolctl import threadpool_limits

        with threadpool_limits(1):
            for item in items:
                begin = time.thread_time()
                with noting_interrupts() as interrupted:
                    result = function(*item)
                if interrupted:
                    raise KeyboardInterrupt
                self.cpu_seconds += time.thread_time() - begin
                yield result

    def _start(self) -> None:
        while len(self._workers) < self.jobs:
            worker = subprocess.Popen(
                [sys.executable, "-c", START.format(__name__)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, **ONE_THREAD},
                start_new_session=True,
                creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),  # the same on Windows
            )
            self._workers.append(worker)
            self._idle.put(worker)
            with suppress(BrokenPipeError):
                _send(worker.stdin, sys.path)

    def _ask(self, function: Callable[..., Any], batch: Items) -> Done:
        work = pack(function, batch)
        worker = self._idle.get()
        try:
            _send(worker.stdin, work)
            assert worker.stdout is not None
            return pickle.load(worker.stdout)
        except (OSError, EOFError, pickle.UnpicklingError):
            text = "a worker process was killed, perhaps because memory ran out; try with fewer jobs"
            raise RuntimeError(text) from None
        finally:
            self._idle.put(worker)


@contextmanager
def noting_interrupts() -> Iterator[list[int]]:
    """Note every Ctrl-C in a list.

    A solver that hears Ctrl-C returns the best point so far, which must not count as the outcome of a trial.
    """
    interrupted: list[int] = []
    before = signal.getsignal(signal.SIGINT)

    def note(number: int, frame: Any) -> None:
        interrupted.append(number)
        before(number, frame)  # type: ignore[operator,misc]

    if not callable(before) or threading.current_thread() is not threading.main_thread():
        yield interrupted  # Ctrl-C is not heard here
        return
    signal.signal(signal.SIGINT, note)
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, before)


def serve() -> None:
    """What a worker process does: run batches from its input until that ends, which it does with the parent."""
    source, sink = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # as in `noting_interrupts`; the parent ends this process
    os.dup2(2, 1)  # text that the calls print must not get among the results
    with suppress(EOFError, BrokenPipeError):
        while True:
            _send(sink, perform(pickle.load(source)))


def _send(file: Any, message: Any) -> None:
    pickle.dump(message, file)
    file.flush()


# --- a Dask cluster --------------------------------------------------------------------------------------------------
class Cluster:
    """The workers of a Dask cluster, used like a `Pool`.  Needs the `dask` extra.

    The calls of a lost worker are made again by another one.  Workers may join at any time, and may have several
    threads.  A batch that was running on four lost workers is taken for the cause of their loss, and is an error (the
    scheduler's setting ``distributed.scheduler.allowed-failures`` says how many).  An error that a call raises is not
    tried again.

    Parameters
    ----------
    address : str
        Address of the scheduler, such as ``"tcp://host:8786"``.  Its workers must have this version of ksparse.

    Attributes
    ----------
    cpu_seconds : float
        CPU time of all calls so far.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self.cpu_seconds = 0.0
        self._client = _connect(address)
        self._running: dict[Any, Any] = {}
        self._threads, self._counted = 0, float("-inf")
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
        """Cancel unfinished work and leave the cluster, which keeps running."""
        self._cancel()
        with quiet(self._client):  # the scheduler may be gone
            self._client.close()

    @property
    def jobs(self) -> int:
        """How many calls can run at the same time: the threads of all present workers, at least 1."""
        if time.monotonic() - self._counted >= REFRESH:
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
            with suppress(OSError):  # a lost scheduler is reported by `_wait`
                self._threads = sum(self._client.nthreads().values())
        self._counted = time.monotonic()
        return self._threads

    def _submit(self, function: Callable[..., Any], batch: Items) -> Callable[[], Done]:
        from ... import __version__

        # packed here, because Dask would look into the arguments; not pure: an estimate runs the same call twice
        future = self._client.submit(do_trials, __version__, pack(function, batch), pure=False)
        self._running[future.key] = future
        return functools.partial(self._wait, future)

    def _wait(self, future: Any) -> Done:
        try:
            done = result_of(future, ClusterWatch(self.address, self._count), "trials")
        except ClusterError:
            raise
        except Exception as trouble:  # an error of Dask: those of the calls are part of `Done`
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


def do_trials(version: str, work: bytes) -> Done:
    """Run a packed batch on a worker of a cluster, on one thread, if it has the caller's version of ksparse."""
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
        with ThreadPoolExecutor(1) as thread:  # in a notebook, this thread already has an event loop
            thread.submit(asyncio.run, _greet(address)).result()
        return Client(address, timeout=CONNECT, set_as_default=False)
    except Exception as error:  # anything may answer at this address, and in any way
        trouble = str(error) or f"no answer in {CONNECT:g} s"
    raise ValueError(
        f"no Dask scheduler can be reached at {address} ({trouble}); start one with: dask scheduler, and give the "
        "address that it prints"
    )


async def _greet(address: str) -> None:
    """Check that a scheduler answers: a client would wait for ever if something accepts the call and says nothing."""
    from distributed import Security, rpc

    async with rpc(address, timeout=CONNECT, connection_args=Security().get_connection_args("client")) as place:
        kind = (await asyncio.wait_for(place.identity(), CONNECT))["type"]
    if kind != "Scheduler":
        raise ValueError(f"a {kind} is there")


# --- the time of a call ----------------------------------------------------------------------------------------------
def timed(function: Callable[..., T], *item: Any) -> tuple[T, float, float]:
    """The result of a call, and the seconds and CPU seconds it takes; of the second call, if the first one compiles.

    >>> timed(divmod, 9, 7)[0]
    (1, 2)
    """
    for _ in range(2):
        before, began, cpu_began = readiness(), time.monotonic(), time.thread_time()
        result = function(*item)
        seconds, cpu_seconds = time.monotonic() - began, time.thread_time() - cpu_began
        if readiness() == before:
            break
    return result, seconds, cpu_seconds


def readiness() -> tuple[int, int]:
    """Two numbers that change when this process imports, loads or compiles something."""
    from ..._jit import count_compiled

    return len(sys.modules), count_compiled()
