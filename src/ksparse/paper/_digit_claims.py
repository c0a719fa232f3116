"""What the paper says of HT-SVRG on digits, beside what came out."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np

from ._digits import as_paper
from ._lab import Claim, Item, Summary
from .classification import MORE_STAGES, STAGES, STEP, SUFFICES, runs_of

Runs = dict[str, dict[int, Item]]

FLAT = 0.99  # of the whole fall: what is missing cannot be seen in a picture
NEAR = 1.1  # times the lowest objective known: the minimum, or nearly so
ZERO = 1e-5  # a mean loss that only images on the right side of the border have
LOSS = 0.01  # of accuracy, in the mean over pairs, that still suffices
ACCURATE = 0.95
ABOUT = 2.0  # "approximately" means within this factor


def classification(summary: Summary) -> list[Claim]:
    """The claims of Figure 8."""
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


def _finished(runs: Runs) -> list[Item]:
    """Runs that went all the way."""
    return [
        run
        for by_size in runs.values()
        for run in by_size.values()
        if len(run["objective"]) > MORE_STAGES and None not in run["objective"]
    ]


def _flat_after_20(runs: Runs, random: Runs) -> Claim:
    paper = f"“Generally speaking, HT-SVRG converges within {STAGES} stages which is a very fast rate”"
    shares = [_share_of_fall(run) for run in _finished(runs)]
    if not shares:
        return Claim("Fast convergence", paper, "no run got so far", "open", "all runs diverged")
    flat = sum(share >= FLAT for share in shares)
    ours = (
        f"{STAGES} stages bring {_percent(float(np.median(shares)))} (median; {_percent(min(shares))} at least) of the "
        f"fall in F that {MORE_STAGES} bring; {flat} of {len(shares)} curves have {_percent(FLAT)}"
    )
    printed = [_share_of_fall(run) for run in _finished(random)]
    if printed:
        ours += f"; with Algorithm 1's random iterate {_percent(min(printed))} at least, for one k"
    agrees = flat > len(shares) / 2
    reason = "" if agrees else "F goes on falling, in most curves by more than a picture hides"
    return Claim("Fast convergence", paper, ours, "agrees" if agrees else "differs", reason)


def _share_of_fall(run: Item) -> float:
    first, then, last = (run["objective"][stage] for stage in (0, STAGES, MORE_STAGES))
    return (first - then) / (first - last) if first > last else 0.0


def _minimum_after_20(runs: Runs, lowest: Runs) -> Claim:
    paper = f"“usually attains the minimum of objective value within {STAGES} stages”"
    later = [run["objective"][STAGES] / run["objective"][MORE_STAGES] - 1 for run in _finished(runs)]
    pairs = [
        (runs[pair][k]["objective"][STAGES], best["objective"][0], f"{pair.replace('v', ' vs ')} at k = {k}")
        for pair, by_size in lowest.items()
        for k, best in by_size.items()
        if k in runs.get(pair, {}) and runs[pair][k] in _finished(runs)
    ]
    if not pairs:
        return Claim("The minimum is reached", paper, "no lower objective was looked for", "open", "not tried")
    bounded = [(reached / best, where) for reached, best, where in pairs if best >= ZERO]
    separated = len(pairs) - len(bounded)
    parts = []
    if bounded:
        (least, where), (most, _), typical = min(bounded), max(bounded), np.median([ratio for ratio, _ in bounded])
        parts.append(
            f"F after {STAGES} stages is {typical:.3g} times (median) the lowest that exchanges of pixels find for the "
            f"same k, from {least:.3g} ({where}) to {most:.3g} times"
        )
    if separated:
        parts.append(
            f"in {separated} of {len(pairs)} cases k pixels separate the pair: F has no minimum, it falls to 0"
        )
    agrees = len([ratio for ratio, _ in bounded if ratio <= NEAR]) > len(pairs) / 2
    reason = (
        f"F is still {_percent(float(np.median(later)))} (median) above what it is at stage {MORE_STAGES}, which a "
        "linear axis from log 2 hides: steps of this size move slowly where the loss is flat"
    )
    verdict = "agrees" if agrees else "differs"
    return Claim("The minimum is reached", paper, "; ".join(parts), verdict, "" if agrees else reason)


def _larger_k_is_lower(runs: Runs) -> Claim:
    paper = "“choosing a large quantity for the sparsity leads to a better (lower) objective value”"
    rises, steps = [], 0
    for pair, by_size in runs.items():
        ends = [(k, run["objective"][STAGES]) for k, run in sorted(by_size.items()) if run in _finished(runs)]
        for (k, before), (larger, after) in pairwise(ends):
            steps += 1
            if after > before:
                rises.append(f"{pair.replace('v', ' vs ')} from k = {k} to {larger}: {after / before - 1:+.1%}")
    ours = f"F after {STAGES} stages falls at {steps - len(rises)} of {steps} increases of k"
    if not steps:
        return Claim("Larger k, lower objective", paper, ours, "open", "fewer than two k were run")
    return Claim("Larger k, lower objective", paper, ours, "differs" if rises else "agrees", "; ".join(rises))


def _few_pixels_suffice(runs: Runs, k: int, d: int) -> Claim:
    paper = "“for a moderate choice, e.g., k=70, it already guarantees an accurate prediction”"
    name = f"k = {k} of {d} suffices"
    both = {
        pair: (by_size[k]["accuracy"], by_size[d]["accuracy"]) for pair, by_size in runs.items() if {k, d} <= {*by_size}
    }
    if not both:
        return Claim(name, paper, f"k = {k} and {d} were not both run", "open", "the runs are incomplete")
    ours = f"test accuracy at k = {k} (all pixels): " + ", ".join(
        f"{pair.replace('v', ' vs ')} {_percent(few)} ({_percent(every)})" for pair, (few, every) in both.items()
    )
    lost = {pair: every - few for pair, (few, every) in both.items()}
    mean, worst = float(np.mean(list(lost.values()))), max(lost, key=lambda pair: lost[pair])
    reason = (
        f"{100 * mean:.2f} points less than with all pixels in the mean over pairs, "
        f"{100 * lost[worst]:.2f} at most ({worst.replace('v', ' vs ')})"
    )
    agrees = mean <= LOSS and min(few for few, _ in both.values()) >= ACCURATE
    return Claim(name, paper, ours, "agrees" if agrees else "differs", reason)


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
        if k in runs.get(pair, {}) and run in _finished(computed) and runs[pair][k] in _finished(runs)
    ]
    if ends:
        small, large, slow, fast = np.mean(ends, axis=0)
        k = next(iter(next(iter(computed.values()))))
        reason += (
            f". With the computed step {STAGES} stages end at F = {small:.3f} and an accuracy of {_percent(slow)}, "
            f"with {STEP:g} at {large:.3f} and {_percent(fast)} (k = {k}, means over pairs)"
        )
    paper = "“η = 2/svds(AAᵀ) ≈ 10⁻³”"
    verdict = "agrees" if agrees else "differs"
    return Claim("The heuristic step on MNIST", paper, ours, verdict, "" if agrees else reason)


def _range(values: list[float]) -> str:
    low, high = f"{min(values):.1e}", f"{max(values):.1e}"
    return low if low == high else f"{low} to {high}"


def _percent(share: float) -> str:
    return f"{100 * share:.2f}%" if share > 0.9 else f"{100 * share:.1f}%"
