"""minimize: what it reports is F(x), "converged" is said of good results only, and columns keep their units."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from oracle import Plain
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

import ksparse
from ksparse import KSparseRegressor, losses, minimize
from ksparse.result import Status, judged
from ksparse.sources import Blocks

LOSSES = list(losses.LOSSES)


# --- what may be called converged ------------------------------------------------------------------------------------
def test_what_may_be_called_converged():
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
def test_the_null_objective_is_that_of_the_intercept_and_the_kept_columns(solver, loss):
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


# --- data far from zero ----------------------------------------------------------------------------------------------
def test_a_huge_radius_is_no_radius():
    A = np.random.default_rng(0).standard_normal((30, 4))
    found = minimize(A, A[:, 0], 2, solver="ht-saga", radius=1e300, random_state=0)
    assert found.converged


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


@pytest.mark.parametrize("loss", ["squared", "poisson"])
def test_a_raw_column_far_from_zero_is_not_taken_for_constant(loss):
    spread = np.array([4.0, 3.0, 1.0, -7.0, 0.0, 0.5, 2.0, 4.0])
    A = np.column_stack([3.4e6 + spread, np.zeros(8)])
    y = np.array([0.0, 30.0, 0.0, 1.0, 0.0, 2.0, 6.0, 1.0])
    far = minimize(A, y, 1, loss=loss, intercept=True, always_keep=[0])
    near = minimize(np.column_stack([spread, np.zeros(8)]), y, 1, loss=loss, intercept=True, always_keep=[0])
    assert far.objective == pytest.approx(near.objective, rel=1e-6)
    assert far.x[0] == pytest.approx(near.x[0], rel=1e-4)


def test_a_constant_kept_column_beside_the_intercept_is_left_to_it():
    rng = np.random.default_rng(8)
    A = rng.standard_normal((40, 4))
    A[:, 1] = -1.18
    y = A[:, 0] - 2.0 * A[:, 3] + 5.0
    for solver in ("omp", "exchange"):
        result = minimize(A, y, 1, solver=solver, intercept=True, always_keep=[0, 1], l2=1e-300)
        assert result.objective < 1e-20
