"""Losses that are not squares, for every number of columns at once: a walk over the sizes, guided by quadratic models.

At the best fit of a size F is modelled on a working set of columns.  In the model a column enters or leaves and others
are exchanged, exactly; a Newton refit tells what that is worth.  One model per size serves the steps up and down.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ...problem import Problem
from ..newton import Fit, Hessian, Refitter, Starts
from .exchange import exact_worth
from .pivots import FLAT, Array, Columns, Tableau, load, new_tableau, perturb_model, step_in_model
from .scout import most_promising
from .squared import Stop

GAIN = 1e-6  # an exchange is tried if the model predicts a decrease by this share of F, and kept if F falls by it
AT_ONCE = 8  # exchanges in a model before F is computed
SINGLES = 4  # best exchanges of one column, tried one by one
STEPS, LOOSE = 8, 1e-3  # Newton steps of a trial, and the share of F that may be left to gain at its end
TRIALS, MOST_TRIALS = 6, 50  # models at one size, each after a fit that was better
TURNS = 6  # changes of direction of a walk
WORKING = 80  # columns beside the support in a model
BEYOND = 0.15  # share of the largest size by which a walk goes beyond it
PERTURBED = {"fast": (0, 0), "default": (10, 2), "best": (100, 10)}  # in a model, and how many of them are tried on F
DETOURS = {"fast": 0, "default": 0, "best": 3}  # to a larger size and back, from every size
FARTHEST = 1.0  # share of columns that the first detour adds; each later one adds half as many
RESTARTS = {"fast": 0, "default": 0, "best": 40}  # searches from random columns, at every size


class LocalModel(NamedTuple):
    """The quadratic model at a fit: on these columns, with those of the fit in."""

    columns: Columns
    tableau: Tableau
    G: Array
    centre: Array  # of the columns, weighted by the curvature of the rows
    weight: float  # the mean curvature

    def on(self, columns: Columns) -> Hessian:
        """The Hessian on some of its columns."""
        at = np.searchsorted(self.columns, columns)
        return self.G[np.ix_(at, at)], self.centre[at], self.weight

    def copy(self) -> Tableau:
        """A tableau to try things on."""
        names = ("held", "columns", "T", "Q", "v", "D", "u")
        return self.tableau._replace(**{name: getattr(self.tableau, name).copy() for name in names})


class Candidate(NamedTuple):
    """Columns to try, and the coefficients that the model expects."""

    columns: Columns
    x: Array
    decrease: float  # that the model predicts


class SmoothPath:
    """The best fits of all sizes that were found."""

    def __init__(self, problem: Problem, check: Callable[[], None], largest: int, effort: str = "default") -> None:
        self.problem, self.check, self.kept, self.effort = problem, check, problem.kept.size, effort
        self.wanted_size = largest
        self.largest = min(largest + max(2, round(BEYOND * largest)), problem.d - self.kept)
        self.slots = self.kept + 2 * self.largest + 2
        self.refitter = Refitter(problem, check, min(problem.d, 2 * WORKING + 2 * self.largest))
        self.best: dict[int, Fit] = {0: self.refitter.empty_fit()}
        self.models: dict[int, LocalModel] = {}
        self.up, self.down = {0}, set[int]()
        self.failed: set[bytes] = set()  # supports that were tried and were not better
        self.rng = np.random.default_rng(0)

    # --- the walk ------------------------------------------------------------------------------------------------
    def walk(self) -> None:
        """Step up and down from the best fit of every size, until nothing is new."""
        self._up_and_down()
        for detour in range(DETOURS[self.effort]):
            for k in range(2, self.wanted_size + 1):
                if k in self.best:
                    self._detour(k, k + max(1, round(FARTHEST * 0.5**detour * k)))
            self._up_and_down()

    def _up_and_down(self) -> None:
        for turn in range(TURNS):
            upwards = turn % 2 == 0
            fresh = self.up if upwards else self.down
            if not fresh:
                break
            for k in range(self.largest) if upwards else range(self.largest, 1, -1):
                if k in fresh:
                    fresh.discard(k)
                    self._step(k, k + 1 if upwards else k - 1)

    def _step(self, k: int, to: int) -> None:
        """From the best fit of k columns to a fit of one more or fewer, exchanged until nothing is gained."""
        self.check()
        fit, model, known = self.best[k], self._model(k), self.best.get(to)
        for most in (at_once(to)[0], 0):
            trial = self._in_model(model, to, most, GAIN * abs(fit.objective))
            if trial is None:
                self.largest = min(self.largest, k) if to > k else self.largest
                return
            if known is not None and np.array_equal(np.sort(trial.columns), np.sort(known.columns)):
                return
            found = self._refit(fit, model, trial)
            if known is None or is_better(found, known):
                self._take(to, found)
                self.settle(to)
                return
            if found.objective <= fit.objective - trial.decrease:  # the exchanges kept what the model predicted
                return

    def _detour(self, k: int, size: int) -> None:
        """From the best fit of k columns to a larger one and back, with a refit at both."""
        self.check()
        fit = self.best[k]
        for to in (min(size, self.problem.d - self.kept, self.slots - self.kept), k):
            model = self._new_model(fit)
            trial = self._in_model(model, to, at_once(k)[0], GAIN * abs(fit.objective))
            if trial is None:
                return
            fit = self._refit(fit, model, trial)
        self._search_from(k, fit)

    def _search_from(self, k: int, fit: Fit) -> None:
        """Exchange columns from another fit; the better one stays."""
        best, self.failed = self.best[k], set()
        self.best[k] = fit
        self.models.pop(k, None)
        self.settle(k)
        found, self.best[k], self.failed = self.best[k], best, set()
        self.models.pop(k, None)
        if is_better(found, best):
            self._take(k, found)

    def _take(self, k: int, fit: Fit) -> None:
        """This is the best fit of its size so far."""
        self.best[k] = fit
        self.models.pop(k, None)
        if k < self.largest:
            self.up.add(k)
        if k > 1:
            self.down.add(k)

    def settle(self, k: int, exact: bool = False) -> bool:
        """Exchange columns at the best fit of a size while that lowers F; whether no exchange is left to try.

        The model of an `exact` search has the columns that are worth most in an exchange with a chosen one.
        """
        for _ in range(MOST_TRIALS if exact else TRIALS):
            self.check()
            fit, better = self.best[k], None
            model, least = self._new_model(fit, True) if exact else self._model(k), GAIN * abs(fit.objective)
            singles, predicted = self._singles(model, k, least)
            for trial in self._trials(model, k, least, singles, exact):
                key = np.sort(trial.columns).tobytes()
                if key not in self.failed:
                    better = self._refit(fit, model, trial, fit.objective)
                    if is_better(better, fit):
                        break
                    self.failed.add(key)
                    better = None
            if better is None:
                return exact and predicted <= len(singles)
            self._take(k, better)
        return False

    # --- what to try ---------------------------------------------------------------------------------------------
    def _trials(
        self, model: LocalModel, k: int, least: float, singles: list[Candidate], thorough: bool
    ) -> Iterator[Candidate]:
        """Supports that may be better: several exchanges at once, single ones, and perturbations."""
        for most in at_once(k):
            trial = self._in_model(model, k, most, least)
            if trial is None or trial.decrease <= least:
                break
            yield trial
        yield from singles if thorough else singles[:1]
        count, tried = PERTURBED[self.effort] if thorough and k > 1 else (0, 0)
        found = [self._perturbed(model, k, least) for _ in range(count)]
        found = sorted(found, key=lambda trial: -trial.decrease)[:tried]
        yield from (trial for trial in found if trial.decrease > least)

    def _in_model(self, model: LocalModel, size: int, most: int, least: float) -> Candidate | None:
        """The model's columns after a change of size and up to `most` exchanges; None if no column may enter."""
        t, count = model.copy(), self.kept + size
        if step_in_model(t, model.G, np.arange(t.c.size), size, 2.0 * least, most) < 0:
            return None
        return self._trial(model, t, count)

    def _singles(self, model: LocalModel, k: int, least: float) -> tuple[list[Candidate], int]:
        """The best exchanges of one column by themselves, and how many there are with a predicted decrease."""
        t, count = model.tableau, self.kept + k
        outside = np.flatnonzero(FLAT * t.own < t.D)
        inside = np.arange(self.kept, count)
        e = 1.0 / t.Q[inside, inside]
        cross = t.T[inside][:, outside]
        new = t.u[outside] + cross * (t.v[inside] * e)[:, np.newaxis]
        gain = 0.5 * (new**2 / (t.D[outside] + cross**2 * e[:, np.newaxis]) - (t.v[inside] ** 2 * e)[:, np.newaxis])
        pairs = np.argwhere(gain > least)
        found = []
        for s, i in pairs[np.argsort(-gain[tuple(pairs.T)], kind="stable")[:SINGLES]]:
            columns = np.append(np.delete(t.columns[:count], inside[s]), outside[i])
            G = model.G[np.ix_(columns, columns)].copy()
            G.flat[:: count + 1] += t.ridge[columns]
            found.append(Candidate(model.columns[columns], np.linalg.solve(G, t.c[columns]), float(gain[s, i])))
        return found, len(pairs)

    def _perturbed(self, model: LocalModel, k: int, least: float) -> Candidate:
        """Some columns of the fit taken out, others in their place, and exchanges."""
        t, change = model.copy(), max(1, min(k - 1, int(self.rng.uniform(0.2, 1.0) * k)))
        perturb_model(t, model.G, np.arange(t.c.size), change, self.rng.random(t.c.size), 2.0 * least)
        return self._trial(model, t, int(t.held[0]))

    @staticmethod
    def _trial(model: LocalModel, t: Tableau, count: int) -> Candidate:
        now = model.tableau
        at, v, held = t.columns[:count], t.v[:count].copy(), int(now.held[0])
        decrease = 0.5 * float(t.c[at] @ v - now.c[now.columns[:held]] @ now.v[:held])
        return Candidate(model.columns[at], v, decrease)

    # --- models and refits ---------------------------------------------------------------------------------------
    def _model(self, k: int) -> LocalModel:
        """The quadratic model at the best fit of a size."""
        if k not in self.models:
            self.models[k] = self._new_model(self.best[k])
        return self.models[k]

    @np.errstate(over="ignore", invalid="ignore")
    def _new_model(self, fit: Fit, exact: bool = False) -> LocalModel:
        """The model on the columns of a fit and the others with the largest predicted decrease.

        An exact one takes those that are worth most in an exchange, all columns against all chosen ones.
        """
        refitter, problem, S = self.refitter, self.problem, fit.columns
        g, own = refitter.gradient(fit)
        usable = (refitter.spread > 0.0) & (own > 0.0)
        size = min(problem.d, S.size + WORKING)
        if size == problem.d:
            columns = np.arange(problem.d)
        else:
            worth = (
                exact_worth(refitter, fit, g, own, usable)
                if exact and S.size > self.kept
                else np.where(usable, g * g / np.where(usable, own, 1.0), -1.0)
            )
            worth[S] = np.inf
            columns = np.sort(np.argpartition(-worth, size - 1)[:size])
        G, centre, weight = refitter.hessian(columns, fit.curvature, some=not exact)
        np.fill_diagonal(G, np.maximum(G.diagonal(), own[columns] - problem.l2))  # rows were left out
        at = np.searchsorted(columns, S)
        c = G[:, at] @ fit.x - g[columns]
        c[at] += problem.l2 * fit.x
        t = new_tableau(c, G.diagonal(), np.full(c.size, problem.l2), 0.0, self.slots, self.kept)
        load(t, at, G, np.arange(c.size))
        t.own[~usable[columns]] = math.inf  # columns without curvature stay out
        return LocalModel(columns, t, G, centre, weight)

    def _refit(self, fit: Fit, model: LocalModel, trial: Candidate, hopeless: float = math.inf) -> Fit:
        """Newton steps on some columns from what the model expects, or from the coefficients of the last fit."""
        x = np.zeros(self.problem.d)
        x[fit.columns] = fit.x
        starts = Starts([(trial.x, fit.constant)], [(x[trial.columns], fit.constant)], fit.objective)
        return self.refitter.newton(trial.columns, starts, STEPS, LOOSE, hopeless, nearby=model.on(trial.columns))

    # --- the end -------------------------------------------------------------------------------------------------
    def _restart(self, k: int) -> None:
        """Search once more from random columns; the better fit stays."""
        g, own = self.refitter.gradient(self.best[0])
        usable = (self.refitter.spread > 0.0) & (own > 0.0)
        usable[self.problem.kept] = False
        likely = most_promising(np.where(usable, g, 0.0), np.where(usable, own, 0.0), own, WORKING + k)
        likely = likely[usable[likely]]
        if likely.size < k:
            return
        drawn = self.rng.choice(likely, k, replace=False)
        columns, empty = np.concatenate([self.problem.kept, drawn]), self.best[0]
        start = np.concatenate([empty.x, np.zeros(drawn.size)])
        self._search_from(k, self.refitter.newton(columns, Starts([(start, empty.constant)], []), STEPS, LOOSE))

    def stops(self, sizes: Sequence[int], ridges: Sequence[float]) -> list[Stop]:
        """The fits at some sizes, each exchanged until nothing is gained under its own ridge."""
        walked, found = dict(self.best), []
        for k, l2 in zip(sizes, ridges, strict=True):
            size = max(size for size in walked if size <= k)
            self.problem = self.refitter.problem = dataclasses.replace(self.problem, l2=l2)
            self.models, self.failed = {}, set()
            start = walked[size]
            self.best[size] = self.refitter.newton(start.columns, Starts([(start.x, start.constant)], []), STEPS, LOOSE)
            for _ in range(RESTARTS[self.effort] if size else 0):
                self._restart(size)
            optimal = size == 0 or self.settle(size, exact=True)
            best = self.best[size]
            best = self.refitter.newton(best.columns, Starts([(best.x, best.constant)], []), 50, 1e-22, polish=True)
            found.append(Stop(best.columns, best.x, best.constant, best.objective, optimal))
        return found


def at_once(k: int) -> tuple[int, int]:
    """How many exchanges are made in a model before F is computed: many, and if that fails, few."""
    most = min(AT_ONCE, max(1, k // 2))
    return most, max(1, most // 3)


def is_better(new: Fit, old: Fit) -> bool:
    """Whether F is lower by more than the share that counts."""
    return new.objective < old.objective - GAIN * abs(old.objective)
