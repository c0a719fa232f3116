"""Bytes on the disk and in memory: input files, temporary files, and how much memory a source may use.

Temporary files have no name in the file system: they are gone when they are closed and when the process is killed.
"""

from __future__ import annotations

import bz2
import gzip
import io
import os
import re
import shutil
import stat
import sys
import tempfile
import threading
import tokenize
import weakref
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import numpy as np
from numpy.typing import NDArray

from .._validate import check_count
from ..design.blocks import AHEAD, SHARE_OF_BLOCKS

SIZES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
LEAST = 1 << 20  # bytes
SMALL, LARGE, ROWS = 1 << 22, 1 << 25, 4096  # bytes and rows of a dense block
TURNS = 3  # buffers of `fill_in_turns`: one block is at work, one waits, one is being filled (see `read_ahead`)
FREE_SHARE = 0.5  # decoded rows are cached if they fit into this share of the free memory and of the free disk
COMPRESSED: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open}
MISSING_FOLDER = "__HIVE_DEFAULT_PARTITION__"  # Hive, Spark, Dask and pyarrow write this name for a missing value
BROKEN = (
    ValueError, OSError, EOFError, KeyError, TypeError, OverflowError, zlib.error, zipfile.BadZipFile, SyntaxError,
    tokenize.TokenError, NotImplementedError,
)  # fmt: skip


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
    """A list of pieces, each a few one-dimensional arrays: in memory up to `limit` bytes, else in a temporary file."""

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
    """Dense rows in a temporary file, so that they are not decoded in every pass; the second full pass writes it."""

    def __init__(self, shape: tuple[int, int], dtype: Any, folder: str | Path | None) -> None:
        self._shape, self._dtype, self._folder = shape, np.dtype(dtype), folder
        self._lock = threading.Lock()
        self._scratch: ScratchFile | None = None
        self._read_before = self._busy = False  # busy: another pass writes the file, or the disk is full

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


# --- input files -----------------------------------------------------------------------------------------------------
class InputFile:
    """A file that can be opened again and again; its `compression` is ".gz", ".bz2" or "".

    The names of the folders between `below`, the folder that the user named, and the file give values of columns: the
    rows of ``year=2020/part.csv`` all have the year 2020, so that `folder_values` is ``{"year": "2020"}``.
    """

    folder_values: dict[str, str | None] = {}  # noqa: RUF012 - never written to

    def __init__(self, path: Path, compression: str = "", below: Path | None = None) -> None:
        self.path, self.compression = path, compression
        self.name = _printable(path.name)
        if below is not None and path.parent != below:
            inside = path.relative_to(below)
            self.name = _printable(str(inside))
            pairs = (_printable(name).partition("=") for name in inside.parts[:-1])
            self.folder_values = {
                unquote(name): None if value == MISSING_FOLDER else unquote(value) for name, _, value in pairs
            }
        self._stamp = self._status()

    def _status(self) -> tuple[int, int]:
        try:
            found = os.stat(self.path)
        except OSError as error:
            raise ValueError(f"{self.name} cannot be read: {error.strerror}") from None
        if not stat.S_ISREG(found.st_mode):
            raise ValueError(f"{self.name} cannot be read: {_kind_of_special_file(found.st_mode)}")
        return found.st_size, found.st_mtime_ns

    def open(self) -> Any:
        """The uncompressed bytes, from the start."""
        return COMPRESSED.get(self.compression, open)(self.path, "rb")

    def open_native(self) -> Any:
        """The uncompressed bytes as an Arrow stream, which is read without Python."""
        compression = {".gz": "gzip", ".bz2": "bz2"}.get(self.compression)
        return import_arrow().input_stream(self.native_path, compression=compression)

    @property
    def native_path(self) -> str:
        """The path for Arrow, which needs UTF-8."""
        try:
            str(self.path).encode()
        except UnicodeEncodeError:
            raise ValueError(f"{self.name} cannot be read: its path is not in UTF-8; rename it") from None
        return str(self.path)

    def check_unchanged(self) -> None:
        """Refuse a file that has changed since it was opened."""
        if self._status() != self._stamp:
            raise ValueError(f"{self.name} has changed since it was opened: open it again")


class StandardInput(InputFile):
    """The standard input, copied to a temporary file so that it can be read again."""

    def __init__(self, folder: str | Path | None = None) -> None:
        self.path, self.name, self.compression = Path("-"), "the standard input", ""
        self._scratch = ScratchFile(folder)
        stream = getattr(sys.stdin, "buffer", sys.stdin)
        while piece := stream.read(1 << 20):
            self._scratch.write(piece)
        if not self._scratch.size:
            raise ValueError("the standard input cannot be read: it is empty")

    def open(self) -> Any:
        return io.BufferedReader(_ScratchReader(self._scratch), 1 << 16)

    def open_native(self) -> Any:
        return import_arrow().PythonFile(self.open(), mode="r")

    def check_unchanged(self) -> None:
        """The copy cannot change."""


class _ScratchReader(io.RawIOBase):
    """A file object over a temporary file, with its own position."""

    def __init__(self, scratch: ScratchFile) -> None:
        self._scratch, self._at = scratch, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + (0, self._at, self._scratch.size)[whence]
        return self._at

    def readinto(self, buffer: Any) -> int:
        got = self._scratch.readinto(self._at, buffer)
        self._at += got
        return got


class OpenedFiles(NamedTuple):
    """What opening files gives, whatever their format."""

    rows: Any  # has `shape` and ``blocks(columns, room)``
    y: Any
    target: str | int | None
    encoding: dict[str, Any]
    notes: list[str]
    spool: Spool | None = None


def _printable(name: str) -> str:
    """A file's name for messages, which are in UTF-8 even if the name is not."""
    return os.fsencode(name).decode("utf-8", "replace")


def _kind_of_special_file(mode: int) -> str:
    if stat.S_ISDIR(mode):
        return "it is a folder, and folders in a folder are not read"
    if stat.S_ISFIFO(mode):
        return "it is a pipe, which can be read only once; send it to the standard input, and give - for the path"
    return "it is not a plain file but a device or a socket"


# --- errors ----------------------------------------------------------------------------------------------------------
@contextmanager
def reading(name: str) -> Iterator[None]:
    """Turn errors of reading into a ValueError of one line that names the file."""
    try:
        yield
    except (*BROKEN, MemoryError) as error:
        by_arrow = type(error).__module__.startswith("pyarrow")
        if isinstance(error, MemoryError) and not by_arrow:  # Arrow's may come from a damaged size in the file
            raise
        text = getattr(error, "strerror", None) or " ".join(str(error).split()) or type(error).__name__
        if text.startswith((f"{name} ", f"{name}: ")):
            raise
        if by_arrow or (type(error) is OSError and error.errno is None):
            text = f"it is damaged, cut off, or of another format ({text.rstrip('.')})"
        raise ValueError(f"{name} cannot be read: {text}") from None


def first_failure(count: int, check: Callable[[int, int], object]) -> int:
    """The first of `count` items that fails, by bisection; ``check(low, high)`` raises if one of low..high-1 does."""
    low, high = 0, count  # the items before `low` are fine, one of those before `high` is not
    while high - low > 1:
        middle = (low + high) // 2
        try:
            check(low, middle)
            low = middle
        except BROKEN:
            high = middle
    return low


def import_arrow() -> Any:
    """pyarrow; if it is missing, the error says how to install it."""
    try:
        import pyarrow
    except ImportError:
        raise ImportError(
            "Parquet, Arrow and CSV files are read by pyarrow, which is not installed: pip install 'ksparse[files]'"
        ) from None
    return pyarrow
