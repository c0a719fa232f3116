"""Gradient methods: they find what is there, and say truthfully whether they converged."""

from __future__ import annotations

import numpy as np
import oracle
import pytest
from problems import sensing
from scipy import sparse
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_wine

from ksparse import HTSAGA, HTSVRG, IHT, PGD, StoIHT, minimize
from ksparse.problem import Problem
from ksparse.solvers.htsvrg import stage_steps
from ksparse.solvers.screen import make_screen

NO_BETTER = pytest.mark.filterwarnings("ignore:the objective is .* no better:sklearn.exceptions.ConvergenceWarning")
ALL = {"ht-svrg": HTSVRG, "ht-saga": HTSAGA, "pgd": PGD, "iht": IHT, "stoiht": StoIHT}


# --- correct ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize(
    "solver",
    [
        HTSVRG(step="spectral", stages=2000, tol=0),
        HTSVRG(step="spectral", stages=4000, output="random", tol=0),
        HTSVRG(stages=1000, tol=0),
        HTSVRG(step=0.3, stages=1000, batch_size=2, m=150, tol=0),
        HTSAGA(step=0.2, epochs=6000, tol=0),
        PGD(iterations=2000, tol=0),
        PGD(step="spectral", iterations=2000, tol=0),
    ],
    ids=lambda s: f"{type(s).__name__}-{s.step}",
)
def test_noiseless_recovery(solver, layout):
    A, y, x = sensing()
    result = minimize(layout(A), y, 36, solver=solver, random_state=0)
    assert np.linalg.norm(result.x - x) <= 1e-10 * np.linalg.norm(x), result


def test_iht_recovers_at_the_true_sparsity():
    A, y, x = sensing(n=200)
    result = minimize(A, y, 4, solver=IHT(tol=0))
    assert np.linalg.norm(result.x - x) <= 1e-10 * np.linalg.norm(x)


def test_ht_svrg_needs_fewer_full_gradients_than_pgd():
    """Where the paper says so: c < n(c' − 1), many rows and a badly conditioned design (section 3.4)."""
    rng = np.random.default_rng(0)
    n, d = 3000, 100
    scale = np.concatenate([np.full(5, 1.0), np.full(5, 0.12), np.full(d - 10, 0.05)])
    A = rng.standard_normal((n, d)) * scale
    x = np.zeros(d)
    x[:10] = 1.0 + rng.random(10)
    y = A @ x
    target = 1e-8 * np.mean(y**2) / 2

    def passes(solver):
        h = minimize(A, y, 20, solver=solver, random_state=0).history
        return h.gradients[np.argmax(h.objective < target)] / n if (h.objective < target).any() else np.inf

    svrg = passes(HTSVRG(step=0.05, m=2 * n, stages=200, tol=0))
    curvature = np.linalg.eigvalsh(A.T @ A / n)[-1]
    pgd = min(passes(PGD(step=c / curvature, iterations=3000, tol=0)) for c in (0.5, 1.0, 1.5))
    assert svrg < pgd / 2, (svrg, pgd)


def test_stoiht_stalls_at_a_noise_floor_that_ht_svrg_passes():
    A, y, _ = sensing(n=200, d=100, K=5, noise=0.05)
    y = 30 * y
    floor = minimize(A, y, 10, solver=StoIHT(step=0.3, epochs=300), random_state=0)
    best = minimize(A, y, 10, solver=HTSVRG(step=0.3, stages=300, tol=1e-12), random_state=0)
    assert floor.status == "stalled"
    assert "HTSVRG" in floor.status.remedy
    settled = minimize(A, y, 10, solver=StoIHT(step=0.3, epochs=300, tol=0), random_state=0).history.objective[100:]
    assert settled.min() > 1.05 * best.objective


@pytest.mark.parametrize("loss", ["squared", "logistic", "poisson", "huber", "squared_hinge"])
def test_the_end_is_a_fixed_point(loss):
    """Converged means that the gradient vanishes on the support, and that nothing off it would enter."""
    rng = np.random.default_rng(1)
    A = rng.standard_normal((300, 20))
    z = A[:, :3] @ [1.0, -0.8, 0.6]
    y = {"logistic": np.sign(z + rng.logistic(size=300)), "squared_hinge": np.sign(z + rng.logistic(size=300)),
         "poisson": rng.poisson(np.exp(z)).astype(float)}.get(loss, z + 0.3 * rng.standard_normal(300))  # fmt: skip
    for solver in (HTSVRG(stages=500, tol=1e-13), HTSAGA(epochs=2000, tol=1e-13), PGD(tol=1e-14)):
        result = minimize(A, y, 5, loss=loss, l2=0.01, solver=solver, random_state=0)
        assert result.converged, result
        p = oracle.Plain(A, y, 5, loss=loss, l2=0.01)
        gradient = A.T @ p.slopes(result.x) / 300 + 0.01 * result.x
        assert np.abs(gradient[result.support]).max() < 1e-4
        np.testing.assert_allclose(result.objective, p.objective(result.x), rtol=1e-12)


# --- step="auto" on raw data -----------------------------------------------------------------------------------------
def raw(name):
    if name == "diabetes":
        X, y = load_diabetes(return_X_y=True, scaled=False)
        return X, y, "squared"
    X, t = {"cancer": load_breast_cancer, "wine": load_wine, "digits": load_digits}[name](return_X_y=True)
    if name == "digits":
        keep = (t == 4) | (t == 9)
        return X[keep], np.where(t[keep] == 4, 1.0, -1.0), "logistic"
    return X, np.where(t == 0, 1.0, -1.0), "logistic"


@pytest.mark.parametrize("name", ["cancer", "wine", "digits", "diabetes"])
@pytest.mark.parametrize(
    "solver", [HTSVRG(stages=3000), HTSAGA(epochs=10000), PGD(iterations=10000)], ids=lambda s: type(s).__name__
)
def test_the_automatic_step_converges_on_raw_data(solver, name):
    X, y, loss = raw(name)  # columns from 0.001 to 4000
    result = minimize(X, y, 5, loss=loss, solver=solver, intercept=True, random_state=0)
    assert result.converged, result
    h = result.history
    assert (np.diff(h.objective) <= 1e-9 * h.objective[:-1]).all()
    assert result.objective < 0.75 * h.objective[0]


def test_the_named_steps():
    A, y, _ = sensing()
    eta = minimize(A, y, 36, solver=HTSVRG(step="spectral", stages=1)).history.step[0]
    np.testing.assert_allclose(eta, 2 / np.linalg.norm(A, 2) ** 2, rtol=1e-8)
    assert 0.25 < eta < 0.35  # the paper: about 0.30
    top = np.sort(A**2, axis=1)[:, ::-1][:, : 4 * 36].sum(axis=1).max()
    theory = minimize(A, y, 36, solver=HTSVRG(step="theory", stages=1)).history.step[0]
    np.testing.assert_allclose(theory, 1 / (8 * top))
    logistic = minimize(A, np.sign(y), 36, loss="logistic", solver=HTSVRG(step="theory", stages=1)).history.step[0]
    np.testing.assert_allclose(logistic, 4 * theory)
    pgd = minimize(A, y, 36, solver=PGD(step="spectral", iterations=1)).history.step[0]
    np.testing.assert_allclose(pgd, 100 * eta)
    assert minimize(A, y, 4, solver=IHT(iterations=1)).history.step[0] == 100  # the unit step on the sum
    one = minimize(A[:, :1], y, 1, solver=PGD(step="spectral", iterations=1)).history.step[0]
    np.testing.assert_allclose(one, 2 * 100 / (A[:, 0] @ A[:, 0]), rtol=1e-8)
    ones = minimize(A, y, 1, intercept=True, solver=PGD(step="spectral", iterations=1)).history.step[0]
    np.testing.assert_allclose(ones, 200 / np.linalg.norm(np.hstack([A, np.ones((100, 1))]), 2) ** 2, rtol=1e-8)
    with pytest.raises(ValueError, match="bounded curvature"):
        minimize(A, np.ones(100), 3, loss="poisson", solver=HTSVRG(step="theory"))


# --- divergence ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("solver", [HTSVRG(step=3.0), HTSAGA(step=30.0), PGD(step=1e4), StoIHT(step=100.0), IHT()])
def test_diverged_stops_at_once_and_says_the_remedy(solver):
    A, y, _ = sensing()
    A = A * (1 if type(solver) is not IHT else 3)
    result = minimize(A, y, 36, solver=solver, random_state=0)
    assert result.status == "diverged"
    assert result.n_stages <= 5
    if type(solver) is HTSVRG:
        assert "step 3 is above" in result.status.message
    assert "try" in result.status.remedy or "use PGD" in result.status.remedy
    assert np.isfinite(result.x).all()
    assert np.isfinite(result.objective)
    assert result.objective <= result.history.objective[0]


@NO_BETTER
def test_divergence_can_be_watched():
    A, y, _ = sensing()
    result = minimize(A, y, 36, solver=HTSVRG(step=3.0, stages=40, stop_on_divergence=False), random_state=0)
    assert result.history.objective.max() > 1e20
    overflow = minimize(A, y, 36, solver=HTSVRG(step=50.0, stages=400, stop_on_divergence=False), random_state=0)
    assert overflow.status == "diverged"  # the end of all floats
    assert np.isfinite(overflow.objective)


# --- "converged" is said only when it is true ------------------------------------------------------------------------
def plain_data(seed=0, n=200, d=50):
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((n, d))
    x = np.zeros(d)
    x[[3, 7, 11]] = [1, -2, 1.5]
    return A, A @ x + 0.1 * rng.standard_normal(n)


@pytest.mark.parametrize("solver", [HTSVRG(), HTSAGA(), PGD()], ids=lambda s: type(s).__name__)
def test_one_huge_column_is_no_convergence(solver):
    """Its curvature allows no step that would move the others: that is to be said, with the remedy."""
    A, y = plain_data()
    A[:, 0] = np.random.default_rng(1).lognormal(10, 1, 200)
    result = minimize(A, y, 4, solver=solver, random_state=0)
    assert not (result.converged and result.objective > 0.1), result
    if result.status == "stalled":
        assert "standardise" in result.status.remedy


@pytest.mark.parametrize("scale", [1e-8, 1e-4, 1e-2, 1e4])
def test_the_unit_of_y_does_not_matter(scale):
    A, y = plain_data()
    for solver in (HTSVRG(), HTSAGA(), PGD()):
        best = minimize(A, scale * y, 3, solver=PGD(tol=1e-14)).objective
        result = minimize(A, scale * y, 3, solver=solver, random_state=0)
        assert result.converged, result
        assert result.objective <= best * 1.01  # tol is a share of the objective at zero, 700 times this one


@NO_BETTER
def test_a_cycle_or_a_tiny_step_is_no_convergence():
    cases = [
        (np.ones((2, 1)), [1.0, 1.0], 1, IHT()),  # jumps to and fro over the minimum
        (np.array([[1.0, 2.0]]), [3.0], 2, PGD(step="spectral")),
        (*plain_data(), 3, PGD(step=1e-12)),
        (*plain_data(), 3, HTSVRG(step=1e-12)),
    ]
    for A, y, k, solver in cases:
        result = minimize(A, y, k, solver=solver, random_state=0)
        assert result.status == "stalled", result
    weight = np.zeros(200)
    weight[5] = 1.0  # nearly all epochs draw nothing that counts
    A, y = plain_data()
    for seed in range(5):
        result = minimize(A, y, 3, solver=StoIHT(), sample_weight=weight, random_state=seed)
        assert not (result.converged and not result.x.any())


def test_solved_is_converged_though_idle_columns_change_places():
    """Without noise and with k > K the spare columns never rest; the objective does."""
    for seed in range(5):
        A, y, x = sensing(n=60, d=40, K=3, seed=seed)
        result = minimize(A, y, 8, solver=HTSVRG(), random_state=seed)
        assert result.converged, result
        np.testing.assert_allclose(result.x, x, atol=1e-2)


def test_an_iterate_out_of_range_is_never_called_good():
    """The squared hinge is zero at infinity."""
    A, y = plain_data()
    for solver in (HTSVRG(step=300.0), HTSAGA(step=300.0), StoIHT(step=1e4), PGD(step=1e308)):
        result = minimize(A, np.sign(y), 20, loss="squared_hinge", solver=solver, random_state=0)
        assert np.isfinite(result.x).all()
        assert np.isfinite(result.objective)


def test_a_row_of_weight_zero_may_overflow():
    A, _ = plain_data()
    counts = np.random.default_rng(0).poisson(np.exp(0.3 * A[:, 3]))
    offset, weight = np.zeros(200), np.ones(200)
    offset[0], weight[0] = 1000.0, 0.0
    for solver in (HTSVRG(), HTSAGA(), PGD()):
        with_it = minimize(
            A, counts, 3, loss="poisson", offset=offset, sample_weight=weight, solver=solver, random_state=0
        )
        assert with_it.objective < 0.95
        assert with_it.converged


@NO_BETTER
def test_a_gradient_out_of_range_is_a_divergence():
    for solver in (HTSVRG(), HTSAGA(), PGD(), PGD(step=1.0), StoIHT()):
        result = minimize([[1.0, 1e3]] * 2, [1, 1], 1, loss="poisson", solver=solver, x0=[709.0, 0.0], random_state=0)
        assert result.status in ("diverged", "stalled"), result
        assert np.isfinite(result.objective)


def test_a_warm_start_from_a_result_brings_the_intercept():
    A, y = plain_data()
    first = minimize(A, y + 100, 3, intercept=True, random_state=0, solver=HTSVRG(stages=1000))
    again = minimize(A, y + 100, 3, intercept=True, random_state=0, x0=first, solver=HTSVRG())
    np.testing.assert_allclose(again.history.objective[0], first.objective)
    np.testing.assert_allclose(first.intercept, 100, atol=0.1)


def test_sparse_rows_with_idle_slots_stay_cheap():
    """Fewer columns in use than slots: no step may look at all columns of a wide matrix, where mu is infinite here."""
    rng, d = np.random.default_rng(0), 10_000
    indices = np.concatenate([np.sort(rng.choice(200, 50, replace=False)) for _ in range(500)]).astype(np.int32)
    A = sparse.csr_array(
        (rng.standard_normal(25_000), indices, np.arange(0, 25_001, 50, dtype=np.int32)), shape=(500, d)
    )
    problem = Problem.create(A, rng.standard_normal(500))
    slots, screen = problem.slots(250), make_screen(problem, 250, 1)
    stage = problem.stage(slots, rng.integers(0, 500, (3000, 1)))
    run = stage_steps(problem, stage, slots, screen, 1e-3)
    run(0, 1000)
    stage.mu[np.setdiff1d(np.arange(200, d), slots.column)] = np.inf
    assert run(1000, 3000) == 3000
    assert np.isfinite(slots.x).all()
    assert np.count_nonzero(slots.x) == 200


def test_a_snapshot_drawn_early_is_no_convergence():
    """With output="random" a stage may take no step at all: then nothing has changed, and nothing has converged."""
    A, y, _ = sensing()
    for seed in range(20):
        solver = HTSVRG(step=0.1, m=5, stages=30, output="random", tol=1e-5)
        result = minimize(A, 100 * y, 36, solver=solver, random_state=seed)
        assert not (result.converged and result.objective > 0.5 * result.history.objective[0])


# --- the same seed, the same bits ------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ALL)
def test_same_seed_same_bits(name):
    A, y, _ = sensing(noise=0.1)
    solver = ALL[name](tol=0.0, **({"stages": 20} if name == "ht-svrg" else {}))
    a, b = (minimize(A, y, 20, solver=solver, random_state=np.random.default_rng(7)) for _ in range(2))
    assert a.x.tobytes() == b.x.tobytes()
    np.testing.assert_array_equal(a.history.objective, b.history.objective)


def test_a_warm_start_goes_on_where_the_last_run_stopped():
    A, y, _ = sensing(noise=0.1)
    first = minimize(A, y, 10, solver=HTSVRG(), random_state=0)
    second = minimize(A, y, 10, solver=HTSVRG(), x0=first.x, random_state=0)
    np.testing.assert_allclose(second.history.objective[0], first.objective)
    assert second.n_stages <= first.n_stages


# --- edges -----------------------------------------------------------------------------------------------------------
@NO_BETTER
@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
def test_single_rows_and_columns_constants_and_zeros(name, layout):
    rng = np.random.default_rng(0)
    solver = ALL[name]()

    def check(A, y, k, **more):
        result = minimize(layout(A), y, k, solver=solver, random_state=0, **more)
        assert np.isfinite(result.x).all()
        assert np.isfinite(result.objective)
        assert result.support.size <= k
        assert result.objective <= result.history.objective[0] * (1 + 1e-12) or name == "stoiht"
        return result

    A = rng.standard_normal((30, 8)) / 10
    y = A[:, 0]
    check(A, y, 8)  # k = d
    check(A[:1], y[:1], 3)  # n = 1
    check(A[:, :1], y, 1)  # d = 1
    check(A[:1, :1], y[:1], 1)
    check(np.hstack([A, A]), y, 4)  # duplicate columns
    check(np.hstack([np.ones((30, 1)), A]), y, 4)  # a constant column
    zeros = check(np.zeros((30, 8)), y, 4)  # all zeros
    assert zeros.support.size == 0
    check(A, np.zeros(30), 4)
    check(np.hstack([np.zeros((30, 3)), A]), y, 4, intercept=True)


def test_one_row_of_every_loss():
    for loss in ("squared", "logistic", "poisson", "huber", "squared_hinge"):
        result = minimize([[1.0, 2.0]], [3.0 if loss == "poisson" else 1.0], 1, loss=loss, l2=0.1, random_state=0)
        np.testing.assert_array_equal(result.support, [1])


def test_kept_columns_do_not_count():
    A, y, _ = sensing(noise=0.1)
    result = minimize(A, y, 2, always_keep=[10, 20], random_state=0)
    assert {10, 20} <= set(result.support)
    assert result.support.size == 4
    mask = np.zeros(256, bool)
    mask[[10, 20]] = True
    np.testing.assert_array_equal(minimize(A, y, 2, always_keep=mask, random_state=0).x, result.x)


def test_positive():
    A, y, _ = sensing(noise=0.1)
    result = minimize(A, y, 5, positive=True, random_state=0)
    assert (result.x >= 0).all()
    assert result.support.size > 0


def test_a_row_of_weight_zero_is_no_row():
    A, y, _ = sensing(n=60, noise=0.1)
    y = y.copy()
    y[50:] = 1e6
    weight = np.r_[np.ones(50), np.zeros(10)]
    a = minimize(A, y, 5, sample_weight=weight, solver=PGD(tol=1e-14))
    b = minimize(A[:50], y[:50], 5, solver=PGD(tol=1e-14))
    np.testing.assert_allclose(a.objective, b.objective, rtol=1e-6)
    problem = Problem.create(A, y, sample_weight=3 * weight)
    np.testing.assert_allclose(problem.weight.mean(), 1.0)
