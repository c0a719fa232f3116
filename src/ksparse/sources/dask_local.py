"""What is done with one Dask partition, wherever it is, and passes by threads and processes of this machine."""

from __future__ import annotations

import functools
import multiprocessing.pool
import signal
import time
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from typing import Any, NamedTuple

import cloudpickle
import dask
import numpy as np
from dask.base import get_scheduler
from dask.local import get_async, get_sync
from dask.multiprocessing import MultiprocessingPoolExecutor, get_context
from dask.multiprocessing import get as get_processes
from dask.sizeof import sizeof
from dask.system import CPU_COUNT
from dask.threaded import get as get_threads
from numpy.typing import NDArray

from .._dask import check_version, portable
from .._threads import one_thread
from .._validate import canonical


# --- one partition ---------------------------------------------------------------------------------------------------
class BlockFormat(NamedTuple):
    """What every block looks like."""

    dtype: np.dtype[Any]
    sparse: bool
    columns: int


class PassTask(NamedTuple):
    """What a pass does with every partition."""

    version: str
    function: Callable[..., Any]
    columns: NDArray[np.int64] | None
    format: BlockFormat


class PartResult(NamedTuple):
    """The result for one partition, its bytes, and the seconds that reading the block and the function took."""

    result: Any
    size: int = 0
    read: float = 0.0
    compute: float = 0.0
    error: Exception | None = None


class LazyPart(NamedTuple):
    """A partition as a graph of its own, which is computed in the thread that needs it."""

    graph: dict[Any, Any]
    key: Any
    get: Callable[..., Any] = get_sync  # computes the graph

    def load(self) -> Any:
        return self.get(self.graph, self.key)


def as_block(raw: Any, format: BlockFormat, rows: int) -> Any:
    """A partition as a C-ordered array or a canonical CSR matrix; not copied if it is one."""
    if hasattr(raw, "shape") and tuple(raw.shape) != (rows, format.columns):
        raise ValueError(
            f"a partition of X has shape {tuple(raw.shape)} where {(rows, format.columns)} was expected: partitions "
            "must be the same in every pass, and have the same columns"
        )
    if hasattr(raw, "dtypes"):
        raw = raw.sparse.to_coo() if hasattr(raw, "sparse") else raw.to_numpy(dtype=format.dtype, na_value=np.nan)
    if np.ma.isMaskedArray(raw) and np.ma.is_masked(raw):
        raise ValueError("X has masked entries; fill them: dask.array.ma.filled(X, value)")
    if format.sparse:
        from scipy import sparse

        return canonical(sparse.csr_array(raw, dtype=format.dtype), "a partition of X")
    return np.ascontiguousarray(raw.toarray() if hasattr(raw, "toarray") else raw, dtype=format.dtype)


def run_part(task: PassTask, part: Any, rows: int, arrays: tuple[NDArray[Any], ...]) -> PartResult:
    """Run the function of a pass on a partition of `rows` rows, on one thread; errors are returned, not raised."""
    from .. import __version__

    try:
        check_version(task.version, __version__, "that joined")
        with one_thread():
            began = time.perf_counter()
            block = as_block(part.load() if isinstance(part, LazyPart) else part, task.format, rows)
            if task.columns is not None:
                block = block[:, task.columns] if task.format.sparse else np.take(block, task.columns, axis=1)
            read = time.perf_counter()
            result = task.function(block, *arrays)
            ended = time.perf_counter()
        return PartResult(result, sizeof(result), read - began, ended - read)
    except Exception as trouble:
        return PartResult(None, error=portable(trouble))


# --- threads and processes -------------------------------------------------------------------------------------------
class LostWork(RuntimeError):
    """Submitted work was lost, and can be submitted again."""


def check_client(client: Any) -> None:
    from distributed import Client

    if not isinstance(client, Client):
        raise ValueError(f"client must be a distributed.Client, got {type(client).__name__}")
    if client.asynchronous:
        raise ValueError("client is asynchronous; make one with Client(address), outside a coroutine")
    if client.status != "running":
        raise ValueError(f"client is {client.status}; make another one: Client(address)")


def choose_runner(parts: list[Any], client: Any) -> Any:
    """What computes partitions: the workers of a client, or the threads or processes that Dask is configured to use."""
    scheduler = get_scheduler(collections=parts[:1]) if client is None else None
    client = client or getattr(scheduler, "__self__", None)
    if client is not None:
        from .dask_cluster import ClusterWorkers

        check_client(client)
        return ClusterWorkers(client)
    pool = dask.config.get("pool", None)
    if isinstance(scheduler, functools.partial) and scheduler.func is get_async:  # an executor as the scheduler
        pool = dask.config.get("scheduler")
        scheduler = get_threads if isinstance(pool, ThreadPoolExecutor) else get_processes
    if isinstance(pool, multiprocessing.pool.Pool):
        threads = isinstance(pool, multiprocessing.pool.ThreadPool)
        pool = None if threads else MultiprocessingPoolExecutor(pool)
    lanes = int(getattr(pool, "_max_workers", None) or dask.config.get("num_workers", None) or CPU_COUNT)
    if scheduler is get_processes:
        return LocalProcesses(lanes, pool)
    if scheduler in (get_threads, None):
        return LocalThreads(lanes, pool)
    return LocalThreads(1, None, scheduler)


class LocalThreads:
    """Runs passes in threads of this process, which share its memory; with one lane, in the calling thread.

    The threads are those of `executor`, by default a new one in every pass; `get` computes the graph of a partition.
    """

    def __init__(self, lanes: int, executor: Executor | None, get: Callable[..., Any] = get_sync) -> None:
        self.total, self._given, self._get = lanes, executor, get
        self.parts: list[LazyPart] = []
        self.rows: list[int] = []

    def compute(self, items: list[Any]) -> Any:
        """The values of delayed objects."""
        return dask.compute(*items)

    def set_parts(self, parts: list[Any], lazy: list[LazyPart], rows: list[int]) -> None:
        """Set the partitions, as delayed objects and as graphs of their own, and their numbers of rows."""
        self.parts, self.rows = [part._replace(get=self._get) for part in lazy], rows

    def hold(self, format: BlockFormat, size: int, *, there: bool) -> bool:
        """Keep the partitions in memory if they fit; returns whether.  Here they are computed in every pass."""
        return False

    def begin(self, task: PassTask, arrays: tuple[NDArray[Any], ...]) -> Any:
        """Begin a pass; returns what `submit` and `end` need to know about it."""
        executor = self._given or (ThreadPoolExecutor(self.total, "ksparse-dask") if self.total > 1 else None)
        return executor, task, arrays

    def places(self) -> dict[Any, tuple[int, list[int]]]:
        """Every place where partitions are, with the number of its threads and its partitions."""
        return {None: (self.total, list(range(len(self.parts))))}

    def submit(self, begun: Any, spans: list[tuple[int, int, int]]) -> list[Any]:
        """Submit partitions, each with the numbers of its first row and of the row after its last; returns futures."""
        return [self._submit(begun, *span) for span in spans]

    def _submit(self, begun: Any, i: int, low: int, high: int) -> Any:
        executor, task, arrays = begun
        work = task, self.parts[i], high - low, tuple(array[low:high] for array in arrays)
        if executor is not None:
            return executor.submit(run_part, *work)
        done: Future[PartResult] = Future()  # not Dask's SynchronousExecutor, which would delay Ctrl-C
        done.set_result(run_part(*work))
        return done

    def wait_seconds(self, waited: bool) -> float:
        """Seconds to wait for a result; `waited` if there was none within the last wait."""
        return 60.0

    def results(self, futures: list[Any]) -> list[PartResult]:
        return [future.result() for future in futures]

    def renew(self) -> None:
        """Recover after `LostWork`; the caller then submits the lost work again."""

    def end(self, begun: Any, running: list[Any]) -> None:
        """End a pass, perhaps early: unfinished results are not wanted any more."""
        for future in running:
            future.cancel()
        if begun[0] is not None and begun[0] is not self._given:
            begun[0].shutdown(cancel_futures=True)

    def close(self) -> None:
        """Free processes, memory and files."""


class LocalProcesses(LocalThreads):
    """Runs passes in processes of this machine, which live as long as the source.

    Each partition is sent with the function of the pass and its slices of arrays; the work on its rows takes longer.
    """

    def __init__(self, lanes: int, executor: Executor | None) -> None:
        super().__init__(lanes, executor)
        self._pool = executor or start_processes(lanes)

    def compute(self, items: list[Any]) -> Any:
        return dask.compute(*items, pool=self._pool)

    def begin(self, task: PassTask, arrays: tuple[NDArray[Any], ...]) -> Any:
        return self._pool, cloudpickle.dumps(task), arrays

    def _submit(self, begun: Any, i: int, low: int, high: int) -> Any:
        executor, task, arrays = begun
        work = cloudpickle.dumps((self.parts[i], high - low, tuple(array[low:high] for array in arrays)))
        try:
            return executor.submit(_run_packed, task, work)
        except BrokenExecutor as trouble:  # raised where results are waited for
            failed: Future[PartResult] = Future()
            failed.set_exception(trouble)
            return failed

    def results(self, futures: list[Any]) -> list[PartResult]:
        try:
            return super().results(futures)
        except BrokenExecutor as trouble:
            raise LostWork(f"a process of Dask's scheduler died, perhaps for lack of memory ({trouble})") from None

    def renew(self) -> None:
        if self._given is not None:
            raise RuntimeError("the pool that Dask was given is broken: a process died, perhaps for lack of memory")
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._pool = start_processes(self.total)

    def end(self, begun: Any, running: list[Any]) -> None:
        for future in running:
            future.cancel()

    def close(self) -> None:
        if self._given is None:
            self._pool.shutdown(wait=True, cancel_futures=True)


def start_processes(count: int) -> ProcessPoolExecutor:
    """Processes that ignore Ctrl-C, which is for the caller, who ends the work."""
    return ProcessPoolExecutor(
        count, mp_context=get_context(), initializer=signal.signal, initargs=(signal.SIGINT, signal.SIG_IGN)
    )


def _run_packed(task: bytes, work: bytes) -> PartResult:
    """What a process does."""
    return run_part(cloudpickle.loads(task), *cloudpickle.loads(work))
