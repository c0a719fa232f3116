"""ROMP: regularised orthogonal matching pursuit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from .pursuit import Columns, Iterate, Pursuit, System, magnitudes, remember, top, union


@dataclass(frozen=True)
class ROMP(Pursuit):
    r"""Regularised orthogonal matching pursuit: many columns per step, but only comparable ones.

    Of the k largest correlations :math:`u = A^*r` take those within a factor of two of each other that hold the most
    energy; add them to the support; fit; until the support holds 2k columns.  The k largest coefficients, fitted again,
    are the point.  The support grows from nothing: x0 is not used.

    Parameters
    ----------
    iterations : int, default=100
        The largest number of iterations.
    tol : float, default=0.0
        Not used: the run ends by itself, with 2k columns.

    References
    ----------
    Needell & Vershynin, *Uniform uncertainty principle and signal recovery via regularized orthogonal matching
    pursuit*, Foundations of Computational Mathematics 9(3), 2009.

    Examples
    --------
    >>> import numpy as np
    >>> from ksparse import ROMP, minimize
    >>> A = np.random.default_rng(0).standard_normal((100, 500))
    >>> minimize(A, A[:, 3] - 2 * A[:, 7], k=2, solver=ROMP()).support
    array([3, 7])
    """

    iterations: int = 100
    tol: float = 0.0

    start: ClassVar[str] = "empty"

    def advance(self, system: System, k: int, points: list[Iterate]) -> list[Iterate]:
        wide = [point if point.memory is None else point.memory for point in points]  # the support so far
        growing = [i for i, point in enumerate(wide) if point.columns.size < min(2 * k, system.room)]
        if not growing:
            return points
        some = [wide[i] for i in growing]
        scores = magnitudes(system.negative_gradients(some))
        for score, point in zip(scores, some, strict=True):
            score[point.columns] = 0.0
        more = [
            comparable(columns, score)[: system.room - point.columns.size]
            for columns, score, point in zip(top(scores, k), scores, some, strict=True)
        ]
        grown = system.fit(some, union(some, more))
        pruned = remember(system.fit(grown, [point.largest(k) for point in grown]), grown)
        points = list(points)
        for i, added, point in zip(growing, more, pruned, strict=True):
            if added.size:
                points[i] = point
        return points

    def settled(self, before: Iterate, after: Iterate, first: float) -> bool:
        return before is after  # the same k columns may be the largest of a support that still grows


def comparable(columns: Columns, score: NDArray[np.float64]) -> Columns:
    """Of some columns those whose scores are within a factor of two and hold the most energy, the largest first."""
    columns = columns[np.argsort(-score[columns], kind="stable")]
    u = score[columns]
    columns, u = columns[u > 0.0], u[u > 0.0]
    if not u.size:
        return columns
    u = np.ldexp(u, -np.frexp(u[0])[1])  # so that squares are floats
    ends = np.searchsorted(-u, -0.5 * u, side="right")  # each run starts at a score and ends before its half
    energy = np.concatenate([[0.0], np.cumsum(u * u)])
    start = int(np.argmax(energy[ends] - energy[:-1]))
    return columns[start : ends[start]]
