"""What an opened file is, whatever its format, and what it may take."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from ..design.blocks import AHEAD, SHARE_OF_BLOCKS
from ._spool import Spool

SMALL, LARGE, ROWS = 1 << 22, 1 << 25, 4096  # bytes and rows of a dense block


class Opened(NamedTuple):
    """Rows, which have `shape` and ``blocks(columns, room)``, and what came with them."""

    rows: Any
    y: Any
    target: str | int | None
    encoding: dict[str, Any]
    notes: list[str]
    spool: Spool | None = None


class Means(NamedTuple):
    """Bytes that may be taken, and where temporary files go: a folder, False for nowhere, True for the usual place."""

    memory: int
    cache: bool | str | Path

    @property
    def share(self) -> int:
        """Bytes for all blocks at work."""
        return int(self.memory * SHARE_OF_BLOCKS)

    @property
    def most(self) -> int:
        """Bytes of one of them."""
        return self.share // (AHEAD + 3)

    @property
    def room(self) -> int:
        """Most bytes of a dense block."""
        return min(LARGE, self.most)

    @property
    def folder(self) -> str | Path | None:
        return None if isinstance(self.cache, bool) else self.cache

    def spool(self) -> Spool | None:
        return None if self.cache is False else Spool(self.share, self.folder)


def rows_of(row_bytes: int, room: int) -> int:
    """Rows of a dense block: small ones take less memory, but with few rows reading each column costs too much."""
    return max(1, min(room, max(SMALL, ROWS * row_bytes)) // row_bytes)


def check_cache(cache: Any) -> bool | str | Path:
    if isinstance(cache, bool) or (isinstance(cache, str | Path) and Path(cache).is_dir()):
        return cache
    raise ValueError(f"cache must be True, False or a folder that is there, got {str(cache)!r}")
