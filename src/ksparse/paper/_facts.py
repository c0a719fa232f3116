"""What a run knows of itself: settings, time, machine, and the commit it came from."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from ..sensing.phase import set_aside, write_whole
from ._lab import Lab

FACTS = "run.json"
SAME = ("preset", "seed", "digits")  # what a folder's trials have in common, with the version


def begin(lab: Lab, resume: bool) -> dict[str, Any]:
    """The facts of a run: those of the folder, if it goes on there."""
    path = lab.out / FACTS
    facts = {
        "preset": lab.preset,
        **lab.settings(),
        "digits": lab.digits,
        "commit": _commit(),
        "machine": _machine(lab),
    }
    facts |= {"jobs": lab.pool.jobs, "started": datetime.now(timezone.utc).isoformat(timespec="seconds")}
    facts |= {"seconds": {}, "cpu_seconds": {}}
    try:
        lab.out.mkdir(parents=True, exist_ok=True)
        if resume and (old := _old(path)):
            for name in SAME:
                if old[name] != facts[name]:
                    raise ValueError(
                        f"{path} belongs to a run with {name} {old[name]!r}, not {facts[name]!r}: give another folder, "
                        "or the same settings, or resume=False (--no-resume), which sets the old results aside"
                    )
            facts |= {name: old[name] for name in ("started", "seconds", "cpu_seconds")}
            facts["commit"] = _commits(old.get("commit"), facts["commit"])
        for folder in ("results", "summary", "figures"):
            (lab.out / folder).mkdir(exist_ok=True)
        write_facts(lab.out, facts)
    except OSError as error:
        raise ValueError(f"out must be a folder that can be written, got '{lab.out}' ({error.strerror})") from None
    return facts


def write_facts(out: Path, facts: dict[str, Any]) -> None:
    write_whole(out / FACTS, (json.dumps(facts, indent=1) + "\n").encode())


def _old(path: Path) -> dict[str, Any] | None:
    """The facts that a folder holds; a damaged file is set aside, for trials say themselves where they belong."""
    if not path.exists():
        return None
    try:
        facts = json.loads(path.read_bytes())
        if not all(isinstance(facts[name], kind) for name, kind in _KINDS.items()):
            raise ValueError
        return facts
    except (ValueError, TypeError, KeyError):
        print(f"{path} is damaged: it is kept as {set_aside(path, 'damaged').name}", file=sys.stderr)
        return None


_KINDS = {"preset": str, "seed": int, "digits": str, "started": str, "seconds": dict, "cpu_seconds": dict}


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
