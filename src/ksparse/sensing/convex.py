"""The convex relatives of hard thresholding, by the solvers of SciPy and scikit-learn: for comparison."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ..engine.loop import history_of
from ..operators import hard_threshold, support
from ..result import Result, Status

Array = NDArray[np.float64]
UNKNOWN = 1e-3  # of ‖A*y‖∞: the penalty of the Lasso and the tolerance of the Dantzig selector where no noise is given


def basis_pursuit(A: Any, y: Array, noise: float | None) -> tuple[Array, Status]:
    """min ‖x‖₁ subject to Ax = y, by HiGHS.  (Chen, Donoho & Saunders, SIAM Review 43(1), 2001.)"""
    if noise:
        raise ValueError(
            "algorithm='bp' fits y exactly and allows no noise; use 'dantzig' or 'lasso', or leave noise out"
        )
    both = sparse.hstack([A, -A]) if sparse.issparse(A) else np.hstack([A, -A])
    return _linear_program(np.ones(2 * A.shape[1]), A.shape[1], A_eq=both, b_eq=y)


def dantzig_selector(A: Any, y: Array, noise: float | None) -> tuple[Array, Status]:
    """min ‖x‖₁ subject to ‖A'(y − Ax)‖∞ ≤ λ, by HiGHS.  (Candès & Tao, Annals of Statistics 35(6), 2007.)

    λ = noise·√(2 log d)·(the largest norm of a column).
    """
    d = A.shape[1]
    gram, first = A.T @ A, A.T @ y
    gram = gram.toarray() if sparse.issparse(gram) else gram
    bound = _bound(first, noise, math.sqrt(float(gram.diagonal().max())))
    rows = np.block([[gram, -gram], [-gram, gram]])
    return _linear_program(np.ones(2 * d), d, A_ub=rows, b_ub=np.concatenate([first + bound, bound - first]))


def lasso(A: Any, y: Array, noise: float | None) -> tuple[Array, Status]:
    """min ‖y − Ax‖²/(2n) + λ‖x‖₁, by scikit-learn.  (Tibshirani, JRSS B 58(1), 1996.)

    λ = noise·√(2 log d)·(the largest norm of a column)/n.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import Lasso
    from sklearn.utils._testing import ignore_warnings

    norms = np.sqrt(np.asarray((A.multiply(A) if sparse.issparse(A) else A * A).sum(axis=0)).ravel())
    penalty = _bound(A.T @ y, noise, norms.max())
    model = Lasso(alpha=max(penalty / y.size, 1e-300), fit_intercept=False, max_iter=100_000, tol=1e-8)
    with ignore_warnings(category=ConvergenceWarning):
        model.fit(A, y)
    if model.n_iter_ >= model.max_iter:
        return model.coef_, Status("stage limit", f"all {model.max_iter} rounds done", "give a larger noise")
    return model.coef_, Status("converged", f"duality gap {model.dual_gap_:.2g}")


PROGRAMS: dict[str, Callable[[Any, Array, float | None], tuple[Array, Status]]] = {
    "bp": basis_pursuit,
    "lasso": lasso,
    "dantzig": dantzig_selector,
}


def solve(name: str, A: Any, y: Array, k: int, noise: float | None) -> Result:
    """The k largest entries of a program's solution."""
    if not np.isfinite(A.data if sparse.issparse(A) else A).all():
        raise ValueError("A must be finite, got NaN or infinity; remove or impute it first")
    start = time.perf_counter()
    # HiGHS's tolerances are absolute: A in units in which its largest entry is about one, as y is
    exponent = int(np.frexp(abs(A).max())[1])
    x, status = PROGRAMS[name](_times_power(A, -exponent), y, noise)
    with np.errstate(over="ignore", invalid="ignore"):  # an x that leaves the range of floats is refused by the caller
        x = hard_threshold(np.ldexp(x, -exponent), k)
        objective = 0.5 * float(np.sum((y - A @ x) ** 2)) / y.size
    if status == "converged" and not objective <= 0.5 * float(y @ y) / y.size:
        message = f"the {k} largest entries of the solution fit y no better than zeros do"
        status = Status("stalled", message, "give a larger k, or use 'auto'")
    return _result(x, objective, status, time.perf_counter() - start)


def _bound(correlations: Array, noise: float | None, largest: float) -> float:
    """λ: what noise correlates with a column whose norm is `largest`, or a share of A*y if the noise is unknown."""
    if noise is None:
        return UNKNOWN * float(np.abs(correlations).max())
    return noise * math.sqrt(2.0 * math.log(correlations.size)) * largest


def _times_power(A: Any, exponent: int) -> Any:
    """2^exponent·A, where the power itself may be no float."""
    if not sparse.issparse(A):
        return np.ldexp(A, exponent)
    return type(A)((np.ldexp(A.data, exponent), A.indices, A.indptr), shape=A.shape)


def zero(d: int) -> Result:
    """The result for y = 0."""
    return _result(np.zeros(d), 0.0, Status("converged", "y is zero"), 0.0)


def _result(x: Array, objective: float, status: Status, seconds: float) -> Result:
    history = history_of([(objective, 0, seconds, 0, 0.0, math.nan)])
    return Result(x, 0.0, support(x), objective, status, 1, history)


def _linear_program(cost: Array, d: int, **constraints: Any) -> tuple[Array, Status]:
    """min cost·(u, v) over u, v ≥ 0; x = u − v."""
    from scipy.optimize import linprog

    found = linprog(cost, bounds=(0, None), method="highs", **constraints)
    if found.x is None:
        return np.zeros(d), Status("stalled", found.message, "Ax = y may have no solution; use 'lasso'")
    return found.x[:d] - found.x[d:], Status("converged", found.message)
