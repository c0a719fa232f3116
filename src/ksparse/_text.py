"""What is shown or written: tables, values for JSON, whole files, and progress on the terminal."""

from __future__ import annotations

import html
import math
import os
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import numpy as np

EVERY = 10.0  # seconds between lines of progress where there is no terminal


def table(rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """A table as text; the first `left` columns are aligned to the left, the others to the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join(
        "  ".join(
            cell.ljust(w) if i < left else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )


def html_table(rows: Sequence[Sequence[str]], title: str = "", left: Collection[int] = (0,)) -> str:
    """A table for a notebook with the first row as its head; the columns in `left` are aligned to the left."""
    lines = []
    for tag, row in zip(["th", *["td"] * len(rows)], rows, strict=False):
        # notebooks align to the right by default
        sides = [' style="text-align: left"' if i in left else "" for i in range(len(row))]
        lines.append("".join(f"<{tag}{side}>{escape(cell)}</{tag}>" for side, cell in zip(sides, row, strict=True)))
    caption = f'<caption style="white-space: nowrap; text-align: left">{escape(title)}</caption>' if title else ""
    return f"<table>{caption}<tr>{'</tr><tr>'.join(lines)}</tr></table>"


def html_lines(lines: Sequence[str], bold: bool = False) -> str:
    """Lines for a notebook, the first of them optionally bold."""
    first, *others = map(escape, lines)
    return "<br>".join([f"<b>{first}</b>" if bold else first, *others])


def escape(text: str) -> str:
    """Any text as HTML; characters that UTF-8 cannot encode become question marks."""
    return html.escape(text).encode("utf-8", "replace").decode("utf-8")


def data_frame(columns: Mapping[str, Iterable[Any]]) -> Any:
    """A pandas.DataFrame with these columns; raises ImportError without pandas."""
    try:
        from pandas import DataFrame
    except ImportError:
        raise ImportError("to_frame needs pandas; pip install pandas brings it") from None
    return DataFrame({name: list(values) for name, values in columns.items()})


def jsonable(value: Any) -> Any:
    """The value as plain dicts, lists, strings, numbers and None; infinity and NaN become None."""
    if isinstance(value, dict):
        return {name: jsonable(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [jsonable(entry) for entry in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A temporary path to write to; it replaces `path` at the end, and is removed after an error."""
    spare = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        yield spare
        os.replace(spare, path)
    except OSError as error:
        error.filename = error.filename or str(path)  # for a full disk, the error does not name the file
        raise
    finally:
        spare.unlink(missing_ok=True)


def write_whole(path: Path, content: bytes) -> None:
    """Replace a file in one step: whoever reads it sees the old content or the new one."""
    with whole_file(path) as spare:
        spare.write_bytes(content)


# --- progress on the terminal ----------------------------------------------------------------------------------------
# called after every block of a pass over a source, with the share of the pass that is done and its seconds so far
watch_pass: ContextVar[Callable[[float, float], None]] = ContextVar("watch_pass", default=lambda share, seconds: None)


def pass_text(share: float, seconds: float) -> str:
    """How far a pass over the rows is.

    >>> pass_text(0.25, 10.0)
    'pass 25% done, 30 s left'
    """
    return f"pass {share:.0%} done, {duration(seconds / share - seconds)} left"


@contextmanager
def progress(show: bool, callback: Callable[[Any], Any] | None = None) -> Iterator[Callable[[Any], Any] | None]:
    """A callback for `minimize` that shows each stage and then calls `callback`; just `callback` unless `show`."""
    if not show:
        yield callback
        return
    from rich.console import Console

    with Console(stderr=True).status("starting") as status:
        last = "starting"

        def tell(now: Any) -> Any:
            nonlocal last
            last = f"stage {now.stage}: objective {now.objective:.6g}, {now.seconds:.1f} s"
            status.update(last)
            return callback(now) if callback is not None else None

        before = watch_pass.set(lambda share, seconds: status.update(f"{last}; {pass_text(share, seconds)}"))
        try:
            yield tell
        finally:
            watch_pass.reset(before)


@contextmanager
def counter(label: str, total: int, show: bool) -> Iterator[Callable[[int], None]]:
    """A function that is called with the number of finished items; it shows the progress and the time left.

    It writes to stderr: a bar on a terminal, elsewhere one line at most every ten seconds.
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
        if now - shown >= EVERY:
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
