"""Every entry of docs/errata.md, by its number."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from ksparse import HTSVRG, IHT, PGD, hard_threshold, minimize, theory
from ksparse.theory.curvature import Landscape

TEXT = (Path(__file__).parent.parent / "docs" / "errata.md").read_text()


def test_every_entry_has_its_test():
    entries = {int(number) for number in re.findall(r"^## (\d+)\.", TEXT, flags=re.MULTILINE)}
    tested = {int(name.removeprefix("test_erratum_")[:2]) for name in globals() if name.startswith("test_erratum_")}
    assert entries == tested


def sensing(n=100, d=256, K=4, seed=0):
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((n, d)) / np.sqrt(n)
    x = np.zeros(d)
    x[rng.choice(d, K, replace=False)] = rng.standard_normal(K)
    return A, A @ x, x


def test_erratum_01_m():
    for c, share, nu in ((2.0, 1 / 8, 1.01), (10.0, 1 / 16, 1.0), (1.0, 0.2, 1.1)):
        L, eta = c, share / c
        needed = theory.minimum_m(eta, theory.optimal_nu(eta, 1.0), L, 1.0)
        closed = c / (theory.optimal_nu(eta, 1.0) * share * (1 - 4 * share))
        assert needed == pytest.approx(closed)
        assert theory.minimum_m(eta, 1.0, L, 1.0) == pytest.approx(closed)  # a smaller ν may be read as that one
        printed = theory.minimum_m(eta, nu, L, 1.0, printed=True)
        assert printed == pytest.approx(c / (nu * share * (1 - share)))
        assert theory.rate(eta, printed * 1.001, nu, L, 1.0) > 1  # as printed it is not enough
        assert theory.rate(eta, needed * 1.001, nu, L, 1.0) < 1
    assert theory.minimum_m(1 / 8, 1.1, 1.0, 1.0, printed=True) / (1 / (1.1 / 8 * 0.5)) == pytest.approx(4 / 7)


def test_erratum_02_tau():
    eta, m, L, g, radius = 0.1, 500, 1.5, 0.3, 2.0
    for alpha in (0.2, 0.9):
        edge = theory.optimal_nu(eta, alpha)
        first, second = (theory.tail(g, eta, m, edge * t, L, alpha, radius) for t in (1 + 1e-10, 1 - 1e-10))
        assert first == pytest.approx(second, rel=1e-5)
        first, second = (
            theory.tail(g, eta, m, edge * t, L, alpha, radius, printed=True) for t in (1 + 1e-10, 1 - 1e-10)
        )
        assert second / first == pytest.approx(1 / alpha, rel=1e-5)
    # a change of the unit of F changes τ with it, and only ours does
    for s in (0.1, 7.0):
        ours, theirs = (
            theory.tail(s * g, eta / s, m, 1.001, s * L, s * 0.9, radius, printed=printed)
            / theory.tail(g, eta, m, 1.001, L, 0.9, radius, printed=printed)
            for printed in (False, True)
        )
        assert ours == pytest.approx(s)
        assert theirs == pytest.approx(1.0)


def test_erratum_03_range_of_nu():
    for c in (1.0, 2.0, 30.0):
        eta = 1 / (8 * c)
        true, printed = theory.largest_nu(eta, c, 1.0), theory.largest_nu(eta, c, 1.0, printed=True)
        assert true == pytest.approx(1 / (1 - 3 / (16 * c)))
        assert printed == pytest.approx(4 * c / (4 * c - 1))
        between = 0.5 * (true + printed)
        assert theory.rate(eta, 1e300, between, c, 1.0, printed=True) > 1  # printed to converge, does not
        assert theory.rate(eta, 1e300, true * (1 - 1e-6), c, 1.0) < 1
        best = theory.largest_nu(np.linspace(1e-3, 0.25 - 1e-9, 10_000) / c, c, 1.0)
        assert best.argmax() == 9_999
        assert best.max() == pytest.approx(printed)
        assert theory.largest_nu(0.25 / c, c, 1.0) == theory.largest_nu(0.4 / c, c, 1.0) == 1.0  # nothing is allowed
        assert theory.rate(0.25 / c, 1e300, 1.0, c, 1.0) >= 1


def test_erratum_04_cosamp_selects_2k():
    gradient, S, previous = np.array([1.0, 1.0, 1.0 + 1e-9, 0.5, 0.4]), {0}, {1}  # k = K = 1
    for count, holds in ((1, False), (2, True)):
        T = set(np.argsort(-gradient, kind="stable")[:count].tolist())
        inside, outside = sorted((S | previous) - T), sorted(T - (S | previous))
        left, right = (np.linalg.norm(gradient[part]) for part in (inside, outside))
        assert bool(left <= right) == holds


def test_erratum_05_scaling():
    A, y, _ = sensing()
    x = np.zeros(256)
    for _ in range(5):
        x = hard_threshold(x + A.T @ (y - A @ x), 4)
    ours = minimize(A, y, 4, solver=IHT(iterations=5, tol=0.0, stop_on_divergence=False))
    np.testing.assert_allclose(ours.x, x, atol=1e-12)
    eta, x = 2 / np.linalg.norm(A, 2) ** 2, np.zeros(256)
    for _ in range(5):
        x = hard_threshold(x + eta * A.T @ (y - A @ x), 36)
    ours = minimize(A, y, 36, solver=PGD("spectral", iterations=5, tol=0.0))
    np.testing.assert_allclose(ours.x, x, rtol=1e-8, atol=1e-9)


def test_erratum_06_labels():
    z = np.linspace(-5, 5, 11)
    assert np.ptp(np.log1p(np.exp(-0.0 * z))) == 0.0  # y = 0 says nothing about z
    with pytest.raises(ValueError, match=r"np.where\(y == 1, 1, -1\) recodes them"):
        minimize(np.eye(4), np.array([0.0, 1.0, 1.0, 0.0]), 2, loss="logistic")


def test_erratum_07_snapshot():
    A, y, x = sensing()
    stages = {}
    for output in ("last", "random"):
        solver = HTSVRG(step="spectral", stages=2000, output=output, tol=0.0)
        runs = (
            minimize(A, y, 36, solver=solver, random_state=seed, callback=lambda now: np.abs(now.x - x).max() < 1e-4)
            for seed in range(4)
        )
        stages[output] = sum(run.n_stages for run in runs)
    assert 1.4 < stages["random"] / stages["last"] < 3  # half a stage behind, on average


def test_erratum_08_k_below_n():
    A, y, x = sensing(n=20, d=60, K=2)
    wrong = np.setdiff1d(np.arange(60), np.flatnonzero(x))[:20]
    fit = np.linalg.solve(A[:, wrong], y)
    assert np.linalg.norm(A[:, wrong] @ fit - y) < 1e-9  # exact, and not one column is right


def test_erratum_09_pgd_step():
    A, y, _ = sensing()
    n = A.shape[0]
    settings = {"iterations": 300, "tol": 0.0}
    assert minimize(A, y, 36, solver=PGD(0.5 * n, **settings)).status == "diverged"
    spectral = minimize(A, y, 36, solver=PGD("spectral", **settings))
    assert spectral.status != "diverged"
    assert spectral.objective < 1e-3 * spectral.history.objective[0]


def test_erratum_10_step_on_mnist():
    found = json.loads((Path(__file__).parent.parent / "docs" / "paper" / "summary" / "figure8.json").read_text())[
        "steps"
    ]
    assert len(found) == 5
    for step in found.values():
        assert 3e-6 < step["spectral"] < 6e-6
        assert 3e-4 < step["unit rows"] < 5e-4


def test_erratum_11_theory_against_experiment():
    A, y, _ = sensing()
    step = 2 / np.linalg.norm(A, 2) ** 2
    assert step == pytest.approx(0.30, abs=0.02)
    report = theory.certificate(A, y, k=36, K=4, solver=HTSVRG(step, output="random"))
    assert abs(1 / (4 * report.L) - 0.085) < 0.01
    assert report.verdict == "not certified"
    assert report.k <= 12 * report.K
    result = minimize(A, y, 36, solver=HTSVRG(step, stages=300), random_state=0)
    assert result.objective < 1e-4 * result.history.objective[0]  # and it does well nonetheless


def saga_numbers(alpha, L, n, nu):
    eta = 1 / (2 * (alpha * n + L))
    return eta, (2 * alpha * n + L) / L, 1 / (2 * eta * (1 - eta * alpha) * n)


def test_erratum_12_saga_as_printed():
    alpha, L, n, nu = 0.5, 2.0, 100, 1.001
    eta, _, c = saga_numbers(alpha, L, n, nu)
    kappa = 1 / (nu * eta * alpha)
    assert c / kappa - c * nu * eta * alpha <= 1e-12  # printed as the first requirement, and fulfilled,
    assert c * (nu * (1 - eta * alpha) - 1 + 1 / kappa) > 0  # but this is what it has to be

    def printed_limit(s):  # f scaled by s
        a, b = s * alpha, s * L
        e = 1 / (2 * (a * n + b))
        return (1 - e * a) * b / (e * a * (1 - e * a) * b * n + 1)

    assert printed_limit(10.0) > 1.5 * printed_limit(1.0)  # it depends on the unit of F

    # the polynomial in n is the inequality 1 < printed limit; the printed one is another
    rng = np.random.default_rng(0)
    alpha = 10 ** rng.uniform(-2, 1, 20_000)
    L = alpha * 10 ** rng.uniform(0, 2, alpha.size)
    n = np.floor(10 ** rng.uniform(0, 4, alpha.size))
    clear = np.abs(printed_limit(1.0) - 1) > 1e-9  # no sign hangs on rounding
    holds = printed_limit(1.0) > 1
    a2, aL, L2 = alpha**2, alpha * L, L**2
    ours = (4 * a2 - 2 * a2 * L) * n**2 + (8 * aL + a2 * L - 6 * aL * L) * n + 4 * L2 - 4 * L2 * L + 2 * aL * L < 0
    printed = (6 * a2 - 8 * a2 * L) * n**2 + (14 * aL - alpha - 16 * aL * L) * n + 8 * L2 * (1 - L) < 0
    assert (ours == holds)[clear].all()
    assert np.mean(printed != holds) > 0.01


def test_erratum_13_each_f_i_must_be_convex():
    """f₁ = −x²/2 and f₂ = 3x²/2: the mean is convex, but Lemma 19 fails for f₁."""
    for curve, holds in ((-1.0, False), (3.0, True), (1.0, True)):
        x, other, L = 0.0, 1.0, abs(curve)
        left = (curve * other - curve * x) ** 2
        right = 2 * L * (curve * other**2 / 2 - curve * x**2 / 2 - curve * x * (other - x))
        assert (left <= right + 1e-12) == holds


def test_erratum_14_tightness():
    k, K, d = 6, 2, 12
    b, x = theory.extremal_pair(k, K, d)
    ratio = [np.sum((hard_threshold(v, k) - x) ** 2) / np.sum((v - x) ** 2) for v in (b, np.ones(d))]
    assert ratio[0] == pytest.approx(theory.nu(k, K, d))
    assert ratio[1] < 0.9 * theory.nu(k, K, d)


def test_erratum_15_single_rows():
    rng = np.random.default_rng(0)
    for _ in range(50):
        d = int(rng.integers(2, 8))
        A = rng.standard_normal((int(rng.integers(d, 60)), d)) * rng.uniform(0.1, 10, d)
        for r in range(1, d + 1):
            found = theory.curvature(A, "squared", r, exact=True)
            assert found.alpha.upper <= found.L / r * (1 + 1e-9)
    for d in (5, 50, 500):
        for K in (1, 2, 4):
            k = np.arange(K, d)
            assert (theory.largest_condition(k, K, d) < np.minimum(k + K, d)).all()


def test_erratum_16_tail_and_corollaries():
    # one dimension, F(x) = αx²/2 + …, x̃ = ω and x̂ = −ω: equality with 4ω, violation with 2ω
    alpha, omega, q = 0.7, 1.5, 0.2
    gap = alpha / 2 * (2 * omega) ** 2 - q * 2 * omega  # F(x̃) − F(x̂) with F'(x̂) = −q
    assert (2 * omega) ** 2 == pytest.approx(2 / alpha * gap + 4 * omega * q / alpha)
    assert (2 * omega) ** 2 > 2 / alpha * gap + 2 * omega * q / alpha + 1e-6
    # the recipe
    for c, alpha in ((1.0, 1.0), (3.0, 0.2), (20.0, 5.0)):
        L, g, radius = c * alpha, 0.3, 2.0
        eta, m, nu = 1 / (8 * L), 4 * (8 * c - 1), 8 * c / (8 * c - 1)
        got = theory.tail(g, eta, m, nu, L, alpha, radius)
        assert got == pytest.approx(6 * radius * g + g**2 / L)
        assert got == pytest.approx(theory.recipe_tail(g, L, alpha, radius))
        printed_Q = theory.Q(g, eta, m, nu, L, alpha, radius, printed=True)
        assert alpha / 2 * printed_Q == pytest.approx(5 * radius * g + g**2 / L)
        assert theory.recipe_tail(g, L, alpha, radius, printed=True) == pytest.approx(
            5 * radius * g / alpha + g**2 / (alpha * L)
        )
        # Corollary 16 follows from the tail, through F(x⁰) − F(x*) ≤ g²/(2L') + L'D² and the square root of each term
        s, D, full = 4, 1.2, 0.8 * L + 0.2 * alpha
        tail = theory.recipe_tail(g, L, alpha, radius)
        through = np.sqrt(2 / alpha) * np.sqrt((2 / 3) ** s * (g**2 / (2 * full) + full * D**2) + tail) + 2 * g / alpha
        assert through <= theory.distance_bound(s, D, g, full, alpha, radius)
        assert theory.objective_bound(s, 5.0, g, L, alpha, radius) == pytest.approx((2 / 3) ** s * 5.0 + tail)
    # beyond the boundary Q grows with m
    beyond = theory.optimal_nu(0.1, 0.9) * 1.01
    more = theory.Q(0.3, 0.1, 50, beyond, 1.0, 0.9, 2.0) - theory.Q(0.3, 0.1, 50, beyond, 1.0, 0.9, 2.0, printed=True)
    assert more == pytest.approx(0.3 * 2.0 / 0.9 * (2 + 4 * 0.01 * 50))


def test_erratum_17_smoothness():
    rng = np.random.default_rng(0)
    A, r = rng.standard_normal((20, 10)), 3
    ours, printed = (Landscape.create(A).smoothness(r, printed=printed) for printed in (False, True))
    assert ours == pytest.approx(max(np.sort(a**2)[-r:].sum() for a in A))
    a = max(A, key=lambda row: np.linalg.norm(row) * np.linalg.norm(hard_threshold(row, r)))
    v = hard_threshold(a, r) / np.linalg.norm(hard_threshold(a, r))
    assert np.linalg.norm(a * (a @ v)) == pytest.approx(printed)  # the whole gradient moves so much,
    assert (a @ v) ** 2 <= ours + 1e-12  # the quadratic form only so much
    assert printed > ours


def test_erratum_18_a_larger_k_never_hurts():
    k = np.arange(8, 4000)
    nu = theory.nu(k, 2)
    ours = theory.rate(0.1, 200, nu, 1.0, 0.9)
    printed = theory.rate(0.1, 200, nu, 1.0, 0.9, printed=True)
    finite = np.isfinite(ours)
    assert (np.diff(ours[finite]) <= 1e-15).all()
    assert (np.diff(printed[finite]) > 1e-6).any()
    assert (ours <= printed + 1e-15).all()


def test_erratum_19_a_repair_for_saga():
    rng = np.random.default_rng(0)
    size = 200_000
    alpha = 10 ** rng.uniform(-4, 2, size)
    L = alpha * 10 ** rng.uniform(0, 4, size)
    n = np.floor(10 ** rng.uniform(0, 6, size))
    eta, mu, c = saga_numbers(alpha, L, n, None)
    nu = 1 + rng.random(size) * (1 / (1 - eta * alpha) - 1)
    shrink = 1 - nu * (1 - eta * alpha)  # 1/κ
    tiny = 1e-9
    assert (np.abs(c * (nu * (1 - eta * alpha) - 1 + shrink)) <= tiny * c).all()
    assert ((1 + mu) * eta <= (1 + tiny) / L).all()
    assert (1 / n - 2 * c * nu * eta * (L - alpha) / L - 2 * c * nu * eta**2 * alpha * mu <= tiny / n).all()
    assert (shrink + 2 * c * nu * (1 + 1 / mu) * eta**2 * L - 1 / n <= tiny / n).all()
    np.testing.assert_allclose(theory.saga_rate(n.astype(int), nu, L, alpha), 1 - shrink)

    # what it asks of k
    n, c = 100, 1.0
    share = 1 / (2 * (n + c))  # ηα
    least = (1 - share) / share**2
    assert least == pytest.approx(40_602)
    assert least == pytest.approx(4 * (n + c) ** 2, rel=0.01)
    for k, enough in ((40_601, False), (40_603, True)):
        assert (theory.nu(k, 1) < 1 / (1 - share)) == enough
    assert theory.nu(7, 7) > 2.6 > 4 / 3 >= np.max(1 / (1 - eta * alpha))  # K = k, as Theorem 22 has it


def test_erratum_20_scalings_of_proposition_18():
    rng = np.random.default_rng(0)

    def gradient(n, d, r, sigma=1.0, trials=12):
        """‖∇_r F(x*)‖ of a Gaussian design."""
        out = []
        for _ in range(trials):
            A, noise = rng.standard_normal((n, d)), sigma * rng.standard_normal(n)
            out.append(np.linalg.norm(hard_threshold(A.T @ noise / n, r)))
        return np.mean(out)

    def slope(x, y):
        return np.polyfit(np.log(x), np.log(y), 1)[0]

    n = np.array([100, 200, 400, 800])
    assert slope(n, [gradient(m, 500, 8) for m in n]) == pytest.approx(-0.5, abs=0.06)
    sigma = np.array([0.1, 1.0, 10.0])
    assert slope(sigma, [gradient(100, 500, 8, s) for s in sigma]) == pytest.approx(1.0, abs=0.06)
    cells = [(n, d, r) for n in (100, 400) for d in (300, 3000) for r in (1, 4, 16)]
    got = np.array([gradient(*cell, trials=6) for cell in cells])
    sharp = [r * np.log(np.e * d / r) / n for n, d, r in cells]
    assert slope(sharp, got) == pytest.approx(0.5, abs=0.05)
    scale = np.array([theory.gradient_scale(1.0, r, d, n) for n, d, r in cells])
    assert (got <= 2.0 * scale).all()  # the printed scaling holds, with C₆ = 2
    smooth = {(d, r): theory.curvature(rng.standard_normal((50, d)), "squared", r).L for _, d, r in cells}
    ratio = np.array([L / (r * np.log(d)) for (d, r), L in smooth.items()])
    assert (ratio <= 5.0).all()  # C₄ = 5
    assert slope([r * np.log(d) for d, r in smooth], list(smooth.values())) == pytest.approx(0.8, abs=0.2)


def test_erratum_20_sample_size():
    def needed(K, eps, d=1000, omega=2.0, sigma=0.5):
        """The n at which the corrected tail 6ωg is ε, in the regime r = c²K, c = K log d."""
        r = round((K * np.log(d)) ** 2 * K)
        return (6 * omega * theory.gradient_scale(sigma, r, d, 1) / eps) ** 2

    def power(x, y):
        return np.polyfit(np.log(x), np.log(y), 1)[0]

    K, eps = np.array([2, 4, 8, 16]), np.array([0.1, 0.01])
    assert power(K, [needed(k, 0.1) for k in K]) == pytest.approx(3, abs=0.01)  # printed: 1
    assert power(eps, [needed(4, e) for e in eps]) == pytest.approx(-2)


def test_erratum_21_divergence():
    A, y, _ = sensing()
    reached = {}
    for step in (5.0, 8.0):
        solver = HTSVRG(step=step, m=300, stages=3, tol=0.0, stop_on_divergence=False)
        reached[step] = np.log10(minimize(A, y, 36, solver=solver, random_state=0).history.objective[3])
    assert 40 < reached[5.0] < 90
    assert reached[8.0] > 120


def test_erratum_22_edges():
    assert theory.nu(5, 5, 5) == theory.nu(5, 2, 5) == 1.0
    b, x = theory.extremal_pair(3, 1, 6)
    swapped = [3, 0, 1, 2, 4, 5]  # what should be lost now stands first, and is kept
    b, x = b[swapped], x[swapped]
    assert np.sum((hard_threshold(b, 3) - x) ** 2) / np.sum((b - x) ** 2) < 0.9 * theory.nu(3, 1, 6)


def test_erratum_23_the_set_in_the_proof_for_iht():
    """k = K = 1, unit columns φ₁ and φ₂ with φ₁·φ₂ = ½, x = e₁, xⁿ = e₂/10: then Bⁿ = {1, 2} and Bⁿ⁺¹ = {1}."""
    inner, start = 0.5, 0.1
    A = np.array([[1.0, inner], [0.0, np.sqrt(1 - inner**2)]])
    x, now = np.array([1.0, 0.0]), np.array([0.0, start])
    after = hard_threshold(now + A.T @ (A @ (x - now)), 1)
    np.testing.assert_array_equal(np.flatnonzero(after), [0])
    error, factor = np.linalg.norm(after - x), np.sqrt(theory.nu(1, 1))
    first = factor * abs((1 - A[:, 0] @ A[:, 0]) * (x - now)[0])  # (I − Φ'Φ) on Bⁿ⁺¹
    second = factor * abs(A[:, 0] @ A[:, 1] * (x - now)[1])  # Φ'Φ from Bⁿ \ Bⁿ⁺¹
    assert error > first + 0.01  # as printed the second set is empty
    assert error <= first + second


def test_erratum_24_cosamp_noise():
    """With δ = 0 the printed bound leaves no room for a support that the noise hides; the corrected one does."""
    x_true, noise = np.array([1.0, 0.0, 0.0]), np.array([-1.0, 1e-3, 1e-3])
    y = x_true + noise  # A is the identity, k = K = 1, from x = 0
    chosen = np.argsort(-np.abs(y), kind="stable")[:2]  # 2k of the gradient
    u = np.zeros(3)
    u[chosen] = y[chosen]
    error = np.linalg.norm(hard_threshold(u, 1) - x_true)
    on_chosen = np.linalg.norm(noise[chosen])
    assert error > 300 * 2.0 * on_chosen  # printed: √2·δ·(…) + 2/(1−δ)·‖(A*ε)_U‖ with δ = 0
    assert error <= np.sqrt(2) * np.linalg.norm(noise) + np.sqrt(theory.nu(1, 1)) * on_chosen
    assert theory.noise_amplification("cosamp", 0.0, 1, 1, printed=True) == pytest.approx(2.0)
    assert theory.noise_amplification("cosamp", 0.0, 1, 1) == pytest.approx(np.sqrt(2) + 1.6180339887)
