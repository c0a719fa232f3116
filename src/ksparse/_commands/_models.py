"""From options to fitted models, and what is said of them."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple

import numpy as np

from ._data import Rows, kept_columns, loss_for
from ._session import Session
from ._wording import as_options, one_line

CLASSIFIERS = ("logistic", "squared_hinge")
CURVE = 12  # models of a report's path


class Settings(NamedTuple):
    """The options of the model."""

    k: float
    loss: str | None
    l2: float | str
    keep: list[str] | None
    positive: bool
    solver: str
    m: int | None
    max_time: float | None
    seed: int

    def check(self) -> None:
        """Refuse what cannot be before any data are read."""
        from .._validate import check_choice, check_count
        from ..solvers import SOLVERS

        if not (0 < self.k < 1 or (self.k >= 1 and float(self.k).is_integer())):
            raise ValueError(
                f"-k must be an integer of at least 1, or a share of the columns between 0 and 1, got {self.k:g}"
            )
        if self.solver != "auto":
            check_choice(self.solver, "--solver", ("auto", *SOLVERS))
        if self.m is not None:
            check_count(self.m, "--m")
            if self.solver != "ht-svrg":
                raise ValueError(f"--m is for --solver ht-svrg, got --solver {self.solver}")
        if self.max_time is not None and not self.max_time > 0:
            raise ValueError(f"--max-time must be above 0 seconds, got {self.max_time:g}")
        if self.seed < 0:
            raise ValueError(f"--seed must be at least 0, got {self.seed}")

    def estimator(self, rows: Rows, work: Session) -> Any:
        """The estimator that these options and targets ask for, not yet fitted."""
        from ..estimators import KSparseClassifier, KSparseRegressor
        from ..solvers import HTSVRG

        loss = loss_for(rows, self.loss, work)
        kept, d = kept_columns(self.keep, rows.source), rows.source.shape[1]
        k: Any = int(self.k) if float(self.k).is_integer() else self.k
        if k > d - len(kept or ()):
            work.note(f"there are only {d - len(kept or ())} columns to choose from, fewer than k = {k}")
        make: Any = KSparseClassifier if loss in CLASSIFIERS else KSparseRegressor
        joint = loss == "logistic" and np.unique(rows.y).size > 2
        if rows.streamed and self.solver == "auto" and not (self.positive or joint):
            self._tell_solver(rows, min(d, k if k >= 1 else math.ceil(k * d)), work)
        return make(
            k, loss=loss, l2=self.l2, always_keep=kept, positive=self.positive, max_time=self.max_time,
            solver=self.solver if self.m is None else HTSVRG(m=self.m), random_state=self.seed, callback=work.callback,
        )  # fmt: skip

    def _tell_solver(self, rows: Rows, k: int, work: Session) -> None:
        """Exchange holds columns; where they do not fit, the estimators take HT-SVRG, which is less certain."""
        from ..design.blocks import SHARE_OF_COLUMNS
        from ..solvers import Exchange

        need = Exchange().memory(rows.source.shape, k)
        if need > rows.source.memory * SHARE_OF_COLUMNS:
            more = math.ceil(need / SHARE_OF_COLUMNS / 2**20)
            work.note(
                "the solver is ht-svrg: exchange, which swaps features until no swap is better, holds columns that do "
                f"not fit; --memory {more}MB makes room for it"
            )


def learn(estimator: Any, rows: Rows, folds: int | None, ks: list[int] | None, work: Session) -> tuple[Any, Any]:
    """The fitted model, and the cross-validation that chose its k, if there was one."""
    if folds is None:
        work.begin(f"fit, k = {estimator.k}")
        return estimator.fit(rows.X, rows.y, **rows.weights), None
    chosen = cross_validated(estimator, rows, folds, ks, work)
    return chosen.estimator_, chosen


def cross_validated(estimator: Any, rows: Rows, folds: int, ks: list[int] | None, work: Session) -> Any:
    """A fitted KSparse…CV."""
    from sklearn.base import is_classifier

    from ..estimators import KSparseClassifierCV, KSparseRegressorCV

    if folds < 2:
        raise ValueError(f"--cv must be at least 2 folds, got {folds}")
    if folds > len(rows.y):
        raise ValueError(f"--cv must be at most the {len(rows.y)} rows, got {folds}")
    make: Any = KSparseClassifierCV if is_classifier(estimator) else KSparseRegressorCV
    d = rows.source.shape[1]
    tried = range(1, min(20, d) + 1) if ks is None else [k for k in ks if k <= d]
    work.begin(f"cross-validation, {folds} folds", folds * len(tried) + 1)
    return make(ks, estimator=estimator, cv=folds).fit(rows.X, rows.y, **rows.weights)


def tried_up_to(k: float, rows: Rows) -> list[int]:
    """What `--cv -k` chooses among: 1, 2, ... up to k, which may be a share of the columns."""
    from ._options import MANY

    d = rows.source.shape[1]
    most = min(math.ceil(k * d) if k < 1 else int(k), d)
    if most > MANY:
        raise ValueError(f"--cv with -k {k:g} would try {most:,} models; say which with --ks, such as 10:1000:10")
    return list(range(1, most + 1))


def path_around(estimator: Any, rows: Rows, ks: list[int] | None, work: Session) -> Any:
    """The models of a path; for a report, of some k around the estimator's."""
    from ..estimators import k_path

    if ks is None:
        k, d = estimator.k, rows.source.shape[1]
        k = max(1, round(k * d)) if k < 1 else k
        ks = sorted({min(d, k), *np.unique(np.linspace(1, min(2 * k, d), CURVE).round().astype(int)).tolist()})
    work.begin(f"path, k = {ks[0]} to {ks[-1]}", len(ks))
    return k_path(rows.X, rows.y, ks, estimator, **rows.weights)


def name_columns(model: Any, rows: Rows) -> None:
    """Rows in memory are an array without names: give the model those of the file."""
    if model is not None and rows.source.names is not None:
        model.feature_names_in_ = np.array(rows.source.names, dtype=object)


def statuses(model: Any) -> list[Any]:
    """How the fit of every output ended."""
    return model.status_ if isinstance(model.status_, list) else [model.status_]


def certificates(model: Any) -> list[Any]:
    """What is certain of the fit of every output."""
    return model.certificate_ if isinstance(model.certificate_, list) else [model.certificate_]


def model_facts(model: Any) -> dict[str, Any]:
    """A fitted model for JSON."""
    summary = model.summary()
    said = [{"status": str(s), "message": s.message, "remedy": as_options(s.remedy)} for s in statuses(model)]
    return {
        "class": type(model).__name__,
        "loss": model.loss,
        "k": model.k_,
        "l2": model.l2_,
        "classes": model.classes_.tolist() if hasattr(model, "classes_") else None,
        "features": feature_rows(summary),
        "intercepts": summary.intercepts,
        "positive_class": summary.positive,
        "objective": float(model.objective_),
        "converged": all(status == "converged" for status in statuses(model)),
        "status": said[0] if len(said) == 1 else said,
        "certificate": [dataclasses.asdict(c) for c in certificates(model)],
    }


def shown(summary: Any) -> str:
    """A summary as people read it, one line per feature whatever its name."""
    rows = [(one_line(output), one_line(name), *numbers) for output, name, *numbers in summary.rows]
    intercepts = {one_line(output): value for output, value in summary.intercepts.items()}
    columns = tuple(tuple(map(one_line, names)) for names in summary.columns)
    positive = None if summary.positive is None else one_line(summary.positive)
    return str(dataclasses.replace(summary, rows=rows, intercepts=intercepts, columns=columns, positive=positive))


def feature_rows(summary: Any) -> list[dict[str, Any]]:
    """A summary's rows for JSON; of a group the columns with their coefficients."""
    found = []
    for (output, name, coefficient, worth), kept, columns in zip(
        summary.rows, summary.kept, summary.columns, strict=True
    ):
        row = {"output": output, "feature": name, "coefficient": coefficient, "worth": worth, "always_kept": kept}
        found.append(row | ({"columns": columns} if isinstance(coefficient, tuple) else {}))
    return found


def certainty(model: Any) -> str:
    """The certificate in short."""
    found = certificates(model)
    if len(found) == 1:
        return str(found[0]).splitlines()[0]
    verdicts = [certificate.verdict for certificate in found]
    return ", ".join(f"{verdict}: {verdicts.count(verdict)} of {len(verdicts)}" for verdict in dict.fromkeys(verdicts))


def cv_facts(chosen: Any) -> dict[str, Any]:
    """A cross-validation for JSON."""
    return {
        "ks": chosen.ks_.tolist(),
        "score": chosen.mean_score_.tolist(),
        "standard_error": chosen.standard_error_.tolist(),
        "best_k": chosen.best_k_,
        "chosen_k": chosen.k_,
        "scoring": "minus the held-out loss",
    }
