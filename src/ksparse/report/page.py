"""`fit_page` puts the parts of the page together; the top of the page and its lines of code are made here, too."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import NamedTuple

from .. import __version__
from .._files import disk_is_full
from .._text import write_whole
from ..estimators.classifier import KSparseClassifier
from ..estimators.cv import KSparseClassifierCV, KSparseRegressorCV
from ..estimators.path import Path as KPath
from ..estimators.regressor import KSparseRegressor
from ..estimators.summary import caution, chosen_words
from .held_out import HeldOut, Quality, judge
from .markup import check_tools, draw_picture, render
from .model import ReportedModel, effect_words, table_across_outputs, tables_by_output
from .search import (
    convergence_curves,
    cv_curves,
    path_curves,
    proofs,
    search_end,
    verdict_words,
    what_is_not_proven,
)
from .words import DIGITS, counted, listed, number, visible

LONGEST = 60  # characters of a name in the title
NEEDED = 25  # columns that are named under "How to use it"
LOSS_NAMES = {
    "squared": "squared error",
    "huber": "Huber’s loss",
    "logistic": "logistic loss",
    "squared_hinge": "squared hinge loss",
}


def fit_page(
    model: KSparseRegressor | KSparseClassifier | KSparseRegressorCV | KSparseClassifierCV,
    *,
    data: str,
    rows: int,
    target: str | Sequence[str],
    path: KPath | None = None,
    cv: KSparseRegressorCV | KSparseClassifierCV | None = None,
    held_out: HeldOut | None = None,
    model_file: str | Path | None = None,
) -> str:
    """The page of a fitted model, as the text of one self-contained HTML file.

    Parameters
    ----------
    model : KSparseRegressor, KSparseClassifier, KSparseRegressorCV or KSparseClassifierCV
        A fitted model.  One that was read from a file has no history and no certificate to show.  A cross-validated
        one stands for its chosen model and for `cv`.
    data : str
        The name of the data, such as the name of their file.
    rows : int
        The number of rows, including held-out rows.
    target : str or list of str
        The name of the target; for several targets optionally one name per target.
    path : Path, default=None
        The result of `k_path`, to show how the fit depends on k.
    cv : KSparseRegressorCV or KSparseClassifierCV, default=None
        The fitted estimator that chose k.
    held_out : HeldOut, default=None
        Targets and predictions of rows that the fit has not seen.
    model_file : str or Path, default=None
        The file of the saved model, for the lines of code that load it.

    Returns
    -------
    str

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from ksparse import KSparseRegressor
    >>> from ksparse.report import HeldOut, fit_page
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
    >>> model = KSparseRegressor(k=3).fit(X[:300], y[:300])
    >>> held_out = HeldOut(y[300:], model.predict(X[300:]))
    >>> page = fit_page(model, data="diabetes.csv", rows=442, target="progression", held_out=held_out)
    >>> "<title>progression, from 3 of 10 features</title>" in page
    True
    """
    check_tools()
    if isinstance(model, KSparseRegressorCV | KSparseClassifierCV) and hasattr(model, "estimator_"):
        model, cv = model.estimator_, model if cv is None else cv
    fit = ReportedModel.checked(model, data, rows, target)
    if model_file is not None and not isinstance(model_file, str | Path):
        raise ValueError(f"model_file must be the name of a file, got {model_file!r}")
    quality = None if held_out is None else judge(fit, held_out)
    curves = {
        "cv": None if cv is None else cv_curves(fit, cv),
        "path": None if path is None else path_curves(fit, path),
        "search": convergence_curves(fit),
    }
    sketches = {name: part.sketches for name, part in {"held_out": quality, **curves}.items() if part}
    numbers = count(1)
    how, troubles = search_end(fit)
    page = render(
        __package__,
        {},
        fit=fit,
        title=f"{_short(fit.target)}, from {_features(fit)}",
        description=_lead(fit, quality),
        tiles=_tiles(fit, quality),
        facts=_facts(fit, cv is not None, model_file),
        how=how,
        troubles=troubles,
        outputs=tables_by_output(fit),
        across=table_across_outputs(fit),
        effect=effect_words(fit),
        caution=caution(fit.model),
        digits=DIGITS,
        quality=quality,
        curves=curves,
        pictures={
            name: [draw_picture(sketch, f"figure{next(numbers)}") for sketch in part] for name, part in sketches.items()
        },
        proofs=proofs(fit),
        unproven=what_is_not_proven(fit),
        use=_use(fit, model_file),
        version=__version__,
    )
    return page.encode("utf-8", "replace").decode("utf-8")  # file names may hold characters that UTF-8 cannot


def write_page(html: str, path: str | Path) -> None:
    """Write a page to a file; if that fails, the file stays as it was.

    Parameters
    ----------
    html : str
        The page, as `fit_page` returns it.
    path : str or Path
        The file, in a folder that exists.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from ksparse.report import write_page
    >>> with TemporaryDirectory() as folder:
    ...     write_page("<!DOCTYPE html><title>A page</title>", Path(folder) / "page.html")
    """
    path = Path(path)
    try:
        write_whole(path, html.encode())
    except OSError as error:
        if disk_is_full(error):
            raise
        why = "there is no such folder" if not path.parent.is_dir() else error.strerror or str(error)
        raise ValueError(f"the page cannot be written to {path}: {why}; name another file") from None


# --- the top of the page ---------------------------------------------------------------------------------------------
class Tile(NamedTuple):
    """A number at the top of the page."""

    name: str
    value: str
    note: str


def _short(name: str, longest: int = LONGEST) -> str:
    return name if len(name) <= longest else f"{name[: longest - 1]}…"


def _features(fit: ReportedModel) -> str:
    return chosen_words(fit.model) if fit.has_groups else f"{fit.n_chosen} of {counted(fit.n_columns, 'feature')}"


def _lead(fit: ReportedModel, quality: Quality | None) -> str:
    """What was fitted on what."""
    rows, others = counted(fit.rows, "row"), ""
    fitted = getattr(fit.model, "n_rows_", fit.rows)
    if fitted < fit.rows:
        rows = f"{fitted:,} of {rows}"
        others = " The other rows were held out." if quality and quality.rows == fit.rows - fitted else ""
    return f"{_kind_words(fit)}, fitted on {rows} and {counted(fit.n_columns, 'column')} of {fit.data}.{others}"


def _kind_words(fit: ReportedModel) -> str:
    target = _short(fit.target)
    if fit.kind == "targets":
        return f"A linear model of {counted(len(fit.outputs), 'target')} ({target})"
    if fit.kind == "counts":
        return f"A Poisson model of the count {target}"
    if fit.kind == "number":
        return f"A {'robust ' if fit.model.loss == 'huber' else ''}linear model of {target}"
    classes = [_short(name, 24) for name in fit.classes]
    shown = listed(classes, "or") if len(classes) <= 5 else counted(len(classes), "class", "classes")
    model = "A logistic model" if fit.has_probabilities else "A linear classifier"
    how = {"two": "", "softmax": " (softmax)", "ovr": " (each class against the rest)"}[fit.kind]
    return f"{model}{how} that predicts {target} ({shown})"


def _tiles(fit: ReportedModel, quality: Quality | None) -> list[Tile]:
    tiles = []
    if quality is not None:
        first, *others = quality.lead
        rows = counted(quality.rows, "held-out row")
        tiles.append(
            Tile(f"{first.name} on {rows}", first.value, f"baseline (always {quality.guess}): {first.baseline}")
        )
        tiles += [Tile(measure.name, measure.value, f"baseline: {measure.baseline}") for measure in others]
    used, of = chosen_words(fit.model).split(" ", 1)
    if fit.has_groups:
        tiles.append(Tile("Groups used", used, of))
    else:
        tiles.append(Tile("Features used", used, f"of {fit.n_columns:,} columns"))
    how, troubles = search_end(fit)
    if how:
        tiles.append(Tile("Search", "not finished" if troubles else "converged", verdict_words(fit)))
    return tiles


def _facts(fit: ReportedModel, cross_validated: bool, model_file: str | Path | None) -> list[tuple[str, str]]:
    model, what = fit.model, "groups" if fit.has_groups else "columns"
    if hasattr(model, "k_"):
        k = f"{model.k_} groups" if fit.has_groups else f"{model.k_}"
    else:
        k = f"{model.k:g} of the {what}" if isinstance(model.k, float) else f"{model.k}"
    l2 = getattr(model, "l2_", model.l2)
    ridge = "by the rule “auto”" if isinstance(l2, str) else number(l2, 3) + (" (auto)" if model.l2 == "auto" else "")
    facts = [
        ("Data", fit.data),
        ("Rows", f"{fit.rows:,}"),
        ("Columns", f"{fit.n_columns:,}"),
        ("Target", fit.target),
        ("Loss", LOSS_NAMES.get(model.loss, f"{model.loss.capitalize()} loss")),
        ("k (at most)", f"{k}, chosen by cross-validation" if cross_validated else k),
        ("Ridge l2", ridge),
        ("Objective", number(model.objective_)),
    ]
    return facts if model_file is None else [*facts, ("Model", visible(model_file))]


# --- how to use the model --------------------------------------------------------------------------------------------
class Use(NamedTuple):
    """Lines of code to copy, and the columns that they need."""

    python: str
    sklearn: str  # empty where scikit-learn has no such model
    command: str
    saved: bool
    needs: list[str]  # names of columns that the prediction depends on
    more: int  # number of such columns that are not named


def _use(fit: ReportedModel, model_file: str | Path | None) -> Use:
    saved, file = model_file is not None, str(model_file) if model_file is not None else "model.json"
    python = [
        "import ksparse",
        "",
        *([] if saved else [f"model.save({file!r})"]),
        f"model = ksparse.load({file!r})",
        f"model.{'predict_proba' if fit.has_probabilities else 'predict'}(X)",
    ]
    plain = fit.kind != "ovr" if fit.has_probabilities else fit.model.loss in ("squared", "huber")
    suffixes = Path(fit.data[-200:]).suffixes
    suffix = "".join(suffixes[-2:] if suffixes[-1:] in ([".gz"], [".bz2"], [".zst"]) else suffixes[-1:])
    rows = f"new-rows{suffix}" if suffix.replace(".", "").isalnum() else "DATA"
    argument = shlex.quote(f"./{file}" if file.startswith("-") else file)
    needed: list[int] = fit.model.support_.tolist() if fit.n_chosen < fit.n_columns else []
    return Use(
        "\n".join(python),
        "plain = model.to_sklearn()\nplain.predict(X)" if plain else "",
        f"ksparse predict {argument} {rows} --out predictions.csv",
        saved,
        [fit.feature(j) for j in needed[:NEEDED]],
        max(0, len(needed) - NEEDED),
    )
