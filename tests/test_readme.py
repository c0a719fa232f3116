"""The README is true: its code runs, and its numbers are those of the committed benchmark."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path

import pytest
from problems import sensing

from ksparse import HTSVRG, minimize

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_first_model_runs():
    (code,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    assert len(code.strip().splitlines()) <= 11
    scope = {}
    exec(code, scope)
    assert scope["model"].support_.size == 3
    quoted = float(re.search(r"score\(X_test, y_test\)\)  # ([0-9.]+?)\.\.\.", code)[1])
    assert quoted <= scope["model"].score(scope["X_test"], scope["y_test"]) < quoted + 0.01


def test_the_table_is_that_of_the_benchmark():
    show = load(ROOT / "benchmarks" / "show_steps.py")
    report = json.loads(show.DATA.read_text())
    assert show.readme_with(README, show.table(report)) == README
    assert all(check["ok"] for check in report["checks"])
    assert show.PICTURE.exists()


def test_the_table_of_streams_is_that_of_the_benchmark():
    show = load(ROOT / "benchmarks" / "show_stream.py")
    report = json.loads(show.DATA.read_text())
    assert show.readme_with(README, show.table(report)) == README
    fits = [report[part][work] for part in show.FILES for work in show.FITS]
    assert all(fit["resident"] < report["limit"] for fit in fits)


def test_the_quoted_remedy_is_a_real_one():
    A, y, _ = sensing()
    status = minimize(A, y, 36, solver=HTSVRG(step=3.0), random_state=0).status
    assert f"`{status.message}; {status.remedy}`" in README


def test_the_two_commands_stand_at_the_top():
    head = README.splitlines()[:10]
    assert any(line.startswith("make demo") for line in head)
    assert any(line.startswith("make test") for line in head)
    makefile = (ROOT / "Makefile").read_text()
    assert "\ndemo:" in makefile
    assert "\ntest:" in makefile


def test_the_demo_runs(capsys, monkeypatch):
    demo = load(ROOT / "examples" / "demo.py")
    asked = []  # the paper's figures have tests of their own, and take minutes

    def run(*what):
        asked.append(what)
        return Path("build/paper/index.html")

    monkeypatch.setattr(demo, "run", run)
    demo.main()
    out = capsys.readouterr().out
    assert "worst" in out
    assert "bmi" in out
    assert asked == [("quick", "build/paper")]
    assert "build/paper/index.html" in out


def test_the_tables_of_recovery_are_those_of_the_benchmarks():
    show = load(ROOT / "benchmarks" / "show_recovery.py")
    assert show.page_with(show.PAGE.read_text(), show.fragment()) == show.PAGE.read_text()


@pytest.mark.parametrize("page", ["theory.md", "estimators.md", "sensing.md"])
def test_the_pages_are_true(page):
    import doctest

    flags = doctest.NORMALIZE_WHITESPACE
    results = doctest.testfile(str(ROOT / "docs" / page), module_relative=False, optionflags=flags)
    assert results.attempted > 10
    assert results.failed == 0


def test_links_lead_somewhere():
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "docs").glob("*/*.md")]
    for page in pages:
        for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / link).exists(), f"{page.name}: {link}"


def test_the_page_beside_peers_is_that_of_its_numbers(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    show = load(ROOT / "benchmarks" / "show_peers.py")
    folder = ROOT / "docs" / "benchmarks"
    reports = {name: json.loads((folder / f"{name}.json").read_text()) for name in show.PARTS}
    assert show.page(reports) == (folder / "peers.md").read_text()
    objective = {}
    for key, cell in reports["peers"]["cells"].items():
        if "objective" in cell:
            work, k, method = key.split("|")
            objective.setdefault((work, k), {})[method] = cell["objective"]
    assert len(objective) == 10
    for found in objective.values():  # no peer has found a better support on any work
        assert found["ksparse"] <= min(found.values()) * (1 + 1e-6)


@pytest.mark.parametrize("name", ["theory", "estimators", "phase"])
def test_the_figures_are_those_committed(name, tmp_path):
    pytest.importorskip("matplotlib", reason="figures need the report extra")
    made = load(ROOT / "examples" / f"{name.removesuffix('s')}_figures.py").main(tmp_path)
    assert {path.name for path in made} == {path.name for path in (ROOT / "docs" / name).glob("*.svg")}
    for path in made:
        assert path.stat().st_size > 8_000
        text = path.read_text()
        committed = (ROOT / "docs" / name / path.name).read_text()
        # labels are text in the file: the same words, whatever matplotlib's version does to the strokes
        assert re.findall(r"<text[^>]*>([^<]+)<", text) == re.findall(r"<text[^>]*>([^<]+)<", committed)
