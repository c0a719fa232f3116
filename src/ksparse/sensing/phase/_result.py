"""What a phase experiment found."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..._text import html_table, table
from ..._validate import check_choice, check_count, check_number
from ._fit import crossing, wilson

FORMAT = "ksparse-phase"
COUNTS = ("n", "K", "trials", "successes")


class Curve(NamedTuple):
    """Where the success rate passes a level: for every K an n, or for every n a K; see `Phase.curve`."""

    K: NDArray[Any]
    n: NDArray[Any]
    error: NDArray[np.float64]  # the standard error of what was fitted


class MinimumN(NamedTuple):
    """The fewest measurements for a success rate, and what was seen there."""

    n: int | None  # None: no n that was tried is enough
    K: int
    rate: float  # wanted
    successes: int  # at this n
    trials: int
    low: float  # Wilson's 95% interval of the success rate at this n
    high: float


@dataclass(frozen=True, eq=False)
class Phase:
    """Success rates over a grid; cell i had n[i] measurements of signals with K[i] non-zeros.

    Attributes
    ----------
    settings : dict
        Algorithm, ensemble and everything else that the trials share.
    n, K, trials, successes : arrays with an entry a cell
    """

    settings: dict[str, Any]
    n: NDArray[np.int64]
    K: NDArray[np.int64]
    trials: NDArray[np.int64]
    successes: NDArray[np.int64]

    @property
    def d(self) -> int:
        return self.settings["d"]

    @property
    def rate(self) -> NDArray[np.float64]:
        return self.successes / self.trials

    @property
    def delta(self) -> NDArray[np.float64]:
        """n/d."""
        return self.n / self.d

    @property
    def rho(self) -> NDArray[np.float64]:
        """K/n."""
        return self.K / self.n

    @property
    def label(self) -> str:
        k = self.settings["k"]
        return self.settings["algorithm"] + (f" told {k}" if k != "K" else "")

    @property
    def by(self) -> str:
        """How the grid is read: "K" if every K was tried with the same n, several of them; else "n"."""
        n, K = np.unique(self.n).size, np.unique(self.K).size
        return "K" if n * K == self.n.size and (n > 1 or K == 1) else "n"

    def interval(self) -> tuple[NDArray[np.float64], ...]:
        """Wilson's 95% interval of the success rate of every cell."""
        return wilson(self.successes, self.trials)

    def curve(self, level: float = 0.5, by: str | None = None) -> Curve:
        """Where the success rate is `level`: logistic curves fitted by maximum likelihood.

        by="K" fits, for every K, the rate against n and gives n(K); by="n" fits, for every n, the rate against K and
        gives K(n), so that ``curve.K / curve.n`` is rho against ``curve.n / d``.  By default what the grid is made for.

        Where the rates jump from 0 to 1 without a cell in between, the place is the middle of the gap.  It is inf or
        −inf if the grid does not hold it: n = inf means that more measurements would be needed than were tried, −inf
        that the fewest were enough already (K = −inf and inf likewise).  nan: no rise at all.
        """
        level = _level(level, "level")
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
        """The smallest n of the grid from which on every n of the grid has at least this share of successes.

        It is a statement about what was counted: `low` and `high` say what the true rate at this n may be.
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
        """The table: for every K the n at 50% and the n from which on 95% succeed, or for every n the K at 50%."""
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
        """The rows as a text; ">" and "<" where the place is beyond the grid."""
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
        """Settings and counts, plain enough for JSON."""
        return {"format": FORMAT, "settings": self.settings, **{name: getattr(self, name).tolist() for name in COUNTS}}

    def save(self, path: str | Path) -> None:
        """Write settings and counts as JSON; `Phase.load` reads them."""
        Path(path).write_text(json.dumps(self.to_dict()) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> Phase:
        """Read what `save` wrote."""
        try:
            content = json.loads(Path(path).read_text(encoding="utf-8"))
            if content["format"] != FORMAT:
                raise ValueError(f"its format is {content['format']!r}")
            counts = [np.array(content[name], dtype=np.int64) for name in COUNTS]
            if len({count.shape for count in counts}) > 1 or counts[0].ndim != 1:
                raise ValueError("its columns differ in length")
            return cls({**content["settings"]}, *counts)
        except (ValueError, TypeError, KeyError, OverflowError) as error:
            raise ValueError(f"{path} is no file of Phase.save: {error}") from None

    def plot(self, path: str | Path | None = None, ax: Any = None) -> Any:
        """The success rate of every cell with the 50% curve and Donoho and Tanner's; see `figures.plot_phase`."""
        from .figures import plot_phase

        return plot_phase(self, path, ax)


def check_rate(rate: Any) -> float:
    rate = check_number(rate, "rate", strict=True)
    if rate > 1:
        raise ValueError(f"rate must be at most 1, got {rate:g}; it is a share, not per cent")
    return rate


def enough(rate: float, trials: Any) -> Any:
    """The fewest successes that are this share of the trials; 0.95 of 100 is 95, whatever rounding says."""
    return np.ceil(rate * trials - 1e-9).astype(np.int64)


def reached(n: Any, K: int, rate: float, successes: Any, trials: Any) -> MinimumN:
    low, high = wilson(successes, trials)
    return MinimumN(int(n), K, rate, int(successes), int(trials), float(low), float(high))


def _level(value: Any, name: str) -> float:
    value = check_number(value, name, strict=True)
    if value >= 1:
        raise ValueError(f"{name} must be below 1, got {value:g}")
    return value


def _place(at: float, tried: NDArray[Any], digits: int = 1) -> str:
    if np.isinf(at):
        return f">{tried.max():.{digits}f}" if at > 0 else f"<{tried.min():.{digits}f}"
    return _known(at, digits)


def _known(value: float, digits: int = 1) -> str:
    return "" if np.isnan(value) else f"{value:.{digits}f}"
