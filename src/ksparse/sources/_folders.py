"""Columns that folders tell: the files of ``year=2020/kind=new`` all have that year and that kind.

Spark, Dask, Hive and pyarrow write tables so; a value stands in the folder's name instead of in every row.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from ._inputs import Input, import_arrow
from ._parts import Part

NUMBER = re.compile(r"[-+]?\d+(\.\d*)?([eE][-+]?\d+)?")


def types_told(files: list[Input], texts: tuple[str, ...]) -> dict[str, Any]:
    """Arrow's type of every column that folders tell: numbers if all values are, unless it is to be text."""
    arrow = import_arrow()
    found: dict[str, Any] = {}
    for name in dict.fromkeys(name for file in files for name in file.told):
        values = [value for file in files if (value := file.told.get(name)) is not None]
        if not values:
            found[name] = arrow.null()
        elif name in texts or not all(map(NUMBER.fullmatch, values)):
            found[name] = arrow.string()
        else:
            found[name] = arrow.float64()
    return found


class FolderPart(Part):
    """A part with the columns that its folders tell, before its own: the last column stays the last."""

    def __init__(self, part: Part, types: dict[str, Any]) -> None:
        super().__init__(part.file)
        self._part, self.notes, self.rows = part, part.notes, part.rows
        told = part.file.told
        for name in told:
            if name in part.types:
                raise ValueError(
                    f"{self.name} cannot be read: the column {name!r} is in the file and in the name of its folder; "
                    "rename one of them"
                )
        self._values = {
            name: float(value) if value is not None and types[name] == import_arrow().float64() else value
            for name, value in told.items()
        }
        self.types = {name: types[name] for name in told} | part.types

    def check_same(self) -> None:
        self._part.check_same()

    def settle(self, numbers: set[str]) -> None:
        self._part.settle(numbers - set(self._values))

    def place(self, row: int) -> str:
        return self._part.place(row)

    def bytes_a_column(self, columns: list[str], size: int) -> int:
        return self._part.bytes_a_column([name for name in columns if name not in self._values], size)

    def batches(self, columns: list[str], size: int) -> Iterator[Any]:
        arrow = import_arrow()
        inside = [name for name in columns if name not in self._values]
        for batch in self._part.batches(inside or list(self._part.types)[:1], size):
            arrays = [
                arrow.repeat(arrow.scalar(self._values[name], self.types[name]), batch.num_rows)
                if name in self._values
                else batch.column(name)
                for name in columns
            ]
            yield arrow.RecordBatch.from_arrays(arrays, names=columns)
