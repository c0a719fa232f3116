"""Problems that several files of tests solve."""

from __future__ import annotations

import numpy as np


def sensing(n=100, d=256, K=4, seed=0, noise=0.0):
    """The paper's setting: A ~ N(0, 1/n), a K-sparse signal."""
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((n, d)) / np.sqrt(n)
    x = np.zeros(d)
    x[rng.choice(d, K, replace=False)] = rng.standard_normal(K)
    return A, A @ x + noise * rng.standard_normal(n), x
