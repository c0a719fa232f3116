"""Data that does not fit: 6 GB through 1.5 GB of memory, and ten million sparse columns from a text file.

    python benchmarks/bench_stream.py --folder DIR [--gigabytes 6] [--parts npy,parquet,libsvm] [--out FILE]

npy, parquet   A dense problem of 750 columns.  In one run, taking turns: the file merely read and summed (plain reads
               with NumPy's sum; pyarrow's reader of Parquet files with its sums), and fits that stream it, each in a
               process whose largest resident memory (VmHWM) must stay below --limit.  The speed of a fit is the bytes
               of all its passes over its seconds, all else that a fit does included; it must be at least 0.6 of
               reading and summing.
libsvm         10⁶ rows with 30 numbers each in 10⁷ columns, written as LIBSVM text: parsed once, then streamed, below
               the same limit, though vectors of 10⁷ numbers take 80 MB each.

The data are made in DIR once (some 13 GB) and found there the next time.  They are read once before, so that the system
may hold them in its own memory: then it is not the disk that is measured.  Kernels are compiled before by a small fit.
Exits with 1 if the limit of memory or the speed is missed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from _store import machine

COLUMNS, K = 750, 10
LIMIT = int(1.5 * 2**30)
ENOUGH = 0.6
SPARSE = {"n": 1_000_000, "d": 10_000_000, "each": 30, "k": 20}
PIECE = 20_000  # rows made at a time


def main():
    options = arguments()
    if options.work is not None:
        WORK[options.work](options)
        return
    found, folder = {"machine": machine(), "limit": options.limit, "gigabytes": options.gigabytes}, options.folder
    folder.mkdir(parents=True, exist_ok=True)
    misses = []
    for part in options.parts.split(","):
        MAKE[part](folder, options.gigabytes)
        if part == "libsvm":
            found[part] = child("libsvm", options)
            show(part, found[part], None)
            misses += [part] * (found[part]["resident"] > options.limit)
            continue
        rounds = {"sum": [], "ht-svrg": [], "estimator": []}
        child(f"{part}-sum", options)  # so that the system holds the file in its memory, if it fits
        for _ in range(options.rounds):  # in turns: the machine is not the same all the time
            for work in rounds:
                rounds[work].append(child(f"{part}-{work}", options))
        found[part] = {work: best(runs) for work, runs in rounds.items()}
        for work in ("ht-svrg", "estimator"):
            run = found[part][work]
            run["ratio"] = run["speed"] / found[part]["sum"]["speed"]
            misses += [f"{part} {work}"] * (run["ratio"] < ENOUGH or run["resident"] > options.limit)
        for work in rounds:
            show(f"{part} {work}", found[part][work], found[part][work].get("ratio"))
    if options.out is not None:
        options.out.write_text(json.dumps(found, indent=1) + "\n")
    print("missed: " + ", ".join(misses) if misses else "all limits kept")
    sys.exit(bool(misses))


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--gigabytes", type=float, default=6.0)
    parser.add_argument("--parts", default="npy,parquet,libsvm")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--limit", type=int, default=LIMIT)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--work", help=argparse.SUPPRESS)  # what a child does
    return parser.parse_args()


def child(work, options):
    """A process of its own: what it reports, its largest resident memory among it."""
    command = [sys.executable, __file__, "--folder", str(options.folder), "--limit", str(options.limit)]
    done = subprocess.run([*command, "--work", work], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{work} failed:\n{done.stderr}")
    return json.loads(done.stdout)


def best(runs):
    return {**max(runs, key=lambda run: run["speed"]), "resident": max(run["resident"] for run in runs)}


def show(name, run, ratio):
    speed = f"{run['speed'] / 1e9:5.2f} GB/s" if "speed" in run else ""
    share = "" if ratio is None else f", {ratio:.2f} of reading and summing"
    passes = f" in {run['passes']:.1f} passes" if "passes" in run else ""
    print(
        f"{name:20} {run['seconds']:7.1f} s{passes} {speed}{share}; {run['resident'] / 2**20:,.0f} MB resident",
        flush=True,
    )


# --- data ------------------------------------------------------------------------------------------------------------
def pieces(n):
    rng = np.random.default_rng(0)
    for low in range(0, n, PIECE):
        rows = rng.standard_normal((min(PIECE, n - low), COLUMNS))
        truth = rows[:, 3] - 2.0 * rows[:, 77] + 0.5 * rows[:, 300] + rows[:, 500]
        yield low, rows, truth + rng.standard_normal(len(rows))


def rows_of(gigabytes):
    return int(gigabytes * 1e9 / (8 * COLUMNS))


def make_npy(folder, gigabytes):
    n = rows_of(gigabytes)
    if (folder / "y.npy").exists() and np.load(folder / "y.npy", mmap_mode="r").shape == (n,):
        return
    print(f"writing {gigabytes:g} GB to {folder.name}/A.npy", flush=True)
    y = np.empty(n)
    with open(folder / "A.npy", "wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": (n, COLUMNS)})
        for low, rows, targets in pieces(n):
            rows.tofile(file)
            y[low : low + len(targets)] = targets
    np.save(folder / "y.npy", y)


def make_parquet(folder, gigabytes):
    import pyarrow as pa
    import pyarrow.parquet as pq

    path, n = folder / "A.parquet", rows_of(gigabytes)
    if path.exists() and pq.read_metadata(path).num_rows == n:
        return
    print(f"writing {gigabytes:g} GB to {folder.name}/A.parquet", flush=True)
    names = [*(f"x{j}" for j in range(COLUMNS)), "target"]
    schema = pa.schema([(name, pa.float64()) for name in names])
    # random digits cannot be packed: plain, as a writer chooses who has tried
    with pq.ParquetWriter(path, schema, compression="none", use_dictionary=False) as writer:
        for _, rows, y in pieces(n):
            writer.write_table(pa.table([*np.ascontiguousarray(rows.T), y], schema=schema))


def make_libsvm(folder, gigabytes):
    from scipy import sparse
    from sklearn.datasets import dump_svmlight_file

    path = folder / "wide.svm"
    if path.exists():
        return
    print(f"writing {folder.name}/wide.svm", flush=True)
    rng = np.random.default_rng(0)
    n, d, each = SPARSE["n"], SPARSE["d"], SPARSE["each"]
    with open(path.with_suffix(".part"), "wb") as file:
        for low in range(0, n, PIECE):
            count = min(PIECE, n - low)
            indices = rng.integers(0, d, (count, each), dtype=np.int32)
            # some columns that are often there, among them the ten that matter
            indices[:, :8] = rng.integers(0, 200, (count, 8), dtype=np.int32)
            values = np.round(np.abs(rng.standard_normal((count, each))) + 0.1, 3)
            A = sparse.csr_array(
                (values.ravel(), indices.ravel(), np.arange(0, count * each + 1, each, dtype=np.int32)),
                shape=(count, d),
            )
            A.sum_duplicates()
            score = A[:, :10] @ np.where(np.arange(10) % 2, 2.0, -2.0)
            labels = np.where(score + 0.5 * rng.standard_normal(count) > 0, 1, -1)
            dump_svmlight_file(A, labels, file, zero_based=False)
        file.flush()
    path.with_suffix(".part").rename(path)


# --- what children do ------------------------------------------------------------------------------------------------
def report(seconds, **facts):
    with open("/proc/self/status") as lines:
        resident = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))
    print(json.dumps({"seconds": seconds, "resident": resident, **facts}))


def sum_npy(options):
    path = options.folder / "A.npy"
    shape = np.load(path, mmap_mode="r").shape
    block = np.empty((2000, COLUMNS))
    view = memoryview(block.reshape(-1).view(np.uint8).data)
    start, total = time.perf_counter(), 0.0
    with open(path, "rb", buffering=0) as file:
        file.seek(path.stat().st_size - 8 * shape[0] * shape[1])
        while got := file.readinto(view):
            total += float(block.ravel()[: got // 8].sum())
    seconds = time.perf_counter() - start
    report(seconds, speed=8 * shape[0] * shape[1] / seconds, sum=total)


def sum_parquet(options):
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    # the fastest way that we found within the memory: the scanner of pyarrow.dataset is slower and takes all of it
    data = pq.ParquetFile(options.folder / "A.parquet", pre_buffer=False, buffer_size=1 << 15)
    start, total = time.perf_counter(), 0.0
    for batch in data.iter_batches(batch_size=PIECE):
        total += sum(pc.sum(column).as_py() or 0.0 for column in batch.columns)
    seconds = time.perf_counter() - start
    report(seconds, speed=8 * data.metadata.num_rows * (COLUMNS + 1) / seconds, sum=total)


class Counted:
    """Counts what passes over a source read."""

    def __init__(self, source, by_column):
        self.passes, self._map, self._by_column = 0.0, source.map, by_column
        self._width = source.shape[1]
        source.map = self

    def __call__(self, function, *arrays, columns=None):
        yield from self._map(function, *arrays, columns=columns)
        self.passes += len(columns) / self._width if columns is not None and self._by_column else 1.0


def fit(options, kind, solver):
    from ksparse import HTSVRG, KSparseRegressor, minimize
    from ksparse.sources import Blocks, open_files

    def learn(source, y):
        if solver == "ht-svrg":
            return minimize(source, y, K, solver=HTSVRG(stages=10, tol=0), intercept=True, random_state=0).support
        return KSparseRegressor(k=K).fit(source, y).support_

    rng = np.random.default_rng(0)
    small = rng.standard_normal((500, COLUMNS))
    learn(Blocks([small, small]), np.tile(small[:, 0], 2))  # compiles, and imports
    start = time.perf_counter()
    if kind == "npy":
        source, y = Blocks(options.folder / "A.npy"), np.load(options.folder / "y.npy")
    else:
        source = open_files(options.folder / "A.parquet", target="target")
        y = source.y
    opened = time.perf_counter() - start
    counted = Counted(source, kind == "parquet")
    start = time.perf_counter()
    support = learn(source, y)
    seconds = time.perf_counter() - start
    if not {3, 77, 300, 500} <= set(support.tolist()):
        sys.exit(f"the wrong columns were found: {support}")
    bytes_read = counted.passes * 8 * source.shape[0] * source.shape[1]
    report(seconds, speed=bytes_read / seconds, passes=counted.passes, opened=opened, stage=source.times._asdict())


def fit_libsvm(options):
    from ksparse import KSparseClassifier
    from ksparse.sources import open_files

    start = time.perf_counter()
    source = open_files(options.folder / "wide.svm")
    opened = time.perf_counter() - start
    counted = Counted(source, False)
    start = time.perf_counter()
    model = KSparseClassifier(k=SPARSE["k"], random_state=0).fit(source, source.y)
    seconds = time.perf_counter() - start
    found = sorted(set(range(10)) & set(model.support_.tolist()))
    if len(found) < 10:
        sys.exit(f"of the ten columns that matter only {found} were found")
    report(
        seconds, opened=opened, passes=counted.passes, status=str(model.status_), shape=source.shape,
        score=float(model.score(source, source.y)), entries=source.entries,
        bytes=(options.folder / "wide.svm").stat().st_size,
    )  # fmt: skip


MAKE = {"npy": make_npy, "parquet": make_parquet, "libsvm": make_libsvm}
WORK = {
    "npy-sum": sum_npy,
    "parquet-sum": sum_parquet,
    "npy-ht-svrg": lambda options: fit(options, "npy", "ht-svrg"),
    "npy-estimator": lambda options: fit(options, "npy", "estimator"),
    "parquet-ht-svrg": lambda options: fit(options, "parquet", "ht-svrg"),
    "parquet-estimator": lambda options: fit(options, "parquet", "estimator"),
    "libsvm": fit_libsvm,
}  # fmt: skip

if __name__ == "__main__":
    main()
