"""What surrounds the work of a command: what it prints, its files, exit codes and errors in one line, notes, Ctrl-C.

Files are checked before the work begins, so that a long fit does not end with a file that cannot be written.  Messages
of the library name arguments (`always_keep`, ``missing='mean'``); here they become options.
"""

from __future__ import annotations

import ast
import csv
import io
import json
import os
import re
import shlex
import signal
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from .._files import disk_is_full

EVERY = 10.0  # seconds between lines of progress where there is no terminal
NOTHING = "nothing was written"

RENAMED = {"always_keep": "--keep", "random_state": "--seed", "k": "-k", "K": "-K"}
OPTIONS = RENAMED | {
    name: f"--{name.replace('_', '-')}"
    for name in (
        "algorithm", "batch_size", "cache", "categories", "columns", "delimiter", "drop", "ensemble", "figures",
        "format", "jobs", "l2", "loss", "matrix", "max_time", "memory", "missing", "na", "out", "preset", "radius",
        "rate", "seed", "signal", "success", "target", "trials",
    )
}  # fmt: skip
FIT_ONLY = re.compile(r"--(?:categories|delimiter|drop|missing|na)\b")
LEADING = re.compile(r"^(\w+)(?=: | must | is for | names )")
TEXT = r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\""
ASSIGNED = re.compile(rf"(?<![\w-])({'|'.join(OPTIONS)})=(?:\[({TEXT})\]|({TEXT})|(\w*))")


# --- the standard output ---------------------------------------------------------------------------------------------
@contextmanager
def standard_output() -> Iterator[None]:
    """Around writes to the standard output: an error names it, and Python does not try to write again when it ends."""
    try:
        yield
    except BrokenPipeError:  # the reader has gone: typer ends quietly
        raise
    except OSError as error:
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise OSError(error.errno, error.strerror, error.filename or "the standard output") from None


def show(text: str) -> None:
    """Print and flush, so that a failure is known while the command can still say what it means."""
    with standard_output():
        print(text, flush=True)


def say(text: str) -> None:
    """Print text that contains names from files, whatever characters the terminal knows."""
    if hasattr(sys.stdout, "reconfigure"):
        with standard_output():  # `reconfigure` flushes
            sys.stdout.reconfigure(errors="backslashreplace")
    show(printable(text))


def json_text(facts: Any) -> str:
    """One JSON object as text; infinity and NaN become null."""
    from .._text import jsonable

    return json.dumps(jsonable(facts), indent=2)


def printable(text: str) -> str:
    """The text with control characters escaped: names come from untrusted files and could command a terminal.

    >>> printable("a\\x1b[2Jb")
    'a\\\\x1b[2Jb'
    """
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)


def one_line(name: str) -> str:
    """A name as a cell of a table.

    >>> print(one_line("a\\nb"))
    a\\nb
    """
    return printable(name).replace("\n", "\\n")


# --- files -----------------------------------------------------------------------------------------------------------
def check_outputs(inputs: list[str], **paths: str | None) -> dict[str, Path]:
    """The paths of the options that are given, with links followed.

    Refused are folders, files in folders that do not exist, files without permission to write, one file for two
    options, and files that the command reads.
    """
    found: dict[str, Path] = {}
    for option, given in paths.items():
        if given is None:
            continue
        name = f"--{option.replace('_', '-')}"
        path = Path(os.path.realpath(given))
        if given in ("", "-") or path.is_dir() or given.endswith(os.sep):
            raise ValueError(f"{name} must be a file, got {given!r}{', which is a folder' * path.is_dir()}")
        if problem := _cannot_be_written(path):
            raise ValueError(f"{name} {given!r} cannot be written: {problem}")
        try:
            tempfile.TemporaryFile(dir=path.parent).close()
        except OSError as error:
            if disk_is_full(error):
                raise OSError(error.errno, error.strerror, given) from None
            raise ValueError(f"{name} {given!r} cannot be written: {(error.strerror or str(error)).lower()}") from None
        for other, taken in found.items():
            if taken == path:
                raise ValueError(f"{name} and --{other} are the same file, {given!r}; give each its own")
        for source in inputs:
            read = Path(os.path.realpath(source))
            same = path.exists() and read.exists() and path.samefile(read)
            if source != "-" and (same or path == read or read in path.parents):
                raise ValueError(f"{name} {given!r} would be written over what is read, {source!r}; take another name")
        found[option] = path
    return found


def _cannot_be_written(path: Path) -> str:
    """Why not; empty if it seems possible."""
    if not path.parent.is_dir():
        return f"the folder {str(path.parent)!r} is not there"
    if not path.exists():
        return ""
    return "it is no plain file" if not path.is_file() else "" if os.access(path, os.W_OK) else "permission denied"


def need_packages(option: str, extra: str, *packages: str) -> None:
    """Refuse an option whose packages are not installed."""
    from importlib.util import find_spec

    for package in packages:
        if find_spec(package) is None:
            raise ImportError(f"{option} needs {package}; pip install 'ksparse[{extra}]' brings it")


# --- errors ----------------------------------------------------------------------------------------------------------
@contextmanager
def errors() -> Iterator[None]:
    """Bad input, or a package that is not installed, ends with one line and exit code 2."""
    try:
        yield
    except (ValueError, ImportError) as error:
        fail(message(error), 2)
    except MemoryError:
        fail("the data do not fit into memory", 2)


def fail(text: str, code: int) -> NoReturn:
    """End the command with one line on stderr."""
    print(f"error: {text}", file=sys.stderr)
    raise typer.Exit(code) from None


def message(error: Exception) -> str:
    """The message of an error of the library, in one line and about options."""
    if getattr(error, "argument", None) in OPTIONS:  # an ArgumentError
        return as_options(f"{OPTIONS[error.argument]} {error.problem}")  # type: ignore[attr-defined]
    return as_options(str(error))


def as_options(text: str) -> str:
    """A message about arguments as one line about options.

    >>> as_options("missing='mean' imputes it, format= says what it is, drop leaves it out")
    '--missing mean imputes it, --format says what it is, --drop leaves it out'
    >>> as_options("drop=['a b'] leaves it out; cache=False keeps nothing")
    "--drop 'a b' leaves it out; --cache no keeps nothing"
    >>> print(as_options("always_keep must leave columns, or na=['1,5'] and delimiter=';'"))
    --keep must leave columns, or --na '"1,5"' and --delimiter ';'
    """
    text = " ".join(text.split())
    text = text.replace("start again from x0=result", "go on with --checkpoint FILE")
    text = text.replace("cache must be True, False or a folder", "cache must be no or a folder")
    text = text.replace(" beside the target None", "")  # all columns are dropped
    text = LEADING.sub(lambda found: OPTIONS.get(found[1], found[1]), text)
    text = re.sub(r"(?<![\w-])drop (?=leaves )|(?<=with )drop$", lambda found: f"--{found[0]}", text)
    return ASSIGNED.sub(_assigned, text)


def _assigned(found: re.Match[str]) -> str:
    """``name=value`` as it is typed on the command line."""
    name, listed, quoted, plain = found.groups()
    if listed is not None:  # in quotes if it contains a comma, as `options.names` reads it
        line = io.StringIO()
        csv.writer(line, lineterminator="").writerow([ast.literal_eval(listed)])
        value = shlex.quote(line.getvalue())
    else:
        value = shlex.quote(ast.literal_eval(quoted)) if quoted is not None else plain
    return f"{OPTIONS[name]} {'no' if value == 'False' else value}".rstrip()


@contextmanager
def errors_about_fit() -> Iterator[None]:
    """Around `predict`, which reads data as the fit did: the remedies of an error are options of `ksparse fit`."""
    try:
        yield
    except ValueError as error:
        text = message(error)
        hint = " (options of ksparse fit: a model reads data as its own were read)" * bool(FIT_ONLY.search(text))
        raise ValueError(text + hint) from None


# --- a run -----------------------------------------------------------------------------------------------------------
class Interrupted(BaseException):
    """Ctrl-C or SIGTERM.

    Not a KeyboardInterrupt: on that one a solver returns its best point, and the command would begin its next fit.
    """


class Session:
    """The run of a command: its notes, its progress, and what an interruption would leave on the disk."""

    def __init__(self, show: bool) -> None:
        self.notes: list[str] = []
        self.written: dict[str, str] = {}  # files that are complete, by the names of their options
        self.kept: Callable[[], str] = lambda: NOTHING  # says what else is on the disk
        self._show, self._began, self._shown = show, time.monotonic(), time.monotonic()
        self._status: Any = None
        self._label, self._runs, self._run, self._stage = "", 0, 0, 0

    @property
    def seconds(self) -> float:
        """Since the command began."""
        return time.monotonic() - self._began

    def left(self) -> str:
        """Which files are on the disk after an error."""
        done = f"{', '.join(self.written.values())} {'were' if len(self.written) > 1 else 'was'} written"
        kept = self.kept()
        return kept if not self.written else done if kept == NOTHING else f"{done}; {kept}"

    def facts(self) -> dict[str, Any]:
        """For JSON."""
        return {"notes": self.notes, "seconds": self.seconds, "peak_memory": peak_memory()}

    def note(self, text: str) -> None:
        """Print one line on stderr; the same one only once."""
        text = printable(as_options(text))
        if text not in self.notes:
            self.notes.append(text)
            print(f"note: {text}", file=sys.stderr, flush=True)

    @contextmanager
    def progress(self) -> Iterator[None]:
        """Show progress: one changing line on a terminal, a new line every ten seconds elsewhere."""
        from .._text import pass_text, watch_pass  # loads NumPy

        before = watch_pass.set(lambda share, seconds: self.tell(pass_text(share, seconds)))
        try:
            if not self._show or not sys.stderr.isatty():
                yield
                return
            from rich.console import Console

            with Console(stderr=True).status("starting") as self._status:
                yield
        finally:
            self._status = None
            watch_pass.reset(before)

    def begin(self, label: str, runs: int = 1) -> None:
        """Announce the next step, and how many runs of a solver it takes."""
        self._label, self._runs, self._run, self._stage = label, runs, 0, 0
        self.tell("")

    def tell(self, detail: str) -> None:
        """Show how far the step is."""
        if not self._show:
            return
        text = f"{self._label}{': ' * bool(detail)}{detail}, {self.seconds:.0f} s"
        if self._status is not None:
            from rich.markup import escape

            self._status.update(escape(printable(text)))
        elif time.monotonic() - self._shown >= EVERY:
            self._shown = time.monotonic()
            print(printable(text), file=sys.stderr, flush=True)

    @property
    def callback(self) -> Callable[[Any], None]:
        """For solvers; a function, because scikit-learn's `clone` would copy the session along with a method."""

        def stage_done(now: Any) -> None:
            if now.stage <= self._stage:
                self._run += 1
            self._stage = now.stage
            which = f"run {min(self._run + 1, self._runs)} of {self._runs}, " if self._runs > 1 else ""
            self.tell(f"{which}stage {now.stage}, objective {now.objective:.6g}")

        return stage_done


@contextmanager
def warnings_as_notes(tell: Callable[[str], None]) -> Iterator[None]:
    """Around work of the library: its warnings are told as notes."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = lambda message, *_, **__: tell(str(message))
        yield


@contextmanager
def session(show: bool) -> Iterator[Session]:
    """Around everything that a command does.

    Exit codes: 2 for bad input, 1 for a full disk, 128 + the signal's number for Ctrl-C and SIGTERM, each with one
    line on stderr.
    """
    work = Session(show)
    with errors(), warnings_as_notes(work.note), _signals() as received:
        try:
            try:
                yield work
            except (Interrupted, Exception):
                if not received:
                    raise
                # an error that follows a signal is a consequence of it
                print(f"interrupted: {work.left()}", file=sys.stderr)
                raise typer.Exit(128 + received[0]) from None
        except BrokenPipeError:  # the reader has gone: typer ends quietly
            raise
        except OSError as error:
            text = f"{error.filename or 'a file'}: {error.strerror or error}"
            if not disk_is_full(error):
                raise ValueError(text) from None
            fail(f"{text}; {work.left()}", 1)


@contextmanager
def _signals() -> Iterator[list[int]]:
    """Raise `Interrupted` on Ctrl-C and SIGTERM and list them in the value; the second one ends the process at once."""
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield received
        return

    def interrupt(number: int, frame: Any) -> None:
        received.append(number)
        if len(received) > 1:
            os._exit(128 + number)
        raise Interrupted

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def peak_memory() -> int | None:
    """The largest number of bytes that this process has held in memory; None where the system does not tell."""
    try:
        import resource
    except ImportError:
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


# --- the command line as a whole --------------------------------------------------------------------------------------
class Commands(TyperGroup):
    """The group of all commands: it writes the rest of their output, so that a full disk there is one line too."""

    def invoke(self, ctx: Any) -> Any:
        try:
            with standard_output():
                found = super().invoke(ctx)
                sys.stdout.flush()
                return found
        except BrokenPipeError:
            raise
        except OSError as error:
            fail(f"{error.filename}: {error.strerror}", 1)


def main(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    # a file that is opened later must not become one of the standard streams
    sys.stdin = sys.stdin or open(os.devnull, encoding="utf-8")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if sys.stdout is None:
        fail("the standard output is closed; send it to a file or to /dev/null", 2)
    if version:
        from .. import __version__

        print(__version__)
        raise typer.Exit
