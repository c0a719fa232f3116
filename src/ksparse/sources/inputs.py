"""Which files a path means, their format, how they are opened, and errors in one line that name the file."""

from __future__ import annotations

import bz2
import gzip
import io
import os
import re
import stat
import sys
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

from .._validate import check_choice
from .memory import ScratchFile, Spool

ENDINGS = {
    ".parquet": "parquet", ".arrow": "arrow", ".feather": "arrow", ".csv": "csv", ".tsv": "tsv", ".svm": "libsvm",
    ".svmlight": "libsvm", ".libsvm": "libsvm", ".npy": "npy", ".npz": "npz",
}  # fmt: skip
FORMATS = tuple(dict.fromkeys(ENDINGS.values()))
TEXT = ("csv", "tsv", "libsvm")
PIPED = (*TEXT, "arrow")
COMPRESSED: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open}
COLUMN_FOLDER = re.compile("[^=]+=")  # a folder whose name gives the value of a column, such as year=2020
MISSING = "__HIVE_DEFAULT_PARTITION__"  # Hive, Spark, Dask and pyarrow write this folder name for a missing value
BROKEN = (
    ValueError, OSError, EOFError, KeyError, TypeError, OverflowError, zlib.error, zipfile.BadZipFile, SyntaxError,
    tokenize.TokenError,
)  # fmt: skip


class InputFile:
    """A file that can be opened as often as wanted.

    Parameters
    ----------
    path : Path
    compression : str, default=""
        ".gz", ".bz2" or "".
    below : Path, optional
        The folder that the user named.  The names of the folders between it and the file give values of columns:
        the rows of ``year=2020/part.csv`` all have the year 2020, so that `folder_values` is ``{"year": "2020"}``.
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
                unquote(name): None if value == MISSING else unquote(value) for name, _, value in pairs
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
    """A file object over a temporary file, with a position of its own."""

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


# --- which files, of which format ------------------------------------------------------------------------------------
def find_inputs(path: Any, format: str | None, folder: str | Path | None) -> tuple[str, list[InputFile]]:
    """The format and the files of a path: one file, all files of a folder sorted by name, or the standard input.

    `folder` is where a copy of the standard input goes.
    """
    if format is not None:
        check_choice(format, "format", FORMATS)
    if not isinstance(path, (str, os.PathLike)):
        raise ValueError(f"path must be the path of a file or a folder, got {type(path).__name__}")
    if str(path) == "-":
        if format not in PIPED:
            got = "none" if format is None else repr(format)
            raise ValueError(
                f"format must be given to read the standard input, one of {', '.join(map(repr, PIPED))}; got {got}"
            )
        return format, [StandardInput(folder)]
    path = Path(path)
    if not os.path.lexists(path):
        raise ValueError(f"{str(path)!r} is not there: give a file, a folder of files, or - for the standard input")
    if not path.is_dir():
        if not path.is_file():
            InputFile(path)  # raises, and says what it is
        kind, compression = _format_of(path.name, format)
        return kind, [_checked(InputFile(path, compression))]
    found = [(file, *_format_of(file.name, format)) for file in _files_in(path, format)]
    if not found:
        raise ValueError(f"the folder {path.name!r} holds no file that ends in one of {', '.join(ENDINGS)}")
    kinds = sorted({kind for _, kind, _ in found})
    if len(kinds) > 1:
        raise ValueError(f"the folder {path.name!r} holds files of several formats ({', '.join(kinds)}): choose one")
    if kinds[0] in ("npy", "npz"):
        raise ValueError(f"{kinds[0]} files are read one at a time, got the folder {path.name!r}")
    inputs = [_checked(InputFile(file, compression, path)) for file, _, compression in found]
    nested = next((file for file in inputs if file.folder_values), None)
    if nested is not None and kinds[0] == "libsvm":
        raise ValueError(
            f"{nested.name} cannot be read: folders like year=2020 give columns of tables only, not of LIBSVM files"
        )
    return kinds[0], inputs


def _files_in(folder: Path, format: str | None) -> Iterator[Path]:
    """The files of a folder, sorted by name, including those in folders like ``year=2020``."""
    try:
        paths = sorted(entry for entry in folder.iterdir() if not entry.name.startswith((".", "_")))
    except OSError as error:
        raise ValueError(f"the folder {folder.name} cannot be read: {error.strerror}") from None
    for path in paths:
        if COLUMN_FOLDER.match(path.name) and path.is_dir():
            yield from _files_in(path, format)
        elif _ending(path.name)[0] or (format and not path.is_dir()):
            yield path


def _ending(name: str) -> tuple[str | None, str]:
    """Format and compression that a file's name shows."""
    suffixes = [suffix.lower() for suffix in Path(name).suffixes]
    compression = suffixes.pop() if suffixes and suffixes[-1] in COMPRESSED else ""
    return (ENDINGS.get(suffixes[-1]) if suffixes else None), compression


def _format_of(name: str, format: str | None) -> tuple[str, str]:
    kind, compression = _ending(name)
    kind = format or kind
    if kind is None or (compression and kind not in TEXT):
        raise ValueError(
            f"the name of a file must end in one of {', '.join(ENDINGS)} (text also in .gz or .bz2), got {name!r}; "
            "format= says what it is"
        )
    return kind, compression


def _checked(file: InputFile) -> InputFile:
    with reading(file.name), open(file.path, "rb") as opened:
        if not opened.read(1):
            raise ValueError("it is empty")
    return file


def _printable(name: str) -> str:
    """A file's name for messages, which are in UTF-8 even if the name is not."""
    return os.fsencode(name).decode("utf-8", "replace")


def _kind_of_special_file(mode: int) -> str:
    if stat.S_ISDIR(mode):
        return "it is a folder, and folders in a folder are not read"
    if stat.S_ISFIFO(mode):
        return "it is a pipe, which can be read only once; send it to the standard input, and give - for the path"
    return "it is no plain file but a device or a socket"


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
