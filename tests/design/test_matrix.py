"""The matrix in memory: what is in shape is not copied, what is not is converted once, and all layouts agree."""

from __future__ import annotations

import itertools

import dask.array as da
import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from ksparse import HTSAGA, HTSVRG, PGD, KSparseClassifier, KSparseRegressor, StoIHT, _jit, minimize
from ksparse.design.kernels import CSR
from ksparse.design.matrix import as_rows
from ksparse.problem import Problem
from ksparse.sources import Blocks


@pytest.fixture(scope="module")
def A():
    rng = np.random.default_rng(0)
    return rng.standard_normal((60, 25)) * (rng.random((60, 25)) < 0.5)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_what_is_in_shape_is_not_copied(A, dtype):
    dense = A.astype(dtype)
    dense.flags.writeable = False
    assert np.shares_memory(as_rows(dense), dense)
    for index in (np.int32, np.int64):
        csr = sparse.csr_array(A.astype(dtype))
        csr.indices, csr.indptr = csr.indices.astype(index), csr.indptr.astype(index)
        rows = as_rows(csr)
        for part, theirs in ((rows.data, csr.data), (rows.indices, csr.indices), (rows.indptr, csr.indptr)):
            assert np.shares_memory(part, theirs)


def test_every_container_gives_the_same_result(A):
    y = A[:, 1] - A[:, 4]
    want = minimize(A, y, 3, random_state=0)
    doubled = sparse.coo_array(
        (np.concatenate([A[A != 0] / 2] * 2), [np.concatenate([i, i]) for i in np.nonzero(A)]), shape=A.shape
    )
    unsorted = sparse.csr_array(A)
    for i in range(60):
        part = slice(unsorted.indptr[i], unsorted.indptr[i + 1])
        unsorted.indices[part] = unsorted.indices[part][::-1]
        unsorted.data[part] = unsorted.data[part][::-1]
    unsorted.has_sorted_indices = False
    before = unsorted.indices.copy()
    others = {
        "fortran": np.asfortranarray(A),
        "list": A.tolist(),
        "strided": np.repeat(A, 2, axis=1)[:, ::2],
        "dataframe": pd.DataFrame(A),
        "sparse dataframe": pd.DataFrame.sparse.from_spmatrix(sparse.csr_matrix(A)),
        "csr": sparse.csr_matrix(A),
        "csr_array": sparse.csr_array(A),
        "csc": sparse.csc_array(A),
        "coo with duplicates": doubled,
        "lil": sparse.lil_array(A),
        "unsorted csr": unsorted,
    }
    for name, other in others.items():
        got = minimize(other, y, 3, random_state=0)
        np.testing.assert_allclose(got.x, want.x, rtol=0, atol=1e-10, err_msg=name)
    np.testing.assert_array_equal(unsorted.indices, before)  # the caller's matrix is left alone
    ints = np.round(A).astype(np.int64)
    a, b = (minimize(X, y, 3, random_state=0).x for X in (ints, ints.astype(float)))
    np.testing.assert_array_equal(a, b)


def test_explicit_zeros_and_empty_rows():
    csr = sparse.csr_array((np.array([1.0, 0.0, 2.0]), np.array([0, 1, 2]), np.array([0, 2, 2, 3])), shape=(3, 4))
    y = np.array([1.0, 0.0, 4.0])
    np.testing.assert_allclose(minimize(csr, y, 2, random_state=0).x, minimize(csr.toarray(), y, 2, random_state=0).x)


def in_two_parts(X):
    """Every entry stored twice, at half its value, and the columns of a row in descending order."""
    csr = sparse.csr_matrix(X / 2)
    back = np.concatenate([np.arange(high, low, -1) - 1 for low, high in itertools.pairwise(csr.indptr)])
    return sparse.csr_matrix(
        (np.repeat(csr.data[back], 2), np.repeat(csr.indices[back], 2), 2 * csr.indptr), shape=X.shape
    )


ENTRANCES = {
    "csr_matrix": lambda X: X,
    "csr_array": sparse.csr_array,
    "csc": sparse.csc_array,  # SciPy keeps the parts apart
    "blocks of one matrix": Blocks,
    "blocks of pieces": lambda X: Blocks([X[:20], X[20:]]),
    "dask": lambda X: da.from_array(X.toarray(), chunks=(30, 5)).map_blocks(in_two_parts),
}


@pytest.mark.parametrize("entrance", ENTRANCES)
def test_entries_in_two_parts_are_one_before_anything_is_measured(entrance):
    """A column far from zero: whoever counts or centres the parts takes it for constant."""
    rng = np.random.default_rng(0)
    X = np.round(rng.standard_normal((60, 5)), 6)
    X[:, 3] += 1e6
    y = X[:, 3] - 1e6 + 0.5 * X[:, 1] + 0.1 * rng.standard_normal(60)
    twice = in_two_parts(X)
    before = [part.copy() for part in (twice.data, twice.indices, twice.indptr)]
    given = ENTRANCES[entrance](twice)
    models = [
        lambda A: KSparseRegressor(k=2).fit(A, y),
        lambda A: KSparseRegressor(k=2, groups=[0, 1, 2, 3, 4]).fit(A, y),
        lambda A: KSparseRegressor(k=2, solver="ht-svrg", random_state=0).fit(A, y),
        lambda A: KSparseClassifier(k=2).fit(A, y > 0),
    ]
    for fit in models:
        plain, got = fit(sparse.csr_matrix(X)), fit(given)
        assert 3 in got.support_
        np.testing.assert_allclose(got.scale_, plain.scale_, rtol=1e-6)
        assert got.objective_ == pytest.approx(plain.objective_, rel=1e-6)
    for part, was in zip((twice.data, twice.indices, twice.indptr), before, strict=True):
        np.testing.assert_array_equal(part, was)  # the caller's matrix is left alone


def test_a_broken_csr_is_refused():
    csr = sparse.csr_array(np.eye(3))
    csr.indices = np.array([0, 1, 7], dtype=csr.indices.dtype)
    with pytest.raises(ValueError, match=r"A is not a valid sparse matrix: .*ind"):
        as_rows(csr)
    with pytest.raises(ValueError, match=r"X is not a valid sparse matrix: .*ind"):
        KSparseRegressor().fit(csr, np.arange(3.0))


@pytest.mark.parametrize("layout", ["dense", "csr"])
def test_the_same_bits_for_any_number_of_threads(layout, monkeypatch):
    rng = np.random.default_rng(0)
    if layout == "dense":
        X = rng.standard_normal((5000, 300))
    else:
        X = sparse.csr_array(rng.standard_normal((30000, 400)) * (rng.random((30000, 400)) < 0.1))
    n, d = X.shape
    x = rng.standard_normal(d) * (np.arange(d) < 20)
    y = X @ x + rng.standard_normal(n)
    solvers = (HTSVRG(stages=2, m=2000), HTSAGA(epochs=2), PGD(iterations=5), PGD(step="spectral", iterations=3),
               StoIHT(epochs=1), HTSVRG(step="theory", stages=1, m=100))  # fmt: skip
    results = []
    for threads in (1, 2, 5):
        monkeypatch.setattr(_jit.numba.config, "NUMBA_NUM_THREADS", threads)
        problem = Problem.create(X, y)
        assert len(problem.design.parts) > 2
        stage = problem.stage(problem.slots(20, x), None)
        runs = [minimize(X, y, 5, solver=solver, random_state=3) for solver in solvers]
        results.append([stage.value, stage.mu.tobytes(), *((r.x.tobytes(), r.objective) for r in runs)])
    assert results[0] == results[1] == results[2]
    np.testing.assert_allclose(stage.mu, X.T @ (X @ x - y) / n, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("layout", ["dense", "csr"])
def test_norms_of_rows_and_smoothness(A, layout):
    X = A if layout == "dense" else sparse.csr_array(A)
    kept = [3, 20]
    problem = Problem.create(X, np.ones(60), always_keep=kept)
    rest = np.delete(A, kept, axis=1)
    np.testing.assert_allclose(problem.row_max, np.abs(rest).max(axis=1))
    np.testing.assert_allclose(problem.row_square, (A**2).sum(axis=1))
    np.testing.assert_allclose(problem.kept_square, (A[:, kept] ** 2).sum(axis=1))
    for r in (1, 4, 23):
        top = np.sort(rest**2, axis=1)[:, ::-1][:, :r].sum(axis=1)
        np.testing.assert_allclose(problem.restricted_smoothness(r), (top + problem.kept_square).max())
        assert problem.smoothness(r) >= problem.restricted_smoothness(r) * (1 - 1e-12)


def test_sparse_rows_become_csr_and_dense_ones_an_array():
    assert isinstance(as_rows(sparse.eye_array(3)), CSR)
    assert isinstance(as_rows(np.eye(3)), np.ndarray)
