"""Reading for `fit` and `path`: rows that fit the memory comfortably are loaded, others are read in every pass."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ._session import Session

SHARE = 1 / 3  # of the memory: a fit may hold the rows, and a scaled copy
CLASSES = 20  # labels beyond which they must repeat


class Reading(NamedTuple):
    """The options of reading."""

    data: str
    target: str | None
    columns: list[str] | None
    drop: list[str] | None
    categories: list[str] | None
    missing: str
    na: list[str] | None
    delimiter: str | None
    weights: str | None
    format: str | None
    memory: str
    cache: bool | str

    @property
    def name(self) -> str:
        return "the pipe" if self.data == "-" else Path(self.data).name

    def identity(self) -> dict[str, Any]:
        """What tells these data from others: names, sizes and times of the files, and the options."""
        if self.data == "-":
            raise ValueError(
                "--checkpoint is for data that are there after a kill; write what the pipe brings to a file"
            )
        top = Path(self.data)
        files = sorted(path for path in top.rglob("*") if path.is_file()) if top.is_dir() else [top]
        stats = [(os.path.relpath(path, top.parent), path.stat()) for path in files if path.exists()]
        return {
            **self._replace(cache=True)._asdict(),
            "data": [[name, stat.st_size, stat.st_mtime_ns] for name, stat in stats],
        }


class Rows(NamedTuple):
    """What is learnt from."""

    X: Any  # an array or a CSR matrix, or the source
    y: Any
    weight: Any
    source: Any
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
        """For `fit`."""
        return {} if self.weight is None else {"sample_weight": self.weight}

    def facts(self) -> dict[str, Any]:
        """For JSON."""
        rows, columns = self.source.shape
        return {
            "data": self.name, "rows": rows, "columns": columns, "target": self.target, "streamed": self.streamed
        }  # fmt: skip

    def said(self, loss: str) -> str:
        """One line about the data."""
        n, d = self.source.shape
        target = "" if self.target is None else f", target {self.target}"
        way = "streamed" if self.streamed else "in memory"
        return f"{self.name}: {n:,} rows, {d:,} columns, {way}{target}; {loss} loss"


def read(reading: Reading, work: Session) -> Rows:
    """Open the data, and load what is small."""
    from ..sources import open_files

    work.begin(f"reading {reading.name}")
    columns, drop = reading.columns, reading.drop
    if reading.weights is not None:
        if reading.data == "-":
            raise ValueError("--weights reads the data twice, which a pipe does not allow; write it to a file")
        if reading.weights == reading.target:
            raise ValueError(f"--weights and --target are both {reading.weights!r}; a target cannot weigh itself")
        if columns is None:
            drop = [*(drop or []), reading.weights]
        elif reading.weights in columns:
            columns = [name for name in columns if name != reading.weights]
    categories, na = reading.categories or (), reading.na or ()
    try:
        source = open_files(
            reading.data, target=reading.target, columns=columns, drop=drop, categories=categories, na=na,
            missing=reading.missing, delimiter=reading.delimiter, format=reading.format, memory=reading.memory,
            cache=reading.cache,
        )  # fmt: skip
    except ValueError as error:
        raise ValueError(_of_weights(str(error), reading)) from None
    for note in source.notes:
        work.note(note)
    weight = None if reading.weights is None else _weights(reading, source)
    X = source
    if source.row_bytes * source.shape[0] <= SHARE * source.memory:
        X = source.load()
        source.close()
    return Rows(X, source.y, weight, source, reading.name)


def _weights(reading: Reading, source: Any) -> Any:
    """The column of weights, read as a target beside one column that is read anyway."""
    from ..sources import open_files

    if source.encoding["kind"] != "table":
        raise ValueError(f"--weights is for tables with names, {reading.name} has none")
    beside = source.encoding["columns"][0]["name"]
    try:
        column: Any = open_files(
            reading.data, target=reading.weights, columns=[beside], missing=reading.missing, na=reading.na or (),
            categories=[name for name in reading.categories or () if name == beside], delimiter=reading.delimiter,
            format=reading.format, memory=reading.memory,
        ).y  # fmt: skip
    except ValueError as error:
        text = str(error).replace("(the target)", "(the weights)")
        raise ValueError(text.replace("target: there is no", "--weights: there is no")) from None
    if column.dtype.kind not in "fiu" or not (np.isfinite(column).all() and (column >= 0).all() and column.any()):
        raise ValueError(f"--weights {reading.weights!r} must hold numbers of at least 0, not all zero")
    return column.astype(np.float64)


def _of_weights(text: str, reading: Reading) -> str:
    """The column of weights is dropped from the features; nobody who gives --weights thinks of that."""
    text = text.replace(
        f"drop: there is no column {reading.weights!r}", f"--weights: there is no column {reading.weights!r}"
    )
    return text if reading.drop or reading.weights is None else text.replace("drop is for", "--weights is for")


def loss_for(rows: Rows, loss: str | None, work: Session) -> str:
    """The loss that was asked for, or the one that suits the targets."""
    y, what = rows.y, "the target" if rows.target is None else f"the target {rows.target!r}"
    if y.dtype.kind not in "fiub":
        labels = np.unique(y)
        if loss not in (None, "logistic", "squared_hinge"):
            raise ValueError(f"--loss {loss} needs numbers, but {what} holds texts such as {str(y[0])!r}; leave it out")
        if labels.size > max(CLASSES, y.size / 2):
            raise ValueError(f"{what} holds {labels.size:,} different texts in {y.size:,} rows: labels must repeat")
        return loss or "logistic"
    if loss in ("logistic", "squared_hinge") and (broken := y[y != np.round(y)]).size:
        raise ValueError(
            f"--loss {loss} needs classes, but {what} holds numbers such as {broken[0]:g}; --loss squared is for these"
        )
    if loss is None and np.unique(y[:10_000]).size <= 2 and np.unique(y).size == 2:
        work.note(f"{what} holds two numbers only: if they are classes, use --loss logistic")
    return loss or "squared"


def kept_columns(keep: list[str] | None, source: Any) -> list[int] | None:
    """The numbers of the columns with these names; the name of a column of categories stands for all of them."""
    if keep is None:
        return None
    names = source.names or [f"x{j}" for j in range(source.shape[1])]
    found: list[int] = []
    for name in keep:
        here = [j for j, column in enumerate(names) if column == name or column.startswith(f"{name}=")]
        if not here:
            raise ValueError(f"--keep names the column {name!r}, which is not among the features")
        found += here
    return sorted(set(found))
