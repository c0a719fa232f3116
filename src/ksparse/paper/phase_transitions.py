"""Figure 1: how often IHT, PGD and HT-SVRG recover a K-sparse signal from n measurements."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from ..sensing.phase import Phase
from ._lab import Claim, Item, Summary
from ._recovery import D, solve

NUMBER = "1"
TITLE = "Percentage of successful recovery under various sparsity and sample size"
TEXT = (
    "The values range from 0 to 100, where a brighter color means a higher percentage of success. It is apparent that "
    "PGD and HT-SVRG require fewer measurements for an accurate recovery than IHT. As a stochastic variant, HT-SVRG "
    "performs comparably to the batch counterpart PGD."
)
NEEDS: tuple[str, ...] = ()
KEY = ("algorithm", "signal", "K", "n", "trial")
KEEP = ("success",)
NAMES = {"iht": "IHT", "pgd": "PGD", "ht-svrg": "HT-SVRG"}


class Config(NamedTuple):
    n: tuple[int, ...]
    K: tuple[int, ...]
    trials: int


PAPER_N = (1, *range(8, D + 1, 8))  # "from 1 to 256, roughly with a step size 8"
PAPER_K = (1, *range(2, 27, 2))  # "from 1 to 26, roughly with step size 2"
CONFIG = {
    "quick": Config(tuple(range(16, D + 1, 16)), (2, 6, 10, 16, 22, 26), 8),
    "standard": Config(PAPER_N, PAPER_K, 100),
    "full": Config(PAPER_N, PAPER_K, 1000),
}


def items(config: Config) -> list[Item]:
    """Cell by cell, for its trials share a matrix; cells in no order, so that the time left can be told."""
    cells = [(K, n) for K in config.K for n in config.n]
    return [
        {"algorithm": algorithm, "signal": "gaussian", "K": cells[i][0], "n": cells[i][1], "trial": trial}
        for i in np.random.default_rng(0).permutation(len(cells))
        for trial in range(config.trials)
        for algorithm in NAMES
    ]


def trial(seed: int, algorithm: str, signal: str, K: int, n: int, trial: int) -> Item:
    end = solve(algorithm, signal, K, n, trial, seed)
    return {"success": end.success, "stages": end.stages, "rule": end.rule}


def summarise(records: Iterable[Item]) -> Summary:
    """Counts of every cell, by algorithm and signal; and by which rules trials ended."""
    cells: dict[str, dict[tuple[int, int], list[int]]] = {}
    rules: dict[str, dict[str, int]] = {}
    for record in records:
        name = f"{record['algorithm']} {record['signal']}"
        cell = cells.setdefault(name, {}).setdefault((record["K"], record["n"]), [0, 0])
        cell[0] += 1
        cell[1] += record["success"]
        count = rules.setdefault(name, {})
        count[record["rule"]] = count.get(record["rule"], 0) + 1
    return {
        name: {
            "K": [K for K, _ in sorted(cells[name])],
            "n": [n for _, n in sorted(cells[name])],
            "trials": [cells[name][cell][0] for cell in sorted(cells[name])],
            "successes": [cells[name][cell][1] for cell in sorted(cells[name])],
            "rules": dict(sorted(rules[name].items())),
        }
        for name in sorted(cells)
    }


def phase(summary: Summary, algorithm: str, signal: str = "gaussian") -> Phase:
    """The counts of an algorithm, with their curves."""
    counts = summary[f"{algorithm} {signal}"]
    settings = {"algorithm": NAMES.get(algorithm, algorithm), "k": "K", "d": D}
    return Phase(settings, *(np.array(counts[name]) for name in ("n", "K", "trials", "successes")))


def plot(summaries: dict[str, Summary]) -> dict[str, Any]:
    from .._style import BLACK, STYLE, new_axes
    from ..sensing.phase.figures import draw_rates, edges

    panels = {}
    for algorithm, name in NAMES.items():
        found = phase(summaries[NUMBER], algorithm)
        ax = new_axes(None, (4.2, 3.6))
        ax.grid(visible=False)
        image = draw_rates(ax, found, shares=False)
        curve = found.curve()
        known = np.isfinite(curve.n)
        from matplotlib.patheffects import Normal, Stroke

        outline = [Stroke(linewidth=3, foreground=BLACK), Normal()]
        ax.plot(curve.n[known], curve.K[known], color=STYLE[algorithm].color, path_effects=outline, label="50%")
        n, K = edges(np.unique(found.n)), edges(np.unique(found.K))
        ax.set(xlabel="n, measurements", ylabel="K, non-zeros", title=name, xlim=(n[0], n[-1]), ylim=(K[0], K[-1]))
        ax.figure.colorbar(image, ax=ax, label="success rate").outline.set_visible(False)
        panels[algorithm] = ax
    return panels


def claims(summaries: dict[str, Summary]) -> list[Claim]:
    found = {name: phase(summaries[NUMBER], name) for name in NAMES}
    n50 = {name: found[name].curve() for name in NAMES}
    return [_fewer_than_iht(n50), _comparable(n50)]


def _fewer_than_iht(n50: dict[str, Any]) -> Claim:
    K = n50["iht"].K
    gaps = np.minimum(n50["iht"].n - n50["pgd"].n, n50["iht"].n - n50["ht-svrg"].n)
    more = K[gaps < 0]
    ours = f"n at 50% success, K = {K[0]} to {K[-1]}: IHT needs more for {int((gaps > 0).sum())} of {K.size} K"
    if more.size == 0:
        return Claim("PGD and HT-SVRG require fewer measurements than IHT", "apparent", ours, "agrees")
    verdict = "agrees" if more.size <= K.size / 4 else "differs"
    reason = f"not at K = {', '.join(map(str, more))}, where k = 9K costs measurements that k = K does not"
    return Claim("PGD and HT-SVRG require fewer measurements than IHT", "apparent", ours, verdict, reason)


def _comparable(n50: dict[str, Any]) -> Claim:
    both = np.isfinite(n50["pgd"].n) & np.isfinite(n50["ht-svrg"].n)
    gap = n50["ht-svrg"].n[both] - n50["pgd"].n[both]
    typical, worst = float(np.median(np.abs(gap))), gap[np.argmax(np.abs(gap))]
    ours = f"n at 50% differs by {typical:.1f} in the median over K, {worst:+.0f} at most"
    verdict = "agrees" if typical <= 8 else "differs"
    reason = "" if verdict == "agrees" else "more than the grid's step of 8"
    return Claim("HT-SVRG performs comparably to PGD", "comparably", ours, verdict, reason)
