"""Training objective at exactly k and CPU time, beside abess, skscope, scikit-learn's OMP and L1-then-refit.

    python benchmarks/bench_peers.py --data FOLDER [--works mnist,reuters] [--peers abess,l1] [--out FILE]

Needs the `bench` extra (and skscope, for that peer); peers that are not installed and works whose file is missing are
skipped, and said so.  What FOLDER holds and what exactly each method does stands in `_works.py`.

One thread each.  Every method first runs on a small problem, so that imports and compiling are not counted (jax
compiles in every fit: that is counted).  CPU time is that of one fit; of a fit below 0.2 s, the median of five, after
one that is not counted.  No ridge, except on golub, whose classes are separable: there all have the same, on columns of
variance one.

skscope is for dense works; it runs on standardised columns and (skscope-raw) on the columns as they are, for neither is
always the better.  --skip leaves cells out: by default covtype:skscope-raw, for it takes minutes (it had not ended
after five).

Every cell is written to --out when it is there; a rerun skips what the file holds (`_store.py`), --again does not.
"""

from __future__ import annotations

import argparse
import warnings
from functools import partial
from pathlib import Path

import numpy as np
from _store import Store, one_thread, timed
from _works import METHODS, WORKS, available, chosen_works, objective, scale, warm_up

from ksparse._text import table

PEERS = ",".join(name for name in METHODS if name != "ksparse")


def cell(method, X, y, k, work):
    """One method on one work, as JSON has it."""
    fit, seconds, fits = timed(lambda: METHODS[method](X, y, k, work.l2, work.loss))
    if isinstance(fit, str):
        return {"skipped": fit}
    value = objective(X, y, fit, work.l2, work.loss)
    return {"objective": value, "cpu_s": seconds, "fits": fits, "features": int(np.count_nonzero(fit.x))}


def measure(store, name, work, methods, folder):
    """All cells of one work; it is read only if one is missing."""
    cells = [(f"{name}|k={k}|{method}", k, method) for k in work.ks for method in methods]
    kept = {key for key, _, method in cells if store.holds(key, methods[method])}
    X = y = None
    if len(kept) < len(cells):
        try:
            X, y = work.read(folder)
        except OSError as error:
            print(f"{name} skipped: {error}")
            return
        X = scale(X, X) if work.scaled else X
        size = {"n": X.shape[0], "d": X.shape[1], "loss": work.loss, "l2": work.l2}
        store.note(works={**store.report.get("works", {}), name: size})
    for key, k, method in cells:
        row = store.made(key, methods[method], partial(cell, method, X, y, k, work))
        print(f"{key:<30} {describe(row)}{'  (kept)' if key in kept else ''}", flush=True)


def describe(row):
    if "skipped" in row:
        return f"skipped: {row['skipped']}"
    several = f", median of {row['fits']}" if row["fits"] > 1 else ""
    return f"objective {row['objective']:.6g}  {row['cpu_s']:.4g} s{several}  {row['features']} features"


def rows_of(cells):
    """[(work, k, {method: cell})], without what was skipped, in the order of the file."""
    rows = {}
    for key, row in cells.items():
        work, k, method = key.split("|")[:3]
        if "skipped" not in row:
            rows.setdefault((work, int(k[2:])), {})[method] = row
    return [(work, k, by) for (work, k), by in rows.items()]


def ratios(by):
    """CPU time of each peer over ours, and our objective over the best peer's (None without peers)."""
    ours, peers = by["ksparse"], {name: row for name, row in by.items() if name != "ksparse"}
    times = {name: row["cpu_s"] / ours["cpu_s"] for name, row in peers.items()}
    best = min((row["objective"] for row in peers.values()), default=None)
    return times, None if not best else ours["objective"] / best


def final_table(cells):
    """Absolute numbers, and beside them the ratios."""
    rows = [row for row in rows_of(cells) if "ksparse" in row[2]]
    names = [name for name in METHODS if any(name in by for _, _, by in rows)]
    head = ["work", "k", *names, *(f"{n} s/ours" for n in names[1:]), "ours/best peer's objective"]
    lines = [head]
    for work, k, by in rows:
        times, worth = ratios(by)
        absolute = [f"{by[n]['objective']:.5g} in {by[n]['cpu_s']:.3g} s" if n in by else "-" for n in names]
        faster = [f"{times[n]:.3g}" if n in times else "-" for n in names[1:]]
        lines.append([work, str(k), *absolute, *faster, "-" if worth is None else f"{worth:.5f}"])
    return table(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder with the data sets")
    parser.add_argument("--works", default=",".join(WORKS), help="some of them, with commas between")
    parser.add_argument("--peers", default=PEERS, help=f"some of {PEERS}")
    parser.add_argument("--skip", default="covtype:skscope-raw", help="work:method, with commas between")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "peers.json", help="JSON")
    parser.add_argument("--again", action="store_true", help="make cells that are there again")
    options = parser.parse_args()
    one_thread()
    warnings.simplefilter("ignore")
    methods = available(["ksparse", *filter(None, options.peers.split(","))])
    warm_up(methods)
    store = Store(options.out, options.again)
    works = chosen_works(options.works.split(","), WORKS)
    for name, work in works.items():
        asked = {m: version for m, version in methods.items() if f"{name}:{m}" not in options.skip.split(",")}
        for method in methods.keys() - asked.keys():
            print(f"{name}: {method} skipped: would take minutes (--skip '' to have it)")
        measure(store, name, work, asked, options.data)
    print(f"\nobjective and CPU seconds; ratios\n{final_table(store.cells)}\nwritten to {options.out}")


if __name__ == "__main__":
    main()
