"""Tables from files: CSV, NumPy's .npz and LIBSVM, read whole."""

from __future__ import annotations

import bz2
import csv
import gzip
import zipfile
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._validate import as_real

TEXT = (".csv", ".tsv")
LIBSVM = (".svm", ".svmlight", ".libsvm")
BROKEN = (ValueError, OSError, EOFError, KeyError, TypeError, OverflowError, zlib.error, zipfile.BadZipFile, csv.Error)
PACKED = {".gz": gzip.open, ".bz2": bz2.open}


class Table(NamedTuple):
    """Rows, targets and the names of the columns."""

    A: Any
    y: NDArray[np.float64]
    names: list[str]


def read_table(path: str | Path, target: str | None = None) -> Table:
    """Read rows and targets from a file.

    Parameters
    ----------
    path : str or Path
        ``.csv`` or ``.tsv`` with a header, ``.svm``/``.svmlight``/``.libsvm``, each also with ``.gz`` or ``.bz2``
        behind it, or ``.npz`` with the arrays A (or X) and y.
    target : str, optional
        The column of a CSV file to predict, the last by default.
    """
    path = Path(path)
    if not path.exists() or path.is_dir():
        raise ValueError(
            f"DATA must be a file, got {str(path)!r}, which {'is a folder' if path.is_dir() else 'is not there'}"
        )
    suffixes = [suffix.lower() for suffix in path.suffixes]
    packed = suffixes[-1] if suffixes and suffixes[-1] in PACKED else ""
    kind = suffixes[-1 - bool(packed)] if len(suffixes) > bool(packed) else ""
    if kind in TEXT:
        return _read_text(path, packed, "," if kind == ".csv" else "\t", target)
    if target is not None:
        raise ValueError(f"--target is for CSV files, got it with {path.name}")
    if kind in LIBSVM:
        return _read_libsvm(path)
    if kind == ".npz" and not packed:
        return _read_npz(path)
    known = ", ".join((*TEXT, *LIBSVM, ".npz"))
    raise ValueError(f"DATA must end in one of {known} (text also in .gz or .bz2), got {path.name!r}")


def _read_text(path: Path, packed: str, delimiter: str, target: str | None) -> Table:
    opened: Any = PACKED.get(packed, open)
    try:
        with opened(path, "rt", encoding="utf-8-sig", newline="") as lines:
            names = [name.strip() for name in next(csv.reader([lines.readline()], delimiter=delimiter), [])]
            at = _target(names, target)
            text = [line for line in lines if line.strip()]
    except (*BROKEN, UnicodeDecodeError) as error:
        raise ValueError(f"{path.name} cannot be read: {error}") from None
    if not text:
        raise ValueError(f"{path.name} cannot be read: there are no rows behind the header")
    try:
        values = np.loadtxt(text, delimiter=delimiter, ndmin=2, comments=None, quotechar='"')
    except ValueError as error:
        raise ValueError(f"{path.name} cannot be read: {error} (rows count from 0, behind the header)") from None
    if values.shape[1] != len(names):
        raise ValueError(f"{path.name} has {len(names)} names in its header, but rows of {values.shape[1]} numbers")
    return _finite(Table(np.delete(values, at, axis=1), values[:, at], names[:at] + names[at + 1 :]), path)


def _target(names: list[str], target: str | None) -> int:
    """Which column is the target; names that cannot be names are refused."""
    if len(names) < 2:
        raise ValueError("a header with at least two columns is needed")
    if len(set(names)) < len(names):
        raise ValueError(f"the column {next(name for name in names if names.count(name) > 1)!r} is there twice")
    if all(_is_number(name) for name in names):
        raise ValueError("its first line holds numbers only; a header with the names of the columns is needed")
    if target is not None and target not in names:
        raise ValueError(f"there is no column {target!r}; there are {', '.join(map(repr, names[:10]))}")
    return len(names) - 1 if target is None else names.index(target)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _read_libsvm(path: Path) -> Table:
    from sklearn.datasets import load_svmlight_file

    try:
        A, y = load_svmlight_file(str(path))
    except BROKEN as error:
        raise ValueError(f"{path.name} cannot be read as LIBSVM: {error}") from None
    if 0 in A.shape:
        raise ValueError(f"{path.name} cannot be read as LIBSVM: it holds {A.shape[0]} rows and {A.shape[1]} columns")
    return _finite(Table(A, y, [f"x{j}" for j in range(A.shape[1])]), path)


def _read_npz(path: Path) -> Table:
    try:
        with open(path, "rb") as file:
            arrays = np.load(file)
            if not hasattr(arrays, "files"):
                raise ValueError("it holds a single array; it must hold A (or X) and y")
            name = next((name for name in ("A", "X") if name in arrays.files), None)
            if name is None or "y" not in arrays.files:
                raise ValueError(
                    f"it must hold the arrays A (or X) and y, it holds {', '.join(arrays.files) or 'none'}"
                )
            A, y = as_real(arrays[name], name), as_real(arrays["y"], "y")
    except BROKEN as error:
        raise ValueError(f"{path.name} cannot be read: {error}") from None
    if A.ndim != 2 or 0 in A.shape or y.shape != (A.shape[0],):
        raise ValueError(f"{path.name} must hold a matrix and a number a row, got shapes {A.shape} and {y.shape}")
    A = A.astype(np.float64, copy=False)
    return _finite(Table(A, y.astype(np.float64), [f"x{j}" for j in range(A.shape[1])]), path)


def _finite(table: Table, path: Path) -> Table:
    """The table, if all its numbers are finite."""
    if hasattr(table.A, "tocoo"):
        stored = table.A.tocoo()
        bad = np.flatnonzero(~np.isfinite(stored.data))
        places = [(int(stored.row[i]), int(stored.col[i])) for i in bad[:1]]
    else:
        places = [(int(i), int(j)) for i, j in np.argwhere(~np.isfinite(table.A))[:1]]
    if places:
        row, column = places[0]
        what = f"in row {row} (from 0), column {table.names[column]!r}"
    elif not np.isfinite(table.y).all():
        what = f"in the target of row {int(np.flatnonzero(~np.isfinite(table.y))[0])} (from 0)"
    else:
        return table
    raise ValueError(f"{path.name} holds a number that is missing or infinite {what}; remove or impute it first")
