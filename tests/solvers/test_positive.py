"""Coefficients that may not be negative: the model against NNLS, fits against all supports, and against PGD."""

from __future__ import annotations

import itertools
import math

import numpy as np
import oracle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.optimize import Bounds, lsq_linear, nnls
from scipy.optimize import minimize as smooth_minimum

from ksparse import Exchange, losses, minimize
from ksparse._jit import kernel
from ksparse.design import as_design
from ksparse.problem import Problem
from ksparse.solvers.exchange import pivots
from ksparse.solvers.exchange.path import solve_path
from ksparse.solvers.exchange.positive import new_positive_tableau
from ksparse.solvers.exchange.search import Asked
from ksparse.solvers.exchange.walk import load_choices
from ksparse.sources import Blocks

LAYOUTS = {"dense": np.asarray, "csr": sparse.csr_array, "blocks": lambda A: Blocks([A[:50], A[50:]])}


def data(seed, n, d, rho=0.5, true=6):
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((n, d))
    for j in range(1, d):
        A[:, j] = rho * A[:, j - 1] + np.sqrt(1 - rho**2) * A[:, j]
    x = np.zeros(d)
    x[rng.choice(d, true, replace=False)] = rng.standard_normal(true)
    return A, A @ x + rng.standard_normal(n)


def targets(loss, z, seed=0):
    """Targets of the right kind for predictions z."""
    rng, kind = np.random.default_rng(seed), losses.kind_of_targets(loss)
    if kind == "labels":
        return np.where(z > 0.0, 1.0, -1.0)
    mean = np.exp(0.5 * z / z.std())
    return {"counts": rng.poisson(mean) * 1.0, "positive": rng.gamma(2.0, mean / 2.0) + 1e-3}.get(kind, z)


# --- the model -------------------------------------------------------------------------------------------------------
@kernel
def exchange(t, least):
    pivots.mark_open(t)
    return pivots.best_exchange(t, least)


def model(seed, d=8):
    """A model whose first column is fixed, and twice its least value on any columns, by another solver."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((30, d)) + 1.5 * rng.standard_normal((30, 1))
    y = X @ rng.standard_normal(d) + rng.standard_normal(30)
    G, c = X.T @ X, X.T @ y
    t = new_positive_tableau(pivots.new_tableau(c, G.diagonal().copy(), np.zeros(d), float(y @ y), 6, 1))

    def value(columns):
        # the fixed column may have any sign: it is there twice, once turned round
        return nnls(np.hstack([X[:, [0]], -X[:, [0]], X[:, list(columns)]]), y)[1] ** 2

    return G, t, value


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.sets(st.integers(1, 7), min_size=1, max_size=4))
def test_the_model_is_least_where_no_coefficient_is_negative(seed, columns):
    G, t, value = model(seed)
    S = np.array(sorted(columns), dtype=np.int64)
    load_choices(t, np.array([0]), S, G, np.arange(8))
    assert pivots.twice_value(t) == pytest.approx(value(S), rel=1e-9)
    assert (t.base.v[1 : t.base.held[0]] > 0.0).all()


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.sets(st.integers(1, 7), min_size=1, max_size=4))
def test_the_best_exchange_is_the_best_of_all(seed, columns):
    """Where all chosen columns count; else one that is zero goes, and any gain is an improvement."""
    G, t, value = model(seed)
    S = np.array(sorted(columns), dtype=np.int64)
    load_choices(t, np.array([0]), S, G, np.arange(8))
    here, others = value(S), sorted(set(range(1, 8)) - columns)
    gains = {(i, s): here - value([*(columns - {s}), i]) for s in columns for i in others}
    most, i, place = max(gains.values()), *exchange(t, 1e-9 * here)
    if most <= 1e-8 * here:
        assert i < 0 or gains[i, t.chosen[place]] <= 1e-8 * here
        return
    assert i >= 0
    assert gains[i, t.chosen[place]] > 0.0
    if t.base.held[0] - 1 == S.size:
        assert gains[i, t.chosen[place]] == pytest.approx(most, abs=1e-8 * here)


# --- least squares ---------------------------------------------------------------------------------------------------
def least(A, y, S, l2=0.0):
    """The least objective on the columns S, with an intercept."""
    n, k, S = y.size, len(S), list(S)
    if k == 0:
        return 0.5 * np.var(y)
    B, t = A[:, S] - A[:, S].mean(axis=0), y - y.mean()
    _, norm = nnls(np.vstack([B, np.sqrt(n * l2) * np.eye(k)]), np.concatenate([t, np.zeros(k)]))
    return 0.5 * norm**2 / n


@pytest.mark.parametrize("seed", range(6))
def test_a_positive_path_finds_the_best_supports_of_small_problems(seed):
    A, y = data(seed, 50, 9, rho=0.7)
    problem = Problem.create(as_design(A), y, intercept=True, positive=True)
    ridges = [1e-3, 1e-2, 2e-2, 3e-2]
    results = solve_path(Asked(problem, range(1, 5), "best"), ridges)
    for k, l2, result in zip(range(1, 5), ridges, results, strict=True):
        assert (result.x >= 0.0).all()
        assert result.support.size <= k
        z = A @ result.x + result.intercept
        value = 0.5 * np.mean((y - z) ** 2) + 0.5 * l2 * result.x @ result.x
        assert result.objective == pytest.approx(value, rel=1e-10)
        best = min(least(A, y, S, l2) for S in itertools.combinations(range(9), k))
        assert result.objective == pytest.approx(best, rel=1e-8)


@pytest.mark.parametrize("shape", [(80, 15), (90, 150)])
def test_what_is_called_swap_optimal_no_exchange_improves(shape):
    for seed in range(5):
        A, y = data(seed, *shape, rho=0.9, true=10)
        result = minimize(A, y, 5, intercept=True, positive=True)
        assert result.swap_optimal
        S = set(result.support.tolist())
        assert result.objective == pytest.approx(least(A, y, S), rel=1e-9)
        leaving = S if len(S) == 5 else {None}  # with fewer columns, any may come in
        for s, i in itertools.product(leaving, set(range(shape[1])) - S):
            assert least(A, y, S - {s} | {i}) > result.objective * (1 - 1e-7)


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


# --- every loss ------------------------------------------------------------------------------------------------------
def bounded_fit(A, y, loss, l2, free=0, offset=0.0):
    """The least objective on all columns of A with an intercept; the first `free` columns may be negative."""
    n, d = A.shape

    def value(w):
        z = A @ w[1:] + w[0] + offset
        slope = oracle.slope(loss, z, y) / n
        total = np.mean(oracle.value(loss, z, y)) + 0.5 * l2 * w[1:] @ w[1:]
        return total, np.concatenate([[slope.sum()], A.T @ slope + l2 * w[1:]])

    lower = np.concatenate([np.full(1 + free, -np.inf), np.zeros(d - free)])
    options = {"ftol": 1e-15, "gtol": 1e-9, "maxiter": 2000}
    return smooth_minimum(
        value, np.zeros(d + 1), jac=True, method="L-BFGS-B", bounds=Bounds(lower), options=options
    ).fun


@pytest.mark.parametrize("loss", losses.LOSSES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_result_is_the_minimum_on_its_support(loss, layout):
    for seed, d in ((0, 12), (1, 200)):
        A, z = data(seed, 120, d, rho=0.8, true=10)
        y, k, l2 = targets(loss, z), 4, 1e-2
        result = minimize(LAYOUTS[layout](A), y, k, loss=loss, l2=l2, intercept=True, positive=True)
        assert result.status == "converged"
        assert (result.x >= 0.0).all()
        assert 0 < result.support.size <= k
        assert result.objective == pytest.approx(bounded_fit(A[:, result.support], y, loss, l2), rel=1e-7)
        z = A @ result.x + result.intercept
        slope = A.T @ oracle.slope(loss, z, y) / y.size + l2 * result.x
        np.testing.assert_allclose(slope[result.support], 0.0, atol=1e-7 * max(1.0, np.abs(slope).max()))


@pytest.mark.parametrize("seed", range(4))
def test_no_result_is_below_the_best_of_all_supports_and_most_are_it(seed):
    A, z = data(seed, 80, 9, rho=0.7)
    y, l2 = targets("logistic", z), 1e-2
    result = minimize(A, y, 3, loss="logistic", l2=l2, intercept=True, positive=True, solver=Exchange(effort="best"))
    best = min(bounded_fit(A[:, S], y, "logistic", l2) for S in itertools.combinations(range(9), 3))
    assert best * (1 - 1e-8) <= result.objective <= best * 1.01


@pytest.mark.parametrize("loss", ["squared", "logistic", "poisson"])
def test_fits_are_at_least_as_good_as_projected_gradients(loss):
    for seed in range(12):
        n, d, k = [(60, 20, 3), (300, 60, 8), (100, 200, 12)][seed % 3]
        A, z = data(seed, n, d, rho=(0.5, 0.9)[seed % 2], true=2 * k)
        y, l2 = targets(loss, z), 0.0 if loss == "squared" else 1e-2
        ours, theirs = (
            minimize(A, y, k, loss=loss, l2=l2, intercept=True, positive=True, solver=solver)
            for solver in ("auto", "pgd")
        )
        assert ours.objective <= theirs.objective * (1 + 1e-6)


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_kept_columns_weights_and_offset(loss):
    A, z = data(3, 90, 30, rho=0.6)
    y, rng = targets(loss, z - 4.0 * A[:, 2]), np.random.default_rng(0)
    weight, offset = rng.integers(0, 3, 90), 0.3 * rng.standard_normal(90)
    how = {"loss": loss, "l2": 0.02, "intercept": True, "positive": True, "always_keep": [2]}
    result = minimize(A, y, 3, sample_weight=weight, offset=offset, **how)
    assert result.x[2] < 0.0
    assert (np.delete(result.x, 2) >= 0.0).all()
    repeated = np.repeat(np.arange(90), weight)
    again = minimize(A[repeated], y[repeated], 3, offset=offset[repeated], **how)
    assert again.objective == pytest.approx(result.objective, rel=1e-8)
    columns = [2, *np.setdiff1d(result.support, [2])]
    least_on_them = bounded_fit(A[repeated][:, columns], y[repeated], loss, 0.02, free=1, offset=offset[repeated])
    assert result.objective == pytest.approx(least_on_them, rel=1e-8)


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_a_start_is_used_and_never_made_worse(loss):
    for d in (10, 200):
        A, z = data(5, 70, d, rho=0.9, true=8)
        y = targets(loss, z)
        how = {"loss": loss, "l2": 0.01, "intercept": True, "positive": True}
        first = minimize(A, y, 3, solver=Exchange(effort="best"), **how)
        again = minimize(A, y, 3, x0=first, solver=Exchange(effort="fast"), **how)
        assert again.objective <= first.objective * (1 + 1e-9)
        assert again.history.objective[0] == pytest.approx(first.objective, rel=1e-6)
        poor = np.zeros(d)
        poor[[0, 1, 2]] = -1.0, 1.0, 1.0  # a column with a negative coefficient is no start
        other = minimize(A, y, 3, x0=poor, **how)
        assert (other.x >= 0.0).all()
        assert other.objective <= minimize(A[:, [1, 2]], y, 2, **how).objective * (1 + 1e-9)


@pytest.mark.parametrize("loss", ["squared", "poisson"])
def test_targets_that_no_positive_column_explains_give_the_empty_model(loss):
    A = np.abs(data(2, 40, 8)[0])
    y = {"squared": -A.sum(axis=1), "poisson": np.zeros(40)}[loss]
    result = minimize(A, y, 3, loss=loss, positive=True)
    assert result.support.size == 0
    assert result.objective == pytest.approx(np.mean(oracle.value(loss, np.zeros(40), y)))


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_columns_that_are_copies_or_constant_or_of_any_size(loss):
    A, z = data(7, 60, 20)
    A[:, 3], A[:, 4], A[:, 5] = A[:, 2], 1.0, 0.0
    A[:, 6] *= 1e6
    A[:, 7] *= 1e-6
    y = targets(loss, z)
    for k in (1, 5, 18):
        result = minimize(A, y, k, loss=loss, l2=1e-6, intercept=True, positive=True)
        assert math.isfinite(result.objective)
        assert (result.x >= 0.0).all()
        assert not np.isin([4, 5], result.support).any()
