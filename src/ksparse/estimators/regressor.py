"""KSparseRegressor: regression with at most k features."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import RegressorMixin
from sklearn.linear_model import LinearRegression
from sklearn.utils.validation import check_is_fitted

from .. import losses
from .._validate import as_real, check_flag, check_vector
from ..design.standardized import in_precision
from .base import Array, KSparseEstimator
from .fitting import Given, Response
from .tables import check_rows, check_weights

T = TypeVar("T", bound=type)


def shares_docs(*others: type) -> Callable[[T], T]:
    """Fill in the docstring of a class: a line ``{name} {name}`` becomes what the others say about these names.

    If several of the others describe a name, the first one counts.
    """

    def fill(cls: T) -> T:
        texts: dict[str, str] = {}
        for other in others:
            for entry in re.finditer(r"^(\w+) : .*(?:\n .*)*", inspect.cleandoc(other.__doc__ or ""), re.MULTILINE):
                texts.setdefault(entry[1], entry[0])

        def entries(line: re.Match[str]) -> str:
            return "\n".join(texts[name] for name in re.findall(r"\w+", line[0]))

        if cls.__doc__:  # python -OO removes docstrings
            cls.__doc__ = re.sub(r"^\{\w+\}( \{\w+\})*$", entries, inspect.cleandoc(cls.__doc__), flags=re.MULTILINE)
        return cls

    return fill


def _median(values: Array, weight: Array) -> float:
    """The weighted median; for whole weights, the median of the values repeated as often."""
    order = np.argsort(values, kind="stable")
    below = np.cumsum(weight[order])
    ends = np.searchsorted(below, 0.5 * below[-1], "left"), np.searchsorted(below, 0.5 * below[-1], "right")
    return float(np.mean(values[order[np.minimum(ends, len(order) - 1)]]))


def _robust_size(y: Array, weight: Array | None) -> tuple[float, float]:
    """The median, and 1.4826 times the median absolute deviation from it: a spread that outliers do not move."""
    exponent = int(np.frexp(np.abs(y).max())[1])
    # scaled to about one, so that nothing overflows, and by powers of two, which cause no rounding
    y, weight = np.ldexp(y, -exponent), np.ones(len(y)) if weight is None else weight
    weight = np.ldexp(weight, -int(np.frexp(weight.max())[1]))
    centre = _median(y, weight)
    size = 1.4826 * _median(np.abs(y - centre), weight)
    if size == 0:
        size = float(np.sqrt(np.average((y - np.average(y, weights=weight)) ** 2, weights=weight)))
    with np.errstate(over="ignore"):  # targets whose spread is beyond the range of floats
        centre, size = float(np.ldexp(centre, exponent)), float(np.ldexp(size, exponent))
    return centre, size if size > 0 else 1.0


def has_several_targets(y: Any, loss: str) -> bool:
    """Whether y has one column per target, which only the squared loss allows."""
    if hasattr(y, "tocsr"):
        raise ValueError(f"y must be dense, got {type(y).__name__}; .toarray() makes it so")
    try:
        shape = np.asarray(y).shape
    except ValueError:  # parts of different lengths: scikit-learn's check explains that
        return False
    if len(shape) == 2 and shape[1] > 1 and loss != "squared":
        raise ValueError(
            f"y must have shape (n,) for loss={loss!r}, got {shape}: several targets share their features for "
            "loss='squared' only; fit the targets one by one"
        )
    return len(shape) == 2 and loss == "squared"


class KSparseRegressor(RegressorMixin, KSparseEstimator):
    r"""Regression with at most k features.

    .. math:: \min_{w, b}\ \frac1n \sum_i φ(w\cdot x_i + b,\, y_i) + \frac{λ}{2}\|w\|^2
              \quad\text{s.t.}\quad \|w\|_0 \le k

    where the columns of X are scaled to variance one.  With y of shape (n, targets) the squared loss is summed over the
    targets, which share the k features; scale the targets first, or those of large units decide.

    Parameters
    ----------
    k : int or float, default=10
        The largest number of features (or groups); a number between 0 and 1 is a share of them.  It is clipped to the
        number of features that there are (`k_`).
    loss : {"squared", "huber", "poisson", "gamma"}, default="squared"
        The loss φ.  "poisson" is for counts and "gamma" for positive targets; both predict exp(x·w + b).  Huber's loss
        is linear beyond 1.35 times the spread of the targets (1.4826 times their median absolute deviation).
    fit_intercept : bool, default=True
        Whether to fit the intercept b.
    standardize : bool, default=True
        Whether to fit on columns scaled to variance one; the coefficients are in the units of X all the same.  Sparse
        rows stay sparse, and constant columns are never chosen.
    l2 : "auto" or float, default="auto"
        The ridge λ; 0.0 for none.  "auto" is 0.1·(k·log(d + 1)/n)², at most 0.1, which matters where columns are many
        and rows few; it was chosen by held-out loss on several data sets.  The value used is `l2_`.
    positive : bool, default=False
        Whether to forbid negative coefficients; those of the kept columns and the intercept may have any sign.
    always_keep : names or numbers of columns, or a mask, default=None
        Columns that are in every model, in addition to the k features.
    groups : array of d labels, or dict {column: group}, default=None
        Columns with the same label are chosen together, and k counts groups.  A column that a dict leaves out is a
        group by itself.
    solver : "auto", str or solver, default="auto"
        "auto" is `Exchange`.
    effort : {"fast", "default", "best"}, default="default"
        How long `solver="auto"` searches.  "fast": one walk over the numbers of features up to k, with exchanges at
        each.  "best": then many perturbations of the chosen features, each searched again; slower, and better where
        features are strongly correlated.
    warm_start : bool, default=False
        Whether to start from the last fit (in `partial_fit`, too).
    max_time : float, default=None
        Limit in seconds; the best model so far is kept, with a ConvergenceWarning.
    random_state : None, int, Generator or RandomState, default=None
        For stochastic solvers.
    n_jobs : int, default=None
        Number of threads: those of the passes over very many rows (None for all cores), or of the fits of a classifier
        with multi_class="ovr" (None for one at a time); the model does not depend on it.  A callback is then called
        from several threads; with `verbose` there is one fit at a time.
    reservoir : int, default=20000
        Number of rows that `partial_fit` remembers.
    verbose : int, default=0
        Whether to show progress.
    callback : callable, default=None
        Called with a `Progress` after every stage; the fit stops if it returns a true value.

    Attributes
    ----------
    coef_ : array of shape (d,) or (targets, d)
        Coefficients in the units of X.
    intercept_ : float or array of shape (targets,)
        Intercepts.
    support_ : array of int
        The chosen columns.
    feature_worth_ : array of shape (d,)
        By how much the objective would rise without each column in any output, the other coefficients refitted; 0 for
        columns that are not used.  With groups, without the column's whole group: all its columns hold that number.  A
        column that is always kept has a worth of its own.  With more than 100,000 rows and a loss other than the
        squared one it is estimated: refits on a sample of the rows correct a quadratic model of all of them.
    worth_ : array of the shape of coef_
        For one target the same numbers.  For several, by how much the objective would rise without one coefficient.
    worth_rows_ : int
        Number of rows on which refits were made; None for a model from a file of an older version, whose worths are
        estimates.
    groups_ : array
        With groups: the labels of the chosen groups.
    support_groups_ : array of int
        With groups: the place in `groups_` of the group of each column of `support_`; −1 for a column that is always
        kept.
    n_groups_ : int
        With groups: the number of groups to choose from.
    kept_ : array of int
        The columns that are always kept.
    scale_ : array of shape (d,)
        The standard deviation of every column: coef_·scale_ is the effect of one standard deviation on the prediction.
    k_ : int
        The number of features (or groups) that were allowed.
    l2_ : float
        The ridge that was used.
    unit_ : float
        The unit of y in which Huber's loss was taken; 1 for other losses.
    n_rows_ : int
        Number of rows of the fit.
    n_iter_ : int
        Number of stages of the solver.
    objective_ : float
        The objective on the scaled columns.
    history_ : History
        The objective after every stage, as in `Result`.
    status_ : Status
        How the fit ended, as in `Result`.
    swap_optimal_ : bool or None
        Whether no exchange of a chosen feature for another lowers the objective; None if the solver does not know.
    certificate_ : FitCertificate
        What is certain about the fit; print it.
    reservoir_ : Reservoir
        After `partial_fit`: the rows remembered (X, y, weight), and how many were seen.
    n_features_in_ : int
        Number of columns of X.
    feature_names_in_ : array of str
        Names of the columns of X, if it had names.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from ksparse import KSparseRegressor
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
    >>> model = KSparseRegressor(k=3).fit(X, y)
    >>> list(model.get_feature_names_out())
    ['bmi', 'bp', 's5']
    """

    _row_arguments = ("sample_weight", "offset")
    _ridge_power = 2  # it matters only with fewer rows than k·log d: least squares need no other guard

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
        effort: str = "default",
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
            always_keep=always_keep, groups=groups, solver=solver, effort=effort, warm_start=warm_start,
            max_time=max_time, random_state=random_state, n_jobs=n_jobs, reservoir=reservoir, verbose=verbose,
            callback=callback,
        )  # fmt: skip

    def fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None, offset: ArrayLike | None = None) -> Any:
        """Fit the model.

        Parameters
        ----------
        X : array, sparse matrix, table (pandas, polars, Arrow), Dask collection or source, of shape (n, d)
        y : array of shape (n,) or (n, targets)
        sample_weight : array of shape (n,), default=None
            Weights of the rows; a weight of two counts as two rows.
        offset : array of shape (n,) or (n, targets), default=None
            Added to every prediction in the loss, for rates of counts for example.

        Returns
        -------
        self
        """
        # entries that are not finite are found while the columns are standardised
        X, y = self._check_pairs(X, y, ensure_all_finite=not check_flag(self.standardize, "standardize"))
        weight = check_weights(sample_weight, X)
        self.__dict__.pop("reservoir_", None)
        return self._fit(X, y, weight, offset)

    def partial_fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Any:
        """Fit the model on these rows and those of earlier calls, of which `reservoir` rows are remembered.

        As long as all rows are remembered, the model is that of `fit` on all of them; afterwards that of a uniform
        sample, drawn with random_state.  Every call fits from scratch.  With warm_start=True it starts from the last
        model: faster, but it may then end in another local optimum than `fit`.  `fit` forgets the rows of earlier
        calls, and its own rows are not remembered.

        Parameters
        ----------
        X : array, sparse matrix or table of shape (n, d)
        y : array of shape (n,) or (n, targets)
        sample_weight : array of shape (n,), default=None
            Weights of the rows; a weight of two counts as two rows.

        Returns
        -------
        self

        Examples
        --------
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
        self._fit(rows.X, rows.y, rows.weight, None)
        self.reservoir_ = rows
        return self

    def _check_pairs(self, X: Any, y: Any, owner: Any = None, **settings: Any) -> tuple[Any, Array]:
        loss = self._check_loss()
        several = has_several_targets(y, self.loss)
        X, y = check_rows(owner or self, X, y, y_numeric=True, multi_output=several, order="C", **settings)
        y = as_real(y, "y").astype(np.float64, copy=False)
        losses.check_target(loss, y)
        return X, y

    def _given(self, y: Array, weight: Array | None, offset: Any = None) -> Given:
        """The targets and offsets in the units of the fit."""
        rows = self._check_flags(len(y), weight)
        if y.ndim == 2:
            self._check_joint("several targets", "or fit the targets one by one")
            return Given([Response(y, self.loss, offset)], weight, rows, {})
        shift = None if offset is None else check_vector(offset, "offset", len(y), "row")
        centre, size = self._unit(y, weight)
        if self.loss != "huber":
            return Given([Response(y, self.loss, shift)], weight, rows, {"unit_": size})
        centre = centre if self.fit_intercept else 0.0
        with np.errstate(over="ignore"):  # targets and offsets that become infinite are refused
            shift = None if shift is None else shift / size
            target = (y - centre) / size
        return Given([Response(target, self.loss, shift, centre, size)], weight, rows, {"unit_": size})

    def _shaped(self, coef: Array, constant: Array, dtype: Any, output: Response) -> tuple[NDArray[Any], Any]:
        """`coef_` and `intercept_`."""
        if output.several:
            return in_precision(coef, dtype), in_precision(constant, dtype)
        level = float(constant[0])
        return in_precision(np.append(coef[0], level), dtype)[:-1] if dtype != coef.dtype else coef[0], level

    def _fit(self, X: Any, y: Array, weight: Array | None, offset: Any) -> Any:
        start = None
        if self.warm_start and hasattr(self, "coef_") and self.coef_.shape == (*y.shape[1:], X.shape[1]):
            constants = np.atleast_1d(np.asarray(self.intercept_, dtype=np.float64))
            start = np.atleast_2d(self.coef_).astype(np.float64), constants
        return self._fit_given(X, self._given(y, weight, offset), start)

    def _unit(self, y: Array, weight: Array | None) -> tuple[float, float]:
        """The centre and the spread of the targets for Huber's loss, whose threshold is in units of that spread."""
        return _robust_size(y, weight) if self.loss == "huber" else (0.0, 1.0)

    def _one_output(self, y: Array, weight: Array | None) -> tuple[Array, Array | None, float]:
        """The targets as they were fitted, the weights, and the unit of the targets."""
        if self.coef_.ndim == 2:
            raise ValueError("fit must be a model of one target: the theorem is about one; fit them one by one")
        centre, size = self._unit(y, weight)
        return (y - (centre if self.fit_intercept else 0.0)) / size, weight, size

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the expected target of every row, (n,) or (n, targets)."""
        z = self._linear(X)
        z = z if self.coef_.ndim == 1 else z.reshape(-1, len(self.coef_))
        inverse_link = getattr(self._check_loss(), "inverse_link", None)
        with np.errstate(over="ignore"):
            return z if inverse_link is None else inverse_link(z)

    def to_sklearn(self) -> LinearRegression:
        """Return a LinearRegression with the same predictions, for deployment without ksparse."""
        if hasattr(self._check_loss(), "inverse_link"):
            raise ValueError(
                f"to_sklearn is for models whose predictions are linear: scikit-learn has none of this form for "
                f"loss={self.loss!r}"
            )
        check_is_fitted(self)
        plain = LinearRegression(fit_intercept=bool(self.fit_intercept))
        plain.coef_, plain.intercept_, plain.n_features_in_ = self.coef_.copy(), self.intercept_, self.n_features_in_
        if hasattr(self, "feature_names_in_"):
            plain.feature_names_in_ = self.feature_names_in_
        return plain

    def _output_names(self) -> list[str]:
        return ["y"] if self.coef_.ndim == 1 else [f"y{t}" for t in range(len(self.coef_))]

    def _targets(self, y: NDArray[Any]) -> list[Array]:
        """The targets of every output."""
        return list(y.astype(np.float64).reshape(len(y), -1).T)

    def _kind(self) -> str | None:
        """How several outputs belong together; files record it."""
        return "targets" if self.coef_.ndim == 2 else None

    def _restore(self, coef: Any, constants: Any, worth: Any, classes: Any, kind: Any) -> None:
        """Set the attributes that a file holds."""
        self._check_loss()
        if classes is not None or kind not in (None, "targets") or (kind is None and len(coef) != 1):
            raise ValueError("a regressor has one output, or targets, and no classes")
        if kind == "targets" and self.loss != "squared":
            raise ValueError("several targets are for loss='squared'")
        self.coef_, self.intercept_, self.worth_ = coef, constants, worth
        if kind is None:
            self.coef_, self.intercept_, self.worth_ = coef[0], float(constants[0]), worth[0]
        self.support_ = np.flatnonzero(np.atleast_2d(self.coef_).any(axis=0))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        known = isinstance(self.loss, str) and self.loss in losses.LOSSES
        tags.target_tags.positive_only = known and losses.kind_of_targets(self.loss) in ("counts", "positive")
        tags.target_tags.multi_output = self.loss == "squared"
        return tags
