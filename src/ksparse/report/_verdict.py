"""How the search ended and what is certain of its outcome, in plain words."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from .._page import visible
from ._fit import Fit
from ._words import counted, number

ENDS = {
    "converged": "it converged",
    "stage limit": "it reached its limit of stages before it converged",
    "diverged": "it diverged",
    "stalled": "it stalled before it converged",
    "stopped": "it was stopped by its callback",
    "time limit": "it ran out of time before it converged",
    "interrupted": "it was interrupted",
}
NEAR, NEARER = 100.0, 1000.0  # of curvatures: above, features begin to stand in for each other, and then do


class End(NamedTuple):
    """How the search for one output ended."""

    words: str
    remedy: str


class Proof(NamedTuple):
    """A certificate, in words; `holds` is what every one of its verdict says, `numbers` are its own."""

    output: str
    verdict: str
    holds: list[str]
    numbers: list[str]


def ends(fit: Fit) -> tuple[str, list[End]]:
    """How the search ended, and those ends that need a remedy; nothing if it is not known."""
    known = fit.each("status_")
    if not known:
        return "", []
    names = fit.outputs if len(known) > 1 else [""]
    bad = [_end(name, status) for name, status in zip(names, known, strict=True) if status != "converged"]
    if not bad:
        return "The search converged", []
    if len(known) == 1:
        return f"The search did not finish: {ENDS[str(known[0])]}", bad
    return f"The search did not finish for {len(bad)} of {counted(len(known), 'output')}", bad


def _end(output: str, status: Any) -> End:
    words = (f"{output}: " if output else "") + ENDS[str(status)]
    why = f" ({visible(status.message)})" if status.message else ""
    return End(words + why, visible(status.remedy) if status.remedy else "")


def proofs(fit: Fit) -> list[Proof]:
    """What is certain of every output; nothing for a model that was read from a file."""
    known = fit.each("certificate_")
    names = fit.outputs if len(known) > 1 else [""] * len(known)
    return [Proof(name, c.verdict, _holds(c), _numbers(c)) for name, c in zip(names, known, strict=True)]


def summary(fit: Fit) -> str:
    """The verdicts of all outputs in a few words."""
    verdicts = {certificate.verdict for certificate in fit.each("certificate_")}
    if not verdicts:
        return ""
    for worst, words in (
        ("unfinished", "not at its best yet"),
        ("stationary", "best for its features"),
        ("swap-optimal", "no exchange of a feature improves it"),
    ):
        if worst in verdicts:
            return words
    return ""


def what_is_not_proven(fit: Fit) -> str:
    """That other sets of features may be better, and how many there are."""
    if hasattr(fit.model, "groups_"):
        return f"That no other choice of {len(fit.model.groups_)} groups is better, only trying all would prove."
    k, columns = getattr(fit.model, "k_", fit.chosen), fit.columns
    if not 0 < k < columns:
        return ""
    return f"That no other set of {k} features is better, only trying all {_many(columns, k)} of them would prove."


def _many(d: int, k: int) -> str:
    """
    >>> _many(10, 3), _many(784, 40)
    ('120', 'about 10⁶⁷')
    """
    sets = math.comb(d, k) if k * math.log(d) < 700 else 0
    if 0 < sets < 10**9:
        return f"{sets:,}"
    power = (math.lgamma(d + 1) - math.lgamma(k + 1) - math.lgamma(d - k + 1)) / math.log(10)
    return "about " + number(10.0 ** round(power)).split(" × ")[-1] if power < 300 else "more than 10³⁰⁰"


def _holds(certificate: Any) -> list[str]:
    """What a certificate says, a sentence each."""
    said = {
        "swap-optimal": [
            "No exchange of a chosen feature for another lowers the objective"
            + (": all were judged." if certificate.exact else ": those that its quadratic model promised were tried."),
            "The coefficients are the best for these features.",
        ],
        "stationary": [
            "The coefficients are the best for these features.",
            "Whether other features would do better was not looked for to the end.",
        ],
        "unfinished": [
            f"The objective can still fall by about {number(certificate.fall, 2)} on these features: the coefficients "
            "are not yet the best ones."
        ],
    }
    return said[certificate.verdict]


def _numbers(certificate: Any) -> list[str]:
    """How the features stand to each other, and what the least of them is worth."""
    if certificate.L <= 0:
        return []
    ratio = certificate.L / certificate.alpha if certificate.alpha > 0 else math.inf
    if ratio < NEAR:
        told = "The features are well told apart: each coefficient means what it says"
    elif ratio < NEARER:
        told = "Some features partly stand in for each other: read their coefficients together"
    else:
        told = "Some features are nearly combinations of others: their single coefficients say little"
    return [
        f"{told} (curvatures differ by {number(ratio, 2)}).",
        f"Without its least useful feature the objective, {number(certificate.objective)}, would rise by "
        f"{number(certificate.least_worth, 2)}.",
    ]
