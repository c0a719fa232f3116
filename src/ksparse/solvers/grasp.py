"""GraSP: gradient support pursuit, for every loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .pursuit import Iterate, Pursuit, System, union


@dataclass(frozen=True)
class GraSP(Pursuit):
    r"""Gradient support pursuit: add the steepest columns, fit on all, keep the k largest coefficients.

    .. math:: b = \arg\min\{F(x) : \operatorname{supp} x \subseteq \operatorname{supp} x^t \cup
              \operatorname{supp} H_{2k}(\nabla F(x^t))\}, \qquad x^{t+1} = H_k(b)

    Parameters
    ----------
    select : int, default=2
        How many times k columns are added; fewer where the fit would not be unique.
    refit : bool, default=False
        Fit once more on the k columns that are kept.  As published there is no such fit, and with noise the
        coefficients are not the best ones of their support.
    iterations : int, default=100
        The largest number of iterations.
    tol : float, default=1e-9
        Stop when a step leaves the support as it is and changes F by less than this share.

    References
    ----------
    Bahmani, Raj & Boufounos, *Greedy sparsity-constrained optimization*, JMLR 14, 2013.

    Examples
    --------
    >>> import numpy as np
    >>> from ksparse import GraSP, minimize
    >>> A = np.random.default_rng(0).standard_normal((200, 50))
    >>> y = np.sign(A[:, 3] - 2 * A[:, 7])
    >>> minimize(A, y, k=2, loss="logistic", l2=0.01, solver=GraSP()).support
    array([3, 7])
    """

    select: int = 2
    refit: bool = False
    iterations: int = 100
    tol: float = 1e-9

    any_loss: ClassVar[bool] = True

    def advance(self, system: System, k: int, points: list[Iterate]) -> list[Iterate]:
        count = max(1, min(self.select * k, system.room - k))
        supports = union(points, system.steepest(points, count))
        if self.refit:
            return system.fit_largest(points, supports, k)
        wide = system.fit(points, supports)
        return system.keep(wide, [point.largest(k) for point in wide])
