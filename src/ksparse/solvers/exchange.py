"""Exchange: a quadratic model of the most promising columns, in which the best exchange of two columns is exact."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..matrix import transposed_times
from ..problem import Problem, Slots
from ..result import Record, Status
from ._fields import check_fields
from ._run import Clock, copy_slots
from ._support import DAMPING, Array, Fit, Ground, weighted_gram
from ._tableau import FLAT, best_partners, enter_all, exchange, resize

GROWTH = (0.25, 0.5, 1.0)  # of k: the sizes that a first support goes through
SINGLES = 4  # exchanges tried one by one before giving up


class Model(NamedTuple):
    """The tableau of a working set."""

    columns: NDArray[np.int64]
    P: Array
    u: Array
    row: Array
    inside: NDArray[np.bool_]
    fixed: NDArray[np.bool_]
    own: Array  # the curvature of each column by itself
    G: Array
    b: Array

    @property
    def tableau(self) -> tuple[Any, ...]:
        return self[1:7]

    def minimiser(self, inside: NDArray[np.bool_]) -> Array:
        """Of the model, on some of its columns; as long as the working set."""
        at = np.flatnonzero(inside)
        v = np.zeros(inside.size)
        v[at] = np.linalg.lstsq(self.G[np.ix_(at, at)], self.b[at], rcond=1e-13)[0]
        return v


@dataclass(frozen=True)
class Exchange:
    r"""Relaxed growth, a refit on the support, and exchanges of columns while the objective falls.

    One pass over the rows gives the gradient and the curvature of every column.  On the k chosen columns and the most
    promising others F is modelled by :math:`\frac12 v^\top Gv - b^\top v`, in which the worth of exchanging a column j
    for i is exact,

    .. math:: \frac{(u_i + P_{ij}u_j e_j)^2}{P_{ii} + P_{ij}^2 e_j} - u_j^2 e_j, \qquad e_j = 1/|P_{jj}|,

    with P and u of the swept tableau.  Exchanges are made in the model while they help, then tried on F itself with a
    Newton refit.  In the end all columns are scored against all chosen ones; if none is worth an exchange the result is
    ``swap_optimal``.

    Parameters
    ----------
    breaths : int
        How often to grow the support by half, shrink it again and keep what is better: the more, the better and slower.
    working_set : int, optional
        Columns in the model; by default 4k for the squared loss and 2.5k for others, but at least k + 50.
    gain : float
        The share of the objective that an exchange must promise.
    stages : int
        At most so many models.

    Notes
    -----
    For `positive` and for a radius there is no such model: use another solver.  Products go through BLAS, so that
    results may differ in their last digits with the number of its threads.

    Examples
    --------
    >>> import numpy as np
    >>> from ksparse import Exchange, minimize
    >>> rng = np.random.default_rng(0)
    >>> A = rng.standard_normal((100, 500))
    >>> result = minimize(A, A[:, 3] - 2 * A[:, 7], k=2, solver=Exchange())
    >>> result.support, result.swap_optimal
    (array([3, 7]), True)
    """

    breaths: int = 1
    working_set: int | None = None
    gain: float = 1e-6
    stages: int = 200

    tol: ClassVar[float] = 0.0  # it knows by itself when it is done
    stop_on_divergence: ClassVar[bool] = True
    remedies: ClassVar[dict[str, str]] = {"stage limit": "allow more stages"}

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def limit(self) -> int:
        return self.stages

    def iterate(self, problem: Problem, slots: Slots, rng: np.random.Generator, clock: Clock) -> Iterator[Record]:
        if problem.positive or problem.radius < math.inf:
            raise ValueError("Exchange knows no positive=True and no radius; use HTSVRG or PGD for those")
        return Run(self, problem, slots, clock).records()

    def explain_divergence(self, problem: Problem, k: int, step: float) -> tuple[str, str]:
        return "the refit left the range of floats", "rescale the columns, or give a ridge"


@dataclass
class Search:
    """Where a local search ended, and whether no exchange promised anything there."""

    end: Fit | None = None
    optimal: bool = False


class Run:
    """One run: its support now, and the steps that change it."""

    def __init__(self, solver: Exchange, problem: Problem, slots: Slots, clock: Clock) -> None:
        self.solver, self.problem, self.slots = solver, problem, slots
        self.ground = Ground(problem, clock.check)
        self.kept = problem.kept.size
        self.k = slots.x.size - problem.n_kept
        share = 4.0 if self.ground.quadratic else 2.5  # a model that is exact is worth more columns
        size = max(round(share * self.k), self.k + 50) if solver.working_set is None else solver.working_set
        self.size = max(size, self.k) + self.kept
        self.told = 0  # passes that the records have counted
        self.empty = self.ground.empty_fit()  # the intercept and the kept columns alone

    # --- the course of a run -------------------------------------------------------------------------------------
    def records(self) -> Iterator[Record]:
        start = self.problem.vector(self.slots)
        fit = self.empty
        if start.any():
            columns = self._with_kept(np.flatnonzero(start))
            fit = self.ground.newton(columns, [(start[columns], self.problem.constant(self.slots))])
        yield self._record(fit, fit.objective)
        sizes: tuple[float, ...] = (1.0,) if start.any() or self.ground.quadratic else GROWTH
        if fit.columns.size - self.kept == self.k:
            sizes = ()  # a start that is complete
        for share in sizes:
            fit = self.resized(fit, max(1, round(share * self.k)))
        best, optimal = fit, False
        for number in range(self.solver.breaths + 1):
            if number:
                fit = self.resized(self.resized(best, self.k + max(1, round(0.5**number * self.k))), self.k)
            search = Search()
            for better in self.local(fit, search):
                if better.objective < best.objective or number == 0:
                    yield self._record(better, best.objective)
                    best = better
            if best is search.end:
                optimal = search.optimal
        best = self.ground.newton(best.columns, [(best.x, best.constant)], 50, 1e-22, polish=True)
        where = "" if self.ground.quadratic else " in the quadratic model"
        which = f"of two columns lowers the objective{where}" if optimal else "that was tried lowers the objective"
        yield self._record(best, best.objective)._replace(
            status=Status("converged", f"no exchange {which}"), swap_optimal=optimal
        )

    def local(self, fit: Fit, search: Search) -> Iterator[Fit]:
        """Exchange columns while F falls; yields the fit it starts from and every better one, and says in `search` how
        it ended."""
        yield fit
        cap = math.inf if self.ground.quadratic else max(1, self.k // 2)
        exact = False
        while True:
            model = self.model(fit, self.size, exact)
            tries = self._several(fit, model, cap)
            if exact and not self.ground.quadratic:
                tries = [*tries[-1:], *self._singles(model, self.solver.gain * abs(fit.objective))]
            better, count = self._first_better(fit, model, tries)
            if better is not None:
                fit = better
                yield fit
                cap = cap if self.ground.quadratic else min(max(1, self.k // 2), 2 * count)
                exact = False
            elif not exact:
                exact, cap = True, max(1, cap // 2) if math.isfinite(cap) else cap
            else:
                search.end, search.optimal = fit, not tries
                return

    def _several(self, fit: Fit, model: Model, cap: float) -> list[NDArray[np.int64]]:
        """All exchanges that the model makes, one after the other; the first third of them, and so on to one."""
        work = [part.copy() for part in model.tableau]
        made = np.zeros((int(min(cap, 4 * self.size)), 2), np.int64)
        count = exchange(*work, self.solver.gain * abs(fit.objective), len(made), made)
        tries = []
        while count > 0:
            tries.append(made[:count])
            count = count // 3 if count >= 6 else count // 2
        return tries

    def _singles(self, model: Model, least: float) -> list[NDArray[np.int64]]:
        """The best exchanges by themselves."""
        leave, gain = np.empty(model.u.size, np.int64), np.empty(model.u.size)
        best_partners(model.P, model.u, model.inside, model.fixed, model.own, leave, gain)
        best = np.argsort(-gain, kind="stable")[:SINGLES]
        return [np.array([[leave[i], i]]) for i in best if gain[i] > least]

    def _first_better(self, fit: Fit, model: Model, tries: list[NDArray[np.int64]]) -> tuple[Fit | None, int]:
        """The first of some sets of exchanges that lowers F, and how many it holds."""
        for made in tries:
            inside = model.inside.copy()
            for leave, enter in made:
                inside[leave], inside[enter] = False, True
            columns = self._with_kept(model.columns[inside])
            starts = self._starts(fit, model, model.minimiser(inside), columns)
            trial = self.ground.newton(columns, starts, 6, 1e-6, fit.objective)
            if fit.objective - trial.objective > 1e-7 * abs(fit.objective):
                return trial, len(made)
        return None, 0

    def resized(self, fit: Fit, size: int) -> Fit:
        """Grow or shrink the support in the model, exchange, and refit."""
        size = min(size, self.problem.d - self.kept)
        model = self.model(fit, max(self.size, 2 * size + self.kept), False)
        resize(*model.tableau, size)
        made = np.zeros((size, 2), np.int64)
        exchange(*model.tableau, self.solver.gain * abs(fit.objective), size, made)
        columns = self._with_kept(model.columns[model.inside])
        return self.ground.newton(columns, self._starts(fit, model, model.u, columns), 12, 1e-2)

    def _starts(self, fit: Fit, model: Model, v: Array, columns: NDArray[np.int64]) -> list[tuple[Array, float]]:
        """Where a refit may start: at the model's minimiser v; at the coefficients of the last fit, as they are or
        smaller, for without those that balanced them they may be far too large; and at nothing."""
        x, full = np.zeros(self.problem.d), np.zeros(self.problem.d)
        x[fit.columns], full[model.columns] = fit.x, v
        starts = [(full[columns], fit.constant), (x[columns], fit.constant)]
        if not self.ground.quadratic:
            starts += [(share * x[columns], share * fit.constant) for share in (0.3, 0.1)]
            nothing = np.zeros(columns.size)
            nothing[: self.kept] = self.empty.x
            starts.append((nothing, self.empty.constant))
        return starts

    # --- the model -----------------------------------------------------------------------------------------------
    def model(self, fit: Fit, size: int, exact: bool) -> Model:
        """The quadratic model around a fit, on its columns and the most promising others."""
        ground, problem = self.ground, self.problem
        g, a, q = ground.gradient(fit)
        total = float(fit.bend.mean())
        own = np.maximum(q - (a * a / total if problem.intercept and total > 0 else 0.0), 0.0) + problem.l2
        if not ground.quadratic:  # where no row is curved, a little is assumed
            own += DAMPING * ground.damping(np.arange(problem.d))
        usable = ~ground.flat & (own > 0.0)
        if exact and fit.columns.size > self.kept:
            worth = self._exact_worth(fit, g, own, usable)
        else:
            worth = np.where(usable, g * g / np.where(usable, own, 1.0), -1.0)
        worth[fit.columns] = np.inf
        size = min(size, problem.d)
        columns = np.argpartition(-worth, size - 1)[:size] if size < problem.d else np.arange(problem.d)
        columns = np.sort(columns)
        x = np.zeros(problem.d)
        x[fit.columns] = fit.x
        G = self._gram(fit, columns, own[columns])
        b = G @ x[columns] - g[columns]
        inside = np.zeros(columns.size, dtype=bool)
        fixed = np.isin(columns, problem.kept)
        row, own_here = np.empty(columns.size), np.where(usable, own, np.inf)[columns]  # what is flat stays out
        P, u = G.copy(), b.copy()
        enter_all(P, u, row, np.flatnonzero(np.isin(columns, fit.columns)), inside, own_here)
        return Model(columns, P, u, row, inside, fixed, own_here, G, b)

    def _gram(self, fit: Fit, columns: NDArray[np.int64], own: Array) -> Array:
        ground, problem = self.ground, self.problem
        which = np.arange(problem.n) if ground.quadratic else ground.heavy_rows(fit.bend)
        part, heavy = ground.block(columns, which), fit.bend[which]
        if problem.intercept and heavy.sum() > 0:
            part -= heavy @ part / heavy.sum()  # with their own means: the matrix stays positive
        G = weighted_gram(part, heavy) / problem.n
        diagonal = np.maximum(G.diagonal() + problem.l2, own)
        if not ground.quadratic:
            diagonal = diagonal + DAMPING * ground.damping(columns)
        np.fill_diagonal(G, diagonal)
        return G

    def _exact_worth(self, fit: Fit, g: Array, own: Array, usable: NDArray[np.bool_]) -> Array:
        """What the best exchange for each column is worth, all columns against all chosen ones."""
        ground, problem = self.ground, self.problem
        S = fit.columns
        block = ground.block(S)
        if problem.intercept and fit.bend.sum() > 0:
            block -= fit.bend @ block / fit.bend.sum()
        ground.passes += 1
        B = transposed_times(problem.rows, block * fit.bend[:, np.newaxis]) / problem.n
        G = B[S].copy()
        G[np.diag_indices(S.size)] += problem.l2 + 1e-12 * ground.damping(S)
        inverse = np.linalg.pinv(G, hermitian=True)
        v = fit.x - inverse @ g[S]
        cross = B @ inverse
        u = -g - B @ (v - fit.x)
        rest = own - np.einsum("ij,ij->i", cross, B)
        free = np.arange(self.kept, S.size)
        spread = inverse.diagonal()
        e = 1.0 / np.maximum(spread[free], 1e-14 * spread.max())
        cross, v = cross[:, free], v[free]
        usable = usable & (rest > FLAT * own)
        rest = np.where(usable, rest, 1.0)[:, np.newaxis]
        gain = (u[:, np.newaxis] + cross * (v * e)) ** 2 / (rest + cross**2 * e) - v * v * e
        return np.where(usable, gain.max(axis=1), -1.0)

    # --- small things --------------------------------------------------------------------------------------------
    def _with_kept(self, columns: NDArray[Any]) -> NDArray[np.int64]:
        kept = self.problem.kept
        return np.concatenate([kept, np.setdiff1d(columns, kept)]).astype(np.int64)

    def _record(self, fit: Fit, before: float) -> Record:
        x = np.zeros(self.problem.d)
        x[fit.columns] = fit.x
        old = self.slots.column[self.problem.n_kept :].copy()
        copy_slots(self.problem.slots(self.k, x, fit.constant), self.slots)
        entered = np.setdiff1d(self.slots.column[self.problem.n_kept :], old).size
        passes, self.told = self.ground.passes - self.told, self.ground.passes
        return Record(fit.objective, passes * self.problem.n, entered, 0.0, math.nan, abs(fit.objective - before))
