"""A hundred signals at once: each with non-zeros of its own, or all with non-zeros in the same places.

python examples/many_signals.py [--size 1024] [--signals 100] [--out docs/sensing/many_signals.png]

Needs the `report` extra.  Right-hand sides go through the matrix together, which is faster than one by one; and if
signals share their support, ``joint=True`` finds them from fewer measurements.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

from ksparse import recover
from ksparse._style import BLUE, ORANGE, new_axes, save
from ksparse.sensing import ensembles, signals


def draw(n, d, K, p, *, joint):
    """A matrix, and p signals that share their support or do not."""
    rng = np.random.default_rng(0)
    A = ensembles.gaussian(n, d, random_state=rng)
    X = np.stack([signals.gaussian(d, K, random_state=rng) for _ in range(p)], axis=1)
    return A, np.where(X[:, :1] != 0, rng.standard_normal(X.shape), 0.0) if joint else X


def share_found(X, truth):
    return float((np.linalg.norm(X - truth, axis=0) <= 1e-4 * np.linalg.norm(truth, axis=0)).mean())


def timed(function):
    """What it returns, and the seconds of the quickest of three runs: what else the machine does is not counted."""
    seconds = []
    for _ in range(3):
        began = time.perf_counter()
        value = function()
        seconds.append(time.perf_counter() - began)
    return value, min(seconds)


def show(ax, X, title):
    top = min(128, X.shape[0])
    ax.imshow(X[:top], cmap="RdBu", vmin=-2, vmax=2, aspect="auto", interpolation="nearest")
    ax.set(xlabel="signal", ylabel=f"entry, the first {top} of {X.shape[0]:,}")
    ax.set_title(title, fontsize=10, loc="left")
    ax.grid(False)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=1024, help="of a signal")
    parser.add_argument("--signals", type=int, default=100)
    parser.add_argument("--out", type=Path, default=Path("docs/sensing/many_signals.png"))
    args = parser.parse_args(argv)
    if args.size < 128 or args.signals < 1:
        parser.error("--size must be at least 128, --signals at least 1")
    d, p, K = args.size, args.signals, args.size // 32
    k = round(1.5 * K)  # a bound is all that recover is told
    axes = new_axes(size=(10, 7), panels=(2, 2))

    n = d // 4
    A, truth = draw(n, d, K, p, joint=False)
    Y = A @ truth
    together, fast = timed(lambda: recover(A, Y, k).x)
    alone, slow = timed(lambda: np.stack([recover(A, y, k).x for y in Y.T], axis=1))
    out = {"together": share_found(together, truth), "alone": share_found(alone, truth), "seconds": (fast, slow)}
    show(
        axes[0, 0],
        together,
        f"non-zeros of their own, {n} measurements each\nrecover(A, Y, k): {out['together']:.0%} found",
    )
    axes[0, 1].barh(["recover(A, y, k)\nfor y in Y.T", "recover(A, Y, k)"], [slow, fast], color=[ORANGE, BLUE])
    axes[0, 1].set(xlabel="seconds")
    axes[0, 1].set_title(f"{p} signals: {slow / fast:.1f} times as fast together", fontsize=10, loc="left")
    axes[0, 1].grid(visible=False, axis="y")

    numbers = np.unique(np.linspace(1.75 * K, 5 * K, 9).astype(int))
    curves = {True: [], False: []}
    few = min(p, 20)  # signals on their own take their time where measurements do not suffice
    for n in numbers:
        A, truth = draw(n, d, K, p, joint=True)
        together = recover(A, A @ truth, k, joint=True).x
        apart = recover(A, A @ truth[:, :few], k).x
        curves[True].append(share_found(together, truth))
        curves[False].append(share_found(apart, truth[:, :few]))
        if curves[True][-1] == 1 and "joint" not in out:
            out |= {"joint": int(n), "apart": curves[False][-1]}
            title = f"in the same places, {n} measurements each\nrecover(A, Y, k, joint=True): 100% found"
            show(axes[1, 0], together, title)
    for joint, color, at in ((True, BLUE, (2.0, 0.92)), (False, ORANGE, (3.15, 0.5))):
        axes[1, 1].plot(numbers, curves[joint], "o-", color=color)
        axes[1, 1].text(
            at[0] * K, at[1], f"joint={joint}" if joint else f"joint={joint}, of {few} signals", color=color
        )
    axes[1, 1].set(
        xlabel=f"measurements of each signal, which has {K} non-zeros", ylabel="share found", ylim=(-0.04, 1.04)
    )
    axes[1, 1].set_title("non-zeros in the same places", fontsize=10, loc="left")

    args.out.parent.mkdir(parents=True, exist_ok=True)
    save(axes[0, 0], args.out)
    print(f"{out}\nwrote {args.out}")
    return out


if __name__ == "__main__":
    main()
