"""What the benchmarks share beside their works: cells in a JSON file that survives an interruption, and the clock.

A run that is stopped loses the fit under way and nothing else: every cell is written when it is there, and a rerun with
the same file skips the cells that it holds.  A cell remembers which version of its method made it, and is made again by
another one; for ksparse the version is a digest of its sources.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from pathlib import Path

LIBRARIES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
ONE_XLA = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
PACKAGES = ("numpy", "scipy", "scikit-learn", "numba", "abess", "skscope", "jax")
QUICK = 0.2  # seconds: a fit below this is timed several times
FITS = 5


def threads(count):
    """Start this script again with so many threads a library: they read the environment once, when they are loaded."""
    wanted = {**dict.fromkeys(LIBRARIES, str(count)), **({"XLA_FLAGS": ONE_XLA} if count == 1 else {})}
    if any(os.environ.get(name) != value for name, value in wanted.items()):
        os.execvpe(sys.executable, [sys.executable, *sys.argv], {**os.environ, **wanted})


def one_thread():
    threads(1)


def installed(package):
    """Its version, or None."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def ksparse_version():
    """A digest of the sources: the version number does not change with every change."""
    import ksparse

    folder = Path(ksparse.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(path.relative_to(folder).as_posix().encode() + path.read_bytes())
    return f"{ksparse.__version__}+{digest.hexdigest()[:12]}"


def machine():
    """What the numbers were measured with; packages that are not there are left out."""
    versions = {name: version for name in PACKAGES if (version := installed(name))}
    facts = {"processor": platform.machine(), "cores": os.cpu_count(), "python": platform.python_version()}
    return {**facts, "ksparse": ksparse_version(), **versions}


def write_whole(path, text):
    """Write a file in one move: whoever reads it sees the old text or the new one, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".part")
    try:
        with os.fdopen(handle, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)  # mkstemp lets only the owner read
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


class Store:
    """Cells by name, in a JSON file.

    ``made(name, version, make)`` gives the cell of this name, from the file if it holds one of this version, else from
    ``make()``, a dict; it is on disk before the call returns.  With ``again`` the file's cells are made anew.
    Without a path everything stays in memory.
    """

    def __init__(self, path=None, again=False):
        self.path, self.again = path, again
        self.report = json.loads(path.read_text()) if path and path.exists() else {"cells": {}}
        self.fresh = set()
        # packages of which the file has cells may no longer be installed
        self.report["machine"] = {**self.report.get("machine", {}), **machine()}

    @property
    def cells(self):
        return self.report["cells"]

    def holds(self, name, version):
        kept = self.cells.get(name)
        return kept is not None and kept["version"] == version and (name in self.fresh or not self.again)

    def made(self, name, version, make):
        if not self.holds(name, version):
            self.cells[name] = {"version": version, **make()}
            self.fresh.add(name)
            self.write()
        return self.cells[name]

    def note(self, **facts):
        """What belongs to the whole file: sizes, settings."""
        self.report.update(facts)
        self.write()

    def write(self):
        if self.path:
            write_whole(self.path, json.dumps(self.report, indent=1) + "\n")


def timed(fit):
    """What fit() gives, its CPU seconds, and of how many fits they are the median.

    One fit, unless it is quick: then it counts as a warm-up, and five more are timed.
    """

    def once():
        start = time.process_time()
        answer = fit()
        return answer, time.process_time() - start

    answer, seconds = once()
    if seconds >= QUICK:
        return answer, seconds, 1
    return answer, statistics.median(once()[1] for _ in range(FITS)), FITS
