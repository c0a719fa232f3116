"""From checked rows to fitted models: one problem for every output, solved for one k or for many.

What does not depend on k is done once.  A fit, a path, a fold of a cross-validation and a resample are made of this.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import NDArray
from scipy.special import logsumexp
from sklearn.exceptions import ConvergenceWarning

from .. import losses
from .._minimize import solve
from .._text import progress
from .._threads import at_most_threads
from .._validate import renamed
from ..design import Design, Source, Standardized, as_design
from ..design.matrix import is_sparse
from ..engine.checkpoint import active
from ..losses import total_losses
from ..problem import Problem
from ..result import History, Progress, Result, Status, judged
from ..solvers.exchange import Exchange
from ..solvers.exchange.joint import ask
from ..solvers.exchange.path import solve_path
from ..solvers.exchange.search import Asked
from .certificate import HELD, examinations
from .tables import Selected, chosen_groups, count_labels, group_labels, times
from .threads import in_threads
from .worth import Array

UNFINISHED = ("diverged", "stalled", "stage limit", "time limit")


class Response(NamedTuple):
    """What a model predicts from one choice of features: a target, several targets, or the class of a row."""

    target: NDArray[Any]  # (n,), (n, targets), or the numbers of the classes for the loss "softmax"
    loss: str
    offset: Any = None
    centre: float = 0.0  # y is centre + unit·target
    unit: float = 1.0

    @property
    def width(self) -> int:
        """The number of coefficients of every feature."""
        return int(self.target.max()) + 1 if self.loss == "softmax" else self.target[0].size

    @property
    def several(self) -> bool:
        return self.loss == "softmax" or self.target.ndim == 2

    @property
    def one_sided(self) -> bool:
        """Whether all rows are on one side of a class: its best score would be infinite."""
        labels = self.loss != "softmax" and losses.kind_of_targets(self.loss) == "labels"
        return labels and bool(self.target.min() == self.target.max())


class Given(NamedTuple):
    """What is fitted to the rows."""

    outputs: list[Response]
    weight: Array | None  # of the rows, times that of their classes
    rows: float  # their number, or the sum of the weights that the user gave
    attributes: dict[str, Any]  # that the fitted model has besides


@dataclass(frozen=True, eq=False)
class Fitting:
    """The problems of all outputs, and what turns their results into models."""

    settings: Any  # an estimator, with the number and the names of the columns
    given: Given
    design: Design  # standardised, if that is asked for
    scaling: Standardized | None
    kept: NDArray[np.int64]
    labels: NDArray[Any] | None  # the group of every column
    solver: Any
    sizes: list[int]
    ridges: list[float]
    starts: list[Result | None]  # for every output
    asked: list[Asked | None]  # what the search is asked for every output; empty with another solver

    @classmethod
    @renamed("A must", "X must")
    def begin(
        cls, settings: Any, X: Any, given: Given, ks: Any = None, design: Design | None = None,
        start: tuple[Array, Array] | None = None,
    ) -> Fitting:  # fmt: skip
        """The problems of checked rows (also as a design, if there is one) for all `ks`; for that of the settings if
        None.  The search starts from coefficients (all outputs, d) and intercepts in the units of X, if given."""
        d, outputs = X.shape[1], given.outputs
        kept, labels = settings._kept(d), group_labels(settings.groups, d, settings._names())
        if labels is not None:
            settings._check_joint("groups", "or do without groups")
        if kept.size == d:
            raise ValueError("always_keep must leave columns to choose from, got all of them")
        free = d - kept.size if labels is None else count_labels(np.delete(labels, kept))
        sizes = [settings._check_k(free)] if ks is None else list(dict.fromkeys(min(int(k), free) for k in ks))
        ridges = settings._ridges(sizes, d, given.rows)
        design, flat = as_design(X) if design is None else design, labels is None and not outputs[0].several
        solver = settings._picked(design, outputs[0].loss, not flat, max(sizes))
        scaling = None
        if settings.standardize:
            design = scaling = settings._standardized(X, design, given.weight, not solver.reads_columns)
        starts: list[Result | None] = [None] * len(outputs)
        if start is not None:
            starts = _scaled_starts(*start, outputs, scaling, flat)
        asked: list[Asked | None] = []
        if isinstance(solver, Exchange):
            shared = {
                "groups": labels, "effort": solver.effort, "sample_weight": given.weight, "always_keep": kept,
                "intercept": bool(settings.fit_intercept), "positive": bool(settings.positive), "l2": ridges[0],
            }  # fmt: skip
            for own, first in zip(outputs, starts, strict=True):
                one = {"loss": own.loss, "offset": own.offset, "start": first}
                asked.append(None if own.one_sided else ask(design, own.target, sizes, **one, **shared))
        return cls(settings, given, design, scaling, kept, labels, solver, sizes, ridges, starts, asked)

    def under(self, settings: Any) -> Fitting:
        """The same problems with another setting of l2."""
        ridges = settings._ridges(self.sizes, self.design.shape[1], self.given.rows)
        return self if settings is self.settings else replace(self, settings=settings, ridges=ridges)

    @property
    def plain(self) -> bool:
        """Whether this is one search, in memory, that need not be interrupted or kept: folds may share sums then."""
        one = len(self.asked) == 1 and self.labels is None and not self.given.outputs[0].several
        return (
            one and self.design.in_memory and not self.settings.verbose and self.settings.max_time is None
            and active.get() is None
        )  # fmt: skip

    @property
    def problem(self) -> Problem:
        """The problem of the first output."""
        return self.asked[0].problem  # type: ignore[union-attr]

    # --- solving -------------------------------------------------------------------------------------------------
    def solve(self) -> list[list[Result]]:
        """For every output one result for every size; for some if that was all that was found in time.

        Outputs are solved in `n_jobs` threads: the work is in kernels, and X is not copied.
        """
        settings, outputs = self.settings, self.given.outputs
        # drawn here, in order: threads may finish in any order
        seeds = [] if self.asked else [[settings._seed(len(outputs) > 1) for _ in self.sizes] for _ in outputs]
        with progress(bool(settings.verbose), settings.callback) as callback:
            jobs = 1 if settings.verbose else settings.n_jobs  # the terminal has one line
            if len(outputs) == 1:
                with at_most_threads(None if jobs is None else int(effective_n_jobs(jobs))):
                    return [self._solve_output(0, seeds, callback)]
            return in_threads(self._solve_output, ((at, seeds, callback) for at in range(len(outputs))), jobs)

    def _solve_output(self, at: int, seeds: list[list[Any]], callback: Any) -> list[Result]:
        settings, output = self.settings, self.given.outputs[at]
        if output.one_sided:
            return [_constant_score(output, self.design.shape)] * len(self.sizes)
        asked = self.asked[at] if self.asked else None
        if asked is not None:
            flat = self.labels is None and not output.several
            return solve_path(
                asked, self.ridges, callback=callback, max_time=settings.max_time, stages=self.solver.stages,
                flat=flat,
            )  # fmt: skip
        shared = {
            "loss": output.loss, "solver": self.solver, "standardize": False, "always_keep": self.kept,
            "intercept": bool(settings.fit_intercept), "positive": bool(settings.positive), "offset": output.offset,
            "sample_weight": self.given.weight, "callback": callback, "max_time": settings.max_time,
        }  # fmt: skip
        results: list[Result] = []
        for k, l2, seed in zip(self.sizes, self.ridges, seeds[at], strict=True):
            start = self.starts[at] if not results else starting_point(results[-1].x, results[-1].intercept)
            results.append(solve(self.design, output.target, k, l2=l2, x0=start, random_state=seed, **shared))
        return results

    def tell(self, results: Sequence[Result]) -> None:
        """Call the callback for fits that were found without it, as after their only stage."""
        for one in results if self.settings.callback is not None else ():
            self.settings.callback(Progress(1, one.objective, one.x, one.intercept, one.support, 0, 0.0, math.nan, 0))

    # --- models --------------------------------------------------------------------------------------------------
    def coefficients(self, results: Sequence[Sequence[Result]]) -> tuple[Array, Array]:
        """The coefficients (sizes, outputs, d) and the intercepts (sizes, outputs) in the units of X and y."""
        parts = []
        for own, output in zip(results, self.given.outputs, strict=True):
            x = np.array([one.x.T if one.x.ndim == 2 else one.x[np.newaxis] for one in own])
            constant = np.array([np.atleast_1d(one.intercept) for one in own])
            if self.scaling is not None:
                flat, level = self.scaling.to_original(x.reshape(-1, x.shape[2]), constant.ravel())
                x, constant = flat.reshape(x.shape), level.reshape(constant.shape)
            if output.unit != 1.0 or output.centre != 0.0:
                with np.errstate(over="ignore"):
                    x, constant = output.unit * x, output.unit * constant + output.centre
            parts.append((x, constant))
        if len(parts) == 1:
            return parts[0]
        return np.concatenate([x for x, _ in parts], axis=1), np.concatenate([b for _, b in parts], axis=1)

    def attributes(self, results: Sequence[Sequence[Result]], level: int) -> list[dict[str, Any]]:
        """For every size the attributes of a fitted model.

        Warns of fits that are not finished; `level` is the number of calls from here to the user's line.
        """
        settings, count = self.settings, min(len(own) for own in results)
        results = [own[:count] for own in results]
        coef, constant = self.coefficients(results)
        if not (np.isfinite(coef).all() and np.isfinite(constant).all()):
            finite = [bool(np.isfinite(w).all() and np.isfinite(b).all()) for w, b in zip(coef, constant, strict=True)]
            results = [[_judged(one, ok) for one, ok in zip(own, finite, strict=True)] for own in results]
        examined = [self._examinations(*pair) for pair in zip(self.given.outputs, results, strict=True)]
        (n, d), dtype = self.design.shape, self.design.dtype
        shared = {
            **self.given.attributes, "n_rows_": n, "kept_": self.kept,
            "scale_": np.ones(d) if self.scaling is None else self.scaling.sizes,
        }  # fmt: skip
        found = []
        for at, (k, l2) in enumerate(zip(self.sizes[:count], self.ridges, strict=False)):
            own = [output[at] for output in results]
            w, b = settings._shaped(coef[at], constant[at], dtype, self.given.outputs[0])
            support = np.flatnonzero(w if w.ndim == 1 else w.any(axis=0))
            model = {
                **shared, "k_": k, "l2_": l2, "coef_": w, "intercept_": b, "support_": support,
                "n_iter_": max(1, max(one.n_stages for one in own)), "objective_": sum(one.objective for one in own),
                "_waiting": [output[at] for output in examined],
            }  # fmt: skip
            for name in ("history", "status", "swap_optimal"):
                values = [getattr(one, name) for one in own]
                model[f"{name}_"] = values if len(own) > 1 else values[0]
            if self.labels is not None:
                groups, places = chosen_groups(support, self.kept, self.labels)
                number = count_labels(np.delete(self.labels, self.kept))
                model |= {"groups_": groups, "support_groups_": places, "n_groups_": number}
            found.append(model)
            for one in own:
                if one.status in UNFINISHED:
                    warnings.warn(one.status.explain(), ConvergenceWarning, stacklevel=level)
        return found

    def models(self, results: Sequence[Sequence[Result]], level: int = 4) -> list[Any]:
        """The results as fitted models; `level` is the number of calls from `attributes` to the user's line."""
        models = []
        for found in self.attributes(results, level):
            model = object.__new__(type(self.settings))
            model.__dict__ = {**vars(self.settings), "k": found["k_"], **found}
            models.append(model)
        return models

    def _examinations(self, output: Response, results: Sequence[Result]) -> Sequence[Any]:
        """For every result a function that examines it; None if nobody will."""
        if self.settings._unseen:
            return [None] * len(results)
        return examinations(
            self.design, output.target, self.given.weight, output.offset, output.loss, results,
            self.ridges[: len(results)], HELD // len(self.given.outputs), intercept=bool(self.settings.fit_intercept),
            positive=bool(self.settings.positive), kept=self.kept, labels=self.labels,
        )  # fmt: skip


def starting_point(x: Array, constant: Any) -> Result:
    """A model as a `Result` to start from."""
    nothing = History(*(np.empty(0) for _ in History._fields))  # type: ignore[arg-type]
    return Result(x, constant, np.flatnonzero(x), math.nan, Status("stopped"), 0, nothing)


def _scaled_starts(
    coef: Array, constant: Array, outputs: list[Response], scaling: Standardized | None, flat: bool
) -> list[Result | None]:
    """Coefficients in the units of X as starting points on standardised columns; None where they are not finite."""
    starts: list[Result | None] = []
    low = 0
    for output in outputs:
        high = low + output.width
        with np.errstate(over="ignore"):
            x, b = coef[low:high] / output.unit, (constant[low:high] - output.centre) / output.unit
        pairs = [(w, float(c)) for w, c in zip(x, b, strict=True)]
        pairs = [scaling.to_scaled(*pair) for pair in pairs] if scaling else pairs
        x, b, low = np.array([w for w, _ in pairs]), np.array([c for _, c in pairs]), high
        usable = bool(np.isfinite(x).all() and np.isfinite(b).all())
        starts.append((starting_point(x[0], float(b[0])) if flat else starting_point(x.T, b)) if usable else None)
    return starts


def _constant_score(output: Response, shape: tuple[int, int]) -> Result:
    """The fit of a class that all rows, or none, belong to: as low or high as half a row among all would make it."""
    n, d = shape
    status = Status("converged", "all rows seen so far are on one side of this class")
    objective = float(np.log1p(1.0 / (2 * n + 1))) if output.loss == "logistic" else 0.0
    result = starting_point(np.zeros(d), float(output.target[0] * np.log(2 * n + 1)))
    return replace(result, objective=objective, status=status)


def _judged(result: Result, finite: bool) -> Result:
    """The result, with the status "diverged" if its coefficients are not finite in the units of X."""
    return dataclasses.replace(result, status=judged(result.status, result.objective, None, 0.0, finite))


def mean_losses(
    given: Given, coef: Array, constant: Array, X: Any, rows: Any = None, weight: Array | None = None
) -> Array:
    """The mean loss of several models, summed over their outputs, over all rows of X or some, which are read once.

    Coefficients are (models, outputs, d), intercepts (models, outputs); `weight` has one entry for each of the rows.
    """
    total, low = np.zeros(len(coef)), 0
    used = np.flatnonzero(coef.any(axis=(0, 1)))
    matrix = np.ascontiguousarray(coef[:, :, used].reshape(constant.size, used.size).T)
    if rows is not None and isinstance(X, Source):  # blocks come in the order of the rows
        order = np.argsort(rows)
        rows, weight = rows[order], None if weight is None else weight[order]
    for product in _products(matrix, X, used, rows):
        high = low + len(product)
        at = slice(low, high) if rows is None else rows[low:high]
        own = np.ones(high - low) if weight is None else weight[low:high]
        scores = (product + constant.ravel()).astype(np.float64, copy=False)
        scores, low, first = np.ascontiguousarray(scores.T).reshape(*constant.shape, -1), high, 0
        for output in given.outputs:
            total += _sums_of_losses(output, scores[:, first : first + output.width], at, own)
            first += output.width
    return total / (low if weight is None else float(weight.sum()))


def _products(matrix: Array, X: Any, used: NDArray[np.int64], rows: Any) -> Iterator[NDArray[Any]]:
    """The products of rows of X on some columns with a matrix; those of a source block by block."""
    if isinstance(X, Source):
        source = X if rows is None else Selected(X, rows)
        if used.size:
            yield from source.map(functools.partial(times, matrix), columns=used)
        else:
            yield np.zeros((source.shape[0], matrix.shape[1]))
    elif rows is None:
        yield times(matrix, X if X.shape[1] == used.size else X[:, used])
    else:
        yield times(matrix, X[rows][:, used] if is_sparse(X) else X[rows[:, np.newaxis], used])


def _sums_of_losses(output: Response, scores: Array, at: Any, weight: Array) -> Array:
    """The weighted sums of the losses of scores (models, width, rows)."""
    if output.unit != 1.0 or output.centre != 0.0:
        scores = (scores - output.centre) / output.unit
    target = output.target[at]
    if output.offset is not None:
        scores = scores + np.reshape(output.offset, (len(output.target), -1))[at].T
    if output.loss == "softmax":
        own = np.take_along_axis(scores, target[np.newaxis, np.newaxis], axis=1)[:, 0]
        return (logsumexp(scores, axis=1) - own) @ weight
    if target.ndim == 2:
        return 0.5 * ((scores - target.T) ** 2).sum(axis=1) @ weight
    return total_losses(losses.resolve(output.loss), np.ascontiguousarray(scores[:, 0]), target, weight)
