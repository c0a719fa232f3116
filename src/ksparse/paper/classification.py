"""Figure 8: HT-SVRG classifies digits: the objective stage by stage, and the accuracy against k."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._minimize import minimize
from ..result import Progress, Result
from ..sensing.phase import stream
from ..solvers import HTSVRG, Exchange
from .digits import MNIST, PAIRS, SMALL, Pair, as_paper, load_pair, of_one_set, title_of, versus
from .lab import Claim, Item, Summary, by_parameters, judge, significant

NUMBER = "8"
TITLE = "Quantitative results on convergence and accuracy"
TEXT = (
    "The first 5 figures demonstrate the convergence behavior of HT-SVRG for each binary classification task, where "
    "curves with different colors represent the objective value against number of stages under different sparsity k. "
    "Generally speaking, HT-SVRG converges within 20 stages which is a very fast rate. The last figure reflects the "
    "classification accuracy against the sparsity for all 5 classification tasks, where we find that for a moderate "
    "choice, e.g., k=70, it already guarantees an accurate prediction (we recall the dimension is 784)."
)
NEEDS: tuple[str, ...] = ()
KEY = ("digits", "pair", "rule", "k", "draw")

Runs = dict[str, dict[int, Item]]  # by pair and k

STAGES = 20  # of the paper; models and accuracies are those after this many stages
MORE_STAGES = 40  # made here, to see whether 20 are enough
STEP = 1e-3  # the paper's, "approximately"
ROWS = 12_000  # about the number of images that MNIST has of a pair
SIZES = {MNIST: (10, 20, 30, 70, 150, 784), SMALL: (3, 5, 8, 12, 24, 64)}
SUFFICES = {MNIST: 70, SMALL: 12}  # the k that is said to suffice; the small digits have only 64 pixels

FLAT = 0.99  # of the whole decrease in F: what is missing cannot be seen in a picture
NEAR = 1.1  # times the lowest known objective: counts as the minimum
ZERO = 1e-5  # a mean loss so low that k pixels must separate the two digits
LOSS = 0.01  # of accuracy, on average over pairs, that may be lost
ACCURATE = 0.95
ABOUT = 2.0  # "approximately" means within this factor


class ClassificationConfig(NamedTuple):
    pairs: Mapping[str, tuple[str, ...]]
    left_out: tuple[int, ...]  # of SIZES
    draws: int  # of the random rows
    lowest: Mapping[str, tuple[int, ...]]  # the k for which the lowest objective is searched


ALL_PAIRS = {MNIST: PAIRS, SMALL: PAIRS}
FEW_LOWEST = {MNIST: (10, 30, 70), SMALL: (3, 8, 12)}
CONFIG = {
    "quick": ClassificationConfig(
        {MNIST: ("0v9", "1v7", "4v5"), SMALL: PAIRS}, (150, 24), 1, {MNIST: (70,), SMALL: (12,)}
    ),
    "standard": ClassificationConfig(ALL_PAIRS, (), 2, FEW_LOWEST),
    "full": ClassificationConfig(ALL_PAIRS, (), 10, FEW_LOWEST),
}


def items(config: ClassificationConfig, digits: str = MNIST) -> list[Item]:
    """The trials of every rule.

    "paper": as in the paper; "random": with the random snapshot of Algorithm 1 as printed; "spectral": with the step
    2/σ₁(AAᵀ) as computed; "lowest": for comparison, the lowest objective that exchanges of pixels find for the same k.
    """
    ways = [("paper", k, draw) for k in SIZES[digits] if k not in config.left_out for draw in range(config.draws)]
    ways += [(rule, SUFFICES[digits], 0) for rule in ("random", "spectral")]
    ways += [("lowest", k, 0) for k in config.lowest[digits]]
    return [
        {"digits": digits, "pair": pair, "rule": rule, "k": k, "draw": draw}
        for pair in config.pairs[digits]
        for rule, k, draw in ways
    ]


def trial(
    seed: int, digits: str, pair: str, rule: str, k: int, draw: int, digits_folder: str | Path | None = None
) -> Item:
    data = load_pair(digits, digits_folder, pair)
    if rule == "lowest":
        return _lowest(data, k)
    eta = "spectral" if rule == "spectral" else step_of(digits, len(data.y))
    solver = HTSVRG(step=eta, stages=MORE_STAGES, tol=0.0, output="random" if rule == "random" else "last")
    then: list[NDArray[np.float64]] = []

    def remember(now: Progress) -> None:
        if now.stage == STAGES:
            then.append(now.x.copy())

    rng = stream(seed, "classification", digits, pair, k, draw)
    result = minimize(data.A, data.y, k, loss="logistic", solver=solver, random_state=rng, callback=remember)
    x = then[0] if then else result.x  # a run that diverged may end before
    outcome = _outcome(data, x, result, significant([result.history.step[-1]])[0], result.history.objective.tolist())
    if rule == "spectral":
        A = data.A / np.linalg.norm(data.A, axis=1, keepdims=True)
        outcome["eta_unit_rows"] = significant([2.0 / float(np.linalg.eigvalsh(A.T @ A)[-1])])[0]
    if rule == "paper" and draw == 0:
        outcome |= _weights(x)
    return outcome


def step_of(digits: str, n: int) -> float:
    """The paper's η.

    The small digits have 1/40 of the images, and 3n steps of 10⁻³ make hardly any progress.  They get a larger step,
    such that 3nη is the same as on MNIST.
    """
    return STEP if digits == MNIST else STEP * ROWS / n


def _lowest(data: Pair, k: int) -> Item:
    """Minimise the same objective, without ridge and intercept, by the package's best solver."""
    result = minimize(data.A, data.y, k, loss="logistic", solver=Exchange(), random_state=0)
    return _outcome(data, result.x, result, None, [result.objective])


def _outcome(data: Pair, x: NDArray[np.float64], result: Result, eta: float | None, objective: list[float]) -> Item:
    """The outcome of a trial whose model is x; the run may have gone on after it."""
    n, d = data.A.shape
    return {
        "n": n,
        "d": d,
        "majority": data.majority,
        "nonzeros": int(np.count_nonzero(x)),
        "accuracy": data.accuracy(x),
        "eta": eta,
        "objective": significant(objective),
        "accuracy_later": data.accuracy(result.x),
        "status": str(result.status),
    }


def _weights(x: NDArray[np.float64]) -> Item:
    """The weights that a picture of the model needs: its pixels, and their weights in per cent of the largest."""
    pixels = np.flatnonzero(x)
    largest = float(np.abs(x).max(initial=0.0))
    percent = np.rint(100 * x[pixels] / largest) if pixels.size else np.empty(0)
    percent = np.where(percent == 0, np.sign(x[pixels]), percent)  # small, but not zero
    return {"largest": significant([largest])[0], "pixels": pixels.tolist(), "percent": percent.astype(int).tolist()}


def summarise(records: Iterable[Item]) -> Summary:
    """One curve for every pair, rule and k (the mean over draws); one model for every pair and k; the steps by pair."""
    records = of_one_set(records)
    cells = by_parameters(records, ("pair", "rule", "k"))
    models: dict[str, dict[str, Item]] = {}
    steps: dict[str, Item] = {}
    for record in records:
        pair = record["pair"]
        if "pixels" in record:
            model = {name: record[name] for name in ("largest", "pixels", "percent")}
            models.setdefault(pair, {})[str(record["k"])] = model
        if record["rule"] == "spectral":
            names = {"n": "n", "majority": "majority", "spectral": "eta", "unit rows": "eta_unit_rows"}
            steps[pair] = {name: record[field] for name, field in names.items()}
    return {
        "digits": records[0]["digits"] if records else MNIST,
        "d": records[0]["d"] if records else 0,
        "runs": [
            {"pair": pair, "rule": rule, "k": k, **_mean(cells[pair, rule, k])} for pair, rule, k in sorted(cells)
        ],
        "models": {pair: models[pair] for pair in sorted(models)},
        "steps": {pair: steps[pair] for pair in sorted(steps)},
    }


def _mean(records: list[Item]) -> Item:
    """The mean over draws; histories are cut to the shortest, since a diverging run may end early."""
    accuracies = [record["accuracy"] for record in records]
    length = min(len(record["objective"]) for record in records)
    histories = np.array([record["objective"][:length] for record in records], float)
    return {
        "draws": len(records),
        "eta": records[0]["eta"],
        "nonzeros": max(record["nonzeros"] for record in records),
        "objective": significant(histories.mean(axis=0).tolist()),
        "accuracy": round(float(np.mean(accuracies)), 5),
        "accuracy_low": min(accuracies),
        "accuracy_high": max(accuracies),
        "accuracy_later": round(float(np.mean([record["accuracy_later"] for record in records])), 5),
    }


def runs_of(summary: Summary, rule: str = "paper") -> Runs:
    """The runs of a rule, by pair and k."""
    found: Runs = {}
    for run in summary.get("runs", ()):
        if run["rule"] == rule:
            found.setdefault(run["pair"], {})[run["k"]] = run
    return found


# --- pictures --------------------------------------------------------------------------------------------------------
DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 0.7)))
MARKS = "osD^v"


def plot(summaries: dict[str, Summary]) -> dict[str, Any]:
    summary = summaries.get(NUMBER, {})
    runs = runs_of(summary)
    if not runs:
        return {}
    panels = {pair: _plot_objective(summary, pair) for pair in runs}
    return {**panels, "accuracy": _plot_accuracy(runs, summary["digits"])}


def _plot_objective(summary: Summary, pair: str) -> Any:
    from .._style import BLACK, CYCLE, new_axes

    ax = new_axes(None, (4.2, 3.5))
    sizes = SIZES[summary["digits"]]
    for k, run in runs_of(summary)[pair].items():
        which = sizes.index(k) if k in sizes else 0
        color, dashes = CYCLE[which % len(CYCLE)], DASHES[which % len(DASHES)]
        ax.plot(run["objective"], color=color, linestyle=dashes, label=f"k = {k}")
    for k, run in runs_of(summary, "spectral").get(pair, {}).items():
        label = f"k = {k}, η = {run['eta']:.1e}"
        ax.plot(run["objective"], color=BLACK, linewidth=1, marker=".", markevery=5, label=label)
    ax.axvline(STAGES, color=BLACK, linewidth=0.8, linestyle=":")
    ax.set(xlabel="stages", ylabel="objective F", yscale="log", xlim=(0, MORE_STAGES))
    label_1_2_5(ax.yaxis)
    ax.set_title(title_of(pair, summary["digits"]), fontsize=10)
    ax.legend(loc="upper center", bbox_to_anchor=(0.45, -0.2), ncols=3, fontsize=8, frameon=False, handlelength=2.6)
    return ax


def _plot_accuracy(runs: Runs, digits: str) -> Any:
    from matplotlib.ticker import NullLocator

    from .._style import CYCLE, new_axes

    ax = new_axes(None, (4.2, 3.5))
    for pair, by_size in runs.items():
        which = PAIRS.index(pair)
        cells = list(by_size.values())
        values, low, high = (
            100 * np.array([cell[name] for cell in cells]) for name in ("accuracy", "accuracy_low", "accuracy_high")
        )
        style = {"color": CYCLE[which], "linestyle": DASHES[which], "marker": MARKS[which], "markersize": 4}
        ax.errorbar(list(by_size), values, yerr=(values - low, high - values), label=versus(pair), **style)
    sizes = sorted({k for by_size in runs.values() for k in by_size})
    ax.set(xscale="log", xlabel="k, pixels allowed", ylabel=f"test accuracy after {STAGES} stages, %")
    end_at_hundred(ax)
    ax.set_xticks(sizes, [str(k) for k in sizes])
    ax.xaxis.set_minor_locator(NullLocator())
    if digits != MNIST:
        ax.set_title("8 × 8 digits", fontsize=10)
    ax.legend(loc="upper center", bbox_to_anchor=(0.45, -0.2), ncols=3, fontsize=8, frameon=False, handlelength=3)
    return ax


def end_at_hundred(ax: Any) -> None:
    """Do not let an axis of accuracies go beyond 100%."""
    ax.set_ylim(top=min(ax.get_ylim()[1], 100.2))


def label_1_2_5(axis: Any) -> None:
    """Label a logarithmic axis at 1, 2 and 5 times powers of ten, with plain numbers."""
    from matplotlib.ticker import LogLocator, NullLocator

    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_locator(NullLocator())


# --- what the paper says ---------------------------------------------------------------------------------------------
def claims(summaries: dict[str, Summary]) -> list[Claim]:
    summary = summaries.get(NUMBER, {})
    runs = runs_of(summary)
    if not runs:
        return []
    found = [
        _flat_after_20(runs, runs_of(summary, "random")),
        _minimum_after_20(runs, runs_of(summary, "lowest")),
        _larger_k_is_lower(runs),
        _few_pixels_suffice(runs, SUFFICES[summary["digits"]], summary["d"]),
        _step(summary, runs),
    ]
    return as_paper([claim for claim in found if claim is not None], summary["digits"])


def _finished(run: Item) -> bool:
    """Whether a run made all its stages."""
    return len(run["objective"]) > MORE_STAGES and None not in run["objective"]


def _all_finished(runs: Runs) -> list[Item]:
    return [run for by_size in runs.values() for run in by_size.values() if _finished(run)]


def _flat_after_20(runs: Runs, random: Runs) -> Claim:
    paper = f"“Generally speaking, HT-SVRG converges within {STAGES} stages which is a very fast rate”"
    shares = [_share_of_decrease(run) for run in _all_finished(runs)]
    if not shares:
        return Claim("Fast convergence", paper, "no run made all its stages", "open", "all runs diverged")
    flat = sum(share >= FLAT for share in shares)
    ours = (
        f"{STAGES} stages bring {_percent(float(np.median(shares)))} (median; at least {_percent(min(shares))}) of the "
        f"decrease in F that {MORE_STAGES} bring; {flat} of {len(shares)} curves reach {_percent(FLAT)}"
    )
    printed = [_share_of_decrease(run) for run in _all_finished(random)]
    if printed:
        ours += f"; with Algorithm 1's random iterate at least {_percent(min(printed))}, for one k"
    agrees = flat > len(shares) / 2
    reason = "" if agrees else "F continues to fall, in most curves by more than a picture hides"
    return Claim("Fast convergence", paper, ours, judge(agrees), reason)


def _share_of_decrease(run: Item) -> float:
    """The decrease in F after STAGES stages, as a share of that after MORE_STAGES."""
    first, then, last = (run["objective"][stage] for stage in (0, STAGES, MORE_STAGES))
    return (first - then) / (first - last) if first > last else 0.0


def _minimum_after_20(runs: Runs, lowest: Runs) -> Claim:
    name, paper = "The minimum is reached", f"“usually attains the minimum of objective value within {STAGES} stages”"
    later = [run["objective"][STAGES] / run["objective"][MORE_STAGES] - 1 for run in _all_finished(runs)]
    cases = [
        (runs[pair][k]["objective"][STAGES], best["objective"][0], f"{versus(pair)} at k = {k}")
        for pair, by_size in lowest.items()
        for k, best in by_size.items()
        if k in runs.get(pair, {}) and _finished(runs[pair][k])
    ]
    if not cases:
        return Claim(name, paper, "no lower objective was searched for", "open", "not tried")
    bounded = [(reached / best, where) for reached, best, where in cases if best >= ZERO]
    separated = len(cases) - len(bounded)
    parts = []
    if bounded:
        (least, where), (most, _), typical = min(bounded), max(bounded), np.median([ratio for ratio, _ in bounded])
        parts.append(
            f"F after {STAGES} stages is {typical:.3g} times (median) the lowest that exchanges of pixels find for the "
            f"same k, from {least:.3g} ({where}) to {most:.3g} times"
        )
    if separated:
        parts.append(
            f"in {separated} of {len(cases)} cases k pixels separate the pair: F has no minimum, it falls to 0"
        )
    agrees = len([ratio for ratio, _ in bounded if ratio <= NEAR]) > len(cases) / 2
    reason = (
        f"F is still {_percent(float(np.median(later)))} (median) above its value at stage {MORE_STAGES}, which a "
        "linear axis from log 2 hides: where the loss is flat, steps of this size make slow progress"
    )
    return Claim(name, paper, "; ".join(parts), judge(agrees), "" if agrees else reason)


def _larger_k_is_lower(runs: Runs) -> Claim:
    name, paper = (
        "Larger k, lower objective",
        "“choosing a large quantity for the sparsity leads to a better (lower) objective value”",
    )
    rises, steps = [], 0
    for pair, by_size in runs.items():
        ends = [(k, run["objective"][STAGES]) for k, run in sorted(by_size.items()) if _finished(run)]
        for (k, before), (larger, after) in pairwise(ends):
            steps += 1
            if after > before:
                rises.append(f"{versus(pair)} from k = {k} to {larger}: {after / before - 1:+.1%}")
    ours = f"F after {STAGES} stages falls at {steps - len(rises)} of {steps} increases of k"
    if not steps:
        return Claim(name, paper, ours, "open", "fewer than two k were run")
    return Claim(name, paper, ours, judge(not rises), "; ".join(rises))


def _few_pixels_suffice(runs: Runs, k: int, d: int) -> Claim:
    paper = "“for a moderate choice, e.g., k=70, it already guarantees an accurate prediction”"
    name = f"k = {k} of {d} suffices"
    both = {
        pair: (by_size[k]["accuracy"], by_size[d]["accuracy"]) for pair, by_size in runs.items() if {k, d} <= {*by_size}
    }
    if not both:
        return Claim(name, paper, f"k = {k} and {d} were not both run", "open", "the runs are incomplete")
    ours = f"test accuracy at k = {k} (all pixels): " + ", ".join(
        f"{versus(pair)} {_percent(few)} ({_percent(every)})" for pair, (few, every) in both.items()
    )
    lost = {pair: every - few for pair, (few, every) in both.items()}
    mean, worst = float(np.mean(list(lost.values()))), max(lost, key=lambda pair: lost[pair])
    reason = (
        f"{100 * mean:.2f} points less than with all pixels on average over pairs, "
        f"{100 * lost[worst]:.2f} at most ({versus(worst)})"
    )
    agrees = mean <= LOSS and min(few for few, _ in both.values()) >= ACCURATE
    return Claim(name, paper, ours, judge(agrees), reason)


def _step(summary: Summary, runs: Runs) -> Claim | None:
    steps, computed = summary["steps"], runs_of(summary, "spectral")
    if not steps:
        return None
    raw, unit = ([step[name] for step in steps.values()] for name in ("spectral", "unit rows"))
    ours = f"2/σ₁(AAᵀ) is {_range(raw)} for pixels from 0 to 1, {_range(unit)} for images of norm one"
    agrees = all(STEP / ABOUT <= eta <= STEP * ABOUT for eta in raw)
    scale = math.sqrt(STEP / float(np.median(raw)))
    reason = f"it would be {STEP:g} for pixels from 0 to 1/{scale:.0f}; here η = {STEP:g}, and pixels go from 0 to 1"
    ends = [
        (run["objective"][STAGES], runs[pair][k]["objective"][STAGES], run["accuracy"], runs[pair][k]["accuracy"])
        for pair, by_size in computed.items()
        for k, run in by_size.items()
        if k in runs.get(pair, {}) and _finished(run) and _finished(runs[pair][k])
    ]
    if ends:
        small, large, slow, fast = np.mean(ends, axis=0)
        k = next(iter(next(iter(computed.values()))))
        reason += (
            f". With the computed step {STAGES} stages end at F = {small:.3f} and an accuracy of {_percent(slow)}, "
            f"with {STEP:g} at {large:.3f} and {_percent(fast)} (k = {k}, means over pairs)"
        )
    paper = "“η = 2/svds(AAᵀ) ≈ 10⁻³”"
    return Claim("The heuristic step on MNIST", paper, ours, judge(agrees), "" if agrees else reason)


def _range(values: list[float]) -> str:
    low, high = f"{min(values):.1e}", f"{max(values):.1e}"
    return low if low == high else f"{low} to {high}"


def _percent(share: float) -> str:
    return f"{100 * share:.2f}%" if share > 0.9 else f"{100 * share:.1f}%"
