"""How well numbers and counts are predicted, beside their mean."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from . import _figures
from ._figures import Sketch
from ._fit import Fit
from ._held_out import HeldOut, checked_numbers
from ._quality import Measure, Quality
from ._words import counted, number, percent

PANELS = 4  # targets with pictures


def judge_numbers(fit: Fit, held_out: HeldOut) -> Quality:
    """R², errors and residuals of every target; of counts also the deviance."""
    y, z = checked_numbers(fit, held_out)
    if fit.kind == "counts":
        return _judge_counts(fit, y[:, 0], z[:, 0])
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
            Measure("MAE", _mean_size(residual), _mean_size(spread), "mean absolute error"),
        ]))  # fmt: skip
        if c < PANELS:
            sketches += _of_residuals(fit, name, guess, residual)[: 2 if len(fit.outputs) == 1 else 1]
    if len(fit.outputs) == 1:
        half, most = np.quantile(np.abs(y - z), [0.5, 0.9], method="inverted_cdf")
        half, most = number(half, 3), number(most, 3)
        sentences.append(f"Half of the predictions are within ±{half} of the truth, nine in ten within ±{most}.")
    elif len(fit.outputs) > PANELS:
        sentences.append(f"Pictures are of the first {PANELS} targets.")
    words, lead = f"always saying the mean ({number(y[:, 0].mean())})", measures[0][1][:2]
    known = [share for share in explained if not np.isnan(share)]  # a constant target has nothing to explain
    mean, least = (float(np.mean(known)), min(known)) if known else (np.nan, np.nan)
    if len(fit.outputs) > 1:
        words, of = "always saying the mean of each target", f"R² of {counted(len(fit.outputs), 'target')}"
        lead = [Measure(f"Mean {of}", number(mean, 3), "0", ""), Measure(f"Least {of}", number(least, 3), "0", "")]
    return Quality(n, words, lead, measures, not mean <= 0, sentences, sketches, None)


def _mean_size(values: NDArray[np.float64]) -> str:
    return number(np.abs(values).mean(), 3)


def _of_residuals(fit: Fit, name: str, guess: NDArray[np.float64], residual: NDArray[np.float64]) -> list[Sketch]:
    finite = np.isfinite(guess)
    guess, residual = guess[finite], residual[finite]
    of = f" of {name}" if len(fit.outputs) > 1 else ""
    if not guess.size:
        return []
    cloud = _figures.cloud(guess, residual)
    low, middle, high = (number(q, 3) for q in np.quantile(residual, [0.05, 0.5, 0.95]))
    outside = f" Not shown, far outside: {counted(cloud.outside, 'row')}." if cloud.outside else ""
    against = f"Truth minus prediction{of}, against the prediction; the line is their mean, best near 0.{outside}"
    spread = f"Residuals{of}: nine in ten lie between {low} and {high}, the median is {middle}.{outside}"
    return [
        Sketch(lambda: _figures.residuals(cloud), f"Residuals{of} against predictions", against),
        Sketch(lambda: _figures.histogram(cloud), f"Distribution of the residuals{of}", spread),
    ]


def _judge_counts(fit: Fit, y: NDArray[np.float64], z: NDArray[np.float64]) -> Quality:
    deviance, flat = _deviance(y, z), _deviance(y, np.full(len(y), y.mean()))
    share = 1.0 - deviance / flat if flat > 0 else np.nan
    with np.errstate(over="ignore", invalid="ignore"):
        rmse = float(((y - z) ** 2).mean()) ** 0.5
    measures = [
        Measure("Deviance explained", percent(share), percent(0.0), "share of the Poisson deviance, like R²"),
        Measure("Mean deviance", number(deviance, 3), number(flat, 3), "about 1 if counts scatter as Poisson’s do"),
        Measure("RMSE", number(rmse, 3), number(y.std(), 3), "root of the mean squared error"),
        Measure("MAE", _mean_size(y - z), _mean_size(y - y.mean()), "mean absolute error"),
    ]
    finite = np.isfinite(z)
    sketches, sentences = [], []
    if not finite.all():
        sentences.append(f"{counted(int((~finite).sum()), 'prediction')} are infinite, and not in the picture.")
    if finite.any():
        groups = _figures.deciles(z[finite], y[finite])
        caption = (
            f"Rows in {len(groups.rows)} groups by their prediction: mean prediction against mean {fit.target}. On the "
            "diagonal both are the same. Bars: two standard errors."
        )
        sketches = [Sketch(lambda: _figures.predicted_observed(groups), "Predicted against observed counts", caption)]
    guess = f"always saying the mean ({number(y.mean())})"
    return Quality(len(y), guess, measures[:2], [("", measures)], not share <= 0, sentences, sketches, None)


def _deviance(y: NDArray[np.float64], z: NDArray[np.float64]) -> float:
    if np.isinf(z).any():
        return np.inf
    with np.errstate(divide="ignore"):
        part = np.where(y > 0, y * np.log(np.where(y > 0, y, 1.0) / z), 0.0)
    return float(2.0 * (part - (y - z)).mean())
