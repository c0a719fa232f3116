"""What `recover` takes as an operator: SciPy's, those of pylops and SigPy, classes of one's own, and plain functions.

They are known by what they offer; none of these packages is imported.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy.sparse.linalg import LinearOperator

from .._validate import ArgumentError, check_count
from ..solvers.pursuit import Array

HOW = "give A as (matvec, rmatvec, (n, d)): two functions of a vector and the shape"


def as_operator(A: Any) -> LinearOperator | None:
    """A as SciPy's LinearOperator, whose products are checked; None if it is no operator, but perhaps a matrix."""
    if isinstance(A, LinearOperator):
        if A.dtype is None:
            raise ValueError("A must say its dtype; give LinearOperator(..., dtype=float) or dtype=complex")
        return A
    kind = type(A).__name__
    if hasattr(A, "ishape") and hasattr(A, "oshape"):  # SigPy's: from arrays of one shape to arrays of another
        shapes = tuple(A.ishape), tuple(A.oshape)
        shape = math.prod(shapes[1]), math.prod(shapes[0])
        return _operator(_on_arrays(A, shapes[0]), _on_arrays(A.H, shapes[1]), shape)
    if hasattr(A, "matvec") and hasattr(A, "shape"):
        if not hasattr(A, "rmatvec"):
            raise ArgumentError("A", f"must have rmatvec beside matvec, got {kind}; it is the product with A's adjoint")
        return _operator(
            A.matvec, A.rmatvec, tuple(A.shape), getattr(A, "dtype", None), getattr(A, "matmat", None),
            getattr(A, "rmatmat", None),
        )  # fmt: skip
    if isinstance(A, (tuple, list)) and any(map(callable, A)):
        if len(A) != 3 or not (callable(A[0]) and callable(A[1])) or not isinstance(A[2], Sequence):
            got = ", ".join(type(part).__name__ for part in A)
            raise ArgumentError("A", f"must be two functions and a shape, got ({got}); {HOW}")
        return _operator(A[0], A[1], tuple(A[2]))
    if callable(A):
        raise ArgumentError("A", f"must be a matrix or an operator with an adjoint, got {kind} alone; {HOW}")
    if isinstance(A, (str, bytes, dict)) or not any(hasattr(A, name) for name in ("__len__", "__array__", "tocsr")):
        raise ArgumentError("A", f"must be an array, a sparse matrix or an operator, got {A!r}; for an operator, {HOW}")
    return None


def _operator(
    matvec: Callable[[Array], Any],
    rmatvec: Callable[[Array], Any],
    shape: tuple[Any, ...],
    dtype: Any = None,
    matmat: Callable[[Array], Any] | None = None,
    rmatmat: Callable[[Array], Any] | None = None,
) -> LinearOperator:
    """Products with vectors, as LinearOperator: it would show columns, of shape (d, 1), to a function of vectors."""
    if len(shape) != 2:
        raise ArgumentError("A", f"must have two dimensions, got shape {shape}; it is (measurements, unknowns)")
    n, d = check_count(shape[0], "A.shape[0]"), check_count(shape[1], "A.shape[1]")
    forward, back = _checked(matvec, "matvec", n, d), _checked(rmatvec, "rmatvec", d, n)
    kind = forward(np.zeros(d)).dtype if dtype is None else np.dtype(dtype)
    if kind.kind not in "biufc":
        raise ArgumentError("A", f"must multiply numbers, got dtype {kind}; say dtype=float or dtype=complex")
    return LinearOperator(
        (n, d), matvec=forward, rmatvec=back, dtype=kind, matmat=matmat or _columns(forward),
        rmatmat=rmatmat or _columns(back),
    )  # fmt: skip


def _checked(product: Callable[[Array], Any], name: str, gives: int, takes: int) -> Callable[[Array], Array]:
    def checked(x: Array) -> Array:
        image = np.asarray(product(x.reshape(-1)))
        if image.size != gives:
            what = f"{name} must give {gives} numbers for a vector of {takes}, got shape {image.shape}"
            raise ArgumentError("A", f"is no operator of its shape: {what}; correct it, or the shape")
        return image.reshape(-1)

    return checked


def _columns(product: Callable[[Array], Array]) -> Callable[[Array], Array]:
    return lambda X: np.stack([product(np.ascontiguousarray(x)) for x in X.T], axis=1)


def _on_arrays(operator: Callable[[Array], Any], shape: tuple[int, ...]) -> Callable[[Array], Any]:
    return lambda x: operator(x.reshape(shape))
