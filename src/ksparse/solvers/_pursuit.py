"""Pursuits: algorithms that choose columns by the slopes of F and fit on what they chose.

A pursuit knows neither losses nor matrices: it runs on a `System`, one signal or several at once, each of which has a
misfit F that is to be small.  For `minimize` the system is a problem with any loss (`_refits.py`), for `recover` a
matrix or an operator, real or complex, with one or many right-hand sides (`sensing/linear.py`).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..operators import largest
from ..problem import Problem, Slots
from ..result import Record, Status
from ._run import Clock

Columns = NDArray[np.int64]
PATIENCE = 20  # steps in a row without a better point, after which a pursuit only goes round in circles


@dataclass(frozen=True, eq=False)
class Point:
    """A signal's support, the coefficients on it, and how well they do."""

    signal: int  # which one of the system's
    columns: Columns  # in increasing order
    x: NDArray[Any]  # (outputs, columns); several outputs share a support
    misfit: float  # F
    rest: Any  # what the system remembers of the point: the residual, say
    slope: Any = None  # −∇F, where a fit has found it on the way
    memory: Any = None  # what the algorithm remembers of the point

    def largest(self, k: int) -> Columns:
        """The k columns with the largest coefficients."""
        return self.columns[largest(magnitudes(self.x), min(k, self.columns.size))]

    def on(self, columns: Columns) -> NDArray[Any]:
        """The coefficients on some columns, zero where there are none."""
        out = np.zeros((len(self.x), columns.size), self.x.dtype)
        at, mine = find(self.columns, columns)
        out[:, mine] = self.x[:, at[mine]]
        return out

    def entered(self, before: Point) -> int:
        """How many of the columns another point did not have."""
        return self.columns.size - int(np.count_nonzero(find(before.columns, self.columns)[1]))


class System(ABC):
    """Signals with their misfits.  Everything takes and gives lists, one entry a signal, so that work is shared."""

    n: int
    d: int
    room: int  # columns that can be told apart: no fit on more of them is unique

    @abstractmethod
    def slopes(self, points: Sequence[Point], one_by_one: bool = False) -> NDArray[Any]:
        """−∇F at each point on all columns, (points, outputs, d); that the support grows `one_by_one` may be used."""

    @abstractmethod
    def fit(self, points: Sequence[Point], supports: Sequence[Columns], share: float = 0.0) -> list[Point]:
        """The least misfit on each support.  A fit that goes step by step starts from the point, and may stop when the
        slopes on the support have fallen to a `share` of what they were."""

    @abstractmethod
    def keep(self, points: Sequence[Point], supports: Sequence[Columns]) -> list[Point]:
        """The points with the coefficients outside some of their columns dropped; nothing is fitted."""

    @abstractmethod
    def move(
        self, points: Sequence[Point], slopes: NDArray[Any], steps: NDArray[np.float64], supports: Sequence[Columns]
    ) -> list[Point]:
        """x + step·slope, on a support each; zero elsewhere."""

    @abstractmethod
    def bends(
        self, points: Sequence[Point], slopes: NDArray[Any], supports: Sequence[Columns]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """‖v‖² and v'∇²F v for v = slope on a support, or the same multiple of both."""

    @abstractmethod
    def apart(self, before: Sequence[Point], after: Sequence[Point]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """‖Δx‖² and Δx'∇²F Δx between points."""

    @abstractmethod
    def curvatures(self, points: Sequence[Point]) -> NDArray[np.float64]:
        """The mean over all columns of ∂²F/∂x_j² at each point."""

    @property
    @abstractmethod
    def steepest(self) -> float:
        """The largest eigenvalue of ∇²F, of a system where it is the same everywhere."""


class Steps(ABC):
    """What `recover` asks of an algorithm: a step from points to points; one that it leaves as it is has converged."""

    tol: float

    @abstractmethod
    def advance(self, system: System, k: int, points: list[Point]) -> list[Point]:
        """The next point of each signal."""

    @property
    @abstractmethod
    def limit(self) -> int:
        """How many steps at most."""

    def settled(self, before: Point, after: Point, first: float) -> bool:
        """Whether a step changed nothing that matters; `first` is the misfit of the start."""
        still = np.array_equal(before.columns, after.columns)
        return still and abs(before.misfit - after.misfit) <= self.tol * max(after.misfit, 1e-30 * first)


@dataclass
class Course:
    """How the run of a signal goes: its best point, and for how many steps there was none better."""

    best: Point
    first: float  # the misfit of the start
    since: int = 0

    def take(self, steps: Steps, before: Point, after: Point) -> str | None:
        """Follow a step; "converged" or "stalled" if it was the last."""
        self.since = 0 if after.misfit < self.best.misfit else self.since + 1
        if self.since == 0:
            self.best = after
        if steps.settled(before, after, self.first):
            return "converged"
        return "stalled" if self.since >= PATIENCE else None


class Pursuit(Steps):
    """A solver for `minimize` too, which needs no more than these steps."""

    stop_on_divergence: ClassVar[bool] = True
    knows_its_end: ClassVar[bool] = True
    any_loss: ClassVar[bool] = False
    goes_on: ClassVar[bool] = False  # are its points known, bit for bit, by their coefficients?
    start: ClassVar[str] = "fit"  # begins at the fit on the columns of x0; "x0": at x0 as it is; "empty": without it
    remedies: ClassVar[dict[str, str]] = {
        "stalled": "the support goes round in circles; try SubspacePursuit, or a larger k",
        "stage limit": "allow more iterations",
    }
    iterations: int

    @property
    def limit(self) -> int:
        return self.iterations

    @property
    def name(self) -> str:
        return type(self).__name__

    def iterate(
        self,
        problem: Problem,
        slots: Slots,
        rng: np.random.Generator,
        clock: Clock,
        state: dict[str, Any] | None = None,
    ) -> Iterator[Record]:
        """The stages that `minimize` runs."""
        from ._refits import Refits

        if problem.positive or problem.radius < math.inf:
            raise ValueError(f"{self.name} knows no positive=True and no radius; use HTSVRG or PGD for those")
        if not (self.any_loss or getattr(problem.loss, "quadratic", False)):
            raise ValueError(f"{self.name} is for loss='squared'; GraSP and GraHTP are for all losses")
        system = Refits(problem, slots, clock)
        if state is None:
            [point] = system.start(self.start)
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


# --- small things that pursuits share --------------------------------------------------------------------------------
def magnitudes(slopes: NDArray[Any]) -> NDArray[np.float64]:
    """The magnitude of every column: (..., outputs, d) becomes (..., d)."""
    if slopes.shape[-2] == 1:
        return np.abs(slopes[..., 0, :])
    return np.sqrt(np.sum(np.square(slopes.real) + np.square(slopes.imag), axis=-2))


def top(scores: NDArray[np.float64], count: int) -> list[Columns]:
    """The columns of the largest scores of each row; ties go to the lower index."""
    return [np.flatnonzero(mask) for mask in largest(scores, min(count, scores.shape[-1]))]


def gradient_point(points: Sequence[Point], slopes: NDArray[Any], steps: NDArray[np.float64]) -> NDArray[Any]:
    """x + step·slope on all columns; overwrites the slopes."""
    with np.errstate(over="ignore"):  # such a step is then halved
        slopes *= steps[:, np.newaxis, np.newaxis]
    for moved, point in zip(slopes, points, strict=True):
        moved[:, point.columns] += point.x
    return slopes


def steepest_steps(
    system: System, points: Sequence[Point], slopes: NDArray[Any], supports: Sequence[Columns]
) -> NDArray[np.float64]:
    """The step that lowers F most along the slopes on a support: ‖v‖²/v'∇²F v."""
    squares, bends = system.bends(points, slopes, supports)
    return np.divide(squares, bends, out=np.zeros_like(squares), where=bends > 0.0)


def backtrack(
    system: System,
    k: int,
    points: Sequence[Point],
    slopes: NDArray[Any],
    steps: NDArray[np.float64],
    accept: Callable[[Point, Point, float, float, float], bool],
) -> list[Point]:
    """H_k(x + step·slope), each step halved until ``accept(old, new, step, ‖Δx‖², Δx'∇²FΔx)``; halves `steps` in place.

    A point that no step improves stays as it is.
    """
    moved, pending = list(points), list(range(len(points)))
    while pending:
        some, eta = [points[i] for i in pending], steps[pending]
        trial = system.move(some, slopes[pending], eta, top(magnitudes(gradient_point(some, slopes[pending], eta)), k))
        squares, bends = system.apart(some, trial)
        again = []
        for i, old, new, step, square, bend in zip(pending, some, trial, eta, squares, bends, strict=True):
            if accept(old, new, step, square, bend):
                moved[i] = new
            elif square > 1e-30 * float(np.sum(np.abs(old.x) ** 2)):
                again.append(i)
        pending = again
        steps[pending] *= 0.5
    return moved


def newton_steps(system: System, points: Sequence[Point]) -> NDArray[np.float64]:
    """The step that is right for a column of mean curvature by itself: one, if columns have norm one."""
    curvatures = system.curvatures(points)
    return np.divide(1.0, curvatures, out=np.ones_like(curvatures), where=curvatures > 0.0)


def better(before: Sequence[Point], after: Sequence[Point]) -> list[Point]:
    """Each new point if its misfit is lower, else the old one."""
    return [new if new.misfit < old.misfit else old for old, new in zip(before, after, strict=True)]


def union(points: Sequence[Point], more: Sequence[Columns]) -> list[Columns]:
    return [merged(point.columns, columns) for point, columns in zip(points, more, strict=True)]


# NumPy's functions for sets know nothing of order and take ten times as long, which shows in small problems.
def find(columns: Columns, wanted: Columns) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Where wanted columns stand among others, both in increasing order, and which of them are there."""
    if not columns.size:
        return np.zeros(wanted.size, np.intp), np.zeros(wanted.size, dtype=bool)
    at = columns.searchsorted(wanted)
    at[at == columns.size] = 0
    return at, columns[at] == wanted


def merged(some: Columns, others: Columns) -> Columns:
    """The columns of both, each of which is in increasing order."""
    both = np.concatenate([some, others])
    both.sort(kind="stable")
    new = np.ones(both.size, dtype=bool)
    np.not_equal(both[1:], both[:-1], out=new[1:])
    return both[new]


def remember(points: Sequence[Point], memories: Sequence[Any]) -> list[Point]:
    return [replace(point, memory=memory) for point, memory in zip(points, memories, strict=True)]
