"""PGD and HT-SAGA beside HT-SVRG: their rates, and what the work of each costs; how noise scales for all of them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from .._validate import check_counts, check_numbers, refuse
from ._formula import formula
from .rates import curvatures


@formula
def pgd_rate(nu: ArrayLike, L: ArrayLike, alpha: ArrayLike, eta: ArrayLike | None = None) -> Any:
    """By how much an iteration of PGD shrinks ‖x − x̂‖, up to the tail: √ν·max(|1−ηα|, |1−ηL|).

    Here α and L are of F itself, both at sparsity 2k + K; the default step 2/(α+L) gives √ν(c'−1)/(c'+1).  What is not
    below 1 proves nothing.

    Examples
    --------
    >>> from ksparse.theory import nu
    >>> round(float(pgd_rate(nu(36, 4), L=2.0, alpha=1.0)), 4)
    0.3935
    """
    L, alpha = curvatures(L, alpha)
    nu = check_numbers(nu, "nu", low=1.0)
    if eta is None:
        return (np.sqrt(nu) * np.maximum(1.0 - alpha / L, 0.0) / (1.0 + alpha / L))[()]
    step = check_numbers(eta, "eta", strict=True)
    return (np.sqrt(nu) * np.maximum(np.abs(1.0 - step * alpha), np.abs(1.0 - step * L)))[()]


@formula
def saga_rate(n: ArrayLike, nu: ArrayLike, L: ArrayLike, alpha: ArrayLike) -> Any:
    """By how much a step of HT-SAGA shrinks its Lyapunov function: ν(1 − ηα) with η = 1/(2(αn + L)).

    A repair of the paper's condition, which does not hold together.  Here every f_i has to be α-strongly convex and
    L-smooth in all directions (for losses of single rows α is the ridge), and the K-sparse x̂ has to minimise F without
    any constraint.  Not below 1 unless ν < 1/(1 − ηα).
    """
    L, alpha = curvatures(L, alpha)
    n, nu = check_counts(n, "n"), check_numbers(nu, "nu", low=1.0)
    return (nu * (1.0 - 0.5 / (n + L / alpha)))[()]


class Cost(NamedTuple):
    """Operations up to a constant factor, and who needs fewer."""

    pgd: Any
    ht_svrg: Any
    svrg_wins: Any


@formula
def cost(n: ArrayLike, d: ArrayLike, c: ArrayLike, c_full: ArrayLike, epsilon: ArrayLike = 1e-6) -> Cost:
    """PGD's n·c'·d·log(1/ε) against HT-SVRG's (n + c)·d·log(1/ε): the latter is less where c < n(c' − 1).

    `c` is the condition number with the smoothness of the f_i, `c_full` (c') the one with that of F.  Constants are
    left out, as in the paper.

    Examples
    --------
    >>> bool(cost(1000, 50, c=300.0, c_full=10.0).svrg_wins)
    True
    """
    n, d = check_counts(n, "n"), check_counts(d, "d")
    c, c_full = check_numbers(c, "c", low=1.0), check_numbers(c_full, "c_full", low=1.0)
    epsilon = check_numbers(epsilon, "epsilon", strict=True)
    refuse(epsilon >= 1, lambda at: f"epsilon must be below 1, got {epsilon[at]:g}")
    work = d * -np.log(epsilon)
    return Cost((n * c_full * work)[()], ((n + c) * work)[()], (c < n * (c_full - 1.0))[()])


@formula
def gradient_scale(sigma: ArrayLike, r: ArrayLike, d: ArrayLike, n: ArrayLike) -> Any:
    """σ√(r·log d / n): how ‖∇_r F(x*)‖ scales in sparse linear regression with noise σ (Proposition 18)."""
    sigma = check_numbers(sigma, "sigma")
    r, d, n = check_counts(r, "r"), check_counts(d, "d"), check_counts(n, "n")
    return (sigma * np.sqrt(r * np.log(d) / n))[()]
