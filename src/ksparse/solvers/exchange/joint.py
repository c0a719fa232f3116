"""`joint`: several targets, classes or groups of columns that share one choice of at most k."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ... import losses
from ..._validate import as_array, as_real, check_choice, check_count, check_vector
from ...problem import Problem
from ...result import Progress, Result
from .exchange import Exchange
from .path import solve_path
from .search import Asked

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
    k = check_count(k, "k")
    asked = ask(
        A, Y, [k], loss=loss, groups=groups, offset=offset, effort=solver.effort, start=start,
        sample_weight=sample_weight, l2=l2, always_keep=always_keep, intercept=intercept,
    )  # fmt: skip
    [result] = solve_path(
        asked, [asked.problem.l2], callback=callback, max_time=max_time, stages=solver.stages, flat=False
    )
    return result


# --- arguments -------------------------------------------------------------------------------------------------------
def ask(
    A: Any, Y: Any, sizes: Sequence[int], *, loss: Any, groups: Any, offset: Any, effort: str, start: Any = None,
    **settings: Any,
) -> Asked:  # fmt: skip
    """What is searched for, checked: `settings` are those of a `Problem`, the others are arguments of `joint`."""
    asked = _asked(A, Y, loss, offset, **settings)._replace(sizes=sizes, effort=effort)
    problem, numbers, k = asked.problem, _group_numbers(groups, asked.problem.d), max(sizes)
    free = np.setdiff1d(np.arange(problem.d), problem.kept) if problem.kept.size else np.arange(problem.d)
    competing = free.size if groups is None else np.unique(numbers[free]).size
    if competing == 0:
        raise ValueError("always_keep must leave columns to choose from, got all of them; take one out, k will keep it")
    if k > competing:
        what = "columns" if groups is None else "groups"
        beside = f" beside the {problem.kept.size} columns always kept" if problem.kept.size else ""
        raise ValueError(f"k must be at most the number of {what}{beside}, {competing}, got {k}")
    if competing < free.size:
        asked = asked._replace(groups=numbers)
    return asked if start is None else asked._replace(start=_first(start, asked, numbers, k))


def _asked(A: Any, Y: Any, loss: Any, offset: Any, **settings: Any) -> Asked:
    """The problem and its targets."""
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
        return Asked(problem, [], classes=(labels.astype(np.float64), shift))
    plain = losses.resolve(loss)
    if np.ndim(Y) == 2 and np.shape(Y)[1] > 1:
        if not getattr(plain, "quadratic", False):
            raise ValueError(
                f"loss must be 'squared' for a Y of several columns (shape {np.shape(Y)}), got {loss!r}; "
                "fit other losses column by column"
            )
        targets = _finite_matrix(Y, "Y")
        problem = Problem.create(A, np.zeros(targets.shape[0]), loss=plain, **settings)
        return Asked(problem, [], Y=targets - _offset(offset, *targets.shape))
    return Asked(Problem.create(A, np.ravel(Y), loss=plain, offset=offset, **settings), [])


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


def _first(start: Any, asked: Asked, groups: NDArray[np.int64], k: int) -> tuple[Array, Array]:
    """Where to start: the k largest groups."""
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
