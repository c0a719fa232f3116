"""Models with at most k features, on data that ships inside scikit-learn: which features, and how good?

python examples/demo.py        (or: make demo)
"""

from __future__ import annotations

import time

from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from ksparse import KSparseClassifier, KSparseClassifierCV, KSparseRegressor, KSparseRegressorCV


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


def main():
    began = time.perf_counter()
    print("Learning (the first run on a machine compiles for some seconds) ...", flush=True)
    logistic = LogisticRegression(max_iter=1000)
    show("Breast cancer", load_breast_cancer, KSparseClassifier, KSparseClassifierCV, "accuracy", logistic)
    model = show("Diabetes", load_diabetes, KSparseRegressor, KSparseRegressorCV, "R²", LinearRegression())
    print(f"\n{model.summary()}")
    print(f"\n{time.perf_counter() - began:.1f} s in all.")


if __name__ == "__main__":
    main()
