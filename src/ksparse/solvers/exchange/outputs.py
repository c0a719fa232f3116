"""Fits of several outputs on one support, and what a joint support asks of a loss.

`Single` is any loss of one output, `SquaredTargets` the squared loss of several, `Classes` the softmax.  Each refits a
support, and gives what the quadratic model needs of a fit: the derivatives of all rows, and one curvature per row,
which all outputs share.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...problem import Problem
from ..newton import DAMPING, NONE, Array, Fit, Refitter, Starts

CHUNK = 1 << 22  # numbers in a piece of a whole model
WIDEST, WORK = 1200, 4e9  # the largest number of coefficients in a whole model, and of multiplications to compute it
Start = tuple[Array, Array]  # coefficients (columns, outputs) and constants (outputs,)


@dataclass
class JointFit:
    """Columns (the kept ones first), coefficients, and the derivatives and curvatures of the rows there."""

    columns: NDArray[np.int64]
    x: Array  # (columns, outputs)
    constant: Array  # (outputs,)
    objective: float
    derivative: Array  # (n, outputs): w̃ times the derivative of a row's loss in its predictions
    curvature: Array  # (n,): w̃ times a curvature that all outputs share


def weighted_gram(block: Array, weight: Array) -> Array:
    """BᵀWB; of one array with itself, which BLAS does in half the time."""
    scaled = block * np.sqrt(weight)[:, np.newaxis]
    return scaled.T @ scaled


class Outputs(ABC):
    """What the three have in common: the rows, seen by columns."""

    kind: str  # its name in checkpoints
    n_outputs: int
    quadratic: bool = False
    width: int = 0  # coefficients that `whole_model` may have; 0 if there is none

    def __init__(self, problem: Problem, check: Callable[[], None]) -> None:
        self.problem, self.check = problem, check
        self.refitter = Refitter(problem, check)
        self._curvature: tuple[Array, Array] | None = None

    @property
    @abstractmethod
    def targets(self) -> dict[str, Array]:
        """The targets and offsets by their names."""

    def gradient(self, fit: JointFit) -> tuple[Array, Array, Array]:
        """∇F on all columns, (d, outputs); the curvature of every column by itself, inf where it has none; and the
        centres of the columns, as the shared curvature weighs the rows."""
        self.check()
        problem, known = self.problem, self._curvature if self.quadratic else None
        self.refitter.passes += 1
        if self.n_outputs == 1:  # one pass for all
            g, a, q = self.refitter.means(fit.derivative[:, 0], NONE if known else fit.curvature)
            g = g[:, np.newaxis]
        else:
            g = self.refitter.gradients(fit.derivative)
            if known is None:
                _, a, q = self.refitter.means(np.zeros(problem.n), fit.curvature)
        self._curvature = a, q = known or (a, q)
        g[fit.columns] += problem.l2 * fit.x
        total = float(fit.curvature.mean())
        centre = a / total if problem.intercept and total > 0 else np.zeros(problem.d)
        own = np.maximum(q - total * centre**2, 0.0) + problem.l2
        if not self.quadratic:  # a little curvature is assumed where no row has any
            own += DAMPING * self.refitter.most(np.arange(problem.d))
        return g, np.where((self.refitter.spread > 0.0) & (own > 0.0), own, np.inf), centre

    def heavy(self, fit: JointFit) -> NDArray[np.int64]:
        """The rows that hold nearly all of the curvature; none without weight."""
        at = None if self.quadratic else self.refitter.heavy(fit.curvature)[0]
        return np.flatnonzero(fit.curvature > 0.0) if at is None else at

    def empty_fit(self) -> JointFit:
        """The intercept and the kept columns alone."""
        kept = self.problem.kept
        return self.refit(kept, [(np.zeros((kept.size, self.n_outputs)), np.zeros(self.n_outputs))], 30)

    @abstractmethod
    def refit(
        self,
        columns: NDArray[np.int64],
        starts: list[Start],
        steps: int = 50,
        tol: float = 1e-10,
        hopeless: float = math.inf,
        polish: bool = False,
    ) -> JointFit:
        """Minimise F over some columns from the best of `starts`, as `Refitter.newton` does."""

    def whole_model(self, fit: JointFit, g: Array, columns: NDArray[np.int64], centre: Array) -> tuple[Array, Array]:
        """The Hessian of the intercepts and of some columns (less their centre), every output with every other, and the
        right-hand side.  Every coefficient has a row and a column there; the outputs of one column are adjacent.  Where
        `width` is 0 there is no such model."""
        raise TypeError(f"{type(self).__name__} has no whole model")

    def zero_objective(self) -> float:
        """F at zero: the result of a run that was cut short before its first fit."""
        return self.refit(
            np.empty(0, np.int64), [(np.zeros((0, self.n_outputs)), np.zeros(self.n_outputs))], 0
        ).objective


class Single(Outputs):
    """One output, any loss."""

    kind = "Single"
    n_outputs = 1

    def __init__(self, problem: Problem, check: Callable[[], None]) -> None:
        super().__init__(problem, check)
        self.quadratic = self.refitter.quadratic

    @property
    def targets(self) -> dict[str, Array]:
        return {"y": self.problem.y, "offset": self.problem.offset}

    def empty_fit(self) -> JointFit:
        return self._joint(self.refitter.empty_fit())

    def refit(
        self,
        columns: NDArray[np.int64],
        starts: list[Start],
        steps: int = 50,
        tol: float = 1e-10,
        hopeless: float = math.inf,
        polish: bool = False,
    ) -> JointFit:
        plain = [(x[:, 0], float(constant[0])) for x, constant in starts]
        return self._joint(self.refitter.newton(columns, Starts(plain, []), steps, tol, hopeless, polish))

    @staticmethod
    def _joint(fit: Fit) -> JointFit:
        x, constant, derivative = fit.x[:, np.newaxis], np.array([fit.constant]), fit.derivative[:, np.newaxis]
        return JointFit(fit.columns, x, constant, fit.objective, derivative, fit.curvature)


class SquaredTargets(Outputs):
    """Several targets, the squared loss of each."""

    kind = "Targets"
    quadratic = True

    def __init__(self, problem: Problem, Y: Array, offset: Array, check: Callable[[], None]) -> None:
        super().__init__(problem, check)
        self.Y = Y - offset
        self.n_outputs = Y.shape[1]

    @property
    def targets(self) -> dict[str, Array]:
        return {"Y, less the offset,": self.Y}

    @np.errstate(over="ignore", invalid="ignore")
    def refit(
        self,
        columns: NDArray[np.int64],
        starts: list[Start],
        steps: int = 50,
        tol: float = 1e-10,
        hopeless: float = math.inf,
        polish: bool = False,
    ) -> JointFit:
        problem, block = self.problem, self.refitter.block(columns).T
        n, weight = problem.n, problem.weight
        x, constant = starts[0]
        centre = weight @ block / n if problem.intercept else np.zeros(columns.size)
        block -= centre
        G = weighted_gram(block, weight) / n
        G[np.diag_indices(columns.size)] += problem.l2 + 1e-12 * self.refitter.most(columns)
        level = constant + centre @ x  # of the centred columns
        for _ in range(min(steps, 3 if polish else 2)):  # the second time for what the first has rounded
            self.check()
            residual = block @ x + level - self.Y
            if problem.intercept:
                level = level - weight @ residual / n
            gradient = block.T @ (weight[:, np.newaxis] * residual) / n + problem.l2 * x
            try:
                x = x - np.linalg.solve(G, gradient)
            except np.linalg.LinAlgError:
                x = x - np.linalg.lstsq(G, gradient, rcond=1e-13)[0]
        residual = block @ x + level - self.Y
        derivative = weight[:, np.newaxis] * residual
        objective = 0.5 * float(np.sum(derivative * residual)) / n + problem.ridge(x)
        return JointFit(columns, x, level - centre @ x, objective, derivative, weight)


class Classes(Outputs):
    """The softmax: log Σ_c exp(z_c) − z_y, for classes numbered from 0."""

    kind = "Classes"

    def __init__(
        self, problem: Problem, labels: NDArray[np.int64], n_outputs: int, offset: Array, check: Callable[[], None]
    ) -> None:
        super().__init__(problem, check)
        self.labels, self.offset, self.n_outputs = labels, offset, n_outputs
        self.refitter.quadratic = False  # the problem's own loss is not used
        self.width = int(min(WIDEST, math.sqrt(WORK / problem.n)))

    @property
    def targets(self) -> dict[str, Array]:
        return {"Y": self.labels.astype(np.float64), "offset": self.offset}

    def whole_model(self, fit: JointFit, g: Array, columns: NDArray[np.int64], centre: Array) -> tuple[Array, Array]:
        problem, C, n = self.problem, self.n_outputs, self.problem.n
        first, which = int(problem.intercept), self.heavy(fit)
        weight = problem.weight[which]
        p = np.zeros((which.size, C))  # from the derivatives, w̃(p − [y = c])
        p[np.arange(which.size), self.labels[which]] = 1.0
        p += fit.derivative[which] / weight[:, np.newaxis]
        size = (first + columns.size) * C
        H = np.zeros((size, size))
        step = max(1, CHUNK // size)
        for low in range(0, which.size, step):
            self.check()
            part = slice(low, low + step)
            block = np.ones((which[part].size, first + columns.size))
            block[:, first:] = self.refitter.block(columns, which[part]).T - centre[columns]
            rooted = np.sqrt(weight[part])[:, np.newaxis] * p[part]
            outer = (block[:, :, np.newaxis] * rooted[:, np.newaxis, :]).reshape(-1, size)
            H -= outer.T @ outer
            for c in range(C):
                H[c::C, c::C] += weighted_gram(block, weight[part] * p[part, c].clip(0.0))
        H /= n
        x = np.zeros((problem.d, C))
        x[fit.columns] = fit.x
        pull = fit.derivative.mean(axis=0)
        level = np.broadcast_to(fit.constant + centre @ x, (first, C))
        point = np.vstack([level, x[columns]]).ravel()
        derivative = np.vstack(
            [np.broadcast_to(pull, (first, C)), g[columns] - np.outer(centre[columns], pull)]
        ).ravel()
        H[np.arange(first * C, size), np.arange(first * C, size)] += problem.l2
        return H, H @ point - derivative

    def _look(self, x: Array, z: Array) -> tuple[float, Array]:
        """F, and the probabilities."""
        problem = self.problem
        with np.errstate(over="ignore", invalid="ignore"):
            shifted = z - z.max(axis=1, keepdims=True)
            own = shifted[np.arange(problem.n), self.labels]
            p = np.exp(shifted, out=shifted)
            total = p.sum(axis=1)
            value = float(problem.weight @ (np.log(total) - own)) / problem.n + problem.ridge(x)
            return value, p / total[:, np.newaxis]

    def _derivative(self, p: Array) -> Array:
        derivative = p.copy()
        derivative[np.arange(p.shape[0]), self.labels] -= 1.0
        return derivative * self.problem.weight[:, np.newaxis]

    def _shared_curvature(self, p: Array) -> Array:
        """One curvature per row for all directions: the mean of p(1 − p)."""
        return self.problem.weight * (1.0 - np.einsum("ic,ic->i", p, p)).clip(0.0) / p.shape[1]

    @np.errstate(over="ignore", invalid="ignore")
    def refit(
        self,
        columns: NDArray[np.int64],
        starts: list[Start],
        steps: int = 50,
        tol: float = 1e-10,
        hopeless: float = math.inf,
        polish: bool = False,
    ) -> JointFit:
        """Newton's method, each step by conjugate gradients on the Hessian as an operator; F never rises."""
        problem, n = self.problem, self.problem.n
        ones = np.ones((n, int(problem.intercept)))
        block = np.hstack([ones, self.refitter.block(columns).T])  # the intercept is a column without a ridge
        first = ones.shape[1]
        ridge = np.full(block.shape[1], problem.l2)
        ridge[:first] = 0.0
        tried = []
        for x, constant in starts:
            # the same number added to all classes changes no prediction: it is left out
            both = np.vstack([np.broadcast_to(constant, (first, self.n_outputs)), x])
            both = both - both.mean(axis=1, keepdims=True)
            z = block @ both + self.offset
            tried.append((*self._look(both[first:], z), both, z))
        finite = [point for point in tried if math.isfinite(point[0])] or tried[-1:]
        objective, p, both, z = min(finite, key=lambda point: point[0])
        blind = 0
        for _ in range(steps):
            self.check()
            gradient = block.T @ self._derivative(p) / n + ridge[:, np.newaxis] * both
            step, predicted = self._direction(block, p, ridge, gradient, 1e-3 if polish else 0.1)
            if not predicted > tol * abs(objective):
                break
            # below the rounding of F a few whole steps are taken, unless F rises
            blind += predicted <= 1e-11 * abs(objective)
            if blind > 4:
                break
            allowed = 1e-13 * abs(objective) if blind else None
            moved = self._search(block, both, z, step, objective, predicted, first, allowed)
            if moved is None:
                break
            fell = objective - moved[0]
            objective, p, both, z = moved
            # where the quadratic predicted the step well, it also bounds the decrease that is left
            if 0.25 * predicted < fell < 0.75 * predicted and objective - 0.6 * predicted > hopeless:
                break
        constant = both[0] if first else np.zeros(self.n_outputs)
        return JointFit(columns, both[first:], constant, objective, self._derivative(p), self._shared_curvature(p))

    def _search(
        self,
        block: Array,
        both: Array,
        z: Array,
        step: Array,
        objective: float,
        predicted: float,
        first: int,
        allowed: float | None,
    ) -> tuple[float, Array, Array, Array] | None:
        """The first of 1, ½, ¼, ... that lowers F enough; with `allowed` the whole step, if F rises by no more."""
        along, share = block @ step, 1.0
        for _ in range(30 if allowed is None else 1):
            point, z_new = both + share * step, z + share * along
            value, p = self._look(point[first:], z_new)
            if value <= objective + (-1e-3 * share * predicted if allowed is None else allowed):
                return value, p, point, z_new
            share *= 0.5
        return None

    def _direction(self, block: Array, p: Array, ridge: Array, gradient: Array, accuracy: float) -> tuple[Array, float]:
        """A Newton step, and the decrease it predicts (twice that of the quadratic), by conjugate gradients,
        preconditioned by the Hessian with one curvature for all classes."""
        from scipy.linalg import cho_factor, cho_solve

        n, weight = self.problem.n, self.problem.weight[:, np.newaxis]
        if block.shape[1] == 0:
            return np.zeros_like(gradient), 0.0
        M = weighted_gram(block, self._shared_curvature(p)) / n + np.diag(ridge)
        size = np.sqrt(np.maximum(M.diagonal(), 1e-12 * self._largest(block)))
        scaled = M / np.outer(size, size)
        scaled[np.diag_indices(size.size)] += 1e-9
        try:
            factor: Any = cho_factor(scaled)
        except np.linalg.LinAlgError:
            scaled[np.diag_indices(size.size)] += 1e-3
            factor = cho_factor(scaled)

        def precondition(r: Array) -> Array:
            return cho_solve(factor, r / size[:, np.newaxis]) / size[:, np.newaxis]

        def hessian(v: Array) -> Array:
            along = block @ v
            along = weight * p * (along - np.einsum("ic,ic->i", p, along)[:, np.newaxis])
            return block.T @ along / n + ridge[:, np.newaxis] * v

        step, r = np.zeros_like(gradient), -gradient
        y = precondition(r)
        direction, norm = y, float(np.sum(r * y))
        enough = accuracy**2 * norm
        for _ in range(200):
            if not norm > 0.0:
                break
            curved = hessian(direction)
            curvature = float(np.sum(direction * curved))
            if not curvature > 1e-14 * norm:  # flat that way: the classes are apart there
                step = step if step.any() else direction
                break
            share = norm / curvature
            step = step + share * direction
            r = r - share * curved
            y = precondition(r)
            before, norm = norm, float(np.sum(r * y))
            if norm <= enough:
                break
            direction = y + (norm / before) * direction
        step = step - step.mean(axis=1, keepdims=True)  # what rounding has added to all classes
        return step, -float(np.sum(gradient * step))

    def _largest(self, block: Array) -> Array:
        """What every column's curvature is at most: without any the preconditioner would have no scale."""
        return np.einsum("ij,ij->j", block, block) / self.problem.n + 1e-300
