"""Compiled loops over the rows of a matrix, written once for dense rows and CSR.

An operation (`gather`, `add_rows`, ...) has one rule for dense rows and one for CSR; a kernel is made of operations and
so serves both layouts and every loss.

Columns in play live in *slots*: ``index[s]`` is the column of slot s, ``slot_of[j]`` the slot of column j or −1, and
``member`` a bitmap of the columns that have a slot (it stays in cache where ``slot_of`` would not).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._jit import FINITE, SUMS, generic, inner, kernel
from ..losses import curvature, value, weighted_derivative


class CSR(NamedTuple):
    """Sparse rows: row i holds ``data[p]`` at column ``indices[p]`` for ``indptr[i] <= p < indptr[i+1]``.

    The indices are unsigned: compiled code then skips Python's check for negative indices, which halves the time of a
    sparse product.
    """

    data: NDArray[np.floating]
    indices: NDArray[np.unsignedinteger]
    indptr: NDArray[np.unsignedinteger]
    n_columns: int


Rows = np.ndarray | CSR


# --- a row against the slots -----------------------------------------------------------------------------------------
@generic(counted=False)
def gather(rows, i, index, first, slot_of, member, out):
    """out[s] = a_i[index[s]] for all slots; 1 for the intercept's, slot 0 if first = 1."""


@gather.rule(np.ndarray)
def _(rows, i, index, first, slot_of, member, out):
    for s in range(index.size):
        out[s] = rows[i, np.uint64(index[s])]
    if first:
        out[0] = 1.0


@gather.rule(CSR)
def _(rows, i, index, first, slot_of, member, out):
    for s in range(index.size):
        out[s] = 0.0
    for p in range(rows.indptr[i], rows.indptr[i + 1]):
        j = rows.indices[p]
        if (member[np.uint64(j) >> np.uint64(6)] >> (np.uint64(j) & np.uint64(63))) & np.uint64(1):
            out[slot_of[j]] = rows.data[p]
    if first:
        out[0] = 1.0


@generic
def take_entries(rows, i, index, slot_of, member, slots, values):
    """Write the slots of row i whose entry is not zero, and those entries; return how many."""


@take_entries.rule(np.ndarray)
def _(rows, i, index, slot_of, member, slots, values):
    count = 0
    for s in range(index.size):
        v = rows[i, np.uint64(index[s])]
        if v != 0.0:
            slots[count], values[count] = s, v
            count += 1
    return count


@take_entries.rule(CSR)
def _(rows, i, index, slot_of, member, slots, values):
    count = 0
    for p in range(rows.indptr[i], rows.indptr[i + 1]):
        j = rows.indices[p]
        if (member[np.uint64(j) >> np.uint64(6)] >> (np.uint64(j) & np.uint64(63))) & np.uint64(1):
            slots[count], values[count] = slot_of[j], rows.data[p]
            count += 1
    return count


@generic(fastmath=SUMS)
def dot_rows(rows, low, high, index, first, x, full_x, slot_of, member, out):
    """out[i] = a_i·x over the slots from `first` on, for low <= i < high; dense rows may read x as a full vector."""


@dot_rows.rule(np.ndarray)
def _(rows, low, high, index, first, x, full_x, slot_of, member, out):
    if full_x.size == 0:
        for i in range(low, high):
            total = 0.0
            for s in range(first, index.size):
                total += rows[i, np.uint64(index[s])] * x[s]
            out[i] = total
        return
    i = low
    while i + 4 <= high:  # four streams at once keep the memory busy
        t0 = t1 = t2 = t3 = 0.0
        for j in range(full_x.size):
            t0 += rows[i, j] * full_x[j]
            t1 += rows[i + 1, j] * full_x[j]
            t2 += rows[i + 2, j] * full_x[j]
            t3 += rows[i + 3, j] * full_x[j]
        out[i], out[i + 1], out[i + 2], out[i + 3] = t0, t1, t2, t3
        i += 4
    while i < high:
        total = 0.0
        for j in range(full_x.size):
            total += rows[i, j] * full_x[j]
        out[i] = total
        i += 1


@dot_rows.rule(CSR)
def _(rows, low, high, index, first, x, full_x, slot_of, member, out):
    for i in range(low, high):
        total = 0.0
        for p in range(rows.indptr[i], rows.indptr[i + 1]):
            j = rows.indices[p]
            if (member[np.uint64(j) >> np.uint64(6)] >> (np.uint64(j) & np.uint64(63))) & np.uint64(1):
                total += rows.data[p] * x[slot_of[j]]
        out[i] = total


# --- whole rows ------------------------------------------------------------------------------------------------------
@generic(fastmath=SUMS, counted=False)
def add_rows(rows, low, high, scale, coef, total):
    """total += the sum of scale·coef[i]·a_i over the rows low <= i < high."""


@add_rows.rule(np.ndarray)
def _(rows, low, high, scale, coef, total):
    i = low
    while i + 4 <= high:  # four rows at a time: a quarter of the traffic to `total`
        c0, c1, c2, c3 = scale * coef[i], scale * coef[i + 1], scale * coef[i + 2], scale * coef[i + 3]
        for j in range(total.size):
            total[j] += (c0 * rows[i, j] + c1 * rows[i + 1, j]) + (c2 * rows[i + 2, j] + c3 * rows[i + 3, j])
        i += 4
    while i < high:
        c = scale * coef[i]
        for j in range(total.size):
            total[j] += c * rows[i, j]
        i += 1


@add_rows.rule(CSR)
def _(rows, low, high, scale, coef, total):
    for i in range(low, high):
        c = scale * coef[i]
        for p in range(rows.indptr[i], rows.indptr[i + 1]):
            total[rows.indices[p]] += c * rows.data[p]


@generic(fastmath=SUMS)
def add_moments(rows, low, high, derivative, curvatures, g, a, q):
    """Over the rows i: g += Σ derivative_i·a_i, a += Σ curvature_i·a_i, q += Σ curvature_i·a_i² (entry by entry)."""


@add_moments.rule(np.ndarray)
def _(rows, low, high, derivative, curvatures, g, a, q):
    i = low
    while i + 4 <= high:
        s0, s1, s2, s3 = derivative[i], derivative[i + 1], derivative[i + 2], derivative[i + 3]
        b0, b1, b2, b3 = curvatures[i], curvatures[i + 1], curvatures[i + 2], curvatures[i + 3]
        for j in range(g.size):
            v0, v1, v2, v3 = rows[i, j], rows[i + 1, j], rows[i + 2, j], rows[i + 3, j]
            t0, t1, t2, t3 = b0 * v0, b1 * v1, b2 * v2, b3 * v3
            g[j] += (s0 * v0 + s1 * v1) + (s2 * v2 + s3 * v3)
            a[j] += (t0 + t1) + (t2 + t3)
            q[j] += (t0 * v0 + t1 * v1) + (t2 * v2 + t3 * v3)
        i += 4
    while i < high:
        s, b = derivative[i], curvatures[i]
        for j in range(g.size):
            v = rows[i, j]
            g[j] += s * v
            a[j] += b * v
            q[j] += b * v * v
        i += 1


@add_moments.rule(CSR)
def _(rows, low, high, derivative, curvatures, g, a, q):
    for i in range(low, high):
        s, b = derivative[i], curvatures[i]
        for p in range(rows.indptr[i], rows.indptr[i + 1]):
            j, v = rows.indices[p], rows.data[p]
            g[j] += s * v
            a[j] += b * v
            q[j] += b * v * v


@generic(fastmath=SUMS)
def add_and_dot_rows(rows, low, middle, high, index, first, x, full_x, slot_of, member, scale, z, total):
    """`add_rows` with coefficients z for the rows low..middle, and `dot_rows` into z for the rows middle..high."""


@add_and_dot_rows.rule(np.ndarray)
def _(rows, low, middle, high, index, first, x, full_x, slot_of, member, scale, z, total):
    i, n = low, middle
    if full_x.size:  # in one loop: while the new rows come from memory, the old ones are added from the cache
        while i + 4 <= middle and n + 4 <= high:
            c0, c1, c2, c3 = scale * z[i], scale * z[i + 1], scale * z[i + 2], scale * z[i + 3]
            t0 = t1 = t2 = t3 = 0.0
            for j in range(total.size):
                t0 += rows[n, j] * full_x[j]
                t1 += rows[n + 1, j] * full_x[j]
                t2 += rows[n + 2, j] * full_x[j]
                t3 += rows[n + 3, j] * full_x[j]
                total[j] += (c0 * rows[i, j] + c1 * rows[i + 1, j]) + (c2 * rows[i + 2, j] + c3 * rows[i + 3, j])
            z[n], z[n + 1], z[n + 2], z[n + 3] = t0, t1, t2, t3
            i += 4
            n += 4
    add_rows(rows, i, middle, scale, z, total)
    dot_rows(rows, n, high, index, first, x, full_x, slot_of, member, z)


@add_and_dot_rows.rule(CSR)
def _(rows, low, middle, high, index, first, x, full_x, slot_of, member, scale, z, total):
    add_rows(rows, low, middle, scale, z, total)
    dot_rows(rows, middle, high, index, first, x, full_x, slot_of, member, z)


@generic(fastmath=FINITE)
def row_max(rows, i, slot_of):
    """The largest magnitude of row i outside the kept columns (those with a slot)."""


@row_max.rule(np.ndarray)
def _(rows, i, slot_of):
    top = 0.0
    for j in range(rows.shape[1]):
        top = max(top, abs(rows[i, j]) if slot_of[j] < 0 else 0.0)
    return top


@row_max.rule(CSR)
def _(rows, i, slot_of):
    top = 0.0
    for p in range(rows.indptr[i], rows.indptr[i + 1]):
        if slot_of[rows.indices[p]] < 0:
            top = max(top, abs(rows.data[p]))
    return top


@generic(fastmath=SUMS)
def row_square(rows, i):
    """The squared norm of row i; not finite if an entry is not."""


@row_square.rule(np.ndarray)
def _(rows, i):
    total = 0.0
    for j in range(rows.shape[1]):
        v = np.float64(rows[i, j])
        total += v * v
    return total


@row_square.rule(CSR)
def _(rows, i):
    total = 0.0
    for p in range(rows.indptr[i], rows.indptr[i + 1]):
        v = np.float64(rows.data[p])
        total += v * v
    return total


@generic
def row_magnitudes(rows, i, slot_of, out):
    """Write the magnitudes of row i outside the kept columns to `out`; return how many."""


@row_magnitudes.rule(np.ndarray)
def _(rows, i, slot_of, out):
    count = 0
    for j in range(rows.shape[1]):
        if slot_of[j] < 0:
            out[count] = abs(rows[i, j])
            count += 1
    return count


@row_magnitudes.rule(CSR)
def _(rows, i, slot_of, out):
    count = 0
    for p in range(rows.indptr[i], rows.indptr[i + 1]):
        if slot_of[rows.indices[p]] < 0:
            out[count] = abs(rows.data[p])
            count += 1
    return count


# --- passes over the rows low..high ----------------------------------------------------------------------------------
@kernel
def sweep(
    rows, low, high, block, first, index, x, slot_of, member, full_x, y, weight, offset, loss, scale, derivative, total
):
    """One pass over the rows low..high: their loss and derivatives, and (unless `total` is empty) the sum of
    scale·derivative_i·a_i."""
    loss_sum = derivative_sum = 0.0
    constant = x[0] if first else 0.0
    dot_rows(rows, low, min(low + block, high), index, first, x, full_x, slot_of, member, derivative)
    for start in range(low, high, block):
        stop = min(start + block, high)
        for i in range(start, stop):
            z = derivative[i] + constant + offset[i]
            derivative[i] = weighted_derivative(loss, z, y[i], weight[i])
            derivative_sum += derivative[i]
            if weight[i] > 0.0:  # so that a row of weight zero cannot turn inf into NaN
                loss_sum += weight[i] * value(loss, z, y[i])
        after = min(stop + block, high)
        if total.size:
            add_and_dot_rows(
                rows, start, stop, after, index, first, x, full_x, slot_of, member, scale, derivative, total
            )
        else:
            dot_rows(rows, stop, after, index, first, x, full_x, slot_of, member, derivative)
    return loss_sum, derivative_sum


@kernel
def slot_curvature(rows, first, column, x, slot_of, member, y, weight, offset, loss, a, n, out):
    """out[s] += the sum over the rows of w̃ φ''(z) a_is²/n: the curvature of the data term along each slot."""
    for i in range(y.size):
        if weight[i] > 0.0:
            gather(rows, i, column, first, slot_of, member, a)
            z = offset[i]
            for s in range(x.size):
                z += a[s] * x[s]
            own = weight[i] * curvature(loss, z, y[i]) / n
            for s in range(x.size):
                out[s] += own * a[s] * a[s]


@kernel
def row_norms(rows, low, high, kept, slot_of, member, buffer, top, square, kept_square):
    """What `norms` gives, for the rows low..high."""
    for i in range(low, high):
        top[i] = row_max(rows, i, slot_of)
        square[i] = row_square(rows, i)
        gather(rows, i, kept, 0, slot_of, member, buffer)
        for s in range(kept.size):
            kept_square[i] += buffer[s] * buffer[s]


@inner(counted=False)
def select(values, count, r):
    """The r-th largest of values[:count] (r >= 1), in linear time; reorders the buffer."""
    low, high, target = 0, count - 1, r - 1
    while low < high:
        a, b, c = values[low], values[(low + high) >> 1], values[high]
        pivot = max(min(a, b), min(max(a, b), c))
        i, j = low, high
        while i <= j:
            while values[i] > pivot:
                i += 1
            while values[j] < pivot:
                j -= 1
            if i <= j:
                values[i], values[j] = values[j], values[i]
                i += 1
                j -= 1
        if target <= j:
            high = j
        elif target >= i:
            low = i
        else:
            break
    return values[target]


@kernel
def top_squares(rows, low, high, r, slot_of, buffer, out):
    """out[i] = ‖H_r(a_i)‖² outside the kept columns, for the rows low..high."""
    for i in range(low, high):
        count = row_magnitudes(rows, i, slot_of, buffer)
        if count > r:
            select(buffer, count, r)  # moves the r largest to the front
            count = r
        out[i] = 0.0
        for j in range(count):
            out[i] += buffer[j] * buffer[j]


@kernel
def moments(rows, low, high, derivative, curvatures, g, a, q):
    """`add_moments`; g alone, if a is empty."""
    if a.size:
        add_moments(rows, low, high, derivative, curvatures, g, a, q)
    else:
        add_rows(rows, low, high, 1.0, derivative, g)


@kernel
def add_products(rows, column, slot_of, member, curvatures, slots, values, first, total):
    """first += Σ c_i·b_i and total += Σ c_i·b_i·b_iᵀ, c the curvatures, for the entries b_i of row i in some columns.

    Every product of two columns is in one of its two places.
    """
    for i in range(curvatures.size):
        if curvatures[i] != 0.0:
            count = take_entries(rows, i, column, slot_of, member, slots, values)
            for a in range(count):
                s, t = slots[a], curvatures[i] * values[a]
                first[s] += t
                for b in range(a + 1):
                    total[s, slots[b]] += t * values[b]


@kernel
def take_columns(rows, low, high, column, slot_of, member, centre, factor, a, out):
    """out[s, i] = the entry of row i in column[s], less its centre, times its factor, for low <= i < high."""
    for i in range(low, high):
        gather(rows, i, column, 0, slot_of, member, a)
        for s in range(column.size):
            out[s, i] = (a[s] - centre[s]) * factor[s]


@kernel
def scale_rows(rows, low, high, centre, factor, out):
    """out = (rows − centre)·factor for some rows, computed in double precision."""
    for i in range(low, high):
        for j in range(centre.size):
            out[i, j] = (rows[i, j] - centre[j]) * factor[j]
