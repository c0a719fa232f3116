"""Which ridge should be the default?  Held-out loss of ksparse at ten values of l2, by a rule, and by l2="auto".

    python benchmarks/choose_ridge.py --data FOLDER [--peers HELDOUT.json] [--out FILE]

The folds are those of bench_heldout.py; the classifier runs on mnist, reuters, golub, a9a and 50,000 rows of covtype,
the regressor on riboflavin, a planted AR(0.7) model (n = 500, d = 2000, K = 20, SNR 5) and scikit-learn's diabetes.  l2
is a ridge on columns of variance one.  The rule is l2 = c·k·log(d)/n: more features, more columns to choose them from
and fewer rows each ask for more of it.  It was thought of on seeing the ten values on these works, so that its numbers
flatter it.  "auto" is what came of it: c = 0.1 for classes, 0.1·(k·log(d + 1)/n)² for regression, 0.1 at most.

Printed: every mean held-out loss over the smallest of its work; the worst and the mean of these ratios for every ridge;
and, if --peers is a file of bench_heldout.py that has these works (its --works takes ar-500, diabetes and covtype-50000
too), a star where it is above the best peer's mean plus one standard error.  Resumable, as the others.
"""

from __future__ import annotations

import argparse
import json
import warnings
from functools import partial
from pathlib import Path

import numpy as np
from _store import Store, one_thread
from _works import SMALL_WORKS, WORKS, chosen_works, version_of, warm_up
from bench_heldout import compare, fit_with, folds_in, measure

from ksparse._text import table

CONSTANT = (0.0, 1e-6, 1e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1)
RULES = (0.02, 0.05, 0.1)
KINDS = {
    "KSparseClassifier": ("mnist", "reuters", "golub", "a9a", "covtype-50000"),
    "KSparseRegressor": ("riboflavin", "ar-500", "diabetes"),
}


def fit_by_rule(c, X, y, loss, k):
    return fit_with("ksparse", c * k * np.log(X.shape[1]) / X.shape[0], X, y, loss, k)


RIDGES = {  # name: fit of (X, y, loss, k)
    **{f"l2={l2:g}": partial(fit_with, "ksparse", l2) for l2 in CONSTANT},
    **{f"c={c:g}": partial(fit_by_rule, c) for c in RULES},
    "auto": partial(fit_with, "ksparse", "auto"),
}


def peer_limits(path):
    """{(work, k): the best peer's mean plus one standard error} of a file of bench_heldout.py."""
    rows = compare(json.loads(path.read_text())["cells"]) if path else []
    return {
        (row["work"], row["k"]): row["methods"][row["best"]][0].mean() + row["peer_error"]
        for row in rows
        if row["best"]
    }


def losses(cells, works):
    """{(work, k): mean held-out losses, one a ridge} where all are there."""
    found = {}
    for name, work in works.items():
        for k in work.ks:
            folds = [folds_in(cells, name, k, ridge) for ridge in RIDGES]
            if all(fold is not None for fold in folds):
                found[name, k] = np.array([fold[0].mean() for fold in folds])
    return found


def ridge_table(found, limits):
    """Losses relative to the best ridge, with a star where a peer is better by more than its standard error."""
    lines = [["work", "k", *RIDGES, "smallest loss", "peer's limit"]]
    ratios = []
    for (name, k), mean in found.items():
        ratio, limit = mean / mean.min(), limits.get((name, k))
        ratios.append(ratio)
        cells = [f"{r:.3f}{'*' if limit is not None and m > limit else ' '}" for r, m in zip(ratio, mean, strict=True)]
        lines.append([name, str(k), *cells, f"{mean.min():.4g}", "-" if limit is None else f"{limit:.4g}"])
    for title, summary in (("worst", np.max), ("mean", np.mean)):
        lines.append([title, "", *(f"{r:.3f} " for r in summary(ratios, axis=0)), "", ""])
    return table(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder with the data sets")
    parser.add_argument("--peers", type=Path, default=None, help="JSON of bench_heldout.py")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "ridge.json", help="JSON")
    parser.add_argument("--again", action="store_true", help="make cells that are there again")
    options = parser.parse_args()
    one_thread()
    warnings.simplefilter("ignore")
    warm_up(["ksparse"])
    store, limits = Store(options.out, options.again), peer_limits(options.peers)
    version = version_of("ksparse")
    variants = {ridge: (version, fit) for ridge, fit in RIDGES.items()}
    for kind, names in KINDS.items():
        works = chosen_works(names, {**WORKS, **SMALL_WORKS})
        for name, work in works.items():
            measure(store, name, work, variants, options.data)
        found = losses(store.cells, works)
        if found:
            print(f"\n{kind}: held-out loss over that of the best ridge; * above the best peer's mean plus one error")
            print(ridge_table(found, limits), "\n", flush=True)
    print(f"written to {options.out}")


if __name__ == "__main__":
    main()
