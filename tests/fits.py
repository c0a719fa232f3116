"""Fits of every kind, for tests of their pages: the model, its rows, and what a page is told."""

from __future__ import annotations

import numpy as np
import pandas as pd
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris

from ksparse import KSparseClassifier, KSparseClassifierCV, KSparseRegressor, k_path
from ksparse.report import HeldOut, fit_page

SCRIPT, IMAGE = "<script>alert(1)</script>", '"><img src=x onerror=alert(1)>'
HOSTILE = [
    SCRIPT, IMAGE, r"$x^2$ and \frac{a_b}", "two\nlines\tand \x00", "x" * 300, "שלום \u202egnp.exe", "'\" & &amp;",
    "_hidden", "{{ 7 * 7 }}", "", "größe 測定 🎈", "</style></svg>",
]  # fmt: skip


def planted(n=400, d=12, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) * np.geomspace(0.1, 100, d) + 3.0
    return X, (X - 3.0) / np.geomspace(0.1, 100, d) @ np.linspace(3.0, 0.1, d) + rng.standard_normal(n), rng


def cancer():
    X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    y = np.array(["malignant", "benign"])[y]
    cv = KSparseClassifierCV([1, 2, 4], cv=3).fit(X[:400], y[:400])
    held_out = HeldOut(y[400:], cv.predict_proba(X[400:]))
    return (
        cv.estimator_,
        X,
        {"data": "cancer.csv.gz", "rows": 569, "target": "diagnosis", "cv": cv, "held_out": held_out},
    )


def diabetes():
    X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
    path = k_path(X[:300], y[:300], [1, 2, 4, 6])
    model = path.best()
    held_out = HeldOut(y[300:].to_numpy(), model.predict(X[300:]))
    return model, X, {"data": "diabetes", "rows": 442, "target": "progression", "path": path, "held_out": held_out}


def iris(**settings):
    X, y = load_iris(return_X_y=True, as_frame=True)
    y, fit = np.array(["setosa", "versicolor", "virginica"])[y], np.arange(150) % 3 > 0
    model = KSparseClassifier(k=2, **settings).fit(X[fit], y[fit])
    said = model.predict_proba if model.loss == "logistic" else model.decision_function
    return (
        model,
        X,
        {"data": "iris.parquet", "rows": 150, "target": "kind", "held_out": HeldOut(y[~fit], said(X[~fit]))},
    )


def softmax():
    model, X, known = iris()
    y = np.array(["setosa", "versicolor", "virginica"])[load_iris().target]
    return model, X, {**known, "path": k_path(X, y, [1, 2], KSparseClassifier())}


def ovr():
    return iris(multi_class="ovr")


def hinges():
    return iris(loss="squared_hinge")


def hinge():
    X, y, _ = planted()
    model = KSparseClassifier(k=3, loss="squared_hinge").fit(X[:300], y[:300] > 0)
    return (
        model,
        X,
        {"data": "a", "rows": 400, "target": "up", "held_out": HeldOut(y[300:] > 0, model.decision_function(X[300:]))},
    )


def targets():
    X, y, rng = planted()
    Y = np.column_stack([y, -y, rng.standard_normal(len(y))])
    model = KSparseRegressor(k=3).fit(X[:300], Y[:300])
    return (
        model,
        X,
        {
            "data": "a",
            "rows": 400,
            "target": ["up", "down", "noise"],
            "held_out": HeldOut(Y[300:], model.predict(X[300:])),
        },
    )


def groups():
    X, y, _ = planted()
    model = KSparseRegressor(k=2, groups=np.arange(12) // 3, always_keep=[11], l2=0.1).fit(X[:300], y[:300])
    return model, X, {"data": "a", "rows": 300, "target": "y", "held_out": HeldOut(y[300:], model.predict(X[300:]))}


def counts():
    X, y, rng = planted()
    y = rng.poisson(np.exp(0.2 * y)).astype(float)
    model = KSparseRegressor(k=3, loss="poisson").fit(X[:300], y[:300])
    return (
        model,
        X,
        {"data": "a", "rows": 400, "target": "claims", "held_out": HeldOut(y[300:], model.predict(X[300:]))},
    )


def huber():
    X, y, _ = planted()
    model = KSparseRegressor(k=3, loss="huber", fit_intercept=False, standardize=False).fit(X, y)
    return model, X, {"data": "a", "rows": 400, "target": "y"}


def hostile():
    X, y, _ = planted()
    X, y = pd.DataFrame(X, columns=HOSTILE), np.array([SCRIPT, IMAGE])[(y > 0).astype(int)]
    cv = KSparseClassifierCV([2, 12], cv=2).fit(X[:300], y[:300])
    path = k_path(X[:300], y[:300], [2, 12], KSparseClassifier())
    return cv.estimator_, X, {
        "data": IMAGE + ".csv", "rows": 400, "target": HOSTILE[4] + SCRIPT, "cv": cv, "path": path,
        "held_out": HeldOut(y[300:], cv.predict_proba(X[300:])), "model_file": "a b'\n<script>alert(2)</script>.json",
    }  # fmt: skip


KINDS = (cancer, diabetes, softmax, ovr, hinges, hinge, targets, groups, counts, huber, hostile)


class Made:
    """By kind: the model, its rows, what is known, and the page; each is made once."""

    def __init__(self):
        self._kept = {}

    def __call__(self, kind):
        if kind not in self._kept:
            model, X, known = kind()
            self._kept[kind] = model, X, known, fit_page(model, **known)
        return self._kept[kind]
