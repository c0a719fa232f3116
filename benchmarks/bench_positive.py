"""Fits without negative coefficients beside PGD, and beside the fit with any signs.

    python benchmarks/bench_positive.py [--problems 50] [--out FILE]

Random problems with correlated columns (AR(.5) and AR(.9), n 60 to 300, d 20 to 200, k 3 to 12) and true coefficients
of both signs, so that the bounds matter.  CPU time of whole calls, the median of three that alternate; compiling is
excluded.  The objectives of all results are computed again with NumPy.  Exits with 1 if one is above PGD's.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np

from ksparse import __version__, minimize
from ksparse._text import table

LOSSES = {"squared": 0.0, "logistic": 1e-2}  # with their ridges
METHODS = {
    "ours": {"positive": True},
    "pgd": {"positive": True, "solver": "pgd"},
    "free": {},
}
SAME = 1e-7  # share by which two objectives may differ and count as equal
REPEATS = 3


def problem(seed, loss):
    rng = np.random.default_rng(seed)
    n, d, k = int(rng.integers(60, 301)), int(rng.integers(20, 201)), int(rng.integers(3, 13))
    rho = (0.5, 0.9)[seed % 2]
    A = rng.standard_normal((n, d))
    for j in range(1, d):
        A[:, j] = rho * A[:, j - 1] + np.sqrt(1.0 - rho**2) * A[:, j]
    x, true = np.zeros(d), min(2 * k, d)
    x[rng.choice(d, true, replace=False)] = rng.standard_normal(true)
    z = A @ x
    y = z + rng.standard_normal(n) if loss == "squared" else np.where(z + rng.logistic(size=n) > 0.0, 1.0, -1.0)
    return A, y, k


def objective(result, A, y, loss, l2):
    z = A @ result.x + result.intercept
    values = 0.5 * (z - y) ** 2 if loss == "squared" else np.logaddexp(0.0, -y * z)
    return float(values.mean()) + 0.5 * l2 * float(result.x @ result.x)


def measure(loss, count):
    """Objectives and CPU seconds of every method on every problem, and how many results are swap-optimal."""
    l2, problems = LOSSES[loss], [problem(seed, loss) for seed in range(count)]
    seconds, values, optimal = {m: [] for m in METHODS}, {m: [] for m in METHODS}, 0
    for number, (A, y, k) in enumerate([problems[0], *problems]):
        times = {m: [] for m in METHODS}
        for _ in range(REPEATS):
            for name, how in METHODS.items():
                begin = time.process_time()
                result = minimize(A, y, k, loss=loss, l2=l2, intercept=True, **how)
                times[name].append(time.process_time() - begin)
                if number == 0 or len(times[name]) > 1:  # the first problem is there to compile
                    continue
                if name != "free" and (result.x < 0.0).any():
                    raise SystemExit(f"{name} gave a negative coefficient on problem {number - 1}")
                values[name].append(objective(result, A, y, loss, l2))
                optimal += name == "ours" and bool(result.swap_optimal)
        for name in METHODS if number else ():
            seconds[name].append(float(np.median(times[name])))
    ratio = np.array(values["ours"]) / np.array(values["pgd"])
    total = {m: sum(s) for m, s in seconds.items()}
    return {
        "loss": loss, "problems": count, "lower": int((ratio < 1 - SAME).sum()),
        "equal": int((abs(ratio - 1) <= SAME).sum()), "higher": int((ratio > 1 + SAME).sum()),
        "mean_ratio": float(ratio.mean()), "swap_optimal": optimal,
        "time_to_free": total["ours"] / total["free"], "time_to_pgd": total["ours"] / total["pgd"],
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=50)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/positive.json"))
    options = parser.parse_args()
    rows = [measure(loss, options.problems) for loss in LOSSES]
    names = ["loss", "below PGD", "equal", "above", "mean F / PGD's", "swap-optimal", "time / free", "time / PGD"]
    cells = [
        [r["loss"], str(r["lower"]), str(r["equal"]), str(r["higher"]), f"{r['mean_ratio']:.4f}",
         str(r["swap_optimal"]), f"{r['time_to_free']:.2f}", f"{r['time_to_pgd']:.2f}"]
        for r in rows
    ]  # fmt: skip
    print(table([names, *cells]))
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps({"version": __version__, "rows": rows}, indent=1) + "\n")
    sys.exit(int(any(r["higher"] for r in rows)))


if __name__ == "__main__":
    main()
