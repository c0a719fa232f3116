"""Is a row of a benchmark slower than it was at an earlier commit?

    python benchmarks/compare.py --before REV [--runs 5] [--benches steps,peers,recovery,start] [--data FOLDER] [--full]

REV is checked out into a temporary git worktree.  bench_steps.py, bench_recovery.py and bench_peers.py (needs --data)
run in turn with its package and with ours, without peers; a script that uses names which its package does not have is
taken from REV.  `start`: `import ksparse`, and processes that fit or recover with kernels compiled before.  One thread;
CPU time counts; rows that take seconds, or all with --full.  Printed are medians.  Exits with 1 if a row is slower by
more than a tenth, or an objective higher by more than a thousandth.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from _store import LIBRARIES, ONE_XLA, machine, write_whole
from _works import WORKS

from ksparse._text import table

HERE = Path(__file__).parent
SLOWER, HIGHER = 1.1, 1.001  # times what it was: limits for times and for objectives
# bench_steps.py reads the clock on the wall
ON_CPU_TIME = """import os, runpy, sys, time; time.perf_counter = time.process_time; del sys.argv[0]
sys.path.insert(0, os.path.dirname(sys.argv[0])); runpy.run_path(sys.argv[0], run_name="__main__")"""
DATA = "import numpy as np, ksparse; X = np.random.default_rng(0).standard_normal((200, 30)); "
START = {
    "import": "import ksparse",
    "classifier": DATA + "ksparse.KSparseClassifier(k=5).fit(X, X[:, 0] + X[:, 1] > 0)",
    "recover": DATA + "ksparse.recover(X.T.copy(), X[0], 2)",
}


class Side:
    """The package of one checkout, run in processes of its own; their files go to `scratch`."""

    def __init__(self, root, scratch):
        self.root, self.scratch = root, scratch
        scratch.mkdir()
        threads = {**dict.fromkeys(LIBRARIES, "1"), "XLA_FLAGS": ONE_XLA}  # so that no script starts itself again
        self.env = {**os.environ, **threads, "PYTHONPATH": str(root / "src"), "NUMBA_CACHE_DIR": str(scratch / "cache")}

    def python(self, code, *arguments):
        command = [sys.executable, "-c", code, *map(str, arguments)]
        return subprocess.run(command, env=self.env, cwd=self.scratch, capture_output=True, text=True)

    def report(self, name, *options):
        (out := self.scratch / "report.json").unlink(missing_ok=True)
        for folder in (HERE, self.root / "benchmarks"):
            done = self.python(ON_CPU_TIME, folder / name, *options, "--out", out)
            if out.exists():
                return json.loads(out.read_text())
        raise SystemExit(f"{name} failed with the package in {self.root}:\n{done.stderr}")


# --- the benchmarks: {(row, unit): number} ---------------------------------------------------------------------------
def steps(side, options):
    report, rows = side.report("bench_steps.py", *([] if options.full else ["--quick"])), {}
    for part in ("settled", "csr", "runs", "saga", "gradients"):
        for row in report[part]:
            name = f"{part} {row.get('kind', '')} {row['n']} x {row['d']}, k = {row.get('k', '-')}"
            rows |= {(name, unit): row[f"ours_{unit}"] for unit in ("ns", "ms", "s") if f"ours_{unit}" in row}
    return rows


def peers(side, options):
    works = ",".join(name for name in WORKS if options.full or name != "covtype")
    cells = side.report("bench_peers.py", "--data", options.data, "--peers", "", "--works", works)["cells"]
    rows = {(key.removesuffix("|ksparse"), "s"): cell["cpu_s"] for key, cell in cells.items()}
    return rows | {(key.removesuffix("|ksparse"), "objective"): cell["objective"] for key, cell in cells.items()}


def recovery(side, options):
    report = side.report("bench_recovery.py", *([] if options.full else ["--small"]))
    rows = {(row["algorithm"], "s"): row["ours_s"] for row in report["single"]}
    for row in report["many"]:
        rows |= {(f"{row['algorithm']} {how}", "s"): row[f"{how}_s"] for how in ("together", "one_by_one")}
    return rows


def start(side, options):
    rows = {}
    for name, code in START.items():
        used = [resource.getrusage(resource.RUSAGE_CHILDREN)]
        if (done := side.python(code)).returncode:
            raise SystemExit(f"{code!r} failed with the package in {side.root}:\n{done.stderr}")
        used.append(resource.getrusage(resource.RUSAGE_CHILDREN))
        rows[name, "s"] = sum(used[1][:2]) - sum(used[0][:2])  # user and system time
    return rows


BENCHES = {"steps": steps, "peers": peers, "recovery": recovery, "start": start}


def compare(name, sides, options):
    """The rows of one benchmark that both sides have; sides are (before, now)."""
    runs = [], []
    for number in range(options.runs + 1):  # the first compiles, and does not count
        for which in (0, 1) if number % 2 else (1, 0):
            runs[which].append(BENCHES[name](sides[which], options))
        print(f"{name}: {number} of {options.runs} runs", file=sys.stderr, flush=True)
    for row, unit in (key for key in runs[1][0] if key in runs[0][0]):
        before, now = (statistics.median(run[row, unit] for run in side[1:]) for side in runs)
        worse = now > before * (HIGHER if unit == "objective" else SLOWER)
        yield {"row": f"{name}: {row}", "unit": unit, "before": before, "now": now, "worse": worse}


def git(*arguments):
    return subprocess.run(["git", "-C", HERE, *arguments], check=True, capture_output=True, text=True).stdout.strip()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", required=True, metavar="REV", help="the commit to compare with")
    parser.add_argument("--runs", type=int, default=5, help="of each side; medians count")
    parser.add_argument("--benches", default=",".join(BENCHES), help="some of them, with commas between")
    parser.add_argument("--data", type=os.path.abspath, help="the folder with the data sets, for peers")
    parser.add_argument("--full", action="store_true", help="all rows, not only those that take seconds")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "compare.json", help="JSON")
    options = parser.parse_args()
    names = options.benches.split(",")
    if not BENCHES.keys() >= set(names) or ("peers" in names and not options.data):
        parser.error(f"--benches must be some of {','.join(BENCHES)}, and peers needs --data; got {options.benches}")
    with tempfile.TemporaryDirectory() as folder:
        old = Path(folder, "checkout")
        git("worktree", "add", "--detach", old, options.before)
        try:
            sides = Side(old, Path(folder, "before")), Side(HERE.parent, Path(folder, "now"))
            rows = [row for name in names for row in compare(name, sides, options)]
        finally:
            git("worktree", "remove", "--force", old)
    report = {"before": git("rev-parse", options.before), "runs": options.runs, "rows": rows, "machine": machine()}
    write_whole(options.out, json.dumps(report, indent=1) + "\n")
    lines = [["row", "unit", "before", "now", "now/before", ""]]
    for row, unit, before, now, worse in (row.values() for row in rows):
        lines.append([row, unit, f"{before:.4g}", f"{now:.4g}", f"{now / before:.3f}", "WORSE" if worse else ""])
    print(f"medians of {options.runs} runs\n{table(lines, left=2)}\nwritten to {options.out}")
    return int(any(row["worse"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
