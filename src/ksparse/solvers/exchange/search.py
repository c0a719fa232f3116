"""The course that `Exchange` and `JointExchange` share: growth, a local search, and perturbations, each searched again.

All that the next step depends on is in a `SearchState`, so that a checkpoint can hold it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ...engine.loop import Clock, State
from ...result import Record


@dataclass
class SearchState:
    """Where a search stands."""

    fit: Any
    sizes: list[int]  # that the support has still to go through before a local search begins
    best: Any = None  # the best fit of k columns so far
    number: int = 0  # of perturbations done
    begun: bool = False  # has the local search begun?
    cap: float = math.inf  # the largest number of exchanges at once
    exact: bool = False  # is the next model to be exact?
    optimal: bool = False  # no exchange had a predicted decrease at the best fit

    def took(self, better: Any, cap: float) -> None:
        """Accept the better fit."""
        self.fit, self.cap, self.exact = better, cap, False

    def failed(self, optimal: bool) -> None:
        """No better fit was found: the next model will be exact; if this one was, the local search has ended."""
        if not self.exact:
            self.exact, self.cap = True, max(1, self.cap // 2) if math.isfinite(self.cap) else self.cap
            return
        if self.best is self.fit:
            self.optimal = optimal
        self.begun, self.number = False, self.number + 1


class SearchRun(ABC):
    """One run: the course of the search, and what its steps consist of."""

    k: int
    perturbations: int
    widest: float  # the number of exchanges at once with which a local search begins
    clock: Clock
    empty: Any  # the fit of the intercept and the kept columns alone

    @abstractmethod
    def begin(self) -> SearchState:
        """The fit to start from, and the sizes to go through."""

    @abstractmethod
    def resized(self, fit: Any, size: int) -> Any:
        """Grow or shrink the support in the model, exchange, and refit."""

    @abstractmethod
    def advance(self, search: SearchState) -> None:
        """A model, and exchanges in it, tried on F."""

    @abstractmethod
    def record(self, fit: Any, before: float) -> Record:
        """Make a fit the iterate; its record counts from the record before."""

    @abstractmethod
    def finish(self, search: SearchState) -> Record:
        """The best fit, refitted to full precision."""

    @abstractmethod
    def rebuilt(self, columns: Any, x: Any, constant: Any, objective: float) -> Any:
        """A fit from its coefficients; the derivatives of the rows there are computed anew."""

    @abstractmethod
    def memory(self) -> State:
        """What a step depends on beside the search, for a checkpoint."""

    @abstractmethod
    def remember(self, memory: State) -> None:
        """Restore what `memory` gave."""

    def records(self, state: State | None) -> Iterator[Record]:
        """A record for the start and for every better fit; with a state, those that come after it."""
        if state is None:
            search = self.begin()
            yield self.record(search.fit, search.fit.objective)._replace(null=self.empty.objective)
        else:
            search = self._resumed(state)
        while search.number <= self.perturbations:
            while search.sizes:
                self._keep(search)
                search.fit = self.resized(search.fit, search.sizes[0])
                del search.sizes[0]
            if not search.begun:
                search.cap, search.exact, search.begun = self.widest, False, True
                if search.best is None or search.fit.objective < search.best.objective:
                    yield self._better(search)
            while search.begun:
                self._keep(search)
                before = search.fit
                self.advance(search)
                if search.fit is not before and search.fit.objective < search.best.objective:
                    yield self._better(search)
            search.fit = search.best
            search.sizes = [self.k + max(1, round(0.5**search.number * self.k)), self.k]  # of a perturbation
        yield self.finish(search)

    def _better(self, search: SearchState) -> Record:
        """The fit is the best so far."""
        before = search.fit if search.best is None else search.best
        search.best = search.fit
        return self.record(search.fit, before.objective)

    # --- checkpoints ---------------------------------------------------------------------------------------------
    def _keep(self, search: SearchState) -> None:
        same = search.best is search.fit
        self.clock.keep(
            search={**vars(search), "fit": coefficients(search.fit), "sizes": search.sizes.copy(), "best": None},
            best=None if search.best is None or same else coefficients(search.best),
            same=same,
            memory=self.memory(),
        )

    def _resumed(self, state: State) -> SearchState:
        search = SearchState(**state["search"])
        search.fit = self.rebuilt(*search.fit)
        if state["same"]:
            search.best = search.fit
        elif state["best"] is not None:
            search.best = self.rebuilt(*state["best"])
        self.remember(state["memory"])
        return search


def coefficients(fit: Any) -> tuple[Any, Any, Any, float]:
    """All of a fit that cannot be computed from the data."""
    return fit.columns, fit.x, fit.constant, fit.objective
