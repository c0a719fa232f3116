"""A walk over the numbers of columns: up and down from the best support of each, with exchanges.

All of it is in the model, so that for the squared loss a walk needs no pass over the rows but those for Gram rows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..._jit import inner, kernel
from .pivots import (
    BARRED,
    Array,
    Columns,
    best_entry,
    best_exchange,
    enter,
    least_needed,
    leave,
    mark_open,
    move_to,
    perturb,
    same_columns,
    twice_value,
)

DONE, ROWS, PAUSED = 0, 1, 2  # how a walk returns: finished, Gram rows are wanted, time to look at the clock
LARGEST, DIRECTION, EXCHANGING, ROUNDS, PIVOTS, WANTED = range(6)  # entries of BestSupports.state


class BestSupports(NamedTuple):
    """The best supports found so far, one per number k of columns beside the fixed ones."""

    value: Array  # twice F; infinite where no support is known
    columns: Columns  # (sizes, slots)
    up: NDArray[np.bool_]  # a step to k + 1 has not been tried from this support
    down: NDArray[np.bool_]
    state: Columns


def new_walk(largest: int, slots: int) -> BestSupports:
    """A walk that has not begun: a step up from the empty support is all there is to try."""
    state = np.zeros(6, np.int64)
    state[LARGEST], state[DIRECTION] = largest, 1
    up = np.zeros(largest + 1, dtype=bool)
    up[0] = True
    columns = np.zeros((largest + 1, slots), np.int64)
    return BestSupports(np.full(largest + 1, np.inf), columns, up, np.zeros(largest + 1, dtype=bool), state)


@inner
def ask(t, i, row_of, wanted, state):
    """Note that the Gram row of column i is wanted, and those of the columns that would lower the model most."""
    u, bound = t.u, t.open
    wanted[0], count = i, 1
    most = min(wanted.size, u.size)
    if most > 1:
        worth = np.empty(u.size)
        for a in range(u.size):
            worth[a] = 0.0 if row_of[a] >= 0 or a == i or bound[a] == BARRED else -u[a] * u[a] / bound[a]
        order = np.argpartition(worth, most - 2)
        for a in order[: most - 1]:
            if worth[a] < 0.0:
                wanted[count] = a
                count += 1
    state[WANTED] = count


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


@kernel
def walk_on(t, walk, rows, row_of, share, floor, rounds, wanted, pause):
    """Walk up and down over the sizes: from the best support of a size let a column in or out, then exchange.

    An exchange must lower twice F by `share` of it and by `floor`.  Stops after `rounds` changes of direction, when
    Gram rows are missing (they are in `wanted`), or after `pause` pivots; called again, it goes on.
    """
    state, stop = walk.state, walk.state[PIVOTS] + pause
    while True:
        if state[PIVOTS] >= stop:
            return PAUSED
        if state[EXCHANGING] == 0:
            k = next_size(t.held[0] - t.fixed, walk)
            if k < 0 or state[ROUNDS] > rounds:
                return DONE
            state[PIVOTS] += move_to(t, walk.columns[k], t.fixed + k, rows, row_of)
            if state[DIRECTION] > 0:
                mark_open(t)
                i = best_entry(t)
                if i < 0:  # no column is left that is not a combination of those that are in
                    state[LARGEST] = k
                    walk.up[k:] = False
                    continue
                if row_of[i] < 0:
                    ask(t, i, row_of, wanted, state)
                    return ROWS
                walk.up[k] = False
                enter(t, i, rows, row_of)
            else:
                walk.down[k] = False
                leave(t, least_needed(t))
            state[PIVOTS] += 1
            k = t.held[0] - t.fixed
            if np.isfinite(walk.value[k]) and same_columns(t, walk.columns[k]):
                continue
            state[EXCHANGING] = 1
        k = t.held[0] - t.fixed
        value = twice_value(t)
        least = max(share * value, floor)
        mark_open(t)
        i, s = best_exchange(t, least)
        if i >= 0:
            if row_of[i] < 0:
                ask(t, i, row_of, wanted, state)
                return ROWS
            leave(t, s)
            enter(t, i, rows, row_of)
            state[PIVOTS] += 2
            known = np.isfinite(walk.value[k]) and same_columns(t, walk.columns[k])
            if known or not twice_value(t) < value:  # what rounding predicts may never come
                state[EXCHANGING] = 0
            continue
        if value < walk.value[k] - least:
            note(t, walk, value)
        state[EXCHANGING] = 0


@inner
def note(t, walk, value):
    """These columns are the best of their number so far."""
    k = t.held[0] - t.fixed
    walk.value[k] = value
    for s in range(t.held[0]):
        walk.columns[k, s] = t.columns[s]
    walk.up[k] = k < walk.state[LARGEST]
    walk.down[k] = k > 1


@kernel
def perturb_walk(t, walk, rows, row_of, shares, priority, share, floor, high):
    """Perturb the best supports of the sizes 2 to `high`, each by its share of columns; returns how many improved."""
    improved, barred = 0, np.zeros(t.u.size, dtype=np.bool_)
    for k in range(2, high + 1):
        if np.isfinite(walk.value[k]):
            move_to(t, walk.columns[k], t.fixed + k, rows, row_of)
            change = min(max(1, int(shares[k] * k)), k)
            if perturb(t, rows, row_of, change, priority, barred, share, floor):
                value = twice_value(t)
                if value < walk.value[k] - max(1e-7 * walk.value[k], floor):
                    note(t, walk, value)
                    improved += 1
    return improved


@kernel
def settle(t, rows, row_of, share, floor, wanted, state):
    """Exchange until nothing is gained; returns ROWS if Gram rows are missing, else DONE."""
    last = np.inf
    while True:
        mark_open(t)
        value = twice_value(t)
        i, s = best_exchange(t, max(share * value, floor))
        if i < 0 or not value < last:  # what rounding predicts may never come
            return DONE
        last = value
        if row_of[i] < 0:
            ask(t, i, row_of, wanted, state)
            return ROWS
        leave(t, s)
        enter(t, i, rows, row_of)
        state[PIVOTS] += 2
