"""Passes over the rows: how they are split, and the kernels that go through them.

A pass over a source is the same pass over each of its blocks, in order.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ._source import Source, stacked
from ._threads import ordered_map
from .pass_kernels import add_products, moments, row_norms, take_columns, top_squares
from .rows import CSR, Rows, as_rows, entries, frozen
from .rows import shape as shape_of

T = TypeVar("T")
Array = NDArray[np.float64]

CHUNK = 1 << 22  # numbers that are converted to another precision at a time
CODED = 1 << 14  # numbers whose codes are made at a time: they stay in the cache
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


def each(rows: Rows | Source, function: Callable[..., T], *arrays: NDArray[Any]) -> Iterator[T]:
    """``function(rows, *arrays)``; of a source that of every block with its parts of the arrays, in order."""
    if isinstance(rows, Source):
        return rows.map(functools.partial(on_block, function), *arrays)
    return iter([function(rows, *arrays)])


def on_block(function: Callable[..., T], block: Any, *parts: NDArray[Any]) -> T:
    return function(as_rows(block), *parts)


def joined(parts: Iterator[Any]) -> Any:
    """Arrays (or tuples of them) one behind the other."""
    every = list(parts)
    if len(every) == 1:
        return every[0]
    if isinstance(every[0], tuple):
        return tuple(np.concatenate(column) for column in zip(*every, strict=True))
    return np.concatenate(every)


def summed(parts: Iterator[Any]) -> Any:
    """The sums of tuples of arrays or numbers, in order."""
    total = list(next(parts))
    for more in parts:
        for at in range(len(total)):
            total[at] += more[at]
        del more  # before the next ones come
    return tuple(total)


def membership(columns: NDArray[np.int64], d: int, first: int = 0) -> tuple[NDArray[np.int32], NDArray[np.uint64]]:
    """The slot of every column, or −1, and a bit a column that has one; the slots count from `first`."""
    slot_of = np.full(d, -1, dtype=np.int32)
    slot_of[columns] = np.arange(first, first + columns.size, dtype=np.int32)
    member = np.zeros((d + 63) // 64, dtype=np.uint64)
    np.bitwise_or.at(member, columns >> 6, np.uint64(1) << (columns & 63).astype(np.uint64))
    return slot_of, member


def norms(rows: Rows | Source, kept: NDArray[np.int64]) -> tuple[Array, Array, Array]:
    """(max magnitude outside the kept columns, squared norm, squared norm on the kept columns) of every row."""
    top, square, kept_square = joined(each(rows, functools.partial(_norms, kept)))
    if not (square <= LARGEST).all():
        at = int(np.flatnonzero(~(square <= LARGEST))[0])
        _explain_infinite(as_rows(take_rows(rows, np.arange(square.size) == at)), at)
    if max(top.max(), kept_square.max(initial=0.0)) > 0.0 and square.max() < 1.0 / LARGEST:
        raise ValueError("A must not be so small that the squares of all its entries underflow; rescale it")
    return top, square, kept_square if kept.size else np.broadcast_to(0.0, square.size)


def _norms(kept: NDArray[np.int64], rows: Rows) -> tuple[Array, Array, Array]:
    n, d = shape_of(rows)
    top, square = np.empty(n), np.empty(n)
    kept_square = np.zeros(n if kept.size else 0)
    slot_of, member = membership(kept, d)

    def part(bounds: tuple[int, int]) -> None:
        row_norms(rows, bounds[0], bounds[1], kept, slot_of, member, np.empty(kept.size), top, square, kept_square)

    for _ in ordered_map(part, parts(rows)):
        pass
    return top, square, kept_square


def largest_squares(rows: Rows | Source, r: int, kept: NDArray[np.int64]) -> Array:
    """‖H_r(a_i)‖² of every row, outside the kept columns."""
    return joined(each(rows, functools.partial(_largest_squares, r, kept)))


def _largest_squares(r: int, kept: NDArray[np.int64], rows: Rows) -> Array:
    n, d = shape_of(rows)
    out = np.empty(n)
    slot_of = np.full(d, -1, dtype=np.int32)
    slot_of[kept] = 0

    def part(bounds: tuple[int, int]) -> None:
        top_squares(rows, bounds[0], bounds[1], r, slot_of, np.empty(d), out)

    for _ in ordered_map(part, parts(rows)):
        pass
    return out


def row_codes(rows: Rows | Source) -> NDArray[np.uint64]:
    """A number per row that changes with any of its entries (a multilinear hash of their bits): the same for dense and
    sparse rows of equal values, and however a source divides them into blocks."""
    return joined(each(rows, _row_codes))


def _row_codes(rows: Rows) -> NDArray[np.uint64]:
    n, d = shape_of(rows)
    out, keys = np.empty(n, np.uint64), _mixed(np.arange(1, d + 1, dtype=np.uint64))
    step = max(1, CODED * n // max(1, entries(rows)))

    def part(bounds: tuple[int, int]) -> None:
        for low in range(*bounds, step):
            high = min(low + step, bounds[1])
            if isinstance(rows, CSR):
                ends = rows.indptr[low : high + 1].astype(np.int64)
                here = slice(ends[0], ends[-1])
                sums = np.cumsum(_bits(rows.data[here]) * keys[rows.indices[here]], dtype=np.uint64)
                out[low:high] = np.diff(np.concatenate([np.zeros(1, np.uint64), sums])[ends - ends[0]])  # modulo 2^64
            else:
                out[low:high] = np.einsum("ij,j->i", _bits(rows[low:high]), keys)

    for _ in ordered_map(part, parts(rows)):
        pass
    return out


def _bits(values: NDArray[Any]) -> NDArray[np.uint64]:
    """The bits of numbers, the upper half folded onto the lower one: products modulo 2^64 keep little of upper bits."""
    bits = np.add(values, 0.0, dtype=np.float64).view(np.uint64)  # −0 becomes 0
    bits ^= bits >> np.uint64(32)
    return bits


def _mixed(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Odd numbers that look random, by SplitMix64: a product with an odd number loses nothing modulo 2^64."""
    numbers *= np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        numbers ^= numbers >> np.uint64(shift)
        numbers *= np.uint64(factor)
    numbers ^= numbers >> np.uint64(31)
    return numbers | np.uint64(1)


def row_sums(rows: Rows | Source, slope: Array, bend: Array) -> tuple[Array, Array, Array]:
    """Σ slope_i·a_i, Σ bend_i·a_i and Σ bend_i·a_i² (entry by entry); without a bend the first alone."""
    return summed(each(rows, _row_sums, slope, bend))


def _row_sums(rows: Rows, slope: Array, bend: Array) -> tuple[Array, Array, Array]:
    d, both = shape_of(rows)[1], bend.size > 0
    slope, bend = frozen(slope), frozen(bend)  # what has travelled may be read-only: one type

    def part(bounds: tuple[int, int]) -> tuple[Array, Array, Array]:
        sums = np.zeros(d), np.zeros(d if both else 0), np.zeros(d if both else 0)
        moments(rows, bounds[0], bounds[1], slope, bend, *sums)
        return sums

    return summed(ordered_map(part, parts(rows)))


def times_rows(block: Array, rows: Rows | Source, which: NDArray[np.int64] | None = None) -> Array:
    """B·A for a dense B, by BLAS or SciPy; of some rows of A only, if `which` is given."""
    if isinstance(rows, Source):
        if which is not None:
            some, block = block, np.zeros((block.shape[0], rows.shape[0]))
            block[:, which] = some
        return summed(each(rows, _times_block, block.T))[0]
    if isinstance(rows, CSR):
        A = as_scipy(rows)
        return np.ascontiguousarray(np.asarray((A if which is None else A[which]).T @ block.T).T)
    if rows.dtype == np.float64:
        return np.asarray(block @ (rows if which is None else rows[which]))
    total = np.zeros((block.shape[0], rows.shape[1]))
    step = max(1, CHUNK // rows.shape[1])  # a few rows in double precision at a time, not a copy of all
    for low in range(0, block.shape[1], step):
        part = slice(low, low + step)
        total += block[:, part] @ rows[part if which is None else which[part]].astype(np.float64)
    return total


def _times_block(rows: Rows, block: Array) -> tuple[Array]:
    return (times_rows(block.T, rows),)


def products(rows: Rows | Source, columns: NDArray[np.int64], bend: Array) -> tuple[Array, Array]:
    """Σ bend_i·b_i and Σ bend_i·b_i·b_iᵀ for the entries b_i of the rows in some columns; every product of two columns
    in one of its two places."""
    return summed(each(rows, functools.partial(_products, columns), bend))


def _products(columns: NDArray[np.int64], rows: Rows, bend: Array) -> tuple[Array, Array]:
    count = columns.size
    first, total = np.zeros(count), np.zeros((count, count))
    slot_of, member = membership(columns, shape_of(rows)[1])
    add_products(
        rows, columns, slot_of, member, frozen(bend), np.empty(count, np.uint64), np.empty(count), first, total
    )
    return first, total


def read_columns(rows: Rows | Source, columns: NDArray[np.int64], centre: Array, factor: Array, out: Array) -> None:
    """out[s, i] = the entry of row i in columns[s], less its centre, times its factor."""
    if not isinstance(rows, Source):
        _read_columns(rows, columns, centre, factor, out)
        return
    order, low = np.argsort(columns, kind="stable"), 0
    back = np.argsort(order)
    for part in rows.map(dense_part, columns=columns[order]):
        high = low + part.shape[0]
        _read_columns(as_rows(part), back, centre, factor, out[:, low:high])
        low = high


def _read_columns(rows: Rows, columns: NDArray[np.int64], centre: Array, factor: Array, out: Array) -> None:
    slot_of, member = membership(columns, shape_of(rows)[1])
    take_columns(rows, columns, slot_of, member, centre, factor, np.empty(columns.size), out)


def dense_columns(A: Any, columns: NDArray[np.int64]) -> NDArray[Any]:
    """Some columns of a matrix or source as a dense array, a row a row."""
    if isinstance(A, Source):
        if len(columns) == 0:
            return np.empty((A.shape[0], 0), A.dtype)
        order = np.argsort(columns, kind="stable")
        parts = list(A.map(dense_part, columns=np.asarray(columns, dtype=np.int64)[order]))
        return (parts[0] if len(parts) == 1 else np.concatenate(parts))[:, np.argsort(order)]
    return dense_part(A[:, columns])


def dense_part(block: Any) -> NDArray[Any]:
    """A copy, for the memory of a block may be used again."""
    return block.toarray() if hasattr(block, "tocsr") else np.array(block)


def column_extremes(A: Any, columns: NDArray[np.int64], centre: Array) -> tuple[Array, NDArray[np.int64]]:
    """max |a − centre| of some columns of a matrix or source, and how many entries each stores."""
    if isinstance(A, Source):
        found = list(A.map(functools.partial(_extremes, centre), columns=columns))
        return np.max([away for away, _ in found], axis=0), np.sum([count for _, count in found], axis=0)
    return _extremes(centre, A[:, columns])


def _extremes(centre: Array, block: Any) -> tuple[Array, NDArray[np.int64]]:
    sparse = hasattr(block, "tocsr")
    stored = np.bincount(block.tocsr().indices, minlength=centre.size) if sparse else np.full(centre.size, len(block))
    return np.abs(dense_part(block) - centre).max(axis=0, initial=0.0).astype(np.float64), stored


def take_rows(rows: Rows | Source, mask: NDArray[np.bool_]) -> Any:
    """The rows where the mask is true, as an array or SciPy's CSR matrix."""
    if isinstance(rows, Source):
        return stacked(list(rows.map(pick_rows, mask)))
    return pick_rows(as_scipy(rows) if isinstance(rows, CSR) else rows, mask)


def pick_rows(block: Any, mask: NDArray[np.bool_]) -> Any:
    return block[np.flatnonzero(mask)]


def as_scipy(rows: CSR) -> Any:
    """Sparse rows as SciPy has them; nothing is copied."""
    from scipy import sparse

    signed = [part.view(np.dtype(part.dtype.name[1:])) for part in (rows.indices, rows.indptr)]
    return sparse.csr_array((rows.data, *signed), shape=shape_of(rows))


def _explain_infinite(row: Rows, i: int) -> None:
    """Say what is wrong with row i, which is all that `row` holds."""
    columns, values = (row.indices, row.data) if isinstance(row, CSR) else (np.arange(row.shape[1]), row[0])
    bad = np.flatnonzero(~np.isfinite(values))
    if bad.size:
        at, what = columns[bad[0]], values[bad[0]]
        raise ValueError(f"A must be finite, got {what} in row {i}, column {at}; remove or impute it first")
    raise ValueError(
        f"A must have rows whose squared norm is a float, but that of row {i} overflows; rescale the columns"
    )
