"""KSparseRegressor."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import RegressorMixin
from sklearn.linear_model import LinearRegression

from .._validate import check_vector
from ._base import KSparseEstimator


def _robust_size(y: NDArray[np.float64]) -> tuple[float, float]:
    """The median, and the spread around it that outliers do not move."""
    centre = float(np.median(y))
    size = 1.4826 * float(np.median(np.abs(y - centre)))
    return centre, size if size > 0 else float(np.std(y)) or 1.0


class KSparseRegressor(RegressorMixin, KSparseEstimator):
    r"""Regression with at most k features.

    .. math:: \min_{w, b}\ \frac1n \sum_i φ(w\cdot x_i + b,\, y_i) + \frac{λ}{2}\|w\|^2
              \quad\text{s.t.}\quad \|w\|_0 \le k

    on columns of variance one.

    Parameters
    ----------
    k : int or float
        At most so many features; a share of the columns if between 0 and 1.  Clipped to the columns there are (`k_`).
    loss : "squared", "huber" or "poisson"
        Huber's loss is linear beyond 1.35 of the targets' own spread (1.4826 times their median absolute deviation).
    fit_intercept : bool
    standardize : bool
        Learn on columns of variance one (the coefficients are those of the columns as they are).  Sparse rows stay
        sparse; constant columns are never chosen.
    l2 : float
        λ, a small guard against columns that are nearly the same; 0.0 for none.
    positive : bool
        No negative coefficients.
    always_keep : names or numbers of columns, or a mask, optional
        In every model, beside the k.
    solver : "auto", a name or a solver
        "auto" is `Exchange`, or `PGD` with positive=True.
    warm_start : bool
        Start from the last fit.
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
    coef_ : array of shape (d,)
    intercept_ : float
    support_ : array of int
        The chosen columns.
    worth_ : array of shape (d,)
        By how much the objective would rise without each.
    k_ : int
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
    coef_: NDArray[Any]
    intercept_: float

    def __init__(
        self,
        k: int | float = 10,
        *,
        loss: str = "squared",
        fit_intercept: bool = True,
        standardize: bool = True,
        l2: float = 1e-5,
        positive: bool = False,
        always_keep: ArrayLike | None = None,
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
            always_keep=always_keep, solver=solver, warm_start=warm_start, max_time=max_time, random_state=random_state,
            n_jobs=n_jobs, reservoir=reservoir, verbose=verbose, callback=callback,
        )  # fmt: skip

    def fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None, offset: ArrayLike | None = None) -> Any:
        """Learn from rows X and targets y; `offset` is added to every prediction in the loss (for rates of counts)."""
        X, y = self._check_pairs(X, y, ensure_all_finite=not self.standardize)  # else scaling looks
        weight = self._weights(X, sample_weight)
        self._forget()
        return self._fit(X, y, weight, offset, warm=self.warm_start)

    def partial_fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Any:
        """Learn from these rows and those of earlier calls, as many as `reservoir` says.

        As long as there is room, the model is that of `fit` on all rows seen; afterwards on a uniform sample of them,
        drawn with random_state.  `fit` forgets them; its own rows are not remembered, its coefficients are a start.

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
        rows = self._remember(X, y, sample_weight)
        self._fit(rows.X, rows.y, rows.weight, None, warm=True)
        self.reservoir_ = rows
        return self

    def _check_pairs(self, X: Any, y: Any, **settings: Any) -> tuple[Any, NDArray[np.float64]]:
        loss = self._loss_name()
        X, y = self._check_rows(X, y, y_numeric=True, **settings)
        y = np.asarray(y, dtype=np.float64)
        if loss == "poisson" and (y < 0).any():
            raise ValueError(f"y must not be negative for loss='poisson', got {y.min():g}")
        return X, y

    def _fit(self, X: Any, y: NDArray[np.float64], weight: Any, offset: Any, warm: bool) -> Any:
        start = (self.coef_.astype(np.float64), float(self.intercept_)) if warm and hasattr(self, "coef_") else None
        centre, size = _robust_size(y) if self.loss == "huber" else (0.0, 1.0)
        if start is not None:
            start = (start[0] / size, (start[1] - centre) / size)
        if not self.fit_intercept:
            centre = 0.0
        shift = None if offset is None else check_vector(offset, "offset", len(y), "row") / size
        [fit] = self._learn_each(X, [(y - centre) / size], weight, shift, [start])
        result = fit.result
        self.coef_ = (size * fit.coef).astype(X.dtype)
        self.intercept_ = float(size * fit.intercept + centre)
        self.support_, self.worth_, self.certificate_ = np.flatnonzero(self.coef_), fit.worth, fit.certificate
        self.n_iter_, self.objective_ = max(1, result.n_stages), result.objective
        self.history_, self.status_, self.swap_optimal_ = result.history, result.status, result.swap_optimal
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """The expected target of every row."""
        z = self._linear(X)
        return np.exp(z) if self.loss == "poisson" else z

    def to_sklearn(self) -> LinearRegression:
        """The same predictions from a plain LinearRegression, for deployment without ksparse."""
        if self.loss == "poisson":
            raise ValueError(
                "to_sklearn is for loss='squared' and 'huber': scikit-learn's Poisson model has no such form"
            )
        plain = LinearRegression(fit_intercept=bool(self.fit_intercept))
        plain.coef_, plain.intercept_, plain.n_features_in_ = self.coef_.copy(), self.intercept_, self.n_features_in_
        if hasattr(self, "feature_names_in_"):
            plain.feature_names_in_ = self.feature_names_in_
        return plain

    def _output_names(self) -> list[str]:
        return ["y"]

    def _targets(self, y: NDArray[Any]) -> list[NDArray[np.float64]]:
        return [y.astype(np.float64)]

    def _restore(self, coef: Any, constants: Any, worth: Any, classes: Any) -> None:
        self._loss_name()
        if len(coef) != 1 or classes is not None:
            raise ValueError("a regressor has one output and no classes")
        self.coef_, self.intercept_, self.worth_ = coef[0], float(constants[0]), worth[0]
        self.support_ = np.flatnonzero(self.coef_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = self.loss == "poisson"
        return tags
