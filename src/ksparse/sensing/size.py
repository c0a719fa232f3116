"""How many columns: supports of all sizes inside a given one, and the criterion that weighs size against fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from ..solvers._pursuit import Columns, Point, magnitudes
from .columns import SINGULAR, Array
from .linear import Linear, Matrix

# Chosen on 65 settings (d = 256 to 1024, K = 1 to 26, 10 to 40 dB, bounds K to 8K, four ensembles, complex numbers).
PRICE = 4.0  # of a coefficient, where the noise is unknown
PRICE_KNOWN = 6.0  # where it is known; estimated, it grows with the columns left out, which is worth the difference
ONE_BY_ONE = 512  # columns up to which they are removed one after the other: k³ operations


class Removal(NamedTuple):
    """A support's columns, the last to go first, and ‖y − Ax‖² with so many of them left, from none to all."""

    columns: Columns
    squares: NDArray[np.float64]

    def left(self, size: int) -> Columns:
        return np.sort(self.columns[:size])


def remove(system: Linear, point: Point, first: float) -> Removal:
    """Remove columns until none is left, each time the one that is missed least; `first` is the misfit without any.

    Of an operator, or of very many columns, all fits would cost too much: columns go by the size of their coefficients,
    as if they were independent.
    """
    if isinstance(system, Matrix) and point.columns.size <= ONE_BY_ONE:
        inverse = _inverse(system.block(point.signal, point.columns).gram())
        if inverse is not None:
            return _one_by_one(point, inverse, 2.0 * system.n * point.misfit)
    squares = magnitudes(point.x) ** 2
    order = np.argsort(-squares, kind="stable")
    gone = np.concatenate([np.cumsum(squares[order][::-1])[::-1], [0.0]])
    rest = 2.0 * system.n * point.misfit
    scale = (2.0 * system.n * first - rest) / gone[0] if gone[0] > 0.0 else 0.0  # ‖Ax‖²/‖x‖²
    return Removal(point.columns[order], rest + scale * gone * (1.0 - point.columns.size / system.n))


def _inverse(gram: Array) -> Array | None:
    """None if the columns are not independent."""
    try:
        inverse = np.linalg.inv(gram)
    except np.linalg.LinAlgError:
        return None
    size = np.abs(gram).sum(axis=0).max(initial=0.0) * np.abs(inverse).sum(axis=0).max(initial=0.0)
    return inverse if size * SINGULAR < 1.0 else None


def _one_by_one(point: Point, inverse: Array, rest: float) -> Removal:
    columns, x = point.columns.copy(), point.x
    squares = np.empty(columns.size + 1)
    squares[-1] = rest
    for last in range(columns.size - 1, -1, -1):
        diagonal = inverse.diagonal().real
        losses = magnitudes(x) ** 2 / diagonal
        j = int(np.argmin(losses))
        squares[last] = squares[last + 1] + losses[j]
        # the one to go changes places with the last
        swap = np.arange(last + 1)
        swap[[j, last]] = last, j
        columns[: last + 1] = columns[swap]
        x, inverse = x[:, swap], inverse[np.ix_(swap, swap)]
        along = inverse[:last, last] / inverse[last, last].real
        x = x[:, :last] - x[:, last:] * along
        inverse = inverse[:last, :last] - np.outer(along, inverse[last, :last])
    return Removal(columns, squares)


def criterion(system: Linear, squares: NDArray[np.float64], energy: float | None) -> NDArray[np.float64]:
    r"""What supports of 0, 1, 2, ... columns are worth; small is good.

    .. math:: \log\frac{R_k}{n-k} + \frac{2\log\binom{d}{k}/m + 4k}{n-k}, \qquad
              \frac{R_k}{\sigma^2} + \frac{2}{m}\log\binom{d}{k} + 6k

    R is ‖y − Ax‖², m the real numbers that a column's coefficient consists of, σ² the known energy of the noise in a
    row.  To say which columns were chosen out of d costs the logarithm of the number of choices; a price proportional
    to k alone must be wrong for small k or for large ones: 1.6 k log d in its place gives errors 1.6 times as large at
    K = 4, and 2.9 times at K = 1.
    """
    k = np.arange(squares.size)
    numbers = system.y.shape[1] * (2 if system.dtype == np.complex128 else 1)
    choices = 2.0 * (gammaln(system.d + 1) - gammaln(k + 1) - gammaln(system.d - k + 1)) / numbers
    if energy is not None:
        return squares / energy + choices + PRICE_KNOWN * k
    free = np.maximum(system.n - k, 1)
    worth = np.log(np.maximum(squares, 1e-300) / free) + (choices + PRICE * k) / free
    return np.where(k < system.n - 1, worth, np.inf)


def choose(
    system: Linear, points: Sequence[Point], firsts: Sequence[float], energy: float | None, share: float
) -> list[Point]:
    """Each point on the best of the supports inside its own, with the criterion as memory."""
    chosen, pending = list(points), list(range(len(points)))
    while pending:
        smaller: dict[int, Columns] = {}
        for i in pending:
            removal = remove(system, chosen[i], firsts[i])
            worth = criterion(system, removal.squares, energy)
            size = int(np.argmin(worth))
            chosen[i] = replace(chosen[i], memory=float(worth[size]))
            if size < chosen[i].columns.size:
                smaller[i] = removal.left(size)
        pending = list(smaller)  # what was removed as if independent is looked at again
        if pending:
            fits = system.fit([chosen[i] for i in pending], [smaller[i] for i in pending], share)
            for i, point in zip(pending, fits, strict=True):
                chosen[i] = point
    return chosen
