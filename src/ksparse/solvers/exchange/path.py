"""One problem solved for several numbers of columns at once, at about the price of one fit."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np

from ...problem import Problem
from ...result import History, Result, Status, judged
from .pivots import Columns
from .smooth import SmoothPath
from .squared import EFFORTS as EFFORTS
from .squared import SquaredPath, Stop

ROOM = 1 << 30  # bytes that Gram rows and models may take
PER_SIZE, MORE = 6, 100  # rows of d numbers that a walk may hold: so many per size, and more


def solve_path(
    problem: Problem,
    sizes: Sequence[int],
    ridges: Sequence[float],
    effort: str,
    check: Callable[[], None] = lambda: None,
    start: Columns | None = None,
) -> list[Result] | None:
    """The fits with at most k columns for every k of `sizes`, each under its own ridge.

    With the squared loss, `start` may name columns to search from.
    The supports are found by one walk under the middle ridge, then exchanged at every size under that size's ridge.
    None where only fits one by one can do it: rows in blocks, too many columns for the memory, numbers that overflow,
    kept columns that depend on each other.
    """
    if 8 * problem.d * (PER_SIZE * max(sizes) + MORE) > ROOM or not problem.design.in_memory:
        return None
    middle = sorted(ridges)[len(ridges) // 2]
    problem = dataclasses.replace(problem, l2=middle)
    try:
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            if getattr(problem.loss, "quadratic", False):
                squared = SquaredPath(problem, check, max(sizes), min(sizes), start)
                squared.walk(middle, effort)
                stops, null = squared.stops(sizes, ridges), squared.null
            else:
                smooth = SmoothPath(problem, check, max(sizes), effort)
                null = smooth.best[0].objective
                smooth.walk()
                stops = smooth.stops(sizes, ridges)
    except (np.linalg.LinAlgError, ZeroDivisionError):  # columns that depend on each other, numbers that overflow
        return None
    results = [_result(problem, stop, null) for stop in stops]
    return results if all(result.converged for result in results) else None


def _result(problem: Problem, stop: Stop, null: float) -> Result:
    """A fit as a solver returns it."""
    x = np.zeros(problem.d)
    x[stop.columns] = stop.x
    quadratic = getattr(problem.loss, "quadratic", False)
    where = "" if quadratic else " that the quadratic model favours"
    which = f"of two columns{where}" if stop.swap_optimal else "that was tried"
    status = Status("converged", f"no exchange {which} lowers the objective")
    finite = bool(np.isfinite(x).all()) and math.isfinite(stop.constant) and math.isfinite(stop.objective)
    status = judged(status, stop.objective, null, 1e-9 * abs(null), finite)
    none, objectives = np.zeros(2), np.array([null, stop.objective])
    history = History(objectives, none.astype(np.int64), none, none.astype(np.int64), none, np.full(2, math.nan))
    support = np.flatnonzero(x)
    return Result(x, stop.constant, support, stop.objective, status, 1, history, stop.swap_optimal, null)
