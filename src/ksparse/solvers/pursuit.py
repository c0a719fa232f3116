"""Pursuits: algorithms that choose columns by the derivatives of F and fit on the columns they chose.

A pursuit knows neither losses nor matrices: it runs on a `System`, one signal or several at once, each of which has a
misfit F that is to be small.  For `minimize` the system is a problem with any loss (`problem_system.py`), for `recover`
a matrix or an operator, real or complex, with one or many right-hand sides (`sensing/linear.py`).
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..engine.loop import PATIENCE, Clock, State
from ..operators import largest
from ..result import Record, Status
from .base import Solver, check_fields

if TYPE_CHECKING:
    from ..problem import Problem, Slots

Array = NDArray[Any]
Columns = NDArray[np.int64]
Numbers = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Iterate:
    """A signal's support, the coefficients on it, and its misfit."""

    signal: int  # its number in the system
    columns: Columns  # in increasing order
    x: Array  # (outputs, columns); several outputs share a support
    misfit: float  # F
    rest: Any  # what the system remembers of the point: the residual, say
    negative_gradient: Any = None  # −∇F on all columns, where a fit has computed it
    memory: Any = None  # what the algorithm remembers of the point

    def largest(self, k: int) -> Columns:
        """The k columns with the largest coefficients."""
        return self.columns[largest(magnitudes(self.x), min(k, self.columns.size))]

    def on(self, columns: Columns) -> Array:
        """The coefficients on some columns, zero where there are none."""
        out = np.zeros((len(self.x), columns.size), self.x.dtype)
        at, mine = find(self.columns, columns)
        out[:, mine] = self.x[:, at[mine]]
        return out


class GradientSystem(ABC):
    """What gradient steps need of the signals.  Methods take and return one entry per signal, to share work."""

    n: int
    least_step: float = 0.0  # steps below it are not halved again

    @abstractmethod
    def negative_gradients(self, points: Sequence[Iterate]) -> Array:
        """−∇F at each point on all columns, (points, outputs, d); empty if the system keeps it with its points."""

    @abstractmethod
    def threshold(self, points: Sequence[Iterate], gradients: Array, steps: Sequence[float], k: int) -> list[Iterate]:
        """H_k(x − step·∇F) for each point, with what `negative_gradients` gave."""

    @abstractmethod
    def differences(self, before: Sequence[Iterate], after: Sequence[Iterate]) -> tuple[list[float], list[float]]:
        """‖Δx‖² and Δx'∇²F Δx between points."""

    @abstractmethod
    def negligible(self, point: Iterate) -> float:
        """‖Δx‖² that is no more than rounding at a point."""

    @abstractmethod
    def first_steps(self, points: Sequence[Iterate], gradients: Array, k: int) -> list[float]:
        """A first guess of the step for each point."""

    @property
    @abstractmethod
    def top_curvature(self) -> float:
        """The largest eigenvalue of ∇²F, of a system where it is the same everywhere."""


class System(GradientSystem):
    """Signals with their misfits, for pursuits that fit on chosen columns."""

    d: int
    room: int  # columns that can be told apart: no fit on more of them is unique

    @abstractmethod
    def negative_gradients(self, points: Sequence[Iterate], one_by_one: bool = False) -> Array:
        """−∇F at each point on all columns, (points, outputs, d); `one_by_one`: the support grows by one column."""

    @abstractmethod
    def fit(self, points: Sequence[Iterate], supports: Sequence[Columns], share: float = 0.0) -> list[Iterate]:
        """The least misfit on each support.  An iterative fit starts from the point, and may stop when the derivatives
        on the support have fallen to a `share` of what they were."""

    def fit_largest(
        self, points: Sequence[Iterate], supports: Sequence[Columns], k: int, share: float = 0.0
    ) -> list[Iterate]:
        """Fit on each support, then once more on the k columns with the largest coefficients."""
        wide = self.fit(points, supports, share)
        large = [i for i, point in enumerate(wide) if point.columns.size > k]
        if large:
            narrow = self.fit([wide[i] for i in large], [wide[i].largest(k) for i in large], share)
            for i, point in zip(large, narrow, strict=True):
                wide[i] = point
        return wide

    def steepest(self, points: Sequence[Iterate], count: int, steps: Numbers | None = None) -> list[Columns]:
        """The columns with the largest derivatives at each point; with steps, those of the largest x − step·∇F."""
        gradients = self.negative_gradients(points)
        return top(magnitudes(gradients if steps is None else gradient_point(points, gradients, steps)), count)

    @abstractmethod
    def keep(self, points: Sequence[Iterate], supports: Sequence[Columns]) -> list[Iterate]:
        """The points with the coefficients outside the given columns dropped; nothing is fitted."""

    @abstractmethod
    def move(
        self, points: Sequence[Iterate], directions: Array, steps: Numbers, supports: Sequence[Columns]
    ) -> list[Iterate]:
        """x + step·direction on each support; zero elsewhere."""

    @abstractmethod
    def curvature_along(
        self, points: Sequence[Iterate], directions: Array, supports: Sequence[Columns]
    ) -> tuple[Numbers, Numbers]:
        """‖v‖² and v'∇²F v for v = direction on a support, or the same multiple of both."""

    @abstractmethod
    def curvatures(self, points: Sequence[Iterate]) -> Numbers:
        """The mean over all columns of ∂²F/∂x_j² at each point."""

    def threshold(self, points: Sequence[Iterate], gradients: Array, steps: Sequence[float], k: int) -> list[Iterate]:
        etas = np.array(steps)
        return self.move(points, gradients, etas, top(magnitudes(gradient_point(points, gradients.copy(), etas)), k))

    def negligible(self, point: Iterate) -> float:
        return 1e-30 * float(np.sum(np.abs(point.x) ** 2))

    def first_steps(self, points: Sequence[Iterate], gradients: Array, k: int) -> list[float]:
        steps = steepest_steps(self, points, gradients, top(magnitudes(gradients), k))
        return [step or 1.0 for step in steps.tolist()]  # no derivative, or no curvature: any step will do


class Steps(Solver):
    """What `recover` asks of an algorithm: a step from points to points; one that it does not change has converged."""

    iterations: int
    named_steps: ClassVar[tuple[str, ...]] = ("auto",)  # what `step` may be beside a number, where there is one

    def __post_init__(self) -> None:
        check_fields(self, self.named_steps)

    @property
    def limit(self) -> int:
        return self.iterations

    @abstractmethod
    def advance(self, system: Any, k: int, points: list[Iterate]) -> list[Iterate]:
        """The next point of each signal."""

    def settled(self, before: Iterate, after: Iterate, first: float) -> bool:
        """Whether a step changed nothing that matters; `first` is the misfit of the start."""
        still = abs(before.misfit - after.misfit) <= self.tol * max(after.misfit, 1e-30 * first)
        return still and np.array_equal(before.columns, after.columns)


@dataclass
class Course:
    """How the run of one signal goes: its best point, and how many steps ago that was found."""

    best: Iterate
    first: float  # the misfit of the start
    since: int = 0

    def take(self, steps: Steps, before: Iterate, after: Iterate) -> str | None:
        """Follow a step; "converged" or "stalled" if it was the last."""
        self.since = 0 if after.misfit < self.best.misfit else self.since + 1
        if self.since == 0:
            self.best = after
        if steps.settled(before, after, self.first):
            return "converged"
        return "stalled" if self.since >= PATIENCE else None


class Pursuit(Steps):
    """A pursuit by its steps on a `System`; for `minimize` it runs on the problem."""

    knows_its_end: ClassVar[bool] = True
    any_loss: ClassVar[bool] = False
    goes_on: ClassVar[bool] = False  # are its points known, bit for bit, by their coefficients?
    start: ClassVar[str] = "fit"  # begins at the fit on the columns of x0; "x0": at x0 as it is; "empty": without it
    remedies: ClassVar[dict[str, str]] = {
        "stalled": "the support goes round in circles; try SubspacePursuit, or a larger k",
        "stage limit": "allow more iterations",
    }

    @abstractmethod
    def advance(self, system: System, k: int, points: list[Iterate]) -> list[Iterate]: ...

    def iterate(
        self, problem: Problem, slots: Slots, rng: np.random.Generator, clock: Clock, state: State | None = None
    ) -> Iterator[Record]:
        name = type(self).__name__
        if problem.positive or problem.radius < math.inf:
            raise ValueError(f"{name} knows no positive=True and no radius; use HTSVRG or PGD for those")
        from .problem_system import ProblemSystem  # it needs compiled code, which `recover` can do without

        system = ProblemSystem(problem, slots, clock)
        if not (self.any_loss or system.refitter.quadratic):
            raise ValueError(f"{name} is for loss='squared'; GraSP and GraHTP are for all losses")
        if state is None:
            point = system.start(self.start)
            yield system.record(point, point)._replace(null=system.null)
            course = Course(point, point.misfit)
        else:
            point = system.point(*state["point"])
            course = Course(system.point(*state["best"]) if state["best"] else point, state["first"], state["since"])
            system.steps = state["steps"]
        while True:
            if self.goes_on and system.steps:  # the start may be a fit, of which the last bits are not known
                best = None if course.best is point else system.coefficients(course.best)
                clock.keep(
                    point=system.coefficients(point), best=best,
                    first=course.first, since=course.since, steps=system.steps,
                )  # fmt: skip
            before, [point] = point, self.advance(system, system.k, [point])
            end = course.take(self, before, point)
            record = system.record(before, course.best if end == "converged" else point)
            if end == "converged":
                change = abs(point.misfit - before.misfit)
                message = f"step {system.steps} changed the objective by {change:.2g} and the support not at all"
                record = record._replace(status=Status(end, message))
            elif end == "stalled":
                message = f"no stage of the last {PATIENCE} lowered the objective"
                record = record._replace(status=Status(end, message, self.remedies[end]))
            yield record

    def explain_divergence(self, problem: Problem, k: int, step: float) -> tuple[str, str]:
        return "the iterates left the range of floats", "scale the columns, or give a ridge"


# --- helpers of pursuits ---------------------------------------------------------------------------------------------
def magnitudes(x: Array) -> Numbers:
    """The magnitude of every column: (..., outputs, d) becomes (..., d)."""
    if x.shape[-2] == 1:
        return np.abs(x[..., 0, :])
    return np.sqrt(np.sum(np.square(x.real) + np.square(x.imag), axis=-2))


def top(scores: Numbers, count: int) -> list[Columns]:
    """The columns of the largest scores of each row; ties go to the lower index."""
    count = min(count, scores.shape[-1])
    return list(np.nonzero(largest(scores, count))[1].reshape(len(scores), count))


def gradient_point(points: Sequence[Iterate], gradients: Array, steps: Numbers) -> Array:
    """x − step·∇F on all columns, from the negative gradients, which are overwritten."""
    with np.errstate(over="ignore", invalid="ignore"):  # such a step is then halved
        gradients *= steps[:, np.newaxis, np.newaxis]
    for moved, point in zip(gradients, points, strict=True):
        moved[:, point.columns] += point.x
    return gradients


def steepest_steps(system: System, points: Sequence[Iterate], gradients: Array, supports: Sequence[Columns]) -> Numbers:
    """The step that lowers F most along v = −∇F on a support: ‖v‖²/v'∇²F v; 0 where there is no curvature."""
    squares, curvatures = system.curvature_along(points, gradients, supports)
    with np.errstate(over="ignore"):  # such a step is then halved
        return np.divide(squares, curvatures, out=np.zeros_like(squares), where=curvatures > 0.0)


def newton_steps(system: System, points: Sequence[Iterate]) -> Numbers:
    """The step that is right for a column of mean curvature by itself: one, if columns have norm one, or none."""
    curvatures = system.curvatures(points)
    return np.divide(1.0, curvatures, out=np.ones_like(curvatures), where=curvatures > 1e-300)


# NumPy's functions for sets know nothing of order and take ten times as long, which shows in small problems.
def find(columns: Columns, wanted: Columns) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Where wanted columns stand among others, both in increasing order, and which of them are there."""
    if not columns.size:
        return np.zeros(wanted.size, np.intp), np.zeros(wanted.size, dtype=bool)
    at = columns.searchsorted(wanted)
    at[at == columns.size] = 0
    return at, columns[at] == wanted


def union(points: Sequence[Iterate], more: Sequence[Columns]) -> list[Columns]:
    """The columns of each point and these, in increasing order; all points at once."""
    if len(points) == 1:
        return [merged(points[0].columns, more[0])]
    supports = [*(point.columns for point in points), *more]
    every = np.concatenate(supports)
    offsets = np.arange(len(points), dtype=np.int64) * (1 + every.max(initial=0))
    both = merged(every + np.repeat(np.tile(offsets, 2), [columns.size for columns in supports]))
    ends = np.append(both.searchsorted(offsets), both.size).tolist()
    both -= np.repeat(offsets, np.diff(ends))
    return [both[start:stop] for start, stop in itertools.pairwise(ends)]


def entered(before: Sequence[Iterate], after: Sequence[Iterate]) -> int:
    """How many columns the points have that those before them did not have."""
    both = union(before, [point.columns for point in after])
    return sum(columns.size for columns in both) - sum(point.columns.size for point in before)


def merged(*parts: Columns) -> Columns:
    """All columns of some arrays, each once, in increasing order."""
    both = np.concatenate(parts)
    both.sort(kind="stable")
    new = np.ones(both.size, dtype=bool)
    np.not_equal(both[1:], both[:-1], out=new[1:])
    return both[new]


def remember(points: Sequence[Iterate], memories: Sequence[Any]) -> list[Iterate]:
    return [replace(point, memory=memory) for point, memory in zip(points, memories, strict=True)]
