"""Pictures of models and their pages in a notebook."""

from __future__ import annotations

import base64
import builtins
import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.datasets import load_digits, load_iris

from ksparse import (
    HTSVRG,
    PGD,
    KSparseClassifier,
    KSparseClassifierCV,
    KSparseRegressor,
    KSparseRegressorCV,
    k_path,
    load,
    support_stability,
)

pytest.importorskip("matplotlib", reason="figures need the report extra")

IMAGE = 'src="data:image/svg+xml;base64,'  # of ours; scikit-learn has some in its styles
HARD = [
    "<b>bold</b>",
    "$x^2$",
    r"a \$ b",
    "größe 測定 🎈",
    "_hidden",
    "two\nlines",
    "\x00\x1b",
    "&amp;",
    "x" * 300,
    "'\"",
    "",
    "%s",
]


def planted(n=120, d=12, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    return X, X @ (np.linspace(3.0, 1.0, d) * (-1.0) ** np.arange(d)) + rng.standard_normal(n)


def texts(ax):
    """All that is written in the figure once it is drawn, as it was written."""
    drawn = pictures_of(f'{IMAGE}{base64.b64encode(svg(ax)).decode()}"')[0]
    return ["".join(node.itertext()) for node in drawn.iter() if node.tag.endswith("}text")]


def svg(ax):
    from ksparse._style import as_svg

    return as_svg(ax)


def pictures_of(page):
    return [ElementTree.fromstring(base64.b64decode(data)) for data in re.findall(f'{re.escape(IMAGE)}([^"]*)"', page)]


# --- bars and tables -------------------------------------------------------------------------------------------------
def test_bars_are_the_coefficients_the_most_useful_on_top():
    X, y = planted()
    model = KSparseRegressor(k=4).fit(X * np.geomspace(1, 100, 12), y)
    ax = model.plot()
    order = [name for _, name, *_ in model.summary().rows]
    assert [label.get_text() for label in ax.get_yticklabels()] == order
    chosen = [int(name[1:]) for name in order]
    effect = model.coef_ * (X * np.geomspace(1, 100, 12)).std(axis=0)  # of one standard deviation, whatever the unit
    np.testing.assert_allclose([bar.get_width() for bar in ax.patches], effect[chosen])
    assert {f"{value:.3g}".replace("-", "−") for value in model.coef_[chosen]} <= set(texts(ax))
    assert ax.get_ylim()[0] > ax.get_ylim()[1]
    assert ax.get_title() == "4 of 12 features"
    colours = {bar.get_facecolor() for bar in ax.patches if bar.get_width() < 0}
    assert len(colours) == 1
    assert colours.isdisjoint(bar.get_facecolor() for bar in ax.patches if bar.get_width() > 0)


def test_many_features_are_cut_and_the_title_says_so():
    X, y = planted(n=200, d=40)
    ax = KSparseRegressor(k=30).fit(X, y).plot()
    assert len(ax.patches) == 25
    assert ax.get_title() == "25 most useful of 30 chosen features"
    stability = support_stability(X, y, KSparseRegressor(k=20), n_resamples=4, random_state=0)
    ax, chosen = stability.plot(), np.count_nonzero(stability.frequency)
    assert len(ax.patches) == 25 < chosen
    assert f"{chosen - 25} more less often" in ax.get_title()
    assert f"and {chosen - 25} more, less often" in str(stability)


def test_several_outputs_are_a_table_in_colours():
    X, y = load_iris(return_X_y=True)
    model = KSparseClassifier(k=2).fit(X, np.array(["s", "ve", "vi"])[y])
    ax = model.plot()
    (image,) = ax.images
    assert image.get_array().shape == (model.support_.size, 3)
    shown = np.sign(np.asarray(image.get_array()))
    order = [int(label.get_text()[1:]) for label in ax.get_yticklabels()]
    np.testing.assert_array_equal(shown, np.sign(model.coef_[:, order].T))
    assert [label.get_text() for label in ax.get_xticklabels()] == ["s", "ve", "vi"]
    numbers = {text.get_text() for text in ax.texts}
    assert numbers == {f"{w:.3g}".replace("-", "−") for w in model.coef_[model.coef_ != 0]}


def test_axes_that_are_given_are_drawn_on():
    from matplotlib.figure import Figure

    X, y = planted()
    model = KSparseRegressor(k=2).fit(X, y)
    for draw in (model.plot, model.plot_convergence, k_path(X, y, [1, 2]).plot):
        ax = Figure().subplots()
        assert draw(ax) is ax


# --- convergence -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("solver", ["auto", PGD(), HTSVRG()], ids=["exchange", "pgd", "svrg"])
def test_convergence_is_counted_in_passes(solver):
    X, y = planted()
    model = KSparseRegressor(k=12, solver=solver, random_state=0).fit(X, y)
    ax = model.plot_convergence()
    np.testing.assert_allclose(ax.lines[0].get_xdata(), model.history_.gradients / 120)
    np.testing.assert_allclose(ax.lines[0].get_ydata(), model.history_.objective)
    assert ax.get_title() == "converged"
    assert ax.get_yscale() == "log"  # the objective falls from about 30 to 0.5
    flat = KSparseRegressor(k=1).fit(X, np.random.default_rng(0).standard_normal(120)).plot_convergence()
    assert flat.get_yscale() == "linear"


def test_convergence_of_several_classes(tmp_path):
    X, y = load_digits(n_class=3, return_X_y=True)
    model = KSparseClassifier(k=2, multi_class="ovr").fit(X, np.array(["_a", "$b$", "c"])[y])
    ax = model.plot_convergence()
    assert len(ax.lines) == 3
    assert {" _a", "$b$", "c"} <= set(texts(ax))
    model.save(tmp_path / "model.json")
    with pytest.raises(ValueError, match="history of a fit"):
        load(tmp_path / "model.json").plot_convergence()
    assert IMAGE in load(tmp_path / "model.json")._repr_html_()
    early = KSparseClassifier(k=2).partial_fit(X[y == 0], y[y == 0], [0, 1, 2])
    assert early.plot_convergence().get_title() == "converged"  # nothing was learned, and nothing breaks


# --- names -----------------------------------------------------------------------------------------------------------
@pytest.mark.filterwarnings("ignore:Glyph")
def test_names_are_drawn_literally():
    X, y = planted()
    frame = pd.DataFrame(X, columns=HARD)
    model = KSparseRegressor(k=12).fit(frame, y)
    stability = support_stability(frame, y, KSparseRegressor(k=12), n_resamples=2, random_state=0)
    for ax in (model.plot(), stability.plot(), k_path(frame, y, [12]).plot()):
        written = set(texts(ax))
        assert {"<b>bold</b>", "$x^2$", r"a \$ b", "größe 測定 🎈", "two lines", "&amp;", "'\"", "%s"} <= written
        assert {"_hidden", " _hidden"} & written
        assert f"{'x' * 16}…{'x' * 15}" in written
    labels = KSparseClassifier(k=2).fit(frame, np.array(HARD[:3])[np.digitize(y, [-2, 2])])
    assert set(HARD[:3]) <= set(texts(labels.plot()))
    two = KSparseClassifier(k=2).fit(frame, np.where(y > 0, "$z^2$", "$a$"))
    assert any("positive towards $z^2$" in text for text in texts(two.plot()))


def test_a_path_names_classes_and_features():
    X, y = load_iris(return_X_y=True)
    ax = k_path(X, y, [1, 2], KSparseClassifier()).plot()
    names = [text.get_text() for text in ax.get_legend().get_texts()]
    assert {name.split(": ")[0] for name in names} == {"0", "1", "2"}
    assert {name.split(": ")[1] for name in names} <= {"x0", "x1", "x2", "x3"}
    assert all(float(tick).is_integer() for tick in ax.get_xticks())


def test_legends_stand_beside_the_curves():
    X, y = planted()
    classes = KSparseClassifier(k=2, multi_class="ovr").fit(*load_iris(return_X_y=True))
    for ax in (k_path(X, y).plot(), classes.plot_convergence()):
        svg(ax)  # draws it
        assert ax.get_legend().get_window_extent().x0 >= ax.get_window_extent().x1
        assert ax.get_legend().get_window_extent().x1 <= ax.figure.bbox.x1


# --- pages -----------------------------------------------------------------------------------------------------------
def test_a_page_has_diagram_table_and_picture():
    X, y = planted()
    model = KSparseRegressor(k=3)
    assert "sk-top-container" in model._repr_html_()
    assert IMAGE not in model._repr_html_()
    page = model.fit(X, y)._repr_html_()
    assert page.index("sk-top-container") < page.index("<caption") < page.index(IMAGE)
    assert model.summary()._repr_html_() in page
    assert model._repr_mimebundle_()["text/html"].count(IMAGE) == 1
    with sklearn.config_context(display="text"):
        assert "text/html" not in model._repr_mimebundle_()
        assert not hasattr(model, "_repr_html_")


@pytest.mark.parametrize("cls", [KSparseRegressorCV, KSparseClassifierCV])
def test_a_page_of_cross_validation(cls):
    X, y = planted()
    model = cls([1, 2], cv=3)
    assert IMAGE not in model._repr_html_()
    page = model.fit(X, y > 0)._repr_html_() if cls is KSparseClassifierCV else model.fit(X, y)._repr_html_()
    assert page.count(IMAGE) == 2
    assert model.summary()._repr_html_() in page


def test_pages_show_hard_names_and_never_fail():
    X, y = planted()
    hard = [*HARD[:-1], "\ud800"]  # half a letter: no page can hold it
    model = KSparseRegressor(k=12).fit(pd.DataFrame(X, columns=pd.Index(hard, dtype=object)), y)
    page = model._repr_html_()
    page.encode("utf-8")
    assert "<b>bold" not in page
    (picture,) = pictures_of(page)
    assert "<b>bold</b>" in ["".join(node.itertext()) for node in picture.iter()]
    model.n_features_in_ = 3
    model.feature_names_in_ = np.array(["a", "b", "c"], dtype=object)  # as a failed fit may leave it
    assert "sk-top-container" in model._repr_html_()
    nothing = KSparseClassifier().partial_fit(X, np.zeros(120), [0.0, 1.0])
    assert IMAGE not in nothing._repr_html_()
    failed = KSparseRegressor(k=0)
    with pytest.raises(ValueError, match="k must be"):
        failed.fit(X, y)
    assert "<caption" not in failed._repr_html_()


def test_settings_of_matplotlib_do_not_break_a_page():
    import matplotlib as mpl

    X, y = planted()
    model = KSparseRegressor(k=3).fit(X, y)
    with mpl.rc_context({"text.usetex": True, "path.effects": ["nonsense"]}):
        assert "<caption" in model._repr_html_()


def test_without_matplotlib_there_is_the_table(monkeypatch):
    X, y = planted()
    model = KSparseRegressor(k=3).fit(X, y)
    whole = builtins.__import__

    def without(name, *others):
        if name.split(".")[0] == "matplotlib":
            raise ImportError(name)
        return whole(name, *others)

    monkeypatch.setattr(builtins, "__import__", without)
    page = model._repr_html_()
    assert "<caption" in page
    assert IMAGE not in page
    with pytest.raises(ImportError, match=r"ksparse\[report\]"):
        model.plot()
