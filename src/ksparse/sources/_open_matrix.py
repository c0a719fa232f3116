"""Files without names of columns, opened: LIBSVM and NumPy's."""

from __future__ import annotations

from typing import Any

from ._arrays import open_npy, open_npz
from ._encoding import VERSION
from ._inputs import Input
from ._libsvm import LibsvmRows
from ._opened import Means, Opened


def open_matrix(kind: str, files: list[Input], target: Any, zero_based: bool | str, means: Means) -> Opened:
    """A matrix and its targets."""
    if kind == "npy":
        rows, at = open_npy(files[0], target, means.memory)
        return Opened(rows, rows.y, at, _array(rows.shape[1], at if isinstance(at, int) else None), [])
    if target is not None and target is not False:
        raise ValueError(f"target is for files with names of columns, {files[0].name} has its own; got {target!r}")
    if kind == "npz":
        rows = open_npz(files[0], means.memory)
        return Opened(rows, rows.y, None, _array(rows.shape[1], None), [])
    spool = means.spool()
    found = LibsvmRows(files, means.most, spool, zero_based, widest=means.memory // 8)
    encoding = {"version": VERSION, "kind": "libsvm", "features": found.shape[1], "zero_based": found.zero_based}
    notes = []
    if zero_based == "auto" and 0 < found.firsts < found.shape[0]:
        notes.append(
            f"{files[0].name}: columns count from 0, for {found.firsts} of {found.shape[0]} rows have a column 0; if "
            "other rows count from 1, they are off by a column"
        )
    return Opened(found, found.y, None, encoding, notes, spool)


def _doubt(name: str) -> str:
    return (
        f"{name}: there is no column 0, but the model's data count columns from 0; if this file counts from 1, all are "
        "off by one: zero_based=False reads it so"
    )


def _array(features: int, target: int | None) -> dict[str, Any]:
    return {"version": VERSION, "kind": "array", "features": features, "target": target}


def like_matrix(
    kind: str, files: list[Input], encoding: dict[str, Any], means: Means, zero_based: bool | None = None
) -> Opened:
    """Another file, whose columns must be those of the first; `zero_based` if this one counts them differently."""
    file, d = files[0], encoding["features"]
    if kind == "libsvm":
        spool = means.spool()
        based = encoding["zero_based"] if zero_based is None else zero_based
        found = LibsvmRows(files, means.most, spool, based, d)
        notes = []
        if zero_based is None and based:
            notes = [_doubt(name) for name, least in found.least.items() if least > 0]
        if found.left_out:
            notes.append(
                f"{file.name}: {found.left_out} numbers stand in columns behind the {d} known ones and are left out"
            )
        return Opened(found, found.y, None, encoding, notes, spool)
    if zero_based is not None:
        raise ValueError(f"zero_based is for LIBSVM files, got it with {file.name}")
    at = encoding["target"]
    if kind == "npz":
        rows = open_npz(file, means.memory, optional=True)
    else:
        rows, _ = open_npy(file, False, means.memory)
        if rows.shape[1] == d + 1 and at is not None:  # the targets came along
            rows, _ = open_npy(file, at, means.memory)
    if rows.shape[1] != d:
        raise ValueError(f"{file.name} must hold {d} columns, as the model's data did, got {rows.shape[1]}")
    return Opened(rows, rows.y, None if rows.y is None else at, encoding, [])
