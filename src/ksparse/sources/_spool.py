"""A place for what was parsed once: in memory while it is small, then in a temporary file without a name.

A file without a name is gone when it is closed, and when the process is killed.
"""

from __future__ import annotations

import tempfile
import threading
import weakref
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._plain import fill


class Shelf:
    """Bytes in a temporary file, read and written by any thread."""

    def __init__(self, folder: str | Path | None = None) -> None:
        try:
            self._file: Any = tempfile.TemporaryFile(buffering=0, prefix="ksparse-", dir=folder)  # noqa: SIM115
        except OSError as error:
            raise ValueError(f"cache must be a folder that can be written to, got {str(folder)!r}: {error}") from None
        weakref.finalize(self, self._file.close)  # whoever forgets to close it need not be told
        self._turn = threading.Lock()
        self.size = 0

    def write(self, content: Any) -> int:
        """Where the bytes are now."""
        view = memoryview(content).cast("B")
        with self._turn:
            at, done = self.size, 0
            self._file.seek(at)
            try:
                while done < len(view):
                    done += self._file.write(view[done:])
            except OSError as error:  # a full disk
                raise ValueError(
                    f"the temporary file cannot be written: {error}; cache=FOLDER puts it elsewhere, cache=False "
                    "parses the text in every pass instead"
                ) from None
            self.size = at + len(view)
        return at

    def fill(self, at: int, array: NDArray[Any]) -> None:
        """Read an array's bytes from a place."""
        with self._turn:
            self._file.seek(at)
            fill(self._file, array, "the temporary file")

    def read(self, at: int, size: int) -> bytes:
        with self._turn:
            self._file.seek(at)
            return bytes(self._file.read(size))

    def close(self) -> None:
        self._file.close()


class Spool:
    """Pieces, each some arrays, by their number.

    Parameters
    ----------
    limit : int
        Bytes to hold in memory; more than that goes to a file.
    folder : path, optional
        Where the temporary file is made, the system's folder for such by default.
    """

    def __init__(self, limit: int, folder: str | Path | None = None) -> None:
        self._limit, self._folder = limit, folder
        self._held: list[list[NDArray[Any]]] = []
        self._places: list[list[tuple[int, int, np.dtype[Any]]]] = []
        self._shelf: Shelf | None = None
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._held) + len(self._places)

    def append(self, *arrays: NDArray[Any]) -> None:
        """Put a piece behind the others; its arrays are not copied while they are held."""
        self._bytes += sum(array.nbytes for array in arrays)
        if self._shelf is None and self._bytes > self._limit:
            self._shelf = Shelf(self._folder)
            for piece in self._held:
                self._put(piece)
            self._held = []
        if self._shelf is None:
            self._held.append(list(arrays))
        else:
            self._put(list(arrays))

    def _put(self, arrays: list[NDArray[Any]]) -> None:
        assert self._shelf is not None
        whole = [np.ascontiguousarray(array) for array in arrays]
        self._places.append([(self._shelf.write(a.view(np.uint8)), a.size, a.dtype) for a in whole])

    def read(self, piece: int) -> list[NDArray[Any]]:
        """The arrays of a piece, not to be written to."""
        if self._shelf is None:
            return self._held[piece]
        arrays = []
        for at, size, dtype in self._places[piece]:
            array = np.empty(size, dtype)
            self._shelf.fill(at, array)
            arrays.append(array)
        return arrays

    def close(self) -> None:
        """Forget all; the file is gone."""
        self._held = []
        if self._shelf is not None:
            self._shelf.close()
