"""OMP: orthogonal matching pursuit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from .pursuit import Iterate, Pursuit, System, magnitudes, union


@dataclass(frozen=True)
class OMP(Pursuit):
    r"""Orthogonal matching pursuit: add the column that correlates most with the residual, fit, k times.

    .. math:: j = \arg\max_i |a_i^* r^t|, \qquad x^{t+1} = \arg\min\{\|y - Ax\| : \operatorname{supp} x \subseteq
              T^t \cup \{j\}\}

    The columns should have about the same norm: a longer one is chosen sooner.  The support grows from nothing: x0 is
    not used.

    References
    ----------
    Pati, Rezaiifar & Krishnaprasad, *Orthogonal matching pursuit*, Asilomar 1993; Tropp & Gilbert, *Signal recovery
    from random measurements via orthogonal matching pursuit*, IEEE Transactions on Information Theory 53(12), 2007.

    Examples
    --------
    >>> import numpy as np
    >>> from ksparse import OMP, minimize
    >>> A = np.random.default_rng(0).standard_normal((100, 500))
    >>> minimize(A, A[:, 3] - 2 * A[:, 7], k=2, solver=OMP()).support
    array([3, 7])
    """

    tol: float = 0.0

    start: ClassVar[str] = "empty"

    @property
    def limit(self) -> int:
        return 2**62  # it ends by itself, with k columns

    def advance(self, system: System, k: int, points: list[Iterate]) -> list[Iterate]:
        growing = [i for i, point in enumerate(points) if point.columns.size < min(k, system.room)]
        if not growing:
            return points
        some = [points[i] for i in growing]
        scores = magnitudes(system.negative_gradients(some, one_by_one=True))
        for score, point in zip(scores, some, strict=True):
            score[point.columns] = 0.0  # of a fit they are zero but for rounding
        grown = system.fit(some, union(some, [np.array([j]) for j in np.argmax(scores, axis=1)]))
        points = list(points)
        for i, score, point in zip(growing, scores, grown, strict=True):
            if score.max() > 0.0:  # else no column is left that the residual knows
                points[i] = point
        return points
