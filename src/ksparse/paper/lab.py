"""The folder of a run: trials in results/, their summaries in summary/, and the run's settings in run.json.

`Lab` makes the trials of a figure in parallel and writes them to a file that survives a kill.  A `Claim` is a statement
of the paper beside our result.
"""

from __future__ import annotations

import functools
import inspect
import json
import math
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from types import ModuleType
from typing import Any

from .._text import write_whole
from ..sensing.phase import (
    Ledger,
    Workers,
    cannot_write,
    check_settings,
    collect,
    locked,
    open_file,
    read_records,
    set_aside,
)  # fmt: skip

PRESETS = {
    "quick": "coarse grids and few trials, every figure drawn: minutes",
    "standard": "100 trials on the paper's grids: an hour or two",
    "full": "1000 trials, as in the paper: a day",
}
VERDICTS = ("agrees", "differs", "open", "beyond")
FACTS = "run.json"
SAME = ("preset", "version", "seed", "digits")  # facts that all trials of a folder share; None for no digits
TIMES = ("seconds", "cpu_seconds")  # facts that have one entry per figure

Item = dict[str, Any]  # the parameters of a trial: names and plain numbers or texts
Summary = dict[str, Any]  # what a figure's trials amount to, plain enough for JSON


@dataclass(frozen=True)
class Claim:
    """A statement of the paper beside our result.

    A verdict is "agrees", "differs", "open" (the trials that were run do not decide it) or "beyond" (the paper does
    not claim it).  If the result differs, `reason` says by how much and gives the likely reason.
    """

    claim: str
    paper: str
    ours: str
    verdict: str
    reason: str = ""

    def __post_init__(self) -> None:
        assert self.verdict in VERDICTS, self.verdict


def judge(agrees: bool) -> str:
    """The verdict on a claim that the results decide."""
    return "agrees" if agrees else "differs"


@dataclass
class Lab:
    """Makes the trials of figures in parallel and writes each record to disk at once.

    A trial gets those entries of `context` that it has a parameter for: arguments that records do not hold, such as the
    folder of a data set.
    """

    preset: str  # one of PRESETS
    out: Path  # the folder of the run
    pool: Workers  # the processes that make the trials
    seed: int = 0
    digits: str = ""  # the name of the set of digits, if a figure needs one
    context: dict[str, Any] = field(default_factory=dict)
    verbose: bool = True  # print progress to stderr

    def path(self, figure: ModuleType) -> Path:
        return self.out / "results" / f"figure{figure.NUMBER}.jsonl"

    def summary(self, figure: ModuleType) -> Path:
        return self.out / "summary" / f"figure{figure.NUMBER}.json"

    def settings(self) -> Item:
        """The first fields of every record."""
        from .. import __version__

        return {"version": __version__, "seed": self.seed}

    def open(self, figure: ModuleType, verbose: bool = True) -> Ledger:
        """Open the file of a figure's trials, and repair it if it is damaged."""
        keep, check = getattr(figure, "KEEP", ()), functools.partial(check_settings, self.settings())
        return open_file(self.path(figure), self.out, figure.KEY, keep, check, True, verbose and self.verbose)

    def set_aside(self, figure: ModuleType) -> None:
        """Rename the files of a figure, if it has any."""
        for path in (self.path(figure), self.summary(figure)):
            if path.is_file() and path.stat().st_size:
                other = set_aside(path, "old")
                path.unlink()
                if self.verbose:
                    print(f"{path} is now {other.name}", file=sys.stderr)

    def collect(self, figure: ModuleType, items: Iterable[Item], ledger: Ledger, verbose: bool | None = None) -> None:
        """Make the trials of these items that the file does not hold yet."""
        missing = [(item,) for item in items if _key(figure, item) not in ledger]
        show = self.verbose if verbose is None else verbose
        collect(self.worker(figure), missing, ledger, self.pool, label=f"figure {figure.NUMBER}", verbose=show)

    def missing(self, figure: ModuleType, items: Iterable[Item]) -> list[Item]:
        """The items whose trials are not on disk yet."""
        path = self.path(figure)
        known = {_key(figure, record) for record in read_records(path)} if path.exists() else set()
        return [item for item in items if _key(figure, item) not in known]

    def worker(self, figure: ModuleType) -> Callable[[Item], Item]:
        """The function that makes one trial of a figure and returns its record."""
        return functools.partial(_record, figure.trial, self.settings(), self.context)

    def records(self, figure: ModuleType) -> Iterator[Item]:
        return read_records(self.path(figure))


def _record(trial: Callable[..., Item], settings: Item, context: dict[str, Any], item: Item) -> Item:
    """Make a trial; its record is the settings, the parameters and the outcome."""
    wanted = inspect.signature(trial).parameters
    extra = {name: value for name, value in {**settings, **context}.items() if name in wanted}
    return {**settings, **item, **trial(**item, **extra)}


def _key(figure: ModuleType, record: Item) -> tuple[Any, ...]:
    return tuple(record.get(name) for name in figure.KEY)


# --- summaries -------------------------------------------------------------------------------------------------------
def write_summary(path: Path, summary: Summary) -> None:
    """Write a summary as one line of JSON; a number that is not finite is an error, since JSON cannot hold it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, f"{json.dumps(summary, separators=(',', ':'), allow_nan=False)}\n".encode())


def by_parameters(
    records: Iterable[Item], names: Sequence[str], value: str | None = None
) -> dict[tuple[Any, ...], list[Any]]:
    """Group records by these fields; with `value`, keep that field alone of each record."""
    groups: dict[tuple[Any, ...], list[Any]] = {}
    for record in records:
        groups.setdefault(tuple(record[name] for name in names), []).append(record[value] if value else record)
    return groups


def significant(values: Sequence[float], digits: int = 4) -> list[float | None]:
    """Round to this many significant digits, which keeps files short; None for a number that is not finite."""
    return [float(f"{value:.{digits}g}") if math.isfinite(value) else None for value in values]


# --- run.json: settings, machine, commit and times of a run ----------------------------------------------------------
@contextmanager
def alone_in(out: Path) -> Iterator[None]:
    """Make the folder of a run, and lock it against other runs."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(out, error) from None
    with locked(out):
        yield


def begin(lab: Lab, chosen: Sequence[ModuleType], every: Sequence[ModuleType], resume: bool) -> dict[str, Any]:
    """Write the facts of a run, and return them; a run that continues keeps the facts of its folder.

    Without `resume` the files of the chosen figures are set aside.  If the folder holds results of other settings, the
    files of every figure are, since a page must not mix them.
    """
    path = lab.out / FACTS
    facts: dict[str, Any] = {
        "preset": lab.preset,
        **lab.settings(),
        "digits": lab.digits or None,
        "commit": _commit(),
        "machine": _machine(),
        "jobs": lab.pool.jobs,
        "started": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        **{name: {} for name in TIMES},
    }
    try:
        old = _old_facts(path)
        other = [name for name in SAME if old and old[name] != facts[name] and None not in (old[name], facts[name])]
        if resume and old and other:
            raise ValueError(
                f"{path} belongs to a run with {other[0]} {old[other[0]]!r}, not {facts[other[0]]!r}: give another "
                "folder, or the same settings, or resume=False (--no-resume), which sets the old results aside"
            )
        if not resume:
            for figure in chosen if old and not other else every:
                lab.set_aside(figure)
        if old and not other:
            again = set() if resume else {figure.NUMBER for figure in chosen}
            facts |= {"started": old["started"], "digits": facts["digits"] or old["digits"]}
            facts["commit"] = _commits(old.get("commit"), facts["commit"])
            facts |= {name: {n: s for n, s in old[name].items() if n not in again} for name in TIMES}
        for folder in ("results", "summary", "figures"):
            (lab.out / folder).mkdir(exist_ok=True)
        write_facts(lab.out, facts)
    except OSError as error:
        raise cannot_write(lab.out, error) from None
    return facts


def write_facts(out: Path, facts: dict[str, Any]) -> None:
    write_whole(out / FACTS, (json.dumps(facts, indent=1) + "\n").encode())


def check_facts(facts: Any) -> None:
    """Raise if these are not the facts of a run."""
    types: dict[str, Any] = {"preset": str, "version": str, "seed": int, "digits": (str, type(None)), "started": str}
    types |= dict.fromkeys(TIMES, dict)
    if not isinstance(facts, dict) or not all(isinstance(facts.get(name), kind) for name, kind in types.items()):
        raise ValueError("it does not hold the settings of a run")
    if not all(isinstance(seconds, (int, float)) for name in TIMES for seconds in facts[name].values()):
        raise ValueError("it does not say how long the run took")


def _old_facts(path: Path) -> dict[str, Any] | None:
    """The facts that a folder holds; a damaged file is set aside, since the trials hold their settings themselves."""
    if not path.exists():
        return None
    try:
        facts = json.loads(path.read_bytes())
        check_facts(facts)
        return facts
    except (ValueError, RecursionError):
        print(f"{path} is damaged: it is kept as {set_aside(path, 'damaged').name}", file=sys.stderr)
        return None


def _commits(old: Any, here: str | None) -> str | None:
    """All commits that made the trials of a folder, in order: a run may continue with newer sources."""
    known = [part for part in f"{old or ''}, {here or ''}".split(", ") if part]
    return ", ".join(dict.fromkeys(known)) or None


def _machine() -> str:
    model = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    return f"{os.cpu_count()} cores, {model}, {platform.system()}, Python {platform.python_version()}"


def _commit() -> str | None:
    """The commit of these sources, if they are in a git repository of their own."""
    root = Path(__file__).parents[3]
    if not (root / ".git").exists():
        return None

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", "--no-optional-locks", "-C", root, *arguments], capture_output=True, text=True, check=True
        ).stdout

    try:
        changed = git("status", "--porcelain", "src")
        return git("rev-parse", "--short=12", "HEAD").strip() + " with changes" * bool(changed)
    except (OSError, subprocess.CalledProcessError):
        return None
