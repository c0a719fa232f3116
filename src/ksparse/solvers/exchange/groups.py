r"""The tableau of `tableau.py` for groups of several columns and several outputs.

A group is a range of the model's columns, ``starts[I]..starts[I + 1]``, that enters or leaves as one; u has one column
per output.  What a group is worth is :math:`\frac12\operatorname{tr}(u_I^\top P_{II}^{-1}u_I)`, and exchanging J for I

.. math:: \tfrac12\operatorname{tr}(t^\top Q^{-1}t) - \tfrac12\operatorname{tr}(u_J^\top E u_J), \qquad
          E = (-P_{JJ})^{-1},\ t = u_I + P_{IJ}Eu_J,\ Q = P_{II} + P_{IJ}EP_{JI}.

Columns that are combinations of others are passed over: a group comes in without them.
"""

from __future__ import annotations

import numpy as np

from ..._jit import SUMS, inner, kernel
from .tableau import FLAT


@inner(fastmath=SUMS)
def pivot(P, u, row, j, enter):
    """Let column j in, or out."""
    size, outputs = u.shape
    for a in range(size):
        row[a] = P[j, a]
    d = row[j]
    sign = 1.0 if enter else -1.0
    for a in range(size):
        f = row[a] / d
        if a != j and f != 0.0:
            for b in range(size):
                P[a, b] -= f * row[b]
            for c in range(outputs):
                u[a, c] -= f * u[j, c]
    for a in range(size):
        P[a, j] = P[j, a] = sign * row[a] / d
    P[j, j] = -1.0 / d
    for c in range(outputs):
        u[j, c] *= sign / d


# --- what things are worth -------------------------------------------------------------------------------------------
@inner
def eliminate(Q, t, own, first, size):
    """½tr(tᵀQ⁻¹t), in place and without the columns that are combinations; −1 if all of them are."""
    total, any_left = 0.0, False
    for a in range(size):
        d = Q[a, a]
        if d <= FLAT * own[first + a]:
            continue
        any_left = True
        for c in range(t.shape[1]):
            total += t[a, c] * t[a, c] / d
        for b in range(a + 1, size):
            f = Q[b, a] / d
            for e in range(b, size):
                Q[e, b] -= Q[e, a] * f
            for c in range(t.shape[1]):
                t[b, c] -= f * t[a, c]
    return 0.5 * total if any_left else -1.0


@inner
def invert(Q, size):
    """Q⁻¹ of a small positive matrix, in place; a row that is left out has a zero on the diagonal and stays zero."""
    for a in range(size):
        d = Q[a, a]
        if d <= 0.0:
            for b in range(size):
                Q[a, b] = Q[b, a] = 0.0
            continue
        Q[a, a] = 1.0
        for b in range(size):
            Q[a, b] /= d
        for e in range(size):
            f = Q[e, a]
            if e != a and f != 0.0:
                Q[e, a] = 0.0
                for b in range(size):
                    Q[e, b] -= f * Q[a, b]


@inner
def prepare_leave(P, sign, v, at, start, stop, inside, Q, E, Ev):
    """E and E·v of the group in the columns at start..stop, from sign·P; returns what the group is worth.

    `at` is the first row in E and Ev, which have one row per column.
    """
    size, outputs = stop - start, v.shape[1]
    for a in range(size):
        for b in range(size):
            both = inside[start + a] and inside[start + b]
            Q[a, b] = sign * P[start + a, start + b] if both else 0.0
    invert(Q, size)
    worth = 0.0
    for a in range(size):
        for b in range(size):
            E[at + a, b] = Q[a, b]
        for c in range(outputs):
            total = 0.0
            for b in range(size):
                total += Q[a, b] * v[start + b, c]
            Ev[at + a, c] = total
            worth += total * v[start + a, c]
    return 0.5 * worth


@inner
def trade(X, i0, si, j0, sj, u, E, Ev, P_own, own, Q, t, line):
    """What group I is worth once J is out; X holds P_IJ at its rows i0 and columns j0, P_own holds P_II."""
    for a in range(si):
        for c in range(u.shape[1]):
            total = u[i0 + a, c]
            for b in range(sj):
                total += X[i0 + a, j0 + b] * Ev[j0 + b, c]
            t[a, c] = total
        for b in range(sj):
            total = 0.0
            for e in range(sj):
                total += X[i0 + a, j0 + e] * E[j0 + e, b]
            line[b] = total
        for e in range(a + 1):
            total = P_own[a, e]
            for b in range(sj):
                total += line[b] * X[i0 + e, j0 + b]
            Q[a, e] = total
    return eliminate(Q, t, own, i0, si)


@inner
def load_own(P, u, i0, size, Q, t):
    """P_II and u_I, ready for `eliminate`."""
    for a in range(size):
        for b in range(a + 1):
            Q[a, b] = P[i0 + a, i0 + b]
        for c in range(u.shape[1]):
            t[a, c] = u[i0 + a, c]


@inner
def largest(starts):
    """The columns of the largest group."""
    most = 1
    for i in range(starts.size - 1):
        most = max(most, starts[i + 1] - starts[i])
    return most


# --- moving groups ----------------------------------------------------------------------------------------------------
@inner
def move(P, u, row, inside, chosen, own, starts, group, enter):
    """Let a group in or out, column by column."""
    for j in range(starts[group], starts[group + 1]):
        if enter and not inside[j] and P[j, j] > FLAT * own[j]:
            pivot(P, u, row, j, True)
            inside[j] = True
        elif not enter and inside[j]:
            pivot(P, u, row, j, False)
            inside[j] = False
    chosen[group] = enter


@kernel
def enter_all(P, u, row, inside, chosen, own, starts, which):
    """Let in the groups `which`, as far as their columns are no combinations of those before."""
    for group in which:
        move(P, u, row, inside, chosen, own, starts, group, True)


@inner
def find_partners(P, u, inside, chosen, fixed, own, starts, leave, gain):
    """What `best_partners` gives."""
    size, outputs = u.shape
    most = largest(starts)
    E, Ev, out = np.empty((size, most)), np.empty((size, outputs)), np.empty(starts.size)
    P_own, Q, t, line = np.empty((most, most)), np.empty((most, most)), np.empty((most, outputs)), np.empty(most)
    for j in range(chosen.size):
        if chosen[j] and not fixed[j]:
            out[j] = prepare_leave(P, -1.0, u, starts[j], starts[j], starts[j + 1], inside, Q, E, Ev)
    for i in range(chosen.size):
        leave[i], gain[i] = -1, 0.0
        if chosen[i]:
            continue
        i0, si = starts[i], starts[i + 1] - starts[i]
        load_own(P, u, i0, si, P_own, t)
        for a in range(si):  # a slice would take seconds to compile
            for b in range(si):
                Q[a, b] = P_own[a, b]
        if eliminate(Q, t, own, i0, si) < 0.0:
            continue
        for j in range(chosen.size):
            if chosen[j] and not fixed[j]:
                sj = starts[j + 1] - starts[j]
                worth = trade(P, i0, si, starts[j], sj, u, E, Ev, P_own, own, Q, t, line) - out[j]
                if worth > gain[i]:
                    leave[i], gain[i] = j, worth


@kernel
def best_partners(P, u, inside, chosen, fixed, own, starts, leave, gain):
    """For every group outside: which one to exchange it for, and by how much the model would fall (or 0)."""
    find_partners(P, u, inside, chosen, fixed, own, starts, leave, gain)


@kernel
def exchange(P, u, row, inside, chosen, fixed, own, starts, least, most, made):
    """Make the best exchange while it lowers the model by more than `least`, `most` times at most.

    Writes (out, in) to `made`; returns how many.
    """
    leave, gain = np.empty(chosen.size, np.int64), np.empty(chosen.size)
    count = 0
    while count < most:
        find_partners(P, u, inside, chosen, fixed, own, starts, leave, gain)
        best = 0
        for i in range(gain.size):
            if gain[i] > gain[best]:
                best = i
        if not gain[best] > least:
            break
        move(P, u, row, inside, chosen, own, starts, leave[best], False)
        move(P, u, row, inside, chosen, own, starts, best, True)
        made[count, 0], made[count, 1] = leave[best], best
        count += 1
    return count


@kernel
def resize(P, u, row, inside, chosen, fixed, own, starts, wanted):
    """Let groups in by what they are worth, or out by how little, until `wanted` are in beside the fixed ones."""
    size, outputs = u.shape
    most = largest(starts)
    E, Ev = np.empty((size, most)), np.empty((size, outputs))
    Q, t = np.empty((most, most)), np.empty((most, outputs))
    count = 0
    for j in range(chosen.size):
        if chosen[j] and not fixed[j]:
            count += 1
    while count != wanted:
        growing = count < wanted
        best, group = (-1.0 if growing else np.inf), -1
        for j in range(chosen.size):
            start, stop = starts[j], starts[j + 1]
            if growing and not chosen[j]:
                load_own(P, u, start, stop - start, Q, t)
                worth = eliminate(Q, t, own, start, stop - start)
                if worth > best:
                    best, group = worth, j
            if not growing and chosen[j] and not fixed[j]:
                worth = prepare_leave(P, -1.0, u, start, start, stop, inside, Q, E, Ev)
                if worth < best:
                    best, group = worth, j
        if group < 0:
            break
        move(P, u, row, inside, chosen, own, starts, group, growing)
        count += 1 if growing else -1


# --- all groups at once -----------------------------------------------------------------------------------------------
@kernel
def entry_worths(blocks, at, u, own, starts, worth):
    """What every group is worth beside nothing, from its block of the Hessian (flat, from at[I] on); −1 if nothing."""
    most = largest(starts)
    Q, t = np.empty((most, most)), np.empty((most, u.shape[1]))
    for i in range(starts.size - 1):
        i0, si = starts[i], starts[i + 1] - starts[i]
        for a in range(si):
            for b in range(a + 1):
                Q[a, b] = blocks[at[i] + a * si + b]
            for c in range(u.shape[1]):
                t[a, c] = u[i0 + a, c]
        worth[i] = eliminate(Q, t, own, i0, si)


@kernel
def exchange_worths(blocks, at, B, cross, u, own, starts, inverse, v, inside_starts, first, worth):
    """What the best exchange is worth for every group, against all the groups in a support (those from `first` on).

    B = G_{·S}, cross = B·G_SS⁻¹; a group's own part of the tableau is its block less cross·Bᵀ.
    """
    size, outputs = v.shape
    most = max(largest(starts), largest(inside_starts))
    E, Ev, out = np.empty((size, most)), np.empty((size, outputs)), np.empty(inside_starts.size)
    P_own, Q, t, line = np.empty((most, most)), np.empty((most, most)), np.empty((most, outputs)), np.empty(most)
    inside = np.ones(size, np.bool_)
    for j in range(first, inside_starts.size - 1):
        j0 = inside_starts[j]
        out[j] = prepare_leave(inverse, 1.0, v, j0, j0, inside_starts[j + 1], inside, Q, E, Ev)
    for i in range(starts.size - 1):
        i0, si = starts[i], starts[i + 1] - starts[i]
        for a in range(si):
            for b in range(a + 1):
                total = blocks[at[i] + a * si + b]
                for s in range(size):
                    total -= cross[i0 + a, s] * B[i0 + b, s]
                P_own[a, b] = Q[a, b] = total
            for c in range(outputs):
                t[a, c] = u[i0 + a, c]
        worth[i] = eliminate(Q, t, own, i0, si)
        if worth[i] < 0.0:
            continue
        worth[i] = 0.0
        for j in range(first, inside_starts.size - 1):
            j0 = inside_starts[j]
            sj = inside_starts[j + 1] - j0
            gain = trade(cross, i0, si, j0, sj, u, E, Ev, P_own, own, Q, t, line) - out[j]
            worth[i] = max(worth[i], gain)
