"""Estimators in the manner of scikit-learn: regression, classification, feature selection, and the choice of k.

`base` fits one model by calling the solvers, `tables` checks what users pass in, `worth` and `certificate` say how good
a fit is.  Files and Dask collections are read by `ksparse.sources`; pages and the command line are built on top.
"""

from .classifier import KSparseClassifier
from .cv import KSparseClassifierCV, KSparseRegressorCV
from .path import Path, k_path
from .regressor import KSparseRegressor
from .selector import KSparseSelector
from .stability import Stability, support_stability
from .store import load

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
