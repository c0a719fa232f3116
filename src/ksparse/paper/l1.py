"""Beyond the paper: the ℓ₁ norm instead of hard thresholding, on the same digits."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..sensing.phase import stream
from . import classification
from .classification import DASHES, MARKS, end_at_hundred, label_1_2_5
from .digits import MNIST, PAIRS, SMALL, Pair, as_paper, load_pair, of_one_set, title_of, versus
from .lab import Claim, Item, Summary, judge, significant

NUMBER = "l1"
TITLE = "The ℓ₁ norm by stochastic steps, on the same digits"
TEXT = (
    "The paper's reason for a bound on the number of non-zeros; not a figure of the paper: “We emphasize that the "
    "formulation … is in stark contrast to the ℓ₁-regularized programs considered by previous stochastic solvers such "
    "as Prox-SVRG and SAGA. … it always produces sparse solutions, whereas performance guarantees for convex programs "
    "are fruitful but one cannot characterize the sparsity of the obtained solution (usually the solution is not "
    "sparse). When we appeal to stochastic algorithms to solve the convex programs, the ℓ₁-norm formulation becomes "
    "much less effective in terms of sparsification, naturally owing to the randomness.”"
)
NEEDS = (classification.NUMBER,)  # HT-SVRG's models are those of Figure 8
KEY = ("digits", "pair", "method", "k", "penalty", "passes")

# "saga": scikit-learn's SAGA, for a number of passes; "optimum": the same problem solved to convergence by coordinate
# descent (LIBLINEAR); "auto": KSparseClassifier with its defaults.  Of k, penalty and passes, those that a method does
# not have are 0.
METHODS = ("saga", "optimum", "auto")
FAIR = 7 * classification.STAGES  # passes that HT-SVRG makes, by the paper's count of 2m/n + 1 = 7 per stage
PENALTY = 1e-3  # the λ of mean loss + λ‖x‖₁ at which SAGA is followed pass by pass
SWEEPS = 1000  # limit for LIBLINEAR, far more than it needs

MORE = 1.5  # times the non-zeros of the solution: "much less effective"
ENOUGH = 3  # pairs that a verdict on what is usual needs
HALF, QUARTER = 0.5, 0.25  # of the pixels: more than half is not sparse, at most a quarter is
NEAR = 0.005  # of accuracy: as good as the best ℓ₁ model
NAMES = {"saga": "SAGA", "optimum": "ℓ₁ solved to the end", "ht-svrg": "HT-SVRG", "auto": "KSparseClassifier"}

Models = dict[str, list[Item]]  # models of a pair by method, the sparsest first


class L1Config(NamedTuple):
    pairs: Mapping[str, tuple[str, ...]]
    penalties: tuple[float, ...]  # of the optimum
    saga: tuple[float, ...]  # penalties of SAGA; fewer, since it is slow
    passes: int  # of SAGA at these penalties
    looks: tuple[int, ...]  # numbers of passes of SAGA at PENALTY
    left_out: tuple[int, ...]  # of the k of Figure 8


PATH = (0.1, 0.03, 0.01, 0.003, 0.001, 3e-4, 1e-4, 3e-5, 1e-5)
SAGA_PATH = (0.01, 0.003, 0.001, 3e-4, 1e-4)
CONFIG = {
    "quick": L1Config(
        {MNIST: ("1v7", "4v5"), SMALL: PAIRS}, PATH[::2], (0.01, 0.001), 10, (1, 3, 10), (20, 70, 150, 784, 5, 24, 64)
    ),
    "standard": L1Config(classification.ALL_PAIRS, PATH, SAGA_PATH, 20, (1, 3, 10, 20, FAIR), (784, 64)),
    "full": L1Config(classification.ALL_PAIRS, PATH, SAGA_PATH, 20, (1, 3, 10, 20, 50, FAIR, 3 * FAIR), (784, 64)),
}


def items(config: L1Config, digits: str = MNIST) -> list[Item]:
    looks = {(penalty, config.passes) for penalty in config.saga} | {(PENALTY, passes) for passes in config.looks}
    ways = [("auto", k, 0.0, 0) for k in classification.SIZES[digits] if k not in config.left_out]
    ways += [("optimum", 0, penalty, 0) for penalty in config.penalties]
    ways += [("saga", 0, penalty, passes) for penalty, passes in sorted(looks)]
    return [
        {"digits": digits, "pair": pair, "method": method, "k": k, "penalty": penalty, "passes": passes}
        for pair in config.pairs[digits]
        for method, k, penalty, passes in ways
    ]


def trial(
    seed: int,
    digits: str,
    pair: str,
    method: str,
    k: int,
    penalty: float,
    passes: int,
    digits_folder: str | Path | None = None,
) -> Item:
    data = load_pair(digits, digits_folder, pair)
    number = int(stream(seed, "l1", digits, pair).integers(2**31 - 1))  # the same for all numbers of passes
    fit = _fit(data, method, k, penalty, passes, number)
    x, intercept = fit.coef_[0], float(np.ravel(fit.intercept_)[0])
    limit = {"saga": passes, "optimum": SWEEPS}.get(method)
    return {
        "d": int(x.size),
        "ink": int(np.count_nonzero(data.A.any(axis=0))),
        "nonzeros": int(np.count_nonzero(x)),
        "accuracy": data.accuracy(x, intercept),
        "loss": significant([data.loss(x, intercept)])[0],
        "converged": bool(fit.status_ == "converged") if limit is None else bool(np.max(fit.n_iter_) < limit),
    }


def _fit(data: Pair, method: str, k: int, penalty: float, passes: int, number: int) -> Any:
    """A fitted KSparseClassifier, or min mean loss + penalty·‖x‖₁ without intercept, like the paper's models."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    from ..estimators import KSparseClassifier

    if method == "auto":
        model: Any = KSparseClassifier(k, random_state=number)
    else:
        new = LogisticRegression().penalty == "deprecated"  # from version 1.8 on, l1_ratio alone sets the norm
        norm: dict[str, Any] = {"l1_ratio": 1.0} if new else {"penalty": "l1"}
        solver, limit = ("saga", passes) if method == "saga" else ("liblinear", SWEEPS)
        C = 1.0 / (penalty * len(data.y))
        model = LogisticRegression(C=C, solver=solver, max_iter=limit, fit_intercept=False, random_state=number, **norm)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the record says whether a fit converged
        return model.fit(data.A, data.y)


def summarise(records: Iterable[Item]) -> Summary:
    """Models by pair and method, the sparsest first, and the non-zeros of SAGA pass by pass."""
    records = of_one_set(records)
    longest = max((r["passes"] for r in records if r["method"] == "saga" and r["penalty"] != PENALTY), default=0)
    fields = ("k", "penalty", "nonzeros", "accuracy", "loss", "converged")
    models: dict[str, Models] = {}
    looks: dict[str, list[Item]] = {}
    for record in records:
        pair, method = record["pair"], record["method"]
        if method != "saga" or record["passes"] == longest:
            models.setdefault(pair, {}).setdefault(method, []).append({name: record[name] for name in fields})
        if method == "saga" and record["penalty"] == PENALTY:
            looks.setdefault(pair, []).append({name: record[name] for name in ("passes", "nonzeros", "converged")})
    for by_method in models.values():
        for found in by_method.values():
            found.sort(key=lambda model: (model["nonzeros"], model["k"], -model["penalty"]))
    for found in looks.values():
        found.sort(key=lambda look: look["passes"])
    return {
        "digits": records[0]["digits"] if records else MNIST,
        "d": records[0]["d"] if records else 0,
        "passes": longest,
        "ink": {record["pair"]: record["ink"] for record in sorted(records, key=lambda record: record["pair"])},
        "models": {pair: {name: models[pair][name] for name in sorted(models[pair])} for pair in sorted(models)},
        "looks": {pair: looks[pair] for pair in sorted(looks)},
    }


def solved(summary: Summary, pair: str) -> dict[float, int]:
    """The number of non-zeros of the ℓ₁ solution for each penalty."""
    found = summary["models"].get(pair, {}).get("optimum", ())
    return {model["penalty"]: model["nonzeros"] for model in found}


def all_models(summaries: dict[str, Summary], pair: str) -> Models:
    """Models of a pair by method, with those of HT-SVRG from Figure 8 if they are for the same digits."""
    summary, other = summaries[NUMBER], summaries.get(classification.NUMBER, {})
    found = dict(summary["models"].get(pair, {}))
    runs = classification.runs_of(other).get(pair, {}) if other.get("digits") == summary["digits"] else {}
    stages = classification.STAGES
    own = [
        {"nonzeros": run["nonzeros"], "k": k, "accuracy": run["accuracy"], "loss": run["objective"][stages]}
        for k, run in sorted(runs.items())
        if len(run["objective"]) > stages
    ]
    return {**found, "ht-svrg": own} if own else found


# --- pictures --------------------------------------------------------------------------------------------------------
GREY, DARK = "#8c8c8c", "#5a5a5a"


def plot(summaries: dict[str, Summary]) -> dict[str, Any]:
    summary = summaries.get(NUMBER, {})
    if not summary.get("models"):
        return {}
    panels = {pair: _plot_pair(summaries, pair) for pair in summary["models"]}
    return {**panels, "passes": _plot_passes(summary)} if summary["looks"] else panels


def _plot_pair(summaries: dict[str, Summary], pair: str) -> Any:
    """The accuracy above, the training loss below, both against the number of non-zeros."""
    from .._style import STYLE, new_axes

    summary = summaries[NUMBER]
    styles = {
        "saga": (f"ℓ₁, SAGA, {summary['passes']} passes", GREY, "--", "^"),
        "optimum": ("ℓ₁, solved to the end", DARK, ":", "s"),
        "ht-svrg": (f"HT-SVRG, {classification.STAGES} stages", *STYLE["ht-svrg"], "o"),
        "auto": ("KSparseClassifier", *STYLE["auto"], "D"),
    }
    above, beneath = axes = new_axes(None, (4.2, 5.0), (2, 1))
    models = all_models(summaries, pair)
    for method, (label, color, dashes, mark) in styles.items():
        found = models.get(method, [])
        style = {"color": color, "linestyle": dashes, "marker": mark, "markersize": 4, "linewidth": 1.3}
        sizes = [model["nonzeros"] for model in found]
        above.plot(sizes, [100 * model["accuracy"] for model in found], label=label if found else None, **style)
        beneath.plot(sizes, [model["loss"] for model in found], **style)
    for ax in axes:
        ax.set_xscale("log")
        label_1_2_5(ax.xaxis)
    above.set_ylabel("test accuracy, %")
    end_at_hundred(above)
    above.set_title(title_of(pair, summary["digits"]), fontsize=10)
    beneath.set(xlabel="non-zeros", ylabel="training loss", yscale="log")
    beneath.yaxis.set_major_formatter("{x:g}")
    above.legend(loc="upper center", bbox_to_anchor=(0.45, -0.12), ncols=2, fontsize=8, frameon=False, handlelength=3)
    return above


def _plot_passes(summary: Summary) -> Any:
    """The number of non-zeros of SAGA's iterates, divided by that of the solution."""
    from .._style import BLACK, CYCLE, new_axes

    ax = new_axes(None, (4.2, 3.5))
    for pair, looks in summary["looks"].items():
        best = solved(summary, pair).get(PENALTY)
        if not best:
            continue
        which = PAIRS.index(pair)
        style = {"color": CYCLE[which], "linestyle": DASHES[which], "marker": MARKS[which]}
        ratios = [look["nonzeros"] / best for look in looks]
        ax.plot([look["passes"] for look in looks], ratios, label=versus(pair), markersize=4, **style)
    ax.axhline(1.0, color=BLACK, linewidth=1, linestyle=":")
    passes = sorted({look["passes"] for looks in summary["looks"].values() for look in looks})
    ax.set(xscale="log", xlabel="passes of SAGA", ylabel="non-zeros ÷ the solution's", ylim=(0, None))
    ax.set_xticks(passes, [str(count) for count in passes])
    ax.minorticks_off()
    small = "" if summary["digits"] == MNIST else ", 8 × 8 digits"
    ax.set_title(f"mean loss + {PENALTY:g} ‖x‖₁{small}", fontsize=10)
    ax.legend(loc="upper center", bbox_to_anchor=(0.45, -0.2), ncols=3, fontsize=8, frameon=False, handlelength=3)
    return ax


# --- what the paper says ---------------------------------------------------------------------------------------------
def claims(summaries: dict[str, Summary]) -> list[Claim]:
    summary = summaries.get(NUMBER, {})
    if not summary.get("models"):
        return []
    models = {pair: all_models(summaries, pair) for pair in summary["models"]}
    found = [_always_sparse(models), _not_sparse(summary, models), _randomness(summary), _fewer(models)]
    return as_paper([claim for claim in found if claim is not None], summary["digits"])


def _always_sparse(models: dict[str, Models]) -> Claim | None:
    ours = [model for found in models.values() for method in ("ht-svrg", "auto") for model in found.get(method, ())]
    if not ours:
        return None
    more = sum(model["nonzeros"] > model["k"] for model in ours)
    text = f"{len(ours) - more} of {len(ours)} models have at most k non-zeros"
    paper = "“it always produces sparse solutions”"
    reason = f"{more} have more" if more else ""
    return Claim("A bound on the number of non-zeros holds", paper, text, judge(not more), reason)


def _not_sparse(summary: Summary, models: dict[str, Models]) -> Claim | None:
    """How many pixels the most accurate ℓ₁ model uses."""
    shares = {}
    for pair, found in models.items():
        path = [model for method in ("saga", "optimum") for model in found.get(method, ())]
        if path:
            best = max(model["accuracy"] for model in path)
            shares[pair] = min(m["nonzeros"] for m in path if m["accuracy"] == best) / summary["ink"][pair]
    if not shares:
        return None
    ours = "pixels of the most accurate ℓ₁ model, as a share of those that are not white in every image: " + ", ".join(
        f"{versus(pair)} {100 * share:.0f}%" for pair, share in shares.items()
    )
    many, some = (sum(share > cut for share in shares.values()) for cut in (HALF, QUARTER))
    usual = len(shares) / 2
    verdict = "agrees" if many > usual else "open" if some > usual else "differs"
    reason = (
        "the paper does not say what counts as sparse. Judged by two limits of our own: more than half of these pixels "
        f"is not sparse ({many} of {len(shares)} pairs), at most a quarter is ({len(shares) - some})"
    )
    paper = "“one cannot characterize the sparsity of the obtained solution (usually the solution is not sparse)”"
    claim = Claim("Solutions with the ℓ₁ norm are not sparse", paper, ours, verdict, reason)
    return _unless_few(claim, len(shares))


def _randomness(summary: Summary) -> Claim | None:
    """The iterates of SAGA beside the solution of the same problem."""
    ratios: dict[int, list[float]] = {}
    for pair, looks in summary["looks"].items():
        best = solved(summary, pair).get(PENALTY)
        for look in looks if best else ():
            ratios.setdefault(look["passes"], []).append(look["nonzeros"] / best)
    if not ratios:
        return None
    means = {passes: float(np.mean(found)) for passes, found in sorted(ratios.items())}
    others = _other_penalties(summary)
    ours = f"non-zeros of SAGA, divided by those of the solution (mean over pairs), at λ = {PENALTY:g}: " + ", ".join(
        f"{mean:.2f} after {passes} pass{'es' if passes > 1 else ''}" for passes, mean in means.items()
    )
    if others:
        ours += f"; after {summary['passes']} passes: " + ", ".join(
            f"{mean:.2f} at λ = {penalty:g}" for penalty, mean in others.items()
        )
    paper = "“becomes much less effective in terms of sparsification, naturally owing to the randomness”"
    name = "Stochastic steps spoil the sparsity of ℓ₁"
    if FAIR not in means:
        return Claim(name, paper, ours, "open", f"SAGA was not given the {FAIR} passes that HT-SVRG makes")
    spoilt = [mean >= MORE for mean in (means[FAIR], *others.values())]
    reason = (
        f"judged by {MORE:g} times as many non-zeros after the longest run at each λ, which {sum(spoilt)} of "
        f"{len(spoilt)} λ have. Only λ = {PENALTY:g} was given {FAIR} passes, which is what HT-SVRG costs by the "
        "paper's count. The methods that the paper cites for this (truncated gradients, FOBOS, dual averaging) were "
        "not run"
    )
    return Claim(name, paper, ours, "agrees" if all(spoilt) else "open" if any(spoilt) else "differs", reason)


def _other_penalties(summary: Summary) -> dict[float, float]:
    """The non-zeros of SAGA divided by those of the solution, for the other λ; means over pairs."""
    ratios: dict[float, list[float]] = {}
    for pair, by_method in summary["models"].items():
        for model in by_method.get("saga", ()):
            best = solved(summary, pair).get(model["penalty"])
            if model["penalty"] != PENALTY and best:
                ratios.setdefault(model["penalty"], []).append(model["nonzeros"] / best)
    return {penalty: float(np.mean(ratios[penalty])) for penalty in sorted(ratios, reverse=True)}


def _unless_few(claim: Claim, pairs: int) -> Claim:
    """The claim; it is left open if there are few pairs, since their result may be chance."""
    if pairs >= ENOUGH:
        return claim
    return replace(claim, verdict="open", reason=f"only {pairs} of the 5 pairs were run. {claim.reason}".strip())


def _fewer(models: dict[str, Models]) -> Claim | None:
    """How many pixels each method needs to be almost as accurate as the best ℓ₁ model."""
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
    name, paper = "Fewer features for the same accuracy", "not in the paper: what hard thresholding saves"
    if np.isinf(medians["auto"]) or np.isinf(medians["optimum"]):
        return Claim(name, paper, ours, "open", "no k or λ that was tried reaches it")
    share = medians["auto"] / medians["optimum"]
    reason = f"KSparseClassifier needs {100 * share:.0f}% of the pixels of ℓ₁ solved to the end"
    if np.isfinite(medians.get("saga", np.inf)):
        reason += f", {100 * medians['auto'] / medians['saga']:.0f}% of SAGA's"
    if np.isfinite(medians.get("ht-svrg", np.inf)):
        reason += f"; the paper's HT-SVRG needs {medians['ht-svrg'] / medians['optimum']:.2g} times those of ℓ₁ solved"
    return _unless_few(Claim(name, paper, ours, "beyond", reason), len(models))
