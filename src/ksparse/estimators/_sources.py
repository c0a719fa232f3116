"""A source where an estimator takes X: what scikit-learn checks of arrays, checked here."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import check_array, column_or_1d

from ..design.blocks import Source, pick_rows


def check_source(
    model: Any,
    X: Source,
    y: Any = "no_validation",
    *,
    reset: bool = True,
    y_numeric: bool = False,
    multi_output: bool = False,
    ensure_min_samples: int = 1,
    **others: Any,
) -> Any:
    """Note names and number of the columns (or compare them), check the targets.  Rows are looked at as they come."""
    if not reset:
        _compare(model, X)
    else:
        model.n_features_in_ = X.shape[1]
        model.__dict__.pop("feature_names_in_", None)
        if X.names is not None:
            model.feature_names_in_ = np.array(X.names, dtype=object)
    if X.shape[0] < ensure_min_samples:
        raise ValueError(f"X must have at least {ensure_min_samples} rows, got {X.shape[0]}")
    if isinstance(y, str) and y == "no_validation":
        return X
    if y is None:
        raise ValueError("y must be given; a source that has targets holds them: fit(source, source.y)")
    if hasattr(y, "__dask_graph__"):
        y = y.compute()
    if multi_output:
        y = check_array(y, ensure_2d=False, dtype=np.float64 if y_numeric else None, input_name="y")
    else:
        y = column_or_1d(y, warn=True)
        y = check_array(y, ensure_2d=False, dtype=np.float64, input_name="y") if y_numeric else y
    if len(y) != X.shape[0]:
        raise ValueError(f"y must have one entry a row of X ({X.shape[0]}), got {len(y)}")
    return X, y


def _compare(model: Any, X: Source) -> None:
    """Whether these are the columns of the fit."""
    if X.shape[1] != model.n_features_in_:
        raise ValueError(
            f"X must have the {model.n_features_in_} columns of the fit, got a source with {X.shape[1]} columns"
        )
    known = getattr(model, "feature_names_in_", None)
    if known is None or X.names is None:
        return
    different = [(str(a), b) for a, b in zip(known, X.names, strict=True) if str(a) != b]
    if different:
        old, new = different[0]
        raise ValueError(f"X must have the columns of the fit in their order, got {new!r} where {old!r} was")


class Selected(Source):
    """Some rows of a source, in their order."""

    def __init__(self, source: Source, rows: Any) -> None:
        self._source, self._mask = source, np.zeros(source.shape[0], dtype=bool)
        self._mask[rows] = True
        share = np.count_nonzero(self._mask) / source.shape[0]
        super().__init__(
            (int(np.count_nonzero(self._mask)), source.shape[1]), source.dtype, sparse=source.sparse,
            entries=int(share * source.entries), names=source.names, memory=source.memory,
        )  # fmt: skip

    def blocks(self, columns: Any = None) -> Any:
        return self._source.map(pick_rows, self._mask, columns=columns)
