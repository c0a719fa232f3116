"""``ksparse info``: what a model file holds."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from . import _options as opt
from . import print_json
from ._session import say, session
from ._wording import one_line

SHOWN = 60  # characters of a list in the table


def info(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A file that ksparse fit or model.save wrote.")],
    as_json: opt.Json = False,
) -> None:
    """What a model holds: its features, its settings, and the columns that it needs to predict."""
    with session(False):
        from .._text import table
        from ..estimators import load
        from ..estimators.store import VERSION
        from ._models import shown
        from ._predictions import check_encoding_of, summary_of

        loaded = load(model)
        check_encoding_of(loaded, model)
        summary = summary_of(loaded)
        facts = _facts(loaded, summary) | {"version": VERSION}
        if as_json:
            print_json(facts)
            return
        lines = [
            (name.replace("_", " "), one_line(_short(value))) for name, value in facts.items() if name not in HIDDEN
        ]
        settings = table([line for line in lines if line[1]], 2)
        say("\n".join(line.rstrip() for line in settings.splitlines()))
        say(f"\n{shown(summary)}")


HIDDEN = ("features", "intercepts", "encoding", "positive_class")


def _facts(model: Any, summary: Any) -> dict[str, Any]:
    from ._models import feature_rows
    from ._predictions import needed_columns

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
    }


def _reads(encoding: dict[str, Any] | None) -> str | None:
    """The kind of data that a model was made from."""
    if encoding is None:
        return None
    if encoding.get("kind") == "libsvm":
        return f"LIBSVM, columns from {0 if encoding.get('zero_based') else 1}"
    if encoding.get("kind") == "array":
        return "NumPy's .npy or .npz"
    return f"tables; missing values: {encoding.get('missing')}"


def _short(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, list):
        text = ", ".join(map(str, value))
        return text if len(text) <= SHOWN else f"{text[:SHOWN]}... ({len(value)} in all)"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
