"""A trial of sparse recovery: a K-sparse signal of 256 numbers from n noiseless measurements, and its verdict.

A trial of the paper runs for 10,000 stages, but most of them are decided after a few dozen.  `solve` stops a trial once
its verdict is known:

- Success: the error is below the threshold.  Errors were never seen to rise above it again.
- Failure: the run diverged, or it solved y = A x with a wrong x.
- Forecast: while the support S does not change, the mean of the iterate follows a linear recursion, which the
  eigenvectors of A_S'A_S solve in closed form for every later stage.  If no entry of S comes near to being replaced up
  to the last stage, the end is known.  If an entry does at some stage, the run jumps to the stage before.

benchmarks/bench_verdicts.py measures how many verdicts these rules change; its result is in verdicts.json.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from importlib import resources
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._jit import SUMS, kernel
from .._minimize import minimize
from ..result import Progress
from ..sensing.phase import Experiment, stream, wilson
from ..solvers import HTSVRG

D = 256
STAGES = 10_000  # the paper's S
PASSES = 7  # full gradients per stage: 2m/n + 1 with m = 3n; IHT and PGD make as many iterations
HT_SVRG = {"ht-svrg": "last", "ht-svrg-random": "random"}  # which iterate of a stage the next stage starts from

SUCCESS = 1e-3  # the paper's threshold for the relative error
SOLVED = 1e-11  # ‖Ax − y‖/‖y‖ below which the iterate does not move any more
BLOWN = 1e8  # a relative error from which no run comes back
CLOSE = 1.25  # a forecast error within this factor of the threshold decides nothing
MOMENTS = 48  # stages at which a forecast is evaluated
FLAT = 1e-12  # eigenvalues below this share of the largest count as zero
PREDICT = ("forecast", "stagnant")  # rules whose verdict a longer run could change

WINDOW = 10  # HT-SVRG: stages without a change of the support before a forecast
REST = 50  # HT-SVRG: fewest stages between two forecasts
JUMP = 300  # HT-SVRG: fewest stages of a jump; while columns still change, a shorter one could alter the result
LOOK = 100  # PGD and IHT: iterations between two checks
STAGNANT, FAR, STILL = 25, 0.02, 0.005  # PGD and IHT: checks per window; least error; largest relative change
NOISY, EXACT = 1.5, 1.001  # margins of a forecast: for the mean of HT-SVRG, and for PGD and IHT themselves


class TrialEnd(NamedTuple):
    """How a trial ended: its verdict, the number of stages (IHT and PGD: iterations), and the rule that ended it."""

    success: bool
    stages: int
    rule: str


def paper_k(algorithm: str, K: int) -> int:
    """The paper's k: K for IHT, 9K for the other algorithms."""
    return K if algorithm == "iht" else min(9 * K, D)


def relative_error(found: NDArray[np.float64], x: NDArray[np.float64]) -> float:
    """‖found − x‖ / ‖x‖."""
    with np.errstate(over="ignore", invalid="ignore"):  # if the run diverges
        gap = found - x
        return float(np.sqrt(gap.dot(gap) / x.dot(x)))  # np.linalg.norm would take twice as long, at every stage


def problem(n: int, K: int, trial: int, seed: int, signal: str = "gaussian") -> Any:
    """(A, x, y, noise) of a trial: Gaussian measurements of a K-sparse signal; trials with the same n and K share A."""
    return Experiment(signal=signal, d=D, matrix="cell", seed=seed).problem(n, K, trial)


class Gram(NamedTuple):
    """A problem y = A x in the form that its gradient A'(Ax − y) needs."""

    G: NDArray[np.float64]  # A'A
    b: NDArray[np.float64]  # A'y
    y_norm: float
    truth: NDArray[np.float64]

    def error(self, x: NDArray[np.float64]) -> float:
        return relative_error(x, self.truth)


def solve(algorithm: str, signal: str, K: int, n: int, trial: int, seed: int, *, early: bool = True) -> TrialEnd:
    """Run a trial until its verdict is known; with ``early=False``, run all its stages."""
    A, x, y, _ = problem(n, K, trial, seed, signal)
    G, top = _gram(n, K, seed)
    gram = Gram(G, A.T @ y, float(np.linalg.norm(y)), x)
    k = paper_k(algorithm, K)
    if algorithm not in HT_SVRG:
        return _run_batch(gram, k, 1.0 if algorithm == "iht" else 2.0 / top, PASSES * STAGES, early)
    if n == 1:  # a single row: every stochastic gradient is the full gradient
        return _run_batch(gram, k, 2.0 / top, (3 if HT_SVRG[algorithm] == "last" else 1) * STAGES, early)
    rng = stream(seed, algorithm, signal, n, K, trial)
    return _run_stochastic(A, y, k, 2.0 / top, HT_SVRG[algorithm], gram, rng, early)


@functools.lru_cache(maxsize=2)
def _gram(n: int, K: int, seed: int) -> tuple[NDArray[np.float64], float]:
    """A'A and σ₁(AA') of a cell; all its trials have the same matrix."""
    A = problem(n, K, 0, seed).A
    return A.T @ A, float(np.linalg.norm(A, 2)) ** 2


# --- HT-SVRG ---------------------------------------------------------------------------------------------------------
def _run_stochastic(
    A: Any, y: Any, k: int, eta: float, output: str, gram: Gram, rng: np.random.Generator, early: bool
) -> TrialEnd:
    n, x, done = y.size, None, 0
    stop = _EarlyStop(gram, k, n, eta / n, 3.0 * n if output == "last" else (3 * n - 1) / 2)
    while True:
        solver = HTSVRG(step=eta, m=3 * n, stages=STAGES - done, output=output, tol=0, stop_on_divergence=False)
        result = minimize(A, y, k, solver=solver, x0=x, random_state=rng, callback=stop if early else None)
        if stop.end is not None:
            return stop.end
        if stop.jump is None:
            rule = "diverged" if result.status == "diverged" else "all"
            return TrialEnd(gram.error(result.x) < SUCCESS, done + result.n_stages, rule)
        x, stage = stop.after_jump()
        for _ in range(stage - (done + result.n_stages) - 1):
            solver.draw(rng, n, 3 * n)  # the draws of the skipped stages: later stages then see the same rows
        done = stage


class _EarlyStop:
    """A callback that stops a run once its verdict is known, or if its next stages can be skipped."""

    def __init__(self, gram: Gram, k: int, n: int, rate: float, power: float) -> None:
        self.gram, self.k, self.rate, self.power = gram, k, rate, power
        self.solved = (SOLVED * gram.y_norm) ** 2 / (2 * n)
        self.end: TrialEnd | None = None
        self.jump: tuple[NDArray[np.float64], int] | None = None  # the iterate to go on from, and its stage
        self._start = 0  # the stage after the last jump
        self._next, self._calm, self._rest = WINDOW, WINDOW, REST

    def after_jump(self) -> tuple[NDArray[np.float64], int]:
        """The iterate and the stage from which to go on after a jump."""
        assert self.jump is not None
        (x, self._start), self.jump = self.jump, None
        self._next = self._calm = self._start + WINDOW
        self._rest = REST
        return x, self._start

    def __call__(self, now: Progress) -> bool:
        stage, error = self._start + now.stage, self.gram.error(now.x)
        if error < SUCCESS:
            self.end = TrialEnd(True, stage, "error")
        elif not error < BLOWN:
            self.end = TrialEnd(False, stage, "diverged")
        elif now.objective < self.solved:
            self.end = TrialEnd(False, stage, "solved")
        if now.support_changes:
            self._calm, self._rest = stage + WINDOW, REST
        if self.end is None and max(self._next, self._calm) <= stage < STAGES:
            self._look_ahead(now.x, stage)
        return self.end is not None or self.jump is not None

    def _look_ahead(self, x: NDArray[np.float64], stage: int) -> None:
        outlook = forecast(self.gram, x, self.k, STAGES - stage, self.rate, self.power, NOISY)
        if outlook.success is not None:
            self.end = TrialEnd(outlook.success, stage, "forecast")
        elif outlook.quiet >= JUMP:
            self.jump = outlook.x, stage + outlook.quiet
        self._next, self._rest = stage + max(self._rest, outlook.quiet // 2), 2 * self._rest


# --- PGD and IHT -----------------------------------------------------------------------------------------------------
def _run_batch(gram: Gram, k: int, eta: float, total: int, early: bool) -> TrialEnd:
    """Run the iterations; those during which the support does not change are skipped by their closed form."""
    x, done, look = np.zeros_like(gram.truth), 0, LOOK
    errors: list[float] = []
    while done < total:
        before = x.copy()
        entered, again = descend(gram.G, gram.b, x, k, eta, min(LOOK, total - done), before)
        done = min(done + LOOK, total)
        error = gram.error(x)
        if again or not error < BLOWN:  # later iterations change nothing
            return TrialEnd(error < SUCCESS, done, "cycle" if again else "diverged")
        if not early:
            continue
        if error < SUCCESS:
            return TrialEnd(True, done, "error")
        errors.append(error)
        if _stagnant(errors):
            return TrialEnd(False, done, "stagnant")
        if not entered and look <= done < total:
            outlook = forecast(gram, x, k, total - done, eta, 1.0, EXACT)
            if outlook.success is not None:
                return TrialEnd(outlook.success, done, "forecast")
            if outlook.x is not x:
                x, done, errors = outlook.x, done + outlook.quiet, []
            look = done + 2 * LOOK
    return TrialEnd(gram.error(x) < SUCCESS, done, "all")


def _stagnant(errors: list[float]) -> bool:
    """Whether an error far above the threshold has hardly changed over two long windows."""
    if len(errors) <= 2 * STAGNANT:
        return False
    now, middle, first = errors[-1], errors[-1 - STAGNANT], errors[-1 - 2 * STAGNANT]
    return now > FAR and max(abs(now - middle), abs(middle - first)) < STILL * now


@kernel(fastmath=SUMS)
def descend(G, b, x, k, eta, count, before):
    """Take `count` steps x = H_k(x − η(Gx − b)) in place: PGD or IHT on the Gram matrix, many iterations in one call.

    The iterates are those of `ksparse.PGD` with a fixed step.  A trial may take 70,000 iterations on a 256 x 256
    problem, and `PGD`, which is made for larger data, would spend nine tenths of its time between them.

    Returns how many columns entered the support, and whether an iterate equals `before`: a fixed point or a cycle.
    """
    d = x.size
    z = np.empty(d)
    on = np.empty(d + 4, np.int64)  # the columns in use, padded by columns of weight zero to a multiple of four
    weight = np.empty(d + 4)
    chosen = np.zeros(d, np.bool_)
    entered = 0
    square = 0.0
    for j in range(d):
        square += before[j] * before[j]
        chosen[j] = x[j] != 0.0
    size = np.count_nonzero(chosen)
    for _ in range(count):
        used = 0
        for j in range(d):
            z[j] = x[j] + eta * b[j]
            if x[j] != 0.0:
                on[used], weight[used] = j, -eta * x[j]
                used += 1
        on[used : used + 3] = 0
        weight[used : used + 3] = 0.0
        for u in range(0, used, 4):  # z −= η G x, four columns at a time: z is read and written a quarter as often
            w0, w1, w2, w3 = weight[u], weight[u + 1], weight[u + 2], weight[u + 3]
            g0, g1, g2, g3 = G[on[u]], G[on[u + 1]], G[on[u + 2]], G[on[u + 3]]
            for j in range(d):
                z[j] += w0 * g0[j] + w1 * g1[j] + w2 * g2[j] + w3 * g3[j]
        while True:
            # the smallest entry inside the support and the largest outside; ties: the lower index stays
            least, low = np.inf, -1
            most, high = -1.0, -1
            for j in range(d):
                size_j = abs(z[j])
                if chosen[j]:
                    if size_j <= least:
                        least, low = size_j, j
                elif size_j > most:
                    most, high = size_j, j
            if high < 0:
                break
            if size < k:
                size += 1
            elif most > least or (most == least and high < low):
                chosen[low] = False
            else:
                break
            chosen[high] = True
            entered += 1
        apart = 0.0
        norm = 0.0
        for j in range(d):
            x[j] = z[j] if chosen[j] else 0.0
            apart += (x[j] - before[j]) ** 2
            norm += x[j] * x[j]
        if apart <= 1e-26 * square:
            return entered, True
        if not norm < np.inf:
            return entered, False
    return entered, False


# --- the forecast ----------------------------------------------------------------------------------------------------
class Outlook(NamedTuple):
    """A forecast: the verdict, if known; else for how many stages the support stays, and the iterate after them."""

    success: bool | None
    quiet: int
    x: NDArray[np.float64]


def forecast(
    gram: Gram, x: NDArray[np.float64], k: int, left: int, rate: float, power: float, margin: float
) -> Outlook:
    """Predict the end of a run from an iterate.

    Parameters
    ----------
    gram : Gram
    x : array
        The iterate.
    k : int
        Its sparsity.
    left : int
        The number of stages (or iterations) to go.
    rate, power : float
        In one stage, the error along an eigenvector of A_S'A_S with eigenvalue λ shrinks by (1 − rate·λ)^power.
    margin : float
        A column may enter once rate·|gradient| times this exceeds the smallest magnitude on the support.
    """
    on = np.flatnonzero(x)
    if on.size < k:
        return Outlook(None, 0, x)
    off = np.flatnonzero(x == 0)
    values, vectors = np.linalg.eigh(gram.G[np.ix_(on, on)])
    gradient = vectors.T @ (gram.G[np.ix_(on, on)] @ x[on] - gram.b[on])
    times = moments(left)
    exponents = power * times
    base = 1.0 - rate * values[:, np.newaxis]
    flat = values < FLAT * values[-1]
    with np.errstate(all="ignore"):  # a diverging run overflows, and then counts as not held
        shrunk = np.where(base < 0, np.where(times % 2 == 0, 1.0, -1.0), 1.0) * np.abs(base) ** exponents
        way = np.where(flat[:, np.newaxis], rate * exponents, (1.0 - shrunk) / values[:, np.newaxis])
        path = x[on][:, np.newaxis] - vectors @ (way * gradient[:, np.newaxis])
        pull = np.abs(gram.G[np.ix_(off, on)] @ path - gram.b[off][:, np.newaxis]).max(axis=0, initial=0.0)
        held = np.abs(path).min(axis=0) > margin * rate * pull
        held &= (np.sign(path) == np.sign(x[on])[:, np.newaxis]).all(axis=0)
    last = len(times) - 1 if held.all() else int(np.argmin(held)) - 1  # up to here the support does not change
    if last < 0:
        return Outlook(None, 0, x)
    later = np.zeros_like(x)
    later[on] = path[:, last]
    if not held.all():
        return Outlook(None, int(times[last]), later)
    rest = float(np.sum(gram.truth[off] ** 2))
    error = np.sqrt((np.sum((path[:, -1] - gram.truth[on]) ** 2) + rest) / (np.sum(gram.truth**2)))
    if SUCCESS / CLOSE < error < SUCCESS * CLOSE:
        return Outlook(None, 0, x)
    return Outlook(bool(error < SUCCESS), left, later)


def moments(left: int) -> NDArray[np.int64]:
    """The stages at which a forecast is evaluated: dense at first, then wider, up to the last one.

    They come in pairs, since an entry may oscillate.
    """
    wide = np.geomspace(1, left, MOMENTS // 2).astype(np.int64)
    return np.unique(np.concatenate([wide, np.minimum(wide + 1, left), [left]]))


# --- the rules in words ----------------------------------------------------------------------------------------------
def explain_rules(summary: Mapping[str, Any] | None = None) -> list[str]:
    """The rules that stop a trial, in words, and how many verdicts they changed in bench_verdicts.py.

    With the summary of Figure 1, also how many of its trials each predicting rule decided.
    """
    texts = [
        f"Success: the relative error is below {SUCCESS:g}; errors were not seen to rise above it again.",
        f"Failure: the error exceeds {BLOWN:g}, or y = A x is solved with a wrong x.",
        "Forecast: while the support does not change, the mean of the iterate follows a linear recursion, which is "
        "solved in closed form for every later stage. If no entry comes near to being replaced up to the last stage, "
        f"the end is known, unless the error there is within a factor of {CLOSE} of the threshold. If an entry does at "
        "some stage, the run jumps to the stage before.",
        "IHT and PGD also end when an iterate comes back (a fixed point or a cycle), and when an error far above the "
        "threshold has hardly changed for thousands of iterations, while columns enter and leave the support "
        "(stagnant).",
    ]
    measured = json.loads(resources.files(__package__).joinpath("verdicts.json").read_text(encoding="utf-8"))
    counts = (
        f"{name} {row['changed']} of {row['trials']:,} verdicts, with {row['stages']:.1%} of the stages"
        for name, row in measured.items()
    )
    texts.append(f"Measured against runs of all stages, these rules changed: {'; '.join(counts)}.")
    decided = [
        text
        for name, row in measured.items()
        if (text := _decided(name, row["rules"], (summary or {}).get(f"{name} gaussian", {}).get("rules", {})))
    ]
    if decided:
        texts.append(
            "Forecast and stagnant predict the end of a trial. Trials of Figure 1 that they decided, and the trials "
            "on which they were checked, with the share of wrong verdicts that the check does not exclude (95%): "
            f"{'; '.join(decided)}."
        )
    return texts


def _decided(name: str, checks: Mapping[str, tuple[int, int]], counts: Mapping[str, int]) -> str:
    """How many trials of an algorithm the predicting rules decided, and how well they were checked."""
    parts = []
    for rule in PREDICT:
        checked, changed = checks.get(rule, (0, 0))
        if counts.get(rule):
            check = f"checked on {checked} (up to {wilson(changed, checked)[1]:.0%})" if checked else "not checked"
            parts.append(f"{rule} {counts[rule]:,} of {sum(counts.values()):,}, {check}")
    return f"{name}: {', '.join(parts)}" if parts else ""
