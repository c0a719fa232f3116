"""What `minimize` asks of a solver.  What most solvers need beside it can be imported from here too."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar, Protocol, runtime_checkable

import numpy as np

from .._validate import check_fields as check_fields
from ..engine.loop import Clock, State
from ..engine.loop import StepControl as StepControl
from ..result import Record

if TYPE_CHECKING:
    from ..problem import Problem, Slots


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
    stop_on_divergence: bool = True
    batch_size: int = 1  # rows that a step reads

    @property
    def tol(self) -> float:
        """The share of the objective that counts as no change; 0 runs all stages."""
        ...

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
        """Message and remedy for a run that diverged; here for one that takes gradient steps."""
        from ..problem import inverse

        safe = inverse(problem.smoothness(k), 1.0)
        if step <= safe:
            return f"step {step:.3g} let the objective grow", f"try {step / 10:.2g}, a larger k or step='auto'"
        return f"step {step:.3g} is above 1/L = {safe:.3g} of these rows", f"try {safe / 4:.2g} or step='auto'"
