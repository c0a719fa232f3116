"""Rows from NumPy arrays, sparse matrices, .npy and .npz files, or any iterable of blocks that can be read again."""

from __future__ import annotations

import mmap
import os
import tokenize
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._validate import as_real, canonical
from ..design.blocks import MEMORY, Source
from ..design.matrix import is_sparse
from .encoding import VERSION, all_finite
from .storage import InputFile, OpenedFiles, check_memory, fill_in_turns, read_into, reading


class Blocks(Source):
    """Rows that are read block by block.

    Parameters
    ----------
    blocks : path of a .npy file, memory-mapped array, array, sparse matrix, list of such, or an iterable of blocks
        A .npy file is read with plain reads, not through a memory map, so that it takes no more memory than a few
        blocks.  (A .npy file in Fortran order, and a slice of a memory map, are read through the map.)
        An iterable must give the same blocks every time it is iterated: a list, or an object whose ``__iter__`` starts
        again; a generator can be read only once and is refused.  It is read once to learn its shape.
    names : list of str, default=None
        Names of the columns.
    y : array of shape (n_rows,), default=None
        Targets; they are the attribute `y`.
    memory : int or str, default=2**30
        Bytes that work on the rows may use, as a number or as a text such as "1GB".

    Examples
    --------
    >>> import numpy as np
    >>> from ksparse import KSparseRegressor
    >>> from ksparse.sources import Blocks
    >>> rng = np.random.default_rng(0)
    >>> pieces = [rng.standard_normal((100, 20)) for _ in range(5)]
    >>> y = np.concatenate([piece[:, 3] - piece[:, 7] for piece in pieces])
    >>> KSparseRegressor(k=2).fit(Blocks(pieces), y).support_
    array([3, 7])
    """

    def __init__(
        self, blocks: Any, *, names: list[str] | None = None, y: Any = None, memory: int | str = MEMORY
    ) -> None:
        memory = check_memory(memory)
        if isinstance(blocks, str | os.PathLike):
            blocks = _map_npy(Path(blocks))
        one = isinstance(blocks, np.ndarray) or is_sparse(blocks)
        self._given = [canonical(blocks, "blocks")] if one else _reiterable(blocks)
        self._file = InputFile(Path(blocks.filename)) if _is_whole_file(blocks) else None
        found = _inspect(self._given)
        if 0 in found.shape:
            raise ValueError(f"blocks must hold at least one row and one column, got shape {found.shape}")
        if names is not None and len(names) != found.shape[1]:
            raise ValueError(f"names must be one per column ({found.shape[1]}), got {len(names)}")
        if y is not None and len(y) != found.shape[0]:
            raise ValueError(f"y must have one entry per row ({found.shape[0]}), got {len(y)}")
        super().__init__(
            found.shape, found.dtype, sparse=found.sparse, entries=found.entries,
            names=None if names is None else list(map(str, names)), y=None if y is None else np.asarray(y),
            memory=memory,
        )  # fmt: skip

    def blocks(self, columns: NDArray[np.int64] | None = None) -> Iterator[Any]:
        given, rows = self._given, self.block_rows
        if self._file is not None and isinstance(given, list):
            self._file.check_unchanged()
            pieces: Iterable[Any] = _read_plainly(given[0], rows)
        elif isinstance(given, list | tuple):
            pieces = _cut(given, rows)
        else:  # copied: somebody else's iterable may reuse the memory of a block while we still work on it
            pieces = _cut((block.copy() for block in given), rows)
        for piece in pieces:
            part = canonical(piece, "a block") if self.sparse else np.asarray(piece)
            part = part if columns is None else part[:, columns]
            if self.sparse:
                yield part.astype(self.dtype, copy=False)
            else:
                yield np.ascontiguousarray(part, dtype=self.dtype)


class _Found(NamedTuple):
    """What blocks hold, all together."""

    shape: tuple[int, int]
    dtype: np.dtype[Any]
    sparse: bool
    entries: int


def _reiterable(blocks: Any) -> Iterable[Any]:
    if not isinstance(blocks, Iterable):
        raise ValueError(
            f"blocks must be a .npy file, an array, a sparse matrix or an iterable of such, got {type(blocks).__name__}"
        )
    if isinstance(blocks, Iterator):
        raise ValueError(
            f"blocks must be something that can be read again, got {type(blocks).__name__}, which can be read once; "
            "give a list, or an object whose __iter__ starts again"
        )
    return blocks


def _inspect(blocks: Iterable[Any]) -> _Found:
    """Read all blocks once, and refuse one that is not like the first."""
    found: _Found | None = None
    for number, block in enumerate(blocks):
        sparse = is_sparse(block)
        if not sparse and not isinstance(block, np.ndarray):
            raise ValueError(f"block {number} must be an array or a sparse matrix, got {type(block).__name__}")
        if np.ma.isMaskedArray(block) and np.ma.is_masked(block):
            raise ValueError(f"block {number} has masked entries; fill or drop them first")
        if block.ndim != 2:
            raise ValueError(f"block {number} must be a matrix (rows are samples), got shape {block.shape}")
        if block.dtype.kind not in "biuf":
            as_real(np.empty(0, block.dtype), f"block {number}")  # says what is wrong
            raise ValueError(f"block {number} must hold real numbers, got dtype {block.dtype}; convert it first")
        dtype = np.dtype(np.float32 if block.dtype == np.float32 else np.float64)
        found = found or _Found((0, block.shape[1]), dtype, sparse, 0)
        if (block.shape[1], sparse) != (found.shape[1], found.sparse):
            kinds = {True: "sparse", False: "dense"}
            raise ValueError(
                f"block {number} must be like the first, {kinds[found.sparse]} with {found.shape[1]} columns, got "
                f"{kinds[sparse]} with {block.shape[1]}"
            )
        shape = (found.shape[0] + block.shape[0], block.shape[1])
        stored = int(block.nnz) if sparse else block.size
        found = _Found(shape, np.promote_types(found.dtype, dtype), sparse, found.entries + stored)
    if found is None:
        raise ValueError("blocks must hold at least one block, got none")
    return found


def _cut(blocks: Iterable[Any], rows: int) -> Iterator[Any]:
    """The blocks, those of more than `rows` rows in pieces."""
    for block in blocks:
        if block.shape[0] <= rows:
            yield block
        else:
            block = block.tocsr() if is_sparse(block) else block
            yield from (block[low : low + rows] for low in range(0, block.shape[0], rows))


# --- .npy files ------------------------------------------------------------------------------------------------------
def _map_npy(path: Path) -> Any:
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, OverflowError, SyntaxError, tokenize.TokenError) as error:
        what = "it is cut off" if "mmap length" in str(error) else error
        raise ValueError(f"{path.name} cannot be read as a .npy file: {what}") from None


def _is_whole_file(array: Any) -> bool:
    """Whether an array is a memory map of a file's rows, one after the other, as they are in the file."""
    if not isinstance(array, np.memmap) or array.filename is None or array.mode == "c":
        return False  # in mode "c", numbers may have been changed in memory only
    return array.flags.c_contiguous and isinstance(array.base, mmap.mmap)


def _read_plainly(array: Any, rows: int) -> Iterator[NDArray[Any]]:
    """Blocks of a memory-mapped file by plain reads: what is read through the map counts as this process's memory."""
    name = str(array.filename)
    with open(name, "rb", buffering=0) as file:
        file.seek(array.offset)
        yield from fill_in_turns(array.shape, array.dtype, rows, lambda low, block: read_into(file, block, name))


# --- .npy and .npz files for open_files ------------------------------------------------------------------------------
def open_array(
    kind: str, file: InputFile, target: Any, memory: int, encoding: dict[str, Any] | None = None
) -> OpenedFiles:
    """The rows and targets of a .npy or .npz file.

    The `target` of a .npy file is a column (the last by default), another .npy file, or False for none.  With the
    `encoding` of another file, the columns must be as many as there; the targets may be missing.
    """
    at: int | str | None = None
    if kind == "npz":
        rows = _open_npz(file, memory, target_optional=encoding is not None)
    elif encoding is None:
        rows, at = _open_npy(file, target, memory)
    else:
        rows, _ = _open_npy(file, False, memory)
        if rows.shape[1] == encoding["features"] + 1 and encoding["target"] is not None:  # the targets came along
            rows, _ = _open_npy(file, encoding["target"], memory)
    if encoding is None:
        column = at if isinstance(at, int) else None
        encoding = {"version": VERSION, "kind": "array", "features": rows.shape[1], "target": column}
        return OpenedFiles(rows, rows.y, at, encoding, [])
    if rows.shape[1] != encoding["features"]:
        raise ValueError(
            f"{file.name} must hold {encoding['features']} columns, as the model's data did, got {rows.shape[1]}"
        )
    return OpenedFiles(rows, rows.y, None if rows.y is None else encoding["target"], encoding, [])


class ArrayRows:
    """The rows of `blocks` without the targets, which are column number `at` or, if that is None, the array `y`."""

    def __init__(self, file: InputFile, blocks: Blocks, at: int | None, y: NDArray[np.float64] | None = None) -> None:
        self._file, self._blocks, self._at = file, blocks, at
        n, width = blocks.shape
        self._columns = np.delete(np.arange(width), [] if at is None else at)
        self.shape, self.dtype, self.y = (n, self._columns.size), blocks.dtype, y
        if self.shape[1] == 0:
            raise ValueError(f"{file.name} cannot be read: there is no column except the target")
        if at is not None:
            self.y = np.concatenate([np.array(block[:, at], dtype=np.float64) for block in blocks.blocks()])
        if self.y is not None and not np.isfinite(self.y).all():
            row = int(np.flatnonzero(~np.isfinite(self.y))[0])
            raise ValueError(f"{file.name}: the target in row {row} is {self.y[row]}: numbers must be finite")

    def blocks(self, wanted: NDArray[np.int64] | None, room: int) -> Iterator[NDArray[Any]]:
        columns = self._columns if wanted is None else self._columns[wanted]
        whole = self._at is None and wanted is None
        self._file.check_unchanged()
        row = 0
        for block in self._blocks.blocks():
            part = block if whole else np.ascontiguousarray(block[:, columns])
            if not all_finite(part.reshape(-1)):
                at, j = np.argwhere(~np.isfinite(part))[0]
                raise ValueError(
                    f"{self._file.name}: the value in row {row + at}, column {columns[j]} is {part[at, j]}: "
                    "numbers must be finite"
                )
            yield part
            row += block.shape[0]
        self._file.check_unchanged()


def _open_npy(file: InputFile, target: Any, memory: int) -> tuple[ArrayRows, int | str | None]:
    """Rows with their targets, and where the targets come from."""
    with reading(file.name):
        if not _is_npy(file):
            raise ValueError("it is not a .npy file")
        blocks = Blocks(file.path, memory=memory)
    if target is False:
        return ArrayRows(file, blocks, None), None
    if isinstance(target, str | Path) and str(target).endswith(".npy"):
        other = InputFile(Path(target))
        with reading(other.name):
            y = as_real(np.load(other.path, allow_pickle=False), "the target")
            if y.shape != (blocks.shape[0],):
                raise ValueError(f"a number for each of {blocks.shape[0]} rows is needed, got shape {y.shape}")
        return ArrayRows(file, blocks, None, y.astype(np.float64)), other.name
    width = blocks.shape[1]
    try:
        at = width - 1 if target is None else int(target)
    except (TypeError, ValueError, OverflowError, np.ma.MaskError):
        raise ValueError(f"target must be a column number or a .npy file for {file.name}, got {target!r}") from None
    if not -width <= at < width:
        raise ValueError(f"target must be a column between 0 and {width - 1} of {file.name}, got {at}")
    return ArrayRows(file, blocks, at % width), at % width


def _is_npy(file: InputFile) -> bool:
    with open(file.path, "rb") as opened:
        return opened.read(6) == b"\x93NUMPY"


def _open_npz(file: InputFile, memory: int, *, target_optional: bool) -> ArrayRows:
    """Rows A (or X) and targets y."""
    with reading(file.name):
        with open(file.path, "rb") as opened:
            if not zipfile.is_zipfile(opened) and not _is_npy(file):
                raise ValueError("it is not a .npz file")
            opened.seek(0)
            arrays = np.load(opened, allow_pickle=False)
            if not hasattr(arrays, "files"):
                raise ValueError("it holds a single array; it must hold A (or X) and y")
            name = next((name for name in ("A", "X") if name in arrays.files), None)
            if name is None or ("y" not in arrays.files and not target_optional):
                held = ", ".join(arrays.files) or "none"
                raise ValueError(f"it must hold the arrays A (or X) and y, it holds {held}")
            A = as_real(arrays[name], name)
            y = as_real(arrays["y"], "y") if "y" in arrays.files else None
        if A.ndim != 2 or 0 in A.shape or (y is not None and y.shape != (A.shape[0],)):
            shapes = f"{A.shape}" + ("" if y is None else f" and {y.shape}")
            raise ValueError(f"it must hold a matrix and one number per row, got shapes {shapes}")
        blocks = Blocks(A, memory=memory)
    return ArrayRows(file, blocks, None, None if y is None else y.astype(np.float64))
