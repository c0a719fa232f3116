"""CoSaMP: compressive sampling matching pursuit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .grasp import GraSP


@dataclass(frozen=True)
class CoSaMP(GraSP):
    r"""Compressive sampling matching pursuit: add columns by correlation, least squares on all, keep the k largest.

    .. math:: b = \arg\min\{\|y - Ax\| : \operatorname{supp} x \subseteq \operatorname{supp} x^t \cup
              \operatorname{supp} H_{2k}(A^*(y - Ax^t))\}, \qquad x^{t+1} = H_k(b)

    Parameters
    ----------
    select : int, default=2
        How many times k columns are added: 2 as published, 1 as Shen & Li print it; fewer where the fit would not be
        unique.
    refit : bool, default=False
        Fit once more on the k columns that are kept.  As published there is no such fit, and with noise the
        coefficients are not the best ones of their support.
    iterations : int, default=100
        The largest number of iterations.
    tol : float, default=1e-9
        Stop when a step leaves the support as it is and changes F by less than this share.

    Notes
    -----
    `GraSP` is the same algorithm for other losses.

    References
    ----------
    Needell & Tropp, *CoSaMP: iterative signal recovery from incomplete and inaccurate samples*, Applied and
    Computational Harmonic Analysis 26(3), 2009; Shen & Li, section 2.2.

    Examples
    --------
    >>> import numpy as np
    >>> from ksparse import CoSaMP, minimize
    >>> A = np.random.default_rng(0).standard_normal((100, 500))
    >>> minimize(A, A[:, 3] - 2 * A[:, 7], k=2, solver=CoSaMP()).support
    array([3, 7])
    """

    any_loss: ClassVar[bool] = False
