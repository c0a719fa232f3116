"""The settings of a solver, checked by their names: the same name means the same thing everywhere."""

from __future__ import annotations

import dataclasses
from typing import Any

from .._validate import check_choice, check_count, check_flag, check_number

COUNTS = ("m", "stages", "epochs", "iterations", "batch_size", "working_set", "select", "exchange")
OPTIONAL = ("m", "working_set")


def check_fields(solver: Any, steps: tuple[str, ...] = ()) -> None:
    """Check the fields of a frozen solver and store them as plain ints and floats; `steps` are the named steps."""
    for field in dataclasses.fields(solver):
        name, value = field.name, getattr(solver, field.name)
        if name == "step":
            value = check_step(value, steps)
        elif name in COUNTS and not (name in OPTIONAL and value is None):
            value = check_count(value, name)
        elif name == "breaths":
            value = check_count(value, name, low=0)
        elif name in ("tol", "gain"):
            value = check_number(value, name)
        elif name in ("stop_on_divergence", "refit"):
            value = check_flag(value, name)
        elif name == "output":
            value = check_choice(value, name, ("last", "random"))
        object.__setattr__(solver, name, value)


def check_step(step: Any, names: tuple[str, ...]) -> float | str:
    """A positive number or one of the names."""
    if isinstance(step, str):
        return check_choice(step, "step", names)
    try:
        return check_number(step, "step", strict=True)
    except ValueError as error:
        raise ValueError(f"{error}; or one of {', '.join(map(repr, names))}") from None
