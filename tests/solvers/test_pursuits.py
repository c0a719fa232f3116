"""Pursuits as solvers of minimize: columns that are kept, starts from anywhere, and the objective that is reported."""

from __future__ import annotations

import numpy as np
import pytest

from ksparse import KSparseRegressor, joint, minimize

PURSUITS = ["htp", "sp", "cosamp", "grasp", "grahtp", "ompr", "niht", "omp", "romp"]


def objective(A, y, x, l2=0.0):
    return 0.5 * np.mean((A @ x - y) ** 2) + 0.5 * l2 * (x @ x)


@pytest.fixture
def few():
    """Sixteen columns of which eight are zero, so that k = 9 beside two kept columns asks for more than there are."""
    rng = np.random.default_rng(55)
    A = rng.standard_normal((40, 16))
    A[:, 8:] = 0
    return A, A[:, :6] @ rng.standard_normal(6) + 0.3 * rng.standard_normal(40)


@pytest.mark.parametrize("l2", [0.0, 1e-3])
@pytest.mark.parametrize("solver", PURSUITS)
def test_a_kept_column_is_not_chosen_a_second_time(few, solver, l2):
    A, y = few
    found = minimize(A, y, 9, solver=solver, always_keep=[0, 1], l2=l2)
    assert found.objective == pytest.approx(objective(A, y, found.x, l2), rel=1e-9)
    every = np.linalg.lstsq(np.vstack([A, np.sqrt(40 * l2) * np.eye(16)]), np.append(y, np.zeros(16)), rcond=None)[0]
    assert found.objective <= 1.05 * objective(A, y, every, l2)  # niht stops a little above


@pytest.mark.parametrize("solver", ["htp", "sp", "cosamp"])
def test_constant_columns_beside_kept_ones_do_no_harm(few, solver):
    A, y = few
    A[:, 8:] = 3.0
    model = KSparseRegressor(k=9, always_keep=[0, 1], solver=solver, l2=0.0).fit(A, y)
    assert model.score(A, y) > 0.99
    assert model.objective_ == pytest.approx(0.5 * np.mean((model.predict(A) - y) ** 2), rel=1e-9)


@pytest.mark.parametrize("solver", PURSUITS)
def test_reported_objectives_with_kept_columns(solver):
    for seed in range(20):
        rng = np.random.default_rng(seed)
        n, d = int(rng.integers(10, 60)), int(rng.integers(4, 30))
        A = rng.standard_normal((n, d))
        y = A @ np.where(rng.random(d) < 0.3, rng.standard_normal(d), 0) + 0.3 * rng.standard_normal(n)
        k = int(rng.integers(1, d - 2))
        found = minimize(A, y, k, solver=solver, always_keep=[0, 1])
        # where k columns fit y exactly F is rounding, of a size that follows from y
        assert found.objective == pytest.approx(objective(A, y, found.x), rel=1e-9, abs=1e-12 * np.mean(y**2))
        assert np.count_nonzero(found.x[2:]) <= k


# --- starts ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("solver", ["omp", "romp"])
def test_growth_from_nothing_does_not_keep_an_old_model(solver):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 10))
    y = 3 * X[:, 0] - X[:, 4] + 0.1 * rng.standard_normal(200)
    new = -3 * X[:, 1] + X[:, 7] + 0.1 * rng.standard_normal(200)
    model = KSparseRegressor(k=2, solver=solver, warm_start=True).fit(X, y).fit(X, new)
    assert model.support_.tolist() == [1, 7]
    assert model.score(X, new) > 0.99
    far = minimize(X, y, 2, solver=solver, x0=1e10 * np.ones(10))
    assert far.objective == pytest.approx(minimize(X, y, 2, solver=solver).objective, rel=1e-9)


@pytest.mark.parametrize("solver", PURSUITS)
def test_one_row_with_an_intercept_is_fitted_from_anywhere(solver):
    rng = np.random.default_rng(0)
    A, x0 = rng.standard_normal((1, 20)), 3 * rng.standard_normal(20)
    found = minimize(A, [0.5], 1, solver=solver, intercept=True, x0=x0)
    assert found.objective <= 1e-20 or not found.converged


@pytest.mark.parametrize("far", [1.0, 1e6, 1e8, 1e10])
@pytest.mark.parametrize("solver", ["exchange", "grasp", "grahtp"])
def test_a_start_far_away_costs_nothing(solver, far):
    rng = np.random.default_rng(0)
    A = rng.standard_normal((30, 10))
    y = A[:, 0] + 0.1 * rng.standard_normal(30)
    cold = minimize(A, y, 5, loss="huber", solver=solver)
    found = minimize(A, y, 5, loss="huber", solver=solver, x0=far * np.ones(10))
    assert found.objective <= 2 * cold.objective  # perhaps another local optimum, but not a ruin
    grouped = joint(A, y, 2, loss="huber", groups=np.arange(10) // 2, start=far * np.ones(10))
    assert grouped.objective <= 2 * joint(A, y, 2, loss="huber", groups=np.arange(10) // 2).objective


def test_a_start_far_away_leaves_no_rounding_behind():
    rng = np.random.default_rng(2)
    A = rng.standard_normal((30, 4))
    y = 1e-53 * (A[:, 0] + 0.1 * rng.standard_normal(30))
    cold = joint(A, y, 2, intercept=True)
    found = joint(A, y, 2, intercept=True, start=1e10 * np.ones((4, 1)))
    assert found.objective == pytest.approx(cold.objective, rel=1e-6)
    x0 = 1e8 * np.ones(4)
    for solver in ("grahtp", "sp"):
        found = minimize(A, A[:, 0], 2, solver=solver, x0=x0)
        assert found.objective <= 1e-20
