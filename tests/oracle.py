"""Plain NumPy versions of the algorithms: every coordinate, every step, a stable sort.  Nothing shared with the
package.

They replay a run of the package from its seed: the draws are those the documentation promises.
"""

from __future__ import annotations

import numpy as np
from scipy import sparse
from scipy.special import expit, logsumexp


def slope(loss, z, y):
    """φ'(z, y) of every loss."""
    if loss == "squared":
        return z - y
    if loss == "logistic":
        return -y * expit(-y * z)
    if loss == "poisson":
        return np.exp(z) - y
    if loss == "gamma":
        return 1 - y * np.exp(-z)
    if loss == "huber":
        return np.clip(z - y, -1.35, 1.35)
    if loss == "squared_hinge":
        return -2 * y * np.maximum(0, 1 - y * z)
    raise ValueError(loss)


def value(loss, z, y):
    """φ(z, y)."""
    if loss == "squared":
        return (z - y) ** 2 / 2
    if loss == "logistic":
        return np.logaddexp(0, -y * z)
    if loss == "poisson":
        return np.exp(z) - y * z
    if loss == "gamma":
        return y * np.exp(-z) + z
    if loss == "huber":
        r = np.abs(z - y)
        return np.where(r <= 1.35, r * r / 2, 1.35 * (r - 1.35 / 2))
    if loss == "squared_hinge":
        return np.maximum(0, 1 - y * z) ** 2
    raise ValueError(loss)


def mean_loss(model, X, y, weight=None):
    """The mean loss of a fitted estimator over rows, summed over its outputs."""
    X = X.toarray() if sparse.issparse(X) else np.asarray(X)
    scores = X @ np.atleast_2d(model.coef_).T.astype(np.float64) + np.atleast_1d(model.intercept_)
    y, unit = np.asarray(y), getattr(model, "unit_", 1.0)
    if getattr(model, "multi_class_", None) == "softmax":
        own = np.searchsorted(model.classes_, y)
        each = logsumexp(scores, axis=1) - scores[np.arange(len(y)), own]
    elif hasattr(model, "classes_"):
        positives = model.classes_[1:] if len(model.classes_) == 2 else model.classes_
        each = sum(value(model.loss, z, np.where(y == c, 1.0, -1.0)) for z, c in zip(scores.T, positives, strict=True))
    else:
        targets = y.reshape(len(y), -1).T
        each = sum(value(model.loss, z / unit, t / unit) for z, t in zip(scores.T, targets, strict=True))
    return float(np.average(each, weights=weight))


class Plain:
    """The problem, with the intercept as a last column of ones."""

    def __init__(self, A, y, k, *, loss="squared", weight=None, offset=None, l2=0.0, kept=(), intercept=False,
                 positive=False, radius=np.inf):  # fmt: skip
        A = A.toarray() if sparse.issparse(A) else np.asarray(A)
        A = A.astype(np.float64)
        self.n, self.d = A.shape
        self.A = np.hstack([A, np.ones((self.n, 1))]) if intercept else A
        self.y, self.k, self.loss, self.l2, self.radius, self.positive = y, k, loss, l2, radius, positive
        self.w = np.ones(self.n) if weight is None else np.asarray(weight) * self.n / np.sum(weight)
        self.o = np.zeros(self.n) if offset is None else offset
        self.kept = np.zeros(self.A.shape[1], bool)
        self.kept[list(kept)] = True
        self.ridge = np.full(self.A.shape[1], l2)
        if intercept:
            self.kept[-1] = True
            self.ridge[-1] = 0.0

    def slopes(self, x, rows=slice(None)):
        return self.w[rows] * slope(self.loss, self.A[rows] @ x + self.o[rows], self.y[rows])

    def objective(self, x):
        z = self.A @ x + self.o
        return np.mean(self.w * value(self.loss, z, self.y)) + 0.5 * np.sum(self.ridge * x * x)

    def project(self, b):
        """Π_ω(H_k(b)) outside the kept columns."""
        x = np.where(self.kept, b, 0.0)
        rest = np.where(self.kept, 0.0, np.maximum(b, 0) if self.positive else b)
        score = np.where(self.kept, -1.0, np.abs(rest))
        top = np.argsort(-score, kind="stable")[: self.k]
        chosen = np.zeros_like(b)
        chosen[top] = rest[top]
        return x + chosen / max(1.0, np.linalg.norm(chosen) / self.radius)

    def start(self, x0=None):
        x = np.zeros(self.A.shape[1])
        if x0 is not None:
            x[: self.d] = x0
        return self.project(x)


def ht_svrg(p, eta, m, stages, seed, x0=None, batch_size=1, output="last"):
    """Algorithm 1; the snapshots, the start first."""
    rng = np.random.default_rng(seed)
    snapshots = [p.start(x0)]
    for _ in range(stages):
        idx = rng.integers(0, p.n, size=m if batch_size == 1 else (m, batch_size)).reshape(m, batch_size)
        j = rng.integers(0, m) if output == "random" else m
        x = snapshots[-1]
        old = p.slopes(x)
        mu = p.A.T @ old / p.n
        inner = [x]
        for rows in idx:
            change = p.A[rows].T @ (p.slopes(x, rows) - old[rows]) / batch_size
            x = p.project(x - eta * (change + mu + p.ridge * x))
            inner.append(x)
        snapshots.append(inner[j])
    return snapshots


def ht_saga(p, eta, epochs, seed, x0=None):
    """Algorithm 2, with the ridge taken exactly; the iterate after every epoch, the start first."""
    rng = np.random.default_rng(seed)
    x = p.start(x0)
    table = p.slopes(x)
    average = p.A.T @ table / p.n
    snapshots = [x]
    for _ in range(epochs):
        for i in rng.integers(0, p.n, size=p.n):
            new = p.slopes(x, [i])[0]
            x = p.project(x - eta * ((new - table[i]) * p.A[i] + average + p.ridge * x))
            average = average + (new - table[i]) * p.A[i] / p.n
            table[i] = new
        snapshots.append(x)
    return snapshots


def stoiht(p, eta, epochs, seed, x0=None, batch_size=1):
    rng = np.random.default_rng(seed)
    snapshots = [p.start(x0)]
    steps = max(1, p.n // batch_size)
    for _ in range(epochs):
        x = snapshots[-1]
        for rows in rng.integers(0, p.n, size=(steps, batch_size)):
            x = p.project(x - eta * (p.A[rows].T @ p.slopes(x, rows) / batch_size + p.ridge * x))
        snapshots.append(x)
    return snapshots


def pgd(p, eta, iterations, x0=None):
    snapshots = [p.start(x0)]
    for _ in range(iterations):
        x = snapshots[-1]
        snapshots.append(p.project(x - eta * (p.A.T @ p.slopes(x) / p.n + p.ridge * x)))
    return snapshots
