"""Losses that are not squares: a search over several numbers of columns, groups of columns, or features of all classes.

`local.search` does the work, compiled, on a block of columns in memory.  Where the data have many more columns, passes
over the rows choose those of the block: the supports found so far and the columns with the largest predicted decrease.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ... import losses
from ...engine.loop import State
from ...problem import Problem
from ..block import SHARE, Array, ColumnBlock, Columns, Targets, ThinColumns, thin_columns
from ..refit import DAMPING, Precision
from .group_pivots import Choices, new_group_tableau
from .local import PERTURB, POLISH, SETTLE, START, STEP, BestFits, Rules, search
from .pivots import new_tableau
from .positive import new_positive_tableau
from .score import exchange_worths
from .squared import Stop

WORKING, FEWEST, WORKING_CLASSES = 50, 20, 6  # columns beside the supports in a block; fewer for many rows or classes
ROOM = 48_000_000  # numbers that a block may hold before it gets fewer columns
SMALL = 150  # columns that are all in the block
BEYOND = 0.15  # share of the largest size by which a search goes beyond it
RELAXED = 1.25  # times one wanted size: how far a support for it grows before it shrinks again
GROWTH = 1.4  # a new block after the size has grown by this factor
TURNS = 6  # changes of direction of a walk
RULES = Rules(1e-6, 8, 4, 4, Precision(8, 1e-4, False), Precision(12, 1e-6, False), Precision(50, 1e-22, True))
SETTLING = RULES._replace(trials=30, singles=8)
EMPTY = RULES._replace(polish=Precision(200, 1e-22, True))
SCANS = 8  # scans of all columns at one size, each after a better fit
FOLLOW = {"fast": 1, "default": 2, "best": 3}  # turns on which the block follows the fits
PERTURBED = {"fast": 0, "default": 0, "best": 40}  # perturbations of the best fit of every size
ALONE = {"fast": 0, "default": 3, "best": 40}  # the same where one size is wanted


class SmoothSearch:
    """The best fits found so far at every size that is visited."""

    def __init__(
        self,
        problem: Problem,
        wanted: Sequence[int],
        check: Callable[[], None],
        effort: str = "default",
        choices: Choices | None = None,
        targets: Targets | None = None,
    ) -> None:
        self.problem, self.check, self.effort, self.reads = problem, check, effort, int(not problem.design.checked)
        self.targets = targets or Targets.of(problem)
        n, d, C = problem.n, problem.d, self.targets.outputs
        self.first = int(problem.intercept)
        self.fixed = self.first + problem.kept.size
        self.mean, self.spread = problem.design.column_moments(problem.weight, problem.intercept)
        self.factor = np.where(self.spread > 0.0, 1.0 / np.sqrt(np.where(self.spread > 0.0, self.spread, 1.0)), 1.0)
        self.usable = (self.spread > 0.0) & np.isfinite(self._ridge(problem.l2, np.arange(d)))
        self.usable[problem.kept] = False  # they are in already
        self.choices = choices or Choices(np.arange(d), np.arange(d + 1))
        widths = np.diff(self.choices.starts)
        self.grouped = C > 1 or bool((widths > 1).any())
        self.open = np.logical_or.reduceat(self.usable[self.choices.order], self.choices.starts[:-1])
        count = int(np.count_nonzero(self.open))
        self.sizes = np.unique(np.minimum(path_sizes(wanted), count)).astype(np.int64)
        self.low = min(
            int(np.searchsorted(self.sizes, min(wanted))), self.sizes.size - 1
        )  # the smallest that is wanted
        self.thin = problem.design.thin and C == 1
        most, largest = max(1, ROOM // (n * int(widths.max(initial=1)))), int(self.sizes[-1])
        self.working = min(WORKING_CLASSES if C > 1 else max(WORKING, max(wanted)), max(FEWEST, most))
        small = largest + self.working if C > 1 else max(SMALL, 2 * largest)
        self.all_in = count <= small and d * n <= ROOM
        self.state, self.rng = np.array([DAMPING, 0.0]), np.random.default_rng(0)
        self.turn = self.at = self.rounds = 0  # where the walk is
        self.perturbed = (ALONE if len(set(wanted)) == 1 else PERTURBED)[effort]
        self.chosen = np.empty(0, np.int64)  # the choices in the block
        self.B: Any = np.ones((self.fixed, n))
        if not self.thin:
            self._read(problem.kept, self.B[self.first :])
        slots = C * (self.fixed + int(np.sort(widths)[::-1][:largest].sum()))
        count = self.sizes.size
        self.path = BestFits(
            self.sizes, np.full(count, np.inf), np.zeros((count, largest), np.int64), np.zeros((count, slots)),
            np.zeros(count, dtype=bool), np.zeros(count, dtype=bool), np.zeros(count, dtype=bool),
            np.empty((0, 0, 0)), np.empty((0, 0)),
        )  # fmt: skip
        self._new_block(np.flatnonzero(self.open) if self.all_in else self.chosen)
        self._begin()

    # --- the block -----------------------------------------------------------------------------------------------
    def _new_block(self, chosen: Columns) -> None:
        """Have these choices in the block; those of the supports must be among them."""
        problem, path, C, before = self.problem, self.path, self.targets.outputs, self.chosen
        columns = self.choices.columns(chosen)
        if self.thin:
            every = np.concatenate([problem.kept, columns])
            self.B = thin_columns(problem.design, every, self.mean[every], self.factor[every], self.first)
        else:
            old, place = self.choices.columns(before), np.full(problem.d, -1, np.int64)
            place[old] = self.fixed + np.arange(old.size)
            B, known = np.empty((self.fixed + columns.size, problem.n)), place[columns] >= 0
            B[: self.fixed] = self.B[: self.fixed]
            B[self.fixed :][known] = self.B[place[columns[known]]]
            new = np.flatnonzero(~known)
            part = B[self.fixed :] if new.size == columns.size else np.empty((new.size, problem.n))
            self._read(columns[new], part)
            B[self.fixed + new] = part
            self.B = B
        number = np.zeros(self.open.size, np.int64)
        number[chosen] = np.arange(chosen.size)
        for at in np.flatnonzero(np.isfinite(path.value)):
            some = path.choices[at, : path.size[at]]
            some[:] = self._base + number[before[some - self._base]]
        self.chosen, M, count = chosen, C * (self.fixed + columns.size), path.size.size
        self.path = path._replace(G=np.empty((count, M, M)), c=np.empty((count, M)))
        if self.grouped:
            widths = C * np.diff(self.choices.starts)[chosen]
            starts = C * self.fixed + np.concatenate([[0], np.cumsum(widths)])
            blocks = np.zeros(C * self.fixed + int((widths**2).sum()))
            self.tableau: Any = new_group_tableau(np.zeros((1, M)), blocks, starts, 0.0, 0.0, path.x.shape[1])
        else:
            self.tableau = new_tableau(np.zeros(M), np.zeros(M), np.zeros(M), 0.0, path.x.shape[1], self.fixed)
            self.tableau = new_positive_tableau(self.tableau) if problem.positive else self.tableau
        self._set_ridge(problem.l2)

    @property
    def passes(self) -> int:
        """Passes over the rows so far: scans of all columns, and models, which read the columns of a block."""
        share = self.choices.columns(self.chosen).size / self.problem.d
        return self.reads + math.ceil(share * self.state[1])

    @property
    def _base(self) -> int:
        """The number of the first choice in a model: single columns are numbered with the fixed ones."""
        return 0 if self.grouped else self.fixed

    def _set_ridge(self, l2: float) -> None:
        targets, columns = self.targets, np.concatenate([self.problem.kept, self.choices.columns(self.chosen)])
        ridge = np.concatenate([np.zeros(self.first), self._ridge(l2, columns)])
        ridge[self.fixed :][~self.usable[columns[self.problem.kept.size :]]] = np.inf  # they may not enter
        lowest = np.full(targets.outputs * ridge.size, -np.inf)
        if self.problem.positive:
            lowest[self.fixed :] = 0.0
        self.block = ColumnBlock(
            self.B, targets.y, self.problem.targets[1], targets.offset, np.repeat(ridge, targets.outputs), lowest,
            targets.loss, targets.outputs, targets.steepest, targets.bounded,
        )  # fmt: skip
        self.path.modelled[:] = False

    @np.errstate(over="ignore")
    def _ridge(self, l2: float, columns: Columns) -> Array:
        """The ridge of the coefficients of scaled columns."""
        return (math.sqrt(l2) * self.factor[columns]) ** 2 if l2 > 0.0 else np.zeros(columns.size)

    def _read(self, columns: Columns, out: Array) -> None:
        if columns.size:
            self.problem.design.read_columns(columns, out, (self.mean[columns], self.factor[columns]))

    def _dense(self, places: Columns, which: Columns | None = None) -> Array:
        """Columns of the block as dense rows; on some rows of the data only, if they are given."""
        if not isinstance(self.B, ThinColumns):
            return self.B[places] if which is None else self.B[np.ix_(places, which)]
        out = np.repeat(-self.B.shift[places][:, np.newaxis], self.problem.n, axis=1)
        for row, s in zip(out, places.tolist(), strict=True):
            part = slice(self.B.start[s], self.B.start[s + 1])
            row[self.B.row[part]] += self.B.value[part]
        return out if which is None else out[:, which]

    def _search(self, task: int, at: int, last: int = 0, rules: Rules = RULES, given: Columns | None = None) -> int:
        self.check()
        given = np.empty(0, np.int64) if given is None else given
        priority = self.rng.random(self._base + self.chosen.size) if task == PERTURB else np.empty(0)
        fixed, t = self.targets.outputs * self.fixed, self.tableau
        return int(search(task, self.block, t, self.path, fixed, at, last, rules, self.state, given, priority))

    def _begin(self) -> None:
        """Fit the intercept and the kept columns."""
        problem, path, targets, constants = self.problem, self.path, self.targets, [0.0]
        if problem.intercept and targets.outputs == 1:
            # a Huber loss is flat far from the targets, and an exponential is steep at large offsets
            constants.append(float(np.median(problem.y - problem.offset)))
            constants += [-float(problem.offset.max()), -float(problem.offset.min())]
        values = [(self._rows(targets.offset + constant)[0], constant) for constant in dict.fromkeys(constants)]
        path.value[0], constant = min([pair for pair in values if math.isfinite(pair[0])] or values)
        path.x[0, : targets.outputs * self.first] = constant
        self._search(POLISH, 0, rules=EMPTY)
        path.up[0] = path.size.size > 1
        self.null = float(path.value[0])
        if not math.isfinite(self.null):
            raise ValueError(f"the objective is not finite at the start ({self.null}); rescale y or offset")

    def _rows(self, z: Array) -> tuple[float, Array, Array]:
        """The mean loss, and the first and second derivatives of every row (for classes the probabilities)."""
        loss, y, weight = self.targets.loss, self.targets.y, self.problem.targets[1]
        derivative, curvature = np.empty(z.size), np.empty(z.size)
        return losses.evaluate_rows(loss, z, y, weight, derivative, curvature) / weight.size, derivative, curvature

    def begin_from(self, x: Array, constant: Array) -> None:
        """Search from these coefficients (d, outputs), of which the largest choices are taken, not from nothing."""
        largest = int(self.sizes[-1])
        strength = np.add.reduceat(np.sum(x[self.choices.order] ** 2, axis=1), self.choices.starts[:-1])
        strength = np.where(self.open, strength, 0.0)
        some = np.sort(np.argsort(-strength, kind="stable")[: min(largest, int(np.count_nonzero(strength)))])
        at = int(np.searchsorted(self.sizes, some.size, "right")) - 1
        some = np.sort(some[np.argsort(-strength[some], kind="stable")[: self.sizes[at]]])
        if at == 0:
            return
        self._renew(0, int(self.sizes[at]), among=some)
        path, number = self.path, np.zeros(self.open.size, np.int64)
        number[self.chosen] = self._base + np.arange(self.chosen.size)
        columns = np.concatenate([self.problem.kept, self.choices.columns(some)])
        scaled = x[columns] / self.factor[columns][:, np.newaxis]
        level = (constant + self.mean[columns] @ x[columns])[np.newaxis][: self.first]
        path.choices[at, : some.size] = number[some]
        values = np.concatenate([level, scaled]).ravel()
        path.x[at, : values.size] = values
        z = values.reshape(-1, x.shape[1]).T @ self._dense(self._places(some))
        objective = self._rows(z.ravel() + self.targets.offset)[0]
        if not objective <= self.null:  # a start that is worse than none: its columns are taken, not its coefficients
            path.x[at] = 0.0
            path.x[at, : self.targets.outputs * self.fixed] = path.x[0, : self.targets.outputs * self.fixed]
        if self._search(START, at, given=path.choices[at, : some.size].copy()):
            path.up[0], self.at = False, at

    # --- all columns ---------------------------------------------------------------------------------------------
    def _fit(self, at: int) -> tuple[Columns, Columns, Array]:
        """The best fit of a size: its choices, their columns, and the coefficients (fixed ones first) per output."""
        path, C = self.path, self.targets.outputs
        some = self.chosen[path.choices[at, : path.size[at]] - self._base]
        columns = self.choices.columns(some)
        return some, columns, path.x[at, : C * (self.fixed + columns.size)].reshape(-1, C)

    def _places(self, some: Columns) -> Columns:
        """Where the columns of some choices are in the block, the fixed ones first."""
        place, inside = np.zeros(self.problem.d, np.int64), self.choices.columns(self.chosen)
        place[inside] = self.fixed + np.arange(inside.size)
        return np.concatenate([np.arange(self.fixed), place[self.choices.columns(some)]])

    @np.errstate(over="ignore", invalid="ignore", divide="ignore")
    def _scan(self, at: int, exact: bool) -> Array:
        """What every choice may be worth at the best fit of a size: one pass over the rows.

        An exact scan scores every column against every chosen one; else columns are judged by themselves.
        """
        self.check()
        self.reads += 1
        problem, C, (some, _, x) = self.problem, self.targets.outputs, self._fit(at)
        places = self._places(some)
        n, design, l2 = problem.n, problem.design, problem.l2
        _, derivative, curvature = self._rows((x.T @ self._dense(places)).ravel() + self.targets.offset)
        if C == 1:
            g, a, q = design.moments(derivative, curvature)
            g = (g - self.mean * float(derivative.sum()))[np.newaxis] / n
        else:
            derivative, p = derivative.reshape(C, n), curvature.reshape(C, n)
            curvature = (
                problem.weight
            )  # of several targets; what the classes of a softmax share is the mean of p(1 − p)
            if isinstance(self.targets.loss, losses.SoftmaxLoss):
                curvature = curvature * (1.0 - np.einsum("ci,ci->i", p, p)).clip(0.0) / C
            _, a, q = design.moments(np.zeros(n), curvature)
            g = (design.left_product(derivative) - np.outer(derivative.sum(axis=1), self.mean)) / n
        total = float(curvature.sum())
        own = np.maximum(q - (a * a / total if problem.intercept and total > 0 else 0.0), 0.0) / n
        own += DAMPING * self.targets.steepest * self.spread + l2  # where no row is curved, a little is assumed
        usable = self.usable & (own > 0.0) & np.isfinite(own)
        worth = np.where(usable, np.sum(g * g, axis=0) / np.where(usable, own, 1.0), 0.0)
        if problem.positive:
            worth[g[0] >= 0.0] = 0.0
            exact = exact and bool((x[self.fixed :] > 0.0).all())  # else one that is zero is exchanged for any other
        if exact and not self.grouped and places.size > self.fixed:
            worth = self._exchange_worth(places[self.first :], x[self.first :, 0], curvature, g[0], own, usable, worth)
        return np.add.reduceat(worth[self.choices.order], self.choices.starts[:-1])

    def _exchange_worth(
        self, places: Columns, v: Array, curvature: Array, g: Array, own: Array, usable: Any, worth: Array
    ) -> Array:
        """What the best exchange for each column is worth, all columns against all chosen ones."""
        problem, n = self.problem, self.problem.n
        heavy = np.flatnonzero((curvature >= SHARE * curvature.mean() * problem.weight) & (curvature > 0.0))
        which = heavy if 2 * heavy.size < n else None
        h, block = curvature if which is None else curvature[which], self._dense(places, which)
        if problem.intercept and h.sum() > 0:
            block = block - (block @ h / h.sum())[:, np.newaxis]
        inner = (block * h) @ block.T / n
        inner.flat[:: len(inner) + 1] += DAMPING * self.targets.steepest + self.block.ridge[places]
        cross = problem.design.left_product(block * h, which) / n
        if not (np.isfinite(inner).all() and np.isfinite(cross).all()):
            return worth  # the curvature overflows: what each column is worth by itself has to do
        return exchange_worths(inner, cross, v, g, own, usable, problem.kept.size, problem.positive)

    def _renew(self, at: int, largest: int, exact: bool = False, among: Columns | None = None) -> None:
        """A new block for sizes up to the `largest`: the choices of all supports, and those worth most at this fit."""
        if self.all_in:
            return
        worth = np.where(self.open, self._scan(at, exact), -1.0)
        for other in np.flatnonzero(np.isfinite(self.path.value)):
            worth[self._fit(int(other))[0]] = np.inf
        if among is not None:
            worth[among] = np.inf
        count = max(int(np.count_nonzero(worth == np.inf)), largest) + self.working
        count = min(count, int(np.count_nonzero(worth >= 0.0)))
        self._new_block(np.sort(np.argpartition(-worth, count - 1)[:count]))

    # --- the walk ------------------------------------------------------------------------------------------------
    def walk(self) -> Iterator[None]:
        """Step up and down over the sizes until nothing is new, then perturb; a state can be kept at every yield."""
        last = self.path.size.size - 1
        while self.turn < TURNS:
            end = self.low if self.turn % 2 else last
            if self.at == end:
                due = self.path.up if self.turn % 2 else self.path.down
                self.turn = self.turn + 1 if due.any() else TURNS
                continue
            yield from self._leg(end, self.turn < FOLLOW[self.effort])
        while self.rounds < self.perturbed:
            yield from self._perturb()
            self.rounds += 1

    def _leg(self, end: int, follow: bool) -> Iterator[None]:
        """Steps from size to size towards `end`; to `follow`, only until the block has to be renewed."""
        at, last, size = self.at, end, self.path.size
        if follow and not self.all_in:
            if end > at:
                wanted = max(size[at] + 2, math.ceil(GROWTH * size[at]))
                last = min(end, max(at + 1, int(np.searchsorted(size, wanted))))
                self.path.up[at] = True
            else:
                wanted = min(size[at] - 2, math.floor(size[at] / GROWTH))
                last = max(end, min(at - 1, int(np.searchsorted(size, wanted, "right")) - 1))
            self._renew(at, int(max(size[at], size[last])))
        while at >= 0:
            at = self._search(STEP, at, last)
        self.path.modelled[:] = False  # so that a search that goes on from a checkpoint takes the same course
        self.at = last if math.isfinite(self.path.value[last]) else end  # there may be no more columns to use
        yield

    def _perturb(self) -> Iterator[None]:
        """Replace some choices of every best fit by others, and search from there."""
        better, last = 0, self.path.size.size - 1
        for at in range(1, last + 1):
            k = int(self.path.size[at])
            if k > 1 and math.isfinite(self.path.value[at]):
                better += self._search(PERTURB, at, max(1, int(self.rng.uniform(0.2, 1.0) * k)))
        if better:
            for begin, end in ((last, self.low), (self.low, last)):
                self.at = begin
                yield from self._leg(end, False)
        yield

    # --- the end -------------------------------------------------------------------------------------------------
    def stops(self, sizes: Sequence[int], ridges: Sequence[float]) -> list[Stop]:
        """The fits at some sizes, each under its own ridge; with fewer choices where that many cannot be used."""
        exact = self.effort == "best" or (self.effort == "default" and len(sizes) == 1)
        known = np.flatnonzero(np.isfinite(self.path.value))
        places = known[np.searchsorted(self.path.size[known], sizes, "right") - 1]
        return [self._stop(int(at), l2, exact) for at, l2 in zip(places, ridges, strict=True)]

    def _stop(self, at: int, l2: float, exact: bool) -> Stop:
        """The fit at one size, exchanged until nothing is gained.

        In an `exact` search all columns of the data are scored against all chosen ones, else those of the block.
        """
        problem = self.problem
        self.problem = dataclasses.replace(problem, l2=l2)
        self._set_ridge(l2)
        optimal = bool(self.path.size[at] == 0)
        for _ in range(0 if optimal or self.effort == "fast" else SCANS if exact else 1):
            before = np.sort(self._fit(at)[0])
            if exact:
                self._renew(at, int(self.path.size[at]), exact=True)
            optimal = bool(self._search(SETTLE, at, rules=SETTLING)) and (self.all_in or (exact and not self.grouped))
            if self.all_in or np.array_equal(before, np.sort(self._fit(at)[0])):
                break
        self._search(POLISH, at)
        self.problem = problem
        return self._taken(at)._replace(swap_optimal=optimal)

    def best_at(self, k: int) -> tuple[Stop, bool]:
        """The best fit with at most k choices so far, and whether it has as many as it will have."""
        allowed = np.flatnonzero(self.path.size <= k)
        known = allowed[np.isfinite(self.path.value[allowed])]
        return self._taken(int(known[-1])), bool(known[-1] == allowed[-1])

    def _taken(self, at: int) -> Stop:
        """The best fit of a size, as it is."""
        _, columns, x = self._fit(at)
        columns = np.concatenate([self.problem.kept, columns])
        coefficients = x[self.first :] * self.factor[columns][:, np.newaxis]
        constant = x[0] - self.mean[columns] @ coefficients if self.first else np.zeros(x.shape[1])
        if isinstance(self.targets.loss, losses.SoftmaxLoss):  # the same number for all classes changes no prediction
            constant = constant - constant.mean()
        return Stop(columns, coefficients, constant, float(self.path.value[at]), False)

    # --- checkpoints ---------------------------------------------------------------------------------------------
    def state_of(self) -> State:
        """All that the walk depends on at a yield."""
        path = self.path
        return {
            "chosen": self.chosen, "value": path.value.copy(), "choices": path.choices.copy(), "x": path.x.copy(),
            "up": path.up.copy(), "down": path.down.copy(), "damping": self.state.copy(),
            "where": [self.turn, self.at, self.rounds, self.reads], "rng": self.rng.bit_generator.state,
        }  # fmt: skip

    def restore(self, state: State) -> None:
        """Continue where `state_of` was called."""
        self.path.value[:] = np.inf
        self._new_block(np.asarray(state["chosen"], dtype=np.int64))
        for name in ("value", "choices", "x", "up", "down"):
            getattr(self.path, name)[:] = state[name]
        self.state[:] = state["damping"]
        self.turn, self.at, self.rounds, self.reads = (int(number) for number in state["where"])
        self.rng.bit_generator.state = state["rng"]


def path_sizes(wanted: Sequence[int]) -> list[int]:
    """The sizes that a search visits: those wanted, others so that no step is too long, and some beyond.

    A support for one size alone doubles until it has grown a little beyond, and shrinks again.
    """
    ordered = sorted({0, *wanted})
    sizes, largest = set(ordered), ordered[-1]
    for low, high in itertools.pairwise(ordered):
        while high > 4 * low and high > max(1, ordered[1] / 4):
            high = math.ceil(high / 2)
            sizes.add(high)
    if len(ordered) == 2:
        return sorted(sizes | {math.ceil(RELAXED * largest)})
    beyond = max(2, round(BEYOND * largest))
    dense = len(ordered) > 0.5 * largest
    return sorted(sizes.union(range(largest + 1 if dense else largest + beyond, largest + beyond + 1)))
