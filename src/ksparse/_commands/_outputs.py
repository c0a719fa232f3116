"""Files that commands write: refused before the work begins if they cannot be, and then complete or not there."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .._files import disk_is_full
from ._session import NOTHING, Session


def check_outputs(data: list[str], **paths: str | None) -> dict[str, Path]:
    """The paths that are given, with links followed.

    Refused are folders, files in folders that are not there, files that may not be written, one file for two things,
    and what the command reads.
    """
    found: dict[str, Path] = {}
    for option, given in paths.items():
        if given is None:
            continue
        name = f"--{option.replace('_', '-')}"
        path = Path(os.path.realpath(given))
        if given in ("", "-") or path.is_dir() or given.endswith(os.sep):
            raise ValueError(f"{name} must be a file, got {given!r}{', which is a folder' * path.is_dir()}")
        if not path.parent.is_dir():
            raise ValueError(f"{name} {given!r} cannot be written: the folder {str(path.parent)!r} is not there")
        if path.exists() and not path.is_file():
            raise ValueError(f"{name} {given!r} cannot be written: it is no plain file")
        if path.exists() and not os.access(path, os.W_OK):
            raise ValueError(f"{name} {given!r} cannot be written: permission denied")
        try:
            tempfile.TemporaryFile(dir=path.parent).close()
        except OSError as error:
            if disk_is_full(error):
                raise OSError(error.errno, error.strerror, given) from None
            reason = (error.strerror or str(error)).lower()
            raise ValueError(f"{name} {given!r} cannot be written: {reason}") from None
        for other, taken in found.items():
            if taken == path:
                raise ValueError(f"{name} and --{other} are the same file, {given!r}; give each its own")
        for source in data:
            if source != "-" and _belongs(path, Path(os.path.realpath(source))):
                raise ValueError(f"{name} {given!r} would be written over what is read, {source!r}; take another name")
        found[option] = path
    return found


def _belongs(path: Path, source: Path) -> bool:
    return path == source or source in path.parents or (path.exists() and source.exists() and path.samefile(source))


@contextmanager
def kept(file: Path | None, identity: dict[str, Any], work: Session) -> Iterator[None]:
    """Around the fits and their files: stages are kept in a file, which goes once all is done."""
    if file is None:
        yield
        return
    from ..engine.checkpoint import checkpoint

    work.kept = lambda: (
        f"{file} keeps the stages written to it, the same command goes on from there" if file.exists() else NOTHING
    )
    with checkpoint(file, identity) as saved:
        if saved.resumed:
            work.note(f"going on from {file}: {saved.resumed}")
        yield
    if file.exists():
        work.note(f"{file} stays, for a fit ran out of time: the same command goes on from there")
