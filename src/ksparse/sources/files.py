"""Rows from files, in blocks: Parquet, Arrow, CSV, LIBSVM and NumPy's own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._validate import check_choice, check_flag
from ..design.blocks import MEMORY, Source
from ._encoding import MISSING, check_delimiter, check_encoding, table_encoding
from ._inputs import find_inputs
from ._kept import Kept, has_room
from ._memory import check_memory
from ._open_matrix import like_matrix, open_matrix
from ._open_table import Wish, open_table
from ._opened import Means, Opened, check_cache
from ._table import Table


class Files(Source):
    """Rows of files, read in blocks as often as they are wanted; made by `open_files`.

    Attributes
    ----------
    names : list of str or None
        Of the columns, a category as ``colour=red``; None for formats without names.
    y : array or None
        The targets: numbers, or labels as text.
    target : str, int or None
        Where they come from.
    encoding : dict
        How columns became numbers, in plain JSON: `Files.like` reads another file the same way.
    notes : list of str
        What a reader should know: values that were not known, columns that were left out.
    """

    def __init__(self, opened: Opened, means: Means) -> None:
        rows = opened.rows
        super().__init__(
            rows.shape, getattr(rows, "dtype", np.float64), sparse=hasattr(rows, "entries"),
            entries=getattr(rows, "entries", None), names=getattr(rows, "names", None), y=opened.y, memory=means.memory,
        )  # fmt: skip
        self.target, self.encoding, self.notes = opened.target, opened.encoding, opened.notes
        self._rows, self._spool, self._room = rows, opened.spool, means.room
        bulk = rows.shape[0] * rows.shape[1] * self.dtype.itemsize
        keep = isinstance(rows, Table) and means.cache is not False and has_room(bulk, means.folder)
        self._kept = Kept(rows.shape, self.dtype, means.folder) if keep else None

    def blocks(self, columns: NDArray[np.int64] | None = None) -> Iterator[Any]:
        if self._rows is None:
            raise ValueError("these files have been closed: open them again")
        if columns is None and self._kept is not None:
            return self._kept.blocks(lambda: self._rows.blocks(None, self._room), self.block_rows)
        return self._rows.blocks(columns, self._room)

    def close(self) -> None:
        """Forget the rows and remove what was kept of them; without it that happens when nobody uses them any more."""
        self._rows = None
        for place in (self._spool, self._kept):
            if place is not None:
                place.close()

    def __enter__(self) -> Files:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        n, d = self.shape
        return f"Files({n} rows, {d} columns{', sparse' * self.sparse}, target={self.target!r})"

    @staticmethod
    def like(
        path: Any,
        encoding: dict[str, Any],
        *,
        target_optional: bool = True,
        zero_based: bool | None = None,
        format: str | None = None,
        cache: bool | str | Path = True,
        memory: int | str = MEMORY,
    ) -> Files:
        """Open another file so that its columns mean the same.

        A column that is not there is an error; columns that are not needed are left out; a category that is not known
        becomes zeros, which `notes` tells.

        Parameters
        ----------
        path, format, cache, memory
            As for `open_files`.
        encoding : dict
            `Files.encoding` of the file that a model was fitted on.
        target_optional : bool
            Whether the file may lack the target, or hold some that are missing or no numbers; then `y` is None.
        zero_based : bool, optional
            Whether the columns of a LIBSVM file count from 0, if not as those of the first file.

        Examples
        --------
        >>> import tempfile
        >>> from pathlib import Path
        >>> from ksparse.sources import Files, open_files
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = Path(folder, "a.csv").write_text("size,colour,price\\n1,red,3\\n2,blue,4\\n")
        ...     _ = Path(folder, "b.csv").write_text("colour,size\\nred,5\\ngreen,6\\n")
        ...     encoding = open_files(Path(folder, "a.csv")).encoding
        ...     other = Files.like(Path(folder, "b.csv"), encoding)
        ...     print(other.names, other.notes, other.load().tolist())
        ['size', 'colour=blue', 'colour=red'] ["b.csv: column 'colour': 'green' (1 row) is none of the known categories
        and becomes zeros"] [[5.0, 0.0, 1.0], [6.0, 0.0, 0.0]]
        """
        encoding, means = check_encoding(encoding), Means(check_memory(memory), check_cache(cache))
        check_flag(target_optional, "target_optional")
        if zero_based is not None:
            check_flag(zero_based, "zero_based")
        known = table_encoding(encoding) if encoding["kind"] == "table" else None
        kind, files = find_inputs(path, format, means.folder)
        if _family(kind) != encoding["kind"]:
            raise ValueError(
                f"{files[0].name} is {_WORDS[_family(kind)]}, but the model's data were {_WORDS[encoding['kind']]}: "
                "columns cannot be matched"
            )
        if known is None:
            return Files(like_matrix(kind, files, encoding, means, zero_based), means)
        if zero_based is not None:
            raise ValueError(f"zero_based is for LIBSVM files, got it with {files[0].name}")
        wish = Wish(missing=known.missing, na=known.na, delimiter=known.delimiter)
        return Files(open_table(kind, files, wish, means, known, target_optional), means)


def open_files(
    path: Any,
    *,
    target: str | int | bool | Path | None = None,
    columns: Sequence[str] | None = None,
    drop: Sequence[str] | None = None,
    categories: Sequence[str] = (),
    missing: str = "error",
    na: Sequence[str] = (),
    delimiter: str | None = None,
    zero_based: bool | str = "auto",
    format: str | None = None,
    cache: bool | str | Path = True,
    memory: int | str = MEMORY,
) -> Files:
    """Open a file, or a folder of files of one format in the order of their names, as rows in blocks.

    Folders inside it whose names tell a column, such as ``year=2020``, are read too (tables are often written so): the
    column comes before those of the files, as numbers if all its values are.

    Parameters
    ----------
    path : str or Path
        ``.parquet``; ``.arrow`` or ``.feather``; ``.csv`` or ``.tsv`` with a header; ``.svm``, ``.svmlight`` or
        ``.libsvm``; ``.npy`` with a matrix; ``.npz`` with the arrays A (or X) and y.  Text also in ``.gz`` or ``.bz2``.
        "-" is the standard input (CSV, LIBSVM, or a stream of Arrow), for which `format` must be given.
    target : str, int, Path or False, optional
        The column to predict, the last by default; False for none.  For .npy files a column's number or another .npy
        file.  LIBSVM and .npz files have theirs.
    columns : list of str, optional
        The columns to use, all by default.
    drop : list of str, optional
        Columns to leave out.
    categories : list of str
        Columns of numbers that are categories nevertheless.  Text, dictionaries and booleans always are: each of their
        values becomes a column of zeros and ones, such as ``colour=red``.
    missing : {"error", "mean", "zero"}
        What to do with missing values (NaN, NULL, an empty field, "NA"): refuse them with their place, or put the
        column's mean or zero there.  A missing category is then zero in all columns of its values.
    na : list of str
        Further texts of a CSV file that mean a missing value, such as "?".
    delimiter : str, optional
        Of a CSV file, if it is another than the comma (.csv) or the tabulator (.tsv).
    zero_based : bool or "auto"
        Whether the columns of a LIBSVM file count from 0; "auto": if there is a column 0 anywhere.
    format : str, optional
        "parquet", "arrow", "csv", "tsv", "libsvm", "npy" or "npz", if the name does not tell.
    cache : bool or path
        Text is parsed once: what does not fit into a quarter of the memory goes to a temporary file without a name,
        in this folder if one is given.  So are the rows of a table once they are decoded, if the machine has twice
        the room for them, on the disk and in memory that nobody needs.  False: all is done in every pass.
    memory : int or str
        What work on the rows may take, such as 2**30 or "1GB".

    Returns
    -------
    Files

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from ksparse.sources import open_files
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     table = Path(folder, "houses.csv")
    ...     _ = table.write_text("size,colour,price\\n1,red,3\\n2.5,blue,4\\n,red,5\\n")
    ...     houses = open_files(table, target="price", missing="mean")
    >>> houses.names, houses.y.tolist()
    (['size', 'colour=blue', 'colour=red'], [3.0, 4.0, 5.0])
    >>> houses.load()
    array([[1.  , 0.  , 1.  ],
           [2.5 , 1.  , 0.  ],
           [1.75, 0.  , 1.  ]])
    """
    means = Means(check_memory(memory), check_cache(cache))
    check_choice(missing, "missing", MISSING)
    if zero_based != "auto":
        check_flag(zero_based, "zero_based")
    check_delimiter(delimiter, "delimiter")
    lists = {"columns": columns, "drop": drop, "categories": categories, "na": na}
    chosen: dict[str, Any] = {name: _names(value, name) for name, value in lists.items()}
    kind, files = find_inputs(path, format, means.folder)
    if _family(kind) == "table":
        if not (target is None or target is False or isinstance(target, str)):
            raise ValueError(f"target must be the name of a column, got {target!r}")
        return Files(
            open_table(kind, files, Wish(target, missing=missing, delimiter=delimiter, **chosen), means), means
        )
    given = [name for name, value in chosen.items() if value]
    given += ["missing"] * (missing != "error") + ["delimiter"] * (delimiter is not None)
    if given:
        raise ValueError(
            f"{given[0]} is for files with named columns (Parquet, Arrow, CSV), got it with {files[0].name}"
        )
    return Files(open_matrix(kind, files, target, zero_based, means), means)


_WORDS = {"table": "a table with names of columns", "libsvm": "in LIBSVM format", "array": "a matrix of NumPy"}


def _family(kind: str) -> str:
    return {"libsvm": "libsvm", "npy": "array", "npz": "array"}.get(kind, "table")


def _names(value: Any, name: str) -> tuple[str, ...] | None:
    if value is None:
        return None
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise ValueError(f"{name} must be a list of names, got {value!r}")
    value = tuple(value)
    if not all(isinstance(item, str) for item in value):
        raise ValueError(f"{name} must be a list of names, got {value!r}")
    return value
