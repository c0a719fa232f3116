"""What all work on a Dask cluster shares: the check of its workers, and results that outlive a lost one."""

from __future__ import annotations

import asyncio
import logging
import pickle
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

TookLonger = asyncio.TimeoutError  # not the builtin one before Python 3.11
PATIENCE = 1.0, 60.0  # seconds for a result before it is asked for anew: at first, and at most
VERSION = "__import__('ksparse').__version__"  # as a text it arrives on any Python, whatever is installed there


class ClusterError(RuntimeError):
    """The cluster cannot do the work, whatever the work is."""


class Cancelled(ClusterError):
    """The scheduler is gone, or has forgotten what it was asked for."""


def check_version(here: str, there: Any, worker: str) -> None:
    """Refuse a worker with another version of ksparse, or with none."""
    if there == here:
        return
    found = f"has ksparse {there}" if isinstance(there, str) else f"cannot import ksparse ({there})"
    raise ValueError(f"worker {worker} {found}, and this is ksparse {here}; install ksparse=={here} there")


def check_workers(client: Any) -> None:
    """Refuse workers with another version; those that join later are asked with their work."""
    from . import __version__

    for worker, found in sorted(client.run(eval, VERSION, on_error="return").items()):
        if not isinstance(found, OSError):  # lost in the meantime
            check_version(__version__, found, worker)


class Watch:
    """Looks after what is waited for: says once that there are no workers, and doubles its patience."""

    def __init__(self, place: str, workers: Callable[[], int]) -> None:
        self.place, self.workers = place, workers
        self.seconds, self.told = PATIENCE[0], False

    def look(self) -> None:
        """After `seconds` without a result."""
        self.seconds = min(2 * self.seconds, PATIENCE[1])
        if not self.workers() and not self.told:
            self.told = True
            warnings.warn(f"the cluster at {self.place} has no workers; waiting for some", stacklevel=2)


def result_of(future: Any, watch: Watch, work: str) -> Any:
    """What comes of a future, whoever is lost on the way; errors of the work come as themselves."""
    from distributed import CancelledError, KilledWorker

    while True:
        try:
            return future.result(timeout=watch.seconds)
        except TookLonger:  # still at work, or kept by a worker that died: Dask may try for 30 s to reach it
            if future.status == "error":  # the work's own
                raise
            watch.look()
        except KilledWorker as trouble:
            raise ClusterError(
                f"{trouble.allowed_failures + 1} workers of the cluster at {watch.place} died of the same {work}, "
                "perhaps for lack of memory; their logs may say more"
            ) from None
        except CancelledError:
            raise Cancelled(
                f"the scheduler at {watch.place} is gone, or has cancelled the work; with a scheduler that runs, "
                "the same again goes on"
            ) from None


def cancel(client: Any, futures: list[Any]) -> None:
    """Nobody waits for these any more."""
    if futures and client.status == "running":
        with suppress(OSError, TookLonger):
            client.cancel(futures)


@contextmanager
def quiet(client: Any) -> Iterator[None]:
    """Dask prints a traceback where a client leaves a scheduler that is gone: that is said already."""
    log = logging.getLogger("distributed.client")
    before, log.disabled = log.disabled, log.disabled or client.status != "running"
    try:
        with suppress(OSError, TookLonger):
            yield
    finally:
        log.disabled = before


def portable(trouble: Exception) -> Exception:
    """An exception that can be sent: itself if possible."""
    try:
        pickle.loads(pickle.dumps(trouble))
        return trouble
    except Exception:
        return RuntimeError(f"{type(trouble).__name__}: {trouble}")
