"""The estimators as scikit-learn's users meet them."""

from __future__ import annotations

import inspect
import pickle
import re
import warnings

import numpy as np
import pandas as pd
import pytest
from problems import planted, three_of_eight
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_iris
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.model_selection import GridSearchCV, KFold, ShuffleSplit
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


# --- weights and settings --------------------------------------------------------------------------------------------
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


# --- data that are hard to like --------------------------------------------------------------------------------------
@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
def test_constant_and_repeated_columns(layout):
    X, y = planted(d=8)
    X = np.column_stack([X, np.zeros(300), np.full(300, 7.0), X[:, 0], X[:, 1] + X[:, 2]])
    for model in (KSparseRegressor(k=12).fit(layout(X), y), KSparseClassifier(k=12).fit(layout(X), y > 0)):
        assert not set(model.support_) & {8, 9}
        assert np.isfinite(model.coef_).all()
    assert KSparseRegressor(k=4).fit(layout(X), y).score(layout(X), y) > 0.85


@pytest.mark.parametrize("far", [1e4, 1e6, 1e9])
def test_sparse_columns_far_from_zero(far):
    """Such a column has no missing entry: it is shifted, not taken for a constant."""
    X, y = three_of_eight()
    for estimator, target in ((KSparseRegressor(3), y), (KSparseClassifier(3), y > 0)):
        dense, thin = (estimator.fit(A, target) for A in (X + far, sparse.csr_array(X + far)))
        np.testing.assert_array_equal(thin.support_, dense.support_)
        assert thin.objective_ == pytest.approx(dense.objective_, rel=1e-4)
        assert thin.certificate_.verdict != "unfinished"


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


# --- failures, warnings and what is seen on the way ------------------------------------------------------------------
def test_a_fit_that_fails_leaves_the_old_model():
    X, y = three_of_eight()
    model = KSparseClassifier(2).fit(X, np.digitize(y, [-2, 2]))
    before = model.predict(X)
    with pytest.raises(ValueError, match="k must be"):
        model.set_params(k=0).fit(X, y > 0)
    np.testing.assert_array_equal(model.predict(X), before)


def test_a_warm_start_from_another_shape_is_none():
    X, y = three_of_eight()
    for model, target in ((KSparseRegressor(2, warm_start=True), y), (KSparseClassifier(2, warm_start=True), y > 0)):
        model.fit(X, target)
        assert model.fit(X[:, :5], target).coef_.shape[-1] == 5
    batches = KSparseRegressor(2).partial_fit(X, y)
    with pytest.raises(ValueError, match="the targets of the first call"):
        batches.partial_fit(X, np.column_stack([y, y]))


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
def test_bad_settings_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call(*three_of_eight())


def test_what_looks_odd_and_is_fine():
    X, y = three_of_eight()
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


def test_progress_is_shown_and_changes_nothing(capfd, monkeypatch):
    X, y = three_of_eight()
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


@pytest.mark.parametrize("jobs", [None, 2])
def test_warnings_point_at_the_line_that_called(jobs):
    X, y = load_iris(return_X_y=True)
    regressor, classifier = (
        cls(k=3, solver=Exchange(stages=1), n_jobs=jobs) for cls in (KSparseRegressor, KSparseClassifier)
    )
    for call in (
        lambda: regressor.fit(X, X @ np.arange(4)),
        lambda: classifier.fit(X, y),
        lambda: classifier.partial_fit(X, y),
    ):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            call()
        assert caught
        for warning in caught:
            assert issubclass(warning.category, ConvergenceWarning)
            assert warning.filename == __file__


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
