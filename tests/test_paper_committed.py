"""The run that docs/paper holds: its page is what its summaries say, with today's code."""

from __future__ import annotations

import html
import json
import re
import shutil
from pathlib import Path

import pytest

from ksparse.paper import FIGURES, draw
from ksparse.paper._recovery import HT_SVRG
from ksparse.paper._run import choose
from ksparse.paper._verdict import rules

RUN = Path(__file__).parent.parent / "docs" / "paper"


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


def test_every_number_of_the_text_has_its_claim(summaries):
    claims = [claim for figure in choose(None) for claim in figure.claims(summaries)]
    assert len({claim.claim for claim in claims}) == len(claims)
    said = " ".join(f"{claim.claim} {claim.paper}" for claim in claims)
    for words in (
        "175 measurements",
        "232 measurements",
        "almost linear",
        "comparably",
        "IHT",
        "10^120",
        "20 stages",
        "70",
    ):
        assert words in said, words


def test_rules_were_measured_on_enough_trials():
    last = rules()[-1]
    assert "changed" in last
    found = re.findall(r"([\w-]+) (\d+) of ([\d,]+) verdicts", last)
    assert {name for name, _, _ in found} == {"iht", "pgd", *HT_SVRG}
    for _, changed, trials in found:
        many = int(trials.replace(",", ""))
        assert many >= 200  # of which 0.5% is one
        assert int(changed) <= 0.005 * many
