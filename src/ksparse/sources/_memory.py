"""How much memory: a number of bytes, or a text such as "2GB"."""

from __future__ import annotations

import re

from .._validate import check_count

UNITS = {"": 1, "B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}
LEAST = 1 << 20


def check_memory(memory: int | str) -> int:
    """The number of bytes.

    >>> check_memory("1.5GB"), check_memory("200 MB"), check_memory(2**24)
    (1610612736, 209715200, 16777216)
    """
    if isinstance(memory, str):
        found = re.fullmatch(r"\s*(\d+(?:\.\d*)?)\s*([KMGT]?)(?:I?B)?\s*", memory.upper())
        if found is None:
            raise ValueError(f"memory must be a number of bytes or a text such as '500MB' or '2GB', got {memory!r}")
        memory = int(float(found[1]) * UNITS[found[2] + "B"])
    size = check_count(memory, "memory")
    if size < LEAST:
        raise ValueError(f"memory must be at least 1MB, got {size} bytes")
    return size
