"""A fit on a few columns: all rows against a dense block, minimised by Newton's method.

`Ground` is what stays the same during a run (the problem, and passes over its rows); a `Fit` is a support with its
coefficients, predictions, slopes and curvatures.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import losses
from .._threads import ordered_map
from ..passes import look_at_rows, moments, parts, take_columns
from ..problem import Problem

Array = NDArray[np.float64]
NONE = np.empty(0)
SHARE = 0.01  # of the mean curvature: rows below it are left out of a Hessian, and hold less than this share of it
FLAT = 1e-7  # of a mean square: a variance below it is none
DAMPING, MOST_DAMPING = 1e-6, 1e3  # of the curvature that a column has at most


def weighted_gram(block: Array, weight: Array) -> Array:
    """BᵀWB; of one array with itself, which BLAS does in half the time."""
    scaled = block * np.sqrt(weight)[:, np.newaxis]
    return scaled.T @ scaled


@dataclass
class Fit:
    """Columns (the kept ones first), coefficients, and what the rows say there."""

    columns: NDArray[np.int64]
    x: Array
    constant: float
    objective: float
    slope: Array  # w̃φ' of every row
    bend: Array  # w̃φ''


class Ground:
    """The problem, seen by columns."""

    def __init__(self, problem: Problem, check: Any) -> None:
        self.problem, self.check = problem, check
        self.passes = 0
        bound = losses.curvature_bound(problem.loss)
        self.quadratic = getattr(problem.loss, "quadratic", False)
        self._steepest = bound if math.isfinite(bound) else 1.0
        self._curvature: tuple[Array, Array] | None = None

    @functools.cached_property
    def _spread(self) -> tuple[Array, NDArray[np.bool_]]:
        """The variance of every column (its mean square, without an intercept), and which ones have none."""
        n = self.problem.n
        _, mean, square = self._sums(np.zeros(n), self.problem.weight)
        spread = square / n - ((mean / n) ** 2 if self.problem.intercept else 0.0)
        flat = spread <= FLAT * square / n
        return np.where(flat, 0.0, spread), flat

    @property
    def flat(self) -> NDArray[np.bool_]:
        """Columns that are constant (or zero): nothing beside the intercept."""
        return self._spread[1]

    def block(self, columns: NDArray[np.int64], which: NDArray[np.int64] | None = None) -> Array:
        """Columns as a dense array, of all rows or of some."""
        problem = self.problem
        which = np.arange(problem.n) if which is None else which
        slot_of = np.full(problem.d, -1, dtype=np.int32)
        slot_of[columns] = np.arange(columns.size, dtype=np.int32)
        member = np.zeros((problem.d + 63) // 64, dtype=np.uint64)
        np.bitwise_or.at(member, columns >> 6, np.uint64(1) << (columns & 63).astype(np.uint64))
        out = np.empty((which.size, columns.size))
        if out.size:
            take_columns(problem.rows, which, columns, slot_of, member, out)
        return out

    def gradient(self, fit: Fit) -> tuple[Array, Array, Array]:
        """∇F on all columns, and the mean of w̃φ''a and of w̃φ''a²: one pass over the rows."""
        self.check()
        self.passes += 1
        n = self.problem.n
        if self.quadratic and self._curvature is not None:
            (g, _, _), (a, q) = self._sums(fit.slope, NONE), self._curvature
        else:
            g, a, q = self._sums(fit.slope, fit.bend)
            a /= n
            q /= n
            self._curvature = (a, q)
        g /= n
        g[fit.columns] += self.problem.l2 * fit.x
        return g, a, q

    def _sums(self, slope: Array, bend: Array) -> tuple[Array, Array, Array]:
        d, rows = self.problem.d, self.problem.rows
        both = bend.size > 0

        def part(bounds: tuple[int, int]) -> tuple[Array, Array, Array]:
            sums = np.zeros(d), np.zeros(d if both else 0), np.zeros(d if both else 0)
            moments(rows, bounds[0], bounds[1], slope, bend, *sums)
            return sums

        total: tuple[Array, Array, Array] | None = None
        for sums in ordered_map(part, parts(rows)):
            if total is None:
                total = sums
            else:
                for mine, more in zip(total, sums, strict=True):
                    mine += more
        assert total is not None
        return total

    def heavy_rows(self, bend: Array) -> NDArray[np.int64]:
        """The rows that hold nearly all of the curvature; a row of weight two is judged as two rows would be."""
        return np.flatnonzero((bend >= SHARE * bend.mean() * self.problem.weight) & (bend > 0.0))

    def damping(self, columns: NDArray[np.int64]) -> Array:
        """The most curvature each column can have: what Levenberg's damping is a share of."""
        return self._steepest * self._spread[0][columns]

    # --- Newton --------------------------------------------------------------------------------------------------
    def empty_fit(self, steps: int = 20) -> Fit:
        """The intercept and the kept columns alone."""
        kept = self.problem.kept
        return self.newton(kept, [(np.zeros(kept.size), self._first_constant())], steps)

    def _first_constant(self) -> float:
        """A constant to start from; Newton does the rest."""
        problem = self.problem
        if not problem.intercept or not self.quadratic:
            return 0.0
        return float(np.average(problem.y - problem.offset, weights=problem.weight))

    def newton(
        self,
        columns: NDArray[np.int64],
        starts: list[tuple[Array, float]],
        steps: int = 50,
        tol: float = 1e-10,
        hopeless: float = math.inf,
        polish: bool = False,
    ) -> Fit:
        """Minimise F over some columns from the best of `starts` (coefficients and constant); give up where F will stay
        above `hopeless`.  To `polish` is to take all rows into the Hessian, and to go on where F no longer tells.
        """
        problem, block = self.problem, self.block(columns)
        n, l2 = problem.n, problem.l2

        def look(x: Array, z: Array) -> tuple[float, Array, Array]:
            slope, bend = np.empty(n), np.empty(n)
            total = look_at_rows(problem.loss, z, problem.y, problem.weight, slope, bend)
            return total / n + 0.5 * l2 * float(x @ x), slope, bend

        tried = []
        for x, constant in starts:
            z = block @ x + constant + problem.offset
            tried.append((*look(x, z), x, constant, z))
        finite = [point for point in tried if math.isfinite(point[0])] or tried[-1:]
        objective, slope, bend, x, constant, z = min(finite, key=lambda point: point[0])
        least = 1e-3 * DAMPING if polish else DAMPING
        share, blind, fresh = least, 0, False
        squares = NONE if self.quadratic else block * block
        for _ in range(steps):
            self.check()
            gradient = block.T @ slope / n + l2 * x
            pull = float(slope.mean()) if problem.intercept else 0.0
            if not fresh:
                hessian, centre, weight = self._hessian(block, squares, bend, polish)
            own = self.damping(columns)
            moved = None
            while moved is None:
                # the intercept is damped too, and eliminated: of its curvature the part `free` is not damping
                damping = 1e-12 if self.quadratic else share
                stiff = weight + (0.0 if self.quadratic else share * self._steepest)
                free = weight / stiff
                damped = hessian + np.diag(damping * own + l2) + (weight * (1.0 - free)) * np.outer(centre, centre)
                try:
                    dx = -np.linalg.solve(damped, gradient - free * pull * centre)
                except np.linalg.LinAlgError:
                    dx = np.full(x.size, np.nan)
                shift = -pull / stiff - free * float(centre @ dx) if problem.intercept else 0.0
                promise = -(float(gradient @ dx) + pull * shift)
                if promise <= tol * abs(objective):  # at the bottom
                    break
                new_z = z + block @ dx + shift
                trial = look(x + dx, new_z)
                if trial[0] <= objective - 1e-3 * promise:
                    moved = trial
                elif polish and promise <= 1e-12 * abs(objective):  # beneath the rounding of F
                    blind += 1
                    moved = trial if trial[0] <= objective * (1.0 + 1e-13) and blind <= 4 else None
                    if moved is None:
                        break
                elif share >= MOST_DAMPING:
                    break
                else:
                    share *= 10.0
            if moved is None:
                break
            # where the quadratic foretold the step well, its Hessian serves another one
            fresh = not fresh and not polish and abs((objective - moved[0]) / (0.5 * promise) - 1.0) < 0.3
            x, z, constant = x + dx, new_z, constant + shift
            objective, slope, bend = moved
            share = max(0.1 * share, least)
            if self.quadratic or (share <= 10 * DAMPING and objective - 0.6 * promise > hopeless):
                break
        return Fit(columns, x, constant, objective, slope, bend)

    def _hessian(self, block: Array, squares: Array, bend: Array, whole: bool) -> tuple[Array, Array, float]:
        """XᵀHX/n of the rows that matter, without the ridge; its centre, if there is an intercept; the mean of H."""
        n = self.problem.n
        if self.quadratic or whole:
            part, heavy = block, bend
        else:
            which = self.heavy_rows(bend)
            part, heavy = block[which], bend[which]
        weight = float(heavy.sum())
        centre = np.zeros(block.shape[1])
        if self.problem.intercept and weight > 0:
            centre = heavy @ part / weight
            part = part - centre
        hessian = weighted_gram(part, heavy) / n
        if not (self.quadratic or whole):  # what the light rows hold, at least on the diagonal
            own = bend @ squares / n
            if self.problem.intercept:
                own -= (bend @ block / n) ** 2 / max(float(bend.mean()), 1e-300)
            np.fill_diagonal(hessian, np.maximum(hessian.diagonal(), own))
        return hessian, centre, weight / n
