"""The look of all figures: one colour per method, safe for colour-blind readers, with dashes for print in grey."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any, NamedTuple

# the palette of Okabe and Ito
BLUE, ORANGE, GREEN, PURPLE, SKY, YELLOW, BLACK = (
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000",
)  # fmt: skip
KINDS = ("png", "svg", "pdf", "jpg", "jpeg", "tif", "tiff", "webp", "eps", "ps")  # files of matplotlib
CYCLE = (BLUE, ORANGE, GREEN, PURPLE, SKY, YELLOW)


class Line(NamedTuple):
    """The colour and the linestyle of a line, as matplotlib names them."""

    color: str
    dashes: str


STYLE = {
    "tight": Line(BLUE, "-"),
    "classic": Line(ORANGE, "--"),
    "jain": Line(GREEN, "-."),
    "iht": Line(ORANGE, "-"),
    "pgd": Line(GREEN, "--"),
    "ht-svrg": Line(BLUE, "-"),
    "ht-saga": Line(SKY, "-."),
    "auto": Line(BLACK, "-"),
    "sp": Line(YELLOW, "--"),
    "htp": Line(PURPLE, "-."),
    "cosamp": Line(PURPLE, "-"),
    "printed": Line(ORANGE, "--"),
}
SETTINGS: Any = {
    "svg.hashsalt": "ksparse",  # without it, every run gives other bytes
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
}


SCREEN = object()  # stands for axes of a new pyplot figure


def canvas(path: Any, ax: Any) -> Any:
    """What a plot draws on: the given axes, None (a new figure for the file at `path`), or `SCREEN` (pyplot's figure).

    `path` may also be axes.  A figure for a file is not made by pyplot, which would keep it open.
    """
    if path is None:
        return SCREEN if ax is None else ax
    if hasattr(path, "get_figure"):
        return path
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"path must be the name of a file, or axes of matplotlib to draw on, got {path!r}")
    _kind(path)
    return ax


def finish(ax: Any, path: Any) -> Any:
    """Save a plot if `path` names a file; returns the axes."""
    if isinstance(path, str | os.PathLike):
        save(ax, path)
    return ax


def new_axes(ax: Any = None, size: tuple[float, float] = (5.6, 3.6), panels: tuple[int, int] = (1, 1)) -> Any:
    """The given axes, or new ones in the style of this module (an array of axes for several panels)."""
    if ax is not None and ax is not SCREEN:
        return ax
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError("figures need matplotlib; pip install 'ksparse[report]' brings it") from None
    make: Any = Figure
    if ax is SCREEN:
        from matplotlib import pyplot

        make = pyplot.figure
    # outside the context: the first figure of a notebook loads its backend, which must set "interactive" to stay
    figure = make(figsize=size, layout="constrained")
    with mpl.rc_context(SETTINGS):
        return figure.subplots(*panels)


def as_svg(ax: Any) -> bytes:
    """The figure of these axes as an SVG file."""
    return as_bytes(ax, "svg")


def as_bytes(ax: Any, kind: str) -> bytes:
    """The figure of these axes as a file of this kind ("svg", "png", "pdf"); the same figure gives the same bytes."""
    import matplotlib as mpl

    undated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    with mpl.rc_context(SETTINGS):
        buffer = io.BytesIO()
        ax.figure.savefig(buffer, format=kind, metadata=undated.get(kind), dpi=150)
        return buffer.getvalue()


def save(ax: Any, path: Any) -> None:
    """Write the figure of these axes; the same figure gives the same bytes."""
    Path(path).write_bytes(as_bytes(ax, _kind(path)))


def _kind(path: Any) -> str:
    """The format that the ending of a file name stands for."""
    kind = Path(path).suffix[1:].lower()
    if kind not in KINDS:
        raise ValueError(f"path must end in one of {', '.join(f'.{known}' for known in KINDS)}, got {str(path)!r}")
    return kind
