"""The search on very many rows: supports on a growing sample of them, then a few passes over all rows.

On the sample `SmoothSearch` does the work; the sample doubles until the support stays the same.  Then all rows decide:
Newton refits whose every step is a pass (`passes.py`), a scan that scores all columns, and exchanges as long as one
lowers the objective.  Memory: the sample, d numbers a few times, and Hessians of a working set; nothing grows with
rows times columns, so that a source of any size gets the same search.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ..._jit import kernel
from ...design import Design
from ...engine.loop import State
from ...losses import SoftmaxLoss
from ...problem import Problem
from ..block import Array, Columns, Targets
from ..passes import AllRows, Refit, Scan
from ..refit import DAMPING
from .draw import Sampler
from .group_pivots import Choices, new_group_tableau
from .local import FLAT_CLASSES, best_exchanges, chosen, exchange, load_model, minimiser
from .pivots import let_in, let_out, new_tableau
from .score import exchange_worths
from .smooth import RULES, SCANS, SETTLING, WORKING, WORKING_CLASSES, SmoothSearch
from .squared import Stop

LARGE, MANY = 1 << 24, 1 << 17  # numbers of the data, and rows, from which on the search begins with a sample
FIRST, EACH = 1 << 14, 200  # rows of the first sample: at least so many, and so many for each coefficient
CROSS = 1 << 23  # second derivatives of chosen columns with all others that may be held
NEAR, CLOSER, POLISHED = 1e-3, 1e-5, 1e-10  # predicted decreases, as shares of F: before a scan, at it, at the end
TRIAL = 1e-7  # the same for supports that are tried
STEPS = 40  # passes of one refit at most
VECTORS = 12  # numbers per column that are held at a time (measured with ten million columns)


def columns_fit(design: Design, k: int) -> bool:
    """Whether a source has room in memory for the columns of a working set, and for products with all others."""
    (n, d), columns = design.shape, max(4 * k, k + 50) + 3 * k
    return 8 * (columns * n + (3 * k + 10) * d) <= design.room_for_columns


def sample_fits(design: Design) -> bool:
    """Whether a source has room in memory for what a search on samples holds for every column."""
    return 8 * VECTORS * design.shape[1] <= design.room_for_columns


def begins_with_sample(problem: Problem, sizes: Sequence[int]) -> bool:
    """Whether to search on a sample first: for one size, where the rows are very many or their columns do not fit."""
    n, d = problem.design.shape
    many = n >= MANY and min(n * d, problem.design.entries) >= LARGE
    return len(sizes) == 1 and not problem.positive and (many or not columns_fit(problem.design, sizes[0]))


@kernel
def propose(t, G, c, ridge, fixed, choices, least, most, gains, entering, leaving, supports, points):
    """Exchanges that the model favours: several one after the other, the first of these, and the best by themselves.

    Every line of `supports` and `points` gets the choices after it and where the model is least; returns how many
    lines there are, and the number of single exchanges that the model favours (−1 if that is not known).
    """
    every, full = np.arange(c.size), np.zeros(c.size)
    load_model(t, G, c, ridge, fixed, choices, every)
    count = best_exchanges(t, least, gains, entering, leaving)
    made = exchange(t, G, every, least, most, supports[1], full)
    if made == 0:
        return 0, count
    chosen(t, supports[0])
    minimiser(t, points[0])
    lines = 1
    if made > 1:
        for a in range(c.size):
            points[1, a] = full[a]
        lines = 2
    for number in range(min(max(count, 0), gains.size)):
        load_model(t, G, c, ridge, fixed, choices, every)
        let_out(t, leaving[number], G, every)
        let_in(t, entering[number], G, every)
        chosen(t, supports[lines])
        minimiser(t, points[lines])
        lines += 1
    return lines, count


class SampledSearch:
    """The best fit with k choices that a sample and then all rows have shown; what `Search` asks of a search."""

    def __init__(
        self,
        problem: Problem,
        k: int,
        check: Callable[[], None],
        effort: str = "default",
        choices: Choices | None = None,
        targets: Targets | None = None,
    ) -> None:
        self.problem, self.check, self.effort, self.choices = problem, check, effort, choices
        self.targets = targets or Targets.of(problem)
        self.mean, self.spread = problem.design.column_moments(problem.weight, problem.intercept)
        self.rows = AllRows(problem, self.targets, self.mean, self.spread)
        self.rows.passes = 1 + int(
            not problem.design.checked
        )  # for the moments of the columns, and for a check of all entries
        self.usable = self.spread > 0.0
        self.usable[problem.kept] = False  # they are in already
        self.grouped = self.targets.outputs > 1 or (choices is not None and bool((np.diff(choices.starts) > 1).any()))
        self.k, self.fixed = min(k, int(np.count_nonzero(self._per_choice(self.usable) > 0))), problem.kept.size
        self.size = max(FIRST, EACH * self.targets.outputs * (self.fixed + k + 1))
        self.start: Stop | None = None  # where to search from: given, or found on the last sample
        self.sampled = self.optimal = self.interrupted = False
        self.sampler = Sampler(problem, self.targets, self.rows, choices is None)
        self.fit = self.empty = self._empty()
        self.null = self.empty.value

    # --- choices -------------------------------------------------------------------------------------------------
    def _per_choice(self, worth: Any) -> Array:
        """The sums of some numbers per column over the columns of each choice."""
        if self.choices is None:
            return np.asarray(worth, dtype=np.float64)
        return np.add.reduceat(np.asarray(worth, np.float64)[self.choices.order], self.choices.starts[:-1])

    def _columns(self, some: Columns) -> Columns:
        return some if self.choices is None else self.choices.columns(some)

    def _ridge(self, columns: Columns) -> Array:
        """The ridge of the coefficients of the intercept, the kept columns and some others, scaled."""
        spread = self.spread[columns]
        own = np.divide(self.problem.l2, spread, out=np.zeros(columns.size), where=spread > 0.0)
        return np.repeat(np.concatenate([np.zeros(self.rows.first), own]), self.targets.outputs)

    def _refit(self, some: Columns, x: Array) -> Refit:
        """A refit on some choices beside the kept columns; x has the scaled coefficients, the intercepts first."""
        columns = np.concatenate([self.problem.kept, self._columns(some)])
        return Refit(some, columns, x, self._ridge(columns), self.targets)

    # --- the sample ----------------------------------------------------------------------------------------------
    def _search_sample(self, size: int) -> Stop:
        """The fit that a search on a sample of the rows finds, from that on the sample before."""
        sub, targets, used = self.sampler.draw(size)
        search = SmoothSearch(sub, [self.k], self.check, self.effort, self.choices, targets)
        if self.start is not None:
            x = np.zeros((self.problem.d, targets.outputs))
            x[self.start.columns] = self.start.x
            search.begin_from(x if used is None else x[used], self.start.constant)
        for _ in search.walk():
            pass
        [stop] = search.stops([self.k], [sub.l2])
        if used is not None:
            stop = stop._replace(columns=used[stop.columns])
        return stop

    # --- the walk ------------------------------------------------------------------------------------------------
    def begin_from(self, x: Array, constant: Array) -> None:
        columns = np.concatenate([self.problem.kept, np.setdiff1d(np.flatnonzero(x.any(axis=1)), self.problem.kept)])
        self.start = Stop(columns, x[columns], constant, math.inf, False)

    def walk(self) -> Iterator[None]:
        """Search on samples, then exchange on all rows; a state can be kept at every yield."""
        most = self.sampler.most(self.size)
        try:
            while not self.sampled and self.k:
                before, self.start = self.start, self._search_sample(min(self.size, most))
                same = before is not None and np.array_equal(np.sort(before.columns), np.sort(self.start.columns))
                self.sampled, self.size = same or self.size >= most, 2 * self.size
                yield
            self.sampler.drawn = None
            if self.k:
                yield from self._exchange()
        except BaseException:
            self.interrupted, self.check = True, lambda: None  # what was found so far can be read
            raise

    def _exchange(self) -> Iterator[None]:
        """Refit on all rows, score all columns, and exchange as long as the objective falls."""
        refit = self._from_sample() if self.fit is self.empty else self._refit(self.fit.choices, self.fit.x)
        for _ in range(SCANS):
            scan = self._settle(refit)
            self.fit = refit
            yield
            better = None if self.effort == "fast" else self._better(self.fit, scan)
            if better is None:
                return
            refit = better

    def _from_sample(self) -> Refit:
        """The fit of the last sample, as a start for all rows."""
        start, first, kept = self.start, self.rows.first, self.fixed
        assert start is not None
        free = start.columns[kept:]
        if self.choices is None:
            some = free
        else:
            owner = np.empty(self.problem.d, np.int64)
            owner[self.choices.order] = np.repeat(np.arange(self.choices.starts.size - 1), np.diff(self.choices.starts))
            some = np.unique(owner[free])
        refit = self._refit(some, np.empty(0))
        x = np.zeros((self.problem.d, self.targets.outputs))
        x[start.columns] = start.x
        inside = refit.columns
        scaled = x[inside] * np.sqrt(self.spread[inside])[:, np.newaxis]
        level = self.empty.x[: first * self.targets.outputs].reshape(first, self.targets.outputs)
        if first and np.isfinite(start.constant).all():
            level = (start.constant + self._centres(inside) @ x[inside])[np.newaxis]
        refit.begin(np.concatenate([level, scaled]).ravel(), self._extended(self.empty, refit.columns), self.null)
        return refit

    def _extended(self, fit: Refit, columns: Columns) -> Array:
        """The coefficients of a fit on other columns: zero where it has none."""
        first, x = self.rows.first, fit.x.reshape(-1, self.targets.outputs)
        order = np.argsort(fit.columns)
        at = np.searchsorted(fit.columns, columns, sorter=order).clip(0, max(0, order.size - 1))
        known = np.isin(columns, fit.columns)
        others = np.zeros((columns.size, x.shape[1]))
        others[known] = x[first:][order[at[known]]]
        return np.concatenate([x[:first], others]).ravel()

    def _centres(self, columns: Columns) -> Array:
        """The means of some columns, as the sample has them."""
        mean, rows = self.mean[columns], self.rows
        return mean + rows.centre[columns] * rows.scale[columns] if self.problem.design.sparse else mean

    # --- all rows ------------------------------------------------------------------------------------------------
    def _empty(self) -> Refit:
        """The fit of the intercept and the kept columns."""
        problem, C, constants = self.problem, self.targets.outputs, [0.0]
        if problem.intercept and C == 1:
            # a Huber loss is flat far from the targets, and an exponential is steep at large offsets
            constants.append(float(np.median(problem.y - problem.offset)))
            constants += [-float(problem.offset.max()), -float(problem.offset.min())]
        x = np.zeros(C * (self.rows.first + self.fixed))
        if self.rows.first:
            points = [(np.arange(C), np.full(C, constant)) for constant in dict.fromkeys(constants)]
            values = [looked.value for looked in self.rows.looks(problem.kept[:0], points)]
            x[:C] = points[int(np.argmin(np.where(np.isfinite(values), values, np.inf)))][1]
        refit = self._refit(np.empty(0, np.int64), x)
        self._converge([refit], POLISHED, math.inf)
        if not math.isfinite(refit.value):
            raise ValueError(f"the objective is not finite at the start ({refit.value}); rescale y or offset")
        return refit

    def _converge(self, refits: Sequence[Refit], tol: float, hopeless: float) -> None:
        """Newton steps of several refits at a time, as many passes as the slowest needs; gives up the hopeless ones."""
        for _ in range(STEPS):
            live = [refit for refit in refits if not refit.done]
            if not live:
                return
            self.check()
            columns, C = np.unique(np.concatenate([refit.columns for refit in live])), self.targets.outputs
            points = []
            for refit in live:
                at = self.rows.first + np.searchsorted(columns, refit.columns)
                at = np.concatenate([np.arange(self.rows.first), at])
                points.append(((at[:, np.newaxis] * C + np.arange(C)).ravel(), refit.trial))
            for refit, looked in zip(live, self.rows.looks(columns, points), strict=True):
                refit.take(looked, tol)
                refit.done = refit.done or refit.value - refit.predicted > hopeless

    def _settle(self, refit: Refit) -> Scan:
        """Refit to full precision, and score all columns close to the end of it."""
        scan, cross = None, not self.grouped and refit.columns.size * self.problem.d <= CROSS
        for _ in range(STEPS):
            if refit.done and scan is not None:
                break
            self.check()
            if refit.done or refit.predicted <= NEAR * abs(refit.value):
                found = self.rows.scan(refit.columns, refit.x if refit.done else refit.trial, cross)
                looked, scan = found.looked, found
            else:
                [looked] = self.rows.looks(refit.columns, [(np.arange(refit.trial.size), refit.trial)])
            if not refit.done:
                refit.take(looked, POLISHED)
                if not refit.moved or (refit.predicted > CLOSER * abs(refit.value) and not refit.done):
                    scan = None
        if scan is None:
            scan = self.rows.scan(refit.columns, refit.x, cross)
        return scan

    @np.errstate(over="ignore", invalid="ignore", divide="ignore")
    def _worth(self, fit: Refit, scan: Scan) -> Array:
        """What every choice may be worth beside this fit; exact for single columns, if their products are known."""
        steep, problem, first = self.targets.steepest, self.problem, self.rows.first
        own = scan.own
        own += np.where(self.usable, DAMPING * steep + problem.l2 / np.where(self.usable, self.spread, 1.0), 0.0)
        usable = self.usable & (own > 0.0) & np.isfinite(own)
        worth = np.where(usable, np.sum(scan.g * scan.g, axis=0) / np.where(usable, own, 1.0), 0.0)
        if len(scan.cross):
            inner, G = fit.G[first:, first:].copy(), fit.G
            if first and G[0, 0] > 0.0:
                inner -= np.outer(G[0, first:], G[0, first:]) / G[0, 0]
            inner.flat[:: len(inner) + 1] += DAMPING * steep + fit.ridge[first:]
            if np.isfinite(inner).all() and np.isfinite(scan.cross).all():
                worth = exchange_worths(inner, scan.cross, fit.x[first:], scan.g[0], own, usable, self.fixed)
        worth[fit.columns] = 0.0
        return self._per_choice(worth)

    def _better(self, fit: Refit, scan: Scan) -> Refit | None:
        """A support with one or more choices exchanged that lowers F; None if there is none."""
        least, C = 2.0 * RULES.gain * abs(fit.value), self.targets.outputs
        worth, exact = self._worth(fit, scan), len(scan.cross) > 0
        worth[fit.choices] = 0.0
        count = int(np.count_nonzero(worth > least))
        most = WORKING_CLASSES if C > 1 else WORKING
        self.optimal = exact and count <= most
        if count == 0 or fit.choices.size == 0:
            return None
        more = np.argpartition(-worth, min(most, worth.size) - 1)[:most]
        chosen_at = np.sort(np.concatenate([fit.choices, more[worth[more] > least]]))
        lines, favoured, supports, points, base = self._proposals(fit, chosen_at, least)
        self.optimal = self.optimal and 0 <= favoured <= SETTLING.singles
        trials: dict[tuple[int, ...], Refit] = {}
        for support, point in zip(supports[:lines], points[:lines], strict=True):
            some = np.sort(chosen_at[support - base])
            refit, model = self._refit(some, np.empty(0)), self._refit(chosen_at, point)
            refit.begin(self._extended(model, refit.columns), self._extended(fit, refit.columns), fit.value)
            trials.setdefault(tuple(some.tolist()), refit)
        self._converge(list(trials.values()), TRIAL, fit.value)
        best = min(trials.values(), key=lambda refit: refit.value, default=fit)
        if not best.value < fit.value - RULES.gain * abs(fit.value):
            return None
        best.done = False
        return best

    def _proposals(self, fit: Refit, some: Columns, least: float) -> tuple[int, int, Columns, Array, int]:
        """Supports that the quadratic model on some choices favours; one pass over the rows."""
        problem, C, first, targets = self.problem, self.targets.outputs, self.rows.first, self.targets
        self.check()
        columns = np.concatenate([problem.kept, self._columns(some)])
        x = self._extended(fit, columns)
        [looked] = self.rows.looks(columns, [(np.arange(x.size), x)])
        G, ridge, fixed = looked.G, self._ridge(columns), C * (first + self.fixed)
        G.flat[:: len(G) + 1] += DAMPING * targets.steepest + (FLAT_CLASSES * G.diagonal() if C > 1 else 0.0)
        c = G @ x - looked.g
        ridge[fixed:][~np.repeat(self.usable[columns[self.fixed :]], C)] = np.inf  # they may not enter
        M, count = x.size, SETTLING.singles + 2
        if self.grouped:
            widths = C * (np.ones(some.size, np.int64) if self.choices is None else np.diff(self.choices.starts)[some])
            starts = fixed + np.concatenate([[0], np.cumsum(widths)])
            blocks = np.zeros(fixed + int((widths**2).sum()))
            t: Any = new_group_tableau(np.zeros((1, M)), blocks, starts, 0.0, 0.0, M)
        else:
            t = new_tableau(np.zeros(M), np.zeros(M), np.zeros(M), 0.0, fit.x.size + 1, fixed)
        base = 0 if self.grouped else first + self.fixed
        inside = base + np.searchsorted(some, fit.choices)
        supports, points = np.zeros((count, inside.size), np.int64), np.zeros((count, M))
        gains, entering, leaving = np.empty(SETTLING.singles), *np.empty((2, SETTLING.singles), np.int64)
        how = (fixed, inside, least, RULES.exchanges, gains, entering, leaving)
        lines, favoured = propose(t, G, c, ridge, *how, supports, points)
        return int(lines), int(favoured), supports, points, base

    # --- the end -------------------------------------------------------------------------------------------------
    @property
    def passes(self) -> int:
        """Passes over all rows so far."""
        return self.rows.passes

    def stops(self, sizes: Sequence[int], ridges: Sequence[float]) -> list[Stop]:
        """The fit, as it is."""
        return [self._taken()._replace(swap_optimal=self.optimal or self.k == 0) for _ in sizes]

    def best_at(self, k: int) -> tuple[Stop, bool]:
        """The best fit so far, and whether it has as many choices as it will have."""
        if self.interrupted and self.fit is self.empty and self.start is not None and self.rows.stored.in_memory:
            refit = self._from_sample()  # all rows say what the support that the sample has found is worth
            self._converge([refit], 1.0, math.inf)
            self.fit = refit if refit.value < self.fit.value else self.fit
        return self._taken(), self.fit is not self.empty

    def _taken(self) -> Stop:
        fit, C, first = self.fit, self.targets.outputs, self.rows.first
        x = fit.x.reshape(-1, C)
        spread = self.spread[fit.columns]
        factor = np.divide(1.0, np.sqrt(spread), out=np.ones(spread.size), where=spread > 0.0)
        coefficients = x[first:] * factor[:, np.newaxis]
        constant = x[0] - self.mean[fit.columns] @ coefficients if first else np.zeros(C)
        if isinstance(self.targets.loss, SoftmaxLoss):  # the same number for all classes changes no prediction
            constant = constant - constant.mean()
        return Stop(fit.columns, coefficients, constant, fit.value, False)

    # --- checkpoints ---------------------------------------------------------------------------------------------
    def state_of(self) -> State:
        """All that the walk depends on at a yield."""
        start, fit = self.start, self.fit
        return {
            "start": None if start is None else [start.columns, start.x, start.constant],
            "fit": None if fit is self.empty else [fit.choices, fit.x, fit.value],
            "where": [self.size, int(self.sampled), self.passes],
        }

    def restore(self, state: State) -> None:
        """Continue where `state_of` was called."""
        if state["start"] is not None:
            columns, coefficients, constant = state["start"]
            self.start = Stop(np.asarray(columns, np.int64), coefficients, constant, math.inf, False)
        self.size, sampled, self.rows.passes = (int(number) for number in state["where"])
        self.sampled = bool(sampled)
        if state["fit"] is not None:
            choices, x, value = state["fit"]
            self.fit = self._refit(np.asarray(choices, np.int64), np.asarray(x, np.float64))
            self.fit.value = float(value)
