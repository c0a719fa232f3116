"""The theory in four pictures, as they stand in docs/theory.

python examples/theory_figures.py [FOLDER]        (needs the `report` extra)
"""

from __future__ import annotations

import sys
from pathlib import Path

from ksparse.theory.figures import FIGURES


def main(folder: str | Path = "docs/theory") -> list[Path]:
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, plot in FIGURES.items():
        paths.append(folder / f"{name}.svg")
        plot(path=paths[-1])
        print(f"wrote {paths[-1]}")
    return paths


if __name__ == "__main__":
    main(*sys.argv[1:2])
