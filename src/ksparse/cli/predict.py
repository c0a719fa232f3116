"""``ksparse predict`` and ``ksparse info``: what a saved model predicts, and what it contains."""

from __future__ import annotations

import csv
import io
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

from . import fit as opt
from .session import (
    check_outputs,
    errors_about_fit,
    json_text,
    need_packages,
    one_line,
    say,
    session,
    show,
    standard_output,
)  # fmt: skip

if TYPE_CHECKING:
    from numpy.typing import NDArray

SHOWN = 60  # characters of a list in the table of `info`
NOT_IN_TABLE = ("features", "intercepts", "encoding", "positive_class")
ENDINGS = (".csv", ".parquet", ".npy")
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet may take a text that begins with one of these for a formula
NUMBER = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")
Write = Callable[["NDArray[Any]"], None]


def predict(
    model: opt.ModelFile,
    data: opt.Data,
    out: Annotated[
        str, opt.of_output("Where predictions go: .csv, .parquet or .npy; - is CSV on the standard output.", "FILE")
    ] = "-",
    proba: Annotated[bool, opt.of_output("Probabilities, one column per class.", None, "--proba")] = False,
    safe_csv: Annotated[
        bool,
        opt.of_output("For spreadsheets: an apostrophe before labels that begin with = + - @, a tab or a carriage "
                      "return and are not numbers.", None, "--safe-csv"),
    ] = False,
    format: opt.Format = None,
    memory: opt.Memory = "1GB",
    cache: opt.Cache = None,
    as_json: opt.Json = False,
    quiet: opt.Quiet = False,
) -> None:  # fmt: skip
    """Predict the rows of DATA, in their order; if the target is among the columns, print the score too.

    Rows are read in blocks, and only the columns that the model uses are needed.
    """
    with session(not quiet) as work:
        from ..estimators import load
        from .saved import Judge, open_like, output_names, predictions

        file = check_outputs([data, model], out=None if out == "-" else out).get("out")
        if file is not None:
            check_ending(file, safe_csv)
        elif as_json:
            raise ValueError("--json prints what was done, so predictions need a file; add --out FILE")
        else:
            work.kept = lambda: "the predictions are not complete"
        size = opt.memory_size(memory)
        loaded = load(model)
        if proba and getattr(loaded, "loss", None) != "logistic":
            raise ValueError(f"--proba is for models with the logistic loss, this one has {loaded.loss!r}")
        with work.progress(), errors_about_fit():
            work.begin(f"reading {data}")
            reader = open_like(loaded, model, data, format=format, memory=size, cache=opt.cache_in(cache))
            source = reader.source
            for note in source.notes:
                work.note(note)
            judge = Judge(loaded, source.y, work)
            names = [str(c) for c in loaded.classes_] if proba else output_names(loaded)
            with prediction_writer(file, names, source.shape[0], safe_csv) as write:
                for values in predictions(reader, proba, judge, work):
                    write(values)
        score = judge.score()
        if as_json:
            done = {"model": model, "data": data, "rows": source.shape[0], "score": score or None}
            show(json_text({**done, "files": {"out": out}, **work.facts()}))
        elif not quiet:
            if score:
                scores = ", ".join(f"{name} {value:.6g}" for name, value in score.items())
                print(f"{scores} on {source.shape[0]:,} rows", file=sys.stderr)
            if file is not None:
                print(f"written: {out}", file=sys.stderr)


def info(model: opt.ModelFile, as_json: opt.Json = False) -> None:
    """Show what a model contains: its features, its settings, and the columns that it needs to predict."""
    with session(False):
        from .._text import table
        from ..estimators import load
        from .models import summary_text
        from .saved import check_encoding_of, summary_of

        loaded = load(model)
        check_encoding_of(loaded, model)
        summary = summary_of(loaded)
        facts = _facts(loaded, summary)
        if as_json:
            show(json_text(facts))
            return
        lines = [(name.replace("_", " "), one_line(_short(facts[name]))) for name in facts if name not in NOT_IN_TABLE]
        settings = table([line for line in lines if line[1]], 2)
        say("\n".join(line.rstrip() for line in settings.splitlines()))
        say(f"\n{summary_text(summary)}")


def _facts(model: Any, summary: Any) -> dict[str, Any]:
    """A saved model for JSON."""
    from ..estimators.store import VERSION
    from .models import feature_rows
    from .saved import needed_columns

    encoding = getattr(model, "encoding_", None)
    return {
        "class": type(model).__name__,
        "loss": model.loss,
        "k": model.k,
        "columns": model.n_features_in_,
        "target": getattr(model, "target_", None),
        "classes": model.classes_.tolist() if hasattr(model, "classes_") else None,
        "positive_class": summary.positive,
        "l2": model.l2,
        "positive": model.positive,
        "fit_intercept": model.fit_intercept,
        "standardize": model.standardize,
        "objective": model.objective_,
        "reads": _reads(encoding),
        "needs": needed_columns(model),
        "encoding": encoding,
        "features": feature_rows(summary),
        "intercepts": summary.intercepts,
        "version": VERSION,
    }


def _reads(encoding: dict[str, Any] | None) -> str | None:
    """The kind of files that the model was made from."""
    if encoding is None:
        return None
    if encoding.get("kind") == "libsvm":
        return f"LIBSVM, columns from {0 if encoding.get('zero_based') else 1}"
    if encoding.get("kind") == "array":
        return "NumPy's .npy or .npz"
    return f"tables; missing values: {encoding.get('missing')}"


def _short(value: Any) -> str:
    """A value as a cell of the table; empty if there is none."""
    if value is None:
        return ""
    if isinstance(value, list):
        text = ", ".join(map(str, value))
        return text if len(text) <= SHOWN else f"{text[:SHOWN]}... ({len(value)} in all)"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


# --- the file of predictions -----------------------------------------------------------------------------------------
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
    from .._text import whole_file

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
