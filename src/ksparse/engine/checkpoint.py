"""Checkpoints: the state of fits in a file, from which a fit that was killed continues.

The file has one JSON object per line: a header with the identity; every run (a call of a solver), in order, with its
result or the state after its last stage; and a checksum of all lines before.  Arrays are base64 text.  The file
holds no code.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import os
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import numpy as np

from .. import __version__
from .._files import disk_is_full, open_locked, replace_locked

FORMAT = "ksparse checkpoint 2"
PAUSE, SHARE = 0.1, 20.0  # between two writes: seconds, and multiples of the time that the last one took
TOLERANCE = 1e-9  # of a sum: what threads and machines may round differently
REMEDY = "remove the file or give another checkpoint"

Dict = dict[str, Any]


@contextmanager
def checkpoint(path: str | Path, identity: Dict | None = None, *, keep: bool = False) -> Iterator[Checkpoint]:
    """Let the fits in a ``with`` block continue where they were, if they are killed and the same lines are run again.

    Every run of a solver in the block (`minimize`, `joint`, the fits of estimators, of `k_path`, of cross-validation)
    is written to one file: its state after every stage, but not more than ten times a second, and in the end its
    result.  When the block is entered again, runs that had ended are answered from the file, and the one that was under
    way continues from its state.  The result is that of an undisturbed fit: bit for bit for the gradient methods
    (`HTSVRG`, `StoIHT`, `PGD`, `IHT`, `NIHT`), up to rounding for `Exchange` and `JointExchange`.  `HTSAGA` and the
    other pursuits are started anew, from the same random numbers.

    Parameters
    ----------
    path : str or Path
        The file.  It is replaced in one move, so that a kill at any moment leaves the old state or the new one.
    identity : dict, default=None
        What is fitted, in your own words and numbers: the name and size of a data file, options.  What the solvers are
        given (rows, k, loss, targets, weights, settings, seed) is compared in any case: every run begins with a pass
        that computes a digest of the rows, so that other rows, or the same ones in another order, are refused.
    keep : bool, default=False
        Leave the file when the block has ended without an exception.  By default it is removed then, and running the
        same lines again is a new fit: so save the model inside the block.

    Yields
    ------
    Checkpoint
        Its `resumed` says what was found in the file; None for a new file.

    Raises
    ------
    ValueError
        If the file was made by another fit (it says what differs), is damaged, is no checkpoint, is in use by another
        process, or cannot be written.  Nothing is changed then.
    OSError
        If the disk is full when the block begins, or when it ends and the file is to stay.

    Notes
    -----
    The file stays if the block is left by an exception, and if a run ended by Ctrl-C or by `max_time`: the fit has then
    given its best point so far, and the same lines go on.  After Ctrl-C nothing more is recorded, whatever else is
    fitted in the block; after `max_time` other fits may follow, and then its result stands.  Time that a run took
    before it was killed counts towards `max_time`; once that is over, the next call has all of it again.

    A fit in another thread or process (``n_jobs`` of 2 and more), or inside a callback, is not recorded: it is
    repeated.  A callback is called for the stages from there on; `Result.history` shows all.

    Examples
    --------
    >>> import numpy as np
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from ksparse import KSparseRegressor, checkpoint
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((100, 20))
    >>> folder = TemporaryDirectory()
    >>> with checkpoint(Path(folder.name) / "fit.checkpoint", {"data": "made up"}) as saved:
    ...     model = KSparseRegressor(k=2).fit(X, X[:, 3] - X[:, 7])
    >>> model.support_, saved.resumed
    (array([3, 7]), None)
    >>> folder.cleanup()
    """
    book = Checkpoint(path, identity)
    token = active.set(book)
    try:
        yield book
    except BaseException:
        try:
            book._close(remove=False)
        except OSError as error:  # the first error is the one to raise
            book._warn(error, "it holds what was written before")
        raise
    else:
        book._close(remove=not keep)
    finally:
        active.reset(token)


def _check_path(path: Any) -> Path:
    """The path with links resolved; folders, devices and pipes are refused, since the file is replaced as a whole."""
    if not isinstance(path, str | os.PathLike):
        raise ValueError(f"checkpoint must be the path of a file, got {path!r}")
    found = Path(path).resolve()
    if found.is_dir():
        raise ValueError(f"checkpoint must be a file, and {path} is a folder; give a name in it")
    if found.exists() and not found.is_file():
        raise ValueError(f"checkpoint must be a file, and {path} is a device or a pipe; give another name")
    return found


class Checkpoint:
    """The file of a `checkpoint` block while it is open.

    Attributes
    ----------
    path : Path
    resumed : str or None
        What was found: "3 runs done, run 4 goes on from stage 12"; None for a new file.
    """

    def __init__(self, path: str | Path, identity: Dict | None) -> None:
        self.path = _check_path(path)
        self.resumed: str | None = None
        self._header: Dict = {"format": FORMAT, "ksparse": __version__, "identity": _check_identity(identity)}
        self._entries: list[Entry] = []
        self._next = 0
        self._busy = self._shut = False  # a run is under way; nothing more is recorded
        self._owner = _here()
        self._written, self._took = time.perf_counter(), 0.0
        if not self.path.parent.is_dir():
            raise ValueError(f"checkpoint {self.path}: there is no folder {self.path.parent}; make it first")
        new = not self.path.exists()
        try:
            self._file = open_locked(self.path, "give another checkpoint")
            try:
                self._read(self.path.read_bytes())
                self._write()  # fail before any work if it cannot be written
            except BaseException:
                if new:
                    self.path.unlink(missing_ok=True)
                os.close(self._file)
                raise
        except OSError as error:
            if disk_is_full(error):
                raise
            raise ValueError(
                f"checkpoint {self.path} cannot be written ({error.strerror}); give one in a folder of your own"
            ) from None

    # --- runs ----------------------------------------------------------------------------------------------------
    def begin(self, fingerprint: Callable[[], Dict]) -> Entry | None:
        """The entry of the next run; None if it is not recorded."""
        if self._busy or self._shut or self._owner != _here():
            return None
        if self._next:
            self._entries[self._next - 1].settle()
        solved = json.loads(json.dumps(encoded(fingerprint())))
        if self._next == len(self._entries):
            self._entries.append(Entry(self, solved))
        entry = self._entries[self._next]
        self._next += 1
        others = [*_differences(entry.solved, solved)]
        if others:
            what = "; ".join(others)
            raise ValueError(f"checkpoint {self.path} was made by another fit: in run {self._next} {what}; {REMEDY}")
        self._busy = True
        return entry

    def _close(self, remove: bool) -> None:
        last = self._entries[self._next - 1] if self._next else None
        try:
            if (remove and not (last is not None and last.cut) and not self._shut) or not self._entries:
                self.path.unlink(missing_ok=True)
            else:
                self._write()
        finally:
            os.close(self._file)

    # --- the file ------------------------------------------------------------------------------------------------
    def _read(self, content: bytes) -> None:
        if not content:
            return
        if not content.startswith(b'{"format": "ksparse checkpoint '):
            raise ValueError(f"{self.path} is no checkpoint of ksparse; give another file")
        *lines, last, _ = [b"", *content.split(b"\n")]
        try:
            if json.loads(last)["sha256"] != _digest(lines[1:]):
                raise ValueError
            header, *runs = [json.loads(line) for line in lines[1:]]
            self._entries = [Entry(self, run["solved"], **decoded(run["told"])) for run in runs]
            others = [*_differences(header["identity"], self._header["identity"])]
            for name in ("format", "ksparse"):
                if header[name] != self._header[name]:
                    others.append(f"it is of {header[name]}, and this is {self._header[name]}")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise ValueError(f"checkpoint {self.path} is damaged: it was cut short or changed; {REMEDY}") from None
        if others:
            raise ValueError(f"checkpoint {self.path} was made by another fit: {'; '.join(others)}; {REMEDY}")
        done = sum(entry.result is not None for entry in self._entries)
        said = [f"{done} {'run' if done == 1 else 'runs'} done"] if done else []
        if done < len(self._entries):
            said.append(f"run {done + 1} goes on from stage {self._entries[done].stage}")
        self.resumed = ", ".join(said) or "nothing was done yet"

    def _write(self) -> None:
        began = time.perf_counter()
        lines = [json.dumps(self._header).encode(), *(entry.line() for entry in self._entries)]
        lines.append(json.dumps({"sha256": _digest(lines)}).encode())
        replace_locked(self.path, b"\n".join(lines) + b"\n", self._file, "give another checkpoint")
        self._written = time.perf_counter()
        self._took = self._written - began

    def _write_if_due(self) -> None:
        if time.perf_counter() - self._written < max(PAUSE, SHARE * self._took):
            return
        try:
            self._write()
        except OSError as error:  # a full disk must not end days of work
            self._written = time.perf_counter()
            self._warn(error, "the fit goes on")

    def _warn(self, error: OSError, then: str) -> None:
        warnings.warn(f"checkpoint {self.path} could not be written ({error.strerror}); {then}", stacklevel=3)


class Entry:
    """A run in a checkpoint: what it solves, the state it has, or the result."""

    def __init__(
        self, book: Checkpoint, solved: Dict, state: Dict | None = None, result: Dict | None = None, first: Any = None
    ) -> None:
        self.book, self.solved = book, solved
        self.state, self.result = state, result
        self.first = first  # the random numbers' state at the start
        self.cut: Dict | None = None  # the result of a run that ended before its time
        self._line = b""  # of a result: it does not change any more

    @property
    def stage(self) -> int:
        return 0 if self.state is None else int(self.state["stage"])

    def __enter__(self) -> Entry:
        return self

    def __exit__(self, *error: object) -> None:
        self.book._busy = False

    def keep(self, state: Dict) -> None:
        """Record the state after a stage; the caller may append to its list of records later."""
        self.state = state
        self.book._write_if_due()

    def end(self, result: Dict) -> None:
        """Record the result."""
        self.result, self.state = result, None
        self.book._write_if_due()

    def end_early(self, result: Dict, interrupted: bool) -> None:
        """The run was cut short: its state stays, so that the next call goes on."""
        self.cut = result
        self.book._shut |= interrupted

    def settle(self) -> None:
        """Another run follows: a result that was cut short stands."""
        if self.cut is not None:
            self.result, self.state, self.cut = self.cut, None, None

    def line(self) -> bytes:
        if self._line:
            return self._line
        state = self.state
        if state is not None:  # there may be many records, and they are all numbers
            state = {**state, "records": np.array(state["records"][: self.stage + 1], dtype=np.float64)}
        told = {"result": self.result} if self.result is not None else {"state": state, "first": self.first}
        line = json.dumps({"solved": self.solved, "told": encoded(told)}).encode()
        if self.result is not None:
            self._line = line
        return line


active: ContextVar[Checkpoint | None] = ContextVar("checkpoint", default=None)  # the one whose block we are in


def _here() -> tuple[int, int]:
    return os.getpid(), threading.get_ident()


def _digest(lines: list[bytes]) -> str:
    return hashlib.sha256(b"\n".join(lines)).hexdigest()


# --- what is compared ------------------------------------------------------------------------------------------------
def _check_identity(identity: Any) -> Dict:
    if identity is not None and not isinstance(identity, dict):
        raise ValueError(f"identity must be a dict, got {identity!r}")
    try:
        return json.loads(json.dumps(identity or {}, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise ValueError(f"identity must hold plain strings, numbers, lists and dicts ({error})") from None


def sums(values: Any) -> list[float]:
    """Numbers to compare vectors by, without storing them: the length and three sums, one of them weighted by place."""
    vector = np.ravel(values)
    block = np.cos(np.arange(min(vector.size, 1 << 16)))
    size = total = turned = 0.0
    for number, start in enumerate(range(0, vector.size, 1 << 16)):
        part = vector[start : start + (1 << 16)].astype(np.float64)
        size, total = size + float(np.abs(part).sum()), total + float(part.sum())
        turned += math.cos(number) * float(part @ block[: part.size])
    return [float(vector.size), size, total, turned]


def _differences(old: Dict, new: Dict) -> Iterator[str]:
    for name in {**old, **new}:
        before, now = old.get(name), new.get(name)
        if not _same(before, now):
            plain = not isinstance(before, list | dict) and not isinstance(now, list | dict)
            yield f"{name} is {now!r} and was {before!r}" if plain else f"{name} differs"


def _same(before: Any, now: Any) -> bool:
    """Whether two entries are equal; those of `sums`, up to rounding."""
    if before == now:
        return True
    if not (isinstance(before, list) and isinstance(now, list) and len(before) == len(now) == 4):
        return False
    if not all(isinstance(number, float) for number in (*before, *now)) or before[0] != now[0]:
        return False
    return all(abs(one - other) <= TOLERANCE * before[1] for one, other in zip(before, now, strict=True))


# --- what JSON cannot hold -------------------------------------------------------------------------------------------
def encoded(value: Any) -> Any:
    """As plain JSON; arrays, bytes and numbers that are not finite become dicts."""
    if isinstance(value, dict):
        return {name: encoded(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [encoded(entry) for entry in value]
    if isinstance(value, np.ndarray):
        return {"$array": value.dtype.str, "shape": list(value.shape), "data": _text(value.tobytes())}
    if isinstance(value, bytes):
        return {"$bytes": _text(value)}
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return {"$float": repr(value)}
    return value


def decoded(value: Any) -> Any:
    """The inverse of `encoded`, except that tuples are now lists."""
    if isinstance(value, list):
        return [decoded(entry) for entry in value]
    if not isinstance(value, dict):
        return value
    if "$array" in value:
        dtype = np.dtype(value["$array"])
        if dtype.kind not in "biuf":
            raise ValueError("not an array of numbers")
        return np.frombuffer(base64.b64decode(value["data"]), dtype).reshape(value["shape"]).copy()
    if "$bytes" in value:
        return base64.b64decode(value["$bytes"])
    if "$float" in value:
        return float(value["$float"])
    return {name: decoded(entry) for name, entry in value.items()}


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode()
