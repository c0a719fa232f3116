"""What a hostile or unlucky user meets: right numbers, or an error that names the remedy."""

from __future__ import annotations

import json
import os
import stat

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from scipy.special import gammaln
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import KFold, ShuffleSplit

from ksparse import (
    KSparseClassifier,
    KSparseClassifierCV,
    KSparseRegressor,
    KSparseRegressorCV,
    KSparseSelector,
    k_path,
    load,
)  # fmt: skip


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 8))
    return X, X @ [3.0, -2.0, 0, 0, 1.5, 0, 0, 0] + 0.5 * rng.standard_normal(60)


# --- numbers ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("far", [1e4, 1e6, 1e9])
def test_sparse_columns_far_from_zero(data, far):
    """Such a column has no missing entry: it is shifted, not taken for a constant."""
    X, y = data
    for estimator, target in ((KSparseRegressor(3), y), (KSparseClassifier(3), y > 0)):
        dense, thin = (estimator.fit(A, target) for A in (X + far, sparse.csr_array(X + far)))
        np.testing.assert_array_equal(thin.support_, dense.support_)
        assert thin.objective_ == pytest.approx(dense.objective_, rel=1e-4)
        assert thin.certificate_.verdict != "unfinished"


def test_huber_does_not_depend_on_the_unit_of_y(data):
    X, y = data
    y = y + np.where(np.arange(60) < 5, 50.0, 0.0)
    paths = [k_path(X, y * unit, range(1, 6), KSparseRegressor(loss="huber")) for unit in (1e-3, 1.0, 1e3)]
    for path in paths:
        assert path.best().k_ == paths[1].best().k_
        np.testing.assert_allclose(path.loss, paths[1].loss, rtol=1e-6)
    for model, loss in zip(paths[1].models, paths[1].loss, strict=True):  # the objective is this loss and the ridge
        ridge = 0.5 * model.l2_ * np.sum((model.coef_ / model.unit_ * X.std(axis=0)) ** 2)
        assert model.objective_ == pytest.approx(loss + ridge, rel=1e-6)


def test_hubers_scale_is_that_of_the_rows_that_count(data):
    X, y = data
    weight = np.random.default_rng(1).integers(0, 4, 60)
    wild = np.where(weight > 0, y, 1e6)
    for k in (1, 2, 3):
        weighted = KSparseRegressor(k, loss="huber").fit(X, wild, sample_weight=weight)
        repeated = KSparseRegressor(k, loss="huber").fit(np.repeat(X, weight, axis=0), np.repeat(wild, weight))
        np.testing.assert_allclose(weighted.coef_, repeated.coef_, rtol=1e-5, atol=1e-8)
        assert weighted.unit_ == pytest.approx(repeated.unit_)


def test_balanced_classes_know_the_weights(data):
    X, y = data
    labels = (y > 0).astype(int)
    weight = np.where((labels == 1) & (np.arange(60) > 20), 0.0, 1.0)
    model = KSparseClassifier(8, class_weight="balanced", l2=0.01, standardize=False)
    weighted, dropped = model.fit(X, labels, sample_weight=weight).intercept_, None
    dropped = model.fit(X[weight > 0], labels[weight > 0]).intercept_
    np.testing.assert_allclose(weighted, dropped, atol=1e-8)
    share = np.count_nonzero(weight) / 60
    count = np.bincount(labels[weight > 0])
    plain = LogisticRegression(C=1 / (0.01 * 60 * share), tol=1e-10, max_iter=1000)
    plain.fit(X[weight > 0], labels[weight > 0], sample_weight=(count.sum() / (2 * count))[labels[weight > 0]])
    np.testing.assert_allclose(weighted, plain.intercept_, atol=1e-5)


def test_the_default_ridge_counts_rows_by_weight(data):
    X, y = data
    one, many = (KSparseClassifier(3).fit(X, y > 0, sample_weight=np.full(60, s)).l2_ for s in (1.0, 1.0 + 1e-9))
    assert one == pytest.approx(many)
    twice = KSparseClassifier(3).fit(np.vstack([X, X]), np.r_[y, y] > 0)
    assert KSparseClassifier(3).fit(X, y > 0, sample_weight=np.full(60, 2)).l2_ == pytest.approx(twice.l2_)
    weights = [KSparseClassifier(3, class_weight={False: 1, True: w}).fit(X, y > 0).l2_ for w in (10, 10.5)]
    assert weights[0] == weights[1] == pytest.approx(one)  # class weights are no rows
    assert KSparseClassifier(3).fit(X, y > 0, sample_weight=np.full(60, 1e-9)).l2_ == pytest.approx(0.1)


def test_columns_that_a_dict_of_groups_leaves_out_stay_alone(data):
    X, y = data
    frame = pd.DataFrame(X, columns=list("abcdefgh"))
    assert KSparseRegressor(1, groups={"a": "b", "c": "b"}).fit(frame, y).support_.tolist() == [0, 2]
    assert KSparseRegressor(1, groups={0: 1}).fit(X, y).support_.size == 1


def test_criteria_count_choices_and_rows(data):
    X, y = data
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


# --- states ----------------------------------------------------------------------------------------------------------
def test_a_fit_that_fails_leaves_the_old_model(data):
    X, y = data
    model = KSparseClassifier(2).fit(X, np.digitize(y, [-2, 2]))
    before = model.predict(X)
    with pytest.raises(ValueError, match="k must be"):
        model.set_params(k=0).fit(X, y > 0)
    np.testing.assert_array_equal(model.predict(X), before)


def test_a_warm_start_from_another_shape_is_none(data):
    X, y = data
    for model, target in ((KSparseRegressor(2, warm_start=True), y), (KSparseClassifier(2, warm_start=True), y > 0)):
        model.fit(X, target)
        assert model.fit(X[:, :5], target).coef_.shape[-1] == 5
    batches = KSparseRegressor(2).partial_fit(X, y)
    with pytest.raises(ValueError, match="the targets of the first call"):
        batches.partial_fit(X, np.column_stack([y, y]))


# --- errors ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda X, y: KSparseRegressor(1.0).fit(X, y), "or a share between 0 and 1"),
        (lambda X, y: KSparseRegressor(l2=True).fit(X, y), "l2 must be 'auto' or a number"),
        (lambda X, y: KSparseRegressor(l2="x").fit(X, y), "l2 must be 'auto' or a number, got 'x'"),
        (lambda X, y: KSparseRegressor(positive="no").fit(X, y), "positive must be True or False"),
        (lambda X, y: KSparseRegressor(standardize="no").fit(X, y), "standardize must be True or False"),
        (lambda X, y: KSparseClassifier(class_weight={False: 0, True: 0}).fit(X, y > 0), "class_weight must leave"),
        (lambda X, y: KSparseRegressorCV(estimator=KSparseClassifier()).fit(X, y), "must be a KSparseRegressor"),
        (lambda X, y: KSparseClassifierCV(estimator=Ridge()).fit(X, y > 0), "must be a KSparseClassifier"),
        (lambda X, y: KSparseSelector(estimator=KSparseRegressorCV()).fit(X, y), "estimator must be"),
        (lambda X, y: KSparseRegressorCV([]).fit(X, y), "ks must hold at least one"),
        (lambda X, y: KSparseRegressorCV([True]).fit(X, y), "ks must be"),
        (lambda X, y: k_path(X, y, []), "ks must hold at least one"),
        (lambda X, y: k_path(X[:, 0], y), "X must be a matrix"),
        (
            lambda X, y: KSparseRegressorCV([1, 2], cv=KFold(3)).fit(X, y, sample_weight=np.arange(60) >= 20),
            "rows with",
        ),
        (lambda X, y: KSparseRegressorCV([1], scoring=lambda *_: np.nan).fit(X, y), "scoring gave nan for k = 1"),
    ],
)
def test_bad_settings_are_named(data, call, message):
    with pytest.raises(ValueError, match=message):
        call(*data)


def test_what_looks_odd_and_is_fine(data):
    X, y = data
    assert KSparseRegressor(2, always_keep=[]).fit(X, y).support_.size == 2
    assert 3 in KSparseRegressor(2, always_keep={3}).fit(X, y).support_
    one = KSparseRegressorCV([1, 3], cv=ShuffleSplit(1, random_state=0)).fit(X, y)
    assert one.k_ == one.best_k_
    labels = pd.DataFrame({"y": (y > 0).astype(int)})
    with pytest.warns(UserWarning, match="column-vector"):
        path = k_path(X, labels, [1, 2], KSparseClassifier(), sample_weight=2.0)
    assert len(path.models) == 2
    probabilities = KSparseClassifierCV([1, 2], cv=3).fit(X, y > 0)
    np.testing.assert_allclose(np.exp(probabilities.predict_log_proba(X)), probabilities.predict_proba(X))
    for model in (KSparseRegressor(), KSparseClassifier()):
        with pytest.raises(NotFittedError):
            model.to_sklearn()


# --- files -----------------------------------------------------------------------------------------------------------
def test_files_that_cannot_be_models(tmp_path, data):
    X, y = data
    path = tmp_path / "model.json"
    with pytest.raises(ValueError, match="must be texts or numbers"):
        KSparseRegressor(1, groups={0: ("a", 1), 1: ("a", 1)}).fit(X, y).save(path)
    assert not path.exists()
    before = os.umask(0o022)
    try:
        KSparseRegressor(2).fit(X, y).save(path)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644  # for others to read, as any file
    content = json.loads(path.read_text())
    for change in ({"version": True}, {"n_features": 2**31}, {"objective": 10**400}):
        path.write_text(json.dumps({**content, **change}))
        with pytest.raises(ValueError, match=r"model\.json is not a model"):
            load(path)
    for text in ("[" * 100_000, "1" * 5000):
        path.write_text(text)
        with pytest.raises(ValueError, match=r"model\.json is not a model"):
            load(path)


# --- what is seen on the way -----------------------------------------------------------------------------------------
def test_progress_is_shown_and_changes_nothing(data, capfd, monkeypatch):
    X, y = data
    monkeypatch.setenv("FORCE_COLOR", "1")  # as if it were a terminal: elsewhere nothing is shown
    shown = KSparseRegressor(3, verbose=1).fit(X, y)
    assert "objective" in capfd.readouterr().err
    quiet = KSparseRegressor(3).fit(X, y)
    assert capfd.readouterr().err == ""
    np.testing.assert_array_equal(shown.coef_, quiet.coef_)


def test_the_time_limit_is_heard_and_said():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 2000))
    y = X @ rng.standard_normal(2000)
    for model, target in ((KSparseRegressor(50), y), (KSparseClassifier(20), y > 0), (KSparseClassifier(9), y // 40)):
        with pytest.warns(ConvergenceWarning, match="time limit: max_time = 1e-06 s is over"):
            model.set_params(max_time=1e-6).fit(X, target)
        assert model.certificate_.verdict == "unfinished"
        assert np.isfinite(model.predict(X).astype(float)).all()
