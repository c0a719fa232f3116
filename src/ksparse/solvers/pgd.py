"""PGD: projected gradient descent onto the k-sparse vectors, with the full gradient."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from .._jit import kernel
from ..design import Stage
from ..problem import Problem, Slots
from ..result import Record
from ._fields import check_fields
from ._look import least_score, scan, settle
from ._pursuit import (
    Point,
    Steps,
    System,
    backtrack,
    gradient_point,
    magnitudes,
    remember,
    steepest_steps,
    top,
)  # fmt: skip
from ._run import Clock, Overflow, Snapshot
from ._screen import SWAPS, descend, make_screen, project
from ._stepsize import divergence_advice, inverse

ENOUGH = 0.1  # the share of ‖Δx‖²/(2η) by which an automatic step must lower the objective
NO_ROWS = np.empty((0, 1), np.int64)


@dataclass(frozen=True)
class PGD(Steps):
    r"""Projected gradient descent.

    .. math:: x^{t+1} = \Pi_\omega\bigl(H_k(x^t - \eta \nabla F(x^t))\bigr)

    Parameters
    ----------
    step : float, "auto" or "spectral"
        A number multiplies ∇F.  "spectral" is the paper's 2/σ₁(AAᵀ) on ½‖Ax − y‖², that is 2n/σ₁(AAᵀ) here.
        "auto" is the Barzilai–Borwein step, halved until the objective falls enough.
    iterations : int
        At most so many.
    tol, stop_on_divergence
        As in `HTSVRG`.

    References
    ----------
    Jain, Tewari & Kar, *On iterative hard thresholding methods for high-dimensional
    M-estimation*, NIPS 2014; Barzilai & Borwein, *Two-point step size gradient methods*, IMA Journal of
    Numerical Analysis 8(1), 1988.

    Examples
    --------
    >>> import numpy as np
    >>> from ksparse import PGD, minimize
    >>> A = np.random.default_rng(0).standard_normal((100, 50))
    >>> minimize(A, A[:, 3] - 2 * A[:, 7], k=2, solver=PGD()).support
    array([3, 7])
    """

    step: float | str = "auto"
    iterations: int = 1000
    tol: float = 1e-6
    stop_on_divergence: bool = True

    remedies: ClassVar[dict[str, str]] = {
        "stalled": "try a smaller step, a larger k, or step='auto'",
        "stage limit": "allow more iterations, or a larger tol",
    }

    def __post_init__(self) -> None:
        check_fields(self, steps=("auto", "spectral"))

    @property
    def limit(self) -> int:
        return self.iterations

    def iterate(
        self,
        problem: Problem,
        slots: Slots,
        rng: np.random.Generator,
        clock: Clock,
        state: dict[str, Any] | None = None,
    ) -> Iterator[Record]:
        if self.step == "auto":
            return adaptive_descent(problem, slots, clock, state)
        if state is not None:
            return fixed_descent(problem, slots, clock, state["eta"], state)
        spectral = self.step == "spectral"
        eta = inverse(problem.top_eigenvalue(clock.check) / problem.n, 2.0) if spectral else float(self.step)
        return fixed_descent(problem, slots, clock, eta)

    def advance(self, system: System, k: int, points: list[Point]) -> list[Point]:
        if self.step != "auto":
            eta = inverse(system.steepest, 2.0) if self.step == "spectral" else float(self.step)
            return fixed_step(system, k, points, eta)
        slopes = system.slopes(points)
        steps = steepest_steps(system, points, slopes, top(magnitudes(slopes), k))
        steps[steps == 0.0] = 1.0  # no slope, or no curvature: any step will do
        known = [point.memory is not None for point in points]
        steps[known] = [point.memory for point in points if point.memory is not None]

        def accept(old: Point, new: Point, eta: float, square: float, bend: float) -> bool:
            return new.misfit <= old.misfit - ENOUGH * square / (2.0 * eta)

        moved = backtrack(system, k, points, slopes, steps, accept)
        squares, bends = system.apart(points, moved)
        longest = np.divide(squares, bends, out=2.0 * steps, where=bends > 0.0)  # Barzilai and Borwein's
        return remember(moved, np.clip(longest, steps / 10.0, steps * 10.0).tolist())

    def explain_divergence(self, problem: Problem, k: int, step: float) -> tuple[str, str]:
        return divergence_advice(problem, k, step)


def fixed_descent(
    problem: Problem, slots: Slots, clock: Clock, eta: float, state: dict[str, Any] | None = None
) -> Iterator[Record]:
    """Iterations with one step for all; with a state, those that come after the slots."""
    screen = make_screen(problem, slots.x.size, 0)
    stage = problem.stage(slots, NO_ROWS)
    if state is None:
        yield Record(stage.value, problem.n, 0, 0.0, eta, math.inf)
    while True:
        clock.keep(eta=eta)
        changes = batch_step(problem, stage, slots, screen, eta)
        clock.check()
        before = stage.value
        stage = problem.stage(slots, NO_ROWS, stage)
        yield Record(stage.value, problem.n, changes, 0.0, eta, abs(stage.value - before))


def adaptive_descent(problem: Problem, slots: Slots, clock: Clock, state: dict[str, Any] | None) -> Iterator[Record]:
    """Iterations that never raise the objective: Barzilai–Borwein's step, halved until it falls enough."""
    screen = make_screen(problem, slots.x.size, 0)
    stage = problem.stage(slots, NO_ROWS)
    spare = None
    eta = inverse(problem.smoothness(slots.x.size), 1.0) if state is None else state["eta"]
    before = Snapshot(slots, stage.value)
    if state is None:
        yield Record(stage.value, problem.n, 0, 0.0, eta, math.inf)
    if not np.isfinite(stage.mu).all():
        raise Overflow
    while True:
        clock.keep(eta=eta)
        gradients = 0
        while True:
            changes = batch_step(problem, stage, slots, screen, eta)
            clock.check()
            trial = problem.stage(slots, NO_ROWS, spare)
            gradients += problem.n
            square, product = difference(before.slots, slots, problem.first, stage, trial, problem.l2)
            wanted = before.objective - ENOUGH * square / (2.0 * eta)
            if trial.value <= wanted or (square == 0.0 and trial.value <= before.objective):
                break
            spare = trial
            before.give(slots)
            eta *= 0.5
            with np.errstate(over="ignore"):
                size = 1.0 + float(np.sum(slots.x**2))
            if eta < 1e-200 or square <= 1e-30 * size:
                # no step lowers the objective: this is a fixed point to rounding
                trial, changes, square = stage, 0, 0.0
                break
        change = abs(trial.value - before.objective)
        if trial is not stage:
            spare, stage = stage, trial
            before.take(stage.value, slots)
        yield Record(stage.value, gradients, changes, 0.0, eta, change)
        if square > 0.0:
            eta = min(max(square / product if product > 0.0 else 2.0 * eta, eta / 10.0), eta * 10.0)


def fixed_step(system: System, k: int, points: list[Point], eta: float) -> list[Point]:
    """One step of all signals of a system."""
    slopes, steps = system.slopes(points), np.full(len(points), eta)
    return system.move(points, slopes, steps, top(magnitudes(gradient_point(points, slopes.copy(), steps)), k))


def batch_step(problem: Problem, stage: Stage, slots: Slots, screen: Any, eta: float) -> int:
    """One step from a full gradient; returns how many columns entered."""
    return threshold_step(stage.mu, stage.mu_ones, eta, problem.limits, slots, screen)


def difference(old: Slots, new: Slots, first: int, before: Stage, after: Stage, l2: float) -> tuple[float, float]:
    """‖Δx‖² and Δx·Δ∇F between two iterates, the intercept included."""
    columns = np.union1d(old.column[first:], new.column[first:])
    move = _on(columns, new, first) - _on(columns, old, first)
    with np.errstate(over="ignore", invalid="ignore"):  # a trial that overflowed is refused for its objective
        turn = after.mu[columns] - before.mu[columns] + l2 * move
        # sums, not BLAS: the same bits whatever its threads
        square, product = float(np.sum(move * move)), float(np.sum(move * turn))
    if first:
        shift = float(new.x[0] - old.x[0])
        square += shift * shift
        product += shift * (after.mu_ones - before.mu_ones)
    return square, product


def _on(columns: Any, slots: Slots, first: int) -> Any:
    """The coefficients of an iterate on columns (in ascending order) that hold all of its own."""
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
    descend(x, screen.g, screen.mu, eta, limits, 0.0)  # g is zero: there are no rows
    least = least_score(x, limits.kept)
    found = scan(
        screen.total, mu, slots.slot_of, screen.new, screen.new_b, eta, limits.positive, least
    )  # total is zero
    if found:
        settle(found, slots, screen, mu, limits.kept)
    project(x, limits)
    return screen.tally[SWAPS]
