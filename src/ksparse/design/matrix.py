"""A in memory: dense rows or CSR, and passes over them in parts that run in threads."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from .._threads import ordered_map
from .._validate import as_real, canonical
from . import kernels
from .base import Array, Columns, Design, Point, Scaling, Stage, membership, summed
from .kernels import CSR, Rows
from .products import MOST_PARTS, PART, dense_product

T = TypeVar("T")
CODED = 1 << 14  # numbers that are hashed at a time: they stay in the cache
BLOCK = 1 << 13  # numbers in a block of rows in a sweep: predictions and sums then meet it in the cache
SOME = 1 << 20  # sparse entries that are scaled at a time
LARGEST = 1e280  # squared norm of a row: sums of squares, and their inverses, must stay floats
FLAT = 1e-7  # of a mean square: a variance below it is rounding, if it is a difference of sums
LEAST = 1e-14  # of a mean square: a variance below it is rounding, however it is computed
WIDTH = 64  # columns that are centred at a time

# how to open a collection that has an attribute of this name; `ksparse.sources` enters its readers here
FOREIGN: dict[str, Callable[[Any], Design]] = {}


# --- from what users give to rows ------------------------------------------------------------------------------------
def as_design(A: Any) -> Design:
    """A as a design; nothing is copied if it is one already, or a C-ordered array or canonical CSR matrix of floats."""
    return A if isinstance(A, Design) else InMemory(as_rows(A))


def as_source(X: Any) -> Any:
    """A Dask collection as a source; anything else unchanged."""
    for attribute, opened in FOREIGN.items():
        if hasattr(X, attribute) and not isinstance(X, Design):
            return opened(X)
    return X


def as_rows(A: Any, name: str = "A") -> Rows:
    """A matrix in one of the two layouts that kernels take.

    C-ordered arrays and canonical CSR matrices of float64 or float32 are used as they are, read-only or not.
    Everything else (Fortran order, other dtypes, CSC, COO, DataFrames) is converted, once.
    """
    if isinstance(A, CSR):
        return A
    # every sparse container has both methods; asking this way keeps SciPy out of dense work
    if hasattr(A, "tocsr") and hasattr(A, "nnz"):
        return _as_csr(A, name)
    if hasattr(A, "sparse") and hasattr(A, "dtypes"):  # a DataFrame with sparse columns
        try:
            return _as_csr(A.sparse.to_coo(), name)
        except ValueError as error:
            raise ValueError(f"{name} is a sparse DataFrame that cannot be converted: {error}") from None
    array = as_real(A, name)
    if array.ndim != 2:
        raise ValueError(f"{name} must be a matrix (rows are samples), got shape {array.shape}")
    return frozen(_as_float(array))


def _as_csr(A: Any, name: str) -> CSR:
    if A.ndim != 2:
        raise ValueError(f"{name} must be a matrix (rows are samples), got shape {A.shape}")
    own = canonical(A, name)
    wide = own.indices.dtype == np.int64 or own.indptr.dtype == np.int64
    signed, unsigned = (np.int64, np.uint64) if wide else (np.int32, np.uint32)
    return CSR(
        frozen(_as_float(as_real(own.data, name))),
        frozen(np.ascontiguousarray(own.indices, dtype=signed).view(unsigned)),
        frozen(np.ascontiguousarray(own.indptr, dtype=signed).view(unsigned)),
        int(own.shape[1]),
    )


def _as_float(array: NDArray[Any]) -> NDArray[Any]:
    """C-ordered float32 or float64, copied only if it is something else."""
    with np.errstate(over="ignore"):  # a long double too large becomes inf, which is refused later
        return np.ascontiguousarray(array, dtype=np.float32 if array.dtype == np.float32 else np.float64)


def frozen(array: NDArray[Any]) -> NDArray[Any]:
    """A read-only view: kernels never write to the data, and one compiled type serves writable and read-only arrays."""
    view = array.view(np.ndarray)
    view.flags.writeable = False
    return view


def as_matrix(rows: Rows) -> Any:
    """Rows as NumPy or SciPy has them; nothing is copied."""
    if not isinstance(rows, CSR):
        return rows
    from scipy import sparse

    signed = [part.view(np.dtype(part.dtype.name[1:])) for part in (rows.indices, rows.indptr)]
    return sparse.csr_array((rows.data, *signed), shape=(rows.indptr.size - 1, rows.n_columns))


def is_sparse(A: Any) -> bool:
    """Whether a matrix of the user's is sparse; every sparse container has the method."""
    return hasattr(A, "tocsr")


def scale_entries(data: NDArray[Any], indices: NDArray[Any], centre: Array, factor: Array) -> None:
    """Centre and scale the entries of a sparse matrix in place, some at a time."""
    for low in range(0, data.size, SOME):
        some = slice(low, low + SOME)
        data[some] = (data[some] - centre[indices[some]]) * factor[indices[some]]


# --- the design ------------------------------------------------------------------------------------------------------
class InMemory(Design):
    """Rows in memory, dense or CSR."""

    in_memory = True

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.sparse = isinstance(rows, CSR)
        if isinstance(rows, CSR):
            self.shape, self.entries, self.dtype = (
                (rows.indptr.size - 1, rows.n_columns),
                rows.data.size,
                rows.data.dtype,
            )
        else:
            self.shape, self.entries, self.dtype = rows.shape, rows.size, rows.dtype

    @functools.cached_property
    def parts(self) -> list[tuple[int, int]]:
        """The rows in parts of equal work, few enough that their sums are cheap to hold and to add.

        They depend on the data alone and their sums are added in order: the same bits for any number of threads.
        """
        n, d = self.shape
        count = min(MOST_PARTS, max(1, self.entries // max(4 * d, PART)))
        work = np.linspace(0, self.entries, count + 1)[1:-1].astype(np.int64)
        if isinstance(self.rows, CSR):
            cuts = np.searchsorted(self.rows.indptr, work.astype(self.rows.indptr.dtype))
        else:
            cuts = work // d
        edges = [0, *(int(cut) // 4 * 4 for cut in cuts), n]
        return [(low, high) for low, high in itertools.pairwise(edges) if high > low]

    def _each_part(self, work: Callable[[tuple[int, int]], None]) -> None:
        for _ in ordered_map(work, self.parts):
            pass

    # --- sums over the rows
    def moments(self, first: Array, second: Array) -> tuple[Array, Array, Array]:
        d, both = self.shape[1], second.size > 0
        first, second = frozen(first), frozen(second)

        def part(bounds: tuple[int, int]) -> tuple[Array, Array, Array]:
            sums = np.zeros(d), np.zeros(d if both else 0), np.zeros(d if both else 0)
            kernels.moments(self.rows, *bounds, first, second, *sums)
            return sums

        return summed(ordered_map(part, self.parts))

    def left_product(self, block: Array, which: NDArray[np.int64] | None = None) -> Array:
        rows = self.rows
        if isinstance(rows, CSR):
            A = as_matrix(rows)
            return np.ascontiguousarray(np.asarray((A if which is None else A[which]).T @ block.T).T)
        return dense_product(block, rows, which)

    def products(self, columns: Columns, weight: Array) -> tuple[Array, Array]:
        count = columns.size
        first, total = np.zeros(count), np.zeros((count, count))
        kernels.add_products(
            self.rows, columns, *membership(columns, self.shape[1]), frozen(weight),
            np.empty(count, np.uint64), np.empty(count), first, total,
        )  # fmt: skip
        return first, total + total.T - np.diag(total.diagonal())  # the kernel fills one of two places

    def column_moments(self, weight: Array, centred: bool) -> tuple[Array, Array]:
        return stored_moments(self, weight, centred)

    # --- columns and rows
    def read_columns(self, columns: Columns, out: Array, scaling: Scaling | None = None) -> None:
        centre, factor = (np.zeros(columns.size), np.ones(columns.size)) if scaling is None else scaling
        slot_of, member = membership(columns, self.shape[1])
        self._each_part(
            lambda bounds: kernels.take_columns(
                self.rows, *bounds, columns, slot_of, member, centre, factor, np.empty(columns.size), out
            )
        )

    def stored_columns(self, columns: Columns) -> tuple[Any, Array, Array]:
        return as_matrix(self.rows)[:, columns].tocsc(), np.zeros(columns.size), np.ones(columns.size)

    def norms(self, kept: Columns) -> tuple[Array, Array, Array]:
        norms = self.row_norms(kept)
        check_norms(norms, lambda i: self.rows_at(np.array([i])))
        return norms

    def row_norms(self, kept: Columns) -> tuple[Array, Array, Array]:
        """`norms` without its checks."""
        n, d = self.shape
        top, square, kept_square = np.empty(n), np.empty(n), np.zeros(n)
        slot_of, member = membership(kept, d)
        self._each_part(
            lambda bounds: kernels.row_norms(
                self.rows, *bounds, kept, slot_of, member, np.empty(kept.size), top, square, kept_square
            )
        )
        return top, square, kept_square

    def largest_squares(self, r: int, kept: Columns) -> Array:
        n, d = self.shape
        out, slot_of = np.empty(n), np.full(d, -1, dtype=np.int32)
        slot_of[kept] = 0
        self._each_part(lambda bounds: kernels.top_squares(self.rows, *bounds, r, slot_of, np.empty(d), out))
        return out

    def row_codes(self) -> NDArray[np.uint64]:
        rows, (n, d) = self.rows, self.shape
        out, keys = np.empty(n, np.uint64), _mixed(np.arange(1, d + 1, dtype=np.uint64))
        step = max(1, CODED * n // max(1, self.entries))

        def part(bounds: tuple[int, int]) -> None:
            for low in range(*bounds, step):
                high = min(low + step, bounds[1])
                if isinstance(rows, CSR):
                    ends = rows.indptr[low : high + 1].astype(np.int64)
                    here = slice(ends[0], ends[-1])
                    sums = np.cumsum(_bits(rows.data[here]) * keys[rows.indices[here]], dtype=np.uint64)
                    # differences of sums modulo 2^64
                    out[low:high] = np.diff(np.concatenate([np.zeros(1, np.uint64), sums])[ends - ends[0]])
                else:
                    out[low:high] = np.einsum("ij,j->i", _bits(rows[low:high]), keys)

        self._each_part(part)
        return out

    def extremes(self, columns: Columns, centre: Array) -> tuple[Array, NDArray[np.int64]]:
        block = as_matrix(self.rows)[:, columns]
        if not self.sparse:
            away = np.abs(block - centre).max(axis=0, initial=0.0)
            return away.astype(np.float64), np.full(centre.size, self.shape[0])
        entries = block.tocsr()  # there may be millions of columns, most of them empty
        stored = np.bincount(entries.indices, minlength=centre.size)
        away = np.where(stored < self.shape[0], np.abs(centre), 0.0).astype(np.float64)
        np.maximum.at(away, entries.indices, np.abs(entries.data - centre[entries.indices]))
        return away, stored

    def check_finite(self) -> None:
        A = self.load()
        if self.sparse:
            A = A.tocoo()
            for at in np.flatnonzero(~np.isfinite(A.data))[:1]:
                refuse_entry(A.data[at], A.row[at], A.col[at])
        else:
            for row, column in np.argwhere(~np.isfinite(A))[:1]:
                refuse_entry(A[row, column], row, column)

    def rows_at(self, which: NDArray[Any]) -> InMemory:
        """Some rows, by number or mask, as a design of their own."""
        return InMemory(as_rows(as_matrix(self.rows)[which]))

    def row_range(self, low: int, high: int) -> InMemory:
        """The rows low..high as a design of their own; nothing is copied."""
        rows = self.rows
        if isinstance(rows, CSR):
            return InMemory(rows._replace(indptr=rows.indptr[low : high + 1]))
        return InMemory(rows[low:high])

    def map(self, function: Callable[..., T], *arrays: NDArray[Any]) -> Iterator[T]:
        """``function(rows, *arrays)``: all rows are one block, which the function divides among threads by itself."""
        yield function(as_matrix(self.rows), *arrays)

    def load(self) -> Any:
        return as_matrix(self.rows)

    def scaled(self, centre: Array, factor: Array) -> InMemory:
        if isinstance(self.rows, CSR):
            data = self.rows.data.copy()
            scale_entries(data, self.rows.indices, centre, factor)
            return InMemory(self.rows._replace(data=frozen(data)))
        Z = np.subtract(self.rows, centre.astype(self.dtype), order="C")
        # in double precision, number by number: a factor may be too large for float32, where the product is not
        return InMemory(frozen(np.multiply(Z, factor, out=Z, casting="same_kind")))

    @np.errstate(over="ignore", invalid="ignore")
    def single_copy(self, centre: Array, factor: Array) -> NDArray[np.float32] | None:
        if isinstance(self.rows, CSR):
            return None
        out = np.empty(self.shape, np.float32)
        self._each_part(lambda bounds: kernels.scale_rows(self.rows, *bounds, centre, factor, out))
        return out

    # --- one pass at an iterate
    def sweep(
        self, point: Point, y: Array, weight: Array, offset: Array, derivative: Array, mu: Array
    ) -> tuple[float, float]:
        """The mean loss and the mean of w̃φ'.

        Writes w̃φ' of the rows to `derivative` and adds the gradient to `mu`, unless `mu` is empty.
        """
        y, weight, offset, slots = frozen(y), frozen(weight), frozen(offset), point.slots
        # end to end, a dense row is read faster than in jumps, up to a point
        whole = not self.sparse and self.shape[1] <= 32 * point.x.size
        full_x = point.vector() if whole else np.empty(0)
        block = max(4, BLOCK // max(1, self.entries // y.size) // 4 * 4)

        def part(bounds: tuple[int, int]) -> tuple[float, float, Array]:
            # a single part sums straight into mu; several need sums of their own
            sums = mu if len(self.parts) == 1 else np.zeros(mu.size)
            totals = kernels.sweep(
                self.rows, *bounds, block, point.first, *slots, full_x,
                y, weight, offset, point.loss, 1.0 / point.n, derivative, sums,
            )  # fmt: skip
            return *totals, sums

        total_loss = total_derivative = 0.0
        for loss_sum, derivative_sum, sums in ordered_map(part, self.parts):
            total_loss += loss_sum
            total_derivative += derivative_sum
            if sums is not mu:
                mu += sums
        return total_loss / point.n, total_derivative / point.n

    def stage(
        self, point: Point, y: Array, weight: Array, offset: Array, row_max: Array, idx: Any, reuse: Stage | None
    ) -> Stage:
        mu = np.empty(point.d) if reuse is None else reuse.mu
        derivative = np.empty(y.size) if reuse is None else reuse.derivative
        mu[:] = 0.0
        total, mu_ones = self.sweep(point, y, weight, offset, derivative, mu)
        return Stage(total, mu, mu_ones, derivative, self.rows, y, weight, offset, row_max, idx)

    def drawn(self, point: Point, y: Array, weight: Array, offset: Array, row_max: Array, idx: Any) -> Stage:
        return Stage(0.0, np.zeros(point.d), 0.0, np.zeros(y.size), self.rows, y, weight, offset, row_max, idx)

    def objective(self, point: Point, y: Array, weight: Array, offset: Array) -> float:
        return self.sweep(point, y, weight, offset, np.empty(y.size), np.empty(0))[0]

    def slot_derivatives(self, point: Point, y: Array, weight: Array, offset: Array) -> tuple[Array, Array]:
        mu, curvature = np.zeros(point.d), np.zeros(point.x.size)
        ones = self.sweep(point, y, weight, offset, np.empty(y.size), mu)[1]
        kernels.slot_curvature(
            self.rows, point.first, *point.slots, frozen(y), frozen(weight), frozen(offset), point.loss,
            np.empty(point.x.size), point.n, curvature,
        )  # fmt: skip
        return np.concatenate([np.full(point.first, ones), mu[point.column[point.first :]]]), curvature


# --- what designs share ----------------------------------------------------------------------------------------------
def stored_moments(design: Design, weight: Array, centred: bool) -> tuple[Array, Array]:
    """`Design.column_moments` of columns as they are stored."""
    n, d = design.shape
    mean, _, square = design.moments(weight, weight)
    mean, square = mean / n if centred else np.zeros(d), square / n
    variance = square - mean**2
    if design.thin:  # products of their columns are differences of sums too
        return mean, np.where(variance > FLAT * square, variance, 0.0)
    # columns far from zero are centred before they are squared
    far = np.flatnonzero((variance <= FLAT * square) & (mean != 0.0))
    for columns in np.split(far, range(WIDTH, far.size, WIDTH)) if far.size else []:
        block = np.empty((columns.size, n))
        design.read_columns(columns, block, (mean[columns], np.ones(columns.size)))
        variance[columns] = block**2 @ weight / n - (block @ weight / n) ** 2
    return mean, np.where(variance > LEAST * square, variance, 0.0)


def check_norms(norms: tuple[Array, Array, Array], row: Callable[[int], InMemory]) -> None:
    """Raise ValueError if the norms of rows show an entry that is not finite, too large or too small."""
    top, square, kept_square = norms
    if not (square <= LARGEST).all():
        at = int(np.flatnonzero(~(square <= LARGEST))[0])
        _explain_row(row(at).rows, at)
    if max(top.max(), kept_square.max(initial=0.0)) > 0.0 and square.max() < 1.0 / LARGEST:
        raise ValueError("A must not be so small that the squares of all its entries underflow; rescale it")


def _explain_row(row: Rows, i: int) -> None:
    """Say what is wrong with row i, the only row that `row` holds."""
    columns, values = (row.indices, row.data) if isinstance(row, CSR) else (np.arange(row.shape[1]), row[0])
    bad = np.flatnonzero(~np.isfinite(values))
    if bad.size:
        refuse_entry(values[bad[0]], i, columns[bad[0]])
    raise ValueError(
        f"A must have rows whose squared norm is a float, but that of row {i} overflows; rescale the columns"
    )


def refuse_entry(value: Any, row: int, column: int) -> None:
    raise ValueError(f"A must be finite, got {value} in row {row}, column {column}; remove or impute it first")


def dense(block: Any) -> NDArray[Any]:
    """A dense copy of a block, whose own memory may be used again."""
    return block.toarray() if is_sparse(block) else np.array(block)


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
