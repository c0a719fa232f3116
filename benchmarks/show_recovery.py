"""Put the results of bench_transitions.py and bench_recovery.py into docs/sensing.md.

    python benchmarks/show_recovery.py

Reads docs/benchmarks/transitions.json and recovery.json (what both write with ``--out``).
"""

from __future__ import annotations

import json
from pathlib import Path

ROOT = Path(__file__).parent.parent
TRANSITIONS, RECOVERY = (ROOT / "docs" / "benchmarks" / name for name in ("transitions.json", "recovery.json"))
PAGE = ROOT / "docs" / "sensing.md"
BEGIN, END = "<!-- begin: benchmarks/show_recovery.py -->\n", "<!-- end -->"
TOLD = ("iht", "pgd", "omp", "niht", "htp", "cosamp", "sp", "bp")
ENOUGH = 0.95


def smallest(cells, algorithm, kind, K, k):
    """The smallest n at which 95% of the trials succeeded, and from which on they did in all cells that were tried."""
    wins = {}
    for name, cell in cells.items():
        parts = name.split("|")
        if parts[:4] == [algorithm, kind, f"K={K}", f"k={k}"]:
            wins[int(parts[4][2:])] = cell["wins"] / cell["trials"]
    good = [n for n in wins if all(share >= ENOUGH for other, share in wins.items() if other >= n)]
    return min(good) if good else None


def transitions(report):
    """Smallest n for 95%, in Markdown."""
    cells = report["cells"]
    settings = [("gaussian", 8), ("gaussian", 16), ("gaussian", 26), ("sign", 8), ("sign", 16), ("sign", 26)]
    lines = [
        f"Smallest n on a grid of 4 at which 95% of {report['trials']} signals are found, Gaussian matrices with "
        f"d = {report['d']} columns:",
        "",
        "| amplitudes | K | " + " | ".join(TOLD) + " | auto told 2K | auto told 4K |",
        "|---" * (len(TOLD) + 4) + "|",
    ]
    for kind, K in settings:
        row = [smallest(cells, name, kind, K, K) for name in TOLD]
        row += [smallest(cells, "auto", kind, K, times * K) for times in (2, 4)]
        if not any(row):
            continue
        tried = [any(cell.startswith(f"{name}|{kind}|K={K}|") for cell in cells) for name in (*TOLD, "auto", "auto")]
        shown = [str(n) if n else (f"> {report['d']}" if some else "") for n, some in zip(row, tried, strict=True)]
        lines.append(f"| {'Gaussian' if kind == 'gaussian' else '±1'} | {K} | {' | '.join(shown)} |")
    lines += [
        "",
        "With noise of unknown size, median relative error over that of least squares on the true support:",
        "",
        "| | n | sp told K | auto told 4K |",
        "|---|---|---|---|",
    ]
    for name, cell in cells.items():
        if name.startswith("noise|"):
            _, K, n, decibels, _ = name.split("|")
            ratios = " | ".join(f"{cell[which] / cell['oracle']:.2f}" for which in ("sp", "auto"))
            lines.append(f"| {K.replace('=', ' = ')}, {decibels} | {n[2:]} | {ratios} |")
    return lines


def speeds(report):
    """Seconds and ratios, in Markdown."""
    unit = "CPU seconds on one thread" if report["threads"] == 1 else f"seconds on {report['threads']} threads"
    lines = [
        f"n = {report['n']:,}, d = {report['d']:,}, K = {report['K']}, {unit}, side by side in one run, imports and "
        "compiling excluded:",
        "",
        "| one signal | ksparse | plain NumPy (OMP: scikit-learn) | faster |",
        "|---|---|---|---|",
    ]
    for row in report["single"]:
        lines.append(f"| {row['algorithm']} | {row['ours_s']:.2f} | {row['plain_s']:.2f} | {row['ratio']:.1f}× |")
    lines += ["", "| many signals | together | one by one | faster |", "|---|---|---|---|"]
    for row in report["many"]:
        name = f"{row['algorithm']}, {row['signals']} signals"
        lines.append(f"| {name} | {row['together_s']:.1f} | {row['one_by_one_s']:.1f} | {row['ratio']:.1f}× |")
    return lines


def page_with(text, fragment):
    """The page with the tables between its two marks."""
    head, rest = text.split(BEGIN)
    _, tail = rest.split(END, 1)
    return head + BEGIN + fragment + END + tail


def fragment():
    parts = (transitions(json.loads(TRANSITIONS.read_text())), speeds(json.loads(RECOVERY.read_text())))
    return "\n\n".join("\n".join(lines) for lines in parts) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page_with(PAGE.read_text(), fragment()))
