"""A fitted model in pictures, and as a page in a notebook.  Names are shown as they are, whatever is in them."""

from __future__ import annotations

import base64
import html
import warnings
from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import estimator_html_repr

from .._style import BLACK, BLUE, CYCLE, ORANGE, as_svg, new_axes
from ._summary import chosen_words, feature_names

SHOWN = 25  # features in a picture, and in the table of stability
LONGEST = 32  # characters of a name in a picture
TABLE = "margin-top: 1em; max-height: 32em; overflow: auto"  # a long table scrolls
NAMED = 14  # lines with a name in a legend
NUMBERED = 12  # outputs up to which there is room for numbers


def plain(name: Any, longest: int = LONGEST) -> str:
    """A name as matplotlib shall draw it: literally (two dollars would make a formula), on one line, not too long."""
    text = "".join(c if c.isprintable() else " " for c in str(name))
    if len(text) > longest:
        half = (longest - 1) // 2
        text = f"{text[: longest - 1 - half]}…{text[-half:]}"
    return text.replace("$", r"\$")


def legend_beside(ax: Any, lines: list[Any], names: list[Any]) -> None:
    """A legend to the right of the axes, where it covers nothing."""
    # matplotlib leaves out names with an underscore in front
    labels = [f" {text}" if text.startswith("_") else text for text in map(plain, names)]
    ax.legend(lines, labels, loc="upper left", bbox_to_anchor=(1.0, 1.02), frameon=False, fontsize=8)


def _width(names: list[Any], inches: float) -> float:
    """Room for the names beside axes that are so many inches wide."""
    return inches + 0.085 * max((len(plain(name)) for name in names), default=0)


def line_style(number: int) -> dict[str, Any]:
    """Colour and dashes of the line with this number: the next dashes when all colours are used."""
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
    """Bars of what one standard deviation of a feature does to the score, with the coefficient as a number, the most
    useful feature on top; for several outputs a table in colours."""
    coef, worth, names = np.atleast_2d(model.coef_), np.atleast_2d(model.worth_), feature_names(model)
    chosen = np.flatnonzero(coef.any(axis=0))
    order = chosen[np.argsort(-model.feature_worth_[chosen], kind="stable")][:SHOWN]
    kept = set(getattr(model, "kept_", []))
    labels, outputs = [f"{names[j]} (always kept)" if j in kept else names[j] for j in order], model._output_names()
    if len(coef) > 1:
        ax = _draw_cells(ax, labels, outputs, coef[:, order].T, worth[:, order].T)
    else:
        effect = (coef[0] * model.scale_)[order]  # raw coefficients depend on units: bars of them say nothing
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
    """A cell a feature and output: the coefficient as a number, its size on scaled columns as a colour."""
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
    """The objective against passes over the data, a line an output."""
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
    if values.size and values.min() > 0 and values.max() > 10 * values.min():  # what a line would press to the floor
        ax.set_yscale("log")
    ax.set(xlabel="passes over the data", ylabel="objective")
    how = sorted({str(status) for status in (model.status_ if several else [model.status_])})
    ax.set_title(", ".join(how), fontsize=10)
    if several:
        legend_beside(ax, lines, outputs)
    return ax


def draw_path(path: Any, ax: Any = None) -> Any:
    """Effects of one standard deviation against k, the largest named beside the axes, the chosen k marked."""
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
    """An estimator that shows itself in a notebook: scikit-learn's diagram and, once fitted, its table and pictures."""

    @abstractmethod
    def _shown(self) -> tuple[list[Any], list[Any]]:
        """What is shown: tables, and functions that draw the pictures; raises if there is none yet."""

    def _repr_html_inner(self) -> str:
        diagram = estimator_html_repr(self)
        try:
            tables, pictures = self._shown()
            parts = [diagram, *(f'<div style="{TABLE}">{table}</div>' for table in tables)]
        except Exception:  # not fitted, or left half fitted by an error: a page must not fail, and the diagram is true
            return diagram
        page = "\n".join([*parts, *(image(picture) for picture in pictures)])
        return page.encode("utf-8", "replace").decode("utf-8")  # names may hold what no page can

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        bundle = super()._repr_mimebundle_(**kwargs)  # type: ignore[misc]
        if "text/html" in bundle:
            bundle["text/html"] = self._repr_html_inner()
        return bundle


def image(picture: Any) -> str:
    """What a function draws, inside the page; nothing if it cannot be drawn.

    As the source of an image: the styles inside an SVG would otherwise hold for the whole page.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # letters that matplotlib's font lacks: the browser has its own
            ax = picture()
            data = base64.b64encode(as_svg(ax)).decode("ascii")
    except Exception:  # no matplotlib, or settings of its user that fail here: the page is true without the picture
        return ""
    image = f'<img alt="{html.escape(ax.get_title())}" style="max-width: 100%" src="data:image/svg+xml;base64,{data}">'
    return f'<div style="margin-top: 1em">{image}</div>'
