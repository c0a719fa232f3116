"""The files of a phase experiment beside its trials: a table and pictures."""

from __future__ import annotations

import csv
import io
import re
import warnings
from collections.abc import Sequence
from pathlib import Path

from ..._files import write_whole
from ._result import Phase


def write_report(phases: Sequence[Phase], out: str | Path) -> list[Path]:
    """Write table.csv and phase.svg (and .png), with several algorithms also a picture of each; the files."""
    out = Path(out)
    files = {out / "table.csv": as_csv(phases).encode()}
    try:
        from ..._style import as_bytes, new_axes
        from .figures import SIZE, plot_curves, plot_phase

        pictures = {f"phase-{_plain(phase.label)}": plot_phase(phase, ax=new_axes(size=SIZE)) for phase in phases}
        if len(phases) > 1:
            pictures["phase"] = plot_curves(phases, ax=new_axes(size=SIZE))
        else:
            pictures = {"phase": pictures.popitem()[1]}
        files |= {
            out / f"{name}.{kind}": as_bytes(ax, kind) for name, ax in pictures.items() for kind in ("svg", "png")
        }
    except ImportError as error:
        warnings.warn(f"no pictures: {error}", stacklevel=2)
    for path, content in files.items():
        write_whole(path, content)
    return list(files)


def as_csv(phases: Sequence[Phase]) -> str:
    """The tables of several phases of one grid, one beneath the other."""
    rows = [row for phase in phases for row in phase.rows()]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: f"{v:.6g}" if isinstance(v, float) else v for name, v in row.items()} for row in rows)
    return text.getvalue()


def _plain(label: str) -> str:
    """A label as part of a file's name."""
    return re.sub(r"[^\w.=-]+", "-", label).strip("-")
