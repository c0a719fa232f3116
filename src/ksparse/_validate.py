"""Checks of arguments: each names the argument, the value it got and the remedy."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray


def check_count(value: Any, name: str, *, low: int = 1, high: int | None = None, high_text: str = "") -> int:
    """A whole number in [low, high]."""
    try:
        if isinstance(value, (bool, np.bool_)):
            raise TypeError
        count = operator.index(value)
    except TypeError:
        raise ValueError(f"{name} must be an integer, got {value!r}") from None
    if count < low:
        raise ValueError(f"{name} must be at least {low}, got {count}")
    if high is not None and count > high:
        raise ValueError(f"{name} must be at most {high}{f' ({high_text})' if high_text else ''}, got {count}")
    return count


def check_number(value: Any, name: str, *, low: float = 0.0, strict: bool = False, infinite: bool = False) -> float:
    """A real number >= low (> low if strict)."""
    try:
        if isinstance(value, (str, bytes)):
            raise TypeError
        number = float(value)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a number, got {value!r}") from None
    if np.isnan(number) or (np.isinf(number) and not infinite) or number < low or (strict and number == low):
        kind = "a number" if infinite else "a finite number"
        raise ValueError(f"{name} must be {kind} {'above' if strict else 'of at least'} {low:g}, got {value!r}")
    return number


def check_choice(value: Any, name: str, known: Iterable[str]) -> str:
    """One of a list of names."""
    known = list(known)
    if not isinstance(value, str) or value not in known:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, known))}, got {value!r}")
    return value


def check_vector(value: Any, name: str, n: int, per: str) -> NDArray[np.float64]:
    """A finite float64 vector of length n (one number a row, a column, ...)."""
    try:
        vector = np.asarray(value)
        if vector.dtype.kind not in "biuf":
            vector = vector.astype(np.float64) if vector.dtype.kind == "O" else vector
        if vector.dtype.kind not in "biuf":
            raise ValueError
    except (TypeError, ValueError):
        raise ValueError(f"{name} must hold real numbers, got {_describe(value)}") from None
    if vector.ndim == 2 and vector.shape[1] == 1:
        vector = vector[:, 0]
    if vector.shape != (n,):
        raise ValueError(f"{name} must have one number a {per}, that is shape ({n},), got shape {np.shape(value)}")
    vector = np.ascontiguousarray(vector, dtype=np.float64)
    if not np.isfinite(vector).all():
        at = int(np.flatnonzero(~np.isfinite(vector))[0])
        raise ValueError(f"{name} must be finite, got {vector[at]} at index {at}; remove or impute it first")
    return vector


def _describe(value: Any) -> str:
    dtype = getattr(value, "dtype", None)
    return f"dtype {dtype}" if dtype is not None else type(value).__name__
