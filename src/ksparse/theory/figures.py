"""Four figures of the theory.  Needs the `report` extra.

Each function returns the matplotlib axes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .._style import BLACK, STYLE, canvas, finish, new_axes
from . import bounds, rates, rip


def plot_bounds(K: int = 10, d: int = 1000, path: Any = None, ax: Any = None) -> Any:
    """Draw the factor by which thresholding may stretch a distance, against k/K, for the three bounds.

    Parameters
    ----------
    K : int, default=10
        Number of non-zeros of the true vector.
    d : int, default=1000
        The dimension.
    path : path, default=None
        The file to write.
    ax : matplotlib Axes, default=None
        The axes to draw on; new ones by default.
    """
    ax = new_axes(canvas(path, ax))
    k = np.arange(K, d + 1)
    labels = {"tight": "tight, √ν", "classic": "classic, 2", "jain": f"Jain et al., d = {d:,}"}
    for bound, label in labels.items():
        ax.plot(k / K, bounds.deviation_factor(k, K, d, bound), label=label, **_line(bound))
    ax.axhline(np.sqrt(4 / 3), color=BLACK, linewidth=1, linestyle=":")
    ax.annotate("HT-SVRG needs less than √(4/3)", (1.05, np.sqrt(4 / 3)), xytext=(0, -13), textcoords="offset points")
    ax.set(xscale="log", xlabel="k / K", ylabel="largest ‖H_k(b) − x‖ / ‖b − x‖", ylim=(0.95, 2.1), xlim=(1, d / K))
    ax.legend(frameon=False, loc="upper left", bbox_to_anchor=(0.02, 0.87))
    return finish(ax, path)


def plot_thresholds(K: int = 10, largest: int = 100, path: Any = None, ax: Any = None) -> Any:
    """Draw the largest restricted isometry constants for which IHT and CoSaMP have rate 0.5, against k/K.

    Parameters
    ----------
    K : int, default=10
        Number of non-zeros of the true vector.
    largest : int, default=100
        The largest k/K.
    path : path, default=None
        The file to write.
    ax : matplotlib Axes, default=None
        The axes to draw on; new ones by default.
    """
    ax = new_axes(canvas(path, ax))
    k = np.unique(np.geomspace(K, largest * K, 200).astype(int))
    for algorithm, label, order in (("iht", "IHT", "2k+K"), ("cosamp", "CoSaMP", "3k+K")):
        for bound in ("tight", "classic"):
            style = _style_of(algorithm, bound)
            text = f"{label}, δ of order {order}, {bound}"
            ax.plot(k / K, rip.rip_threshold(algorithm, k, K, bound=bound), label=text, **style)
    ax.set(xscale="log", xlabel="k / K", ylabel="largest δ for rate 0.5", ylim=(0.15, 0.36), xlim=(1, largest))
    ax.legend(frameon=False, fontsize=8, loc="center right", bbox_to_anchor=(1.0, 0.55))
    return finish(ax, path)


def plot_rate(c: float = 1.2, share: float = 1 / 8, m: int | None = None, path: Any = None, ax: Any = None) -> Any:
    """Draw β against ν for the step share/L: as printed, with its minimum, and as corrected.

    Parameters
    ----------
    c : float, default=1.2
        The condition number L/α.
    share : float, default=1/8
        The step times L.
    m : int, default=None
        Steps per stage; by default those of the paper's recipe, 4(8c − 1).
    path : path, default=None
        The file to write.
    ax : matplotlib Axes, default=None
        The axes to draw on; new ones by default.
    """
    ax = new_axes(canvas(path, ax))
    eta = share / c  # in units where α = 1
    m = round(4 * (8 * c - 1)) if m is None else m
    best = float(rates.optimal_nu(eta, 1.0))
    edge = float(rates.largest_nu(eta, c, 1.0))
    nu = np.linspace(1.0, 1.0 + 1.15 * (edge - 1.0), 600)
    for printed, label, style in (
        (True, "as printed", STYLE["printed"]),
        (False, "corrected: never worse with a larger k", STYLE["tight"]),
    ):
        beta = rates.rate(eta, m, nu, c, 1.0, printed=printed)
        ax.plot(nu, np.where(beta < 1.6, beta, np.nan), label=label, color=style.color, linestyle=style.dashes)
    lowest = float(rates.rate(eta, m, best, c, 1.0))
    ax.plot([best], [lowest], "o", color=BLACK, markersize=6)
    ax.annotate(
        f"ν = 1/(1 − ηα), β = {lowest:.2f}", (best, lowest), xytext=(0, -16), textcoords="offset points", ha="center"
    )
    ax.axhline(1.0, color=BLACK, linewidth=1, linestyle=":")
    ax.set(xlabel="ν (k grows to the left)", ylabel="β, factor per stage", xlim=(1.0, nu[-1]), ylim=(0.5, 1.3))
    ax.set_title(f"c = L/α = {c:g}, η = {share:g}/L, m = {m}", fontsize=10)
    ax.legend(frameon=False, fontsize=8, loc="upper left")
    return finish(ax, path)


def plot_tradeoff(K: int = 10, d: int = 10_000, path: Any = None, ax: Any = None) -> Any:
    """Draw how the sufficient number of measurements grows with k.

    Parameters
    ----------
    K : int, default=10
        Number of non-zeros of the true vector.
    d : int, default=10_000
        The dimension.
    path : path, default=None
        The file to write.
    ax : matplotlib Axes, default=None
        The axes to draw on; new ones by default.
    """
    ax = new_axes(canvas(path, ax))
    k = np.unique(np.geomspace(K, 100 * K, 200).astype(int))
    unit = rip.measurements("iht", K, K, d)
    for algorithm, label in (("iht", "IHT"), ("cosamp", "CoSaMP")):
        for bound in ("tight", "classic"):
            style = _style_of(algorithm, bound)
            n = rip.measurements(algorithm, k, K, d, bound) / unit
            ax.plot(k / K, n, label=f"{label}, {bound}", **style)
    ax.set(
        xscale="log", yscale="log", xlabel="k / K", xlim=(1, 100),
        ylabel="measurements\n(IHT at k = K, tight bound: 1)",
    )  # fmt: skip
    ax.set_title(f"K = {K}, d = {d:,}, rate 0.5", fontsize=10)
    ax.legend(frameon=False, fontsize=8)
    return finish(ax, path)


FIGURES = {"bounds": plot_bounds, "thresholds": plot_thresholds, "rate": plot_rate, "tradeoff": plot_tradeoff}


def _style_of(algorithm: str, bound: str) -> dict[str, Any]:
    """The algorithm is shown by colour and, for print without colours, by marks; the bound by dashes."""
    marks = {"marker": "o", "markersize": 4, "markevery": 25} if algorithm == "cosamp" else {}
    return {"color": STYLE[algorithm].color, "linestyle": STYLE[bound].dashes, **marks}


def _line(name: str) -> dict[str, Any]:
    return {"color": STYLE[name].color, "linestyle": STYLE[name].dashes}
