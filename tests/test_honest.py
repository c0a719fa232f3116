"""No wrong number: the objective that is reported is F(x), and "converged" is said of good results only."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from oracle import Plain
from scipy import sparse
from scipy.sparse.linalg import aslinearoperator
from sklearn.exceptions import ConvergenceWarning

import ksparse
from ksparse import KSparseClassifier, KSparseRegressor, joint, k_path, losses, minimize
from ksparse.result import Status, judged
from ksparse.sources import Blocks

PURSUITS = ["htp", "sp", "cosamp", "grasp", "grahtp", "ompr", "niht", "omp", "romp"]
LOSSES = list(losses.LOSSES)


def objective(A, y, x, l2=0.0):
    return 0.5 * np.mean((A @ x - y) ** 2) + 0.5 * l2 * (x @ x)


@pytest.fixture
def few():
    """Sixteen columns of which eight are zero, so that k = 9 beside two kept columns asks for more than there are."""
    rng = np.random.default_rng(55)
    A = rng.standard_normal((40, 16))
    A[:, 8:] = 0
    return A, A[:, :6] @ rng.standard_normal(6) + 0.3 * rng.standard_normal(40)


# --- kept columns in pursuits ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("l2", [0.0, 1e-3])
@pytest.mark.parametrize("solver", PURSUITS)
def test_a_kept_column_is_not_chosen_a_second_time(few, solver, l2):
    A, y = few
    found = minimize(A, y, 9, solver=solver, always_keep=[0, 1], l2=l2)
    assert found.objective == pytest.approx(objective(A, y, found.x, l2), rel=1e-9)
    every = np.linalg.lstsq(np.vstack([A, np.sqrt(40 * l2) * np.eye(16)]), np.append(y, np.zeros(16)), rcond=None)[0]
    assert found.objective <= 1.05 * objective(A, y, every, l2)  # niht stops a little above


@pytest.mark.parametrize("solver", ["htp", "sp", "cosamp"])
def test_constant_columns_beside_kept_ones_do_no_harm(few, solver):
    A, y = few
    A[:, 8:] = 3.0
    model = KSparseRegressor(k=9, always_keep=[0, 1], solver=solver, l2=0.0).fit(A, y)
    assert model.score(A, y) > 0.99
    assert model.objective_ == pytest.approx(0.5 * np.mean((model.predict(A) - y) ** 2), rel=1e-9)


@pytest.mark.parametrize("solver", PURSUITS)
def test_reported_objectives_with_kept_columns(solver):
    for seed in range(20):
        rng = np.random.default_rng(seed)
        n, d = int(rng.integers(10, 60)), int(rng.integers(4, 30))
        A = rng.standard_normal((n, d))
        y = A @ np.where(rng.random(d) < 0.3, rng.standard_normal(d), 0) + 0.3 * rng.standard_normal(n)
        k = int(rng.integers(1, d - 2))
        found = minimize(A, y, k, solver=solver, always_keep=[0, 1])
        # where k columns fit y exactly F is rounding, of a size that follows from y
        assert found.objective == pytest.approx(objective(A, y, found.x), rel=1e-9, abs=1e-12 * np.mean(y**2))
        assert np.count_nonzero(found.x[2:]) <= k


# --- starts ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("solver", ["omp", "romp"])
def test_growth_from_nothing_does_not_keep_an_old_model(solver):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 10))
    y = 3 * X[:, 0] - X[:, 4] + 0.1 * rng.standard_normal(200)
    new = -3 * X[:, 1] + X[:, 7] + 0.1 * rng.standard_normal(200)
    model = KSparseRegressor(k=2, solver=solver, warm_start=True).fit(X, y).fit(X, new)
    assert model.support_.tolist() == [1, 7]
    assert model.score(X, new) > 0.99
    far = minimize(X, y, 2, solver=solver, x0=1e10 * np.ones(10))
    assert far.objective == pytest.approx(minimize(X, y, 2, solver=solver).objective, rel=1e-9)


@pytest.mark.parametrize("solver", PURSUITS)
def test_one_row_with_an_intercept_is_fitted_from_anywhere(solver):
    rng = np.random.default_rng(0)
    A, x0 = rng.standard_normal((1, 20)), 3 * rng.standard_normal(20)
    found = minimize(A, [0.5], 1, solver=solver, intercept=True, x0=x0)
    assert found.objective <= 1e-20 or not found.converged


@pytest.mark.parametrize("far", [1.0, 1e6, 1e8, 1e10])
@pytest.mark.parametrize("solver", ["exchange", "grasp", "grahtp"])
def test_a_start_far_away_costs_nothing(solver, far):
    rng = np.random.default_rng(0)
    A = rng.standard_normal((30, 10))
    y = A[:, 0] + 0.1 * rng.standard_normal(30)
    cold = minimize(A, y, 5, loss="huber", solver=solver)
    found = minimize(A, y, 5, loss="huber", solver=solver, x0=far * np.ones(10))
    assert found.objective <= 2 * cold.objective  # perhaps another local optimum, but not a ruin
    grouped = joint(A, y, 2, loss="huber", groups=np.arange(10) // 2, start=far * np.ones(10))
    assert grouped.objective <= 2 * joint(A, y, 2, loss="huber", groups=np.arange(10) // 2).objective


def test_a_start_on_a_zero_column_is_dropped():
    found = minimize(np.zeros((5, 1)), np.arange(5.0), 1, solver="exchange", x0=[1.0])
    assert found.converged
    assert found.support.size == 0


# --- what may be called converged ------------------------------------------------------------------------------------
def test_the_one_place_that_judges():
    fine = Status("converged", "done")
    assert judged(fine, 1.0, 2.0, 0.0, True) is fine
    assert judged(fine, 2.1, 2.0, 0.2, True) is fine
    assert judged(fine, 2.1, 2.0, 0.0, True) == "stalled"
    assert judged(fine, float("nan"), 2.0, 0.0, True) == "stalled"
    assert judged(fine, 1.0, 2.0, 0.0, False) == "diverged"
    limit = judged(Status("stage limit", "all 3 stages done"), 2.1, 2.0, 0.0, True)
    assert limit == "stage limit"
    assert "above that of the intercept" in limit.explain()
    assert "standardize=True" in limit.remedy


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("solver", ["exchange", "pgd", "ht-svrg", "ht-saga", "grasp"])
def test_null_objectives(solver, loss):
    rng = np.random.default_rng(1)
    A = rng.standard_normal((60, 6))
    y = np.sign(A[:, 0] + 0.5) if loss in ("logistic", "squared_hinge") else np.floor(np.abs(A[:, 0]) * 3)
    y = y + 0.5 if losses.kind_of_targets(loss) == "positive" else y
    weight, offset = rng.uniform(0.5, 2.0, 60), 0.3 * rng.standard_normal(60)
    problem = {"loss": loss, "intercept": True, "l2": 0.1, "sample_weight": weight, "offset": offset}
    found = minimize(A, y, 2, solver=solver, always_keep=[3], random_state=0, **problem)
    # by gradient steps on the intercept and the kept column alone
    plain = Plain(A, y, 2, loss=loss, weight=weight, offset=offset, l2=0.1, kept=[3], intercept=True)
    x, only = np.zeros(7), plain.kept
    for _ in range(20_000):
        x -= 0.05 * only * (plain.A.T @ plain.slopes(x) / 60 + plain.ridge * x)
    assert found.null_objective == pytest.approx(plain.objective(x), rel=1e-6)
    assert found.objective <= found.null_objective
    assert minimize(A, y, 2, solver=ksparse.HTSVRG(stages=2, tol=0.0), random_state=0, **problem).null_objective is None


@pytest.fixture
def raw():
    """Columns of very different sizes: steps that suit the largest move nothing else."""
    rng = np.random.default_rng(0)
    A = rng.standard_normal((300, 8)) * 10.0 ** np.arange(8) + 10.0 ** np.arange(8)
    return A, 100.0 + 5 * A[:, 0] + 2 * A[:, 1] + rng.standard_normal(300)


def test_the_default_solver_works_on_raw_columns(raw):
    A, y = raw
    found = minimize(A, y, 2, intercept=True)
    assert found.converged
    assert found.support.tolist() == [0, 1]


@pytest.mark.parametrize("solver", ["ht-svrg", "ht-saga", "pgd", "stoiht"])
def test_no_better_than_the_intercept_is_never_silent(raw, solver):
    A, y = raw
    null = 0.5 * np.var(y)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        found = minimize(A, y, 2, intercept=True, solver=solver, random_state=0)
    warned = [w for w in seen if issubclass(w.category, ConvergenceWarning)]
    if not found.objective < null:
        assert not found.converged
        assert len(warned) == 1
        assert "standardi" in str(warned[0].message)
        assert warned[0].filename == __file__
    else:
        assert not warned
    again = minimize(A, y, 2, intercept=True, solver=solver, random_state=0, standardize=True)
    assert again.objective < 0.5 * null


# --- standardize -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("solver", ["auto", "ht-svrg", "pgd", "sp"])
@pytest.mark.parametrize(
    "layout", [np.asarray, sparse.csr_array, np.asfortranarray, lambda A: Blocks([A[:90], A[90:]])]
)
@pytest.mark.parametrize("intercept", [True, False])
def test_standardize_is_that_of_the_estimators(solver, layout, intercept):
    rng = np.random.default_rng(3)
    A = rng.standard_normal((150, 7)) * 10.0 ** rng.uniform(-2, 2, 7)
    y = A[:, 2] / A[:, 2].std() - 2 * A[:, 5] / A[:, 5].std() + 0.1 * rng.standard_normal(150) + 1.0
    weight = rng.uniform(0.5, 2.0, 150)
    found = minimize(
        layout(A), y, 2, solver=solver, standardize=True, intercept=intercept, l2=0.01, sample_weight=weight,
        random_state=0,
    )  # fmt: skip
    model = KSparseRegressor(k=2, solver=solver, l2=0.01, fit_intercept=intercept, random_state=0)
    model.fit(layout(A), y, weight)
    assert found.support.tolist() == model.support_.tolist() == [2, 5]
    np.testing.assert_allclose(found.x, model.coef_, rtol=1e-6)
    assert found.intercept == pytest.approx(model.intercept_, rel=1e-6, abs=1e-9)
    share = weight / weight.sum()
    centre = share @ A if intercept else 0.0
    size = np.sqrt(share @ (A - centre) ** 2)
    ridge = 0.005 * np.sum((found.x * size) ** 2)
    assert found.objective == pytest.approx(share @ (A @ found.x + found.intercept - y) ** 2 / 2 + ridge, rel=1e-9)


def test_starts_and_callbacks_are_in_the_units_of_A():
    rng = np.random.default_rng(3)
    A = rng.standard_normal((150, 7)) * 10.0 ** rng.uniform(-2, 2, 7) + 5.0
    y = A[:, 2] / A[:, 2].std() - 2 * A[:, 5] / A[:, 5].std()
    told = []
    settings = {"standardize": True, "intercept": True, "solver": "pgd"}
    found = minimize(A, y, 2, callback=told.append, **settings)
    np.testing.assert_allclose(told[-1].x, found.x, rtol=1e-6)
    assert told[-1].intercept == pytest.approx(found.intercept, rel=1e-6)
    again = minimize(A, y, 2, x0=found, **settings)
    assert again.n_stages <= 2
    assert again.history.objective[0] == pytest.approx(found.objective, rel=1e-6, abs=1e-9)
    with pytest.raises(ValueError, match="x0"):
        minimize(A, y, 2, x0=np.zeros(3), **settings)
    for name in ("standardize", "positive", "radius"):
        with pytest.raises(ValueError, match=name):
            minimize(A, y, 2, **{name: np.ones(2)})
    with pytest.raises(ValueError, match="x0 must be finite"):
        minimize(1e300 * A, y, 2, x0=1e10 * np.ones(7), standardize=True)


# --- numbers at the ends of their range ------------------------------------------------------------------------------
def test_a_column_too_small_for_a_coefficient_counts_as_constant():
    X = np.array([[1.0, 5e-324], [2, 1e-323], [3, 2e-323], [4, 5e-324], [5.0, 1e-323]])
    y = np.array([1.0, 2, 1.5, 4, 4.5])
    model = KSparseRegressor(k=2).fit(X, y)
    assert model.support_.tolist() == [0]
    assert np.isfinite(model.predict(X)).all()
    assert np.isfinite(KSparseClassifier(k=1).fit(X[:, 1:], y > 2).predict_proba(X[:, 1:])).all()


def test_float32_coefficients_that_it_cannot_hold_are_float64(tmp_path):
    X = np.random.default_rng(0).standard_normal((50, 3)).astype(np.float32)
    for size in (1e40, 1e-60):
        model = KSparseRegressor(k=1).fit(X, X[:, 0].astype(float) * size)
        assert model.support_.tolist() == [0]
        assert model.coef_[0] == pytest.approx(size, rel=1e-2)
        model.save(tmp_path / "model.json")
        np.testing.assert_array_equal(ksparse.load(tmp_path / "model.json").predict(X), model.predict(X))
    assert KSparseRegressor(k=1).fit(X, X[:, 0]).coef_.dtype == np.float32


def test_coefficients_beyond_all_floats_are_not_called_converged():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((50, 2)) * 1e-300
    with pytest.warns(ConvergenceWarning, match="range of floats"):
        model = KSparseRegressor(k=1).fit(X, X[:, 0] * 1e300 * 1e20)
    assert model.status_ == "diverged"
    found = minimize(X, X[:, 0] * 1e300 * 1e20, 1, standardize=True)
    assert found.status == "diverged"


# --- found by random calls -------------------------------------------------------------------------------------------
def test_second_steps_mend_what_a_far_start_has_rounded():
    rng = np.random.default_rng(2)
    A = rng.standard_normal((30, 4))
    y = 1e-53 * (A[:, 0] + 0.1 * rng.standard_normal(30))
    cold = joint(A, y, 2, intercept=True)
    found = joint(A, y, 2, intercept=True, start=1e10 * np.ones((4, 1)))
    assert found.objective == pytest.approx(cold.objective, rel=1e-6)
    x0 = 1e8 * np.ones(4)
    for solver in ("grahtp", "sp"):
        found = minimize(A, A[:, 0], 2, solver=solver, x0=x0)
        assert found.objective <= 1e-20


def test_a_huge_radius_is_no_radius():
    A = np.random.default_rng(0).standard_normal((30, 4))
    found = minimize(A, A[:, 0], 2, solver="ht-saga", radius=1e300, random_state=0)
    assert found.converged


@pytest.mark.parametrize("name", ["always_keep", "groups"])
def test_ragged_lists_are_named(name):
    A = np.random.default_rng(0).standard_normal((30, 4))
    ragged = [[1.0], [1.0, 2.0]]
    with pytest.raises(ValueError, match=name):
        joint(A, A[:, 0], 1, **{name: ragged})
    with pytest.raises(ValueError, match=name):
        KSparseRegressor(**{name: ragged}).fit(A, A[:, 0])
    with pytest.raises(ValueError, match="start"):
        joint(A, A[:, 0], 1, start=0.5)
    with pytest.raises(ValueError, match="X must be an array"):
        k_path(ragged, A[:, 0])


def test_a_weight_of_three_is_three_rows_for_huber():
    """The middle of the targets falls between two rows: the weights must not be rounded."""
    for seed in range(10):
        rng = np.random.default_rng(seed)
        X, count = rng.standard_normal((30, 3)), rng.integers(1, 4, 30)
        y = X[:, 0] + rng.standard_t(2, 30)
        weighted = KSparseRegressor(k=2, loss="huber").fit(X, y, count.astype(float))
        repeated = KSparseRegressor(k=2, loss="huber").fit(np.repeat(X, count, axis=0), np.repeat(y, count))
        assert weighted.unit_ == pytest.approx(repeated.unit_, rel=1e-12)


def test_large_offsets_are_met_by_the_intercept():
    rng = np.random.default_rng(0)
    A, offset = rng.standard_normal((40, 3)), 60.0 + 10.0 * rng.standard_normal(40)
    y = rng.poisson(2.0, 40).astype(float)
    best = np.log(y.sum() / np.exp(offset).sum())
    null = np.mean(np.exp(best + offset) - y * (best + offset))
    for solver in ("exchange", "grahtp"):
        found = minimize(A, y, 1, loss="poisson", intercept=True, offset=offset, solver=solver)
        assert found.null_objective == pytest.approx(null, rel=1e-6)
        assert found.objective <= null or not found.converged


@pytest.mark.parametrize("solver", ["exchange", "grahtp", "grasp"])
def test_targets_far_from_zero_are_met_by_the_intercept(solver):
    rng = np.random.default_rng(0)
    A = rng.standard_normal((40, 5))
    y = 1e6 + A[:, 0] + 0.1 * rng.standard_normal(40)
    found = minimize(A, y, 2, loss="huber", intercept=True, solver=solver)
    near = minimize(A, y - 1e6, 2, loss="huber", intercept=True, solver=solver)
    assert found.null_objective == pytest.approx(near.null_objective, rel=1e-6)
    assert found.objective == pytest.approx(near.objective, rel=1e-6)


def test_the_residual_of_an_operator_is_that_of_its_signal():
    """Nearly equal columns: conjugate gradients pass through large numbers, whose rounding stays in their residual."""
    rng = np.random.default_rng(0)
    A = rng.standard_normal((6, 20))
    A[:, 10:] = A[:, :10] * (1 + 1e-6 * rng.standard_normal((6, 10)))
    y = rng.standard_normal(6)
    found = ksparse.recover(aslinearoperator(A), y, 3, algorithm="sp")
    assert found.residual == pytest.approx(np.linalg.norm(y - A @ found.x), rel=1e-9)


@pytest.mark.parametrize("loss", ["squared", "poisson"])
def test_a_raw_column_far_from_zero_is_not_taken_for_constant(loss):
    spread = np.array([4.0, 3.0, 1.0, -7.0, 0.0, 0.5, 2.0, 4.0])
    A = np.column_stack([3.4e6 + spread, np.zeros(8)])
    y = np.array([0.0, 30.0, 0.0, 1.0, 0.0, 2.0, 6.0, 1.0])
    far = minimize(A, y, 1, loss=loss, intercept=True, always_keep=[0])
    near = minimize(np.column_stack([spread, np.zeros(8)]), y, 1, loss=loss, intercept=True, always_keep=[0])
    assert far.objective == pytest.approx(near.objective, rel=1e-6)
    assert far.x[0] == pytest.approx(near.x[0], rel=1e-4)


@pytest.mark.parametrize("targets", [1, 2])
def test_a_warm_start_from_a_model_beyond_all_floats_begins_anew(targets):
    A = np.random.default_rng(3).standard_normal((30, 4))
    y = np.tile(A[:, :1], (1, targets)).squeeze()
    model = KSparseRegressor(k=1, warm_start=True)
    with pytest.warns(ConvergenceWarning, match="beyond the range of floats"):
        model.fit(1e-200 * A, 1e150 * y)
    assert not np.isfinite(model.coef_).all()
    assert model.fit(A, y).score(A, y) > 0.99


def test_a_constant_kept_column_beside_the_intercept_is_left_to_it():
    rng = np.random.default_rng(8)
    A = rng.standard_normal((40, 4))
    A[:, 1] = -1.18
    y = A[:, 0] - 2.0 * A[:, 3] + 5.0
    for solver in ("omp", "exchange"):
        result = minimize(A, y, 1, solver=solver, intercept=True, always_keep=[0, 1], l2=1e-300)
        assert result.objective < 1e-20
