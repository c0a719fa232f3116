"""A fitted model as the problem that `theory.certificate` is about: what was minimised, and over which matrix."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from .._validate import check_vector
from ..design import as_design, standardize
from ..design.blocks import Source
from ._tables import check_weights

CLOSE = 1e-4  # relative: float32 columns may have been added up in another order


class Minimized(NamedTuple):
    """What a fit minimised; `settings` are for `minimize`, `data` says in words what A is."""

    A: Any
    y: NDArray[np.float64]
    x: NDArray[np.float64]
    k: int
    settings: dict[str, Any]
    data: str


def minimized(model: Any, X: Any, y: Any, sample_weight: Any, offset: Any) -> Minimized:
    """From the rows that the model was fitted on."""
    check_is_fitted(model)
    if not hasattr(model, "l2_"):
        raise ValueError(
            "fit must be a model that was fitted here: one read from a file has lost its ridge and scaling"
        )
    if model.groups is not None or model.positive:
        what = "groups" if model.groups is not None else "positive=True"
        raise ValueError(f"fit must be a model without {what}: the theorem is about plain hard thresholding")
    X, y = model._check_pairs(X, y, reset=False)
    if isinstance(X, Source):
        raise ValueError("A must be an array or a sparse matrix, got a source; its load() gives one")
    y, weight, size = model._one_output(y, check_weights(sample_weight, X))
    intercept = bool(model.fit_intercept)
    scaling = standardize(as_design(X), weight, intercept) if model.standardize else None
    sizes = np.ones(X.shape[1]) if scaling is None else scaling.sizes
    other = np.flatnonzero(~np.isclose(sizes, model.scale_, rtol=CLOSE, atol=0.0))
    if model.n_rows_ != X.shape[0] or other.size:
        raise ValueError(
            f"A must hold the rows that the model was fitted on ({model.n_rows_}, with the same sample_weight), got "
            + (f"{X.shape[0]} rows" if model.n_rows_ != X.shape[0] else f"another deviation in column {other[0]}")
        )
    w, b = np.ravel(model.coef_).astype(np.float64) / size, float(np.ravel(model.intercept_)[0]) / size
    shift = None if offset is None else check_vector(offset, "offset", len(y), "row") / size
    settings = {
        "loss": model.loss, "l2": model.l2_, "always_keep": model._kept(X.shape[1]), "intercept": intercept,
        "sample_weight": weight, "offset": shift,
    }  # fmt: skip
    if scaling is None:
        return Minimized(X, y, w, model.k_, settings, "X as it was given")
    centred = "centred and " if scaling.centre.any() else ""
    data = f"X with its columns {centred}divided by their {'standard deviations' if intercept else 'root mean squares'}"
    return Minimized(scaling.load(), y, scaling.to_scaled(w, b)[0], model.k_, settings, data)
