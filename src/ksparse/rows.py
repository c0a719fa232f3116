"""Rows of a design matrix: dense, CSR, or a source of blocks that are one or the other."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from ._source import Source
from ._validate import as_real

T = TypeVar("T")


class CSR(NamedTuple):
    """Sparse rows: row i holds ``data[p]`` at column ``indices[p]`` for ``indptr[i] <= p < indptr[i+1]``.

    The indices are seen as unsigned numbers: compiled code then skips Python's check for negative ones, which halves
    the time of a sparse product.
    """

    data: NDArray[Any]
    indices: NDArray[Any]
    indptr: NDArray[Any]
    n_columns: int


SOME = 1 << 20  # entries that are worked on at a time
Rows = np.ndarray | CSR  # what kernels take; a source gives them block by block


class Scaled(NamedTuple):
    """A matrix seen in other units, (A − centre)·factor column by column; nothing is copied.

    Solvers that can read it so say ``reads_scaled``; for the others there is a copy.
    """

    A: Any
    centre: NDArray[np.float64]  # zeros where there is no intercept
    factor: NDArray[np.float64]

    def copy(self) -> Any:
        """As a matrix (or source) of its own, in A's precision; of a sparse A only full columns may have a centre."""
        if isinstance(self.A, Source):
            return Rescaled(self)
        if hasattr(self.A, "tocsr"):
            Z = self.A.tocsr(copy=True)
            self.scale(Z.data, Z.indices)
            return Z
        Z = np.subtract(self.A, self.centre.astype(self.A.dtype), order="C")
        # in double precision, number by number: a factor may be too large for float32, where the product is not
        return np.multiply(Z, self.factor, out=Z, casting="same_kind")

    def scale(self, data: NDArray[Any], indices: NDArray[Any]) -> None:
        """Bring the entries of a sparse matrix into these units, in place: some at a time, for large samples."""
        for low in range(0, data.size, SOME):
            some = slice(low, low + SOME)
            data[some] = (data[some] - self.centre[indices[some]]) * self.factor[indices[some]]


class Rescaled(Source):
    """A source seen in other units: its blocks are scaled as they come."""

    def __init__(self, scaled: Scaled) -> None:
        source: Source = scaled.A
        super().__init__(
            source.shape, source.dtype, sparse=source.sparse, entries=source.entries, names=source.names,
            memory=source.memory,
        )  # fmt: skip
        self.source, self.centre, self.factor = source, scaled.centre, scaled.factor

    def map(self, function: Callable[..., T], *arrays: NDArray[Any], columns: Any = None) -> Iterator[T]:
        which = slice(None) if columns is None else columns
        units = self.centre[which], self.factor[which]
        yield from self.source.map(functools.partial(_rescaled, function, *units), *arrays, columns=columns)
        self.times = self.source.times


def _rescaled(function: Callable[..., T], centre: Any, factor: Any, block: Any, *parts: Any) -> T:
    return function(Scaled(block, centre, factor).copy(), *parts)


def shape(rows: Rows | Source) -> tuple[int, int]:
    """Rows and columns."""
    return (rows.indptr.size - 1, rows.n_columns) if isinstance(rows, CSR) else rows.shape


def is_sparse(A: Any) -> bool:
    """Whether a matrix is sparse, or rows come so; every sparse container has the method."""
    return A.sparse if isinstance(A, Source) else isinstance(A, CSR) or hasattr(A, "tocsr")


def is_thin(rows: Rows | Source) -> bool:
    """Whether so few entries are stored that products of columns are best summed row by row, not by BLAS."""
    n, d = shape(rows)
    return is_sparse(rows) and entries(rows) < 0.2 * d * n


def entries(rows: Rows | Source) -> int:
    """How many numbers are stored."""
    if isinstance(rows, Source):
        return rows.entries
    return rows.data.size if isinstance(rows, CSR) else rows.size


def as_rows(A: Any, name: str = "A") -> Any:
    """Bring a matrix into one of the two shapes that kernels take; a source is left as it is.

    C-ordered arrays and canonical CSR matrices of float64 or float32 are used as they are, read-only or not; whatever
    else there is (Fortran order, other dtypes, CSC, COO, DataFrames) is converted, once.
    """
    if isinstance(A, Source | CSR):
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


def canonical(A: Any, name: str = "A") -> Any:
    """A sparse matrix as valid CSR that stores every entry once, columns in ascending order; anything else as it is.

    Sums are blind to an entry stored in two parts, but whatever counts, shifts or squares entries is not: so every
    matrix goes through here before it is measured.  The caller's object is never changed.
    """
    if not hasattr(A, "tocsr"):
        return A
    A = A.tocsr()
    # a shell of its own around the same arrays, so that SciPy's checks and repairs leave the caller's object alone
    try:
        own = type(A)((A.data, A.indices, A.indptr), shape=A.shape)
        own.check_format(full_check=True)
    except ValueError as error:
        raise ValueError(f"{name} is not a valid sparse matrix: {error}") from None
    if not own.has_canonical_format:
        own = own.copy()
        own.sum_duplicates()
    return own


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
