"""Read-only arrays that were sent, and what was made of each."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")
MOST = 8  # arrays that are remembered: targets, weights, and a few more


class Sent(Generic[T]):
    """What was made of the last few arrays.

    They are known by their numbers, so that the targets of the next fit are the same again.  An array that nobody can
    write to is known by itself: its numbers need no second look.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[Any, tuple[NDArray[Any], T]] = OrderedDict()

    def get(self, array: NDArray[Any]) -> T | None:
        key = self._key(array)
        if key not in self._kept:
            return None
        made = self._kept[key][1]
        self._kept[key] = array, made
        self._kept.move_to_end(key)
        return made

    def add(self, array: NDArray[Any], made: T) -> list[T]:
        """Remember this one; gives what was made of those that are forgotten for it."""
        self._kept[self._key(array)] = array, made
        return [self._kept.popitem(last=False)[1][1] for _ in range(len(self._kept) - MOST)]

    def clear(self) -> None:
        self._kept.clear()

    def _key(self, array: NDArray[Any]) -> Any:
        if not _may_change(array):
            known = next((key for key, (held, _) in self._kept.items() if held is array), None)
            if known is not None:
                return known
        if array.dtype.hasobject:
            return id(array)  # it is held, so that no other one can have its id
        return array.shape, array.dtype.str, hashlib.sha1(np.ascontiguousarray(array).data).digest()


def _may_change(array: NDArray[Any]) -> bool:
    """A read-only view shows what is written to the array behind it."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array.flags.writeable or array.base is not None
