"""The command line: thin over the functions of the package."""

from __future__ import annotations

import math
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from ._commands import AsJson, errors, print_json, standard_output
from ._commands._options import Loss
from ._commands.fit import fit
from ._commands.info import info
from ._commands.paper import paper
from ._commands.path import path
from ._commands.phase import phase
from ._commands.predict import predict


class Commands(TyperGroup):
    """All commands: what is left of their output is written here, where a failure is no traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            with standard_output():
                found = super().invoke(ctx)
                sys.stdout.flush()
                return found
        except BrokenPipeError:
            raise
        except OSError as error:
            print(f"error: {error.filename}: {error.strerror}", file=sys.stderr)
            raise typer.Exit(1) from None


app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    cls=Commands,
    help="Models with at most k features from files of any size; bounds, plans and certificates; how many measurements "
    "recovery takes.",
)


ALGORITHMS = {"iht": "IHT", "cosamp": "CoSaMP"}


@app.callback(invoke_without_command=True)
def main(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    # a file that is opened later must not become one of the standard streams
    sys.stdin = sys.stdin or open(os.devnull, encoding="utf-8")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if sys.stdout is None:
        print("error: the standard output is closed; send it to a file or to /dev/null", file=sys.stderr)
        raise typer.Exit(2)
    if version:
        from . import __version__

        print(__version__)
        raise typer.Exit


@app.command()
def bound(
    k: Annotated[int, typer.Option("-k", help="Non-zeros that hard thresholding keeps.")],
    K: Annotated[int, typer.Option("-K", help="Non-zeros of the truth, at most k.")],
    d: Annotated[int | None, typer.Option("-d", help="The dimension; large if left out.")] = None,
    rate: Annotated[float, typer.Option(help="The wanted rate of IHT and CoSaMP, in (0, 1].")] = 0.5,
    as_json: AsJson = False,
) -> None:
    """The tight bound of hard thresholding, and what it means for recovery and for HT-SVRG."""
    with errors():
        facts = _bound_facts(k, K, d, rate)
    if as_json:
        print_json(facts)
        return
    from ._text import table

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
    from . import theory

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


@app.command()
def plan(
    data: Annotated[
        Path, typer.Argument(help="A .parquet, .arrow, .csv, .svm (text also .gz, .bz2), .npy or .npz file.")
    ],
    K: Annotated[int, typer.Option("-K", help="A guess of how many features matter.")],
    target: Annotated[str | None, typer.Option(help="The column of a table to predict; the last by default.")] = None,
    loss: Annotated[Loss, typer.Option(help="The loss; two labels become -1 and +1.")] = Loss.squared,
    l2: Annotated[float, typer.Option(help="The ridge.")] = 0.0,
    radius: Annotated[float, typer.Option(help="The largest norm of a solution.")] = math.inf,
    batch_size: Annotated[int, typer.Option(help="Rows a step.")] = 1,
    standardize: Annotated[bool, typer.Option(help="Columns of variance one, and mean zero if dense.")] = True,
    trial: Annotated[bool, typer.Option(help="Run HT-SVRG and measure its rate.")] = True,
    max_time: Annotated[float, typer.Option(help="Seconds for a trial run.")] = 60.0,
    seed: Annotated[int, typer.Option(help="For the trial run.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Which k, which step, how many steps and stages: from DATA and a guess K, with a certificate.

    Targets of a regression are centred.
    """
    with errors():
        from . import theory
        from ._progress import progress
        from .sources import open_files

        with open_files(data, target=target) as rows:
            A, y = rows.load(), _labels(rows.y, loss)
        d = A.shape[1]
        if standardize:
            from .design import as_design
            from .design import standardize as standardize_columns

            A = standardize_columns(as_design(A), None, True).load()
        with progress(not as_json and sys.stderr.isatty()) as callback:
            chosen = theory.plan(
                A, y, K, loss=loss.value, l2=l2, radius=radius, batch_size=batch_size, trial=trial, max_time=max_time,
                callback=callback, random_state=seed,
            )  # fmt: skip
    if as_json:
        print_json(chosen.to_dict())
    else:
        print(f"{data.name}: {y.size} rows, {d} columns{', standardized' * standardize}")
        print(str(chosen))


def _labels(y: Any, loss: Loss) -> Any:
    """Two labels as −1 and +1, the larger one positive; targets of a regression centred, for there is no intercept."""
    import numpy as np

    classes = np.unique(y)
    if loss in (Loss.logistic, Loss.squared_hinge) and classes.size == 2:
        return np.where(y == classes[1], 1.0, -1.0)
    if y.dtype.kind == "U":
        raise ValueError(f"the target must be numbers for the {loss.value} loss, got text such as {str(y[0])!r}")
    return y - y.mean() if loss in (Loss.squared, Loss.huber) else y


def _number(value: float | None) -> str:
    return "" if value is None else "inf" if math.isinf(value) else f"{value:.4f}"


for command in (fit, predict, path, info, phase, paper):
    app.command()(command)


if __name__ == "__main__":
    app()
