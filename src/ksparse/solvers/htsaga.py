"""HT-SAGA: SAGA with hard thresholding (Algorithm 2 of the paper)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._jit import inner, kernel
from ..design import Stage
from ..design.kernels import add_row, add_rows
from ..engine.loop import Clock, Overflow, State
from ..problem import Problem, Slots, Snapshot
from ..result import Record
from .base import Solver, StepControl, check_fields
from .screen import (
    DRIFT,
    LOOKS,
    SINCE,
    SWAPS,
    TAIL,
    TOP,
    Screen,
    begin,
    count_low,
    descend,
    fetch,
    find_top,
    forget_rows,
    inflated,
    look,
    make_screen,
    project,
    push,
    reset_tally,
    survey,
)


@dataclass(frozen=True)
class HTSAGA(Solver):
    r"""Hard-thresholded SAGA.

    With a table of the gradients seen last, :math:`\nabla f_i(\phi_i)`, each step draws j and takes

    .. math:: x^{t+1} = H_k\Bigl(x^t - \eta\,\bigl(\nabla f_j(x^t) - \nabla f_j(\phi_j)
              + \tfrac1n\textstyle\sum_i \nabla f_i(\phi_i)\bigr)\Bigr),
              \qquad \phi_j \leftarrow x^t,

    the average being over the old table.  The table is n scalars, since every gradient is a multiple of its
    row; the ridge is not in it but taken exactly.  A step costs O(k): off the support the average is brought up
    to date only when it could matter.

    Parameters
    ----------
    step : float, "auto", "theory" or "spectral", default="auto"
        A number multiplies ∇F.  "theory" is 1/(8L), "spectral" is 2/σ₁(AAᵀ), both the paper's.  "auto" starts
        at 1/(2L) and doubles every epoch until one raises the objective: that one is undone, the table filled anew and
        the step halved, to grow by a tenth per epoch.
    epochs : int, default=100
        The largest number of epochs, of n steps each.
    tol : float, default=1e-6
        Stop when an epoch changes F by less than tol·max(\|F\|, min(1, F at zero)) and the support not at all, and the
        gradient on the support predicts little further decrease; 0 runs all epochs.
    stop_on_divergence : bool, default=True
        Stop once the objective is a hundred times that of the start; False continues while the numbers are finite.

    Notes
    -----
    The published condition for its convergence does not hold together (its Lyapunov argument drops
    a term); the algorithm is sound in practice.

    References
    ----------
    Shen & Li, *A Tight Bound of Hard Thresholding*, JMLR 18(208), 2018, Algorithm 2.

    Examples
    --------
    >>> import numpy as np
    >>> from ksparse import HTSAGA, minimize
    >>> A = np.random.default_rng(0).standard_normal((100, 50))
    >>> minimize(A, A[:, 3] - 2 * A[:, 7], k=2, solver=HTSAGA(), random_state=0).support
    array([3, 7])
    """

    step: float | str = "auto"
    epochs: int = 100
    tol: float = 1e-6
    stop_on_divergence: bool = True

    remedies: ClassVar[dict[str, str]] = {
        "stalled": "try a smaller step, a larger k, or step='auto'",
        "stage limit": "allow more epochs, or a larger tol",
    }

    def __post_init__(self) -> None:
        check_fields(self, steps=("auto", "theory", "spectral"))

    @property
    def limit(self) -> int:
        return self.epochs

    def iterate(
        self, problem: Problem, slots: Slots, rng: np.random.Generator, clock: Clock, state: State | None = None
    ) -> Iterator[Record]:
        n = problem.n
        if not problem.design.in_memory:
            raise ValueError(
                "the solver HTSAGA draws from all rows at every step and needs them in memory; use HTSVRG for a source"
            )
        control = StepControl(self.step, problem.step(self.step, slots.x.size - problem.n_kept, clock.check))
        screen = make_screen(problem, slots.x.size, 1)
        log = Log(np.empty(n, np.int64), np.empty(n), np.zeros(n), np.zeros(2, np.int64))
        nothing = np.empty((0, 1), np.int64)
        stage = problem.stage(slots, nothing)
        fresh = True  # is `stage` the table at the present point?
        start = Snapshot(slots, stage.value)
        yield Record(stage.value, n, 0, 1.0, control.eta, math.inf)
        for _ in range(self.epochs):
            eta, gradients = control.eta, n
            idx = rng.integers(0, n, size=n).reshape(n, 1)
            stage = stage._replace(idx=idx)
            try:
                clock.steps(epoch_steps(problem, stage, log, fresh, slots, screen, eta), n)
                objective = problem.objective(slots)
            except Overflow:
                if not control.adaptive:
                    raise
                objective = math.inf
            fresh = False
            change = objective - start.objective
            if control.judge(start.objective, change):
                start.take(objective, slots)
            else:
                start.give(slots)
                forget_rows(screen)
                stage = problem.stage(slots, nothing, stage)
                fresh = True
                gradients += n
            screened = 1.0 - int(screen.tally[LOOKS]) / n
            yield Record(start.objective, gradients, int(screen.tally[SWAPS]), screened, eta, abs(change))


class Log(NamedTuple):
    """The changes of the table that the average off the slots does not know yet: the latest in order, older summed."""

    row: NDArray[np.int64]
    share: NDArray[np.float64]  # change of the row's derivative, over n
    older: NDArray[np.float64]  # per row: shares that found no room
    length: NDArray[np.int64]  # [entries in the log, is anything in `older`?]


def epoch_steps(
    problem: Problem, stage: Stage, log: Log, fresh: bool, slots: Slots, screen: Screen, eta: float
) -> Callable[[int, int], int]:
    """The steps of an epoch as a function of (start, stop), for `Clock.steps`."""
    limits = problem.limits
    reset_tally(screen)
    return lambda start, stop: run_saga(
        problem.loss, stage, log, fresh and start == 0, start, stop, eta, limits, slots, screen
    )


@kernel
def run_saga(loss, stage, log, fresh, start, stop, eta, limits, slots, screen):
    """Take the steps start..stop of an epoch; return the step reached (less than `stop` if the numbers overflowed)."""
    rows, mu = stage.rows, stage.mu
    if fresh:
        log.length[0] = 0
        if log.length[1]:
            log.older[:] = 0.0
            log.length[1] = 0
        if not begin(slots, screen, mu, stage.mu_ones, limits.first, limits.positive):
            return start
    t = start
    while t < stop:
        t, must_look = glide(loss, stage, log, t, stop, eta, limits, slots, screen)
        if must_look:
            i, delta = stage.idx[t, 0], screen.delta[0]
            catch_up(rows, log, slots, screen, mu, limits.positive)
            bound = inflated(eta, abs(delta) * stage.row_max[i], screen.edge, 1)
            if count_low(slots.x, limits.kept, bound) > 0:
                look(rows, stage.idx, t, slots, screen, mu, eta, limits)
                fetch(
                    rows, i, slots.column, limits.first, slots.slot_of, slots.member,
                    screen.cached, screen.seen, screen.log, screen.tally, screen.a,
                )  # again, for the columns that entered  # fmt: skip
            else:
                screen.tally[LOOKS] += 1  # whole rows were read
            project(slots.x, limits)
            remember(
                i, delta, stage.derivative, stage.row_max, log.row, log.share, log.older, log.length,
                screen.a, screen.mu, screen.edge,
            )  # fmt: skip
            t += 1
        elif t < stop:
            break
    return t


@inner
def glide(loss, stage, log, start, stop, eta, limits, slots, screen):
    """Steps in O(k), up to the first that needs a look (see HT-SVRG's)."""
    rows, idx, derivative = stage.rows, stage.idx, stage.derivative
    y, weight, offset = stage.y, stage.weight, stage.offset
    row_max, column, x, slot_of, member = stage.row_max, slots.column, slots.x, slots.slot_of, slots.member
    cached, seen, exchanges, tally, edge = screen.cached, screen.seen, screen.log, screen.tally, screen.edge
    a, g, mu, deltas = screen.a, screen.g, screen.mu, screen.delta
    log_row, log_share, older, length = log
    crowded = column.size - limits.first < slot_of.size  # are there columns off the slots at all?
    for t in range(start, stop):
        i = idx[t, 0]
        fetch(rows, i, column, limits.first, slot_of, member, cached, seen, exchanges, tally, a)
        reach = row_max[i] * push(x, a, g, deltas, 0, 1.0, loss, i, y, weight, offset, derivative)
        if not reach < np.inf:
            return t, False
        bound = inflated(eta, reach, edge, 1) if crowded else 0.0
        if descend(x, g, mu, eta, limits, bound) > 0 and bound > 0.0:
            return t, True
        project(x, limits)
        remember(i, deltas[0], derivative, row_max, log_row, log_share, older, length, a, mu, edge)
    return stop, False


@inner(hot=True)
def remember(i, delta, derivative, row_max, log_row, log_share, older, length, a, slot_mu, edge):
    """Enter the new derivative of row i: on the slots the average follows at once, elsewhere it is logged, bounded."""
    share = delta / derivative.size
    for s in range(a.size):
        slot_mu[s] += share * a[s]
    derivative[i] += delta
    if length[0] == log_row.size:
        for q in range(length[0]):
            older[log_row[q]] += log_share[q]
        length[0] = 0
        length[1] = 1
    log_row[length[0]] = i
    log_share[length[0]] = share
    length[0] += 1
    moved = abs(share) * row_max[i] * (1.0 + 1e-9)  # more than the rounding of this long sum
    edge[DRIFT] += moved
    edge[SINCE] += moved


@inner
def catch_up(rows, log, slots, screen, mu, positive):
    """Bring the average up to date on all columns.

    Entry by entry as on the slots, so that equal columns get equal bits and ties fall as they should.
    """
    if log.length[1]:
        add_rows(rows, 0, log.older.size, 1.0, log.older, mu)
        log.older[:] = 0.0
        log.length[1] = 0
    for q in range(log.length[0]):
        add_row(rows, log.row[q], log.share[q], mu)
    log.length[0] = 0
    screen.edge[DRIFT] = 0.0
    find_top(slots, screen, mu)
    if screen.edge[TAIL] > 0.0 and screen.edge[TOP] <= screen.edge[TAIL] + screen.edge[SINCE]:
        survey(slots, screen, mu, positive)
