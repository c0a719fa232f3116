r"""Sparse eigenvalues: the extremes of :math:`x^\top G x` over r-sparse x of norm 1, with G = scale·AᵀWA + diag(ridge).

Exact values need an enumeration of all supports.  Where there are too many, each extreme is bounded from two sides: by
supports that a search finds, and by Gershgorin's discs and the eigenvalues of the whole matrix (beyond 3000 rows and
columns the largest one is an estimate by Lanczos' method, and is labelled so).  The restricted isometry constants and
the restricted convexity of a loss both come from here.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._validate import as_real, check_count, check_generator

WHOLE = 3000  # up to this size, all eigenvalues of a matrix are computed
GERSHGORIN_WORK = 1e11  # all pairs of columns are compared up to this many multiplications: about ten seconds
SORTING = 500  # sorting the pairs takes as long as the multiplications of this many rows
ENUMERATE_WORK = 2e9  # supports times r³, up to which supports are enumerated by default
FEW_SUPPORTS, MOST_SUPPORTS = 20_000, 2_000_000  # enumerated by default, and with exact=True
SEARCH_WORK = 1e10  # multiplications that the search over supports may take
SLACK = 1e-12  # rounding error of a bound, as a share of the largest eigenvalue


class Bracket(NamedTuple):
    """A lower and an upper bound on a number, and how each was found."""

    lower: float
    upper: float
    lower_from: str
    upper_from: str

    @property
    def exact(self) -> bool:
        """Whether both bounds are equal."""
        return self.lower == self.upper


@dataclass(frozen=True, eq=False)
class Spectrum:
    """G = scale·AᵀWA + diag(ridge), computed from columns of A; made by `Spectrum.create`."""

    A: Any
    n: int
    p: int
    ones: int  # 1 if a column of ones follows those of A
    weight: NDArray[np.float64]  # weights of the rows, times the scale
    ridge: NDArray[np.float64]

    @classmethod
    def create(cls, A: Any, *, weight: Any = None, scale: float = 1.0, ridge: Any = 0.0, ones: int = 0) -> Spectrum:
        """The spectrum of an array, a sparse matrix or anything with `shape`, `matmat` and `rmatmat`."""
        if hasattr(A, "tocsc") and hasattr(A, "nnz"):
            A = A.tocsc()
            values = A.data
        elif is_operator(A):
            values = np.zeros(0)
        else:
            A = values = np.asarray(A) if isinstance(A, np.ndarray) and A.dtype.kind == "c" else as_real(A, "A")
        if len(A.shape) != 2 or 0 in A.shape:
            raise ValueError(f"A must be a matrix with at least one row and column, got shape {A.shape}")
        _refuse_infinite(values)
        if values.dtype in (np.longdouble, np.clongdouble):
            A = A.astype(np.complex128 if values.dtype.kind == "c" else np.float64)
        n, d = A.shape
        row = np.full(n, scale) if weight is None else scale * np.asarray(weight, dtype=np.float64)
        return cls(A, n, d + ones, ones, row, np.broadcast_to(np.asarray(ridge, dtype=np.float64), d + ones))

    # --- G, a few columns at a time ------------------------------------------------------------------------------
    @property
    def _sparse(self) -> bool:
        return hasattr(self.A, "nnz")

    @property
    def _operator(self) -> bool:
        return is_operator(self.A)

    def columns(self, which: NDArray[np.intp]) -> NDArray[Any]:
        """Columns of A as a dense array."""
        d = self.p - self.ones
        own = which[which < d]
        if self._operator:
            unit = np.zeros((d, own.size))
            unit[own, np.arange(own.size)] = 1.0
            part = np.asarray(self.A.matmat(unit))
            _refuse_infinite(part)
        else:
            part = self.A[:, own]
            part = part.toarray() if self._sparse else np.asarray(part)
        if own.size == which.size:
            return part.astype(np.result_type(part.dtype, np.float64), copy=False)
        out = np.ones((self.n, which.size), dtype=np.result_type(part.dtype, np.float64))
        out[:, which < d] = part
        return out

    def rows_times(self, Y: NDArray[Any]) -> NDArray[Any]:
        """AᴴWY."""
        Y = self.weight[:, np.newaxis] * Y
        out = np.asarray(self.A.rmatmat(Y) if self._operator else self.A.conj().T @ Y)
        return np.vstack([out, Y.sum(axis=0)]) if self.ones else out

    @functools.cached_property
    def _gram(self) -> NDArray[Any] | None:
        """G without the ridge, or None if it is too large for memory."""
        _ = self.diagonal  # refuses columns whose squares overflow
        if self.p > WHOLE:
            return None
        return np.concatenate([self.rows_times(self.columns(J)) for J in self._column_blocks()], axis=1)

    def block(self, which: NDArray[np.intp]) -> NDArray[Any]:
        """G[which, which]."""
        if self._gram is not None:
            inner = self._gram[np.ix_(which, which)]
        elif self._sparse and not self.ones:
            part = self.A[:, which]
            inner = np.asarray((part.conj().T @ part.multiply(self.weight[:, np.newaxis]).tocsc()).toarray())
        else:
            C = self.columns(which)
            inner = C.conj().T @ (self.weight[:, np.newaxis] * C)
        return inner + np.diag(self.ridge[which])

    def _column_blocks(self) -> Iterator[NDArray[np.intp]]:
        width = max(1, 2**22 // max(self.n, self.p))
        return (np.arange(start, min(start + width, self.p)) for start in range(0, self.p, width))

    @functools.cached_property
    def diagonal(self) -> NDArray[np.float64]:
        with np.errstate(over="ignore"):
            square = [np.einsum("ij,i->j", np.abs(self.columns(J)) ** 2, self.weight) for J in self._column_blocks()]
        diagonal = np.concatenate(square) + self.ridge
        if not (diagonal < 1e280).all():
            raise ValueError("A must have columns whose squared norm is a float; rescale them")
        return diagonal

    # --- bounds that hold for all supports -----------------------------------------------------------------------
    @functools.cached_property
    def _discs(self) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
        """(low, high, coherence); by Gershgorin low[r−1] ≤ all eigenvalues of all r × r blocks ≤ high[r−1]."""
        low, high, coherence = np.full(self.p, np.inf), np.full(self.p, -np.inf), 0.0
        for J in self._column_blocks():
            size = np.abs(self.rows_times(self.columns(J)) if self._gram is None else self._gram[:, J])
            size[J, np.arange(J.size)] = 0.0
            size.sort(axis=0)
            radius = np.zeros_like(size)
            np.cumsum(size[:0:-1], axis=0, out=radius[1:])
            coherence = max(coherence, float(size[-1].max()) if self.p > 1 else 0.0)
            low = np.minimum(low, (self.diagonal[J] - radius).min(axis=1))
            high = np.maximum(high, (self.diagonal[J] + radius).max(axis=1))
        return low, high, coherence

    @property
    def _comparable(self) -> bool:
        """Whether all pairs of columns can be compared in reasonable time."""
        return max(self.n, SORTING) * float(self.p) ** 2 <= GERSHGORIN_WORK

    @property
    def coherence(self) -> float:
        """The largest magnitude off the diagonal of G."""
        return self._discs[2]

    @functools.cached_property
    def _whole(self) -> tuple[float, float, str]:
        """Lower and upper bounds on all eigenvalues of G, and how they were found."""
        least, most = float(self.ridge.min()), float(self.ridge.max())
        data = float((self.diagonal - self.ridge).sum())
        if data <= 0.0:
            return least, most, "the data are zero"
        if min(self.n, self.p) <= WHOLE:
            G = self._gram
            if G is None or self.n < self.p:
                root = np.sqrt(self.weight)[:, np.newaxis]
                G = sum(C @ C.conj().T for C in (root * self.columns(J) for J in self._column_blocks()))
            values = np.linalg.eigvalsh(G)
            bottom = float(values[0]) if self.p <= self.n else 0.0
            return max(bottom, 0.0) + least, max(float(values[-1]), 0.0) + most, "the whole spectrum"
        from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

        def times(v: NDArray[Any]) -> NDArray[Any]:
            v = np.ravel(v)
            z = np.asarray(self.A @ v[: self.p - self.ones]) + (v[-1] if self.ones else 0.0)
            return self.rows_times(z[:, np.newaxis])[:, 0]

        kind = np.result_type(getattr(self.A, "dtype", 0.0), 0.0)
        gram = LinearOperator((self.p, self.p), dtype=kind, matvec=times)
        start = np.random.default_rng(0).standard_normal(self.p)
        try:
            top = float(eigsh(gram, k=1, v0=start, tol=1e-8, return_eigenvectors=False)[0])
        except ArpackNoConvergence:
            return least, data + most, "the trace"
        return least, top * (1.0 + 1e-6) + most, "Lanczos on the whole matrix"

    def floor(self, r: int) -> tuple[float, str]:
        """A lower bound on the eigenvalues of all r × r blocks, and how it was found."""
        bottom, top, name = self._whole
        options = [(bottom, name if bottom > self.ridge.min() else "a square is not negative")]
        if self._comparable:
            options.append((float(self._discs[0][r - 1]), "Gershgorin"))
        value, name = max(options)
        return max(value - SLACK * top, float(self.ridge.min())), name

    def ceiling(self, r: int) -> tuple[float, str]:
        """An upper bound on the eigenvalues of all r × r blocks, and how it was found."""
        _, top, name = self._whole
        trace = float(np.sort(self.diagonal)[-r:].sum() - (r - 1) * self.ridge.min())
        options = [(top, name), (trace, "the trace")]
        if self._comparable:
            options.append((float(self._discs[1][r - 1]), "Gershgorin"))
        value, name = min(options)
        return value + SLACK * top, name

    # --- eigenvalues of some supports ----------------------------------------------------------------------------
    def enumerate(self, r: int, always: NDArray[np.intp]) -> tuple[float, float]:
        """The smallest and the largest eigenvalue of all r × r blocks, by enumeration."""
        if r == 1 and not always.size:
            return float(self.diagonal.min()), float(self.diagonal.max())
        G = self.block(np.arange(self.p))
        low, high = np.inf, -np.inf
        supports = itertools.combinations(self._others(always).tolist(), r - always.size)
        while chunk := list(itertools.islice(supports, max(1, 2**20 // (r * r)))):
            S = np.array(chunk, dtype=np.intp).reshape(len(chunk), r - always.size)
            S = np.concatenate([np.broadcast_to(always, (len(chunk), always.size)), S], axis=1)
            values = np.linalg.eigvalsh(G[S[:, :, np.newaxis], S[:, np.newaxis, :]])
            low, high = min(low, float(values[:, 0].min())), max(high, float(values[:, -1].max()))
        return max(low, 0.0), high

    def _others(self, always: NDArray[np.intp]) -> NDArray[np.intp]:
        return np.setdiff1d(np.arange(self.p), always)

    def search(
        self, r: int, samples: int, rng: np.random.Generator, always: NDArray[np.intp]
    ) -> tuple[tuple[float, str], tuple[float, str]]:
        """The smallest and the largest eigenvalue among random supports and supports grown greedily."""
        low, high = (float(self.diagonal.min()), "single columns"), (float(self.diagonal.max()), "single columns")
        others = self._others(always)
        rounds = int(SEARCH_WORK / (float(r) ** 3 + self._block_work(r)))
        for _ in range(min(samples, rounds)):
            drawn = rng.choice(others, r - always.size, replace=False)
            values = np.linalg.eigvalsh(self.block(np.concatenate([always, drawn])))
            low = min(low, (float(values[0]), "random supports"))
            high = max(high, (float(values[-1]), "random supports"))
        if always.size < r and rounds > 50:
            order = others[np.argsort(self.diagonal[others], kind="stable")]
            more = [int(j) for j in rng.choice(others, min(2, others.size), replace=False)]
            for start in [int(order[0]), *more]:
                low = min(low, (self._grow(r, start, -1.0, always), "greedy supports"))
            for start in [int(order[-1]), *more]:
                high = max(high, (-self._grow(r, start, 1.0, always), "greedy supports"))
        return low, high

    def _block_work(self, r: int) -> float:
        """Number of multiplications for a block of r columns."""
        if self._gram is not None:
            return 0.0
        return self.A.nnz / self.p * float(r) ** 2 if self._sparse else self.n * float(r) ** 2

    def _grow(self, r: int, start: int, sign: float, always: NDArray[np.intp]) -> float:
        """−sign times the best eigenvalue found by greedy growth.

        The columns with the largest predicted gain join; then the column with the smallest coefficient is exchanged
        for the best one outside, as long as that helps.
        """
        S = np.append(always, start)
        value, gain, vector = self._gains(S, sign)
        while r > S.size:
            new = min(r - S.size, max(1, S.size // 8))
            S = np.append(S, np.argsort(-gain, kind="stable")[:new])
            value, gain, vector = self._gains(S, sign)
        for _ in range(min(2 * r, 100) if self.p > r else 0):
            least = always.size + int(np.argmin(np.abs(vector[always.size :])))
            T = np.append(np.delete(S, least), np.argmax(gain))
            other, gain, vector = self._gains(T, sign)
            if other >= value:
                break
            S, value = T, other
        return value

    def _gains(self, S: NDArray[np.intp], sign: float) -> tuple[float, NDArray[np.float64], NDArray[Any]]:
        """The extreme eigenvalue on S (times −sign), the predicted gain of each column outside, and its eigenvector."""
        values, vectors = np.linalg.eigh(self.block(S))
        at = -1 if sign > 0 else 0
        value, vector = float(values[at]), vectors[:, at]
        if self._gram is not None:
            pull = self._gram[:, S] @ vector
        else:
            combined = self.A[:, S] @ vector if self._sparse and not self.ones else self.columns(S) @ vector
            pull = self.rows_times(combined[:, np.newaxis])[:, 0]
        largest = max(float(self.diagonal.max()), 1e-300)
        # second-order change of the eigenvalue when column j joins, in units of the largest curvature
        gap = np.abs(self.diagonal - value) / largest
        gain = (np.abs(pull) / largest) ** 2 / np.maximum(gap, 1e-6)
        gain[S] = -1.0
        return -sign * value, gain, vector

    # --- both together -------------------------------------------------------------------------------------------
    def brackets(
        self,
        r: int,
        *,
        exact: bool | None = None,
        samples: int = 200,
        random_state: Any = 0,
        always: ArrayLike = (),
    ) -> tuple[Bracket, Bracket]:
        """Bounds on the smallest and on the largest r-sparse eigenvalue; `always` are columns of every support."""
        kept = np.asarray(always, dtype=np.intp)
        rng = check_generator(random_state)
        r = check_count(r, "r", high=self.p, high_text="the number of columns")
        samples = check_count(samples, "samples")
        free, chosen = self.p - kept.size, r - kept.size
        digits = (math.lgamma(free + 1) - math.lgamma(chosen + 1) - math.lgamma(self.p - r + 1)) / math.log(10)
        if exact and digits > math.log10(MOST_SUPPORTS):
            raise ValueError(
                f"exact=True would enumerate about 10^{digits:.0f} supports of {r} columns, more than the limit of "
                f"{MOST_SUPPORTS:,}; leave exact out for bounds"
            )
        few = digits < math.log10(FEW_SUPPORTS) and digits + 3 * math.log10(r) < math.log10(ENUMERATE_WORK)
        if exact or (exact is None and few):
            low, high = self.enumerate(r, kept)
            return Bracket(low, low, "enumeration", "enumeration"), Bracket(high, high, "enumeration", "enumeration")
        (found_low, low_from), (found_high, high_from) = self.search(r, samples, rng, kept)
        floor, floor_from = self.floor(r)
        ceiling, ceiling_from = self.ceiling(r)
        # by rounding, the eigenvalues that were found may lie slightly outside the bounds
        return (
            Bracket(floor, max(found_low, floor), floor_from, low_from),
            Bracket(min(found_high, ceiling), ceiling, high_from, ceiling_from),
        )


def is_operator(A: Any) -> bool:
    """Whether A is known by its products only, such as a scipy.sparse.linalg.LinearOperator."""
    return hasattr(A, "rmatmat") and hasattr(A, "matmat") and not hasattr(A, "nnz")


def _refuse_infinite(values: NDArray[Any]) -> None:
    if not np.isfinite(values).all():
        raise ValueError("A must be finite, got NaN or infinity; remove or impute them first")
