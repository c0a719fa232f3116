"""Figure 5: HT-SVRG with small steps, for growing m.

The problem is that of Figure 4.  With small steps the noise of single rows averages out, and m steps act like the time
ηm/n of a gradient flow: along the slowest direction on the support S, with the smallest eigenvalue λ of A_SᵀA_S, the
error shrinks by the factor exp(−ηλm/n) per stage, and the objective by its square.  Runs are compared with that rate.

The paper does not say whether its “iterations” are steps or stages.  The first panels have a hundred stages each, and
differ in m.  The last panel has tens of thousands of short stages, to test the paper's sentence on 20 thousand.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .. import theory
from .._minimize import minimize
from .._style import BLACK
from ..sensing.phase import stream
from ..solvers import HTSVRG
from .histories import (
    OTHERS,
    STANDARD,
    as_powers,
    even_stages,
    history_axes,
    legend_beneath,
    log_mean,
    logs_at,
    power,
    quantile,
)
from .lab import Claim, Item, Summary, by_parameters, judge, significant
from .parameters import K_STANDARD, M_STANDARD, SPARSITY, N, covered
from .recovery import SUCCESS, D, problem, relative_error

NUMBER = "5"
TITLE = "HT-SVRG with small steps"
TEXT = (
    "We observe that as long as we pick a sufficiently large value for m, HT-SVRG always converges. This is not "
    "surprising since our theorem guarantees for any η < 1/(4L), HT-SVRG will converge if m is large enough. Also note "
    "that the geometric convergence rate is observed after certain iterations, e.g., for η = 3 × 10⁻⁵, the log(error) "
    "decreases linearly after 20 thousands iterations."
)
NEEDS: tuple[str, ...] = ()
KEY = ("panel", "eta", "m", "stages", "trial")
LONG = "thousands"  # the panel with many short stages
PAPER_ITERATIONS, PAPER_ETA = 20_000, 3e-5  # of the paper's text
STRAIGHT, CLOSE = 0.99, 0.2  # R² of a line; relative deviation of a slope that counts as equal to the final slope
WINDOW = 5  # number of kept stages over which a slope is taken


class Sweep(NamedTuple):
    """The runs of a panel."""

    panel: str
    eta: float
    m: tuple[int, ...]
    stages: int
    trials: int


class SmallStepsConfig(NamedTuple):
    sweeps: tuple[Sweep, ...]


STEPS = (("3e-3", 3e-3, 1), ("3e-4", 3e-4, 10), ("3e-5", 3e-5, 100))  # every panel has the same products ηm


def _sweeps(m: tuple[int, ...], stages: int, trials: tuple[int, int, int]) -> tuple[Sweep, ...]:
    """One panel per step; the smaller the step, the longer its trials take."""
    return tuple(
        Sweep(name, eta, tuple(times * value for value in m), stages, count)
        for (name, eta, times), count in zip(STEPS, trials, strict=True)
    )


CONFIG = {
    "quick": SmallStepsConfig(
        (
            *_sweeps((3_000, 10_000, 30_000), 100, (3, 1, 0))[:2],
            *_sweeps((1_000, 3_000, 10_000), 50, (0, 0, 1))[2:],
            Sweep(LONG, PAPER_ETA, (300, 1_000), 6_000, 1),
        )
    ),
    "standard": SmallStepsConfig(
        (*_sweeps((3_000, 10_000, 30_000), 100, (10, 6, 3)), Sweep(LONG, PAPER_ETA, (300, 3_000), 30_000, 2))
    ),
    "full": SmallStepsConfig(
        (
            *_sweeps((1_000, 3_000, 10_000, 30_000), 100, (50, 50, 10)),
            Sweep(LONG, PAPER_ETA, (300, 1_000, 3_000), 40_000, 10),
        )
    ),
}


def items(config: SmallStepsConfig) -> list[Item]:
    return [
        {"panel": sweep.panel, "eta": sweep.eta, "m": m, "stages": sweep.stages, "trial": trial}
        for sweep in sorted(config.sweeps)
        for m in sweep.m
        for trial in range(sweep.trials)
    ]


def trial(seed: int, panel: str, eta: float, m: int, stages: int, trial: int) -> Item:
    A, x, y, _ = problem(N, SPARSITY, trial, seed)
    solver = HTSVRG(step=eta, m=m, stages=stages, tol=0.0, stop_on_divergence=False)
    result = minimize(A, y, K_STANDARD, solver=solver, random_state=stream(seed, "small steps", eta, m, trial))
    columns = A[:, result.support]
    error = relative_error(result.x, x)
    return {
        "error": significant([error])[0],
        "success": error < SUCCESS,
        "eigenvalue": significant([float(np.linalg.eigvalsh(columns.T @ columns)[0])])[0],
        "early": _fall(result.history.objective, math.ceil(PAPER_ITERATIONS / m)),
        "history": logs_at(result.history.objective, even_stages(stages), 5),
    }


def _fall(objective: NDArray[np.float64], stage: int) -> float | None:
    """The objective after this stage as a share of that at the start."""
    return significant([float(objective[stage] / objective[0])])[0] if 1 < stage < len(objective) else None


def summarise(records: Iterable[Item]) -> Summary:
    groups = by_parameters(records, KEY[:-1])
    if not groups:
        return {}
    seed = next(iter(groups.values()))[0]["seed"]
    return {"covered": covered(seed), "curves": [_curve(groups[key]) for key in sorted(groups)]}


def _curve(group: Sequence[Item]) -> Item:
    """The summary of the runs with one η and one m."""
    stages = even_stages(group[0]["stages"])
    shapes = [_shape(record, stages) for record in group]
    return {
        **{name: group[0][name] for name in KEY[:-1]},
        "trials": len(group),
        "successes": sum(record["success"] for record in group),
        "eigenvalue": quantile([record["eigenvalue"] for record in group]),
        "early": quantile([record["early"] for record in group]),
        "history": log_mean([record["history"] for record in group]),
        "straight": significant([min(shape.straight for shape in shapes)])[0],
        "rate": quantile([shape.rate for shape in shapes]),
        "straight_from": quantile([shape.straight_from for shape in shapes]),
        "rate_then": quantile([shape.rate_then for shape in shapes]),
    }


class Shape(NamedTuple):
    """How straight the curve of log F is; slopes are relative to the final one, that of the slowest direction."""

    straight: float  # R² of a line through the second half
    rate: float  # its slope
    straight_from: float | None  # the stage from which on the slope is close to the final one
    rate_then: float | None  # the slope after PAPER_ITERATIONS stages


def _shape(record: Item, stages: Sequence[int]) -> Shape:
    at, logs = np.array(stages, dtype=float), np.array(record["history"], dtype=float)
    final = -2 * record["eta"] * record["eigenvalue"] * record["m"] / N / math.log(10)  # slope of log10 F per stage
    half = len(at) // 2
    slope = np.polyfit(at[half:], logs[half:], 1)[0]
    straight = np.corrcoef(at[half:], logs[half:])[0, 1] ** 2
    slopes = (logs[WINDOW:] - logs[:-WINDOW]) / (at[WINDOW:] - at[:-WINDOW]) / final
    away = np.flatnonzero(abs(slopes - 1) > CLOSE)
    begin = 0 if not away.size else away[-1] + 1
    lasts = begin <= 0.75 * slopes.size  # a slope that is reached just before the end may not be the final one
    then = np.searchsorted(at, PAPER_ITERATIONS)
    return Shape(
        float(straight), float(slope / final), float(at[begin]) if lasts else None,
        float(slopes[then]) if then < slopes.size else None,
    )  # fmt: skip


# --- the picture -----------------------------------------------------------------------------------------------------
def plot(summaries: dict[str, Summary]) -> dict[str, Any]:
    summary = summaries.get(NUMBER)
    if not summary:
        return {}
    panels = dict.fromkeys(
        curve["panel"] for curve in sorted(summary["curves"], key=lambda c: (c["panel"] == LONG, -c["eta"]))
    )
    return {panel: _panel([c for c in summary["curves"] if c["panel"] == panel]) for panel in panels}


def _panel(curves: Sequence[Item]) -> Any:
    long = curves[0]["panel"] == LONG
    ax = history_axes(_title(curves[0]), "stages, in thousands" if long else "stages", "objective F")
    styles = iter(OTHERS)
    for curve in curves:
        usual = curve["m"] == M_STANDARD
        line = STANDARD if usual else next(styles)
        stages = np.array(even_stages(curve["stages"])) / (1000 if long else 1)
        ax.plot(stages, as_powers(curve["history"]), color=line.color, linestyle=line.dashes, linewidth=1.8,
                label=f"{curve['m']:,} ({curve['successes'] / curve['trials']:.0%})")  # fmt: skip
    if long:
        ax.axvline(PAPER_ITERATIONS / 1000, color=BLACK, linewidth=1, linestyle=":")
    ax.set(xlim=(0, curves[0]["stages"] / (1000 if long else 1)))
    legend_beneath(ax, "m (share of signals recovered at the end)", columns=2)
    return ax


def _title(curve: Item) -> str:
    mantissa, exponent = f"{curve['eta']:.0e}".split("e")
    return f"η = {mantissa}·10$^{{{int(exponent)}}}$" + (", many short stages" if curve["panel"] == LONG else "")


# --- what the paper says ---------------------------------------------------------------------------------------------
def claims(summaries: dict[str, Summary]) -> list[Claim]:
    summary = summaries.get(NUMBER)
    if not summary:
        return []
    curves = [c for c in summary["curves"] if c["panel"] != LONG]
    largest = {c["eta"]: c for c in sorted(curves, key=lambda c: c["m"])}  # of every η the largest m
    best = [largest[eta] for eta in sorted(largest, reverse=True)]
    long = [c for c in summary["curves"] if c["panel"] == LONG]
    found = [_converges(best, curves, summary), _guaranteed(), _geometric(best)] if best else []
    return [*found, *([_twenty_thousand(largest.get(PAPER_ETA), long)] if long else [])]


def _converges(best: Sequence[Item], curves: Sequence[Item], summary: Summary) -> Claim:
    unfinished = [c for c in best if c["successes"] < c["trials"]]
    stuck = [c for c in unfinished if c["history"][-1] >= c["history"][-1 - WINDOW]]
    inside = all(c["eta"] < summary["covered"] for c in best)
    ours = "; ".join(
        f"η = {c['eta']:.0e}, m = {c['m']:,}: {c['successes']} of {c['trials']} recovered, mean objective "
        f"{power(c['history'][-1])} after {c['stages']} stages" for c in best
    )  # fmt: skip
    asked = ", ".join(f"{N / (c['eta'] * c['eigenvalue']):.0e} at η = {c['eta']:.0e}" for c in best)
    reasons = [f"if the theorem covered this k, it would ask for m of at least about n/(ηλ): {asked}"]
    if gaps := _gaps(curves, best):
        reasons.append("m matters through the total number of steps: after as many steps, objectives differ by at most "
                       f"a factor of {10 ** max(gaps):.2g} between values of m")  # fmt: skip
    if stuck:
        where = ", ".join(f"{c['eta']:.0e}" for c in stuck)
        reasons.insert(0, f"the objective no longer falls at η = {where}")
    elif unfinished:
        reasons.insert(0, "some runs end, with falling objectives, before their error is below 1e-3")
    return Claim(
        f"small steps converge if m is large enough; here 1/(4L) = {summary['covered']:.2g}",
        "“for any 0 < η < 1/(4L), HT-SVRG converges as soon as m is large enough”", ours,
        "differs" if stuck else "open" if unfinished or not inside else "agrees", "; ".join(reasons),
    )  # fmt: skip


def _guaranteed() -> Claim:
    """Whether the theorem covers this k at all: some m is enough only if √ν is below √(4L/(4L − α)) ≤ √(4/3)."""
    factor, limit = float(theory.deviation_factor(K_STANDARD, SPARSITY, D)), math.sqrt(4 / 3)
    holds = factor < limit
    return Claim(
        "the theorem guarantees this convergence",
        "“our theorem guarantees for any η < 1/(4L), HT-SVRG will converge if m is large enough”",
        f"√ν = {factor:.4f} at k = {K_STANDARD}, K = {SPARSITY}; the theorem needs √ν < {limit:.4f} at best",
        judge(holds),
        "" if holds else f"at this k the theorem says nothing, however large m is: even c = 1 needs k > "
        f"{theory.minimum_k(1.0, SPARSITY) - 1}",
    )  # fmt: skip


def _gaps(curves: Sequence[Item], best: Sequence[Item]) -> list[float]:
    """How far curves end from that of the largest m with the same η, after the same number of steps, in decades."""
    found = []
    for longest in best:
        stages, logs = even_stages(longest["stages"]), longest["history"]
        for curve in curves:
            if curve["eta"] == longest["eta"] and curve["m"] < longest["m"]:
                there = np.interp(curve["m"] * curve["stages"] / longest["m"], stages, logs)
                found.append(abs(float(there) - curve["history"][-1]))
    return found


def _geometric(best: Sequence[Item]) -> Claim:
    ours = "; ".join(f"η = {c['eta']:.0e}: R² ≥ {c['straight']:.4f}, slope {c['rate']:.2f} of 2ηλm/n" for c in best)
    straight = all(c["straight"] >= STRAIGHT for c in best)
    final = all(abs(c["rate"] - 1) <= CLOSE for c in best)
    verdict = "agrees" if straight and final else "open" if straight else "differs"
    reason = {
        "agrees": "the rate is that of the slowest direction on the support",
        "open": "the curves are straight, but not yet as slow as the slowest direction: the runs are too short",
        "differs": "the second half of a run is not a straight line",
    }[verdict]
    quote = "“the geometric convergence rate is observed after certain iterations”"
    shown = f"line through log F in the second half of the runs: {ours}"
    return Claim("the rate is geometric after some stages", quote, shown, verdict, reason)


def _twenty_thousand(slow: Item | None, long: Sequence[Item]) -> Claim:
    parts = [
        f"after {PAPER_ITERATIONS:,} stages with m = {c['m']:,} the slope is {c['rate_then']:.2f} of the final one"
        for c in long if c["rate_then"] is not None
    ]  # fmt: skip
    early = next((c["early"] for c in long if c["early"] is not None), None)
    if early is not None:
        parts.append(f"after {PAPER_ITERATIONS:,} steps the objective is still {early:.0%} of that at the start")
    reasons = []
    tried = [c for c in long if c["rate_then"] is not None]
    holds = [c for c in tried if abs(c["rate_then"] - 1) <= CLOSE]
    readings = [c in holds for c in tried]  # "iterations" read as stages, for every m
    if slow and slow["straight_from"]:  # and read as steps
        steps = slow["straight_from"] * slow["m"]
        readings.append(steps <= PAPER_ITERATIONS)
        parts.append(f"within {CLOSE:.0%} of the final slope after {steps:.1e} steps")
        reasons.append(f"{PAPER_ITERATIONS:,} stages have that many steps if m = {steps / PAPER_ITERATIONS:,.0f}")
    if holds:
        which = ", ".join(f"{c['m']:,}" for c in holds)
        reasons.append(f"it holds for stages with m = {which}")
    elif tried:
        reasons.append("it holds for no m that was tried")
    else:
        reasons.append("the runs of this preset are too short for it")
    reasons.append("the paper states neither m nor whether steps are meant: judged by all these readings")
    verdict = "open" if not tried else "agrees" if all(readings) else "open" if any(readings) else "differs"
    return Claim("when the line begins at η = 3e-5", "“for η = 3 × 10⁻⁵, the log(error) decreases linearly after 20 "
                 "thousands iterations”", "; ".join(parts) or "not reached", verdict, "; ".join(reasons))  # fmt: skip
