"""Models with at most k features, on data that ships inside scikit-learn: which features, and how good?

python examples/demo.py        (or: make demo)
"""

from __future__ import annotations

import time

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from ksparse import HTSVRG, minimize


def learn(X, y, k, loss):
    """A k-sparse model with an intercept and a small ridge, by HT-SVRG.

    Thresholding at exactly k can settle on the wrong columns.  So it starts from zero, and from models with more
    features than wanted (there the paper's bound is tighter), and the best of the ends is kept.
    """
    settings = {"loss": loss, "solver": HTSVRG(stages=300, tol=1e-7), "intercept": True, "l2": 0.01, "random_state": 0}
    starts = [None, *(minimize(X, y, min(more * k, X.shape[1]), **settings) for more in (2, 4))]
    return min((minimize(X, y, k, x0=start, **settings) for start in starts), key=lambda result: result.objective)


def show(title, data, loss, score, name, full):
    X, names = data.data, [str(feature) for feature in data.feature_names]
    y = np.where(data.target == 1, 1.0, -1.0) if loss == "logistic" else data.target
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.3, random_state=0)
    scaler = StandardScaler().fit(X)
    X, X_test = scaler.transform(X), scaler.transform(X_test)
    print(f"\n{title}: {X.shape[0]} rows to learn from, {X_test.shape[0]} held out, {X.shape[1]} features\n")
    print(f"   k   {name:>8}   features")
    for k in (1, 2, 3, 5, 8):
        result = learn(X, y, k, loss)
        order = result.support[np.argsort(-np.abs(result.x[result.support]))]
        chosen = ", ".join(f"{names[j]} {result.x[j]:+.2f}" for j in order[:4]) + (", ..." if k > 4 else "")
        print(f"  {k:2d}   {score(y_test, X_test @ result.x + result.intercept):8.3f}   {chosen}")
    print(f" all   {full.fit(X, y).score(X_test, y_test):8.3f}   scikit-learn's {type(full).__name__}")


def accuracy(y, z):
    return np.mean(np.sign(z) == y)


def r_squared(y, z):
    return 1 - np.sum((y - z) ** 2) / np.sum((y - y.mean()) ** 2)


def main():
    began = time.perf_counter()
    print("Learning (the first run on a machine compiles for some seconds) ...", flush=True)
    show("Breast cancer", load_breast_cancer(), "logistic", accuracy, "accuracy", LogisticRegression(max_iter=1000))
    show("Diabetes", load_diabetes(), "squared", r_squared, "R²", LinearRegression())
    print(f"\n{time.perf_counter() - began:.1f} s in all.")


if __name__ == "__main__":
    main()
