"""`fit_page`: the parts put together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from .. import __version__
from .._files import disk_is_full, write_whole
from .._page import Picture, check_tools, draw_picture, render
from ..estimators.cv import KSparseClassifierCV, KSparseRegressorCV
from ..estimators.summary import caution
from . import _curves, _features, _verdict
from ._classes import judge_classes
from ._figures import Sketch
from ._fit import Fit
from ._headline import headline
from ._held_out import HeldOut
from ._numbers import judge_numbers
from ._quality import Quality
from ._use import use
from ._words import DIGITS


class Shown(NamedTuple):
    """A picture on the page, and the words beneath it."""

    picture: Picture
    caption: str


def fit_page(
    model: Any,
    *,
    data: str,
    rows: int,
    target: str | Sequence[str],
    path: Any = None,
    cv: Any = None,
    held_out: HeldOut | None = None,
    model_file: str | Path | None = None,
) -> str:
    """A fit as one self-contained HTML page.

    Parameters
    ----------
    model : KSparseRegressor or KSparseClassifier
        Fitted, or read from a file (then there is no history and no certificate to show); a fitted KSparseRegressorCV
        or KSparseClassifierCV is its chosen model and `cv` in one.
    data : str
        What the rows are called, such as the name of their file.
    rows : int
        How many there are, held-out ones included if there are any.
    target : str, or for several targets optionally a list of names
    path : Path, optional
        What `k_path` gives.
    cv : KSparseRegressorCV or KSparseClassifierCV, optional
        By which k was chosen.
    held_out : HeldOut, optional
        Targets and predictions of rows that the fit has not seen.
    model_file : str or Path, optional
        Where the model is saved, for the lines that use it.

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
    fit = Fit.of(model, data, rows, target)
    if model_file is not None and not isinstance(model_file, str | Path):
        raise ValueError(f"model_file must be the name of a file, got {model_file!r}")
    marks = (f"figure{number}" for number in count(1))
    quality = None if held_out is None else _judge(fit, held_out)
    curves = {
        "cv": None if cv is None else _curves.of_cv(fit, cv),
        "path": None if path is None else _curves.of_path(fit, path),
        "search": _curves.of_search(fit),
    }
    how, remedies = _verdict.ends(fit)
    page = render(
        __package__,
        {},
        fit=fit,
        top=headline(fit, quality, cv, model_file),
        how=how,
        remedies=remedies,
        outputs=_features.outputs(fit),
        across=_features.across(fit),
        effect=_features.effect_words(fit),
        caution=caution(fit.model),
        digits=DIGITS,
        quality=quality,
        held_pictures=_draw(quality.sketches, marks) if quality else [],
        curves=curves,
        pictures={name: _draw(part.sketches, marks) for name, part in curves.items() if part},
        proofs=_verdict.proofs(fit),
        unproven=_verdict.what_is_not_proven(fit),
        use=use(fit, model_file),
        version=__version__,
    )
    return page.encode("utf-8", "replace").decode("utf-8")  # file names may hold what no page can


def _judge(fit: Fit, held_out: HeldOut) -> Quality:
    if not isinstance(held_out, HeldOut):
        raise ValueError(f"held_out must be a report.HeldOut(y, prediction), got {type(held_out).__name__}")
    return (judge_classes if fit.is_classifier else judge_numbers)(fit, held_out)


def _draw(sketches: Sequence[Sketch], marks: Iterator[str]) -> list[Shown]:
    return [Shown(draw_picture(s.draw, s.label, next(marks)), s.caption) for s in sketches]


def write_page(html: str, path: str | Path) -> None:
    """Write a page; the file is whole or, if that fails, as it was before."""
    path = Path(path)
    try:
        write_whole(path, html.encode())
    except OSError as error:
        if disk_is_full(error):
            raise
        why = "there is no such folder" if not path.parent.is_dir() else error.strerror or str(error)
        raise ValueError(f"the page cannot be written to {path}: {why}; name another file") from None
