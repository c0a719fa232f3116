"""Figure 3: the fewest measurements for 95% and 99% success, and lines through them."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterable
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np

from .._progress import counter
from ..sensing.phase import Ledger
from . import phase_transitions
from ._lab import Claim, Item, Lab, Summary
from ._recovery import D
from .phase_transitions import NAMES, phase, trial

__all__ = ["trial"]

NUMBER = "3"
TITLE = "Minimum number of measurements to achieve 95% and 99% percentage of success"
TEXT = (
    "… for each signal sparsity K, we look for the number of measurements n0 from Figure 1 where 90 percents of "
    "success are achieved. Then we carefully enlarge n0 with step size 1 and run the algorithms. … We find that n is "
    "almost linear with K. Especially, the curve of HT-SVRG is nearly on top of that of PGD …"
)
NEEDS = ("1",)
KEY, KEEP = phase_transitions.KEY, phase_transitions.KEEP
START, LEVELS = 0.9, (0.95, 0.99)
CLOSE = phase_transitions.STEP
LINEAR = 0.95  # R² of a line that counts as almost linear
STRIDE = 8  # trials of a cell at a time: what its losses say decides whether there are more


class Config(NamedTuple):
    K: tuple[int, ...]
    trials: int
    step: int  # of n


CONFIG = {
    "quick": Config((2, 6, 10, 16), 10, 8),
    "standard": Config(phase_transitions.PAPER_K, 100, 1),
    "full": Config(phase_transitions.PAPER_K, 1000, 1),
}


def items(config: Config) -> list[Item]:
    """Trials of the kind that a run makes, and about as many: which ones depends on their outcomes."""
    return [
        {
            "algorithm": algorithm,
            "signal": "gaussian",
            "K": K,
            "n": min(D, 9 * K + 40 + 2 * config.step * i),
            "trial": t,
        }
        for algorithm in NAMES
        for K in config.K
        for i in range(4)
        for t in range(config.trials)
    ]


def run(lab: Lab, ledger: Ledger) -> None:
    """All walks side by side: in every round each of them asks for the next trials of the cell where it stands."""
    config = CONFIG[lab.preset]
    summary = phase_transitions.summarise(lab.records(phase_transitions))
    walks = [Walk(algorithm, K, start(summary, algorithm, K), config) for algorithm in NAMES for K in config.K]
    done = 0
    with counter(f"figure {NUMBER}: searches", len(walks), lab.verbose) as advance:
        while any(wanted := [walk.wants(ledger) for walk in walks]):
            over = sum(not items for items in wanted)
            advance(over - done)
            done = over
            # the slow ones first, and a walk's trials apart: workers end a round together
            batch = [item for items in zip_longest(*reversed(wanted)) for item in items if item]
            lab.collect(sys.modules[__name__], batch, ledger, verbose=False)


def start(summary: Summary, algorithm: str, K: int) -> int:
    """n0: where figure 1 has 90% of success; without such a place, its largest n."""
    curve = phase(summary, algorithm).curve(START, by="K")
    place = float(curve.n[curve.K == K][0])
    return int(np.clip(np.floor(place), K, D)) if np.isfinite(place) else (D if place > 0 else K)


class Walk:
    """One search: from n0 upwards until 95%, and on until 99%."""

    def __init__(self, algorithm: str, K: int, n: int, config: Config) -> None:
        self.algorithm, self.K, self.n, self.config = algorithm, K, n, config
        self.levels = list(LEVELS)

    def wants(self, ledger: Ledger) -> list[Item]:
        """The next trials, having gone as far as the known ones lead; none at the end."""
        while self.levels and self.n <= D:
            known = self._known(ledger)
            allowed = int((1 - self.levels[0]) * self.config.trials + 1e-9)
            if known.count(False) > allowed:
                self.n += self.config.step
            elif len(known) == self.config.trials:
                self.levels.pop(0)  # the same cell may be good enough for the next level
            else:
                return [self._item(t) for t in range(len(known), min(len(known) + STRIDE, self.config.trials))]
        return []

    def _known(self, ledger: Ledger) -> list[bool]:
        """Outcomes of whole strides only: a run that was killed within one must not decide before its end."""
        outcomes = []
        for t in range(self.config.trials):
            key = tuple(self._item(t)[name] for name in KEY)
            if key not in ledger:
                break
            outcomes.append(ledger.kept[key][0])
        whole = len(outcomes) == self.config.trials
        return outcomes if whole else outcomes[: len(outcomes) // STRIDE * STRIDE]

    def _item(self, trial: int) -> Item:
        return {"algorithm": self.algorithm, "signal": "gaussian", "K": self.K, "n": self.n, "trial": trial}


def summarise(records: Iterable[Item]) -> Summary:
    """The smallest n with each level's share of successes among a whole set of trials; None: not up to d."""
    cells: dict[tuple[str, int, int], list[bool]] = {}
    for record in records:
        cells.setdefault((record["algorithm"], record["K"], record["n"]), []).append(record["success"])
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


def _least(
    cells: dict[tuple[str, int, int], list[bool]], algorithm: str, K: int, level: float, trials: int
) -> int | None:
    good = [
        n
        for (name, sparsity, n), outcomes in cells.items()
        if (name, sparsity) == (algorithm, K) and len(outcomes) == trials and sum(outcomes) >= level * trials - 1e-9
    ]
    return min(good, default=None)


class Fit(NamedTuple):
    """n = slope·K + intercept, and the share of the variance that it explains."""

    slope: float
    intercept: float
    explained: float

    def __str__(self) -> str:
        return f"n = {self.slope:.1f} K {'+' if self.intercept >= 0 else '−'} {abs(self.intercept):.0f}"


def fit(summary: Summary, algorithm: str, level: float) -> Fit | None:
    K, n = _points(summary, algorithm, level)
    if K.size < 3:
        return None
    slope, intercept = np.polyfit(K, n, 1)
    return Fit(float(slope), float(intercept), float(1 - np.var(n - slope * K - intercept) / np.var(n)))


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
    return [claim for level in LEVELS for claim in (_linear(summary, level), _on_top(summary, level))]


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
    bends = {name: _bend(summary, name, level) for name in lines}
    reason += "Measurements per non-zero in the lower and the upper half of the K: " + "; ".join(
        f"{NAMES[name]} {lower:.1f} and {upper:.1f}" for name, (lower, upper) in bends.items()
    )
    if all(round(upper, 1) < round(lower, 1) for lower, upper in bends.values()):  # as they are shown
        reason += ": all curves are concave, which R² hides"
    return _judged(summary, Claim(claim, paper, ours, "agrees" if good else "differs", f"{reason}."))


def _bend(summary: Summary, algorithm: str, level: float) -> tuple[float, float]:
    """The slopes of lines through the lower and through the upper half of the points, which share the middle one."""
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
    ours = f"HT-SVRG − PGD: {gaps.mean():+.1f} measurements in the mean over {gaps.size} K"
    ours += f", from {gaps.min():+.0f} to {gaps.max():+.0f}"
    good = abs(gaps.mean()) <= CLOSE
    reason = "" if good else "More than the step of figure 1."
    return _judged(summary, Claim(claim, paper, ours, "agrees" if good else "differs", reason))


def _judged(summary: Summary, claim: Claim) -> Claim:
    """The claim, left open if there were few trials."""
    if summary["ht-svrg"]["trials"] >= phase_transitions.ENOUGH:
        return claim
    return dataclasses.replace(claim, verdict="open", reason="Few trials a cell.")
