"""Rates of PGD and HT-SAGA, the cost of PGD and of HT-SVRG, and the size of the gradient under noise."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from .._validate import check_counts, check_numbers, refuse
from ._formula import formula
from .rates import curvatures


@formula
def pgd_rate(nu: ArrayLike, L: ArrayLike, alpha: ArrayLike, eta: ArrayLike | None = None) -> Any:
    """The factor by which an iteration of PGD shrinks ‖x − x̂‖, up to the tail: √ν·max(|1−ηα|, |1−ηL|).

    The default step 2/(α+L) gives √ν(c'−1)/(c'+1).  Only a factor below 1 proves convergence.

    Parameters
    ----------
    nu : float or array
        ν of Theorem 1, at least 1.
    L, alpha : float or array
        Restricted smoothness and strong convexity of F itself, both at sparsity 2k + K.
    eta : float or array, default=None
        The step size; 2/(α+L) by default.

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
    """The factor by which a step of HT-SAGA shrinks its Lyapunov function: ν(1 − ηα) with η = 1/(2(αn + L)).

    This corrects the paper's condition, which contradicts itself.  Every f_i has to be α-strongly convex and L-smooth
    in all directions (for losses of single rows α is the ridge), and the K-sparse x̂ has to minimise F without any
    constraint.  The factor is below 1 only if ν < 1/(1 − ηα).

    Examples
    --------
    >>> round(float(saga_rate(100, 1.0, L=2.0, alpha=1.0)), 4)
    0.9951
    """
    L, alpha = curvatures(L, alpha)
    n, nu = check_counts(n, "n"), check_numbers(nu, "nu", low=1.0)
    return (nu * (1.0 - 0.5 / (n + L / alpha)))[()]


class Cost(NamedTuple):
    """Numbers of operations up to a constant factor, and whether HT-SVRG needs fewer."""

    pgd: Any
    ht_svrg: Any
    svrg_wins: Any


@formula
def cost(n: ArrayLike, d: ArrayLike, c: ArrayLike, c_full: ArrayLike, epsilon: ArrayLike = 1e-6) -> Cost:
    """The cost n·c'·d·log(1/ε) of PGD and (n + c)·d·log(1/ε) of HT-SVRG, which is less where c < n(c' − 1).

    Constant factors are left out, as in the paper.

    Parameters
    ----------
    n, d : int or array
        Numbers of rows and columns of the data.
    c : float or array
        The condition number L/α, with the smoothness L of the f_i, at least 1.
    c_full : float or array
        The condition number c' = L'/α, with the smoothness L' of F itself, at least 1.
    epsilon : float or array, default=1e-6
        The wanted accuracy ε, below 1.

    Returns
    -------
    Cost

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
    """σ√(r·log d / n), the order of ‖∇_r F(x*)‖ in sparse linear regression with noise σ (Proposition 18).

    Parameters
    ----------
    sigma : float or array
        Standard deviation of the noise.
    r, d, n : int or array
        The sparsity, the dimension and the number of rows.

    Examples
    --------
    >>> round(float(gradient_scale(1.0, 10, 100, 1000)), 4)
    0.2146
    """
    sigma = check_numbers(sigma, "sigma")
    r, d, n = check_counts(r, "r"), check_counts(d, "d"), check_counts(n, "n")
    return (sigma * np.sqrt(r * np.log(d) / n))[()]
