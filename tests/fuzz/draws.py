"""Random arguments: matrices of every shape, scale and layout, targets, weights, and values that are wrong."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import scipy.sparse as sparse

from ksparse.sources import Blocks

LOSSES = ("squared", "logistic", "poisson", "gamma", "huber", "squared_hinge")
BAD = [
    None, math.nan, math.inf, -math.inf, -1, 0, 0.5, 2.5, 10**30, True, "text", "", b"bytes", 1j, [], [[]], {}, (),
    object(), [1, "a"], [1.0, math.nan], [[1.0], [1.0, 2.0]], np.datetime64("2020-01-01"), np.ones((2, 2, 2)), int,
    np.ma.masked, np.array(None), sparse.csr_matrix((2, 3)), ["x", "y"], np.array([]), -0.0, {"a": 1}, range(3),
]  # fmt: skip


def pick(rng, *options):
    return options[int(rng.integers(len(options)))]


def chance(rng, share):
    return bool(rng.random() < share)


def shape(rng, rows=40, columns=16):
    """From 1x1 up; small ones, and more columns than rows, are frequent."""
    n, d = (int(min(top, rng.geometric(2.0 / top))) for top in (rows, columns))
    return pick(rng, (n, d), (n, d), (n + columns, d), (n + columns, d), (1, d), (n, 1), (min(n, d), d + n))


def values(rng, n, d):
    """Dense float64 rows with columns that are duplicate, constant, zero, near-collinear, far from zero or of any
    scale."""
    X = rng.standard_normal((n, d))
    kind = rng.integers(6)
    if kind == 1:
        X = np.round(2.0 * X)
    elif kind == 2:
        X = (X > 0.5).astype(float)
    elif kind == 3:
        X = X * (rng.random((n, d)) < 0.3)
    elif kind == 4:
        X = rng.standard_cauchy((n, d))
    for _ in range(int(rng.integers(4)) if chance(rng, 0.6) else 0):
        j, other = rng.integers(d, size=2)
        X[:, j] = [
            X[:, other],
            np.full(n, rng.standard_normal()),
            np.zeros(n),
            X[:, other] * (1.0 + 1e-9 * rng.standard_normal(n)),
            X[:, j] + 10.0 ** rng.uniform(2, 13),
            X[:, j] * 10.0 ** rng.uniform(-6, 6),
            -X[:, other],
        ][rng.integers(7)]
    if chance(rng, 0.12):  # the ends of the range of floats
        j, power = rng.integers(d), pick(rng, -320, -310, -300, -160, -80, -40, 40, 80, 150, 300)
        with np.errstate(all="ignore"):
            X[:, slice(None) if chance(rng, 0.3) else j] *= float(f"1e{power}")
    return X


def layout(rng, X, sources=True):
    """The same rows in some form that the library takes, and what they are as dense float64."""
    kind = pick(rng, "C", "C", "C", "F", "float32", "csr", "csr", "messy", "blocks", "frame", "list", "csc", "ints")
    if kind == "blocks" and not sources:
        kind = "C"
    if kind == "float32":
        with np.errstate(all="ignore"):
            X = X.astype(np.float32)
        given = X if chance(rng, 0.6) else sparse.csr_matrix(X)
    elif kind == "messy":
        given = messy(rng, X)
    elif kind == "ints":
        given = X = np.round(np.clip(X, -1e6, 1e6)).astype(pick(rng, np.int64, np.int8, np.uint16, bool))
    else:
        make = {
            "C": np.ascontiguousarray, "F": np.asfortranarray, "csr": sparse.csr_matrix, "csc": sparse.csc_matrix,
            "frame": lambda X: pd.DataFrame(X, columns=[f"x{j}" for j in range(X.shape[1])]), "list": np.ndarray.tolist,
            "blocks": lambda X: blocks(rng, X),
        }  # fmt: skip
        given = make[kind](X)
    dense = given.toarray() if sparse.issparse(given) else np.asarray(X)
    return given, dense.astype(np.float64)


def messy(rng, X):
    """CSR with duplicate entries, explicit zeros and unsorted columns."""
    rows, columns = np.nonzero((X != 0) | (rng.random(X.shape) < 0.2))
    data, twice = X[rows, columns], rng.random(rows.size) < 0.4
    half = np.where(twice, 0.5 * data, data)
    rows, columns = np.concatenate([rows, rows[twice]]), np.concatenate([columns, columns[twice]])
    with np.errstate(invalid="ignore"):
        data = np.concatenate([half, (data - half)[twice]])
    order = np.lexsort((rng.random(rows.size), rows))
    counts = np.bincount(rows, minlength=X.shape[0])
    return sparse.csr_matrix((data[order], columns[order], np.concatenate([[0], np.cumsum(counts)])), shape=X.shape)


def blocks(rng, X):
    cuts = np.sort(rng.integers(0, X.shape[0] + 1, size=int(rng.integers(0, 4))))
    pieces = [piece for piece in np.split(X, cuts) if len(piece)]
    return Blocks([sparse.csr_matrix(piece) for piece in pieces] if chance(rng, 0.3) else pieces)


def signal(rng, X):
    """A sparse linear function of the columns, each by its own size, with noise."""
    n, d = X.shape
    with np.errstate(all="ignore"):
        size = np.nan_to_num(np.abs(X).max(axis=0), posinf=1.0)
        z = (X / np.where(size > 1e-300, size, 1.0)) @ (rng.standard_normal(d) * (rng.random(d) < 3.0 / d))
    return np.nan_to_num(z) + pick(rng, 0.0, 0.1, 1.0) * rng.standard_normal(n)


def target(rng, X, loss):
    z = signal(rng, X)
    if loss in ("logistic", "squared_hinge"):
        y = np.where(z + 0.1 * rng.standard_normal(z.size) > np.median(z), 1.0, -1.0)
        if z.size > 1 and (y == y[0]).all():
            y[0] = -y[0]
        return y
    if loss == "poisson":
        return rng.poisson(np.exp(np.clip(z, -5.0, 5.0))).astype(float)
    if loss == "gamma":
        return np.exp(np.clip(z, -5.0, 5.0)) * pick(rng, 1.0, 1.0, 1e-6, 1e6)
    y = z + pick(rng, 0.0, 0.0, 1.0, 1e6)
    if chance(rng, 0.1):
        y = np.clip(y, -1e100, 1e100) * float(f"1e{pick(rng, -310, -200, -100, -20, 20, 39, 100)}")
    return np.zeros_like(y) if chance(rng, 0.03) else y


def labels(rng, X):
    """Two or more classes as text, numbers or booleans."""
    count = pick(rng, 2, 2, 2, 3, 4)
    z = signal(rng, X) + 1e-6 * rng.standard_normal(len(X))
    index = np.searchsorted(np.quantile(z, np.arange(1, count) / count), z)
    names = [np.arange(count), np.array(["a", "=b", "ü", "d"])[:count], np.array([-1.0, 2.0, 3.0, 1e9])[:count]]
    return pick(rng, *names)[index] if count > 2 or chance(rng, 0.8) else index == 1


def weight(rng, n):
    w = rng.random(n) * (rng.random(n) < 0.8) * pick(rng, 1.0, 1.0, 1.0, 1e-200, 1e200)
    if not w.any():
        w[rng.integers(n)] = 1.0
    return np.round(5.0 * w / w.max()) if chance(rng, 0.3) else w


def ridge(rng):
    return pick(rng, 0.0, 0.0, 0.0, 1e-8, 1e-3, 0.1, 10.0, 1e8, 1e-300)


def spoil(rng, arguments, share=0.12):
    """Now and then one argument is wrong, or the wrong length."""
    if chance(rng, share):
        name = pick(rng, *arguments)
        value = arguments[name]
        if isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype.kind == "f" and chance(rng, 0.5):
            bad = value.copy()
            bad[rng.integers(bad.size)] = pick(rng, math.nan, math.inf, -1.0, 1e308)
            arguments[name] = pick(rng, bad, value[:-1], np.append(value, 0.0), value[:, np.newaxis], value.astype(str))
        else:
            arguments[name] = pick(rng, *BAD)
    return arguments
