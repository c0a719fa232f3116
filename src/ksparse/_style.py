"""How figures look: one colour a method everywhere, told apart by everybody and, by dashes, in print."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, NamedTuple

# Okabe and Ito's palette
BLUE, ORANGE, GREEN, PURPLE, SKY, YELLOW, BLACK = (
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000",
)  # fmt: skip
CYCLE = (BLUE, ORANGE, GREEN, PURPLE, SKY, YELLOW)


class Line(NamedTuple):
    color: str
    dashes: Any  # a linestyle of matplotlib


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
    "svg.hashsalt": "ksparse",  # the same file from the same figure
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
}


def new_axes(ax: Any = None, size: tuple[float, float] = (5.6, 3.6), panels: tuple[int, int] = (1, 1)) -> Any:
    """The axes to draw on: those given, or new ones in the house style (an array, if several panels)."""
    if ax is not None:
        return ax
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError("figures need matplotlib; pip install 'ksparse[report]' brings it") from None
    with mpl.rc_context(SETTINGS):
        return Figure(figsize=size, layout="constrained").subplots(*panels)


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


def save(ax: Any, path: str | Path) -> None:
    """Write the figure of these axes; the same figure gives the same bytes."""
    Path(path).write_bytes(as_bytes(ax, Path(path).suffix[1:].lower()))
