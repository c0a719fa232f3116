"""The paper's experiments on recovery: trials, early verdicts, searches, and a run that survives kills."""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
import sys
import time
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from typer.testing import CliRunner

from ksparse import IHT, PGD, minimize
from ksparse.cli import app
from ksparse.paper import (
    FIGURES,
    draw,
    minimum_measurements,
    phase_transitions,
    recovery,
    run,
    runner,
    savings,
    success_curves,
)
from ksparse.paper.lab import PRESETS, Lab, _commits
from ksparse.paper.recovery import Gram, descend, forecast, moments
from ksparse.paper.runner import choose
from ksparse.sensing.phase import Experiment, Ledger, locked


def problem(n, K, trial=0):
    A, x, y, _ = Experiment(algorithm="htp", matrix="cell", seed=3).problem(n, K, trial)
    return A, x, y, Gram(A.T @ A, A.T @ y, float(np.linalg.norm(y)), x)


# --- trials ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("n", "K", "k", "step"), [(100, 4, 36, "spectral"), (60, 10, 90, "spectral"), (200, 6, 6, 1.0)]
)
def test_descent_on_the_gram_matrix_is_pgd(n, K, k, step):
    A, _, y, gram = problem(n, K)
    eta = 2 / np.linalg.norm(A, 2) ** 2 if step == "spectral" else step
    solver = PGD(step="spectral", iterations=150, tol=0) if step == "spectral" else IHT(iterations=150, tol=0)
    expected = minimize(A, y, k, solver=solver)
    x = np.zeros(256)
    entered, again = descend(gram.G, gram.b, x, k, eta, 150, np.full(256, np.nan))
    np.testing.assert_allclose(x, expected.x, rtol=1e-7, atol=1e-9)
    assert np.count_nonzero(x) == k
    assert entered >= k
    assert not again


def test_descent_knows_when_it_is_back():
    _, _, _, gram = problem(200, 3)
    x = np.zeros(256)
    assert not descend(gram.G, gram.b, x, 3, 0.5, 20, x.copy())[1]
    descend(gram.G, gram.b, x, 3, 0.5, 2000, np.full(256, np.nan))
    assert descend(gram.G, gram.b, x, 3, 0.5, 5, x.copy()) == (0, True)


def test_a_forecast_is_the_iterate_to_come():
    A, _, _, gram = problem(160, 8)
    eta, k, x = 2 / np.linalg.norm(A, 2) ** 2, 72, np.zeros(256)
    entered = 1
    while entered:
        entered, _ = descend(gram.G, gram.b, x, k, eta, 100, np.full(256, np.nan))
    for left in (7, 400):
        outlook = forecast(gram, x, k, left, eta, 1.0, 1.001)
        later = x.copy()
        entered, _ = descend(gram.G, gram.b, later, k, eta, outlook.quiet, np.full(256, np.nan))
        assert entered == 0
        np.testing.assert_allclose(outlook.x, later, rtol=1e-8, atol=1e-11)


def test_a_forecast_refuses_what_it_cannot_know():
    _, x, _, gram = problem(100, 4)
    assert forecast(gram, x, 36, 100, 0.3, 1.0, 1.001).success is None  # 4 columns of 36: any other may enter
    start = np.zeros(256)
    descend(gram.G, gram.b, start, 36, 0.3, 1, np.full(256, np.nan))
    assert forecast(gram, start, 36, 100, 0.3, 1.0, 1e9).quiet == 0  # everything is too near


@pytest.mark.parametrize("left", [1, 2, 3, 50, 70_000])
def test_moments_go_to_the_end(left):
    at = moments(left)
    assert at[0] == 1
    assert at[-1] == left
    assert (np.diff(at) > 0).all()


CELLS = [("pgd", 150, 14), ("pgd", 96, 6), ("pgd", 40, 20), ("iht", 140, 9), ("iht", 200, 12)]


@pytest.mark.parametrize(("algorithm", "n", "K"), CELLS)
def test_early_verdicts_are_those_of_all_iterations(algorithm, n, K):
    for signal in ("gaussian", "sign"):
        for trial in range(1):
            early, full = (recovery.solve(algorithm, signal, K, n, trial, 5, early=early) for early in (True, False))
            assert early.success == full.success, (signal, trial, early, full)


@pytest.mark.long
@pytest.mark.parametrize("algorithm", ["ht-svrg", "ht-svrg-random"])
def test_early_verdicts_are_those_of_all_stages(algorithm):
    for n, K in ((150, 14), (176, 16), (96, 6)):
        for trial in range(3):
            early, full = (
                recovery.solve(algorithm, "gaussian", K, n, trial, 5, early=early) for early in (True, False)
            )
            assert early.success == full.success, (n, K, trial, early, full)


def test_trials_of_ht_svrg_at_both_ends():
    easy = recovery.solve("ht-svrg", "gaussian", 2, 120, 0, 0)
    hard = recovery.solve("ht-svrg", "gaussian", 20, 60, 0, 0)
    assert (easy.success, hard.success) == (True, False)
    assert max(easy.stages, hard.stages) < 1000
    assert recovery.solve("ht-svrg", "gaussian", 2, 120, 0, 0) == easy
    assert not recovery.solve("ht-svrg", "gaussian", 3, 1, 0, 0).success  # a single row


def test_a_single_row_makes_ht_svrg_pgd():
    A, _, y, gram = problem(1, 3)
    from ksparse import HTSVRG

    stages = minimize(A, y, 27, solver=HTSVRG(step="spectral", m=3, stages=20, tol=0), random_state=0)
    x = np.zeros(256)
    descend(gram.G, gram.b, x, 27, 2 / np.linalg.norm(A, 2) ** 2, 60, np.full(256, np.nan))
    np.testing.assert_allclose(x, stages.x, atol=1e-12)


# --- figures ---------------------------------------------------------------------------------------------------------
def test_every_figure_has_all_its_parts():
    modules = choose(None)
    assert [module.NUMBER for module in modules] == list(FIGURES)
    assert {*"12345678"} <= set(FIGURES)
    for place, module in enumerate(modules):
        assert module.TITLE
        assert module.TEXT
        assert set(module.CONFIG) == set(PRESETS)
        assert set(module.NEEDS) <= {other.NUMBER for other in modules[:place]}


def test_figures_bring_what_they_need():
    assert [module.NUMBER for module in choose(["3"])] == ["1", "3"]
    assert [module.NUMBER for module in choose(["7", "1"])] == ["1", "6", "8", "7"]
    assert [module.NUMBER for module in choose("7, 1 ,7")] == ["1", "6", "8", "7"]  # "12" are not figures 1 and 2
    with pytest.raises(ValueError, match="figures must be one of"):
        choose("12")


def counts(rates, trials=100):
    """A summary with these rates at n = 100, 110, ... for each K."""
    cells = [(K, 100 + 10 * i, rate) for K, line in rates.items() for i, rate in enumerate(line)]
    return {
        "K": [K for K, _, _ in cells],
        "n": [n for _, n, _ in cells],
        "trials": [trials] * len(cells),
        "successes": [round(rate * trials) for _, _, rate in cells],
        "rules": {},
    }


def test_claims_of_figure_1_follow_the_counts():
    early, late = {4: [0.2, 0.9, 1, 1], 8: [0, 0.3, 0.8, 1]}, {4: [0, 0, 0.3, 1], 8: [0, 0, 0, 0.4]}
    as_paper = {"iht gaussian": counts(late), "pgd gaussian": counts(early), "ht-svrg gaussian": counts(early)}
    assert [claim.verdict for claim in phase_transitions.claims({"1": as_paper})] == ["agrees", "agrees"]
    opposite = {"iht gaussian": counts(early), "pgd gaussian": counts(late), "ht-svrg gaussian": counts(early)}
    assert [claim.verdict for claim in phase_transitions.claims({"1": opposite})] == ["differs", "differs"]


def test_where_pgd_alone_recovers_signals_is_said():
    def found(pgd):
        shares = {"iht": [0] * 8, "pgd": pgd, "ht-svrg": [0, 0, 0, 0, 0, 0, 0.4, 1]}
        return {f"{name} gaussian": counts({20: rates}) for name, rates in shares.items()}

    plain, island = [0, 0, 0, 0, 0.3, 0.5, 0.7, 1], [0.07, 0, 0.12, 0, 0.3, 0.5, 0.7, 1]
    assert "The reason is not known" not in phase_transitions.claims({"1": found(plain)})[1].reason
    told = phase_transitions.claims({"1": found(island)})[1].reason
    assert "5% to 12% of the signals in 2 cells" in told
    assert "n from 100 to 120" in told


def oracle(thresholds):
    """Trials that succeed from some n on, and one in 30 fails below 8 more."""

    def trial(seed, algorithm, signal, K, n, trial):
        at = thresholds[algorithm, K]
        return {"success": n >= at + 8 or (n >= at and trial % 30 != 7), "stages": 1, "rule": "error"}

    return trial


def test_searches_walk_up_to_both_levels(monkeypatch, tmp_path):
    figure, config = minimum_measurements, minimum_measurements.MinimumMeasurementsConfig((4, 8, 12), 60, 1)
    thresholds = {(name, K): 9 * K + 30 + i for i, name in enumerate(phase_transitions.NAMES) for K in config.K}
    thresholds["iht", 12] = 400  # never
    trial = oracle(thresholds)
    monkeypatch.setitem(figure.CONFIG, "quick", config)
    made = []

    def collect(module, items, ledger, verbose):
        made.append(len(items))
        ledger.append({**item, **trial(0, **item)} for item in items)

    table = [
        {"algorithm": name, "signal": "gaussian", "K": K, "n": n, "trial": t} for (name, K) in thresholds
        for n in range(16, 257, 16) for t in range(10)
    ]  # fmt: skip
    lab = SimpleNamespace(
        preset="quick", verbose=False, collect=collect,
        records=lambda module: [{**item, **trial(0, **item)} for item in table],
    )  # fmt: skip
    ledger = Ledger(tmp_path / "walks.jsonl", figure.KEY, figure.KEEP)
    figure.run(lab, ledger)
    records = [{**dict(zip(figure.KEY, key, strict=True)), "success": kept[0]} for key, kept in ledger.kept.items()]
    found = figure.summarise(records)
    for name in phase_transitions.NAMES:
        for i, K in enumerate(config.K):
            at = thresholds[name, K]
            expected = (None, None) if at > 256 else (at, at + 8)  # two of 60 are 3.3%: enough for 95%, not for 99%
            start = figure.start(phase_transitions.summarise(lab.records(None)), name, K)
            got = found[name]["0.95"][i], found[name]["0.99"][i]
            assert got == (expected if at > 256 else (max(at, start), max(at + 8, start))), (name, K)
    before = len(made)
    figure.run(lab, ledger)  # nothing is left to do
    assert len(made) == before
    fit = figure.fit(found, "ht-svrg", 0.99)
    assert fit.explained > 0.9
    assert [claim.verdict for claim in figure.claims({"3": found})] == ["agrees"] * 4


def test_a_curve_that_bends_is_said_to_bend():
    K = list(range(2, 27, 2))
    for n, bends in (([30 + 9 * k for k in K], False), ([30 + 12 * k - k * k // 8 for k in K], True)):
        found = {name: {"K": K, "trials": 100, "0.95": n, "0.99": n} for name in phase_transitions.NAMES}
        linear = minimum_measurements.claims({"3": found})[0]
        assert linear.verdict == "agrees"  # R² is above 0.95 for both
        assert ("concave" in linear.reason) == bends


def test_searches_that_were_killed_make_the_same_trials(monkeypatch, tmp_path):
    figure, config = minimum_measurements, minimum_measurements.MinimumMeasurementsConfig((4,), 60, 1)
    trial = oracle({(name, 4): 70 for name in phase_transitions.NAMES})
    monkeypatch.setitem(figure.CONFIG, "quick", config)
    monkeypatch.setattr(figure, "start", lambda summary, algorithm, K: 64)
    monkeypatch.setattr(phase_transitions, "summarise", lambda records: {})

    def search(name, kills):
        rng = random.Random(kills)
        with Ledger(tmp_path / name, figure.KEY, figure.KEEP) as ledger:

            def collect(module, items, ledger, verbose):
                missing = [item for item in items if tuple(item[field] for field in figure.KEY) not in ledger]
                done = rng.randrange(len(missing)) if rng.random() < kills else len(missing)
                ledger.append({**item, **trial(0, **item)} for item in missing[:done])
                if done < len(missing):
                    raise InterruptedError

            lab = SimpleNamespace(preset="quick", verbose=False, collect=collect, records=lambda module: [])
            stopped = 0
            while True:
                try:
                    figure.run(lab, ledger)
                    break
                except InterruptedError:
                    stopped += 1
            ledger.sort()
        return stopped, (tmp_path / name).read_bytes()

    (never, calm), (often, disturbed) = search("calm", 0.0), search("killed", 0.4)
    assert never == 0 < often
    assert disturbed == calm


def test_savings_count_gradients():
    for algorithm in ("sp", "auto", "ht-svrg-auto", "ht-saga", "ht-svrg", "iht"):
        outcome = savings.trial(0, algorithm, "gaussian", 4, 232, 0)
        assert outcome["success"], algorithm
        assert 0 < outcome["gradients"] < 5000, (algorithm, outcome)
    after_two = savings.minimize(*problem(60, 2)[::2], 18, solver=savings.HTSVRG(stages=5, tol=0), random_state=0,
                                 callback=lambda now: now.stage == 2)  # fmt: skip
    assert after_two.history.gradients[-1] / 60 == 1 + 2 * savings.A_STAGE
    assert savings.trial(0, "sp", "gaussian", 26, 30, 0) == {"success": False, "gradients": -1.0}


@pytest.mark.parametrize(
    ("share", "reliable", "verdicts"),
    [(75, 94, ["agrees", "agrees"]), (35, 62, ["differs", "differs"]), (92, 89, ["differs", "differs"])],
)
def test_each_reading_of_algorithm_1_is_judged_by_its_own_counts(share, reliable, verdicts):
    def line(share, at_22):
        cells = [(16, 168, 0), (16, 175, share), (16, 184, min(share + 20, 100)), (20, 232, 100), (22, 232, at_22)]
        K, n, successes = zip(*cells, strict=True)
        return {"K": K, "n": n, "trials": [100] * 5, "successes": successes, "rules": {}}

    other = line(0, 0)
    grid = {"1": {"ht-svrg gaussian": line(80, 99)}}
    for mine, output in (("ht-svrg", "last iterate"), ("ht-svrg-random", "as printed")):
        found = {f"{name} {signal}": other for name, signal in success_curves.VARIANTS}
        found |= {f"{mine} {signal}": line(share, reliable) for signal in ("gaussian", "sign")}
        claims = success_curves.claims({**grid, "2": found})
        assert len({claim.claim for claim in claims}) == 4
        eighty, reliably = [claim for claim in claims if output in claim.claim]
        assert [eighty.verdict, reliably.verdict] == verdicts
        assert eighty.ours.startswith(f"{share}% at n = 175")
        assert reliably.ours.startswith(f"{reliable}% at K = 22")
        for claim in set(claims) - {eighty, reliably}:
            assert claim.verdict == "differs"
            assert claim.ours.startswith("0%")


@pytest.mark.parametrize(
    ("svrg", "pgd", "verdict"),
    [
        ((41.0, 41.0), (30.0, 40.0), "differs"),
        ((41.0, 41.0), (90.0, 71.0), "agrees"),
        ((41.0, 41.0), (90.0, 60.0), "open"),
    ],
)
def test_what_ht_svrg_costs_beside_pgd_at_every_sparsity(svrg, pgd, verdict):
    cell = {"K": [4, 16], "n": [232, 232], "trials": [25, 25], "successes": [25, 25]}
    found = {f"{name} gaussian": {**cell, "gradients": g} for name, g in (("ht-svrg", svrg), ("pgd", pgd))}
    (claim,) = savings._efficient(found)
    assert claim.verdict == verdict
    assert claim.ours.count("HT-SVRG 41 (70 by the paper's count)") == 2
    assert "n = 232 alone" in claim.reason
    found["ht-svrg gaussian"]["trials"] = [3, 3]
    assert savings._efficient(found)[0].verdict == "open"
    assert savings._efficient({}) == []


def test_the_limits_of_automatic_steps_are_said():
    assert f"{savings.SOLVERS['ht-svrg-auto'].stages} stages of HT-SVRG" in savings.TEXT
    assert f"{savings.SOLVERS['ht-saga'].epochs:,} epochs of HT-SAGA" in savings.TEXT
    assert f"the paper's step {savings.SOLVERS['ht-svrg'].stages:,} stages" in savings.TEXT


def test_variants_cover_what_the_paper_leaves_open():
    config = success_curves.CONFIG["standard"]
    cells = {(i["algorithm"], i["signal"], i["K"], i["n"]) for i in success_curves.items(config)}
    for names in success_curves.VARIANTS:
        assert {(*names, 16, 175), (*names, 22, 232)} <= cells


# --- a whole run -----------------------------------------------------------------------------------------------------
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


def test_overflow_is_silent():
    _, _, _, gram = problem(100, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not gram.error(np.full(256, 1e300)) < 1e8
