"""A that is not one array: its rows come in blocks, as often as they are wanted.

A pass over a source calls a function with every block.  What the function returns is small (sums, a few rows, one
number per row), so that the rows need not be in memory together, nor on this machine.
"""

from __future__ import annotations

import functools
import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from .._text import watch_pass
from .._threads import between_blocks
from .base import Array, Columns, Design, Point, Scaling, Stage, joined, summed
from .kernels import Rows
from .matrix import InMemory, as_matrix, as_rows, check_norms, dense, frozen, is_sparse, stored_moments

T = TypeVar("T")
MEMORY = 1 << 30  # bytes that work on a source may take by default
AHEAD = 1  # blocks read before they are wanted
BLOCK = 1 << 24  # bytes
DRAW = 56  # bytes to draw a row, to sort the draws and to find the row again
SHARE_OF_BLOCKS, SHARE_OF_SAMPLE, SHARE_OF_COLUMNS = 1 / 4, 1 / 4, 1 / 2  # of that memory


class Times(NamedTuple):
    """Seconds of a pass.  Reading, computing and transfer go on at the same time: they may add up to more than wall."""

    wall: float = 0.0
    read: float = 0.0  # until the blocks were there
    compute: float = 0.0
    transfer: float = 0.0  # to and from other machines or processes


class Source(Design):
    """Rows in blocks.

    Subclasses define `blocks`; or `map`, if the rows are on other machines.

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
        Of the last complete pass.
    """

    in_memory = False

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
    def room_for_columns(self) -> float:
        return self.memory * SHARE_OF_COLUMNS

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
            del result  # it may be large: freed before the next block is worked on
            low = high
            watch_pass.get()(low / n, time.perf_counter() - began)
            between_blocks.get()()
        if low < n:
            raise ValueError(f"only {low} rows came of {n}: blocks must be the same in every pass")
        self.times = Times(time.perf_counter() - began, read, compute)

    def load(self) -> Any:
        """All rows in memory: an array, or SciPy's CSR matrix."""
        return stacked(list(self.map(_copy_block)))

    # --- sums over the rows: those of the blocks, added in order
    def _each(
        self, operation: Callable[..., T], *arrays: NDArray[Any], only: Columns | None = None, **settings: Any
    ) -> Iterator[T]:
        """A method of `InMemory` on every block (of all columns, or `only` some), with its parts of the arrays."""
        return self.map(functools.partial(on_block, operation, settings), *arrays, columns=only)

    def moments(self, first: Array, second: Array) -> tuple[Array, Array, Array]:
        return summed(self._each(InMemory.moments, first, second))

    def left_product(self, block: Array, which: NDArray[np.int64] | None = None) -> Array:
        if which is not None:
            some, block = block, np.zeros((block.shape[0], self.shape[0]))
            block[:, which] = some
        return summed(self.map(_left_product, block.T))[0]

    def products(self, columns: Columns, weight: Array) -> tuple[Array, Array]:
        return summed(self.map(functools.partial(_products, columns), weight))

    def column_moments(self, weight: Array, centred: bool) -> tuple[Array, Array]:
        return stored_moments(self, weight, centred)

    # --- columns and rows
    def read_columns(self, columns: Columns, out: Array, scaling: Scaling | None = None) -> None:
        order, low = np.argsort(columns, kind="stable"), 0
        back = np.argsort(order)
        for part in self.map(dense, columns=columns[order]):
            high = low + part.shape[0]
            InMemory(as_rows(part)).read_columns(back, out[:, low:high], scaling)
            low = high

    def stored_columns(self, columns: Columns) -> tuple[Any, Array, Array]:
        order = np.argsort(columns, kind="stable")
        some = stacked(list(self.map(_copy_block, columns=columns[order])))
        return some.tocsc()[:, np.argsort(order)], np.zeros(columns.size), np.ones(columns.size)

    def norms(self, kept: Columns) -> tuple[Array, Array, Array]:
        norms = joined(self._each(InMemory.row_norms, kept=kept))
        check_norms(norms, lambda i: InMemory(as_rows(self.rows_at(np.arange(self.shape[0]) == i))))
        return norms

    def largest_squares(self, r: int, kept: Columns) -> Array:
        return joined(self._each(InMemory.largest_squares, r=r, kept=kept))

    def row_codes(self) -> NDArray[np.uint64]:
        return joined(self._each(InMemory.row_codes))

    def extremes(self, columns: Columns, centre: Array) -> tuple[Array, NDArray[np.int64]]:
        away, stored = np.zeros(columns.size), np.zeros(columns.size, np.int64)
        for own, count in self._each(InMemory.extremes, only=columns, columns=np.arange(columns.size), centre=centre):
            np.maximum(away, own, out=away)
            stored += count
        return away, stored

    def check_finite(self) -> None:
        self.norms(np.empty(0, np.int64))

    def rows_at(self, mask: NDArray[np.bool_]) -> Any:
        """The rows where the mask is true, as an array or SciPy's CSR matrix."""
        return stacked(list(self.map(pick_rows, mask)))

    def scaled(self, centre: Array, factor: Array) -> Rescaled:
        return Rescaled(self, centre, factor)

    def single_copy(self, centre: Array, factor: Array) -> None:
        return None

    # --- one pass at an iterate
    def stage(
        self, point: Point, y: Array, weight: Array, offset: Array, row_max: Array, idx: Any, reuse: Stage | None
    ) -> Stage:
        drawn, place = np.unique(idx, return_inverse=True)
        wanted = np.zeros(point.n, dtype=bool)
        wanted[drawn] = True
        mu = np.zeros(point.d) if reuse is None else reuse.mu
        mu[:] = 0.0
        loss = mu_ones = 0.0
        sample = DrawnRows(self, min(point.n, idx.size), None if reuse is None else reuse.rows)
        derivatives = [np.empty(0)]
        for part in self.map(functools.partial(_sweep_block, point), y, weight, offset, wanted):
            with np.errstate(over="ignore", invalid="ignore"):  # numbers that are not finite end the run
                loss += part.loss
                mu_ones += part.mu_ones
                mu += part.mu
            if part.rows is not None:
                derivatives.append(part.derivative)
                sample.add(part.rows)
            del part  # free its d numbers before the next block makes its own
        return Stage(
            loss, mu, mu_ones, np.concatenate(derivatives), sample.rows(),
            frozen(y[drawn]), frozen(weight[drawn]), frozen(offset[drawn]), row_max[drawn],
            place.reshape(idx.shape).astype(np.int64, copy=False),
        )  # fmt: skip

    def drawn(self, point: Point, y: Array, weight: Array, offset: Array, row_max: Array, idx: Any) -> Stage:
        return without_gradient(self.stage(point, y, weight, offset, row_max, idx, None))

    def objective(self, point: Point, y: Array, weight: Array, offset: Array) -> float:
        few, columns = point.of_few()
        return float(sum(self.map(functools.partial(_objective, few), y, weight, offset, columns=columns)))

    def slot_derivatives(self, point: Point, y: Array, weight: Array, offset: Array) -> tuple[Array, Array]:
        few, columns = point.of_few()
        return summed(self.map(functools.partial(_slot_derivatives, few), y, weight, offset, columns=columns))


class Rescaled(Source):
    """(A − centre)·factor, column by column: the blocks of a source are scaled as they come."""

    checked = True

    def __init__(self, source: Source, centre: Array, factor: Array) -> None:
        super().__init__(
            source.shape, source.dtype, sparse=source.sparse, entries=source.entries, names=source.names,
            memory=source.memory,
        )  # fmt: skip
        self.source, self.centre, self.factor = source, centre, factor

    def map(self, function: Callable[..., T], *arrays: NDArray[Any], columns: Columns | None = None) -> Iterator[T]:
        which = slice(None) if columns is None else columns
        scaling = self.centre[which], self.factor[which]
        yield from self.source.map(functools.partial(_on_scaled, function, *scaling), *arrays, columns=columns)
        self.times = self.source.times


# --- what is done with one block: plain functions, which can be sent to other processes ------------------------------
def on_block(operation: Callable[..., T], settings: dict[str, Any], block: Any, *parts: NDArray[Any]) -> T:
    return operation(InMemory(as_rows(block)), *parts, **settings)


def _on_scaled(function: Callable[..., T], centre: Array, factor: Array, block: Any, *parts: Any) -> T:
    return function(as_matrix(InMemory(as_rows(block)).scaled(centre, factor).rows), *parts)


def _copy_block(block: Any) -> Any:
    return block.copy()  # a source may use the block's memory again


def pick_rows(block: Any, mask: NDArray[np.bool_]) -> Any:
    return block[np.flatnonzero(mask)]


def _left_product(block: Any, left: Array) -> tuple[Array]:
    return (InMemory(as_rows(block)).left_product(left.T),)


def _products(columns: Columns, block: Any, weight: Array) -> tuple[Array, Array]:
    return InMemory(as_rows(block)).products(columns, weight)


class Gathered(NamedTuple):
    """What a block contributes to a stage."""

    loss: float
    mu_ones: float
    mu: Array
    derivative: Array  # of the rows wanted
    rows: Any  # those rows; None if none is


def _sweep_block(point: Point, block: Any, y: Array, weight: Array, offset: Array, wanted: Any) -> Gathered:
    design, derivative, mu = InMemory(as_rows(block)), np.empty(y.size), np.zeros(point.d)
    loss, mu_ones = design.sweep(point, y, weight, offset, derivative, mu)
    if not wanted.any():
        return Gathered(loss, mu_ones, mu, derivative[:0], None)
    return Gathered(loss, mu_ones, mu, derivative[wanted], pick_rows(as_matrix(design.rows), wanted))


def _objective(point: Point, block: Any, y: Array, weight: Array, offset: Array) -> float:
    return InMemory(as_rows(block)).objective(point, y, weight, offset)


def _slot_derivatives(point: Point, block: Any, y: Array, weight: Array, offset: Array) -> tuple[Array, Array]:
    return InMemory(as_rows(block)).slot_derivatives(point, y, weight, offset)


def without_gradient(stage: Stage) -> Stage:
    return stage._replace(
        value=0.0, mu=np.zeros(stage.mu.size), mu_ones=0.0, derivative=np.zeros(stage.derivative.size)
    )


class DrawnRows:
    """The rows that a stage draws, gathered block by block; dense ones overwrite those of the last stage."""

    def __init__(self, source: Source, most: int, last: Any) -> None:
        self._source, self._filled = source, 0
        self._parts: list[Any] = []
        if not source.sparse:
            buffer = getattr(last, "base", None)
            fits = buffer is not None and len(buffer) >= most
            self._buffer: Any = buffer if fits else np.empty((most, source.shape[1]), source.dtype)

    def add(self, rows: Any) -> None:
        if self._source.sparse:
            self._parts.append(rows)
        else:
            self._buffer[self._filled : self._filled + len(rows)] = rows
            self._filled += len(rows)

    def rows(self) -> Rows:
        if not self._source.sparse:
            return frozen(self._buffer[: self._filled])
        if not self._parts:
            from scipy import sparse

            return as_rows(sparse.csr_array((0, self._source.shape[1]), dtype=self._source.dtype))
        return as_rows(stacked(self._parts))


def stacked(blocks: list[Any]) -> Any:
    """Blocks one below the other."""
    if len(blocks) == 1:
        return blocks[0]
    if not is_sparse(blocks[0]):
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
