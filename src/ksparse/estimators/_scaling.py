"""Columns of one size: variance one, centred where that costs nothing; a constant column becomes zero."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

FLAT = 1e-12  # of a column's mean square: a variance below it is rounding


class Scaling:
    """z = (x − centre)·factor, column by column; for sparse rows, and without an intercept, the centre is zero."""

    def __init__(self, X: Any, weight: NDArray[np.float64] | None, intercept: bool) -> None:
        self.sparse = hasattr(X, "tocsr")
        share = np.full(X.shape[0], 1.0 / X.shape[0]) if weight is None else weight / weight.sum()
        largest = np.asarray(abs(X).max(axis=0).toarray() if self.sparse else np.abs(X).max(axis=0)).ravel()
        unit = np.where(largest > 0, largest, 1.0).astype(np.float64)  # first, so that no square overflows
        if self.sparse:
            Z = X.astype(np.float64).multiply(1.0 / unit).tocsr()
            mean, square = np.asarray(share @ Z).ravel(), np.asarray(share @ Z.multiply(Z)).ravel()
            spread = square - mean**2 if intercept else square
        else:
            mean = share @ (X / unit)
            square = share @ (X / unit) ** 2
            spread = share @ (X / unit - mean) ** 2 if intercept else square
        usable = spread > FLAT * square
        self.factor = np.where(usable, 1.0 / np.sqrt(np.where(usable, spread, 1.0)), 0.0) / unit
        self.centre = mean * unit if intercept and not self.sparse else np.zeros(X.shape[1])

    def apply(self, X: Any) -> Any:
        """The scaled rows, of X's own precision."""
        if self.sparse:
            Z = X.tocsr(copy=True)
            Z.data = Z.data * self.factor[Z.indices].astype(Z.dtype)
            return Z
        return ((X - self.centre) * self.factor).astype(X.dtype, copy=False)

    def to_original(self, v: NDArray[np.float64], constant: float) -> tuple[NDArray[np.float64], float]:
        """Coefficients and intercept for the columns as they were."""
        w = v * self.factor
        return w, constant - float(self.centre @ w)

    def to_scaled(self, w: NDArray[np.float64], constant: float) -> tuple[NDArray[np.float64], float]:
        """The other way round."""
        return np.divide(w, self.factor, out=np.zeros_like(w), where=self.factor > 0), constant + float(self.centre @ w)
