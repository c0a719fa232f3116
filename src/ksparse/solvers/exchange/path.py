"""The search in the loop, with callback, time limit, Ctrl-C and checkpoints: fits for one size, or for many at about
the price of one."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..._validate import check_number
from ...engine import loop
from ...engine.checkpoint import sums
from ...engine.loop import Callback, Clock, State, Task, TimeUp, Trace
from ...engine.resume import check_columns, digest, fingerprint
from ...result import History, Record, Result, Status, judged
from .pivots import Array
from .sample import columns_fit
from .search import Asked, Search, Stop

STAGES = 200
ROUNDING = 1e-12  # a fall of the objective by this share tells nothing new


def solve_path(
    asked: Asked,
    ridges: Sequence[float],
    *,
    callback: Callback | None = None,
    max_time: float | None = None,
    stages: int = STAGES,
    flat: bool = True,
) -> list[Result]:
    """The fits of every size that is asked for, each under its own ridge; only some if the run was stopped early.

    The supports are found by one walk under the middle ridge, then exchanged at every size under that size's ridge.
    `flat` results have coefficients (d,) and one intercept, as those of `minimize`, else (d, outputs) and (outputs,).
    """
    if callback is not None and not callable(callback):
        raise ValueError(f"callback must be a function of one argument, got {callback!r}")
    if max_time is not None:
        max_time = check_number(max_time, "max_time", strict=True, infinite=True)
    problem, clock = asked.problem, Clock(max_time, 1)
    single = len(asked.sizes) == 1
    if single or problem.positive or columns_fit(problem.design, max(asked.sizes)):
        middle = sorted(ridges)[len(ridges) // 2]
        asked = asked if problem.l2 == middle else asked._replace(problem=dataclasses.replace(problem, l2=middle))
        return loop.run(SearchRun(asked, ridges, clock, stages, flat, callback is not None), clock, callback)
    results: list[Result] = []
    for k, l2 in zip(asked.sizes, ridges, strict=True):  # the search on samples knows one size, and where to start
        asked = asked._replace(sizes=[k], problem=dataclasses.replace(problem, l2=l2))
        results += loop.run(SearchRun(asked, [l2], clock, stages, flat, True), clock, callback)
        if results[-1].status in ("time limit", "interrupted", "stopped"):
            break
        x, constant = results[-1].x, np.atleast_1d(results[-1].intercept)
        asked = asked._replace(start=(x[:, np.newaxis] if flat else x, constant))
    return results


def records(
    search: Search, ridges: Sequence[float], clock: Clock, state: State | None, place: Callable[[Stop, bool], int],
    each: bool = True,
) -> Iterator[Record]:  # fmt: skip
    """A record of the start, of better fits of the largest size, and of the last fit of `each` size or of the largest.

    `place` is called with every fit, and with whether it is the last one of its size; it returns how many columns are
    new.  The last record has a status, and says whether the fit is swap-optimal.
    """
    asked, told, last, standing = search.asked, 0, math.inf, None
    sizes, single = asked.sizes, len(asked.sizes) == 1

    def record(stop: Stop, ended: bool = False) -> Record:
        nonlocal told, last, standing
        entered, passes, change = place(stop, ended), search.passes - told, abs(last - stop.objective)
        told, last, standing = search.passes, stop.objective, stop
        gradients = passes * asked.problem.n
        return Record(stop.objective, gradients, entered, 0.0, math.nan, change if math.isfinite(change) else 0.0)

    def better() -> Iterator[Record]:
        if single or search.exact is None:  # a path of least squares has nothing to show before its end
            found, full = search.best(max(sizes))
            if full and found.objective < last - ROUNDING * abs(last):
                yield record(found)

    if state is None:
        yield record(search.first())._replace(null=search.null)
    try:
        if state is not None:
            search.restore(state["search"])
            told, last = search.passes, state["last"]
            yield from better()
        clock.keep(search=search.state(), last=last)
        for _ in search.walk():
            clock.keep(search=search.state(), last=last)
            yield from better()
        stops = search.stops(sizes, ridges)
    except (TimeUp, KeyboardInterrupt):  # what was found so far is the result
        found = search.so_far()[-1]
        if single and found.objective < last:
            place(found, False)
        raise
    if single and standing is not None and stops[0].objective > last + 1e-9 * abs(last):
        stops = [standing]  # a start that no search could improve
    for stop in stops[:-1]:
        if each:
            yield record(stop, True)
        else:
            place(stop, True)
    optimal = stops[-1].swap_optimal
    yield record(stops[-1], True)._replace(status=asked.ended(optimal), swap_optimal=optimal)


def in_full(asked: Asked, stop: Stop | None, flat: bool) -> tuple[Array, Any, NDArray[np.intp]]:
    """A fit as coefficients on all columns, intercepts, and the support; zeros if there is none."""
    x, constant = np.zeros((asked.problem.d, asked.outputs)), np.zeros(asked.outputs)
    if stop is not None:
        x[stop.columns], constant[:] = stop.x, stop.constant
    support = np.flatnonzero(x[:, 0] if asked.outputs == 1 else x.any(axis=1))
    return (x[:, 0], float(constant[0]), support) if flat else (x, constant, support)


def as_result(
    asked: Asked, stop: Stop, null: float, passes: int, status: Status | None = None, flat: bool = True
) -> Result:
    """A fit of a path as a solver returns it; with a status if it is not the last one of its size."""
    x, constant, support = in_full(asked, stop, flat)
    finite = bool(np.isfinite(x).all() and np.isfinite(constant).all()) and math.isfinite(stop.objective)
    told = judged(status or asked.ended(stop.swap_optimal), stop.objective, null, 1e-9 * abs(null), finite)
    none, objectives = np.zeros(2), np.array([null, stop.objective])
    gradients = np.array([0, passes * asked.problem.n])
    history = History(objectives, gradients, none, none.astype(np.int64), none, np.full(2, math.nan))
    swap_optimal = None if status is not None else stop.swap_optimal
    return Result(x, constant, support, stop.objective, told, 1, history, swap_optimal, null)


class SearchRun(Task[list[Result]]):
    """The search as a task of the loop; the fit that was found last is its iterate."""

    start_argument = "start"
    resumable = True

    def __init__(
        self, asked: Asked, ridges: Sequence[float], clock: Clock, stages: int, flat: bool, each: bool
    ) -> None:
        self.asked, self.ridges, self.clock, self.flat, self.each = asked, ridges, clock, flat, each
        self.single, self.numbers = len(asked.sizes) == 1, asked.problem.design.entries
        self.limit = stages if self.single else math.inf
        self.search: Search | None = None
        self.fit: Stop | None = None
        self.ended: list[Stop] = []  # the last fits of the first sizes
        self.null: float | None = None  # the objective of the empty model, once it is known

    def stages(self, state: State | None) -> Iterator[Record]:
        self.search = Search(self.asked, self.asked.problem.l2, self.clock.check)
        yield from records(self.search, self.ridges, self.clock, state, self._place, self.each)

    def _place(self, stop: Stop, ended: bool) -> int:
        before, self.fit = self.fit, stop
        if ended:
            self.ended.append(stop)
        return len(set(stop.columns.tolist()).difference(() if before is None else before.columns.tolist()))

    def take(self, record: Record, stage: int) -> Status | None:
        self.null = record.null if stage == 0 else self.null
        if math.isfinite(record.objective):
            return None
        if stage == 0:
            raise ValueError(f"the objective is not finite at the start ({record.objective}); rescale Y or offset")
        return Status("diverged", "the refit left the range of floats", "rescale the columns, or give a ridge")

    def shown(self) -> tuple[Array, Any, NDArray[np.intp]]:
        return in_full(self.asked, self.fit, self.flat)

    def exhausted(self) -> Status:
        return Status("stage limit", f"all {self.limit} stages done", "allow more stages")

    def result(self, status: Status, trace: Trace) -> list[Result]:
        if self.single:
            objective = self._zero() if self.fit is None else self.fit.objective
            if not trace.records:  # the start itself had not been fitted
                trace.add(Record(objective, 0, 0, 0.0, math.nan, math.nan))
            x, constant, support = self.shown()
            status = judged(status, objective, self.null, 1e-9 * abs(self.null or 0.0), bool(np.isfinite(x).all()))
            history, swap_optimal = trace.history(), trace.swap_optimal
            return [Result(x, constant, support, objective, status, trace.stages, history, swap_optimal, self.null)]
        if self.search is None:  # not even the empty model is fitted
            nothing = Stop(np.empty(0, np.int64), np.empty((0, self.asked.outputs)), np.zeros(1), self._zero(), False)
            return [as_result(self.asked, nothing, nothing.objective, 0, status, self.flat)]
        stops, ended = self.ended, len(self.ended)
        if not stops or status in ("time limit", "interrupted"):
            stops = [*stops, *self.search.so_far()[ended:]]
        null, passes = self.search.null, self.search.passes
        return [
            as_result(self.asked, stop, null, passes, None if at < ended else status, self.flat)
            for at, stop in enumerate(stops)
        ]

    def _zero(self) -> float:
        """F at zero: the result of a run that was cut short before its first fit."""
        asked, problem = self.asked, self.asked.problem
        if asked.classes is not None:
            labels, z = asked.classes
            top = z.max(axis=1)
            own = z[np.arange(problem.n), labels.astype(np.int64)]
            return float(problem.weight @ (np.log(np.exp(z.T - top).sum(axis=0)) + top - own)) / problem.n
        if asked.Y is not None:
            return 0.5 * float(np.sum(problem.weight @ asked.Y**2)) / problem.n
        return problem.objective(problem.slots(1))

    # --- checkpoints ---------------------------------------------------------------------------------------------
    def fingerprint(self) -> State:
        asked = self.asked
        x0, constant = (None, 0.0) if asked.start is None else asked.start
        kind, targets = "Single", {}
        if asked.Y is not None:
            kind, targets = "Targets", {"Y, less the offset,": digest(asked.Y)}
        if asked.classes is not None:
            kind, targets = "Classes", {"Y": digest(asked.classes[0]), "offset": digest(asked.classes[1])}
        k = asked.sizes[0] if self.single else list(asked.sizes)
        return {
            **fingerprint(None, asked.problem, 0, x0, constant, None),
            "the solver": f"Exchange(stages={self.limit}, effort={asked.effort!r})",
            "k": k,
            "l2": self.ridges[0] if self.single else list(self.ridges),
            "the kind of targets": kind,
            "the number of outputs": asked.outputs,
            "groups": None if asked.groups is None else sums(asked.groups),
            **targets,
        }

    def state(self) -> State:
        fit = self.fit
        return {"null": self.null, "fit": None if fit is None else [fit.columns, fit.x, fit.constant, fit.objective]}

    def restore(self, state: State) -> None:
        self.null = state["null"]
        if state["fit"] is not None:
            columns, x, constant, objective = state["fit"]
            self.fit = Stop(check_columns(self.asked.problem, columns, x), x, constant, float(objective), False)
