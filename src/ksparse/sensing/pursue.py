"""The loop around a pursuit's steps: many signals at once, each until it has converged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..result import Status
from ..solvers._pursuit import PATIENCE, Course, Point, Steps
from ..solvers._run import Clock, TimeUp
from .linear import Linear

BLOW_UP = 100.0  # a misfit this many times that of the start has diverged


@dataclass
class Watch:
    """What a run of several signals tells, asks and remembers: the clock, the history, the callback."""

    clock: Clock
    tell: Callable[[int, Sequence[Point], float, int], Status | None] | None
    goals: NDArray[np.float64]  # misfits that are small enough

    def __post_init__(self) -> None:
        self.records: list[tuple[float, ...]] = []

    def stage(self, points: Sequence[Point], products: int, changes: int) -> Status | None:
        """Enter a stage into the history; a status if the callback wants to stop."""
        misfit = float(np.mean([point.misfit for point in points]))
        self.records.append((misfit, products, self.clock.seconds, changes, 0.0, np.nan))
        if self.tell is None or len(self.records) == 1:
            return None
        return self.tell(len(self.records) - 1, points, misfit, changes)

    def reached(self, point: Point) -> bool:
        return bool(point.misfit <= self.goals[point.signal])


def pursue(steps: Steps, system: Linear, k: int, watch: Watch) -> tuple[list[Point], list[Status]]:
    """Every signal's point, and how its run ended; the best point of a run that did not converge."""
    now = system.start()
    courses = [Course(point, point.misfit) for point in now]
    ends: list[Status | None] = [_goal() if watch.reached(point) else None for point in now]
    watch.stage(now, system.products, 0)
    try:
        for stage in range(1, steps.limit + 1):
            active = [i for i, end in enumerate(ends) if end is None]
            if not active:
                break
            watch.clock.check()
            changes = 0
            for i, point in zip(active, steps.advance(system, k, [now[i] for i in active]), strict=True):
                before, now[i] = now[i], point
                changes += point.entered(before)
                ends[i] = _judge(courses[i].take(steps, before, point), point, courses[i].first, watch, stage)
            stopped = watch.stage(now, system.products, changes)
            if stopped is not None:
                ends = [stopped if end is None else end for end in ends]
        left = Status("stage limit", f"all {steps.limit} stages done", "allow more iterations, or a larger tol")
    except TimeUp:
        left = Status("time limit", f"max_time = {watch.clock.limit:g} s is over", "give more time")
    except KeyboardInterrupt:
        left = Status("interrupted", "Ctrl-C")
    return [course.best for course in courses], [left if end is None else end for end in ends]


def _judge(end: str | None, point: Point, first: float, watch: Watch, stage: int) -> Status | None:
    if not point.misfit <= BLOW_UP * first:
        remedy = "use 'niht' or 'auto', which choose their steps"
        return Status("diverged", f"the residual grew in stage {stage}", remedy)
    if watch.reached(point):
        return _goal()
    if end == "converged":
        return Status(end, f"stage {stage} left the support as it was")
    if end == "stalled":
        message = f"no stage of the last {PATIENCE} made the residual smaller"
        return Status(end, message, "try algorithm='auto', or a larger k")
    return None


def _goal() -> Status:
    return Status("converged", "the residual is as small as it was to be")


def summary(ends: Sequence[Status]) -> Status:
    """One status for several signals: the commonest of those that are not "converged", if there are any."""
    if len(ends) == 1:
        return ends[0]
    kinds: dict[str, list[Status]] = {}
    for end in ends:
        kinds.setdefault(str(end), []).append(end)
    if set(kinds) == {"converged"}:
        return Status("converged", f"all {len(ends)} signals")
    kind = max((name for name in kinds if name != "converged"), key=lambda name: len(kinds[name]))
    message = f"{len(kinds[kind])} of {len(ends)} signals: {kinds[kind][0].message}"
    return Status(kind, message, kinds[kind][0].remedy)


def as_matrix(points: Sequence[Point], d: int, dtype: Any) -> NDArray[Any]:
    """The points as columns, (d, signals · outputs)."""
    x = np.zeros((d, len(points), len(points[0].x)), dtype)
    for i, point in enumerate(points):
        x[point.columns, i] = point.x.T
    return x.reshape(d, -1)
