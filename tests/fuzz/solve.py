"""`minimize` with every solver and `joint`."""

from __future__ import annotations

import math

import numpy as np
from draws import LOSSES, chance, labels, layout, pick, ridge, shape, spoil, target, values, weight
from invariants import EPS, Objective, check_fit, column_sizes

import ksparse
from ksparse.solvers import SOLVERS

ANY_LOSS = ("ht-svrg", "ht-saga", "stoiht", "iht", "pgd", "grasp", "grahtp", "exchange")
BOUNDED = ("ht-svrg", "ht-saga", "stoiht", "pgd")  # they know signs and a radius


def problem(rng, X, n, d):
    """Settings that `minimize` and `joint` share."""
    settings = {"l2": ridge(rng), "intercept": chance(rng, 0.5)}
    if chance(rng, 0.3):
        settings["sample_weight"] = weight(rng, n)
    if chance(rng, 0.2):
        settings["offset"] = rng.standard_normal(n) * pick(rng, 1.0, 1.0, 1e-10, 30.0)
    if d > 1 and chance(rng, 0.3):
        settings["always_keep"] = rng.permutation(d)[: rng.integers(1, max(2, min(4, d)))]
    return settings


def fuzz_minimize(rng, watch):
    n, d = shape(rng)
    A, X = layout(rng, values(rng, n, d))
    loss = pick(rng, "squared", "squared", *LOSSES)
    settings = problem(rng, X, n, d)
    free = d - len(settings.get("always_keep", ()))
    k = int(rng.integers(1, free + 1)) if chance(rng, 0.97) else d + 1
    arguments = {"y": target(rng, X, loss), "k": k, "loss": loss, "random_state": 0, **settings}
    if chance(rng, 0.8):
        able = list(SOLVERS) if loss == "squared" or chance(rng, 0.05) else ANY_LOSS
        arguments["solver"] = pick(rng, *able)
    if arguments.get("solver") in BOUNDED and chance(rng, 0.4):
        arguments.update(pick(rng, {"positive": True}, {"radius": pick(rng, 1e-12, 0.1, 1.0, 10.0, 1e300)}))
    if chance(rng, 0.3):
        arguments["x0"] = rng.standard_normal(d) * (rng.random(d) < 0.5) * pick(rng, 1.0, 1.0, 1e4, 1e10, 1e-8)
    if chance(rng, 0.25):
        arguments["standardize"] = True
    if chance(rng, 0.05):
        arguments["max_time"] = pick(rng, 1e-9, 10.0)
    arguments = spoil(rng, {"A": A, **arguments})
    watch.note("minimize", arguments)
    result = watch.call(ksparse.minimize, names=["HTSAGA"], **arguments)  # a solver may speak of itself
    if arguments["A"] is not A:  # what should have been wrong was another matrix
        return
    F, start = objective(X, arguments), arguments.get("x0")
    start = None if start is None else np.ravel(np.asarray(start, dtype=float))
    check_fit(
        watch.expect, F, result.x, result.intercept, result.objective, result.status, k, kept=kept_columns(arguments),
        intercept=arguments.get("intercept", False), positive=arguments.get("positive", False),
        radius=arguments.get("radius", math.inf) or math.inf, x0=start,
    )  # fmt: skip
    watch.expect(np.array_equal(result.support, np.flatnonzero(result.x)), "support_", "not the non-zeros of x")


def kept_columns(arguments):
    kept = arguments.get("always_keep")
    kept = np.atleast_1d(np.empty(0, int) if kept is None else kept)
    return np.flatnonzero(kept) if kept.dtype == bool else kept.astype(int)


def objective(X, arguments, Y="y"):
    weight = arguments.get("sample_weight")
    y, offset = np.atleast_1d(arguments[Y]), arguments.get("offset")
    y = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
    loss = arguments.get("loss", "squared")
    y = y if loss == "softmax" else y.astype(float)
    if offset is not None:
        offset = np.asarray(offset, dtype=float)
        offset = offset[:, 0] if y.ndim == 1 and loss != "softmax" and offset.ndim == 2 else offset
        offset = offset[:, np.newaxis] if (y.ndim == 2) and offset.ndim == 1 else offset
    weight = None if weight is None else np.asarray(weight, dtype=float).ravel()
    standard = arguments.get("standardize", False)
    scale = column_sizes(X, weight, arguments.get("intercept", False)) if standard else None
    single = standard and getattr(arguments["A"], "dtype", None) == np.float32  # its columns are rounded once more
    eps = 2.0**-23 if single else EPS
    return Objective(X, y, loss, float(arguments.get("l2", 0.0)), weight, offset, scale, eps)


def fuzz_joint(rng, watch):
    n, d = shape(rng)
    A, X = layout(rng, values(rng, n, d))
    loss = pick(rng, "squared", "squared", "softmax", *LOSSES)
    settings = problem(rng, X, n, d)
    if loss == "softmax":
        Y = np.unique(labels(rng, X), return_inverse=True)[1]
        settings.pop("offset", None)
    elif loss == "squared" and chance(rng, 0.6):
        Y = np.column_stack([target(rng, X, loss) for _ in range(rng.integers(1, 4))])
    else:
        Y = target(rng, X, loss)
    k = int(rng.integers(1, d + 1))
    if chance(rng, 0.5):
        settings["groups"] = rng.integers(0, max(1, d // 2), size=d)
        free = np.setdiff1d(np.arange(d), settings.get("always_keep", ()))
        k = int(rng.integers(1, np.unique(settings["groups"][free]).size + 1)) if free.size else k
    outputs = int(Y.max()) + 1 if loss == "softmax" else 1 if Y.ndim == 1 else Y.shape[1]
    if chance(rng, 0.3):
        settings["start"] = rng.standard_normal((d, outputs)) * pick(rng, 1.0, 1.0, 1e4, 1e10)
    arguments = spoil(rng, {"A": A, "Y": Y, "k": k, "loss": loss, **settings})
    watch.note("joint", arguments)
    result = watch.call(ksparse.joint, names=["y"], **arguments)
    if arguments["A"] is not A:
        return
    x, b = result.x, result.intercept
    if loss != "softmax" and x.shape[1] == 1:
        x, b = x[:, 0], b[0]
    check_fit(
        watch.expect, objective(X, arguments, "Y"), x, b, result.objective, result.status, k,
        kept=kept_columns(arguments), units=arguments.get("groups"), intercept=arguments.get("intercept", False),
    )  # fmt: skip
