"""The kernels that go through rows low..high of a matrix; `passes` calls them for parts and blocks."""

from __future__ import annotations

import numpy as np

from ._jit import inner, kernel
from .losses import curvature, deriv, value, weighted_slope
from .matrix import (
    add_and_dot_rows,
    add_moments,
    add_rows,
    dot_rows,
    gather,
    row_magnitudes,
    row_max,
    row_square,
    take_entries,
)  # fmt: skip


@kernel
def sweep(
    rows, low, high, block, first, index, x, slot_of, member, full_x, y, weight, offset, loss, scale, slope, total
):
    """One pass over the rows low..high: their loss and slopes, and (unless `total` is empty) the sum of
    scale·slope_i·a_i."""
    loss_sum = slope_sum = 0.0
    constant = x[0] if first else 0.0
    dot_rows(rows, low, min(low + block, high), index, first, x, full_x, slot_of, member, slope)
    for start in range(low, high, block):
        stop = min(start + block, high)
        for i in range(start, stop):
            z = slope[i] + constant + offset[i]
            slope[i] = weighted_slope(loss, z, y[i], weight[i])
            slope_sum += slope[i]
            if weight[i] > 0.0:  # so that a row of weight zero cannot turn inf into NaN
                loss_sum += weight[i] * value(loss, z, y[i])
        after = min(stop + block, high)
        if total.size:
            add_and_dot_rows(rows, start, stop, after, index, first, x, full_x, slot_of, member, scale, slope, total)
        else:
            dot_rows(rows, stop, after, index, first, x, full_x, slot_of, member, slope)
    return loss_sum, slope_sum


@kernel
def slot_curvature(rows, first, column, x, slot_of, member, y, weight, offset, loss, a, n, out):
    """out[s] += the sum over the rows of w̃ φ''(z) a_is²/n: the curvature of the data term along each slot."""
    for i in range(y.size):
        if weight[i] > 0.0:
            gather(rows, i, column, first, slot_of, member, a)
            z = offset[i]
            for s in range(x.size):
                z += a[s] * x[s]
            bend = weight[i] * curvature(loss, z, y[i]) / n
            for s in range(x.size):
                out[s] += bend * a[s] * a[s]


@kernel
def row_norms(rows, low, high, kept, slot_of, member, buffer, top, square, kept_square):
    """What `norms` gives, for the rows low..high."""
    for i in range(low, high):
        top[i] = row_max(rows, i, slot_of)
        square[i] = row_square(rows, i)
        gather(rows, i, kept, 0, slot_of, member, buffer)
        for s in range(kept.size):
            kept_square[i] += buffer[s] * buffer[s]


@inner
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
def start_curvature(loss, offset, y):
    """A size for an unbounded φ'' around the start z = offset: |φ''| + |φ'| (for Poisson at least the target)."""
    out = np.empty(y.size)
    for i in range(y.size):
        out[i] = curvature(loss, offset[i], y[i]) + abs(deriv(loss, offset[i], y[i]))
    return out


@kernel
def curvatures(loss, z, y):
    """φ''(z_i, y_i) of every row."""
    out = np.empty(y.size)
    for i in range(y.size):
        out[i] = curvature(loss, z[i], y[i])
    return out


@kernel
def look_at_rows(loss, z, y, weight, slope, bend):
    """w̃φ' and w̃φ'' of every row at its prediction, and the sum of w̃φ."""
    total = 0.0
    for i in range(y.size):
        slope[i] = bend[i] = 0.0
        if weight[i] > 0.0:
            total += weight[i] * value(loss, z[i], y[i])
            slope[i] = weight[i] * deriv(loss, z[i], y[i])
            bend[i] = weight[i] * curvature(loss, z[i], y[i])
    return total


@kernel
def moments(rows, low, high, slope, bend, g, a, q):
    """`add_moments`; g alone, if a is empty."""
    if a.size:
        add_moments(rows, low, high, slope, bend, g, a, q)
    else:
        add_rows(rows, low, high, 1.0, slope, g)


@kernel
def add_products(rows, column, slot_of, member, bend, slots, values, first, total):
    """first += Σ bend_i·b_i and total += Σ bend_i·b_i·b_iᵀ for the entries b_i of row i in some columns; every product
    of two columns in one of its two places."""
    for i in range(bend.size):
        if bend[i] != 0.0:
            count = take_entries(rows, i, column, slot_of, member, slots, values)
            for a in range(count):
                s, t = slots[a], bend[i] * values[a]
                first[s] += t
                for b in range(a + 1):
                    total[s, slots[b]] += t * values[b]


@kernel
def take_columns(rows, column, slot_of, member, centre, factor, a, out):
    """out[s, i] = the entry of row i in column[s], less its centre, times its factor."""
    for i in range(out.shape[1]):
        gather(rows, i, column, 0, slot_of, member, a)
        for s in range(column.size):
            out[s, i] = (a[s] - centre[s]) * factor[s]
