"""Columns of a matrix that a fit works on, and least squares on them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import get_lapack_funcs

from ..solvers._pursuit import Columns, find

Array = NDArray[Any]
DELICATE = 1e-3  # reciprocal condition of a Gram matrix below which normal equations want a correction
SINGULAR = 1e-10  # the same, below which they lose too much
CLEAN = 1e-11  # of A_T* y: what may be left of it in a residual
CHUNK = 256  # rows of which columns are taken at once
ROWS = 16  # are transposed at once: two cache lines of each column


class Block:
    """Some columns of A, as rows: an array or a sparse matrix."""

    def __init__(self, rows: Any) -> None:
        self.rows = rows

    def gram(self) -> Array:
        """A_T* A_T"""
        gram = self.rows.conj() @ self.rows.T
        return gram if isinstance(gram, np.ndarray) else gram.toarray()

    def image(self, x: Array) -> Array:
        """A_T x of each output."""
        return x @ self.rows

    def correlate(self, r: Array) -> Array:
        """A_T* r of each output."""
        return (self.rows.conj() @ r.T).T

    def dense(self) -> Array:
        return self.rows if isinstance(self.rows, np.ndarray) else self.rows.toarray()


class Products:
    """Products of columns with each other, as far as one signal's last fits needed them."""

    def __init__(self) -> None:
        self.columns, self.gram = np.empty(0, np.int64), np.empty((0, 0))

    def of(self, columns: Columns, block: Block) -> Array:
        """A_T* A_T; most columns of a fit were in the last one."""
        at, known = find(self.columns, columns)
        if known.all() and columns.size:
            return self.gram[np.ix_(at, at)]  # what there is of more columns is not given up
        if 2 * np.count_nonzero(known) < columns.size:
            gram = block.gram()
        else:
            gram = np.empty((columns.size, columns.size), block.rows.dtype)
            gram[np.ix_(known, known)] = self.gram[np.ix_(at[known], at[known])]
            new = block.rows[~known]
            across = new.conj() @ block.rows[known].T
            gram[np.ix_(~known, known)] = across
            gram[np.ix_(known, ~known)] = across.conj().T
            gram[np.ix_(~known, ~known)] = new.conj() @ new.T  # of an array with itself: half the work
        self.columns, self.gram = columns, gram
        return gram


class Kept:
    """Columns of an array that were asked for before, and their products with each other.

    To read a column of an array whose rows lie together costs a cache line a number, as much as eight columns side by
    side; and most columns of a fit were in the last one.
    """

    def __init__(self, A: Array) -> None:
        self.A = A
        self.slot: dict[int, int] = {}
        self.rows = np.empty((0, A.shape[0]), A.dtype)
        self.products = np.empty((0, 0), A.dtype)

    def block(self, columns: Columns) -> KeptBlock:
        wanted = columns.tolist()
        new = [j for j in wanted if j not in self.slot]
        if 4 * len(new) >= len(wanted) or len(self.slot) + len(new) > len(self.rows):
            self._forget_others(wanted)  # products with them would cost more than they may save
        if new:
            start, stop = len(self.slot), len(self.slot) + len(new)
            old, rows = self.rows[:start], self.rows[start:stop]
            for at in range(0, len(self.A), CHUNK):  # what is transposed is still in the cache
                rows[:, at : at + CHUNK] = self.A[at : at + CHUNK].take(new, axis=1).T
            self.slot |= dict(zip(new, range(start, stop), strict=True))
            self.products[start:stop, start:stop] = rows.conj() @ rows.T
            across = self.products[start:stop, :start]
            across[:] = rows.conj() @ old.T
            self.products[:start, start:stop] = across.conj().T
        return KeptBlock(self, np.array([self.slot[j] for j in wanted], dtype=np.int64))

    def _forget_others(self, wanted: list[int]) -> None:
        """Forget the columns that are not wanted now; room for as many again."""
        stay = [j for j in wanted if j in self.slot]
        old = [self.slot[j] for j in stay]
        size = max(2 * len(wanted), len(self.rows), 32)
        rows, products = self.rows[old], self.products[np.ix_(old, old)]
        if size > len(self.rows):
            self.rows = np.empty((size, self.rows.shape[1]), self.rows.dtype)
            self.products = np.empty((size, size), self.rows.dtype)
        self.rows[: len(old)] = rows
        self.products[: len(old), : len(old)] = products
        self.slot = dict(zip(stay, range(len(stay)), strict=True))


class KeptBlock(Block):
    """Columns among those that are kept; the others get coefficients of zero, which is faster than to copy these."""

    def __init__(self, kept: Kept, slots: NDArray[np.int64]) -> None:
        super().__init__(kept.rows[: len(kept.slot)])
        self.slots = slots
        self._products = kept.products

    def gram(self) -> Array:
        return self._products[np.ix_(self.slots, self.slots)]

    def image(self, x: Array) -> Array:
        full = np.zeros((len(x), len(self.rows)), x.dtype)
        full[:, self.slots] = x
        return full @ self.rows

    def correlate(self, r: Array) -> Array:
        return super().correlate(r)[:, self.slots]

    def dense(self) -> Array:
        return self.rows[self.slots]


def transposed(A: Array) -> Array:
    """A's columns as rows that lie together: a copy, some rows at a time, unless A has Fortran's order."""
    if A.flags.f_contiguous:
        return A.T
    out = np.empty(A.shape[::-1], A.dtype)
    for start in range(0, len(A), ROWS):
        out[:, start : start + ROWS] = A[start : start + ROWS].T
    return out


def least_squares_together(
    rows: Array, supports: NDArray[np.int64], y: Array, first: Array
) -> tuple[Array, Array, NDArray[np.bool_]]:
    """Small fits of several signals, on supports (signals, columns) of A's columns, given as rows.

    x, the residuals, and whether each fit is as good as can be; what is not is left to `least_squares`.
    """
    block = rows[supports]  # (signals, columns, n)
    conjugate, right = block.conj(), first.swapaxes(1, 2)
    try:
        x = np.linalg.solve(conjugate @ block.swapaxes(1, 2), right).swapaxes(1, 2)
    except np.linalg.LinAlgError:
        return first, y, np.zeros(len(y), dtype=bool)
    rest = y - x @ block
    left = np.abs(conjugate @ rest.swapaxes(1, 2)).max(axis=(1, 2))
    return x, rest, left <= CLEAN * np.abs(right).max(axis=(1, 2))


def least_squares(block: Block, gram: Array, y: Array, first: Array) -> tuple[Array, Array]:
    """x (outputs, columns) that minimises ‖y − A_T x‖, and the residual; `first` is A_T* y.

    By normal equations and a correction; where the columns are not independent, the solution of least norm.
    """
    if not first.size:
        return first, y
    gram = gram.astype(y.dtype, copy=False)
    potrf, potrs, pocon = get_lapack_funcs(("potrf", "potrs", "pocon"), (gram,))
    norm = float(np.abs(gram).sum(axis=0).max())
    factor, info = potrf(gram)
    condition = pocon(factor, norm)[0] if info == 0 and norm > 0.0 else 0.0
    if condition > SINGULAR:
        x = potrs(factor, first.T)[0].T
        if condition < DELICATE:
            x += potrs(factor, block.correlate(y - block.image(x)).T)[0].T  # what squaring the condition has cost
    else:
        x = np.linalg.lstsq(block.dense().T, y.T, rcond=None)[0].T
    x = np.ascontiguousarray(x)
    return x, y - block.image(x)
