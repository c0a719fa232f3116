"""``ksparse path``: thin over k_path."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from . import _options as opt
from . import json_text, print_json
from ._session import say, session
from ._wording import one_line

CRITERIA = ("aic", "bic", "ebic")
PICTURES = (".svg", ".png", ".pdf")


def path(
    data: opt.Data,
    target: opt.Target = None,
    ks: Annotated[
        str,
        typer.Option(metavar="FROM:TO", help="Which k: 1:20, 5:50:5 (with the end) or 1,2,5.",
                     rich_help_panel=opt.MODEL),
    ] = "1:20",
    loss: opt.LossOption = None,
    cv: Annotated[
        int | None,
        typer.Option(metavar="FOLDS", help="Add the score of a cross-validation.", rich_help_panel=opt.MODEL),
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
        typer.Option(metavar="FILE", help="Write the table and all coefficients (JSON).", rich_help_panel=opt.OUTPUT),
    ] = None,
    report: opt.Report = None,
    held_out: opt.HeldOut = 0.2,
    plot: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Draw the coefficients against k: .svg, .png or .pdf.",
                     rich_help_panel=opt.OUTPUT),
    ] = None,
    checkpoint: opt.Checkpoint = None,
    as_json: opt.Json = False,
    quiet: opt.Quiet = False,
) -> None:  # fmt: skip
    """A model for every k, with what helps to choose: loss, AIC, BIC, EBIC, and which features come and go."""
    with session(not quiet) as work:
        from .._files import whole_file
        from ._data import Reading, read
        from ._models import Settings, cross_validated, name_columns, path_around
        from ._outputs import check_outputs, kept
        from ._page import check_report, judge_held_out, need_packages, write_report

        files = check_outputs([data], out=out, report=report, plot=plot, checkpoint=checkpoint)
        check_report(report, held_out)
        if plot is not None:
            if files["plot"].suffix.lower() not in PICTURES:
                raise ValueError(f"--plot must end in {', '.join(PICTURES)}, got {plot!r}")
            need_packages("--plot", "matplotlib")
        tried = opt.counts(ks, "--ks") or []
        settings = Settings(
            1, None if loss is None else loss.value, opt.ridge(l2), opt.names(keep, "--keep"), positive, solver, m,
            max_time, seed,
        )  # fmt: skip
        settings.check()
        reading = Reading(
            data, target, opt.names(columns, "--columns"), opt.names(drop, "--drop"),
            opt.names(categories, "--categories"), missing.value, opt.names(na, "--na"), delimiter, weights, format,
            opt.memory_size(memory), opt.cache_in(cache),
        )  # fmt: skip
        identity = {}
        if checkpoint is not None:
            beside = {"cv": cv, "ks": tried, "held_out": None if report is None else held_out}
            identity = {**reading.identity(), **settings._asdict(), **beside}
        with work.progress():
            rows = read(reading, work)
            estimator = settings.estimator(rows, work)
            with kept(files.get("checkpoint"), identity, work):
                found = path_around(estimator, rows, tried, work)
                chosen = None if cv is None else cross_validated(estimator, rows, cv, tried, work)
                best = found.best() if chosen is None else chosen.estimator_
                judged = None if report is None else judge_held_out(best, rows, held_out, seed, work)
                for model in (chosen, best, *found.models):
                    name_columns(model, rows)
                facts = {**rows.facts(), "loss": estimator.loss, **path_facts(found, chosen)}
                work.begin("writing")
                if out is not None:
                    with whole_file(files["out"]) as file:
                        file.write_text(json_text(facts) + "\n", encoding="utf-8")
                    work.written.append(out)
                if plot is not None:
                    from .._style import as_bytes
                    from ..estimators.summary import draw_path

                    with whole_file(files["plot"]) as file:
                        file.write_bytes(as_bytes(draw_path(found), files["plot"].suffix[1:].lower()))
                    work.written.append(plot)
                if report is not None:
                    write_report(files["report"], best, rows, found, chosen, judged, None)
                    work.written.append(report)
        written = {name: file for name, file in (("out", out), ("report", report), ("plot", plot)) if file is not None}
        if as_json:
            print_json({**facts, "files": written, **work.facts()})
            return
        say(rows.said(estimator.loss))
        say(path_table(facts))
        if written:
            say("written: " + ", ".join(written.values()))


def path_facts(found: Any, chosen: Any) -> dict[str, Any]:
    """A path for JSON, with the cross-validation of the same k, if there was one."""
    from ._models import cv_facts

    return {
        "path": path_rows(found),
        "best": {criterion: found.best(criterion).k_ for criterion in CRITERIA},
        "cv": None if chosen is None else cv_facts(chosen),
    }


def path_rows(found: Any) -> list[dict[str, Any]]:
    """The models of a path for JSON, each with the features that came and went since the one before."""
    from ._models import feature_rows

    rows: list[dict[str, Any]] = []
    for i, (model, (enters, leaves)) in enumerate(zip(found.models, found.moves(), strict=True)):
        row = {"k": model.k_, "objective": found.objective[i], "loss": found.loss[i]}
        row |= {criterion: getattr(found, criterion)[i] for criterion in CRITERIA}
        summary = model.summary()
        rows.append(
            {
                **row,
                "enters": enters,
                "leaves": leaves,
                "features": feature_rows(summary),
                "intercepts": summary.intercepts,
            }
        )
    return rows


def path_table(facts: dict[str, Any]) -> str:
    """The path as people read it."""
    from .._text import table

    score = {}
    if facts["cv"] is not None:
        columns = (facts["cv"][name] for name in ("ks", "score", "standard_error"))
        score = {k: (f"{mean:.5g}", f"{error:.2g}") for k, mean, error in zip(*columns, strict=True)}
    cells = [("k", "objective", "loss", *CRITERIA, *(("cv score", "±") if score else ()), "enters and leaves")]
    for row in facts["path"]:
        numbers = [f"{row[name]:.5g}" for name in ("objective", "loss")] + [f"{row[name]:.1f}" for name in CRITERIA]
        moves = [f"+{one_line(name)}" for name in row["enters"]] + [f"-{one_line(name)}" for name in row["leaves"]]
        cells.append((str(row["k"]), *numbers, *(score.get(row["k"], ("", "")) if score else ()), " ".join(moves)))
    width = max(len(row[-1]) for row in cells)
    best = [f"{name} k = {k}" for name, k in facts["best"].items()]
    if facts["cv"] is not None:
        best += [f"cv k = {facts['cv']['best_k']} ({facts['cv']['chosen_k']} within one standard error)"]
    text = table([(*row[:-1], row[-1].ljust(width)) for row in cells], 0)
    return "\n".join(line.rstrip() for line in text.splitlines()) + f"\nbest: {', '.join(best)}"
