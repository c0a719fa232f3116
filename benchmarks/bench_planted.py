"""How often are the true features found?  ksparse, abess and scikit-learn's OMP on planted least squares.

    python benchmarks/bench_planted.py [--seeds 50] [--out FILE]

n = 500, d = 1000, K = 10 coefficients of ±U(0.5, 1.5) at random places, rows of an AR(0.5) or AR(0.9) process; SNR is
the variance of the signal over that of the noise.  Seeds 0, 1, ..., one for rows, truth and noise, the same for all
methods, which are told k = 10 and nothing else.  A cell is the share of seeds with exactly the true support, and the
mean share of true features found; the file holds the objectives too, for the lowest one need not find the most.
Milliseconds are the mean CPU time of a fit, on one thread, compiling excluded.

Every cell is written to --out when it is there; a rerun skips what the file holds (`_store.py`), --again does not.
"""

from __future__ import annotations

import argparse
import time
import warnings
from functools import partial
from pathlib import Path

import numpy as np
from _store import Store, one_thread
from _works import METHODS, available, loss_of, planted, warm_up

from ksparse._text import table

N, D, K = 500, 1000, 10
RHOS = (0.5, 0.9)
SNRS = (1, 2, 3, 5, 7, 10)


def cell(method, rho, snr, seeds):
    """Exact recoveries, shares of true features and objectives (half the mean square), one a seed."""
    exact, share, values, seconds = [], [], [], 0.0
    for seed in range(seeds):
        X, y, truth = planted(N, D, K, rho, snr, seed)
        start = time.process_time()
        fit = METHODS[method](X, y, K, None if method == "ksparse" else 0.0, "squared")
        seconds += time.process_time() - start
        found = np.intersect1d(np.flatnonzero(fit.x), np.flatnonzero(truth)).size
        exact.append(int(found == K and np.count_nonzero(fit.x) == K))
        share.append(found / K)
        values.append(loss_of(X, y, fit, "squared"))
    return {"exact": exact, "share": share, "objective": values, "cpu_ms": 1e3 * seconds / seeds}


def key(rho, snr, method, seeds):
    return f"AR({rho})|SNR {snr}|{method}|{seeds} seeds"


def rows_of(cells):
    """[(rho, snr, {method: (share of exact recoveries, mean share of features, ms)})] in the order of the file."""
    rows = {}
    for name, row in cells.items():
        process, snr, method, _ = name.split("|")
        numbers = (float(np.mean(row["exact"])), float(np.mean(row["share"])), row["cpu_ms"])
        rows.setdefault((process[3:-1], snr[4:]), {})[method] = numbers
    return [(rho, snr, by) for (rho, snr), by in rows.items()]


def at_least(rows, peer, which):
    """Are we at least as good as a peer in every cell, and in how many are we better, the same, worse?"""
    gaps = [by["ksparse"][which] - by[peer][which] for _, _, by in rows if peer in by and "ksparse" in by]
    better, worse = sum(gap > 1e-12 for gap in gaps), sum(gap < -1e-12 for gap in gaps)
    return worse == 0, better, len(gaps) - better - worse, worse


def final_table(cells):
    rows = rows_of(cells)
    names = [name for name in METHODS if any(name in by for _, _, by in rows)]
    lines = [["AR", "SNR", *(f"{n}: exact, found, ms" for n in names)]]
    for rho, snr, by in rows:
        lines.append([rho, snr, *("{:.2f}  {:.3f}  {:.1f}".format(*by[n]) if n in by else "-" for n in names)])
    text = table(lines)
    for peer in names[1:]:
        for which, what in enumerate(("exact recoveries", "features found")):
            yes, better, same, worse = at_least(rows, peer, which)
            text += f"\nat least {peer} in every cell ({what}): {'yes' if yes else 'no'}"
            text += f" ({better} better, {same} the same, {worse} worse)"
    return text


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=50, help="how many")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "planted.json", help="JSON")
    parser.add_argument("--again", action="store_true", help="make cells that are there again")
    options = parser.parse_args()
    one_thread()
    warnings.simplefilter("ignore")
    methods = available(["ksparse", "abess", "omp"])
    warm_up(methods)
    store = Store(options.out, options.again)
    store.note(n=N, d=D, K=K, seeds=options.seeds)
    for rho in RHOS:
        for snr in SNRS:
            kept = all(store.holds(key(rho, snr, m, options.seeds), version) for m, version in methods.items())
            for method, version in methods.items():
                store.made(
                    key(rho, snr, method, options.seeds), version, partial(cell, method, rho, snr, options.seeds)
                )
            print(f"AR({rho}), SNR {snr}: {'kept' if kept else 'done'}", flush=True)
    wanted = {name: row for name, row in store.cells.items() if name.endswith(f"|{options.seeds} seeds")}
    print(f"\n{final_table(wanted)}\nwritten to {options.out}")


if __name__ == "__main__":
    main()
