"""Choosing k: paths with their criteria, and cross-validation."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from oracle import mean_loss
from problems import planted, three_of_eight
from scipy.sparse import csr_array
from scipy.special import gammaln
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression

from ksparse import (
    KSparseClassifier,
    KSparseClassifierCV,
    KSparseRegressor,
    KSparseRegressorCV,
    k_path,
    load,
    support_stability,
)
from ksparse.estimators.fitting import Fitting


def test_a_path_finds_the_planted_size():
    X, y = planted()
    path = k_path(X, y, np.arange(1, 11))
    assert path.best("bic").k_ == path.best().k_ == 4
    np.testing.assert_array_equal(path.best().support_, np.arange(4))
    assert (np.diff(path.objective) <= 1e-9).all()
    assert path.coefs.shape == (10, 40)
    assert [support.size for support in path.supports] == list(range(1, 11))
    for model, k in zip(path.models, path.k, strict=True):
        alone = KSparseRegressor(k=int(k)).fit(X, y)
        assert model.objective_ <= alone.objective_ * (1 + 1e-6) or k > 4  # the warm start is no worse where it matters
    residual = np.mean((y - path.models[3].predict(X)) ** 2)
    assert path.bic[3] == pytest.approx(300 * np.log(residual) + np.log(300) * 4)
    with pytest.raises(ValueError, match="criterion must be one of"):
        path.best("cp")
    with pytest.raises(ValueError, match="estimator must be"):
        k_path(X, y, estimator=LinearRegression())


def test_cross_validation_takes_the_simplest_good_model():
    X, y = planted()
    model = KSparseRegressorCV(np.arange(1, 11), n_jobs=2).fit(X, y)
    assert model.k_ == 4
    assert model.best_k_ >= model.k_
    assert model.scores_.shape == (5, 10)
    chosen = np.flatnonzero(model.ks_ == model.k_)[0]
    best = np.argmax(model.mean_score_)
    assert model.mean_score_[chosen] >= model.mean_score_[best] - model.standard_error_[best]
    assert chosen == 0 or model.mean_score_[chosen - 1] < model.mean_score_[best] - model.standard_error_[best]
    np.testing.assert_array_equal(model.support_, np.arange(4))
    np.testing.assert_allclose(model.predict(X), model.estimator_.predict(X))
    best = KSparseRegressorCV(np.arange(1, 11), one_standard_error=False).fit(X, y)
    assert best.k_ == best.best_k_
    serial = KSparseRegressorCV(np.arange(1, 11)).fit(X, y)
    np.testing.assert_allclose(serial.scores_, model.scores_)
    by_hand = clone(KSparseRegressor(k=4)).fit(X[60:], y[60:])
    assert model.scores_[0, 3] == pytest.approx(-np.mean((y[:60] - by_hand.predict(X[:60])) ** 2) / 2)
    scored = KSparseClassifierCV([1, 2, 3], scoring="roc_auc", cv=3).fit(X, y > 0)
    assert scored.best_score_ > 0.8


def test_pictures_of_the_choice(tmp_path):
    pytest.importorskip("matplotlib", reason="figures need the report extra")
    X, y = planted()
    ax = k_path(X, y, np.arange(1, 8)).plot(tmp_path / "path.png")
    assert ax.get_title() == "smallest EBIC at k = 4"
    assert ax.get_xlabel() == "k"
    assert "chosen: k = 4" in KSparseRegressorCV(np.arange(1, 8)).fit(X, y).plot(tmp_path / "cv.png").get_title()


def test_criteria_count_choices_and_rows():
    X, y = three_of_eight()
    path = k_path(X, np.digitize(y, [-2, 2]), [1, 2, 3], KSparseClassifier(multi_class="ovr"))
    ways = gammaln(9) - gammaln(np.arange(2, 5)) - gammaln(9 - np.arange(1, 4))
    np.testing.assert_allclose(path.ebic - path.bic, 2 * 3 * ways)
    kept = k_path(X, y, [1, 2], KSparseRegressor(always_keep=[7]))
    np.testing.assert_allclose(kept.ebic - kept.bic, 2 * np.log([7, 21]))
    assert k_path(X, y, range(1, 9), KSparseRegressor(always_keep=[6, 7])).k.tolist() == [1, 2, 3, 4, 5, 6]
    weight = np.random.default_rng(0).integers(1, 4, 60)
    weighted = k_path(X, y, [1, 2, 3], sample_weight=weight)
    repeated = k_path(np.repeat(X, weight, axis=0), np.repeat(y, weight), [1, 2, 3])
    np.testing.assert_allclose(weighted.bic, repeated.bic, rtol=1e-6)


# --- cross-validation ------------------------------------------------------------------------------------------------
def test_chosen_models_as_files_and_as_plain_models(tmp_path):
    X, y = load_diabetes(return_X_y=True, as_frame=True)
    model = KSparseRegressorCV([2, 4], cv=3)
    for call in (lambda: model.save(tmp_path / "model.json"), model.to_sklearn):
        with pytest.raises(NotFittedError):
            call()
    model.fit(X, y).save(tmp_path / "model.json")
    loaded = load(tmp_path / "model.json")
    assert type(loaded) is KSparseRegressor
    assert loaded.k == model.k_
    np.testing.assert_allclose(loaded.predict(X), model.predict(X))
    np.testing.assert_allclose(model.to_sklearn().predict(X), model.predict(X))
    X, y = load_breast_cancer(return_X_y=True)
    model = KSparseClassifierCV([2, 4], cv=3).fit(X, y)
    np.testing.assert_allclose(model.to_sklearn().predict_proba(X), model.predict_proba(X), rtol=1e-6)


def test_cross_validation_knows_names():
    X, y = load_diabetes(return_X_y=True, as_frame=True)
    by_name, by_number = (
        KSparseRegressorCV([1, 2], estimator=KSparseRegressor(always_keep=kept), cv=3).fit(X, y)
        for kept in (["age"], [0])
    )
    assert "age" in by_name.get_feature_names_out()
    np.testing.assert_allclose(by_name.scores_, by_number.scores_)
    assert by_name.estimator_.always_keep == ["age"]


def test_fits_that_nobody_sees_are_not_examined(monkeypatch):
    """Refits for the worth of every feature would take a good part of a cross-validation."""
    from ksparse.estimators import certificate, fitting

    seen, examine = [], certificate.examine
    monkeypatch.setattr(certificate, "examine", lambda *all: (seen.append(1), examine(*all))[1])
    X, y = load_breast_cancer(return_X_y=True)
    model = KSparseClassifierCV([1, 2], cv=3).fit(X, y)
    assert len(seen) == 0
    assert model.estimator_.feature_worth_.max() > 0.0
    assert model.feature_worth_.max() > 0.0
    assert model.certificate_ is model.estimator_.certificate_
    assert len(seen) == 1
    support_stability(X, y, KSparseClassifier(k=2), n_resamples=2)
    path = k_path(X, y, [1, 2], KSparseClassifier())
    assert len(seen) == 1
    _ = [fitted.summary() for fitted in path.models]
    assert len(seen) == 3  # these models are the user's
    monkeypatch.setattr(fitting, "HELD", 0)  # too large to hold: examined at once, but only what somebody may see
    support_stability(X, y, KSparseClassifier(k=2), n_resamples=2)
    assert len(seen) == 3
    KSparseClassifierCV([1, 2], cv=3, scoring="accuracy").fit(X, y)
    assert len(seen) == 4
    for cv in (b"bytes", np.ones((2, 2, 2)), [(0, [999])], 0):
        with pytest.raises(ValueError, match="cv must be a number of folds"):
            KSparseClassifierCV([1], cv=cv).fit(X, y)
    with pytest.raises(ValueError, match="cv must give at least one fold"):
        KSparseClassifierCV([1], cv=[]).fit(X, y)


# --- one walk over all k ---------------------------------------------------------------------------------------------
def walk_data(classify, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((90, 12)) * 10.0 ** rng.integers(-2, 3, 12) + rng.standard_normal(12)
    z = (X - X.mean(axis=0)) / X.std(axis=0) @ np.array([2.0, -1, 0, 0, 1, 0, 0, 0.5, 0, 0, 0, 0])
    z += rng.standard_normal(90)
    return (X, np.where(z > 0, "yes", "no")) if classify else (X, 3.0 + z)


@pytest.mark.parametrize("classify", [False, True])
@pytest.mark.parametrize("layout", [np.array, csr_array])
def test_a_fold_is_the_path_of_its_training_rows(classify, layout):
    """Ridge, standardisation and choice come from the training rows alone."""
    X, y = walk_data(classify)
    X = layout(X)
    rows = np.random.default_rng(1).permutation(90)
    folds = [(np.sort(rows[30:]), np.sort(rows[:30])), (np.sort(rows[:60]), np.sort(rows[60:]))]
    base = KSparseClassifier() if classify else KSparseRegressor()
    search = (KSparseClassifierCV if classify else KSparseRegressorCV)(range(1, 7), estimator=base, cv=folds).fit(X, y)
    for scores, (train, test) in zip(search.scores_, folds, strict=True):
        path = k_path(X[train], y[train], range(1, 7), base)
        for score, model in zip(scores, path.models, strict=True):
            assert -score == pytest.approx(mean_loss(model, X[test], y[test]), rel=1e-8)
    whole = k_path(X, y, range(1, 7), base).models[search.k_ - 1]
    np.testing.assert_allclose(search.coef_, whole.coef_, rtol=1e-8)
    assert search.objective_ == pytest.approx(whole.objective_, rel=1e-10)
    np.testing.assert_allclose(search.feature_worth_, whole.feature_worth_, rtol=1e-6)


@pytest.mark.parametrize("classify", [False, True])
def test_a_walk_is_at_least_as_good_as_fits_one_by_one(classify):
    X, y = walk_data(classify, 3)
    base = KSparseClassifier(l2=1e-3) if classify else KSparseRegressor(l2=1e-3)
    path = k_path(X, y, range(1, 9), base)
    for model in path.models:
        single = base.__class__(model.k_, l2=1e-3).fit(X, y)
        assert model.objective_ <= single.objective_ * (1 + 1e-6)
        assert model.swap_optimal_
        assert model.status_ == "converged"
        assert model.n_features_in_ == 12
        np.testing.assert_allclose(
            mean_loss(model, X, y) + 0.5e-3 * np.sum((model.coef_ * model.scale_) ** 2), model.objective_, rtol=1e-9
        )


@pytest.mark.parametrize("classify", [False, True])
def test_more_effort_is_never_worse(classify):
    X, y = walk_data(classify, 5)
    cls = KSparseClassifier if classify else KSparseRegressor
    found = [cls(4, effort=effort).fit(X, y).objective_ for effort in ("fast", "best")]
    assert found[1] <= found[0] * (1 + 1e-9)
    with pytest.raises(ValueError, match="effort must be one of 'fast', 'default', 'best', got 'more'"):
        cls(4, effort="more").fit(X, y)
    with pytest.raises(ValueError, match="effort must be one of"):
        k_path(X, y, [1, 2], cls(effort="more"))


def test_paths_with_names_weights_and_offsets():
    X, y = walk_data(False)
    frame = pd.DataFrame(X, columns=[f"x{j}" for j in range(12)])
    weight, offset = np.random.default_rng(0).integers(1, 4, 90).astype(float), np.linspace(-1, 1, 90)
    path = k_path(frame, y, [1, 3, 40], KSparseRegressor(always_keep=["x5"]), sample_weight=weight, offset=offset)
    count = weight.astype(int)
    again = k_path(
        np.repeat(X, count, axis=0), np.repeat(y, count), [1, 3, 40], KSparseRegressor(always_keep=[5]),
        offset=np.repeat(offset, count),
    )  # fmt: skip
    assert path.k.tolist() == again.k.tolist() == [1, 3, 11]
    np.testing.assert_allclose(path.objective, again.objective, rtol=1e-8)
    assert all("x5" in model.get_feature_names_out() for model in path.models)
    np.testing.assert_allclose(path.loss, again.loss, rtol=1e-8)


# --- folds that share their sums over the rows ------------------------------------------------------------------------
def fold_data(d, layout, seed=0, n=120):
    """Columns of many sizes; the last one varies only in rows that one fold holds out."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) * 10.0 ** rng.integers(-2, 3, d) + rng.standard_normal(d)
    X[:, 1] += X[:, 0]
    if layout is csr_array:
        X *= rng.random((n, d)) < 0.3
    y = (X / X.std(axis=0))[:, : min(d, 8)].sum(axis=1) + rng.standard_normal(n)
    X[:, -1] = 0.0
    X[:5, -1] = np.arange(5)
    return layout(X), 3.0 + y, rng.permutation(n)


def share_always(monkeypatch):
    """Have folds share their sums even where the data are so few that they would gain nothing."""
    for rule in ("TINY", "FEW_ENTRIES"):
        monkeypatch.setattr(f"ksparse.solvers.exchange.folds.{rule}", 0)


def check_folds(search, X, y, folds, base, sizes, weight):
    """Every fold is the path of its training rows, and the chosen model that of all rows."""
    for f, (train, test) in enumerate(folds):
        extra, held = ({}, None) if weight is None else ({"sample_weight": weight[train]}, weight[test])
        path = k_path(X[train], y[train], sizes, base, **extra)
        expected = [mean_loss(model, X[test], y[test], held) for model in path.models]
        np.testing.assert_allclose(-search.cv_results_[f"split{f}_test_score"], expected, rtol=1e-8)
    whole = k_path(X, y, sizes, base, **({} if weight is None else {"sample_weight": weight}))
    model = whole.models[list(sizes).index(search.k_)]
    np.testing.assert_array_equal(search.support_, model.support_)
    np.testing.assert_allclose(search.coef_, model.coef_, rtol=1e-8)
    assert search.objective_ == pytest.approx(model.objective_, rel=1e-10)


@pytest.mark.parametrize("d", [12, 300])
@pytest.mark.parametrize("layout", [np.array, csr_array])
@pytest.mark.parametrize("effort", ["fast", "default"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    "settings", [{}, {"standardize": False}, {"fit_intercept": False}, {"always_keep": [3]}], ids=str
)
def test_folds_share_their_sums_and_are_the_paths_of_their_rows(d, layout, effort, weighted, settings, monkeypatch):
    share_always(monkeypatch)
    X, y, order = fold_data(d, layout)
    weight = np.random.default_rng(2).integers(1, 4, y.size).astype(float) if weighted else None
    if weighted:
        weight[order[:3]] = 0.0
    parts = [np.sort(order[f::4]) for f in range(3)]  # a quarter of the rows is held out by none
    folds = [(np.setdiff1d(order, test), test) for test in parts]
    base = KSparseRegressor(effort=effort, **settings)
    with monkeypatch.context() as patch:
        patch.setattr(Fitting, "solve", lambda fitting: pytest.fail("a fold was solved alone"))
        search = KSparseRegressorCV(range(1, 8), estimator=base, cv=folds).fit(X, y, sample_weight=weight)
    check_folds(search, X, y, folds, base, range(1, 8), weight)


@pytest.mark.parametrize("layout", [np.array, csr_array])
def test_folds_with_several_ridges_share_their_sums(layout, monkeypatch):
    share_always(monkeypatch)
    X, y, order = fold_data(200, layout, 3)
    folds = [(np.setdiff1d(order, order[f::3]), np.sort(order[f::3])) for f in range(3)]
    search = KSparseRegressorCV([2, 4, 6], l2s=[0.01, 1.0], estimator=KSparseRegressor(effort="fast"), cv=folds)
    search.fit(X, y)
    for l2 in (0.01, 1.0):
        at = search.cv_results_["l2"] == l2
        for f, (train, test) in enumerate(folds):
            path = k_path(X[train], y[train], [2, 4, 6], KSparseRegressor(effort="fast", l2=l2))
            expected = [mean_loss(model, X[test], y[test]) for model in path.models]
            np.testing.assert_allclose(-search.cv_results_[f"split{f}_test_score"][at], expected, rtol=1e-8)
    whole = k_path(X, y, [2, 4, 6], KSparseRegressor(effort="fast", l2=search.l2_))
    np.testing.assert_allclose(search.coef_, whole.models[[2, 4, 6].index(search.k_)].coef_, rtol=1e-8)


def test_folds_that_overlap_or_run_in_threads_are_paths_of_their_own(monkeypatch):
    from ksparse.estimators import cv
    from ksparse.solvers.exchange import folds as shared

    X, y, order = fold_data(200, np.array, 4)
    overlapping = [(order[40:], order[:40]), (order[:80], order[80:]), (order[30:], order[:30])]
    found = []
    share_always(monkeypatch)
    monkeypatch.setattr(cv, "squared_folds", lambda *args: found.append(shared.squared_folds(*args)) or found[-1])
    base = KSparseRegressor(effort="fast")
    search = KSparseRegressorCV([1, 3, 5], estimator=base, cv=overlapping).fit(X, y)
    assert found == [None]
    check_folds(search, X, y, overlapping, base, [1, 3, 5], None)
    threads = KSparseRegressorCV([1, 3, 5], estimator=base, cv=overlapping[:2], n_jobs=2).fit(X, y)
    assert found == [None]
    serial = KSparseRegressorCV([1, 3, 5], estimator=base, cv=overlapping[:2]).fit(X, y)
    assert [len(paths) for paths in found[1:]] == [3]
    np.testing.assert_allclose(threads.scores_, serial.scores_, rtol=1e-8)
    np.testing.assert_allclose(threads.coef_, serial.coef_, rtol=1e-8)
