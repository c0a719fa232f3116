"""Models whose outputs, or groups of columns, share one choice of at most k: the estimators' way to `joint`."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import warnings
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from .._progress import progress
from .._validate import as_array, renamed
from ..design import Standardized, as_design, standardize
from ..design.blocks import Source
from ..design.standardized import in_precision
from ..losses import resolve
from ..result import History, Result, Status, judged
from ..solvers.exchange.joint import JointExchange, joint
from ._evidence import Examined, examine
from ._tables import find_trouble
from ._worth import OneOutput, Softmax, Targets

Array = NDArray[np.float64]
UNFINISHED = ("diverged", "stalled", "stage limit", "time limit")


# --- groups ----------------------------------------------------------------------------------------------------------
def group_labels(groups: Any, d: int, names: Any) -> NDArray[Any] | None:
    """A label a column, as an array; None without groups.

    Of a dict {column: group} the columns that it leaves out are groups of their own.
    """
    if groups is None:
        return None
    if isinstance(groups, dict):
        columns = list(range(d)) if names is None else list(names)
        unknown = [column for column in groups if column not in columns]
        if unknown:
            raise ValueError(f"groups names the column {unknown[0]!r}, which X does not have; its keys must be columns")
        labels, taken = np.empty(d, dtype=object), list(groups.values())
        for j, column in enumerate(columns):  # a column left out must not fall into a group that bears its name
            labels[j] = groups.get(column, f"{column} (alone)" if column in taken else column)
        return labels
    labels = as_array(groups, "groups")
    if labels.shape != (d,):
        raise ValueError(
            f"groups must have one label a column, that is shape ({d},), got shape {labels.shape}; or give a dict "
            "{column: group}"
        )
    return labels


def _distinct(labels: NDArray[Any]) -> int:
    """How many labels there are."""
    try:
        return len(set(labels.tolist()))
    except TypeError as error:
        raise ValueError(f"groups must hold labels such as numbers or names ({error})") from None


def count_units(model: Any, d: int, names: Any = None) -> int:
    """How many columns, or groups of them, a model chooses from."""
    labels = group_labels(model.groups, d, names)
    return d if labels is None else _distinct(labels)


def support_groups(model: Any, S: NDArray[Any], d: int) -> tuple[list[NDArray[np.int64]], NDArray[np.bool_]]:
    """The positions in S of the columns that were chosen together, and which of these sets were not always kept."""
    kept = np.isin(S, model._kept(d))
    labels = group_labels(model.groups, d, getattr(model, "feature_names_in_", None))
    together: dict[Any, list[int]] = {}
    for at, j in enumerate(S.tolist()):
        own = ("kept", j) if kept[at] else ("column", j) if labels is None else ("group", labels[j])
        together.setdefault(own, []).append(at)
    return [np.array(at) for at in together.values()], np.array([own[0] != "kept" for own in together], dtype=bool)


def note_groups(model: Any) -> None:
    """Set `kept_`; and with groups `groups_`, the labels of the chosen ones in the order of their columns,
    `support_groups_`, which of them each column of the support is in, and `n_groups_`."""
    d = model.n_features_in_
    model.kept_ = model._kept(d)
    for name in ("groups_", "support_groups_", "n_groups_"):
        model.__dict__.pop(name, None)
    labels = group_labels(model.groups, d, getattr(model, "feature_names_in_", None))
    if labels is None:
        return
    chosen = np.setdiff1d(model.support_, model.kept_)
    first = {label: j for j, label in reversed(list(enumerate(labels.tolist())))}
    order = {label: at for at, label in enumerate(dict.fromkeys(labels[chosen].tolist()))}
    model.groups_ = labels[[first[label] for label in order]]
    kept = set(model.kept_.tolist())
    model.support_groups_ = np.array(
        [-1 if j in kept else order[labels[j]] for j in model.support_.tolist()], dtype=np.int64
    )
    model.n_groups_ = _distinct(np.delete(labels, model.kept_))


# --- fits ------------------------------------------------------------------------------------------------------------
def is_joint(model: Any) -> bool:
    """Whether even one output goes through `joint`."""
    return model.groups is not None or isinstance(model.solver, JointExchange)


def solver_knows_units(model: Any) -> bool:
    """Whether the solver is JointExchange, or may be."""
    return isinstance(model.solver, JointExchange) or (isinstance(model.solver, str) and model.solver == "auto")


def refuse_what_is_not_there(model: Any, what: str, remedy: str) -> None:
    """Only JointExchange knows units, and it knows no signs."""
    if model.positive:
        raise ValueError(f"positive must be False for {what}, got True; {remedy}")
    if not solver_knows_units(model):
        raise ValueError(f"solver must be 'auto' or a JointExchange for {what}, got {model.solver!r}; {remedy}")


@renamed("A must", "X must")
def learn_jointly(
    model: Any,
    X: Any,
    Y: NDArray[Any],
    weight: Array | None,
    offset: Any,
    loss: str,
    start: tuple[Array, Array] | None,
) -> tuple[Result, Array, Array, Standardized | None]:
    """The result on scaled columns; coefficients (outputs, d) and intercepts as X has them; and the scaling."""
    what = "groups" if model.groups is not None else "JointExchange"
    refuse_what_is_not_there(model, what, f"or do without {what}")
    d = X.shape[1]
    kept = model._kept(d)
    labels = group_labels(model.groups, d, getattr(model, "feature_names_in_", None))
    free = np.setdiff1d(np.arange(d), kept)
    if free.size == 0:
        raise ValueError("always_keep must leave columns to choose from, got all of them")
    model.k_ = model._count(free.size if labels is None else _distinct(labels[free]))
    model.l2_ = model._ridge(d)
    intercept = bool(model.fit_intercept)
    scaling = standardized(model, X, weight, False) if model.standardize else None
    model.scale_ = np.ones(d) if scaling is None else scaling.sizes
    with progress(bool(model.verbose), model.callback) as callback:
        result = joint(
            scaling or as_design(X), Y, model.k_, loss=loss, groups=labels, l2=model.l2_, intercept=intercept,
            sample_weight=weight, offset=offset, always_keep=kept, start=_scaled_start(start, scaling),
            solver=model.solver if isinstance(model.solver, JointExchange) else JointExchange(),
            callback=callback, max_time=model.max_time,
        )  # fmt: skip
    pairs = list(zip(result.x.T, result.intercept, strict=True))
    if scaling:
        pairs = [scaling.to_original(w, float(b)) for w, b in pairs]
    coef, constants = np.array([w for w, _ in pairs]), np.array([b for _, b in pairs])
    return finite_or_diverged(result, coef, constants), coef, constants, scaling


def finite_or_diverged(result: Result, coef: Array, constants: Any) -> Result:
    """The result, whose status must hold for its coefficients in the units of X too."""
    finite = bool(np.isfinite(coef).all() and np.isfinite(constants).all())
    return dataclasses.replace(result, status=judged(result.status, result.objective, None, 0.0, finite))


def standardized(model: Any, X: Any, weight: Array | None, by_rows: bool) -> Standardized:
    """X with standardised columns; an entry that is not finite is named by its column."""
    try:
        return standardize(as_design(X), weight, bool(model.fit_intercept), by_rows)
    except ValueError:
        said = None if isinstance(X, Source) else find_trouble(X, "X", getattr(model, "feature_names_in_", None))
        if said is None:
            raise
        raise ValueError(said) from None


def start_from(x: Array, constant: Any) -> Result:
    """A point to start from, with its intercept."""
    nothing = History(*(np.empty(0) for _ in History._fields))  # type: ignore[arg-type]
    return Result(x, constant, np.flatnonzero(x), math.nan, Status("stopped"), 0, nothing)


def warm_start(x: Array, constant: Any) -> Result | None:
    """The last model as a point to start from; None if it left the range of floats, in these units or in those of X."""
    return start_from(x, constant) if np.isfinite(x).all() and np.isfinite(constant).all() else None


def _scaled_start(start: tuple[Array, Array] | None, scaling: Standardized | None) -> Result | None:
    if start is None:
        return None
    pairs = list(zip(*start, strict=True))
    if scaling:
        pairs = [scaling.to_scaled(w, float(b)) for w, b in pairs]
    return warm_start(np.array([w for w, _ in pairs]).T, np.array([b for _, b in pairs]))


def fit_outputs(model: Any, X: Any, Y: NDArray[Any], weight: Array | None, offset: Any, loss: str, again: bool) -> None:
    """Fit a model of several outputs and note everything; `again` starts from the last fit, if that has its shape."""
    start = None
    if again and np.ndim(model.coef_) == 2 and model.coef_.shape[1] == X.shape[1]:
        start = (model.coef_.astype(np.float64), np.asarray(model.intercept_, dtype=np.float64))
        outputs = int(Y.max()) + 1 if loss == "softmax" else Y.shape[1]
        start = start if start[0].shape[0] == outputs else None
    result, coef, constants, scaling = learn_jointly(model, X, Y, weight, offset, loss, start)
    if result.status in UNFINISHED:
        warnings.warn(result.status.explain(), ConvergenceWarning, stacklevel=4)
    model.n_rows_ = X.shape[0]
    model.coef_, model.intercept_ = in_precision(coef, X.dtype), in_precision(constants, X.dtype)
    model.support_ = np.flatnonzero(model.coef_.any(axis=0))
    known = examined(model, X, Y, scaling, weight, offset, loss, result)
    model.worth_, model.feature_worth_, model.certificate_, model.worth_rows_ = known
    model._note(result)


_bare: ContextVar[bool] = ContextVar("_bare", default=False)


@contextlib.contextmanager
def coefficients_only() -> Iterator[None]:
    """Fits without worth and certificate: those of folds and resamples, which nobody sees, take less time so."""
    before = _bare.set(True)
    try:
        yield
    finally:
        _bare.reset(before)


def examined(
    model: Any,
    X: Any,
    Y: NDArray[Any],
    scaling: Standardized | None,
    weight: Any,
    offset: Any,
    loss: str,
    result: Result,
) -> Examined:
    """The worth of every column in a fit, and what is certain of the fit."""
    S, (n, d) = result.support, X.shape
    if _bare.get():
        return Examined(np.zeros((result.x[0].size, d)), np.zeros(d), None, n)
    share = np.ones(n) if weight is None else weight * (n / weight.sum())
    if loss == "softmax":
        rows: Any = Softmax(Y, share)
    else:
        rows = OneOutput(resolve(loss), Y, share) if Y.ndim == 1 else Targets(Y.T, share)
    x, constant = result.x[S], np.atleast_1d(np.asarray(result.intercept, dtype=np.float64))
    found = examine(
        rows, (scaling or as_design(X)).dense_columns(S), 0.0 if offset is None else np.reshape(offset, (n, -1)).T,
        x.T if x.ndim == 2 else x[np.newaxis], constant, model.l2_, bool(model.fit_intercept), bool(model.positive),
        *support_groups(model, S, X.shape[1]), result,
    )  # fmt: skip
    worth, feature_worth = np.zeros((len(found.worth), X.shape[1])), np.zeros(X.shape[1])
    worth[:, S], feature_worth[S] = found.worth, found.feature_worth
    return found._replace(worth=worth, feature_worth=feature_worth)
