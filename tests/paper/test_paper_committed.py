"""The run that docs/paper holds: its page is what its summaries say, with today's code."""

from __future__ import annotations

import html
import json
import re
import shutil
from pathlib import Path

import pytest

from ksparse.paper import FIGURES, draw
from ksparse.paper.recovery import HT_SVRG, explain_rules
from ksparse.paper.runner import choose

RUN = Path(__file__).parents[2] / "docs" / "paper"


@pytest.fixture(scope="module")
def summaries():
    return {name: json.loads((RUN / "summary" / f"figure{name}.json").read_text(encoding="utf-8")) for name in FIGURES}


def plain(page):
    """The words of a page, whatever its marks."""
    return " ".join(html.unescape(re.sub(r"<[^>]+>", "", page)).split())


def test_the_run_is_whole(summaries):
    facts = json.loads((RUN / "run.json").read_text(encoding="utf-8"))
    assert facts["preset"] == "standard"
    assert facts["digits"] == "mnist"
    assert facts["commit"]
    assert facts["machine"]
    assert set(facts["seconds"]) == set(FIGURES)
    assert sum(facts["cpu_seconds"].values()) / facts["jobs"] < 90 * 60  # an hour and a half on two cores
    for algorithm in ("iht", "pgd", "ht-svrg"):
        counts = summaries["1"][f"{algorithm} gaussian"]
        assert set(counts["trials"]) == {100}
        assert len(counts["n"]) == 33 * 14


@pytest.mark.long
def test_it_is_drawn_again_from_its_summaries(tmp_path):
    shutil.copytree(RUN / "summary", tmp_path / "summary")
    shutil.copy(RUN / "run.json", tmp_path)
    page = draw(tmp_path)
    committed = sorted(path.name for path in (RUN / "figures").iterdir())
    assert sorted(path.name for path in (tmp_path / "figures").iterdir()) == committed
    assert {name.split("-")[0] for name in committed} >= {f"figure{number}" for number in "12345678"}
    assert plain(page.read_text(encoding="utf-8")) == plain((RUN / "index.html").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def claims(summaries):
    return [claim for figure in choose(None) for claim in figure.claims(summaries)]


def test_claims_that_the_page_must_have(claims):
    """Not every number of the text: the page lists what it leaves out."""
    assert len({claim.claim for claim in claims}) == len(claims)
    said = " ".join(f"{claim.claim} {claim.paper}" for claim in claims)
    for words in (
        "1.618", "0.18", "0.22", "0.32", "0.67", "0.31", "1.15", "β = 2/3",
        "175 measurements", "232 measurements", "almost linear", "comparably", "fewer measurements",
        "0.3", "10^120", "20 thousands", "20 stages", "k=70", "10⁻³",
    ):  # fmt: skip
        assert words in said, words
    page = (RUN / "index.html").read_text(encoding="utf-8")
    assert "every number" not in page
    assert 'href="#missing"' in page


@pytest.mark.parametrize(
    ("about", "rates"), [("175 measurements", ("77%", "35%")), ("232 measurements", ("96%", "62%"))]
)
def test_each_reading_of_algorithm_1_has_its_row(claims, about, rates):
    last, printed = [claim for claim in claims if about in claim.claim]
    assert (last.verdict, printed.verdict) == ("agrees", "differs")
    assert "as printed" in printed.claim
    assert (last.ours[:3], printed.ours[:3]) == rates


def test_verdicts_say_how_far_they_carry(claims):
    """Statements whose verdict depends on a choice of ours, or which trials reach only in part."""
    for name, verdict, words in (
        ("the theorem guarantees this convergence", "differs", "however large m is"),
        ("when the line begins at η = 3e-5", "open", "neither m nor whether steps are meant"),
        ("HT-SVRG is cheaper than PGD, n = 232", "differs", "neither is tested here"),
        ("whether variance reduction is necessary", "beyond", "a question"),
        ("Solutions with the ℓ₁ norm are not sparse", "open", "two limits of our own"),
        ("Stochastic steps spoil the sparsity of ℓ₁", "open", "were not run"),
        ("n for 95% success is almost linear with K", "agrees", "concave"),
        ("HT-SVRG performs comparably to PGD", "agrees", "K from 16 to 22"),
        ("The largest value of √ν", "agrees", "not tested here"),
    ):
        (claim,) = [claim for claim in claims if claim.claim == name]
        assert claim.verdict == verdict, name
        assert words in claim.reason, name


def test_the_accuracy_is_that_of_the_optimum(claims):
    """Line 382 of the paper's source speaks of x_opt."""
    (claim,) = [claim for claim in claims if "statistical precision" in claim.paper]
    assert claim.paper.startswith("“the convergence to x_opt is only guaranteed")


def test_rules_were_measured_on_enough_trials(summaries):
    changed, decided = explain_rules(summaries["1"])[-2:]
    assert explain_rules()[-1] == changed
    found = re.findall(r"([\w-]+) (\d+) of ([\d,]+) verdicts", changed)
    assert {name for name, _, _ in found} == {"iht", "pgd", *HT_SVRG}
    for _, wrong, trials in found:
        many = int(trials.replace(",", ""))
        assert many >= 200  # of which 0.5% is one
        assert int(wrong) <= 0.005 * many
    assert (
        "pgd: forecast 14,905 of 46,200, checked on 119 (up to 3%), stagnant 5,694 of 46,200, checked on 14" in decided
    )
