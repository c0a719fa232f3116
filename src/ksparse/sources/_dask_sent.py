"""Read-only arrays that were sent: what was made of each, and the array, so that its place in memory stays its own."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Generic, TypeVar

from numpy.typing import NDArray

T = TypeVar("T")
MOST = 8  # arrays that are remembered: targets, weights, and a few more


class Sent(Generic[T]):
    """What was made of the last few arrays, looked up by where an array is: a view of the same numbers is the same."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Any, tuple[NDArray[Any], T]] = OrderedDict()

    def get(self, array: NDArray[Any]) -> T | None:
        found = self._kept.get(_place(array))
        if found is None:
            return None
        self._kept.move_to_end(_place(array))
        return found[1]

    def add(self, array: NDArray[Any], made: T) -> list[T]:
        """Remember this one; gives what was made of those that are forgotten for it."""
        self._kept[_place(array)] = array, made
        return [self._kept.popitem(last=False)[1][1] for _ in range(len(self._kept) - MOST)]

    def clear(self) -> None:
        self._kept.clear()


def _place(array: NDArray[Any]) -> Any:
    return array.ctypes.data, array.shape, array.strides, array.dtype.str
