"""The laboratory: the same bytes whatever happens, curves against known truth, and the command in real processes."""

from __future__ import annotations

import doctest
import errno
import functools
import json
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import norm
from trials import SMALL, files, finish, invoke, matched, start

from ksparse.sensing import phase
from ksparse.sensing.phase import Experiment, Ledger, Phase, donoho_tanner
from ksparse.sensing.phase.lab import estimate, open_ledger
from ksparse.sensing.phase.ledger import from_line, read_records, to_line
from ksparse.sensing.phase.result import crossing, logistic
from ksparse.sensing.phase.workers import Pool

COMMAND = ("-d", 32, "--n", "4:32:4", "--K", "1:5:2", "--trials", 12, "--algorithm", "sp", "--algorithm", "htp", "-q")


# --- the same bytes --------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def calm(tmp_path_factory):
    """The results of a run that nobody disturbed."""
    out = tmp_path_factory.mktemp("calm")
    found = phase.run(matched, jobs=1, out=out, **SMALL)
    return found, (out / "results.jsonl").read_bytes()


def test_workers_order_and_seed(calm, tmp_path):
    found, content = calm
    phase.run(matched, jobs=2, out=tmp_path / "two", **SMALL)
    assert (tmp_path / "two" / "results.jsonl").read_bytes() == content
    parts = {**SMALL, "jobs": 1, "out": tmp_path / "parts"}
    phase.run(matched, **{**parts, "K": 4, "trials": 2})  # in another order, piece by piece
    phase.run(matched, **{**parts, "n": 24})
    again = phase.run(matched, **parts)
    assert (tmp_path / "parts" / "results.jsonl").read_bytes() == content
    np.testing.assert_array_equal(again.successes, found.successes)
    other = phase.run(matched, jobs=1, seed=1, **SMALL)
    assert not np.array_equal(other.successes, found.successes)
    assert 0 < found.successes.sum() < found.trials.sum()


def broken():
    print("on stdout")
    raise OSError(5, "as it was")


def test_workers():
    with Pool(2) as pool:
        assert set(pool.map(os.getenv, [("OPENBLAS_NUM_THREADS",)] * 50)) == {"1"}
        assert list(pool.map(divmod, [(i, 7) for i in range(1000)])) == [divmod(i, 7) for i in range(1000)]
        assert list(pool.map(lambda i: 2 * i, [(i,) for i in range(9)])) == [2 * i for i in range(9)]
        assert len(set(pool.map(os.getpid, [()] * 200))) <= 2
        with pytest.raises(OSError, match="as it was"):
            list(pool.map(broken, [()]))
    with Pool(2) as pool, pytest.raises(RuntimeError, match=r"worker process was killed.*fewer jobs"):
        list(pool.map(os._exit, [(1,)] * 8))


def test_an_estimate_is_of_workers_that_are_ready(monkeypatch):
    """The first trial of an algorithm imports and compiles: for 60 seconds on this clock, and 0.25 s a trial after."""
    now, ready = [0.0], set()

    def trial(experiment, n, K, trial):
        now[0] += 0.25 if experiment in ready else 60.0
        ready.add(experiment)

    monkeypatch.setattr("time.monotonic", lambda: now[0])
    monkeypatch.setattr("ksparse.sensing.phase.workers.readiness", lambda: len(ready))
    monkeypatch.setattr(Experiment, "run", trial)
    pool = SimpleNamespace(jobs=2, map=lambda function, items: [function(*item) for item in items])
    items = [(experiment, 8, 2, t) for experiment in ("htp", "sp", "omp", "iht") for t in range(100)]
    assert estimate(items, pool) == "400 trials on 2 cores: 50 s, judging by 8 of them"


def test_a_trial_is_timed_when_everything_is_compiled():
    """The kernel is compiled or loaded in the first call, at most: nothing is ready in a new process."""
    code = """
        import numpy as np
        from ksparse.sensing.phase import timed
        calls = []
        def trial(n):
            from ksparse.sources.encoding import all_finite
            calls.append(n)
            return all_finite(np.ones(n))
        result, seconds, cpu_seconds = timed(trial, 3)
        assert result and seconds > 0 and calls == [3, 3]
        timed(trial, 4)
        assert calls == [3, 3, 4]
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, timeout=120)


def test_records_say_everything(calm):
    record = from_line(calm[1].splitlines(keepends=True)[7])
    assert record == {
        "version": "0.1.0", "seed": 0, "ensemble": "gaussian", "signal": "gaussian", "d": 32, "noise_db": None,
        "matrix": "trial", "below": 0.001, "algorithm": "matched", "k": "K", "K": 1, "n": 16, "trial": 1,
        "error": record["error"], "success": record["error"] < 0.001,
    }  # fmt: skip
    A, x, y, noise = Experiment(matched, d=32).problem(16, 1, 1)
    error = np.linalg.norm(matched(A, y, 1, noise=noise, random_state=0) - x) / np.linalg.norm(x)
    np.testing.assert_allclose(record["error"], error, rtol=1e-3, atol=1e-14)


@pytest.mark.parametrize("cut", [1, 30, 200])
def test_a_torn_line_is_done_again(calm, tmp_path, cut):
    content = calm[1]
    (tmp_path / "results.jsonl").write_bytes(content[: len(content) * 2 // 3 // 100 * 100 + cut])
    phase.run(matched, jobs=1, out=tmp_path, **SMALL)
    assert files(tmp_path) == {"results.jsonl": content}


@pytest.mark.parametrize(
    "damage",
    [
        lambda lines: [*lines[:5], b"\0" * 80 + b"\n", *lines[6:]],
        lambda lines: [*lines[:5], lines[5].replace(b'"seed": 0', b'"seed": 1'), *lines[6:]],  # the checksum sees it
        lambda lines: [*lines[:5], lines[5][:60] + lines[6], *lines[7:]],
        lambda lines: [*lines[:5], b"\xff\xfe" + lines[5], *lines[6:], lines[0]],  # and a line that is there twice
        lambda lines: [*lines[:5], b"[1]\n", b'{"crc": 1}\n', *lines[6:]],
        lambda lines: [*lines[:5], to_line({"K": 1}), *lines[6:]],
        lambda lines: [*lines[:5], b"somebody's notes"],  # no end, but not torn either
        lambda lines: [*lines[:5], lines[5][:40] + b"\0" * 40],
    ],
)
def test_a_damaged_file_is_named_and_set_aside(calm, tmp_path, damage):
    content, path = calm[1], tmp_path / "results.jsonl"
    bad = b"".join(damage(content.splitlines(keepends=True)))
    path.write_bytes(bad)
    with pytest.warns(UserWarning, match=r"results.jsonl is damaged in line 6.*results-damaged-1.jsonl.* good lines"):
        ledger = open_ledger(tmp_path, [Experiment(matched, d=32)], verbose=False)
    with ledger:
        assert len(ledger.kept) >= min(34, bad.count(b"\n"))  # of 36: the others were good
    phase.run(matched, jobs=1, out=tmp_path, **SMALL)
    assert files(tmp_path) == {"results.jsonl": content, "results-damaged-1.jsonl": bad}
    path.write_bytes(b"?\n")
    with pytest.warns(UserWarning, match=r"results-damaged-2"):
        phase.run(matched, jobs=1, out=tmp_path, **SMALL)


def test_other_settings_are_refused_and_named(calm, tmp_path):
    path = tmp_path / "results.jsonl"
    path.write_bytes(calm[1])
    for change, text in (
        ({"seed": 3}, "seed is 0 there and 3 here"),
        ({"signal": "sign"}, "signal is 'gaussian' there and 'sign' here"),
        ({"ensemble": "correlated(rho=0.9)", "success": 0.1}, "ensemble is .*; below is 0.001 there and 0.1 here"),
        ({"d": 64}, "d is 32 there and 64 here.*--no-resume"),
    ):
        with pytest.raises(ValueError, match=text):
            phase.run(matched, jobs=1, out=tmp_path, **{**SMALL, **change})
        assert files(tmp_path) == {"results.jsonl": calm[1]}
    phase.run(matched, jobs=1, out=tmp_path, resume=False, seed=3, **SMALL)
    assert files(tmp_path)["results-old-1.jsonl"] == calm[1]
    assert b'"seed": 0' not in path.read_bytes()
    told = phase.run(matched, jobs=1, out=tmp_path, k="2K", seed=3, **SMALL)  # beside those that were told K
    assert told.label == "matched told 2K"
    assert [p.label for p in phase.read(tmp_path)] == ["matched told 2K", "matched"]
    np.testing.assert_array_equal(phase.read(tmp_path)[0].successes, told.successes)


def test_two_runs_do_not_write_one_file(tmp_path):
    with Ledger(tmp_path / "a.jsonl", ["i"], ["v"]) as ledger:
        ledger.append([{"i": 2, "v": "x"}, {"i": 1, "v": "y"}])
        with pytest.raises(ValueError, match="being written by another run"):
            Ledger(tmp_path / "a.jsonl", ["i"])
        ledger.sort()
        with pytest.raises(ValueError, match="being written by another run"):  # the new file is locked, too
            Ledger(tmp_path / "a.jsonl", ["i"])
        with pytest.raises(ValueError, match="already in the file"):
            ledger.append([{"i": 2, "v": "z"}])
    with Ledger(tmp_path / "a.jsonl", ["i"], ["v"]) as ledger:
        assert list(ledger.kept.items()) == [((1,), ("y",)), ((2,), ("x",))]


def test_a_full_disk_leaves_what_was_there(tmp_path, monkeypatch):
    path = tmp_path / "a.jsonl"
    with Ledger(path, ["i"]) as ledger:
        ledger.append([{"i": 2}, {"i": 1}])
        before = path.read_bytes()

        def full(*_):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(os, "write", full)
        with pytest.raises(OSError, match="No space left"):
            ledger.sort()
        monkeypatch.undo()
        assert files(tmp_path) == {"a.jsonl": before}  # and nothing half-written beside it


def run_killed(out, kills):
    """The command, killed whenever the file has grown by a random amount, and then left to its end."""
    rng, results = random.Random(kills), out / "results.jsonl"

    def size():
        return results.stat().st_size if results.exists() else 0

    for _ in range(kills):
        process, wanted = start(*COMMAND, "--out", out, "--jobs", 2), size() + rng.choice([0, 1, 3000, 8000, 20000])
        while process.poll() is None and size() < wanted:
            time.sleep(0.01)
        time.sleep(rng.random() / 10)
        process.kill()
        process.communicate(timeout=600)
    finish(start(*COMMAND, "--out", out, "--jobs", 2))


@pytest.mark.parametrize("kills", [2, pytest.param(10, marks=pytest.mark.long)])
def test_killed_and_resumed_is_undisturbed(tmp_path, kills):
    calm = start(*COMMAND, "--out", tmp_path / "calm", "--jobs", 1)
    run_killed(tmp_path / "killed", kills)
    finish(calm)
    expected = files(tmp_path / "calm")
    assert expected["results.jsonl"].count(b"\n") == 2 * 8 * 3 * 12
    assert sorted(expected) == [
        "phase-htp.png", "phase-htp.svg", "phase-sp.png", "phase-sp.svg", "phase.png", "phase.svg", "results.jsonl",
        "table.csv",
    ]  # fmt: skip
    assert files(tmp_path / "killed") == expected


def test_ctrl_c_in_a_trial_is_no_outcome():
    def swallow():  # as solvers do, which return what they have
        try:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(10)
        except KeyboardInterrupt:
            return "half done"

    before = signal.getsignal(signal.SIGINT)
    with Pool(1) as pool, pytest.raises(KeyboardInterrupt):
        list(pool.map(swallow, [()]))
    assert signal.getsignal(signal.SIGINT) is before


def test_ctrl_c_ends_cleanly_and_says_how_to_go_on(tmp_path):
    process = start("-d", 64, "--trials", 1000, "--out", tmp_path, "--jobs", 2, "-q")
    results = tmp_path / "results.jsonl"
    while not (results.exists() and results.stat().st_size):
        time.sleep(0.05)
        assert process.poll() is None
    os.killpg(process.pid, signal.SIGINT)  # what a terminal does: to the workers, too
    out, err = finish(process, 130)
    held = results.read_bytes()
    assert out == ""
    assert err == f"stopped; the finished work is in {results}; run the same again to continue\n"
    assert all(from_line(line) for line in held.splitlines(keepends=True))


# --- curves ----------------------------------------------------------------------------------------------------------
def test_the_logistic_fit_is_the_maximum_of_the_likelihood():
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(0)
    x = np.arange(40.0, 120, 4)
    trials = rng.integers(5, 60, x.size)
    successes = rng.binomial(trials, 1 / (1 + np.exp(-0.2 * (x - 77))))
    (a, b), covariance = logistic(x, successes.astype(float), trials.astype(float))
    rows = np.repeat(x, 2)[:, None]
    model = LogisticRegression(C=np.inf, tol=1e-10, max_iter=10_000)
    model.fit(rows - 80, np.tile([0, 1], x.size), np.column_stack([trials - successes, successes]).ravel())
    np.testing.assert_allclose([a + 80 * b, b], [model.intercept_[0], model.coef_[0, 0]], rtol=1e-5)
    found = crossing(x, successes, trials)
    assert abs(found.at - 77) < 4 * found.error
    np.testing.assert_allclose(1 / (1 + np.exp(-a - b * crossing(x, successes, trials, 0.95).at)), 0.95)
    again = [crossing(x, rng.binomial(trials, 1 / (1 + np.exp(-0.2 * (x - 77)))), trials).at for _ in range(400)]
    assert 0.8 < np.std(again) / found.error < 1.25  # the error is what repeated experiments scatter by
    assert covariance.shape == (2, 2)


@pytest.mark.parametrize(
    ("successes", "at"),
    [
        ([0, 0, 0, 10, 10], 7.0),  # a jump: the middle of the gap
        ([0, 0, 3, 10, 10], 6.0),  # one cell in between: there
        ([0, 0, 0, 0, 0], np.inf),
        ([10, 10, 10, 10, 10], -np.inf),
        ([0, 0, 0, 0, 1], np.inf),  # not yet 50% at the last n
        ([0, 0, 0, 0, 5], 10.0),
        ([9, 10, 10, 10, 10], -np.inf),
        ([5, 10, 10, 10, 10], 2.0),
        ([0, 0, 1, 0, 1], np.inf),  # the curve passes 50% behind the last n
        ([10, 10, 0, 0, 0], np.nan),
        ([9, 10, 5, 0, 1], np.nan),
    ],
)
def test_crossings_where_there_is_no_fit(successes, at):
    assert crossing([2, 4, 6, 8, 10], successes, [10] * 5).at == pytest.approx(at, nan_ok=True)


def known(rate, n, K, trials=200):
    n, K = (a.ravel() for a in np.meshgrid(n, K))
    settings = Experiment("htp", d=100).settings
    return Phase(settings, n, K, np.full(n.size, trials), np.round(trials * rate(n, K)).astype(int))


def test_curves_minimum_and_tables_of_a_known_truth(tmp_path):
    truth = known(lambda n, K: 1 / (1 + np.exp(-(n - 10 - 3 * K) / 2)), np.arange(2, 60), np.arange(2, 12, 3))
    curve = truth.curve()
    np.testing.assert_array_equal(curve.K, [2, 5, 8, 11])
    np.testing.assert_allclose(curve.n, 10 + 3 * curve.K, atol=0.05)
    np.testing.assert_allclose(truth.curve(0.9).n, 10 + 3 * curve.K + 2 * np.log(9), atol=0.1)
    across = truth.curve(by="n")
    inside = (across.n > 20) & (across.n < 40)
    np.testing.assert_allclose(across.K[inside], (across.n[inside] - 10) / 3, atol=0.3)
    assert across.K[0] == -np.inf  # two measurements are not enough for any K
    assert across.K[-1] == np.inf
    least = truth.minimum_n(5)
    assert (least.n, least.successes, least.trials) == (31, 191, 200)
    assert least.low < 191 / 200 < least.high
    assert truth.minimum_n(5, rate=0.5).n == 25
    assert truth.minimum_n(5, rate=1).n == 37
    assert " 5      25.0  0.1         31" in str(truth)
    assert "<tr><td>5</td><td>25.0</td><td>0.1</td><td>31</td></tr>" in truth._repr_html_()
    few = known(lambda n, K: n > 1e9, [10, 20], [1])
    assert few.minimum_n(1).n is None
    assert "1     >20.0           >20" in few.table()
    assert "<tr><td>1</td><td>&gt;20.0</td><td></td><td>&gt;20</td></tr>" in few._repr_html_()
    line = known(lambda n, K: K < 4, [20], [1, 3, 5])  # one n: the question is which K
    assert [(row["n"], row["K50"]) for row in line.rows()] == [(20, 4.0)]
    with pytest.raises(ValueError, match="K must be one of the grid, 2, 5, 8, 11, got 3"):
        truth.minimum_n(3)
    with pytest.raises(ValueError, match="not per cent"):
        truth.minimum_n(5, rate=95)
    truth.save(tmp_path / "a.json")
    again = Phase.load(tmp_path / "a.json")
    assert str(again) == str(truth)
    np.testing.assert_array_equal(again.successes, truth.successes)
    (tmp_path / "b.json").write_text('{"format": "else"}')
    with pytest.raises(ValueError, match=r"b.json was not written by Phase.save: its format is 'else'"):
        Phase.load(tmp_path / "b.json")


def test_wilson_covers():
    rng = np.random.default_rng(0)
    for p in (0.02, 0.5, 0.95, 1.0):
        low, high = phase.wilson(rng.binomial(60, p, 4000), 60)
        assert 0.92 < np.mean((low <= p) & (p <= high)) <= 1


def test_donoho_and_tanner():
    """Against the maximum that Donoho, Maleki and Montanari state, on a fine grid, and at the ends."""
    z = np.linspace(1e-5, 12, 1_200_001)
    tail = (1 + z**2) * norm.cdf(-z) - z * norm.pdf(z)
    for kappa in (2, 1):
        for delta in (1e-6, 0.01, 0.1, 0.5, 0.9, 0.999):
            best = ((1 - kappa / delta * tail) / (1 + z**2 - kappa * tail)).max()
            assert donoho_tanner(delta, nonnegative=kappa == 1) == pytest.approx(best, rel=1e-7)
    delta = np.concatenate([[0], np.logspace(-300, 0, 500)]).reshape(3, 167)
    rho = donoho_tanner(delta)
    assert rho.shape == delta.shape
    assert rho.ravel()[0] == 0
    assert rho.ravel()[-1] == 1
    assert (np.diff(rho.ravel()) > 0).all()
    assert donoho_tanner(1 - 1e-12) > 0.999
    np.testing.assert_allclose(donoho_tanner(1e-300) * 2 * np.log(1e300), 1, atol=0.02)  # 1/(2 log(1/delta)), far out
    assert (donoho_tanner(delta, nonnegative=True) >= rho).all()
    for bad in (-0.1, 1.1, np.nan):
        with pytest.raises(ValueError, match="delta must be in"):
            donoho_tanner([0.5, bad])


@pytest.mark.long
def test_basis_pursuit_turns_at_donoho_and_tanner():
    found = phase.run("bp", d=200, n=[100], K=range(24, 54, 3), trials=40, verbose=False)
    assert found.curve(by="n").K[0] / 100 == pytest.approx(donoho_tanner(0.5), abs=0.025)


@pytest.mark.parametrize(("rate", "K"), [(0.95, 4), (0.5, 2)])
def test_the_search_finds_what_the_whole_grid_says(rate, K, tmp_path):
    settings = {"d": 32, "trials": 20, "verbose": False, "jobs": 1}
    whole = phase.run("sp", n=range(2, 33, 2), K=K, **settings).minimum_n(K, rate)
    assert phase.minimum_n("sp", K, step=2, rate=rate, out=tmp_path, **settings) == whole
    cells = {(record["n"], record["trial"]) for record in read_records(tmp_path / "results.jsonl")}
    assert len(cells) < 0.6 * 16 * 20
    none = phase.minimum_n("sp", 20, step=10, **settings)
    assert none.n is None


# --- what can be tried -----------------------------------------------------------------------------------------------
def test_problems():
    plain = Experiment("htp", "gaussian", d=40)
    A, x, y, noise = plain.problem(20, 3, 0)
    np.testing.assert_allclose(A @ x, y, rtol=1e-12, atol=1e-14)
    assert noise is None
    same = Experiment("sp", "gaussian", d=40, k="2K").problem(20, 3, 0)
    np.testing.assert_array_equal(same.A, A)  # all algorithms meet the same problem
    np.testing.assert_array_equal(same.x, x)
    assert not np.array_equal(plain.problem(20, 3, 1).A, A)
    cell = Experiment("htp", "gaussian", d=40, matrix="cell")
    np.testing.assert_array_equal(cell.problem(20, 3, 0).A, cell.problem(20, 3, 1).A)
    assert not np.array_equal(cell.problem(20, 3, 0).x, cell.problem(20, 3, 1).x)
    assert not np.array_equal(cell.problem(20, 3, 0).A, cell.problem(20, 4, 0).A)
    for ensemble in ("gaussian", "fourier"):
        noisy = Experiment("htp", ensemble, d=400, noise_db=10)
        A, x, y, noise = noisy.problem(300, 3, 0)
        ratio = np.linalg.norm(A @ x) ** 2 / np.linalg.norm(y - A @ x) ** 2
        assert 10 * np.log10(ratio) == pytest.approx(10, abs=0.5)
        assert np.linalg.norm(y - A @ x) / np.sqrt(300) == pytest.approx(noise, rel=0.2)
    assert [Experiment(k=k).told(5) for k in (None, "K", "1K", "3K", 7, "7", "999")] == [5, 5, 5, 15, 7, 7, 256]


@pytest.mark.parametrize(
    "ensemble", ["bernoulli", "student-t(df=5)", "correlated(rho=0.3)", "expander", "fourier", "dct"]
)
def test_ensembles_and_signals(ensemble):
    for law in ("gaussian", "sign", "uniform", "decaying(power=0.5)"):
        for algorithm in ("htp", "cosamp(select=1)"):
            record = Experiment(algorithm, ensemble, law, d=40).run(36, 2, 0)
            assert record["success"], record
            assert [record[name] for name in ("algorithm", "ensemble", "signal")] == [algorithm, ensemble, law]


def by_chance(n, d, *, random_state=None):
    return np.random.default_rng(random_state).standard_normal((n, d)) / np.sqrt(n)


def test_own_functions():
    own = Experiment(functools.partial(matched), by_chance, d=30)
    assert own.settings["ensemble"] == "by_chance"
    assert own.settings["algorithm"] == "matched()"
    assert own.run(28, 1, 0)["success"]


def test_divergence_is_a_failure():
    def diverges(A, y, k, *, noise, random_state):
        return np.full(A.shape[1], np.inf)

    record = Experiment(diverges, d=30).run(20, 2, 0)
    assert record["error"] is None
    assert not record["success"]
    assert from_line(to_line(record)) == record


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"algorithm": "hpt"}, "algorithm must be one of 'auto'.* got 'hpt'"),
        ({"algorithm": "htp(stepp=1)"}, "algorithm 'htp' has the parameters step, .*got 'stepp'"),
        ({"algorithm": "bp(a=1)"}, "algorithm 'bp' has no parameters, got 'a'"),
        ({"algorithm": lambda A, y, k: y}, "algorithm must have a name.*def"),
        ({"ensemble": "gauss"}, "ensemble must be one of 'gaussian'.*got 'gauss'"),
        ({"ensemble": "correlated(0.9)"}, "ensemble must be a name, with its parameters"),
        ({"ensemble": "gaussian(rho=0.9)"}, "ensemble 'gaussian' has no parameters, got 'rho'"),
        ({"signal": 3}, "signal must be one of"),
        ({"k": "K2"}, "k must be 'K', a multiple such as '2K'"),
        ({"matrix": "grid"}, "matrix must be one of 'trial', 'cell'"),
        ({"n": [300]}, "n must be at most d = 256, got 300"),
        ({"n": [8], "rho": 0.5}, "leave one pair out"),
        ({"rho": 0.5}, "delta and rho belong together"),
        ({"delta": 0.5, "rho": 1.5}, "rho must be at most 1, got 1.5"),
        ({"trials": 0}, "trials must be at least 1, got 0"),
        ({"jobs": 0}, "jobs must be at least 1, got 0"),
        ({"success": 0}, "success must be"),
        ({"ensemble": "fourier", "algorithm": "bp", "n": 8, "K": 1, "jobs": 1}, "bp at n = 8, K = 1, k = 1, trial 0: "),
    ],
)
def test_bad_settings_are_named(change, message):
    with pytest.raises(ValueError, match=message):
        phase.run(**{"verbose": False, **change})


def test_grids():
    grid = phase.make_grid(256)
    assert np.unique(grid.n).tolist() == list(range(8, 257, 8))
    assert np.unique(grid.K).tolist() == list(range(1, 27, 2))
    grid = phase.make_grid(100, delta=[0.1, 0.5], rho=[0.01, 0.02, 0.5])
    assert list(zip(grid.n.tolist(), grid.K.tolist(), strict=True)) == [(10, 1), (50, 1), (10, 5), (50, 25)]


def test_pictures(tmp_path):
    from ksparse.sensing.phase.figures import plot_curves

    truth = known(lambda n, K: 1 / (1 + np.exp(-(n - 10 - 3 * K) / 2)), np.arange(2, 60, 3), np.arange(2, 12, 3))
    ax = truth.plot(tmp_path / "a.svg")
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["ℓ₁, d → ∞ (Donoho–Tanner)", "htp, 50%"]
    line = ax.containers[0].lines[0]
    np.testing.assert_allclose(line.get_xdata(), 10 + 3 * line.get_ydata(), atol=0.1)
    truth.plot(tmp_path / "b.svg")
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    shares = phase.make_grid(100, delta=np.arange(0.1, 1, 0.1), rho=np.arange(0.05, 0.6, 0.05))
    rate = 1 / (1 + np.exp(30 * (shares.K / shares.n - donoho_tanner(shares.n / 100))))
    half = Phase(truth.settings, *shares, np.full(rate.size, 100), np.round(100 * rate).astype(int))
    curve = half.curve()
    np.testing.assert_allclose((curve.K / curve.n)[:7], donoho_tanner(curve.n[:7] / 100), atol=0.03)
    assert curve.K[7] == np.inf  # beyond the largest rho
    assert plot_curves([half, half], tmp_path / "c.svg").get_xlabel() == "δ = n/d"
    assert half.plot(tmp_path / "d.svg").get_ylabel() == "ρ = K/n"


def test_the_page_is_true():
    docs = Path(__file__).parents[2] / "docs"
    assert doctest.testfile(str(docs / "phase.md"), module_relative=False) == (0, 7)
    found = {name: Phase.load(docs / "phase" / f"{name}.json") for name in ("cosamp", "sp", "htp", "omp", "auto")}
    for path in (docs / "phase" / "curves.svg", docs / "phase" / "cosamp.svg"):
        assert found["cosamp"].label in path.read_text()
    assert (found["omp"].curve().n[-3:] > found["sp"].curve().n[-3:] + 10).all()  # as the picture shows
    assert (found["auto"].curve().n < found["sp"].curve().n).all()


# --- the command -----------------------------------------------------------------------------------------------------
def test_the_command_writes_what_the_library_finds(tmp_path):
    arguments = ("-d", 32, "--n", "8:24:8", "--K", "1,4", "--trials", 6, "--jobs", 1, "--algorithm", "htp")
    out, err = finish(start(*arguments, "--out", tmp_path, "--json"))
    facts = json.loads(out)
    same = phase.run("htp", jobs=1, **SMALL)
    assert facts["algorithms"][0]["successes"] == same.successes.tolist()
    assert [row["n95"] for row in facts["algorithms"][0]["table"]] == [same.minimum_n(K).n for K in (1, 4)]
    assert sorted(map(os.path.basename, facts["files"])) == ["phase.png", "phase.svg", "results.jsonl", "table.csv"]
    assert err.startswith("36 trials on 1 core: ")
    assert (tmp_path / "table.csv").read_text().splitlines()[0] == "algorithm,K,n50,error,n95"
    done = invoke(*arguments, "--out", tmp_path)
    assert str(same) in done.stdout
    assert done.stdout.endswith(f"written: {', '.join(facts['files'])}\n")
    assert done.stderr == f"{tmp_path / 'results.jsonl'}: continues after 36 trials\n"
    with (tmp_path / "results.jsonl").open("ab") as file:
        file.write(b"?\n")
    assert invoke(*arguments, "--out", tmp_path, "-q").stderr.startswith("note: ")
    done = invoke(*arguments, "--out", tmp_path, "--seed", 1, code=2)
    text = f"error: {tmp_path / 'results.jsonl'} holds results of other settings: seed is 0 there and 1"
    assert done.stderr.startswith(text)
    done = invoke(*arguments, "--out", tmp_path / "table.csv", code=2)
    assert done.stderr.startswith("error: --out must be a folder that can be written, got ")


def test_the_command_refuses_in_one_line(tmp_path):
    for arguments, message in (
        ("--n 8:4", "error: --n must be start:end:step or a list such as 8,16,32, got '8:4'"),
        ("--n 8:x:2", "error: --n must be start:end:step"),
        ("--n 1:2:3:4", "error: --n must be start:end:step"),
        ("--K 1.5", "error: -K must be an integer or an array of them"),
        ("--algorithm hpt", "error: --algorithm must be one of 'auto'"),
        ("--trials 0", "error: --trials must be at least 1, got 0"),
        ("--k none", "error: -k must be 'K', a multiple such as '2K', or a whole number, got 'none'"),
        ("--delta 0.5", "error: delta and rho belong together"),
    ):
        done = invoke(*arguments.split(), "--out", tmp_path / "new", code=2)
        assert done.stderr.startswith(message)
        assert done.stderr.count("\n") == 1
    assert not (tmp_path / "new").exists()
    assert "a stopped run goes on" in finish(start("--help"))[0]
