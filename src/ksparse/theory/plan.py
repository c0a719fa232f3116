"""Recommended k, step, m and number of stages for HT-SVRG, from data and a guess of K; a trial run shows the rate."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._text import jsonable
from .._validate import check_count, check_flag, check_number
from . import bounds, rates
from .certificate import Certificate, certify
from .conditions import Case, sparsities
from .curvature import Landscape

RELAXED = 9  # k = 9K, as in the paper's experiments
REDUCTION = 1e-6  # a run is done when the gap is this share of its start
HALVINGS = 12  # how often a step that diverges is halved


@dataclass(frozen=True)
class Plan:
    """What `plan` recommends.  ``print`` shows it; ``solver()`` gives the solver.

    Attributes
    ----------
    K : int
        The guess of the number of features that matter.
    k, step, m, batch_size, stages, output : int, float or str
        The parameters of HT-SVRG.
    source : str
        "theory" if Theorem 10 certifies them, "practice" if it certifies nothing for these data.
    certificate : Certificate
        What the theorem says about these parameters.
    trial : str
        How the trial run ended, or "not tried".
    observed_rate : float
        The factor by which a stage shrank the gap in the trial run, NaN without one; compare it with
        ``certificate.beta``.
    observed_stages : float
        Number of stages in which the trial run reduced the gap to a millionth (all its stages, if it did not).
    """

    K: int
    k: int
    step: float
    m: int
    batch_size: int
    stages: int
    source: str
    output: str
    certificate: Certificate
    trial: str
    observed_rate: float
    observed_stages: float

    def solver(self) -> Any:
        """The solver `HTSVRG` with these parameters."""
        from ..solvers import HTSVRG

        return HTSVRG(self.step, m=self.m, batch_size=self.batch_size, stages=self.stages, output=self.output)

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain numbers, strings and lists, for JSON."""
        plain = {field.name: getattr(self, field.name) for field in fields(self)}
        return jsonable({**plain, "certificate": self.certificate.to_dict()})

    def __str__(self) -> str:
        beta = self.certificate.beta
        predicted = f"{beta:.4g}" if math.isfinite(beta) else "none"
        known = not math.isnan(self.observed_rate)
        observed = f"{self.observed_rate:.4g} (trial: {self.trial})" if known else f"none (trial: {self.trial})"
        return "\n".join(
            [
                f"k = {self.k}, step = {self.step:.4g}, m = {self.m}, batch_size = {self.batch_size}, "
                f"stages = {self.stages} ({self.source})",
                f"rate per stage: predicted {predicted}, observed {observed}",
                str(self.certificate),
            ]
        )


def plan(
    A: Any,
    y: ArrayLike,
    K: int,
    *,
    loss: Any = "squared",
    l2: float = 0.0,
    radius: float = math.inf,
    batch_size: int = 1,
    sample_weight: ArrayLike | None = None,
    trial: bool = True,
    max_time: float = 60.0,
    callback: Callable[[Any], Any] | None = None,
    random_state: Any = 0,
) -> Plan:
    """Recommend k, the step, m and the number of stages for HT-SVRG.

    The recipe of the paper, k = 8c(8c−1)K with step 1/(8L), is circular, because c depends on k.  The result has the
    smallest k that solves it and keeps at most half of the columns; its rate is at most 2/3.  If there is none (without
    a ridge or mini-batches there never is), k = 9K (at most half the rows and columns) and m = 3n as in the paper's
    experiments, the step comes from trial runs, and nothing is proven.

    Parameters
    ----------
    A : array or sparse matrix of shape (n, d)
    y : array of shape (n,)
        The targets.
    K : int
        A guess of how many features matter.
    loss : str or loss, default="squared"
    l2 : float, default=0.0
        The ridge.
    radius : float, default=inf
        Radius of the ball of feasible vectors.
    batch_size : int, default=1
        Rows per step.
    sample_weight : array of shape (n,), default=None
        Weights of the rows; all equal by default.
    trial : bool, default=True
        Run HT-SVRG with the recommended parameters and measure the rate.  Without it nothing is run, and the step is
        the paper's 1/(8L), small but safe.
    max_time : float, default=60.0
        Seconds for each trial run.
    callback : function of a `Progress`, default=None
        Called after every stage of a trial run.
    random_state : None, int or Generator, default=0
        For the trial runs and the search that bounds α.

    Returns
    -------
    Plan

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> A = rng.standard_normal((400, 50))
    >>> chosen = plan(A, A[:, 0] - A[:, 1], K=2)
    >>> chosen.k, chosen.m, chosen.source
    (18, 1200, 'practice')
    """
    from .._minimize import minimize
    from ..problem import Problem
    from ..solvers import HTSVRG

    problem = Problem.create(A, y, loss=loss, sample_weight=sample_weight, l2=l2, radius=radius)
    n, d = problem.n, problem.d
    K = check_count(K, "K", high=d, high_text="the number of columns")
    batch_size, trial = check_count(batch_size, "batch_size"), check_flag(trial, "trial")
    max_time = check_number(max_time, "max_time", strict=True)
    settings: dict[str, Any] = {"loss": loss, "l2": l2, "radius": radius, "sample_weight": sample_weight}
    watch: dict[str, Any] = {"callback": callback, "max_time": max_time, "random_state": random_state}
    ground = Landscape.from_problem(problem, A)
    case = Case(ground, d, 1, batch_size)
    certified = certified_k(case, K)
    if certified is not None:
        k = certified
        L, alpha = case.smoothness(k, K), case.floor(k, K)
        m = math.ceil(4.0 * (8.0 * L / alpha - 1.0))
        beta = rates.rate(0.125 / L, m, bounds.nu(k, K, d), L, min(alpha, L))
        solver = HTSVRG(0.125 / L, m=m, stages=int(rates.stages(beta, REDUCTION)), output="random", tol=0.0)
    else:
        k = max(K, min(RELAXED * K, n // 2, d // 2))
        L = case.smoothness(k, K)
        m = 3 * n
        solver = HTSVRG(0.125 / L if 0 < L < math.inf else 1.0, m=m, stages=100, tol=0.0)
    solver = replace(solver, batch_size=batch_size)
    source = "theory" if solver.output == "random" else "practice"

    def run(solver: Any) -> Any:
        return minimize(A, y, k, solver=solver, **settings, **watch)

    fit, rate, taken = None, math.nan, math.nan
    if trial:
        if source == "practice":
            solver = replace(solver, step=_lasting_step(run, solver))
        fit = run(solver)
        rate, taken = observed_rate(fit.history.objective)
        if source == "practice" and math.isfinite(taken):
            solver = replace(solver, stages=max(5, math.ceil(1.5 * taken)))
    report = certify(problem, ground, fit, K, k, solver, random_state)
    status = "not tried" if fit is None else str(fit.status)
    return Plan(
        K=K, k=k, step=float(solver.step), m=m, batch_size=batch_size, stages=solver.stages, source=source,
        output=solver.output, certificate=report, trial=status, observed_rate=rate, observed_stages=taken,
    )  # fmt: skip


def _lasting_step(run: Callable[[Any], Any], solver: Any) -> float:
    """Half of the largest step tried with which a run does not diverge, starting from those that step="auto" takes."""
    steps = run(replace(solver, step="auto", tol=1e-6)).history.step
    step = float(np.median(steps[1:] if steps.size > 1 else steps))  # the first entry belongs to the starting point
    for _ in range(HALVINGS):
        result = run(replace(solver, step=step))
        step *= 0.5
        if result.status != "diverged" and result.objective <= result.history.objective[0]:
            break
    return step


def certified_k(case: Case, K: int) -> int | None:
    """The smallest k, on a grid that is then refined, that solves the recipe: ν(k) ≤ 8c/(8c−1) at the c of this k."""
    grid = sparsities(K, case.d // 2)  # to keep more than half of the columns is no selection
    at = next((i for i, k in enumerate(grid) if case.allows(k, K, 0.5)), None)
    if at is None:
        return None
    below = range(grid[at - 1] + 1, grid[at]) if at else range(0)
    return next((k for k in list(below)[:: max(1, len(below) // 16)] if case.allows(k, K, 0.5)), grid[at])


def observed_rate(objective: NDArray[np.float64]) -> tuple[float, float]:
    """The average factor per stage by which the gap to the best objective shrank, and the stages to a millionth."""
    gap = objective - objective.min()
    if gap.size < 2 or not gap[0] > 0:
        return math.nan, math.nan
    done = np.flatnonzero(gap <= REDUCTION * gap[0])
    if done[0] == 0:
        return math.nan, math.nan
    s = int(done[0])
    if gap[s] > 0:
        return float((gap[s] / gap[0]) ** (1.0 / s)), s
    # stage s is the best point, with gap 0: the rate comes from the stage before; one stage alone gives no rate
    return (float((gap[s - 1] / gap[0]) ** (1.0 / (s - 1))) if s > 1 else math.nan), s
