"""``ksparse fit``: thin over the estimators."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from . import _options as opt
from . import print_json
from ._session import Session, say, session


def fit(
    data: opt.Data,
    target: opt.Target = None,
    k: Annotated[
        float | None,
        typer.Option("-k", help="At most so many features; a share of the columns if below 1. 10 by default.",
                     rich_help_panel=opt.MODEL),
    ] = None,
    loss: opt.LossOption = None,
    cv: Annotated[
        int | None,
        typer.Option(metavar="FOLDS", help="Choose k by cross-validation.", rich_help_panel=opt.MODEL),
    ] = None,
    ks: Annotated[
        str | None,
        typer.Option(metavar="FROM:TO", help="With --cv: the k to try, such as 1:20 or 1,2,5; 1 to k (20) by default.",
                     rich_help_panel=opt.MODEL),
    ] = None,
    l2: opt.Ridge = "auto",
    keep: opt.Keep = None,
    positive: opt.Positive = False,
    solver: opt.SolverName = "auto",
    m: opt.Steps = None,
    max_time: opt.MaxTime = None,
    seed: opt.Seed = 0,
    columns: opt.Columns = None,
    drop: opt.Drop = None,
    categories: opt.Categories = None,
    missing: opt.MissingValues = opt.Missing.error,
    na: opt.NotThere = None,
    delimiter: opt.Delimiter = None,
    weights: opt.Weights = None,
    format: opt.Format = None,
    memory: opt.Memory = "1GB",
    cache: opt.Cache = None,
    out: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Write the model (JSON), for ksparse predict and ksparse.load.",
                     rich_help_panel=opt.OUTPUT),
    ] = None,
    report: opt.Report = None,
    held_out: opt.HeldOut = 0.2,
    checkpoint: opt.Checkpoint = None,
    as_json: opt.Json = False,
    quiet: opt.Quiet = False,
) -> None:  # fmt: skip
    """Learn a model with at most k features from DATA, and print which ones it chose.

    Without --out nothing is written. Killed or stopped with --checkpoint, the same command goes on where it was.
    """
    with session(not quiet) as work:
        from ._data import Reading, read
        from ._models import Settings, learn, name_columns, path_around, tried_up_to
        from ._outputs import check_outputs, kept
        from ._page import check_report, judge_held_out, write_report

        files = check_outputs([data], out=out, report=report, checkpoint=checkpoint)
        settings = Settings(
            10 if k is None else k, None if loss is None else loss.value, opt.ridge(l2), opt.names(keep, "--keep"),
            positive, solver, m, max_time, seed,
        )  # fmt: skip
        settings.check()
        tried = opt.counts(ks, "--ks")
        if tried is not None and cv is None:
            raise ValueError("--ks is for --cv, which chooses among them; add --cv 5")
        reading = Reading(
            data, target, opt.names(columns, "--columns"), opt.names(drop, "--drop"),
            opt.names(categories, "--categories"), missing.value, opt.names(na, "--na"), delimiter, weights, format,
            opt.memory_size(memory), opt.cache_in(cache),
        )  # fmt: skip
        check_report(report, held_out)
        identity = {}
        if checkpoint is not None:
            beside = {"cv": cv, "ks": tried, "held_out": None if report is None else held_out}
            identity = {**reading.identity(), **settings._asdict(), **beside}
        with work.progress():
            rows = read(reading, work)
            if cv is not None and tried is None and k is not None:
                tried = tried_up_to(k, rows)
            estimator = settings.estimator(rows, work)
            with kept(files.get("checkpoint"), identity, work):
                model, chosen = learn(estimator, rows, cv, tried, work)
                path = judged = None
                if report is not None:
                    path = path_around(model, rows, tried, work)
                    judged = judge_held_out(model, rows, held_out, seed, work)
                for each in (chosen, model, *(path.models if path else ())):
                    name_columns(each, rows)
                work.begin("writing")
                if out is not None:
                    model.save(files["out"], encoding=rows.source.encoding, target=rows.target)
                    work.written.append(out)
                if report is not None:
                    write_report(files["report"], model, rows, path, chosen, judged, out)
                    work.written.append(report)
        _tell(rows, model, chosen, {"out": out, "report": report}, work, as_json)


def _tell(rows: Any, model: Any, chosen: Any, files: dict[str, str | None], work: Session, as_json: bool) -> None:
    """What was found, for machines or for people."""
    from ._models import certainty, cv_facts, model_facts, shown

    written = {name: file for name, file in files.items() if file is not None}
    if as_json:
        facts = {**rows.facts(), **model_facts(model), "cv": None if chosen is None else cv_facts(chosen)}
        print_json({**facts, "files": written, **work.facts()})
        return
    say(rows.said(model.loss))
    if chosen is not None:
        held = -chosen.mean_score_[list(chosen.ks_).index(model.k_)]
        say(f"k = {model.k_} of {chosen.ks_[0]} to {chosen.ks_[-1]} by cross-validation, held-out loss {held:.6g}")
    say(f"{shown(model.summary())}\n{certainty(model)}")
    if written:
        say("written: " + ", ".join(written.values()))
