"""NIHT: normalised iterative hard thresholding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from .descent import Move, backtrack
from .pursuit import Iterate, Pursuit, System, magnitudes, steepest_steps, top

MARGIN = 0.01  # c of the paper: a step that changes the support is at most (1 − c)‖Δx‖²/‖AΔx‖²


@dataclass(frozen=True)
class NIHT(Pursuit):
    r"""Iterative hard thresholding whose step adapts to the support.

    .. math:: x^{t+1} = H_k(x^t + \mu A^*(y - Ax^t)), \qquad \mu = \|g_T\|^2 / \|A g_T\|^2

    on the support T of :math:`x^t`; if the support changes, μ is halved until
    :math:`\mu \le 0.99\,\|\Delta x\|^2/\|A\Delta x\|^2`, which makes the residual fall whatever the scale of A.

    Parameters
    ----------
    iterations : int, default=1000
        The largest number of iterations.
    tol : float, default=1e-6
        Stop when a step leaves the support as it is and changes F by less than this share.

    References
    ----------
    Blumensath & Davies, *Normalized iterative hard thresholding: guaranteed stability and performance*, IEEE Journal
    of Selected Topics in Signal Processing 4(2), 2010.

    Examples
    --------
    >>> import numpy as np
    >>> from ksparse import NIHT, minimize
    >>> A = np.random.default_rng(0).standard_normal((100, 500))
    >>> minimize(A, A[:, 3] - 2 * A[:, 7], k=2, solver=NIHT()).support
    array([3, 7])
    """

    iterations: int = 1000
    tol: float = 1e-6

    goes_on: ClassVar[bool] = True
    start: ClassVar[str] = "x0"

    def advance(self, system: System, k: int, points: list[Iterate]) -> list[Iterate]:
        gradients = system.negative_gradients(points)
        first = top(magnitudes(gradients), k)
        supports = [point.columns if point.columns.size else most for point, most in zip(points, first, strict=True)]
        steps = steepest_steps(system, points, gradients, supports)
        if not steps.all():  # no curvature on the support, which is a minimum: a step that is short everywhere
            steps[steps == 0.0] = 1.0 / max(system.top_curvature, 1e-300)
        return [move.point for move in backtrack(system, k, points, gradients, steps.tolist(), contracts)]


def contracts(old: Iterate, move: Move) -> bool:
    """Whether a move keeps the support, or its step is short enough for the residual to fall."""
    same = np.array_equal(old.columns, move.point.columns)
    return same or move.step * move.curvature <= (1.0 - MARGIN) * move.square
