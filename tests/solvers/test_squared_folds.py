"""Sums over the rows that folds share: each fold must get those of its own training rows."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from scipy.sparse import csr_array

from ksparse.design import as_design, standardize
from ksparse.problem import Problem
from ksparse.solvers.exchange.folds import FoldSums, SharedSums, held_out, squared_folds
from ksparse.solvers.exchange.path import solve_path
from ksparse.solvers.exchange.search import Asked
from ksparse.solvers.exchange.squared import SquaredPath


def fold_problems(layout=np.array, standard=True, intercept=True, weighted=True, n=60, d=20, change=None):
    """The problem of all rows, and those of three folds of fifteen rows each; fifteen rows are always fitted on."""
    rng = np.random.default_rng(7)
    A = rng.standard_normal((n, d)) + 3.0 * (rng.random(d) < 0.5)
    if layout is csr_array:
        A *= rng.random((n, d)) < 0.4
    y = A[:, :4].sum(axis=1) + rng.standard_normal(n)
    if change is not None:
        change(A)
    weight = rng.integers(0, 4, n).astype(float) if weighted else np.ones(n)
    order, stored = rng.permutation(n), as_design(layout(A))

    def problem(rows):
        own = np.zeros(n)
        own[rows] = weight[rows]
        design = standardize(stored, own, intercept, False) if standard else stored
        return Problem.create(design, y, sample_weight=own, intercept=intercept)

    folds = [problem(np.setdiff1d(order, order[15 * f : 15 * f + 15])) for f in range(3)]
    return problem(order), folds


def share_always(monkeypatch):
    """Have folds share their sums even where the data are so few that they would gain nothing."""
    for rule in ("TINY", "FEW_ENTRIES"):
        monkeypatch.setattr(f"ksparse.solvers.exchange.folds.{rule}", 0)


def fold_sums(whole, problems):
    shared = SharedSums(whole, held_out(whole, problems))
    paths = [SquaredPath(problem, lambda: None, 5) for problem in problems]
    return [(path, FoldSums(shared, path.problem, path)) for path in paths]


@pytest.mark.parametrize("layout", [np.array, csr_array])
@pytest.mark.parametrize("standard", [False, True])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_fold_has_the_sums_of_its_training_rows(layout, standard, intercept, weighted):
    whole, folds = fold_problems(layout, standard, intercept, weighted)
    some = np.array([0, 3, 11])
    for path, sums in fold_sums(whole, [*folds, whole]):
        problem = path.problem
        Z, share = problem.design.dense_columns(np.arange(problem.d)), problem.weight / problem.n
        Z = Z - share @ Z if intercept else Z
        G = (Z.T * share) @ Z
        np.testing.assert_allclose(sums.rows(some), G[some], atol=1e-12)
        np.testing.assert_allclose(sums.gram(), G, atol=1e-12)
        scale = 1.0 / np.sqrt(path.own)
        single = sums.single(scale)
        assert (single is None) == (layout is csr_array)
        if single is not None:
            out = np.empty((3, problem.d), np.float32)
            single.write(some, out)
            np.testing.assert_allclose(out, (G * np.outer(scale, scale))[some], atol=1e-5)
            c = Z.T @ (share * path.target) * scale
            np.testing.assert_allclose(single.covariances(path.target), c, atol=1e-5 * np.abs(c).max())


def test_a_fold_in_which_a_column_varies_little_has_sums_of_its_own(monkeypatch):
    """A difference of sums would lose most digits of that column."""
    share_always(monkeypatch)
    whole, folds = fold_problems()
    held = held_out(whole, folds)[id(folds[0])]

    def change(A):
        A[held, 5] *= 1e6

    whole, folds = fold_problems(change=change)
    assert [sums.exact for _, sums in fold_sums(whole, folds)] == [False, True, True]
    every = squared_folds(whole, folds, [1, 5], [[1e-3] * 2] * 3, "fast")
    for problem, results in zip(folds, every, strict=True):
        for one, other in zip(results, solve_path(Asked(problem, [1, 5], "fast"), [1e-3] * 2), strict=True):
            np.testing.assert_allclose(one.x, other.x, rtol=1e-8)


def test_problems_that_cannot_share_their_sums():
    whole, folds = fold_problems()
    assert held_out(whole, [*folds, whole, folds[0]]) is not None  # one problem may be solved under several ridges
    twice = dataclasses.replace(folds[0])
    assert held_out(whole, [folds[0], twice]) is None  # a row that two folds hold out
    other = folds[0].weight * np.linspace(1.0, 2.0, whole.n)
    assert held_out(whole, [dataclasses.replace(folds[0], weight=other)]) is None
    copied = as_design(folds[0].design.load())
    assert held_out(whole, [dataclasses.replace(folds[0], design=copied)]) is None
    logistic = Problem.create(whole.design, np.sign(whole.y), loss="logistic")
    assert held_out(logistic, [logistic]) is None


def test_few_entries_are_not_worth_sharing(monkeypatch):
    whole, folds = fold_problems()
    work = (whole, folds, [1, 5], [[1e-3] * 2] * 3, "fast")
    assert squared_folds(*work) is None
    share_always(monkeypatch)
    assert len(squared_folds(*work)) == 3
    for rule, value in (("TINY", 1201), ("FEW_ENTRIES", 21)):  # there are 60 · 20 entries, 20 per column and fold
        with monkeypatch.context() as only:
            only.setattr(f"ksparse.solvers.exchange.folds.{rule}", value)
            assert squared_folds(*work) is None
            only.setattr(f"ksparse.solvers.exchange.folds.{rule}", value - 1)
            assert squared_folds(*work) is not None
