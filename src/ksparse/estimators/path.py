"""k_path: the model for every k, each started from the one before, with what helps to choose among them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln
from sklearn.base import clone

from .. import losses
from .._validate import check_count, check_counts
from ..passes import look_at_rows
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
        """Coefficients, (ks, d) or (ks, classes, d)."""
        return np.array([model.coef_ for model in self.models])

    def __repr__(self) -> str:
        best = self.best()
        return f"Path(k = {self.k[0]}..{self.k[-1]}, smallest ebic at k = {best.k_})"

    def plot(self, ax: Any = None) -> Any:
        """Coefficients against k, the chosen model marked; needs the `report` extra."""
        return draw_path(self, ax)


def k_path(X: Any, y: ArrayLike, ks: ArrayLike | None = None, estimator: Any = None, **fit_params: Any) -> Path:
    """Fit a model for every k.

    Parameters
    ----------
    X, y : as for the estimator
    ks : array of int, optional
        1, 2, ... up to 20 (or the columns there are) by default.
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
    d = np.shape(X)[1]
    ks = np.arange(1, min(LARGEST, d) + 1) if ks is None else np.unique(check_counts(ks, "ks"))
    model: Any = clone(template).set_params(warm_start=True)
    models = []
    for k in np.unique(np.minimum(ks, d)):
        model.set_params(k=check_count(int(k), "k")).fit(X, y, **fit_params)
        models.append(_snapshot(model, template))
    kept = np.array([fitted.k_ for fitted in models])
    loss = np.array([mean_loss(fitted, X, y, **fit_params) for fitted in models])
    n = np.shape(X)[0] if fit_params.get("sample_weight") is None else np.count_nonzero(fit_params["sample_weight"])
    used = np.array([np.count_nonzero(fitted.coef_) for fitted in models], dtype=float)
    quadratic = template.loss == "squared"
    fit = (
        n * np.log(np.maximum(2.0 * loss, 1e-300)) if quadratic else 2.0 * n * loss
    )  # −2 log-likelihood, to a constant
    choices = gammaln(d + 1) - gammaln(used + 1) - gammaln(d - used + 1) if used.max() <= d else np.zeros(len(used))
    aic, bic = fit + 2.0 * used, fit + np.log(n) * used
    objective = np.array([fitted.objective_ for fitted in models])
    return Path(kept, models, objective, loss, aic, bic, bic + 2.0 * choices)


def check_template(estimator: Any) -> Any:
    """The estimator whose settings are used; a regressor if there is none."""
    template = KSparseRegressor() if estimator is None else estimator
    if not isinstance(template, KSparseRegressor | KSparseClassifier):
        raise ValueError(f"estimator must be a KSparseRegressor or a KSparseClassifier, got {template!r}")
    return template


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
        scores = scores + np.asarray(offset)[:, np.newaxis]
    total = 0.0
    for score, target in zip(scores.T, model._targets(np.asarray(y)), strict=True):
        score = np.ascontiguousarray(score, dtype=np.float64)
        total += look_at_rows(losses.resolve(model.loss), score, target, weight, np.empty(n), np.empty(n))
    return total / float(weight.sum())
