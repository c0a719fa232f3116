"""Theorem 1: its numbers, no violation, equality for the extremal pair; and the thresholds that follow from it."""

from __future__ import annotations

import re
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.sparse.linalg import aslinearoperator

from ksparse import hard_threshold, theory

GOLDEN = (1 + np.sqrt(5)) / 2


def levels(largest=400):
    """(k, K, d) with 1 <= K <= k <= d."""
    return st.tuples(*[st.integers(1, largest)] * 3).map(sorted).map(lambda t: (t[1], t[0], t[2]))


def digits(value, count=4):
    return round(float(value), count)


@pytest.mark.parametrize(
    ("got", "expected"),
    [
        (lambda: theory.rip_threshold("iht", 5, 5, bound="classic"), 0.1768),
        (lambda: theory.rip_threshold("iht", 5, 5), 0.2185),
        (lambda: theory.nu(100, 5), 1.25),
        (lambda: theory.rip_threshold("iht", 100, 5), 0.3162),
        (lambda: theory.rip_threshold("iht", 10**15, 5), 0.3536),
        (lambda: theory.measurement_ratio("iht", 5, 5), 0.6545),
        (lambda: theory.nu(5, 5) / 4, 0.6545),
        (lambda: theory.rip_threshold("cosamp", 5, 5), 0.3122),
        (lambda: theory.rip_threshold("cosamp", 5, 5, bound="classic"), 0.2994),
        (lambda: theory.rip_threshold("cosamp", 10**15, 5), 0.3333),
        (lambda: np.sqrt(theory.largest_nu(0.25 - 1e-9, 1.0, 1.0)), 1.1547),
        (lambda: theory.deviation_factor(5, 5), 1.6180),
        (lambda: theory.deviation_factor(5, 5, bound="classic"), 2.0),
    ],
)
def test_the_numbers_of_the_paper(got, expected):
    assert digits(got()) == expected


def test_the_printed_thresholds_are_rounded():
    """0.22 for IHT violates the condition that it is a rounding of; 0.67 is a ratio of rounded numbers."""
    assert theory.rip_rate("iht", 0.22, 5, 5) > 0.5
    assert digits((0.18 / 0.22) ** 2, 2) == 0.67


CONFIGURATIONS = [(1, 1, 2), (2, 2, 12), (4, 2, 12), (5, 3, 7), (9, 4, 10), (12, 2, 30), (30, 10, 40), (3, 3, 100)]


@pytest.mark.parametrize(("k", "K", "d"), CONFIGURATIONS)
def test_no_violation_in_200_000_pairs(k, K, d):
    """Half of them anywhere, half of them near the pair that attains the bound."""
    rng = np.random.default_rng(k * 10_000 + K * 100 + d)
    factor, worst, count = theory.deviation_factor(k, K, d), 0.0, 0
    for chunk in range(20):
        size = 10_000
        if chunk % 2:
            pairs = [theory.extremal_pair(k, K, d, rng) for _ in range(50)]
            b, x = (np.repeat(np.array(part), size // 50, axis=0) for part in zip(*pairs, strict=True))
            noise = 10.0 ** rng.uniform(-6, 0, (size, 1))
            lost = np.abs(x) > np.abs(b)
            ordered = b * (1 + noise * rng.random(b.shape) * np.where(lost, -1, 1))  # the same ones stay lost
            b = ordered if chunk % 4 == 1 else b + noise * rng.standard_normal(b.shape)
            x = x * (1 + noise * rng.standard_normal(x.shape))
        else:
            b = rng.standard_normal((size, d)) * rng.exponential(1.0, (size, d))
            x = hard_threshold(rng.standard_normal((size, d)), K) * 10.0 ** rng.uniform(-1, 1, (size, 1))
        ratio = np.linalg.norm(hard_threshold(b, k) - x, axis=1) / np.linalg.norm(b - x, axis=1)
        worst, count = max(worst, ratio.max()), count + size
    assert count == 200_000
    assert worst <= factor * (1 + 1e-12)
    assert worst > 1 + 0.9 * (factor - 1)  # the pairs are hard enough to tell


@pytest.mark.parametrize("d", range(2, 41))
def test_the_extremal_pair_attains_the_bound(d):
    for k in range(1, d):
        for K in range(1, k + 1):
            for seed in (None, d):
                b, x = theory.extremal_pair(k, K, d, seed)
                assert np.count_nonzero(x) == K
                ratio = np.sum((hard_threshold(b, k) - x) ** 2) / np.sum((b - x) ** 2)
                assert abs(ratio - theory.nu(k, K, d)) < 1e-12


def test_the_extremal_pair_at_k_equal_d():
    for K in (1, 3, 5):
        b, x = theory.extremal_pair(5, K, 5, 0)
        assert np.linalg.norm(hard_threshold(b, 5) - x) == pytest.approx(np.linalg.norm(b - x))


@given(levels())
def test_nu_is_between_one_and_golden_squared_and_falls_with_k(sizes):
    k, K, d = sizes
    every = theory.nu(np.arange(K, d + 1), K, d)
    assert (np.diff(every) < 0).all()
    assert (every >= 1).all()
    assert every[0] <= GOLDEN**2 + 1e-12
    assert every[-1] == 1.0
    value = theory.nu(k, K, d)
    assert value <= theory.nu(k, K) + 1e-15  # d only helps
    assert theory.rho(k, K, d) == pytest.approx((value - 1) ** 2 / value, abs=1e-12)
    rho = theory.rho(k, K, d)
    assert np.sqrt(value) == pytest.approx((np.sqrt(rho) + np.sqrt(4 + rho)) / 2)
    assert theory.rho_from_nu(theory.nu_from_rho(rho)) == pytest.approx(rho, abs=1e-12)
    assert np.sqrt(value) <= theory.deviation_factor(k, K, d, "classic")


@given(levels())
def test_the_tight_bound_is_never_above_jains(sizes):
    k, K, d = sizes
    assert theory.deviation_factor(k, K, d) <= theory.deviation_factor(k, K, d, "jain") + 1e-12


@given(levels(), st.floats(1.0, 3.0))
def test_smallest_k_inverts_nu(sizes, wanted):
    k, K, d = sizes
    same = theory.smallest_k(theory.nu(k, K, d), K, d)
    assert theory.nu(same, K, d) == pytest.approx(theory.nu(k, K, d), rel=1e-9)
    assert same <= k
    found = theory.smallest_k(wanted, K, d)
    assert theory.nu(found, K, d) <= wanted * (1 + 1e-9)
    if found > K:
        assert theory.nu(found - 1, K, d) > wanted * (1 - 1e-9)


def test_smallest_k_without_d_and_in_arrays():
    assert theory.smallest_k(1.25, 4) == 80
    np.testing.assert_array_equal(theory.smallest_k([1.25, 2.7, 1.1], [4, 4, 1]), [80, 4, 110])
    with pytest.raises(ValueError, match="above 1 without d"):
        theory.smallest_k(1.0, 4)


@given(levels(60), st.data())
def test_a_sparse_b_only_helps(sizes, data):
    k, K, d = sizes
    r = data.draw(st.integers(1, d))
    assert theory.nu(k, K, d, r) <= theory.nu(k, K, d) + 1e-15
    assert (theory.nu(k, K, d, r) == 1.0) == (r <= k)
    if r > k:  # r stands in for d
        assert theory.nu(k, K, d, r) == theory.nu(k, K, r)
    rng = np.random.default_rng(d)
    b = hard_threshold(rng.standard_normal(d), r)
    x = hard_threshold(rng.standard_normal(d), K)
    got = np.linalg.norm(hard_threshold(b, k) - x)
    for bound in ("tight", "classic", "jain"):
        assert got <= theory.deviation_factor(k, K, d, bound, r) * np.linalg.norm(b - x) * (1 + 1e-12)


def test_functions_take_arrays():
    k, K = np.array([[4], [8], [40]]), np.array([1, 2, 4])
    table = theory.nu(k, K, 100)
    assert table.shape == (3, 3)
    for i, j in np.ndindex(table.shape):
        assert table[i, j] == theory.nu(int(k[i, 0]), int(K[j]), 100)
    assert theory.rip_threshold("cosamp", k, K, rate=[0.5, 0.7, 0.9]).shape == (3, 3)


@given(st.integers(0, 2**31), st.integers(1, 12), st.integers(0, 12))
def test_the_bound_for_x_that_is_not_sparse(seed, k, extra):
    rng = np.random.default_rng(seed)
    d = k + extra
    x = rng.standard_normal((5, d)) * 0.5 ** np.arange(d)
    b = x + 0.3 * rng.standard_normal((5, d))
    got = np.linalg.norm(hard_threshold(b, k) - x, axis=1)
    best = theory.deviation_bound(b, x, k)
    assert (got <= best * (1 + 1e-12)).all()
    each = np.array([theory.deviation_bound(b, x, k, K) for K in range(1, k + 1)])
    np.testing.assert_allclose(best, each.min(axis=0))
    by_hand = [
        theory.deviation_factor(k, k, d) * np.linalg.norm(b[i] - hard_threshold(x[i], k))
        + np.linalg.norm(hard_threshold(x[i], k) - x[i])
        for i in range(5)
    ]
    np.testing.assert_allclose(each[-1], by_hand)


def test_the_bound_for_x_that_is_sparse_is_theorem_1():
    rng = np.random.default_rng(0)
    x, b = hard_threshold(rng.standard_normal(20), 3), rng.standard_normal(20)
    assert theory.deviation_bound(b, x, 8, 3) == pytest.approx(
        theory.deviation_factor(8, 3, 20) * np.linalg.norm(b - x)
    )


# --- restricted isometry ---------------------------------------------------------------------------------------------
@given(st.sampled_from(["iht", "cosamp"]), st.integers(1, 50), st.integers(0, 500), st.floats(0.01, 1.0))
def test_thresholds_give_the_rate_they_are_for(algorithm, K, more, rate):
    k = K + more
    for bound in ("tight", "classic"):
        delta = theory.rip_threshold(algorithm, k, K, bound=bound, rate=rate)
        assert theory.rip_rate(algorithm, delta, k, K, bound=bound) == pytest.approx(rate)
    assert theory.rip_threshold(algorithm, k, K, rate=rate) >= theory.rip_threshold(
        algorithm, k, K, bound="classic", rate=rate
    )


def test_the_closed_form_of_cosamp():
    nu = theory.nu([5, 10, 50], 5)
    closed = np.sqrt(np.sqrt(32 * nu + 49) - 9) / (4 * np.sqrt(nu - 1))
    np.testing.assert_allclose(theory.rip_threshold("cosamp", [5, 10, 50], 5), closed, rtol=1e-12)


@pytest.mark.parametrize("algorithm", ["iht", "cosamp"])
def test_noise_amplification_covers_what_happens(algorithm):
    """IHT and CoSaMP on matrices near isometry, with noise: the error stays under rate^t + C‖ε‖."""
    rng = np.random.default_rng(1)
    n, d, K = 60, 12, 2
    k = K
    tried = 0
    for _ in range(60):
        A = np.linalg.qr(rng.standard_normal((n, d)))[0] + 0.01 * rng.standard_normal((n, d)) / np.sqrt(n)
        delta = theory.restricted_isometry(A, int(theory.rip_order(algorithm, k, K)), exact=True).upper
        rate = theory.rip_rate(algorithm, delta, k, K, d)
        assert rate < 1
        x_true = hard_threshold(rng.standard_normal(d), K)
        noise = 10.0 ** rng.uniform(-3, 0.5) * rng.standard_normal(n)
        y = A @ x_true + noise
        limit = theory.noise_amplification(algorithm, delta, k, K, d)
        x = np.zeros(d)
        for t in range(1, 8):
            if algorithm == "iht":
                x = hard_threshold(x + A.T @ (y - A @ x), k)
            else:
                chosen = np.union1d(np.argsort(-np.abs(A.T @ (y - A @ x)))[: 2 * k], np.flatnonzero(x))
                u = np.zeros(d)
                u[chosen] = np.linalg.lstsq(A[:, chosen], y, rcond=None)[0]
                x = hard_threshold(u, k)
            bound = rate**t * np.linalg.norm(x_true) + limit * np.linalg.norm(noise)
            assert np.linalg.norm(x - x_true) <= bound
            tried += 1
    assert tried == 420


@settings(deadline=None, max_examples=200)
@given(st.integers(0, 2**31), st.integers(2, 10), st.integers(2, 8), st.data())
def test_the_exact_constant_lies_in_the_bracket(seed, n, d, data):
    rng = np.random.default_rng(seed)
    r = data.draw(st.integers(1, d))
    A = rng.standard_normal((n, d)) / np.sqrt(n)
    if data.draw(st.booleans()):
        A = A + 1j * rng.standard_normal((n, d)) / np.sqrt(n)
    exact = theory.restricted_isometry(A, r, exact=True)
    assert exact.exact
    values = [np.linalg.svd(A[:, S], compute_uv=False) ** 2 for S in map(list, combinations(range(d), r))]
    by_hand = max(max(v[0] - 1, 1 - (v[-1] if r <= n else 0.0)) for v in values)
    assert exact.upper == pytest.approx(max(by_hand, 0.0), abs=1e-9)
    bracket = theory.restricted_isometry(A, r, exact=False, samples=5, random_state=0)
    assert bracket.lower <= exact.lower + 1e-9
    assert exact.upper <= bracket.upper + 1e-9
    unit = A / np.linalg.norm(A, axis=0)
    assert theory.restricted_isometry(unit, r).upper <= (r - 1) * theory.coherence(unit) + 1e-9


def test_the_search_finds_more_than_random_supports():
    rng = np.random.default_rng(0)
    A = rng.standard_normal((60, 150)) / np.sqrt(60)
    bracket = theory.restricted_isometry(A, 8)
    sampled = 0.0
    for _ in range(300):
        values = np.linalg.svd(A[:, rng.choice(150, 8, replace=False)], compute_uv=False) ** 2
        sampled = max(sampled, values[0] - 1, 1 - values[-1])
    assert bracket.lower > 1.2 * sampled
    assert bracket.lower_from == "greedy supports"
    assert bracket.upper_from in ("Gershgorin", "the whole spectrum")
    assert not bracket.exact


def test_isometry_of_sparse_matrices_and_operators_is_that_of_the_array():
    rng = np.random.default_rng(0)
    A = rng.standard_normal((20, 30)) * (rng.random((20, 30)) < 0.5)
    dense = theory.restricted_isometry(A, 3)
    for other in (sparse.csr_array(A), sparse.coo_matrix(A), aslinearoperator(A)):
        np.testing.assert_allclose(theory.restricted_isometry(other, 3)[1:3], dense[1:3], rtol=1e-10)


def test_measurements_grow_with_k_and_there_is_a_largest_k():
    k = np.arange(4, 1001)
    for algorithm in ("iht", "cosamp"):
        for bound in ("tight", "classic"):
            needed = theory.measurements(algorithm, k, 4, 1000, bound)
            assert (np.diff(needed[: 1000 // 9]) > 0).all()  # the order grows faster than the threshold relaxes
            n = float(needed[20])
            largest = theory.largest_k(algorithm, int(n) + 1, 4, 1000, bound)
            assert largest >= 24
            assert theory.measurements(algorithm, largest, 4, 1000, bound) <= int(n) + 1
    assert theory.largest_k("iht", 1, 4, 1000) == 0
    with pytest.raises(ValueError, match="n must be an integer"):
        theory.largest_k("iht", 2.5, 4, 1000)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: theory.nu(3, 4), "K must be at most k = 3, got 4"),
        (lambda: theory.nu([8, 3], 4), "K must be at most k = 3, got 4"),
        (lambda: theory.nu(11, 4, 10), "k must be at most d = 10, got 11"),
        (lambda: theory.nu(8, 4, 10, 11), "r must be at most d = 10, got 11"),
        (lambda: theory.nu(8, 4, 10, 0), "r must be at least 1, got 0"),
        (lambda: theory.nu(8, 4, r=9), "d must be given with r"),
        (lambda: theory.nu(8, 0, 10), "K must be at least 1, got 0"),
        (lambda: theory.nu(8.5, 4, 10), "k must be an integer, got 8.5"),
        (lambda: theory.nu(8.0, 4, 10), "k must be an integer, got 8.0"),
        (lambda: theory.nu("8", 4, 10), "k must hold real numbers"),
        (lambda: theory.nu(True, 1, 10), "k must be an integer, got True"),
        (lambda: theory.nu(np.nan, 1, 10), "k must be an integer"),
        (lambda: theory.nu_from_rho(-1), "rho must be a finite number of at least 0"),
        (lambda: theory.rho_from_nu(0.5), "nu must be a finite number of at least 1"),
        (lambda: theory.deviation_factor(8, 4, 10, "loose"), "bound must be one of 'tight', 'classic', 'jain'"),
        (lambda: theory.deviation_factor(8, 4, bound="jain"), "d must be given for bound='jain'"),
        (lambda: theory.smallest_k(1.2, 11, 10), "K must be at most d = 10, got 11"),
        (lambda: theory.extremal_pair(8, 9, 10), "K must be at most k = 8, got 9"),
        (lambda: theory.extremal_pair(8, 4, 10, "x"), "random_state must be"),
        (lambda: theory.deviation_bound(np.ones(3), np.ones(4), 2), "same last dimension"),
        (lambda: theory.deviation_bound(np.ones(3), np.ones(3), 2, 3), "K must be at most 2"),
        (lambda: theory.rip_threshold("omp", 5, 5), "algorithm must be one of 'iht', 'cosamp'"),
        (lambda: theory.rip_threshold("iht", 5, 5, rate=1.5), "rate must be at most 1, got 1.5"),
        (lambda: theory.rip_threshold("iht", 5, 5, rate=0), "rate must be a finite number above 0"),
        (lambda: theory.rip_threshold("iht", 5, 5, bound="jain"), "bound must be one of 'tight', 'classic'"),
        (lambda: theory.rip_order("iht", 3, 4), "K must be at most k = 3, got 4"),
        (lambda: theory.smallest_k(1 + 1e-12, 4), "beyond 2^53"),
        (lambda: theory.minimum_k(1e9, 1), "beyond 2^53"),
        (lambda: theory.rip_rate("iht", 1.0, 5, 5), "delta must be below 1, got 1"),
        (lambda: theory.restricted_isometry(np.ones((3, 4)), 5), "r must be at most 4"),
        (lambda: theory.restricted_isometry(np.ones((3, 4)), 0), "r must be at least 1"),
        (lambda: theory.restricted_isometry(np.ones(4), 1), "A must be a matrix"),
        (lambda: theory.restricted_isometry(np.full((3, 4), np.nan), 1), "A must be finite"),
        (lambda: theory.restricted_isometry(np.ones((9, 60)), 20, exact=True), "leave exact out for bounds"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        call()
