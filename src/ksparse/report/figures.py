"""The pictures of the page; they stay small for any number of rows, and the same rows give the same picture."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._style import BLACK, BLUE, ORANGE, new_axes
from ..estimators.path import Path
from ..estimators.summary import NAMED, legend_beside, line_style, whole_numbers
from ..sensing.phase import wilson

SIZE = (4.8, 3.1)  # inches: two fit side by side on a screen, one on a telephone
DOTS = 1000  # rows that are drawn as dots; more are counted in cells
CELLS = (32, 24)
BINS = 10
POINTS = 600  # marked points on the lines of a picture
Array = NDArray[np.float64]


# --- held-out rows: classes ------------------------------------------------------------------------------------------
class Reliability(NamedTuple):
    """Rows in bins by a probability: its mean, how often the event happened, and the number of rows."""

    chance: Array
    share: Array
    rows: NDArray[np.int64]
    histogram: NDArray[np.int64]  # rows of all bins, the empty ones too


def reliability_bins(chance: Array, happened: NDArray[np.bool_]) -> Reliability:
    """Bins of equal width, fewer for few rows; empty bins are left out."""
    bins = min(BINS, max(4, len(chance) // 20))
    place = np.minimum((chance * bins).astype(int), bins - 1)
    count = np.bincount(place, minlength=bins)
    some = count > 0
    mean, hits = (np.bincount(place, values, bins)[some] / count[some] for values in (chance, happened.astype(float)))
    return Reliability(mean, hits, count[some], count)


def reliability(bins: Reliability) -> Any:
    """Observed frequency against predicted probability, above a histogram of the probabilities."""
    top, below = new_axes(size=(SIZE[0], 3.7), panels=(2, 1))
    top.get_gridspec().set_height_ratios([3.2, 1])
    low, high = wilson(bins.share * bins.rows, bins.rows)
    top.plot([0, 1], [0, 1], color=BLACK, linewidth=1, linestyle=":")
    ends = [np.maximum(0, bins.share - low), np.maximum(0, high - bins.share)]
    top.errorbar(bins.chance, bins.share, ends, color=BLUE, marker="o", markersize=4, capsize=2, linewidth=1.3)
    top.set(xlim=(-0.02, 1.02), ylim=(-0.04, 1.04), ylabel="observed frequency")
    top.tick_params(labelbottom=False)
    number = len(bins.histogram)
    below.bar((np.arange(number) + 0.5) / number, bins.histogram, 0.9 / number, color=BLUE)
    below.set(xlim=(-0.02, 1.02), xlabel="predicted probability", ylabel="rows")
    below.yaxis.get_major_locator().set_params(nbins=2, integer=True)
    _commas(below.yaxis)
    return top


def scores(z: Array, index: NDArray[np.int64], right: NDArray[np.bool_], classes: list[str]) -> Any:
    """Histograms of scores: of two classes by class, of more classes the margin of right and wrong predictions."""
    ax = new_axes(size=SIZE)
    if z.ndim == 1:
        parts, label, names = [z[index == 0], z[index == 1]], "score", classes
    else:
        two = np.partition(z, -2, axis=1)[:, -2:]
        margin = two[:, 1] - two[:, 0]
        parts, label, names = [margin[~right], margin[right]], "highest minus next score", ["wrong", "right"]
    edges = np.linspace(*_range(np.concatenate(parts)), 31)
    lines = []
    for part, colour in zip(parts, (ORANGE, BLUE), strict=True):
        count, _ = np.histogram(np.clip(part, edges[0], edges[-1]), edges)
        ax.stairs(count, edges, color=colour, fill=True, alpha=0.35)
        lines += ax.plot(np.repeat(edges, 2)[1:-1], np.repeat(count, 2), color=colour, linewidth=1.3)
    if z.ndim == 1:
        ax.axvline(0.0, color=BLACK, linewidth=1, linestyle=":")
    ax.set(xlabel=label, ylabel="rows")
    _commas(ax.yaxis)
    legend_beside(ax, lines, names)
    return ax


# --- held-out rows: numbers and counts -------------------------------------------------------------------------------
class Cloud(NamedTuple):
    """Predictions x and residuals y without the few far outside, and the mean residual along the predictions."""

    x: Array
    y: Array
    outside: int
    mean: tuple[Array, Array]


def cloud(x: Array, y: Array) -> Cloud:
    """The part of the residuals y at the predictions x that is drawn."""
    (left, right), (low, high) = _range(x), _range(y)
    seen = (x >= left) & (x <= right) & (y >= low) & (y <= high)
    groups = quantile_groups(x, y, min(12, max(1, len(x) // 25)))
    return Cloud(x[seen], y[seen], int((~seen).sum()), (groups.predicted, groups.observed))


def residuals(drawn: Cloud) -> Any:
    """Residuals against predictions, as dots or, for many rows, as shaded cells."""
    ax = new_axes(size=SIZE)
    if drawn.x.size <= DOTS:
        ax.plot(drawn.x, drawn.y, "o", color=BLUE, markersize=3.2, alpha=0.65, markeredgewidth=0)
    else:
        _draw_cells(ax, drawn.x, drawn.y)
    ax.axhline(0.0, color=BLACK, linewidth=1, linestyle=":")
    if len(drawn.mean[0]) > 1:
        ax.plot(*drawn.mean, color=ORANGE, linewidth=1.6)
    ax.set(xlabel="prediction", ylabel="truth − prediction")
    return ax


def _draw_cells(ax: Any, x: Array, y: Array) -> None:
    """Rectangles, darker where there are more rows."""
    from matplotlib.collections import PolyCollection
    from matplotlib.colors import to_rgba

    count, across, up = np.histogram2d(x, y, CELLS)
    i, j = np.nonzero(count)
    corners = [[(across[a], up[b]), (across[a + 1], up[b]), (across[a + 1], up[b + 1]), (across[a], up[b + 1])]
               for a, b in zip(i, j, strict=True)]  # fmt: skip
    depth = 0.12 + 0.88 * np.log1p(count[i, j]) / np.log1p(count.max())
    colours = [to_rgba(BLUE, round(float(alpha), 2)) for alpha in depth]
    ax.add_collection(PolyCollection(corners, facecolors=colours, linewidths=0))
    ax.set(xlim=(across[0], across[-1]), ylim=(up[0], up[-1]))


def histogram(drawn: Cloud) -> Any:
    """The distribution of the residuals."""
    ax = new_axes(size=SIZE)
    count, edges = np.histogram(drawn.y, min(40, max(8, int(drawn.y.size**0.5))))
    ax.stairs(count, edges, color=BLUE, fill=True, alpha=0.8)
    ax.axvline(0.0, color=BLACK, linewidth=1, linestyle=":")
    ax.set(xlabel="truth − prediction", ylabel="rows")
    _commas(ax.yaxis)
    return ax


class Groups(NamedTuple):
    """Groups of rows with similar predictions, all of about the same size."""

    predicted: Array
    observed: Array
    error: Array  # standard error of `observed`
    rows: NDArray[np.int64]


def quantile_groups(predicted: Array, observed: Array, groups: int = BINS) -> Groups:
    """Means of groups of rows, formed by the quantiles of the prediction; equal predictions stay together."""
    edges = np.unique(np.quantile(predicted, np.linspace(0, 1, groups + 1)[1:-1]))
    place = np.searchsorted(edges, predicted, "left")
    _, place, count = np.unique(place, return_inverse=True, return_counts=True)
    mean, seen, square = (np.bincount(place, v) / count for v in (predicted, observed, observed**2))
    error = np.sqrt(np.maximum(0.0, square - seen**2) / np.maximum(1, count - 1))
    return Groups(mean, seen, error, count)


def predicted_observed(groups: Groups) -> Any:
    """Mean counts against mean predictions."""
    ax = new_axes(size=SIZE)
    ends = np.array([groups.predicted.min(), groups.predicted.max()])
    ax.plot(ends, ends, color=BLACK, linewidth=1, linestyle=":")
    bars: dict[str, Any] = {"color": BLUE, "marker": "o", "markersize": 4, "capsize": 2, "linewidth": 1.3}
    ax.errorbar(groups.predicted, groups.observed, 2 * groups.error, **bars)
    low, high = groups.predicted[0], groups.predicted[-1]
    if groups.observed.min() > 0 and high > 30 * low > 0:
        ax.set(xscale="log", yscale="log")
    ax.set(xlabel="mean prediction of the group", ylabel="observed mean of the group")
    return ax


# --- the choice of k, and the search ---------------------------------------------------------------------------------
def criteria(path: Path) -> Any:
    """The information criteria of a path against k."""
    ax, lines = new_axes(size=SIZE), []
    names = {"AIC": path.aic, "BIC": path.bic, "extended BIC": path.ebic}
    for place, values in enumerate(names.values()):
        style = line_style(place)
        lines += ax.plot(path.k, values, marker=".", **style)
        least = int(np.argmin(values))
        ax.plot(path.k[least], values[least], "o", color=style["color"], markersize=6)
    _mark_best(ax, path)
    ax.set(xlabel="k", ylabel="criterion")
    legend_beside(ax, lines, list(names))
    return ax


def training_loss(path: Path) -> Any:
    """The training loss of a path against k."""
    ax = new_axes(size=SIZE)
    ax.plot(path.k, path.loss, marker=".", color=BLUE)
    ax.set(xlabel="k", ylabel="mean training loss")
    whole_numbers(ax)
    return ax


def effect_sizes(path: Path, sizes: Array, names: list[str]) -> Any:
    """The sizes of the effects of features, (ks, features), against k; `names` belong to the first features."""
    ax = new_axes(size=SIZE)
    marker = "." if sizes.size <= POINTS else ""
    lines = [ax.plot(path.k, size, marker=marker, **line_style(place))[0] for place, size in enumerate(sizes.T)]
    _mark_best(ax, path)
    ax.set(xlabel="k", ylabel="size of the effects")
    legend_beside(ax, lines[:NAMED], names)
    return ax


def coefficients(path: Path) -> Any:
    """The coefficients of a path against k."""
    return _untitled(path.plot(new_axes(size=SIZE)))


def cv_scores(cv: Any) -> Any:
    """The scores of a cross-validated estimator against k."""
    ax = _untitled(cv.plot(new_axes(size=SIZE)))
    ax.set_ylabel("minus the held-out loss" if cv.scoring is None else "score")
    return ax


def convergence(model: Any, outputs: list[str]) -> Any:
    """The objective against passes over the data, with one line per output."""
    ax = _untitled(model.plot_convergence(new_axes(size=SIZE)))
    lines = list(ax.lines)
    for line in lines:
        _thin(line, len(lines))
    if len(lines) > 1:
        legend_beside(ax, lines[:NAMED], outputs[:NAMED])
    return ax


def _mark_best(ax: Any, path: Path) -> None:
    """A dotted line at the smallest extended BIC."""
    ax.axvline(path.best().k_, color=BLACK, linewidth=1, linestyle=":")
    whole_numbers(ax)


def _thin(line: Any, lines: int) -> None:
    """Keep as many points of a line as the eye can tell apart, and markers only if there are few."""
    x, y = line.get_data()
    few = np.unique(np.linspace(0, len(x) - 1, min(len(x), max(2, POINTS // lines))).astype(int))
    if len(few) < len(x):
        line.set_data(x[few], y[few])
    if len(x) * lines > POINTS // 4:
        line.set_marker("")


def _untitled(ax: Any) -> Any:
    ax.set_title("")  # the caption says it
    return ax


def _range(values: Array) -> tuple[float, float]:
    """The range of the values without the few that are far outside."""
    least, low, high, most = (float(q) for q in np.quantile(values, [0.0, 0.005, 0.995, 1.0]))
    room = 1.5 * (high - low)
    if room > 0:
        least, most = max(least, low - room), min(most, high + room)
    return (least, most) if most > least else (least - 0.5, most + 0.5)


def _commas(axis: Any) -> None:
    axis.set_major_formatter(lambda value, _: f"{value:,.0f}")
