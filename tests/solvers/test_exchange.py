"""Exchange: against brute force, in agreement on every layout, and sound on data that are not."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import oracle
import pytest
from scipy import sparse
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from ksparse import HTSVRG, Exchange, JointExchange, minimize


def correlated(n, d, K, rho, snr, seed):
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((n, d))
    for j in range(1, d):
        A[:, j] = rho * A[:, j - 1] + np.sqrt(1 - rho**2) * A[:, j]
    S = rng.choice(d, K, replace=False)
    x = np.zeros(d)
    x[S] = rng.choice([-1.0, 1.0], K) * rng.uniform(0.5, 1.5, K)
    signal = A @ x
    return A, signal + rng.standard_normal(n) * np.sqrt(signal.var() / snr), np.sort(S)


def least_squares(A, y, S, l2=0.0):
    X = A[:, S] - A[:, S].mean(axis=0)
    centred = y - y.mean()
    w = np.linalg.solve(X.T @ X / len(y) + l2 * np.eye(len(S)), X.T @ centred / len(y))
    return np.mean((X @ w - centred) ** 2) / 2 + l2 / 2 * w @ w


@pytest.mark.parametrize("seed", range(12))
def test_it_finds_the_best_subset_of_small_problems(seed):
    """All subsets tried: the best one, or on these correlated columns one within a thousandth of it."""
    A, y, _ = correlated(40, 12, 4, 0.8, 2.0, seed)
    for l2 in (0.0, 0.1):
        best = min(least_squares(A, y, S, l2) for S in combinations(range(12), 3))
        found = minimize(A, y, 3, solver=Exchange(), intercept=True, l2=l2)
        assert found.objective == pytest.approx(least_squares(A, y, found.support, l2))
        assert found.objective <= best * 1.001
        assert found.swap_optimal
        for out in found.support:  # the claim, checked
            for other in np.setdiff1d(np.arange(12), found.support):
                swapped = [*np.setdiff1d(found.support, out), other]
                assert least_squares(A, y, swapped, l2) >= found.objective * (1 - 2e-6)


@pytest.mark.parametrize("effort", ["fast", "default", "best"])
def test_swap_optimal_is_said_of_the_result_not_of_a_later_try(effort):
    """Perturbations that end elsewhere must not speak for the fit that is kept."""
    A, y, _ = correlated(40, 14, 4, 0.9, 1.0, 3)
    found = minimize(A, y, 4, solver=Exchange(effort=effort), intercept=True)
    lower = any(
        least_squares(A, y, [*np.setdiff1d(found.support, out), other]) < found.objective * (1 - 2e-6)
        for out in found.support
        for other in np.setdiff1d(np.arange(14), found.support)
    )
    assert found.swap_optimal == (not lower)


def test_what_is_called_swap_optimal_for_other_losses():
    """All exchanges refitted: what the quadratic model does not promise may help, but hardly ever does."""
    claims = wrong = 0
    for seed in range(12):
        A, z, _ = correlated(80, 12, 3, 0.85, 3.0, seed)
        y = np.where(z > 0, 1.0, -1.0)
        settings = {"loss": "logistic", "solver": Exchange(), "intercept": True, "l2": 0.001}
        found = minimize(A, y, 3, **settings)
        claims += bool(found.swap_optimal)
        others = [
            minimize(A[:, [*np.setdiff1d(found.support, out), other]], y, 3, **settings).objective
            for out in found.support
            for other in np.setdiff1d(np.arange(12), found.support)
        ]
        wrong += bool(found.swap_optimal) and min(others) < found.objective * (1 - 1e-5)
    assert claims >= 10
    assert wrong <= 1


def test_it_recovers_what_others_miss():
    hits = {"exchange": 0, "ht-svrg": 0}
    for seed in range(6):
        A, y, S = correlated(300, 500, 10, 0.9, 10.0, seed)
        for name, solver in (("exchange", Exchange()), ("ht-svrg", HTSVRG())):
            hits[name] += np.array_equal(minimize(A, y, 10, solver=solver, random_state=0).support, S)
    assert hits["exchange"] >= 5
    assert hits["exchange"] > hits["ht-svrg"]


PROBLEMS = ["squared", "logistic", "poisson", "huber", "squared_hinge"]


def targets(loss, A, rng):
    z = A[:, 0] - A[:, 1] + 0.5 * A[:, 2] + 0.3
    if loss in ("logistic", "squared_hinge"):
        return np.where(z + 0.7 * rng.standard_normal(len(z)) > 0, 1.0, -1.0)
    return rng.poisson(np.exp(0.5 * z)).astype(float) if loss == "poisson" else z + 0.5 * rng.standard_normal(len(z))


@pytest.mark.parametrize("loss", PROBLEMS)
@pytest.mark.parametrize("layout", ["csr", "float32", "fortran"])
def test_every_loss_and_layout(loss, layout):
    rng = np.random.default_rng(1)
    A = np.round(rng.standard_normal((250, 40)) * (rng.random((250, 40)) < 0.6), 3).astype(np.float32).astype(float)
    y = targets(loss, A, rng)
    settings = {
        "loss": loss, "solver": Exchange(), "intercept": True, "l2": 0.01, "sample_weight": rng.uniform(0.5, 2, 250),
        "always_keep": [7], "offset": 0.1 * rng.standard_normal(250),
    }  # fmt: skip
    dense = minimize(A, y, 4, **settings)
    other = {"csr": sparse.csr_array(A), "float32": A.astype(np.float32), "fortran": np.asfortranarray(A)}[layout]
    same = minimize(other, y, 4, **settings)
    np.testing.assert_allclose(same.x, dense.x, atol=1e-8)
    np.testing.assert_allclose(same.intercept, dense.intercept, atol=1e-8)
    assert dense.status == "converged"
    assert dense.support.size <= 5
    assert 7 in dense.support
    assert {0, 1} <= set(dense.support)


@pytest.mark.parametrize("loss", PROBLEMS)
def test_the_end_is_a_minimum_on_its_support(loss):
    """The gradient there, by the plain losses of the oracle, is zero."""
    rng = np.random.default_rng(2)
    A = rng.standard_normal((200, 30))
    y = targets(loss, A, rng)
    found = minimize(A, y, 5, loss=loss, solver=Exchange(), intercept=True, l2=0.05)
    z = A @ found.x + found.intercept
    slope = oracle.slope(loss, z, y)
    assert found.objective == pytest.approx(np.mean(oracle.value(loss, z, y)) + 0.025 * found.x @ found.x)
    gradient = A.T @ slope / 200 + 0.05 * found.x
    assert np.abs(gradient[found.support]).max() < 1e-4
    assert abs(slope.mean()) < 1e-4
    bigger = minimize(A, y, 6, loss=loss, solver=Exchange(), intercept=True, l2=0.05, x0=found)
    assert bigger.objective <= found.objective + 1e-12


def test_it_beats_the_gradient_methods_on_real_data():
    X, y = load_diabetes(return_X_y=True)
    cancer = load_breast_cancer()
    Z, labels = StandardScaler().fit_transform(cancer.data), np.where(cancer.target == 1, 1.0, -1.0)
    for A, target, loss, ks in ((X * 20, y, "squared", (2, 4)), (Z, labels, "logistic", (2, 5))):
        for k in ks:
            settings = {"loss": loss, "intercept": True, "l2": 1e-3}
            ours = minimize(A, target, k, solver=Exchange(), **settings)
            theirs = minimize(A, target, k, solver=HTSVRG(), random_state=0, **settings)
            assert ours.objective <= theirs.objective * (1 + 1e-6)


def test_all_columns_are_logistic_regression():
    cancer = load_breast_cancer()
    Z, y = StandardScaler().fit_transform(cancer.data), np.where(cancer.target == 1, 1.0, -1.0)
    found = minimize(Z, y, 30, loss="logistic", solver=Exchange(), intercept=True, l2=0.01)
    theirs = LogisticRegression(C=1 / (0.01 * len(y)), tol=1e-10, max_iter=10_000).fit(Z, y)
    np.testing.assert_allclose(found.x, theirs.coef_[0], atol=1e-4)


def test_warm_starts_and_interruptions():
    A, y, _ = correlated(200, 300, 6, 0.5, 20.0, 0)
    first = minimize(A, y, 6, solver=Exchange())
    again = minimize(A, y, 6, solver=Exchange(), x0=first)
    np.testing.assert_array_equal(again.support, first.support)
    assert again.objective == pytest.approx(first.objective)
    seen = []
    stopped = minimize(A, y, 6, solver=Exchange(), callback=lambda progress: seen.append(progress.objective) or True)
    assert stopped.status == "stopped"
    assert len(seen) == 1
    assert (np.diff(first.history.objective) <= 1e-12).all()
    with pytest.warns(ConvergenceWarning, match="no better than the intercept"):  # nothing was found in that time
        late = minimize(A, y, 6, solver=Exchange(), max_time=1e-6)
    assert late.status == "time limit"
    assert minimize(A, y, 6, solver=Exchange(stages=1)).status == "stage limit"


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_data_that_are_hard_to_like(loss):
    rng = np.random.default_rng(0)
    A = rng.standard_normal((60, 20))
    A[:, 3] = 0.0  # zero
    A[:, 4] = 7.0  # constant
    A[:, 5] = A[:, 6]  # twice the same
    A[:, 8] = A[:, 9] + A[:, 10]  # a combination
    A[:, 11] *= 1e6
    A[:, 12] *= 1e-6
    y = np.where(A[:, 0] + A[:, 6] > 0, 1.0, -1.0) if loss == "logistic" else A[:, 0] + A[:, 6]
    for k in (1, 2, 10, 20):
        for intercept in (False, True):
            found = minimize(A, y, k, loss=loss, solver=Exchange(), intercept=intercept)
            assert np.isfinite(found.objective)
            assert found.support.size <= k
            assert 3 not in found.support
            assert not (intercept and 4 in found.support)
    few = minimize(A[:5], y[:5], 10, loss=loss, solver=Exchange(), l2=0.1)  # more columns than rows
    assert np.isfinite(few.objective)
    apart = minimize(A, np.where(A[:, 0] > 0, 1.0, -1.0), 3, loss="logistic", solver=Exchange())  # separable
    assert apart.objective < 1e-3
    assert np.isfinite(apart.x).all()


def test_what_it_cannot_do_is_said():
    with pytest.raises(ValueError, match="knows no radius"):
        minimize(np.eye(4), np.ones(4), 2, solver="exchange", radius=1.0)
    for bad, message in (({"breaths": -1}, "breaths must be at least 0"), ({"gain": -1.0}, "gain must be"),
                         ({"working_set": 0}, "working_set must be at least 1"),
                         ({"effort": "most"}, "effort must be one of")):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            Exchange(**bad)


def test_old_settings_warn_and_change_nothing():
    A, y, _ = correlated(40, 14, 4, 0.9, 1.0, 3)
    for old in ({"breaths": 1}, {"working_set": 20}, {"gain": 1e-6}):
        with pytest.warns(DeprecationWarning, match="effort='best'"):
            solver = Exchange(**old)
        assert np.array_equal(minimize(A, y, 4, solver=solver).x, minimize(A, y, 4, solver=Exchange()).x)
    with pytest.warns(DeprecationWarning, match="use Exchange"):
        assert isinstance(JointExchange(), Exchange)


def test_a_start_on_a_zero_column_is_dropped():
    found = minimize(np.zeros((5, 1)), np.arange(5.0), 1, solver="exchange", x0=[1.0])
    assert found.converged
    assert found.support.size == 0
