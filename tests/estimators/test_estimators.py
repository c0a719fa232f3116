"""The estimators as scikit-learn's users meet them."""

from __future__ import annotations

import inspect
import json
import pickle
import re

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_iris
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.linear_model import LinearRegression, PoissonRegressor
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from ksparse import (
    HTSVRG,
    PGD,
    Exchange,
    KSparseClassifier,
    KSparseClassifierCV,
    KSparseRegressor,
    KSparseRegressorCV,
    KSparseSelector,
    k_path,
    load,
)


@parametrize_with_checks([KSparseRegressor(), KSparseClassifier(), KSparseSelector(), KSparseRegressorCV([1, 2], cv=3)])
@pytest.mark.filterwarnings("ignore")
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


@pytest.mark.long
@parametrize_with_checks(
    [KSparseRegressor(loss="poisson"), KSparseClassifierCV([1, 2], cv=3), KSparseClassifier(multi_class="ovr")]
)
@pytest.mark.filterwarnings("ignore")
def test_scikit_learns_own_checks_of_variants(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def diabetes():
    return load_diabetes(return_X_y=True, as_frame=True)


@pytest.fixture(scope="module")
def cancer():
    return load_breast_cancer(return_X_y=True, as_frame=True)


# --- what they learn -------------------------------------------------------------------------------------------------
def test_all_features_are_least_squares(diabetes):
    X, y = diabetes
    plain = LinearRegression().fit(X, y)
    for settings in ({}, {"standardize": False}):
        model = KSparseRegressor(k=10, l2=0.0, **settings).fit(X, y)
        np.testing.assert_allclose(model.coef_, plain.coef_, rtol=1e-6)
        assert model.intercept_ == pytest.approx(plain.intercept_)
    same = KSparseRegressor(k=10, l2=0.0, fit_intercept=False).fit(X, y)
    np.testing.assert_allclose(same.coef_, LinearRegression(fit_intercept=False).fit(X, y).coef_, rtol=1e-6)
    assert same.intercept_ == 0.0


def test_poisson_is_scikit_learns(diabetes):
    X, y = diabetes
    exposure = np.linspace(0.5, 2.0, len(y))
    rng = np.random.default_rng(0)
    counts = rng.poisson(exposure * np.exp(1 + 10 * X["bmi"] - 5 * X["bp"]))
    ours = KSparseRegressor(k=10, loss="poisson", l2=0.0, standardize=False).fit(X, counts)
    theirs = PoissonRegressor(alpha=0.0, tol=1e-10, max_iter=10_000).fit(X, counts)
    np.testing.assert_allclose(ours.predict(X), theirs.predict(X), rtol=1e-3)
    rated = KSparseRegressor(k=2, loss="poisson").fit(X, counts, offset=np.log(exposure))
    assert set(rated.get_feature_names_out()) == {"bmi", "bp"}
    np.testing.assert_allclose(rated.coef_[rated.support_], [10, -5], rtol=0.2)
    with pytest.raises(ValueError, match="must not be negative for the poisson loss"):
        KSparseRegressor(loss="poisson").fit(X, -counts)


@pytest.mark.parametrize("labels", [["no", "yes"], [False, True], [3, 7], [-1.0, 1.0]])
def test_labels_of_any_kind(cancer, labels):
    X, y = cancer
    model = KSparseClassifier(k=3).fit(X, np.array(labels)[y])
    assert set(model.predict(X)) <= set(labels)
    assert model.classes_.tolist() == sorted(labels)
    assert (model.predict(X) == np.array(labels)[y]).mean() > 0.95
    assert model.coef_.shape == (1, 30)
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1.0)
    assert ((model.predict_proba(X)[:, 1] > 0.5) == (model.predict(X) == model.classes_[1])).all()


def test_several_classes_one_against_the_rest():
    X, y = load_iris(return_X_y=True)
    model = KSparseClassifier(k=2, multi_class="ovr").fit(X, y)
    assert model.coef_.shape == (3, 4)
    assert (np.count_nonzero(model.coef_, axis=1) <= 2).all()
    assert model.score(X, y) > 0.9
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1.0)
    assert model.decision_function(X).shape == (150, 3)
    assert str(model.summary()).count("(intercept)") == 3


def test_weights_are_repetitions(cancer):
    X, y = (np.asarray(part)[:200] for part in cancer)
    weight = np.random.default_rng(0).integers(0, 3, 200)
    by_weight = KSparseClassifier(k=3).fit(X, y, sample_weight=weight)
    repeated = KSparseClassifier(k=3).fit(np.repeat(X, weight, axis=0), np.repeat(y, weight))
    np.testing.assert_allclose(by_weight.coef_, repeated.coef_, rtol=1e-5, atol=1e-9)
    balanced = KSparseClassifier(k=3, class_weight="balanced").fit(X, y)
    share = len(y) / (2 * np.bincount(y))
    np.testing.assert_allclose(balanced.coef_, KSparseClassifier(k=3).fit(X, y, sample_weight=share[y]).coef_)


def test_settings_do_what_they_say(diabetes):
    X, y = diabetes
    assert KSparseRegressor(k=0.25).fit(X, y).k_ == 3  # a share, rounded up
    assert KSparseRegressor(k=99).fit(X, y).k_ == 10  # clipped
    kept = KSparseRegressor(k=2, always_keep=["age"]).fit(X, y)
    assert "age" in kept.get_feature_names_out()
    assert kept.support_.size == 3
    by_mask = KSparseRegressor(k=2, always_keep=X.columns == "age").fit(X, y)
    np.testing.assert_allclose(by_mask.coef_, kept.coef_)
    assert (KSparseRegressor(k=4, positive=True).fit(X, y).coef_ >= 0).all()
    robust = KSparseRegressor(k=3, loss="huber").fit(X, np.where(np.arange(len(y)) < 5, 1e5, y))
    assert {"bmi", "s5"} <= set(robust.get_feature_names_out())
    stochastic = KSparseRegressor(k=3, solver=HTSVRG(), random_state=0).fit(X, y)
    np.testing.assert_array_equal(stochastic.support_, KSparseRegressor(k=3).fit(X, y).support_)
    first = KSparseRegressor(k=3, warm_start=True).fit(X, y)
    assert first.fit(X, y).n_iter_ <= 3
    seen = []
    KSparseRegressor(k=3, callback=lambda progress: seen.append(progress.stage)).fit(X, y)
    assert seen == list(range(1, len(seen) + 1))
    with pytest.warns(ConvergenceWarning, match="all 1 stages done"):
        KSparseRegressor(k=5, solver=Exchange(stages=1)).fit(X, y)
    assert KSparseRegressor(k=3).fit(X, y).swap_optimal_


# --- how they fit in -------------------------------------------------------------------------------------------------
def test_pandas_in_names_out(diabetes):
    X, y = diabetes
    model = KSparseRegressor(k=3).fit(X, y)
    assert model.feature_names_in_.tolist() == X.columns.tolist()
    assert model.get_feature_names_out().tolist() == ["bmi", "bp", "s5"]
    table = str(model.summary())
    assert "bmi" in table.splitlines()[2]
    assert "No p-values" in table
    selector = KSparseSelector(k=3).set_output(transform="pandas").fit(X, y)
    assert selector.transform(X).columns.tolist() == ["bmi", "bp", "s5"]
    with pytest.raises(ValueError, match="feature names"):
        model.predict(X[X.columns[::-1]])


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_sparse_is_dense(dtype):
    X, y = load_digits(return_X_y=True)
    X, y = X[y < 2].astype(dtype), y[y < 2]
    dense, csr = (KSparseClassifier(k=6).fit(A, y) for A in (X, sparse.csr_matrix(X)))
    tol = 1e-8 if dtype == np.float64 else 1e-4
    np.testing.assert_allclose(csr.coef_, dense.coef_, atol=tol * np.abs(dense.coef_).max())
    np.testing.assert_allclose(csr.decision_function(sparse.csr_array(X)), dense.decision_function(X), atol=100 * tol)
    assert dense.coef_.dtype == dtype
    assert dense.decision_function(X).dtype == dtype
    half = [KSparseRegressor(k=4, fit_intercept=False).fit(A, y) for A in (X, sparse.csc_array(X))]
    np.testing.assert_allclose(half[0].coef_, half[1].coef_, atol=10 * tol)


def test_pipelines_grids_clones_and_pickles(diabetes):
    X, y = diabetes
    pipeline = make_pipeline(PolynomialFeatures(2, include_bias=False), StandardScaler(), KSparseRegressor(k=5))
    grid = GridSearchCV(pipeline, {"ksparseregressor__k": [2, 4, 8]}, cv=3).fit(X, y)
    assert grid.best_score_ > 0.4
    model = grid.best_estimator_[-1]
    again = clone(model)
    assert again.get_params() == model.get_params()
    loaded = pickle.loads(pickle.dumps(grid.best_estimator_))
    np.testing.assert_allclose(loaded.predict(X), grid.predict(X), rtol=1e-12)
    with pytest.raises(NotFittedError):
        again.predict(X)
    chosen = make_pipeline(KSparseSelector(k=3), LinearRegression()).fit(X, y)
    assert chosen.score(X, y) > 0.45


def test_plain_models_for_deployment(diabetes, cancer):
    X, y = diabetes
    model = KSparseRegressor(k=3).fit(X, y)
    np.testing.assert_allclose(model.to_sklearn().predict(X), model.predict(X))
    X, y = cancer
    model = KSparseClassifier(k=3).fit(X, y)
    np.testing.assert_allclose(model.to_sklearn().predict_proba(X), model.predict_proba(X), rtol=1e-6)
    with pytest.raises(ValueError, match="two classes"):
        KSparseClassifier(k=1, multi_class="ovr").fit(*load_iris(return_X_y=True)).to_sklearn()
    hinge = KSparseClassifier(k=3, loss="squared_hinge").fit(X, y)
    assert hinge.score(X, y) > 0.95
    assert not hasattr(hinge, "predict_proba")


# --- models as files -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("case", ["regressor", "binary", "several", "poisson"])
def test_models_are_saved_and_loaded(tmp_path, diabetes, cancer, case):
    model, (X, y) = {
        "regressor": (KSparseRegressor(k=3), diabetes),
        "poisson": (KSparseRegressor(k=3, loss="poisson"), diabetes),
        "binary": (KSparseClassifier(k=3), (cancer[0], np.array(["no", "yes"])[cancer[1]])),
        "several": (KSparseClassifier(k=2, multi_class="ovr"), load_iris(return_X_y=True)),
    }[case]
    model.fit(X, y).save(tmp_path / "model.json")
    loaded = load(tmp_path / "model.json")
    np.testing.assert_allclose(loaded.coef_, model.coef_)
    same = np.array_equal if case in ("binary", "several") else np.allclose
    assert same(loaded.predict(X), model.predict(X))
    assert loaded.get_params()["k"] == model.k
    assert str(loaded.summary()) == str(model.summary())
    assert [path.name for path in tmp_path.iterdir()] == ["model.json"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m.update(format="other"), "not of the format"),
        (lambda m: m.update(version=99), "version is 99"),
        (lambda m: m.update({"class": "os.system"}), "is not one of"),
        (lambda m: m["parameters"].pop("k"), "parameters must be"),
        (lambda m: m["parameters"].update(loss="cubic"), "loss must be one of"),
        (lambda m: m.update(n_features=-1), "n_features"),
        (lambda m: m.update(outputs=[]), "outputs must be"),
        (lambda m: m.update(features=["a"]), "features must be 10 names"),
        (lambda m: m["outputs"][0]["columns"].append(3), "a coefficient, a worth and a scale per column"),
        (lambda m: m["outputs"][0]["columns"].__setitem__(0, 10), "different numbers below 10"),
        (lambda m: m["outputs"][0]["columns"].__setitem__(0, m["outputs"][0]["columns"][1]), "different numbers"),
        (lambda m: m["outputs"][0]["coefficients"].__setitem__(0, "1"), "finite numbers"),
        (lambda m: m["outputs"][0].update(intercept=None), "finite numbers"),
        (lambda m: m.update(classes=[0, 1]), "no classes"),
    ],
)
def test_malformed_models_are_refused(tmp_path, diabetes, change, message):
    KSparseRegressor(k=3).fit(*diabetes).save(tmp_path / "model.json")
    content = json.loads((tmp_path / "model.json").read_text())
    change(content)
    (tmp_path / "model.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match=message):
        load(tmp_path / "model.json")


def test_files_that_are_no_models(tmp_path):
    for content in (b"", b"{", b"[]", b"\xff\xfe", b"null"):
        (tmp_path / "x.json").write_bytes(content)
        with pytest.raises(ValueError, match=r"x\.json is not a model"):
            load(tmp_path / "x.json")
    with pytest.raises(FileNotFoundError, match=r"nowhere\.json"):
        load(tmp_path / "nowhere.json")


# --- choosing k ------------------------------------------------------------------------------------------------------
def planted(n=300, d=40, K=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    return X, X[:, :K] @ np.array([2.0, -1.5, 1.0, 1.0])[:K] + rng.standard_normal(n)


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


# --- data that are hard to like --------------------------------------------------------------------------------------
@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
def test_constant_and_repeated_columns(layout):
    X, y = planted(d=8)
    X = np.column_stack([X, np.zeros(300), np.full(300, 7.0), X[:, 0], X[:, 1] + X[:, 2]])
    for model in (KSparseRegressor(k=12).fit(layout(X), y), KSparseClassifier(k=12).fit(layout(X), y > 0)):
        assert not set(model.support_) & {8, 9}
        assert np.isfinite(model.coef_).all()
    assert KSparseRegressor(k=4).fit(layout(X), y).score(layout(X), y) > 0.85


def test_separable_classes_keep_their_weights():
    X = np.random.default_rng(0).standard_normal((100, 5))
    model = KSparseClassifier(k=2).fit(X, X[:, 0] > 0)
    assert model.score(X, X[:, 0] > 0) > 0.98
    assert np.abs(model.coef_).max() < 100  # the default ridge holds them
    free = KSparseClassifier(k=2, l2=0.0).fit(X, X[:, 0] > 0)
    assert np.isfinite(free.coef_).all()


def test_raw_pixels():
    """Whole numbers from 0 to 16, some pixels always 0: nothing has to be prepared."""
    X, y = load_digits(return_X_y=True)
    raw, constant = X.astype(np.uint8), np.flatnonzero(X.std(axis=0) == 0)
    assert constant.size > 0
    for layout in (np.asarray, sparse.csr_array):
        for model in (KSparseClassifier(k=20), KSparseClassifier(k=64)):
            model.fit(layout(raw), y)
            assert not set(model.support_) & set(constant)
            assert model.score(layout(raw), y) > 0.93
    with pytest.raises(ValueError, match="at least two classes, got only 3"):
        KSparseClassifier().fit(raw[y == 3], y[y == 3])


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
def test_more_features_than_the_rank(layout):
    """Twelve columns that span five dimensions: as good as all of them, with no column that is a combination."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 5)) @ rng.standard_normal((5, 12))
    y = X @ rng.standard_normal(12) + rng.standard_normal(200)
    plain = LinearRegression().fit(X, y)
    model = KSparseRegressor(k=12, l2=0.0).fit(layout(X), y)
    assert model.support_.size == 5
    assert model.score(layout(X), y) == pytest.approx(plain.score(X, y), rel=1e-9)
    assert np.abs(model.coef_).max() < 1e3
    labels = KSparseClassifier(k=12).fit(layout(X), y > 0)
    assert np.isfinite(labels.coef_).all()


def test_fewer_rows_than_features():
    X, y = planted(n=8, d=50)
    model = KSparseRegressor(k=20).fit(X, y)
    assert np.isfinite(model.coef_).all()
    assert model.l2_ == pytest.approx(0.1)  # as large as the default ridge gets
    free = KSparseRegressor(k=20, l2=0.0).fit(X, y)
    assert np.isfinite(free.coef_).all()
    assert free.score(X, y) > 0.99


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda X, y: KSparseClassifier().fit(X, np.ones(300)), "at least two classes"),
        (lambda X, y: KSparseRegressor().fit(X, y, sample_weight=np.zeros(300)), "all zero|one non-zero"),
        (lambda X, y: KSparseRegressor().fit(X, y, sample_weight=-np.ones(300)), "[Nn]egative"),
        (lambda X, y: KSparseRegressor().fit(np.where(X > 2, np.nan, X), y), "NaN"),
        (lambda X, y: KSparseRegressor().fit(X, np.where(y > 2, np.nan, y)), "NaN"),
        (lambda X, y: KSparseRegressor(k=0).fit(X, y), "k must be at least 1, got 0"),
        (lambda X, y: KSparseRegressor(k=2.5).fit(X, y), "or a share between 0 and 1, got 2.5"),
        (lambda X, y: KSparseRegressor(k="ten").fit(X, y), "k must be an integer, got 'ten'"),
        (lambda X, y: KSparseRegressor(loss="logistic").fit(X, y), "must be one of 'squared', 'poisson', 'gamma'"),
        (lambda X, y: KSparseClassifier(loss="squared").fit(X, y > 0), "loss must be one of 'logistic'"),
        (lambda X, y: KSparseRegressor(l2=-1.0).fit(X, y), "l2 must be a finite number of at least 0"),
        (lambda X, y: KSparseRegressor(solver="magic").fit(X, y), "solver must be one of"),
        (lambda X, y: KSparseRegressor(solver=Exchange(), positive=True).fit(X, y), "no positive=True"),
        (lambda X, y: KSparseRegressor(always_keep=[40]).fit(X, y), "columns below 40"),
        (lambda X, y: KSparseRegressor(always_keep=["a"]).fit(X, y), "names the column 'a'"),
        (lambda X, y: KSparseRegressor(always_keep=np.arange(40)).fit(X, y), "must leave columns"),
        (lambda X, y: KSparseRegressor().fit(X, y, offset=np.ones(3)), "offset must have one number per row"),
        (lambda X, y: KSparseRegressorCV([0, 1]).fit(X, y), "ks must be at least 1"),
    ],
)  # fmt: skip
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call(*planted())


def test_the_summary_escapes_names():
    X, y = planted(d=4, n=50)
    frame = pd.DataFrame(X, columns=["<b>a</b>", "b", "c", "d"])
    page = KSparseRegressor(k=4, solver=PGD()).fit(frame, y).summary()._repr_html_()
    assert "<b>a" not in page
    assert "&lt;b&gt;a" in page
    assert "(intercept)" in page
    assert page.count("<tr>") == 6


def test_balanced_classes_whose_weights_differ_beyond_all_measure():
    X, y = load_breast_cancer(return_X_y=True)
    weight = np.where(y == 1, 1e300, 1e-200)
    model = KSparseClassifier(k=2, l2=1e-3, class_weight="balanced").fit(X, y, sample_weight=weight)
    assert np.array_equal(model.support_, KSparseClassifier(k=2, l2=1e-3, class_weight="balanced").fit(X, y).support_)


# --- documentation ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "estimator", [KSparseRegressor, KSparseClassifier, KSparseRegressorCV, KSparseClassifierCV, KSparseSelector]
)
def test_docstrings_list_every_parameter_with_its_default_and_every_attribute(estimator):
    doc = inspect.cleandoc(estimator.__doc__)
    for name, parameter in inspect.signature(estimator).parameters.items():
        default = f'"{parameter.default}"' if isinstance(parameter.default, str) else str(parameter.default)
        assert re.search(rf"^{name} : .*, default={re.escape(default)}$", doc, re.MULTILINE), name
    X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    fitted = estimator().fit(X, y)
    for name in vars(fitted):
        if name.endswith("_"):
            assert re.search(rf"^{name} : ", doc, re.MULTILINE), name
    assert not re.search(r"^\{\w+\}", doc, re.MULTILINE)
    assert "Examples" in doc
