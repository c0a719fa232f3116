"""Choosing k, the whole job: one fit, a path and a cross-validation, beside abess on the same data.

    python benchmarks/bench_choosing.py [--data FOLDER] [--works diabetes,ar] [--runs 5] [--out FILE]

Whole public calls (`fit`, `k_path`, `fit` of a CV estimator with 5 folds), with checks of the arguments, but without
worth and certificate, which a model computes when asked.  One thread, CPU time, the median of alternating runs after
one that is not counted (imports, compiling).  Objectives: the supports of both at every k, refitted alike without a
ridge (with 1e-4 for the logistic works, whose classes may be separable), as ratios ksparse / abess; below 1 ksparse is
better.  Both get the same folds.

Works from FOLDER (see `_works.py`) are skipped without it.  Exits with 1 if an objective is above 1.001 times abess's.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
import warnings
from pathlib import Path

import numpy as np
from _store import installed, machine, one_thread, write_whole
from _works import libsvm, mnist, planted, riboflavin
from scipy import sparse
from sklearn.datasets import load_breast_cancer, load_diabetes

from ksparse import KSparseClassifier, KSparseClassifierCV, KSparseRegressor, KSparseRegressorCV, k_path
from ksparse._text import table
from ksparse.design import as_design, standardize
from ksparse.problem import Problem
from ksparse.solvers.newton import Refitter

RIDGE = {"squared": 0.0, "logistic": 1e-4}
EFFORTS = ("fast", "default")
WORKS = {  # read, loss, largest k, cross-validation
    "diabetes": (lambda _: load_diabetes(return_X_y=True), "squared", 10, True),
    "breast cancer": (lambda _: load_breast_cancer(return_X_y=True), "logistic", 20, True),
    "500x2000": (lambda _: planted(500, 2000, 10, 0.0, 5)[:2], "squared", 30, True),
    "500x1000 AR(.9)": (lambda _: planted(500, 1000, 10, 0.9, 5)[:2], "squared", 30, True),
    "riboflavin": (riboflavin, "squared", 20, False),
    "MNIST 4v5": (mnist, "logistic", 30, False),
    "reuters": (libsvm("reuters_money-fx.train.svm.bz2"), "logistic", 30, False),
    "2000x20000 AR(.7)": (lambda _: planted(2000, 20000, 50, 0.7, 5)[:2], "squared", 50, False),
}
QUICK = {"reuters": 2, "MNIST 4v5": 2, "2000x20000 AR(.7)": 2}  # runs of those that take seconds


def estimator(loss, **settings):
    return (KSparseRegressor if loss == "squared" else KSparseClassifier)(**settings)


def abess_model(loss, sizes, **settings):
    import abess

    kind = abess.LinearRegression if loss == "squared" else abess.LogisticRegression
    return kind(path_type="seq", support_size=sizes, thread=1, **settings)


def alternating(calls, runs):
    """The median CPU time of every call, each made `runs` times in turn after one that is not counted."""
    seconds = {name: [] for name in calls}
    for run in range(runs + 1):
        for name, call in calls.items():
            start = time.process_time()
            call()
            if run:
                seconds[name].append(time.process_time() - start)
    return {name: statistics.median(every) for name, every in seconds.items()}


def refitted(X, y, loss, support):
    """The least objective on some columns."""
    l2 = RIDGE[loss]
    design = standardize(as_design(X[:, np.sort(support)]), None, True, False)
    problem = Problem.create(design, y, loss=loss, intercept=True, l2=l2)
    start = [(np.zeros(len(support)), 0.0)]
    return Refitter(problem, lambda: None).newton(np.arange(len(support)), start, 100, 1e-22, polish=True).objective


def measure(name, folder, runs):
    """Times and objectives of one work."""
    read, loss, largest, fold = WORKS[name]
    X, y = read(folder)
    constant = X.power(2).sum(axis=0).A1 == 0 if sparse.issparse(X) else np.ptp(X, axis=0) == 0
    X = X[:, ~constant]  # abess refuses constant columns
    X = np.ascontiguousarray(X) if not sparse.issparse(X) else X.tocsr()
    sizes, runs = range(1, largest + 1), QUICK.get(name, runs)
    labels = y if loss == "squared" else (y > 0).astype(int)
    target = y if loss == "squared" else np.where(labels == 1, 1.0, -1.0)
    row = {"n": X.shape[0], "d": X.shape[1], "loss": loss, "ks": largest, "runs": runs}
    calls = {effort: lambda e=effort: k_path(X, labels, sizes, estimator(loss, effort=e)) for effort in EFFORTS}
    calls["abess"] = lambda: abess_model(loss, range(largest + 1)).fit(X, labels)
    row["path_s"] = alternating(calls, runs)
    if fold:
        folds = np.arange(len(y)) % 5
        pairs = [(np.flatnonzero(folds != f), np.flatnonzero(folds == f)) for f in range(5)]
        by = KSparseRegressorCV if loss == "squared" else KSparseClassifierCV
        calls = {
            effort: lambda e=effort: by(sizes, estimator=estimator(loss, effort=e), cv=pairs).fit(X, labels)
            for effort in EFFORTS
        }
        calls["abess"] = lambda: abess_model(loss, range(largest + 1), cv=5).fit(X, labels, cv_fold_id=folds + 1)
        row["cv_s"] = alternating(calls, runs)
        calls = {"default": lambda: estimator(loss, k=5).fit(X, labels)}
        calls["abess"] = lambda: abess_model(loss, [5]).fit(X, labels)
        row["fit_s"] = alternating(calls, runs)
    theirs = []
    for k in sizes:
        found = np.flatnonzero(abess_model(loss, [k]).fit(X, labels).coef_.ravel())
        theirs.append(refitted(X, target, loss, found))
    for effort in EFFORTS:
        path = k_path(X, labels, sizes, estimator(loss, l2=RIDGE[loss], effort=effort))
        ratio = np.array([refitted(X, target, loss, m.support_) for m in path.models]) / np.array(theirs)
        row[f"objective_{effort}"] = {"worst": float(ratio.max()), "mean": float(np.exp(np.log(ratio).mean()))}
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--works", default=",".join(WORKS))
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    if installed("abess") is None:
        print("abess is not installed (pip install 'ksparse[bench]')")
        return 0
    one_thread()
    warnings.simplefilter("ignore")
    report, worst = {"machine": machine(), "works": {}}, 0.0
    for name in chosen.works.split(","):
        try:
            row = report["works"][name] = measure(name, chosen.data or Path("."), chosen.runs)
        except OSError as error:
            print(f"{name} skipped: {error}")
            continue
        worst = max(worst, *(row[f"objective_{effort}"]["worst"] for effort in EFFORTS))
        print(name, json.dumps(row), flush=True)
        if chosen.out:
            write_whole(chosen.out, json.dumps(report, indent=1) + "\n")
    lines = [
        ("work", "what", "fast ms", "default ms", "abess ms", "fast / abess", "default / abess", "F worst", "F mean")
    ]
    for name, row in report["works"].items():
        for what in ("path", "cv", "fit"):
            if f"{what}_s" in row:
                seconds, F = row[f"{what}_s"], row["objective_default"]
                ms = [1e3 * seconds[key] if key in seconds else float("nan") for key in (*EFFORTS, "abess")]
                shown = (f"{F['worst']:.4f}", f"{F['mean']:.4f}") if what == "path" else ("", "")
                lines.append(
                    (name, what, *(f"{m:.2f}" for m in ms), f"{ms[0] / ms[2]:.2f}", f"{ms[1] / ms[2]:.2f}", *shown)
                )
    print(table(lines))
    return int(worst > 1.001)


if __name__ == "__main__":
    sys.exit(main())
