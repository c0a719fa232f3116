r"""Least squares for the folds of a cross-validation: all paths walk together, and share their sums over the rows.

Let b be the columns in the units of all rows, w the weights, and H_g the rows that fold g holds out.  Fold f is fitted
on the others, and

.. math:: \sum_{i\notin H_f} w_ib_ib_i^\top = \sum_g S_g - S_f,\qquad S_g = \sum_{i\in H_g} w_ib_ib_i^\top,

so that one pass over the rows gives the Gram rows of every fold.  They are then centred by the means of the fold's own
rows and scaled by its own factors.  A walk has the Gram rows that it asked for, as it would alone, and no others: its
choices do not depend on the rows that its fold holds out.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from ..._jit import SUMS, kernel
from ...design import Design, InMemory, Standardized
from ...problem import Problem
from ...result import Result
from .path import as_result, solve_path
from .pivots import Array, Columns
from .scout import Single, Wanted, gram_rows
from .search import MORE, NUMBERS, PER_SIZE, ROOM, Asked, in_two_dimensions
from .squared import SquaredPath

FAR = 10.0  # times that a column may vary more in all rows than in a fold's: beyond, differences of sums lose digits
TINY = 50_000  # entries of the matrix below which there is too little to share (measured from 442 × 10 to 5000 × 50)
FEW_ENTRIES = 20  # per column and fold: below, sums for every fold cost more than the products (10: +20%, 50: −25%)
SAME = 1e-10  # relative difference of weights that are equal but for rounding


def squared_folds(
    whole: Problem,
    problems: Sequence[Problem],
    sizes: Sequence[int],
    ridges: Sequence[Sequence[float]],
    effort: str,
    check: Callable[[], None] = lambda: None,
) -> list[list[Result]] | None:
    """The fits of every problem for all `sizes`, each problem under ridges of its own; as `solve_path` returns them.

    A problem is `whole`, or differs from it in its weights, which are zero on the rows that a fold holds out, and in
    its standardisation.  None if the problems cannot share their sums (see `held_out`), would gain nothing, or would
    need too much memory.
    """
    held, entries = held_out(whole, problems), whole.design.entries
    if held is None or entries < TINY or entries < FEW_ENTRIES * whole.d * len(held):
        return None
    if 8 * whole.d * (PER_SIZE * max(sizes) + MORE) * 2 * len(problems) > ROOM:
        return None
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        shared = SharedSums(whole, held)
        walks = [
            fold_steps(problem, shared, sizes, own, effort, check)
            for problem, own in zip(problems, ridges, strict=True)
        ]
        return in_lockstep(walks, shared)


def held_out(whole: Problem, problems: Sequence[Problem]) -> dict[int, Columns] | None:
    """The rows that each problem leaves out, by its id; None if sums cannot be shared.

    They can if the loss is squared, the stored rows are the same and in memory, the weights are those of `whole` up to
    a factor on the rows that are left in, and no row is left out by two problems.
    """
    stored, found, times = _units(whole.design)[0], {}, np.zeros(whole.n, np.int64)
    if not (getattr(whole.loss, "quadratic", False) and whole.design.in_memory) or whole.positive:
        return None
    for problem in {id(problem): problem for problem in problems}.values():
        weight, out = problem.weight, (problem.weight == 0.0) & (whole.weight > 0.0)
        left = np.where(out, 0.0, whole.weight)
        left *= weight.sum() / left.sum()
        if _units(problem.design)[0] is not stored or (np.abs(weight - left) > SAME * weight).any():
            return None
        found[id(problem)] = np.flatnonzero(out)
        times += out
    return found if times.max(initial=0) <= 1 else None


def fold_steps(
    problem: Problem, shared: SharedSums, sizes: Sequence[int], ridges: Sequence[float], effort: str,
    check: Callable[[], None],
) -> Wanted[list[Result]]:  # fmt: skip
    """`solve_path` for one fold, which stops whenever Gram rows are missing: the caller has to fetch them."""
    middle = sorted(ridges)[len(ridges) // 2]
    try:
        path = SquaredPath(dataclasses.replace(problem, l2=middle), check, max(sizes), min(sizes))
        path.shared = sums = FoldSums(shared, problem, path)
        if sums.exact:
            yield from path.steps(middle, effort)
            if path.thorough and path.exact is not None and path.exact.columns.size < problem.d:
                chosen = np.unique(path.best.choices[np.isfinite(path.best.value)])
                yield path, path.exact.columns[chosen]  # `stops` needs more rows
            asked, null = Asked(problem, sizes, effort), path.null
            results = [
                as_result(asked, in_two_dimensions(stop), null, path.passes) for stop in path.stops(sizes, ridges)
            ]
            if all(result.converged for result in results):
                return results
    except NUMBERS:  # columns that depend on each other, numbers that overflow
        pass
    return solve_path(Asked(problem, sizes, effort), ridges)


def in_lockstep(walks: Sequence[Wanted[Any]], shared: SharedSums) -> list[Any]:
    """What the walks return; Gram rows that several of them want at a time are computed in one pass."""
    returned: list[Any] = [None] * len(walks)
    live, wanted = dict(enumerate(walks)), {}
    while live:
        for at in [at for at in live if at not in wanted]:
            try:
                wanted[at] = next(live[at])
            except StopIteration as end:
                returned[at] = end.value
                del live[at]
        # rows in single precision first: walks that want others wait, so that one pass serves all of them
        single = {at for at, (owner, _) in wanted.items() if owner.rows.dtype == np.float32}
        served = [wanted.pop(at) for at in single or set(wanted)]
        shared.add(itertools.chain(*(columns.tolist() for _, columns in served)), np.float32 if single else np.float64)
        for owner, columns in served:
            owner.fetch(columns)
    return returned


def _units(design: Design) -> tuple[Design, Array, Array]:
    """The stored rows, with centre and factor of the columns: the design is (stored − centre)·factor."""
    if isinstance(design, Standardized) and design.scaling is not None:
        return design.stored, *design.scaling
    d = design.shape[1]
    return design, np.zeros(d), np.ones(d)


def _to_variance_one(problem: Problem, mean: Array, own: Array) -> tuple[Array, Array]:
    """Centre and factor that give the stored columns mean zero, if there is an intercept, and variance one."""
    _, centre, factor = _units(problem.design)
    usable = (own > 0.0) & (factor > 0.0)
    centre = centre + np.divide(mean, factor, out=np.zeros_like(mean), where=usable)
    return centre, np.where(usable, factor / np.sqrt(np.where(usable, own, 1.0)), 0.0)


class RowSums:
    """Sums of products of some columns with all, one row for every part of the rows and a last one for all."""

    def __init__(self, parts: int, d: int, dtype: Any) -> None:
        self.parts, self.d, self.dtype = parts, d, np.dtype(dtype)
        self.known: dict[int, Any] = {}

    def add(self, columns: Iterable[int], product: Callable[[Columns, Any], None]) -> None:
        """Have the sums of these columns; `product` writes those of new ones for every part."""
        new = sorted({column for column in columns if column not in self.known})
        if new:
            sums = np.empty((self.parts + 1, len(new), self.d), self.dtype)
            product(np.array(new), sums)
            np.sum(sums[:-1], axis=0, out=sums[-1])
            self.known.update((column, sums[:, b]) for b, column in enumerate(new))


class SharedSums:
    """Sums over the rows that each fold holds out, and over those that none does, in the units of all rows."""

    def __init__(self, whole: Problem, held: dict[int, Columns]) -> None:
        self.whole, self.weight, self.stored = whole, whole.weight / whole.n, _units(whole.design)[0]
        self.centre, self.factor = _to_variance_one(whole, *whole.design.column_moments(whole.weight, whole.intercept))
        rest = whole.weight > 0.0
        for rows in held.values():
            rest[rows] = False
        self.parts = [rows for rows in (*held.values(), np.flatnonzero(rest)) if rows.size]
        self.part_of = {
            key: next((g for g, rows in enumerate(self.parts) if rows is own), -1) for key, own in held.items()
        }
        shape = len(self.parts), whole.d
        self.single, self.double = RowSums(*shape, np.float32), RowSums(*shape, np.float64)

    def add(self, columns: Iterable[int], dtype: Any) -> RowSums:
        """Have the sums of these columns in single or double precision."""
        if dtype == np.float32:
            self.single.add(columns, self._single_product)
            return self.single
        self.double.add(columns, self._product)
        return self.double

    @functools.cached_property
    def order(self) -> Columns:
        """The rows, part by part."""
        return np.concatenate(self.parts)

    @functools.cached_property
    def Z(self) -> Single | None:
        """All rows in single precision, part by part; None unless they are dense."""
        Z = self.stored.single_copy(self.centre, self.factor)
        return None if Z is None else Z[self.order]

    def _single_product(self, columns: Columns, out: Any) -> None:
        Z: Any = self.Z
        B = np.ascontiguousarray(Z[:, columns].T) * self.weight[self.order].astype(np.float32)
        low = 0
        for g, rows in enumerate(self.parts):
            high = low + rows.size
            gram_rows(np.ascontiguousarray(B[:, low:high]), Z[low:high], out[g])
            low = high

    def _product(self, columns: Columns, out: Any) -> None:
        block = self._block(columns) * self.weight
        for g, rows in enumerate(self.parts):
            own = np.ascontiguousarray(block[:, rows])
            sums = self.sparse_parts[g].left_product(own) if self.sparse_parts else self.stored.left_product(own, rows)
            np.subtract(sums, np.outer(own.sum(axis=1), self.centre), out=sums)
            np.multiply(sums, self.factor, out=out[g])

    @functools.cached_property
    def sparse_parts(self) -> list[InMemory]:
        """The parts of sparse rows, which SciPy would copy for every product; empty for dense rows."""
        stored = self.stored
        return [stored.rows_at(rows) for rows in self.parts] if isinstance(stored, InMemory) and stored.sparse else []

    def _block(self, columns: Columns) -> Array:
        block = np.empty((columns.size, self.whole.n))
        self.stored.read_columns(columns, block, (self.centre[columns], self.factor[columns]))
        return block

    @functools.cached_property
    def grams(self) -> list[Array]:
        """The Gram matrix of all columns in every part."""
        block = self._block(np.arange(self.whole.d)) * np.sqrt(self.weight)
        own = [np.ascontiguousarray(block[:, rows]) for rows in self.parts]
        return [rows @ rows.T for rows in own]


@kernel(fastmath=SUMS)
def centre_and_scale(total, own, growth, shift, ratio, a, out):
    """out_j = (growth·(total_j − own_j) − shift_a·shift_j)·ratio_a·ratio_j."""
    number = out.dtype.type
    growth, shift_a, ratio_a = number(growth), number(shift[a]), number(ratio[a])
    for j in range(out.size):
        out[j] = (growth * (total[j] - own[j]) - shift_a * shift[j]) * (ratio_a * ratio[j])


class FoldSums:
    """Sums over the rows of one fold: those over all rows without its own, in the units of the fold's problem."""

    def __init__(self, shared: SharedSums, problem: Problem, path: SquaredPath) -> None:
        centre, factor = _to_variance_one(problem, path.mean, path.own)
        self.shared, self.weight, self.part = shared, path.weight, shared.part_of[id(problem)]
        left_out = shared.parts[self.part] if self.part >= 0 else np.empty(0, np.int64)
        self.growth = 1.0 / (1.0 - float(shared.weight[left_out].sum()))
        self.shift = (centre - shared.centre) * shared.factor
        usable = shared.factor > 0.0
        self.to_one = np.divide(factor, shared.factor, out=np.zeros_like(factor), where=usable)
        self.ratio = self.to_one * np.sqrt(path.own)
        self.exact = bool((self.to_one <= FAR).all() and (usable | (factor == 0.0)).all())

    def gram(self) -> Array:
        """The Gram matrix of all columns."""
        grams = self.shared.grams
        left = sum(own for g, own in enumerate(grams) if g != self.part)
        return (self.growth * left - np.outer(self.shift, self.shift)) * np.outer(self.ratio, self.ratio)

    def rows(self, columns: Columns) -> Array:
        """Gram rows of some columns."""
        out = np.empty((columns.size, self.shift.size))
        self.write(columns, self.shift, self.ratio, out)
        return out

    def single(self, scale: Array) -> SingleFoldSums | None:
        """The same in single precision, for columns scaled to variance one; None unless the rows are dense."""
        return None if self.shared.Z is None else SingleFoldSums(self)

    def write(self, columns: Columns, shift: Any, ratio: Any, out: Any) -> None:
        """Gram rows of some columns, in the precision of `out`."""
        sums = self.shared.add(columns.tolist(), out.dtype)
        nothing = np.zeros(self.shift.size if self.part < 0 else 0, out.dtype)
        for a, row in zip(columns.tolist(), out, strict=True):
            own = sums.known[a]
            centre_and_scale(own[-1], own[self.part] if self.part >= 0 else nothing, self.growth, shift, ratio, a, row)


class SingleFoldSums:
    """The sums of a fold in single precision."""

    def __init__(self, fold: FoldSums) -> None:
        self.fold = fold
        self.shift, self.ratio = fold.shift.astype(np.float32), fold.to_one.astype(np.float32)

    def covariances(self, target: Array) -> Any:
        """Covariances of all columns with a centred target."""
        order = self.fold.shared.order
        Z: Any = self.fold.shared.Z
        weighted = (target * self.fold.weight)[order]
        return (weighted.astype(np.float32) @ Z - np.float32(weighted.sum()) * self.shift) * self.ratio

    def write(self, columns: Columns, out: Single) -> None:
        """Gram rows of some columns."""
        self.fold.write(columns, self.shift, self.ratio, out)
