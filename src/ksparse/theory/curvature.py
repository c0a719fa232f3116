r"""The curvature of real data: restricted strong convexity α_r of F and restricted smoothness L_r of every f_i.

For :math:`f_i(x) = \tilde w_i φ(a_i\cdot x, y_i) + \frac{λ}{2}\|x\|^2` and bounds φ'' on the curvature of the loss

.. math:: L_r = \max_i\, \tilde w_i \sup φ''\,\|H_r(a_i)\|^2 + λ, \qquad
          α_r = \min_{\|v\|_0 \le r,\ \|v\| = 1} \frac1n \sum_i \tilde w_i \inf φ''\,(a_i\cdot v)^2 + λ.

L_r is exact; α_r, and the smoothness L'_r of F itself, are sparse eigenvalues and come as brackets.  A step that
averages B rows drawn with replacement needs only :math:`L_r/B + (1 - 1/B)L'_r`: that is the constant in
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
    """What `curvature` found at sparsity r."""

    r: int
    L: float
    L_full: Bracket
    alpha: Bracket

    @property
    def c(self) -> Bracket:
        """The condition number L/α."""
        return condition(self.L, self.alpha)


def condition(L: float, alpha: Bracket) -> Bracket:
    """L/α, whose lower end comes from the upper end of α."""
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
    """Restricted smoothness and strong convexity of a design under a loss.

    Parameters
    ----------
    A : array, sparse matrix or LinearOperator of shape (n, d)
    loss : str or loss
    r : int
        The sparsity of the directions, at most d.
    y : array of shape (n,), optional
        Needed by losses whose curvature depends on it ("huber", "squared_hinge").
    l2 : float
        The ridge; it adds to both.
    radius : float
        ω: only vectors in this ball count.  On a ball only is the logistic loss strictly convex, and the curvature
        of the Poisson loss bounded.
    batch_size : int
        Rows a step; L is then the mini-batch form.
    sample_weight : array of shape (n,), optional
    exact : bool, optional
        Enumerate supports for α and L' (see `restricted_isometry`).
    random_state : None, int or Generator
        For the search from inside the brackets.

    Returns
    -------
    Curvature
        ``.L``, ``.alpha`` (a bracket with ``lower`` and ``upper``), ``.L_full`` (L' of F) and ``.c`` = L/α.

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
    return ground.at(r, batch_size=check_count(batch_size, "batch_size"), exact=exact, random_state=random_state)


@dataclass(frozen=True, eq=False)
class Landscape:
    """The curvature of a problem at any sparsity.  Kept columns and the intercept are in every direction."""

    A: Any  # an array, a sparse matrix or an operator, without the intercept
    n: int
    d: int
    least: NDArray[np.float64]  # w̃_i·inf φ'' over the ball
    most: NDArray[np.float64]  # w̃_i·sup φ''
    square: NDArray[np.float64]  # ‖a_i‖²
    kept_square: NDArray[np.float64]
    kept: NDArray[np.int64]
    first: int
    l2: float
    _known: dict[tuple[int, bool], float] = field(default_factory=dict)  # a pass over the rows for each r

    @classmethod
    def create(
        cls, A: Any, y: ArrayLike | None = None, *, loss: Any = "squared", radius: float = math.inf, **settings: Any
    ) -> Landscape:
        """Check everything as `Problem.create` does; an operator is read in blocks of rows."""
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
        """Of a problem that was made from A (or from an operator, whose rows it does not hold: with their squares)."""
        from .. import losses

        d = problem.d if square is None else A.shape[1]
        square = problem.row_square if square is None else square
        # kept columns and the intercept are outside the ball: then a prediction may be anything
        with np.errstate(invalid="ignore", over="ignore"):
            reach = np.where(square > 0, problem.radius * np.sqrt(square), 0.0)
        if problem.n_kept:
            reach = np.full(problem.n, np.inf)
        # φ'' of every loss of the package rises, falls, or rises and then falls, so that its least value is at an end;
        # and where it has no bound it can only rise or only fall, so that its largest value is at an end as well
        with np.errstate(over="ignore"):
            ends = [losses.curvatures(problem.loss, problem.offset + sign * reach, problem.y) for sign in (-1.0, 1.0)]
        least, most = np.minimum(*ends), np.maximum(*ends)
        bound = losses.curvature_bound(problem.loss)
        foreign = type(problem.loss) not in losses.LOSSES.values()
        if math.isfinite(bound) or foreign:
            most = np.full(problem.n, bound)
        if foreign:  # of which only the bound is known
            least = np.zeros(problem.n)
        used = problem.weight > 0
        least, most = (problem.weight * np.where(used, bend, 0.0) for bend in (least, most))
        return cls(
            A=A, n=problem.n, d=d, least=least, most=most, square=square, kept_square=np.asarray(problem.kept_square),
            kept=problem.kept, first=problem.first, l2=problem.l2,
        )  # fmt: skip

    @property
    def n_kept(self) -> int:
        return self.first + self.kept.size

    def smoothness(self, r: int, *, printed: bool = False) -> float:
        """L_r of every f_i, exactly; ``printed=True`` bounds the whole gradient as the paper's definition does."""
        r = min(r, self.d)
        if (r, printed) not in self._known:
            top = self._top(r) + self.kept_square + self.first
            if printed:
                top = np.sqrt(top * (self.square + self.first))
            flat = (top == 0) | (self.most == 0)
            self._known[r, printed] = float(np.max(np.where(flat, 0.0, self.most) * np.where(flat, 0.0, top))) + self.l2
        return self._known[r, printed]

    def convexity(self, r: int, *, exact: bool | None = None, random_state: Any = 0) -> Bracket:
        """α_r of F."""
        return self._low.brackets(self._level(r), exact=exact, random_state=random_state, always=self._always)[0]

    def convexity_floor(self, r: int) -> float:
        """The lower end of `convexity`, without the search for the upper one."""
        return self._low.floor(self._level(r))[0]

    def full_smoothness(self, r: int, *, exact: bool | None = None, random_state: Any = 0) -> Bracket:
        """L'_r of F."""
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

    def at(self, r: int, *, batch_size: int = 1, exact: bool | None = None, random_state: Any = 0) -> Curvature:
        settings: dict[str, Any] = {"exact": exact, "random_state": random_state}
        return Curvature(
            r, self.batch_smoothness(r, batch_size), self.full_smoothness(r, **settings), self.convexity(r, **settings)
        )

    @property
    def _always(self) -> NDArray[np.int64]:
        """The kept columns and the intercept's, which stands last."""
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
    """The rows of an operator, some at a time, as dense arrays."""
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
