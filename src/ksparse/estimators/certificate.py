"""What is certain about a fit (`FitCertificate`), what each of its features is worth (`examine`), and which problem it
solved (`minimized`).

A fit is examined when somebody asks: until then the model holds copies of what that needs (`SupportData`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from .. import losses
from .._text import data_frame, html_lines, jsonable
from .._threads import quiet_blas
from .._validate import check_vector
from ..design import Design, Source, as_design, standardize
from ..design.products import weighted_gram
from ..result import Result
from .tables import check_weights, chosen_together
from .worth import MAX_ROWS, Array, Groups, LeaveOutRefits, ManyTargets, Mask, OneOutput, Softmax

SAME_SCALE = 1e-4  # relative tolerance: float32 columns may have been added up in another order
CONVERGED = 1e-6  # relative to the objective: a smaller predicted decrease counts as none
SINGULAR = 1e-12  # added to the scaled Hessian: what rounding leaves where columns are combinations of others
HELD = 1 << 22  # numbers that a fitted model may hold until it is examined; a larger fit is examined at once


@dataclass(frozen=True)
class FitCertificate:
    """What is certain about a fit; ``print`` says it in words.

    Attributes
    ----------
    verdict : str
        "swap-optimal": no exchange of a chosen feature for another lowers the objective, and the coefficients are the
        best for their features.  "stationary": the coefficients are the best for these features; other features may do
        better.  "unfinished": not even that.
    exact : bool
        True if exchanges were judged by the objective itself (squared loss); False if the quadratic model of the
        objective at the fit told which exchanges to try.
    fall : float
        By how much the objective could still fall on the chosen features, to second order.
    alpha, L : float
        The least and the largest curvature on the chosen features, of variance one.  Where L/alpha is large, some of
        them are nearly combinations of others, and their coefficients say little.
    least_worth : float
        By how much the objective would rise without the chosen feature (or group) that matters least, the others
        refitted.
    objective : float
        The objective of the fit.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from ksparse import KSparseRegressor
    >>> model = KSparseRegressor(k=3).fit(*load_diabetes(return_X_y=True))
    >>> model.certificate_.verdict
    'swap-optimal'
    """

    verdict: str
    exact: bool
    fall: float
    alpha: float
    L: float
    least_worth: float
    objective: float

    def to_dict(self) -> dict[str, Any]:
        """The attributes as plain numbers and strings, for JSON."""
        return jsonable(asdict(self))

    def to_frame(self) -> Any:
        """One row as a pandas.DataFrame, so that the rows of several fits can be stacked."""
        return data_frame({name: [value] for name, value in asdict(self).items()})

    def _repr_html_(self) -> str:
        return html_lines(str(self).splitlines(), bold=True)

    def __str__(self) -> str:
        which = "" if self.exact else " that its quadratic model predicts to be better"
        said = {
            "swap-optimal": f"no exchange of a chosen feature for another{which} lowers the objective, "
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
                "  That no other set of as many features is better could be proved only by trying all of them.",
                "  What Theorem 10 proves of HT-SVRG on these data: ksparse.theory.certificate(X, y, model)",
            ]
        )


class SecondOrder(NamedTuple):
    """The quadratic model of the objective at a fit, for one output; its columns are scaled to curvature one."""

    best: Array  # the coefficients that minimise it
    inverse: Array  # of the Hessian
    fall: float  # by how much it could still fall
    alpha: float  # the least and the largest curvature, of the columns before that scaling
    L: float

    @np.errstate(over="ignore", invalid="ignore")
    def rises(self, groups: Groups) -> Array:
        """By how much it rises without each group of columns, the others refitted."""
        at = [(self.best[G], self.inverse[np.ix_(G, G)]) for G in groups]
        return np.array([0.5 * float(x @ np.linalg.solve(inverse, x)) for x, inverse in at]) - self.fall


def second_order(
    block: Array, derivative: Array, curvature: Array, x: Array, l2: float, intercept: bool
) -> SecondOrder:
    """The quadratic model at a fit x on a few columns, from the derivative and curvature of every row."""
    if x.size == 0:
        return SecondOrder(x, np.empty((0, 0)), 0.0, 0.0, 0.0)
    n = len(block)
    gradient, centre = derivative @ block / n + l2 * x, np.zeros(x.size)
    if intercept and curvature.sum() > 0:
        centre = curvature @ block / curvature.sum()
        gradient = gradient - derivative.mean() * centre
    hessian = weighted_gram(block.T, centre, curvature) / n + l2 * np.eye(x.size)
    eigenvalues = np.linalg.eigvalsh(hessian)
    # not the pseudo-inverse: for two equal columns it would say that both are needed
    root = np.sqrt(np.where(hessian.diagonal() > 0.0, hessian.diagonal(), 1.0))
    inverse = np.asarray(np.linalg.inv(hessian / root / root[:, np.newaxis] + SINGULAR * np.eye(x.size)), np.float64)
    move = inverse @ (gradient / root)
    fall = max(0.0, 0.5 * float(gradient / root @ move))
    return SecondOrder(root * x - move, inverse, fall, max(0.0, float(eigenvalues[0])), float(eigenvalues[-1]))


class Examined(NamedTuple):
    """What is known about a fit."""

    worth: Array  # (outputs, columns): the rise of the objective without one coefficient; an estimate for the softmax
    feature_worth: Array  # (columns,): the rise without the column's whole group, in all outputs
    certificate: FitCertificate | None
    rows: int  # the number of rows on which refits were made


@np.errstate(over="ignore", invalid="ignore")
def second_orders(fit: LeaveOutRefits, x: Array, constant: Array) -> tuple[Array, list[SecondOrder]]:
    """The derivatives of the rows at x, (outputs, n), and the quadratic model of every output."""
    z = x @ fit.block.T + constant[:, np.newaxis] + fit.offset
    _, derivative, curvature = fit.rows.evaluate(z[np.newaxis])
    each = zip(derivative[0], fit.rows.own(curvature)[0], x, strict=True)
    return derivative[0], [second_order(fit.block, *own, fit.l2, fit.intercept) for own in each]


def examine(fit: LeaveOutRefits, x: Array, constant: Array, groups: Groups, chosen: Mask, result: Result) -> Examined:
    """Say what each group of columns is worth in the fit x, (outputs, columns), and what is certain about the fit.

    `groups` holds the columns that were chosen together; `chosen` tells which groups are not always kept.
    """
    n, exact = len(fit.block), fit.rows.quadratic
    if not (np.isfinite(x).all() and np.isfinite(constant).all() and math.isfinite(result.objective)):
        certificate = FitCertificate("unfinished", exact, math.inf, 0.0, 0.0, 0.0, result.objective)
        return Examined(np.zeros_like(x), np.zeros(x.shape[1]), certificate, n)
    if fit.intercept:
        centre = fit.rows.weight @ fit.block / n
        fit, constant = replace(fit, block=fit.block - centre), constant + x @ centre
    derivative, parts = second_orders(fit, x, constant)
    rises = _sum_of_rises(parts, groups)
    if groups and (fit.positive or not exact):
        if n > MAX_ROWS:  # the quadratic model of all rows, corrected by refits on a sample
            sample = fit.sample(derivative, MAX_ROWS)
            n, best = len(sample.block), sample.best(x, constant)
            rises = rises + sample.rises(*best, groups) - _sum_of_rises(second_orders(sample, *best)[1], groups)
        else:
            rises = fit.rises(x, constant, groups)
    rises = np.maximum(rises, 0.0)
    feature_worth = np.zeros(x.shape[1])
    for group, rise in zip(groups, rises, strict=True):
        feature_worth[group] = rise
    each = list(np.arange(x.shape[1])[:, np.newaxis])
    worth = feature_worth[np.newaxis] if len(x) == 1 else np.maximum([part.rises(each) for part in parts], 0.0)
    return Examined(worth, feature_worth, _certify(result, exact, parts, rises[chosen]), n)


def _sum_of_rises(parts: list[SecondOrder], groups: Groups) -> Array:
    """By how much the quadratic models of all outputs rise without each group."""
    return np.sum([part.rises(groups) for part in parts], axis=0)


def _certify(result: Result, exact: bool, parts: list[SecondOrder], rises: Array) -> FitCertificate:
    fall = sum(part.fall for part in parts)
    done = result.converged and fall <= CONVERGED * abs(result.objective)
    verdict = "unfinished" if not done else "swap-optimal" if result.swap_optimal else "stationary"
    return FitCertificate(
        verdict, exact, fall, min(part.alpha for part in parts), max(part.L for part in parts),
        float(rises.min()) if rises.size else 0.0, result.objective,
    )  # fmt: skip


# --- when somebody asks ----------------------------------------------------------------------------------------------
@dataclass(frozen=True, eq=False)
class SupportData:
    """The rows of a fit on the columns that it uses: copies, so that X and y may change.  Models of a path share it."""

    rows: Any  # OneOutput, ManyTargets or Softmax
    columns: NDArray[np.int64]  # ascending
    block: Array  # (columns, n)
    offset: Any
    d: int
    intercept: bool
    positive: bool
    kept: NDArray[np.int64]
    labels: NDArray[Any] | None  # the group of every column of X

    def examine(self, result: Result, l2: float) -> Examined:
        """Examine a fit on some of the columns."""
        S, constant = result.support, np.atleast_1d(np.asarray(result.intercept, dtype=np.float64))
        block = self.block[np.searchsorted(self.columns, S)].T
        fit = LeaveOutRefits(self.rows, block, self.offset, l2, self.intercept, self.positive)
        x = result.x[S].T if result.x.ndim == 2 else result.x[np.newaxis, S]
        found = examine(fit, x, constant, *chosen_together(S, self.kept, self.labels), result)
        worth, feature_worth = np.zeros((len(found.worth), self.d)), np.zeros(self.d)
        worth[:, S], feature_worth[S] = found.worth, found.feature_worth
        return found._replace(worth=worth, feature_worth=feature_worth)


def examinations(
    design: Design, Y: NDArray[Any], weight: Any, offset: Any, loss: str, results: Sequence[Result],
    ridges: Sequence[float], room: int, **settings: Any,
) -> list[Callable[[], Examined]]:  # fmt: skip
    """For every result a function that examines it.

    The functions share copies of the data if these have at most `room` numbers; otherwise all is computed here.
    """
    n, d = design.shape
    share = np.ones(n) if weight is None else weight * (n / weight.sum())
    if loss == "softmax":
        rows: Any = Softmax(Y.copy(), share)
    else:
        rows = OneOutput(losses.resolve(loss), Y.copy(), share) if Y.ndim == 1 else ManyTargets(Y.T.copy(), share)
    offset = 0.0 if offset is None else np.array(np.reshape(offset, (n, -1)).T)

    def data(columns: NDArray[np.int64]) -> SupportData:
        return SupportData(rows, columns, design.dense_columns(columns).T, offset, d, **settings)

    columns = results[0].support if len(results) == 1 else np.unique(np.concatenate([one.support for one in results]))
    if n * columns.size > room:
        with quiet_blas(n * columns.size):
            known = [data(result.support).examine(result, l2) for result, l2 in zip(results, ridges, strict=True)]
        return [functools.partial(Examined, *found) for found in known]
    shared = data(columns)
    return [functools.partial(shared.examine, result, l2) for result, l2 in zip(results, ridges, strict=True)]


class WhenAsked:
    """An attribute of a fitted model that its method `_examine` sets when somebody first asks for it."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, model: Any, owner: type) -> Any:  # called only as long as the model has no such entry
        if model is None:
            return self
        model._examine()
        if self.name not in vars(model):
            raise AttributeError(f"{owner.__name__!r} object has no attribute {self.name!r}")
        return vars(model)[self.name]


EXAMINED = ("worth_", "feature_worth_", "worth_rows_", "certificate_")


class ExaminedLater:
    """The attributes of a fitted model that are computed when somebody asks for them."""

    worth_, feature_worth_, worth_rows_, certificate_ = WhenAsked(), WhenAsked(), WhenAsked(), WhenAsked()


# --- for ksparse.theory ----------------------------------------------------------------------------------------------
class Minimized(NamedTuple):
    """The problem that a fit solved: A·x against y with at most k non-zeros; `settings` are those of `minimize`."""

    A: Any
    y: Array
    x: Array
    k: int
    settings: dict[str, Any]
    data: str  # what A is, in words


def minimized(model: Any, X: Any, y: Any, sample_weight: Any, offset: Any) -> Minimized:
    """The problem that the fit solved, for `theory.certificate`, from the rows that the model was fitted on."""
    check_is_fitted(model)
    if not hasattr(model, "l2_"):
        raise ValueError("fit must be a model that was fitted here: one read from a file lacks its ridge and scaling")
    if model.groups is not None or model.positive:
        what = "groups" if model.groups is not None else "positive=True"
        raise ValueError(f"fit must be a model without {what}: the theorem is about plain hard thresholding")
    X, y = model._check_pairs(X, y, reset=False)
    if isinstance(X, Source):
        raise ValueError("A must be an array or a sparse matrix, got a source; its load() gives one")
    y, weight, size = model._one_output(y, check_weights(sample_weight, X))
    intercept = bool(model.fit_intercept)
    scaling = standardize(as_design(X), weight, intercept) if model.standardize else None
    sizes = np.ones(X.shape[1]) if scaling is None else scaling.sizes
    other = np.flatnonzero(~np.isclose(sizes, model.scale_, rtol=SAME_SCALE, atol=0.0))
    if model.n_rows_ != X.shape[0] or other.size:
        raise ValueError(
            f"A must hold the rows that the model was fitted on ({model.n_rows_}, with the same sample_weight), got "
            + (f"{X.shape[0]} rows" if model.n_rows_ != X.shape[0] else f"another deviation in column {other[0]}")
        )
    w, b = np.ravel(model.coef_).astype(np.float64) / size, float(np.ravel(model.intercept_)[0]) / size
    shift = None if offset is None else check_vector(offset, "offset", len(y), "row") / size
    settings = {
        "loss": model.loss, "l2": model.l2_, "always_keep": model._kept(X.shape[1]), "intercept": intercept,
        "sample_weight": weight, "offset": shift,
    }  # fmt: skip
    if scaling is None:
        return Minimized(X, y, w, model.k_, settings, "X as it was given")
    centred = "centred and " if scaling.centre.any() else ""
    unit = "standard deviations" if intercept else "root mean squares"
    data = f"X with its columns {centred}divided by their {unit}"
    return Minimized(scaling.load(), y, scaling.to_scaled(w, b)[0], model.k_, settings, data)
