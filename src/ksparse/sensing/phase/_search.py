"""The fewest measurements, without trying every n."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..._progress import counter
from ..._validate import check_count
from ._cluster import make_pool
from ._experiment import Experiment
from ._lab import collect, interruptible, open_ledger
from ._ledger import Ledger
from ._parallel import Workers
from ._result import MinimumN, check_rate, enough, reached

CONFIRM = 3  # how many n above the found one are tried too


def minimum_n(
    algorithm: Any,
    K: int,
    d: int = 256,
    *,
    rate: float = 0.95,
    trials: int = 100,
    step: int = 4,
    ensemble: Any = "gaussian",
    signal: Any = "gaussian",
    k: Any = "K",
    noise_db: float | None = None,
    matrix: str = "trial",
    success: float = 1e-3,
    seed: int = 0,
    jobs: int | None = None,
    scheduler: str | None = None,
    out: str | Path | None = None,
    resume: bool = True,
    verbose: bool = True,
) -> MinimumN:
    """The smallest n, among multiples of `step`, with at least `rate` successes and the next three n as good.

    Found by bisection and then upwards: if one of the next three falls below the rate, the search goes on above it.
    That is what ``run(...).minimum_n(K)`` gives on the grid of all multiples, with the very same trials, unless counts
    dip elsewhere; and it takes a few cells instead of all.  A cell is left as soon as it has lost more trials than the
    rate allows.

    Parameters
    ----------
    rate : float
        The wanted share of successes, at most 1.
    step : int
        The multiples of it, up to d, are the n that may be found.
    algorithm, K, d, trials, ensemble, signal, k, noise_db, matrix, success, seed, jobs, scheduler, out, resume, verbose
        As for `run`; `out` may be the folder of a run.

    Returns
    -------
    MinimumN
        With n = None if not even the largest n is enough.

    Examples
    --------
    >>> found = minimum_n("sp", 2, 32, step=2, trials=20, jobs=1, verbose=False)
    >>> 8 <= found.n <= 20, found.successes >= 19
    (True, True)
    """
    experiment = Experiment(algorithm, ensemble, signal, d, k, noise_db, matrix, success, seed)
    K, rate = check_count(K, "K", high=d, high_text="d"), check_rate(rate)
    trials, step = check_count(trials, "trials"), check_count(step, "step", high=d, high_text="d")
    grid = range(step, d + 1, step)
    with (
        make_pool(jobs, scheduler) as pool,
        open_ledger(out, [experiment], resume=resume, verbose=verbose) as ledger,
    ):
        total = len(grid).bit_length() + CONFIRM
        with interruptible(ledger.path, resume), counter("cells", total, verbose) as advance:
            cells = _Cells(experiment, K, ledger, trials, int(enough(rate, trials)), pool)
            below, at = -1, len(grid)  # places in the grid: too few, and enough (or beyond the end)
            while at - below > 1:
                middle = (below + at) // 2
                below, at = (below, middle) if cells.good(grid[middle]) else (middle, at)
                advance(1)
            ahead = at
            while ahead < min(at + CONFIRM + 1, len(grid)):
                if not cells.good(grid[ahead]):
                    at = ahead + 1
                ahead += 1
                advance(1)
        ledger.sort()
        if at >= len(grid):
            return MinimumN(None, K, rate, 0, 0, float("nan"), float("nan"))
        return reached(grid[at], K, rate, cells.successes(grid[at]), trials)


class _Cells:
    """Trials of single cells, as many as it takes to know."""

    def __init__(self, experiment: Experiment, K: int, ledger: Ledger, trials: int, wanted: int, pool: Workers) -> None:
        self.experiment, self.K, self.ledger = experiment, K, ledger
        self.trials, self.wanted, self.pool = trials, wanted, pool

    def good(self, n: int) -> bool:
        """Whether enough trials succeed; the losses decide early, a success takes all trials, for its interval."""
        stride = max(4 * self.pool.jobs, self.trials - self.wanted + 1)
        for start in range(0, self.trials, stride):
            batch = range(start, min(start + stride, self.trials))
            missing = [t for t in batch if self.experiment.key(n, self.K, t) not in self.ledger]
            items = [(n, self.K, t) for t in missing]
            collect(self.experiment.run, items, self.ledger, self.pool, verbose=False)
            if batch.stop - self.successes(n, batch.stop) > self.trials - self.wanted:
                return False
        return True

    def successes(self, n: int, trials: int | None = None) -> int:
        keys = (self.experiment.key(n, self.K, t) for t in range(trials or self.trials))
        return sum(self.ledger.kept[key][0] for key in keys)
