"""The loop of all solvers: its history, and how it ends by itself, by a callback, by the time limit and by Ctrl-C."""

from __future__ import annotations

import pickle
import signal

import numpy as np
import pytest
from problems import sensing

from ksparse import HTSAGA, HTSVRG, IHT, PGD, StoIHT, minimize
from ksparse.engine.loop import CHUNK_SECONDS, Clock

ALL = {"ht-svrg": HTSVRG, "ht-saga": HTSAGA, "pgd": PGD, "iht": IHT, "stoiht": StoIHT}


def test_converged_and_stage_limit():
    A, y, _ = sensing(noise=0.1)
    done = minimize(A, y, 10, solver=HTSVRG(stages=1000), random_state=0)
    assert done.status == "converged"
    assert done.converged
    assert done.n_stages < 1000
    assert "converged" in repr(done)
    short = minimize(A, y, 10, solver=HTSVRG(stages=3), random_state=0)
    assert short.status == "stage limit"
    assert short.n_stages == 3
    assert "more stages" in short.status.remedy
    exact = minimize(A, y, 10, solver=HTSVRG(stages=200, tol=0), random_state=0)
    assert exact.n_stages == 200  # tol = 0 runs all stages


@pytest.fixture
def steps(clock, monkeypatch):
    """The clock, which goes by `steps.each` with every stochastic step, and counts them."""
    clock.each, clock.done, original = 0.0, 0, Clock.steps

    def timed(self, run, count):
        def work(start, stop):
            clock.done += stop - start
            clock.sleep(clock.each * (stop - start))
            return run(start, stop)

        original(self, work, count)

    monkeypatch.setattr(Clock, "steps", timed)
    return clock


def test_max_time_is_heard_with_large_batches(steps):
    rng = np.random.default_rng(0)
    A = rng.standard_normal((10_000, 500))
    steps.each = 0.05
    result = minimize(A, A[:, 0], 5, solver=HTSVRG(step=0.01, batch_size=10_000, m=2000), max_time=0.3, random_state=0)
    assert result.status == "time limit"
    assert steps.done <= 7  # it is looked at after every step


def test_max_time_is_heard_in_the_spectral_norm(clock):
    A, y, _ = sensing()
    clock.tick = 0.01
    result = minimize(A, y, 5, solver=PGD(step="spectral"), max_time=0.1, random_state=0)
    assert result.status == "time limit"
    assert result.n_stages == 0
    assert clock.now < 0.2


def test_history_has_a_row_for_every_stage():
    A, y, _ = sensing()
    result = minimize(A, y, 36, solver=HTSVRG(step=0.3, stages=10, m=50, batch_size=4, tol=0), random_state=0)
    h = result.history
    assert all(len(column) == 11 for column in h)
    np.testing.assert_array_equal(np.diff(h.gradients)[:-1], 100 + 200)
    assert (np.diff(h.seconds) > 0).all()
    assert (h.screened >= 0).all()
    assert (h.screened <= 1).all()
    assert h.support_changes[1] > 0
    np.testing.assert_allclose(h.objective[-1], result.objective)
    np.testing.assert_allclose(h.objective[0], np.mean(y**2) / 2)
    settled = minimize(A, y, 36, solver=HTSVRG(step=0.3, stages=300, tol=0), random_state=0).history
    assert settled.screened[-100:].mean() > 0.98


def test_results_survive_a_pickle():
    A, y, _ = sensing()
    result = minimize(A, y, 36, solver=HTSVRG(step=3.0), random_state=0)
    again = pickle.loads(pickle.dumps(result))
    assert again.status.remedy == result.status.remedy
    assert again.status == "diverged"


def test_a_callback_sees_every_stage_and_can_stop():
    A, y, _ = sensing()
    seen = []
    result = minimize(
        A, y, 36, solver=HTSVRG(tol=0), random_state=0, callback=lambda p: (seen.append(p), p.stage == 5)[1]
    )
    assert [p.stage for p in seen] == [1, 2, 3, 4, 5]
    assert result.status == "stopped"
    assert result.n_stages == 5
    np.testing.assert_array_equal(result.x, seen[-1].x)
    np.testing.assert_array_equal(seen[0].support, np.flatnonzero(seen[0].x))
    assert seen[0].objective != seen[-1].objective
    with pytest.raises(ZeroDivisionError):  # an error in it is the caller's
        minimize(A, y, 36, callback=lambda p: 1 / 0)


@pytest.mark.parametrize("name", ALL)
def test_max_time(steps, name):
    """In the middle of a stage, too: HT-SVRG's would take a thousand seconds."""
    A, y, _ = sensing(noise=0.1)
    limit = {"ht-svrg": {"m": 10**7, "stages": 2}, "ht-saga": {"epochs": 10**6}, "stoiht": {"epochs": 10**6}}
    solver = ALL[name](tol=0.0, **limit.get(name, {"iterations": 10**6}))
    steps.tick, steps.each = 1e-3, 1e-4
    A = A / 3 if name == "iht" else A  # its step is 1
    result = minimize(A, y, 5, solver=solver, max_time=0.7, random_state=0)
    assert result.status == "time limit"
    assert steps.now < 0.7 + 2 * CHUNK_SECONDS
    assert result.objective <= result.history.objective[0]
    assert np.isfinite(result.x).all()
    np.testing.assert_allclose(result.objective, np.mean((A @ result.x - y) ** 2) / 2, rtol=1e-9)


def test_ctrl_c_before_the_first_stage_gives_the_start(monkeypatch):
    A, y, _ = sensing()

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(HTSVRG, "draw", interrupted)
    result = minimize(A, y, 3, solver=HTSVRG())
    assert result.status == "interrupted"
    assert result.n_stages == 0
    np.testing.assert_allclose(result.history.objective, [np.mean(y**2) / 2])
    np.testing.assert_allclose(result.objective, np.mean(y**2) / 2)


@pytest.mark.parametrize("name", ["ht-svrg", "ht-saga", "pgd"])
def test_ctrl_c_gives_the_best_so_far(clock, monkeypatch, name):
    """Pressed when the clock is read for the hundredth time, which for HT-SVRG is amid its first stage."""
    A, y, _ = sensing(noise=0.1)
    field = {"ht-svrg": {"m": 10**7, "stages": 10}, "ht-saga": {"epochs": 10**6}, "pgd": {"iterations": 10**6}}[name]
    readings = 0

    def read():
        nonlocal readings
        readings += 1
        if readings == 100:
            signal.raise_signal(signal.SIGINT)
        return readings * CHUNK_SECONDS  # so pieces of work stay as long as they are

    monkeypatch.setattr(clock, "perf_counter", read)
    result = minimize(A, y, 5, solver=ALL[name](tol=0.0, **field), random_state=0)
    assert result.status == "interrupted"
    assert result.objective < result.history.objective[0]
    np.testing.assert_allclose(result.objective, np.mean((A @ result.x - y) ** 2) / 2, rtol=1e-9)
