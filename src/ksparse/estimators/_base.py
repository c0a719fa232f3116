"""What the estimators share: their parameters, one fit, and what is said about it."""

from __future__ import annotations

import dataclasses
import functools
import math
import warnings
from typing import Any, NamedTuple

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted

from .._minimize import pick_solver, reads_columns, solve
from .._progress import progress
from .._style import canvas, finish
from .._validate import as_array, check_count, check_flag, check_generator, check_number, renamed
from ..design import Source, as_design
from ..result import Result
from ..sources import as_source
from ._evidence import FitCertificate
from ._joint import (
    UNFINISHED,
    examined,
    finite_or_diverged,
    group_labels,
    is_joint,
    learn_jointly,
    note_groups,
    standardized,
    warm_start,
)
from ._pictures import Shown, plot_coefficients, plot_convergence
from ._reservoir import Reservoir
from ._sources import check_source
from ._store import save
from ._summary import Summary
from ._tables import check_rows, check_weights
from ._theorem import Minimized, minimized


def times(matrix: NDArray[Any], block: Any) -> NDArray[Any]:
    """The product of rows with a matrix; in double precision where it is too large for single."""
    with np.errstate(over="ignore", invalid="ignore"):
        product = np.asarray(block @ matrix)
    if product.dtype == np.float32 and not np.isfinite(product).all():
        return np.asarray(block.astype(np.float64) @ matrix)
    return product


class Learnt(NamedTuple):
    """One model: the run on scaled columns, the coefficients for the columns as X has them, and what is known of it."""

    result: Result
    coef: NDArray[np.float64]
    intercept: float
    worth: NDArray[np.float64]
    certificate: FitCertificate | None
    worth_rows: int


class KSparseEstimator(Shown, BaseEstimator):
    """A linear model with at most k features.  Subclasses name the losses and make the targets."""

    _losses: tuple[str, ...] = ()
    _ridge_power: int
    k: int | float
    loss: str
    fit_intercept: bool
    standardize: bool
    l2: float | str
    positive: bool
    always_keep: Any
    groups: Any
    solver: Any
    warm_start: bool
    max_time: float | None
    random_state: Any
    n_jobs: int | None
    reservoir: int
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
        X = as_source(X)
        if isinstance(X, Source):
            return check_source(self, X, y, **settings)
        return check_rows(self, X, y, **settings)

    def _loss_name(self) -> str:
        if not isinstance(self.loss, str) or self.loss not in self._losses:
            known = ", ".join(map(repr, self._losses))
            raise ValueError(f"loss must be one of {known} for {type(self).__name__}, got {self.loss!r}")
        return self.loss

    def _count(self, free: int) -> int:
        """k as a number of columns: a share of them, or a number that is clipped to what there is."""
        if isinstance(self.k, float | np.floating):
            if not 0 < self.k < 1:
                raise ValueError(f"k must be an integer of at least 1, or a share between 0 and 1, got {self.k!r}")
            return max(1, min(math.ceil(self.k * free), free))
        return min(check_count(self.k, "k"), free)

    def _kept(self, d: int) -> NDArray[np.int64]:
        """always_keep as column numbers; names are looked up."""
        kept = self.always_keep
        if kept is None:
            return np.empty(0, np.int64)
        kept = np.atleast_1d(as_array(list(kept) if isinstance(kept, set | frozenset) else kept, "always_keep"))
        if kept.size == 0:
            return np.empty(0, np.int64)
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

    def _numbered(self, named: Any, d: int) -> Any:
        """A copy for rows without names: columns that always_keep and groups name, by the names that `named` has."""
        copy = clone(self)
        if hasattr(named, "feature_names_in_"):
            copy.feature_names_in_ = named.feature_names_in_
            copy.groups = group_labels(self.groups, d, named.feature_names_in_)
        if self.always_keep is not None:
            copy.always_keep = copy._kept(d)
        return clone(copy)

    def _ridge(self, d: int) -> float:
        """l2 as a number: the rule behind "auto" needs k_ and how many rows there are (a weight of two is two)."""
        if isinstance(self.l2, str):
            if self.l2 != "auto":
                raise ValueError(f"l2 must be 'auto' or a number, got {self.l2!r}")
            burden = self.k_ * math.log(d + 1) / self._rows  # what choosing k of d columns asks of a row
            return 0.1 * min(1.0, burden) ** self._ridge_power
        if isinstance(self.l2, bool):
            raise ValueError(f"l2 must be 'auto' or a number, got {self.l2}")
        return check_number(self.l2, "l2")

    def _begin(self, n: int, weight: Any) -> None:
        """Check what is a yes or a no, and note how many rows there are."""
        for name in ("fit_intercept", "standardize", "positive"):
            check_flag(getattr(self, name), name)
        self._rows = float(n) if weight is None else float(weight.sum())

    def _learn_each(self, X: Any, targets: list[Any], weight: Any, offset: Any, starts: list[Any]) -> list[Learnt]:
        """What `_learn` makes of every target, in `n_jobs` threads: the work is in kernels, and nobody copies X."""
        self.n_rows_ = X.shape[0]
        jobs = 1 if self.verbose else self.n_jobs  # there is one line on the terminal
        seeds = [self._seed(len(targets) > 1) for _ in targets]  # drawn in order, whoever comes first later
        fits = Parallel(n_jobs=jobs, prefer="threads")(
            delayed(self._learn)(X, target, weight, offset, start, seed)
            for target, start, seed in zip(targets, starts, seeds, strict=True)
        )
        for fit in fits:  # here, not in a thread: the warning shall point at the line that called fit
            if fit.result.status in UNFINISHED:
                warnings.warn(fit.result.status.explain(), ConvergenceWarning, stacklevel=4)
        return list(fits)

    @renamed("A must", "X must")
    def _learn(
        self,
        X: Any,
        target: NDArray[np.float64],
        weight: NDArray[np.float64] | None,
        offset: Any,
        start: tuple[NDArray[np.float64], float] | None,
        seed: Any,
    ) -> Learnt:
        if is_joint(self):
            several = None if start is None else (start[0][np.newaxis], np.array([start[1]]))
            result, coef, constants, scaling = learn_jointly(self, X, target, weight, offset, self.loss, several)
            result = dataclasses.replace(result, x=result.x[:, 0], intercept=float(result.intercept[0]))
            known = examined(self, X, target, scaling, weight, offset, self.loss, result)
            return Learnt(result, coef[0], float(constants[0]), *known[1:])
        d = X.shape[1]
        kept = self._kept(d)
        if kept.size == d:
            raise ValueError("always_keep must leave columns to choose from, got all of them")
        self.k_ = self._count(d - kept.size)
        self.l2_ = self._ridge(d)
        intercept = bool(self.fit_intercept)
        design = as_design(X)
        solver = pick_solver(self.solver, design, self.k_, bool(self.positive))
        scaling = standardized(self, X, weight, not reads_columns(solver)) if self.standardize else None
        self.scale_ = np.ones(d) if scaling is None else scaling.sizes
        x0 = None if start is None else warm_start(*(scaling.to_scaled(*start) if scaling else start))
        with progress(bool(self.verbose), self.callback) as callback:
            result = solve(
                scaling or design, target, self.k_, loss=self.loss, solver=solver, standardize=False, l2=self.l2_,
                always_keep=kept, intercept=intercept, positive=bool(self.positive), offset=offset,
                sample_weight=weight, max_time=self.max_time, random_state=seed, callback=callback,
                x0=x0,
            )  # fmt: skip
        w, b = scaling.to_original(result.x, result.intercept) if scaling else (result.x, result.intercept)
        result = finite_or_diverged(result, w, b)
        known = examined(self, X, target, scaling, weight, offset, self.loss, result)
        return Learnt(result, w, b, *known[1:])

    def _seed(self, shared: bool = False) -> Any:
        """random_state for one run; a generator that several runs share gives each a number, whatever their order."""
        if isinstance(self.random_state, np.random.RandomState):  # scikit-learn hands these around
            return int(self.random_state.randint(2**31 - 1))
        if shared and isinstance(self.random_state, np.random.Generator):
            return int(self.random_state.integers(2**63))
        return self.random_state

    def _remember(self, X: Any, target: NDArray[Any], sample_weight: Any) -> Reservoir:
        """The rows that `partial_fit` remembers, these among them."""
        if isinstance(X, Source):
            raise ValueError("partial_fit takes arrays, got a source; fit reads a source block by block by itself")
        size = check_count(self.reservoir, "reservoir")
        before = getattr(self, "reservoir_", None) or Reservoir.empty(check_generator(self._seed()))
        return before.joined(X, target, check_weights(sample_weight, X), size)

    def _forget(self) -> None:
        """What `partial_fit` remembered is gone."""
        self.__dict__.pop("reservoir_", None)

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
        if isinstance(X, Source) and used.size == 0:
            scores = np.zeros((X.shape[0], len(coef)), X.dtype) + self.intercept_
        elif isinstance(X, Source):
            parts = X.map(functools.partial(times, np.ascontiguousarray(coef[:, used].T)), columns=used)
            scores = np.concatenate(list(parts)) + self.intercept_
        else:
            scores = times(coef[:, used].T, X[:, used]) + self.intercept_
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

    def plot(self, path: Any = None, ax: Any = None) -> Any:
        """Bars of what one standard deviation of each feature does, with the coefficient as a number, the most useful
        feature on top; needs the `report` extra.

        With several outputs a table: the coefficients as numbers, their sizes on scaled columns as colours.  At most 25
        features are shown.

        Parameters
        ----------
        path : str or Path, optional
            The file to write, such as "model.png" or "model.svg"; without it pyplot, and so a notebook, shows the
            figure.
        ax : Axes of matplotlib, optional
            What to draw on, instead of a new figure.

        Returns
        -------
        Axes
        """
        check_is_fitted(self)
        return finish(plot_coefficients(self, canvas(path, ax)), path)

    def plot_convergence(self, path: Any = None, ax: Any = None) -> Any:
        """The objective against passes over the data, one line per class; needs the `report` extra.

        `path` and `ax` are those of `plot`.
        """
        check_is_fitted(self)
        return finish(plot_convergence(self, canvas(path, ax)), path)

    def _shown(self) -> tuple[list[Any], list[Any]]:
        table = self.summary()._repr_html_()
        return [table], [functools.partial(plot_coefficients, self)] if self.support_.size else []

    def save(self, path: Any, *, encoding: dict[str, Any] | None = None, target: str | None = None) -> None:
        """Write the model as JSON; `ksparse.load` reads it.

        `encoding` (see `ksparse.sources.Files`) says how a file's columns became those of X, `target` what is
        predicted: with them ``ksparse predict`` reads other files in the same way.
        """
        check_is_fitted(self)
        save(self, path, encoding, target)

    def _minimized(self, X: Any, y: Any, sample_weight: Any, offset: Any) -> Minimized:
        """What the fit minimised, for `theory.certificate`."""
        return minimized(self, X, y, sample_weight, offset)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "coef_")  # a fit that failed may have left names and numbers of columns

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags
