"""`open_files` and `Files`: rows from files of any format, read block by block; and which files a path means."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._validate import check_choice, check_flag
from ..design.blocks import MEMORY, Source
from .arrays import open_array
from .encoding import MISSING, TableRows, check_delimiter, check_encoding, table_encoding
from .libsvm import open_libsvm
from .storage import COMPRESSED, Budget, InputFile, OpenedFiles, RowCache, StandardInput, has_room, reading
from .tables import TableOptions, open_table

ENDINGS = {
    ".parquet": "parquet", ".arrow": "arrow", ".feather": "arrow", ".csv": "csv", ".tsv": "tsv", ".svm": "libsvm",
    ".svmlight": "libsvm", ".libsvm": "libsvm", ".npy": "npy", ".npz": "npz",
}  # fmt: skip
FORMATS = tuple(dict.fromkeys(ENDINGS.values()))
TEXT = ("csv", "tsv", "libsvm")
PIPED = (*TEXT, "arrow")
COLUMN_FOLDER = re.compile("[^=]+=")  # a folder whose name gives the value of a column, such as year=2020
FAMILIES = {"libsvm": "libsvm", "npy": "array", "npz": "array"}  # of formats; all others are tables
WORDS = {"table": "a table with names of columns", "libsvm": "in LIBSVM format", "array": "a matrix of NumPy"}


class Files(Source):
    """Rows of files, read block by block in every pass; made by `open_files`.

    Attributes
    ----------
    names : list of str or None
        Names of the columns, those of a category such as ``colour=red``; None for formats without names.
    y : array or None
        The targets: numbers, or labels as text.
    target : str, int or None
        The column or file that the targets come from.
    encoding : dict
        How columns became numbers, in plain JSON: `Files.like` reads another file in the same way.
    notes : list of str
        What the user should know, such as values that were not known or numbers that were left out.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from ksparse.sources import open_files
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "a.csv").write_text("size,price\\n1,3\\n2,4\\n")
    ...     with open_files(Path(folder, "a.csv")) as source:
    ...         print(source, [block.tolist() for block in source.blocks()])
    Files(2 rows, 1 columns, target='price') [[[1.0], [2.0]]]
    """

    def __init__(self, opened: OpenedFiles, budget: Budget) -> None:
        rows = opened.rows
        super().__init__(
            rows.shape, getattr(rows, "dtype", np.float64), sparse=hasattr(rows, "entries"),
            entries=getattr(rows, "entries", None), names=getattr(rows, "names", None), y=opened.y,
            memory=budget.memory,
        )  # fmt: skip
        self.target, self.encoding, self.notes = opened.target, opened.encoding, opened.notes
        self._rows, self._spool, self._room = rows, opened.spool, budget.per_dense_block
        size = rows.shape[0] * rows.shape[1] * self.dtype.itemsize
        cached = isinstance(rows, TableRows) and budget.cache is not False and has_room(size, budget.folder)
        self._cache = RowCache(rows.shape, self.dtype, budget.folder) if cached else None

    def blocks(self, columns: NDArray[np.int64] | None = None) -> Iterator[Any]:
        """The rows in blocks; only some columns (in ascending order) if they are given."""
        if self._rows is None:
            raise ValueError("these files have been closed: open them again")
        if columns is None and self._cache is not None:
            return self._cache.blocks(lambda: self._rows.blocks(None, self._room), self.block_rows)
        return self._rows.blocks(columns, self._room)

    def close(self) -> None:
        """Close the files and remove temporary ones; this also happens when the source is garbage-collected."""
        self._rows = None
        for place in (self._spool, self._cache):
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
        """Open another file so that its columns mean the same as those of the first one.

        A missing column is an error; columns that are not needed are left out; a category that is not known becomes
        zeros, which `notes` says.

        Parameters
        ----------
        path : str or Path
            A file or a folder of files, of any format of the same family: a table with names of columns (Parquet,
            Arrow, CSV), LIBSVM, or an array (.npy, .npz).
        encoding : dict
            `Files.encoding` of the file that a model was fitted on.
        target_optional : bool, default=True
            Whether targets may be absent, missing in some rows, or no numbers; then `y` is None.
        zero_based : bool, default=None
            Whether the columns of a LIBSVM file are numbered from 0; None: as in the first file.
        format : str, default=None
            "parquet", "arrow", "csv", "tsv", "libsvm", "npy" or "npz", if the file's name does not show it.
        cache : bool or path, default=True
            The folder for temporary files; True: the system's; False: no temporary files.
        memory : int or str, default=2**30
            Bytes that work on the rows may use, as a number or as a text such as "1GB".

        Returns
        -------
        Files

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
        encoding, budget = check_encoding(encoding), Budget.checked(memory, cache)
        check_flag(target_optional, "target_optional")
        if zero_based is not None:
            check_flag(zero_based, "zero_based")
        known = table_encoding(encoding) if encoding["kind"] == "table" else None
        kind, files = find_inputs(path, format, budget.folder)
        family = FAMILIES.get(kind, "table")
        if family != encoding["kind"]:
            raise ValueError(
                f"{files[0].name} is {WORDS[family]}, but the model's data were {WORDS[encoding['kind']]}: "
                "columns cannot be matched"
            )
        if family != "libsvm" and zero_based is not None:
            raise ValueError(f"zero_based is for LIBSVM files, got it with {files[0].name}")
        if family == "libsvm":
            return Files(open_libsvm(files, "auto" if zero_based is None else zero_based, budget, encoding), budget)
        if known is None:
            return Files(open_array(kind, files[0], None, budget.memory, encoding), budget)
        options = TableOptions(missing=known.missing, na=known.na, delimiter=known.delimiter)
        return Files(open_table(kind, files, options, budget, known, target_optional), budget)


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
    """Open a file, or all files of a folder sorted by name, as rows that are read block by block.

    Folders inside it that are named after a value of a column, such as ``year=2020``, are read too (Spark, Dask and
    pyarrow write tables so): that column comes before those of the files, as numbers if all its values are.

    Parameters
    ----------
    path : str or Path
        ``.parquet``; ``.arrow`` or ``.feather``; ``.csv`` or ``.tsv`` with a header; ``.svm``, ``.svmlight`` or
        ``.libsvm``; ``.npy`` with a matrix; ``.npz`` with the arrays A (or X) and y.  Text also in ``.gz`` or ``.bz2``.
        "-" is the standard input (CSV, LIBSVM, or a stream of Arrow), for which `format` must be given.
    target : str, int, Path or False, default=None
        The column to predict; None for the last one, False for none.  For .npy files a column's number or another
        .npy file.  LIBSVM and .npz files contain their targets.
    columns : list of str, default=None
        The columns to use; None for all.
    drop : list of str, default=None
        Columns to leave out.
    categories : list of str, default=()
        Columns of numbers to treat as categories.  Text, dictionaries and booleans always are categories: each of
        their values becomes a column of zeros and ones, such as ``colour=red``.
    missing : {"error", "mean", "zero"}, default="error"
        What to do with missing values (NaN, NULL, an empty field, "NA"): refuse them with their place, or replace
        them by the column's mean or by zero.  A missing category is then zero in all columns of its values.
    na : list of str, default=()
        Further texts of a CSV file that mean a missing value, such as "?".
    delimiter : str, default=None
        What separates the columns of a CSV file; None for the comma (.csv) or the tab character (.tsv).
    zero_based : bool or "auto", default="auto"
        Whether the columns of a LIBSVM file are numbered from 0; "auto": if there is a column 0 anywhere.
    format : str, default=None
        "parquet", "arrow", "csv", "tsv", "libsvm", "npy" or "npz", if the file's name does not show it.
    cache : bool or path, default=True
        The folder for temporary files; True for the system's.  Text is parsed once, and what does not fit into a
        quarter of the memory goes to a temporary file without a name.  So do the decoded rows of a table, if they
        take at most half of the free disk and of the free memory of the machine.  False: no temporary files, text is
        parsed and tables are decoded in every pass.
    memory : int or str, default=2**30
        Bytes that work on the rows may use, as a number or as a text such as "1GB".

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
    budget = Budget.checked(memory, cache)
    check_choice(missing, "missing", MISSING)
    if zero_based != "auto":
        check_flag(zero_based, "zero_based")
    check_delimiter(delimiter, "delimiter")
    lists = {"columns": columns, "drop": drop, "categories": categories, "na": na}
    chosen: dict[str, Any] = {name: _names(value, name) for name, value in lists.items()}
    kind, files = find_inputs(path, format, budget.folder)
    if kind not in FAMILIES:
        if not (target is None or target is False or isinstance(target, str)):
            raise ValueError(f"target must be the name of a column, got {target!r}")
        options = TableOptions(target, missing=missing, delimiter=delimiter, **chosen)
        return Files(open_table(kind, files, options, budget), budget)
    given = [name for name, value in chosen.items() if value]
    given += ["missing"] * (missing != "error") + ["delimiter"] * (delimiter is not None)
    if given:
        raise ValueError(
            f"{given[0]} is for files with named columns (Parquet, Arrow, CSV), got it with {files[0].name}"
        )
    if kind != "npy" and target is not None and target is not False:
        raise ValueError(f"target is for files with names of columns, {files[0].name} has its own; got {target!r}")
    if kind == "libsvm":
        return Files(open_libsvm(files, zero_based, budget), budget)
    return Files(open_array(kind, files[0], target, budget.memory), budget)


def _names(value: Any, name: str) -> tuple[str, ...] | None:
    if value is None:
        return None
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        value = tuple(value)
        if all(isinstance(item, str) for item in value):
            return value
    raise ValueError(f"{name} must be a list of names, got {value!r}")


# --- which files, of which format ------------------------------------------------------------------------------------
def find_inputs(path: Any, format: str | None, folder: str | Path | None) -> tuple[str, list[InputFile]]:
    """The format and the files of a path: one file, all files of a folder sorted by name, or the standard input.

    `folder` is where a copy of the standard input goes.
    """
    if format is not None:
        check_choice(format, "format", FORMATS)
    if not isinstance(path, (str, os.PathLike)):
        raise ValueError(f"path must be the path of a file or a folder, got {type(path).__name__}")
    if str(path) == "-":
        if format not in PIPED:
            got = "none" if format is None else repr(format)
            raise ValueError(
                f"format must be given to read the standard input, one of {', '.join(map(repr, PIPED))}; got {got}"
            )
        return format, [StandardInput(folder)]
    path = Path(path)
    if not os.path.lexists(path):
        raise ValueError(f"{str(path)!r} is not there: give a file, a folder of files, or - for the standard input")
    if not path.is_dir():
        if not path.is_file():
            InputFile(path)  # raises, and says what it is
        kind, compression = _format_of(path.name, format)
        return kind, [_checked(InputFile(path, compression))]
    found = [(file, *_format_of(file.name, format)) for file in _files_in(path, format)]
    if not found:
        raise ValueError(f"the folder {path.name!r} holds no file that ends in one of {', '.join(ENDINGS)}")
    kinds = sorted({kind for _, kind, _ in found})
    if len(kinds) > 1:
        raise ValueError(f"the folder {path.name!r} holds files of several formats ({', '.join(kinds)}): choose one")
    if kinds[0] in ("npy", "npz"):
        raise ValueError(f"{kinds[0]} files are read one at a time, got the folder {path.name!r}")
    inputs = [_checked(InputFile(file, compression, path)) for file, _, compression in found]
    nested = next((file for file in inputs if file.folder_values), None)
    if nested is not None and kinds[0] == "libsvm":
        raise ValueError(
            f"{nested.name} cannot be read: folders like year=2020 give columns of tables only, not of LIBSVM files"
        )
    return kinds[0], inputs


def _files_in(folder: Path, format: str | None) -> Iterator[Path]:
    """The files of a folder, sorted by name, including those in folders like ``year=2020``."""
    try:
        paths = sorted(entry for entry in folder.iterdir() if not entry.name.startswith((".", "_")))
    except OSError as error:
        raise ValueError(f"the folder {folder.name} cannot be read: {error.strerror}") from None
    for path in paths:
        if COLUMN_FOLDER.match(path.name) and path.is_dir():
            yield from _files_in(path, format)
        elif _ending(path.name)[0] or (format and not path.is_dir()):
            yield path


def _ending(name: str) -> tuple[str | None, str]:
    """Format and compression that a file's name shows."""
    suffixes = [suffix.lower() for suffix in Path(name).suffixes]
    compression = suffixes.pop() if suffixes and suffixes[-1] in COMPRESSED else ""
    return (ENDINGS.get(suffixes[-1]) if suffixes else None), compression


def _format_of(name: str, format: str | None) -> tuple[str, str]:
    kind, compression = _ending(name)
    kind = format or kind
    if kind is None or (compression and kind not in TEXT):
        raise ValueError(
            f"the name of a file must end in one of {', '.join(ENDINGS)} (text also in .gz or .bz2), got {name!r}; "
            "format= says what it is"
        )
    return kind, compression


def _checked(file: InputFile) -> InputFile:
    with reading(file.name), open(file.path, "rb") as opened:
        if not opened.read(1):
            raise ValueError("it is empty")
    return file
