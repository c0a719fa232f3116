"""How fast is recovery?  Ratios in one run against plain NumPy and scikit-learn, and of many right-hand sides at once.

    python benchmarks/bench_recovery.py [--small] [--signals 100] [--threads 1] [--out FILE]

A is n × d Gaussian (2560 × 10240), signals have K = 200 Gaussian entries, no noise; all are told k = K.

- HTP, CoSaMP and subspace pursuit beside a straightforward NumPy loop: A @ x, A.T @ r, np.linalg.lstsq on A[:, T], and
  the same rule for the next support and for the end.  OMP beside scikit-learn's orthogonal_mp (without the Gram matrix,
  which for one signal would cost more than it saves).  The same x is checked, and the same number of steps is printed.
- 100 right-hand sides in one call of `recover` beside a call for each, for "auto", HTP and subspace pursuit.

CPU seconds on one thread; with --threads N seconds on the clock, with so many threads for both sides.  Everything runs
once on a small problem before it is timed, so that imports and compiling are not counted.  Both sides of a ratio take
turns, five times (OMP and many signals: once), and the medians count.

Exits with 1 if a required ratio is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import warnings
from pathlib import Path

import numpy as np
from _store import machine, threads, write_whole
from sklearn.linear_model import orthogonal_mp

from ksparse import recover
from ksparse._text import table

SINGLE, MANY = 3.0, 5.0  # the ratios that are required
AGREE = 1e-6
ROUNDS = 5
BATCHED = ("auto", "htp", "sp")


# --- the straightforward versions ------------------------------------------------------------------------------------
def top(v, k):
    return np.argpartition(-np.abs(v), k)[:k]


def fit(A, y, T):
    x = np.zeros(A.shape[1])
    x[T] = np.linalg.lstsq(A[:, T], y, rcond=None)[0]
    return x


def plain_htp(A, y, k):
    """Foucart's, with the step of columns of mean norm; until the support stays, or the residual is gone."""
    x, T, steps, step = np.zeros(A.shape[1]), None, 0, A.shape[1] / np.linalg.norm(A) ** 2
    r = y
    while True:
        new = np.sort(top(x + step * (A.T @ r), k))
        if T is not None and np.array_equal(T, new):
            return x, steps
        x, T, steps = fit(A, y, new), new, steps + 1
        r = y - A @ x
        if np.linalg.norm(r) <= 1e-10 * np.linalg.norm(y):
            return x, steps


def plain_cosamp(A, y, k):
    """Needell and Tropp's; until the residual is gone."""
    x, steps = np.zeros(A.shape[1]), 0
    r = y
    while np.linalg.norm(r) > 1e-10 * np.linalg.norm(y) and steps < 100:
        b = fit(A, y, np.union1d(top(A.T @ r, 2 * k), np.flatnonzero(x)))
        x = np.zeros_like(b)
        x[top(b, k)] = b[top(b, k)]
        r, steps = y - A @ x, steps + 1
    return x, steps


def plain_sp(A, y, k):
    """Dai and Milenkovic's; until the residual no longer falls, or is gone."""
    T, steps = top(A.T @ y, k), 1
    x = fit(A, y, T)
    r = y - A @ x
    while np.linalg.norm(r) > 1e-10 * np.linalg.norm(y):
        u = fit(A, y, np.union1d(T, top(A.T @ r, k)))
        T = top(u, k)
        new = fit(A, y, T)
        after = y - A @ new
        if np.linalg.norm(after) >= np.linalg.norm(r):
            break
        x, r, steps = new, after, steps + 1
    return x, steps


def plain_omp(A, y, k):
    return orthogonal_mp(A, y, n_nonzero_coefs=k), k


PLAIN = {"htp": plain_htp, "cosamp": plain_cosamp, "sp": plain_sp, "omp": plain_omp}


# --- what is measured ------------------------------------------------------------------------------------------------
def gaussian(n, d, K, p, seed=0):
    """A with entries of variance 1/n, and p signals; A, y and x."""
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((n, d)) / np.sqrt(n)
    x = np.zeros((d, p))
    for column in x.T:
        column[rng.choice(d, K, replace=False)] = rng.standard_normal(K)
    return A, A @ x, x


def apart(x, z):
    return float(np.linalg.norm(x - z) / np.linalg.norm(z))


def turns(ours, theirs, rounds):
    """What both give, and the median seconds of each, taking turns."""
    clock = time.process_time if os.environ.get("OMP_NUM_THREADS") == "1" else time.perf_counter
    seconds = np.empty((rounds, 2))
    for row in seconds:
        for side, work in enumerate((ours, theirs)):
            start = clock()
            answer = work()
            row[side] = clock() - start
            if side == 0:
                first = answer
    return first, answer, *np.median(seconds, axis=0).tolist()


def one_signal(A, y, x, K, name):
    """CPU seconds of both sides, and how far their answers are from each other and from the truth."""
    ours, (plain, steps), ours_s, plain_s = turns(
        lambda: recover(A, y, K, algorithm=name), lambda: PLAIN[name](A, y, K), 1 if name == "omp" else ROUNDS
    )
    return {
        "algorithm": name, "ours_s": ours_s, "plain_s": plain_s, "ratio": plain_s / ours_s,
        "ours_steps": ours.n_stages, "plain_steps": steps, "apart": apart(ours.x, plain), "error": apart(ours.x, x),
    }  # fmt: skip


def many_signals(A, Y, X, K, name):
    """The same for all columns of Y at once and one by one."""
    whole, single, whole_s, single_s = turns(
        lambda: recover(A, Y, K, algorithm=name).x,
        lambda: np.stack([recover(A, y, K, algorithm=name).x for y in Y.T], axis=1),
        1,
    )
    return {
        "algorithm": name, "signals": Y.shape[1], "together_s": whole_s, "one_by_one_s": single_s,
        "ratio": single_s / whole_s, "apart": apart(whole, single), "error": apart(whole, X),
    }  # fmt: skip


def show(rows):
    def text(value):
        return f"{value:.3g}" if isinstance(value, float) else str(value)

    return table([list(rows[0]), *([text(value) for value in row.values()] for row in rows)])


def measure(n, d, K, p):
    """All rows, printed as they come."""
    warnings.simplefilter("ignore")
    tiny = gaussian(64, 128, 4, 3, seed=1)
    for name in {*PLAIN, *BATCHED}:  # compile
        recover(tiny[0], tiny[1], 4, algorithm=name)
        recover(tiny[0], tiny[1][:, 0], 4, algorithm=name)
    A, Y, X = gaussian(n, d, K, p)
    single = []
    for name in PLAIN:
        single.append(one_signal(A, Y[:, 0].copy(), X[:, 0], K, name))
        print(f"{name}: {single[-1]['ratio']:.2f} times the speed of plain", flush=True)
    many = []
    for name in BATCHED:
        many.append(many_signals(A, Y, X, K, name))
        print(f"{name}: {many[-1]['ratio']:.2f} times the speed of one by one", flush=True)
    checks = [check(f"{r['algorithm']} beside plain", r["ratio"], SINGLE) for r in single]
    checks += [check(f"{r['algorithm']}, {p} signals at once", r["ratio"], MANY) for r in many]
    worst = max(row["apart"] for row in single + many)
    checks.append(check("largest relative difference between both sides", worst, AGREE, most=True))
    return {"n": n, "d": d, "K": K, "single": single, "many": many, "checks": checks}


def check(what, value, wanted, most=False):
    """A line that says whether a number is where it should be."""
    good = value <= wanted if most else value >= wanted
    print(f"  [{'ok' if good else 'MISSED'}] {what}: {value:.3g} ({'at most' if most else 'at least'} {wanted:.3g})")
    return {"what": what, "value": value, "wanted": wanted, "most": most, "ok": bool(good)}


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--small", action="store_true", help="n = 256, d = 1024, K = 20, 20 signals: seconds, no verdict"
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--signals", type=int, help="how many at once (100, small: 20)")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "recovery.json", help="JSON")
    options = parser.parse_args(arguments)
    threads(options.threads)
    sizes = (256, 1024, 20, options.signals or 20) if options.small else (2560, 10240, 200, options.signals or 100)
    report = {**measure(*sizes), "threads": options.threads}
    print(f"\none signal, seconds\n{show(report['single'])}\n\nmany signals\n{show(report['many'])}")
    write_whole(options.out, json.dumps({**report, "machine": machine()}, indent=1) + "\n")
    print(f"written to {options.out}")
    return 0 if options.small or all(check["ok"] for check in report["checks"]) else 1


if __name__ == "__main__":
    sys.exit(main())
