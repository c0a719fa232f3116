"""Beyond the paper: the ℓ₁ norm instead of hard thresholding, on the same digits."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..sensing.phase import stream
from . import classification
from ._digits import MNIST, PAIRS, SMALL, Pair, load_pair, of_one_set, title_of
from ._lab import Claim, Item, Summary, significant
from .classification import DASHES, MARKS, end_at_hundred

NUMBER = "l1"
TITLE = "The ℓ₁ norm by stochastic steps, on the same digits"
TEXT = (
    "The paper's motive for a bound on non-zeros; not a figure of it: “We emphasize that the formulation … "
    "is in stark contrast to the ℓ₁-regularized programs considered by previous stochastic solvers such as Prox-SVRG "
    "and SAGA. … it always produces sparse solutions, whereas performance guarantees for convex programs are fruitful "
    "but one cannot characterize the sparsity of the obtained solution (usually the solution is not sparse). When we "
    "appeal to stochastic algorithms to solve the convex programs, the ℓ₁-norm formulation becomes much less effective "
    "in terms of sparsification, naturally owing to the randomness.”"
)
NEEDS = (classification.NUMBER,)  # HT-SVRG's models are those of Figure 8
KEY = ("digits", "pair", "method", "k", "penalty", "passes")
KEEP = ()

# "saga": scikit-learn's SAGA, for so many passes; "optimum": the same program by coordinate descent (LIBLINEAR), to its
# end; "auto": KSparseClassifier as it comes.  Of k, penalty and passes each has what it needs, and 0 for the rest.
METHODS = ("saga", "optimum", "auto")
FAIR = 7 * classification.STAGES  # passes: by the paper's count, 2m/n + 1 = 7 a stage, what HT-SVRG has in all
PENALTY = 1e-3  # λ of mean loss + λ‖x‖₁, where SAGA is looked at pass by pass
SWEEPS = 1000  # of LIBLINEAR, far more than it needs


class Config(NamedTuple):
    pairs: Mapping[str, tuple[str, ...]]
    penalties: tuple[float, ...]  # of the optimum
    saga: tuple[float, ...]  # of SAGA: it is slow
    passes: int  # of SAGA on the path
    looks: tuple[int, ...]  # passes after which SAGA is looked at, at PENALTY
    left_out: tuple[int, ...]  # of Figure 8's k


PATH = (0.1, 0.03, 0.01, 0.003, 0.001, 3e-4, 1e-4, 3e-5, 1e-5)
SAGA_PATH = (0.01, 0.003, 0.001, 3e-4, 1e-4)
CONFIG = {
    "quick": Config(
        {MNIST: ("1v7", "4v5"), SMALL: PAIRS}, PATH[::2], (0.01, 0.001), 10, (1, 3, 10), (20, 70, 150, 784, 5, 24, 64)
    ),
    "standard": Config(classification.ALL_PAIRS, PATH, SAGA_PATH, 20, (1, 3, 10, 20, FAIR), (784, 64)),
    "full": Config(classification.ALL_PAIRS, PATH, SAGA_PATH, 20, (1, 3, 10, 20, 50, FAIR, 3 * FAIR), (784, 64)),
}


def items(config: Config, digits: str = MNIST) -> list[Item]:
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
    number = int(stream(seed, "l1", digits, pair).integers(2**31 - 1))  # passes of one path are those of a longer one
    fit = _fit_auto(data, k, number) if method == "auto" else _fit_l1(data, method, penalty, passes, number)
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


def _fit_auto(data: Pair, k: int, number: int) -> Any:
    from ..estimators import KSparseClassifier

    with warnings.catch_warnings():
        _silence(warnings)
        return KSparseClassifier(k, random_state=number).fit(data.A, data.y)


def _fit_l1(data: Pair, method: str, penalty: float, passes: int, number: int) -> Any:
    """min mean loss + penalty·‖x‖₁, without a constant, as in the paper's models."""
    from sklearn.linear_model import LogisticRegression

    new = LogisticRegression().penalty == "deprecated"  # from version 1.8 on the norm is named by l1_ratio alone
    norm: dict[str, Any] = {"l1_ratio": 1.0} if new else {"penalty": "l1"}
    solver, limit = ("saga", passes) if method == "saga" else ("liblinear", SWEEPS)
    C = 1.0 / (penalty * len(data.y))
    model = LogisticRegression(C=C, solver=solver, max_iter=limit, fit_intercept=False, random_state=number, **norm)
    with warnings.catch_warnings():
        _silence(warnings)
        return model.fit(data.A, data.y)


def _silence(module: Any) -> None:
    """That a fit did not converge is in its record."""
    from sklearn.exceptions import ConvergenceWarning

    module.simplefilter("ignore", ConvergenceWarning)


# --- what it amounts to ----------------------------------------------------------------------------------------------
def summarise(records: Iterable[Item]) -> Summary:
    """Models by pair and method, the sparsest first, and SAGA's non-zeros pass by pass."""
    records = of_one_set(records)
    longest = max((r["passes"] for r in records if r["method"] == "saga" and r["penalty"] != PENALTY), default=0)
    fields = ("k", "penalty", "nonzeros", "accuracy", "loss", "converged")
    models: dict[str, dict[str, list[Item]]] = {}
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


def optimum_at(summary: Summary, pair: str) -> int | None:
    """The non-zeros of the program's solution at PENALTY."""
    solved = summary["models"].get(pair, {}).get("optimum", ())
    return next((model["nonzeros"] for model in solved if model["penalty"] == PENALTY), None)


def all_models(summaries: dict[str, Summary], pair: str) -> dict[str, list[Item]]:
    """Models of a pair by method, those of Figure 8 (HT-SVRG) among them, if they are of the same digits."""
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
    """Accuracy above, training loss beneath, both against the number of non-zeros."""
    from matplotlib.ticker import LogLocator, NullLocator

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
        ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        ax.xaxis.set_major_formatter("{x:g}")
        ax.xaxis.set_minor_locator(NullLocator())
    above.set_ylabel("test accuracy, %")
    end_at_hundred(above)
    above.set_title(title_of(pair, summary["digits"]), fontsize=10)
    beneath.set(xlabel="non-zeros", ylabel="training loss", yscale="log")
    beneath.yaxis.set_major_formatter("{x:g}")
    above.legend(loc="upper center", bbox_to_anchor=(0.45, -0.12), ncols=2, fontsize=8, frameon=False, handlelength=3)
    return above


def _plot_passes(summary: Summary) -> Any:
    """How many non-zeros SAGA's iterates have, beside the solution they go to."""
    from .._style import BLACK, CYCLE, new_axes

    ax = new_axes(None, (4.2, 3.5))
    for pair, looks in summary["looks"].items():
        solved = optimum_at(summary, pair)
        if not solved:
            continue
        which = PAIRS.index(pair)
        style = {"color": CYCLE[which], "linestyle": DASHES[which], "marker": MARKS[which]}
        ratios = [look["nonzeros"] / solved for look in looks]
        ax.plot([look["passes"] for look in looks], ratios, label=pair.replace("v", " vs "), markersize=4, **style)
    ax.axhline(1.0, color=BLACK, linewidth=1, linestyle=":")
    passes = sorted({look["passes"] for looks in summary["looks"].values() for look in looks})
    ax.set(xscale="log", xlabel="passes of SAGA", ylabel="non-zeros ÷ the solution's", ylim=(0, None))
    ax.set_xticks(passes, [str(count) for count in passes])
    ax.minorticks_off()
    small = "" if summary["digits"] == MNIST else ", 8 × 8 digits"
    ax.set_title(f"mean loss + {PENALTY:g} ‖x‖₁{small}", fontsize=10)
    ax.legend(loc="upper center", bbox_to_anchor=(0.45, -0.2), ncols=3, fontsize=8, frameon=False, handlelength=3)
    return ax


def claims(summaries: dict[str, Summary]) -> list[Claim]:
    from ._l1_claims import compare

    return compare(summaries) if summaries.get(NUMBER, {}).get("models") else []
