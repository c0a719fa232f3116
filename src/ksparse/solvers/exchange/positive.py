r"""The model of `pivots.py` for columns whose coefficients may not be negative.

The chosen columns have the coefficients that minimise the model among those that are not negative (Lawson and Hanson,
Solving Least Squares Problems, 1974).  Those whose coefficient is zero stay chosen, but are not in the tableau.  An
exchange lowers the model by no more than it would without signs; where a sign changes, the new coefficients tell by how
much.  The fixed columns may have any sign.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..._jit import inner
from .pivots import (
    BARRED,
    FLAT,
    Array,
    Columns,
    Tableau,
    any_above,
    bar,
    best_entry,
    best_exchange,
    choice,
    copy_state,
    enter,
    least_needed,
    leave,
    let_in,
    let_out,
    mark_open,
    plain,
    restart,
    size,
    twice_value,
    wants_rows,
)
from .walk import ask

SAME = 1e-9  # share by which a gain may differ from its bound and count as equal


class PositiveTableau(NamedTuple):
    """Chosen columns, of which those with a positive coefficient are in."""

    base: Tableau
    number: Columns  # (1,): how many columns are chosen
    chosen: Columns
    x: Array  # work space: coefficients on the way to the minimiser
    small: Array  # work space: the model on the columns that are in and one more


def new_positive_tableau(base: Tableau) -> PositiveTableau:
    """The model with no column chosen."""
    slots = base.columns.size
    return PositiveTableau(
        base, np.zeros(1, np.int64), np.zeros(slots, np.int64), np.zeros(slots + 1), np.zeros((slots + 1, slots + 1))
    )


# --- columns in and out ----------------------------------------------------------------------------------------------
@inner
def first_negative(x, z, inside, low, high):
    """Which coefficient, on the way from x to z, is the first to become negative, and after which part of the way."""
    found, part = -1, 1.0
    for s in range(low, high):
        if inside[s] and z[s] <= 0.0:
            share = x[s] / (x[s] - z[s]) if x[s] > 0.0 else 0.0
            if share < part or found < 0:
                found, part = s, share
    return found, part


@inner
def slot_of(t, i):
    """The slot of a chosen column; −1 if its coefficient is zero."""
    base = t.base
    for s in range(base.fixed, base.held[0]):
        if base.columns[s] == i:
            return s
    return -1


@inner
def zero_place(t):
    """The place of a chosen column whose coefficient is zero; −1 if there is none."""
    if t.number[0] > t.base.held[0] - t.base.fixed:
        for p in range(t.number[0]):
            if slot_of(t, t.chosen[p]) < 0:
                return p
    return -1


@inner
def take_out(t, s):
    """Take the column in slot s out of the tableau; its coefficient on the way goes with it."""
    leave(t.base, s)
    t.x[s] = t.x[t.base.held[0]]


@inner
def zero_that_helps(t):
    """The chosen column with the coefficient zero whose entry lowers the model most; −1 if none does."""
    base, found, most = t.base, -1, 0.0
    if t.number[0] > base.held[0] - base.fixed:
        for p in range(t.number[0]):
            i = t.chosen[p]
            if base.u[i] > 0.0 and base.D[i] > FLAT * base.own[i] and base.u[i] ** 2 > most * base.D[i]:
                found, most = i, base.u[i] ** 2 / base.D[i]
    return found


@inner
def balance(t, rows, row_of):
    """Go from the coefficients x to those that minimise the model on the chosen columns."""
    base, x, inside = t.base, t.x, np.ones(t.x.size, np.bool_)
    for _ in range(3 * t.number[0] + 3):  # ends long before, but for rounding
        while True:
            s, part = first_negative(x, base.v, inside, base.fixed, base.held[0])
            if s < 0:
                break
            for r in range(base.held[0]):
                x[r] += part * (base.v[r] - x[r])
            take_out(t, s)
        for r in range(base.held[0]):
            x[r] = base.v[r]
        i = zero_that_helps(t)
        if i < 0:
            return
        enter(base, i, rows, row_of)
        x[base.held[0] - 1] = 0.0


@inner
def choose(t, i, rows, row_of):
    t.chosen[t.number[0]] = i
    t.number[0] += 1
    for s in range(t.base.held[0]):
        t.x[s] = t.base.v[s]
    balance(t, rows, row_of)


@inner
def unchoose(t, place, rows, row_of):
    s = slot_of(t, t.chosen[place])
    t.number[0] -= 1
    t.chosen[place] = t.chosen[t.number[0]]
    if s >= 0:
        for r in range(t.base.held[0]):
            t.x[r] = t.base.v[r]
        take_out(t, s)
        balance(t, rows, row_of)


# --- what exchanges are worth ----------------------------------------------------------------------------------------
@inner
def pivot(W, z, count, j):
    """Let column j in or out of a small tableau (with −Q where columns are in); by how much twice the model falls."""
    d = W[j, j]
    step = z[j] / d
    fall = z[j] * step
    for a in range(count):
        if a != j:
            z[a] -= W[a, j] * step
            f = W[a, j] / d
            for b in range(count):
                if b != j:
                    W[a, b] -= f * W[j, b]
    for a in range(count):
        if a != j:
            W[a, j] = W[j, a] = W[a, j] / abs(d)
    z[j], W[j, j] = z[j] / abs(d), -1.0 / d
    return fall


@inner
def bounded_gain(t, s, i):
    """By how much twice the model falls if column i enters for the one in slot s, or beside all if s < 0."""
    base, W, x = t.base, t.small, t.x
    k, inside, z = base.held[0], np.ones(t.x.size, np.bool_), np.empty(t.x.size)
    for a in range(k):
        x[a], z[a] = base.v[a], base.v[a]
        for b in range(k):
            W[a, b] = -base.Q[a, b]
        W[a, k] = W[k, a] = base.T[a, i]
    x[k], z[k], W[k, k] = 0.0, base.u[i], base.D[i]
    gain = 0.0
    if s >= 0:
        gain += pivot(W, z, k + 1, s)
        inside[s] = False
    gain += pivot(W, z, k + 1, k)
    for _ in range(3 * k + 3):  # ends long before, but for rounding
        while True:
            r, part = first_negative(x, z, inside, base.fixed, k + 1)
            if r < 0:
                break
            for a in range(k + 1):
                if inside[a]:
                    x[a] += part * (z[a] - x[a])
            gain += pivot(W, z, k + 1, r)
            inside[r] = False
        found, most = -1, 0.0
        for a in range(base.fixed, k + 1):
            if inside[a]:
                x[a] = z[a]
            elif a != s and z[a] > 0.0 and z[a] * z[a] > most * W[a, a]:
                found, most = a, z[a] * z[a] / W[a, a]
        if found < 0:
            break
        gain += pivot(W, z, k + 1, found)
        inside[found], x[found] = True, 0.0
    return gain


@inner
def next_pair(t, least, s, i):
    """The next exchange, from slot s and column i on, that might lower twice the model by more than `least`.

    Returns the slot and the column, and the bound; column −1 if there is none.  While a chosen column has the
    coefficient zero, it is the one to leave, and s is −1.
    """
    base, u, bound = t.base, t.base.u, t.base.open
    if s < 0:
        for a in range(i, u.size):
            if u[a] > 0.0 and bound[a] < BARRED and u[a] * u[a] > least * bound[a]:
                return -1, a, u[a] * u[a] / bound[a]
        return -1, -1, 0.0
    while s < base.held[0]:
        e, Ts = 1.0 / base.Q[s, s], base.T[s]
        w = base.v[s] * e
        cost = base.v[s] * w
        if any_above(Ts, u, bound, w, cost + least, e) > 0.0:
            stays = True  # whether all others stay positive without s: then only what has the right sign may enter
            for r in range(base.fixed, base.held[0]):
                stays = stays and (r == s or base.v[r] >= base.Q[r, s] * w)
            for a in range(i, u.size):
                r, q = u[a] + Ts[a] * w, bound[a] + Ts[a] * Ts[a] * e
                if bound[a] < BARRED and r * r > (cost + least) * q and (r > 0.0 or not stays):
                    return s, a, r * r / q - cost
        s, i = s + 1, 0
    return -1, -1, 0.0


@inner
def first_slot(t):
    """The slot from which `next_pair` begins."""
    return -1 if zero_place(t) >= 0 else t.base.fixed


@inner
def place_of(t, s):
    """The place of the column in slot s; of one that is zero if s < 0."""
    if s < 0:
        return zero_place(t)
    for p in range(t.number[0]):
        if t.chosen[p] == t.base.columns[s]:
            return p
    return -1


@inner
def best_positive_exchange(t, least):
    column, slot, most = -1, -1, least
    s, i, bound = next_pair(t, least, first_slot(t), 0)
    if i < 0:
        return -1, -1
    top, top_s, top_i = bound, s, i
    while i >= 0:  # the one with the highest bound is mostly the best
        top, top_s, top_i = bound, s, i
        s, i, bound = next_pair(t, top, s, i + 1)
    gain = bounded_gain(t, top_s, top_i)
    if gain > most:
        column, slot, most = top_i, top_s, gain
    if gain < top * (1.0 - SAME):
        s, i, bound = next_pair(t, most, first_slot(t), 0)
        while i >= 0:
            gain = bounded_gain(t, s, i)
            if gain > most:
                column, slot, most = i, s, gain
            s, i, bound = next_pair(t, most, s, i + 1)
    return column, -1 if column < 0 else place_of(t, slot)


# --- the operations of a search --------------------------------------------------------------------------------------
@plain.rule(PositiveTableau)
def _(t):
    return t.base


@size.rule(PositiveTableau)
def _(t):
    return t.number[0]


@choice.rule(PositiveTableau)
def _(t, s):
    return t.chosen[s]


@let_in.rule(PositiveTableau)
def _(t, i, rows, row_of):
    choose(t, i, rows, row_of)


@let_out.rule(PositiveTableau)
def _(t, s, rows, row_of):
    unchoose(t, s, rows, row_of)


@mark_open.rule(PositiveTableau)
def _(t):
    mark_open(t.base)
    own, ridge, bound = t.base.own, t.base.ridge, t.base.open
    for a in range(own.size):
        if not own[a] > ridge[a]:  # a constant column: its derivative is rounding, whose sign would let it in
            bound[a] = BARRED
    for p in range(t.number[0]):
        bound[t.chosen[p]] = BARRED


@bar.rule(PositiveTableau)
def _(t, i):
    t.base.open[i] = BARRED


@best_entry.rule(PositiveTableau)
def _(t):
    """If none lowers the model, the one that is nearest to it: it will have the coefficient zero."""
    u, bound = t.base.u, t.base.open
    found, most = -1, -np.inf
    for a in range(u.size):
        if bound[a] < BARRED and u[a] * abs(u[a]) > most * bound[a]:
            found, most = a, u[a] * abs(u[a]) / bound[a]
    return found


@least_needed.rule(PositiveTableau)
def _(t):
    place = zero_place(t)
    return place if place >= 0 else place_of(t, t.base.fixed + least_needed(t.base))


@best_exchange.rule(PositiveTableau)
def _(t, least):
    return best_positive_exchange(t, least)


@twice_value.rule(PositiveTableau)
def _(t):
    return twice_value(t.base)


@wants_rows.rule(PositiveTableau)
def _(t, i, row_of):
    return row_of[i] < 0


@restart.rule(PositiveTableau)
def _(t, fixed, rows, row_of):
    t.number[0] = 0
    restart(t.base, fixed, rows, row_of)


@copy_state.rule(PositiveTableau)
def _(source, target):
    copy_state(source.base, target.base)
    target.number[0] = source.number[0]
    for p in range(source.number[0]):
        target.chosen[p] = source.chosen[p]


@ask.rule(PositiveTableau)
def _(t, i, row_of, wanted, state):
    ask(t.base, i, row_of, wanted, state)
