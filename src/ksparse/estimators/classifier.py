"""KSparseClassifier."""

from __future__ import annotations

from dataclasses import replace
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
from ..result import Status
from ._base import KSparseEstimator, Learnt
from ._evidence import FitCertificate
from ._joint import fit_outputs, note_groups, refuse_what_is_not_there, solver_knows_units, start_from
from ._tables import check_labels, check_weights


def _has_probabilities(model: Any) -> bool:
    if model.loss != "logistic":
        raise AttributeError(f"probabilities are for loss='logistic', this model has {model.loss!r}")
    return True


def _known_classes(before: NDArray[Any] | None, classes: ArrayLike | None) -> NDArray[Any]:
    """The classes that `partial_fit` goes by: named at the first call, and the same ever after."""
    if classes is None:
        if before is None:
            raise ValueError("classes must be given at the first call of partial_fit: all labels, also those to come")
        return before
    named = np.unique(np.asarray(classes))
    if named.size < 2:
        raise ValueError(f"classes must hold at least two classes, got {named.tolist()}")
    if before is not None and not np.array_equal(before, named):
        raise ValueError(f"classes must stay {before.tolist()}, got {named.tolist()}; fit starts anew")
    return named


class KSparseClassifier(ClassifierMixin, KSparseEstimator):
    r"""Classification with at most k features.

    .. math:: \min_{w, b}\ \frac1n \sum_i \log(1 + \exp(-y_i (w\cdot x_i + b))) + \frac{λ}{2}\|w\|^2
              \quad\text{s.t.}\quad \|w\|_0 \le k

    on columns of variance one; for more than two classes the softmax, whose classes share the k features.

    Parameters
    ----------
    k, fit_intercept, standardize, positive, always_keep, groups, solver, warm_start, max_time, random_state, n_jobs,
    reservoir, verbose, callback
        As in `KSparseRegressor`.
    loss : "logistic" or "squared_hinge"
    multi_class : "auto", "softmax" or "ovr"
        For more than two classes: one model of all classes with k features in all, or a model a class against the rest
        with k features each.  "auto" is "softmax" for the logistic loss, and "ovr" where that cannot be had: for other
        losses, positive=True or another solver.
    l2 : "auto" or float
        λ: without a ridge separable classes have no solution, and weights run away.  "auto" is 0.1·k·log(d + 1)/n, 0.1
        at most, chosen by held-out loss on several data sets; 0.0 for none.  What was used is `l2_`.
    class_weight : "balanced" or dict, optional
        As in scikit-learn.

    Attributes
    ----------
    coef_ : array of shape (1, d) or (classes, d)
    intercept_ : array of shape (1,) or (classes,)
    classes_ : array
    multi_class_ : "softmax", "ovr", or None for two classes
    support_ : array of int
        The columns that any class uses.
    feature_worth_ : array of shape (d,)
        By how much the objective would rise without each column in any class; as in `KSparseRegressor`.
    worth_ : array of the shape of coef_
        For two classes the same numbers.  With "ovr", by how much the objective would rise without the column in one
        class.  With "softmax" an estimate for one coefficient, from a quadratic model of the objective in its class
        alone: far from the truth where a feature matters much, and not to be added up.
    groups_, support_groups_, n_groups_, kept_, worth_rows_
        As in `KSparseRegressor`.
    k_, l2_, scale_, n_rows_, n_iter_, objective_, history_, status_, swap_optimal_, certificate_, reservoir_,
    n_features_in_, feature_names_in_
        As in `KSparseRegressor`; with "ovr" the objective is the sum over the classes, and history_, status_,
        swap_optimal_ and certificate_ are lists.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from ksparse import KSparseClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = KSparseClassifier(k=3).fit(X, y)
    >>> model.support_.size, round(model.score(X, y), 2)
    (3, 0.97)
    """

    _losses = ("logistic", "squared_hinge")
    _ridge_power = 1  # also where there are many rows: classes may be separable
    multi_class: str
    class_weight: Any
    multi_class_: str | None
    coef_: NDArray[Any]
    intercept_: NDArray[Any]
    classes_: NDArray[Any]

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
            warm_start=warm_start, max_time=max_time, random_state=random_state, n_jobs=n_jobs, reservoir=reservoir,
            verbose=verbose, callback=callback,
        )  # fmt: skip

    def fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Any:
        """Learn from rows X and labels y of any kind."""
        X, y = self._check_pairs(
            X, y, ensure_all_finite=not check_flag(self.standardize, "standardize")
        )  # else scaling looks
        classes, index = np.unique(y, return_inverse=True)
        if classes.size < 2:
            raise ValueError(
                f"y must hold at least two classes, got only {classes.tolist()[0]!r}: one class is nothing to learn"
            )
        weight = check_weights(sample_weight, X)
        self._forget()
        return self._fit(X, classes, index, weight, warm=self.warm_start)

    def partial_fit(
        self, X: Any, y: ArrayLike, classes: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> Any:
        """Learn from these rows and those of earlier calls, as in `KSparseRegressor.partial_fit`.

        The first call needs all `classes`, also those to come.  The score of one without a row so far is a number, as
        low as half a row among all others would make it.

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
            raise ValueError(f"y must hold classes that the first call named, got {unknown[0]!r}; fit starts anew")
        rows = self._remember(X, np.searchsorted(known, y), sample_weight)
        self._fit(rows.X, known, rows.y, rows.weight, warm=self.warm_start)
        self.reservoir_ = rows
        return self

    def _check_pairs(self, X: Any, y: Any, **settings: Any) -> tuple[Any, NDArray[Any]]:
        self._loss_name()
        X, y = self._check_rows(X, y, order="C", **settings)
        check_labels(y)
        return X, y

    def _fit(self, X: Any, classes: NDArray[Any], index: NDArray[np.int64], weight: Any, warm: bool) -> Any:
        self._begin(len(index), weight)
        weight = self._class_weights(classes, index, weight)
        same = hasattr(self, "coef_") and self.coef_.shape[1] == X.shape[1] and np.array_equal(self.classes_, classes)
        again, way = warm and same, self._way(classes.size)
        if way == "softmax" and np.unique(index).size < classes.size:
            way = "ovr"  # until every class has been seen
        if way == "softmax":
            fit_outputs(self, X, index, weight, None, "softmax", again)
            self.classes_, self.multi_class_ = classes, way
            return self
        positives = [1] if classes.size == 2 else range(classes.size)
        targets = [np.where(index == c, 1.0, -1.0) for c in positives]
        starts = zip(self.coef_.astype(np.float64), self.intercept_, strict=True) if again else [None] * len(targets)
        fits = self._learn_each(X, targets, weight, None, list(starts))
        results = [fit.result for fit in fits]
        self.classes_, self.multi_class_ = classes, way  # now that nothing can fail
        self.coef_ = in_precision(np.array([fit.coef for fit in fits]), X.dtype)
        self.intercept_ = in_precision(np.array([fit.intercept for fit in fits]), X.dtype)
        self.worth_ = np.array([fit.worth for fit in fits])
        self.feature_worth_ = self.worth_.sum(axis=0)  # the objective is the sum over the models
        self.worth_rows_ = min(fit.worth_rows for fit in fits)
        self.support_ = np.flatnonzero(self.coef_.any(axis=0))
        self.n_iter_ = max(1, max(result.n_stages for result in results))
        self.objective_ = sum(result.objective for result in results)
        note_groups(self)
        several = len(results) > 1
        self.history_ = [result.history for result in results] if several else results[0].history
        self.status_ = [result.status for result in results] if several else results[0].status
        self.swap_optimal_ = [result.swap_optimal for result in results] if several else results[0].swap_optimal
        self.certificate_ = [fit.certificate for fit in fits] if several else fits[0].certificate
        return self

    def _learn(self, X: Any, target: NDArray[np.float64], *others: Any) -> Any:
        """As for all estimators; but a class without rows, or without others, has no best score but infinity."""
        if target.min() < target.max():
            return super()._learn(X, target, *others)
        n, d = X.shape
        self.k_ = self._count(d - self._kept(d).size)
        self.l2_ = self._ridge(d)
        self.__dict__.setdefault("scale_", np.ones(d))
        status = Status("converged", "all rows seen so far are on one side of this class")
        objective = float(np.log1p(1.0 / (2 * n + 1))) if self.loss == "logistic" else 0.0
        flat = replace(
            start_from(np.zeros(d), float(target[0] * np.log(2 * n + 1))), objective=objective, status=status
        )
        certificate = FitCertificate("stationary", False, 0.0, 0.0, 0.0, 0.0, objective)
        return Learnt(flat, flat.x, flat.intercept, np.zeros(d), certificate, n)

    def _way(self, classes: int) -> str | None:
        """How several classes are met; None for two."""
        way = check_choice(self.multi_class, "multi_class", ("auto", "softmax", "ovr"))
        if way == "softmax":
            if self.loss != "logistic":
                raise ValueError(f"multi_class='softmax' is for loss='logistic', got {self.loss!r}; use 'ovr'")
            if classes > 2:
                refuse_what_is_not_there(self, "multi_class='softmax'", "or use multi_class='ovr'")
        if classes == 2:
            return None
        if way == "auto":
            able = self.loss == "logistic" and not self.positive
            return "softmax" if able and solver_knows_units(self) else "ovr"
        return way

    def _class_weights(self, classes: Any, index: Any, weight: Any) -> Any:
        if self.class_weight is None:
            return weight
        each = np.ones(index.size) if weight is None else weight
        if isinstance(self.class_weight, str) and self.class_weight == "balanced":
            count = np.bincount(index, weight, minlength=classes.size)  # rows of each class, a weight of two is two
            share = np.divide(each, count[index], out=np.zeros(index.size), where=each > 0)  # of a row in its class
            both = share * (count.sum() / np.count_nonzero(count))
        else:
            both = compute_class_weight(self.class_weight, classes=classes, y=classes[index])[index] * each
        if not both.any():
            raise ValueError(f"class_weight must leave rows that count, got {self.class_weight!r}")
        return both

    def _one_output(self, y: NDArray[Any], weight: Any) -> tuple[NDArray[np.float64], Any, float]:
        """The targets as they were fitted, the weights with those of the classes, and the unit of the targets."""
        if len(self.classes_) > 2:
            raise ValueError(
                "fit must be a model of two classes: the theorem is about one score; fit one against the others"
            )
        if not np.isin(y, self.classes_).all():
            raise ValueError(f"y must hold the classes of the fit, {self.classes_.tolist()}")
        index = np.searchsorted(self.classes_, y)
        return np.where(index == 1, 1.0, -1.0), self._class_weights(self.classes_, index, weight), 1.0

    def decision_function(self, X: Any) -> NDArray[Any]:
        """Scores: (n,) for two classes, (n, classes) for more."""
        return self._linear(X)

    def predict(self, X: Any) -> NDArray[Any]:
        """The class of every row."""
        scores = self.decision_function(X)
        return self.classes_[(scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)]

    @available_if(_has_probabilities)
    def predict_proba(self, X: Any) -> NDArray[Any]:
        """Probabilities of the classes, (n, classes); with "ovr" each against the rest, scaled to one."""
        scores = self.decision_function(X)
        if self.multi_class_ == "softmax":
            return softmax(scores, axis=1)
        if scores.ndim == 1:
            return np.column_stack([expit(-scores), expit(scores)])
        each = expit(scores)
        total = each.sum(axis=1, keepdims=True)
        return np.where(total > 0, each / np.where(total > 0, total, 1.0), 1.0 / each.shape[1])

    @available_if(_has_probabilities)
    def predict_log_proba(self, X: Any) -> NDArray[Any]:
        """Logarithms of `predict_proba`."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    def to_sklearn(self) -> LogisticRegression:
        """The same decisions from a plain LogisticRegression, for deployment without ksparse."""
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

    def _targets(self, y: NDArray[Any]) -> list[NDArray[np.float64]]:
        positives = self.classes_[1:] if len(self.classes_) == 2 else self.classes_
        return [np.where(y == c, 1.0, -1.0) for c in positives]

    def _kind(self) -> str | None:
        """What a file must say about the outputs."""
        return self.multi_class_

    def _restore(self, coef: Any, constants: Any, worth: Any, classes: Any, kind: Any) -> None:
        self._loss_name()
        plain = isinstance(classes, list) and all(isinstance(c, str | int | float) for c in classes)
        if not plain or len(set(classes)) != len(classes) or len(coef) != (1 if len(classes) == 2 else len(classes)):
            raise ValueError("classes must be different labels, one an output (two for a single output)")
        several = len(classes) > 2
        if kind not in ((None, "softmax", "ovr") if several else (None,)):
            raise ValueError(f"kind must be 'softmax' or 'ovr' for several classes, got {kind!r}")
        self.multi_class_ = (kind or "ovr") if several else None
        self.classes_ = np.array(classes)
        self.coef_, self.intercept_, self.worth_ = coef, constants, worth
        self.support_ = np.flatnonzero(coef.any(axis=0))
