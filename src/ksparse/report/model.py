"""The fitted model as the page shows it: names that can be printed, the table of features and the formula."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from .._validate import check_count
from ..estimators.classifier import KSparseClassifier
from ..estimators.regressor import KSparseRegressor
from ..estimators.summary import shown_worth
from .words import number, signed, times, visible

SHOWN = 25  # features of an output that are visible at first, and the longest formula; a click shows the others
MOST = 500  # rows on a page
OUTPUTS = 40  # outputs on a page
ACROSS = 12  # most outputs that fit side by side in one table


@dataclass(frozen=True)
class ReportedModel:
    """A fitted model with the names of its data.

    `kind` is "number", "counts" or "targets" for regressors, "two", "softmax" or "ovr" for classifiers.
    """

    model: KSparseRegressor | KSparseClassifier
    data: str
    rows: int
    target: str
    kind: str
    outputs: list[str]

    @classmethod
    def checked(cls, model: Any, data: Any, rows: Any, target: Any) -> ReportedModel:
        """The model with its names; raises ValueError if they do not fit together."""
        if not isinstance(model, KSparseRegressor | KSparseClassifier):
            raise ValueError(f"model must be a fitted KSparseRegressor or KSparseClassifier, got {model!r}")
        check_is_fitted(model)
        kind, n_outputs = _kind(model), len(np.atleast_2d(model.coef_))
        targets: list[str] = [target] if isinstance(target, str) else list(target)
        for name, text in [("data", data), *(("target", text) for text in targets)]:
            if not isinstance(text, str):
                raise ValueError(f"{name} must be a text, got {text!r}")
        n_targets = n_outputs if kind == "targets" else 1
        if not isinstance(target, str) and len(targets) != n_targets:
            expected = f"a name, or a list with one name per target of the model ({n_targets})"
            raise ValueError(f"target must be {expected}, got {target!r}")
        own_names = isinstance(model, KSparseClassifier) or (kind == "targets" and isinstance(target, str))
        names = [visible(name) for name in (model._output_names() if own_names else targets)]
        return cls(model, visible(data), check_count(rows, "rows"), ", ".join(map(visible, targets)), kind, names)

    @cached_property
    def coef(self) -> NDArray[np.float64]:
        """Coefficients, (outputs, d) also for one output."""
        return np.atleast_2d(self.model.coef_).astype(np.float64)

    @cached_property
    def worth(self) -> NDArray[np.float64]:
        """The worth of the feature or group of every coefficient, (outputs, d)."""
        return shown_worth(self.model)

    @property
    def sizes(self) -> NDArray[np.float64]:
        """Coefficients on a common scale that does not depend on the units of the columns, (outputs, d).

        The size is the square root of the coefficient's own worth, which is an estimate for a softmax.
        """
        return np.sign(self.coef) * np.sqrt(np.atleast_2d(self.model.worth_))

    @property
    def intercepts(self) -> list[float]:
        return [float(b) for b in np.atleast_1d(self.model.intercept_)]

    @property
    def is_classifier(self) -> bool:
        return isinstance(self.model, KSparseClassifier)

    @property
    def has_probabilities(self) -> bool:
        return self.is_classifier and self.model.loss == "logistic"

    @property
    def has_groups(self) -> bool:
        return hasattr(self.model, "groups_")

    @property
    def multiplies(self) -> bool:
        """Whether a feature multiplies the odds or the expected count, instead of adding to the prediction."""
        return self.kind == "counts" or (self.kind in ("two", "ovr") and self.has_probabilities)

    @cached_property
    def classes(self) -> list[str]:
        return [visible(label) for label in self.model.classes_] if isinstance(self.model, KSparseClassifier) else []

    @property
    def n_chosen(self) -> int:
        return int(self.model.support_.size)

    @property
    def n_columns(self) -> int:
        return int(self.model.n_features_in_)

    def feature(self, j: int) -> str:
        """The name of column j.  There may be millions of columns, so names are made one by one."""
        names = getattr(self.model, "feature_names_in_", None)
        return f"x{j}" if names is None else visible(names[j])

    def each(self, name: str) -> list[Any]:
        """A fitted attribute as a list with one entry per search; empty if the model was read from a file."""
        value = getattr(self.model, name, None)
        return value if isinstance(value, list) else [] if value is None else [value]

    @cached_property
    def notes(self) -> dict[int, str]:
        """Notes on columns: their group, or that they are always kept."""
        model = self.model
        grouped = zip(model.support_.tolist(), getattr(model, "support_groups_", []), strict=False)
        notes = {j: f"group {visible(model.groups_[g])}" for j, g in grouped}
        return notes | dict.fromkeys(getattr(model, "kept_", []), "always kept")


def _kind(model: KSparseRegressor | KSparseClassifier) -> str:
    if isinstance(model, KSparseClassifier):
        return model.multi_class_ or "two"
    if model.coef_.ndim == 2:
        return "targets"
    return "counts" if model.loss == "poisson" else "number"


# --- the table of features and the formula ---------------------------------------------------------------------------
class Row(NamedTuple):
    """A feature of one output."""

    name: str
    note: str
    coefficient: str
    effect: str
    deviation: str
    worth: str
    share: float  # of the largest worth


class Term(NamedTuple):
    """A term of the formula."""

    sign: str
    size: str
    name: str


class Output(NamedTuple):
    """The features of one output, the most useful first, and its formula."""

    name: str
    rows: list[Row]
    more: list[Row]
    left_out: int
    intercept: str
    start: str
    terms: list[Term]


class Cell(NamedTuple):
    """A coefficient in the table of all outputs; `tint` is its size between −1 and 1."""

    text: str
    tint: float


class Across(NamedTuple):
    """A feature in the table of all outputs."""

    name: str
    note: str
    cells: list[Cell]
    worth: str
    share: float


def tables_by_output(fit: ReportedModel) -> list[Output]:
    """The features and the formula of every output, up to the limits of a page."""
    largest = float(fit.worth.max(initial=0.0)) or 1.0
    room, found = MOST, []
    for c, name in enumerate(fit.outputs[:OUTPUTS]):
        order = _by_worth(fit.coef[c], fit.worth[c])
        rows = [_row(fit, c, j, largest) for j in order[:room]]
        room -= len(rows)
        terms = [
            Term("−" if fit.coef[c, j] < 0 else "+", number(abs(fit.coef[c, j])), fit.feature(j))
            for j in order
            if len(order) <= SHOWN
        ]
        constant = fit.intercepts[c] if fit.model.fit_intercept or not terms else 0.0
        start = number(constant) if constant or not terms else ""
        left_out = len(order) - len(rows)
        found.append(Output(name, rows[:SHOWN], rows[SHOWN:], left_out, number(fit.intercepts[c]), start, terms))
    return found


def table_across_outputs(fit: ReportedModel) -> list[Across]:
    """The most useful features with their coefficients in all outputs; empty for one output or too many."""
    if not 1 < len(fit.outputs) <= ACROSS:
        return []
    worth, sizes = fit.model.feature_worth_, fit.sizes
    most, largest = float(worth.max(initial=0.0)) or 1.0, float(np.abs(sizes).max(initial=0.0)) or 1.0
    rows = []
    for j in _by_worth((fit.coef != 0).sum(axis=0), worth)[:SHOWN]:
        pairs = zip(fit.coef[:, j], sizes[:, j], strict=True)
        cells = [Cell(number(weight, 3) if weight else "", float(size) / largest) for weight, size in pairs]
        share = float(worth[j]) / most
        rows.append(Across(fit.feature(j), fit.notes.get(j, ""), cells, number(worth[j], 3), share))
    return rows


def effect_words(fit: ReportedModel) -> str:
    """What one more standard deviation of a feature does, as a verb; empty if the columns were not standardized."""
    if not fit.model.standardize:
        return ""
    if fit.kind == "counts":
        return f"multiplies the expected {fit.target} by"
    if fit.multiplies:
        return "multiplies the odds by" if fit.kind == "ovr" else f"multiplies the odds of {fit.outputs[0]} by"
    changed = {"number": fit.target, "targets": "the prediction"}.get(fit.kind, "the score")
    return f"changes {changed} by"


def _by_worth(weights: NDArray[Any], worth: NDArray[np.float64]) -> list[int]:
    """The columns with a coefficient, the most useful first."""
    chosen = np.flatnonzero(weights)
    return chosen[np.argsort(-worth[chosen], kind="stable")].tolist()


def _row(fit: ReportedModel, c: int, j: int, largest: float) -> Row:
    weight, worth, scale = float(fit.coef[c, j]), float(fit.worth[c, j]), float(fit.model.scale_[j])
    effect = (times if fit.multiplies else signed)(weight * scale) if fit.model.standardize else ""
    return Row(
        fit.feature(j), fit.notes.get(j, ""), number(weight), effect, number(scale, 3), number(worth, 3),
        worth / largest,
    )  # fmt: skip
