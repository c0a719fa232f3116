"""How fast is the full gradient on two processes of a Dask cluster?  And where does the time of a stage go?

    python benchmarks/bench_dask.py [--quick] [--out FILE]

A full gradient is one pass of `Source.map` with the function that HT-SVRG's stages use.  It runs on a cluster of one
process and on one of two, each with one thread, in turn in the same run; the rows are in the workers' memory.  Starting
the workers, compiling and the first passes are excluded.  Dask takes some 20 ms a pass, and dense rows are read as fast
as the memory gives them (`two_GBs`), which two processes share: how much faster two plain ones are than one, without
Dask, is measured beside it.  Then a stage (the gradient and the rows that were drawn) is split into
reading, computing and transfer: for rows that the workers hold, and for rows that every pass reads from .npy and
Parquet files in the task.  Sums over workers, divided by their number, so that they add up to the wall time; transfer
is all that is neither reading nor computing: sending, scheduling, waiting.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
from _store import machine, write_whole
from bench_steps import check, show, sparse_rows
from distributed import Client, LocalCluster

from ksparse._threads import one_thread
from ksparse.problem import Problem
from ksparse.sources import Partitions, dask_cluster

WANTED = 1.5  # times the speed of one process
K = 20


def rows_of(i, rows, d):
    """A block of rows, the same for everybody who asks."""
    return np.random.default_rng(i).standard_normal((rows, d))


def sparse_rows_of(i, rows, d):
    """The same of sparse rows, with 50 entries each."""
    return sparse_rows(rows, d, 50, np.random.default_rng(i))


def collection(make, n, d, parts):
    """A Dask array of such blocks, which the workers make themselves."""
    rows, meta = n // parts, make(0, 1, d)
    blocks = [dask.delayed(make)(i, rows, d) for i in range(parts)]
    return da.concatenate([da.from_delayed(block, (rows, d), float, meta=meta) for block in blocks])


def cluster(workers):
    return LocalCluster(
        n_workers=workers, threads_per_worker=1, processes=True, dashboard_address="127.0.0.1:0", memory_limit=None
    )


class Gradient:
    """A problem whose stages can be timed."""

    def __init__(self, rows, y, sample, loss="squared"):
        self.rows, self.problem = rows, Problem.create(rows, y, loss=loss)
        self.slots = self.problem.slots(K)
        self.slots.x[:] = 1.0
        self.idx = np.random.default_rng(0).integers(0, len(y), (sample, 1))

    def stage(self):
        """Seconds of a stage, and its gradient."""
        began = time.perf_counter()
        stage = self.problem.stage(self.slots, self.idx)
        return time.perf_counter() - began, stage.mu

    def split(self, passes, workers):
        """The quickest stage, split."""
        found = []
        for _ in range(passes):
            seconds, _ = self.stage()
            found.append((seconds, self.rows.times))
        seconds, times = min(found)
        parts = {name: 1e3 * getattr(times, name) / workers for name in ("read", "compute", "transfer")}
        return {"stage_ms": 1e3 * seconds, "pass_ms": 1e3 * times.wall, **{f"{k}_ms": v for k, v in parts.items()}}


def plain_process(number, barrier, n, d, answers):
    """Full gradients without Dask, on one thread: first beside the other process, then alone."""
    rows = rows_of(number, n // 2, d)
    problem = Problem.create(rows, rows[:, 0].copy())
    slots, idx = problem.slots(K), np.zeros((1, 1), np.int64)
    found = {}
    with one_thread():
        problem.stage(slots, idx)
        for who in ("both", 0, 1):
            for _ in range(10):
                barrier.wait()
                if who in ("both", number):
                    began = time.perf_counter()
                    problem.stage(slots, idx)
                    found[who] = min(found.get(who, np.inf), time.perf_counter() - began)
    answers.put((found["both"], found[number]))


def ceiling(n, d):
    """By how much two plain processes are faster than one: all that this machine's memory allows."""
    context = multiprocessing.get_context("spawn")
    barrier, answers = context.Barrier(2), context.Queue()
    workers = [context.Process(target=plain_process, args=(i, barrier, n, d, answers)) for i in range(2)]
    for worker in workers:
        worker.start()
    (both, alone), (other_both, other_alone) = answers.get(), answers.get()
    for worker in workers:
        worker.join()
    return (alone + other_alone) / max(both, other_both)


def speeds(X, y, loss, passes, clients):
    """Milliseconds of a full gradient on one process and on two, in turn: the quickest of each, and their ratio.

    The quickest are those that nobody disturbed; the medians say how much the others were.
    """
    runs = [Gradient(opened(X, client, True), y, 1, loss) for client in clients]
    (_, one), (_, two) = runs[0].stage(), runs[1].stage()  # a warm-up, and the check
    apart = float(np.max(np.abs(one - two)) / np.max(np.abs(one)))
    for run in runs:
        run.stage()
    times = [[run.stage()[0] for run in runs] for _ in range(passes)]
    one_ms, two_ms = (1e3 * min(column) for column in zip(*times, strict=True))
    one_median, two_median = (1e3 * statistics.median(column) for column in zip(*times, strict=True))
    return {
        "n": len(y), "d": X.shape[1], "one_ms": one_ms, "two_ms": two_ms,
        "ratio": one_ms / two_ms, "two_GBs": runs[1].rows.row_bytes * len(y) / two_ms / 1e6,
        "one_median_ms": one_median, "two_median_ms": two_median, "passes": passes, "apart": apart,
    }  # fmt: skip


def opened(data, client, held):
    """Partitions that the workers hold, or that they compute in every pass, as if their memory were full."""
    free = dask_cluster.ClusterWorkers._free
    dask_cluster.ClusterWorkers._free = free if held else lambda self: 0
    try:
        rows = Partitions(data, client=client)
    finally:
        dask_cluster.ClusterWorkers._free = free
    assert rows.held is held
    return rows


def write_files(X, folder):
    """The rows as .npy files and as Parquet files, a file a partition; gives what reads them."""
    parts, d = X.numblocks[0], X.shape[1]
    for i in range(parts):
        block = rows_of(i, X.chunks[0][0], d)
        np.save(folder / f"{i:03}.npy", block)
        pd.DataFrame(block, columns=[f"c{j}" for j in range(d)]).to_parquet(folder / f"{i:03}.parquet")
    return [dask.delayed(np.load)(folder / f"{i:03}.npy") for i in range(parts)], dd.read_parquet(
        str(folder / "*.parquet")
    )


def splits(X, files, frame, y, sample, passes, client):
    """A stage on two processes: rows held, and read in the task."""
    d, found = X.shape[1], []
    for name, data, held in (("held", X, True), ("npy", files, False), ("parquet", frame, False)):
        run = Gradient(opened(data, client, held), y, sample)
        run.stage()
        run.stage()
        found.append({"rows": name, "n": X.shape[0], "d": d, "sample": sample, **run.split(passes, 2)})
    return found


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="small sizes only, half a minute")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "dask.json")
    options = parser.parse_args(arguments)
    n, d, parts, passes = (80_000, 250, 8, 15) if options.quick else (1_200_000, 500, 8, 20)
    X, Z = collection(rows_of, n, d, parts), collection(sparse_rows_of, n, 40 * d, parts)
    y = np.random.default_rng(1).standard_normal(n)
    load = os.getloadavg()[0]
    most = ceiling(n, d)
    print(f"two plain processes, without Dask, are {most:.2f} times as fast as one on dense rows in memory")
    with (
        tempfile.TemporaryDirectory() as folder,
        cluster(1) as one,
        cluster(2) as two,
        Client(one, set_as_default=False) as a,
        Client(two, set_as_default=False) as b,
    ):
        gradients = [
            {"kind": kind, "loss": loss, **speeds(data, target, loss, passes, (a, b))}
            for kind, data, loss, target in (
                ("dense", X, "squared", y),
                ("dense", X, "logistic", np.sign(y)),
                ("sparse", Z, "squared", y),
            )
        ]
        show(
            "Full gradient, ms",
            gradients,
            ["kind", "loss", "n", "d", "one_ms", "two_ms", "ratio", "two_GBs", "one_median_ms", "two_median_ms"],
        )
        small = collection(rows_of, n // 3, d, parts)
        files, frame = write_files(small, Path(folder))
        stages = splits(small, files, frame, y[: n // 3], min(n, 20_000), 7, b)
    show("A stage on two processes, ms", stages,
         ["rows", "n", "d", "sample", "stage_ms", "pass_ms", "read_ms", "compute_ms", "transfer_ms"])  # fmt: skip
    checks = [
        *(
            check(f"{row['kind']}, {row['loss']}: times the speed of one process", row["ratio"], WANTED)
            for row in gradients
        ),
        check("largest relative difference of gradients", max(row["apart"] for row in gradients), 1e-9, most=True),
    ]
    report = {
        "ceiling": most,
        "gradients": gradients,
        "stages": stages,
        "checks": checks,
        "load_before": load,
        "machine": machine(),
    }
    write_whole(options.out, json.dumps(report, indent=1) + "\n")
    print(f"\nload before the run: {load:.2f} on {os.cpu_count()} cores; written to {options.out}")
    return 0 if all(line["ok"] for line in checks) else 1


if __name__ == "__main__":
    sys.exit(main())
