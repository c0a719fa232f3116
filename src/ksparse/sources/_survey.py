"""What must be known of a table before its first block: how many rows, the targets, the categories, the means."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ._encoding import CATEGORY, NUMBER, Column
from ._inputs import import_arrow
from ._parts import EMPTY, Part, kind_of
from ._spooled import as_text
from ._table import number_trouble, numbers_of

MOST_LEVELS = 1000


class Survey(NamedTuple):
    """What one pass over some columns has shown."""

    rows: int
    y: NDArray[Any] | None
    columns: tuple[Column, ...]
    unknown: dict[str, dict[str, int]]  # by column, values that are no level and how often
    no_target: str | None = None  # why there is none, though there is a column for it


def survey(
    parts: list[Part],
    columns: tuple[Column, ...],
    target: str | None,
    labels: bool,
    missing: str,
    size: int,
    *,
    known: bool = False,
    target_optional: bool = False,
) -> Survey:
    """Go once over the columns that must be seen, and over no others.

    Parameters
    ----------
    columns : tuple of Column
        Categories without levels (an empty tuple) are given theirs; unless `known`, then what is not among the levels
        is counted.
    labels : bool
        Whether the target is text.
    missing : str
        "mean": the means are taken, unless `known`.
    target_optional : bool
        Whether targets may be missing, or no numbers; there are none then.
    """
    texts = [column.name for column in columns if column.levels is not None]
    numbers = [column.name for column in columns if column.levels is None and missing == "mean" and not known]
    seen = [*numbers, *texts, *([] if target is None else [target])]
    found: dict[str, dict[str, int]] = {name: {} for name in texts}
    sums, counts = np.zeros(len(numbers)), np.zeros(len(numbers), dtype=np.int64)
    targets: list[NDArray[Any]] | None = None if target is None else []
    total, no_target = 0, None
    for part in parts:
        if not seen and part.rows is not None:
            total += part.rows
            continue
        row = 0
        for batch in part.batches(seen or list(part.types)[:1], size):
            if numbers:
                _add(numbers_of(batch.select(numbers), np.float64), sums, counts)
            for name in texts:
                _count(batch.column(name), found[name], name, part, known)
            if targets is not None and target is not None:
                try:
                    targets.append(_targets(batch.column(target), target, labels))
                except _NoTargetError as error:
                    what = _why_no_target(error, target, part, row)
                    if not target_optional:
                        raise ValueError(f"{what}; mend it, or leave the row out") from None
                    targets, no_target = None, what
            row += batch.num_rows
        total += row
    if not total:
        raise ValueError(f"{parts[0].name} cannot be read: it holds no rows")
    y = None if targets is None else np.concatenate(targets)
    if known:
        levels = {column.name: set(column.levels or ()) for column in columns}
        unknown = {
            name: {value: count for value, count in values.items() if value not in levels[name]}
            for name, values in found.items()
        }
        return Survey(total, y, columns, {name: values for name, values in unknown.items() if values}, no_target)
    means = dict(zip(numbers, _means(numbers, sums, counts, parts[0].name), strict=True))
    fills = {column.name: 0.0 if missing == "zero" else means.get(column.name) for column in columns}
    settled = tuple(
        Column(c.name, _levels(found[c.name], c.name, parts[0].name))
        if c.levels is not None
        else Column(c.name, None, fills[c.name])
        for c in columns
    )
    return Survey(total, y, settled, {})


def _add(numbers: NDArray[np.float64], sums: NDArray[np.float64], counts: NDArray[np.int64]) -> None:
    there = ~np.isnan(numbers)
    sums += np.where(there, numbers, 0).sum(axis=1)
    counts += there.sum(axis=1)


def _means(names: list[str], sums: Any, counts: Any, file: str) -> list[float]:
    for name, count in zip(names, counts, strict=True):
        if not count:
            raise ValueError(f"{file}: column {name!r} holds no number that a mean could be taken of; drop=[{name!r}]")
    return (sums / np.maximum(counts, 1)).tolist()


def _count(column: Any, found: dict[str, int], name: str, part: Part, known: bool) -> None:
    from pyarrow import compute

    counted = compute.value_counts(as_text(column).drop_null())
    for value, count in zip(counted.field("values").to_pylist(), counted.field("counts").to_pylist(), strict=True):
        found[value] = found.get(value, 0) + count
    if len(found) > MOST_LEVELS and not known:
        raise ValueError(
            f"{part.name}: column {name!r} holds more than {MOST_LEVELS} different values, too many for categories; "
            f"leave it out with drop=[{name!r}]"
        )


def _levels(found: dict[str, int], name: str, file: str) -> tuple[str, ...]:
    if not found:
        raise ValueError(f"{file}: column {name!r} holds no value at all; leave it out with drop=[{name!r}]")
    return tuple(sorted(found))


class _NoTargetError(Exception):
    """A target that is missing, infinite, or text where numbers are needed; no row if the whole column is."""

    def __init__(self, row: int | None, value: float | str) -> None:
        self.row, self.value = row, value


def _why_no_target(error: _NoTargetError, name: str, part: Part, row: int) -> str:
    if error.row is None:
        return f"{part.name}: column {name!r} (the target) holds {error.value}, which cannot be a target here"
    if isinstance(error.value, str):
        place = f"in {part.place(row + error.row)}, column {name!r} (the target)"
        return f"{part.name}: {error.value!r} stands {place}, which must hold numbers"
    return number_trouble(error.value, name, part, row + error.row, target=True)


def _targets(column: Any, name: str, labels: bool) -> NDArray[Any]:
    if kind_of(column.type) not in (NUMBER, CATEGORY, EMPTY):  # a date, a list
        raise _NoTargetError(None, str(column.type))
    if labels:
        absent = np.flatnonzero(np.asarray(column.is_null()))
        if absent.size:
            raise _NoTargetError(int(absent[0]), np.nan)
        return np.array(as_text(column).to_pylist(), dtype=str)
    column = _as_numbers(column)
    numbers = numbers_of(import_arrow().RecordBatch.from_arrays([column], names=[name]), np.float64)[0]
    bad = np.flatnonzero(~np.isfinite(numbers))
    if bad.size:
        raise _NoTargetError(int(bad[0]), float(numbers[bad[0]]))
    return np.array(numbers)


def _as_numbers(column: Any) -> Any:
    """Numbers of a target; text may tell them."""
    from pyarrow import compute, types

    if kind_of(column.type) != CATEGORY or types.is_boolean(column.type):
        return column.cast("float64", safe=False)
    texts = compute.utf8_trim_whitespace(as_text(column))
    try:
        return texts.cast("float64")
    except ValueError:
        row = _first_word(texts)
        raise _NoTargetError(row, texts[row].as_py()) from None


def _first_word(texts: Any) -> int:
    """The first text that tells no number, found by halves."""
    low, high = 0, len(texts)  # those before `low` are numbers, one before `high` is not
    while high - low > 1:
        middle = (low + high) // 2
        try:
            texts.slice(low, middle - low).cast("float64")
            low = middle
        except ValueError:
            high = middle
    return low
