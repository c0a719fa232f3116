"""JointExchange and `joint`: several targets, classes or groups of columns that share one choice of at most k."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .. import losses
from .._checkpoint import next_run, sums
from .._validate import as_array, as_real, check_choice, check_count, check_number, check_vector
from ..problem import Problem
from ..result import Progress, Result, Status, judged
from ._fields import check_fields
from ._joint_run import JointRun, Units
from ._keeping import digest, end_entry, fingerprint, restored_result
from ._outputs import Classes, JointFit, Outputs, Single, Targets
from ._run import Clock, TimeUp, ask, history_of


@dataclass(frozen=True)
class JointExchange:
    """`Exchange` for units: columns with the coefficients of all outputs, or groups of columns.

    For several targets the quadratic model has one matrix for all outputs, and is exact.  For the softmax such a model,
    with the mean curvature of a row over its classes, ranks the units; on the most promising ones exchanges are judged
    in the whole Hessian, classes against classes, if that has no more than some 1200 rows.  Then the result counts as
    ``swap_optimal`` only if no unit that was left out ranks as a promise.

    Parameters
    ----------
    breaths : int
        How often to grow the support by half, shrink it again and keep what is better: the more, the better and slower.
    working_set : int, optional
        Units in the model; by default 4k for the squared loss and 2.5k for others, but at least k + 50.
    gain : float
        The share of the objective that an exchange must promise.
    stages : int
        At most so many models.

    Examples
    --------
    >>> import numpy as np
    >>> from ksparse import JointExchange, joint
    >>> rng = np.random.default_rng(0)
    >>> A = rng.standard_normal((100, 50))
    >>> Y = np.column_stack([A[:, 3] - A[:, 7], A[:, 3] + A[:, 7]])
    >>> joint(A, Y, k=2, solver=JointExchange(breaths=0)).support
    array([3, 7])
    """

    breaths: int = 1
    working_set: int | None = None
    gain: float = 1e-6
    stages: int = 200

    remedies: ClassVar[dict[str, str]] = {"stage limit": "allow more stages"}

    def __post_init__(self) -> None:
        check_fields(self)


def joint(
    A: Any,
    Y: ArrayLike,
    k: int,
    *,
    loss: Any = "squared",
    groups: ArrayLike | None = None,
    l2: float = 0.0,
    intercept: bool = False,
    sample_weight: ArrayLike | None = None,
    offset: ArrayLike | None = None,
    always_keep: ArrayLike | None = None,
    start: Any = None,
    solver: JointExchange = JointExchange(),
    callback: Callable[[Progress], Any] | None = None,
    max_time: float | None = None,
) -> Result:
    r"""Minimise a loss over matrices in which at most k units are not zero.

    .. math:: \min_W\ F(W) = \frac1n \sum_i \tilde w_i\,\varphi(a_i\cdot W, y_i) + \frac{\lambda}{2}\|W\|^2

    with W of shape (d, outputs).  A unit is a row of W, or with `groups` all rows of a group.

    Parameters
    ----------
    A : array, sparse matrix or DataFrame of shape (n, d)
    Y : array
        Of shape (n, outputs) for the squared loss of several targets; class numbers 0, 1, ... for "softmax"; of shape
        (n,) for other losses, as in `minimize`.
    k : int
        How many units there may be, beside the kept columns.
    loss : str or loss
        "squared", "softmax", or any loss of `minimize`.
    groups : array of length d, optional
        A label a column; columns of one label are chosen together.
    l2, intercept, sample_weight, always_keep, callback, max_time
        As in `minimize`; the callback's x and intercept have the shapes that the result has.
    offset : array of shape (n,) or (n, outputs), optional
        Added to the predictions.
    start : array of shape (d, outputs) or Result, optional
        Of its units the k largest are taken.
    solver : JointExchange

    Returns
    -------
    Result
        With x of shape (d, outputs) and an intercept of shape (outputs,).

    Examples
    --------
    >>> import numpy as np
    >>> from ksparse import joint
    >>> rng = np.random.default_rng(0)
    >>> A = rng.standard_normal((100, 30))
    >>> result = joint(A, A[:, 6] + A[:, 7] - A[:, 8], k=1, groups=np.arange(30) // 3)
    >>> result.support, result.x.shape
    (array([6, 7, 8]), (30, 1))
    """
    if not isinstance(solver, JointExchange):
        raise ValueError(f"solver must be a JointExchange for joint supports, got {solver!r}")
    if callback is not None and not callable(callback):
        raise ValueError(f"callback must be a function of one argument, got {callback!r}")
    if max_time is not None:
        max_time = check_number(max_time, "max_time", strict=True, infinite=True)
    k = check_count(k, "k")
    clock = Clock(max_time, 1)
    outputs = _outputs(
        A, Y, loss, offset, clock.check,
        sample_weight=sample_weight, l2=l2, always_keep=always_keep, intercept=intercept,
    )  # fmt: skip
    problem = outputs.problem
    units = Units.create(_group_numbers(groups, problem.d), problem.kept)
    if units.number == 0:
        raise ValueError("always_keep must leave columns to choose from, got all of them; take one out, k will keep it")
    if k > units.number:
        what = "columns" if groups is None else "groups"
        beside = f" beside the {problem.kept.size} columns always kept" if problem.kept.size else ""
        raise ValueError(f"k must be at most the number of {what}{beside}, {units.number}, got {k}")
    return _run(solver, outputs, units, k, _first(start, outputs, units, k), callback, clock)


# --- arguments -------------------------------------------------------------------------------------------------------
def _outputs(A: Any, Y: Any, loss: Any, offset: Any, check: Callable[[], None], **settings: Any) -> Outputs:
    """The loss with its targets, checked."""
    softmax = isinstance(loss, str) and loss == "softmax"
    if isinstance(loss, str) and not softmax:
        check_choice(loss, "loss", [*losses.LOSSES, "softmax"])
    Y, offset = as_real(Y, "Y"), None if offset is None else as_real(offset, "offset")
    if softmax:
        labels, count = _labels(Y)
        # the problem brings rows, weights and ridge; its own targets and loss are not used
        problem = Problem.create(A, np.zeros(labels.size), **settings)
        if offset is not None and np.ndim(offset) != 2:
            raise ValueError(f"offset must have shape ({labels.size}, {count}) for softmax, got {np.shape(offset)}")
        return Classes(problem, labels, count, _offset(offset, labels.size, count), check)
    plain = losses.resolve(loss)
    if np.ndim(Y) == 2 and np.shape(Y)[1] > 1:
        if not getattr(plain, "quadratic", False):
            raise ValueError(
                f"loss must be 'squared' for a Y of several columns (shape {np.shape(Y)}), got {loss!r}; "
                "fit other losses column by column"
            )
        targets = _finite_matrix(Y, "Y")
        problem = Problem.create(A, np.zeros(targets.shape[0]), loss=plain, **settings)
        return Targets(problem, targets, _offset(offset, *targets.shape), check)
    return Single(Problem.create(A, np.ravel(Y), loss=plain, offset=offset, **settings), check)


def _labels(labels: NDArray[Any]) -> tuple[NDArray[np.int64], int]:
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise ValueError(
            f"Y must be class numbers 0, 1, ... in shape (n,) for softmax, got dtype {labels.dtype}, "
            f"shape {labels.shape}; np.unique(Y, return_inverse=True) numbers labels"
        )
    found = np.unique(labels)
    if found.size < 2 or found[0] != 0 or found[-1] != found.size - 1:
        shown = ", ".join(map(str, found[:5])) + (", ..." if found.size > 5 else "")
        raise ValueError(
            f"Y must number at least two classes 0, 1, ... without gaps, got {shown}; "
            "np.unique(Y, return_inverse=True) does so"
        )
    return labels.astype(np.int64), found.size


def _finite_matrix(value: Any, name: str) -> NDArray[np.float64]:
    matrix = as_real(value, name).astype(np.float64)
    if not np.isfinite(matrix).all():
        at = tuple(np.argwhere(~np.isfinite(matrix))[0].tolist())
        where = f"row {at[0]}, column {at[1]}" if len(at) == 2 else f"index {at[0]}"
        raise ValueError(f"{name} must be finite, got {matrix[at]} in {where}; remove or impute it first")
    return matrix


def _offset(offset: Any, n: int, outputs: int) -> NDArray[np.float64]:
    if offset is None:
        return np.zeros((n, outputs))
    if np.ndim(offset) == 2 and np.shape(offset)[1] > 1:
        matrix = _finite_matrix(offset, "offset")
        if matrix.shape != (n, outputs):
            raise ValueError(f"offset must have shape ({n},) or ({n}, {outputs}), got {matrix.shape}")
        return matrix
    return np.repeat(check_vector(offset, "offset", n, "row")[:, np.newaxis], outputs, axis=1)


def _group_numbers(groups: Any, d: int) -> NDArray[np.int64]:
    if groups is None:
        return np.arange(d)
    labels = as_array(groups, "groups")
    if labels.shape != (d,):
        raise ValueError(f"groups must have one label a column, that is shape ({d},), got shape {labels.shape}")
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        at = int(np.flatnonzero(~np.isfinite(labels))[0])
        raise ValueError(f"groups must be labels, got {labels[at]} at column {at}; give every column a group")
    number: dict[Any, int] = {}
    return np.array([number.setdefault(label, len(number)) for label in labels.tolist()], dtype=np.int64)


def _first(
    start: Any, outputs: Outputs, units: Units, k: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """Where to start: the k largest units."""
    if start is None:
        return None
    W, constant = (start.x, start.intercept) if isinstance(start, Result) else (start, 0.0)
    W = _finite_matrix(np.atleast_1d(as_array(W, "start")), "start")
    shape = (outputs.problem.d, outputs.n_outputs)
    if W.ndim == 1 and shape[1] == 1:
        W = W[:, np.newaxis]
    if W.shape != shape:
        raise ValueError(f"start must have shape {shape}, a row a column of A and a column an output, got {W.shape}")
    W = W.copy()
    size = np.add.reduceat(np.sum(W[units.order] ** 2, axis=1), units.starts[:-1])
    W[units.columns(np.argsort(-size, kind="stable")[k:])] = 0.0
    return W, np.broadcast_to(np.asarray(constant, dtype=np.float64), (shape[1],)).copy()


# --- the loop --------------------------------------------------------------------------------------------------------
def _run(
    solver: JointExchange,
    outputs: Outputs,
    units: Units,
    k: int,
    start: Any,
    callback: Callable[[Progress], Any] | None,
    clock: Clock,
) -> Result:
    """As `run` of the other solvers: history, callback, time limit, Ctrl-C; a run cut short gives the best fit so
    far."""
    entry = next_run(lambda: _fingerprint(solver, outputs, units, k, start))
    run = JointRun(solver, outputs, units, k, start, clock)
    if entry is None:
        return _stages(solver, run, callback, clock, [])
    with entry:
        if entry.result is not None:
            return restored_result(entry.result)
        records: list[tuple[float, ...]] = []
        state = entry.state
        if state is not None:
            records += [tuple(record) for record in np.asarray(state["records"]).tolist()]
            clock.go_on(state["seconds"], state["free"])

        def keep(solver: dict[str, Any]) -> None:
            stage, seconds = len(records) - 1, clock.seconds
            entry.keep({"stage": stage, "records": records, "seconds": seconds, "free": clock.free, "solver": solver})

        clock.keeper = keep
        result = _stages(solver, run, callback, clock, records, None if state is None else state["solver"])
        end_entry(entry, result)
    return result


def _stages(
    solver: JointExchange,
    run: JointRun,
    callback: Callable[[Progress], Any] | None,
    clock: Clock,
    records: list[tuple[float, ...]],
    state: dict[str, Any] | None = None,
) -> Result:
    """The stages that come after `records`."""
    outputs = run.outputs
    gradients, status, swap_optimal = int(records[-1][1]) if records else 0, None, None
    null: float | None = None
    try:
        null = run.empty.objective
        for record in run.records(state):
            gradients += record.gradients
            records.append((record.objective, gradients, clock.seconds, *record[2:5]))
            stage = len(records) - 1
            if stage == 0 and not math.isfinite(record.objective):
                raise ValueError(f"the objective is not finite at the start ({record.objective}); rescale Y or offset")
            if not math.isfinite(record.objective):
                message = "the refit left the range of floats"
                status = Status("diverged", message, "rescale the columns, or give a ridge")
            elif callback is not None and stage > 0:
                status = _tell(callback, run, stage, gradients, clock, record.support_changes)
            if status is None and stage > 0:
                status, swap_optimal = record.status, record.swap_optimal
            if status is not None or stage >= solver.stages:
                break
        if status is None:
            status = Status("stage limit", f"all {solver.stages} stages done", solver.remedies["stage limit"])
    except TimeUp:
        message = f"max_time = {clock.limit:g} s is over"
        status = Status("time limit", message, "give more time, or start again from start=result")
    except KeyboardInterrupt:
        status = Status("interrupted", "Ctrl-C", "start again from start=result to go on")
    fit = run.best
    if fit is None:  # not even the start had been looked at
        x, constant, objective = *_nothing(outputs), outputs.zero_objective()
        records.append((objective, 0, clock.seconds, 0, 0.0, math.nan))
    else:
        x, constant, objective = *_spread(fit, outputs.problem.d), fit.objective
    support = np.flatnonzero(x.any(axis=1))
    status = judged(status, objective, null, 1e-9 * abs(null or 0.0), bool(np.isfinite(x).all()))
    return Result(x, constant, support, objective, status, len(records) - 1, history_of(records), swap_optimal, null)


def _fingerprint(solver: JointExchange, outputs: Outputs, units: Units, k: int, start: Any) -> dict[str, Any]:
    x0, constant = (None, 0.0) if start is None else start
    return {
        **fingerprint(solver, outputs.problem, k, x0, constant, None),
        "the kind of targets": type(outputs).__name__,
        "the number of outputs": outputs.n_outputs,
        "groups": sums(units.of),
        **{name: digest(values) for name, values in outputs.targets.items()},
    }


def _nothing(outputs: Outputs) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    return np.zeros((outputs.problem.d, outputs.n_outputs)), np.zeros(outputs.n_outputs)


def _spread(fit: JointFit, d: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Coefficients on all columns, and the constants."""
    x = np.zeros((d, fit.x.shape[1]))
    x[fit.columns] = fit.x
    return x, fit.constant.copy()


def _tell(
    callback: Callable[[Progress], Any], run: JointRun, stage: int, gradients: int, clock: Clock, changes: int
) -> Status | None:
    assert run.best is not None
    x, constant = _spread(run.best, run.problem.d)
    support = np.flatnonzero(x.any(axis=1))
    told = Progress(stage, run.best.objective, x, constant, support, gradients, clock.seconds, math.nan, changes)
    return ask(callback, told)
