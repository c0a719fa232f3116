"""The threads that kernels and BLAS run on; the only module that sets options of BLAS.  It does not need numba."""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

T = TypeVar("T")

# called after every block of a pass; it may raise, to stop a pass that takes minutes
between_blocks: ContextVar[Callable[[], None]] = ContextVar("between_blocks", default=lambda: None)
most_threads: ContextVar[int | None] = ContextVar("most_threads", default=None)


def threads() -> int:
    """How many threads a pass over the data may use: what `most_threads` says here, or else numba's own setting.

    That is the cores that this process may use, or NUMBA_NUM_THREADS, which joblib sets in its workers.
    """
    return most_threads.get() or max(1, _allowed())


def _allowed() -> int:
    """NUMBA_NUM_THREADS as numba reads it, without loading numba."""
    config = getattr(sys.modules.get("numba"), "config", None)
    if config is not None:
        return int(config.NUMBA_NUM_THREADS)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return int(os.environ.get("NUMBA_NUM_THREADS") or cores)


@functools.cache
def _pool(workers: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(workers, thread_name_prefix="ksparse")


if hasattr(os, "register_at_fork"):  # a forked child has no threads: it must make its own pool
    os.register_at_fork(after_in_child=_pool.cache_clear)


@functools.cache
def _blas() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas")


@functools.lru_cache(maxsize=1)
def _openmp(modules: int) -> Any:
    """The OpenMP libraries.  Finding them takes milliseconds, so they are cached until another module is loaded."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="openmp")


def blas_threads() -> int:
    """How many threads BLAS uses now."""
    return max((library.num_threads for library in _blas().lib_controllers), default=1)


_alone = threading.Lock()
_limits: list[Any] = []  # one entry per caller; the first one knows the limit to restore


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit BLAS to one thread until all callers have left, in whatever order.

    Needed where there are threads already, or where NumPy and SciPy alternate: each has its own BLAS, whose
    threads wait by spinning and so occupy the cores that the other one needs.
    """
    with _alone:
        _limits.append(_limits[0] if _limits else _blas().limit(limits=1))
    try:
        yield
    finally:
        with _alone:
            limit = _limits.pop()
            if not _limits:
                limit.restore_original_limits()


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit kernels, BLAS and OpenMP to one thread, for calls from this thread."""
    before = most_threads.set(1)
    try:
        with one_blas_thread(), _openmp(len(sys.modules)).limit(limits=1):  # OpenMP keeps one number per thread
            yield
    finally:
        most_threads.reset(before)


@contextmanager
def more_blas_threads(count: int) -> Iterator[None]:
    """`count` threads for a large product, inside `one_blas_thread`."""
    libraries = _blas().lib_controllers if count > 1 else []
    for library in libraries:
        library.set_num_threads(count)
    try:
        yield
    finally:
        for library in libraries:
            library.set_num_threads(1)


def ordered_map(function: Callable[[Any], T], items: Sequence[Any]) -> Iterator[T]:
    """Like ``map``, on all cores; results come in order.

    The calling thread does its share of the work: while it waits, it may occupy a core for longer than a pass lasts.
    """
    helpers = min(threads(), len(items)) - 1
    if helpers < 1:
        yield from map(function, items)
        return
    results: dict[int, T] = {}
    window = 2 * helpers + 2  # how far helpers may run ahead: finished results take memory until their turn
    begun = ready = 0
    stopped = False
    state = threading.Condition()

    def take(patient: bool) -> int | None:
        nonlocal begun
        with state:
            if patient:
                state.wait_for(lambda: stopped or begun >= len(items) or begun < ready + window)
            if stopped or begun >= len(items):
                return None
            begun += 1
            return begun - 1

    def drain() -> None:
        while (item := take(True)) is not None:
            results[item] = function(items[item])

    def in_order() -> Iterator[T]:
        nonlocal ready
        while ready in results:
            yield results.pop(ready)
            with state:
                ready += 1
                state.notify_all()

    running = [_pool(helpers).submit(drain) for _ in range(helpers)]
    try:
        while (item := take(False)) is not None:
            results[item] = function(items[item])
            yield from in_order()
        for helper in running:
            helper.result()
        yield from in_order()
    finally:  # after an error or Ctrl-C, start no further items
        with state:
            stopped = True
            state.notify_all()
