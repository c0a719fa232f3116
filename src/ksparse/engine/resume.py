"""What a run leaves in a checkpoint: what tells it from other runs, its iterates and its result, as plain data."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..result import History, Result, Status
from .checkpoint import Entry, encoded, sums

if TYPE_CHECKING:
    from ..problem import Problem, Slots

DAMAGED = "the checkpoint holds columns that this problem does not have; remove the file"
CHANCE = 2**96  # a seed above it was drawn by NumPy, not given by the user


def fingerprint(
    solver: Any, problem: Problem, k: int, x0: ArrayLike | None, intercept0: Any, rng: np.random.Generator | None
) -> dict[str, Any]:
    """What a run solves and how, by names that the user knows.

    The rows, targets and offsets are compared bit by bit, by their digests: in a sum, large numbers could hide a small
    change.  What is computed from them (weights, standardisation, starts) is compared by sums, up to rounding.
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
    """A checksum that depends on every bit of an array."""
    return [hashlib.sha256(np.ascontiguousarray(values).data).hexdigest()]


def _described(thing: Any) -> str:
    """A solver or loss with its settings; other classes by name, since their repr may hold a memory address."""
    plain = dataclasses.is_dataclass(thing) or isinstance(thing, tuple)
    return repr(thing) if plain else type(thing).__name__


def _seed(rng: np.random.Generator) -> str:
    """The generator's state as a digest; "no seed" if NumPy drew the seed, which is then a new one every time."""
    source = rng.bit_generator
    entropy = getattr(getattr(source, "seed_seq", None), "entropy", None)
    digest = hashlib.sha256(json.dumps(encoded(source.state)).encode()).hexdigest()
    drawn = isinstance(entropy, int) and entropy >= CHANCE
    return f"{type(source).__name__}, {'no seed' if drawn else f'state {digest[:8]}'}"


def check_columns(problem: Problem, columns: NDArray[np.int64], x: NDArray[np.float64]) -> NDArray[np.int64]:
    """Check the columns of a checkpoint, which may have been edited: kernels do not check their indices."""
    sound = columns.dtype == np.int64 and len(columns) == len(x) and np.unique(columns).size == columns.size
    if not sound or (columns < 0).any() or (columns >= problem.d).any():
        raise ValueError(DAMAGED)
    return columns


def rebuilt(problem: Problem, like: Slots, column: NDArray[np.int64], x: NDArray[np.float64]) -> Slots:
    """An iterate from its columns and coefficients, in the given order."""
    first, kept = problem.first, problem.n_kept
    taken = check_columns(problem, column[first:], x[first:])
    if x.shape != like.x.shape:
        raise ValueError(DAMAGED)
    return problem.place(like.x.size - kept, taken[problem.kept.size :], x[first:], x[0] if first else 0.0)


def end_entry(entry: Entry, outcome: Any, rng: Any = None) -> None:
    """Write the result or results of a run, and the state of its random numbers, to its entry."""
    results: list[Result] = outcome if isinstance(outcome, list) else [outcome]
    stored = _stored(results[0]) if outcome is results[0] else {"results": [_stored(result) for result in results]}
    stored["rng"] = rng
    early = [result.status for result in results if result.status in ("time limit", "interrupted")]
    if not early:
        entry.end(stored)
        return
    if entry.state is not None:
        entry.state["free"] = entry.state["seconds"]  # the next call has all of max_time again
    entry.end_early(stored, early[-1] == "interrupted")


def _stored(result: Result) -> dict[str, Any]:
    """A result as plain data; of x, the entries that are not zero."""
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


def restored_result(stored: dict[str, Any]) -> Any:
    """The result, or the list of results, that was stored."""
    if "results" in stored:
        return [restored_result(one) for one in stored["results"]]
    x = np.zeros(stored["shape"])
    x.flat[stored["at"]] = stored["x"]
    history = History(*stored["history"])
    return Result(
        x, stored["intercept"], stored["support"], stored["objective"], Status(*stored["status"]),
        len(history.objective) - 1, history, stored["swap_optimal"],
        stored["null_objective"],
    )  # fmt: skip
