r"""The exact hard-thresholded step in O(k): what every stochastic kernel is made of.

A step is ``b = (1 − ηλ) x − η (Σ_b δ_b a_b + μ)``, ``x = Π_ω(H_k(b))``, with x supported on the slots.  On the
slots b costs O(k).  Off them, with ``|δ|‖a‖_∞`` summed over the rows of the batch,

.. math:: |b_j| \le \eta\,\bigl(\textstyle\sum_b |\delta_b|\,\|a_b\|_\infty + \max_{j \notin S} |\mu_j|\bigr),

and while that is below every magnitude on the slots, no column can enter: H_k(b) is b on the slots, and the
step is over.  Otherwise `look` computes b on all columns and exchanges those that really win.
Nothing here is approximate.

Rounding: the bound is inflated by a few units in the last place, and both sides of every comparison are computed by the
same expression, so that ties fall to the lower index exactly as in a plain sort.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._jit import FINITE, SUMS, generic, inner
from ..design.kernels import CSR, gather, select
from ..losses import weighted_derivative
from ..problem import Problem

UNIT = 2.0**-53
LITTLE = 1 << 17  # numbers: a megabyte, which a processor holds in its second cache

# positions in Screen.tally
LOG, LOOKS, SWAPS, LISTED = 0, 1, 2, 3
# positions in Screen.edge
TOP, TAIL, DRIFT, SINCE = 0, 1, 2, 3


class Screen(NamedTuple):
    """What the screen remembers between steps, and room to work in; all arrays belong to one run of a solver."""

    mu: NDArray[np.float64]  # on the slots: the gradient part that all rows share
    edge: NDArray[np.float64]  # TOP: bound of |mu| off the slots; TAIL: the same for columns not listed
    # DRIFT, SINCE: how far mu may have moved since TOP and TAIL were found (HT-SAGA; zero elsewhere)
    tally: NDArray[np.int64]  # LOG: exchanges so far; LOOKS and SWAPS since the reset; LISTED: length of `listed`
    listed: NDArray[np.int32]  # CSR: the columns with the largest |mu|, in no order (dense: none)
    cached: NDArray[Any]  # dense: row i on the slots (no rows: not in use)
    seen: NDArray[np.int64]  # the LOG position up to which cached[i] is right; -1: never filled
    log: NDArray[np.int64]  # a ring of the slots last exchanged
    a: NDArray[np.float64]  # one row on the slots
    g: NDArray[np.float64]  # the sum of δ_b a_b on the slots
    delta: NDArray[np.float64]  # δ of each row of the batch
    total: NDArray[np.float64]  # the sum of δ_b a_b on all columns, for a look
    touched: NDArray[np.int32]  # CSR: the columns of `total` in use
    marked: NDArray[np.bool_]  # CSR: is a column touched?
    new: NDArray[np.int32]  # columns that may enter ...
    new_b: NDArray[np.float64]  # ... and their b
    score: NDArray[np.float64]  # room for a selection


def make_screen(problem: Problem, slots: int, batch: int) -> Screen:
    """Room for one run: about 5 d numbers, and the rows on the slots, if the run draws rows (batch > 0), they are
    dense, and that is little, or at most a quarter of the data.
    """
    n, d, sparse = problem.n, problem.d, problem.design.sparse
    dtype = np.dtype(np.float64) if sparse else problem.design.dtype
    # for a source, each stage draws other rows
    caches = problem.design.in_memory and not sparse and batch > 0 and (4 * slots <= d or n * slots <= LITTLE)
    return Screen(
        mu=np.empty(slots),
        edge=np.zeros(4),
        tally=np.zeros(4, np.int64),
        listed=np.empty(min(d, 4 * slots + 64) if sparse else 0, np.int32),
        cached=np.empty((n if caches else 0, slots), dtype),
        seen=np.full(n if caches else 0, -1, np.int64),
        log=np.zeros(slots, np.int64),
        a=np.ones(slots),
        g=np.zeros(slots),
        delta=np.empty(batch),
        total=np.zeros(d),
        touched=np.empty(d if sparse else 0, np.int32),
        marked=np.zeros(d if sparse else 0, np.bool_),
        new=np.empty(d, np.int32),
        new_b=np.empty(d),
        score=np.empty(d),
    )


def reset_tally(screen: Screen) -> None:
    """Count looks and exchanges from here."""
    screen.tally[LOOKS] = screen.tally[SWAPS] = 0


def forget_rows(screen: Screen) -> None:
    """After the slots were changed from outside: no remembered row is right any more."""
    screen.tally[LOG] += screen.log.size


# --- a row on the slots ----------------------------------------------------------------------------------------------
@generic
def fetch(rows, i, index, first, slot_of, member, cached, seen, log, tally, a):
    """a = row i on the slots.

    Dense rows are remembered once they have been read.  After an exchange a remembered row is patched in the slots that
    changed, when it is next drawn: an exchange itself costs nothing, however many rows there are.
    """


@fetch.rule(np.ndarray)
def _(rows, i, index, first, slot_of, member, cached, seen, log, tally, a):
    if cached.shape[0] == 0:
        gather(rows, i, index, first, slot_of, member, a)
        return
    now, then = tally[LOG], seen[i]
    if then < now:
        if then < 0 or now - then >= log.size:
            gather(rows, i, index, first, slot_of, member, a)
            for s in range(a.size):
                cached[i, s] = a[s]
        else:
            for event in range(then, now):
                s = log[event % log.size]
                cached[i, s] = rows[i, np.uint64(index[s])]
        seen[i] = now
    for s in range(a.size):
        a[s] = cached[i, s]


@fetch.rule(CSR)
def _(rows, i, index, first, slot_of, member, cached, seen, log, tally, a):
    gather(rows, i, index, first, slot_of, member, a)


@inner(fastmath=SUMS, hot=True)
def dot(a, x):
    total = 0.0
    for s in range(x.size):
        total += a[s] * x[s]
    return total


# --- the step --------------------------------------------------------------------------------------------------------
@generic
def push(x, a, g, deltas, b, share, loss, i, y, weight, offset, derivative):
    """Add row i, the b-th of its batch, to the step: δ = share·(derivative now − derivative remembered) and g (+)= δ a.

    Returns |δ|.  Here alone the stochastic kernels meet predictions and losses; for several outputs it gets a rule for
    a matrix x (a column an output), and returns the norm of δ.
    """


@push.rule(np.ndarray)
def _(x, a, g, deltas, b, share, loss, i, y, weight, offset, derivative):
    z = dot(a, x) + offset[i]
    delta = (weighted_derivative(loss, z, y[i], weight[i]) - derivative[i]) * share
    deltas[b] = delta
    if b == 0:
        for s in range(a.size):
            g[s] = delta * a[s]
    else:
        for s in range(a.size):
            g[s] += delta * a[s]
    return abs(delta)


@inner(hot=True)
def descend(x, g, mu, eta, limits, bound):
    """b = (1 − ηλ)x − η(g + mu) in place of x; returns how many chosen slots a column off the slots might beat."""
    shrink = 1.0 - eta * limits.l2
    intercept = x[0] - eta * (g[0] + mu[0])
    for s in range(x.size):
        x[s] = shrink * x[s] - eta * (g[s] + mu[s])
    if limits.first:
        x[0] = intercept  # it is not shrunk
    low = 0
    # unsigned, so that the compiler knows the indices are not negative and can work on several at once
    if limits.positive:
        for s in range(np.uint64(limits.kept), np.uint64(x.size)):
            low += x[s] <= bound
            x[s] = max(x[s], 0.0)
    else:
        for s in range(np.uint64(limits.kept), np.uint64(x.size)):
            low += abs(x[s]) <= bound
    return low


@inner
def count_low(x, kept, bound):
    """How many chosen slots a column off the slots might beat."""
    low = 0
    for s in range(kept, x.size):
        low += abs(x[s]) <= bound
    return low


@inner(hot=True)
def project(x, limits):
    """Π_ω on the chosen slots."""
    if limits.radius == np.inf:
        return
    top = 0.0
    for s in range(limits.kept, x.size):
        top = max(top, abs(x[s]))
    if top == 0.0 or not top < np.inf:
        return
    square = 0.0
    for s in range(limits.kept, x.size):
        square += (x[s] / top) * (x[s] / top)  # cannot overflow
    norm = np.sqrt(square)
    if norm * top > limits.radius:
        for s in range(limits.kept, x.size):
            x[s] = (x[s] / top) * (limits.radius / norm)


@inner(hot=True)
def inflated(eta, reach, edge, terms):
    """The bound on |b| off the slots, beyond doubt in spite of rounding; `terms` is how many products a sum has."""
    return eta * (reach + edge[TOP] + edge[DRIFT]) * (1.0 + (8 + 4 * terms) * UNIT)


# --- the full scan: b on all columns, where the bound cannot exclude a change -----------------------------------------
@inner
def look(rows, idx, t, slots, screen, mu, eta, limits):
    """Compare b on all columns with the chosen slots, and exchange the losers for the winners."""
    least = least_score(slots.x, limits.kept)
    found = contenders(rows, idx, t, slots, screen, mu, eta, limits.positive, least)
    screen.tally[LOOKS] += 1
    if found and settle(found, slots, screen, mu, limits.kept):
        find_top(slots, screen, mu)


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
def begin(slots, screen, mu, mu_ones, first, positive):
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
    survey(slots, screen, mu, positive)
    return True


@inner
def survey(slots, screen, mu, positive):
    """Find the largest |mu| off the slots afresh, in O(d); only negative mu count if coefficients must be positive."""
    listed, score = screen.listed, screen.score
    screen.edge[DRIFT] = 0.0
    screen.edge[SINCE] = 0.0
    if listed.size:
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
    find_top(slots, screen, mu)


@inner
def find_top(slots, screen, mu):
    """edge[TOP] = the maximum of |mu| off the slots; for CSR a bound of it, from the listed columns only."""
    listed, slot_of = screen.listed, slots.slot_of
    if listed.size == 0:
        screen.edge[TOP] = largest_outside(mu, slot_of)
        return
    top = screen.edge[TAIL] + screen.edge[SINCE]
    for c in range(screen.tally[LISTED]):
        if slot_of[listed[c]] < 0:
            top = max(top, abs(mu[listed[c]]))
    screen.edge[TOP] = top


@inner(fastmath=FINITE)
def largest_outside(mu, slot_of):
    top = 0.0
    for j in range(mu.size):
        top = max(top, abs(mu[j]) if slot_of[j] < 0 else 0.0)
    return top
