"""The settings of solvers: checks by their names, step sizes, and the rule behind ``step="auto"``."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from .._validate import check_choice, check_count, check_flag, check_number
from ..problem import Problem

COUNTS = ("m", "stages", "epochs", "iterations", "batch_size", "working_set", "select", "exchange")
OPTIONAL = ("m", "working_set")
GROW, REGROW, SHRINK = 2.0, 1.1, 0.5  # chosen on raw and standardised data of several kinds
LARGEST = 1e100
SLACK = 1e-12  # a rise of the objective by this share is rounding


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
