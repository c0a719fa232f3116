"""Work on all cores, results in order."""

from __future__ import annotations

import functools
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from typing import Any, TypeVar

T = TypeVar("T")


def workers(jobs: int | None) -> int:
    """How many processes: as many as wanted, or as this process may use cores."""
    from joblib import cpu_count

    return cpu_count() if jobs is None else jobs


def ordered(function: Callable[..., T], items: Iterable[tuple[Any, ...]], jobs: int | None = None) -> Iterator[T]:
    """``function(*item)`` of every item, in order, by `jobs` processes (all cores by default; 1: in this process).

    Each has one thread for linear algebra: more would be in the way of the other processes, and would add up in another
    order, that is to other bits.
    """
    from joblib import Parallel, delayed, parallel_config
    from threadpoolctl import threadpool_limits

    if workers(jobs) == 1:
        with threadpool_limits(1):
            for item in items:
                yield function(*item)
        return
    work = delayed(functools.partial(_work, os.getpid(), function))
    with parallel_config(backend="loky", inner_max_num_threads=1):
        parallel = Parallel(n_jobs=workers(jobs), return_as="generator")
        with _deaf():  # the processes start here
            results = parallel(work(*item) for item in items)
        with closing(results):
            yield from results


@contextmanager
def _deaf() -> Iterator[None]:
    """Ctrl-C waits, and processes that start meanwhile never hear of it: the parent ends them."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _work(parent: int, function: Callable[..., T], *item: Any) -> T:
    _belong_to(parent)
    return function(*item)


@functools.cache
def _belong_to(parent: int) -> None:
    """In a worker: leave Ctrl-C to the parent, and do not outlive it, for nobody would hear of the results."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    if os.getppid() == parent:
        threading.Thread(target=watch, daemon=True).start()
