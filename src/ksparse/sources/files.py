"""Tables from files: CSV, NumPy's .npz and LIBSVM, read whole."""

from __future__ import annotations

import bz2
import gzip
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

TEXT = (".csv", ".tsv")
LIBSVM = (".svm", ".svmlight", ".libsvm")
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
    if not path.is_file():
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
            names = [name.strip().strip('"') for name in lines.readline().rstrip("\r\n").split(delimiter)]
            if len(set(names)) < len(names):
                twice = next(name for name in names if names.count(name) > 1)
                raise ValueError(f"the column {twice!r} is there twice")
            at = len(names) - 1 if target is None else names.index(target) if target in names else -1
            if at < 0:
                raise ValueError(f"there is no column {target!r}; there are {', '.join(map(repr, names[:10]))}")
            if len(names) < 2:
                raise ValueError("a header with at least two columns is needed")
            values = np.loadtxt(lines, delimiter=delimiter, ndmin=2, comments=None, quotechar='"')
    except (ValueError, OSError, EOFError) as error:
        raise ValueError(f"{path.name} cannot be read: {error} (rows count from 0, behind the header)") from None
    if values.size == 0 or values.shape[1] != len(names):
        raise ValueError(f"{path.name} has {len(names)} names in its header, but rows of {values.shape[1]} numbers")
    return Table(np.delete(values, at, axis=1), values[:, at], names[:at] + names[at + 1 :])


def _read_libsvm(path: Path) -> Table:
    from sklearn.datasets import load_svmlight_file

    try:
        A, y = load_svmlight_file(str(path))
    except (ValueError, OSError, EOFError) as error:
        raise ValueError(f"{path.name} cannot be read as LIBSVM: {error}") from None
    return Table(A, y, [f"x{j}" for j in range(A.shape[1])])


def _read_npz(path: Path) -> Table:
    try:
        with np.load(path) as arrays:
            name = next((name for name in ("A", "X") if name in arrays), None)
            if name is None or "y" not in arrays:
                raise ValueError(
                    f"it must hold the arrays A (or X) and y, it holds {', '.join(arrays.files) or 'none'}"
                )
            A, y = arrays[name], arrays["y"]
    except (ValueError, OSError, EOFError, KeyError) as error:
        raise ValueError(f"{path.name} cannot be read: {error}") from None
    if A.ndim != 2 or y.shape != (A.shape[0],):
        raise ValueError(f"{path.name} must hold a matrix and a number a row, got shapes {A.shape} and {y.shape}")
    return Table(A, y, [f"x{j}" for j in range(A.shape[1])])
