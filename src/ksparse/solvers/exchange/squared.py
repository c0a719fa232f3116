"""Least squares for every number of columns at once: a walk over the sizes in a model that is exact.

Everything that does not depend on k is computed once: the covariances with y, the variances, and the Gram rows of the
columns that were ever about to enter.  With few columns the model has the whole Gram matrix.  With many, a "fast"
search walks in single precision and then searches the columns it met in double precision; the others walk over all
columns in double precision, and so know that no exchange lowers the objective.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...problem import Problem
from .pivots import FLAT, ROWS, Array, Columns, Tableau, load, new_tableau
from .scout import CACHED, FEW, MANY, Scout
from .walk import (
    BEGUN,
    DONE,
    EXCHANGING,
    LARGEST,
    ROUNDS,
    WANTED,
    new_walk,
    perturb_walk,
    refine,
    settle,
    settle_sizes,
    walk_on,
)

SHARE, FLOOR = 1e-9, 1e-14  # an exchange must lower F by this share of it, and of its value without any column
TURNS = 20  # changes of direction of a walk
BEYOND = 0.25  # share of the largest size by which a walk goes beyond it
SMALL = 64  # columns whose Gram matrix is computed whole
PAUSE, WORK = 2000, 3e7  # pivots between two looks at the clock, and multiplications (some 30 ms)
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


class Exact(NamedTuple):
    """A model in double precision on some columns, whose Gram rows are all known."""

    columns: Columns
    block: Array  # the columns themselves, one row each, centred if there is an intercept
    means: Array
    G: Array
    c: Array
    own: Array


class SquaredPath:
    """The best supports of all sizes that were found; the ridge may be another one at every size."""

    def __init__(self, problem: Problem, check: Callable[[], None], largest: int) -> None:
        self.problem, self.check, self.wanted_size = problem, check, largest
        target = problem.y - problem.offset
        self.middle = float(np.average(target, weights=problem.weight)) if problem.intercept else 0.0
        self.target = target - self.middle
        self.weight = problem.weight / problem.n
        self.total = float(self.weight @ (self.target * self.target))
        self.mean, self.own = problem.design.column_moments(problem.weight, problem.intercept)
        if not (np.isfinite(self.total) and np.isfinite(self.own).all()):
            raise np.linalg.LinAlgError("numbers that overflow")
        d, kept = problem.d, problem.kept.size
        usable = int(np.count_nonzero(self.own > 0.0)) - kept
        self.largest = max(0, min(largest + max(2, round(BEYOND * largest)), usable, problem.n - 1 - kept))
        self.slots = kept + self.largest + 1
        self.best, self.thorough = new_walk(self.largest), True  # the supports are readable at any time
        self.exact: Exact | None = None  # the model, if it has but a few columns
        self.rows, self.row_of, self.known = np.empty((0, d)), np.full(d, -1, np.int64), 0
        self.batch = min(MANY if problem.n * d > CACHED else FEW, d)

    @functools.cached_property
    def c(self) -> Array:
        """Covariances of all columns with the target."""
        c = self.problem.design.moments(self.weight * self.target, np.empty(0))[0]
        if not np.isfinite(c).all():
            raise np.linalg.LinAlgError("numbers that overflow")
        return c

    # --- the walk ------------------------------------------------------------------------------------------------
    def walk(self, l2: float, effort: str) -> None:
        """Find the best supports of all sizes under one ridge."""
        d, self.thorough = self.problem.d, effort != "fast"
        try:
            small = d <= max(3 * self.largest, SMALL)
            scouted = None if small else self._scout(l2)
            columns = np.arange(d) if small else self._walk_all(l2) if scouted is None else scouted
            self._search(columns, l2, EFFORTS[effort])
        except BaseException:
            self.check = lambda: None  # what was found so far can be read without another look at the clock
            raise

    def _scout(self, l2: float) -> Columns | None:
        """Walk in single precision; the columns to search, or None if that precision does not suffice."""
        problem = self.problem
        with np.errstate(over="ignore", divide="ignore"):
            scale = np.where(self.own > 0.0, 1.0 / np.sqrt(self.own), 0.0)
        Z = problem.design.single_copy(self.mean, scale) if self.total > 0.0 else None
        if Z is None:
            return None
        scout = Scout(problem, Z, scale, self.target, self.total, self.slots)
        usable = scout.usable.astype(np.float64)
        first = most_promising(scout.c, usable, usable, max(8, self.largest // 2, scout.batch))
        if not scout.walk(self.best, l2, first, self._pause(), self.check):
            self.best = new_walk(self.largest)
            return None
        return self._working_set(scout.t, scout.rows, scout.row_of)

    def _walk_all(self, l2: float) -> Columns:
        """Walk over all columns in double precision; the columns to search."""
        kept = self.problem.kept
        first = most_promising(self.c, self.own, self.own, max(8, self.largest // 2, self.batch))
        self.fetch(np.union1d(kept, first))
        t = new_tableau(self.c, self.own, np.full(self.own.size, l2), self.total, self.slots, kept.size)
        self._walk_on(t)
        return self._working_set(t, self.rows, self.row_of)

    def _working_set(self, t: Tableau, rows: Any, row_of: Columns) -> Columns:
        """The columns whose Gram rows are known, and those with the largest predicted decrease at a few sizes."""
        best, chosen = self.best, [np.flatnonzero(row_of >= 0)]
        if self.thorough:
            for k in np.unique(np.linspace(1, best.state[LARGEST], LOOKS).astype(int)):
                if np.isfinite(best.value[k]):
                    load(t, np.concatenate([self.problem.kept, best.choices[k, :k]]), rows, row_of)
                    chosen.append(most_promising(t.u, t.D, t.own, WORKING))
        return np.unique(np.concatenate(chosen))

    def _search(self, columns: Columns, l2: float, rules: Effort) -> None:
        """Walk among a few columns, and perturb."""
        model, best, at = self._model(columns), self.best, np.arange(columns.size)
        t = self._tableau(model, l2)
        best.choices[:] = np.searchsorted(columns, best.choices)
        best.state[BEGUN], self.exact = 0, model
        self._walk_on(t, model.G, at)
        quiet, rng = 0, np.random.default_rng(0)
        for _ in range(rules.rounds):
            quiet = 0 if self._perturb(t, model.G, at, rules.each, rng) else quiet + 1
            if quiet == 0:
                self._walk_on(t, model.G, at)
            elif quiet >= rules.patience:
                break

    def _walk_on(self, t: Tableau, G: Array | None = None, at: Columns | None = None) -> None:
        best, wanted = self.best, np.empty(self.batch, np.int64)
        best.state[ROUNDS] = best.state[EXCHANGING] = 0
        kept, how = self.problem.kept, ROWS
        fixed = kept if self.exact is None else np.searchsorted(self.exact.columns, kept)
        while how != DONE:
            self.check()
            rows, row_of = (self.rows, self.row_of) if G is None else (G, at)
            how = walk_on(t, best, fixed, rows, row_of, SHARE, FLOOR * self.total, TURNS, wanted, self._pause())
            if how == ROWS:
                self.fetch(wanted[: best.state[WANTED]].copy())

    def _pause(self) -> int:
        return int(np.clip(WORK / (self.problem.d * self.slots), 1, PAUSE))

    def _perturb(self, t: Tableau, G: Array, at: Columns, each: int, rng: np.random.Generator) -> int:
        """Perturb all supports among columns whose Gram rows are known; returns how many were improved."""
        best, improved = self.best, 0
        high = min(self.wanted_size, int(best.state[LARGEST]))
        step = int(np.clip(WORK / (at.size * self.slots**2), 1, self.slots))  # sizes between two looks at the clock
        for _ in range(each):
            shares, priority = rng.uniform(0.2, 1.0, high + 1), rng.random(at.size)
            for low in range(2, high + 1, step):
                self.check()
                top, floor = min(low + step - 1, high), FLOOR * self.total
                improved += perturb_walk(t, best, G, at, shares, priority, SHARE, floor, low, top)
        return improved

    # --- Gram rows and models ------------------------------------------------------------------------------------
    def _block(self, columns: Columns) -> tuple[Array, Array]:
        """Some columns, one row each, centred if there is an intercept; and their means."""
        block, means = np.empty((columns.size, self.problem.n)), np.zeros(columns.size)
        self.problem.design.read_columns(columns, block)
        if self.problem.intercept:
            means = block @ self.weight
            block -= means[:, np.newaxis]
        return block, means

    def fetch(self, columns: Columns) -> None:
        """Compute the Gram rows of some columns."""
        if columns.size == 0:
            return
        more = self.problem.design.left_product(self._block(columns)[0] * self.weight)
        end = self.known + columns.size
        if end > len(self.rows):
            room = np.empty((max(2 * len(self.rows), end), self.problem.d))
            room[: self.known] = self.rows[: self.known]
            self.rows = room
        self.rows[self.known : end], self.row_of[columns], self.known = more, np.arange(self.known, end), end

    def _model(self, columns: Columns) -> Exact:
        """The model on some columns."""
        block, means = self._block(columns)
        weighted = block * self.weight
        G, c = weighted @ block.T, weighted @ self.target
        if not (np.isfinite(c).all() and np.isfinite(G).all()):
            raise np.linalg.LinAlgError("numbers that overflow")
        return Exact(columns, block, means, G, c, np.where(self.own[columns] > 0.0, G.diagonal(), 0.0))

    def _tableau(self, model: Exact, l2: float) -> Tableau:
        d, kept = model.columns.size, self.problem.kept.size
        return new_tableau(model.c, model.own, np.full(d, l2), self.total, self.slots, kept)

    # --- the end -------------------------------------------------------------------------------------------------
    @property
    def null(self) -> float:
        """The objective of the intercept and the kept columns alone."""
        return 0.5 * float(self.best.value[0])

    def stops(self, sizes: Sequence[int], ridges: Sequence[float]) -> list[Stop]:
        """The fits at some sizes, each exchanged until nothing is gained under its own ridge."""
        known = np.flatnonzero(np.isfinite(self.best.value))
        found = known[np.searchsorted(known, np.asarray(sizes), side="right") - 1]
        l2 = np.asarray(ridges, dtype=np.float64)
        columns = np.full((found.size, self.slots), -1)
        kept = self.problem.kept
        model = self.exact
        if model is None:  # the walk was interrupted early
            for b, k in enumerate(found):
                columns[b, : kept.size + k] = np.concatenate([kept, self.best.choices[k, :k]])
        else:
            t, at, fixed = self._tableau(model, l2[0]), np.arange(len(model.G)), np.searchsorted(model.columns, kept)
            floor = FLOOR * self.total
            settle_sizes(t, self.best, model.G, at, fixed, model.own, found, l2, SHARE, floor, columns)
            complete = model.columns.size == self.problem.d
            if complete or not self.thorough:
                return self._fits(model, columns, l2, complete)
            columns[columns >= 0] = model.columns[columns[columns >= 0]]
        self._settle_all(columns, l2)
        used = np.unique(columns[columns >= 0])
        columns[columns >= 0] = np.searchsorted(used, columns[columns >= 0])
        return self._fits(self._model(used), columns, l2, True)

    def _settle_all(self, columns: Columns, ridges: Array) -> None:
        """Exchange the columns at each size with all others of the problem, until nothing is gained."""
        state, wanted = np.zeros_like(self.best.state), np.empty(self.batch, np.int64)
        used = np.unique(columns[columns >= 0])
        self.fetch(used[self.row_of[used] < 0])
        t = new_tableau(self.c, self.own, np.zeros(self.own.size), self.total, self.slots, self.problem.kept.size)
        for S, l2 in zip(columns, ridges, strict=True):
            self.check()
            t.ridge[:], t.own[:] = l2, self.own + l2
            load(t, S[S >= 0], self.rows, self.row_of)
            while settle(t, self.rows, self.row_of, SHARE, FLOOR * self.total, wanted, state) == ROWS:
                self.fetch(wanted[: state[WANTED]].copy())
            S[: t.held[0]] = t.columns[: t.held[0]]

    def _fits(self, model: Exact, columns: Columns, ridges: Array, optimal: bool) -> list[Stop]:
        """Coefficients on some supports, from the rows themselves; `columns` are numbered as in the model."""
        X, weight = np.zeros((len(columns), model.columns.size)), self.weight
        refine(model.G, ridges, columns, np.tile(model.c, (len(X), 1)), X)
        residual = self.target - X @ model.block  # the second step mends what the first has rounded
        refine(model.G, ridges, columns, (residual * weight) @ model.block.T, X)
        residual = self.target - X @ model.block
        with np.errstate(over="ignore", invalid="ignore"):
            objectives = 0.5 * ((residual * residual) @ weight)
            objectives[ridges > 0.0] += (0.5 * ridges * np.einsum("ij,ij->i", X, X))[ridges > 0.0]
        constants = self.middle - X @ model.means if self.problem.intercept else np.zeros(len(X))
        stops = []
        for x, S, constant, objective in zip(X, columns, constants.tolist(), objectives.tolist(), strict=True):
            S = S[S >= 0]
            stops.append(Stop(model.columns[S], x[S], constant, objective, optimal))
        return stops


def most_promising(u: Any, left: Any, own: Array, count: int) -> Columns:
    """The columns that would lower the model most by themselves."""
    usable = left > FLAT * own
    worth = np.where(usable, u * u / np.where(usable, left, 1.0), -1.0)
    return np.argpartition(-worth, count - 1)[:count] if count < u.size else np.arange(u.size)
