"""Fits on all rows in few passes: a pass gives the loss, its gradient and its Hessian at several points.

Nothing is kept of the rows, so that they may come in blocks; a pass costs about the same for one point as for several.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._jit import kernel
from .._threads import one_blas_thread, ordered_map
from ..design.base import membership, summed
from ..design.kernels import moments, take_columns
from ..design.matrix import InMemory, as_matrix, as_rows, frozen
from ..losses import SoftmaxLoss
from ..problem import Problem
from .block import Array, ColumnBlock, Columns, Targets, new_room
from .refit import DAMPED, DAMPING, MOST_DAMPING, gradient, hessian, objective_at

CHUNK = 1 << 16  # numbers of the columns in play that are worked on at a time: they stay in the cache
ROWS = 1 << 10, 1 << 13  # fewest and most rows that are worked on at a time
WIDE = 1 << 16  # rows that are worked on at a time where sparse ones are multiplied with the columns in play
PARTS = 16  # of the rows, for threads
CLOSE = 1e-10  # share of F below which a predicted decrease needs no pass to confirm it
PACE = 0.05  # of a predicted decrease is left after a Newton step near a minimum; more, and something runs away


class Look(NamedTuple):
    """The data term of F at a point: its value, gradient and Hessian in the coefficients of the point."""

    value: float
    g: Array
    G: Array


class Scan(NamedTuple):
    """Sums over the rows for all columns, scaled, at one point."""

    g: Array  # (outputs, d): the gradient
    own: Array  # the curvature of every column beside the intercept, for classes that which they share
    cross: Array  # (columns in play, d): second derivatives; empty unless asked for
    looked: Look


class Wanted(NamedTuple):
    """What a pass sums up, as it is sent to the blocks."""

    targets: Targets  # loss and bounds; its arrays are empty
    first: int  # 1 for an intercept
    columns: Columns  # in play
    centre: Array  # of these columns
    factor: Array
    points: tuple[tuple[Columns, Array], ...]  # numbers of the coefficients, and the coefficients
    scan: bool  # sum over all columns too, at the first point
    cross: bool


@kernel
def look(block, V, x, g, G, derivative, curvature):
    """Add the sums of the gradient and the Hessian at x over the rows of a block to g and G; returns that of the loss.

    The derivatives of the rows go to `derivative` and `curvature`, unless these are empty.
    """
    n, room, own, H = block.weight.size, new_room(block), np.empty(V.size), np.empty((V.size, V.size))
    value = objective_at(block, V, x, room)
    gradient(block, V, room.derivative, own)
    hessian(block, V, room, True, H)
    for a in range(V.size):
        g[a] += n * own[a]
        for b in range(V.size):
            G[a, b] += n * H[a, b]
    for i in range(derivative.size):
        derivative[i], curvature[i] = room.derivative[i], room.curvature[i]
    return n * value


def sum_rows(wanted: Wanted, block: Any, y: Array, weight: Array, offset: Array) -> tuple[Any, ...]:
    """What is wanted, summed over the rows of a block, on all cores: in parts whose sums are added in order."""
    design = None if block is None else InMemory(as_rows(block))
    n, d = weight.size, 0 if design is None else design.shape[1]
    places = membership(wanted.columns, d)
    step = int(np.clip(CHUNK // max(1, wanted.columns.size), *ROWS))
    if wanted.scan and design is not None:
        parts = design.parts
        step = WIDE if wanted.cross and design.sparse else step  # a product makes d numbers for each column in play
    else:
        edges = np.linspace(0, n, min(PARTS, max(1, n // step)) + 1).astype(np.int64).tolist()
        parts = list(itertools.pairwise(edges))

    def part(bounds: tuple[int, int]) -> tuple[Any, ...]:
        sums = new_sums(wanted, d)
        for low in range(*bounds, step):
            some = slice(low, min(low + step, bounds[1]))
            rows = None if design is None else design.row_range(some.start, some.stop)
            add_rows(wanted, rows, places, y[some], weight[some], offset[some], sums)
        return sums

    with one_blas_thread():
        return summed(ordered_map(part, parts))


def new_sums(wanted: Wanted, d: int) -> tuple[Any, ...]:
    """Zeros: the loss, gradient and Hessian of every point; for a scan g, a, q, cross and the sum of the curvatures."""
    sizes = [V.size for V, _ in wanted.points]
    every = d if wanted.scan else 0
    return (
        np.zeros(len(sizes)), *(np.zeros(size) for size in sizes), *(np.zeros((size, size)) for size in sizes),
        np.zeros((wanted.targets.outputs, every)), np.zeros(every), np.zeros(every),
        np.zeros((wanted.columns.size if wanted.cross else 0, every)), np.zeros(1),
    )  # fmt: skip


def add_rows(
    wanted: Wanted, rows: InMemory | None, places: Any, y: Array, weight: Array, offset: Array, sums: tuple[Any, ...]
) -> None:
    """Add what some rows contribute to the sums."""
    targets, first, m, count = wanted.targets, wanted.first, wanted.columns.size, weight.size
    values, C, P = sums[0], wanted.targets.outputs, len(wanted.points)
    B = np.ones((first + m, count))
    if rows is not None and m:
        take_columns(rows.rows, 0, count, wanted.columns, *places, wanted.centre, wanted.factor, np.empty(m), B[first:])
    nothing = np.zeros(C * (first + m))
    block = ColumnBlock(
        B, flat(y), frozen(weight), flat(offset), nothing, nothing, targets.loss, C, targets.steepest, targets.bounded
    )
    for p, (V, x) in enumerate(wanted.points):
        size = C * count if wanted.scan and p == 0 else 0
        derivative, curvature = np.empty(size), np.empty(size)
        values[p] += look(block, V, x, sums[1 + p], sums[1 + P + p], derivative, curvature)
        if size and rows is not None:
            add_scan(targets, rows, B[first:], weight, derivative, curvature, sums[1 + 2 * P :])


def add_scan(
    targets: Targets, rows: InMemory, B: Array, weight: Array, derivative: Array, curvature: Array, sums: Any
) -> None:
    """Add the sums over some rows for all columns, as they are stored; B holds the columns in play."""
    (g, a, q, cross, total), C, n = sums, targets.outputs, weight.size
    own = derivative
    if C > 1:
        p, own = curvature.reshape(C, n), np.zeros(n)
        curvature = np.array(weight)  # of several targets; the classes of a softmax share the mean of p(1 − p)
        if isinstance(targets.loss, SoftmaxLoss):
            curvature *= (1.0 - np.einsum("ci,ci->i", p, p)).clip(0.0) / C
        g += left_product(derivative.reshape(C, n), rows)
    moments(rows.rows, 0, n, frozen(own), frozen(curvature), g[0] if C == 1 else np.zeros(a.size), a, q)
    if len(cross):
        cross += left_product(B * curvature, rows)
    total += curvature.sum()


def left_product(block: Array, rows: InMemory) -> NDArray[Any]:
    """B·A for a few rows of A, in their precision."""
    A = as_matrix(rows.rows)
    return np.asarray((A.T @ block.T).T) if rows.sparse else block.astype(rows.dtype) @ A


def flat(values: Array) -> Array:
    """One output after the other, read-only."""
    return frozen(values if values.ndim == 1 else np.ascontiguousarray(values.T).ravel())


class AllRows:
    """Passes over the rows of a problem, on columns that are centred if there is an intercept, of variance one."""

    def __init__(self, problem: Problem, targets: Targets, mean: Array, spread: Array) -> None:
        self.problem, self.mean, self.spread = problem, mean, spread
        self.first, self.passes = int(problem.intercept), 0
        self.stored, self.centre, self.scale = problem.design.unscaled()
        n, C = problem.n, targets.outputs
        y, weight, offset = targets.y, problem.targets[1], targets.offset
        # one row per row of A: sources divide arrays as they divide rows
        self.arrays = y if y.size == n else by_row(y, C), weight, offset if C == 1 else by_row(offset, C)
        self.targets = targets._replace(y=np.empty(0), offset=np.empty(0))

    def scaling(self, columns: Any) -> tuple[Array, Array]:
        """Centre and factor for the columns as they are stored."""
        spread, scale = self.spread[columns], self.scale[columns]
        usable = (spread > 0.0) & (scale > 0.0)
        factor = np.where(usable, 1.0 / np.sqrt(np.where(spread > 0.0, spread, 1.0)), 1.0)
        shift = np.divide(self.mean[columns], scale, out=np.zeros(scale.size), where=scale > 0.0)
        return self.centre[columns] + shift, scale * factor

    def _pass(self, columns: Columns, points: Sequence[tuple[Columns, Array]], scan: bool, cross: bool) -> list[Any]:
        wanted = Wanted(self.targets, self.first, columns, *self.scaling(columns), tuple(points), scan, cross)
        if columns.size == 0 and not scan:  # only the targets are read
            return list(sum_rows(wanted, None, *self.arrays))
        self.passes += 1
        if scan or self.stored.in_memory:
            return list(summed(self.stored.map(functools.partial(sum_rows, wanted), *self.arrays)))
        order = np.argsort(columns, kind="stable")  # a source reads columns in ascending order
        wanted = wanted._replace(columns=np.argsort(order))
        return list(summed(self.stored.map(functools.partial(sum_rows, wanted), *self.arrays, columns=columns[order])))

    @np.errstate(over="ignore", invalid="ignore")
    def looks(self, columns: Columns, points: Sequence[tuple[Columns, Array]]) -> list[Look]:
        """The data term at several points; coefficient c of column s in play is number (first + s)·outputs + c."""
        return self._looks(self._pass(columns, points, False, False), len(points))

    def _looks(self, sums: list[Any], P: int) -> list[Look]:
        n = self.problem.n
        return [Look(float(sums[0][p]) / n, sums[1 + p] / n, sums[1 + P + p] / n) for p in range(P)]

    @np.errstate(over="ignore", invalid="ignore")
    def scan(self, columns: Columns, x: Array, cross: bool) -> Scan:
        """The data term at x, all of whose columns are in play, and sums for all columns."""
        point = np.arange(x.size), x
        sums = self._pass(columns, [point], True, cross)
        [looked] = self._looks(sums, 1)
        (g, a, q, products, [total]), n, C = sums[3:], self.problem.n, self.targets.outputs
        centre, factor = self.scaling(slice(None))
        if self.first:  # else there is no centre
            g -= np.outer(n * looked.g[:C], centre)
            q += centre * (total * centre - 2.0 * a)
            a -= total * centre
            if cross:
                products -= np.outer(n * looked.G[0, self.first :], centre)
                products -= np.outer(n * looked.G[0, self.first :], a / total if total > 0.0 else a)
            q -= a * a / total if total > 0.0 else 0.0
        g *= factor / n
        q *= factor**2 / n
        products *= factor / n
        return Scan(g, np.maximum(q, 0.0), products, looked)


def by_row(values: Array, outputs: int) -> Array:
    """One row per row of A, from one output after the other."""
    return frozen(np.ascontiguousarray(values.reshape(outputs, -1).T))


class Refit:
    """Newton's method with Levenberg's damping on one support: each point needs one pass, and several share it."""

    def __init__(self, choices: Columns, columns: Columns, x: Array, ridge: Array, targets: Targets) -> None:
        self.choices, self.columns, self.ridge, self.targets = choices, columns, ridge, targets
        self.x, self.trial, self.value, self.predicted = x, x, math.inf, math.inf
        self.share, self.done, self.moved = 1e-3 * DAMPING, False, False
        self.g, self.G = np.empty(0), np.empty((0, 0))
        self._spare: Array | None = None
        self._worst = math.inf

    def begin(self, x: Array, spare: Array, worst: float) -> None:
        """Start from x; from `spare` if F turns out to be above the `worst` there."""
        self.x = self.trial = x
        self._spare, self._worst = spare, worst

    @np.errstate(over="ignore", invalid="ignore")
    def take(self, looked: Look, tol: float) -> None:
        """Go on from the data term at `trial`; done once the predicted decrease is below tol·F."""
        x, before = self.trial, self.predicted
        value = looked.value + 0.5 * float(np.sum(self.ridge[x != 0.0] * x[x != 0.0] ** 2))
        fine = math.isfinite(value) and bool(np.isfinite(looked.g).all() and np.isfinite(looked.G).all())
        spare, self._spare = self._spare, None
        if spare is not None and not (fine and value <= self._worst):
            self.trial, self.moved = spare, False
            return
        least = 1e-3 * DAMPING
        slack = 0.0 if before > 1e-12 * abs(self.value) else 1e-13 * abs(self.value)  # beneath the rounding of F
        self.moved = fine and (self.value == math.inf or value <= self.value - 1e-3 * before + slack)
        if self.moved:
            slow = before < 1e-7 * abs(value)
            self.x, self.value, self.g, self.G = x, value, looked.g + self.ridge * x, looked.G
            self.share = max(0.1 * self.share, least)
        else:
            slow = before <= 1e-12 * abs(self.value)
            self.share = max(10.0 * self.share, DAMPED)
        if self.value == math.inf or (slow and not self.moved) or not self._step():
            self.done = True
        elif self.predicted <= tol * abs(self.value) or (slow and self.predicted > PACE * before):
            self.done = True
            if self.predicted <= CLOSE * abs(self.value):
                self.x, self.value = self.trial, self.value - 0.5 * self.predicted

    def _step(self) -> bool:
        """Set the next trial and the decrease that is predicted for it; whether there is one."""
        while self.share <= MOST_DAMPING:
            damping = self.ridge + self.share * self.targets.steepest
            if not self.targets.bounded:
                damping = np.maximum(damping, 1e-13 * self.G.diagonal())
            try:
                np.linalg.cholesky(self.G + np.diag(damping))
                step = -np.linalg.solve(self.G + np.diag(damping), self.g)
            except np.linalg.LinAlgError:
                self.share = max(10.0 * self.share, DAMPED)
                continue
            self.trial, self.predicted = self.x + step, -float(self.g @ step)
            return math.isfinite(self.predicted)
        return False
