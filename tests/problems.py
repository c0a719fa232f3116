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


def planted(n=300, d=40, K=4, seed=0):
    """Rows of independent columns, the first K of which make the target."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    return X, X[:, :K] @ np.array([2.0, -1.5, 1.0, 1.0])[:K] + rng.standard_normal(n)


def three_of_eight():
    """Sixty rows of eight columns, three of which make the target."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 8))
    return X, X @ [3.0, -2.0, 0, 0, 1.5, 0, 0, 0] + 0.5 * rng.standard_normal(60)
