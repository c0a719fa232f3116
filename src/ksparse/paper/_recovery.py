"""A trial of the paper's first experiments: a K-sparse signal of 256 numbers from n noiseless measurements."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._minimize import minimize
from ..result import Progress
from ..sensing.phase import Experiment, stream
from ..solvers import HTSVRG
from ._descent import descend
from ._verdict import BLOWN, SOLVED, SUCCESS, Gram, forecast

D = 256
STAGES = 10_000  # the paper's S
PASSES = 7  # full gradients a stage: 2m/n + 1 with m = 3n; what IHT and PGD get in iterations
WINDOW = 10  # stages without a change of the support before a forecast
REST = 50  # stages between two of them, at least
LEAP = 300  # stages: where columns still come and go, a short leap can change which, and with it the end
LOOK = 100  # the same in iterations of PGD and IHT
STAGNANT, FAR, STILL = 25, 0.02, 0.005  # PGD and IHT: windows of so many looks, errors above, changes below
NOISY, EXACT = 1.5, 1.001  # margins of a forecast, for the mean of HT-SVRG and for PGD and IHT themselves
HT_SVRG = {"ht-svrg": "last", "ht-svrg-random": "random"}  # the next snapshot


class End(NamedTuple):
    """How a trial ended: after so many stages (for IHT and PGD: iterations), and by which rule."""

    success: bool
    stages: int
    rule: str


def told(algorithm: str, K: int) -> int:
    """The paper's k: 9K, and K for IHT."""
    return K if algorithm == "iht" else min(9 * K, D)


def solve(algorithm: str, signal: str, K: int, n: int, trial: int, seed: int, *, early: bool = True) -> End:
    """Run a trial until its verdict is known; ``early=False`` makes all its stages, whatever is known."""
    experiment = Experiment(algorithm="htp", signal=signal, d=D, matrix="cell", seed=seed)
    A, x, y, _ = experiment.problem(n, K, trial)
    G, top = _gram(n, K, seed)
    gram = Gram(G, A.T @ y, float(np.linalg.norm(y)), x)
    k = told(algorithm, K)
    if algorithm not in HT_SVRG:
        return _batch(gram, k, 1.0 if algorithm == "iht" else 2.0 / top, PASSES * STAGES, early)
    if n == 1:  # a single row: every stochastic gradient is the full one
        return _batch(gram, k, 2.0 / top, (3 if HT_SVRG[algorithm] == "last" else 1) * STAGES, early)
    rng = stream(seed, algorithm, signal, n, K, trial)
    return _stochastic(A, y, k, 2.0 / top, HT_SVRG[algorithm], gram, rng, early)


@functools.lru_cache(maxsize=2)
def _gram(n: int, K: int, seed: int) -> tuple[NDArray[np.float64], float]:
    """A'A and σ₁(AA') of a cell, whose trials share a matrix."""
    A = Experiment(algorithm="htp", d=D, matrix="cell", seed=seed).problem(n, K, 0).A
    return A.T @ A, float(np.linalg.norm(A, 2)) ** 2


# --- HT-SVRG ---------------------------------------------------------------------------------------------------------
def _stochastic(
    A: Any, y: Any, k: int, eta: float, output: str, gram: Gram, rng: np.random.Generator, early: bool
) -> End:
    n, x, done = y.size, None, 0
    watch = _Watch(gram, k, n, eta / n, 3.0 * n if output == "last" else (3 * n - 1) / 2)
    while True:
        solver = HTSVRG(step=eta, m=3 * n, stages=STAGES - done, output=output, tol=0, stop_on_divergence=False)
        result = minimize(A, y, k, solver=solver, x0=x, random_state=rng, callback=watch if early else None)
        if watch.end is not None:
            return watch.end
        if watch.leap is None:
            rule = "diverged" if result.status == "diverged" else "all"
            return End(gram.error(result.x) < SUCCESS, done + result.n_stages, rule)
        x, stage = watch.land()
        for _ in range(stage - (done + result.n_stages) - 1):
            solver.draw(rng, n, 3 * n)  # what the stages between would have drawn: the run goes on with its own rows
        done = stage


class _Watch:
    """A callback that ends a run whose verdict is known, or whose next stages can be leapt over."""

    def __init__(self, gram: Gram, k: int, n: int, rate: float, power: float) -> None:
        self.gram, self.k, self.rate, self.power = gram, k, rate, power
        self.solved = (SOLVED * gram.y_norm) ** 2 / (2 * n)
        self.end: End | None = None
        self.leap: tuple[NDArray[np.float64], int] | None = None  # an iterate, and its stage
        self._start = 0  # the stage of the last landing
        self._next, self._calm, self._rest = WINDOW, WINDOW, REST

    def land(self) -> tuple[NDArray[np.float64], int]:
        """Where to go on after a leap."""
        assert self.leap is not None
        (x, self._start), self.leap = self.leap, None
        self._next = self._calm = self._start + WINDOW
        self._rest = REST
        return x, self._start

    def __call__(self, now: Progress) -> bool:
        stage, error = self._start + now.stage, self.gram.error(now.x)
        if error < SUCCESS:
            self.end = End(True, stage, "error")
        elif not error < BLOWN:
            self.end = End(False, stage, "diverged")
        elif now.objective < self.solved:
            self.end = End(False, stage, "solved")
        if now.support_changes:
            self._calm, self._rest = stage + WINDOW, REST
        if self.end is None and max(self._next, self._calm) <= stage < STAGES:
            self._look(now.x, stage)
        return self.end is not None or self.leap is not None

    def _look(self, x: NDArray[np.float64], stage: int) -> None:
        outlook = forecast(self.gram, x, self.k, STAGES - stage, self.rate, self.power, NOISY)
        if outlook.success is not None:
            self.end = End(outlook.success, stage, "forecast")
        elif outlook.quiet >= LEAP:
            self.leap = outlook.x, stage + outlook.quiet
        self._next, self._rest = stage + max(self._rest, outlook.quiet // 2), 2 * self._rest


# --- PGD and IHT -----------------------------------------------------------------------------------------------------
def _batch(gram: Gram, k: int, eta: float, total: int, early: bool) -> End:
    """The iterations, with leaps, in closed form, over those between which the support stays."""
    x, done, look = np.zeros_like(gram.truth), 0, LOOK
    errors: list[float] = []
    while done < total:
        before = x.copy()
        entered, again = descend(gram.G, gram.b, x, k, eta, min(LOOK, total - done), before)
        done = min(done + LOOK, total)
        error = gram.error(x)
        if again or not error < BLOWN:  # the same for ever
            return End(error < SUCCESS, done, "cycle" if again else "diverged")
        if not early:
            continue
        if error < SUCCESS:
            return End(True, done, "error")
        errors.append(error)
        if _stagnant(errors):
            return End(False, done, "stagnant")
        if not entered and look <= done < total:
            outlook = forecast(gram, x, k, total - done, eta, 1.0, EXACT)
            if outlook.success is not None:
                return End(outlook.success, done, "forecast")
            if outlook.x is not x:
                x, done, errors = outlook.x, done + outlook.quiet, []
            look = done + 2 * LOOK
    return End(gram.error(x) < SUCCESS, done, "all")


def _stagnant(errors: list[float]) -> bool:
    """An error far from the threshold that has hardly moved over two long windows: columns that go to and fro."""
    if len(errors) <= 2 * STAGNANT:
        return False
    now, middle, first = errors[-1], errors[-1 - STAGNANT], errors[-1 - 2 * STAGNANT]
    return now > FAR and max(abs(now - middle), abs(middle - first)) < STILL * now
