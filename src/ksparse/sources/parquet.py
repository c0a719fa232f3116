"""Parquet files, and files in Arrow's own format (also called Feather)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from .inputs import InputFile, StandardInput, import_arrow, reading
from .readers import TableReader, cut, types_of

BUFFER = 1 << 15  # bytes of a column read at once: the number of columns times BUFFER are in memory
STREAM_END = b"\xff\xff\xff\xff\0\0\0\0"  # of an Arrow stream; its messages start with the same four bytes
MAPPED = 1 << 26  # bytes of an Arrow file to read before the file is mapped again


class ParquetReader(TableReader):
    """Decodes batches when they are wanted.

    `ParquetFile.iter_batches` does so, and decodes columns in parallel.  The scanner of pyarrow.dataset decodes whole
    row groups, which can be as large as the file.
    """

    def __init__(self, file: InputFile) -> None:
        super().__init__(file)
        with reading(self.name), self._open() as opened:
            self.types, self.rows = types_of(opened.schema_arrow, self.name), opened.metadata.num_rows

    def _open(self) -> Any:
        from pyarrow import parquet

        return parquet.ParquetFile(self.file.native_path, buffer_size=BUFFER, pre_buffer=False)

    def read(self, columns: list[str], size: int) -> Iterator[Any]:
        with reading(self.name), self._open() as opened:
            for batch in opened.iter_batches(batch_size=size, columns=columns):
                yield batch.select(columns)

    def bytes_per_column(self, columns: list[str], size: int) -> int:
        """Measured on a few columns: a page, a dictionary, and the column's part of a batch."""
        arrow, few = import_arrow(), [name for name in columns if name not in self._constants][:16]
        before = arrow.total_allocated_bytes()
        with reading(self.name), self._open() as opened:
            batches = opened.iter_batches(batch_size=size, columns=few)
            batch = next(batches, None)  # both are held while memory is measured
            taken = arrow.total_allocated_bytes() - before if batch is not None else 0
        return max(0, taken) // max(1, len(few))


class ArrowReader(TableReader):
    """Reads an Arrow file or an Arrow stream."""

    def __init__(self, file: InputFile) -> None:
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
        if start[:4] == STREAM_END[:4] and end != STREAM_END:
            self.notes.append(
                f"{self.name}: the stream has no end mark: it may have been cut off, and rows may be missing"
            )

    def _open(self) -> Any:
        if isinstance(self.file, StandardInput):
            return self.file.open_native()
        return import_arrow().memory_map(self.file.native_path)

    def _reader(self, opened: Any, columns: list[str] | None) -> Any:
        from pyarrow import ipc

        fields = None if columns is None else sorted(self._fields.index(column) for column in columns)
        options = ipc.IpcReadOptions(included_fields=fields)
        return (ipc.open_file if self._is_file else ipc.open_stream)(opened, options=options)

    def read(self, columns: list[str], size: int) -> Iterator[Any]:
        with reading(self.name):
            for batch in self._from_file(columns, size) if self._is_file else self._from_stream(columns, size):
                batch = batch.select(columns)
                batch.validate(full=True)  # Arrow itself would read outside of a text or a dictionary
                yield batch

    def _from_stream(self, columns: list[str], size: int) -> Iterator[Any]:
        with self._open() as opened:
            for batch in self._reader(opened, columns):
                yield from cut(batch, size)

    def _from_file(self, columns: list[str], size: int) -> Iterator[Any]:
        """Batches from a memory map.  Pages that were read count as this process's memory until the map is closed."""
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
                    # a compressed batch is finished before the file is mapped again: decompressing it twice would cost
                    compressed = arrow.total_allocated_bytes() - before > batch.nbytes // 2
                    while low < batch.num_rows and (compressed or seen < MAPPED):
                        piece = batch.slice(low, size)
                        yield piece
                        low += piece.num_rows
                        seen += piece.nbytes
                    if low >= batch.num_rows:
                        number, low = number + 1, 0
                    piece = batch = None
