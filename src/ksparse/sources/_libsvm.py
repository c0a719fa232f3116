"""LIBSVM (SVMlight) files: scikit-learn parses pieces of them, cut at the ends of lines."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._inputs import BROKEN, Input, reading
from ._spool import Spool

PIECE = 1 << 22  # bytes of text parsed at once
UNSEEN = 1 << 62


class LibsvmRows:
    """Sparse rows.  The text is parsed once and kept as CSR, unless there is no spool to keep it.

    Parameters
    ----------
    files : list of Input
    room : int
        About how many bytes a block takes.
    spool : Spool or None
    zero_based : bool or "auto"
        Whether columns count from 0; "auto": if there is a column 0 in any line of any file.
    features : int, optional
        The number of columns; later ones are left out (`left_out` says how many numbers were).
    widest : int
        The most columns there may be: so many numbers fit into memory.

    Attributes
    ----------
    least : dict
        The first column of each file that has any, as it stands there.
    firsts : int
        How many rows have a number in column 0.
    """

    def __init__(
        self,
        files: list[Input],
        room: int,
        spool: Spool | None,
        zero_based: bool | str = "auto",
        features: int | None = None,
        widest: int = UNSEEN,
    ) -> None:
        self._files, self._room, self._spool = files, room, spool
        self._one_based = zero_based is False  # then scikit-learn takes the 1 off, and refuses a column 0
        self._limit, self._widest = UNSEEN if features is None else features, widest
        self.left_out, self.entries, self.firsts, most = 0, 0, 0, -1
        self.least: dict[str, int] = {}
        targets = []
        for data, indices, indptr, y in self._parsed():
            targets.append(y)
            self.entries += data.size
            if indices.size:
                most = max(most, int(indices.max()))
            if spool is not None:
                spool.append(data, indices, indptr)
        if zero_based == "auto":
            self._refuse_mixed()
        self.zero_based = 0 in self.least.values() if zero_based == "auto" else bool(zero_based)
        self._shift = 0 if self.zero_based or self._one_based else 1
        self.y = np.concatenate(targets) if targets else np.empty(0)
        self.shape = (self.y.size, features if features is not None else most + 1 - self._shift)
        if self.shape[0] == 0 or self.shape[1] <= 0:
            rows, columns = self.shape[0], max(0, self.shape[1])
            raise ValueError(f"{files[0].name} cannot be read as LIBSVM: it holds {rows} rows and {columns} columns")

    def _refuse_mixed(self) -> None:
        """A file that counts from 1 beside one that counts from 0 would be off by a column."""
        bases = {least == 0: name for name, least in reversed(self.least.items())}
        if len(bases) > 1:
            raise ValueError(
                f"{bases[True]} has a column 0, but {bases[False]} has none: if both count their columns from 0, say "
                "zero_based=True; if one counts from 1, write it anew"
            )

    def blocks(self, wanted: NDArray[np.int64] | None, room: int) -> Iterator[Any]:
        from scipy import sparse

        width = self.shape[1] if wanted is None else len(wanted)
        pieces: Iterator[Any]
        if self._spool is not None:
            pieces = (self._spool.read(i) for i in range(len(self._spool)))
        else:
            pieces = ((data, indices, indptr) for data, indices, indptr, _ in self._parsed())
        for data, indices, indptr in pieces:
            indices = indices - indices.dtype.type(self._shift) if self._shift else indices
            if wanted is not None:
                data, indices, indptr = _chosen(data, indices, indptr, wanted)
            yield sparse.csr_matrix((data, indices, indptr), shape=(indptr.size - 1, width), copy=False)

    def _parsed(self) -> Iterator[tuple[NDArray[Any], ...]]:
        """Blocks: numbers, columns (as they stand in the file), ends of rows, targets."""
        held: list[tuple[NDArray[Any], ...]] = []
        size = 0
        for file in self._files:
            file.check_same()
            lines = 0
            for text in _pieces(file):
                part = self._parse(text, file.name, lines)
                lines += text.count(b"\n")
                held.append(part)
                size += 16 * part[0].size + 16 * part[3].size
                if size >= self._room:
                    yield _joined(held)
                    held, size = [], 0
            file.check_same()
        if held:
            yield _joined(held)

    def _parse(self, text: bytes, name: str, lines: int) -> tuple[NDArray[Any], ...]:
        try:
            rows, y = _load(text, not self._one_based)
        except BROKEN as error:
            line = _first_bad(text, not self._one_based)
            raise ValueError(
                f"{name} cannot be read as LIBSVM: line {lines + line + 1}: {_in_words(error)}: "
                f"{_shown(text.split(chr(10).encode())[line])}"
            ) from None
        data, indices, indptr = rows.data, rows.indices, rows.indptr
        if not np.isfinite(data).all() or not np.isfinite(y).all():
            self._refuse(text, name, lines, rows, y)
        if indices.size:
            least = int(indices.min()) + self._one_based
            self.least[name] = min(least, self.least.get(name, UNSEEN))
            self.firsts += int((indices == 0).sum()) if least == 0 else 0
        if indices.size and self._limit == UNSEEN and int(indices.max()) >= self._widest:
            self._refuse_width(text, name, lines, rows)
        if indices.size and int(indices.max()) >= self._limit:
            keep = indices < self._limit
            self.left_out += int((~keep).sum())
            ends = np.concatenate([[0], np.cumsum(keep)])
            data, indices, indptr = data[keep], indices[keep], ends[indptr]
        return data, indices.astype(np.int32), indptr, y  # scikit-learn reads columns below 2^31 only

    def _refuse_width(self, text: bytes, name: str, lines: int, rows: Any) -> None:
        at = int(np.argmax(rows.indices))
        line = lines + _line_of(text, int(np.searchsorted(rows.indptr, at, side="right")) - 1) + 1
        column = int(rows.indices[at]) + self._one_based
        raise ValueError(
            f"{name}: line {line}: column {column} is too far: memory= has room for {self._widest} numbers, and each "
            "column needs one"
        )

    def _refuse(self, text: bytes, name: str, lines: int, rows: Any, y: NDArray[np.float64]) -> None:
        """Name the first number that is not finite."""
        bad = np.flatnonzero(~np.isfinite(y))
        if bad.size:
            row, what, value = int(bad[0]), "the target", y[bad[0]]
        else:
            at = int(np.flatnonzero(~np.isfinite(rows.data))[0])
            row = int(np.searchsorted(rows.indptr, at, side="right")) - 1
            what, value = f"column {int(rows.indices[at]) + self._one_based}", rows.data[at]
        line = lines + _line_of(text, row) + 1
        raise ValueError(f"{name}: line {line}: {what} is {value}: numbers must be finite")


def _joined(parts: list[tuple[NDArray[Any], ...]]) -> tuple[NDArray[Any], ...]:
    """One block of several."""
    data, indices, _, y = (np.concatenate([part[i] for part in parts]) for i in range(4))
    counts = np.concatenate([np.diff(part[2]) for part in parts])
    ends = np.concatenate([[0], np.cumsum(counts)])
    return data, indices, ends.astype(np.int32 if data.size < 2**31 else np.int64), y


def _chosen(data: Any, indices: Any, indptr: Any, wanted: Any) -> tuple[Any, Any, Any]:
    """The part of rows in some columns; in ascending order."""
    at = np.minimum(np.searchsorted(wanted, indices), len(wanted) - 1)
    keep = np.asarray(wanted)[at] == indices
    ends = np.concatenate([[0], np.cumsum(keep)]).astype(indptr.dtype)
    return data[keep], at[keep].astype(indices.dtype), ends[indptr]


def _pieces(file: Input) -> Iterator[bytes]:
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


def _first_bad(text: bytes, zero_based: bool) -> int:
    """The first line that cannot be parsed, found by halves."""
    lines = text.split(b"\n")
    low, high = 0, len(lines)  # the lines before `low` are fine, one before `high` is not
    while high - low > 1:
        middle = (low + high) // 2
        try:
            _load(b"\n".join(lines[low:middle]), zero_based)
            low = middle
        except BROKEN:
            high = middle
    return low


def _line_of(text: bytes, row: int) -> int:
    """The line of a row: empty lines and comments are none."""
    at = [number for number, line in enumerate(text.split(b"\n")) if line.partition(b"#")[0].strip()]
    return at[row]


def _in_words(error: Exception) -> str:
    text = " ".join(str(error).split())
    if isinstance(error, OverflowError):
        return "a column number is too large"
    if "Invalid index 0" in text:
        return "there is a column 0, but columns are to count from 1 here; zero_based=True counts them from 0"
    return "a number, a colon and a number are needed" if "unpack" in text else text


def _shown(line: bytes) -> str:
    text = line.decode("utf-8", "replace").strip()
    return repr(text if len(text) <= 60 else text[:57] + "...")
