"""Compressed sensing: signals with at most k non-zeros from few measurements.

`recover` solves; `ensembles` and `operators` measure, `signals` are what is measured, `phase` finds out how many
measurements are needed.  Each is loaded when it is first used.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

_MODULES = ("ensembles", "operators", "phase", "signals")

__all__ = [*_MODULES, "recover"]

if TYPE_CHECKING:
    from . import ensembles as ensembles
    from . import operators as operators
    from . import signals as signals
    from .recover import recover as recover


class _Package(ModuleType):
    """`recover` stays the function: the import of the module of that name would bind the name to the module."""

    @property
    def recover(self) -> Any:
        return importlib.import_module(".recover", __name__).recover

    @recover.setter
    def recover(self, module: ModuleType) -> None:
        pass


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module 'ksparse.sensing' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
