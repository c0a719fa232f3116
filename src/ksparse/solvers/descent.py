"""Gradient steps and hard thresholding with the full gradient: what `IHT`, `NIHT` and `PGD` share.

`GradientSteps` is written once and runs on two kinds of systems: for `recover` on that of a matrix or an operator, for
`minimize` on `SlotSystem`, whose steps are kernels and know the constraints of a problem.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._jit import kernel
from ..design import Stage
from ..engine.loop import Clock, Overflow, State
from ..problem import Problem, Slots, Snapshot, copy_slots, inverse
from ..result import Record
from .pursuit import Array, GradientSystem, Iterate, Numbers, Steps, remember
from .screen import SWAPS, admit, descend, finish, make_screen, project

ENOUGH = 0.1  # the share of ‖Δx‖²/(2η) by which an automatic step must lower F
NO_ROWS = np.empty((0, 1), np.int64)
KEPT = np.empty((1, 0))  # no gradient: the system keeps it with its point


class Stride(NamedTuple):
    """What `GradientSteps` remembers of a point: the step that led there, and the one to try next."""

    taken: float
    following: float


class GradientSteps(Steps):
    """x − η∇F, thresholded: with a fixed step, or an adaptive one that never raises F.

    The adaptive step is Barzilai and Borwein's ‖Δx‖²/(Δx'∇²FΔx), halved until F falls enough.
    """

    @property
    @abstractmethod
    def adaptive(self) -> bool: ...

    @abstractmethod
    def first_steps(self, system: GradientSystem, points: Sequence[Iterate], gradients: Array, k: int) -> list[float]:
        """The first step of each point; if it is not adaptive, that of all."""

    def advance(self, system: GradientSystem, k: int, points: list[Iterate]) -> list[Iterate]:
        gradients = system.negative_gradients(points)
        if points[0].memory is None:  # all points begin together
            steps = self.first_steps(system, points, gradients, k)
        else:
            steps = [point.memory.following for point in points]
        if not self.adaptive:
            return remember(system.threshold(points, gradients, steps, k), [Stride(step, step) for step in steps])
        moves = backtrack(system, k, points, gradients, steps, falls_enough)
        return remember([move.point for move in moves], [Stride(move.step, following(move)) for move in moves])

    def iterate(
        self, problem: Problem, slots: Slots, rng: np.random.Generator, clock: Clock, state: State | None = None
    ) -> Iterator[Record]:
        system = SlotSystem(problem, slots, clock, self.adaptive)
        k, n, point = slots.x.size - problem.n_kept, problem.n, system.now()
        if state is None:
            [eta] = self.first_steps(system, [point], KEPT, k)
            yield Record(point.misfit, n, 0, 0.0, eta, math.inf)
        else:
            eta = state["eta"]
        if self.adaptive and not np.isfinite(point.rest.stage.mu).all():
            raise Overflow
        [point] = remember([point], [Stride(eta, eta)])
        while True:
            clock.keep(eta=point.memory.following)
            before, passes = point, system.passes
            [point] = self.advance(system, k, [before])
            system.place(point)
            changes = point.rest.entered if point.rest is not before.rest else 0
            change = abs(point.misfit - before.misfit)
            yield Record(point.misfit, n * (system.passes - passes), changes, 0.0, point.memory.taken, change)


class Move(NamedTuple):
    """A point, the step that led there, and ‖Δx‖² and Δx'∇²FΔx on the way."""

    point: Iterate
    step: float
    square: float
    curvature: float


def falls_enough(old: Iterate, move: Move) -> bool:
    if move.step == 0.0:  # no step is short enough
        return True
    return move.point.misfit <= old.misfit - ENOUGH * move.square / (2.0 * move.step)


def following(move: Move) -> float:
    """Barzilai and Borwein's step, at most ten times longer or shorter than the last."""
    if not move.square > 0.0:
        return move.step
    longest = move.square / move.curvature if move.curvature > 0.0 else 2.0 * move.step
    return min(max(longest, move.step / 10.0), move.step * 10.0)


def backtrack(
    system: GradientSystem,
    k: int,
    points: Sequence[Iterate],
    gradients: Array,
    steps: Sequence[float],
    accept: Callable[[Iterate, Move], bool],
) -> list[Move]:
    """H_k(x − step·∇F), each step halved until the move is accepted; a point that no step improves stays as it is."""
    moves: list[Move | None] = [None] * len(points)
    tried, pending = list(steps), list(range(len(points)))
    while pending:
        some, etas = [points[i] for i in pending], [tried[i] for i in pending]
        trial = system.threshold(some, gradients if len(some) == len(points) else gradients[pending], etas, k)
        for i, old, *parts in zip(pending, some, trial, etas, *system.differences(some, trial), strict=True):
            move = Move(*parts)
            if accept(old, move):
                moves[i] = move
                continue
            tried[i] *= 0.5
            if tried[i] < system.least_step or move.square <= system.negligible(old):
                moves[i] = Move(old, tried[i], 0.0, 0.0)
        pending = [i for i in pending if moves[i] is None]
    return [move for move in moves if move is not None]


# --- for `minimize` --------------------------------------------------------------------------------------------------
class Evaluated(NamedTuple):
    """What `SlotSystem` remembers of a point: its full gradient, a copy of the slots, and how many columns entered."""

    stage: Stage
    slots: Slots
    entered: int


class SlotSystem(GradientSystem):
    """A problem of `minimize` as a system of one signal, whose iterate is in the slots."""

    least_step = 1e-200

    def __init__(self, problem: Problem, slots: Slots, clock: Clock, returns: bool) -> None:
        self.problem, self.slots, self.clock = problem, slots, clock
        self.n, self.passes = problem.n, 0
        self._screen = make_screen(problem, slots.x.size, 0)
        self._returns = returns  # may a run return to the point before?  Else that one's gradient is overwritten
        self._spare: Stage | None = None  # arrays that are free
        self._placed = self._evaluate(None, 0)  # what is in the slots

    def now(self) -> Iterate:
        """The point that is in the slots."""
        stage, slots, _ = self._placed
        return Iterate(0, slots.column, slots.x[np.newaxis], stage.value, self._placed)

    def place(self, point: Iterate) -> None:
        """Put a point into the slots, if it is not there."""
        if self._placed is not point.rest:
            copy_slots(point.rest.slots, self.slots)
            self._spare, self._placed = self._placed.stage, point.rest

    def negative_gradients(self, points: Sequence[Iterate]) -> Array:
        return KEPT  # in the stages

    def threshold(self, points: Sequence[Iterate], gradients: Array, steps: Sequence[float], k: int) -> list[Iterate]:
        """With the radius, signs and kept columns of the problem."""
        [point], [eta] = points, steps
        self.place(point)
        stage = point.rest.stage
        entered = threshold_step(stage.mu, stage.mu_ones, eta, self.problem.limits, self.slots, self._screen)
        self.clock.check()
        self._placed = self._evaluate(self._spare if self._returns else stage, entered)
        self._spare = stage
        return [self.now()]

    def _evaluate(self, reuse: Stage | None, entered: int) -> Evaluated:
        """The objective and the full gradient at the slots: one pass over the rows."""
        self.passes += 1
        slots = Snapshot(self.slots).slots if self._returns else self.slots
        return Evaluated(self.problem.stage(self.slots, NO_ROWS, reuse), slots, entered)

    def differences(self, before: Sequence[Iterate], after: Sequence[Iterate]) -> tuple[list[float], list[float]]:
        """With Δx·Δ∇F for Δx'∇²FΔx, the intercept included."""
        (old, new), first = (points[0].rest for points in (before, after)), self.problem.first
        columns = new.slots.column[first:]
        if np.array_equal(old.slots.column[first:], columns):  # most steps keep the support
            order = np.argsort(columns)
            columns, move = columns[order], (new.slots.x[first:] - old.slots.x[first:])[order]
        else:
            columns = np.union1d(old.slots.column[first:], columns)
            move = on_columns(columns, new.slots, first) - on_columns(columns, old.slots, first)
        with np.errstate(over="ignore", invalid="ignore"):  # a trial that overflowed is refused for its objective
            turn = new.stage.mu[columns] - old.stage.mu[columns] + self.problem.l2 * move
            # sums, not BLAS: the same bits for any number of threads
            square, product = float(np.sum(move * move)), float(np.sum(move * turn))
        if first:
            shift = float(new.slots.x[0] - old.slots.x[0])
            square += shift * shift
            product += shift * (new.stage.mu_ones - old.stage.mu_ones)
        return [square], [product]

    @np.errstate(over="ignore")
    def negligible(self, point: Iterate) -> float:
        return 1e-30 * (1.0 + float(np.sum(point.x**2)))

    def first_steps(self, points: Sequence[Iterate], gradients: Array, k: int) -> list[float]:
        return [inverse(self.problem.smoothness(self.slots.x.size), 1.0)]

    @property
    def top_curvature(self) -> float:
        return self.problem.top_eigenvalue(self.clock.check) / self.n


def on_columns(columns: NDArray[np.int64], slots: Slots, first: int) -> Numbers:
    """The coefficients of an iterate on columns (in increasing order) that include all of its own."""
    x = np.zeros(columns.size)
    x[np.searchsorted(columns, slots.column[first:])] = slots.x[first:]
    return x


@kernel
def threshold_step(mu, mu_ones, eta, limits, slots, screen):
    """x = Π_ω(H_k(x − η∇F)) from the full gradient; returns how many columns entered."""
    x = slots.x
    if limits.first:
        screen.mu[0] = mu_ones
    for s in range(limits.first, x.size):
        screen.mu[s] = mu[slots.column[s]]
    screen.tally[SWAPS] = 0
    least = descend(x, screen.cached, 0, 0.0, screen.g, screen.mu, eta, limits)  # there are no rows: g is zero
    for j in range(mu.size):
        screen.b[j] = 0.0
    finish(screen.b, mu, slots.slot_of, eta, limits.positive)
    admit(
        -1, x, slots.column, slots.slot_of, slots.member, screen.log, screen.tally, screen.edge, screen.mu, mu,
        screen.b, screen.tops, screen.lows, screen.touched, limits.kept, least,
    )  # fmt: skip
    project(x, limits)
    return screen.tally[SWAPS]
