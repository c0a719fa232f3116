"""The chosen features, what each is worth, and the model as a formula."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ._fit import Fit
from ._words import number, signed, times

SHOWN = 25  # features of an output that stand in sight, and terms of a formula; the rest folds away
MOST = 500  # rows on a page
OUTPUTS = 40  # outputs on a page
ACROSS = 12  # outputs for which there is room beside each other


class Row(NamedTuple):
    """A feature of one output."""

    name: str
    note: str
    coefficient: str
    effect: str
    deviation: str
    worth: str
    share: float  # of the greatest worth


class Term(NamedTuple):
    sign: str
    size: str
    name: str


class Output(NamedTuple):
    """One score: its features, the most useful first, and how to compute it."""

    name: str
    rows: list[Row]
    more: list[Row]
    left_out: int
    intercept: str
    start: str
    terms: list[Term]


class Cell(NamedTuple):
    text: str
    tint: float  # of its size on scaled columns, between −1 and 1


class Across(NamedTuple):
    """A feature over all outputs."""

    name: str
    note: str
    cells: list[Cell]
    worth: str
    share: float


def outputs(fit: Fit) -> list[Output]:
    """Every output with its features."""
    greatest = float(fit.worth.max(initial=0.0)) or 1.0
    room, notes, found = MOST, fit.notes(), []
    for c, name in enumerate(fit.outputs[:OUTPUTS]):
        order = _by_worth(fit.coef[c], fit.worth[c])
        rows = [_row(fit, c, j, greatest, notes.get(j, "")) for j in order[:room]]
        room -= len(rows)
        terms = [
            Term("−" if fit.coef[c, j] < 0 else "+", number(abs(fit.coef[c, j])), fit.feature(j))
            for j in order
            if len(order) <= SHOWN
        ]
        constant = fit.intercepts[c] if fit.model.fit_intercept or not terms else 0.0
        start = number(constant) if constant or not terms else ""
        found.append(
            Output(name, rows[:SHOWN], rows[SHOWN:], len(order) - len(rows), number(fit.intercepts[c]), start, terms)
        )
    return found


def across(fit: Fit) -> list[Across]:
    """The most useful features beside all outputs; nothing where there is one output, or no room for so many."""
    if not 1 < len(fit.outputs) <= ACROSS:
        return []
    total, size = fit.model.feature_worth_, fit.sizes
    largest, most, notes = (
        float(np.abs(size).max(initial=0.0)) or 1.0,
        float(total.max(initial=0.0)) or 1.0,
        fit.notes(),
    )
    return [
        Across(
            fit.feature(j),
            notes.get(j, ""),
            [
                Cell(number(w, 3) if w else "", float(s) / largest)
                for w, s in zip(fit.coef[:, j], size[:, j], strict=True)
            ],
            number(total[j], 3),
            float(total[j]) / most,
        )
        for j in _by_worth((fit.coef != 0).sum(axis=0), total)[:SHOWN]
    ]


def effect_words(fit: Fit) -> str:
    """What one standard deviation more of a feature does; nothing if it is not known."""
    if not fit.model.standardize:
        return ""
    if fit.kind == "two" and fit.has_probabilities:
        return f"multiplies the odds of {fit.outputs[0]} by"
    if fit.kind == "ovr" and fit.has_probabilities:
        return "multiplies the odds by"
    if fit.kind == "counts":
        return f"multiplies the expected {fit.target} by"
    changed = {"number": fit.target, "targets": "the prediction"}.get(fit.kind, "the score")
    return f"changes {changed} by"


def _by_worth(weights: NDArray[Any], worth: NDArray[np.float64]) -> list[int]:
    chosen = np.flatnonzero(weights)
    return chosen[np.argsort(-worth[chosen], kind="stable")].tolist()


def _row(fit: Fit, c: int, j: int, greatest: float, note: str) -> Row:
    weight, worth, scale = float(fit.coef[c, j]), float(fit.worth[c, j]), float(fit.model.scale_[j])
    multiplies = fit.kind == "counts" or (fit.kind in ("two", "ovr") and fit.has_probabilities)
    effect = (times if multiplies else signed)(weight * scale) if fit.model.standardize else ""
    return Row(
        fit.feature(j), note, number(weight), effect, number(scale, 3), number(worth, 3), worth / greatest
    )  # fmt: skip
