"""Pictures of models and their pages in a notebook."""

from __future__ import annotations

import base64
import builtins
import functools
import html
import re
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

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
from ksparse.sensing import phase
from ksparse.sensing.phase.figures import plot_curves
from ksparse.theory import certificate
from ksparse.theory.figures import FIGURES

mpl = pytest.importorskip("matplotlib", reason="figures need the report extra")
pyplot = pytest.importorskip("matplotlib.pyplot")
pyplot.switch_backend("agg")  # no windows, whatever the desktop

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


@pytest.fixture(autouse=True)
def _closed_figures():
    yield
    pyplot.close("all")


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
        assert draw(ax=ax) is ax
    assert not pyplot.get_fignums()


def all_plots():
    """Every public way to a picture: what makes one without arguments."""
    X, y = planted()
    model = KSparseRegressor(k=2).fit(X, y)
    stability = support_stability(X, y, model, n_resamples=2, random_state=0)
    cv = KSparseRegressorCV([1, 2], cv=2).fit(X, y)
    found = phase.Phase.load(Path(__file__).parents[2] / "docs" / "phase" / "omp.json")
    curves = functools.partial(plot_curves, [found])
    plots = [model.plot, model.plot_convergence, k_path(X, y, [1, 2]).plot, stability.plot, cv.plot, found.plot, curves]
    return [*plots, *FIGURES.values()]


def test_a_figure_is_shown_once_or_written(tmp_path):
    for number, plot in enumerate(all_plots()):
        ax = plot()
        assert [pyplot.figure(open_) for open_ in pyplot.get_fignums()] == [ax.figure]  # what a notebook shows
        pyplot.close(ax.figure)
        for file in (f"{tmp_path}/{number}.png", tmp_path / f"{number}.SVG"):
            written = plot(path=file)
            assert Path(file).stat().st_size > 1000
            assert written.get_xlabel() == ax.get_xlabel()
        assert not pyplot.get_fignums()  # nobody would close what was made for a file


def test_a_notebook_that_becomes_interactive_stays_so(monkeypatch):
    model, figure = KSparseRegressor(k=2).fit(*planted()), pyplot.figure

    def first_figure(**settings):
        pyplot.ion()  # as a notebook's backend does when the first figure loads it
        return figure(**settings)

    with mpl.rc_context({"interactive": False}):
        monkeypatch.setattr(pyplot, "figure", first_figure)
        model.plot()
        assert mpl.is_interactive()  # else later figures would not be shown


def test_what_is_no_path_is_refused(tmp_path):
    model = KSparseRegressor(k=2).fit(*planted())
    model.plot(str(tmp_path / "first.png"))
    assert (tmp_path / "first.png").exists()
    with pytest.raises(ValueError, match=r"path must end in one of \.png, .*, got 'picture'"):
        model.plot("picture")
    with pytest.raises(TypeError, match="path must be the name of a file, or axes of matplotlib to draw on, got 3"):
        model.plot(3)
    assert not pyplot.get_fignums()


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


def tables_of(page):
    """The cells of every table of a page, as they are read."""
    return [
        [re.findall(r"(?s)<t[hd][^>]*>(.*?)</t[hd]>", row) for row in re.findall(r"(?s)<tr>(.*?)</tr>", table)]
        for table in re.findall(r"(?s)<table>(.*?)</table>", page)
    ]


def test_what_is_found_shows_itself_and_becomes_a_frame():
    X, y = planted()
    frame = pd.DataFrame(X, columns=HARD)
    model = KSparseRegressor(k=3).fit(frame, y)
    path, cv = k_path(frame, y, [1, 3, 12]), KSparseRegressorCV([1, 3], cv=2).fit(frame, y)
    stability = support_stability(frame, y, model, n_resamples=4, random_state=0)
    for shown in (model.summary(), path, stability, cv, model.certificate_, certificate(X, y, k=3)):
        page = shown._repr_html_()
        assert "<b>bold</b>" not in page
        assert page.count(IMAGE) == {"Path": 1, "Stability": 1, "KSparseRegressorCV": 2}.get(type(shown).__name__, 0)
        assert len(shown.to_frame())
    assert not pyplot.get_fignums()
    rows = path.to_frame()
    assert rows.columns.tolist() == ["k", "objective", "loss", "aic", "bic", "ebic", "features"]
    assert rows.features.map(len).tolist() == rows.k.tolist() == [1, 3, 12]
    np.testing.assert_array_equal(rows.ebic, path.ebic)
    (table,) = tables_of(path._repr_html_())
    assert [row[0] for row in table] == ["k", "1", "3", "12"]
    assert len(path.moves()[-1][0]) == 9
    rows = stability.to_frame()
    assert sorted(rows.feature) == sorted(map(str, frame.columns))
    assert rows.frequency.tolist() == sorted(stability.frequency, reverse=True)
    rows = cv.to_frame()
    np.testing.assert_allclose(rows[["fold_0", "fold_1"]].mean(axis=1), rows.mean_score)
    assert rows.k[rows.chosen].tolist() == [cv.k_]
    assert [row[0] for row in tables_of(cv._repr_html_())[-1]] == ["k", "1", "3"]


def test_a_summary_as_a_frame_is_what_it_prints():
    X, y = load_iris(return_X_y=True)
    several, one = (
        KSparseClassifier(k=2).fit(X, y).summary(),
        KSparseRegressor(k=2).fit(X, X @ [1, -2, 0, 0.1]).summary(),
    )
    assert several.to_frame().columns.tolist() == ["output", "feature", "coefficient", "worth"]
    rows = one.to_frame()
    assert rows.columns.tolist() == ["feature", "coefficient", "worth"]
    assert [html.unescape(row[0]) for row in tables_of(one._repr_html_())[0]] == ["feature", *rows.feature]
    assert [f"{value:.6g}" in str(one) for value in rows.coefficient] == [True, True, True]
    assert rows.feature.iloc[-1] == "(intercept)"
    assert rows.worth.isna().tolist() == [False, False, True]


def test_certificates_as_frames_stand_beneath_each_other():
    X, y = planted()
    models = [KSparseRegressor(k=k).fit(X, y) for k in (1, 2)]
    rows = pd.concat([model.certificate_.to_frame() for model in models])
    assert rows.objective.tolist() == [model.objective_ for model in models]
    X, y = planted(n=500, d=60)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    proved = [certificate(X, y, k=40, K=1, l2=l2) for l2 in (0.0, 5.0)]
    rows = pd.concat([entry.to_frame() for entry in proved])
    assert rows.verdict.tolist() == ["not certified", "certified"] == [entry.verdict for entry in proved]
    assert rows["sparsity holds"].tolist() == [False, True]
    assert rows.step.tolist() == [entry.step for entry in proved]
    (table,) = tables_of(proved[1]._repr_html_())
    assert [row[0] for row in table[1:]] == [condition.name for condition in proved[1].conditions]


def test_without_pandas_a_frame_says_what_is_missing(monkeypatch):
    summary = KSparseRegressor(k=2).fit(*planted()).summary()
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="to_frame needs pandas; pip install pandas"):
        summary.to_frame()


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
