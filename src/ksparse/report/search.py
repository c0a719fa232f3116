"""How k was chosen, how the search ended, and what is certain about its result."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from ..estimators.certificate import FitCertificate
from ..estimators.cv import KSparseClassifierCV, KSparseRegressorCV
from ..estimators.path import Path
from ..estimators.summary import NAMED
from . import figures
from .markup import Sketch
from .model import ReportedModel
from .words import counted, number, visible

LINES = 60  # most features in the picture of the path
WIDE = 100_000  # with more columns, only the chosen ones are drawn
DEPENDENT, SINGULAR = 100.0, 1000.0  # ratios of curvatures above which features partly, or nearly, replace each other
ENDS = {
    "converged": "it converged",
    "stage limit": "it reached its limit of stages before it converged",
    "diverged": "it diverged",
    "stalled": "it stalled before it converged",
    "stopped": "it was stopped by its callback",
    "time limit": "it ran out of time before it converged",
    "interrupted": "it was interrupted",
}


class Curves(NamedTuple):
    """Pictures of one kind, a sentence about them, and their numbers as a table."""

    sentence: str
    sketches: list[Sketch]
    head: list[str]
    rows: list[list[str]]


# --- how k was chosen ------------------------------------------------------------------------------------------------
def path_curves(fit: ReportedModel, path: Any) -> Curves:
    """Loss, information criteria and coefficients against k."""
    if not isinstance(path, Path):
        raise ValueError(f"path must be what k_path gives, got {type(path).__name__}")
    k = int(path.best().k_)
    about = "which accounts for the number of possible feature sets"
    sentence = f"The extended BIC, {about}, is smallest at k\u00a0=\u00a0{k}.{_other_k(fit, k)}"
    sketches = [
        Sketch(
            lambda: figures.criteria(path),
            "Information criteria against k",
            "Information criteria; lower is better. Dotted: the smallest extended BIC.",
        ),
        Sketch(
            lambda: figures.training_loss(path),
            "Training loss against k",
            "Loss on the training rows. It falls with k even if the added features are useless.",
        ),
        _effects(fit, path),
    ]
    columns = (path.k, path.loss, path.aic, path.bic, path.ebic)
    rows = [[f"{k}", *(number(value, 5) for value in values)] for k, *values in zip(*columns, strict=True)]
    return Curves(sentence, sketches, ["k", "Training loss", "AIC", "BIC", "Extended BIC"], rows)


def cv_curves(fit: ReportedModel, cv: Any) -> Curves:
    """The cross-validated score against k."""
    if not isinstance(cv, KSparseRegressorCV | KSparseClassifierCV) or not hasattr(cv, "scores_"):
        raise ValueError(f"cv must be a fitted KSparseRegressorCV or KSparseClassifierCV, got {cv!r}")
    folds = counted(len(cv.scores_), "fold")
    if cv.one_standard_error and cv.best_k_ != cv.k_:
        rule = f"the smallest k whose score is within one standard error of the best (k\u00a0=\u00a0{cv.best_k_})"
    else:
        rule = "which has the best score"
    sentence = f"Cross-validation with {folds} chose k\u00a0=\u00a0{cv.k_}, {rule}."
    if cv.one_standard_error and cv.best_k_ == cv.k_:
        sentence += " No smaller k is within one standard error of it."
    score = "minus the held-out loss"
    if cv.scoring is not None:
        score = visible(cv.scoring if isinstance(cv.scoring, str) else getattr(cv.scoring, "__name__", "own scorer"))
    caption = f"Score ({score}) on the rows left out: mean over {folds} ± one standard error. Dotted: the chosen k."
    rows = [
        [f"{k}", number(mean, 5), number(error, 2)]
        for k, mean, error in zip(cv.ks_, cv.mean_score_, cv.standard_error_, strict=True)
    ]
    sketch = Sketch(lambda: figures.cv_scores(cv), "Cross-validated score against k", caption)
    return Curves(sentence + _other_k(fit, cv.k_), [sketch], ["k", "Mean score", "Standard error"], rows)


def _other_k(fit: ReportedModel, chosen: int) -> str:
    """A sentence for models whose k is not the one chosen."""
    own = getattr(fit.model, "k_", chosen)
    return f" This model has k\u00a0=\u00a0{own}." if own != chosen else ""


def _effects(fit: ReportedModel, path: Path) -> Sketch:
    """Every coefficient against k; for several outputs or many features, the size of each feature's effects."""
    used, label = np.unique(np.concatenate(path.supports)), "Effects of the features against k"
    what, dotted = "effect of one standard deviation of each feature", "Dotted: the smallest extended BIC."
    if len(fit.outputs) == 1 and used.size * len(path.k) <= figures.POINTS and fit.n_columns <= WIDE:
        return Sketch(lambda: figures.coefficients(path), label, f"The {what}, against k. {dotted}")
    sizes = np.array([np.linalg.norm(np.atleast_2d(m.coef_)[:, used] * m.scale_[used], axis=0) for m in path.models])
    order = np.argsort(-sizes.max(axis=0), kind="stable")[:LINES]
    over = " on all outputs (root of the sum of squares)" if len(fit.outputs) > 1 else ""
    few = f" The {LINES} largest of {used.size} are shown." if used.size > LINES else ""
    names = [fit.feature(j) for j in used[order[:NAMED]]]
    caption = f"The size of the {what}{over}, against k.{few} {dotted}"
    return Sketch(lambda: figures.effect_sizes(path, sizes[:, order], names), label, caption)


# --- how the search went ---------------------------------------------------------------------------------------------
def convergence_curves(fit: ReportedModel) -> Curves | None:
    """The objective against passes over the data; None for a model that was read from a file."""
    histories = [history for history in fit.each("history_") if np.isfinite(history.objective).any()]
    if not histories or not hasattr(fit.model, "n_rows_"):
        return None
    passes = max(float(history.gradients[-1]) for history in histories) / fit.model.n_rows_
    seconds = sum(float(history.seconds[-1]) for history in histories)
    sentence = f"after {number(passes, 3)} passes over the data and {number(seconds, 2)} seconds"
    sketch = Sketch(
        lambda: figures.convergence(fit.model, fit.outputs),
        f"Objective against passes{' for each output' if len(histories) > 1 else ''}",
        "The objective (mean loss plus ridge) after every stage of the search.",
    )
    return Curves(sentence, [sketch], [], [])


def search_end(fit: ReportedModel) -> tuple[str, list[str]]:
    """How the search ended, and what went wrong with its remedy; nothing for a model that was read from a file."""
    statuses = fit.each("status_")
    if not statuses:
        return "", []
    names = [f"{name}: " for name in fit.outputs] if len(statuses) > 1 else [""]
    troubles = []
    for name, status in zip(names, statuses, strict=True):
        if status != "converged":
            why = f" ({visible(status.message)})" if status.message else ""
            remedy = f". Remedy: {visible(status.remedy)}" if status.remedy else ""
            troubles.append(f"{name}{ENDS[str(status)]}{why}{remedy}")
    if not troubles:
        return "The search converged", []
    if len(statuses) == 1:
        return f"The search did not finish: {ENDS[str(statuses[0])]}", troubles
    return f"The search did not finish for {len(troubles)} of {counted(len(statuses), 'output')}", troubles


# --- what is certain -------------------------------------------------------------------------------------------------
class Proof(NamedTuple):
    """A certificate in words: sentences that follow from its verdict, and sentences with its own numbers."""

    output: str
    verdict: str
    holds: list[str]
    numbers: list[str]


def proofs(fit: ReportedModel) -> list[Proof]:
    """What is certain about every output; nothing for a model that was read from a file."""
    known = fit.each("certificate_")
    names = fit.outputs if len(known) > 1 else [""] * len(known)
    return [Proof(name, c.verdict, _holds(c), _numbers(c)) for name, c in zip(names, known, strict=True)]


def verdict_words(fit: ReportedModel) -> str:
    """The worst verdict over the outputs, in a few words."""
    verdicts = {certificate.verdict for certificate in fit.each("certificate_")}
    words = {
        "unfinished": "coefficients not optimal yet",
        "stationary": "coefficients optimal for these features",
        "swap-optimal": "no swap of a feature improves it",
    }
    return next((text for verdict, text in words.items() if verdict in verdicts), "")


def what_is_not_proven(fit: ReportedModel) -> str:
    """A sentence that other sets of features may be better, with their number."""
    if fit.has_groups:
        return f"Another choice of {len(fit.model.groups_)} groups may be better. Only trying all would rule that out."
    k = getattr(fit.model, "k_", fit.n_chosen)
    if not 0 < k < fit.n_columns:
        return ""
    sets = _n_sets(fit.n_columns, k)
    return f"Another set of {k} features may be better. Only trying all {sets} sets would rule that out."


def _n_sets(d: int, k: int) -> str:
    """The number of sets of k out of d features.

    >>> _n_sets(10, 3), _n_sets(784, 40)
    ('120', 'about 10⁶⁷')
    """
    sets = math.comb(d, k) if k * math.log(d) < 700 else 0
    if 0 < sets < 10**9:
        return f"{sets:,}"
    power = (math.lgamma(d + 1) - math.lgamma(k + 1) - math.lgamma(d - k + 1)) / math.log(10)
    return "about " + number(10.0 ** round(power)).split(" × ")[-1] if power < 300 else "more than 10³⁰⁰"


def _holds(certificate: FitCertificate) -> list[str]:
    """What follows from the verdict of a certificate."""
    if certificate.verdict == "unfinished":
        fall = number(certificate.fall, 2)
        return [
            f"The coefficients are not optimal yet: with these features the objective can still fall by about {fall}."
        ]
    optimal = "The coefficients are optimal for these features."
    if certificate.verdict == "stationary":
        return [optimal, "The search for better features was not finished."]
    tried = "All swaps were checked." if certificate.exact else "The swaps that a quadratic model favours were tried."
    return [f"No swap of a chosen feature for another lowers the objective. {tried}", optimal]


def _numbers(certificate: FitCertificate) -> list[str]:
    """How strongly the features depend on each other, and what the least useful one is worth."""
    if certificate.L <= 0:
        return []
    ratio = certificate.L / certificate.alpha if certificate.alpha > 0 else math.inf
    if ratio < DEPENDENT:
        words = "The features are clearly distinct, so each coefficient can be read by itself"
    elif ratio < SINGULAR:
        words = "Some features partly replace each other, so their coefficients must be read together"
    else:
        words = "Some features are nearly combinations of others, so single coefficients say little"
    return [
        f"{words} (ratio of the curvatures: {number(ratio, 2)}).",
        f"The objective is {number(certificate.objective)}. Without the least useful feature it would rise by "
        f"{number(certificate.least_worth, 2)}.",
    ]
