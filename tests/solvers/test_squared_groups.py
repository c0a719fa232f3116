"""Groups of columns and several targets: pivots by definition, exchanges against NumPy, paths against brute force."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from ksparse import joint
from ksparse._jit import kernel
from ksparse.design import as_design
from ksparse.problem import Problem
from ksparse.solvers.exchange import pivots
from ksparse.solvers.exchange.group_pivots import new_group_tableau
from ksparse.solvers.exchange.grouped import GroupedPath
from ksparse.solvers.exchange.walk import move_to

STARTS = np.array([1, 3, 4, 7, 9])  # column 0 is fixed


@kernel
def move(t, groups, fixed, rows, row_of):
    pivots.restart(t, fixed, rows, row_of)
    move_to(t, groups, groups.size, rows, row_of)


@kernel
def exchange(t, least):
    pivots.mark_open(t)
    return pivots.best_exchange(t, least)


def model(seed, outputs, l2):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((40, 9)) + 0.8 * rng.standard_normal((40, 1))
    G, c = X.T @ X / 40, rng.standard_normal((outputs, 9))
    edges = [0, *STARTS]
    blocks = np.concatenate([G[a:b, a:b].ravel() for a, b in itertools.pairwise(edges)])
    return G, c, new_group_tableau(c, blocks, STARTS, l2, 10.0, 10)


def columns_of(groups):
    return np.concatenate([[0], *(np.arange(STARTS[g], STARTS[g + 1]) for g in groups)]).astype(int)


def gain(G, c, S, l2):
    return sum(row[S] @ np.linalg.solve(G[np.ix_(S, S)] + l2 * np.eye(S.size), row[S]) for row in c)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 3), st.lists(st.sets(st.integers(0, 3), max_size=3), max_size=6))
def test_groups_in_and_out_are_what_the_formulas_say(seed, outputs, supports):
    l2 = 0.05
    G, c, t = model(seed, outputs, l2)
    for groups in supports:
        move(t, np.array(sorted(groups), dtype=np.int64), np.array([0]), G, np.arange(9))
        S = columns_of(sorted(groups))
        held = t.base.columns[: t.base.held[0]]
        assert sorted(held.tolist()) == S.tolist()
        v = np.vstack([t.base.v[: held.size], t.v[:, : held.size]])
        exact = np.linalg.solve(G[np.ix_(held, held)] + l2 * np.eye(held.size), c[:, held].T).T
        np.testing.assert_allclose(v, exact, rtol=1e-8, atol=1e-9)
        for g in set(range(4)) - groups:
            at = np.arange(STARTS[g], STARTS[g + 1])
            block = t.blocks[t.at[g] : t.at[g + 1]].reshape(at.size, at.size)
            cross = G[np.ix_(at, held)]
            left = G[np.ix_(at, at)] + l2 * np.eye(at.size)
            left = left - cross @ np.linalg.solve(G[np.ix_(held, held)] + l2 * np.eye(held.size), cross.T)
            np.testing.assert_allclose(block, left, rtol=1e-8, atol=1e-9)
            u = np.vstack([t.base.u[at], t.u[:, at]])
            np.testing.assert_allclose(u, c[:, at] - exact @ cross.T, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("outputs", [1, 3])
def test_the_best_exchange_of_groups_is_the_best_of_all(outputs):
    for seed, groups in itertools.product(range(5), itertools.combinations(range(4), 2)):
        G, c, t = model(seed, outputs, 0.05)
        move(t, np.array(groups), np.array([0]), G, np.arange(9))
        now = gain(G, c, columns_of(groups), 0.05)
        gains = {
            (g, s): gain(G, c, columns_of([g, *(set(groups) - {s})]), 0.05) - now
            for g in set(range(4)) - set(groups)
            for s in groups
        }
        (best, least), most = max(gains.items(), key=lambda pair: pair[1])[0], max(gains.values())
        entered, place = exchange(t, 1e-9)
        if most > 1e-9:
            assert (entered, groups[place]) == (best, least)
        else:
            assert entered < 0


def objective(A, Y, S, l2, weight):
    w = weight / weight.sum()
    B, T = A[:, S] - w @ A[:, S], Y - w @ Y
    x = np.linalg.solve(B.T @ (w[:, np.newaxis] * B) + l2 * np.eye(len(S)), B.T @ (w[:, np.newaxis] * T))
    return 0.5 * np.sum(w[:, np.newaxis] * (T - B @ x) ** 2) + 0.5 * l2 * np.sum(x * x)


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("outputs", [1, 3])
def test_the_best_effort_finds_the_best_groups(outputs, layout):
    for seed in range(3):
        rng = np.random.default_rng(seed)
        A = rng.standard_normal((60, 14)) + rng.standard_normal((60, 1))
        groups = np.array([3, 0, 0, 1, 1, 1, 2, 3, 4, 4, 5, 6, 6, 0])
        Y = A[:, :5] @ rng.standard_normal((5, outputs)) + rng.standard_normal((60, outputs))
        weight = rng.uniform(0.5, 2.0, 60)
        problem = Problem.create(as_design(layout(A)), Y[:, 0], intercept=True, sample_weight=weight, always_keep=[8])
        path = GroupedPath(problem, Y, groups, lambda: None, 4)
        path.walk(1e-2, "best")
        for k, stop in zip(range(1, 5), path.stops(range(1, 5), [1e-2] * 4), strict=True):
            every = (np.flatnonzero(np.isin(groups, S)) for S in itertools.combinations(range(7), k))
            best = min(objective(A, Y, np.union1d(S, [8]), 1e-2, weight) for S in every)
            assert stop.objective == pytest.approx(best, rel=1e-8)
            assert stop.objective == pytest.approx(objective(A, Y, stop.columns, 1e-2, weight), rel=1e-10)
            z = A[:, stop.columns] @ stop.x + stop.constant
            value = 0.5 * np.sum(weight[:, np.newaxis] * (Y - z) ** 2) / weight.sum() + 0.5e-2 * np.sum(stop.x**2)
            assert stop.objective == pytest.approx(value, rel=1e-10)


def test_groups_with_a_column_too_many_come_in_without_it():
    """The indicators of a category add up to the intercept."""
    rng = np.random.default_rng(0)
    category = rng.integers(0, 3, (80, 6))
    A = np.concatenate([(category[:, [j]] == np.arange(3)) * 1.0 for j in range(6)], axis=1)
    y = A[:, 1] - A[:, 5] + 0.3 * rng.standard_normal(80)
    path = GroupedPath(
        Problem.create(as_design(A), y, intercept=True), y[:, np.newaxis], np.repeat(np.arange(6), 3), lambda: None, 2
    )
    path.walk(0.0, "default")
    stop = path.stops([2], [0.0])[0]
    assert stop.columns.size == 4
    assert stop.objective <= joint(A, y, 2, groups=np.repeat(np.arange(6), 3), intercept=True).objective * (1 + 1e-9)


def test_a_search_begins_from_its_start():
    """The fewest steps there are, from groups that a walk from nothing might miss."""
    for seed in range(4):
        rng = np.random.default_rng(seed)
        A = rng.standard_normal((60, 24)) + 2.0 * rng.standard_normal((60, 1))
        Y, groups = A @ rng.standard_normal((24, 2)) + rng.standard_normal((60, 2)), np.arange(24) // 3
        problem = Problem.create(as_design(A), np.zeros(60), l2=0.1)
        start = np.flatnonzero(np.isin(groups, [seed, seed + 3]))
        path = GroupedPath(problem, Y, groups, lambda: None, 2, 2, start)
        np.testing.assert_array_equal(path.best.choices[2, :2], [seed, seed + 3])
        assert not path.best.up[0]
        path.walk(0.1, "fast")
        (found,) = path.stops([2], [0.1])
        B = A[:, start]
        W = np.linalg.solve(B.T @ B / 60 + 0.1 * np.eye(6), B.T @ Y / 60)
        assert found.objective <= 0.5 * np.sum((Y - B @ W) ** 2) / 60 + 0.05 * np.sum(W**2) + 1e-9
        assert np.isfinite(path.best.value[2])
