"""Records on disk, one JSON line each, that survive a kill: what is written stays, what is missing is known.

A line ends with a checksum of itself.  The beginning of a line at the end was torn by a kill: it is dropped, and its
record is missing like any other that was never made.  Anything else that is wrong is damage from outside: the file is
set aside under another name, and the good lines go on.
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

REMEDY = "give another out"  # to whom finds a file in use

Record = dict[str, Any]


class Ledger:
    """Records by key, on disk as soon as `append` returns.

    Parameters
    ----------
    path : path or None
        The file; None keeps everything in memory.
    key : names of fields
        Which fields tell records apart; they also give the order of a sorted file.
    keep : names of fields
        Which of the other fields stay in memory, as a tuple in `self.kept[key]`: there may be a million of records.
    check : function of a record
        Raises if a record does not belong into this ledger.  Nothing is changed then.
    fresh : bool
        Start empty; a file that is there is set aside.

    Attributes
    ----------
    torn : bool
        Whether a torn last line was dropped.
    aside : Path or None, and damaged : list of int
        Where the file as it was found is kept, if lines of it (numbers from 1) were damaged or a fresh one was wanted.
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
                spare_name(self.path).unlink(missing_ok=True)  # left by a kill in the middle of `_replace`
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
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def append(self, records: Iterable[Record]) -> None:
        """Add records; when this returns they are on disk, whatever happens to the machine."""
        records = list(records)
        if not records:
            return
        for record in records:
            if self._key(record) in self.kept:
                raise ValueError(f"record {self._key(record)} is already there")
        if self._file >= 0:
            size = os.fstat(self._file).st_size
            try:
                write_all(self._file, b"".join(map(to_line, records)))
            except OSError as error:  # a full disk: no beginning of a line stays
                error.filename = str(self.path)
                os.ftruncate(self._file, size)
                raise
        for record in records:
            self._remember(record)

    def sort(self) -> None:
        """Bring the file into the order of its keys: the same records are then the same bytes, whatever came first."""
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
        """Put these lines in the place of the file in one move."""
        assert self.path is not None
        self._file = replace_locked(self.path, b"".join(lines), self._file, REMEDY)


def to_line(record: Record) -> bytes:
    """A record as a line that ends with its checksum."""
    text = json.dumps(record, allow_nan=False)
    return f'{text[:-1]}, "crc": "{zlib.crc32(text.encode()):08x}"}}\n'.encode()


def from_line(line: bytes) -> Record | None:
    """The record of a line, or None if it is not, to the bit, what was written."""
    try:
        record = json.loads(line)
        del record["crc"]
        return record if to_line(record) == line else None
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def _is_torn(line: bytes) -> bool:
    """Whether a kill may have left this: the beginning of a line.  Other bytes without an end are somebody else's."""
    return not line.endswith(b"\n") and line.startswith(b"{") and line.isascii() and line.decode().isprintable()


def read_records(path: str | Path) -> Iterator[Record]:
    """The good records of a file, which is left as it is."""
    return (record for _, _, record in _lines(Path(path)) if record is not None)


def set_aside(path: Path, why: str) -> Path:
    """Give the file a second name, ``results-damaged-1.jsonl`` and so on; the first one stays until it is replaced."""
    for number in count(1):
        other = path.with_name(f"{path.stem}-{why}-{number}{path.suffix}")
        if other.exists():
            if not filecmp.cmp(path, other, shallow=False):
                continue
            break  # from a run that was killed in between
        try:
            os.link(path, other)
        except OSError:  # a file system without links
            shutil.copyfile(path, other)
        break
    sync_folder(path.parent)
    return other


def _lines(path: Path) -> Iterator[tuple[int, bytes, Record | None]]:
    """Numbers from 1, lines, and their records."""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            yield number, line, from_line(line)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other runs out of a folder that holds several files of one run, where the system can."""
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
