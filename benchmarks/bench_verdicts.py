"""Do early verdicts of the paper's trials change anything?  Every trial is run to its last stage as well.

    python benchmarks/bench_verdicts.py [--trials 640] [--jobs 2] [--out FOLDER] [--summary FILE]

For HT-SVRG with both snapshot rules, PGD and IHT: half of the trials are near the transition, where verdicts are hard
(n from 9K to 9K + 70; IHT: 10K to 20K), half anywhere on the grid of figure 1; two thirds have Gaussian amplitudes,
the others signs.  A full trial of HT-SVRG takes some seconds.  Killed, the same command goes on.  Exits with 1 if the
rules change more than 0.5% of the verdicts.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from ksparse import __version__
from ksparse._text import table
from ksparse.paper.recovery import PASSES, STAGES, D, solve
from ksparse.sensing.phase import Ledger, Pool, collect, read_records, stream

ALGORITHMS = ("iht", "pgd", "ht-svrg", "ht-svrg-random")
KEY = ("algorithm", "number")
ALLOWED = 0.005
SEED = 1  # of its own: figures have 0


def run(algorithm, number):
    rng = stream(SEED, "verdicts", number)
    K = int(rng.integers(1, 27))
    near = (10 * K, 20 * K) if algorithm == "iht" else (9 * K, 9 * K + 70)
    low, high = near if number % 2 else (1, D)
    n = int(rng.integers(low, min(high, D) + 1)) if low < D else D
    signal = "sign" if number % 3 == 2 else "gaussian"
    early, full = (solve(algorithm, signal, K, n, number, SEED, early=early) for early in (True, False))
    settings = {"version": __version__, "signal": signal, "K": K, "n": n}
    return {
        "algorithm": algorithm, "number": number, **settings,
        "early": early.success, "stages": early.stages, "rule": early.rule, "full": full.success,
    }  # fmt: skip


def summarise(records):
    rows = {}
    for record in records:
        row = rows.setdefault(
            record["algorithm"], {"trials": 0, "successes": 0, "changed": 0, "stages": 0, "rules": {}}
        )
        row["trials"] += 1
        row["successes"] += record["full"]
        row["changed"] += record["early"] != record["full"]
        row["stages"] += record["stages"]
        tally = row["rules"].setdefault(record["rule"], [0, 0])
        tally[0] += 1
        tally[1] += record["early"] != record["full"]
    for algorithm, row in rows.items():
        most = STAGES * (1 if algorithm.startswith("ht-") else PASSES)
        row["stages"] = round(row["stages"] / row["trials"] / most, 4)
        row["rules"] = dict(sorted(row["rules"].items()))
    return {name: rows[name] for name in ALGORITHMS if name in rows}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=640, help="of each algorithm")
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument(
        "--summary", type=Path, default=Path("src/ksparse/paper/verdicts.json"), help="where the page reads it"
    )
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    path = arguments.out / "verdicts.jsonl"
    with Ledger(path, KEY) as ledger, Pool(arguments.jobs) as pool:
        wanted = [(name, number) for name in ALGORITHMS for number in range(arguments.trials)]
        collect(run, [item for item in wanted if item not in ledger], ledger, pool, label="trials")
        ledger.sort()
    found = summarise(read_records(path))
    arguments.summary.write_text(json.dumps(found, indent=1) + "\n")
    rows = [("", "trials", "successes", "verdicts changed", "stages used")]
    rows += [
        (name, str(row["trials"]), str(row["successes"]), str(row["changed"]), f"{row['stages']:.1%}")
        for name, row in found.items()
    ]
    print(table(rows))
    sys.exit(any(row["changed"] > ALLOWED * row["trials"] for row in found.values()))


if __name__ == "__main__":
    main()
