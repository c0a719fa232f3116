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
from ..design.kernels import add_rows
from ..engine.loop import Clock, Overflow, State
from ..losses import weighted_derivative
from ..problem import Problem, Slots, Snapshot
from ..result import Record
from .base import Solver, StepControl, check_fields
from .screen import (
    DRIFT,
    LISTED,
    LOG,
    LOOKS,
    SINCE,
    SWAPS,
    TAIL,
    TOP,
    Screen,
    add_in_order,
    begin,
    descend,
    dot,
    fetch,
    find_top,
    forget_rows,
    inflated,
    look,
    magnitude,
    make_screen,
    project,
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
    # unpacked here: inside the loop every access to a tuple would cost a reference count
    idx, derivative = stage.idx, stage.derivative
    log_row, log_share, older, length = log
    y, weight, offset, row_max = stage.y, stage.weight, stage.offset, stage.row_max
    column, x, slot_of, member = slots.column, slots.x, slots.slot_of, slots.member
    cached, seen, exchanges, tally, edge = screen.cached, screen.seen, screen.log, screen.tally, screen.edge
    g, slot_mu, delta, b, tops, lows = screen.g, screen.mu, screen.delta, screen.b, screen.tops, screen.lows
    listed, total, touched, marked = screen.listed, screen.total, screen.touched, screen.marked
    crowded = column.size - limits.first < slot_of.size  # are there columns off the slots at all?
    for t in range(start, stop):
        i = idx[t, 0]
        r = i if cached.shape[0] > 1 else 0
        if seen[r] < tally[LOG]:
            fetch(rows, i, column, limits.first, slot_of, member, cached, seen, exchanges, tally)
        now = weighted_derivative(loss, dot(cached, r, x) + offset[i], y[i], weight[i])
        delta[0] = now - derivative[i]
        reach = row_max[i] * abs(delta[0])
        if not reach < np.inf:
            return t
        bound = inflated(eta, reach, edge, 1)
        least = descend(x, cached, r, delta[0], g, slot_mu, eta, limits)
        if crowded and bound > 0.0 and least <= magnitude(bound):
            catch_up(rows, log_row, log_share, older, length, slot_of, mu, edge, listed, tally, b, limits.positive)
            if least <= magnitude(inflated(eta, reach, edge, 1)):
                look(
                    rows, idx, t, x, column, slot_of, member, exchanges, tally, edge, slot_mu, mu,
                    delta, b, tops, lows, listed, total, touched, marked, eta, limits, least,
                )  # fmt: skip
                # again, for the columns that entered
                fetch(rows, i, column, limits.first, slot_of, member, cached, seen, exchanges, tally)
            else:
                tally[LOOKS] += 1  # whole rows were read
        project(x, limits)
        remember(i, delta[0], derivative, row_max, log_row, log_share, older, length, cached, r, slot_mu, edge)
    return stop


@inner(hot=True, counted=False)
def remember(i, delta, derivative, row_max, log_row, log_share, older, length, cached, r, slot_mu, edge):
    """Enter the new derivative of row i: on the slots the average follows at once, elsewhere it is logged, bounded."""
    share = delta / derivative.size
    for s in range(slot_mu.size):
        slot_mu[s] += share * cached[r, s]
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


@inner(counted=False)
def catch_up(rows, log_row, log_share, older, length, slot_of, mu, edge, listed, tally, b, positive):
    """Bring the average up to date on all columns.

    Entry by entry as on the slots, so that equal columns get equal bits and ties fall as they should.
    """
    if length[1]:
        add_rows(rows, 0, older.size, 1.0, older, mu)
        for i in range(older.size):
            older[i] = 0.0
        length[1] = 0
    add_in_order(rows, log_row, log_share, length[0], mu)
    length[0] = 0
    edge[DRIFT] = 0.0
    find_top(slot_of, mu, edge, listed, tally[LISTED])
    if edge[TAIL] > 0.0 and edge[TOP] <= edge[TAIL] + edge[SINCE]:
        survey(slot_of, mu, edge, listed, tally, b, positive)
