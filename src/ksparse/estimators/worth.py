r"""The worth of a feature: by how much the objective rises without it, the other coefficients refitted.

For the squared loss there is a formula (`certificate.SecondOrder`).  For any other loss, and under a sign constraint,
the model is refitted without each feature or group:

.. math:: \min_{v}\ \frac1n\sum_i w_i φ(b_i\cdot v + o_i,\, y_i) + \frac{λ}{2}\|v\|^2
          \quad\text{s.t.}\quad v_j = 0\ (j ∈ G)

for every group G of columns, where b_i is row i of the support's columns, with a one for the intercept.  All refits run
side by side, so that each pass over the rows serves all of them.  They take Newton steps, computed by conjugate
gradients; the preconditioner is the Hessian for the mean curvature of all refits.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .. import losses
from ..losses import evaluate_rows

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
Groups = Sequence[NDArray[np.int64]]

# A refit stops when the decrease that its quadratic model predicts is below this share of the worth.
TOLERANCE, LOOSE_TOLERANCE = 1e-4, 3e-3  # the second one when a sample of the rows has given the starting point
ROUNDING = 1e-13  # relative to the objective: smaller differences are rounding
HUGE = 1e100  # objectives above it: derivatives may overflow
STEPS, INNER, HALVINGS = 60, 60, 40  # limits: Newton steps, conjugate gradient steps in each, halvings of each
RESIDUAL = 0.05  # of the linear system for a Newton step, relative to the gradient
DAMPING = 1e-8  # added curvature of flat directions, relative to the largest curvature that a column can have
SAMPLE = 10_000  # rows (about) that give the starting points if there are at least twice as many
GUIDED = 4  # Newton steps on all rows that use the Hessian of the sample
MAX_ROWS = 100_000  # if there are more, refits run on a sample of about this size
MAX_NUMBERS = 1 << 22  # size of one array of predictions: the refits are split into batches accordingly


def _of_mean_one(weight: Array) -> Array:
    return weight / (float(weight.mean()) or 1.0)


class OneOutput(NamedTuple):
    """The rows of a model with one output and any loss."""

    loss: Any
    y: Array
    weight: Array  # of mean one

    @property
    def quadratic(self) -> bool:
        """Whether the loss is quadratic in the prediction."""
        return bool(getattr(self.loss, "quadratic", False))

    @property
    def max_curvature(self) -> float:
        """The largest curvature of a row; one if there is no bound."""
        bound = float(losses.curvature_bound(self.loss))
        return bound if np.isfinite(bound) else 1.0

    def take(self, rows: Any, each: Any) -> OneOutput:
        """Some of the rows, where row i stands for `each[i]` rows."""
        return OneOutput(self.loss, self.y[rows], _of_mean_one(self.weight[rows] * each))

    def evaluate(self, z: Array) -> tuple[Array, Array, Array]:
        """For predictions (refits, 1, n): the mean loss of every refit, derivatives and curvatures of the rows."""
        mean, derivative, curvature = np.empty(len(z)), np.empty_like(z), np.empty_like(z)
        for i, own in enumerate(z):
            mean[i] = evaluate_rows(self.loss, own[0], self.y, self.weight, derivative[i, 0], curvature[i, 0])
        return mean / self.y.size, derivative, curvature

    def hessian_times(self, curvature: Array, along: Array) -> Array:
        """The change of the derivatives along a change of the predictions."""
        return curvature * along

    def own(self, curvature: Array) -> Array:
        """The curvature of every output by itself."""
        return curvature

    def shared(self, curvature: Array) -> Array:
        """One curvature per row for all outputs, (refits, n)."""
        return curvature[:, 0]


class ManyTargets(NamedTuple):
    """The rows of a model with several targets and the squared loss, which needs no refits."""

    Y: Array  # (targets, n)
    weight: Array
    quadratic: bool = True

    def evaluate(self, z: Array) -> tuple[Array, Array, Array]:
        derivative = self.weight * (z - self.Y)
        mean = 0.5 * np.mean(np.sum(derivative * (z - self.Y), axis=1), axis=1)
        return mean, derivative, np.broadcast_to(self.weight, z.shape)

    def own(self, curvature: Array) -> Array:
        return curvature


class Softmax(NamedTuple):
    """The rows of a softmax model: the loss is log Σ_c exp(z_c) − z_y, for classes numbered from 0."""

    labels: NDArray[np.int64]
    weight: Array
    max_curvature: float = 0.5
    quadratic: bool = False

    def take(self, rows: Any, each: Any) -> Softmax:
        return Softmax(self.labels[rows], _of_mean_one(self.weight[rows] * each))

    def evaluate(self, z: Array) -> tuple[Array, Array, Array]:
        """As for one output; the probabilities of the classes stand for the curvature."""
        z = z - z.max(axis=1, keepdims=True)
        rows = np.arange(self.labels.size)
        own = z[:, self.labels, rows]
        p = np.exp(z, out=z)
        total = p.sum(axis=1, keepdims=True)
        mean = (np.log(total[:, 0]) - own) @ self.weight / self.labels.size
        p /= total
        derivative = p.copy()
        derivative[:, self.labels, rows] -= 1.0
        derivative *= self.weight
        return mean, derivative, p

    def hessian_times(self, p: Array, along: Array) -> Array:
        along = along - np.einsum("scn,scn->sn", p, along)[:, np.newaxis]
        along *= p
        along *= self.weight
        return along

    def own(self, p: Array) -> Array:
        return self.weight * p * (1.0 - p)

    def shared(self, p: Array) -> Array:
        return self.weight * (1.0 - np.einsum("scn,scn->sn", p, p)).clip(0.0) / p.shape[1]


@dataclass(frozen=True)
class LeaveOutRefits:
    """Refits of one model on the columns of a dense block, centred if there is an intercept.

    Coefficients are arrays (refits, outputs, first + columns), where first = 1 with an intercept, which comes first.
    """

    rows: OneOutput | Softmax
    block: Array  # (n, columns)
    offset: Any  # (outputs, n), or zero
    l2: float
    intercept: bool
    positive: bool = False

    @np.errstate(over="ignore", invalid="ignore")  # of targets near the largest float
    def rises(self, x: Array, constant: Array, groups: Groups) -> Array:
        """By how much the objective rises above that at x, (outputs, columns), without each group of columns.

        Zero if it falls instead, which it may where x is not the best fit on its columns.
        """
        first, model = int(self.intercept), self._joined(x, constant)
        floor = float(self._evaluate(model[np.newaxis])[0][0])
        out = np.zeros((len(groups), model.shape[1]), dtype=bool)
        for own, group in zip(out, groups, strict=True):
            own[first + group] = True
        return np.maximum(self._refits(model, out, floor)[0] - floor, 0.0)

    def best(self, x: Array, constant: Array) -> tuple[Array, Array]:
        """The best coefficients of all columns, and their intercepts; x is where the search starts."""
        found = self._best(self._joined(x, constant))[1]
        return found[:, int(self.intercept) :], found[:, 0] if self.intercept else constant

    def sample(self, derivative: Array, count: int) -> LeaveOutRefits:
        """The same refits on a fixed sample of about `count` rows.

        Half of the rows are spread evenly, half follow the size of the derivatives, (outputs, n), so that a rare class
        is not lost.
        """
        size = np.abs(derivative).sum(axis=0)
        chance = np.minimum(0.5 * count * (1.0 / size.size + size / (float(size.sum()) or 1.0)), 1.0)
        to = np.cumsum(chance)
        at = np.searchsorted(to, np.arange(int(to[-1])) + 0.5)
        offset = self.offset[..., at] if np.ndim(self.offset) else self.offset
        return replace(self, rows=self.rows.take(at, 1.0 / chance[at]), block=self.block[at], offset=offset)

    def _joined(self, x: Array, constant: Array) -> Array:
        """Coefficients with the intercept in front, if there is one."""
        return np.hstack([constant[:, np.newaxis], x])[:, 1 - int(self.intercept) :]

    # --- starting points -----------------------------------------------------------------------------------------
    def _refits(self, model: Array, out: Mask, floor: float) -> tuple[Array, Array]:
        """The least objective without each set of coefficients in `out`, and where it is attained; in batches.

        If there are many rows, a sample is refitted first.  The change that it finds is applied to the model, and the
        Hessian of the sample predicts how far the objective of all rows can fall from there: mostly next to nothing.
        """
        least, found = np.empty(len(out)), np.empty((len(out), *model.shape))
        n, few, there = len(self.block), None, model
        if n >= 2 * SAMPLE and len(out):
            few = self.sample(self._evaluate(model[np.newaxis])[1][0], SAMPLE)
            base, near = few._best(model)
            there = few._refits(near, out, base)[1]
        batch = max(1, MAX_NUMBERS // (n * len(model)))
        for low in range(0, len(out), batch):
            part = slice(low, low + batch)
            if few is None:
                start = self._from_quadratic(model, out[part])
                least[part], found[part] = self._refit(start, out[part], floor, TOLERANCE)
            else:
                start, guide = self._without(model + there[part] - near, out[part]), (few, there[part])
                least[part], found[part] = self._refit(start, out[part], floor, LOOSE_TOLERANCE, guide)
        return least, found

    def _from_quadratic(self, model: Array, out: Mask) -> Array:
        """The better of two starting points: the minimum of the quadratic model of the objective, and the fit with the
        coefficients in `out` set to zero."""
        inverse = self._preconditioner(self._evaluate(model[np.newaxis])[2])
        bare = np.where(out[:, np.newaxis], 0.0, model)
        moved = np.array([model - model[:, at] @ remover for at, remover in self._removers(inverse, out)])
        moved = self._without(moved, out)
        values = [self._evaluate(point)[0] for point in (moved, bare)]
        values = [np.where(np.isfinite(value), value, np.inf) for value in values]
        return np.where((values[0] <= values[1])[:, np.newaxis, np.newaxis], moved, bare)

    def _best(self, model: Array) -> tuple[float, Array]:
        """The least objective over all coefficients, and where it is attained."""
        [least], [found] = self._refit(model[np.newaxis], np.zeros((1, model.shape[1]), dtype=bool), None, TOLERANCE)
        return float(least), found

    @staticmethod
    def _removers(inverse: Array, held: Mask) -> list[tuple[Any, Any]]:
        """For every refit the indices E of the coefficients held at zero, and a matrix R such that v − v_E·R has zeros
        there, at the least cost in the quadratic model."""
        places = [np.flatnonzero(at) for at in held]
        return [(at, np.linalg.solve(inverse[at[:, np.newaxis], at], inverse[at])) for at in places]

    def _without(self, v: Array, out: Mask) -> Array:
        return np.where(out[:, np.newaxis], 0.0, self._allowed(v))

    def _allowed(self, v: Array) -> Array:
        """The nearest point that satisfies the sign constraint."""
        if not self.positive:
            return v
        first = int(self.intercept)
        return np.concatenate([v[..., :first], np.maximum(v[..., first:], 0.0)], axis=-1)

    # --- passes over the rows ------------------------------------------------------------------------------------
    def _times(self, v: Array) -> Array:
        """The predictions of coefficients, (refits, outputs, n), without the offset."""
        first, (s, outputs, _) = int(self.intercept), v.shape
        z = np.ascontiguousarray(v[..., first:]).reshape(s * outputs, -1) @ self.block.T
        return z.reshape(s, outputs, -1) + v[..., :1] if first else z.reshape(s, outputs, -1)

    def _back(self, derivative: Array) -> Array:
        """The mean over the rows of derivative·b."""
        s, outputs, n = derivative.shape
        found = (derivative.reshape(s * outputs, n) @ self.block).reshape(s, outputs, -1)
        return (np.concatenate([derivative.sum(axis=2, keepdims=True), found], axis=2) if self.intercept else found) / n

    def _evaluate(self, v: Array) -> tuple[Array, Array, Array]:
        """The objective of every refit, the derivatives of the rows and their curvatures."""
        with np.errstate(over="ignore", invalid="ignore"):
            value, derivative, curvature = self.rows.evaluate(self._times(v) + self.offset)
        if self.l2:  # without a ridge ‖v‖² may overflow
            value = value + 0.5 * self.l2 * np.sum(v[..., int(self.intercept) :] ** 2, axis=(1, 2))
        return value, derivative, curvature

    @functools.cached_property
    def _ridge_and_bound(self) -> tuple[Array, Array]:
        """The ridge of every coefficient, and the largest curvature that it can have."""
        most = self.rows.weight @ self.block**2 / len(self.block)
        most = np.where(most > 0.0, most, most.max(initial=0.0) or 1.0)  # a column may be zero in a sample of the rows
        ones = np.ones(int(self.intercept))
        ridge = np.concatenate([0.0 * ones, np.full(most.size, self.l2)])
        return ridge, self.rows.max_curvature * np.append(ones, most)

    def _preconditioner(self, curvature: Array) -> Array:
        """The inverse of the Hessian for the mean curvature of the rows over all refits, equally weighted."""
        shared = self.rows.shared(curvature)
        size = np.maximum(shared.mean(axis=1), 1e-12 * self.rows.max_curvature)
        mean = np.mean(shared / size[:, np.newaxis], axis=0)
        ridge, most = self._ridge_and_bound
        scaled = self.block * np.sqrt(mean)[:, np.newaxis]
        n, first = len(self.block), int(self.intercept)
        hessian = np.zeros((ridge.size, ridge.size))
        hessian[first:, first:] = scaled.T @ scaled / n
        if first:
            hessian[0, 0] = mean.mean()
            hessian[0, 1:] = hessian[1:, 0] = mean @ self.block / n
        hessian.flat[:: ridge.size + 1] += ridge * np.mean(1.0 / size) + 1e-12 * most + 1e-280
        root = np.sqrt(hessian.diagonal())
        hessian = hessian / root / root[:, np.newaxis]
        hessian.flat[:: ridge.size + 1] += 1e-10
        inverse = np.linalg.inv(hessian)
        return (inverse + inverse.T) / (2.0 * root) / root[:, np.newaxis]

    # --- Newton's method -----------------------------------------------------------------------------------------
    def _refit(
        self,
        v: Array,
        out: Mask,
        floor: float | None,
        tol: float,
        guide: tuple[LeaveOutRefits, Array] | None = None,
    ) -> tuple[Array, Array]:
        """The least objective of every refit, and where it is attained.

        The tolerance is relative to the difference from the floor, or to the objective if there is no floor; a refit
        that falls below the floor stops.  `guide` holds refits on a sample of the rows and their solutions: the first
        steps use its Hessian.
        """
        ridge, most = self._ridge_and_bound
        value, derivative, curvature = self._evaluate(v)
        good = np.abs(value) < HUGE
        if not good.all():  # a starting point from a sample may be useless for all rows
            v = np.where(good[:, np.newaxis, np.newaxis], v, 0.0)
            value, derivative, curvature = self._evaluate(v)
        least, found, at = value.copy(), v.copy(), np.arange(len(v))  # `at`: the refits that have not finished
        guides = None if guide is None else guide[0]._evaluate(guide[1])[2]
        for number in range(STEPS):
            gradient = self._back(derivative) + ridge * v
            held = out
            if self.positive:  # then there is one output
                bound = (v <= 0.0) & (gradient > 0.0)
                bound[..., : int(self.intercept)] = False
                held = out | bound[:, 0]
            free = np.where(held[:, np.newaxis], 0.0, gradient)
            if guide is not None and guides is not None and number < GUIDED:
                step = guide[0]._newton_step(guides[at], ridge + DAMPING * most, free, held)
            else:
                step = self._newton_step(curvature, ridge + DAMPING * most, free, held)
            fall = -np.sum(free * step, axis=(1, 2))
            room = np.abs(value) if floor is None else value - floor
            going = (room > 0.0) & (fall > tol * room) & (fall > ROUNDING * np.abs(value))
            least[at[~going]] -= 0.5 * fall[~going].clip(0.0)  # the last step is not taken: its decrease is predicted
            if not going.any():
                break
            out, at = out[going], at[going]
            v, value, derivative, curvature, moved = self._line_search(
                *(a[going] for a in (v, step, gradient, value, derivative, curvature))
            )
            least[at], found[at] = value, v
            out, at = out[moved], at[moved]
            v, value, derivative, curvature = (a[moved] for a in (v, value, derivative, curvature))
            if not at.size:
                break
        return least, found

    def _line_search(
        self, v: Array, step: Array, gradient: Array, value: Array, derivative: Array, curvature: Array
    ) -> tuple[Array, Array, Array, Array, Mask]:
        """For every refit the first of 1, ½, ¼, ... of a step that lowers the objective enough; and which moved."""
        v, value, pending, share = v.copy(), value.copy(), np.arange(len(v)), 1.0
        for _ in range(HALVINGS):
            point = self._allowed(v[pending] + share * step[pending])
            found = self._evaluate(point)
            enough = 1e-4 * np.sum(gradient[pending] * (v[pending] - point), axis=(1, 2))
            good = found[0] <= value[pending] - enough
            done = pending[good]
            v[done], value[done], derivative[done], curvature[done] = (a[good] for a in (point, *found))
            pending = pending[~good]
            if not pending.size:
                break
            share *= 0.5
        moved = np.ones(len(v), dtype=bool)
        moved[pending] = False
        return v, value, derivative, curvature, moved

    def _newton_step(self, curvature: Array, diagonal: Array, gradient: Array, held: Mask) -> Array:
        """The Newton steps of all refits, by preconditioned conjugate gradients."""
        inverse = self._preconditioner(curvature)
        removers = self._removers(inverse, held)

        def precondition(r: Array) -> Array:
            y = r @ inverse
            for own, (at, remover) in zip(y, removers, strict=True):
                own -= own[:, at] @ remover
                own[:, at] = 0.0
            return y

        def product(a: Array, b: Array) -> Array:
            return np.sum(a * b, axis=(1, 2))

        step, r = np.zeros_like(gradient), -gradient
        y = precondition(r)
        direction, norm = y, product(r, y)
        enough = RESIDUAL**2 * norm
        for _ in range(INNER):
            going = norm > enough
            if not going.any():
                break
            curved = self._back(self.rows.hessian_times(curvature, self._times(direction))) + diagonal * direction
            curved[np.broadcast_to(held[:, np.newaxis], curved.shape)] = 0.0
            size = product(direction, curved)
            share = np.where(going & (size > 0.0), norm / np.where(size > 0.0, size, 1.0), 0.0)
            step += share[:, np.newaxis, np.newaxis] * direction
            r = r - share[:, np.newaxis, np.newaxis] * curved
            y = precondition(r)
            before, norm = norm, np.where(share > 0.0, product(r, y), 0.0)
            ratio = norm / np.where(before > 0.0, before, 1.0)
            direction = y + ratio[:, np.newaxis, np.newaxis] * direction
        return step
