"""A run of the paper's experiments: it survives kills, draws from what it has, and names what it cannot use."""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from ksparse.cli import app
from ksparse.paper import draw, minimum_measurements, phase_transitions, run, runner, success_curves
from ksparse.paper.lab import Lab, _commits
from ksparse.sensing.phase import locked

TINY = """
import sys
from ksparse.paper import run
from ksparse.paper import minimum_measurements, phase_transitions, success_curves
phase_transitions.CONFIG["quick"] = phase_transitions.PhaseTransitionsConfig((32, 80, 128), (2, 4), 6)
success_curves.CONFIG["quick"] = success_curves.SuccessCurvesConfig((175,), (22,), 1)
minimum_measurements.CONFIG["quick"] = minimum_measurements.MinimumMeasurementsConfig((2, 4), 8, 8)
run("quick", sys.argv[1], figures=["1", "3"], jobs=2, verbose=False)
"""


def start(out):
    return subprocess.Popen([sys.executable, "-c", TINY, str(out)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def finish(process):
    """Wait for a run that must end well, close its pipes, and return what it said."""
    said = process.communicate()[1].decode()
    assert process.returncode == 0, said
    return said


def contents(out):
    return {path.name: path.read_bytes() for part in ("results", "summary") for path in sorted((out / part).iterdir())}


@pytest.fixture(scope="module")
def calm(tmp_path_factory):
    out = tmp_path_factory.mktemp("calm")
    finish(start(out))
    return out


@pytest.mark.long  # the same store and workers as in test_phase.py, where two kills are for everyday
@pytest.mark.parametrize("kills", [2, 10])
def test_killed_and_resumed_is_undisturbed(calm, tmp_path, kills):
    rng, results = random.Random(kills), tmp_path / "results"
    for _ in range(kills):
        process = start(tmp_path)
        size = sum(path.stat().st_size for path in results.glob("*.jsonl")) + rng.choice([1, 500, 4000, 9000])
        until = time.monotonic() + 30
        while process.poll() is None and time.monotonic() < until:
            if sum(path.stat().st_size for path in results.glob("*.jsonl")) >= size:
                break
            time.sleep(rng.random() * 0.05)
        process.kill()
        process.communicate()
    finish(start(tmp_path))
    assert contents(tmp_path) == contents(calm)
    assert len(contents(calm)) == 4


def test_a_damaged_file_is_named_set_aside_and_mended(calm, tmp_path):
    shutil.copytree(calm, tmp_path / "hurt")
    path = tmp_path / "hurt" / "results" / "figure1.jsonl"
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    lines[3] = lines[3].replace(b"true", b"nope").replace(b"false", b"nope")
    path.write_bytes(b"".join(lines))
    (tmp_path / "hurt" / "run.json").write_text("{")
    said = finish(start(tmp_path / "hurt"))
    assert "figure1.jsonl is damaged in line 4" in said
    assert "run.json is damaged" in said
    assert path.with_name("figure1-damaged-1.jsonl").read_bytes() == b"".join(lines)
    assert path.read_bytes() == whole


def test_other_presets_and_seeds_do_not_mix(calm):
    with pytest.raises(ValueError, match=r"preset 'quick', not 'standard'.*--no-resume"):
        run("standard", calm, figures=["1"], verbose=False)
    with pytest.raises(ValueError, match="seed 0, not 1"):
        run("quick", calm, figures=["1"], seed=1, verbose=False)


def test_drawing_runs_no_solver(calm, monkeypatch):
    def fail(*_, **__):
        raise AssertionError("a solver was called")

    for module in (phase_transitions, success_curves, minimum_measurements):
        monkeypatch.setattr(module, "trial", fail)
    page = draw(calm).read_text(encoding="utf-8")
    assert "HT-SVRG performs comparably to PGD" in page
    assert (calm / "figures" / "figure1-pgd.svg").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--figures", "1,9"], "figures must be one of"),
        (["--figures", ""], "figures must be one of"),
        (["--jobs", "0"], "jobs must be"),
        (["--seed", "-1"], "seed must be"),
        (["--figures", "6", "--mnist", "nowhere"], "nowhere"),
    ],
)
def test_bad_input_is_one_line(arguments, message, tmp_path):
    result = CliRunner().invoke(app, ["paper", "--out", str(tmp_path / "out"), "--quiet", *arguments])
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
    assert not (tmp_path / "out" / "results").exists()


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    result = CliRunner().invoke(app, ["paper", "--out", str(tmp_path / "file" / "out"), "--figures", "1", "--quiet"])
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert "out must be a folder that can be written" in result.stderr
    result = CliRunner().invoke(app, ["paper", "--out", str(tmp_path / "none"), "--draw-only"])
    assert (result.exit_code, "a folder with a summary" in result.stderr) == (2, True)


@pytest.fixture
def again(calm, tmp_path):
    """A copy of a whole run, to be hurt."""
    return shutil.copytree(calm, tmp_path / "again")


def command(out, *arguments):
    result = CliRunner().invoke(app, ["paper", "--out", str(out), "--quiet", *arguments])
    assert result.exit_code != 1, result.exception
    return result


@pytest.mark.parametrize("name", ["matplotlib", "jinja2"])
def test_what_a_page_is_made_with_is_asked_for_before_trials(name, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, name, None)
    result = command(tmp_path / "out", "--figures", "theory")
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert f"{name}; pip install 'ksparse[report]'" in result.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("summary/figure1.json", "{", "figure1.json cannot be read"),
        ("summary/figure1.json", "[" * 100_000, "figure1.json cannot be read"),
        ("summary/figure1.json", "[]", "figure1.json cannot be read"),
        ("summary/figure3.json", "{}", "figure 3 cannot be drawn"),
        ("summary/figure3.json", '{"iht": 1}', "figure 3 cannot be drawn"),
        ("run.json", "[]", "run.json cannot be read"),
        ("run.json", "{}", "run.json cannot be read"),
    ],
)
def test_drawing_from_damaged_files_is_one_line(again, file, content, message):
    (again / file).write_text(content)
    page = (again / "index.html").read_bytes()
    result = command(again, "--draw-only")
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert message in result.stderr
    assert "run the same again" in result.stderr
    assert (again / "index.html").read_bytes() == page


def test_facts_of_a_wrong_kind_are_set_aside(again):
    facts = json.loads((again / "run.json").read_text())
    facts["seconds"]["1"] = "long"
    (again / "run.json").write_text(json.dumps(facts))
    result = command(again, "--figures", "theory")
    assert (result.exit_code, "run.json is damaged" in result.stderr) == (0, True)
    assert json.loads((again / "run-damaged-1.json").read_text()) == facts


def test_a_fresh_start_sets_aside_what_does_not_belong_to_it(calm, again):
    before = contents(calm)
    run("quick", again, figures="theory", resume=False, verbose=False)  # the same settings: other figures stay
    assert contents(again).items() > before.items()
    assert {"1", "3", "theory"} == set(json.loads((again / "run.json").read_text())["seconds"])
    run("quick", again, figures="theory", seed=1, resume=False, verbose=False)
    after = contents(again)
    assert "figure1.json" not in after
    assert {name.replace("-old-1", ""): content for name, content in after.items() if "theory" not in name} == before
    assert set(json.loads((again / "run.json").read_text())["seconds"]) == {"theory"}
    assert phase_transitions.TITLE not in (again / "index.html").read_text(encoding="utf-8")


def test_files_that_cannot_be_used_are_found_before_trials(again, monkeypatch):
    monkeypatch.setattr(phase_transitions, "trial", None)
    path = again / "results" / "figure3.jsonl"
    path.unlink()
    path.mkdir()
    (again / "results" / "figure1.jsonl").unlink()  # which comes first, and would have to be made
    result = command(again, "--figures", "1,3")
    assert (result.exit_code, "figure3.jsonl: Is a directory" in result.stderr) == (2, True)


def test_one_run_a_folder(again):
    facts = (again / "run.json").read_bytes()
    with locked(again), pytest.raises(ValueError, match="being written by another run"):
        run("standard", again, figures="theory", resume=False, verbose=False)
    assert (again / "run.json").read_bytes() == facts
    facts = facts.replace(b'"version": "', b'"version": "0.')
    (again / "run.json").write_bytes(facts)
    with pytest.raises(ValueError, match="belongs to a run with version"):
        run("quick", again, figures="theory", verbose=False)
    assert (again / "run.json").read_bytes() == facts


def test_digits_that_nobody_asked_for_are_not_claimed(tmp_path):
    page = run("quick", tmp_path, figures="theory", mnist="nowhere", verbose=False).read_text(encoding="utf-8")
    assert json.loads((tmp_path / "run.json").read_text())["digits"] is None
    assert "<dt>Digits" not in page


class TwoWorkers:
    """A pool in this process on clocks of its own; a worker is slow where it meets a kind of work the first time."""

    jobs, cpu_seconds = 2, 0.0

    def __init__(self, monkeypatch, compile, load, later):
        self.compile, self.load, self.later = compile, load, later
        self.clocks, self.ready = [0.0, 0.0], [set(), set()]
        self.at, self.calls = None, 0
        monkeypatch.setattr("time.monotonic", self.now)
        monkeypatch.setattr("ksparse.sensing.phase.workers.readiness", lambda: len(self.ready[self.at]))

    def now(self):
        """The time of the worker that is at work, or of whoever waits for both."""
        return max(self.clocks) if self.at is None else self.clocks[self.at]

    def map(self, function, items):
        self.clocks, self.calls = [self.now()] * 2, self.calls + 1
        for item in items:
            order = (0, 1) if self.calls % 2 else (1, 0)  # which of two idle workers begins is chance
            self.at = min(order, key=self.clocks.__getitem__)
            result = function(*item)
            self.at = None
            yield result

    def trial(self, algorithm, trial):
        here, there = self.ready[self.at], self.ready[1 - self.at]
        wait = 0.0 if algorithm in here else self.load if algorithm in there else self.compile
        self.clocks[self.at] += self.later[algorithm] + wait
        here.add(algorithm)
        return {"outcome": f"{algorithm} {trial}"}


def figure_of(number, trials, trial, **settings):
    """A module like those of figures; `trials` of every kind."""
    items = [{"algorithm": kind, "trial": t} for kind, count in trials.items() for t in range(count)]
    return SimpleNamespace(
        NUMBER=number, KEY=("algorithm", "trial"), KEEP=("outcome",), CONFIG={"quick": None}, trial=trial,
        items=lambda config: items, summarise=lambda records: {"outcomes": [r["outcome"] for r in records]}, **settings,
    )  # fmt: skip


def test_an_estimate_does_not_take_compiling_for_the_pace(tmp_path, monkeypatch):
    """With a cold cache a worker compiles before the first trial of a kind, or loads what the other one compiled."""
    quick = {f"quick {i}": 0.01 * i for i in range(1, 9)}
    pool = TwoWorkers(monkeypatch, compile=9.0, load=0.5, later={**quick, "rare": 2.0, "long": 3.0})
    many = {**dict.fromkeys(quick, 100), "rare": 4}  # those few must not stand for the others
    figures = [figure_of("1", many, pool.trial), figure_of("2", {"long": 10}, pool.trial)]
    lab = Lab("quick", tmp_path, pool, verbose=True)
    (tmp_path / "results").mkdir()
    facts = {"seconds": {}, "cpu_seconds": {}}
    said = runner.estimate(figures, lab, facts)
    made = [len(lab.missing(figure, figure.items(None))) for figure in figures]
    assert made[0] < 804
    assert made[1] < 10
    began = pool.now()
    for figure in figures:
        runner.run_figure(figure, lab, facts)
    seconds = pool.now() - began
    announced = re.match(r"(\d+) s on 2 cores, judging by \d+ trials: figure 1 \d+ s, figure 2 \d+ s$", said)
    assert announced, said
    assert seconds / 2 < int(announced[1]) < 2 * seconds


def test_the_trials_of_an_estimate_are_trials_of_the_run(tmp_path, monkeypatch):
    """They are on disk, they are not made again, and the files are those of a run without an estimate."""
    results = {}
    for verbose in (True, False):
        pool = TwoWorkers(monkeypatch, compile=0.0, load=0.0, later={"quick": 0.1})
        figure = figure_of("1", {"quick": 50}, pool.trial)
        chosen = figure_of("2", {"quick": 50}, pool.trial, run=lambda lab, ledger: None)  # makes what it wants
        lab = Lab("quick", tmp_path / str(verbose), pool, verbose=verbose)
        facts = {"seconds": {}, "cpu_seconds": {}}
        (lab.out / "results").mkdir(parents=True)
        if verbose:
            runner.estimate([figure, chosen], lab, facts)
            assert 0 < len(lab.missing(figure, figure.items(None))) < 50
            assert len(lab.missing(chosen, chosen.items(None))) == 50
            began, left = pool.now(), 0.05 * len(lab.missing(figure, figure.items(None)))
            runner.run_figure(figure, lab, facts)
            assert pool.now() - began == pytest.approx(left, abs=0.051)
            assert facts["seconds"]["1"] == pytest.approx(2.5, abs=0.2)
        else:
            runner.run_figure(figure, lab, facts)
        results[verbose] = {path.name: path.read_bytes() for path in lab.out.rglob("figure1.json*")}
    assert results[True] == results[False]


def test_ctrl_c_says_how_to_go_on(tmp_path, monkeypatch, capsys):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(runner, "run_figure", stop)
    for resume, said in ((True, "the same again"), (False, "--no-resume")):
        with pytest.raises(KeyboardInterrupt):
            run("quick", tmp_path, figures="theory", resume=resume, verbose=False)
        assert said in capsys.readouterr().err
    assert command(tmp_path, "--figures", "theory").exit_code == 130


def test_facts_say_where_results_come_from(calm):
    facts = json.loads((calm / "run.json").read_text())
    assert {"preset", "seed", "version", "commit", "machine", "started", "digits", "jobs"} <= set(facts)
    assert set(facts["seconds"]) == set(facts["cpu_seconds"]) == {"1", "3"}


def test_all_commits_of_a_run_are_named():
    assert _commits(None, "a") == _commits("a", "a") == _commits("a", None) == "a"
    assert _commits("a, b with changes", "c") == "a, b with changes, c"
    assert _commits(None, None) is None
