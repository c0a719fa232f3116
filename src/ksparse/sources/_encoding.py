"""How the columns of a table become numbers; in plain JSON, so that another file can be read the same way."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

VERSION = 1
MISSING = ("error", "mean", "zero")
NUMBER, CATEGORY = "number", "category"
KINDS = ("table", "libsvm", "array")


class Column(NamedTuple):
    """A column of a table: a number, or one column for each of its levels."""

    name: str
    levels: tuple[str, ...] | None = None
    fill: float | None = None  # stands for a missing number; None: it is refused

    @property
    def names(self) -> list[str]:
        return [self.name] if self.levels is None else [f"{self.name}={level}" for level in self.levels]

    @property
    def width(self) -> int:
        return 1 if self.levels is None else len(self.levels)


class TableEncoding(NamedTuple):
    """All that is needed to read another table the same way."""

    columns: tuple[Column, ...]
    target: str | None = None
    labels: bool = False  # whether the target is text
    missing: str = "error"
    delimiter: str | None = None
    na: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        columns: list[dict[str, Any]] = [
            {"name": c.name, "fill": c.fill} if c.levels is None else {"name": c.name, "levels": list(c.levels)}
            for c in self.columns
        ]
        target = None if self.target is None else {"name": self.target, "labels": self.labels}
        return {
            "version": VERSION, "kind": "table", "columns": columns, "target": target, "missing": self.missing,
            "delimiter": self.delimiter, "na": list(self.na),
        }  # fmt: skip


def check_encoding(encoding: Any) -> dict[str, Any]:
    """An encoding that may have been read from a file that somebody has edited."""
    if not isinstance(encoding, dict):
        raise ValueError(f"encoding must be a dict such as Files.encoding, got {type(encoding).__name__}")
    if encoding.get("version") != VERSION:
        raise ValueError(f"encoding must have version {VERSION}, got {encoding.get('version')!r}")
    if encoding.get("kind") not in KINDS:
        raise ValueError(f"encoding must be of a kind of {', '.join(KINDS)}, got {encoding.get('kind')!r}")
    if encoding["kind"] != "table":
        features = encoding.get("features")
        if not isinstance(features, int) or isinstance(features, bool) or features < 1:
            raise ValueError(f"encoding: features must be an integer of at least 1, got {features!r}")
        name, kinds = ("zero_based", (bool,)) if encoding["kind"] == "libsvm" else ("target", (int, type(None)))
        if not isinstance(encoding.get(name), kinds):
            raise ValueError(f"encoding: {name} must be one of {', '.join(k.__name__ for k in kinds)}, got {encoding.get(name)!r}")  # fmt: skip # noqa: E501
    return encoding


def check_delimiter(delimiter: Any, name: str) -> None:
    if delimiter is None:
        return
    if not isinstance(delimiter, str) or len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n\0':
        raise ValueError(
            f"{name} must be one character of ASCII that is no quote or end of a line, got {_short(delimiter)}"
        )


def table_encoding(encoding: dict[str, Any]) -> TableEncoding:
    """The columns of a checked encoding of kind "table"."""
    listed, missing, target = encoding.get("columns"), encoding.get("missing"), encoding.get("target")
    if not isinstance(listed, list) or not listed:
        raise ValueError(f"encoding: columns must be a list of at least one column, got {_short(listed)}")
    columns = tuple(_column(entry, number) for number, entry in enumerate(listed))
    names = [column.name for column in columns]
    if len(set(names)) < len(names):
        raise ValueError(f"encoding: the column {next(n for n in names if names.count(n) > 1)!r} is there twice")
    if missing not in MISSING:
        raise ValueError(f"encoding: missing must be one of {', '.join(map(repr, MISSING))}, got {_short(missing)}")
    if missing != "error" and any(c.levels is None and c.fill is None for c in columns):
        bad = next(c.name for c in columns if c.levels is None and c.fill is None)
        raise ValueError(f"encoding: fill of column {bad!r} must be a number, for missing is {missing!r}")
    if target is not None:
        fine = isinstance(target, dict) and isinstance(target.get("name"), str)
        if not fine or not isinstance(target.get("labels"), bool):
            raise ValueError(f"encoding: target must be null or hold a name and labels, got {_short(target)}")
        if target["name"] in names:
            raise ValueError(f"encoding: the target {target['name']!r} must not be among the columns")
    delimiter, na = encoding.get("delimiter"), encoding.get("na", [])
    check_delimiter(delimiter, "encoding: delimiter")
    if not isinstance(na, list) or not all(isinstance(word, str) for word in na):
        raise ValueError(f"encoding: na must be a list of words, got {_short(na)}")
    name, labels = (target["name"], target["labels"]) if target is not None else (None, False)
    return TableEncoding(columns, name, labels, missing, delimiter, tuple(na))


def _column(entry: Any, number: int) -> Column:
    place = f"encoding: column {number}"
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
        raise ValueError(f"{place} must be an object with a name, got {_short(entry)}")
    if "levels" not in entry:
        fill = entry.get("fill")
        if fill is not None and (
            isinstance(fill, bool) or not isinstance(fill, int | float) or not math.isfinite(fill)
        ):
            raise ValueError(f"{place} ({entry['name']!r}): fill must be a finite number or null, got {_short(fill)}")
        return Column(entry["name"], None, None if fill is None else float(fill))
    levels = entry["levels"]
    if not isinstance(levels, list) or not levels or not all(isinstance(level, str) for level in levels):
        raise ValueError(f"{place} ({entry['name']!r}): levels must be a list of words, got {_short(levels)}")
    if len(set(levels)) < len(levels):
        raise ValueError(f"{place} ({entry['name']!r}): a level is there twice")
    return Column(entry["name"], tuple(levels))


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
