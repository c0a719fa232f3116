"""`recover`'s default: a path of subspace pursuits, then reweighting; it needs only a bound on the number of non-zeros.

A pursuit that is told too large a k fits noise, and needs more measurements than one that is told K.  So k grows from
one pursuit to the next, each of which starts where the last one ended, until y is fitted exactly.  If that never
happens, columns are removed again as long as a criterion improves (`Sizes`); and unless the result is certain, a more
expensive method is tried (`reweight`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import get_lapack_funcs
from scipy.special import gammaln

from .._threads import ordered_map
from ..result import Record, Status
from ..solvers.pursuit import Array, Columns, Iterate, Numbers, entered, magnitudes, top
from ..solvers.sp import exchange
from .linear import Linear, column_norms, squared_norm
from .matrix_system import SINGULAR, Matrix
from .measurements import REACHED, Measurements, SignalRun

# Chosen with d = 256, K = 12 to 26, near the fewest measurements that do; what concerns operators with d = 2¹⁴ and 2¹⁷.
EXACT = 1e-9  # of ‖y‖: a smaller residual is zero
# Fits by conjugate gradients that were stopped early have a larger residual.  From here on a precise fit on few columns
# may show that it is zero; if it is not, the next try is made at a tenth of it.  With 1e-3 small coefficients would be
# taken for zero, and a fit on all columns would be needed.
NEAR = 1e-5
STEPS = 50  # at most, with the same k
SLOW = 0.9  # if a step reduces the residual to more than this share, k is increased (a fifth fewer products)
STILL = 0.99  # the same for the last k
FACTOR = 1.5  # from k to k; of 100 signals the path alone finds 9 more than with 2, and as many as with 1.2
LOWEST = 64  # the first k is this part of the last
# Conjugate gradients need as many rounds for few columns as for many, so with an operator the largest k is tried first:
# 45 products instead of 87 to 103 for K = 125, n = 2¹⁴, d = 2¹⁷, and 25 instead of 119 with 20 dB of noise.
LEAP = 0.5  # the same for this try
SHARE = 0.3  # to which a fit by conjugate gradients reduces the derivatives during the search, ...
TIDY = 1e-3  # ... if the residual is noise, ...
POLISH = 1e-8  # ... and if it is zero
# A path that found k columns is certain if there are enough measurements and the residual is a small share of ‖y‖².
# This held for 1 of 302 paths that had failed without noise; with 20 dB of noise for all where n ≥ 5K.
ENOUGH = 2.0  # times k log(d/k)
MANY = 6.0  # instead, for the leap to the largest k, which was wrong once with 2; not tuned
LITTLE = 0.03
ALIKE = 0.7  # the cosine of columns that are hard to tell apart; random ones stay below it
# The prices of a coefficient.  Chosen on 73 settings (the known one on 65 of them): d = 256 to 1024, K = 1 to 26, 10 to
# 40 dB, bounds K to 8K, four ensembles, complex numbers, Gaussian, ±1 and decaying amplitudes.  All three lie at the
# edge of what was tried: 3 to 6, 4 to 9, 1 to 4.  Of pure noise 2 in 100 get a column.
PRICE_KNOWN = 6.0  # where the noise is known
PRICE_GUESSED = 9.0  # where it is estimated, ...
PRICE_FIRST = 1.0  # ... from a support that is rather too large: signal left in the noise makes all seem noise
TOGETHER = 64  # columns from which on more than one is removed at once
# Chosen at d = 256 and 1024 where about 9 of 10 signals are found (K = 16 and 26, Gaussian and ±1 amplitudes).
MOST_STEPS = 80  # hardly any signal is found later; 40 are too few for d = 16n
HASTE = 1.9  # γ's relative change to this power: half the steps; from 2 on it swings
DAMPING = 0.75  # 1 is the exact rule and needs 1.6 times the steps; 0.5 loses 3 of 100 signals
WIDE_START = 4.0  # times the variance that would explain y if all columns had it; 0.25 loses 2 to 12 of 100 signals
LATE = 15  # from this step on columns that have become small are not tried
MINOR = 1e-4  # of the largest coefficient
GONE = 1e-8  # of the largest variance: the column takes no part any more; 1e-4 would lose small coefficients
WIDE = 0.75  # of n: the largest number of columns in a fit
MOST_WORK = 10**9  # n²d (four times that if complex): about ten seconds

Search = Generator[Record, None, list[Iterate]]  # a record per stage; then the points found
Effort = Callable[[list[Iterate]], Search]


def most(k: int, n: int, d: int) -> int:
    """The largest number of non-zeros to look for: with fewer measurements than unknowns, half as many as those."""
    return min(k, d if n >= d else max(1, n // 2))


class AutoSearch(SignalRun):
    """All signals together; those that are done drop out."""

    limit = math.inf

    def __init__(
        self, given: Measurements, system: Linear, noise: float | None, residual: float | None, k: int
    ) -> None:
        super().__init__(given, system, "auto", noise, residual)
        self.k = k
        # of the noise in a row, if it is known
        self.energy = self.noise**2 * given.entries / given.n if self.noise else None
        self.most = most(k, system.n, system.d)
        self.starts = list(self.now)
        self.sizes = [Sizes(system, self.energy) for _ in self.starts]
        near = EXACT if isinstance(system, Matrix) else NEAR
        self.near = [near**2 * start.misfit for start in self.starts]

    def stages(self, state: Any) -> Iterator[Record]:
        yield self.record(0)
        self._end(self.starts)
        for start in self.starts:
            if not start.negative_gradient.any():
                self.ends[start.signal] = Status("converged", "no column correlates with y")
        for effort, enough in self._efforts():
            points = [start for start in self.starts if self.ends[start.signal] is None]
            if points:
                self._judge((yield from effort(points)), enough)
        if not isinstance(self.system, Matrix):  # fits were rough; this one is the last
            self.best = self.system.fit(self.best, [point.columns for point in self.best], POLISH)

    def exhausted(self) -> Status:
        return Status("converged", "no other support is better by the criterion for their size")

    def _efforts(self) -> Iterator[tuple[Effort, float]]:
        """The methods of finding a support, the cheapest first, and how many measurements make each one certain."""
        if not isinstance(self.system, Matrix):
            yield partial(self._path, ks=[self.most], still=LEAP), MANY
        yield partial(self._path, ks=rungs(self.most), still=STILL), ENOUGH
        if isinstance(self.system, Matrix) and affordable(self.system):
            yield self._reweight, ENOUGH

    # --- ways to find a support ----------------------------------------------------------------------------------
    def _path(self, points: list[Iterate], ks: Sequence[int], still: float) -> Search:
        """Subspace pursuits for growing k, until y is fitted exactly."""
        now = list(points)
        for k in ks:
            slow = SLOW if k < ks[-1] else still
            active = [i for i, point in enumerate(now) if not self._exact(point)]
            for _ in range(STEPS):
                if not active:
                    break
                moved = self._tidied(exchange(self.system, k, [now[i] for i in active], SHARE))
                before = [now[i] for i in active]
                yield self._stage(before, moved)
                for i, point in zip(active, moved, strict=True):
                    now[i] = point
                active = [
                    i
                    for i, old in zip(active, before, strict=True)
                    if now[i].misfit < slow**2 * old.misfit and not self._exact(now[i])
                ]
        return now

    def _reweight(self, points: list[Iterate]) -> Search:
        """Signal by signal, on all cores."""
        system, found = self.system, list[Iterate]()
        assert isinstance(system, Matrix)
        runs = ordered_map(lambda point: reweight(system, point, self.k, self._exact), points)
        for point, (new, products) in zip(points, runs, strict=True):
            system.products += products
            found += self._tidied([new])
            yield self._stage([point], found[-1:])
        return found

    # --- what was found -------------------------------------------------------------------------------------------
    def _first(self, points: Sequence[Iterate]) -> list[float]:
        """The misfits of zero."""
        return [self.starts[point.signal].misfit for point in points]

    def _exact(self, point: Iterate) -> bool:
        """Whether y is fitted exactly; to reach the goal for known noise is not enough."""
        small = EXACT**2 * self.starts[point.signal].misfit
        return point.misfit <= small or (self.energy is None and self.reached(point))

    def _clear(self, point: Iterate, enough: float) -> bool:
        """Whether a support whose residual is noise is certain."""
        size = point.columns.size
        needed = enough * size * math.log(self.system.d / size) if size else 0.0
        little = LITTLE * self.starts[point.signal].misfit
        guessed = self.energy is None and point.misfit <= little  # known noise needs no guess
        if needed > self.system.n or not (guessed or self.reached(point)):
            return False
        return not (isinstance(self.system, Matrix) and affordable(self.system) and self._has_doubles(point))

    def _has_doubles(self, point: Iterate) -> bool:
        """Whether a column outside is so similar to one inside that a pursuit may have confused them."""
        assert isinstance(self.system, Matrix)
        inside = self.system.block(point.signal, point.columns).dense()
        alike = np.abs(inside.conj() @ self.system.A)
        sizes = np.linalg.norm(inside, axis=1)[:, np.newaxis] * column_norms(self.system.A)
        alike[:, point.columns] = 0.0
        return bool((alike > ALIKE * sizes).any())

    def _judge(self, points: list[Iterate], enough: float) -> None:
        """End the signals that are done; for the others take the support of the best size."""
        self._end(points)
        noisy = [point for point in points if not self._exact(point)]
        for point, first in zip(noisy, self._first(noisy), strict=True):
            self.sizes[point.signal].seen.append(remove(self.system, point, first))
        supports = [self.sizes[point.signal].best() for point in noisy]
        for point in self.system.fit(noisy, supports, TIDY) if noisy else []:
            self.best[point.signal] = point
            if self._clear(point, enough):
                self.ends[point.signal] = Status(
                    "converged", f"the residual of {point.columns.size} columns is noise only"
                )

    def _end(self, points: Sequence[Iterate]) -> None:
        for point in points:
            if self._exact(point):
                self.best[point.signal] = point
                self.ends[point.signal] = REACHED

    def _tidied(self, points: list[Iterate]) -> list[Iterate]:
        """The points; those with almost no residual are fitted again, on as few columns as possible."""
        near = [i for i, p in enumerate(points) if p.misfit <= self.near[p.signal] or self._exact(p)]
        some = [points[i] for i in near]
        small = self._without(some, [self.near[point.signal] for point in some])
        again = [i for i, point in enumerate(small) if not self._exact(point)]
        if again:  # a small coefficient was dropped, or is still missing: a precise fit tells it from rounding
            full = self.system.fit([some[i] for i in again], [some[i].columns for i in again], POLISH)
            for i, whole, part in zip(again, full, self._without(full, [0.0] * len(full)), strict=True):
                small[i] = part if self._exact(part) else min(whole, small[i], key=lambda point: point.misfit)
                self.near[part.signal] = 0.01 * small[i].misfit
        tidied = list(points)
        for i, point in zip(near, small, strict=True):
            tidied[i] = point
        return tidied

    def _without(self, points: list[Iterate], floors: Sequence[float]) -> list[Iterate]:
        """Remove as many columns as possible while the misfit stays below its goal, its present value or a floor."""
        supports = []
        for point, first, floor in zip(points, self._first(points), floors, strict=True):
            there = self.energy is None and self.reached(point)
            goal = self.goals[point.signal] if there else 4.0 * max(floor, point.misfit)
            limit = 2.0 * self.system.n * float(goal)
            removal = remove(self.system, point, first, limit)
            size = int(np.argmax(removal.squares <= limit))
            supports.append(removal.left(size))
        return self.system.fit(points, supports, POLISH) if points else []

    def _stage(self, before: Sequence[Iterate], after: Sequence[Iterate]) -> Record:
        """The record of a stage; it shows the best points, with those of this stage in their places."""
        self.now = list(self.best)
        for point in after:
            self.now[point.signal] = point
            if not self.sizes[point.signal].seen:  # until there is something better
                self.best[point.signal] = point
        return self.record(entered(before, after))


def rungs(most: int) -> list[int]:
    """The values of k, upwards."""
    ks = [max(1, most // LOWEST)]
    while ks[-1] < most:
        ks.append(min(most, max(ks[-1] + 1, math.ceil(ks[-1] * FACTOR))))
    return ks


# --- reweighted least squares ----------------------------------------------------------------------------------------
def affordable(system: Matrix) -> bool:
    return system.n**2 * system.d * (4 if system.dtype == np.complex128 else 1) <= MOST_WORK


def reweight(system: Matrix, start: Iterate, k: int, exact: Callable[[Iterate], bool]) -> tuple[Iterate, int]:
    """Reweighted least squares: the first fit that is `exact`, or the last one; and the number of products it took.

    Every coefficient gets a variance of its own, and x is the mean of the Gaussian with these variances given y = Ax
    (the size of the noise need not be known).  The new variances are γ = |x|² + the variance that is left.  Most of
    them go to zero, and with them the columns that are not needed [1]_.  It costs n²d operations per step.
    Computing the variance left for each column, instead of lowering one number on a schedule, finds 7 of 100 signals
    more where 83 are found (eight settings, K = 16 and 26; for ±1 amplitudes 10, for Gaussian ones 5).

    References
    ----------
    .. [1] Wipf & Rao, *Sparse Bayesian learning for basis selection*, IEEE Transactions on Signal Processing 52(8),
       2004.
    """
    A = np.asarray(system.A if isinstance(system.A, np.ndarray) else system.A.toarray(), system.dtype)
    y = system.y[start.signal].T
    tried = np.empty(0, np.int64)
    alive = np.arange(system.d)
    variance = np.full(system.d, WIDE_START * squared_norm(y) / (y.shape[1] * squared_norm(A)))
    size = np.zeros(system.d)
    for step in range(MOST_STEPS):
        system.check()
        found = _posterior(A, y, variance)
        if found is None:
            break
        size, change = found
        columns = _largest(size, min(k, int(WIDE * system.n)), MINOR if step >= LATE else 0.0)
        if not np.array_equal(alive[columns], tried):
            tried = alive[columns]
            [point] = system.fit([start], [tried])
            if exact(point):
                return point, 2 * system.n * (step + 1)
        variance = variance * change**HASTE
        stay = variance > GONE * variance.max()
        if np.count_nonzero(stay) < 0.9 * stay.size:  # a copy for less is not worth it
            A, variance, alive, size = A[:, stay], variance[stay], alive[stay], size[stay]
    [point] = system.fit([start], [alive[_largest(size, min(k, system.n // 2), MINOR)]])
    return point, 2 * system.n * (step + 1)


def _posterior(A: Array, y: Array, variance: Numbers) -> tuple[Numbers, Numbers] | None:
    """The size of every coefficient's mean, and by which factor its variance changes; None if A has lost rank."""
    potrf, trtrs = get_lapack_funcs(("potrf", "trtrs"), (A,))
    root = np.sqrt(variance)
    scaled = A * root
    spread = scaled @ scaled.conj().T
    spread.flat[:: len(spread) + 1] += 1e-14 * np.trace(spread).real / len(spread)
    factor, info = potrf(spread, lower=True)
    if info:
        return None
    half, _ = trtrs(factor, scaled, lower=True)
    mean = magnitudes(trtrs(factor, y, lower=True)[0].T.conj() @ half)  # of x/root, (columns,)
    known = np.einsum("ij,ij->j", half, half.conj()).real  # the share of its variance that y takes from a coefficient
    # the exact rule is |x|² + γ(1 − known) = γ(1 + known·(drive − 1))
    drive = mean**2 / (y.shape[1] * np.maximum(known, 1e-300))
    change = np.maximum(1.0 + known**DAMPING * (drive - 1.0), 1e-12)
    return root * mean, change


def _largest(size: Numbers, count: int, small: float) -> Columns:
    [columns] = top(size[np.newaxis], count)
    return columns[size[columns] > small * size.max()]


# --- how many columns ------------------------------------------------------------------------------------------------
class Removal(NamedTuple):
    """The columns of a support, the last to be removed first, and ‖y − Ax‖² with 0, 1, 2, ... of them left."""

    columns: Columns
    squares: Numbers

    def left(self, size: int) -> Columns:
        return np.sort(self.columns[:size])


def remove(system: Linear, point: Iterate, first: float, limit: float = math.inf) -> Removal:
    """Remove columns, each time those that raise ‖y − Ax‖² least, until none is left or it is above a limit (it then
    counts as infinite for fewer columns); `first` is the misfit without any.

    An operator has no columns to compute this from: they are removed by the size of their coefficients, as if
    independent.
    """
    rest = 2.0 * system.n * point.misfit
    if isinstance(system, Matrix):
        inverse = _inverse(system.gram(point.signal, point.columns))
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


def _eliminate(point: Iterate, inverse: Array, rest: float, limit: float) -> Removal:
    """Remove by the exact rise of ‖y − Ax‖² without a column, |x_j|²/(G⁻¹)_jj; of many columns several at once, and all
    whose rise is negligible beside the limit."""
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
        gone, across_gone = both[:, : len(x)], both[:, len(x) :]
        together = float(np.vdot(x[:, left:].T, gone).real)
        each = np.cumsum(rises[left:][::-1])[::-1]
        share = together / each[0] if each[0] > 0.0 else 0.0
        squares[left : columns.size] = squares[columns.size] + share * each
        final[left : columns.size] = columns[left:]
        x, inverse = x[:, :left] - (across @ gone).T, inverse[:left, :left] - across @ across_gone
        columns = columns[:left]
    final[: columns.size], squares[: columns.size] = columns, np.inf
    return Removal(final, squares)


class Sizes:
    """The choice among supports of all sizes that were found for a signal."""

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

    def _size(self, squares: Numbers) -> int:
        if self.energy is not None:
            with np.errstate(over="ignore"):  # σ² may underflow
                return int(np.argmin(squares / max(self.energy, 1e-300) + self.cost(squares.size, PRICE_KNOWN)))
        # σ unknown: first by the likelihood with the best σ for each size, corrected for the degrees of freedom
        free = np.maximum(self.n - np.arange(squares.size), 1)
        worth = np.log(np.maximum(squares, 1e-300) / free) + self.cost(squares.size, PRICE_FIRST) / free
        first = int(np.argmin(worth[: max(1, self.n - 1)]))
        guess = max(float(squares[first]) / (self.n - first), 1e-300)
        return int(np.argmin(squares[: first + 1] / guess + self.cost(first + 1, PRICE_GUESSED)))

    def cost(self, count: int, price: float) -> Numbers:
        """The price of supports with 0, 1, ..., count − 1 columns."""
        k = np.arange(count)
        choices = gammaln(self.d + 1) - gammaln(k + 1) - gammaln(self.d - k + 1)
        return 2.0 * choices / self.numbers + price * k
