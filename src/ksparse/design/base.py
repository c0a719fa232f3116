"""What a design offers: sums and products over the rows of A, chosen columns and rows, and one pass at an iterate."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .kernels import CSR, Rows

Array = NDArray[np.float64]
Columns = NDArray[np.int64]
Scaling = tuple[Array, Array]  # centre and factor
THIN = 0.2  # share of entries stored, below which products of columns are summed row by row instead of by BLAS


class Stage(NamedTuple):
    """What one pass over the rows gives at a snapshot x̃: all that the steps of a stage need.

    In memory, `rows` are all rows and `idx` holds the draws.  For rows that come in blocks, `rows` are the rows that
    were drawn, and `idx` points into them.
    """

    value: float  # F(x̃) without the ridge
    mu: Array  # the gradient of the data term on all columns; the steps add the ridge
    mu_ones: float  # its component for the intercept
    derivative: Array  # w̃_i φ'(z_i) at z_i = a_i·x̃, which every later step subtracts
    rows: Rows
    y: Array
    weight: Array
    offset: Array
    row_max: Array  # max |a_ij| over the columns that compete for the k slots
    idx: NDArray[np.int64]

    def spent(self) -> Stage:
        """The arrays that the next stage may overwrite.

        Frees the draws and sparse rows, so that the next stage allocates its own only after they are gone.
        """
        rows: Any = None if isinstance(self.rows, CSR) else self.rows
        return self._replace(idx=self.idx[:0].copy(), rows=rows)


class Point:
    """An iterate and the loss, as a pass needs them.  Pickled, it holds the few columns in play, not d numbers."""

    def __init__(self, first: int, column: Columns, x: Array, d: int, n: int, loss: Any, places: Any = None) -> None:
        self.first, self.column, self.x, self.d, self.n, self.loss = first, column, x, d, n, loss
        self._places = places  # slot_of and member, as in `Slots`

    def __reduce__(self) -> tuple[type, tuple[Any, ...]]:
        return Point, (self.first, self.column, self.x, self.d, self.n, self.loss)

    @property
    def slots(self) -> tuple[Any, ...]:
        """column, x, slot_of, member."""
        if self._places is None:
            self._places = membership(self.column[self.first :], self.d, self.first)
        return self.column, self.x, *self._places

    def vector(self) -> Array:
        full = np.zeros(self.d)
        full[self.column[self.first :]] = self.x[self.first :]
        return full

    def at(self, x: Array) -> Point:
        """The same columns with other coefficients."""
        return Point(self.first, self.column, x, self.d, self.n, self.loss, self._places)

    def of_few(self) -> tuple[Point, Columns]:
        """The iterate for rows that hold only the columns in play, in ascending order; and those columns."""
        columns = np.sort(self.column[self.first :])
        column = np.concatenate([self.column[: self.first], np.searchsorted(columns, self.column[self.first :])])
        return Point(self.first, column, self.x, columns.size, self.n, self.loss), columns


def membership(columns: Columns, d: int, first: int = 0) -> tuple[NDArray[np.int32], NDArray[np.uint64]]:
    """The slot of every column (−1 if it has none), counted from `first`; and one bit per column: has it a slot?"""
    slot_of = np.full(d, -1, dtype=np.int32)
    slot_of[columns] = np.arange(first, first + columns.size, dtype=np.int32)
    member = np.zeros((d + 63) // 64, dtype=np.uint64)
    np.bitwise_or.at(member, columns >> 6, np.uint64(1) << (columns & 63).astype(np.uint64))
    return slot_of, member


class Design(ABC):
    """The matrix A, n rows by d columns."""

    shape: tuple[int, int]
    dtype: np.dtype[Any]  # float64 or float32
    sparse: bool
    entries: int  # how many numbers are stored
    in_memory: bool  # a pass is cheap, and stages draw from the same rows
    checked = False  # whether all entries are known to be finite already
    scaling: Scaling | None = None  # where columns are scaled as they are read

    @property
    def thin(self) -> bool:
        """Whether few enough entries are stored that products of columns are best summed row by row, not by BLAS."""
        return self.sparse and self.entries < THIN * self.shape[0] * self.shape[1]

    # --- sums over the rows --------------------------------------------------------------------------------------
    @abstractmethod
    def moments(self, first: Array, second: Array) -> tuple[Array, Array, Array]:
        """Σ first_i·a_i, Σ second_i·a_i and Σ second_i·a_i² (entry by entry); the last two are empty if `second` is."""

    @abstractmethod
    def left_product(self, block: Array, which: NDArray[np.int64] | None = None) -> Array:
        """B·A for a dense B, by BLAS or SciPy; over some rows of A only, if `which` is given."""

    @abstractmethod
    def products(self, columns: Columns, weight: Array) -> tuple[Array, Array]:
        """Σ w_i·b_i and Σ w_i·b_i·b_iᵀ for the entries b_i of row i in some columns."""

    @abstractmethod
    def column_moments(self, weight: Array, centred: bool) -> tuple[Array, Array]:
        """The mean of every column (0 unless `centred`) and its variance (mean square unless `centred`); a variance
        that is only rounding is 0."""

    # --- columns and rows ----------------------------------------------------------------------------------------
    @abstractmethod
    def read_columns(self, columns: Columns, out: Array, scaling: Scaling | None = None) -> None:
        """out[s, i] = the entry of row i in columns[s]; less centre[s], times factor[s], if a scaling is given."""

    def dense_columns(self, columns: Columns) -> Array:
        """Some columns as a dense array (n, columns)."""
        out = np.empty((columns.size, self.shape[0]))
        if columns.size:
            self.read_columns(np.asarray(columns, dtype=np.int64), out)
        return out.T

    @abstractmethod
    def stored_columns(self, columns: Columns) -> tuple[Any, Array, Array]:
        """Some columns of sparse rows: SciPy's CSC matrix, centres and factors; they are (stored − centre)·factor."""

    @abstractmethod
    def norms(self, kept: Columns) -> tuple[Array, Array, Array]:
        """Per row: max |a_ij| outside the kept columns, ‖a_i‖², and ‖a_i‖² on the kept columns.

        Raises ValueError, with row and column, if an entry is not finite or a square overflows.
        """

    @abstractmethod
    def largest_squares(self, r: int, kept: Columns) -> Array:
        """‖H_r(a_i)‖² of every row, outside the kept columns."""

    @abstractmethod
    def row_codes(self) -> NDArray[np.uint64]:
        """One number per row that changes with any of its entries (a multilinear hash of their bits).

        Dense and sparse rows of equal values have equal codes, however a source divides them into blocks.
        """

    @abstractmethod
    def extremes(self, columns: Columns, centre: Array) -> tuple[Array, NDArray[np.int64]]:
        """max |a − centre| in some columns, and how many entries each of them stores."""

    @abstractmethod
    def check_finite(self) -> None:
        """Raise ValueError, with row and column, if an entry is not finite."""

    @abstractmethod
    def load(self) -> Any:
        """All rows in memory: an array, or SciPy's CSR matrix."""

    @abstractmethod
    def scaled(self, centre: Array, factor: Array) -> Design:
        """(A − centre)·factor, column by column: a copy in memory, or blocks that are scaled as they come.

        Of sparse rows only columns that store every entry may have a centre.
        """

    def unscaled(self) -> tuple[Any, Array, Array]:
        """The rows as they are stored, with `map`; centres and factors: the columns are (stored − centre)·factor."""
        return self, np.zeros(self.shape[1]), np.ones(self.shape[1])

    @abstractmethod
    def single_copy(self, centre: Array, factor: Array) -> NDArray[np.float32] | None:
        """(A − centre)·factor, column by column, in single precision; None unless the rows are dense and in memory."""

    # --- one pass at an iterate ----------------------------------------------------------------------------------
    @abstractmethod
    def stage(
        self, point: Point, y: Array, weight: Array, offset: Array, row_max: Array, idx: Any, reuse: Stage | None
    ) -> Stage:
        """The full gradient at an iterate and the rows that `idx` draws; arrays of `reuse` may be overwritten."""

    @abstractmethod
    def drawn(self, point: Point, y: Array, weight: Array, offset: Array, row_max: Array, idx: Any) -> Stage:
        """The rows that `idx` draws, as a stage whose derivatives and gradient are zero."""

    @abstractmethod
    def objective(self, point: Point, y: Array, weight: Array, offset: Array) -> float:
        """The mean loss at an iterate: a pass over the columns in play."""

    @abstractmethod
    def slot_derivatives(self, point: Point, y: Array, weight: Array, offset: Array) -> tuple[Array, Array]:
        """The first derivative of the data term along each slot, and the mean over the rows of w̃φ''a²."""

    @property
    def room_for_columns(self) -> float:
        """How many bytes columns may take that a solver holds in memory."""
        return math.inf

    @property
    def sample_rows(self) -> int | None:
        """How many rows a stage may draw; None if any number."""
        return None


def summed(parts: Iterator[Any]) -> Any:
    """The sums of tuples of arrays or numbers, added in order."""
    total = list(next(parts))
    for more in parts:
        for at in range(len(total)):
            total[at] += more[at]
        del more  # free these sums before the next block makes its own
    return tuple(total)


def joined(parts: Iterator[Any]) -> Any:
    """Arrays (or tuples of arrays) concatenated."""
    every = list(parts)
    if len(every) == 1:
        return every[0]
    if isinstance(every[0], tuple):
        return tuple(np.concatenate(column) for column in zip(*every, strict=True))
    return np.concatenate(every)
