"""The least-squares path: in single and in double precision, interrupted, at every scale."""

from __future__ import annotations

import numpy as np
import pytest
from test_path import value_of

from ksparse.design import as_design, standardize
from ksparse.problem import Problem
from ksparse.solvers.exchange.path import solve_path
from ksparse.solvers.exchange.search import Asked
from ksparse.solvers.exchange.squared import SquaredPath


def wide(seed=0, n=120, d=400, rho=0.7, noise=1.0):
    """Too many columns for the whole Gram matrix."""
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((n, d))
    for j in range(1, d):
        A[:, j] = rho * A[:, j - 1] + np.sqrt(1 - rho**2) * A[:, j]
    truth = np.zeros(d)
    truth[rng.choice(d, 8, replace=False)] = rng.choice([-1.0, 1.0], 8) * rng.uniform(0.5, 1.5, 8)
    return A, A @ truth + noise * rng.standard_normal(n)


def best_single_exchange(A, y, S, l2, weight):
    """The lowest objective after one exchange, by NumPy: all columns against all chosen ones."""
    outside = np.setdiff1d(np.arange(A.shape[1]), S)
    return min(
        value_of(A, y, np.append(np.delete(S, out), enter), l2, weight, True)
        for out in range(S.size)
        for enter in outside
    )


def test_no_exchange_with_any_of_many_columns_lowers_a_default_path():
    for seed in range(2):
        A, y = wide(seed, d=150)
        weight = np.random.default_rng(seed).uniform(0.5, 2.0, y.size)
        problem = Problem.create(as_design(A), y, intercept=True, sample_weight=weight)
        sizes, ridges = (1, 3, 5), (1e-3, 2e-2, 5e-2)
        for l2, result in zip(ridges, solve_path(Asked(problem, sizes, "default"), ridges), strict=True):
            assert result.swap_optimal
            assert result.objective == pytest.approx(value_of(A, y, result.support, l2, weight, True), rel=1e-10)
            assert best_single_exchange(A, y, result.support, l2, weight) >= result.objective * (1 - 1e-8)


def test_a_fast_path_is_fitted_in_double_precision_and_claims_no_more_than_it_checked():
    A, y = wide(1)
    weight = np.ones(y.size)
    problem = Problem.create(as_design(A), y, intercept=True)
    fast, thorough = (solve_path(Asked(problem, range(1, 13), effort), [1e-3] * 12) for effort in ("fast", "default"))
    for one, other in zip(fast, thorough, strict=True):
        assert one.swap_optimal is False
        assert one.objective == pytest.approx(value_of(A, y, one.support, 1e-3, weight, True), rel=1e-11)
        assert one.objective <= 1.02 * other.objective


@pytest.mark.parametrize("effort", ["fast", "default"])
def test_scales_and_means_far_from_one_choose_the_same_columns(effort):
    """Columns of 1e-30 and 1e30 beside each other, and means of 1e5 spreads."""
    A, y = wide(2)
    rng = np.random.default_rng(0)
    scale, shift = 10.0 ** rng.integers(-30, 31, A.shape[1]), 1e5 * rng.standard_normal(A.shape[1])
    plain = Problem.create(as_design(A), y, intercept=True)
    hard = Problem.create(standardize(as_design((A + shift) * scale), None, True, False), 1e-20 * y, intercept=True)
    unscaled = Problem.create(as_design(A * 2.0 ** rng.integers(-40, 41, A.shape[1])), y, intercept=True)
    paths = [solve_path(Asked(problem, range(1, 9), effort), [0.0] * 8) for problem in (plain, hard, unscaled)]
    for one, *others in zip(*paths, strict=True):
        assert all(np.array_equal(one.support, other.support) for other in others)


@pytest.mark.parametrize("effort", ["fast", "default"])
def test_targets_without_noise_are_found_exactly(effort):
    """What is left of the objective is far below the resolution of single precision."""
    A, y = wide(3, noise=0.0)
    problem = Problem.create(as_design(A), y, intercept=True)
    result = solve_path(Asked(problem, range(1, 11), effort), [0.0] * 10)[7]
    assert result.objective < 1e-20


@pytest.mark.parametrize("effort", ["fast", "best"])
@pytest.mark.parametrize("d", [20, 400])
def test_an_interrupted_walk_leaves_the_path_so_far(d, effort):
    A, y = wide(4, d=d)
    problem = Problem.create(as_design(A), y, intercept=True)
    full = SquaredPath(problem, lambda: None, 6)
    full.walk(1e-3, effort)
    best = [stop.objective for stop in full.stops(range(1, 7), [1e-3] * 6)]
    for allowed in (1, 2, 3, 6, 12):
        calls = [0]

        def check(calls=calls, allowed=allowed):
            calls[0] += 1
            if calls[0] > allowed:
                raise KeyboardInterrupt

        path = SquaredPath(problem, check, 6)
        try:
            path.walk(1e-3, effort)
        except KeyboardInterrupt:
            assert calls[0] == allowed + 1
        for k, least, stop in zip(range(1, 7), best, path.stops(range(1, 7), [1e-3] * 6), strict=True):
            assert stop.columns.size <= k
            value = value_of(A, y, stop.columns, 1e-3, np.ones(y.size), True)
            assert stop.objective == pytest.approx(value, rel=1e-10)
            assert stop.objective >= least * (1 - 1e-9)


@pytest.mark.parametrize("large", [False, True])
def test_one_size_alone_is_as_good_as_in_a_path_and_can_start_from_columns(large, monkeypatch):
    """One size is searched along few sizes, or with working sets where the data are large."""
    monkeypatch.setattr("ksparse.solvers.exchange.squared.CACHED", 0 if large else 10**9)
    for seed in range(3):
        A, y = wide(seed)
        problem = Problem.create(as_design(A), y, intercept=True, always_keep=[7])
        (path,) = solve_path(Asked(problem, range(1, 9), "default"), [1e-3] * 8)[-1:]
        (alone,) = solve_path(Asked(problem, [8], "default"), [1e-3])
        assert alone.swap_optimal
        assert alone.objective <= 1.01 * path.objective
        start = (path.x[:, np.newaxis], np.array([path.intercept]))
        (again,) = solve_path(Asked(problem, [8], "fast", start=start), [1e-3])
        assert again.objective <= path.objective * (1 + 1e-9)
        assert 7 in again.support
        assert again.support.size == 9
