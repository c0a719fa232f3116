"""Figure 3: the fewest measurements for 95% and 99% success, and straight lines fitted to them."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np

from .._text import counter
from ..sensing.phase import Ledger
from . import phase_transitions
from .lab import Claim, Item, Lab, Summary, by_parameters, judge
from .phase_transitions import NAMES, n_for_rate, phase, trial, unless_few
from .recovery import D

__all__ = ["trial"]

NUMBER = "3"
TITLE = "Minimum number of measurements to achieve 95% and 99% percentage of success"
TEXT = (
    "… for each signal sparsity K, we look for the number of measurements n0 from Figure 1 where 90 percents of "
    "success are achieved. Then we carefully enlarge n0 with step size 1 and run the algorithms. … We find that n is "
    "almost linear with K. Especially, the curve of HT-SVRG is nearly on top of that of PGD …"
)
NEEDS = ("1",)
KEY, KEEP = phase_transitions.KEY, ("success",)
START, LEVELS = 0.9, (0.95, 0.99)
CLOSE = phase_transitions.STEP
LINEAR = 0.95  # the R² from which on a curve counts as almost linear
STRIDE = 8  # trials of a cell at a time: their failures decide whether more are needed


class MinimumMeasurementsConfig(NamedTuple):
    K: tuple[int, ...]
    trials: int
    step: int  # of n


CONFIG = {
    "quick": MinimumMeasurementsConfig((2, 6, 10, 16), 10, 8),
    "standard": MinimumMeasurementsConfig(phase_transitions.PAPER_K, 100, 1),
    "full": MinimumMeasurementsConfig(phase_transitions.PAPER_K, 1000, 1),
}


def items(config: MinimumMeasurementsConfig) -> list[Item]:
    """Typical trials, about as many as a run makes; which trials a run makes depends on their outcomes."""
    return [
        _item(algorithm, K, min(D, 9 * K + 40 + 2 * config.step * i), t)
        for algorithm in NAMES
        for K in config.K
        for i in range(4)
        for t in range(config.trials)
    ]


def _item(algorithm: str, K: int, n: int, trial: int) -> Item:
    return {"algorithm": algorithm, "signal": "gaussian", "K": K, "n": n, "trial": trial}


def run(lab: Lab, ledger: Ledger) -> None:
    """Make all searches in parallel: in every round, each search asks for the next trials of its current cell."""
    config = CONFIG[lab.preset]
    summary = phase_transitions.summarise(lab.records(phase_transitions))
    walks = [Walk(algorithm, K, start(summary, algorithm, K), config) for algorithm in NAMES for K in config.K]
    done = 0
    with counter(f"figure {NUMBER}: searches", len(walks), lab.verbose) as advance:
        while any(wanted := [walk.wants(ledger) for walk in walks]):
            over = sum(not items for items in wanted)
            advance(over - done)
            done = over
            # slow searches first, and the trials of one search apart: then all workers finish a round together
            batch = [item for items in zip_longest(*reversed(wanted)) for item in items if item]
            lab.collect(sys.modules[__name__], batch, ledger, verbose=False)


def start(summary: Summary, algorithm: str, K: int) -> int:
    """n0: the n at which Figure 1 reaches 90% success; its largest n if it does not."""
    n90 = n_for_rate(phase(summary, algorithm), K, START)
    return int(np.clip(np.floor(n90), K, D)) if np.isfinite(n90) else (D if n90 > 0 else K)


class Walk:
    """One search: n grows from n0 until the success rate is 95%, and then until it is 99%."""

    def __init__(self, algorithm: str, K: int, n: int, config: MinimumMeasurementsConfig) -> None:
        self.algorithm, self.K, self.n, self.config = algorithm, K, n, config
        self.levels = list(LEVELS)

    def wants(self, ledger: Ledger) -> list[Item]:
        """The next trials, after advancing as far as known trials allow; none at the end of the search."""
        while self.levels and self.n <= D:
            known = self._known(ledger)
            allowed = int((1 - self.levels[0]) * self.config.trials + 1e-9)
            if known.count(False) > allowed:
                self.n += self.config.step
            elif len(known) == self.config.trials:
                self.levels.pop(0)  # the same cell may be good enough for the next level
            else:
                trials = range(len(known), min(len(known) + STRIDE, self.config.trials))
                return [_item(self.algorithm, self.K, self.n, t) for t in trials]
        return []

    def _known(self, ledger: Ledger) -> list[bool]:
        """The outcomes of complete strides: a run that was killed within a stride must not decide before its end."""
        outcomes = []
        for t in range(self.config.trials):
            item = _item(self.algorithm, self.K, self.n, t)
            key = tuple(item[name] for name in KEY)
            if key not in ledger:
                break
            outcomes.append(ledger.kept[key][0])
        whole = len(outcomes) == self.config.trials
        return outcomes if whole else outcomes[: len(outcomes) // STRIDE * STRIDE]


def summarise(records: Iterable[Item]) -> Summary:
    """The smallest n whose complete trials reach each level of success; None if no n up to d does."""
    cells = by_parameters(records, ("algorithm", "K", "n"), "success")
    trials = max(map(len, cells.values()), default=0)
    found: Summary = {}
    for algorithm in NAMES:
        tried = sorted({K for name, K, _ in cells if name == algorithm})
        if tried:
            found[algorithm] = {"K": tried, "trials": trials}
            found[algorithm] |= {
                f"{level:.2f}": [_least(cells, algorithm, K, level, trials) for K in tried] for level in LEVELS
            }
    return found


def _least(cells: dict[tuple[Any, ...], list[bool]], algorithm: str, K: int, level: float, trials: int) -> int | None:
    good = [
        n
        for (name, sparsity, n), outcomes in cells.items()
        if (name, sparsity) == (algorithm, K) and len(outcomes) == trials and sum(outcomes) >= level * trials - 1e-9
    ]
    return min(good, default=None)


class LinearFit(NamedTuple):
    """n = slope·K + intercept, and the share of the variance that it explains (R²)."""

    slope: float
    intercept: float
    explained: float

    def __str__(self) -> str:
        return f"n = {self.slope:.1f} K {'+' if self.intercept >= 0 else '−'} {abs(self.intercept):.0f}"


def fit(summary: Summary, algorithm: str, level: float) -> LinearFit | None:
    K, n = _points(summary, algorithm, level)
    if K.size < 3:
        return None
    slope, intercept = np.polyfit(K, n, 1)
    return LinearFit(float(slope), float(intercept), float(1 - np.var(n - slope * K - intercept) / np.var(n)))


def _points(summary: Summary, algorithm: str, level: float) -> tuple[Any, Any]:
    both = zip(summary[algorithm]["K"], summary[algorithm][f"{level:.2f}"], strict=True)
    known = np.array([(K, n) for K, n in both if n is not None], dtype=float).reshape(-1, 2)
    return known[:, 0], known[:, 1]


def plot(summaries: dict[str, Summary]) -> dict[str, Any]:
    from .._style import STYLE, new_axes

    panels: dict[str, Any] = {}
    for level in LEVELS if NUMBER in summaries else ():
        ax = new_axes(None, (4.6, 3.8))
        for algorithm, mark in zip(NAMES, "s^o", strict=True):
            K, n = _points(summaries[NUMBER], algorithm, level)
            line, style = fit(summaries[NUMBER], algorithm, level), STYLE[algorithm]
            label = NAMES[algorithm] + (f": {line}" if line else "")
            ax.plot(K, n, mark, color=style.color, markersize=5, fillstyle="none", label=label)
            if line:
                ax.plot(K, line.slope * K + line.intercept, color=style.color, linestyle=style.dashes, linewidth=1.2)
        ax.axhline(D, color="black", linewidth=0.8, linestyle=":")
        ax.annotate("d", (0, D), xytext=(3, -10), textcoords="offset points", fontsize=8)
        ax.set(xlabel="K, non-zeros", ylabel=f"n for {level:.0%} success", xlim=(0, None), ylim=(0, D * 1.06))
        ax.legend(fontsize=8, loc="lower right", frameon=False)
        panels[f"{level:.0%}".rstrip("%")] = ax
    return panels


def claims(summaries: dict[str, Summary]) -> list[Claim]:
    summary = summaries.get(NUMBER)
    if not summary:
        return []
    found = [claim for level in LEVELS for claim in (_linear(summary, level), _on_top(summary, level))]
    return [unless_few(claim, summary["ht-svrg"]["trials"]) for claim in found]


def _linear(summary: Summary, level: float) -> Claim:
    claim, paper = f"n for {level:.0%} success is almost linear with K", "“n is almost linear with K”"
    lines = {name: line for name in NAMES if (line := fit(summary, name, level))}
    if not lines:
        return Claim(claim, paper, "too few K reached the level", "open", "More trials are needed.")
    ours = "; ".join(
        f"{NAMES[name]} {line} (R² = {line.explained:.3f}, {_points(summary, name, level)[0].size} of "
        f"{len(summary[name]['K'])} K)"
        for name, line in lines.items()
    )
    good = all(line.explained >= LINEAR for line in lines.values())
    reason = f"Judged by R² ≥ {LINEAR:g} for every algorithm. "
    halves = {name: _slopes_of_halves(summary, name, level) for name in lines}
    reason += "Measurements per non-zero in the lower and the upper half of the K: " + "; ".join(
        f"{NAMES[name]} {lower:.1f} and {upper:.1f}" for name, (lower, upper) in halves.items()
    )
    if all(round(upper, 1) < round(lower, 1) for lower, upper in halves.values()):  # compared as shown
        reason += ": all curves are concave, which R² hides"
    return Claim(claim, paper, ours, judge(good), f"{reason}.")


def _slopes_of_halves(summary: Summary, algorithm: str, level: float) -> tuple[float, float]:
    """The slopes of lines through the lower and the upper half of the points; an odd middle point is in both halves."""
    K, n = _points(summary, algorithm, level)
    half = (K.size + 1) // 2
    lower, upper = (float(np.polyfit(K[part], n[part], 1)[0]) for part in (slice(half), slice(K.size - half, None)))
    return lower, upper


def _on_top(summary: Summary, level: float) -> Claim:
    claim, paper = f"HT-SVRG is nearly on top of PGD at {level:.0%}", "“nearly on top of that of PGD”"
    svrg, pgd = (dict(zip(*_points(summary, name, level), strict=True)) for name in ("ht-svrg", "pgd"))
    gaps = np.array([svrg[K] - pgd[K] for K in svrg if K in pgd])
    if not gaps.size:
        return Claim(claim, paper, "no K where both reach the level", "open", "More trials are needed.")
    ours = f"HT-SVRG − PGD: {gaps.mean():+.1f} measurements on average over {gaps.size} K"
    ours += f", from {gaps.min():+.0f} to {gaps.max():+.0f}"
    good = abs(gaps.mean()) <= CLOSE
    reason = "" if good else "More than the step of n in Figure 1."
    return Claim(claim, paper, ours, judge(good), reason)
