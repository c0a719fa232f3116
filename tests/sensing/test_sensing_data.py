"""Ensembles, operators and signals of compressed sensing: against dense transforms, moments and their definitions."""

from __future__ import annotations

import builtins
import importlib
import pickle
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array, issparse
from scipy.sparse.linalg import LinearOperator

import ksparse
from ksparse.sensing import ensembles, operators, signals
from ksparse.sensing.ensembles import ENSEMBLES
from ksparse.sensing.operators import adjoint_error, partial_dct, partial_fourier, partial_identity, wavelet
from ksparse.sensing.signals import SIGNALS

pytest.importorskip("pywt", reason="wavelets need the sensing extra")

PARTIAL = {"dft": partial_fourier, "dct": partial_dct, "identity": partial_identity}
SHAPES = [1, 7, (16,), (4, 6), (3, 2, 4)]


def dense(A):
    return A.toarray() if issparse(A) else A @ np.eye(A.shape[1]) if isinstance(A, LinearOperator) else A


def transform_matrix(name, shape):
    """From the definition, one direction after the other."""
    whole = np.ones((1, 1))
    for side in np.atleast_1d(shape):
        i, j = np.indices((side, side))
        if name == "dft":
            one = np.exp(-2j * np.pi * i * j / side) / np.sqrt(side)
        elif name == "dct":
            one = np.cos(np.pi * i * (2 * j + 1) / (2 * side)) * np.sqrt(np.where(i == 0, 1, 2) / side)
        else:
            one = np.eye(side)
        whole = np.kron(whole, one)
    return whole


def random_complex(rng, shape):
    return rng.standard_normal(shape) + 1j * rng.standard_normal(shape)


# ---- operators


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", PARTIAL)
def test_partial_transforms_are_rows_of_the_dense_one(name, shape):
    d = int(np.prod(shape))
    n = (d + 1) // 2
    A = PARTIAL[name](n, shape, random_state=3)
    assert A.shape == (n, d)
    assert np.all(np.diff(A.rows) > 0)
    want = transform_matrix(name, shape)[A.rows] * np.sqrt(d / n)
    np.testing.assert_allclose(A @ np.eye(d), want, atol=1e-12)
    np.testing.assert_allclose(A.H @ np.eye(n), want.conj().T, atol=1e-12)
    np.testing.assert_allclose(A.T @ np.eye(n), want.T, atol=1e-12)
    if name == "dft":
        np.testing.assert_allclose(np.linalg.norm(want, axis=0), 1.0)


def every_operator():
    rows = np.arange(24)[::3]
    yield partial_fourier(20, 64, random_state=0)
    yield partial_fourier(20, (4, 5, 6), random_state=0, scale=2.5)
    yield partial_dct(20, (8, 8), random_state=0)
    yield partial_identity(None, 24, rows=rows)
    yield wavelet(64, "db4")
    yield wavelet((16, 24), "sym3", 2)
    yield wavelet((4, 8, 4), "haar")
    yield partial_fourier(100, (16, 16), random_state=1) @ wavelet((16, 16), "db2", 3)
    yield partial_identity(10, 32, random_state=1) @ partial_dct(32, 32, scale=1).H


@pytest.mark.parametrize("A", list(every_operator()), ids=repr)
def test_adjoint_batches_precision_and_pickles(A):
    rng = np.random.default_rng(1)
    n, d = A.shape
    assert adjoint_error(A) < 1e-13
    for draw in (rng.standard_normal, lambda size: random_complex(rng, size)):
        X, Y = draw((d, 3)), draw((n, 3))
        before = X.copy(), Y.copy()
        AX, AY = A @ X, A.H @ Y
        np.testing.assert_allclose(np.vdot(AX, Y), np.vdot(X, AY), rtol=1e-11)
        np.testing.assert_allclose(AX, np.stack([A @ x for x in X.T], axis=1), rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(AY, np.stack([A.H @ y for y in Y.T], axis=1), rtol=1e-12, atol=1e-12)
        np.testing.assert_array_equal(X, before[0])  # neither is written over
        np.testing.assert_array_equal(Y, before[1])
        assert AX.dtype == np.result_type(A.dtype, X)
        assert AY.dtype == np.result_type(A.dtype, Y)
        np.testing.assert_allclose(A @ np.asfortranarray(X), AX, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(pickle.loads(pickle.dumps(A)) @ X, AX, rtol=1e-12, atol=1e-12)
    assert (A @ np.ones(d, np.float32)).dtype == A.dtype  # no half precision by accident
    np.testing.assert_allclose(A @ np.ones(d, np.int32), A @ np.ones(d), atol=1e-12)
    np.testing.assert_allclose(A @ np.ones((d, 1)), (A @ np.ones(d))[:, None])
    assert (A @ np.ones((d, 0))).shape == (n, 0)
    with pytest.raises(ValueError, match="mismatch"):
        A @ np.ones(d + 1)


@given(
    st.sampled_from(["haar", "db3", "sym8", "coif2"]),
    st.integers(0, 4),
    st.lists(st.integers(1, 3), min_size=1, max_size=2),
)
@settings(max_examples=30, deadline=None)
def test_wavelets_are_orthonormal_whatever_shape_and_level(name, level, sides):
    W = wavelet(tuple(side << level for side in sides), name, level)
    matrix = W @ np.eye(W.shape[0])
    np.testing.assert_allclose(matrix.T @ matrix, np.eye(W.shape[0]), atol=1e-9)
    np.testing.assert_allclose(W.H @ np.eye(W.shape[0]), matrix.T, atol=1e-12)


@pytest.mark.parametrize("shape", [256, (32, 64)])
def test_wavelet_coefficients_are_those_of_pywavelets(shape):
    import pywt

    x = np.random.default_rng(0).standard_normal(shape)
    parts = pywt.wavedecn(x, "db2", mode="periodization", level=3)
    want, _ = pywt.coeffs_to_array(parts)
    np.testing.assert_allclose((wavelet(shape, "db2", 3).H @ x.ravel()).reshape(x.shape), want, atol=1e-12)


def test_default_level_is_as_deep_as_the_shape_and_the_wavelet_allow():
    assert wavelet((64, 64), "haar").level == 6
    assert wavelet((64, 24), "haar").level == 3  # 24 = 3 · 8
    assert wavelet(64, "db4").level == 3
    assert wavelet(8, "db10").level == 1
    assert wavelet(7, "haar").level == 0


def test_rows_can_be_a_mask_or_indices_in_any_order():
    mask = np.zeros((4, 6), bool)
    mask[1, 2] = mask[3, 0] = True
    rng = np.random.default_rng(0)
    x = rng.standard_normal((4, 6))
    want = np.fft.fft2(x, norm="ortho")[mask]
    np.testing.assert_allclose(partial_fourier(None, (4, 6), rows=mask, scale=1) @ x.ravel(), want)
    np.testing.assert_allclose(partial_fourier(2, (4, 6), rows=[18, 8], scale=1) @ x.ravel(), want[::-1])


def test_a_wrong_adjoint_shows():
    rng = np.random.default_rng(0)
    M = random_complex(rng, (40, 90))
    assert adjoint_error(M) < 1e-14
    wrong = LinearOperator(M.shape, matvec=lambda x: M @ x, rmatvec=lambda y: M.T @ y, dtype=complex)
    assert adjoint_error(wrong) > 0.1
    twice = LinearOperator(M.shape, matvec=lambda x: M @ x, rmatvec=lambda y: 2 * M.conj().T @ y, dtype=complex)
    assert adjoint_error(twice) > 0.1
    assert adjoint_error(np.zeros((2, 3))) == 0.0
    assert adjoint_error(M) == adjoint_error(M)


def test_no_memory_beyond_one_transform():
    d, n = 2**18, 2**15
    A = partial_fourier(n, d, random_state=0)
    x, y = random_complex(np.random.default_rng(0), d), random_complex(np.random.default_rng(0), n)
    A.H @ (A @ x)  # caches of the transform
    for product in (lambda: A @ x, lambda: A.H @ y):
        tracemalloc.start()
        product()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 16 * (d + 2 * n) + 100_000


@pytest.mark.parametrize("n", [1, 100, 1001, 4095])
@pytest.mark.parametrize("shape", [(64, 64), (48, 60)])
def test_mri_mask_is_symmetric_dense_in_the_middle_and_of_n_frequencies(shape, n):
    n = min(n, shape[0] * shape[1])
    mask = operators.mri_mask(shape, n, random_state=0)
    assert mask.shape == shape
    assert mask.sum() == n
    np.testing.assert_array_equal(mask, operators.mri_mask(shape, n, random_state=0))
    mirrored = np.roll(mask[::-1, ::-1], 1, axis=(0, 1))
    assert (mask != mirrored).sum() <= 2  # one pair may be cut
    if n >= 1000:
        centred = np.fft.fftshift(mask)
        middle = centred[shape[0] * 3 // 8 : shape[0] * 5 // 8, shape[1] * 3 // 8 : shape[1] * 5 // 8]
        assert middle.mean() > 1.2 * mask.mean() or mask.mean() > 0.8


# ---- ensembles


@pytest.mark.parametrize("name", ENSEMBLES)
def test_ensembles_have_their_form_and_depend_on_the_seed_alone(name):
    draw = ENSEMBLES[name]
    A = draw(30, 50, random_state=7)
    assert A.shape == (30, 50)
    assert A.dtype == (np.complex128 if name == "fourier" else np.float64)
    np.testing.assert_array_equal(dense(A), dense(draw(30, 50, random_state=np.random.default_rng(7))))
    assert np.abs(dense(A) - dense(draw(30, 50, random_state=8))).max() > 0.01
    assert draw(1, 1, random_state=0).shape == (1, 1)


@pytest.mark.parametrize("name", ENSEMBLES)
def test_a_column_has_norm_one_on_average(name):
    rng = np.random.default_rng(0)
    column = np.eye(40)[5]
    squares = [np.linalg.norm(ENSEMBLES[name](20, 40, random_state=rng) @ column) ** 2 for _ in range(400)]
    limit = 0.3 if name == "student-t" else 5 * np.std(squares) / 20  # the squares of that one have no variance
    assert abs(np.mean(squares) - 1) < limit + 1e-12


def test_moments():
    n, d = 400, 300
    G = ensembles.gaussian(n, d, random_state=0) * np.sqrt(n)
    assert abs(G.mean()) < 0.02
    assert abs(G.var() - 1) < 0.02
    assert abs((G**4).mean() - 3) < 0.1
    B = ensembles.bernoulli(n, d, random_state=0) * np.sqrt(n)
    np.testing.assert_allclose(np.abs(B), 1.0)
    assert abs(B.mean()) < 0.02
    assert np.abs(np.corrcoef(B[:, :20].T) - np.eye(20)).max() < 0.25
    T = ensembles.student_t(n, d, random_state=0, df=10) * np.sqrt(n)
    assert abs(T.var() - 1) < 0.03
    assert abs((T**4).mean() / T.var() ** 2 - 4) < 0.3  # 3 + 6/(df − 4)
    heavy = ensembles.student_t(n, d, random_state=0) * np.sqrt(n)
    assert np.abs(heavy).max() > 2 * np.abs(G).max()


@pytest.mark.parametrize("rho", [0.0, 0.7, -0.5, 1.0])
def test_correlated_columns_have_the_covariance(rho):
    n, d = 20_000, 12
    i, j = np.indices((d, d))
    sigma = float(rho) ** np.abs(i - j)
    A = ensembles.correlated(n, d, random_state=0, rho=rho)
    np.testing.assert_allclose(A.T @ A, sigma, atol=0.05)
    given = ensembles.correlated(n, d, random_state=0, covariance=sigma)
    np.testing.assert_allclose(given.T @ given, sigma, atol=0.05)  # singular for rho = 1
    np.testing.assert_array_equal(
        ensembles.correlated(5, 4, random_state=0), ensembles.correlated(5, 4, random_state=0, rho=0.5)
    )


@given(st.integers(1, 12), st.integers(1, 20), st.data())
@settings(deadline=None)
def test_expanders_have_so_many_entries_in_each_column(n, d, data):
    ones = data.draw(st.integers(1, n))
    A = ensembles.expander(n, d, random_state=data.draw(st.integers(0, 99)), ones=ones)
    assert isinstance(A, csr_array)
    assert A.has_canonical_format
    np.testing.assert_array_equal(np.count_nonzero(A.toarray(), axis=0), ones)
    np.testing.assert_allclose(np.linalg.norm(A.toarray(), axis=0), 1.0)


def test_expanders_choose_all_rows_alike():
    A = ensembles.expander(10, 50_000, random_state=0, ones=3).toarray() > 0
    np.testing.assert_allclose(A.mean(axis=1), 0.3, atol=0.01)
    pairs = (A[0] & A[1]).mean(), (A[0] & A[9]).mean(), (A[8] & A[9]).mean()
    np.testing.assert_allclose(pairs, 3 * 2 / (10 * 9), atol=0.005)
    assert ensembles.expander(5, 3).nnz == 15  # 8 do not fit


# ---- signals


@given(st.integers(1, 40), st.data(), st.sampled_from(sorted(SIGNALS)), st.sampled_from(["f4", "f8", "c8", "c16"]))
@settings(deadline=None)
def test_signals_have_exactly_so_many_nonzeros(d, data, name, dtype):
    K, seed = data.draw(st.integers(0, d)), data.draw(st.integers(0, 2**32))
    x = SIGNALS[name](d, K, random_state=seed, dtype=dtype)
    assert x.shape == (d,)
    assert x.dtype == dtype
    assert np.count_nonzero(x) == K
    np.testing.assert_array_equal(x, SIGNALS[name](d, K, random_state=seed, dtype=dtype))
    size = np.sort(np.abs(x[x != 0]))[::-1]
    if name == "sign":
        np.testing.assert_allclose(size, 1.0, rtol=1e-6)
    elif name == "uniform":
        assert np.all((size > 1 - 1e-6) & (size < 2 + 1e-6))
    elif name == "decaying":
        np.testing.assert_allclose(size, 1 / np.arange(1, K + 1), rtol=1e-6)


@pytest.mark.parametrize("dtype", [float, complex])
@pytest.mark.parametrize("name", SIGNALS)
def test_signals_are_centred_and_their_supports_uniform(name, dtype):
    many = np.array([SIGNALS[name](10, 3, random_state=seed, dtype=dtype) for seed in range(3000)])
    np.testing.assert_allclose((many != 0).mean(axis=0), 0.3, atol=0.05)
    values = many[many != 0]
    assert abs(values.mean()) < 0.08
    variance = {"gaussian": 1, "sign": 1, "uniform": 7 / 3, "decaying": (1 + 1 / 4 + 1 / 9) / 3}[name]
    assert abs((np.abs(values) ** 2).mean() - variance) < 0.06
    if dtype is complex:
        assert abs((values**2).mean()) < 0.08  # circular: no direction is preferred
    else:
        assert abs((values > 0).mean() - 0.5) < 0.03


@pytest.mark.parametrize("shape", [64, (16, 32)])
def test_wavelet_sparse(shape):
    x = signals.wavelet_sparse(shape, 9, random_state=0, name="db2", level=2)
    assert x.shape == tuple(np.atleast_1d(shape))
    assert np.count_nonzero(np.abs(wavelet(shape, "db2", 2).H @ x.ravel()) > 1e-12) == 9
    np.testing.assert_array_equal(x, signals.wavelet_sparse(shape, 9, random_state=0, name="db2", level=2))


def test_phantom():
    image = signals.phantom(200)
    assert set(np.unique(image)) == {0.0, 0.1, 0.2, 0.3, 0.4, 1.0}
    assert image[0, 0] == 0
    assert image[100, 100] == 0.2
    assert image[10, 100] == 1.0  # the skull
    bright = np.argwhere(image[150:180] > 0.25)  # three small tumours, below
    assert bright.size
    large = signals.phantom(400).reshape(200, 2, 200, 2).mean(axis=(1, 3))
    assert np.abs(large - image).mean() < 0.01  # one picture at every size
    left, right = image[:, :100], image[:, 100:][:, ::-1]
    assert (left != right).mean() < 0.08  # nearly, not quite, symmetric


def test_ecg_beats_as_told():
    from scipy.signal import find_peaks

    for heart_rate in (50, 72, 120):
        x = signals.ecg(60 * 250, rate=250, heart_rate=heart_rate, random_state=1)
        peaks, _ = find_peaks(x, height=0.8)
        assert abs(peaks.size - heart_rate) <= 2
        gaps = np.diff(peaks)
        assert 0.01 < gaps.std() / gaps.mean() < 0.08
        assert -0.4 < x.min() < -0.1
        assert 1.1 < x.max() < 1.3
    assert np.abs(np.diff(signals.ecg(10_000, rate=5000, random_state=0))).max() < 0.05  # no jump between beats
    np.testing.assert_array_equal(signals.ecg(500, random_state=3), signals.ecg(500, random_state=3))


# ---- what is refused


BAD = [
    (lambda: partial_fourier(9, 8), r"n must be at most 8 .*got 9"),
    (lambda: partial_dct(17, (4, 4)), r"n must be at most 16 .*got 17"),
    (lambda: partial_fourier(0, 8), r"n must be at least 1, got 0"),
    (lambda: partial_fourier(None, 8), r"n must be an integer unless rows are given"),
    (lambda: partial_fourier(2, (4, 0)), r"d must be at least 1, got 0"),
    (lambda: partial_fourier(2, ()), r"d must be a length or a shape .*got \(\)"),
    (lambda: partial_fourier(2, "ab"), r"d must be an integer, got 'ab'"),
    (lambda: partial_fourier(3, 8, rows=[1, 2]), r"n must be the number of rows, 2, or None, got 3"),
    (lambda: partial_fourier(None, 8, rows=[1, 8]), r"rows must be in 0, ..., 7, got 8"),
    (lambda: partial_fourier(None, 8, rows=[1, -1]), r"rows must be in 0, ..., 7, got -1"),
    (lambda: partial_fourier(None, 8, rows=[1, 1]), r"rows must differ .*np.unique"),
    (lambda: partial_fourier(None, 8, rows=[0.5]), r"rows must be a vector of indices or a mask, got float64"),
    (lambda: partial_fourier(None, (4, 4), rows=[[0, 1]]), r"rows must be a vector .*ravel_multi_index"),
    (lambda: partial_fourier(None, 8, rows=np.zeros(8, bool)), r"rows must hold at least one"),
    (lambda: partial_fourier(None, (4, 4), rows=np.ones((4, 5), bool)), r"mask of shape \(4, 5\).*\(4, 4\)"),
    (lambda: partial_fourier(2, 8, scale=0), r"scale must be .* above 0, got 0"),
    (lambda: partial_fourier(2, 8, random_state=-1), r"random_state must be"),
    (lambda: wavelet((64, 100), "haar", 3), r"divisible by 2\*\*level = 8, got 100; the nearest is 96 or 104.* 2"),
    (lambda: wavelet(5, "haar", 3), r"divisible by 2\*\*level = 8, got 5; the nearest is 8, or take level at most 0"),
    (lambda: wavelet(64, "haar", -1), r"level must be at least 0, got -1"),
    (lambda: wavelet(64, "bior2.2"), r"orthonormal wavelet .*got 'bior2.2'"),
    (lambda: wavelet(64, "dmey"), r"orthonormal wavelet .*got 'dmey'"),
    (lambda: wavelet(64, 3), r"orthonormal wavelet .*got 3"),
    (lambda: operators.mri_mask((8, 8), 65), r"n must be at most 64 .*got 65"),
    (lambda: ensembles.gaussian(0, 3), r"n must be at least 1, got 0"),
    (lambda: ensembles.gaussian(3, 2.5), r"d must be an integer, got 2.5"),
    (lambda: ensembles.bernoulli(3, 3, random_state="a"), r"random_state must be .*got 'a'"),
    (lambda: ensembles.student_t(3, 3, df=2), r"df must be above 2.*got 2"),
    (lambda: ensembles.student_t(3, 3, df="many"), r"df must be a number, got 'many'"),
    (lambda: ensembles.correlated(3, 3, rho=1.5), r"rho must be at most 1, got 1.5"),
    (lambda: ensembles.correlated(3, 3, rho=-1.5), r"rho must be .* at least -1, got -1.5"),
    (lambda: ensembles.correlated(3, 2, rho=0.1, covariance=np.eye(2)), r"rho and covariance exclude"),
    (lambda: ensembles.correlated(3, 3, covariance=np.eye(2)), r"covariance must have shape \(3, 3\).*got \(2, 2\)"),
    (lambda: ensembles.correlated(3, 2, covariance=[[1, 0.5], [0, 1]]), r"symmetric, got 0.5 at \(0, 1\).*S.T"),
    (lambda: ensembles.correlated(3, 2, covariance=[[1, 2], [2, 1]]), r"semidefinite.*eigenvalue -1; add"),
    (lambda: ensembles.correlated(3, 2, covariance=[[1, np.nan], [0, 1]]), r"covariance must be finite, got nan"),
    (lambda: ensembles.expander(3, 5, ones=4), r"ones must be at most 3 .*got 4"),
    (lambda: signals.gaussian(4, 5), r"K must be at most 4 .*got 5"),
    (lambda: signals.sign(4, -1), r"K must be at least 0, got -1"),
    (lambda: signals.uniform(4, 2, dtype=int), r"dtype must be float or complex.*got <class 'int'>"),
    (lambda: signals.uniform(4, 2, dtype="so"), r"dtype must be float or complex.*got 'so'"),
    (lambda: signals.decaying(4, 2, power=-1), r"power must be .*got -1"),
    (lambda: signals.decaying(4, 4, power=5000), r"power must be so small .*got 5000"),
    (lambda: signals.wavelet_sparse(16, 17), r"K must be at most 16 .*got 17"),
    (lambda: signals.phantom(0), r"size must be at least 1, got 0"),
    (lambda: signals.ecg(10, rate=0), r"rate must be .*above 0, got 0"),
    (lambda: signals.ecg(10, heart_rate=-3), r"heart_rate must be .*got -3"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "message"), BAD, ids=[message for _, message in BAD])
def test_errors_name_argument_value_and_remedy(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_without_pywavelets_the_remedy_is_told(monkeypatch):
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name == "pywt":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=r"pip install 'ksparse\[sensing\]'"):
        wavelet(8)


def test_the_package_is_cheap_and_lazy():
    code = (
        "import sys, ksparse; ksparse.sensing; "
        "heavy = {'numpy', 'scipy', 'numba', 'sklearn', 'pywt', 'matplotlib', 'joblib'} & set(sys.modules); "
        "assert not heavy, heavy; ksparse.sensing.operators; ksparse.sensing.signals; ksparse.sensing.ensembles; "
        "assert not {'numba', 'sklearn', 'pywt', 'matplotlib', 'joblib'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert {"ensembles", "operators", "phase", "recover", "signals"} <= set(dir(ksparse.sensing))
    importlib.import_module("ksparse.sensing.recovery")
    assert ksparse.sensing.recover is ksparse.recover
    with pytest.raises(AttributeError, match="nothing"):
        ksparse.sensing.nothing  # noqa: B018
