"""What a solver returns: the point, how the run ended (with the remedy, if it needs one), and its history."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

KINDS = ("converged", "stage limit", "diverged", "stalled", "stopped", "time limit", "interrupted")


class Status(str):
    """How a run ended: a word (one of ``KINDS``) that carries its message and, where there is one, the remedy.

    >>> status = Status("diverged", "step 3 is above 1/L = 0.39", "try step='auto'")
    >>> status == "diverged", status.remedy
    (True, "try step='auto'")
    """

    message: str
    remedy: str

    def __new__(cls, kind: str, message: str = "", remedy: str = "") -> Status:
        if kind not in KINDS:
            raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}")
        self = super().__new__(cls, kind)
        self.message = message
        self.remedy = remedy
        return self

    def __reduce__(self) -> tuple[type, tuple[str, str, str]]:  # so that a pickled Result keeps its texts
        return Status, (str(self), self.message, self.remedy)

    def explain(self) -> str:
        """One line: what happened and what to do."""
        return str(self) + (f": {self.message}" if self.message else "") + (f"; {self.remedy}" if self.remedy else "")


def judged(status: Status, objective: float, null: float | None, slack: float, finite: bool) -> Status:
    """How a run may be said to have ended: the one place that decides this, for every solver.

    A result that is not finite, or whose objective is above that of the empty model, has not converged.
    """
    if status in ("diverged", "interrupted", "stopped"):
        return status
    if not finite:
        message = "the coefficients are beyond the range of floats"
        return Status("diverged", message, "rescale y or the columns, or give a ridge")
    if null is None or objective <= null + slack:
        return status
    message = (
        f"the objective ended at {objective:.6g}, above that of the intercept and the kept columns alone, {null:.6g}"
    )
    remedy = "standardise the columns (standardize=True), or use solver='auto'"
    return Status("stalled" if status == "converged" else status, f"{status.message}; {message}", remedy)


class History(NamedTuple):
    """One entry a stage, after the entry of the start; `gradients` and `seconds` count from the start of the run."""

    objective: NDArray[np.float64]
    gradients: NDArray[np.int64]  # gradients of single rows computed so far
    seconds: NDArray[np.float64]
    support_changes: NDArray[np.int64]  # columns that entered during the stage
    screened: NDArray[np.float64]  # the share of steps that never looked at a whole row
    step: NDArray[np.float64]  # the step taken in the stage


class Record(NamedTuple):
    """What a solver reports of a stage."""

    objective: float
    gradients: int  # in this stage
    support_changes: int
    screened: float
    step: float
    change: float  # of the objective by the stage, even if it was then taken back
    status: Status | None = None  # of a solver that knows by itself when it is done
    swap_optimal: bool | None = None
    null: float | None = None  # of a solver that begins at the empty model: the objective there


class Progress(NamedTuple):
    """What a callback gets after every stage; if it returns something true, the run stops."""

    stage: int
    objective: float
    x: NDArray[np.float64]
    intercept: Any  # a float; of `joint` an array
    support: NDArray[np.intp]
    gradients: int
    seconds: float
    step: float
    support_changes: int  # columns that entered during the stage


@dataclass(frozen=True, eq=False)
class Result:
    """The outcome of `minimize` or `joint`.

    Attributes
    ----------
    x : array of shape (d,); of `joint` (d, outputs)
        The last snapshot; the best one if the run was cut short or went wrong (any status but "converged",
        "stage limit" and "stopped").
    intercept : float; of `joint` an array of shape (outputs,)
        0.0 unless the problem has one.
    support : array of int
        The columns with a non-zero coefficient.
    objective : float
        F at x.
    status : Status
        A word; ``status.explain()`` says why and what to do.
    n_stages : int
        Stages (epochs, iterations) done.
    history : History
    null_objective : float or None
        F of the empty model, the intercept and the kept columns alone, fitted; None where it was not needed (``tol=0``
        asks for all stages as they are).
    swap_optimal : bool or None
        Whether no exchange of a chosen column for another lowers the objective (for other losses than the squared one:
        none with a decrease that a quadratic model predicts and a refit confirms); None if the solver does not say.
    """

    x: NDArray[np.float64]
    intercept: Any
    support: NDArray[np.intp]
    objective: float
    status: Status
    n_stages: int
    history: History = field(repr=False)
    swap_optimal: bool | None = None
    null_objective: float | None = None

    @property
    def converged(self) -> bool:
        return self.status == "converged"

    def __repr__(self) -> str:
        return (
            f"Result({self.status.explain()}; objective {self.objective:.6g}, "
            f"{self.support.size} of {len(self.x)} coefficients, {self.n_stages} stages)"
        )
