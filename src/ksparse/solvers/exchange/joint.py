"""`joint`: several targets, classes or groups of columns that share one choice of at most k."""

from __future__ import annotations

import math
import warnings
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
from ...engine.resume import check_columns, digest, fingerprint
from ...problem import Problem
from ...result import Progress, Record, Result, Status, judged
from .exchange import Exchange, records
from .search import Asked, Stop

Array = NDArray[np.float64]
SEARCH = Exchange()


@dataclass(frozen=True)
class JointExchange(Exchange):
    """Deprecated: `Exchange` serves groups and several outputs too."""

    def __post_init__(self) -> None:
        warnings.warn("JointExchange is deprecated; use Exchange", DeprecationWarning, stacklevel=3)
        super().__post_init__()


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
    solver: Exchange = SEARCH,
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
    solver : Exchange, default=Exchange()
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
    if not isinstance(solver, Exchange):
        raise ValueError(f"solver must be an Exchange for joint supports, got {solver!r}")
    if callback is not None and not callable(callback):
        raise ValueError(f"callback must be a function of one argument, got {callback!r}")
    if max_time is not None:
        max_time = check_number(max_time, "max_time", strict=True, infinite=True)
    k = check_count(k, "k")
    clock = Clock(max_time, 1)
    asked = _asked(
        A, Y, k, loss, offset, solver.effort,
        sample_weight=sample_weight, l2=l2, always_keep=always_keep, intercept=intercept,
    )  # fmt: skip
    problem, numbers = asked.problem, _group_numbers(groups, asked.problem.d)
    free = np.setdiff1d(np.arange(problem.d), problem.kept)
    competing = np.unique(numbers[free]).size
    if competing == 0:
        raise ValueError("always_keep must leave columns to choose from, got all of them; take one out, k will keep it")
    if k > competing:
        what = "columns" if groups is None else "groups"
        beside = f" beside the {problem.kept.size} columns always kept" if problem.kept.size else ""
        raise ValueError(f"k must be at most the number of {what}{beside}, {competing}, got {k}")
    if groups is not None and competing < free.size:
        asked = asked._replace(groups=numbers)
    asked = asked._replace(start=_first(start, asked, numbers, k))
    return loop.run(JointTask(solver, asked, numbers, clock), clock, callback)


# --- arguments -------------------------------------------------------------------------------------------------------
def _asked(A: Any, Y: Any, k: int, loss: Any, offset: Any, effort: str, **settings: Any) -> Asked:
    """What is searched for, checked; without groups and start."""
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
        shift = _offset(offset, labels.size, count)
        return Asked(problem, [k], effort, classes=(labels.astype(np.float64), shift))
    plain = losses.resolve(loss)
    if np.ndim(Y) == 2 and np.shape(Y)[1] > 1:
        if not getattr(plain, "quadratic", False):
            raise ValueError(
                f"loss must be 'squared' for a Y of several columns (shape {np.shape(Y)}), got {loss!r}; "
                "fit other losses column by column"
            )
        targets = _finite_matrix(Y, "Y")
        problem = Problem.create(A, np.zeros(targets.shape[0]), loss=plain, **settings)
        return Asked(problem, [k], effort, Y=targets - _offset(offset, *targets.shape))
    return Asked(Problem.create(A, np.ravel(Y), loss=plain, offset=offset, **settings), [k], effort)


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


def _first(start: Any, asked: Asked, groups: NDArray[np.int64], k: int) -> tuple[Array, Array] | None:
    """Where to start: the k largest groups."""
    if start is None:
        return None
    W, constant = (start.x, start.intercept) if isinstance(start, Result) else (start, 0.0)
    W = _finite_matrix(np.atleast_1d(as_array(W, "start")), "start")
    shape = (asked.problem.d, asked.outputs)
    if W.ndim == 1 and shape[1] == 1:
        W = W[:, np.newaxis]
    if W.shape != shape:
        raise ValueError(
            f"start must have shape {shape}, one row per column of A and one column per output, got {W.shape}"
        )
    competing = np.ones(shape[0], dtype=bool)
    competing[asked.problem.kept] = False
    size = np.bincount(groups[competing], weights=np.sum(W[competing] ** 2, axis=1), minlength=groups.max() + 1)
    W = np.where((competing & np.isin(groups, np.argsort(-size, kind="stable")[k:]))[:, np.newaxis], 0.0, W)
    return W, np.broadcast_to(np.asarray(constant, dtype=np.float64), (shape[1],)).copy()


# --- the run ---------------------------------------------------------------------------------------------------------
class JointTask(Task):
    """The search in the loop; the best fit so far is its iterate."""

    start_argument = "start"
    resumable = True

    def __init__(self, solver: Exchange, asked: Asked, groups: NDArray[np.int64], clock: Clock) -> None:
        self.solver, self.asked, self.groups, self.clock, self.limit = solver, asked, groups, clock, solver.stages
        self.fit: Stop | None = None
        self.numbers = asked.problem.design.entries
        self.null: float | None = None  # the objective of the empty model, once it is known

    def stages(self, state: State | None) -> Iterator[Record]:
        return records(self.asked, self.clock, state, self._place)

    def _place(self, stop: Stop) -> int:
        before = () if self.fit is None else self.fit.columns
        self.fit = stop
        return int(np.setdiff1d(stop.columns, before).size)

    def take(self, record: Record, stage: int) -> Status | None:
        self.null = record.null if stage == 0 else self.null
        if math.isfinite(record.objective):
            return None
        if stage == 0:
            raise ValueError(f"the objective is not finite at the start ({record.objective}); rescale Y or offset")
        return Status("diverged", "the refit left the range of floats", "rescale the columns, or give a ridge")

    def shown(self) -> tuple[Array, Array, NDArray[np.intp]]:
        """Coefficients on all columns, the intercepts, and the support; zeros before the first fit."""
        x, constant = np.zeros((self.asked.problem.d, self.asked.outputs)), np.zeros(self.asked.outputs)
        if self.fit is not None:
            x[self.fit.columns], constant = self.fit.x, self.fit.constant.copy()
        return x, constant, np.flatnonzero(x.any(axis=1))

    def exhausted(self) -> Status:
        return Status("stage limit", f"all {self.limit} stages done", "allow more stages")

    def result(self, status: Status, trace: Trace) -> Result:
        x, constant, support = self.shown()
        objective = self._zero() if self.fit is None else self.fit.objective
        if not trace.records:  # the start itself had not been fitted
            trace.add(Record(objective, 0, 0, 0.0, math.nan, math.nan))
        status = judged(status, objective, self.null, 1e-9 * abs(self.null or 0.0), bool(np.isfinite(x).all()))
        history = trace.history()
        return Result(x, constant, support, objective, status, trace.stages, history, trace.swap_optimal, self.null)

    def _zero(self) -> float:
        """F at zero: the result of a run that was cut short before its first fit."""
        asked, problem = self.asked, self.asked.problem
        if asked.classes is not None:
            labels, z = asked.classes
            top = z.max(axis=1)
            own = z[np.arange(problem.n), labels.astype(np.int64)]
            return float(problem.weight @ (np.log(np.exp(z.T - top).sum(axis=0)) + top - own)) / problem.n
        if asked.Y is not None:
            return 0.5 * float(np.sum(problem.weight @ asked.Y**2)) / problem.n
        return problem.objective(problem.slots(1))

    def fingerprint(self) -> State:
        asked = self.asked
        x0, constant = (None, 0.0) if asked.start is None else asked.start
        kind, targets = "Single", {}
        if asked.Y is not None:
            kind, targets = "Targets", {"Y, less the offset,": digest(asked.Y)}
        if asked.classes is not None:
            kind, targets = "Classes", {"Y": digest(asked.classes[0]), "offset": digest(asked.classes[1])}
        return {
            **fingerprint(self.solver, asked.problem, asked.sizes[0], x0, constant, None),
            "the kind of targets": kind,
            "the number of outputs": asked.outputs,
            "groups": sums(self.groups),
            **targets,
        }

    def state(self) -> State:
        fit = self.fit
        return {"null": self.null, "fit": None if fit is None else [fit.columns, fit.x, fit.constant, fit.objective]}

    def restore(self, state: State) -> None:
        self.null = state["null"]
        if state["fit"] is not None:
            columns, x, constant, objective = state["fit"]
            self.fit = Stop(check_columns(self.asked.problem, columns, x), x, constant, float(objective), False)
