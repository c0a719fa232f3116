"""Success rates: a logistic curve through them, and the interval that a few trials leave."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, log_expit, logit

STEPS = 100  # of Newton's method; five to ten are the rule
LONGEST = 30.0  # a step in units of a standardized curve: further out the curve is flat to rounding


class Crossing(NamedTuple):
    """Where a curve of success rates passes a level, and the standard error of that place.

    The place is inf if the rates stay on the side of failure within the range of x, −inf if they stay on the side of
    success, and nan if success does not depend on x in the right direction.
    """

    at: float
    error: float


def crossing(x: ArrayLike, successes: ArrayLike, trials: ArrayLike, level: float = 0.5) -> Crossing:
    """Where a logistic curve, fitted by maximum likelihood, rises through `level`.

    Where failures and successes do not overlap there is no finite fit: the curve is a jump, in the middle of the gap
    between the last failure and the first success, or at the one x that has both; half a step of x is its error.
    """
    x, s, t = (np.asarray(a, dtype=float) for a in (x, successes, trials))
    x, s, t = x[t > 0], s[t > 0], t[t > 0]
    if not s.any():
        return Crossing(np.inf, np.nan)
    if (s == t).all():
        return Crossing(-np.inf, np.nan)
    lost, won = x[s < t], x[s > 0]
    if lost.max() <= won.min():
        return _jump(x, s / t, float(lost.max()), float(won.min()), level)
    if won.max() <= lost.min():  # a jump downwards
        return Crossing(np.nan, np.nan)
    (a, b), inverse = logistic(x, s, t)
    if b <= 0:
        return Crossing(np.nan, np.nan)
    at = (logit(level) - a) / b
    if not x.min() <= at <= x.max():  # a curve says little of where nobody has looked
        return Crossing(np.inf if at > x.max() else -np.inf, np.nan)
    slope = np.array([-1.0, -at]) / b
    return Crossing(float(at), float(np.sqrt(slope @ inverse @ slope)))


def _jump(x: NDArray[np.float64], rate: NDArray[np.float64], low: float, high: float, level: float) -> Crossing:
    """Of a curve that is 0 below `low` and 1 above `high`."""
    if low < high:
        return Crossing((low + high) / 2, (high - low) / 2)
    here = rate[x == low][0]  # the one place with failures and successes
    if low == x.max() and here < level:
        return Crossing(np.inf, np.nan)
    if low == x.min() and here > level:
        return Crossing(-np.inf, np.nan)
    steps = np.abs(x[x != low] - low)
    return Crossing(low, float(steps.min()) / 2 if steps.size else np.nan)


def logistic(
    x: NDArray[np.float64], successes: NDArray[np.float64], trials: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(a, b) of the rate 1/(1 + exp(−a − b x)) with the largest likelihood, and their covariance.

    Failures and successes must overlap, otherwise there is no maximum.
    """
    centre, scale = np.average(x, weights=trials), np.sqrt(np.cov(x, aweights=trials, bias=True))
    Z = np.column_stack([np.ones_like(x), (x - centre) / scale])

    def likelihood(w: NDArray[np.float64]) -> float:
        u = Z @ w
        return float(successes @ log_expit(u) + (trials - successes) @ log_expit(-u))

    w, value = np.zeros(2), likelihood(np.zeros(2))
    for _ in range(STEPS):
        p = expit(Z @ w)
        slope = Z.T @ (successes - trials * p)
        curvature = (Z.T * (trials * p * (1 - p))) @ Z
        step = np.linalg.solve(curvature, slope)
        gain = slope @ step
        if gain < 1e-20 * trials.sum():
            break
        share = min(1.0, LONGEST / float(np.linalg.norm(step)))
        while likelihood(w + share * step) < value and share > 1e-12:
            share /= 2
        w = w + share * step
        value = likelihood(w)
    back = np.array([[1.0, -centre / scale], [0.0, 1.0 / scale]])  # to the units of x
    return back @ w, back @ np.linalg.inv(curvature) @ back.T


def wilson(successes: ArrayLike, trials: ArrayLike, z: float = 1.959964) -> tuple[NDArray[np.float64], ...]:
    """Wilson's interval of a success rate (95% with this z), which stays honest at 0 and at 1.

    >>> low, high = wilson(95, 100)
    >>> print(f"{low:.3f} {high:.3f}")
    0.888 0.978
    """
    s, t = np.asarray(successes, dtype=float), np.asarray(trials, dtype=float)
    with np.errstate(divide="ignore", invalid="ignore"):
        middle = (s + z * z / 2) / (t + z * z)
        half = z / (t + z * z) * np.sqrt(s * (t - s) / t + z * z / 4)
    return np.where(s == 0, 0.0, middle - half), np.where(s == t, 1.0, middle + half)
