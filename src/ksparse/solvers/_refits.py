"""A problem of `minimize` as the system that a pursuit runs on: any loss, refits by Newton's method."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..problem import Problem, Slots
from ..result import Record
from ._pursuit import Columns, Point, System
from ._run import Clock, copy_slots
from ._support import NONE, Fit, Ground, Starts


class Refits(System):
    """One signal, the coefficients of a model; its kept columns and the intercept are in every fit.

    A pursuit sees the free columns only, numbered from zero, so it cannot choose a kept one a second time.
    """

    def __init__(self, problem: Problem, slots: Slots, clock: Clock) -> None:
        self.problem, self.slots, self.clock = problem, slots, clock
        self.free = np.delete(np.arange(problem.d), problem.kept)
        self.n, self.d, self.room = problem.n, self.free.size, max(1, problem.n - problem.n_kept)
        self.k = slots.x.size - problem.n_kept
        self.steps = 0
        self._told = 0
        self.ground = Ground(problem, clock.check, 2 * self.k + problem.kept.size)

    def start(self, kind: str) -> list[Point]:
        """Where a run begins, by `Pursuit.start`: at x0 as it is, at the fit on its columns, or at the empty model."""
        x, empty = self.problem.vector(self.slots), self.ground.empty_fit()
        self.null = empty.objective
        if kind == "empty" or not x.any():
            return [self._point(empty)]
        columns = np.flatnonzero(x[self.free])
        every = self._with_kept(columns)
        given = x[every], self.problem.constant(self.slots)
        if kind == "x0":
            return [self._at(columns, *given)]
        nothing = np.concatenate([empty.x, np.zeros(columns.size)]), empty.constant
        return [self._point(self.ground.newton(every, Starts([given, nothing], [])))]

    def slopes(self, points: Sequence[Point], one_by_one: bool = False) -> NDArray[Any]:
        self.ground.check()
        slopes = np.empty((len(points), 1, self.d))
        for slope, point in zip(slopes, points, strict=True):
            slope[0] = -self._seen(point.rest)[0][self.free]
        return slopes

    def fit(self, points: Sequence[Point], supports: Sequence[Columns], share: float = 0.0) -> list[Point]:
        return [self._fit(point, columns) for point, columns in zip(points, supports, strict=True)]

    def keep(self, points: Sequence[Point], supports: Sequence[Columns]) -> list[Point]:
        kept = self.problem.kept.size
        return [
            self._at(columns, np.concatenate([point.rest.x[:kept], point.on(columns)[0]]), point.rest.constant)
            for point, columns in zip(points, supports, strict=True)
        ]

    def move(
        self, points: Sequence[Point], slopes: NDArray[Any], steps: NDArray[np.float64], supports: Sequence[Columns]
    ) -> list[Point]:
        moved = []
        for point, slope, step, columns in zip(points, slopes, steps, supports, strict=True):
            on_kept, pull = self._on_kept(point.rest)
            kept = point.rest.x[: on_kept.size] + step * on_kept
            chosen = point.on(columns)[0] + step * slope[0, columns]
            moved.append(self._at(columns, np.concatenate([kept, chosen]), point.rest.constant + step * pull))
        return moved

    def bends(
        self, points: Sequence[Point], slopes: NDArray[Any], supports: Sequence[Columns]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        problem = self.problem
        squares, bends = np.empty(len(points)), np.empty(len(points))
        for i, (point, slope, columns) in enumerate(zip(points, slopes, supports, strict=True)):
            on_kept, pull = self._on_kept(point.rest)
            v = np.concatenate([on_kept, slope[0, columns]])
            # only the quotient counts, and squares of numbers around one are floats
            exponent = math.frexp(max(float(np.abs(v).max(initial=0.0)), abs(pull)))[1]
            v, pull = np.ldexp(v, -exponent), math.ldexp(pull, -exponent)
            along = v @ self.ground.block(self._with_kept(columns)) + pull
            squares[i] = float(v @ v) + pull * pull
            bends[i] = float(point.rest.bend @ along**2) / problem.n + problem.l2 * float(v @ v)
        return squares, bends

    def apart(self, before: Sequence[Point], after: Sequence[Point]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Of the squared loss, whose slopes are w·(z − y)."""
        squares, bends = np.empty(len(before)), np.empty(len(before))
        weight, used = self.problem.weight, self.problem.weight > 0
        for i, (old, new) in enumerate(zip(before, after, strict=True)):
            dx = np.zeros(self.problem.d)
            dx[new.rest.columns] = new.rest.x
            dx[old.rest.columns] -= old.rest.x
            with np.errstate(over="ignore", invalid="ignore"):  # a step that left the range of floats is not taken
                turn = (new.rest.slope - old.rest.slope)[used]
                square = float(dx @ dx)
                squares[i] = square + (new.rest.constant - old.rest.constant) ** 2
                bends[i] = float(np.sum(turn**2 / weight[used])) / self.problem.n + self.problem.l2 * square
        return squares, bends

    def curvatures(self, points: Sequence[Point]) -> NDArray[np.float64]:
        if self.ground.quadratic:
            return np.full(len(points), float(self.ground.spread[self.free].mean()) + self.problem.l2)
        return np.array([self._seen(point.rest)[1][self.free].mean() for point in points]) + self.problem.l2

    @property
    def steepest(self) -> float:
        return self.problem.top_eigenvalue(self.clock.check) / self.problem.n

    # --- fits and points -----------------------------------------------------------------------------------------
    def _fit(self, point: Point, columns: Columns) -> Point:
        fit: Fit = point.rest
        old = np.zeros(self.problem.d)
        old[fit.columns] = fit.x
        every = self._with_kept(columns)
        return self._point(self.ground.newton(every, Starts([(old[every], fit.constant)], [])))

    def _at(self, columns: Columns, x: NDArray[np.float64], constant: float) -> Point:
        """No fit: just these coefficients, those of the kept columns first."""
        return self._point(self.ground.newton(self._with_kept(columns), Starts([(x, constant)], []), 0))

    def point(self, columns: Columns, x: NDArray[np.float64], constant: float, misfit: float) -> Point:
        """A point from what `coefficients` says of it; no fit, but its misfit is known."""
        return replace(self._at(columns, x, constant), misfit=misfit)

    def coefficients(self, point: Point) -> tuple[Columns, NDArray[np.float64], float, float]:
        """A point's columns, the coefficients on the kept ones and them, the intercept, and the misfit."""
        return point.columns, point.rest.x, point.rest.constant, point.misfit

    def _point(self, fit: Fit) -> Point:
        kept = self.problem.kept.size
        return Point(0, self.free.searchsorted(fit.columns[kept:]), fit.x[np.newaxis, kept:], fit.objective, fit)

    def _with_kept(self, columns: Columns) -> Columns:
        """The kept columns, then these of the free ones, as the problem numbers them."""
        return np.concatenate([self.problem.kept, self.free[columns]])

    def _seen(self, fit: Fit) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """∇F, and, unless it is the same everywhere, the curvature of every column: in one pass."""
        if fit.seen is None:
            self.ground.passes += 1
            gradient, _, own = self.ground.means(fit.slope, NONE if self.ground.quadratic else fit.bend)
            gradient[fit.columns] += self.problem.l2 * fit.x
            fit.seen = gradient, own
        return fit.seen

    def _on_kept(self, fit: Fit) -> tuple[NDArray[np.float64], float]:
        """−∇F on the kept columns and for the intercept."""
        pull = -float(fit.slope.mean()) if self.problem.intercept else 0.0
        return -self._seen(fit)[0][self.problem.kept], pull

    def record(self, before: Point, now: Point) -> Record:
        """Put the point into the slots, and say what happened."""
        self.steps += before is not now
        place = self.problem.place(self.k, self.free[now.columns], now.rest.x, now.rest.constant)
        entered = now.entered(before)
        copy_slots(place, self.slots)
        passes, self._told = self.ground.passes - self._told, self.ground.passes
        return Record(now.misfit, passes * self.problem.n, entered, 0.0, math.nan, abs(now.misfit - before.misfit))
