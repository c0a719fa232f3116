"""Certificates: does Theorem 10 of the paper prove convergence of HT-SVRG on given data, and at which rate?

"Certified" is rigorous: it uses bounds that hold for every support.  The theorem is the published one with its errors
corrected (docs/errata.md); one step of its proof, the expectation in Lemma 20, was not checked again.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._text import data_frame, html_lines, html_table, jsonable
from .._validate import check_count, check_vector
from ..operators import hard_threshold, support
from ..result import Result
from . import bounds, rates
from .conditions import Case, Condition, Judgement, Remedy
from .curvature import Landscape, condition
from .spectrum import Bracket, is_operator

GIVEN = "A as it was given"
MARK = {True: "yes", False: "no", None: "?"}
BASIS = "Theorem 10 of Shen & Li (2018) as published, with corrections 1-3 and 16-18 of docs/errata.md"


@dataclass(frozen=True)
class Certificate:
    """What Theorem 10 says about HT-SVRG on given data.  ``print`` shows it in full.

    Attributes
    ----------
    verdict : str
        "certified", "not certified", or "undecided" if the bounds on α are too far apart to decide.
    reason : str
        The first condition that fails, with its numbers.
    conditions : tuple of Condition
        The conditions of the theorem, and whether each holds.
    remedies : tuple of Remedy
        Changes that would give a certificate; each was checked with the same bounds.
    n, d, k, K : int
        Rows, columns, non-zeros of the iterates, and non-zeros of the true vector.
    rho, nu : float
        ρ and ν of Theorem 1.
    L : float
        Smoothness of every f_i at sparsity 3k + K (for a mini-batch, in expectation).
    alpha, c : Bracket
        Bounds on the strong convexity of F at sparsity k + K, and on L/α.
    step, m, batch_size, l2, radius : number
        The parameters of HT-SVRG that it is about.
    beta : float
        The proven rate; inf if none is.
    stages : float
        Number of stages after which the gap is a millionth of what it was.
    grad_norm, reference_norm : float
        ‖∇_{3k+K} F(x̂)‖ and ‖x̂‖; x̂ is the best fit on the K largest coefficients.  NaN without a fit.
    tail : float
        How large the gap F − F(x̂) may remain because of noise; inf without a radius, NaN if nothing is certified.
    basis : str
        The theorem that it rests on.
    data : str
        Which matrix it is about: A as given or, for an estimator, the columns as its fit scaled them.
    """

    verdict: str
    reason: str
    conditions: tuple[Condition, ...]
    remedies: tuple[Remedy, ...]
    n: int
    d: int
    k: int
    K: int
    rho: float
    nu: float
    L: float
    alpha: Bracket
    c: Bracket
    step: float
    m: int
    batch_size: int
    l2: float
    radius: float
    beta: float
    stages: float
    grad_norm: float
    reference_norm: float
    tail: float
    basis: str = BASIS
    data: str = GIVEN

    @property
    def certified(self) -> bool:
        """Whether the verdict is "certified"."""
        return self.verdict == "certified"

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain numbers, strings and lists, for JSON."""
        plain = asdict(self)
        for name in ("alpha", "c"):
            plain[name] = getattr(self, name)._asdict()
        plain["conditions"] = [entry._asdict() for entry in self.conditions]
        plain["remedies"] = [entry.changes for entry in self.remedies]
        return jsonable(plain)

    def to_frame(self) -> Any:
        """A pandas.DataFrame of one row, with a column for each number and each condition (None if undecided).

        Frames of several certificates, for several k or l2 for example, can be concatenated.
        """
        known = {field.name: getattr(self, field.name) for field in fields(self)}
        columns = {name: value for name, value in known.items() if name not in ("conditions", "remedies", "alpha", "c")}
        for name in ("alpha", "c"):
            columns |= {f"{name}_lower": known[name].lower, f"{name}_upper": known[name].upper}
        columns |= {f"{entry.name} holds": entry.holds for entry in self.conditions}
        return data_frame({name: [value] for name, value in columns.items()})

    def _repr_html_(self) -> str:
        rows = [("condition", "holds", "details"), *((c.name, MARK[c.holds], c.text) for c in self.conditions)]
        return html_lines(self._facts(), bold=True) + html_table(rows, left=(0, 1, 2)) + html_lines(self._after())

    def _tail_text(self) -> str:
        if math.isnan(self.tail):
            return ""
        if math.isfinite(self.tail):
            return f", tail {self.tail:.4g}"
        if math.isfinite(self.radius):
            return "; no bound on the tail, because the radius does not bound all columns"
        radius = 2.0 * self.reference_norm
        worst = min(self.alpha.lower, self.L)
        tail = float(rates.tail(self.grad_norm, self.step, self.m, self.nu, self.L, worst, radius)) if radius else 0.0
        return f"; no bound on the tail without a radius ({tail:.4g} with radius={radius:.4g})"

    def _facts(self) -> list[str]:
        """The verdict, and the numbers that it is based on."""
        return [
            f"{self.verdict}{f': {self.reason}' if self.reason else ''}",
            *([] if self.data == GIVEN else [f"about {self.data}, l2 = {self.l2:.4g}"]),
            f"k = {self.k}, K = {self.K}, d = {self.d}, n = {self.n}: rho = {self.rho:.4g}, "
            f"sqrt(nu) = {math.sqrt(self.nu):.4f}",
            f"L = {self.L:.4g}, alpha in [{self.alpha.lower:.4g}, {self.alpha.upper:.4g}], "
            f"c in [{self.c.lower:.4g}, {self.c.upper:.4g}]",
        ]

    def _after(self) -> list[str]:
        """The rate and the tail, or the remedies."""
        lines = []
        if self.certified:
            stages = f"{self.stages:g} stages reduce the gap to a millionth"
            lines.append(f"rate {self.beta:.4g} per stage, {stages}{self._tail_text()}")
        lines += [f"certified with: {remedy.text}" for remedy in self.remedies]
        if not self.certified and not self.remedies:
            lines.append("no ridge, batch size or larger k was found that gives a certificate")
        return [*lines, f"({self.basis})"]

    def __str__(self) -> str:
        conditions = (f"{MARK[entry.holds]:3} {entry.name}: {entry.text}" for entry in self.conditions)
        return "\n  ".join([*self._facts(), *conditions, *self._after()])


def certificate(
    A: Any,
    y: ArrayLike,
    fit: Any = None,
    K: int | None = None,
    *,
    k: int | None = None,
    solver: Any = None,
    loss: Any = "squared",
    l2: float = 0.0,
    radius: float = math.inf,
    always_keep: ArrayLike | None = None,
    intercept: bool = False,
    offset: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    random_state: Any = 0,
) -> Certificate:
    r"""Check Theorem 10 on data: does HT-SVRG provably converge, how fast, and how close to a K-sparse vector?

    .. math:: E[F(\tilde x^s) - F(\hat x)] \le β^s\,[F(\tilde x^0) - F(\hat x)] + τ(\hat x)

    Parameters
    ----------
    A : array or sparse matrix of shape (n, d)
        The data that the fit was made with.
    y : array of shape (n,)
        The targets.
    fit : Result, array of shape (d,) or fitted estimator, default=None
        The fit; it gives k, and the x̂ of the tail τ.  Without it there is no tail.  An estimator (of one target or two
        classes) knows its loss, ridge, intercept, kept columns and class weights: give only the A, y and sample_weight
        that it was fitted on.  The certificate is then about the problem that it minimised, over the columns as the
        fit scaled them (``data`` says so): the raw columns have another α and L.
    K : int, default=None
        Number of non-zeros of the true vector; by default the largest K that can be certified, or 1.
    k : int, default=None
        Number of non-zeros of the iterates; by default that of the fit.
    solver : HTSVRG, default=None
        Gives step, m, batch size and output.  By default the paper's step 1/(8L), 3n steps per stage, and
        ``output="random"``, for which the theorem holds.
    loss : str or loss, default="squared"
    l2 : float, default=0.0
        The ridge.
    radius : float, default=inf
        ω, the radius of the ball of feasible vectors; without one, the tail has no bound.
    always_keep : array of int, default=None
        Columns that are always kept, and not counted in k.
    intercept : bool, default=False
        Whether the fit has an intercept.
    offset : array of shape (n,), default=None
        Added to the predictions.
    sample_weight : array of shape (n,), default=None
        Weights of the rows; all equal by default.
    random_state : None, int or Generator, default=0
        For the search that bounds α.

    Returns
    -------
    Certificate

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> A = rng.standard_normal((500, 60))
    >>> A /= np.linalg.norm(A, axis=1, keepdims=True)
    >>> y = 3 * A[:, 4] + 0.01 * rng.standard_normal(500)
    >>> certificate(A, y, k=40, K=1).verdict  # never certified without a ridge or mini-batches
    'not certified'
    >>> certificate(A, y, k=40, K=1, l2=5.0).verdict
    'certified'

    A fitted estimator:

    >>> from ksparse import KSparseRegressor
    >>> model = KSparseRegressor(k=40, l2=300.0, fit_intercept=False).fit(A, y)
    >>> found = certificate(A, y, model, K=1)
    >>> found.verdict, found.data
    ('certified', 'X with its columns divided by their root mean squares')
    """
    from ..problem import Problem
    from ..solvers import HTSVRG

    if is_operator(A):
        raise ValueError("A must be an array or a sparse matrix; for operators, use theory.curvature")
    if solver is None:
        solver = HTSVRG(step="theory", output="random")
    elif not isinstance(solver, HTSVRG):
        raise ValueError(f"solver must be an HTSVRG: the theorem is about no other, got {solver!r}")
    settings = {
        "loss": loss, "l2": l2, "always_keep": always_keep, "intercept": intercept, "sample_weight": sample_weight,
        "offset": offset,
    }  # fmt: skip
    data = GIVEN
    if hasattr(fit, "_minimized"):
        _refuse_twice(loss=loss != "squared", l2=l2 != 0.0, always_keep=always_keep is not None, intercept=intercept)
        A, y, fit, own_k, settings, data = fit._minimized(A, y, sample_weight, offset)
        k = own_k if k is None else k
    problem = Problem.create(A, y, radius=radius, **settings)
    found = certify(problem, Landscape.from_problem(problem, A), fit, K, k, solver, random_state)
    return replace(found, data=data)


def _refuse_twice(**given: Any) -> None:
    """Refuse arguments that the estimator given as fit already has."""
    for name, there in given.items():
        if there:
            raise ValueError(f"{name} is known to the estimator that was given as fit; leave it out")


def certify(
    problem: Any, ground: Landscape, fit: Any, K: int | None, k: int | None, solver: Any, random_state: Any
) -> Certificate:
    """The certificate of a problem whose curvature is known."""
    x = _coefficients(fit, problem.d)
    free = problem.d - problem.kept.size
    if free == 0:
        raise ValueError("always_keep must leave columns to choose from, got all of them")
    if k is None:
        if x is None:
            raise ValueError("k must be given without a fit")
        k = max(1, np.setdiff1d(support(x), problem.kept).size)
    k = check_count(k, "k", high=free, high_text="the number of columns")
    m = 3 * problem.n if solver.m is None else solver.m
    step = solver.step if isinstance(solver.step, float | int) else None
    if step is None and solver.step != "theory":
        if not isinstance(fit, Result):
            raise ValueError(f"step = {solver.step!r} is known after a run only; give its Result as fit, or a number")
        step = float(fit.history.step.max())  # the theorem has to hold for the largest step
    case = Case(ground, free, m, solver.batch_size, step)
    if K is None:
        K = case.largest_K(k) or 1
    K = check_count(K, "K", high=k, high_text="k")
    found = case.judge(k, K, solver.output, random_state)
    grad_norm, size = (math.nan, math.nan) if x is None else _at_reference(problem, ground.A, x, k, K)
    return _write(case, found, problem, k, K, grad_norm, size)


def _write(
    case: Case, found: Judgement, problem: Any, k: int, K: int, grad_norm: float, reference_norm: float
) -> Certificate:
    nu, L, alpha, step, conditions, remedies = found
    states = [entry.holds for entry in conditions]
    verdict = "certified" if all(states) else "undecided" if False not in states else "not certified"
    beta, tail = math.inf, math.nan
    if verdict == "certified":
        worst = min(alpha.lower, L)
        beta = float(rates.rate(step, case.m, nu, L, worst))
        if not math.isnan(grad_norm):
            # the ball does not bound the intercept and the kept columns
            radius = math.inf if problem.n_kept else problem.radius
            tail = float(rates.tail(grad_norm, step, case.m, nu, L, worst, radius))
    return Certificate(
        verdict, _reason(case, problem, k, K, found, verdict), conditions, remedies, problem.n, problem.d, k, K,
        float(bounds.rho(k, K, case.d)), nu, L, alpha, condition(L, alpha), step, case.m, case.batch_size, problem.l2,
        problem.radius, beta, float(rates.stages(beta)), grad_norm, reference_norm, tail,
    )  # fmt: skip


def _reason(case: Case, problem: Any, k: int, K: int, found: Judgement, verdict: str) -> str:
    if verdict == "certified":
        return ""
    wanted = False if verdict == "not certified" else None
    failed = [entry for entry in found.conditions if entry.holds is wanted]
    first = failed[0]
    if {"convexity", "sparsity"} & {entry.name for entry in failed} and case.never(k):
        least = min(k + K, case.d)
        return (
            f"losses of single rows without a ridge have c >= min(k + K, d) = {least}, and k = {k} allows c < "
            f"{rates.allowed_condition(found.nu):.3g} only: they are never certified"
        )
    if first.name == "sparsity" and rates.allowed_condition(found.nu) <= 1:
        least = rates.minimum_k(1.0, K, case.d)
        return f"no data allow k = {k}: for K = {K}, k = {least} is the smallest that any data allow"
    return f"{first.name}: {first.text}"


def _coefficients(fit: Any, d: int) -> NDArray[np.float64] | None:
    if fit is None:
        return None
    if hasattr(fit, "get_params"):
        raise ValueError(f"fit must be a Result, an array or an estimator of ksparse, got {type(fit).__name__}")
    return check_vector(fit.x if isinstance(fit, Result) else fit, "fit", d, "column")


def _at_reference(problem: Any, A: Any, x: NDArray[np.float64], k: int, K: int) -> tuple[float, float]:
    """‖∇_{3k+K} F(x̂)‖ and ‖x̂‖, where x̂ is the best fit on the K largest coefficients of x and the kept columns."""
    from .._minimize import minimize
    from ..solvers import PGD

    size = np.abs(x)
    size[problem.kept] = -1.0
    columns = np.concatenate([problem.kept, np.argsort(-size, kind="stable")[:K]])
    part = A.tocsc()[:, columns] if hasattr(A, "tocsc") else np.asarray(A)[:, columns]
    refit = minimize(
        part, problem.y, K, loss=problem.loss, solver=PGD(tol=1e-14), l2=problem.l2, radius=problem.radius,
        intercept=problem.intercept, offset=problem.offset, sample_weight=problem.weight, x0=x[columns],
        always_keep=np.arange(problem.kept.size),
    )  # fmt: skip
    best = np.zeros(problem.d)
    best[columns] = refit.x
    stage = problem.stage(problem.slots(K, best, refit.intercept), np.empty((0, 1), np.int64))
    gradient = np.append(stage.mu + problem.l2 * best, np.full(problem.first, stage.mu_ones))
    level = min(3 * k + K + problem.n_kept, gradient.size)
    return float(np.linalg.norm(hard_threshold(gradient, level))), float(np.linalg.norm(best))
