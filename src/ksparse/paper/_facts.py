"""What a run knows of itself: settings, time, machine, and the commit it came from."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from types import ModuleType
from typing import Any

from .._files import write_whole
from ..sensing.phase import locked, set_aside
from ._lab import Lab, cannot_write

FACTS = "run.json"
SAME = ("preset", "version", "seed", "digits")  # what a folder's trials have in common; no digits: None
TIMES = ("seconds", "cpu_seconds")  # by figure


@contextmanager
def alone_in(out: Path) -> Iterator[None]:
    """Make the folder of a run, and keep other runs out of it."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(out, error) from None
    with locked(out):
        yield


def begin(lab: Lab, chosen: Sequence[ModuleType], every: Sequence[ModuleType], resume: bool) -> dict[str, Any]:
    """The facts of a run: those of the folder, if it goes on there.

    Without `resume` the files of the chosen figures are set aside, and those of every figure if they are of other
    settings: a page does not mix them.
    """
    path = lab.out / FACTS
    facts = {
        "preset": lab.preset,
        **lab.settings(),
        "digits": lab.digits or None,
        "commit": _commit(),
        "machine": _machine(lab),
    }
    facts |= {"jobs": lab.pool.jobs, "started": datetime.now(timezone.utc).isoformat(timespec="seconds")}
    facts |= {"seconds": {}, "cpu_seconds": {}}
    try:
        old = _old(path)
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
    if not isinstance(facts, dict) or not all(isinstance(facts.get(name), kind) for name, kind in _KINDS.items()):
        raise ValueError("it does not say what a run says")
    if not all(isinstance(seconds, (int, float)) for name in TIMES for seconds in facts[name].values()):
        raise ValueError("it does not say how long a run took")


def _old(path: Path) -> dict[str, Any] | None:
    """The facts that a folder holds; a damaged file is set aside, for trials say themselves where they belong."""
    if not path.exists():
        return None
    try:
        facts = json.loads(path.read_bytes())
        check_facts(facts)
        return facts
    except (ValueError, RecursionError):
        print(f"{path} is damaged: it is kept as {set_aside(path, 'damaged').name}", file=sys.stderr)
        return None


_KINDS: dict[str, Any] = {
    "preset": str, "version": str, "seed": int, "digits": (str, type(None)), "started": str,
    **dict.fromkeys(TIMES, dict),
}  # fmt: skip


def _commits(old: Any, here: str | None) -> str | None:
    """All commits that made the trials of a folder, in their order: a run may go on with newer sources."""
    known = [part for part in f"{old or ''}, {here or ''}".split(", ") if part]
    return ", ".join(dict.fromkeys(known)) or None


def _machine(lab: Lab) -> str:
    model = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    return f"{os.cpu_count()} cores, {model}, {platform.system()}, Python {platform.python_version()}"


def _commit() -> str | None:
    """The commit of these sources, if they are in a repository of their own."""
    root = Path(__file__).parents[3]
    if not (root / ".git").exists():
        return None
    try:
        git = ["git", "-C", str(root)]
        name = subprocess.run(
            [*git, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=True
        ).stdout
        changed = subprocess.run(
            [*git, "status", "--porcelain", "src"], capture_output=True, text=True, check=True
        ).stdout
        return name.strip() + " with changes" * bool(changed)
    except (OSError, subprocess.CalledProcessError):
        return None
