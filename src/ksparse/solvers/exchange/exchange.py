"""Exchange: the search as a solver of `minimize`, with at most k columns, groups of columns, or shared features."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..._validate import check_choice
from ...engine.loop import Clock, State
from ...problem import Problem, Slots, copy_slots
from ...result import Record
from ..base import Solver, check_fields
from .path import STAGES, records
from .search import Asked, Search, Stop
from .squared import EFFORTS


@dataclass(frozen=True)
class Exchange(Solver):
    r"""Growth, refits on the support, and exchanges of columns while the objective falls.

    On the chosen columns and others F is modelled by :math:`\frac12 v^\top Gv - c^\top v`; for least squares this is F
    itself.  In the model the worth of exchanging a chosen column s for i is exact,

    .. math:: \frac{(u_i + T_{si}v_se)^2}{D_i + T_{si}^2e} - v_s^2e, \qquad e = 1/Q_{ss},\quad Q = G_{SS}^{-1},\quad
              T = QG_{S\cdot},

    with what is left of the curvature, D, and of the gradient, u, beside the columns S that are in.  Exchanges are made
    while they help; for other losses a Newton refit tells what they are worth.  The support grows beyond k and shrinks
    again.  If in the end no exchange of a chosen column for any other helps, the result is ``swap_optimal``.

    Parameters
    ----------
    breaths : int, default=None
        Deprecated: use `effort`.
    working_set : int, default=None
        Deprecated, without effect.
    gain : float, default=None
        Deprecated, without effect.
    stages : int, default=200
        The largest number of stages.
    effort : {"fast", "default", "best"}, default="default"
        How long to search: "fast" leaves out the last exchanges with all columns, "best" adds many perturbations.

    Notes
    -----
    It knows no radius.  The columns of the working set are held as dense rows, n numbers each; the data are not copied
    otherwise.  Products go through BLAS, so that results may differ in their last digits with the number of its
    threads.

    Examples
    --------
    >>> import numpy as np
    >>> from ksparse import Exchange, minimize
    >>> rng = np.random.default_rng(0)
    >>> A = rng.standard_normal((100, 500))
    >>> result = minimize(A, A[:, 3] - 2 * A[:, 7], k=2, solver=Exchange())
    >>> result.support, result.swap_optimal
    (array([3, 7]), True)
    """

    breaths: int | None = None
    working_set: int | None = None
    gain: float | None = None
    stages: int = STAGES
    effort: str = "default"

    reads_columns: ClassVar[bool] = True
    knows_its_end: ClassVar[bool] = True
    tol: ClassVar[float] = 0.0
    remedies: ClassVar[dict[str, str]] = {"stage limit": "allow more stages"}

    def __post_init__(self) -> None:
        check_fields(self)
        check_choice(self.effort, "effort", EFFORTS)
        old = [name for name in ("breaths", "working_set", "gain") if getattr(self, name) is not None]
        if old:
            warnings.warn(
                f"{type(self).__name__}({old[0]}=) is deprecated; use effort='best' for a longer search",
                DeprecationWarning, stacklevel=3,
            )  # fmt: skip

    @property
    def limit(self) -> int:
        return self.stages

    def iterate(
        self, problem: Problem, slots: Slots, rng: np.random.Generator, clock: Clock, state: State | None = None
    ) -> Iterator[Record]:
        if problem.radius < math.inf:
            raise ValueError("Exchange knows no radius; use HTSVRG or PGD for that")
        k, x = slots.x.size - problem.n_kept, problem.vector(slots)
        start = (x[:, np.newaxis], np.array([problem.constant(slots)])) if x.any() else None
        asked = Asked(problem, [k], self.effort, start=start)

        def place(stop: Stop, ended: bool) -> int:
            before = slots.column[problem.n_kept :].copy()
            free = stop.columns[problem.kept.size :]
            copy_slots(problem.place(k, free, stop.x[:, 0], float(stop.constant[0])), slots)
            return int(np.setdiff1d(slots.column[problem.n_kept :], before).size)

        return records(Search(asked, problem.l2, clock.check), [problem.l2], clock, state, place)

    def explain_divergence(self, problem: Problem, k: int, step: float) -> tuple[str, str]:
        return "the refit left the range of floats", "rescale the columns, or give a ridge"
