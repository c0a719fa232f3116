"""The chosen features as a table."""

from __future__ import annotations

import html
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._text import data_frame, html_table, table

NAMED = 3  # coefficients of a group that are named in the table


def feature_names(model: Any) -> list[str]:
    """The names of the columns as text: those they came with, or x0, x1, ..."""
    return [str(name) for name in getattr(model, "feature_names_in_", [f"x{j}" for j in range(model.n_features_in_)])]


def chosen_words(model: Any) -> str:
    """How much was chosen of how much: "3 of 30 features", "5 of 14 groups (16 columns)"."""
    kept = int(np.isin(model.support_, getattr(model, "kept_", [])).sum())
    if not hasattr(model, "groups_"):
        return f"{model.support_.size} of {model.n_features_in_} features" + (f" ({kept} always kept)" if kept else "")
    of = f"of {model.n_groups_} " if hasattr(model, "n_groups_") else ""
    columns = f"{model.support_.size - kept} columns" + (f", and {kept} always kept" if kept else "")
    return f"{len(model.groups_)} {of}groups ({columns})"


def shown_worth(model: Any) -> NDArray[np.float64]:
    """The worth that is shown beside every coefficient, (outputs, d): that of its feature or group in all outputs; of
    models one against the rest, which share nothing, that in its own."""
    if model._kind() == "ovr":
        return np.asarray(model.worth_)
    return np.broadcast_to(model.feature_worth_, np.atleast_2d(model.coef_).shape)


def caution(model: Any) -> str:
    """What a worth is, and that it is no p-value."""
    what = "group" if hasattr(model, "groups_") else "feature"
    rows, known = (
        getattr(model, "worth_rows_", None),
        model.loss == "squared" and what == "feature" and not model.positive,
    )
    about = "about " if rows is None and not known else ""
    where = {"ovr": " in that class", "softmax": " in all classes", "targets": " in all targets"}.get(model._kind(), "")
    how = "the others refitted"
    if about:
        how = "by a quadratic estimate: the file is of an older version"
    elif rows is not None and rows < model.n_rows_:
        how += f", estimated from {rows:,} of {model.n_rows_:,} rows"
    return (
        f"worth: by {about}how much the objective would rise without the {what}{where} ({how}). "
        "No p-values: after a selection they would lie."
    )


@dataclass(frozen=True)
class Summary:
    """Rows of (output, feature, coefficient, worth), the most useful feature first; prints as a table.

    With groups a row is a group: its label, the coefficients of its columns as a tuple, and the worth of the group.

    Attributes
    ----------
    title : str
    rows : list of tuples
    intercepts : dict
        By output.
    caution : str
        What a worth is.
    positive : str or None
        Of two classes the one that positive coefficients speak for.
    kept : tuple of bool
        For every row, whether it is an always-kept column.
    columns : tuple of tuples of str
        For every row the names of its columns.
    """

    title: str
    rows: list[tuple[str, str, Any, float]]
    intercepts: dict[str, float]
    caution: str
    positive: str | None = None
    kept: tuple[bool, ...] = ()
    columns: tuple[tuple[str, ...], ...] = ()

    @classmethod
    def of(cls, model: Any) -> Summary:
        coef, worth, names, outputs = (
            np.atleast_2d(model.coef_),
            shown_worth(model),
            feature_names(model),
            model._output_names(),
        )
        always, rows, columns, kept = set(getattr(model, "kept_", [])), [], [], []
        for output, weights, useful in zip(outputs, coef, worth, strict=True):
            parts = [part[weights[part] != 0] for part in _together(model)]
            parts = [part for part in parts if part.size]
            for part in sorted(parts, key=lambda part: -useful[part[0]]):
                group = hasattr(model, "support_groups_") and part[0] not in always
                label = str(_label(model, part[0])) if group else names[part[0]]
                values = tuple(float(w) for w in weights[part])
                rows.append((output, label, values if len(values) > 1 else values[0], float(useful[part[0]])))
                columns.append(tuple(names[j] for j in part))
                kept.append(part[0] in always)
        constants = dict(zip(outputs, np.atleast_1d(model.intercept_).tolist(), strict=True))
        title = f"{type(model).__name__}: {chosen_words(model)}, objective {model.objective_:.6g}"
        positive = outputs[0] if hasattr(model, "classes_") and len(outputs) == 1 else None
        return cls(title, rows, constants, caution(model), positive, tuple(kept), tuple(columns))

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
        marked = [_marked(row[1], kept) for row, kept in zip(self.rows, self.kept, strict=True)]
        columns["feature"] = (*marked, *columns["feature"][len(marked) :])
        texts = [_coefficients(row[2], names) for row, names in zip(self.rows, self.columns, strict=True)]
        columns["coefficient"] = (*texts, *(f"{b:.6g}" for b in self.intercepts.values()))
        columns["worth"] = tuple("" if math.isnan(u) else f"{u:.3g}" for u in columns["worth"])
        return [tuple(columns), *zip(*columns.values(), strict=True)]

    def _notes(self) -> list[str]:
        """What stands below the table."""
        said = [] if self.positive is None else [f"A positive coefficient speaks for class {self.positive}."]
        return [*said, self.caution]

    def __str__(self) -> str:
        return "\n".join([self.title, table(self._cells(), 1 + (len(self.intercepts) > 1)), *self._notes()])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        notes = "".join(f"<p>{html.escape(note)}</p>" for note in self._notes())
        return html_table(self._cells(), self.title, (0, 1)[: len(self.intercepts)]) + notes


def _together(model: Any) -> list[NDArray[np.int64]]:
    """The columns of the support, those of a group together."""
    S = model.support_
    if not hasattr(model, "support_groups_"):
        return list(S[:, np.newaxis])
    of = model.support_groups_
    groups = [S[of == g] for g in range(len(model.groups_))]
    return [*groups, *S[of < 0][:, np.newaxis]]


def _label(model: Any, j: int) -> Any:
    """The group of a column of the support."""
    return model.groups_[model.support_groups_[np.searchsorted(model.support_, j)]]


def _marked(name: str, kept: bool) -> str:
    return f"{name} (always kept)" if kept else name


def _coefficients(weights: Any, columns: tuple[str, ...]) -> str:
    """A coefficient as text; of the columns of a group, each with its name, or their range where there are many."""
    if not isinstance(weights, tuple):
        return f"{weights:.6g}"
    if len(weights) > NAMED:
        return f"{len(weights)} from {min(weights):.3g} to {max(weights):.3g}"
    return ", ".join(f"{name} {weight:.3g}" for name, weight in zip(columns, weights, strict=True))
