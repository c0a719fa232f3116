"""The loop around all solvers: history, callback, time limit, Ctrl-C, stopping rules, and checkpoints.

A `Task` is what it runs: a solver of `minimize` on a problem, `joint`, or an algorithm of `recover` on several signals.
They differ in what an iterate is, in how it is shown to the callback, and in how the result is built from it; the rest
is here.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from .._threads import between_blocks, quiet_blas
from ..result import History, Progress, Record, Status
from .checkpoint import Entry, active
from .resume import end_entry, restored_result

PATIENCE = 20  # stages without a new best objective before a run counts as stalled
UNREDEEMED = 0.05  # the share of the objective by which the gradient at the end may still predict a decrease
BLOW_UP = 100.0  # an objective this many times that of the start has diverged
CHUNK_SECONDS = 0.03
GROW, REGROW, SHRINK = 2.0, 1.1, 0.5  # of an adaptive step; chosen on raw and standardised data of several kinds
LARGEST = 1e100
SLACK = 1e-12  # a rise of the objective by this share is rounding

State = dict[str, Any]  # plain data in a checkpoint
Callback = Callable[[Progress], Any]
Outcome = TypeVar("Outcome", covariant=True)  # a `Result`, several of them, or a `Recovery`


class TimeUp(Exception):
    """The time limit was reached."""


class Overflow(Exception):
    """The numbers left the range of floats during a stage."""


class Clock:
    """The time since the start; it runs long work in chunks, between which Ctrl-C and the time limit are noticed."""

    def __init__(self, max_time: float | None, numbers: int) -> None:
        self.start = time.perf_counter()
        self.limit = math.inf if max_time is None else max_time
        self.free = 0.0  # seconds that do not count: an earlier call had used up its time limit by then
        self.keeper: Callable[[State], None] | None = None  # writes to a checkpoint
        self._chunk = max(1, min(4096, (1 << 22) // numbers))  # one step may have to read this many numbers

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.start

    def check(self) -> None:
        """Raise `TimeUp` if the time limit is over."""
        if self.seconds > self.limit + self.free:
            raise TimeUp

    def keep(self, **state: Any) -> None:
        """Between two stages: note in the checkpoint, if there is one, how to continue from here; check the time."""
        if self.keeper is not None:
            self.keeper(state)
        self.check()

    def go_on(self, seconds: float, free: float) -> None:
        """Continue a run that has already taken `seconds`, of which the first `free` no longer count."""
        self.start -= seconds
        self.free = free

    def steps(self, run: Callable[[int, int], int], count: int) -> None:
        """Call ``run(start, stop)`` over range(count) in chunks; it returns how far it got."""
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


@dataclass
class Trace:
    """What the loop remembers of the stages so far."""

    clock: Clock
    records: list[tuple[float, ...]] = field(default_factory=list)  # one row of the history per stage
    swap_optimal: bool | None = None

    @property
    def gradients(self) -> int:
        return int(self.records[-1][1]) if self.records else 0

    @property
    def stages(self) -> int:
        """How many stages there were after the start."""
        return max(0, len(self.records) - 1)

    def add(self, record: Record) -> int:
        """Enter a record into the history; returns the number of its stage."""
        self.records.append((record.objective, self.gradients + record.gradients, self.clock.seconds, *record[2:5]))
        return len(self.records) - 1

    def history(self) -> History:
        return history_of(self.records)


class Task(Protocol[Outcome]):
    """What the loop runs.  Classes inherit from it, for the defaults."""

    limit: float  # the largest number of stages
    numbers: int = 0  # of the data
    start_argument: str = ""  # the argument of the public function that takes an earlier result to start from
    resumable: bool = False  # does it continue from a checkpoint?
    rng: np.random.Generator | None = None

    def stages(self, state: State | None) -> Iterator[Record]:
        """A record of the start, then one of every stage; from a `state` that ``clock.keep`` got, those after it."""
        ...

    def take(self, record: Record, stage: int) -> Status | None:
        """Look at the iterate of a record; "diverged" if the run cannot continue from it."""
        ...

    def shown(self) -> tuple[NDArray[Any], Any, NDArray[np.intp]]:
        """The iterate for the callback: x, the intercept, and the support."""
        ...

    def judge(self, record: Record, stage: int) -> Status | None:
        """How the run has ended, if this record was the last one."""
        return record.status

    def exhausted(self) -> Status:
        """How a run has ended that has no stage left."""
        ...

    def diverged(self, step: float) -> Status:
        """How a run has ended whose numbers overflowed in a stage; `step` is that of the last record."""
        return Status("diverged", "the numbers left the range of floats", "rescale the data")

    def result(self, status: Status, trace: Trace) -> Outcome:
        """The outcome of a run that ended with this status."""
        ...

    # --- for those that are resumable ----------------------------------------------------------------------------
    def fingerprint(self) -> State:
        """What the run solves, and how: what must be the same for a checkpoint to be used."""
        return {}

    def state(self) -> State:
        """What the task itself has to remember, beside what its stages need."""
        return {}

    def restore(self, state: State) -> None:
        """Restore what `state` gave."""
        return None


def run(task: Task[Outcome], clock: Clock, callback: Callback | None) -> Outcome:
    """Run the stages of a task until it ends; inside a checkpoint, those that are missing."""
    with quiet_blas(task.numbers):
        return _run(task, clock, callback)


def _run(task: Task[Outcome], clock: Clock, callback: Callback | None) -> Outcome:
    book, trace = active.get(), Trace(clock)
    entry = book.begin(task.fingerprint) if book is not None and task.resumable else None
    if entry is None:
        return task.result(_stages(task, trace, callback, None), trace)
    with entry:
        if entry.result is not None:
            if task.rng is not None:
                task.rng.bit_generator.state = entry.result["rng"]
            return restored_result(entry.result)
        state = _resume(task, trace, entry)
        result = task.result(_stages(task, trace, callback, state), trace)
        end_entry(entry, result, None if task.rng is None else task.rng.bit_generator.state)
    return result


def _resume(task: Task[Any], trace: Trace, entry: Entry) -> State | None:
    """Connect a run to its entry in a checkpoint; returns the state of its stages, if it is to continue from one."""
    if task.rng is not None:
        if entry.first is None:
            entry.first = task.rng.bit_generator.state
        task.rng.bit_generator.state = entry.first
    state, clock = entry.state, trace.clock
    if state is not None:
        trace.records += [tuple(record) for record in np.asarray(state["records"]).tolist()]
        clock.go_on(state["seconds"], state["free"])
        task.restore(state)

    def keep(stages: State) -> None:
        entry.keep(
            {
                **task.state(),
                "stage": len(trace.records) - 1,
                "records": trace.records,
                "gradients": trace.gradients,
                "seconds": clock.seconds,
                "free": clock.free,
                "solver": stages,
            }
        )

    clock.keeper = keep
    return None if state is None else dict(state["solver"])


def _stages(task: Task[Any], trace: Trace, callback: Callback | None, state: State | None) -> Status:
    """Run the stages that come after those of the trace; returns how they ended."""
    clock = trace.clock
    listening = between_blocks.set(clock.check)  # a pass over a source may take minutes
    try:
        for record in task.stages(state):
            stage = trace.add(record)
            status = task.take(record, stage)
            if status is None and stage > 0:
                if callback is not None:
                    status = _tell(callback, task, trace, record)
                if status is None:
                    status = task.judge(record, stage)
                    trace.swap_optimal = record.swap_optimal
            if status is not None:
                return status
            if stage >= task.limit:
                break
        return task.exhausted()
    except Overflow:
        return task.diverged(trace.records[-1][-1])
    except TimeUp:
        again = f", or start again from {task.start_argument}=result" if task.start_argument else ""
        return Status("time limit", f"max_time = {clock.limit:g} s is over", f"give more time{again}")
    except KeyboardInterrupt:
        again = f"start again from {task.start_argument}=result to go on" if task.start_argument else ""
        return Status("interrupted", "Ctrl-C", again)
    finally:
        between_blocks.reset(listening)


def _tell(callback: Callback, task: Task[Any], trace: Trace, record: Record) -> Status | None:
    """Call the callback; a status if it wants to stop."""
    x, intercept, support = task.shown()
    stage = len(trace.records) - 1
    answer = callback(
        Progress(
            stage, record.objective, x, intercept, support, trace.gradients, trace.clock.seconds, record.step,
            record.support_changes,
        )
    )  # fmt: skip
    try:
        stop = bool(answer)
    except (TypeError, ValueError):
        raise ValueError(f"callback must return something true or false, got {type(answer).__name__}") from None
    return Status("stopped", f"the callback stopped the run after stage {stage}") if stop else None


class Stopping:
    """When a run that does not know by itself when it is done has converged, stalled or blown up."""

    def __init__(self, tol: float) -> None:
        self.tol = tol
        self._scale = 0.0  # an ordinary objective of this problem
        self._mark = math.inf  # the objective that counted as progress last
        self._since = 0  # stages since then
        self._quiet = 0  # stages in a row that changed the objective by less than tol

    def begin(self, objective: float, zero: float) -> None:
        """Set the scale: the objective at zero, or at the start if that is larger."""
        self._scale = max(abs(objective), abs(zero)) if math.isfinite(zero) else abs(objective)
        self._mark = objective

    def blown(self, objective: float) -> bool:
        return not objective - self._scale <= BLOW_UP * self._scale

    def slack(self, tol: float, null: float | None) -> float:
        """By how much an objective may be above that of the empty model and count as equal to it."""
        return max(10.0 * tol, 1e-9) * max(abs(null or 0.0), min(1.0, self._scale))

    def judge(self, record: Record, stage: int, predicted: Callable[[], float], remedy: str) -> Status | None:
        """A status if the run is over; `predicted` computes the decrease that the gradient still predicts.

        Converged: a stage changed the objective by less than tol·max(|F|, 1) (or the objective at zero, if that is
        below 1) and the support not at all, and the gradient predicts no large decrease either: else a step that is too
        small, or a cycle, would count.  Also converged: many such stages in a row, whatever columns of no weight they
        exchanged.
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
        decrease = predicted()
        if (settled or self._quiet >= PATIENCE) and decrease <= max(UNREDEEMED * abs(record.objective), 10.0 * small):
            what = "and the support not at all" if settled else f"and so did the {PATIENCE - 1} before it"
            return Status("converged", f"stage {stage} changed the objective by {record.change:.2g} {what}")
        if self._since < PATIENCE:
            return None
        message = f"no stage of the last {PATIENCE} lowered the objective"
        if decrease > UNREDEEMED * abs(record.objective):
            message += ", though the gradient on the support is far from zero"
            return Status("stalled", message, "standardise the columns, or try another step")
        return Status("stalled", message, remedy)


class StepControl:
    """The rule behind ``step="auto"``.

    The step doubles every stage until one raises the objective; that stage is undone and the step halved, and from then
    on it grows by a tenth per stage.  Any other step stays as it is, and every stage is accepted.
    """

    def __init__(self, step: Any, eta: float, growth: float = GROW) -> None:
        self.adaptive = step == "auto"
        self.eta = eta
        self.growth = growth

    def judge(self, before: float, change: float) -> bool:
        """Whether to accept a stage, from the objective before it and its change; sets the step for the next."""
        if not self.adaptive:
            return True
        accepted = change <= SLACK * abs(before)  # false for NaN
        if accepted:
            self.eta = min(self.eta * self.growth, LARGEST)
        else:
            self.eta *= SHRINK
            self.growth = REGROW
        return accepted


def history_of(records: list[tuple[float, ...]]) -> History:
    columns = np.array(records, dtype=np.float64).reshape(-1, len(History._fields)).T
    objective, gradients, seconds, changes, screened, step = columns
    return History(objective, gradients.astype(np.int64), seconds, changes.astype(np.int64), screened, step)
