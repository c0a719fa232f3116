"""SubspacePursuit: exchange columns through a fit on twice as many."""

from __future__ import annotations

from dataclasses import dataclass

from .pursuit import Iterate, Pursuit, System, union


@dataclass(frozen=True)
class SubspacePursuit(Pursuit):
    r"""Subspace pursuit: add k columns by correlation, fit, keep the k largest, fit again, while the residual falls.

    .. math:: U = T^t \cup \operatorname{supp} H_k(A^*r^t), \qquad T = \operatorname{supp} H_k(A_U^+ y), \qquad
              x^{t+1} = A_T^+ y

    Parameters
    ----------
    iterations : int, default=100
        The largest number of iterations.
    tol : float, default=1e-9
        Converged when a step leaves the support as it was and changes the objective by less than this share of it: a
        second fit on the same columns, which differs by rounding.

    References
    ----------
    Dai & Milenkovic, *Subspace pursuit for compressive sensing signal reconstruction*, IEEE Transactions on
    Information Theory 55(5), 2009.

    Examples
    --------
    >>> import numpy as np
    >>> from ksparse import SubspacePursuit, minimize
    >>> A = np.random.default_rng(0).standard_normal((100, 500))
    >>> minimize(A, A[:, 3] - 2 * A[:, 7], k=2, solver=SubspacePursuit()).support
    array([3, 7])
    """

    iterations: int = 100
    tol: float = 1e-9

    def advance(self, system: System, k: int, points: list[Iterate]) -> list[Iterate]:
        return exchange(system, k, points)


def exchange(system: System, k: int, points: list[Iterate], share: float = 0.0) -> list[Iterate]:
    """One step, where it makes the misfit smaller; `share` is the part of the derivatives that fits may leave."""
    # the first time there is nothing to exchange: the k largest correlations
    count = max(1, min(k, system.room - k))
    more = system.steepest(points, k if not any(p.columns.size for p in points) else count)
    moved = system.fit_largest(points, union(points, more), k, share)
    return [new if new.misfit < old.misfit else old for old, new in zip(points, moved, strict=True)]
