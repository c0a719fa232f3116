"""What helps to choose and to trust a model: the support over resamples, classes in threads, chosen models as files."""

from __future__ import annotations

import threading
import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_iris
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.linear_model import LinearRegression

from ksparse import (
    HTSVRG,
    Exchange,
    KSparseClassifier,
    KSparseClassifierCV,
    KSparseRegressor,
    KSparseRegressorCV,
    k_path,
    load,
    support_stability,
)
from ksparse.estimators.stability import Stability, _parts


def planted(n=200, d=15, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    return X, X[:, :3] @ np.array([2.0, -1.5, 1.0]) + rng.standard_normal(n)


# --- the support over resamples --------------------------------------------------------------------------------------
@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
def test_what_is_there_is_found_in_every_half(layout):
    X, y = planted()
    stability = support_stability(layout(X), y, KSparseRegressor(k=3), random_state=0)
    np.testing.assert_array_equal(stability.stable(), [0, 1, 2])
    assert stability.agreement > 0.9
    assert stability.k == 3
    assert len(stability.supports) == stability.n_resamples == 50
    counts = np.zeros(15)
    for chosen in stability.supports:
        counts[chosen] += 1
    np.testing.assert_allclose(stability.frequency, counts / 50)
    lines = str(stability).splitlines()
    assert lines[0].startswith("Stability: 50 resamples, k = 3, agreement 0.9") or "agreement 1.00" in lines[0]
    assert [line.split()[0] for line in lines[2:5]] == ["x0", "x1", "x2"]
    assert len(lines) == 2 + np.count_nonzero(stability.frequency)


def test_noise_is_chosen_by_lot():
    X, _ = planted()
    noise = np.random.default_rng(1).standard_normal(200)
    stability = support_stability(X, noise, KSparseRegressor(k=3), random_state=0)
    assert stability.agreement < 0.5
    assert stability.stable(0.99).size == 0


@pytest.mark.filterwarnings("ignore:stage limit")
def test_the_same_seed_gives_the_same_whatever_the_threads():
    X, y = planted()
    y = np.digitize(y, [-1.0, 1.0])
    stochastic = KSparseClassifier(k=2, solver=HTSVRG(stages=5), random_state=np.random.default_rng(5))
    for estimator in (KSparseClassifier(k=2, multi_class="ovr"), stochastic):
        one, two, other = (
            support_stability(X, y, estimator, n_resamples=8, random_state=seed, n_jobs=jobs)
            for seed, jobs in ((3, None), (3, 2), (4, 2))
        )
        for a, b in zip(one.supports, two.supports, strict=True):
            np.testing.assert_array_equal(a, b)
        assert any(a.tolist() != b.tolist() for a, b in zip(one.supports, other.supports, strict=True))


def test_a_resample_is_a_fit_on_its_rows():
    X, y = planted()
    weight = np.random.default_rng(0).integers(0, 3, 200) * 1.0
    stability = support_stability(X, y, KSparseRegressor(k=4), n_resamples=3, random_state=9, sample_weight=weight)
    parts = _parts([np.flatnonzero(weight)], 0.5, 3, np.random.default_rng(9))
    for chosen, rows in zip(stability.supports, parts, strict=True):
        alone = KSparseRegressor(k=4).fit(X[rows], y[rows], sample_weight=weight[rows])
        np.testing.assert_array_equal(chosen, alone.support_)


def test_halves_come_in_pairs_and_keep_every_class():
    groups = [np.arange(0, 41), np.arange(41, 44), np.array([44])]
    parts = list(_parts(groups, 0.5, 5, np.random.default_rng(0)))
    assert len(parts) == 5
    for part in parts:
        assert len(np.unique(part)) == len(part) == 20 + 1 + 1
        assert all(np.isin(rows, part).any() for rows in groups)
    for first, second in (parts[:2], parts[2:4]):
        assert set(first) & set(second) <= {44}  # the only row of its class is in both
    assert set(parts[0]) != set(parts[2])
    for part in _parts(groups[:1], 0.7, 4, np.random.default_rng(0)):
        assert part.size == 28  # of 41
    X, y = planted()
    rare = np.where(np.arange(200) < 2, "rare", np.where(y > 0, "up", "down"))
    assert support_stability(X, rare, KSparseClassifier(k=2), n_resamples=6, random_state=0).k == 2


def test_agreement_is_kunchevas_for_supports_of_one_size():
    rng = np.random.default_rng(0)
    d, k, M = 12, 4, 7
    supports = [np.sort(rng.choice(d, k, replace=False)) for _ in range(M)]
    frequency = np.bincount(np.concatenate(supports), minlength=d) / M
    pairs = [len(set(a) & set(b)) for i, a in enumerate(supports) for b in supports[:i]]
    kuncheva = np.mean([(both - k * k / d) / (k - k * k / d) for both in pairs])
    names = [f"x{j}" for j in range(d)]
    assert Stability(frequency, names, k, M, supports).agreement == pytest.approx(kuncheva)
    assert Stability(np.ones(d), names, d, M, [np.arange(d)] * M).agreement == 1.0
    assert Stability(np.zeros(d), names, d, M, [np.arange(0)] * M).agreement == 1.0


def test_stability_knows_names():
    X, y = load_diabetes(return_X_y=True, as_frame=True)
    kept = KSparseRegressor(k=2, always_keep=["age"])
    stability = support_stability(X, y, kept, n_resamples=4, random_state=0)
    assert stability.names == X.columns.tolist()
    assert stability.frequency[0] == 1.0
    assert "age" in str(stability)
    assert kept.always_keep == ["age"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_resamples": 1}, "n_resamples must be at least 2, got 1"),
        ({"share": 0.0}, "share must be a finite number above 0"),
        ({"share": 1.0}, "share must be below 1, got 1.0"),
        ({"estimator": LinearRegression()}, "estimator must be a KSparseRegressor"),
        ({"sample_weight": np.zeros(200)}, "all zero|one non-zero"),
        ({"random_state": "seven"}, "random_state must be"),
    ],
)
def test_bad_settings_are_named(settings, message):
    X, y = planted()
    with pytest.raises(ValueError, match=message):
        support_stability(X, y, **settings)


def test_a_threshold_is_a_share():
    stability = support_stability(*planted(), KSparseRegressor(k=1), n_resamples=2, random_state=0)
    for threshold in (0.0, 1.5):
        with pytest.raises(ValueError, match="threshold must be"):
            stability.stable(threshold)


# --- chosen models ---------------------------------------------------------------------------------------------------
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


# --- classes in threads ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("solver", ["auto", HTSVRG(stages=3, tol=0.0)], ids=["exchange", "stochastic"])
@pytest.mark.parametrize("seed", [0, np.random.RandomState, np.random.default_rng], ids=["int", "legacy", "generator"])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_model_is_the_same_whatever_the_threads(solver, seed):
    X, y = load_digits(n_class=4, return_X_y=True)
    models = [
        KSparseClassifier(k=4, solver=solver, n_jobs=jobs, random_state=seed(7) if callable(seed) else seed).fit(X, y)
        for jobs in (None, 2, 4)
    ]
    for model in models:
        np.testing.assert_allclose(model.coef_, models[0].coef_, rtol=1e-9)
        np.testing.assert_allclose(model.worth_, models[0].worth_, rtol=1e-9)
        assert model.k_ == 4
        assert model.status_ == models[0].status_


def test_classes_are_learned_in_threads():
    X, y = load_digits(return_X_y=True)
    seen = []
    meet = threading.Barrier(2, timeout=100)  # both threads must be under way at once

    def note(progress):
        if threading.get_ident() not in seen:
            seen.append(threading.get_ident())
            meet.wait()

    KSparseClassifier(k=2, multi_class="ovr", n_jobs=2, callback=note).fit(X, y)
    assert len(seen) == 2
    seen = []
    KSparseClassifier(k=2, multi_class="ovr", callback=lambda progress: seen.append(threading.get_ident())).fit(X, y)
    assert set(seen) == {threading.get_ident()}


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


def test_fits_that_nobody_sees_are_not_examined(monkeypatch):
    """Refits for the worth of every feature would take a good part of a cross-validation."""
    from ksparse.estimators import base

    seen, examine = [], base.examine
    monkeypatch.setattr(base, "examine", lambda *all: (seen.append(1), examine(*all))[1])
    X, y = load_breast_cancer(return_X_y=True)
    model = KSparseClassifierCV([1, 2], cv=3).fit(X, y)
    assert len(seen) == 1
    assert model.estimator_.feature_worth_.max() > 0.0
    support_stability(X, y, KSparseClassifier(k=2), n_resamples=2)
    assert len(seen) == 1
    k_path(X, y, [1, 2], KSparseClassifier())
    assert len(seen) == 3  # these models are the user's
    for cv in (b"bytes", np.ones((2, 2, 2)), [(0, [999])], 0):
        with pytest.raises(ValueError, match="cv must be a number of folds"):
            KSparseClassifierCV([1], cv=cv).fit(X, y)
    with pytest.raises(ValueError, match="cv must give at least one fold"):
        KSparseClassifierCV([1], cv=[]).fit(X, y)
