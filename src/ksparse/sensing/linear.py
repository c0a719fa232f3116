"""Linear measurements as the system that a pursuit runs on: y = Ax + noise, for one or many right-hand sides.

An array or a sparse matrix fits by normal equations on the chosen columns; an operator has no columns, and fits by
conjugate gradients (`operator_system.py`).  All right-hand sides go through A together, as one matrix product.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._threads import blas_threads, more_blas_threads, ordered_map
from ..solvers._pursuit import Point, System, merged, top
from .columns import Block, Columns, Kept, Products, least_squares, least_squares_together, transposed

Array = NDArray[Any]
TRANSPOSE = 8  # right-hand sides for which a transposed copy of an array pays: their columns are read again and again
SMALL = 1 << 23  # products in a Gram matrix: fits of fewer are done together, for it is Python that they wait for
TOGETHER = 1 << 19  # numbers in the columns of so many fits: they stay in the cache
LARGE = 1 << 22  # numbers in a product: more threads are faster
SAMPLE = 256  # rows are enough to know about how long columns are
AHEAD = 24  # columns whose products with all others are computed at once, for pursuits that add them one by one
SMALLEST = 1e-120  # a number whose square is no longer safe
EXACT = 1e-6  # of ‖y‖: below it a residual's correlations are not taken from differences


class Linear(System):
    """F(x) = ‖y − Ax‖²/(2n).  ``point.rest`` is the residual, (outputs, n)."""

    def __init__(self, A: Any, y: Array, check: Callable[[], None]) -> None:
        self.A = A
        self.y = y  # (signals, outputs, n)
        self.n, self.d = A.shape
        self.room = self.n
        self.check = check
        self.threads = blas_threads()  # for products with all of A; small ones get one
        self.unfinished: set[int] = set()  # signals whose last fit, step by step, was given up
        self.products = 0  # with all of A or its adjoint, of one vector each

    # --- what an A must be able to do ----------------------------------------------------------------------------
    @abstractmethod
    def forward(self, points: Sequence[Point], supports: Sequence[Columns], xs: Sequence[Array]) -> Array:
        """A x for coefficients (outputs, columns) on supports, of the signals of some points: (points, outputs, n)."""

    @abstractmethod
    def adjoint(self, r: Array) -> Array:
        """A* r: (signals, outputs, n) to (signals, outputs, d)."""

    @abstractmethod
    def fit(self, points: Sequence[Point], supports: Sequence[Columns], share: float = 0.0) -> list[Point]: ...

    @property
    def dtype(self) -> Any:
        return self.y.dtype

    def start(self) -> list[Point]:
        """Nothing chosen; the slopes there, A*y/n, show whether all is finite."""
        none = np.empty(0, np.int64)
        points = [self.point(i, none, np.empty((y.shape[0], 0), self.dtype), y) for i, y in enumerate(self.y)]
        with np.errstate(over="ignore", invalid="ignore"):
            slopes = self._seen(np.stack([point.rest for point in points]))
        if not np.isfinite(slopes).all():
            raise ValueError(explain_infinite(self.A))
        size = float(np.abs(slopes).max()) * self.n
        if size and not SMALLEST < size < 1.0 / SMALLEST:
            what = f"the largest entry of A*y is {size:.1g} for y of size 1, and squares leave the range of floats"
            raise ValueError(f"A has the wrong scale: {what}; divide A by {size:.0e}")
        return [replace(point, slope=slope) for point, slope in zip(points, slopes, strict=True)]

    def point(self, signal: int, columns: Columns, x: Array, rest: Array) -> Point:
        return Point(signal, columns, x, 0.5 * squared_norm(rest) / self.n, rest)

    def slopes(self, points: Sequence[Point], one_by_one: bool = False) -> Array:
        self.check()
        if all(point.slope is not None for point in points):
            return np.stack([point.slope for point in points])
        return self._seen(np.stack([point.rest for point in points]))

    def _seen(self, rests: Array) -> Array:
        """A*r/n, counted."""
        self.products += rests.shape[0] * rests.shape[1]
        slopes = self.adjoint(rests)
        slopes /= self.n
        return slopes

    def keep(self, points: Sequence[Point], supports: Sequence[Columns]) -> list[Point]:
        return self.at(points, supports, [point.on(columns) for point, columns in zip(points, supports, strict=True)])

    def move(
        self, points: Sequence[Point], slopes: Array, steps: NDArray[np.float64], supports: Sequence[Columns]
    ) -> list[Point]:
        moved = [
            point.on(columns) + step * slope[:, columns]
            for point, slope, step, columns in zip(points, slopes, steps, supports, strict=True)
        ]
        return self.at(points, supports, moved)

    def at(self, points: Sequence[Point], supports: Sequence[Columns], xs: Sequence[Array]) -> list[Point]:
        """The signals of some points, with these coefficients."""
        images = self.forward(points, supports, xs)
        return [
            self.point(point.signal, columns, x, self.y[point.signal] - image)
            for point, columns, x, image in zip(points, supports, xs, images, strict=True)
        ]

    def bends(
        self, points: Sequence[Point], slopes: Array, supports: Sequence[Columns]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        parts = [slope[:, columns] for slope, columns in zip(slopes, supports, strict=True)]
        images = self.forward(points, supports, parts)
        squares = np.array([squared_norm(part) for part in parts])
        return squares, np.array([squared_norm(image) for image in images]) / self.n

    def apart(self, before: Sequence[Point], after: Sequence[Point]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        squares, bends = np.empty(len(before)), np.empty(len(before))
        for i, (old, new) in enumerate(zip(before, after, strict=True)):
            columns = merged(old.columns, new.columns)
            squares[i] = squared_norm(new.on(columns) - old.on(columns))
            bends[i] = squared_norm(new.rest - old.rest) / self.n
        return squares, bends

    def curvatures(self, points: Sequence[Point]) -> NDArray[np.float64]:
        return np.full(len(points), self._curvature)

    @cached_property
    def _curvature(self) -> float:
        return self.mean_square() / self.n

    @abstractmethod
    def mean_square(self) -> float:
        """The mean squared norm of a column."""

    @cached_property
    def steepest(self) -> float:
        """σ₁(A*A)/n, by Lanczos' method."""
        return self._top_eigenvalue() / self.n

    @abstractmethod
    def gram_times(self, v: Array) -> Array:
        """A*Av"""

    def _top_eigenvalue(self) -> float:
        from scipy.sparse.linalg import LinearOperator, eigsh

        def times(v: Array) -> Array:
            self.check()
            self.products += 2
            return self.gram_times(v.ravel())

        if self.d <= 16:  # Lanczos wants more than a few columns
            return float(np.linalg.eigvalsh(np.array([times(e) for e in np.eye(self.d, dtype=self.dtype)]))[-1])
        start = np.random.default_rng(0).standard_normal(self.d).astype(self.dtype)
        if not times(start).any():
            return 0.0
        operator = LinearOperator((self.d, self.d), matvec=times, dtype=self.dtype)
        return float(eigsh(operator, k=1, v0=start, tol=1e-10, return_eigenvectors=False)[0].real)


class Matrix(Linear):
    """An array or a sparse matrix: columns can be taken out, and fits are direct."""

    def __init__(self, A: Any, y: Array, check: Callable[[], None]) -> None:
        super().__init__(A, y, check)
        self.dense = isinstance(A, np.ndarray)
        self.first = np.empty((0, 0, 0))  # A*y of every signal, once a run has started
        self._kept: list[Kept] = []
        if not self.dense:
            self._columns = A.T.tocsr()
        elif len(y) < TRANSPOSE:
            self._kept = [Kept(A) for _ in y]
        else:
            self._columns = transposed(A)
            self._products = [Products() for _ in y]
        self._ahead = Lookahead(self)

    def start(self) -> list[Point]:
        points = super().start()
        self.first = np.stack([point.slope for point in points]) * self.n
        return points

    def block(self, signal: int, columns: Columns) -> Block:
        return self._kept[signal].block(columns) if self._kept else Block(self._columns[columns])

    def forward(self, points: Sequence[Point], supports: Sequence[Columns], xs: Sequence[Array]) -> Array:
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
        if self.dense:
            with more_blas_threads(self.threads if len(flat) * self.A.size >= LARGE else 1):
                image = (flat.conj() @ self.A).conj()
        else:
            image = np.ascontiguousarray((self.A.conj().T @ flat.T).T)
        return image.reshape(*r.shape[:-1], self.d)

    def mean_square(self) -> float:
        if not self.dense:
            return squared_norm(self.A.data) / self.d
        some = some_rows(self.A)  # all would cost a pass
        return sum(map(squared_norm, some)) / self.d * (self.n / len(some))

    def gram_times(self, v: Array) -> Array:
        return self.adjoint((self.A @ v)[np.newaxis, np.newaxis])[0, 0]

    def slopes(self, points: Sequence[Point], one_by_one: bool = False) -> Array:
        if one_by_one and len(self.y) == self.y.shape[1] == 1 and self._kept:
            slope = self._ahead.slope(points[0])
            if slope is not None:
                return slope
        return super().slopes(points)

    def fit(self, points: Sequence[Point], supports: Sequence[Columns], share: float = 0.0) -> list[Point]:
        self.check()
        pairs = [(point.signal, columns) for point, columns in zip(points, supports, strict=True)]
        groups = self._groups(pairs)
        fitted: dict[int, Point] = {}
        runs = ordered_map(lambda group: self._fit_group([pairs[i] for i in group]), groups)
        for group, found in zip(groups, runs, strict=True):
            fitted |= dict(zip(group, found, strict=True))
        return [fitted[i] for i in range(len(pairs))]

    def _groups(self, pairs: list[tuple[int, Columns]]) -> list[list[int]]:
        """Which fits are done together: small ones on as many columns, some at a time."""
        sizes: dict[int, list[int]] = {}
        for i, (_, columns) in enumerate(pairs):
            small = self.dense and not self._kept and 0 < columns.size**2 * self.n <= SMALL
            sizes.setdefault(columns.size if small else -1 - i, []).append(i)
        groups = []
        for size, members in sizes.items():
            step = max(1, TOGETHER // max(1, size * self.n))
            groups += [members[start : start + step] for start in range(0, len(members), step)]
        return groups

    def _fit_group(self, pairs: list[tuple[int, Columns]]) -> list[Point]:
        if len(pairs) == 1:
            return [self._fit(*pairs[0])]
        signals = np.array([signal for signal, _ in pairs])
        supports = np.stack([columns for _, columns in pairs])
        first = np.take_along_axis(self.first[signals], supports[:, np.newaxis], axis=2)
        xs, rests, good = least_squares_together(self._columns, supports, self.y[signals], first)
        return [
            self.point(signal, columns, x, rest) if fine else self._fit(signal, columns)
            for (signal, columns), x, rest, fine in zip(pairs, xs, rests, good, strict=True)
        ]

    def _fit(self, signal: int, columns: Columns) -> Point:
        block = self.block(signal, columns)
        known = self.dense and not self._kept
        gram = self._products[signal].of(columns, block) if known else block.gram()
        x, rest = least_squares(block, gram, self.y[signal], self.first[signal][:, columns])
        return self.point(signal, columns, x, rest)


class Lookahead:
    """Correlations without a pass over A, for one signal whose support grows column by column.

    A*r = A*y − (A*A_T)x.  The products of a new column with all others cost a pass over A; those of `AHEAD` columns at
    once hardly more.  So when a new one is wanted, those of the most promising others are computed along with it.
    """

    def __init__(self, system: Matrix) -> None:
        self.system = system
        self.slot: dict[int, int] = {}
        self.rows = np.empty((0, system.d), system.dtype)  # A*a/n for the columns a in the slots
        self.score = np.empty(0)

    def slope(self, point: Point) -> Array | None:
        """The slopes at a point; None if a pass is better."""
        system = self.system
        new = [j for j in point.columns.tolist() if j not in self.slot]
        small = squared_norm(point.rest) < EXACT**2 * squared_norm(system.y)
        if not point.columns.size or len(new) > 1 or small or point.columns.size > system.n // 4:
            return None
        if new:
            self._compute(new)
        x = np.zeros(len(self.rows), system.dtype)
        x[[self.slot[j] for j in point.columns.tolist()]] = point.x[0]
        slope = system.first[0, 0] / system.n - x @ self.rows
        self.score = np.abs(slope)
        return slope[np.newaxis, np.newaxis]

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


def some_rows(A: Any) -> Any:
    """Rows all over a matrix, a few hundred."""
    return A[:: max(1, A.shape[0] // SAMPLE)]


def explain_infinite(A: Any) -> str:
    """Why A*y is not finite; an operator has said so by itself."""
    if isinstance(A, np.ndarray):
        bad = np.argwhere(~np.isfinite(A))
    else:
        bad = np.stack([part[~np.isfinite(A.data)] for part in A.tocoo().coords], axis=1)
    if not len(bad):
        return "A*y is not finite: the numbers are too large; rescale A or y"
    i, j = bad[0]
    return f"A must be finite, got {A[i, j]} at row {i}, column {j}; remove or impute it first"


def column_norms(A: Any) -> NDArray[np.float64]:
    """Of an array or a sparse matrix."""
    if isinstance(A, np.ndarray):
        return np.sqrt(np.einsum("ij,ij->j", A, A.conj()).real)
    with np.errstate(over="ignore"):
        return np.sqrt(np.asarray(abs(A).power(2).sum(axis=0)).ravel())


def squared_norm(x: Array) -> float:
    flat = x.ravel(order="K")
    return float(np.vdot(flat, flat).real)
