r"""Least squares with groups of columns, several targets, or both, for every number of groups at once.

.. math:: \min_W \frac1{2n}\sum_i \tilde w_i\|y_i - a_iW\|^2 + \frac\lambda2\|W\|^2
          \quad\text{s.t.}\quad W \text{ is zero outside } k \text{ groups of rows (and the kept ones)}
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np

from ...problem import Problem
from .group_pivots import GroupTableau, new_group_tableau
from .pivots import ROWS, Array, Columns
from .squared import BELOW, BEYOND, CHANGED, EFFORTS, FLOOR, MORE, SHARE, TURNS, Effort, Stop
from .walk import (
    BEGUN,
    DONE,
    EXCHANGING,
    LARGEST,
    ROUNDS,
    WANTED,
    BestSupports,
    new_walk,
    perturb_walk,
    settle,
    walk_on,
)

CHUNK = 1 << 20  # numbers of the columns whose own blocks are computed at a time
FIRST = 2  # times as many groups as are wanted have their Gram rows computed before a walk
BATCH = 8  # groups whose Gram rows are computed at a time
LIKELY = 3  # times as many groups as are wanted take part in perturbations
PAUSE = 50  # pivots between two looks at the clock


class GroupedPath:
    """The best supports of all sizes that were found; `groups` has one number per column, from 0 without gaps."""

    def __init__(
        self,
        problem: Problem,
        targets: Array,
        groups: Columns,
        check: Callable[[], None],
        largest: int,
        smallest: int = 1,
        start: Columns | None = None,
    ) -> None:
        """The sizes from `smallest` to `largest` are wanted; `start` has columns of the groups to search from."""
        self.problem, self.check, self.wanted_size, self.single = problem, check, largest, smallest == largest
        self.passes = 2  # over the rows: the groups' own blocks and the targets; more for Gram rows
        kept, weight = problem.kept, problem.weight / problem.n
        self.weight = weight
        self.middle = weight @ targets if problem.intercept else np.zeros(targets.shape[1])
        self.target = np.ascontiguousarray((targets - self.middle).T)
        self.total = float(np.sum(self.target * self.target * weight))
        own = problem.design.column_moments(problem.weight, problem.intercept)[1]
        free = np.setdiff1d(np.flatnonzero(own > 0.0), kept)
        free = free[np.argsort(groups[free], kind="stable")]
        self.order = np.concatenate([kept, free])  # the model's columns: the kept ones, then group by group
        names, counts = np.unique(groups[free], return_counts=True)
        self.starts = kept.size + np.concatenate([[0], np.cumsum(counts)])
        self.blocks = self._own_blocks()
        self.c = problem.design.left_product(self.target * weight)[:, self.order]
        if not (np.isfinite(self.total) and np.isfinite(self.c).all() and np.isfinite(self.blocks).all()):
            raise np.linalg.LinAlgError("numbers that overflow")
        self.largest = max(0, min(largest + max(2, round(BEYOND * largest)), counts.size))
        widths = np.sort(counts)[::-1]
        self.slots = int(kept.size + widths[: self.largest + 1].sum())
        lowest = max(1, min(smallest - max(1, round(BELOW * smallest)), self.largest))
        self.best = new_walk(self.largest, lowest)  # readable at any time
        self.first = np.empty(0, np.int64)  # the groups of the start
        if start is not None:
            self.first = np.flatnonzero(np.isin(names, groups[np.intersect1d(start, free)]))[: self.largest]
            self.best.choices[self.first.size, : self.first.size] = self.first
            self.best.value[self.first.size], self.best.up[0] = self.total, self.first.size == 0
        self.rows, self.row_of = np.empty((0, self.order.size)), np.full(self.order.size, -1)
        self.wanted = np.empty(BATCH * int(widths[0]) if widths.size else 1, np.int64)

    # --- the model -----------------------------------------------------------------------------------------------
    def _block(self, at: Columns) -> tuple[Array, Array]:
        """Some of the model's columns, one row each, centred if there is an intercept; and their means."""
        block, means = np.empty((at.size, self.problem.n)), np.zeros(at.size)
        if at.size:
            self.problem.design.read_columns(self.order[at], block)
        if self.problem.intercept:
            means = block @ self.weight
            block -= means[:, np.newaxis]
        return block, means

    def _own_blocks(self) -> Array:
        """The Gram matrices of the kept columns, each by itself, and of the groups, row by row."""
        kept, parts = self.starts[0], []
        edges, root = np.concatenate([np.arange(kept), self.starts]), np.sqrt(self.weight)
        step = max(1, CHUNK // self.problem.n)
        low = 0
        while low < edges.size - 1:
            self.check()
            high = max(low + 1, int(np.searchsorted(edges, edges[low] + step, side="right")) - 1)
            block = self._block(np.arange(edges[low], edges[high]))[0] * root
            widths, first = np.diff(edges[low : high + 1]), edges[low]
            if (widths == widths[0]).all():
                cube = block.reshape(widths.size, widths[0], -1)
                parts.append(np.matmul(cube, cube.transpose(0, 2, 1)).ravel())
            else:
                pieces = [block[a - first : b - first] for a, b in zip(edges[low:high], edges[low + 1 :], strict=False)]
                parts += [(piece @ piece.T).ravel() for piece in pieces]
            low = high
        return np.concatenate([np.empty(0), *parts])

    def fetch(self, at: Columns) -> None:
        """Compute the Gram rows of some of the model's columns."""
        at = at[self.row_of[at] < 0]
        if at.size:
            self.passes += 1
            more = self.problem.design.left_product(self._block(at)[0] * self.weight)[:, self.order]
            self.row_of[at] = np.arange(len(self.rows), len(self.rows) + at.size)
            self.rows = np.concatenate([self.rows, more])

    def _columns(self, groups: Columns) -> Columns:
        """The model's columns of the kept ones and of some groups."""
        parts = [np.arange(self.starts[g], self.starts[g + 1]) for g in groups]
        return np.concatenate([np.arange(self.starts[0]), *parts]).astype(np.int64)

    # --- the walk ------------------------------------------------------------------------------------------------
    def walk(self, l2: float, effort: str) -> None:
        """Find the best supports of all sizes under one ridge."""
        rules, rng = EFFORTS[effort], np.random.default_rng(0)
        t = new_group_tableau(self.c, self.blocks, self.starts, l2, self.total, self.slots)
        worth = self._entry_worths(t)
        likely = np.argsort(-worth, kind="stable")[: FIRST * self.wanted_size]
        self.fetch(self._columns(np.union1d(likely, self.first)))
        try:
            for left in range(rules.walks - 1, -1, -1):
                self._walk_on(t)
                if not left or not self._perturb(t, l2, rules, rng):
                    break
        except BaseException:
            self.check = lambda: None  # what was found so far can be read without another look at the clock
            raise

    def _walk_on(self, t: GroupTableau) -> None:
        best, how = self.best, ROWS
        best.state[ROUNDS] = best.state[EXCHANGING] = best.state[BEGUN] = 0
        fixed, floor = np.arange(self.starts[0]), FLOOR * self.total
        while how != DONE:
            self.check()
            how = walk_on(t, best, fixed, self.rows, self.row_of, SHARE, floor, TURNS, self.wanted, PAUSE)
            if how == ROWS:
                self.fetch(self.wanted[: best.state[WANTED]].copy())

    @staticmethod
    def _entry_worths(t: GroupTableau) -> Array:
        """What the entry of each group would be worth if its columns were orthogonal."""
        squares = t.base.u**2 + (t.u**2).sum(axis=0)
        usable = t.base.D > 0.0
        each = np.where(usable, squares / np.where(usable, t.base.D, 1.0), 0.0)
        return np.add.reduceat(each, t.starts[:-1]) if t.starts.size > 1 else np.empty(0)

    def _perturb(self, t: GroupTableau, l2: float, rules: Effort, rng: np.random.Generator) -> int:
        """Perturb all supports among the most promising groups; returns how many were improved."""
        best, high = self.best, min(self.wanted_size, int(self.best.state[LARGEST]))
        if self.starts.size == 1:  # there is nothing to choose from
            return 0
        known = best.choices[np.flatnonzero(np.isfinite(best.value))]
        likely = np.argsort(-self._entry_worths(t), kind="stable")[: LIKELY * self.wanted_size]
        groups = np.union1d(known, likely)
        at = self._columns(groups)
        self.fetch(at)
        G = np.ascontiguousarray(self.rows[self.row_of[at]][:, at])
        widths = np.diff(self.starts)[groups]
        starts = self.starts[0] + np.concatenate([[0], np.cumsum(widths)])
        edges = np.concatenate([np.arange(self.starts[0]), starts])
        blocks = np.concatenate([G[a:b, a:b].ravel() for a, b in itertools.pairwise(edges)])
        small, spare = (
            new_group_tableau(np.ascontiguousarray(self.c[:, at]), blocks, starts, l2, self.total, self.slots)
            for _ in range(2)
        )
        here = best._replace(choices=np.searchsorted(groups, best.choices))
        every, floor = np.arange(at.size), FLOOR * self.total
        walk_on(small, here, np.arange(self.starts[0]), G, every, SHARE, floor, -1, self.wanted, 0)  # loads the model
        total = 0
        for _ in range(rules.rounds):
            improved = 0
            for _ in range(MORE * rules.each if self.single else rules.each):
                self.check()
                shares, priority = rng.uniform(*CHANGED, high + 1), rng.random(groups.size)
                low = high if self.single else 2
                improved += perturb_walk(small, spare, here, G, every, shares, priority, SHARE, floor, low, high)
            total += improved
            if not improved:
                break
        best.choices[:] = groups[here.choices]
        return total

    # --- the end -------------------------------------------------------------------------------------------------
    @property
    def null(self) -> float:
        """The objective of the intercepts and the kept columns alone."""
        return 0.5 * float(self.best.value[0])

    def stops(self, sizes: Sequence[int], ridges: Sequence[float]) -> list[Stop]:
        """The fits at some sizes, each exchanged until nothing is gained under its own ridge."""
        known, found = np.flatnonzero(np.isfinite(self.best.value)), []
        for k, l2 in zip(sizes, ridges, strict=True):
            size = int(known[known <= k][-1])
            t = new_group_tableau(self.c, self.blocks, self.starts, l2, self.total, self.slots)
            here = new_walk(max(size, 1), size)
            here.choices[size, :size], here.value[size] = self.best.choices[size, :size], self.total
            here.up[:] = False
            self._settle(t, here)
            found.append(self._fit(t, l2))
        return found

    def _settle(self, t: GroupTableau, here: BestSupports) -> None:
        """Exchange from the only support of `here` until nothing is gained."""
        fixed, floor = np.arange(self.starts[0]), FLOOR * self.total
        walk_on(t, here, fixed, self.rows, self.row_of, SHARE, floor, -1, self.wanted, 1)  # loads the support
        while settle(t, self.rows, self.row_of, SHARE, floor, self.wanted, here.state) == ROWS:
            self.check()
            self.fetch(self.wanted[: here.state[WANTED]].copy())

    def _fit(self, t: GroupTableau, l2: float) -> Stop:
        """Coefficients on the columns that are in, from the rows themselves."""
        at = t.base.columns[: t.base.held[0]].copy()
        block, means = self._block(at)
        weighted = block * self.weight
        G = weighted @ block.T + l2 * np.eye(at.size)
        x = np.zeros((at.size, self.target.shape[0]))
        for _ in range(2):  # the second step mends what the first has rounded
            x += np.linalg.solve(G, weighted @ (self.target - x.T @ block).T - l2 * x)
        residual = self.target - x.T @ block
        objective = 0.5 * float(np.sum(residual * residual * self.weight))
        objective += 0.5 * l2 * float(np.sum(x * x)) if l2 else 0.0
        return Stop(self.order[at], x, self.middle - means @ x, objective, True)
