"""Learning from rows that come in batches: the model of all rows seen, or of a uniform sample of them."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone

from ksparse import HTSVRG, KSparseClassifier, KSparseRegressor
from ksparse.estimators.tables import Reservoir

BATCHES = (slice(0, 7), slice(7, 150), slice(150, 300))


def planted(n=300, d=12, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) * (rng.random((n, d)) < 0.5)
    return X, X[:, :3] @ np.array([2.0, -1.5, 1.0]) + 0.5 * rng.standard_normal(n) + 3.0, rng.integers(0, 3, n) * 0.5


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array, sparse.csr_matrix])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("loss", ["squared", "huber"])
def test_with_room_for_all_rows_a_regressor_is_that_of_fit(layout, weighted, loss):
    X, y, weight = planted()
    model = KSparseRegressor(k=3, loss=loss)
    for batch in BATCHES:
        model.partial_fit(layout(X[batch]), y[batch], sample_weight=weight[batch] if weighted else None)
    used = (
        weight > 0 if weighted else np.ones(300, dtype=bool)
    )  # the spread of Huber's targets is that of rows that count
    whole = KSparseRegressor(k=3, loss=loss).fit(
        layout(X[used]), y[used], sample_weight=weight[used] if weighted else None
    )
    np.testing.assert_allclose(model.coef_, whole.coef_, rtol=1e-6, atol=1e-9)
    assert model.intercept_ == pytest.approx(whole.intercept_)
    assert model.reservoir_.seen == used.sum()
    assert sparse.issparse(model.reservoir_.X) == (layout is not np.asarray)


@pytest.mark.parametrize("solver", ["auto", "ht-svrg"])
@pytest.mark.parametrize("seed", [196, 203, 264, 294, 333, 394])  # from the first half's model a search ends elsewhere
def test_it_ends_in_the_local_optimum_of_fit(seed, solver):
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(20, 60)), int(rng.integers(5, 30))
    X = rng.standard_normal((n, 1)) + 0.5 * rng.standard_normal((n, d))
    y = X[:, :3].sum(axis=1) + rng.standard_normal(n)
    model = KSparseRegressor(k=2, solver=solver, random_state=0)
    whole = clone(model).fit(X, y)
    model.partial_fit(X[: n // 2], y[: n // 2]).partial_fit(X[n // 2 :], y[n // 2 :])
    np.testing.assert_allclose(model.coef_, whole.coef_, rtol=1e-9)


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("names", [np.array(["no", "yes"]), np.array(["a", "bb", "ccc"])])
@pytest.mark.parametrize("class_weight", [None, "balanced"])
def test_with_room_for_all_rows_a_classifier_is_that_of_fit(layout, weighted, names, class_weight):
    X, score, weight = planted()
    y = names[np.digitize(score, np.quantile(score, np.arange(1, len(names)) / len(names)))]
    weight = weight + 0.5 if weighted else np.ones(300)
    model = KSparseClassifier(k=3, class_weight=class_weight)
    for batch in BATCHES:
        classes = names[::-1] if batch.start == 0 else None  # in any order, and once is enough
        model.partial_fit(layout(X[batch]), y[batch], classes, weight[batch] if weighted else None)
    whole = KSparseClassifier(k=3, class_weight=class_weight).fit(layout(X), y, weight if weighted else None)
    np.testing.assert_allclose(model.coef_, whole.coef_, rtol=1e-5, atol=1e-8)
    np.testing.assert_array_equal(model.predict(layout(X)), whole.predict(layout(X)))
    assert model.classes_.tolist() == names.tolist()


def test_weights_that_come_late_count_ones_before():
    X, y, weight = planted()
    model = KSparseRegressor(k=3).partial_fit(X[:100], y[:100]).partial_fit(X[100:], y[100:], weight[100:])
    weight[:100] = 1.0
    np.testing.assert_allclose(model.coef_, KSparseRegressor(k=3).fit(X, y, weight).coef_, rtol=1e-6, atol=1e-9)


def test_rows_may_change_their_layout():
    X, y, _ = planted()
    whole = KSparseRegressor(k=3).fit(X, y).coef_
    for first, second in ((np.asarray, sparse.csc_array), (sparse.csr_matrix, np.asarray)):
        model = KSparseRegressor(k=3).partial_fit(first(X[:50]), y[:50]).partial_fit(second(X[50:]), y[50:])
        np.testing.assert_allclose(model.coef_, whole, rtol=1e-6, atol=1e-9)


# --- the sample ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("sizes", [(20, 20, 20), (5, 60, 60), (30, 20, 10)], ids=["fixed", "grown", "shrunk"])
def test_every_row_has_the_same_chance(sizes):
    counts, pairs = np.zeros(120), 0
    for seed in range(1500):
        sample = Reservoir.empty(np.random.default_rng(seed))
        for (low, high), size in zip(((0, 10), (10, 90), (90, 120)), sizes, strict=True):
            numbers = np.arange(low, high)
            sample = sample.joined(numbers[:, np.newaxis] * 1.0, numbers, None, size)
        assert len(sample.y) == min(sizes)  # what was forgotten does not come back
        np.testing.assert_array_equal(sample.X[:, 0], sample.y)
        assert (np.diff(sample.y) > 0).all()
        counts[sample.y] += 1
        pairs += np.count_nonzero(np.diff(sample.y) == 1)  # neighbours are drawn no more often than others
    share = min(sizes) / 120
    spread = np.sqrt(1500 * share * (1 - share))
    assert np.abs(counts - 1500 * share).max() < 4.5 * spread
    assert abs((counts[:10].mean() - counts[90:].mean()) / spread) < 4 * np.sqrt(1 / 10 + 1 / 30)
    expected = 1500 * len(sample.y) * (len(sample.y) - 1) / 120
    assert pairs == pytest.approx(expected, abs=4.5 * np.sqrt(expected))


def test_memory_is_bounded_and_draws_come_from_the_seed():
    X, y, _ = planted()
    models = {}
    for name, seed in (("first", 1), ("again", 1), ("other", 2), ("legacy", np.random.RandomState(1))):
        model = models[name] = KSparseRegressor(k=3, reservoir=40, random_state=seed)
        for batch in BATCHES:
            model.partial_fit(X[batch], y[batch])
        assert model.reservoir_.X.shape == (40, 12)
        assert model.reservoir_.seen == 300
        np.testing.assert_allclose(
            model.coef_, KSparseRegressor(k=3).fit(model.reservoir_.X, model.reservoir_.y).coef_, rtol=1e-6, atol=1e-9
        )
    np.testing.assert_array_equal(models["first"].reservoir_.y, models["again"].reservoir_.y)
    np.testing.assert_allclose(models["first"].coef_, models["again"].coef_, rtol=1e-9)
    assert (models["first"].reservoir_.y != models["other"].reservoir_.y).any()


def test_a_pickle_goes_on_where_it_was_and_a_clone_starts_anew():
    X, y, _ = planted()
    model = KSparseRegressor(k=3, reservoir=40, random_state=1).partial_fit(X[:100], y[:100])
    other = pickle.loads(pickle.dumps(model))
    one, two = (each.partial_fit(X[100:], y[100:]) for each in (model, other))
    np.testing.assert_array_equal(one.reservoir_.y, two.reservoir_.y)
    np.testing.assert_allclose(one.coef_, two.coef_, rtol=1e-9)
    assert not hasattr(clone(model), "reservoir_")
    assert clone(model).reservoir == 40
    assert not hasattr(model.fit(X, y), "reservoir_")
    assert model.partial_fit(X[:50], y[:50]).reservoir_.seen == 50


def test_a_warm_start_goes_on_from_the_coefficients():
    X, y, _ = planted()
    model = KSparseRegressor(k=3, solver=HTSVRG(), random_state=0, warm_start=True).partial_fit(X, y)
    again = model.partial_fit(X[:0:-1], y[:0:-1])
    assert again.history_.objective[0] < 1.1 * again.history_.objective[-1]  # not from zero
    assert KSparseRegressor(k=3).fit(X, y).history_.objective[0] > 2 * again.history_.objective[-1]


# --- classes that come later -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("loss", ["logistic", "squared_hinge"])
@pytest.mark.parametrize("intercept", [True, False])
def test_classes_to_come(loss, intercept):
    X, score, _ = planted()
    y = np.digitize(score, [2.0, 4.0])
    model = KSparseClassifier(k=3, loss=loss, fit_intercept=intercept, class_weight="balanced")
    only = y == 2
    model.partial_fit(X[only], y[only], classes=[0, 1, 2])
    assert model.coef_.shape == (3, 12)
    assert np.isfinite(model.coef_).all()
    assert (model.predict(X) == 2).all()
    assert model.k_ == 3
    assert np.isfinite(model.objective_)
    model.partial_fit(X[y == 0], y[y == 0])
    assert (model.predict(X) != 1).mean() > (0.99 if intercept else 0.9)
    model.partial_fit(X[y == 1], y[y == 1])
    order = np.concatenate([np.flatnonzero(y == c) for c in (2, 0, 1)])
    whole = clone(model).fit(X[order], y[order])
    np.testing.assert_allclose(model.decision_function(X), whole.decision_function(X), rtol=1e-4, atol=1e-4)


def test_two_classes_of_which_one_is_to_come():
    X, score, _ = planted()
    y = np.where(score > 3, "yes", "no")
    for label in ("yes", "no"):
        model = KSparseClassifier(k=3).partial_fit(X[y == label], y[y == label], ["no", "yes"])
        assert (model.predict(X) == label).all()
        assert model.predict_proba(X).max() < 1.0
        assert "intercept" in str(model.summary())


# --- what is refused -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda X, y: KSparseClassifier().partial_fit(X, y), "classes must be given at the first call"),
        (lambda X, y: KSparseClassifier().partial_fit(X, y, [0]), r"at least two classes, got \[0\]"),
        (
            lambda X, y: KSparseClassifier().partial_fit(X, y, [0, 5]),
            "y must hold classes that the first call named, got",
        ),
        (
            lambda X, y: KSparseClassifier().partial_fit(X, y, [0, 1]).partial_fit(X, y, [0, 1, 2]),
            r"classes must stay \[0, 1\], got \[0, 1, 2\]",
        ),
        (lambda X, y: KSparseRegressor(reservoir=0).partial_fit(X, y), "reservoir must be at least 1, got 0"),
        (lambda X, y: KSparseRegressor(reservoir=1e4).partial_fit(X, y), "reservoir must be an integer, got 10000.0"),
        (lambda X, y: KSparseRegressor().partial_fit(X, y).partial_fit(X[:, :3], y), "X has 3 features, but"),
        (lambda X, y: KSparseRegressor().fit(X, y).partial_fit(X[:, :3], y), "X has 3 features, but"),
        (lambda X, y: KSparseRegressor().partial_fit(X, y, np.zeros(300)), "all zero|one non-zero"),
        (lambda X, y: KSparseRegressor(loss="poisson").partial_fit(X, -1.0 * y), "must not be negative"),
    ],
)
def test_bad_input_is_named(call, message):
    X, score, _ = planted()
    with pytest.raises(ValueError, match=message):
        call(X, (score > 3).astype(int))


def test_names_are_those_of_the_first_call():
    X, y, _ = planted()
    frame = pd.DataFrame(X, columns=[f"column {j}" for j in range(12)])
    model = KSparseRegressor(k=3).partial_fit(frame[:100], y[:100]).partial_fit(frame[100:], y[100:])
    assert model.get_feature_names_out().tolist() == ["column 0", "column 1", "column 2"]
    with pytest.raises(ValueError, match="feature names"):
        model.partial_fit(frame[frame.columns[::-1]], y)


def test_a_call_that_fails_leaves_the_model_as_it_was():
    X, y, _ = planted()
    model = KSparseRegressor(k=3).partial_fit(X[:100], y[:100])
    before = model.coef_.copy()
    model.set_params(solver="magic")
    with pytest.raises(ValueError, match="solver must be one of"):
        model.partial_fit(X[100:], y[100:])
    np.testing.assert_array_equal(model.coef_, before)
    model.set_params(solver="auto").partial_fit(X[100:], y[100:])
    np.testing.assert_allclose(model.coef_, KSparseRegressor(k=3).fit(X, y).coef_, rtol=1e-6, atol=1e-9)
