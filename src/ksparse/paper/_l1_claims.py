"""What the paper says of the ℓ₁ norm and stochastic steps, beside what came out on digits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ._digits import as_paper
from ._lab import Claim, Item, Summary
from .l1 import FAIR, NUMBER, PENALTY, all_models, optimum_at

MORE = 1.5  # times the non-zeros of the solution: "much less effective"
ENOUGH = 3  # pairs, to speak of what is usual
HALF = 0.5  # of the pixels: more of them is not sparse
NEAR = 0.005  # of accuracy: as good as the best ℓ₁ model
NAMES = {"saga": "SAGA", "optimum": "ℓ₁ solved to the end", "ht-svrg": "HT-SVRG", "auto": "KSparseClassifier"}


def compare(summaries: dict[str, Summary]) -> list[Claim]:
    summary = summaries[NUMBER]
    models = {pair: all_models(summaries, pair) for pair in summary["models"]}
    found = [_always_sparse(models), _not_sparse(summary, models), _randomness(summary), _fewer(models)]
    return as_paper([claim for claim in found if claim is not None], summary["digits"])


def _always_sparse(models: dict[str, dict[str, list[Item]]]) -> Claim | None:
    ours = [model for found in models.values() for method in ("ht-svrg", "auto") for model in found.get(method, ())]
    if not ours:
        return None
    more = sum(model["nonzeros"] > model["k"] for model in ours)
    text = f"{len(ours) - more} of {len(ours)} models have at most k non-zeros"
    paper = "it always produces sparse solutions"
    reason = f"{more} have more" if more else ""
    return Claim("A bound on the number of non-zeros holds", paper, text, "differs" if more else "agrees", reason)


def _not_sparse(summary: Summary, models: dict[str, dict[str, list[Item]]]) -> Claim | None:
    """Where ℓ₁ predicts best, how many pixels does it use?"""
    shares = {}
    for pair, found in models.items():
        path = [model for method in ("saga", "optimum") for model in found.get(method, ())]
        if path:
            best = max(model["accuracy"] for model in path)
            shares[pair] = min(m["nonzeros"] for m in path if m["accuracy"] == best) / summary["ink"][pair]
    if not shares:
        return None
    ours = "pixels of the most accurate ℓ₁ model, of those that ever have ink: " + ", ".join(
        f"{pair.replace('v', ' vs ')} {100 * share:.0f}%" for pair, share in shares.items()
    )
    agrees = sum(share > HALF for share in shares.values()) > len(shares) / 2
    few = sum(share <= HALF for share in shares.values())
    reason = "" if agrees else f"it is fewer than half of them for {few} of {len(shares)} pairs"
    paper = "one cannot characterize the sparsity of the obtained solution (usually the solution is not sparse)"
    claim = Claim("Solutions with the ℓ₁ norm are not sparse", paper, ours, "agrees" if agrees else "differs", reason)
    return _unless_few(claim, len(shares))


def _randomness(summary: Summary) -> Claim | None:
    """SAGA's iterates beside the solution of the same program."""
    ratios: dict[int, list[float]] = {}
    for pair, looks in summary["looks"].items():
        solved = optimum_at(summary, pair)
        for look in looks if solved else ():
            ratios.setdefault(look["passes"], []).append(look["nonzeros"] / solved)
    if not ratios:
        return None
    means = {passes: float(np.mean(found)) for passes, found in sorted(ratios.items())}
    ours = "non-zeros of SAGA, times those of the solution (mean over pairs): " + ", ".join(
        f"{mean:.2f} after {passes} pass{'es' if passes > 1 else ''}" for passes, mean in means.items()
    )
    paper = "becomes much less effective in terms of sparsification, naturally owing to the randomness"
    name = "Stochastic steps spoil the sparsity of ℓ₁"
    if FAIR not in means:
        return Claim(name, paper, ours, "open", f"SAGA was not given the {FAIR} passes that HT-SVRG has in its stages")
    first = min(means)
    reason = (
        f"at λ = {PENALTY:g}; judged after {FAIR} passes, what the stages of HT-SVRG cost by the paper's count: "
        f"{means[FAIR]:.2f} times; early iterates have {means[first]:.1f} times as many"
    )
    return Claim(name, paper, ours, "agrees" if means[FAIR] >= MORE else "differs", reason)


def _unless_few(claim: Claim, pairs: int) -> Claim:
    """What holds for a pair or two may be chance."""
    if pairs >= ENOUGH:
        return claim
    return replace(claim, verdict="open", reason=f"only {pairs} of the 5 pairs were run. {claim.reason}".strip())


def _fewer(models: dict[str, dict[str, list[Item]]]) -> Claim | None:
    """How many pixels each method needs to be as accurate as the best ℓ₁ model, nearly."""
    needed: dict[str, list[float]] = {}
    for found in models.values():
        path = [model["accuracy"] for method in ("saga", "optimum") for model in found.get(method, ())]
        for method in NAMES if path else ():
            enough = [m["nonzeros"] for m in found.get(method, ()) if m["accuracy"] >= max(path) - NEAR]
            needed.setdefault(method, []).append(min(enough, default=np.inf))
    if not {"optimum", "auto"} <= needed.keys():
        return None
    medians = {method: float(np.median(needed[method])) for method in NAMES if method in needed}
    counts = ", ".join(
        f"{NAMES[method]} {'more than were tried' if np.isinf(count) else f'{count:g}'}"
        for method, count in medians.items()
    )
    ours = f"pixels for an accuracy within {100 * NEAR:g} points of the best ℓ₁ model (median over pairs): {counts}"
    name, paper = "Fewer features for the same accuracy", "(not in the paper: what hard thresholding saves)"
    if np.isinf(medians["auto"]) or np.isinf(medians["optimum"]):
        return Claim(name, paper, ours, "open", "the k and λ that were tried do not reach it")
    share = medians["auto"] / medians["optimum"]
    reason = f"KSparseClassifier needs {100 * share:.0f}% of the pixels of ℓ₁ solved to the end"
    if np.isfinite(medians.get("saga", np.inf)):
        reason += f", {100 * medians['auto'] / medians['saga']:.0f}% of SAGA's"
    if np.isfinite(medians.get("ht-svrg", np.inf)):
        reason += f"; the paper's HT-SVRG needs {medians['ht-svrg'] / medians['optimum']:.2g} times those of ℓ₁ solved"
    return _unless_few(Claim(name, paper, ours, "beyond", reason), len(models))
