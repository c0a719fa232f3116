"""``ksparse predict`` and ``ksparse info``: what a saved model predicts, and what it contains."""

from __future__ import annotations

import sys
from typing import Annotated, Any

from . import options as opt
from .output import check_ending, check_outputs, json_text, one_line, prediction_writer, say, show
from .session import errors_about_fit, session

SHOWN = 60  # characters of a list in the table of `info`
NOT_IN_TABLE = ("features", "intercepts", "encoding", "positive_class")


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
        from .data import open_like
        from .models import Judge, output_names, predictions

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
        from .data import check_encoding_of
        from .models import summary_of, summary_text

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
    from .data import needed_columns
    from .models import feature_rows

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
