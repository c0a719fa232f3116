r"""A quadratic model over all columns with a few of them in: what enters, what leaves, what an exchange is worth.

For :math:`\frac12 v^\top Gv - c^\top v` and the columns S that are in,

.. math:: T = G_{SS}^{-1}G_{S\cdot},\quad Q = G_{SS}^{-1},\quad v = Qc_S,\quad D_i = G_{ii} - G_{iS}T_{\cdot i},\quad
          u = c - G_{\cdot S}v .

To let a column in or out costs O(kd), and so does the best exchange over all pairs: column i for the one in slot s
lowers twice the model by (u_i + T_si w)²/(D_i + T_si² e) − v_s w with e = 1/Q_ss and w = v_s e, exactly.  Only the Gram
rows of columns that enter are needed.  The ridge is kept apart from the Gram rows, so that they serve for any ridge.

T, D, u and the Gram rows may be in single precision; Q, v and all sums over S are in double precision.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..._jit import SUMS, generic, inner

Array = NDArray[np.float64]
Columns = NDArray[np.int64]
FLAT = 1e-7  # of a column's own curvature: what is left beside the others must be more, or it is their combination
DEPENDENT = 1e-11  # the same where it can only be rounding
BARRED = np.inf  # in `open`: this column may not enter
ROUNDING = 20.0  # units in the last place: what is left of a column beside the others may be rounding
NONE, MADE, ROWS = 0, 1, 2  # what came of an exchange: there is none, it was made, Gram rows are missing


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


def new_tableau(
    c: Array, own: Array, ridge: Array, total: float, slots: int, fixed: int, precision: Any = np.float64
) -> Tableau:
    """The model with no column in; `own` is the diagonal of G without the ridge."""
    d = c.size
    D, u, bound, row = np.empty((4, d), precision)
    empty = Tableau(
        np.zeros(1, np.int64), np.zeros(slots, np.int64), np.empty((slots, d), precision), np.zeros((slots, slots)),
        np.zeros(slots), D, u, bound, row, np.empty(slots), c, own + ridge, ridge, float(total), fixed,
    )  # fmt: skip
    D[:], u[:] = empty.own, c
    return empty


@inner
def clear(t):
    """Take all columns out."""
    t.held[0] = 0
    for a in range(t.u.size):
        t.D[a] = t.own[a]
        t.u[a] = t.c[a]


@inner(fastmath=SUMS)
def enter(t, i, rows, row_of):
    """Let column i in."""
    k, d = t.held[0], t.u.size
    S, T, Q, v, D, u, p, side = t.columns, t.T, t.Q, t.v, t.D, t.u, t.row, t.side
    number = T.dtype.type
    if k >= S.size or row_of[i] < 0:  # never past the end of the arrays
        raise IndexError("a column entered without a slot or a Gram row")
    own = rows[row_of[i]]
    for a in range(d):
        p[a] = own[a]
    p[i] += number(t.ridge[i])
    for s in range(k):
        side[s] = T[s, i]
    s = 0
    while s + 4 <= k:  # four rows at a time: p is read and written less often
        f0, f1, f2, f3 = T[s, i], T[s + 1, i], T[s + 2, i], T[s + 3, i]
        g0, g1, g2, g3 = rows[row_of[S[s]]], rows[row_of[S[s + 1]]], rows[row_of[S[s + 2]]], rows[row_of[S[s + 3]]]
        for a in range(d):
            p[a] -= f0 * g0[a] + f1 * g1[a] + f2 * g2[a] + f3 * g3[a]
        s += 4
    while s < k:
        f0, g0 = T[s, i], rows[row_of[S[s]]]
        for a in range(d):
            p[a] -= f0 * g0[a]
        s += 1
    for s in range(k):
        p[S[s]] = number(0.0)
    inverse = 1.0 / p[i]
    if not np.isfinite(inverse):
        raise ZeroDivisionError("the square of a column underflows")
    step = u[i] * inverse
    for s in range(k):
        f, Ts = side[s] * inverse, T[s]
        short = number(f)
        for a in range(d):
            Ts[a] -= short * p[a]
        Ts[i] = number(0.0)
        v[s] -= side[s] * step
        for r in range(k):
            Q[s, r] += f * side[r]
        Q[s, k] = Q[k, s] = -f
    Q[k, k] = inverse
    v[k] = step
    Tk, short, short_step = T[k], number(inverse), number(step)
    for a in range(d):
        t_a = p[a] * short
        Tk[a] = t_a
        D[a] -= t_a * p[a]
        u[a] -= p[a] * short_step
    Tk[i], D[i], u[i] = number(1.0), number(0.0), number(0.0)
    S[k] = i
    t.held[0] = k + 1


@inner(fastmath=SUMS)
def leave(t, s):
    """Take the column in slot s out; the last one moves into its slot."""
    k, d = t.held[0], t.u.size
    if s < t.fixed or s >= k:
        raise IndexError("a slot that holds no free column")
    S, T, Q, v, D, u, side = t.columns, t.T, t.Q, t.v, t.D, t.u, t.side
    number = T.dtype.type
    e, Ts = 1.0 / Q[s, s], T[s]
    w, v_s = v[s] * e, v[s]
    short_e, short_w = number(e), number(w)
    for a in range(d):
        t_a = Ts[a]
        D[a] += t_a * t_a * short_e
        u[a] += t_a * short_w
    for r in range(k):
        side[r] = Q[r, s] * e
    for r in range(k):
        if r != s:
            f, Tr = number(side[r]), T[r]
            for a in range(d):
                Tr[a] -= f * Ts[a]
            v[r] -= side[r] * v_s
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


@inner(fastmath=SUMS)
def any_above(Ts, u, bound, w, cost, e):
    """The sum of positive parts of (u + T_s w)² − cost·(D + T_s² e): above zero if an exchange is worth more.

    A sum vectorises where a maximum does not.
    """
    number = Ts.dtype.type
    total, zero, w, cost, e = number(0.0), number(0.0), number(w), number(cost), number(e)
    for a in range(u.size):
        t_a = Ts[a]
        r = u[a] + t_a * w
        x = r * r - cost * (bound[a] + t_a * t_a * e)
        total += x if x > zero else zero
    return total


# --- the operations of a search: on columns here, on groups of columns in group_pivots.py, with signs in positive.py --
@generic
def plain(t):
    """The model of single columns that is underneath."""


@plain.rule(Tableau)
def _(t):
    return t


@generic
def size(t):
    """How many choices are in beside the fixed columns."""


@size.rule(Tableau)
def _(t):
    return t.held[0] - t.fixed


@generic
def choice(t, s):
    """The number of the choice in place s."""


@choice.rule(Tableau)
def _(t, s):
    return t.columns[t.fixed + s]


@generic
def let_in(t, i, rows, row_of):
    """Let choice i in."""


@let_in.rule(Tableau)
def _(t, i, rows, row_of):
    enter(t, i, rows, row_of)


@generic
def let_out(t, s, rows, row_of):
    """Take the choice in place s out; the last one moves into its place."""


@let_out.rule(Tableau)
def _(t, s, rows, row_of):
    leave(t, t.fixed + s)


@generic
def mark_open(t):
    """Note which choices may enter: those with curvature left beside the ones that are in."""


@mark_open.rule(Tableau)
def _(t):
    D, own, bound = t.D, t.own, t.open
    flat = max(FLAT, ROUNDING * (2.0**-23 if D.itemsize == 4 else 2.0**-52))  # np.finfo would load numba's compiler
    for a in range(D.size):
        bound[a] = D[a] if D[a] > flat * own[a] else BARRED


@generic
def bar(t, i):
    """Choice i may not enter, until `mark_open` is called again."""


@bar.rule(Tableau)
def _(t, i):
    t.open[i] = BARRED


@generic
def best_entry(t):
    """The choice whose entry lowers the model most; −1 if none does."""


@best_entry.rule(Tableau)
def _(t):
    u, bound = t.u, t.open
    found, most = -1, 0.0
    for a in range(u.size):
        if bound[a] < BARRED and u[a] * u[a] > most * bound[a]:
            found, most = a, np.float64(u[a]) * u[a] / bound[a]
    return found


@generic
def least_needed(t):
    """The place of the choice that is needed least; −1 if none is in."""


@least_needed.rule(Tableau)
def _(t):
    found, least = -1, np.inf
    for s in range(t.fixed, t.held[0]):
        worth = t.v[s] * t.v[s] / t.Q[s, s]
        if worth < least:
            found, least = s - t.fixed, worth
    return found


@generic
def best_exchange(t, least):
    """(choice to enter, place to leave) of the exchange that lowers twice the model most, by more than `least`."""


@best_exchange.rule(Tableau)
def _(t, least):
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
                    column, slot, most = a, s - t.fixed, r * r / q - cost
    return column, slot


@generic
def twice_value(t):
    """Twice the model at its minimiser."""


@twice_value.rule(Tableau)
def _(t):
    value = t.total
    for s in range(t.held[0]):
        value -= t.c[t.columns[s]] * t.v[s]
    return value


@generic
def wants_rows(t, i, row_of):
    """Whether Gram rows are missing that choice i needs to enter."""


@wants_rows.rule(Tableau)
def _(t, i, row_of):
    return row_of[i] < 0


@generic
def restart(t, fixed, rows, row_of):
    """Have the fixed columns in, and nothing else."""


@restart.rule(Tableau)
def _(t, fixed, rows, row_of):
    clear(t)
    for b in range(fixed.size):
        if not t.D[fixed[b]] > DEPENDENT * t.own[fixed[b]]:
            raise ZeroDivisionError("fixed columns that depend on each other")
        enter(t, fixed[b], rows, row_of)


@generic
def copy_state(source, target):
    """Have in the target what is in the source, a tableau of the same model."""


@copy_state.rule(Tableau)
def _(source, target):
    k = source.held[0]
    target.held[0] = k
    for a in range(source.u.size):
        target.D[a] = source.D[a]
        target.u[a] = source.u[a]
    for s in range(k):
        target.columns[s], target.v[s] = source.columns[s], source.v[s]
        for r in range(k):
            target.Q[s, r] = source.Q[s, r]
        for a in range(source.u.size):
            target.T[s, a] = source.T[s, a]


# --- steps made of them ----------------------------------------------------------------------------------------------
@inner
def exchange_once(t, rows, row_of, least):
    """Make the best exchange that lowers twice the model by more than `least`: (NONE, MADE or ROWS, who enters)."""
    mark_open(t)
    i, s = best_exchange(t, least)
    if i < 0:
        return NONE, i
    if wants_rows(t, i, row_of):
        return ROWS, i
    let_out(t, s, rows, row_of)
    let_in(t, i, rows, row_of)
    return MADE, i


@inner
def exchange_all(t, rows, row_of, share, floor):
    """Make exchanges until none lowers twice the model by `share` of it and by `floor`; (NONE or ROWS, who enters)."""
    value = twice_value(t)
    while True:
        how, i = exchange_once(t, rows, row_of, max(share * abs(value), floor))
        if how != MADE:
            return how, i
        last, value = value, twice_value(t)
        if not value < last:  # what rounding predicts may never come
            return NONE, i


@inner
def perturb(t, rows, row_of, change, priority, barred, share, floor):
    """Take out the `change` choices of highest priority, fill up without them, then exchange among all."""
    wanted = size(t)
    for b in range(change):
        place = 0
        for s in range(size(t)):
            if priority[choice(t, s)] > priority[choice(t, place)]:
                place = s
        barred[b] = choice(t, place)
        let_out(t, place, rows, row_of)
    while size(t) < wanted:
        mark_open(t)
        for b in range(change):
            bar(t, barred[b])
        i = best_entry(t)
        if i < 0:
            return False
        let_in(t, i, rows, row_of)
    exchange_all(t, rows, row_of, share, floor)
    return True


def load(t: Tableau, columns: Columns, rows: Array, row_of: Columns) -> None:
    """Have exactly these columns in, without the rounding of many pivots; the fixed ones come first."""
    k = columns.size
    G = rows[row_of[columns]]
    inner_G = G[:, columns].astype(np.float64)
    inner_G.flat[:: k + 1] += t.ridge[columns]
    Q = np.linalg.inv(inner_G)
    share = t.own[columns] * Q.diagonal()  # one over what is left of each column beside the others
    if not ((share > 0.5) & (share < 1.0 / DEPENDENT)).all():
        raise np.linalg.LinAlgError("columns that depend on each other")
    T = np.matmul(Q.astype(G.dtype), G, out=t.T[:k])
    t.columns[:k], t.Q[:k, :k], t.held[0] = columns, Q, k
    t.v[:k] = Q @ t.c[columns]
    t.D[:] = t.own - np.einsum("ij,ij->j", T, G)
    t.u[:] = t.c - t.v[:k] @ G
    t.D[columns] = t.u[columns] = 0.0
    t.T[:k, columns] = np.eye(k)
