"""The arguments A and y of `recover`, checked; a run on them; and the result, from points to signals."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import diags_array, issparse
from scipy.sparse.linalg import LinearOperator

from .._validate import as_real, canonical
from ..engine.loop import Task, Trace
from ..result import Record, Result, Status
from ..solvers.pursuit import Array, Iterate, Numbers
from .foreign import as_operator
from .linear import Linear, Operator, column_norms, some_rows, squared_norm
from .many_signals import ManySignals
from .matrix_system import Matrix

OTHERS = "use 'auto', 'htp', 'cosamp' or 'sp'"
COPY = 8  # right-hand sides from which on copies of an array pay
UNEVEN = 2.0  # norms of columns that differ by more than this factor
ADJOINT = 1e-6  # relative difference of ⟨Au, v⟩ and ⟨u, A*v⟩ that is no rounding
GOAL = 1e-10  # of ‖y‖: a residual below it is rounding
PLENTY = 1e100  # where y is about one: as good as infinite, but its square is a number
REACHED = Status("converged", "the residual reached the requested tolerance")


@dataclass(frozen=True, eq=False)
class Measurements:
    """A and the right-hand sides, (n, p), in units in which their largest entry is about one: squares are safe."""

    A: Any
    y: Array
    unit: float  # a power of two
    single: bool  # y was a vector
    joint: bool
    split: bool  # A is real and y complex: real and imaginary parts are two outputs with one support
    factor: Array | None = None  # what x's entries are to be multiplied with, if A's columns were made alike

    @classmethod
    def create(cls, A: Any, y: ArrayLike, joint: bool) -> Measurements:
        A = _check_matrix(A)
        n, d = A.shape
        if n == 0 or d == 0:
            raise ValueError(f"A must have at least one row and one column, got shape ({n}, {d})")
        y = _numbers(y, "y")
        if y.ndim not in (1, 2) or y.shape[0] != n or y.shape[1:] == (0,):
            raise ValueError(f"y must have shape ({n},) or ({n}, p), a row for each row of A, got shape {y.shape}")
        if not np.isfinite(y).all():
            at = tuple(int(i) for i in np.argwhere(~np.isfinite(y))[0])
            raise ValueError(f"y must be finite, got {y[at]} at index {at[0] if y.ndim == 1 else at}; remove it first")
        single = y.ndim == 1
        if joint and single:
            raise ValueError("joint=True is for several right-hand sides, got y with one; give y of shape (n, p)")
        split = y.dtype.kind == "c" and A.dtype.kind != "c"
        parts = np.ascontiguousarray(y.reshape(n, -1)).view(np.float64)  # real and imaginary, each scaled by itself
        exponent = min(int(np.frexp(np.abs(parts).max())[1]), 1023)
        return cls(A, np.ldexp(parts, -exponent).view(y.dtype), float(np.ldexp(1.0, exponent)), single, joint, split)

    @property
    def n(self) -> int:
        return self.A.shape[0]

    @property
    def d(self) -> int:
        return self.A.shape[1]

    def with_even_columns(self) -> Measurements:
        """A with columns of norm one, if it is a matrix in which they differ much: coefficients are then comparable."""
        if isinstance(self.A, LinearOperator):
            return self
        # some rows show whether all rows have to be read
        for rows in (some_rows(self.A), self.A):
            norms = column_norms(rows)
            known = norms[norms > 0.0]
            if not np.isfinite(norms).all() or not known.size or known.max() <= UNEVEN * known.min():
                return self
        factor = 1.0 / np.where(norms > 0.0, norms, 1.0)
        even = self.A * factor if isinstance(self.A, np.ndarray) else (self.A @ diags_array(factor)).tocsr()
        return replace(self, A=even, factor=factor)

    def system(self, check: Callable[[], None]) -> Linear:
        """As signals with outputs: own supports are signals of their own, one support is one signal of many outputs."""
        y = self.y.T
        parts = np.stack([y.real, y.imag], axis=1) if self.split else y[:, np.newaxis]  # (p, outputs, n)
        dtype = np.complex128 if "c" in (self.A.dtype.kind, parts.dtype.kind) else np.float64
        parts = np.ascontiguousarray(parts, dtype)
        if self.joint:
            parts = parts.reshape(1, -1, self.n)
        if isinstance(self.A, LinearOperator):
            return Operator(self.A, parts, check)
        many = isinstance(self.A, np.ndarray) and len(parts) >= COPY
        return (ManySignals if many else Matrix)(self.A, parts, check)

    def scaled(self, size: float | None) -> float | None:
        """A size in the units of y as one of the scaled system."""
        return None if size is None else min(size / self.unit, PLENTY)

    def misfit(self, value: Any) -> Any:
        """A misfit of the scaled system as one of y."""
        with np.errstate(over="ignore"):
            return value * self.unit * self.unit

    @property
    def entries(self) -> int:
        """How many numbers of y one support explains."""
        return self.n * (self.y.shape[1] if self.joint else 1)

    # --- from points to signals ----------------------------------------------------------------------------------
    def signals(self, x: Array) -> Array:
        """From (d, signals·outputs) to what the user calls x."""
        if self.split:
            x = x[:, 0::2] + 1j * x[:, 1::2]
        with np.errstate(over="ignore"):
            x = x * self.unit if self.factor is None else x * self.factor[:, np.newaxis] * self.unit
        if not np.isfinite(x).all():
            raise ValueError("x leaves the range of floats: y is too large beside A; rescale one of them")
        return x[:, 0] if self.single else x

    def supports(self, x: Array) -> Any:
        if self.single:
            return np.flatnonzero(x)
        if self.joint:
            return np.flatnonzero(np.abs(x).max(axis=1))
        return [np.flatnonzero(column) for column in x.T]

    def residuals(self, rests: list[Array]) -> Any:
        """‖y − Ax‖ of each right-hand side, from the residuals (outputs, n) of the signals."""
        squares = np.array([squared_norm(row) for row in np.concatenate(rests)])
        norms = np.sqrt(squares.reshape(-1, 2).sum(axis=1) if self.split else squares) * self.unit
        return float(norms[0]) if self.single else norms

    def objective(self, residuals: Any) -> Any:
        """‖y − Ax‖²/(2n)"""
        with np.errstate(over="ignore", under="ignore"):
            objective = 0.5 * np.square(residuals) / self.n
        return float(objective) if self.single else objective

    # --- what only some algorithms need --------------------------------------------------------------------------
    def need_real_matrix(self, name: str) -> None:
        if isinstance(self.A, LinearOperator):
            raise ValueError(
                f"algorithm={name!r} reads the entries of A, got an operator (LinearOperator); {OTHERS}, "
                "or give A as an array"
            )
        if self.A.dtype.kind == "c" or self.split:
            raise ValueError(f"algorithm={name!r} is for real numbers, got complex ones; {OTHERS}")
        if self.joint:
            raise ValueError(f"algorithm={name!r} cannot find a joint support; {OTHERS}")

    def check_adjoint(self) -> None:
        from .operators import adjoint_error

        try:
            error = adjoint_error(self.A)
        except NotImplementedError:
            raise ValueError("A has no adjoint; give the LinearOperator an rmatvec") from None
        if error > ADJOINT:  # not if it is NaN: the first product will name the numbers that are not finite
            raise ValueError(
                f"A's rmatvec is not the adjoint of its matvec: <Au, v> and <u, A*v> differ by {error:.2g} of their "
                "size; correct rmatvec (conjugate and transpose, with the same scale)"
            )


# --- a run -----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True, eq=False)
class Recovery(Result):
    """The outcome of `recover`: a `Result` that knows more.

    Attributes
    ----------
    x : array of shape (d,), for several right-hand sides (d, p); complex if A or y is
        The best point that a run met; `history` is that of its steps.
    support : array of int; for several right-hand sides a list of them, unless they share one
    objective : float or array of shape (p,)
        ‖y − Ax‖²/(2n).
    residual : float or array of shape (p,)
        ‖y − Ax‖.
    products : int
        Number of vectors that all of A or its adjoint was applied to; for a matrix, about the number of passes over it.
        0 if the algorithm does not count them.
    algorithm : str
    statuses : list of Status
        How the run of each right-hand side ended; ``status`` sums them up.
    """

    residual: Any = math.nan
    products: int = 0
    algorithm: str = ""
    statuses: tuple[Status, ...] = ()

    def __repr__(self) -> str:
        shape = "x".join(map(str, self.x.shape))
        size = self.support.size if isinstance(self.support, np.ndarray) else [s.size for s in self.support]
        sizes = f"{min(size)} to {max(size)}" if isinstance(size, list) else str(size)
        worst = float(np.max(self.residual))
        return (
            f"Recovery({self.algorithm}, {self.status.explain()}; x {shape}, {sizes} non-zeros, residual {worst:.3g}, "
            f"{self.products} products)"
        )


class SignalRun(Task[Recovery]):
    """The run of an algorithm on all signals in the loop: each has an iterate of its own, and an end."""

    def __init__(
        self, given: Measurements, system: Linear, name: str, noise: float | None, residual: float | None
    ) -> None:
        self.given, self.system, self.name = given, system, name
        self.noise, self.residual = given.scaled(noise), given.scaled(residual)
        self.now = self.system.start()  # what the callback is shown
        self.best = list(self.now)
        self.ends: list[Status | None] = [None] * len(self.now)
        self.goals = self._goals()
        self._counted = 0  # products in the records so far

    def _goals(self) -> Numbers:
        """The misfit at which each signal is done."""
        size, y = self.given.entries, self.system.y
        target = np.maximum(GOAL * np.linalg.norm(y.reshape(len(y), -1), axis=1), self.residual or 0.0)
        if self.noise:  # what Gaussian noise stays below with high probability (Cai & Wang, 2011)
            target = np.maximum(target, self.noise * math.sqrt(size + 2.0 * math.sqrt(size * math.log(size))))
        return 0.5 * target**2 / self.system.n

    def reached(self, point: Iterate) -> bool:
        """Whether the misfit is as small as was asked for."""
        return bool(point.misfit <= self.goals[point.signal])

    def record(self, changes: int) -> Record:
        """The record of a stage in which `changes` columns entered."""
        objective = self.given.misfit(float(np.mean([point.misfit for point in self.now])))
        products, self._counted = self.system.products - self._counted, self.system.products
        return Record(objective, products, changes, 0.0, math.nan, math.nan)

    def take(self, record: Record, stage: int) -> Status | None:
        return None  # every signal diverges by itself

    def shown(self) -> tuple[Array, float, NDArray[np.intp]]:
        x = self._signals(self.now)
        return x, 0.0, np.flatnonzero(x if x.ndim == 1 else np.abs(x).max(axis=1))

    def _signals(self, points: Sequence[Iterate]) -> Array:
        x = np.zeros((self.given.d, len(points), len(points[0].x)), self.system.dtype)
        for i, point in enumerate(points):
            x[point.columns, i] = point.x.T
        return self.given.signals(x.reshape(self.given.d, -1))

    def finished(self, rest: Status) -> list[Status]:
        """How the run of each signal ended; `rest` is the status of those that were still running."""
        ends = [rest if end is None else end for end in self.ends]
        for i in self.system.unfinished:
            if ends[i] == "converged" and not self.reached(self.best[i]):
                message = (
                    "conjugate gradients gave up on the fit: columns of A of very different norms, or nearly dependent"
                )
                ends[i] = Status("stalled", message, "scale A's columns, or give A as an array")
        for i, end in enumerate(ends):
            if self.residual is not None and end == "converged" and not self.reached(self.best[i]):
                message = f"{end.message}, but the residual is above what was asked for"
                ends[i] = Status("stalled", message, "allow a larger k or residual, or try algorithm='auto'")
        return ends

    def result(self, status: Status, trace: Trace) -> Recovery:
        given, system, ends = self.given, self.system, self.finished(status)
        points = self.best
        if isinstance(system, Operator):  # conjugate gradients update the residual step by step, and rounding adds up
            points = system.keep(points, [point.columns for point in points])
        x = self._signals(points)
        residuals = given.residuals([point.rest for point in points])
        return Recovery(
            x, 0.0, given.supports(x), given.objective(residuals), summary(ends), trace.stages, trace.history(), None,
            None, residuals, system.products, self.name, tuple(ends),
        )  # fmt: skip


def summary(ends: Sequence[Status]) -> Status:
    """One status for several signals: the commonest of those that are not "converged", if there are any."""
    if len(ends) == 1:
        return ends[0]
    kinds: dict[str, list[Status]] = {}
    for end in ends:
        kinds.setdefault(str(end), []).append(end)
    if set(kinds) == {"converged"}:
        return Status("converged", f"all {len(ends)} signals")
    kind = max((name for name in kinds if name != "converged"), key=lambda name: len(kinds[name]))
    message = f"{len(kinds[kind])} of {len(ends)} signals: {kinds[kind][0].message}"
    return Status(kind, message, kinds[kind][0].remedy)


# --- checks ----------------------------------------------------------------------------------------------------------
def _check_matrix(A: Any) -> Any:
    operator = as_operator(A)
    if operator is not None:
        return operator
    if issparse(A):
        if A.dtype.kind not in "biufc":
            raise ValueError(f"A must hold numbers, got dtype {A.dtype}")
        if A.ndim != 2:
            raise ValueError(f"A must have two dimensions, got shape {A.shape}")
        return canonical(A.tocsr().astype(np.complex128 if A.dtype.kind == "c" else np.float64, copy=False))
    A = _numbers(A, "A")
    if A.ndim != 2:
        raise ValueError(f"A must have two dimensions, got shape {A.shape}")
    return A


def _numbers(value: Any, name: str) -> Array:
    """An array of float64 or complex128."""
    try:
        complex_numbers = np.iscomplexobj(value)
    except ValueError:  # a list whose parts differ in length, which as_real names
        complex_numbers = False
    if complex_numbers:
        return np.asarray(value, np.complex128)
    return as_real(value, name).astype(np.float64, copy=False)
