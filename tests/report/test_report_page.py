"""The page of a fit where something is missing, long or hostile, and how it looks in a browser."""

from __future__ import annotations

import re
import shlex
import warnings

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("matplotlib", reason="figures need the report extra")
pytest.importorskip("jinja2", reason="the page needs the report extra")

import browser
from fits import HOSTILE, SCRIPT, Made, cancer, counts, diabetes, groups, hostile, huber, planted, softmax, targets
from pages import CONTRAST, OVERFLOW, Tree, plain

from ksparse import PGD, KSparseClassifier, KSparseRegressor, load
from ksparse.report import HeldOut, fit_page, write_page
from ksparse.report import model as report_model
from ksparse.report.words import visible


@pytest.fixture(scope="module")
def made():
    return Made()


def body(tree):
    return plain(tree.all("body")[0]["text"])


# --- what is missing, long or hostile --------------------------------------------------------------------------------
def test_what_is_not_there_is_not_claimed(made, tmp_path):
    for kind in (cancer, softmax, targets, groups, counts, huber):
        model, *_ = made(kind)
        model.save(tmp_path / "model.json")
        page = fit_page(load(tmp_path / "model.json"), data="a", rows=7, target="y", model_file=tmp_path / "model.json")
        text = body(Tree(page))
        assert not Tree(page).all("figure")
        assert "No rows were held out" in text
        assert "read from a file" in text
        assert "converged" not in text
        assert "Cross-validation" not in text
        for table in Tree(page).tables("features"):
            assert len(table) > 1


def test_a_search_that_did_not_finish_says_why_and_what_to_do():
    X, y, _ = planted()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = KSparseRegressor(k=3, solver=PGD(iterations=2)).fit(X, y)
    page = fit_page(model, data="a", rows=400, target="y")
    (notice, *_) = Tree(page).all("div", "notice")
    assert model.status_ == "stage limit"
    assert "did not finish" in notice["text"]
    assert visible(model.status_.remedy) in notice["text"]
    assert "unfinished" in body(Tree(page))


def test_nothing_of_the_data_becomes_markup(made):
    _, _, known, page = made(hostile)
    tree = Tree(page)
    text = body(tree)
    for name in HOSTILE:
        assert plain(visible(name)) in text
    assert SCRIPT in tree.all("h1")[0]["text"] or "…" in tree.all("h1")[0]["text"]
    assert "\u202e" not in page
    assert "\x00" not in page
    drawn = [plain(e["text"]) for e in tree.all("li") if "figcaption" in e["in"]]
    assert SCRIPT in drawn
    assert r"$x^2$ and \frac{a_b}" in drawn
    (command,) = [e["text"] for e in tree.all("code") if "ksparse predict" in e["text"]]
    assert shlex.split(command)[:3] == ["ksparse", "predict", known["model_file"]]
    page.encode()


def test_names_that_no_page_can_hold_do_not_stop_it(tmp_path):
    X, y, _ = planted(d=2)
    model = KSparseRegressor(k=1).fit(pd.DataFrame(X, columns=["a", "b"]), y)
    model.feature_names_in_ = np.array(["a\udcff", "b\udcff"], dtype=object)  # as a file with bytes of no text has them
    page = fit_page(model, data="\udcff.csv", rows=400, target="\udc80", model_file="\udcfe.json")
    write_page(page, tmp_path / "page.html")
    assert r"\udcff</bdi>" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_many_features_outputs_and_stages_fold_away(monkeypatch):
    monkeypatch.setattr(report_model, "MOST", 30)
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 45))
    model = KSparseRegressor(k=40, l2=0.1).fit(X, X @ rng.standard_normal(45))
    page = fit_page(model, data="a", rows=200, target="y")
    assert "15 more features" in page
    assert "10 less useful features are not shown" in page
    assert len(Tree(page).tables("features")[1]) == 1 + 5
    assert not Tree(page).all("p", "formula")
    y = rng.permutation(np.arange(200) % 60)
    model = KSparseClassifier(k=1, multi_class="ovr").fit(X[:, :5], y)
    held_out = HeldOut(y, model.predict_proba(X[:, :5]))
    page = fit_page(model, data="a", rows=200, target="y", held_out=held_out)
    assert len(page.encode()) < 400_000
    assert "The other 20 outputs" in page
    assert "Most frequent confusions" in page
    history = model.history_[0]
    long = type(history)(*(np.linspace(9.0, 1.0, 20_000) for _ in history))
    one = KSparseRegressor(k=1).fit(X[:, :5], X[:, 0])
    one.history_ = long._replace(gradients=np.arange(20_000) * 200)
    assert len(fit_page(one, data="a", rows=200, target="y").encode()) < 60_000


# --- in a browser ----------------------------------------------------------------------------------------------------
in_browser = pytest.mark.skipif(not browser.EXECUTABLE, reason=browser.MISSING)
OPEN = "document.querySelectorAll('details').forEach(part => part.open = true)"
# texts of pictures that reach out of them
CUT = """[...document.querySelectorAll('figure > svg')].flatMap(svg => {
  const box = svg.getBoundingClientRect();
  return [...svg.querySelectorAll('text')].filter(text => {
    const own = text.getBoundingClientRect();
    return own.left < box.left - 1 || own.right > box.right + 1 || own.top < box.top - 1 || own.bottom > box.bottom + 1;
  }).map(text => text.textContent);
})"""


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    with browser.Browser(tmp_path_factory.mktemp("browser")) as running:
        yield running


@in_browser
@pytest.mark.parametrize(("width", "dark"), [(1280, False), (360, False), (1280, True), (360, True)])
@pytest.mark.parametrize(
    "kind",
    [cancer, *(pytest.param(kind, marks=pytest.mark.long) for kind in (softmax, targets, counts)), hostile],
    ids=lambda kind: kind.__name__,
)
def test_the_page_in_a_browser(made, chromium, tmp_path, kind, width, dark):
    file = tmp_path / "page.html"
    write_page(made(kind)[3], file)
    page = chromium.open(file.as_uri(), width=width, dark=dark)
    assert page.complaints == []
    assert page.requests == [file.as_uri()]  # itself, and nothing else
    assert page.evaluate("document.scripts.length + document.images.length") == 0
    assert page.evaluate(OVERFLOW) == 0
    page.evaluate(OPEN)
    assert page.evaluate(OVERFLOW) == 0
    ratio, where = page.evaluate(CONTRAST)
    assert ratio >= 4.5, where
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (int(re.search(r"\d+", background)[0]) < 60) == dark
    assert page.evaluate(CUT) == []
    assert page.evaluate("[...document.querySelectorAll('figure > svg')].every(svg => svg.clientWidth > 200)")
    page.close()


@in_browser
def test_scripts_in_names_do_not_run(made, chromium, tmp_path):
    """The policy inside the page forbids scripts anyway: without it, too, nothing of the names is one."""
    page_text = re.sub(r"<meta http-equiv[^>]*>", "", made(hostile)[3])
    file = tmp_path / "page.html"
    write_page(page_text.replace("<head>", "<head><script>window.alert = () => { window.ran = true; }</script>"), file)
    page = chromium.open(file.as_uri())
    assert page.evaluate("typeof window.alert") == "function"
    assert page.evaluate("window.ran === undefined")
    assert page.evaluate("document.scripts.length") == 1
    assert page.complaints == []
    page.close()


@in_browser
def test_the_page_on_paper(made, chromium, tmp_path):
    file = tmp_path / "page.html"
    write_page(made(diabetes)[3], file)
    page = chromium.open(file.as_uri(), width=680, height=990, dark=True, media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"  # dark or not
    assert page.evaluate("getComputedStyle(document.querySelector('figure text')).fill") == "rgb(28, 30, 33)"
    assert page.evaluate(OVERFLOW) == 0
    assert 2 <= len(re.findall(rb"/Type\s*/Page\b", page.pdf())) <= 5
    page.close()
