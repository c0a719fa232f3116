r"""The model of `pivots.py` for groups of columns and several right-hand sides.

A group enters and leaves column by column.  With the block :math:`D_{gg}` of the Schur complement, the slots s of a
group that is in and :math:`E = Q_{ss}^{-1}`, exchanging s for g lowers twice the model by

.. math:: \sum_o r_o^\top(D_{gg} + T_{sg}^\top E T_{sg})^{-1}r_o - \sum_o v_{so}^\top E v_{so}, \qquad
          r_o = u_{go} + T_{sg}^\top E v_{so},

over the right-hand sides o, exactly, and by no more than the entry of g alone does.  Columns that are combinations of
others are passed over: a group comes in without them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..._jit import SUMS, inner
from .pivots import (
    DEPENDENT,
    FLAT,
    Array,
    Columns,
    Tableau,
    bar,
    best_entry,
    best_exchange,
    choice,
    clear,
    copy_state,
    enter,
    least_needed,
    leave,
    let_in,
    let_out,
    mark_open,
    new_tableau,
    plain,
    restart,
    size,
    twice_value,
    wants_rows,
)
from .walk import WANTED, ask, insert


class Choices(NamedTuple):
    """What is chosen together: choice j is the columns order[starts[j]:starts[j + 1]]."""

    order: Columns
    starts: Columns

    def columns(self, some: Columns) -> Columns:
        """The columns of some choices, one choice after the other."""
        if self.order.size == self.starts.size - 1:
            return self.order[some]
        return np.concatenate([self.order[:0], *(self.order[self.starts[j] : self.starts[j + 1]] for j in some)])


class GroupTableau(NamedTuple):
    """Group I holds the columns starts[I]..starts[I + 1]; the fixed columns come before the first group."""

    base: Tableau  # with the first right-hand side
    u: Array  # (right-hand sides less one, d)
    v: Array  # (right-hand sides less one, slots)
    c: Array
    starts: Columns
    at: Columns  # where the block of a group begins in `blocks`
    blocks: Array  # of the Schur complement, one group after the other, row by row
    own_blocks: Array  # the same with no column in
    number: Columns  # (1,): how many groups are in
    groups: Columns  # which
    worth: Array  # what the entry of each group is worth; −1 if it may not enter


def new_group_tableau(c: Array, blocks: Array, starts: Columns, l2: float, total: float, slots: int) -> GroupTableau:
    """The model with no column in; c has one row per right-hand side, `blocks` the groups' own blocks of G.

    The fixed columns come first, as blocks of one.
    """
    fixed, widths = int(starts[0]), np.diff(starts)
    at = np.concatenate([[0], np.cumsum(widths**2)]) + fixed
    diagonal = np.concatenate(
        [np.arange(fixed), *(a + np.arange(w) * (w + 1) for a, w in zip(at, widths, strict=False))]
    )
    own, d, others = blocks[diagonal], c.shape[1], c.shape[0] - 1
    base = new_tableau(np.ascontiguousarray(c[0]), own, np.full(d, l2), total, slots, fixed)
    ridged = blocks.copy()
    ridged[diagonal] += l2
    count = starts.size - 1
    return GroupTableau(
        base, c[1:].copy(), np.zeros((others, slots)), np.ascontiguousarray(c[1:]), starts, at, ridged.copy(), ridged,
        np.zeros(1, np.int64), np.zeros(count, np.int64), np.full(count, -1.0),
    )  # fmt: skip


# --- columns in and out ----------------------------------------------------------------------------------------------
@inner(fastmath=SUMS)
def add_to_blocks(t, x, factor):
    """Add factor·xxᵀ to the blocks."""
    starts, at, blocks = t.starts, t.at, t.blocks
    for g in range(starts.size - 1):
        low, width, b = starts[g], starts[g + 1] - starts[g], at[g]
        for r in range(width):
            f = factor * x[low + r]
            for q in range(width):
                blocks[b + r * width + q] += f * x[low + q]


@inner(fastmath=SUMS)
def enter_column(t, i, rows, row_of):
    base, u, v = t.base, t.u, t.v
    k = base.held[0]
    enter(base, i, rows, row_of)
    p, side, inverse = base.row, base.side, base.Q[k, k]
    for o in range(u.shape[0]):
        step = u[o, i] * inverse
        for s in range(k):
            v[o, s] -= side[s] * step
        v[o, k] = step
        for a in range(p.size):
            u[o, a] -= p[a] * step
        u[o, i] = 0.0
    add_to_blocks(t, p, -inverse)


@inner(fastmath=SUMS)
def leave_column(t, s):
    base, u, v = t.base, t.u, t.v
    k, Q, Ts = base.held[0], base.Q, base.T[s]
    e = 1.0 / Q[s, s]
    for o in range(u.shape[0]):
        w = v[o, s] * e
        for a in range(Ts.size):
            u[o, a] += Ts[a] * w
        for r in range(k):
            if r != s:
                v[o, r] -= Q[r, s] * w
        v[o, s] = v[o, k - 1]
    add_to_blocks(t, Ts, e)
    leave(base, s)


# --- what groups are worth -------------------------------------------------------------------------------------------
@inner
def eliminate(M, r, own, low, width):
    """Σ_o r_oᵀM⁻¹r_o, in place and without the columns that are combinations; −1 if all of them are."""
    total, any_left = 0.0, False
    for a in range(width):
        d = M[a, a]
        if d <= FLAT * own[low + a]:
            continue
        any_left = True
        for o in range(r.shape[1]):
            total += r[a, o] * r[a, o] / d
        for b in range(a + 1, width):
            f = M[b, a] / d
            for e in range(b, width):
                M[e, b] -= M[e, a] * f
            for o in range(r.shape[1]):
                r[b, o] -= f * r[a, o]
    return total if any_left else -1.0


@inner
def widest(t):
    most = 1
    for g in range(t.starts.size - 1):
        most = max(most, t.starts[g + 1] - t.starts[g])
    return most


@inner
def prepare(t, group, slots, E, Ev):
    """The slots of a group that is in, E = Q_ss⁻¹ and E·v_s; returns how many slots, and Σ_o v_soᵀEv_so."""
    base, count = t.base, 0
    for s in range(base.fixed, base.held[0]):
        if t.starts[group] <= base.columns[s] < t.starts[group + 1]:
            slots[count] = s
            count += 1
    for a in range(count):
        for b in range(count):
            E[a, b] = base.Q[slots[a], slots[b]]
    for a in range(count):  # Gauss and Jordan, in place
        d = E[a, a]
        E[a, a] = 1.0
        for b in range(count):
            E[a, b] /= d
        for r in range(count):
            if r != a:
                f = E[r, a]
                E[r, a] = 0.0
                for b in range(count):
                    E[r, b] -= f * E[a, b]
    cost = 0.0
    for o in range(t.v.shape[0] + 1):
        for a in range(count):
            total = 0.0
            for b in range(count):
                total += E[a, b] * (base.v[slots[b]] if o == 0 else t.v[o - 1, slots[b]])
            Ev[a, o] = total
            cost += total * (base.v[slots[a]] if o == 0 else t.v[o - 1, slots[a]])
    return count, cost


@inner
def load_block(t, g, M, r):
    """D_gg and u_g."""
    low, width = t.starts[g], t.starts[g + 1] - t.starts[g]
    for a in range(width):
        for b in range(width):
            M[a, b] = t.blocks[t.at[g] + a * width + b]
        r[a, 0] = t.base.u[low + a]
        for o in range(t.u.shape[0]):
            r[a, o + 1] = t.u[o, low + a]


@inner
def best_trade(t, least):
    base, most_width, outputs = t.base, widest(t), t.u.shape[0] + 1
    slots, E, Ev = np.empty(most_width, np.int64), np.empty((most_width, most_width)), np.empty((most_width, outputs))
    M, r, line = np.empty((most_width, most_width)), np.empty((most_width, outputs)), np.empty(most_width)
    found, place, most = -1, -1, least
    for s in range(t.number[0]):
        count, cost = prepare(t, t.groups[s], slots, E, Ev)
        for g in range(t.starts.size - 1):
            if t.worth[g] <= most:  # its entry beside all others is worth no more
                continue
            load_block(t, g, M, r)
            low, width = t.starts[g], t.starts[g + 1] - t.starts[g]
            for a in range(width):
                for b in range(count):
                    total, T_ba = 0.0, base.T[slots[b], low + a]
                    for e in range(count):
                        total += base.T[slots[e], low + a] * E[e, b]
                    line[b] = total
                    for o in range(outputs):
                        r[a, o] += T_ba * Ev[b, o]
                for e in range(a + 1):
                    for b in range(count):
                        M[a, e] += line[b] * base.T[slots[b], low + e]
            gain = eliminate(M, r, base.own, low, width) - cost
            if gain > most:
                found, place, most = g, s, gain
    return found, place


# --- the operations of a search --------------------------------------------------------------------------------------
@plain.rule(GroupTableau)
def _(t):
    return t.base


@size.rule(GroupTableau)
def _(t):
    return t.number[0]


@choice.rule(GroupTableau)
def _(t, s):
    return t.groups[s]


@inner
def group_in(t, i, rows, row_of):
    for j in range(t.starts[i], t.starts[i + 1]):
        if t.base.D[j] > FLAT * t.base.own[j]:
            enter_column(t, j, rows, row_of)
    t.groups[t.number[0]] = i
    t.number[0] += 1


@let_in.rule(GroupTableau)
def _(t, i, rows, row_of):
    group_in(t, i, rows, row_of)


@inner
def group_out(t, place):
    group, s = t.groups[place], t.base.held[0] - 1
    while s >= t.base.fixed:  # from the last slot down: what moves into a slot was looked at before
        if t.starts[group] <= t.base.columns[s] < t.starts[group + 1]:
            leave_column(t, s)
        s -= 1
    t.number[0] -= 1
    t.groups[place] = t.groups[t.number[0]]


@let_out.rule(GroupTableau)
def _(t, s, rows, row_of):
    group_out(t, s)


@inner
def open_groups(t):
    M, r = np.empty((widest(t), widest(t))), np.empty((widest(t), t.u.shape[0] + 1))
    for g in range(t.worth.size):
        load_block(t, g, M, r)
        t.worth[g] = eliminate(M, r, t.base.own, t.starts[g], t.starts[g + 1] - t.starts[g])
    for s in range(t.number[0]):
        t.worth[t.groups[s]] = -1.0


@mark_open.rule(GroupTableau)
def _(t):
    open_groups(t)


@bar.rule(GroupTableau)
def _(t, i):
    t.worth[i] = -1.0


@best_entry.rule(GroupTableau)
def _(t):
    found, most = -1, 0.0
    for g in range(t.worth.size):
        if t.worth[g] > most:
            found, most = g, t.worth[g]
    return found


@inner
def least_needed_group(t):
    width = widest(t)
    slots, E, Ev = np.empty(width, np.int64), np.empty((width, width)), np.empty((width, t.u.shape[0] + 1))
    found, least = -1, np.inf
    for s in range(t.number[0]):
        cost = prepare(t, t.groups[s], slots, E, Ev)[1]
        if cost < least:
            found, least = s, cost
    return found


@least_needed.rule(GroupTableau)
def _(t):
    return least_needed_group(t)


@best_exchange.rule(GroupTableau)
def _(t, least):
    return best_trade(t, least)


@twice_value.rule(GroupTableau)
def _(t):
    value = twice_value(t.base)
    for s in range(t.base.held[0]):
        for o in range(t.v.shape[0]):
            value -= t.c[o, t.base.columns[s]] * t.v[o, s]
    return value


@wants_rows.rule(GroupTableau)
def _(t, i, row_of):
    missing = False
    for j in range(t.starts[i], t.starts[i + 1]):
        missing = missing or (row_of[j] < 0 and t.base.D[j] > FLAT * t.base.own[j])
    return missing


@inner
def restart_groups(t, fixed, rows, row_of):
    clear(t.base)
    t.number[0] = 0
    t.u[:] = t.c
    t.blocks[:] = t.own_blocks
    for b in range(fixed.size):
        if not t.base.D[fixed[b]] > DEPENDENT * t.base.own[fixed[b]]:
            raise ZeroDivisionError("fixed columns that depend on each other")
        enter_column(t, fixed[b], rows, row_of)


@restart.rule(GroupTableau)
def _(t, fixed, rows, row_of):
    restart_groups(t, fixed, rows, row_of)


@copy_state.rule(GroupTableau)
def _(source, target):
    copy_state(source.base, target.base)
    target.u[:], target.v[:], target.blocks[:] = source.u, source.v, source.blocks
    target.number[0], target.groups[:] = source.number[0], source.groups


@ask.rule(GroupTableau)
def _(t, i, row_of, wanted, state):
    groups, worth = np.empty(wanted.size, np.int64), np.empty(wanted.size)
    groups[0], worth[0], found, count = i, np.inf, 1, 0
    for g in range(t.worth.size):
        if g != i and t.worth[g] > 0.0 and row_of[t.starts[g]] < 0:
            found = insert(g, t.worth[g], groups, worth, found)
    for b in range(found):
        if count + t.starts[groups[b] + 1] - t.starts[groups[b]] <= wanted.size:
            for j in range(t.starts[groups[b]], t.starts[groups[b] + 1]):
                if row_of[j] < 0:
                    wanted[count] = j
                    count += 1
    state[WANTED] = count
