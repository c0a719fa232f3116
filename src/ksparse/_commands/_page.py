"""What a report shows beside the model: how it does on rows that it has not seen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._data import Rows
from ._session import Session


def check_report(report: str | None, share: float) -> None:
    """Refuse a report before the work if it cannot be made."""
    if not 0 <= share <= 0.9:
        raise ValueError(f"--held-out must be a share of the rows between 0 and 0.9, got {share:g}")
    if report is not None:
        need_packages("--report", "jinja2", "matplotlib")


def need_packages(option: str, *packages: str) -> None:
    """Refuse an option whose packages are not installed."""
    from importlib.util import find_spec

    missing = [package for package in packages if find_spec(package) is None]
    if missing:
        raise ImportError(f"{option} needs {missing[0]}; pip install 'ksparse[report]' brings it")


def draw_rows(y: NDArray[Any], share: float, seed: int, classes: bool) -> NDArray[np.int64]:
    """The rows to leave out; of every class the same share."""
    rng = np.random.default_rng(seed)
    labels = np.unique(y, return_inverse=True)[1] if classes else np.zeros(len(y), dtype=int)
    parts = [np.flatnonzero(labels == label) for label in range(labels.max() + 1)]
    return np.sort(np.concatenate([rng.permutation(part)[: int(share * part.size)] for part in parts]))


def judge_held_out(estimator: Any, rows: Rows, share: float, seed: int, work: Session) -> Any:
    """`HeldOut` of a fit with the same settings on the other rows; None without a share, or with too few rows."""
    if share == 0:
        return None
    from sklearn.base import clone, is_classifier

    from ..report import HeldOut

    held = draw_rows(rows.y, share, seed, is_classifier(estimator))
    if rows.weight is not None:
        held = held[rows.weight[held] > 0]
    if held.size < 2:
        work.note("too few rows to hold some out: the report says nothing about new rows")
        return None
    work.begin("fit without the held-out rows")
    weight = np.ones(len(rows.y)) if rows.weight is None else rows.weight.copy()
    weight[held] = 0.0
    model = clone(estimator).fit(rows.X, rows.y, sample_weight=weight)
    work.begin("judging by the held-out rows")
    if not is_classifier(model):
        prediction = model.predict(rows.X)
    else:
        prediction = model.predict_proba(rows.X) if model.loss == "logistic" else model.decision_function(rows.X)
    return HeldOut(rows.y[held], prediction[held])


def write_report(file: Path, model: Any, rows: Rows, path: Any, cv: Any, held_out: Any, model_file: str | None) -> None:
    """The page of a fit."""
    from ..report import fit_page, write_page

    page = fit_page(
        model, data=rows.name, rows=len(rows.y), target=rows.target or "y", path=path, cv=cv, held_out=held_out,
        model_file=model_file,
    )  # fmt: skip
    write_page(page, file)
