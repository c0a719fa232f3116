"""The curvature of data, certificates of it and of fitted estimators, and plans: runs keep what they promise."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from scipy.linalg import hadamard
from scipy.sparse import csr_array
from scipy.sparse.linalg import aslinearoperator
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.linear_model import LinearRegression

from ksparse import (
    HTSVRG,
    PGD,
    KSparseClassifier,
    KSparseRegressor,
    KSparseRegressorCV,
    hard_threshold,
    load,
    minimize,
    theory,
)
from ksparse.theory.curvature import Landscape
from ksparse.theory.rates import allowed_condition


@pytest.mark.parametrize("layout", ["dense", "float32", "fortran", "csr", "operator"])
@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_smoothness_is_exact_on_every_layout(layout, loss):
    rng = np.random.default_rng(0)
    A = rng.standard_normal((40, 25)) * (rng.random((40, 25)) < 0.6)
    A = A.astype(np.float32).astype(float)
    given_as = {
        "dense": lambda: A, "float32": lambda: A.astype(np.float32), "fortran": lambda: np.asfortranarray(A),
        "csr": lambda: sparse.csr_array(A), "operator": lambda: aslinearoperator(A),
    }[layout]()  # fmt: skip
    for r in (1, 4, 25):
        expected = max(np.sort(a**2)[-r:].sum() for a in A) * (0.25 if loss == "logistic" else 1.0)
        got = theory.curvature(given_as, loss, r, l2=0.3)
        np.testing.assert_allclose(got.L, expected + 0.3, rtol=1e-6)
        same = theory.curvature(A, loss, r, l2=0.3)
        np.testing.assert_allclose(got.alpha[:2], same.alpha[:2], rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(got.L_full[:2], same.L_full[:2], rtol=1e-6)


def test_the_brackets_hold_the_enumerated_values():
    rng = np.random.default_rng(1)
    for seed in range(30):
        n, d, r = (int(v) for v in (rng.integers(4, 30), rng.integers(3, 9), rng.integers(1, 4)))
        A = rng.standard_normal((n, d)) * rng.uniform(0.1, 3, d)
        exact = theory.curvature(A, "squared", r, exact=True)
        bracket = theory.curvature(A, "squared", r, exact=False, random_state=seed)
        assert bracket.alpha.lower <= exact.alpha.lower + 1e-9
        assert exact.alpha.upper <= bracket.alpha.upper + 1e-9
        assert bracket.L_full.lower <= exact.L_full.lower + 1e-9
        assert exact.L_full.upper <= bracket.L_full.upper + 1e-9
        assert exact.alpha.upper <= exact.L_full.lower <= exact.L + 1e-9


def test_the_smoothness_of_a_minibatch_is_what_the_proof_needs():
    """E‖∇f_B(x) − ∇f_B(x̂)‖² on any r columns is at most 2L_B(F(x) − F(x̂) − ⟨∇F(x̂), x − x̂⟩)."""
    rng = np.random.default_rng(0)
    n, d, r = 30, 12, 5
    A = rng.standard_normal((n, d))
    for B in (1, 3, 20):
        L = theory.curvature(A, "squared", r, batch_size=B).L
        worst = 0.0
        for _ in range(200):
            v = hard_threshold(rng.standard_normal(d), r)
            if rng.random() < 0.3:  # the worst direction of single rows
                v = hard_threshold(A[rng.integers(n)], r)
            S = np.flatnonzero(v)
            single = np.mean([np.sum((A[i, S] * (A[i] @ v)) ** 2) for i in range(n)])
            full = np.sum(((A.T @ (A @ v) / n)[S]) ** 2)
            squared = single / B + (1 - 1 / B) * full  # of the mean of B draws with replacement
            worst = max(worst, squared / np.mean((A @ v) ** 2))
        assert worst <= L
        if B == 1:
            assert worst > 0.3 * L


def test_curvature_of_other_losses_needs_a_ball():
    rng = np.random.default_rng(0)
    A = rng.standard_normal((200, 6))
    norms = np.linalg.norm(A, axis=1)
    free = theory.curvature(A, "logistic", 2)
    assert free.alpha.lower == free.alpha.upper == 0.0
    ball = theory.curvature(A, "logistic", 2, radius=0.7, exact=True)
    bend = np.exp(-0.7 * norms) / (1 + np.exp(-0.7 * norms)) ** 2
    H = (A.T * bend) @ A / 200
    by_hand = min(np.linalg.eigvalsh(H[np.ix_(S, S)])[0] for S in ([i, j] for i in range(6) for j in range(i)))
    assert ball.alpha.lower == pytest.approx(by_hand)
    assert np.isinf(theory.curvature(A, "poisson", 2).L)
    tops = np.sort(A**2, axis=1)[:, -2:].sum(axis=1)
    bounded = theory.curvature(A, "poisson", 2, radius=0.7)
    np.testing.assert_allclose(bounded.L, np.max(np.exp(0.7 * norms) * tops))
    y = np.resize([1.0, -1.0], 200)
    assert theory.curvature(A, "squared_hinge", 2, y=y).alpha.upper == 0.0
    assert theory.curvature(A, "huber", 2, y=0.1 * y, radius=0.1).alpha.lower > 0  # inside the quadratic part
    weighted = theory.curvature(A, "squared", 2, sample_weight=np.arange(200.0)).L
    assert weighted == pytest.approx(np.max(np.arange(200) / 99.5 * tops))


# --- certificates ----------------------------------------------------------------------------------------------------
def unit_rows(n, d, seed=0):
    A = np.random.default_rng(seed).standard_normal((n, d))
    return A / np.linalg.norm(A, axis=1, keepdims=True)


def with_optimum(A, x, l2):
    """Targets for which x minimises the ridge regression without any constraint: no gradient is left there."""
    n = A.shape[0]
    return A @ x + n * l2 * A @ np.linalg.solve(A.T @ A, x)


def gaps(A, y, k, target, seeds, **settings):
    """The average over seeds of F(x̃^s) − F(target)."""
    solver, l2 = settings["solver"], settings["l2"]
    best = np.mean((A @ target - y) ** 2) / 2 + l2 / 2 * target @ target
    runs = [minimize(A, y, k, random_state=seed, **settings).history.objective for seed in range(seeds)]
    assert {len(run) for run in runs} == {solver.stages + 1}
    return np.mean(runs, axis=0) - best


def stays_under(gap, beta, tail):
    stages = np.arange(gap.size)
    return bool((gap <= beta**stages * gap[0] + tail + 1e-12 * gap[0]).all())


def observed(gap):
    s = int(np.flatnonzero(gap > 1e-9 * gap[0])[-1])
    return (gap[s] / gap[0]) ** (1 / s)


def test_a_certified_ridge_run_stays_under_its_curve():
    A, k, K = unit_rows(400, 160), 70, 1
    x = np.zeros(160)
    x[7] = 2.0
    y = with_optimum(A, x, 20.0)
    report = theory.certificate(A, y, x, K, k=k, l2=20.0, radius=4.0, solver=HTSVRG("theory", m=40, output="random"))
    assert report.certified
    assert report.grad_norm < 1e-9
    assert report.beta < 0.67
    solver = HTSVRG(report.step, m=40, stages=10, output="random", tol=0.0)
    gap = gaps(A, y, k, x, 200, solver=solver, l2=20.0, radius=4.0)
    assert stays_under(gap, report.beta, report.tail)
    assert not stays_under(gap, 0.9 * observed(gap), report.tail)


def test_a_certified_run_with_noise_stays_under_its_curve_plus_tail():
    rng = np.random.default_rng(3)
    A, k, K = unit_rows(400, 160, 3), 70, 1
    x = np.zeros(160)
    x[7] = 2.0
    y = with_optimum(A, x, 20.0) + 2.0 * rng.standard_normal(400)
    settings = {"l2": 20.0, "radius": 4.0}
    fit = minimize(A, y, K, solver=PGD(), **settings)
    report = theory.certificate(A, y, fit, K, k=k, solver=HTSVRG("theory", m=40, output="random"), **settings)
    assert report.certified
    assert report.grad_norm > 0.01
    solver = HTSVRG(report.step, m=40, stages=12, output="random", tol=0.0)
    gap = gaps(A, y, k, fit.x, 100, solver=solver, **settings)
    assert stays_under(gap, report.beta, report.tail)
    decay = gap - gap.min()
    assert not stays_under(decay[:8], 0.9 * observed(decay[:8]), 0.0)


def test_the_distance_to_a_noisy_truth_stays_under_its_bound_and_needs_the_tail():
    """Corollary 16 at the recipe's parameters: the noise leaves a distance that no number of stages removes."""
    rng = np.random.default_rng(3)
    A, k, K, l2, radius = unit_rows(400, 160, 3), 70, 1, 20.0, 4.0
    x = np.zeros(160)
    x[7] = 2.0
    y = with_optimum(A, x, l2) + 2.0 * rng.standard_normal(400)
    L, alpha = (theory.curvature(A, "squared", r, l2=l2) for r in (160, 71))
    L, L_full, alpha = L.L, L.L_full.upper, alpha.alpha.lower
    chosen = theory.recipe(L, alpha, K)
    assert chosen.k <= k
    gradient = A.T @ (A @ x - y) / 400 + l2 * x
    solver = HTSVRG(chosen.eta, m=chosen.m, output="random", tol=0.0, stages=40)
    seen = []
    for seed in range(60):
        track = [x]
        result = minimize(
            A, y, k, solver=solver, l2=l2, radius=radius, random_state=seed,
            callback=lambda progress, track=track: track.append(progress.x - x),
        )  # fmt: skip
        assert result.n_stages == 40
        seen.append([np.linalg.norm(point) for point in track])
    distance = np.mean(seen, axis=0)
    stages = np.arange(distance.size)
    grad_norm = np.linalg.norm(gradient)  # 3k + K > d
    with_tail = theory.distance_bound(stages, 2.0, grad_norm, L_full, alpha, radius)
    without = theory.distance_bound(stages, 2.0, 0.0, L_full, alpha, radius)
    assert (distance <= with_tail).all()
    assert not (distance <= without).all()


def test_a_certified_minibatch_run_stays_under_its_curve():
    """Without a ridge: mini-batches as large as the certificate asks for."""
    A, k, K = hadamard(512)[:, 1:61].astype(float), 40, 1
    x = np.zeros(60)
    x[11] = 1.0
    y = A @ x
    refused = theory.certificate(A, y, x, K, k=k, solver=HTSVRG("theory", m=60, output="random"))
    assert refused.verdict == "not certified"
    (changes,) = [remedy.changes for remedy in refused.remedies if "batch_size" in remedy.changes]
    solver = HTSVRG(
        changes["step"], m=changes["m"], batch_size=changes["batch_size"], stages=6, output="random", tol=0.0
    )
    report = theory.certificate(A, y, x, K, k=k, solver=solver)
    assert report.certified
    assert report.tail == 0.0
    gap = gaps(A, y, k, x, 30, solver=solver, l2=0.0)
    assert stays_under(gap, report.beta, report.tail)
    assert not stays_under(gap, 0.9 * observed(gap), report.tail)


@pytest.mark.parametrize("k", [20, 60, 90])
@pytest.mark.parametrize("output", ["random", "last"])
def test_every_remedy_certifies(k, output):
    A = unit_rows(2000, 100)
    y = A[:, 0] * 2
    refused = theory.certificate(A, y, k=k, K=1, solver=HTSVRG("theory", output=output))
    assert not refused.certified
    assert "never certified" in refused.reason
    assert refused.remedies
    for remedy in refused.remedies:
        changes = {"k": k, "l2": 0.0, "batch_size": 1, "output": output, **remedy.changes}
        solver = HTSVRG(changes["step"], m=changes["m"], batch_size=changes["batch_size"], output=changes["output"])
        again = theory.certificate(A, y, k=changes["k"], K=1, l2=changes["l2"], solver=solver)
        assert again.certified, f"{remedy.text}: {again}"
        assert again.beta < 1
        assert remedy.text in str(refused)


def test_a_step_or_m_that_is_wrong_is_named_and_mended():
    A = unit_rows(500, 160)
    y, good = A[:, 0] * 2, {"k": 70, "K": 1, "l2": 20.0}
    fine = theory.certificate(A, y, **good)
    assert fine.certified
    large = theory.certificate(A, y, solver=HTSVRG(1.0, output="random"), **good)
    assert large.verdict == "not certified"
    assert large.reason.startswith("step: eta = 1 against 1/(4L)")
    short = theory.certificate(A, y, solver=HTSVRG("theory", m=2, output="random"), **good)
    assert short.reason.startswith("stage length: m = 2 has to be above")
    last = theory.certificate(A, y, solver=HTSVRG("theory"), **good)
    assert last.reason.startswith("output")
    for report in (large, short, last):
        (remedy,) = report.remedies
        changes = {"step": report.step, "m": report.m, "output": "random", **remedy.changes}
        mended = theory.certificate(
            A, y, solver=HTSVRG(changes["step"], m=changes["m"], output=changes["output"]), **good
        )
        assert mended.certified


def test_single_rows_are_never_certified():
    """c ≥ min(k + K, d) whatever the data, and no k < d allows so much (erratum 15)."""
    rng = np.random.default_rng(0)
    for _ in range(30):
        d = int(rng.integers(3, 8))
        A = rng.standard_normal((40, d)) * rng.uniform(0.2, 5, d)
        K = int(rng.integers(1, d))
        k = int(rng.integers(K, d))
        r = min(k + K, d)
        alpha = theory.curvature(A, "squared", r, exact=True).alpha.upper
        assert theory.curvature(A, "squared", min(3 * k + K, d), exact=True).L / alpha >= r * (1 - 1e-9)
        assert allowed_condition(theory.nu(k, K, d)) < r
        assert not theory.certificate(A, A[:, 0], k=k, K=K).certified


def test_without_K_the_largest_certified_one_is_taken():
    A = unit_rows(500, 160)
    report = theory.certificate(A, A[:, 0], k=120, l2=20.0)
    assert report.certified
    assert report.K > 1
    assert not theory.certificate(A, A[:, 0], k=120, K=report.K + 1, l2=20.0).certified
    assert theory.certificate(A, A[:, 0], k=120).K == 1


def test_undecided_is_said_where_the_bracket_is_too_wide():
    """Orthonormal columns and the mean of them all: every small block is fine, but neither Gershgorin's discs nor the
    spectrum of the whole (singular) matrix can know."""
    d, k = 1601, 300
    A = np.eye(d - 1, d) * np.sqrt(d - 1)
    A[:, -1] = 1.0
    L = 1.0 / (d - 1) * (d - 1) * 2.0  # of F, at any sparsity
    solver = HTSVRG(0.2 / L, m=10**6, batch_size=10**9, output="random")
    report = theory.certificate(A, A[:, 0], k=k, K=1, solver=solver)
    assert report.alpha.lower == 0.0
    assert report.alpha.upper >= 1 - np.sqrt(k / (d - 1)) - 1e-9  # what it really is
    assert report.verdict == "undecided"
    assert report.reason.startswith("convexity: alpha at k + K = 301 is at least 0")


def test_a_certificate_can_be_stored():
    import json

    A = unit_rows(300, 40)
    fit = minimize(A, A[:, 0], 4, random_state=0)
    report = theory.certificate(A, A[:, 0], fit, 2)
    stored = json.loads(json.dumps(report.to_dict()))
    assert stored["verdict"] == report.verdict
    assert stored["alpha"]["lower"] == report.alpha.lower
    assert stored["remedies"][0] == report.remedies[0].changes
    assert report.k == fit.support.size
    assert "L = " in str(report)


def test_other_problems_get_certificates_too():
    A = unit_rows(300, 40)
    y = np.where(A[:, 0] > 0, 1.0, -1.0)
    weight = np.linspace(1, 2, 300)
    logistic = theory.certificate(A, y, k=39, K=1, loss="logistic", l2=2.0, sample_weight=weight)
    assert logistic.certified  # the ridge is enough; the loss itself is flat far away
    assert logistic.alpha.lower == pytest.approx(2.0)
    constant = theory.certificate(A, y, k=39, K=1, loss="logistic", l2=2.0, intercept=True)
    assert not constant.certified  # the intercept is neither shrunk nor in the ball
    assert constant.alpha.upper < 1e-9
    kept = theory.certificate(sparse.csr_array(A), y, k=38, K=1, l2=6.0, always_keep=[3])
    assert kept.certified
    poisson = theory.certificate(A, np.abs(y), k=4, K=1, loss="poisson")
    assert "no bound without a radius" in poisson.reason
    assert theory.certificate(A, np.abs(y), k=39, K=1, loss="poisson", radius=0.1, l2=5.0).certified


# --- plans -----------------------------------------------------------------------------------------------------------
def test_a_plan_solves_the_recipe_where_it_can():
    A = unit_rows(600, 300)
    x = np.zeros(300)
    x[[3, 50]] = [3.0, -2.0]
    y = with_optimum(A, x, 10.0)
    chosen = theory.plan(A, y, 2, l2=10.0, radius=10.0)
    assert chosen.source == "theory"
    assert chosen.certificate.certified
    assert chosen.certificate.beta <= 2 / 3 + 1e-9
    assert chosen.observed_rate < chosen.certificate.beta  # what is proven is not exceeded
    L = theory.curvature(A, "squared", min(3 * chosen.k + 2, 300), l2=10.0).L
    assert chosen.step == pytest.approx(1 / (8 * L))
    c = chosen.certificate.c.upper
    assert chosen.m == np.ceil(4 * (8 * c - 1))
    assert theory.nu(chosen.k, 2, 300) <= 8 * c / (8 * c - 1)
    smaller = chosen.k - 2  # the fixed point is the smallest, to its grid
    assert theory.nu(smaller, 2, 300) > 8 * c / (8 * c - 1) * (1 - 1e-3)
    result = minimize(A, y, chosen.k, solver=chosen.solver(), l2=10.0, radius=10.0, random_state=0)
    np.testing.assert_allclose(result.x[[3, 50]], [3.0, -2.0], rtol=1e-3)


def test_a_plan_falls_back_on_practice_and_says_so():
    rng = np.random.default_rng(0)
    A = rng.standard_normal((300, 80))
    y = A[:, 0] - 2 * A[:, 1] + 0.1 * rng.standard_normal(300)
    chosen = theory.plan(A, y, 2)
    assert (chosen.k, chosen.m, chosen.source) == (18, 900, "practice")
    assert not chosen.certificate.certified
    assert 0 < chosen.observed_rate < 1
    assert "predicted none, observed 0." in str(chosen)
    again = minimize(A, y, chosen.k, solver=chosen.solver(), random_state=0)
    assert {0, 1} <= set(np.argsort(-np.abs(again.x))[:2])
    assert again.status in ("converged", "stage limit")
    quick = theory.plan(A, y, 2, trial=False)
    assert np.isnan(quick.observed_rate)
    assert theory.plan(A[:30], y[:30], 10).k <= 15  # k must stay well below the rows
    assert theory.plan(A[:, :6], y, 2).k == 3


@pytest.mark.parametrize(("n", "d", "correlated"), [(60, 400, False), (60, 400, True), (30, 30, True), (200, 40, True)])
def test_a_planned_solver_does_not_diverge(n, d, correlated):
    rng = np.random.default_rng(n + d)
    A = rng.standard_normal((n, d))
    if correlated:
        A += 2 * rng.standard_normal((n, 1))
    y = A[:, 0] - A[:, 1] + 0.1 * rng.standard_normal(n)
    chosen = theory.plan(A, y, 3)
    assert chosen.trial != "diverged"
    for seed in range(3):
        result = minimize(A, y, chosen.k, solver=chosen.solver(), random_state=seed)
        assert result.status != "diverged"
        assert result.objective < 0.5 * result.history.objective[0]
    assert f"(trial: {chosen.trial})" in str(chosen)


def test_a_ridge_is_found_where_only_a_large_step_allows_it():
    """k = 16, K = 1: c has to be below 1.13, and with the step 1/(8L) even below 0.85."""
    A = np.random.default_rng(0).standard_normal((300, 40))
    refused = theory.certificate(A, A[:, 0], k=16, K=1)
    ridges = [remedy.changes for remedy in refused.remedies if "l2" in remedy.changes]
    assert ridges
    for changes in ridges:
        solver = HTSVRG(changes["step"], m=changes["m"], output="random")
        assert theory.certificate(A, A[:, 0], k=changes.get("k", 16), K=1, l2=changes["l2"], solver=solver).certified
    tight = theory.certificate(A, A[:, 0], k=16, K=1, l2=1e6, solver=HTSVRG("theory", output="random"))
    (remedy,) = tight.remedies
    assert remedy.changes["step"] == pytest.approx(0.2 / tight.L)


def test_kept_columns_are_in_every_direction_and_outside_the_ball():
    rng = np.random.default_rng(0)
    A = rng.standard_normal((60, 4))
    A[:, 3] = A[:, 1] + A[:, 2]  # dependent, but never chosen together at r = 1
    ground = Landscape.create(A, np.zeros(60), always_keep=[0])
    G = A.T @ A / 60
    by_hand = min(np.linalg.eigvalsh(G[np.ix_([0, j, i], [0, j, i])])[0] for j in range(1, 4) for i in range(1, j))
    assert ground.convexity(2).upper == pytest.approx(by_hand, abs=1e-9)
    pair = min(np.linalg.eigvalsh(G[np.ix_([0, j], [0, j])])[0] for j in range(1, 4))
    assert ground.convexity(1).upper == ground.convexity(1).lower == pytest.approx(pair)
    unit = unit_rows(300, 40)
    y = 50 * unit[:, 3] + unit[:, 5] + 0.1 * rng.standard_normal(300)
    fit = minimize(unit, y, 3, l2=6.0, always_keep=[3], radius=0.01)
    report = theory.certificate(unit, y, fit, 1, k=38, l2=6.0, always_keep=[3], radius=0.01)
    assert report.certified
    assert report.tail == np.inf
    assert report.reference_norm > 0.1  # the kept column is not squeezed into the ball
    assert "radius does not bound all columns" in str(report)


def test_what_a_certificate_cannot_know_is_asked_for():
    A = unit_rows(50, 10)
    with pytest.raises(ValueError, match="known after a run only"):
        theory.certificate(A, A[:, 0], k=3, K=1, solver=HTSVRG(output="random"))
    fit = minimize(A, A[:, 0], 3, solver=HTSVRG(output="random"), random_state=0)
    assert theory.certificate(A, A[:, 0], fit, 1, solver=HTSVRG(output="random")).step == fit.history.step.max()
    with pytest.raises(ValueError, match="for operators, use"):
        theory.certificate(aslinearoperator(A), A[:, 0], k=3, K=1)


def test_a_foreign_loss_is_trusted_with_its_bound_only():
    from typing import NamedTuple

    from ksparse.losses import curvature, curvature_bound, deriv, value

    class Dip(NamedTuple):
        """φ'' falls to zero in the middle of the ball, not at its ends."""

    value.rule(Dip)(lambda loss, z, y: z**4 / 12)
    deriv.rule(Dip)(lambda loss, z, y: z**3 / 3)
    curvature.rule(Dip)(lambda loss, z, y: z**2)
    curvature_bound.rule(Dip)(lambda loss: 4.0)
    found = theory.curvature(unit_rows(50, 6), Dip(), 2, y=np.zeros(50), radius=2.0)
    assert found.alpha.upper == 0.0
    np.testing.assert_allclose(found.L, 4.0 * max(np.sort(a**2)[-2:].sum() for a in unit_rows(50, 6)))


@pytest.mark.parametrize("scale", [1e-100, 1e-10, 1e10, 1e100])
def test_nothing_depends_on_the_unit_of_the_data(scale):
    A = unit_rows(300, 60)
    y = 3 * A[:, 4]
    for l2 in (2.0, 5.0):
        plain = theory.certificate(A, y, k=40, K=1, l2=l2)
        scaled = theory.certificate(A * scale, y, k=40, K=1, l2=l2 * scale**2)
        assert plain.verdict == scaled.verdict
        assert scaled.beta == pytest.approx(plain.beta, rel=1e-9)
    assert theory.recipe(scale**2, scale**2, 2).beta == pytest.approx(2 / 3)


def test_data_without_curvature_are_an_answer_not_a_crash():
    zero = theory.certificate(np.zeros((20, 5)), np.ones(20), k=2, K=1)
    assert "nothing to learn" in zero.reason
    assert theory.plan(np.zeros((20, 5)), np.ones(20), 1).certificate.verdict == "not certified"
    flat = sparse.random_array((3100, 3100), density=0.001, rng=np.random.default_rng(1)).tocsr()
    assert theory.curvature(flat, "logistic", 2).alpha.upper == 0.0
    empty = theory.restricted_isometry(sparse.csr_array((3001, 3001)), 2)
    assert empty.lower == pytest.approx(1.0)
    A = np.random.default_rng(0).standard_normal((30, 5))
    A[3] = 0
    kept = theory.certificate(A, np.ones(30), k=2, K=1, loss="poisson", radius=1.0, always_keep=[0])
    assert "does not bound the intercept and the kept columns" in kept.reason
    with pytest.warns(ConvergenceWarning, match="no better than the intercept"):
        assert minimize(A, A[:, 0], 2, radius=1e-200).status is not None


def test_brackets_with_an_intercept_and_on_wide_sparse_data():
    rng = np.random.default_rng(0)
    A = rng.standard_normal((40, 7))
    ones = np.column_stack([A, np.ones(40)])
    G = ones.T @ ones / 40 + np.diag([0.3] * 7 + [0.0])
    by_hand = min(np.linalg.eigvalsh(G[np.ix_([i, j, 7], [i, j, 7])])[0] for i in range(7) for j in range(i))
    for given_as in (A, sparse.csr_array(A), A.astype(np.float32)):
        found = Landscape.create(given_as, np.zeros(40), intercept=True, l2=0.3).convexity(2)
        assert found.lower == found.upper == pytest.approx(by_hand, rel=1e-5)
    wide = sparse.random_array((500, 5000), density=0.01, rng=rng, data_sampler=rng.standard_normal).tocsr()
    for intercept in (False, True):
        bracket = Landscape.create(wide, np.zeros(500), intercept=intercept, l2=0.1).convexity(30)
        assert 0.0 <= bracket.lower <= bracket.upper <= 1.0


def test_bad_matrices_are_named():
    rng = np.random.default_rng(0)
    A = rng.standard_normal((30, 6))
    with pytest.raises(ValueError, match="A must be finite"):
        theory.restricted_isometry(aslinearoperator(A * np.nan), 2)
    with pytest.raises(ValueError, match="rescale"):
        theory.restricted_isometry(A * 1e200, 2, exact=False)
    with pytest.raises(ValueError, match="exact must be True or False"):
        theory.restricted_isometry(A, 2, exact="no")
    with pytest.raises(ValueError, match="random_state must be"):
        theory.restricted_isometry(A, 2, random_state="x")
    with pytest.raises(ValueError, match="fit must have one number per column"):
        theory.certificate(A, A[:, 0], minimize(A[:, :4], A[:, 0], 2), 1)
    with pytest.raises(ValueError, match="must leave columns"):
        theory.certificate(A, A[:, 0], k=1, K=1, always_keep=np.arange(6))
    with pytest.raises(ValueError, match="differ in length"):
        theory.restricted_isometry([[1.0, 2.0], [3.0]], 1)
    with pytest.raises(ValueError, match="at most 2\\^53"):
        theory.rip_order("iht", 2**62, 1)
    assert theory.curvature([[1.0, 2.0], [3.0, 4.0]], "squared", 1).L == 16.0
    wide = theory.restricted_isometry(A.astype(np.longdouble), 2)
    assert wide.upper == pytest.approx(theory.restricted_isometry(A, 2).upper)
    half = theory.restricted_isometry((A * 100).astype(np.float16), 1)
    assert np.isfinite(half.upper)
    assert theory.largest_k("iht", 2000, 4, 10**12) == theory.largest_k("iht", 2000, 4, 10**12 + 7)
    assert theory.rip_threshold("cosamp", 5, 5, rate=1e-200) > 0


# --- the certificate of an estimator ---------------------------------------------------------------------------------
def rows_of(n=200, d=20, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) * np.geomspace(0.1, 10.0, d) + 3.0
    return X, X[:, 0] - X[:, 5] + rng.standard_normal(n)


def by_hand(X, intercept):
    """The columns as the estimators scale them."""
    if not intercept:
        return X / np.sqrt((X**2).mean(axis=0))
    return (X - X.mean(axis=0)) / X.std(axis=0)


@pytest.mark.parametrize("intercept", [True, False])
def test_a_certificate_of_a_regressor_is_that_of_what_it_minimised(intercept):
    X, y = rows_of()
    model = KSparseRegressor(k=4, l2=0.3, fit_intercept=intercept, always_keep=[2]).fit(X, y)
    found = theory.certificate(X, y, model)
    Z = by_hand(X, intercept)
    x = model.coef_ * (X.std(axis=0) if intercept else np.sqrt((X**2).mean(axis=0)))
    plain = theory.certificate(Z, y, x, k=4, l2=0.3, intercept=intercept, always_keep=[2])
    assert found.data == "X with its columns " + (
        "centred and divided by their standard deviations" if intercept else "divided by their root mean squares"
    )
    assert found.data in str(found)
    assert found.data in found._repr_html_()
    assert (found.k, found.K, found.l2, found.verdict) == (plain.k, plain.K, plain.l2, plain.verdict)
    for name in ("L", "nu", "step", "grad_norm", "reference_norm"):
        assert getattr(found, name) == pytest.approx(getattr(plain, name), rel=1e-6)
    np.testing.assert_allclose(found.alpha[:2], plain.alpha[:2], rtol=1e-6)


def test_a_certificate_knows_loss_weights_and_classes():
    X, y = rows_of()
    label, weight = np.where(y > y.mean(), "yes", "no"), np.linspace(0.5, 1.5, len(y))
    model = KSparseClassifier(k=3, class_weight="balanced").fit(X, label, sample_weight=weight)
    found = theory.certificate(X, label, model, 1, sample_weight=weight)
    share = weight * np.where(label == "yes", 1 / weight[label == "yes"].sum(), 1 / weight[label == "no"].sum())
    mean = share @ X / share.sum()
    Z = (X - mean) / np.sqrt(share @ (X - mean) ** 2 / share.sum())
    plain = theory.certificate(
        Z, np.where(label == "yes", 1.0, -1.0), k=3, K=1, loss="logistic", l2=model.l2_, intercept=True,
        sample_weight=share,
    )  # fmt: skip
    assert pytest.approx(plain.L, rel=1e-6) == found.L
    assert np.isfinite(found.grad_norm)
    robust = KSparseRegressor(k=2, loss="huber", standardize=False).fit(X, y)
    assert theory.certificate(X, y, robust).data == "X as it was given"
    chosen = KSparseRegressorCV([2, 3], cv=2).fit(X, y)
    assert theory.certificate(X, y, chosen).k == chosen.k_
    sparse = theory.certificate(csr_array(X), y, KSparseRegressor(k=2).fit(csr_array(X), y))
    assert sparse.data == "X with its columns divided by their standard deviations"


def test_what_no_certificate_can_be_about_is_refused(tmp_path):
    X, y = rows_of()
    model = KSparseRegressor(k=2).fit(X, y)
    for name, value in {"loss": "huber", "l2": 1.0, "always_keep": [0], "intercept": True}.items():
        with pytest.raises(ValueError, match=f"{name} is known to the estimator"):
            theory.certificate(X, y, model, **{name: value})
    for other, word in ((X[:100], "100 rows"), (2.0 * X, "another deviation in column 0")):
        with pytest.raises(ValueError, match=f"A must hold the rows that the model was fitted on .* got {word}"):
            theory.certificate(other, y[: len(other)], model)
    classes = np.digitize(y, [-1.0, 1.0])
    for bad, target, words in (
        (KSparseClassifier(k=2).fit(X, classes), classes, "two classes"),
        (KSparseRegressor(k=2).fit(X, np.c_[y, y]), np.c_[y, y], "one target"),
        (KSparseRegressor(k=2, groups=np.arange(20) // 2).fit(X, y), y, "without groups"),
        (KSparseRegressor(k=2, positive=True).fit(X, y), y, "without positive=True"),
    ):
        with pytest.raises(ValueError, match=words):
            theory.certificate(X, target, bad)
    model.save(tmp_path / "model.json")
    with pytest.raises(ValueError, match="one read from a file"):
        theory.certificate(X, y, load(tmp_path / "model.json"))
    with pytest.raises(ValueError, match="an estimator of ksparse, got LinearRegression"):
        theory.certificate(X, y, LinearRegression().fit(X, y))
    with pytest.raises(NotFittedError):
        theory.certificate(X, y, KSparseRegressor())
