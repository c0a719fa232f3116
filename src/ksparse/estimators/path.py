"""k_path: the model for every k, each started from the one before, with what helps to choose among them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln, logsumexp
from sklearn.base import clone

from .. import losses
from .._validate import check_count, check_counts
from ..passes import look_at_rows
from ._joint import count_units
from ._pictures import draw_path
from .classifier import KSparseClassifier
from .regressor import KSparseRegressor

LARGEST = 20  # the path's end, unless told


@dataclass(frozen=True, eq=False)
class Path:
    """The models of a path; arrays have an entry a k.

    Attributes
    ----------
    k : array of int
    models : list
        The fitted estimators.
    objective : array
        Of training, on scaled columns.
    loss : array
        The mean loss of training, without the ridge.
    aic, bic, ebic : array
        Information criteria, smaller is better; the last one also counts how many supports there were to choose from.
    """

    k: NDArray[np.int64]
    models: list[Any]
    objective: NDArray[np.float64]
    loss: NDArray[np.float64]
    aic: NDArray[np.float64]
    bic: NDArray[np.float64]
    ebic: NDArray[np.float64]

    def best(self, criterion: str = "ebic") -> Any:
        """The model with the smallest "aic", "bic" or "ebic"."""
        if criterion not in ("aic", "bic", "ebic"):
            raise ValueError(f"criterion must be one of 'aic', 'bic', 'ebic', got {criterion!r}")
        return self.models[int(np.argmin(getattr(self, criterion)))]

    @property
    def coefs(self) -> NDArray[np.float64]:
        """Coefficients, (ks, d) or (ks, outputs, d)."""
        return np.array([model.coef_ for model in self.models])

    def __repr__(self) -> str:
        best = self.best()
        return f"Path(k = {self.k[0]}..{self.k[-1]}, smallest ebic at k = {best.k_})"

    def plot(self, ax: Any = None) -> Any:
        """What one standard deviation of a feature does, against k, the chosen k marked; needs the `report` extra."""
        return draw_path(self, ax)


def k_path(X: Any, y: ArrayLike, ks: ArrayLike | None = None, estimator: Any = None, **fit_params: Any) -> Path:
    """Fit a model for every k.

    Parameters
    ----------
    X, y : as for the estimator
    ks : array of int, optional
        1, 2, ... up to 20 (or the columns or groups there are) by default.
    estimator : KSparseRegressor or KSparseClassifier, optional
        Whose settings are used; a regressor by default.
    fit_params
        For `fit`: sample_weight, offset.

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
    template = check_template(estimator)
    d = count_units(template, np.shape(X)[1], getattr(X, "columns", None))
    ks = np.arange(1, min(LARGEST, d) + 1) if ks is None else np.unique(check_counts(ks, "ks"))
    model: Any = clone(template).set_params(warm_start=True)
    models = []
    for k in np.unique(np.minimum(ks, d)):
        model.set_params(k=check_count(int(k), "k")).fit(X, y, **fit_params)
        models.append(_snapshot(model, template))
    kept = np.array([fitted.k_ for fitted in models])
    loss = np.array([mean_loss(fitted, X, y, **fit_params) for fitted in models])
    n = np.shape(X)[0] if fit_params.get("sample_weight") is None else np.count_nonzero(fit_params["sample_weight"])
    used, chosen = np.array([_sizes(fitted) for fitted in models], dtype=float).T
    targets = np.shape(y)[1] if np.ndim(y) == 2 else 1
    if template.loss == "squared":
        fit = n * targets * np.log(np.maximum(2.0 * loss / targets, 1e-300))  # −2 log-likelihood, to a constant
    else:
        fit = 2.0 * n * loss
    room = chosen.max() <= d
    choices = gammaln(d + 1) - gammaln(chosen + 1) - gammaln(d - chosen + 1) if room else np.zeros(len(chosen))
    aic, bic = fit + 2.0 * used, fit + np.log(n) * used
    objective = np.array([fitted.objective_ for fitted in models])
    return Path(kept, models, objective, loss, aic, bic, bic + 2.0 * choices)


def check_template(estimator: Any) -> Any:
    """The estimator whose settings are used; a regressor if there is none."""
    template = KSparseRegressor() if estimator is None else estimator
    if not isinstance(template, KSparseRegressor | KSparseClassifier):
        raise ValueError(f"estimator must be a KSparseRegressor or a KSparseClassifier, got {template!r}")
    return template


def _sizes(model: Any) -> tuple[int, int]:
    """How many parameters a model has, and how many columns or groups it has chosen."""
    parameters = chosen = int(np.count_nonzero(model.coef_))
    if model._kind() == "softmax":  # of every column's coefficients one follows from the others
        parameters = model.support_.size * (len(model.classes_) - 1)
    if model._kind() in ("softmax", "targets"):
        chosen = model.support_.size
    return parameters, len(model.groups_) if hasattr(model, "groups_") else chosen


def _snapshot(model: Any, template: Any) -> Any:
    """The fitted state of a model in an estimator of its own."""
    copy = clone(template).set_params(k=model.k)
    copy.__dict__.update({name: value for name, value in vars(model).items() if name.endswith("_")})
    return copy


def mean_loss(model: Any, X: Any, y: ArrayLike, sample_weight: Any = None, offset: Any = None) -> float:
    """The (weighted) mean of the model's own loss over rows; the sum over its outputs."""
    z = model._linear(X)
    scores = z[:, np.newaxis] if z.ndim == 1 else z
    n = scores.shape[0]
    weight = np.ones(n) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
    if offset is not None:
        scores = scores + np.asarray(offset, dtype=np.float64).reshape(n, -1)
    if model._kind() == "softmax":
        index = np.searchsorted(model.classes_, np.asarray(y))
        scores = scores.astype(np.float64)
        return float(weight @ (logsumexp(scores, axis=1) - scores[np.arange(n), index]) / weight.sum())
    total = 0.0
    for score, target in zip(scores.T, model._targets(np.asarray(y)), strict=True):
        score = np.ascontiguousarray(score, dtype=np.float64)
        total += look_at_rows(losses.resolve(model.loss), score, target, weight, np.empty(n), np.empty(n))
    return total / float(weight.sum())
