"""Rows of a table: batches of columns become blocks of rows, text becomes numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..design.blocks import BLOCK, read_ahead
from ._encoding import Column
from ._inputs import import_arrow
from ._parts import Part
from ._plain import TURNS
from ._spooled import as_text
from ._transpose import all_finite, spread

BATCHES = 2  # rooms that a batch of the files takes


class Table:
    """The rows of some parts, with their columns encoded.

    Parameters
    ----------
    parts : list of Part
    columns : list of Column
    lenient : bool
        Whether a missing category is a row of zeros.
    """

    def __init__(self, parts: list[Part], columns: tuple[Column, ...], lenient: bool, rows: int) -> None:
        self._parts, self._columns, self._lenient = parts, columns, lenient
        self.shape = (rows, sum(column.width for column in columns))
        self.names = [name for column in columns for name in column.names]
        if len(set(self.names)) < len(self.names):
            twice = next(name for name in self.names if self.names.count(name) > 1)
            raise ValueError(
                f"{parts[0].name}: two columns would be called {twice!r}, one of them a category; rename one in the "
                "file, or leave it out with drop"
            )
        self.dtype = np.dtype(np.float32 if all(map(self._is_narrow, columns)) else np.float64)
        self._starts = np.concatenate([[0], np.cumsum([column.width for column in columns])])

    def _is_narrow(self, column: Column) -> bool:
        from pyarrow import types

        if column.levels is not None:
            return False
        found = [part.types[column.name] for part in self._parts]
        return all(types.is_float16(type) or types.is_float32(type) for type in found)

    def blocks(self, wanted: NDArray[np.int64] | None, room: int) -> Iterator[NDArray[Any]]:
        """Blocks of the wanted columns, from batches of `room` bytes: a batch costs a column, whatever its rows."""
        plan = _Plan(self, np.arange(self.shape[1]) if wanted is None else np.asarray(wanted))
        each = self.dtype.itemsize * plan.width
        rows = min(self.shape[0], max(1, min(BLOCK, room) // each))
        batch_rows = max(rows, BATCHES * room // each)
        buffers: list[NDArray[Any]] = []
        turn, high = 0, 0
        for part in self._parts:
            part.check_same()
            row = 0
            for _, batch in read_ahead(part.batches(plan.sources, batch_rows)):  # decoded while this one is turned
                low = 0
                while low < batch.num_rows:
                    if len(buffers) <= turn % TURNS:
                        buffers.append(np.empty((rows, plan.width), self.dtype))
                    block = buffers[turn % TURNS]
                    piece = batch.slice(low, rows - high)
                    plan.put(piece, block[high : high + piece.num_rows], part, row + low)
                    low, high = low + piece.num_rows, high + piece.num_rows
                    if high == rows:
                        yield block
                        turn, high = turn + 1, 0
                row += batch.num_rows
            part.check_same()
        if high:
            yield buffers[turn % TURNS][:high]


class _Plan:
    """Which columns of the files are needed for some of ours, and where their numbers go."""

    def __init__(self, table: Table, wanted: NDArray[np.int64]) -> None:
        self._dtype, self._lenient, self.width = table.dtype, table._lenient, wanted.size
        home = np.searchsorted(table._starts, wanted, side="right") - 1
        self._numbers: list[str] = []
        self._texts: list[tuple[str, Any, NDArray[np.int64], NDArray[np.int64]]] = []
        place, fill = [], []
        for at in np.unique(home):
            column, to = table._columns[at], np.flatnonzero(home == at)
            if column.levels is None:
                self._numbers.append(column.name)
                place.append(int(to[0]))
                fill.append(np.nan if column.fill is None else column.fill)
            else:
                spot = np.full(column.width, -1)  # of a level, among the columns of this one that are wanted
                spot[wanted[to] - table._starts[at]] = to
                self._texts.append((column.name, import_arrow().array(column.levels), spot, to))
        self._place, self._fill = np.array(place, dtype=np.uint64), np.array(fill, dtype=self._dtype)
        self.sources = self._numbers + [name for name, *_ in self._texts]

    def put(self, batch: Any, out: NDArray[Any], part: Part, row: int) -> None:
        """Write a batch into the rows of a block."""
        if self._numbers:
            columns = numbers_of(batch.select(self._numbers), self._dtype)
            if not all_finite(columns.reshape(-1)):
                columns = self._filled(columns, part, row)
            spread(columns, self._place, out)
        for name, levels, spot, to in self._texts:
            codes = codes_of(batch.column(name), levels)
            if not self._lenient:
                refuse_missing(batch.column(name), name, part, row)
            out[:, to] = 0  # `to` is a run of neighbours or a few of them
            at = np.where(codes >= 0, spot[codes], -1)
            rows = np.flatnonzero(at >= 0)
            out[rows, at[rows]] = 1

    def _filled(self, columns: NDArray[Any], part: Part, row: int) -> NDArray[Any]:
        columns = np.where(np.isnan(columns), self._fill[:, None], columns)
        bad = np.argwhere(~np.isfinite(columns).T)
        if bad.size:
            at, j = (int(i) for i in bad[0])
            refuse_number(columns[j, at], self._numbers[j], part, row + at)
        return np.ascontiguousarray(columns)


def numbers_of(batch: Any, dtype: Any) -> NDArray[Any]:
    """Columns of numbers as an array with a row for each; NaN for what is missing."""
    arrow = import_arrow()
    wanted = arrow.from_numpy_dtype(dtype)
    arrays = [c if c.type == wanted else c.cast(wanted, safe=False) for c in batch.columns]
    if not batch.num_rows:
        return np.empty((len(arrays), 0), dtype)
    same = arrow.RecordBatch.from_arrays(arrays, names=batch.schema.names)
    return np.asarray(same.to_tensor(null_to_nan=True, row_major=False)).T


def codes_of(column: Any, levels: Any) -> NDArray[np.int64]:
    """The number of each value's level, -1 for those that are none."""
    from pyarrow import compute

    found = compute.index_in(as_text(column), value_set=levels)
    return np.asarray(found.fill_null(-1)).astype(np.int64)


def refuse_missing(column: Any, name: str, part: Part, row: int) -> None:
    """Name the first value of a column that is not there."""
    if column.null_count:
        refuse_number(np.nan, name, part, row + int(np.flatnonzero(np.asarray(column.is_null()))[0]))


def refuse_number(value: Any, name: str, part: Part, row: int) -> None:
    raise ValueError(number_trouble(value, name, part, row))


def number_trouble(value: Any, name: str, part: Part, row: int, *, target: bool = False) -> str:
    """Where a number is missing or infinite, in words."""
    place = f"in {part.place(row)}, column {name!r}{' (the target)' * target}"
    if not np.isnan(value):
        return f"{part.name}: the value {place} is {value}: numbers must be finite"
    remedy = "; missing='mean' or missing='zero' imputes it, drop leaves the column out"
    return f"{part.name}: the value {place} is missing{'' if target else remedy}"
