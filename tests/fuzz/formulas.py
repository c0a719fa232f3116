"""The functions of `theory`, at ordinary and at extreme arguments; its verdicts on small data."""

from __future__ import annotations

import inspect
import math

import numpy as np
from draws import LOSSES, chance, layout, pick, shape, spoil, target, values

from ksparse import theory

DATA = ("certificate", "curvature", "plan", "restricted_isometry", "coherence", "extremal_pair", "deviation_bound")
FORMULAS = sorted(name for name in theory.__all__ if name not in DATA and inspect.isfunction(getattr(theory, name)))
COUNTS = ("k", "K", "d", "r", "n", "m", "stage")


def number(rng, name):
    if name in COUNTS:
        return pick(rng, 1, 2, 3, 7, 40, 10**4, 10**9, 2**53, 2**62, 2**63, 10**30, np.array([3, 50]))
    if name == "algorithm":
        return pick(rng, "iht", "cosamp")
    if name == "bound":
        return pick(rng, "tight", "classic", "jain")
    if name == "printed":
        return chance(rng, 0.5)
    ordinary = float(np.exp(rng.uniform(-5, 5)))
    extreme = pick(rng, 0.0, 1.0, 0.5, 0.999999999999, 1e-300, 5e-324, 1e300, 1.7e308, 4.0, 3.9999999)
    return pick(rng, ordinary, ordinary, extreme, np.array([ordinary, 2.0 * ordinary]))


def fuzz_formula(rng, watch):
    name = pick(rng, *FORMULAS)
    function = getattr(theory, name)
    arguments = {}
    for parameter, about in inspect.signature(function).parameters.items():
        if about.default is inspect.Parameter.empty or chance(rng, 0.5):
            arguments[parameter] = number(rng, parameter)
    if "K" in arguments and "k" in arguments and chance(rng, 0.7) and np.ndim(arguments["k"]) == 0:
        arguments["K"] = int(rng.integers(1, min(arguments["k"], 2**40) + 1))
    arguments = spoil(rng, arguments)
    watch.note(f"theory.{name}", arguments)
    found = watch.call(function, names=["broadcast"], **arguments)  # NumPy's own words for shapes
    parts = [np.asarray(part, dtype=float) for part in (found if isinstance(found, tuple) else [found])]
    watch.expect(not any(np.isnan(part).any() for part in parts), "NaN", f"{found}")
    if name not in ("objective_bound", "distance_bound"):
        watch.expect(all((part >= 0).all() for part in parts), "negative", f"{found}")
    if name in ("minimum_k", "smallest_k", "stages", "largest_k", "rip_order"):
        watch.expect(all((part == np.ceil(part)).all() for part in parts), "no whole number", f"{found}")


def fuzz_data(rng, watch):
    n, d = shape(rng, 20, 6)
    A, X = layout(rng, values(rng, n, d), sources=False)
    loss = pick(rng, "squared", *LOSSES)
    y, k = target(rng, X, loss), int(rng.integers(1, d + 1))
    b, x = rng.standard_normal(d), rng.standard_normal(d) * (rng.random(d) < 0.5)
    name, arguments = pick(
        rng,
        ("certificate", {"A": A, "y": y, "k": k, "K": 1, "loss": loss, "l2": pick(rng, 0.0, 1.0)}),
        ("curvature", {"A": A, "r": k, "loss": loss, "l2": pick(rng, 0.0, 1.0)}),
        ("restricted_isometry", {"A": A, "r": k}),
        ("coherence", {"A": A}),
        ("deviation_bound", {"b": b, "x": x, "k": k}),
        ("extremal_pair", {"k": k, "K": int(rng.integers(1, k + 1)), "d": d, "random_state": 0}),
    )
    arguments = spoil(rng, arguments)
    watch.note(f"theory.{name}", arguments)
    found = watch.call(getattr(theory, name), **arguments)
    if name == "deviation_bound":
        kept = np.argsort(-np.abs(b), kind="stable")[: arguments["k"]]
        cut = np.zeros(d)
        cut[kept] = b[kept]
        distance = math.sqrt(float(np.sum((cut - x) ** 2)))
        holds = np.count_nonzero(x) > arguments["k"] or distance <= float(np.max(found)) * (1 + 1e-9)
        watch.expect(holds, "bound", f"the distance is {distance}, the bound {found}")
