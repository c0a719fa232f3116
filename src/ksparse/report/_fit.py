"""What a page is about: a model, and what it was fitted on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from .._page import visible
from .._validate import check_count
from ..estimators.classifier import KSparseClassifier
from ..estimators.regressor import KSparseRegressor
from ..estimators.summary import shown_worth

LOSSES = {
    "squared": "squared error",
    "huber": "Huber’s loss",
    "poisson": "Poisson loss",
    "logistic": "logistic loss",
    "squared_hinge": "squared hinge loss",
}


@dataclass(frozen=True)
class Fit:
    """A fitted model with names that can be shown.

    `kind` is "number", "counts" or "targets" for regressors, "two", "softmax" or "ovr" for classifiers.
    """

    model: Any
    data: str
    rows: int
    target: str
    kind: str
    outputs: list[str]

    @classmethod
    def of(cls, model: Any, data: str, rows: int, target: str | Sequence[str]) -> Fit:
        if not isinstance(model, KSparseRegressor | KSparseClassifier):
            raise ValueError(f"model must be a fitted KSparseRegressor or KSparseClassifier, got {model!r}")
        check_is_fitted(model)
        kind = _kind(model)
        several = not isinstance(target, str)
        targets: list[str] = [target] if isinstance(target, str) else list(target)
        for name, text in [("data", data), *(("target", text) for text in targets)]:
            if not isinstance(text, str):
                raise ValueError(f"{name} must be a text, got {text!r}")
        outputs = [str(label) for label in model._output_names()]
        if kind in ("number", "counts") or (kind == "targets" and several):
            outputs = targets
        if len(outputs) != len(np.atleast_2d(model.coef_)) or (several and kind != "targets" and len(targets) != 1):
            count = len(np.atleast_2d(model.coef_)) if kind == "targets" else 1
            raise ValueError(f"target must be a name, or one a target of the model ({count}), got {target!r}")
        return cls(
            model, visible(data), check_count(rows, "rows"), ", ".join(map(visible, targets)), kind,
            [visible(name) for name in outputs],
        )  # fmt: skip

    # --- shapes that do not depend on how many outputs there are ------------------------------------------------------
    @cached_property
    def coef(self) -> NDArray[np.float64]:
        """(outputs, d)"""
        return np.atleast_2d(self.model.coef_).astype(np.float64)

    @property
    def worth(self) -> NDArray[np.float64]:
        """What is shown beside every coefficient, (outputs, d): the worth of its feature or group."""
        return shown_worth(self.model)

    @property
    def sizes(self) -> NDArray[np.float64]:
        """The sizes of the coefficients whatever the units of their columns, (outputs, d): the roots of what each is
        worth by itself, which for a softmax is an estimate."""
        return np.sign(self.coef) * np.sqrt(np.atleast_2d(self.model.worth_))

    @property
    def intercepts(self) -> list[float]:
        return [float(b) for b in np.atleast_1d(self.model.intercept_)]

    @property
    def is_classifier(self) -> bool:
        return self.kind in ("two", "softmax", "ovr")

    @property
    def has_probabilities(self) -> bool:
        return self.is_classifier and self.model.loss == "logistic"

    @property
    def classes(self) -> list[str]:
        return [visible(label) for label in self.model.classes_] if self.is_classifier else []

    @property
    def chosen(self) -> int:
        return int(self.model.support_.size)

    @property
    def columns(self) -> int:
        return int(self.model.n_features_in_)

    def feature(self, j: int) -> str:
        """The name of a column; there may be millions, of which a few are shown."""
        names = getattr(self.model, "feature_names_in_", None)
        return f"x{j}" if names is None else visible(names[j])

    def each(self, name: str) -> list[Any]:
        """What the fit noted by this name, a list also where there is one; none after reading from a file."""
        noted = getattr(self.model, name, None)
        return noted if isinstance(noted, list) else [] if noted is None else [noted]

    def notes(self) -> dict[int, str]:
        """By column: its group, or that it was never up for choice."""
        model = self.model
        of = zip(model.support_.tolist(), getattr(model, "support_groups_", []), strict=False)
        said = {j: f"group {visible(model.groups_[g])}" for j, g in of}
        return said | dict.fromkeys(getattr(model, "kept_", []), "always kept")


def _kind(model: Any) -> str:
    if isinstance(model, KSparseClassifier):
        return model.multi_class_ or "two"
    if model.coef_.ndim == 2:
        return "targets"
    return "counts" if model.loss == "poisson" else "number"
