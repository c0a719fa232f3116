"""``ksparse phase``: thin over ksparse.sensing.phase."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from . import AsJson, Scheduler, errors, long_run, print_json, show


def phase(
    algorithm: Annotated[
        list[str] | None, typer.Option(help="Such as htp or 'pgd(step=0.5)'; may be repeated.")
    ] = None,
    ensemble: Annotated[
        str, typer.Option(help="The matrices, such as gaussian or 'correlated(rho=0.9)'.")
    ] = "gaussian",
    signal: Annotated[str, typer.Option(help="The amplitudes: gaussian, sign, uniform or decaying.")] = "gaussian",
    d: Annotated[int, typer.Option("-d", help="Entries of a signal.")] = 256,
    n: Annotated[
        str | None, typer.Option("--n", "-n", help="Measurements: 8:256:8 (with the end), or 16,32,64.")
    ] = None,
    K: Annotated[str | None, typer.Option("--K", "-K", help="Non-zeros, like n: 1:26:2.")] = None,
    delta: Annotated[str | None, typer.Option(help="n/d instead of n: 0.1:0.9:0.1.")] = None,
    rho: Annotated[str | None, typer.Option(help="K/n instead of K.")] = None,
    trials: Annotated[int, typer.Option(help="Trials a cell.")] = 100,
    k: Annotated[str, typer.Option("--k", "-k", help="What algorithms are told: K, 2K or a number.")] = "K",
    noise_db: Annotated[float | None, typer.Option(help="Signal-to-noise ratio in dB; no noise by default.")] = None,
    matrix: Annotated[str, typer.Option(help="A new matrix a 'trial', or one a 'cell'.")] = "trial",
    success: Annotated[float, typer.Option(help="A relative error below this is a success.")] = 1e-3,
    seed: Annotated[int, typer.Option(help="The same seed gives the same files.")] = 0,
    jobs: Annotated[int | None, typer.Option(help="Processes; all cores by default.")] = None,
    scheduler: Scheduler = None,
    out: Annotated[Path, typer.Option(help="The folder of the results; a stopped run goes on there.")] = Path("phase"),
    resume: Annotated[bool, typer.Option(help="Go on with results in the folder, or set them aside.")] = True,
    as_json: AsJson = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No estimate and no progress.")] = False,
) -> None:
    """How many measurements algorithms need: success rates over a grid of n and K, their 50% curves and pictures.

    Killed or stopped, the same command goes on where it was, and ends with the same files.
    """
    with errors(), long_run(out, resume):
        from ..sensing import phase as lab

        grid = lab.make_grid(d, values(n, "--n"), values(K, "--K"), values(delta, "--delta"), values(rho, "--rho"))
        names = list(dict.fromkeys(algorithm or ["htp"]))
        experiments = [lab.Experiment(name, ensemble, signal, d, k, noise_db, matrix, success, seed) for name in names]
        found = lab.run_all(
            experiments, grid, trials=trials, out=out, resume=resume, verbose=not quiet, jobs=jobs, scheduler=scheduler
        )
        files = [out / lab.RESULTS, *lab.write_report(found, out)]
        if as_json:
            print_json(
                {"files": [str(f) for f in files], "algorithms": [{**p.to_dict(), "table": p.rows()} for p in found]}
            )
            return
        for p in found:
            show(f"{p}\n")
        show("written: " + ", ".join(map(str, files)))


def values(text: str | None, name: str) -> Any:
    """The numbers of 'start:end:step', end included, or of 'a,b,c'."""
    if text is None:
        return None
    import numpy as np

    try:
        if ":" not in text:
            return np.array([_number(part) for part in text.split(",")])
        start, end, step = (_number(part) for part in (*text.split(":"), "1")[:3])
        if text.count(":") > 2 or step <= 0 or start > end:
            raise ValueError
        return start + step * np.arange(int((end - start) / step + 1e-9) + 1)
    except (ValueError, OverflowError, MemoryError):
        raise ValueError(f"{name} must be start:end:step or a list such as 8,16,32, got {text!r}") from None


def _number(text: str) -> float:
    try:
        return int(text)
    except ValueError:
        return float(text)
