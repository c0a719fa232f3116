"""The options that commands share, and how their texts are read."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

READING, MODEL, OUTPUT = "Reading", "The model", "Output"  # the panels of the help, in their order
MANY = 10_000  # models that a path may have


def _option(panel: str, help: str, metavar: str | None = None, *flags: str) -> Any:
    return typer.Option(*flags, help=help, metavar=metavar, rich_help_panel=panel)


of_reading, of_model, of_output = (functools.partial(_option, panel) for panel in (READING, MODEL, OUTPUT))

Data = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="A file or a folder of files: Parquet, Arrow, CSV, TSV, LIBSVM (text also .gz, .bz2), .npy or .npz; "
        "- is a pipe.",
    ),
]
ModelFile = Annotated[str, typer.Argument(metavar="MODEL", help="A file that ksparse fit or model.save wrote.")]
Format = Annotated[
    str | None, of_reading("csv, tsv, parquet, arrow, libsvm, npy or npz; by default, the ending of the name tells.")
]
Memory = Annotated[
    str,
    of_reading("Memory for the work on the data, such as 500MB or 4GB. Data of up to a third of it are loaded, larger "
               "data are read again in every pass.", "SIZE"),
]  # fmt: skip
Cache = Annotated[
    str | None,
    of_reading("Folder for parsed text (CSV, LIBSVM) that does not fit the memory, by default that for temporary "
               "files; no: the text is parsed in every pass.", "FOLDER|no"),
]  # fmt: skip
Json = Annotated[bool, of_output("Print one JSON object instead of tables.", None, "--json")]
Quiet = Annotated[bool, of_output("Show no progress, only notes and errors.", None, "--quiet", "-q")]


@dataclasses.dataclass(frozen=True)
class FitOptions:
    """The options that `fit` and `path` share, as the user typed them."""

    target: Annotated[
        str | None, of_reading("The column to predict, by default the last; LIBSVM files have their own.", "NAME")
    ] = None
    columns: Annotated[str | None, of_reading("Use only these columns; all by default.", "A,B")] = None
    drop: Annotated[str | None, of_reading("Leave these columns out.", "A,B")] = None
    categories: Annotated[
        str | None, of_reading("Columns of numbers that are categories; columns of text always are.", "A,B")
    ] = None
    missing: Annotated[
        str, of_reading("Missing values: an error that names the place, the mean, or zero.", "error|mean|zero")
    ] = "error"
    na: Annotated[str | None, of_reading("Further texts that mean a missing value.", "?,none")] = None
    delimiter: Annotated[str | None, of_reading("Between the fields of a CSV file; by default ,", "CHARACTER")] = None
    weights: Annotated[str | None, of_reading("Column of the weights of rows; it is not a feature.", "NAME")] = None
    format: Format = None
    memory: Memory = "1GB"
    cache: Cache = None
    loss: Annotated[
        str | None, of_model("By default logistic for a target of texts (each one a class) and squared for numbers.")
    ] = None
    l2: Annotated[str, of_model("The weight of the ridge on standardized columns.", "auto|NUMBER")] = "auto"
    keep: Annotated[str | None, of_model("Columns in every model, in addition to the k.", "A,B")] = None
    positive: Annotated[bool, of_model("No negative coefficients.", None, "--positive")] = False
    solver: Annotated[
        str,
        of_model("auto (exchange; pgd with --positive), ht-svrg, ht-saga, stoiht, iht, pgd, exchange, grasp, grahtp; "
                 "for the squared loss also niht, htp, cosamp, sp, omp, romp, ompr.", "NAME"),
    ] = "auto"  # fmt: skip
    effort: Annotated[str, of_model("How long auto searches for features; best is slower.", "fast|default|best")] = (
        "default"
    )
    m: Annotated[
        int | None,
        of_model("Steps in a stage of ht-svrg; by default 3 per row, or as many as the memory allows.", "STEPS", "--m"),
    ] = None
    max_time: Annotated[float | None, of_model("Limit of each fit, which gives its best model.", "SECONDS")] = None
    seed: Annotated[int, of_model("The same seed gives the same model.")] = 0
    report: Annotated[str | None, of_output("Write a page about the fit (HTML).", "FILE")] = None
    held_out: Annotated[
        float, of_output("Rows that a second fit leaves out, to judge the model in the report; 0 for none.", "SHARE")
    ] = 0.2
    checkpoint: Annotated[
        str | None,
        of_output("Save every finished stage here; after a kill the same command goes on from it. Removed at the end.",
                  "FILE"),
    ] = None  # fmt: skip
    as_json: Json = False
    quiet: Quiet = False

    def reading(self) -> dict[str, Any]:
        """The arguments of `ksparse.sources.open_files`."""
        given = {name: getattr(self, name) for name in ("target", "missing", "delimiter", "format")}
        given |= {name: names(getattr(self, name), f"--{name}") for name in ("columns", "drop")}
        given |= {name: names(getattr(self, name), f"--{name}") or () for name in ("categories", "na")}
        return {**given, "memory": memory_size(self.memory), "cache": cache_in(self.cache)}

    def identity(self, data: str, **more: Any) -> dict[str, Any]:
        """What tells this fit from others, for its checkpoint: the data files with sizes and times, and the options."""
        if self.checkpoint is None:
            return {}
        if data == "-":
            raise ValueError("--checkpoint needs data that outlive a kill; write what the pipe brings to a file")
        top = Path(data)
        files = sorted(path for path in top.rglob("*") if path.is_file()) if top.is_dir() else [top]
        stats = [(os.path.relpath(path, top.parent), path.stat()) for path in files if path.exists()]
        same = ("weights", "loss", "positive", "solver", "effort", "m", "max_time", "seed")
        return {
            "data": [[name, stat.st_size, stat.st_mtime_ns] for name, stat in stats],
            **{name: value or None for name, value in self.reading().items()}, "cache": True,
            **{name: getattr(self, name) for name in same},
            "l2": ridge(self.l2), "keep": names(self.keep, "--keep"),
            "held_out": None if self.report is None else self.held_out, **more,
        }  # fmt: skip


def with_fit_options(command: Callable[..., None]) -> Callable[..., None]:
    """Replace the parameter `options` of a command by one parameter for each field of `FitOptions`, for typer to see.

    The help lists the options by panel; inside a panel those of the command itself come first.
    """
    own = inspect.signature(command, eval_str=True).parameters
    shared = inspect.signature(FitOptions, eval_str=True).parameters
    parameters = [p.replace(kind=p.KEYWORD_ONLY) for p in {**own, **shared}.values() if p.name != "options"]
    panels = [None, READING, MODEL, OUTPUT]
    parameters.sort(key=lambda p: panels.index(p.annotation.__metadata__[0].rich_help_panel))

    @functools.wraps(command)
    def run(**given: Any) -> None:
        options = FitOptions(**{name: given.pop(name) for name in shared})
        command(options=options, **given)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return run


class CommandWithLoss(TyperCommand):
    """A command whose help lists the losses; they are looked up only then, because importing them takes a while."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        from ..losses import LOSSES

        for parameter in self.params:
            if parameter.name == "loss":
                parameter.metavar = "|".join(LOSSES)
        super().format_help(ctx, formatter)


# --- texts of options ------------------------------------------------------------------------------------------------
def names(text: str | None, option: str) -> list[str] | None:
    """The names in 'a,b,c'; a name that contains a comma stands in quotes, as in CSV.

    >>> names('age,"weight, kg"', "--columns")
    ['age', 'weight, kg']
    """
    if text is None:
        return None
    import csv

    try:
        found = [name.strip() for name in next(csv.reader([text], skipinitialspace=True), [])]
    except csv.Error:  # two lines, or longer than its limit
        found = []
    if not found or not all(found):
        what = "texts such as ?,none" if option == "--na" else "names of columns such as a,b"
        raise ValueError(f"{option} must be {what}, got {text[:60]!r}{'...' * (len(text) > 60)}")
    return found


def counts(text: str | None, option: str) -> list[int] | None:
    """The whole numbers in '1:20', '10:100:10' (including the end) or '1,2,5'.

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
    """The text of --memory, refused here if it is no size, before any data are read."""
    from ..sources.storage import check_memory

    try:
        check_memory(text)
    except OverflowError:
        raise ValueError(f"--memory must be a size such as 500MB or 4GB, got {text[:20]}...") from None
    return text


def cache_in(folder: str | None) -> bool | str:
    """--cache as the argument `cache` of `open_files`."""
    return folder != "no" if folder in (None, "no") else str(folder)


def ridge(text: str) -> float | str:
    """--l2: a number, or "auto"."""
    if text == "auto":
        return text
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"--l2 must be 'auto' or a number, got {text!r}") from None


def ridges(text: str | None) -> list[float] | str | None:
    """--l2s: numbers such as '0.01,0.1', or "auto".

    >>> ridges("0.1,1"), ridges("auto")
    ([0.1, 1.0], 'auto')
    """
    if text is None or text == "auto":
        return text
    try:
        found = [float(part) for part in text.split(",")]
        if not all(0 <= number < float("inf") for number in found):
            raise ValueError
    except ValueError:
        raise ValueError(f"--l2s must be 'auto' or numbers of at least 0 such as 0.01,0.1, got {text!r}") from None
    return sorted(set(found))
