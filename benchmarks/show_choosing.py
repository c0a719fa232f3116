"""docs/benchmarks/choosing.md from choosing.json, which bench_choosing.py makes."""

from __future__ import annotations

import json
from pathlib import Path

from _store import write_whole

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "benchmarks"
NAMES = {"path": "path", "cv": "cross-validation", "fit": "one fit, k = 5"}


def lines(report):
    """The page, line by line."""
    facts = report["machine"]
    yield "# Choosing k beside abess"
    yield ""
    yield (
        "CPU milliseconds of whole calls on one thread, the median of alternating runs after one that is not counted; "
        "constant columns, which abess refuses, are left out for both. The objective is that of the supports found at "
        "every k, refitted alike, over abess's: below 1 ksparse is better."
    )
    versions = f"abess {facts['abess']}, NumPy {facts['numpy']}, Python {facts['python']}"
    yield f"Made by `benchmarks/bench_choosing.py` with {versions}."
    yield ""
    yield "| work | what | fast | default | abess | default / abess | objective, mean (worst k) |"
    yield "|---|---|---|---|---|---|---|"
    for name, row in report["works"].items():
        for what, title in NAMES.items():
            seconds = row.get(f"{what}_s")
            if seconds is None:
                continue
            fast, default, peer = (
                f"{1e3 * seconds[key]:.3g}" if key in seconds else "" for key in ("fast", "default", "abess")
            )
            F = row["objective_default"]
            shown = f"{F['mean']:.4f} ({F['worst']:.4f})" if what == "path" else ""
            ratio = f"{seconds['default'] / seconds['abess']:.2f}"
            size = f"{name} ({row['n']:,} × {row['d']:,}, k ≤ {row['ks']})"
            yield f"| {size} | {title} | {fast} | {default} | {peer} | {ratio} | {shown} |"


def main(folder=FOLDER):
    report = json.loads((folder / "choosing.json").read_text())
    write_whole(folder / "choosing.md", "\n".join(lines(report)) + "\n")


if __name__ == "__main__":
    main()
