"""StoIHT: hard-thresholded stochastic gradient descent with mini-batches, without variance reduction."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..engine.loop import Clock, State
from ..problem import Problem, Slots
from ..result import Record
from .base import Solver, check_fields
from .htsvrg import stage_steps
from .screen import LOOKS, SWAPS, make_screen


@dataclass(frozen=True)
class StoIHT(Solver):
    r"""Stochastic iterative hard thresholding.

    .. math:: x^t = H_k\Bigl(x^{t-1} - \eta\, \frac1B \sum_{i \in B_t} \nabla f_i(x^{t-1})\Bigr)

    The gradient's variance does not vanish: with noisy data a fixed step stalls at a floor, which HT-SVRG
    passes.  That contrast is what it is here for (paper, section 3).

    Parameters
    ----------
    step : float, "auto", "theory" or "spectral", default="auto"
        A number multiplies ∇F.  "theory" is 1/(8L), "spectral" is 2/σ₁(AAᵀ), both the paper's.  "auto" is the
        fixed step 1/(2L).
    epochs : int, default=100
        The largest number of epochs, of n/batch_size steps each.
    batch_size : int, default=1
        Rows per step.
    tol : float, default=1e-6
        Stop when an epoch changes F by less than tol·max(\|F\|, min(1, F at zero)) and the support not at all, and the
        gradient on the support predicts little further decrease; 0 runs all epochs.
    stop_on_divergence : bool, default=True
        Stop once the objective is a hundred times that of the start; False continues while the numbers are finite.

    References
    ----------
    Nguyen, Needell & Woolf, *Linear convergence of stochastic iterative greedy algorithms
    with sparse constraints*, IEEE Transactions on Information Theory 63(11), 2017, Algorithm 1, with uniform
    probabilities.

    Examples
    --------
    >>> import numpy as np
    >>> from ksparse import StoIHT, minimize
    >>> A = np.random.default_rng(0).standard_normal((100, 50))
    >>> minimize(A, A[:, 3] - 2 * A[:, 7], k=2, solver=StoIHT(batch_size=10), random_state=0).support
    array([3, 7])
    """

    step: float | str = "auto"
    epochs: int = 100
    batch_size: int = 1
    tol: float = 1e-6
    stop_on_divergence: bool = True

    remedies: ClassVar[dict[str, str]] = {
        "stalled": "its gradients are too noisy to go further: use HTSVRG, larger batches or a smaller step",
        "stage limit": "allow more epochs, or use HTSVRG",
    }

    def __post_init__(self) -> None:
        check_fields(self, steps=("auto", "theory", "spectral"))

    @property
    def limit(self) -> int:
        return self.epochs

    def iterate(
        self, problem: Problem, slots: Slots, rng: np.random.Generator, clock: Clock, state: State | None = None
    ) -> Iterator[Record]:
        k = slots.x.size - problem.n_kept
        screen = make_screen(problem, slots.x.size, self.batch_size)
        if state is None:
            steps = min(max(1, problem.n // self.batch_size), problem.sample(self.batch_size))
            eta, objective = problem.step(self.step, k, clock.check), problem.objective(slots)
            yield Record(objective, 0, 0, 1.0, eta, math.inf)
        else:
            eta, objective, steps = state["eta"], state["objective"], state["steps"]
            rng.bit_generator.state = state["rng"]
        while True:
            clock.keep(eta=eta, objective=objective, steps=steps, rng=rng.bit_generator.state)
            idx = rng.integers(0, problem.n, size=(steps, self.batch_size))
            # a step of HT-SVRG whose snapshot has derivative and gradient zero
            stage = problem.drawn(idx)
            clock.steps(stage_steps(problem, stage, slots, screen, eta), steps)
            before, objective = objective, problem.objective(slots)
            screened = 1.0 - int(screen.tally[LOOKS]) / steps
            swaps = int(screen.tally[SWAPS])
            yield Record(objective, steps * self.batch_size, swaps, screened, eta, abs(objective - before))
