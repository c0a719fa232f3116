"""IHT: iterative hard thresholding with the unit step of compressed sensing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ..problem import Problem, Slots
from ..result import Record
from ._fields import check_fields
from ._pursuit import Point, Steps, System
from ._run import Clock
from ._stepsize import divergence_advice
from .pgd import fixed_descent, fixed_step


@dataclass(frozen=True)
class IHT(Steps):
    r"""Iterative hard thresholding.

    .. math:: x^{t+1} = H_k\bigl(x^t + A^\top (y - A x^t)\bigr)

    The unit step is on ½‖Ax − y‖², that is n in units of the mean F.  It suits matrices of norm about one (rows
    of variance 1/n) and diverges on others: there use `PGD`, which chooses its step.

    Parameters
    ----------
    iterations : int
        At most so many.
    tol, stop_on_divergence
        As in `HTSVRG`.

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

    remedies: ClassVar[dict[str, str]] = {
        "stalled": "use PGD, which chooses its step",
        "stage limit": "allow more iterations, or a larger tol",
    }

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def limit(self) -> int:
        return self.iterations

    def iterate(
        self,
        problem: Problem,
        slots: Slots,
        rng: np.random.Generator,
        clock: Clock,
        state: dict[str, Any] | None = None,
    ) -> Iterator[Record]:
        return fixed_descent(problem, slots, clock, float(problem.n), state)

    def advance(self, system: System, k: int, points: list[Point]) -> list[Point]:
        return fixed_step(system, k, points, float(system.n))

    def explain_divergence(self, problem: Problem, k: int, step: float) -> tuple[str, str]:
        message, _ = divergence_advice(problem, k, step)
        return message, "scale A (rows of variance 1/n), or use PGD, which chooses its step"
