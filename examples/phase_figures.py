"""Phase transitions of five algorithms at d = 256, in three pictures.

python examples/phase_figures.py [FOLDER]              draws from the counts in docs/phase
python examples/phase_figures.py --run RESULTS         makes the counts first; a stopped run goes on in RESULTS
"""

from __future__ import annotations

import sys
from pathlib import Path

from ksparse.sensing import phase
from ksparse.sensing.phase.figures import plot_curves

COUNTS = Path(__file__).parent.parent / "docs" / "phase"
TOLD = {"cosamp": "K", "sp": "K", "htp": "K", "omp": "K", "auto": "2K"}  # what each is told


def run(results: str | Path) -> None:
    """Make the counts."""
    grid = phase.make_grid(256, range(4, 129, 4), range(2, 27, 3))
    experiments = [phase.Experiment(name, k=k) for name, k in TOLD.items()]
    for name, found in zip(TOLD, phase.run_all(experiments, grid, trials=50, out=results), strict=True):
        found.save(COUNTS / f"{name}.json")


def main(folder: str | Path = COUNTS) -> list[Path]:
    found = {name: phase.Phase.load(COUNTS / f"{name}.json") for name in TOLD}
    paths = {name: Path(folder) / f"{name}.svg" for name in ("curves", "cosamp", "auto")}
    plot_curves(list(found.values()), paths["curves"])
    for name in ("cosamp", "auto"):
        found[name].plot(paths[name])
    print(*(f"wrote {path}" for path in paths.values()), sep="\n")
    return list(paths.values())


if __name__ == "__main__":
    if sys.argv[1:2] == ["--run"]:
        run(*sys.argv[2:3])
        main()
    else:
        main(*sys.argv[1:2])
