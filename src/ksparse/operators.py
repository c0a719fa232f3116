"""The operators of section 1 of the paper: hard thresholding, the projection onto a ball, and the support."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ._validate import as_real, check_count, check_number


def hard_threshold(b: ArrayLike, k: int, *, out: NDArray[Any] | None = None) -> NDArray[Any]:
    r"""Keep the k entries of largest magnitude and set the others to zero.

    .. math:: H_k(b) = \arg\min_{\|x\|_0 \le k} \|x - b\|_2

    Parameters
    ----------
    b : array of shape (d,) or (n, d), real or complex
        A matrix is thresholded row by row.
    k : int
        How many entries to keep, 0 <= k <= d.
    out : array, optional
        Where to put the result; may be `b` itself.

    Returns
    -------
    array of b's shape.  Among entries of equal magnitude the lower index wins.

    Notes
    -----
    Linear in the size of b: a partial sort finds the k-th magnitude.

    References
    ----------
    Shen & Li, *A Tight Bound of Hard Thresholding*, JMLR 18(208), 2018, section 1.

    Examples
    --------
    >>> hard_threshold([3.0, -1.0, 0.5, -3.0, 2.0], 2)
    array([ 3.,  0.,  0., -3.,  0.])
    """
    b = _numbers(b, "b")
    if b.ndim not in (1, 2):
        raise ValueError(f"b must have one or two dimensions, got shape {b.shape}")
    k = check_count(k, "k", low=0, high=b.shape[-1], high_text="the length of b")
    if out is None:
        out = np.empty_like(b)
    elif not isinstance(out, np.ndarray) or out.shape != b.shape or not np.can_cast(b.dtype, out.dtype, "same_kind"):
        got = f"{out.dtype} {out.shape}" if isinstance(out, np.ndarray) else type(out).__name__
        raise ValueError(f"out must be an array of shape {b.shape} that can hold {b.dtype}, got {got}")
    elif not out.flags.writeable:
        raise ValueError("out must be writable, got a read-only array")
    magnitude = np.abs(b)
    if np.isnan(magnitude).any():
        raise ValueError("b holds NaN, which has no magnitude to compare; remove or impute it first")
    if out is not b:
        with np.errstate(over="ignore"):  # float64 into a float32 `out`
            out[...] = b
    out[~largest(magnitude, k)] = 0
    return out


def largest(magnitude: NDArray[Any], k: int) -> NDArray[np.bool_]:
    """A mask of the k largest entries of every row; ties go to the lower index."""
    d = magnitude.shape[-1]
    if k == 0 or k == d:
        return np.full(magnitude.shape, k == d)
    kth = np.partition(magnitude, d - k, axis=-1)[..., d - k, np.newaxis]
    keep = magnitude >= kth
    if (np.count_nonzero(keep, axis=-1) == k).all():
        return keep
    above = magnitude > kth  # ties: the first ones stay
    tied = keep & ~above
    room = k - np.count_nonzero(above, axis=-1, keepdims=True)
    return above | (tied & (np.cumsum(tied, axis=-1) <= room))


def project_ball(v: ArrayLike, radius: float) -> NDArray[Any]:
    r"""Project onto the ball of the given radius: :math:`\Pi_\omega(v) = v / \max(1, \|v\|_2/\omega)`.

    The support does not change.  A matrix is projected row by row.

    Examples
    --------
    >>> project_ball([3.0, 4.0], 1.0)
    array([0.6, 0.8])
    """
    radius = check_number(radius, "radius", strict=True, infinite=True)
    v = _numbers(v, "v")
    if v.ndim not in (1, 2):
        raise ValueError(f"v must have one or two dimensions, got shape {v.shape}")
    if v.size == 0 or np.isinf(radius):
        return v.copy()
    wide = v.astype(np.complex128 if v.dtype.kind == "c" else np.float64)
    if not np.isfinite(wide).all():
        raise ValueError("v must be finite")
    largest = np.max(np.abs(wide), axis=-1, keepdims=True)
    unit = wide / np.where(largest > 0, largest, 1.0)  # so that no square overflows
    norm = np.linalg.norm(unit, axis=-1, keepdims=True)
    with np.errstate(over="ignore"):
        outside = norm * largest > radius
    inside_norm = np.where(outside, norm, 1.0)
    return np.where(outside, unit * (radius / inside_norm), wide).astype(v.dtype)


def support(x: ArrayLike) -> NDArray[np.intp]:
    """The indices of the non-zero entries, in increasing order.

    Examples
    --------
    >>> support([0.0, 2.0, 0.0, -1.0])
    array([1, 3])
    """
    x = _numbers(x, "x")
    if x.ndim != 1:
        raise ValueError(f"x must have one dimension, got shape {x.shape}")
    return np.flatnonzero(x)


def _numbers(value: ArrayLike, name: str) -> NDArray[Any]:
    """An array of floats or complex numbers."""
    array = np.asarray(value) if np.iscomplexobj(value) else as_real(value, name)
    return array.astype(np.float64) if array.dtype.kind in "biu" else array
