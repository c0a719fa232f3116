"""Refits on a few columns by damped Newton steps.

`Refitter` belongs to one problem and counts the passes over its rows; a `Fit` is a support with its coefficients and
the first and second derivatives of the loss at every row.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import losses
from ..problem import Problem

Array = NDArray[np.float64]
NONE = np.empty(0)
SHARE = 0.03  # rows with less than this share of the mean curvature are left out of a Hessian
FAR = 1e8  # a start whose F is this many times the minimum is far away: rounding needs a second step
MOST = 0.6  # share of the rows above which reading all of them is faster than picking some
MANY = 40_000  # rows that are enough for a Hessian that only gives a direction
CHUNK = 1 << 17  # numbers of a chunk of columns: it stays in the cache
DAMPING, MOST_DAMPING = 1e-6, 1e3  # Levenberg damping, as shares of the largest curvature that a column can have


Hessian = tuple[Array, Array, float]


@dataclass
class Fit:
    """Columns (the kept ones first), their coefficients, and the derivatives of the loss at every row."""

    columns: NDArray[np.int64]
    x: Array
    constant: float
    objective: float
    derivative: Array  # w̃φ' of every row
    curvature: Array  # w̃φ'' of every row
    seen: tuple[Array, Array] | None = None  # ∇F and the curvature of every column there, once a pursuit has asked


class DenseColumns:
    """The columns used last, one dense row each: at least `size` of them, more if the data are large."""

    def __init__(self, problem: Problem, size: int) -> None:
        self.problem = problem
        spare = min(2 * size, problem.design.entries // (2 * problem.n)) if problem.design.in_memory else 0
        self.size = min(problem.d, max(size, spare))
        self._dense = np.empty((0, problem.n))
        self._copy = self._dense
        self._slot: dict[int, int] = {}  # the slot of each column, in the order of last use

    def take(self, columns: NDArray[np.int64], rows: NDArray[np.int64] | slice | None = None) -> NDArray[np.float64]:
        """A copy of some columns, on some rows or all.  The next call overwrites a copy of all rows."""
        wanted = columns.tolist()
        new = [j for j in wanted if j not in self._slot]
        if max(self.size, len(wanted)) > len(self._dense):  # the first call, or more columns than ever before
            self._dense, self._slot, new = np.empty((max(self.size, len(wanted)), self.problem.n)), {}, wanted
        for j in wanted:
            if j in self._slot:
                self._slot[j] = self._slot.pop(j)  # now the one used last
        if new:
            free = list(set(range(len(self._dense))) - set(self._slot.values()))
            while len(free) < len(new):
                free.append(self._slot.pop(next(iter(self._slot))))
            free = sorted(free)[: len(new)]
            if free[-1] - free[0] == len(new) - 1:  # neighbouring slots: read straight into their place
                self.problem.design.read_columns(np.array(new, dtype=np.int64), self._dense[free[0] : free[-1] + 1])
            else:
                block = np.empty((len(new), self.problem.n))
                self.problem.design.read_columns(np.array(new, dtype=np.int64), block)
                self._dense[free] = block
            self._slot |= dict(zip(new, free, strict=True))
        slots = np.array([self._slot[j] for j in wanted], dtype=np.int64)
        if isinstance(rows, np.ndarray):
            return self._dense[np.ix_(slots, rows)]
        if rows is not None:
            return self._dense[slots, rows]
        # into the same memory every time: fresh pages would cost more than the copy
        if len(self._copy) < len(wanted):
            self._copy = np.empty((len(wanted), self.problem.n))
        return self._dense.take(slots, axis=0, out=self._copy[: len(wanted)], mode="clip")


class Refitter:
    """Refits of one problem, and what they need of its columns.

    Numbers may overflow on the way: an objective that is not finite is never taken for the better one.
    """

    def __init__(self, problem: Problem, check: Any, store: int = 0) -> None:
        self.problem, self.check = problem, check
        self.passes = 0
        bound = losses.curvature_bound(problem.loss)
        self.quadratic = getattr(problem.loss, "quadratic", False)
        self._steepest = bound if math.isfinite(bound) else 1.0
        self.damping = DAMPING  # at the start of the last fit
        self._store = DenseColumns(problem, store)
        self._thin = problem.design.thin

    # --- all columns ---------------------------------------------------------------------------------------------
    @functools.cached_property
    def spread(self) -> Array:
        """The variance of every column (without an intercept its mean square); zero for constant columns."""
        return self._moments[1]

    @property
    def centre(self) -> Array:
        """The mean of every column (zero without an intercept)."""
        return self._moments[0]

    @functools.cached_property
    def _moments(self) -> tuple[Array, Array]:
        """The mean of every column (zero without an intercept) and its variance."""
        self.passes += not self.problem.design.checked  # known, where columns were standardised
        return self.problem.design.column_moments(self.problem.weight, self.problem.intercept)

    @np.errstate(over="ignore", invalid="ignore")
    def means(self, derivative: Array, curvature: Array) -> tuple[Array, Array, Array]:
        """The means over the rows of derivative_i·a_i, curvature_i·a_i and curvature_i·a_i²."""
        g, a, q = self.problem.design.moments(derivative, curvature)
        return g / self.problem.n, a / self.problem.n, q / self.problem.n

    def most(self, columns: NDArray[np.int64]) -> Array:
        """The largest curvature that each column can have, of which the damping is a share."""
        return self._steepest * self.spread[columns]

    # --- some columns --------------------------------------------------------------------------------------------
    def block(self, columns: NDArray[np.int64], rows: NDArray[np.int64] | None = None) -> Array:
        """Columns as the rows of a dense array; on some rows of the data only, if they are given."""
        return self._store.take(columns, rows)

    def heavy(self, curvature: Array, some: bool = False) -> tuple[NDArray[np.int64] | None, float]:
        """The rows that hold nearly all of the curvature, and for how many rows each of them stands.

        None if those are most rows: reading all is faster.  A row of weight two is judged as two rows would be.  With
        `some`, only every second, third, ... of very many rows is taken.
        """
        if self.quadratic:
            return None, 1.0
        at = np.flatnonzero((curvature >= SHARE * curvature.mean() * self.problem.weight) & (curvature > 0.0))
        step = at.size // MANY
        if some and step > 1:
            return at[::step], at.size / at[::step].size
        return (at, 1.0) if at.size < MOST * curvature.size else (None, 1.0)

    def _thin_gram(self, columns: NDArray[np.int64], curvature: Array) -> Hessian:
        """The Hessian from rows with few entries: the mean of h·bbᵀ over all rows, its centre, the mean of h = φ''."""
        problem = self.problem
        self.passes += not problem.design.in_memory
        first, matrix = problem.design.products(columns, curvature)
        total, centre = float(curvature.sum()), np.zeros(columns.size)
        if problem.intercept and total > 0:
            matrix -= np.outer(first, first) / total
            centre = first / total
        return matrix / problem.n, centre, total / problem.n

    def _gram(
        self, take: Callable[[Any], Array], at: NDArray[np.int64] | None, each: float, curvature: Array, count: int
    ) -> Hessian:
        """The Hessian over the rows in `at` (all if None), computed in chunks; each row stands for `each` rows.

        `take` copies the columns on some rows.  Products are taken around a point near the centre, so that little is
        lost when the centre is subtracted.
        """
        n = self.problem.n
        matrix, first, near = np.zeros((count, count)), np.zeros(count), np.zeros(count)
        total, step = 0.0, max(256, CHUNK // max(1, count))
        for start in range(0, n if at is None else at.size, step):
            rows = slice(start, start + step) if at is None else at[start : start + step]
            part, weight = take(rows), curvature[rows]
            if self.problem.intercept:
                if start == 0:
                    near = part.mean(axis=1)
                part -= near[:, np.newaxis]
                first += part @ weight
            total += float(weight.sum())
            part *= np.sqrt(weight)
            matrix += part @ part.T  # of one array with itself, which BLAS does in half the time
        if self.problem.intercept and total > 0:
            matrix -= np.outer(first, first) / total
            near = near + first / total
        return matrix * (each / n), near, total * each / n

    # --- Newton --------------------------------------------------------------------------------------------------
    def empty_fit(self, steps: int = 200) -> Fit:
        """The fit of the intercept and the kept columns alone.

        Newton's steps on an exponential lower z by one each: from a large offset they are many.
        """
        kept, constants = self.problem.kept, [self._first_constant()]
        if self.problem.intercept and not self.quadratic:
            # a Huber loss is flat far from the targets, and an exponential is steep at large offsets
            constants.append(float(np.median(self.problem.y - self.problem.offset)))
            constants += [-float(self.problem.offset.max()), -float(self.problem.offset.min())]
        return self.newton(kept, [(np.zeros(kept.size), constant) for constant in constants], steps)

    @np.errstate(over="ignore", invalid="ignore")
    def _first_constant(self) -> float:
        """An intercept to start from."""
        problem = self.problem
        if not problem.intercept or not self.quadratic:
            return 0.0
        return float(np.average(problem.y - problem.offset, weights=problem.weight))

    @np.errstate(over="ignore", invalid="ignore")
    def newton(
        self,
        columns: NDArray[np.int64],
        starts: list[tuple[Array, float]],
        steps: int = 50,
        tol: float = 1e-10,
        polish: bool = False,
    ) -> Fit:
        """Minimise F over some columns from the best of `starts`, coefficients with their intercepts.

        With `polish` all rows enter the Hessian, and steps go on where the change of F is below its rounding.
        """
        problem, block = self.problem, self.block(columns)
        n, l2 = problem.n, problem.l2

        def look(x: Array, z: Array) -> tuple[float, Array, Array]:
            derivative, curvature = np.empty(n), np.empty(n)
            total = losses.evaluate_rows(problem.loss, z, *problem.targets[:2], derivative, curvature)
            return total / n + problem.ridge(x), derivative, curvature

        def begin(start: tuple[Array, float]) -> tuple[float, Array, Array, Array, float, Array]:
            z = start[0] @ block + (start[1] + problem.offset)
            return *look(start[0], z), *start, z

        points = [begin(start) for start in starts]
        finite = [point for point in points if math.isfinite(point[0])] or points[-1:]
        objective, derivative, curvature, x, constant, z = min(finite, key=lambda point: point[0])
        least = 1e-3 * DAMPING if polish else DAMPING
        share = least if polish or self.quadratic else max(least, 0.1 * self.damping)
        blind, fresh, last = 0, False, math.inf
        hessian: Any = None
        for step in range(steps):
            self.check()
            gradient = block @ derivative / n + l2 * x
            pull = float(derivative.mean()) if problem.intercept else 0.0
            if not fresh:
                hessian = self._hessian(columns, block, curvature, polish)
            dx, shift, predicted = self._direction(columns, gradient, pull, hessian, least)
            if predicted <= tol * abs(objective):
                break  # at the bottom
            if polish and predicted <= 1e-7 * abs(objective) and predicted > 0.05 * last:
                break  # no longer Newton's pace: something runs away, and may
            last, moved = predicted, None
            if share > least:
                dx, shift, predicted = self._direction(columns, gradient, pull, hessian, share)
            while moved is None:
                new_z = z + (dx @ block + shift)
                trial = look(x + dx, new_z)
                if trial[0] <= objective - 1e-3 * predicted:
                    moved = trial
                elif polish and predicted <= 1e-12 * abs(objective):  # beneath the rounding of F
                    blind += 1
                    if trial[0] > objective * (1.0 + 1e-13) or blind > 4:
                        break
                    moved = trial
                elif self.quadratic or share >= MOST_DAMPING:  # a quadratic is not damped
                    break
                else:
                    share *= 10.0
                    dx, shift, predicted = self._direction(columns, gradient, pull, hessian, share)
            if moved is None:
                break
            if step == 0:
                self.damping = share
            # where the quadratic foretold the step well, its Hessian serves another one
            fresh = not fresh and not polish and abs(objective - moved[0] - 0.5 * predicted) < 0.15 * predicted
            before, (objective, derivative, curvature) = objective, moved
            x, z, constant = x + dx, new_z, constant + shift
            share = max(0.1 * share, least)
            # from far away rounding leaves something for a second step to mend
            if self.quadratic and (step > 0 or before <= FAR * objective):
                break
        return Fit(columns, x, constant, objective, derivative, curvature)

    def _direction(
        self, columns: NDArray[np.int64], gradient: Array, pull: float, hessian: Hessian, share: float
    ) -> tuple[Array, float, float]:
        """A damped Newton step, its shift of the intercept, and twice the decrease that the quadratic model predicts.

        The damping is a share of the most curvature that each column can have.  The intercept is damped too, around the
        columns' means (around zero, it would hold a column back that lies far from there), and eliminated: of its
        curvature the part `free` is not damping.
        """
        matrix, centre, weight = hessian
        mean = self.centre[columns]
        gradient, centre = gradient - pull * mean, centre - mean
        free, stiff = 1.0, weight
        if not self.quadratic:
            stiff = weight + share * self._steepest
            free = weight / stiff
        damped = matrix + (weight * (1.0 - free)) * np.outer(centre, centre)
        # a constant column moves all rows as the intercept does: its curvature is that of its value
        most = np.where(self.spread[columns] > 0.0, self.most(columns), self._steepest * mean**2)
        damping = (1e-12 if self.quadratic else share) * most + self.problem.l2
        if not math.isfinite(losses.curvature_bound(self.problem.loss)):
            damping = np.maximum(damping, 1e-13 * matrix.diagonal())  # where the curvature is far above its usual size
        damping[most == 0.0] = max(1.0, self.problem.l2)  # a column of zeros: its coefficient plays no part
        damped.flat[:: columns.size + 1] += damping
        try:
            dx = np.asarray(np.linalg.solve(damped, free * pull * centre - gradient), dtype=np.float64)
        except np.linalg.LinAlgError:
            dx = np.full(columns.size, np.nan)
        shift = -pull / stiff - free * float(centre @ dx) if self.problem.intercept else 0.0
        predicted = -(float(gradient @ dx) + pull * shift)
        return dx, shift - float(mean @ dx), predicted

    def _hessian(self, columns: NDArray[np.int64], block: Array, curvature: Array, whole: bool) -> Hessian:
        """XᵀHX/n without the ridge, its centre (if there is an intercept), the mean of H: over the rows that matter."""
        if self._thin:
            return self._thin_gram(columns, curvature)
        at, each = (None, 1.0) if whole else self.heavy(curvature, True)
        # a copy of all rows, for a slice would be the block itself
        take = (lambda rows: block[:, rows].copy()) if at is None else (lambda rows: block[:, rows])
        matrix, centre, weight = self._gram(take, at, each, curvature, columns.size)
        if (
            at is not None
        ):  # about what the light rows hold; a difference may lose it, where heavy rows hold 1e16 times more
            some = each > 1.0
            light = float(curvature.mean()) - weight if some else float(np.delete(curvature, at).sum()) / curvature.size
            matrix.flat[:: columns.size + 1] += max(0.0, light) * self.spread[columns]
        return matrix, centre, weight
