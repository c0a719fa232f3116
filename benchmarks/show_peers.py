"""Write docs/benchmarks/peers.md and peers.svg from the JSON of bench_peers.py, bench_heldout.py and bench_planted.py.

    python benchmarks/show_peers.py [--folder docs/benchmarks]        (needs the `report` extra for the picture)

The folder holds peers.json, heldout.json and planted.json (written by the scripts' --out).  Every number on the page
comes from them; a part whose file is missing is left out.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import bench_heldout
import bench_peers
import bench_planted
from _store import FITS, QUICK, write_whole
from _works import METHODS

from ksparse._style import GREEN, ORANGE, PURPLE, SETTINGS, SKY, YELLOW, save

TITLES = {
    "ksparse": "ksparse",
    "abess": "abess",
    "omp": "OMP",
    "l1": "L1, then refit",
    "skscope": "skscope",
    "skscope-raw": "skscope, raw columns",
}
MARKS = {
    "abess": (ORANGE, "s"),
    "omp": (GREEN, "^"),
    "l1": (PURPLE, "D"),
    "skscope": (SKY, "v"),
    "skscope-raw": (YELLOW, "P"),
}
PARTS = ("peers", "heldout", "planted")


def markdown(rows):
    """A table; the first row is its head."""
    head, *body = (f"| {' | '.join(row)} |" for row in rows)
    return "\n".join([head, "|" + "---|" * len(rows[0]), *body]) + "\n"


def said_of(machine):
    """One line on what the numbers were measured with."""
    where = f"{machine['processor']}, {machine['cores']} cores, one thread used"
    packages = (f"{name} {version}" for name, version in machine.items() if name not in ("processor", "cores"))
    return f"{where}; {', '.join(packages)}."


def names_in(found):
    return [name for name in METHODS if name in found]


def training_part(report):
    rows = [row for row in bench_peers.rows_of(report["cells"]) if "ksparse" in row[2]]
    names = names_in({name for _, _, by in rows for name in by})
    lines = [["work", "n × d", "k", *map(TITLES.get, names), "our objective over the best peer's"]]
    times = [["work", "k", *map(TITLES.get, names)]]
    for work, k, by in rows:
        size = report["works"][work]
        faster, worth = bench_peers.ratios(by)
        values = [f"{by[name]['objective']:.5g}" if name in by else "–" for name in names]
        last = "–" if worth is None else f"{worth:.4f}"
        lines.append([work, f"{size['n']:,} × {size['d']:,}", str(k), *values, last])
        seconds = [f"{by[name]['cpu_s']:.3g} s ({faster[name]:.3g}×)" if name in faster else "–" for name in names[1:]]
        times.append([work, str(k), f"{by['ksparse']['cpu_s']:.3g} s", *seconds])
    ridges = [f"{size['l2']:g} on {work}" for work, size in report["works"].items() if size["l2"]]
    ridge = f"No ridge, except l2 = {', '.join(ridges)}, the same for all." if ridges else "No ridge."
    return f"""## Training objective at exactly k

Mean loss (squared: half the square) on all rows, smaller is better. {ridge}

{markdown(lines)}
CPU seconds of one fit, or the median of {FITS} where it takes less than {QUICK} s, and how many times ours. A cell is
measured again when its package changes, so that the seconds of two packages may come from different runs.

{markdown(times)}
![CPU time and objective of each peer over ours](peers.svg)

{said_of(report["machine"])}
"""


def heldout_part(report):
    rows = bench_heldout.compare(report["cells"])
    names = names_in({name for row in rows for name in row["methods"]})
    lines = [["work", "k", *map(TITLES.get, names), "ours − best peer's ± paired error", "verdict"]]
    for row in rows:
        values = [bench_heldout.describe(row["methods"][n]) if n in row["methods"] else "–" for n in names]
        last = ["–", "–"]
        if row["best"]:
            last = [f"{row['difference']:+.2g} ± {row['paired_error']:.2g}", bench_heldout.verdict(row)]
        lines.append([row["work"], str(row["k"]), *values, *last])
    return f"""## Held-out loss with default settings

Mean ± standard error of {bench_heldout.FOLDS} folds, and in brackets accuracy or R². ksparse is told k and nothing
else. "Within one error": our mean is at most the best peer's plus the standard error of the best peer's.

{markdown(lines)}
{said_of(report["machine"])}
"""


def planted_part(report):
    rows = bench_planted.rows_of(report["cells"])
    names = names_in({name for _, _, by in rows for name in by})
    lines = [["rows", "SNR", *(f"{TITLES[n]}: exact, found, ms" for n in names)]]
    for rho, snr, by in rows:
        cells = ("{:.0%}, {:.1%}, {:.1f}".format(*by[n]) if n in by else "–" for n in names)
        lines.append([f"AR({rho})", snr, *cells])
    verdicts = []
    for peer in names[1:]:
        for which, what in enumerate(("exact recoveries", "features found")):
            yes, better, same, worse = bench_planted.at_least(rows, peer, which)
            count = f"{better} better, {same} the same, {worse} worse"
            verdicts.append(f"- at least {TITLES[peer]} in every cell ({what}): {'yes' if yes else 'no'} ({count})")
    return f"""## Planted features

Least squares with n = {report["n"]}, d = {report["d"]}, K = k = {report["K"]}: the share of {report["seeds"]} seeds
with exactly the true support, the mean share of true features found, and the mean CPU time of a fit.

{markdown(lines)}
{chr(10).join(verdicts)}

{said_of(report["machine"])}
"""


def page(reports):
    """The text of peers.md."""
    makers = {"peers": training_part, "heldout": heldout_part, "planted": planted_part}
    scripts = ", ".join(f"`benchmarks/bench_{name}.py`" for name in reports)
    head = f"# Beside other packages\n\nWritten by `benchmarks/show_peers.py` from the numbers of {scripts}.\n"
    return "\n".join([head, *(makers[name](report) for name, report in reports.items())])


def draw(report, path):
    """A row a work: on the left the CPU time of every peer over ours, on the right its objective over ours."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    rows = [row for row in bench_peers.rows_of(report["cells"]) if "ksparse" in row[2]][::-1]
    dodge = {name: 0.12 * (i - (len(MARKS) - 1) / 2) for i, name in enumerate(MARKS)}  # equal numbers stay visible
    with mpl.rc_context(SETTINGS):
        figure = Figure(figsize=(8.4, 0.46 * len(rows) + 1.6), layout="constrained")
        left, right = figure.subplots(1, 2, sharey=True)
        for axes, value, title in ((left, "cpu_s", "CPU time over ours"), (right, "objective", "objective over ours")):
            axes.axvline(1.0, color="black", linewidth=1)
            for name, (color, marker) in MARKS.items():
                at = [
                    (by[name][value] / by["ksparse"][value], i - dodge[name])
                    for i, (_, _, by) in enumerate(rows)
                    if name in by
                ]
                if at:
                    axes.plot(*zip(*at, strict=True), marker, color=color, markersize=6, label=TITLES[name])
            axes.set(xscale="log", xlabel=f"{title}\n(right of the line ksparse is better)")
            axes.margins(x=0.08)
            axes.xaxis.set_major_formatter("{x:g}×")
            axes.xaxis.set_minor_locator(mpl.ticker.NullLocator())
        right.xaxis.set_major_locator(mpl.ticker.LogLocator(subs=(1, 2, 5)))
        left.set_yticks(range(len(rows)), [f"{work}, k = {k}" for work, k, _ in rows])
        handles, labels = left.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), frameon=False)
    save(left, path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = Path(__file__).parent.parent / "docs" / "benchmarks"
    parser.add_argument("--folder", type=Path, default=default, help="with the JSON; the page goes there too")
    folder = parser.parse_args().folder
    reports = {n: json.loads((folder / f"{n}.json").read_text()) for n in PARTS if (folder / f"{n}.json").exists()}
    if not reports:
        raise SystemExit(f"none of {', '.join(f'{name}.json' for name in PARTS)} in {folder}")
    write_whole(folder / "peers.md", page(reports))
    if "peers" in reports:
        draw(reports["peers"], folder / "peers.svg")
    print(f"wrote peers.md{' and peers.svg' if 'peers' in reports else ''} in {folder}")


if __name__ == "__main__":
    main()
