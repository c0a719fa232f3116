"""Figure 2: success of HT-SVRG against n and K, with both snapshot rules and both distributions of amplitudes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..sensing.phase import Phase, wilson
from . import phase_transitions
from .lab import Claim, Item, Summary, judge
from .phase_transitions import n_for_rate, phase, summarise, trial, unless_few

__all__ = ["summarise", "trial"]

NUMBER = "2"
TITLE = "Percentage of success of HT-SVRG against the number of measurements and the sparsity"
TEXT = (
    "For instance, the left panel tells that to ensure that 80% percents of the 16-sparse signals are recovered, we "
    "have to collect 175 measurements. We can also learn from the right panel that using 232 measurements, any signal "
    "whose sparsity is 22 or less can be reliably recovered."
)
NEEDS = ("1",)
KEY = phase_transitions.KEY
# what the paper leaves open: the iterate that a stage starts from, and the distribution of the amplitudes
VARIANTS = {
    ("ht-svrg", "gaussian"): "last iterate, Gaussian",
    ("ht-svrg-random", "gaussian"): "random iterate, Gaussian",
    ("ht-svrg", "sign"): "last iterate, ±1",
    ("ht-svrg-random", "sign"): "random iterate, ±1",
}
READINGS = {"ht-svrg": "last iterate", "ht-svrg-random": "random iterate, Algorithm 1 as printed"}
SPARSITY, MEASUREMENTS, AT, RATE = 16, 232, 175, 0.8  # the numbers of the paper's text
TOLERANCE = 0.1  # of a success rate: about 2.5 standard deviations with 100 trials
RELIABLE, RELIABLY = 22, 0.9


class SuccessCurvesConfig(NamedTuple):
    n: tuple[int, ...]  # at K = 16
    K: tuple[int, ...]  # at n = 232
    trials: int


FULL_N, FULL_K = tuple(sorted({*range(144, 217, 8), AT})), tuple(range(14, 27, 2))
CONFIG = {
    "quick": SuccessCurvesConfig((160, AT, 192), (18, 22, 26), 2),
    "standard": SuccessCurvesConfig(FULL_N, FULL_K, 100),
    "full": SuccessCurvesConfig(FULL_N, FULL_K, 1000),
}


def items(config: SuccessCurvesConfig) -> list[Item]:
    cells = [(SPARSITY, n) for n in config.n] + [(K, MEASUREMENTS) for K in config.K]
    return [
        {"algorithm": algorithm, "signal": signal, "K": K, "n": n, "trial": trial}
        for K, n in cells
        for trial in range(config.trials)
        for algorithm, signal in VARIANTS
    ]


def plot(summaries: dict[str, Summary]) -> dict[str, Any]:
    if not {NUMBER, *NEEDS} <= set(summaries):
        return {}
    grid = phase(summaries["1"], "ht-svrg")
    many = [int(K) for K in np.unique(grid.K) if K % 4 == 2 or K == SPARSITY]
    some = [int(n) for n in np.unique(grid.n) if n == MEASUREMENTS or (n % 32 == 0 and n >= 64)]
    return {
        "measurements": _family(grid, "K", many),
        "sparsity": _family(grid, "n", some),
        "variants-measurements": _variants(summaries[NUMBER], "K", SPARSITY),
        "variants-sparsity": _variants(summaries[NUMBER], "n", MEASUREMENTS),
    }


def _family(grid: Phase, fixed: str, values: list[int]) -> Any:
    """One curve for each of these K (against n) or n (against K), in an ordered range of colours."""
    import matplotlib as mpl

    from .._style import new_axes
    from ..sensing.phase.figures import MARKS

    ax = new_axes(None, (4.6, 3.6))
    for i, value in enumerate(values):
        cells = getattr(grid, fixed) == value
        style = {"color": mpl.colormaps["viridis"](0.9 * i / max(1, len(values) - 1)), "marker": MARKS[i % len(MARKS)]}
        x = (grid.n if fixed == "K" else grid.K)[cells]
        ax.plot(x, 100 * grid.rate[cells], label=f"{value}", markersize=3, **style)
    if fixed == "K":
        _star(ax)
    _label(ax, fixed)
    ax.legend(title=fixed, fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    return ax


def _star(ax: Any) -> None:
    ax.plot([AT], [100 * RATE], marker="*", color="black", markersize=12, linestyle="none", label="paper")


def _variants(summary: Summary, fixed: str, value: int) -> Any:
    from .._style import BLUE, YELLOW, new_axes

    ax = new_axes(None, (4.6, 3.6))
    for (algorithm, signal), name in VARIANTS.items():
        found = phase(summary, algorithm, signal)
        cells = getattr(found, fixed) == value
        low, high = wilson(found.successes[cells], found.trials[cells])
        x = (found.n if fixed == "K" else found.K)[cells]
        style = {
            "color": BLUE if signal == "gaussian" else YELLOW,
            "linestyle": "-" if algorithm == "ht-svrg" else "--",
            "marker": "o" if algorithm == "ht-svrg" else "s",
        }
        ax.plot(x, 100 * found.rate[cells], label=name, markersize=4, **style)
        ax.fill_between(x, 100 * low, 100 * high, color=style["color"], alpha=0.12, linewidth=0)
    if fixed == "K":
        _star(ax)
    _label(ax, fixed)
    ax.set_title(f"{fixed} = {value}; bands: 95%", fontsize=9)
    ax.legend(fontsize=8, loc="best", frameon=False)
    return ax


def _label(ax: Any, fixed: str) -> None:
    ax.set(xlabel="n, measurements" if fixed == "K" else "K, non-zeros", ylabel="success, %", ylim=(-3, 103))


def claims(summaries: dict[str, Summary]) -> list[Claim]:
    """Two claims for each reading of Algorithm 1, judged with Gaussian amplitudes."""
    if not {NUMBER, *NEEDS} <= set(summaries):
        return []
    found = {names: phase(summaries[NUMBER], *names) for names in VARIANTS}
    grid = phase(summaries["1"], "ht-svrg")  # Figure 1 has more K, but only the last iterate
    trials = {algorithm: int(found[algorithm, "gaussian"].trials.max()) for algorithm in READINGS}
    return [
        *(unless_few(_eighty(found, name), trials[name]) for name in READINGS),
        *(unless_few(_reliably(found, name, [grid] * (name == "ht-svrg")), trials[name]) for name in READINGS),
    ]


def _eighty(found: dict[tuple[str, str], Phase], algorithm: str) -> Claim:
    own = found[algorithm, "gaussian"]
    rate, place = _rate(own, SPARSITY, AT), n_for_rate(own, SPARSITY, RATE)
    reason = (
        f"Judged by the share at n = {AT}, with a tolerance of {100 * TOLERANCE:.0f} points. The paper does not say "
        "which iterate its experiments use, nor how amplitudes are drawn. All trials of a cell share one matrix, as in "
        "the paper: another matrix may move the curve."
    )
    return Claim(
        f"{AT} measurements recover {RATE:.0%} of the {SPARSITY}-sparse signals: {READINGS[algorithm]}",
        f"“to ensure that 80% percents of the 16-sparse signals are recovered, we have to collect {AT} measurements”",
        f"{rate:.0%} at n = {AT} ({_rate(found[algorithm, 'sign'], SPARSITY, AT):.0%} with amplitudes ±1); "
        f"{RATE:.0%} " + (f"at n = {place:.1f}" if np.isfinite(place) else "at no n that was tried"),
        judge(round(abs(rate - RATE), 9) <= TOLERANCE),
        reason,
    )


def _reliably(found: dict[tuple[str, str], Phase], algorithm: str, grids: Sequence[Phase]) -> Claim:
    own = found[algorithm, "gaussian"]
    rates = {
        int(K): float(rate)
        for one in (*grids, own)
        for n, K, rate in zip(one.n, one.K, one.rate, strict=True)
        if n == MEASUREMENTS and K <= RELIABLE
    }
    least = min(rates.values())
    return Claim(
        f"{MEASUREMENTS} measurements suffice for K up to {RELIABLE}: {READINGS[algorithm]}",
        f"“using {MEASUREMENTS} measurements, any signal whose sparsity is {RELIABLE} or less can be reliably "
        "recovered”",
        f"{rates[RELIABLE]:.0%} at K = {RELIABLE} ({_rate(found[algorithm, 'sign'], RELIABLE, MEASUREMENTS):.0%} with "
        f"amplitudes ±1); at least {least:.0%} for the {len(rates)} K from {min(rates)} to {RELIABLE} that were run",
        judge(least >= RELIABLY),
        f"“Reliably” is read as at least {RELIABLY:.0%}.",
    )


def _rate(found: Phase, K: int, n: int) -> float:
    return float(found.rate[(found.K == K) & (found.n == n)][0])
