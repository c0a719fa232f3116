"""Least squares with positive coefficients: against non-negative least squares on every support, and against PGD."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.optimize import lsq_linear, nnls

from ksparse import minimize
from ksparse.design import as_design
from ksparse.problem import Problem
from ksparse.solvers.exchange.path import solve_path
from ksparse.solvers.exchange.search import Asked


def data(seed, n, d, rho=0.5, true=6):
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((n, d))
    for j in range(1, d):
        A[:, j] = rho * A[:, j - 1] + np.sqrt(1 - rho**2) * A[:, j]
    x = np.zeros(d)
    x[rng.choice(d, true, replace=False)] = rng.standard_normal(true)
    return A, A @ x + rng.standard_normal(n)


def best_of_all(A, y, k, l2):
    """The least objective over all supports of k columns, with an intercept."""
    n = y.size
    B, t = A - A.mean(axis=0), y - y.mean()
    best = np.inf
    for S in itertools.combinations(range(A.shape[1]), k):
        stacked = np.vstack([B[:, S], np.sqrt(n * l2) * np.eye(k)])
        _, norm = nnls(stacked, np.concatenate([t, np.zeros(k)]))
        best = min(best, 0.5 * norm**2 / n)
    return best


@pytest.mark.parametrize("seed", range(6))
def test_a_positive_path_finds_the_best_supports_of_small_problems(seed):
    A, y = data(seed, 50, 9, rho=0.7)
    problem = Problem.create(as_design(A), y, intercept=True, positive=True)
    ridges = [1e-3, 1e-2, 2e-2, 3e-2]
    for k, l2, result in zip(range(1, 5), ridges, solve_path(Asked(problem, range(1, 5), "best"), ridges), strict=True):
        assert (result.x >= 0.0).all()
        assert result.support.size <= k
        z = A @ result.x + result.intercept
        value = 0.5 * np.mean((y - z) ** 2) + 0.5 * l2 * result.x @ result.x
        assert result.objective == pytest.approx(value, rel=1e-10)
        assert result.objective == pytest.approx(best_of_all(A, y, k, l2), rel=1e-8)


@pytest.mark.parametrize("shape", [(300, 60), (100, 400)])
def test_positive_fits_are_at_least_as_good_as_projected_gradients(shape):
    for seed in range(4):
        A, y = data(seed, *shape, true=14)
        problem = Problem.create(as_design(A), y, intercept=True, positive=True)
        (result,) = solve_path(Asked(problem, [8], "default"), [0.0])
        other = minimize(A, y, 8, intercept=True, positive=True)
        assert (result.x >= 0.0).all()
        assert result.objective <= other.objective * (1 + 1e-6)


def test_kept_columns_may_be_negative():
    A, y = data(1, 60, 8)
    y = y - 3.0 * A[:, 2]
    problem = Problem.create(as_design(A), y, intercept=True, positive=True, always_keep=[2])
    (result,) = solve_path(Asked(problem, [2], "default"), [0.0])
    assert result.x[2] < 0.0
    assert (np.delete(result.x, 2) >= 0.0).all()
    B, t = A - A.mean(axis=0), y - y.mean()
    lower = np.array([-np.inf, 0.0, 0.0])
    fits = (
        lsq_linear(B[:, [2, *S]], t, (lower, np.full(3, np.inf)), tol=1e-14).cost
        for S in itertools.combinations([0, 1, 3, 4, 5, 6, 7], 2)
    )
    assert result.objective == pytest.approx(min(fits) / 60, rel=1e-7)


def test_targets_that_no_positive_column_explains_give_the_empty_model():
    A = np.abs(data(2, 40, 8)[0])
    y = -A.sum(axis=1)
    problem = Problem.create(as_design(A), y, positive=True)
    (result,) = solve_path(Asked(problem, [3], "default"), [0.0])
    assert result.support.size == 0
    assert result.objective == pytest.approx(0.5 * np.mean(y**2))
