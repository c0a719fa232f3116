"""Theorem 10 and what follows from it: formulas and optima."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_theory_bounds import levels

from ksparse import PGD, hard_threshold, theory

conditions = st.floats(1.0, 1e3)
shares = st.floats(1e-3, 0.2499)  # η L


def replay(eta, m, nu, L, alpha):
    """β₁ and β₂ as they stand in the theorem."""
    D = 2 * nu * eta * alpha - 2 * nu * eta**2 * alpha * L - nu + 1
    beta1 = 1 / (D * m) + 2 * nu * eta**2 * alpha * L / D
    beta2 = 1 / (nu * eta * alpha * (1 - 2 * eta * L) * m) + 2 * eta * L / (1 - 2 * eta * L)
    return beta1, beta2, D


@given(conditions, shares, st.integers(1, 10**6), st.floats(1.0, 1.3), st.floats(1e-3, 1e3))
def test_beta_is_the_formula_of_each_regime(c, share, m, nu, alpha):
    L, eta = c * alpha, share / (c * alpha)
    beta1, beta2, D = replay(eta, m, nu, L, alpha)
    got = theory.rate(eta, m, nu, L, alpha, printed=True)
    if nu <= 1 / (1 - eta * alpha):
        assert got == pytest.approx(beta2)
    elif D > 1e-9:
        assert got == pytest.approx(beta1, rel=1e-6)
    elif D < 0:
        assert got == np.inf


@given(conditions, shares, st.integers(1, 10**6), st.floats(1e-3, 1e3), st.floats(0, 10), st.floats(0.1, 10))
def test_both_regimes_agree_at_the_boundary(c, share, m, alpha, grad_norm, radius):
    L, eta = c * alpha, share / (c * alpha)
    nu = theory.optimal_nu(eta, alpha)
    beta1, beta2, D = replay(eta, m, nu, L, alpha)
    assert beta1 == pytest.approx(beta2, rel=1e-6)
    if beta2 < 0.999:
        Q = theory.Q(grad_norm, eta, m, nu, L, alpha, radius)
        tau1 = alpha * Q / (2 * D * (1 - beta1) * m)
        tau2 = Q / (2 * nu * eta * (1 - 2 * eta * L) * (1 - beta2) * m)
        assert tau1 == pytest.approx(tau2, rel=1e-5)
        assert theory.tail(grad_norm, eta, m, nu, L, alpha, radius) == pytest.approx(tau2, rel=1e-5)


@given(conditions, shares, st.integers(1, 10**5))
def test_the_optimal_nu_is_the_argmin_on_a_grid(c, share, m):
    eta = share / c
    best = theory.optimal_nu(eta, 1.0)
    grid = np.concatenate([np.linspace(1.0, best, 500), np.linspace(best, 1.4, 500)])
    for printed in (True, False):
        beta = theory.rate(eta, m, grid, c, 1.0, printed=printed)
        lowest = theory.rate(eta, m, best, c, 1.0, printed=printed)
        assert lowest <= beta.min() * (1 + 1e-9)
    assert (np.diff(theory.rate(eta, m, np.linspace(1.0, best, 100), c, 1.0, printed=True)) < 1e-12).all()


@given(conditions, st.floats(1e-3, 1e3), st.integers(1, 100))
def test_the_recipe_gives_two_thirds_for_every_c(c, alpha, K):
    exact = theory.rate(1 / (8 * c * alpha), 4 * (8 * c - 1), 8 * c / (8 * c - 1), c * alpha, alpha)
    assert exact == pytest.approx(2 / 3)
    chosen = theory.recipe(c * alpha, alpha, K)
    assert chosen.beta <= 2 / 3 + 1e-9
    assert chosen.nu <= 8 * c / (8 * c - 1) * (1 + 1e-9)


@given(st.floats(1.0, 1e6), st.integers(1, 20), st.integers(20, 10**6))
def test_minimum_k_is_the_smallest_that_works(c, K, d):
    exact = (16 * Fraction(c) ** 2 - 4 * Fraction(c)) * K  # k has to be above
    k = theory.minimum_k(c, K)
    assert abs(k - (exact // 1 + 1)) <= (k > 10**9)  # there the last digit of c² may decide
    near = int(theory.minimum_k(c, K, d))
    inverse = exact / K  # 1/ρ has to be above

    def works(k):
        lost = min(K, d - k)
        return lost == 0 or Fraction(k - K + lost, lost) > inverse

    assert works(near)
    assert near == K or not works(near - 1)
    by_jain = theory.minimum_k(c, K, d, bound="jain")
    assert by_jain >= near  # a weaker bound asks for more
    assert by_jain == d or theory.deviation_factor(by_jain, K, d, "jain") ** 2 < 4 * c / (4 * c - 1) * (1 + 1e-9)


@pytest.mark.parametrize("c", [1.0, 2.0, 1e4, 1e5, 1e6])
def test_minimum_k_is_exact_for_whole_condition_numbers(c):
    assert theory.minimum_k(c, 1) == 16 * int(c) ** 2 - 4 * int(c) + 1
    assert theory.minimum_k(c, 20) == 20 * (16 * int(c) ** 2 - 4 * int(c)) + 1


@given(levels())
def test_largest_condition_inverts_minimum_k(sizes):
    k, K, d = sizes
    rho, c = theory.rho(k, K, d), theory.largest_condition(k, K, d)
    if rho == 0:
        assert c == np.inf
    else:
        assert c == pytest.approx((1 + np.sqrt(1 + 4 / rho)) / 8)
        assert theory.nu(k, K, d) == pytest.approx(4 * c / (4 * c - 1))


@given(conditions, shares, st.floats(1.0, 1.3))
def test_minimum_m_is_where_beta_reaches_the_wanted_one(c, share, nu):
    eta = share / c
    for beta in (1.0, 0.9):
        m = theory.minimum_m(eta, nu, c, 1.0, beta)
        if np.isfinite(m) and m > 1:
            assert theory.rate(eta, m, nu, c, 1.0) == pytest.approx(beta, rel=1e-6)
        elif not np.isfinite(m):
            assert theory.rate(eta, 1e300, nu, c, 1.0) >= beta


def test_stages_cost_and_the_other_algorithms():
    assert theory.stages(2 / 3, 1e-6) == 35
    assert (2 / 3) ** 35 <= 1e-6 < (2 / 3) ** 34
    assert theory.stages(1.0) == np.inf
    cost = theory.cost(np.array([10, 1000]), 50, 300.0, 10.0, 1e-3)
    np.testing.assert_array_equal(cost.svrg_wins, [False, True])
    np.testing.assert_array_equal(cost.svrg_wins, cost.ht_svrg < cost.pgd)
    assert theory.objective_bound(0, 3.0, 0.0, 1.0, 1.0, 1.0) == 3.0
    assert theory.distance_bound(0, 2.0, 0.0, 2.0, 1.0, 1.0) == pytest.approx(4.0)


def test_pgd_keeps_its_rate():
    """Near-isometric data: every iteration shrinks the distance by at least the predicted factor."""
    rng = np.random.default_rng(0)
    n, d, K, k = 400, 30, 2, 8
    A = rng.standard_normal((n, d))
    x_true = hard_threshold(rng.standard_normal(d), K)
    y = A @ x_true
    spectrum = np.linalg.eigvalsh(A.T @ A / n)
    L, alpha = spectrum[-1], spectrum[0]
    rate = theory.pgd_rate(theory.nu(k, K, d), L, alpha)
    assert rate < 1
    x = np.zeros(d)
    for _ in range(30):
        before = np.linalg.norm(x - x_true)
        x = hard_threshold(x - 2 / (L + alpha) * A.T @ (A @ x - y) / n, k)
        assert np.linalg.norm(x - x_true) <= rate * before + 1e-12


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: theory.rate(0.1, 10, 1.1, 1.0, 2.0), "alpha must be at most L = 1, got 2"),
        (lambda: theory.rate(0.1, 10, 1.1, 1.0, 0.0), "alpha must be a finite number above 0, got 0"),
        (lambda: theory.rate(0.1, 10, 1.1, 1.0, -1.0), "alpha must be a finite number above 0, got -1"),
        (lambda: theory.rate(0.1, 10, 0.9, 1.0, 1.0), "nu must be a finite number of at least 1, got 0.9"),
        (lambda: theory.rate(0.1, 0, 1.1, 1.0, 1.0), "m must be a finite number of at least 1, got 0"),
        (lambda: theory.rate(0.0, 10, 1.1, 1.0, 1.0), "eta must be a finite number above 0"),
        (lambda: theory.rate("a", 10, 1.1, 1.0, 1.0), "eta must hold real numbers"),
        (lambda: theory.recipe(1.0, 2.0, 3), "alpha must be at most L"),
        (lambda: theory.recipe(1.0, 1.0, 2.5), "K must be an integer, got 2.5"),
        (lambda: theory.minimum_k(0.5, 3), "c must be a finite number of at least 1, got 0.5"),
        (lambda: theory.minimum_k(2.0, 3, bound="jain"), "d must be given"),
        (lambda: theory.optimal_nu(2.0, 1.0), "eta must be below 1/alpha"),
        (lambda: theory.stages(0.5, 2.0), "reduction must be below 1"),
        (lambda: theory.tail(-1.0, 0.1, 10, 1.1, 1.0, 1.0, 1.0), "grad_norm must be a finite number of at least 0"),
        (lambda: theory.curvature(np.ones((3, 2)), "squared", 3), "r must be at most 2"),
        (lambda: theory.curvature(np.ones((3, 2)), "squared", 0), "r must be at least 1"),
        (lambda: theory.curvature(np.ones((3, 2)), "huber", 1), "y must be given"),
        (lambda: theory.curvature(np.ones((3, 2)), "cubic", 1), "loss must be one of"),
        (lambda: theory.certificate(np.ones((3, 2)), np.ones(3)), "k must be given without a fit"),
        (lambda: theory.certificate(np.ones((3, 2)), np.ones(3), k=3), "k must be at most 2"),
        (lambda: theory.certificate(np.ones((3, 2)), np.ones(3), k=1, K=2), "K must be at most 1"),
        (lambda: theory.certificate(np.ones((3, 2)), np.ones(3), k=1, solver=PGD()), "solver must be an HTSVRG"),
        (lambda: theory.plan(np.ones((3, 2)), np.ones(3), 3), "K must be at most 2"),
        (lambda: theory.plan(np.ones((3, 2)), np.ones(3), 1, trial=2), "trial must be True or False"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
