r"""How fast HT-SVRG converges (Theorem 10 of the paper and what follows from it), with the paper's slips put right.

With α the restricted strong convexity of F at sparsity k + K, L the restricted smoothness of every f_i at 3k + K,
c = L/α, a step η < 1/(4L), m steps a stage and ν of Theorem 1, for every K-sparse x̂ with ‖x̂‖ ≤ ω

.. math:: E[F(\tilde x^s) - F(\hat x)] \le β^s\,[F(\tilde x^0) - F(\hat x)] + τ(\hat x).

Every function takes numbers or arrays that broadcast.  ``printed=True`` gives the paper's formula where ours corrects
it; docs/errata.md derives each correction.
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
    """c = L/α, at least 1."""
    L, alpha = curvatures(L, alpha)
    return (L / alpha)[()]


@formula
def optimal_nu(eta: ArrayLike, alpha: ArrayLike) -> Any:
    """1/(1 − ηα), where the two regimes of the theorem meet and β is smallest (Proposition 14)."""
    eta, alpha = check_numbers(eta, "eta", strict=True), check_numbers(alpha, "alpha", strict=True)
    refuse(eta * alpha >= 1, lambda _: "eta must be below 1/alpha")
    return (1.0 / (1.0 - eta * alpha))[()]


@formula
def largest_nu(eta: ArrayLike, L: ArrayLike, alpha: ArrayLike, printed: bool = False) -> Any:
    """What ν has to stay below for β < 1 to be possible with this step: 1/(1 − 2ηα + 4η²αL).

    From η = 1/(4L) on it is 1: no ν is allowed.  The paper prints 4L/(4L−α), what the best step, η → 1/(4L), allows.

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
    """β: by how much the gap shrinks in a stage, in expectation; inf where the theorem has no β.

    Theorem 1 holds for every larger ν too, so that ν below 1/(1 − ηα) may be read as 1/(1 − ηα): β then never worsens
    as k grows.  ``printed=True`` takes ν as it is, as Theorem 10 does (β₁ above 1/(1 − ηα), β₂ below).

    Parameters
    ----------
    eta : float or array
        The step; β < 1 needs η < 1/(4L).
    m : float or array, at least 1
        Steps a stage.
    nu : float or array, at least 1
    L, alpha : float or array, 0 < alpha <= L

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
    """β = first/m + second; inf where the denominators are not positive."""
    first = _denominator(eta, nu, L, alpha, printed)
    nu = nu if printed else np.maximum(nu, _boundary(eta, alpha))
    ok = first > 0
    return np.where(ok, 1.0 / first, np.inf), np.where(ok, 2.0 * nu * (eta * alpha) * (eta * L) / first, np.inf)


def _denominator(eta: Array, nu: Array, L: Array, alpha: Array, printed: bool) -> Array:
    """D with β = (1/m + 2νη²αL)/D: one formula for each side of ν = 1/(1 − ηα), equal on it."""
    a, b = eta * alpha, eta * L  # pure numbers: nothing overflows, whatever the unit of F
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
    """τ(x̂): how far above F(x̂) the objective may stay; inf where β is not below 1.

    Parameters
    ----------
    grad_norm : float or array
        ‖∇_{3k+K} F(x̂)‖ = ‖H_{3k+K}(∇F(x̂))‖; at zero there is no tail.
    radius : float or array
        ω, the radius of the algorithm, which holds x̂.
    eta, m, nu, L, alpha : as in `rate`
    printed : bool
        Theorem 10 as printed has a factor 1/α too many in its second regime, 2ω/α where 4ω/α follows in Q, and drops
        a term of the first regime.
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
    """Q(x̂) of Theorem 10, what a stage adds: (16νη²Lωm + 4ω/α)g + 4νη²m g², g = ‖∇_{3k+K} F(x̂)‖.

    Two points of the ball are up to 2ω apart, so that the 2ω/α of the paper is 4ω/α; and where ν > 1/(1 − ηα) there is
    (4ωg/α)(ν(1−ηα) − 1)m more.  Parameters as in `tail`.
    """
    eta, nu, L, alpha = _step(eta, nu, L, alpha)
    m, g = check_numbers(m, "m", low=1.0), check_numbers(grad_norm, "grad_norm")
    radius = check_numbers(radius, "radius", strict=True, infinite=True)
    more = np.zeros(1)
    if not printed:
        nu = np.maximum(nu, _boundary(eta, alpha))
        excess = np.where(eta * alpha < 1.0, nu * (1.0 - eta * alpha) - 1.0, np.inf)  # no ν is enough from η = 1/α on
        more = np.where(excess > 0.0, excess * m * 4.0 / alpha, 0.0)
    slope = 16.0 * nu * eta * (eta * L) * m + (2.0 if printed else 4.0) / alpha + more
    value = np.where(g > 0, slope * radius * g + (2.0 * np.sqrt(nu) * np.sqrt(m) * (eta * g)) ** 2, 0.0)
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
    """The paper's choice: η = 1/(8L), m = 4(8c − 1), k = 8c(8c − 1)K, rounded up; β is 2/3 for every c.

    L and α depend on k themselves (they are taken at 3k + K and k + K): `plan` solves that for given data.

    Examples
    --------
    >>> chosen = recipe(L=2.0, alpha=1.0, K=3)
    >>> chosen.eta, chosen.m, chosen.k, round(chosen.beta, 6)
    (0.0625, 60, 720, 0.666667)
    """
    K, L, alpha = (
        check_count(K, "K", high=2**53),
        check_number(L, "L", strict=True),
        check_number(alpha, "alpha", strict=True),
    )
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
    c : float or array, at least 1
    K, d : as in `rho`; with d, a k near it may do (k = d always does)
    bound : "tight" or "jain"

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
    """The c that must not be reached for HT-SVRG to converge at this k: (1 + √(1 + 4/ρ))/8, the inverse of `minimum_k`.

    At 1 or below nothing helps: ``minimum_k(1, K, d)``, 12K + 1 far from d, is needed however good the data are.
    """
    return allowed_condition(tight_nu(k, K, d))


@formula
def allowed_condition(nu: ArrayLike) -> Any:
    """What c has to stay below at this ν with the best step, ν/(4(ν − 1)); inf at ν = 1."""
    nu = check_numbers(nu, "nu", low=1.0)
    return np.where(nu > 1.0, 0.25 * nu / np.maximum(nu - 1.0, 1e-300), np.inf)[()]


@formula
def minimum_m(
    eta: ArrayLike, nu: ArrayLike, L: ArrayLike, alpha: ArrayLike, beta: ArrayLike = 1.0, printed: bool = False
) -> Any:
    """What m has to exceed for a rate below `beta`; inf if no m is enough.

    For ν ≤ 1/(1 − ηα), which is then read as 1/(1 − ηα), η = η'/L and β = 1 that is c(1 − ηα)/(η'(1 − 4η')); the paper
    prints c/(νη'(1 − η')).

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
    """How many stages shrink the gap to `reduction` of what it was; inf unless β < 1.

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


# --- corollaries, at the recipe's parameters -------------------------------------------------------------------------
@formula
def recipe_tail(grad_norm: ArrayLike, L: ArrayLike, alpha: ArrayLike, radius: ArrayLike, printed: bool = False) -> Any:
    """τ of the recipe: 6ωg + g²/L; printed 5ωg/α + g²/(αL)."""
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
    """Corollary 15: E[F(x̃^s) − F(x̂)] ≤ (2/3)^s·gap + τ, with the recipe's parameters."""
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
    """Corollary 16: E‖x̃^s − x*‖ ≤ √(2L'/α)(2/3)^{s/2}‖x̃⁰ − x*‖ + √(12ωg/α) + (3 + √2)g/α.

    `L_full` is L', the smoothness of F itself at 3k + K.  The paper prints √(10ωg)/α + (√(2/α³) + 3/α)g.
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
