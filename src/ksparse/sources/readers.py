"""A file of a table, read in batches of chosen columns: the interface, and a reader that decodes a file only once.

The formats are in csv.py and parquet.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from .encoding import CATEGORY, as_text, kind_of, repeated
from .inputs import InputFile, import_arrow, reading
from .memory import Spool

FOLDER_NUMBER = re.compile(r"[-+]?\d+(\.\d*)?([eE][-+]?\d+)?")


class TableReader:
    """One file of a table; subclasses give `types` and `read`.

    The names of folders may give further columns: every row of a file in ``year=2020`` has the year 2020.  They come
    before the columns of the file, so that the last column (the default target) stays the last one.

    Attributes
    ----------
    types : dict
        The Arrow type of every column, by its name.
    rows : int or None
        Number of rows, if the file says it.
    notes : list of str
        What the user should know about the file.
    """

    types: dict[str, Any]
    rows: int | None = None

    def __init__(self, file: InputFile) -> None:
        self.file, self.name = file, file.name
        self.notes: list[str] = []
        self._constants: dict[str, Any] = {}  # Arrow scalars of the columns that folder names give

    def add_folder_columns(self, types: dict[str, Any]) -> None:
        """Add the columns that folder names give, with types from `folder_types`."""
        arrow = import_arrow()
        for name, value in self.file.folder_values.items():
            if name in self.types:
                raise ValueError(
                    f"{self.name} cannot be read: the column {name!r} is in the file and in the name of its folder; "
                    "rename one of them"
                )
            number = types[name] == arrow.float64()
            self._constants[name] = arrow.scalar(float(value) if number and value is not None else value, types[name])
        self.types = {name: types[name] for name in self._constants} | self.types

    def kind(self, column: str) -> str:
        """number, category, empty, or the name of a type that is none of them."""
        return kind_of(self.types[column])

    def check_unchanged(self) -> None:
        """Refuse a file that has changed since it was opened."""
        self.file.check_unchanged()

    def set_numbers(self, columns: set[str]) -> None:
        """Called before the first batch is read: which columns to read as numbers; the others are text."""

    def batches(self, columns: list[str], size: int) -> Iterator[Any]:
        """Record batches with these columns, of at most `size` rows."""
        if self._constants.keys().isdisjoint(columns):
            yield from self.read(columns, size)
            return
        arrow = import_arrow()
        inside = [name for name in columns if name not in self._constants]
        any_column = [name for name in self.types if name not in self._constants][:1]  # to learn the number of rows
        for batch in self.read(inside or any_column, size):
            arrays = [
                arrow.repeat(self._constants[name], batch.num_rows) if name in self._constants else batch.column(name)
                for name in columns
            ]
            yield arrow.RecordBatch.from_arrays(arrays, names=columns)

    def read(self, columns: list[str], size: int) -> Iterator[Any]:
        """The same for columns that are in the file itself."""
        raise NotImplementedError

    def bytes_per_column(self, columns: list[str], size: int) -> int:
        """Estimated memory that reading one column takes; 0 if it is small."""
        return 0

    def place(self, row: int) -> str:
        """Where a row is in the file, for messages."""
        return f"row {row}"


def types_of(schema: Any, file: str) -> dict[str, Any]:
    """The types of a file's columns, without the column that pandas adds for its index."""
    refuse_repeated(schema.names, file)
    found = zip(schema.names, schema.types, strict=True)
    return {name: type for name, type in found if not (name.startswith("__index_level_") and name.endswith("__"))}


def refuse_repeated(names: list[str], file: str) -> None:
    twice = repeated(names)
    if twice is not None:
        raise ValueError(f"{file} cannot be read: the column {twice!r} is there twice")


def cut(batch: Any, size: int) -> Iterator[Any]:
    """A batch in slices of at most `size` rows."""
    for low in range(0, batch.num_rows, size):
        yield batch.slice(low, size)


def folder_types(files: list[InputFile], texts: tuple[str, ...]) -> dict[str, Any]:
    """Arrow types of the columns that folder names give: numbers if all values are, except columns named in `texts`.

    pyarrow.dataset would read 1.5 and 2e3 as text here.
    """
    arrow = import_arrow()
    found: dict[str, Any] = {}
    for name in dict.fromkeys(name for file in files for name in file.folder_values):
        values = [value for file in files if (value := file.folder_values.get(name)) is not None]
        if not values:
            found[name] = arrow.null()
        elif name in texts or not all(map(FOLDER_NUMBER.fullmatch, values)):
            found[name] = arrow.string()
        else:
            found[name] = arrow.float64()
    return found


class SpooledReader(TableReader):
    """Reads a file once into a spool, and every later batch from there.

    Columns are read in groups: decoding all of thousands of columns at once would need one page of each in memory.

    Parameters
    ----------
    inner : TableReader
    groups : list of lists of str
        The columns.
    size : int
        Rows per batch.
    spool : Spool
    """

    def __init__(self, inner: TableReader, groups: list[list[str]], size: int, spool: Spool) -> None:
        super().__init__(inner.file)
        self._inner, self._spool, self._groups, self.notes = inner, spool, groups, inner.notes
        self.types = {}
        self._pieces: list[list[int]] = []  # for every group, the number in the spool of every batch
        self._schemas: list[Any] = []
        heights: list[list[int]] = []
        inner.check_unchanged()
        for group in groups:
            pieces, height, schema = [], [], None
            for batch in inner.batches(group, size):
                batch = _without_dictionaries(batch)
                schema = batch.schema
                pieces.append(len(spool))
                height.append(batch.num_rows)
                spool.append(np.frombuffer(batch.serialize(), np.uint8))
            self._pieces.append(pieces)
            self._schemas.append(schema)
            heights.append(height)
            self.types |= {} if schema is None else dict(zip(schema.names, schema.types, strict=True))
        inner.check_unchanged()
        with reading(self.name):
            if any(height != heights[0] for height in heights):
                raise ValueError("its columns differ in their number of rows")
        self.rows = sum(heights[0])

    def read(self, columns: list[str], size: int) -> Iterator[Any]:
        from pyarrow import RecordBatch, ipc, py_buffer

        wanted = set(columns)
        used = [g for g, group in enumerate(self._groups) if not wanted.isdisjoint(group)]
        for number in range(len(self._pieces[0])):
            found: dict[str, Any] = {}
            for g in used:
                (content,) = self._spool.read(self._pieces[g][number])
                batch = ipc.read_record_batch(py_buffer(content), self._schemas[g])
                found |= {name: batch.column(name) for name in self._groups[g] if name in wanted}
            yield from cut(RecordBatch.from_arrays([found[name] for name in columns], names=columns), size)

    def check_unchanged(self) -> None:
        """The file may change: it is not read again."""

    def place(self, row: int) -> str:
        return self._inner.place(row)


def _without_dictionaries(batch: Any) -> Any:
    """A batch with text instead of dictionaries, which a serialized batch does not contain."""
    arrays = [as_text(column) if kind_of(column.type) == CATEGORY else column for column in batch.columns]
    return import_arrow().RecordBatch.from_arrays(arrays, names=batch.schema.names)
