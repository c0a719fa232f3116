"""KSparseRegressor."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LinearRegression
from sklearn.utils.validation import check_is_fitted

from .._validate import check_flag, check_vector
from ..design.standardized import in_precision
from ._base import KSparseEstimator
from ._joint import finite_or_diverged, fit_outputs, refuse_what_is_not_there
from ._tables import check_weights


def _median(values: NDArray[np.float64], weight: NDArray[np.float64]) -> float:
    """The middle of the weights; of whole weights, the median of repeated values."""
    order = np.argsort(values, kind="stable")
    below = np.cumsum(weight[order])
    ends = np.searchsorted(below, 0.5 * below[-1], "left"), np.searchsorted(below, 0.5 * below[-1], "right")
    return float(np.mean(values[order[np.minimum(ends, len(order) - 1)]]))


def _robust_size(y: NDArray[np.float64], weight: NDArray[np.float64] | None) -> tuple[float, float]:
    """The median, and the spread around it that outliers do not move."""
    exponent = int(np.frexp(np.abs(y).max())[1])
    # around one, where sums and squares are floats; by powers of two, which round nothing: a weight of two is two rows
    y, weight = np.ldexp(y, -exponent), np.ones(len(y)) if weight is None else weight
    weight = np.ldexp(weight, -int(np.frexp(weight.max())[1]))
    centre = _median(y, weight)
    size = 1.4826 * _median(np.abs(y - centre), weight)
    if size == 0:
        size = float(np.sqrt(np.average((y - np.average(y, weights=weight)) ** 2, weights=weight)))
    centre, size = (float(np.ldexp(value, exponent)) for value in (centre, size))
    return centre, size if size > 0 else 1.0


def has_several_targets(y: Any, loss: str) -> bool:
    """Whether y has a column a target; only the squared loss knows what that means."""
    if hasattr(y, "tocsr"):
        raise ValueError(f"y must be dense, got {type(y).__name__}; .toarray() makes it so")
    try:
        shape = np.asarray(y).shape
    except ValueError:  # of uneven parts, which scikit-learn's check explains
        return False
    if len(shape) == 2 and shape[1] > 1 and loss != "squared":
        raise ValueError(
            f"y must have shape (n,) for loss={loss!r}, got {shape}: several targets share their features for "
            "loss='squared' only; fit the targets one by one"
        )
    return len(shape) == 2 and loss == "squared"


class KSparseRegressor(RegressorMixin, KSparseEstimator):
    r"""Regression with at most k features; several targets share them.

    .. math:: \min_{w, b}\ \frac1n \sum_i φ(w\cdot x_i + b,\, y_i) + \frac{λ}{2}\|w\|^2
              \quad\text{s.t.}\quad \|w\|_0 \le k

    on columns of variance one.  With y of shape (n, targets) the squared loss is summed over the targets, and at most
    k features are used by all of them together (scale the targets, or those of large units decide).

    Parameters
    ----------
    k : int or float
        At most so many features (or groups); a share of them if between 0 and 1.  Clipped to what there is (`k_`).
    loss : "squared", "huber" or "poisson"
        Huber's loss is linear beyond 1.35 of the targets' own spread (1.4826 times their median absolute deviation).
    fit_intercept : bool
    standardize : bool
        Learn on columns of variance one (the coefficients are those of the columns as they are).  Sparse rows stay
        sparse; constant columns are never chosen.
    l2 : "auto" or float
        λ; "auto" is 0.1·(k·log(d + 1)/n)² and 0.1 at most, a guard that is felt where columns are many and rows few,
        chosen by held-out loss on several data sets; 0.0 for none.  What was used is `l2_`.
    positive : bool
        No negative coefficients; by a gradient method, which may miss the best features.
    always_keep : names or numbers of columns, or a mask, optional
        In every model, beside the k.
    groups : array of d labels, or dict {column: group}, optional
        Columns of one label are chosen together, and k counts groups; a column that a dict leaves out is a group by
        itself.
    solver : "auto", a name or a solver
        "auto" is `Exchange`, or `PGD` with positive=True; for groups and several targets `JointExchange`.
    warm_start : bool
        Start from the last fit (in `partial_fit` too).
    max_time : float, optional
        Seconds; the best model so far is kept, with a ConvergenceWarning.
    random_state : None, int, Generator or RandomState
        For stochastic solvers.
    n_jobs : int, optional
        Threads for the outputs (a regressor has one, a classifier one a class if there are more than two); the model is
        the same whatever their number.  A callback is then called from several threads; with `verbose` there is one.
    reservoir : int
        Rows that `partial_fit` remembers.
    verbose : int
        Show progress.
    callback : function of a `Progress`, optional
        A true answer stops the fit.

    Attributes
    ----------
    coef_ : array of shape (d,) or (targets, d)
    intercept_ : float or array of shape (targets,)
    support_ : array of int
        The chosen columns.
    groups_ : array
        The labels of the chosen groups, if there are groups.
    feature_worth_ : array of shape (d,)
        By how much the objective would rise without each column in any output, the other coefficients refitted; 0 for
        columns that are not used.  With groups, without the column's whole group: all its columns hold that number.  A
        column that is always kept has a worth of its own.  If there are more than 100,000 rows, and the loss is not the
        squared one, it is estimated: refits on a sample of the rows correct a quadratic model of all of them.
    worth_ : array of the shape of coef_
        For one target the same numbers.  For several, by how much the objective would rise without one coefficient.
    worth_rows_ : int
        Rows on which refits were made; None for a model from a file of an older version, whose worths are estimates.
    support_groups_ : array of int
        With groups: which of `groups_` each column of `support_` is in; −1 for a column that is always kept.
    n_groups_ : int
        With groups: how many there were to choose from.
    kept_ : array of int
        The columns that are always kept.
    scale_ : array of shape (d,)
        The standard deviation of every column: coef_·scale_ is what one of them does to the prediction.
    k_ : int
    l2_ : float
    unit_ : float
        Of y, in which Huber's loss was taken; 1 for other losses.
    n_rows_ : int
        Rows of the fit.
    n_iter_ : int
    objective_ : float
        On the scaled columns.
    history_, status_ : as in `Result`
    swap_optimal_ : bool or None
    certificate_ : FitCertificate
        What is certain of the fit; print it.
    reservoir_ : Reservoir
        After `partial_fit`: the rows remembered (X, y, weight), and how many were seen.
    n_features_in_, feature_names_in_

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from ksparse import KSparseRegressor
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
    >>> model = KSparseRegressor(k=3).fit(X, y)
    >>> list(model.get_feature_names_out())
    ['bmi', 'bp', 's5']
    """

    _losses = ("squared", "huber", "poisson")
    _ridge_power = 2  # felt only where there are fewer rows than k·log d: least squares need no other guard
    coef_: NDArray[Any]
    intercept_: Any

    def __init__(
        self,
        k: int | float = 10,
        *,
        loss: str = "squared",
        fit_intercept: bool = True,
        standardize: bool = True,
        l2: float | str = "auto",
        positive: bool = False,
        always_keep: ArrayLike | None = None,
        groups: Any = None,
        solver: Any = "auto",
        warm_start: bool = False,
        max_time: float | None = None,
        random_state: Any = None,
        n_jobs: int | None = None,
        reservoir: int = 20_000,
        verbose: int = 0,
        callback: Any = None,
    ) -> None:
        super().__init__(
            k=k, loss=loss, fit_intercept=fit_intercept, standardize=standardize, l2=l2, positive=positive,
            always_keep=always_keep, groups=groups, solver=solver, warm_start=warm_start, max_time=max_time,
            random_state=random_state, n_jobs=n_jobs, reservoir=reservoir, verbose=verbose, callback=callback,
        )  # fmt: skip

    def fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None, offset: ArrayLike | None = None) -> Any:
        """Learn from rows X and targets y, (n,) or (n, targets); `offset` is added to every prediction in the loss (for
        rates of counts)."""
        X, y = self._check_pairs(
            X, y, ensure_all_finite=not check_flag(self.standardize, "standardize")
        )  # else scaling looks
        weight = check_weights(sample_weight, X)
        self._forget()
        return self._fit(X, y, weight, offset, warm=self.warm_start)

    def partial_fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Any:
        """Learn from these rows and those of earlier calls, as many as `reservoir` says.

        As long as there is room, the model is that of `fit` on all rows seen; afterwards on a uniform sample of them,
        drawn with random_state.  Every call is a fit from scratch.  With warm_start=True it starts from the last model:
        faster, but it may then end in another local optimum than `fit`.  `fit` forgets the rows of earlier calls, and
        its own rows are not remembered.

        >>> from sklearn.datasets import load_diabetes
        >>> from ksparse import KSparseRegressor
        >>> X, y = load_diabetes(return_X_y=True)
        >>> model = KSparseRegressor(k=3)
        >>> for rows in (slice(0, 200), slice(200, None)):
        ...     model = model.partial_fit(X[rows], y[rows])
        >>> model.reservoir_.seen, bool((model.support_ == KSparseRegressor(k=3).fit(X, y).support_).all())
        (442, True)
        """
        X, y = self._check_pairs(X, y, reset=not hasattr(self, "coef_"))
        before = getattr(self, "reservoir_", None)
        if before is not None and before.y.shape[1:] != y.shape[1:]:
            raise ValueError(
                f"y must have the targets of the first call, shape (n, *{before.y.shape[1:]}), got {y.shape}"
            )
        rows = self._remember(X, y, sample_weight)
        self._fit(rows.X, rows.y, rows.weight, None, warm=self.warm_start)
        self.reservoir_ = rows
        return self

    def _check_pairs(self, X: Any, y: Any, **settings: Any) -> tuple[Any, NDArray[np.float64]]:
        loss = self._loss_name()
        several = has_several_targets(y, loss)
        X, y = self._check_rows(X, y, y_numeric=True, multi_output=several, order="C", **settings)
        y = np.asarray(y, dtype=np.float64)
        if loss == "poisson" and (y < 0).any():
            raise ValueError(f"y must not be negative for loss='poisson', got {y.min():g}")
        return X, y

    def _fit(self, X: Any, y: NDArray[np.float64], weight: Any, offset: Any, warm: bool) -> Any:
        self._begin(len(y), weight)
        again = warm and hasattr(self, "coef_") and self.coef_.shape[-1] == X.shape[1]
        if y.ndim == 2:
            refuse_what_is_not_there(self, "several targets", "or fit the targets one by one")
            fit_outputs(self, X, y, weight, offset, self.loss, again)
            return self
        start = (self.coef_.astype(np.float64), float(self.intercept_)) if again and self.coef_.ndim == 1 else None
        centre, size = self._unit(y, weight)
        if start is not None:
            start = (start[0] / size, (start[1] - centre) / size)
        centre = centre if self.fit_intercept else 0.0
        with np.errstate(over="ignore"):  # targets and offsets that become infinite are refused
            shift = None if offset is None else check_vector(offset, "offset", len(y), "row") / size
            target = (y - centre) / size
        [fit] = self._learn_each(X, [target], weight, shift, [start])
        self.unit_ = size
        with np.errstate(over="ignore"):
            coef, self.intercept_ = size * fit.coef, float(size * fit.intercept + centre)
        result = finite_or_diverged(fit.result, coef, self.intercept_)
        if result.status == "diverged" != fit.result.status:  # in the units of y, of which the fit knows nothing
            warnings.warn(result.status.explain(), ConvergenceWarning, stacklevel=3)
        self.coef_ = in_precision(np.append(coef, self.intercept_), X.dtype)[:-1]
        self.support_, self.certificate_ = np.flatnonzero(self.coef_), fit.certificate
        self.worth_, self.feature_worth_, self.worth_rows_ = fit.worth, fit.worth.copy(), fit.worth_rows
        self._note(result)
        return self

    def _unit(self, y: NDArray[np.float64], weight: Any) -> tuple[float, float]:
        """Where the targets lie and how far they spread, for the Huber loss, whose threshold is in these units."""
        return _robust_size(y, weight) if self.loss == "huber" else (0.0, 1.0)

    def _one_output(self, y: NDArray[np.float64], weight: Any) -> tuple[NDArray[np.float64], Any, float]:
        """The targets as they were fitted, the weights, and the unit of the targets."""
        if self.coef_.ndim == 2:
            raise ValueError("fit must be a model of one target: the theorem is about one; fit them one by one")
        centre, size = self._unit(y, weight)
        return (y - (centre if self.fit_intercept else 0.0)) / size, weight, size

    def predict(self, X: Any) -> NDArray[Any]:
        """The expected target of every row, (n,) or (n, targets)."""
        z = self._linear(X)
        z = z if self.coef_.ndim == 1 else z.reshape(-1, len(self.coef_))
        with np.errstate(over="ignore"):
            return np.exp(z) if self.loss == "poisson" else z

    def to_sklearn(self) -> LinearRegression:
        """The same predictions from a plain LinearRegression, for deployment without ksparse."""
        if self.loss == "poisson":
            raise ValueError(
                "to_sklearn is for loss='squared' and 'huber': scikit-learn's Poisson model has no such form"
            )
        check_is_fitted(self)
        plain = LinearRegression(fit_intercept=bool(self.fit_intercept))
        plain.coef_, plain.intercept_, plain.n_features_in_ = self.coef_.copy(), self.intercept_, self.n_features_in_
        if hasattr(self, "feature_names_in_"):
            plain.feature_names_in_ = self.feature_names_in_
        return plain

    def _output_names(self) -> list[str]:
        return ["y"] if self.coef_.ndim == 1 else [f"y{t}" for t in range(len(self.coef_))]

    def _targets(self, y: NDArray[Any]) -> list[NDArray[np.float64]]:
        return list(y.astype(np.float64).reshape(len(y), -1).T)

    def _kind(self) -> str | None:
        """What a file must say about the outputs."""
        return "targets" if self.coef_.ndim == 2 else None

    def _restore(self, coef: Any, constants: Any, worth: Any, classes: Any, kind: Any) -> None:
        loss = self._loss_name()
        if classes is not None or kind not in (None, "targets") or (kind is None and len(coef) != 1):
            raise ValueError("a regressor has one output, or targets, and no classes")
        if kind == "targets" and loss != "squared":
            raise ValueError("several targets are for loss='squared'")
        self.coef_, self.intercept_, self.worth_ = coef, constants, worth
        if kind is None:
            self.coef_, self.intercept_, self.worth_ = coef[0], float(constants[0]), worth[0]
        self.support_ = np.flatnonzero(np.atleast_2d(self.coef_).any(axis=0))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = self.loss == "poisson"
        tags.target_tags.multi_output = self.loss == "squared"
        return tags
