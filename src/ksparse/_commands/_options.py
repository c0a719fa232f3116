"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Annotated

import typer


class Loss(str, Enum):
    squared = "squared"
    logistic = "logistic"
    poisson = "poisson"
    huber = "huber"
    squared_hinge = "squared_hinge"


class Missing(str, Enum):
    error = "error"
    mean = "mean"
    zero = "zero"


READING, MODEL, OUTPUT = "Reading", "The model", "What comes out"
MANY = 10_000  # models a path may have

Data = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="A file or a folder of files: Parquet, Arrow, CSV, TSV, LIBSVM (text also .gz, .bz2), .npy or .npz; - is "
        "a pipe.",
    ),
]
Target = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="The column to predict, the last by default; LIBSVM files have their own.",
        rich_help_panel=READING,
    ),
]
Columns = Annotated[
    str | None,
    typer.Option(metavar="A,B", help="Use these columns only; all by default.", rich_help_panel=READING),
]
Drop = Annotated[str | None, typer.Option(metavar="A,B", help="Leave these columns out.", rich_help_panel=READING)]
MissingValues = Annotated[
    Missing,
    typer.Option(
        help="Missing values: an error that names the place, the column's mean instead, or zero.",
        rich_help_panel=READING,
    ),
]
Categories = Annotated[
    str | None,
    typer.Option(
        metavar="A,B", help="Columns of numbers that are categories; those of text always are.", rich_help_panel=READING
    ),
]
NotThere = Annotated[
    str | None,
    typer.Option("--na", metavar="?,none", help="More texts that mean a missing value.", rich_help_panel=READING),
]
Delimiter = Annotated[
    str | None,
    typer.Option(
        metavar="CHARACTER", help="Between the fields of a CSV file; the comma by default.", rich_help_panel=READING
    ),
]
Weights = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="A column with a weight a row; it is no feature.", rich_help_panel=READING),
]
Format = Annotated[
    str | None,
    typer.Option(
        help="csv, tsv, parquet, arrow, libsvm, npy or npz; by the name's end by default.", rich_help_panel=READING
    ),
]
Memory = Annotated[
    str,
    typer.Option(
        metavar="SIZE",
        help="What work on the data may take, such as 500MB or 4GB. Data of up to a third of it are held in memory, "
        "larger ones are read again in every pass.",
        rich_help_panel=READING,
    ),
]
Cache = Annotated[
    str | None,
    typer.Option(
        metavar="FOLDER|no",
        help="Where parsed text (CSV, LIBSVM) that does not fit the memory is kept meanwhile, the folder for temporary "
        "files by default; no: it is parsed in every pass.",
        rich_help_panel=READING,
    ),
]
LossOption = Annotated[
    Loss | None,
    typer.Option(
        help="By default logistic for a target of texts (a class each) and squared for numbers.",
        rich_help_panel=MODEL,
    ),
]
Ridge = Annotated[
    str,
    typer.Option(metavar="auto|NUMBER", help="The weight of the ridge on scaled columns.", rich_help_panel=MODEL),
]
Keep = Annotated[
    str | None,
    typer.Option(metavar="A,B", help="Columns in every model, beside the k.", rich_help_panel=MODEL),
]
Positive = Annotated[bool, typer.Option("--positive", help="No negative coefficients.", rich_help_panel=MODEL)]
SolverName = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="auto (exchange; pgd with --positive), ht-svrg, ht-saga, stoiht, iht, pgd, exchange, grasp, grahtp; for "
        "the squared loss also niht, htp, cosamp, sp, omp, romp, ompr.",
        rich_help_panel=MODEL,
    ),
]
Steps = Annotated[
    int | None,
    typer.Option("--m", metavar="STEPS", help="Steps a stage, for ht-svrg; 3 a row, or what the memory holds, by "
        "default.", rich_help_panel=MODEL),
]  # fmt: skip
MaxTime = Annotated[
    float | None,
    typer.Option(metavar="SECONDS", help="For each fit; its best model so far is then taken.", rich_help_panel=MODEL),
]
Seed = Annotated[int, typer.Option(help="The same seed gives the same model.", rich_help_panel=MODEL)]
Checkpoint = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="Keep every finished stage here; after a kill the same command goes on from it. Removed at the end.",
        rich_help_panel=OUTPUT,
    ),
]
HeldOut = Annotated[
    float,
    typer.Option(
        metavar="SHARE",
        help="Rows that a second fit for the report leaves out, to be judged by; 0 for none.",
        rich_help_panel=OUTPUT,
    ),
]
Report = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="Write a page about the fit (HTML).", rich_help_panel=OUTPUT),
]
Json = Annotated[
    bool,
    typer.Option("--json", help="Print one JSON object instead of tables.", rich_help_panel=OUTPUT),
]
Quiet = Annotated[
    bool,
    typer.Option("--quiet", "-q", help="No progress; notes and errors only.", rich_help_panel=OUTPUT),
]


def names(text: str | None, option: str) -> list[str] | None:
    """The names of 'a,b,c'; quotes around one with a comma in it, as in CSV.

    >>> names('age,"weight, kg"', "--columns")
    ['age', 'weight, kg']
    """
    if text is None:
        return None
    import csv

    try:
        found = [name.strip() for name in next(csv.reader([text], skipinitialspace=True), [])]
    except csv.Error:  # of two lines, or longer than its limit
        found = []
    if not found or not all(found):
        what = "texts such as ?,none" if option == "--na" else "names of columns such as a,b"
        raise ValueError(f"{option} must be {what}, got {text[:60]!r}{'...' * (len(text) > 60)}")
    return found


def counts(text: str | None, option: str) -> list[int] | None:
    """The whole numbers of '1:20', '10:100:10' (with the end) or '1,2,5'.

    >>> counts("1:4", "--ks"), counts("10:30:10", "--ks"), counts("1,5", "--ks")
    ([1, 2, 3, 4], [10, 20, 30], [1, 5])
    """
    if text is None:
        return None
    try:
        if ":" in text:
            start, end, step = ([int(part) for part in text.split(":")] + [1])[: 3 + text.count(":") // 3]
            found: Sequence[int] = range(start, end + 1, step)
        else:
            found = [int(part) for part in text.split(",")]
        if not 0 < len(found) <= MANY or min(found) < 1:
            raise ValueError
    except (ValueError, OverflowError):
        raise ValueError(f"{option} must be whole numbers from 1 on, such as 1:20 or 1,2,5, got {text!r}") from None
    return sorted(set(found))


def memory_size(text: str) -> str:
    """--memory, refused before any data are read."""
    from ..sources.memory import check_memory

    try:
        check_memory(text)
    except OverflowError:
        raise ValueError(f"--memory must be a size such as 500MB or 4GB, got {text[:20]}...") from None
    return text


def cache_in(folder: str | None) -> bool | str:
    """--cache as sources take it."""
    return folder != "no" if folder in (None, "no") else str(folder)


def ridge(text: str) -> float | str:
    """--l2: a number, or "auto"."""
    if text == "auto":
        return text
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"--l2 must be 'auto' or a number, got {text!r}") from None
