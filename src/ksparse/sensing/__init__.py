"""Compressed sensing: signals with at most k non-zeros from few measurements.

`recover` solves; `ensembles` and `operators` measure, `signals` are what is measured, `phase` finds out how many
measurements are needed.  Each is loaded when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_MODULES = ("ensembles", "operators", "phase", "signals")

__all__ = [*_MODULES, "recover"]

if TYPE_CHECKING:
    from . import ensembles as ensembles
    from . import operators as operators
    from . import phase as phase
    from . import signals as signals
    from .recovery import recover as recover


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f".{name}", __name__)
    if name == "recover":
        return importlib.import_module(".recovery", __name__).recover
    raise AttributeError(f"module 'ksparse.sensing' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
