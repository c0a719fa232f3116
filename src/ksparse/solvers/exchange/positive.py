"""Least squares with coefficients that are not negative, for every number of columns at once.

A state is a support whose least-squares coefficients are all positive, so that the model's value is exact.  Only
columns with a positive covariance with the residuals enter.  Columns whose coefficients become negative leave, and the
support is filled up again; a move that does not lower the value is undone.  The fixed columns may have any sign.
"""

from __future__ import annotations

import numpy as np

from ..._jit import inner, kernel
from .pivots import BARRED, copy_state, enter, least_needed, leave, mark_open, restart, twice_value
from .walk import move_to


@inner
def most_negative(t):
    """The slot of the most negative coefficient; −1 if there is none."""
    found, least = -1, 0.0
    for s in range(t.fixed, t.held[0]):
        if t.v[s] < least:
            found, least = s, t.v[s]
    return found


@inner
def best_positive(t, barred):
    """The column with a positive covariance whose entry lowers the model most; −1 if none does."""
    found, most = -1, 0.0
    for a in range(t.u.size):
        if t.u[a] > 0.0 and not barred[a] and t.open[a] < BARRED and t.u[a] * t.u[a] > most * t.open[a]:
            found, most = a, t.u[a] * t.u[a] / t.open[a]
    return found


@inner
def fill(t, wanted, barred, rows, row_of):
    """Let columns in until `wanted` are in beside the fixed ones; those whose coefficients turn negative leave.

    The support that is left may be smaller, but all its coefficients are positive.
    """
    while True:
        s = most_negative(t)
        while s >= 0:
            barred[t.columns[s]] = True
            leave(t, s)
            s = most_negative(t)
        if t.held[0] - t.fixed >= wanted:
            return
        mark_open(t)
        i = best_positive(t, barred)
        if i < 0:
            return
        enter(t, i, rows, row_of)


@inner
def best_positive_pair(t, least, failed):
    """(column, slot) of the best exchange in which the new coefficient is positive, among the pairs not yet tried."""
    column, slot, most = -1, -1, least
    for s in range(t.fixed, t.held[0]):
        e = 1.0 / t.Q[s, s]
        w = t.v[s] * e
        for a in range(t.u.size):
            r, q = t.u[a] + t.T[s, a] * w, t.open[a] + t.T[s, a] * t.T[s, a] * e
            if r > 0.0 and t.open[a] < BARRED and r * r > (t.v[s] * w + most) * q and not failed[s, a]:
                column, slot, most = a, s, r * r / q - t.v[s] * w
    return column, slot


@inner
def exchange_positive(t, spare, wanted, barred, failed, rows, row_of, share, floor):
    """Make exchanges until none that was tried lowers the value."""
    failed[:] = False
    while True:
        value = twice_value(t)
        least = max(share * value, floor)
        mark_open(t)
        i, s = best_positive_pair(t, least, failed)
        if i < 0:
            return
        copy_state(t, spare)
        leave(t, s)
        enter(t, i, rows, row_of)
        barred[:] = False
        fill(t, wanted, barred, rows, row_of)
        if twice_value(t) < value - least:
            failed[:] = False
        else:
            copy_state(spare, t)
            failed[s, i] = True


@inner
def keep_best(t, walk, k, floor):
    """Note the support if it is the best of at most k columns so far; whether it is."""
    value = twice_value(t)
    if not value < walk.value[k] - floor:
        return False
    walk.value[k] = value
    for s in range(walk.choices.shape[1]):
        walk.choices[k, s] = t.columns[t.fixed + s] if t.fixed + s < t.held[0] else -1
    return True


@inner
def go_to(t, walk, k, rows, row_of):
    count = 0
    while count < k and walk.choices[k, count] >= 0:
        count += 1
    move_to(t, walk.choices[k], count, rows, row_of)


@kernel
def walk_positive(t, spare, walk, fixed, rows, row_of, share, floor, low, high, step, shares, priority):
    """One walk over the sizes from low to high, up (step 1) or down (−1), or perturbations of every size (0).

    Returns how many supports were improved.
    """
    improved, barred = 0, np.zeros(t.u.size, np.bool_)
    failed = np.zeros((t.columns.size, t.u.size), np.bool_)
    if t.held[0] < t.fixed:
        restart(t, fixed, rows, row_of)
        walk.value[0], walk.choices[0, :] = twice_value(t), -1
    for b in range(low, high + 1):
        k = b if step >= 0 else high + low - b
        start = k - step
        if start < 0 or start >= walk.value.size or not np.isfinite(walk.value[start]):
            continue
        go_to(t, walk, start, rows, row_of)
        barred[:] = False
        if step < 0 and t.held[0] - t.fixed > k:
            leave(t, t.fixed + least_needed(t))
        if step == 0:
            for s in range(t.held[0] - 1, t.fixed - 1, -1):
                if priority[t.columns[s]] < shares[k]:
                    barred[t.columns[s]] = True
                    leave(t, s)
        fill(t, k, barred, rows, row_of)
        exchange_positive(t, spare, k, barred, failed, rows, row_of, share, floor)
        improved += keep_best(t, walk, k, max(share * walk.value[k], floor) if np.isfinite(walk.value[k]) else floor)
    return improved


@kernel
def settle_positive(t, spare, walk, fixed, rows, row_of, own, sizes, ridges, share, floor, columns):
    """At each size, under its ridge, exchange from the best support; its columns go to `columns`, filled up with −1."""
    barred, failed = np.zeros(t.u.size, np.bool_), np.zeros((t.columns.size, t.u.size), np.bool_)
    for b in range(sizes.size):
        for a in range(own.size):
            t.ridge[a] = ridges[b]
            t.own[a] = own[a] + ridges[b]
        restart(t, fixed, rows, row_of)
        go_to(t, walk, sizes[b], rows, row_of)
        barred[:] = False
        fill(t, sizes[b], barred, rows, row_of)
        exchange_positive(t, spare, sizes[b], barred, failed, rows, row_of, share, floor)
        for s in range(columns.shape[1]):
            columns[b, s] = t.columns[s] if s < t.held[0] else -1
