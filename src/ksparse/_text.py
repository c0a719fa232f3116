"""Tables as plain text, as HTML for notebooks, and as a DataFrame."""

from __future__ import annotations

import html
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any


def table(rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """A table as text; the first `left` columns are aligned to the left, the others to the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join(
        "  ".join(
            cell.ljust(w) if i < left else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )


def html_table(rows: Sequence[Sequence[str]], title: str = "", left: Collection[int] = (0,)) -> str:
    """A table for a notebook with the first row as its head; the columns in `left` are aligned to the left."""
    lines = []
    for tag, row in zip(["th", *["td"] * len(rows)], rows, strict=False):
        # notebooks align to the right by default
        sides = [' style="text-align: left"' if i in left else "" for i in range(len(row))]
        lines.append("".join(f"<{tag}{side}>{escape(cell)}</{tag}>" for side, cell in zip(sides, row, strict=True)))
    caption = f'<caption style="white-space: nowrap; text-align: left">{escape(title)}</caption>' if title else ""
    return f"<table>{caption}<tr>{'</tr><tr>'.join(lines)}</tr></table>"


def html_lines(lines: Sequence[str], bold: bool = False) -> str:
    """Lines for a notebook, the first of them optionally bold."""
    first, *others = map(escape, lines)
    return "<br>".join([f"<b>{first}</b>" if bold else first, *others])


def escape(text: str) -> str:
    """Any text as HTML; characters that UTF-8 cannot encode become question marks."""
    return html.escape(text).encode("utf-8", "replace").decode("utf-8")


def data_frame(columns: Mapping[str, Iterable[Any]]) -> Any:
    """A pandas.DataFrame with these columns; raises ImportError without pandas."""
    try:
        from pandas import DataFrame
    except ImportError:
        raise ImportError("to_frame needs pandas; pip install pandas brings it") from None
    return DataFrame({name: list(values) for name, values in columns.items()})
