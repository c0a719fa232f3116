"""The page of the paper's experiments: what it says, and how it looks in a browser."""

from __future__ import annotations

import base64
import json
import re
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import NamedTuple
from urllib.parse import unquote

import pytest

pytest.importorskip("matplotlib", reason="figures need the report extra")
pytest.importorskip("jinja2", reason="the page needs the report extra")

import browser
from pages import CONTRAST, LOADED, OVERFLOW, Tree, plain

from ksparse._style import new_axes
from ksparse.paper import theory
from ksparse.paper.lab import Claim
from ksparse.paper.page import write_page

HOSTILE = "<script>alert('a')</script> & \"b\" <img src=x onerror=alert(1)> ]]> --> {{ 7 * 7 }}"
LONG = "long" * 60  # nothing to break it at
FACTS = {
    "preset": "quick",
    "version": "1.2.3",
    "commit": "0123abc",
    "started": "2026-03-01T09:05:00+00:00",
    "seconds": {"1": 60.0, "8": 12.0},
    "cpu_seconds": {"1": 110.0, "8": 20.0},
    "machine": "2 cores, a machine",
    "seed": 5,
    "digits": "sklearn 8x8",
    "jobs": 2,
    "rules": ["Stopped once x_k is certain.", HOSTILE],
}


class Config(NamedTuple):
    trials: int = 7
    n: tuple[int, ...] = tuple(range(8, 257, 8))
    step: float = 0.3
    rule: str = HOSTILE


def figure(number, panels=(), claims=(), title="Success", text="It is apparent.", size=(4.2, 3.2)):
    """A module like those of the figures."""
    module = ModuleType(f"figure{number}")
    module.NUMBER, module.TITLE, module.TEXT, module.CONFIG = number, title, text, {"quick": Config()}

    def plot(summaries):
        axes = {name: new_axes(size=size) for name in panels}
        for name, ax in axes.items():
            ax.plot([1, 2], [3, 4], label=f"line of {name.translate({ord('$'): None})}")
            ax.set(xlabel="measurements $n$", ylabel="success (%)")
            ax.legend()
        return axes

    module.plot, module.claims = plot, lambda summaries: list(claims)
    return module


def claims_of(number, verdicts):
    return [
        Claim(
            f"claim {i} of {number}", f"paper {i}", f"ours {i}", verdict, f"reason {i}" if verdict != "agrees" else ""
        )
        for i, verdict in enumerate(verdicts)
    ]


def figures():
    """Of every kind: the bounds, few and many panels, a wide one, none, hostile and long texts, beyond the paper."""
    hostile = [Claim(HOSTILE, HOSTILE, HOSTILE, "differs", HOSTILE), Claim(LONG, LONG, LONG, "open", LONG)]
    return [
        theory,
        figure("1", ("iht", "pgd", "ht-svrg"), claims_of("1", ["agrees", "agrees", "open"]), text="One.\n\nTwo."),
        figure("2", ("left", "right"), hostile, title=HOSTILE, text=HOSTILE),
        figure("6", ("samples",), size=(9, 2)),
        figure("8", ("a",), claims_of("8", ["differs"])),
        figure("savings", ("one",), claims_of("savings", ["agrees"] * 4), title=LONG, text=LONG),
        figure("empty"),
    ]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    out = tmp_path_factory.mktemp("page")
    return write_page(out, figures(), {"theory": theory.summarise([])}, FACTS)


def read(path):
    return Tree(path.read_text(encoding="utf-8"))


def unmarked(text):
    """Without the marks of indices and powers, which are set as such on the page."""
    return re.sub(r"[_^{}]", "", plain(text)).replace("−", "-")


# --- what it says ----------------------------------------------------------------------------------------------------
def test_the_page_is_sound_html(written):
    tree = read(written)
    assert written.read_text().startswith("<!DOCTYPE html>")
    assert tree.all("html")[0]["lang"] == "en-GB"
    assert len(tree.all("h1")) == len(tree.all("main")) == len(tree.all("title")) == 1
    levels = [int(e["tag"][1]) for e in tree.elements if re.fullmatch("h[1-6]", e["tag"])]
    assert all(after - before <= 1 for before, after in pairwise(levels))
    ids = [e["id"] for e in tree.elements if "id" in e]
    assert len(set(ids)) == len(ids)
    for link in tree.all("a"):
        target = link["href"]
        assert target[1:] in ids if target.startswith("#") else (written.parent / unquote(target)).is_file()
    assert all(e["scope"] in ("col", "row", "rowgroup") for e in tree.all("th"))
    for label in (e["aria-labelledby"] for e in tree.elements if "aria-labelledby" in e):
        assert label in ids


def test_pictures_are_inside_and_beside(written):
    tree = read(written)
    pictures = tree.all("img")
    panels = [(f, name) for f in figures() for name in f.plot({"theory": {"K": 10, "d": 1000}})]
    assert len(pictures) == len(panels) == 2 + 3 + 2 + 1 + 1 + 1
    links = [e for e in tree.all("a") if "figures/" in e["href"]]
    for picture, link, (module, name) in zip(pictures, links, panels, strict=True):
        file = written.parent / "figures" / f"figure{module.NUMBER}-{name}.svg"
        assert link["href"] == f"figures/{file.name}"
        kind, _, data = picture["src"].partition(",")
        assert kind == "data:image/svg+xml;base64"
        assert base64.b64decode(data) == file.read_bytes()
        assert name in picture["alt"]
    iht = pictures[2]["alt"]
    axes = "vertical axis: success (%); horizontal axis: measurements n; legend: “line of iht”"
    assert iht == f"Figure 1: Success; panel iht; {axes}"


def test_nothing_of_the_data_becomes_markup(written):
    tree = read(written)
    assert not tree.all("script")
    assert not [name for e in tree.elements for name in e if name.startswith("on")]
    assert all(e["src"].startswith("data:image/svg+xml;base64,") for e in tree.all("img"))
    said = [plain(e["text"]) for e in tree.all("p")]
    assert said.count(plain(HOSTILE)) == 1 + 3 + 1  # the quotation; paper, ours and reason in the table; reason again
    assert "Figure 2 " + plain(HOSTILE) in [plain(e["text"]) for e in tree.all("h3")]
    assert plain(HOSTILE) in [plain(e["text"]) for e in tree.all("li")]
    assert sum(HOSTILE[:30] in e["alt"] for e in tree.all("img")) == 2


def test_every_claim_is_in_the_table_and_with_its_figure(written):
    tree = read(written)
    summaries = {"theory": theory.summarise([])}
    with_claims = [f for f in figures() if f.claims(summaries)]
    claims = [claim for f in with_claims for claim in f.claims(summaries)]
    assert len(claims) > 15
    names = [plain(f"Figure {f.NUMBER} {f.TITLE}" if f.NUMBER.isdigit() else f.TITLE) for f in with_claims]
    assert [plain(e["text"]) for e in tree.all("th", "group")] == names
    cells = [unmarked(e["text"]) for e in tree.elements if e["tag"] == "td" or e.get("scope") == "row"]
    rows = [(c.claim, c.paper, f"{c.ours} {c.reason}", c.verdict) for c in claims]
    assert cells[: 4 * len(rows)] == [unmarked(cell) for row in rows for cell in row]
    beside = [unmarked(e["text"]) for e in tree.all("li") if "main" in e["in"]]
    assert beside[: len(rows)] == [
        unmarked(f"{c.verdict} {c.claim} Paper{c.paper}Here{c.ours} {c.reason}") for c in claims
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("verdicts", "said"),
    [
        (["agrees", "differs", "differs"], ("3 checks", "1 agrees", "2 differ", "0 are")),
        (["open", "agrees", "agrees", "differs"], ("4 checks", "2 agree", "1 differs", "1 is")),
        (["agrees"], ("1 check", "1 agrees", "0 differ", "0 are")),
    ],
)
def test_what_came_out_is_counted(tmp_path, verdicts, said):
    tree = read(write_page(tmp_path, [figure("3", claims=claims_of("3", verdicts))], {}, {}))
    (outcome,) = tree.all("p", "outcome")
    assert plain(outcome["text"]) == (
        "Of {}, {} with the paper, {}, and {} left open by the trials that were run."
    ).format(*said)


def test_what_is_not_known_is_left_out(tmp_path):
    bare = read(write_page(tmp_path / "bare", [figure("8")], {}, {}))
    text = plain(bare.all("body")[0]["text"])
    assert "None" not in text
    assert not bare.all("dl", "facts")
    assert not bare.all("p", "notice")
    assert "stopped early" not in text
    assert "Of 0" not in text
    partly = read(write_page(tmp_path, [figure("8")], {}, {"commit": None, "seed": 0, "seconds": {}}))
    assert [plain(e["text"]) for e in partly.all("dl", "facts")] == ["Seed0"]


def test_what_is_known_of_the_run_is_said(written):
    tree = read(written)
    (known,) = tree.all("dl", "facts")
    for text in ("quick", "1.2.3", "0123abc", "1 March 2026, 09:05 UTC", "72 s, 2 min of processor time", "a machine"):
        assert text in known["text"]
    body = plain(tree.all("body")[0]["text"])
    assert "ksparse paper --preset quick --out DIR --seed 5" in body
    assert "n 8, 16, …, 256 (32 values)" in body
    assert "step 0.3" in body
    assert "Stopped once xk is certain." in body


def test_digits_that_are_not_mnist_are_named(tmp_path, written):
    said = [plain(e["text"]) for e in read(written).all("p", "notice")]
    assert "The figures of digits come from scikit-learn’s own 8 × 8 digits" in said[0]
    assert len(said) == 1 + 2  # Figures 6 and 8
    for name, numbers, digits in (("a", ["8"], "mnist"), ("b", ["1"], "sklearn 8x8")):
        page = read(write_page(tmp_path / name, [figure(number) for number in numbers], {}, {"digits": digits}))
        assert not page.all("p", "notice")


def test_beyond_the_paper_is_apart_and_not_a_quotation(written):
    tree = read(written)
    headings = [plain(e["text"]) for e in tree.elements if e["tag"] in ("h2", "h3")]
    after = headings[headings.index("Beyond the paper") :]
    assert after[1:3] == [LONG, "Success"]
    assert len(tree.all("blockquote")) == 5
    assert "Nothing is drawn yet" in tree.all("body")[0]["text"]
    assert [plain(e["text"]) for e in tree.all("figcaption")][:2] == [
        "Shen and Li, abridged",
        "Shen and Li, on Figure 1, abridged",
    ]


def test_the_same_results_give_the_same_files(tmp_path):
    for name in ("one", "other"):
        write_page(tmp_path / name, [figure("1", ("$n$ / K",))], {}, FACTS)
    one, other = (
        {
            path.relative_to(tmp_path / name): path.read_bytes()
            for path in (tmp_path / name).rglob("*")
            if path.is_file()
        }
        for name in ("one", "other")
    )
    assert sorted(path.name for path in one) == ["figure1-n-K.svg", "index.html"]  # and nothing half-written
    assert one == other


def test_without_jinja_the_remedy_is_said(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "jinja2", None)
    with pytest.raises(ImportError, match=r"pip install 'ksparse\[report\]'"):
        write_page(tmp_path, [], {}, {})


# --- the bounds ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("paper", "ours", "verdict"),
    [
        ("1.618", "1.6180", "agrees"),
        ("equality holds", "99 of 99", "agrees"),
        ("≤ 0.18", "0.1768", "agrees"),
        ("≤ 0.22", "0.2185", "agrees"),
        ("≤ 0.32", "0.3162", "agrees"),
        ("0.67", "0.6545", "differs"),
        ("≤ 0.31", "0.3122", "agrees"),
        ("≈ 1.15", "1.1547", "agrees"),
        ("slightly larger than K", "k > 12K", "differs"),
        ("β = 2/3", "0.6667", "agrees"),
        ("m > c/(νη′(1 − η′))", "1.75 times", "differs"),
    ],
)
def test_the_bounds_of_the_paper(paper, ours, verdict):
    summary = json.loads(json.dumps(theory.summarise([]), allow_nan=False))
    (claim,) = [claim for claim in theory.claims({"theory": summary}) if paper in claim.paper]
    assert ours in claim.ours
    assert claim.verdict == verdict
    assert claim.reason or verdict == "agrees"


def test_bounds_are_judged_by_their_numbers():
    summary = theory.summarise([])
    summary["iht"] |= {"tight": 0.2401, "ratio": 0.6712}
    summary["bound"]["attained"] -= 1
    by_paper = {claim.paper: claim for claim in theory.claims({"theory": summary})}
    assert by_paper["“δ_3K ≤ 0.22 suffices”"].verdict == "differs"
    assert by_paper["“dramatically reduced with a factor of 0.67”"].verdict == "agrees"
    assert [c.verdict for p, c in by_paper.items() if "equality" in p] == ["differs"]
    assert theory.claims({}) == []
    assert theory.plot({}) == {}
    assert theory.items(theory.CONFIG["quick"]) == []


# --- in a browser ----------------------------------------------------------------------------------------------------
in_browser = pytest.mark.skipif(not browser.EXECUTABLE, reason=browser.MISSING)


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    with browser.Browser(tmp_path_factory.mktemp("browser")) as running:
        yield running


@in_browser
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 360])
def test_the_page_in_a_browser(chromium, written, width, dark):
    page = chromium.open(written.as_uri(), width=width, dark=dark)
    assert page.evaluate("innerWidth") == width
    loaded = page.evaluate(LOADED)
    assert loaded == [True] * 10
    assert page.complaints == []
    assert page.requests == [written.as_uri()]  # itself, and nothing else
    assert page.evaluate(OVERFLOW) == 0
    ratio, where = page.evaluate(CONTRAST)
    assert ratio >= 4.5, where
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (int(re.search(r"\d+", background)[0]) < 60) == dark
    card = page.evaluate("getComputedStyle(document.querySelector('.panels figure')).backgroundColor")
    assert card == "rgb(255, 255, 255)"
    page.close()


@in_browser
@pytest.mark.parametrize(("width", "dark"), [(1280, False), (360, True)])
def test_the_committed_page_in_a_browser(chromium, width, dark):
    folder = Path(__file__).parents[2] / "docs" / "paper"
    page = chromium.open((folder / "index.html").as_uri(), width=width, dark=dark)
    assert page.evaluate(LOADED) == [True] * len(list((folder / "figures").iterdir()))
    assert page.complaints == []
    assert page.requests == [(folder / "index.html").as_uri()]
    assert page.evaluate(OVERFLOW) == 0
    assert page.evaluate(CONTRAST)[0] >= 4.5
    page.close()


@in_browser
def test_the_page_on_paper(chromium, written):
    width, height = round(180 / 25.4 * 96), round(263 / 25.4 * 96)  # A4 without its margins, in pixels
    page = chromium.open(written.as_uri(), width=width, height=height, dark=True, media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"  # dark or not
    assert page.evaluate(OVERFLOW) == 0
    kept = page.evaluate(
        "[...document.querySelectorAll('figure')].map(f => [getComputedStyle(f).breakInside, f.offsetHeight])"
    )
    assert len(kept) == 10 + 5
    assert all(rule == "avoid" and tall < height for rule, tall in kept)
    pdf = page.pdf()
    assert pdf.startswith(b"%PDF-")
    assert 3 <= len(re.findall(rb"/Type\s*/Page\b", pdf)) <= 20
    page.close()


@in_browser
def test_the_browser_sees_what_is_wrong(chromium, tmp_path):
    """A page with every fault that the tests above look for."""
    bad = tmp_path / "bad.html"
    bad.write_text(
        "<!DOCTYPE html><meta charset=utf-8><p style='width: 2000px; color: #888; background: #777'>wide</p>"
        "<img src='missing.png'><img src='http://127.0.0.1:9/x.png'><script>console.error('oh'); nothing();</script>"
    )
    page = chromium.open(bad.as_uri(), width=360)
    assert page.evaluate(LOADED) == [False, False]
    complaints = " ".join(page.complaints)
    assert "oh" in complaints
    assert "Uncaught" in complaints
    assert "ERR_FILE_NOT_FOUND" in complaints
    assert "http://127.0.0.1:9/x.png" in page.requests
    assert page.evaluate(OVERFLOW) > 1000
    assert page.evaluate(CONTRAST)[0] < 1.5
    with pytest.raises(RuntimeError, match="nothing is not defined"):
        page.evaluate("nothing()")
    page.close()
