"""Many right-hand sides at once: what is computed in single precision leaves no trace in the results."""

from __future__ import annotations

import numpy as np
import pytest

from ksparse import CoSaMP, recover
from ksparse.sensing.many_signals import ManySignals
from ksparse.sensing.matrix_system import Matrix
from ksparse.solvers.pursuit import union


def problem(n, d, k, p, *, seed=0, dtype=float, noise=0.0, alike=0.0):
    """A and y; with `alike`, columns come in pairs of this cosine."""
    rng = np.random.default_rng(seed)

    def draw(*shape):
        real = rng.standard_normal(shape)
        return real if dtype is float else real + 1j * rng.standard_normal(shape)

    A = draw(n, d)
    A /= np.linalg.norm(A, axis=0)
    if alike:
        A[:, 1::2] = alike * A[:, ::2] + np.sqrt(1.0 - alike**2) * A[:, 1::2]
    x = np.zeros((d, p), A.dtype)
    for column in x.T:
        column[rng.choice(d, k, replace=False)] = draw(k)
    y = A @ x
    return A, y + noise * draw(n, p) * np.linalg.norm(y) / np.sqrt(n * p)


def systems(A, y):
    """The systems of many signals and of few, started."""
    out = []
    for kind in (ManySignals, Matrix):
        system = kind(A, np.ascontiguousarray(y.T[:, np.newaxis]), lambda: None)
        out.append((system, system.start()))
    return out


def same(some, others):
    return all(np.array_equal(a, b) for a, b in zip(some, others, strict=True))


@pytest.mark.parametrize("dtype", [float, complex])
@pytest.mark.parametrize("scale", [1.0, 1e-60, 1e60])
def test_columns_too_close_for_single_precision_are_told_apart(dtype, scale):
    A, y = problem(60, 200, 5, 8, dtype=dtype)
    rng = np.random.default_rng(1)
    A[:, 1::2] = A[:, ::2] * (1.0 + 1e-10 * rng.uniform(-1.0, 1.0, 100))  # the better one of each pair differs by 1e-10
    (many, points), (few, plain) = systems(A * scale, y)
    first = [np.sort(rng.choice(200, 3, replace=False)) for _ in points]
    points, plain = many.fit(points, first), few.fit(plain, first)
    exact = few.negative_gradients(plain)
    for count in (1, 2, 5, 11, 200):
        assert same(many.steepest(points, count), few.steepest(plain, count))
    steps = np.full(8, 1.0 / np.abs(exact).max())
    assert same(many.steepest(points, 7, steps), few.steepest(plain, 7, steps))


@pytest.mark.parametrize("dtype", [float, complex])
@pytest.mark.parametrize("size", [3, 90, 190])  # together; one by one; with products of the last fit
def test_fits_are_accurate_to_double_precision(dtype, size):
    A, y = problem(600, 900, 40, 9, dtype=dtype, noise=0.3)
    (many, points), _ = systems(A, y)
    rng = np.random.default_rng(2)
    supports = [np.sort(rng.choice(900, size, replace=False)) for _ in points]
    for more in ([], rng.choice(900, 50, replace=False)):
        supports = [np.union1d(columns, more).astype(np.int64) for columns in supports]
        for point, columns, right in zip(many.fit(points, supports), supports, y.T, strict=True):
            best = np.linalg.lstsq(A[:, columns], right, rcond=None)[0]
            assert np.array_equal(point.columns, columns)
            assert np.abs(point.x[0] - best).max() <= 1e-13 * np.abs(best).max()
            assert np.allclose(point.rest[0], right - A[:, columns] @ best, rtol=0.0, atol=1e-13)
            assert point.misfit == pytest.approx(np.linalg.norm(point.rest) ** 2 / 1200, rel=1e-12)


@pytest.mark.parametrize("alike", [0.999999, 1.0])
def test_dependent_columns_are_fitted_in_double_precision(alike):
    A, y = problem(400, 600, 20, 8, alike=alike, noise=0.1)
    (many, points), _ = systems(A, y)
    supports = [np.arange(300)] * 8
    for point, right in zip(many.fit(points, supports), y.T, strict=True):
        rest = right - A[:, :300] @ np.linalg.lstsq(A[:, :300], right, rcond=None)[0]
        assert np.allclose(point.rest[0], rest, rtol=0.0, atol=1e-9)


@pytest.mark.parametrize("dtype", [float, complex])
@pytest.mark.parametrize("alike", [0.0, 0.9, 0.9999])
@pytest.mark.parametrize("k", [20, 150])  # fits with a Gram matrix, and conjugate gradients
def test_the_largest_coefficients_are_those_of_a_precise_fit(dtype, alike, k):
    A, y = problem(700, 1200, k, 10, dtype=dtype, alike=alike, noise=0.01)
    (many, points), (few, plain) = systems(A, y)
    for _ in range(4):
        columns = many.steepest(points, k)
        supports = union(points, columns)
        assert same(columns, few.steepest(plain, k))
        points, plain = many.fit_largest(points, supports, k), few.fit_largest(plain, supports, k)
        assert same([p.columns for p in points], [p.columns for p in plain])
        for point, other in zip(points, plain, strict=True):
            assert np.allclose(point.x, other.x, rtol=0.0, atol=1e-9 * np.abs(other.x).max())


def test_conjugate_gradients_decide_most_choices_of_wide_fits(monkeypatch):
    A, y = problem(700, 1200, 150, 10, noise=0.01)
    (many, points), _ = systems(A, y)
    points = many.fit_largest(points, many.steepest(points, 150), 150)
    wide = []
    fit = many._fit
    monkeypatch.setattr(many, "_fit", lambda signal, columns: (wide.append(columns.size), fit(signal, columns))[1])
    many.fit_largest(points, union(points, many.steepest(points, 150)), 150)
    assert wide.count(150) == 10
    assert len(wide) <= 13


@pytest.mark.parametrize("algorithm", ["auto", "htp", "sp", CoSaMP(refit=True), "cosamp", "ompr"], ids=str)
@pytest.mark.parametrize("kind", ["exact", "noisy", "complex", "fortran"])
def test_together_as_one_by_one(algorithm, kind):
    A, y = problem(80, 200, 8, 12, dtype=complex if kind == "complex" else float, noise=0.05 * (kind == "noisy"))
    whole = recover(
        np.asfortranarray(A) if kind == "fortran" else A, y, 12 if algorithm == "auto" else 8, algorithm=algorithm
    )
    for i in range(12):
        one = recover(A, y[:, i], 12 if algorithm == "auto" else 8, algorithm=algorithm)
        assert np.array_equal(whole.support[i], one.support)
        assert np.allclose(whole.x[:, i], one.x, rtol=0.0, atol=1e-12)
        assert whole.statuses[i] == one.status
