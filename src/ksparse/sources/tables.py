"""Opening a table (Parquet, Arrow, CSV): which columns are used, what they hold, and how they are encoded."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .encoding import (
    CATEGORY,
    EMPTY,
    NUMBER,
    Column,
    TableEncoding,
    TableRows,
    as_text,
    describe_bad_number,
    kind_of,
    numbers_of,
)  # fmt: skip
from .readers import ArrowReader, CsvReader, ParquetReader, TableReader, cut, folder_types
from .storage import Budget, InputFile, OpenedFiles, Spool, first_failure, import_arrow, reading

MOST_LEVELS = 1000  # of a category
FEW = 20  # categories with this many levels are never suspicious
WRITTEN = re.compile(r"\s*[-+]?\d[\d.,' ]*%?\s*")  # numbers as people write them, such as 1,037 or 57%
MANY = 64  # with more columns than this, the memory that reading them takes is measured first


class TableOptions(NamedTuple):
    """What the caller wants from a table; the fields are arguments of `open_files`."""

    target: str | bool | None = None
    columns: tuple[str, ...] | None = None
    drop: tuple[str, ...] | None = None
    categories: tuple[str, ...] = ()
    missing: str = "error"
    na: tuple[str, ...] = ()
    delimiter: str | None = None


def open_table(
    kind: str,
    files: list[InputFile],
    options: TableOptions,
    budget: Budget,
    known: TableEncoding | None = None,
    target_optional: bool = False,
) -> OpenedFiles:
    """The rows and targets of a table.  With a `known` encoding, the files must have its columns."""
    import_arrow()
    texts = options.categories if known is None else _text_columns(known)
    from_folders = folder_types(files, texts)
    readers = [_reader(kind, file, options, texts) for file in files]
    for reader in readers:
        reader.add_folder_columns(from_folders)
    _refuse_different_columns(readers)
    if known is None:
        target, columns, labels = _choose_columns(readers, options)
    else:
        target, columns, labels = _match_columns(readers, known, target_optional)
    used = [column.name for column in columns] + ([] if target is None else [target])
    numbers = {column.name for column in columns if column.levels is None}
    if target is not None and not labels and not target_optional:
        numbers.add(target)  # an optional target is read as text, which cannot fail
    size = budget.rows_per_batch(8 * len(used))
    for reader in readers:
        reader.set_numbers(numbers)
    spool = budget.spool()
    if spool is not None:
        grouped = [(reader, _column_groups(kind, reader, used, size, budget.for_blocks)) for reader in readers]
        readers = [SpooledReader(r, groups, size, spool) if groups else r for r, groups in grouped]
    seen = _survey(readers, columns, target, labels, options.missing, size, known is not None, target_optional)
    notes = [note for reader in readers for note in reader.notes]
    notes += [_unknown_note(readers[0].name, name, values) for name, values in seen.unknown.items()]
    if seen.no_target is not None:
        notes.append(f"{seen.no_target}; the targets are left out, so there is no score")
    if known is None:
        suspicious = [c for c in seen.columns if c.name not in options.categories and _is_suspicious(c, seen.rows)]
        notes += [_suspicious_note(readers[0].name, column, seen.rows) for column in suspicious]
    encoding = known or TableEncoding(seen.columns, target, labels, options.missing, options.delimiter, options.na)
    rows = TableRows(readers, encoding.columns, options.missing != "error", seen.rows)
    return OpenedFiles(rows, seen.y, None if seen.y is None else target, encoding.to_dict(), notes, spool)


def _reader(kind: str, file: InputFile, options: TableOptions, texts: tuple[str, ...]) -> TableReader:
    if kind in ("csv", "tsv"):
        return CsvReader(file, options.delimiter or ("," if kind == "csv" else "\t"), options.na, texts)
    return ParquetReader(file) if kind == "parquet" else ArrowReader(file)


def _column_groups(kind: str, reader: TableReader, used: list[str], size: int, room: int) -> list[list[str]]:
    """The groups of columns in which to spool a file; none if it is not spooled.

    Text is spooled, since it is slow to parse; so is a Parquet file whose columns need too much memory to be decoded
    all at once.
    """
    if kind in ("csv", "tsv"):
        return [used]
    each = reader.bytes_per_column(used, size) if len(used) > MANY else 0
    if each * len(used) <= room:
        return []
    width = max(1, room // (2 * each))
    return [used[low : low + width] for low in range(0, len(used), width)]


# --- which columns, and what they are --------------------------------------------------------------------------------
def _text_columns(known: TableEncoding) -> tuple[str, ...]:
    labels = [known.target] if known.labels and known.target is not None else []
    return (*(c.name for c in known.columns if c.levels is not None), *labels)


def _refuse_different_columns(readers: list[TableReader]) -> None:
    first = readers[0]
    for reader in readers[1:]:
        for a, b in ((first, reader), (reader, first)):
            for name in a.types:
                if name not in b.types:
                    raise ValueError(
                        f"{b.name} has no column {name!r}, but {a.name} has: all files must have the same columns"
                    )


def _kind(readers: list[TableReader], name: str, categories: tuple[str, ...]) -> str:
    """Whether a column is a number or a category, over all files."""
    kinds = {reader.name: reader.kind(name) for reader in readers}
    for file, kind in kinds.items():
        if kind not in (NUMBER, CATEGORY, EMPTY):
            raise ValueError(
                f"{file}: column {name!r} holds {kind}, which is neither a number nor text: leave it out with "
                f"drop=[{name!r}], or convert it to numbers"
            )
    if name in categories:
        return CATEGORY
    found = {kind: file for file, kind in reversed(kinds.items()) if kind != EMPTY}
    if len(found) > 1:
        raise ValueError(
            f"column {name!r} holds numbers in {found[NUMBER]}, but text in {found[CATEGORY]}: correct it, or take it "
            f"as text with categories=[{name!r}]"
        )
    return next(iter(found), NUMBER)


def _choose_columns(readers: list[TableReader], options: TableOptions) -> tuple[str | None, tuple[Column, ...], bool]:
    """The target, the columns, and whether the target is text, as the caller's options say."""
    names, file = list(readers[0].types), readers[0].name
    for argument in ("columns", "drop", "categories"):
        for name in getattr(options, argument) or ():
            _refuse_unknown(name, names, file, argument)
    if options.columns is not None and len(set(options.columns)) < len(options.columns):
        raise ValueError(f"columns must name each column once, got {options.columns}")
    dropped = set(options.drop or ())
    target: str | None = None
    if isinstance(options.target, str):
        target = options.target
        _refuse_unknown(target, names, file, "target")
        if target in dropped:
            raise ValueError(f"drop must not name the target, got {target!r}")
    elif options.target is None:
        target = next((name for name in reversed(names) if name not in dropped), None)
    wanted = names if options.columns is None else options.columns
    used = [name for name in wanted if name not in dropped and name != target]
    if not used:
        raise ValueError(
            f"{file} cannot be read: no column is left beside the target {target!r}; at least two columns are needed"
        )
    kinds = {name: _kind(readers, name, options.categories) for name in [*used, *([] if target is None else [target])]}
    columns = tuple(Column(name, () if kinds[name] == CATEGORY else None) for name in used)
    return target, columns, target is not None and kinds[target] == CATEGORY


def _match_columns(
    readers: list[TableReader], known: TableEncoding, optional: bool
) -> tuple[str | None, tuple[Column, ...], bool]:
    """The same from a known encoding."""
    names, file = list(readers[0].types), readers[0].name
    for column in known.columns:
        if column.name not in names:
            raise ValueError(
                f"{file} has no column {column.name!r}, which the model needs{_similar(column.name, names)}"
            )
        kind = _kind(readers, column.name, _text_columns(known))
        if column.levels is None and kind == CATEGORY:
            raise ValueError(f"{file}: column {column.name!r} holds text, but the model knows it as numbers")
    target = known.target if known.target in names else None
    if target is None and known.target is not None and not optional:
        raise ValueError(f"{file} has no column {known.target!r}, the target{_similar(known.target, names)}")
    return target, known.columns, known.labels and target is not None


def _refuse_unknown(name: str, names: list[str], file: str, argument: str) -> None:
    if name not in names:
        some = ", ".join(map(repr, names[:10])) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
        raise ValueError(f"{argument}: there is no column {name!r} in {file}{_similar(name, names)}; there are {some}")


def _similar(name: str, names: list[str]) -> str:
    near = {other.lower(): other for other in names}
    found = difflib.get_close_matches(name.lower(), near, 1)
    return f" (there is {near[found[0]]!r})" if found else ""


def _is_suspicious(column: Column, rows: int) -> bool:
    """Whether text may not be a category: most values occur once, or all look like 1,037 or 57%."""
    levels = column.levels
    if not levels:
        return False
    written = all(map(WRITTEN.fullmatch, levels)) and not all(level.strip().isdigit() for level in levels)
    return written or (len(levels) > FEW and 2 * len(levels) > rows)


def _suspicious_note(file: str, column: Column, rows: int) -> str:
    levels = column.levels or ()
    some = levels[0] if len(levels[0]) <= 40 else levels[0][:37] + "..."
    return (
        f"{file}: column {column.name!r} is text, such as {some!r}: its {len(levels)} different values in {rows} rows "
        "become a column each; if they are numbers, write them like 1037.5; if they are of no use, drop the column"
    )


def _unknown_note(file: str, name: str, values: dict[str, int]) -> str:
    some = ", ".join(f"{value!r} ({n} row{'s' * (n > 1)})" for value, n in list(values.items())[:3])
    more = f" and {len(values) - 3} more" if len(values) > 3 else ""
    are, become = ("is", "becomes") if len(values) == 1 else ("are", "become")
    return f"{file}: column {name!r}: {some}{more} {are} none of the known categories and {become} zeros"


# --- one pass over what must be known before the first block ---------------------------------------------------------
class _Survey(NamedTuple):
    """What one pass over some columns found."""

    rows: int
    y: NDArray[Any] | None
    columns: tuple[Column, ...]  # with their levels and means
    unknown: dict[str, dict[str, int]]  # column -> values that are not among its levels, and how often they occur
    no_target: str | None = None  # why there are no targets, though there is a column for them


def _survey(
    readers: list[TableReader],
    columns: tuple[Column, ...],
    target: str | None,
    labels: bool,
    missing: str,
    size: int,
    known: bool,
    target_optional: bool,
) -> _Survey:
    """Count the rows, and read targets, categories and means in one pass over the columns that are needed for them.

    If the encoding is `known`, the values that are not among its levels are counted instead of levels and means.
    """
    texts = [column.name for column in columns if column.levels is not None]
    numbers = [column.name for column in columns if column.levels is None and missing == "mean" and not known]
    wanted = [*numbers, *texts, *([] if target is None else [target])]
    found: dict[str, dict[str, int]] = {name: {} for name in texts}
    sums, counts = np.zeros(len(numbers)), np.zeros(len(numbers), dtype=np.int64)
    targets: list[NDArray[Any]] | None = None if target is None else []
    total, no_target = 0, None
    for reader in readers:
        if not wanted and reader.rows is not None:
            total += reader.rows
            continue
        row = 0
        for batch in reader.batches(wanted or list(reader.types)[:1], size):
            if numbers:
                values = numbers_of(batch.select(numbers), np.float64)
                present = ~np.isnan(values)
                sums += np.where(present, values, 0).sum(axis=1)
                counts += present.sum(axis=1)
            for name in texts:
                _count_values(batch.column(name), found[name], name, reader, known)
            if targets is not None and target is not None:
                try:
                    targets.append(_targets(batch.column(target), target, labels, reader, row))
                except _BadTargetError as error:
                    if not target_optional:
                        raise ValueError(f"{error}; correct it, or leave the row out") from None
                    targets, no_target = None, str(error)
            row += batch.num_rows
        total += row
    file = readers[0].name
    if not total:
        raise ValueError(f"{file} cannot be read: it holds no rows")
    y = None if targets is None else np.concatenate(targets)
    if known:
        levels = {column.name: set(column.levels or ()) for column in columns}
        unknown = {
            name: {value: count for value, count in values.items() if value not in levels[name]}
            for name, values in found.items()
        }
        return _Survey(total, y, columns, {name: values for name, values in unknown.items() if values}, no_target)
    means = dict(zip(numbers, (sums / np.maximum(counts, 1)).tolist(), strict=True))
    settled = []
    for name, count in zip(numbers, counts, strict=True):
        if not count:
            raise ValueError(f"{file}: column {name!r} holds no number that a mean could be taken of; drop=[{name!r}]")
    for name, _, _ in columns:
        if name not in found:
            settled.append(Column(name, None, 0.0 if missing == "zero" else means.get(name)))
        elif found[name]:
            settled.append(Column(name, tuple(sorted(found[name]))))
        else:
            raise ValueError(f"{file}: column {name!r} holds no value at all; leave it out with drop=[{name!r}]")
    return _Survey(total, y, tuple(settled), {})


def _count_values(column: Any, found: dict[str, int], name: str, reader: TableReader, known: bool) -> None:
    """Add how often each value of a column occurs to `found`."""
    from pyarrow import compute

    counted = compute.value_counts(as_text(column).drop_null())
    for value, count in zip(counted.field("values").to_pylist(), counted.field("counts").to_pylist(), strict=True):
        found[value] = found.get(value, 0) + count
    if len(found) > MOST_LEVELS and not known:
        raise ValueError(
            f"{reader.name}: column {name!r} holds more than {MOST_LEVELS} different values, too many for categories; "
            f"leave it out with drop=[{name!r}]"
        )


class _BadTargetError(ValueError):
    """A target that is missing, infinite, or text instead of a number; the message says where."""


def _targets(column: Any, name: str, labels: bool, reader: TableReader, first_row: int) -> NDArray[Any]:
    """The targets of a batch that begins at row `first_row` of its file; numbers given as text are parsed."""
    from pyarrow import compute, types

    kind = kind_of(column.type)
    if kind not in (NUMBER, CATEGORY, EMPTY):  # a date, a list
        raise _BadTargetError(
            f"{reader.name}: column {name!r} (the target) holds {kind}, which cannot be a target here"
        )
    if labels:
        numbers = np.where(np.asarray(column.is_null()), np.nan, 0.0)
    else:
        if kind == CATEGORY and not types.is_boolean(column.type):
            column = compute.utf8_trim_whitespace(as_text(column))
        try:
            numbers = column.cast("float64", safe=False).to_numpy(zero_copy_only=False)
        except ValueError:
            row = first_failure(len(column), lambda low, high: column.slice(low, high - low).cast("float64"))
            place = f"in {reader.place(first_row + row)}, column {name!r} (the target)"
            raise _BadTargetError(
                f"{reader.name}: {column[row].as_py()!r} stands {place}, which must hold numbers"
            ) from None
    bad = np.flatnonzero(~np.isfinite(numbers))
    if bad.size:
        row = int(bad[0])
        raise _BadTargetError(describe_bad_number(float(numbers[row]), name, reader, first_row + row, target=True))
    return np.array(as_text(column).to_pylist(), dtype=str) if labels else np.array(numbers)


# --- a file that is decoded only once --------------------------------------------------------------------------------
class SpooledReader(TableReader):
    """Reads a file once into a spool, and every later batch, of at most `size` rows, from there.

    Columns are read in groups: decoding all of thousands of columns at once would need one page of each in memory.
    """

    def __init__(self, inner: TableReader, groups: list[list[str]], size: int, spool: Spool) -> None:
        super().__init__(inner.file)
        self._inner, self._spool, self._groups, self.notes = inner, spool, groups, inner.notes
        self.types = {}
        self._pieces: list[list[int]] = [[] for _ in groups]  # for every group, the number in the spool of every batch
        self._schemas: list[Any] = [None] * len(groups)
        heights: list[list[int]] = [[] for _ in groups]
        inner.check_unchanged()
        for g, group in enumerate(groups):
            for batch in inner.batches(group, size):
                batch = _without_dictionaries(batch)
                self._schemas[g] = batch.schema
                self._pieces[g].append(len(spool))
                heights[g].append(batch.num_rows)
                spool.append(np.frombuffer(batch.serialize(), np.uint8))
                self.types |= dict(zip(batch.schema.names, batch.schema.types, strict=True))
        inner.check_unchanged()
        with reading(self.name):
            if any(height != heights[0] for height in heights):
                raise ValueError("its columns differ in their number of rows")
        self.rows = sum(heights[0])

    def read(self, columns: list[str], size: int) -> Iterator[Any]:
        from pyarrow import RecordBatch, ipc, py_buffer

        wanted = set(columns)
        used = [g for g, group in enumerate(self._groups) if not wanted.isdisjoint(group)]
        for number in range(len(self._pieces[0])):
            found: dict[str, Any] = {}
            for g in used:
                (content,) = self._spool.read(self._pieces[g][number])
                batch = ipc.read_record_batch(py_buffer(content), self._schemas[g])
                found |= {name: batch.column(name) for name in self._groups[g] if name in wanted}
            yield from cut(RecordBatch.from_arrays([found[name] for name in columns], names=columns), size)

    def check_unchanged(self) -> None:
        """The file may change: it is not read again."""

    def place(self, row: int) -> str:
        return self._inner.place(row)


def _without_dictionaries(batch: Any) -> Any:
    """A batch with text instead of dictionaries, which a serialized batch does not contain."""
    arrays = [as_text(column) if kind_of(column.type) == CATEGORY else column for column in batch.columns]
    return import_arrow().RecordBatch.from_arrays(arrays, names=batch.schema.names)
