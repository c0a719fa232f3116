"""An operator as the system that a pursuit runs on: nothing but products, fits by conjugate gradients."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..solvers._pursuit import Point, find
from .columns import Columns
from .linear import Array, Linear, squared_norm

RESOLUTION = 1e-14  # of ‖A*y‖: slopes below it are rounding
FINISHED = 1e-6  # of the slopes that a fit began with (or a hundredth of that of ‖A*y‖): what is above it was given up
MOST_ROUNDS = 500  # of conjugate gradients
PATIENCE = 60  # rounds that do not halve the slopes before they are given up
PRECISE = 0.05  # the error of an estimated norm
ADJOINT = 1e-4  # of ‖r‖‖Av‖: a difference of ⟨r, Av⟩ and ⟨A*r, v⟩ that is not rounding, in single precision either


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
        """A product, if it is one of finite numbers of the kind that A says."""
        if image.ndim != 2 or image.shape[0] != length:
            raise ValueError(f"A's {name} must give {length} numbers for a vector, got shape {image.shape}")
        if image.dtype.kind == "c" and self.dtype == np.float64:
            raise ValueError(f"A's dtype is {self.A.dtype}, but its {name} gives complex numbers; say dtype=complex")
        if not np.isfinite(image).all():
            raise ValueError(f"A's {name} gave NaN or infinity for finite numbers; mend the operator")
        return image.astype(self.dtype, copy=False)

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

    def fit(self, points: Sequence[Point], supports: Sequence[Columns], share: float = 0.0) -> list[Point]:
        """Conjugate gradients, all signals together, each until its slopes on the support are a `share` of what they
        were, or nothing but rounding."""
        runs = self._begin(points, supports)
        for _ in range(MOST_ROUNDS):
            active = [run for run in runs if not run.done(share) and run.since < PATIENCE]
            if not active:
                break
            self.check()
            images = self.forward(active, [run.columns for run in active], [run.direction for run in active])
            for run, image in zip(active, images, strict=True):
                run.move(image)
            slopes = self._seen(np.stack([run.rest for run in active]))
            for run, slope in zip(active, slopes, strict=True):
                run.turn(slope)
        for run in runs:
            change = self.unfinished.discard if run.finished() else self.unfinished.add
            change(run.signal)
        return [replace(self.point(run.signal, run.columns, run.x, run.rest), slope=run.slope) for run in runs]

    def _begin(self, points: Sequence[Point], supports: Sequence[Columns]) -> list[Rounds]:
        """From a point's coefficients; where it had others too, its residual is computed anew."""
        starts = list(points)
        lost = [i for i, point in enumerate(points) if not find(supports[i], point.columns)[1].all()]
        if lost:
            for i, point in zip(lost, self.keep([points[i] for i in lost], [supports[i] for i in lost]), strict=True):
                starts[i] = point
        unseen = [i for i, point in enumerate(starts) if point.slope is None]
        if unseen:
            for i, slope in zip(unseen, self._seen(np.stack([starts[i].rest for i in unseen])), strict=True):
                starts[i] = replace(starts[i], slope=slope)
        return [
            Rounds(point, columns, point.on(columns), RESOLUTION * self._scale(point))
            for point, columns in zip(starts, supports, strict=True)
        ]

    def _scale(self, point: Point) -> float:
        """The norm of A*y/n."""
        if point.signal not in self._scales:
            slope = point.slope if not point.columns.size else self._seen(self.y[point.signal][np.newaxis])[0]
            self._scales[point.signal] = math.sqrt(squared_norm(slope))
        return self._scales[point.signal]


class Rounds:
    """Conjugate gradients for one signal: min ‖y − Ax‖ over x on a support, each output by itself."""

    def __init__(self, start: Point, columns: Columns, x: Array, floor: float) -> None:
        self.signal, self.columns, self.x, self.floor = start.signal, columns, x, floor
        self.rest, self.slope = start.rest, start.slope
        self.direction = self.slope[:, columns]
        self.squares = self.first = row_squares(self.direction)
        self.lowest, self.since, self.checked = float(self.squares.sum()), 0, False
        self.highest = self.squares  # since they were lowest

    def done(self, share: float) -> bool:
        return bool((self.squares <= np.maximum(share**2 * self.first, self.floor**2)).all())

    def finished(self) -> bool:
        """Whether what is left is little, if perhaps not as little as was wanted.

        Where rounding keeps the slopes from falling they rise and fall by orders of magnitude: a round in which they
        happen to be small says nothing.
        """
        left = self.highest if self.since >= PATIENCE else self.squares
        enough = np.maximum(FINISHED**2 * self.first, (0.01 * FINISHED / RESOLUTION * self.floor) ** 2)
        return bool((left <= enough).all())

    def move(self, image: Array) -> None:
        """As far as the residual falls; the image is that of the direction."""
        if not self.checked:
            self._check_adjoint(image)
        bends = row_squares(image) / image.shape[1]
        far = np.divide(self.squares, bends, out=np.zeros_like(bends), where=bends > 0.0)[:, np.newaxis]
        self.x = self.x + far * self.direction
        self.rest = self.rest - far * image

    def turn(self, slope: Array) -> None:
        """The next direction, conjugate to those before it."""
        self.slope, part = slope, slope[:, self.columns]
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
        """In the first round, where the direction is the slope, ⟨r, Av⟩ = ⟨A*r, v⟩ costs no product to test."""
        self.checked = True
        n = image.shape[1]
        products = np.einsum("ij,ij->i", self.rest, image.conj()).real
        sizes = np.sqrt(row_squares(self.rest) * row_squares(image))
        if (np.abs(products - n * self.squares) > ADJOINT * sizes).any():
            raise ValueError(
                "A's rmatvec is not the adjoint of its matvec; mend it (conjugate and transpose, with the same scale), "
                "check_adjoint=True tests it"
            )


def apply(one: Callable[[Array], Array], many: Callable[[Array], Array], x: Array) -> Array:
    """An operator's product; the one for a single column is faster where the operator has no other."""
    return one(x[:, 0])[:, np.newaxis] if x.shape[1] == 1 else many(x)


def row_squares(x: Array) -> NDArray[np.float64]:
    return np.einsum("ij,ij->i", x, x.conj()).real
