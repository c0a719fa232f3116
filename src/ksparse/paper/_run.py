"""The run of all figures: trials, summaries, pictures, page."""

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

from .._progress import duration
from .._validate import check_choice, check_count, check_flag
from ..report.template import check_tools
from ..sensing.phase import interruptible, make_pool, timed
from . import _digits
from ._facts import FACTS, TIMES, alone_in, begin, check_facts, write_facts
from ._lab import PRESETS, Item, Lab, write_summary
from ._page import write_page
from ._verdict import rules

# in the order of a run: a figure comes after those that it needs
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
KINDS = ("algorithm", "method", "panel", "rule")  # parameters that make trials of a figure much longer or shorter
BUDGET = {"quick": 3.0, "standard": 40.0, "full": 40.0}  # seconds for an estimate


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

    Parameters
    ----------
    preset : "quick", "standard" or "full"
        Coarse grids and few trials (minutes); 100 trials on the paper's grids (an hour or so on two cores); 1000.
    out : path
        A folder: ``results/`` gets every trial as it comes, ``summary/`` what they amount to, ``figures/`` vector
        graphics, and ``index.html`` is the page.  A run that was stopped or killed goes on when it is called again,
        and ends with the same bytes in ``results/``.
    figures : str or names, optional
        Some of the figures, such as ["1", "4", "8"] or "1,4,8"; figures whose trials they need are run too.
        All by default.
    mnist : path or "openml", optional
        The folder with MNIST's four files, which are checked; "openml" downloads.  Without it the figures of digits
        are made from scikit-learn's small ones, and the page says so.
    resume : bool
        False: results of these figures that are there are set aside under other names; those of all figures, if they
        are of another preset, seed, version or set of digits.
    jobs : int
        Processes; all cores by default.
    scheduler : str, optional
        The address of a Dask scheduler, whose workers make the trials instead.
    seed : int
        The same seed gives the same trials.
    verbose : bool
        An estimate, progress and the time left, on stderr.

    Returns
    -------
    Path
        The page.
    """
    check_tools()  # now, not after hours of trials
    check_choice(preset, "preset", PRESETS)
    check_flag(resume, "resume")
    chosen = choose(figures)
    jobs = None if jobs is None else check_count(jobs, "jobs")
    folder = None if mnist is None else str(mnist)
    digits = _digits.name_of(folder) if any(map(_wants_digits, chosen)) else ""
    if digits:
        _digits.load(folder)  # a wrong file is found now, too
    seed, out = check_count(seed, "seed", low=0), Path(out)
    with make_pool(jobs, scheduler) as pool, alone_in(out), interruptible(out, resume):
        lab = Lab(preset, out, pool, seed, digits, {"digits_folder": folder}, verbose)
        facts = begin(lab, chosen, choose(None), resume)
        for figure in chosen:
            if figure.KEY:
                lab.open(figure).close()  # mends it, or says what is wrong with it
        if verbose and (text := estimate(chosen, lab, facts)):
            print(text, file=sys.stderr, flush=True)
        for figure in chosen:
            run_figure(figure, lab, facts)
        return draw(out)


def draw(out: str | Path) -> Path:
    """Draw all figures of a folder and write its page, from summaries; nothing is run."""
    out = Path(out)
    summaries = {}
    modules = choose(None)
    for figure in modules:
        path = out / "summary" / f"figure{figure.NUMBER}.json"
        if path.exists():
            summaries[figure.NUMBER] = _read(path, _check_summary)
    if not summaries:
        raise ValueError(f"out must be a folder with a summary, got '{out}'; run the experiments first")
    facts = {**(_read(out / FACTS, check_facts) if (out / FACTS).exists() else {}), "rules": rules(summaries.get("1"))}
    shown = sorted((figure for figure in modules if figure.NUMBER in summaries), key=_place)
    return write_page(out, shown, summaries, facts)


def _place(figure: ModuleType) -> int:
    """Figures of the paper stand in their order, between its bounds and what is beyond it."""
    return int(figure.NUMBER) if figure.NUMBER.isdigit() else 0 if figure.NUMBER == "theory" else len(FIGURES)


def choose(figures: str | Iterable[str] | None) -> list[ModuleType]:
    """The modules of these figures and of all that they need, in order."""
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
    began, cpu_began = time.monotonic(), lab.pool.cpu_seconds
    if figure.KEY:  # else it is drawn from what others found
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


def _read(path: Path, check: Callable[[Any], None]) -> Any:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        check(content)
        return content
    except (ValueError, OSError, RecursionError) as error:
        raise ValueError(f"{path} cannot be read ({error}); run the same again, which writes it anew") from None


def _check_summary(content: Any) -> None:
    if not isinstance(content, dict):
        raise ValueError("it is no summary")


# --- how long it will take -------------------------------------------------------------------------------------------
class Sample:
    """Some trials of one kind of a figure, at random, which tell how long all of these will take."""

    def __init__(self, figure: ModuleType, items: list[Item]) -> None:
        self.figure = figure
        self.items = [items[i] for i in np.random.default_rng(0).permutation(len(items))]
        self.records: list[Item] = []
        self.spent = self.cpu_spent = 0.0  # seconds of all workers together

    @property
    def stays(self) -> bool:
        """Whether its trials are some of those that the figure makes; which those are may depend on their outcomes."""
        return not hasattr(self.figure, "run")

    @property
    def left(self) -> float:
        """Seconds of all workers together, for the trials that are still to be made."""
        made = len(self.records)
        return self.spent / made * (len(self.items) - made * self.stays)


def estimate(chosen: Sequence[ModuleType], lab: Lab, facts: dict[str, Any]) -> str:
    """How long the trials that are missing will take, from some of every kind, made by the very workers and kept."""
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


def _samples(figure: ModuleType, lab: Lab) -> list[Sample]:
    kinds: dict[tuple[Any, ...], list[Item]] = {}
    for item in lab.missing(figure, _items(figure, lab)):
        kinds.setdefault(tuple(item.get(name) for name in KINDS), []).append(item)
    return [Sample(figure, items) for items in kinds.values()]


def _wanted(samples: Sequence[Sample], budget: float) -> list[list[Item]]:
    """The trials that each sample makes next: one, then twice as many, until it has spent its share of the budget.

    That share is its share of the time still to be spent.
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
