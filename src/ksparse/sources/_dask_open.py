"""From a Dask collection to its partitions, what they hold, and whoever works on them."""

from __future__ import annotations

import functools
import multiprocessing.pool
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any, NamedTuple

import dask
import numpy as np
from dask.base import get_scheduler, is_dask_collection
from dask.delayed import delayed
from dask.system import CPU_COUNT
from numpy.typing import NDArray

from ._dask_here import Here, Processes, start_processes
from ._dask_parts import Form, Lazy, Look, client_of, lay_out, look, without_others


class Opened(NamedTuple):
    """All that a source over partitions needs."""

    shape: tuple[int, int]
    form: Form
    entries: int | None
    names: list[str] | None
    y: NDArray[Any] | None
    runner: Any


def open_parts(X: Any, client: Any, y: Any) -> Opened:
    """Take a collection apart; compute what it does not say of itself."""
    if client is not None:
        _check_client(client)
    with nullcontext() if client is None else client.as_current():
        layout = lay_out(X)
    lazy = without_others(layout.parts)
    who = Who(layout.parts, client or client_of(lazy))
    try:
        if layout.rows is None:  # all looks and the targets in one go
            looks, y = who.compute(layout.parts, y)
        else:
            first = next((i for i, count in enumerate(layout.rows) if count), 0)
            looks, y = who.compute(layout.parts[first : first + 1], y)
            if looks and looks[0].entries is not None:
                looks, _ = who.compute(layout.parts, None)
        rows = layout.rows or [found.rows for found in looks]
        d, dtype, entries, names = _agree(looks, sum(rows))
        kept = [i for i, count in enumerate(rows) if count]  # nothing can be computed from no rows
        y = None if y is None else _targets(y, sum(rows))
        runner = who.runner([layout.parts[i] for i in kept], [lazy[i] for i in kept], [rows[i] for i in kept])
    except BaseException:
        who.close()
        raise
    return Opened((sum(rows), d), Form(dtype, entries is not None, d), entries, layout.names or names, y, runner)


def _agree(looks: list[Look], n: int) -> tuple[int, np.dtype[Any], int | None, list[str] | None]:
    """What all partitions have in common: columns, dtype, entries if they are sparse, names."""
    looks = [found for found in looks if found.rows]
    if not n or not looks:
        raise ValueError("X has no rows")
    first = looks[0]
    if not first.columns:
        raise ValueError("X has no columns")
    for found in looks:
        if found.columns != first.columns:
            raise ValueError(f"X has partitions of {first.columns} and of {found.columns} columns")
        if found.names != first.names:
            raise ValueError(f"X has partitions with other columns, or in another order: {first.names}, {found.names}")
    dtype = np.dtype(np.float32 if all(found.dtype == np.float32 for found in looks) else np.float64)
    sparse = any(found.entries is not None for found in looks)
    counts = (found.rows * found.columns if found.entries is None else found.entries for found in looks)
    return first.columns, dtype, sum(counts) if sparse else None, first.names


def _pieces(y: Any) -> list[Any]:
    """Targets of Dask's, as delayed objects; none if they are an array already."""
    if not is_dask_collection(y):
        return []
    if not hasattr(y, "to_delayed"):
        return [y]
    if getattr(y, "ndim", 1) == 2 and hasattr(y, "rechunk"):
        y = y.rechunk({1: -1})
    return list(np.ravel(y.to_delayed()))


def _as_array(piece: Any) -> NDArray[Any]:
    if hasattr(piece, "to_numpy") and getattr(getattr(piece, "dtype", None), "kind", "O") in "biuf":
        return piece.to_numpy(dtype=None if isinstance(piece.dtype, np.dtype) else np.float64, na_value=np.nan)
    return np.atleast_1d(np.asarray(piece))


def _targets(y: Any, n: int) -> NDArray[Any]:
    y = _as_array(y)
    if y.ndim == 0 or y.shape[0] != n:
        raise ValueError(f"y has {y.shape[0] if y.ndim else 'no'} entries, and X has {n} rows")
    return y


class Who:
    """Whoever computes: the cluster of a client, or what Dask is set to."""

    def __init__(self, parts: list[Any], client: Any) -> None:
        scheduler = get_scheduler(collections=parts[:1]) if client is None else None
        self.client = client or getattr(scheduler, "__self__", None)
        if self.client is not None:
            _check_client(self.client)
        self.lanes = int(dask.config.get("num_workers", None) or CPU_COUNT)
        self._get: Callable[..., Any] | None = None  # a scheduler that only computes
        self._pool: Executor | None = None
        self._kind, self._own = "client", False
        if self.client is None:
            self._choose(scheduler)

    def _choose(self, scheduler: Any) -> None:
        from dask.local import get_async, get_sync
        from dask.multiprocessing import MultiprocessingPoolExecutor
        from dask.multiprocessing import get as get_processes
        from dask.threaded import get as get_threads

        pool = dask.config.get("pool", None)
        if isinstance(scheduler, functools.partial) and scheduler.func is get_async:  # an executor as the scheduler
            pool = dask.config.get("scheduler")
            scheduler = get_threads if isinstance(pool, ThreadPoolExecutor) else get_processes
        if isinstance(pool, multiprocessing.pool.Pool):
            processes = not isinstance(pool, multiprocessing.pool.ThreadPool)
            pool = MultiprocessingPoolExecutor(pool) if processes else None
        self.lanes = getattr(pool, "_max_workers", self.lanes)
        if scheduler is get_processes:
            self._kind, self._own = "processes", pool is None
            self._pool = start_processes(self.lanes) if pool is None else pool
        elif scheduler in (get_threads, None):
            self._kind, self._pool = "threads", pool
        else:
            self._kind, self.lanes = "one", 1
            self._get = None if scheduler is get_sync else scheduler

    def compute(self, parts: list[Any], y: Any) -> tuple[list[Look], Any]:
        """Looks at partitions, and targets."""
        pieces = [delayed(_as_array)(piece) for piece in _pieces(y)]
        wanted = [*(delayed(look)(part) for part in parts), *pieces]
        if self.client is not None:
            from ._dask_cluster import compute

            found = compute(self.client, wanted)
        else:
            found = dask.compute(*wanted, **({"pool": self._pool} if self._kind == "processes" else {}))
        return list(found[: len(parts)]), np.concatenate(found[len(parts) :]) if pieces else y

    def runner(self, parts: list[Any], lazy: list[Lazy], rows: list[int]) -> Any:
        """Whoever works on the partitions, which are given as delayed objects and with a graph for each."""
        if self.client is not None:
            from ._dask_cluster import OnCluster

            return OnCluster(self.client, parts, lazy, rows)
        for part in lazy:
            part.get = self._get
        if self._kind == "processes":
            assert self._pool is not None
            return Processes(lazy, rows, self.lanes, self._pool, self._own)
        return Here(lazy, rows, self.lanes, self._pool)

    def close(self) -> None:
        if self._own and self._pool is not None:
            self._pool.shutdown(cancel_futures=True)


def _check_client(client: Any) -> None:
    from distributed import Client

    if not isinstance(client, Client):
        raise ValueError(f"client must be a distributed.Client, got {type(client).__name__}")
    if client.asynchronous:
        raise ValueError("client is asynchronous; make one with Client(address), outside a coroutine")
    if client.status != "running":
        raise ValueError(f"client is {client.status}; make another one: Client(address)")
