"""The threshold of Donoho and Tanner: where basis pursuit (l1) turns from success to failure."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import erfcx

from ..._validate import as_real, check_flag, refuse

HALVINGS = 100  # bisections of an interval of length 40: down to rounding
LARGEST_Z = 38.5  # exp(-z^2/2) is still above zero


def donoho_tanner(delta: ArrayLike, *, nonnegative: bool = False) -> NDArray[np.float64]:
    """The weak threshold ρ_W(δ) of Donoho and Tanner, for n = δ d Gaussian measurements.

    As d grows, basis pursuit finds nearly every vector with fewer than K = ρ_W(δ) n non-zeros, and nearly none with
    more.  It is the curve

        δ = κ φ(z) / (z + κ (φ(z) − z Φ(−z))),   ρ = 1 − z Φ(−z) / φ(z),   z ≥ 0,

    with κ = 2: there the derivative with respect to z of the ratio that Donoho, Maleki and Montanari maximise is zero.

    Parameters
    ----------
    delta : float or array
        Measurements per entry, n/d, in [0, 1].
    nonnegative : bool, default=False
        The threshold for vectors that are known to be non-negative (κ = 1).

    Returns
    -------
    array of the same shape
        K/n at the threshold.

    References
    ----------
    Donoho and Tanner, Counting faces of randomly projected polytopes when the projection radically lowers dimension,
    J. AMS 22 (2009).  Donoho, Maleki and Montanari, Message-passing algorithms for compressed sensing, PNAS 106 (2009).

    Examples
    --------
    >>> print(donoho_tanner([0.1, 0.25, 0.5]).round(4))
    [0.1894 0.2674 0.3857]
    """
    target = as_real(delta, "delta").astype(float)
    refuse(~((target >= 0) & (target <= 1)), lambda at: f"delta must be in [0, 1], got {target[at]:g}")
    kappa = 1.0 if check_flag(nonnegative, "nonnegative") else 2.0
    low, high = np.zeros(target.shape), np.full(target.shape, LARGEST_Z)
    for _ in range(HALVINGS):  # δ decreases with z
        z = (low + high) / 2
        above = _delta(z, kappa) > target
        low, high = np.where(above, z, low), np.where(above, high, z)
    rho = 1 - high * _mills(high)
    return np.where(target == 0, 0.0, np.where(target == 1, 1.0, rho))


def _delta(z: NDArray[np.float64], kappa: float) -> NDArray[np.float64]:
    density = np.exp(-z * z / 2) / np.sqrt(2 * np.pi)
    return kappa * density / (z + kappa * density * (1 - z * _mills(z)))


def _mills(z: NDArray[np.float64]) -> NDArray[np.float64]:
    """Φ(−z) / φ(z), accurate for large z too."""
    return np.sqrt(np.pi / 2) * erfcx(z / np.sqrt(2))
