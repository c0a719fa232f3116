"""How well classes are predicted, beside the best guess that knows no features."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from ..sensing.phase import wilson
from . import _figures
from ._figures import Sketch
from ._fit import Fit
from ._held_out import HeldOut, checked_classes
from ._quality import Confusion, Measure, Quality
from ._words import counted, listed, number, percent

CONFUSED = 12  # classes for which a table of confusions is shown


def judge_classes(fit: Fit, held_out: HeldOut) -> Quality:
    """Accuracy, ROC AUC, and what the probabilities are worth, if there are any."""
    index, z = checked_classes(fit, held_out)
    n, classes = len(index), fit.classes
    said = (z > 0).astype(int) if z.ndim == 1 else z.argmax(axis=1)
    right = said == index
    met = index >= 0
    counts = np.bincount(index[met], minlength=len(classes))
    most = int(counts.argmax())
    low, high = (float(end) for end in wilson(right.sum(), n))
    accuracy = Measure(
        "Accuracy", percent(right.mean()), percent(counts[most] / n),
        f"share of rows predicted right (95 % interval: {percent(low)} to {percent(high)})",
    )  # fmt: skip
    measures = [accuracy]
    area = _area(index[met], z[met], len(classes))
    if np.isfinite(area):
        pairs = "that a row of one class is ranked above one of another" if len(classes) == 2 else (
            "of a row of a class being ranked above one of the others, the mean over classes"
        )  # fmt: skip
        measures.append(Measure("ROC AUC", number(area, 3), "0.5", f"chance {pairs}"))
    if fit.has_probabilities:
        more, better = _of_probabilities(index[met], z[met], counts)
        measures += more
        sketches = [_reliability(fit, index, z, said, right)]
    else:
        better = bool(right.mean() > counts[most] / n)
        sketches = [
            Sketch(
                lambda: _figures.scores(z, index, right, classes), "Distribution of scores", _scores_caption(z, classes)
            )
        ]
    sentences = [f"Of {counted(n, 'row')} {int(right.sum()):,} {'is' if right.sum() == 1 else 'are'} predicted right."]
    if not met.all():
        lost = counted(int((~met).sum()), "row")
        sentences.append(f"{lost} of classes that the fit never met count as wrong, and only in the accuracy.")
    confusion = _confusion(classes, index[met], said[met])
    if len(classes) > CONFUSED:
        sentences += _worst(confusion)
    return Quality(
        n, f"always saying {classes[most]}", measures[:2], [("", measures)], better, sentences, sketches,
        confusion if len(classes) <= CONFUSED else None,
    )  # fmt: skip


def _of_probabilities(
    index: NDArray[np.int64], p: NDArray[np.float64], counts: NDArray[np.int64]
) -> tuple[list[Measure], bool]:
    """Their measures, and whether they say more than the shares of the classes: where one class is rare, the accuracy
    would not tell."""
    n, shares = len(index), counts / counts.sum()
    loss = -np.log(np.maximum(p[np.arange(n), index], 1e-15)).mean()
    guess = -float(shares[shares > 0] @ np.log(shares[shares > 0]))
    actual = np.zeros_like(p)
    actual[np.arange(n), index] = 1.0
    half = 0.5 if p.shape[1] == 2 else 1.0  # of two classes the second says what the first does
    brier, flat = (half * float(((q - actual) ** 2).sum(axis=1).mean()) for q in (p, shares))
    measures = [
        Measure("Log-loss", number(loss, 3), number(guess, 3), "surprise at the true class; less is better"),
        Measure("Brier score", number(brier, 3), number(flat, 3), "squared error of the probabilities; less is better"),
    ]
    return measures, bool(loss < guess)


def _area(index: NDArray[np.int64], z: NDArray[np.float64], classes: int) -> float:
    """Of two classes, or the mean of those that have rows and others; NaN if none has."""
    if classes == 2:
        z = (z if z.ndim == 1 else z[:, 1])[:, np.newaxis]
    one = [1] if classes == 2 else range(classes)
    areas = [
        roc_auc_score(index == c, score)
        for c, score in zip(one, z.T, strict=True)
        if 0 < np.count_nonzero(index == c) < len(index)
    ]
    return float(np.mean(areas)) if areas else np.nan


def _reliability(fit: Fit, index: Any, p: Any, said: Any, right: Any) -> Sketch:
    if fit.kind == "two":
        chance, happened = p[:, 1], index == 1
        what = f"Rows by their predicted probability of {fit.outputs[0]}: how often it was {fit.outputs[0]}."
    else:
        chance, happened = p[np.arange(len(p)), said], right
        what = "Rows by the probability of their predicted class: how often that class was right."
    bins = _figures.reliability_bins(chance, happened)
    apart = float(np.abs(bins.chance - bins.share) @ bins.rows / bins.rows.sum())
    caption = (
        f"{what} On the diagonal the probabilities can be taken at their word; here they are {percent(apart)} off on "
        "average. Bars: 95 % intervals. Beneath: how many rows."
    )
    return Sketch(lambda: _figures.reliability(bins), "Reliability diagram", caption)


def _scores_caption(z: NDArray[np.float64], classes: list[str]) -> str:
    if z.ndim == 1:
        what = f"Scores of the rows of each class; left of 0 {classes[0]} is predicted, right of it {classes[1]}."
    else:
        what = "Lead of the greatest score, which is the prediction, over the next: rows that were right and wrong."
    return f"{what} This loss has no probabilities, so that there is no calibration to judge."


def _confusion(classes: list[str], index: NDArray[np.int64], said: NDArray[np.int64]) -> Confusion:
    counts = np.zeros((len(classes), len(classes)), dtype=int)
    np.add.at(counts, (index, said), 1)
    return Confusion(classes, counts.tolist())


def _worst(confusion: Confusion) -> list[str]:
    """The confusions that are met most often."""
    counts = np.array(confusion.counts)
    np.fill_diagonal(counts, 0)
    often = np.argsort(-counts, axis=None, kind="stable")[:3]
    pairs = [(*divmod(int(place), len(counts)), int(counts.flat[place])) for place in often if counts.flat[place]]
    named = [f"{confusion.classes[i]} for {confusion.classes[j]} ({counted(rows, 'row')})" for i, j, rows in pairs]
    return [f"Most often taken: {listed(named)}."] if named else []
