"""k_path: one model for every k, with criteria to choose among them."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._text import data_frame, html_table
from .._validate import ArgumentError, as_array, check_counts, check_flag
from ..design import Source
from ..sources import as_source
from .classifier import KSparseClassifier
from .fitting import Fitting, mean_losses
from .regressor import KSparseRegressor
from .summary import draw_path, image, plot_method
from .tables import check_weights, count_choices

CRITERIA = ("aic", "bic", "ebic")
LARGEST = 20  # the largest k by default


@dataclass(frozen=True, eq=False)
class Path:
    """The models of a path; the arrays have one entry per k.

    Attributes
    ----------
    k : array of int
        The numbers of features.
    models : list
        The fitted estimators.
    objective : array
        The training objective, on scaled columns.
    loss : array
        The mean training loss, without the ridge.
    aic, bic, ebic : array
        Information criteria, smaller is better; the last one also penalises the number of supports to choose from.
    """

    k: NDArray[np.int64]
    models: list[Any]
    objective: NDArray[np.float64]
    loss: NDArray[np.float64]
    aic: NDArray[np.float64]
    bic: NDArray[np.float64]
    ebic: NDArray[np.float64]

    def best(self, criterion: str = "ebic") -> Any:
        """Return the model with the smallest criterion.

        Parameters
        ----------
        criterion : {"aic", "bic", "ebic"}, default="ebic"
        """
        if criterion not in CRITERIA:
            raise ValueError(f"criterion must be one of 'aic', 'bic', 'ebic', got {criterion!r}")
        return self.models[int(np.argmin(getattr(self, criterion)))]

    @property
    def coefs(self) -> NDArray[np.float64]:
        """The coefficients, (ks, d) or (ks, outputs, d)."""
        return np.array([model.coef_ for model in self.models])

    @property
    def supports(self) -> list[NDArray[np.int64]]:
        """The chosen columns for every k."""
        return [model.support_ for model in self.models]

    def __repr__(self) -> str:
        best = self.best()
        return f"Path(k = {self.k[0]}..{self.k[-1]}, smallest ebic at k = {best.k_})"

    def moves(self) -> list[tuple[list[str], list[str]]]:
        """Return for every k the names of the features that enter, and of those that leave."""
        names = [list(map(str, model.get_feature_names_out())) for model in self.models]
        return [
            ([name for name in now if name not in before], [name for name in before if name not in now])
            for before, now in zip([[], *names], names, strict=False)
        ]

    def to_frame(self) -> Any:
        """Return a pandas.DataFrame with one row per k: objective, loss, criteria, and the names of the features."""
        columns = {name: getattr(self, name) for name in ("k", "objective", "loss", *CRITERIA)}
        return data_frame({**columns, "features": [model.get_feature_names_out().tolist() for model in self.models]})

    def _repr_html_(self) -> str:
        rows: list[tuple[str, ...]] = [("k", "objective", "loss", *CRITERIA, "enters and leaves")]
        for i, (enters, leaves) in enumerate(self.moves()):
            criteria = (f"{getattr(self, name)[i]:.1f}" for name in CRITERIA)
            moves = " ".join([*(f"+{name}" for name in enters), *(f"−{name}" for name in leaves)])
            rows.append((f"{self.k[i]}", f"{self.objective[i]:.5g}", f"{self.loss[i]:.5g}", *criteria, moves))
        title = "smallest " + ", ".join(f"{name} at k = {self.best(name).k_}" for name in CRITERIA)
        return html_table(rows, title, (6,)) + image(functools.partial(draw_path, self))

    plot = plot_method(draw_path)


def k_path(X: Any, y: ArrayLike, ks: ArrayLike | None = None, estimator: Any = None, **fit_params: Any) -> Path:
    """Return one fitted model for every k.

    The models are found by one search over all k, at about the price of one fit; a solver other than "auto" and
    `Exchange` fits one k after the other, each started from the one before.  Ctrl-C and `max_time` give the models
    found so far.  A callback is called for the last fit of every k, and for better ones before; the path ends if it
    returns something true.

    Parameters
    ----------
    X : array, sparse matrix, table (pandas, polars, Arrow), Dask collection or source, of shape (n, d)
    y : array of shape (n,) or (n, targets)
    ks : array of int, default=None
        The numbers of features to try; by default 1, 2, ..., 20, or up to the number of columns (or groups) if there
        are fewer.
    estimator : KSparseRegressor or KSparseClassifier, default=None
        The model whose settings are used; by default KSparseRegressor().
    fit_params
        For `fit` of the model: sample_weight, offset.

    Returns
    -------
    Path

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from ksparse import k_path
    >>> X, y = load_diabetes(return_X_y=True)
    >>> path = k_path(X, y)
    >>> path.best("bic").k_
    5
    """
    template, X = check_template(estimator), as_source(X)
    shape = X.shape if hasattr(X, "shape") else as_array(X, "X").shape
    if len(shape) != 2:
        raise ArgumentError("X", f"must be a matrix with one row per sample, got shape {shape}")
    for name in fit_params:
        if name not in template._row_arguments:
            raise TypeError(f"{type(template).__name__}.fit() got an unexpected keyword argument {name!r}")
    weight = check_weights(fit_params.get("sample_weight"), X)
    if weight is not None:
        fit_params = {**fit_params, "sample_weight": weight}
    names = X.names if isinstance(X, Source) else getattr(X, "columns", None)
    d = count_choices(template.groups, shape[1], names)
    sizes, settings = check_ks(ks, d), template._fresh()
    # entries that are not finite are found while the columns are standardised
    rows, target = settings._check_pairs(X, y, ensure_all_finite=not check_flag(settings.standardize, "standardize"))
    given = settings._given(target, weight, fit_params.get("offset"))
    fitting = Fitting.begin(settings, rows, given, sizes)
    results = fitting.solve()
    models, found = fitting.models(results), fitting.coefficients(results)
    loss = mean_losses(given, *found, rows, weight=weight)
    kept = np.array([fitted.k_ for fitted in models])
    n = shape[0] if weight is None else float(weight.sum())
    used, choices = np.array([_sizes(fitted, d) for fitted in models], dtype=float).T
    targets = np.shape(y)[1] if np.ndim(y) == 2 else 1
    with np.errstate(over="ignore"):  # weights may sum to nearly the largest float
        if template.loss == "squared":
            fit = n * targets * np.log(np.maximum(2.0 * loss / targets, 1e-300))  # −2 log-likelihood, up to a constant
        else:
            fit = 2.0 * n * loss
    aic, bic = fit + 2.0 * used, fit + np.log(n) * used
    objective = np.array([fitted.objective_ for fitted in models])
    return Path(kept, models, objective, loss, aic, bic, bic + 2.0 * choices)


def check_template(estimator: Any) -> Any:
    """The estimator whose settings are used; by default a regressor."""
    template = KSparseRegressor() if estimator is None else estimator
    if not isinstance(template, KSparseRegressor | KSparseClassifier):
        raise ValueError(f"estimator must be a KSparseRegressor or a KSparseClassifier, got {template!r}")
    return template


def check_ks(ks: Any, d: int) -> NDArray[np.int64]:
    """The numbers of features to try, sorted, at most d; by default 1, 2, ..., 20."""
    if ks is None:
        return np.arange(1, min(LARGEST, d) + 1)
    counts = np.atleast_1d(check_counts(ks, "ks"))
    if counts.size == 0:
        raise ValueError("ks must hold at least one number of features, got none")
    return np.unique(np.minimum(counts, d))


def _sizes(model: Any, d: int) -> tuple[int, float]:
    """The number of parameters of a model, and the logarithm of the number of supports (or groups) of its size."""
    kind, S, parameters = model._kind(), model.support_, int(np.count_nonzero(model.coef_))
    if kind == "softmax":  # one coefficient of every column follows from the others
        parameters = S.size * (len(model.classes_) - 1)
    if hasattr(model, "groups_"):
        return parameters, _log_choices(d, len(model.groups_))
    supports = [np.flatnonzero(row) for row in model.coef_] if kind == "ovr" else [S]  # one for every class
    kept, free = model.kept_, model.n_features_in_ - model.kept_.size
    chosen = [T.size - (np.isin(T, kept).sum() if kept.size else 0) for T in supports]
    return parameters, sum(_log_choices(free, int(k)) for k in chosen)


def _log_choices(d: int, k: int) -> float:
    return math.lgamma(d + 1) - math.lgamma(k + 1) - math.lgamma(d - k + 1)
