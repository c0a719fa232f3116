"""Which ridge should be the default?  Held-out loss of ksparse against l2, as multiples of the rule behind l2="auto".

    python benchmarks/choose_ridge.py --data FOLDER [--works mnist,golub] [--out FILE]

l2 is a ridge on columns of variance one.  With r = k·log(d + 1)/n, at most 1, the rule is 0.1·r for classes and 0.1·r²
for regression: more features, more columns to choose them from and fewer rows each ask for more of it.  The folds are
those of bench_heldout.py; its works too, with more values of k, and others that the rule was not formed on.

Where many entries are zero, a second ridge is tried: the same multiples over √p, where p is the share of the rows in
which a column is not zero.  A column of few entries is then shrunk more than one of many.

show_ridge.py makes the page.  Every fit is written to --out when it is there, as in bench_heldout.py.
"""

from __future__ import annotations

import argparse
import warnings
from functools import partial
from pathlib import Path

import numpy as np
from _store import Store, one_thread
from _works import SMALL_WORKS, WORKS, Fit, Work, chosen_works, mnist, planted, version_of, warm_up
from bench_heldout import fit_with, measure
from scipy import sparse
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.preprocessing import PolynomialFeatures

from ksparse import KSparseClassifier

MULTIPLES = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
RARE = (0.03, 0.1, 0.3, 1.0, 3.0)  # multiples that are tried over √p
POWER = {"logistic": 1, "squared": 2}  # of r in the rule


def cancer(_):
    X, y = load_breast_cancer(return_X_y=True)
    return X, np.where(y > 0, 1.0, -1.0)


def few_digits(folder):
    X, y = mnist(folder)
    return X[:1000], y[:1000]


def planted_classes(_):
    X, z, _ = planted(300, 1000, 10, 0.7, 3)
    return X, np.where(z > 0, 1.0, -1.0)


def diabetes_products(_):
    X, y = load_diabetes(return_X_y=True)
    return PolynomialFeatures(2, include_bias=False).fit_transform(X), y


MORE_K = {
    "mnist": (10, 30, 70), "reuters": (10, 50, 100), "golub": (2, 5, 10), "a9a": (5, 20, 40),
    "covtype-50000": (5, 15, 30), "riboflavin": (5, 10, 20), "ar-500": (10, 20, 40), "diabetes": (3, 5, 8), "ar": (50,),
}  # fmt: skip
RIDGE_WORKS = {
    **{name: {**WORKS, **SMALL_WORKS}[name]._replace(ks=ks) for name, ks in MORE_K.items()},
    "mnist-1000": Work(few_digits, "logistic", (10, 30)),
    "cancer": Work(cancer, "logistic", (3, 5, 10)),
    "planted-classes": Work(planted_classes, "logistic", (5, 10, 20)),
    "diabetes-products": Work(diabetes_products, "squared", (5, 10, 20)),
    "ar-100": Work(lambda _: planted(100, 500, 10, 0.7, 2)[:2], "squared", (5, 10, 20)),
}
ZEROS = ("mnist", "mnist-1000", "reuters", "a9a", "covtype-50000")  # works with many entries that are zero


def rule(n, d, k, loss):
    """The ridge of l2="auto"."""
    return 0.1 * min(1.0, k * np.log(d + 1) / n) ** POWER[loss]


def fit_at(multiple, X, y, loss, k):
    return fit_with("ksparse", multiple * rule(*X.shape, k, loss), X, y, loss, k)


def fit_rare(multiple, X, y, loss, k):
    """The rule over √p: columns of variance √p, on which it is a plain ridge."""
    n, d = X.shape
    mean, square = (np.asarray(Z.mean(axis=0)).ravel() for Z in (X, X.multiply(X) if sparse.issparse(X) else X**2))
    variance = np.maximum(square - mean**2, 0.0)
    entries = np.bincount(X.indices, minlength=d) if sparse.issparse(X) else np.count_nonzero(X, axis=0)
    usable = variance > 1e-12 * square
    factor = np.where(usable, np.sqrt(np.sqrt(entries / n) / np.where(usable, variance, 1.0)), 0.0)
    scaled = sparse.csr_matrix(X.multiply(factor)) if sparse.issparse(X) else X * factor
    found = Fit.of(KSparseClassifier(k=k, l2=multiple * rule(n, d, k, loss), standardize=False).fit(scaled, y))
    return Fit(found.x * factor, found.constant)


RIDGES = {f"{multiple:g}": partial(fit_at, multiple) for multiple in MULTIPLES}  # name: fit of (X, y, loss, k)
RARE_RIDGES = {f"{multiple:g}/√p": partial(fit_rare, multiple) for multiple in RARE}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder with the data sets")
    parser.add_argument("--works", default=",".join(RIDGE_WORKS), help=f"some of {', '.join(RIDGE_WORKS)}")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "ridge.json", help="JSON")
    parser.add_argument("--again", action="store_true", help="make cells that are there again")
    options = parser.parse_args()
    one_thread()
    warnings.simplefilter("ignore")
    warm_up(["ksparse"])
    store, version = Store(options.out, options.again), version_of("ksparse")
    for name, work in chosen_works(options.works.split(","), RIDGE_WORKS).items():
        ridges = {**RIDGES, **(RARE_RIDGES if name in ZEROS else {})}
        measure(store, name, work, {ridge: (version, fit) for ridge, fit in ridges.items()}, options.data)
    print(f"written to {options.out}")


if __name__ == "__main__":
    main()
