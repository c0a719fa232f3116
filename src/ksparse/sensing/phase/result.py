"""What a phase experiment found: counts over a grid, the curves fitted to them, and the files of a report."""

from __future__ import annotations

import csv
import io
import json
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, log_expit, logit

from ..._text import html_table, table, write_whole
from ..._validate import check_choice, check_count, check_number

FORMAT = "ksparse-phase"
COUNTS = ("n", "K", "trials", "successes")
NEWTON_STEPS = 100  # at most; five to ten are usual
LONGEST_STEP = 30.0  # in standardized units: further out the curve is flat to rounding


class Curve(NamedTuple):
    """Where the success rate passes a level: an n for every K, or a K for every n; see `Phase.curve`."""

    K: NDArray[Any]
    n: NDArray[Any]
    error: NDArray[np.float64]  # standard error of the fitted n or K


class MinimumN(NamedTuple):
    """The smallest number of measurements with the wanted success rate, and the counts there."""

    n: int | None  # None: no n that was tried is enough
    K: int
    rate: float  # the wanted success rate
    successes: int  # at this n
    trials: int
    low: float  # Wilson's 95% interval of the success rate at this n
    high: float


@dataclass(frozen=True, eq=False)
class Phase:
    """Success counts over a grid; cell i had n[i] measurements of signals with K[i] non-zeros.

    Parameters
    ----------
    settings : dict
        The algorithm, the ensemble and the other settings that all trials share.
    n, K, trials, successes : array of shape (cells,)
        Measurements, non-zeros, number of trials and number of successes of every cell.

    Attributes
    ----------
    rate, delta, rho : array of shape (cells,)
        Success rate, n/d and K/n of every cell.
    """

    settings: dict[str, Any]
    n: NDArray[np.int64]
    K: NDArray[np.int64]
    trials: NDArray[np.int64]
    successes: NDArray[np.int64]

    @property
    def d(self) -> int:
        """Length of the signals."""
        return self.settings["d"]

    @property
    def rate(self) -> NDArray[np.float64]:
        """Success rate of every cell."""
        return self.successes / self.trials

    @property
    def delta(self) -> NDArray[np.float64]:
        """n/d of every cell."""
        return self.n / self.d

    @property
    def rho(self) -> NDArray[np.float64]:
        """K/n of every cell."""
        return self.K / self.n

    @property
    def label(self) -> str:
        """The algorithm, and the k that it was given if that is not K."""
        k = self.settings["k"]
        return self.settings["algorithm"] + (f" told {k}" if k != "K" else "")

    @property
    def by(self) -> str:
        """How the grid is read: "K" if every K was tried with the same several n; else "n"."""
        n, K = np.unique(self.n).size, np.unique(self.K).size
        return "K" if n * K == self.n.size and (n > 1 or K == 1) else "n"

    def interval(self) -> tuple[NDArray[np.float64], ...]:
        """Lower and upper ends of Wilson's 95% interval of the success rate, for every cell."""
        return wilson(self.successes, self.trials)

    def curve(self, level: float = 0.5, by: str | None = None) -> Curve:
        """Where the success rate is `level`, from logistic curves fitted by maximum likelihood.

        Where the rates jump from 0 to 1 without a cell in between, the result is the middle of the gap.  It is inf or
        −inf if it lies outside the grid: n = inf means that more measurements are needed than were tried, n = −inf that
        the fewest were already enough, and likewise for K.  It is nan if the rate does not rise at all.

        Parameters
        ----------
        level : float, default=0.5
            A success rate between 0 and 1.
        by : {"K", "n"}, default=None
            "K" fits the rate against n for every K and gives n(K); "n" fits the rate against K for every n and gives
            K(n), so that ``curve.K / curve.n`` is rho against ``curve.n / d``.  By default whichever suits the grid.

        Returns
        -------
        Curve
        """
        level = check_number(level, "level", strict=True)
        if level >= 1:
            raise ValueError(f"level must be below 1, got {level:g}")
        by = check_choice(by or self.by, "by", ("K", "n"))
        fixed, moving, sign = (self.K, self.n, 1.0) if by == "K" else (self.n, self.K, -1.0)
        values = np.unique(fixed)
        places = [
            crossing(sign * moving[cells], self.successes[cells], self.trials[cells], level)
            for cells in (fixed == value for value in values)
        ]
        at, error = sign * np.array([p.at for p in places]), np.array([p.error for p in places])
        return Curve(values, at, error) if by == "K" else Curve(at, values, error)

    def minimum_n(self, K: int, rate: float = 0.95) -> MinimumN:
        """The smallest n of the grid such that this and every larger n of the grid has at least this success rate.

        It is a statement about the counts: `low` and `high` of the result say what the true rate at this n may be.

        Parameters
        ----------
        K : int
            Number of non-zeros, one of the grid.
        rate : float, default=0.95
            The wanted share of successes, at most 1.

        Returns
        -------
        MinimumN
        """
        K, rate = check_count(K, "K"), check_rate(rate)
        cells = np.flatnonzero(self.K == K)
        if not cells.size:
            raise ValueError(f"K must be one of the grid, {', '.join(map(str, np.unique(self.K)))}, got {K}")
        cells = cells[np.argsort(self.n[cells])]
        poor = np.flatnonzero(self.successes[cells] < enough(rate, self.trials[cells]))
        first = poor[-1] + 1 if poor.size else 0
        if first == cells.size:
            return MinimumN(None, K, rate, 0, 0, float("nan"), float("nan"))
        return reached(self.n[cells[first]], K, rate, self.successes[cells[first]], self.trials[cells[first]])

    # --- tables ------------------------------------------------------------------------------------------------------
    def rows(self) -> list[dict[str, Any]]:
        """The table as dicts: for every K the n at 50% and the n for 95% success, or for every n the K at 50%."""
        head = {"algorithm": self.label}
        if self.by == "K":
            return [
                {**head, "K": int(K), "n50": float(n), "error": float(error), "n95": self.minimum_n(int(K)).n}
                for K, n, error in zip(*self.curve(), strict=True)
            ]
        return [
            {**head, "n": int(n), "delta": n / self.d, "K50": float(K), "error": float(error), "rho50": float(K / n)}
            for K, n, error in zip(*self.curve(), strict=True)
        ]

    def table(self) -> str:
        """The table as text; ">" and "<" mark a value outside the grid."""
        return table(self._cells(), left=0)

    def _cells(self) -> list[tuple[str, ...]]:
        if self.by == "K":
            cells: list[tuple[str, ...]] = [("K", "n at 50%", "±", "n for 95%")]
            for row in self.rows():
                tried = self.n[row["K"] == self.K]
                least = f">{tried.max()}" if row["n95"] is None else str(row["n95"])
                cells.append((str(row["K"]), _place(row["n50"], tried), _known(row["error"]), least))
        else:
            cells = [("n", "n/d", "K at 50%", "±", "K/n at 50%")]
            for row in self.rows():
                tried = self.K[row["n"] == self.n]
                places = _place(row["K50"], tried), _known(row["error"]), _place(row["rho50"], tried / row["n"], 3)
                cells.append((str(row["n"]), f"{row['delta']:.3f}", *places))
        return cells

    def __str__(self) -> str:
        return f"{self._headline()}\n\n{self.table()}"

    def __repr__(self) -> str:
        return f"Phase({self._headline()}: {int(self.successes.sum()):,} successes)"

    def _repr_html_(self) -> str:
        return html_table(self._cells(), self._headline(), left=())

    def _headline(self) -> str:
        s = self.settings
        noise = "" if s["noise_db"] is None else f", {s['noise_db']:g} dB"
        return (
            f"{self.label}, {s['ensemble']} matrices, {s['signal']} signals{noise}, d = {self.d}, {self.n.size} cells, "
            f"{int(self.trials.sum()):,} trials"
        )

    # --- files -------------------------------------------------------------------------------------------------------
    def to_dict(self) -> dict[str, Any]:
        """Settings and counts as plain numbers, texts and lists, for JSON."""
        return {"format": FORMAT, "settings": self.settings, **{name: getattr(self, name).tolist() for name in COUNTS}}

    def save(self, path: str | Path) -> None:
        """Write settings and counts as JSON, for `Phase.load`."""
        Path(path).write_text(json.dumps(self.to_dict()) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> Phase:
        """Read a file that `save` wrote."""
        try:
            content = json.loads(Path(path).read_text(encoding="utf-8"))
            if content["format"] != FORMAT:
                raise ValueError(f"its format is {content['format']!r}")
            counts = [np.array(content[name], dtype=np.int64) for name in COUNTS]
            if len({count.shape for count in counts}) > 1 or counts[0].ndim != 1:
                raise ValueError("its columns differ in length")
            return cls({**content["settings"]}, *counts)
        except (ValueError, TypeError, KeyError, OverflowError) as error:
            raise ValueError(f"{path} was not written by Phase.save: {error}") from None

    def plot(self, path: str | Path | None = None, ax: Any = None) -> Any:
        """Draw the success rates, the 50% curve and the curve of Donoho and Tanner; see `figures.plot_phase`."""
        from .figures import plot_phase

        return plot_phase(self, path, ax)


def check_rate(rate: Any) -> float:
    rate = check_number(rate, "rate", strict=True)
    if rate > 1:
        raise ValueError(f"rate must be at most 1, got {rate:g}; it is a share, not per cent")
    return rate


def enough(rate: float, trials: Any) -> Any:
    """The fewest successes that are at least this share of the trials; rounding must not make 0.95 of 100 be 96."""
    return np.ceil(rate * trials - 1e-9).astype(np.int64)


def reached(n: Any, K: int, rate: float, successes: Any, trials: Any) -> MinimumN:
    """The `MinimumN` of a cell that has the wanted rate."""
    low, high = wilson(successes, trials)
    return MinimumN(int(n), K, rate, int(successes), int(trials), float(low), float(high))


def _place(at: float, tried: NDArray[Any], digits: int = 1) -> str:
    if np.isinf(at):
        return f">{tried.max():.{digits}f}" if at > 0 else f"<{tried.min():.{digits}f}"
    return _known(at, digits)


def _known(value: float, digits: int = 1) -> str:
    return "" if np.isnan(value) else f"{value:.{digits}f}"


# --- fits ------------------------------------------------------------------------------------------------------------
def wilson(successes: ArrayLike, trials: ArrayLike, z: float = 1.959964) -> tuple[NDArray[np.float64], ...]:
    """Wilson's confidence interval of a success rate, which is valid for rates near 0 and 1 too.

    Parameters
    ----------
    successes, trials : int or array
    z : float, default=1.959964
        Quantile of the normal distribution; the default gives 95% intervals.

    Returns
    -------
    (low, high) : arrays

    Examples
    --------
    >>> low, high = wilson(95, 100)
    >>> print(f"{low:.3f} {high:.3f}")
    0.888 0.978
    """
    s, t = np.asarray(successes, dtype=float), np.asarray(trials, dtype=float)
    with np.errstate(divide="ignore", invalid="ignore"):
        middle = (s + z * z / 2) / (t + z * z)
        half = z / (t + z * z) * np.sqrt(s * (t - s) / t + z * z / 4)
    return np.where(s == 0, 0.0, middle - half), np.where(s == t, 1.0, middle + half)


class Crossing(NamedTuple):
    """Where a curve of success rates passes a level, and the standard error of that place.

    The place is inf if the rates stay below the level within the range of x, −inf if they stay above it, and nan if
    they do not rise with x.
    """

    at: float
    error: float


def crossing(x: ArrayLike, successes: ArrayLike, trials: ArrayLike, level: float = 0.5) -> Crossing:
    """Where a logistic curve, fitted by maximum likelihood, rises through `level`.

    Where failures and successes do not overlap there is no finite fit: the curve is a jump, in the middle of the gap
    between the last failure and the first success, or at the one x that has both; half a step of x is its error.
    """
    x, s, t = (np.asarray(a, dtype=float) for a in (x, successes, trials))
    x, s, t = x[t > 0], s[t > 0], t[t > 0]
    if not s.any():
        return Crossing(np.inf, np.nan)
    if (s == t).all():
        return Crossing(-np.inf, np.nan)
    lost, won = x[s < t], x[s > 0]
    if lost.max() <= won.min():
        return _jump(x, s / t, float(lost.max()), float(won.min()), level)
    if won.max() <= lost.min():  # a jump downwards
        return Crossing(np.nan, np.nan)
    (a, b), covariance = logistic(x, s, t)
    if b <= 0:
        return Crossing(np.nan, np.nan)
    at = (logit(level) - a) / b
    if not x.min() <= at <= x.max():  # the fit is not trusted outside the range of x
        return Crossing(np.inf if at > x.max() else -np.inf, np.nan)
    gradient = np.array([-1.0, -at]) / b
    return Crossing(float(at), float(np.sqrt(gradient @ covariance @ gradient)))


def _jump(x: NDArray[np.float64], rate: NDArray[np.float64], low: float, high: float, level: float) -> Crossing:
    """The crossing of a curve that is 0 below `low` and 1 above `high`."""
    if low < high:
        return Crossing((low + high) / 2, (high - low) / 2)
    here = rate[x == low][0]  # the only place with failures and successes
    if low == x.max() and here < level:
        return Crossing(np.inf, np.nan)
    if low == x.min() and here > level:
        return Crossing(-np.inf, np.nan)
    steps = np.abs(x[x != low] - low)
    return Crossing(low, float(steps.min()) / 2 if steps.size else np.nan)


def logistic(
    x: NDArray[np.float64], successes: NDArray[np.float64], trials: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Maximum likelihood estimates (a, b) of the rate 1/(1 + exp(−a − b x)), and their covariance; Newton's method.

    Failures and successes must overlap, otherwise there is no maximum.
    """
    centre, scale = np.average(x, weights=trials), np.sqrt(np.cov(x, aweights=trials, bias=True))
    Z = np.column_stack([np.ones_like(x), (x - centre) / scale])

    def likelihood(w: NDArray[np.float64]) -> float:
        u = Z @ w
        return float(successes @ log_expit(u) + (trials - successes) @ log_expit(-u))

    w, value = np.zeros(2), likelihood(np.zeros(2))
    for _ in range(NEWTON_STEPS):
        p = expit(Z @ w)
        gradient = Z.T @ (successes - trials * p)
        curvature = (Z.T * (trials * p * (1 - p))) @ Z
        step = np.linalg.solve(curvature, gradient)
        if gradient @ step < 1e-20 * trials.sum():
            break
        share = min(1.0, LONGEST_STEP / float(np.linalg.norm(step)))
        while likelihood(w + share * step) < value and share > 1e-12:
            share /= 2
        w = w + share * step
        value = likelihood(w)
    back = np.array([[1.0, -centre / scale], [0.0, 1.0 / scale]])  # to the original units of x
    return back @ w, back @ np.linalg.inv(curvature) @ back.T


# --- the report ------------------------------------------------------------------------------------------------------
def write_report(phases: Sequence[Phase], out: str | Path) -> list[Path]:
    """Write table.csv and phase.svg (and .png) into a folder, for several algorithms also a picture of each.

    Parameters
    ----------
    phases : sequence of Phase
        Results on one grid.
    out : path
        The folder.

    Returns
    -------
    list of Path
        The files.
    """
    out = Path(out)
    files = {out / "table.csv": as_csv(phases).encode()}
    try:
        from ..._style import as_bytes, new_axes
        from .figures import SIZE, plot_curves, plot_phase

        pictures = {f"phase-{file_name(phase.label)}": plot_phase(phase, ax=new_axes(size=SIZE)) for phase in phases}
        if len(phases) > 1:
            pictures["phase"] = plot_curves(phases, ax=new_axes(size=SIZE))
        else:
            pictures = {"phase": pictures.popitem()[1]}
        files |= {
            out / f"{name}.{kind}": as_bytes(ax, kind) for name, ax in pictures.items() for kind in ("svg", "png")
        }
    except ImportError as error:
        warnings.warn(f"no pictures: {error}", stacklevel=2)
    for path, content in files.items():
        write_whole(path, content)
    return list(files)


def as_csv(phases: Sequence[Phase]) -> str:
    """The tables of several phases of one grid, below each other, as CSV."""
    rows = [row for phase in phases for row in phase.rows()]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: f"{v:.6g}" if isinstance(v, float) else v for name, v in row.items()} for row in rows)
    return text.getvalue()


def file_name(label: str) -> str:
    """A label as part of the name of a file."""
    return re.sub(r"[^\w.=-]+", "-", label).strip("-")
