"""Rows given as an array or as a table of pandas, polars or Arrow, checked as scikit-learn does.

What is no finite number is named by its column and row, with the remedy.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, validate_data

from .._validate import as_real
from ..design.matrix import canonical

TIMES = ("date", "timestamp", "duration", "time")  # how such types are called, in any library
DATES = "turn dates into numbers first, such as days since a fixed day, or leave the column out"
TEXT = "encode it, with sklearn.preprocessing.OneHotEncoder for example, or leave the column out"
MISSING = "impute it, with sklearn.impute.SimpleImputer for example, or leave the row or the column out"


def check_rows(model: Any, X: Any, y: Any = "no_validation", **settings: Any) -> Any:
    """What `validate_data` makes of X (and y): arrays of floats, or canonical CSR."""
    _refuse_dates(X)
    try:
        with np.errstate(invalid="ignore"):  # scikit-learn adds up X to see whether it is finite
            checked = validate_data(
                model, X, y, accept_sparse="csr", dtype=[np.float64, np.float32], accept_large_sparse=True, **settings
            )
    except (ValueError, TypeError, OverflowError) as error:
        if "feature names" in str(error) or "Complex data" in str(error):
            raise
        said = find_trouble(X, "X") or (find_trouble(y, "y") if settings.get("y_numeric") else None)
        if said is None:
            raise
        raise ValueError(said) from None
    return (canonical(checked[0], "X"), *checked[1:]) if isinstance(checked, tuple) else canonical(checked, "X")


def check_labels(y: Any) -> None:
    """Refuse targets that are no classes."""
    with np.errstate(invalid="ignore"):  # scikit-learn asks whether floats are integers by making them so
        check_classification_targets(y)


def check_weights(sample_weight: Any, X: Any) -> NDArray[np.float64] | None:
    """One weight per row, or None; a number stands for equal weights."""
    if sample_weight is None:
        return None
    weight = as_real(sample_weight, "sample_weight")
    if not np.isfinite(weight.astype(np.float64)).all():
        raise ValueError(f"sample_weight must be finite, got {weight[~np.isfinite(weight)].ravel()[0]}")
    given: Any = weight if weight.ndim else float(weight)
    weight = _check_sample_weight(given, X, dtype=np.float64, ensure_non_negative=True)
    if not weight.any():
        raise ValueError("sample_weight must not be all zero: no row would count")
    return weight


def find_trouble(X: Any, argument: str, names: Sequence[Any] | None = None) -> str | None:
    """The first value that is no finite number, in words; None if there is none, or if X is nothing of this kind."""
    if hasattr(X, "tocoo"):
        X = X.tocoo()
        bad = np.flatnonzero(~np.isfinite(X.data))[:1]
        return _said(X.data[bad[0]], argument, f"row {X.row[bad[0]]}, column {X.col[bad[0]]}") if bad.size else None
    columns, table = _columns(X)
    names = table if names is None else names
    for j, column in enumerate(columns):
        at = _first_bad(column)
        if at is not None:
            row, value = at
            index: Any = getattr(X, "index", None)  # of pandas, where it says more than the number of the row
            label = f" (index {_short(index[row])})" if hasattr(index, "get_loc") and index[row] != row else ""
            place = f", column {j if names is None else repr(names[j])}" if np.ndim(X) == 2 else ""
            return _said(value, argument, f"row {row}{label}{place}")
    return None


def _refuse_dates(X: Any) -> None:
    """Some libraries would give them as numbers, of a unit that nobody chose."""
    if hasattr(X, "column_names"):  # Arrow
        types = X.schema.types
    elif hasattr(X, "columns"):
        types = X.dtypes
    else:
        types = [X.dtype] if hasattr(X, "dtype") else []
    kinds = {kind: str(kind) for kind in set(types)}
    for j, kind in enumerate(types if any(text.lower().startswith(TIMES) for text in kinds.values()) else ()):
        if kinds[kind].lower().startswith(TIMES):
            names = _columns(X)[1]
            where = "X" if names is None else f"X: column {names[j]!r}"
            raise ValueError(f"{where} holds dates or times ({kinds[kind]}), not numbers; {DATES}")


def _columns(X: Any) -> tuple[list[Any], Sequence[Any] | None]:
    """The columns, and their names if they have some."""
    if hasattr(X, "iloc"):  # pandas
        return ([X] if X.ndim == 1 else [X.iloc[:, j] for j in range(X.shape[1])]), list(
            getattr(X, "columns", [])
        ) or None
    if hasattr(X, "column_names"):  # Arrow
        return [column.to_pylist() for column in X.columns], X.column_names
    if hasattr(X, "get_columns"):  # polars
        return X.get_columns(), X.columns
    try:
        array = np.asarray(X)
    except ValueError:  # a list whose parts differ in length
        return [], None
    return ([array] if array.ndim == 1 else list(array.T) if array.ndim == 2 else []), None


def _first_bad(column: Any) -> tuple[int, Any] | None:
    """The first row whose value is no finite number, and that value."""
    try:
        numbers = np.asarray(column, dtype=np.float64)
    except (ValueError, TypeError, OverflowError):
        return next(((row, value) for row, value in enumerate(column) if not _is_finite(value)), None)
    bad = np.flatnonzero(~np.isfinite(numbers))
    return (int(bad[0]), numbers[bad[0]]) if bad.size else None


def _is_finite(value: Any) -> bool:
    try:
        return bool(np.isfinite(float(value)))
    except (ValueError, TypeError, OverflowError):
        return False


def _said(value: Any, argument: str, place: str) -> str | None:
    if isinstance(value, np.floating):
        value = float(value)
    if isinstance(value, str | bytes):
        return f"{argument}: {_short(value)} stands in {place}, which must hold numbers; {TEXT}"
    if value is None or type(value).__name__ in ("NAType", "NaTType") or (isinstance(value, float) and value != value):
        return f"{argument}: the value in {place} is missing (NaN); {MISSING}"
    if isinstance(value, datetime.date | datetime.timedelta | datetime.time) or hasattr(value, "to_timestamp"):
        return f"{argument}: {_short(value)} stands in {place}, which must hold numbers; {DATES}"
    if isinstance(value, int | float):
        return f"{argument}: the value in {place} is {_short(value)}: numbers must be finite (no infinity); replace it"
    return None


def _short(value: Any) -> str:
    text = repr(str(value)) if isinstance(value, str) else str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
