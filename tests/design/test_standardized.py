"""Columns in units of their own, read without a copy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import load_diabetes

from ksparse import HTSVRG, Exchange, KSparseClassifier, KSparseRegressor, joint, minimize
from ksparse.design import as_design, standardize
from ksparse.sources import Blocks


def problem(layout, loss, seed=0):
    """Columns of very different sizes and places, some of them constant."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((150, 12)) * 10.0 ** rng.integers(-3, 4, 12)
    if layout is np.asarray:
        X += rng.standard_normal(12) * 30 * X.std(axis=0)
    else:
        X *= rng.random(X.shape) < 0.5
    X[:, 3] = 0.0
    z = X[:, 0] / X[:, 0].std() - X[:, 1] / X[:, 1].std()
    z += 0.5 * rng.standard_normal(150) - z.mean()
    return layout(X), np.where(z > 0, 1.0, -1.0) if loss == "logistic" else z


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("loss", ["squared", "logistic"])
@pytest.mark.parametrize("intercept", [True, False])
def test_a_view_is_its_copy(layout, loss, intercept):
    X, y = problem(layout, loss)
    weight = np.random.default_rng(1).uniform(0.5, 2.0, 150)
    view = standardize(as_design(X), weight, intercept)
    settings = {"loss": loss, "intercept": intercept, "sample_weight": weight, "l2": 0.01, "always_keep": [5]}
    read, copied = (minimize(A, y, 3, solver=Exchange(), **settings) for A in (view, view.load()))
    np.testing.assert_allclose(read.x, copied.x, atol=1e-8)
    assert read.objective == pytest.approx(copied.objective, rel=1e-10)
    late = minimize(view, y, 3, solver=Exchange(), max_time=1e-9, x0=read, **settings)  # its objective is looked up
    assert late.status == "time limit"
    assert late.objective <= read.objective * (1 + 1e-9)
    other = minimize(view, y, 3, solver=HTSVRG(), random_state=0, **settings)  # a solver that needs the copy gets it
    same = minimize(view.load(), y, 3, solver=HTSVRG(), random_state=0, **settings)
    np.testing.assert_array_equal(other.x, same.x)


@pytest.mark.parametrize("share", [1.0, 0.1], ids=["full", "thin"])
@pytest.mark.parametrize("loss", ["squared", "logistic", "squared_hinge", "huber"])
def test_a_view_of_sparse_rows_is_that_of_dense_ones(loss, share):
    rng = np.random.default_rng(0)
    X = (2.0 + rng.standard_normal((150, 12))) * (rng.random((150, 12)) < share)
    z = X[:, 0] - X[:, 1] + 0.5 * rng.standard_normal(150)
    y = np.where(z > z.mean(), 1.0, -1.0) if loss in ("logistic", "squared_hinge") else z
    views = [standardize(as_design(rows), None, True, by_rows=False) for rows in (X, sparse.csr_array(X))]
    np.testing.assert_allclose(views[1].centre, views[0].centre)
    dense, thin = (minimize(view, y, 3, loss=loss, intercept=True, solver=Exchange(), l2=0.01) for view in views)
    np.testing.assert_allclose(thin.x, dense.x, atol=1e-7)
    assert thin.intercept == pytest.approx(dense.intercept, abs=1e-7)
    np.testing.assert_allclose(thin.history.objective, dense.history.objective, rtol=1e-7)  # the same way, too


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
def test_columns_can_be_centred_and_scaled_once_more(layout):
    X, _ = problem(layout, "squared")
    view, columns = standardize(as_design(X), None, True, False), np.array([0, 4, 3, 7])
    plain, scaled = np.empty((4, 150)), np.empty((4, 150))
    centre, factor = np.array([0.5, -1.0, 2.0, 0.0]), np.array([2.0, 0.1, 1.0, 3.0])
    view.read_columns(columns, plain)
    view.read_columns(columns, scaled, (centre, factor))
    expected = (plain - centre[:, np.newaxis]) * factor[:, np.newaxis]
    varied = columns != 3  # column 3 is constant: it stays zero
    assert np.allclose(scaled[varied], expected[varied], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
def test_columns_of_variance_one(layout):
    X, _ = problem(layout, "squared")
    weight = np.random.default_rng(1).uniform(0.0, 2.0, 150)
    scaling = standardize(as_design(X), weight, True)
    Z = scaling.load()
    Z = Z.toarray() if sparse.issparse(Z) else Z
    mean = np.average(Z, axis=0, weights=weight)
    spread = np.average((Z - mean) ** 2, axis=0, weights=weight)
    np.testing.assert_allclose(spread, np.where(np.arange(12) == 3, 0.0, 1.0), rtol=1e-9)
    assert layout is sparse.csr_array or np.abs(mean).max() < 1e-9
    v = np.arange(12.0)
    v[3] = 0.0  # constant: it has no coefficient
    w, b = scaling.to_original(v, 2.0)
    np.testing.assert_allclose(X @ w + b, Z @ v + 2.0, rtol=1e-6)
    back = scaling.to_scaled(w, b)
    np.testing.assert_allclose(back[0], v)
    assert back[1] == pytest.approx(2.0)


def test_far_from_zero_and_of_any_size():
    """Seconds since 1970, a column of 1e-200 and one of 1e200: the model is that of the columns in decent units."""
    rng = np.random.default_rng(0)
    Z = rng.standard_normal((200, 6))
    y = Z[:, 0] - Z[:, 1] + 0.5 * Z[:, 2] + 0.1 * rng.standard_normal(200)
    plain = KSparseRegressor(k=3).fit(Z, y)
    size, place = np.array([1e3, 1e-200, 1e200, 1.0, 1.0, 1.0]), np.array([1.7e9, 0.0, 0.0, 1e5, 0.0, 0.0])
    odd = KSparseRegressor(k=3).fit(Z * size + place, y)
    np.testing.assert_array_equal(odd.support_, plain.support_)
    np.testing.assert_allclose(odd.coef_ * size, plain.coef_, rtol=1e-6)
    np.testing.assert_allclose(odd.predict(Z * size + place), plain.predict(Z), atol=1e-6)


def test_what_is_missing_is_found_on_the_way():
    """No pass of its own looks for NaN: the sums tell, also in rows that have no weight."""
    X, y = load_diabetes(return_X_y=True)
    weight = np.ones(len(y))
    weight[7] = 0.0
    for bad, word in ((np.nan, "NaN"), (np.inf, "infinity")):
        broken = X.copy()
        broken[7, 2] = bad
        for settings in ({}, {"standardize": False}):
            with pytest.raises(ValueError, match=rf"row 7, column 2 is .*{word}"):
                KSparseRegressor(k=3, **settings).fit(broken, y, sample_weight=weight)
            with pytest.raises(ValueError, match=rf"row 7, column 2 is .*{word}"):
                KSparseClassifier(k=3, **settings).fit(sparse.csr_array(broken), y > 150)


def test_blocks_with_extreme_and_far_columns_are_standardised_as_arrays_are():
    X = np.random.default_rng(4).standard_normal((30, 3))
    X[:, 0] += 35541.6
    X[:, 1] *= 1e149
    dense, blocks = (standardize(as_design(rows), None, True) for rows in (X, Blocks(X)))
    np.testing.assert_allclose(blocks.centre, dense.centre, rtol=1e-9)
    np.testing.assert_allclose(blocks.load(), dense.load(), atol=1e-6)


def test_a_copy_is_in_its_own_precision():
    X, _ = problem(np.asarray, "squared")
    assert as_design(X.astype(np.float32)).scaled(np.zeros(12), np.ones(12)).dtype == np.float32


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("kind", ["softmax", "targets", "groups"])
def test_joint_supports_read_views_too(layout, kind):
    X, z = problem(layout, "squared")
    Y = {"softmax": np.digitize(z, [-0.7, 0.7]), "targets": np.column_stack([z, z**2]), "groups": z}[kind]
    settings = {
        "loss": "softmax" if kind == "softmax" else "squared", "intercept": True, "l2": 0.01,
        "groups": np.arange(12) // 2 if kind == "groups" else None,
    }  # fmt: skip
    view = standardize(as_design(X), None, True)
    read, copied = (joint(A, Y, 3, **settings) for A in (view, view.load()))
    np.testing.assert_allclose(read.x, copied.x, atol=1e-7)
    assert read.objective == pytest.approx(copied.objective, rel=1e-10)


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
def test_tiny_columns_whose_mean_is_zero_are_not_taken_for_zeros(layout):
    """Their squares underflow, and so does nothing else."""
    X = np.array([[2.0, 1.0, 0.0], [-2.0, 3.0, 0.0], [1.0, 0.0, 0.0], [-1.0, 2.0, 0.0]])
    for scale in (1.0, 1e-200, 1e-300):
        sizes = standardize(as_design(layout(X * scale)), None, True).sizes
        np.testing.assert_allclose(sizes / scale, X.std(axis=0), rtol=1e-12)


@pytest.mark.parametrize("blocks", [False, True])
def test_extremes_of_sparse_columns_are_those_of_dense_ones(blocks):
    rng = np.random.default_rng(0)
    A = rng.standard_normal((40, 12)) * (rng.random((40, 12)) < 0.3)
    A[:, 3] = 1.0 + rng.random(40)
    columns, centre = np.array([0, 3, 5, 11]), np.array([0.0, 1.5, -2.0, 0.25])
    rows = sparse.csr_array(A)
    design = as_design(Blocks([rows[:25], rows[25:]]) if blocks else rows)
    away, stored = design.extremes(columns, centre)
    np.testing.assert_allclose(away, np.abs(A[:, columns] - centre).max(axis=0), rtol=1e-15)
    np.testing.assert_array_equal(stored, (A[:, columns] != 0.0).sum(axis=0))


def test_millions_of_empty_columns_take_no_dense_memory():
    """As dense numbers these rows would take 24 GB."""
    rng = np.random.default_rng(0)
    shape, places = (1000, 3_000_000), rng.integers(0, 1000, (2, 5000))
    rows = sparse.csr_array((rng.standard_normal(5000), (places[0], 7 * places[1])), shape=shape)
    scaled = standardize(as_design(rows), None, True, False)
    assert 500 < np.count_nonzero(scaled.sizes) <= 1000
