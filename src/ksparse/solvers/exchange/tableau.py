r"""A quadratic model of some columns, ready for exchanges.

For :math:`\frac12 v^\top G v - b^\top v` and the columns S that are in, the tableau P holds the Schur complement of
G_SS outside S, −G_SS⁻¹ inside, G_{·S}G_SS⁻¹ between; and u: the minimiser v on S, the residual b − G_{·S}v outside.
Then what an exchange is worth is a number, exactly, and making one costs two pivots of O(M²).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..._jit import SUMS, inner, kernel

Array = NDArray[np.float64]
FLAT = 1e-7  # of a column's own curvature: what is left beside the others must be more, or it is their combination


class Model(NamedTuple):
    """The tableau of a working set."""

    columns: NDArray[np.int64]
    P: Array
    u: Array
    row: Array
    inside: NDArray[np.bool_]
    fixed: NDArray[np.bool_]
    own: Array  # the curvature of each column by itself
    G: Array
    b: Array

    @property
    def tableau(self) -> tuple[Any, ...]:
        return self[1:7]

    def work(self) -> tuple[Any, ...]:
        """A tableau to try things on."""
        return tuple(part.copy() for part in self.tableau)

    def minimiser(self, inside: NDArray[np.bool_]) -> Array:
        """Of the model, on some of its columns; as long as the working set."""
        at = np.flatnonzero(inside)
        v = np.zeros(inside.size)
        try:
            v[at] = np.linalg.solve(self.G[np.ix_(at, at)], self.b[at])
        except np.linalg.LinAlgError:
            v[at] = np.linalg.lstsq(self.G[np.ix_(at, at)], self.b[at], rcond=1e-13)[0]
        return v

    @np.errstate(over="ignore", invalid="ignore")
    def fall(self, u: Array, inside: NDArray[np.bool_]) -> float:
        """By how much the model at a support, whose minimiser u holds, is below that at its own."""
        return 0.5 * float(self.b[inside] @ u[inside] - self.b[self.inside] @ self.u[self.inside])


class Attempt(NamedTuple):
    """Columns of a model to try instead of those that are in, and how many were exchanged."""

    inside: NDArray[np.bool_]
    exchanges: int


def exchanged(model: Model, made: Any) -> Attempt:
    """The model's columns after some exchanges (out, in)."""
    inside = model.inside.copy()
    for leave, enter in made:
        inside[leave], inside[enter] = False, True
    return Attempt(inside, len(made))


@inner(fastmath=SUMS)
def pivot(P, u, row, j, enter):
    """Let column j in, or out."""
    size = u.size
    for a in range(size):
        row[a] = P[j, a]
    d, uj = row[j], u[j]
    sign = 1.0 if enter else -1.0
    for a in range(size):
        f = row[a] / d
        if a != j and f != 0.0:
            for b in range(size):
                P[a, b] -= f * row[b]
            u[a] -= f * uj
    for a in range(size):
        P[a, j] = P[j, a] = sign * row[a] / d
    P[j, j] = -1.0 / d
    u[j] = sign * uj / d


@inner(hot=True)
def exchange_worth(P, u, i, j):
    """By how much the model falls if column i comes in for column j."""
    e = -1.0 / P[j, j]
    t = u[i] + P[i, j] * u[j] * e
    return 0.5 * (t * t / (P[i, i] + P[i, j] * P[i, j] * e) - u[j] * u[j] * e)


@kernel
def enter_all(P, u, row, which, inside, own):
    """Let in the columns `which`, as far as they are no combination of those before."""
    for j in which:
        if P[j, j] > FLAT * own[j]:
            pivot(P, u, row, j, True)
            inside[j] = True


@kernel
def exchange(P, u, row, inside, fixed, own, least, most, made):
    """Make the best exchange while it lowers the model by more than `least`, `most` times at most.

    Writes (out, in) to `made`; returns how many.
    """
    size = u.size
    count = 0
    while count < most:
        best, enter, leave = least, -1, -1
        for i in range(size):
            if inside[i] or P[i, i] <= FLAT * own[i]:
                continue
            for j in range(size):
                if inside[j] and not fixed[j]:
                    worth = exchange_worth(P, u, i, j)
                    if worth > best:
                        best, enter, leave = worth, i, j
        if enter < 0:
            break
        pivot(P, u, row, leave, False)
        pivot(P, u, row, enter, True)
        inside[leave], inside[enter] = False, True
        made[count, 0], made[count, 1] = leave, enter
        count += 1
    return count


@kernel
def resize(P, u, row, inside, fixed, own, wanted):
    """Let columns in by what they are worth, or out by how little, until `wanted` are in beside the fixed ones."""
    size = u.size
    count = 0
    for j in range(size):
        if inside[j] and not fixed[j]:
            count += 1
    while count != wanted:
        growing = count < wanted
        best, chosen = (-1.0 if growing else np.inf), -1
        for j in range(size):
            if growing and not inside[j] and P[j, j] > FLAT * own[j]:
                worth = u[j] * u[j] / P[j, j]
                if worth > best:
                    best, chosen = worth, j
            if not growing and inside[j] and not fixed[j]:
                worth = -u[j] * u[j] / P[j, j]
                if worth < best:
                    best, chosen = worth, j
        if chosen < 0:
            break
        pivot(P, u, row, chosen, growing)
        inside[chosen] = growing
        count += 1 if growing else -1
