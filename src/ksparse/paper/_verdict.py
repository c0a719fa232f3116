"""When the verdict of a trial is known, long before its last stage.

A trial of the paper runs for 10,000 stages, and most of them are decided after a few dozen.  Success: the error is
below the threshold (errors were never seen to rise above it again).  Failure: the run diverged, or solved y = A x with
a wrong x.  And the forecast: while no column enters or leaves, the mean of the iterate follows a linear recursion on
its support S, which the eigenvectors of A_S'A_S solve in closed form for every later stage.  If on the whole way to
the last stage no entry of S comes near to being replaced, the end is known; if one does at some stage, the run leaps to
the stage before.  What these rules change is measured by benchmarks/bench_verdicts.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..sensing.phase import wilson

SUCCESS = 1e-3  # the paper's threshold for the relative error
SOLVED = 1e-11  # ‖Ax − y‖/‖y‖ at which nothing moves any more
BLOWN = 1e8  # a relative error that does not come back
CLOSE = 1.25  # a forecast error within this factor of the threshold decides nothing
MOMENTS = 48  # of the way to the last stage that a forecast looks at
PREDICT = ("forecast", "stagnant")  # rules whose verdict a longer run could change
FLAT = 1e-12  # eigenvalues below this share of the largest are zero


class Gram(NamedTuple):
    """A problem y = A x in the form that its gradient A'(Ax − y) needs."""

    G: NDArray[np.float64]  # A'A
    b: NDArray[np.float64]  # A'y
    y_norm: float
    truth: NDArray[np.float64]

    def error(self, x: NDArray[np.float64]) -> float:
        """‖x − x*‖ / ‖x*‖."""
        with np.errstate(over="ignore", invalid="ignore"):  # of a run that diverges
            return float(np.linalg.norm(x - self.truth) / np.linalg.norm(self.truth))


class Outlook(NamedTuple):
    """What a forecast says: the verdict if it has one, else how long the support will stay, and the iterate then."""

    success: bool | None
    quiet: int
    x: NDArray[np.float64]


def forecast(
    gram: Gram, x: NDArray[np.float64], k: int, left: int, rate: float, power: float, margin: float
) -> Outlook:
    """The end of a run, from an iterate.

    Parameters
    ----------
    x, k : the iterate and its sparsity
    left : stages (or iterations) to go
    rate, power : the factor of a stage is (1 − rate·λ)^power for an eigenvalue λ of A_S'A_S
    margin : a column may enter once rate·|gradient| times this exceeds the smallest magnitude on the support
    """
    on = np.flatnonzero(x)
    if on.size < k:
        return Outlook(None, 0, x)
    off = np.flatnonzero(x == 0)
    values, vectors = np.linalg.eigh(gram.G[np.ix_(on, on)])
    slope = vectors.T @ (gram.G[np.ix_(on, on)] @ x[on] - gram.b[on])
    times = moments(left)
    exponents = power * times
    base = 1.0 - rate * values[:, np.newaxis]
    flat = values < FLAT * values[-1]
    with np.errstate(all="ignore"):  # a run that diverges overflows, and where it does nothing is held
        shrunk = np.where(base < 0, np.where(times % 2 == 0, 1.0, -1.0), 1.0) * np.abs(base) ** exponents
        way = np.where(flat[:, np.newaxis], rate * exponents, (1.0 - shrunk) / values[:, np.newaxis])
        path = x[on][:, np.newaxis] - vectors @ (way * slope[:, np.newaxis])
        pull = np.abs(gram.G[np.ix_(off, on)] @ path - gram.b[off][:, np.newaxis]).max(axis=0, initial=0.0)
        held = np.abs(path).min(axis=0) > margin * rate * pull
        held &= (np.sign(path) == np.sign(x[on])[:, np.newaxis]).all(axis=0)
    if not held.all():
        first = int(np.argmin(held))
        if first == 0:
            return Outlook(None, 0, x)
        return Outlook(None, int(times[first - 1]), _spread(path[:, first - 1], on, x))
    rest = float(np.sum(gram.truth[off] ** 2))
    error = np.sqrt((np.sum((path[:, -1] - gram.truth[on]) ** 2) + rest) / (np.sum(gram.truth**2)))
    if SUCCESS / CLOSE < error < SUCCESS * CLOSE:
        return Outlook(None, 0, x)
    return Outlook(bool(error < SUCCESS), left, _spread(path[:, -1], on, x))


def _spread(values: NDArray[np.float64], on: NDArray[np.intp], like: NDArray[np.float64]) -> NDArray[np.float64]:
    x = np.zeros_like(like)
    x[on] = values
    return x


def rules(summary: Mapping[str, Any] | None = None) -> list[str]:
    """The rules in words, with what they changed when trials were run to their last stage as well.

    Given the summary of figure 1, also how many of its trials each rule decided, and on how many it was checked.
    """
    import json
    from importlib import resources

    texts = [
        f"Success: the relative error is below {SUCCESS:g}; errors were not seen to rise above it again.",
        f"Failure: the error exceeds {BLOWN:g}, or y = A x is solved, with a wrong x.",
        "Forecast: while no column enters or leaves, the mean of the iterate follows a linear recursion on its "
        "support, solved in closed form for every later stage. If no entry comes near to being replaced on the whole "
        f"way to the last stage, the end is known, unless the error there is within a factor of {CLOSE} of the "
        "threshold; if one does, the run leaps to the stage before.",
        "IHT and PGD also end when an iterate comes back (a fixed point or a cycle), and when an error far above the "
        "threshold has hardly moved for thousands of iterations, while columns go to and fro (stagnant).",
    ]
    measured = json.loads(resources.files(__package__).joinpath("verdicts.json").read_text(encoding="utf-8"))
    counts = (
        f"{name} {row['changed']} of {row['trials']:,} verdicts, with {row['stages']:.1%} of the stages"
        for name, row in measured.items()
    )
    texts.append(f"Measured against runs of all stages, these rules changed: {'; '.join(counts)}.")
    decided = [_decided(name, measured[name], row["rules"]) for name, row in _of_figure_1(summary or {}, measured)]
    if any(decided):
        texts.append(
            "Forecast and stagnant predict the end of a trial. Trials of Figure 1 that they decided, and the trials "
            "on which they were checked, with the share of wrong verdicts that the check does not exclude (95%): "
            f"{'; '.join(filter(None, decided))}."
        )
    return texts


def _of_figure_1(summary: Mapping[str, Any], measured: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return [(name, summary[f"{name} gaussian"]) for name in measured if f"{name} gaussian" in summary]


def _decided(name: str, measured: Mapping[str, Any], counts: Mapping[str, int]) -> str:
    """What the rules that predict decided for an algorithm: forecasts, and errors that hardly move."""
    parts = []
    for rule in PREDICT:
        checked, changed = measured["rules"].get(rule, (0, 0))
        if counts.get(rule):
            check = f"checked on {checked} (up to {wilson(changed, checked)[1]:.0%})" if checked else "not checked"
            parts.append(f"{rule} {counts[rule]:,} of {sum(counts.values()):,}, {check}")
    return f"{name}: {', '.join(parts)}" if parts else ""


def moments(left: int) -> NDArray[np.int64]:
    """Stages ahead, dense at first and ever wider, in pairs (an entry may oscillate), with the last one."""
    wide = np.geomspace(1, left, MOMENTS // 2).astype(np.int64)
    return np.unique(np.concatenate([wide, np.minimum(wide + 1, left), [left]]))
