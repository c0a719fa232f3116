"""``ksparse bound`` and ``ksparse plan``: what the theory says, of numbers alone and of data."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from .fit import Json
from .session import errors, json_text, show

ALGORITHMS = {"iht": "IHT", "cosamp": "CoSaMP"}


def bound(
    k: Annotated[int, typer.Option("-k", help="Non-zeros that hard thresholding keeps.")],
    K: Annotated[int, typer.Option("-K", help="Non-zeros of the truth, at most k.")],
    d: Annotated[int | None, typer.Option("-d", help="The dimension; if left out, it is large.")] = None,
    rate: Annotated[float, typer.Option(help="The wanted rate of IHT and CoSaMP, in (0, 1].")] = 0.5,
    as_json: Json = False,
) -> None:
    """Print the tight bound of hard thresholding, and what it means for recovery and for HT-SVRG."""
    with errors():
        facts = _bound_facts(k, K, d, rate)
    if as_json:
        show(json_text(facts))
        return
    from .._text import table

    factor = facts["deviation_factor"]
    rows = [
        ("", "tight", "classic", "Jain et al."),
        ("a distance grows at most by", *(_number(factor[name]) for name in ("tight", "classic", "jain"))),
    ]
    for name, label in ALGORITHMS.items():
        ends = facts["rip_threshold"][name]
        tight, classic = _number(ends["tight"]), _number(ends["classic"])
        rows.append((f"{label}: rate {rate:g} if delta_{ends['order']} is at most", tight, classic, ""))
        rows.append((f"{label}: share of measurements", _number(facts["measurement_ratio"][name]), "1", ""))
    limit = facts["largest_condition"]
    rows.append(("HT-SVRG: converges if L/alpha is below", _number(limit) if limit > 1 else "never", "never", ""))
    print(f"Hard thresholding, k = {k}, K = {K}, d {'large' if d is None else f'= {d}'}\n")
    print(table(rows) + "\n")
    print(f"rho = {facts['rho']:.6g}, nu = {facts['nu']:.6g}")
    if limit <= 1:
        print(
            f"HT-SVRG: nothing is proven at this k, however good the data; it takes k = {facts['minimum_k']} at least"
        )


def _bound_facts(k: int, K: int, d: int | None, rate: float) -> dict[str, Any]:
    from .. import theory

    return {
        "k": k,
        "K": K,
        "d": d,
        "rate": rate,
        "rho": float(theory.rho(k, K, d)),
        "nu": float(theory.nu(k, K, d)),
        "deviation_factor": {
            name: None if name == "jain" and d is None else float(theory.deviation_factor(k, K, d, name))
            for name in ("tight", "classic", "jain")
        },
        "rip_threshold": {
            name: {
                "order": min(int(theory.rip_order(name, k, K)), d or 2**62),
                "tight": float(theory.rip_threshold(name, k, K, d, "tight", rate)),
                "classic": float(theory.rip_threshold(name, k, K, d, "classic", rate)),
            }
            for name in ALGORITHMS
        },
        "measurement_ratio": {name: float(theory.measurement_ratio(name, k, K, d, rate)) for name in ALGORITHMS},
        "largest_condition": float(theory.largest_condition(k, K, d)),
        "minimum_k": int(theory.minimum_k(1.0, K, d)),
    }


def _number(value: float | None) -> str:
    return "" if value is None else "inf" if math.isinf(value) else f"{value:.4f}"


def plan(
    data: Annotated[
        Path, typer.Argument(help="A .parquet, .arrow, .csv, .svm (text also .gz, .bz2), .npy or .npz file.")
    ],
    K: Annotated[int, typer.Option("-K", help="A guess of how many features matter.")],
    target: Annotated[str | None, typer.Option(help="The column of a table to predict; the last by default.")] = None,
    loss: Annotated[str, typer.Option(help="The loss; two labels become -1 and +1.")] = "squared",
    l2: Annotated[float, typer.Option(help="The weight of the ridge.")] = 0.0,
    radius: Annotated[float, typer.Option(help="The largest norm of a solution.")] = math.inf,
    batch_size: Annotated[int, typer.Option(help="Rows per step.")] = 1,
    standardize: Annotated[bool, typer.Option(help="Scale columns to variance one, dense ones to mean zero.")] = True,
    trial: Annotated[bool, typer.Option(help="Run HT-SVRG and measure its rate.")] = True,
    max_time: Annotated[float, typer.Option(help="Seconds for the trial run.")] = 60.0,
    seed: Annotated[int, typer.Option(help="Seed of the trial run.")] = 0,
    as_json: Json = False,
) -> None:
    """Choose k, the step, and the numbers of steps and stages from DATA and a guess K, with a certificate.

    Targets of a regression are centred.
    """
    with errors():
        from .. import theory
        from .._text import progress
        from ..losses import resolve
        from ..sources import open_files

        resolve(loss)  # refuses an unknown one before the data are read
        with open_files(data, target=target) as rows:
            A, y = rows.load(), _targets(rows.y, loss)
        d = A.shape[1]
        if standardize:
            from ..design import as_design
            from ..design import standardize as standardize_columns

            A = standardize_columns(as_design(A), None, True).load()
        with progress(not as_json and sys.stderr.isatty()) as callback:
            chosen = theory.plan(
                A, y, K, loss=loss, l2=l2, radius=radius, batch_size=batch_size, trial=trial, max_time=max_time,
                callback=callback, random_state=seed,
            )  # fmt: skip
    if as_json:
        show(json_text(chosen.to_dict()))
    else:
        print(f"{data.name}: {y.size} rows, {d} columns{', standardized' * standardize}")
        print(str(chosen))


def _targets(y: Any, loss: str) -> Any:
    """Two labels as −1 and +1 for a classifier; centred, as there is no intercept, for a loss that takes any number."""
    import numpy as np

    from ..losses import LOSSES, named

    classes = np.unique(y)
    if loss in named(labels=True) and classes.size == 2:
        return np.where(y == classes[1], 1.0, -1.0)
    if y.dtype.kind == "U":
        raise ValueError(f"the target must be numbers for the {loss} loss, got text such as {str(y[0])!r}")
    return y if hasattr(LOSSES[loss], "check_target") else y - y.mean()
