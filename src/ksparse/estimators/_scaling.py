"""Columns of one size: variance one, centred where that costs nothing; a constant column becomes zero."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..matrix import as_rows
from ..passes import moments

FLAT = 1e-12  # of a column's mean square: a variance below it is rounding
SAFE = 1e100  # mean squares up to which nothing overflows, and whose inverses are no less safe


class Scaling:
    """`rows` = (X − centre)·factor, column by column; for sparse rows, and without an intercept, the centre is zero."""

    def __init__(self, X: Any, weight: NDArray[np.float64] | None, intercept: bool) -> None:
        share = np.full(X.shape[0], 1.0 / X.shape[0]) if weight is None else weight / weight.sum()
        unit = np.ones(X.shape[1])
        mean, square = _moments(X, share)
        extreme = np.flatnonzero(~((square > 1.0 / SAFE) & (square < SAFE)))
        if extreme.size:  # first to a size whose squares are floats; a column of zeros stays as it is
            largest = abs(X[:, extreme]).max(axis=0)
            largest = np.ravel(largest.toarray() if hasattr(largest, "toarray") else largest).astype(np.float64)
            unit[extreme] = np.where(largest > 0.0, largest, 1.0)
            if (unit != 1.0).any():
                X = _scaled(X, np.zeros(unit.size), 1.0 / unit)
                mean, square = _moments(X, share)
        spread = square - mean**2 if intercept else square
        usable = spread > FLAT * square
        factor = np.where(usable, 1.0 / np.sqrt(np.where(usable, spread, 1.0)), 0.0)
        centre = np.zeros(unit.size) if _is_sparse(X) or not intercept else mean
        self.rows, self.centre, self.factor = _scaled(X, centre, factor), centre * unit, factor / unit

    def to_original(self, v: NDArray[np.float64], constant: float) -> tuple[NDArray[np.float64], float]:
        """Coefficients and intercept for the columns as they were."""
        w = v * self.factor
        return w, constant - float(self.centre @ w)

    def to_scaled(self, w: NDArray[np.float64], constant: float) -> tuple[NDArray[np.float64], float]:
        """The other way round."""
        return np.divide(w, self.factor, out=np.zeros_like(w), where=self.factor > 0), constant + float(self.centre @ w)


def _is_sparse(X: Any) -> bool:
    return hasattr(X, "tocsr")


def _scaled(X: Any, centre: NDArray[np.float64], factor: NDArray[np.float64]) -> Any:
    """(X − centre)·factor in a copy of X, of its own precision; a sparse X has no centre."""
    if _is_sparse(X):
        Z = X.tocsr(copy=True)
        Z.data = Z.data * factor[Z.indices].astype(Z.dtype)
        return Z
    Z = np.subtract(X, centre.astype(X.dtype), order="C")
    Z *= factor.astype(X.dtype)
    return Z


def _moments(X: Any, share: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The weighted mean and mean square of every column, in one pass."""
    g, mean, square = np.zeros(X.shape[1]), np.zeros(X.shape[1]), np.zeros(X.shape[1])
    moments(as_rows(X), 0, X.shape[0], share, share, g, mean, square)
    return mean, square
