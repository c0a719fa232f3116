"""HTP: hard thresholding pursuit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .grahtp import GraHTP


@dataclass(frozen=True)
class HTP(GraHTP):
    r"""Hard thresholding pursuit: a gradient step chooses the support, least squares the coefficients.

    .. math:: T = \operatorname{supp} H_k(x^t + \mu A^*(y - Ax^t)), \qquad
              x^{t+1} = \arg\min_{\operatorname{supp} x \subseteq T} \|y - Ax\|

    Parameters
    ----------
    step : float or "auto", default="auto"
        A number multiplies ∇F, the gradient of ‖y − Ax‖²/(2n), so that μ = 1 is step = n.  "auto" is μ = d/‖A‖_F²,
        one over the mean squared norm of a column (of large matrices, from some of the rows): 1 if it is one.
    iterations : int, default=100
        The largest number of iterations.
    tol : float, default=1e-9
        Stop when a step leaves the support as it is and changes F by less than this share.

    Notes
    -----
    `GraHTP` is the same algorithm for other losses.

    References
    ----------
    Foucart, *Hard thresholding pursuit: an algorithm for compressive sensing*, SIAM Journal on Numerical Analysis
    49(6), 2011.

    Examples
    --------
    >>> import numpy as np
    >>> from ksparse import HTP, minimize
    >>> A = np.random.default_rng(0).standard_normal((100, 500))
    >>> minimize(A, A[:, 3] - 2 * A[:, 7], k=2, solver=HTP()).support
    array([3, 7])
    """

    any_loss: ClassVar[bool] = False
