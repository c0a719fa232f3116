"""JointExchange and `joint`: several targets, classes or groups of columns that share one choice of at most k."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ... import losses
from ..._validate import as_array, as_real, check_choice, check_count, check_number, check_vector
from ...engine import loop
from ...engine.checkpoint import sums
from ...engine.loop import Clock, State, Task, Trace
from ...engine.resume import digest, fingerprint
from ...problem import Problem
from ...result import Progress, Record, Result, Status, judged
from ..base import check_fields
from ..newton import Array
from .joint_run import ColumnGroups, JointRun
from .outputs import Classes, Outputs, Single, SquaredTargets, Start


@dataclass(frozen=True)
class JointExchange:
    """`Exchange` for groups: groups of columns, or single columns with the coefficients of all outputs.

    For several targets the quadratic model has one matrix for all outputs, and is exact.  For the softmax such a model,
    with the mean curvature of a row over its classes, ranks the groups; on the best ones exchanges are judged in the
    whole Hessian, classes against classes, if that has no more than about 1200 rows.  Then the result counts as
    ``swap_optimal`` only if the ranking predicts no decrease for any group that was left out.

    Parameters
    ----------
    breaths : int, default=1
        How many perturbations to try: each grows the support by half, shrinks it again, searches, and keeps the better
        fit.  More of them are slower and sometimes better.
    working_set : int, default=None
        ColumnGroups in the model; None means 4k for the squared loss and 2.5k for others, but at least k + 50.
    gain : float, default=1e-6
        An exchange is tried if the model predicts a decrease of the objective by at least this share.
    stages : int, default=200
        The largest number of stages.

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
    r"""Minimise a loss over matrices in which at most k groups of rows are not zero.

    .. math:: \min_W\ F(W) = \frac1n \sum_i \tilde w_i\,\varphi(a_i\cdot W, y_i) + \frac{\lambda}{2}\|W\|^2

    with W of shape (d, outputs).  A group is one row of W, or with `groups` all rows of one label.

    Parameters
    ----------
    A : array, sparse matrix or DataFrame of shape (n, d)
        Its rows are samples.
    Y : array
        Of shape (n, outputs) for the squared loss of several targets; class numbers 0, 1, ... for "softmax"; of shape
        (n,) for other losses, as in `minimize`.
    k : int
        The largest number of groups that are not zero, beside the kept columns.
    loss : str or loss, default="squared"
        "squared", "softmax", or any loss of `minimize`.
    groups : array of length d, default=None
        One label per column; columns of one label are chosen together.  None: every column is a group of its own.
    l2 : float, default=0.0
        λ, the weight of the ridge.
    intercept : bool, default=False
        Fit a constant per output too: it is always kept, and the ridge does not shrink it.
    sample_weight : array of shape (n,), default=None
        Scaled to mean one; zero leaves a row out.
    offset : array of shape (n,) or (n, outputs), default=None
        Added to the predictions.
    always_keep : columns or mask, default=None
        Columns that are in every model and do not count towards k.
    start : array of shape (d, outputs) or Result, default=None
        Where to start; its k largest groups are taken.  A `Result` brings its intercept along.
    solver : JointExchange, default=JointExchange()
        The search, with its settings.
    callback : function of a `Progress`, default=None
        Called after every stage, with an x and an intercept of the shapes that the result has; the run stops if it
        returns something true.
    max_time : float, default=None
        Seconds after which the best point so far is returned.

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
    competing = ColumnGroups.create(_group_numbers(groups, problem.d), problem.kept)
    if competing.number == 0:
        raise ValueError("always_keep must leave columns to choose from, got all of them; take one out, k will keep it")
    if k > competing.number:
        what = "columns" if groups is None else "groups"
        beside = f" beside the {problem.kept.size} columns always kept" if problem.kept.size else ""
        raise ValueError(f"k must be at most the number of {what}{beside}, {competing.number}, got {k}")
    task = JointTask(solver, outputs, competing, k, _first(start, outputs, competing, k), clock)
    return loop.run(task, clock, callback)


# --- arguments -------------------------------------------------------------------------------------------------------
def _outputs(A: Any, Y: Any, loss: Any, offset: Any, check: Callable[[], None], **settings: Any) -> Outputs:
    """The loss with its targets, checked."""
    softmax = isinstance(loss, str) and loss == "softmax"
    if isinstance(loss, str) and not softmax:
        check_choice(loss, "loss", [*losses.LOSSES, "softmax"])
    Y, offset = as_real(Y, "Y"), None if offset is None else as_real(offset, "offset")
    if Y.ndim > 2:
        raise ValueError(f"Y must have one entry or one row per row of A, got shape {Y.shape}")
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
        return SquaredTargets(problem, targets, _offset(offset, *targets.shape), check)
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
        raise ValueError(f"groups must have one label per column, that is shape ({d},), got shape {labels.shape}")
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        at = int(np.flatnonzero(~np.isfinite(labels))[0])
        raise ValueError(f"groups must be labels, got {labels[at]} at column {at}; give every column a group")
    number: dict[Any, int] = {}
    return np.array([number.setdefault(label, len(number)) for label in labels.tolist()], dtype=np.int64)


def _first(start: Any, outputs: Outputs, groups: ColumnGroups, k: int) -> Start | None:
    """Where to start: the k largest groups."""
    if start is None:
        return None
    W, constant = (start.x, start.intercept) if isinstance(start, Result) else (start, 0.0)
    W = _finite_matrix(np.atleast_1d(as_array(W, "start")), "start")
    shape = (outputs.problem.d, outputs.n_outputs)
    if W.ndim == 1 and shape[1] == 1:
        W = W[:, np.newaxis]
    if W.shape != shape:
        raise ValueError(
            f"start must have shape {shape}, one row per column of A and one column per output, got {W.shape}"
        )
    W = W.copy()
    size = np.add.reduceat(np.sum(W[groups.order] ** 2, axis=1), groups.starts[:-1])
    W[groups.columns(np.argsort(-size, kind="stable")[k:])] = 0.0
    return W, np.broadcast_to(np.asarray(constant, dtype=np.float64), (shape[1],)).copy()


# --- the run ---------------------------------------------------------------------------------------------------------
class JointTask(Task):
    """The run of `JointExchange` in the loop; the best fit so far is its iterate."""

    start_argument = "start"
    resumable = True

    def __init__(
        self, solver: JointExchange, outputs: Outputs, groups: ColumnGroups, k: int, start: Start | None, clock: Clock
    ) -> None:
        self.solver, self.start, self.limit = solver, start, solver.stages
        self.search = JointRun(solver, outputs, groups, k, start, clock)
        self.null: float | None = None  # the objective of the empty model, once it is known

    def stages(self, state: State | None) -> Iterator[Record]:
        self.null = self.search.empty.objective
        yield from self.search.records(state)

    def take(self, record: Record, stage: int) -> Status | None:
        if math.isfinite(record.objective):
            return None
        if stage == 0:
            raise ValueError(f"the objective is not finite at the start ({record.objective}); rescale Y or offset")
        return Status("diverged", "the refit left the range of floats", "rescale the columns, or give a ridge")

    def shown(self) -> tuple[Array, Array, NDArray[np.intp]]:
        """Coefficients on all columns, the intercepts, and the support; zeros before the first fit."""
        outputs, fit = self.search.outputs, self.search.best
        x, constant = np.zeros((outputs.problem.d, outputs.n_outputs)), np.zeros(outputs.n_outputs)
        if fit is not None:
            x[fit.columns], constant = fit.x, fit.constant.copy()
        return x, constant, np.flatnonzero(x.any(axis=1))

    def exhausted(self) -> Status:
        return Status("stage limit", f"all {self.limit} stages done", "allow more stages")

    def result(self, status: Status, trace: Trace) -> Result:
        fit, null = self.search.best, self.null
        if fit is None:  # the start itself had not been fitted
            objective = self.search.outputs.zero_objective()
            trace.add(Record(objective, 0, 0, 0.0, math.nan, math.nan))
        else:
            objective = fit.objective
        x, constant, support = self.shown()
        status = judged(status, objective, null, 1e-9 * abs(null or 0.0), bool(np.isfinite(x).all()))
        history = trace.history()
        return Result(x, constant, support, objective, status, trace.stages, history, trace.swap_optimal, null)

    def fingerprint(self) -> State:
        outputs = self.search.outputs
        x0, constant = (None, 0.0) if self.start is None else self.start
        return {
            **fingerprint(self.solver, outputs.problem, self.search.k, x0, constant, None),
            "the kind of targets": outputs.kind,
            "the number of outputs": outputs.n_outputs,
            "groups": sums(self.search.groups.of),
            **{name: digest(values) for name, values in outputs.targets.items()},
        }
