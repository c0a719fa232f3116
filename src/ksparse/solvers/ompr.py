"""OMPR: orthogonal matching pursuit with replacement."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .pursuit import Iterate, Pursuit, System, gradient_point, magnitudes, newton_steps, top, union


@dataclass(frozen=True)
class OMPR(Pursuit):
    r"""Orthogonal matching pursuit with replacement: a support of k columns, a few of which are exchanged per step.

    .. math:: z = x^t + \mu A^*r^t, \qquad J = T^t \cup \{\text{the } l \text{ largest of } |z| \text{ outside}\},
              \qquad x^{t+1} = \arg\min\{\|y - Ax\| : \operatorname{supp} x \subseteq \operatorname{supp} H_k(z_J)\}

    Parameters
    ----------
    exchange : int, default=1
        l, how many columns may enter in a step.
    step : float or "auto", default="auto"
        A number multiplies ∇F, the gradient of ‖y − Ax‖²/(2n), so that μ = 1 is step = n.  "auto" is μ = d/‖A‖_F², one
        over the mean squared norm of a column (of large matrices, from some of the rows).
    iterations : int, default=1000
        The largest number of iterations.
    tol : float, default=1e-9
        Stop when a step leaves the support as it is and changes F by less than this share.

    References
    ----------
    Jain, Tewari & Dhillon, *Orthogonal matching pursuit with replacement*, NIPS 2011.

    Examples
    --------
    >>> import numpy as np
    >>> from ksparse import OMPR, minimize
    >>> A = np.random.default_rng(0).standard_normal((100, 500))
    >>> minimize(A, A[:, 3] - 2 * A[:, 7], k=2, solver=OMPR()).support
    array([3, 7])
    """

    exchange: int = 1
    step: float | str = "auto"
    iterations: int = 1000
    tol: float = 1e-9

    def advance(self, system: System, k: int, points: list[Iterate]) -> list[Iterate]:
        gradients = system.negative_gradients(points)
        short = [point.columns.size < min(k, system.room) for point in points]
        if any(short):  # the first support: the k largest correlations
            return system.fit(points, top(magnitudes(gradients), min(k, system.room)))
        outside = magnitudes(gradients)
        for score, point in zip(outside, points, strict=True):
            score[point.columns] = -1.0
        more = top(outside, min(self.exchange, system.d - k))
        steps = newton_steps(system, points) if self.step == "auto" else np.full(len(points), self.step)
        z = magnitudes(gradient_point(points, gradients, steps))
        supports = []
        for joined, score in zip(union(points, more), z, strict=True):
            [chosen] = top(score[np.newaxis, joined], k)
            supports.append(joined[chosen])
        same = [np.array_equal(new, point.columns) for new, point in zip(supports, points, strict=True)]
        moving = [i for i, stays in enumerate(same) if not stays]
        fitted = system.fit([points[i] for i in moving], [supports[i] for i in moving])
        points = list(points)
        for i, point in zip(moving, fitted, strict=True):
            points[i] = point
        return points
