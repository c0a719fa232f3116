"""Estimators in the manner of scikit-learn: say k, get k."""

from ._store import load
from .classifier import KSparseClassifier
from .cv import KSparseClassifierCV, KSparseRegressorCV
from .path import Path, k_path
from .regressor import KSparseRegressor
from .selector import KSparseSelector
from .stability import Stability, support_stability

__all__ = [
    "KSparseClassifier",
    "KSparseClassifierCV",
    "KSparseRegressor",
    "KSparseRegressorCV",
    "KSparseSelector",
    "Path",
    "Stability",
    "k_path",
    "load",
    "support_stability",
]
