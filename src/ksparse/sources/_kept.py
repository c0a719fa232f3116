"""Rows that need not be decoded again: the second pass over a table leaves them in a temporary file, which is read many
times faster than a table can be decoded.  What is read once only is not worth it."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._plain import in_turns
from ._spool import Shelf

SHARE = 0.5  # of the memory and the disk that are free: the file is worth its while if the system can hold it in memory


def has_room(size: int, folder: str | Path | None) -> bool:
    """Whether the machine has room for a file that will stay in its memory (not in this process's)."""
    try:
        disk = shutil.disk_usage(tempfile.gettempdir() if folder is None else folder).free
    except OSError:
        return False
    return size <= SHARE * min(disk, free_memory())


def free_memory() -> int:
    """Bytes of memory that nobody needs now; 0 where the system does not tell."""
    try:
        with open("/proc/meminfo") as lines:
            return next(1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        pages = {"SC_AVPHYS_PAGES", "SC_PAGE_SIZE"} <= set(getattr(os, "sysconf_names", ()))
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if pages else 0


class Kept:
    """Dense rows in a file without a name."""

    def __init__(self, shape: tuple[int, int], dtype: Any, folder: str | Path | None) -> None:
        self._shape, self._dtype, self._folder = shape, np.dtype(dtype), folder
        self._turn = threading.Lock()
        self._shelf: Shelf | None = None
        self._known = False  # has there been a pass?
        self._busy = False  # is a pass writing, or the disk full?

    def blocks(self, decode: Callable[[], Iterator[NDArray[Any]]], rows: int) -> Iterator[NDArray[Any]]:
        """The blocks that `decode` gives, from the file once a pass has gone to its end."""
        with self._turn:
            if self._shelf is not None:
                return self._read(self._shelf, rows)
            if not self._known or self._busy:
                self._known = True
                return decode()
            self._busy = True
        return self._write(decode())

    def _write(self, blocks: Iterator[NDArray[Any]]) -> Iterator[NDArray[Any]]:
        shelf: Shelf | None = Shelf(self._folder)
        try:
            for block in blocks:
                if shelf is not None:
                    try:
                        shelf.write(block.reshape(-1).view(np.uint8))
                    except ValueError:  # the disk is full: then every pass decodes
                        shelf.close()
                        shelf = None
                yield block
            self._shelf, shelf = shelf, None
        finally:
            if shelf is not None:  # the pass was left: the next one tries again
                shelf.close()
                self._busy = False

    def _read(self, shelf: Shelf, rows: int) -> Iterator[NDArray[Any]]:
        each = self._shape[1] * self._dtype.itemsize
        return in_turns(self._shape, self._dtype, rows, lambda low, block: shelf.fill(low * each, block))

    def close(self) -> None:
        """The file is gone."""
        if self._shelf is not None:
            self._shelf.close()
