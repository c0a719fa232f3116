r"""The exact hard-thresholded step in O(k): what every stochastic kernel is made of.

A step is ``b = (1 − ηλ) x − η (Σ_b δ_b a_b + μ)``, ``x = Π_ω(H_k(b))``, with x supported on the slots.  On the
slots b costs O(k).  Off them, with ``|δ|‖a‖_∞`` summed over the rows of the batch,

.. math:: |b_j| \le \eta\,\bigl(\textstyle\sum_b |\delta_b|\,\|a_b\|_\infty + \max_{j \notin S} |\mu_j|\bigr),

and while that is below every magnitude on the slots, no column can enter: H_k(b) is b on the slots, and the
step is over.  Otherwise `look` computes b on all columns, and exchanges the worst slot for the best column off the
slots for as long as that is better: a full scan is common while the support still changes, but few columns win it.
Nothing here is approximate.

Rounding: the bound is inflated by a few units in the last place, and both sides of every comparison are computed by the
same expression, so that ties fall to the lower index exactly as in a plain sort.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._jit import SUMS, generic, inner
from ..design.kernels import CSR, gather, select
from ..problem import Problem

UNIT = 2.0**-53
LITTLE = 1 << 17  # numbers: a megabyte, which a processor holds in its second cache
BLOCK = 64  # columns whose largest |b| is kept
MAGNITUDE = np.int64(2**63 - 1)  # all bits of a float but its sign

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
    cached: NDArray[Any]  # every row on the slots, or one row, filled anew for every step (CSR)
    seen: NDArray[np.int64]  # the LOG position up to which cached[i] is right; -1: never
    log: NDArray[np.int64]  # a ring of the slots last exchanged; its length is a power of two
    g: NDArray[np.float64]  # on the slots: the sum of δ_b a_b over the rows of the batch but the last
    delta: NDArray[np.float64]  # δ of each row of the batch
    b: NDArray[np.float64]  # in a look: the b of the columns that may enter; whole blocks, padded with zeros
    tops: NDArray[np.int64]  # the largest magnitude in each block of b ...
    lows: NDArray[np.int64]  # ... and the smallest in each block of the chosen slots
    total: NDArray[np.float64]  # CSR: the sum of δ_b a_b on all columns, for a look
    touched: NDArray[np.int32]  # CSR: the columns of `total` in use; whole blocks
    marked: NDArray[np.bool_]  # CSR: is a column touched?


def make_screen(problem: Problem, slots: int, batch: int) -> Screen:
    """Room for one run: d numbers (CSR: about 3 d), and the rows on the slots, if the run draws rows (batch > 0), they
    are dense, and that is little, or at most a quarter of the data.
    """
    n, d, sparse = problem.n, problem.d, problem.design.sparse
    dtype = np.dtype(np.float64) if sparse else problem.design.dtype
    # for a source, each stage draws other rows
    caches = problem.design.in_memory and not sparse and batch > 0 and (4 * slots <= d or n * slots <= LITTLE)
    blocks = -(-d // BLOCK)
    return Screen(
        mu=np.empty(slots),
        edge=np.zeros(4),
        tally=np.zeros(4, np.int64),
        listed=np.empty(min(d, 4 * slots + 64) if sparse else 0, np.int32),
        cached=np.zeros((n if caches else 1, slots), dtype),
        seen=np.full(n if caches else 1, -1, np.int64),
        log=np.zeros(1 << (slots - 1).bit_length(), np.int64),
        g=np.zeros(slots),
        delta=np.empty(batch),
        b=np.zeros(blocks * BLOCK),
        tops=np.zeros(blocks, np.int64),
        lows=np.zeros(-(-slots // BLOCK), np.int64),
        total=np.zeros(d if sparse else 0),
        touched=np.zeros(blocks * BLOCK if sparse else 0, np.int32),
        marked=np.zeros(d if sparse else 0, np.bool_),
    )


def reset_tally(screen: Screen) -> None:
    """Count looks and exchanges from here."""
    screen.tally[LOOKS] = screen.tally[SWAPS] = 0


def forget_rows(screen: Screen) -> None:
    """After the slots were changed from outside: no remembered row is right any more."""
    screen.tally[LOG] += screen.log.size


# --- magnitudes as whole numbers -------------------------------------------------------------------------------------
@inner(hot=True, counted=False)
def magnitude(value):
    """|value| as a whole number of the same order: minima and maxima of these vectorise, those of floats do not."""
    return np.float64(value).view(np.int64) & MAGNITUDE


@inner(hot=True, counted=False)
def smallest(values, left, right):
    """The smallest magnitude of values[left:right]."""
    part = values[left:right]
    low = MAGNITUDE
    for j in range(part.size):
        low = min(low, magnitude(part[j]))
    return low


@inner(hot=True, counted=False)
def largest(values, left, right):
    """The largest magnitude of values[left:right]."""
    part = values[left:right]
    top = np.int64(0)
    for j in range(part.size):
        top = max(top, magnitude(part[j]))
    return top


# --- rows ------------------------------------------------------------------------------------------------------------
@generic(counted=False)
def fetch(rows, i, index, first, slot_of, member, cached, seen, log, tally):
    """Put row i on the slots into `cached`.

    Dense rows stay there once they have been read.  After an exchange such a row is patched in the slots that changed,
    when it is next drawn: an exchange itself costs nothing, however many rows there are.
    """


@fetch.rule(np.ndarray)
def _(rows, i, index, first, slot_of, member, cached, seen, log, tally):
    if cached.shape[0] == 1:
        gather(rows, i, index, first, slot_of, member, cached[0])
    else:
        now, then = tally[LOG], seen[i]
        seen[i] = now
        if then < 0 or now - then >= log.size:
            gather(rows, i, index, first, slot_of, member, cached[i])
        else:
            for event in range(then, now):
                s = log[event & (log.size - 1)]
                cached[i, s] = rows[i, np.uint64(index[s])]


@fetch.rule(CSR)
def _(rows, i, index, first, slot_of, member, cached, seen, log, tally):
    gather(rows, i, index, first, slot_of, member, cached[0])


@inner(fastmath=SUMS, hot=True, counted=False)
def dot(cached, r, x):
    total = 0.0
    for s in range(x.size):
        total += cached[r, s] * x[s]
    return total


@generic(counted=False)
def add_in_order(rows, which, coef, count, total):
    """total += coef[q]·a_i, i = which[q], for every q < count; each product and each sum is rounded, in this order."""


@add_in_order.rule(np.ndarray)
def _(rows, which, coef, count, total):
    fours = count - count % 4
    for q in range(0, fours, 4):  # four rows at a time: a quarter of the traffic to `total`
        i0, i1, i2, i3 = which[q], which[q + 1], which[q + 2], which[q + 3]
        c0, c1, c2, c3 = coef[q], coef[q + 1], coef[q + 2], coef[q + 3]
        for j in range(total.size):
            total[j] = (((total[j] + c0 * rows[i0, j]) + c1 * rows[i1, j]) + c2 * rows[i2, j]) + c3 * rows[i3, j]
    for q in range(fours, count):
        i, c = which[q], coef[q]
        for j in range(total.size):
            total[j] += c * rows[i, j]


@add_in_order.rule(CSR)
def _(rows, which, coef, count, total):
    for q in range(count):
        i = which[q]
        for p in range(rows.indptr[i], rows.indptr[i + 1]):
            total[rows.indices[p]] += coef[q] * rows.data[p]


# --- the step --------------------------------------------------------------------------------------------------------
@inner(hot=True, counted=False)
def descend(x, cached, r, delta, g, mu, eta, limits):
    """b = (1 − ηλ)x − η(g + δ a + mu) in place of x, a = cached[r]; returns the smallest magnitude that competes."""
    shrink = 1.0 - eta * limits.l2
    intercept = x[0] - eta * ((g[0] + delta * cached[r, 0]) + mu[0])
    for s in range(x.size):
        x[s] = shrink * x[s] - eta * ((g[s] + delta * cached[r, s]) + mu[s])
    if limits.first:
        x[0] = intercept  # it is not shrunk
    if limits.positive:
        for s in range(np.uint64(limits.kept), np.uint64(x.size)):
            x[s] = max(x[s], 0.0)
    return smallest(x, limits.kept, x.size)


@inner(hot=True, counted=False)
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


@inner(hot=True, counted=False)
def inflated(eta, reach, edge, terms):
    """The bound on |b| off the slots, beyond doubt in spite of rounding; `terms` is how many products a sum has."""
    return eta * (reach + edge[TOP] + edge[DRIFT]) * (1.0 + (8 + 4 * terms) * UNIT)


# --- the full scan: b on all columns, where the bound cannot exclude a change -----------------------------------------
@inner(counted=False)
def look(
    rows, idx, t, x, column, slot_of, member, log, tally, edge, slot_mu, mu,
    delta, b, tops, lows, listed, total, touched, marked, eta, limits, least,
):  # fmt: skip
    """Compare b on all columns with the chosen slots, and exchange the losers for the winners."""
    tally[LOOKS] += 1
    count = offer(
        rows, idx, t, slot_of, mu, delta, b, listed, tally[LISTED], total, touched, marked, edge, eta, limits.positive,
        least,
    )  # fmt: skip
    if admit(
        count, x, column, slot_of, member, log, tally, edge, slot_mu, mu, b, tops, lows, touched, limits.kept, least
    ):
        find_top(slot_of, mu, edge, listed, tally[LISTED])


@generic(counted=False)
def offer(rows, idx, t, slot_of, mu, delta, b, listed, n_listed, total, touched, marked, edge, eta, positive, least):
    """Write to b what the columns off the slots would have, and zero for those that cannot enter.

    Returns -1 if b[j] is that of column j, or else the number c of the columns that matter, touched[:c], with b[:c].
    """


@offer.rule(np.ndarray)
def _(rows, idx, t, slot_of, mu, delta, b, listed, n_listed, total, touched, marked, edge, eta, positive, least):
    i, coef = idx[t, 0], delta[0]
    for j in range(mu.size):
        b[j] = coef * rows[i, j]
    for c in range(1, idx.shape[1]):
        i, coef = idx[t, c], delta[c]
        for j in range(mu.size):
            b[j] += coef * rows[i, j]
    finish(b, mu, slot_of, eta, positive)
    return -1


@offer.rule(CSR)
def _(rows, idx, t, slot_of, mu, delta, b, listed, n_listed, total, touched, marked, edge, eta, positive, least):
    data, indices, indptr = rows.data, rows.indices, rows.indptr
    count = 0
    for c in range(idx.shape[1]):
        i = idx[t, c]
        for p in range(indptr[i], indptr[i + 1]):
            j = indices[p]
            total[j] += delta[c] * data[p]
            if not marked[j]:
                marked[j] = True
                touched[count] = j
                count += 1
    # where the rows have no entry, b is -eta mu_j: only the columns with the largest |mu| can matter
    tail = eta * (edge[TAIL] + edge[SINCE]) * (1.0 + 8 * UNIT)
    every = tail > 0.0 and magnitude(tail) >= least
    if every:
        for j in range(mu.size):
            b[j] = total[j]
        finish(b, mu, slot_of, eta, positive)
    else:
        for c in range(n_listed):
            if not marked[listed[c]]:
                marked[listed[c]] = True
                touched[count] = listed[c]
                count += 1
        for c in range(count):
            j = touched[c]
            value = -eta * (total[j] + mu[j])
            b[c] = value if slot_of[j] < 0 and (value > 0.0 or not positive) else 0.0
        for c in range(count, -(-count // BLOCK) * BLOCK):
            b[c] = 0.0
    for c in range(count):
        total[touched[c]] = 0.0
        marked[touched[c]] = False
    return -1 if every else count


@inner(hot=True, counted=False)
def finish(b, mu, slot_of, eta, positive):
    """From the sum of δ_b a_b to b, for the columns that may enter."""
    if positive:
        for j in range(mu.size):
            value = -eta * (b[j] + mu[j])
            b[j] = value if (slot_of[j] < 0) & (value > 0.0) else 0.0
    else:
        for j in range(mu.size):
            value = -eta * (b[j] + mu[j])
            b[j] = value if slot_of[j] < 0 else 0.0


@inner(counted=False)
def admit(count, x, column, slot_of, member, log, tally, edge, slot_mu, mu, b, tops, lows, touched, kept, least):
    """Keep the k largest of the chosen slots and of b (see `offer`); among equals the lower index.

    Exchanges one by one: the smallest slot, of equals that with the highest column, for the largest b, of equals that
    with the lowest.  Follows edge[TOP] too, and returns whether the column that it was the |mu| of has entered: then it
    must be found anew.
    """
    blocks = tops.size if count < 0 else -(-count // BLOCK)
    best = np.int64(0)
    for q in range(blocks):
        tops[q] = largest(b, q * BLOCK, (q + 1) * BLOCK)
        best = max(best, tops[q])
    if best < least:
        return False
    chosen, names = x[kept:], column[kept:]
    for q in range(lows.size):
        lows[q] = smallest(chosen, q * BLOCK, (q + 1) * BLOCK)
    top, stale = edge[TOP], False
    while best >= least and best > 0:
        # a column and its place in one number: one minimum, which vectorises, finds both
        key = MAGNITUDE
        for q in range(blocks):
            if tops[q] == best:
                for p in range(np.uint64(q * BLOCK), np.uint64((q + 1) * BLOCK)):
                    own = np.int64(p) if count < 0 else (np.int64(touched[p]) << 32) | np.int64(p)
                    key = min(key, own if magnitude(b[p]) == best else MAGNITUDE)
                if count < 0:
                    break
        c = key & 0xFFFFFFFF
        j = c if count < 0 else key >> 32
        key = np.int64(-1)
        for q in range(lows.size):
            if lows[q] == least:
                for p in range(np.uint64(q * BLOCK), np.uint64(min((q + 1) * BLOCK, chosen.size))):
                    key = max(key, (names[p] << 32) | np.int64(p) if magnitude(chosen[p]) == least else np.int64(-1))
                if least == 0:  # one zero is as good as another
                    break
        s = key & 0xFFFFFFFF
        if best == least and j > names[s]:
            break
        stale |= abs(mu[j]) >= top
        top = max(top, abs(mu[names[s]]))
        exchange(kept + s, j, column, slot_of, member, log, tally)
        chosen[s], slot_mu[kept + s], b[c] = b[c], mu[j], 0.0
        left = c // BLOCK * BLOCK
        tops[c // BLOCK] = largest(b, left, left + BLOCK)
        best = np.int64(0)
        for q in range(blocks):
            best = max(best, tops[q])
        left = s // BLOCK * BLOCK
        lows[s // BLOCK] = smallest(chosen, left, left + BLOCK)
        least = MAGNITUDE
        for q in range(lows.size):
            least = min(least, lows[q])
    edge[TOP] = top
    return stale


@inner(hot=True, counted=False)
def exchange(s, j, column, slot_of, member, log, tally):
    """Give slot s to column j."""
    one, low_bits = np.uint64(1), np.uint64(63)
    old = column[s]
    slot_of[old] = -1
    member[old >> 6] &= ~(one << (np.uint64(old) & low_bits))
    column[s] = j
    slot_of[j] = s
    member[j >> 6] |= one << (np.uint64(j) & low_bits)
    log[tally[LOG] & (log.size - 1)] = s
    tally[LOG] += 1
    tally[SWAPS] += 1


# --- the largest |mu| off the slots ----------------------------------------------------------------------------------
@inner(counted=False)
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
    survey(slots.slot_of, mu, screen.edge, screen.listed, screen.tally, screen.b, positive)
    return True


@inner(counted=False)
def survey(slot_of, mu, edge, listed, tally, score, positive):
    """Find the largest |mu| off the slots afresh, in O(d); only negative mu count if coefficients must be positive."""
    edge[DRIFT] = 0.0
    edge[SINCE] = 0.0
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
        tally[LISTED] = count
        edge[TAIL] = cut
    find_top(slot_of, mu, edge, listed, tally[LISTED])


@inner(counted=False)
def find_top(slot_of, mu, edge, listed, n_listed):
    """edge[TOP] = the maximum of |mu| off the slots; for CSR a bound of it, from the listed columns only."""
    if listed.size == 0:
        most = np.int64(0)
        for j in range(mu.size):
            most = max(most, magnitude(mu[j]) if slot_of[j] < 0 else np.int64(0))
        edge[TOP] = np.int64(most).view(np.float64)
        return
    top = edge[TAIL] + edge[SINCE]
    for c in range(n_listed):
        if slot_of[listed[c]] < 0:
            top = max(top, abs(mu[listed[c]]))
    edge[TOP] = top
