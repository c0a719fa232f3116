"""Fuzz the library: random calls, and what must hold of each by NumPy alone.

    python tests/fuzz --calls 2000 --seed 0     2000 calls, in two processes
    python tests/fuzz --only 1000123            one call again, with all its arguments

Every call has a seed of its own, which a finding prints.  The exit code is 1 if there are findings.
"""

from __future__ import annotations

import argparse
import collections
import faulthandler
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import traceback

PATIENCE = 300.0  # seconds after which a call counts as hung
STRIDE = 1_000_000  # call i of seed s has the seed s·STRIDE + i


def targets():
    """The families and how often each is called; imported here, so that only workers load the library."""
    import estimate
    import formulas
    import read
    import sense
    import solve

    return {
        solve.fuzz_minimize: 30, solve.fuzz_joint: 12, estimate.fuzz_regressor: 14, estimate.fuzz_classifier: 14,
        estimate.fuzz_selection: 3, sense.fuzz_recover: 15, formulas.fuzz_formula: 8, formulas.fuzz_data: 2,
        read.fuzz_files: 7, read.fuzz_command: 2, read.fuzz_model: 2,
    }  # fmt: skip


def one_call(seed, families, only="", show=False):
    """Draw a family and its arguments from `seed`, call it, check it; None if `only` names other families."""
    import numpy as np
    from calls import Refused, Watch

    rng, watch = np.random.default_rng(seed), Watch(show)
    shares = np.array(list(families.values()), dtype=float)
    family = list(families)[int(rng.choice(len(shares), p=shares / shares.sum()))]
    if only not in family.__name__:
        return None
    watch.function = family.__name__
    began = time.perf_counter()
    try:
        family(rng, watch)
    except Refused:
        pass
    except Exception as error:  # a result that cannot even be checked, or a mistake of the fuzzer
        watch.findings.append((f"{type(error).__name__} in the check", traceback.format_exc()[-1500:]))
    return {
        "seed": seed, "family": family.__name__, "function": watch.function, "shown": watch.shown,
        "refused": watch.refused, "findings": watch.findings, "seconds": time.perf_counter() - began,
    }  # fmt: skip


def work(seeds, only):
    """Run these calls and write a line of JSON for each; a call that hangs ends the process with its traceback."""
    lines = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    families = targets()
    for seed in seeds:
        faulthandler.dump_traceback_later(PATIENCE, exit=True)
        print(json.dumps(one_call(seed, families, only)), file=lines, flush=True)
    faulthandler.cancel_dump_traceback_later()


def watch_worker(seeds, only, take):
    """Run a worker; if it dies, that is a finding too, and another goes on after the call that killed it."""
    while seeds:
        ask = [sys.executable, __file__, "--family", only, "--worker", f"{seeds.start}:{seeds.stop}:{seeds.step}"]
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}  # small problems: threads only wait for each other
        with (
            tempfile.TemporaryFile("w+") as said,
            subprocess.Popen(ask, stdout=subprocess.PIPE, stderr=said, text=True, env=environment) as worker,
        ):
            for line in worker.stdout or ():
                take(json.loads(line))
                seeds = seeds[1:]
            worker.wait()
            said.seek(0)
            if seeds:
                kind = f"hung or died (exit code {worker.returncode})"
                take({"seed": seeds[0], "family": "?", "function": "?", "shown": "", "refused": "",
                      "seconds": PATIENCE, "findings": [(kind, said.read()[-1500:])]})  # fmt: skip
                seeds = seeds[1:]


def summary(done, seconds):
    """Findings by kind and function, with an example of each; the number of kinds."""
    groups = collections.defaultdict(list)
    for call in done:
        for kind, text in call["findings"]:
            groups[kind, call["function"]].append((call, text))
    for (kind, function), found in sorted(groups.items(), key=lambda item: -len(item[1])):
        call, text = min(found, key=lambda pair: len(pair[0]["shown"]))
        seeds = ", ".join(str(call["seed"]) for call, _ in found[:6])
        print(f"\n{len(found)} x {kind} in {function} (seeds {seeds})\n  {text.strip()}\n  {call['shown'].strip()}")
        print(f"  again: python tests/fuzz --only {call['seed']}")
    count, refused = collections.Counter(), collections.Counter()
    for call in done:
        count[call["family"]] += 1
        refused[call["family"]] += bool(call["refused"])
    print("\n" + ", ".join(f"{name} {number} ({refused[name]} refused)" for name, number in count.items()))
    slowest = max(done, key=lambda call: call["seconds"], default=None)
    if slowest:
        print(f"slowest: {slowest['seconds']:.1f} s, seed {slowest['seed']}")
    print(f"{len(done)} calls in {seconds:.0f} s, {len(groups)} kinds of findings")
    return len(groups)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--family", default="", help="families whose names contain this; others are skipped")
    parser.add_argument("--only", type=int, help="the call of this seed again, with all its arguments")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.worker:
        return work(range(*map(int, chosen.worker.split(":"))), chosen.family)
    if chosen.only is not None:
        call = one_call(chosen.only, targets(), show=True)
        print(call["shown"] + (f"refused: {call['refused']}\n" if call["refused"] else ""))
        print("\n".join(f"{kind}: {text}" for kind, text in call["findings"]) or "no finding")
        return int(bool(call["findings"]))
    done, began, first = [], time.perf_counter(), chosen.seed * STRIDE

    def take(call):
        if call is not None:
            done.append(call)
            for kind, _ in call["findings"]:
                print(f"seed {call['seed']}: {kind} in {call['function']}", flush=True)

    workers = [
        threading.Thread(
            target=watch_worker, args=(range(first + w, first + chosen.calls, chosen.processes), chosen.family, take)
        )
        for w in range(chosen.processes)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return int(summary(done, time.perf_counter() - began) > 0)


if __name__ == "__main__":
    sys.exit(main())
