"""`recover`'s default: a path of subspace pursuits, then reweighting; it needs only a bound on the number of non-zeros.

A pursuit that is told too large a k fits noise, and needs more measurements than one that is told K.  So k grows from
one pursuit to the next, each of which starts where the last one ended, until nothing is left of y.  Where that never
happens, columns are removed again as long as a criterion improves (`size.py`); and unless the outcome is beyond doubt,
a more laborious way is tried (`reweight.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np

from .._threads import ordered_map
from ..result import Status
from ..solvers._pursuit import Point
from ..solvers._run import TimeUp
from ..solvers.sp import exchange
from .linear import Linear, Matrix, column_norms
from .pursue import Watch
from .reweight import affordable, reweight
from .size import Sizes, remove

# Chosen with d = 256, K = 12 to 26, near the fewest measurements that do; what concerns operators with d = 2¹⁴ and 2¹⁷.
EXACT = 1e-9  # of ‖y‖: nothing is left
# Fits by conjugate gradients that were stopped early leave more.  From here on a precise fit on few columns may show
# that nothing is left; if it does not, a tenth of what it leaves is the next try.  1e-3 takes small coefficients for
# none, and then a fit on all columns is needed.
NEAR = 1e-5
STEPS = 50  # with the same k at most
SLOW = 0.9  # a step that leaves more than this of the residual: what is missing is a larger k (a fifth fewer products)
STILL = 0.99  # the same for the last k
FACTOR = 1.5  # from k to k; of 100 signals the path alone finds 9 more than with 2, and as many as with 1.2
LOWEST = 64  # the first k is this part of the last
# Conjugate gradients need as many rounds for few columns as for many, so with an operator the largest k is tried first:
# 45 products instead of 87 to 103 for K = 125, n = 2¹⁴, d = 2¹⁷, and 25 instead of 119 with 20 dB of noise.
LEAP = 0.5  # as SLOW; less says that it will not do
SHARE = 0.3  # of the slopes that a fit by conjugate gradients leaves on the way, ...
TIDY = 1e-3  # ... where noise is left, ...
POLISH = 1e-8  # ... and where nothing is
# A path that found k columns is beyond doubt if there are enough measurements and little is left of ‖y‖².  So it seemed
# for 1 of 302 paths that had failed without noise; with 20 dB of noise for all where n ≥ 5K.
ENOUGH = 2.0  # times k log(d/k)
MANY = 6.0  # instead, for the leap to the largest k, which was wrong once with 2; not tuned
LITTLE = 0.03
ALIKE = 0.7  # the cosine of columns that are hard to tell apart; random ones stay below it

Effort = Callable[[list[Point]], list[Point]]


def most(k: int, n: int, d: int) -> int:
    """How many non-zeros are looked for at most: of fewer measurements than unknowns, half as many."""
    return min(k, d if n >= d else max(1, n // 2))


def search(system: Linear, k: int, energy: float | None, watch: Watch) -> tuple[list[Point], list[Status]]:
    """Every signal's point, and how its run ended; `energy` is that of the noise in a row, if it is known."""
    run = Search(system, k, energy, watch)
    try:
        run.run()
        left = Status("converged", "no other support is better by the criterion for their size")
    except TimeUp:
        left = Status("time limit", f"max_time = {watch.clock.limit:g} s is over", "give more time")
    except KeyboardInterrupt:
        left = Status("interrupted", "Ctrl-C")
    except Stop as stop:
        [left] = stop.args
    return run.best, [left if end is None else end for end in run.ends]


class Stop(Exception):
    """The callback wants no more."""


class Search:
    """All signals together; those that are done drop out."""

    def __init__(self, system: Linear, k: int, energy: float | None, watch: Watch) -> None:
        self.system, self.k, self.energy, self.watch = system, k, energy, watch
        self.most = most(k, system.n, system.d)
        self.starts = system.start()
        self.best = list(self.starts)
        self.sizes = [Sizes(system, energy) for _ in self.best]
        self.ends: list[Status | None] = [None] * len(self.best)
        near = EXACT if isinstance(system, Matrix) else NEAR
        self.near = [near**2 * start.misfit for start in self.starts]
        watch.stage(self.best, system.products, 0)

    def run(self) -> None:
        self._end(self.starts)
        for start in self.starts:
            if not start.slope.any():
                self.ends[start.signal] = Status("converged", "no column correlates with y")
        for effort, enough in self._efforts():
            points = [start for start in self.starts if self.ends[start.signal] is None]
            if points:
                self._judge(effort(points), enough)
        if not isinstance(self.system, Matrix):  # fits were rough; this one is the last
            self.best = self.system.fit(self.best, [point.columns for point in self.best], POLISH)

    def _efforts(self) -> Iterator[tuple[Effort, float]]:
        """The ways to look for a support, the cheapest first, and with how many measurements each is to be believed."""
        if not isinstance(self.system, Matrix):
            yield partial(self._path, ks=[self.most], still=LEAP), MANY
        yield partial(self._path, ks=rungs(self.most), still=STILL), ENOUGH
        if isinstance(self.system, Matrix) and affordable(self.system):
            yield self._reweight, ENOUGH

    # --- ways to find a support ----------------------------------------------------------------------------------
    def _path(self, points: list[Point], ks: Sequence[int], still: float) -> list[Point]:
        """Subspace pursuits for growing k, until nothing is left."""
        now = list(points)
        for k in ks:
            slow = SLOW if k < ks[-1] else still
            active = [i for i, point in enumerate(now) if not self._exact(point)]
            for _ in range(STEPS):
                if not active:
                    break
                moved = self._tidied(exchange(self.system, k, [now[i] for i in active], SHARE))
                before = [now[i] for i in active]
                self._stage(before, moved)
                for i, point in zip(active, moved, strict=True):
                    now[i] = point
                active = [
                    i
                    for i, old in zip(active, before, strict=True)
                    if now[i].misfit < slow**2 * old.misfit and not self._exact(now[i])
                ]
        return now

    def _reweight(self, points: list[Point]) -> list[Point]:
        """Signal by signal, on all cores."""
        system, found = self.system, []
        assert isinstance(system, Matrix)
        runs = ordered_map(lambda point: reweight(system, point, self.k, self._exact), points)
        for point, (new, products) in zip(points, runs, strict=True):
            system.products += products
            found += self._tidied([new])
            self._stage([point], found[-1:])
        return found

    # --- what was found -------------------------------------------------------------------------------------------
    def _first(self, points: Sequence[Point]) -> list[float]:
        """The misfits of zero."""
        return [self.starts[point.signal].misfit for point in points]

    def _near(self, point: Point) -> bool:
        return point.misfit <= self.near[point.signal] or self._exact(point)

    def _exact(self, point: Point) -> bool:
        """Whether nothing is left of y; the goal for known noise is not that."""
        small = EXACT**2 * self.starts[point.signal].misfit
        return point.misfit <= small or (self.energy is None and self.watch.reached(point))

    def _clear(self, point: Point, enough: float) -> bool:
        """Whether a support that leaves noise is beyond doubt."""
        size = point.columns.size
        needed = enough * size * math.log(self.system.d / size) if size else 0.0
        little = LITTLE * self.starts[point.signal].misfit
        guessed = self.energy is None and point.misfit <= little  # noise that is known is no more than it is
        if needed > self.system.n or not (guessed or self.watch.reached(point)):
            return False
        return not (isinstance(self.system, Matrix) and affordable(self.system) and self._has_doubles(point))

    def _has_doubles(self, point: Point) -> bool:
        """Whether a column outside is so like one inside that a pursuit may have taken the one for the other."""
        assert isinstance(self.system, Matrix)
        inside = self.system.block(point.signal, point.columns).dense()
        alike = np.abs(inside.conj() @ self.system.A)
        sizes = np.linalg.norm(inside, axis=1)[:, np.newaxis] * column_norms(self.system.A)
        alike[:, point.columns] = 0.0
        return bool((alike > ALIKE * sizes).any())

    def _judge(self, points: list[Point], enough: float) -> None:
        """End the signals that are done; of the others take the support of the best size."""
        self._end(points)
        noisy = [point for point in points if not self._exact(point)]
        for point, first in zip(noisy, self._first(noisy), strict=True):
            self.sizes[point.signal].seen.append(remove(self.system, point, first))
        supports = [self.sizes[point.signal].best() for point in noisy]
        for point in self.system.fit(noisy, supports, TIDY) if noisy else []:
            self.best[point.signal] = point
            if self._clear(point, enough):
                self.ends[point.signal] = Status("converged", f"{point.columns.size} columns leave nothing but noise")

    def _end(self, points: Sequence[Point]) -> None:
        for point in points:
            if self._exact(point):
                self.best[point.signal] = point
                self.ends[point.signal] = Status("converged", "the residual is as small as it was to be")

    def _tidied(self, points: list[Point]) -> list[Point]:
        """The points, those that leave next to nothing on as few columns as do it."""
        near = [i for i, point in enumerate(points) if self._near(point)]
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

    def _without(self, points: list[Point], floors: Sequence[float]) -> list[Point]:
        """Without as many columns as can go: the misfit stays at its goal, or near what it is, or near a floor."""
        supports = []
        for point, first, floor in zip(points, self._first(points), floors, strict=True):
            there = self.energy is None and self.watch.reached(point)
            goal = self.watch.goals[point.signal] if there else 4.0 * max(floor, point.misfit)
            limit = 2.0 * self.system.n * float(goal)
            removal = remove(self.system, point, first, limit)
            size = int(np.argmax(removal.squares <= limit))
            supports.append(removal.left(size))
        return self.system.fit(points, supports, POLISH) if points else []

    def _stage(self, before: Sequence[Point], after: Sequence[Point]) -> None:
        """Tell of the best points, with those of this stage in their places."""
        points = list(self.best)
        for point in after:
            points[point.signal] = point
        changes = sum(new.entered(old) for old, new in zip(before, after, strict=True))
        stopped = self.watch.stage(points, self.system.products, changes)
        for point in after:  # until there is something better
            if not self.sizes[point.signal].seen:
                self.best[point.signal] = point
        if stopped is not None:
            raise Stop(stopped)


def rungs(most: int) -> list[int]:
    """The values of k, upwards."""
    ks = [max(1, most // LOWEST)]
    while ks[-1] < most:
        ks.append(min(most, max(ks[-1] + 1, math.ceil(ks[-1] * FACTOR))))
    return ks
