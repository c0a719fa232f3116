"""Which files a path means, of which format, and how they are opened."""

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
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from .._validate import check_choice
from ._spool import Shelf

ENDINGS = {
    ".parquet": "parquet", ".arrow": "arrow", ".feather": "arrow", ".csv": "csv", ".tsv": "tsv", ".svm": "libsvm",
    ".svmlight": "libsvm", ".libsvm": "libsvm", ".npy": "npy", ".npz": "npz",
}  # fmt: skip
FORMATS = tuple(dict.fromkeys(ENDINGS.values()))
TEXT = ("csv", "tsv", "libsvm")
PIPED = (*TEXT, "arrow")
PACKED: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open}
TELLS = re.compile("[^=]+=")  # a folder that tells the value of a column
MISSING = "__HIVE_DEFAULT_PARTITION__"  # what all who write such folders put for a missing value
BROKEN = (
    ValueError, OSError, EOFError, KeyError, TypeError, OverflowError, zlib.error, zipfile.BadZipFile, SyntaxError,
    tokenize.TokenError,
)  # fmt: skip


class Input:
    """A file, or what came through a pipe, that can be opened as often as wanted.

    `told` are columns that its folders tell: ``year=2020/part.csv`` has the year 2020 in every row.
    """

    told: dict[str, str | None] = {}  # noqa: RUF012 - never written to

    def __init__(self, path: Path, packed: str = "", below: Path | None = None) -> None:
        self.path, self.packed = path, packed
        self.name = shown(path.name)
        if below is not None and path.parent != below:
            self.name = shown(str(path.relative_to(below)))
            self.told = told_by(path.relative_to(below))
        self._stamp = self._look()

    def _look(self) -> tuple[int, int]:
        try:
            found = os.stat(self.path)
        except OSError as error:
            raise ValueError(f"{self.name} cannot be read: {error.strerror}") from None
        if not stat.S_ISREG(found.st_mode):
            raise ValueError(f"{self.name} cannot be read: {_special(found.st_mode)}")
        return found.st_size, found.st_mtime_ns

    def open(self) -> Any:
        """Its bytes from the start, unpacked."""
        return PACKED.get(self.packed, open)(self.path, "rb")

    def open_native(self) -> Any:
        """The same as a stream of Arrow's, which needs no Python to be read."""
        packing = {".gz": "gzip", ".bz2": "bz2"}.get(self.packed)
        return import_arrow().input_stream(self.native_path, compression=packing)

    @property
    def native_path(self) -> str:
        """The path for Arrow, which wants UTF-8."""
        try:
            str(self.path).encode()
        except UnicodeEncodeError:
            raise ValueError(f"{self.name} cannot be read: its path is not in UTF-8; rename it") from None
        return str(self.path)

    def check_same(self) -> None:
        """Refuse a file that is no longer what it was when it was opened."""
        if self._look() != self._stamp:
            raise ValueError(f"{self.name} has changed since it was opened: open it again")


class Pipe(Input):
    """The standard input, copied to a temporary file so that it can be read again."""

    def __init__(self, folder: str | Path | None = None) -> None:
        self.path, self.name, self.packed = Path("-"), "the standard input", ""
        self._shelf = Shelf(folder)
        stream = getattr(sys.stdin, "buffer", sys.stdin)
        while piece := stream.read(1 << 20):
            self._shelf.write(piece)
        if not self._shelf.size:
            raise ValueError("the standard input cannot be read: it is empty")

    def open(self) -> Any:
        return io.BufferedReader(_Reading(self._shelf), 1 << 16)

    def open_native(self) -> Any:
        return import_arrow().PythonFile(self.open(), mode="r")

    def check_same(self) -> None:
        return None


class _Reading(io.RawIOBase):
    """A file over the bytes of a shelf, with a place of its own."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf, self._at = shelf, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + (0, self._at, self._shelf.size)[whence]
        return self._at

    def readinto(self, buffer: Any) -> int:
        got = self._shelf.read(self._at, len(buffer))
        buffer[: len(got)] = got
        self._at += len(got)
        return len(got)


def find_inputs(path: Any, format: str | None, folder: str | Path | None) -> tuple[str, list[Input]]:
    """The format and the files of a path: one, all of a folder in the order of their names, or the standard input."""
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
        return format, [Pipe(folder)]
    path = Path(path)
    if not os.path.lexists(path):
        raise ValueError(f"{str(path)!r} is not there: give a file, a folder of files, or - for the standard input")
    if not path.is_dir():
        if not path.is_file():
            Input(path)  # says what it is
        kind, packed = _known(path.name, format)
        return kind, [_checked(Input(path, packed))]
    found = [(file, *_known(file.name, format)) for file in _files_in(path, format)]
    if not found:
        raise ValueError(f"the folder {path.name!r} holds no file that ends in one of {', '.join(ENDINGS)}")
    kinds = sorted({kind for _, kind, _ in found})
    if len(kinds) > 1:
        raise ValueError(f"the folder {path.name!r} holds files of several formats ({', '.join(kinds)}): choose one")
    if kinds[0] in ("npy", "npz"):
        raise ValueError(f"{kinds[0]} files are read one at a time, got the folder {path.name!r}")
    inputs = [_checked(Input(file, packed, path)) for file, _, packed in found]
    nested = next((file for file in inputs if file.told), None)
    if nested is not None and kinds[0] == "libsvm":
        raise ValueError(f"{nested.name} cannot be read: folders tell columns of tables only, not of LIBSVM files")
    return kinds[0], inputs


def _files_in(folder: Path, format: str | None) -> Iterator[Path]:
    """The files that a folder means, in the order of their names; also those in folders like ``year=2020``."""
    try:
        paths = sorted(entry for entry in folder.iterdir() if not entry.name.startswith((".", "_")))
    except OSError as error:
        raise ValueError(f"the folder {folder.name} cannot be read: {error.strerror}") from None
    for path in paths:
        if TELLS.match(path.name) and path.is_dir():
            yield from _files_in(path, format)
        elif _ending(path.name)[0] or (format and not path.is_dir()):
            yield path


def told_by(path: Path) -> dict[str, str | None]:
    """The columns that the folders of a relative path tell."""
    pairs = (shown(name).partition("=") for name in path.parts[:-1])
    return {unquote(name): None if value == MISSING else unquote(value) for name, _, value in pairs}


def shown(name: str) -> str:
    """A file's name for messages, which are UTF-8 even if it is not."""
    return os.fsencode(name).decode("utf-8", "replace")


def _special(mode: int) -> str:
    if stat.S_ISDIR(mode):
        return "it is a folder, and folders in a folder are not read"
    if stat.S_ISFIFO(mode):
        return "it is a pipe, which can be read only once; send it to the standard input, and give - for the path"
    return "it is no plain file but a device or a socket"


def _ending(name: str) -> tuple[str | None, str]:
    """Format and packing that a name tells."""
    suffixes = [suffix.lower() for suffix in Path(name).suffixes]
    packed = suffixes.pop() if suffixes and suffixes[-1] in PACKED else ""
    return (ENDINGS.get(suffixes[-1]) if suffixes else None), packed


def _known(name: str, format: str | None) -> tuple[str, str]:
    kind, packed = _ending(name)
    kind = format or kind
    if kind is None or (packed and kind not in TEXT):
        raise ValueError(
            f"the name of a file must end in one of {', '.join(ENDINGS)} (text also in .gz or .bz2), got {name!r}; "
            f"format= says what it is"
        )
    return kind, packed


def _checked(found: Input) -> Input:
    with reading(found.name), open(found.path, "rb") as file:
        if not file.read(1):
            raise ValueError("it is empty")
    return found


@contextmanager
def reading(name: str) -> Iterator[None]:
    """What goes wrong in here is an error of one line that names the file."""
    try:
        yield
    except (*BROKEN, MemoryError) as error:
        by_arrow = type(error).__module__.startswith("pyarrow")
        if isinstance(error, MemoryError) and not by_arrow:  # Arrow's may come from a size that is damaged
            raise
        text = getattr(error, "strerror", None) or " ".join(str(error).split()) or type(error).__name__
        if text.startswith((f"{name} ", f"{name}: ")):
            raise
        if by_arrow or (type(error) is OSError and error.errno is None):
            text = f"it is damaged, cut off, or of another format ({text.rstrip('.')})"
        raise ValueError(f"{name} cannot be read: {text}") from None


def import_arrow() -> Any:
    """pyarrow, or how to get it."""
    try:
        import pyarrow
    except ImportError:
        raise ImportError(
            "Parquet, Arrow and CSV files are read by pyarrow, which is not installed: pip install 'ksparse[files]'"
        ) from None
    return pyarrow
