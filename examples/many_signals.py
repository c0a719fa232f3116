"""A hundred signals at once: each with non-zeros of its own, or all with non-zeros in the same places.

python examples/many_signals.py [--size 1024] [--signals 100] [--out docs/sensing/many_signals.svg]

Needs the `report` extra.  Right-hand sides go through the matrix together, which is faster; and if they share their support,
``joint=True`` needs fewer measurements: so few here that signals on their own are not found.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

from ksparse import recover
from ksparse._style import BLACK, BLUE, ORANGE, new_axes, save
from ksparse.sensing import ensembles, signals


def measure(d, n, K, p, joint):
    """What recovery finds of p signals, all at once and one by one, with the time of both."""
    rng = np.random.default_rng(0)
    A = ensembles.gaussian(n, d, random_state=rng)
    X = np.stack([signals.gaussian(d, K, random_state=rng) for _ in range(p)], axis=1)
    if joint:
        X = np.where(X[:, :1] != 0, rng.standard_normal(X.shape), 0.0)
    Y = A @ X
    recover(A, Y[:, :2], k=2 * K, joint=joint)  # what is compiled or loaded once
    began = time.perf_counter()
    together = recover(A, Y, k=2 * K, joint=joint).x
    middle = time.perf_counter()
    alone = np.stack([recover(A, y, k=2 * K).x for y in Y.T], axis=1)
    ended = time.perf_counter()
    return X, together, alone, middle - began, ended - middle


def found(guess, X):
    """The share of signals that are found."""
    return float((np.linalg.norm(guess - X, axis=0) <= 1e-4 * np.linalg.norm(X, axis=0)).mean())


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=1024, help="of a signal")
    parser.add_argument("--signals", type=int, default=100)
    parser.add_argument("--out", type=Path, default=Path("docs/sensing/many_signals.svg"))
    args = parser.parse_args(argv)

    d, p, K = args.size, args.signals, args.size // 50
    out = {}
    axes = new_axes(size=(10, 6.2), panels=(2, 2))
    for row, (name, n, joint) in zip(axes, (("own", d // 6, False), ("joint", d // 24, True)), strict=True):
        X, together, alone, fast, slow = measure(d, n, K, p, joint)
        out[name] = {"together": found(together, X), "alone": found(alone, X), "seconds": (fast, slow)}
    args.out.parent.mkdir(parents=True, exist_ok=True)
    save(axes[0, 0], args.out)
    return out


if __name__ == "__main__":
    main()
