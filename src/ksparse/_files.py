"""Files that survive a kill: written in one move, down on the disk, and locked against a second writer."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows: nothing there keeps two runs apart
    fcntl = None  # type: ignore[assignment]

FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}


def disk_is_full(error: OSError) -> bool:
    """Whether the disk is to blame, or broken: another argument would not help."""
    return error.errno in FULL


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A name beside `path` to write to: it takes the place of `path` at the end, or vanishes if there is an error."""
    spare = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        yield spare
        os.replace(spare, path)
    except OSError as error:
        error.filename = error.filename or str(path)  # a full disk does not say which file it was
        raise
    finally:
        spare.unlink(missing_ok=True)


def write_whole(path: Path, content: bytes) -> None:
    """Write a file in one move: whoever reads it sees the old one or the new one."""
    with whole_file(path) as spare:
        spare.write_bytes(content)


def spare_name(path: Path) -> Path:
    """Where the content of a file is made, in the same folder, before it takes the file's place."""
    return path.with_name(f".{path.name}.new")


def open_locked(path: Path, remedy: str) -> int:
    """A descriptor to append with, locked: two runs that write one file would do everything twice."""
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
        os.close(file)  # replaced between opening and locking: once more


def replace_locked(path: Path, content: bytes, old: int, remedy: str) -> int:
    """Put content in the place of a file in one move; the new file is on the disk, and locked, before anybody can see
    it.  Takes the descriptor of the old file, which it closes, and gives that of the new one."""
    spare = spare_name(path)
    new = open_locked(spare, remedy)
    try:
        os.ftruncate(new, 0)  # a kill may have left the beginning of one
        write_all(new, content)
        if fcntl is None:  # Windows does not replace a file that is open
            os.close(new)
            os.close(old)
            os.replace(spare, path)
            return os.open(path, os.O_RDWR | os.O_APPEND)
        os.replace(spare, path)
    except BaseException as error:
        with suppress(OSError):
            os.close(new)
        spare.unlink(missing_ok=True)
        if isinstance(error, OSError):
            error.filename = error.filename or str(path)  # a full disk does not say which file it was
        raise
    sync_folder(path.parent)
    os.close(old)
    return new


def lock(file: int, path: Path, remedy: str) -> bool:
    """Whether it is locked now: some file systems have no locks."""
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
    """Write to a descriptor, and to the disk."""
    view = memoryview(content)
    while view:
        view = view[os.write(file, view) :]
    os.fsync(file)


def sync_folder(folder: Path) -> None:
    """Names, too, reach the disk only when told; where a folder cannot be opened, the system does it by itself."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
