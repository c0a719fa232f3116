"""A reservoir: a uniform random sample of all rows that were ever shown, in bounded memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse


@dataclass(frozen=True, eq=False)
class Reservoir:
    """Every row gets a random key, and the rows with the smallest keys are remembered, in the order they came.

    Attributes
    ----------
    X : array or CSR matrix
    y : array
    weight : array or None
        None as long as no weights were given.
    seen : int
        Rows that were shown, remembered or not.

    Examples
    --------
    >>> import numpy as np
    >>> start = Reservoir.empty(np.random.default_rng(0))
    >>> some = start.joined(np.eye(4), np.arange(4), None, size=3)
    >>> some.X.shape, some.seen
    ((3, 4), 4)
    """

    X: Any
    y: NDArray[Any]
    weight: NDArray[np.float64] | None
    keys: NDArray[np.float64]
    seen: int
    rng: np.random.Generator

    @classmethod
    def empty(cls, rng: np.random.Generator) -> Reservoir:
        return cls(None, np.empty(0), None, np.empty(0), 0, rng)

    def joined(self, X: Any, y: NDArray[Any], weight: NDArray[np.float64] | None, size: int) -> Reservoir:
        """This sample after more rows were shown; at most `size` rows stay, each row seen with the same chance.

        Rows of weight zero do not count: they are not shown.  Once rows were forgotten the sample does not grow.  The
        reservoir itself stays as it was, so that a fit that fails in between leaves nothing half done.
        """
        shown = np.arange(len(y)) if weight is None else np.flatnonzero(weight > 0)
        keys = np.concatenate([self.keys, self.rng.random(shown.size)])
        if self.seen > self.keys.size:  # more room than before would be filled by later rows only
            size = min(size, self.keys.size)
        kept = np.sort(np.argpartition(keys, size)[:size]) if keys.size > size else np.arange(keys.size)
        old = kept[kept < self.keys.size]
        rows = shown[kept[old.size :] - self.keys.size]
        return Reservoir(
            _stacked(self.X, old, X, rows),
            y[rows] if self.X is None else np.concatenate([self.y[old], y[rows]]),
            self._weights(old, weight, rows),
            keys[kept],
            self.seen + shown.size,
            self.rng,
        )

    def _weights(self, old: Any, weight: Any, rows: Any) -> NDArray[np.float64] | None:
        if self.weight is None and weight is None:
            return None
        before = np.ones(old.size) if self.weight is None else self.weight[old]
        return np.concatenate([before, np.ones(rows.size) if weight is None else weight[rows]])


def _stacked(X: Any, old: NDArray[np.int64], more: Any, rows: NDArray[np.int64]) -> Any:
    """Rows `old` of X above `rows` of `more`, sparse if those of X are; the larger of the two precisions."""
    if X is None:
        return more[rows]
    if sparse.issparse(X):
        return sparse.vstack([X[old], sparse.csr_array(more[rows])], format="csr")
    return np.concatenate([X[old], more[rows].toarray() if sparse.issparse(more) else more[rows]])
