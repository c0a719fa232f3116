"""An array or a sparse matrix as the system that a pursuit runs on: columns can be taken out, and fits are direct."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import get_lapack_funcs

from .._threads import more_blas_threads, ordered_map
from ..solvers.pursuit import Array, Columns, Iterate, top
from .linear import Linear, some_rows, squared_norm

LARGE = 1 << 22  # numbers in a product: more threads are faster
AHEAD = 24  # columns whose products with all others are computed at once, for pursuits that add them one by one
EXACT = 1e-6  # of ‖y‖: for a smaller residual, correlations are not computed as differences
DELICATE = 1e-3  # reciprocal condition of a Gram matrix below which normal equations want a correction
SINGULAR = 1e-10  # the same, below which they lose too much
CHUNK = 256  # rows from which columns are copied at once


class Matrix(Linear):
    """A as an array or a sparse matrix; fits by normal equations."""

    def __init__(self, A: Any, y: Array, check: Callable[[], None]) -> None:
        super().__init__(A, y, check)
        self.dense = isinstance(A, np.ndarray)
        self.first = np.empty((0, 0, 0))  # A*y of every signal, once a run has started
        self._caches = [ColumnCache(A) for _ in y] if self.dense else []
        self._columns: Any = None if self.dense else A.T.tocsr()
        self._ahead = Lookahead(self)

    def start(self) -> list[Iterate]:
        points = super().start()
        self.first = np.stack([point.negative_gradient for point in points]) * self.n
        return points

    def block(self, signal: int, columns: Columns) -> Block:
        return self._caches[signal].block(columns) if self._caches else Block(self._columns[columns])

    def gram(self, signal: int, columns: Columns) -> Array:
        """A_T* A_T"""
        return self.block(signal, columns).gram()

    def forward(self, points: Sequence[Iterate], supports: Sequence[Columns], xs: Sequence[Array]) -> Array:
        images = np.empty((len(xs), self.y.shape[1], self.n), self.dtype)
        for image, point, columns, x in zip(images, points, supports, xs, strict=True):
            if 4 * columns.size > self.d:  # most of A: not worth a copy of it
                full = np.zeros((len(x), self.d), self.dtype)
                full[:, columns] = x
                image[:] = (self.A @ full.T).T
            else:
                image[:] = self.block(point.signal, columns).image(x)
        return images

    def adjoint(self, r: Array) -> Array:
        flat = r.reshape(-1, self.n)
        image = self.correlations(flat, self.A) if self.dense else (self.A.conj().T @ flat.T).T
        return np.ascontiguousarray(image).reshape(*r.shape[:-1], self.d)

    def correlations(self, r: Array, A: Array) -> Array:
        """A* r of every row of r, for an array as large as A."""
        with more_blas_threads(self.threads if len(r) * A.size >= LARGE else 1):
            return (r.conj() @ A).conj()

    @cached_property
    def mean_square(self) -> float:
        if not self.dense:
            return squared_norm(self.A.data) / self.d
        some = some_rows(self.A)  # all would cost a pass
        return sum(map(squared_norm, some)) / self.d * (self.n / len(some))

    def gram_times(self, v: Array) -> Array:
        return self.adjoint((self.A @ v)[np.newaxis, np.newaxis])[0, 0]

    def negative_gradients(self, points: Sequence[Iterate], one_by_one: bool = False) -> Array:
        if one_by_one and len(self.y) == self.y.shape[1] == 1 and self._caches:
            gradient = self._ahead.negative_gradient(points[0])
            if gradient is not None:
                return gradient
        return super().negative_gradients(points)

    def fit(self, points: Sequence[Iterate], supports: Sequence[Columns], share: float = 0.0) -> list[Iterate]:
        self.check()
        return list(
            ordered_map(lambda task: self._fit(task[0].signal, task[1]), list(zip(points, supports, strict=True)))
        )

    def _fit(self, signal: int, columns: Columns) -> Iterate:
        block = self.block(signal, columns)
        x, rest = least_squares(block, block.gram(), self.y[signal], self.first[signal][:, columns])
        return self.point(signal, columns, x, rest)


class Lookahead:
    """Correlations without a pass over A, for one signal whose support grows column by column.

    A*r = A*y − (A*A_T)x.  The products of a new column with all others cost a pass over A; those of `AHEAD` columns at
    once cost hardly more.  So when a new column is needed, those of the others with the largest correlations are
    computed along with it.
    """

    def __init__(self, system: Matrix) -> None:
        self.system = system
        self.slot: dict[int, int] = {}
        self.rows = np.empty((0, system.d), system.dtype)  # A*a/n for the columns a in the slots
        self.score = np.empty(0)

    def negative_gradient(self, point: Iterate) -> Array | None:
        """−∇F at a point; None if a pass over A is cheaper."""
        system = self.system
        new = [j for j in point.columns.tolist() if j not in self.slot]
        small = squared_norm(point.rest) < EXACT**2 * squared_norm(system.y)
        if not point.columns.size or len(new) > 1 or small or point.columns.size > system.n // 4:
            return None
        if new:
            self._compute(new)
        x = np.zeros(len(self.rows), system.dtype)
        x[[self.slot[j] for j in point.columns.tolist()]] = point.x[0]
        gradient = system.first[0, 0] / system.n - x @ self.rows
        self.score = np.abs(gradient)
        return gradient[np.newaxis, np.newaxis]

    def _compute(self, new: list[int]) -> None:
        system = self.system
        score = self.score.copy() if self.score.size else np.abs(system.first[0, 0])
        score[[*self.slot, *new]] = 0.0
        [others] = top(score[np.newaxis], AHEAD - len(new))
        wanted = np.concatenate([new, others[score[others] > 0.0]]).astype(np.int64)
        system.check()
        system.products += wanted.size
        with more_blas_threads(system.threads):
            more = (np.take(system.A, wanted, axis=1).T.conj() @ system.A).conj() / system.n
        self.slot |= dict(zip(wanted.tolist(), range(len(self.rows), len(self.rows) + wanted.size), strict=True))
        self.rows = np.concatenate([self.rows, more])


# --- fits on columns -------------------------------------------------------------------------------------------------
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


class ColumnCache:
    """Columns of an array that were used before, and their products with each other.

    Reading one column of a C-ordered array costs a cache line per number, as much as eight adjacent columns; and most
    columns of a fit were in the last one.
    """

    def __init__(self, A: Array) -> None:
        self.A = A
        self.slot: dict[int, int] = {}
        self.rows = np.empty((0, A.shape[0]), A.dtype)
        self.products = np.empty((0, 0), A.dtype)

    def block(self, columns: Columns) -> CachedBlock:
        wanted = columns.tolist()
        new = [j for j in wanted if j not in self.slot]
        if 4 * len(new) >= len(wanted) or len(self.slot) + len(new) > len(self.rows):
            self._forget_others(wanted)  # products with old columns would cost more than they may save
        if new:
            start, stop = len(self.slot), len(self.slot) + len(new)
            old, rows = self.rows[:start], self.rows[start:stop]
            for at in range(0, len(self.A), CHUNK):  # small enough to stay in the processor's cache
                rows[:, at : at + CHUNK] = self.A[at : at + CHUNK].take(new, axis=1).T
            self.slot |= dict(zip(new, range(start, stop), strict=True))
            self.products[start:stop, start:stop] = rows.conj() @ rows.T
            across = self.products[start:stop, :start]
            across[:] = rows.conj() @ old.T
            self.products[:start, start:stop] = across.conj().T
        return CachedBlock(self, np.array([self.slot[j] for j in wanted], dtype=np.int64))

    def _forget_others(self, wanted: list[int]) -> None:
        """Drop the columns that are not needed now; leave room for as many again."""
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


class CachedBlock(Block):
    """Some of the cached columns; the others get coefficients of zero, which is faster than copying these."""

    def __init__(self, cache: ColumnCache, slots: NDArray[np.int64]) -> None:
        super().__init__(cache.rows[: len(cache.slot)])
        self.slots = slots
        self._products = cache.products

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
