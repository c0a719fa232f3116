"""Linear measurements as the system that a pursuit runs on: y = Ax + noise, for one or many right-hand sides.

All right-hand sides go through A together, as one matrix product.  A matrix fits by normal equations on the chosen
columns (`matrix_system.py`); an operator has no columns, only products, and fits by conjugate gradients (`Operator`).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from .._threads import blas_threads
from ..solvers.pursuit import Array, Columns, Iterate, Numbers, System, find, merged

SAMPLE = 256  # rows are enough to estimate the norms of columns
SMALLEST = 1e-120  # a number whose square is no longer safe
RESOLUTION = 1e-14  # of ‖A*y‖: derivatives below it are rounding
FINISHED = 1e-6  # of the derivatives at the start of a fit (or a hundredth of that of ‖A*y‖): above it, it failed
MOST_ROUNDS = 500  # of conjugate gradients
MOST_IDLE = 60  # rounds that do not halve the derivatives, after which a fit is given up
PRECISE = 0.05  # the error of an estimated norm
ADJOINT = 1e-4  # of ‖r‖‖Av‖: a difference of ⟨r, Av⟩ and ⟨A*r, v⟩ that is not rounding, in single precision either


class Linear(System):
    """F(x) = ‖y − Ax‖²/(2n).  ``point.rest`` is the residual, (outputs, n)."""

    def __init__(self, A: Any, y: Array, check: Callable[[], None]) -> None:
        self.A = A
        self.y = y  # (signals, outputs, n)
        self.n, self.d = A.shape
        self.room = self.n
        self.check = check
        self.threads = blas_threads()  # for products with all of A; small products get one thread
        self.unfinished: set[int] = set()  # signals whose last iterative fit was given up
        self.products = 0  # of all of A or its adjoint with one vector

    # --- what an A must be able to do ----------------------------------------------------------------------------
    @abstractmethod
    def forward(self, points: Sequence[Iterate], supports: Sequence[Columns], xs: Sequence[Array]) -> Array:
        """A x for coefficients (outputs, columns) on supports, of the signals of some points: (points, outputs, n)."""

    @abstractmethod
    def adjoint(self, r: Array) -> Array:
        """A* r: (signals, outputs, n) to (signals, outputs, d)."""

    @abstractmethod
    def gram_times(self, v: Array) -> Array:
        """A*Av"""

    @property
    @abstractmethod
    def mean_square(self) -> float:
        """The mean squared norm of a column."""

    @property
    def dtype(self) -> Any:
        return self.y.dtype

    def start(self) -> list[Iterate]:
        """The empty supports; the gradients there, −A*y/n, show whether all numbers are finite."""
        none = np.empty(0, np.int64)
        points = [self.point(i, none, np.empty((y.shape[0], 0), self.dtype), y) for i, y in enumerate(self.y)]
        with np.errstate(over="ignore", invalid="ignore"):
            gradients = self._seen(np.stack([point.rest for point in points]))
        if not np.isfinite(gradients).all():
            raise ValueError(explain_infinite(self.A))
        size = float(np.abs(gradients).max()) * self.n
        if size and not SMALLEST < size < 1.0 / SMALLEST:
            what = f"the largest entry of A*y is {size:.1g} for y of size 1, and squares leave the range of floats"
            raise ValueError(f"A has the wrong scale: {what}; divide A by {size:.0e}")
        return [replace(point, negative_gradient=gradient) for point, gradient in zip(points, gradients, strict=True)]

    def point(self, signal: int, columns: Columns, x: Array, rest: Array) -> Iterate:
        return Iterate(signal, columns, x, 0.5 * squared_norm(rest) / self.n, rest)

    def negative_gradients(self, points: Sequence[Iterate], one_by_one: bool = False) -> Array:
        self.check()
        if all(point.negative_gradient is not None for point in points):
            return np.stack([point.negative_gradient for point in points])
        return self._seen(np.stack([point.rest for point in points]))

    def _seen(self, rests: Array) -> Array:
        """A*r/n, that is −∇F; its products are counted."""
        self.products += rests.shape[0] * rests.shape[1]
        gradients = self.adjoint(rests)
        gradients /= self.n
        return gradients

    def keep(self, points: Sequence[Iterate], supports: Sequence[Columns]) -> list[Iterate]:
        return self.at(points, supports, [point.on(columns) for point, columns in zip(points, supports, strict=True)])

    def move(
        self, points: Sequence[Iterate], directions: Array, steps: Numbers, supports: Sequence[Columns]
    ) -> list[Iterate]:
        moved = [
            point.on(columns) + step * direction[:, columns]
            for point, direction, step, columns in zip(points, directions, steps, supports, strict=True)
        ]
        return self.at(points, supports, moved)

    def at(self, points: Sequence[Iterate], supports: Sequence[Columns], xs: Sequence[Array]) -> list[Iterate]:
        """The points of the same signals with these coefficients."""
        images = self.forward(points, supports, xs)
        return [
            self.point(point.signal, columns, x, self.y[point.signal] - image)
            for point, columns, x, image in zip(points, supports, xs, images, strict=True)
        ]

    def curvature_along(
        self, points: Sequence[Iterate], directions: Array, supports: Sequence[Columns]
    ) -> tuple[Numbers, Numbers]:
        parts = [direction[:, columns] for direction, columns in zip(directions, supports, strict=True)]
        images = self.forward(points, supports, parts)
        squares = np.array([squared_norm(part) for part in parts])
        return squares, np.array([squared_norm(image) for image in images]) / self.n

    def differences(self, before: Sequence[Iterate], after: Sequence[Iterate]) -> tuple[list[float], list[float]]:
        squares, curvatures = list[float](), list[float]()
        for old, new in zip(before, after, strict=True):
            columns = merged(old.columns, new.columns)
            squares.append(squared_norm(new.on(columns) - old.on(columns)))
            curvatures.append(squared_norm(new.rest - old.rest) / self.n)
        return squares, curvatures

    def curvatures(self, points: Sequence[Iterate]) -> Numbers:
        return np.full(len(points), self.mean_square / self.n)

    @cached_property
    def top_curvature(self) -> float:
        """σ₁(A*A)/n, by Lanczos' method."""
        from scipy.sparse.linalg import LinearOperator, eigsh

        def times(v: Array) -> Array:
            self.check()
            self.products += 2
            return self.gram_times(v.ravel())

        if self.d <= 16:  # Lanczos wants more than a few columns
            gram = np.array([times(e) for e in np.eye(self.d, dtype=self.dtype)])
            return float(np.linalg.eigvalsh(gram)[-1]) / self.n
        start = np.random.default_rng(0).standard_normal(self.d).astype(self.dtype)
        if not times(start).any():
            return 0.0
        operator = LinearOperator((self.d, self.d), matvec=times, dtype=self.dtype)
        return float(eigsh(operator, k=1, v0=start, tol=1e-10, return_eigenvectors=False)[0].real) / self.n


class Operator(Linear):
    """Anything with products: fits by conjugate gradients on the normal equations."""

    def __init__(self, A: Any, y: Array, check: Callable[[], None]) -> None:
        super().__init__(A, y, check)
        self._scales: dict[int, float] = {}

    def forward(self, points: Sequence[Any], supports: Sequence[Columns], xs: Sequence[Array]) -> Array:
        full = np.zeros((self.d, len(xs), self.y.shape[1]), self.dtype)
        for i, (columns, x) in enumerate(zip(supports, xs, strict=True)):
            full[columns, i] = x.T
        self.products += full.shape[1] * full.shape[2]
        image = self._checked("matvec", apply(self.A.matvec, self.A.matmat, full.reshape(self.d, -1)), self.n)
        return np.ascontiguousarray(image.T).reshape(len(xs), -1, self.n)

    def adjoint(self, r: Array) -> Array:
        try:
            image = apply(self.A.rmatvec, self.A.rmatmat, r.reshape(-1, self.n).T)
        except NotImplementedError:
            raise ValueError("A has no adjoint; give the LinearOperator an rmatvec") from None
        return np.ascontiguousarray(self._checked("rmatvec", image, self.d).T).reshape(*r.shape[:-1], self.d)

    def _checked(self, name: str, image: Array, length: int) -> Array:
        """Check that a product has the right shape and type, and is finite."""
        if image.ndim != 2 or image.shape[0] != length:
            raise ValueError(f"A's {name} must give {length} numbers for a vector, got shape {image.shape}")
        if image.dtype.kind == "c" and self.dtype == np.float64:
            raise ValueError(
                f"A's dtype is {self.A.dtype}, but its {name} gives complex numbers; return the real part, or say "
                "dtype=complex"
            )
        if not np.isfinite(image).all():
            raise ValueError(f"A's {name} gave NaN or infinity for finite numbers; correct the operator")
        return image.astype(self.dtype, copy=False)

    @cached_property
    def mean_square(self) -> float:
        """For random signs v, ‖Av‖²/d is right on average, and varies by √(2/n); a few columns are taken one by one."""
        count = min(self.d, max(1, round(2.0 / (self.n * PRECISE**2))))
        probes = np.random.default_rng(0).choice([-1.0, 1.0], size=(count, 1, self.d))
        if count == self.d:
            probes = np.eye(self.d)[:, np.newaxis] * np.sqrt(self.d)
        every = [np.arange(self.d)] * count
        return squared_norm(self.forward([None] * count, every, list(probes))) / (count * self.d)

    def gram_times(self, v: Array) -> Array:
        return self.A.rmatvec(self.A.matvec(v))

    def fit(self, points: Sequence[Iterate], supports: Sequence[Columns], share: float = 0.0) -> list[Iterate]:
        """Conjugate gradients, all signals together, each until its derivatives on the support have fallen to a `share`
        of their values at the start, or to rounding."""
        runs = self._begin(points, supports)
        for _ in range(MOST_ROUNDS):
            active = [run for run in runs if not run.done(share) and run.since < MOST_IDLE]
            if not active:
                break
            self.check()
            images = self.forward(active, [run.columns for run in active], [run.direction for run in active])
            for run, image in zip(active, images, strict=True):
                run.move(image)
            gradients = self._seen(np.stack([run.rest for run in active]))
            for run, gradient in zip(active, gradients, strict=True):
                run.turn(gradient)
        for run in runs:
            change = self.unfinished.discard if run.finished() else self.unfinished.add
            change(run.signal)
        return [
            replace(self.point(run.signal, run.columns, run.x, run.rest), negative_gradient=run.negative_gradient)
            for run in runs
        ]

    def _begin(self, points: Sequence[Iterate], supports: Sequence[Columns]) -> list[Rounds]:
        """Start from a point's coefficients; if it has others outside the support, its residual is computed again."""
        starts = list(points)
        lost = [i for i, point in enumerate(points) if not find(supports[i], point.columns)[1].all()]
        if lost:
            for i, point in zip(lost, self.keep([points[i] for i in lost], [supports[i] for i in lost]), strict=True):
                starts[i] = point
        unseen = [i for i, point in enumerate(starts) if point.negative_gradient is None]
        if unseen:
            for i, gradient in zip(unseen, self._seen(np.stack([starts[i].rest for i in unseen])), strict=True):
                starts[i] = replace(starts[i], negative_gradient=gradient)
        return [
            Rounds(point, columns, point.on(columns), RESOLUTION * self._scale(point))
            for point, columns in zip(starts, supports, strict=True)
        ]

    def _scale(self, point: Iterate) -> float:
        """The norm of A*y/n."""
        if point.signal not in self._scales:
            gradient = (
                point.negative_gradient if not point.columns.size else self._seen(self.y[point.signal][np.newaxis])[0]
            )
            self._scales[point.signal] = math.sqrt(squared_norm(gradient))
        return self._scales[point.signal]


class Rounds:
    """Conjugate gradients for one signal: min ‖y − Ax‖ over x on a support, each output by itself."""

    def __init__(self, start: Iterate, columns: Columns, x: Array, floor: float) -> None:
        self.signal, self.columns, self.x, self.floor = start.signal, columns, x, floor
        self.rest, self.negative_gradient = start.rest, start.negative_gradient
        self.direction = self.negative_gradient[:, columns]
        self.squares = self.first = row_squares(self.direction)
        self.lowest, self.since, self.checked = float(self.squares.sum()), 0, False
        self.highest = self.squares  # since they were lowest

    def done(self, share: float) -> bool:
        return bool((self.squares <= np.maximum(share**2 * self.first, self.floor**2)).all())

    def finished(self) -> bool:
        """Whether the derivatives are small, if perhaps not as small as was asked for.

        Where rounding keeps them from falling, they rise and fall by orders of magnitude: small ones in a single round
        mean nothing.
        """
        left = self.highest if self.since >= MOST_IDLE else self.squares
        enough = np.maximum(FINISHED**2 * self.first, (0.01 * FINISHED / RESOLUTION * self.floor) ** 2)
        return bool((left <= enough).all())

    def move(self, image: Array) -> None:
        """Move to the lowest residual along the direction, of which this is the image."""
        if not self.checked:
            self._check_adjoint(image)
        curvatures = row_squares(image) / image.shape[1]
        far = np.divide(self.squares, curvatures, out=np.zeros_like(curvatures), where=curvatures > 0.0)[:, np.newaxis]
        self.x = self.x + far * self.direction
        self.rest = self.rest - far * image

    def turn(self, gradient: Array) -> None:
        """The next direction, conjugate to those before it."""
        self.negative_gradient, part = gradient, gradient[:, self.columns]
        squares = row_squares(part)
        ratio = np.divide(squares, self.squares, out=np.zeros_like(squares), where=self.squares > 0.0)
        self.direction = part + ratio[:, np.newaxis] * self.direction
        self.squares = squares
        total = float(squares.sum())
        self.since = 0 if total < 0.25 * self.lowest else self.since + 1
        self.highest = np.maximum(self.highest, squares)
        if self.since == 0:
            self.lowest, self.highest = total, squares

    def _check_adjoint(self, image: Array) -> None:
        """In the first round, where the direction is −∇F, ⟨r, Av⟩ = ⟨A*r, v⟩ costs no product to test."""
        self.checked = True
        n = image.shape[1]
        products = np.einsum("ij,ij->i", self.rest, image.conj()).real
        sizes = np.sqrt(row_squares(self.rest) * row_squares(image))
        if (np.abs(products - n * self.squares) > ADJOINT * sizes).any():
            raise ValueError(
                "A's rmatvec is not the adjoint of its matvec; correct it (conjugate and transpose, with the same "
                "scale), check_adjoint=True tests it"
            )


def apply(one: Callable[[Array], Array], many: Callable[[Array], Array], x: Array) -> Array:
    """An operator's product; for a single column, `one` is faster if the operator does not define `many`."""
    return one(x[:, 0])[:, np.newaxis] if x.shape[1] == 1 else many(x)


def row_squares(x: Array) -> Numbers:
    return np.einsum("ij,ij->i", x, x.conj()).real


# --- matrices and vectors --------------------------------------------------------------------------------------------
def some_rows(A: Any) -> Any:
    """A few hundred rows, evenly spaced."""
    return A[:: max(1, A.shape[0] // SAMPLE)]


def explain_infinite(A: Any) -> str:
    """Why A*y is not finite; of a matrix, since products of operators are checked."""
    if isinstance(A, np.ndarray):
        bad = np.argwhere(~np.isfinite(A))
    else:
        bad = np.stack([part[~np.isfinite(A.data)] for part in A.tocoo().coords], axis=1)
    if not len(bad):
        return "A*y is not finite: the numbers are too large; rescale A or y"
    i, j = bad[0]
    return f"A must be finite, got {A[i, j]} at row {i}, column {j}; remove or impute it first"


def column_norms(A: Any) -> Numbers:
    """The norms of the columns of an array or a sparse matrix."""
    if isinstance(A, np.ndarray):
        return np.sqrt(np.einsum("ij,ij->j", A, A.conj()).real)
    with np.errstate(over="ignore"):
        return np.sqrt(np.asarray(abs(A).power(2).sum(axis=0)).ravel())


def squared_norm(x: Array) -> float:
    flat = x.ravel(order="K")
    return float(np.vdot(flat, flat).real)
