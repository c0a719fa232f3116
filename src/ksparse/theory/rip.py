r"""What the tight bound gives in compressed sensing: thresholds on restricted isometry constants, noise, measurements.

A has the restricted isometry constant δ_r if :math:`(1-δ_r)\|x\|^2 \le \|Ax\|^2 \le (1+δ_r)\|x\|^2` for all r-sparse x.
With ν of Theorem 1 the error of IHT and of CoSaMP shrinks in every iteration by at least

.. math:: \text{IHT: } \sqrt{2ν}\,δ_{2k+K}, \qquad
          \text{CoSaMP: } \sqrt2\,δ_{3k+K}\sqrt{\frac{1 + (ν-1)\,δ_{3k+K}^2}{1 - δ_{3k+K}^2}}

(Theorems 6 and 7 of the paper); ν = 4 gives the older results.  Functions take numbers or arrays that broadcast.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._validate import check_choice, check_count, check_counts, check_flag, check_number, check_numbers, refuse
from ._formula import formula
from .bounds import check_levels
from .bounds import nu as tight_nu
from .spectrum import Spectrum

ALGORITHMS = ("iht", "cosamp")
CLASSIC = 4.0  # ν of the classic bound: its factor 2, squared


@formula
def rip_order(algorithm: str, k: ArrayLike, K: ArrayLike) -> Any:
    """The sparsity r for which δ_r has to be small: 2k + K for IHT, 3k + K for CoSaMP.

    Examples
    --------
    >>> int(rip_order("cosamp", 8, 4))
    28
    """
    check_choice(algorithm, "algorithm", ALGORITHMS)
    kept, true, _ = check_levels(k, K)
    return ((2 if algorithm == "iht" else 3) * kept + true)[()]


@formula
def rip_threshold(
    algorithm: str,
    k: ArrayLike,
    K: ArrayLike,
    d: ArrayLike | None = None,
    bound: str = "tight",
    rate: ArrayLike = 0.5,
) -> Any:
    """The largest δ of order `rip_order` for which the error provably shrinks by `rate` in every iteration.

    Examples
    --------
    >>> round(float(rip_threshold("iht", 4, 4, bound="classic")), 4), round(float(rip_threshold("iht", 4, 4)), 4)
    (0.1768, 0.2185)
    """
    check_choice(algorithm, "algorithm", ALGORITHMS)
    nu = _nu(k, K, d, bound)
    rate = check_numbers(rate, "rate", strict=True)
    refuse(rate > 1, lambda at: f"rate must be at most 1, got {rate[at]:g}; above 1 the error grows")
    if algorithm == "iht":
        return (rate / np.sqrt(2.0 * nu))[()]
    # rate² (1 − t) = 2t (1 + (ν−1) t) for t = δ², solved in a form that does not divide by ν − 1
    square = rate**2
    return (rate * np.sqrt(2.0 / (2.0 + square + np.sqrt((2.0 + square) ** 2 + 8.0 * (nu - 1.0) * square))))[()]


@formula
def rip_rate(
    algorithm: str, delta: ArrayLike, k: ArrayLike, K: ArrayLike, d: ArrayLike | None = None, bound: str = "tight"
) -> Any:
    """The factor by which the error shrinks in an iteration at a given δ; the inverse of `rip_threshold`.

    Examples
    --------
    >>> round(float(rip_rate("iht", 0.2, 4, 4)), 4)
    0.4576
    """
    check_choice(algorithm, "algorithm", ALGORITHMS)
    nu, delta = _nu(k, K, d, bound), _delta(delta)
    return np.sqrt(2.0 * nu) * delta if algorithm == "iht" else np.sqrt(2.0) * delta * _cosamp_stretch(nu, delta)


@formula
def noise_amplification(
    algorithm: str,
    delta: ArrayLike,
    k: ArrayLike,
    K: ArrayLike,
    d: ArrayLike | None = None,
    bound: str = "tight",
    printed: bool = False,
) -> Any:
    """C in ‖x^t − x*‖ ≤ rate^t ‖x⁰ − x*‖ + C‖ε‖; inf where the rate is not below 1.

    IHT adds √((1+δ)ν)‖ε‖ in an iteration.  For CoSaMP the paper prints a factor δ in the first of its two noise terms
    that does not follow from its derivation, and 2 where √ν suffices; ``printed=True`` keeps both.

    Examples
    --------
    >>> round(float(noise_amplification("iht", 0.2, 4, 4)), 2)
    3.27
    """
    nu, delta = _nu(k, K, d, bound), _delta(delta)
    rate = np.asarray(rip_rate(algorithm, delta, k, K, d, bound))
    if algorithm == "iht":
        added = np.sqrt((1.0 + delta) * nu)
    else:
        first = np.sqrt(2.0) * _cosamp_stretch(nu, delta) * (delta if printed else 1.0)
        added = np.sqrt(1.0 + delta) * (first + (2.0 if printed else np.sqrt(nu)) / (1.0 - delta))
    return np.where(rate < 1.0, added / (1.0 - rate), np.inf)[()]


@formula
def measurements(
    algorithm: str,
    k: ArrayLike,
    K: ArrayLike,
    d: ArrayLike,
    bound: str = "tight",
    rate: ArrayLike = 0.5,
    constant: float = 1.0,
) -> Any:
    r"""The sufficient number of random measurements, :math:`C_0\,δ^{-2}\,r\log(d/r)`.

    The constant C₀ is not known, so only ratios of results have a meaning.  r·log(d/r) decreases beyond r = d/e, but
    the requirement does not (δ_r grows with r): there the largest value is used.

    Examples
    --------
    >>> tight, classic = (measurements("iht", 4, 4, 256, bound) for bound in ("tight", "classic"))
    >>> round(float(tight / classic), 4)
    0.6545
    """
    constant = check_number(constant, "constant", strict=True)
    threshold = np.asarray(rip_threshold(algorithm, k, K, d, bound, rate))
    d = check_counts(d, "d")
    r = np.minimum(rip_order(algorithm, k, K), d / np.e)
    return (constant / threshold / threshold * (r * np.log(d / r)))[()]


@formula
def measurement_ratio(
    algorithm: str, k: ArrayLike, K: ArrayLike, d: ArrayLike | None = None, rate: ArrayLike = 0.5
) -> Any:
    """The number of measurements by the tight bound divided by that of the classic bound: ν/4 for IHT.

    Examples
    --------
    >>> round(float(measurement_ratio("iht", 4, 4)), 4)
    0.6545
    """
    rate = np.maximum(check_numbers(rate, "rate", strict=True), 1e-100)  # for a smaller rate the ratio is the same
    tight, classic = (rip_threshold(algorithm, k, K, d, bound, rate) for bound in ("tight", "classic"))
    return (np.asarray(classic) / tight)[()] ** 2


def largest_k(
    algorithm: str, n: int, K: int, d: int, bound: str = "tight", rate: float = 0.5, constant: float = 1.0
) -> int:
    """The largest k for which `measurements` is at most n; 0 if n is too small even for k = K.

    A larger k relaxes the threshold but raises the order of the isometry constant, so there is a largest k for a given
    n.  Only those k are considered whose order is at most d/e, where r·log(d/r) still grows.

    Parameters
    ----------
    algorithm : {"iht", "cosamp"}
        IHT with unit step, or CoSaMP that selects 2k indices.
    n : int
        Number of measurements.
    K : int
        Number of non-zeros of the true vector.
    d : int
        The dimension.
    bound : {"tight", "classic"}, default="tight"
        The bound on thresholding: √ν of Theorem 1, or the constant 2 of the literature.
    rate : float, default=0.5
        The wanted factor per iteration, in (0, 1].
    constant : float, default=1.0
        The unknown constant C₀.

    Returns
    -------
    int

    Examples
    --------
    >>> largest_k("iht", 2000, 4, 1000), largest_k("iht", 2000, 4, 1000, bound="classic")
    (29, 5)
    """
    check_choice(algorithm, "algorithm", ALGORITHMS)
    n, d = check_count(n, "n", high=2**53), check_count(d, "d", high=2**53)
    rate, constant = check_number(rate, "rate"), check_number(constant, "constant")
    low = check_count(K, "K", high=d, high_text="d") - 1
    high = max(low + 1, int((d / np.e - K) // (2 if algorithm == "iht" else 3)))
    while low < high:  # `measurements` grows with k
        k = (low + high + 1) // 2
        if measurements(algorithm, k, K, d, bound, rate, constant) <= n:
            low = k
        else:
            high = k - 1
    return low if low >= K else 0


class Isometry(NamedTuple):
    """Bounds on δ_r, and how each was found; they are equal if all supports were enumerated."""

    order: int
    lower: float
    upper: float
    lower_from: str
    upper_from: str

    @property
    def exact(self) -> bool:
        """Whether δ_r is known exactly."""
        return self.lower == self.upper


def restricted_isometry(
    A: Any, r: int, *, exact: bool | None = None, samples: int = 200, random_state: Any = 0
) -> Isometry:
    """The restricted isometry constant δ_r of A, exactly or between two bounds.

    It is the smallest δ with (1 − δ)‖x‖² ≤ ‖Ax‖² ≤ (1 + δ)‖x‖² for all r-sparse x.

    Parameters
    ----------
    A : array, sparse matrix or LinearOperator of shape (n, d)
        Real or complex.
    r : int
        The sparsity, 1 <= r <= d.
    exact : bool, default=None
        True enumerates all supports, and refuses more than two million.  False gives bounds: the lower one from the
        supports that a search finds (random ones, and greedy growth with exchanges), the upper one from Gershgorin's
        discs or the whole spectrum.  By default up to 20,000 supports are enumerated.
    samples : int, default=200
        Number of random supports that the search tries.
    random_state : None, int or Generator, default=0
        For the search.

    Returns
    -------
    Isometry

    Examples
    --------
    >>> A = np.linalg.qr(np.random.default_rng(0).standard_normal((8, 8)))[0]
    >>> round(restricted_isometry(A, 3).upper, 12)  # orthonormal columns
    0.0
    """
    exact = None if exact is None else check_flag(exact, "exact")
    low, high = Spectrum.create(A).brackets(r, exact=exact, samples=samples, random_state=random_state)
    lower, lower_from = max((high.lower - 1.0, high.lower_from), (1.0 - low.upper, low.upper_from))
    upper, upper_from = max((high.upper - 1.0, high.upper_from), (1.0 - low.lower, low.lower_from))
    return Isometry(int(r), max(lower, 0.0), max(upper, 0.0), lower_from, upper_from)


def coherence(A: Any) -> float:
    """The largest |⟨a_i, a_j⟩| of two different columns; δ_r ≤ (r − 1)·coherence for columns of norm one.

    Parameters
    ----------
    A : array, sparse matrix or LinearOperator of shape (n, d)
        Real or complex.

    Returns
    -------
    float

    Examples
    --------
    >>> coherence([[1.0, 0.6], [0.0, 0.8]])
    0.6
    """
    return Spectrum.create(A).coherence


def _nu(k: ArrayLike, K: ArrayLike, d: ArrayLike | None, bound: str) -> NDArray[np.float64]:
    check_choice(bound, "bound", ("tight", "classic"))
    nu = np.asarray(tight_nu(k, K, d))  # also checks the arguments
    return nu if bound == "tight" else np.full(nu.shape, CLASSIC)


def _delta(delta: ArrayLike) -> NDArray[np.float64]:
    delta = check_numbers(delta, "delta")
    refuse(delta >= 1, lambda at: f"delta must be below 1, got {delta[at]:g}")
    return delta


def _cosamp_stretch(nu: NDArray[np.float64], delta: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.sqrt((1.0 + (nu - 1.0) * delta**2) / (1.0 - delta**2))
