"""`recover`'s default: a path of subspace pursuits over growing k."""

from __future__ import annotations

from ..result import Status
from ..solvers._pursuit import Point
from ..solvers.sp import SubspacePursuit
from .linear import Linear
from .pursue import Watch, pursue


def most(k: int, n: int) -> int:
    """How many non-zeros are looked for at most."""
    return min(k, max(1, n // 2))


def search(system: Linear, k: int, noise: float | None, watch: Watch) -> tuple[list[Point], list[Status]]:
    return pursue(SubspacePursuit(), system, most(k, system.n), watch)
