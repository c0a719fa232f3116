"""Columns of one size: variance one, centred where that costs nothing; a constant column becomes zero."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..matrix import as_rows
from ..passes import moments

FLAT = 1e-12  # of a column's mean square: a variance below it is rounding
SAFE = 1e100  # magnitudes whose squares are floats


class Scaling:
    """`rows` = (X − centre)·factor, column by column; for sparse rows, and without an intercept, the centre is zero."""

    def __init__(self, X: Any, weight: NDArray[np.float64] | None, intercept: bool) -> None:
        share = np.full(X.shape[0], 1.0 / X.shape[0]) if weight is None else weight / weight.sum()
        self.rows, self.centre, self.factor = (_sparse if hasattr(X, "tocsr") else _dense)(X, share, intercept)

    def to_original(self, v: NDArray[np.float64], constant: float) -> tuple[NDArray[np.float64], float]:
        """Coefficients and intercept for the columns as they were."""
        w = v * self.factor
        return w, constant - float(self.centre @ w)

    def to_scaled(self, w: NDArray[np.float64], constant: float) -> tuple[NDArray[np.float64], float]:
        """The other way round."""
        return np.divide(w, self.factor, out=np.zeros_like(w), where=self.factor > 0), constant + float(self.centre @ w)


def _dense(X: NDArray[Any], share: NDArray[np.float64], intercept: bool) -> tuple[Any, Any, Any]:
    """One pass for the moments, and one copy of X, worked on in place."""
    unit = np.ones(X.shape[1])
    mean, square = _moments(X, share)
    if not _safe(X, square):
        unit = _unit(np.maximum(X.max(axis=0), -X.min(axis=0)))
        X = X / unit.astype(X.dtype)
        mean, square = _moments(X, share)
    centre = mean if intercept else np.zeros(X.shape[1])
    factor = _factor(square - centre**2, square)
    Z = np.subtract(X, centre.astype(X.dtype), order="C") if intercept else X.copy(order="C")
    Z *= factor.astype(X.dtype)
    Z[:, factor == 0.0] = 0.0  # what rounding left of a constant
    return Z, centre * unit, factor / unit


def _sparse(X: Any, share: NDArray[np.float64], intercept: bool) -> tuple[Any, Any, Any]:
    unit = _unit(np.asarray(abs(X).max(axis=0).toarray()).ravel())
    Z = X.tocsr(copy=True)
    Z.data = Z.data / unit[Z.indices].astype(Z.dtype)
    mean, square = _moments(Z, share)
    factor = _factor(square - mean**2 if intercept else square, square)
    Z.data = Z.data * factor[Z.indices].astype(Z.dtype)
    return Z, np.zeros(X.shape[1]), factor / unit


def _moments(X: Any, share: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The weighted mean and mean square of every column."""
    rows = as_rows(X)
    total = np.zeros(X.shape[1]), np.zeros(X.shape[1]), np.zeros(X.shape[1])
    with np.errstate(over="ignore"):
        moments(rows, 0, X.shape[0], share, share, *total)
    return total[1], total[2]


def _safe(X: NDArray[Any], square: NDArray[np.float64]) -> bool:
    """Whether no square overflowed, and none vanished that should not have."""
    small = square < 1.0 / SAFE
    return bool((square < SAFE).all()) and not (small.any() and X[:, small].any())


def _unit(largest: NDArray[Any]) -> NDArray[np.float64]:
    """What to divide by first, so that no square overflows or vanishes; mostly 1."""
    largest = largest.astype(np.float64)
    extreme = (largest > SAFE) | ((largest < 1.0 / SAFE) & (largest > 0.0))
    return np.where(extreme, largest, 1.0)


def _factor(spread: NDArray[np.float64], square: NDArray[np.float64]) -> NDArray[np.float64]:
    usable = spread > FLAT * square
    return np.where(usable, 1.0 / np.sqrt(np.where(usable, spread, 1.0)), 0.0)
