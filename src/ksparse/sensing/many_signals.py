"""An array with many right-hand sides, each with a support of its own.

For one signal a product with A waits for memory; for many it is a matrix product, and then the time goes into
arithmetic.  Half of that is saved by a copy of A in single precision, which chooses columns and solves normal
equations.  It leaves no trace in the results: choices that are too close for it are made in double precision, and
coefficients are corrected with residuals in double precision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import get_lapack_funcs

from .._threads import ordered_map
from ..operators import largest
from ..solvers.pursuit import Array, Columns, Iterate, Numbers, find, gradient_point, magnitudes, top
from .linear import column_norms, squared_norm
from .matrix_system import DELICATE, Block, Matrix

T = TypeVar("T")

SMALL = 1 << 23  # products in a Gram matrix: smaller fits are done together, to save overhead in Python
TOGETHER = 1 << 19  # numbers in the columns of fits that are done together: they stay in the cache
CLEAN = 1e-11  # of A_T* y: what may be left of it in a residual
ROWS = 16  # rows transposed at once: two cache lines of each column
SINGLE = 2.0**-23  # the rounding of a number in single precision
ROUNDING = 2.0**-53
WIDE = 256  # columns from which on conjugate gradients find the largest coefficients sooner than a Gram matrix
SEEN = 0.2  # of a random vector, whose part along every eigenvector is about one: what may be left of it
FLOOR = 1e-6  # of the derivatives: what rounding leaves of them in single precision
MOST_ROUNDS = 30  # of conjugate gradients in single precision
MOST_CORRECTIONS = 5  # of a solution in single precision; two are usual


class ManySignals(Matrix):
    """A as an array, for so many signals that two copies of it pay."""

    def __init__(self, A: Array, y: Array, check: Callable[[], None]) -> None:
        super().__init__(A, y, check)
        self._columns: Any = transposed(A)
        with np.errstate(all="ignore"):  # `start` refuses numbers that are not finite, or too large for their squares
            norm = float(column_norms(A).max())
            self._unit = float(np.ldexp(1.0, np.frexp(norm)[1])) if 0.0 < norm < np.inf else 1.0
            self._single = np.empty(self._columns.shape, np.complex64 if self.dtype == np.complex128 else np.float32)
            np.divide(self._columns, self._unit, out=self._single, casting="same_kind")  # no norm is above one
        self._probe = np.random.default_rng(0).standard_normal(self.d).astype(self._single.dtype)
        self._products = [Products() for _ in y]

    def block(self, signal: int, columns: Columns) -> Block:
        return Block(self._columns[columns])

    def gram(self, signal: int, columns: Columns) -> Array:
        """In single precision: enough to say what columns are worth."""
        gram, order = self._products[signal].of(columns, self._single)
        out = np.empty(gram.shape, self.dtype)
        out[order[:, np.newaxis], order] = gram
        out *= self._unit * self._unit
        return out

    # --- the choice of columns -----------------------------------------------------------------------------------
    def steepest(self, points: Sequence[Iterate], count: int, steps: Numbers | None = None) -> list[Columns]:
        """By derivatives in single precision; those that are too close to the last one chosen are computed again."""
        if all(point.negative_gradient is not None for point in points):
            return super().steepest(points, count, steps)
        image, scales = self._rough_gradients(np.stack([point.rest for point in points]))
        errors = np.full(len(points), 2.0 * SINGLE * np.sqrt(self.n))  # rounding adds up like √n
        if steps is not None:
            image = gradient_point(points, image * scales[:, np.newaxis, np.newaxis], steps)
            errors, scales = errors * scales * steps, np.ones(len(points))
        scores, count = magnitudes(image), min(count, self.d)
        last = np.partition(scores, self.d - count, axis=1)[:, self.d - count, np.newaxis]
        chosen = scores >= last - errors[:, np.newaxis]
        for i in np.flatnonzero(np.count_nonzero(chosen, axis=1) > count).tolist():
            point, columns = points[i], np.flatnonzero(np.abs(scores[i] - last[i]) <= errors[i])
            exact = self.block(point.signal, columns).correlate(point.rest) / (self.n * scales[i])
            score = scores[i].astype(np.float64)
            score[columns] = magnitudes(exact if steps is None else point.on(columns) + steps[i] * exact)
            chosen[i] = largest(score, count)
        return list(np.nonzero(chosen)[1].reshape(len(points), count))

    def _rough_gradients(self, rests: Array) -> tuple[Array, Numbers]:
        """A*r/n from a product in single precision, and by which number each signal is still to be multiplied."""
        self.check()
        self.products += rests.shape[0] * rests.shape[1]
        sizes = np.linalg.norm(rests.reshape(len(rests), -1), axis=1)
        sizes[sizes == 0.0] = 1.0
        rows = (rests / sizes[:, np.newaxis, np.newaxis]).astype(self._single.dtype).reshape(-1, self.n)
        image = self.correlations(rows, self._single.T).reshape(*rests.shape[:-1], self.d)
        return image, sizes * (self._unit / self.n)

    # --- fits ----------------------------------------------------------------------------------------------------
    def fit(self, points: Sequence[Iterate], supports: Sequence[Columns], share: float = 0.0) -> list[Iterate]:
        return self._in_groups(
            self._fit_together, lambda point, columns: self._fit(point.signal, columns), points, supports
        )

    def fit_largest(
        self, points: Sequence[Iterate], supports: Sequence[Columns], k: int, share: float = 0.0
    ) -> list[Iterate]:
        """The first fit gives no more than the order of the coefficients."""

        def together(signals: NDArray[np.int64], columns: NDArray[np.int64]) -> list[Columns]:
            x, _, good = self._solve_together(signals, columns)
            order = np.stack(top(magnitudes(x), k))
            chosen = np.take_along_axis(columns, order, axis=1)
            pairs = zip(signals.tolist(), columns, chosen, good, strict=True)
            return [found if fine else self._fit(i, whole).largest(k) for i, whole, found, fine in pairs]

        large = [i for i, columns in enumerate(supports) if columns.size > k]
        narrow = list(supports)
        found = self._in_groups(
            together,
            lambda point, columns: self._largest(point, columns, k),
            [points[i] for i in large],
            [supports[i] for i in large],
        )
        for i, columns in zip(large, found, strict=True):
            narrow[i] = columns
        return self.fit(points, narrow)

    def _in_groups(
        self,
        together: Callable[[NDArray[np.int64], NDArray[np.int64]], list[T]],
        alone: Callable[[Iterate, Columns], T],
        points: Sequence[Iterate],
        supports: Sequence[Columns],
    ) -> list[T]:
        """What a function gives for every signal and support; small ones of the same size are given to it together."""
        self.check()
        sizes: dict[int, list[int]] = {}
        for i, columns in enumerate(supports):
            sizes.setdefault(columns.size, []).append(i)
        groups = []
        for size, members in sizes.items():
            step = max(1, TOGETHER // (size * self.n)) if 0 < size * size * self.n <= SMALL else 1
            groups += [members[start : start + step] for start in range(0, len(members), step)]

        def work(group: list[int]) -> list[T]:
            first = group[0]
            if len(group) == 1:
                return [alone(points[first], supports[first])]
            return together(np.array([points[i].signal for i in group]), np.stack([supports[i] for i in group]))

        found: dict[int, T] = {}
        for group, results in zip(groups, ordered_map(work, groups), strict=True):
            found |= dict(zip(group, results, strict=True))
        return [found[i] for i in range(len(points))]

    def _fit_together(self, signals: NDArray[np.int64], supports: NDArray[np.int64]) -> list[Iterate]:
        x, rest, good = self._solve_together(signals, supports)
        misfits = 0.5 * np.einsum("ijk,ijk->i", rest, rest.conj()).real / self.n
        points = map(Iterate, signals.tolist(), supports, x, misfits.tolist(), rest)
        return [
            point if fine else self._fit(point.signal, point.columns) for point, fine in zip(points, good, strict=True)
        ]

    @np.errstate(over="ignore", invalid="ignore")  # a solution that is not finite counts as no good
    def _solve_together(
        self, signals: NDArray[np.int64], supports: NDArray[np.int64]
    ) -> tuple[Array, Array, NDArray[np.bool_]]:
        """Small fits on as many columns for each signal, in double precision: x, residuals, and which are accurate."""
        block = self._columns[supports]  # (signals, columns, n)
        conjugate, y = block.conj(), self.y[signals]
        right = np.take_along_axis(self.first[signals], supports[:, np.newaxis], axis=2).swapaxes(1, 2)
        try:
            x = np.linalg.solve(conjugate @ block.swapaxes(1, 2), right).swapaxes(1, 2)
        except np.linalg.LinAlgError:
            return right.swapaxes(1, 2), y, np.zeros(len(y), dtype=bool)
        rest = y - x @ block
        left = np.abs(conjugate @ rest.swapaxes(1, 2)).max(axis=(1, 2))
        return x, rest, left <= CLEAN * np.abs(right).max(axis=(1, 2))

    def _fit(self, signal: int, columns: Columns) -> Iterate:
        """By a solution in single precision, corrected until the corrections are rounding."""
        solver = self._solver(signal, columns)
        if solver is None:
            return super()._fit(signal, columns)
        block, y = self.block(signal, columns), self.y[signal]
        x = solver(self.first[signal][:, columns])
        size, before = float(np.linalg.norm(x)), np.inf
        rest = y - block.image(x)
        for _ in range(MOST_CORRECTIONS):
            change = solver(block.correlate(rest))
            x = x + change
            rest = y - block.image(x)
            far = float(np.linalg.norm(change))
            # a correction leaves about the same share of the error as the one before
            if far * min(1.0, far / min(before, size)) <= ROUNDING * size:
                return self.point(signal, columns, x, rest)
            before = far
        return super()._fit(signal, columns)

    def _largest(self, point: Iterate, columns: Columns, k: int) -> Columns:
        """The columns with the k largest coefficients of a fit, by conjugate gradients until these are certain.

        What is left of the derivatives leaves an error of at most ‖left‖ times the norm of a row of G⁻¹, G = A_T* A_T.
        For a random z, entries of G⁻¹z are about as large as these norms.
        """
        if columns.size >= WIDE:
            rows, z = self._single[columns], self._probe[columns][np.newaxis]
            worst = next((2.0 * float(np.abs(x).max()) for x, left in rounds(rows, z) if left <= SEEN), np.inf)
            x, rest = point.on(columns), point.rest
            for _ in range(MOST_CORRECTIONS if worst < np.inf else 0):
                size = norm(rest) or 1.0
                right = correlate(rows, (rest / size).astype(rows.dtype))
                scale, floor = size / self._unit, FLOOR * norm(right)
                for change, left in rounds(rows, right):
                    scores = magnitudes(x + scale * change)
                    below, last = np.partition(scores, (-k - 1, -k))[-k - 1 :][:2]
                    if last - below > 2.0 * scale * worst * max(left, floor):
                        return columns[scores >= last]
                    if left <= floor:  # a residual in double precision shows what rounding hides
                        x = x + scale * change
                        rest = self.y[point.signal] - self.block(point.signal, columns).image(x)
                        break
        return self._fit(point.signal, columns).largest(k)

    def _solver(self, signal: int, columns: Columns) -> Callable[[Array], Array] | None:
        """The solution of normal equations in single precision; None if the columns are too dependent for it."""
        if not columns.size:
            return None
        gram, order = self._products[signal].of(columns, self._single)
        potrf, potrs, pocon = _lapack(gram.dtype.char)
        size = float(np.abs(gram).sum(axis=0).max())
        factor, info = potrf(gram)
        if info or pocon(factor, size)[0] < DELICATE:
            return None

        def solve(right: Array) -> Array:
            scale = np.abs(right).max(axis=1, keepdims=True)
            scale[scale == 0.0] = 1.0
            x = np.empty_like(right)
            x[:, order] = potrs(factor, (right[:, order] / scale).astype(gram.dtype).T)[0].T
            x *= scale / self._unit / self._unit
            return x

        return solve


class Products:
    """Products of columns with each other, as far as one signal's last fits needed them."""

    def __init__(self) -> None:
        self.columns = self.order = np.empty(0, np.int64)
        self.gram = np.empty((0, 0))

    def of(self, columns: Columns, rows: Array) -> tuple[Array, NDArray[np.int64]]:
        """A_T* A_T in Fortran's order, from A's columns given as rows, and the order of the columns in it.

        Most columns were in the last fit; they come first.
        """
        at, known = find(self.columns, columns)
        old, new = np.flatnonzero(known), np.flatnonzero(~known)
        if not new.size or 2 * old.size >= columns.size:
            at = self.order[at[old]]
        else:
            old, new, at = old[:0], np.arange(columns.size), at[:0]
        order = np.concatenate([old, new])
        conjugate = np.empty((columns.size, columns.size), rows.dtype)  # its transpose is the Gram matrix
        conjugate[: old.size, : old.size] = self.gram[at[:, np.newaxis], at]
        if new.size:
            block, across = rows[columns[new]], conjugate[old.size :, : old.size]
            conjugate[old.size :, old.size :] = block @ block.T.conj()  # one array with itself: half the work
            if old.size:
                np.matmul(block, rows[columns[old]].T.conj(), out=across)
                conjugate[: old.size, old.size :] = across.T.conj()
            # if all were known, the products of the others are kept too
            self.columns, self.gram = columns, conjugate
            self.order = np.empty_like(order)
            self.order[order] = np.arange(order.size)
        return conjugate.T, order


def rounds(rows: Array, right: Array) -> Iterator[tuple[Array, float]]:
    """Conjugate gradients for A_T* A_T x = right, of columns given as rows: x and the norm of what is left, each round.

    Several outputs, the rows of `right`, are one vector.
    """
    x, left = np.zeros_like(right), right.copy()
    direction, square = left, norm(left) ** 2
    for _ in range(MOST_ROUNDS):
        image = direction @ rows
        curvature = norm(image) ** 2
        if not curvature > 0.0:
            return
        x += (square / curvature) * direction
        left -= (square / curvature) * correlate(rows, image)
        before, square = square, norm(left) ** 2
        yield x, square**0.5
        direction = left + (square / before) * direction


def correlate(rows: Array, r: Array) -> Array:
    """A_T* r of every row of r, of columns given as rows."""
    return (rows @ r.T.conj()).T.conj()


def norm(x: Array) -> float:
    return squared_norm(x) ** 0.5


@cache
def _lapack(kind: str) -> Any:
    return get_lapack_funcs(("potrf", "potrs", "pocon"), dtype=np.dtype(kind))


def transposed(A: Array) -> Array:
    """A transposed, in C order: a copy, made some rows at a time, unless A has Fortran's order."""
    if A.flags.f_contiguous:
        return A.T
    out = np.empty(A.shape[::-1], A.dtype)
    for start in range(0, len(A), ROWS):
        out[:, start : start + ROWS] = A[start : start + ROWS].T
    return out
