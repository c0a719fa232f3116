"""``ksparse fit``: thin over the estimators."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from . import _options as opt
from . import print_json
from ._session import Session, peak_memory, say, session


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
    missing: opt.MissingValues = opt.Missing.error,
    weights: opt.Weights = None,
    format: opt.Format = None,
    memory: opt.Memory = "1GB",
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
        from ._models import Settings, certainty, cross_validated, model_facts, name_columns, path_around
        from ._outputs import check_outputs
        from ._page import check_extra, check_share, judge_held_out, write_report

        files = check_outputs([data], out=out, report=report, checkpoint=checkpoint)
        settings = Settings(
            10 if k is None else k, None if loss is None else loss.value, opt.ridge(l2), opt.names(keep, "--keep"),
            positive, solver, m, max_time, seed,
        )  # fmt: skip
        settings.check()
        tried = opt.counts(ks, "--ks")
        if tried is not None and cv is None:
            raise ValueError("--ks is for --cv, which chooses among them; add --cv 5")
        if cv is not None and tried is None and k is not None:
            tried = list(range(1, int(k) + 1))
        reading = Reading(
            data, target, opt.names(columns, "--columns"), opt.names(drop, "--drop"), missing.value, weights, format,
            memory,
        )  # fmt: skip
        share = check_share(held_out)
        if "report" in files:
            check_extra()
        with work.progress():
            rows = read(reading, work)
            estimator = settings.estimator(rows, target, work)
            identity = {**reading.identity(), **settings._asdict(), "cv": cv, "ks": tried} if checkpoint else {}
            with kept(files.get("checkpoint"), identity, work):
                chosen = path = judged = None
                if cv is None:
                    work.begin(f"fit, k = {estimator.k}")
                    model = estimator.fit(rows.X, rows.y, **rows.weights)
                else:
                    chosen = cross_validated(estimator, rows, cv, tried, work)
                    model = chosen.estimator_
                if "report" in files:
                    path = path_around(model, rows, tried, work)
                    judged = judge_held_out(model, rows, share, seed, work) if share else None
                    for each in path.models:
                        name_columns(each, rows)
                name_columns(model if chosen is None else chosen, rows)
                if "out" in files:
                    work.begin("writing")
                    model.save(files["out"], encoding=rows.source.encoding, target=rows.source.target)
                if "report" in files:
                    write_report(files["report"], model, rows, target, path, chosen, judged, files.get("out"))
        facts = {
            "data": data,
            "rows": rows.source.shape[0],
            "columns": rows.source.shape[1],
            "target": rows.source.target,
            "streamed": rows.streamed,
            **model_facts(model),
            "cv": cv_facts(chosen) if chosen is not None else None,
            "files": {name: str(path) for name, path in files.items() if name != "checkpoint"},
            "notes": work.notes,
            "seconds": work.seconds,
            "peak_memory": peak_memory(),
        }
        if as_json:
            print_json(facts)
            return
        say(f"{rows.said()}; {model.loss} loss{_target(rows.source.target)}")
        if chosen is not None:
            say(f"k = {model.k_} by cross-validation over {chosen.ks_[0]} to {chosen.ks_[-1]}, "
                f"held-out loss {-chosen.mean_score_[list(chosen.ks_).index(model.k_)]:.6g}")  # fmt: skip
        say(f"{model.summary()}\n{certainty(model)}")
        if facts["files"]:
            say("written: " + ", ".join(facts["files"].values()))


@contextmanager
def kept(file: Path | None, identity: dict[str, Any], work: Session) -> Iterator[None]:
    """Around the fits and their files: stages are kept in a file, which goes once all is done."""
    if file is None:
        yield
        return
    from .._checkpoint import checkpoint

    work.kept = lambda: (
        f"{file} keeps the stages done, the same command goes on from there" if file.exists() else "nothing was written"
    )
    with checkpoint(file, identity) as saved:
        if saved.resumed:
            work.note(f"going on from {file}: {saved.resumed}")
        yield
    if file.exists():
        work.note(f"{file} stays, for a fit ran out of time: the same command goes on from there")


def cv_facts(chosen: Any) -> dict[str, Any]:
    """A cross-validation for JSON."""
    return {
        "ks": chosen.ks_.tolist(),
        "score": chosen.mean_score_.tolist(),
        "standard_error": chosen.standard_error_.tolist(),
        "best_k": chosen.best_k_,
        "chosen_k": chosen.k_,
        "scoring": "minus the held-out loss",
    }


def _target(name: str | None) -> str:
    return "" if name is None else f", target {name}"
