"""The threads that kernels and BLAS run on; the only module that sets options of BLAS.  It does not need numba."""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any, TypeVar

from ._cores import VARIABLE, cores

T = TypeVar("T")
QUIET = 1 << 13  # numbers of the data from which on BLAS is held to one thread: below, it takes longer than it saves

# called after every block of a pass; it may raise, to stop a pass that takes minutes
between_blocks: ContextVar[Callable[[], None]] = ContextVar("between_blocks", default=lambda: None)
most_threads: ContextVar[int | None] = ContextVar("most_threads", default=None)


def threads() -> int:
    """How many threads a pass over the data may use: what `most_threads` says here, or else the cores of this process.

    Without KSPARSE_NUM_THREADS also NUMBA_NUM_THREADS counts, which joblib sets in its workers.
    """
    most = cores()
    if VARIABLE not in os.environ:
        most = max(1, min(most, _of_numba() or most))
    return min(most, most_threads.get() or most)


def _of_numba() -> int:
    """NUMBA_NUM_THREADS as numba reads it, without loading numba; 0 if it is not set."""
    config = getattr(sys.modules.get("numba"), "config", None)
    return int(os.environ.get("NUMBA_NUM_THREADS") or 0 if config is None else config.NUMBA_NUM_THREADS)


@contextmanager
def at_most_threads(count: int | None) -> Iterator[None]:
    """Limit the threads of kernels for calls from this thread; None for no other limit than there is."""
    before = most_threads.set(min(count or threads(), threads()))
    try:
        yield
    finally:
        most_threads.reset(before)


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


def quiet_blas(numbers: int) -> AbstractContextManager[None]:
    """`one_blas_thread` for work on so many numbers of data; nothing for few, where that takes longer.

    On a machine that others use too, threads of BLAS that wait for each other can take many times as long as one
    thread alone.  Products that are worth it are divided among our own threads (`ordered_map`), which wait asleep.
    """
    return one_blas_thread() if numbers >= QUIET else nullcontext()


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit kernels, BLAS and OpenMP to one thread, for calls from this thread."""
    # OpenMP keeps one number per thread
    with at_most_threads(1), one_blas_thread(), _openmp(len(sys.modules)).limit(limits=1):
        yield


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
