"""One problem solved for several numbers of columns at once, at about the price of one fit."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np

from ..._jit import quiet_blas
from ...problem import Problem
from ...result import History, Result, judged
from .pivots import Columns
from .search import Asked, Search, Stop
from .squared import EFFORTS as EFFORTS


def solve_path(
    problem: Problem,
    sizes: Sequence[int],
    ridges: Sequence[float],
    effort: str,
    check: Callable[[], None] = lambda: None,
    start: Columns | None = None,
) -> list[Result]:
    """The fits with at most k columns for every k of `sizes`, each under its own ridge.

    The supports are found by one walk under the middle ridge, then exchanged at every size under that size's ridge.
    With a `start` the search begins from those columns.
    """
    middle = sorted(ridges)[len(ridges) // 2]
    asked = Asked(dataclasses.replace(problem, l2=middle), sizes, effort)
    if start is not None:
        x = np.zeros((problem.d, 1))
        x[start] = 1.0
        asked = asked._replace(start=(x, np.zeros(1)))
    with quiet_blas(problem.design.entries):
        search = Search(asked, middle, check)
        for _ in search.walk():
            pass
        return [as_result(asked, stop, search.null, search.passes) for stop in search.stops(sizes, ridges)]


def as_result(asked: Asked, stop: Stop, null: float, passes: int) -> Result:
    """A fit as a solver returns it."""
    x, constant = np.zeros(asked.problem.d), float(stop.constant[0])
    x[stop.columns] = stop.x[:, 0]
    finite = bool(np.isfinite(x).all()) and math.isfinite(constant) and math.isfinite(stop.objective)
    status = judged(asked.ended(stop.swap_optimal), stop.objective, null, 1e-9 * abs(null), finite)
    none, objectives = np.zeros(2), np.array([null, stop.objective])
    gradients = np.array([0, passes * asked.problem.n])
    history = History(objectives, gradients, none, none.astype(np.int64), none, np.full(2, math.nan))
    return Result(x, constant, np.flatnonzero(x), stop.objective, status, 1, history, stop.swap_optimal, null)
