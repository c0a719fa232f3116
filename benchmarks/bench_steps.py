"""How fast is the screened step?  Ratios in one run against a plain numba step of Algorithm 1, iterates checked equal.

    python benchmarks/bench_steps.py [--quick] [--out FILE]

Prints a table and writes the numbers as JSON.  Compilation is excluded: everything runs once before it is
timed.  Steps run on one core; full gradients on all cores, for BLAS as for us.  The plain step is not a straw
man: it is compiled, linear in d, and its top k come from a quickselect.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from pathlib import Path

import numba
import numpy as np
from scipy import sparse

from ksparse.design.kernels import select
from ksparse.problem import Problem
from ksparse.solvers.htsaga import Log, epoch_steps
from ksparse.solvers.htsvrg import stage_steps
from ksparse.solvers.screen import LOOKS, SWAPS, make_screen


# --- the plain step --------------------------------------------------------------------------------------------------
@numba.njit(nogil=True, fastmath={"reassoc", "contract", "nsz"})
def plain_dot(a, x):
    total = 0.0
    for j in range(x.size):
        total += a[j] * x[j]
    return total


@numba.njit(nogil=True)
def plain_steps(A, y, slope, mu, x, idx, eta, k, b, room, saga):
    """x = H_k(x − η(δ a_i + μ)) for every i, on all d coordinates; for HT-SAGA slope and mu follow."""
    for i in idx:
        a = A[i]
        delta = plain_dot(a, x) - y[i] - slope[i]
        for j in range(x.size):
            b[j] = x[j] - eta * (delta * a[j] + mu[j])
            room[j] = abs(b[j])
        if saga:
            slope[i] += delta
            for j in range(x.size):
                mu[j] += delta / y.size * a[j]
        cut = select(room, x.size, k)
        left = k
        for j in range(x.size):
            left -= abs(b[j]) > cut
        for j in range(x.size):
            size = abs(b[j])
            if size > cut:
                x[j] = b[j]
            elif size == cut and left > 0:
                x[j] = b[j]
                left -= 1
            else:
                x[j] = 0.0


class Plain:
    """A run of Algorithm 1 with plain steps; the full gradient is ours, so that only the steps differ."""

    def __init__(self, A, y, k, eta):
        self.A, self.y, self.k, self.eta = A, y, k, eta
        self.x, self.b, self.room = np.zeros(A.shape[1]), np.empty(A.shape[1]), np.empty(A.shape[1])

    def steps(self, stage, idx, saga=False):
        began = time.perf_counter()
        plain_steps(self.A, self.y, stage.derivative, stage.mu, self.x, idx, self.eta, self.k, self.b, self.room, saga)
        return time.perf_counter() - began


class Ours:
    """The same with screened steps."""

    def __init__(self, A, y, k, eta):
        self.problem, self.eta = Problem.create(A, y), eta
        self.slots = self.problem.slots(k)
        self.screen = make_screen(self.problem, k, 1)
        self.stage = None

    def snapshot(self, idx):
        self.stage = self.problem.stage(self.slots, idx.reshape(-1, 1), self.stage)
        return self.stage

    def steps(self):
        run = stage_steps(self.problem, self.stage, self.slots, self.screen, self.eta)
        began = time.perf_counter()
        run(0, self.stage.idx.shape[0])
        return time.perf_counter() - began

    @property
    def x(self):
        return self.problem.vector(self.slots)


def gaussian(n, d, K, noise, seed=0):
    """Rows of variance 1/n and a K-sparse signal of ±1, as in the paper's experiments."""
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((n, d))
    A /= np.sqrt(n)
    x = np.zeros(d)
    x[rng.choice(d, K, replace=False)] = rng.choice([-1.0, 1.0], K)
    return A, A @ x + noise * rng.standard_normal(n) / np.sqrt(n), x


def distance(x, z):
    return float(np.max(np.abs(x - z)) / max(1e-300, np.max(np.abs(z))))


# --- settled supports ------------------------------------------------------------------------------------------------
def settled(d, k, n, eta, plain_count):
    """Nanoseconds a step once the support has settled, ours and plain, from the same snapshot with the same draws.

    The snapshot is moved half a percent away from where the run is going, as it is in every stage but the last:
    at the very end all rows agree, every plain step sorts the same numbers, and the branch predictor learns them
    by heart.
    """
    A, y, _ = gaussian(n, d, 8, 0.05)
    rng = np.random.default_rng(1)
    ours, plain = Ours(A, y, k, eta), Plain(A, y, k, eta)
    for _ in range(60):  # settle
        ours.snapshot(rng.integers(0, n, 3 * n))
        ours.steps()
    rest = ours.slots.x.copy()
    times, plain_times, apart, looks = [], [], 0.0, 0.0
    for _ in range(5):
        for count, who in ((plain_count, plain), (200_000, ours)):
            ours.slots.x[:] = rest * (1 + 0.005 * rng.standard_normal(k))
            plain.x[:] = ours.x
            idx = rng.integers(0, n, count)
            stage = ours.snapshot(idx)
            took = ours.steps() / count
            if who is plain:
                plain_times.append(plain.steps(stage, idx) / count)
                apart = max(apart, distance(ours.x, plain.x))
            else:
                times.append(took)
                looks = max(looks, ours.screen.tally[LOOKS] / count)
    ns, plain_ns = 1e9 * min(times), 1e9 * min(plain_times)
    return {"d": d, "k": k, "n": n, "ours_ns": ns, "plain_ns": plain_ns, "ratio": plain_ns / ns,
            "looks": float(looks), "apart": apart}  # fmt: skip


def sparse_rows(n, d, row, rng):
    """CSR rows with (nearly) `row` entries each."""
    indices = np.sort(rng.integers(0, d, (n, row)).astype(np.int32), axis=1).ravel()
    starts = np.arange(0, n * row + 1, row, dtype=np.int32)
    A = sparse.csr_array((rng.standard_normal(n * row), indices, starts), shape=(n, d))
    A.sum_duplicates()
    return A


def settled_csr(d, n, k=40, row=50):
    """Nanoseconds a step on CSR rows with 50 entries each."""
    rng = np.random.default_rng(0)
    indices = np.sort(rng.integers(0, d, (n, row)).astype(np.int32), axis=1).ravel()
    A = sparse.csr_array(
        (rng.standard_normal(n * row), indices, np.arange(0, n * row + 1, row, dtype=np.int32)), shape=(n, d)
    )
    A.sum_duplicates()
    hot = rng.choice(d, k, replace=False)
    y = A[:, hot] @ rng.choice([-1.0, 1.0], k) + 0.01 * rng.standard_normal(n)
    ours = Ours(A, y, k, 0.01)
    for _ in range(15):
        ours.snapshot(rng.integers(0, n, 3 * n))
        ours.steps()
    times = []
    for _ in range(7):
        ours.snapshot(rng.integers(0, n, 400_000))
        times.append(ours.steps() / 400_000)
    return {"d": d, "n": n, "k": k, "ours_ns": 1e9 * min(times), "looks": float(ours.screen.tally[LOOKS] / 400_000)}


# --- whole runs ------------------------------------------------------------------------------------------------------
def whole_run(n, d, k, K, eta, target, most, passes=3):
    """From x = 0 to a relative error, in stages of passes·n steps, both from the same draws: seconds in steps and in
    all, and support changes."""
    A, y, truth = gaussian(n, d, K, 0.0)
    rng = np.random.default_rng(1)
    ours, plain = Ours(A, y, k, eta), Plain(A, y, k, eta)
    seconds = plain_seconds = gradient = 0.0
    changes = apart = stages = 0
    error = 1.0
    while error > target and stages < most:
        idx = rng.integers(0, n, passes * n)
        began = time.perf_counter()
        stage = ours.snapshot(idx)
        gradient += time.perf_counter() - began
        plain_seconds += plain.steps(stage, idx)
        seconds += ours.steps()
        changes += int(ours.screen.tally[SWAPS])
        x = ours.x
        apart = max(apart, distance(x, plain.x))
        error = float(np.linalg.norm(x - truth) / np.linalg.norm(truth))
        stages += 1
    return {
        "n": n, "d": d, "k": k, "stages": stages, "steps": stages * passes * n, "error": error,
        "support_changes": changes, "apart": apart,
        "ours_s": seconds + gradient, "plain_s": plain_seconds + gradient,
        "ratio": (plain_seconds + gradient) / (seconds + gradient), "steps_ratio": plain_seconds / seconds,
    }  # fmt: skip


def saga_run(n, d, k, K, eta, epochs):
    """The same for HT-SAGA, over a number of epochs."""
    A, y, truth = gaussian(n, d, K, 0.0)
    rng = np.random.default_rng(1)
    ours, plain = Ours(A, y, k, eta), Plain(A, y, k, eta)
    stage = ours.snapshot(np.empty(0, np.int64))
    table = stage._replace(derivative=stage.derivative.copy(), mu=stage.mu.copy())
    log = Log(np.empty(n, np.int64), np.empty(n), np.zeros(n), np.zeros(2, np.int64))
    seconds = plain_seconds = 0.0
    changes = apart = 0
    for epoch in range(epochs):
        idx = rng.integers(0, n, n)
        stage = stage._replace(idx=idx.reshape(-1, 1))
        run = epoch_steps(ours.problem, stage, log, epoch == 0, ours.slots, ours.screen, eta)
        began = time.perf_counter()
        run(0, n)
        seconds += time.perf_counter() - began
        plain_seconds += plain.steps(table, idx, saga=True)
        changes += int(ours.screen.tally[SWAPS])
        apart = max(apart, distance(ours.x, plain.x))
    error = float(np.linalg.norm(ours.x - truth) / np.linalg.norm(truth))
    return {"n": n, "d": d, "k": k, "epochs": epochs, "error": error, "support_changes": changes, "apart": apart,
            "ours_s": seconds, "plain_s": plain_seconds, "ratio": plain_seconds / seconds}  # fmt: skip


# --- full gradients --------------------------------------------------------------------------------------------------
def best_of(function, repeats=11):
    """The best time of a function; a pause first, for BLAS keeps its threads spinning a while after a product."""
    function()
    time.sleep(0.2)
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        function()
        times.append(time.perf_counter() - began)
    return min(times)


def gradient(kind, n, d, k=40, row=50):
    """One full gradient (predictions and slopes included) against the product Aᵀr alone, by BLAS or SciPy."""
    rng = np.random.default_rng(0)
    A = rng.standard_normal((n, d)) if kind == "dense" else sparse_rows(n, d, row, rng)
    y = rng.standard_normal(n)
    ours = Ours(A, y, k, 0.1)
    start = np.zeros(d)
    start[rng.choice(d, k, replace=False)] = 1.0
    ours.slots = ours.problem.slots(k, start)
    stage = ours.snapshot(np.zeros(1, np.int64))
    r = A @ start - y
    apart = distance(stage.mu, A.T @ r / n)
    ours_s, theirs_s = best_of(lambda: ours.snapshot(np.zeros(1, np.int64))), best_of(lambda: A.T @ r)
    return {"kind": kind, "n": n, "d": d, "ours_ms": 1e3 * ours_s, "product_ms": 1e3 * theirs_s,
            "speed": theirs_s / ours_s, "apart": apart}  # fmt: skip


# --- the table -------------------------------------------------------------------------------------------------------
def show(title, rows, columns):
    print(f"\n{title}")
    print("  " + "  ".join(f"{name:>15}" for name in columns))
    for row in rows:
        cells = (row[name] for name in columns)
        print("  " + "  ".join(f"{c:>15,.4g}" if isinstance(c, float) else f"{c!s:>15}" for c in cells))


def check(text, value, wanted, most=False):
    """A line that says whether a number is where it should be."""
    good = value <= wanted if most else value >= wanted
    print(f"  [{'ok' if good else 'MISSED'}] {text}: {value:,.3g} ({'at most' if most else 'at least'} {wanted:,})")
    return {"what": text, "value": float(value), "wanted": wanted, "most": most, "ok": bool(good)}


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="small sizes only, a minute")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "steps.json")
    options = parser.parse_args(arguments)
    quick = options.quick
    checks = []

    settled(64, 8, 50, 0.2, 100)  # compile
    rows = [settled(256, 36, 100, 0.2, 20_000), settled(10_000, 40, 500, 0.3, 1_000)]
    if not quick:
        rows.append(settled(100_000, 40, 500, 0.3, 100))
    show("Settled supports, dense: ns a step", rows, ["d", "k", "n", "ours_ns", "plain_ns", "ratio", "looks", "apart"])
    for row, wanted in zip(rows, (20, 500, 3000), strict=False):
        checks.append(check(f"times faster than plain at d = {row['d']}", row["ratio"], wanted))
        checks.append(check(f"ns a step at d = {row['d']}", row["ours_ns"], 100, most=True))
    if not quick:
        checks.append(check("ns at d = 1e5 over ns at d = 256", rows[2]["ours_ns"] / rows[0]["ours_ns"], 3, most=True))

    csr = [settled_csr(10_000, 20_000), settled_csr(1_000_000, 20_000)]
    show("Settled supports, CSR with 50 entries a row: ns a step", csr, ["d", "n", "k", "ours_ns", "looks"])
    checks.append(check("CSR: ns at d = 1e6 over ns at d = 1e4", csr[1]["ours_ns"] / csr[0]["ours_ns"], 1.5, most=True))

    # n, d, k, K, step, target, stages at most, passes per stage
    cases = [
        (100, 256, 36, 4, 0.3, 0.0, 20, 30),  # the paper's regime: a third of the steps need a full scan
        (500, 256, 100, 40, 1.0, 1e-3, 60),
        (500, 1000, 120, 20, 0.7, 1e-3, 40),
        (500, 10_000, 120, 20, 0.7, 1e-2, 12),
    ]
    if not quick:
        for n in (20_000, 200_000):
            cases += [(n, d, 60, 20, n / 4000, 1e-3, 10) for d in (256, 1000)]
        # so large a step that three columns change a step
        cases.append((20_000, 1000, 300, 20, 20.0, 1e-3, 10))
    runs = [whole_run(*case) for case in cases]
    show("Whole runs from x = 0 to a target error, gradients included: seconds", runs,
         ["n", "d", "k", "stages", "error", "support_changes", "ours_s", "plain_s", "ratio", "steps_ratio",
         "apart"])  # fmt: skip
    for run in runs:
        name = f"n = {run['n']}, d = {run['d']}"
        checks.append(check(f"{name}: support changes", run["support_changes"], 1000))
        storm = run["support_changes"] > run["steps"]  # more than one a step
        wanted = 8 if run is runs[0] else 5 if run["d"] >= 1000 and not storm else 1
        checks.append(check(f"{name}: times faster than plain", run["ratio"], wanted))

    saga_run(50, 64, 8, 4, 0.2, 2)  # compile
    saga = [saga_run(500, 256, 60, 20, 0.3, 60), saga_run(500, 1000, 60, 20, 0.3, 60)]
    if not quick:
        saga += [saga_run(500, 10_000, 60, 20, 0.3, 30), saga_run(20_000, 1000, 60, 20, 5.0, 9)]
    show("HT-SAGA from x = 0: seconds in steps", saga,
         ["n", "d", "k", "epochs", "error", "support_changes", "ours_s", "plain_s", "ratio", "apart"])  # fmt: skip
    for run in saga:
        name = f"HT-SAGA, n = {run['n']}, d = {run['d']}: times faster than plain"
        checks.append(check(name, run["ratio"], 5 if run["d"] >= 1000 else 1))

    shapes = [("dense", 20_000, 1000), ("dense", 200_000, 256), ("dense", 2000, 20_000), ("csr", 100_000, 10_000),
              ("csr", 200_000, 100_000)]  # fmt: skip
    grads = [gradient(*shape) for shape in (shapes[:1] + shapes[3:4] if quick else shapes)]
    show(
        "Full gradient against the product Aᵀr alone: ms",
        grads,
        ["kind", "n", "d", "ours_ms", "product_ms", "speed", "apart"],
    )
    for row in grads:
        checks.append(check(f"{row['kind']} {row['n']} x {row['d']}: speed of BLAS or SciPy", row["speed"], 0.7))
    worst = max(row["apart"] for row in [*rows, *runs, *saga, *grads])
    checks.append(check("largest relative difference of iterates", worst, 1e-9, most=True))

    report = {"settled": rows, "csr": csr, "runs": runs, "saga": saga, "gradients": grads, "checks": checks,
              "machine": {"cores": os.cpu_count(), "processor": platform.machine(), "python": platform.python_version(),
                          "numpy": np.__version__, "numba": numba.__version__}}  # fmt: skip
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(report, indent=1) + "\n")
    missed = [c["what"] for c in checks if not c["ok"]]
    print(f"\n{len(checks) - len(missed)} of {len(checks)} reached; written to {options.out}")
    return 0 if not missed else 1


if __name__ == "__main__":
    sys.exit(main())
