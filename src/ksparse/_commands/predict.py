"""``ksparse predict``: a model on the rows of a file, block by block."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from . import _options as opt
from . import print_json
from ._session import session


def predict(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A file that ksparse fit or model.save wrote.")],
    data: opt.Data,
    out: Annotated[
        str,
        typer.Option(metavar="FILE", help="Where predictions go: .csv, .parquet or .npy; - is CSV on the standard "
                     "output.", rich_help_panel=opt.OUTPUT),
    ] = "-",
    proba: Annotated[
        bool, typer.Option("--proba", help="Probabilities, a column a class.", rich_help_panel=opt.OUTPUT)
    ] = False,
    safe_csv: Annotated[
        bool,
        typer.Option("--safe-csv", help="For spreadsheets: an apostrophe before labels that begin with = + - @, a tab "
                     "or a carriage return and are no numbers.", rich_help_panel=opt.OUTPUT),
    ] = False,
    format: opt.Format = None,
    memory: opt.Memory = "1GB",
    cache: opt.Cache = None,
    as_json: opt.Json = False,
    quiet: opt.Quiet = False,
) -> None:  # fmt: skip
    """What a model predicts for the rows of DATA, in their order; with the target among them also how good that is.

    Rows are read in blocks, and of their columns only those that the model uses.
    """
    with session(not quiet) as work:
        from ..estimators import load
        from ._outputs import check_outputs
        from ._predictions import Judge, open_like, output_names, predictions, reading_as_the_fit
        from ._writers import check_end, writing

        file = check_outputs([data, model], out=None if out == "-" else out).get("out")
        if file is not None:
            check_end(file, safe_csv)
        elif as_json:
            raise ValueError("--json prints what was done, so predictions need a file; add --out FILE")
        else:
            work.kept = lambda: "the predictions are not complete"
        size = opt.memory_size(memory)
        loaded = load(model)
        if proba and getattr(loaded, "loss", None) != "logistic":
            raise ValueError(f"--proba is for models with the logistic loss, this one has {loaded.loss!r}")
        with work.progress(), reading_as_the_fit():
            work.begin(f"reading {data}")
            reader = open_like(loaded, model, data, format=format, memory=size, cache=opt.cache_in(cache))
            source = reader.source
            for note in source.notes:
                work.note(note)
            judge = Judge(loaded, source.y, work)
            names = [str(c) for c in loaded.classes_] if proba else output_names(loaded)
            with writing(file, names, source.shape[0], safe_csv) as write:
                for values in predictions(reader, proba, judge, work):
                    write(values)
        score = judge.score()
        if as_json:
            done = {"model": model, "data": data, "rows": source.shape[0], "score": score or None}
            print_json({**done, "files": {"out": out}, **work.facts()})
        elif not quiet:
            said = ", ".join(f"{name} {value:.6g}" for name, value in score.items())
            if said:
                print(f"{said} on {source.shape[0]:,} rows", file=sys.stderr)
            if file is not None:
                print(f"written: {out}", file=sys.stderr)
