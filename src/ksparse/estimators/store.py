"""Fitted models as JSON files: readable, and never code.  A malformed file is refused."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from .._text import jsonable, write_whole
from ..sources.encoding import check_encoding, table_encoding

FORMAT, VERSION = "ksparse-model", 1
PLAIN = ("k", "loss", "fit_intercept", "standardize", "l2", "positive")


def save(model: Any, path: Any, encoding: dict[str, Any] | None = None, target: str | None = None) -> None:
    """Write a fitted model; the file is complete or does not exist."""
    coef = np.atleast_2d(model.coef_)
    for name in ("classes_", "groups_"):
        if hasattr(model, name) and not _are_labels(getattr(model, name).tolist()):
            raise ValueError(f"{name} must be texts or numbers to be written, got {getattr(model, name).tolist()}")
    names = [str(name) for name in getattr(model, "feature_names_in_", [])]
    if encoding is not None:
        _check_match(encoding, names, coef.shape[1])
    content = {
        "format": FORMAT,
        "version": VERSION,
        "class": type(model).__name__,
        "parameters": {name: getattr(model, name) for name in PLAIN},
        "n_features": int(coef.shape[1]),
        "features": names or None,
        "classes": model.classes_.tolist() if hasattr(model, "classes_") else None,
        "kind": model._kind(),
        "target": target,
        "encoding": encoding,
        "groups": model.groups_.tolist() if hasattr(model, "groups_") else None,
        "n_groups": getattr(model, "n_groups_", None),
        "kept": model.kept_.tolist() if hasattr(model, "kept_") else [],
        "objective": float(model.objective_),
        "feature_worth": _feature_worth(model),
        "outputs": [
            {
                "intercept": float(constant),
                "columns": S.tolist(),
                "coefficients": weights[S].tolist(),
                "worth": worth[S].tolist(),
                "scale": model.scale_[S].tolist(),
            }
            for S, weights, constant, worth in zip(
                map(np.flatnonzero, coef),
                coef,
                np.atleast_1d(model.intercept_),
                np.atleast_2d(model.worth_),
                strict=True,
            )
        ],
    }
    write_whole(Path(path), json.dumps(jsonable(content), indent=1).encode())


def _feature_worth(model: Any) -> dict[str, Any] | None:
    """What each column of the support is worth in all outputs, and on how many of the rows that was found.

    `groups` is the place of a column's group in the list of groups; −1 for a column that is always kept.  None if the
    worth is not known.
    """
    if getattr(model, "worth_rows_", None) is None:
        return None
    return {
        "columns": model.support_.tolist(),
        "worth": model.feature_worth_[model.support_].tolist(),
        "groups": model.support_groups_.tolist() if hasattr(model, "support_groups_") else None,
        "rows": int(model.worth_rows_),
        "of_rows": int(model.n_rows_),
    }


def load(path: Any) -> Any:
    """Read a model that `save` wrote, and return it as a fitted estimator.

    A file written by an older version lacks `feature_worth_`: it is then the sum of the estimates in the file, and
    `summary` says so.

    Parameters
    ----------
    path : str or Path
        The file to read.

    Returns
    -------
    KSparseRegressor or KSparseClassifier
        It predicts as the model that was saved.  The history and the certificate of the fit are not in the file.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If the file is not a valid model; the message says what is wrong.

    Examples
    --------
    >>> import os, tempfile
    >>> from sklearn.datasets import load_diabetes
    >>> from ksparse import KSparseRegressor, load
    >>> X, y = load_diabetes(return_X_y=True)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "model.json")
    ...     KSparseRegressor(k=3).fit(X, y).save(path)
    ...     load(path).support_
    array([2, 3, 8])
    """
    from . import KSparseClassifier, KSparseRegressor

    path = Path(path)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"{path.name} is not a model: {error}") from None
    kinds: dict[str, Any] = {"KSparseClassifier": KSparseClassifier, "KSparseRegressor": KSparseRegressor}
    try:
        _need(isinstance(content, dict) and content.get("format") == FORMAT, f"it is not of the format {FORMAT!r}")
        version = content.get("version")
        _need(type(version) is int and version == VERSION, f"its version is {version!r}, this reads {VERSION}")
        _need(content.get("class") in kinds, f"its class {content.get('class')!r} is not one of {', '.join(kinds)}")
        parameters = content.get("parameters")
        known = isinstance(parameters, dict) and set(parameters) == set(PLAIN)
        _need(known, f"its parameters must be {', '.join(PLAIN)}")
        d, outputs = content.get("n_features"), content.get("outputs")
        _need(type(d) is int and 0 < d < 2**31, f"n_features must be a positive integer, got {d!r}")
        _need(isinstance(outputs, list) and len(outputs) > 0, "outputs must be a list of models")
        names, classes = content.get("features"), content.get("classes")
        named = isinstance(names, list) and len(names) == d and all(isinstance(name, str) for name in names)
        _need(names is None or named, f"features must be {d} names")
        _need(_is_number(content.get("objective")), "objective must be a number")
        groups = content.get("groups")
        _need(groups is None or _are_labels(groups), "groups must be a list of labels")
        encoding, target = content.get("encoding"), content.get("target")
        _need(encoding is None or isinstance(encoding, dict), "encoding must be an object")
        if encoding is not None:
            _check_match(encoding, names or [], d)
        _need(target is None or isinstance(target, str), "target must be a name")
        _check_parameters(parameters)
        model = kinds[content["class"]](**parameters)
        coef, worth, constants = np.zeros((len(outputs), d)), np.zeros((len(outputs), d)), np.zeros(len(outputs))
        model.scale_ = np.zeros(d)
        for i, output in enumerate(outputs):
            _fill(i, output, d, coef, worth, model.scale_, constants)
        model._restore(coef, constants, worth, classes, content.get("kind"))
        _restore_worth(model, content.get("feature_worth"), worth, groups)
        kept, count = content.get("kept", []), content.get("n_groups")
        _need(_are_columns(kept, d), f"kept must be different numbers below {d}")
        _need(count is None or (type(count) is int and count >= len(groups or [])), "n_groups must count the groups")
        model.kept_ = np.array(kept, dtype=np.int64)
    except (ValueError, TypeError, KeyError, OverflowError, MemoryError) as error:
        raise ValueError(f"{path.name} is not a model that can be read: {error}") from None
    model.n_features_in_ = d
    if names is not None:
        model.feature_names_in_ = np.array(names, dtype=object)
    if groups is not None:
        model.groups_ = np.array(groups, dtype=object if len({type(label) for label in groups}) > 1 else None)
        if count is not None:
            model.n_groups_ = count
    model.objective_ = float(content["objective"])
    model.encoding_, model.target_ = encoding, target
    return model


def _fill(i: int, output: Any, d: int, coef: Any, worth: Any, scale: Any, constants: Any) -> None:
    """Enter output i of a file in the arrays."""
    _need(isinstance(output, dict), f"output {i} must be an object")
    columns, weights, useful, sizes = (output.get(name) for name in ("columns", "coefficients", "worth", "scale"))
    lists = all(isinstance(part, list) for part in (columns, weights, useful, sizes))
    _need(
        lists and len(columns) == len(weights) == len(useful) == len(sizes),
        f"output {i} must have a coefficient, a worth and a scale per column",
    )
    _need(_are_columns(columns, d), f"the columns of output {i} must be different numbers below {d}")
    numbers = all(_is_number(v) for v in [*weights, *useful, *sizes, output.get("intercept")])
    _need(numbers, f"output {i} must hold finite numbers")
    coef[i, columns], worth[i, columns], scale[columns], constants[i] = weights, useful, sizes, output["intercept"]


def _restore_worth(model: Any, found: Any, estimates: Any, groups: Any) -> None:
    """Set `feature_worth_` and the attributes that belong to it."""
    if found is None:  # a file of an older version
        model.feature_worth_, model.worth_rows_ = estimates.sum(axis=0), None
        return
    S, d = model.support_, estimates.shape[1]
    _need(isinstance(found, dict) and found.get("columns") == S.tolist(), "feature_worth must have the columns in use")
    worth, of, rows, all_rows = (found.get(name) for name in ("worth", "groups", "rows", "of_rows"))
    good = isinstance(worth, list) and len(worth) == S.size and all(_is_number(u) and u >= 0 for u in worth)
    _need(good, "feature_worth must have a number of at least 0 for each of its columns")
    counts = type(rows) is int and type(all_rows) is int and 0 < rows <= all_rows
    _need(counts, "feature_worth must say on how many rows it was found, and of how many")
    if groups is not None:
        whole = isinstance(of, list) and len(of) == S.size and all(type(g) is int for g in of)
        _need(whole and set(of) - {-1} == set(range(len(groups))), "feature_worth must say the group of its columns")
        model.support_groups_ = np.array(of, dtype=np.int64)
    model.feature_worth_ = np.zeros(d)
    model.feature_worth_[S] = worth
    model.worth_rows_, model.n_rows_ = rows, all_rows


def _are_columns(columns: Any, d: int) -> bool:
    """Whether these are different column numbers."""
    whole = isinstance(columns, list) and all(type(j) is int and 0 <= j < d for j in columns)
    return whole and len(set(columns)) == len(columns)


def _check_match(encoding: Any, names: list[str], d: int) -> None:
    """Raise if an encoding gives other columns than the model has: predictions would mix them up."""
    encoding = check_encoding(encoding)
    if encoding["kind"] != "table":
        return
    try:
        given = [name for column in table_encoding(encoding).columns for name in column.names]
    except OverflowError:
        raise ValueError("encoding: its numbers must be finite, and one is too large") from None
    for at, (own, other) in enumerate(itertools.zip_longest(names or given, given)):
        if own != other:
            raise ValueError(
                f"encoding must give the features of the model in their order, got {other!r} for feature {at}, {own!r}"
            )
    _need(len(given) == d, f"encoding must give {d} features, got {len(given)}")


def _check_parameters(parameters: dict[str, Any]) -> None:
    k, l2 = parameters["k"], parameters["l2"]
    whole = type(k) is int and k >= 1
    _need(whole or (type(k) is float and 0 < k < 1), f"k must be a number of features, or a share, got {k!r}")
    _need(l2 == "auto" or (_is_number(l2) and l2 >= 0), f"l2 must be 'auto' or a number, got {l2!r}")
    for name in ("fit_intercept", "standardize", "positive"):
        _need(isinstance(parameters[name], bool), f"{name} must be true or false, got {parameters[name]!r}")


def _need(holds: bool, what: str) -> None:
    if not holds:
        raise ValueError(what)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _are_labels(groups: Any) -> bool:
    return isinstance(groups, list) and all(isinstance(label, str | int | float) for label in groups)
