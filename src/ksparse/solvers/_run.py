"""What all solvers share: the loop over stages, with history, stopping rules, callback, time limit and Ctrl-C.

A solver is a frozen dataclass with fields `tol` and `stop_on_divergence`, a property `limit` (how many stages
at most) and a method ``iterate(problem, slots, rng, clock)``: a generator that yields a `Record` for the start
and then for every stage, each time leaving the snapshot in `slots`.

One that can go on after a kill calls ``clock.keep(...)`` before every stage, with all that the stage depends on beside
the slots.  `iterate` gets that back as a fifth argument, the slots as they were, and goes on with that stage.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from .._checkpoint import next_run
from .._jit import kernel
from ..design.blocks import between_blocks
from ..operators import support
from ..problem import Problem, Slots
from ..result import History, Progress, Record, Result, Status, judged
from ._keeping import end_entry, fingerprint, rebuilt, restored_result
from ._support import Ground

PATIENCE = 20  # stages without a new best objective before a run counts as stalled
UNREDEEMED = 0.05  # the share of the objective that the gradient may still promise at the end
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

    def __init__(self, max_time: float | None, numbers: int) -> None:
        self.start = time.perf_counter()
        self.limit = math.inf if max_time is None else max_time
        self.free = 0.0  # seconds that do not count: the time limit of an earlier call was over then
        self.keeper: Callable[[dict[str, Any]], None] | None = None  # of a checkpoint
        self._chunk = max(1, min(4096, (1 << 22) // numbers))  # a step may have to look at so many numbers

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.start

    def check(self) -> None:
        if self.seconds > self.limit + self.free:
            raise TimeUp

    def keep(self, **state: Any) -> None:
        """Between two stages: note how to go on from here, if there is a checkpoint, and look at the time."""
        if self.keeper is not None:
            self.keeper(state)
        self.check()

    def go_on(self, seconds: float, free: float) -> None:
        """So much time has gone by already, and so much of it counts no more."""
        self.start -= seconds
        self.free = free

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
                self._chunk = max(1, int(self._chunk * min(4.0, CHUNK_SECONDS / max(took, 1e-9))))
            start = stop
            self.check()


class Snapshot:
    """A copy of an iterate, with its objective; without the places of all d columns, which follow from the others."""

    def __init__(self, slots: Slots, objective: float = math.inf) -> None:
        self.objective = objective
        self.slots = Slots(slots.column.copy(), slots.x.copy(), np.empty(0, np.int32), np.empty(0, np.uint64))

    def take(self, objective: float, slots: Slots) -> None:
        """Remember this iterate."""
        self.objective = objective
        self.slots.column[:], self.slots.x[:] = slots.column, slots.x

    def give(self, slots: Slots) -> None:
        """Put the remembered iterate into `slots`."""
        copy_slots(self.slots, slots)

    def keep_better(self, objective: float, slots: Slots) -> None:
        if objective < self.objective:
            self.take(objective, slots)


def copy_slots(source: Slots, target: Slots) -> None:
    """Make target the iterate that source is, touching only what differs."""
    move_slots(source.column, source.x, *target)


@kernel
def move_slots(new_column, new_x, column, x, slot_of, member):
    moved = False
    for s in range(x.size):
        x[s] = new_x[s]
        if column[s] != new_column[s]:
            moved = True
            old = column[s]
            slot_of[old] = -1
            member[old >> 6] &= ~(np.uint64(1) << np.uint64(old & 63))
    if not moved:
        return
    for s in range(x.size):
        if column[s] != new_column[s]:
            new = column[s] = new_column[s]
            slot_of[new] = s
            member[new >> 6] |= np.uint64(1) << np.uint64(new & 63)


def run(
    solver: Solver,
    problem: Problem,
    k: int,
    *,
    x0: ArrayLike | None,
    intercept0: float,
    rng: np.random.Generator,
    callback: Callable[[Progress], Any] | None,
    max_time: float | None,
) -> Result:
    """Run the solver's stages until one of the stopping rules holds; inside a checkpoint, those that are missing."""
    clock = Clock(max_time, problem.d * getattr(solver, "batch_size", 1))
    slots = problem.slots(k, x0, intercept0)
    standing = Standing(slots, 0.0 if getattr(solver, "knows_its_end", False) else solver.tol)
    entry = next_run(lambda: fingerprint(solver, problem, k, x0, intercept0, rng))
    if entry is None:
        return _run(solver, problem, k, x0, standing, rng, callback, clock)
    with entry:
        if entry.result is not None:
            rng.bit_generator.state = entry.result["rng"]
            return restored_result(entry.result)
        if entry.first is None:
            entry.first = rng.bit_generator.state
        rng.bit_generator.state = entry.first
        state = None
        if entry.state is not None:
            state = standing.restore(entry.state, problem, clock)
        clock.keeper = lambda state: entry.keep(standing.state(state, clock))
        result = _run(solver, problem, k, x0, standing, rng, callback, clock, state)
        end_entry(entry, result, rng.bit_generator.state)
    return result


class Standing:
    """Where a run stands: what the loop remembers of the stages so far."""

    def __init__(self, slots: Slots, tol: float) -> None:
        self.slots, self.best = slots, Snapshot(slots)
        self.records: list[tuple[float, ...]] = []
        self.gradients = 0
        self.null: float | None = None  # the objective of the empty model, once it is known
        self.rules = Stopping(tol)

    def state(self, solver: dict[str, Any], clock: Clock) -> dict[str, Any]:
        """All of it, and what the solver needs to go on, as it is now."""
        best = self.best.slots
        return {
            "stage": len(self.records) - 1,
            "slots": [self.slots.column.copy(), self.slots.x.copy()],
            "best": [best.column.copy(), best.x.copy(), self.best.objective],
            "records": self.records,
            "gradients": self.gradients,
            "null": self.null,
            "rules": vars(self.rules).copy(),
            "seconds": clock.seconds,
            "free": clock.free,
            "solver": solver,
        }

    def restore(self, state: dict[str, Any], problem: Problem, clock: Clock) -> dict[str, Any]:
        """Stand there again; returns what the solver needs."""
        copy_slots(rebuilt(problem, self.slots, *state["slots"]), self.slots)
        *best, objective = state["best"]
        self.best.take(objective, rebuilt(problem, self.slots, *best))
        self.records = [tuple(record) for record in np.asarray(state["records"]).tolist()]
        self.gradients, self.null = state["gradients"], state["null"]
        vars(self.rules).update(state["rules"])
        clock.go_on(state["seconds"], state["free"])
        return dict(state["solver"])


def _run(
    solver: Solver,
    problem: Problem,
    k: int,
    x0: ArrayLike | None,
    standing: Standing,
    rng: np.random.Generator,
    callback: Callable[[Progress], Any] | None,
    clock: Clock,
    state: dict[str, Any] | None = None,
) -> Result:
    slots, best, records, rules = standing.slots, standing.best, standing.records, standing.rules
    status = swap_optimal = None
    iterate: Any = solver.iterate
    listening = between_blocks.set(clock.check)  # a pass over a source may take minutes
    try:
        for record in iterate(problem, slots, rng, clock, *(() if state is None else (state,))):
            stage = len(records)
            standing.gradients += record.gradients
            records.append((record.objective, standing.gradients, clock.seconds, *record[2:5]))
            if stage == 0:
                rules.begin(problem, slots, record.objective, x0)
                standing.null = record.null
            finite = math.isfinite(record.objective) and bool(np.isfinite(slots.x).all())
            if not finite or (rules.blown(record.objective) and solver.stop_on_divergence):
                status = _diverged(solver, problem, k, records)
                break
            best.keep_better(record.objective, slots)
            if callback is not None and stage > 0:
                status = _tell(callback, problem, slots, stage, record, standing.gradients, clock)
            if status is None and stage > 0:
                status = record.status or rules.judge(record, problem, slots, stage, solver)
                swap_optimal = record.swap_optimal
            if status is not None or stage >= solver.limit:
                break
        if status is None:
            remedy = "" if solver.tol == 0 else solver.remedies["stage limit"]
            status = Status("stage limit", f"all {solver.limit} stages done", remedy)
    except Overflow:
        status = _diverged(solver, problem, k, records)
    except TimeUp:
        message = f"max_time = {clock.limit:g} s is over"
        status = Status("time limit", message, "give more time, or start again from x0=result")
    except KeyboardInterrupt:
        status = Status("interrupted", "Ctrl-C", "start again from x0=result to go on")
    finally:
        between_blocks.reset(listening)
    if status in ("converged", "stage limit", "stalled") and standing.null is None and solver.tol > 0.0:
        standing.null = Ground(problem, lambda: None).empty_fit().objective
    if status in ("converged", "stage limit", "stopped"):
        last = float(records[-1][0])
        status = judged(status, last, standing.null, rules.slack(solver.tol, standing.null), True)
        if status != "stalled":
            return _result(problem, slots, last, status, standing, swap_optimal)
    if status in ("time limit", "interrupted"):
        # The iterate under way may be better than the last snapshot; and Ctrl-C may have come in the middle of a copy.
        # So both are built anew from their coefficients, and their objectives computed.
        # But a pass over a source takes long: there the snapshot that was judged last is good enough.
        points: tuple[Slots, ...] = (best.slots, slots)
        if problem.design.in_memory:
            best = Snapshot(problem.slots(k))
        elif math.isfinite(best.objective):
            points = ()
        else:
            points = (slots,)
        for point in points:
            again = problem.slots(k, problem.vector(point), problem.constant(point))
            best.keep_better(_finite(problem.objective(again)), again)
        if not records:  # not even the start had been looked at
            records.append((best.objective, 0, clock.seconds, 0, 1.0, math.nan))
    return _result(problem, best.slots, best.objective, status, standing)


class Stopping:
    """When a run has converged, stalled or blown up."""

    def __init__(self, tol: float) -> None:
        self.tol = tol
        self._scale = 0.0  # an ordinary objective of this problem
        self._mark = math.inf  # the objective that counted as progress last
        self._since = 0  # stages since then
        self._quiet = 0  # stages in a row that changed the objective by less than tol

    def begin(self, problem: Problem, slots: Slots, objective: float, x0: ArrayLike | None) -> None:
        """The scale of things: the objective at zero, or at the start if that is larger."""
        if not math.isfinite(objective):
            raise ValueError(f"the objective is not finite at the start ({objective}); rescale y, offset or x0")
        zero = abs(objective) if x0 is None else abs(problem.objective(slots._replace(x=np.zeros_like(slots.x))))
        self._scale = max(abs(objective), zero) if math.isfinite(zero) else abs(objective)
        self._mark = objective

    def blown(self, objective: float) -> bool:
        return not objective - self._scale <= BLOW_UP * self._scale

    def slack(self, tol: float, null: float | None) -> float:
        """By how much an objective may be above that of the empty model and count as equal to it."""
        return max(10.0 * tol, 1e-9) * max(abs(null or 0.0), min(1.0, self._scale))

    def judge(self, record: Record, problem: Problem, slots: Slots, stage: int, solver: Solver) -> Status | None:
        """A status if the run is over.

        Converged: a stage changed the objective by less than tol·max(|F|, 1) (or the objective at zero, if that is
        below 1) and the support not at all, and the gradient promises nothing much either: else a step that is too
        small, or a cycle, would count.  Also converged: many such stages in a row, whatever columns of no weight
        they exchanged.
        """
        if self.tol == 0.0:
            return None
        small = self.tol * max(abs(record.objective), min(1.0, self._scale))
        self._quiet = self._quiet + 1 if record.change < small else 0
        self._since = 0 if record.objective < self._mark - small else self._since + 1
        if self._since == 0:
            self._mark = record.objective
        settled = record.change < small and record.support_changes == 0
        if not settled and max(self._quiet, self._since) < PATIENCE:
            return None
        promise = problem.promise(slots)
        if (settled or self._quiet >= PATIENCE) and promise <= max(UNREDEEMED * abs(record.objective), 10.0 * small):
            what = "and the support not at all" if settled else f"and so did the {PATIENCE - 1} before it"
            return Status("converged", f"stage {stage} changed the objective by {record.change:.2g} {what}")
        if self._since < PATIENCE:
            return None
        message = f"no stage of the last {PATIENCE} lowered the objective"
        if promise > UNREDEEMED * abs(record.objective):
            message += ", though the gradient on the support is far from zero"
            return Status("stalled", message, "standardise the columns, or try another step")
        return Status("stalled", message, solver.remedies["stalled"])


def _tell(
    callback: Callable[[Progress], Any],
    problem: Problem,
    slots: Slots,
    stage: int,
    record: Record,
    gradients: int,
    clock: Clock,
) -> Status | None:
    x = problem.vector(slots)
    told = Progress(
        stage,
        record.objective,
        x,
        problem.constant(slots),
        support(x),
        gradients,
        clock.seconds,
        record.step,
        record.support_changes,
    )
    return ask(callback, told)


def ask(callback: Callable[[Progress], Any], told: Progress) -> Status | None:
    """Call the callback; a status if it wants to stop."""
    answer = callback(told)
    try:
        stop = bool(answer)
    except (TypeError, ValueError):
        raise ValueError(f"callback must return something true or false, got {type(answer).__name__}") from None
    return Status("stopped", f"the callback stopped the run after stage {told.stage}") if stop else None


def _result(
    problem: Problem,
    slots: Slots,
    objective: float,
    status: Status,
    standing: Standing,
    swap_optimal: bool | None = None,
) -> Result:
    x, history = problem.vector(slots), history_of(standing.records)
    return Result(
        x, problem.constant(slots), support(x), objective, status, max(0, len(standing.records) - 1), history,
        swap_optimal, standing.null,
    )  # fmt: skip


def _finite(value: float) -> float:
    return value if math.isfinite(value) else math.inf


def history_of(records: list[tuple[float, ...]]) -> History:
    columns = np.array(records, dtype=np.float64).reshape(-1, len(History._fields)).T
    objective, gradients, seconds, changes, screened, step = columns
    return History(objective, gradients.astype(np.int64), seconds, changes.astype(np.int64), screened, step)


def _diverged(solver: Solver, problem: Problem, k: int, records: list[tuple[float, ...]]) -> Status:
    message, remedy = solver.explain_divergence(problem, k, records[-1][-1])
    return Status("diverged", message, remedy)
