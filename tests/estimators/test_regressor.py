"""Regressors: least squares and counts as in scikit-learn, and outliers by the Huber loss."""

from __future__ import annotations

import numpy as np
import pytest
from problems import three_of_eight
from sklearn.datasets import load_diabetes
from sklearn.linear_model import LinearRegression, PoissonRegressor

from ksparse import KSparseRegressor, k_path


@pytest.fixture(scope="module")
def diabetes():
    return load_diabetes(return_X_y=True, as_frame=True)


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


# --- huber -----------------------------------------------------------------------------------------------------------
def test_a_weight_of_three_is_three_rows_for_huber():
    """The middle of the targets falls between two rows: the weights must not be rounded."""
    for seed in range(10):
        rng = np.random.default_rng(seed)
        X, count = rng.standard_normal((30, 3)), rng.integers(1, 4, 30)
        y = X[:, 0] + rng.standard_t(2, 30)
        weighted = KSparseRegressor(k=2, loss="huber").fit(X, y, count.astype(float))
        repeated = KSparseRegressor(k=2, loss="huber").fit(np.repeat(X, count, axis=0), np.repeat(y, count))
        assert weighted.unit_ == pytest.approx(repeated.unit_, rel=1e-12)


def test_huber_does_not_depend_on_the_unit_of_y():
    X, y = three_of_eight()
    y = y + np.where(np.arange(60) < 5, 50.0, 0.0)
    paths = [k_path(X, y * unit, range(1, 6), KSparseRegressor(loss="huber")) for unit in (1e-3, 1.0, 1e3)]
    for path in paths:
        assert path.best().k_ == paths[1].best().k_
        np.testing.assert_allclose(path.loss, paths[1].loss, rtol=1e-6)
    for model, loss in zip(paths[1].models, paths[1].loss, strict=True):  # the objective is this loss and the ridge
        ridge = 0.5 * model.l2_ * np.sum((model.coef_ / model.unit_ * X.std(axis=0)) ** 2)
        assert model.objective_ == pytest.approx(loss + ridge, rel=1e-6)


def test_hubers_scale_is_that_of_the_rows_that_count():
    X, y = three_of_eight()
    weight = np.random.default_rng(1).integers(0, 4, 60)
    wild = np.where(weight > 0, y, 1e6)
    for k in (1, 2, 3):
        weighted = KSparseRegressor(k, loss="huber").fit(X, wild, sample_weight=weight)
        repeated = KSparseRegressor(k, loss="huber").fit(np.repeat(X, weight, axis=0), np.repeat(wild, weight))
        np.testing.assert_allclose(weighted.coef_, repeated.coef_, rtol=1e-5, atol=1e-8)
        assert weighted.unit_ == pytest.approx(repeated.unit_)
