"""What goes on around the work of a command: errors in one line, notes, progress, Ctrl-C."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import typer

from .._files import disk_is_full
from . import NOTHING, errors, show, standard_output
from ._wording import as_options, printable

EVERY = 10.0  # seconds between lines where there is no terminal


class Interrupted(BaseException):
    """Ctrl-C, or a polite kill.

    Not a KeyboardInterrupt: on that one a solver returns its best point, and the command's next fit would begin.
    """


class Session:
    """The run of a command: when it began, what it noted, what an interruption would leave."""

    def __init__(self, show: bool) -> None:
        self.notes: list[str] = []
        self.written: list[str] = []  # files that are complete
        self.kept: Callable[[], str] = lambda: NOTHING  # what is there beside them
        self._show, self._began, self._shown = show, time.monotonic(), time.monotonic()
        self._status: Any = None
        self._label, self._runs, self._run, self._stage = "", 0, 0, 0

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def left(self) -> str:
        """What an error leaves behind."""
        done = f"{', '.join(self.written)} {'were' if len(self.written) > 1 else 'was'} written"
        kept = self.kept()
        return kept if not self.written else done if kept == NOTHING else f"{done}; {kept}"

    def facts(self) -> dict[str, Any]:
        """For JSON."""
        return {"notes": self.notes, "seconds": self.seconds, "peak_memory": peak_memory()}

    def note(self, text: str) -> None:
        """One line on stderr, once."""
        text = printable(as_options(" ".join(text.split())))
        if text not in self.notes:
            self.notes.append(text)
            print(f"note: {text}", file=sys.stderr, flush=True)

    @contextmanager
    def progress(self) -> Iterator[None]:
        """A line that changes on a terminal, a line every ten seconds elsewhere."""
        if not self._show or not sys.stderr.isatty():
            yield
            return
        from rich.console import Console

        with Console(stderr=True).status("starting") as self._status:
            try:
                yield
            finally:
                self._status = None

    def begin(self, label: str, runs: int = 1) -> None:
        """Say what is done now, and how many runs of a solver that will take."""
        self._label, self._runs, self._run, self._stage = label, runs, 0, 0
        self.tell("")

    def tell(self, detail: str) -> None:
        """Show how far it is."""
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
        """For solvers: a function, not a method, for scikit-learn's clone would copy the session along with that."""

        def told(now: Any) -> None:
            if now.stage <= self._stage:
                self._run += 1
            self._stage = now.stage
            which = f"run {min(self._run + 1, self._runs)} of {self._runs}, " if self._runs > 1 else ""
            self.tell(f"{which}stage {now.stage}, objective {now.objective:.6g}")

        return told


@contextmanager
def session(show: bool) -> Iterator[Session]:
    """Around all that a command does.

    Exit codes: 2 for bad input, 1 for a disk that is full, 130 for Ctrl-C, each with one line on stderr.
    """
    work = Session(show)
    with errors(), ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = lambda message, *_, **__: work.note(str(message))
        received = stack.enter_context(_signals())
        try:
            try:
                yield work
            except (Interrupted, Exception):
                if not received:
                    raise
                # whatever went wrong after a signal went wrong because of it
                print(f"interrupted: {work.left()}", file=sys.stderr)
                raise typer.Exit(128 + received[0]) from None
        except BrokenPipeError:  # whoever read the output has gone: typer ends quietly
            raise
        except OSError as error:
            said = f"{error.filename or 'a file'}: {error.strerror or error}"
            if not disk_is_full(error):
                raise ValueError(said) from None
            print(f"error: {said}; {work.left()}", file=sys.stderr)
            raise typer.Exit(1) from None


@contextmanager
def _signals() -> Iterator[list[int]]:
    """Ctrl-C and a polite kill as `Interrupted`, and a list of those that came; the second one ends the process."""
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


def say(text: str) -> None:
    """Print for people, whatever characters their terminal knows."""
    if hasattr(sys.stdout, "reconfigure"):
        with standard_output():  # it writes what is waiting
            sys.stdout.reconfigure(errors="backslashreplace")
    show(printable(text))


def peak_memory() -> int | None:
    """The most bytes that this process had in memory so far; None where nobody counts them."""
    try:
        import resource
    except ImportError:
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
