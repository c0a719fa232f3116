"""How many cores this process may use: the affinity mask, the CPU quota of its container, and KSPARSE_NUM_THREADS."""

from __future__ import annotations

import functools
import math
import os
from pathlib import Path, PurePosixPath

VARIABLE = "KSPARSE_NUM_THREADS"


def cores() -> int:
    """The cores that this process may keep busy: what KSPARSE_NUM_THREADS says, or else those that it is given.

    That is the affinity mask, or the quota of the container if that is less; half a core counts as one.
    """
    asked = os.environ.get(VARIABLE, "").strip()
    if not asked:
        return given_cores()
    if not asked.isdecimal() or int(asked) < 1:
        raise ValueError(f"{VARIABLE} must be a whole number of at least 1, got {asked!r}; unset it to use all cores")
    return int(asked)


@functools.cache
def given_cores() -> int:
    """The cores in the affinity mask, or the quota of the container if that is less."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = cpu_quota(Path("/"))
    return allowed if quota == math.inf else max(1, min(allowed, math.ceil(quota)))


def cpu_quota(root: Path) -> float:
    """The cores' worth of time that control groups (version 1 or 2) allow this process; infinite if they do not say.

    A group has at most what the groups above it have.  `root` is the root of the file system.
    """
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return math.inf
    mount, found = root / "sys/fs/cgroup", math.inf
    for line in lines:
        _, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if names == "":  # version 2, where it is alone or beside version 1
            folders, read = [mount, mount / "unified"], _quota_2
        elif "cpu" in names.split(","):
            folders, read = [mount / names, mount / "cpu"], _quota_1
        else:
            continue
        inside = PurePosixPath(path.lstrip("/"))
        for folder in folders:  # inside a container the path may be that of the host: then its own group is the mount
            found = min([found, *(read(folder / part) for part in (inside, *inside.parents))])
    return found


def _quota_2(folder: Path) -> float:
    quota, period = [*_words(folder / "cpu.max"), "max", "100000"][:2]
    return _ratio(quota, period)


def _quota_1(folder: Path) -> float:
    quota, period = _words(folder / "cpu.cfs_quota_us"), _words(folder / "cpu.cfs_period_us")
    return _ratio(quota[0], period[0]) if quota and period else math.inf


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []


def _ratio(quota: str, period: str) -> float:
    """Quota over period; infinite for "max", −1 and what is no number."""
    try:
        return int(quota) / int(period) if int(quota) > 0 and int(period) > 0 else math.inf
    except ValueError:
        return math.inf
