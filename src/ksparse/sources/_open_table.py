"""A table opened: which of its columns are wanted, what they are, what they become."""

from __future__ import annotations

import difflib
import re
from typing import NamedTuple

from ._encoding import CATEGORY, NUMBER, Column, TableEncoding
from ._folders import FolderPart, types_told
from ._inputs import Input, import_arrow
from ._opened import Means, Opened, rows_of
from ._parts import EMPTY, ArrowPart, ParquetPart, Part
from ._spool import Spool
from ._spooled import SpooledPart
from ._survey import survey
from ._table import Table

FEW = 20  # categories that are never too many
WRITTEN = re.compile(r"\s*[-+]?\d[\d.,' ]*%?\s*")  # numbers as people write them, such as 1,037 or 57%
MANY = 64  # columns: with more of them it is worth knowing what reading them takes


class Wish(NamedTuple):
    """What the caller wants of a table."""

    target: str | bool | None = None
    columns: tuple[str, ...] | None = None
    drop: tuple[str, ...] | None = None
    categories: tuple[str, ...] = ()
    missing: str = "error"
    na: tuple[str, ...] = ()
    delimiter: str | None = None


def open_table(
    kind: str,
    files: list[Input],
    wish: Wish,
    means: Means,
    known: TableEncoding | None = None,
    target_optional: bool = False,
) -> Opened:
    """A table's rows and targets.  `known` says how columns are encoded: then the files must have these columns."""
    import_arrow()
    texts = wish.categories if known is None else _texts(known)
    told = types_told(files, texts)
    parts = [_part(kind, file, wish, texts) for file in files]
    parts = [FolderPart(part, told) if part.file.told else part for part in parts]
    _refuse_mixed(parts)
    if known is None:
        target, columns, labels = _choose(parts, wish)
    else:
        target, columns, labels = _match(parts, known, target_optional)
    numbers = [column.name for column in columns if column.levels is None]
    targets = [] if target is None else [target]
    used = [column.name for column in columns] + targets
    size = rows_of(8 * len(used), means.room)
    for part in parts:
        # a target that is not needed is read as text, which cannot fail
        part.settle({*numbers, *(() if labels or target_optional else targets)})
    spool = means.spool()
    if spool is not None:
        parts = [_spooled(kind, part, used, size, spool, means.share) for part in parts]
    seen = survey(
        parts, columns, target, labels, wish.missing, size, known=known is not None, target_optional=target_optional
    )
    notes = [note for part in parts for note in part.notes]
    notes += [_note(parts[0].name, name, values) for name, values in seen.unknown.items()]
    if seen.no_target is not None:
        notes.append(f"{seen.no_target}; the targets are left out, so there is no score")
    if known is None:
        notes += [_doubt(parts[0].name, c, seen.rows) for c in seen.columns if _is_doubtful(c, seen.rows, wish)]
    encoding = known or TableEncoding(seen.columns, target, labels, wish.missing, wish.delimiter, wish.na)
    rows = Table(parts, encoding.columns, wish.missing != "error", seen.rows)
    return Opened(rows, seen.y, None if seen.y is None else target, encoding.to_dict(), notes, spool)


def _part(kind: str, file: Input, wish: Wish, texts: tuple[str, ...]) -> Part:
    if kind == "parquet":
        return ParquetPart(file)
    if kind == "arrow":
        return ArrowPart(file)
    from ._csv import CsvPart

    return CsvPart(file, wish.delimiter or ("," if kind == "csv" else "\t"), wish.na, texts)


def _spooled(kind: str, part: Part, used: list[str], size: int, spool: Spool, share: int) -> Part:
    """Text is parsed once; so is a Parquet file that cannot be read in rows without more memory than there is."""
    if kind in ("csv", "tsv"):
        return SpooledPart(part, [used], size, spool)
    if len(used) > MANY:
        each = part.bytes_a_column(used, size)
        if each * len(used) > share:
            group = max(1, share // (2 * each))
            groups = [used[low : low + group] for low in range(0, len(used), group)]
            return SpooledPart(part, groups, size, spool)
    return part


def _texts(known: TableEncoding) -> tuple[str, ...]:
    labels = [known.target] if known.labels and known.target is not None else []
    return (*(c.name for c in known.columns if c.levels is not None), *labels)


def _refuse_mixed(parts: list[Part]) -> None:
    first = parts[0]
    for part in parts[1:]:
        for a, b in ((first, part), (part, first)):
            for name in a.types:
                if name not in b.types:
                    raise ValueError(f"{b.name} has no column {name!r}, but {a.name} has: the files must be alike")


def _kind(parts: list[Part], name: str, categories: tuple[str, ...]) -> str:
    """What a column is in all parts together."""
    kinds = {part.name: part.kind(name) for part in parts}
    for file, kind in kinds.items():
        if kind not in (NUMBER, CATEGORY, EMPTY):
            raise ValueError(
                f"{file}: column {name!r} holds {kind}, which is neither a number nor text: leave it out with "
                f"drop=[{name!r}], or make numbers of it"
            )
    if name in categories:
        return CATEGORY
    told = {kind: file for file, kind in reversed(kinds.items()) if kind != EMPTY}
    if len(told) > 1:
        raise ValueError(
            f"column {name!r} holds numbers in {told[NUMBER]}, but text in {told[CATEGORY]}: mend it, or take it as "
            f"text with categories=[{name!r}]"
        )
    return next(iter(told), NUMBER)


def _choose(parts: list[Part], wish: Wish) -> tuple[str | None, tuple[Column, ...], bool]:
    names, file = list(parts[0].types), parts[0].name
    for asked, argument in ((wish.columns, "columns"), (wish.drop, "drop"), (wish.categories, "categories")):
        for name in asked or ():
            _refuse_unknown(name, names, file, argument)
    if wish.columns is not None and len(set(wish.columns)) < len(wish.columns):
        raise ValueError(f"columns must name each column once, got {wish.columns}")
    dropped = set(wish.drop or ())
    target: str | None
    if wish.target is False:
        target = None
    elif isinstance(wish.target, str):
        target = wish.target
        _refuse_unknown(target, names, file, "target")
        if target in dropped:
            raise ValueError(f"drop must not name the target, got {target!r}")
    else:
        target = next((name for name in reversed(names) if name not in dropped), None)
    used = [
        name for name in (names if wish.columns is None else wish.columns) if name not in dropped and name != target
    ]
    if not used:
        raise ValueError(
            f"{file} cannot be read: no column is left beside the target {target!r}; at least two columns are needed"
        )
    columns = tuple(Column(n, () if _kind(parts, n, wish.categories) == CATEGORY else None) for n in used)
    return target, columns, target is not None and _kind(parts, target, wish.categories) == CATEGORY


def _match(parts: list[Part], known: TableEncoding, optional: bool) -> tuple[str | None, tuple[Column, ...], bool]:
    names, file = list(parts[0].types), parts[0].name
    for column in known.columns:
        if column.name not in names:
            raise ValueError(f"{file} has no column {column.name!r}, which the model needs{_close(column.name, names)}")
        kind = _kind(parts, column.name, _texts(known))
        if column.levels is None and kind == CATEGORY:
            raise ValueError(f"{file}: column {column.name!r} holds text, but the model knows it as numbers")
    target = known.target if known.target in names else None
    if target is None and known.target is not None and not optional:
        raise ValueError(f"{file} has no column {known.target!r}, the target{_close(known.target, names)}")
    return target, known.columns, known.labels and target is not None


def _refuse_unknown(name: str, names: list[str], file: str, argument: str) -> None:
    if name not in names:
        some = ", ".join(map(repr, names[:10])) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
        raise ValueError(f"{argument}: there is no column {name!r} in {file}{_close(name, names)}; there are {some}")


def _close(name: str, names: list[str]) -> str:
    near = {other.lower(): other for other in names}
    found = difflib.get_close_matches(name.lower(), near, 1)
    return f" (there is {near[found[0]]!r})" if found else ""


def _is_doubtful(column: Column, rows: int, wish: Wish) -> bool:
    """Whether a text may be no category: nearly each row has its own, or all look like numbers with a comma or %."""
    levels = column.levels or ()
    if not levels or column.name in wish.categories:
        return False
    written = all(map(WRITTEN.fullmatch, levels)) and not all(level.strip().isdigit() for level in levels)
    return written or (len(levels) > FEW and 2 * len(levels) > rows)


def _doubt(file: str, column: Column, rows: int) -> str:
    levels = column.levels or ()
    some = levels[0] if len(levels[0]) <= 40 else levels[0][:37] + "..."
    return (
        f"{file}: column {column.name!r} is text, such as {some!r}: its {len(levels)} different values in {rows} rows "
        "become a column each; if they are numbers, write them like 1037.5; if they are of no use, drop the column"
    )


def _note(file: str, name: str, values: dict[str, int]) -> str:
    some = ", ".join(f"{value!r} ({n} row{'s' * (n > 1)})" for value, n in list(values.items())[:3])
    more = f" and {len(values) - 3} more" if len(values) > 3 else ""
    return (
        f"{file}: column {name!r}: {some}{more} {'is' if len(values) == 1 else 'are'} none of the known categories and "
        f"{'becomes' if len(values) == 1 else 'become'} zeros"
    )
