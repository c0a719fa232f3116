"""Passes over the rows: how they are split, and the kernels that go through them."""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

from ._jit import inner, kernel
from ._threads import ordered_map
from .losses import curvature, deriv, value, weighted_slope
from .matrix import (
    CSR,
    Rows,
    add_and_dot_rows,
    add_moments,
    add_rows,
    dot_rows,
    entries,
    gather,
    row_magnitudes,
    row_max,
    row_square,
    take_entries,
)  # fmt: skip
from .matrix import shape as shape_of

BLOCK = 1 << 13  # numbers a block of rows holds in a pass: predictions and sums then meet it in cache
PART = 1 << 18  # numbers below which a part of the data is not worth a thread
MOST_PARTS = 16
LARGEST = 1e280  # squared norm of a row: sums of squares, and their inverses, must stay floats


def parts(rows: Rows) -> list[tuple[int, int]]:
    """Split the rows into parts of equal work: few enough that their sums are cheap to keep and to add."""
    n, d = shape_of(rows)
    count = min(MOST_PARTS, max(1, entries(rows) // max(4 * d, PART)))
    work = np.linspace(0, entries(rows), count + 1)[1:-1].astype(np.int64)
    cuts = np.searchsorted(rows.indptr, work.astype(rows.indptr.dtype)) if isinstance(rows, CSR) else work // d
    edges = [0, *(int(cut) // 4 * 4 for cut in cuts), n]
    return [(low, high) for low, high in itertools.pairwise(edges) if high > low]


def norms(rows: Rows, kept: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """(max magnitude outside the kept columns, squared norm, squared norm on the kept columns) of every row."""
    n, d = shape_of(rows)
    top, square = np.empty(n), np.empty(n)
    kept_square = np.zeros(n if kept.size else 0)
    slot_of = np.full(d, -1, dtype=np.int32)
    slot_of[kept] = np.arange(kept.size, dtype=np.int32)
    member = np.zeros((d + 63) // 64, dtype=np.uint64)
    np.bitwise_or.at(member, kept >> 6, np.uint64(1) << (kept & 63).astype(np.uint64))

    def part(bounds: tuple[int, int]) -> None:
        row_norms(rows, bounds[0], bounds[1], kept, slot_of, member, np.empty(kept.size), top, square, kept_square)

    for _ in ordered_map(part, parts(rows)):
        pass
    if not (square <= LARGEST).all():
        _explain_infinite(rows, int(np.flatnonzero(~(square <= LARGEST))[0]))
    if max(top.max(), kept_square.max(initial=0.0)) > 0.0 and square.max() < 1.0 / LARGEST:
        raise ValueError("A must not be so small that the squares of all its entries underflow; rescale it")
    return top, square, kept_square if kept.size else np.broadcast_to(0.0, n)


def largest_squares(rows: Rows, r: int, kept: NDArray[np.int64]) -> NDArray[np.float64]:
    """‖H_r(a_i)‖² of every row, outside the kept columns."""
    n, d = shape_of(rows)
    out = np.empty(n)
    slot_of = np.full(d, -1, dtype=np.int32)
    slot_of[kept] = 0

    def part(bounds: tuple[int, int]) -> None:
        top_squares(rows, bounds[0], bounds[1], r, slot_of, np.empty(d), out)

    for _ in ordered_map(part, parts(rows)):
        pass
    return out


def row_sums(
    rows: Rows, slope: NDArray[np.float64], bend: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Σ slope_i·a_i, Σ bend_i·a_i and Σ bend_i·a_i² (entry by entry); without a bend the first alone."""
    d, both = shape_of(rows)[1], bend.size > 0

    def part(bounds: tuple[int, int]) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        sums = np.zeros(d), np.zeros(d if both else 0), np.zeros(d if both else 0)
        moments(rows, bounds[0], bounds[1], slope, bend, *sums)
        return sums

    each = ordered_map(part, parts(rows))
    total = next(each)
    for sums in each:
        for mine, more in zip(total, sums, strict=True):
            mine += more
    return total


def _explain_infinite(rows: Rows, i: int) -> None:
    if isinstance(rows, CSR):
        part = slice(int(rows.indptr[i]), int(rows.indptr[i + 1]))
        columns, values = rows.indices[part], rows.data[part]
    else:
        columns, values = np.arange(rows.shape[1]), rows[i]
    bad = np.flatnonzero(~np.isfinite(values))
    if bad.size:
        at, what = columns[bad[0]], values[bad[0]]
        raise ValueError(f"A must be finite, got {what} in row {i}, column {at}; remove or impute it first")
    raise ValueError(
        f"A must have rows whose squared norm is a float, but that of row {i} overflows; rescale the columns"
    )


# --- kernels ---------------------------------------------------------------------------------------------------------
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
def slot_curvature(rows, first, column, x, slot_of, member, y, weight, offset, loss, a, out):
    """out[s] = the mean over the rows of w̃ φ''(z) a_is²: the curvature of the data term along each slot."""
    for i in range(y.size):
        if weight[i] > 0.0:
            gather(rows, i, column, first, slot_of, member, a)
            z = offset[i]
            for s in range(x.size):
                z += a[s] * x[s]
            bend = weight[i] * curvature(loss, z, y[i]) / y.size
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
