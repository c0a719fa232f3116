"""What every figure is given: a preset, workers, and a file of trials that survives a kill."""

from __future__ import annotations

import functools
import inspect
import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from .._files import disk_is_full, write_whole
from ..sensing.phase import Ledger, Workers, collect, read_records, set_aside, tell_mended

PRESETS = {
    "quick": "coarse grids and few trials, every figure drawn: minutes",
    "standard": "100 trials on the paper's grids: an hour or two",
    "full": "1000 trials, as in the paper: a day",
}
VERDICTS = ("agrees", "differs", "open", "beyond")

Item = dict[str, Any]  # the parameters of a trial: names and plain numbers or texts
Summary = dict[str, Any]  # what a figure's trials amount to, plain enough for JSON


@dataclass(frozen=True)
class Claim:
    """A statement of the paper beside what came out here.

    A verdict is "agrees", "differs", "open" (the trials that were run do not decide it) or "beyond" (the paper does
    not claim it).  Where we differ, `reason` says by how much and what the likely reason is.
    """

    claim: str
    paper: str
    ours: str
    verdict: str
    reason: str = ""

    def __post_init__(self) -> None:
        assert self.verdict in VERDICTS, self.verdict


@dataclass
class Lab:
    """The trials of figures, done in parallel and written down as they come.

    Parameters
    ----------
    preset : one of PRESETS
    out : folder
        Trials are in ``out/results/figure<NUMBER>.jsonl``.
    pool : workers
    seed : int
    digits : str
        The name of the set of digits.
    context : dict
        What trials need and records do not hold, such as the folder of a data set: arguments for every trial that has
        a parameter of that name.
    """

    preset: str
    out: Path
    pool: Workers
    seed: int = 0
    digits: str = ""
    context: dict[str, Any] = field(default_factory=dict)
    verbose: bool = True

    def path(self, figure: ModuleType) -> Path:
        return self.out / "results" / f"figure{figure.NUMBER}.jsonl"

    def settings(self) -> Item:
        """In front of every record."""
        from .. import __version__

        return {"version": __version__, "seed": self.seed}

    def summary(self, figure: ModuleType) -> Path:
        return self.out / "summary" / f"figure{figure.NUMBER}.json"

    def open(self, figure: ModuleType, verbose: bool = True) -> Ledger:
        """The file of a figure's trials, mended if need be."""
        path = self.path(figure)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            ledger = Ledger(path, figure.KEY, figure.KEEP, functools.partial(_check, self.settings()))
        except OSError as error:
            raise cannot_write(self.out, error) from None
        except OtherSettings as error:
            raise ValueError(
                f"{path} holds trials of other settings: {error}. Give another folder, or resume=False (--no-resume), "
                "which sets the old results aside"
            ) from None
        tell_mended(ledger, verbose and self.verbose)
        return ledger

    def set_aside(self, figure: ModuleType) -> None:
        """Give a figure's files, if it has some, other names."""
        for path in (self.path(figure), self.summary(figure)):
            if path.is_file() and path.stat().st_size:
                other = set_aside(path, "old")
                path.unlink()
                if self.verbose:
                    print(f"{path} is now {other.name}", file=sys.stderr)

    def collect(self, figure: ModuleType, items: Iterable[Item], ledger: Ledger, verbose: bool | None = None) -> None:
        """Make the trials of these items that the file does not hold."""
        missing = [(item,) for item in items if _key(figure, item) not in ledger]
        show = self.verbose if verbose is None else verbose
        collect(self.worker(figure), missing, ledger, self.pool, label=f"figure {figure.NUMBER}", verbose=show)

    def missing(self, figure: ModuleType, items: Iterable[Item]) -> list[Item]:
        """Those that are not on disk yet."""
        path = self.path(figure)
        known = {_key(figure, record) for record in read_records(path)} if path.exists() else set()
        return [item for item in items if _key(figure, item) not in known]

    def worker(self, figure: ModuleType) -> Callable[[Item], Item]:
        return functools.partial(_record, figure.trial, self.settings(), self.context)

    def records(self, figure: ModuleType) -> Iterator[Item]:
        return read_records(self.path(figure))


def _record(trial: Callable[..., Item], settings: Item, context: dict[str, Any], item: Item) -> Item:
    """The record of a trial: settings, parameters, outcome."""
    wanted = inspect.signature(trial).parameters
    extra = {name: value for name, value in {**settings, **context}.items() if name in wanted}
    return {**settings, **item, **trial(**item, **extra)}


def _key(figure: ModuleType, record: Item) -> tuple[Any, ...]:
    return tuple(record.get(name) for name in figure.KEY)


def cannot_write(out: Path, error: OSError) -> Exception:
    if disk_is_full(error):
        return error
    where = f"{error.filename}: " if error.filename not in (None, str(out)) else ""
    return ValueError(f"out must be a folder that can be written, got '{out}' ({where}{error.strerror})")


class OtherSettings(ValueError):
    """Trials that do not belong together."""


def _check(settings: Item, record: Item) -> None:
    for name, here in settings.items():
        if record.get(name) != here:
            raise OtherSettings(f"{name} is {record.get(name)!r} there and {here!r} here")


def write_summary(path: Path, summary: Summary) -> None:
    """A summary as a line of JSON, which has no word for what is not finite: that is an error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, f"{json.dumps(summary, separators=(',', ':'), allow_nan=False)}\n".encode())


def by_parameters(records: Iterable[Item], names: Sequence[str]) -> dict[tuple[Any, ...], list[Item]]:
    """Records with the same values of these fields, together."""
    groups: dict[tuple[Any, ...], list[Item]] = {}
    for record in records:
        groups.setdefault(tuple(record[name] for name in names), []).append(record)
    return groups


def significant(values: Sequence[float], digits: int = 4) -> list[float | None]:
    """Numbers short enough to be kept: so many digits; None for what is not finite."""
    return [float(f"{value:.{digits}g}") if math.isfinite(value) else None for value in values]
