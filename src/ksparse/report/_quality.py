"""How well a model predicts rows that it has not seen, beside the best guess that knows no features."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from ..sensing.phase import wilson
from . import _figures
from ._figures import Sketch
from ._fit import Fit
from ._held_out import HeldOut, checked_classes, checked_numbers
from ._words import counted, number, percent

CONFUSED = 12  # classes for which a table of confusions is shown
PANELS = 4  # targets with pictures


class Measure(NamedTuple):
    """A figure of merit, the same for the best constant guess, and what it means."""

    name: str
    value: str
    baseline: str
    meaning: str


class Confusion(NamedTuple):
    classes: list[str]
    counts: list[list[int]]


class Quality(NamedTuple):
    """What held-out rows say: the two measures that lead, and all of them by output."""

    rows: int
    guess: str  # the constant that is the baseline
    lead: list[Measure]
    measures: list[tuple[str, list[Measure]]]
    better: bool
    sentences: list[str]
    sketches: list[Sketch]
    confusion: Confusion | None


def judge(fit: Fit, held_out: HeldOut) -> Quality:
    """What held-out rows say of a model."""
    if not isinstance(held_out, HeldOut):
        raise ValueError(f"held_out must be a report.HeldOut(y, prediction), got {type(held_out).__name__}")
    if fit.is_classifier:
        return _judge_classes(fit, *checked_classes(fit, held_out))
    y, z = checked_numbers(fit, held_out)
    return _judge_counts(fit, y[:, 0], z[:, 0]) if fit.kind == "counts" else _judge_numbers(fit, y, z)


# --- classes ---------------------------------------------------------------------------------------------------------
def _judge_classes(fit: Fit, index: NDArray[np.int64], z: NDArray[np.float64]) -> Quality:
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
        measures += _of_probabilities(index[met], z[met], counts)
        sketches = [_reliability(fit, index, z, said, right)]
    else:
        sketches = [Sketch(lambda: _figures.scores(z, index, right, classes), "Distribution of scores", _scores_caption(z))]
    sentences = [f"{counted(int(right.sum()), 'row')} of {n:,} {'is' if right.sum() == 1 else 'are'} predicted right."]
    if not met.all():
        lost = counted(int((~met).sum()), "row")
        sentences.append(f"{lost} of classes that the fit never met count as wrong, and only in the accuracy.")
    return Quality(
        n, f"always saying {classes[most]}", measures[:2], [("", measures)], bool(right.mean() > counts[most] / n), sentences, sketches,
        _confusion(classes, index[met], said[met]),
    )  # fmt: skip


def _of_probabilities(index: NDArray[np.int64], p: NDArray[np.float64], counts: NDArray[np.int64]) -> list[Measure]:
    n, shares = len(index), counts / counts.sum()
    loss = -np.log(np.maximum(p[np.arange(n), index], 1e-15)).mean()
    guess = -float(shares[shares > 0] @ np.log(shares[shares > 0]))
    actual = np.zeros_like(p)
    actual[np.arange(n), index] = 1.0
    half = 0.5 if p.shape[1] == 2 else 1.0  # of two classes the second says what the first does
    brier, flat = (half * float(((q - actual) ** 2).sum(axis=1).mean()) for q in (p, shares))
    return [
        Measure("Log-loss", number(loss, 3), number(guess, 3), "surprise at the true class; less is better"),
        Measure("Brier score", number(brier, 3), number(flat, 3), "squared error of the probabilities; less is better"),
    ]


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
    apart = float(np.abs(bins.chance - bins.share) @ bins.count / bins.count.sum())
    caption = (
        f"{what} On the diagonal the probabilities can be taken at their word; here they are {percent(apart)} off on "
        "average. Bars: 95 % intervals. Beneath: how many rows."
    )
    return Sketch(lambda: _figures.reliability(bins), "Reliability diagram", caption)


def _scores_caption(z: NDArray[np.float64]) -> str:
    rule = "left of 0 the first class is predicted, right of it the second" if z.ndim == 1 else "the greatest score wins"
    what = "Scores of the rows of each class" if z.ndim == 1 else "Lead of the greatest score over the next"
    return f"{what}; {rule}. This loss has no probabilities, so that there is no calibration to judge."


def _confusion(classes: list[str], index: NDArray[np.int64], said: NDArray[np.int64]) -> Confusion | None:
    if len(classes) > CONFUSED:
        return None
    counts = np.zeros((len(classes), len(classes)), dtype=int)
    np.add.at(counts, (index, said), 1)
    return Confusion(classes, counts.tolist())


# --- numbers ---------------------------------------------------------------------------------------------------------
def _judge_numbers(fit: Fit, y: NDArray[np.float64], z: NDArray[np.float64]) -> Quality:
    n, measures, sentences, sketches = len(y), [], [], []
    explained = []
    for c, name in enumerate(fit.outputs):
        target, guess = y[:, c], z[:, c]
        residual, spread = target - guess, target - target.mean()
        with np.errstate(over="ignore", invalid="ignore"):
            rest, all_ = float((residual**2).mean()), float((spread**2).mean())
        share = 1.0 - rest / all_ if all_ > 0 else np.nan
        explained.append(share)
        measures.append((name if len(fit.outputs) > 1 else "", [
            Measure("R²", number(share, 3), "0", "share of the variance that is explained"),
            Measure("RMSE", number(rest**0.5, 3), number(all_**0.5, 3), "root of the mean squared error"),
            Measure("MAE", number(np.abs(residual).mean(), 3), number(np.abs(spread).mean(), 3), "mean absolute error"),
        ]))  # fmt: skip
        if c < PANELS:
            sketches += _of_residuals(fit, name, guess, residual)[: 2 if len(fit.outputs) == 1 else 1]
    if len(fit.outputs) == 1:
        half, most = np.quantile(np.abs(y - z), [0.5, 0.9], method="inverted_cdf")
        sentences.append(f"Half of the predictions are within ±{number(half, 3)} of the truth, nine in ten within ±{number(most, 3)}.")
    elif len(fit.outputs) > PANELS:
        sentences.append(f"Pictures are of the first {PANELS} targets.")
    words, lead, mean = f"always saying the mean ({number(y[:, 0].mean())})", measures[0][1][:2], _mean(explained)
    if len(fit.outputs) > 1:
        words = "always saying the mean of each target"
        names = [f"{what} R² of {counted(len(fit.outputs), 'target')}" for what in ("Mean", "Least")]
        lead = [Measure(name, number(value, 3), "0", "") for name, value in zip(names, (mean, min(explained)), strict=True)]
    return Quality(n, words, lead, measures, not mean <= 0, sentences, sketches, None)


def _mean(shares: list[float]) -> float:
    """Of those that can be told; NaN if none can."""
    known = [share for share in shares if not np.isnan(share)]
    return float(np.mean(known)) if known else np.nan


def _of_residuals(fit: Fit, name: str, guess: NDArray[np.float64], residual: NDArray[np.float64]) -> list[Sketch]:
    finite = np.isfinite(guess)
    guess, residual = guess[finite], residual[finite]
    of = f" of {name}" if len(fit.outputs) > 1 else ""
    if not guess.size:
        return []
    cloud = _figures.cloud(guess, residual)
    low, middle, high = (number(q, 3) for q in np.quantile(residual, [0.05, 0.5, 0.95]))
    outside = f" {counted(cloud.outside, 'row')} far outside {'is' if cloud.outside == 1 else 'are'} not shown." if cloud.outside else ""
    against = f"Truth minus prediction{of}, against the prediction; the line is the mean, which should stay near 0.{outside}"
    spread = f"How often each residual{of} occurs: nine in ten lie between {low} and {high}, the median is {middle}.{outside}"
    return [
        Sketch(lambda: _figures.residuals(cloud), f"Residuals{of} against predictions", against),
        Sketch(lambda: _figures.histogram(cloud), f"Distribution of the residuals{of}", spread),
    ]


def _judge_counts(fit: Fit, y: NDArray[np.float64], z: NDArray[np.float64]) -> Quality:
    deviance, flat = _deviance(y, z), _deviance(y, np.full(len(y), y.mean()))
    share = 1.0 - deviance / flat if flat > 0 else np.nan
    with np.errstate(over="ignore", invalid="ignore"):
        rmse, mae = float(((y - z) ** 2).mean()) ** 0.5, float(np.abs(y - z).mean())
    measures = [
        Measure("Deviance explained", percent(share), "0 %", "share of the Poisson deviance that is explained, like R²"),
        Measure("Mean deviance", number(deviance, 3), number(flat, 3), "about 1 if counts scatter as Poisson’s do"),
        Measure("RMSE", number(rmse, 3), number(y.std(), 3), "root of the mean squared error"),
        Measure("MAE", number(mae, 3), number(np.abs(y - y.mean()).mean(), 3), "mean absolute error"),
    ]
    finite = np.isfinite(z)
    sketches, sentences = [], []
    if not finite.all():
        sentences.append(f"{counted(int((~finite).sum()), 'prediction')} are infinite, and not in the picture.")
    if finite.any():
        groups = _figures.deciles(z[finite], y[finite])
        caption = (
            f"Rows in {len(groups.count)} groups by their prediction: mean prediction against mean {fit.target}. On the "
            "diagonal both are the same. Bars: two standard errors."
        )
        sketches = [Sketch(lambda: _figures.predicted_observed(groups), "Predicted against observed counts", caption)]
    guess = f"always saying the mean ({number(y.mean())})"
    return Quality(len(y), guess, measures[:2], [("", measures)], not share <= 0, sentences, sketches, None)


def _deviance(y: NDArray[np.float64], z: NDArray[np.float64]) -> float:
    with np.errstate(divide="ignore", invalid="ignore"):
        part = np.where(y > 0, y * np.log(np.where(y > 0, y, 1.0) / z), 0.0)
    return float(2.0 * (part - (y - z)).mean())
