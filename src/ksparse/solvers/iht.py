"""IHT: iterative hard thresholding with the unit step of compressed sensing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ..problem import Problem
from .descent import GradientSteps
from .pursuit import Array, GradientSystem, Iterate


@dataclass(frozen=True)
class IHT(GradientSteps):
    r"""Iterative hard thresholding.

    .. math:: x^{t+1} = H_k\bigl(x^t + A^\top (y - A x^t)\bigr)

    The unit step is on ½‖Ax − y‖², that is n in units of the mean F.  It suits matrices of norm about one (rows
    of variance 1/n) and diverges on others: there use `PGD`, which chooses its step.

    Parameters
    ----------
    iterations : int, default=1000
        The largest number of iterations.
    tol : float, default=1e-6
        Stop when an iteration changes F by less than tol·max(\|F\|, min(1, F at zero)) and the support not at all, and
        the gradient on the support predicts little further decrease; 0 runs all iterations.
    stop_on_divergence : bool, default=True
        Stop once the objective is a hundred times that of the start; False continues while the numbers are finite.

    References
    ----------
    Blumensath & Davies, *Iterative hard thresholding for compressed sensing*, Applied and
    Computational Harmonic Analysis 27(3), 2009; paper, section 2.

    Examples
    --------
    >>> import numpy as np
    >>> from ksparse import IHT, minimize
    >>> A = np.random.default_rng(0).standard_normal((100, 50)) / 10
    >>> minimize(A, A[:, 3] - 2 * A[:, 7], k=2, solver=IHT()).support
    array([3, 7])
    """

    iterations: int = 1000
    tol: float = 1e-6
    stop_on_divergence: bool = True

    adaptive: ClassVar[bool] = False
    remedies: ClassVar[dict[str, str]] = {
        "stalled": "use PGD, which chooses its step",
        "stage limit": "allow more iterations, or a larger tol",
    }

    def first_steps(self, system: GradientSystem, points: Sequence[Iterate], gradients: Array, k: int) -> list[float]:
        return [float(system.n)] * len(points)

    def explain_divergence(self, problem: Problem, k: int, step: float) -> tuple[str, str]:
        message, _ = super().explain_divergence(problem, k, step)
        return message, "scale A (rows of variance 1/n), or use PGD, which chooses its step"
