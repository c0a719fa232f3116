"""hard_threshold, project_ball, support: against sorting and against their definitions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from ksparse import hard_threshold, project_ball, support

finite = st.floats(-1e6, 1e6, allow_nan=False, width=32)
few = st.sampled_from([-2.0, -1.0, 0.0, 1.0, 2.0])  # many ties


@st.composite
def vectors(draw, elements):
    b = draw(hnp.arrays(np.float64, st.integers(1, 30), elements=elements))
    return b, draw(st.integers(0, b.size))


def by_sorting(b, k):
    x = np.zeros_like(b)
    top = np.argsort(-np.abs(b), kind="stable")[:k]
    x[top] = b[top]
    return x


@given(vectors(finite) | vectors(few))
def test_it_equals_a_stable_sort(case):
    b, k = case
    np.testing.assert_array_equal(hard_threshold(b, k), by_sorting(b, k))


@given(vectors(few), st.integers(0, 2**32 - 1))
def test_complex_vectors_too(case, seed):
    b, k = case
    b = b * np.exp(1j * np.random.default_rng(seed).choice([0, np.pi / 2, np.pi], b.size))
    b = np.round(b.real) + 1j * np.round(b.imag)
    np.testing.assert_array_equal(hard_threshold(b, k), by_sorting(b, k))


@given(vectors(finite))
def test_it_is_the_nearest_sparse_vector_and_idempotent(case):
    b, k = case
    x = hard_threshold(b, k)
    assert np.count_nonzero(x) <= k
    dropped = np.sort(np.abs(b))[: b.size - k]
    np.testing.assert_allclose(np.linalg.norm(b - x), np.linalg.norm(dropped))
    np.testing.assert_array_equal(hard_threshold(x, k), x)


def test_matrices_row_by_row_and_out():
    b = np.random.default_rng(0).integers(-3, 4, (50, 20)).astype(float)
    want = np.array([by_sorting(row, 7) for row in b])
    np.testing.assert_array_equal(hard_threshold(b, 7), want)
    out = np.empty_like(b)
    assert hard_threshold(b, 7, out=out) is out
    np.testing.assert_array_equal(out, want)
    assert hard_threshold(b, 7, out=b) is b  # in place
    np.testing.assert_array_equal(b, want)


def test_the_input_is_left_alone_and_dtypes_kept():
    for dtype in (np.float32, np.float64, np.complex64, np.complex128):
        b = np.array([1, -3, 2], dtype=dtype)
        b.flags.writeable = False
        x = hard_threshold(b, 1)
        assert x.dtype == dtype
        assert x[1] == -3
    assert hard_threshold([1, -3, 2], 1).dtype == np.float64
    assert hard_threshold(np.empty((0, 3)), 2).shape == (0, 3)


@pytest.mark.parametrize(
    ("b", "k", "text"),
    [
        ([1.0, 2.0], 3, "k must be at most 2"),
        ([1.0, 2.0], -1, "k must be at least 0"),
        ([1.0, 2.0], 1.5, "k must be an integer"),
        ([1.0, 2.0], True, "k must be an integer"),
        ([1.0, np.nan], 1, "NaN"),
        ([[[1.0]]], 1, "one or two dimensions"),
        (["a"], 1, "b must hold real numbers"),
    ],
)
def test_bad_input(b, k, text):
    with pytest.raises(ValueError, match=text):
        hard_threshold(b, k)


def test_bad_out():
    for out in (np.empty(3), np.empty(2, int), [0.0, 0.0]):
        with pytest.raises(ValueError, match="out must be"):
            hard_threshold([1.0, 2.0], 1, out=out)


@given(vectors(finite), st.floats(0.01, 100))
def test_project_ball(case, radius):
    v, _ = case
    p = project_ball(v, radius)
    norm = np.linalg.norm(v)
    if norm <= radius:
        np.testing.assert_array_equal(p, v)
    else:
        np.testing.assert_allclose(np.linalg.norm(p), radius)
        np.testing.assert_allclose(p * norm, v * radius, rtol=1e-12)
    np.testing.assert_array_equal(project_ball(v, np.inf), v)


def test_project_ball_rows_and_errors():
    np.testing.assert_allclose(project_ball([[3.0, 4.0], [0.3, 0.4]], 1.0), [[0.6, 0.8], [0.3, 0.4]])
    np.testing.assert_allclose(project_ball([3e200, 4e200], 1.0), [0.6, 0.8])
    np.testing.assert_allclose(project_ball([3e-200, 4e-200], 1e-201), [0.6e-201, 0.8e-201])
    np.testing.assert_allclose(project_ball(np.float16([300, 400]), 1.0), [0.6, 0.8], rtol=1e-3)
    np.testing.assert_allclose(project_ball([3j, 4.0], 1.0), [0.6j, 0.8])
    with pytest.raises(ValueError, match="v must be finite"):
        project_ball([np.nan, 1.0], 1.0)
    for radius in (0, -1, np.nan, "a", None, 1j, [1.0]):
        with pytest.raises(ValueError, match="radius"):
            project_ball([1.0], radius)


def test_support():
    np.testing.assert_array_equal(support([0, 1j, 0, 2]), [1, 3])
    with pytest.raises(ValueError, match="one dimension"):
        support([[1.0]])
    with pytest.raises(ValueError, match="x must hold real numbers"):
        support(["a", ""])
