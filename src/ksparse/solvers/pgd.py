"""PGD: projected gradient descent onto the k-sparse vectors, with the full gradient."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ..problem import inverse
from .descent import GradientSteps
from .pursuit import Array, GradientSystem, Iterate


@dataclass(frozen=True)
class PGD(GradientSteps):
    r"""Projected gradient descent.

    .. math:: x^{t+1} = \Pi_\omega\bigl(H_k(x^t - \eta \nabla F(x^t))\bigr)

    Parameters
    ----------
    step : float, "auto" or "spectral", default="auto"
        A number multiplies ∇F.  "spectral" is the paper's 2/σ₁(AAᵀ) on ½‖Ax − y‖², that is 2n/σ₁(AAᵀ) here.
        "auto" is the Barzilai–Borwein step, halved until the objective falls enough.
    iterations : int, default=1000
        The largest number of iterations.
    tol : float, default=1e-6
        Stop when an iteration changes F by less than tol·max(\|F\|, min(1, F at zero)) and the support not at all, and
        the gradient on the support predicts little further decrease; 0 runs all iterations.
    stop_on_divergence : bool, default=True
        Stop once the objective is a hundred times that of the start; False continues while the numbers are finite.

    References
    ----------
    Jain, Tewari & Kar, *On iterative hard thresholding methods for high-dimensional
    M-estimation*, NIPS 2014; Barzilai & Borwein, *Two-point step size gradient methods*, IMA Journal of
    Numerical Analysis 8(1), 1988.

    Examples
    --------
    >>> import numpy as np
    >>> from ksparse import PGD, minimize
    >>> A = np.random.default_rng(0).standard_normal((100, 50))
    >>> minimize(A, A[:, 3] - 2 * A[:, 7], k=2, solver=PGD()).support
    array([3, 7])
    """

    step: float | str = "auto"
    iterations: int = 1000
    tol: float = 1e-6
    stop_on_divergence: bool = True

    named_steps: ClassVar[tuple[str, ...]] = ("auto", "spectral")
    remedies: ClassVar[dict[str, str]] = {
        "stalled": "try a smaller step, a larger k, or step='auto'",
        "stage limit": "allow more iterations, or a larger tol",
    }

    @property
    def adaptive(self) -> bool:
        return self.step == "auto"

    def first_steps(self, system: GradientSystem, points: Sequence[Iterate], gradients: Array, k: int) -> list[float]:
        if self.step == "auto":
            return system.first_steps(points, gradients, k)
        eta = inverse(system.top_curvature, 2.0) if self.step == "spectral" else float(self.step)
        return [eta] * len(points)
