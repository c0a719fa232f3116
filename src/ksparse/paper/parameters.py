"""Figure 4: the objective of HT-SVRG against stages, for several k, m and η.

One matrix and many signals, as in the paper.  A stage starts from the last iterate of the stage before; the logarithm
of the objective is averaged (see `log_mean`).  A run ends early once the objective is below 1e-24, near rounding, or
above 1e120 after at least three stages, the number that the paper states.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._minimize import minimize
from ..problem import Problem
from ..result import Progress
from ..sensing.phase import stream, wilson
from ..solvers import HTSVRG
from .histories import (
    OTHERS,
    STANDARD,
    as_powers,
    early_stages,
    history_axes,
    legend_beneath,
    log_mean,
    logs_at,
    power,
    quantile,
)  # fmt: skip
from .lab import Claim, Item, Summary, by_parameters, judge, significant
from .recovery import SUCCESS, problem, relative_error

NUMBER = "4"
TITLE = "Influence of k, m and η on HT-SVRG"
TEXT = (
    "We have 100 measurements for the 256-dimensional signal where only 4 elements are non-zero. The standard setting "
    "is k = 36, m = 300 and η = 0.3. Left: If the sparsity parameter k is not large enough, HT-SVRG will not recover "
    "the signal. Middle: A small m leads to a frequent full gradient evaluation and hence slow convergence. Right: We "
    "observe divergence when η ≥ 3.\n\n"
    "… we average over the success trials if more than 95% percents of the signals are exactly recovered. Otherwise, "
    "we say that the set of parameters cannot ensure convergence and we average over these failure signals …"
)
NEEDS: tuple[str, ...] = ()
N, SPARSITY = 100, 4
K_STANDARD, M_STANDARD, HEURISTIC = 36, 300, "spectral"
KEY = ("k", "m", "step", "stages", "trial")
SMALL, SETTLED = 1e-24, 1e-10  # an objective near rounding; an objective relative to the start that counts as solved
BEYOND, PAPER_STAGES = 1e120, 3  # the paper: "exceeds 10^120 within 3 stages"
ENOUGH = 0.95  # share of successes above which the paper averages over successes
PANELS = {"k": "k, kept in every step", "m": "m, steps per stage", "step": "η, the step"}


class ParametersConfig(NamedTuple):
    trials: int
    stages: int
    k: tuple[int, ...] = (4, 8, 12, 20, 36, 50)
    m: tuple[int, ...] = (50, 100, 200, 300, 600)
    steps: tuple[str, ...] = ("0.03", "0.1", HEURISTIC, "1", "2", "3", "5", "8")


CONFIG = {
    "quick": ParametersConfig(5, 1500, k=(4, 8, 20, 36, 50)),
    "standard": ParametersConfig(100, 1500),
    "full": ParametersConfig(1000, 1500),
}


def items(config: ParametersConfig) -> list[Item]:
    settings = {(k, M_STANDARD, HEURISTIC) for k in config.k}
    settings |= {(K_STANDARD, m, HEURISTIC) for m in config.m}
    settings |= {(K_STANDARD, M_STANDARD, step) for step in config.steps}
    return [
        {"k": k, "m": m, "step": step, "stages": config.stages, "trial": trial}
        for k, m, step in sorted(settings)
        for trial in range(config.trials)
    ]


def trial(seed: int, k: int, m: int, step: str, stages: int, trial: int) -> Item:
    A, x, y, _ = problem(N, SPARSITY, trial, seed)
    solver = HTSVRG(
        step=HEURISTIC if step == HEURISTIC else float(step), m=m, stages=stages, tol=0.0, stop_on_divergence=False
    )
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # with some of the steps numbers overflow, as they should
        rng = stream(seed, "parameters", k, m, step, trial)
        result = minimize(A, y, k, solver=solver, random_state=rng, callback=_decided)
    objective, last = result.history.objective, result.n_stages
    diverged = result.status == "diverged" or bool(objective[-1] > BEYOND)
    error = math.inf if diverged else relative_error(result.x, x)
    return {
        "eta": significant([result.history.step[0]])[0],
        "error": significant([error])[0],
        "success": error < SUCCESS,
        "diverged": diverged,
        "ended": last,
        "settled": _first(objective <= SETTLED * objective[0]),
        "beyond": _first(~(objective <= BEYOND), last + 1 if diverged else None),
        "last": logs_at(objective, [last])[0],
        "history": logs_at(objective, early_stages(stages)),
    }


def _decided(now: Progress) -> bool:
    return now.objective < SMALL or (now.objective > BEYOND and now.stage >= PAPER_STAGES)


def _first(holds: NDArray[np.bool_], otherwise: int | None = None) -> int | None:
    return int(np.argmax(holds)) if holds.any() else otherwise


def summarise(records: Iterable[Item]) -> Summary:
    groups = by_parameters(records, KEY[:-1])
    if not groups:
        return {}
    limit = max(stages for *_, stages in groups)
    stages = early_stages(limit)
    chosen = [group for (*_, length), group in groups.items() if length == limit]
    settings = sorted((_setting(group, stages) for group in chosen), key=lambda s: (s["k"], s["m"], s["eta"]))
    return {"limit": limit, "stages": stages, "covered": covered(chosen[0][0]["seed"]), "settings": settings}


def covered(seed: int) -> float | None:
    """1/(4L) of the matrix: the theorem covers smaller steps only."""
    A, _, y, _ = problem(N, SPARSITY, 0, seed)
    return significant([1 / (4 * Problem.create(A, y).restricted_smoothness(3 * K_STANDARD + SPARSITY))])[0]


def _setting(group: Sequence[Item], stages: Sequence[int]) -> Item:
    """The summary of the trials with one setting."""
    won = [record for record in group if record["success"]]
    lost = [record for record in group if not record["success"]]
    converges = len(won) > ENOUGH * len(group)
    return {
        **{name: group[0][name] for name in ("k", "m", "step", "eta")},
        "trials": len(group),
        "successes": len(won),
        "diverged": sum(record["diverged"] for record in group),
        "mean_over": "successes" if converges else "failures",
        "history": log_mean([_filled(record, len(stages)) for record in (won if converges else lost)]),
        "settled": quantile([record["settled"] for record in group]),
        "beyond": quantile([record["beyond"] for record in group]),
        "after_three": quantile([_filled(record, len(stages))[stages.index(PAPER_STAGES)] for record in group]),
        "within_three": sum(record["beyond"] is not None and record["beyond"] <= PAPER_STAGES for record in group),
    }


def _filled(record: Item, length: int) -> list[float | None]:
    """A history of full length: a run that ended at rounding stays there; for one that diverged, the rest is None."""
    rest = None if record["diverged"] else record["last"]
    return record["history"] + [rest] * (length - len(record["history"]))


# --- the picture -----------------------------------------------------------------------------------------------------
def plot(summaries: dict[str, Summary]) -> dict[str, Any]:
    summary = summaries.get(NUMBER)
    return {name: _panel(summary, name) for name in PANELS if _varied(summary, name)} if summary else {}


def _panel(summary: Summary, name: str) -> Any:
    ax = history_axes(PANELS[name], "stages", "objective F")
    styles = iter(OTHERS)
    for setting in _varied(summary, name):
        usual = _is_standard(setting)
        line = STANDARD if usual else next(styles)
        share = setting["successes"] / setting["trials"]
        ax.plot(
            summary["stages"], as_powers(setting["history"]), color=line.color, linestyle=line.dashes,
            linewidth=2.2 if usual else 1.6, label=f"{_value(setting, name)} ({share:.0%})",
        )  # fmt: skip
    # a diverging run would need a scale on which converging ones cannot be read
    ax.set(ylim=(SMALL / 10, 1e3 if name != "step" else 1e40))
    if name == "step":  # shows both the first stages, in which runs diverge, and the many in which others converge
        ax.set_xscale("symlog", linthresh=1)
        ax.set(xlim=(0, summary["limit"]), yticks=[10.0**log for log in range(-24, 37, 12)])
    else:
        ax.set(xlim=(0, 0.6 * summary["limit"] if name == "k" else summary["limit"]))
    legend_beneath(ax, f"{'η' if name == 'step' else name} (share of signals recovered)")
    return ax


def _varied(summary: Summary, name: str) -> list[Item]:
    """The settings of a panel: the standard, and those that differ from it in this parameter alone."""
    usual = {"k": K_STANDARD, "m": M_STANDARD, "step": HEURISTIC}
    others = [other for other in usual if other != name]
    return [s for s in summary["settings"] if all(s[other] == usual[other] for other in others)]


def _is_standard(setting: Item) -> bool:
    return (setting["k"], setting["m"], setting["step"]) == (K_STANDARD, M_STANDARD, HEURISTIC)


def _value(setting: Item, name: str) -> str:
    return f"{setting['eta']:.2g}" if name == "step" else f"{setting[name]}"


# --- what the paper says ---------------------------------------------------------------------------------------------
def claims(summaries: dict[str, Summary]) -> list[Claim]:
    summary = summaries.get(NUMBER)
    if not summary:
        return []
    standard = next((s for s in summary["settings"] if _is_standard(s)), None)
    found = [_large_k(_varied(summary, "k")), *_slow_m(_varied(summary, "m"))]
    steps = _varied(summary, "step")
    if standard:
        found += [_heuristic(standard), _works_well(standard, steps, summary)]
    large = [s for s in steps if s["eta"] >= 3]
    if large:
        found += [_divergence(steps, large), _within_three([s for s in large if s["eta"] > 3])]
    return [claim for claim in found if claim]


def _shares(settings: Sequence[Item], name: str, what: str = "successes") -> str:
    return ", ".join(f"{_value(s, name)}: {s[what] / s['trials']:.0%}" for s in settings)


def _large_k(settings: Sequence[Item]) -> Claim | None:
    at_k = next((s for s in settings if s["k"] == SPARSITY), None)
    usual = next((s for s in settings if _is_standard(s)), None)
    if not at_k or not usual:
        return None
    highest = wilson(at_k["successes"], at_k["trials"])[1]
    lowest, best = wilson(usual["successes"], usual["trials"])
    verdict = "agrees" if highest < lowest else "differs" if best < highest else "open"
    reason = {
        "agrees": f"the shares are for one matrix and {at_k['trials']} signals; some are recovered at k = K, too",
        "differs": "k = K recovers as many signals as k = 9K",
        "open": f"{at_k['trials']} trials are too few to tell the shares apart",
    }[verdict]
    return Claim(
        "k has to be larger than K = 4", "“If the sparsity parameter k is not large enough, HT-SVRG will not recover "
        "the signal.”", f"recovered at k = {_shares(settings, 'k')}", verdict, reason,
    )  # fmt: skip


def _slow_m(settings: Sequence[Item]) -> list[Claim]:
    if len(settings) < 2:
        return []
    stages = [s["settled"] for s in settings]
    named = [f"{s['m']}: " + ("not reached" if s["settled"] is None else f"{s['settled']:.0f}") for s in settings]
    unknown = [i for i, stage in enumerate(stages) if stage is None]
    verdict = "open" if unknown else "agrees" if all(a > b for a, b in pairwise(stages)) else "differs"
    reason = {
        "open": "not every m reached 1e-10 of the start in half of its runs",
        "differs": "the number of stages does not fall with every increase of m",
    }.get(verdict, "")
    found = [
        Claim("a small m leads to slow convergence, in stages", "“A small m leads to a frequent full gradient "
              "evaluation and hence slow convergence.”",
              f"stages to 1e-10 of the start, m = {', '.join(named)}", verdict, reason),
    ]  # fmt: skip
    if unknown:
        return found
    costs = [stage * (N + 2 * s["m"]) / N for stage, s in zip(stages, settings, strict=True)]
    text = ", ".join(f"{s['m']}: {cost:.0f}" for s, cost in zip(settings, costs, strict=True))
    falling = all(a > b for a, b in pairwise(costs))
    spread = (max(stages) / min(stages), max(costs) / min(costs))
    return [
        *found,
        Claim("a small m costs full gradients", "the same, counting (2m/n + 1) full gradients per stage",
              f"full gradients to 1e-10 of the start, m = {text}", judge(falling),
              f"the measure matters: a factor of {spread[0]:.1f} in stages between the smallest m and the best is "
              f"a factor of {spread[1]:.1f} in gradients" if falling else
              "counted in gradients the largest m is not the best, since a stage has to pay for its m steps"),
    ]  # fmt: skip


def _heuristic(standard: Item) -> Claim:
    agrees = round(standard["eta"], 1) == 0.3
    return Claim("the heuristic step", "“η = 2/svds(AAᵀ) ≈ 0.3”", f"{standard['eta']:.4g} for the matrix used here",
                 judge(agrees), "" if agrees else "another matrix from the same distribution")  # fmt: skip


def _works_well(standard: Item, steps: Sequence[Item], summary: Summary) -> Claim:
    share = standard["successes"] / standard["trials"]
    settled = [s for s in steps if s["settled"] is not None and s["successes"] > ENOUGH * s["trials"]]
    fastest = min(settled, key=lambda s: s["settled"], default=standard)
    faster = (
        f"; the fastest step tried is {fastest['eta']:.2g}: {fastest['settled']:.0f} stages to 1e-10 of the start, "
        f"against {standard['settled']:.0f}"
        if settled and fastest is not standard and standard["settled"] else ""
    )  # fmt: skip
    return Claim(
        "the heuristic step is good", "“our heuristic choice η = 0.3 works well”",
        f"{share:.0%} of the signals recovered{faster}", judge(share > ENOUGH),
        f"the theorem asks for η < 1/(4L) = {summary['covered']:.2g} and does not cover "
        f"{'this step' if standard['eta'] >= summary['covered'] else 'larger steps'}. Nor is 2/σ₁ the limit of "
        "stability of HT-SVRG: it is that of PGD, whose gradient is n times as large"
        + ("" if share > ENOUGH else f"; {1 - share:.0%} of the signals are not recovered"),
    )  # fmt: skip


def _divergence(steps: Sequence[Item], large: Sequence[Item]) -> Claim:
    verdict = judge(all(s["diverged"] == s["trials"] for s in large))
    slow = [s for s in steps if s["eta"] < 3 and s["diverged"] == s["trials"]]
    reason = "" if verdict == "agrees" else "some trials with η ≥ 3 stay finite"
    if slow:
        first = slow[0]
        when = f"; it takes {first['beyond']:.0f} stages to exceed 1e120" if first["beyond"] else ""
        reason = "; ".join(filter(None, [reason, f"η = {first['eta']:.2g} diverges as well{when}"]))
    return Claim("divergence at η ≥ 3", "“We observe divergence when η ≥ 3.”",
                 f"diverged at η = {_shares(steps, 'step', 'diverged')}", verdict, reason)  # fmt: skip


def _within_three(settings: Sequence[Item]) -> Claim | None:
    if not settings:
        return None
    all_within = all(s["within_three"] == s["trials"] for s in settings)
    medians = ", ".join(f"η = {s['eta']:.2g}: {power(s['after_three'])}" for s in settings)
    late = [s for s in settings if s["within_three"] < s["trials"] and s["beyond"]]
    text = ", ".join(f"η = {s['eta']:.2g} exceeds 1e120 after {s['beyond']:.0f} stages" for s in late)
    quick = ", ".join(f"{s['eta']:.2g}" for s in settings if s["within_three"] == s["trials"])
    tried = f"the paper does not say which steps it tried; η = {quick} does so" if quick else "no step tried does so"
    return Claim(
        "how fast it diverges", "“when η > 3, the objective value exceeds 10^120 within 3 stages”",
        f"median objective after 3 stages: {medians}", judge(all_within),
        "" if all_within else "; ".join(filter(None, [text, tried])),
    )  # fmt: skip
