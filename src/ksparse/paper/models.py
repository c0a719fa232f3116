"""Figure 7: the models that HT-SVRG learns, as pictures of their weights."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import classification, digits
from .digits import MNIST, as_paper, title_of, unpack, versus
from .lab import PRESETS, Claim, Item, Summary, judge

NUMBER = "7"
TITLE = "Visualization of the models"
TEXT = (
    "We visualize 5 models learned by HT-SVRG under different choices of sparsity shown on the top of each column. "
    "Note that the feature dimension is 784. From the top row to the bottom row, we illustrate the models of “0 vs 9”, "
    "“1 vs 7”, “2 vs 3”, “4 vs 5” and “6 vs 8”, where for each pair, we label the small digit as positive and the "
    "large one as negative. The red color represents negative weights while the blue pixels correspond with positive "
    "weights."
)
NEEDS = (digits.NUMBER, classification.NUMBER)  # this figure has no trials of its own
KEY: tuple[str, ...] = ()
CONFIG = dict.fromkeys(PRESETS)  # nothing to configure
COLORS = ("#b2182b", "#ffffff", "#2166ac")  # red, white, blue: colour-blind people can tell them apart
BRIGHT = 95  # magnitudes from this percentile on get the full colour
QUARTER = 0.25


def items(config: None) -> list[Item]:
    return []


def summarise(records: Iterable[Item]) -> Summary:
    return {}


def plot(summaries: dict[str, Summary]) -> dict[str, Any]:
    """One panel per pair: the two digits, then the weights for every k, all on the same scale."""
    summary = summaries.get(classification.NUMBER, {})
    samples = summaries.get(digits.NUMBER, {})
    same = samples.get("digits") == summary.get("digits")
    return {
        pair: _plot_pair(pair, models, summary, samples["images"] if same else {})
        for pair, models in summary.get("models", {}).items()
    }


def _plot_pair(pair: str, models: dict[str, Item], summary: Summary, samples: dict[str, list[str]]) -> Any:
    from matplotlib.colors import LinearSegmentedColormap

    from .._style import new_axes

    pictures = {int(k): weights_of(model, summary["d"]) for k, model in models.items()}
    magnitudes = np.abs(np.concatenate([picture[picture != 0] for picture in pictures.values()]))
    top = float(np.percentile(magnitudes, BRIGHT)) if magnitudes.size else 1.0
    lead = [(label, samples[label][0]) for label in pair.split("v") if samples.get(label)]
    colors = LinearSegmentedColormap.from_list("weights", COLORS)
    axes = np.atleast_1d(new_axes(None, (4.2, 1.2), (1, len(lead) + len(pictures))))
    for ax in axes:
        ax.grid(visible=False)
        ax.set(xticks=[], yticks=[])
        for spine in ax.spines.values():
            spine.set(visible=True, linewidth=0.4, color="#888888")
    for ax, (label, text) in zip(axes, lead, strict=False):
        ax.imshow(unpack(text), cmap="gray_r", vmin=0, vmax=1, interpolation="nearest")
        ax.set_title(f"“{label}”", fontsize=8)
    for ax, (k, picture) in zip(axes[len(lead) :], sorted(pictures.items()), strict=True):
        image = ax.imshow(picture, cmap=colors, vmin=-top, vmax=top, interpolation="nearest")
        ax.set_title(f"k = {k}", fontsize=8)
    bar = axes[0].figure.colorbar(image, ax=axes, location="bottom", fraction=0.07, pad=0.04, aspect=45, extend="both")
    bar.set_label(f"weight, {title_of(pair, summary['digits'])}", fontsize=8)
    bar.ax.tick_params(labelsize=7, length=2)
    bar.outline.set_visible(False)
    return axes[0]


def weights_of(model: Item, d: int) -> NDArray[np.float64]:
    """The weights of a model as a square."""
    x = np.zeros(d)
    x[model["pixels"]] = np.array(model["percent"], float) * model["largest"] / 100
    side = round(d**0.5)
    return x.reshape(side, side)


def claims(summaries: dict[str, Summary]) -> list[Claim]:
    summary = summaries.get(classification.NUMBER, {})
    found = [
        (run["accuracy"], 1 - run["accuracy"] <= QUARTER * (1 - summary["steps"][pair]["majority"]), pair, k)
        for pair, by_size in classification.runs_of(summary).items()
        for k, run in by_size.items()
        if pair in summary["steps"]
    ]
    if not found:
        return []
    (low, _, pair, k), (high, *_) = min(found), max(found)
    good = sum(entry[1] for entry in found)
    ours = (
        f"{len(found)} models classify {100 * low:.1f}% ({versus(pair)}, k = {k}) to {100 * high:.1f}% of the test "
        f"images correctly; {good} make at most a quarter of the errors of always predicting the more frequent digit"
    )
    paper = "“Apparently, the models we learned are discriminative.”"
    reason = "" if good == len(found) else "the smallest models make more errors"
    claim = Claim("The models tell digits apart", paper, ours, judge(good == len(found)), reason)
    return as_paper([claim], summary.get("digits", MNIST))
