r"""How fast HT-SVRG converges (Theorem 10 of the paper and what follows from it), with the paper's errors corrected.

With α the restricted strong convexity of F at sparsity k + K, L the restricted smoothness of every f_i at 3k + K,
c = L/α, a step η < 1/(4L), m steps per stage and ν of Theorem 1, for every K-sparse x̂ with ‖x̂‖ ≤ ω

.. math:: E[F(\tilde x^s) - F(\hat x)] \le β^s\,[F(\tilde x^0) - F(\hat x)] + τ(\hat x).

The functions take numbers or arrays that broadcast.  ``printed=True`` gives the paper's formula where ours corrects it;
docs/errata.md derives each correction.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._validate import check_choice, check_count, check_counts, check_number, check_numbers, refuse
from ._formula import formula
from .bounds import first_k
from .bounds import nu as tight_nu

Array = NDArray[np.float64]


@formula
def condition_number(L: ArrayLike, alpha: ArrayLike) -> Any:
    """The condition number c = L/α, at least 1.

    Examples
    --------
    >>> float(condition_number(3.0, 1.5))
    2.0
    """
    L, alpha = curvatures(L, alpha)
    return (L / alpha)[()]


@formula
def optimal_nu(eta: ArrayLike, alpha: ArrayLike) -> Any:
    """ν = 1/(1 − ηα), where the two regimes of the theorem meet and β is smallest (Proposition 14).

    Examples
    --------
    >>> round(float(optimal_nu(1 / 8, 1.0)), 4)
    1.1429
    """
    eta, alpha = check_numbers(eta, "eta", strict=True), check_numbers(alpha, "alpha", strict=True)
    refuse(eta * alpha >= 1, lambda _: "eta must be below 1/alpha")
    return (1.0 / (1.0 - eta * alpha))[()]


@formula
def largest_nu(eta: ArrayLike, L: ArrayLike, alpha: ArrayLike, printed: bool = False) -> Any:
    """The limit on ν for this step, 1/(1 − 2ηα + 4η²αL): β < 1 is possible only for a smaller ν.

    For η ≥ 1/(4L) it is 1: no ν is allowed.  The paper prints 4L/(4L−α), the limit of the best step, η → 1/(4L).

    Examples
    --------
    >>> round(float(largest_nu(1 / 8, 1.0, 1.0)), 4), round(float(largest_nu(1 / 8, 1.0, 1.0, printed=True)), 4)
    (1.2308, 1.3333)
    """
    eta = check_numbers(eta, "eta", strict=True)
    L, alpha = curvatures(L, alpha)
    if printed:
        return (1.0 / (1.0 - 0.25 * (alpha / L)) + 0.0 * eta)[()]
    return np.where(4.0 * eta * L < 1.0, 1.0 / (1.0 - 2.0 * eta * alpha + 4.0 * (eta * alpha) * (eta * L)), 1.0)[()]


@formula
def rate(eta: ArrayLike, m: ArrayLike, nu: ArrayLike, L: ArrayLike, alpha: ArrayLike, printed: bool = False) -> Any:
    """β, the factor by which a stage shrinks the gap in expectation; inf where the theorem gives no β.

    Theorem 1 holds for every larger ν too, so a ν below 1/(1 − ηα) is replaced by 1/(1 − ηα): then β never gets worse
    as k grows.  ``printed=True`` takes ν as it is, as Theorem 10 does (β₁ above 1/(1 − ηα), β₂ below).

    Examples
    --------
    >>> c = 3.0
    >>> round(float(rate(1 / (8 * c), 4 * (8 * c - 1), 8 * c / (8 * c - 1), L=c, alpha=1.0)), 12)
    0.666666666667
    """
    linear, constant = _rate_parts(*_step(eta, nu, L, alpha), printed)
    m = check_numbers(m, "m", low=1.0)
    return (linear / m + constant)[()]


def _rate_parts(eta: Array, nu: Array, L: Array, alpha: Array, printed: bool) -> tuple[Array, Array]:
    """(a, b) with β = a/m + b; inf where the denominator is not positive."""
    first = _denominator(eta, nu, L, alpha, printed)
    nu = nu if printed else np.maximum(nu, _boundary(eta, alpha))
    ok = first > 0
    return np.where(ok, 1.0 / first, np.inf), np.where(ok, 2.0 * nu * (eta * alpha) * (eta * L) / first, np.inf)


def _denominator(eta: Array, nu: Array, L: Array, alpha: Array, printed: bool) -> Array:
    """D with β = (1/m + 2νη²αL)/D: one formula on each side of ν = 1/(1 − ηα), and both are equal there."""
    a, b = eta * alpha, eta * L  # without a unit: nothing overflows, whatever the scale of F
    edge = _boundary(eta, alpha)
    small = (nu if printed else np.where(np.isfinite(edge), edge, nu)) * a * (1.0 - 2.0 * b)
    large = 2.0 * nu * a - 2.0 * nu * a * b - nu + 1.0
    return np.where(nu > edge, large, small)


def _boundary(eta: Array, alpha: Array) -> Array:
    return np.where(eta * alpha < 1.0, 1.0 / (1.0 - eta * alpha), np.inf)


@formula
def tail(
    grad_norm: ArrayLike,
    eta: ArrayLike,
    m: ArrayLike,
    nu: ArrayLike,
    L: ArrayLike,
    alpha: ArrayLike,
    radius: ArrayLike,
    printed: bool = False,
) -> Any:
    """τ(x̂), how far above F(x̂) the objective may stay; inf where β is not below 1.

    Theorem 10 as printed has a factor 1/α too many in its second regime, 2ω/α instead of 4ω/α in Q, and lacks a term
    in the first regime.

    Examples
    --------
    >>> round(float(tail(0.1, 1 / 8, 28, 8 / 7, L=1.0, alpha=1.0, radius=2.0)), 4)
    1.21
    """
    eta, nu, L, alpha = _step(eta, nu, L, alpha)
    beta = np.asarray(rate(eta, m, nu, L, alpha, printed))
    m = check_numbers(m, "m", low=1.0)
    total = np.asarray(Q(grad_norm, eta, m, nu, L, alpha, radius, printed))
    # τ₁ = αQ/(2D(1−β)m); τ₂ too, but it is printed without the α in its numerator
    printed_second = (nu <= _boundary(eta, alpha)) & printed
    total = np.where(printed_second, total, alpha * total)
    room = 2.0 * _denominator(eta, nu, L, alpha, printed) * (1.0 - beta)
    value = np.where((beta < 1.0) & (room > 0), total / room / m, np.inf)
    return np.where(np.asarray(total) == 0, np.where(beta < 1.0, 0.0, np.inf), value)[()]


@formula
def Q(
    grad_norm: ArrayLike,
    eta: ArrayLike,
    m: ArrayLike,
    nu: ArrayLike,
    L: ArrayLike,
    alpha: ArrayLike,
    radius: ArrayLike,
    printed: bool = False,
) -> Any:
    """Q(x̂) of Theorem 10, the term that a stage adds: (16νη²Lωm + 4ω/α)g + 4νη²m g² with g = ‖∇_{3k+K} F(x̂)‖.

    Two points of the ball are up to 2ω apart, so the 2ω/α of the paper has to be 4ω/α; and for ν > 1/(1 − ηα) the term
    (4ωg/α)(ν(1−ηα) − 1)m is added.

    Examples
    --------
    >>> round(float(Q(0.1, 1 / 8, 28, 8 / 7, L=1.0, alpha=1.0, radius=2.0)), 4)
    2.42
    """
    eta, nu, L, alpha = _step(eta, nu, L, alpha)
    m, g = check_numbers(m, "m", low=1.0), check_numbers(grad_norm, "grad_norm")
    radius = check_numbers(radius, "radius", strict=True, infinite=True)
    more = np.zeros(1)
    if not printed:
        nu = np.maximum(nu, _boundary(eta, alpha))
        excess = np.where(eta * alpha < 1.0, nu * (1.0 - eta * alpha) - 1.0, np.inf)  # for η ≥ 1/α no ν is enough
        more = np.where(excess > 0.0, excess * m * 4.0 / alpha, 0.0)
    linear = 16.0 * nu * eta * (eta * L) * m + (2.0 if printed else 4.0) / alpha + more
    value = np.where(g > 0, linear * radius * g + (2.0 * np.sqrt(nu) * np.sqrt(m) * (eta * g)) ** 2, 0.0)
    return value.reshape(np.broadcast(eta, m, nu, L, alpha, g, radius).shape)[()]


# --- choosing the parameters -----------------------------------------------------------------------------------------
class Recipe(NamedTuple):
    """Parameters that give β ≤ 2/3."""

    eta: float
    m: int
    k: int
    nu: float
    beta: float


def recipe(L: float, alpha: float, K: int) -> Recipe:
    """The paper's choice of parameters: η = 1/(8L), m = 4(8c − 1), k = 8c(8c − 1)K, rounded up; β is at most 2/3.

    L and α depend on k themselves (they are taken at sparsity 3k + K and k + K): `plan` solves that for given data.

    Parameters
    ----------
    L : float
        Restricted smoothness of every f_i.
    alpha : float
        Restricted strong convexity of F, 0 < alpha <= L.
    K : int
        Number of non-zeros of the true vector.

    Returns
    -------
    Recipe

    Examples
    --------
    >>> chosen = recipe(L=2.0, alpha=1.0, K=3)
    >>> chosen.eta, chosen.m, chosen.k, round(chosen.beta, 6)
    (0.0625, 60, 720, 0.666667)
    """
    K = check_count(K, "K", high=2**53)
    L, alpha = check_number(L, "L", strict=True), check_number(alpha, "alpha", strict=True)
    c = float(condition_number(L, alpha))
    if not 64.0 * c * c * K <= 2.0**53:
        raise ValueError(f"L / alpha = {c:.3g} and K = {K} ask for a k beyond 2^53; a ridge l2 makes L / alpha smaller")
    if not 1e-300 < L < 1e300:
        raise ValueError(f"L = {L:g} leaves no room for the step 1/(8L) in floats; rescale L and alpha")
    eta, m = 0.125 / L, math.ceil(4.0 * (8.0 * c - 1.0) - 1e-9)
    k = math.ceil(8.0 * c * (8.0 * c - 1.0) * K - 1e-9)
    nu = float(tight_nu(k, K))
    return Recipe(eta, m, k, nu, float(rate(eta, m, nu, L, alpha)))


@formula
def minimum_k(c: ArrayLike, K: ArrayLike, d: ArrayLike | None = None, bound: str = "tight") -> Any:
    """The smallest k for which HT-SVRG converges with some step: ν < 4c/(4c−1), that is k > (16c² − 4c)K.

    By the bound of Jain et al. it is k > (1−s²)d + s²K with s = √(4c/(4c−1)) − 1, which grows with d.

    Parameters
    ----------
    c : float or array
        The condition number L/α, at least 1.
    K : int or array
        Number of non-zeros of the true vector, at least 1.
    d : int or array, default=None
        The dimension; a k close to d may suffice, and k = d always does.
    bound : {"tight", "jain"}, default="tight"
        The bound on thresholding: √ν of Theorem 1, or that of Jain et al., which needs d.

    Examples
    --------
    >>> int(minimum_k(1.5, 2)), int(minimum_k(1.5, 2, 10_000, bound="jain"))
    (61, 9909)
    """
    check_choice(bound, "bound", ("tight", "jain"))
    c, K = check_numbers(c, "c", low=1.0), check_counts(K, "K")
    if bound == "tight":
        return first_k(4.0 * c * (4.0 * c - 1.0), K, d, strict=True)
    if d is None:
        raise ValueError("d must be given for bound='jain', which depends on the dimension")
    d = check_counts(d, "d")
    refuse(d < K, lambda at: f"K must be at most d = {np.broadcast_arrays(d, K)[0][at]}")
    square = (np.sqrt(1.0 / (1.0 - 0.25 / c)) - 1.0) ** 2
    return np.clip(np.floor(d - square * (d - K)) + 1, K, d).astype(np.int64)[()]


@formula
def largest_condition(k: ArrayLike, K: ArrayLike, d: ArrayLike | None = None) -> Any:
    """The limit (1 + √(1 + 4/ρ))/8 that c has to stay below for convergence at this k; the inverse of `minimum_k`.

    If it is at most 1, no data have such a c: at least ``minimum_k(1, K, d)`` is needed, which is 12K + 1 for large d.

    Examples
    --------
    >>> round(float(largest_condition(61, 2)), 3)
    1.511
    """
    return allowed_condition(tight_nu(k, K, d))


@formula
def allowed_condition(nu: ArrayLike) -> Any:
    """The limit ν/(4(ν − 1)) that c has to stay below at this ν with the best step; inf at ν = 1."""
    nu = check_numbers(nu, "nu", low=1.0)
    return np.where(nu > 1.0, 0.25 * nu / np.maximum(nu - 1.0, 1e-300), np.inf)[()]


@formula
def minimum_m(
    eta: ArrayLike, nu: ArrayLike, L: ArrayLike, alpha: ArrayLike, beta: ArrayLike = 1.0, printed: bool = False
) -> Any:
    """The number of steps per stage that m has to exceed for a rate below `beta`; inf if no m is enough.

    For ν ≤ 1/(1 − ηα), which is then replaced by 1/(1 − ηα), η = η'/L and β = 1 it is c(1 − ηα)/(η'(1 − 4η')); the
    paper prints c/(νη'(1 − η')).

    Examples
    --------
    >>> round(float(minimum_m(1 / 8, 8 / 7, L=1.0, alpha=1.0)), 6)
    14.0
    """
    eta, nu, L, alpha = _step(eta, nu, L, alpha)
    beta = check_numbers(beta, "beta", strict=True)
    if printed:
        share = eta * L
        return np.where(share < 1.0, L / alpha / (nu * share * np.maximum(1.0 - share, 0.0)), np.inf)[()]
    linear, constant = _rate_parts(eta, nu, L, alpha, False)
    return np.where(constant < beta, linear / (beta - constant), np.inf)[()]


@formula
def stages(beta: ArrayLike, reduction: ArrayLike = 1e-6) -> Any:
    """The number of stages that shrink the gap to the share `reduction` of its start; inf unless β < 1.

    Examples
    --------
    >>> int(stages(2 / 3))
    35
    """
    beta = check_numbers(beta, "beta", infinite=True)
    reduction = check_numbers(reduction, "reduction", strict=True)
    refuse(reduction >= 1, lambda at: f"reduction must be below 1, got {reduction[at]:g}")
    count = np.ceil(np.log(reduction) / np.log(beta) - 1e-9)
    return np.where(beta < 1, np.maximum(count, 1.0), np.inf)[()]


# --- corollaries, for the parameters of the recipe -------------------------------------------------------------------
@formula
def recipe_tail(grad_norm: ArrayLike, L: ArrayLike, alpha: ArrayLike, radius: ArrayLike, printed: bool = False) -> Any:
    """τ for the parameters of the recipe, 6ωg + g²/L; the paper prints 5ωg/α + g²/(αL).

    Examples
    --------
    >>> round(float(recipe_tail(0.1, L=1.0, alpha=1.0, radius=2.0)), 4)
    1.21
    """
    L, alpha = curvatures(L, alpha)
    g, radius = check_numbers(grad_norm, "grad_norm"), check_numbers(radius, "radius", strict=True)
    return (radius * (g / alpha) * 5.0 + g / L * (g / alpha) if printed else radius * g * 6.0 + g / L * g)[()]


@formula
def objective_bound(
    stage: ArrayLike,
    gap: ArrayLike,
    grad_norm: ArrayLike,
    L: ArrayLike,
    alpha: ArrayLike,
    radius: ArrayLike,
    printed: bool = False,
) -> Any:
    """The bound (2/3)^s·gap + τ on E[F(x̃^s) − F(x̂)] of Corollary 15, for the parameters of the recipe.

    Examples
    --------
    >>> round(float(objective_bound(10, gap=3.0, grad_norm=0.01, L=1.0, alpha=1.0, radius=2.0)), 4)
    0.1721
    """
    stage, gap = check_numbers(stage, "stage"), check_numbers(gap, "gap")
    return ((2.0 / 3.0) ** stage * gap + recipe_tail(grad_norm, L, alpha, radius, printed))[()]


@formula
def distance_bound(
    stage: ArrayLike,
    distance: ArrayLike,
    grad_norm: ArrayLike,
    L_full: ArrayLike,
    alpha: ArrayLike,
    radius: ArrayLike,
    printed: bool = False,
) -> Any:
    """The bound √(2L'/α)(2/3)^{s/2}‖x̃⁰ − x*‖ + √(12ωg/α) + (3 + √2)g/α on E‖x̃^s − x*‖ of Corollary 16.

    The paper prints √(10ωg)/α + (√(2/α³) + 3/α)g for the last two terms.

    Examples
    --------
    >>> round(float(distance_bound(20, distance=1.0, grad_norm=0.0, L_full=2.0, alpha=1.0, radius=1.0)), 4)
    0.0347
    """
    L_full, alpha = curvatures(L_full, alpha, "L_full")
    stage, distance = check_numbers(stage, "stage"), check_numbers(distance, "distance")
    g, radius = check_numbers(grad_norm, "grad_norm"), check_numbers(radius, "radius", strict=True)
    start = np.sqrt(L_full) / np.sqrt(alpha) * ((2.0 / 3.0) ** (0.5 * stage) * distance) * np.sqrt(2.0)
    root = np.sqrt(radius) * np.sqrt(g)
    if printed:
        return (start + root / alpha * np.sqrt(10.0) + (np.sqrt(2.0) * alpha**-1.5 + 3.0 / alpha) * g)[()]
    return (start + root / np.sqrt(alpha) * np.sqrt(12.0) + g / alpha * (3.0 + np.sqrt(2.0)))[()]


# --- checks ----------------------------------------------------------------------------------------------------------
def curvatures(L: ArrayLike, alpha: ArrayLike, name: str = "L") -> tuple[Array, Array]:
    L, alpha = check_numbers(L, name, strict=True), check_numbers(alpha, "alpha", strict=True)
    wide_L, wide_alpha = np.broadcast_arrays(L, alpha)
    refuse(
        wide_alpha > wide_L * (1.0 + 1e-12),
        lambda at: f"alpha must be at most {name} = {wide_L[at]:g}, got {wide_alpha[at]:g}",
    )
    return L, alpha


def _step(eta: ArrayLike, nu: ArrayLike, L: ArrayLike, alpha: ArrayLike) -> tuple[Array, Array, Array, Array]:
    L, alpha = curvatures(L, alpha)
    return check_numbers(eta, "eta", strict=True), check_numbers(nu, "nu", low=1.0), L, alpha
