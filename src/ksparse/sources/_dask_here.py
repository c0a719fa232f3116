"""Passes over Dask partitions on this machine: by the calling thread, by threads, by processes."""

from __future__ import annotations

import functools
import signal
import tempfile
import threading
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
from numpy.typing import NDArray

from ._dask_parts import Done, Form, Lazy, Order, do_part
from ._dask_sent import Sent


class Lost(RuntimeError):
    """Work under way was lost, and can be asked for again."""


class Here:
    """Threads of this process, which see its memory: nothing is sent.  Without an executor, the calling thread."""

    def __init__(self, parts: list[Lazy], rows: list[int], lanes: int, executor: Executor | None = None) -> None:
        self.parts, self.rows, self.total = parts, rows, lanes  # total: how many are worked on at once
        self._given = executor

    def hold(self, form: Form, size: int) -> bool:
        """Whether the partitions are kept where they are used; here they are computed whenever they are wanted."""
        return False

    def begin(self, order: Order, arrays: tuple[NDArray[Any], ...]) -> Any:
        """A pass begins; gives what `submit` and `end` want to know of it."""
        executor = self._given or (ThreadPoolExecutor(self.total, "ksparse-dask") if self.total > 1 else None)
        return executor, order, arrays

    def places(self) -> dict[Any, tuple[int, list[int]]]:
        """Where partitions are: how many are worked on there at once, and which they are."""
        return {None: (self.total, list(range(len(self.parts))))}

    def submit(self, sent: Any, spans: list[tuple[int, int, int]]) -> list[Any]:
        """Begin with partitions, each with its first and its last row; gives futures."""
        return [self._submit(sent, *span) for span in spans]

    def _submit(self, sent: Any, i: int, low: int, high: int) -> Any:
        executor, order, arrays = sent
        work = order, self.parts[i], self.rows[i], tuple(array[low:high] for array in arrays)
        if executor is not None:
            return executor.submit(do_part, *work)
        done: Future[Done] = Future()
        done.set_result(do_part(*work))
        return done

    def patience(self) -> float:
        """Seconds to wait for a result before a first look at what is wrong."""
        return 60.0

    def look(self) -> float:
        """Nothing came for a while; gives the seconds until the next look."""
        return 60.0

    def results(self, futures: list[Any]) -> list[Done]:
        return [future.result() for future in futures]

    def renew(self) -> None:
        """Something was lost; what was under way is asked for again after this."""

    def end(self, sent: Any, running: list[Any]) -> None:
        """A pass ends, perhaps early: what is under way is not wanted any more."""
        for future in running:
            future.cancel()
        if sent[0] is not None and sent[0] is not self._given:
            sent[0].shutdown(cancel_futures=True)

    def close(self) -> None:
        """Give back all that was taken."""


class Processes(Here):
    """Processes of this machine.  What they all need is a file: it is written once, and read once by each.

    The processes live as long as the source does, unlike Dask's own, which start anew for every computation.
    """

    def __init__(self, parts: list[Lazy], rows: list[int], lanes: int, executor: Executor, own: bool) -> None:
        super().__init__(parts, rows, lanes, None if own else executor)
        self._folder = tempfile.TemporaryDirectory(prefix="ksparse-", ignore_cleanup_errors=True)
        self._pool: Executor | None = executor
        self._files = self._passes = 0
        self._kept: Sent[Path] = Sent()
        self._old: list[Path] = []  # files that a pass under way may still read
        self._turn = threading.RLock()  # passes may come from several threads

    def begin(self, order: Order, arrays: tuple[NDArray[Any], ...]) -> Any:
        with self._turn:
            self._passes += 1
            path = self._new_file("order")
            path.write_bytes(cloudpickle.dumps(order))
            return path, [self._file(array) or array for array in arrays]

    def _file(self, array: NDArray[Any]) -> Path | None:
        """The file of a read-only array; None for others."""
        if array.flags.writeable or array.dtype.hasobject:
            return None
        path = self._kept.get(array)
        if path is None:
            path = self._new_file("array")
            with path.open("wb") as file:
                np.save(file, array)
            self._old += self._kept.add(array, path)
        return path

    def _new_file(self, name: str) -> Path:
        self._files += 1
        return Path(self._folder.name) / f"{name}-{self._files}"

    def _submit(self, sent: Any, i: int, low: int, high: int) -> Any:
        assert self._pool is not None
        arrays = [(item, low, high) if isinstance(item, Path) else item[low:high] for item in sent[1]]
        try:
            return self._pool.submit(do_packed, sent[0], cloudpickle.dumps((self.parts[i], self.rows[i], arrays)))
        except BrokenExecutor as trouble:  # heard of where results are waited for
            failed: Future[Done] = Future()
            failed.set_exception(trouble)
            return failed

    def results(self, futures: list[Any]) -> list[Done]:
        try:
            return super().results(futures)
        except BrokenExecutor as trouble:
            raise Lost(f"a process of Dask's scheduler died, perhaps for lack of memory ({trouble})") from None

    def renew(self) -> None:
        if self._given is not None:
            raise RuntimeError("the pool that Dask was given is broken: a process died, perhaps for lack of memory")
        assert self._pool is not None
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._pool = start_processes(self.total)

    def end(self, sent: Any, running: list[Any]) -> None:
        for future in running:
            future.cancel()
        sent[0].unlink(missing_ok=True)  # a task that is still under way has read it, or is not wanted
        with self._turn:
            self._passes -= 1
            while self._passes == 0 and self._old:
                self._old.pop().unlink(missing_ok=True)

    def close(self) -> None:
        if self._pool is not None and self._given is None:
            self._pool.shutdown(wait=True, cancel_futures=True)
        self._pool = None
        self._folder.cleanup()


def start_processes(count: int) -> ProcessPoolExecutor:
    from dask.multiprocessing import get_context

    return ProcessPoolExecutor(count, mp_context=get_context(), initializer=_ignore_interrupt)


def _ignore_interrupt() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the caller, who ends the work


def do_packed(order: Path, work: bytes) -> Done:
    """What a process does."""
    part, rows, arrays = cloudpickle.loads(work)
    return do_part(_load(order), part, rows, tuple(_part(item) for item in arrays))


@functools.lru_cache(maxsize=2)
def _load(path: Path) -> Order:
    return cloudpickle.loads(path.read_bytes())


def _part(item: Any) -> NDArray[Any]:
    if not isinstance(item, tuple):
        return item
    path, low, high = item
    part = np.array(np.load(path, mmap_mode="r")[low:high])
    part.flags.writeable = False
    return part
