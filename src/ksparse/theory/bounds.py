r"""The tight bound of hard thresholding (Theorem 1 of the paper), older bounds, the inverse, a pair that attains it.

For a K-sparse x, any b and k ≥ K,

.. math:: \|H_k(b) - x\| \le \sqrt\nu\,\|b - x\|, \qquad \nu = 1 + \frac{\rho + \sqrt{(4+\rho)\rho}}{2}, \qquad
          \rho = \frac{\min\{K, d-k\}}{k - K + \min\{K, d-k\}},

so that :math:`\sqrt\nu = (\sqrt\rho + \sqrt{4+\rho})/2` and :math:`\rho = (\nu-1)^2/\nu`.  All functions take numbers
or arrays that broadcast.  ``d=None`` means a dimension so large that K ≤ d − k: then the bound does not depend on d.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._validate import as_real, check_choice, check_count, check_counts, check_generator, check_numbers, refuse
from ._formula import formula

BOUNDS = ("tight", "classic", "jain")


@formula
def rho(k: ArrayLike, K: ArrayLike, d: ArrayLike | None = None, r: ArrayLike | None = None) -> Any:
    """ρ of Theorem 1, min(K, d−k)/(k − K + min(K, d−k)): 1 at k = K, and 0 at k = d.

    It compares what thresholding may lose with what it keeps.  For an r-sparse b, ρ = 0 where r <= k.

    Examples
    --------
    >>> float(rho(36, 4, 256))
    0.1111111111111111
    >>> rho([4, 8, 80], 4)
    array([1.  , 0.5 , 0.05])
    """
    k, K, d = check_levels(k, K, d, r)
    lost = K if d is None else np.clip(d - k, 0, K)  # the most non-zeros of x that thresholding can set to zero
    kept = k - K + lost
    return np.divide(lost, kept, out=np.zeros(np.broadcast(lost, kept).shape), where=kept > 0)[()]


@formula
def nu(k: ArrayLike, K: ArrayLike, d: ArrayLike | None = None, r: ArrayLike | None = None) -> Any:
    """ν of Theorem 1, between 1 and 2.618: hard thresholding stretches no distance to x by more than √ν.

    Examples
    --------
    >>> round(float(nu(4, 4)), 4), round(float(nu(80, 4)), 4)
    (2.618, 1.25)
    """
    return nu_from_rho(rho(k, K, d, r))


@formula
def nu_from_rho(rho: ArrayLike) -> Any:
    """ν = 1 + (ρ + √((4+ρ)ρ))/2.

    Examples
    --------
    >>> float(nu_from_rho(0.5))
    2.0
    """
    rho = check_numbers(rho, "rho")
    return (1.0 + (0.5 * rho + 0.5 * np.sqrt(4.0 + rho) * np.sqrt(rho)))[()]


@formula
def rho_from_nu(nu: ArrayLike) -> Any:
    """ρ = (ν−1)²/ν, the inverse of `nu_from_rho`.

    Examples
    --------
    >>> float(rho_from_nu(2.0))
    0.5
    """
    nu = check_numbers(nu, "nu", low=1.0)
    return ((nu - 1.0) * ((nu - 1.0) / nu))[()]


@formula
def smallest_k(nu: ArrayLike, K: ArrayLike, d: ArrayLike | None = None) -> Any:
    """The smallest k whose ν is at most the given one; without d, the given ν must be above 1.

    Examples
    --------
    >>> int(smallest_k(1.25, 4))
    80
    >>> int(smallest_k(1.0, 4, 256))
    256
    """
    wanted = np.asarray(rho_from_nu(nu))
    if d is None:
        refuse(wanted == 0, lambda _: "nu must be above 1 without d")
    return first_k(1.0 / np.minimum(wanted, 1.0), K, d)


def first_k(inverse: NDArray[np.float64], K: ArrayLike, d: ArrayLike | None, strict: bool = False) -> Any:
    """The smallest k with 1/ρ(k) >= inverse, or 1/ρ(k) > inverse if strict."""
    K = check_counts(K, "K")
    if d is None:
        edge = K * inverse  # ρ = K/k
    else:
        d = check_counts(d, "d")
        inverse, K, d = np.broadcast_arrays(inverse, K, d)
        refuse(d < K, lambda at: f"K must be at most d = {d[at]}, got {K[at]}")
        far = K * inverse
        edge = np.where(far <= d - K, far, d - (d - K) / inverse)  # where K > d − k, ρ = (d − k)/(d − K)
    refuse(
        edge > 2.0**53, lambda at: f"K asks for k = {np.asarray(edge)[at]:.3g} here, which is beyond 2^53; d bounds it"
    )
    # the rounding error of ν must not raise k by one
    slack = 0.0 if strict else 8e-16 * edge * (1.0 + np.sqrt(np.minimum(inverse, 2.0**53)))
    k = np.floor(edge) + 1 if strict else np.ceil(edge - slack)
    return np.clip(k, K, d).astype(np.int64)[()]


@formula
def deviation_factor(
    k: ArrayLike, K: ArrayLike, d: ArrayLike | None = None, bound: str = "tight", r: ArrayLike | None = None
) -> Any:
    r"""The factor φ in :math:`\|H_k(b) - x\| \le φ\,\|b - x\|` for K-sparse x.

    Parameters
    ----------
    k : int or array
        Number of entries that hard thresholding keeps, at least K.
    K : int or array
        Number of non-zeros of x, at least 1.
    d : int or array, default=None
        The dimension, at least k; None means so large that the bound does not depend on it.
    bound : {"tight", "classic", "jain"}, default="tight"
        √ν of Theorem 1; the constant 2 of the literature; or 1 + √((d−k)/(d−K)), which follows from Lemma 1 of Jain,
        Tewari & Kar (2014) and needs d.
    r : int or array, default=None
        Number of non-zeros of b, if b itself is known to be sparse; it then takes the place of d.

    Examples
    --------
    >>> [round(float(deviation_factor(36, 4, 256, bound)), 4) for bound in ("tight", "classic", "jain")]
    [1.1805, 2.0, 1.9344]
    """
    check_choice(bound, "bound", BOUNDS)
    if bound == "tight":
        return np.sqrt(nu(k, K, d, r))
    if bound == "jain" and d is None:
        raise ValueError("d must be given for bound='jain', which depends on the dimension")
    k, K, d = check_levels(k, K, d, r)
    if bound == "classic":
        return np.full(np.broadcast(k, K, 0 if d is None else d).shape, 2.0)[()]
    assert d is not None
    out, all_ = np.maximum(d - k, 0), d - K
    return (1.0 + np.sqrt(np.divide(out, all_, out=np.zeros(np.broadcast(out, all_).shape), where=all_ > 0)))[()]


def extremal_pair(k: int, K: int, d: int, random_state: Any = None) -> tuple[NDArray[Any], NDArray[Any]]:
    r"""A pair (b, x), x K-sparse, for which :math:`\|H_k(b) - x\| = \sqrt\nu\,\|b - x\|`.

    All non-zeros of b outside the common support have the same magnitude: k − K + s of them are kept (b₁), s =
    min(K, d−k) are set to zero (b₄), and x = ν/(ν−1)·b there.  Ties go to the lower index, so b₁ comes before b₄.

    Parameters
    ----------
    k, K, d : int
        Entries that are kept, non-zeros of x, and the dimension, 1 <= K <= k <= d.
    random_state : None, int or Generator, default=None
        None gives the plainest pair; otherwise positions, signs and scale are drawn.

    Returns
    -------
    (b, x) : arrays of shape (d,)

    Examples
    --------
    >>> b, x = extremal_pair(3, 1, 6)
    >>> b, x.round(3)
    (array([1., 1., 1., 1., 0., 0.]), array([0.   , 0.   , 0.   , 2.303, 0.   , 0.   ]))
    """
    k, K, d = check_count(k, "k"), check_count(K, "K"), check_count(d, "d")
    factor = float(nu(k, K, d))
    lost = min(K, d - k)
    common, kept = K - lost, k - K + lost
    b, x = np.zeros(d), np.zeros(d)
    if random_state is None:
        places, signs, scale = np.arange(d), np.ones(d), 1.0
        extra = np.ones(common)
    else:
        rng = check_generator(random_state)
        places, signs = rng.permutation(d), rng.choice([-1.0, 1.0], d)
        scale, extra = rng.uniform(0.5, 2.0), rng.uniform(1.5, 3.0, common)  # above the tie
    both, rest = places[:common], np.sort(places[common : common + kept + lost])
    first, fourth = rest[:kept], rest[kept:]
    b[both], b[first], b[fourth] = extra, 1.0, 1.0
    b *= signs * scale
    x[both] = b[both]
    if lost:
        x[fourth] = factor / (factor - 1.0) * b[fourth]
    elif not kept:  # k = K = d: nothing is thresholded, every pair attains ν = 1
        x = 2.0 * b
    return b, x


def deviation_bound(b: ArrayLike, x: ArrayLike, k: int, K: int | None = None, bound: str = "tight") -> Any:
    r"""An upper bound on ‖H_k(b) − x‖ for any x, sparse or not, through the nearest K-sparse vector.

    .. math:: \|H_k(b) - x\| \le φ(k, K, d)\,\|b - H_K(x)\| + \|H_K(x) - x\|

    Parameters
    ----------
    b, x : array of shape (..., d)
    k : int
        Number of entries that hard thresholding keeps.
    K : int, default=None
        At most k; by default the one that gives the smallest bound.
    bound : {"tight", "classic", "jain"}, default="tight"
        The factor φ; see `deviation_factor`.

    Returns
    -------
    float or array of shape (...)

    Examples
    --------
    >>> x = 0.5 ** np.arange(10)  # compressible, not sparse
    >>> b = x + 0.1
    >>> round(float(deviation_bound(b, x, 4)), 3)
    0.655
    """
    b, x = as_real(b, "b").astype(np.float64), as_real(x, "x").astype(np.float64)
    if b.ndim == 0 or b.shape[-1:] != x.shape[-1:]:
        raise ValueError(f"b and x must have the same last dimension, got shapes {b.shape} and {x.shape}")
    d = b.shape[-1]
    k = check_count(k, "k", high=d, high_text="the length of b")
    levels = np.arange(1, k + 1) if K is None else np.array([check_count(K, "K", high=k, high_text="k")])
    if not (np.isfinite(b).all() and np.isfinite(x).all()):
        raise ValueError("b and x must be finite, got NaN or infinity")
    b, x = np.broadcast_arrays(b, x)
    exponent = int(np.frexp(max(np.abs(b).max(initial=0.0), np.abs(x).max(initial=0.0)))[1])
    b, x = np.ldexp(b, -exponent), np.ldexp(x, -exponent)  # at most 1: squares do not overflow
    order = np.argsort(-np.abs(x), axis=-1, kind="stable")
    b, x = np.take_along_axis(b, order, -1), np.take_along_axis(x, order, -1)
    # ‖b − H_K(x)‖² = Σ_{j ≤ K} (b_j − x_j)² + Σ_{j > K} b_j², for every K at once
    inside = np.cumsum((b - x) ** 2, axis=-1)
    outside = np.cumsum(b[..., ::-1] ** 2, axis=-1)[..., ::-1]
    tail = np.cumsum(x[..., ::-1] ** 2, axis=-1)[..., ::-1]
    zero = np.zeros((*b.shape[:-1], 1))
    outside, tail = np.concatenate([outside, zero], -1), np.concatenate([tail, zero], -1)
    distance = np.sqrt(inside[..., levels - 1] + outside[..., levels])
    factor = deviation_factor(k, levels, d, bound)
    with np.errstate(over="ignore"):
        return np.ldexp(np.min(factor * distance + np.sqrt(tail[..., levels]), axis=-1), exponent)


def check_levels(
    k: ArrayLike, K: ArrayLike, d: ArrayLike | None = None, r: ArrayLike | None = None
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64] | None]:
    """k, K and d, checked and broadcast; with r in place of d if b is r-sparse."""
    if d is None and r is not None:
        raise ValueError("d must be given with r")
    wide = [check_counts(k, "k"), check_counts(K, "K")]
    if d is not None:
        wide += [check_counts(d, "d"), check_counts(d if r is None else r, "r")]
    kept, true, *rest = np.broadcast_arrays(*wide)
    refuse(true > kept, lambda at: f"K must be at most k = {kept[at]}, got {true[at]}")
    if not rest:
        return kept, true, None
    size, sparse = rest
    refuse(kept > size, lambda at: f"k must be at most d = {size[at]}, got {kept[at]}")
    refuse(sparse > size, lambda at: f"r must be at most d = {size[at]}, got {sparse[at]}")
    return kept, true, np.minimum(sparse, size)
