"""How well a model predicts rows that the fit has not seen, compared with the best constant prediction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import kl_div
from sklearn.metrics import confusion_matrix, roc_auc_score

from ..sensing.phase import wilson
from . import figures
from .markup import Sketch
from .model import ReportedModel
from .words import counted, listed, number, percent

PANELS = 4  # targets with pictures
CONFUSED = 12  # most classes for which the confusion matrix is shown
Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Targets of rows that the fit has not seen, and the model's predictions for them.

    Parameters
    ----------
    y : array of shape (n,) or (n, targets)
        The true targets or classes.
    prediction : array
        For a regressor the values of `predict`, of shape (n,) or (n, targets).  For a classifier with
        ``loss="logistic"`` the values of `predict_proba`, of shape (n, classes); for other losses those of
        `decision_function`, of shape (n,) for two classes and (n, classes) for more.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from ksparse import KSparseRegressor
    >>> from ksparse.report import HeldOut
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = KSparseRegressor(k=3).fit(X[:300], y[:300])
    >>> HeldOut(y[300:], model.predict(X[300:])).prediction.shape
    (142,)
    """

    y: Any
    prediction: Any


class Measure(NamedTuple):
    """A measure of quality: its value for the model and for the best constant prediction, and what it means."""

    name: str
    value: str
    baseline: str
    meaning: str


class Quality(NamedTuple):
    """What the page says about held-out rows."""

    rows: int
    guess: str  # the constant that the baseline predicts
    lead: list[Measure]  # the two measures at the top of the page
    measures: list[tuple[str, list[Measure]]]  # all measures, by output
    better: bool  # than the baseline
    sentences: list[str]
    sketches: list[Sketch]
    confusion: list[list[int]] | None = None  # true class by predicted class


def judge(fit: ReportedModel, held_out: Any) -> Quality:
    """The quality of the predictions for held-out rows; raises ValueError if they do not belong to the model."""
    if not isinstance(held_out, HeldOut):
        raise ValueError(f"held_out must be a report.HeldOut(y, prediction), got {type(held_out).__name__}")
    if fit.is_classifier:
        return _judge_classes(fit, *_checked_classes(fit, held_out))
    y, z = _checked_numbers(fit, held_out)
    return _judge_counts(fit, y[:, 0], z[:, 0]) if fit.kind == "counts" else _judge_numbers(fit, y, z)


# --- checks ----------------------------------------------------------------------------------------------------------
def _checked_numbers(fit: ReportedModel, held_out: HeldOut) -> tuple[Array, Array]:
    """Targets and predictions of a regressor, both (n, outputs); a prediction may be infinite, but not NaN."""
    y, z = _numbers(held_out.y, "y"), _numbers(held_out.prediction, "prediction")
    outputs = len(fit.outputs)
    wanted = (len(y), outputs) if fit.kind == "targets" else (len(y),)
    for name, values in (("y", y), ("prediction", z)):
        if values.shape not in (wanted, (len(y), 1)) or values.size != len(y) * outputs:
            raise ValueError(f"held_out.{name} must have shape {wanted}, got {values.shape}")
    _need_rows(y)
    if not np.isfinite(y).all():
        raise ValueError(f"held_out.y must be finite, got {y[~np.isfinite(y)][0]}; leave such rows out")
    if np.isnan(z).any():
        raise ValueError(f"held_out.prediction must not be NaN, got it at row {int(np.argwhere(np.isnan(z))[0, 0])}")
    if fit.kind == "counts" and (y.min() < 0 or z.min() < 0):
        raise ValueError(f"held_out must not be negative for loss='poisson', got {min(y.min(), z.min()):g}")
    return y.reshape(-1, outputs), z.reshape(-1, outputs)


def _checked_classes(fit: ReportedModel, held_out: HeldOut) -> tuple[NDArray[np.int64], Array]:
    """The index of every row's class, −1 if the fit has not seen it, and its scores or probabilities.

    These have shape (n, classes), or (n,) for two classes without probabilities.
    """
    y = np.asarray(held_out.y)
    y = y.ravel() if y.ndim == 2 and y.shape[1] == 1 else y
    if y.ndim != 1:
        raise ValueError(f"held_out.y must have shape (n,), got {y.shape}")
    _need_rows(y)
    z, classes = _numbers(held_out.prediction, "prediction"), fit.model.classes_.tolist()
    two_scores = not fit.has_probabilities and len(classes) == 2
    wanted = (len(y),) if two_scores else (len(y), len(classes))
    method = "predict_proba" if fit.has_probabilities else "decision_function"
    if two_scores and z.shape == (len(y), 1):
        z = z[:, 0]
    if z.shape != wanted:
        raise ValueError(f"held_out.prediction must have shape {wanted}, as {method} gives it, got {z.shape}")
    if not np.isfinite(z).all():
        at = int(np.argwhere(~np.isfinite(z))[0, 0])
        raise ValueError(f"held_out.prediction must be finite, got {np.atleast_1d(z[at]).tolist()} at row {at}")
    if fit.has_probabilities and (z.min() < 0 or np.abs(z.sum(axis=1) - 1.0).max() > 1e-3):
        raise ValueError(f"held_out.prediction must hold probabilities that sum to 1, as {method} gives them")
    known = {label: place for place, label in enumerate(classes)}
    index = np.array([known.get(label, -1) for label in y.tolist()], dtype=np.int64)
    if (index < 0).all():
        raise ValueError(f"held_out.y must hold classes of the model ({classes[0]!r}, ...), got {y.tolist()[0]!r}")
    return index, z


def _numbers(values: Any, name: str) -> Array:
    try:
        return np.atleast_1d(np.asarray(values, dtype=np.float64))
    except (TypeError, ValueError) as error:
        raise ValueError(f"held_out.{name} must be numbers ({error})") from None


def _need_rows(y: NDArray[Any]) -> None:
    if len(y) == 0:
        raise ValueError("held_out must hold at least one row, got none; use held_out=None if there are no such rows")


# --- classes ---------------------------------------------------------------------------------------------------------
def _judge_classes(fit: ReportedModel, index: NDArray[np.int64], z: Array) -> Quality:
    """Accuracy, ROC AUC and, if there are probabilities, log-loss and Brier score."""
    n, classes = len(index), fit.classes
    predicted = (z > 0).astype(int) if z.ndim == 1 else z.argmax(axis=1)
    right, known = predicted == index, index >= 0
    counts = np.bincount(index[known], minlength=len(classes))
    most = int(counts.argmax())
    low, high = (percent(float(end)) for end in wilson(right.sum(), n))
    meaning = f"share of rows predicted correctly (95\u00a0% interval: {low} to {high})"
    measures = [Measure("Accuracy", percent(right.mean()), percent(counts[most] / n), meaning)]
    better = bool(right.mean() > counts[most] / n)
    area = _roc_auc(index[known], z[known], len(classes))
    if np.isfinite(area):
        meaning = "probability that a row of the second class scores higher than a row of the first"
        if len(classes) > 2:
            meaning = "probability that a row of a class scores higher for it than other rows do, mean over the classes"
        measures.append(Measure("ROC AUC", number(area, 3), "0.5", meaning))
    if fit.has_probabilities:
        more, better = _judge_probabilities(index[known], z[known], counts)
        measures += more
        sketch = _reliability(fit, index, z, predicted)
    else:
        sketch = Sketch(
            lambda: figures.scores(z, index, right, classes), "Distribution of scores", _scores_caption(z, classes)
        )
    n_right, n_unknown = int(right.sum()), int((~known).sum())
    sentences = [f"{n_right:,} of {counted(n, 'row')} {'is' if n_right == 1 else 'are'} predicted correctly."]
    if n_unknown:
        lost = f"{counted(n_unknown, 'row')} of classes that the fit has not seen"
        sentences.append(f"{lost} count as wrong in the accuracy and are left out of the other measures.")
    confusion = confusion_matrix(index[known], predicted[known], labels=range(len(classes)))
    if len(classes) > CONFUSED:
        sentences += _most_confused(confusion, classes)
    return Quality(
        n, classes[most], measures[:2], [("", measures)], better, sentences, [sketch],
        confusion.tolist() if len(classes) <= CONFUSED else None,
    )  # fmt: skip


def _judge_probabilities(index: NDArray[np.int64], p: Array, counts: NDArray[np.int64]) -> tuple[list[Measure], bool]:
    """Log-loss and Brier score, and whether the log-loss is better than that of the shares of the classes.

    The accuracy would not show this where one class is rare.
    """
    n, shares = len(index), counts / counts.sum()
    loss = -np.log(np.maximum(p[np.arange(n), index], 1e-15)).mean()
    guess = -float(shares[shares > 0] @ np.log(shares[shares > 0]))
    actual = np.zeros_like(p)
    actual[np.arange(n), index] = 1.0
    half = 0.5 if p.shape[1] == 2 else 1.0  # the usual score of two classes counts one of them
    brier, flat = (half * float(((q - actual) ** 2).sum(axis=1).mean()) for q in (p, shares))
    meaning = "mean of −log(probability of the true class); lower is better"
    measures = [
        Measure("Log-loss", number(loss, 3), number(guess, 3), meaning),
        Measure(
            "Brier score", number(brier, 3), number(flat, 3), "squared error of the probabilities; lower is better"
        ),
    ]
    return measures, bool(loss < guess)


def _roc_auc(index: NDArray[np.int64], z: Array, classes: int) -> float:
    """The ROC AUC of two classes, or the mean over the classes, each against the others; NaN if there is none."""
    if classes == 2:
        index, z = index[:, np.newaxis] == 1, (z if z.ndim == 1 else z[:, 1])[:, np.newaxis]
    else:
        index = index[:, np.newaxis] == np.arange(classes)
    areas = [roc_auc_score(own, score) for own, score in zip(index.T, z.T, strict=True) if 0 < own.sum() < len(own)]
    return float(np.mean(areas)) if areas else np.nan


def _reliability(fit: ReportedModel, index: NDArray[np.int64], p: Array, predicted: NDArray[np.int64]) -> Sketch:
    if fit.kind == "two":
        chance, happened, name = p[:, 1], index == 1, fit.outputs[0]
        what = f"Rows are grouped by their predicted probability of {name}. The points show how often it was {name}."
    else:
        chance, happened = p[np.arange(len(p)), predicted], predicted == index
        what = "Rows are grouped by the probability of their predicted class. The points show how often it was right."
    bins = figures.reliability_bins(chance, happened)
    apart = float(np.abs(bins.chance - bins.share) @ bins.rows / bins.rows.sum())
    caption = (
        f"{what} On the diagonal, frequency and probability agree; here they differ by {percent(apart)} on average. "
        "Bars are 95\u00a0% intervals. The lower plot counts the rows."
    )
    return Sketch(lambda: figures.reliability(bins), "Reliability diagram", caption)


def _scores_caption(z: Array, classes: list[str]) -> str:
    if z.ndim == 1:
        what = f"Scores of the rows of each class. Below 0 the prediction is {classes[0]}, above 0 it is {classes[1]}."
    else:
        what = "Difference between the highest score, which decides, and the next one, for right and wrong predictions."
    return f"{what} This loss gives no probabilities, so there is no calibration to check."


def _most_confused(confusion: NDArray[np.int64], classes: list[str]) -> list[str]:
    """A sentence with the three most frequent confusions; none if all predictions are right."""
    counts = confusion.copy()
    np.fill_diagonal(counts, 0)
    often = np.argsort(-counts, axis=None, kind="stable")[:3]
    pairs = [(*divmod(int(place), len(counts)), int(counts.flat[place])) for place in often if counts.flat[place]]
    named = [f"{classes[i]} predicted as {classes[j]} ({counted(rows, 'row')})" for i, j, rows in pairs]
    return [f"Most frequent confusions: {listed(named)}."] if named else []


# --- numbers and counts ----------------------------------------------------------------------------------------------
def _judge_numbers(fit: ReportedModel, y: Array, z: Array) -> Quality:
    """R², errors and residuals of every target."""
    several = len(fit.outputs) > 1
    measures, sentences, sketches, explained = [], [], [], []
    for c, name in enumerate(fit.outputs):
        residual, spread = y[:, c] - z[:, c], y[:, c] - y[:, c].mean()
        with np.errstate(over="ignore", invalid="ignore"):
            error, variance = float((residual**2).mean()), float((spread**2).mean())
        explained.append(1.0 - error / variance if variance > 0 else np.nan)
        measures.append((name if several else "", [
            Measure("R²", number(explained[-1], 3), "0", "share of the variance that is explained"),
            Measure("RMSE", number(error**0.5, 3), number(variance**0.5, 3), "root of the mean squared error"),
            Measure("MAE", _mean_size(residual), _mean_size(spread), "mean absolute error"),
        ]))  # fmt: skip
        if c < PANELS:
            sketches += _residuals(f" of {name}" if several else "", z[:, c], residual)[: 1 if several else 2]
    known = [share for share in explained if not np.isnan(share)]  # a constant target has no variance to explain
    mean, least = (float(np.mean(known)), min(known)) if known else (np.nan, np.nan)
    if several:
        guess, what = "the mean of each target", f"R² of {counted(len(fit.outputs), 'target')}"
        lead = [Measure(f"Mean {what}", number(mean, 3), "0", ""), Measure(f"Least {what}", number(least, 3), "0", "")]
        if len(fit.outputs) > PANELS:
            sentences.append(f"The pictures show the first {PANELS} targets.")
    else:
        guess, lead = f"the mean, {number(y.mean())}", measures[0][1][:2]
        half, most = (number(q, 3) for q in np.quantile(np.abs(y - z), [0.5, 0.9], method="inverted_cdf"))
        sentences.append(f"Half of the predictions are within ±{half} of the truth, nine in ten within ±{most}.")
    return Quality(len(y), guess, lead, measures, not mean <= 0, sentences, sketches)


def _mean_size(values: Array) -> str:
    return number(np.abs(values).mean(), 3)


def _residuals(of: str, guess: Array, residual: Array) -> list[Sketch]:
    """Residuals against predictions, and their distribution; nothing if no prediction is finite."""
    finite = np.isfinite(guess)
    if not finite.any():
        return []
    guess, residual = guess[finite], residual[finite]
    cloud = figures.cloud(guess, residual)
    low, middle, high = (number(q, 3) for q in np.quantile(residual, [0.05, 0.5, 0.95]))
    outside = f" Not shown: {counted(cloud.outside, 'row')} far outside." if cloud.outside else ""
    against = f"Truth minus prediction{of}, against the prediction. The line is the mean, which should be near 0."
    spread = f"Nine in ten residuals{of} lie between {low} and {high}. The median is {middle}."
    return [
        Sketch(lambda: figures.residuals(cloud), f"Residuals{of} against predictions", against + outside),
        Sketch(lambda: figures.histogram(cloud), f"Distribution of the residuals{of}", spread + outside),
    ]


def _judge_counts(fit: ReportedModel, y: Array, z: Array) -> Quality:
    """Poisson deviance and errors."""
    deviance, flat = _deviance(y, z), _deviance(y, np.full(len(y), y.mean()))
    share = 1.0 - deviance / flat if flat > 0 else np.nan
    with np.errstate(over="ignore", invalid="ignore"):
        rmse = float(((y - z) ** 2).mean()) ** 0.5
    measures = [
        Measure("Deviance explained", percent(share), percent(0.0), "share of the Poisson deviance, like R²"),
        Measure("Mean deviance", number(deviance, 3), number(flat, 3), "about 1 if the counts are Poisson distributed"),
        Measure("RMSE", number(rmse, 3), number(y.std(), 3), "root of the mean squared error"),
        Measure("MAE", _mean_size(y - z), _mean_size(y - y.mean()), "mean absolute error"),
    ]
    finite = np.isfinite(z)
    sketches, sentences = [], []
    if not finite.all():
        infinite = int((~finite).sum())
        verb = "is" if infinite == 1 else "are"
        sentences.append(f"{counted(infinite, 'prediction')} {verb} infinite and not in the picture.")
    if finite.any():
        groups = figures.quantile_groups(z[finite], y[finite])
        caption = (
            f"Rows in {len(groups.rows)} groups by their prediction. Each point shows the mean prediction and the mean "
            f"{fit.target} of a group; on the diagonal they agree. Bars are two standard errors."
        )
        sketches = [Sketch(lambda: figures.predicted_observed(groups), "Predicted against observed counts", caption)]
    guess = f"the mean, {number(y.mean())}"
    return Quality(len(y), guess, measures[:2], [("", measures)], not share <= 0, sentences, sketches)


def _deviance(y: Array, z: Array) -> float:
    """The mean Poisson deviance; infinite if a prediction is, or if it is 0 for a positive count."""
    return np.inf if np.isinf(z).any() else float(2.0 * kl_div(y, z).mean())
