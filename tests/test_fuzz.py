"""The fuzzer of tests/fuzz: a short run, and whether it notices what it looks for.  `make fuzz` runs it at length."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).parent / "fuzz"


@pytest.fixture
def fuzz(monkeypatch):
    """The folder's modules, found as its own programs find them."""
    monkeypatch.syspath_prepend(str(FOLDER))
    import calls
    import invariants

    return calls, invariants


def test_a_short_run_finds_nothing():
    ask = [sys.executable, FOLDER, "--calls", "30", "--seed", "7", "--processes", "1"]
    done = subprocess.run(ask, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "30 calls" in done.stdout


def leaks(k):
    warnings.warn("overflow encountered", RuntimeWarning, stacklevel=1)


def refuses(k):
    raise ValueError("k must be positive")


def mumbles(k):
    raise ValueError("operands could not be broadcast together")


def breaks(k):
    return [][k]


@pytest.mark.parametrize(
    ("function", "kind"), [(leaks, "RuntimeWarning"), (mumbles, "unnamed"), (breaks, "IndexError")]
)
def test_a_bad_end_of_a_call_is_noticed(fuzz, function, kind):
    watch = fuzz[0].Watch()
    try:
        watch.call(function, k=1)
    except fuzz[0].Refused:
        pass
    assert [found.startswith(kind) for found, _ in watch.findings] == [True]


def test_a_refusal_that_names_its_argument_is_no_finding(fuzz):
    watch = fuzz[0].Watch()
    with pytest.raises(fuzz[0].Refused):
        watch.call(refuses, k=1)
    assert watch.findings == []


@pytest.mark.parametrize("loss", ["squared", "logistic", "poisson", "huber", "squared_hinge"])
def test_a_wrong_model_is_noticed(fuzz, loss):
    calls, invariants = fuzz
    rng = np.random.default_rng(0)
    A, x = rng.standard_normal((50, 4)), np.array([1.0, 0.0, -1.0, 0.0])
    y = np.sign(A @ x) if loss in ("logistic", "squared_hinge") else np.round(np.exp(A @ x))
    F = invariants.Objective(A, y, loss, l2=0.1)

    def kinds(x, off=0.0, **settings):
        watch = calls.Watch()
        invariants.check_fit(watch.expect, F, x, 0.0, F.at(x)[0] * (1.0 + off), "converged", 2, **settings)
        return {kind for kind, _ in watch.findings}

    good = 0.01 * x
    assert kinds(good) == set()
    assert kinds(good, off=1e-4) == {"objective"}
    assert kinds(good, positive=True) == {"sign"}
    assert kinds(good, radius=0.001) == {"radius"}
    assert kinds(-x) == {"worse than nothing"}
    assert "support" in kinds(0.01 * np.ones(4))
    assert kinds(np.array([np.nan, 0.0, 0.0, 0.0])) == {"not finite"}
    empty = F.empty(intercept=True)[0]
    constants = np.linspace(-3.0, 3.0, 61)
    assert empty <= min(F.at(np.zeros(4), b)[0] for b in constants) + 1e-9
