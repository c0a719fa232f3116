"""One search for columns, groups of columns and features of several outputs, for one size or many.

The squared loss has a model that is exact (`squared.py`, `grouped.py`); all other losses, and least squares whose
numbers overflow or whose kept columns depend on each other, go through local models (`smooth.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...engine.loop import State
from ...losses import SoftmaxLoss, SquaredTargets
from ...problem import Problem
from ...result import Status
from ..block import Targets
from .group_pivots import Choices
from .grouped import GroupedPath
from .pivots import Array, Columns
from .sample import SampledSearch, begins_with_sample, columns_fit
from .smooth import SmoothSearch
from .squared import SquaredPath, Stop

ROOM = 1 << 30  # bytes that Gram rows and models may take
PER_SIZE, MORE = 6, 100  # rows of d numbers that a walk may hold: so many per size, and more
NUMBERS = (np.linalg.LinAlgError, ZeroDivisionError)  # columns that depend on each other, numbers that overflow


class Asked(NamedTuple):
    """What is searched for: the problem, the sizes, and what is chosen together."""

    problem: Problem
    sizes: Sequence[int]
    effort: str = "default"
    groups: Columns | None = None  # a number for every column, from 0 without gaps; None if each is for itself
    Y: Array | None = None  # several targets (n, outputs), less the offset
    classes: tuple[Array, Array] | None = None  # class numbers and offsets (n, classes) of a softmax
    start: tuple[Array, Array] | None = None  # coefficients (d, outputs) and intercepts to search from

    @property
    def outputs(self) -> int:
        if self.classes is not None:
            return self.classes[1].shape[1]
        return 1 if self.Y is None else self.Y.shape[1]

    @property
    def quadratic(self) -> bool:
        return self.classes is None and bool(getattr(self.problem.loss, "quadratic", False))

    def ended(self, swap_optimal: bool) -> Status:
        """The status of a search that has ended."""
        what = "two columns" if self.groups is None else "two groups"
        where = "" if self.quadratic else " that the quadratic model favours"
        which = f"of {what}{where}" if swap_optimal else "that was tried"
        return Status("converged", f"no exchange {which} lowers the objective")


class Search:
    """The best fits found so far; what a caller in a loop, a path and a cross-validation have in common."""

    def __init__(self, asked: Asked, l2: float, check: Callable[[], None]) -> None:
        self.asked, self.l2, self.check = asked, l2, check
        self.exact: SquaredPath | GroupedPath | None = None
        self.local: SmoothSearch | SampledSearch | None = None
        problem, largest = asked.problem, max(asked.sizes)
        self.sampled = begins_with_sample(problem, asked.sizes)
        fits = 8 * problem.d * (PER_SIZE * largest + MORE) <= ROOM and columns_fit(problem.design, largest)
        if asked.quadratic and fits:
            try:
                with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                    self.exact = self._squared(largest, min(asked.sizes))
            except NUMBERS:
                pass
        if self.exact is None:
            self.local = self._smooth()

    def _squared(self, largest: int, smallest: int) -> SquaredPath | GroupedPath:
        asked, problem = self.asked, self.asked.problem
        start = None if asked.start is None else np.flatnonzero(asked.start[0].any(axis=1))
        if asked.groups is None and asked.Y is None:
            return SquaredPath(problem, self.check, largest, smallest, start)
        Y = (problem.y - problem.offset)[:, np.newaxis] if asked.Y is None else asked.Y
        groups = np.arange(problem.d) if asked.groups is None else asked.groups
        return GroupedPath(problem, Y, groups, self.check, largest, smallest, start)

    def _smooth(self) -> SmoothSearch | SampledSearch:
        asked, choices, targets = self.asked, None, None
        if asked.groups is not None:
            order = np.argsort(asked.groups, kind="stable")
            free = order[~np.isin(order, asked.problem.kept)]
            _, counts = np.unique(asked.groups[free], return_counts=True)
            choices = Choices(free, np.concatenate([[0], np.cumsum(counts)]))
        if asked.classes is not None:
            labels, offset = asked.classes
            targets = Targets(SoftmaxLoss(), labels, np.ascontiguousarray(offset.T).ravel(), asked.outputs, 0.5, True)
        elif asked.Y is not None:
            flat = np.ascontiguousarray(asked.Y.T).ravel()
            targets = Targets(SquaredTargets(), flat, np.zeros(flat.size), asked.outputs, 1.0, True)
        found: SmoothSearch | SampledSearch
        if self.sampled:
            found = SampledSearch(asked.problem, asked.sizes[0], self.check, asked.effort, choices, targets)
        else:
            found = SmoothSearch(asked.problem, asked.sizes, self.check, asked.effort, choices, targets)
        if asked.start is not None:
            found.begin_from(*asked.start)
        return found

    @property
    def null(self) -> float:
        """The objective of the intercept and the kept columns alone."""
        if self.local is not None:
            return self.local.null
        known = self.exact.null  # type: ignore[union-attr]
        return known if math.isfinite(known) else self._empty().objective

    @property
    def passes(self) -> int:
        """Passes over the rows so far."""
        return (self.exact if self.local is None else self.local).passes  # type: ignore[union-attr]

    def walk(self) -> Iterator[None]:
        """Search; yields where the search could continue from `state`."""
        if self.exact is not None:
            try:
                with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                    self.exact.walk(self.l2, self.asked.effort)
                yield
                return
            except NUMBERS:
                self._give_up()
        yield from self.local.walk()  # type: ignore[union-attr]

    def _give_up(self) -> None:
        """Least squares in the range of floats is not possible: local models with damping are."""
        self.exact, self.local = None, self._smooth()

    def stops(self, sizes: Sequence[int], ridges: Sequence[float]) -> list[Stop]:
        """The fits at some sizes, each exchanged until nothing is gained under its own ridge."""
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            if self.exact is not None:
                try:
                    stops = [in_two_dimensions(stop) for stop in self.exact.stops(sizes, ridges)]
                    if all(math.isfinite(stop.objective) and np.isfinite(stop.x).all() for stop in stops):
                        return stops
                except NUMBERS:
                    pass
                self._give_up()
                for _ in self.walk():
                    pass
            return [in_two_dimensions(stop) for stop in self.local.stops(sizes, ridges)]  # type: ignore[union-attr]

    def first(self) -> Stop:
        """The fit to begin with: the columns of the start, or the intercept and the kept columns alone."""
        if self.exact is None:
            return self.best(max(self.asked.sizes))[0]
        if self.asked.start is None:
            return self._empty()
        kept, chosen = self.asked.problem.kept, np.flatnonzero(self.asked.start[0].any(axis=1))
        if isinstance(self.exact, SquaredPath) and self.asked.problem.positive and chosen.size:
            try:
                return in_two_dimensions(self.exact.fit_on(chosen, self.l2))
            except NUMBERS:
                self._give_up()
                return self.best(max(self.asked.sizes))[0]
        return self._least_squares(np.concatenate([kept, np.setdiff1d(chosen, kept)]))

    def _empty(self) -> Stop:
        """The fit of the intercept and the kept columns alone."""
        kept, exact = self.asked.problem.kept, self.exact
        if kept.size or exact is None:
            return self._least_squares(kept)
        middle = np.atleast_1d(exact.middle)
        return Stop(kept, np.empty((0, middle.size)), middle, 0.5 * exact.total, False)

    @np.errstate(over="ignore", invalid="ignore")
    def _least_squares(self, columns: Columns) -> Stop:
        """The least-squares fit on some columns, the kept ones first."""
        problem, Y = self.asked.problem, self.asked.Y
        Y = (problem.y - problem.offset)[:, np.newaxis] if Y is None else Y
        share, block = problem.weight / problem.n, problem.design.dense_columns(columns)
        middle = share @ Y if problem.intercept else np.zeros(Y.shape[1])
        means = share @ block if problem.intercept else np.zeros(columns.size)
        block, Y = block - means, Y - middle
        weighted = (block * share[:, np.newaxis]).T
        G = weighted @ block + self.l2 * np.eye(columns.size)
        x = np.asarray(np.linalg.lstsq(G, weighted @ Y, rcond=1e-13)[0], dtype=np.float64)
        objective = 0.5 * float(np.sum(share @ (Y - block @ x) ** 2)) + (problem.ridge(x) if self.l2 else 0.0)
        return Stop(columns, x, middle - means @ x, objective, False)

    def best(self, k: int) -> tuple[Stop, bool]:
        """The best fit with at most k choices so far, and whether it has as many as it will have."""
        if self.exact is not None and not np.isfinite(self.exact.best.value).any():
            return self.first(), False
        if self.local is None:
            return self.stops([k], [self.l2])[0], True
        stop, full = self.local.best_at(k)
        return in_two_dimensions(stop), full

    def so_far(self) -> list[Stop]:
        """The fits of the sizes that were found before the search was interrupted; one at least."""
        for part in (self.exact, self.local):
            if part is not None:
                part.check = lambda: None  # what was found can be read without another look at the clock
        if self.exact is not None:
            known = np.flatnonzero(np.isfinite(self.exact.best.value))
            sizes = [k for k in self.asked.sizes if k <= known.max(initial=0)]
            return self.stops(sizes, [self.l2] * len(sizes)) if sizes else [self.first()]
        found = [self.best(k) for k in self.asked.sizes]
        return [stop for stop, full in found if full] or [found[0][0]]

    def state(self) -> State:
        """All that the search depends on at a yield; empty where it is quickly done again."""
        return {} if self.local is None else self.local.state_of()

    def restore(self, state: State) -> None:
        if state and self.local is not None:
            self.local.restore(state)


def in_two_dimensions(stop: Any) -> Stop:
    """A fit with coefficients (columns, outputs) and intercepts (outputs,)."""
    x = stop.x if stop.x.ndim == 2 else stop.x[:, np.newaxis]
    return Stop(stop.columns, x, np.atleast_1d(stop.constant), stop.objective, stop.swap_optimal)
