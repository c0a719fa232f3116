"""Plain reads: rows as they lie in a file, into memory that is used again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

TURNS = 3  # blocks that take turns, as `read_ahead` needs them: one is at work, one waits, one is being filled


def in_turns(
    shape: tuple[int, int], dtype: Any, rows: int, fill_from: Callable[[int, NDArray[Any]], None]
) -> Iterator[NDArray[Any]]:
    """Blocks that are filled from a row on."""
    n, d = shape
    rows = min(rows, n)
    buffers = [np.empty((rows, d), dtype) for _ in range(min(TURNS, -(-n // rows)))]
    for turn, low in enumerate(range(0, n, rows)):
        block = buffers[turn % TURNS][: min(rows, n - low)]
        fill_from(low, block)
        yield block


def fill(file: Any, array: NDArray[Any], name: str) -> None:
    """Read an array's bytes."""
    view = memoryview(array.reshape(-1).view(np.uint8).data)
    done = 0
    while done < len(view):
        got = file.readinto(view[done:])
        if not got:
            raise ValueError(f"{Path(name).name} has become shorter: it ends {len(view) - done} bytes too early")
        done += got
