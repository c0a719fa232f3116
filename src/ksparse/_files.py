"""Files that a run adds to and that survive a kill: locked against a second writer, and flushed to the disk."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows, where files are not locked
    fcntl = None  # type: ignore[assignment]

FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}


def disk_is_full(error: OSError) -> bool:
    """Whether the disk is full or broken, so that the user's arguments are not to blame."""
    return error.errno in FULL


def spare_name(path: Path) -> Path:
    """The path, in the same folder, where the new content is written before it replaces the file."""
    return path.with_name(f".{path.name}.new")


def open_locked(path: Path, remedy: str) -> int:
    """A locked descriptor to append to a file, so that two runs cannot write the same file."""
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        try:
            if not lock(file, path, remedy):
                return file
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(file), path.stat()):
                    sync_folder(path.parent)
                    return file
        except BaseException:
            os.close(file)
            raise
        os.close(file)  # the file was replaced between opening and locking: try again


def replace_locked(path: Path, content: bytes, file: int, remedy: str) -> None:
    """Replace a locked file in one step; its descriptor is that of the new file afterwards.

    The new file is on the disk, and locked, before anybody can see it.  The descriptor keeps its number, so that an
    interrupt at any moment leaves its owner with an open file.
    """
    spare = spare_name(path)
    new = open_locked(spare, remedy)
    try:
        os.ftruncate(new, 0)  # a killed run may have left a part of one
        write_all(new, content)
        if fcntl is None:  # Windows does not replace a file that is open
            os.close(new)
            os.close(file)
            os.replace(spare, path)
            new = os.open(path, os.O_RDWR | os.O_APPEND)
        else:
            os.replace(spare, path)
    except BaseException as error:
        with suppress(OSError):
            os.close(new)
        spare.unlink(missing_ok=True)
        if isinstance(error, OSError):
            error.filename = error.filename or str(path)  # for a full disk, the error does not name the file
        raise
    sync_folder(path.parent)
    if new != file:
        os.dup2(new, file)  # which closes the old file; locks belong to what is open, not to its number
        os.close(new)


def lock(file: int, path: Path, remedy: str) -> bool:
    """Lock a file; returns False on file systems without locks, and refuses a file that another run has locked."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            raise ValueError(f"{path} is being written by another run; wait for it, or {remedy}") from None
        return False


def write_all(file: int, content: bytes) -> None:
    """Write to a descriptor, and flush to the disk."""
    view = memoryview(content)
    while view:
        view = view[os.write(file, view) :]
    os.fsync(file)


def sync_folder(folder: Path) -> None:
    """Flush the names in a folder to the disk; systems where a folder cannot be opened do it by themselves."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
