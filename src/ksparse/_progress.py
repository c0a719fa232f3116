"""Progress on the terminal: a status line for one run, a bar for many."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def progress(show: bool, callback: Callable[[Any], Any] | None = None) -> Iterator[Callable[[Any], Any] | None]:
    """A callback for `minimize` that shows each stage and then calls `callback`; just `callback` unless `show`."""
    if not show:
        yield callback
        return
    from rich.console import Console

    with Console(stderr=True).status("starting") as status:

        def tell(now: Any) -> Any:
            status.update(f"stage {now.stage}: objective {now.objective:.6g}, {now.seconds:.1f} s")
            return callback(now) if callback is not None else None

        yield tell


@contextmanager
def counter(label: str, total: int, show: bool, *, every: float = 10.0) -> Iterator[Callable[[int], None]]:
    """A function that is called with the number of finished items; it shows the progress and the time left.

    It writes to stderr: a bar on a terminal, elsewhere one line at most every `every` seconds.
    """
    if not show or not total:
        yield lambda more: None
        return
    from rich.console import Console

    console = Console(stderr=True)
    if console.is_terminal:
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        columns = TextColumn("{task.description}"), BarColumn(None), MofNCompleteColumn()
        times = TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn()
        with Progress(*columns, *times, console=console) as bar:
            task = bar.add_task(label, total=total)
            yield lambda more: bar.advance(task, more)
        return
    start = shown = time.monotonic()
    done = 0

    def tell(more: int) -> None:
        nonlocal done, shown
        done += more
        now = time.monotonic()
        if now - shown >= every:
            shown = now
            left = duration((now - start) / done * (total - done))
            print(f"{label}: {done:,} of {total:,}, {done / total:.0%}, {left} left", file=sys.stderr, flush=True)

    yield tell


def duration(seconds: float) -> str:
    """A duration in words.

    >>> duration(0.4), duration(42), duration(200), duration(9000)
    ('under 1 s', '42 s', '3 min', '2 h 30 min')
    """
    if seconds < 1:
        return "under 1 s"
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"
