r"""The exact hard-thresholded step in O(k): what every stochastic kernel is made of.

A step is ``b = (1 − ηλ) x − η (Σ_b δ_b a_b + μ)``, ``x = Π_ω(H_k(b))``, with x supported on the slots.  On the
slots b costs O(k).  Off them, with ``|δ|‖a‖_∞`` summed over the rows of the batch,

.. math:: |b_j| \le \eta\,\bigl(\textstyle\sum_b |\delta_b|\,\|a_b\|_\infty + \max_{j \notin S} |\mu_j|\bigr),

and while that is below every magnitude on the slots, no column can enter: H_k(b) is b on the slots, and the
step is over.  Otherwise `look` (in steps.py) computes b on all columns and exchanges those that really win.
Nothing here is approximate.

Rounding: the bound is inflated by a few units in the last place, and both sides of every comparison are computed by the
same expression, so that ties fall to the lower index exactly as in a plain sort.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._jit import SUMS, generic, inner
from ..design.kernels import CSR, gather
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
    listed: NDArray[np.int32]  # CSR: the columns with the largest |mu|, in no order
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
