"""Predictions as they come, block by block: CSV, Parquet or .npy."""

from __future__ import annotations

import csv
import functools
import io
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from .._files import whole_file
from . import standard_output

ENDS = (".csv", ".parquet", ".npy")
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # how a text begins that a spreadsheet may take for a formula
NUMBER = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")
Write = Callable[[NDArray[Any]], None]


def check_end(file: Path, safe: bool) -> None:
    """Refuse names that do not say the format, and formats that need a package that is not there."""
    if file.suffix.lower() not in ENDS:
        raise ValueError(
            f"--out must end in {', '.join(ENDS)}, or be - for CSV on the standard output, got {file.name!r}"
        )
    if safe and file.suffix.lower() != ".csv":
        raise ValueError(f"--safe-csv is for CSV, got --out {file.name!r}; leave it out")
    if file.suffix.lower() == ".parquet":
        from importlib.util import find_spec

        if find_spec("pyarrow") is None:
            raise ImportError("Parquet needs pyarrow; pip install 'ksparse[files]' brings it")


@contextmanager
def writing(file: Path | None, names: list[str], rows: int, safe: bool) -> Iterator[Write]:
    """A function that takes the predictions of the next rows, (rows,) or (rows, names); to stdout without a file.

    The file appears when all rows are written.  `safe`: no text of a CSV file is a formula to a spreadsheet.
    """
    if file is None:
        into = _csv_into(sys.stdout.buffer, names, safe)

        def write(values: NDArray[Any]) -> None:
            with standard_output():
                into(values)

        yield write
        with standard_output():
            sys.stdout.buffer.flush()
        return
    csv_file = functools.partial(_csv, safe=safe)
    make: Any = {".csv": csv_file, ".parquet": _parquet, ".npy": _npy}[file.suffix.lower()]
    with whole_file(file) as spare, make(spare, names, rows) as write_rows:
        yield write_rows


@contextmanager
def _csv(file: Path, names: list[str], rows: int, safe: bool) -> Iterator[Write]:
    with open(file, "wb") as stream:
        yield _csv_into(stream, names, safe)


def _csv_into(stream: Any, names: list[str], safe: bool) -> Write:
    """Numbers are written such that they are read again as the very same."""
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    quoted = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL)

    def put(row: list[Any]) -> None:
        """A row that may hold texts; older Pythons do not quote a carriage return, which would end the row."""
        row = [as_text(cell) for cell in row] if safe else row
        (quoted if any("\r" in str(cell) for cell in row) else lines).writerow(row)

    put(names)

    def write(values: NDArray[Any]) -> None:
        rows = values.reshape(len(values), -1).tolist()
        if values.dtype.kind in "fiub":
            lines.writerows(rows)
        else:
            for row in rows:
                put(row)
        content = memoryview(text.getvalue().encode())
        while content:  # an unbuffered standard output may take less than it is given
            content = content[stream.write(content) :]
        text.seek(0)
        text.truncate()

    return write


def as_text(value: Any) -> Any:
    """A cell that no spreadsheet takes for a formula: an apostrophe before such texts; numbers stay.

    >>> [as_text(value) for value in ("=1+1", "@sum", "-cheap", "-1.5", "+2", -1.5, "a=b")]
    ["'=1+1", "'@sum", "'-cheap", '-1.5', '+2', -1.5, 'a=b']
    """
    risky = isinstance(value, str) and value.startswith(FORMULA) and not NUMBER.fullmatch(value)
    return f"'{value}" if risky else value


@contextmanager
def _parquet(file: Path, names: list[str], rows: int) -> Iterator[Write]:
    import pyarrow as pa
    from pyarrow import parquet

    with open(file, "wb") as stream:
        writer: Any = None

        def write(values: NDArray[Any]) -> None:
            nonlocal writer
            columns = values.reshape(len(values), -1).T
            table = pa.table([pa.array(column.tolist()) for column in columns], names=names)
            writer = writer or parquet.ParquetWriter(stream, table.schema)
            writer.write_table(table)

        try:
            yield write
        finally:
            if writer is not None:
                writer.close()


@contextmanager
def _npy(file: Path, names: list[str], rows: int) -> Iterator[Write]:
    import numpy as np

    with open(file, "wb") as stream:
        begun = False

        def write(values: NDArray[Any]) -> None:
            nonlocal begun
            if not begun:
                described = np.lib.format.header_data_from_array_1_0(values[:0])
                np.lib.format.write_array_header_1_0(stream, {**described, "shape": (rows, *values.shape[1:])})
                begun = True
            stream.write(np.ascontiguousarray(values).tobytes())

        yield write
