"""How the columns of a table become numbers: text becomes one 0/1 column per value, batches become blocks of rows.

An encoding is plain JSON, so that a model can keep it and another file can be read in the same way.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._jit import SUMS, kernel
from ..design.blocks import BLOCK, read_ahead
from .storage import TURNS, import_arrow

if TYPE_CHECKING:
    from .readers import TableReader

VERSION = 1
MISSING = ("error", "mean", "zero")
NUMBER, CATEGORY, EMPTY = "number", "category", "empty"  # what a column is; an empty one may be either
KINDS = ("table", "libsvm", "array")
BATCHES = 2  # a batch takes this many times the bytes of a block


class Column(NamedTuple):
    """A column of a table: a number, or a category with one 0/1 column for each of its levels."""

    name: str
    levels: tuple[str, ...] | None = None
    fill: float | None = None  # replaces a missing number; None: missing numbers are refused

    @property
    def names(self) -> list[str]:
        return [self.name] if self.levels is None else [f"{self.name}={level}" for level in self.levels]

    @property
    def width(self) -> int:
        return 1 if self.levels is None else len(self.levels)


class TableEncoding(NamedTuple):
    """All that is needed to read another table in the same way."""

    columns: tuple[Column, ...]
    target: str | None = None
    labels: bool = False  # whether the target is text
    missing: str = "error"
    delimiter: str | None = None
    na: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        columns: list[dict[str, Any]] = [
            {"name": c.name, "fill": c.fill} if c.levels is None else {"name": c.name, "levels": list(c.levels)}
            for c in self.columns
        ]
        target = None if self.target is None else {"name": self.target, "labels": self.labels}
        return {
            "version": VERSION, "kind": "table", "columns": columns, "target": target, "missing": self.missing,
            "delimiter": self.delimiter, "na": list(self.na),
        }  # fmt: skip


def repeated(names: Iterable[str]) -> str | None:
    """The first name that occurs more than once; None if there is none."""
    return next((name for name, count in Counter(names).items() if count > 1), None)


# --- encodings from files that somebody may have edited --------------------------------------------------------------
def check_encoding(encoding: Any) -> dict[str, Any]:
    """The encoding itself, if it is one."""
    if not isinstance(encoding, dict):
        raise ValueError(f"encoding must be a dict such as Files.encoding, got {type(encoding).__name__}")
    if encoding.get("version") != VERSION:
        raise ValueError(f"encoding must have version {VERSION}, got {encoding.get('version')!r}")
    if encoding.get("kind") not in KINDS:
        raise ValueError(f"encoding must be of a kind of {', '.join(KINDS)}, got {encoding.get('kind')!r}")
    if encoding["kind"] != "table":
        features = encoding.get("features")
        fine = isinstance(features, int) and not isinstance(features, bool) and features >= 1
        _require(fine, "features must be an integer of at least 1", features)
        if encoding["kind"] == "libsvm":
            _require(
                isinstance(encoding.get("zero_based"), bool), "zero_based must be a bool", encoding.get("zero_based")
            )
        else:
            fine = isinstance(encoding.get("target"), int | None)
            _require(fine, "target must be an int or null", encoding.get("target"))
    return encoding


def table_encoding(encoding: dict[str, Any]) -> TableEncoding:
    """A checked encoding of kind "table" as an object."""
    listed, missing, target = encoding.get("columns"), encoding.get("missing"), encoding.get("target")
    delimiter, na = encoding.get("delimiter"), encoding.get("na", [])
    _require(_is_list(listed, object) and listed, "columns must be a list of at least one column", listed)
    columns = tuple(_column(entry, number) for number, entry in enumerate(listed or []))
    twice = repeated(column.name for column in columns)
    if twice is not None:
        raise ValueError(f"encoding: the column {twice!r} is there twice")
    _require(missing in MISSING, f"missing must be one of {', '.join(map(repr, MISSING))}", missing)
    bad = next((c.name for c in columns if c.levels is None and c.fill is None), None)
    if missing != "error" and bad is not None:
        raise ValueError(f"encoding: fill of column {bad!r} must be a number, because missing is {missing!r}")
    name, labels = None, False
    if target is not None:
        fine = isinstance(target, dict) and isinstance(target.get("name"), str)
        _require(
            fine and isinstance(target.get("labels"), bool), "target must be null or hold a name and labels", target
        )
        name, labels = target["name"], target["labels"]
        if any(column.name == name for column in columns):
            raise ValueError(f"encoding: the target {name!r} must not be among the columns")
    check_delimiter(delimiter, "encoding: delimiter")
    _require(_is_list(na, str), "na must be a list of words", na)
    return TableEncoding(columns, name, labels, str(missing), delimiter, tuple(na))


def _column(entry: Any, number: int) -> Column:
    place = f"column {number}"
    _require(
        isinstance(entry, dict) and isinstance(entry.get("name"), str), f"{place} must be an object with a name", entry
    )
    place, fill = f"{place} ({entry['name']!r})", entry.get("fill")
    if "levels" not in entry:
        fine = fill is None or (isinstance(fill, int | float) and not isinstance(fill, bool) and math.isfinite(fill))
        _require(fine, f"{place}: fill must be a finite number or null", fill)
        return Column(entry["name"], None, None if fill is None else float(fill))
    levels = entry["levels"]
    _require(_is_list(levels, str) and levels, f"{place}: levels must be a list of words", levels)
    if repeated(levels) is not None:
        raise ValueError(f"encoding: {place}: a level is there twice")
    return Column(entry["name"], tuple(levels))


def check_delimiter(delimiter: Any, name: str) -> None:
    if delimiter is None:
        return
    if not isinstance(delimiter, str) or len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n\0':
        raise ValueError(
            f"{name} must be one character of ASCII that is not a quote or the end of a line, got {_short(delimiter)}"
        )


def _require(fine: object, what: str, got: Any) -> None:
    if not fine:
        raise ValueError(f"encoding: {what}, got {_short(got)}")


def _is_list(value: Any, kind: type) -> bool:
    return isinstance(value, list) and all(isinstance(item, kind) for item in value)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


# --- columns of Arrow ------------------------------------------------------------------------------------------------
def kind_of(type: Any) -> str:
    """What a column of an Arrow type is: a number, a category, empty, or else the type's own name."""
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


def as_text(column: Any) -> Any:
    """A column of categories (text, a dictionary, booleans) as text."""
    from pyarrow import compute, types

    if types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if types.is_boolean(column.type):
        return compute.if_else(column, "True", "False")
    return column if types.is_string(column.type) else column.cast(import_arrow().string())


def numbers_of(batch: Any, dtype: Any) -> NDArray[Any]:
    """The columns of a batch as an array with one row per column; NaN for missing numbers."""
    arrow = import_arrow()
    wanted = arrow.from_numpy_dtype(dtype)
    arrays = [c if c.type == wanted else c.cast(wanted, safe=False) for c in batch.columns]
    if not batch.num_rows:
        return np.empty((len(arrays), 0), dtype)
    same = arrow.RecordBatch.from_arrays(arrays, names=batch.schema.names)
    return np.asarray(same.to_tensor(null_to_nan=True, row_major=False)).T


def describe_bad_number(value: float, name: str, reader: TableReader, row: int, *, target: bool = False) -> str:
    """The message about a number that is missing or infinite, with its place in the file."""
    place = f"in {reader.place(row)}, column {name!r}{' (the target)' * target}"
    if not np.isnan(value):
        return f"{reader.name}: the value {place} is {value}: numbers must be finite"
    remedy = "; missing='mean' or missing='zero' imputes it, drop leaves the column out"
    return f"{reader.name}: the value {place} is missing{'' if target else remedy}"


# --- rows ------------------------------------------------------------------------------------------------------------
class TableRows:
    """The rows of a table in one or more files, with encoded columns; if `lenient`, missing categories become zeros."""

    def __init__(self, readers: list[TableReader], columns: tuple[Column, ...], lenient: bool, rows: int) -> None:
        self.readers, self.columns, self.lenient = readers, columns, lenient
        self.shape = (rows, sum(column.width for column in columns))
        self.names = [name for column in columns for name in column.names]
        twice = repeated(self.names)
        if twice is not None:
            raise ValueError(
                f"{readers[0].name}: two columns would be called {twice!r}, one of them a category; rename one in the "
                "file, or leave it out with drop"
            )
        self.dtype = np.dtype(np.float32 if all(map(self._is_single_precision, columns)) else np.float64)
        self.starts = np.concatenate([[0], np.cumsum([column.width for column in columns])])

    def _is_single_precision(self, column: Column) -> bool:
        from pyarrow import types

        if column.levels is not None:
            return False
        found = [reader.types[column.name] for reader in self.readers]
        return all(types.is_float16(type) or types.is_float32(type) for type in found)

    def blocks(self, wanted: NDArray[np.int64] | None, room: int) -> Iterator[NDArray[Any]]:
        """Blocks of the wanted columns.  Batches are larger than blocks: every column of a batch has a fixed cost.

        `room` is the maximum number of bytes of a block.
        """
        plan = _Plan(self, np.arange(self.shape[1]) if wanted is None else np.asarray(wanted))
        row_bytes = self.dtype.itemsize * plan.width
        rows = min(self.shape[0], max(1, min(BLOCK, room) // row_bytes))
        batch_rows = max(rows, BATCHES * room // row_bytes)
        buffers: list[NDArray[Any]] = []
        turn, high = 0, 0
        for reader in self.readers:
            reader.check_unchanged()
            row = 0
            for _, batch in read_ahead(
                reader.batches(plan.sources, batch_rows)
            ):  # decodes the next one at the same time
                low = 0
                while low < batch.num_rows:
                    if len(buffers) <= turn % TURNS:
                        buffers.append(np.empty((rows, plan.width), self.dtype))
                    block = buffers[turn % TURNS]
                    piece = batch.slice(low, rows - high)
                    plan.write(piece, block[high : high + piece.num_rows], reader, row + low)
                    low, high = low + piece.num_rows, high + piece.num_rows
                    if high == rows:
                        yield block
                        turn, high = turn + 1, 0
                row += batch.num_rows
            reader.check_unchanged()
        if high:
            yield buffers[turn % TURNS][:high]


class _Plan:
    """Which columns of the files are needed for the wanted columns, and where their numbers go in a block."""

    def __init__(self, table: TableRows, wanted: NDArray[np.int64]) -> None:
        self._dtype, self._lenient, self.width = table.dtype, table.lenient, wanted.size
        home = np.searchsorted(table.starts, wanted, side="right") - 1
        self._numbers: list[str] = []
        self._texts: list[tuple[str, Any, NDArray[np.int64], NDArray[np.int64]]] = []
        place, fill = [], []
        for at in np.unique(home):
            column, to = table.columns[at], np.flatnonzero(home == at)
            if column.levels is None:
                self._numbers.append(column.name)
                place.append(int(to[0]))
                fill.append(np.nan if column.fill is None else column.fill)
            else:
                level_to = np.full(column.width, -1)  # the position of each level's column; -1: not wanted
                level_to[wanted[to] - table.starts[at]] = to
                self._texts.append((column.name, import_arrow().array(column.levels), level_to, to))
        self._place, self._fill = np.array(place, dtype=np.uint64), np.array(fill, dtype=self._dtype)
        self.sources = self._numbers + [name for name, *_ in self._texts]

    def write(self, batch: Any, out: NDArray[Any], reader: TableReader, row: int) -> None:
        """Write a batch, whose first row is number `row` of the file, into rows of a block."""
        from pyarrow import compute

        if self._numbers:
            columns = numbers_of(batch.select(self._numbers), self._dtype)
            if not all_finite(columns.reshape(-1)):
                columns = self._filled(columns, reader, row)
            spread(columns, self._place, out)
        for name, levels, level_to, to in self._texts:
            column = batch.column(name)
            if column.null_count and not self._lenient:
                absent = int(np.flatnonzero(np.asarray(column.is_null()))[0])
                raise ValueError(describe_bad_number(np.nan, name, reader, row + absent))
            codes = np.asarray(compute.index_in(as_text(column), value_set=levels).fill_null(-1)).astype(np.int64)
            out[:, to] = 0
            at = np.where(codes >= 0, level_to[codes], -1)
            rows = np.flatnonzero(at >= 0)
            out[rows, at[rows]] = 1

    def _filled(self, columns: NDArray[Any], reader: TableReader, row: int) -> NDArray[Any]:
        columns = np.where(np.isnan(columns), self._fill[:, None], columns)
        bad = np.argwhere(~np.isfinite(columns).T)
        if bad.size:
            at, j = (int(i) for i in bad[0])
            raise ValueError(describe_bad_number(columns[j, at], self._numbers[j], reader, row + at))
        return np.ascontiguousarray(columns)


@kernel(fastmath=SUMS)
def all_finite(numbers: Any) -> bool:
    """Whether no number of a vector is NaN or infinite."""
    zero = rest = numbers.dtype.type(0)
    for i in range(np.uint64(numbers.size)):
        rest += zero * numbers[i]  # NaN unless the number is finite
    return rest == 0


@kernel
def spread(columns: Any, place: Any, out: Any) -> None:
    """Write columns (each one row of the array) to the columns `place` (unsigned integers) of `out`.

    Eight numbers of a column are one cache line, so they are read together; the cache lines of eight rows of `out`
    stay in the cache until all columns are written.
    """
    width, n = columns.shape
    whole = n - n % 8
    for low in range(0, whole, 8):
        for j in range(width):
            line, to = columns[j, low : low + 8], place[j]
            for i in range(8):
                out[low + i, to] = line[i]
    for i in range(whole, n):
        for j in range(width):
            out[i, place[j]] = columns[j, i]
