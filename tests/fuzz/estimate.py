"""The estimators: fitted, checked, saved, loaded, pickled and cloned; k_path, cross-validation, selector, stability."""

from __future__ import annotations

import pickle
import tempfile
from pathlib import Path

import numpy as np
from draws import chance, labels, layout, pick, ridge, shape, spoil, target, values, weight
from invariants import EPS, Objective, check_fit, same
from sklearn.base import clone
from solve import ANY_LOSS, kept_columns

import ksparse
from ksparse.solvers import SOLVERS

FIT = ("X", "y", "sample_weight", "offset")


def settings(rng, d, squared=False):
    """What regressors and classifiers share."""
    found = {"k": pick(rng, 1, 2, d, d + 5, 0.5, int(rng.integers(1, d + 1))), "random_state": 0}
    if chance(rng, 0.3):
        found["solver"] = pick(rng, *(SOLVERS if squared else ANY_LOSS))
    if chance(rng, 0.5):
        found["l2"] = ridge(rng)
    for name, share in (("fit_intercept", 0.2), ("standardize", 0.2)):
        if chance(rng, share):
            found[name] = False
    if chance(rng, 0.08):
        found["positive"] = True
    if chance(rng, 0.25):
        found["effort"] = pick(rng, "fast", "best")
    if d > 1 and chance(rng, 0.2):
        found["always_keep"] = rng.permutation(d)[: rng.integers(1, max(2, min(4, d)))]
    if chance(rng, 0.15) and "solver" not in found:
        found["groups"] = rng.integers(0, max(1, d // 2), size=d)
    return found


def fit(watch, model, arguments):
    """The fitted model; its parameters too may be named in a refusal."""
    watch.note(f"{model!r}.fit", arguments)
    watch.function = type(model).__name__
    return watch.call(model.fit, names=[*model.get_params(), "HTSAGA"], **arguments)


def fuzz_regressor(rng, watch):
    n, d = shape(rng)
    given, X = layout(rng, values(rng, n, d))
    loss = pick(rng, "squared", "squared", "squared", "huber", "poisson", "gamma")
    y = target(rng, X, loss)
    if loss == "squared" and chance(rng, 0.15):
        y = np.column_stack([y, target(rng, X, loss)])
    model = ksparse.KSparseRegressor(**spoil(rng, {"loss": loss, **settings(rng, d, loss == "squared")}))
    arguments = {"X": given, "y": y}
    if chance(rng, 0.3):
        arguments["sample_weight"] = weight(rng, n)
    if chance(rng, 0.15):
        arguments["offset"] = rng.standard_normal(n)
    arguments = spoil(rng, arguments, 0.06)
    if chance(rng, 0.1) and isinstance(arguments["y"], np.ndarray):
        model.set_params(warm_start=True)
        model = fit(watch, model, {**arguments, "y": np.flip(arguments["y"])})
    model = fit(watch, model, arguments)
    if arguments["X"] is not given:
        return
    unit = getattr(model, "unit_", 1.0)
    y, offset = np.asarray(arguments["y"], dtype=float) / unit, arguments.get("offset")
    y = y[:, 0] if y.ndim == 2 and model.coef_.ndim == 1 else y
    if offset is not None:
        offset = np.asarray(offset, dtype=float).reshape((n, 1) if y.ndim == 2 else n) / unit
    with np.errstate(all="ignore"):
        coef, intercept = model.coef_.T.astype(float) / unit, np.asarray(model.intercept_, dtype=float) / unit
        check_model(watch, model, given, X, y, model.loss, coef, intercept, arguments.get("sample_weight"), offset,
                    model.objective_, model.status_)  # fmt: skip
    check_copies(watch, model, given, arguments, X, lambda m, rows: m.predict(rows))


def fuzz_classifier(rng, watch):
    n, d = shape(rng)
    given, X = layout(rng, values(rng, n + 3, d))
    extra = {"loss": pick(rng, "logistic", "logistic", "squared_hinge")}
    if chance(rng, 0.3):
        extra["multi_class"] = pick(rng, "ovr", "softmax")
    if chance(rng, 0.15):
        extra["class_weight"] = "balanced"
    model = ksparse.KSparseClassifier(**spoil(rng, {**extra, **settings(rng, d)}))
    arguments = {"X": given, "y": labels(rng, X)}
    if chance(rng, 0.3):
        arguments["sample_weight"] = weight(rng, n + 3)
    arguments = spoil(rng, arguments, 0.06)
    model = fit(watch, model, arguments)
    if arguments["X"] is not given:
        return
    index = np.unique(np.asarray(arguments["y"]).ravel(), return_inverse=True)[1]
    w = arguments.get("sample_weight")
    w = np.ones(n + 3) if w is None else np.broadcast_to(np.asarray(w, dtype=float).ravel(), n + 3).copy()
    if model.class_weight == "balanced":
        for own in (index == c for c in range(index.max() + 1)):  # each class by itself: weights may differ by 1e300
            largest = w[own].max()
            share = w[own] / largest if largest > 0 else w[own]  # classes without weight take no part
            w[own] = share / (share.sum() or 1.0)
    if model.class_weight in (None, "balanced"):
        if model.multi_class_ == "softmax":
            check_model(watch, model, given, X, index, "softmax", model.coef_.T, model.intercept_, w, None,
                        model.objective_, model.status_)  # fmt: skip
        elif len(model.coef_) == 1:
            check_model(watch, model, given, X, np.where(index == 1, 1.0, -1.0), model.loss, model.coef_[0],
                        model.intercept_[0], w, None, model.objective_, model.status_)  # fmt: skip
    score = "predict_proba" if model.loss == "logistic" else "decision_function"
    check_copies(watch, model, given, arguments, X, lambda m, rows: getattr(m, score)(rows))


def check_model(watch, model, given, X, y, loss, coef, intercept, w, offset, reported, status):
    single = np.float32 in (model.coef_.dtype, getattr(given, "dtype", None))  # such columns are rounded when scaled
    w = None if w is None else np.asarray(w, dtype=float).ravel()
    scale = model.scale_ if model.standardize else np.ones(X.shape[1])
    coef, intercept = np.asarray(coef, dtype=float), np.asarray(intercept, dtype=float)
    eps, tiny = (2.0**-23, 1e-45) if single else (EPS, 1e-323)
    F = Objective(X, y, loss, model.l2_, w, offset, scale, eps, tiny / getattr(model, "unit_", 1.0))
    d = X.shape[1]
    check_fit(
        watch.expect, F, coef, intercept, reported, status, model.k_,
        units=None if isinstance(model.groups, dict) else model.groups,
        kept=kept_columns(model.get_params()), intercept=bool(model.fit_intercept), positive=model.positive,
    )  # fmt: skip
    watch.expect(model.k_ <= d, "k_", f"{model.k_} of {d}")


def check_copies(watch, model, given, arguments, X, predict):
    """save/load, pickle and clone predict the same."""
    if not (np.isfinite(model.coef_).all() and np.isfinite(model.intercept_).all()):
        return
    wanted = watch.call(predict, model, given, names=FIT)
    with np.errstate(all="ignore"):
        size = np.abs(X) @ np.abs(np.atleast_2d(model.coef_)).T.astype(float) + np.abs(model.intercept_)
    single = np.float32 in (model.coef_.dtype, getattr(given, "dtype", None))
    slack = (1e-5 if single else 1e-12) * (1.0 + float(size.max()))
    watch.expect(same(watch.call(predict, pickle.loads(pickle.dumps(model)), given), wanted), "pickle", "differs")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.json")
        watch.call(model.save, path, names=model.get_params())
        loaded = watch.call(ksparse.load, path, names=["model.json"])
    if model.loss in ("poisson", "gamma"):  # an exponential, which may underflow in single precision
        slack = slack * np.abs(wanted) + (1e-44 if single else 0.0)
    watch.expect(same(watch.call(predict, loaded, given), wanted, slack), "load", "predicts something else")
    if not model.warm_start and isinstance(model.random_state, int):
        again = watch.call(clone(model).fit, names=model.get_params(), **arguments)
        watch.expect(same(watch.call(predict, again, given), wanted), "clone", "fitted again predicts something else")


def fuzz_selection(rng, watch):
    """Whatever fits several models: cross-validation, k_path, the selector, stability."""
    n, d = shape(rng, 30, 8)
    given, X = layout(rng, values(rng, n + 9, d))
    classify = chance(rng, 0.4)
    y = labels(rng, X) if classify else target(rng, X, "squared")
    base = ksparse.KSparseClassifier if classify else ksparse.KSparseRegressor
    model = base(**settings(rng, d, not classify))
    arguments = {"X": given, "y": y}
    if chance(rng, 0.3):
        arguments["sample_weight"] = weight(rng, n + 9)
    kind = pick(rng, "cv", "path", "selector", "stability")
    ks = pick(rng, None, [1], [1, 2], range(1, d + 3))
    if kind == "cv":
        by = ksparse.KSparseClassifierCV if classify else ksparse.KSparseRegressorCV
        chosen = by(**spoil(rng, {"ks": ks, "estimator": model, "cv": 2}))
        found = fit(watch, chosen, spoil(rng, arguments, 0.05))
        watch.expect(np.isfinite(found.scores_).all(), "scores", f"{found.scores_}")
        watch.expect(found.k_ in found.ks_ or found.k_ < min(found.ks_), "k_", f"{found.k_} of {found.ks_}")
        watch.expect(same(found.predict(given), found.estimator_.predict(given)), "predict", "differs")
    elif kind == "selector":
        selector = ksparse.KSparseSelector(**spoil(rng, {"k": pick(rng, 1, 2, 0.5), "estimator": model}))
        found = fit(watch, selector, arguments)
        watch.expect(found.get_support().sum() == found.estimator_.support_.size, "support", "differs")
    elif kind == "path":
        arguments = spoil(rng, {**arguments, "ks": ks, "estimator": model})
        watch.note("k_path", arguments)
        found = watch.call(ksparse.k_path, names=model.get_params(), **arguments)
        watch.expect(np.isfinite(found.objective).all() or not done(found.models), "not finite", f"{found.objective}")
    else:
        arguments = {**spoil(rng, {**arguments, "estimator": model, "random_state": 0}), "n_resamples": 4}
        watch.note("support_stability", arguments)
        found = watch.call(ksparse.support_stability, names=model.get_params(), **arguments)
        watch.expect(bool(((found.frequency >= 0) & (found.frequency <= 1)).all()), "frequency", f"{found.frequency}")
        watch.expect(np.isfinite(found.agreement), "agreement", f"{found.agreement}")


def done(models):
    return all(model.status_ == "converged" for model in models)
