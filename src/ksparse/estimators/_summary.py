"""The chosen features as a table."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._text import data_frame, html_table, table

CAUTION = (
    "worth: by how much the objective would rise without the feature. No p-values: after a selection they would lie."
)


def feature_names(model: Any) -> list[str]:
    """The names of the columns as text: those they came with, or x0, x1, ..."""
    return [str(name) for name in getattr(model, "feature_names_in_", [f"x{j}" for j in range(model.n_features_in_)])]


@dataclass(frozen=True)
class Summary:
    """Rows of (output, feature, coefficient, worth), the most useful feature first; prints as a table."""

    title: str
    rows: list[tuple[str, str, float, float]]
    intercepts: dict[str, float]

    @classmethod
    def of(cls, model: Any) -> Summary:
        coef, worth = np.atleast_2d(model.coef_), np.atleast_2d(model.worth_)
        names = feature_names(model)
        outputs = model._output_names()
        rows = []
        for output, weights, useful in zip(outputs, coef, worth, strict=True):
            chosen = np.flatnonzero(weights)
            order = chosen[np.argsort(-useful[chosen], kind="stable")]
            rows += [(output, names[j], float(weights[j]), float(useful[j])) for j in order]
        constants = dict(zip(outputs, np.atleast_1d(model.intercept_).tolist(), strict=True))
        features = f"{model.support_.size} of {coef.shape[1]} features"
        title = f"{type(model).__name__}: {features}, objective {model.objective_:.6g}"
        return cls(title, rows, constants)

    def _columns(self) -> dict[str, tuple[Any, ...]]:
        """The table by columns; the output has one only where there are several."""
        rows = [*self.rows, *((output, "(intercept)", b, math.nan) for output, b in self.intercepts.items())]
        columns = dict(zip(("output", "feature", "coefficient", "worth"), zip(*rows, strict=True), strict=True))
        if len(self.intercepts) == 1:
            del columns["output"]
        return columns

    def to_frame(self) -> Any:
        """The table as a pandas.DataFrame, with the intercept, which has no worth, at its end."""
        return data_frame(self._columns())

    def _cells(self) -> list[tuple[str, ...]]:
        """The table with its head, as text."""
        columns = self._columns()
        columns["coefficient"] = tuple(f"{w:.6g}" for w in columns["coefficient"])
        columns["worth"] = tuple("" if math.isnan(u) else f"{u:.3g}" for u in columns["worth"])
        return [tuple(columns), *zip(*columns.values(), strict=True)]

    def __str__(self) -> str:
        return "\n".join([self.title, table(self._cells(), 1 + (len(self.intercepts) > 1)), CAUTION])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return html_table(self._cells(), self.title, (0, 1)[: len(self.intercepts)]) + f"<p>{CAUTION}</p>"
