"""Reading data: for a fit as the options say, for a saved model as its own data were read.

For a fit, data that fit the memory comfortably are loaded, others are read in every pass.  For a saved model, which may
know billions of columns, only those with a coefficient are read.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..sources import Files
from .options import FitOptions, names
from .session import Session

SHARE = 1 / 3  # of the memory: a fit may hold the rows and a standardized copy


# --- for a fit --------------------------------------------------------------------------------------------------------
class Rows(NamedTuple):
    """The data of a fit."""

    X: Any  # an array or a CSR matrix, or the source
    y: Any
    weight: Any
    source: Files
    name: str

    @property
    def streamed(self) -> bool:
        return self.X is self.source

    @property
    def target(self) -> str | None:
        """The name of the target; None if the file has no names."""
        target = self.source.target
        return f"column {target}" if isinstance(target, int) else target

    @property
    def weights(self) -> dict[str, Any]:
        """Keyword arguments of `fit`."""
        return {} if self.weight is None else {"sample_weight": self.weight}

    def facts(self) -> dict[str, Any]:
        """For JSON."""
        rows, columns = self.source.shape
        return {
            "data": self.name, "rows": rows, "columns": columns, "target": self.target, "streamed": self.streamed
        }  # fmt: skip

    def line(self, loss: str) -> str:
        """One line about the data."""
        n, d = self.source.shape
        target = "" if self.target is None else f", target {self.target}"
        way = "streamed" if self.streamed else "in memory"
        return f"{self.name}: {n:,} rows, {d:,} columns, {way}{target}; {loss} loss"


def read(data: str, options: FitOptions, work: Session) -> Rows:
    """Open the data, and load them if they are small."""
    from ..sources import open_files

    name = "the pipe" if data == "-" else Path(data).name
    work.begin(f"reading {name}")
    weights, reading = options.weights, options.reading()
    if weights is not None:
        if data == "-":
            raise ValueError("--weights reads the data twice, which a pipe does not allow; write it to a file")
        if weights == options.target:
            raise ValueError(f"--weights and --target are both {weights!r}; a target cannot weigh itself")
        if reading["columns"] is None:
            reading["drop"] = [*(reading["drop"] or []), weights]
        else:
            reading["columns"] = [column for column in reading["columns"] if column != weights]
    try:
        source = open_files(data, **reading)
    except ValueError as error:
        if weights is None:
            raise
        # the column of weights is dropped from the features, which the user did not ask for by --drop
        there_is_no = f"there is no column {weights!r}"
        text = str(error).replace(f"drop: {there_is_no}", f"--weights: {there_is_no}")
        raise ValueError(text if options.drop else text.replace("drop is for", "--weights is for")) from None
    for note in source.notes:
        work.note(note)
    weight = None if weights is None else _read_weights(data, name, options, source)
    X: Any = source
    if source.row_bytes * source.shape[0] <= SHARE * source.memory:
        X = source.load()
        source.close()
    return Rows(X, source.y, weight, source, name)


def _read_weights(data: str, name: str, options: FitOptions, source: Files) -> Any:
    """The column of weights, read as a target beside one column that is read anyway."""
    from ..sources import open_files

    if source.encoding["kind"] != "table":
        raise ValueError(f"--weights is for tables with names, {name} has none")
    reading, beside = options.reading(), source.encoding["columns"][0]["name"]
    categories = [column for column in reading["categories"] if column == beside]
    only = {"target": options.weights, "columns": [beside], "drop": None, "categories": categories, "cache": True}
    try:
        column: Any = open_files(data, **(reading | only)).y
    except ValueError as error:
        text = str(error).replace("(the target)", "(the weights)")
        raise ValueError(text.replace("target: there is no", "--weights: there is no")) from None
    if column.dtype.kind not in "fiu" or not (np.isfinite(column).all() and (column >= 0).all() and column.any()):
        raise ValueError(f"--weights {options.weights!r} must hold numbers of at least 0, not all zero")
    return column.astype(np.float64)


def columns_to_keep(options: FitOptions, source: Files) -> list[int] | None:
    """The indices of the columns of --keep; the name of a column of categories stands for all its categories."""
    keep = names(options.keep, "--keep")
    if keep is None:
        return None
    known = source.names or [f"x{j}" for j in range(source.shape[1])]
    found: list[int] = []
    for name in keep:
        here = [j for j, column in enumerate(known) if column == name or column.startswith(f"{name}=")]
        if not here:
            raise ValueError(f"--keep names the column {name!r}, which is not among the features")
        found += here
    return sorted(set(found))


# --- for a saved model ------------------------------------------------------------------------------------------------
class Reader(NamedTuple):
    """Data opened for a model."""

    source: Files
    columns: NDArray[np.int64]  # those of the source that the model uses
    model: Any  # the model for rows that have only these columns


def open_like(model: Any, name: str, data: str, **arguments: Any) -> Reader:
    """Open the data as the model's own were read, or by names or number of columns if it was not made from files.

    Only the columns that the model uses are required.
    """
    from ..sources import open_files

    used = model.support_ if model.support_.size else np.zeros(1, dtype=np.int64)  # a block has at least one column
    encoding, known = getattr(model, "encoding_", None), getattr(model, "feature_names_in_", None)
    wanted = [] if known is None else [str(known[j]) for j in used]
    if encoding is not None:
        check_encoding_of(model, name)
        source = Files.like(data, narrow_encoding(encoding, set(wanted)), **arguments)
    elif wanted:
        source = open_files(data, target=False, columns=wanted, **arguments)
    else:
        source = open_files(data, target=False, **arguments)
        if source.shape[1] != model.n_features_in_:
            raise ValueError(
                f"{name} knows no names of columns, so {data} must have its {model.n_features_in_} columns in their "
                f"order, but it has {source.shape[1]}; models that ksparse fit writes know names"
            )
    if source.shape[1] == model.n_features_in_:
        return Reader(source, used, narrow_model(model, used))
    here = {column: j for j, column in enumerate(source.names or [])}
    if not wanted or not set(wanted) <= set(here):
        raise ValueError(f"{name} is not a model that can be read: its encoding is not one of its own features")
    return Reader(source, np.array([here[column] for column in wanted]), narrow_model(model, used))


def check_encoding_of(model: Any, name: str) -> None:
    """Refuse a model file with a malformed description of its columns."""
    from ..sources.encoding import check_encoding, table_encoding

    encoding = getattr(model, "encoding_", None)
    try:
        if encoding is not None and check_encoding(encoding)["kind"] == "table":
            table_encoding(encoding)
    except ValueError as error:
        raise ValueError(f"{name} is not a model that can be read: {error}") from None
    except OverflowError:
        raise ValueError(f"{name} is not a model that can be read: encoding: a number is too large") from None


def narrow_encoding(encoding: dict[str, Any], used: set[str]) -> dict[str, Any]:
    """The encoding of a table with only those columns that make a feature in use."""
    if encoding.get("kind") != "table" or not isinstance(encoding.get("columns"), list):
        return encoding
    return {**encoding, "columns": [column for column in encoding["columns"] if used & _features(column)]}


def _features(column: Any) -> set[str]:
    """The names of the features that a column of a table becomes; none if its description is malformed."""
    if not isinstance(column, dict):
        return set()
    name, levels = str(column.get("name")), column.get("levels")
    return {f"{name}={level}" for level in levels} if isinstance(levels, list) else {name}


def narrow_model(model: Any, used: NDArray[np.int64]) -> Any:
    """The same model for rows that have only these columns."""
    narrow = copy.copy(model)
    narrow.coef_, narrow.n_features_in_ = model.coef_[..., used], used.size
    narrow.__dict__.pop("feature_names_in_", None)
    return narrow


def used_names(model: Any) -> list[str]:
    """The names of the columns with a coefficient."""
    known = getattr(model, "feature_names_in_", None)
    return [f"x{j}" if known is None else str(known[j]) for j in model.support_]


def needed_columns(model: Any) -> list[str]:
    """The names of the columns that data must have, in their order; categories of a column count as that column."""
    used = used_names(model)
    encoding = narrow_encoding(getattr(model, "encoding_", None) or {}, set(used))
    return [str(column["name"]) for column in encoding["columns"]] if encoding.get("kind") == "table" else used
