"""Numbers at the ends of the range of floats: a result, or a refusal that names its argument, and no RuntimeWarning.

Warnings are errors in all tests.  `make fuzz` looks for more of them.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from scipy.sparse import csc_array, csr_matrix
from scipy.sparse.linalg import aslinearoperator
from sklearn.exceptions import ConvergenceWarning

import ksparse
from ksparse import KSparseClassifier, KSparseRegressor, KSparseRegressorCV, joint, k_path, minimize, recover, theory
from ksparse.sensing.auto import Sizes
from ksparse.sources import Blocks, open_files


def rows(seed=0, n=30, d=6):
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((n, d))
    return A, A[:, 0] - A[:, 2] + 0.1 * rng.standard_normal(n)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("solver", ["niht", "romp", "htp", "grahtp", "exchange", "pgd"])
@pytest.mark.parametrize("scale", [1e80, 1e110])
def test_huge_columns(solver, scale):
    A, y = rows()
    result = minimize(scale * A, scale * y, 2, solver=solver, intercept=True, l2=1e-8, x0=np.ones(6))
    assert np.isfinite(result.x).all()


@pytest.mark.parametrize("loss", ["poisson", "huber", "squared_hinge", "logistic"])
def test_columns_that_overflow_inside_a_fit(loss):
    A, y = rows()
    y = np.sign(y) if loss in ("squared_hinge", "logistic") else np.round(np.exp(y))
    A[:, 3] *= 1e120
    for B in (A, csr_matrix(A)):
        result = joint(B, y, 2, loss=loss, intercept=True, start=np.full((6, 1), 1e10), groups=[0, 0, 1, 1, 2, 2])
        assert np.isfinite(result.x).all()


def test_tiny_targets_of_a_joint_fit():
    """The predicted decrease underflows, and was divided by."""
    A, y = rows()
    assert np.isfinite(joint(A, 1e-162 * y, 2, intercept=True, always_keep=[5]).objective)


@pytest.mark.parametrize("scale", [5e-324, 1e-310, 1e300, 1.7e308])
@pytest.mark.parametrize("complex_numbers", [False, True])
def test_measurements_at_the_ends_of_the_range(scale, complex_numbers):
    A, _ = rows(1, 12, 20)
    y = scale * (A[:, 3] / np.abs(A[:, 3]).max())
    found = recover(A, y * (1 + 0j) if complex_numbers else y, 2, noise=0.0)
    reach = float(np.abs(A[:, 3]).max())
    np.testing.assert_allclose(found.x[3], scale / reach, rtol=1e-6, atol=1e-323)


@pytest.mark.parametrize("algorithm", ["bp", "lasso", "dantzig"])
@pytest.mark.parametrize("scale", [1e-310, 1e-200])
def test_convex_programs_and_a_tiny_matrix(algorithm, scale):
    A, _ = rows(1, 12, 20)
    for B in (A, csc_array(A)):
        if scale < 1e-300:
            with pytest.raises(ValueError, match="range of floats"):
                recover(B * scale, A[:, 3], 2, algorithm=algorithm)
        else:
            assert 3 in recover(B * scale, A[:, 3], 2, algorithm=algorithm).support


def test_a_truncated_solution_that_fits_worse_than_zeros_has_not_converged():
    A = np.array([[1.0, 1.0, 0.0], [1.0, 1.0 + 1e-3, 0.0], [0.0, 0.0, 1.0]])
    y = A @ np.array([1000.0, -999.0, 0.0])
    found = recover(A, y, 1, algorithm="bp")
    assert found.residual > np.linalg.norm(y)
    assert found.status == "stalled"


@pytest.mark.parametrize("bad", [np.inf, 1e300])
def test_operators_that_overflow_are_refused(bad):
    A, y = rows()
    A[2, 3] = bad
    for B in (A, csr_matrix(A), aslinearoperator(A)):
        with pytest.raises(ValueError, match="A"):
            recover(B, y, 2, check_adjoint=True)


@pytest.mark.parametrize("standardize", [False, True])
def test_infinities_of_both_signs(standardize):
    A, y = rows()
    A[0, 0], A[1, 1] = np.inf, -np.inf
    for model in (KSparseRegressor(standardize=standardize), KSparseRegressorCV([1], cv=2)):
        with pytest.raises(ValueError, match="X: the value in row 0, column 0 is inf"):
            model.fit(A.astype(np.float32), y)


@pytest.mark.parametrize("scale", [1e-310, 1e300])
def test_huber_scales_with_its_targets(scale):
    A, y = rows()
    y, weight = np.round(y), np.full(30, 1e300)
    unit = KSparseRegressor(2, loss="huber").fit(A, y).unit_
    model = KSparseRegressor(2, loss="huber").fit(A, scale * y, sample_weight=weight)
    np.testing.assert_allclose(model.unit_, scale * unit, rtol=1e-6)


def test_huber_coefficients_beyond_the_largest_float():
    A, y = rows()
    with pytest.warns(ConvergenceWarning, match="beyond the range of floats"):
        model = KSparseRegressor(2, loss="huber", l2=0.0).fit(1e-10 * A, 1e300 * y)
    assert model.status_ == "diverged"


def test_an_intercept_that_single_precision_cannot_hold():
    A, y = rows()
    model = KSparseRegressor(2).fit(A.astype(np.float32), y + 1e40)
    assert np.isfinite(model.predict(A.astype(np.float32))).all()


def test_counts_beyond_the_largest_float():
    A, y = rows()
    model = KSparseRegressor(2, loss="poisson").fit(A, np.round(np.exp(y)))
    assert np.isinf(model.predict(1e10 * A)).any()


@pytest.mark.parametrize("l2", [0.0, 1e-300, 1e-3])
@pytest.mark.parametrize("n", [1, 20])
def test_kept_constant_columns_beside_an_intercept(n, l2):
    """Newton's steps on them were never damped, so that a fit might not even begin."""
    A, y = np.column_stack([np.full(n, 1.5), np.arange(n), np.arange(n) % 3]), np.full(n, 30.0)
    alone = np.mean(np.exp(np.log(30.0)) - y * np.log(30.0))
    for fit in (joint, minimize):
        assert fit(A, y, 1, loss="poisson", intercept=True, always_keep=[0], l2=l2).objective <= alone + 1e-9


def test_columns_too_small_for_single_precision():
    A, y = rows()
    A = A.astype(np.float32)
    A[:, 4] *= np.float32(1e-40)
    model = KSparseRegressor(2, solver="grasp").fit(A, y)
    assert set(model.support_) == {0, 2}


def test_flags_and_targets_that_are_none():
    A, y = rows()
    for model in (KSparseRegressor, KSparseClassifier):
        with pytest.raises(ValueError, match="standardize must be True or False"):
            model(standardize=np.ones(2)).fit(A, y > 0)


def test_an_infinite_number_of_a_column(tmp_path):
    np.save(tmp_path / "a.npy", rows()[0])
    with pytest.raises(ValueError, match="target must be a column number"):
        open_files(tmp_path / "a.npy", target=np.inf)


def test_lists_of_uneven_parts_are_named():
    A, y = rows()
    uneven = [[1.0], [1.0, 2.0]]
    with pytest.raises(ValueError, match="Y must be an array"):
        joint(A, uneven, 1)
    with pytest.raises(ValueError, match="offset must be an array"):
        joint(A, y, 1, offset=uneven)
    with pytest.raises(ValueError, match="start must be an array"):
        joint(A, y, 1, start=uneven)


def test_refusals_speak_of_the_argument_that_was_given():
    A, y = rows()
    bad = A.copy()
    bad[3, 1] = np.inf
    for X, settings in ((1e200 * A, {"standardize": False}), (1e-200 * A, {"standardize": False}), (Blocks([bad]), {})):
        for groups in (None, [0, 0, 1, 1, 2, 2]):
            with pytest.raises(ValueError, match=r"^X must"):
                KSparseRegressor(2, groups=groups, **settings).fit(X, y)


def test_targets_that_are_text():
    A, _ = rows(n=2)
    for X in (A, csc_array(A)):
        with pytest.raises(ValueError, match="y"):
            KSparseRegressor(loss="poisson").fit(X, ["x", "y"])


def test_weights_that_are_no_real_numbers():
    A, y = rows()
    for fit in (KSparseRegressor().fit, KSparseRegressorCV([1], cv=2).fit, k_path):
        for bad in (1j, np.full(30, 1j), ["a"] * 30):
            with pytest.raises(ValueError, match="sample_weight must hold real numbers"):
                fit(A, y, sample_weight=bad)


HUGE = 1.7e308


@pytest.mark.parametrize(
    ("name", "arguments", "wanted"),
    [
        ("condition_number", (HUGE, 5e-324), np.inf),
        ("largest_nu", (1.0, HUGE, HUGE, True), 4 / 3),
        ("tail", (HUGE, 0.2, 1e30, HUGE, 58.0, 1.0, HUGE), np.inf),
        ("Q", (1.0, 1.0, 4, 1.0, 1.0, 1.0, 1.0), np.inf),
        ("minimum_m", (4.0, HUGE, 15.0, 1e-300, 1.0, True), np.inf),
        ("recipe_tail", (0.0, 1.0, 0.5, HUGE), 0.0),
        ("objective_bound", (3, 0.0, 0.0, 1.0, 1.0, HUGE), 0.0),
        ("distance_bound", (0, 1.0, 0.0, 2e-300, 1e-300, 1.0), 2.0),
        ("pgd_rate", (4.0, HUGE, HUGE), 0.0),
        ("pgd_rate", (1.0, 1.5e-323, 5e-324), 0.5),
        ("saga_rate", (3, 1.0, HUGE, HUGE), 0.875),
        ("gradient_scale", (HUGE, 2**50, 3, 1), np.inf),
        ("nu_from_rho", (1e300,), 1e300),
        ("rho_from_nu", (1e300,), 1e300),
        ("measurements", ("iht", 2, 2, 100, "tight", 5e-324), np.inf),
    ],
)
def test_formulas_at_the_ends_of_the_range(name, arguments, wanted):
    np.testing.assert_allclose(getattr(theory, name)(*arguments), wanted, rtol=1e-12)


def test_the_cost_of_extreme_accuracy():
    assert np.isfinite(theory.cost(10, 10, 2.0, 2.0, epsilon=5e-324).pgd)


def test_standard_errors_of_huge_scores():
    A = np.random.default_rng(0).standard_normal((20, 3))
    model = KSparseRegressorCV([1, 2], cv=2).fit(A, 1e100 * A[:, 0] + 1e99 * A[:, 1])
    assert np.isfinite(model.standard_error_).all()
    assert model.standard_error_.max() > 0.0


def test_a_large_offset_of_an_exponential():
    """Newton's steps lower z by about one each: the empty model needs many, and a Hessian of 1e33 is singular."""
    A = np.array([[1.4, -0.7, 0.07, 1.5, 0.9, 0.6]])
    keep, groups = [2, 3, 4], [1, 1, 2, 0, 1, 1]
    result = joint(A, [0.86], 1, loss="gamma", offset=[-75.5], always_keep=keep, groups=groups)
    assert result.converged
    assert result.objective == pytest.approx(1.0 + np.log(0.86), abs=1e-6)  # the minimum over z of y exp(-z) + z


def test_a_separable_problem_is_not_called_converged_above_its_empty_model():
    rng = np.random.default_rng(0)
    A = rng.standard_normal((8, 6))
    y = np.sign(A[:, 0])
    result = minimize(A, y, 1, loss="logistic", solver="pgd", always_keep=[0, 1, 2])
    assert not result.converged or result.objective <= result.null_objective + 1e-5


def test_targets_near_the_largest_float_of_a_gamma_loss():
    A = np.array([[2.0, -1.0, 2.0, 1.3e10]])
    assert np.isfinite(minimize(A, [1e308], 4, loss="gamma", solver="grahtp", l2=10.0, intercept=True).objective)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_kept_columns_of_1e40_beside_ordinary_ones():
    A, y = rows()
    A[:, 3] *= 1e40
    model = KSparseClassifier(2, loss="squared_hinge", solver="grasp", always_keep=[3], standardize=False, l2=1e-300)
    assert np.isfinite(model.fit(csr_matrix(A), y > 0).coef_).all()


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_worth_beside_a_count_near_the_largest_float():
    A, y = rows()
    y = np.round(np.exp(y))
    y[1] = 1e308
    model = KSparseRegressor(4, loss="poisson", solver="ht-svrg", always_keep=[1], random_state=0).fit(A, y)
    assert np.isfinite(model.feature_worth_).all()


@pytest.mark.parametrize("solver", ["exchange", "grasp", "htp"])
def test_coefficients_whose_squares_overflow(solver):
    """Without a ridge their norm plays no part."""
    A, y = rows()
    A[:, 0] *= 1e-80
    result = minimize(A, 1e106 * y, 2, solver=solver, always_keep=[0, 3])
    assert result.objective <= 0.5 * result.null_objective


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


@pytest.mark.parametrize("targets", [1, 2])
def test_a_warm_start_from_a_model_beyond_all_floats_begins_anew(targets):
    A = np.random.default_rng(3).standard_normal((30, 4))
    y = np.tile(A[:, :1], (1, targets)).squeeze()
    model = KSparseRegressor(k=1, warm_start=True)
    with pytest.warns(ConvergenceWarning, match="beyond the range of floats"):
        model.fit(1e-200 * A, 1e150 * y)
    assert not np.isfinite(model.coef_).all()
    assert model.fit(A, y).score(A, y) > 0.99


def test_many_signals_beside_a_subnormal_column():
    rng = np.random.default_rng(0)
    A = np.column_stack([1e-320 * rng.standard_normal(7), rng.standard_normal(7)])
    found = recover(A, np.outer(A[:, 1], rng.standard_normal(9)), 2, algorithm="romp", random_state=0)
    assert np.isfinite(found.x).all()


def test_columns_whose_curvature_is_next_to_nothing():
    A, y = rows()
    A[:, 0] *= 1e-160
    for solver in ("grahtp", "htp", "niht", "iht"):
        assert np.isfinite(minimize(A[:, :1], y, 1, solver=solver, always_keep=None, standardize=True).objective)
        assert np.isfinite(minimize(A[:, :2], y, 1, solver=solver, always_keep=[1]).objective)


def test_noise_whose_variance_underflows():
    """In the units of measurements of 1e150 the variance is zero: the smallest residual decides."""
    sizes = Sizes(SimpleNamespace(n=10, d=20, y=np.ones((1, 1, 10)), dtype=np.float64), 0.0)
    assert sizes._size(np.array([3.0, 2.0, 1e-290, 1e-290])) == 2


@pytest.mark.parametrize("solver", ["grasp", "exchange"])
def test_a_kept_column_of_1e_300_beside_a_ridge_of_1e_300(solver):
    """Its squares underflow, so that it counts as zeros; the Hessian must not be singular for it."""
    A, y = rows()
    y, without = (
        np.exp(0.3 * y),
        minimize(A[:, 2:], np.exp(0.3 * y), 1, loss="gamma", always_keep=[0, 1], intercept=True),
    )
    A[:, 1] *= 1e-300
    found = minimize(A[:, 1:], y, 1, loss="gamma", always_keep=[0, 1, 2], intercept=True, l2=1e-300, solver=solver)
    assert found.null_objective == pytest.approx(without.null_objective, rel=1e-6)
    assert found.objective <= found.null_objective


def test_offsets_of_both_signs_of_a_gamma_loss():
    A, y = rows()
    offset = np.linspace(-98.0, 80.0, 30)
    result = minimize(A, np.exp(y), 2, loss="gamma", offset=offset, intercept=True)
    assert result.null_objective < 200.0  # at an intercept of 98 no exponential is large
    assert result.objective <= result.null_objective


def test_a_curvature_that_overflows_in_a_joint_fit():
    A = np.array([[5.0, 1.0, 1.0, 2.0, -1.0, -2.0]])
    result = joint(A, [1e308], 2, loss="gamma", l2=1e8, groups=[0, 1, 1, 2, 2, 3], start=np.full((6, 1), -1e10))
    assert np.isfinite(result.x).all()


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_steps_that_underflow():
    A, y = rows()
    y = np.round(np.exp(y))
    y[0] = 1e308
    assert np.isfinite(minimize(A, y, 4, loss="poisson", solver="pgd", intercept=True, l2=1e-8).x).all()


def test_rows_of_little_curvature_beside_one_of_1e30():
    """A column that moves the light rows alone keeps the curvature that they have."""
    A = np.array(
        [[1.0, 0.0], [-1.0, 0.0], [-3.0, 2.0], [-4.0, 0.0], [-3.0, -1.0], [-1.0, -1.0], [-1.0, 3.0], [-5.0, 0.0]]
    )
    offset = np.array([10.0, -60.0, 18.0, -10.0, 7.0, -18.0, 6.0, -26.0])
    settings = {"loss": "gamma", "l2": 1e8, "offset": offset, "always_keep": [0, 1]}
    result = minimize(np.column_stack([A, np.zeros(8)]), np.full(8, 5e5), 1, **settings)
    assert result.null_objective < 1e20


def test_criteria_of_weights_that_sum_to_nearly_the_largest_float():
    A, y = rows()
    path = k_path(A, y, [1, 2], sample_weight=np.full(30, 5e306))
    assert np.isfinite(path.objective).all()


def test_a_path_over_a_column_whose_square_is_subnormal():
    """One over the square overflows: the path falls back to single fits, and finds the other columns as without it."""
    rng = np.random.default_rng(0)
    A = rng.standard_normal((13, 12))
    y = A[:, 0] - A[:, 2] + 0.1 * rng.standard_normal(13)
    A[:, 7] *= 1e-160
    rest, estimator = np.delete(A, 7, axis=1), KSparseRegressor(l2=0.0, standardize=False)
    with_it, without = k_path(A, y, [1, 2, 3], estimator=estimator), k_path(rest, y, [1, 2, 3], estimator=estimator)
    for model, other in zip(with_it.models, without.models, strict=True):
        assert np.isfinite(model.coef_).all()
        assert model.score(A, y) >= other.score(rest, y) - 1e-9
