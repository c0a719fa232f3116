"""Put the results of bench_stream.py into the README.

    python benchmarks/show_stream.py

Reads docs/benchmarks/stream.json (``bench_stream.py --folder DIR --out docs/benchmarks/stream.json`` writes it).
"""

from __future__ import annotations

import json
from pathlib import Path

ROOT = Path(__file__).parent.parent
DATA = ROOT / "docs" / "benchmarks" / "stream.json"
BEGIN, END = "<!-- begin: benchmarks/show_stream.py -->\n", "<!-- end -->"
FILES = {"npy": ".npy", "parquet": "Parquet"}
FITS = {"ht-svrg": "HT-SVRG, 10 stages", "estimator": "`KSparseRegressor`"}


def table(report):
    """The README's table, in Markdown."""
    lines = ["| data | fit | passes | speed | of reading and summing | memory |", "|---|---|---|---|---|---|"]
    for part, name in FILES.items():
        for work, fit in FITS.items():
            run = report[part][work]
            size = f"{report['gigabytes']:g} GB dense, {name}"
            speed = f"{run['speed'] / 1e9:.1f} GB/s | {run['ratio']:.2f}"
            lines.append(f"| {size} | {fit} | {run['passes']:.0f} | {speed} | {run['resident'] / 1e9:.2f} GB |")
    run = report["libsvm"]
    n, d = run["shape"]
    lines.append(
        f"| {n:,} × {d:,} sparse, LIBSVM of {run['bytes'] / 1e9:.1f} GB | `KSparseClassifier`, {run['seconds']:.0f} s "
        f"after {run['opened']:.0f} s of parsing | {run['passes']:.0f} | | | {run['resident'] / 1e9:.2f} GB |"
    )
    return "\n".join(lines) + "\n"


def readme_with(text, fragment):
    """The README with the table between its two marks."""
    head, rest = text.split(BEGIN)
    _, tail = rest.split(END, 1)
    return head + BEGIN + fragment + END + tail


if __name__ == "__main__":
    readme = ROOT / "README.md"
    readme.write_text(readme_with(readme.read_text(), table(json.loads(DATA.read_text()))))
    print(f"written: {readme}")
