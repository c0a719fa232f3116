"""Random sensing matrices, scaled so that columns have norm 1 on average.

Every ensemble is a function f(n, d, *, random_state), some with more parameters.  The same seed gives the same matrix,
bit for bit.  Matrices that are known by their products only are in `operators`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csc_array, csr_array

from .._validate import as_real, check_count, check_generator, check_number, refuse
from .operators import partial_dct, partial_fourier


def gaussian(n: int, d: int, *, random_state: Any = None) -> NDArray[np.float64]:
    """A matrix of shape (n, d) with independent entries N(0, 1/n).

    Parameters
    ----------
    n, d : int
        Number of rows and columns.
    random_state : None, int or Generator, default=None
        The same seed gives the same matrix.

    Examples
    --------
    >>> gaussian(2, 3, random_state=0).shape
    (2, 3)
    """
    n, d, rng = _check(n, d, random_state)
    A = rng.standard_normal((n, d))
    A /= math.sqrt(n)
    return A


def bernoulli(n: int, d: int, *, random_state: Any = None) -> NDArray[np.float64]:
    """A matrix of shape (n, d) whose entries are ±1/√n, independent and with equal probability.

    Parameters
    ----------
    n, d : int
        Number of rows and columns.
    random_state : None, int or Generator, default=None
        The same seed gives the same matrix.

    Examples
    --------
    >>> bernoulli(4, 3, random_state=0)
    array([[-0.5,  0.5,  0.5],
           [ 0.5,  0.5,  0.5],
           [-0.5,  0.5, -0.5],
           [ 0.5,  0.5,  0.5]])
    """
    n, d, rng = _check(n, d, random_state)
    A = rng.integers(0, 2, (n, d), dtype=np.int8).astype(np.float64)
    A -= 0.5
    A *= 2.0 / math.sqrt(n)
    return A


def student_t(n: int, d: int, *, random_state: Any = None, df: float = 3.0) -> NDArray[np.float64]:
    """A matrix of shape (n, d) with independent entries of Student's t distribution, scaled to variance 1/n.

    Its tails are heavy: the fourth moment is infinite for df <= 4.

    Parameters
    ----------
    n, d : int
        Number of rows and columns.
    random_state : None, int or Generator, default=None
        The same seed gives the same matrix.
    df : float, default=3.0
        Degrees of freedom, above 2.

    Examples
    --------
    >>> student_t(2, 3, random_state=0, df=5).shape
    (2, 3)
    """
    n, d, rng = _check(n, d, random_state)
    df = check_number(df, "df")
    if df <= 2:
        raise ValueError(f"df must be above 2, or the variance is infinite and cannot be scaled to 1/n, got {df:g}")
    A = rng.standard_t(df, (n, d))
    A *= math.sqrt((1 - 2 / df) / n)
    return A


def correlated(
    n: int, d: int, *, random_state: Any = None, rho: float | None = None, covariance: ArrayLike | None = None
) -> NDArray[np.float64]:
    """A matrix of shape (n, d) with independent rows N(0, Σ)/√n, where Σ_ij = rho^|i−j| or Σ is given.

    Parameters
    ----------
    n, d : int
        Number of rows and columns.
    random_state : None, int or Generator, default=None
        The same seed gives the same matrix.
    rho : float, default=None
        Correlation of neighbouring columns, from −1 to 1; 0.5 unless a covariance is given.
    covariance : array of shape (d, d), default=None
        Σ, symmetric and positive semidefinite; instead of rho.

    Examples
    --------
    >>> A = correlated(10_000, 3, random_state=0, rho=0.9)
    >>> (A.T @ A).round(1)
    array([[1. , 0.9, 0.8],
           [0.9, 1. , 0.9],
           [0.8, 0.9, 1. ]])
    """
    n, d, rng = _check(n, d, random_state)
    if covariance is not None:
        if rho is not None:
            raise ValueError(f"rho and covariance exclude each other, got both (rho = {rho!r}); leave one out")
        root = _root(covariance, d)
        return (rng.standard_normal((n, d)) @ root) / math.sqrt(n)
    rho = check_number(0.5 if rho is None else rho, "rho", low=-1.0)
    if rho > 1:
        raise ValueError(f"rho must be at most 1, got {rho:g}: it is the correlation of neighbours")
    A = rng.standard_normal((n, d))
    A /= math.sqrt(n)
    A[:, 1:] *= math.sqrt(1 - rho**2)
    for j in range(1, d):  # x_j = rho x_(j−1) + √(1−rho²) z_j has exactly these covariances
        A[:, j] += rho * A[:, j - 1]
    return A


def expander(n: int, d: int, *, random_state: Any = None, ones: int | None = None) -> csr_array:
    """The adjacency matrix of a random left-regular bipartite graph, as CSR: `ones` entries 1/√ones in each column.

    Such graphs are expanders with high probability.

    Parameters
    ----------
    n, d : int
        Number of rows and columns.
    random_state : None, int or Generator, default=None
        The same seed gives the same matrix.
    ones : int, default=None
        Non-zeros in each column; by default 8, or n if that is less.

    Examples
    --------
    >>> A = expander(6, 4, random_state=0, ones=2)
    >>> (A.toarray() != 0).sum(axis=0)
    array([2, 2, 2, 2])
    """
    n, d, rng = _check(n, d, random_state)
    ones = check_count(min(8, n) if ones is None else ones, "ones", high=n, high_text="a column has n rows")
    rows = np.empty((d, ones), dtype=np.int32 if n <= 2**31 else np.int64)
    for i in range(ones):  # Floyd's sampling without replacement, all columns at once
        last = n - ones + i
        drawn = rng.integers(0, last + 1, d)
        seen = (rows[:, :i] == drawn[:, None]).any(axis=1)
        rows[:, i] = np.where(seen, last, drawn)
    values = np.full(d * ones, 1.0 / math.sqrt(ones))
    return csc_array((values, rows.ravel(), np.arange(0, d * ones + 1, ones)), shape=(n, d)).tocsr()


ENSEMBLES: dict[str, Callable[..., Any]] = {
    "gaussian": gaussian,
    "bernoulli": bernoulli,
    "student-t": student_t,
    "correlated": correlated,
    "expander": expander,
    "fourier": partial_fourier,
    "dct": partial_dct,
}


def _check(n: Any, d: Any, random_state: Any) -> tuple[int, int, np.random.Generator]:
    return check_count(n, "n"), check_count(d, "d"), check_generator(random_state)


def _root(covariance: Any, d: int) -> NDArray[np.float64]:
    """R with R^T R = Σ; Σ may be singular."""
    sigma = as_real(covariance, "covariance").astype(np.float64)
    if sigma.shape != (d, d):
        raise ValueError(
            f"covariance must have shape ({d}, {d}), one row and one column for each of d, got {sigma.shape}"
        )
    refuse(~np.isfinite(sigma), lambda at: f"covariance must be finite, got {sigma[at]} at {at}")
    tol = 1e-10 * np.abs(sigma).max(initial=0.0)
    refuse(
        np.abs(sigma - sigma.T) > tol,
        lambda at: (
            f"covariance must be symmetric, got {sigma[at]:g} at {at} and {sigma[at[::-1]]:g} at {at[::-1]}; "
            "(S + S.T) / 2 is symmetric"
        ),
    )
    values, vectors = np.linalg.eigh(sigma)
    if values[0] < -d * tol:
        raise ValueError(
            f"covariance must be positive semidefinite, got one with the eigenvalue {values[0]:g}; "
            "add its magnitude to the diagonal"
        )
    return np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T
