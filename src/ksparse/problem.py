r"""The problem: which function is minimised, over which set.

.. math:: \min_x F(x) = \frac1n \sum_i \tilde w_i\, \varphi(a_i\cdot x + \beta_0 + o_i,\, y_i)
          + \frac{\lambda}{2}\|x\|^2
          \quad\text{s.t.}\quad x \text{ has at most } k \text{ non-zeros outside the kept columns},\ \|x\| \le \omega

with weights :math:`\tilde w_i = n w_i/\sum w`, offsets :math:`o_i`, and the intercept :math:`\beta_0` (a kept
coordinate whose column is all ones; it is never stored, never shrunk by the ridge).  Kept columns are outside
the radius too.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import losses
from ._jit import kernel
from ._validate import as_array, check_flag, check_number, check_vector
from .design import Design, Point, Stage, as_design
from .design.base import membership
from .design.matrix import frozen
from .operators import hard_threshold, project_ball


class Slots(NamedTuple):
    """An iterate on the columns in play: first the intercept (if any), then the kept columns, then k chosen ones.

    With fewer than k non-zeros the chosen slots are padded with columns whose coefficient is zero.
    """

    column: NDArray[np.int64]  # the column of a slot (the intercept's entry means nothing)
    x: NDArray[np.float64]
    slot_of: NDArray[np.int32]  # slot of a column, or -1
    member: NDArray[np.uint64]  # one bit per column: has it a slot?


class Snapshot:
    """A copy of an iterate, with its objective; without the places of all d columns, which follow from the others."""

    def __init__(self, slots: Slots, objective: float = math.inf) -> None:
        self.objective = objective
        self.slots = Slots(slots.column.copy(), slots.x.copy(), np.empty(0, np.int32), np.empty(0, np.uint64))

    def take(self, objective: float, slots: Slots) -> None:
        """Remember this iterate."""
        self.objective = objective
        self.slots.column[:], self.slots.x[:] = slots.column, slots.x

    def give(self, slots: Slots) -> None:
        """Put the remembered iterate into `slots`."""
        copy_slots(self.slots, slots)

    def keep_better(self, objective: float, slots: Slots) -> None:
        if objective < self.objective:
            self.take(objective, slots)


def copy_slots(source: Slots, target: Slots) -> None:
    """Make target the iterate that source is, touching only what differs."""
    move_slots(source.column, source.x, *target)


@kernel
def move_slots(new_column, new_x, column, x, slot_of, member):
    moved = False
    for s in range(x.size):
        x[s] = new_x[s]
        if column[s] != new_column[s]:
            moved = True
            old = column[s]
            slot_of[old] = -1
            member[old >> 6] &= ~(np.uint64(1) << np.uint64(old & 63))
    if not moved:
        return
    for s in range(x.size):
        if column[s] != new_column[s]:
            new = column[s] = new_column[s]
            slot_of[new] = s
            member[new >> 6] |= np.uint64(1) << np.uint64(new & 63)


class Limits(NamedTuple):
    """What a step has to respect besides the data: the ridge, the radius, the sign, and which slots do not compete."""

    l2: float
    radius: float
    positive: bool
    first: int  # 1 if slot 0 is the intercept
    kept: int  # the slots that do not compete come first, this many with the intercept


@dataclasses.dataclass(frozen=True, eq=False)
class Problem:
    """Data, loss and constraints, checked and in shape.  Build one with `Problem.create`."""

    design: Design
    y: NDArray[np.float64]
    weight: NDArray[np.float64]
    offset: NDArray[np.float64]
    loss: Any
    l2: float
    kept: NDArray[np.int64]
    intercept: bool
    positive: bool
    radius: float

    @classmethod
    def create(
        cls,
        A: Any,
        y: ArrayLike,
        *,
        loss: Any = "squared",
        sample_weight: ArrayLike | None = None,
        offset: ArrayLike | None = None,
        l2: float = 0.0,
        always_keep: ArrayLike | None = None,
        intercept: bool = False,
        positive: bool = False,
        radius: float = math.inf,
    ) -> Problem:
        """Check everything and convert what is not in shape."""
        loss = losses.resolve(loss)
        design = as_design(A)
        n, d = design.shape
        if n == 0 or d == 0:
            raise ValueError(f"A must have at least one row and one column, got shape ({n}, {d})")
        if d >= 2**31:
            raise ValueError(f"A must have fewer than 2^31 columns, got {d}")
        y = check_vector(y, "y", n, "row")
        losses.check_target(loss, y)
        weight = check_weight(sample_weight, n)
        given, offset = offset, np.zeros(n) if offset is None else check_vector(offset, "offset", n, "row")
        if not design.in_memory:  # read-only copies: where rows are on other machines, they are sent there once
            y, offset = y.copy(), offset if given is None else offset.copy()
            for array in (y, weight, offset):
                array.flags.writeable = False
        l2 = check_number(l2, "l2")
        intercept, positive = check_flag(intercept, "intercept"), check_flag(positive, "positive")
        radius = check_number(radius, "radius", strict=True, infinite=True)
        kept = _check_kept(always_keep, d)
        problem = cls(design, y, weight, offset, loss, l2, kept, intercept, positive, radius)
        if not design.checked:
            _ = problem.row_norms  # refuses entries that are not finite
        return problem

    @property
    def n(self) -> int:
        return self.y.size

    @property
    def d(self) -> int:
        return self.design.shape[1]

    @property
    def first(self) -> int:
        """The first slot that is a column: 1 if slot 0 is the intercept."""
        return int(self.intercept)

    @property
    def n_kept(self) -> int:
        """The slots that do not compete: the intercept and the kept columns."""
        return self.first + self.kept.size

    @functools.cached_property
    def row_norms(self) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Per row: max |a_ij| outside the kept columns, ‖a_i‖², and ‖a_i‖² on the kept columns."""
        return self.design.norms(self.kept)

    @property
    def row_max(self) -> NDArray[np.float64]:
        return self.row_norms[0]

    @property
    def row_square(self) -> NDArray[np.float64]:
        return self.row_norms[1]

    @property
    def kept_square(self) -> NDArray[np.float64]:
        return self.row_norms[2]

    @functools.cached_property
    def targets(self) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """y, weight and offset, read-only."""
        return frozen(self.y), frozen(self.weight), frozen(self.offset)

    @property
    def limits(self) -> Limits:
        return Limits(self.l2, self.radius, self.positive, self.first, self.n_kept)

    # --- iterates ------------------------------------------------------------------------------------------------
    def slots(self, k: int, x0: ArrayLike | None = None, intercept: float = 0.0) -> Slots:
        """The starting iterate, Π_ω(H_k(x0)) in slots."""
        start = np.zeros(self.d) if x0 is None else check_vector(x0, "x0", self.d, "column").copy()
        on_kept = start[self.kept]
        start[self.kept] = 0.0
        if self.positive:
            np.maximum(start, 0.0, out=start)
        chosen = start if x0 is None else hard_threshold(start, k, out=start)
        if self.radius < math.inf:
            chosen = project_ball(chosen, self.radius)
        columns = np.flatnonzero(chosen)
        return self.place(k, columns, np.concatenate([on_kept, chosen[columns]]), intercept)

    def place(self, k: int, columns: NDArray[Any], x: NDArray[np.float64], intercept: float = 0.0) -> Slots:
        """Slots that hold these columns beside the kept ones, and their coefficients, those of the kept ones first."""
        short = k - columns.size
        if short > 0:  # pad with the lowest columns that are free
            free = np.ones(self.d, dtype=bool)
            free[self.kept] = False
            free[columns] = False
            columns = np.concatenate([columns, np.flatnonzero(free)[:short]])
        index = np.concatenate([np.zeros(self.first, np.int64), self.kept, columns.astype(np.int64)])
        x = np.concatenate([np.full(self.first, float(intercept)), x, np.zeros(max(0, short))])
        return Slots(index, x, *membership(index[self.first :], self.d, self.first))

    def vector(self, slots: Slots) -> NDArray[np.float64]:
        """The iterate as a vector of all columns (the intercept is not among them)."""
        full = np.zeros(self.d)
        full[slots.column[self.first :]] = slots.x[self.first :]
        return full

    def constant(self, slots: Slots) -> float:
        """The intercept of an iterate; 0 if the problem has none."""
        return float(slots.x[0]) if self.intercept else 0.0

    # --- passes over the data ------------------------------------------------------------------------------------
    def stage(self, slots: Slots, idx: NDArray[np.int64], reuse: Stage | None = None) -> Stage:
        """One pass gives the objective, the full gradient, w̃φ' of the rows, and the rows that `idx` draws.

        `reuse` is a stage no longer needed, whose arrays may be overwritten.
        """
        stage = self.design.stage(self.point(slots), *self.targets, self.row_max, idx, reuse)
        return stage._replace(value=stage.value + self.ridge(slots.x[self.first :]))

    def drawn(self, idx: NDArray[np.int64]) -> Stage:
        """The rows that `idx` draws, as a stage whose snapshot has derivative and gradient zero."""
        return self.design.drawn(self.point(self.slots(1)), *self.targets, self.row_max, idx)

    def point(self, slots: Slots) -> Point:
        """An iterate as passes need it."""
        return Point(self.first, slots.column, slots.x, self.d, self.n, self.loss, (slots.slot_of, slots.member))

    def sample(self, batch: int) -> int:
        """How many steps a stage has by default: 3n, or for a source as many as the rows that fit its memory allow."""
        steps, rows = 3 * self.n, self.design.sample_rows
        return steps if rows is None else min(steps, max(1, rows // batch))

    def objective(self, slots: Slots) -> float:
        """F at an iterate: a pass over its columns only."""
        return self.design.objective(self.point(slots), *self.targets) + self.ridge(slots.x[self.first :])

    def ridge(self, x: NDArray[np.float64]) -> float:
        """The ridge's part of F, for coefficients without the intercept."""
        if self.l2 == 0.0:  # also where ‖x‖² overflows
            return 0.0
        with np.errstate(over="ignore"):
            return 0.5 * self.l2 * float(np.sum(x * x))

    # --- smoothness ----------------------------------------------------------------------------------------------
    def smoothness(self, k: int) -> float:
        """A cheap upper bound on the curvature of every f_i along k-sparse directions (and the kept ones).

        min(‖a_i‖², k‖a_i‖_∞² + ‖a_i[kept]‖²) is within a small factor of max ‖a_i[S]‖², and costs no pass.
        """
        norms = np.minimum(self.row_square, k * self.row_max**2 + self.kept_square) + self.first
        with np.errstate(over="ignore"):  # an infinite bound is a bound
            return float(np.max(norms * self._curvature_bounds())) + self.l2

    def restricted_smoothness(self, r: int) -> float:
        """L_r = max_i w̃_i sup φ''·(‖H_r(a_i)‖² + kept part) + λ, exactly; inf if φ'' has no bound."""
        bound = losses.curvature_bound(self.loss)
        top = self.design.largest_squares(r, self.kept)
        return float(np.max(self.weight * (top + self.kept_square + self.first))) * bound + self.l2

    def step(self, rule: float | str, k: int, check: Callable[[], None]) -> float:
        """The step of a stochastic method in units of ∇F: a number as it is, or the paper's rules by name."""
        if rule == "spectral":
            return inverse(self.top_eigenvalue(check), 2.0)
        if rule == "theory":
            # L_{3k+K} with K <= k, the restricted smoothness of section 3.2
            smoothness = self.restricted_smoothness(min(self.d, 4 * k))
            if not np.isfinite(smoothness):
                raise ValueError("step='theory' needs a loss of bounded curvature; use step='auto' or a number")
            return inverse(smoothness, 0.125)
        if rule == "auto":
            return inverse(self.smoothness(k), 0.5)
        return float(rule)

    def top_eigenvalue(self, check: Callable[[], None]) -> float:
        """σ₁(AAᵀ), the largest eigenvalue of AᵀA, with the intercept's column of ones; calls `check` before every pass.

        Rounded to ten digits, so that the last bits of a threaded BLAS do not reach the iterates.
        """
        n = self.n
        plain = dataclasses.replace(
            self, y=np.zeros(n), weight=np.ones(n), offset=np.zeros(n), loss=losses.Squared(), l2=0.0,
            kept=np.empty(0, np.int64),
        )  # fmt: skip
        slots = plain.slots(self.d)
        size = slots.x.size

        def gram(v: NDArray[np.float64]) -> NDArray[np.float64]:
            check()
            slots.x[:] = np.ravel(v)
            stage = plain.stage(slots, np.empty((0, 1), np.int64))
            return n * np.concatenate([np.full(self.first, stage.mu_ones), stage.mu])

        if not self.row_square.any() and not self.first:
            return 0.0
        if size <= 16:  # ARPACK wants more than a few columns
            top = float(np.linalg.eigvalsh(np.array([gram(e) for e in np.eye(size)]))[-1])
        else:
            from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

            start = np.random.default_rng(0).standard_normal(size)  # fixed: a run draws from its own generator only
            operator = LinearOperator((size, size), matvec=gram, dtype=np.float64)
            try:
                top = float(eigsh(operator, k=1, v0=start, tol=1e-12, return_eigenvectors=False)[0])
            except ArpackNoConvergence:
                raise ValueError("step='spectral' found no largest eigenvalue of these rows; give a number") from None
        return float(f"{max(top, 0.0):.10g}")

    def predicted_decrease(self, slots: Slots) -> float:
        """About how far F could still fall on the slots: the sum of g²/(2h), gradient against curvature, slot by slot.

        Blind to the units of the columns, unlike any step; zero at a point where nothing more is to be had.
        """
        first, kept, x = self.first, self.n_kept, slots.x
        g, curvatures = self.design.slot_derivatives(self.point(slots), *self.targets)
        with np.errstate(all="ignore"):  # what overflows predicts much
            g[first:] += self.l2 * x[first:]
            curvatures[first:] += self.l2
            chosen, pull = x[kept:], g[kept:]
            if self.positive:
                pull[(chosen == 0.0) & (pull > 0.0)] = 0.0  # held at zero
            square, outwards = float(np.sum(chosen * chosen)), float(np.sum(pull * chosen))
            if square > 0.0 and math.sqrt(square) >= self.radius * (1.0 - 1e-9) and outwards < 0.0:
                pull -= outwards / square * chosen  # held by the ball
            moving = g != 0.0
            predicted = float(np.sum(g[moving] ** 2 / (2.0 * curvatures[moving])))
        return math.inf if math.isnan(predicted) else predicted

    def _curvature_bounds(self) -> NDArray[np.float64]:
        """w̃_i times a bound of φ'' for each row; where φ'' is unbounded, its size around the start and the target."""
        bound = losses.curvature_bound(self.loss)
        if math.isfinite(bound):
            return self.weight * bound
        used = self.weight > 0
        bounds = np.zeros(self.n)
        bounds[used] = self.weight[used] * losses.start_curvature(self.loss, self.offset[used], self.y[used])
        return bounds


def inverse(curvature: float, factor: float) -> float:
    """factor / curvature; where there is no curvature at all (a matrix of zeros) any step will do."""
    return factor / curvature if curvature > 0 else 1.0


def check_weight(sample_weight: ArrayLike | None, n: int) -> NDArray[np.float64]:
    if sample_weight is None:
        return np.ones(n)
    weight = check_vector(sample_weight, "sample_weight", n, "row")
    if (weight < 0).any():
        at = int(np.flatnonzero(weight < 0)[0])
        raise ValueError(f"sample_weight must not be negative, got {weight[at]:g} at index {at}")
    largest = weight.max()
    if largest == 0:
        raise ValueError("sample_weight must not be all zero: no row would count")
    scaled = weight / largest  # first, so that the sum cannot overflow
    return scaled * (n / scaled.sum())


def _check_kept(always_keep: ArrayLike | None, d: int) -> NDArray[np.int64]:
    if always_keep is None:
        return np.empty(0, np.int64)
    kept = np.atleast_1d(as_array(always_keep, "always_keep"))
    if kept.size == 0:
        return np.empty(0, np.int64)
    if kept.dtype == bool:
        if kept.shape != (d,):
            raise ValueError(f"always_keep as a mask must have one entry per column ({d}), got shape {kept.shape}")
        kept = np.flatnonzero(kept)
    if kept.dtype.kind not in "iu" or kept.ndim != 1:
        raise ValueError(f"always_keep must be column numbers or a mask of columns, got {always_keep!r}")
    if kept.size and (kept.min() < 0 or kept.max() >= d):
        raise ValueError(f"always_keep must be columns between 0 and {d - 1}, got {always_keep!r}")
    return np.unique(kept).astype(np.int64)
