"""What is certain about a fit, and what each of its features is worth."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._json import jsonable
from .._text import data_frame, html_lines
from ..result import Result
from ._worth import MOST, Array, Refits

BOTTOM = 1e-6  # of the objective: less than this is no fall worth mentioning
SINGULAR = 1e-12  # of a column's curvature: what rounding leaves where columns are combinations of others


@dataclass(frozen=True)
class FitCertificate:
    """What is certain about a fit.  ``print`` says it in words.

    Attributes
    ----------
    verdict : str
        "swap-optimal": no exchange of a chosen feature for another lowers the objective, and the coefficients are the
        best for their features.  "stationary": the coefficients are the best for these features; other features may do
        better.  "unfinished": not even that.
    exact : bool
        Whether exchanges were judged by the objective itself (squared loss); else its quadratic model at the fit said
        which ones to try.
    fall : float
        By how much the objective could still fall on the chosen features, to second order.
    alpha, L : float
        The least and the largest curvature on the chosen features, of variance one: where L/alpha is large some of them
        are nearly combinations of others, and their coefficients say little.
    least_worth : float
        By how much the objective would rise without the chosen feature (or group) that matters least, the others
        refitted.
    objective : float
    """

    verdict: str
    exact: bool
    fall: float
    alpha: float
    L: float
    least_worth: float
    objective: float

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and strings, for JSON."""
        return jsonable(asdict(self))

    def to_frame(self) -> Any:
        """One row as a pandas.DataFrame: rows of several fits can be put beneath each other."""
        return data_frame({name: [value] for name, value in asdict(self).items()})

    def _repr_html_(self) -> str:
        return html_lines(str(self).splitlines(), bold=True)

    def __str__(self) -> str:
        where = "" if self.exact else " that its quadratic model promises"
        said = {
            "swap-optimal": f"no exchange of a chosen feature for another{where} lowers the objective, "
            "and the coefficients are the best for their features",
            "stationary": "the coefficients are the best for these features; other features may do better",
            "unfinished": f"the objective can still fall by about {self.fall:.2g} on these features",
        }[self.verdict]
        condition = self.L / self.alpha if self.alpha > 0 else np.inf
        return "\n".join(
            [
                f"{self.verdict}: {said}",
                f"  objective {self.objective:.6g}; without its least useful feature {self.least_worth:.2g} more",
                f"  curvature between {self.alpha:.3g} and {self.L:.3g} on these features (ratio {condition:.3g})",
                "  That no other set of so many features is better, only trying all would prove.",
                "  What Theorem 10 proves of HT-SVRG on these data: ksparse.theory.certificate(X, y, model)",
            ]
        )


class SecondOrder(NamedTuple):
    """What the quadratic model at a point says of one output."""

    best: Array  # the coefficients where it is least, for columns of curvature one
    inverse: Array  # of the Hessian, for such columns
    fall: float  # by how much it could still fall
    alpha: float
    L: float

    def rises(self, groups: Sequence[NDArray[np.int64]]) -> Array:
        """By how much it rises without each group of columns, the others refitted."""
        at = [(self.best[G], self.inverse[np.ix_(G, G)]) for G in groups]
        return np.array([0.5 * float(x @ np.linalg.solve(inverse, x)) for x, inverse in at]) - self.fall


def second_order(block: Array, slope: Array, bend: Array, x: Array, l2: float, intercept: bool) -> SecondOrder:
    """From the derivatives and curvatures of the rows at a fit on a few columns."""
    if x.size == 0:
        return SecondOrder(x, np.empty((0, 0)), 0.0, 0.0, 0.0)
    n = len(block)
    gradient = slope @ block / n + l2 * x
    if intercept and bend.sum() > 0:
        centre = bend @ block / bend.sum()
        block, gradient = block - centre, gradient - slope.mean() * centre
    hessian = (block * bend[:, np.newaxis]).T @ block / n + l2 * np.eye(x.size)
    curvature = np.linalg.eigvalsh(hessian)
    # not the pseudo-inverse: of two equal columns it would say that both are needed
    root = np.sqrt(np.where(hessian.diagonal() > 0.0, hessian.diagonal(), 1.0))
    inverse = np.linalg.inv(hessian / root / root[:, np.newaxis] + SINGULAR * np.eye(x.size))
    move = inverse @ (gradient / root)
    fall = max(0.0, 0.5 * float(gradient / root @ move))
    return SecondOrder(
        root * x - move,
        np.asarray(inverse, dtype=np.float64),
        fall,
        max(0.0, float(curvature[0])),
        float(curvature[-1]),
    )


class Examined(NamedTuple):
    """What is known of a fit on a few columns."""

    worth: (
        Array  # (outputs, columns): by how much the objective rises without a coefficient; an estimate for the softmax
    )
    feature_worth: Array  # (columns,): without the column's whole group, in all outputs
    certificate: FitCertificate | None
    rows: int  # on which refits were made


def quadratic(
    rows: Any, block: Array, offset: Any, x: Array, constant: Array, l2: float, intercept: bool
) -> tuple[Array, list[SecondOrder]]:
    """The derivatives of the rows at a fit, (outputs, n), and the quadratic model of every output."""
    _, slope, bend = rows.look((x @ block.T + constant[:, np.newaxis] + offset)[np.newaxis])
    each = zip(slope[0], rows.own(bend)[0], x, strict=True)
    return slope[0], [second_order(block, *own, l2, intercept) for own in each]


def examine(
    rows: Any, block: Array, offset: Any, x: Array, constant: Array, l2: float, intercept: bool, positive: bool,
    groups: Sequence[NDArray[np.int64]], chosen: NDArray[np.bool_], result: Result,
) -> Examined:  # fmt: skip
    """What each group of columns of a block is worth in a fit x, (outputs, columns), and what is certain of the fit.

    `offset` is zero or has shape (outputs, n); `chosen` says which groups were not always kept.
    """
    n, exact = len(block), rows.quadratic
    if not (np.isfinite(x).all() and np.isfinite(constant).all() and math.isfinite(result.objective)):
        certificate = FitCertificate("unfinished", exact, math.inf, 0.0, 0.0, 0.0, result.objective)
        return Examined(np.zeros_like(x), np.zeros(x.shape[1]), certificate, n)
    if intercept:
        centre = rows.weight @ block / n
        block, constant = block - centre, constant + x @ centre
    slope, parts = quadratic(rows, block, offset, x, constant, l2, intercept)
    rises = _sum_of_rises(parts, groups)
    if groups and (positive or not exact):
        refits = Refits(rows, block, offset, l2, intercept, positive)
        if n > MOST:  # the quadratic model of all rows, and what refits on a sample say that it lacks
            refits = refits.sample(slope, MOST)
            n, best = len(refits.block), refits.best(x, constant)
            there = quadratic(refits.rows, refits.block, refits.offset, *best, l2, intercept)[1]
            rises = rises + refits.rises(*best, groups) - _sum_of_rises(there, groups)
        else:
            rises = refits.rises(x, constant, groups)
    rises = np.maximum(rises, 0.0)
    feature_worth = np.zeros(x.shape[1])
    for group, rise in zip(groups, rises, strict=True):
        feature_worth[group] = rise
    each = list(np.arange(x.shape[1])[:, np.newaxis])
    worth = feature_worth[np.newaxis] if len(x) == 1 else np.maximum([part.rises(each) for part in parts], 0.0)
    return Examined(worth, feature_worth, _certified(result, exact, parts, rises[chosen]), n)


def _sum_of_rises(parts: list[SecondOrder], groups: Sequence[NDArray[np.int64]]) -> Array:
    """By how much the quadratic models of all outputs rise without each group."""
    return np.sum([part.rises(groups) for part in parts], axis=0)


def _certified(result: Result, exact: bool, parts: list[SecondOrder], rises: Array) -> FitCertificate:
    """The certificate of a fit with these outputs."""
    fall = sum(part.fall for part in parts)
    done = result.converged and fall <= BOTTOM * abs(result.objective)
    verdict = "unfinished" if not done else "swap-optimal" if result.swap_optimal else "stationary"
    return FitCertificate(
        verdict, exact, fall, min(part.alpha for part in parts), max(part.L for part in parts),
        float(rises.min()) if rises.size else 0.0, result.objective,
    )  # fmt: skip
