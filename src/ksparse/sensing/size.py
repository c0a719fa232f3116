"""How many columns: supports of all sizes inside a given one, and the criterion that weighs size against fit."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from ..solvers._pursuit import Columns, Point, magnitudes
from .columns import SINGULAR, Array
from .linear import Linear, Matrix

# The prices of a coefficient.  Chosen on 73 settings (the known one on 65 of them): d = 256 to 1024, K = 1 to 26, 10 to
# 40 dB, bounds K to 8K, four ensembles, complex numbers, Gaussian, ±1 and decaying amplitudes.  All three lie at the
# edge of what was tried: 3 to 6, 4 to 9, 1 to 4.  Of pure noise 2 in 100 get a column.
PRICE_KNOWN = 6.0  # where the noise is known
PRICE_GUESSED = 9.0  # where it is estimated, ...
PRICE_FIRST = 1.0  # ... from a support that is rather too large: signal left in the noise makes all seem noise
TOGETHER = 64  # columns from which on more than one is removed at once


class Removal(NamedTuple):
    """A support's columns, the last to go first, and ‖y − Ax‖² with so many of them left, from none to all."""

    columns: Columns
    squares: NDArray[np.float64]

    def left(self, size: int) -> Columns:
        return np.sort(self.columns[:size])


def remove(system: Linear, point: Point, first: float, limit: float = math.inf) -> Removal:
    """Remove columns, each time those that are missed least, until none is left, or ‖y − Ax‖² is above a limit (then it
    counts as infinite for fewer); `first` is the misfit without any.

    An operator has no columns whose products would tell: they go by the size of their coefficients, as if independent.
    """
    rest = 2.0 * system.n * point.misfit
    if isinstance(system, Matrix):
        inverse = _inverse(system.block(point.signal, point.columns).gram())
        if inverse is not None:
            return _eliminate(point, inverse, rest, limit)
    squares = magnitudes(point.x) ** 2
    order = np.argsort(-squares, kind="stable")
    gone = np.concatenate([np.cumsum(squares[order][::-1])[::-1], [0.0]])
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


def _eliminate(point: Point, inverse: Array, rest: float, limit: float) -> Removal:
    """By the exact rise of ‖y − Ax‖² without a column, |x_j|²/(G⁻¹)_jj; of many columns a few go together, and all that
    are nothing beside the limit."""
    columns, x = point.columns, point.x
    final, squares = np.empty_like(columns), np.empty(columns.size + 1)
    squares[-1] = rest
    while columns.size and squares[columns.size] <= limit:
        rises = magnitudes(x) ** 2 / inverse.diagonal().real
        order = np.argsort(-rises, kind="stable")
        columns, x, rises, inverse = columns[order], x[:, order], rises[order], inverse[np.ix_(order, order)]
        left = columns.size - 1 - columns.size // TOGETHER
        if limit < math.inf:
            left = min(left, int(np.count_nonzero(rises > 0.01 * limit / columns.size)))
        across = inverse[:left, left:]
        both = np.linalg.solve(inverse[left:, left:], np.concatenate([x[:, left:].T, across.conj().T], axis=1))
        gone, bent = both[:, : len(x)], both[:, len(x) :]
        together = float(np.vdot(x[:, left:].T, gone).real)
        each = np.cumsum(rises[left:][::-1])[::-1]
        share = together / each[0] if each[0] > 0.0 else 0.0
        squares[left : columns.size] = squares[columns.size] + share * each
        final[left : columns.size] = columns[left:]
        x, inverse = x[:, :left] - (across @ gone).T, inverse[:left, :left] - across @ bent
        columns = columns[:left]
    final[: columns.size], squares[: columns.size] = columns, np.inf
    return Removal(final, squares)


class Sizes:
    """Which support, of all sizes that were seen for a signal."""

    def __init__(self, system: Linear, energy: float | None) -> None:
        self.n, self.d = system.n, system.d
        self.numbers = system.y.shape[1] * (2 if system.dtype == np.complex128 else 1)
        self.energy = energy  # of the noise in a row, if it is known
        self.seen: list[Removal] = []

    def best(self) -> Columns:
        r"""The support that minimises

        .. math:: \frac{R_k}{\sigma^2} + \frac{2}{m}\log\binom{d}{k} + ck

        where R is ‖y − Ax‖², m the real numbers that a column's coefficient consists of, σ² the energy of the noise in
        a row, c a price.  To say which columns were chosen out of d costs the logarithm of the number of choices; a
        price proportional to k alone must be wrong for small k or for large ones.
        """
        squares = np.full(max(removal.squares.size for removal in self.seen), np.inf)
        for removal in self.seen:
            part = squares[: removal.squares.size]
            np.minimum(part, removal.squares, out=part)
        size = self._size(squares)
        best = min((r for r in self.seen if r.squares.size > size), key=lambda r: float(r.squares[size]))
        return best.left(size)

    def _size(self, squares: NDArray[np.float64]) -> int:
        if self.energy is not None:
            return int(np.argmin(squares / self.energy + self.cost(squares.size, PRICE_KNOWN)))
        # σ unknown: first by the likelihood of the best σ for each size, corrected for the freedom that fits have
        free = np.maximum(self.n - np.arange(squares.size), 1)
        worth = np.log(np.maximum(squares, 1e-300) / free) + self.cost(squares.size, PRICE_FIRST) / free
        first = int(np.argmin(worth[: max(1, self.n - 1)]))
        guess = max(float(squares[first]) / (self.n - first), 1e-300)
        return int(np.argmin(squares[: first + 1] / guess + self.cost(first + 1, PRICE_GUESSED)))

    def cost(self, count: int, price: float) -> NDArray[np.float64]:
        """Of supports with fewer than `count` columns."""
        k = np.arange(count)
        choices = gammaln(self.d + 1) - gammaln(k + 1) - gammaln(self.d - k + 1)
        return 2.0 * choices / self.numbers + price * k
