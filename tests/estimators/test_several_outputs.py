"""Estimators of several outputs, and of groups: one choice of features for all of them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from problems import three_of_eight
from scipy import sparse
from scipy.special import softmax
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_digits, load_iris, load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from ksparse import (
    HTSVRG,
    Exchange,
    KSparseClassifier,
    KSparseClassifierCV,
    KSparseRegressor,
    KSparseRegressorCV,
    KSparseSelector,
    joint,
    k_path,
    load,
)


@parametrize_with_checks([KSparseRegressor(solver=Exchange()), KSparseClassifier(multi_class="softmax")])
@pytest.mark.filterwarnings("ignore")
@pytest.mark.long
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def wine():
    return load_wine(return_X_y=True, as_frame=True)


def planted(n=200, d=30, targets=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) * rng.uniform(0.1, 10, d) + 3.0
    return X, (X[:, :4] / X[:, :4].std(axis=0)) @ rng.standard_normal((4, targets)) + rng.standard_normal((n, targets))


# --- classes ---------------------------------------------------------------------------------------------------------
def test_classes_share_their_features(wine):
    X, y = wine
    model = KSparseClassifier(k=4).fit(X, np.array(["a", "b", "c"])[y])
    assert model.multi_class_ == "softmax"
    assert model.coef_.shape == model.worth_.shape == (3, 13)
    assert model.support_.size == 4
    assert (np.count_nonzero(model.coef_, axis=1) == 4).all()
    assert model.score(X, np.array(["a", "b", "c"])[y]) > 0.97
    assert model.status_ == "converged"
    assert isinstance(model.objective_, float)
    scores = model.decision_function(X)
    np.testing.assert_allclose(model.predict_proba(X), softmax(scores, axis=1))
    np.testing.assert_allclose(np.exp(model.predict_log_proba(X)), model.predict_proba(X))
    np.testing.assert_allclose(model.to_sklearn().predict_proba(X), model.predict_proba(X), rtol=1e-6)
    np.testing.assert_array_equal(model.to_sklearn().predict(X), model.predict(X))
    Z = StandardScaler().fit_transform(X)
    assert model.objective_ == pytest.approx(joint(Z, y, 4, loss="softmax", l2=model.l2_, intercept=True).objective)
    table = str(model.summary())
    assert table.count("(intercept)") == 3
    assert "4 of 13 features" in table
    again = clone(model).set_params(warm_start=True).fit(X, y).fit(X, y)
    assert again.objective_ <= model.objective_ * (1 + 1e-9)


def test_all_features_are_multinomial_regression(wine):
    X, y = wine
    Z = StandardScaler().fit_transform(X)
    model = KSparseClassifier(k=13, l2=0.01).fit(Z, y)
    plain = LogisticRegression(C=1 / (0.01 * len(y)), tol=1e-10, max_iter=10_000).fit(Z, y)
    np.testing.assert_allclose(model.predict_proba(Z), plain.predict_proba(Z), atol=1e-5)


def test_which_way_several_classes_are_met(wine):
    X, y = wine
    assert KSparseClassifier(k=3, multi_class="ovr").fit(X, y).multi_class_ == "ovr"
    assert KSparseClassifier(k=3, loss="squared_hinge").fit(X, y).multi_class_ == "ovr"
    assert KSparseClassifier(k=3, positive=True).fit(X, y).multi_class_ == "ovr"
    stochastic = KSparseClassifier(k=3, solver=HTSVRG(stages=3), random_state=0)
    with pytest.warns(ConvergenceWarning):
        assert stochastic.fit(X, y).multi_class_ == "ovr"
    assert KSparseClassifier(k=3, solver=Exchange()).fit(X, y).multi_class_ == "softmax"
    two = KSparseClassifier(k=3, multi_class="softmax").fit(X, y > 0)
    assert two.multi_class_ is None
    np.testing.assert_allclose(two.coef_, KSparseClassifier(k=3).fit(X, y > 0).coef_)
    weighted = KSparseClassifier(k=3, class_weight="balanced").fit(X, y)
    share = len(y) / (3 * np.bincount(y))
    np.testing.assert_allclose(weighted.coef_, KSparseClassifier(k=3).fit(X, y, sample_weight=share[y]).coef_)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_sparse_rows_are_dense_rows(dtype):
    X, y = load_digits(return_X_y=True)
    X, y = X[:400].astype(dtype), y[:400]
    dense, csr = (KSparseClassifier(k=6).fit(A, y) for A in (X, sparse.csr_matrix(X)))
    np.testing.assert_array_equal(csr.support_, dense.support_)
    tol = 1e-7 if dtype == np.float64 else 1e-3
    np.testing.assert_allclose(csr.coef_, dense.coef_, atol=tol * np.abs(dense.coef_).max())
    assert dense.coef_.dtype == dense.predict_proba(X).dtype == dtype


# --- targets ---------------------------------------------------------------------------------------------------------
def test_targets_share_their_features():
    X, Y = planted()
    model = KSparseRegressor(k=4).fit(X, Y)
    np.testing.assert_array_equal(model.support_, np.arange(4))
    assert model.coef_.shape == model.worth_.shape == (3, 30)
    assert model.intercept_.shape == (3,)
    assert model.swap_optimal_
    np.testing.assert_allclose(model.predict(X), X @ model.coef_.T + model.intercept_)
    np.testing.assert_allclose(model.to_sklearn().predict(X), model.predict(X))
    plain = LinearRegression().fit(X[:, :4], Y)
    np.testing.assert_allclose(KSparseRegressor(k=4, l2=0.0).fit(X, Y).coef_[:, :4], plain.coef_, rtol=1e-6)
    assert model.score(X, Y) > 0.4
    assert str(model.summary()).count("y1 ") == 5
    # without one coefficient the objective rises by what it is worth
    Z = X[:, :4] - X[:, :4].mean(axis=0)
    Z, T = Z / Z.std(axis=0), Y - Y.mean(axis=0)
    rest = Z[:, 1:]
    w = np.linalg.solve(rest.T @ rest / 200 + model.l2_ * np.eye(3), rest.T @ T[:, 0] / 200)
    full = np.linalg.solve(Z.T @ Z / 200 + model.l2_ * np.eye(4), Z.T @ T[:, 0] / 200)
    rise = [np.mean((T[:, 0] - A @ v) ** 2) / 2 + 0.5 * model.l2_ * v @ v for A, v in ((rest, w), (Z, full))]
    assert model.worth_[0, 0] == pytest.approx(rise[0] - rise[1], rel=1e-6)
    again = clone(model).set_params(warm_start=True).fit(X, Y).fit(X, Y)
    np.testing.assert_allclose(again.coef_, model.coef_, rtol=1e-8)
    one = again.fit(X, Y[:, 0])  # another shape: no start
    np.testing.assert_allclose(one.coef_, KSparseRegressor(k=4).fit(X, Y[:, 0]).coef_, rtol=1e-8)
    column = KSparseRegressor(k=4).fit(X, Y[:, :1])
    assert column.predict(X).shape == (200, 1)
    np.testing.assert_allclose(column.coef_[0], one.coef_, rtol=1e-6)
    shifted = KSparseRegressor(k=4).fit(X, Y, offset=np.ones((200, 3)))
    np.testing.assert_allclose(shifted.intercept_, model.intercept_ - 1.0, atol=1e-9)
    chosen = make_pipeline(KSparseSelector(k=4), LinearRegression()).fit(X, Y)
    assert chosen[0].get_support().sum() == 4


# --- groups ----------------------------------------------------------------------------------------------------------
def test_groups_of_columns(wine):
    X, y = load_diabetes(return_X_y=True, as_frame=True)
    labels = ["person", "person", "body", "body", *["blood"] * 6]
    model = KSparseRegressor(k=2, groups=labels).fit(X, y)
    assert model.groups_.tolist() == ["body", "blood"]
    np.testing.assert_array_equal(model.support_, np.arange(2, 10))
    assert model.k_ == 2
    by_name = KSparseRegressor(k=2, groups=dict(zip(X.columns, labels, strict=True))).fit(X, y)
    np.testing.assert_allclose(by_name.coef_, model.coef_)
    partly = KSparseRegressor(k=2, groups={"bmi": "body", "bp": "body"}).fit(X, y)
    assert partly.groups_.tolist() == ["body", "s5"]
    pairs = KSparseRegressor(k=1, groups={"bmi": ("body", 1), "bp": ("body", 1)}).fit(X, y)
    assert pairs.groups_.tolist() == [("body", 1)]
    assert KSparseRegressor(k=99, groups=labels).fit(X, y).k_ == 3
    assert KSparseRegressor(k=0.5, groups=labels).fit(X, y).k_ == 2
    kept = KSparseRegressor(k=1, groups=labels, always_keep=["age"]).fit(X, y)
    assert kept.groups_.tolist() == ["blood"] or kept.groups_.tolist() == ["body"]
    assert 0 in kept.support_
    assert not hasattr(kept.set_params(groups=None).fit(X, y), "groups_")
    for loss in ("huber", "poisson"):
        other = KSparseRegressor(k=2, loss=loss, groups=labels).fit(X, y)
        assert other.groups_.tolist() == ["body", "blood"]
    several = KSparseRegressor(k=1, groups=labels).fit(X, np.column_stack([y, y**2]))
    assert several.groups_.size == 1
    assert several.coef_.shape == (2, 10)
    X, y = wine
    pairs = np.arange(13) // 2
    for settings in ({}, {"multi_class": "ovr"}, {"loss": "squared_hinge"}):
        classes = KSparseClassifier(k=2, groups=pairs, **settings).fit(X, y)
        assert set(classes.groups_) == set(pairs[classes.support_])
    two = KSparseClassifier(k=2, groups=pairs).fit(X, y > 0)
    assert two.groups_.size == 2
    assert two.score(X, y > 0) > 0.9


def test_columns_that_a_dict_of_groups_leaves_out_stay_alone():
    X, y = three_of_eight()
    frame = pd.DataFrame(X, columns=list("abcdefgh"))
    assert KSparseRegressor(1, groups={"a": "b", "c": "b"}).fit(frame, y).support_.tolist() == [0, 2]
    assert KSparseRegressor(1, groups={0: 1}).fit(X, y).support_.size == 1


# --- files and paths -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("case", ["softmax", "targets", "one target", "groups", "number groups"])
def test_models_are_saved_and_loaded(tmp_path, wine, case):
    X, y = wine
    model, target = {
        "softmax": (KSparseClassifier(k=3), y),
        "targets": (KSparseRegressor(k=3), np.column_stack([y, y**2, -y])),
        "one target": (KSparseRegressor(k=3), np.asarray(y)[:, np.newaxis]),
        "groups": (KSparseClassifier(k=2, groups=list("aabbccddeeffg")), y),
        "number groups": (KSparseRegressor(k=2, groups=np.arange(13) // 2), y),
    }[case]
    model.fit(X, target).save(tmp_path / "model.json")
    loaded = load(tmp_path / "model.json")
    same = np.array_equal if isinstance(model, KSparseClassifier) else np.allclose
    assert same(loaded.predict(X), model.predict(X))
    np.testing.assert_allclose(loaded.coef_, model.coef_)
    assert loaded.coef_.shape == model.coef_.shape
    assert str(loaded.summary()) == str(model.summary())
    if case == "softmax":
        np.testing.assert_allclose(loaded.predict_proba(X), model.predict_proba(X))
    if "groups" in case:
        np.testing.assert_array_equal(loaded.groups_, model.groups_)
    text = (tmp_path / "model.json").read_text()
    (tmp_path / "model.json").write_text(text.replace(f'"kind": "{model._kind()}"', '"kind": "other"'))
    if model._kind() is not None:
        with pytest.raises(ValueError, match=r"kind must be|one output, or targets"):
            load(tmp_path / "model.json")
    (tmp_path / "model.json").write_text(text.replace('"groups": null', '"groups": 3'))
    if "groups" not in case:
        with pytest.raises(ValueError, match="groups must be"):
            load(tmp_path / "model.json")


def test_paths_and_cross_validation_of_targets():
    X, Y = planted()
    path = k_path(X, Y, np.arange(1, 8))
    assert path.best("bic").k_ == path.best().k_ == 4
    assert path.coefs.shape == (7, 3, 30)
    residual = np.sum((Y - path.models[3].predict(X)) ** 2) / (200 * 3)
    assert path.loss[3] == pytest.approx(1.5 * residual)
    assert path.bic[3] == pytest.approx(600 * np.log(residual) + 12 * np.log(200))
    chosen = KSparseRegressorCV(np.arange(1, 8)).fit(X, Y)
    assert chosen.k_ == 4
    assert chosen.predict(X).shape == (200, 3)
    by_hand = KSparseRegressor(k=4).fit(X[40:], Y[40:])
    assert chosen.scores_[0, 3] == pytest.approx(-np.sum((Y[:40] - by_hand.predict(X[:40])) ** 2) / 80)
    labels = np.arange(30) // 4
    grouped = k_path(X, Y, estimator=KSparseRegressor(groups=labels))
    assert grouped.k.tolist() == list(range(1, 9))  # no more than there are groups
    assert grouped.best().groups_.tolist() == [0]


def test_paths_and_cross_validation_of_classes(wine):
    X, y = wine
    path = k_path(X, y, [1, 2, 4], KSparseClassifier())
    p = path.models[2].predict_proba(X)
    assert path.loss[2] == pytest.approx(-np.mean(np.log(p[np.arange(len(y)), y])))
    assert path.aic[2] == pytest.approx(2 * len(y) * path.loss[2] + 2 * 4 * 2)
    names = dict.fromkeys(X.columns[:3], "first")
    chosen = KSparseClassifierCV([1, 2, 4], estimator=KSparseClassifier(groups=names, always_keep=["ash"])).fit(X, y)
    assert chosen.score(X, y) > 0.9
    assert chosen.multi_class_ == "softmax"
    np.testing.assert_allclose(chosen.predict_proba(X).sum(axis=1), 1.0)
    strings = KSparseClassifierCV([1, 2], cv=3).fit(X, np.array(["x", "y", "z"])[y])
    assert set(strings.predict(X)) == {"x", "y", "z"}


# --- what cannot be had is said --------------------------------------------------------------------------------------
IRIS = load_iris(return_X_y=True)


@pytest.mark.parametrize(
    ("model", "data", "message"),
    [
        (KSparseClassifier(multi_class="softmax", solver=HTSVRG()), IRIS, "or use multi_class='ovr'"),
        (KSparseClassifier(multi_class="softmax", positive=True), IRIS, "positive must be False for multi_class"),
        (KSparseClassifier(multi_class="softmax", loss="squared_hinge"), IRIS, "is for loss='logistic'"),
        (KSparseClassifier(multi_class="both"), IRIS, "multi_class must be one of 'auto', 'softmax', 'ovr'"),
        (KSparseRegressor(loss="huber"), planted(), "fit the targets one by one"),
        (KSparseRegressor(loss="poisson"), planted(), "fit the targets one by one"),
        (KSparseRegressor(solver="ht-svrg"), planted(), "solver must be 'auto' or an Exchange for several targets"),
        (KSparseRegressor(positive=True), planted(), "positive must be False for several targets"),
        (KSparseRegressor(groups=[0, 1]), planted(), "groups must have one label per column, that is shape \\(30,\\)"),
        (KSparseRegressor(groups={"bmi": 1}), planted(), "groups names the column 'bmi'"),
        (KSparseRegressor(groups={3: []}), planted(), "groups must hold labels such as"),
        (KSparseClassifier(groups=[0, 0, 1, 1], solver="pgd"), IRIS, "multi_class='softmax'|for groups"),
        (KSparseClassifier(groups=[0, 0, 1, 1], positive=True), IRIS, "positive must be False for groups"),
        (KSparseRegressor(), (planted()[0], sparse.csr_array(planted()[1])), "y must be dense"),
        (KSparseRegressorCV(estimator=KSparseRegressor(loss="huber")), planted(), "fit the targets one by one"),
    ],
)  # fmt: skip
def test_what_cannot_be_had_is_said(model, data, message):
    with pytest.raises(ValueError, match=message):
        model.fit(*data)


def test_a_fit_that_is_cut_short_warns():
    X, Y = planted()
    with pytest.warns(ConvergenceWarning, match="all 1 stages done"):
        KSparseRegressor(k=4, solver=Exchange(stages=1)).fit(X, Y)
    frame = pd.DataFrame(X, columns=[f"c{j}" for j in range(30)])
    seen = []
    KSparseRegressor(k=4, callback=lambda told: seen.append(told.x.shape)).fit(frame, Y)
    assert seen
    assert set(seen) == {(30, 3)}
