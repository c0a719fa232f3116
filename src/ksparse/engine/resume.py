"""Runs in a checkpoint: what tells them apart, and results and iterates as plain data and back."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..problem import Problem, Slots
from ..result import History, Result, Status
from .checkpoint import Entry, encoded, sums

DAMAGED = "the checkpoint holds columns that this problem does not have; remove the file"
CHANCE = 2**96  # a seed above it was drawn by NumPy, not given by anybody


def fingerprint(
    solver: Any, problem: Problem, k: int, x0: ArrayLike | None, intercept0: Any, rng: np.random.Generator | None
) -> dict[str, Any]:
    """What a run solves and how, by names that the user knows.

    The rows, targets and offsets are compared bit by bit, by their digests: the smallest change could hide behind large
    numbers.  Of what is computed from them (weights, standardisation, starts) there are sums, compared up to rounding.
    """
    known = {
        "the solver": _described(solver),
        "k": k,
        "loss": _described(problem.loss),
        "the number of rows": problem.n,
        "the number of columns": problem.d,
        "the data": digest(problem.design.row_codes()),
        "standardisation": None if problem.design.scaling is None else sums(np.concatenate(problem.design.scaling)),
        "y": digest(problem.y),
        "sample_weight": sums(problem.weight),
        "offset": digest(problem.offset),
        "x0": None if x0 is None else sums(x0),
        "the intercept of x0": sums(intercept0),
        "always_keep": sums(problem.kept),
        "l2": problem.l2,
        "radius": problem.radius,
        "intercept": problem.intercept,
        "positive": problem.positive,
    }
    if rng is not None:
        known["random_state"] = _seed(rng)
    return known


def digest(values: NDArray[Any]) -> list[str]:
    """What tells arrays apart by every bit."""
    return [hashlib.sha256(np.ascontiguousarray(values).data).hexdigest()]


def _described(thing: Any) -> str:
    """With its settings, where they are shown; a class of somebody else may show where it lies in memory."""
    plain = dataclasses.is_dataclass(thing) or isinstance(thing, tuple)
    return repr(thing) if plain else type(thing).__name__


def _seed(rng: np.random.Generator) -> str:
    """The generator's state as a digest; without a seed it is another one each time, and any is as good."""
    source = rng.bit_generator
    entropy = getattr(getattr(source, "seed_seq", None), "entropy", None)
    digest = hashlib.sha256(json.dumps(encoded(source.state)).encode()).hexdigest()
    drawn = isinstance(entropy, int) and entropy >= CHANCE
    return f"{type(source).__name__}, {'no seed' if drawn else f'state {digest[:8]}'}"


def check_columns(problem: Problem, columns: NDArray[np.int64], x: NDArray[np.float64]) -> NDArray[np.int64]:
    """Columns of a checkpoint, which somebody may have changed: kernels do not look where they read."""
    sound = columns.dtype == np.int64 and len(columns) == len(x) and np.unique(columns).size == columns.size
    if not sound or (columns < 0).any() or (columns >= problem.d).any():
        raise ValueError(DAMAGED)
    return columns


def rebuilt(problem: Problem, like: Slots, column: NDArray[np.int64], x: NDArray[np.float64]) -> Slots:
    """An iterate from its columns and coefficients, in their order."""
    first, kept = problem.first, problem.n_kept
    taken = check_columns(problem, column[first:], x[first:])
    if x.shape != like.x.shape:
        raise ValueError(DAMAGED)
    return problem.place(like.x.size - kept, taken[problem.kept.size :], x[first:], x[0] if first else 0.0)


def end_entry(entry: Entry, result: Result, rng: Any = None) -> None:
    """Note how a run ended, and where it left the random numbers."""
    stored = {**_stored(result), "rng": rng}
    if result.status not in ("time limit", "interrupted"):
        entry.end(stored)
        return
    if entry.state is not None:
        entry.state["free"] = entry.state["seconds"]  # whoever goes on has all of max_time again
    entry.end_early(stored, result.status == "interrupted")


def _stored(result: Result) -> dict[str, Any]:
    """A result as plain data: of x, what is not zero."""
    x = np.ravel(result.x)
    at = np.flatnonzero((x != 0.0) | np.signbit(x))
    return {
        "shape": list(result.x.shape),
        "at": at,
        "x": x[at],
        "intercept": result.intercept,
        "support": result.support,
        "objective": result.objective,
        "status": [str(result.status), result.status.message, result.status.remedy],
        "history": list(result.history),
        "swap_optimal": result.swap_optimal,
        "null_objective": result.null_objective,
    }


def restored_result(stored: dict[str, Any]) -> Result:
    """The result that was stored."""
    x = np.zeros(stored["shape"])
    x.flat[stored["at"]] = stored["x"]
    history = History(*stored["history"])
    return Result(
        x, stored["intercept"], stored["support"], stored["objective"], Status(*stored["status"]),
        len(history.objective) - 1, history, stored["swap_optimal"],
        stored["null_objective"],
    )  # fmt: skip
