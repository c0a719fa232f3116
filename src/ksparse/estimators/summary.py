"""How a fitted model is shown: its features as a table (`Summary`), pictures, and its display in a notebook."""

from __future__ import annotations

import base64
import functools
import html
import inspect
import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import estimator_html_repr
from sklearn.utils.validation import check_is_fitted

from .._style import BLACK, BLUE, CYCLE, ORANGE, as_svg, canvas, finish, new_axes
from .._text import data_frame, html_table, table

GROUP_NAMED = 3  # largest group whose coefficients are all listed in the table
SHOWN = 25  # features in a picture, and in the table of stability
LONGEST = 32  # characters of a name in a picture
SCROLLING = "margin-top: 1em; max-height: 32em; overflow: auto"  # style of a table in a notebook
NAMED = 14  # lines with a name in a legend
NUMBERED = 12  # outputs up to which cells have room for numbers


# --- the table -------------------------------------------------------------------------------------------------------
def feature_names(model: Any) -> list[str]:
    """The names of the columns as text: those of X, or x0, x1, ..."""
    return [str(name) for name in getattr(model, "feature_names_in_", [f"x{j}" for j in range(model.n_features_in_)])]


def chosen_words(model: Any) -> str:
    """How many features or groups were chosen: "3 of 30 features", "5 of 14 groups (16 columns)"."""
    kept = int(np.isin(model.support_, getattr(model, "kept_", [])).sum())
    if not hasattr(model, "groups_"):
        return f"{model.support_.size} of {model.n_features_in_} features" + (f" ({kept} always kept)" if kept else "")
    of = f"of {model.n_groups_} " if hasattr(model, "n_groups_") else ""
    columns = f"{model.support_.size - kept} columns" + (f", and {kept} always kept" if kept else "")
    return f"{len(model.groups_)} {of}groups ({columns})"


def shown_worth(model: Any) -> NDArray[np.float64]:
    """The worth shown beside every coefficient, (outputs, d): that of its feature or group in all outputs.

    With multi_class="ovr", where the classes share nothing, that in its own class.
    """
    if model._kind() == "ovr":
        return np.asarray(model.worth_)
    return np.broadcast_to(model.feature_worth_, np.atleast_2d(model.coef_).shape)


def caution(model: Any) -> str:
    """The note below a table: what a worth is, how it was found, and that it is not a p-value."""
    what = "group" if hasattr(model, "groups_") else "feature"
    rows = getattr(model, "worth_rows_", None)
    known = model.loss == "squared" and what == "feature" and not model.positive
    about = "about " if rows is None and not known else ""
    where = {"ovr": " in that class", "softmax": " in all classes", "targets": " in all targets"}.get(model._kind(), "")
    how = "the others refitted"
    if about:
        how = "by a quadratic estimate: the file was written by an older version"
    elif rows is not None and rows < model.n_rows_:
        how += f", estimated from {rows:,} of {model.n_rows_:,} rows"
    return (
        f"worth: by {about}how much the objective would rise without the {what}{where} ({how}). "
        "No p-values: after a selection they would be wrong."
    )


@dataclass(frozen=True)
class Summary:
    """A table of the chosen features, the most useful first; ``print`` shows it.

    Attributes
    ----------
    title : str
        The heading.
    rows : list of tuples (output, feature, coefficient, worth)
        With groups a row is a group: its label, the coefficients of its columns as a tuple, and the worth of the group.
    intercepts : dict
        The intercept of every output.
    caution : str
        The note below the table: what a worth is.
    positive : str or None
        With two classes, the one that positive coefficients speak for.
    kept : tuple of bool
        For every row, whether it is an always-kept column.
    columns : tuple of tuples of str
        For every row, the names of its columns.
    """

    title: str
    rows: list[tuple[str, str, Any, float]]
    intercepts: dict[str, float]
    caution: str
    positive: str | None = None
    kept: tuple[bool, ...] = ()
    columns: tuple[tuple[str, ...], ...] = ()

    @classmethod
    def of(cls, model: Any) -> Summary:
        """The table of a fitted model."""
        coef, worth = np.atleast_2d(model.coef_), shown_worth(model)
        names, outputs = feature_names(model), model._output_names()
        always, rows, columns, kept = set(getattr(model, "kept_", [])), [], [], []
        for output, weights, useful in zip(outputs, coef, worth, strict=True):
            parts = [part[weights[part] != 0] for part in _together(model)]
            parts = [part for part in parts if part.size]
            for part in sorted(parts, key=lambda part: -useful[part[0]]):
                group = hasattr(model, "support_groups_") and part[0] not in always
                label = names[part[0]]
                if group:
                    label = str(model.groups_[model.support_groups_[np.searchsorted(model.support_, part[0])]])
                values = tuple(float(w) for w in weights[part])
                rows.append((output, label, values if len(values) > 1 else values[0], float(useful[part[0]])))
                columns.append(tuple(names[j] for j in part))
                kept.append(part[0] in always)
        constants = dict(zip(outputs, np.atleast_1d(model.intercept_).tolist(), strict=True))
        title = f"{type(model).__name__}: {chosen_words(model)}, objective {model.objective_:.6g}"
        positive = outputs[0] if hasattr(model, "classes_") and len(outputs) == 1 else None
        return cls(title, rows, constants, caution(model), positive, tuple(kept), tuple(columns))

    def _columns(self) -> dict[str, tuple[Any, ...]]:
        """The table by columns; there is one for the output only if there are several outputs."""
        rows = [*self.rows, *((output, "(intercept)", b, math.nan) for output, b in self.intercepts.items())]
        columns = dict(zip(("output", "feature", "coefficient", "worth"), zip(*rows, strict=True), strict=True))
        if len(self.intercepts) == 1:
            del columns["output"]
        return columns

    def to_frame(self) -> Any:
        """The table as a pandas.DataFrame; the last rows are the intercepts, whose worth is NaN."""
        return data_frame(self._columns())

    def _cells(self) -> list[tuple[str, ...]]:
        """The cells of the table as text, the column titles first."""
        columns = self._columns()
        marked = [f"{row[1]} (always kept)" if kept else row[1] for row, kept in zip(self.rows, self.kept, strict=True)]
        columns["feature"] = (*marked, *columns["feature"][len(marked) :])
        texts = [_coefficients(row[2], names) for row, names in zip(self.rows, self.columns, strict=True)]
        columns["coefficient"] = (*texts, *(f"{b:.6g}" for b in self.intercepts.values()))
        columns["worth"] = tuple("" if math.isnan(u) else f"{u:.3g}" for u in columns["worth"])
        return [tuple(columns), *zip(*columns.values(), strict=True)]

    def _notes(self) -> list[str]:
        """The lines below the table."""
        said = [] if self.positive is None else [f"A positive coefficient speaks for class {self.positive}."]
        return [*said, self.caution]

    def __str__(self) -> str:
        return "\n".join([self.title, table(self._cells(), 1 + (len(self.intercepts) > 1)), *self._notes()])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        notes = "".join(f"<p>{html.escape(note)}</p>" for note in self._notes())
        return html_table(self._cells(), self.title, (0, 1)[: len(self.intercepts)]) + notes


def _together(model: Any) -> list[NDArray[np.int64]]:
    """The columns of the support, grouped as they were chosen."""
    S = model.support_
    if not hasattr(model, "support_groups_"):
        return list(S[:, np.newaxis])
    of = model.support_groups_
    groups = [S[of == g] for g in range(len(model.groups_))]
    return [*groups, *S[of < 0][:, np.newaxis]]


def _coefficients(weights: Any, columns: tuple[str, ...]) -> str:
    """A coefficient as text; those of a group each with its name, or their range if they are many."""
    if not isinstance(weights, tuple):
        return f"{weights:.6g}"
    if len(weights) > GROUP_NAMED:
        return f"{len(weights)} from {min(weights):.3g} to {max(weights):.3g}"
    return ", ".join(f"{name} {weight:.3g}" for name, weight in zip(columns, weights, strict=True))


# --- pictures --------------------------------------------------------------------------------------------------------
def plot_method(draw: Callable[..., Any], name: str = "plot") -> Callable[..., Any]:
    """A public method ``plot(path, ax)`` from a function that draws an object on axes."""

    def plot(self: Any, path: Any = None, ax: Any = None) -> Any:
        return finish(draw(self, canvas(path, ax)), path)

    plot.__doc__ = f"""{inspect.cleandoc(draw.__doc__ or "")}

    Needs the `report` extra.

    Parameters
    ----------
    path : str or Path, default=None
        The file to write, such as "model.png" or "model.svg"; by default pyplot, and so a notebook, shows the figure.
    ax : Axes of matplotlib, default=None
        The axes to draw on, instead of a new figure.

    Returns
    -------
    Axes
    """.replace("\n    ", "\n")
    plot.__name__ = name
    return plot


def plain(name: Any, longest: int = LONGEST) -> str:
    """A name for matplotlib: shown as it is (two dollar signs would make a formula), on one line, not too long."""
    text = "".join(c if c.isprintable() else " " for c in str(name))
    if len(text) > longest:
        half = (longest - 1) // 2
        text = f"{text[: longest - 1 - half]}…{text[-half:]}"
    return text.replace("$", r"\$")


def legend_beside(ax: Any, lines: list[Any], names: list[Any]) -> None:
    """A legend to the right of the axes, where it covers nothing."""
    # matplotlib leaves out names that begin with an underscore
    labels = [f" {text}" if text.startswith("_") else text for text in map(plain, names)]
    ax.legend(lines, labels, loc="upper left", bbox_to_anchor=(1.0, 1.02), frameon=False, fontsize=8)


def _width(names: Sequence[Any], inches: float) -> float:
    """The width of a figure whose axes are `inches` wide, with the names beside them."""
    return inches + 0.085 * max((len(plain(name)) for name in names), default=0)


def line_style(number: int) -> dict[str, Any]:
    """Colour and dashes of line `number`: the dashes change when all colours are used."""
    dashes = ("-", "--", "-.", ":")[number // len(CYCLE) % 4]
    return {"color": CYCLE[number % len(CYCLE)], "linestyle": dashes}


def draw_bars(ax: Any, names: list[Any], values: NDArray[np.float64], texts: list[str]) -> Any:
    """Horizontal bars from the top, each with its name and number; negative ones in another colour."""
    ax = new_axes(ax, (_width(names, 4.4), 0.9 + 0.26 * max(len(names), 3)))
    bars = ax.barh(np.arange(len(names)), values, height=0.7, color=np.where(values < 0, ORANGE, BLUE))
    ax.bar_label(bars, texts, padding=3, fontsize=8)
    ax.axvline(0.0, color=BLACK, linewidth=0.8)
    ax.set_yticks(np.arange(len(names)), [plain(name) for name in names])
    ax.set_ylim(max(len(names), 1) - 0.4, -0.6)
    ax.grid(visible=False, axis="y")
    ax.set_axisbelow(True)
    ax.tick_params(axis="y", length=0)
    return ax


def plot_coefficients(model: Any, ax: Any = None) -> Any:
    """Draw what one standard deviation of each feature does to the score, the most useful feature on top.

    The number at each bar is the coefficient.  A model with several outputs is drawn as a table of coefficients,
    coloured by their sizes on standardised columns.  At most 25 features are shown.
    """
    check_is_fitted(model)
    coef, worth, names = np.atleast_2d(model.coef_), np.atleast_2d(model.worth_), feature_names(model)
    chosen = np.flatnonzero(coef.any(axis=0))
    order = chosen[np.argsort(-model.feature_worth_[chosen], kind="stable")][:SHOWN]
    kept = set(getattr(model, "kept_", []))
    labels, outputs = [f"{names[j]} (always kept)" if j in kept else names[j] for j in order], model._output_names()
    if len(coef) > 1:
        ax = _draw_cells(ax, labels, outputs, coef[:, order].T, worth[:, order].T)
    else:
        effect = (coef[0] * model.scale_)[order]  # raw coefficients depend on the units of the columns
        ax = draw_bars(ax, labels, effect, [_short(value) for value in coef[0, order]])
        ax.margins(x=0.2)  # for the numbers
        towards = f", positive towards {plain(outputs[0], 20)}" if hasattr(model, "classes_") else ""
        ax.set_xlabel(f"effect of one standard deviation{towards}\n(the number is the coefficient)")
    title = chosen_words(model)
    if chosen.size > SHOWN:
        title = f"{SHOWN} most useful of {chosen.size} chosen {'columns' if hasattr(model, 'groups_') else 'features'}"
    ax.set_title(title, fontsize=10)
    return ax


def _draw_cells(ax: Any, names: list[str], outputs: list[str], coef: Any, worth: Any) -> Any:
    """One cell per feature and output: the coefficient as a number, its size on scaled columns as a colour."""
    rows, columns = coef.shape
    numbered = columns <= NUMBERED
    inches = max((0.55 if numbered else 0.25) * columns, 2.6)
    ax = new_axes(ax, (_width(names, 0.4 + inches), 1.2 + 0.26 * max(rows, 3)))
    # the root of a coefficient's estimated worth is its size, whatever the unit of its column
    size = np.sign(coef) * np.sqrt(worth)
    top = float(np.abs(size).max(initial=0.0)) or 1.0
    ax.imshow(size, cmap="RdBu", vmin=-top, vmax=top, aspect="auto", interpolation="nearest")
    for i, j in np.argwhere(coef) if numbered else ():
        dark = abs(size[i, j]) > 0.6 * top
        ax.text(j, i, _short(coef[i, j]), ha="center", va="center", fontsize=7, color="white" if dark else BLACK)
    ax.set_yticks(np.arange(rows), [plain(name) for name in names])
    crowded = sum(len(name) for name in outputs) > 8 * columns
    labels, turned = [plain(name, 20) for name in outputs], {"rotation": 45, "ha": "right", "rotation_mode": "anchor"}
    ax.set_xticks(np.arange(columns), labels, **(turned if crowded else {}))
    ax.set(xlabel="colour: size on scaled columns")
    ax.grid(visible=False)
    ax.tick_params(length=0)
    return ax


def plot_convergence(model: Any, ax: Any = None) -> Any:
    """Draw the objective against passes over the data, with one line per class."""
    check_is_fitted(model)
    if not hasattr(model, "history_"):
        raise ValueError("plot_convergence needs the history of a fit, which a model read from a file does not have")
    histories = model.history_ if isinstance(model.history_, list) else [model.history_]
    several = len(histories) > 1
    outputs = model._output_names() if several else []
    ax = new_axes(ax, (_width(outputs, 5.4), 3.6))
    lines, seen = [], []
    for number, history in enumerate(histories):
        objective = np.where(np.isfinite(history.objective), history.objective, np.nan)
        passes = np.asarray(history.gradients) / model.n_rows_
        lines += ax.plot(passes, objective, marker="o", markersize=4, **line_style(number))
        seen.append(objective[np.isfinite(objective)])
    values = np.concatenate(seen)
    if (
        values.size and values.min() > 0 and values.max() > 10 * values.min()
    ):  # a linear axis would hide the small values
        ax.set_yscale("log")
    ax.set(xlabel="passes over the data", ylabel="objective")
    how = sorted({str(status) for status in (model.status_ if several else [model.status_])})
    ax.set_title(", ".join(how), fontsize=10)
    if several:
        legend_beside(ax, lines, outputs)
    return ax


def draw_path(path: Any, ax: Any = None) -> Any:
    """Draw the effect of one standard deviation of each feature against k, the best k marked."""
    coefs = np.array([model.coef_ * model.scale_ for model in path.models]).reshape(len(path.k), -1)
    best = path.best()
    features, outputs = feature_names(best), best._output_names()
    names = features if len(outputs) == 1 else [f"{output}: {name}" for output in outputs for name in features]
    used = np.flatnonzero(coefs.any(axis=0))
    lines, shown = [], used[np.argsort(-np.abs(coefs).max(axis=0)[used], kind="stable")]
    ax = new_axes(ax, (_width([names[j] for j in shown[:NAMED]], 5.0), 3.8))
    for number, j in enumerate(shown):
        lines += ax.plot(path.k, coefs[:, j], marker=".", **line_style(number))
    ax.axvline(best.k_, color=BLACK, linewidth=1, linestyle=":")
    ax.set(xlabel="k", ylabel="effect of one standard deviation")
    whole_numbers(ax)
    ax.set_title(f"smallest EBIC at k = {best.k_}", fontsize=10)
    legend_beside(ax, lines[:NAMED], [names[j] for j in shown[:NAMED]])
    return ax


def whole_numbers(ax: Any) -> None:
    """Ticks of the x axis at whole numbers only."""
    ax.xaxis.get_major_locator().set_params(integer=True)


def _short(value: float) -> str:
    return f"{value:.3g}".replace("-", "−")


# --- in a notebook ---------------------------------------------------------------------------------------------------
class Shown(ABC):
    """A notebook shows the estimator as scikit-learn's diagram and, once fitted, with its tables and pictures."""

    @abstractmethod
    def _shown(self) -> tuple[list[str], list[Callable[[], Any]]]:
        """Tables as HTML, and functions that draw pictures; raises if the estimator is not fitted."""

    def _repr_html_inner(self) -> str:
        diagram = estimator_html_repr(self)
        try:
            tables, pictures = self._shown()
            parts = [diagram, *(f'<div style="{SCROLLING}">{table}</div>' for table in tables)]
        except Exception:  # not fitted, or half fitted after an error: show the diagram alone
            return diagram
        page = "\n".join([*parts, *(image(picture) for picture in pictures)])
        return page.encode("utf-8", "replace").decode("utf-8")  # names may hold characters that HTML cannot

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        bundle = super()._repr_mimebundle_(**kwargs)  # type: ignore[misc]
        if "text/html" in bundle:
            bundle["text/html"] = self._repr_html_inner()
        return bundle


class ShownModel(Shown):
    """`Shown` for one fitted model, with its table and pictures as methods."""

    support_: NDArray[np.int64]

    def summary(self) -> Summary:
        """Return a table of the chosen features: names, coefficients, and what each is worth.

        It has no p-values: after a selection on the same data they would be wrong.
        """
        check_is_fitted(self)
        return Summary.of(self)

    plot = plot_method(plot_coefficients)
    plot_convergence = plot_method(plot_convergence, "plot_convergence")

    def _shown(self) -> tuple[list[str], list[Callable[[], Any]]]:
        table = self.summary()._repr_html_()
        return [table], [functools.partial(plot_coefficients, self)] if self.support_.size else []


def image(picture: Callable[[], Any]) -> str:
    """What a function draws, as HTML; empty if it cannot be drawn.

    The SVG is the source of an image, since styles inside an SVG would otherwise apply to the whole page.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # characters that matplotlib's font lacks: the browser draws them
            ax = picture()
            data = base64.b64encode(as_svg(ax)).decode("ascii")
    except Exception:  # no matplotlib, or settings of the user that fail here: show the page without the picture
        return ""
    tag = f'<img alt="{html.escape(ax.get_title())}" style="max-width: 100%" src="data:image/svg+xml;base64,{data}">'
    return f'<div style="margin-top: 1em">{tag}</div>'
