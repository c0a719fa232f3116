"""How often do two fits of the same problem end at different objectives?

    python tests/metamorphic.py [--problems 60] [--out docs/benchmarks/metamorphic.json]

Random problems of every kind of estimator are fitted as they are, and again after changes that leave the problem what
it was: rows or columns in another order, columns in other units (they are standardised), targets in another unit, rows
that are repeated instead of weighted, other layouts.  Both fits are local searches.  They should end at the same
objective, up to rounding; where they do not, one of them missed what the other one found.

A problem counts as different if the objectives differ by more than 1e-6 of the lower one.  The size of a difference is
how far the higher objective lies above the lower one, as a share of it; the table shows the median over the problems
that differ, and the largest of all.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.special import gammaln
from sklearn.exceptions import ConvergenceWarning

import ksparse
from ksparse import KSparseClassifier, KSparseRegressor
from ksparse._text import table
from ksparse.sources import Blocks

SAME = 1e-6  # of the lower objective: a difference up to here is rounding


class Trial(NamedTuple):
    """A problem: what is fitted, to what, and by what factor its objective is larger than that of the original."""

    model: Any
    X: Any
    y: Any
    weight: Any = None
    factor: float = 1.0

    def objective(self) -> float:
        """Where a fit ends, in the original's units."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            found = float(self.model.fit(self.X, self.y, sample_weight=self.weight).objective_) / self.factor
        # the Poisson loss leaves out a term without coefficients; with it the objective is never negative
        return found + (np.average(gammaln(self.y + 1.0), weights=self.weight) if self.model.loss == "poisson" else 0.0)


def regressor(loss: str = "squared", **settings: Any) -> Callable[..., Any]:
    return lambda k: KSparseRegressor(k=k, loss=loss, **settings)


def classifier(loss: str = "logistic", **settings: Any) -> Callable[..., Any]:
    return lambda k: KSparseClassifier(k=k, loss=loss, **settings)


KINDS = {
    "squared": regressor(),
    "huber": regressor("huber"),
    "poisson": regressor("poisson"),
    "logistic": classifier(),
    "squared_hinge": classifier("squared_hinge"),
    "softmax": classifier(),
    "targets": regressor(),
    "groups": regressor(),
    "logistic groups": classifier(),
}


def trial(kind: str, seed: int) -> Trial:
    """A random problem: columns with something in common, dense or sparse, of which a few make the targets.

    Every fifth has categories instead, coded as columns of zeros and ones, whose combinations tie exactly.
    """
    rng = np.random.default_rng([seed, *kind.encode()])
    n, d, k = int(rng.integers(30, 250)), int(rng.integers(10, 120)), int(rng.integers(1, 13))
    share, common, noise = rng.choice([1.0, 0.5, 0.1]), rng.choice([0.0, 0.5, 2.0]), rng.choice([0.1, 0.5, 1.0])
    X = rng.standard_normal((n, d)) + common * rng.standard_normal((n, 1))
    X *= rng.random((n, d)) < share
    if seed % 5 == 4:
        X = (rng.integers(0, 4, (n, d))[:, np.arange(d) // 4] == np.arange(d) % 4).astype(float)
    truth = np.zeros((d, 3))
    truth[rng.choice(d, min(d, 2 * k), replace=False)] = rng.standard_normal((min(d, 2 * k), 3))
    scores = X @ truth
    scores = scores / max(float(scores.std()), 1e-9) + noise * rng.standard_normal((n, 3))
    model = KINDS[kind](k)
    if kind.endswith("groups"):
        model.set_params(groups=np.sort(rng.integers(0, max(2, d // 3), d)), k=min(k, 3))
    return Trial(model, X, targets(kind, scores, rng))


def targets(kind: str, scores: Any, rng: np.random.Generator) -> Any:
    z = scores[:, 0]
    if kind == "targets":
        return scores
    if kind == "poisson":
        return rng.poisson(np.exp(np.clip(z, -4.0, 3.0))).astype(float)
    if kind == "softmax":
        return np.argmax(scores, axis=1)
    if kind in ("logistic", "squared_hinge", "logistic groups"):
        return (z > np.median(z)).astype(int)
    return z


# --- changes that leave a problem what it was ------------------------------------------------------------------------
def rows_permuted(one: Trial, rng: np.random.Generator) -> tuple[Trial, Trial]:
    order = rng.permutation(len(one.X))
    return one, one._replace(X=one.X[order], y=one.y[order])


def columns_permuted(one: Trial, rng: np.random.Generator) -> tuple[Trial, Trial]:
    order, model = rng.permutation(one.X.shape[1]), one.model
    if model.groups is not None:
        model = type(model)(**{**model.get_params(), "groups": model.groups[order]})
    return one, one._replace(X=np.ascontiguousarray(one.X[:, order]), model=model)


def columns_rescaled(one: Trial, rng: np.random.Generator) -> tuple[Trial, Trial]:
    return one, one._replace(X=one.X * 10.0 ** rng.uniform(-3, 3, one.X.shape[1]))


def target_rescaled(one: Trial, rng: np.random.Generator) -> tuple[Trial, Trial] | None:
    if one.model.loss not in ("squared", "huber"):
        return None
    unit = 10.0 ** rng.uniform(-3, 3)
    # Huber's loss is taken in units of the targets' own spread
    return one, one._replace(y=one.y * unit, factor=unit**2 if one.model.loss == "squared" else 1.0)


def rows_repeated(one: Trial, rng: np.random.Generator) -> tuple[Trial, Trial]:
    count = rng.integers(1, 4, len(one.X))
    again = np.repeat(np.arange(len(one.X)), count)
    return one._replace(weight=count.astype(float)), one._replace(X=one.X[again], y=one.y[again])


def layout(change: Callable[[Any], Any]) -> Callable[..., tuple[Trial, Trial]]:
    return lambda one, rng: (one, one._replace(X=change(one.X)))


CHANGES: dict[str, Callable[..., tuple[Trial, Trial] | None]] = {
    "rows in another order": rows_permuted,
    "columns in another order": columns_permuted,
    "columns in other units": columns_rescaled,
    "targets in another unit": target_rescaled,
    "rows repeated, not weighted": rows_repeated,
    "CSR": layout(sparse.csr_array),
    "blocks": layout(lambda X: Blocks([X[: len(X) // 3], X[len(X) // 3 :]])),
    "blocks of CSR": layout(lambda X: Blocks([sparse.csr_array(X[: len(X) // 3]), sparse.csr_array(X[len(X) // 3 :])])),
    "Fortran order": layout(np.asfortranarray),
}


# --- the measurement -------------------------------------------------------------------------------------------------
def pairs(problems: int) -> Iterator[tuple[str, str, int, float, float]]:
    """Kind, change, seed and the objectives before and after it, for so many problems of every kind."""
    for kind in KINDS:
        for seed in range(problems):
            plain = trial(kind, seed)
            start = plain.objective()
            for number, (name, change) in enumerate(CHANGES.items()):
                made = change(plain, np.random.default_rng([seed, number]))
                if made is not None:
                    before, after = made
                    yield kind, name, seed, start if before is plain else before.objective(), after.objective()


def measure(problems: int) -> dict[str, Any]:
    """How many problems differ, and by how much, for every change; `problems` of every kind."""
    sizes: dict[str, dict[str, list[float]]] = {name: {} for name in CHANGES}
    worst: dict[str, Any] = {}
    for kind, name, seed, before, after in pairs(problems):
        size = abs(after - before) / min(before, after)
        sizes[name].setdefault(kind, []).append(size)
        if size > max(SAME, worst.get(name, {"size": 0.0})["size"]):
            worst[name] = {"size": size, "kind": kind, "seed": seed, "before": before, "after": after}
    return {
        "ksparse": ksparse.__version__,
        "problems": problems * len(KINDS),
        "counts as different above": SAME,
        "changes": {name: {**summed_up(by_kind), "worst": worst.get(name)} for name, by_kind in sizes.items()},
    }


def summed_up(by_kind: dict[str, list[float]]) -> dict[str, Any]:
    every = np.concatenate([np.array(sizes) for sizes in by_kind.values()])
    different = every[every > SAME]
    return {
        "problems": every.size,
        "different": different.size,
        "median size": float(np.median(different)) if different.size else 0.0,
        "largest size": float(every.max()),  # of all, so that where none differs it shows the rounding
        "different by kind": {kind: int(np.sum(np.array(sizes) > SAME)) for kind, sizes in by_kind.items()},
    }


def shown(found: dict[str, Any]) -> str:
    rows = [
        (name, f"{row['different']} of {row['problems']}", f"{row['different'] / row['problems']:.1%}",
         f"{row['median size']:.1e}", f"{row['largest size']:.1e}")
        for name, row in found["changes"].items()
    ]  # fmt: skip
    return table([("change", "different", "share", "median size", "largest"), *rows])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=60, help="of every kind of estimator (there are nine)")
    parser.add_argument("--out", type=Path, help="a JSON file")
    options = parser.parse_args()
    found = measure(options.problems)
    print(shown(found))
    if options.out is not None:
        options.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
