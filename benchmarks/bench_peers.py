"""Training objective at exactly k and CPU time, beside abess, skscope, scikit-learn's OMP and L1-then-refit.

    python benchmarks/bench_peers.py --data FOLDER [--works mnist,reuters] [--peers abess,omp,l1] [--out FILE]

Needs the `bench` extra (and skscope, for that peer).  FOLDER holds mnist/ (the idx files), riboflavin.npz,
reuters_money-fx.train.svm.bz2, golub_leukemia.npz, a9a.train.svm.bz2 and covtype.data.gz; works whose file is missing
are skipped, and said so.
One thread each.  Each method runs once on a small problem first, so that compiling and imports are not counted; its CPU
time is that of one fit.  No ridge, except on golub, whose classes are separable: there all have the same, on columns of
variance one.  abess refuses constant columns: it gets the others.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import platform
import struct
import sys
import time
import warnings
from pathlib import Path

THREADS = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
if __name__ == "__main__" and any(os.environ.get(name) != "1" for name in THREADS):
    os.execvpe(sys.executable, [sys.executable, *sys.argv], {**os.environ, **THREADS})

import numpy as np  # noqa: E402
from scipy import sparse  # noqa: E402
from sklearn.datasets import load_svmlight_file  # noqa: E402

from ksparse import KSparseClassifier, KSparseRegressor  # noqa: E402


# --- the works -------------------------------------------------------------------------------------------------------
def mnist(folder):
    def idx(name):
        raw = gzip.decompress((folder / "mnist" / f"{name}.gz").read_bytes())
        shape = struct.unpack(f">{raw[3]}I", raw[4 : 4 + 4 * raw[3]])
        return np.frombuffer(raw, np.uint8, offset=4 + 4 * raw[3]).reshape(shape)

    X, y = idx("train-images-idx3-ubyte").reshape(60000, -1), idx("train-labels-idx1-ubyte")
    pair = (y == 4) | (y == 5)
    return X[pair] / 255.0, np.where(y[pair] == 4, 1.0, -1.0)


def libsvm(name):
    def read(folder):
        X, y = load_svmlight_file(str(folder / name))
        X = X.tocsr()
        X.indices, X.indptr = X.indices.astype(np.int32), X.indptr.astype(np.int32)  # liblinear takes no others
        return X, np.where(y > 0, 1.0, -1.0)

    return read


def npz(name, labels):
    def read(folder):
        data = np.load(folder / name, allow_pickle=False)
        y = np.asarray(data["y"])
        return np.asarray(data["X"], dtype=float), np.where(y == np.unique(y)[-1], 1.0, -1.0) if labels else y.astype(
            float
        )

    return read


def covtype(folder):
    table = np.loadtxt(folder / "covtype.data.gz", delimiter=",")
    return table[:, :-1], np.where(table[:, -1] == 2, 1.0, -1.0)


def autoregressive(folder):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((2000, 20000))
    for j in range(1, X.shape[1]):
        X[:, j] = 0.7 * X[:, j - 1] + np.sqrt(1 - 0.49) * X[:, j]
    x = np.zeros(20000)
    x[rng.choice(20000, 50, replace=False)] = rng.choice([-1.0, 1.0], 50) * rng.uniform(0.5, 1.5, 50)
    signal = X @ x
    return X, signal + rng.standard_normal(2000) * np.sqrt(signal.var() / 5)


WORKS = {  # name: (reader, loss, ks, l2)
    "mnist": (mnist, "logistic", (30, 70), 0.0),
    "reuters": (libsvm("reuters_money-fx.train.svm.bz2"), "logistic", (50, 100), 0.0),
    "ar": (autoregressive, "squared", (50,), 0.0),
    "riboflavin": (npz("riboflavin.npz", False), "squared", (10,), 0.0),
    "golub": (npz("golub_leukemia.npz", True), "logistic", (5, 10), 1e-2),
    "a9a": (libsvm("a9a.train.svm.bz2"), "logistic", (20,), 0.0),
    "covtype": (covtype, "logistic", (15,), 0.0),
}


# --- the methods: (X, y, k, l2) -> coefficients, intercept -----------------------------------------------------------
def ours(X, y, k, l2, loss):
    model = (KSparseClassifier if loss == "logistic" else KSparseRegressor)(k=k, l2=l2, standardize=l2 == 0.0).fit(X, y)
    return np.ravel(model.coef_), float(np.ravel(model.intercept_)[0])


def by_abess(X, y, k, l2, loss):
    from abess import LinearRegression, LogisticRegression

    top, bottom = (np.ravel(f(0).toarray() if sparse.issparse(X) else f(0)) for f in (X.max, X.min))
    varying = np.flatnonzero(top > bottom)
    settings = {"support_size": k, "thread": 1, "alpha": l2 * len(y)}
    if loss == "squared":
        model = LinearRegression(**settings).fit(X[:, varying], y)
    else:
        model = LogisticRegression(**settings).fit(X[:, varying], (y > 0).astype(int))
    x = np.zeros(X.shape[1])
    x[varying] = np.ravel(model.coef_)
    return x, float(np.ravel(model.intercept_)[0])


def by_omp(X, y, k, l2, loss):
    from sklearn.linear_model import OrthogonalMatchingPursuit

    if loss != "squared" or sparse.issparse(X):
        return None
    model = OrthogonalMatchingPursuit(n_nonzero_coefs=k).fit(X, y)
    return model.coef_, float(model.intercept_)


def by_l1(X, y, k, l2, loss):
    """The largest L1 penalty with k features (by bisection), then a refit on them."""
    from sklearn.linear_model import Lasso, LinearRegression, LogisticRegression

    low, high, chosen = -4.0, 4.0, None
    for _ in range(12):
        middle = 0.5 * (low + high)
        if loss == "squared":
            coef = Lasso(alpha=10.0**-middle, max_iter=2000).fit(X, y).coef_
        else:
            coef = LogisticRegression(C=10.0**middle, l1_ratio=1, solver="liblinear", max_iter=200).fit(X, y).coef_[0]
        count = np.count_nonzero(coef)
        if count >= k and (chosen is None or count <= np.count_nonzero(chosen)):
            chosen = coef
        if count == k:
            break
        low, high = (middle, high) if count < k else (low, middle)
    if chosen is None:
        return None
    S = np.sort(np.argsort(-np.abs(chosen))[:k])
    part = X[:, S]
    if loss == "squared":
        plain = LinearRegression().fit(part, y)
    else:
        plain = LogisticRegression(C=np.inf if l2 == 0 else 1 / (l2 * len(y)), max_iter=500).fit(part, y)
    x = np.zeros(X.shape[1])
    x[S] = np.ravel(plain.coef_)
    return x, float(np.ravel(plain.intercept_)[0])


def by_skscope(X, y, k, l2, loss):
    import jax.numpy as jnp
    from skscope import ScopeSolver

    if sparse.issparse(X):
        return None
    Z, t = jnp.column_stack([X, jnp.ones(len(y))]), jnp.array(y)

    def objective(w):
        z = Z @ w
        data = jnp.mean(jnp.logaddexp(0.0, -t * z)) if loss == "logistic" else jnp.mean((z - t) ** 2) / 2
        return data + 0.5 * l2 * jnp.sum(w[:-1] ** 2)

    solver = ScopeSolver(X.shape[1] + 1, k + 1, preselect=[X.shape[1]])
    w = solver.solve(objective, jit=True)
    return w[:-1], float(w[-1])


METHODS = {"ksparse": ours, "abess": by_abess, "omp": by_omp, "l1": by_l1, "skscope": by_skscope}


def objective(X, y, fit, l2, loss):
    x, constant = fit
    z = np.asarray(X @ x) + constant
    data = np.mean(np.logaddexp(0.0, -y * z)) if loss == "logistic" else np.mean((z - y) ** 2) / 2
    return float(data + 0.5 * l2 * x @ x)


def warm_up(methods):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 20))
    z = X[:, 0] - X[:, 1] + 0.5 * rng.standard_normal(60)
    for layout in (np.asarray, sparse.csr_matrix):
        for loss, y in (("squared", z), ("logistic", np.where(z > 0, 1.0, -1.0))):
            for method in methods:
                METHODS[method](layout(X), y, 3, 0.01, loss)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder with the data sets")
    parser.add_argument("--works", default=",".join(WORKS), help="some of them, with commas between")
    parser.add_argument("--peers", default="abess,omp,l1", help="some of abess, omp, l1, skscope")
    parser.add_argument("--out", type=Path, default=None, help="where to write JSON")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    methods = ["ksparse", *filter(None, options.peers.split(","))]
    warm_up(methods)
    rows = []
    print(f"{'work':<12}{'k':>4}  " + "".join(f"{name:>20}" for name in methods), flush=True)
    for work in options.works.split(","):
        read, loss, ks, l2 = WORKS[work]
        try:
            X, y = read(options.data)
        except OSError as error:
            print(f"{work:<12} skipped: {error}")
            continue
        if l2:  # a ridge means something on columns of one size only
            X = (X - X.mean(axis=0)) / np.maximum(X.std(axis=0), 1e-12)
        for k in ks:
            row = {"work": work, "k": k, "n": X.shape[0], "d": X.shape[1], "loss": loss, "l2": l2, "methods": {}}
            cells = []
            for method in methods:
                start = time.process_time()
                fit = METHODS[method](X, y, k, l2, loss)
                seconds = time.process_time() - start
                if fit is None:
                    cells.append("-")
                    continue
                value = objective(X, y, fit, l2, loss)
                used = int(np.count_nonzero(fit[0]))
                row["methods"][method] = {"objective": value, "cpu_s": seconds, "features": used}
                cells.append(f"{value:.4f} {seconds:8.2f} s")
            rows.append(row)
            print(f"{work:<12}{k:>4}  " + "".join(f"{cell:>20}" for cell in cells), flush=True)
    if options.out:
        report = {"machine": platform.machine(), "python": platform.python_version(), "rows": rows}
        options.out.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
