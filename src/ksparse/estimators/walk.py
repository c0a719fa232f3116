"""Many k at once: one problem for a whole path, and its fits as coefficients and as models.

What does not depend on k is done once; paths and the folds of a cross-validation are made of this.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from .. import losses
from .._validate import renamed
from ..design import Design, Standardized, as_design
from ..design.matrix import is_sparse
from ..losses import total_losses
from ..problem import Problem
from ..result import Result
from ..solvers.exchange.path import solve_path
from .base import UNFINISHED, KSparseEstimator, OneTarget, finite_or_diverged
from .tables import times
from .worth import Array


class Coefficients(NamedTuple):
    """Several models with one output each, in the units of X."""

    coef: Array  # (models, d)
    constant: Array  # (models,)


@dataclass(frozen=True, eq=False)
class PathProblem:
    """One problem that is solved for all `sizes`, with what turns its results into models."""

    settings: KSparseEstimator  # not fitted, but with the number and the names of the columns
    problem: Problem
    scaling: Standardized | None
    sizes: list[int]
    ridges: list[float]
    given: OneTarget
    rows: float  # their number, or the sum of their weights

    @classmethod
    @renamed("A must", "X must")
    def begin(
        cls, settings: Any, X: Any, y: Any, weight: Array | None, offset: Any, ks: Any, design: Design | None = None
    ) -> PathProblem | None:
        """The problem of checked rows (also as a design, if there is one); None if only fits one by one can do it."""
        rows = settings._check_flags(len(y), weight)
        given = settings._one_target(y, weight, offset)
        if given is None or not settings._may_walk(X) or given.target.min() == given.target.max():
            return None
        d = X.shape[1]
        kept = settings._kept(d)
        if kept.size == d:
            raise ValueError("always_keep must leave columns to choose from, got all of them")
        design = as_design(X) if design is None else design
        scaling = settings._standardized(X, design, given.weight, False) if settings.standardize else None
        sizes = list(dict.fromkeys(min(int(k), d - kept.size) for k in ks))
        ridges = settings._ridges(sizes, d, rows)
        problem = Problem.create(
            scaling or design, given.target, loss=settings.loss, sample_weight=given.weight,
            offset=given.offset, always_keep=kept, intercept=bool(settings.fit_intercept),
        )  # fmt: skip
        return cls(settings, problem, scaling, sizes, ridges, given, rows)

    def under(self, settings: Any) -> PathProblem:
        """The same problem with another setting of l2."""
        if settings is self.settings:
            return self
        return replace(self, settings=settings, ridges=settings._ridges(self.sizes, self.problem.d, self.rows))

    def solve(self) -> list[Result]:
        """One result for every size, as long as the callback does not stop."""
        results = solve_path(self.problem, self.sizes, self.ridges, self.settings.effort)
        return self.shown(results)

    def shown(self, results: list[Result]) -> list[Result]:
        """The results, as long as the callback does not stop."""
        for i, result in enumerate(results):
            if self.settings._show(result):
                return results[: i + 1]
        return results

    def coefficients(self, results: Sequence[Result]) -> Coefficients:
        """The results in the units of X and y."""
        x, constant = np.array([result.x for result in results]), np.array([result.intercept for result in results])
        if self.scaling is not None:
            x, constant = self.scaling.to_original(x, constant)
        if self.given.unit != 1.0 or self.given.centre != 0.0:
            with np.errstate(over="ignore"):
                x, constant = self.given.unit * x, self.given.unit * constant + self.given.centre
        return Coefficients(x, constant)

    def models(self, results: Sequence[Result], level: int = 3) -> list[Any]:
        """The results as fitted models; `level` is the number of calls from here to the user's line."""
        settings, problem, given = self.settings, self.problem, self.given
        ridges, found = self.ridges[: len(results)], self.coefficients(results)
        if not (np.isfinite(found.coef).all() and np.isfinite(found.constant).all()):
            results = [finite_or_diverged(*each) for each in zip(results, *found, strict=True)]
        examined = settings._examinations(
            problem.design, given.target, given.weight, given.offset, settings.loss, results, ridges
        )
        n, d = problem.design.shape
        shared = {
            **vars(settings), **given.attributes, "n_rows_": n, "kept_": problem.kept,
            "scale_": np.ones(d) if self.scaling is None else self.scaling.sizes,
        }  # fmt: skip
        models = []
        for k, l2, result, examine, w, b in zip(
            self.sizes[: len(results)], ridges, results, examined, *found, strict=True
        ):
            model = object.__new__(type(settings))
            coef, intercept = settings._shaped(w, float(b), problem.design.dtype)
            model.__dict__ = {
                **shared, "k": k, "k_": k, "l2_": l2, "coef_": coef, "intercept_": intercept,
                "support_": np.flatnonzero(coef), "n_iter_": max(1, result.n_stages), "objective_": result.objective,
                "history_": result.history, "status_": result.status, "swap_optimal_": result.swap_optimal,
                "_waiting": [examine],
            }  # fmt: skip
            models.append(model)
            if result.status in UNFINISHED:
                warnings.warn(result.status.explain(), ConvergenceWarning, stacklevel=level)
        return models


def stacked(models: Sequence[Any]) -> Coefficients:
    """The coefficients of fitted models with one output each."""
    coef = np.array([model.coef_.ravel() for model in models])
    return Coefficients(coef, np.array([float(np.ravel(model.intercept_)[0]) for model in models]))


def linear_losses(loss: str, found: Coefficients, X: Any, given: OneTarget, rows: Any = None) -> Array:
    """The mean loss of every model over rows in memory (all if None), read once; `given` has their targets."""
    used = np.flatnonzero(found.coef.any(axis=0))
    if rows is not None:
        X = X[rows] if is_sparse(X) else X[rows[:, np.newaxis], used]
    part = X if X.shape[1] == used.size else X[:, used]
    scores = times(np.ascontiguousarray(found.coef[:, used].T), part) + found.constant
    scores = np.ascontiguousarray(scores.T, dtype=np.float64)
    if given.unit != 1.0 or given.centre != 0.0:
        scores = (scores - given.centre) / given.unit
    if given.offset is not None:
        scores += given.offset
    weight = np.ones(scores.shape[1]) if given.weight is None else given.weight
    return total_losses(losses.resolve(loss), scores, given.target, weight) / float(weight.sum())
