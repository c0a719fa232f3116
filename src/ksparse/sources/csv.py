"""CSV files: pyarrow parses them; where one cannot be parsed, Python's slower reader finds the line."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from .encoding import CATEGORY, kind_of
from .inputs import BROKEN, InputFile, import_arrow, reading
from .readers import TableReader, cut, refuse_repeated

BLOCK = 1 << 22  # bytes parsed at once; the first such block shows which columns are numbers
NUMERIC = r"^\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*$"


class CsvReader(TableReader):
    """Reads a CSV or TSV file with a header.

    Parameters
    ----------
    file : InputFile
    delimiter : str
    na : tuple of str
        Texts that mean a missing value, in addition to pyarrow's.
    categories : tuple of str
        Columns to read as text.
    """

    def __init__(self, file: InputFile, delimiter: str, na: tuple[str, ...], categories: tuple[str, ...]) -> None:
        super().__init__(file)
        self._delimiter, self._na = delimiter, na
        self._numbers: set[str] = set()
        with reading(self.name):
            header = self._header()
            self._raw = {name.strip(): name for name in header}  # names may have blanks around them
            self._block = max(BLOCK, 8 * sum(len(name) + 24 for name in header))
            if any("\ufffd" in name for name in header):
                raise ValueError(f"its header is not in UTF-8: {', '.join(header)[:60]!r}; save it as text in UTF-8")
            _check_header([name.strip() for name in header], self.name, delimiter)
            try:
                with self._open(None) as batches:
                    first = next(iter(batches), None)
                    types = batches.schema.types
            except BROKEN as error:
                if "Empty CSV file" in str(error):
                    raise ValueError("there are no rows behind the header") from None
                raise ValueError(self._diagnosis(error)) from None
            self.types = dict(zip(self._raw, types, strict=True))
            if first is None or first.num_rows == 0:
                raise ValueError("there are no rows behind the header")
        self.types |= {name: import_arrow().string() for name in self._raw if name in categories}
        texts = [n for n in self._raw if kind_of(self.types[n]) == CATEGORY and n not in categories]
        self._spoiled = {name for name in texts if _is_mostly_numbers(first[self._raw[name]])}

    def _header(self) -> list[str]:
        with self.file.open() as opened:
            start = opened.read(1 << 12)
        if start[:2] in (b"\xff\xfe", b"\xfe\xff") or b"\0" in start:
            raise ValueError("it is in UTF-16 or no text at all; save it as text in UTF-8")
        with self._python_reader(BLOCK) as lines:
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
        """Row number, line number and values of every row behind the header."""
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
