"""How many measurements does recovery need?  Smallest n with 95% success, and errors with noise, at d = 256.

    python benchmarks/bench_transitions.py [--trials 100] [--processes 2] [--parts told,auto,noise] [--out FILE]

told   Every algorithm told k = K: the smallest n on a grid of 4 at which 95% of the trials succeed (relative error
       below 1e-3), beside values measured before with 60 trials.  PGD takes the paper's step 2/σ₁.
auto   "auto" told 2K and 4K: the same, beside the limits.
noise  20 and 30 dB below the signal, the level not told: median relative errors of least squares on the true support,
       of subspace pursuit told K and of "auto" told 4K, from seeds of their own.

Every trial has a matrix and a signal of its own, drawn from (seed, kind, K, n, trial): all algorithms get the same.
The walk starts at the reference and goes down while 95% succeed, else up until they do; near the transition one cell
of 100 trials is right to about ±4 in n.

Processes have one thread each.  Every cell is written to --out when it is there; a rerun skips what the file holds
(`_store.py`), --again does not.  Exits with 1 if a limit is missed.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
from _store import Store, ksparse_version, one_thread

from ksparse import PGD, recover
from ksparse._text import table
from ksparse.sensing import ensembles, signals

D, GRID, SHARE, CLOSE = 256, 4, 0.95, 1e-3
SEEDS = {"transitions": 0, "noise": 1}

ALGORITHMS = {
    "iht": "iht", "pgd": PGD(step="spectral", iterations=20_000, tol=1e-14), "omp": "omp", "niht": "niht",
    "htp": "htp", "cosamp": "cosamp", "sp": "sp", "bp": "bp", "auto": "auto",
}  # fmt: skip
# (kind, K): smallest n for 95%, 60 trials; None is more than 256
REFERENCE = {
    ("gaussian", 8): {"iht": 140, "pgd": 92, "omp": 52, "niht": 52, "htp": 48, "cosamp": 44, "sp": 48, "bp": 48},
    ("gaussian", 16): {"iht": 252, "pgd": 108, "omp": 84, "niht": 80, "htp": 72, "cosamp": 72, "sp": 68, "bp": 72},
    ("gaussian", 26): {"iht": None, "pgd": 124, "omp": 128, "niht": 100, "htp": 92, "cosamp": 88, "sp": 92, "bp": 92},
    ("sign", 8): {"sp": 56, "bp": 48},
    ("sign", 16): {"iht": 192, "pgd": 148, "omp": 132, "niht": 92, "htp": 88, "cosamp": 80, "sp": 80, "bp": 76},
    ("sign", 26): {"sp": 112, "bp": 100},
}
NEAR = 8  # how far from the reference still counts as the same
# (kind, K): the most measurements that "auto" may need; at K = 8 there is no limit, only a value measured before
LIMITS = {("gaussian", 16): 60, ("gaussian", 26): 80, ("sign", 16): 76, ("sign", 26): 100}
EXPECTED = {("gaussian", 8): 36, ("gaussian", 16): 56, ("gaussian", 26): 76,
            ("sign", 8): 44, ("sign", 16): 72, ("sign", 26): 96}  # fmt: skip
NOISY = {16: (76, 88, 100, 112, 128), 26: (96, 104, 112, 120, 128)}
DECIBELS = (20, 30)
WORST = 1.5  # times the error of least squares on the true support, at the largest n


# --- trials ----------------------------------------------------------------------------------------------------------
def draw(part, kind, K, n, trial):
    """A matrix, a signal and the generator, for noise."""
    rng = np.random.default_rng([SEEDS[part], list(signals.SIGNALS).index(kind), K, n, trial])
    A = ensembles.gaussian(n, D, random_state=rng)
    return A, signals.SIGNALS[kind](D, K, random_state=rng), rng


def error(x, truth):
    return float(np.linalg.norm(x - truth) / np.linalg.norm(truth))


def found(algorithm, kind, K, k, n, trial):
    """Whether one trial succeeds."""
    warnings.simplefilter("ignore")  # k ≥ n is part of the walk
    A, x, _ = draw("transitions", kind, K, n, trial)
    return error(recover(A, A @ x, k, algorithm=ALGORITHMS[algorithm]).x, x) < CLOSE


def noisy_errors(K, n, decibels, trial):
    """Relative errors of the oracle, of subspace pursuit told K and of "auto" told 4K."""
    warnings.simplefilter("ignore")
    A, x, rng = draw("noise", "gaussian", K, n, trial)
    clean = A @ x
    y = clean + 10 ** (-decibels / 20) * np.linalg.norm(clean) / np.sqrt(n) * rng.standard_normal(n)
    T = np.flatnonzero(x)
    oracle = np.zeros(D)
    oracle[T] = np.linalg.lstsq(A[:, T], y, rcond=None)[0]
    told = recover(A, y, K, algorithm="sp").x
    return error(oracle, x), error(told, x), error(recover(A, y, 4 * K).x, x)


# --- cells -----------------------------------------------------------------------------------------------------------
class Bench:
    """Cells of trials, spread over processes."""

    def __init__(self, store, trials, each):
        self.store, self.trials, self.each, self.version = store, trials, each, ksparse_version()

    def share(self, algorithm, kind, K, k, n):
        """How many trials succeed, as a share."""

        def make():
            wins = list(self.each(partial(found, algorithm, kind, K, k, n), range(self.trials)))
            return {"wins": int(sum(wins)), "trials": self.trials}

        name = f"{algorithm}|{kind}|K={K}|k={k}|n={n}|{self.trials} trials"
        return self.store.made(name, self.version, make)["wins"] / self.trials

    def smallest(self, algorithm, kind, K, k, start):
        """The smallest n of the grid with 95%, from a start that may be on either side; None if even D is too few."""
        n = start or D
        if self.share(algorithm, kind, K, k, n) >= SHARE:
            while n > GRID and self.share(algorithm, kind, K, k, n - GRID) >= SHARE:
                n -= GRID
            return n
        while n < D:
            n += GRID
            if self.share(algorithm, kind, K, k, n) >= SHARE:
                return n
        return None

    def noise(self, K, n, decibels):
        """Median errors of the oracle, subspace pursuit and "auto"."""

        def make():
            errors = np.array(list(self.each(partial(noisy_errors, K, n, decibels), range(self.trials))))
            return dict(zip(("oracle", "sp", "auto"), np.median(errors, axis=0).tolist(), strict=True))

        return self.store.made(f"noise|K={K}|n={n}|{decibels} dB|{self.trials} trials", self.version, make)


# --- tables ----------------------------------------------------------------------------------------------------------
def told(bench):
    """Every algorithm told K, beside the reference."""
    lines, checks = [["told K", *next(iter(REFERENCE.values()))]], []
    for (kind, K), reference in REFERENCE.items():
        line = [f"{kind} K={K}"]
        for algorithm in lines[0][1:]:
            if algorithm not in reference:
                line.append("")
                continue
            before = reference[algorithm]
            n = bench.smallest(algorithm, kind, K, K, before)
            line.append(f"{n or f'>{D}'} ({before or f'>{D}'})")
            what = f"{algorithm}, {kind} K={K}: n beside {before or f'>{D}'}"
            near = abs((n or D + GRID) - (before or D + GRID)) <= NEAR
            checks.append(check(what, n, f"within {NEAR}", near))
            print(f"{algorithm} {kind} K={K}: {line[-1]}", flush=True)
        lines.append(line)
    return table(lines), checks


def auto(bench):
    """ "auto" told 2K and 4K, beside the limits."""
    lines, checks = [["auto", "told 2K", "told 4K", "before", "at most"]], []
    for (kind, K), before in EXPECTED.items():
        ns = [bench.smallest("auto", kind, K, bound * K, before) for bound in (2, 4)]
        limit = LIMITS.get((kind, K))
        lines.append([f"{kind} K={K}", *map(str, ns), str(before), str(limit or "-")])
        print("  ".join(lines[-1]), flush=True)
        told = {name: bench.smallest(name, kind, K, K, REFERENCE[kind, K][name]) for name in ("sp", "bp")}
        for name, most in told.items():
            fewer = all(n is not None and n < (most or D + 1) for n in ns)
            checks.append(check(f"auto, {kind} K={K}: fewer than {name} told K", max(ns), f"below {most}", fewer))
        if limit:
            for bound, n in zip((2, 4), ns, strict=True):
                good = n is not None and n <= limit
                checks.append(check(f"auto told {bound}K, {kind} K={K}: n", n, f"at most {limit}", good))
    return table(lines), checks


def noise(bench):
    """Median errors with noise."""
    lines, checks = [["noise", "oracle", "sp told K", "auto told 4K", "auto/oracle", "auto/sp"]], []
    for K, sizes in NOISY.items():
        for decibels in DECIBELS:
            for n in sizes:
                row = bench.noise(K, n, decibels)
                over, beside = row["auto"] / row["oracle"], row["auto"] / row["sp"]
                name = f"K={K} n={n} {decibels} dB"
                numbers = (f"{value:.4f}" for value in (row["oracle"], row["sp"], row["auto"]))
                lines.append([name, *numbers, f"{over:.2f}", f"{beside:.2f}"])
                print("  ".join(lines[-1]), flush=True)
                checks.append(check(f"{name}: auto over sp", beside, "at most 1", beside <= 1.0))
                if n == sizes[-1]:
                    checks.append(check(f"{name}: auto over oracle", over, f"at most {WORST}", over <= WORST))
    return table(lines), checks


def check(what, value, wanted, good):
    return {"what": what, "value": value, "wanted": wanted, "ok": bool(good)}


PARTS = {"told": told, "auto": auto, "noise": noise}


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=100, help="trials a cell")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--parts", default=",".join(PARTS), help="some of them, with commas between")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "transitions.json", help="JSON")
    parser.add_argument("--again", action="store_true", help="make cells that are there again")
    options = parser.parse_args(arguments)
    store = Store(options.out, options.again)
    store.note(d=D, trials=options.trials)
    tables, checks = [], []
    with ProcessPoolExecutor(options.processes) as pool:
        bench = Bench(store, options.trials, partial(pool.map, chunksize=5))
        for name in options.parts.split(","):
            text, more = PARTS[name](bench)
            tables.append(text)
            checks += more
    store.note(checks=checks)
    print("", *tables, "", sep="\n\n")
    for row in checks:
        print(f"  [{'ok' if row['ok'] else 'MISSED'}] {row['what']}: {row['value']} ({row['wanted']})")
    print(f"written to {options.out}")
    return 0 if all(row["ok"] for row in checks) else 1


if __name__ == "__main__":
    one_thread()
    sys.exit(main())
