"""What leaves a command: text on the standard output, files that are complete or absent, tables of predictions.

Everything is checked before the work begins, so that a long fit does not end with a file that cannot be written.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from .._files import disk_is_full, whole_file

if TYPE_CHECKING:
    from numpy.typing import NDArray

ENDINGS = (".csv", ".parquet", ".npy")
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet may take a text that begins with one of these for a formula
NUMBER = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")
Write = Callable[["NDArray[Any]"], None]


# --- the standard output ---------------------------------------------------------------------------------------------
@contextmanager
def standard_output() -> Iterator[None]:
    """Around writes to the standard output: an error names it, and Python does not try to write again when it ends."""
    try:
        yield
    except BrokenPipeError:  # the reader has gone: typer ends quietly
        raise
    except OSError as error:
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise OSError(error.errno, error.strerror, error.filename or "the standard output") from None


def show(text: str) -> None:
    """Print and flush, so that a failure is known while the command can still say what it means."""
    with standard_output():
        print(text, flush=True)


def say(text: str) -> None:
    """Print text that contains names from files, whatever characters the terminal knows."""
    if hasattr(sys.stdout, "reconfigure"):
        with standard_output():  # `reconfigure` flushes
            sys.stdout.reconfigure(errors="backslashreplace")
    show(printable(text))


def json_text(facts: Any) -> str:
    """One JSON object as text; infinity and NaN become null."""
    from .._text import jsonable

    return json.dumps(jsonable(facts), indent=2)


def printable(text: str) -> str:
    """The text with control characters escaped: names come from untrusted files and could command a terminal.

    >>> printable("a\\x1b[2Jb")
    'a\\\\x1b[2Jb'
    """
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)


def one_line(name: str) -> str:
    """A name as a cell of a table.

    >>> print(one_line("a\\nb"))
    a\\nb
    """
    return printable(name).replace("\n", "\\n")


# --- files -----------------------------------------------------------------------------------------------------------
def check_outputs(inputs: list[str], **paths: str | None) -> dict[str, Path]:
    """The paths of the options that are given, with links followed.

    Refused are folders, files in folders that do not exist, files without permission to write, one file for two
    options, and files that the command reads.
    """
    found: dict[str, Path] = {}
    for option, given in paths.items():
        if given is None:
            continue
        name = f"--{option.replace('_', '-')}"
        path = Path(os.path.realpath(given))
        if given in ("", "-") or path.is_dir() or given.endswith(os.sep):
            raise ValueError(f"{name} must be a file, got {given!r}{', which is a folder' * path.is_dir()}")
        if problem := _cannot_be_written(path):
            raise ValueError(f"{name} {given!r} cannot be written: {problem}")
        try:
            tempfile.TemporaryFile(dir=path.parent).close()
        except OSError as error:
            if disk_is_full(error):
                raise OSError(error.errno, error.strerror, given) from None
            raise ValueError(f"{name} {given!r} cannot be written: {(error.strerror or str(error)).lower()}") from None
        for other, taken in found.items():
            if taken == path:
                raise ValueError(f"{name} and --{other} are the same file, {given!r}; give each its own")
        for source in inputs:
            if source != "-" and _belongs(path, Path(os.path.realpath(source))):
                raise ValueError(f"{name} {given!r} would be written over what is read, {source!r}; take another name")
        found[option] = path
    return found


def _cannot_be_written(path: Path) -> str:
    """Why not; empty if it seems possible."""
    if not path.parent.is_dir():
        return f"the folder {str(path.parent)!r} is not there"
    if not path.exists():
        return ""
    return "it is no plain file" if not path.is_file() else "" if os.access(path, os.W_OK) else "permission denied"


def _belongs(path: Path, source: Path) -> bool:
    return path == source or source in path.parents or (path.exists() and source.exists() and path.samefile(source))


def need_packages(option: str, extra: str, *packages: str) -> None:
    """Refuse an option whose packages are not installed."""
    from importlib.util import find_spec

    for package in packages:
        if find_spec(package) is None:
            raise ImportError(f"{option} needs {package}; pip install 'ksparse[{extra}]' brings it")


# --- predictions -----------------------------------------------------------------------------------------------------
def check_ending(file: Path, safe: bool) -> None:
    """Refuse a name that does not tell the format, and a format whose package is not installed."""
    ending = file.suffix.lower()
    if ending not in ENDINGS:
        known = ", ".join(ENDINGS)
        raise ValueError(f"--out must end in {known}, or be - for CSV on the standard output, got {file.name!r}")
    if safe and ending != ".csv":
        raise ValueError(f"--safe-csv is for CSV, got --out {file.name!r}; leave it out")
    if ending == ".parquet":
        need_packages("Parquet", "files", "pyarrow")


@contextmanager
def prediction_writer(file: Path | None, names: list[str], rows: int, safe: bool) -> Iterator[Write]:
    """A function that writes the predictions of the next rows, of shape (rows,) or (rows, names).

    The file appears when all rows are written; without one, CSV goes to the standard output.  With `safe`, no text of
    a CSV file is a formula to a spreadsheet.
    """
    if file is None:
        write_csv = _csv_writer(sys.stdout.buffer, names, safe)

        def write(values: NDArray[Any]) -> None:
            with standard_output():
                write_csv(values)

        yield write
        with standard_output():
            sys.stdout.buffer.flush()
        return
    with whole_file(file) as spare, open(spare, "wb") as stream, ExitStack() as at_the_end:
        if file.suffix.lower() == ".csv":
            yield _csv_writer(stream, names, safe)
        elif file.suffix.lower() == ".npy":
            yield _npy_writer(stream, rows)
        else:
            yield _parquet_writer(stream, names, at_the_end)


def _csv_writer(stream: IO[bytes], names: list[str], safe: bool) -> Write:
    """Numbers are written with all their digits: reading them again gives the same numbers."""
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    quoted = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL)

    def put(row: list[Any]) -> None:
        """A row that may contain texts; older Pythons do not quote a carriage return, which would end the row."""
        row = [no_formula(cell) for cell in row] if safe else row
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


def no_formula(value: Any) -> Any:
    """A cell that no spreadsheet takes for a formula: such texts get an apostrophe in front, numbers stay.

    >>> [no_formula(value) for value in ("=1+1", "@sum", "-cheap", "-1.5", "+2", -1.5, "a=b")]
    ["'=1+1", "'@sum", "'-cheap", '-1.5', '+2', -1.5, 'a=b']
    """
    risky = isinstance(value, str) and value.startswith(FORMULA) and not NUMBER.fullmatch(value)
    return f"'{value}" if risky else value


def _parquet_writer(stream: IO[bytes], names: list[str], at_the_end: ExitStack) -> Write:
    import pyarrow as pa
    from pyarrow import parquet

    writer: Any = None

    def write(values: NDArray[Any]) -> None:
        nonlocal writer
        columns = values.reshape(len(values), -1).T
        table = pa.table([pa.array(column.tolist()) for column in columns], names=names)
        writer = writer or at_the_end.enter_context(parquet.ParquetWriter(stream, table.schema))
        writer.write_table(table)

    return write


def _npy_writer(stream: IO[bytes], rows: int) -> Write:
    import numpy as np

    begun = False

    def write(values: NDArray[Any]) -> None:
        nonlocal begun
        if not begun:
            described = np.lib.format.header_data_from_array_1_0(values[:0])
            np.lib.format.write_array_header_1_0(stream, {**described, "shape": (rows, *values.shape[1:])})
            begun = True
        stream.write(np.ascontiguousarray(values).tobytes())

    return write
