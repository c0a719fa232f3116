"""Rows in blocks: a .npy file, arrays, sparse pieces, or any iterable of blocks that can be read again."""

from __future__ import annotations

import mmap
import os
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._validate import as_real
from ..design.blocks import MEMORY, Source
from ..design.matrix import canonical, is_sparse
from ._inputs import Input
from ._memory import check_memory
from ._plain import fill, in_turns


class Blocks(Source):
    """Rows that are read block by block.

    Parameters
    ----------
    blocks : path of a .npy file, memory-mapped array, array, sparse matrix, list of such, or an iterable of blocks
        A .npy file is read with plain reads, not through a map, so that it takes no more memory than a few blocks.
        An iterable must give the same blocks every time it is iterated: a list, or an object whose ``__iter__`` starts
        anew; a generator can be read once only and is refused.  It is read once to learn its shape.
        (Of a .npy file in Fortran order, and of a part of a map, rows are read through the map.)
    names : list of str, optional
        Of the columns.
    y : array, optional
        Targets, kept along with the rows.
    memory : int or str
        What work on the rows may take, such as 2**30 or "1GB".

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
            blocks = _open_npy(Path(blocks))
        if isinstance(blocks, np.ndarray) or is_sparse(blocks):
            blocks = canonical(blocks, "blocks")
            shape, dtype, entries = _checked(blocks, 0, None)
            sparse = is_sparse(blocks)
        else:
            shape, dtype, sparse, entries = _learn(blocks)
        if 0 in shape:
            raise ValueError(f"blocks must hold at least one row and one column, got shape {shape}")
        if names is not None and len(names) != shape[1]:
            raise ValueError(f"names must be one a column ({shape[1]}), got {len(names)}")
        if y is not None and len(y) != shape[0]:
            raise ValueError(f"y must have one entry a row ({shape[0]}), got {len(y)}")
        super().__init__(
            shape, dtype, sparse=sparse, entries=entries, names=None if names is None else list(map(str, names)),
            y=None if y is None else np.asarray(y), memory=memory,
        )  # fmt: skip
        self._given = blocks
        self._place = _place(blocks) if isinstance(blocks, np.memmap) else None
        self._file = None if self._place is None else Input(Path(self._place[0]))

    def blocks(self, columns: NDArray[np.int64] | None = None) -> Iterator[Any]:
        given = self._given
        if self._place is not None and self._file is not None:
            self._file.check_same()
            pieces = _read_file(self._place, given.shape, given.dtype, self.block_rows)
        elif isinstance(given, np.ndarray) or is_sparse(given):
            pieces = (given[low : low + self.block_rows] for low in range(0, self.shape[0], self.block_rows))
        else:
            # an iterable of somebody else's may fill the same memory again while we still work on it
            pieces = _cut(given if isinstance(given, list | tuple) else map(_own, given), self.block_rows)
        piece: Any
        for piece in pieces:
            part = canonical(piece, "a block") if self.sparse else np.asarray(piece)
            yield self._converted(part if columns is None else part[:, columns])

    def _converted(self, part: Any) -> Any:
        return part.astype(self.dtype, copy=False) if self.sparse else np.ascontiguousarray(part, dtype=self.dtype)


def _own(block: Any) -> Any:
    return block.copy() if hasattr(block, "copy") else block


def _open_npy(path: Path) -> Any:
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, OverflowError, SyntaxError, tokenize.TokenError) as error:
        what = "it is cut off" if "mmap length" in str(error) else error
        raise ValueError(f"{path.name} cannot be read as a .npy file: {what}") from None


def _checked(block: Any, number: int, before: tuple[int, np.dtype[Any], bool] | None) -> Any:
    """Shape, dtype and entries of a block, which must be like those before it."""
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
    if before is not None and (block.shape[1], sparse) != (before[0], before[2]):
        kinds = {True: "sparse", False: "dense"}
        raise ValueError(
            f"block {number} must be like the first, {kinds[before[2]]} with {before[0]} columns, got "
            f"{kinds[sparse]} with {block.shape[1]}"
        )
    dtype = np.dtype(np.float32 if block.dtype == np.float32 else np.float64)
    return block.shape, dtype, int(block.nnz) if sparse else block.size


def _learn(blocks: Any) -> tuple[tuple[int, int], Any, bool, int]:
    """Shape, dtype, kind and entries of an iterable of blocks, in one pass."""
    if not isinstance(blocks, Iterable):
        raise ValueError(
            f"blocks must be a .npy file, an array, a sparse matrix or an iterable of such, got {type(blocks).__name__}"
        )
    if isinstance(blocks, Iterator):
        raise ValueError(
            f"blocks must be something that can be read again, got {type(blocks).__name__}, which can be read once; "
            "give a list, or an object whose __iter__ starts anew"
        )
    n, entries, known, dtype = 0, 0, None, np.dtype(np.float32)
    for number, block in enumerate(blocks):
        shape, this, stored = _checked(block, number, known)
        known = (shape[1], this, is_sparse(block)) if known is None else known
        dtype = np.promote_types(dtype, this)
        n, entries = n + shape[0], entries + stored
    if known is None:
        raise ValueError("blocks must hold at least one block, got none")
    return (n, known[0]), dtype, known[2], entries


def _cut(blocks: Iterable[Any], rows: int) -> Iterator[Any]:
    """The blocks, larger ones in pieces."""
    for block in blocks:
        if block.shape[0] <= rows:
            yield block
        else:
            block = block.tocsr() if is_sparse(block) else block
            yield from (block[low : low + rows] for low in range(0, block.shape[0], rows))


# --- .npy files ------------------------------------------------------------------------------------------------------
def _place(array: np.memmap[Any, Any]) -> tuple[str, int] | None:
    """File and offset of a map's first number, if its rows lie there one after the other."""
    whole = array.flags.c_contiguous and isinstance(array.base, mmap.mmap)
    if array.filename is None or not whole or array.mode == "c":
        return None  # a part of a map, columns one after the other, or numbers changed in memory only
    return str(array.filename), array.offset


def _read_file(place: tuple[str, int], shape: tuple[int, int], dtype: Any, rows: int) -> Iterator[NDArray[Any]]:
    """Blocks of rows by plain reads: what is read through a map would count as this process's memory."""
    name, offset = place
    with open(name, "rb", buffering=0) as file:
        file.seek(offset)
        yield from in_turns(shape, dtype, rows, lambda low, block: fill(file, block, name))
