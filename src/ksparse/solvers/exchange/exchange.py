"""Exchange: a quadratic model on the columns with the largest predicted decrease, in which exchanges are exact."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ...engine.loop import Clock, State
from ...engine.resume import check_columns
from ...problem import Problem, Slots
from ...result import Record, Status
from ..base import Solver, check_fields, copy_slots
from ..newton import Array, Fit, Refitter, Starts
from .search import SearchRun, SearchState
from .tableau import FLAT, Attempt, Model, enter_all, exchange, exchanged, resize

GROWTH = (0.25, 0.5, 1.0, 2.0, 1.0)  # of k: the sizes that a first support goes through
PERTURBATIONS = (1.0, 0.5, 0.25, 0.1, -0.6, -0.3, -0.15)  # of k: columns added (or removed) in the model, and back
FINE, COARSE, STEPS = 1e-6, 1e-4, 4  # precision of a trial: predicted decrease left, as a share of F; Newton steps
MOST_PERTURBED = 2  # perturbations of the model tried on F, where the model is not exact
RUINED = 3.0  # times the last F: starting points above it are poor
SINGLES = 4  # exchanges tried one by one


@dataclass(frozen=True)
class Exchange(Solver):
    r"""Relaxed growth, a refit on the support, and exchanges of columns while the objective falls.

    One pass over the rows gives the gradient and the curvature of every column.  On the k chosen columns and the others
    with the largest predicted decrease F is modelled by :math:`\frac12 v^\top Gv - b^\top v`, in which the worth of
    exchanging a column j for i is exact,

    .. math:: \frac{(u_i + P_{ij}u_j e_j)^2}{P_{ii} + P_{ij}^2 e_j} - u_j^2 e_j, \qquad e_j = 1/|P_{jj}|,

    with P and u of the swept tableau.  Exchanges are made in the model while they help, then tried on F itself with a
    Newton refit.  In the end all columns are scored against all chosen ones; if none is worth an exchange the result is
    ``swap_optimal``.

    Parameters
    ----------
    breaths : int, default=0
        How many perturbations to try: each grows the support by half, refits, shrinks it again, searches, and keeps the
        better fit.  Slower, and sometimes better.  For the squared loss the search does this in its model, which is
        exact.
    working_set : int, default=None
        Columns in the model; None means 4k for the squared loss and 2.5k for others, but at least k + 50.
    gain : float, default=1e-6
        An exchange is tried if the model predicts a decrease of the objective by at least this share.
    stages : int, default=200
        The largest number of stages.

    Notes
    -----
    There is no such model for `positive` and for a radius: use another solver.  The columns of the working set are held
    as dense rows, n numbers each; the data are not copied otherwise.  Products go through BLAS, so that results may
    differ in their last digits with the number of its threads.

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

    breaths: int = 0
    working_set: int | None = None
    gain: float = 1e-6
    stages: int = 200

    reads_columns: ClassVar[bool] = True
    knows_its_end: ClassVar[bool] = True
    tol: ClassVar[float] = 0.0
    remedies: ClassVar[dict[str, str]] = {"stage limit": "allow more stages"}

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def limit(self) -> int:
        return self.stages

    def memory(self, shape: tuple[int, int], k: int) -> int:
        """About how many bytes a run takes beside the data: columns of the working set, and products with all."""
        columns = (max(4 * k, k + 50) if self.working_set is None else self.working_set) + 3 * k
        return 8 * (columns * shape[0] + (3 * k + 10) * shape[1])

    def iterate(
        self, problem: Problem, slots: Slots, rng: np.random.Generator, clock: Clock, state: State | None = None
    ) -> Iterator[Record]:
        if problem.positive or problem.radius < math.inf:
            raise ValueError("Exchange knows no positive=True and no radius; use HTSVRG or PGD for those")
        return ExchangeRun(self, problem, slots, clock).records(state)

    def explain_divergence(self, problem: Problem, k: int, step: float) -> tuple[str, str]:
        return "the refit left the range of floats", "rescale the columns, or give a ridge"


class ExchangeRun(SearchRun):
    """One run: its support, and the steps that change it."""

    def __init__(self, solver: Exchange, problem: Problem, slots: Slots, clock: Clock) -> None:
        self.solver, self.problem, self.slots, self.clock = solver, problem, slots, clock
        self.kept = problem.kept.size
        self.k = slots.x.size - problem.n_kept
        quadratic = getattr(problem.loss, "quadratic", False)
        share = 4.0 if quadratic else 2.5  # a model that is exact deserves more columns
        size = max(round(share * self.k), self.k + 50) if solver.working_set is None else solver.working_set
        self.size = max(size, self.k) + self.kept
        self.refitter = Refitter(problem, clock.check, self.size + self.k)
        self.failed: set[bytes] = set()  # supports that were tried and were not better
        self.told = 0  # passes counted in the records so far
        self.perturbations = 0 if quadratic else solver.breaths
        self.widest = math.inf if quadratic else max(1, self.k // 2)
        self.empty = self.refitter.empty_fit()

    # --- the course of a run -------------------------------------------------------------------------------------
    def begin(self) -> SearchState:
        start = np.where(self.refitter.spread > 0.0, self.problem.vector(self.slots), 0.0)
        fit = self.empty
        if start.any():
            columns = self._with_kept(np.flatnonzero(start))
            given, nothing = (start[columns], self.problem.constant(self.slots)), np.zeros(columns.size)
            nothing[: self.kept] = self.empty.x
            fit = self.refitter.newton(columns, Starts([given, (nothing, self.empty.constant)], []))
        shares: tuple[float, ...] = (1.0,) if start.any() or self.refitter.quadratic else GROWTH
        if fit.columns.size - self.kept == self.k:
            shares = ()  # a start that is complete
        return SearchState(fit, [max(1, round(share * self.k)) for share in shares])

    def finish(self, search: SearchState) -> Record:
        best = search.best
        best = self.refitter.newton(best.columns, Starts([(best.x, best.constant)], []), 50, 1e-22, polish=True)
        where = "" if self.refitter.quadratic else " that the quadratic model favours"
        which = (
            f"of two columns{where} lowers the objective" if search.optimal else "that was tried lowers the objective"
        )
        status = Status("converged", f"no exchange {which}")
        return self.record(best, best.objective)._replace(status=status, swap_optimal=search.optimal)

    def rebuilt(self, columns: NDArray[np.int64], x: Array, constant: float, objective: float) -> Fit:
        check_columns(self.problem, columns, x)
        fit = self.refitter.newton(columns, Starts([(x, constant)], []), 0)
        fit.objective = objective
        return fit

    def memory(self) -> dict[str, Any]:
        passes = self.refitter.passes - self.told
        return {"failed": list(self.failed), "damping": self.refitter.damping, "passes": passes}

    def remember(self, memory: dict[str, Any]) -> None:
        self.failed, self.refitter.damping = set(memory["failed"]), memory["damping"]
        self.refitter.passes += memory["passes"]

    def advance(self, search: SearchState) -> None:
        """Exchange columns, as many as lower F."""
        fit, exact, quadratic = search.fit, search.exact, self.refitter.quadratic
        model = self.model(fit, self.size, exact)
        least = self.solver.gain * abs(fit.objective)
        attempts, predicted = self._several(model, search.cap, least), 0
        if exact and not quadratic:
            singles, predicted = self._singles(model, least)
            attempts += singles
        better, count = self._first_better(fit, model, attempts)
        # exchanges that lower the model but not F do not count against optimality
        optimal = not attempts or 0 < predicted <= SINGLES
        if better is None and (exact or quadratic):
            for attempt in attempts:
                if attempt.exchanges == 1:  # it did not lower F: the other attempts must not begin with it
                    model.own[attempt.inside & ~model.inside] = np.inf
            better, count = self._first_better(fit, model, self._perturbed(model, least))
        if better is None:
            search.failed(optimal)
        else:
            search.took(better, search.cap if quadratic else min(self.widest, 2 * count))

    def _several(self, model: Model, cap: float, least: float) -> list[Attempt]:
        """All exchanges that the model makes, one after the other; the first third of them, and so on to one."""
        made = np.zeros((int(min(cap, 4 * self.size)), 2), np.int64)
        count = exchange(*model.work(), least, len(made), made)
        attempts = []
        while count > 0:
            attempts.append(exchanged(model, made[:count]))
            count = count // 3 if count >= 6 else count // 2
        return attempts

    @np.errstate(over="ignore", invalid="ignore")
    def _singles(self, model: Model, least: float) -> tuple[list[Attempt], int]:
        """The best exchanges of one column by themselves, and how many there are with a predicted decrease."""
        enter = np.flatnonzero(~model.inside & (model.P.diagonal() > FLAT * model.own))
        leave = np.flatnonzero(model.inside & ~model.fixed)
        e = -1.0 / model.P.diagonal()[leave]
        between = model.P[np.ix_(enter, leave)]
        new = model.u[enter, np.newaxis] + between * (model.u[leave] * e)
        gain = 0.5 * (new**2 / (model.P.diagonal()[enter, np.newaxis] + between**2 * e) - model.u[leave] ** 2 * e)
        pairs = np.argwhere(gain > least)
        best = pairs[np.argsort(-gain[tuple(pairs.T)], kind="stable")[:SINGLES]]
        return [exchanged(model, [(leave[j], enter[i])]) for i, j in best], len(pairs)

    def _perturbed(self, model: Model, least: float) -> list[Attempt]:
        """Perturbations inside the model: more columns and back, or fewer and back, then exchanges; those with the
        largest decrease come first."""
        found: list[tuple[float, Attempt]] = []
        made = np.zeros((self.k, 2), np.int64)
        for share in PERTURBATIONS:
            size = round((1.0 + share) * self.k)
            if size == self.k or size < 1 or size > model.u.size - np.count_nonzero(model.fixed):
                continue
            work = model.work()
            resize(*work, size)
            resize(*work, self.k)
            exchange(*work, least, self.k, made)
            u, inside = work[1], work[3]
            fall = model.fall(u, inside)
            if fall > least and not any(np.array_equal(inside, other.inside) for _, other in found):
                found.append((fall, Attempt(inside, int(np.count_nonzero(inside & ~model.inside)))))
        best = [attempt for _, attempt in sorted(found, key=lambda pair: -pair[0])]
        return best if self.refitter.quadratic else best[:MOST_PERTURBED]  # other models are not accurate so far away

    def _first_better(self, fit: Fit, model: Model, attempts: list[Attempt]) -> tuple[Fit | None, int]:
        """The first of some attempts that lowers F, and how many exchanges it holds."""
        for inside, count in attempts:
            columns = self._with_kept(model.columns[inside])
            if columns.tobytes() in self.failed:
                continue
            v = model.minimiser(inside)
            # precise enough to see the predicted decrease
            tol = min(max(0.1 * model.fall(v, inside) / max(abs(fit.objective), 1e-300), FINE), COARSE)
            trial = self.refitter.newton(columns, self._starts(fit, model, v, columns), STEPS, tol, fit.objective)
            if fit.objective - trial.objective > 1e-7 * abs(fit.objective):
                return trial, count
            self.failed.add(columns.tobytes())
        return None, 0

    def resized(self, fit: Fit, size: int) -> Fit:
        size = min(size, self.problem.d - self.kept)
        model = self.model(fit, max(self.size, 2 * size + self.kept), False)
        resize(*model.tableau, size)
        made = np.zeros((size, 2), np.int64)
        exchange(*model.tableau, self.solver.gain * abs(fit.objective), size, made)
        columns = self._with_kept(model.columns[model.inside])
        return self.refitter.newton(columns, self._starts(fit, model, model.u, columns), 12, 1e-2)

    def _starts(self, fit: Fit, model: Model, v: Array, columns: NDArray[np.int64]) -> Starts:
        """Starting points of a refit: the model's minimiser v and the coefficients of the last fit.  If F is far too
        large there, because columns that balanced others are gone: shrunken copies of the coefficients, and zero."""
        x, full = np.zeros(self.problem.d), np.zeros(self.problem.d)
        x[fit.columns], full[model.columns] = fit.x, v
        here = [(full[columns], fit.constant), (x[columns], fit.constant)]
        if self.refitter.quadratic:
            return Starts(here, [])
        nothing = np.zeros(columns.size)
        nothing[: self.kept] = self.empty.x
        less = [(share * x[columns], share * fit.constant) for share in (0.3, 0.1)]
        return Starts(here, [*less, (nothing, self.empty.constant)], RUINED * fit.objective)

    # --- the model -----------------------------------------------------------------------------------------------
    @np.errstate(over="ignore", invalid="ignore")
    def model(self, fit: Fit, size: int, exact: bool) -> Model:
        """The quadratic model around a fit, on its columns and the others with the largest predicted decrease."""
        refitter, problem = self.refitter, self.problem
        g, own = refitter.gradient(fit)
        usable = (refitter.spread > 0.0) & (own > 0.0)
        if exact and fit.columns.size > self.kept:
            worth = exact_worth(self.refitter, fit, g, own, usable)
        else:
            worth = np.where(usable, g * g / np.where(usable, own, 1.0), -1.0)
        worth[fit.columns] = np.inf
        size = min(size, problem.d)
        columns = np.argpartition(-worth, size - 1)[:size] if size < problem.d else np.arange(problem.d)
        columns = np.sort(columns)
        x = np.zeros(problem.d)
        x[fit.columns] = fit.x
        G = refitter.gram(columns, fit.curvature, some=not exact)
        # rows were left out: at least the curvature of the column by itself
        np.fill_diagonal(G, np.maximum(G.diagonal() + problem.l2, own[columns]))
        b = G @ x[columns] - g[columns]
        inside = np.zeros(columns.size, dtype=bool)
        fixed = np.isin(columns, problem.kept)
        row, own_here = (
            np.empty(columns.size),
            np.where(usable, own, np.inf)[columns],
        )  # columns without curvature stay out
        P, u = G.copy(), b.copy()
        enter_all(P, u, row, np.flatnonzero(np.isin(columns, fit.columns)), inside, own_here)
        return Model(columns, P, u, row, inside, fixed, own_here, G, b)

    # --- helpers --------------------------------------------------------------------------------------------
    def _with_kept(self, columns: NDArray[Any]) -> NDArray[np.int64]:
        kept = self.problem.kept
        return np.concatenate([kept, np.setdiff1d(columns, kept)]).astype(np.int64)

    def record(self, fit: Fit, before: float) -> Record:
        old = self.slots.column[self.problem.n_kept :].copy()
        copy_slots(self.problem.place(self.k, fit.columns[self.kept :], fit.x, fit.constant), self.slots)
        entered = np.setdiff1d(self.slots.column[self.problem.n_kept :], old).size
        passes, self.told = self.refitter.passes - self.told, self.refitter.passes
        return Record(fit.objective, passes * self.problem.n, entered, 0.0, math.nan, abs(fit.objective - before))


def exact_worth(refitter: Refitter, fit: Fit, g: Array, own: Array, usable: NDArray[np.bool_]) -> Array:
    """What the best exchange for each column is worth, all columns against all chosen ones."""
    S, kept = fit.columns, refitter.problem.kept.size
    if refitter.quadratic:
        B = refitter.products(S)
    else:
        at, _ = refitter.heavy(fit.curvature)
        if at is not None and 2 * at.size < fit.curvature.size:  # else copying these rows costs more than it saves
            B = refitter.cross(refitter.block(S, at), fit.curvature[at], at)
        else:
            B = refitter.cross(refitter.block(S), fit.curvature)
    G = B[:, S].copy()
    np.fill_diagonal(G, own[S] + 1e-12 * refitter.spread[S])
    if not np.isfinite(G).all():  # the curvature overflows: what each column is worth by itself has to do
        return np.where(usable, g * g / np.where(usable, own, 1.0), -1.0)
    inverse = np.linalg.pinv(G, hermitian=True)
    v = fit.x - inverse @ g[S]
    cross = inverse @ B
    u = -g - (v - fit.x) @ B
    rest = own - np.einsum("ij,ij->j", cross, B)
    usable = usable & (rest > FLAT * own)
    rest = np.where(usable, rest, 1.0)
    best = np.full(g.size, -np.inf)
    spread = inverse.diagonal()
    for s in range(kept, S.size):
        e = 1.0 / max(spread[s], 1e-14 * spread.max())
        gain = u + cross[s] * (v[s] * e)
        gain *= gain
        gain /= rest + cross[s] ** 2 * e
        np.maximum(best, gain - v[s] * v[s] * e, out=best)
    return np.where(usable, best, -1.0)
