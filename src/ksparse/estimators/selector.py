"""KSparseSelector: selects the features of a k-sparse model, as a step of a pipeline."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone
from sklearn.feature_selection import SelectorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from ..design import Source
from ..sources import as_source
from .classifier import KSparseClassifier
from .regressor import KSparseRegressor
from .tables import check_source


class KSparseSelector(SelectorMixin, MetaEstimatorMixin, BaseEstimator):
    """Select the columns that a k-sparse model chooses.

    Parameters
    ----------
    k : int or float, default=10
        The largest number of columns; a number between 0 and 1 is a share of them.
    estimator : KSparseRegressor or KSparseClassifier, default=None
        The model whose other settings are used.  By default a classifier if the targets are text, booleans or at most
        twenty different integers, and a regressor otherwise.

    Attributes
    ----------
    estimator_ : KSparseRegressor or KSparseClassifier
        The fitted model; its `support_` holds the chosen columns.
    n_features_in_ : int
        Number of columns of X.
    feature_names_in_ : array of str
        Names of the columns of X, if it had names.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from ksparse import KSparseSelector
    >>> X, y = load_diabetes(return_X_y=True)
    >>> KSparseSelector(k=2).fit_transform(X, y).shape
    (442, 2)
    """

    def __init__(self, k: int | float = 10, estimator: Any = None) -> None:
        self.k = k
        self.estimator = estimator

    def fit(self, X: Any, y: ArrayLike, **fit_params: Any) -> Any:
        """Choose the columns.

        Parameters
        ----------
        X : array, sparse matrix, table (pandas, polars, Arrow), Dask collection or source, of shape (n, d)
        y : array of shape (n,) or (n, targets)
        fit_params
            For `fit` of the model: sample_weight, offset.

        Returns
        -------
        self
        """
        # the model checks the rows; here only the names and the number of columns are stored
        X = as_source(X)
        if isinstance(X, Source):
            check_source(self, X)
        else:
            validate_data(self, X, skip_check_array=True)
        model = self.estimator if self.estimator is not None else self._guess(y)
        if not isinstance(model, KSparseRegressor | KSparseClassifier):
            raise ValueError(f"estimator must be a KSparseRegressor or a KSparseClassifier, got {model!r}")
        self.estimator_ = clone(model).set_params(k=self.k).fit(X, y, **fit_params)
        self.n_features_in_ = self.estimator_.n_features_in_
        return self

    @staticmethod
    def _guess(y: Any) -> Any:
        """A regressor or a classifier, by the kind of targets."""
        y = np.asarray(y)
        if y.ndim == 2:
            return KSparseRegressor()
        labels = y.dtype.kind in "bOUS"
        few = y.dtype.kind in "iu" and np.unique(y).size <= 20
        return KSparseClassifier() if labels or few else KSparseRegressor()

    def transform(self, X: Any) -> Any:
        """Return the chosen columns of X; those of a source as an array."""
        X = as_source(X)
        if not isinstance(X, Source):
            return super().transform(X)
        check_is_fitted(self)
        check_source(self, X, reset=False)
        return X.dense_columns(np.flatnonzero(self._get_support_mask())).astype(X.dtype)

    def _get_support_mask(self) -> NDArray[np.bool_]:
        check_is_fitted(self)
        mask = np.zeros(self.n_features_in_, dtype=bool)
        mask[self.estimator_.support_] = True
        return mask

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.required = True
        return tags
