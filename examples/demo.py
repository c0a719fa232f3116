"""Models with at most k features on data that ships inside scikit-learn, a signal from few measurements, and the paper.

python examples/demo.py [--no-paper]        (or: make demo)
"""

from __future__ import annotations

import sys
import time

from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from ksparse import KSparseClassifier, KSparseClassifierCV, KSparseRegressor, KSparseRegressorCV, recover, sensing
from ksparse.paper import run


def show(title, load, sparse, by_cv, measure, full):
    X, y = load(return_X_y=True, as_frame=True)
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.3, random_state=0)
    print(f"\n{title}: {X.shape[0]} rows to learn from, {X_test.shape[0]} held out, {X.shape[1]} features\n")
    print(f"   k   {measure:>8}   features")
    for k in (1, 2, 3, 5, 8):
        model = sparse(k=k).fit(X, y)
        names = [name for _, name, _, _ in model.summary().rows]
        print(f"  {k:2d}   {model.score(X_test, y_test):8.3f}   {', '.join(names[:4])}{', ...' * (k > 4)}")
    chosen = by_cv(n_jobs=2).fit(X, y)
    print(f"  {chosen.k_:2d}   {chosen.score(X_test, y_test):8.3f}   chosen by cross-validation")
    full = make_pipeline(StandardScaler(), full).fit(X, y)
    print(f" all   {full.score(X_test, y_test):8.3f}   scikit-learn's {type(full[-1]).__name__}")
    return chosen


def recover_a_signal(n=60, d=400, K=12):
    A = sensing.ensembles.gaussian(n, d, random_state=0)
    x = sensing.signals.gaussian(d, K, random_state=1)
    found = recover(A, A @ x, k=3 * K)  # a bound is enough
    error = abs(found.x - x).max()
    print(f"\nA signal of {d} numbers, {K} of them not zero, from {n} measurements, told at most {3 * K} non-zeros:")
    print(f"  {found.support.size} found, largest error {error:.1e}")


def main(paper=True):
    began = time.perf_counter()
    print("Learning (the first run on a machine compiles for some seconds) ...", flush=True)
    logistic = LogisticRegression(max_iter=1000)
    show("Breast cancer", load_breast_cancer, KSparseClassifier, KSparseClassifierCV, "accuracy", logistic)
    model = show("Diabetes", load_diabetes, KSparseRegressor, KSparseRegressorCV, "R²", LinearRegression())
    print(f"\n{model.summary()}")
    recover_a_signal()
    if paper:
        print("\nThe experiments of 'A Tight Bound of Hard Thresholding', few trials of each (ksparse paper has more):")
        page = run("quick", "build/paper")
        print(f"  figures, and statements of the paper beside what came out: {page.resolve()}")
    print(f"\n{time.perf_counter() - began:.0f} s in all.")


if __name__ == "__main__":
    main(paper="--no-paper" not in sys.argv[1:])
