"""What the solvers of `minimize` share: the `Solver` protocol, settings and step sizes, and a run in the loop."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._jit import kernel
from .._validate import check_choice, check_count, check_flag, check_number
from ..engine import loop
from ..engine.loop import Clock, State, Stopping, Task, Trace
from ..engine.resume import fingerprint, rebuilt
from ..problem import Problem, Slots
from ..result import Progress, Record, Result, Status, judged
from .newton import Refitter

COUNTS = ("m", "stages", "epochs", "iterations", "batch_size", "working_set", "select", "exchange")
OPTIONAL = ("m", "working_set")
GROW, REGROW, SHRINK = 2.0, 1.1, 0.5  # chosen on raw and standardised data of several kinds
LARGEST = 1e100
SLACK = 1e-12  # a rise of the objective by this share is rounding


@runtime_checkable
class Solver(Protocol):
    """What `minimize` asks of a solver, with the defaults that most of them share.

    A solver is a frozen dataclass that inherits from this.  One that can continue after a kill calls
    ``clock.keep(...)`` before every stage, with all that the stage depends on beside the slots; `iterate` gets that
    back as its `state`, with the slots as they were, and continues with that stage.  Others are started anew.
    """

    knows_its_end: ClassVar[bool] = False  # its records say when it is done; else `tol` and the rules of the loop do
    reads_columns: ClassVar[bool] = False  # it asks for columns and sums; others draw rows, and get a standardised copy
    remedies: ClassVar[dict[str, str]]  # what to do about a run that ended as "stalled" or by its "stage limit"

    @property
    def tol(self) -> float:
        """The share of the objective that counts as no change; 0 runs all stages."""
        ...

    @property
    def stop_on_divergence(self) -> bool:
        return True

    @property
    def batch_size(self) -> int:
        """Rows that a step reads."""
        return 1

    @property
    def limit(self) -> int:
        """The largest number of stages."""
        ...

    def iterate(
        self, problem: Problem, slots: Slots, rng: np.random.Generator, clock: Clock, state: State | None = None
    ) -> Iterator[Record]:
        """Yield a record of the start and then of every stage, each time with the iterate in `slots`."""
        ...

    def explain_divergence(self, problem: Problem, k: int, step: float) -> tuple[str, str]:
        """Message and remedy for a run that diverged."""
        ...


# --- settings --------------------------------------------------------------------------------------------------------
def check_fields(solver: Any, steps: tuple[str, ...] = ()) -> None:
    """Check the fields of a frozen solver and store them as plain ints and floats; `steps` are the named steps.

    A setting has the same meaning in every solver, so its name says what to check.
    """
    for field in dataclasses.fields(solver):
        name, value = field.name, getattr(solver, field.name)
        if name == "step":
            value = check_step(value, steps)
        elif name in COUNTS and not (name in OPTIONAL and value is None):
            value = check_count(value, name)
        elif name == "breaths":
            value = check_count(value, name, low=0)
        elif name in ("tol", "gain"):
            value = check_number(value, name)
        elif name in ("stop_on_divergence", "refit"):
            value = check_flag(value, name)
        elif name == "output":
            value = check_choice(value, name, ("last", "random"))
        object.__setattr__(solver, name, value)


def check_step(step: Any, names: tuple[str, ...]) -> float | str:
    """A positive number or one of the names."""
    if isinstance(step, str):
        return check_choice(step, "step", names)
    try:
        return check_number(step, "step", strict=True)
    except ValueError as error:
        raise ValueError(f"{error}; or one of {', '.join(map(repr, names))}") from None


# --- step sizes ------------------------------------------------------------------------------------------------------
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


def stochastic_step(step: Any, problem: Problem, k: int, check: Callable[[], None]) -> float:
    """The step of a stochastic method in units of ∇F: a number as it is, or the paper's rules by name."""
    if step == "spectral":
        return inverse(problem.top_eigenvalue(check), 2.0)
    if step == "theory":
        # L_{3k+K} with K <= k, the restricted smoothness of section 3.2
        smoothness = problem.restricted_smoothness(min(problem.d, 4 * k))
        if not np.isfinite(smoothness):
            raise ValueError("step='theory' needs a loss of bounded curvature; use step='auto' or a number")
        return inverse(smoothness, 0.125)
    if step == "auto":
        return inverse(problem.smoothness(k), 0.5)
    return float(step)


def divergence_advice(problem: Problem, k: int, step: float) -> tuple[str, str]:
    """Message and remedy for a run that diverged."""
    safe = inverse(problem.smoothness(k), 1.0)
    if step <= safe:
        return f"step {step:.3g} let the objective grow", f"try {step / 10:.2g}, a larger k or step='auto'"
    return f"step {step:.3g} is above 1/L = {safe:.3g} of these rows", f"try {safe / 4:.2g} or step='auto'"


def inverse(curvature: float, factor: float) -> float:
    """factor / curvature; where there is no curvature at all (a matrix of zeros) any step will do."""
    return factor / curvature if curvature > 0 else 1.0


# --- a run -----------------------------------------------------------------------------------------------------------
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
    """Run a solver on a problem."""
    clock = Clock(max_time, problem.d * solver.batch_size)
    return loop.run(SolverRun(solver, problem, k, x0, intercept0, rng, clock), clock, callback)


class SolverRun(Task):
    """The run of a solver: its iterate is in the slots of a problem."""

    start_argument = "x0"
    resumable = True

    def __init__(
        self,
        solver: Solver,
        problem: Problem,
        k: int,
        x0: ArrayLike | None,
        intercept0: float,
        rng: np.random.Generator,
        clock: Clock,
    ) -> None:
        self.solver, self.problem, self.k, self.x0, self.intercept0 = solver, problem, k, x0, intercept0
        self.rng: np.random.Generator = rng
        self.clock, self.limit = clock, solver.limit
        self.slots = problem.slots(k, x0, intercept0)
        self.best = Snapshot(self.slots)
        self.null: float | None = None  # the objective of the empty model, once it is known
        self.rules = Stopping(0.0 if solver.knows_its_end else solver.tol)

    def stages(self, state: State | None) -> Iterator[Record]:
        return self.solver.iterate(self.problem, self.slots, self.rng, self.clock, state)

    def take(self, record: Record, stage: int) -> Status | None:
        objective, problem, x = record.objective, self.problem, self.slots.x
        if stage == 0:
            if not math.isfinite(objective):
                raise ValueError(f"the objective is not finite at the start ({objective}); rescale y, offset or x0")
            at_zero = self.slots._replace(x=np.zeros_like(x))
            self.rules.begin(objective, objective if self.x0 is None else problem.objective(at_zero))
            self.null = record.null
        finite = math.isfinite(objective) and bool(np.isfinite(x).all())
        if not finite or (self.rules.blown(objective) and self.solver.stop_on_divergence):
            return self.diverged(record.step)
        self.best.keep_better(objective, self.slots)
        return None

    def shown(self) -> tuple[NDArray[np.float64], float, NDArray[np.intp]]:
        x = self.problem.vector(self.slots)
        return x, self.problem.constant(self.slots), np.flatnonzero(x)

    def judge(self, record: Record, stage: int) -> Status | None:
        if record.status is not None:
            return record.status
        remedy = self.solver.remedies.get("stalled", "")
        return self.rules.judge(record, stage, lambda: self.problem.predicted_decrease(self.slots), remedy)

    def exhausted(self) -> Status:
        remedy = "" if self.solver.tol == 0 else self.solver.remedies["stage limit"]
        return Status("stage limit", f"all {self.limit} stages done", remedy)

    def diverged(self, step: float) -> Status:
        return Status("diverged", *self.solver.explain_divergence(self.problem, self.k, step))

    def result(self, status: Status, trace: Trace) -> Result:
        """The last iterate of a run that ended well; the best one of others."""
        problem, tol, best = self.problem, self.solver.tol, self.best
        if status in ("converged", "stage limit", "stalled") and self.null is None and tol > 0.0:
            self.null = Refitter(problem, lambda: None).empty_fit().objective
        if status in ("converged", "stage limit", "stopped"):
            last = float(trace.records[-1][0])
            status = judged(status, last, self.null, self.rules.slack(tol, self.null), True)
            if status != "stalled":
                return self._result(self.slots, last, status, trace, trace.swap_optimal)
        if status in ("time limit", "interrupted"):
            best = self._best_of_all()
            if not trace.records:  # the start itself had not been evaluated
                trace.add(Record(best.objective, 0, 0, 1.0, math.nan, math.nan))
        return self._result(best.slots, best.objective, status, trace)

    def _best_of_all(self) -> Snapshot:
        """The best snapshot or the iterate of the stage that was cut short, which may be better.

        Ctrl-C may have come in the middle of a copy: so both are built anew from their coefficients, and their
        objectives computed.  But a pass over a source takes long: there the snapshot judged last is good enough.
        """
        problem, best = self.problem, self.best
        points: tuple[Slots, ...] = (best.slots, self.slots)
        if problem.design.in_memory:
            best = Snapshot(problem.slots(self.k))
        else:
            points = () if math.isfinite(best.objective) else (self.slots,)
        for point in points:
            again = problem.slots(self.k, problem.vector(point), problem.constant(point))
            objective = problem.objective(again)
            best.keep_better(objective if math.isfinite(objective) else math.inf, again)
        return best

    def _result(
        self, slots: Slots, objective: float, status: Status, trace: Trace, swap_optimal: bool | None = None
    ) -> Result:
        x, constant = self.problem.vector(slots), self.problem.constant(slots)
        history = trace.history()
        return Result(x, constant, np.flatnonzero(x), objective, status, trace.stages, history, swap_optimal, self.null)

    # --- checkpoints ---------------------------------------------------------------------------------------------
    def fingerprint(self) -> State:
        return fingerprint(self.solver, self.problem, self.k, self.x0, self.intercept0, self.rng)

    def state(self) -> State:
        best = self.best.slots
        return {
            "slots": [self.slots.column.copy(), self.slots.x.copy()],
            "best": [best.column.copy(), best.x.copy(), self.best.objective],
            "null": self.null,
            "rules": vars(self.rules).copy(),
        }

    def restore(self, state: State) -> None:
        copy_slots(rebuilt(self.problem, self.slots, *state["slots"]), self.slots)
        *best, objective = state["best"]
        self.best.take(objective, rebuilt(self.problem, self.slots, *best))
        self.null = state["null"]
        vars(self.rules).update(state["rules"])
