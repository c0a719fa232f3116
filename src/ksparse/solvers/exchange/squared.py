"""Least squares for every number of columns at once: a walk over the sizes in a model that is exact.

Everything that does not depend on k is computed once: the covariances with y, the variances, and the Gram rows of the
columns that were ever about to enter.  With few columns the model has the whole Gram matrix.  With many, a walk in
single precision finds the columns that are worth searching in double precision.  Every effort but "fast" ends with a
check in double precision that no exchange with any column lowers the objective.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...design.products import gram
from ...problem import Problem
from .pivots import ROWS, Array, Columns, Tableau, load, new_tableau
from .positive import PositiveTableau, new_positive_tableau
from .scout import CACHED, FEW, MANY, OwnRows, Scout, Sums, Wanted, most_promising
from .walk import (
    BEGUN,
    DONE,
    EXCHANGING,
    LARGEST,
    ROUNDS,
    WANTED,
    BestSupports,
    load_choices,
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
MORE = 3  # times as many perturbations where one size is wanted
BELOW = 0.1  # share of the smallest size by which a walk goes below it; smaller sizes are passed without exchanges
SMALL = 64  # columns whose Gram matrix is computed whole
WORKING_SETS, WIDE = 6, 4  # searches for one size, and the columns of the first of them, in units of that size
PAUSE, WORK = 2000, 3e7  # pivots between two looks at the clock, and multiplications (some 30 ms)
CHANGED = (0.2, 1.0)  # smallest and largest share of columns that a perturbation takes out
LOOKS = 4  # sizes at which columns are looked for that perturbations may take

AnyTableau = Tableau | PositiveTableau


class Effort(NamedTuple):
    """How long to search beyond the walk."""

    walks: int  # over all columns, at most; each but the last is followed by perturbations
    rounds: int  # of perturbations, at most
    patience: int  # rounds without a better fit after which to stop
    each: int  # perturbations of every size in a round
    working: int  # columns with the largest predicted decrease at each of `LOOKS` sizes, among which they happen


# "default" was measured on nine paths: with 120 columns instead of 80 they took 343 ms instead of 247, and their
# objectives fell by less than 0.01%.
EFFORTS = {
    "fast": Effort(1, 0, 0, 0, 0),
    "default": Effort(2, 6, 1, 2, 80),
    "best": Effort(10, 60, 10, 4, 120),
}


class Stop(NamedTuple):
    """The fit at one size."""

    columns: Columns  # the kept ones first
    x: Array  # (columns,), or (columns, outputs)
    constant: Any  # a number, or (outputs,)
    objective: float
    swap_optimal: bool


class Exact(NamedTuple):
    """A model in double precision on some columns, whose Gram rows are all known."""

    columns: Columns
    block: Array  # the columns themselves, one row each, centred if there is an intercept; or empty
    means: Array
    G: Array
    c: Array
    own: Array


class SquaredPath:
    """The best supports of all sizes that were found; the ridge may be another one at every size."""

    def __init__(
        self, problem: Problem, check: Callable[[], None], largest: int, smallest: int = 1, start: Columns | None = None
    ) -> None:
        """The sizes from `smallest` to `largest` are wanted; `start` is a support to search from."""
        self.problem, self.check, self.wanted_size, self.single = problem, check, largest, smallest == largest
        self.passes = 1  # over the rows; more for Gram rows and models
        target = problem.y - problem.offset
        self.middle = float(np.average(target, weights=problem.weight)) if problem.intercept else 0.0
        self.target = target - self.middle
        self.weight = problem.weight / problem.n
        self.total = float(self.weight @ (self.target * self.target))
        self.mean, self.own = problem.design.column_moments(problem.weight, problem.intercept)
        if not (np.isfinite(self.total) and np.isfinite(self.own).all()):
            raise np.linalg.LinAlgError("numbers that overflow")
        d, kept, n = problem.d, problem.kept.size, int(np.count_nonzero(problem.weight))
        usable = int(np.count_nonzero(self.own > 0.0)) - kept
        # without a ridge more columns than rows fit exactly
        most = usable if problem.l2 > 0.0 else min(usable, n - int(problem.intercept) - kept)
        self.largest = max(0, min(largest + max(2, round(BEYOND * largest)), most))
        self.slots = kept + self.largest + 1
        lowest = max(1, min(smallest - max(1, round(BELOW * smallest)), self.largest))
        self.best, self.thorough = new_walk(self.largest, lowest), True  # the supports are readable at any time
        if start is not None:
            self._start_from(np.setdiff1d(start, problem.kept)[: self.largest])
        self.shared: Sums | None = None  # where sums over the rows come from, if not from the problem's own rows
        self.exact: Exact | None = None  # the model, if it has but a few columns
        self._last: Exact | None = None  # the last model, whose columns need not be read again
        self.rows, self.row_of, self.known = np.empty((0, d)), np.full(d, -1, np.int64), 0
        self.batch = min(MANY if n * d > CACHED else FEW, d)

    def _start_from(self, columns: Columns) -> None:
        best, columns = self.best, columns[self.own[columns] > 0.0]
        best.choices[columns.size, : columns.size] = columns
        best.value[columns.size], best.up[0] = self.total, columns.size == 0  # the value is computed as a walk begins

    @functools.cached_property
    def c(self) -> Array:
        """Covariances of all columns with the target."""
        c = self.problem.design.moments(self.weight * self.target, np.empty(0))[0]
        if not np.isfinite(c).all():
            raise np.linalg.LinAlgError("numbers that overflow")
        return c

    @functools.cached_property
    def rng(self) -> np.random.Generator:
        """For perturbations."""
        return np.random.default_rng(0)

    # --- the walk ------------------------------------------------------------------------------------------------
    def walk(self, l2: float, effort: str) -> None:
        """Find the best supports of all sizes under one ridge."""
        for owner, columns in self.steps(l2, effort):
            owner.fetch(columns)

    def steps(self, l2: float, effort: str) -> Wanted[None]:
        """The same walk, which stops whenever Gram rows are missing: the caller has to fetch them.

        Supports that perturbations have improved are walked from once more, over all columns, until none is improved.
        """
        d, rules = self.problem.d, EFFORTS[effort]
        self.thorough = effort != "fast"
        try:
            if d <= max(3 * self.largest, SMALL):
                self._search(self._model(np.arange(d)), l2, rules, rules.rounds)
                return
            if self.problem.positive or (self.single and self.problem.n * d > CACHED):
                self._search_working_sets(l2, rules)
                return
            scout = self._scout(l2)
            columns = np.empty(0, np.int64)
            for left in range(rules.walks - 1, -1, -1):
                best = self._unnumbered()
                if scout is None or not (yield from scout.walk(best, self._pause(), self.check)):
                    scout = None
                    yield from self._walk_all(l2)
                columns = np.union1d(columns, self._working_set(scout or self, rules.working))
                if not self._search(self._model(columns), l2, rules, rules.rounds if left else 0):
                    break
        except BaseException:
            self.check = lambda: None  # what was found so far can be read without another look at the clock
            raise

    def _search_working_sets(self, l2: float, rules: Effort) -> None:
        """Search, each time with the columns added that would lower the best fit of the largest size most.

        A pass over the rows for their covariances with the residuals costs less than the Gram rows of a walk.
        """
        k, best, kept = min(self.wanted_size, self.largest), self.best, self.problem.kept
        u, columns, value = self.c, np.union1d(kept, best.choices[np.isfinite(best.value)]), np.inf
        for number in range(WORKING_SETS):
            u = np.maximum(u, 0.0) if self.problem.positive else u
            more = most_promising(u, self.own, self.own, k + 50 if number else max(WIDE * k, k + 50))
            columns = np.union1d(columns, more)
            self._unnumbered()
            model = self._model(columns)
            self._search(model, l2, rules, 0)
            if not best.value[k] < value * (1.0 - SHARE):
                break
            value, t = best.value[k], self._loaded(model, best.choices[k, :k], l2)
            S, x = t.columns[: t.held[0]], t.v[: t.held[0]]
            u = self.problem.design.moments(
                self.weight * (self.target - x @ self._block(model.columns[S])[0]), np.empty(0)
            )[0]
        self._unnumbered()
        self._search(model, l2, rules, rules.rounds)

    def _scout(self, l2: float) -> Scout | None:
        """A walk in single precision; None where the rows do not allow it."""
        with np.errstate(over="ignore", divide="ignore"):
            scale = np.where(self.own > 0.0, 1.0 / np.sqrt(self.own), 0.0)
        if not self.total > 0.0:
            return None
        if self.shared is not None:
            source = self.shared.single(scale)
        else:
            Z = self.problem.design.single_copy(self.mean, scale)
            source = None if Z is None else OwnRows(Z, self.weight)
        if source is None:
            return None
        return Scout(self.problem, source, scale, self.target, self.total, self.slots, self.batch, l2)

    def _walk_all(self, l2: float) -> Wanted[None]:
        """Walk over all columns in double precision."""
        kept, best, wanted, how = self.problem.kept, self.best, np.empty(self.batch, np.int64), ROWS
        if self.known == 0:
            first = most_promising(self.c, self.own, self.own, max(8, self.slots // 2, self.batch))
            yield self, np.union1d(kept, first)
            self.t = new_tableau(self.c, self.own, np.full(self.own.size, l2), self.total, self.slots, kept.size)
        used = np.unique(best.choices[np.isfinite(best.value)])
        yield self, used[self.row_of[used] < 0]
        best.state[ROUNDS] = best.state[EXCHANGING] = 0
        while how != DONE:
            how = self._walk_on(self.t, kept, self.rows, self.row_of, wanted)
            if how == ROWS:
                yield self, wanted[: best.state[WANTED]].copy()

    def _unnumbered(self) -> BestSupports:
        """The best supports in the numbers of all columns, to be walked from anew."""
        if self.exact is not None:
            self.best.choices[:] = self.exact.columns[self.best.choices]
            self.exact = None
        self.best.state[BEGUN] = 0
        return self.best

    def _working_set(self, over: Any, count: int) -> Columns:
        """The columns whose Gram rows are known, and those with the largest predicted decrease at a few sizes."""
        best, chosen = self.best, [np.flatnonzero(over.row_of >= 0)]
        if count:
            sizes = [self.wanted_size] if self.single else np.linspace(1, best.state[LARGEST], LOOKS)
            for k in np.unique(np.minimum(sizes, best.state[LARGEST]).astype(int)):
                if np.isfinite(best.value[k]):
                    load(over.t, np.concatenate([self.problem.kept, best.choices[k, :k]]), over.rows, over.row_of)
                    chosen.append(most_promising(over.t.u, over.t.D, over.t.own, count))
        return np.unique(np.concatenate(chosen))

    def _search(self, model: Exact, l2: float, rules: Effort, rounds: int) -> int:
        """Walk among a few columns, and perturb; returns how many supports the perturbations have improved."""
        best, t = self.best, self._tableau(model, l2)
        best.choices[:] = np.searchsorted(model.columns, best.choices)
        best.state[BEGUN], self.exact = 0, model
        self._walk_among(t, model)
        quiet, total, spare = 0, 0, self._tableau(model, l2)
        for _ in range(rounds):
            improved = self._perturb(model, t, spare, rules.each)
            quiet, total = 0 if improved else quiet + 1, total + improved
            if improved:
                self._walk_among(t, model)
            elif quiet >= rules.patience:
                break
        return total

    def _perturb(self, model: Exact, t: AnyTableau, spare: AnyTableau, each: int) -> int:
        """Perturb all supports among the columns of the model; returns how many were improved."""
        best, improved, at = self.best, 0, np.arange(model.columns.size)
        high = min(self.wanted_size, int(best.state[LARGEST]))
        step = int(np.clip(WORK / (at.size * self.slots**2), 1, self.slots))  # sizes between two looks at the clock
        for _ in range(MORE * each if self.single else each):
            shares, priority = self.rng.uniform(*CHANGED, high + 1), self.rng.random(at.size)
            for low in range(high if self.single else 2, high + 1, step):
                self.check()
                top, floor = min(low + step - 1, high), FLOOR * self.total
                improved += perturb_walk(t, spare, best, model.G, at, shares, priority, SHARE, floor, low, top)
        return improved

    def _walk_among(self, t: AnyTableau, model: Exact) -> None:
        """Walk among the columns of a model."""
        self.best.state[ROUNDS] = self.best.state[EXCHANGING] = 0
        fixed, at = np.searchsorted(model.columns, self.problem.kept), np.arange(model.columns.size)
        while self._walk_on(t, fixed, model.G, at, np.empty(0, np.int64)) != DONE:
            pass

    def _walk_on(self, t: AnyTableau, fixed: Columns, rows: Array, row_of: Columns, wanted: Columns) -> int:
        self.check()
        how = (SHARE, FLOOR * self.total, TURNS, wanted, self._pause())
        return int(walk_on(t, self.best, fixed, rows, row_of, *how))

    def _pause(self) -> int:
        return int(np.clip(WORK / (self.problem.d * self.slots), 1, PAUSE))

    # --- Gram rows and models ------------------------------------------------------------------------------------
    def _block(self, columns: Columns) -> tuple[Array, Array]:
        """Some columns, one row each, centred if there is an intercept; and their means."""
        block, means = np.empty((columns.size, self.problem.n)), np.zeros(columns.size)
        known, old = self._last, np.zeros(columns.size, dtype=bool)
        if known is not None and known.block.size:
            old = np.isin(columns, known.columns)
            at = np.searchsorted(known.columns, columns[old])
            block[old], means[old] = known.block[at], known.means[at]
        if not old.all():
            new = np.empty((int((~old).sum()), self.problem.n)) if old.any() else block
            self.problem.design.read_columns(columns[~old], new)
            if self.problem.intercept:
                means[~old] = new @ self.weight
                new -= means[~old, np.newaxis]
            block[~old] = new
        return block, means

    def fetch(self, columns: Columns) -> None:
        """Compute the Gram rows of some columns."""
        if columns.size == 0:
            return
        self.passes += 1
        if self.shared is None:
            more = self.problem.design.left_product(self._block(columns)[0] * self.weight)
        else:
            more = self.shared.rows(columns)
        end = self.known + columns.size
        if end > len(self.rows):
            room = np.empty((max(2 * len(self.rows), end), self.problem.d))
            room[: self.known] = self.rows[: self.known]
            self.rows = room
        self.rows[self.known : end], self.row_of[columns], self.known = more, np.arange(self.known, end), end

    def _model(self, columns: Columns) -> Exact:
        """The model on some columns."""
        block = means = np.empty(0)
        if self.shared is not None and columns.size == self.problem.d:
            G, c = self.shared.gram(), self.c
        else:
            block, means = self._block(columns)
            weighted = block * np.sqrt(self.weight)
            G, c = gram(weighted), block @ (self.weight * self.target)
        if not (np.isfinite(c).all() and np.isfinite(G).all()):
            raise np.linalg.LinAlgError("numbers that overflow")
        self._last = Exact(columns, block, means, G, c, np.where(self.own[columns] > 0.0, G.diagonal(), 0.0))
        return self._last

    def _tableau(self, model: Any, l2: float) -> AnyTableau:
        """The model, or that on all columns, with none of them in."""
        t = new_tableau(model.c, model.own, np.full(model.c.size, l2), self.total, self.slots, self.problem.kept.size)
        return new_positive_tableau(t) if self.problem.positive else t

    def fit_on(self, columns: Columns, l2: float) -> Stop:
        """The fit on some columns beside the kept ones, without a search."""
        free = np.setdiff1d(columns, self.problem.kept)[: self.largest]
        model = self._model(np.union1d(self.problem.kept, free))
        t = self._loaded(model, np.searchsorted(model.columns, free), l2)
        return self._fits(model, t.columns[np.newaxis, : t.held[0]], np.array([l2]), False)[0]

    def _loaded(self, model: Exact, choices: Columns, l2: float) -> Tableau:
        """The model with some choices in beside the kept columns."""
        t, fixed = self._tableau(model, l2), np.searchsorted(model.columns, self.problem.kept)
        load_choices(t, fixed, choices, model.G, np.arange(len(model.G)))
        return t.base if isinstance(t, PositiveTableau) else t

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
        self._settle_all(columns, found, l2)
        used = np.unique(columns[columns >= 0])
        columns[columns >= 0] = np.searchsorted(used, columns[columns >= 0])
        return self._fits(self._model(used), columns, l2, True)

    def _settle_all(self, columns: Columns, sizes: Columns, ridges: Array) -> None:
        """Exchange the columns at each size with all others of the problem, until nothing is gained."""
        state, wanted = np.zeros_like(self.best.state), np.empty(self.batch, np.int64)
        for S, k in zip(columns, sizes, strict=True):
            held, size = int(np.count_nonzero(S >= 0)), self.problem.kept.size + k
            if held < size:  # the others have the coefficient zero: any may stand for them
                S[held:size] = np.setdiff1d(np.flatnonzero(self.own > 0.0), S)[: size - held]
        used = np.unique(columns[columns >= 0])
        self.fetch(used[self.row_of[used] < 0])
        t, kept = self._tableau(self, 0.0), self.problem.kept
        base = t.base if isinstance(t, PositiveTableau) else t
        for S, l2 in zip(columns, ridges, strict=True):
            self.check()
            base.ridge[:], base.own[:] = l2, self.own + l2
            if isinstance(t, PositiveTableau):
                load_choices(t, kept, S[S >= 0][kept.size :], self.rows, self.row_of)
            else:
                load(t, S[S >= 0], self.rows, self.row_of)
            while settle(t, self.rows, self.row_of, SHARE, FLOOR * self.total, wanted, state) == ROWS:
                self.fetch(wanted[: state[WANTED]].copy())
            S[:] = -1
            S[: base.held[0]] = base.columns[: base.held[0]]

    def _fits(self, model: Exact, columns: Columns, ridges: Array, optimal: bool) -> list[Stop]:
        """Coefficients on some supports, from the rows themselves; `columns` are numbered as in the model."""
        used, weight, G = np.unique(columns[columns >= 0]), self.weight, model.G
        if used.size < len(G) or model.block.size == 0:
            block, means = self._block(model.columns[used])
            columns, G = np.where(columns >= 0, np.searchsorted(used, columns), -1), G[np.ix_(used, used)]
        else:
            block, means = model.block, model.means
        X = np.zeros((len(columns), used.size))
        refine(G, ridges, columns, np.tile(model.c[used], (len(X), 1)), X)
        residual = self.target - X @ block  # the second step mends what the first has rounded
        refine(G, ridges, columns, (residual * weight) @ block.T, X)
        if self.problem.positive:  # no more than rounding is below zero
            np.maximum(X, 0.0, out=X, where=~np.isin(model.columns[used], self.problem.kept))
        residual = self.target - X @ block
        with np.errstate(over="ignore", invalid="ignore"):
            objectives = 0.5 * ((residual * residual) @ weight)
            objectives[ridges > 0.0] += (0.5 * ridges * np.einsum("ij,ij->i", X, X))[ridges > 0.0]
        constants = self.middle - X @ means if self.problem.intercept else np.zeros(len(X))
        stops = []
        for x, S, constant, objective in zip(X, columns, constants.tolist(), objectives.tolist(), strict=True):
            S = S[S >= 0]
            stops.append(Stop(model.columns[used[S]], x[S], constant, objective, optimal))
        return stops
