"""LIBSVM (SVMlight) files: scikit-learn parses pieces of them that end where a line does."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from .encoding import VERSION
from .storage import BROKEN, Budget, InputFile, OpenedFiles, Spool, first_failure, reading

PIECE = 1 << 22  # bytes of text parsed at once
UNLIMITED = 1 << 62
Arrays = tuple[NDArray[Any], ...]


def open_libsvm(
    files: list[InputFile], zero_based: bool | str, budget: Budget, encoding: dict[str, Any] | None = None
) -> OpenedFiles:
    """Sparse rows and their targets.

    `zero_based` says whether columns are numbered from 0 ("auto": if there is a column 0).  With the `encoding` of
    another file, columns after those of that file are left out, and "auto" means its numbering.
    """
    spool = budget.spool()
    if encoding is None:
        found = LibsvmRows(files, budget.per_block, spool, zero_based, widest=budget.memory // 8)
        known = {"version": VERSION, "kind": "libsvm", "features": found.shape[1], "zero_based": found.zero_based}
        notes = []
        if zero_based == "auto" and 0 < found.rows_with_column_0 < found.shape[0]:
            notes.append(
                f"{files[0].name}: columns count from 0, because {found.rows_with_column_0} of {found.shape[0]} rows "
                "have a column 0; if other rows count from 1, they are off by one column"
            )
        return OpenedFiles(found, found.y, None, known, notes, spool)
    d, based = encoding["features"], encoding["zero_based"] if zero_based == "auto" else zero_based
    found = LibsvmRows(files, budget.per_block, spool, based, d)
    notes = [
        f"{name}: there is no column 0, but the model's data count columns from 0; if this file counts from 1, all "
        "columns are off by one: zero_based=False reads it so"
        for name, first in found.first_columns.items()
        if zero_based == "auto" and based and first > 0
    ]
    if found.left_out:
        notes.append(
            f"{files[0].name}: {found.left_out} numbers are in columns after the {d} known ones and are left out"
        )
    return OpenedFiles(found, found.y, None, encoding, notes, spool)


class LibsvmRows:
    """Sparse rows.  The text is parsed once and held as CSR in the spool; without a spool, in every pass.

    `room` is the approximate number of bytes of a block.  If the number of columns is known (`features`), numbers in
    later columns are left out, and counted in `left_out`; otherwise there may be at most `widest` columns.
    """

    def __init__(
        self,
        files: list[InputFile],
        room: int,
        spool: Spool | None,
        zero_based: bool | str,
        features: int | None = None,
        widest: int = UNLIMITED,
    ) -> None:
        self._files, self._room, self._spool = files, room, spool
        self._one_based = zero_based is False  # then scikit-learn subtracts 1, and refuses a column 0
        self._limit, self._widest = UNLIMITED if features is None else features, widest
        self.left_out, self.entries, self.rows_with_column_0, last = 0, 0, 0, -1
        self.first_columns: dict[str, int] = {}  # the lowest column number in every file, as it is written there
        targets = []
        for data, indices, indptr, y in self._parsed():
            targets.append(y)
            self.entries += data.size
            last = max(last, int(indices.max(initial=-1)))
            if spool is not None:
                spool.append(data, indices, indptr)
        if zero_based == "auto":
            self._refuse_mixed_numbering()
        self.zero_based = 0 in self.first_columns.values() if zero_based == "auto" else bool(zero_based)
        self._shift = 0 if self.zero_based or self._one_based else 1
        self.y = np.concatenate(targets) if targets else np.empty(0)
        self.shape = (self.y.size, features if features is not None else last + 1 - self._shift)
        if self.shape[0] == 0 or self.shape[1] <= 0:
            rows, columns = self.shape[0], max(0, self.shape[1])
            raise ValueError(f"{files[0].name} cannot be read as LIBSVM: it holds {rows} rows and {columns} columns")

    def _refuse_mixed_numbering(self) -> None:
        bases = {first == 0: name for name, first in reversed(self.first_columns.items())}
        if len(bases) > 1:
            raise ValueError(
                f"{bases[True]} has a column 0, but {bases[False]} has none: if both count their columns from 0, say "
                "zero_based=True; if one counts from 1, write it again"
            )

    def blocks(self, wanted: NDArray[np.int64] | None, room: int) -> Iterator[Any]:
        from scipy import sparse

        width = self.shape[1] if wanted is None else len(wanted)
        if self._spool is not None:
            pieces: Iterator[Arrays] = map(self._spool.read, range(len(self._spool)))
        else:
            pieces = (piece[:3] for piece in self._parsed())
        for data, indices, indptr in pieces:
            indices = indices - indices.dtype.type(self._shift) if self._shift else indices
            if wanted is not None:
                data, indices, indptr = _select(data, indices, indptr, wanted)
            yield sparse.csr_matrix((data, indices, indptr), shape=(indptr.size - 1, width), copy=False)

    def _parsed(self) -> Iterator[Arrays]:
        """Blocks of about `room` bytes: numbers, columns (as numbered in the file), ends of rows, targets."""
        held: list[Arrays] = []
        size = 0
        for file in self._files:
            file.check_unchanged()
            lines = 0
            for text in _pieces(file):
                part = self._parse(text, file.name, lines)
                lines += text.count(b"\n")
                held.append(part)
                size += 16 * part[0].size + 16 * part[3].size
                if size >= self._room:
                    yield _joined(held)
                    held, size = [], 0
            file.check_unchanged()
        if held:
            yield _joined(held)

    def _parse(self, text: bytes, name: str, lines: int) -> Arrays:
        """The rows in a piece of text, which starts after `lines` lines of the file."""
        try:
            rows, y = _load(text, not self._one_based)
        except BROKEN as error:
            split = text.split(b"\n")
            bad = first_failure(len(split), lambda low, high: _load(b"\n".join(split[low:high]), not self._one_based))
            raise ValueError(
                f"{name} cannot be read as LIBSVM: line {lines + bad + 1}: {_explain(error)}: {_shortened(split[bad])}"
            ) from None
        data, indices, indptr = rows.data, rows.indices, rows.indptr
        if not np.isfinite(y).all():
            row = int(np.argmin(np.isfinite(y)))
            line = lines + _line_of(text, row)
            raise ValueError(f"{name}: line {line}: the target is {y[row]}: numbers must be finite")
        if not np.isfinite(data).all():
            self._refuse(text, name, lines, rows, int(np.argmin(np.isfinite(data))))
        if indices.size:
            first, last = int(indices.min()) + self._one_based, int(indices.max())
            self.first_columns[name] = min(first, self.first_columns.get(name, UNLIMITED))
            self.rows_with_column_0 += int((indices == 0).sum()) if first == 0 else 0
            if last >= self._limit:
                known = rows[:, : self._limit]
                self.left_out += rows.nnz - known.nnz
                data, indices, indptr = known.data, known.indices, known.indptr
            elif self._limit == UNLIMITED and last >= self._widest:
                self._refuse(text, name, lines, rows, int(np.argmax(indices)))
        return data, indices.astype(np.int32), indptr, y  # scikit-learn reads columns below 2^31 only

    def _refuse(self, text: bytes, name: str, lines: int, rows: Any, at: int) -> NoReturn:
        """Raise an error about the stored entry `at`, which is not finite or too far to the right."""
        line = lines + _line_of(text, int(np.searchsorted(rows.indptr, at, side="right")) - 1)
        column, value = int(rows.indices[at]) + self._one_based, rows.data[at]
        if not np.isfinite(value):
            raise ValueError(f"{name}: line {line}: column {column} is {value}: numbers must be finite")
        raise ValueError(
            f"{name}: line {line}: column {column} is too far: memory= has room for {self._widest} numbers, and each "
            "column needs one"
        )


def _joined(parts: list[Arrays]) -> Arrays:
    """Several blocks as one."""
    data, indices, _, y = (np.concatenate([part[i] for part in parts]) for i in range(4))
    counts = np.concatenate([np.diff(part[2]) for part in parts])
    ends = np.concatenate([[0], np.cumsum(counts)])
    return data, indices, ends.astype(np.int32 if data.size < 2**31 else np.int64), y


def _select(data: Any, indices: Any, indptr: Any, wanted: NDArray[np.int64]) -> Arrays:
    """CSR arrays of the wanted columns, which are in ascending order.

    SciPy's ``A[:, wanted]`` would allocate one number per column of A.
    """
    at = np.minimum(np.searchsorted(wanted, indices), len(wanted) - 1)
    keep = np.asarray(wanted)[at] == indices
    ends = np.concatenate([[0], np.cumsum(keep)]).astype(indptr.dtype)
    return data[keep], at[keep].astype(indices.dtype), ends[indptr]


def _pieces(file: InputFile) -> Iterator[bytes]:
    """The text in pieces that end where a line does."""
    rest = b""
    with reading(file.name), file.open() as opened:
        while text := opened.read(PIECE):
            cut = text.rfind(b"\n") + 1
            if cut:
                yield rest + text[:cut]
                rest = text[cut:]
            else:
                rest += text
    if rest:
        yield rest


def _load(text: bytes, zero_based: bool) -> tuple[Any, NDArray[np.float64]]:
    from sklearn.datasets import load_svmlight_file

    return load_svmlight_file(io.BytesIO(text), zero_based=zero_based)


def _line_of(text: bytes, row: int) -> int:
    """The line, from 1, of a row: empty lines and comments are not rows."""
    rows = [number for number, line in enumerate(text.split(b"\n"), 1) if line.partition(b"#")[0].strip()]
    return rows[row]


def _explain(error: Exception) -> str:
    text = " ".join(str(error).split())
    if isinstance(error, OverflowError):
        return "a column number is too large"
    if "Invalid index 0" in text:
        return "there is a column 0, but columns are to count from 1 here; zero_based=True counts them from 0"
    return "a number, a colon and a number are needed" if "unpack" in text else text


def _shortened(line: bytes) -> str:
    text = line.decode("utf-8", "replace").strip()
    return repr(text if len(text) <= 60 else text[:57] + "...")
