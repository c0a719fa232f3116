"""The search that begins with a sample of the rows: the same fits as the search on all rows, from few passes."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from ksparse import KSparseClassifier, joint, minimize
from ksparse.problem import Problem
from ksparse.solvers.exchange import draw, sample
from ksparse.solvers.exchange.sample import SampledSearch
from ksparse.sources import Blocks

N, D = 6000, 30


@pytest.fixture
def small_samples(monkeypatch):
    """Begin with a sample of 500 rows, however few there are."""

    def begin(first=500):
        for name, value in (("LARGE", 0), ("MANY", 0), ("FIRST", first), ("EACH", 1)):
            monkeypatch.setattr(sample, name, value)

    return begin


def made(loss, seed=0, n=N):
    """Correlated columns of different sizes and means, and targets of the kind that the loss needs."""
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((n, D))
    A[:, 1:] = 0.8 * A[:, 1:] + 0.6 * A[:, :-1]
    z = A[:, [3, 9, 20]] @ [0.8, -0.6, 0.7]
    A = A * rng.uniform(0.1, 5.0, D) + rng.uniform(-1.0, 1.0, D)
    y = {
        "logistic": lambda: np.where(rng.random(n) < 1 / (1 + np.exp(-z)), 1.0, -1.0),
        "squared_hinge": lambda: np.where(rng.random(n) < 1 / (1 + np.exp(-z)), 1.0, -1.0),
        "poisson": lambda: rng.poisson(np.exp(z)).astype(float),
        "gamma": lambda: rng.gamma(2.0, np.exp(z) / 2.0),
        "huber": lambda: z + rng.standard_t(2, n),
    }[loss]()
    return A, y


def layouts(A, dtype=np.float64):
    A = A.astype(dtype)
    thin = sparse.csr_array(np.where(np.quantile(A, 0.9, axis=0) < A, A, 0.0).astype(dtype))
    return {
        "dense": (A, A),
        "sparse": (thin, thin),
        "source": (A, Blocks([A[:2500], A[2500:2501], A[2501:]])),
        "sparse source": (thin, Blocks([thin[:2500], thin[2500:]])),
    }


@pytest.mark.parametrize("layout", ["dense", "sparse", "source", "sparse source"])
@pytest.mark.parametrize("loss", ["logistic", "squared_hinge", "poisson", "gamma", "huber"])
def test_same_fit_as_on_all_rows(loss, layout, small_samples):
    A, y = made(loss)
    whole, given = layouts(A)[layout]
    settings = {"loss": loss, "intercept": True, "standardize": layout != "source"}
    full = minimize(whole, y, 3, **settings)
    small_samples()
    found = minimize(given, y, 3, **settings)
    np.testing.assert_array_equal(found.support, full.support)
    np.testing.assert_allclose(found.objective, full.objective, rtol=1e-10)
    np.testing.assert_allclose(found.x, full.x, rtol=1e-5, atol=1e-6 * np.abs(full.x).max())
    np.testing.assert_allclose(found.null_objective, full.null_objective, rtol=1e-10)
    assert found.converged
    assert found.swap_optimal
    assert found.history.gradients[-1] <= 15 * N


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("intercept", [True, False])
def test_weights_offset_ridge_and_kept_columns(intercept, dtype, small_samples):
    A, y = made("logistic", 1)
    rng = np.random.default_rng(5)
    settings = {
        "loss": "logistic", "intercept": intercept, "l2": 0.01, "offset": 0.3 * rng.standard_normal(N),
        "sample_weight": rng.integers(0, 4, N).astype(float), "always_keep": [0, 7], "standardize": True,
    }  # fmt: skip
    full = minimize(A.astype(dtype), y, 3, **settings)
    small_samples()
    for given in (A.astype(dtype), Blocks([A[:1000].astype(dtype), A[1000:].astype(dtype)])):
        found = minimize(given, y, 3, **settings)
        np.testing.assert_array_equal(found.support, full.support)
        np.testing.assert_allclose(found.objective, full.objective, rtol=1e-6 if dtype == np.float32 else 1e-10)


@pytest.mark.parametrize("source", [False, True])
@pytest.mark.parametrize("case", ["softmax", "groups", "softmax groups"])
def test_groups_and_classes(case, source, small_samples):
    rng = np.random.default_rng(3)
    A = rng.standard_normal((N, D))
    z = A[:, [2, 3, 10]] @ rng.standard_normal((3, 4)) * 1.5
    y, loss = np.argmax(z + rng.gumbel(size=z.shape), axis=1), "softmax"
    if case == "groups":
        y, loss = np.where(z[:, 0] + rng.logistic(size=N) > 0, 1.0, -1.0), "logistic"
    settings = {"loss": loss, "intercept": True, "l2": 1e-3, "groups": np.arange(D) // 2 if "groups" in case else None}
    k = 2 if "groups" in case else 3
    full = joint(A, y, k, **settings)
    small_samples(1000)
    found = joint(Blocks([A[:3000], A[3000:]]) if source else A, y, k, **settings)
    np.testing.assert_array_equal(found.support, full.support)
    np.testing.assert_allclose(found.objective, full.objective, rtol=1e-9)
    np.testing.assert_allclose(found.x, full.x, atol=1e-5)


@pytest.mark.parametrize("several", [False, True])
def test_least_squares_on_a_source_whose_columns_do_not_fit(several, monkeypatch):
    rng = np.random.default_rng(0)
    A = rng.standard_normal((N, D)) + 3.0
    Y = A[:, [4, 11]] @ np.array([[1.0, -1.0, 0.5], [2.0, 0.0, 1.0]]) + rng.standard_normal((N, 3))
    monkeypatch.setattr(sample, "FIRST", 500)
    source = Blocks([A[:2000], A[2000:]], memory=1 << 20)
    assert not sample.columns_fit(source, 2)
    if several:
        full, found = (joint(X, Y, 2, intercept=True) for X in (A, source))
    else:
        full, found = (minimize(X, Y[:, 0], 2, intercept=True) for X in (A, source))
    np.testing.assert_array_equal(found.support, full.support)
    np.testing.assert_allclose(found.objective, full.objective, rtol=1e-10)
    np.testing.assert_allclose(found.x, full.x, rtol=1e-7)


# --- samples that mislead --------------------------------------------------------------------------------------------
def rare_columns(n=60_000):
    """Columns 5 and 6 are zero in all but some thirty rows, and decide those; beside them weak columns."""
    rng = np.random.default_rng(0)
    A = rng.standard_normal((n, 20))
    A[:, 5:7] = 0.0
    rare = rng.choice(n, 60, replace=False)
    A[rare[:30], 5], A[rare[30:], 6] = 400.0, -300.0
    z = A[:, 0] + 0.02 * A[:, 8] + 0.02 * A[:, 9] + 0.05 * A[:, 5] + 0.05 * A[:, 6]
    return A, z + 0.5 * rng.standard_t(3, n)


def heavy_tails(n=60_000):
    """Columns with a few enormous entries, whose sample says nothing of where most of the loss is."""
    rng = np.random.default_rng(1)
    A = rng.standard_normal((n, 20))
    A[:, 10:14] = rng.standard_cauchy((n, 4)).clip(-1e4, 1e4)
    z = 0.5 * A[:, 0] + 0.3 * A[:, 2] + np.sign(A[:, 11]) * np.abs(A[:, 11]).clip(0.0, 50.0) * 0.2
    return A, np.where(z + rng.logistic(size=n) > 0, 1.0, -1.0)


@pytest.mark.parametrize(("made_up", "loss", "k"), [(rare_columns, "huber", 3), (heavy_tails, "logistic", 3)])
def test_all_rows_mend_what_a_sample_missed(made_up, loss, k, small_samples, monkeypatch):
    A, y = made_up()
    settings = {"loss": loss, "intercept": True, "standardize": True}
    full = minimize(A, y, k, **settings)
    small_samples(300)
    monkeypatch.setattr(draw, "LARGEST", 0.01)  # the sample stays small
    chosen = []
    search = SampledSearch._search_sample
    monkeypatch.setattr(
        SampledSearch, "_search_sample", lambda self, size: chosen.append(search(self, size)) or chosen[-1]
    )
    found = minimize(A, y, k, **settings)
    if made_up is rare_columns:
        assert set(chosen[-1].columns.tolist()) != set(found.support.tolist())  # the sample was misled
    np.testing.assert_array_equal(found.support, full.support)
    np.testing.assert_allclose(found.objective, full.objective, rtol=1e-9)
    assert found.swap_optimal


def test_a_rare_label_is_in_every_sample(small_samples):
    rng = np.random.default_rng(2)
    A = rng.standard_normal((40_000, 20))
    z = 1.5 * A[:, 3] - 1.5 * A[:, 8] - 8.0
    y = np.where(rng.random(40_000) < 1 / (1 + np.exp(-z)), 1.0, -1.0)
    assert 20 < np.count_nonzero(y > 0) < 200
    full = minimize(A, y, 2, loss="logistic", intercept=True, standardize=True)
    small_samples(1000)
    found = minimize(A, y, 2, loss="logistic", intercept=True, standardize=True)
    np.testing.assert_array_equal(found.support, full.support)
    np.testing.assert_allclose(found.objective, full.objective, rtol=1e-10)
    search = SampledSearch(Problem.create(A, y, loss="logistic", intercept=True), 2, lambda: None)
    assert set(np.flatnonzero(y > 0)) <= set(search.sampler.pick(1000))


# --- stopping and going on -------------------------------------------------------------------------------------------
def test_continues_from_any_state(small_samples):
    A, y = made("logistic", 4)
    small_samples(100)
    problem = Problem.create(A, y, loss="logistic", intercept=True, l2=1e-3)

    def search():
        return SampledSearch(problem, 3, lambda: None)

    whole = search()
    states = [whole.state_of() for _ in whole.walk()]
    [end] = whole.stops([3], [1e-3])
    assert len(states) > 3
    for state in states:
        again = search()
        again.restore(state)
        for _ in again.walk():
            pass
        [stop] = again.stops([3], [1e-3])
        np.testing.assert_array_equal(stop.columns, end.columns)
        np.testing.assert_allclose(stop.x, end.x, rtol=1e-6)
        np.testing.assert_allclose(stop.objective, end.objective, rtol=1e-12)


def test_interrupted_after_a_sample_returns_its_support(small_samples):
    A, y = made("logistic", 4)
    small_samples(1000)
    found = SampledSearch(Problem.create(A, y, loss="logistic", intercept=True), 3, lambda: None)
    walk = found.walk()
    next(walk)
    with pytest.raises(KeyboardInterrupt):
        walk.throw(KeyboardInterrupt)
    stop, full = found.best_at(3)
    assert full
    assert stop.columns.size == 3
    assert stop.objective < found.null


def test_time_limit_of_a_sampled_search(small_samples):
    A, y = made("logistic", 4)
    small_samples()
    result = minimize(A, y, 3, loss="logistic", max_time=1e-9)
    assert result.status == "time limit"


def test_starts_from_what_it_is_given(small_samples):
    A, y = made("logistic", 4)
    first = minimize(A, y, 3, loss="logistic", intercept=True)
    small_samples()
    again = minimize(A, y, 3, loss="logistic", intercept=True, x0=first)
    np.testing.assert_array_equal(again.support, first.support)
    np.testing.assert_allclose(again.objective, first.objective, rtol=1e-10)


def test_many_rows_are_sampled_by_themselves():
    rng = np.random.default_rng(0)
    A = rng.standard_normal((140_000, 128), dtype=np.float32)
    y = np.where(A[:, 3] - A[:, 70] + rng.logistic(size=140_000) > 0, 1, 0)
    model = KSparseClassifier(k=2).fit(A, y)
    assert model.support_.tolist() == [3, 70]
    assert model.history_.gradients[-1] <= 15 * 140_000
    assert model.swap_optimal_
