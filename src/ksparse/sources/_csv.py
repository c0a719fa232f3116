"""CSV files: pyarrow parses them; what is wrong with one is found by reading it once more."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ._encoding import CATEGORY
from ._inputs import BROKEN, Input, import_arrow, reading
from ._parts import Part, cut, kind_of, unique_names

BLOCK = 1 << 22  # bytes parsed at once; the first such block tells what the columns are
NUMERIC = r"^\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*$"


class CsvPart(Part):
    """A CSV or TSV file with a header."""

    def __init__(self, file: Input, delimiter: str, na: tuple[str, ...], categories: tuple[str, ...]) -> None:
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
                with self._open(None) as reader:
                    first = next(iter(reader), None)
                    types = reader.schema.types
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
        with self._parsed(BLOCK) as lines:
            return next((row for row in lines if row), [])

    @contextmanager
    def _parsed(self, longest: int) -> Iterator[Any]:
        """Python's reader at the start of the file; a field of more than so many characters is an error.

        The csv module has one such limit for all of its readers, too low by default; none at all would read a whole
        file into one field where a quotation mark is missing.
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

    @contextmanager
    def _open(self, columns: list[str] | None) -> Iterator[Any]:
        arrow = import_arrow()
        from pyarrow import csv as reader

        options = reader.ConvertOptions(strings_can_be_null=True)
        options.null_values = [*options.null_values, *self._na]
        if columns is not None:
            options.include_columns = [self._raw[name] for name in columns]
            options.column_types = {
                self._raw[name]: arrow.float64() if name in self._numbers else arrow.string() for name in columns
            }
        with (
            self.file.open_native() as opened,
            reader.open_csv(
                opened,
                read_options=reader.ReadOptions(block_size=self._block),
                parse_options=reader.ParseOptions(delimiter=self._delimiter, newlines_in_values=True),
                convert_options=options,
            ) as batches,
        ):
            yield batches

    def kind(self, column: str) -> str:
        found = super().kind(column)
        if column in self._spoiled:  # a typing error makes text of it: it must not become a category a number
            row, line, value = self._first(column, lambda text: text not in self._absent() and not _is_number(text))
            raise ValueError(
                f"{self.name} cannot be read: {value!r} stands in row {row} (line {line}), column {column!r}, which "
                f"holds numbers elsewhere; mend it, name it a missing value with na=[{value!r}], or take the column as "
                f"text with categories=[{column!r}]"
            )
        if found == "binary":
            row, line, _ = self._first(column, lambda text: "\ufffd" in text)
            raise ValueError(f"{self.name} cannot be read: row {row} (line {line}), column {column!r} is not in UTF-8")
        return found

    def _first(self, column: str, fits: Callable[[str], bool]) -> tuple[int, int, str]:
        """Row, line and text of the first value that fits."""
        at = list(self._raw).index(column)
        found = ((row, line, values[at]) for row, line, values in self._rows() if fits(values[at]))
        return next(found, (0, 2, "text"))

    def settle(self, numbers: set[str]) -> None:
        self._numbers = numbers

    def batches(self, columns: list[str], size: int) -> Iterator[Any]:
        try:
            with self._open(columns) as reader:
                for batch in reader:
                    yield from cut(batch.rename_columns(columns), size)
        except BROKEN as error:
            raise ValueError(f"{self.name} cannot be read: {self._diagnosis(error)}") from None

    # --- what is wrong, and where: read by Python's reader, which is slow and knows its lines ------------------------
    def _rows(self) -> Iterator[tuple[int, int, list[str]]]:
        """Row, line and values of all that follows the header."""
        with self._parsed(self._block) as reader:
            row, line = -1, 1
            for values in reader:
                if values:
                    if row >= 0:
                        yield row, line, values
                    row += 1
                line = reader.line_num + 1

    def place(self, row: int) -> str:
        line = next((line for at, line, _ in self._rows() if at == row), None)
        return f"row {row} (line {line})"

    def _absent(self) -> set[str]:
        from pyarrow import csv as reader

        return {*reader.ConvertOptions().null_values, *self._na}

    def _diagnosis(self, error: Exception) -> str:
        """The first place that cannot be read; what pyarrow says of it if there is none."""
        names, absent = list(self._raw), self._absent()
        try:
            for row, line, values in self._rows():
                if len(values) != len(names):
                    return f"row {row} (line {line}) has {len(values)} values, the header has {len(names)} names"
                for name, value in zip(names, values, strict=True):
                    if name in self._numbers and value not in absent and not _is_number(value):
                        return (
                            f"{value!r} stands in row {row} (line {line}), column {name!r}, which holds numbers; "
                            f"mend it, or name it a missing value with na=[{value!r}]"
                        )
                    if "\ufffd" in value and "UTF8" in str(error):
                        return f"row {row} (line {line}), column {name!r} is not in UTF-8"
        except BROKEN as broken:  # a packed file that is cut off
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
                f"its header is one column, {names[0][:40]!r}; if {guess!r} is between, say delimiter={guess!r}"
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
    unique_names(names, file)
