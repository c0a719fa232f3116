"""The bounds of the paper's sections 2 to 4, computed from their formulas.  There are no trials."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from .. import theory
from .._style import new_axes
from ..operators import hard_threshold
from ..theory.figures import plot_bounds, plot_thresholds
from .lab import PRESETS, Claim, Item, Summary, judge

NUMBER = "theory"
TITLE = "The tight bound, and what follows from it"
TEXT = """\
Let b ∈ R^d be an arbitrary vector and x ∈ R^d be any K-sparse signal. For any k ≥ K, we have the following bound: \
‖H_k(b) − x‖ ≤ √ν ‖b − x‖, ν = 1 + (ρ + √((4 + ρ)ρ))/2, ρ = min{K, d − k}/(k − K + min{K, d − k}). In particular, our \
bound is tight in the sense that there exist specific vectors of b and x such that the equality holds.

For the theorem to hold, √ν < √(4L/(4L − α)) ≤ √(4/3) ≈ 1.15 due to L ≥ α. Hence, the conventional bound is not \
applicable. In contrast, Theorem 1 asserts that this condition can be fulfilled by tuning k slightly larger than K."""
NEEDS: tuple[str, ...] = ()
KEY: tuple[str, ...] = ()
CONFIG = dict.fromkeys(PRESETS)  # nothing to configure

TRUE, DIMENSION = 10, 1000  # K and d of the pictures and pairs; the constants do not depend on them
EQUAL = 1e-12  # relative deviations below this are rounding
FORMULA = "Computed from the formula. That no pair of vectors exceeds it is proved in the paper, not tested here."
CONDITIONS = (1.0, 1.5, 2.0, 5.0, 10.0, 100.0)  # values of c for which the recipe is checked


def items(config: None) -> list[Item]:
    return []


def summarise(records: Iterable[Item]) -> Summary:
    """Evaluate the formulas; there are no records."""
    K, threshold = TRUE, theory.rip_threshold
    iht = {
        "classic": threshold("iht", K, K, bound="classic"),
        "tight": threshold("iht", K, K),
        "relaxed": threshold("iht", 20 * K, K),
        "ratio": theory.measurement_ratio("iht", K, K),
        "rate at 0.22": theory.rip_rate("iht", 0.22, K, K),
    }
    cosamp = {"tight": threshold("cosamp", K, K), "classic": threshold("cosamp", K, K, bound="classic")}
    steps = np.arange(1, 1000) / 4000  # in units of 1/L, below 1/4
    share = 1 / 8  # the recipe's step, in these units
    best = float(theory.optimal_nu(share, 1.0))
    svrg = {
        "largest factor": np.sqrt(np.max(theory.largest_nu(steps, 1.0, 1.0))),
        "k / K": (theory.minimum_k(1.0, K) - 1) / K,
        "beta": [theory.rate(share / c, 4 * (8 * c - 1), 8 * c / (8 * c - 1), c, 1.0) for c in CONDITIONS],
        "m": theory.minimum_m(share, best, 1.0, 1.0),
        "printed m": theory.minimum_m(share, best, 1.0, 1.0, printed=True),
    }
    every = np.arange(K, DIMENSION, 10)
    off = [abs(_ratio(int(k), K, DIMENSION) - 1) for k in every]
    bound = {
        "largest": np.max(theory.deviation_factor(every, K, DIMENSION)),
        "classic": theory.deviation_factor(K, K, bound="classic"),
        "pairs": len(off),
        "attained": sum(deviation < EQUAL for deviation in off),
        "deviation": max(off),
    }
    parts: dict[str, dict[str, Any]] = {"bound": bound, "iht": iht, "cosamp": cosamp, "svrg": svrg}
    plain = {name: {key: np.asarray(value).tolist() for key, value in part.items()} for name, part in parts.items()}
    return {"K": K, "d": DIMENSION, **plain}


def _ratio(k: int, K: int, d: int) -> float:
    """How large the deviation of the extremal pair is, as a share of the bound."""
    b, x = theory.extremal_pair(k, K, d)
    stretched = np.linalg.norm(hard_threshold(b, k) - x) / np.linalg.norm(b - x)
    return float(stretched / theory.deviation_factor(k, K, d))


def plot(summaries: dict[str, Summary]) -> dict[str, Any]:
    if NUMBER not in summaries:
        return {}
    K, d = summaries[NUMBER]["K"], summaries[NUMBER]["d"]
    bounds, thresholds = new_axes(size=(4.8, 3.5)), new_axes(size=(4.8, 3.5))
    return {"bounds": plot_bounds(K, d, ax=bounds), "thresholds": plot_thresholds(K, ax=thresholds)}


def claims(summaries: dict[str, Summary]) -> list[Claim]:
    if NUMBER not in summaries:
        return []
    return [*_of_the_bound(summaries[NUMBER]), *_of_pursuits(summaries[NUMBER]), *_of_svrg(summaries[NUMBER])]


def _of_the_bound(summary: Summary) -> list[Claim]:
    bound = summary["bound"]
    return [
        _rounded("The largest value of √ν", "√ν_max ≈ 1.618", 1.618, bound["largest"], "{}", FORMULA),
        Claim(
            "The bound is tight",
            "“there exist specific vectors of b and x such that the equality holds”",
            f"attained by {bound['attained']} of {bound['pairs']} pairs",
            judge(bound["attained"] == bound["pairs"]),
            f"To a relative deviation of 10^{{{round(np.log10(EQUAL))}}}, for every tenth k"
            f" (K = {summary['K']}, d = {summary['d']}).",
        ),
    ]


def _of_pursuits(summary: Summary) -> list[Claim]:
    iht, cosamp = summary["iht"], summary["cosamp"]
    over = iht["rate at 0.22"] > 0.5
    return [
        _rounded("IHT by the conventional bound", "δ_{2k+K} ≤ 0.18", 0.18, iht["classic"], "δ_{{2k+K}} ≤ {}"),
        _rounded(
            "IHT by the tight bound, k = K", "“δ_3K ≤ 0.22 suffices”", 0.22, iht["tight"], "δ_3K ≤ {}",
            f"Rounded up: at 0.22 itself the rate is {iht['rate at 0.22']:.3f}, not 0.5." if over else "",
        ),
        _rounded("IHT by the tight bound, k = 20K", "δ_41K ≤ 0.32", 0.32, iht["relaxed"], "δ_41K ≤ {}"),
        _rounded(
            "Measurements that IHT then needs, k = K", "“dramatically reduced with a factor of 0.67”",
            0.67, iht["ratio"], "factor {}",
            f"{abs(iht['ratio'] / 0.67 - 1):.1%} less than printed, which is the ratio of the rounded thresholds,"
            f" (0.18/0.22)² = {(0.18 / 0.22) ** 2:.2f}; without rounding it is ν/4.",
        ),
        _rounded(
            "CoSaMP by the tight bound, k = K", "δ_4K ≤ 0.31", 0.31, cosamp["tight"], "δ_4K ≤ {}",
            f"With the conventional bound the same formula gives {cosamp['classic']:.4f}.",
        ),
    ]  # fmt: skip


def _of_svrg(summary: Summary) -> list[Claim]:
    svrg = summary["svrg"]
    largest, k, m, printed = svrg["largest factor"], svrg["k / K"], svrg["m"], svrg["printed m"]
    off = max(abs(beta - 2 / 3) for beta in svrg["beta"])
    return [
        _rounded(
            "HT-SVRG needs a factor below √(4/3)", "“√ν < √(4L/(4L − α)) ≤ √(4/3) ≈ 1.15”", 1.15, largest, "√ν < {}",
            f"The conventional factor {summary['bound']['classic']:g} is out of reach, as the paper says.",
        ),
        Claim(
            "A k for which this condition of HT-SVRG holds", "“tuning k slightly larger than K”", f"k > {k:g}K at best",
            judge(k < 2),
            f"k > (16c² − 4c)K with c ≥ 1: {k:g}K is not enough even if c = 1.",
        ),
        Claim(
            "The recipe η = 1/(8L), m = 4(8c − 1), k = 8c(8c − 1)K", "β = 2/3",
            f"β = {svrg['beta'][0]:.4f} for c from {CONDITIONS[0]:g} to {CONDITIONS[-1]:g}", judge(off < EQUAL),
            "" if off < EQUAL else f"Off by up to {off:.1g}.",
        ),
        Claim(
            "Steps that a stage of HT-SVRG needs, η = 1/(8L)", "m > c/(νη′(1 − η′))",
            f"m > c/(νη′(1 − 4η′)): {m / printed:.2f} times as many",
            judge(abs(m / printed - 1) < EQUAL),
            "A misprint: two lines earlier the paper has 1 − 4ηL, from which our formula follows (erratum 1).",
        ),
    ]  # fmt: skip


def _rounded(claim: str, paper: str, printed: float, ours: float, text: str, reason: str = "") -> Claim:
    """A number of the paper beside ours, which agrees if it rounds to the printed one."""
    places = len(f"{printed}".partition(".")[2])
    agrees = round(ours, places) == printed
    if not agrees and not reason:
        reason = f"Off by {ours - printed:+.2g}."
    return Claim(claim, paper, text.format(f"{ours:.4f}"), judge(agrees), reason)
