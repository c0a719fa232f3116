"""What exchanges are worth in a quadratic model of the loss: all columns of the data against the chosen ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from .pivots import FLAT, Array


def exchange_worths(
    inner: Array, cross: Array, v: Array, g: Array, own: Array, usable: Any, kept: int, positive: bool = False
) -> Array:
    """What the best exchange for each column is worth: all columns against all chosen ones but those kept.

    `inner` and `cross` are the second derivatives of the chosen columns with each other and with all columns, `v` are
    their coefficients; g and `own` are the first and second derivatives of all columns.
    """
    inverse = np.linalg.pinv(inner, hermitian=True)
    T = inverse @ cross
    rest = own - np.einsum("ij,ij->j", T, cross)
    usable = usable & (rest > FLAT * own)
    rest = np.where(usable, rest, 1.0)
    best = np.zeros(own.size)
    for s in range(kept, v.size):
        e = 1.0 / inverse[s, s]
        r = T[s] * (v[s] * e) - g
        if positive and (np.delete(v - inverse[s] * (v[s] * e), s)[kept:] >= 0.0).all():
            r = np.maximum(r, 0.0)  # the others keep their signs, so that only what has the right sign helps
        np.maximum(best, r**2 / (rest + T[s] ** 2 * e) - v[s] * v[s] * e, out=best)
    return np.where(usable, best, 0.0)
