"""Columns of a problem as dense rows, for those that are used again and again."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..problem import Problem


class Store:
    """Columns of the problem as dense rows, those used last: at least `size` of them, more if the data are large."""

    def __init__(self, problem: Problem, size: int) -> None:
        self.problem = problem
        spare = min(2 * size, problem.design.entries // (2 * problem.n)) if problem.design.in_memory else 0
        self.size = min(problem.d, max(size, spare))
        self._dense = np.empty((0, problem.n))
        self._copy = self._dense
        self._slot: dict[int, int] = {}  # the slot of a column, the one used last at the end

    def take(self, columns: NDArray[np.int64], rows: NDArray[np.int64] | slice | None = None) -> NDArray[np.float64]:
        """A copy of some columns, of some rows or all; that of all rows is overwritten by the next one."""
        wanted = columns.tolist()
        new = [j for j in wanted if j not in self._slot]
        if max(self.size, len(wanted)) > len(self._dense):  # the first time, or more than ever at once
            self._dense, self._slot, new = np.empty((max(self.size, len(wanted)), self.problem.n)), {}, wanted
        for j in wanted:
            if j in self._slot:
                self._slot[j] = self._slot.pop(j)  # to the end
        if new:
            free = list(set(range(len(self._dense))) - set(self._slot.values()))
            while len(free) < len(new):
                free.append(self._slot.pop(next(iter(self._slot))))
            free = sorted(free)[: len(new)]
            if free[-1] - free[0] == len(new) - 1:  # side by side: straight to their place
                self.problem.design.read_columns(np.array(new, dtype=np.int64), self._dense[free[0] : free[-1] + 1])
            else:
                block = np.empty((len(new), self.problem.n))
                self.problem.design.read_columns(np.array(new, dtype=np.int64), block)
                self._dense[free] = block
            self._slot |= dict(zip(new, free, strict=True))
        slots = np.array([self._slot[j] for j in wanted], dtype=np.int64)
        if isinstance(rows, np.ndarray):
            return self._dense[np.ix_(slots, rows)]
        if rows is not None:
            return self._dense[slots, rows]
        # into the same memory every time: fresh pages would cost more than the copy
        if len(self._copy) < len(wanted):
            self._copy = np.empty((len(wanted), self.problem.n))
        return self._dense.take(slots, axis=0, out=self._copy[: len(wanted)], mode="clip")
