"""What all formulas share: checks of their arguments and results, and the documentation of their parameters."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from .._validate import check_flag

Function = TypeVar("Function", bound=Callable[..., Any])

PARAMETERS = {
    "k": "int or array\nNumber of entries that hard thresholding keeps, at least K.",
    "K": "int or array\nNumber of non-zeros of the true vector, at least 1.",
    "d": "int or array\nThe dimension, at least k; None means so large that the bound does not depend on it.",
    "r": "int or array\nNumber of non-zeros of b, if b itself is known to be sparse; it then takes the place of d.",
    "n": "int or array\nNumber of rows of the data.",
    "rho": "float or array\nρ of Theorem 1, at least 0.",
    "nu": "float or array\nν of Theorem 1, at least 1.",
    "bound": '{"tight", "classic"}\nThe bound on thresholding: √ν of Theorem 1, or the constant 2 of the literature.',
    "algorithm": '{"iht", "cosamp"}\nIHT with unit step, or CoSaMP that selects 2k indices.',
    "delta": "float or array\nThe restricted isometry constant of order `rip_order`, below 1.",
    "rate": "float or array\nThe wanted factor per iteration, in (0, 1]; 1 is the edge of convergence.",
    "constant": "float\nThe unknown constant C₀.",
    "eta": "float or array\nThe step size; β < 1 needs η < 1/(4L).",
    "m": "float or array\nNumber of steps per stage, at least 1.",
    "L": "float or array\nRestricted smoothness of every f_i at sparsity 3k + K.",
    "L_full": "float or array\nL', the restricted smoothness of F itself at sparsity 3k + K.",
    "alpha": "float or array\nRestricted strong convexity of F at sparsity k + K, 0 < alpha <= L.",
    "c": "float or array\nThe condition number L/α, at least 1.",
    "beta": "float or array\nThe factor by which a stage shrinks the gap.",
    "grad_norm": "float or array\ng = ‖∇_{3k+K} F(x̂)‖ = ‖H_{3k+K}(∇F(x̂))‖; at zero there is no tail.",
    "radius": "float or array\nω, the radius of the ball that the algorithm projects on, which holds x̂.",
    "stage": "float or array\nThe number s of stages.",
    "gap": "float or array\nF(x̃⁰) − F(x̂) at the start.",
    "distance": "float or array\n‖x̃⁰ − x*‖ at the start.",
    "reduction": "float or array\nThe wanted share of the gap at the start, below 1.",
    "printed": "bool\nTrue gives the paper's formula as printed; docs/errata.md derives the corrected one.",
}


def formula(function: Function) -> Function:
    """Decorator of a function of numbers or of arrays that broadcast, for arguments of any size.

    A result too large for a float is inf, without a warning; arguments for which the computation meets inf − inf or
    0·inf are refused, so that no result is NaN.  The docstring gets a section for the parameters, from `PARAMETERS`,
    unless it has one.
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

    checked.__doc__ = _documented(function.__doc__ or "", signature)
    return checked  # type: ignore[return-value]


def _documented(text: str, signature: inspect.Signature) -> str:
    """A docstring with the sections "Parameters" and "Returns", before its examples."""
    sections = []
    if "Parameters\n" not in text:
        sections += ["Parameters", "----------"]
        for name, parameter in signature.parameters.items():
            kind, meaning = PARAMETERS[name].split("\n")
            default = parameter.default
            if default is not None:
                meaning = meaning.split("; None")[0].rstrip(".") + "."
            shown = f'"{default}"' if isinstance(default, str) else repr(default)
            sections += [f"{name} : {kind}" + ("" if default is parameter.empty else f", default={shown}")]
            sections += [f"    {meaning}"]
        sections += [""]
    if "Returns\n" not in text:
        sections += ["Returns", "-------", "float or array, of the shape that the arguments broadcast to", ""]
    start, mark, examples = text.rstrip().partition("    Examples\n")
    added = "".join(f"    {line}\n" if line else "\n" for line in sections)
    return f"{start.rstrip()}\n\n{added}{mark}{examples}\n    "
