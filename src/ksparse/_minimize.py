"""`minimize`: a loss over k-sparse vectors, by any solver of the package."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from numpy.typing import ArrayLike

from ._validate import check_choice, check_count, check_generator, check_number
from .problem import Problem
from .result import Progress, Result
from .rows import Scaled
from .solvers import HTSVRG, SOLVERS
from .solvers._run import Solver, run
from .sources import as_source


def minimize(
    A: Any,
    y: ArrayLike,
    k: int,
    *,
    loss: Any = "squared",
    solver: Any = HTSVRG(),  # noqa: B008 -- frozen, so one instance serves all calls
    l2: float = 0.0,
    radius: float = math.inf,
    always_keep: ArrayLike | None = None,
    intercept: bool = False,
    positive: bool = False,
    offset: ArrayLike | None = None,
    x0: ArrayLike | Result | None = None,
    sample_weight: ArrayLike | None = None,
    random_state: Any = None,
    callback: Callable[[Progress], Any] | None = None,
    max_time: float | None = None,
) -> Result:
    r"""Minimise a loss over vectors with at most k non-zeros.

    .. math:: \min_x\ F(x) = \frac1n \sum_{i=1}^n \tilde w_i\,\varphi(a_i\cdot x, y_i) + \frac{\lambda}{2}\|x\|_2^2
              \quad\text{s.t.}\quad \|x\|_0 \le k,\ \|x\|_2 \le \omega

    Parameters
    ----------
    A : array, sparse matrix, DataFrame or source of shape (n, d)
        Its rows are samples.  C-ordered arrays and CSR matrices of float64 or float32 are not copied.  Rows that do not
        fit into memory come from a source: see `ksparse.sources`.
    y : array of shape (n,)
        Targets; −1 and +1 for the losses "logistic" and "squared_hinge", counts for "poisson".
    k : int
        How many non-zeros there may be, beside the kept columns.
    loss : str or loss
        "squared", "logistic", "poisson", "huber", "squared_hinge", or an instance such as ``losses.Huber(0.5)``.
    solver : solver or str
        An instance such as ``HTSVRG(step=0.1)``, or a name: "ht-svrg", "ht-saga", "pgd", "iht", "stoiht", "exchange",
        "grasp", "grahtp"; for the squared loss also "niht", "htp", "cosamp", "sp", "omp", "romp", "ompr".
    l2 : float
        λ, the weight of the ridge.
    radius : float
        ω; the kept columns are outside it.
    always_keep : columns or mask, optional
        Columns that are in every model and do not count towards k.
    intercept : bool
        Fit a constant too: kept, never shrunk, ``result.intercept``.
    positive : bool
        No negative coefficients (the kept ones and the intercept are free).
    offset : array of shape (n,), optional
        Added to every prediction a·x.
    x0 : array of shape (d,) or Result, optional
        The start; Π_ω(H_k(x0)) is taken.  A `Result` brings its intercept along.
    sample_weight : array of shape (n,), optional
        Scaled to mean one; zero leaves a row out.
    random_state : None, int or Generator
        As in ``numpy.random.default_rng``; the same seed gives the same result, bit for bit.
    callback : function of a `Progress`, optional
        Called after every stage; the run stops if it returns something true.
    max_time : float, optional
        Seconds after which the best point so far is returned.

    Returns
    -------
    Result
        The point, its objective, how the run ended, and the history.  Ctrl-C too ends a run with the best point so far.

    Examples
    --------
    >>> import numpy as np
    >>> from ksparse import minimize
    >>> rng = np.random.default_rng(0)
    >>> A = rng.standard_normal((200, 1000))
    >>> y = A[:, 5] - A[:, 42] + 0.1 * rng.standard_normal(200)
    >>> minimize(A, y, k=2, random_state=0).support
    array([ 5, 42])
    """
    if isinstance(solver, str):
        solver = SOLVERS[check_choice(solver, "solver", SOLVERS)]()
    if isinstance(solver, type) or not isinstance(solver, Solver):
        raise ValueError(
            f"solver must be an instance such as HTSVRG(), or one of {', '.join(map(repr, SOLVERS))}, got {solver!r}"
        )
    if callback is not None and not callable(callback):
        raise ValueError(f"callback must be a function of one argument, got {callback!r}")
    if max_time is not None:
        max_time = check_number(max_time, "max_time", strict=True, infinite=True)
    A = as_source(A)
    if isinstance(A, Scaled) and not getattr(solver, "reads_scaled", False):
        A = A.copy()
    k = check_count(k, "k")
    rng = check_generator(random_state)
    x0, intercept0 = (x0.x, x0.intercept) if isinstance(x0, Result) else (x0, 0.0)
    problem = Problem.create(
        A, y, loss=loss, sample_weight=sample_weight, offset=offset, l2=l2,
        always_keep=always_keep, intercept=intercept, positive=positive, radius=radius,
    )  # fmt: skip
    free = problem.d - problem.kept.size
    if free == 0:
        raise ValueError("always_keep must leave columns to choose from, got all of them; take one out, k will keep it")
    if k > free:
        beside = f" beside the {problem.kept.size} always kept" if problem.kept.size else ""
        raise ValueError(f"k must be at most the number of columns{beside}, {free}, got {k}")
    return run(solver, problem, k, x0=x0, intercept0=intercept0, rng=rng, callback=callback, max_time=max_time)
