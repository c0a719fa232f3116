"""GraHTP: gradient hard thresholding pursuit, for every loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from .pursuit import Iterate, Pursuit, System, newton_steps


@dataclass(frozen=True)
class GraHTP(Pursuit):
    r"""Gradient hard thresholding pursuit: a gradient step chooses the support, a fit gives the coefficients.

    .. math:: T = \operatorname{supp} H_k(x^t - \eta\nabla F(x^t)), \qquad
              x^{t+1} = \arg\min_{\operatorname{supp} x \subseteq T} F(x)

    Parameters
    ----------
    step : float or "auto", default="auto"
        A number multiplies ∇F.  "auto" is one over the mean of :math:`\partial^2F/\partial x_j^2` over the columns.
    iterations : int, default=100
        The largest number of iterations.
    tol : float, default=1e-9
        Stop when a step leaves the support as it is and changes F by less than this share.

    References
    ----------
    Yuan, Li & Zhang, *Gradient hard thresholding pursuit*, JMLR 18(166), 2018.

    Examples
    --------
    >>> import numpy as np
    >>> from ksparse import GraHTP, minimize
    >>> A = np.random.default_rng(0).standard_normal((200, 50))
    >>> y = np.sign(A[:, 3] - 2 * A[:, 7])
    >>> minimize(A, y, k=2, loss="logistic", l2=0.01, solver=GraHTP()).support
    array([3, 7])
    """

    step: float | str = "auto"
    iterations: int = 100
    tol: float = 1e-9

    any_loss: ClassVar[bool] = True

    def advance(self, system: System, k: int, points: list[Iterate]) -> list[Iterate]:
        steps = newton_steps(system, points) if self.step == "auto" else np.full(len(points), self.step)
        return system.fit(points, system.steepest(points, k, steps))
