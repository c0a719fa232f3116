"""What an estimator is given, checked: rows (arrays, tables, sources), weights, and columns that the user names.

An entry that is not a finite number is reported with its row, its column and a remedy.  `Reservoir` holds the rows that
`partial_fit` remembers.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils import check_array, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, validate_data

from .._validate import as_array, as_real, canonical
from ..design import Source
from ..design.blocks import pick_rows
from ..sources import as_source

FLOATS = (np.dtype(np.float64), np.dtype(np.float32))
TIMES = ("date", "timestamp", "duration", "time")  # how the names of such types begin, in every library
DATES = "turn dates into numbers first, such as days since a fixed day, or leave the column out"
TEXT = "encode it, with sklearn.preprocessing.OneHotEncoder for example, or leave the column out"
MISSING = "impute it, with sklearn.impute.SimpleImputer for example, or leave the row or the column out"


# --- rows and targets ------------------------------------------------------------------------------------------------
def check_rows(model: Any, X: Any, y: Any = "no_validation", **settings: Any) -> Any:
    """Return X (and y, if given) as scikit-learn's `validate_data` does: arrays of floats, canonical CSR, or a source.

    Sets `n_features_in_` and `feature_names_in_` of the model; with reset=False it compares X with them instead.
    """
    X = as_source(X)
    if isinstance(X, Source):
        return check_source(model, X, y, **settings)
    if _is_plain(model, X, y, **settings):
        model.n_features_in_ = X.shape[1]
        model.__dict__.pop("feature_names_in_", None)
        return X if isinstance(y, str) else (X, y)
    _refuse_dates(X)
    try:
        with np.errstate(invalid="ignore"):  # scikit-learn adds up X to see whether it is finite
            checked = validate_data(
                model, X, y, accept_sparse="csr", dtype=[np.float64, np.float32], accept_large_sparse=True, **settings
            )
    except (ValueError, TypeError, OverflowError) as error:
        if "feature names" in str(error) or "Complex data" in str(error):
            raise
        message = find_bad_entry(X, "X") or (find_bad_entry(y, "y") if settings.get("y_numeric") else None)
        if message is None:
            raise
        raise ValueError(message) from None
    return (canonical(checked[0], "X"), *checked[1:]) if isinstance(checked, tuple) else canonical(checked, "X")


def _is_plain(
    model: Any, X: Any, y: Any, *, reset: bool = True, ensure_all_finite: bool = True, ensure_min_samples: int = 1,
    **others: Any,
) -> bool:  # fmt: skip
    """Whether X and y are arrays that scikit-learn's checks would return as they are: for small ones, the checks would
    take longer than all else beside the search.  Anything doubtful is not plain, and goes through those checks."""
    if type(X) is not np.ndarray or X.ndim != 2 or X.dtype not in FLOATS or not X.flags.c_contiguous:
        return False
    if X.shape[0] < ensure_min_samples or 0 in X.shape or (ensure_all_finite and not _sum_is_finite(X)):
        return False
    if not reset and (model.n_features_in_ != X.shape[1] or hasattr(model, "feature_names_in_")):
        return False
    if isinstance(y, str):
        return y == "no_validation"
    plain = type(y) is np.ndarray and y.shape == X.shape[:1] and y.dtype.isnative and y.dtype.char in "?bBhHiIlLqQdf"
    return plain and (y.dtype.kind != "f" or _sum_is_finite(y))


def _sum_is_finite(array: NDArray[Any]) -> bool:
    """If so, all entries are; a sum may also overflow."""
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(array.sum()))


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
    """`check_rows` for a source.  Its entries are checked later, block by block, as they are read."""
    if not reset:
        _check_same_columns(model, X)
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
    if not multi_output:
        y = column_or_1d(y, warn=True)
    if multi_output or y_numeric:
        y = check_array(y, ensure_2d=False, dtype=np.float64 if y_numeric else None, input_name="y")
    if len(y) != X.shape[0]:
        raise ValueError(f"y must have one entry per row of X ({X.shape[0]}), got {len(y)}")
    return X, y


def _check_same_columns(model: Any, X: Source) -> None:
    """Raise unless the source has the columns of the fit, in the same order."""
    if X.shape[1] != model.n_features_in_:
        raise ValueError(
            f"X must have the {model.n_features_in_} columns of the fit, got a source with {X.shape[1]} columns"
        )
    known = getattr(model, "feature_names_in_", None)
    for old, new in zip(known, X.names, strict=True) if known is not None and X.names is not None else ():
        if str(old) != new:
            raise ValueError(f"X must have the columns of the fit in their order, got {new!r} where {str(old)!r} was")


class Selected(Source):
    """Some rows of a source, in their order."""

    def __init__(self, source: Source, rows: Any) -> None:
        self._source, self._mask = source, np.zeros(source.shape[0], dtype=bool)
        self._mask[rows] = True
        count = int(np.count_nonzero(self._mask))
        super().__init__(
            (count, source.shape[1]), source.dtype, sparse=source.sparse, names=source.names, memory=source.memory,
            entries=int(count / source.shape[0] * source.entries),
        )  # fmt: skip

    def blocks(self, columns: NDArray[np.int64] | None = None) -> Iterator[Any]:
        return self._source.map(pick_rows, self._mask, columns=columns)


def check_labels(y: Any) -> None:
    """Raise if the targets are not class labels."""
    if y.dtype.kind in "biu" and 2 * np.unique(y).size <= y.size:  # scikit-learn warns of more classes
        return
    with np.errstate(invalid="ignore"):  # scikit-learn tests whether floats are whole by converting them to integers
        check_classification_targets(y)


def check_weights(sample_weight: Any, X: Any) -> NDArray[np.float64] | None:
    """Return one weight per row, or None without weights; a single number means equal weights."""
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


def times(matrix: NDArray[Any], block: Any) -> NDArray[Any]:
    """The product block·matrix; in double precision where it overflows in single precision."""
    with np.errstate(over="ignore", invalid="ignore"):
        product = np.asarray(block @ matrix)
    if product.dtype == np.float32 and not np.isfinite(product).all():
        return np.asarray(block.astype(np.float64) @ matrix)
    return product


# --- entries that are not finite numbers -----------------------------------------------------------------------------
def find_bad_entry(X: Any, argument: str, names: Sequence[Any] | None = None) -> str | None:
    """Describe the first entry of X that is not a finite number; None if there is none or X cannot be searched."""
    if hasattr(X, "tocoo"):
        X = X.tocoo()
        bad = np.flatnonzero(~np.isfinite(X.data))[:1]
        return _describe(X.data[bad[0]], argument, f"row {X.row[bad[0]]}, column {X.col[bad[0]]}") if bad.size else None
    columns, own_names = _columns(X)
    names = own_names if names is None else names
    for j, column in enumerate(columns):
        found = _first_bad(column)
        if found is not None:
            row, value = found
            index: Any = getattr(X, "index", None)  # that of pandas, where it says more than the number of the row
            label = f" (index {_short(index[row])})" if hasattr(index, "get_loc") and index[row] != row else ""
            place = f", column {j if names is None else repr(names[j])}" if np.ndim(X) == 2 else ""
            return _describe(value, argument, f"row {row}{label}{place}")
    return None


def _refuse_dates(X: Any) -> None:
    """Raise if a column holds dates or times: some libraries would convert them to numbers in a unit of their own."""
    if hasattr(X, "column_names"):  # Arrow
        types = X.schema.types
    elif hasattr(X, "columns"):
        types = X.dtypes
    else:
        types = [X.dtype] if hasattr(X, "dtype") else []
    dates = {kind for kind in set(types) if str(kind).lower().startswith(TIMES)}
    for j, kind in enumerate(types if dates else ()):
        if kind in dates:
            names = _columns(X)[1]
            where = "X" if names is None else f"X: column {names[j]!r}"
            raise ValueError(f"{where} holds dates or times ({kind}), not numbers; {DATES}")


def _columns(X: Any) -> tuple[list[Any], Sequence[Any] | None]:
    """The columns of X, and their names if they have some."""
    if hasattr(X, "iloc"):  # pandas
        columns = [X] if X.ndim == 1 else [X.iloc[:, j] for j in range(X.shape[1])]
        return columns, list(getattr(X, "columns", [])) or None
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
    """The first row whose value is not a finite number, and that value."""
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


def _describe(value: Any, argument: str, place: str) -> str | None:
    """The message about a value that is not a finite number, with a remedy."""
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


# --- columns that the user names: always_keep and groups -------------------------------------------------------------
def kept_columns(always_keep: Any, d: int, names: Sequence[Any] | None) -> NDArray[np.int64]:
    """`always_keep` (names, numbers or a mask) as sorted column numbers."""
    if always_keep is None:
        return np.empty(0, np.int64)
    given = list(always_keep) if isinstance(always_keep, set | frozenset) else always_keep
    kept = np.atleast_1d(as_array(given, "always_keep"))
    if kept.size == 0:
        return np.empty(0, np.int64)
    if kept.dtype.kind in "UO":
        known = [] if names is None else list(names)
        missing = [str(name) for name in kept if name not in known]
        if missing:
            raise ValueError(f"always_keep names the column {missing[0]!r}, which X does not have")
        kept = np.array([known.index(name) for name in kept], dtype=np.int64)
    if kept.dtype == bool:
        if kept.shape != (d,):
            raise ValueError(f"always_keep as a mask must have one entry per column ({d}), got shape {kept.shape}")
        kept = np.flatnonzero(kept)
    if kept.dtype.kind not in "iu" or (kept.size and not 0 <= kept.min() <= kept.max() < d):
        raise ValueError(f"always_keep must be names or numbers of columns below {d}, or a mask, got {always_keep!r}")
    return np.unique(kept).astype(np.int64)


def group_labels(groups: Any, d: int, names: Sequence[Any] | None) -> NDArray[Any] | None:
    """`groups` (labels, or a dict {column: group}) as an array with one label per column; None without groups.

    Each column that a dict leaves out becomes a group of its own.
    """
    if groups is None:
        return None
    if isinstance(groups, dict):
        columns = list(range(d)) if names is None else list(names)
        unknown = [column for column in groups if column not in columns]
        if unknown:
            raise ValueError(f"groups names the column {unknown[0]!r}, which X does not have; its keys must be columns")
        labels, taken = np.empty(d, dtype=object), list(groups.values())
        for j, column in enumerate(columns):  # a column left out must not join a group that bears its name
            labels[j] = groups.get(column, f"{column} (alone)" if column in taken else column)
        return labels
    labels = as_array(groups, "groups")
    if labels.shape != (d,):
        raise ValueError(
            f"groups must have one label per column, that is shape ({d},), got shape {labels.shape}; or give a dict "
            "{column: group}"
        )
    return labels


def count_labels(labels: NDArray[Any]) -> int:
    """The number of different labels."""
    try:
        return len(set(labels.tolist()))
    except TypeError as error:
        raise ValueError(f"groups must hold labels such as numbers or names ({error})") from None


def count_choices(groups: Any, d: int, names: Sequence[Any] | None = None) -> int:
    """The number of columns, or of groups of columns, that a model chooses from."""
    labels = group_labels(groups, d, names)
    return d if labels is None else count_labels(labels)


def chosen_together(
    S: NDArray[Any], kept: NDArray[np.int64], labels: NDArray[Any] | None
) -> tuple[list[NDArray[np.int64]], NDArray[np.bool_]]:
    """The positions in the support S of columns that were chosen together, and which of these sets are not kept."""
    together: dict[Any, list[int]] = {}
    always = set(kept.tolist())
    for at, j in enumerate(S.tolist()):
        own = ("kept", j) if j in always else ("column", j) if labels is None else ("group", labels[j])
        together.setdefault(own, []).append(at)
    return [np.array(at) for at in together.values()], np.array([own[0] != "kept" for own in together], dtype=bool)


def chosen_groups(
    S: NDArray[Any], kept: NDArray[np.int64], labels: NDArray[Any]
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """The labels of the chosen groups in the order of their columns, and for every column of the support S its place
    among them; −1 for a kept column."""
    first = {label: j for j, label in reversed(list(enumerate(labels.tolist())))}
    order = {label: at for at, label in enumerate(dict.fromkeys(labels[np.setdiff1d(S, kept)].tolist()))}
    always = set(kept.tolist())
    places = [-1 if j in always else order[labels[j]] for j in S.tolist()]
    return labels[[first[label] for label in order]], np.array(places, dtype=np.int64)


# --- rows that partial_fit remembers ---------------------------------------------------------------------------------
@dataclass(frozen=True, eq=False)
class Reservoir:
    """A uniform random sample of all rows shown so far, in bounded memory.

    Every row gets a random key; the rows with the smallest keys are remembered, in the order in which they came.

    Attributes
    ----------
    X : array or CSR matrix
    y : array
    weight : array or None
        None as long as no weights were given.
    seen : int
        Number of rows shown, remembered or not.

    Examples
    --------
    >>> import numpy as np
    >>> start = Reservoir.empty(np.random.default_rng(0))
    >>> some = start.joined(np.eye(4), np.arange(4), None, size=3)
    >>> some.X.shape, some.seen
    ((3, 4), 4)
    """

    X: Any
    y: NDArray[Any]
    weight: NDArray[np.float64] | None
    keys: NDArray[np.float64]
    seen: int
    rng: np.random.Generator

    @classmethod
    def empty(cls, rng: np.random.Generator) -> Reservoir:
        """A reservoir that has seen no row yet."""
        return cls(None, np.empty(0), None, np.empty(0), 0, rng)

    def joined(self, X: Any, y: NDArray[Any], weight: NDArray[np.float64] | None, size: int) -> Reservoir:
        """Return the sample after more rows were shown: at most `size` rows, each row seen with the same chance.

        Rows of weight zero are ignored.  Once rows were forgotten the sample does not grow.  The reservoir itself does
        not change, so that a fit that fails leaves it as it was.
        """
        shown = np.arange(len(y)) if weight is None else np.flatnonzero(weight > 0)
        keys = np.concatenate([self.keys, self.rng.random(shown.size)])
        if self.seen > self.keys.size:  # only later rows could fill a larger sample
            size = min(size, self.keys.size)
        kept = np.sort(np.argpartition(keys, size)[:size]) if keys.size > size else np.arange(keys.size)
        old = kept[kept < self.keys.size]
        rows = shown[kept[old.size :] - self.keys.size]
        weights = None
        if self.weight is not None or weight is not None:
            before = np.ones(old.size) if self.weight is None else self.weight[old]
            weights = np.concatenate([before, np.ones(rows.size) if weight is None else weight[rows]])
        return Reservoir(
            _stacked(self.X, old, X, rows),
            y[rows] if self.X is None else np.concatenate([self.y[old], y[rows]]),
            weights,
            keys[kept],
            self.seen + shown.size,
            self.rng,
        )


def _stacked(X: Any, old: NDArray[np.int64], more: Any, rows: NDArray[np.int64]) -> Any:
    """Rows `old` of X above `rows` of `more`; sparse if X is, in the higher of the two precisions."""
    if X is None:
        return more[rows]
    if sparse.issparse(X):
        return sparse.vstack([X[old], sparse.csr_array(more[rows])], format="csr")
    return np.concatenate([X[old], more[rows].toarray() if sparse.issparse(more) else more[rows]])
