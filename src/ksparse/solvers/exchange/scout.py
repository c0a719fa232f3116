"""A walk in single precision over columns of variance one: it finds the few columns that the exact search needs.

Data and Gram rows take half the memory, and a pass half the time.  What it finds is searched again in double precision.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ..._jit import SUMS, kernel
from ...problem import Problem
from .pivots import ROWS, Array, Columns, new_tableau
from .walk import DONE, WANTED, BestSupports, walk_on

SHARE, FLOOR = 1e-5, 1e-7  # an exchange must lower F by this share of it, and of its value without any column
RESOLVED = 1e-4  # share of F without any column: below it single precision tells no two supports apart
TURNS = 6  # changes of direction
FEW, MANY = 6, 24  # Gram rows computed at once; many where the data do not fit into the cache (measured at 1e6, 4e7)
CACHED = 8_000_000  # numbers that fit
BY_LOOPS = 10  # up to so many rows the loop below is faster than BLAS (500 × 2000: 0.4 ms for 6 rows against 0.8)
STRIP = 512  # columns whose sums stay in the cache

Single = NDArray[np.float32]


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


class Scout:
    """The walk; None of its numbers are used but the supports and the columns that were about to enter."""

    def __init__(self, problem: Problem, Z: Single, scale: Array, target: Array, total: float, slots: int) -> None:
        self.problem, self.Z, self.scale, self.slots = problem, Z, scale, slots
        self.weight = (problem.weight / problem.n).astype(np.float32)
        c = ((target / np.sqrt(total)).astype(np.float32) * self.weight) @ Z
        self.c, self.usable = c.astype(np.float64), scale > 0.0
        d = problem.d
        self.rows, self.row_of, self.known = np.empty((0, d), np.float32), np.full(d, -1, np.int64), 0
        self.batch = min(d, MANY if Z.size > CACHED else FEW)

    def fetch(self, columns: Columns) -> None:
        """Compute the Gram rows of some columns."""
        end = self.known + columns.size
        if end > len(self.rows):
            room = np.empty((max(2 * len(self.rows), 2 * self.slots, end), self.problem.d), np.float32)
            room[: self.known] = self.rows[: self.known]
            self.rows = room
        B = np.ascontiguousarray(self.Z[:, columns].T) * self.weight
        if columns.size <= BY_LOOPS:
            add_gram_rows(B, self.Z, self.rows[self.known : end])
        else:
            np.matmul(B, self.Z, out=self.rows[self.known : end])
        self.row_of[columns], self.known = np.arange(self.known, end), end

    def walk(self, best: BestSupports, l2: float, first: Columns, pause: int, check: Callable[[], None]) -> bool:
        """Fill the best supports; False if single precision does not suffice."""
        kept = self.problem.kept
        ridge = l2 * self.scale * self.scale
        self.t = t = new_tableau(self.c, self.usable.astype(np.float64), ridge, 1.0, self.slots, kept.size, np.float32)
        if not (np.isfinite(t.u).all() and np.isfinite(t.D).all()):
            return False
        self.fetch(np.union1d(kept, first))
        wanted, how = np.empty(self.batch, np.int64), ROWS
        while how != DONE:
            check()
            how = walk_on(t, best, kept, self.rows, self.row_of, SHARE, FLOOR, TURNS, wanted, pause)
            if how == ROWS:
                self.fetch(wanted[: best.state[WANTED]].copy())
        values = best.value[np.isfinite(best.value)]
        return bool(values.min() > RESOLVED and np.isfinite(t.u).all() and np.isfinite(t.D).all())
