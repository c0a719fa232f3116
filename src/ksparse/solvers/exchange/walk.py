"""A walk over the numbers of choices (columns or groups): up and down from the best support of each, with exchanges.

All of it is in the model, so that for the squared loss a walk needs no pass over the rows but those for Gram rows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..._jit import generic, inner, kernel
from .pivots import (
    BARRED,
    MADE,
    ROWS,
    Array,
    Columns,
    Tableau,
    best_entry,
    choice,
    copy_state,
    exchange_all,
    exchange_once,
    least_needed,
    let_in,
    let_out,
    mark_open,
    perturb,
    plain,
    restart,
    size,
    twice_value,
    wants_rows,
)

BETTER = 1e-7  # of F: a perturbation must lower it by so much
DONE, PAUSED = 0, 1  # how a walk returns beside ROWS: finished, time to look at the clock
LARGEST, DIRECTION, EXCHANGING, ROUNDS, PIVOTS, WANTED, LOWEST, BEGUN = range(8)  # entries of BestSupports.state


class BestSupports(NamedTuple):
    """The best supports found so far, one per number k of choices beside the fixed columns."""

    value: Array  # twice F; infinite where no support is known
    choices: Columns  # (sizes, places)
    up: NDArray[np.bool_]  # a step to k + 1 has not been tried from this support
    down: NDArray[np.bool_]
    state: Columns


def new_walk(largest: int, lowest: int = 1) -> BestSupports:
    """A walk that has not begun: a step up from the empty support is all there is to try.

    Sizes below `lowest` are passed on the way up, without exchanges.
    """
    state = np.zeros(8, np.int64)
    state[LARGEST], state[DIRECTION], state[LOWEST] = largest, 1, lowest
    up = np.zeros(largest + 1, dtype=bool)
    up[0] = True
    choices = np.zeros((largest + 1, largest + 1), np.int64)
    return BestSupports(np.full(largest + 1, np.inf), choices, up, np.zeros(largest + 1, dtype=bool), state)


# --- supports --------------------------------------------------------------------------------------------------------
@inner
def is_among(i, choices, count):
    found = False
    for s in range(count):
        found = found or choices[s] == i
    return found


@inner
def same_choices(t, choices):
    """Whether these are the choices that are in."""
    same = True
    for s in range(size(t)):
        same = same and is_among(choice(t, s), choices, size(t))
    return same


@inner
def move_to(t, choices, count, rows, row_of):
    """Have these choices in, whose Gram rows are known; returns the number of pivots."""
    pivots, s = 0, 0
    while s < size(t):
        if is_among(choice(t, s), choices, count):
            s += 1
        else:
            let_out(t, s, rows, row_of)
            pivots += 1
    for b in range(count):
        known = False
        for s in range(size(t)):
            known = known or choice(t, s) == choices[b]
        if not known:
            let_in(t, choices[b], rows, row_of)
            pivots += 1
    return pivots


@inner
def note(t, walk, value):
    """These choices are the best of their number so far."""
    k = size(t)
    walk.value[k] = value
    for s in range(k):
        walk.choices[k, s] = choice(t, s)
    walk.up[k] = k < walk.state[LARGEST]
    walk.down[k] = k > walk.state[LOWEST]


@generic
def ask(t, i, row_of, wanted, state):
    """Note that the Gram rows of choice i are wanted, and those of others that would lower the model most."""


@ask.rule(Tableau)
def _(t, i, row_of, wanted, state):
    u, bound = t.u, t.open
    worth, count = np.empty(wanted.size), 1
    wanted[0], worth[0] = i, np.inf
    for a in range(u.size):
        if row_of[a] < 0 and a != i and u[a] * u[a] > 0.0 and bound[a] < BARRED:
            count = insert(a, u[a] * u[a] / bound[a], wanted, worth, count)
    state[WANTED] = count


@inner
def insert(i, value, best, worth, count):
    """Insert a number into a short list sorted by worth, whose last entry may fall out; returns the new length."""
    if count < best.size:
        count += 1
    elif value <= worth[count - 1]:
        return count
    b = count - 1
    while worth[b - 1] < value:
        best[b], worth[b] = best[b - 1], worth[b - 1]
        b -= 1
    best[b], worth[b] = i, value
    return count


# --- the walk --------------------------------------------------------------------------------------------------------
@inner
def next_size(k, walk):
    """The size from which to step on in the present direction, after turning round if need be; −1 if none is left."""
    state, largest = walk.state, walk.state[LARGEST]
    for _ in range(2):
        if state[DIRECTION] > 0:
            for size in range(k, largest):
                if walk.up[size]:
                    return size
            k = largest
        else:
            for size in range(k, 1, -1):
                if walk.down[size]:
                    return size
            k = 0
        state[DIRECTION] = -state[DIRECTION]
        state[ROUNDS] += 1
    return -1


@inner
def begin(t, walk, fixed, rows, row_of):
    """Have the fixed columns in, compute the values of the supports that are known, and try every step from them."""
    restart(t, fixed, rows, row_of)
    walk.value[0] = twice_value(t)
    for k in range(1, walk.value.size):
        if np.isfinite(walk.value[k]):
            move_to(t, walk.choices[k], k, rows, row_of)
            note(t, walk, twice_value(t))
    walk.state[BEGUN] = 1


@kernel
def walk_on(t, walk, fixed, rows, row_of, share, floor, rounds, wanted, pause):
    """Walk up and down over the sizes: from the best support of a size let a choice in or out, then exchange.

    An exchange must lower twice F by `share` of it and by `floor`.  Stops after `rounds` changes of direction, when
    Gram rows are missing (they are in `wanted`), or after `pause` pivots; called again, it goes on.
    """
    state, stop = walk.state, walk.state[PIVOTS] + pause
    if state[BEGUN] == 0:
        begin(t, walk, fixed, rows, row_of)
    while True:
        if state[PIVOTS] >= stop:
            return PAUSED
        if state[EXCHANGING] == 0:
            k = next_size(size(t), walk)
            if k < 0 or state[ROUNDS] > rounds:
                return DONE
            state[PIVOTS] += move_to(t, walk.choices[k], k, rows, row_of)
            if state[DIRECTION] > 0:
                mark_open(t)
                i = best_entry(t)
                if i < 0:  # nothing is left that is not a combination of the columns that are in
                    state[LARGEST] = k
                    walk.up[k:] = False
                    continue
                if wants_rows(t, i, row_of):
                    ask(t, i, row_of, wanted, state)
                    return ROWS
                walk.up[k] = False
                let_in(t, i, rows, row_of)
            else:
                walk.down[k] = False
                let_out(t, least_needed(t), rows, row_of)
            state[PIVOTS] += 1
            k = size(t)
            if np.isfinite(walk.value[k]) and same_choices(t, walk.choices[k]):
                continue
            if k < state[LOWEST]:
                note(t, walk, twice_value(t))
                continue
            state[EXCHANGING] = 1
        k = size(t)
        value = twice_value(t)
        least = max(share * value, floor)
        how, i = exchange_once(t, rows, row_of, least)
        if how == ROWS:
            ask(t, i, row_of, wanted, state)
            return ROWS
        if how == MADE:
            state[PIVOTS] += 2
            known = np.isfinite(walk.value[k]) and same_choices(t, walk.choices[k])
            if known or not twice_value(t) < value:  # what rounding predicts may never come
                state[EXCHANGING] = 0
            continue
        if value < walk.value[k] - least:
            note(t, walk, value)
        state[EXCHANGING] = 0


@kernel
def perturb_walk(t, spare, walk, rows, row_of, shares, priority, share, floor, low, high):
    """Perturb the best supports of the sizes low to `high`, each by its share of choices.

    A support that lowers twice F by `BETTER` of it and by `floor` is noted; returns how many did.
    """
    improved, barred = 0, np.empty(high + 1, np.int64)
    for k in range(low, high + 1):
        if np.isfinite(walk.value[k]):
            move_to(t, walk.choices[k], k, rows, row_of)
            copy_state(t, spare)
            change = min(max(1, int(shares[k] * k)), k)
            if perturb(t, rows, row_of, change, priority, barred, share, floor):
                value = twice_value(t)
                if value < walk.value[k] - max(BETTER * walk.value[k], floor):
                    note(t, walk, value)
                    improved += 1
            copy_state(spare, t)  # most columns of the next support are among these
    return improved


# --- the end ---------------------------------------------------------------------------------------------------------
@kernel
def settle(t, rows, row_of, share, floor, wanted, state):
    """Exchange until nothing is gained; returns ROWS if Gram rows are missing, else DONE."""
    how, i = exchange_all(t, rows, row_of, share, floor)
    if how == ROWS:
        ask(t, i, row_of, wanted, state)
        return ROWS
    return DONE


@kernel
def load_choices(t, fixed, choices, rows, row_of):
    """Have exactly these choices in beside the fixed columns."""
    restart(t, fixed, rows, row_of)
    move_to(t, choices, choices.size, rows, row_of)


@kernel
def settle_sizes(t, walk, rows, row_of, fixed, own, sizes, ridges, share, floor, columns):
    """At each size, under its ridge, exchange from the best support until nothing is gained; all rows are known.

    The columns of each size go to `columns`, filled up with −1.
    """
    base = plain(t)
    for b in range(sizes.size):
        for a in range(own.size):
            base.ridge[a] = ridges[b]
            base.own[a] = own[a] + ridges[b]
        restart(t, fixed, rows, row_of)
        move_to(t, walk.choices[sizes[b]], sizes[b], rows, row_of)
        exchange_all(t, rows, row_of, share, floor)
        for s in range(columns.shape[1]):
            columns[b, s] = base.columns[s] if s < base.held[0] else -1


@kernel
def refine(G, ridges, columns, gradient, X):
    """One Newton step x_S += (G_SS + λ)⁻¹(g_S − λx_S) per row of X, by Cholesky's factors."""
    most = columns.shape[1]
    L, z = np.empty((most, most)), np.empty(most)
    for b in range(columns.shape[0]):
        S, k = columns[b], 0
        while k < most and S[k] >= 0:
            k += 1
        for r in range(k):
            for q in range(r + 1):
                total = G[S[r], S[q]] + (ridges[b] if r == q else 0.0)
                for e in range(q):
                    total -= L[r, e] * L[q, e]
                if r == q:
                    if not total > 0.0:
                        raise ZeroDivisionError("columns that depend on each other")
                    L[r, r] = np.sqrt(total)
                else:
                    L[r, q] = total / L[q, q]
            total = gradient[b, S[r]] - ridges[b] * X[b, S[r]]
            for e in range(r):
                total -= L[r, e] * z[e]
            z[r] = total / L[r, r]
        for r in range(k - 1, -1, -1):
            total = z[r]
            for e in range(r + 1, k):
                total -= L[e, r] * z[e]
            z[r] = total / L[r, r]
            X[b, S[r]] += z[r]
