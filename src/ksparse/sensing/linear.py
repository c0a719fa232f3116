"""Linear measurements as the system that a pursuit runs on: y = Ax + noise, for one or many right-hand sides.

An array or a sparse matrix fits by normal equations on the chosen columns; an operator has no columns, and fits by
conjugate gradients (`operator_system.py`).  All right-hand sides go through A together, as one matrix product.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import get_lapack_funcs

from ..solvers._pursuit import Columns, Point, System, magnitudes, top

Array = NDArray[Any]
SINGULAR = 1e-13  # reciprocal condition of a Gram matrix below which its columns are not independent
TRANSPOSE = 8  # right-hand sides for which a transposed copy of an array pays: their columns are read again and again
AHEAD = 32  # columns whose products with all others are computed at once, for pursuits that add them one by one
EXACT = 1e-6  # of ‖y‖: below it a residual's correlations are not taken from differences


class Linear(System):
    """F(x) = ‖y − Ax‖²/(2n).  ``point.rest`` is the residual, (outputs, n)."""

    def __init__(self, y: Array, shape: tuple[int, int], check: Callable[[], None]) -> None:
        self.y = y  # (signals, outputs, n)
        self.n, self.d = shape
        self.room = self.n
        self.check = check
        self.products = 0  # with all of A or its adjoint, of one vector each

    # --- what an A must be able to do ----------------------------------------------------------------------------
    @abstractmethod
    def forward(self, supports: Sequence[Columns], xs: Sequence[Array]) -> Array:
        """A x for coefficients (outputs, columns) on supports: (signals, outputs, n)."""

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
        slopes = self.slopes(points)
        if not np.isfinite(slopes).all():
            raise ValueError(self.explain_infinite())
        return [replace(point, slope=slope) for point, slope in zip(points, slopes, strict=True)]

    def explain_infinite(self) -> str:
        """Why A*y is not finite."""
        return "A*y is not finite: A holds or gives NaN or infinity, or y is too large; mend A, or rescale both"

    def point(self, signal: int, columns: Columns, x: Array, rest: Array) -> Point:
        return Point(signal, columns, x, 0.5 * squared_norm(rest) / self.n, rest)

    def slopes(self, points: Sequence[Point]) -> Array:
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
        images = self.forward(supports, xs)
        return [
            self.point(point.signal, columns, x, self.y[point.signal] - image)
            for point, columns, x, image in zip(points, supports, xs, images, strict=True)
        ]

    def bends(
        self, points: Sequence[Point], slopes: Array, supports: Sequence[Columns]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        parts = [slope[:, columns] for slope, columns in zip(slopes, supports, strict=True)]
        images = self.forward(supports, parts)
        squares = np.array([squared_norm(part) for part in parts])
        return squares, np.array([squared_norm(image) for image in images]) / self.n

    def apart(self, before: Sequence[Point], after: Sequence[Point]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        squares, bends = np.empty(len(before)), np.empty(len(before))
        for i, (old, new) in enumerate(zip(before, after, strict=True)):
            columns = np.union1d(old.columns, new.columns)
            squares[i] = squared_norm(new.on(columns) - old.on(columns))
            bends[i] = squared_norm(new.rest - old.rest) / self.n
        return squares, bends

    @property
    def steepest(self) -> float:
        """σ₁(A*A)/n, by Lanczos' method."""
        if not hasattr(self, "_steepest"):
            self._steepest = self._top_eigenvalue() / self.n
        return self._steepest

    def _top_eigenvalue(self) -> float:
        from scipy.sparse.linalg import LinearOperator, eigsh

        every = np.arange(self.d)

        def gram(v: Array) -> Array:
            self.check()
            self.products += 1
            image = self.forward([every], [v.reshape(1, -1)])
            return self.adjoint(image)[0, 0]

        if self.d <= 16:  # Lanczos wants more than a few columns
            return float(np.linalg.eigvalsh(np.array([gram(e) for e in np.eye(self.d, dtype=self.dtype)]))[-1])
        start = np.random.default_rng(0).standard_normal(self.d).astype(self.dtype)
        operator = LinearOperator((self.d, self.d), matvec=gram, dtype=self.dtype)
        return float(eigsh(operator, k=1, v0=start, tol=1e-10, return_eigenvectors=False)[0].real)


class Matrix(Linear):
    """An array or a sparse matrix: columns can be taken out, and fits are direct."""

    def __init__(self, A: Any, y: Array, check: Callable[[], None]) -> None:
        super().__init__(y, A.shape, check)
        self.A = A
        self.sparse = not isinstance(A, np.ndarray)
        if self.sparse:
            self._columns = A.T.tocsr()
        else:
            rows = A.T
            copied = len(y) >= TRANSPOSE and not rows.flags.c_contiguous
            self._columns = np.ascontiguousarray(rows) if copied else rows
        self._store: tuple[Columns, Array] = (np.empty(0, np.int64), np.empty((0, self.n), A.dtype))
        self._ahead = Lookahead(self) if len(y) == 1 and y.shape[1] == 1 and not self.sparse else None

    def explain_infinite(self) -> str:
        bad = np.argwhere(~np.isfinite(self.A.toarray() if self.sparse else self.A))
        if not len(bad):
            return "A*y is not finite: the numbers are too large; rescale A or y"
        i, j = bad[0]
        return f"A must be finite, got {self.A[i, j]} at row {i}, column {j}; remove or impute it first"

    def columns(self, columns: Columns) -> Any:
        """Columns of A as rows."""
        if self.sparse or len(self.y) > 1 or self._columns.flags.c_contiguous:
            return self._columns[columns]
        # a strided read costs as much as a pass over A: those of the last fit are kept
        old, block = self._store
        at = np.minimum(np.searchsorted(old, columns), max(0, old.size - 1))
        known = old[at] == columns if old.size else np.zeros(columns.size, bool)
        taken = np.empty((columns.size, self.n), block.dtype)
        taken[known] = block[at[known]]
        taken[~known] = np.take(self.A, columns[~known], axis=1).T
        if columns.size >= old.size // 2:  # a few columns do not push out many
            self._store = columns, taken
        return taken

    def forward(self, supports: Sequence[Columns], xs: Sequence[Array]) -> Array:
        images = np.empty((len(xs), self.y.shape[1], self.n), self.dtype)
        for image, columns, x in zip(images, supports, xs, strict=True):
            if 4 * columns.size > self.d:  # most of A: not worth a copy of it
                full = np.zeros((len(x), self.d), self.dtype)
                full[:, columns] = x
                image[:] = (self.A @ full.T).T
            else:
                image[:] = x @ self.columns(columns)
        return images

    def adjoint(self, r: Array) -> Array:
        flat = r.reshape(-1, self.n)
        if self.sparse:
            return np.ascontiguousarray((self.A.conj().T @ flat.T).T).reshape(*r.shape[:-1], self.d)
        return (flat.conj() @ self.A).conj().reshape(*r.shape[:-1], self.d)

    def slopes(self, points: Sequence[Point]) -> Array:
        if self._ahead is not None and (slope := self._ahead.slope(points[0])) is not None:
            return slope
        slopes = super().slopes(points)
        if self._ahead is not None:
            self._ahead.learn(points[0], slopes)
        return slopes

    def fit(self, points: Sequence[Point], supports: Sequence[Columns], share: float = 0.0) -> list[Point]:
        self.check()
        return [self._fit(point.signal, columns) for point, columns in zip(points, supports, strict=True)]

    def _fit(self, signal: int, columns: Columns) -> Point:
        y = self.y[signal]
        block = self.columns(columns)
        gram = block.conj() @ block.T
        x = least_squares(gram.toarray() if self.sparse else gram, block, y)
        return self.point(signal, columns, x, y - x @ block)


class Lookahead:
    """Correlations without a pass over A, for one signal whose support grows column by column.

    A*r = A*y − (A*A_T)x.  The products of a new column with all others cost a pass over A; those of `AHEAD` columns at
    once hardly more.  So when a new one is wanted, those of the most promising others are computed along with it.
    """

    def __init__(self, system: Matrix) -> None:
        self.system = system
        self.first: Array | None = None  # A*y
        self.score = np.empty(0)
        self.known: dict[int, int] = {}
        self.rows = np.empty((0, system.d), system.dtype)

    def learn(self, point: Point, slopes: Array) -> None:
        """What a pass over A gave."""
        self.score = magnitudes(slopes)[0]
        if point.columns.size == 0:
            self.first = slopes[0, 0].copy()

    def slope(self, point: Point) -> Array | None:
        """The slopes at a point; None if a pass is better."""
        if self.first is None or not point.columns.size:
            return None
        new = [j for j in point.columns.tolist() if j not in self.known]
        small = squared_norm(point.rest) < EXACT**2 * squared_norm(self.system.y)
        if len(new) > 1 or small or point.columns.size > self.system.n // 4:
            return None
        self.system.check()
        if new:
            self._compute(new)
        at = [self.known[j] for j in point.columns.tolist()]
        slope = self.first - point.x[0] @ self.rows[at]
        self.score = np.abs(slope)
        return slope[np.newaxis, np.newaxis]

    def _compute(self, new: list[int]) -> None:
        score = self.score.copy()
        score[[*self.known, *new]] = 0.0
        [others] = top(score[np.newaxis], AHEAD - len(new))
        wanted = np.concatenate([new, others[score[others] > 0.0]]).astype(np.int64)
        self.system.products += wanted.size
        block = self.system.columns(np.sort(wanted))
        self.known |= {int(j): len(self.known) + i for i, j in enumerate(np.sort(wanted))}
        more = (block.conj() @ self.system.A).conj() / self.system.n
        self.rows = np.concatenate([self.rows, more])


def least_squares(gram: Array, block: Any, y: Array) -> Array:
    """x (outputs, columns) that minimises ‖y − x·block‖: by normal equations and a correction; where the columns are
    not independent, the solution of least norm."""
    if not len(gram):
        return np.empty((len(y), 0), y.dtype)
    gram = gram.astype(y.dtype, copy=False)
    potrf, potrs, pocon = get_lapack_funcs(("potrf", "potrs", "pocon"), (gram,))
    norm = float(np.max(np.sum(np.abs(gram), axis=0)))
    factor, info = potrf(gram, lower=False, clean=False)
    if info == 0 and norm > 0.0 and pocon(factor, norm)[0] > SINGULAR:
        conjugate = block.conj()
        # x·block = y read as columns: conj(B)Bᵀ xᵀ = conj(B) yᵀ
        x = potrs(factor, conjugate @ y.T)[0]
        x += potrs(factor, conjugate @ (y.T - block.T @ x))[0]  # as precise as if there had been no squaring
        return np.ascontiguousarray(x.T)
    dense = block.toarray() if hasattr(block, "toarray") else block
    return np.ascontiguousarray(np.linalg.lstsq(dense.T, y.T, rcond=None)[0].T)


def squared_norm(x: Array) -> float:
    flat = x.reshape(-1)
    return float(np.vdot(flat, flat).real)
