"""A problem of `minimize` as the system that a pursuit runs on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ..engine.loop import Clock
from ..problem import Problem, Slots, copy_slots
from ..result import Record
from .newton import NONE, Fit, Refitter
from .pursuit import Array, Columns, Iterate, Numbers, System, entered


class ProblemSystem(System):
    """A problem of `minimize` as a system of one signal: any loss, fits by Newton's method.

    The kept columns and the intercept are in every fit.  A pursuit sees the free columns only, numbered from zero, so
    that it cannot choose a kept one a second time.
    """

    def __init__(self, problem: Problem, slots: Slots, clock: Clock) -> None:
        self.problem, self.slots, self.clock = problem, slots, clock
        self.free = np.delete(np.arange(problem.d), problem.kept)
        self.n, self.d, self.room = problem.n, self.free.size, max(1, problem.n - problem.n_kept)
        self.k = slots.x.size - problem.n_kept
        self.steps = 0
        self._told = 0
        self.refitter = Refitter(problem, clock.check, 2 * self.k + problem.kept.size)

    def start(self, kind: str) -> Iterate:
        """Where a run begins, by `Pursuit.start`: at x0 as it is, at the fit on its columns, or at the empty model."""
        x, empty = self.problem.vector(self.slots), self.refitter.empty_fit()
        self.null = empty.objective
        if kind == "empty" or not x.any():
            return self._point(empty)
        columns = np.flatnonzero(x[self.free])
        every = self._with_kept(columns)
        given = x[every], self.problem.constant(self.slots)
        if kind == "x0":
            return self._at(columns, *given)
        nothing = np.concatenate([empty.x, np.zeros(columns.size)]), empty.constant
        return self._point(self.refitter.newton(every, [given, nothing]))

    def negative_gradients(self, points: Sequence[Iterate], one_by_one: bool = False) -> Array:
        self.refitter.check()
        gradients = np.empty((len(points), 1, self.d))
        for gradient, point in zip(gradients, points, strict=True):
            gradient[0] = -self._seen(point.rest)[0][self.free]
        return gradients

    def fit(self, points: Sequence[Iterate], supports: Sequence[Columns], share: float = 0.0) -> list[Iterate]:
        return [self._fit(point, columns) for point, columns in zip(points, supports, strict=True)]

    def keep(self, points: Sequence[Iterate], supports: Sequence[Columns]) -> list[Iterate]:
        kept = self.problem.kept.size
        return [
            self._at(columns, np.concatenate([point.rest.x[:kept], point.on(columns)[0]]), point.rest.constant)
            for point, columns in zip(points, supports, strict=True)
        ]

    def move(
        self, points: Sequence[Iterate], directions: Array, steps: Numbers, supports: Sequence[Columns]
    ) -> list[Iterate]:
        moved = []
        for point, direction, step, columns in zip(points, directions, steps, supports, strict=True):
            on_kept, pull = self._on_kept(point.rest)
            kept = point.rest.x[: on_kept.size] + step * on_kept
            chosen = point.on(columns)[0] + step * direction[0, columns]
            moved.append(self._at(columns, np.concatenate([kept, chosen]), point.rest.constant + step * pull))
        return moved

    def curvature_along(
        self, points: Sequence[Iterate], directions: Array, supports: Sequence[Columns]
    ) -> tuple[Numbers, Numbers]:
        problem = self.problem
        squares, curvatures = np.empty(len(points)), np.empty(len(points))
        for i, (point, direction, columns) in enumerate(zip(points, directions, supports, strict=True)):
            on_kept, pull = self._on_kept(point.rest)
            v = np.concatenate([on_kept, direction[0, columns]])
            # only the quotient counts, and squares of numbers around one do not overflow
            exponent = math.frexp(max(float(np.abs(v).max(initial=0.0)), abs(pull)))[1]
            v, pull = np.ldexp(v, -exponent), math.ldexp(pull, -exponent)
            along = v @ self.refitter.block(self._with_kept(columns)) + pull
            squares[i] = float(v @ v) + pull * pull
            curvatures[i] = float(point.rest.curvature @ along**2) / problem.n + 2.0 * problem.ridge(v)
        return squares, curvatures

    def differences(self, before: Sequence[Iterate], after: Sequence[Iterate]) -> tuple[list[float], list[float]]:
        """For the squared loss, whose derivatives are w·(z − y)."""
        squares, curvatures = list[float](), list[float]()
        weight, used = self.problem.weight, self.problem.weight > 0
        for old, new in zip(before, after, strict=True):
            dx = np.zeros(self.problem.d)
            dx[new.rest.columns] = new.rest.x
            dx[old.rest.columns] -= old.rest.x
            with np.errstate(over="ignore", invalid="ignore"):  # a step that left the range of floats is not taken
                turn = (new.rest.derivative - old.rest.derivative)[used]
                square = float(dx @ dx)
                squares.append(square + (new.rest.constant - old.rest.constant) ** 2)
                along = float(np.sum(turn**2 / weight[used])) / self.problem.n
                curvatures.append(along + self.problem.l2 * square)
        return squares, curvatures

    def curvatures(self, points: Sequence[Iterate]) -> Numbers:
        if self.refitter.quadratic:
            return np.full(len(points), float(self.refitter.spread[self.free].mean()) + self.problem.l2)
        return np.array([self._seen(point.rest)[1][self.free].mean() for point in points]) + self.problem.l2

    @property
    def top_curvature(self) -> float:
        return self.problem.top_eigenvalue(self.clock.check) / self.problem.n

    # --- fits and points -----------------------------------------------------------------------------------------
    def _fit(self, point: Iterate, columns: Columns) -> Iterate:
        fit: Fit = point.rest
        old = np.zeros(self.problem.d)
        old[fit.columns] = fit.x
        every = self._with_kept(columns)
        return self._point(self.refitter.newton(every, [(old[every], fit.constant)]))

    def _at(self, columns: Columns, x: Numbers, constant: float) -> Iterate:
        """The point with these coefficients, those of the kept columns first; nothing is fitted."""
        return self._point(self.refitter.newton(self._with_kept(columns), [(x, constant)], 0))

    def point(self, columns: Columns, x: Numbers, constant: float, misfit: float) -> Iterate:
        """The point of which `coefficients` gave this."""
        return replace(self._at(columns, x, constant), misfit=misfit)

    def coefficients(self, point: Iterate) -> tuple[Columns, Numbers, float, float]:
        """A point's columns, the coefficients on the kept ones and them, the intercept, and the misfit."""
        return point.columns, point.rest.x, point.rest.constant, point.misfit

    def _point(self, fit: Fit) -> Iterate:
        kept = self.problem.kept.size
        return Iterate(0, self.free.searchsorted(fit.columns[kept:]), fit.x[np.newaxis, kept:], fit.objective, fit)

    def _with_kept(self, columns: Columns) -> Columns:
        """The kept columns, then these of the free ones, as the problem numbers them."""
        return np.concatenate([self.problem.kept, self.free[columns]])

    def _seen(self, fit: Fit) -> tuple[Numbers, Numbers]:
        """∇F and, unless it is the same everywhere, the curvature of every column: one pass."""
        if fit.seen is None:
            self.refitter.passes += 1
            gradient, _, own = self.refitter.means(fit.derivative, NONE if self.refitter.quadratic else fit.curvature)
            gradient[fit.columns] += self.problem.l2 * fit.x
            fit.seen = gradient, own
        return fit.seen

    def _on_kept(self, fit: Fit) -> tuple[Numbers, float]:
        """−∇F on the kept columns and for the intercept."""
        pull = -float(fit.derivative.mean()) if self.problem.intercept else 0.0
        return -self._seen(fit)[0][self.problem.kept], pull

    def record(self, before: Iterate, now: Iterate) -> Record:
        """Put the point into the slots; its record."""
        self.steps += before is not now
        place = self.problem.place(self.k, self.free[now.columns], now.rest.x, now.rest.constant)
        copy_slots(place, self.slots)
        passes, self._told = self.refitter.passes - self._told, self.refitter.passes
        changes = entered([before], [now])
        return Record(now.misfit, passes * self.problem.n, changes, 0.0, math.nan, abs(now.misfit - before.misfit))
