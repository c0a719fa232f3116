"""How k was chosen, and how the search went: pictures, and their numbers as tables."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .._page import visible
from .._style import BLACK, BLUE, new_axes
from ..estimators.cv import KSparseClassifierCV, KSparseRegressorCV
from ..estimators.path import Path
from ..estimators.summary import NAMED, legend_beside, line_style, whole_numbers
from ._figures import SIZE, Sketch
from ._fit import Fit
from ._words import counted, number

POINTS = 600  # marked points in a picture
LINES = 60
WIDE = 100_000  # columns: a table of all of them for every k would not fit


class Curves(NamedTuple):
    """Pictures of one kind, what they say in a sentence, and their numbers: the head of a table and its rows."""

    sentence: str
    sketches: list[Sketch]
    head: list[str]
    rows: list[list[str]]


def of_path(fit: Fit, path: Any) -> Curves:
    """Loss, information criteria and coefficients against k."""
    if not isinstance(path, Path):
        raise ValueError(f"path must be what k_path gives, got {type(path).__name__}")
    chosen = int(path.best().k_)
    own = getattr(fit.model, "k_", None)
    sentence = f"The extended BIC, which also counts how many choices there were, is smallest at k = {chosen}."
    if own is not None and own != chosen:
        sentence += f" This model has k = {own}."
    sketches = [
        Sketch(
            lambda: _criteria(path), "Information criteria against k", "Information criteria: the smaller the better."
        ),
        Sketch(
            lambda: _loss(path), "Training loss against k", "The loss on the rows of the fit; it falls with k anyway."
        ),
    ]
    sketches.append(_coefficients(fit, path))
    columns = (path.k, path.loss, path.aic, path.bic, path.ebic)
    rows = [[f"{k}", *(number(value, 5) for value in values)] for k, *values in zip(*columns, strict=True)]
    return Curves(sentence, sketches, ["k", "Training loss", "AIC", "BIC", "Extended BIC"], rows)


def of_cv(fit: Fit, cv: Any) -> Curves:
    """The score on rows left out, against k."""
    if not isinstance(cv, KSparseRegressorCV | KSparseClassifierCV) or not hasattr(cv, "scores_"):
        raise ValueError(f"cv must be a fitted KSparseRegressorCV or KSparseClassifierCV, got {cv!r}")
    score = _scoring(cv)
    folds = counted(len(cv.scores_), "fold")
    if cv.one_standard_error and cv.best_k_ != cv.k_:
        rule = f"the smallest k whose score is within one standard error of the best (k = {cv.best_k_})"
    elif cv.one_standard_error:
        rule = "the best score; no smaller k is within one standard error of it"
    else:
        rule = "the best score"
    sentence = f"Cross-validation with {folds} chose k = {cv.k_}: {rule}."
    own = getattr(fit.model, "k_", None)
    if own is not None and own != cv.k_:
        sentence += f" This model has k = {own}."
    caption = f"Score ({score}) on rows left out: the mean over {folds}, with one standard error. Dotted: the k chosen."

    def draw() -> Any:
        ax = _untitled(cv.plot(new_axes(size=SIZE)))
        ax.set_ylabel("minus the held-out loss" if cv.scoring is None else "score")
        return ax

    rows = [
        [f"{k}", number(mean, 5), number(error, 2)]
        for k, mean, error in zip(cv.ks_, cv.mean_score_, cv.standard_error_, strict=True)
    ]
    head = ["k", "Mean score", "Standard error"]
    return Curves(sentence, [Sketch(draw, "Score on rows left out, against k", caption)], head, rows)


def of_search(fit: Fit) -> Curves | None:
    """The objective against passes over the data; None for a model that was read from a file."""
    histories = [history for history in fit.each("history_") if np.isfinite(history.objective).any()]
    if not histories or not hasattr(fit.model, "n_rows_"):
        return None
    passes = max(float(history.gradients[-1]) for history in histories) / fit.model.n_rows_
    seconds = sum(float(history.seconds[-1]) for history in histories)
    sentence = f"after {number(passes, 3)} passes over the data and {number(seconds, 2)} seconds"
    caption = "The objective (mean loss and ridge) after every stage of the search."
    several = " for each output" if len(histories) > 1 else ""

    def draw() -> Any:
        ax = _untitled(fit.model.plot_convergence(new_axes(size=SIZE)))
        lines = list(ax.lines)
        for line in lines:
            _thin(line, len(lines))
        if len(lines) > 1:
            legend_beside(ax, lines[:NAMED], fit.outputs[:NAMED])
        return ax

    return Curves(sentence, [Sketch(draw, f"Objective against passes{several}", caption)], [], [])


def _criteria(path: Path) -> Any:
    ax, lines = new_axes(size=SIZE), []
    names = {"AIC": path.aic, "BIC": path.bic, "extended BIC": path.ebic}
    for place, values in enumerate(names.values()):
        style = line_style(place)
        lines += ax.plot(path.k, values, marker=".", **style)
        least = int(np.argmin(values))
        ax.plot(path.k[least], values[least], "o", color=style["color"], markersize=6)
    ax.axvline(path.best().k_, color=BLACK, linewidth=1, linestyle=":")
    ax.set(xlabel="k", ylabel="criterion")
    whole_numbers(ax)
    legend_beside(ax, lines, list(names))
    return ax


def _coefficients(fit: Fit, path: Path) -> Sketch:
    """Every coefficient against k, or where that would be a tangle the size of every feature's effects."""
    used, label = np.unique(np.concatenate(path.supports)), "Coefficients against k"
    what, dotted = "What one standard deviation of each feature does", "Dotted: the smallest extended BIC."
    if len(fit.outputs) == 1 and used.size * len(path.k) <= POINTS and fit.columns <= WIDE:
        return Sketch(lambda: _untitled(path.plot(new_axes(size=SIZE))), label, f"{what}, against k. {dotted}")
    size = np.array([np.linalg.norm(np.atleast_2d(m.coef_)[:, used] * m.scale_[used], axis=0) for m in path.models])
    order = np.argsort(-size.max(axis=0), kind="stable")[:LINES]
    over = " on all outputs (root of the sum of squares)" if len(fit.outputs) > 1 else ""
    few = f" The {LINES} largest of {used.size}." if used.size > LINES else ""
    names = [fit.feature(j) for j in used[order[:NAMED]]]
    return Sketch(lambda: _sizes(path, size[:, order], names), label, f"{what}{over}, as a size.{few} {dotted}")


def _sizes(path: Path, size: Any, names: list[str]) -> Any:
    ax = new_axes(size=SIZE)
    marker = "." if size.size <= POINTS else ""
    lines = [ax.plot(path.k, part, marker=marker, **line_style(place))[0] for place, part in enumerate(size.T)]
    ax.axvline(path.best().k_, color=BLACK, linewidth=1, linestyle=":")
    ax.set(xlabel="k", ylabel="size of the effects")
    whole_numbers(ax)
    legend_beside(ax, lines[:NAMED], names)
    return ax


def _loss(path: Path) -> Any:
    ax = new_axes(size=SIZE)
    ax.plot(path.k, path.loss, marker=".", color=BLUE)
    ax.set(xlabel="k", ylabel="mean training loss")
    whole_numbers(ax)
    return ax


def _thin(line: Any, lines: int) -> None:
    """As many points of a line as can be told apart, and marks only where they are few."""
    x, y = line.get_data()
    few = np.unique(np.linspace(0, len(x) - 1, min(len(x), max(2, POINTS // lines))).astype(int))
    if len(few) < len(x):
        line.set_data(x[few], y[few])
    if len(x) * lines > POINTS // 4:
        line.set_marker("")


def _untitled(ax: Any) -> Any:
    ax.set_title("")  # the words beneath the picture say it
    return ax


def _scoring(cv: Any) -> str:
    if cv.scoring is None:
        return "minus the held-out loss"
    return visible(
        cv.scoring if isinstance(cv.scoring, str) else getattr(cv.scoring, "__name__", "a scorer of its own")
    )
