"""The page of a fit: its numbers are the model's and those of its held-out rows."""

from __future__ import annotations

import re
import shlex
import sys
from itertools import pairwise

import numpy as np
import pytest
from sklearn import metrics

pytest.importorskip("matplotlib", reason="figures need the report extra")
pytest.importorskip("jinja2", reason="the page needs the report extra")

from fits import KINDS, Made, cancer, counts, diabetes, hinge, hinges, ovr, softmax, targets
from pages import Tree, plain

from ksparse import KSparseClassifier, KSparseRegressor, KSparseRegressorCV
from ksparse.report import HeldOut, fit_page, write_page
from ksparse.report.words import visible

RAISED = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")


def as_number(text):
    """What the page writes as a number."""
    text = text.replace(",", "").replace("−", "-").replace(" %", "e-2").replace("∞", "inf").lstrip("× +")
    mantissa, _, power = text.partition(" × 10")
    return float(mantissa) * 10.0 ** int(power.translate(RAISED) or 0)


def near(text, value, digits=3):
    assert as_number(text) == pytest.approx(value, rel=0.51 * 10 ** (1 - digits), abs=1e-12), (text, value)


def body(tree):
    return plain(tree.all("body")[0]["text"])


@pytest.fixture(scope="module")
def made():
    return Made()


# --- what holds for all of them --------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_the_page_is_sound_and_needs_nothing_but_itself(made, kind):
    *_, page = made(kind)
    tree = Tree(page)
    assert page.startswith("<!DOCTYPE html>")
    assert tree.all("html")[0]["lang"] == "en-GB"
    assert len(tree.all("h1")) == len(tree.all("main")) == len(tree.all("title")) == 1
    levels = [int(e["tag"][1]) for e in tree.elements if re.fullmatch("h[1-6]", e["tag"])]
    assert all(after - before <= 1 for before, after in pairwise(levels))
    ids = [e["id"] for e in tree.elements if "id" in e] + re.findall(r' id="([^"]+)"[^>]*/>', page)
    assert len(set(ids)) == len(ids)
    assert all(e["aria-labelledby"] in ids for e in tree.elements if "aria-labelledby" in e)
    assert set(re.findall(r'url\(#([^)]+)\)|<use href="#([^"]+)"', page)) - {("", "")} <= {
        pair for name in ids for pair in ((name, ""), ("", name))
    }
    assert all(e["scope"] in ("col", "row") for e in tree.all("th"))
    pictures = [e for e in tree.all("svg") if "aria-hidden" not in e]
    assert all(e["role"] == "img" and e["aria-label"] for e in pictures)
    assert len(tree.all("figure")) == len(pictures) == len(tree.all("figcaption"))
    assert not [
        e["tag"] for e in tree.elements if e["tag"] in ("script", "img", "iframe", "object", "form", "foreignobject")
    ]
    assert not [name for e in tree.elements for name in e if name.startswith("on") or name == "src"]
    assert [e["href"] for e in tree.elements if "href" in e and not e["href"].startswith("#")] == ["data:,"]
    assert not re.search(
        r"None|nan\b|NaN|\{\{ [a-z]|Undefined", re.sub(r"<style>.*?</style>|<svg.*?</svg>", "", page, flags=re.S)
    )
    assert len(page.encode()) < 300_000


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_the_numbers_are_those_of_the_model(made, kind):
    model, _, known, page = made(kind)
    tree = Tree(page)
    tables = tree.tables("features")
    names = [
        visible(name) for name in getattr(model, "feature_names_in_", [f"x{j}" for j in range(model.n_features_in_)])
    ]
    coef, worth = np.atleast_2d(model.coef_), model.worth_
    if model._kind() != "ovr":  # outputs that share their features: one number for each
        worth = np.broadcast_to(model.feature_worth_, coef.shape)
    assert len(tables) == len(coef)
    multiplies = model.loss in ("poisson", "logistic") and kind is not softmax
    for c, (_, *rows) in enumerate(tables):
        *rows, constant = rows
        order = sorted(np.flatnonzero(coef[c]), key=lambda j: -worth[c, j])
        assert [row[0].removesuffix(" always kept").split(" group ")[0] for row in rows] == [
            plain(names[j]) for j in order
        ]
        for (_, weight, *effect, value), j in zip(rows, order, strict=True):
            near(weight, coef[c, j], 4)
            near(value, worth[c, j])
            if model.standardize:
                change, _, deviation = effect[0].partition(" for ")
                near(deviation, model.scale_[j])
                near(change, np.exp(coef[c, j] * model.scale_[j]) if multiplies else coef[c, j] * model.scale_[j])
            else:
                assert not effect
        near(constant[1], np.atleast_1d(model.intercept_)[c], 4)
    widths = [float(width) for width in re.findall(r'class="bar"[^>]*><span style="width: ([\d.]+)%', page)]
    assert max(widths) == 100.0
    assert f"<dt>Rows</dt><dd><bdi>{known['rows']:,}</bdi></dd>" in page
    assert f"<dt>Columns</dt><dd><bdi>{model.n_features_in_:,}</bdi></dd>" in page
    if hasattr(model, "l2_"):
        (ridge,) = re.findall(r"Ridge l2</dt><dd><bdi>([^<]*?)(?: \(auto\))?</bdi>", page)
        near(ridge, model.l2_)
    for certificate in model.certificate_ if isinstance(model.certificate_, list) else [model.certificate_]:
        assert f"<strong>{certificate.verdict}</strong>" in page


@pytest.mark.parametrize("kind", [cancer, diabetes, softmax, targets, counts, hinge])
def test_the_formula_can_be_computed_by_hand(made, kind):
    model, X, _, page = made(kind)
    formulas = [plain(e["text"]) for e in Tree(page).all("p", "formula")]
    scores = np.atleast_2d(model._linear(X[:50]).T)
    assert len(formulas) == len(scores)
    names = list(getattr(model, "feature_names_in_", [f"x{j}" for j in range(model.n_features_in_)]))
    for formula, score in zip(formulas, scores, strict=True):
        right = formula.partition(" = ")[2]
        parts = re.split(r" (?=[+−] )", f"+ {right}" if right[0] not in "−" else right)
        total = np.zeros(50)
        for part in parts:
            size, _, name = part.replace("+ ", "").replace("− ", "−").partition(" × ")
            total += as_number(size) * (np.asarray(X)[:50, names.index(name)] if name else 1.0)
        spread = np.abs(model.coef_ * model.scale_).sum()
        np.testing.assert_allclose(total, score, atol=0.01 * spread)


# --- held-out rows ---------------------------------------------------------------------------------------------------
def measured(page):
    (table,) = Tree(page).tables("measures")
    return {row[0].split(" ")[0]: row[1:] for row in table[1:]}


def test_two_classes_are_measured_beside_the_majority(made):
    _, _, known, page = made(cancer)
    y, p = known["held_out"].y == "malignant", known["held_out"].prediction
    share = max(y.mean(), 1 - y.mean())
    found, said = measured(page), np.where(p[:, 1] > 0.5, "malignant", "benign")
    constant = np.column_stack([np.full(len(y), 1 - y.mean()), np.full(len(y), y.mean())])
    for name, value, guess in (
        ("Accuracy", metrics.accuracy_score(known["held_out"].y, said), share),
        ("ROC", metrics.roc_auc_score(y, p[:, 1]), 0.5),
        ("Log-loss", metrics.log_loss(y, p), metrics.log_loss(y, constant)),
        ("Brier", metrics.brier_score_loss(y, p[:, 1]), metrics.brier_score_loss(y, constant[:, 1])),
    ):
        near(found[name][0], value)
        near(found[name][1], guess)
    (confusion,) = Tree(page).tables("confusion")
    counts = metrics.confusion_matrix(known["held_out"].y, said)
    assert [[int(cell) for cell in row[1:]] for row in confusion[1:]] == counts.tolist()
    assert "diagnosis, from" in Tree(page).all("h1")[0]["text"]
    assert f"chose k\u00a0=\u00a0{known['cv'].k_}" in page


def test_several_classes_are_measured(made):
    for kind in (softmax, ovr, hinges):
        model, _, known, page = made(kind)
        y, z = known["held_out"].y, known["held_out"].prediction
        found = measured(page)
        near(found["Accuracy"][0], np.mean(model.classes_[z.argmax(axis=1)] == y))
        each = [metrics.roc_auc_score(y == c, z[:, i]) for i, c in enumerate(model.classes_)]
        near(found["ROC"][0], np.mean(each))
        assert ("Log-loss" in found) == (kind is not hinges)
        if kind is not hinges:
            near(found["Log-loss"][0], metrics.log_loss(y, z))
            near(found["Brier"][0], np.mean(((y[:, None] == model.classes_) - z).__pow__(2).sum(axis=1)))
        assert ("Reliability diagram" in page) == (kind is not hinges)


def test_numbers_and_counts_are_measured_beside_their_mean(made):
    _, _, known, page = made(diabetes)
    y, z = known["held_out"].y, known["held_out"].prediction
    found = measured(page)
    near(found["R²"][0], metrics.r2_score(y, z))
    near(found["RMSE"][0], metrics.mean_squared_error(y, z) ** 0.5)
    near(found["RMSE"][1], y.std())
    near(found["MAE"][0], metrics.mean_absolute_error(y, z))
    half = float(re.search(r"within ±([\d.]+) of the truth", page)[1])
    assert np.mean(np.abs(y - z) <= half * 1.01) >= 0.5 > np.mean(np.abs(y - z) <= half * 0.97)
    _, _, known, page = made(counts)
    y, z = known["held_out"].y, known["held_out"].prediction
    deviance = metrics.mean_poisson_deviance(y, z), metrics.mean_poisson_deviance(y, np.full(len(y), y.mean()))
    found = measured(page)
    near(found["Mean"][0], deviance[0])
    near(found["Mean"][1], deviance[1])
    near(found["Deviance"][0], 1 - deviance[0] / deviance[1])
    _, _, known, page = made(targets)
    (table,) = Tree(page).tables("measures")
    for row, y, z in zip(table[1:], known["held_out"].y.T, known["held_out"].prediction.T, strict=True):
        near(row[1], metrics.r2_score(y, z))


def test_a_model_that_is_no_better_than_guessing_is_not_praised():
    rng = np.random.default_rng(1)
    X, y = rng.standard_normal((60, 30)), rng.integers(0, 2, 60)
    model = KSparseClassifier(k=15, l2=1e-6).fit(X[:40], y[:40])
    page = fit_page(model, data="a", rows=60, target="y", held_out=HeldOut(y[40:], model.predict_proba(X[40:])))
    assert "no better than a constant prediction" in page
    assert "no better than a constant" not in fit_page(model, data="a", rows=60, target="y")


def test_classes_that_the_fit_never_met_count_as_wrong(made):
    model, _, known, _ = made(softmax)
    y = np.where(np.arange(50) < 5, "unknown", known["held_out"].y)
    page = fit_page(model, data="a", rows=150, target="kind", held_out=HeldOut(y, known["held_out"].prediction))
    assert "5 rows of classes that the fit has not seen" in page
    near(measured(page)["Accuracy"][0], np.mean(model.classes_[known["held_out"].prediction.argmax(axis=1)] == y))
    (confusion,) = Tree(page).tables("confusion")
    assert sum(int(cell) for row in confusion[1:] for cell in row[1:]) == 45


@pytest.mark.parametrize("kind", [diabetes, counts, cancer, hinge, softmax])
def test_many_rows_make_a_small_page_and_always_the_same(made, kind):
    model, _, known, _ = made(kind)
    n = 1_000_000 if kind is diabetes else 100_000
    rng = np.random.default_rng(0)
    pick = rng.integers(0, len(known["held_out"].y), n)
    y, z = known["held_out"].y[pick], known["held_out"].prediction[pick]
    if kind in (diabetes, hinge):  # no two of them alike
        z = z + rng.standard_normal(n) * z.std()
    page = fit_page(model, data="a", rows=n, target="y", held_out=HeldOut(y, z))
    assert len(page.encode()) < 200_000
    assert f"{n:,} held-out rows" in page
    if kind is diabetes:
        assert page == fit_page(model, data="a", rows=n, target="y", held_out=HeldOut(y, z))


def test_predictions_that_overflow_are_told(made):
    model, _, known, _ = made(counts)
    z = np.where(np.arange(100) == 3, np.inf, known["held_out"].prediction)
    page = fit_page(model, data="a", rows=1, target="y", held_out=HeldOut(known["held_out"].y, z))
    assert measured(page)["Deviance"][0] == "−∞"
    assert "1 prediction is infinite" in page
    assert "no better than a constant prediction" in page


# --- using it --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", [cancer, ovr, counts])
def test_the_lines_to_copy_work(made, kind, tmp_path):
    model, X, known, _ = made(kind)
    file = tmp_path / "it's a model.json"
    model.save(file)
    tree = Tree(fit_page(model, **{**known, "model_file": file}))
    *python, command = [e["text"] for e in tree.all("code")]
    scope = {"X": X}
    for block in python:
        exec(block, scope)
    np.testing.assert_allclose(scope["model"].coef_, model.coef_)
    assert ("plain" in scope) == (kind is cancer)
    assert shlex.split(command)[:3] == ["ksparse", "predict", str(file)]
    assert "new-rows.csv.gz" in command or kind is not cancer
    needed = (
        []
        if model.support_.size == model.n_features_in_
        else [
            name
            for name, used in zip(
                getattr(model, "feature_names_in_", []), np.atleast_2d(model.coef_).any(axis=0), strict=False
            )
            if used
        ]
    )
    assert all(name in body(tree).split("How to use it")[1] for name in needed)


def test_settings_of_the_user_do_not_change_it(made):
    import matplotlib as mpl

    model, _, known, page = made(diabetes)
    with mpl.rc_context({"axes.facecolor": "#123456", "font.size": 30, "lines.linewidth": 9}):
        assert fit_page(model, **known) == page


def test_a_cross_validated_model_is_both(made):
    _, _, known, page = made(cancer)
    assert fit_page(known["cv"], **{**known, "cv": None}) == page


def test_writing_is_whole_or_nothing(tmp_path):
    target = tmp_path / "page.html"
    write_page("old", target)
    with pytest.raises(ValueError, match="no such folder; name another file"):
        write_page("new", tmp_path / "missing" / "page.html")
    with pytest.raises(ValueError, match="cannot be written"):
        write_page("new", tmp_path)
    assert target.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rows": 0}, "rows must be at least 1, got 0"),
        ({"data": 3}, "data must be a text, got 3"),
        ({"target": ["a", "b"]}, r"target must be a name, or a list with one name per target of the model \(1\)"),
        ({"path": 3}, "path must be what k_path gives, got int"),
        ({"cv": KSparseRegressorCV()}, "cv must be a fitted"),
        ({"held_out": (1, 2)}, r"held_out must be a report.HeldOut\(y, prediction\), got tuple"),
        ({"held_out": HeldOut([], [])}, "held_out"),
        ({"held_out": HeldOut([1.0, 2.0], [1.0])}, r"held_out.prediction must have shape \(2,\), got \(1,\)"),
        ({"held_out": HeldOut([1.0, np.nan], [1.0, 2.0])}, "held_out.y must be finite"),
        ({"held_out": HeldOut([1.0, 2.0], [1.0, np.nan])}, "held_out.prediction must not be NaN, got it at row 1"),
        ({"held_out": HeldOut(["a"], [1.0])}, "held_out.y must be numbers"),
        ({"model_file": 3}, "model_file must be the name of a file, got 3"),
    ],
)
def test_bad_arguments_are_named(made, change, message):
    model, _, known, _ = made(diabetes)
    with pytest.raises(ValueError, match=message):
        fit_page(model, **{**known, **change})


def test_bad_classes_are_named(made):
    model, _, known, _ = made(cancer)
    y, p = known["held_out"].y, known["held_out"].prediction
    for held_out, message in (
        (HeldOut(y, p[:, 1]), "as predict_proba gives it, got"),
        (HeldOut(y, p * 2), "probabilities that sum to 1"),
        (HeldOut(np.zeros(len(y)), p), "must hold classes of the model"),
        (HeldOut(y, np.where(p > 2, p, np.inf)), "must be finite"),
        (HeldOut(p, p), r"held_out.y must have shape \(n,\)"),
    ):
        with pytest.raises(ValueError, match=message):
            fit_page(model, **{**known, "held_out": held_out})
    with pytest.raises(ValueError, match="model must be a fitted"):
        fit_page(3, data="a", rows=1, target="y")
    with pytest.raises(ValueError, match="not fitted"):
        fit_page(KSparseRegressor(), data="a", rows=1, target="y")


def test_without_jinja_the_remedy_is_said(made, monkeypatch):
    model, _, known, _ = made(diabetes)
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(ImportError, match=r"pip install 'ksparse\[report\]'"):
        fit_page(model, **known)
