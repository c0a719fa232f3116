"""Rows that the fit has not seen, checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._fit import Fit


@dataclass(frozen=True, eq=False)
class HeldOut:
    """The targets of rows that the fit has not seen, and what the model said of them.

    Attributes
    ----------
    y : array of shape (n,), or (n, targets)
    prediction : array
        Of a regressor what `predict` gives, (n,) or (n, targets); of a classifier `predict_proba`, (n, classes), or,
        for losses without probabilities, `decision_function`, (n,) for two classes and (n, classes) for more.
    """

    y: Any
    prediction: Any


def checked_numbers(fit: Fit, held_out: HeldOut) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Targets and predictions of a regressor, both (n, outputs); a prediction may be infinite, not NaN."""
    y, z = (_numbers(getattr(held_out, name), name) for name in ("y", "prediction"))
    outputs = len(fit.outputs)
    wanted = (len(y), outputs) if fit.kind == "targets" else (len(y),)
    for name, values in (("y", y), ("prediction", z)):
        if values.shape not in (wanted, (len(y), 1)) or values.size != len(y) * outputs:
            raise ValueError(f"held_out.{name} must have shape {wanted}, got {values.shape}")
    _need_rows(y)
    if not np.isfinite(y).all():
        raise ValueError(f"held_out.y must be finite, got {y[~np.isfinite(y)][0]}; leave such rows out")
    if np.isnan(z).any():
        raise ValueError(f"held_out.prediction must not be NaN, got it at row {int(np.argwhere(np.isnan(z))[0, 0])}")
    if fit.kind == "counts" and (y.min() < 0 or z.min() < 0):
        raise ValueError(f"held_out must not be negative for loss='poisson', got {min(y.min(), z.min()):g}")
    return y.reshape(-1, outputs), z.reshape(-1, outputs)


def checked_classes(fit: Fit, held_out: HeldOut) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The number of every row's class, −1 for one that the fit has not met, and scores or probabilities
    (n, classes), for two classes without probabilities (n,)."""
    y = np.asarray(held_out.y)
    y = y.ravel() if y.ndim == 2 and y.shape[1] == 1 else y
    if y.ndim != 1:
        raise ValueError(f"held_out.y must have shape (n,), got {y.shape}")
    _need_rows(y)
    z, classes = _numbers(held_out.prediction, "prediction"), fit.model.classes_
    two_scores = not fit.has_probabilities and len(classes) == 2
    wanted = (len(y),) if two_scores else (len(y), len(classes))
    what = "predict_proba" if fit.has_probabilities else "decision_function"
    if two_scores and z.shape == (len(y), 1):
        z = z[:, 0]
    if z.shape != wanted:
        raise ValueError(f"held_out.prediction must have shape {wanted}, as {what} gives it, got {z.shape}")
    if not np.isfinite(z).all():
        at = int(np.argwhere(~np.isfinite(z))[0, 0])
        raise ValueError(f"held_out.prediction must be finite, got {np.atleast_2d(z.T).T[at].tolist()} at row {at}")
    if fit.has_probabilities and (z.min() < 0 or np.abs(z.sum(axis=1) - 1.0).max() > 1e-3):
        raise ValueError(f"held_out.prediction must hold probabilities that sum to 1, as {what} gives them")
    known = {label: number for number, label in enumerate(classes.tolist())}
    index = np.array([known.get(label, -1) for label in y.tolist()], dtype=np.int64)
    if (index < 0).all():
        raise ValueError(
            f"held_out.y must hold classes of the model ({classes.tolist()[0]!r}, ...), got {y.tolist()[0]!r}"
        )
    return index, z


def _numbers(values: Any, name: str) -> NDArray[np.float64]:
    try:
        return np.atleast_1d(np.asarray(values, dtype=np.float64))
    except (TypeError, ValueError) as error:
        raise ValueError(f"held_out.{name} must be numbers ({error})") from None


def _need_rows(y: NDArray[Any]) -> None:
    if len(y) == 0:
        raise ValueError("held_out must hold at least one row, got none; use held_out=None without such rows")
