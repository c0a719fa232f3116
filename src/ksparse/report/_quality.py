"""What held-out rows say of a model."""

from __future__ import annotations

from typing import NamedTuple

from ._figures import Sketch


class Measure(NamedTuple):
    """A figure of merit, the same for the best constant guess, and what it means."""

    name: str
    value: str
    baseline: str
    meaning: str


class Confusion(NamedTuple):
    classes: list[str]
    counts: list[list[int]]


class Quality(NamedTuple):
    """What held-out rows say: the two measures that lead, and all of them by output."""

    rows: int
    guess: str  # the constant that is the baseline
    lead: list[Measure]
    measures: list[tuple[str, list[Measure]]]
    better: bool
    sentences: list[str]
    sketches: list[Sketch]
    confusion: Confusion | None
