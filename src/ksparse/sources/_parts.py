"""The files of a table, each as batches of chosen columns: Parquet and Arrow."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from ._encoding import CATEGORY, NUMBER
from ._inputs import Input, Pipe, import_arrow, reading

EMPTY = "empty"  # a column with nothing in it: it may be anything
BUFFER = 1 << 15  # bytes of a column read at once: columns x BUFFER are in memory
END = b"\xff\xff\xff\xff\0\0\0\0"  # of a stream; its messages start with the same four bytes
MAPPED = 1 << 26  # bytes of an Arrow file to look at before its map is made anew


class Part:
    """A file of a table.

    Attributes
    ----------
    types : dict
        Of the columns by name: Arrow's types.
    rows : int or None
        How many, if the file tells.
    notes : list of str
        What a reader should know of the file.
    """

    types: dict[str, Any]
    rows: int | None = None

    def __init__(self, file: Input) -> None:
        self.file, self.name = file, file.name
        self.notes: list[str] = []

    def kind(self, column: str) -> str:
        """number, category, empty, or the name of a type that is none of them."""
        return kind_of(self.types[column])

    def check_same(self) -> None:
        """Refuse a file that has changed since it was opened."""
        self.file.check_same()

    def settle(self, numbers: set[str]) -> None:
        """Hear which columns are numbers, before the first batch is read; the others are text."""

    def batches(self, columns: list[str], size: int) -> Iterator[Any]:
        """Record batches of at most `size` rows with these columns."""
        raise NotImplementedError

    def bytes_a_column(self, columns: list[str], size: int) -> int:
        """About what a column takes while it is read, if that may be much."""
        return 0

    def place(self, row: int) -> str:
        """A row's place in words."""
        return f"row {row}"


def kind_of(type: Any) -> str:
    """What a column of an Arrow type is to us."""
    from pyarrow import types

    if types.is_integer(type) or types.is_floating(type) or types.is_decimal(type):
        return NUMBER
    if types.is_null(type):
        return EMPTY
    if types.is_dictionary(type):
        inside = kind_of(type.value_type)
        return CATEGORY if inside in (NUMBER, CATEGORY, EMPTY) else str(type)
    text = types.is_string(type) or types.is_large_string(type) or types.is_string_view(type)
    return CATEGORY if text or types.is_boolean(type) else str(type)


def types_of(schema: Any, file: str) -> dict[str, Any]:
    """The types of a file's columns; without the index that pandas stores as one more."""
    unique_names(schema.names, file)
    found = zip(schema.names, schema.types, strict=True)
    return {name: type for name, type in found if not (name.startswith("__index_level_") and name.endswith("__"))}


def unique_names(names: list[str], file: str) -> None:
    """Refuse columns that cannot be told apart."""
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{file} cannot be read: the column {twice!r} is there twice")


def cut(batch: Any, size: int) -> Iterator[Any]:
    for low in range(0, batch.num_rows, size):
        yield batch.slice(low, size)


class ParquetPart(Part):
    """Batches are decoded as they are wanted.

    The scanner of pyarrow.dataset decodes whole row groups, and those can be as large as the file; its reader of
    single files does not, and decodes columns in parallel.
    """

    def __init__(self, file: Input) -> None:
        super().__init__(file)
        with reading(self.name), self._open() as opened:
            self.types, self.rows = types_of(opened.schema_arrow, self.name), opened.metadata.num_rows

    def _open(self) -> Any:
        from pyarrow import parquet

        return parquet.ParquetFile(self.file.native_path, buffer_size=BUFFER, pre_buffer=False)

    def batches(self, columns: list[str], size: int) -> Iterator[Any]:
        with reading(self.name), self._open() as opened:
            for batch in opened.iter_batches(batch_size=size, columns=columns):
                yield batch.select(columns)

    def bytes_a_column(self, columns: list[str], size: int) -> int:
        """Its page, its dictionary, its part of a batch."""
        arrow, few = import_arrow(), columns[:16]
        before = arrow.total_allocated_bytes()
        batches = self.batches(few, size)
        batch = next(batches, None)  # held while we look
        taken = arrow.total_allocated_bytes() - before if batch is not None else 0
        batches.close()  # type: ignore[attr-defined]
        return max(0, taken) // max(1, len(few))


class ArrowPart(Part):
    """Arrow's own format: a file (also called Feather), or a stream."""

    def __init__(self, file: Input) -> None:
        super().__init__(file)
        with reading(self.name):
            with file.open() as opened:
                start = opened.read(6)
                opened.seek(-min(8, opened.seek(0, os.SEEK_END)), os.SEEK_END)
                end = opened.read(8)
            self._is_file = start == b"ARROW1"
            if start[:4] == b"FEA1":
                raise ValueError("it is of Feather's first version; write it again with a newer one")
            with self._open() as opened:
                schema = self._reader(opened, None).schema
            self._fields, self.types = schema.names, types_of(schema, self.name)
        if start[:4] == END[:4] and end != END:
            self.notes.append(f"{self.name}: the stream has no end mark: it may have been cut off, and rows be missing")

    def _open(self) -> Any:
        if isinstance(self.file, Pipe):
            return self.file.open_native()
        return import_arrow().memory_map(self.file.native_path)

    def _reader(self, opened: Any, columns: list[str] | None) -> Any:
        from pyarrow import ipc

        options = ipc.IpcReadOptions()
        if columns is not None:
            options = ipc.IpcReadOptions(included_fields=sorted(self._fields.index(column) for column in columns))
        return (ipc.open_file if self._is_file else ipc.open_stream)(opened, options=options)

    def batches(self, columns: list[str], size: int) -> Iterator[Any]:
        with reading(self.name):
            for batch in self._file(columns, size) if self._is_file else self._stream(columns, size):
                batch = batch.select(columns)
                batch.validate(full=True)  # a place outside of a text or a dictionary would be read all the same
                yield batch

    def _stream(self, columns: list[str], size: int) -> Iterator[Any]:
        with self._open() as opened:
            for batch in self._reader(opened, columns):
                yield from cut(batch, size)

    def _file(self, columns: list[str], size: int) -> Iterator[Any]:
        """Pages of a map that were looked at count as this process's memory: the map is made anew now and then."""
        arrow = import_arrow()
        with self._open() as opened:
            count = self._reader(opened, columns).num_record_batches
        number, low = 0, 0
        while number < count:
            with self._open() as opened:
                reader, seen = self._reader(opened, columns), 0
                while number < count and seen < MAPPED:
                    before = arrow.total_allocated_bytes()
                    batch = reader.get_batch(number)
                    packed = arrow.total_allocated_bytes() - before > batch.nbytes // 2  # unpacking it again would cost
                    while low < batch.num_rows and (packed or seen < MAPPED):
                        piece = batch.slice(low, size)
                        yield piece
                        low += piece.num_rows
                        seen += piece.nbytes
                    if low >= batch.num_rows:
                        number, low = number + 1, 0
                    piece = batch = None
