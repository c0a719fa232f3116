"""Products of matrices as long as the data, divided among our own threads; BLAS is held to one thread around them."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._threads import ordered_map
from .base import Array, summed

CHUNK = 1 << 22  # numbers that are converted to another precision at a time
CACHED = 1 << 16  # numbers that stay in the cache
PART = 1 << 18  # numbers below which a part of the data is not worth a thread
STRIP = 512  # columns that a thread multiplies at a time
MOST_PARTS = 16


def dense_product(block: Array, rows: NDArray[Any], which: NDArray[np.int64] | None) -> Array:
    """B·A in double precision; over some rows of A only, if `which` is given.  Threads share the columns, or the rows
    if these are short."""
    d, n = rows.shape[1], block.shape[1]
    step = n if rows.dtype == np.float64 else max(1, CHUNK // d)

    def part(low: int, high: int, columns: slice = slice(None)) -> tuple[Array]:
        total: Any = 0.0
        for start in range(low, high, max(1, step)):
            some = slice(start, min(start + step, high))
            own = rows[some if which is None else which[some], columns]
            total = total + block[:, some] @ own.astype(np.float64, copy=False)
        return (total,)

    if d >= 2 * STRIP and n * d >= 2 * PART:
        strips = [slice(*edges) for edges in _divided(d, d // STRIP)]
        return np.concatenate([own for [own] in ordered_map(lambda strip: part(0, n, strip), strips)], axis=1)
    return summed(ordered_map(lambda edges: part(*edges), _divided(n, n * d // PART)))[0]


def gram(block: Array) -> Array:
    """B·Bᵀ; BLAS computes one half of it."""

    def part(edges: tuple[int, int]) -> tuple[Array]:
        own = block[:, slice(*edges)]
        return (own @ own.T,)

    return summed(ordered_map(part, _divided(block.shape[1], block.size // PART)))[0]


def weighted_gram(block: Array, centre: Array, weight: Array) -> Array:
    """Σ w_i·(b_i − centre)(b_i − centre)ᵀ for the columns b_i of B, a few at a time."""
    step = max(1, CACHED // max(1, len(block)))

    def part(edges: tuple[int, int]) -> tuple[Array]:
        total = np.zeros((len(block), len(block)))
        for low in range(*edges, step):
            some = slice(low, min(low + step, edges[1]))
            own = block[:, some] - centre[:, np.newaxis]
            total += (own * weight[some]) @ own.T
        return (total,)

    return summed(ordered_map(part, _divided(block.shape[1], block.size // PART)))[0]


def _divided(n: int, parts: int) -> list[tuple[int, int]]:
    """range(n) in parts of about the same length; they do not depend on the number of threads."""
    edges = np.linspace(0, n, min(MOST_PARTS, max(1, parts)) + 1).astype(int).tolist()
    return list(itertools.pairwise(edges))
