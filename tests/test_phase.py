"""The laboratory: the same bytes whatever happens, curves against known truth, and the command in real processes."""

from __future__ import annotations

import functools
import json
import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from scipy.stats import norm

from ksparse.sensing import phase
from ksparse.sensing.phase import Experiment, Ledger, Phase, donoho_tanner
from ksparse.sensing.phase._fit import crossing, logistic
from ksparse.sensing.phase._ledger import from_line, to_line

SMALL = {"d": 32, "n": [8, 16, 24], "K": [1, 4], "trials": 6, "verbose": False}
COMMAND = ("-d", 32, "--n", "4:32:4", "--K", "1:5:2", "--trials", 12, "--algorithm", "sp", "--algorithm", "htp", "-q")


def matched(A, y, k, *, noise, random_state):
    """The least squares fit on the columns that look most like y: an algorithm that fails often, and draws nothing."""
    chosen = np.argsort(-np.abs(A.T @ y), kind="stable")[:k]
    x = np.zeros(A.shape[1])
    x[chosen] = np.linalg.lstsq(A[:, chosen], y, rcond=None)[0]
    return x


def start(*arguments):
    return subprocess.Popen(
        [sys.executable, "-m", "ksparse.cli", "phase", *map(str, arguments)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        env={**os.environ, "COLUMNS": "150", "TERM": "dumb"},
    )  # fmt: skip


def finish(process, code=0):
    out, err = process.communicate(timeout=300)
    assert process.returncode == code, err + out
    assert "Traceback" not in err
    return out, err


def files(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


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
    ],
)
def test_a_damaged_file_is_named_and_set_aside(calm, tmp_path, damage):
    content, path = calm[1], tmp_path / "results.jsonl"
    bad = b"".join(damage(content.splitlines(keepends=True)))
    path.write_bytes(bad)
    tried = []
    with pytest.warns(UserWarning, match=r"results.jsonl is damaged in line 6.*results-damaged-1.jsonl.* good lines"):
        ledger = phase._lab.open_ledger(tmp_path, [Experiment(matched, d=32)], verbose=False)
    with ledger:
        assert len(ledger.kept) >= 34  # of 36: the others were good
        tried.append(len(ledger.kept))
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
        with pytest.raises(ValueError, match="already there"):
            ledger.append([{"i": 2, "v": "z"}])
    with Ledger(tmp_path / "a.jsonl", ["i"], ["v"]) as ledger:
        assert list(ledger.kept.items()) == [((1,), ("y",)), ((2,), ("x",))]


def run_killed(out, kills, seed):
    """The command, killed whenever the file has grown by a random amount, until it ends by itself."""
    rng = random.Random(seed)
    for kill in range(kills + 1):
        process = start(*COMMAND, "--out", out, "--jobs", 2)
        results = out / "results.jsonl"
        size = results.stat().st_size if results.exists() else 0
        wanted = size + rng.choice([0, 1, 3000, 8000, 20000]) if kill < kills else 2**40
        while process.poll() is None and (results.stat().st_size if results.exists() else -1) < wanted:
            time.sleep(0.01)
        time.sleep(rng.random() / 10)
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
            process.communicate(timeout=60)
        else:
            finish(process)
            if kill < kills:
                continue
    return process.returncode


@pytest.mark.parametrize("kills", [2, pytest.param(10, marks=pytest.mark.long)])
def test_killed_and_resumed_is_undisturbed(tmp_path, kills):
    calm = start(*COMMAND, "--out", tmp_path / "calm", "--jobs", 1)
    assert run_killed(tmp_path / "killed", kills, kills) == 0
    finish(calm)
    expected = files(tmp_path / "calm")
    assert expected["results.jsonl"].count(b"\n") == 2 * 8 * 3 * 12
    assert sorted(expected) == [
        "phase-htp.png", "phase-htp.svg", "phase-sp.png", "phase-sp.svg", "phase.png", "phase.svg", "results.jsonl",
        "table.csv",
    ]  # fmt: skip
    assert files(tmp_path / "killed") == expected
