"""A walk in single precision over columns of variance one: it finds the few columns that the exact search needs.

Data and Gram rows take half the memory, and a pass half the time.  What it finds is searched again in double precision.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..._jit import SUMS, kernel
from ...problem import Problem
from .pivots import FLAT, ROWS, Array, Columns, new_tableau
from .walk import DONE, EXCHANGING, ROUNDS, WANTED, BestSupports, walk_on

SHARE, FLOOR = 1e-5, 1e-7  # an exchange must lower F by this share of it, and of its value without any column
RESOLVED = 1e-4  # share of F without any column: below it single precision tells no two supports apart
TURNS = 6  # changes of direction
FEW, MANY = 6, 24  # Gram rows computed at once; many where the data do not fit into the cache (measured at 1e6, 4e7)
CACHED = 8_000_000  # numbers that fit
BY_LOOPS = 10  # up to so many rows the loop below is faster than BLAS (500 × 2000: 0.4 ms for 6 rows against 0.8)
STRIP = 512  # columns whose sums stay in the cache

Single = NDArray[np.float32]
Returned = TypeVar("Returned")
Wanted = Generator[tuple[Any, Columns], None, Returned]  # whose `fetch` has to be called, and with which columns


@kernel(fastmath=SUMS)
def add_gram_rows(B, Z, out):
    """out = B·Z for few rows of B."""
    (count, n), d = B.shape, Z.shape[1]
    sums = np.empty((count, STRIP), Z.dtype)
    for low in range(0, d, STRIP):
        width = min(STRIP, d - low)
        sums[:] = 0
        i = 0
        while i + 4 <= n:
            z0, z1, z2, z3 = Z[i, low:], Z[i + 1, low:], Z[i + 2, low:], Z[i + 3, low:]
            for b in range(count):
                f0, f1, f2, f3, total = B[b, i], B[b, i + 1], B[b, i + 2], B[b, i + 3], sums[b]
                for a in range(width):
                    total[a] += f0 * z0[a] + f1 * z1[a] + f2 * z2[a] + f3 * z3[a]
            i += 4
        while i < n:
            z0 = Z[i, low:]
            for b in range(count):
                f0, total = B[b, i], sums[b]
                for a in range(width):
                    total[a] += f0 * z0[a]
            i += 1
        for b in range(count):
            for a in range(width):
                out[b, low + a] = sums[b, a]


def gram_rows(B: Single, Z: Single, out: Single) -> None:
    """out = B·Z, by whatever is faster."""
    if len(B) <= BY_LOOPS:
        add_gram_rows(B, Z, out)
    else:
        np.matmul(B, Z, out=out)


class SingleRows(Protocol):
    """Where a walk in single precision takes its sums over the rows from."""

    def covariances(self, target: Array) -> Any:
        """Covariances of all columns, scaled to variance one, with a centred target."""

    def write(self, columns: Columns, out: Single) -> None:
        """Gram rows of some columns."""


class Sums(Protocol):
    """Sums over the rows that several problems share; see `folds.py`."""

    def gram(self) -> Array:
        """The Gram matrix of all columns."""

    def rows(self, columns: Columns) -> Array:
        """Gram rows of some columns."""

    def single(self, scale: Array) -> SingleRows | None:
        """The same in single precision; None where the rows do not allow it."""


class OwnRows:
    """Sums over a scaled copy of the rows of one problem."""

    def __init__(self, Z: Single, weight: Array) -> None:
        self.Z, self.weight = Z, weight.astype(np.float32)

    def covariances(self, target: Array) -> Any:
        return (target.astype(np.float32) * self.weight) @ self.Z

    def write(self, columns: Columns, out: Single) -> None:
        gram_rows(np.ascontiguousarray(self.Z[:, columns].T) * self.weight, self.Z, out)


class Scout:
    """The walk; only the supports and the columns that were about to enter are used, none of its numbers."""

    def __init__(
        self, problem: Problem, source: SingleRows, scale: Array, target: Array, total: float, slots: int, batch: int,
        l2: float,
    ) -> None:  # fmt: skip
        self.kept, self.source, self.slots, self.batch = problem.kept, source, slots, batch
        c = source.covariances(target / np.sqrt(total))
        d, usable = problem.d, (scale > 0.0).astype(np.float64)
        self.rows, self.row_of, self.known = np.empty((0, d), np.float32), np.full(d, -1, np.int64), 0
        ridge = l2 * scale * scale
        self.t = new_tableau(c.astype(np.float64), usable, ridge, 1.0, slots, problem.kept.size, np.float32)

    def fetch(self, columns: Columns) -> None:
        """Compute the Gram rows of some columns."""
        if columns.size == 0:
            return
        end = self.known + columns.size
        if end > len(self.rows):
            room = np.empty((max(2 * len(self.rows), 2 * self.slots, end), self.row_of.size), np.float32)
            room[: self.known] = self.rows[: self.known]
            self.rows = room
        self.source.write(columns, self.rows[self.known : end])
        self.row_of[columns], self.known = np.arange(self.known, end), end

    def walk(self, best: BestSupports, pause: int, check: Callable[[], None]) -> Wanted[bool]:
        """Improve the best supports; if single precision does not suffice, False, and none is known."""
        kept, t = self.kept, self.t
        used = np.unique(best.choices[np.isfinite(best.value)])
        wanted, how = np.empty(self.batch, np.int64), ROWS
        if self.known == 0:
            used = np.union1d(
                np.union1d(used, kept), most_promising(t.c, t.own, t.own, max(8, self.slots // 2, self.batch))
            )
        yield self, used[self.row_of[used] < 0]
        best.state[ROUNDS] = best.state[EXCHANGING] = 0
        resolved = self.resolves(best)
        while how != DONE and resolved:
            check()
            how = walk_on(t, best, kept, self.rows, self.row_of, SHARE, FLOOR, TURNS, wanted, pause)
            resolved = self.resolves(best)
            if how == ROWS:
                yield self, wanted[: best.state[WANTED]].copy()
        if not resolved:
            best.value[:], best.up[:], best.down[:], best.up[0] = np.inf, False, False, True
        return resolved

    def resolves(self, best: BestSupports) -> bool:
        """Whether all numbers are finite, and none of the supports fits so well that only rounding is left."""
        known = best.value[np.isfinite(best.value)]
        return bool((known > RESOLVED).all() and np.isfinite(self.t.u.sum() + self.t.D.sum()))


def most_promising(u: Any, left: Any, own: Array, count: int) -> Columns:
    """The columns that would lower the model most by themselves."""
    usable = left > FLAT * own
    worth = np.where(usable, u * u / np.where(usable, left, 1.0), -1.0)
    return np.argpartition(-worth, count - 1)[:count] if count < u.size else np.arange(u.size)
