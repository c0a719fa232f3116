"""The folds of a cross-validation: which rows are fitted on, which are held out, and with what weights."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import check_cv


class Fold(NamedTuple):
    """A weight for every row (zero unless it is fitted on), and the rows held out."""

    weight: NDArray[np.float64]
    test: NDArray[np.int64]
    held_weight: NDArray[np.float64] | None  # of the rows held out


def make_folds(cv: Any, y: Any, weight: NDArray[np.float64] | None, classify: bool) -> list[Fold]:
    """The folds that scikit-learn makes of `cv`; each has rows with weight and, to fit on, rows of every class."""
    index, folds = np.unique(y, return_inverse=True)[1] if classify else None, []
    for train, test in _pairs(cv, y, classify):
        own = np.zeros(len(y))
        own[train] = 1.0 if weight is None else weight[train]
        if weight is not None and not (weight[train].any() and weight[test].any()):
            raise ValueError("every fold needs rows with weight, both to fit on and held out; use other folds")
        if index is not None and not np.bincount(index[train], minlength=index.max() + 1).all():
            raise ValueError("every fold needs rows of every class to fit on; use fewer folds or stratify them")
        folds.append(Fold(own, test, None if weight is None else weight[test]))
    return folds


def _pairs(cv: Any, y: Any, classify: bool) -> list[tuple[NDArray[Any], NDArray[Any]]]:
    """Pairs (rows to fit on, rows held out)."""
    try:
        folds, every = check_cv(cv, y, classifier=classify).split(np.zeros(len(y)), y), np.arange(len(y))
        pairs = [(every[train], every[test]) for train, test in folds]
    except (IndexError, TypeError, ValueError) as error:
        known = "a number of folds, a splitter of scikit-learn or pairs of row numbers (train, test)"
        raise ValueError(f"cv must be {known} for {len(y)} rows, got {cv!r} ({error})") from None
    if not pairs:
        raise ValueError(f"cv must give at least one fold, got none from {cv!r}")
    return pairs
