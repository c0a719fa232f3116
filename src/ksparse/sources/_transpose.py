"""Columns into rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._jit import SUMS, kernel


@kernel(fastmath=SUMS)
def all_finite(numbers: Any) -> bool:
    """Whether none of a vector is missing (NaN) or infinite."""
    zero = rest = numbers.dtype.type(0)
    for i in range(np.uint64(numbers.size)):
        rest += zero * numbers[i]  # NaN unless the number is finite
    return rest == 0


@kernel
def spread(columns: Any, place: Any, out: Any) -> None:
    """Write columns (each a row of the array) to their places (unsigned numbers) in the rows of `out`.

    Eight numbers of a column are a line of the cache: they are read at once, and the lines of eight rows stay in the
    cache while all columns go there.
    """
    width, n = columns.shape
    whole = n - n % 8
    for low in range(0, whole, 8):
        for j in range(width):
            line, to = columns[j, low : low + 8], place[j]
            for i in range(8):
                out[low + i, to] = line[i]
    for i in range(whole, n):
        for j in range(width):
            out[i, place[j]] = columns[j, i]
