"""One trial of recovery: descent on the Gram matrix, and early verdicts."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from ksparse import IHT, PGD, minimize
from ksparse.paper import recovery
from ksparse.paper.recovery import Gram, descend, forecast, moments
from ksparse.sensing.phase import Experiment


def problem(n, K, trial=0):
    A, x, y, _ = Experiment(algorithm="htp", matrix="cell", seed=3).problem(n, K, trial)
    return A, x, y, Gram(A.T @ A, A.T @ y, float(np.linalg.norm(y)), x)


@pytest.mark.parametrize(
    ("n", "K", "k", "step"), [(100, 4, 36, "spectral"), (60, 10, 90, "spectral"), (200, 6, 6, 1.0)]
)
def test_descent_on_the_gram_matrix_is_pgd(n, K, k, step):
    A, _, y, gram = problem(n, K)
    eta = 2 / np.linalg.norm(A, 2) ** 2 if step == "spectral" else step
    solver = PGD(step="spectral", iterations=150, tol=0) if step == "spectral" else IHT(iterations=150, tol=0)
    expected = minimize(A, y, k, solver=solver)
    x = np.zeros(256)
    entered, again = descend(gram.G, gram.b, x, k, eta, 150, np.full(256, np.nan))
    np.testing.assert_allclose(x, expected.x, rtol=1e-7, atol=1e-9)
    assert np.count_nonzero(x) == k
    assert entered >= k
    assert not again


def test_descent_knows_when_it_is_back():
    _, _, _, gram = problem(200, 3)
    x = np.zeros(256)
    assert not descend(gram.G, gram.b, x, 3, 0.5, 20, x.copy())[1]
    descend(gram.G, gram.b, x, 3, 0.5, 2000, np.full(256, np.nan))
    assert descend(gram.G, gram.b, x, 3, 0.5, 5, x.copy()) == (0, True)


def test_a_forecast_is_the_iterate_to_come():
    A, _, _, gram = problem(160, 8)
    eta, k, x = 2 / np.linalg.norm(A, 2) ** 2, 72, np.zeros(256)
    entered = 1
    while entered:
        entered, _ = descend(gram.G, gram.b, x, k, eta, 100, np.full(256, np.nan))
    for left in (7, 400):
        outlook = forecast(gram, x, k, left, eta, 1.0, 1.001)
        later = x.copy()
        entered, _ = descend(gram.G, gram.b, later, k, eta, outlook.quiet, np.full(256, np.nan))
        assert entered == 0
        np.testing.assert_allclose(outlook.x, later, rtol=1e-8, atol=1e-11)


def test_a_forecast_refuses_what_it_cannot_know():
    _, x, _, gram = problem(100, 4)
    assert forecast(gram, x, 36, 100, 0.3, 1.0, 1.001).success is None  # 4 columns of 36: any other may enter
    start = np.zeros(256)
    descend(gram.G, gram.b, start, 36, 0.3, 1, np.full(256, np.nan))
    assert forecast(gram, start, 36, 100, 0.3, 1.0, 1e9).quiet == 0  # everything is too near


@pytest.mark.parametrize("left", [1, 2, 3, 50, 70_000])
def test_moments_go_to_the_end(left):
    at = moments(left)
    assert at[0] == 1
    assert at[-1] == left
    assert (np.diff(at) > 0).all()


CELLS = [("pgd", 150, 14), ("pgd", 96, 6), ("pgd", 40, 20), ("iht", 140, 9), ("iht", 200, 12)]


@pytest.mark.parametrize(("algorithm", "n", "K"), CELLS)
def test_early_verdicts_are_those_of_all_iterations(algorithm, n, K):
    for signal in ("gaussian", "sign"):
        for trial in range(1):
            early, full = (recovery.solve(algorithm, signal, K, n, trial, 5, early=early) for early in (True, False))
            assert early.success == full.success, (signal, trial, early, full)


@pytest.mark.long
@pytest.mark.parametrize("algorithm", ["ht-svrg", "ht-svrg-random"])
def test_early_verdicts_are_those_of_all_stages(algorithm):
    for n, K in ((150, 14), (176, 16), (96, 6)):
        for trial in range(3):
            early, full = (
                recovery.solve(algorithm, "gaussian", K, n, trial, 5, early=early) for early in (True, False)
            )
            assert early.success == full.success, (n, K, trial, early, full)


def test_trials_of_ht_svrg_at_both_ends():
    easy = recovery.solve("ht-svrg", "gaussian", 2, 120, 0, 0)
    hard = recovery.solve("ht-svrg", "gaussian", 20, 60, 0, 0)
    assert (easy.success, hard.success) == (True, False)
    assert max(easy.stages, hard.stages) < 1000
    assert recovery.solve("ht-svrg", "gaussian", 2, 120, 0, 0) == easy
    assert not recovery.solve("ht-svrg", "gaussian", 3, 1, 0, 0).success  # a single row


def test_a_single_row_makes_ht_svrg_pgd():
    A, _, y, gram = problem(1, 3)
    from ksparse import HTSVRG

    stages = minimize(A, y, 27, solver=HTSVRG(step="spectral", m=3, stages=20, tol=0), random_state=0)
    x = np.zeros(256)
    descend(gram.G, gram.b, x, 27, 2 / np.linalg.norm(A, 2) ** 2, 60, np.full(256, np.nan))
    np.testing.assert_allclose(x, stages.x, atol=1e-12)


def test_overflow_is_silent():
    _, _, _, gram = problem(100, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not gram.error(np.full(256, 1e300)) < 1e8
