"""HT-SVRG: hard-thresholded stochastic variance-reduced gradient (Algorithm 1 of the paper)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from .._jit import kernel
from ..design import Stage
from ..engine.loop import Clock, Overflow, State
from ..losses import weighted_derivative
from ..problem import Problem, Slots, Snapshot
from ..result import Record
from .base import Solver, StepControl, check_fields
from .screen import (
    LOG,
    LOOKS,
    SWAPS,
    Screen,
    begin,
    descend,
    dot,
    fetch,
    forget_rows,
    inflated,
    look,
    magnitude,
    make_screen,
    project,
    reset_tally,
)


@dataclass(frozen=True)
class HTSVRG(Solver):
    r"""Hard-thresholded SVRG.

    Each stage takes the full gradient at a snapshot, :math:`\tilde\mu = \nabla F(\tilde x)`, and from
    :math:`x^0 = \tilde x` the m steps

    .. math:: x^t = \Pi_\omega\bigl(H_k\bigl(x^{t-1}
              - \eta\,(\nabla f_{i_t}(x^{t-1}) - \nabla f_{i_t}(\tilde x) + \tilde\mu)\bigr)\bigr).

    A step costs O(k), not O(d), and is exact all the same.

    Parameters
    ----------
    step : float, "auto", "theory" or "spectral", default="auto"
        A number multiplies ∇F.  "theory" is 1/(8L), "spectral" is 2/σ₁(AAᵀ), both the paper's.  "auto" starts
        at 1/(2L) and doubles every stage until one raises the objective: that one is undone and the step halved, to
        grow by a tenth per stage.
    m : int, default=None
        Steps per stage; None means 3n, and for a source (see `ksparse.sources`) as many as its memory holds rows for.
    stages : int, default=100
        The largest number of stages.
    output : "last" or "random", default="last"
        The next snapshot: the last iterate, or one drawn uniformly from x⁰ ... x^{m−1}, as Algorithm 1 is
        printed (the steps after the drawn one change nothing and are not computed).
    batch_size : int, default=1
        Rows per step.
    tol : float, default=1e-6
        Stop when a stage changes F by less than tol·max(\|F\|, min(1, F at zero)) and the support not at all, and the
        gradient on the support predicts little further decrease; 0 runs all stages.
    stop_on_divergence : bool, default=True
        Stop once the objective is a hundred times that of the start; False continues while the numbers are finite.

    References
    ----------
    Shen & Li, *A Tight Bound of Hard Thresholding*, JMLR 18(208), 2018, Algorithm 1.

    Examples
    --------
    >>> import numpy as np
    >>> from ksparse import HTSVRG, minimize
    >>> rng = np.random.default_rng(0)
    >>> A = rng.standard_normal((100, 50))
    >>> result = minimize(A, A[:, 3] - 2 * A[:, 7], k=2, solver=HTSVRG(tol=1e-12), random_state=0)
    >>> result.support, result.x[result.support].round(3)
    (array([3, 7]), array([ 1., -2.]))
    """

    step: float | str = "auto"
    m: int | None = None
    stages: int = 100
    output: str = "last"
    batch_size: int = 1
    tol: float = 1e-6
    stop_on_divergence: bool = True

    remedies: ClassVar[dict[str, str]] = {
        "stalled": "try a smaller step, a larger k, or step='auto'",
        "stage limit": "allow more stages, or a larger tol",
    }

    def __post_init__(self) -> None:
        check_fields(self, steps=("auto", "theory", "spectral"))

    @property
    def limit(self) -> int:
        return self.stages

    def iterate(
        self, problem: Problem, slots: Slots, rng: np.random.Generator, clock: Clock, state: State | None = None
    ) -> Iterator[Record]:
        if state is None:
            k = slots.x.size - problem.n_kept
            control = StepControl(self.step, problem.step(self.step, k, clock.check))
            m = problem.sample(self.batch_size) if self.m is None else self.m
        else:
            control = StepControl(self.step, state["eta"], state["growth"])
            m, rng.bit_generator.state = state["m"], state["draws"]
        screen = make_screen(problem, slots.x.size, self.batch_size)
        draws = rng.bit_generator.state  # from which the rows of the next stage were drawn
        idx, steps = self.draw(rng, problem.n, m)
        stage = problem.stage(slots, idx)
        start = Snapshot(slots, stage.value)
        if state is None:
            yield Record(stage.value, problem.n, 0, 1.0, control.eta, math.inf)
        for number in range(1 if state is None else state["number"], self.stages + 1):
            clock.keep(number=number, eta=control.eta, growth=control.growth, m=m, draws=draws)
            eta, done = control.eta, steps
            try:
                clock.steps(stage_steps(problem, stage, slots, screen, eta), steps)
                overflowed = False
            except Overflow:
                if not control.adaptive:
                    raise
                overflowed = True
            gradients = done * self.batch_size
            last = number == self.stages
            if not last:
                stage = stage.spent()
                del idx
                draws = rng.bit_generator.state
                idx, steps = self.draw(rng, problem.n, m)
            if not overflowed:
                if last:
                    objective = problem.objective(slots)
                else:
                    stage = problem.stage(slots, idx, stage)
                    objective = stage.value
                    gradients += problem.n
            change = math.inf if overflowed else objective - start.objective
            told = abs(change) if 10 * done >= m else math.inf  # an iterate drawn so early says nothing of convergence
            if not control.adaptive:
                start.objective = objective  # no stage is taken back: its iterate need not be kept
            elif control.judge(start.objective, change):
                start.take(objective, slots)
            else:
                start.give(slots)
                forget_rows(screen)
                if not last:
                    stage = stage.spent()
                    stage = problem.stage(slots, idx, stage)
                    gradients += problem.n
            screened = 1.0 - int(screen.tally[LOOKS]) / max(1, done)
            yield Record(start.objective, gradients, int(screen.tally[SWAPS]), screened, eta, told)

    def draw(self, rng: np.random.Generator, n: int, m: int) -> tuple[NDArray[np.int64], int]:
        """The rows of a stage, and how many of its steps lead to the next snapshot."""
        idx = rng.integers(0, n, size=m if self.batch_size == 1 else (m, self.batch_size)).reshape(m, -1)
        return idx, int(rng.integers(0, m)) if self.output == "random" else m


def stage_steps(problem: Problem, stage: Stage, slots: Slots, screen: Screen, eta: float) -> Callable[[int, int], int]:
    """The steps of a stage as a function of (start, stop), for `Clock.steps`.

    With gradient and derivatives zero they are those of hard-thresholded SGD, which `StoIHT` takes.
    """
    limits = problem.limits
    reset_tally(screen)
    return lambda start, stop: run_steps(problem.loss, stage, start, stop, eta, limits, slots, screen)


@kernel
def run_steps(loss, stage, start, stop, eta, limits, slots, screen):
    """Take the steps start..stop of a stage; return the step reached (less than `stop` if the numbers overflowed)."""
    if start == 0 and not begin(slots, screen, stage.mu, stage.mu_ones, limits.first, limits.positive):
        return start
    # unpacked here: inside the loop every access to a tuple would cost a reference count
    rows, idx, derivative, mu = stage.rows, stage.idx, stage.derivative, stage.mu
    y, weight, offset, row_max = stage.y, stage.weight, stage.offset, stage.row_max
    column, x, slot_of, member = slots.column, slots.x, slots.slot_of, slots.member
    cached, seen, log, tally, edge = screen.cached, screen.seen, screen.log, screen.tally, screen.edge
    g, slot_mu, delta, b, tops, lows = screen.g, screen.mu, screen.delta, screen.b, screen.tops, screen.lows
    listed, total, touched, marked = screen.listed, screen.total, screen.touched, screen.marked
    batch = idx.shape[1]
    last, share = batch - 1, 1.0 / batch
    crowded = column.size - limits.first < slot_of.size  # are there columns off the slots at all?
    for t in range(start, stop):
        reach = 0.0
        r = 0
        for c in range(batch):
            i = idx[t, c]
            r = i if cached.shape[0] > 1 else 0
            if seen[r] < tally[LOG]:
                fetch(rows, i, column, limits.first, slot_of, member, cached, seen, log, tally)
            now = weighted_derivative(loss, dot(cached, r, x) + offset[i], y[i], weight[i])
            delta[c] = (now - derivative[i]) * share
            reach += row_max[i] * abs(delta[c])
            if c < last:
                for s in range(x.size):
                    g[s] = delta[c] * cached[r, s] + (g[s] if c > 0 else 0.0)
        if not reach < np.inf:
            return t
        bound = inflated(eta, reach, edge, batch)
        least = descend(x, cached, r, delta[last], g, slot_mu, eta, limits)
        if crowded and bound > 0.0 and least <= magnitude(bound):
            look(
                rows, idx, t, x, column, slot_of, member, log, tally, edge, slot_mu, mu,
                delta, b, tops, lows, listed, total, touched, marked, eta, limits, least,
            )  # fmt: skip
        project(x, limits)
    return stop
