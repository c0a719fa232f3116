"""What all formulas share: flags are checked, and what leaves the range of floats is inf, or refused, but never NaN."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from .._validate import check_flag

Function = TypeVar("Function", bound=Callable[..., Any])


def formula(function: Function) -> Function:
    """A function of numbers or arrays that broadcast, for arguments of any size.

    A result too large for a float is inf, without a warning; one that is inf − inf or 0·inf on its way is refused.
    """
    signature = inspect.signature(function)
    names = ", ".join(signature.parameters)

    @functools.wraps(function)
    def checked(*arguments: Any, **named: Any) -> Any:
        given = signature.bind(*arguments, **named).arguments
        if "printed" in given:
            check_flag(given["printed"], "printed")
        try:
            with np.errstate(all="ignore"):
                value = function(*arguments, **named)
        except ValueError as error:
            if "broadcast" not in str(error):
                raise
            raise ValueError(f"{names} must be numbers, or arrays whose shapes broadcast ({error})") from None
        for part in value if isinstance(value, tuple) else (value,):
            if np.isnan(part).any():
                raise ValueError(f"{names} are too far apart: the result leaves the range of floats; rescale them")
        return value

    return checked  # type: ignore[return-value]
