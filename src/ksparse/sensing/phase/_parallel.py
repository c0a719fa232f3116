"""Work on all cores, results in order."""

from __future__ import annotations

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

from ..._dask import portable

T = TypeVar("T")
BATCH = 0.2  # seconds of work that a worker gets at a time
AHEAD = 3  # batches a worker that may be under way or wait for an earlier one
START = "import pickle, sys; sys.path[:] = pickle.load(sys.stdin.buffer); from {} import serve; serve()"
ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS", "NUMBA_NUM_THREADS"), "1"
)


class Done(NamedTuple):
    """What came of a batch: the time it took, its results, and the error that ended it."""

    seconds: float
    cpu_seconds: float
    results: list[Any]
    error: Exception | None


class Promise(Protocol):
    """A batch under way."""

    def result(self) -> Done: ...


class Workers(Protocol):
    """Whoever has work done: `Pool`, `Cluster`."""

    cpu_seconds: float

    @property
    def jobs(self) -> int: ...
    def map(self, function: Callable[..., T], items: Iterable[tuple[Any, ...]]) -> Iterator[T]: ...
    def __enter__(self) -> Any: ...
    def __exit__(self, *error: object) -> None: ...


def in_batches(
    workers: Workers, submit: Callable[[list[tuple[Any, ...]]], Promise], items: Iterable[tuple[Any, ...]]
) -> Iterator[Any]:
    """The results of all items in order, from batches of about `BATCH` seconds, `AHEAD` of them a job under way."""
    left, size = iter(items), 1
    running: deque[Promise] = deque()
    while True:
        while len(running) < AHEAD * workers.jobs and (batch := list(islice(left, size))):
            running.append(submit(batch))
        if not running:
            return
        done = running.popleft().result()
        if done.error is not None:
            raise done.error
        workers.cpu_seconds += done.cpu_seconds
        size = max(1, min(2 * size, int(BATCH * len(done.results) / max(done.seconds, 1e-9))))
        yield from done.results


class Pool:
    """Processes that start when they are needed and end with the block, or with this process, however it ends.

    They differ from those of the standard library where it matters here: they never run the caller's script again, they
    are in a session of their own, so that Ctrl-C is for this process alone, and a killed parent leaves none behind, for
    their input ends with it.  Each has one thread for linear algebra: more would be in the way of the other processes,
    and would add up in another order, that is to other bits.

    Parameters
    ----------
    jobs : int
        How many; by default as this process may use cores.  With 1 the work is done in this process.

    Attributes
    ----------
    cpu_seconds : float
        What the work has taken so far, of all processes together.
    """

    def __init__(self, jobs: int | None = None) -> None:
        from joblib import cpu_count

        self.jobs = cpu_count() if jobs is None else jobs
        self.cpu_seconds = 0.0
        self._workers: list[subprocess.Popen[bytes]] = []
        self._idle: SimpleQueue[subprocess.Popen[bytes]] = SimpleQueue()

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *error: object) -> None:
        for worker in self._workers:
            worker.kill()
        for worker in self._workers:
            worker.communicate()  # closes its pipes, too
        self._workers.clear()

    def map(self, function: Callable[..., T], items: Iterable[tuple[Any, ...]]) -> Iterator[T]:
        """``function(*item)`` of every item, in order.  After an error the pool is of no more use."""
        if self.jobs == 1:
            from threadpoolctl import threadpool_limits

            with threadpool_limits(1):
                for item in items:
                    begin = time.thread_time()
                    with heard() as interrupted:
                        result = function(*item)
                    if interrupted:
                        raise KeyboardInterrupt
                    self.cpu_seconds += time.thread_time() - begin
                    yield result
            return
        self._start()
        with ThreadPoolExecutor(self.jobs) as threads:  # a thread a worker, to wait for it
            try:
                yield from in_batches(self, lambda batch: threads.submit(self._ask, function, batch), items)
            except BaseException:
                threads.shutdown(wait=False, cancel_futures=True)
                for worker in self._workers:  # which also ends the threads
                    worker.kill()
                raise

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

    def _ask(self, function: Callable[..., T], batch: list[tuple[Any, ...]]) -> Done:
        work = pack(function, batch)
        worker = self._idle.get()
        try:
            _send(worker.stdin, work)
            return pickle.load(worker.stdout)  # type: ignore[arg-type]
        except (OSError, EOFError, pickle.UnpicklingError):
            text = "a worker was ended from outside, perhaps for lack of memory; try with fewer jobs"
            raise RuntimeError(text) from None
        finally:
            self._idle.put(worker)


@contextmanager
def heard() -> Iterator[list[int]]:
    """Note Ctrl-C: a solver takes it as a wish to end soon and returns what it has, which is no result of a trial."""
    interrupted: list[int] = []
    before = signal.getsignal(signal.SIGINT)

    def note(number: int, frame: Any) -> None:
        interrupted.append(number)
        before(number, frame)  # type: ignore[operator,misc]

    if not callable(before) or threading.current_thread() is not threading.main_thread():
        yield interrupted  # nobody is interrupted here
        return
    signal.signal(signal.SIGINT, note)
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, before)


def serve() -> None:
    """The life of a worker: batches come in, results go out, until the parent is gone."""
    source, sink = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # as in `heard`; the parent ends this process
    os.dup2(2, 1)  # what the work prints must not get among the results
    with suppress(EOFError, BrokenPipeError):
        while True:
            _send(sink, perform(pickle.load(source)))


def pack(function: Callable[..., Any], batch: list[tuple[Any, ...]]) -> bytes:
    """Work that can be sent; functions of a script or a notebook go along."""
    from joblib import wrap_non_picklable_objects

    return pickle.dumps(wrap_non_picklable_objects((function, batch), keep_wrapper=False))


def perform(work: bytes) -> Done:
    """Do packed work."""
    begin, cpu_begin, results, error = time.monotonic(), time.thread_time(), [], None
    try:
        function, batch = pickle.loads(work)
        results = [function(*item) for item in batch]
    except Exception as trouble:
        error = portable(trouble)
    return Done(time.monotonic() - begin, time.thread_time() - cpu_begin, results, error)


def timed(function: Callable[..., T], *item: Any) -> tuple[T, float, float]:
    """What a function gives, and the seconds and CPU seconds it takes a worker that is ready for it.

    The first time a worker may have to import, load or compile, which says nothing about the next times: then it is
    called once more.
    """
    for _ in range(2):
        before, began, cpu_began = readiness(), time.monotonic(), time.thread_time()
        result = function(*item)
        seconds, cpu_seconds = time.monotonic() - began, time.thread_time() - cpu_began
        if readiness() == before:
            break
    return result, seconds, cpu_seconds


def readiness() -> tuple[int, int]:
    """What changes when this process imports, loads or compiles something."""
    from ..._jit import count_compiled

    return len(sys.modules), count_compiled()


def _send(file: Any, message: Any) -> None:
    pickle.dump(message, file)
    file.flush()
