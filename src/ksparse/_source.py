"""Rows that are not one array: they come in blocks, as often as they are wanted.

A pass over a source calls a function with every block.  What it returns is small (sums, some rows, a number a row), so
that the rows themselves need not be in memory together, nor on this machine.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")
MEMORY = 1 << 30  # bytes that work on a source may take
AHEAD = 1  # blocks read before they are wanted
BLOCK = 1 << 24  # bytes
DRAW = 56  # bytes to draw a row, to sort the draws and to find the row again
SHARE_OF_BLOCKS, SHARE_OF_SAMPLE, SHARE_OF_COLUMNS = 1 / 4, 1 / 4, 1 / 2  # of that memory


between_blocks: ContextVar[Callable[[], None]] = ContextVar("between_blocks", default=lambda: None)  # may raise


class Times(NamedTuple):
    """Seconds of a pass.  Reading, computing and transfer go on at the same time: they may add up to more than wall."""

    wall: float = 0.0
    read: float = 0.0  # until the blocks were there
    compute: float = 0.0
    transfer: float = 0.0  # to and from other machines or processes


class Source:
    """Rows in blocks.

    Subclasses give `blocks`, or where rows are elsewhere `map`.

    Attributes
    ----------
    shape : (int, int)
    dtype : dtype
        float64 or float32.
    sparse : bool
        Whether blocks are sparse; then `entries` says how many numbers they store in all.
    names : list of str or None
        Of the columns.
    y : array or None
        Targets that came along with the rows.
    memory : int
        Bytes that work on the rows may take: blocks in flight, rows sampled for a stage, columns held.
    times : Times
        Of the last pass that went to its end.
    """

    def __init__(
        self,
        shape: tuple[int, int],
        dtype: Any = np.float64,
        *,
        sparse: bool = False,
        entries: int | None = None,
        names: list[str] | None = None,
        y: NDArray[Any] | None = None,
        memory: int = MEMORY,
    ) -> None:
        self.shape, self.dtype, self.sparse = (int(shape[0]), int(shape[1])), np.dtype(dtype), sparse
        self.entries = int(shape[0]) * int(shape[1]) if entries is None else int(entries)
        self.names, self.y, self.memory = names, y, int(memory)
        self.times = Times()

    @property
    def ndim(self) -> int:
        return 2

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def row_bytes(self) -> int:
        """About how many bytes a row takes."""
        each = 16 if self.sparse else self.dtype.itemsize  # an index comes with a number
        return max(1, each * self.entries // max(1, self.shape[0]))

    @property
    def block_rows(self) -> int:
        """Rows of a block: few enough that it stays in the cache until it is used, and that those in flight fit their
        share of the memory; enough that sums of d numbers are small beside it."""
        share = int(self.memory * SHARE_OF_BLOCKS) // (AHEAD + 3)
        return max(1, min(share, max(BLOCK, 128 * self.shape[1])) // self.row_bytes)

    @property
    def sample_rows(self) -> int:
        """Rows that fit the share of the memory for a sample, with what it takes to draw and to find them."""
        return max(1, int(self.memory * SHARE_OF_SAMPLE) // (self.row_bytes + DRAW))

    def blocks(self, columns: NDArray[np.int64] | None = None) -> Iterator[Any]:
        """The blocks in order: C-ordered arrays or SciPy's CSR matrices of `dtype`; only of some columns (in ascending
        order) if they are given.  Called in a thread of its own, which reads ahead."""
        raise NotImplementedError

    def map(
        self, function: Callable[..., T], *arrays: NDArray[Any], columns: NDArray[np.int64] | None = None
    ) -> Iterator[T]:
        """``function(block, *parts)`` for every block, in order; of arrays of n entries the block's parts.

        Sources elsewhere send functions and parts there: the function must be known by its name (or be a
        `functools.partial` of such a one), and parts of arrays that are read-only are sent once.
        """
        began, read, compute, low = time.perf_counter(), 0.0, 0.0, 0
        n, width = self.shape[0], self.shape[1] if columns is None else len(columns)
        for seconds, block in read_ahead(self.blocks(columns)):
            high = low + block.shape[0]
            if high > n or block.shape[1] != width:
                raise ValueError(
                    f"a block of shape {block.shape} came behind row {low} of a source of shape {(n, width)}: "
                    "blocks must be the same in every pass"
                )
            read += seconds
            if high == low:
                continue
            start = time.perf_counter()
            result = function(block, *(array[low:high] for array in arrays))
            compute += time.perf_counter() - start
            del block
            yield result
            del result  # it may be large, and goes before the next one comes
            low = high
            between_blocks.get()()
        if low < n:
            raise ValueError(f"only {low} rows came of {n}: blocks must be the same in every pass")
        self.times = Times(time.perf_counter() - began, read, compute)

    def load(self) -> Any:
        """All rows in memory: an array, or a CSR matrix."""
        return stacked(list(self.map(_itself)))


def _itself(block: Any) -> Any:
    return block.copy()  # a source may use the block's memory again


def stacked(blocks: list[Any]) -> Any:
    """Blocks one below the other."""
    if len(blocks) == 1:
        return blocks[0]
    if not hasattr(blocks[0], "tocsr"):
        return np.concatenate(blocks)
    from scipy import sparse

    return sparse.vstack(blocks, format="csr")


def read_ahead(blocks: Iterator[T]) -> Iterator[tuple[float, T]]:
    """The items of an iterator with the seconds each took, fetched by a thread while the caller works on those before.

    An iterator that uses its memory again must do so only for the third item after: one is at work here, one waits, one
    is being read.
    """
    ready: queue.Queue[tuple[str, float, Any]] = queue.Queue(maxsize=AHEAD)
    left = threading.Event()

    def put(kind: str, seconds: float, item: Any) -> bool:
        while not left.is_set():
            try:
                ready.put((kind, seconds, item), timeout=0.1)
                return True
            except queue.Full:
                continue
        return False

    def fetch() -> None:
        try:
            while True:
                start = time.perf_counter()
                try:
                    item = next(blocks)
                except StopIteration:
                    put("end", 0.0, None)
                    return
                if not put("item", time.perf_counter() - start, item):
                    return
                del item
        except BaseException as error:
            put("error", 0.0, error)
        finally:
            close = getattr(blocks, "close", None)
            if close is not None:
                close()

    thread = threading.Thread(target=fetch, name="ksparse-reader", daemon=True)
    thread.start()
    try:
        while True:
            kind, seconds, item = ready.get()
            if kind == "end":
                return
            if kind == "error":
                raise item
            yield seconds, item
            del item
    finally:
        left.set()
        thread.join()
