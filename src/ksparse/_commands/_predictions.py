"""What a model says of rows that come in blocks, and how good that is."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np

from ._session import Session


def open_like(model: Any, name: str, data: str, format: str | None, memory: str) -> Any:
    """The data as the model's own were read; of a model that knows nothing of files, by its names or its width."""
    from ..sources import Files, open_files

    encoding = getattr(model, "encoding_", None)
    if encoding is not None:
        return Files.like(data, encoding, memory=memory)
    named = getattr(model, "feature_names_in_", None)
    source = open_files(data, columns=None if named is None else list(named), format=format, memory=memory)
    if source.shape[1] != model.n_features_in_:
        raise ValueError(
            f"{name} knows no names of columns, so {data} must have its {model.n_features_in_} columns in their order, "
            f"but it has {source.shape[1]}; models that ksparse fit writes know names"
        )
    return source


def used_columns(model: Any) -> Any:
    """The numbers of the columns with a coefficient; one at least, for blocks have columns."""
    used = np.flatnonzero(np.atleast_2d(model.coef_).any(axis=0))
    return used if used.size else np.zeros(1, dtype=np.int64)


def needed_columns(model: Any) -> list[str]:
    """The names of the features that have a coefficient, in the order of the data."""
    from ..estimators._summary import feature_names

    names = feature_names(model)
    return [names[j] for j in model.support_]


def _narrow(model: Any, used: Any) -> Any:
    """The same model for rows that have these columns only."""
    narrow = copy.copy(model)
    narrow.coef_, narrow.n_features_in_ = model.coef_[..., used], used.size
    narrow.__dict__.pop("feature_names_in_", None)
    return narrow


def predictions(model: Any, source: Any, proba: bool, judge: Judge, work: Session) -> Iterator[Any]:
    """Predictions, a block at a time."""
    used = used_columns(model)
    narrow, done = _narrow(model, used), 0

    def both(block: Any) -> tuple[Any, Any]:
        return narrow.predict(block), narrow.predict_proba(block) if proba or judge.likely else None

    for prediction, chances in source.map(both, columns=used):
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
            self._at = np.searchsorted(self._classes, y).clip(max=len(model.classes_) - 1)

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
