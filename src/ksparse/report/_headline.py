"""What was fitted on what, how it ended, and how good it is, at one glance."""

from __future__ import annotations

from typing import Any, NamedTuple

from .._page import visible
from ..estimators.summary import chosen_words
from ._fit import LOSSES, Fit
from ._quality import Quality
from ._verdict import ends, summary
from ._words import counted, listed, number

LONGEST = 60  # characters of a name in the title


class Tile(NamedTuple):
    name: str
    value: str
    note: str


class Headline(NamedTuple):
    title: str
    lead: str
    tiles: list[Tile]
    facts: list[tuple[str, str]]


def headline(fit: Fit, quality: Quality | None, cv: Any, model_file: Any) -> Headline:
    """The top of the page."""
    grouped = hasattr(fit.model, "groups_")
    features = chosen_words(fit.model) if grouped else f"{fit.chosen} of {counted(fit.columns, 'feature')}"
    return Headline(
        f"{_short(fit.target)}, from {features}", _lead(fit, quality), _tiles(fit, quality), _facts(fit, cv, model_file)
    )


def _lead(fit: Fit, quality: Quality | None) -> str:
    return f"{_what(fit)}, learnt from {_rows(fit, quality)} of {fit.data} with {counted(fit.columns, 'column')}."


def _what(fit: Fit) -> str:
    target = _short(fit.target)
    if fit.kind == "targets":
        return f"A linear model of {counted(len(fit.outputs), 'target')} ({target})"
    if fit.kind == "counts":
        return f"A Poisson model of the count {target}"
    if fit.kind == "number":
        return f"A linear model of {target}" + (" that outliers do not pull far" if fit.model.loss == "huber" else "")
    model = "A logistic model" if fit.has_probabilities else "A linear classifier"
    classes = [_short(name, 24) for name in fit.classes]
    shown = listed(classes, "or") if len(classes) <= 5 else counted(len(classes), "class", "classes")
    how = {"two": "", "softmax": " (softmax)", "ovr": " (each class against the rest)"}[fit.kind]
    return f"{model}{how} that tells {target}: {shown}"


def _rows(fit: Fit, quality: Quality | None) -> str:
    learnt = getattr(fit.model, "n_rows_", fit.rows)
    if learnt >= fit.rows:
        return counted(fit.rows, "row")
    held = quality is not None and quality.rows == fit.rows - learnt
    return f"{learnt:,} of {counted(fit.rows, 'row')}" + (" (the others were held out)" if held else "")


def _tiles(fit: Fit, quality: Quality | None) -> list[Tile]:
    tiles = []
    if quality is not None:
        rows = counted(quality.rows, "held-out row")
        for measure, name, guess in zip(
            quality.lead, (f" on {rows}", ""), (quality.guess, "the same guess"), strict=False
        ):
            tiles.append(Tile(f"{measure.name}{name}", measure.value, f"{guess}: {measure.baseline}"))
    what = "Groups" if hasattr(fit.model, "groups_") else "Features"
    used, of = chosen_words(fit.model).split(" ", 1)
    tiles.append(Tile(f"{what} used", used, of if what == "Groups" else f"of {fit.columns:,} columns"))
    sentence, bad = ends(fit)
    if sentence:
        tiles.append(Tile("Search", "not finished" if bad else "converged", summary(fit)))
    return tiles


def _facts(fit: Fit, cv: Any, model_file: Any) -> list[tuple[str, str]]:
    model = fit.model
    k = getattr(model, "k_", None)
    k = str(k) if k is not None else f"{model.k:g} of the columns" if isinstance(model.k, float) else str(model.k)
    l2 = getattr(model, "l2_", model.l2)
    how = (" by cross-validation" if cv is not None else "") + (" groups" if hasattr(model, "groups_") else "")
    ridge = "by the rule “auto”" if isinstance(l2, str) else number(l2, 3) + (" (auto)" if model.l2 == "auto" else "")
    known = [
        ("Data", fit.data),
        ("Rows", f"{fit.rows:,}"),
        ("Columns", f"{fit.columns:,}"),
        ("Target", fit.target),
        ("Loss", LOSSES[model.loss]),
        ("At most k", k + how),
        ("Ridge l2", ridge),
        ("Objective", number(model.objective_)),
        ("Model", None if model_file is None else visible(model_file)),
    ]
    return [(name, text) for name, text in known if text is not None]


def _short(name: str, longest: int = LONGEST) -> str:
    return name if len(name) <= longest else f"{name[: longest - 1]}…"
