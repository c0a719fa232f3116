"""What all work on a Dask cluster shares: checking the workers, and waiting for results although workers may die."""

from __future__ import annotations

import asyncio
import logging
import pickle
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

TookLonger = asyncio.TimeoutError  # not the builtin TimeoutError before Python 3.11
PATIENCE = 1.0, 60.0  # seconds to wait for a result before it is requested again: at first, and at most
VERSION = "__import__('ksparse').__version__"  # a text can be sent to any Python, whatever is installed there


class ClusterError(RuntimeError):
    """The cluster cannot do the work, whatever the work is."""


class Cancelled(ClusterError):
    """The scheduler is gone, or has cancelled the work."""


def check_version(here: str, there: Any, worker: str) -> None:
    """Refuse a worker with another version of ksparse, or with none."""
    if there == here:
        return
    found = f"has ksparse {there}" if isinstance(there, str) else f"cannot import ksparse ({there})"
    raise ValueError(f"worker {worker} {found}, and this is ksparse {here}; install ksparse=={here} there")


def check_workers(client: Any) -> None:
    """Refuse workers with another version; those that join later check it when they get work."""
    from . import __version__

    for worker, found in sorted(client.run(eval, VERSION, on_error="return").items()):
        if not isinstance(found, OSError):  # then the worker was lost in the meantime
            check_version(__version__, found, worker)


class ClusterWatch:
    """How long to wait for a result: twice as long after every wait without one; warns once if there are no workers."""

    def __init__(self, place: str, workers: Callable[[], int]) -> None:
        self.place, self.workers = place, workers
        self.seconds, self.told = PATIENCE[0], False

    def look(self) -> None:
        """Called when there was no result within `seconds`."""
        self.seconds = min(2 * self.seconds, PATIENCE[1])
        if not self.workers() and not self.told:
            self.told = True
            warnings.warn(f"the cluster at {self.place} has no workers; waiting for some", stacklevel=2)


def result_of(future: Any, watch: ClusterWatch, work: str) -> Any:
    """The result of a future, even if workers are lost; errors of the work itself are raised unchanged."""
    from distributed import CancelledError, KilledWorker

    while True:
        try:
            return future.result(timeout=watch.seconds)
        except TookLonger:  # still at work, or on a worker that died: Dask itself may try to reach it for 30 s
            if future.status == "error":  # a timeout of the work itself
                raise
            watch.look()
        except KilledWorker as trouble:
            raise ClusterError(
                f"{trouble.allowed_failures + 1} workers of the cluster at {watch.place} died of the same {work}, "
                "perhaps for lack of memory; their logs may say more"
            ) from None
        except CancelledError:
            raise Cancelled(
                f"the scheduler at {watch.place} is gone, or has cancelled the work; start a scheduler, and run the "
                "same again to go on"
            ) from None


def cancel(client: Any, futures: list[Any]) -> None:
    """Cancel work whose results are not wanted any more."""
    if futures and client.status == "running":
        with suppress(OSError, TookLonger):
            client.cancel(futures)


@contextmanager
def quiet(client: Any) -> Iterator[None]:
    """Without the traceback that Dask logs when a client leaves a scheduler that is gone, which is reported already."""
    log = logging.getLogger("distributed.client")
    before, log.disabled = log.disabled, log.disabled or client.status != "running"
    try:
        with suppress(OSError, TookLonger):
            yield
    finally:
        log.disabled = before


def portable(trouble: Exception) -> Exception:
    """The exception itself if it can be pickled; else a RuntimeError with its text."""
    try:
        pickle.loads(pickle.dumps(trouble))
        return trouble
    except Exception:
        return RuntimeError(f"{type(trouble).__name__}: {trouble}")
