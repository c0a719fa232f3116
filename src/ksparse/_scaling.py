"""Columns of one size: variance one, centred if there is an intercept; a constant column becomes zero."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._source import Source
from .passes import column_extremes, norms, row_sums
from .rows import Scaled, as_rows, is_sparse

FLAT = 1e-12  # of a column's mean square: a variance below it is rounding
FAR = 1e8  # of the variance: a mean square above it is centred first, or the variance is mostly rounding
ROUNDING = 16  # units in the last place by which the mean of a constant column may differ from it
LEAST = 1.0 / np.finfo(np.float64).max  # a column below it counts as zero: its coefficient would be infinite
SAFE = 1e100  # mean squares up to which nothing overflows, and whose inverses are no less safe


class Scaling:
    """`view` = (X − centre)·factor, column by column; without an intercept the centre is zero.

    One pass over X, and no copy, unless a column is so large, so small or so far from zero that its squares would
    not be floats to be trusted.  A solver that works on a copy of the view (`read` is false) gets sparse rows with a
    centre of zero, so that the copy is sparse too; to one that reads the view, sparse and dense rows are the same.
    """

    def __init__(self, X: Any, weight: NDArray[np.float64] | None, intercept: bool, read: bool = False) -> None:
        share = np.full(X.shape[0], 1.0 / X.shape[0]) if weight is None else weight / weight.sum()
        d = X.shape[1]
        unit, shift = np.ones(d), np.zeros(d)
        mean, square = _moments(X, share)
        if not (np.isfinite(mean).all() and np.isfinite(square).all()):
            if isinstance(X, Source):
                norms(X, np.empty(0, np.int64))  # names the first that is not finite
            else:
                _refuse_infinite(X)
        zero = (mean == 0.0) & (square == 0.0)
        extreme = np.flatnonzero(~zero & ~((square > 1.0 / SAFE) & (square < SAFE)))
        if extreme.size:  # first to a size whose squares are floats
            largest, _ = column_extremes(X, extreme, np.zeros(extreme.size))
            unit[extreme] = np.where(largest > LEAST, largest, 1.0)
            if (unit != 1.0).any():
                X = Scaled(X, shift, 1.0 / unit).copy()
                mean, square = _moments(X, share)
        spread = square - mean**2 if intercept else square
        far = np.flatnonzero(square > FAR * spread)
        if intercept and far.size:
            away, stored = column_extremes(X, far, mean[far])
            # the others are constant; of sparse ones, so far from zero, no entry can be missing
            moves = (away > ROUNDING * np.finfo(X.dtype).eps * np.abs(mean[far])) & (stored == X.shape[0])
            far = far[moves]
            if far.size:
                shift[far] = mean[far]
                X = _shifted(X, shift)
                mean, square = _moments(X, share)
                with np.errstate(over="ignore", invalid="ignore"):  # of a source, units of 1e-305: taken for constant
                    spread = square - mean**2
        usable = spread > FLAT * square
        factor = np.where(usable, 1.0 / np.sqrt(np.where(usable, spread, 1.0)), 0.0)
        centre = mean if intercept and (read or not is_sparse(X)) else np.zeros(d)
        with np.errstate(over="ignore"):
            factor[factor / unit == np.inf] = 0.0
        self.view = Scaled(X, centre, factor)
        self.centre, self.factor = centre, factor
        if shift.any() or (unit != 1.0).any():
            self.centre, self.factor = (centre + shift) * unit, factor / unit

    @property
    def sizes(self) -> NDArray[np.float64]:
        """The standard deviation of every column; 0 for those that are constant."""
        return np.divide(1.0, self.factor, out=np.zeros_like(self.factor), where=self.factor > 0)

    def to_original(self, v: NDArray[np.float64], constant: float) -> tuple[NDArray[np.float64], float]:
        """Coefficients and intercept for the columns as they were; what overflows is for the caller to see."""
        with np.errstate(over="ignore", invalid="ignore"):
            w = v * self.factor
            return w, constant - float(self.centre @ w)

    def to_scaled(self, w: NDArray[np.float64], constant: float) -> tuple[NDArray[np.float64], float]:
        """The other way round."""
        with np.errstate(over="ignore", invalid="ignore"):
            v = np.divide(w, self.factor, out=np.zeros_like(w), where=self.factor > 0)
            return v, constant + float(self.centre @ w)


def in_precision(values: NDArray[np.float64], dtype: Any) -> NDArray[Any]:
    """Coefficients in the precision of X, or in float64 where that would make them infinite or zero."""
    with np.errstate(over="ignore", under="ignore"):
        cast = values.astype(dtype)
    return cast if np.array_equal(np.isfinite(cast) & (cast != 0.0), values != 0.0) else values


def _refuse_infinite(A: Any) -> None:
    stored = A.tocoo() if is_sparse(A) else None
    bad = np.argwhere(~np.isfinite(A if stored is None else stored.data))[:1]
    if bad.size:
        at = tuple(bad[0]) if stored is None else (stored.row[bad[0, 0]], stored.col[bad[0, 0]])
        value = A[at] if stored is None else stored.data[bad[0, 0]]
        raise ValueError(f"A must be finite, got {value} in row {at[0]}, column {at[1]}; remove or impute it first")


def _shifted(X: Any, shift: NDArray[np.float64]) -> Any:
    """X − shift in a copy; of sparse rows the stored entries, so that only full columns may have a shift."""
    return Scaled(X, shift, np.ones(shift.size)).copy()


def _moments(X: Any, share: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The weighted mean and mean square of every column, in one pass."""
    mean, _, square = row_sums(as_rows(X), share, share)  # this mean is NaN too if a row of weight zero is
    return mean, square
