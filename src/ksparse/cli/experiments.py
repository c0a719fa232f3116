"""``ksparse phase`` and ``ksparse paper``: many trials, kept in a folder, so that a stopped run can go on."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from .._files import disk_is_full
from .fit import Json
from .session import errors, fail, json_text, show, warnings_as_notes

Scheduler = Annotated[
    str | None,
    typer.Option(help="A Dask cluster instead of processes: tcp://host:8786. Not with --jobs; needs the dask extra."),
]
Resume = Annotated[bool, typer.Option(help="Go on with the results in the folder, or set them aside.")]
Jobs = Annotated[int | None, typer.Option(help="Number of processes; all cores by default.")]
Seed = Annotated[int, typer.Option(help="The same seed gives the same results.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no estimate and no progress.")]
TRIALS = ("results.jsonl", "results/*.jsonl")  # where `phase` and `paper` keep their trials


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
        str | None, typer.Option("--n", "-n", help="Measurements: 8:256:8 (including the end), or 16,32,64.")
    ] = None,
    K: Annotated[str | None, typer.Option("--K", "-K", help="Non-zeros, written like n: 1:26:2.")] = None,
    delta: Annotated[str | None, typer.Option(help="n/d instead of n: 0.1:0.9:0.1.")] = None,
    rho: Annotated[str | None, typer.Option(help="K/n instead of K.")] = None,
    trials: Annotated[int, typer.Option(help="Trials per cell of the grid.")] = 100,
    k: Annotated[str, typer.Option("--k", "-k", help="The k given to the algorithms: K, 2K or a number.")] = "K",
    noise_db: Annotated[float | None, typer.Option(help="Signal-to-noise ratio in dB; no noise by default.")] = None,
    matrix: Annotated[str, typer.Option(help="A new matrix for each 'trial', or one for each 'cell'.")] = "trial",
    success: Annotated[float, typer.Option(help="A relative error below this is a success.")] = 1e-3,
    seed: Seed = 0,
    jobs: Jobs = None,
    scheduler: Scheduler = None,
    out: Annotated[Path, typer.Option(help="Folder of the results; a stopped run goes on there.")] = Path("phase"),
    resume: Resume = True,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Measure how many measurements algorithms need: success rates over a grid of n and K, 50% curves and pictures.

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
            algorithms = [{**p.to_dict(), "table": p.rows()} for p in found]
            show(json_text({"files": [str(file) for file in files], "algorithms": algorithms}))
            return
        for p in found:
            show(f"{p}\n")
        show("written: " + ", ".join(map(str, files)))


def paper(
    preset: Annotated[
        str,
        typer.Option(metavar="quick|standard|full", help="quick: minutes; standard: 100 trials on the paper's grids, "
                     "about an hour; full: 1000 trials, a day."),
    ] = "quick",
    out: Annotated[Path, typer.Option(help="Folder of results and page; a stopped run goes on there.")] = Path("paper"),
    figures: Annotated[
        str | None, typer.Option(help="Such as 1,4,8; beyond the paper: theory, savings, floor, l1. All by default.")
    ] = None,
    mnist: Annotated[
        str | None,
        typer.Option(help="The folder with MNIST's four files, or 'openml' to download; else small digits are used."),
    ] = None,
    resume: Resume = True,
    jobs: Jobs = None,
    scheduler: Scheduler = None,
    seed: Seed = 0,
    draw_only: Annotated[bool, typer.Option("--draw-only", help="Draw the results there are; run nothing.")] = False,
    quiet: Quiet = False,
) -> None:  # fmt: skip
    """Make the figures of 'A Tight Bound of Hard Thresholding', and a page that compares its statements with them.

    Killed or stopped, the same command goes on where it was, and ends with the same results.
    """
    with errors(), long_run(out, resume):
        from ..paper import draw, run

        if draw_only:
            page = draw(out)
        else:
            page = run(
                preset, out, figures=figures, mnist=mnist, resume=resume, jobs=jobs, scheduler=scheduler,
                seed=seed, verbose=not quiet,
            )  # fmt: skip
        show(f"written: {page}")


@contextmanager
def long_run(out: Path, resume: bool) -> Iterator[None]:
    """Around many trials: warnings become notes; Ctrl-C, a lost worker and a full disk have their exit codes."""
    with warnings_as_notes(lambda message: print(f"note: {message}", file=sys.stderr)):
        try:
            yield
        except KeyboardInterrupt:
            raise typer.Exit(130) from None
        except RuntimeError as error:  # a worker died
            fail(str(error), 1)
        except BrokenPipeError:  # the reader of the output has gone: typer ends quietly
            raise
        except OSError as error:
            file, why = error.filename or out, error.strerror or error
            if not disk_is_full(error):
                raise ValueError(f"{file} cannot be written ({why})") from None
            again = "the same command" if resume else "the same command without --no-resume"
            done = any(path.stat().st_size for pattern in TRIALS for path in out.glob(pattern))
            left = f"{out} keeps the trials done, {again} goes on from there" if done else "no trial was kept"
            fail(f"{file}: {why}; {left}", 1)


def values(text: str | None, name: str) -> Any:
    """The numbers in 'start:end:step', including the end, or in 'a,b,c'."""
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
