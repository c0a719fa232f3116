"""Standardised columns: variance one, centred if there is an intercept.  The only place that centres and scales."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .base import Array, Columns, Design, Point, Scaling, Stage
from .blocks import without_gradient
from .kernels import CSR
from .matrix import frozen, scale_entries

FLAT = 1e-12  # of a column's mean square: a variance below it is rounding
FAR = 1e8  # of the variance: a mean square above it is centred first, or the variance is mostly rounding
ROUNDING = 16  # units in the last place by which the mean of a constant column may differ from it
LEAST = 1.0 / np.finfo(np.float64).max  # a column below it counts as zero: its coefficient would be infinite
SAFE = 1e100  # mean squares up to which nothing overflows, and whose inverses are no less safe


def standardize(design: Design, weight: Array | None, intercept: bool, by_rows: bool = True) -> Standardized:
    """The design with columns of variance one, centred if there is an intercept; a constant column becomes zero.

    One pass over the rows, and no copy, unless a column is so large, so small or so far from zero that its squares
    cannot be trusted.  For a solver that works on rows (`by_rows`) sparse columns are not centred: it needs a copy of
    the rows, which would no longer be sparse.
    """
    n, d = design.shape
    share = np.full(n, 1.0 / n) if weight is None else weight / weight.sum()
    unit, shift = np.ones(d), np.zeros(d)
    mean, _, square = design.moments(share, share)  # not finite if an entry is not, even in a row of weight zero
    if not (np.isfinite(mean).all() and np.isfinite(square).all()):
        design.check_finite()
    extreme = np.flatnonzero(~((square > 1.0 / SAFE) & (square < SAFE)))  # columns of zeros among them
    if extreme.size:  # first to a size whose squares are floats
        largest, _ = design.extremes(extreme, np.zeros(extreme.size))
        unit[extreme] = np.where(largest > LEAST, largest, 1.0)
        if (unit != 1.0).any():
            design = design.scaled(np.zeros(d), 1.0 / unit)
            mean, _, square = design.moments(share, share)
    variance = square - mean**2 if intercept else square
    far = np.flatnonzero(square > FAR * variance)
    if intercept and far.size:
        away, stored = design.extremes(far, mean[far])
        # the others are constant; a sparse column so far from zero stores every entry
        moves = (away > ROUNDING * np.finfo(design.dtype).eps * np.abs(mean[far])) & (stored == n)
        far = far[moves]
        if far.size:
            shift[far] = mean[far]
            design = design.scaled(shift, np.ones(d))
            mean, _, square = design.moments(share, share)
            with np.errstate(over="ignore", invalid="ignore"):  # of a source, columns of 1e-305: taken for constant
                variance = square - mean**2
    usable = variance > FLAT * square
    factor = np.where(usable, 1.0 / np.sqrt(np.where(usable, variance, 1.0)), 0.0)
    centre = mean if intercept and not (by_rows and design.sparse) else np.zeros(d)
    with np.errstate(over="ignore"):
        factor[factor / unit == np.inf] = 0.0
    left = (mean - centre) * factor if intercept else np.zeros(d)
    return Standardized(design, centre, factor, left, (centre + shift) * unit, factor / unit, by_rows)


class Standardized(Design):
    """(stored − centre)·factor, column by column; nothing is copied until rows themselves are asked for.

    Sums and products are computed from the rows as they are stored and then converted.
    """

    checked = True

    def __init__(
        self,
        stored: Design,
        centre: Array,
        factor: Array,
        mean: Array,
        given_centre: Array,
        given_factor: Array,
        by_rows: bool,
    ) -> None:
        self.shape, self.dtype, self.sparse, self.entries = stored.shape, stored.dtype, stored.sparse, stored.entries
        self.in_memory = stored.in_memory
        self.stored, self._centre, self._factor, self._mean = stored, centre, factor, mean
        self.centre, self.factor = given_centre, given_factor  # for the columns as they were given
        self.scaling = None if by_rows else (centre, factor)

    # --- coefficients
    @property
    def sizes(self) -> Array:
        """The standard deviation of every column; 0 for those that are constant."""
        return np.divide(1.0, self.factor, out=np.zeros_like(self.factor), where=self.factor > 0)

    @np.errstate(over="ignore", invalid="ignore")
    def to_original(self, v: Array, constant: Any) -> tuple[Array, Any]:
        """Coefficients and intercept for the columns as they were given, or a row and a number for each of several
        models; the caller looks for overflow."""
        w = v * self.factor
        shift = w @ self.centre
        return w, constant - (shift if v.ndim > 1 else float(shift))

    @np.errstate(over="ignore", invalid="ignore")
    def to_scaled(self, w: Array, constant: float) -> tuple[Array, float]:
        """Coefficients and intercept for the standardised columns."""
        v = np.divide(w, self.factor, out=np.zeros_like(w), where=self.factor > 0)
        return v, constant + float(self.centre @ w)

    @functools.cached_property
    def materialized(self) -> Design:
        """The standardised rows themselves: a copy in memory, or blocks that are scaled as they come."""
        return self.stored.scaled(self._centre, self._factor)

    # --- sums over the rows
    @np.errstate(over="ignore", invalid="ignore")
    def moments(self, first: Array, second: Array) -> tuple[Array, Array, Array]:
        centre, factor = self._centre, self._factor
        g, a, q = self.stored.moments(first, second)
        g = (g - first.sum() * centre) * factor
        if second.size:
            q = (q + centre * (second.sum() * centre - 2.0 * a)) * factor**2
            a = (a - second.sum() * centre) * factor
        return g, a, q

    @np.errstate(over="ignore", invalid="ignore")
    def left_product(self, block: Array, which: NDArray[np.int64] | None = None) -> Array:
        out = self.stored.left_product(block, which)
        if self._centre.any():
            out -= np.outer(block.sum(axis=1), self._centre)
        out *= self._factor
        return out

    def products(self, columns: Columns, weight: Array) -> tuple[Array, Array]:
        first, matrix = self.stored.products(columns, weight)
        centre, factor, total = self._centre[columns], self._factor[columns], float(weight.sum())
        across = np.outer(first, centre)
        matrix = matrix - across - across.T + total * np.outer(centre, centre)
        return (first - total * centre) * factor, matrix * np.outer(factor, factor)

    def column_moments(self, weight: Array, centred: bool) -> tuple[Array, Array]:
        return self._mean if centred else np.zeros(self.shape[1]), np.where(self._factor > 0.0, 1.0, 0.0)

    # --- columns and rows
    def read_columns(self, columns: Columns, out: Array, scaling: Scaling | None = None) -> None:
        centre, factor = self._centre[columns], self._factor[columns]
        if scaling is not None:  # both at once
            centre = centre + np.divide(scaling[0], factor, out=np.zeros_like(factor), where=factor > 0.0)
            factor = factor * scaling[1]
        self.stored.read_columns(columns, out, (centre, factor))

    def stored_columns(self, columns: Columns) -> tuple[Any, Array, Array]:
        return self.stored.stored_columns(columns)[0], self._centre[columns], self._factor[columns]

    def norms(self, kept: Columns) -> tuple[Array, Array, Array]:
        return self.materialized.norms(kept)

    def largest_squares(self, r: int, kept: Columns) -> Array:
        return self.materialized.largest_squares(r, kept)

    def row_codes(self) -> NDArray[np.uint64]:
        return (self.materialized if self.scaling is None else self.stored).row_codes()

    def extremes(self, columns: Columns, centre: Array) -> tuple[Array, NDArray[np.int64]]:
        return self.materialized.extremes(columns, centre)

    def check_finite(self) -> None:
        """All entries were looked at when the columns were standardised."""

    def load(self) -> Any:
        return self.materialized.load()

    def scaled(self, centre: Array, factor: Array) -> Design:
        return self.materialized.scaled(centre, factor)

    def unscaled(self) -> tuple[Design, Array, Array]:
        return self.stored, self._centre, self._factor

    @np.errstate(over="ignore", invalid="ignore")
    def single_copy(self, centre: Array, factor: Array) -> NDArray[np.float32] | None:
        shift = np.divide(centre, self._factor, out=np.zeros_like(centre), where=self._factor > 0.0)
        return self.stored.single_copy(self._centre + shift, self._factor * factor)

    # --- one pass at an iterate
    def _as_stored(self, point: Point) -> Point:
        """The iterate for the columns as they are stored; only with an intercept do they have a centre."""
        first, columns, x = point.first, point.column[point.first :], point.x.copy()
        x[first:] *= self._factor[columns]
        if first:
            x[0] -= float(self._centre[columns] @ x[1:])
        return point.at(x)

    def stage(
        self, point: Point, y: Array, weight: Array, offset: Array, row_max: Array, idx: Any, reuse: Stage | None
    ) -> Stage:
        if self.in_memory:
            return self.materialized.stage(point, y, weight, offset, row_max, idx, reuse)
        # from the blocks as they are stored, for scaling all of them would cost more than all else
        stage = self.stored.stage(self._as_stored(point), y, weight, offset, row_max, idx, reuse)
        centre, factor = self._centre, self._factor
        with np.errstate(over="ignore", invalid="ignore"):
            if point.first and centre.any():
                np.subtract(stage.mu, stage.mu_ones * centre, out=stage.mu)
            np.multiply(stage.mu, factor, out=stage.mu)
        if isinstance(stage.rows, CSR):
            data: Any = stage.rows.data.base  # memory of the stage's own, unless the rows came from another process
            if not (isinstance(data, np.ndarray) and data.flags.writeable and data.shape == stage.rows.data.shape):
                data = stage.rows.data.copy()
            scale_entries(data, stage.rows.indices, centre, factor)
            return stage._replace(rows=stage.rows._replace(data=frozen(data)))
        sample: Any = stage.rows.base  # memory of the stage's own, which the next stage uses again
        sample[: len(stage.rows)] -= centre.astype(sample.dtype)
        sample[: len(stage.rows)] *= factor.astype(sample.dtype)
        return stage

    def drawn(self, point: Point, y: Array, weight: Array, offset: Array, row_max: Array, idx: Any) -> Stage:
        if self.in_memory:
            return self.materialized.drawn(point, y, weight, offset, row_max, idx)
        return without_gradient(self.stage(point, y, weight, offset, row_max, idx, None))

    def objective(self, point: Point, y: Array, weight: Array, offset: Array) -> float:
        if self.in_memory and "materialized" in vars(self):  # the copy that all steps worked on
            return self.materialized.objective(point, y, weight, offset)
        return self.stored.objective(self._as_stored(point), y, weight, offset)

    def slot_derivatives(self, point: Point, y: Array, weight: Array, offset: Array) -> tuple[Array, Array]:
        return self.materialized.slot_derivatives(point, y, weight, offset)

    @property
    def room_for_columns(self) -> float:
        return self.stored.room_for_columns

    @property
    def sample_rows(self) -> int | None:
        return self.stored.sample_rows


def in_precision(values: NDArray[np.float64], dtype: Any) -> NDArray[Any]:
    """Coefficients in the precision of X, or in float64 where that would make them infinite or zero."""
    if values.dtype == dtype:
        return values
    with np.errstate(over="ignore", under="ignore"):
        cast = values.astype(dtype)
    return cast if np.array_equal(np.isfinite(cast) & (cast != 0.0), values != 0.0) else values
