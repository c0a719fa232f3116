"""Draw the results of bench_steps.py, and put its table into the README.

    python benchmarks/show_steps.py        (needs the `report` extra for the picture)

Reads docs/benchmarks/steps.json (``bench_steps.py --out docs/benchmarks/steps.json`` writes it).
"""

from __future__ import annotations

import json
from pathlib import Path

from ksparse._style import BLUE, ORANGE, new_axes, save

ROOT = Path(__file__).parent.parent
DATA = ROOT / "docs" / "benchmarks" / "steps.json"
PICTURE = DATA.with_suffix(".svg")
BEGIN, END = "<!-- begin: benchmarks/show_steps.py -->\n", "<!-- end -->"


def table(report):
    """The README's table, in Markdown."""
    lines = ["| settled support | plain step | ksparse | faster |", "|---|---|---|---|"]
    for row in report["settled"]:
        plain, ours = row["plain_ns"] / 1e3, row["ours_ns"] / 1e3
        lines.append(f"| d = {row['d']:,}, k = {row['k']} | {plain:,.1f} µs | {ours:.2f} µs | {row['ratio']:,.0f}× |")
    lines += [
        "",
        "| whole run from x = 0 | support changes | plain steps | ksparse | faster |",
        "|---|---|---|---|---|",
    ]
    for row in report["runs"]:
        size = f"n = {row['n']:,}, d = {row['d']:,}, k = {row['k']}"
        seconds = f"{row['plain_s']:.2f} s | {row['ours_s']:.2f} s"
        lines.append(f"| {size} | {row['support_changes']:,} | {seconds} | {row['ratio']:.1f}× |")
    return "\n".join(lines) + "\n"


def readme_with(text, fragment):
    """The README with the table between its two marks."""
    head, rest = text.split(BEGIN)
    _, tail = rest.split(END, 1)
    return head + BEGIN + fragment + END + tail


def draw(report):
    axes = new_axes(size=(6.4, 3.4))
    d = [row["d"] for row in report["settled"]]
    for key, label, color, marker in (
        ("plain_ns", "plain compiled step", ORANGE, "s"),
        ("ours_ns", "ksparse, exactly the same iterates", BLUE, "o"),
    ):
        axes.loglog(d, [row[key] / 1e3 for row in report["settled"]], color=color, marker=marker)
        last = report["settled"][-1]
        axes.annotate(
            label, (d[-1], last[key] / 1e3), xytext=(-6, 10), textcoords="offset points", ha="right", color=color
        )
    axes.set(xlabel="columns d", ylabel="time of one HT-SVRG step (µs)", ylim=(0.04, 5000))
    save(axes, PICTURE)


def main():
    report = json.loads(DATA.read_text())
    readme = ROOT / "README.md"
    readme.write_text(readme_with(readme.read_text(), table(report)))
    draw(report)
    print(f"wrote {PICTURE.relative_to(ROOT)} and the table in README.md")


if __name__ == "__main__":
    main()
