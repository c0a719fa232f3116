"""Predictions as they come, block by block: CSV, Parquet or .npy."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from .._files import whole_file
from . import standard_output

ENDS = (".csv", ".parquet", ".npy")
Write = Callable[[NDArray[Any]], None]


def check_end(file: Path) -> None:
    """Refuse names that do not say the format, and formats that need a package that is not there."""
    if file.suffix.lower() not in ENDS:
        raise ValueError(
            f"--out must end in {', '.join(ENDS)}, or be - for CSV on the standard output, got {file.name!r}"
        )
    if file.suffix.lower() == ".parquet":
        from importlib.util import find_spec

        if find_spec("pyarrow") is None:
            raise ImportError("Parquet needs pyarrow; pip install 'ksparse[files]' brings it")


@contextmanager
def writing(file: Path | None, names: list[str], rows: int) -> Iterator[Write]:
    """A function that takes the predictions of the next rows, (rows,) or (rows, names); to stdout without a file.

    The file appears when all rows are written.
    """
    if file is None:
        into = _csv_into(sys.stdout.buffer, names)

        def write(values: NDArray[Any]) -> None:
            with standard_output():
                into(values)

        yield write
        with standard_output():
            sys.stdout.buffer.flush()
        return
    make = {".csv": _csv, ".parquet": _parquet, ".npy": _npy}[file.suffix.lower()]
    with whole_file(file) as spare, make(spare, names, rows) as write_rows:
        yield write_rows


@contextmanager
def _csv(file: Path, names: list[str], rows: int) -> Iterator[Write]:
    with open(file, "wb") as stream:
        yield _csv_into(stream, names)


def _csv_into(stream: Any, names: list[str]) -> Write:
    """Numbers are written such that they are read again as the very same."""
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(names)

    def write(values: NDArray[Any]) -> None:
        lines.writerows(values.reshape(len(values), -1).tolist())
        content = memoryview(text.getvalue().encode())
        while content:  # an unbuffered standard output may take less than it is given
            content = content[stream.write(content) :]
        text.seek(0)
        text.truncate()

    return write


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
