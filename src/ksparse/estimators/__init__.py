"""Estimators in the manner of scikit-learn: regression, classification, feature selection, and the choice of k.

`base` fits one model by calling the solvers, `tables` checks what users pass in, `worth` and `certificate` say how good
a fit is.  Files and Dask collections are read by `ksparse.sources`; pages and the command line are built on top.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .classifier import KSparseClassifier as KSparseClassifier
from .regressor import KSparseRegressor as KSparseRegressor
from .store import load as load

if TYPE_CHECKING:
    from .cv import KSparseClassifierCV as KSparseClassifierCV
    from .cv import KSparseRegressorCV as KSparseRegressorCV
    from .path import Path as Path
    from .path import k_path as k_path
    from .selector import KSparseSelector as KSparseSelector
    from .stability import Stability as Stability
    from .stability import support_stability as support_stability

# loaded when first used: a fit needs none of them
_HOME = {
    "KSparseClassifierCV": "cv",
    "KSparseRegressorCV": "cv",
    "KSparseSelector": "selector",
    "Path": "path",
    "Stability": "stability",
    "k_path": "path",
    "support_stability": "stability",
}

__all__ = ["KSparseClassifier", "KSparseRegressor", "load", *_HOME]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'ksparse.estimators' has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)
