r"""The curvature of given data: restricted strong convexity α_r of F and restricted smoothness L_r of every f_i.

For :math:`f_i(x) = \tilde w_i φ(a_i\cdot x, y_i) + \frac{λ}{2}\|x\|^2` and bounds φ'' on the curvature of the loss

.. math:: L_r = \max_i\, \tilde w_i \sup φ''\,\|H_r(a_i)\|^2 + λ, \qquad
          α_r = \min_{\|v\|_0 \le r,\ \|v\| = 1} \frac1n \sum_i \tilde w_i \inf φ''\,(a_i\cdot v)^2 + λ.

L_r is exact; α_r and the smoothness L'_r of F itself are sparse eigenvalues, for which `spectrum` gives lower and upper
bounds.  A step that averages B rows drawn with replacement needs only :math:`L_r/B + (1 - 1/B)L'_r`, the constant L in
:math:`E\|∇f_B(x) - ∇f_B(\hat x)\|^2 \le 2L\,(F(x) - F(\hat x) - \langle ∇F(\hat x), x - \hat x\rangle)`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._validate import as_real, check_count, check_flag
from .spectrum import Bracket, Spectrum, is_operator


class Curvature(NamedTuple):
    """Smoothness and strong convexity at sparsity r: L of the f_i, bounds on L' of F and on α."""

    r: int
    L: float
    L_full: Bracket
    alpha: Bracket

    @property
    def c(self) -> Bracket:
        """Bounds on the condition number L/α."""
        return condition(self.L, self.alpha)


def condition(L: float, alpha: Bracket) -> Bracket:
    """Bounds on L/α: its lower bound comes from the upper bound on α."""
    low, high = (L / a if a > 0 else math.inf for a in (alpha.upper, alpha.lower))
    return Bracket(low, high, alpha.upper_from, alpha.lower_from)


def curvature(
    A: Any,
    loss: Any = "squared",
    r: int = 1,
    *,
    y: ArrayLike | None = None,
    l2: float = 0.0,
    radius: float = math.inf,
    batch_size: int = 1,
    sample_weight: ArrayLike | None = None,
    exact: bool | None = None,
    random_state: Any = 0,
) -> Curvature:
    r"""Restricted smoothness L_r of every f_i and restricted strong convexity α_r of F.

    .. math:: L_r = \max_i\, \tilde w_i \sup φ''\,\|H_r(a_i)\|^2 + λ, \qquad
              α_r = \min_{\|v\|_0 \le r,\ \|v\| = 1} \frac1n \sum_i \tilde w_i \inf φ''\,(a_i\cdot v)^2 + λ

    Parameters
    ----------
    A : array, sparse matrix or LinearOperator of shape (n, d)
    loss : str or loss, default="squared"
    r : int, default=1
        The sparsity of the directions v, at most d.
    y : array of shape (n,), default=None
        Needed by losses whose curvature depends on it ("huber", "squared_hinge").
    l2 : float, default=0.0
        The ridge λ.
    radius : float, default=inf
        ω: only vectors in the ball of this radius are considered.  The logistic loss is strictly convex, and the
        curvature of the Poisson loss is bounded, only on a ball.
    batch_size : int, default=1
        Rows per step; L is then that of a mini-batch.
    sample_weight : array of shape (n,), default=None
        Weights of the rows; all equal by default.
    exact : bool, default=None
        Whether to enumerate all supports for α and L'; by default only if there are few (see `restricted_isometry`).
    random_state : None, int or Generator, default=0
        For the search for supports with extreme eigenvalues.

    Returns
    -------
    Curvature
        ``.L``; ``.alpha`` and ``.L_full`` (L' of F), each with bounds ``lower`` and ``upper``; and ``.c`` = L/α.

    Examples
    --------
    >>> A = np.array([[3.0, 1.0, 0.0], [0.0, 2.0, 1.0], [1.0, 0.0, 2.0]])
    >>> curvature(A, "squared", 2).L
    10.0
    >>> curvature(A, "logistic", 2).L  # at most a quarter as curved
    2.5
    """
    exact = None if exact is None else check_flag(exact, "exact")
    ground = Landscape.create(A, y, loss=loss, l2=l2, radius=radius, sample_weight=sample_weight)
    r = check_count(r, "r", high=ground.d, high_text="the number of columns")
    L = ground.batch_smoothness(r, check_count(batch_size, "batch_size"))
    full = ground.full_smoothness(r, exact=exact, random_state=random_state)
    return Curvature(r, L, full, ground.convexity(r, exact=exact, random_state=random_state))


@dataclass(frozen=True, eq=False)
class Landscape:
    """The curvature of a problem at any sparsity.  Every direction includes the intercept and the kept columns."""

    A: Any  # an array, a sparse matrix or an operator, without the intercept
    n: int
    d: int
    least: NDArray[np.float64]  # w̃_i·inf φ'' over the ball
    most: NDArray[np.float64]  # w̃_i·sup φ''
    square: NDArray[np.float64]  # ‖a_i‖²
    kept_square: NDArray[np.float64]  # the same, of the columns always kept
    kept: NDArray[np.int64]
    first: int  # 1 if there is an intercept, else 0
    l2: float
    _known: dict[tuple[int, bool], float] = field(default_factory=dict)  # results of `smoothness`

    @classmethod
    def create(
        cls, A: Any, y: ArrayLike | None = None, *, loss: Any = "squared", radius: float = math.inf, **settings: Any
    ) -> Landscape:
        """Check the arguments as `Problem.create` does; an operator is read in blocks of rows."""
        from .. import losses
        from ..problem import Problem

        loss = losses.resolve(loss)
        if not hasattr(A, "shape"):
            A = as_real(A, "A")
        if len(A.shape) != 2 or 0 in A.shape:
            raise ValueError(f"A must be a matrix with at least one row and column, got shape {A.shape}")
        if y is None:
            if isinstance(loss, losses.Huber | losses.SquaredHinge):
                raise ValueError(f"y must be given: the curvature of the {type(loss).__name__} loss depends on it")
            y = np.resize([1.0, -1.0], A.shape[0]) if isinstance(loss, losses.Logistic) else np.ones(A.shape[0])
        if is_operator(A):
            blocks = [Problem.create(rows, np.zeros(len(rows))) for rows in row_blocks(A)]
            squares = np.concatenate([block.row_square for block in blocks])
            problem = Problem.create(np.zeros((A.shape[0], 1)), y, loss=loss, radius=radius, **settings)
            return cls.from_problem(problem, A, squares)
        return cls.from_problem(Problem.create(A, y, loss=loss, radius=radius, **settings), A)

    @classmethod
    def from_problem(cls, problem: Any, A: Any, square: NDArray[np.float64] | None = None) -> Landscape:
        """The landscape of a problem made from A; for an operator A, `square` holds the squared norms of its rows."""
        from .. import losses

        d = problem.d if square is None else A.shape[1]
        square = problem.row_square if square is None else square
        # the ball does not bound kept columns and the intercept: with them, predictions have no bound
        with np.errstate(invalid="ignore", over="ignore"):
            reach = np.where(square > 0, problem.radius * np.sqrt(square), 0.0)
        if problem.n_kept:
            reach = np.full(problem.n, np.inf)
        # φ'' of every loss of the package increases, decreases, or increases and then decreases, so its smallest value
        # is at an end; where it has no bound it is monotone, so its largest value is at an end as well
        with np.errstate(over="ignore"):
            ends = [losses.curvatures(problem.loss, problem.offset + sign * reach, problem.y) for sign in (-1.0, 1.0)]
        least, most = np.minimum(*ends), np.maximum(*ends)
        bound = losses.curvature_bound(problem.loss)
        foreign = type(problem.loss) not in losses.LOSSES.values()
        if math.isfinite(bound) or foreign:
            most = np.full(problem.n, bound)
        if foreign:  # for losses of users, only an upper bound is known
            least = np.zeros(problem.n)
        used = problem.weight > 0
        least, most = (problem.weight * np.where(used, value, 0.0) for value in (least, most))
        return cls(
            A=A, n=problem.n, d=d, least=least, most=most, square=square, kept_square=np.asarray(problem.kept_square),
            kept=problem.kept, first=problem.first, l2=problem.l2,
        )  # fmt: skip

    @property
    def n_kept(self) -> int:
        return self.first + self.kept.size

    def smoothness(self, r: int, *, printed: bool = False) -> float:
        """L_r of every f_i, exactly; ``printed=True`` bounds the whole gradient, as in the paper's definition."""
        r = min(r, self.d)
        if (r, printed) not in self._known:
            top = self._top(r) + self.kept_square + self.first
            if printed:
                top = np.sqrt(top * (self.square + self.first))
            flat = (top == 0) | (self.most == 0)
            self._known[r, printed] = float(np.max(np.where(flat, 0.0, self.most) * np.where(flat, 0.0, top))) + self.l2
        return self._known[r, printed]

    def convexity(self, r: int, *, exact: bool | None = None, random_state: Any = 0) -> Bracket:
        """Bounds on α_r of F."""
        return self._low.brackets(self._level(r), exact=exact, random_state=random_state, always=self._always)[0]

    def convexity_floor(self, r: int) -> float:
        """The lower bound of `convexity`, without the search for the upper one."""
        return self._low.floor(self._level(r))[0]

    def full_smoothness(self, r: int, *, exact: bool | None = None, random_state: Any = 0) -> Bracket:
        """Bounds on L'_r of F."""
        if not np.isfinite(self.most).all():
            return Bracket(math.inf, math.inf, "no bound on the curvature", "no bound on the curvature")
        return self._high.brackets(self._level(r), exact=exact, random_state=random_state, always=self._always)[1]

    def batch_smoothness(self, r: int, batch_size: int) -> float:
        """L of a step that averages `batch_size` rows drawn with replacement."""
        single = self.smoothness(r)
        if batch_size == 1 or not math.isfinite(single):
            return single
        return single / batch_size + (1.0 - 1.0 / batch_size) * self.full_ceiling(r)

    def full_ceiling(self, r: int) -> float:
        """An upper bound on L'_r, without the search for a lower one."""
        return min(self._high.ceiling(self._level(r))[0], self.smoothness(r))

    @property
    def _always(self) -> NDArray[np.int64]:
        """Indices of the columns always kept, and of the intercept's column, which is the last one."""
        return np.append(self.kept, np.arange(self.d, self.d + self.first))

    def _level(self, r: int) -> int:
        return min(r + self.n_kept, self.d + self.first)

    def _top(self, r: int) -> NDArray[np.float64]:
        from ..design import as_design

        blocks = row_blocks(self.A) if is_operator(self.A) else iter([self.A])
        return np.concatenate([as_design(rows).largest_squares(r, self.kept) for rows in blocks])

    @functools.cached_property
    def _low(self) -> Spectrum:
        return self._spectrum(self.least)

    @functools.cached_property
    def _high(self) -> Spectrum:
        return self._low if np.array_equal(self.least, self.most) else self._spectrum(self.most)

    def _spectrum(self, weight: NDArray[np.float64]) -> Spectrum:
        ridge = np.append(np.full(self.d, self.l2), np.zeros(self.first))  # the intercept is not shrunk
        return Spectrum.create(self.A, weight=weight, scale=1.0 / self.n, ridge=ridge, ones=self.first)


def row_blocks(A: Any) -> Iterator[NDArray[np.float64]]:
    """The rows of an operator in blocks, as dense arrays."""
    n, d = A.shape
    height = max(1, 2**22 // max(n, d))
    for start in range(0, n, height):
        stop = min(start + height, n)
        unit = np.zeros((n, stop - start))
        unit[np.arange(start, stop), np.arange(stop - start)] = 1.0
        rows = np.ascontiguousarray(np.asarray(A.rmatmat(unit)).T)
        if np.iscomplexobj(rows):
            raise ValueError("A must be real: the losses are for real predictions; restricted_isometry takes complex A")
        yield rows
