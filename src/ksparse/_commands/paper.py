"""``ksparse paper``: thin over ksparse.paper."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from . import Scheduler, errors, long_run, show


class Preset(str, Enum):
    quick = "quick"
    standard = "standard"
    full = "full"


def paper(
    preset: Annotated[
        Preset,
        typer.Option(
            help="quick: minutes; standard: 100 trials on the paper's grids, an hour or so; full: 1000, a day."
        ),
    ] = Preset.quick,
    out: Annotated[Path, typer.Option(help="The folder of results and page; a stopped run goes on there.")] = Path(
        "paper"
    ),
    figures: Annotated[
        str | None,
        typer.Option(help="Such as 1,4,8; beyond the paper: theory, savings, floor, l1. All by default."),
    ] = None,
    mnist: Annotated[
        str | None,
        typer.Option(help="The folder with MNIST's four files, or 'openml' to download; else small digits are used."),
    ] = None,
    resume: Annotated[bool, typer.Option(help="Go on with results in the folder, or set them aside.")] = True,
    jobs: Annotated[int | None, typer.Option(help="Processes; all cores by default.")] = None,
    scheduler: Scheduler = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same results.")] = 0,
    draw_only: Annotated[bool, typer.Option("--draw-only", help="Draw what is there; run nothing.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No estimate and no progress.")] = False,
) -> None:
    """The figures of 'A Tight Bound of Hard Thresholding', and a page that compares its statements with the results.

    Killed or stopped, the same command goes on where it was, and ends with the same results.
    """
    with errors(), long_run(out, resume):
        from ..paper import draw, run

        if draw_only:
            page = draw(out)
        else:
            page = run(
                preset.value, out, figures=figures, mnist=mnist, resume=resume, jobs=jobs, scheduler=scheduler,
                seed=seed, verbose=not quiet,
            )  # fmt: skip
        show(f"written: {page}")
