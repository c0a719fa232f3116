r"""Losses :math:`\varphi(z, y)` of a prediction z = a·x: value, derivative, curvature, and a bound on the curvature.

A loss is a NamedTuple (its fields are its parameters) and four rules, found by type inside compiled code.  To add one:
write it here, with its rules, and enter it in ``LOSSES``; no other file changes.  A loss of your own, defined anywhere
with the same four rules, can be handed to every solver as an instance.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ._jit import SUMS, generic, inner, kernel
from ._validate import check_choice, check_number


@generic
def value(loss, z, y):
    """The loss of one row."""


@generic
def deriv(loss, z, y):
    """Its derivative in z."""


@generic
def curvature(loss, z, y):
    """Its second derivative in z (almost everywhere)."""


@inner(hot=True)
def weighted_derivative(loss, z, y, weight):
    """weight·φ'(z), and zero for a row of weight zero even where φ' overflows."""
    return weight * deriv(loss, z, y) if weight > 0.0 else 0.0


@generic
def curvature_bound(loss):
    """The largest curvature anywhere; inf if there is none."""


# ---------------------------------------------------------------------------------------------------------------------
class Squared(NamedTuple):
    """Half the squared residual, (z − y)²/2."""

    @property
    def quadratic(self) -> bool:
        """Its curvature is the same everywhere."""
        return True


@value.rule(Squared)
def _(loss, z, y):
    return 0.5 * (z - y) * (z - y)


@deriv.rule(Squared)
def _(loss, z, y):
    return z - y


@curvature.rule(Squared)
def _(loss, z, y):
    return 1.0


@curvature_bound.rule(Squared)
def _(loss):
    return 1.0


# ---------------------------------------------------------------------------------------------------------------------
class Logistic(NamedTuple):
    """log(1 + exp(−y z)) for y = ±1."""

    @property
    def targets(self) -> str:
        """The kind of targets: "labels" (±1), "counts", "positive" or, without this property, "real"."""
        return "labels"

    def check_target(self, y: NDArray[np.float64]) -> None:
        _check_signs(y, "logistic")


@value.rule(Logistic)
def _(loss, z, y):
    t = y * z
    return np.log1p(np.exp(-abs(t))) + max(-t, 0.0)


@deriv.rule(Logistic)
def _(loss, z, y):
    t = y * z
    e = np.exp(-abs(t))  # never overflows
    return -y * (e if t > 0.0 else 1.0) / (1.0 + e)


@curvature.rule(Logistic)
def _(loss, z, y):
    e = np.exp(-abs(z))
    return e / ((1.0 + e) * (1.0 + e))


@curvature_bound.rule(Logistic)
def _(loss):
    return 0.25


# ---------------------------------------------------------------------------------------------------------------------
class Poisson(NamedTuple):
    """exp(z) − y z for y ≥ 0: the negative log-likelihood of a count with mean exp(z), less the constant log y!."""

    @property
    def targets(self) -> str:
        """The kind of targets: "labels" (±1), "counts", "positive" or, without this property, "real"."""
        return "counts"

    def inverse_link(self, z: NDArray[Any]) -> NDArray[Any]:
        """The expected target at prediction z; without this method it is z itself."""
        return np.exp(z)

    def check_target(self, y: NDArray[np.float64]) -> None:
        if (y < 0).any():
            at = int(np.flatnonzero(y < 0)[0])
            raise ValueError(f"y must not be negative for the poisson loss, got {y[at]:g} at index {at}")


@value.rule(Poisson)
def _(loss, z, y):
    return np.exp(z) - y * z


@deriv.rule(Poisson)
def _(loss, z, y):
    return np.exp(z) - y


@curvature.rule(Poisson)
def _(loss, z, y):
    return np.exp(z)


@curvature_bound.rule(Poisson)
def _(loss):
    return np.inf


# ---------------------------------------------------------------------------------------------------------------------
class Gamma(NamedTuple):
    """y exp(−z) + z for y > 0: the negative log-likelihood of a Gamma variable with mean exp(z), up to its shape."""

    @property
    def targets(self) -> str:
        """The kind of targets: "labels" (±1), "counts", "positive" or, without this property, "real"."""
        return "positive"

    def inverse_link(self, z: NDArray[Any]) -> NDArray[Any]:
        """The expected target at prediction z."""
        return np.exp(z)

    def check_target(self, y: NDArray[np.float64]) -> None:
        if not (y > 0).all():
            at = int(np.flatnonzero(~(y > 0))[0])
            raise ValueError(f"y must be positive for the gamma loss, got {y[at]:g} at index {at}")


@value.rule(Gamma)
def _(loss, z, y):
    return y * np.exp(-z) + z


@deriv.rule(Gamma)
def _(loss, z, y):
    return 1.0 - y * np.exp(-z)


@curvature.rule(Gamma)
def _(loss, z, y):
    return y * np.exp(-z)


@curvature_bound.rule(Gamma)
def _(loss):
    return np.inf


# ---------------------------------------------------------------------------------------------------------------------
class Huber(NamedTuple):
    """Squared up to `delta`, then linear: an outlier pulls with a bounded force."""

    delta: float = 1.35


@value.rule(Huber)
def _(loss, z, y):
    r = abs(z - y)
    return 0.5 * r * r if r <= loss.delta else loss.delta * (r - 0.5 * loss.delta)


@deriv.rule(Huber)
def _(loss, z, y):
    r = z - y
    return loss.delta if r > loss.delta else (-loss.delta if r < -loss.delta else r)


@curvature.rule(Huber)
def _(loss, z, y):
    return 1.0 if abs(z - y) <= loss.delta else 0.0


@curvature_bound.rule(Huber)
def _(loss):
    return 1.0


# ---------------------------------------------------------------------------------------------------------------------
class SquaredHinge(NamedTuple):
    """max(0, 1 − y z)² for y = ±1."""

    @property
    def targets(self) -> str:
        """The kind of targets: "labels" (±1), "counts", "positive" or, without this property, "real"."""
        return "labels"

    def check_target(self, y: NDArray[np.float64]) -> None:
        _check_signs(y, "squared_hinge")


@value.rule(SquaredHinge)
def _(loss, z, y):
    gap = 1.0 - y * z
    return 0.0 if gap < 0.0 else gap * gap  # in this order NaN stays NaN


@deriv.rule(SquaredHinge)
def _(loss, z, y):
    gap = 1.0 - y * z
    return 0.0 if gap < 0.0 else -2.0 * y * gap


@curvature.rule(SquaredHinge)
def _(loss, z, y):
    return 2.0 if y * z < 1.0 else 0.0


@curvature_bound.rule(SquaredHinge)
def _(loss):
    return 2.0


# --- all rows at once ------------------------------------------------------------------------------------------------
@kernel
def start_curvature(loss, offset, y):
    """A size for an unbounded φ'' around the start z = offset: |φ''| + |φ'| (for Poisson at least the target)."""
    out = np.empty(y.size)
    for i in range(y.size):
        out[i] = curvature(loss, offset[i], y[i]) + abs(deriv(loss, offset[i], y[i]))
    return out


@kernel
def curvatures(loss, z, y):
    """φ''(z_i, y_i) of every row."""
    out = np.empty(y.size)
    for i in range(y.size):
        out[i] = curvature(loss, z[i], y[i])
    return out


@generic(fastmath=SUMS)
def evaluate(loss, z, y, weight, derivative, curvatures):
    """w̃φ' and w̃φ'' of every row at its prediction, and the sum of w̃φ."""


@evaluate.rule(object)
def _(loss, z, y, weight, derivative, curvatures):
    total = 0.0
    for i in range(y.size):
        derivative[i] = curvatures[i] = 0.0
        if weight[i] > 0.0:
            total += weight[i] * value(loss, z[i], y[i])
            derivative[i] = weight[i] * deriv(loss, z[i], y[i])
            curvatures[i] = weight[i] * curvature(loss, z[i], y[i])
    return total


class SoftmaxLoss(NamedTuple):
    """log Σ_c exp(z_c) − z_y for classes y = 0, 1, ...; only `evaluate` knows it, with predictions of all classes."""


@evaluate.rule(SoftmaxLoss)
def _(loss, z, y, weight, derivative, curvatures):
    """z holds the predictions of one class after the other; the probabilities stand for the curvatures."""
    n, total = y.size, 0.0
    C = z.size // n
    for i in range(n):
        top = z[i]
        for c in range(1, C):
            top = max(top, z[c * n + i])
        whole, own = 0.0, int(y[i]) * n + i
        for c in range(C):
            curvatures[c * n + i] = np.exp(z[c * n + i] - top)
            whole += curvatures[c * n + i]
        if weight[i] > 0.0:
            total += weight[i] * (np.log(whole) + top - z[own])
        for c in range(C):
            curvatures[c * n + i] /= whole
            derivative[c * n + i] = weight[i] * curvatures[c * n + i] if weight[i] > 0.0 else 0.0
        derivative[own] -= weight[i]
    return total


class SquaredTargets(NamedTuple):
    """Half the squared residuals of several targets, one after the other; only `evaluate` knows it."""


@evaluate.rule(SquaredTargets)
def _(loss, z, y, weight, derivative, curvatures):
    n, total = weight.size, 0.0
    for i in range(y.size):
        w, residual = weight[i % n], z[i] - y[i]
        derivative[i], curvatures[i] = w * residual, w
        total += 0.5 * w * residual * residual
    return total


@evaluate.rule(Logistic)
def _(loss, z, y, weight, derivative, curvatures):
    """The same without calls of exp and log, in loops that vectorise, in a third of the time.

    exp(−m) = 2^−q·exp(t) with |t| ≤ log(2)/2, and log(1 + e) = 2·artanh(e/(2 + e)), both by their series to rounding.
    """
    n, total, bits = np.uint64(y.size), 0.0, derivative.view(np.int64)
    for i in range(n):
        m = abs(z[i])
        m = 708.0 if m > 708.0 else m  # in this order NaN stays NaN
        q = np.floor(m * 1.4426950408889634 + 0.5)
        t = (q * 0.693147180369123816490 - m) + q * 1.90821492927058770002e-10  # log(2) in two parts
        p = 1 / 40320 + t * (1 / 362880 + t * (1 / 3628800 + t * (1 / 39916800 + t / 479001600)))
        p = 1 / 24 + t * (1 / 120 + t * (1 / 720 + t * (1 / 5040 + t * p)))
        curvatures[i] = 1.0 + t * (1.0 + t * (0.5 + t * (1 / 6 + t * p)))
        derivative[i] = 4503599627371519.0 - q  # 2^52 + 1023 − q: 1023 − q in the last bits, the exponent of 2^−q
    for i in range(n):
        bits[i] = bits[i] << 52
    for i in range(n):
        e = curvatures[i] * derivative[i]
        s = e / (2.0 + e)
        r = s * s
        p = 1 / 19 + r * (1 / 21 + r * (1 / 23 + r * (1 / 25 + r * (1 / 27 + r * (1 / 29 + r / 31)))))
        p = 1 / 7 + r * (1 / 9 + r * (1 / 11 + r * (1 / 13 + r * (1 / 15 + r * (1 / 17 + r * p)))))
        p = s * (2.0 + r * (2 / 3 + r * (2 / 5 + r * 2.0 * p)))
        t, w, share = y[i] * z[i], weight[i], 1.0 / (1.0 + e)
        total += w * (p if t > 0.0 else p - t) if w > 0.0 else 0.0
        derivative[i] = -w * y[i] * (e * share if t > 0.0 else share) if w > 0.0 else 0.0
        curvatures[i] = w * e * share * share if w > 0.0 else 0.0
    return total


@kernel
def evaluate_rows(loss, z, y, weight, derivative, curvatures):
    """`evaluate` for callers in Python."""
    return evaluate(loss, z, y, weight, derivative, curvatures)


@kernel
def total_losses(loss, z, y, weight):
    """The sum of w·φ over the rows, for every line of predictions z, (models, n)."""
    out, derivative, curvatures = np.empty(z.shape[0]), np.empty(y.size), np.empty(y.size)
    for m in range(z.shape[0]):
        out[m] = evaluate(loss, z[m], y, weight, derivative, curvatures)
    return out


# ---------------------------------------------------------------------------------------------------------------------
LOSSES: dict[str, type] = {
    "squared": Squared,
    "logistic": Logistic,
    "poisson": Poisson,
    "gamma": Gamma,
    "huber": Huber,
    "squared_hinge": SquaredHinge,
}


def kind_of_targets(name: str) -> str:
    """What the targets of a loss in the registry are: "real", "counts", "positive" or "labels"."""
    return getattr(LOSSES[name](), "targets", "real")


def named(labels: bool) -> list[str]:
    """The names of the losses for labels ±1, which classifiers take, or of all others."""
    return [name for name in LOSSES if (kind_of_targets(name) == "labels") == labels]


def resolve(loss: Any) -> Any:
    """A loss from its name, or an instance as it is (a foreign one must have all four rules)."""
    if isinstance(loss, tuple):
        missing = [rule.__name__ for rule in (value, deriv, curvature, curvature_bound) if type(loss) not in rule.rules]
        if missing:
            raise ValueError(f"loss {type(loss).__name__} lacks the rules {', '.join(missing)}; see ksparse.losses")
        if isinstance(loss, Huber):
            return Huber(check_number(loss.delta, "loss.delta", strict=True))
        return loss
    return LOSSES[check_choice(loss, "loss", LOSSES)]()


def check_target(loss: Any, y: NDArray[np.float64]) -> None:
    """Raise if these targets make no sense for this loss."""
    check = getattr(loss, "check_target", None)
    if check is not None:
        check(y)


def _check_signs(y: NDArray[np.float64], name: str) -> None:
    if not (np.abs(y) == 1.0).all():
        classes = np.unique(y)
        shown = ", ".join(f"{c:g}" for c in classes[:5]) + (", ..." if classes.size > 5 else "")
        remedy = (
            f"np.where(y == {classes[-1]:g}, 1, -1) recodes them" if classes.size == 2 else "two classes are needed"
        )
        raise ValueError(f"y must be -1 or +1 for the {name} loss, got the values {shown}; {remedy}")
    # One row has one label, and is a fair problem still; many rows with one label are a mistake in the data.
    if y.size > 1 and (y == y[0]).all():
        raise ValueError(f"y must hold two classes for the {name} loss, got only {y[0]:g}")
