"""A saved model: data read as its own were, its predictions and their score.

A model may know billions of columns: only those with a coefficient are read.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..sources import Files, open_files
from ..sources.encoding import check_encoding, table_encoding
from .session import Session


class Reader(NamedTuple):
    """Data opened for a model."""

    source: Files
    columns: NDArray[np.int64]  # those of the source that the model uses
    model: Any  # the model for rows that have only these columns


def open_like(model: Any, name: str, data: str, **arguments: Any) -> Reader:
    """Open the data as the model's own were read, or by names or number of columns if it was not made from files.

    Only the columns that the model uses are required.
    """
    used = model.support_ if model.support_.size else np.zeros(1, dtype=np.int64)  # a block has at least one column
    encoding, known = getattr(model, "encoding_", None), getattr(model, "feature_names_in_", None)
    wanted = [] if known is None else [str(known[j]) for j in used]
    if encoding is not None:
        check_encoding_of(model, name)
        source = Files.like(data, narrow_encoding(encoding, set(wanted)), **arguments)
    elif wanted:
        source = open_files(data, target=False, columns=wanted, **arguments)
    else:
        source = open_files(data, target=False, **arguments)
        if source.shape[1] != model.n_features_in_:
            raise ValueError(
                f"{name} knows no names of columns, so {data} must have its {model.n_features_in_} columns in their "
                f"order, but it has {source.shape[1]}; models that ksparse fit writes know names"
            )
    if source.shape[1] == model.n_features_in_:
        return Reader(source, used, narrow_model(model, used))
    here = {column: j for j, column in enumerate(source.names or [])}
    if not wanted or not set(wanted) <= set(here):
        raise ValueError(f"{name} is not a model that can be read: its encoding is not one of its own features")
    return Reader(source, np.array([here[column] for column in wanted]), narrow_model(model, used))


def check_encoding_of(model: Any, name: str) -> None:
    """Refuse a model file with a malformed description of its columns."""
    encoding = getattr(model, "encoding_", None)
    try:
        if encoding is not None and check_encoding(encoding)["kind"] == "table":
            table_encoding(encoding)
    except ValueError as error:
        raise ValueError(f"{name} is not a model that can be read: {error}") from None
    except OverflowError:
        raise ValueError(f"{name} is not a model that can be read: encoding: a number is too large") from None


def narrow_encoding(encoding: dict[str, Any], used: set[str]) -> dict[str, Any]:
    """The encoding of a table with only those columns that make a feature in use."""
    if encoding.get("kind") != "table" or not isinstance(encoding.get("columns"), list):
        return encoding
    return {**encoding, "columns": [column for column in encoding["columns"] if used & _features(column)]}


def _features(column: Any) -> set[str]:
    """The names of the features that a column of a table becomes; none if its description is malformed."""
    if not isinstance(column, dict):
        return set()
    name, levels = str(column.get("name")), column.get("levels")
    return {f"{name}={level}" for level in levels} if isinstance(levels, list) else {name}


def narrow_model(model: Any, used: NDArray[np.int64]) -> Any:
    """The same model for rows that have only these columns."""
    narrow = copy.copy(model)
    narrow.coef_, narrow.n_features_in_ = model.coef_[..., used], used.size
    narrow.__dict__.pop("feature_names_in_", None)
    return narrow


def used_names(model: Any) -> list[str]:
    """The names of the columns with a coefficient."""
    known = getattr(model, "feature_names_in_", None)
    return [f"x{j}" if known is None else str(known[j]) for j in model.support_]


def needed_columns(model: Any) -> list[str]:
    """The names of the columns that data must have, in their order; categories of a column count as that column."""
    used = used_names(model)
    encoding = narrow_encoding(getattr(model, "encoding_", None) or {}, set(used))
    return [str(column["name"]) for column in encoding["columns"]] if encoding.get("kind") == "table" else used


# --- predictions ------------------------------------------------------------------------------------------------------
def predictions(reader: Reader, proba: bool, judge: Judge, work: Session) -> Iterator[NDArray[Any]]:
    """Predictions or probabilities, block by block."""
    source, done, model = reader.source, 0, reader.model

    def both(block: Any) -> tuple[Any, Any]:
        return model.predict(block), model.predict_proba(block) if proba or judge.needs_probabilities else None

    for prediction, probabilities in source.map(both, columns=reader.columns):
        judge.see(slice(done, done + len(prediction)), prediction, probabilities)
        done += len(prediction)
        work.tell(f"{done:,} of {source.shape[0]:,} rows")
        yield probabilities if proba else prediction


def output_names(model: Any) -> list[str]:
    """The names of the columns of predictions."""
    several = model._kind() == "targets"
    return [f"prediction {name}" for name in model._output_names()] if several else ["prediction"]


class Judge:
    """The score of predictions, where the targets `y` are known."""

    def __init__(self, model: Any, y: Any, work: Session) -> None:
        self._y, self._total, self._surprise = y, 0.0, 0.0
        self._classes: Any = getattr(model, "classes_", None)
        if y is not None and (model._kind() == "targets" or not self._comparable(y)):
            work.note("no score: the target in the data is not of the kind that the model predicts")
            self._y = None
        self.needs_probabilities = self._y is not None and model.loss == "logistic"
        if self.needs_probabilities:
            self._at = np.searchsorted(model.classes_, y).clip(max=len(model.classes_) - 1)

    def _comparable(self, y: Any) -> bool:
        numbers = y.dtype.kind in "fiub"
        if self._classes is None:
            return numbers
        return numbers == (self._classes.dtype.kind in "fiub") and bool(np.isin(y, self._classes).all())

    def see(self, part: slice, prediction: Any, probabilities: Any) -> None:
        """Take the predictions of the rows in `part` into account."""
        if self._y is None:
            return
        truth = self._y[part]
        if self._classes is None:
            self._total += float(np.square(truth - prediction).sum())
            return
        self._total += float(np.count_nonzero(truth == prediction))
        if probabilities is not None:
            given = probabilities[np.arange(len(truth)), self._at[part]]
            self._surprise -= float(np.log(np.maximum(given, np.finfo(float).tiny)).sum())

    def score(self) -> dict[str, float]:
        """The scores by name; none where the targets are not known."""
        if self._y is None:
            return {}
        n = len(self._y)
        if self._classes is None:
            spread = float(self._y.var()) * n
            return {"R2": 1.0 - self._total / spread} if spread > 0 else {"mean squared error": self._total / n}
        return {"accuracy": self._total / n, **({"log-loss": self._surprise / n} if self.needs_probabilities else {})}


def summary_of(model: Any) -> Any:
    """`model.summary()`, fast even if there are billions of columns."""
    if model.support_.size == 0:
        return model.summary()
    narrow = narrow_model(model, model.support_)
    narrow.worth_, narrow.feature_worth_ = model.worth_[..., model.support_], model.feature_worth_[model.support_]
    narrow.support_, narrow.kept_ = np.arange(model.support_.size), np.flatnonzero(np.isin(model.support_, model.kept_))
    narrow.feature_names_in_ = np.array(used_names(model), dtype=object)
    summary = narrow.summary()
    few, every = (f" of {m.n_features_in_} features" for m in (narrow, model))
    return dataclasses.replace(summary, title=summary.title.replace(few, every))
