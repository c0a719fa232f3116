"""A head from a fifth of its frequencies: the Shepp–Logan phantom as a scanner sees it, sparse in Haar wavelets.

python examples/mri_phantom.py [--size 256] [--share 0.2] [--out docs/sensing/mri_phantom.png]

Needs the `report` and `sensing` extras.  A scanner measures the Fourier transform, and time is what frequencies cost.
Zeros for those not measured blur the image; the few wavelets that explain those measured are the image.
"""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path

import numpy as np

from ksparse import recover
from ksparse._style import new_axes, save
from ksparse.sensing import operators, signals


def decibel(image, truth):
    """The error, relative to the truth."""
    return 20 * math.log10(np.linalg.norm(image - truth) / np.linalg.norm(truth))


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=256)
    parser.add_argument("--share", type=float, default=0.2, help="of the frequencies that are measured")
    parser.add_argument("--out", type=Path, default=Path("docs/sensing/mri_phantom.png"))
    args = parser.parse_args(argv)
    if args.size < 16 or not 0.0 < args.share <= 1.0:
        parser.error("--size must be at least 16, --share in (0, 1]")

    shape = (args.size, args.size)
    truth = signals.phantom(args.size)
    mask = operators.mri_mask(shape, round(args.share * truth.size), random_state=0)
    F = operators.partial_fourier(None, shape, rows=mask, scale=1)
    W = operators.wavelet(shape, "haar")
    y = F @ truth.ravel()

    began = time.perf_counter()
    found = recover(F @ W, y, k=y.size // 3)
    print(f"{found!r}\n{time.perf_counter() - began:.1f} s")
    ours = (W @ found.x).real.reshape(shape)
    zeros = (F.H @ y).real.reshape(shape)
    errors = {"zero-filled": decibel(zeros, truth), "ksparse": decibel(ours, truth)}

    panels = {
        f"truth, {args.size} × {args.size}": truth,
        f"the {mask.mean():.0%} of frequencies that are measured": np.fft.fftshift(mask),
        f"zeros for the others: −{-errors['zero-filled']:.0f} dB": zeros,
        f"ksparse.recover, {found.support.size:,} wavelets: −{-errors['ksparse']:.0f} dB": ours,
    }
    axes = new_axes(size=(13, 3.6), panels=(1, 4))
    for ax, (title, image) in zip(axes, panels.items(), strict=True):
        ax.imshow(image, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        ax.set_title(title, fontsize=10)
        ax.set_axis_off()
    args.out.parent.mkdir(parents=True, exist_ok=True)
    save(axes[0], args.out)
    print(f"wrote {args.out}")
    return errors


if __name__ == "__main__":
    main()
