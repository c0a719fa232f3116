"""A part of a table that was parsed once: its batches come from a spool."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ._encoding import CATEGORY
from ._inputs import import_arrow, reading
from ._parts import Part, cut, kind_of
from ._spool import Spool


class SpooledPart(Part):
    """The batches of a part, as they were read once.

    Columns are read a group at a time, so that not all of them are being decoded together: a page of each of
    thousands of columns would not fit.

    Parameters
    ----------
    part : Part
    groups : list of lists of str
        The columns.
    size : int
        Rows of a batch.
    """

    def __init__(self, part: Part, groups: list[list[str]], size: int, spool: Spool) -> None:
        super().__init__(part.file)
        self._part, self._spool, self._groups, self.notes = part, spool, groups, part.notes
        self.types, self.rows = {}, 0
        self._pieces: list[list[int]] = []  # of a group, by the number of the batch
        self._schemas: list[Any] = []
        heights: list[list[int]] = []
        part.check_same()
        for group in groups:
            pieces, height, schema = [], [], None
            for batch in part.batches(group, size):
                batch = plain(batch)
                schema = batch.schema
                pieces.append(len(spool))
                height.append(batch.num_rows)
                spool.append(np.frombuffer(batch.serialize(), np.uint8))
            self._pieces.append(pieces)
            self._schemas.append(schema)
            heights.append(height)
            self.types |= {} if schema is None else dict(zip(schema.names, schema.types, strict=True))
        part.check_same()
        with reading(self.name):
            if any(height != heights[0] for height in heights):
                raise ValueError("its columns differ in their number of rows")
        self.rows = sum(heights[0])

    def batches(self, columns: list[str], size: int) -> Iterator[Any]:
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

    def check_same(self) -> None:
        """The file is not read again: it may change."""

    def place(self, row: int) -> str:
        return self._part.place(row)


def plain(batch: Any) -> Any:
    """A batch without dictionaries, which are not a part of a batch when it is written."""
    arrow = import_arrow()
    arrays = [as_text(column) if kind_of(column.type) == CATEGORY else column for column in batch.columns]
    return arrow.RecordBatch.from_arrays(arrays, names=batch.schema.names)


def as_text(column: Any) -> Any:
    """A column of categories as text."""
    arrow = import_arrow()
    from pyarrow import compute, types

    if types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if types.is_boolean(column.type):
        return compute.if_else(column, "True", "False")
    return column if types.is_string(column.type) else column.cast(arrow.string())
