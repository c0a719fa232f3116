"""The laboratory: runs trials over a grid, or in a search for the fewest measurements, and saves each as it is made."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ..._files import disk_is_full
from ..._text import counter, duration
from ..._validate import check_count, check_flag
from .experiment import KEY, OUTCOME, SETTINGS, Experiment, Grid, fill_doc, make_grid
from .ledger import Ledger, OtherSettings, read_records
from .result import MinimumN, Phase, check_rate, enough, reached
from .workers import Workers, make_pool, timed

RESULTS = "results.jsonl"
BATCH = 0.2  # seconds between two writes: syncing the disk after every trial could take longer than the trials
BUDGET = 2.0  # seconds that an estimate may take; at least one trial per worker is run
CONFIRM = 3  # how many n above the one that was found `minimum_n` tries too

HOW = """\
    jobs : int, default=None
        Number of processes; by default all cores.
    scheduler : str, default=None
        Address of a Dask scheduler, such as ``"tcp://host:8786"``, whose workers then run the trials and give the same
        bytes.  Needs the `dask` extra.  Not together with jobs.
    out : path, default=None
        A folder; every trial is added to its results.jsonl as it is made.  A run that was stopped, by Ctrl-C or a kill,
        continues when the same call is made again, and ends with the same bytes.  More trials, cells and algorithms
        may be added later; other settings are refused.
    resume : bool, default=True
        False starts anew; results that are in the folder are kept under another name.
    verbose : bool, default=True
        Print an estimate, the progress and the remaining time to stderr."""


@fill_doc(settings=SETTINGS, how=HOW)
def run(
    algorithm: Any = "htp",
    ensemble: Any = "gaussian",
    signal: Any = "gaussian",
    d: int = 256,
    *,
    n: Any = None,
    K: Any = None,
    delta: Any = None,
    rho: Any = None,
    trials: int = 100,
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
) -> Phase:
    """Count how often an algorithm finds a K-sparse signal from n measurements, over a grid of n and K.

    Parameters
    ----------
    {settings}
    n, K : int or array, default=None
        The grid: every n with every K.  By default about 32 values of n up to d, and K up to d/10.
    delta, rho : float or array, default=None
        The grid as shares instead: n = delta d and K = rho n, rounded.
    trials : int, default=100
        Number of trials in each cell of the grid.
    {how}

    Returns
    -------
    Phase
        The number of successes in every cell.

    Examples
    --------
    >>> found = run("htp", d=32, n=[4, 16, 28], K=2, trials=10, jobs=1, verbose=False)
    >>> bool(found.rate[0] < 0.5 < found.rate[-1])
    True
    """
    experiment = Experiment(algorithm, ensemble, signal, d, k, noise_db, matrix, success, seed)
    grid = make_grid(d, n, K, delta, rho)
    return run_all(
        [experiment], grid, trials=trials, jobs=jobs, scheduler=scheduler, out=out, resume=resume, verbose=verbose
    )[0]


@fill_doc(how=HOW)
def run_all(
    experiments: Sequence[Experiment],
    grid: Grid,
    *,
    trials: int = 100,
    jobs: int | None = None,
    scheduler: str | None = None,
    out: str | Path | None = None,
    resume: bool = True,
    verbose: bool = True,
) -> list[Phase]:
    """Run several experiments over one grid, with one file of results.

    Parameters
    ----------
    experiments : sequence of Experiment
        They may differ in their algorithm and its k only.
    grid : Grid
        The cells, from `make_grid`.
    trials : int, default=100
        Number of trials in each cell of the grid.
    {how}

    Returns
    -------
    list of Phase
        One for each experiment.

    Examples
    --------
    >>> both = [Experiment(name, d=32) for name in ("htp", "sp")]
    >>> found = run_all(both, make_grid(32, n=28, K=2), trials=5, jobs=1, verbose=False)
    >>> [phase.label for phase in found]
    ['htp', 'sp']
    """
    trials = check_count(trials, "trials")
    cells = [(int(n), int(K)) for n, K in zip(grid.n, grid.K, strict=True)]
    with (  # the workers first: if there are none, no file is touched
        make_pool(jobs, scheduler) as pool,
        open_ledger(out, experiments, resume=resume, verbose=verbose) as ledger,
    ):
        items = [
            (e, n, K, t) for e in experiments for n, K in cells for t in range(trials) if e.key(n, K, t) not in ledger
        ]
        with interruptible(ledger.path, resume):
            if verbose and items:
                print(estimate(items, pool), file=sys.stderr, flush=True)
            collect(Experiment.run, items, ledger, pool, label="trials", verbose=verbose)
        ledger.sort()
        successes = [[_successes(ledger, e, n, K, trials) for n, K in cells] for e in experiments]
    counts = np.full(grid.n.size, trials)
    return [Phase(e.settings, *grid, counts, np.array(won)) for e, won in zip(experiments, successes, strict=True)]


@fill_doc(settings=SETTINGS.replace(', default="htp"', ""), how=HOW)
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
    """Find the smallest n, among multiples of `step`, whose success rate, and that of the next three n, is `rate`.

    The search bisects, and then goes upwards: if one of the next three n falls below the rate, it continues above that
    n.  On the grid of all multiples ``run(...).minimum_n(K)`` gives the same from the same trials, unless counts dip
    elsewhere.  The search needs a few cells instead of all, and leaves a cell as soon as more trials have failed than
    the rate allows.

    Parameters
    ----------
    K : int
        Number of non-zeros of the signals.
    rate : float, default=0.95
        The wanted share of successes, at most 1.
    trials : int, default=100
        Number of trials in a cell.
    step : int, default=4
        The candidates for n are the multiples of this, up to d.
    {settings}
    {how}

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
    grid, wanted = range(step, d + 1, step), int(enough(rate, trials))

    def good(n: int) -> bool:
        """Whether enough trials succeed.  Failures decide early; for a success all trials are run, for the interval."""
        stride = max(4 * pool.jobs, trials - wanted + 1)
        for start in range(0, trials, stride):
            stop = min(start + stride, trials)
            items = [(n, K, t) for t in range(start, stop) if experiment.key(n, K, t) not in ledger]
            collect(experiment.run, items, ledger, pool, verbose=False)
            if stop - _successes(ledger, experiment, n, K, stop) > trials - wanted:
                return False
        return True

    with (
        make_pool(jobs, scheduler) as pool,
        open_ledger(out, [experiment], resume=resume, verbose=verbose) as ledger,
    ):
        total = len(grid).bit_length() + CONFIRM
        with interruptible(ledger.path, resume), counter("cells", total, verbose) as advance:
            below, at = -1, len(grid)  # indices in the grid: grid[below] is too small, grid[at] is enough, if it exists
            while at - below > 1:
                middle = (below + at) // 2
                below, at = (below, middle) if good(grid[middle]) else (middle, at)
                advance(1)
            ahead = at
            while ahead < min(at + CONFIRM + 1, len(grid)):
                if not good(grid[ahead]):
                    at = ahead + 1
                ahead += 1
                advance(1)
        ledger.sort()
        if at >= len(grid):
            return MinimumN(None, K, rate, 0, 0, float("nan"), float("nan"))
        return reached(grid[at], K, rate, _successes(ledger, experiment, grid[at], K, trials), trials)


def read(out: str | Path) -> list[Phase]:
    """Read the results that are in a folder of `run` so far; nothing is run.

    Parameters
    ----------
    out : path
        The folder.

    Returns
    -------
    list of Phase
        One for each algorithm and each k that it was given.
    """
    path = Path(out) / RESULTS
    counts: dict[tuple[str, str], dict[tuple[int, int], list[int]]] = {}
    settings: dict[tuple[str, str], dict[str, Any]] = {}
    try:
        for record in read_records(path):
            which = record["algorithm"], record["k"]
            settings.setdefault(which, {name: record[name] for name in list(record)[: -len(OUTCOME)]})
            cell = counts.setdefault(which, {}).setdefault((record["K"], record["n"]), [0, 0])
            cell[0] += 1
            cell[1] += record["success"]
    except OSError as error:
        raise ValueError(f"out must be a folder with a file {RESULTS}, got '{out}' ({error.strerror})") from None
    phases = []
    for which, cells in sorted(counts.items()):
        (K, n), (trials, successes) = np.array(sorted(cells)).T, np.array([cells[cell] for cell in sorted(cells)]).T
        phases.append(Phase(settings[which], n, K, trials, successes))
    return phases


def _successes(ledger: Ledger, experiment: Experiment, n: int, K: int, trials: int) -> int:
    return sum(ledger.kept[experiment.key(n, K, t)][0] for t in range(trials))


# --- parts for other experiments -------------------------------------------------------------------------------------
def collect(
    function: Callable[..., dict[str, Any]],
    items: Iterable[tuple[Any, ...]],
    ledger: Ledger,
    pool: Workers,
    *,
    label: str = "",
    verbose: bool = True,
) -> None:
    """Add the record ``function(*item)`` of every item to a ledger: made in parallel, in order, saved as they come.

    Parameters
    ----------
    function : function that returns a record
    items : iterable of tuples
        The arguments of each call.
    ledger : Ledger
    pool : Pool or Cluster
    label : str, default=""
        What the progress bar counts.
    verbose : bool, default=True
        Whether to show the progress.

    Examples
    --------
    >>> from ksparse.sensing.phase import Ledger, Pool
    >>> with Pool(1) as pool, Ledger(None, key=["i"], keep=["square"]) as ledger:
    ...     collect(lambda i: {"i": i, "square": i * i}, [(2,), (3,)], ledger, pool, verbose=False)
    ...     ledger.kept
    {(2,): (4,), (3,): (9,)}
    """
    items = list(items)
    batch: list[dict[str, Any]] = []
    written = time.monotonic()
    with counter(label, len(items), verbose) as advance:
        for record in pool.map(function, items):
            batch.append(record)
            if time.monotonic() - written >= BATCH:
                ledger.append(batch)
                advance(len(batch))
                batch, written = [], time.monotonic()
        # not in a `finally`: Ctrl-C may have come during `append`, and nothing must be written twice
        ledger.append(batch)
        advance(len(batch))


@contextmanager
def interruptible(path: Path | None, resume: bool = True) -> Iterator[None]:
    """A context in which Ctrl-C prints how to continue with the file or folder `path`, and then ends the work."""
    try:
        yield
    except KeyboardInterrupt:
        if path is not None:
            again = "the same again" if resume else "the same without resume=False (--no-resume)"
            print(f"stopped; the finished work is in {path}; run {again} to continue", file=sys.stderr)
        raise


def estimate(items: Sequence[tuple[Any, ...]], pool: Workers) -> str:
    """A text that says how long trials will take, judging by a random sample of them, run by the same workers.

    It is rough: a hard cell may take many times as long as an easy one, and the cores may have other work to do.
    """
    count = min(pool.jobs, len(items))
    order = np.random.default_rng(0).permutation(len(items))
    tried, seconds = 0, 0.0  # seconds of all workers together
    while seconds < BUDGET / 2 * count and 20 * tried < max(len(items), 20):
        batch = [(Experiment.run, *items[i]) for i in order[tried : tried + max(count, tried)]]
        seconds += sum(spent for _, spent, _ in pool.map(timed, batch))
        tried += len(batch)
    spent = duration(len(items) * seconds / tried / count)
    return f"{len(items):,} trials on {count} core{'s' * (count > 1)}: {spent}, judging by {tried} of them"


def open_ledger(
    out: str | Path | None, experiments: Sequence[Experiment], *, resume: bool = True, verbose: bool = True
) -> Ledger:
    """The ledger of a folder, repaired if necessary; without a folder, one in memory."""
    check_flag(resume, "resume")
    for other in experiments[1:]:
        experiments[0].check(other.settings)
    if out is None:
        return Ledger(None, KEY, ("success",))
    out = Path(out)
    return open_file(out / RESULTS, out, KEY, ("success",), experiments[0].check, resume, verbose)


def open_file(
    path: Path, out: Path, key: Sequence[str], keep: Sequence[str], check: Any, resume: bool, verbose: bool
) -> Ledger:
    """The ledger of a file below the folder `out`, repaired if it is damaged; an error if `check` refuses a record."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        ledger = Ledger(path, key, keep, check, fresh=not resume)
    except OSError as error:
        raise cannot_write(out, error) from None
    except OtherSettings as error:
        raise ValueError(
            f"{path} holds results of other settings: {error}. Give another folder, or the same settings, or "
            "resume=False (--no-resume), which keeps the old results under another name"
        ) from None
    tell_mended(ledger, verbose)
    return ledger


def cannot_write(out: Path, error: OSError) -> Exception:
    """The error to raise if a folder of results cannot be written."""
    if disk_is_full(error):
        return error
    where = f"{error.filename}: " if error.filename not in (None, str(out)) else ""
    return ValueError(f"out must be a folder that can be written, got '{out}' ({where}{error.strerror})")


def tell_mended(ledger: Ledger, verbose: bool) -> None:
    """Warn about damage in a file that was opened again, and print, if `verbose`, from where it continues."""
    if ledger.damaged and ledger.aside:
        numbers = ", ".join(map(str, ledger.damaged[:5])) + ", ..." * (len(ledger.damaged) > 5)
        warnings.warn(
            f"{ledger.path} is damaged in line {numbers}: a copy is kept as {ledger.aside.name}, the "
            f"{len(ledger.kept):,} good lines are used, and the missing trials are run again",
            stacklevel=5,
        )
    if verbose:
        if ledger.aside and not ledger.damaged:
            print(f"{ledger.path}: the old results are now in {ledger.aside.name}", file=sys.stderr)
        if ledger.kept or ledger.torn:
            torn = "; the trial of an incomplete last line is run again" * ledger.torn
            print(f"{ledger.path}: continues after {len(ledger.kept):,} trials{torn}", file=sys.stderr)
