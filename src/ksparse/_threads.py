"""Threads for kernels that run without the GIL: results in order, few at a time."""

from __future__ import annotations

import functools
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from ._jit import threads

T = TypeVar("T")


@functools.cache
def _pool(workers: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(workers, thread_name_prefix="ksparse")


if hasattr(os, "register_at_fork"):  # a forked child has no threads: it must build a pool of its own
    os.register_at_fork(after_in_child=_pool.cache_clear)


def ordered_map(function: Callable[[Any], T], items: Sequence[Any]) -> Iterator[T]:
    """Like ``map``, on all cores; at most one more result than there are threads waits to be taken."""
    workers = min(threads(), len(items))
    if workers <= 1:
        yield from map(function, items)
        return
    pool = _pool(workers)
    waiting: deque[Future[T]] = deque()
    for item in items:
        waiting.append(pool.submit(function, item))
        if len(waiting) > workers:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()
