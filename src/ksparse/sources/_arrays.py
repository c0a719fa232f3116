"""NumPy's files: a matrix in a .npy file, or A and y in a .npz file."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._validate import as_real
from ._inputs import Input, reading
from ._transpose import all_finite
from .blocks import Blocks


class ArrayRows:
    """Rows of a matrix, with or without a column of targets among them.

    Parameters
    ----------
    file : Input
    blocks : Blocks
        All columns.
    at : int or None
        The column of the targets.
    """

    def __init__(
        self, file: Input, blocks: Blocks, at: int | None = None, y: NDArray[np.float64] | None = None
    ) -> None:
        self._file, self._blocks, self._at = file, blocks, at
        n, width = blocks.shape
        self._keep = np.delete(np.arange(width), [] if at is None else at)
        self.shape, self.dtype, self.y = (n, self._keep.size), blocks.dtype, y
        if self.shape[1] == 0:
            raise ValueError(f"{file.name} cannot be read: beside the target there is no column")
        if at is not None:
            self.y = np.concatenate([np.array(block[:, at], dtype=np.float64) for block in blocks.blocks()])
        if self.y is not None and not np.isfinite(self.y).all():
            row = int(np.flatnonzero(~np.isfinite(self.y))[0])
            raise ValueError(f"{file.name}: the target in row {row} is {self.y[row]}: numbers must be finite")

    def blocks(self, wanted: NDArray[np.int64] | None, room: int) -> Iterator[NDArray[Any]]:
        keep = self._keep if wanted is None else self._keep[wanted]
        whole = self._at is None and wanted is None
        self._file.check_same()
        row = 0
        for block in self._blocks.blocks():
            part = block if whole else np.ascontiguousarray(block[:, keep])
            if not all_finite(part.reshape(-1)):
                at, j = np.argwhere(~np.isfinite(part))[0]
                raise ValueError(
                    f"{self._file.name}: the value in row {row + at}, column {keep[j]} is {part[at, j]}: "
                    "numbers must be finite"
                )
            yield part
            row += block.shape[0]
        self._file.check_same()


def open_npy(file: Input, target: Any, memory: int) -> tuple[ArrayRows, int | str | None]:
    """Rows of a .npy file and their target: a column, the last by default, or another .npy file; False for none."""
    with reading(file.name):
        if not _is_npy(file):
            raise ValueError("it is no .npy file")
        blocks = Blocks(file.path, memory=memory)
    width = blocks.shape[1]
    if target is False:
        return ArrayRows(file, blocks), None
    if isinstance(target, str | Path) and str(target).endswith(".npy"):
        other = Input(Path(target))
        with reading(other.name):
            y = as_real(np.load(other.path, allow_pickle=False), "the target")
            if y.shape != (blocks.shape[0],):
                raise ValueError(f"a number for each of {blocks.shape[0]} rows is needed, got shape {y.shape}")
        return ArrayRows(file, blocks, None, y.astype(np.float64)), other.name
    at = _column(target, width, file.name)
    return ArrayRows(file, blocks, at), at


def _is_npy(file: Input) -> bool:
    with open(file.path, "rb") as opened:
        return opened.read(6) == b"\x93NUMPY"


def _column(target: Any, width: int, name: str) -> int:
    try:
        at = width - 1 if target is None else int(target)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"target must be a column number or a .npy file for {name}, got {target!r}") from None
    if not -width <= at < width:
        raise ValueError(f"target must be a column between 0 and {width - 1} of {name}, got {at}")
    return at % width


def open_npz(file: Input, memory: int, *, optional: bool = False) -> ArrayRows:
    """Rows A (or X) and targets y of a .npz file."""
    with reading(file.name):
        with open(file.path, "rb") as opened:
            if not zipfile.is_zipfile(opened) and not _is_npy(file):
                raise ValueError("it is no .npz file")
            opened.seek(0)
            arrays = np.load(opened, allow_pickle=False)
            if not hasattr(arrays, "files"):
                raise ValueError("it holds a single array; it must hold A (or X) and y")
            name = next((name for name in ("A", "X") if name in arrays.files), None)
            if name is None or ("y" not in arrays.files and not optional):
                held = ", ".join(arrays.files) or "none"
                raise ValueError(f"it must hold the arrays A (or X) and y, it holds {held}")
            A = as_real(arrays[name], name)
            y = as_real(arrays["y"], "y") if "y" in arrays.files else None
        if A.ndim != 2 or 0 in A.shape or (y is not None and y.shape != (A.shape[0],)):
            shapes = f"{A.shape}" + ("" if y is None else f" and {y.shape}")
            raise ValueError(f"it must hold a matrix and a number a row, got shapes {shapes}")
        blocks = Blocks(A, memory=memory)
    return ArrayRows(file, blocks, None, None if y is None else y.astype(np.float64))
