"""Files that are whole or not there."""

from __future__ import annotations

import os
from pathlib import Path


def write_whole(path: Path, content: bytes) -> None:
    """Write a file in one move: whoever reads it sees the old one or the new one."""
    spare = path.with_name(f".{path.name}.new")
    try:
        spare.write_bytes(content)
        os.replace(spare, path)
    finally:
        spare.unlink(missing_ok=True)
