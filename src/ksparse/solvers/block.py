"""Columns in memory, dense or sparse, as a search reads them: combined, projected, and multiplied with each other.

A block holds one row per column, centred if there is an intercept and scaled to variance one; the intercept is a row of
ones.  Operations are picked by the type of the columns, and second derivatives by the loss.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from .. import losses
from .._jit import SUMS, generic, inner
from ..design import Design
from ..losses import SoftmaxLoss, SquaredTargets
from ..problem import Problem

Array = NDArray[np.float64]
Columns = NDArray[np.int64]

SHARE = 0.03  # rows with less than this share of the mean curvature are left out of a Hessian
MOST = 0.7  # share of the rows above which reading all of them is faster than picking some
MANY = 40_000  # rows that are enough for a Hessian that only gives a direction
CHUNK = 1 << 16  # numbers of a chunk of rows: it stays in the cache
SINGLE = 40_000  # numbers above which products of a Hessian that gives a direction are in single precision
WHOLE = 2000  # rows that are all read, light or not


class ThinColumns(NamedTuple):
    """Sparse columns, b = a − shift with few entries a: column by column, and the same entries row by row."""

    start: Columns
    row: Columns
    value: Array
    shift: Array
    row_start: Columns
    row_column: Columns
    row_value: Array


def thin_columns(design: Design, columns: Columns, mean: Array, scale: Array, ones: int) -> ThinColumns:
    """(a − mean)·scale for sparse columns a of a design, behind so many columns of ones.

    A column with most entries is centred, and its zeros are stored.
    """
    stored, centre, factor = design.stored_columns(columns)
    # (stored − centre)·factor is a
    centre = centre + np.divide(mean, factor, out=np.zeros(columns.size), where=factor > 0.0)
    factor, n = factor * scale, design.shape[0]
    full = np.flatnonzero(np.diff(stored.indptr) > 0.5 * n)
    parts = [stored[:, [j]] for j in range(columns.size)] if full.size else [stored]
    for j in full:
        parts[j] = sparse.csc_matrix(stored[:, [j]].toarray().astype(np.float64) - centre[j])
        centre[j] = 0.0
    whole = sparse.hstack([sparse.csc_matrix((n, ones)), *parts], format="csc").astype(np.float64)
    whole = sparse.csc_matrix(whole @ sparse.diags_array(np.concatenate([np.ones(ones), factor])))
    rows, shift = whole.tocsr(), np.concatenate([-np.ones(ones), centre * factor])
    return ThinColumns(
        whole.indptr.astype(np.int64), whole.indices.astype(np.int64), whole.data, shift,
        rows.indptr.astype(np.int64), rows.indices.astype(np.int64), rows.data,
    )  # fmt: skip


class Targets(NamedTuple):
    """A loss with its targets; several outputs are the classes of a softmax."""

    loss: Any
    y: Array
    offset: Array  # one output after the other
    outputs: int
    steepest: float  # the largest curvature of a row; one if there is no bound
    bounded: bool

    @classmethod
    def of(cls, problem: Problem) -> Targets:
        """The targets of a problem with one output."""
        bound = float(losses.curvature_bound(problem.loss))
        bounded = math.isfinite(bound)
        return cls(problem.loss, problem.targets[0], problem.targets[2], 1, bound if bounded else 1.0, bounded)


class ColumnBlock(NamedTuple):
    """Columns and targets, as refits need them."""

    B: Any  # (columns, n): an array or ThinColumns
    y: Array
    weight: Array  # of mean one
    offset: Array  # (C·n,)
    ridge: Array  # of every coefficient, (C·columns,); 0 for the intercept
    lowest: Array  # what every coefficient must not fall below: zero or −∞
    loss: Any
    outputs: int  # C
    steepest: float  # the largest curvature that a row can have; one if there is no bound
    bounded: bool


class Room(NamedTuple):
    """Work space: predictions and the derivatives of every row at a fit, and the same at a trial."""

    z: Array
    derivative: Array
    curvature: Array
    z_trial: Array
    derivative_trial: Array
    curvature_trial: Array
    along: Array
    rows: Columns  # those that a Hessian is summed over
    single: NDArray[np.float32]  # empty: stands for single precision


@inner
def new_room(block):
    """Work space for the rows of a block."""
    n, N = block.weight.size, block.offset.size
    return Room(
        np.empty(N), np.empty(N), np.empty(N), np.empty(N), np.empty(N), np.empty(N), np.empty(N),
        np.empty(n, np.int64), np.empty(0, np.float32),
    )  # fmt: skip


# --- columns, dense or sparse ----------------------------------------------------------------------------------------
@generic(fastmath=SUMS)
def combine(B, S, x, out):
    """out = Σ_s x_s·B[S_s]."""


@combine.rule(np.ndarray)
def _(B, S, x, out):
    n, k = out.size, S.size  # four columns at a time, so that `out` is read and written less often
    for i in range(n):
        out[i] = 0.0
    s = 0
    while s + 4 <= k:
        x0, x1, x2, x3 = x[s], x[s + 1], x[s + 2], x[s + 3]
        b0, b1, b2, b3 = B[S[s]], B[S[s + 1]], B[S[s + 2]], B[S[s + 3]]
        for i in range(n):
            out[i] += x0 * b0[i] + x1 * b1[i] + x2 * b2[i] + x3 * b3[i]
        s += 4
    while s < k:
        x0, b0 = x[s], B[S[s]]
        for i in range(n):
            out[i] += x0 * b0[i]
        s += 1


@combine.rule(ThinColumns)
def _(B, S, x, out):
    level, start, row, value, shift = 0.0, B.start, B.row, B.value, B.shift
    for s in range(S.size):
        level -= x[s] * shift[S[s]]
    for i in range(out.size):
        out[i] = level
    for s in range(S.size):
        for p in range(start[S[s]], start[S[s] + 1]):
            out[row[p]] += x[s] * value[p]


@generic(fastmath=SUMS)
def project(B, S, derivative, out):
    """out_s = the mean of derivative_i·B[S_s, i]."""


@project.rule(np.ndarray)
def _(B, S, derivative, out):
    n = derivative.size
    for s in range(S.size):
        b, total = B[S[s]], 0.0
        for i in range(n):
            total += b[i] * derivative[i]
        out[s] = total / n


@project.rule(ThinColumns)
def _(B, S, derivative, out):
    n, whole, start, row, value, shift = derivative.size, 0.0, B.start, B.row, B.value, B.shift
    for i in range(n):
        whole += derivative[i]
    for s in range(S.size):
        total = 0.0
        for p in range(start[S[s]], start[S[s] + 1]):
            total += value[p] * derivative[row[p]]
        out[s] = (total - shift[S[s]] * whole) / n


@inner(fastmath=SUMS)
def heavy_rows(curvature, weight, some, rows):
    """Put the rows that hold nearly all of the curvature into `rows`: how many, and for how many each stands.

    A row of weight two is judged as two rows would be.  With `some`, only every second, third, ... of very many.
    """
    n, mean = weight.size, 0.0
    for i in range(n):
        mean += curvature[i]
    least, count = SHARE * mean / n, 0
    if n > WHOLE:
        for i in range(n):
            if curvature[i] >= least * weight[i] and curvature[i] > 0.0:
                rows[count] = i
                count += 1
    if n <= WHOLE or (count > MOST * n and n < 2 * MANY):
        count = n
        for i in range(n):
            rows[i] = i
    step = count // MANY
    if some and step > 1:
        kept = (count + step - 1) // step
        for a in range(kept):
            rows[a] = rows[a * step]
        return kept, count / kept
    return count, 1.0


@inner(fastmath=SUMS)
def add_products(B, S, curvature, rows, low, high, kind, G):
    """Add Σ curvature·bbᵀ over rows[low:high] to G; `kind` is an array of the precision of the products."""
    k, count = S.size, high - low
    T = np.empty((k, count), kind.dtype)
    root = np.empty(count, kind.dtype)
    for i in range(count):
        root[i] = np.sqrt(curvature[rows[low + i]])
    straight = rows[high - 1] - rows[low] == count - 1
    first = rows[low]
    for s in range(k):
        b, t = B[S[s]], T[s]
        if straight:
            for i in range(count):
                t[i] = b[first + i] * root[i]
        else:
            for i in range(count):
                t[i] = b[rows[low + i]] * root[i]
    P = np.dot(T, T.T)
    for s in range(k):
        for r in range(k):
            G[s, r] += P[s, r]


@generic(fastmath=SUMS)
def second_moments(B, S, weight, room, whole, G):
    """Fill G with the mean of curvature·bbᵀ for the columns S.

    Unless it must be `whole`, the rows that hold little of the curvature are left out; about what they hold is added
    to the diagonal.
    """


@second_moments.rule(np.ndarray)
def _(B, S, weight, room, whole, G):
    k, n, curvature, rows = S.size, weight.size, room.curvature, room.rows
    if whole:
        count, each = n, 1.0
        for i in range(n):
            rows[i] = i
    else:
        count, each = heavy_rows(curvature, weight, True, rows)
    for s in range(k):
        for r in range(k):
            G[s, r] = 0.0
    single = not whole and k * count > SINGLE
    step = max(256, CHUNK // max(1, k))
    for low in range(0, count, step):
        high = min(low + step, count)
        if single:
            add_products(B, S, curvature, rows, low, high, room.single, G)
        else:
            add_products(B, S, curvature, rows, low, high, room.z, G)
    light = 0.0
    if count < n:
        for i in range(n):
            light += curvature[i]
        for a in range(count):
            light -= each * curvature[rows[a]]
        light = max(0.0, light)
    for s in range(k):
        for r in range(k):
            G[s, r] *= each / n
        G[s, s] += light / n


@second_moments.rule(ThinColumns)
def _(B, S, weight, room, whole, G):
    k, n, curvature = S.size, weight.size, room.curvature
    slot, first, total = np.full(B.shift.size, -1), np.zeros(k), 0.0
    at, values = np.empty(k, np.int64), np.empty(k)
    for s in range(k):
        slot[S[s]] = s
        for r in range(k):
            G[s, r] = 0.0
    for i in range(n):
        h, count = curvature[i], 0
        total += h
        for p in range(B.row_start[i], B.row_start[i + 1]):
            s = slot[B.row_column[p]]
            if s >= 0:
                at[count], values[count] = s, B.row_value[p]
                count += 1
        for a in range(count):
            product = h * values[a]
            first[at[a]] += product
            for b in range(a + 1):
                G[at[a], at[b]] += product * values[b]
    for s in range(k):
        for r in range(s):
            G[s, r] = G[r, s] = G[s, r] + G[r, s]  # each pair is in one of both places
    for s in range(k):
        m = B.shift[S[s]]
        for r in range(k):
            G[s, r] += m * B.shift[S[r]] * total - m * first[r] - B.shift[S[r]] * first[s]
            G[s, r] /= n


@generic(fastmath=SUMS)
def curve(loss, block, S, room, whole, G):
    """Fill G with the second derivatives of the data term, for the columns S."""


@curve.rule(object)
def _(loss, block, S, room, whole, G):
    second_moments(block.B, S, block.weight, room, whole, G)


@curve.rule(SoftmaxLoss)
def _(loss, block, S, room, whole, G):
    """The mean of w(diag(p) − ppᵀ) ⊗ bbᵀ."""
    n, size = block.weight.size, S.size * block.outputs
    for a in range(size):
        for b in range(size):
            G[a, b] = 0.0
    step = max(32, CHUNK // max(1, size))
    for low in range(0, n, step):
        if whole:
            add_class_products(block, S, room.curvature, low, min(low + step, n), room.z, G)
        else:
            add_class_products(block, S, room.curvature, low, min(low + step, n), room.single, G)
    for a in range(size):
        for b in range(size):
            G[a, b] /= n


@curve.rule(SquaredTargets)
def _(loss, block, S, room, whole, G):
    """The same for every target, and nothing between them."""
    k, C, own = S.size, block.outputs, np.empty((S.size, S.size))
    second_moments(block.B, S, block.weight, room, whole, own)
    for s in range(k):
        for r in range(k):
            for c in range(C):
                for e in range(C):
                    G[s * C + c, r * C + e] = own[s, r] if c == e else 0.0


@inner(fastmath=SUMS)
def add_class_products(block, S, p, low, high, kind, G):
    """Add the products over some rows of the data to G; `kind` is an array of their precision."""
    B, n, k, C, count = block.B, block.weight.size, S.size, block.outputs, high - low
    U, T, number = np.empty((k * C, count), kind.dtype), np.empty((k, count), kind.dtype), kind.dtype.type
    shares, roots = np.empty(count, kind.dtype), np.empty(count, kind.dtype)
    for c in range(C):
        for i in range(count):
            root = np.sqrt(block.weight[low + i])
            shares[i] = number(root * p[c * n + low + i])
            roots[i] = number(root * np.sqrt(p[c * n + low + i]))
        for s in range(k):
            b, u, t = B[S[s]], U[s * C + c], T[s]
            for i in range(count):
                t[i] = number(b[low + i]) * roots[i]
                u[i] = number(b[low + i]) * shares[i]
        P = np.dot(T, T.T)
        for s in range(k):
            for r in range(k):
                G[s * C + c, r * C + c] += P[s, r]
    P = np.dot(U, U.T)
    for a in range(k * C):
        for b in range(k * C):
            G[a, b] -= P[a, b]
