"""docs/benchmarks/ridge.md from ridge.json, which choose_ridge.py makes, and heldout.json of bench_heldout.py."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from _store import write_whole
from bench_heldout import compare, error, folds_in
from choose_ridge import MULTIPLES, RARE_RIDGES, RIDGES, ZEROS, rule
from show_peers import markdown, said_of

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "benchmarks"
TRAINING = 0.8  # share of the rows that a fold is fitted on
RULES = {  # other rules of the same simplicity; r = k·log(d + 1)/n
    "logistic": {
        "0.1·min(r, 1), the rule": lambda r, n, k: 0.1 * min(r, 1.0),
        "0.03·min(r, 1)": lambda r, n, k: 0.03 * min(r, 1.0),
        "0.3·min(r, 1)": lambda r, n, k: 0.3 * min(r, 1.0),
        "0.03·√r": lambda r, n, k: 0.03 * r**0.5,
        "0.25·k/n": lambda r, n, k: 0.25 * k / n,
    },
    "squared": {
        "0.1·min(r, 1)², the rule": lambda r, n, k: 0.1 * min(r, 1.0) ** 2,
        "0.3·min(r, 1)²": lambda r, n, k: 0.3 * min(r, 1.0) ** 2,
        "0.1·r²": lambda r, n, k: 0.1 * r**2,
        "0.25·min(r, 1)": lambda r, n, k: 0.25 * min(r, 1.0),
        "1.6·k/n": lambda r, n, k: 1.6 * k / n,
    },
}


def rows_of(report, loss):
    """{(work, k): (n of a fold, d, losses of the folds at every multiple)}."""
    keys = dict.fromkeys(tuple(key.split("|")[:2]) for key in report["cells"])
    rows = {}
    for name, k in ((name, int(k[2:])) for name, k in keys if report["works"][name]["loss"] == loss):
        size, folds = report["works"][name], [folds_in(report["cells"], name, k, ridge) for ridge in RIDGES]
        if all(fold is not None for fold in folds):
            rows[name, k] = TRAINING * size["n"], size["d"], np.array([fold[0] for fold in folds])
    return rows


def multiples_table(rows, limits):
    """Mean losses over the smallest of the row; a star where the best peer is better by more than one error."""
    lines = [["work", "k", "r", "smallest loss", *(f"{name} ×" for name in RIDGES)]]
    for (name, k), (n, d, folds) in rows.items():
        mean, limit = folds.mean(axis=1), limits.get((name, k), np.inf)
        cells = [f"{m / mean.min():.3f}{'*' if m > limit else ''}" for m in mean]
        lines.append([name, str(k), f"{k * np.log(d + 1) / n:.2g}", f"{mean.min():.4g}", *cells])
    return markdown(lines)


def rules_table(rows, loss):
    """What other rules would reach, interpolated linearly in log l2 between the multiples."""
    works = list(dict.fromkeys(name for name, _ in rows))
    lines = [["rule", "worst ratio", "mean ratio", *works]]
    for title, other in RULES[loss].items():
        ratios = {}
        for (name, k), (n, d, folds) in rows.items():
            mean, grid = folds.mean(axis=1), np.log(rule(n, d, k, loss) * np.array(MULTIPLES))
            at = np.log(other(k * np.log(d + 1) / n, n, k))
            ratios.setdefault(name, []).append(np.interp(at, grid, mean) / mean.min())
        means = {name: float(np.exp(np.mean(np.log(values)))) for name, values in ratios.items()}
        worst = max(max(values) for values in ratios.values())
        whole = float(np.exp(np.mean(np.log(list(means.values())))))
        lines.append([title, f"{worst:.3f}", f"{whole:.3f}", *(f"{means[name]:.3f}" for name in works)])
    return markdown(lines)


def rare_table(report, rows):
    lines = [["work", "k", "1 ×", *(f"{name} ×" for name in RARE_RIDGES)]]
    for (name, k), (_, _, folds) in rows.items():
        if name in ZEROS:
            smallest, own = folds.mean(axis=1).min(), folds[MULTIPLES.index(1.0)].mean()
            other = [folds_in(report["cells"], name, k, ridge)[0].mean() for ridge in RARE_RIDGES]
            lines.append([name, str(k), *(f"{value / smallest:.3f}" for value in (own, *other))])
    return markdown(lines)


def beside_l1(report, heldout, k=50):
    """Reuters, minus the losses of L1-then-refit on the same folds."""
    theirs = folds_in(heldout["cells"], "reuters", k, "l1")[0]
    lines = [["ridge", "held-out loss", "minus that of L1 ± paired error", "within one paired error"]]
    for ridge in (*RIDGES, *RARE_RIDGES):
        ours = folds_in(report["cells"], "reuters", k, ridge)[0]
        gap, paired = float((ours - theirs).mean()), error(ours - theirs)
        said = "yes" if gap <= paired else "no"
        lines.append([f"{ridge} ×", f"{ours.mean():.4f}", f"{gap:+.4f} ± {paired:.4f}", said])
    return markdown(lines)


def page(report, heldout):
    limits = {(row["work"], row["k"]): row["methods"][row["best"]][0].mean() + row["peer_error"]
              for row in compare(heldout["cells"]) if row["best"]}  # fmt: skip
    classes, regression = rows_of(report, "logistic"), rows_of(report, "squared")
    return f"""# The default ridge

Written by `benchmarks/show_ridge.py` from the numbers of `benchmarks/choose_ridge.py` and, for the other packages, of
`benchmarks/bench_heldout.py`. Held-out loss by five folds, at multiples of the rule behind `l2="auto"`: with columns of
variance one and r = k·log(d + 1)/n it is 0.1·min(r, 1) for classes and 0.1·min(r, 1)² for regression. The rule was
formed on mnist, reuters, golub, a9a, covtype-50000, riboflavin, ar-500 and diabetes. A number is the loss over the
smallest of its row; a star says that the best of the other packages is better by more than its standard error.

## Classes

{multiples_table(classes, limits)}
## Regression

{multiples_table(regression, limits)}
## Other rules

The largest ratio of any row, the geometric mean over the works, and that over the values of k of every work, all
interpolated between the multiples. The other rules were picked from 18 forms for classes and 11 for regression, with
constants chosen on these works, which flatters them.

{rules_table(classes, "logistic")}
{rules_table(regression, "squared")}
## Columns that are mostly zero

With columns of variance one, those of few entries are shrunk no more than the others. Here the ridge of every column is
divided by √p, where p is the share of the rows in which the column is not zero; columns without zeros keep theirs. The
idea came from Reuters, and √p was chosen on these works from p and √p, so that the numbers flatter it. It is not in the
package: every column would have a ridge of its own, which depends on which value is coded as zero.

{rare_table(report, classes)}
Reuters, k = 50, beside L1, then refit, which takes the columns as they are:

{beside_l1(report, heldout)}
{said_of(report["machine"])}
"""


def main():
    report, heldout = (json.loads((FOLDER / f"{name}.json").read_text()) for name in ("ridge", "heldout"))
    write_whole(FOLDER / "ridge.md", page(report, heldout))


if __name__ == "__main__":
    main()
