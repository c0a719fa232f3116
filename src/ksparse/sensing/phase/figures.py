"""Figures of phase transitions, drawn from the counts of a `Phase`; no trial is run.  Needs the `report` extra."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..._style import BLACK, CYCLE, ORANGE, canvas, finish, new_axes
from .result import Phase
from .threshold import donoho_tanner

COLORS = "cividis"  # looks the same with and without colour blindness, and ordered in black and white
MARKS = "osD^vPX*"
SIZE = (6.2, 4.6)


def plot_phase(phase: Phase, path: Any = None, ax: Any = None) -> Any:
    """Draw the success rate of every cell in colours, the 50% curve with standard errors, and Donoho and Tanner's.

    Parameters
    ----------
    phase : Phase
    path : path, default=None
        The file to write; its ending gives the format.
    ax : matplotlib Axes, default=None
        The axes to draw on; new ones by default.

    Returns
    -------
    matplotlib Axes
    """
    from matplotlib.patheffects import Normal, Stroke

    ax = new_axes(canvas(path, ax), SIZE)
    shares = phase.by == "n"
    image = draw_rates(ax, phase, shares)
    border = {"path_effects": [Stroke(linewidth=3, foreground=BLACK), Normal()]}  # visible on dark and light tiles
    _finish(ax, phase, shares)
    _draw_curve(ax, phase, shares, color=ORANGE, marker="o", label=f"{phase.label}, 50%", **border)
    _draw_threshold(ax, phase.d, shares, color="white", **border)
    ax.figure.colorbar(image, ax=ax, label="success rate").outline.set_visible(False)
    ax.set_title(_title(phase, with_label=True), fontsize=9)
    _legend_beneath(ax, 2)
    return finish(ax, path)


def draw_rates(ax: Any, phase: Phase, shares: bool) -> Any:
    """Draw one tile per cell; returns the image, for a colour bar.  `shares`: the axes are n/d and K/n."""
    columns = np.unique(phase.n)
    borders = edges(columns / phase.d if shares else columns)
    for left, right, n in zip(borders[:-1], borders[1:], columns, strict=True):  # for every n, K/n has its own edges
        cells = np.flatnonzero(phase.n == n)
        cells = cells[np.argsort(phase.K[cells])]
        heights = edges((phase.rho if shares else phase.K)[cells])
        style = {"cmap": COLORS, "vmin": 0, "vmax": 1, "edgecolors": "face", "linewidth": 0.3}  # no seams between tiles
        image = ax.pcolormesh([left, right], heights, phase.rate[cells, np.newaxis], **style)
    return image


def plot_curves(phases: Sequence[Phase], path: Any = None, ax: Any = None) -> Any:
    """Draw the 50% curves of several phases of one grid, and the curve of Donoho and Tanner.

    Parameters
    ----------
    phases : sequence of Phase
    path : path, default=None
        The file to write; its ending gives the format.
    ax : matplotlib Axes, default=None
        The axes to draw on; new ones by default.

    Returns
    -------
    matplotlib Axes
    """
    ax = new_axes(canvas(path, ax), SIZE)
    shares = phases[0].by == "n"
    _finish(ax, phases[0], shares)
    for i, phase in enumerate(phases):
        _draw_curve(ax, phase, shares, color=CYCLE[i % len(CYCLE)], marker=MARKS[i % len(MARKS)], label=phase.label)
    _draw_threshold(ax, phases[0].d, shares, color=BLACK)
    ax.set_title(f"50% success: {_title(phases[0], with_label=False)}", fontsize=9)
    _legend_beneath(ax, min(len(phases) + 1, 3))
    return finish(ax, path)


def _draw_curve(ax: Any, phase: Phase, shares: bool, **style: Any) -> None:
    curve = phase.curve()
    known = np.isfinite(curve.n) & np.isfinite(curve.K)
    n, K, error = curve.n[known], curve.K[known], curve.error[known]
    style |= {"markersize": 4, "linewidth": 1.5, "capsize": 0, "elinewidth": 1, "zorder": 3}
    if shares:
        ax.errorbar(n / phase.d, K / n, yerr=error / n, **style)
    else:
        ax.errorbar(n, K, xerr=error, **style)


def _draw_threshold(ax: Any, d: int, shares: bool, **style: Any) -> None:
    delta = np.linspace(0, 1, 400)
    rho = donoho_tanner(delta)
    x, y = (delta, rho) if shares else (delta * d, rho * delta * d)
    style |= {"linestyle": "--", "linewidth": 1.5, "label": "ℓ₁, d → ∞ (Donoho–Tanner)"}
    ax.plot(x, y, scalex=False, scaley=False, **style)


def _finish(ax: Any, phase: Phase, shares: bool) -> None:
    ax.grid(visible=False)
    if shares:
        ax.set(xlabel="δ = n/d", ylabel="ρ = K/n", xlim=(0, 1), ylim=(0, min(1.0, 1.1 * float(phase.rho.max()))))
    else:
        n, K = edges(np.unique(phase.n)), edges(np.unique(phase.K))
        ax.set(xlabel="n, measurements", ylabel="K, non-zeros", xlim=(n[0], n[-1]), ylim=(K[0], K[-1]))


def _legend_beneath(ax: Any, columns: int) -> None:
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=columns, fontsize=8, frameon=False)


def _title(phase: Phase, with_label: bool) -> str:
    s = phase.settings
    noise = "no noise" if s["noise_db"] is None else f"{s['noise_db']:g} dB"
    parts = [phase.label] * with_label + [f"{s['ensemble']} matrix", f"{s['signal']} signal", f"d = {phase.d}", noise]
    return ", ".join(parts).replace("$", r"\$")


def edges(centres: NDArray[Any]) -> NDArray[np.float64]:
    """The edges half-way between centres, and one beyond each end."""
    if centres.size == 1:
        half = 0.5 if centres.dtype.kind == "i" else 0.02
        return np.array([centres[0] - half, centres[0] + half])
    middle = (centres[1:] + centres[:-1]) / 2
    return np.concatenate([[centres[0] - (middle[0] - centres[0])], middle, [centres[-1] + (centres[-1] - middle[-1])]])
