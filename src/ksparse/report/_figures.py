"""Pictures of held-out rows: small whatever the number of rows, and the same from the same rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._style import BLACK, BLUE, ORANGE, new_axes
from ..estimators.summary import legend_beside
from ..sensing.phase import wilson

SIZE = (4.8, 3.1)  # inches: two fit beside each other, one on a telephone
POINTS = 1000  # more rows than this are counted in cells
CELLS = (32, 24)
BINS = 10
Array = NDArray[np.float64]


class Sketch(NamedTuple):
    """A picture to be: what draws it, what it shows, and what stands beneath it."""

    draw: Callable[[], Any]
    label: str
    caption: str


# --- classes ---------------------------------------------------------------------------------------------------------
class Reliability(NamedTuple):
    """Rows in bins by a probability: its mean, how often it came true, and how many they are."""

    chance: Array
    share: Array
    rows: NDArray[np.int64]
    histogram: NDArray[np.int64]


def reliability_bins(chance: Array, happened: NDArray[np.bool_]) -> Reliability:
    """Bins of equal width, the fewer the fewer rows; those without rows are left out."""
    bins = min(BINS, max(4, len(chance) // 20))
    place = np.minimum((chance * bins).astype(int), bins - 1)
    count = np.bincount(place, minlength=bins)
    some = count > 0
    mean, hits = (np.bincount(place, values, bins)[some] / count[some] for values in (chance, happened.astype(float)))
    return Reliability(mean, hits, count[some], count)


def reliability(bins: Reliability) -> Any:
    """The share that came true against the probability, above a histogram of the probabilities."""
    top, below = new_axes(size=(SIZE[0], 3.7), panels=(2, 1))
    top.get_gridspec().set_height_ratios([3.2, 1])
    low, high = wilson(bins.share * bins.rows, bins.rows)
    top.plot([0, 1], [0, 1], color=BLACK, linewidth=1, linestyle=":")
    ends = [np.maximum(0, bins.share - low), np.maximum(0, high - bins.share)]
    top.errorbar(bins.chance, bins.share, ends, color=BLUE, marker="o", markersize=4, capsize=2, linewidth=1.3)
    top.set(xlim=(-0.02, 1.02), ylim=(-0.04, 1.04), ylabel="share that came true")
    top.tick_params(labelbottom=False)
    number = len(bins.histogram)
    below.bar((np.arange(number) + 0.5) / number, bins.histogram, 0.9 / number, color=BLUE)
    below.set(xlim=(-0.02, 1.02), xlabel="predicted probability", ylabel="rows")
    below.yaxis.get_major_locator().set_params(nbins=2, integer=True)
    _commas(below.yaxis)
    return top


def scores(z: Array, index: NDArray[np.int64], right: NDArray[np.bool_], classes: list[str]) -> Any:
    """Histograms of the scores of two classes; of more classes, of how clearly the winner won, right and wrong."""
    ax = new_axes(size=SIZE)
    if z.ndim == 1:
        parts, label, names = [z[index == 0], z[index == 1]], "score", classes
    else:
        two = np.partition(z, -2, axis=1)[:, -2:]
        lead = two[:, 1] - two[:, 0]
        parts, label, names = [lead[~right], lead[right]], "lead of the greatest score", ["wrong", "right"]
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


# --- numbers ---------------------------------------------------------------------------------------------------------
class Cloud(NamedTuple):
    """Predictions and residuals, the few far outside left out; the mean residual along the prediction."""

    x: Array
    y: Array
    outside: int
    middle: tuple[Array, Array]


def cloud(x: Array, y: Array) -> Cloud:
    """What is drawn of residuals y at predictions x."""
    (left, right), (low, high) = _range(x), _range(y)
    seen = (x >= left) & (x <= right) & (y >= low) & (y <= high)
    groups = deciles(x, y, min(12, max(1, len(x) // 25)))
    return Cloud(x[seen], y[seen], int((~seen).sum()), (groups.predicted, groups.observed))


def residuals(drawn: Cloud) -> Any:
    """Residuals against predictions: points, or cells where there are many."""
    ax = new_axes(size=SIZE)
    if drawn.x.size <= POINTS:
        ax.plot(drawn.x, drawn.y, "o", color=BLUE, markersize=3.2, alpha=0.65, markeredgewidth=0)
    elif drawn.x.size:
        _draw_cells(ax, drawn.x, drawn.y)
    ax.axhline(0.0, color=BLACK, linewidth=1, linestyle=":")
    if len(drawn.middle[0]) > 1:
        ax.plot(*drawn.middle, color=ORANGE, linewidth=1.6)
    ax.set(xlabel="prediction", ylabel="truth − prediction")
    return ax


def _draw_cells(ax: Any, x: Array, y: Array) -> None:
    """Squares, the darker the more rows."""
    from matplotlib.collections import PolyCollection

    count, across, up = np.histogram2d(x, y, CELLS)
    i, j = np.nonzero(count)
    corners = [[(across[a], up[b]), (across[a + 1], up[b]), (across[a + 1], up[b + 1]), (across[a], up[b + 1])]
               for a, b in zip(i, j, strict=True)]  # fmt: skip
    depth = 0.12 + 0.88 * np.log1p(count[i, j]) / np.log1p(count.max())
    ax.add_collection(
        PolyCollection(corners, facecolors=[(*_rgb(BLUE), round(float(a), 2)) for a in depth], linewidths=0)
    )
    ax.set(xlim=(across[0], across[-1]), ylim=(up[0], up[-1]))


def histogram(drawn: Cloud) -> Any:
    """How often each residual occurs."""
    ax = new_axes(size=SIZE)
    count, edges = np.histogram(drawn.y, min(40, max(8, int(drawn.y.size**0.5))))
    ax.stairs(count, edges, color=BLUE, fill=True, alpha=0.8)
    ax.axvline(0.0, color=BLACK, linewidth=1, linestyle=":")
    ax.set(xlabel="truth − prediction", ylabel="rows")
    _commas(ax.yaxis)
    return ax


class Groups(NamedTuple):
    """Rows in groups of equal number by their prediction."""

    predicted: Array
    observed: Array
    error: Array  # standard error of `observed`
    rows: NDArray[np.int64]


def deciles(predicted: Array, observed: Array, groups: int = BINS) -> Groups:
    """Means of groups of rows by their prediction; equal predictions stay together."""
    edges = np.unique(np.quantile(predicted, np.linspace(0, 1, groups + 1)[1:-1]))
    place = np.searchsorted(edges, predicted, "left")
    _, place, count = np.unique(place, return_inverse=True, return_counts=True)
    mean, seen, square = (np.bincount(place, v) / count for v in (predicted, observed, observed**2))
    spread = np.sqrt(np.maximum(0.0, square - seen**2) / np.maximum(1, count - 1))
    return Groups(mean, seen, spread, count)


def predicted_observed(groups: Groups) -> Any:
    """Mean counts against mean predictions."""
    ax = new_axes(size=SIZE)
    ends = np.array([groups.predicted.min(), groups.predicted.max()])
    ax.plot(ends, ends, color=BLACK, linewidth=1, linestyle=":")
    bars: Any = {"color": BLUE, "marker": "o", "markersize": 4, "capsize": 2, "linewidth": 1.3}
    ax.errorbar(groups.predicted, groups.observed, 2 * groups.error, **bars)
    low, high = groups.predicted[0], groups.predicted[-1]
    if groups.observed.min() > 0 and high > 30 * low > 0:
        ax.set(xscale="log", yscale="log")
    ax.set(xlabel="mean prediction of the group", ylabel="mean of the group")
    return ax


# --- small things ----------------------------------------------------------------------------------------------------
def _range(values: Array) -> tuple[float, float]:
    """From the least to the greatest value; a few far outside do not count."""
    least, low, high, most = np.quantile(values, [0.0, 0.005, 0.995, 1.0])
    room = 1.5 * (high - low)
    if room > 0:
        least, most = max(least, low - room), min(most, high + room)
    return (least, most) if most > least else (least - 0.5, most + 0.5)


def _commas(axis: Any) -> None:
    axis.set_major_formatter(lambda value, _: f"{value:,.0f}")


def _rgb(colour: str) -> tuple[float, ...]:
    return tuple(int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
