"""The laboratory: trials over a grid, on all cores, written down as they come."""

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
from ..._progress import counter, duration
from ..._validate import check_count, check_flag
from ._cluster import make_pool
from ._experiment import KEY, OUTCOME, Experiment, OtherSettings
from ._grid import Grid, make_grid
from ._ledger import Ledger, read_records
from ._parallel import Workers, timed
from ._result import Phase

RESULTS = "results.jsonl"
BATCH = 0.2  # seconds between two writes: syncing a disk after every trial could cost more than the trials
BUDGET = 2.0  # seconds for an estimate, or a trial a worker


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
    """How often an algorithm finds a K-sparse signal from n measurements, over a grid of n and K.

    Parameters
    ----------
    algorithm : str, solver or function
        What `recover` takes; a name with settings, such as ``"pgd(step='spectral')"``; or a function
        f(A, y, k, *, noise, random_state) that returns x, which results know by its name alone.
    ensemble : str or function
        A name of ``ENSEMBLES``, with parameters if wanted, such as ``"correlated(rho=0.9)"``; or a function like those.
    signal : str or function
        The same for ``SIGNALS``.
    d : int
        Entries of a signal.
    n, K : int or array
        The grid: every n with every K.  By default about 32 n up to d, and K up to d/10.
    delta, rho : float or array
        The grid as shares instead, n = delta d and K = rho n, rounded.
    trials : int
        Signals a cell.
    k : str or int
        What the algorithm is told: "K", a multiple such as "2K", or a number; d at most.
    noise_db : float
        Signal-to-noise ratio ‖Ax‖²/E‖e‖² in decibels; the algorithm is told the noise's standard deviation.  None: no
        noise.
    matrix : "trial" or "cell"
        A new matrix for every trial, or one a cell, as in the paper.  With one a cell its trials are not
        independent: a bad matrix fails them together, so that more trials say less, and intervals are too narrow.
    success : float
        A trial is a success if ‖x − x*‖/‖x*‖ is below this.
    seed : int
        The same seed gives the same trials, whatever the order and the number of workers, and the same problems to
        every algorithm.
    jobs : int
        Processes; all cores by default.
    scheduler : str
        The address of a Dask scheduler, such as ``"tcp://host:8786"``: its workers are used instead, and give the
        same bytes.  Needs the `dask` extra.  Not together with jobs.
    out : path
        A folder; every trial is added to its results.jsonl as it comes.  A run that was stopped, by Ctrl-C or a kill,
        goes on where it was when it is called again, and ends with the same bytes.  More trials, cells and algorithms
        may be added later; other settings are refused.
    resume : bool
        False: results that are there are set aside under another name.
    verbose : bool
        An estimate, progress and the time left, on stderr.

    Returns
    -------
    Phase

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
    """Several experiments, which may differ in the algorithm and in what it is told, over one grid and into one file.

    The other parameters are those of `run`.
    """
    trials = check_count(trials, "trials")
    cells = [(int(n), int(K)) for n, K in zip(grid.n, grid.K, strict=True)]
    with (  # workers first: without them, files stay as they are
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
        won = {
            e.key(n, K, 0): sum(ledger.kept[e.key(n, K, t)][0] for t in range(trials))
            for e in experiments
            for n, K in cells
        }
    made = np.full(grid.n.size, trials)
    return [Phase(e.settings, *grid, made, np.array([won[e.key(n, K, 0)] for n, K in cells])) for e in experiments]


def collect(
    function: Callable[..., dict[str, Any]],
    items: Iterable[tuple[Any, ...]],
    ledger: Ledger,
    pool: Workers,
    *,
    label: str = "",
    verbose: bool = True,
) -> None:
    """Add ``function(*item)``, a record, for every item: in parallel, in order, and on disk as they come."""
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
        # not after Ctrl-C, which may have come in the middle of `append`: nothing is written twice
        ledger.append(batch)
        advance(len(batch))


@contextmanager
def interruptible(path: Path | None, resume: bool = True) -> Iterator[None]:
    """Ctrl-C ends the work and says how to go on with what is in a file or folder."""
    try:
        yield
    except KeyboardInterrupt:
        if path is not None:
            again = "the same again" if resume else "the same without resume=False (--no-resume)"
            print(f"stopped; what is done is in {path}, and {again} goes on there", file=sys.stderr)
        raise


def estimate(items: Sequence[tuple[Any, ...]], pool: Workers) -> str:
    """How long trials will take, from a few all over the grid, by the very workers.

    A hard cell may take many times as long as an easy one, and the cores may be busy with other things.
    """
    count = min(pool.jobs, len(items))
    order = np.random.default_rng(0).permutation(len(items))
    tried, seconds = 0, 0.0  # of all workers together
    while seconds < BUDGET / 2 * count and 20 * tried < max(len(items), 20):
        batch = [(Experiment.run, *items[i]) for i in order[tried : tried + max(count, tried)]]
        seconds += sum(spent for _, spent, _ in pool.map(timed, batch))
        tried += len(batch)
    spent = duration(len(items) * seconds / tried / count)
    return f"{len(items):,} trials on {count} core{'s' * (count > 1)}: {spent}, judging by {tried} of them"


def open_ledger(
    out: str | Path | None, experiments: Sequence[Experiment], *, resume: bool = True, verbose: bool = True
) -> Ledger:
    """The ledger of a folder, mended if need be; in memory without a folder."""
    check_flag(resume, "resume")
    for other in experiments[1:]:
        experiments[0].check(other.settings)
    if out is None:
        return Ledger(None, KEY, ("success",))
    path = Path(out) / RESULTS
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        ledger = Ledger(path, KEY, ("success",), experiments[0].check, fresh=not resume)
    except OSError as error:
        if disk_is_full(error):
            raise
        raise ValueError(f"out must be a folder that can be written, got '{out}' ({error.strerror})") from None
    except OtherSettings as error:
        raise ValueError(
            f"{path} holds results of other settings: {error}. Give another folder, or the same settings, or "
            "resume=False (--no-resume), which sets the old results aside"
        ) from None
    tell_mended(ledger, verbose)
    return ledger


def tell_mended(ledger: Ledger, verbose: bool) -> None:
    """Say what was found in a file that is opened again: damage always, and where it goes on."""
    if ledger.damaged and ledger.aside:
        numbers = ", ".join(map(str, ledger.damaged[:5])) + ", ..." * (len(ledger.damaged) > 5)
        warnings.warn(
            f"{ledger.path} is damaged in line {numbers}: it is kept as {ledger.aside.name}, the {len(ledger.kept):,} "
            "good lines go on, and what is missing is done again",
            stacklevel=4,
        )
    if verbose:
        if ledger.aside and not ledger.damaged:
            print(f"{ledger.path}: the old results are now {ledger.aside.name}", file=sys.stderr)
        if ledger.kept or ledger.torn:
            torn = "; a torn last line is done again" * ledger.torn
            print(f"{ledger.path}: goes on after {len(ledger.kept):,} trials{torn}", file=sys.stderr)


def read(out: str | Path) -> list[Phase]:
    """What a folder of `run` holds so far, a Phase for every algorithm; nothing is tried."""
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
