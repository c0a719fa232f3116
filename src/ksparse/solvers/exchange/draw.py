"""Samples of the rows of a problem, as problems of their own; a larger sample contains a smaller one."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np

from ...design.matrix import InMemory, as_matrix, as_rows
from ...losses import SoftmaxLoss
from ...problem import Problem
from ..block import Columns, Targets
from ..passes import AllRows

LARGEST = 0.25  # share of the rows above which a sample does not grow


class Sampler:
    """Draws rows of weight above zero.

    Rare labels, and counts that are not zero, get up to their share of a sample; weights make up for it.  For a source
    all samples come from one pass over its rows.
    """

    def __init__(self, problem: Problem, targets: Targets, rows: AllRows, single: bool) -> None:
        self.problem, self.targets, self.rows, self.single = problem, targets, rows, single
        self.drawn: tuple[Columns, InMemory] | None = None  # the largest sample of a source

    def most(self, first: int) -> int:
        """How many rows a sample may have, of which the first has so many."""
        most, stored = max(first, int(LARGEST * self.problem.n)), self.rows.stored
        # a source: the rows drawn, those of a sample among them, and these scaled
        return most if stored.in_memory else min(most, max(1, stored.sample_rows // 2))

    def draw(self, size: int) -> tuple[Problem, Targets, Columns | None]:
        """The problem on a sample of so many rows, at most.

        Of sparse rows only the columns are left that the sample has; the last item tells which they are.
        """
        problem, targets, (which, rows) = self.problem, self.targets, self._rows(size)
        columns: Columns | None = None
        if rows.sparse and self.single:
            own: Any = as_matrix(rows.rows)
            seen = np.union1d(np.flatnonzero(np.bincount(own.indices) > 1), problem.kept)
            if 2 * seen.size < problem.d:
                columns, rows = seen, InMemory(as_rows(own[:, seen]))
        used: Any = slice(None) if columns is None else columns
        centre, factor = self.rows.centre[used], self.rows.scale[used]
        rows = rows.scaled(np.zeros(factor.size) if rows.sparse else centre, factor)
        strata = self._strata
        inside, outside = np.bincount(strata[which]), np.bincount(strata[strata >= 0])
        weight = problem.weight[which] * (outside / np.maximum(inside, 1))[strata[which]]
        sub = dataclasses.replace(
            problem, design=rows, y=problem.y[which], weight=weight / weight.mean(), offset=problem.offset[which],
            kept=problem.kept if columns is None else np.searchsorted(columns, problem.kept),
        )  # fmt: skip
        n, C = problem.n, targets.outputs
        if C == 1:
            return sub, Targets.of(sub), columns
        offset = targets.offset.reshape(C, n)[:, which].ravel()
        y = targets.y[which] if targets.y.size == n else targets.y.reshape(C, n)[:, which].ravel()
        return sub, targets._replace(y=y, offset=offset), columns

    def _rows(self, size: int) -> tuple[Columns, InMemory]:
        """The numbers of the rows of a sample, and the rows as they are stored."""
        stored = self.rows.stored
        if stored.in_memory:
            which = self.pick(size)
            return which, stored.rows_at(which)
        if self.drawn is None:
            which = self.pick(self.most(size))
            mask = np.zeros(self.problem.n, dtype=bool)
            mask[which] = True
            self.rows.passes += 1
            self.drawn = which, InMemory(as_rows(stored.rows_at(mask)))
        which, rows = self.drawn
        some = self.pick(min(size, which.size))
        return some, rows.rows_at(np.searchsorted(which, some))

    def pick(self, size: int) -> Columns:
        """Numbers of rows in ascending order, equally many from each stratum as far as it has them."""
        strata, priority, left = self._strata, self._priority, size
        sizes, some = np.bincount(strata[strata >= 0]), [np.empty(0, np.int64)]
        for number, stratum in enumerate(np.argsort(sizes, kind="stable")):
            inside, share = np.flatnonzero(strata == stratum), left // (sizes.size - number)
            if inside.size > share:
                inside = inside[np.argpartition(priority[inside], share)[:share]]
            left -= inside.size
            some.append(inside)
        return np.sort(np.concatenate(some))

    @functools.cached_property
    def _strata(self) -> Any:
        """Classes, or whether a target is above zero if it is a label or a count; −1 for rows of weight zero."""
        y, strata = self.targets.y, np.zeros(self.problem.n, np.int32)
        if isinstance(self.targets.loss, SoftmaxLoss):
            strata = y.astype(np.int32)
        elif getattr(self.problem.loss, "targets", "") in ("labels", "counts") and self.targets.outputs == 1:
            strata = (y > 0.0).astype(np.int32)
        return np.where(self.problem.weight > 0.0, strata, -1)

    @functools.cached_property
    def _priority(self) -> Any:
        """The rows with the lowest numbers are drawn first; the same numbers every time."""
        return np.random.default_rng(0).random(self.problem.n, dtype=np.float32)
