"""What all solvers share: the loop over stages, with history, stopping rules, callback, time limit and Ctrl-C.

A solver is a frozen dataclass with fields `tol` and `stop_on_divergence`, a property `limit` (how many stages
at most) and a method ``iterate(problem, slots, rng, clock)``: a generator that yields a `Record` for the start
and then for every stage, each time leaving the snapshot in `slots`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from ..operators import support
from ..problem import Problem, Slots
from ..result import History, Progress, Record, Result, Status

PATIENCE = 20  # stages without a new best objective before a run counts as stalled
BLOW_UP = 100.0  # an objective this many times that of the start has diverged
CHUNK_SECONDS = 0.03


@runtime_checkable
class Solver(Protocol):
    """What `run` asks of a solver."""

    @property
    def tol(self) -> float: ...
    @property
    def stop_on_divergence(self) -> bool: ...
    @property
    def limit(self) -> int: ...
    @property
    def remedies(self) -> dict[str, str]: ...
    def iterate(self, problem: Problem, slots: Slots, rng: np.random.Generator, clock: Clock) -> Iterator[Record]: ...
    def explain_divergence(self, problem: Problem, k: int, step: float) -> tuple[str, str]: ...


class TimeUp(Exception):
    """The time limit was reached."""


class Overflow(Exception):
    """The numbers left the range of floats during a stage."""


class Clock:
    """The time since the start, and work in pieces short enough that Ctrl-C and the time limit are heard."""

    def __init__(self, max_time: float | None, columns: int) -> None:
        self.start = time.perf_counter()
        self.limit = math.inf if max_time is None else max_time
        self._chunk = max(16, min(4096, (1 << 22) // columns))  # in case every step looks at all columns

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.start

    def check(self) -> None:
        if self.seconds > self.limit:
            raise TimeUp

    def steps(self, run: Callable[[int, int], int], count: int) -> None:
        """Call ``run(start, stop)`` over range(count) in pieces; it returns how far it got."""
        start = 0
        while start < count:
            began = time.perf_counter()
            stop = min(count, start + self._chunk)
            if run(start, stop) < stop:
                raise Overflow
            if stop - start == self._chunk:
                took = time.perf_counter() - began
                self._chunk = max(16, int(self._chunk * min(4.0, CHUNK_SECONDS / max(took, 1e-9))))
            start = stop
            self.check()


class Snapshot:
    """A copy of an iterate, with its objective."""

    def __init__(self, slots: Slots, objective: float = math.inf) -> None:
        self.objective = objective
        self.slots = Slots(slots.column.copy(), slots.x.copy(), slots.slot_of.copy(), slots.member.copy())

    def take(self, objective: float, slots: Slots) -> None:
        """Remember this iterate."""
        self.objective = objective
        copy_slots(slots, self.slots)

    def give(self, slots: Slots) -> None:
        """Put the remembered iterate into `slots`."""
        copy_slots(self.slots, slots)

    def keep_better(self, objective: float, slots: Slots) -> None:
        if objective < self.objective:
            self.take(objective, slots)


def copy_slots(source: Slots, target: Slots) -> None:
    """Make target the iterate that source is, touching only what differs."""
    np.copyto(target.x, source.x)
    moved = target.column != source.column
    if not moved.any():
        return
    old = target.column[moved]
    target.slot_of[old] = -1
    np.bitwise_and.at(target.member, old >> 6, ~(np.uint64(1) << (old & 63).astype(np.uint64)))
    np.copyto(target.column, source.column)
    new = target.column[moved]
    target.slot_of[new] = np.flatnonzero(moved)
    np.bitwise_or.at(target.member, new >> 6, np.uint64(1) << (new & 63).astype(np.uint64))


def run(
    solver: Solver,
    problem: Problem,
    k: int,
    *,
    x0: ArrayLike | None,
    rng: np.random.Generator,
    callback: Callable[[Progress], Any] | None,
    max_time: float | None,
) -> Result:
    """Run the solver's stages until one of the stopping rules holds."""
    clock = Clock(max_time, problem.d)
    slots = problem.slots(k, x0)
    best = Snapshot(slots)
    records: list[tuple[float, ...]] = []
    status = None
    gradients = 0
    scale = 0.0
    since_best = 0
    mark = math.inf  # the objective that counted as progress last
    try:
        for record in solver.iterate(problem, slots, rng, clock):
            stage = len(records)
            gradients += record.gradients
            records.append((record.objective, gradients, clock.seconds, *record[2:5]))
            if stage == 0:
                scale = _scale(problem, slots, record.objective, x0)
            blown = not record.objective - scale <= BLOW_UP * scale
            if not math.isfinite(record.objective) or (blown and solver.stop_on_divergence):
                status = _diverged(solver, problem, slots, records)
                break
            best.keep_better(record.objective, slots)
            if callback is not None and stage > 0:
                x = problem.vector(slots)
                intercept = float(slots.x[0]) if problem.intercept else 0.0
                told = Progress(
                    stage, record.objective, x, intercept, support(x), gradients, clock.seconds, record.step
                )
                if callback(told):
                    status = Status("stopped", f"the callback stopped the run after stage {stage}")
                    break
            small = solver.tol * max(1.0, abs(record.objective))
            since_best = 0 if record.objective < mark - small else since_best + 1
            mark = min(mark, record.objective) if since_best == 0 else mark
            if stage > 0 and solver.tol > 0:
                if record.change < small and record.support_changes == 0:
                    message = f"stage {stage} changed the objective by {record.change:.2g} and the support not at all"
                    status = Status("converged", message)
                    break
                if since_best >= PATIENCE:
                    status = Status(
                        "stalled", f"no stage of the last {PATIENCE} lowered the objective", solver.remedies["stalled"]
                    )
                    break
            if stage >= solver.limit:
                break
            clock.check()
        if status is None:
            remedy = "" if solver.tol == 0 else solver.remedies["stage limit"]
            status = Status("stage limit", f"all {solver.limit} stages done", remedy)
    except Overflow:
        status = _diverged(solver, problem, slots, records)
    except TimeUp:
        status = Status(
            "time limit", f"max_time = {clock.limit:g} s is over", "give more time, or start again from x0=result.x"
        )
    except KeyboardInterrupt:
        status = Status("interrupted", "Ctrl-C", "start again from x0=result.x to go on")
    if status in ("time limit", "interrupted"):  # the iterate under way may be better than the last snapshot
        best.keep_better(_finite(problem.objective(slots)), slots)
        if not records:  # not even the start had been looked at
            records.append((best.objective, 0, clock.seconds, 0, 1.0, math.nan))
    if status in ("converged", "stage limit", "stopped"):
        point, objective = slots, float(records[-1][0])
    else:
        point, objective = best.slots, best.objective
    x = problem.vector(point)
    intercept = float(point.x[0]) if problem.intercept else 0.0
    return Result(x, intercept, support(x), objective, status, max(0, len(records) - 1), _history(records))


def _finite(value: float) -> float:
    return value if math.isfinite(value) else math.inf


def _history(records: list[tuple[float, ...]]) -> History:
    columns = np.array(records, dtype=np.float64).reshape(-1, len(History._fields)).T
    objective, gradients, seconds, changes, screened, step = columns
    return History(objective, gradients.astype(np.int64), seconds, changes.astype(np.int64), screened, step)


def _scale(problem: Problem, slots: Slots, objective: float, x0: ArrayLike | None) -> float:
    """The size of an ordinary objective: that at zero, or at the start if it is larger."""
    if x0 is None:
        return abs(objective)
    zero = slots._replace(x=np.zeros_like(slots.x))
    return max(abs(objective), abs(problem.objective(zero)))


def _diverged(solver: Solver, problem: Problem, slots: Slots, records: list[tuple[float, ...]]) -> Status:
    message, remedy = solver.explain_divergence(problem, slots.x.size - problem.n_kept, records[-1][-1])
    return Status("diverged", message, remedy)
