"""Threads for kernels that run without the GIL: the caller works along, and results come in order."""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

from ._jit import most_threads, threads

T = TypeVar("T")


@functools.cache
def _pool(workers: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(workers, thread_name_prefix="ksparse")


if hasattr(os, "register_at_fork"):  # a forked child has no threads: it must build a pool of its own
    os.register_at_fork(after_in_child=_pool.cache_clear)


@functools.cache
def _blas() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas")


@functools.lru_cache(maxsize=1)
def _openmp(modules: int) -> Any:
    """The OpenMP libraries; to look for them takes milliseconds, so that is done only if a module was loaded since."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="openmp")


def blas_threads() -> int:
    """How many threads BLAS uses now."""
    return max((library.num_threads for library in _blas().lib_controllers), default=1)


_alone = threading.Lock()
_limits: list[Any] = []  # one entry for everybody who wants a single thread; the first one knows what there was before


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """BLAS has one thread until all who asked for it are done, in whatever order.

    For where there are threads already, or where NumPy and SciPy take turns: each brings a BLAS of its own, whose
    threads wait by spinning, and then hold the cores that the other one needs.
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
    """Kernels, BLAS and OpenMP have one thread, for the calling thread, which may be one of many."""
    before = most_threads.set(1)
    try:
        with one_blas_thread(), _openmp(len(sys.modules)).limit(limits=1):  # OpenMP keeps one number per thread
            yield
    finally:
        most_threads.reset(before)


@contextmanager
def more_blas_threads(count: int) -> Iterator[None]:
    """Inside `one_blas_thread`, so many for a large product."""
    if count > 1:
        _set_threads(count)
    try:
        yield
    finally:
        if count > 1:
            _set_threads(1)


def _set_threads(count: int) -> None:
    for library in _blas().lib_controllers:
        library.set_num_threads(count)


def ordered_map(function: Callable[[Any], T], items: Sequence[Any]) -> Iterator[T]:
    """Like ``map``, on all cores.

    The calling thread takes its share of the items: left waiting, it would only hold a core that a helper needs, and a
    scheduler may take longer to see that than a whole pass lasts.
    """
    helpers = min(threads(), len(items)) - 1
    if helpers < 1:
        yield from map(function, items)
        return
    results: dict[int, T] = {}
    window = 2 * helpers + 2  # how far ahead of the last result in order: results that wait hold memory
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
    finally:  # after an error or Ctrl-C: what nobody has begun is left
        with state:
            stopped = True
            state.notify_all()
