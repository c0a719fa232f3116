"""A file of records, one JSON line each, that survives a kill: a record that was written is never lost.

Every line ends with a checksum of itself.  If a kill left an incomplete last line, it is dropped, and its record has to
be made again.  Any other wrong line is damage from outside: the file is kept under another name, and a new one gets the
good lines.
"""

from __future__ import annotations

import filecmp
import json
import os
import shutil
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from ..._files import lock, open_locked, replace_locked, spare_name, sync_folder, write_all

REMEDY = "give another out"  # what to do if another run writes the same file

Record = dict[str, Any]


class Ledger:
    """Records that are on disk as soon as `append` returns; a context manager that holds a lock on its file.

    Parameters
    ----------
    path : path or None
        The file; None keeps everything in memory.
    key : sequence of str
        The fields that identify a record; they also give the order of a sorted file.
    keep : sequence of str, default=()
        Other fields to keep in memory, as a tuple in ``kept[key]``: a file may hold a million records.
    check : function of a record, default accepts all
        Raises an error if a record does not belong in this file, which is then left as it was.
    fresh : bool, default=False
        Start empty; an existing file is kept under another name.

    Attributes
    ----------
    kept : dict
        From the key of every record to its fields `keep`.
    torn : bool
        Whether an incomplete last line was dropped.
    damaged : list of int
        Line numbers, from 1, that were damaged.
    aside : Path or None
        The copy of the file as it was found, if lines were damaged or `fresh` was given.

    Examples
    --------
    >>> with Ledger(None, key=["trial"], keep=["error"]) as ledger:
    ...     ledger.append([{"trial": 0, "error": 0.5}])
    ...     ledger.kept
    {(0,): (0.5,)}
    """

    def __init__(
        self,
        path: str | Path | None,
        key: Sequence[str],
        keep: Sequence[str] = (),
        check: Callable[[Record], None] = lambda record: None,
        fresh: bool = False,
    ) -> None:
        self.path = None if path is None else Path(path)
        self.key, self.keep, self.check = tuple(key), tuple(keep), check
        self.kept: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        self.torn, self.damaged = False, list[int]()
        self.aside: Path | None = None
        self._file = -1
        if self.path is not None:
            self._file = open_locked(self.path, REMEDY)
            try:
                spare_name(self.path).unlink(missing_ok=True)  # a kill during `_replace` may have left it
                if not fresh:
                    self._read(self.path)
                elif self.path.stat().st_size:
                    self.aside = set_aside(self.path, "old")
                    self._replace([])
            except BaseException:
                self.close()
                raise

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __contains__(self, key: object) -> bool:
        return key in self.kept

    def close(self) -> None:
        """Close the file and release its lock."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def append(self, records: Iterable[Record]) -> None:
        """Add records; when this returns they are on disk, even if the machine fails right after."""
        records = list(records)
        if not records:
            return
        for record in records:
            if self._key(record) in self.kept:
                raise ValueError(f"record {self._key(record)} is already in the file")
        if self._file >= 0:
            size = os.fstat(self._file).st_size
            try:
                write_all(self._file, b"".join(map(to_line, records)))
            except OSError as error:  # a full disk: remove the incomplete line
                error.filename = str(self.path)
                os.ftruncate(self._file, size)
                raise
        for record in records:
            self._remember(record)

    def sort(self) -> None:
        """Sort the file by its keys: the same records then give the same bytes, in whatever order they were made."""
        keys = list(self.kept)
        if keys == sorted(keys):
            return
        if self.path is not None:
            lines = {self._key(record): line for _, line, record in _lines(self.path) if record is not None}
            self._replace(lines[key] for key in sorted(lines))
        self.kept = dict(sorted(self.kept.items()))

    def _key(self, record: Record) -> tuple[Any, ...]:
        return tuple(record[name] for name in self.key)

    def _remember(self, record: Record) -> None:
        self.kept[self._key(record)] = tuple(record[name] for name in self.keep)

    def _read(self, path: Path) -> None:
        good, end = [], 0
        for number, line, record in _lines(path):
            if _is_torn(line):
                self.torn = True
            elif record is None or not {*self.key, *self.keep} <= record.keys() or self._key(record) in self.kept:
                self.damaged.append(number)
            else:
                self.check(record)
                self._remember(record)
                good.append(line)
                end += len(line)
        if self.damaged:
            self.aside = set_aside(path, "damaged")
            self._replace(good)
        elif self.torn:
            os.ftruncate(self._file, end)
            os.fsync(self._file)

    def _replace(self, lines: Iterable[bytes]) -> None:
        """Replace the file by these lines, in one step."""
        assert self.path is not None
        replace_locked(self.path, b"".join(lines), self._file, REMEDY)


def to_line(record: Record) -> bytes:
    """The line of a record, with its checksum at the end."""
    text = json.dumps(record, allow_nan=False)
    return f'{text[:-1]}, "crc": "{zlib.crc32(text.encode()):08x}"}}\n'.encode()


def from_line(line: bytes) -> Record | None:
    """The record of a line, or None unless the line is exactly what `to_line` wrote."""
    try:
        record = json.loads(line)
        del record["crc"]
        return record if to_line(record) == line else None
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def _is_torn(line: bytes) -> bool:
    """Whether a kill may have left this beginning of a line; other unfinished lines are damage."""
    return not line.endswith(b"\n") and line.startswith(b"{") and line.isascii() and line.decode().isprintable()


def read_records(path: str | Path) -> Iterator[Record]:
    """Iterate over the undamaged records of a file, without changing it.

    Parameters
    ----------
    path : path
        A file written by `Ledger`.
    """
    return (record for _, _, record in _lines(Path(path)) if record is not None)


def set_aside(path: Path, why: str) -> Path:
    """Keep a copy of a file as ``results-damaged-1.jsonl`` (or -2, ...; `why` is "damaged"), and return its path."""
    for number in count(1):
        other = path.with_name(f"{path.stem}-{why}-{number}{path.suffix}")
        if other.exists():
            if not filecmp.cmp(path, other, shallow=False):
                continue
            break  # a run that was killed right after has made this copy
        try:
            os.link(path, other)
        except OSError:  # the file system has no links
            shutil.copyfile(path, other)
        break
    sync_folder(path.parent)
    return other


def _lines(path: Path) -> Iterator[tuple[int, bytes, Record | None]]:
    """(line number from 1, line, its record) for every line of a file."""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            yield number, line, from_line(line)


class OtherSettings(ValueError):
    """A record was made with other settings."""


def check_settings(settings: Record, record: Record) -> None:
    """Raise `OtherSettings` if a record was not made with these settings."""
    other = [(name, record.get(name), here) for name, here in settings.items() if record.get(name) != here]
    if other:
        raise OtherSettings("; ".join(f"{name} is {there!r} there and {here!r} here" for name, there, here in other))


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock a folder against other runs, on systems that can; an error if another run has it."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:  # Windows does not open folders
        yield
        return
    try:
        lock(handle, folder, REMEDY)
        yield
    finally:
        os.close(handle)
