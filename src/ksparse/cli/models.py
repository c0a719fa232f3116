"""Models: the data of a fit, the fits that options ask for, and what is printed about them.

Data that fit the memory comfortably are loaded, others are read in every pass.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .. import losses
from .._text import table
from ..estimators import KSparseClassifier, KSparseRegressor
from ..sources import Files, open_files
from .fit import MANY, FitOptions, names, ridge
from .session import NOTHING, Session, as_options, need_packages, one_line

SHARE = 1 / 3  # of the memory: a fit may hold the rows and a standardized copy
CRITERIA = ("aic", "bic", "ebic")
CURVE = 12  # models in the path of a report
CLASSES = 20  # up to this number, every row may have its own label


# --- data -------------------------------------------------------------------------------------------------------------
class Rows(NamedTuple):
    """The data of a fit."""

    X: Any  # an array or a CSR matrix, or the source
    y: Any
    weight: Any
    source: Files
    name: str

    @property
    def streamed(self) -> bool:
        return self.X is self.source

    @property
    def target(self) -> str | None:
        """The name of the target; None if the file has no names."""
        target = self.source.target
        return f"column {target}" if isinstance(target, int) else target

    @property
    def weights(self) -> dict[str, Any]:
        """Keyword arguments of `fit`."""
        return {} if self.weight is None else {"sample_weight": self.weight}

    def facts(self) -> dict[str, Any]:
        """For JSON."""
        rows, columns = self.source.shape
        return {
            "data": self.name, "rows": rows, "columns": columns, "target": self.target, "streamed": self.streamed
        }  # fmt: skip

    def line(self, loss: str) -> str:
        """One line about the data."""
        n, d = self.source.shape
        target = "" if self.target is None else f", target {self.target}"
        way = "streamed" if self.streamed else "in memory"
        return f"{self.name}: {n:,} rows, {d:,} columns, {way}{target}; {loss} loss"


def read(data: str, options: FitOptions, work: Session) -> Rows:
    """Open the data, and load them if they are small."""
    name = "the pipe" if data == "-" else Path(data).name
    work.begin(f"reading {name}")
    weights, reading = options.weights, options.reading()
    if weights is not None:
        if data == "-":
            raise ValueError("--weights reads the data twice, which a pipe does not allow; write it to a file")
        if weights == options.target:
            raise ValueError(f"--weights and --target are both {weights!r}; a target cannot weigh itself")
        if reading["columns"] is None:
            reading["drop"] = [*(reading["drop"] or []), weights]
        else:
            reading["columns"] = [column for column in reading["columns"] if column != weights]
    try:
        source = open_files(data, **reading)
    except ValueError as error:
        if weights is None:
            raise
        # the column of weights is dropped from the features, which the user did not ask for by --drop
        there_is_no = f"there is no column {weights!r}"
        text = str(error).replace(f"drop: {there_is_no}", f"--weights: {there_is_no}")
        raise ValueError(text if options.drop else text.replace("drop is for", "--weights is for")) from None
    for note in source.notes:
        work.note(note)
    weight = None if weights is None else _read_weights(data, name, options, source)
    X: Any = source
    if source.row_bytes * source.shape[0] <= SHARE * source.memory:
        X = source.load()
        source.close()
    return Rows(X, source.y, weight, source, name)


def _read_weights(data: str, name: str, options: FitOptions, source: Files) -> Any:
    """The column of weights, read as a target beside one column that is read anyway."""
    if source.encoding["kind"] != "table":
        raise ValueError(f"--weights is for tables with names, {name} has none")
    reading, beside = options.reading(), source.encoding["columns"][0]["name"]
    categories = [column for column in reading["categories"] if column == beside]
    only = {"target": options.weights, "columns": [beside], "drop": None, "categories": categories, "cache": True}
    try:
        column: Any = open_files(data, **(reading | only)).y
    except ValueError as error:
        text = str(error).replace("(the target)", "(the weights)")
        raise ValueError(text.replace("target: there is no", "--weights: there is no")) from None
    if column.dtype.kind not in "fiu" or not (np.isfinite(column).all() and (column >= 0).all() and column.any()):
        raise ValueError(f"--weights {options.weights!r} must hold numbers of at least 0, not all zero")
    return column.astype(np.float64)


def columns_to_keep(options: FitOptions, source: Files) -> list[int] | None:
    """The indices of the columns of --keep; the name of a column of categories stands for all its categories."""
    keep = names(options.keep, "--keep")
    if keep is None:
        return None
    known = source.names or [f"x{j}" for j in range(source.shape[1])]
    found: list[int] = []
    for name in keep:
        here = [j for j, column in enumerate(known) if column == name or column.startswith(f"{name}=")]
        if not here:
            raise ValueError(f"--keep names the column {name!r}, which is not among the features")
        found += here
    return sorted(set(found))


# --- fits ------------------------------------------------------------------------------------------------------------
def check_options(options: FitOptions, k: float) -> None:
    """Refuse impossible options before any data are read."""
    from .._validate import check_choice, check_count
    from ..solvers import SOLVERS
    from ..solvers.exchange.squared import EFFORTS

    if not (0 < k < 1 or (k >= 1 and float(k).is_integer())):
        raise ValueError(f"-k must be an integer of at least 1, or a share of the columns between 0 and 1, got {k:g}")
    if options.loss is not None:
        check_choice(options.loss, "--loss", losses.LOSSES)
    if options.solver != "auto":
        check_choice(options.solver, "--solver", ("auto", *SOLVERS))
    check_choice(options.effort, "--effort", EFFORTS)
    if options.m is not None:
        check_count(options.m, "--m")
        if options.solver != "ht-svrg":
            raise ValueError(f"--m is for --solver ht-svrg, got --solver {options.solver}")
    if options.max_time is not None and not options.max_time > 0:
        raise ValueError(f"--max-time must be above 0 seconds, got {options.max_time:g}")
    check_count(options.seed, "--seed", low=0)
    if not 0 <= options.held_out <= 0.9:
        raise ValueError(f"--held-out must be a share of the rows between 0 and 0.9, got {options.held_out:g}")
    if options.report is not None:
        need_packages("--report", "report", "jinja2", "matplotlib")
    ridge(options.l2)
    names(options.keep, "--keep")
    options.reading()


def make_estimator(options: FitOptions, k: float, rows: Rows, work: Session) -> Any:
    """The estimator for these options and targets, not yet fitted."""
    from ..solvers import HTSVRG

    loss = loss_for(rows, options.loss, work)
    keep, d = columns_to_keep(options, rows.source), rows.source.shape[1]
    most: Any = int(k) if float(k).is_integer() else k
    if most > d - len(keep or ()):
        work.note(f"there are only {d - len(keep or ())} columns to choose from, fewer than k = {most}")
    make: Any = KSparseClassifier if loss in losses.named(labels=True) else KSparseRegressor
    return make(
        most, loss=loss, l2=ridge(options.l2), always_keep=keep, positive=options.positive, max_time=options.max_time,
        solver=options.solver if options.m is None else HTSVRG(m=options.m), random_state=options.seed,
        effort=options.effort, callback=work.callback,
    )  # fmt: skip


def loss_for(rows: Rows, loss: str | None, work: Session) -> str:
    """The loss that the user asked for, or the default for these targets."""
    y, what = rows.y, "the target" if rows.target is None else f"the target {rows.target!r}"
    if y.dtype.kind not in "fiub":
        labels = np.unique(y)
        if loss not in (None, *losses.named(labels=True)):
            raise ValueError(f"--loss {loss} needs numbers, but {what} holds texts such as {str(y[0])!r}; leave it out")
        if labels.size > max(CLASSES, y.size / 2):
            raise ValueError(f"{what} holds {labels.size:,} different texts in {y.size:,} rows: labels must repeat")
        return loss or "logistic"
    if loss in losses.named(labels=True) and (broken := y[y != np.round(y)]).size:
        raise ValueError(
            f"--loss {loss} needs classes, but {what} holds numbers such as {broken[0]:g}; --loss squared is for these"
        )
    if loss is None and np.unique(y[:10_000]).size <= 2 and np.unique(y).size == 2:
        work.note(f"{what} holds two numbers only: if they are classes, use --loss logistic")
    return loss or "squared"


def cross_validated(
    estimator: Any, rows: Rows, folds: int, ks: list[int] | None, work: Session, l2s: list[float] | str | None = None
) -> Any:
    """A fitted `KSparseRegressorCV` or `KSparseClassifierCV`."""
    from ..estimators import KSparseClassifierCV, KSparseRegressorCV
    from ..estimators.cv import FACTORS

    if folds < 2:
        raise ValueError(f"--cv must be at least 2 folds, got {folds}")
    if folds > len(rows.y):
        raise ValueError(f"--cv must be at most the {len(rows.y)} rows, got {folds}")
    make: Any = KSparseClassifierCV if isinstance(estimator, KSparseClassifier) else KSparseRegressorCV
    d = rows.source.shape[1]
    tried = range(1, min(20, d) + 1) if ks is None else [k for k in ks if k <= d]
    ridges = 1 if l2s is None else len(FACTORS if l2s == "auto" else l2s)
    work.begin(f"cross-validation, {folds} folds", folds * len(tried) * ridges + 1)
    return make(ks, l2s=l2s, estimator=estimator, cv=folds).fit(rows.X, rows.y, **rows.weights)


def tried_up_to(k: float, rows: Rows) -> list[int]:
    """The candidates of `--cv -k`: 1, 2, ... up to k, which may be a share of the columns."""
    d = rows.source.shape[1]
    most = min(math.ceil(k * d) if k < 1 else int(k), d)
    if most > MANY:
        raise ValueError(f"--cv with -k {k:g} would try {most:,} models; say which with --ks, such as 10:1000:10")
    return list(range(1, most + 1))


def path_around(estimator: Any, rows: Rows, ks: list[int] | None, work: Session) -> Any:
    """The models of a path; without `ks`, some around the k of the estimator, for a report."""
    from ..estimators import k_path

    if ks is None:
        k, d = estimator.k, rows.source.shape[1]
        k = max(1, round(k * d)) if k < 1 else k
        ks = sorted({min(d, k), *np.unique(np.linspace(1, min(2 * k, d), CURVE).round().astype(int)).tolist()})
    work.begin(f"path, k = {ks[0]} to {ks[-1]}", len(ks))
    return k_path(rows.X, rows.y, ks, estimator, **rows.weights)


def name_columns(rows: Rows, *models: Any) -> None:
    """Give the models the column names of the file, because rows in memory are an array without names."""
    for model in models:
        if model is not None and rows.source.names is not None:
            model.feature_names_in_ = np.array(rows.source.names, dtype=object)


@contextmanager
def checkpointed(file: Path | None, identity: dict[str, Any], work: Session) -> Iterator[None]:
    """Around the fits and their files: stages are saved in `file`, which is removed once all is done."""
    if file is None:
        yield
        return
    from ..engine.checkpoint import checkpoint

    work.kept = lambda: (
        f"{file} keeps the stages written to it, the same command goes on from there" if file.exists() else NOTHING
    )
    with checkpoint(file, identity) as saved:
        if saved.resumed:
            work.note(f"going on from {file}: {saved.resumed}")
        yield
    if file.exists():
        work.note(f"{file} stays, for a fit ran out of time: the same command goes on from there")


# --- the report ------------------------------------------------------------------------------------------------------
def judge_held_out(model: Any, rows: Rows, options: FitOptions, work: Session) -> Any:
    """`HeldOut` of a fit with the same settings on the other rows; None without a share, or with too few rows."""
    if options.held_out == 0:
        return None
    from sklearn.base import clone

    from ..report import HeldOut

    classes = isinstance(model, KSparseClassifier)
    held = draw_rows(rows.y, options.held_out, options.seed, classes)
    if rows.weight is not None:
        held = held[rows.weight[held] > 0]
    if held.size < 2:
        work.note("too few rows to hold some out: the report says nothing about new rows")
        return None
    work.begin("fit without the held-out rows")
    weight = np.ones(len(rows.y)) if rows.weight is None else rows.weight.copy()
    weight[held] = 0.0
    fitted = clone(model).fit(rows.X, rows.y, sample_weight=weight)
    work.begin("judging by the held-out rows")
    if not classes:
        prediction = fitted.predict(rows.X)
    else:
        prediction = fitted.predict_proba(rows.X) if fitted.loss == "logistic" else fitted.decision_function(rows.X)
    return HeldOut(rows.y[held], prediction[held])


def draw_rows(y: NDArray[Any], share: float, seed: int, classes: bool) -> NDArray[np.int64]:
    """The rows to leave out, the same share of every class."""
    rng = np.random.default_rng(seed)
    labels = np.unique(y, return_inverse=True)[1] if classes else np.zeros(len(y), dtype=int)
    parts = [np.flatnonzero(labels == label) for label in range(labels.max() + 1)]
    return np.sort(np.concatenate([rng.permutation(part)[: int(share * part.size)] for part in parts]))


def write_report(file: Path, model: Any, rows: Rows, path: Any, cv: Any, held_out: Any, model_file: str | None) -> None:
    """Write the page of a fit."""
    from ..report import fit_page, write_page

    page = fit_page(
        model, data=rows.name, rows=len(rows.y), target=rows.target or "y", path=path, cv=cv, held_out=held_out,
        model_file=model_file,
    )  # fmt: skip
    write_page(page, file)


# --- for machines ----------------------------------------------------------------------------------------------------
def model_facts(model: Any) -> dict[str, Any]:
    """A fitted model for JSON."""
    summary = model.summary()
    ends = _per_output(model.status_)
    statuses = [{"status": str(end), "message": end.message, "remedy": as_options(end.remedy)} for end in ends]
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
        "passes": passes(model),
        "converged": all(end == "converged" for end in ends),
        "status": statuses[0] if len(statuses) == 1 else statuses,
        "certificate": [dataclasses.asdict(certificate) for certificate in _per_output(model.certificate_)],
    }


def _per_output(found: Any) -> list[Any]:
    """A list with one entry per output: models of one output have no list."""
    return found if isinstance(found, list) else [found]


def feature_rows(summary: Any) -> list[dict[str, Any]]:
    """The rows of a summary for JSON; a group has its columns and their coefficients."""
    found = []
    for (output, name, coefficient, worth), kept, columns in zip(
        summary.rows, summary.kept, summary.columns, strict=True
    ):
        row = {"output": output, "feature": name, "coefficient": coefficient, "worth": worth, "always_kept": kept}
        found.append(row | ({"columns": columns} if isinstance(coefficient, tuple) else {}))
    return found


def cv_facts(chosen: Any) -> dict[str, Any] | None:
    """A cross-validation for JSON; None if there was none."""
    if chosen is None:
        return None
    return {
        "ks": chosen.ks_.tolist(),
        "score": chosen.mean_score_.tolist(),
        "standard_error": chosen.standard_error_.tolist(),
        "best_k": chosen.best_k_,
        "chosen_k": chosen.k_,
        "l2s": chosen.l2s_.tolist(),
        "chosen_l2": chosen.l2_,
        "scoring": "minus the held-out loss",
    }


def path_facts(path: Any, chosen: Any) -> dict[str, Any]:
    """A path for JSON, each model with the features that entered and left since the one before."""
    rows: list[dict[str, Any]] = []
    for i, (model, (enters, leaves)) in enumerate(zip(path.models, path.moves(), strict=True)):
        summary = model.summary()
        numbers = {name: getattr(path, name)[i] for name in ("objective", "loss", *CRITERIA)}
        moves = {"enters": enters, "leaves": leaves}
        features = {"features": feature_rows(summary), "intercepts": summary.intercepts}
        rows.append({"k": model.k_, **numbers, **moves, **features})
    best = {criterion: path.best(criterion).k_ for criterion in CRITERIA}
    return {"path": rows, "best": best, "cv": cv_facts(chosen)}


# --- for people ------------------------------------------------------------------------------------------------------


def summary_text(summary: Any) -> str:
    """A summary with one line per feature, whatever characters its name contains."""
    rows = [(one_line(output), one_line(name), *numbers) for output, name, *numbers in summary.rows]
    intercepts = {one_line(output): value for output, value in summary.intercepts.items()}
    columns = tuple(tuple(map(one_line, names)) for names in summary.columns)
    positive = None if summary.positive is None else one_line(summary.positive)
    return str(dataclasses.replace(summary, rows=rows, intercepts=intercepts, columns=columns, positive=positive))


def passes(model: Any) -> int:
    """Passes over the rows that the fit of a model took, for all its outputs."""
    return round(sum(float(history.gradients[-1]) for history in _per_output(model.history_)) / model.n_rows_)


def certainty(model: Any) -> str:
    """The certificate in one line."""
    found = _per_output(model.certificate_)
    if len(found) == 1:
        return str(found[0]).splitlines()[0]
    verdicts = [certificate.verdict for certificate in found]
    return ", ".join(f"{verdict}: {verdicts.count(verdict)} of {len(verdicts)}" for verdict in dict.fromkeys(verdicts))


def path_table(facts: dict[str, Any]) -> str:
    """The table of a path, from its `path_facts`."""
    score, cv = {}, facts["cv"]
    if cv is not None:
        columns = (cv[name] for name in ("ks", "score", "standard_error"))
        score = {k: (f"{mean:.5g}", f"{error:.2g}") for k, mean, error in zip(*columns, strict=True)}
    cells = [("k", "objective", "loss", *CRITERIA, *(("cv score", "±") if score else ()), "enters and leaves")]
    for row in facts["path"]:
        numbers = [f"{row[name]:.5g}" for name in ("objective", "loss")] + [f"{row[name]:.1f}" for name in CRITERIA]
        moves = [f"+{one_line(name)}" for name in row["enters"]] + [f"-{one_line(name)}" for name in row["leaves"]]
        cells.append((str(row["k"]), *numbers, *(score.get(row["k"], ("", "")) if score else ()), " ".join(moves)))
    width = max(len(row[-1]) for row in cells)
    best = [f"{name} k = {k}" for name, k in facts["best"].items()]
    if cv is not None:
        best.append(f"cv k = {cv['best_k']} ({cv['chosen_k']} within one standard error)")
    text = table([(*row[:-1], row[-1].ljust(width)) for row in cells], 0)
    return "\n".join(line.rstrip() for line in text.splitlines()) + f"\nbest: {', '.join(best)}"
