"""Threads for kernels that run without the GIL: the caller works along, and results come in order."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from ._jit import threads

T = TypeVar("T")


@functools.cache
def _pool(workers: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(workers, thread_name_prefix="ksparse")


if hasattr(os, "register_at_fork"):  # a forked child has no threads: it must build a pool of its own
    os.register_at_fork(after_in_child=_pool.cache_clear)


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
    todo = iter(range(len(items)))
    lock = threading.Lock()

    def take() -> int | None:
        with lock:
            return next(todo, None)

    def drain() -> None:
        while (item := take()) is not None:
            results[item] = function(items[item])

    running = [_pool(helpers).submit(drain) for _ in range(helpers)]
    ready = 0
    try:
        while (item := take()) is not None:
            results[item] = function(items[item])
            while ready in results:
                yield results.pop(ready)
                ready += 1
        for helper in running:
            helper.result()
        while ready in results:
            yield results.pop(ready)
            ready += 1
    finally:  # after an error or Ctrl-C: what nobody has begun is left
        with lock:
            for _ in todo:
                pass
