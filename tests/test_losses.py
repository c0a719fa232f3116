"""Losses: derivative and curvature against finite differences, and all of them inside compiled code."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import oracle
import pytest

from ksparse import losses, minimize
from ksparse.losses import LOSSES, Huber, curvature, curvature_bound, deriv, value

GRID = np.linspace(-6.013, 5.987, 61)  # off the kinks of Huber and the hinge


def targets(name):
    known = {"labels": (-1.0, 1.0), "counts": (0.0, 1.0, 7.0), "positive": (0.3, 1.0, 7.0), "real": (-2.0, 0.5)}
    return known[losses.kind_of_targets(name)]


@pytest.mark.parametrize("name", LOSSES)
def test_derivatives(name):
    loss = LOSSES[name]()
    for y in targets(name):
        for z in GRID:
            h = 1e-5
            slope = (value(loss, z + h, y) - value(loss, z - h, y)) / (2 * h)
            np.testing.assert_allclose(deriv(loss, z, y), slope, rtol=1e-6, atol=1e-8)
            bend = (deriv(loss, z + h, y) - deriv(loss, z - h, y)) / (2 * h)
            np.testing.assert_allclose(curvature(loss, z, y), bend, rtol=1e-6, atol=1e-8)
            assert curvature(loss, z, y) <= curvature_bound(loss)
            np.testing.assert_allclose(value(loss, z, y), oracle.value(name, z, y), rtol=1e-12, atol=1e-15)


def test_extreme_predictions():
    for name in ("logistic", "squared_hinge"):
        loss = LOSSES[name]()
        for z in (-800.0, 800.0):
            for y in (-1.0, 1.0):
                assert np.isfinite(value(loss, z, y))
                assert np.isfinite(deriv(loss, z, y))
    assert value(losses.Logistic(), 800.0, -1.0) == 800.0
    assert deriv(losses.Logistic(), 800.0, -1.0) == 1.0
    assert value(losses.Logistic(), 40.0, 1.0) > 0  # no cancellation


def test_the_logistic_loss_of_all_rows_is_exact_to_rounding():
    """It is computed by series, in loops that vectorise; the plain formulas are the oracle."""
    rng = np.random.default_rng(0)
    z = np.concatenate([5 * rng.standard_normal(2000), [0.0, -0.0, 1e-300, 1e-9, 36.0, -36.0, 700.0, -700.0, 1e308]])
    y, weight = rng.choice([-1.0, 1.0], z.size), rng.uniform(0.1, 2.0, z.size)
    weight[::50] = 0.0
    derivative, curvature = np.empty(z.size), np.empty(z.size)
    total = losses.evaluate_rows(losses.Logistic(), z, y, weight, derivative, curvature)
    t = y * z
    e = np.exp(-np.abs(t))
    assert total == pytest.approx(weight @ (np.log1p(e) + np.maximum(-t, 0.0)), rel=1e-14)
    assert np.allclose(derivative, -weight * y * np.where(t > 0, e, 1.0) / (1 + e), rtol=1e-14, atol=1e-300)
    assert np.allclose(curvature, weight * e / (1 + e) ** 2, rtol=1e-14, atol=1e-300)
    one = np.ones(1), np.ones(1)
    for far in (800.0, np.inf):  # e underflows
        assert losses.evaluate_rows(losses.Logistic(), np.array([far]), *one, derivative[:1], curvature[:1]) < 1e-300
        assert losses.evaluate_rows(losses.Logistic(), np.array([-far]), *one, derivative[:1], curvature[:1]) == far
    assert np.isnan(losses.evaluate_rows(losses.Logistic(), np.array([np.nan]), *one, derivative[:1], curvature[:1]))


@pytest.mark.parametrize("name", LOSSES)
def test_compiled_code_agrees(name):
    """One pass of the compiled kernel against NumPy: the objective and the gradient."""
    from ksparse.problem import Problem

    rng = np.random.default_rng(0)
    A = rng.standard_normal((50, 8))
    y = rng.choice(targets(name), 50)
    x = rng.standard_normal(8)
    problem = Problem.create(A, y, loss=name)
    stage = problem.stage(problem.slots(8, x), np.empty((0, 1), np.int64))
    np.testing.assert_allclose(stage.value, np.mean(oracle.value(name, A @ x, y)))
    np.testing.assert_allclose(stage.mu, A.T @ oracle.slope(name, A @ x, y) / 50)


class Cubic(NamedTuple):
    """A loss from outside the package: |z − y|³/3."""


@value.rule(Cubic)
def _(loss, z, y):
    return abs(z - y) ** 3 / 3


@deriv.rule(Cubic)
def _(loss, z, y):
    return abs(z - y) * (z - y)


@curvature.rule(Cubic)
def _(loss, z, y):
    return 2 * abs(z - y)


@curvature_bound.rule(Cubic)
def _(loss):
    return np.inf


def test_a_loss_of_ones_own():
    rng = np.random.default_rng(0)
    A = rng.standard_normal((200, 30))
    result = minimize(A, 2 * A[:, 3] - A[:, 9], 4, loss=Cubic(), random_state=0)
    assert {3, 9} <= set(result.support)
    np.testing.assert_allclose(result.x[[3, 9]], [2, -1], atol=0.02)


def test_a_loss_without_rules_is_refused():
    class Half(NamedTuple):
        pass

    with pytest.raises(ValueError, match="Half lacks the rules value, deriv, curvature, curvature_bound"):
        minimize(np.eye(3), np.ones(3), 1, loss=Half())


def test_parameters():
    A = np.eye(4)
    y = np.array([10.0, 0, 0, 0])
    loose = minimize(A, y, 1, loss=Huber(100), random_state=0)
    np.testing.assert_allclose(loose.history.objective[0], 100 / 2 / 4)
    with pytest.raises(ValueError, match=r"loss\.delta"):
        minimize(A, y, 1, loss=Huber(-1))
