"""Tables: as plain text, as HTML for a notebook, and as a DataFrame."""

from __future__ import annotations

import html
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any


def table(rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """Cells in columns, the first `left` of them to the left and the others to the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join(
        "  ".join(
            cell.ljust(w) if i < left else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )


def html_table(rows: Sequence[Sequence[str]], title: str = "", left: Collection[int] = (0,)) -> str:
    """A table for a notebook, the columns in `left` to the left; the first row is its head."""
    lines = []
    for tag, row in zip(["th", *["td"] * len(rows)], rows, strict=False):
        sides = [' style="text-align: left"' if i in left else "" for i in range(len(row))]  # a notebook's is right
        lines.append("".join(f"<{tag}{side}>{escape(cell)}</{tag}>" for side, cell in zip(sides, row, strict=True)))
    caption = f'<caption style="white-space: nowrap; text-align: left">{escape(title)}</caption>' if title else ""
    return f"<table>{caption}<tr>{'</tr><tr>'.join(lines)}</tr></table>"


def html_lines(lines: Sequence[str], bold: bool = False) -> str:
    """Lines for a notebook, the first of them bold if it is a verdict."""
    first, *others = map(escape, lines)
    return "<br>".join([f"<b>{first}</b>" if bold else first, *others])


def escape(text: str) -> str:
    """Text inside a page, whatever is in it: half a letter, which no page can hold, becomes a question mark."""
    return html.escape(text).encode("utf-8", "replace").decode("utf-8")


def data_frame(columns: Mapping[str, Iterable[Any]]) -> Any:
    """A pandas.DataFrame with these columns; pandas is needed for this only."""
    try:
        from pandas import DataFrame
    except ImportError:
        raise ImportError("to_frame needs pandas; pip install pandas brings it") from None
    return DataFrame({name: list(values) for name, values in columns.items()})
