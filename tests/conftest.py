"""What tests share: a clock that they control, Ctrl-C that is heard, and commands that show no progress."""

from __future__ import annotations

import signal

import pytest

# A process started in the background ignores Ctrl-C, and so do those that it starts; a user at a keyboard does not.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


class Clock:
    """Stands in for the module `time`: it goes by `tick` when it is read, and on when a test says so."""

    def __init__(self, tick=0.0):
        self.now, self.tick = 0.0, tick

    def perf_counter(self):
        self.now += self.tick
        return self.now

    def sleep(self, seconds):
        self.now += seconds


@pytest.fixture
def clock(monkeypatch):
    """The clock of solvers and checkpoints, which stands still until a test moves it."""
    clock = Clock()
    for module in ("engine.loop", "engine.checkpoint"):
        monkeypatch.setattr(f"ksparse.{module}.time", clock)
    return clock


@pytest.fixture
def no_lines_of_progress(monkeypatch):
    """However long a busy machine takes."""
    monkeypatch.setattr("ksparse.cli.session.EVERY", 1e9)
