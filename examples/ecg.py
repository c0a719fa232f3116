"""An electrocardiogram with the hum of the mains, from a third of its samples at random times: sparse in cosines.

python examples/ecg.py [--size 4096] [--out docs/sensing/ecg.svg]

Needs the `report` extra.  Samples in time say something of every cosine, hence the DCT.  A smooth heartbeat alone needs
no such thing: a spline finds it as well.  Hum at 50 Hz oscillates between the samples, and sparsity still finds it.
"""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path

import numpy as np
from scipy.interpolate import CubicSpline

from ksparse import recover
from ksparse._style import BLACK, BLUE, GREEN, ORANGE, new_axes, save
from ksparse.sensing import operators, signals

RATE, MAINS = 500, 49.97  # Hz
NOISE = 0.005  # mV, of the converter


def decibel(signal, truth):
    """The error, relative to the truth."""
    return 20 * math.log10(np.linalg.norm(signal - truth) / np.linalg.norm(truth))


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=4096, help="how many samples the whole signal has")
    parser.add_argument("--out", type=Path, default=Path("docs/sensing/ecg.svg"))
    args = parser.parse_args(argv)
    if args.size < 256:
        parser.error("--size must be at least 256")

    d = args.size
    seconds = np.arange(d) / RATE
    heart = signals.ecg(d, rate=RATE, random_state=0)
    hum = 0.1 * np.sin(2 * np.pi * MAINS * seconds + 1) + 0.03 * np.sin(2 * np.pi * 3 * MAINS * seconds + 2)
    truth = heart + hum
    R = operators.partial_identity(d // 3, d, random_state=0, scale=1)
    D = operators.partial_dct(d, d, scale=1).H
    y = R @ truth + NOISE * np.random.default_rng(0).standard_normal(d // 3)

    began = time.perf_counter()
    found = recover(R @ D, y, k=y.size // 3, noise=NOISE)
    print(f"{found!r}\n{time.perf_counter() - began:.1f} s")
    frequency = np.arange(d) * RATE / (2 * d)
    mains = np.abs(frequency - MAINS * np.maximum(1, np.round(frequency / MAINS))) < 3
    guesses = {
        "linear": np.interp(seconds, seconds[R.rows], y),
        "cubic": CubicSpline(seconds[R.rows], y)(seconds),
        "ksparse": D @ found.x,
    }
    errors = {name: decibel(guess, truth) for name, guess in guesses.items()}
    without = D @ np.where(mains, 0.0, found.x)
    errors["without hum"] = decibel(without, heart)
    dB = {name: f"−{-error:.0f} dB" for name, error in errors.items()}

    part = slice(d // 4, d // 4 + min(d // 2, 2 * RATE))
    dots = R.rows[(part.start <= R.rows) & (R.rows < part.stop)]
    rows = [
        (f"a heart, mains hum, and {y.size:,} of {d:,} samples at random times", truth, None, BLACK),
        (f"linear interpolation: {dB['linear']} (a cubic spline: {dB['cubic']})", truth, guesses["linear"], ORANGE),
        (f"ksparse.recover, {found.support.size} cosines: {dB['ksparse']}", truth, guesses["ksparse"], BLUE),
        (f"the same without cosines near 50, 100, ... Hz: {dB['without hum']}", heart, without, GREEN),
    ]
    axes = new_axes(size=(9, 7.6), panels=(len(rows), 1))
    for ax, (title, target, guess, color) in zip(axes, rows, strict=True):
        ax.plot(seconds[part], target[part], color="0.6", linewidth=2.2 if guess is not None else 0.8)
        if guess is None:
            ax.plot(seconds[dots], truth[dots], ".", color=color, markersize=3)
        else:
            ax.plot(seconds[part], guess[part], color=color, linewidth=0.8)
        ax.set_title(title, fontsize=10, loc="left")
        ax.set(ylabel="mV", xlim=(seconds[part.start], seconds[part.stop - 1]), ylim=(-0.5, 1.5))
    axes[-1].set_xlabel("seconds; grey: the truth, at last the heart alone")
    args.out.parent.mkdir(parents=True, exist_ok=True)
    save(axes[0], args.out)
    print(f"wrote {args.out}")
    return errors


if __name__ == "__main__":
    main()
