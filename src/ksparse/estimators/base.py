"""What all estimators share: their parameters, and the use of a fitted model; `fitting.py` makes it."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted

from .. import losses
from .._minimize import pick_solver
from .._validate import check_choice, check_count, check_flag, check_generator, check_number
from ..design import Design, Source, Standardized, standardize
from ..solvers.exchange import Exchange
from ..solvers.exchange.squared import EFFORTS
from .certificate import EXAMINED, ExaminedLater, Minimized, minimized
from .fitting import Fitting, Given
from .store import save
from .summary import ShownModel
from .tables import Reservoir, check_rows, check_weights, find_bad_entry, group_labels, kept_columns, times
from .worth import Array

STATE = ("_waiting", "_unseen", "_l2_factor")  # of one fit, beside the attributes that users see
OF_GROUPS = ("groups_", "support_groups_", "n_groups_")


class KSparseEstimator(ExaminedLater, ShownModel, BaseEstimator):
    """A linear model with at most k features.  Subclasses list their parameters and prepare the targets."""

    _ridge_power: int  # in the rule behind l2="auto"
    _row_arguments: tuple[str, ...]  # of `fit`, with one entry per row
    _l2_factor = 1.0  # of the ridge, in a cross-validation that tries multiples of it
    _unseen = False  # a fold or a resample, which nobody examines
    k: int | float
    loss: str
    fit_intercept: bool
    standardize: bool
    l2: float | str
    positive: bool
    always_keep: Any
    groups: Any
    solver: Any
    effort: str
    warm_start: bool
    max_time: float | None
    random_state: Any
    n_jobs: int | None
    reservoir: int
    verbose: int
    callback: Any
    coef_: NDArray[Any]
    intercept_: Any

    def __init__(self, **parameters: Any) -> None:
        for name, value in parameters.items():  # each subclass lists its own, as scikit-learn requires
            setattr(self, name, value)

    # --- parameters ----------------------------------------------------------------------------------------------
    def _check_loss(self) -> Any:
        """The loss that is named, which must suit the kind of targets."""
        known = losses.named(labels=isinstance(self, ClassifierMixin))
        if not isinstance(self.loss, str) or self.loss not in known:
            names = ", ".join(map(repr, known))
            raise ValueError(f"loss must be one of {names} for {type(self).__name__}, got {self.loss!r}")
        return losses.resolve(self.loss)

    def _check_k(self, free: int) -> int:
        """k as a number of columns or groups: a share of them, or a number that is clipped to how many there are."""
        if isinstance(self.k, float | np.floating):
            if not 0 < self.k < 1:
                raise ValueError(f"k must be an integer of at least 1, or a share between 0 and 1, got {self.k!r}")
            return max(1, min(math.ceil(self.k * free), free))
        return min(check_count(self.k, "k"), free)

    def _ridges(self, ks: Sequence[int], d: int, rows: float) -> list[float]:
        """l2 as a number for every k; the rule behind "auto" needs k and the number of rows (weights count)."""
        if isinstance(self.l2, str):
            if self.l2 != "auto":
                raise ValueError(f"l2 must be 'auto' or a number, got {self.l2!r}")
            # k·log(d + 1): the logarithm of the number of choices of k columns
            logarithm, factor = math.log(d + 1), 0.1 * self._l2_factor
            return [factor * min(1.0, k * logarithm / rows) ** self._ridge_power for k in ks]
        if isinstance(self.l2, bool):
            raise ValueError(f"l2 must be 'auto' or a number, got {self.l2}")
        return [self._l2_factor * check_number(self.l2, "l2")] * len(ks)

    def _check_joint(self, what: str, remedy: str) -> None:
        """Raise if the settings do not allow Exchange, which alone knows groups and several outputs."""
        if self.positive:
            raise ValueError(f"positive must be False for {what}, got True; {remedy}")
        if not self._may_be_joint():
            raise ValueError(f"solver must be 'auto' or an Exchange for {what}, got {self.solver!r}; {remedy}")

    def _may_be_joint(self) -> bool:
        """Whether the solver is Exchange, or "auto", which may choose it."""
        return isinstance(self.solver, Exchange) or (isinstance(self.solver, str) and self.solver == "auto")

    def _names(self) -> Any:
        """The names of the columns; None if they have none."""
        return getattr(self, "feature_names_in_", None)

    def _kept(self, d: int) -> NDArray[np.int64]:
        """always_keep as column numbers."""
        return kept_columns(self.always_keep, d, self._names())

    def _fresh(self) -> Any:
        """An unfitted copy, as scikit-learn's `clone` makes, but numbers and texts need no copy."""
        other = object.__new__(type(self))
        for name, value in vars(self).items():
            if not name.endswith("_") and name not in STATE:
                plain = value is None or isinstance(value, str | int | float)
                other.__dict__[name] = value if plain else clone(value, safe=False)
        return other

    def _changed(self, **settings: Any) -> Any:
        """A copy that shares all but these settings."""
        other = object.__new__(type(self))
        other.__dict__ = {**vars(self), **settings}
        return other

    def _unnamed(self, d: int) -> Any:
        """A copy for folds and resamples: its rows have no column names, and nobody examines its fits."""
        kept, labels = None if self.always_keep is None else self._kept(d), group_labels(self.groups, d, self._names())
        other = self._changed(always_keep=kept, groups=labels, _unseen=True)
        other.__dict__.pop("feature_names_in_", None)
        return other

    def _seed(self, shared: bool = False) -> Any:
        """random_state for one run.  A generator that several runs share gives each a number, drawn in their order."""
        if isinstance(self.random_state, np.random.RandomState):  # what scikit-learn passes around
            return int(self.random_state.randint(2**31 - 1))
        if shared and isinstance(self.random_state, np.random.Generator):
            return int(self.random_state.integers(2**63))
        return self.random_state

    def _check_flags(self, n: int, weight: Array | None) -> float:
        """Check the parameters that are True or False; return the number of rows (the sum of their weights)."""
        for name in ("fit_intercept", "standardize", "positive"):
            check_flag(getattr(self, name), name)
        return float(n) if weight is None else float(weight.sum())

    # --- one fit -------------------------------------------------------------------------------------------------
    def _fit_given(self, X: Any, given: Given, start: tuple[Array, Array] | None) -> Any:
        """Fit the model; `start` holds coefficients (outputs, d) and intercepts in the units of X."""
        fitting = Fitting.begin(self, X, given, start=start)
        [found] = fitting.attributes(fitting.solve(), level=5)  # called by `_fit`, which `fit` calls
        for name in (*EXAMINED, *OF_GROUPS):
            self.__dict__.pop(name, None)
        self.__dict__.update(found)
        return self

    def _picked(self, design: Design, loss: str, jointly: bool, k: int) -> Any:
        """The solver; "auto" is a search with the effort that is asked for, where it can be done."""
        effort = check_choice(self.effort, "effort", EFFORTS)
        if jointly:
            return self.solver if isinstance(self.solver, Exchange) else Exchange(effort=effort)
        return pick_solver(self.solver, design, k, bool(self.positive), effort=effort)

    def _standardized(self, X: Any, design: Design, weight: Array | None, by_rows: bool) -> Standardized:
        """X, as a design, with standardised columns; an entry that is not finite is reported with its column."""
        try:
            return standardize(design, weight, bool(self.fit_intercept), by_rows)
        except ValueError:
            message = None if isinstance(X, Source) else find_bad_entry(X, "X", self._names())
            if message is None:
                raise
            raise ValueError(message) from None

    def _remember(self, X: Any, target: NDArray[Any], sample_weight: Any) -> Reservoir:
        """The rows that `partial_fit` remembers, with these rows added."""
        if isinstance(X, Source):
            raise ValueError("partial_fit takes arrays, got a source; fit reads a source block by block by itself")
        size = check_count(self.reservoir, "reservoir")
        before = getattr(self, "reservoir_", None) or Reservoir.empty(check_generator(self._seed()))
        return before.joined(X, target, check_weights(sample_weight, X), size)

    # --- the fitted model ----------------------------------------------------------------------------------------
    def _examine(self) -> None:
        """Set the attributes in `EXAMINED`, unless that has been done since the fit, and drop the data for it."""
        waiting = self.__dict__.get("_waiting")
        if waiting is None or self._unseen:
            return
        known = [examine() for examine in waiting]
        worth = np.concatenate([one.worth for one in known])
        self.worth_ = worth[0] if self.coef_.ndim == 1 else worth
        self.feature_worth_ = np.sum([one.feature_worth for one in known], axis=0)  # as their objectives add up
        self.worth_rows_ = min(one.rows for one in known)
        self.certificate_ = known[0].certificate if len(known) == 1 else [one.certificate for one in known]
        self.__dict__.pop("_waiting", None)  # last, since another thread may ask at the same time

    def __getstate__(self) -> Any:
        self._examine()  # a pickle holds the answers instead of the data
        return super().__getstate__()

    def _linear(self, X: Any) -> NDArray[Any]:
        """X·coefᵀ + intercept, (n,) or (n, outputs); only the chosen columns are read."""
        check_is_fitted(self)
        X = check_rows(self, X, reset=False)
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
        """Return the names of the chosen features.

        Parameters
        ----------
        input_features : array of str, default=None
            The names of all columns, if the rows of the fit had none.
        """
        check_is_fitted(self)
        return _check_feature_names_in(self, input_features)[self.support_]

    def save(self, path: Any, *, encoding: dict[str, Any] | None = None, target: str | None = None) -> None:
        """Write the model as JSON; `ksparse.load` reads it.

        Parameters
        ----------
        path : str or Path
            The file to write.
        encoding : dict, default=None
            How the columns of a file became those of X (see `ksparse.sources.Files`): ``ksparse predict`` then reads
            other files in the same way.
        target : str, default=None
            The name of what is predicted.
        """
        check_is_fitted(self)
        save(self, path, encoding, target)

    def _minimized(self, X: Any, y: Any, sample_weight: Any, offset: Any) -> Minimized:
        """The problem that the fit solved, for `theory.certificate`, from the rows that the model was fitted on."""
        return minimized(self, X, y, sample_weight, offset)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "coef_")  # a fit that failed may have set feature_names_in_ and n_features_in_

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags
