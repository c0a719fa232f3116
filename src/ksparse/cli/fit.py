"""``ksparse fit`` and ``ksparse path``: models of a file; and the options that other commands share with them."""

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

from .session import check_outputs, json_text, need_packages, say, session, show

READING, MODEL, OUTPUT = "Reading", "The model", "Output"  # the panels of the help, in their order
MANY = 10_000  # models that a path may have
PICTURES = (".svg", ".png", ".pdf")


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
        of_model("auto (exchange), ht-svrg, ht-saga, stoiht, iht, pgd, exchange, grasp, grahtp; "
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


# --- the commands -----------------------------------------------------------------------------------------------------
@with_fit_options
def fit(
    data: Data,
    options: FitOptions,
    k: Annotated[
        float | None,
        of_model("Largest number of features, or a share of the columns if below 1; 10 by default.", "NUMBER", "-k"),
    ] = None,
    cv: Annotated[int | None, of_model("Choose k by cross-validation.", "FOLDS")] = None,
    ks: Annotated[
        str | None, of_model("With --cv: the k to try, such as 1:20 or 1,2,5; by default 1 to k (20).", "FROM:TO")
    ] = None,
    l2s: Annotated[
        str | None,
        of_model("With --cv: the ridges to try with every k; auto: 0.1, 1, 10 and 100 times --l2.", "auto|A,B"),
    ] = None,
    out: Annotated[
        str | None, of_output("Write the model (JSON), for ksparse predict and ksparse.load.", "FILE")
    ] = None,
) -> None:
    """Learn a model with at most k features from DATA, and print which features it chose.

    Without --out nothing is written. Killed or stopped with --checkpoint, the same command goes on where it was.
    """
    with session(not options.quiet) as work:
        from . import models

        report, most = options.report, 10 if k is None else k
        files = check_outputs([data], out=out, report=report, checkpoint=options.checkpoint)
        models.check_options(options, most)
        tried, ridges = counts(ks, "--ks"), parse_ridges(l2s)
        for option, given in (("--ks", tried), ("--l2s", ridges)):
            if given is not None and cv is None:
                raise ValueError(f"{option} is for --cv, which chooses among them; add --cv 5")
        if ridges == "auto" and ridge(options.l2) == 0.0:
            raise ValueError("--l2s auto tries multiples of --l2, which is 0; give numbers such as --l2s 0.01,0.1")
        identity = options.identity(data, k=most, cv=cv, ks=tried, **({} if ridges is None else {"l2s": ridges}))
        with work.progress():
            rows = models.read(data, options, work)
            if cv is not None and tried is None and k is not None:
                tried = models.tried_up_to(k, rows)
            estimator = models.make_estimator(options, most, rows, work)
            with models.checkpointed(files.get("checkpoint"), identity, work):
                chosen = path = held_out = None
                if cv is None:
                    work.begin(f"fit, k = {estimator.k}")
                    model = estimator.fit(rows.X, rows.y, **rows.weights)
                else:
                    chosen = models.cross_validated(estimator, rows, cv, tried, work, ridges)
                    model = chosen.estimator_
                if report is not None:
                    path = models.path_around(model, rows, tried, work)
                    held_out = models.judge_held_out(model, rows, options, work)
                models.name_columns(rows, chosen, model, *(path.models if path else ()))
                work.begin("writing")
                if out is not None:
                    model.save(files["out"], encoding=rows.source.encoding, target=rows.target)
                    work.written["out"] = out
                if report is not None:
                    models.write_report(files["report"], model, rows, path, chosen, held_out, out)
                    work.written["report"] = report
        if options.as_json:
            facts = {**rows.facts(), **models.model_facts(model), "cv": models.cv_facts(chosen)}
            show(json_text({**facts, "files": work.written, **work.facts()}))
            return
        say(rows.line(model.loss))
        if chosen is not None:
            loss = -chosen.mean_score_[list(chosen.ks_).index(model.k_)]
            both = "" if ridges is None else f" and l2 = {model.l2_:.4g}"
            of = f"{chosen.ks_[0]} to {chosen.ks_[-1]}"
            say(f"k = {model.k_} of {of}{both} by cross-validation, held-out loss {loss:.6g}")
        say(f"{models.summary_text(model.summary())}\n{models.certainty(model)}")
        count = models.passes(model)
        say(f"{count} {'pass' if count == 1 else 'passes'} over the rows")
        if work.written:
            say("written: " + ", ".join(work.written.values()))


@with_fit_options
def path(
    data: Data,
    options: FitOptions,
    ks: Annotated[str, of_model("The k of the models: 1:20, 5:50:5 (including the end) or 1,2,5.", "FROM:TO")] = "1:20",
    cv: Annotated[int | None, of_model("Add the score of a cross-validation.", "FOLDS")] = None,
    out: Annotated[str | None, of_output("Write the table and all coefficients (JSON).", "FILE")] = None,
    plot: Annotated[str | None, of_output("Draw the coefficients against k: .svg, .png or .pdf.", "FILE")] = None,
) -> None:
    """Fit a model for every k, with what helps to choose: loss, AIC, BIC, EBIC, and which features enter and leave."""
    with session(not options.quiet) as work:
        from .._text import whole_file
        from . import models

        report = options.report
        files = check_outputs([data], out=out, report=report, plot=plot, checkpoint=options.checkpoint)
        models.check_options(options, 1)
        if plot is not None:
            if files["plot"].suffix.lower() not in PICTURES:
                raise ValueError(f"--plot must end in {', '.join(PICTURES)}, got {plot!r}")
            need_packages("--plot", "report", "matplotlib")
        tried = counts(ks, "--ks")
        identity = options.identity(data, k=1, cv=cv, ks=tried)
        with work.progress():
            rows = models.read(data, options, work)
            estimator = models.make_estimator(options, 1, rows, work)
            with models.checkpointed(files.get("checkpoint"), identity, work):
                found = models.path_around(estimator, rows, tried, work)
                chosen = None if cv is None else models.cross_validated(estimator, rows, cv, tried, work)
                best = found.best() if chosen is None else chosen.estimator_
                held_out = None if report is None else models.judge_held_out(best, rows, options, work)
                models.name_columns(rows, chosen, best, *found.models)
                facts = {**rows.facts(), "loss": estimator.loss, **models.path_facts(found, chosen)}
                work.begin("writing")
                if out is not None:
                    with whole_file(files["out"]) as file:
                        file.write_text(json_text(facts) + "\n", encoding="utf-8")
                    work.written["out"] = out
                if report is not None:
                    models.write_report(files["report"], best, rows, found, chosen, held_out, None)
                    work.written["report"] = report
                if plot is not None:
                    from .._style import as_bytes
                    from ..estimators.summary import draw_path

                    with whole_file(files["plot"]) as file:
                        file.write_bytes(as_bytes(draw_path(found), files["plot"].suffix[1:].lower()))
                    work.written["plot"] = plot
        if options.as_json:
            show(json_text({**facts, "files": work.written, **work.facts()}))
            return
        say(rows.line(estimator.loss))
        say(models.path_table(facts))
        if work.written:
            say("written: " + ", ".join(work.written.values()))


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


def parse_ridges(text: str | None) -> list[float] | str | None:
    """--l2s: numbers such as '0.01,0.1', or "auto".

    >>> parse_ridges("0.1,1"), parse_ridges("auto")
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
