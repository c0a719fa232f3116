"""Held-out loss at the same k with default settings: ksparse, abess, scikit-learn's OMP and L1-then-refit.

    python benchmarks/bench_heldout.py --data FOLDER [--works mnist,golub] [--peers abess,omp,l1] [--out FILE]

Five folds, shuffled with seed 0, stratified for classes, the same for all methods.  Ours is told k and nothing else;
peers have no ridge, which is their default, except on golub: its classes are separable, and they have the ridge of the
training benchmark there.  Its columns are standardised for all, by means and variances of the training folds.  skscope
runs if --peers names it, on dense works.

The loss is the mean log-loss, not clipped, or half the mean square; beside it accuracy or R².  For every work and k the
verdict is whether our mean is at most the best peer's plus one standard error of the best peer's; the standard error of
the paired difference, fold by fold, is shown beside it.

What is read and what each method does stands in `_works.py`.  Every fit is written to --out when it is there; a rerun
skips what the file holds (`_store.py`), --again does not.
"""

from __future__ import annotations

import argparse
import time
import warnings
from functools import partial
from pathlib import Path

import numpy as np
from _store import Store, one_thread
from _works import METHODS, SMALL_WORKS, WORKS, available, chosen_works, loss_of, scale, warm_up
from sklearn.metrics import r2_score
from sklearn.model_selection import KFold, StratifiedKFold

from ksparse._text import table

FOLDS = 5


def folds_of(y, loss):
    kind = StratifiedKFold if loss == "logistic" else KFold
    return list(kind(FOLDS, shuffle=True, random_state=0).split(np.zeros((len(y), 1)), y))


def cell(fit_method, X, y, fold, work):
    """One fit on the rows of a fold, and its loss on the others; fit_method takes (X, y, loss)."""
    train, test = fold
    X_train, X_test = X[train], X[test]
    if work.scaled:
        X_train, X_test = scale(X_train, X_train), scale(X_test, X_train)
    start = time.process_time()
    fit = fit_method(X_train, y[train], work.loss)
    seconds = time.process_time() - start
    if isinstance(fit, str):
        return {"skipped": fit}
    z = np.asarray(X_test @ fit.x) + fit.constant
    good = float(np.mean((z > 0) == (y[test] > 0)) if work.loss == "logistic" else r2_score(y[test], z))
    return {"loss": loss_of(X_test, y[test], fit, work.loss), "score": good, "cpu_s": seconds}


def measure(store, name, work, variants, folder):
    """All cells of one work.  variants: {method: (version, fit of (X, y, loss, k))}."""
    cells = [
        (f"{name}|k={k}|{method}|fold {i}", k, method, i) for k in work.ks for method in variants for i in range(FOLDS)
    ]
    X = y = folds = None
    if not all(store.holds(key, variants[method][0]) for key, _, method, _ in cells):
        try:
            X, y = work.read(folder)
        except OSError as error:
            print(f"{name} skipped: {error}")
            return
        folds = folds_of(y, work.loss)
        size = {"n": X.shape[0], "d": X.shape[1], "loss": work.loss}
        store.note(works={**store.report.get("works", {}), name: size})
    for key, k, method, i in cells:
        version, fit = variants[method]
        row = store.made(key, version, partial(cell, partial(fit, k=k), X, y, folds and folds[i], work))
        if i == FOLDS - 1 and "skipped" not in row:
            print(f"{name} k={k} {method}: {describe(folds_in(store.cells, name, k, method))}", flush=True)


def folds_in(cells, work, k, method):
    """Losses and scores of the folds of one method, (2, FOLDS), or None where one is missing."""
    rows = [cells.get(f"{work}|k={k}|{method}|fold {i}") for i in range(FOLDS)]
    if any(row is None or "skipped" in row for row in rows):
        return None
    return np.array([[row["loss"] for row in rows], [row["score"] for row in rows]])


def error(values):
    """The standard error of the mean."""
    return float(np.std(values, ddof=1) / np.sqrt(len(values)))


def describe(folds):
    loss, score = folds
    return f"{loss.mean():.4g} ± {error(loss):.2g} ({score.mean():.3f})"


def compare(cells):
    """A dict for every work and k that ours has: means, errors, and the verdict."""
    seen = dict.fromkeys(tuple(key.split("|")[:2]) for key in cells)
    rows = []
    for work, k in ((work, int(k[2:])) for work, k in seen):
        by = {m: folds for m in METHODS if (folds := folds_in(cells, work, k, m)) is not None}
        if "ksparse" not in by:
            continue
        row = {"work": work, "k": k, "methods": by, "best": None}
        peers = {m: folds[0] for m, folds in by.items() if m != "ksparse"}
        if peers:
            best = min(peers, key=lambda m: peers[m].mean())
            ours, theirs = by["ksparse"][0], peers[best]
            row.update(best=best, difference=float((ours - theirs).mean()), paired_error=error(ours - theirs),
                       peer_error=error(theirs))  # fmt: skip
            row["within"] = row["difference"] <= row["peer_error"]
        rows.append(row)
    return rows


def verdict(row):
    if row["difference"] <= 0:
        return "better"
    return "within one error" if row["within"] else "WORSE"


def final_table(cells):
    rows = compare(cells)
    names = [name for name in METHODS if any(name in row["methods"] for row in rows)]
    lines = [["work", "k", *names, "best peer", "ours - best ± paired error", "one error of best", "verdict"]]
    for row in rows:
        line = [row["work"], str(row["k"])]
        line += [describe(row["methods"][n]) if n in row["methods"] else "-" for n in names]
        if row["best"]:
            gap = f"{row['difference']:+.3g} ± {row['paired_error']:.2g}"
            line += [row["best"], gap, f"{row['peer_error']:.2g}", verdict(row)]
        else:
            line += ["-"] * 4
        lines.append(line)
    return table(lines)


def fit_with(method, l2, X, y, loss, k):
    return METHODS[method](X, y, k, l2, loss)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder with the data sets")
    known = {**WORKS, **SMALL_WORKS}
    parser.add_argument("--works", default=",".join(WORKS), help=f"some of {', '.join(known)}")
    parser.add_argument("--peers", default="abess,omp,l1", help="some of abess, omp, l1, skscope, skscope-raw")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "heldout.json", help="JSON")
    parser.add_argument("--again", action="store_true", help="make cells that are there again")
    options = parser.parse_args()
    one_thread()
    warnings.simplefilter("ignore")
    methods = available(["ksparse", *filter(None, options.peers.split(","))])
    warm_up(methods)
    store = Store(options.out, options.again)
    works = chosen_works(options.works.split(","), known)
    for name, work in works.items():
        ridge = {method: None if method == "ksparse" else work.l2 for method in methods}
        variants = {m: (version, partial(fit_with, m, ridge[m])) for m, version in methods.items()}
        measure(store, name, work, variants, options.data)
    print("\nheld-out loss, mean ± standard error of the folds (accuracy or R²)")
    print(f"{final_table(store.cells)}\nwritten to {options.out}")


if __name__ == "__main__":
    main()
