"""Which n and K are tried."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..._validate import check_counts, check_numbers


class Grid(NamedTuple):
    """Cells, the smallest K first and then the smallest n."""

    n: NDArray[np.int64]
    K: NDArray[np.int64]


def make_grid(d: int, n: Any = None, K: Any = None, delta: Any = None, rho: Any = None) -> Grid:
    """All pairs of n and K, or of delta = n/d and rho = K/n, rounded and without doublets."""
    if delta is not None or rho is not None:
        if n is not None or K is not None:
            raise ValueError("a grid is of n and K or of delta and rho, got some of both; leave one pair out")
        if delta is None or rho is None:
            raise ValueError("delta and rho belong together, got one of them; give the other too")
        shares = [np.atleast_1d(check_numbers(a, name, strict=True)) for a, name in ((delta, "delta"), (rho, "rho"))]
        _limit(shares, ("delta", "rho"), 1, "1")
        rows = np.maximum(np.rint(shares[0] * d), 1)[:, None]
        pairs = np.stack(np.broadcast_arrays(np.maximum(np.rint(shares[1] * rows), 1), rows), axis=-1)
    else:
        n = np.arange(max(d // 32, 1), d + 1, max(d // 32, 1)) if n is None else n
        K = np.arange(1, max(d // 10, 1) + 2, max(d // 128, 1)) if K is None else K
        counts = [np.atleast_1d(check_counts(a, name)) for a, name in ((n, "n"), (K, "K"))]
        _limit(counts, ("n", "K"), d, f"d = {d}")
        pairs = np.stack(np.meshgrid(counts[1], counts[0]), axis=-1)
    cells = np.unique(pairs.reshape(-1, 2).astype(np.int64), axis=0)
    return Grid(cells[:, 1], cells[:, 0])


def _limit(arrays: Sequence[NDArray[Any]], names: Sequence[str], high: int, text: str) -> None:
    for array, name in zip(arrays, names, strict=True):
        if array.max(initial=0) > high:
            raise ValueError(f"{name} must be at most {text}, got {array.max():g}")
