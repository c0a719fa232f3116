"""Least squares for every number of columns at once: a walk over the sizes in a model that is exact.

Everything that does not depend on k is computed once: the covariances with y, the variances, and the Gram rows of the
columns that were ever about to enter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...problem import Problem
from ..newton import Refitter
from .pivots import FLAT, Array, Columns, Tableau, load, new_tableau
from .walk import (
    DONE,
    EXCHANGING,
    LARGEST,
    ROUNDS,
    ROWS,
    WANTED,
    BestSupports,
    new_walk,
    perturb_walk,
    settle,
    walk_on,
)

SHARE, FLOOR = 1e-9, 1e-14  # an exchange must lower F by this share of it, and of its value without any column
TURNS = 20  # changes of direction of a walk
BEYOND = 0.25  # share of the largest size by which a walk goes beyond it
FEW, MANY = 6, 24  # Gram rows computed at once; many where the data do not fit into the cache
CACHED = 8_000_000  # numbers that fit
SMALL = 64  # columns whose Gram matrix is computed whole
PAUSE = 2000  # pivots between two looks at the clock
LOOKS, WORKING = 4, 120  # perturbations happen among the columns with the largest predicted decrease at so many sizes


class Effort(NamedTuple):
    """How long to search beyond the walk."""

    rounds: int  # of perturbations, at most
    patience: int  # rounds without a better fit after which to stop
    each: int  # perturbations of every size in a round


EFFORTS = {"fast": Effort(0, 0, 0), "default": Effort(6, 1, 2), "best": Effort(60, 10, 4)}


class Stop(NamedTuple):
    """The fit at one size."""

    columns: Columns  # the kept ones first
    x: Array
    constant: float
    objective: float
    swap_optimal: bool


class SquaredPath:
    """The best supports of all sizes that were found; the ridge may be another one at every size."""

    def __init__(self, problem: Problem, check: Callable[[], None], largest: int) -> None:
        self.problem, self.check, self.wanted_size = problem, check, largest
        self.refitter = refitter = Refitter(problem, check)
        self.c, self.own = -refitter.first_gradient, refitter.spread
        target = problem.y - problem.offset
        self.middle = float(np.average(target, weights=problem.weight)) if problem.intercept else 0.0
        self.target = target - self.middle
        self.total = float(problem.weight @ (self.target * self.target)) / problem.n
        if not (np.isfinite(self.total) and np.isfinite(self.c).all() and np.isfinite(self.own).all()):
            raise np.linalg.LinAlgError("numbers that overflow")
        d, kept = problem.d, problem.kept.size
        usable = int(np.count_nonzero(self.own > 0.0)) - kept
        self.largest = max(0, min(largest + max(2, round(BEYOND * largest)), usable, problem.n - 1 - kept))
        self.slots = kept + self.largest + 1
        self.rows, self.row_of, self.known = np.empty((0, d)), np.full(d, -1, np.int64), 0
        batch = MANY if problem.n * d > CACHED else FEW
        self.wanted = np.empty(min(batch, d), np.int64)
        if d <= max(3 * self.largest, SMALL):
            self.fetch(np.arange(d))
        else:
            first = most_promising(self.c, self.own, self.own, max(8, self.largest // 2, batch))
            self.fetch(np.union1d(problem.kept, first))

    def fetch(self, columns: Columns) -> None:
        """Compute the Gram rows of some columns."""
        more = self.refitter.cross(self.refitter.block(columns), self.problem.weight)
        end = self.known + columns.size
        if end > len(self.rows):
            room = np.empty((max(2 * len(self.rows), end), self.problem.d))
            room[: self.known] = self.rows[: self.known]
            self.rows = room
        self.rows[self.known : end], self.row_of[columns], self.known = more, np.arange(self.known, end), end

    def tableau(self, l2: float, columns: Columns) -> Tableau:
        """The model under a ridge with these columns in, the kept ones first."""
        t = new_tableau(self.c, self.own, np.full(self.c.size, l2), self.total, self.slots, self.problem.kept.size)
        load(t, columns, self.rows, self.row_of)
        return t

    # --- the walk ------------------------------------------------------------------------------------------------
    def walk(self, l2: float, effort: str) -> BestSupports:
        """BestSupports over all sizes under one ridge."""
        kept, rules = self.problem.kept, EFFORTS[effort]
        t, walk = self.tableau(l2, kept), new_walk(self.largest, self.slots)
        walk.columns[0, : kept.size] = kept
        walk.value[0] = self.total - float(t.c[kept] @ t.v[: kept.size])
        self._walk_on(t, walk)
        quiet, rng = 0, np.random.default_rng(0)
        for _ in range(rules.rounds):
            quiet = 0 if self._perturbed(walk, l2, rules.each, rng) else quiet + 1
            if quiet == 0:
                self._walk_on(t, walk)
            elif quiet >= rules.patience:
                break
        return walk

    def _walk_on(self, t: Tableau, walk: BestSupports) -> None:
        walk.state[ROUNDS] = walk.state[EXCHANGING] = 0
        while True:
            self.check()
            floor = FLOOR * self.total
            how = walk_on(t, walk, self.rows, self.row_of, SHARE, floor, TURNS, self.wanted, PAUSE)
            if how == DONE:
                return
            if how == ROWS:
                self.fetch(self.wanted[: walk.state[WANTED]].copy())

    def _perturbed(self, walk: BestSupports, l2: float, each: int, rng: np.random.Generator) -> int:
        """Perturb all supports among the most promising columns; returns how many were improved."""
        self.check()
        within, kept = self._working_set(walk, l2), self.problem.kept
        number = np.zeros(self.problem.d, np.int64)
        number[within] = np.arange(within.size)
        G, at = self.refitter.gram(within, self.problem.weight), np.arange(within.size)
        t = new_tableau(self.c[within], self.own[within], np.full(at.size, l2), self.total, self.slots, kept.size)
        load(t, number[kept], G, at)
        here = walk._replace(columns=number[walk.columns])
        high, improved = min(self.wanted_size, int(walk.state[LARGEST])), 0
        for _ in range(each):
            shares, priority = rng.uniform(0.2, 1.0, high + 1), rng.random(at.size)
            improved += perturb_walk(t, here, G, at, shares, priority, SHARE, FLOOR * self.total, high)
        walk.columns[:] = within[here.columns]
        new = np.unique(walk.columns[np.isfinite(walk.value)])
        if (self.row_of[new] < 0).any():
            self.fetch(new[self.row_of[new] < 0])
        return improved

    def _working_set(self, walk: BestSupports, l2: float) -> Columns:
        """The columns whose Gram rows are known, and those with the largest predicted decrease at a few sizes."""
        chosen, kept = [np.flatnonzero(self.row_of >= 0)], self.problem.kept.size
        if chosen[0].size < self.problem.d:
            for k in np.unique(np.linspace(1, walk.state[LARGEST], LOOKS).astype(int)):
                if np.isfinite(walk.value[k]):
                    t = self.tableau(l2, walk.columns[k, : kept + k])
                    chosen.append(most_promising(t.u, t.D, t.own, WORKING))
        return np.unique(np.concatenate(chosen))

    # --- the end -------------------------------------------------------------------------------------------------
    def stops(self, walk: BestSupports, sizes: Sequence[int], ridges: Sequence[float]) -> list[Stop]:
        """The fits at some sizes, each exchanged until nothing is gained under its own ridge."""
        kept, supports, state = self.problem.kept.size, [], np.zeros_like(walk.state)
        known = np.flatnonzero(np.isfinite(walk.value))
        for k, l2 in zip(sizes, ridges, strict=True):
            self.check()
            size = int(known[known <= k][-1])
            t = self.tableau(l2, walk.columns[size, : kept + size])
            while settle(t, self.rows, self.row_of, SHARE, FLOOR * self.total, self.wanted, state) == ROWS:
                self.fetch(self.wanted[: state[WANTED]].copy())
            supports.append((t.columns[: kept + size].copy(), l2))
        return self._fits(supports)

    def _fits(self, supports: list[tuple[Columns, float]]) -> list[Stop]:
        """Coefficients on some supports, from the rows themselves: one pass over the columns of all of them."""
        problem, weight = self.problem, self.problem.weight / self.problem.n
        used = np.unique(np.concatenate([columns for columns, _ in supports]))
        block, means = self.refitter.block(used).copy(), self.refitter.centre[used]
        block -= means[:, np.newaxis]
        X = np.zeros((len(supports), used.size))
        inverses = [self._inverse(columns, l2) for columns, l2 in supports]
        for step in range(2):  # the second step is from the residuals of the first: it mends what was rounded
            residual = self.target - X @ block
            gradient = (residual * weight) @ block.T if step else np.broadcast_to(self.c[used], X.shape)
            for x, g, (columns, l2), inverse in zip(X, gradient, supports, inverses, strict=True):
                at = np.searchsorted(used, columns)
                x[at] += inverse @ (g[at] - l2 * x[at])
        residual = self.target - X @ block
        found = []
        for x, r, (columns, l2) in zip(X, residual, supports, strict=True):
            objective = 0.5 * float(weight @ (r * r)) + (0.5 * l2 * float(x @ x) if l2 else 0.0)
            constant = self.middle - float(means @ x) if problem.intercept else 0.0
            found.append(Stop(columns, x[np.searchsorted(used, columns)], constant, objective, True))
        return found

    def _inverse(self, columns: Columns, l2: float) -> Any:
        G = self.rows[self.row_of[columns]][:, columns]
        G.flat[:: columns.size + 1] += l2
        return np.linalg.inv(G)


def most_promising(u: Array, left: Array, own: Array, count: int) -> Columns:
    """The columns that would lower the model most by themselves."""
    usable = left > FLAT * own
    worth = np.where(usable, u * u / np.where(usable, left, 1.0), -1.0)
    return np.argpartition(-worth, count - 1)[:count] if count < u.size else np.arange(u.size)
