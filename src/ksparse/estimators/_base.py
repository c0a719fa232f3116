"""What the estimators share: their parameters, one fit, and what is said about it."""

from __future__ import annotations

import dataclasses
import math
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import _check_feature_names_in, _check_sample_weight, check_is_fitted, validate_data

from .._minimize import minimize
from .._progress import progress
from .._validate import check_count, check_number
from ..passes import curvatures
from ..problem import Problem
from ..result import Result
from ..solvers import PGD, Exchange
from ._joint import dense_columns, is_joint, learn_jointly, note_groups, second_order_worth, start_from
from ._scaling import Scaling
from ._store import save
from ._summary import Summary


class KSparseEstimator(BaseEstimator):
    """A linear model with at most k features.  Subclasses name the losses and make the targets."""

    _losses: tuple[str, ...] = ()
    k: int | float
    loss: str
    fit_intercept: bool
    standardize: bool
    l2: float
    positive: bool
    always_keep: Any
    groups: Any
    solver: Any
    warm_start: bool
    max_time: float | None
    random_state: Any
    verbose: int
    callback: Any
    history_: Any
    status_: Any
    swap_optimal_: Any

    def __init__(self, **parameters: Any) -> None:
        for name, value in parameters.items():  # each subclass lists its own, as scikit-learn wants them
            setattr(self, name, value)

    # --- fitting -------------------------------------------------------------------------------------------------
    def _check_rows(self, X: Any, y: Any = "no_validation", **settings: Any) -> Any:
        return validate_data(
            self, X, y, accept_sparse="csr", dtype=[np.float64, np.float32], accept_large_sparse=True, **settings
        )

    def _loss_name(self) -> str:
        if not isinstance(self.loss, str) or self.loss not in self._losses:
            known = ", ".join(map(repr, self._losses))
            raise ValueError(f"loss must be one of {known} for {type(self).__name__}, got {self.loss!r}")
        return self.loss

    def _count(self, free: int) -> int:
        """k as a number of columns: a share of them, or a number that is clipped to what there is."""
        if isinstance(self.k, float | np.floating) and 0 < self.k < 1:
            return max(1, min(math.ceil(self.k * free), free))
        return min(check_count(self.k, "k"), free)

    def _kept(self, d: int) -> NDArray[np.int64]:
        """always_keep as column numbers; names are looked up."""
        kept = self.always_keep
        if kept is None:
            return np.empty(0, np.int64)
        kept = np.atleast_1d(np.asarray(kept))
        if kept.dtype.kind in "UO" and kept.dtype != bool:
            names = list(getattr(self, "feature_names_in_", []))
            missing = [str(name) for name in kept if name not in names]
            if missing:
                raise ValueError(f"always_keep names the column {missing[0]!r}, which X does not have")
            kept = np.array([names.index(name) for name in kept], dtype=np.int64)
        if kept.dtype == bool:
            if kept.shape != (d,):
                raise ValueError(f"always_keep as a mask must have one entry a column ({d}), got shape {kept.shape}")
            kept = np.flatnonzero(kept)
        if kept.dtype.kind not in "iu" or (kept.size and not 0 <= kept.min() <= kept.max() < d):
            raise ValueError(
                f"always_keep must be names or numbers of columns below {d}, or a mask, got {self.always_keep!r}"
            )
        return np.unique(kept).astype(np.int64)

    def _solver(self) -> Any:
        if self.solver != "auto":
            return self.solver
        return PGD() if self.positive else Exchange()  # exchanges know no signs

    def _weights(self, X: Any, sample_weight: Any) -> NDArray[np.float64] | None:
        if sample_weight is None:
            return None
        weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        if not weight.any():
            raise ValueError("sample_weight must not be all zero: no row would count")
        return weight

    def _learn(
        self,
        X: Any,
        target: NDArray[np.float64],
        weight: NDArray[np.float64] | None,
        offset: Any,
        start: tuple[NDArray[np.float64], float] | None,
    ) -> tuple[Result, NDArray[np.float64], float, NDArray[np.float64]]:
        """One model: the result on scaled columns; coefficients and intercept as X has them; what each is worth."""
        if is_joint(self):
            several = None if start is None else (start[0][np.newaxis], np.array([start[1]]))
            result, coef, constants, Z = learn_jointly(self, X, target, weight, offset, self.loss, several)
            result = dataclasses.replace(result, x=result.x[:, 0], intercept=float(result.intercept[0]))
            return result, coef[0], float(constants[0]), self._worth(Z, target, weight, offset, result)
        d = X.shape[1]
        kept = self._kept(d)
        if kept.size == d:
            raise ValueError("always_keep must leave columns to choose from, got all of them")
        self.k_ = self._count(d - kept.size)
        intercept = bool(self.fit_intercept)
        scaling = Scaling(X, weight, intercept) if self.standardize else None
        Z = scaling.rows if scaling else X
        x0 = None if start is None else start_from(*(scaling.to_scaled(*start) if scaling else start))
        with progress(bool(self.verbose), self.callback) as callback:
            result = minimize(
                Z, target, self.k_, loss=self.loss, solver=self._solver(), l2=check_number(self.l2, "l2"),
                always_keep=kept, intercept=intercept, positive=bool(self.positive), offset=offset,
                sample_weight=weight, max_time=self.max_time, random_state=self._seed(), callback=callback,
                x0=x0,
            )  # fmt: skip
        if result.status in ("diverged", "stalled", "stage limit", "time limit"):
            warnings.warn(result.status.explain(), ConvergenceWarning, stacklevel=4)
        w, b = scaling.to_original(result.x, result.intercept) if scaling else (result.x, result.intercept)
        return result, w, b, self._worth(Z, target, weight, offset, result)

    def _seed(self) -> Any:
        if isinstance(self.random_state, np.random.RandomState):  # scikit-learn hands these around
            return int(self.random_state.randint(2**31 - 1))
        return self.random_state

    def _worth(self, Z: Any, target: Any, weight: Any, offset: Any, result: Result) -> NDArray[np.float64]:
        """By how much the objective would rise without a column, the others refitted (to second order); 0 elsewhere."""
        S, worth = result.support, np.zeros(Z.shape[1])
        if S.size == 0:
            return worth
        block = dense_columns(Z, S)
        problem = Problem.create(
            block, target, loss=self.loss, sample_weight=weight, offset=offset, l2=float(self.l2),
            intercept=bool(self.fit_intercept),
        )  # fmt: skip
        z = block @ result.x[S] + result.intercept + problem.offset
        bend = problem.weight * curvatures(problem.loss, z, problem.y)
        worth[S] = second_order_worth(block, bend, result.x[S], problem.l2, problem.intercept)
        return worth

    def _note(self, result: Result) -> None:
        """What a fit says about itself."""
        self.n_iter_, self.objective_ = max(1, result.n_stages), result.objective
        self.history_, self.status_, self.swap_optimal_ = result.history, result.status, result.swap_optimal
        note_groups(self)

    # --- using ---------------------------------------------------------------------------------------------------
    def _linear(self, X: Any) -> NDArray[Any]:
        """X·coefᵀ + intercept, (n,) or (n, outputs): only the chosen columns are read."""
        check_is_fitted(self)
        X = self._check_rows(X, reset=False)
        coef = np.atleast_2d(self.coef_)
        used = np.flatnonzero(coef.any(axis=0))
        scores = np.asarray(X[:, used] @ coef[:, used].T) + self.intercept_
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """The names of the chosen features."""
        check_is_fitted(self)
        return _check_feature_names_in(self, input_features)[self.support_]

    def summary(self) -> Summary:
        """A table of the chosen features: names, coefficients, and what each is worth.

        There are no p-values: after a selection on the same data they would lie.
        """
        check_is_fitted(self)
        return Summary.of(self)

    def save(self, path: Any) -> None:
        """Write the model as JSON; `ksparse.load` reads it."""
        check_is_fitted(self)
        save(self, path)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags
