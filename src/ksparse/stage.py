"""The seam for scale: what one pass over the rows gives at a snapshot x̃.

In memory that is the full gradient and the slopes of all rows.  Of a source it is the gradient, a sum over the blocks,
and the rows that were drawn, gathered on the way: the steps of the stage then run on those.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ._source import Source, stacked
from ._threads import ordered_map
from .matrix import reads_whole_rows
from .pass_kernels import slot_curvature, sweep
from .passes import as_scipy, membership, on_block, parts, pick_rows, summed
from .rows import CSR, Rescaled, Rows, Scaled, as_rows, entries, frozen

Array = NDArray[np.float64]
BLOCK = 1 << 13  # numbers a block of rows holds in a pass: predictions and sums then meet it in cache


class Stage(NamedTuple):
    """What one pass over the rows gives at a snapshot x̃: all that the steps of a stage need.

    In memory `rows` are all rows and `idx` the draws; of a source they are the sampled rows, and `idx` points into
    them.
    """

    value: float  # F(x̃)
    mu: Array  # the gradient of the data term on all columns; the ridge is left to the steps
    mu_ones: float  # the same for the intercept
    slope: Array  # w̃_i φ'(z_i) at z_i = a_i·x̃: the snapshot's part of every later difference
    rows: Rows
    y: Array
    weight: Array
    offset: Array
    row_max: Array  # max |a_ij| over the columns that compete for the k slots
    idx: NDArray[np.int64]

    def spent(self) -> Stage:
        """What the next stage may write to, when the steps are done: draws and sparse rows go before new ones come."""
        rows: Any = None if isinstance(self.rows, CSR) else self.rows
        return self._replace(idx=self.idx[:0].copy(), rows=rows)


class Point:
    """An iterate and the loss, as a pass needs them.  It travels as the few columns in play, not as d numbers."""

    def __init__(self, first: int, column: Any, x: Array, d: int, n: int, loss: Any, places: Any = None) -> None:
        self.first, self.column, self.x, self.d, self.n, self.loss = first, column, x, d, n, loss
        self._places = places  # of every column, as in Slots

    def __reduce__(self) -> tuple[type, tuple[Any, ...]]:
        return Point, (self.first, self.column, self.x, self.d, self.n, self.loss)

    @property
    def slots(self) -> tuple[Any, ...]:
        """column, x, slot_of, member."""
        if self._places is None:
            self._places = membership(self.column[self.first :], self.d, self.first)
        return self.column, self.x, *self._places

    def vector(self) -> Array:
        full = np.zeros(self.d)
        full[self.column[self.first :]] = self.x[self.first :]
        return full

    def at(self, x: Array) -> Point:
        """The same columns with other coefficients."""
        return Point(self.first, self.column, x, self.d, self.n, self.loss, self._places)

    def of_few(self) -> tuple[Point, NDArray[np.int64]]:
        """The same for rows that hold the columns in play only, in ascending order; and those columns."""
        columns = np.sort(self.column[self.first :])
        column = np.concatenate([self.column[: self.first], np.searchsorted(columns, self.column[self.first :])])
        return Point(self.first, column, self.x, columns.size, self.n, self.loss), columns


def sweep_rows(
    point: Point, rows: Rows, y: Array, weight: Array, offset: Array, slope: Array, mu: Array, split: Any = None
) -> tuple[float, float]:
    """The sums of loss and slope over n; the slopes into `slope` and, unless `mu` is empty, the gradient added to `mu`.

    The parts depend on the data alone and are added in their order: the same bits whatever the number of threads.
    """
    y, weight, offset = (
        frozen(y),
        frozen(weight),
        frozen(offset),
    )  # parts that have travelled may be read-only: one type
    split = parts(rows) if split is None else split
    full_x = point.vector() if reads_whole_rows(rows, point.x.size) else np.empty(0)
    block = max(4, BLOCK // max(1, entries(rows) // y.size) // 4 * 4)
    slots = point.slots

    def part(bounds: tuple[int, int]) -> tuple[float, float, Array]:
        # a single part sums straight into mu; several need sums of their own
        sums = mu if len(split) == 1 else np.zeros(mu.size)
        totals = sweep(
            rows, bounds[0], bounds[1], block, point.first, *slots, full_x,
            y, weight, offset, point.loss, 1.0 / point.n, slope, sums,
        )  # fmt: skip
        return *totals, sums

    total_loss = total_slope = 0.0
    for loss_sum, slope_sum, sums in ordered_map(part, split):
        total_loss += loss_sum
        total_slope += slope_sum
        if sums is not mu:
            mu += sums
    return total_loss / point.n, total_slope / point.n


# --- sources ---------------------------------------------------------------------------------------------------------
class Gathered(NamedTuple):
    """What a block contributes to a stage."""

    loss: float
    mu_ones: float
    mu: Array
    slope: Array  # of the rows wanted
    rows: Any  # those rows; None if none is


def sweep_block(point: Point, block: Any, y: Array, weight: Array, offset: Array, wanted: Any) -> Gathered:
    rows, slope, mu = as_rows(block), np.empty(y.size), np.zeros(point.d)
    loss, mu_ones = sweep_rows(point, rows, y, weight, offset, slope, mu)
    if not wanted.any():
        return Gathered(loss, mu_ones, mu, slope[:0], None)
    whole = as_scipy(rows) if isinstance(rows, CSR) else rows
    return Gathered(loss, mu_ones, mu, slope[wanted], pick_rows(whole, wanted))


def gather_stage(
    point: Point, source: Source, y: Array, weight: Array, offset: Array, row_max: Array, idx: Any, reuse: Stage | None
) -> Stage:
    """One pass over a source: the gradient, and the rows that `idx` draws; `reuse` is a stage no longer needed."""
    if isinstance(source, Rescaled) and (point.first or not source.centre.any()):
        return _rescaled_stage(point, source, y, weight, offset, row_max, idx, reuse)
    drawn, place = np.unique(idx, return_inverse=True)
    wanted = np.zeros(point.n, dtype=bool)
    wanted[drawn] = True
    mu = np.zeros(point.d) if reuse is None else reuse.mu
    mu[:] = 0.0
    loss = mu_ones = 0.0
    sample = Sample(source, min(point.n, idx.size), None if reuse is None else reuse.rows)
    slopes = [np.empty(0)]
    for part in source.map(functools.partial(sweep_block, point), y, weight, offset, wanted):
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite ends the run
            loss += part.loss
            mu_ones += part.mu_ones
            mu += part.mu
        if part.rows is not None:
            slopes.append(part.slope)
            sample.add(part.rows)
        del part  # with its d numbers, before the next one comes with its own
    return Stage(
        loss, mu, mu_ones, np.concatenate(slopes), sample.rows(),
        frozen(y[drawn]), frozen(weight[drawn]), frozen(offset[drawn]), row_max[drawn],
        place.reshape(idx.shape).astype(np.int64, copy=False),
    )  # fmt: skip


def _rescaled_stage(point: Point, source: Rescaled, *others: Any) -> Stage:
    """The same for columns in other units, from the blocks as they are stored: scaling all of them would cost more than
    all else.  Only the sums and the rows that are drawn change their units."""
    centre, factor, first = source.centre, source.factor, point.first
    x = point.x.copy()
    x[first:] *= factor[point.column[first:]]
    if first:
        x[0] -= float(centre[point.column[1:]] @ x[1:])
    stage = gather_stage(point.at(x), source.source, *others)
    with np.errstate(over="ignore", invalid="ignore"):
        if first and centre.any():
            np.subtract(stage.mu, stage.mu_ones * centre, out=stage.mu)
        np.multiply(stage.mu, factor, out=stage.mu)
    source.times = source.source.times
    if isinstance(stage.rows, CSR):
        data: Any = stage.rows.data.base  # our own memory, unless it has travelled
        if not (isinstance(data, np.ndarray) and data.flags.writeable and data.shape == stage.rows.data.shape):
            data = stage.rows.data.copy()
        Scaled(None, centre, factor).scale(data, stage.rows.indices)
        return stage._replace(rows=stage.rows._replace(data=frozen(data)))
    sample: Any = stage.rows.base  # our own memory, too, which the next stage uses again
    sample[: len(stage.rows)] -= centre.astype(sample.dtype)
    sample[: len(stage.rows)] *= factor.astype(sample.dtype)
    return stage


class Sample:
    """Rows that come one part after the other; dense ones go to the memory of the last sample, if that is there."""

    def __init__(self, source: Source, most: int, last: Any) -> None:
        self._source, self._filled = source, 0
        self._parts: list[Any] = []
        if not source.sparse:
            buffer = getattr(last, "base", None)
            fits = buffer is not None and len(buffer) >= most
            self._buffer: Any = buffer if fits else np.empty((most, source.shape[1]), source.dtype)

    def add(self, rows: Any) -> None:
        if self._source.sparse:
            self._parts.append(rows)
        else:
            self._buffer[self._filled : self._filled + len(rows)] = rows
            self._filled += len(rows)

    def rows(self) -> Rows:
        if not self._source.sparse:
            return frozen(self._buffer[: self._filled])
        if not self._parts:
            from scipy import sparse

            return as_rows(sparse.csr_array((0, self._source.shape[1]), dtype=self._source.dtype))
        return as_rows(stacked(self._parts))


def source_objective(point: Point, source: Source, y: Array, weight: Array, offset: Array) -> float:
    """The mean loss, from the columns in play alone."""
    few, columns = point.of_few()
    totals = source.map(functools.partial(_block_objective, few), y, weight, offset, columns=columns)
    return float(sum(totals))


def _block_objective(point: Point, block: Any, y: Array, weight: Array, offset: Array) -> float:
    return sweep_rows(point, as_rows(block), y, weight, offset, np.empty(y.size), np.empty(0))[0]


def source_slopes(point: Point, source: Source, y: Array, weight: Array, offset: Array) -> Array:
    """The gradient of the data term along each slot, from the columns in play alone."""
    few, columns = point.of_few()
    blocks = source.map(functools.partial(_block_slopes, few), y, weight, offset, columns=columns)
    ones, mu = summed(blocks)
    return np.concatenate([np.full(point.first, ones), mu[few.column[point.first :]]])


def _block_slopes(point: Point, block: Any, y: Array, weight: Array, offset: Array) -> tuple[float, Array]:
    mu = np.zeros(point.d)
    return sweep_rows(point, as_rows(block), y, weight, offset, np.empty(y.size), mu)[1], mu


def point_curvature(point: Point, rows: Rows | Source, y: Array, weight: Array, offset: Array) -> Array:
    """The mean over the rows of w̃φ''a² along each slot."""
    if isinstance(rows, Source):
        few, columns = point.of_few()
        function = functools.partial(on_block, functools.partial(_curvature, few))
        return summed(rows.map(function, y, weight, offset, columns=columns))[0]
    return _curvature(point, rows, y, weight, offset)[0]


def _curvature(point: Point, rows: Rows, y: Array, weight: Array, offset: Array) -> tuple[Array]:
    bend, targets = np.zeros(point.x.size), (frozen(y), frozen(weight), frozen(offset))
    slot_curvature(rows, point.first, *point.slots, *targets, point.loss, np.empty(point.x.size), point.n, bend)
    return (bend,)
