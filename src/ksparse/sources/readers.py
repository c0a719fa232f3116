"""The formats of tables: one reader for each of CSV, Parquet and Arrow, which gives batches of chosen columns."""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from .encoding import CATEGORY, kind_of, repeated
from .storage import BROKEN, InputFile, StandardInput, import_arrow, reading

FOLDER_NUMBER = re.compile(r"[-+]?\d+(\.\d*)?([eE][-+]?\d+)?")
CSV_BLOCK = 1 << 22  # bytes parsed at once; the first such block shows which columns are numbers
NUMERIC = r"^\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*$"
BUFFER = 1 << 15  # bytes of a Parquet column read at once: the number of columns times BUFFER are in memory
STREAM_END = b"\xff\xff\xff\xff\0\0\0\0"  # of an Arrow stream; its messages start with the same four bytes
MAPPED = 1 << 26  # bytes of an Arrow file to read before the file is mapped again


class TableReader:
    """One file of a table; subclasses define `types` and `read`.

    The names of folders may give further columns: every row of a file in ``year=2020`` has the year 2020.  They come
    before the columns of the file, so that the last column (the default target) stays the last one.
    """

    types: dict[str, Any]  # the Arrow type of every column
    rows: int | None = None  # number of rows, if the file says it

    def __init__(self, file: InputFile) -> None:
        self.file, self.name = file, file.name
        self.notes: list[str] = []  # what the user should know about the file
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


# --- Parquet and Arrow -----------------------------------------------------------------------------------------------
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
            came, said = 0, opened.metadata.num_rows
            for batch in opened.iter_batches(batch_size=size, columns=columns):
                came += batch.num_rows
                yield batch.select(columns)
            if came != said:
                raise ValueError(f"it is damaged: it says that it has {said} rows, and {came} were read")

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


# --- CSV: pyarrow parses it; if it cannot, Python's slower reader finds the line -------------------------------------
class CsvReader(TableReader):
    """Reads a CSV or TSV file with a header.

    The texts in `na` mean a missing value, in addition to pyarrow's; the columns in `categories` are read as text.
    """

    def __init__(self, file: InputFile, delimiter: str, na: tuple[str, ...], categories: tuple[str, ...]) -> None:
        super().__init__(file)
        self._delimiter, self._na = delimiter, na
        self._numbers: set[str] = set()
        with reading(self.name):
            header = self._header()
            self._raw = {name.strip(): name for name in header}  # names may have blanks around them
            self._block = max(CSV_BLOCK, 8 * sum(len(name) + 24 for name in header))
            if any("\ufffd" in name for name in header):
                raise ValueError(f"its header is not in UTF-8: {', '.join(header)[:60]!r}; save it as text in UTF-8")
            _check_header([name.strip() for name in header], self.name, delimiter)
            try:
                with self._open(None) as batches:
                    first = next(iter(batches), None)
                    types = batches.schema.types
            except BROKEN as error:
                if "Empty CSV file" in str(error):
                    raise ValueError("there are no rows after the header") from None
                raise ValueError(self._diagnosis(error)) from None
            self.types = dict(zip(self._raw, types, strict=True))
            if first is None or first.num_rows == 0:
                raise ValueError("there are no rows after the header")
        self.types |= {name: import_arrow().string() for name in self._raw if name in categories}
        texts = [n for n in self._raw if kind_of(self.types[n]) == CATEGORY and n not in categories]
        self._spoiled = {name for name in texts if _is_mostly_numbers(first[self._raw[name]])}

    def _header(self) -> list[str]:
        with self.file.open() as opened:
            start = opened.read(1 << 12)
        if start[:2] in (b"\xff\xfe", b"\xfe\xff") or b"\0" in start:
            raise ValueError("it is in UTF-16 or is not text; save it as text in UTF-8")
        with self._python_reader(CSV_BLOCK) as lines:
            return next((row for row in lines if row), [])

    @contextmanager
    def _open(self, columns: list[str] | None) -> Iterator[Any]:
        """pyarrow's reader of some columns, or of all with types that it guesses."""
        arrow = import_arrow()
        from pyarrow import csv as arrow_csv

        options = arrow_csv.ConvertOptions(strings_can_be_null=True)
        options.null_values = [*options.null_values, *self._na]
        if columns is not None:
            options.include_columns = [self._raw[name] for name in columns]
            options.column_types = {
                self._raw[name]: arrow.float64() if name in self._numbers else arrow.string() for name in columns
            }
        with (
            self.file.open_native() as opened,
            arrow_csv.open_csv(
                opened,
                read_options=arrow_csv.ReadOptions(block_size=self._block),
                parse_options=arrow_csv.ParseOptions(delimiter=self._delimiter, newlines_in_values=True),
                convert_options=options,
            ) as batches,
        ):
            yield batches

    def kind(self, column: str) -> str:
        found = super().kind(column)
        if column in self._spoiled:  # one typing error makes it text; it must not become one category per number
            row, line, value = self._first(column, lambda text: text not in self._absent() and not _is_number(text))
            raise ValueError(
                f"{self.name} cannot be read: {value!r} stands in row {row} (line {line}), column {column!r}, which "
                f"holds numbers elsewhere; correct it, name it a missing value with na=[{value!r}], or take the column "
                f"as text with categories=[{column!r}]"
            )
        if found == "binary":
            row, line, _ = self._first(column, lambda text: "\ufffd" in text)
            raise ValueError(f"{self.name} cannot be read: row {row} (line {line}), column {column!r} is not in UTF-8")
        return found

    def set_numbers(self, columns: set[str]) -> None:
        self._numbers = columns

    def read(self, columns: list[str], size: int) -> Iterator[Any]:
        try:
            with self._open(columns) as batches:
                for batch in batches:
                    yield from cut(batch.rename_columns(columns), size)
        except BROKEN as error:
            raise ValueError(f"{self.name} cannot be read: {self._diagnosis(error)}") from None

    # --- what is wrong, and where: Python's reader is slow, but knows its lines --------------------------------------
    @contextmanager
    def _python_reader(self, longest: int) -> Iterator[Any]:
        """Python's reader at the start of the file; a field of more than `longest` characters is an error.

        The csv module has one such limit for all of its readers, which is too low by default.  Without any limit, a
        missing quotation mark would make one field of the whole file.
        """
        before = csv.field_size_limit(longest)
        try:
            with io.TextIOWrapper(self.file.open(), "utf-8-sig", errors="replace", newline="") as lines:
                yield (reader := csv.reader(lines, delimiter=self._delimiter))
        except csv.Error as error:
            where = f"line {reader.line_num}"
            if "field limit" in str(error):
                raise ValueError(
                    f"{where} has a field of more than {longest:,} characters; perhaps a quotation mark is missing"
                ) from None
            raise ValueError(f"{where} cannot be parsed: {error}") from None
        finally:
            csv.field_size_limit(before)

    def _rows(self) -> Iterator[tuple[int, int, list[str]]]:
        """Row number, line number and values of every row after the header."""
        with self._python_reader(self._block) as reader:
            row, line = -1, 1
            for values in reader:
                if values:
                    if row >= 0:
                        yield row, line, values
                    row += 1
                line = reader.line_num + 1

    def _first(self, column: str, matches: Callable[[str], bool]) -> tuple[int, int, str]:
        """Row, line and text of the first value of a column that matches."""
        at = list(self._raw).index(column)
        found = ((row, line, values[at]) for row, line, values in self._rows() if matches(values[at]))
        return next(found, (0, 2, "text"))

    def place(self, row: int) -> str:
        line = next((line for at, line, _ in self._rows() if at == row), None)
        return f"row {row} (line {line})"

    def _absent(self) -> set[str]:
        """The texts that mean a missing value."""
        from pyarrow import csv as arrow_csv

        return {*arrow_csv.ConvertOptions().null_values, *self._na}

    def _diagnosis(self, error: Exception) -> str:
        """The first place that cannot be read; pyarrow's message if there is none."""
        names, absent = list(self._raw), self._absent()
        try:
            for row, line, values in self._rows():
                if len(values) != len(names):
                    return f"row {row} (line {line}) has {len(values)} values, the header has {len(names)} names"
                for name, value in zip(names, values, strict=True):
                    if name in self._numbers and value not in absent and not _is_number(value):
                        return (
                            f"{value!r} stands in row {row} (line {line}), column {name!r}, which holds numbers; "
                            f"correct it, or name it a missing value with na=[{value!r}]"
                        )
                    if "\ufffd" in value and "UTF8" in str(error):
                        return f"row {row} (line {line}), column {name!r} is not in UTF-8"
        except BROKEN as broken:  # a compressed file that is cut off
            error = broken
        return " ".join(str(error).split())


def _is_mostly_numbers(values: Any) -> bool:
    from pyarrow import compute

    numeric = compute.match_substring_regex(values.cast("string"), NUMERIC).drop_null()
    return len(numeric) > 0 and 2 * (compute.sum(numeric).as_py() or 0) >= len(numeric)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text


def _check_header(names: list[str], file: str, delimiter: str) -> None:
    if len(names) == 1:
        guess = next((mark for mark in ";\t,|" if mark != delimiter and mark in names[0]), None)
        if guess is not None:
            raise ValueError(
                f"its header is one column, {names[0][:40]!r}; if {guess!r} separates columns, say delimiter={guess!r}"
            )
    if not names:
        raise ValueError("it holds no header")
    if all(_is_number(name) for name in names):
        raise ValueError("its first line holds numbers only; a header with the names of the columns is needed")
    if "" in names:
        raise ValueError(
            f"column {names.index('')} (from 0) has no name in the header; pandas writes its index so, and leaves it "
            "out with to_csv(index=False)"
        )
    refuse_repeated(names, file)
