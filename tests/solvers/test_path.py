"""Paths: one walk over all numbers of columns, against plain NumPy, brute force and fits one by one."""

from __future__ import annotations

import itertools

import numpy as np
import oracle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, sparse

from ksparse._jit import kernel
from ksparse.design import as_design
from ksparse.problem import Problem
from ksparse.solvers.exchange import pivots
from ksparse.solvers.exchange.path import solve_path
from ksparse.solvers.exchange.search import Asked
from ksparse.solvers.exchange.walk import move_to


def data(seed=0, n=60, d=9, rho=0.6):
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((n, d))
    for j in range(1, d):
        A[:, j] = rho * A[:, j - 1] + np.sqrt(1 - rho**2) * A[:, j]
    z = A[:, 0] - 2 * A[:, 3] + A[:, 5] + rng.standard_normal(n)
    return A, z


def targets(loss, z):
    if loss in ("logistic", "squared_hinge"):
        return np.where(z > 0.3, 1.0, -1.0)
    if loss == "poisson":
        return np.round(np.exp(0.3 * z))
    return np.exp(0.3 * z) if loss == "gamma" else z


@kernel
def move(t, columns, rows, row_of):
    move_to(t, columns, columns.size, rows, row_of)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.lists(st.integers(0, 7), min_size=1, max_size=25))
def test_pivots_are_what_the_formulas_say(seed, moves):
    """Columns in and out in any order: T, Q, v, D and u as they are by definition."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((30, 8))
    G, c, ridge = X.T @ X / 30, rng.standard_normal(8), 0.1 * np.ones(8)
    t = pivots.new_tableau(c, G.diagonal().copy(), ridge, 1.0, 8, 0)
    inside = []
    for j in moves:
        wanted = [i for i in inside if i != j] if j in inside else [*inside, j]
        if len(wanted) > 6:
            continue
        at = np.arange(8)
        pivots.load(t, np.array(inside, dtype=np.int64), G, at)
        move(t, np.array(wanted, dtype=np.int64), G, at)
        inside = wanted
        S = t.columns[: t.held[0]]
        assert sorted(S.tolist()) == sorted(inside)
        Q = np.linalg.inv(G[np.ix_(S, S)] + np.diag(ridge[S]))
        out = np.setdiff1d(np.arange(8), S)
        k = S.size
        np.testing.assert_allclose(t.Q[:k, :k], Q, rtol=1e-8, atol=1e-9)
        np.testing.assert_allclose(t.v[:k], Q @ c[S], rtol=1e-8, atol=1e-9)
        np.testing.assert_allclose(t.T[:k][:, out], Q @ G[np.ix_(S, out)], rtol=1e-8, atol=1e-9)
        left = G[out, out] + ridge[out] - np.einsum("ij,ji->i", G[np.ix_(out, S)], Q @ G[np.ix_(S, out)])
        np.testing.assert_allclose(t.D[out], left, rtol=1e-8, atol=1e-9)
        np.testing.assert_allclose(t.u[out], c[out] - G[np.ix_(out, S)] @ t.v[:k], rtol=1e-8, atol=1e-9)


def value_of(A, y, S, l2, weight, intercept):
    """F of the least-squares fit on some columns, by NumPy."""
    w = weight / weight.sum()
    B = A[:, S] - (w @ A[:, S] if intercept else 0.0)
    t = y - (w @ y if intercept else 0.0)
    x = np.linalg.solve(B.T @ (w[:, np.newaxis] * B) + l2 * np.eye(len(S)), B.T @ (w * t))
    return 0.5 * w @ (t - B @ x) ** 2 + 0.5 * l2 * x @ x


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
def test_no_exchange_lowers_a_least_squares_path(layout, weighted, intercept):
    for seed in range(4):
        A, y = data(seed)
        A = A * (np.abs(A) > 0.3)
        weight = np.random.default_rng(seed).uniform(0.5, 2.0, 60) if weighted else np.ones(60)
        ridges = [0.01 * k for k in range(1, 7)]
        problem = Problem.create(as_design(layout(A)), y, sample_weight=weight, intercept=intercept)
        for k, l2, result in zip(
            range(1, 7), ridges, solve_path(Asked(problem, range(1, 7), "fast"), ridges), strict=True
        ):
            S = result.support
            assert S.size == k
            assert result.swap_optimal
            best = value_of(A, y, S, l2, weight, intercept)
            assert result.objective == pytest.approx(best, rel=1e-10)
            for out, enter in itertools.product(range(k), np.setdiff1d(np.arange(9), S)):
                assert value_of(A, y, np.append(np.delete(S, out), enter), l2, weight, intercept) >= best * (1 - 1e-8)


def test_the_best_effort_finds_the_best_subsets():
    for seed in range(5):
        A, y = data(seed, d=8, rho=0.9)
        problem = Problem.create(as_design(A), y, intercept=True)
        for result in solve_path(Asked(problem, range(1, 6), "best"), [1e-3] * 5):
            every = (list(S) for S in itertools.combinations(range(8), result.support.size))
            best = min(value_of(A, y, S, 1e-3, np.ones(60), True) for S in every)
            assert result.objective == pytest.approx(best, rel=1e-8)


@pytest.mark.parametrize("loss", ["logistic", "poisson", "gamma", "huber", "squared_hinge"])
def test_other_losses_reach_the_minimum_on_their_columns(loss):
    A, z = data(1)
    y, ridges = targets(loss, z), [0.02, 0.03, 0.04, 0.05]
    problem = Problem.create(as_design(A), y, loss=loss, intercept=True)
    previous = np.inf
    for k, l2, result in zip(
        range(1, 5), ridges, solve_path(Asked(problem, range(1, 5), "default"), ridges), strict=True
    ):
        S = result.support
        assert S.size == k
        assert result.converged

        def F(v, S=S, l2=l2):
            values = oracle.value(loss, A[:, S] @ v[1:] + v[0], y)
            return np.mean(values) + 0.5 * l2 * v[1:] @ v[1:]

        found = optimize.minimize(F, np.append(result.intercept, result.x[S]), method="BFGS", options={"gtol": 1e-9})
        assert result.objective == pytest.approx(F(np.append(result.intercept, result.x[S])), rel=1e-10)
        assert result.objective <= found.fun * (1 + 1e-7) + 1e-12
        assert result.objective < previous + 0.05
        previous = result.objective


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_kept_columns_are_in_every_model(loss):
    A, z = data(2)
    problem = Problem.create(as_design(A), targets(loss, z), loss=loss, intercept=True, always_keep=[7, 8])
    for k, result in zip((1, 2, 3), solve_path(Asked(problem, (1, 2, 3), "default"), [0.0] * 3), strict=True):
        assert {7, 8} <= set(result.support.tolist())
        assert result.support.size == k + 2


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_dense_sparse_and_repeated_rows_give_the_same_path(loss):
    A, z = data(3, n=80, d=30)
    A = np.where(np.abs(A) > 0.8, A, 0.0)
    y, count = targets(loss, z), np.random.default_rng(0).integers(1, 4, 80)
    forms = [
        (as_design(A), y, count.astype(float)),
        (as_design(sparse.csr_array(A)), y, count.astype(float)),
        (as_design(np.repeat(A, count, axis=0)), np.repeat(y, count), None),
    ]
    paths = []
    for design, target, weight in forms:
        problem = Problem.create(design, target, loss=loss, intercept=True, sample_weight=weight)
        paths.append([result.objective for result in solve_path(Asked(problem, range(1, 9), "default"), [1e-3] * 8)])
    np.testing.assert_allclose(paths[1], paths[0], rtol=1e-6)
    np.testing.assert_allclose(paths[2], paths[0], rtol=1e-6)


def test_columns_that_are_combinations_of_others_end_a_path():
    rng = np.random.default_rng(0)
    A = rng.standard_normal((40, 3)) @ rng.standard_normal((3, 10))
    problem = Problem.create(as_design(A), A[:, 0] + rng.standard_normal(40), intercept=True)
    results = solve_path(Asked(problem, range(1, 8), "default"), [0.0] * 7)
    assert [result.support.size for result in results] == [1, 2, 3, 3, 3, 3, 3]
    assert np.isfinite([result.objective for result in results]).all()


def test_dependent_kept_columns_and_very_many_columns():
    """Where the exact model of least squares cannot be used, local models with a little damping are."""
    A, y = data(0)
    A[:, 8] = 2.0 * A[:, 7]
    [result] = solve_path(Asked(Problem.create(as_design(A), y, always_keep=[7, 8]), [2], "default"), [0.0])
    residual = y - A[:, result.support] @ np.linalg.lstsq(A[:, result.support], y, rcond=None)[0]
    assert result.objective == pytest.approx(0.5 * np.mean(residual**2), rel=1e-9)
    wide = sparse.csr_array(([1.0, 2.0, 3.0], ([0, 1, 2], [5, 70_000, 2_999_999])), shape=(5, 3_000_000))
    [result] = solve_path(Asked(Problem.create(as_design(wide), np.arange(5.0)), [20], "fast"), [0.0])
    assert result.support.tolist() == [70_000, 2_999_999]
    assert result.objective == pytest.approx(0.5 * (9 + 16) / 5)


def test_negative_objectives_are_compared_rightly():
    """Likelihoods of counts and of positive targets may be below zero: a fit that is worse must not count as better."""
    A, z = data(4, n=80, d=12)
    for loss, y in (("poisson", np.round(30.0 * np.exp(0.3 * z))), ("gamma", 1e-3 * np.exp(0.3 * z))):
        problem = Problem.create(as_design(A), y, loss=loss, intercept=True)
        values = [result.objective for result in solve_path(Asked(problem, range(1, 7), "default"), [1e-4] * 6)]
        assert values[0] < 0.0
        assert (np.diff(values) <= 1e-9 * np.abs(values[1:])).all()


@pytest.mark.parametrize("effort", ["fast", "best"])
@pytest.mark.parametrize("loss", ["squared", "logistic", "squared_hinge"])
def test_few_rows_repeated_and_constant_columns(loss, effort):
    """Fewer usable columns than k, and than a detour asks for: no column twice, no slot past the end."""
    rng = np.random.default_rng(0)
    for n, d, k in ((6, 9, 9), (12, 40, 30), (5, 4, 3), (2, 3, 3)):
        A = (rng.random((n, d)) < 0.5).astype(float)
        A[:, 0], A[:, -1] = 1.0, A[:, 1]
        y = targets(loss, rng.permutation(np.linspace(-2, 2, n)))
        problem = Problem.create(as_design(A), y, loss=loss, intercept=True, always_keep=[1])
        results = solve_path(Asked(problem, range(1, k), effort), [1e-3] * (k - 1))
        for size, result in zip(range(1, k), results or (), strict=False):
            assert result.support.size <= size + 1
            z = A @ result.x + result.intercept
            value = np.mean(oracle.value(loss, z, y)) + 0.5e-3 * result.x @ result.x
            assert result.objective == pytest.approx(value, rel=1e-9, abs=1e-12)


def test_targets_whose_squares_overflow():
    A, y = data(0)
    with pytest.raises(ValueError, match="not finite at the start"):
        solve_path(Asked(Problem.create(as_design(A), 1e200 * y, intercept=True), [1, 2], "fast"), [0.0, 0.0])
