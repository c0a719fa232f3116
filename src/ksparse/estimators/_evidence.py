"""What is certain about a fit, and what each of its features is worth."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._json import jsonable
from .._text import data_frame, html_lines
from ..pass_kernels import look_at_rows
from ..problem import Problem
from ..result import Result

BOTTOM = 1e-6  # of the objective: less than this is no fall worth mentioning


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
        By how much the objective would rise without the feature that matters least.
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
                f"  objective {self.objective:.6g}; without its least useful feature about {self.least_worth:.2g} more",
                f"  curvature between {self.alpha:.3g} and {self.L:.3g} on these features (ratio {condition:.3g})",
                "  That no other set of so many features is better, only trying all would prove.",
                "  What Theorem 10 proves of HT-SVRG on these data: ksparse.theory.certificate(X, y, model)",
            ]
        )


class SecondOrder(NamedTuple):
    """What the quadratic at a point says of one output."""

    worth: NDArray[np.float64]  # by how much the objective would rise without each column, the others refitted
    fall: float  # by how much it could still fall
    alpha: float
    L: float


def second_order(
    block: NDArray[np.float64], slope: Any, bend: Any, x: NDArray[np.float64], l2: float, intercept: bool
) -> SecondOrder:
    """From the slopes and curvatures of the rows at a fit on a few columns."""
    if x.size == 0:
        return SecondOrder(np.zeros(0), 0.0, 0.0, 0.0)
    n = block.shape[0]
    gradient = slope @ block / n + l2 * x
    if intercept and bend.sum() > 0:
        centre = bend @ block / bend.sum()
        block, gradient = block - centre, gradient - slope.mean() * centre
    hessian = (block * bend[:, np.newaxis]).T @ block / n + l2 * np.eye(x.size)
    inverse, curvature = np.linalg.pinv(hessian, hermitian=True), np.linalg.eigvalsh(hessian)
    worth = 0.5 * x**2 / np.maximum(inverse.diagonal(), 1e-300)
    fall = max(0.0, 0.5 * float(gradient @ inverse @ gradient))
    return SecondOrder(worth, fall, max(0.0, float(curvature[0])), float(curvature[-1]))


def certified(result: Result, exact: bool, parts: list[SecondOrder]) -> FitCertificate:
    """The certificate of a fit with these outputs."""
    fall = sum(part.fall for part in parts)
    done = result.converged and fall <= BOTTOM * abs(result.objective)
    verdict = "unfinished" if not done else "swap-optimal" if result.swap_optimal else "stationary"
    worth = np.sum([part.worth for part in parts], axis=0)
    return FitCertificate(
        verdict, exact, fall, min(part.alpha for part in parts), max(part.L for part in parts),
        float(worth.min()) if worth.size else 0.0, result.objective,
    )  # fmt: skip


def examine(
    block: NDArray[np.float64], problem: Problem, x: NDArray[np.float64], constant: float, result: Result
) -> tuple[NDArray[np.float64], FitCertificate]:
    """What each column of a block is worth in a fit of one output, and what is certain of the fit."""
    z, slope, bend = block @ x + constant + problem.offset, np.empty(problem.n), np.empty(problem.n)
    look_at_rows(problem.loss, z, problem.y, problem.weight, slope, bend)
    found = second_order(block, slope, bend, x, problem.l2, problem.intercept)
    return found.worth, certified(result, bool(getattr(problem.loss, "quadratic", False)), [found])
