"""Hard-thresholded steps: in O(k) while the bound of `screen.py` holds, else a full scan of all columns.

`run_steps` takes the steps of HT-SVRG, and with mu = 0 and derivative = 0 those of hard-thresholded SGD (StoIHT).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .._jit import FINITE, generic, inner, kernel
from ..design import Stage
from ..design.kernels import CSR, select
from ..problem import Problem, Slots
from .screen import (
    DRIFT,
    LISTED,
    LOG,
    LOOKS,
    SINCE,
    SWAPS,
    TAIL,
    TOP,
    UNIT,
    Screen,
    descend,
    fetch,
    inflated,
    project,
    push,
    reset_tally,
)  # fmt: skip


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
    rows, idx, derivative = stage.rows, stage.idx, stage.derivative
    y, weight, offset = stage.y, stage.weight, stage.offset
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
            reach += row_max[i] * push(x, a, g, deltas, b, share, loss, i, y, weight, offset, derivative)
        if not reach < np.inf:
            return t, False
        bound = inflated(eta, reach, edge, batch) if crowded else 0.0
        if descend(x, g, mu, eta, limits, bound) > 0 and bound > 0.0:
            return t, True
        project(x, limits)
    return stop, False


# --- the full scan: b on all columns, where the bound cannot exclude a change -----------------------------------------
@inner
def look(rows, idx, t, slots, screen, mu, eta, limits):
    """Compare b on all columns with the chosen slots, and exchange the losers for the winners."""
    least = least_score(slots.x, limits.kept)
    found = contenders(rows, idx, t, slots, screen, mu, eta, limits.positive, least)
    screen.tally[LOOKS] += 1
    if found and settle(found, slots, screen, mu, limits.kept):
        find_top(rows, slots, screen, mu)


@inner
def least_score(x, kept):
    least = np.inf
    for s in range(kept, x.size):
        least = min(least, abs(x[s]))
    return least


@inner
def settle(found, slots, screen, mu, kept):
    """Keep the k largest of the chosen slots and the contenders; among equals the lower index.

    Follows edge[TOP] too, and returns whether the column that it was the |mu| of has entered: then it must be
    found anew.
    """
    x, column = slots.x, slots.column
    new, new_b, score, slot_mu = screen.new, screen.new_b, screen.score, screen.mu
    # the k-th largest score of all, and how many of those that equal it are kept: the ones of lowest index
    k = x.size - kept
    for s in range(k):
        score[s] = abs(x[kept + s])
    for c in range(found):
        score[k + c] = abs(new_b[c])
    cut = select(score, k + found, k)
    above = ties = 0
    for s in range(kept, x.size):
        above += abs(x[s]) > cut
        ties += abs(x[s]) == cut
    for c in range(found):
        above += abs(new_b[c]) > cut
        ties += abs(new_b[c]) == cut
    last = mu.size  # the highest index that a tie may have
    if above + ties > k:
        ties = 0
        for s in range(kept, x.size):
            if abs(x[s]) == cut:
                score[ties] = -column[s]
                ties += 1
        for c in range(found):
            if abs(new_b[c]) == cut:
                score[ties] = -new[c]
                ties += 1
        last = -int(select(score, ties, max(1, k - above)))
    top = screen.edge[TOP]
    stale = False
    s = kept
    for c in range(found):
        j = new[c]
        if abs(new_b[c]) > cut or (abs(new_b[c]) == cut and j <= last):
            while s < x.size and (abs(x[s]) > cut or (abs(x[s]) == cut and column[s] <= last)):
                s += 1
            if s == x.size:  # only if a NaN is about
                break
            stale |= abs(mu[j]) >= top
            top = max(top, abs(mu[column[s]]))
            exchange(s, j, column, slots.slot_of, slots.member, screen.log, screen.tally)
            x[s] = new_b[c]
            slot_mu[s] = mu[j]
            s += 1
    screen.edge[TOP] = top
    return stale


@inner(hot=True)
def exchange(s, j, column, slot_of, member, log, tally):
    """Give slot s to column j."""
    one, low_bits = np.uint64(1), np.uint64(63)
    old = column[s]
    slot_of[old] = -1
    member[old >> 6] &= ~(one << (np.uint64(old) & low_bits))
    column[s] = j
    slot_of[j] = s
    member[j >> 6] |= one << (np.uint64(j) & low_bits)
    log[tally[LOG] % log.size] = s
    tally[LOG] += 1
    tally[SWAPS] += 1


@generic
def contenders(rows, idx, t, slots, screen, mu, eta, positive, least):
    """Write the columns off the slots whose score is at least `least` (and not zero) to screen.new; return how many."""


@contenders.rule(np.ndarray)
def _(rows, idx, t, slots, screen, mu, eta, positive, least):
    spread_dense(rows, idx[t], screen.delta, screen.total)
    return scan(screen.total, mu, slots.slot_of, screen.new, screen.new_b, eta, positive, least)


@contenders.rule(CSR)
def _(rows, idx, t, slots, screen, mu, eta, positive, least):
    # plain arrays in the loops: every access to a tuple would cost a reference count
    total, touched, marked, slot_of = screen.total, screen.touched, screen.marked, slots.slot_of
    new, new_b, delta, listed = screen.new, screen.new_b, screen.delta, screen.listed
    data, indices, indptr = rows.data, rows.indices, rows.indptr
    reached = 0
    for b in range(idx.shape[1]):
        i = idx[t, b]
        for p in range(indptr[i], indptr[i + 1]):
            j = indices[p]
            total[j] += delta[b] * data[p]
            if not marked[j]:
                marked[j] = True
                touched[reached] = j
                reached += 1
    # where the rows have no entry, b is -eta mu_j: only the columns with the largest |mu| can matter
    found = 0
    tail = eta * (screen.edge[TAIL] + screen.edge[SINCE]) * (1.0 + 8 * UNIT)
    if tail > 0.0 and tail >= least:
        found = scan(total, mu, slot_of, new, new_b, eta, positive, least)
    else:
        for c in range(screen.tally[LISTED]):
            if not marked[listed[c]]:
                marked[listed[c]] = True
                touched[reached] = listed[c]
                reached += 1
        for c in range(reached):
            j = touched[c]
            b = -eta * (total[j] + mu[j])
            if slot_of[j] < 0 and (b if positive else abs(b)) >= least and b != 0.0:
                new[found] = j
                new_b[found] = b
                found += 1
    for c in range(reached):
        total[touched[c]] = 0.0
        marked[touched[c]] = False
    return found


@inner
def spread_dense(rows, batch, delta, total):
    """total = the sum of δ_b a_b."""
    i, coef = batch[0], delta[0]
    for j in range(total.size):
        total[j] = coef * rows[i, j]
    for b in range(1, batch.size):
        i, coef = batch[b], delta[b]
        for j in range(total.size):
            total[j] += coef * rows[i, j]


@inner
def scan(total, mu, slot_of, new, new_b, eta, positive, least):
    """The contenders among all columns: a block is gone through one by one only if a count, which vectorises,
    is not 0."""
    found = 0
    for left in range(0, mu.size, 64):
        right = min(left + 64, mu.size)
        high = 0
        for j in range(left, right):
            high += (abs(eta * (total[j] + mu[j])) >= least) & (slot_of[j] < 0)
        if high:
            for j in range(left, right):  # without branches: who wins is hard to predict
                b = -eta * (total[j] + mu[j])
                new[found] = j
                new_b[found] = b
                found += (slot_of[j] < 0) & ((b if positive else abs(b)) >= least) & (b != 0.0)
    return found


# --- the largest |mu| off the slots ----------------------------------------------------------------------------------
@inner
def begin(rows, slots, screen, mu, mu_ones, first, positive):
    """Start from a new mu: its values on the slots, and its largest ones off them.  Returns whether all are finite."""
    infinite = 0
    for j in range(mu.size):
        infinite += not abs(mu[j]) < np.inf
    if infinite:
        return False
    if first:
        screen.mu[0] = mu_ones
    for s in range(first, slots.x.size):
        screen.mu[s] = mu[slots.column[s]]
    survey(rows, slots, screen, mu, positive)
    return True


@generic
def survey(rows, slots, screen, mu, positive):
    """Find the largest |mu| off the slots afresh, in O(d); only negative mu count if coefficients must be positive."""


@survey.rule(np.ndarray)
def _(rows, slots, screen, mu, positive):
    screen.edge[DRIFT] = 0.0
    screen.edge[SINCE] = 0.0
    find_top(rows, slots, screen, mu)


@survey.rule(CSR)
def _(rows, slots, screen, mu, positive):
    listed, score = screen.listed, screen.score
    screen.edge[DRIFT] = 0.0
    screen.edge[SINCE] = 0.0
    cut = 0.0
    if listed.size < mu.size:
        for j in range(mu.size):
            score[j] = max(-mu[j], 0.0) if positive else abs(mu[j])
        cut = select(score, mu.size, listed.size)
    count = 0
    for j in range(mu.size):
        if (max(-mu[j], 0.0) if positive else abs(mu[j])) > cut:
            listed[count] = j
            count += 1
    screen.tally[LISTED] = count
    screen.edge[TAIL] = cut
    find_top(rows, slots, screen, mu)


@generic
def find_top(rows, slots, screen, mu):
    """edge[TOP] = the maximum of |mu| off the slots, or a bound of it, without a pass over sparse columns."""


@find_top.rule(np.ndarray)
def _(rows, slots, screen, mu):
    screen.edge[TOP] = top_dense(mu, slots.slot_of)


@inner(fastmath=FINITE)
def top_dense(mu, slot_of):
    top = 0.0
    for j in range(mu.size):
        top = max(top, abs(mu[j]) if slot_of[j] < 0 else 0.0)
    return top


@find_top.rule(CSR)
def _(rows, slots, screen, mu):
    listed, slot_of = screen.listed, slots.slot_of
    top = screen.edge[TAIL] + screen.edge[SINCE]
    for c in range(screen.tally[LISTED]):
        if slot_of[listed[c]] < 0:
            top = max(top, abs(mu[listed[c]]))
    screen.edge[TOP] = top
