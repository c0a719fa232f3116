"""KSparseClassifier: classification with at most k features."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, softmax
from sklearn.base import ClassifierMixin
from sklearn.linear_model import LogisticRegression
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from .._validate import check_choice, check_flag
from ..design.standardized import in_precision
from .base import Array, KSparseEstimator
from .fitting import Given, Response
from .regressor import KSparseRegressor, shares_docs
from .tables import check_labels, check_rows, check_weights


def has_probabilities(model: Any) -> bool:
    """True if the loss gives probabilities; else an AttributeError says why not."""
    if model.loss != "logistic":
        raise AttributeError(f"probabilities are for loss='logistic', this model has {model.loss!r}")
    return True


def _known_classes(before: NDArray[Any] | None, classes: ArrayLike | None) -> NDArray[Any]:
    """The classes of `partial_fit`: the first call names them, and they stay the same."""
    if classes is None:
        if before is None:
            raise ValueError("classes must be given at the first call of partial_fit: all labels, including later ones")
        return before
    named = np.unique(np.asarray(classes))
    if named.size < 2:
        raise ValueError(f"classes must hold at least two classes, got {named.tolist()}")
    if before is not None and not np.array_equal(before, named):
        raise ValueError(f"classes must stay {before.tolist()}, got {named.tolist()}; fit starts afresh")
    return named


@shares_docs(KSparseRegressor)
class KSparseClassifier(ClassifierMixin, KSparseEstimator):
    r"""Classification with at most k features.

    .. math:: \min_{w, b}\ \frac1n \sum_i \log(1 + \exp(-y_i (w\cdot x_i + b))) + \frac{λ}{2}\|w\|^2
              \quad\text{s.t.}\quad \|w\|_0 \le k

    where y_i = ±1 and the columns of X are scaled to variance one.  For more than two classes the loss is that of the
    softmax, whose classes share the k features.

    Parameters
    ----------
    {k}
    loss : {"logistic", "squared_hinge"}, default="logistic"
        The loss of one row.
    {fit_intercept} {standardize}
    l2 : "auto" or float, default="auto"
        The ridge λ; 0.0 for none, but then separable classes have no solution, and the coefficients diverge.  "auto" is
        0.1·k·log(d + 1)/n, at most 0.1; it was chosen by held-out loss on several data sets.  The value used is `l2_`.
    {positive} {always_keep} {groups}
    multi_class : {"auto", "softmax", "ovr"}, default="auto"
        For more than two classes: "softmax" is one model of all classes with k features in all, "ovr" one model per
        class against the rest, with k features each.  "auto" is "softmax" where that is possible, and "ovr" for other
        losses than the logistic one, for positive=True and for other solvers than `Exchange`.
    class_weight : "balanced" or dict {class: weight}, default=None
        Weights of the classes; "balanced" makes them inversely proportional to the number of rows of each class.
    {solver} {effort} {warm_start} {max_time} {random_state} {n_jobs} {reservoir} {verbose} {callback}

    Attributes
    ----------
    coef_ : array of shape (1, d) or (classes, d)
        Coefficients in the units of X; with two classes, positive ones speak for ``classes_[1]``.
    intercept_ : array of shape (1,) or (classes,)
        Intercepts.
    classes_ : array
        The labels of the classes, sorted.
    multi_class_ : "softmax", "ovr", or None for two classes
        How several classes were fitted.
    support_ : array of int
        The columns that any class uses.
    {feature_worth_}
    worth_ : array of the shape of coef_
        For two classes the same numbers.  With "ovr", by how much the objective would rise without the column in one
        class.  With "softmax" an estimate for one coefficient, from a quadratic model of the objective in its class
        alone: it is far from the truth where a feature matters much, and the estimates do not add up.
    {worth_rows_} {groups_} {support_groups_} {n_groups_} {kept_} {scale_} {k_} {l2_} {n_rows_} {n_iter_}
    objective_ : float
        The objective on the scaled columns; with "ovr" the sum over the classes.
    history_ : History, or list of History
        The objective after every stage, as in `Result`; with "ovr" a list over the classes.
    status_ : Status, or list of Status
        How the fit ended, as in `Result`; with "ovr" a list over the classes.
    swap_optimal_ : bool or None, or list
        Whether no exchange of a chosen feature for another lowers the objective; None if the solver does not know.
        With "ovr" a list over the classes.
    certificate_ : FitCertificate, or list of FitCertificate
        What is certain about the fit; print it.  With "ovr" a list over the classes.
    {reservoir_} {n_features_in_} {feature_names_in_}

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from ksparse import KSparseClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = KSparseClassifier(k=3).fit(X, y)
    >>> model.support_.size, round(model.score(X, y), 2)
    (3, 0.97)
    """

    _row_arguments = ("sample_weight",)
    _ridge_power = 1  # it must not vanish with many rows: classes may be separable
    multi_class: str
    class_weight: Any
    classes_: NDArray[Any]
    multi_class_: str | None

    def __init__(
        self,
        k: int | float = 10,
        *,
        loss: str = "logistic",
        fit_intercept: bool = True,
        standardize: bool = True,
        l2: float | str = "auto",
        positive: bool = False,
        always_keep: ArrayLike | None = None,
        groups: Any = None,
        multi_class: str = "auto",
        class_weight: Any = None,
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
            always_keep=always_keep, groups=groups, multi_class=multi_class, class_weight=class_weight, solver=solver,
            effort=effort, warm_start=warm_start, max_time=max_time, random_state=random_state, n_jobs=n_jobs,
            reservoir=reservoir, verbose=verbose, callback=callback,
        )  # fmt: skip

    def fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Any:
        """Fit the model.

        Parameters
        ----------
        X : array, sparse matrix, table (pandas, polars, Arrow), Dask collection or source, of shape (n, d)
        y : array of shape (n,)
            Labels of any kind.
        sample_weight : array of shape (n,), default=None
            Weights of the rows; a weight of two counts as two rows.

        Returns
        -------
        self
        """
        # entries that are not finite are found while the columns are standardised
        X, y = self._check_pairs(X, y, ensure_all_finite=not check_flag(self.standardize, "standardize"))
        given = self._given(y, check_weights(sample_weight, X))
        self.__dict__.pop("reservoir_", None)
        return self._fit(X, given)

    def partial_fit(
        self, X: Any, y: ArrayLike, classes: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> Any:
        """Fit the model on these rows and those of earlier calls, of which `reservoir` rows are remembered.

        As long as all rows are remembered, the model is that of `fit` on all of them; afterwards that of a uniform
        sample, drawn with random_state.  Every call fits from scratch.  With warm_start=True it starts from the last
        model: faster, but it may then end in another local optimum than `fit`.  `fit` forgets the rows of earlier
        calls, and its own rows are not remembered.

        Parameters
        ----------
        X : array, sparse matrix or table of shape (n, d)
        y : array of shape (n,)
        classes : array, default=None
            All labels, including later ones; the first call needs them.  The score of a class without rows so far is
            finite: as low as half a row among all others would make it.
        sample_weight : array of shape (n,), default=None
            Weights of the rows; a weight of two counts as two rows.

        Returns
        -------
        self

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from ksparse import KSparseClassifier
        >>> X, y = load_iris(return_X_y=True)
        >>> model = KSparseClassifier(k=2).partial_fit(X[:100], y[:100], classes=[0, 1, 2])
        >>> model.partial_fit(X[100:], y[100:]).score(X, y) > 0.9
        True
        """
        X, y = self._check_pairs(X, y, reset=not hasattr(self, "coef_"))
        known = _known_classes(getattr(self, "classes_", None), classes)
        unknown = y[~np.isin(y, known)]
        if unknown.size:
            raise ValueError(f"y must hold classes that the first call named, got {unknown[0]!r}; fit starts afresh")
        rows = self._remember(X, np.searchsorted(known, y), sample_weight)
        self._fit(rows.X, self._given_classes(known, rows.y, rows.weight))
        self.reservoir_ = rows
        return self

    def _check_pairs(self, X: Any, y: Any, owner: Any = None, **settings: Any) -> tuple[Any, NDArray[Any]]:
        self._check_loss()
        X, y = check_rows(owner or self, X, y, order="C", **settings)
        check_labels(y)
        return X, y

    def _given(self, y: NDArray[Any], weight: Array | None, offset: Any = None) -> Given:
        """The labels as targets, and the weights of the rows times those of their classes."""
        classes, index = np.unique(y, return_inverse=True)
        if classes.size < 2:
            raise ValueError(
                f"y must hold at least two classes, got only {classes.tolist()[0]!r}: one class is nothing to learn"
            )
        return self._given_classes(classes, index, weight)

    def _given_classes(self, classes: NDArray[Any], index: NDArray[np.int64], weight: Array | None) -> Given:
        """The same for rows with class numbers `index`."""
        rows, way = self._check_flags(len(index), weight), self._way(classes.size)
        weight = self._class_weights(classes, index, weight)
        if way == "softmax" and np.unique(index).size < classes.size:
            way = "ovr"  # until rows of every class have been seen
        if way == "softmax":
            outputs = [Response(index, "softmax")]
        else:
            positives = [1] if classes.size == 2 else range(classes.size)
            outputs = [Response(np.where(index == c, 1.0, -1.0), self.loss) for c in positives]
        return Given(outputs, weight, rows, {"classes_": classes, "multi_class_": way})

    def _shaped(self, coef: Array, constant: Array, dtype: Any, output: Response) -> tuple[NDArray[Any], NDArray[Any]]:
        """`coef_` and `intercept_`."""
        return in_precision(coef, dtype), in_precision(constant, dtype)

    def _fit(self, X: Any, given: Given) -> Any:
        start, classes = None, given.attributes["classes_"]
        same = hasattr(self, "coef_") and self.coef_.shape[1] == X.shape[1] and np.array_equal(self.classes_, classes)
        if self.warm_start and same:
            start = self.coef_.astype(np.float64), self.intercept_.astype(np.float64)
        return self._fit_given(X, given, start)

    def _way(self, classes: int) -> str | None:
        """How several classes are fitted: "softmax" or "ovr"; None for two classes."""
        way = check_choice(self.multi_class, "multi_class", ("auto", "softmax", "ovr"))
        if way == "softmax":
            if self.loss != "logistic":
                raise ValueError(f"multi_class='softmax' is for loss='logistic', got {self.loss!r}; use 'ovr'")
            if classes > 2:
                self._check_joint("multi_class='softmax'", "or use multi_class='ovr'")
        if classes == 2:
            return None
        if way == "auto":
            able = self.loss == "logistic" and not self.positive
            return "softmax" if able and self._may_be_joint() else "ovr"
        return way

    def _class_weights(self, classes: NDArray[Any], index: NDArray[np.int64], weight: Array | None) -> Array | None:
        """The weights of the rows, times those of their classes."""
        if self.class_weight is None:
            return weight
        each = np.ones(index.size) if weight is None else weight
        if isinstance(self.class_weight, str) and self.class_weight == "balanced":
            count = np.bincount(index, weight, minlength=classes.size)  # rows of each class, by weight
            share = np.divide(each, count[index], out=np.zeros(index.size), where=each > 0)  # of a row in its class
            both = share * (count.sum() / np.count_nonzero(count))
        else:
            both = compute_class_weight(self.class_weight, classes=classes, y=classes[index])[index] * each
        if not both.any():
            raise ValueError(f"class_weight must leave rows that count, got {self.class_weight!r}")
        return both

    def _one_output(self, y: NDArray[Any], weight: Array | None) -> tuple[Array, Array | None, float]:
        """The targets as they were fitted, the weights times those of the classes, and the unit of the targets."""
        if len(self.classes_) > 2:
            raise ValueError(
                "fit must be a model of two classes: the theorem is about one score; fit one against the others"
            )
        if not np.isin(y, self.classes_).all():
            raise ValueError(f"y must hold the classes of the fit, {self.classes_.tolist()}")
        index = np.searchsorted(self.classes_, y)
        return np.where(index == 1, 1.0, -1.0), self._class_weights(self.classes_, index, weight), 1.0

    def decision_function(self, X: Any) -> NDArray[Any]:
        """Return the scores: (n,) for two classes, (n, classes) for more."""
        return self._linear(X)

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the class of every row."""
        scores = self.decision_function(X)
        return self.classes_[(scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)]

    @available_if(has_probabilities)
    def predict_proba(self, X: Any) -> NDArray[Any]:
        """Return the probabilities of the classes, (n, classes); with "ovr" each against the rest, scaled to sum 1."""
        scores = self.decision_function(X)
        if self.multi_class_ == "softmax":
            return softmax(scores, axis=1)
        if scores.ndim == 1:
            return np.column_stack([expit(-scores), expit(scores)])
        each = expit(scores)
        total = each.sum(axis=1, keepdims=True)
        return np.where(total > 0, each / np.where(total > 0, total, 1.0), 1.0 / each.shape[1])

    @available_if(has_probabilities)
    def predict_log_proba(self, X: Any) -> NDArray[Any]:
        """Return the logarithms of `predict_proba`, (n, classes)."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    def to_sklearn(self) -> LogisticRegression:
        """Return a LogisticRegression with the same decisions, for deployment without ksparse."""
        check_is_fitted(self)
        if self.loss != "logistic" or self.multi_class_ == "ovr":
            raise ValueError("to_sklearn is for loss='logistic', with two classes or multi_class='softmax'")
        plain = LogisticRegression(fit_intercept=bool(self.fit_intercept))
        plain.coef_, plain.intercept_, plain.classes_ = self.coef_.copy(), self.intercept_.copy(), self.classes_
        plain.n_features_in_, plain.n_iter_ = self.n_features_in_, np.array([getattr(self, "n_iter_", 1)])
        if hasattr(self, "feature_names_in_"):
            plain.feature_names_in_ = self.feature_names_in_
        return plain

    def _output_names(self) -> list[str]:
        return [str(c) for c in (self.classes_[1:] if len(self.classes_) == 2 else self.classes_)]

    def _targets(self, y: NDArray[Any]) -> list[Array]:
        """The targets ±1 of every output."""
        positives = self.classes_[1:] if len(self.classes_) == 2 else self.classes_
        return [np.where(y == c, 1.0, -1.0) for c in positives]

    def _kind(self) -> str | None:
        """How several outputs belong together; files record it."""
        return self.multi_class_

    def _restore(self, coef: Any, constants: Any, worth: Any, classes: Any, kind: Any) -> None:
        """Set the attributes that a file holds."""
        self._check_loss()
        plain = isinstance(classes, list) and all(isinstance(c, str | int | float) for c in classes)
        if not plain or len(set(classes)) != len(classes) or len(coef) != (1 if len(classes) == 2 else len(classes)):
            raise ValueError("classes must be different labels, one per output (two for a single output)")
        several = len(classes) > 2
        if kind not in ((None, "softmax", "ovr") if several else (None,)):
            raise ValueError(f"kind must be 'softmax' or 'ovr' for several classes, got {kind!r}")
        self.multi_class_ = (kind or "ovr") if several else None
        self.classes_ = np.array(classes)
        self.coef_, self.intercept_, self.worth_ = coef, constants, worth
        self.support_ = np.flatnonzero(coef.any(axis=0))
