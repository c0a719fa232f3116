"""What must hold of every result, by NumPy alone: nothing here calls the code that is tested."""

from __future__ import annotations

import math

import numpy as np

EPS = 2.0**-52
FAILED = ("diverged", "stalled", "stage limit", "time limit", "interrupted", "stopped")


def loss_values(loss, z, y, delta=1.35):
    """The loss of every row; z of shape (n,), or (n, outputs) for several targets and for class numbers y."""
    with np.errstate(all="ignore"):
        if loss == "softmax":
            top = z.max(axis=1)
            return top + np.log(np.exp(z - top[:, np.newaxis]).sum(axis=1)) - z[np.arange(len(z)), y]
        if loss == "squared":
            half = 0.5 * (z - y) ** 2
            return half if half.ndim == 1 else half.sum(axis=1)
        if loss == "logistic":
            return np.logaddexp(0.0, -y * z)
        if loss == "poisson":
            return np.exp(z) - y * z
        if loss == "gamma":
            return y * np.exp(-z) + z
        if loss == "huber":
            r = np.abs(z - y)
            return np.where(r <= delta, 0.5 * r * r, delta * (r - 0.5 * delta))
        return np.maximum(0.0, 1.0 - y * z) ** 2


class Objective:
    """F(x, b) = mean of w̃·φ(Ax + b + offset, y) + l2/2·|x·scale|², and how much of it may be rounding."""

    def __init__(self, A, y, loss, l2=0.0, weight=None, offset=None, scale=None, eps=EPS, tiny=1e-323):
        n = len(A)
        self.A, self.y, self.loss, self.l2, self.eps, self.tiny = A, y, loss, l2, eps, tiny
        self.weight = np.ones(n) if weight is None else np.broadcast_to(weight / weight.max(), n)
        self.weight = self.weight * (n / self.weight.sum())
        self.offset = 0.0 if offset is None else offset
        self.scale = np.ones(A.shape[1]) if scale is None else scale

    def mean(self, values):
        return float(np.mean(np.where(self.weight > 0, self.weight * values, 0.0)))

    def at(self, x, b=0.0):
        """F, and the error that rounding of the predictions allows."""
        with np.errstate(all="ignore"):
            used = np.flatnonzero(x if x.ndim == 1 else x.any(axis=1))
            z = self.A[:, used] @ x[used] + b + self.offset
            size = np.abs(self.A[:, used]) @ np.abs(x[used]) + np.abs(b) + np.abs(self.offset)
            target = 0.0 if self.loss == "softmax" else np.abs(self.y)
            error = 64.0 * self.eps * (size + target)
            size = 1.0 + np.abs(self.A).sum(axis=1).reshape(-1, *[1] * (x.ndim - 1))
            error += self.tiny * size  # coefficients and intercept underflow
            values = loss_values(self.loss, z, self.y)
            if self.loss == "softmax":  # what all classes share changes nothing: the own class against the others
                error = np.where(np.arange(error.shape[1]) == self.y[:, np.newaxis], error, -error)
            moved = [np.abs(loss_values(self.loss, z + sign * error, self.y) - values) for sign in (-1.0, 1.0)]
            scaled = (x.T * self.scale)[..., used] if x.ndim == 1 else x[used].T * self.scale[used]
            ridge = 0.5 * self.l2 * float(np.sum(scaled**2)) if self.l2 else 0.0
            terms = np.abs(values) + (self.terms(z) if self.loss in ("softmax", "poisson", "gamma") else 0.0)
            slack = self.mean(moved[0]) + self.mean(moved[1]) + 64.0 * self.eps * (self.mean(terms) + ridge)
            return self.mean(values) + ridge, slack

    def terms(self, z):
        """The size of what nearly cancels in the loss of a row."""
        if self.loss == "softmax":
            return 1.0 + np.abs(z).max(axis=1)
        if self.loss == "gamma":
            return self.y * np.exp(-z) + np.abs(z)
        return np.exp(z) + np.abs(self.y * z)

    def of_target(self, t):
        offset = self.offset if np.ndim(self.offset) < 2 else self.offset[:, t % self.offset.shape[1]]
        return Objective(self.A, self.y[:, t], self.loss, self.l2, self.weight, offset, self.scale, self.eps, self.tiny)

    def empty(self, kept=(), intercept=True, outputs=None):
        """F of the model of intercept and kept columns: by damped Newton steps, so that it is never too low.

        Columns whose squares underflow count as zeros, unless they are standardised; those so small that a coefficient
        of one would be infinite count as zeros in any case.
        """
        kept = np.asarray(kept, dtype=int).ravel()
        if kept.size:
            size = np.abs(self.A[:, kept]).max(axis=0)
            with np.errstate(all="ignore"):
                kept = kept[(size > 1.0 / np.finfo(float).max) & (size / self.scale[kept] > 1e-154)]
        n, k = len(self.A), kept.size + intercept
        x, b = np.zeros(self.A.shape[1] if outputs is None else (self.A.shape[1], outputs)), 0.0
        best, slack = self.at(x, b)
        if outputs is not None and self.loss == "squared":
            parts = [self.of_target(t).empty(kept, intercept) for t in range(outputs)]
            return sum(value for value, _ in parts), sum(error for _, error in parts)
        if intercept and self.loss == "softmax":
            return self.at(x, np.log(np.bincount(self.y, self.weight, minlength=outputs) / n + 1e-300))
        if k == 0 or outputs is not None:
            return best, slack
        block = np.column_stack([np.ones((n, int(intercept))), self.A[:, kept]])
        v, ridge = np.zeros(k), np.concatenate([np.zeros(int(intercept)), self.l2 * self.scale[kept] ** 2])
        for _ in range(50):
            with np.errstate(all="ignore"):
                z = block @ v + self.offset
                g, h = slopes(self.loss, z, self.y)
                root = np.sqrt(self.weight * np.maximum(h, 1e-12) / n)
                rows = np.vstack([block * root[:, np.newaxis], np.diag(np.sqrt(ridge))])
                right = np.concatenate([-self.weight * g / n / np.maximum(root, 1e-300), -np.sqrt(ridge) * v])
                units = np.abs(rows).max(axis=0)
                units[~(units > 0)] = 1.0
                if not (np.isfinite(rows).all() and np.isfinite(right).all()):
                    break
                # products of columns, by which the package fits, do not tell columns apart that differ by less
                step = np.linalg.lstsq(rows / units, right, rcond=1e-7)[0] / units
            for size in (1.0, 0.3, 0.1, 0.01):
                new = v + size * step
                x[kept] = new[int(intercept) :]
                value, error = self.at(x, float(new[0]) if intercept else 0.0)
                if value < best - 1e-12 * abs(best):
                    v, best, slack = new, value, error
                    break
            else:
                break
        return best, slack


def column_sizes(A, weight, intercept):
    """The standard deviation of every column; without an intercept the root of its mean square."""
    with np.errstate(all="ignore"):
        share = np.ones(len(A)) if weight is None else weight / weight.max()
        half = 0.5 * A  # which cannot overflow when a row is subtracted
        half = half - half[0] if intercept else half  # exact, where all entries lie far from zero
        unit = np.abs(half).max(axis=0)
        unit[~(unit > 0)] = 1.0
        centred = half / unit - (np.average(half / unit, axis=0, weights=share) if intercept else 0.0)
        return 2.0 * unit * np.sqrt(np.average(centred**2, axis=0, weights=share))


def slopes(loss, z, y, delta=1.35):
    """First and second derivatives in z."""
    one = np.ones_like(z)
    if loss == "squared":
        return z - y, one
    if loss == "logistic":
        p = 1.0 / (1.0 + np.exp(y * z))
        return -y * p, p * (1.0 - p)
    if loss == "poisson":
        return np.exp(z) - y, np.exp(z)
    if loss == "gamma":
        return 1.0 - y * np.exp(-z), y * np.exp(-z)
    if loss == "huber":
        return np.clip(z - y, -delta, delta), np.where(np.abs(z - y) <= delta, 1.0, 0.01)
    return np.where(y * z < 1.0, -2.0 * y * (1.0 - y * z), 0.0), np.where(y * z < 1.0, 2.0, 0.01)


def check_fit(expect, F, x, b, reported, status, k, *, units=None, kept=(), intercept=False, positive=False,
              radius=math.inf, x0=None):  # fmt: skip
    """The invariants of one model: `expect(holds, kind, text)` notes what does not hold."""
    free = np.setdiff1d(np.arange(len(x)), kept)
    used = free[x[free] != 0] if x.ndim == 1 else free[x[free].any(axis=1)]
    chosen = used if units is None else np.unique(np.asarray(units)[used])
    expect(chosen.size <= k, "support", f"{chosen.size} chosen, k = {k}")
    finite = bool(np.isfinite(x).all() and np.isfinite(b).all() and np.isfinite(reported))
    expect(finite or status not in ("converged",), "not finite", f"status {status}, objective {reported}")
    if not finite:
        return
    value, slack = F.at(x, b)
    off = abs(value - reported) > 1e-6 * abs(value) + slack + 1e-300 and math.isfinite(value)
    expect(not off, "objective", f"reported {reported!r}, F(x) {value!r}, rounding {slack:.2g}, {status}")
    if status not in FAILED:
        empty, more = F.empty(kept, intercept, None if x.ndim == 1 else x.shape[1])
        # solvers stop by a change of 1e-6 of the objective, or of that at zero or x0 where it is below one
        start = max(abs(F.at(point)[0]) for point in (np.zeros_like(x), np.zeros_like(x) if x0 is None else x0))
        floor = 2e-5 * max(abs(empty), min(1.0, start)) + 1e-13 * start
        if F.loss not in ("squared", "huber"):
            # likelihoods and margins have a scale of their own; where their minimum is at infinity, 200 Newton steps
            # with a damping of 1e-6 end at about 1e-6/200
            floor += 1e-8
        text = f"F(x) {value!r}, empty model {empty!r}, {status}"
        best = empty + floor + slack + more
        expect(value <= best or not math.isfinite(best), "worse than nothing", text)
    if positive:
        expect(not (x[free] < 0).any(), "sign", f"{x[free].min()}")
    if radius < math.inf:
        scaled = x[free] * F.scale[free]
        size = float(np.abs(scaled).max(initial=0.0))
        norm = size * float(np.linalg.norm(scaled / size)) if size else 0.0
        expect(norm <= radius * (1 + 1e-9), "radius", f"{norm} > {radius}")


def same(a, b, slack=0.0):
    """Equal arrays of numbers or labels; numbers may differ by rounding, and by `slack`."""
    a, b = np.asarray(a), np.asarray(b)
    if a.shape != b.shape or a.dtype.kind not in "fc":
        return a.shape == b.shape and bool((a == b).all())
    with np.errstate(all="ignore"):
        return bool(np.all((np.abs(a - b) <= 1e-9 * np.abs(b) + slack) | (a == b) | (np.isnan(a) & np.isnan(b))))
