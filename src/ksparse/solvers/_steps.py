"""The kernel of the stochastic steps: HT-SVRG's, and with mu = 0 and slope = 0 hard-thresholded SGD's (StoIHT)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .._jit import inner, kernel
from ..design import Stage
from ..problem import Problem, Slots
from ._look import begin, look
from ._screen import Screen, descend, fetch, inflated, project, push, reset_tally


def stage_steps(problem: Problem, stage: Stage, slots: Slots, screen: Screen, eta: float) -> Callable[[int, int], int]:
    """The steps of a stage as a function of (start, stop), for `Clock.steps`."""
    limits = problem.limits
    reset_tally(screen)
    return lambda start, stop: run_steps(problem.loss, stage, start, stop, eta, limits, slots, screen)


@kernel
def run_steps(loss, stage, start, stop, eta, limits, slots, screen):
    """Take the steps start..stop of a stage; return the step reached (less than `stop` if the numbers overflowed)."""
    if start == 0 and not begin(stage.rows, slots, screen, stage.mu, stage.mu_ones, limits.first, limits.positive):
        return start
    t = start
    while t < stop:
        t, must_look = glide(loss, stage, t, stop, eta, limits, slots, screen)
        if must_look:
            look(stage.rows, stage.idx, t, slots, screen, stage.mu, eta, limits)
            project(slots.x, limits)
            t += 1
        elif t < stop:
            break
    return t


@inner
def glide(loss, stage, start, stop, eta, limits, slots, screen):
    """Steps in O(k), up to the first that needs a look: then (that step, True), its b on the slots in place of x."""
    # unpacked here: inside the loop every access to a tuple would cost a reference count
    rows, idx, y, weight, offset, slope = stage.rows, stage.idx, stage.y, stage.weight, stage.offset, stage.slope
    row_max, column, x, slot_of, member = stage.row_max, slots.column, slots.x, slots.slot_of, slots.member
    cached, seen, log, tally, edge = screen.cached, screen.seen, screen.log, screen.tally, screen.edge
    a, g, mu, deltas = screen.a, screen.g, screen.mu, screen.delta
    batch = idx.shape[1]
    share = 1.0 / batch
    crowded = column.size - limits.first < slot_of.size  # are there columns off the slots at all?
    for t in range(start, stop):
        reach = 0.0
        for b in range(batch):
            i = idx[t, b]
            fetch(rows, i, column, limits.first, slot_of, member, cached, seen, log, tally, a)
            reach += row_max[i] * push(x, a, g, deltas, b, share, loss, i, y, weight, offset, slope)
        if not reach < np.inf:
            return t, False
        bound = inflated(eta, reach, edge, batch) if crowded else 0.0
        if descend(x, g, mu, eta, limits, bound) > 0 and bound > 0.0:
            return t, True
        project(x, limits)
    return stop, False
