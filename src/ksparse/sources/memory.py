"""How much memory a source may use, and the temporary files that hold what does not fit into it.

The temporary files have no name in the file system: they are gone when they are closed and when the process is killed.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._validate import check_count
from ..design.blocks import AHEAD, SHARE_OF_BLOCKS

SIZES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
LEAST = 1 << 20  # bytes
SMALL, LARGE, ROWS = 1 << 22, 1 << 25, 4096  # bytes and rows of a dense block
TURNS = 3  # buffers of `fill_in_turns`: one block is at work, one waits, one is being filled (see `read_ahead`)
FREE_SHARE = 0.5  # decoded rows are cached if they fit into this share of the free memory and of the free disk


def check_memory(memory: int | str) -> int:
    """The number of bytes that a number or a text such as "2GB" means.

    >>> check_memory("1.5GB"), check_memory("200 MB"), check_memory(2**24)
    (1610612736, 209715200, 16777216)
    """
    if isinstance(memory, str):
        found = re.fullmatch(r"\s*(\d+(?:\.\d*)?)\s*([KMGT]?)(?:I?B)?\s*", memory.upper())
        if found is None:
            raise ValueError(f"memory must be a number of bytes or a text such as '500MB' or '2GB', got {memory!r}")
        memory = int(float(found[1]) * SIZES[found[2]])
    size = check_count(memory, "memory")
    if size < LEAST:
        raise ValueError(f"memory must be at least 1MB, got {size} bytes")
    return size


class Budget(NamedTuple):
    """The memory that reading may use, and where temporary files go.

    `cache` is a folder, True for the system's temporary folder, or False for no temporary files.
    """

    memory: int
    cache: bool | str | Path

    @staticmethod
    def checked(memory: int | str, cache: Any) -> Budget:
        """A budget from a user's arguments."""
        size = check_memory(memory)
        if isinstance(cache, bool) or (isinstance(cache, str | Path) and Path(cache).is_dir()):
            return Budget(size, cache)
        raise ValueError(f"cache must be True, False or a folder that is there, got {str(cache)!r}")

    @property
    def for_blocks(self) -> int:
        """Bytes for all blocks that are in memory at the same time."""
        return int(self.memory * SHARE_OF_BLOCKS)

    @property
    def per_block(self) -> int:
        """Maximum number of bytes of one block."""
        return self.for_blocks // (AHEAD + 3)

    @property
    def per_dense_block(self) -> int:
        """Maximum number of bytes of one dense block."""
        return min(LARGE, self.per_block)

    @property
    def folder(self) -> str | Path | None:
        return None if isinstance(self.cache, bool) else self.cache

    def spool(self) -> Spool | None:
        """A new spool; None if there are to be no temporary files."""
        return None if self.cache is False else Spool(self.for_blocks, self.folder)

    def rows_per_batch(self, row_bytes: int) -> int:
        """Rows to decode at once.  Few rows need less memory, but every column of a batch has a fixed cost."""
        return max(1, min(self.per_dense_block, max(SMALL, ROWS * row_bytes)) // row_bytes)


# --- temporary files -------------------------------------------------------------------------------------------------
class ScratchFile:
    """Bytes in a temporary file, which any thread may read and write."""

    def __init__(self, folder: str | Path | None = None) -> None:
        try:
            self._file: Any = tempfile.TemporaryFile(buffering=0, prefix="ksparse-", dir=folder)  # noqa: SIM115
        except OSError as error:
            raise ValueError(f"cache must be a folder that can be written to, got {str(folder)!r}: {error}") from None
        weakref.finalize(self, self._file.close)  # closes it without a ResourceWarning
        self._lock = threading.Lock()
        self.size = 0

    def write(self, content: Any) -> int:
        """Append bytes; returns their position in the file."""
        view = memoryview(content).cast("B")
        with self._lock:
            at, done = self.size, 0
            self._file.seek(at)
            try:
                while done < len(view):
                    done += self._file.write(view[done:])
            except OSError as error:  # a full disk
                raise ValueError(
                    f"the temporary file cannot be written: {error}; cache=FOLDER puts it elsewhere, cache=False "
                    "parses the text in every pass instead"
                ) from None
            self.size = at + len(view)
        return at

    def fill(self, at: int, array: NDArray[Any]) -> None:
        """Read the bytes of an array from a position."""
        with self._lock:
            self._file.seek(at)
            read_into(self._file, array, "the temporary file")

    def readinto(self, at: int, buffer: Any) -> int:
        """Read bytes from a position, at most as many as fit into the buffer; returns how many."""
        with self._lock:
            self._file.seek(at)
            return self._file.readinto(buffer)

    def close(self) -> None:
        self._file.close()


class Spool:
    """A list of pieces, each a few one-dimensional arrays: in memory up to a limit, beyond it in a temporary file.

    Parameters
    ----------
    limit : int
        Bytes to hold in memory.  When there are more, all pieces go to the file.
    folder : path, optional
        Where the temporary file is made; the system's temporary folder by default.
    """

    def __init__(self, limit: int, folder: str | Path | None = None) -> None:
        self._limit, self._folder = limit, folder
        self._held: list[tuple[NDArray[Any], ...]] = []
        self._places: list[list[tuple[int, int, np.dtype[Any]]]] = []  # position, size and dtype of arrays in the file
        self._scratch: ScratchFile | None = None
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._held) + len(self._places)

    def append(self, *arrays: NDArray[Any]) -> None:
        """Add a piece.  Its arrays are not copied while they are held in memory."""
        self._bytes += sum(array.nbytes for array in arrays)
        self._held.append(arrays)
        if self._bytes > self._limit:
            scratch = self._scratch = self._scratch or ScratchFile(self._folder)
            for piece in self._held:
                whole = [np.ascontiguousarray(array) for array in piece]
                self._places.append([(scratch.write(a.view(np.uint8)), a.size, a.dtype) for a in whole])
            self._held = []

    def read(self, piece: int) -> tuple[NDArray[Any], ...]:
        """The arrays of a piece.  Callers must not write to them."""
        if self._scratch is None:
            return self._held[piece]
        arrays = tuple(np.empty(size, dtype) for _, size, dtype in self._places[piece])
        for array, (at, *_) in zip(arrays, self._places[piece], strict=True):
            self._scratch.fill(at, array)
        return arrays

    def close(self) -> None:
        self._held = []
        if self._scratch is not None:
            self._scratch.close()


class RowCache:
    """Dense rows in a temporary file, so that they are not decoded in every pass.

    The second full pass writes the file, since rows that are read only once are not worth it.
    """

    def __init__(self, shape: tuple[int, int], dtype: Any, folder: str | Path | None) -> None:
        self._shape, self._dtype, self._folder = shape, np.dtype(dtype), folder
        self._lock = threading.Lock()
        self._scratch: ScratchFile | None = None
        self._read_before = False
        self._busy = False  # another pass writes the file, or the disk is full

    def blocks(self, decode: Callable[[], Iterator[NDArray[Any]]], rows: int) -> Iterator[NDArray[Any]]:
        """The blocks that `decode` yields; once a pass has written the file, blocks of `rows` rows from there."""
        with self._lock:
            if self._scratch is not None:
                fill, row_bytes = self._scratch.fill, self._shape[1] * self._dtype.itemsize
                return fill_in_turns(self._shape, self._dtype, rows, lambda low, block: fill(low * row_bytes, block))
            if not self._read_before or self._busy:
                self._read_before = True
                return decode()
            self._busy = True
        return self._write(decode())

    def _write(self, blocks: Iterator[NDArray[Any]]) -> Iterator[NDArray[Any]]:
        scratch: ScratchFile | None = ScratchFile(self._folder)
        try:
            for block in blocks:
                if scratch is not None:
                    try:
                        scratch.write(block.reshape(-1).view(np.uint8))
                    except ValueError:  # the disk is full: every later pass decodes
                        scratch.close()
                        scratch = None
                yield block
            self._scratch, scratch = scratch, None
        finally:
            if scratch is not None:  # the caller left this pass early: the next one tries again
                scratch.close()
                self._busy = False

    def close(self) -> None:
        if self._scratch is not None:
            self._scratch.close()


def has_room(size: int, folder: str | Path | None) -> bool:
    """Whether the disk has room for a file of `size` bytes, and the system for keeping that file in memory."""
    try:
        disk = shutil.disk_usage(tempfile.gettempdir() if folder is None else folder).free
    except OSError:
        return False
    return size <= FREE_SHARE * min(disk, free_memory())


def free_memory() -> int:
    """Bytes of memory that are free on this machine; 0 if the system does not say."""
    try:
        with open("/proc/meminfo") as lines:
            return next(1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        pages = {"SC_AVPHYS_PAGES", "SC_PAGE_SIZE"} <= set(getattr(os, "sysconf_names", ()))
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if pages else 0


# --- reading into buffers that are used again ------------------------------------------------------------------------
def fill_in_turns(
    shape: tuple[int, int], dtype: Any, rows: int, fill: Callable[[int, NDArray[Any]], None]
) -> Iterator[NDArray[Any]]:
    """Blocks of `rows` rows in `TURNS` buffers; ``fill(low, block)`` reads the rows from number `low` on."""
    n, d = shape
    rows = min(rows, n)
    buffers = [np.empty((rows, d), dtype) for _ in range(min(TURNS, -(-n // rows)))]
    for turn, low in enumerate(range(0, n, rows)):
        block = buffers[turn % TURNS][: min(rows, n - low)]
        fill(low, block)
        yield block


def read_into(file: Any, array: NDArray[Any], name: str) -> None:
    """Fill an array with the next bytes of an unbuffered file."""
    view = memoryview(array.reshape(-1).view(np.uint8).data)
    done = 0
    while done < len(view):
        got = file.readinto(view[done:])
        if not got:
            raise ValueError(f"{Path(name).name} has become shorter: it ends {len(view) - done} bytes too early")
        done += got
