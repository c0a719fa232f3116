"""The works and the methods of bench_peers.py, bench_heldout.py and choose_ridge.py.

FOLDER, where the works are read from, holds mnist/ (the idx files), riboflavin.npz, reuters_money-fx.train.svm.bz2,
golub_leukemia.npz, a9a.train.svm.bz2 and covtype.data.gz; `ar` is made, `diabetes` comes with scikit-learn.

A method takes (X, y, k, l2, loss) and gives a `Fit`, or says in a word why it has none.  The objective is the mean loss
(squared: half the square; logistic: labels ±1) plus l2/2·‖x‖².
"""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from _store import installed, ksparse_version
from scipy import sparse
from sklearn.datasets import load_diabetes, load_svmlight_file
from sklearn.linear_model import Lasso, LinearRegression, LogisticRegression, OrthogonalMatchingPursuit
from sklearn.svm import l1_min_c

from ksparse import KSparseClassifier, KSparseRegressor


# --- the works -------------------------------------------------------------------------------------------------------
def mnist(folder):
    """Fours against fives, pixels in [0, 1]."""

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


def riboflavin(folder):
    data = np.load(folder / "riboflavin.npz", allow_pickle=False)
    return np.ascontiguousarray(data["X"], dtype=float), data["y"].astype(float)


def golub(folder):
    data = np.load(folder / "golub_leukemia.npz", allow_pickle=False)
    return np.ascontiguousarray(data["X"], dtype=float), np.where(data["y"] == np.unique(data["y"])[-1], 1.0, -1.0)


def covtype(folder):
    """Class 2, lodgepole pine, against the rest."""
    table = np.loadtxt(folder / "covtype.data.gz", delimiter=",")
    return np.ascontiguousarray(table[:, :-1]), np.where(table[:, -1] == 2, 1.0, -1.0)


def covtype_sample(folder):
    X, y = covtype(folder)
    rows = np.random.default_rng(0).choice(len(y), 50_000, replace=False)
    return X[rows], y[rows]


def planted(n, d, K, rho, snr, seed=0):
    """Rows of an AR(rho) process, K coefficients of ±U(0.5, 1.5) at random places, noise; X, y and the truth.

    snr is the variance of the signal over that of the noise.
    """
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    for j in range(1, d):
        X[:, j] = rho * X[:, j - 1] + np.sqrt(1 - rho**2) * X[:, j]
    x = np.zeros(d)
    x[rng.choice(d, K, replace=False)] = rng.choice([-1.0, 1.0], K) * rng.uniform(0.5, 1.5, K)
    signal = X @ x
    return X, signal + rng.standard_normal(n) * np.sqrt(signal.var() / snr), x


class Work(NamedTuple):
    read: Callable  # of the folder: X, y
    loss: str
    ks: tuple[int, ...]
    l2: float = 0.0  # where the classes are separable a fit without a ridge has no end
    scaled: bool = False  # everybody gets columns of variance one


WORKS = {
    "mnist": Work(mnist, "logistic", (30, 70)),
    "reuters": Work(libsvm("reuters_money-fx.train.svm.bz2"), "logistic", (50, 100)),
    "ar": Work(lambda _: planted(2000, 20000, 50, 0.7, 5)[:2], "squared", (50,)),
    "riboflavin": Work(riboflavin, "squared", (10,)),
    "golub": Work(golub, "logistic", (5, 10), l2=1e-2, scaled=True),
    "a9a": Work(libsvm("a9a.train.svm.bz2"), "logistic", (20,)),
    "covtype": Work(covtype, "logistic", (15,)),
}
SMALL_WORKS = {  # stand-ins for the two largest, and one more regression
    "covtype-50000": Work(covtype_sample, "logistic", (15,)),
    "ar-500": Work(lambda _: planted(500, 2000, 20, 0.7, 5)[:2], "squared", (20,)),
    "diabetes": Work(lambda _: load_diabetes(return_X_y=True), "squared", (3, 5)),
}


TINY = 1e-12  # for constant columns


def scale(X, like):
    """Columns of mean zero and variance one, by the means and variances of other rows."""
    return (X - like.mean(axis=0)) / np.maximum(like.std(axis=0), TINY)


# --- the methods -----------------------------------------------------------------------------------------------------
class Fit(NamedTuple):
    x: np.ndarray
    constant: float

    @classmethod
    def of(cls, model, columns=None, d=None):
        """A model of all columns, or of some of d."""
        coef, constant = np.ravel(model.coef_), float(np.ravel(model.intercept_)[0])
        if columns is None:
            return cls(coef, constant)
        x = np.zeros(d)
        x[columns] = coef
        return cls(x, constant)


def by_ksparse(X, y, k, l2, loss):
    """Ours; l2=None leaves the ridge as it is by default."""
    model = KSparseClassifier if loss == "logistic" else KSparseRegressor
    return Fit.of((model(k=k) if l2 is None else model(k=k, l2=l2)).fit(X, y))


def by_abess(X, y, k, l2, loss):
    """abess, without the constant columns, which it refuses.

    Its logistic penalty is alpha·‖x‖² beside the sum of losses, its linear one half of that (seen from the gradient at
    its answers).
    """
    from abess import LinearRegression, LogisticRegression

    top, bottom = (np.ravel(f(0).toarray() if sparse.issparse(X) else f(0)) for f in (X.max, X.min))
    varying = np.flatnonzero(top > bottom)
    part = X if varying.size == X.shape[1] else X[:, varying]
    if loss == "squared":
        model = LinearRegression(support_size=k, thread=1, alpha=l2 * len(y)).fit(part, y)
    else:
        model = LogisticRegression(support_size=k, thread=1, alpha=l2 * len(y) / 2).fit(part, (y > 0).astype(int))
    return Fit.of(model, varying, X.shape[1])


def by_omp(X, y, k, l2, loss):
    """scikit-learn's orthogonal matching pursuit."""
    if loss != "squared" or sparse.issparse(X):
        return "least squares on dense rows only"
    return Fit.of(OrthogonalMatchingPursuit(n_nonzero_coefs=k).fit(X, y))


SUBSAMPLE = 20_000


def by_l1(X, y, k, l2, loss):
    """scikit-learn's L1 with k features, then a refit of those without the penalty.

    The penalty falls by steps of four until k features or more are in, then it is bisected (at most 20 fits, all of
    them counted); of too many features the k largest stay.  Dense columns are standardised, sparse ones stay as they
    are.  Beyond 50,000 rows the features are found on 20,000 of them (liblinear would take hours on covtype) and
    refitted on all.  The refit is by Newton's method, to convergence.
    """
    dense = not sparse.issparse(X)
    Z = scale(X, X) if dense else X
    chosen = l1_columns(Z, y, k, loss)
    if isinstance(chosen, str):
        return chosen
    part = Z[:, chosen] if dense else Z[:, chosen].toarray()
    if loss == "squared":
        plain = LinearRegression().fit(part, y)
    else:
        C = np.inf if l2 == 0 else 1 / (l2 * len(y))
        plain = LogisticRegression(C=C, solver="newton-cholesky", tol=1e-8, max_iter=1000).fit(part, y)
    fit = Fit.of(plain, chosen, X.shape[1])
    return unscaled(fit, X) if dense else fit


def unscaled(fit, X):
    """A fit on standardised columns, as one on the columns X as they are."""
    x = fit.x / np.maximum(X.std(axis=0), TINY)
    return Fit(x, fit.constant - float(x @ X.mean(axis=0)))


def l1_columns(Z, y, k, loss):
    if len(y) > 50_000:
        rows = np.sort(np.random.default_rng(0).choice(len(y), SUBSAMPLE, replace=False))
        Z, y = Z[rows], y[rows]
    if loss == "squared":
        model = Lasso(max_iter=2000, warm_start=True)
        largest = float(np.max(np.abs(Z.T @ (y - y.mean())))) / len(y)
    else:
        model = LogisticRegression(l1_ratio=1, solver="liblinear", max_iter=200)
        largest = 1 / float(l1_min_c(Z, y, loss="log"))
    low, high, best = None, largest, None  # penalties with k features or more, and with fewer
    for _ in range(20):
        penalty = high / 4 if low is None else np.sqrt(low * high)
        model.set_params(**({"alpha": penalty} if loss == "squared" else {"C": 1 / penalty}))
        coef = np.ravel(model.fit(Z, y).coef_)
        count = np.count_nonzero(coef)
        if count < k:
            high = penalty
            continue
        low = penalty
        if best is None or count < np.count_nonzero(best):
            best = coef.copy()
        if count == k:
            break
    return "no penalty with k features" if best is None else np.sort(np.argsort(-np.abs(best))[:k])


def by_skscope(X, y, k, l2, loss):
    """skscope's splicing on standardised columns."""
    if sparse.issparse(X):
        return "dense rows only"
    return unscaled(splice(scale(X, X), y, k, l2, loss), X)


def by_skscope_raw(X, y, k, l2, loss):
    """skscope's splicing on the columns as they are: better than on standardised ones here, worse there."""
    return "dense rows only" if sparse.issparse(X) else splice(X, y, k, l2, loss)


def splice(X, y, k, l2, loss):
    """skscope on the same objective, in double precision."""
    import jax
    import jax.numpy as jnp
    from skscope import ScopeSolver

    jax.config.update("jax_enable_x64", True)
    Z, t = jnp.column_stack([X, jnp.ones(len(y))]), jnp.array(y)

    def value(w):
        z = Z @ w
        data = jnp.mean(jnp.logaddexp(0.0, -t * z)) if loss == "logistic" else jnp.mean((z - t) ** 2) / 2
        return data + 0.5 * l2 * jnp.sum(w[:-1] ** 2)

    solver = ScopeSolver(X.shape[1] + 1, k + 1, preselect=[X.shape[1]])  # the last is the intercept
    w = np.asarray(solver.solve(value, jit=True))
    return Fit(w[:-1], float(w[-1]))


METHODS = {
    "ksparse": by_ksparse,
    "abess": by_abess,
    "omp": by_omp,
    "l1": by_l1,
    "skscope": by_skscope,
    "skscope-raw": by_skscope_raw,
}
PACKAGES_OF = {
    "abess": ("abess",),
    "omp": ("scikit-learn",),
    "l1": ("scikit-learn",),
    "skscope": ("skscope", "jax"),
    "skscope-raw": ("skscope", "jax"),
}


def version_of(method):
    """What makes its cells stale when it changes; None if it is not installed."""
    if method == "ksparse":
        return ksparse_version()
    versions = {package: installed(package) for package in PACKAGES_OF[method]}
    return None if None in versions.values() else " ".join(f"{name} {version}" for name, version in versions.items())


def available(names):
    """The methods of these names that are installed, with their versions; says which are not."""
    found = {}
    for name in names:
        if name not in METHODS:
            raise SystemExit(f"no method {name!r}; there are {', '.join(METHODS)}")
        version = version_of(name)
        if version is None:
            print(f"{name} is not installed: skipped")
        else:
            found[name] = version
    return found


def chosen_works(names, works):
    for name in names:
        if name not in works:
            raise SystemExit(f"no work {name!r}; there are {', '.join(works)}")
    return {name: works[name] for name in names}


def loss_of(X, y, fit, loss):
    """The mean loss of these rows."""
    z = np.asarray(X @ fit.x) + fit.constant
    return float(np.mean(np.logaddexp(0.0, -y * z)) if loss == "logistic" else np.mean((z - y) ** 2) / 2)


def objective(X, y, fit, l2, loss):
    return loss_of(X, y, fit, loss) + 0.5 * l2 * float(fit.x @ fit.x)


def warm_up(methods):
    """One small fit of every kind, so that compiling and imports are not counted.

    Of few columns and of many, dense and with few entries: ksparse has kernels of its own for each.
    """
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 400))
    few = X * (rng.random(X.shape) < 0.05)
    z = X[:, 0] - X[:, 1] + 0.5 * rng.standard_normal(60)
    for part in (X[:, :20], X, sparse.csr_matrix(X[:, :20]), sparse.csr_matrix(few)):
        for loss, y in (("squared", z), ("logistic", np.where(z > 0, 1.0, -1.0))):
            for method in methods:
                METHODS[method](part, y, 3, 0.01, loss)
