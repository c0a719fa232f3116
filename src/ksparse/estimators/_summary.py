"""The chosen features as a table."""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._text import table

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

    def _cells(self) -> list[tuple[str, ...]]:
        """The table with its head, as text; the output has a column only where there are several."""
        rows = [("output", "feature", "coefficient", "worth")]
        rows += [(output, name, f"{w:.6g}", f"{u:.3g}") for output, name, w, u in self.rows]
        rows += [(output, "(intercept)", f"{b:.6g}", "") for output, b in self.intercepts.items()]
        return [row if len(self.intercepts) > 1 else row[1:] for row in rows]

    def __str__(self) -> str:
        return "\n".join([self.title, table(self._cells(), 1 + (len(self.intercepts) > 1)), CAUTION])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        head, *body = [[html.escape(cell) for cell in row] for row in self._cells()]
        lines = [f"<tr>{''.join(f'<th>{cell}</th>' for cell in head)}</tr>"]
        lines += [f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in body]
        title = f'<caption style="white-space: nowrap; text-align: left">{html.escape(self.title)}</caption>'
        return f"<table>{title}{''.join(lines)}</table><p>{CAUTION}</p>"
