"""Run the figures of the paper: `run` makes their trials, summaries and page, `draw` draws the page alone."""

from __future__ import annotations

import importlib
import inspect
import json
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from .._text import duration
from .._validate import check_choice, check_count, check_flag
from ..report.markup import check_tools
from ..sensing.phase import interruptible, make_pool, timed
from . import digits
from .lab import FACTS, PRESETS, TIMES, Item, Lab, alone_in, begin, check_facts, write_facts, write_summary
from .page import write_page
from .recovery import explain_rules

# module of each figure, in the order of a run: a figure comes after those that it needs
FIGURES = {
    "theory": "theory",
    "1": "phase_transitions",
    "2": "success_curves",
    "3": "minimum_measurements",
    "4": "parameters",
    "5": "small_steps",
    "6": "digits",
    "8": "classification",
    "7": "models",
    "savings": "savings",
    "floor": "floor",
    "l1": "l1",
}
KINDS = ("algorithm", "method", "panel", "rule")  # parameters on which the time of a trial depends most
BUDGET = {"quick": 3.0, "standard": 40.0, "full": 40.0}  # seconds for an estimate of the time


def run(
    preset: str = "quick",
    out: str | Path = "paper",
    *,
    figures: str | Iterable[str] | None = None,
    mnist: str | Path | None = None,
    resume: bool = True,
    jobs: int | None = None,
    scheduler: str | None = None,
    seed: int = 0,
    verbose: bool = True,
) -> Path:
    """Run the paper's experiments, and some beyond them, and write a page about them.

    A run that was stopped or killed continues when the same call is made again; the files in ``results/`` are then the
    same, byte for byte, as those of a run that was never stopped.

    Parameters
    ----------
    preset : {"quick", "standard", "full"}, default="quick"
        "quick": coarse grids and few trials (minutes).  "standard": 100 trials on the paper's grids (an hour or so on
        two cores).  "full": 1000 trials.
    out : path, default="paper"
        The folder of the run: ``results/`` holds every trial, ``summary/`` what the trials amount to, ``figures/`` the
        pictures as SVG files, and ``index.html`` is the page.
    figures : str or iterable of str, default=None
        Which figures to run, for example ["1", "4", "8"] or "1,4,8"; figures that they need are run too.  None for all.
    mnist : path or "openml", default=None
        The folder that holds MNIST's four files, which are checked; "openml" downloads MNIST.  If None, the figures
        about digits use scikit-learn's 8 x 8 digits, and the page says so.
    resume : bool, default=True
        If False, existing results of these figures are renamed.  If they belong to another preset, seed, version or
        set of digits, the results of all figures are.
    jobs : int, default=None
        The number of processes; None for one per core.
    scheduler : str, default=None
        The address of a Dask scheduler, whose workers then make the trials.
    seed : int, default=0
        The same seed gives the same trials.
    verbose : bool, default=True
        Print an estimate of the time, the progress and the time left to stderr.

    Returns
    -------
    Path
        The page, ``index.html``.

    Examples
    --------
    >>> import tempfile
    >>> from ksparse.paper import run
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run("quick", folder, figures="theory", verbose=False).name
    'index.html'
    """
    check_tools()  # now, not after hours of trials
    check_choice(preset, "preset", PRESETS)
    check_flag(resume, "resume")
    chosen = choose(figures)
    jobs = None if jobs is None else check_count(jobs, "jobs")
    folder = None if mnist is None else str(mnist)
    digit_set = digits.name_of(folder) if any(map(_wants_digits, chosen)) else ""
    if digit_set:
        digits.load(folder)  # finds a wrong file now
    seed, out = check_count(seed, "seed", low=0), Path(out)
    with make_pool(jobs, scheduler) as pool, alone_in(out), interruptible(out, resume):
        lab = Lab(preset, out, pool, seed, digit_set, {"digits_folder": folder}, verbose)
        facts = begin(lab, chosen, choose(None), resume)
        for figure in chosen:
            if figure.KEY:
                lab.open(figure).close()  # repairs the file, or raises, before the first trial
        if verbose and (text := estimate(chosen, lab, facts)):
            print(text, file=sys.stderr, flush=True)
        for figure in chosen:
            run_figure(figure, lab, facts)
        return draw(out)


def draw(out: str | Path) -> Path:
    """Draw the figures of a folder from their summaries and write its page; nothing is run.

    Parameters
    ----------
    out : path
        The folder of a run.

    Returns
    -------
    Path
        The page, ``index.html``.

    Examples
    --------
    >>> import tempfile
    >>> from ksparse.paper import draw, run
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     page = run("quick", folder, figures="theory", verbose=False)
    ...     draw(folder) == page
    True
    """
    out = Path(out)
    modules = choose(None)
    paths = {figure.NUMBER: out / "summary" / f"figure{figure.NUMBER}.json" for figure in modules}
    summaries = {number: _read(path, _check_summary) for number, path in paths.items() if path.exists()}
    if not summaries:
        raise ValueError(f"out must be a folder with a summary, got '{out}'; run the experiments first")
    facts = _read(out / FACTS, check_facts) if (out / FACTS).exists() else {}
    facts["rules"] = explain_rules(summaries.get("1"))
    shown = sorted((figure for figure in modules if figure.NUMBER in summaries), key=_place)
    return write_page(out, shown, summaries, facts)


def _place(figure: ModuleType) -> int:
    """The place on the page: the paper's bounds, its figures in their order, then those beyond the paper."""
    return int(figure.NUMBER) if figure.NUMBER.isdigit() else 0 if figure.NUMBER == "theory" else len(FIGURES)


def choose(figures: str | Iterable[str] | None) -> list[ModuleType]:
    """The modules of these figures and of all that they need, in the order of a run."""
    if isinstance(figures, str):
        figures = figures.split(",")
    wanted = list(FIGURES) if figures is None else [str(figure).strip() for figure in figures]
    if not wanted:
        raise ValueError(f"figures must name some of {', '.join(FIGURES)}, got none")
    for figure in wanted:
        check_choice(figure, "figures", FIGURES)
    modules = {name: importlib.import_module(f".{module}", __package__) for name, module in FIGURES.items()}
    while more := {need for name in wanted for need in modules[name].NEEDS} - set(wanted):
        wanted += sorted(more)
    return [modules[name] for name in FIGURES if name in wanted]


def run_figure(figure: ModuleType, lab: Lab, facts: dict[str, Any]) -> None:
    """Make the missing trials of a figure and write its summary."""
    began, cpu_began = time.monotonic(), lab.pool.cpu_seconds
    if figure.KEY:  # else the figure has no trials of its own
        with lab.open(figure, verbose=False) as ledger:
            if hasattr(figure, "run"):
                figure.run(lab, ledger)
            else:
                lab.collect(figure, _items(figure, lab), ledger)
            ledger.sort()
    records = lab.records(figure) if figure.KEY else ()
    write_summary(lab.summary(figure), figure.summarise(records))
    _add_times(facts, figure, time.monotonic() - began, lab.pool.cpu_seconds - cpu_began)
    write_facts(lab.out, facts)


def _wants_digits(figure: ModuleType) -> bool:
    return "digits" in inspect.signature(figure.items).parameters


def _items(figure: ModuleType, lab: Lab) -> list[Item]:
    extra = {"digits": lab.digits} if _wants_digits(figure) else {}
    return figure.items(figure.CONFIG[lab.preset], **extra)


def _read(path: Path, check: Callable[[Any], None]) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        check(content)
        return content
    except (ValueError, OSError, RecursionError) as error:
        raise ValueError(f"{path} cannot be read ({error}); run the same again, which rewrites it") from None


def _check_summary(content: Any) -> None:
    if not isinstance(content, dict):
        raise ValueError("it is no summary")


# --- how long it will take -------------------------------------------------------------------------------------------
class TimedSample:
    """A random sample of a figure's trials of one kind; their time tells how long all trials of this kind will take."""

    def __init__(self, figure: ModuleType, items: list[Item]) -> None:
        self.figure = figure
        self.items = [items[i] for i in np.random.default_rng(0).permutation(len(items))]
        self.records: list[Item] = []
        self.spent = self.cpu_spent = 0.0  # seconds, summed over workers

    @property
    def stays(self) -> bool:
        """Whether the figure will make these very trials; not known if its trials depend on the outcome of others."""
        return not hasattr(self.figure, "run")

    @property
    def left(self) -> float:
        """Seconds, summed over workers, that the remaining trials of this kind will take."""
        made = len(self.records)
        return self.spent / made * (len(self.items) - made * self.stays)


def estimate(chosen: Sequence[ModuleType], lab: Lab, facts: dict[str, Any]) -> str:
    """How long the missing trials will take, judged by some trials of every kind, which are kept."""
    samples = [sample for figure in chosen if figure.KEY for sample in _samples(figure, lab)]
    if not samples:
        return ""
    jobs = lab.pool.jobs
    while any(wanted := _wanted(samples, BUDGET[lab.preset] * jobs)):
        turns = [(sample, item) for sample, items in zip(samples, wanted, strict=True) for item in items]
        work = [(lab.worker(sample.figure), item) for sample, item in turns]
        for (sample, _), (record, seconds, cpu_seconds) in zip(turns, lab.pool.map(timed, work), strict=True):
            sample.records.append(record)
            sample.spent += seconds
            sample.cpu_spent += cpu_seconds
    parts: dict[str, float] = {}
    for sample in samples:
        parts[sample.figure.NUMBER] = parts.get(sample.figure.NUMBER, 0.0) + sample.left / jobs
        if sample.stays:
            with lab.open(sample.figure, verbose=False) as ledger:
                ledger.append(sample.records)
            _add_times(facts, sample.figure, sample.spent / jobs, sample.cpu_spent)
    write_facts(lab.out, facts)
    each = ", ".join(f"figure {name} {duration(seconds)}" for name, seconds in parts.items())
    cores, tried = f"{jobs} core{'s' * (jobs > 1)}", sum(len(sample.records) for sample in samples)
    return f"{duration(sum(parts.values()))} on {cores}, judging by {tried:,} trials: {each}"


def _samples(figure: ModuleType, lab: Lab) -> list[TimedSample]:
    kinds: dict[tuple[Any, ...], list[Item]] = {}
    for item in lab.missing(figure, _items(figure, lab)):
        kinds.setdefault(tuple(item.get(name) for name in KINDS), []).append(item)
    return [TimedSample(figure, items) for items in kinds.values()]


def _wanted(samples: Sequence[TimedSample], budget: float) -> list[list[Item]]:
    """The trials that each sample makes next: one at first, then twice as many, until its share of the budget is spent.

    The share of a sample in the budget is its share in the time that is left.
    """
    if not samples[0].records:
        return [sample.items[:1] for sample in samples]
    total = sum(sample.left for sample in samples)
    short = [sample.spent * total < budget * sample.left for sample in samples]
    made = [len(sample.records) for sample in samples]
    return [s.items[n : 2 * n] if more else [] for s, n, more in zip(samples, made, short, strict=True)]


def _add_times(facts: dict[str, Any], figure: ModuleType, wall: float, cpu: float) -> None:
    for name, spent in zip(TIMES, (wall, cpu), strict=True):
        facts[name][figure.NUMBER] = round(facts[name].get(figure.NUMBER, 0.0) + spent, 1)
