"""The run of all figures: trials, summaries, pictures, page."""

from __future__ import annotations

import importlib
import json
import time
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

from .._validate import check_choice, check_count
from ..sensing.phase import Pool, interruptible, write_whole
from ._lab import PRESETS, Lab, write_summary

# in the order of the page; a figure comes after those that it needs
FIGURES = {
    "1": "phase_transitions",
}
FACTS = "run.json"
BUDGET = {"quick": 4.0, "standard": 40.0, "full": 40.0}  # seconds for an estimate


def run(
    preset: str = "quick",
    out: str | Path = "paper",
    *,
    figures: Iterable[str] | None = None,
    resume: bool = True,
    jobs: int | None = None,
    seed: int = 0,
    verbose: bool = True,
) -> Path:
    """Run the paper's experiments and write a page about them; returns its path."""
    check_choice(preset, "preset", PRESETS)
    chosen = choose(figures)
    out = Path(out)
    with Pool(None if jobs is None else check_count(jobs, "jobs")) as pool:
        lab = Lab(preset, out, pool, check_count(seed, "seed", low=0), {}, verbose)
        facts = begin(lab, resume)
        for figure in chosen:
            run_figure(figure, lab, facts)
    return out


def choose(figures: Iterable[str] | None) -> list[ModuleType]:
    """The modules of these figures and of all that they need, in order."""
    wanted = list(FIGURES) if figures is None else [str(figure).strip() for figure in figures]
    for figure in wanted:
        check_choice(figure, "figures", FIGURES)
    modules = {name: importlib.import_module(f".{module}", __package__) for name, module in FIGURES.items()}
    while more := {need for name in wanted for need in modules[name].NEEDS} - set(wanted):
        wanted += sorted(more)
    return [modules[name] for name in FIGURES if name in wanted]


def begin(lab: Lab, resume: bool) -> dict[str, Any]:
    """The facts of a run: those of the folder, if it is to go on."""
    lab.out.mkdir(parents=True, exist_ok=True)
    return {"seconds": {}, "cpu_seconds": {}}


def run_figure(figure: ModuleType, lab: Lab, facts: dict[str, Any]) -> None:
    began, cpu_began = time.monotonic(), lab.pool.cpu_seconds
    with lab.open(figure) as ledger, interruptible(ledger):
        if hasattr(figure, "run"):
            figure.run(lab, ledger)
        else:
            lab.collect(figure, figure.items(figure.CONFIG[lab.preset]), ledger)
        ledger.sort()
    write_summary(lab.out / "summary" / f"figure{figure.NUMBER}.json", figure.summarise(lab.records(figure)))
    for name, spent in (("seconds", time.monotonic() - began), ("cpu_seconds", lab.pool.cpu_seconds - cpu_began)):
        facts[name][figure.NUMBER] = round(facts[name].get(figure.NUMBER, 0.0) + spent, 1)
    write_whole(lab.out / FACTS, (json.dumps(facts, indent=1) + "\n").encode())
