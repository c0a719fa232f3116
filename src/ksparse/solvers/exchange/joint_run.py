"""The run of `JointExchange`: growth, exchanges of groups in the quadratic model, refits, scans of all groups."""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...engine.loop import Clock
from ...engine.resume import check_columns
from ...result import Record, Status
from ..newton import DAMPING, Array
from .groups import best_partners, enter_all, entry_worths, exchange, exchange_worths, resize
from .outputs import JointFit, Outputs, Start
from .search import SearchRun, SearchState, coefficients

GROWTH = (0.25, 0.5, 1.0)  # of k: the sizes that a first support goes through
SINGLES = 8  # exchanges tried one by one before giving up
BATCH = 1 << 22  # numbers of a dense block, where all columns are met part by part


class ColumnGroups(NamedTuple):
    """The columns that compete, group by group."""

    order: NDArray[np.int64]  # columns
    starts: NDArray[np.int64]  # group I holds order[starts[I]:starts[I + 1]]
    of: NDArray[np.int64]  # the group of a column; −1 for one that is always kept
    place: NDArray[np.int64]  # of a column in `order`

    @classmethod
    def create(cls, label: NDArray[np.int64], kept: NDArray[np.int64]) -> ColumnGroups:
        """From one number per column; the kept columns are in no group."""
        free = np.setdiff1d(np.arange(label.size), kept)
        _, inverse, counts = np.unique(label[free], return_inverse=True, return_counts=True)
        order = free[np.argsort(inverse, kind="stable")]
        of, place = np.full(label.size, -1), np.full(label.size, -1)
        of[free] = inverse
        place[order] = np.arange(order.size)
        return cls(order, np.concatenate([[0], np.cumsum(counts)]), of, place)

    @property
    def number(self) -> int:
        return self.starts.size - 1

    @property
    def sizes(self) -> NDArray[np.int64]:
        return np.diff(self.starts)

    def columns(self, which: NDArray[np.int64]) -> NDArray[np.int64]:
        """The columns of some groups, one group after the other."""
        parts = [self.order[self.starts[i] : self.starts[i + 1]] for i in which]
        return np.concatenate([np.empty(0, np.int64), *parts])


class GroupModel(NamedTuple):
    """The tableau of a working set of groups; the kept columns come first, each as a fixed group of its own."""

    columns: NDArray[np.int64]
    P: Array
    u: Array
    row: Array
    inside: NDArray[np.bool_]  # per column
    chosen: NDArray[np.bool_]  # per group
    fixed: NDArray[np.bool_]
    own: Array  # the curvature of each column by itself
    starts: NDArray[np.int64]
    G: Array
    b: Array
    lead: int = 0  # columns of the tableau before the first of `columns`: the intercepts
    fold: int = 1  # columns of the tableau per column of A: 1, or the number of outputs
    covers: bool = True  # the ranking predicts no decrease for the groups left out

    @property
    def tableau(self) -> tuple[Any, ...]:
        return self[1:9]

    def settled(self, chosen: NDArray[np.bool_]) -> tuple[NDArray[np.bool_], Array]:
        """The columns that some groups bring in, and the model's minimiser on them."""
        sizes = np.diff(self.starts)
        at = np.flatnonzero(np.repeat(chosen, sizes))
        starts = np.concatenate([[0], np.cumsum(sizes[chosen])])
        groups = np.arange(starts.size - 1)
        P, u, inside = self.G[np.ix_(at, at)].copy(), self.b[at].copy(), np.zeros(at.size, dtype=bool)
        enter_all(P, u, np.empty(at.size), inside, np.zeros(groups.size, dtype=bool), self.own[at], starts, groups)
        mask, v = np.zeros(self.b.shape[0], dtype=bool), np.zeros(self.b.shape)
        mask[at[inside]], v[at[inside]] = True, u[inside]
        return self.unfolded(mask, v)

    def unfolded(self, mask: NDArray[np.bool_], v: Array) -> tuple[NDArray[np.bool_], Array]:
        """The columns of A that are in, and coefficients with one column per output."""
        v = np.where(mask[:, np.newaxis], v, 0.0)[self.lead :]
        inside = mask[self.lead :].reshape(-1, self.fold)
        return np.asarray(inside.any(axis=1)), v.reshape(self.columns.size, -1)


class JointRun(SearchRun):
    """One run: its support now, and the steps that change it."""

    def __init__(
        self,
        solver: Any,
        outputs: Outputs,
        groups: ColumnGroups,
        k: int,
        start: tuple[Array, Array] | None,
        clock: Clock,
    ) -> None:
        self.start, self.clock, self.perturbations = start, clock, solver.breaths
        self.widest = math.inf if outputs.quadratic else max(1, k // 2)
        self.solver, self.outputs, self.problem, self.groups, self.k = solver, outputs, outputs.problem, groups, k
        self.kept = self.problem.kept.size
        share = 4.0 if outputs.quadratic else 2.5  # a model that is exact is worth more columns
        size = max(round(share * k), k + 50) if solver.working_set is None else solver.working_set
        self.size = max(size, k)
        self.told = 0  # passes that the records have counted
        self.best: JointFit | None = None
        self._blocks_before: Array | None = None

    # --- the course of a run -------------------------------------------------------------------------------------
    def begin(self) -> SearchState:
        fit, start = self.empty, self.start
        begun = start is not None and bool(start[0].any())
        if start is not None and begun:
            columns = self._with_kept(np.flatnonzero(start[0].any(axis=1)))
            nothing = np.zeros((columns.size, self.outputs.n_outputs))
            nothing[: self.kept] = self.empty.x
            fit = self.outputs.refit(columns, [(start[0][columns], start[1]), (nothing, self.empty.constant)])
        shares: tuple[float, ...] = (1.0,) if begun or self.outputs.quadratic else GROWTH
        if self._count(fit) == self.k:
            shares = ()  # a start that is complete
        return SearchState(fit, [max(1, round(share * self.k)) for share in shares])

    def finish(self, search: SearchState) -> Record:
        start_here = [(search.best.x, search.best.constant)]
        best = self.outputs.refit(search.best.columns, start_here, 50, 1e-22, polish=True)
        where = "" if self.outputs.quadratic else " in the quadratic model"
        which = (
            f"of two groups lowers the objective{where}" if search.optimal else "that was tried lowers the objective"
        )
        status = Status("converged", f"no exchange {which}")
        return self.record(best, best.objective)._replace(status=status, swap_optimal=search.optimal)

    def rebuilt(self, columns: NDArray[np.int64], x: Array, constant: Array, objective: float) -> JointFit:
        check_columns(self.problem, columns, x)
        fit = self.outputs.refit(columns, [(x, constant)], 0)
        fit.objective = objective
        return fit

    def memory(self) -> dict[str, Any]:
        refitter = self.outputs.refitter
        best = coefficients(self.best)  # the fit of the last record
        return {"best": best, "damping": refitter.damping, "passes": refitter.passes - self.told}

    def remember(self, memory: dict[str, Any]) -> None:
        refitter = self.outputs.refitter
        columns, x, constant, objective = memory["best"]
        self.best = JointFit(columns, x, constant, objective, np.empty(0), np.empty(0))
        refitter.damping = memory["damping"]
        refitter.passes += memory["passes"]

    def advance(self, search: SearchState) -> None:
        """Exchange groups, as many as lower F."""
        fit, quadratic = search.fit, self.outputs.quadratic
        model = self.model(fit, self.size, search.exact)
        tries = self._several(fit, model, search.cap)
        if search.exact and not quadratic:
            tries = [*tries[-1:], *self._singles(model, self.solver.gain * abs(fit.objective))]
        better, count = self._first_better(fit, model, tries)
        if better is None:
            search.failed(not tries and model.covers)
        else:
            search.took(better, search.cap if quadratic else min(self.widest, 2 * count))

    def _several(self, fit: JointFit, model: GroupModel, cap: float) -> list[NDArray[np.int64]]:
        """All exchanges that the model makes, one after the other; the first third of them, and so on to one."""
        work = [part.copy() for part in model.tableau]
        made = np.zeros((int(min(cap, 4 * self.size)), 2), np.int64)
        count = exchange(*work, self.solver.gain * abs(fit.objective), len(made), made)
        tries = []
        while count > 0:
            tries.append(made[:count])
            count = count // 3 if count >= 6 else count // 2
        return tries

    def _singles(self, model: GroupModel, least: float) -> list[NDArray[np.int64]]:
        """The best exchanges by themselves, after the very best."""
        leave, gain = np.empty(model.chosen.size, np.int64), np.empty(model.chosen.size)
        best_partners(model.P, model.u, *model[4:9], leave, gain)
        best = np.argsort(-gain, kind="stable")[1:SINGLES]
        return [np.array([[leave[i], i]]) for i in best if gain[i] > least]

    def _first_better(
        self, fit: JointFit, model: GroupModel, tries: list[NDArray[np.int64]]
    ) -> tuple[JointFit | None, int]:
        """The first of some sets of exchanges that lowers F, and how many it holds."""
        for made in tries:
            chosen = model.chosen.copy()
            for leave, enter in made:
                chosen[leave], chosen[enter] = False, True
            inside, v = model.settled(chosen)
            columns = self._with_kept(model.columns[inside])
            trial = self.outputs.refit(columns, self._starts(fit, model, v, columns), 6, 1e-6, fit.objective)
            if fit.objective - trial.objective > 1e-7 * abs(fit.objective):
                return trial, len(made)
        return None, 0

    def resized(self, fit: JointFit, size: int) -> JointFit:
        size = min(size, self.groups.number)
        model = self.model(fit, max(self.size, 2 * size), False)
        resize(*model.tableau, size)
        exchange(*model.tableau, self.solver.gain * abs(fit.objective), size, np.zeros((size, 2), np.int64))
        inside, v = model.unfolded(model.inside, model.u)
        columns = self._with_kept(model.columns[inside])
        return self.outputs.refit(columns, self._starts(fit, model, v, columns), 12, 1e-2)

    def _starts(self, fit: JointFit, model: GroupModel, v: Array, columns: NDArray[np.int64]) -> list[Start]:
        """Starting points of a refit: the model's minimiser v, the coefficients of the last fit, shrunken copies of
        them (without the columns that balanced them they may be far too large), and zero."""
        x, full = np.zeros((self.problem.d, v.shape[1])), np.zeros((self.problem.d, v.shape[1]))
        x[fit.columns], full[model.columns] = fit.x, v
        starts = [(full[columns], fit.constant), (x[columns], fit.constant)]
        if not self.outputs.quadratic:
            starts += [(share * x[columns], share * fit.constant) for share in (0.3, 0.1)]
            nothing = np.zeros((columns.size, v.shape[1]))
            nothing[: self.kept] = self.empty.x
            starts.append((nothing, self.empty.constant))
        return starts

    @functools.cached_property
    def empty(self) -> JointFit:
        """The intercept and the kept columns alone."""
        return self.outputs.empty_fit()

    # --- the model -----------------------------------------------------------------------------------------------
    @np.errstate(over="ignore", invalid="ignore")
    def model(self, fit: JointFit, size: int, exact: bool) -> GroupModel:
        """The quadratic model around a fit, on its groups and the others with the largest predicted decrease."""
        problem, groups = self.problem, self.groups
        g, own, centre = self.outputs.gradient(fit)  # columns without curvature stay out
        inside = np.unique(groups.of[fit.columns[self.kept :]])
        blocks, at = self._blocks(fit, own, centre)
        worth = np.empty(groups.number)
        if exact and inside.size:
            self._exact_worth(fit, g, own, blocks, at, worth)
        else:
            entry_worths(blocks, at, -g[groups.order], own[groups.order], groups.starts, worth)
        worth[inside] = np.inf
        ranked = np.argsort(-worth, kind="stable")[: max(size, inside.size)]
        # of wide groups only a few, so that the model stays small
        wide = np.cumsum(groups.sizes[ranked])
        fewest = max(inside.size, self.k, 1)
        room = np.searchsorted(wide, 4 * wide[min(fewest, wide.size) - 1] + 250, side="right")
        whole = np.searchsorted(wide, self.outputs.width / self.outputs.n_outputs - self.kept - 1, side="right")
        if whole >= min(fewest + fewest // 2 + 2, ranked.size):
            picked = ranked[: min(whole, room)]
            left = np.delete(worth, picked).max(initial=0.0)
            model = self._whole_model(fit, g, own, centre, np.sort(picked), inside)
            return model._replace(covers=bool(left <= self.solver.gain * abs(fit.objective)))
        picked = np.sort(ranked[: max(int(room), inside.size)])
        columns = np.concatenate([problem.kept, groups.columns(picked)])
        G = self._gram(fit, columns, own[columns])
        x = np.zeros(g.shape)
        x[fit.columns] = fit.x
        return self._begun(columns, G, G @ x[columns] - g[columns], own[columns], picked, inside)

    def _whole_model(
        self, fit: JointFit, g: Array, own: Array, centre: Array, picked: NDArray[np.int64], inside: NDArray[np.int64]
    ) -> GroupModel:
        """The model with one row and column per coefficient: groups are wider, and there is one output."""
        C, first = self.outputs.n_outputs, int(self.problem.intercept)
        columns = np.concatenate([self.problem.kept, self.groups.columns(picked)])
        H, b = self.outputs.whole_model(fit, g, columns, centre)
        least = np.concatenate([np.zeros(first), DAMPING * self.outputs.refitter.most(columns)])
        H[np.diag_indices(len(b))] += np.repeat(least, C)
        flat = np.concatenate([np.zeros(first, dtype=bool), ~np.isfinite(own[columns])])
        own_here = np.where(np.repeat(flat, C), np.inf, H.diagonal())
        return self._begun(columns, H, b[:, np.newaxis], own_here, picked, inside, first * C, C)

    def _begun(
        self,
        columns: NDArray[np.int64],
        G: Array,
        b: Array,
        own: Array,
        picked: NDArray[np.int64],
        inside: NDArray[np.int64],
        lead: int = 0,
        fold: int = 1,
    ) -> GroupModel:
        """The tableau with the groups of a fit in it."""
        fixed = self.kept + lead
        sizes = np.concatenate([np.ones(lead, np.int64), fold * np.ones(self.kept, np.int64)])
        sizes = np.concatenate([sizes, fold * self.groups.sizes[picked]])
        M = b.shape[0]
        model = GroupModel(
            columns, G.copy(), b.copy(), np.empty(M), np.zeros(M, dtype=bool), np.zeros(sizes.size, dtype=bool),
            np.arange(sizes.size) < fixed, own, np.concatenate([[0], np.cumsum(sizes)]), G, b, lead, fold,
        )  # fmt: skip
        which = np.concatenate([np.arange(fixed), fixed + np.flatnonzero(np.isin(picked, inside))])
        enter_all(model.P, model.u, model.row, model.inside, model.chosen, model.own, model.starts, which)
        return model

    def _gram(self, fit: JointFit, columns: NDArray[np.int64], own: Array) -> Array:
        refitter, problem = self.outputs.refitter, self.problem
        G = refitter.gram(columns, fit.curvature)
        # rows were left out: at least the curvature of the column by itself
        np.fill_diagonal(G, np.maximum(G.diagonal() + problem.l2, np.where(np.isfinite(own), own, 0.0)))
        return G

    def _blocks(self, fit: JointFit, own: Array, centre: Array) -> tuple[Array, NDArray[np.int64]]:
        """Every group's own block of the Hessian, flat, and where each begins; a few dense columns at a time."""
        groups, sizes = self.groups, self.groups.sizes
        at = np.concatenate([[0], np.cumsum(sizes**2)])
        if self.outputs.quadratic and self._blocks_before is not None:
            return self._blocks_before, at
        flat = np.empty(at[-1])
        flat[at[:-1][sizes == 1]] = own[groups.order[groups.starts[:-1][sizes == 1]]]
        several, root = np.flatnonzero(sizes > 1), np.sqrt(fit.curvature / self.problem.n)
        parts = np.cumsum(sizes[several]) * self.problem.n // BATCH
        for part in np.unique(parts):
            self.outputs.check()
            batch = several[parts == part]
            columns = groups.columns(batch)
            block = (self.outputs.refitter.block(columns).T - centre[columns]) * root[:, np.newaxis]
            low = 0
            for i in batch:
                high = low + sizes[i]
                H = block[:, low:high].T @ block[:, low:high]
                np.fill_diagonal(H, own[columns[low:high]])
                flat[at[i] : at[i + 1]] = H.ravel()
                low = high
        self._blocks_before = flat
        return flat, at

    def _exact_worth(
        self, fit: JointFit, g: Array, own: Array, blocks: Array, at: NDArray[np.int64], worth: Array
    ) -> None:
        """What the best exchange for each group is worth, all groups against all chosen ones."""
        refitter, problem, groups = self.outputs.refitter, self.problem, self.groups
        S = fit.columns
        B = refitter.cross(refitter.block(S), fit.curvature).T
        G = B[S].copy()
        G[np.diag_indices(S.size)] += problem.l2 + 1e-12 * refitter.most(S)
        if not np.isfinite(G).all():  # the curvature overflows: what each group is worth by itself has to do
            return
        inverse = np.linalg.pinv(G, hermitian=True)
        v = fit.x - inverse @ g[S]
        u = -g - B @ (v - fit.x)
        edges = np.flatnonzero(np.diff(groups.of[S[self.kept :]], prepend=-1, append=-1))
        starts = np.concatenate([np.arange(self.kept), self.kept + edges])
        B = B[groups.order]
        exchange_worths(
            blocks, at, B, B @ inverse, u[groups.order], own[groups.order], groups.starts, inverse, v, starts,
            self.kept, worth,
        )  # fmt: skip

    # --- helpers --------------------------------------------------------------------------------------------
    def _with_kept(self, columns: NDArray[Any]) -> NDArray[np.int64]:
        """The kept columns, then the others group by group."""
        free = columns[self.groups.of[columns] >= 0]
        return np.concatenate([self.problem.kept, free[np.argsort(self.groups.place[free])]]).astype(np.int64)

    def _count(self, fit: JointFit) -> int:
        return np.unique(self.groups.of[fit.columns[self.kept :]]).size

    def record(self, fit: JointFit, before: float) -> Record:
        old = np.empty(0) if self.best is None else self.best.columns
        entered = np.setdiff1d(fit.columns, old).size
        self.best = fit
        passes, self.told = self.outputs.refitter.passes - self.told, self.outputs.refitter.passes
        return Record(fit.objective, passes * self.problem.n, entered, 0.0, math.nan, abs(fit.objective - before))
