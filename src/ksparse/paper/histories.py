"""Curves of an objective against stages: a few stages of each run, as logarithms; their means; how they are drawn."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import takewhile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._style import BLACK, BLUE, GREEN, ORANGE, PURPLE, SKY, YELLOW, Line, new_axes
from .lab import significant

PANEL = (4.2, 3.4)  # inches
STANDARD = Line(BLUE, "-")  # as HT-SVRG in the other figures
DASHES: Any = ("--", "-.", ":", (0, (6, 1.5)), (0, (3, 1, 1, 1, 1, 1)), (0, (1, 1)), (0, (8, 2, 2, 2)))
OTHERS = tuple(map(Line, (ORANGE, GREEN, PURPLE, SKY, YELLOW, BLACK, ORANGE), DASHES))


def early_stages(limit: int) -> list[int]:
    """The stages to keep of a run that may end soon: all of the first ones, then ever fewer, up to `limit`."""
    return [0, *np.unique(np.geomspace(1, limit, 60).round().astype(int)).tolist()]


def even_stages(limit: int) -> list[int]:
    """The stages to keep of a long run: evenly spaced."""
    return np.unique(np.linspace(0, limit, 101).round().astype(int)).tolist()


def logs_at(
    objective: Sequence[float] | NDArray[np.float64], stages: Sequence[int], digits: int = 4
) -> list[float | None]:
    """log10 of the objective at these stages, up to the end of the run; None where it is not finite."""
    with np.errstate(all="ignore"):
        return significant([float(np.log10(objective[s])) for s in stages if s < len(objective)], digits)


def log_mean(histories: Sequence[Sequence[float | None]]) -> list[float | None]:
    """The mean of logarithms, stage by stage; None from the first stage on at which one of the histories has None.

    The logarithm is averaged, not the objective: a logarithmic axis shows rates, and the mean rate is that of a typical
    run.  The mean of the objective would show the slowest run alone.
    """
    if not histories:
        return []
    complete = list(takewhile(lambda column: None not in column, zip(*histories, strict=True)))
    means = significant([math.fsum(column) / len(column) for column in complete])
    return means + [None] * (len(histories[0]) - len(means))


def quantile(values: Sequence[float | None], q: float = 0.5) -> float | None:
    """A quantile of values; None counts as infinite, and an infinite quantile is returned as None."""
    known = sorted(math.inf if value is None else value for value in values)
    if not known:
        return None
    place = q * (len(known) - 1)
    low, high = known[math.floor(place)], known[math.ceil(place)]
    return significant([low if low == high else low + (place - math.floor(place)) * (high - low)])[0]


def history_axes(title: str, xlabel: str, ylabel: str) -> Any:
    """Axes with a logarithmic scale upwards."""
    ax = new_axes(size=PANEL)
    ax.set_title(title, fontsize=10)
    ax.set(xlabel=xlabel, ylabel=ylabel, yscale="log")
    return ax


def legend_beneath(ax: Any, title: str | None = None, columns: int = 3) -> None:
    """Put the legend below the axes, where it hides no curve."""
    ax.figure.legend(
        loc="outside lower center", ncols=columns, fontsize=8, frameon=False, title=title, title_fontsize=8,
        handlelength=3.2,  # long enough for every kind of dashes
    )  # fmt: skip


def as_powers(logs: Sequence[float | None]) -> list[float]:
    """Powers of ten, to be drawn on a logarithmic axis; nan for None."""
    return [math.nan if log is None else 10.0 ** min(max(log, -300.0), 300.0) for log in logs]


def power(log: float | None) -> str:
    """Ten to this power as text, such as 10^9; "beyond floats" for None."""
    if log is None:
        return "beyond floats"
    return f"10^{log:.0f}" if abs(log) >= 3 else f"{10**log:.2g}"
