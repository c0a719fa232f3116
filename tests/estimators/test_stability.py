"""Stability: how often each feature is chosen over resamples of the rows."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import load_diabetes
from sklearn.linear_model import LinearRegression

from ksparse import HTSVRG, KSparseClassifier, KSparseRegressor, support_stability
from ksparse.estimators.stability import Stability, _parts


def planted(n=200, d=15, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    return X, X[:, :3] @ np.array([2.0, -1.5, 1.0]) + rng.standard_normal(n)


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
