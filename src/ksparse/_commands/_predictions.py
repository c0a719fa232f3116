"""What a model says of rows that come in blocks, and how good that is."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ._session import Session
from ._wording import of_the_fit


class Reader(NamedTuple):
    """Rows as a model wants them."""

    source: Any
    columns: NDArray[np.int64]  # those of the source that the model uses
    model: Any  # for rows that have these columns only


def open_like(model: Any, name: str, data: str, **means: Any) -> Reader:
    """The data as the model's own were read; of a model that knows nothing of files, by its names or its width.

    Only the columns that the model uses are looked for.
    """
    from ..sources import Files, open_files

    used = used_columns(model)
    encoding, known = getattr(model, "encoding_", None), getattr(model, "feature_names_in_", None)
    wanted = [] if known is None else [str(known[j]) for j in used]
    if encoding is not None:
        check_encoding_of(model, name)
        source = Files.like(data, narrowed(encoding, set(wanted)), **means)
    elif wanted:
        source = open_files(data, target=False, columns=wanted, **means)
    else:
        source = open_files(data, target=False, **means)
        if source.shape[1] != model.n_features_in_:
            raise ValueError(
                f"{name} knows no names of columns, so {data} must have its {model.n_features_in_} columns in their "
                f"order, but it has {source.shape[1]}; models that ksparse fit writes know names"
            )
    if source.shape[1] == model.n_features_in_:
        return Reader(source, used, _narrow(model, used))
    here = {column: j for j, column in enumerate(source.names or [])}
    if not wanted or not set(wanted) <= set(here):
        raise ValueError(f"{name} is not a model that can be read: its encoding is not one of its own features")
    return Reader(source, np.array([here[column] for column in wanted]), _narrow(model, used))


def check_encoding_of(model: Any, name: str) -> None:
    """Refuse what somebody has made of the encoding in a file."""
    from ..sources.encoding import check_encoding, table_encoding

    encoding = getattr(model, "encoding_", None)
    try:
        if encoding is not None and check_encoding(encoding)["kind"] == "table":
            table_encoding(encoding)
    except ValueError as error:
        raise ValueError(f"{name} is not a model that can be read: {error}") from None
    except OverflowError:
        raise ValueError(f"{name} is not a model that can be read: encoding: a number is too large") from None


@contextmanager
def reading_as_the_fit() -> Iterator[None]:
    """Around all that reads: the remedies of an error are options of the fit."""
    try:
        yield
    except ValueError as error:
        raise ValueError(of_the_fit(str(error))) from None


def used_columns(model: Any) -> NDArray[np.int64]:
    """The numbers of the columns with a coefficient; one at least, for blocks have columns."""
    return model.support_ if model.support_.size else np.zeros(1, dtype=np.int64)


def narrowed(encoding: dict[str, Any], used: set[str]) -> dict[str, Any]:
    """An encoding without the columns of a table that give no feature in use."""
    if encoding.get("kind") != "table" or not isinstance(encoding.get("columns"), list):
        return encoding
    return {**encoding, "columns": [column for column in encoding["columns"] if used & _features(column)]}


def _features(column: Any) -> set[str]:
    """The names of the features that a column of a table gives; of what is malformed none."""
    if not isinstance(column, dict):
        return set()
    name, levels = str(column.get("name")), column.get("levels")
    return {f"{name}={level}" for level in levels} if isinstance(levels, list) else {name}


def used_names(model: Any) -> list[str]:
    """The names of the columns with a coefficient, and of no others: there may be billions."""
    known = getattr(model, "feature_names_in_", None)
    return [f"x{j}" if known is None else str(known[j]) for j in model.support_]


def needed_columns(model: Any) -> list[str]:
    """The names of the columns that data must have, in their order."""
    used = used_names(model)
    encoding = narrowed(getattr(model, "encoding_", None) or {}, set(used))
    return [str(column["name"]) for column in encoding["columns"]] if encoding.get("kind") == "table" else used


def summary_of(model: Any) -> Any:
    """`model.summary()`, which takes long where there are billions of columns."""
    if model.support_.size == 0:
        return model.summary()
    narrow = _narrow(model, model.support_)
    narrow.worth_, narrow.feature_worth_ = model.worth_[..., model.support_], model.feature_worth_[model.support_]
    narrow.support_, narrow.kept_ = np.arange(model.support_.size), np.flatnonzero(np.isin(model.support_, model.kept_))
    narrow.feature_names_in_ = np.array(used_names(model), dtype=object)
    summary = narrow.summary()
    few, all_of_them = (f" of {m.n_features_in_} features" for m in (narrow, model))
    return dataclasses.replace(summary, title=summary.title.replace(few, all_of_them))


def _narrow(model: Any, used: NDArray[np.int64]) -> Any:
    """The same model for rows that have these columns only."""
    narrow = copy.copy(model)
    narrow.coef_, narrow.n_features_in_ = model.coef_[..., used], used.size
    narrow.__dict__.pop("feature_names_in_", None)
    return narrow


def predictions(reader: Reader, proba: bool, judge: Judge, work: Session) -> Iterator[Any]:
    """Predictions, a block at a time."""
    source, done, model = reader.source, 0, reader.model

    def both(block: Any) -> tuple[Any, Any]:
        return model.predict(block), model.predict_proba(block) if proba or judge.likely else None

    for prediction, chances in source.map(both, columns=reader.columns):
        judge.see(slice(done, done + len(prediction)), prediction, chances)
        done += len(prediction)
        work.tell(f"{done:,} of {source.shape[0]:,} rows")
        yield chances if proba else prediction


def output_names(model: Any) -> list[str]:
    several = model._kind() == "targets"
    return [f"prediction {name}" for name in model._output_names()] if several else ["prediction"]


class Judge:
    """How good predictions are, where the targets are known."""

    def __init__(self, model: Any, y: Any, work: Session) -> None:
        self._y, self._total, self._surprise = y, 0.0, 0.0
        self._classes: Any = getattr(model, "classes_", None)
        if y is not None and (model._kind() == "targets" or not self._comparable(y)):
            work.note("no score: the target in the data is not of the kind that the model predicts")
            self._y = None
        self.likely = self._y is not None and model.loss == "logistic"
        if self.likely:
            self._at = np.searchsorted(model.classes_, y).clip(max=len(model.classes_) - 1)

    def _comparable(self, y: Any) -> bool:
        numbers = y.dtype.kind in "fiub"
        if self._classes is None:
            return numbers
        return numbers == (self._classes.dtype.kind in "fiub") and bool(np.isin(y, self._classes).all())

    def see(self, part: slice, prediction: Any, chances: Any) -> None:
        """Take the predictions of some rows into account."""
        if self._y is None:
            return
        truth = self._y[part]
        if self._classes is None:
            self._total += float(np.square(truth - prediction).sum())
            return
        self._total += float(np.count_nonzero(truth == prediction))
        if chances is not None:
            given = chances[np.arange(len(truth)), self._at[part]]
            self._surprise -= float(np.log(np.maximum(given, np.finfo(float).tiny)).sum())

    def score(self) -> dict[str, float]:
        """By name; nothing where the targets are not known."""
        if self._y is None:
            return {}
        n = len(self._y)
        if self._classes is None:
            spread = float(self._y.var()) * n
            return {"R2": 1.0 - self._total / spread} if spread > 0 else {"mean squared error": self._total / n}
        return {"accuracy": self._total / n, **({"log-loss": self._surprise / n} if self.likely else {})}
