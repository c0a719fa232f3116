"""Step sizes: the paper's rules, what a step may not exceed, and the rule behind ``step="auto"``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..problem import Problem

GROW, REGROW, SHRINK = 2.0, 1.1, 0.5  # chosen on raw and standardised data of several kinds
LARGEST = 1e100
SLACK = 1e-12  # a rise of the objective by this share is rounding


class StepControl:
    """The rule behind ``step="auto"``.

    The step doubles every stage until one raises the objective; that stage is taken back and the step halved, and
    from then on it grows by a tenth a stage.  With any other step everything is accepted and nothing changed.
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
