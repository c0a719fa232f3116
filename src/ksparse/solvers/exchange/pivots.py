r"""A quadratic model over all columns with a few of them in: what enters, what leaves, what an exchange is worth.

For :math:`\frac12 v^\top Gv - c^\top v` and the columns S that are in,

.. math:: T = G_{SS}^{-1}G_{S\cdot},\quad Q = G_{SS}^{-1},\quad v = Qc_S,\quad D_i = G_{ii} - G_{iS}T_{\cdot i},\quad
          u = c - G_{\cdot S}v .

To let a column in or out costs O(kd), and so does the best exchange over all pairs: column i for the one in slot s
lowers twice the model by (u_i + T_si w)²/(D_i + T_si² e) − v_s w with e = 1/Q_ss and w = v_s e, exactly.  Only the Gram
rows of columns that enter are needed.  The ridge is kept apart from the Gram rows, so that they serve for any ridge.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..._jit import SUMS, inner, kernel

Array = NDArray[np.float64]
Columns = NDArray[np.int64]
FLAT = 1e-7  # of a column's own curvature: what is left beside the others must be more, or it is their combination
DEPENDENT = 1e-11  # the same where it can only be rounding
BARRED = 1e300  # in `open`: this column may not enter


class Tableau(NamedTuple):
    """The model and the columns that are in; the first `fixed` of them never leave."""

    held: Columns  # (1,): how many columns are in
    columns: Columns  # S, in the order of their slots
    T: Array
    Q: Array
    v: Array
    D: Array
    u: Array
    open: Array  # D where a column may enter, else BARRED
    row: Array  # work space
    side: Array
    c: Array
    own: Array  # the diagonal of G, with the ridge
    ridge: Array
    total: float  # twice the model's value is total − c_S·v
    fixed: int


def new_tableau(c: Array, own: Array, ridge: Array, total: float, slots: int, fixed: int) -> Tableau:
    """The model with no column in."""
    d = c.size
    empty = Tableau(
        np.zeros(1, np.int64), np.zeros(slots, np.int64), np.empty((slots, d)), np.zeros((slots, slots)),
        np.zeros(slots), np.empty(d), np.empty(d), np.empty(d), np.empty(d), np.empty(slots), c, own + ridge, ridge,
        float(total), fixed,
    )  # fmt: skip
    clear(empty)
    return empty


@kernel
def clear(t):
    """Take all columns out."""
    t.held[0] = 0
    t.D[:] = t.own
    t.u[:] = t.c


@inner(fastmath=SUMS)
def enter(t, i, rows, row_of):
    """Let column i in."""
    k, d = t.held[0], t.u.size
    S, T, Q, v, D, u, p, side = t.columns, t.T, t.Q, t.v, t.D, t.u, t.row, t.side
    if k >= S.size or row_of[i] < 0:  # never past the end of the arrays
        raise IndexError("a column entered without a slot or a Gram row")
    own = rows[row_of[i]]
    for a in range(d):
        p[a] = own[a]
    p[i] += t.ridge[i]
    for s in range(k):
        side[s] = T[s, i]
    s = 0
    while s + 4 <= k:  # four rows at a time: p is read and written less often
        f0, f1, f2, f3 = side[s], side[s + 1], side[s + 2], side[s + 3]
        g0, g1, g2, g3 = rows[row_of[S[s]]], rows[row_of[S[s + 1]]], rows[row_of[S[s + 2]]], rows[row_of[S[s + 3]]]
        for a in range(d):
            p[a] -= f0 * g0[a] + f1 * g1[a] + f2 * g2[a] + f3 * g3[a]
        s += 4
    while s < k:
        f0, g0 = side[s], rows[row_of[S[s]]]
        for a in range(d):
            p[a] -= f0 * g0[a]
        s += 1
    for s in range(k):
        p[S[s]] = 0.0
    inverse = 1.0 / p[i]
    if not np.isfinite(inverse):
        raise ZeroDivisionError("the square of a column underflows")
    step = u[i] * inverse
    for s in range(k):
        f, Ts = side[s] * inverse, T[s]
        for a in range(d):
            Ts[a] -= f * p[a]
        Ts[i] = 0.0
        v[s] -= side[s] * step
        for r in range(k):
            Q[s, r] += f * side[r]
        Q[s, k] = Q[k, s] = -f
    Q[k, k] = inverse
    v[k] = step
    Tk = T[k]
    for a in range(d):
        t_a = p[a] * inverse
        Tk[a] = t_a
        D[a] -= t_a * p[a]
        u[a] -= p[a] * step
    Tk[i], D[i], u[i] = 1.0, 0.0, 0.0
    S[k] = i
    t.held[0] = k + 1


@inner(fastmath=SUMS)
def leave(t, s):
    """Take the column in slot s out; the last one moves into its slot."""
    k, d = t.held[0], t.u.size
    if s < t.fixed or s >= k:
        raise IndexError("a slot that holds no free column")
    S, T, Q, v, D, u, side = t.columns, t.T, t.Q, t.v, t.D, t.u, t.side
    e, Ts = 1.0 / Q[s, s], T[s]
    w, v_s = v[s] * e, v[s]
    for a in range(d):
        t_a = Ts[a]
        D[a] += t_a * t_a * e
        u[a] += t_a * w
    for r in range(k):
        side[r] = Q[r, s] * e
    for r in range(k):
        if r != s:
            f, Tr = side[r], T[r]
            for a in range(d):
                Tr[a] -= f * Ts[a]
            v[r] -= f * v_s
    for r in range(k):
        if r != s:
            f = side[r]
            for q in range(k):
                Q[r, q] -= f * Q[s, q]
    last = k - 1
    if s != last:
        S[s], v[s] = S[last], v[last]
        for a in range(d):
            Ts[a] = T[last, a]
        for q in range(k):
            Q[s, q] = Q[last, q]
        for q in range(k):
            Q[q, s] = Q[q, last]
    t.held[0] = last


@inner
def mark_open(t):
    """Note which columns may enter: those with curvature left beside the ones that are in."""
    D, own, bound = t.D, t.own, t.open
    for a in range(D.size):
        bound[a] = D[a] if D[a] > FLAT * own[a] else BARRED


@inner
def best_entry(t):
    """The column whose entry lowers the model most; −1 if none does."""
    u, bound = t.u, t.open
    found, most = -1, 0.0
    for a in range(u.size):
        if bound[a] < BARRED and u[a] * u[a] > most * bound[a]:
            found, most = a, u[a] * u[a] / bound[a]
    return found


@inner
def least_needed(t):
    """The slot whose column is needed least; −1 if all are fixed."""
    found, least = -1, np.inf
    for s in range(t.fixed, t.held[0]):
        worth = t.v[s] * t.v[s] / t.Q[s, s]
        if worth < least:
            found, least = s, worth
    return found


@inner(fastmath=SUMS)
def any_above(Ts, u, bound, w, cost, e):
    """The sum of positive parts of (u + T_s w)² − cost·(D + T_s² e): above zero if an exchange is worth more.

    A sum vectorises where a maximum does not.
    """
    total = 0.0
    for a in range(u.size):
        t_a = Ts[a]
        r = u[a] + t_a * w
        x = r * r - cost * (bound[a] + t_a * t_a * e)
        total += x if x > 0.0 else 0.0
    return total


@inner
def best_exchange(t, least):
    """(column to enter, slot to leave) of the exchange that lowers twice the model most, by more than `least`."""
    T, Q, v, u, bound = t.T, t.Q, t.v, t.u, t.open
    column, slot, most = -1, -1, least
    for s in range(t.fixed, t.held[0]):
        e, Ts = 1.0 / Q[s, s], T[s]
        w = v[s] * e
        cost = v[s] * w
        if any_above(Ts, u, bound, w, cost + most, e) > 0.0:
            for a in range(u.size):
                r, q = u[a] + Ts[a] * w, bound[a] + Ts[a] * Ts[a] * e
                if bound[a] < BARRED and r * r > (cost + most) * q:
                    column, slot, most = a, s, r * r / q - cost
    return column, slot


@inner
def twice_value(t):
    """Twice the model at its minimiser."""
    value = t.total
    for s in range(t.held[0]):
        value -= t.c[t.columns[s]] * t.v[s]
    return value


@inner
def is_in(i, columns, count):
    found = False
    for s in range(count):
        found = found or columns[s] == i
    return found


@inner
def same_columns(t, columns):
    """Whether these are the columns that are in."""
    same = True
    for s in range(t.held[0]):
        same = same and is_in(t.columns[s], columns, t.held[0])
    return same


@inner
def move_to(t, columns, count, rows, row_of):
    """Have these columns in, whose Gram rows are known; returns the number of pivots."""
    pivots, s = 0, t.fixed
    while s < t.held[0]:
        if is_in(t.columns[s], columns, count):
            s += 1
        else:
            leave(t, s)
            pivots += 1
    for b in range(count):
        if not is_in(columns[b], t.columns, t.held[0]):
            enter(t, columns[b], rows, row_of)
            pivots += 1
    return pivots


@inner
def exchange_all(t, rows, row_of, share, floor):
    """Make the best exchange until none lowers twice the model by `share` of it and by `floor`; rows must be known."""
    last = np.inf
    while True:
        mark_open(t)
        value = twice_value(t)
        i, s = best_exchange(t, max(share * abs(value), floor))
        if i < 0 or not value < last:  # what rounding predicts may never come
            return
        last = value
        leave(t, s)
        enter(t, i, rows, row_of)


@inner
def perturb(t, rows, row_of, change, priority, barred, share, floor):
    """Take out the `change` columns of highest priority, fill up without them, then exchange among all columns."""
    wanted = t.held[0]
    barred[:] = False
    for _ in range(change):
        slot = t.fixed
        for s in range(t.fixed, t.held[0]):
            if priority[t.columns[s]] > priority[t.columns[slot]]:
                slot = s
        barred[t.columns[slot]] = True
        leave(t, slot)
    while t.held[0] < wanted:
        mark_open(t)
        for a in range(barred.size):
            if barred[a]:
                t.open[a] = BARRED
        i = best_entry(t)
        if i < 0:
            return False
        enter(t, i, rows, row_of)
    exchange_all(t, rows, row_of, share, floor)
    return True


@kernel
def perturb_model(t, rows, row_of, change, priority, least):
    """Perturb the columns that are in; whether as many are in again."""
    barred = np.zeros(t.u.size, dtype=np.bool_)
    return perturb(t, rows, row_of, change, priority, barred, 0.0, least)


@kernel
def move(t, columns, rows, row_of):
    """`move_to` for callers in Python."""
    return move_to(t, columns, columns.size, rows, row_of)


@kernel
def step_in_model(t, rows, row_of, wanted, least, most):
    """Have `wanted` columns in, then make up to `most` exchanges; returns how many, −1 if too few columns may enter."""
    while t.held[0] < wanted:
        mark_open(t)
        i = best_entry(t)
        if i < 0:
            return -1
        enter(t, i, rows, row_of)
    while t.held[0] > wanted:
        leave(t, least_needed(t))
    for made in range(most):
        mark_open(t)
        i, s = best_exchange(t, least)
        if i < 0:
            return made
        leave(t, s)
        enter(t, i, rows, row_of)
    return most


def load(t: Tableau, columns: Columns, rows: Array, row_of: Columns) -> None:
    """Have exactly these columns in, without the rounding of many pivots; the fixed ones come first."""
    k = columns.size
    G = rows[row_of[columns]]
    inner_G = G[:, columns]
    inner_G.flat[:: k + 1] += t.ridge[columns]
    Q = np.linalg.inv(inner_G)
    share = t.own[columns] * Q.diagonal()  # one over what is left of each column beside the others
    if not ((share > 0.5) & (share < 1.0 / DEPENDENT)).all():
        raise np.linalg.LinAlgError("columns that depend on each other")
    T = Q @ G
    t.columns[:k], t.Q[:k, :k], t.T[:k], t.held[0] = columns, Q, T, k
    t.v[:k] = Q @ t.c[columns]
    t.D[:] = t.own - np.einsum("ij,ij->j", T, G)
    t.u[:] = t.c - t.v[:k] @ G
    t.D[columns] = t.u[columns] = 0.0
    t.T[:k, columns] = np.eye(k)
