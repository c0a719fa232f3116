"""Operators that are not SciPy's: plain functions, and stand-ins with the interfaces of pylops and SigPy."""

from __future__ import annotations

import numpy as np
import pytest

from ksparse import recover
from ksparse.sensing.foreign import as_operator


class Products:
    """An operator of no library: it has products, and says its dtype only if it is told."""

    def __init__(self, A, dtype=None):
        self.A, self.shape = A, A.shape
        if dtype is not None:
            self.dtype = dtype

    def matvec(self, x):
        return self.A @ x

    def rmatvec(self, r):
        return self.A.conj().T @ r


@pytest.mark.parametrize("kind", ["real", "complex"])
def test_anything_with_products_is_an_operator(kind):
    rng = np.random.default_rng(0)
    A = rng.standard_normal((60, 128)) + (1j * rng.standard_normal((60, 128)) if kind == "complex" else 0.0)
    x = np.zeros((128, 2), A.dtype)
    x[[3, 50, 90], 0], x[[7, 8], 1] = [1.0, -2.0, 3.0], [4.0, 1.0]
    for operator in (Products(A), Products(A, A.dtype), Products(A, A.dtype.name)):
        for y, truth in ((A @ x[:, 0], x[:, 0]), (A @ x, x)):
            np.testing.assert_allclose(recover(operator, y, 6, check_adjoint=True).x, truth, atol=1e-8)
    with pytest.raises(ValueError, match=r"algorithm='bp' reads the entries of A"):
        recover(Products(A), A @ x[:, 0], 6, algorithm="bp")


def test_an_operator_that_lacks_something_is_refused():
    class Half:
        shape = (3, 4)

        def matvec(self, x):
            return x[:3]

    with pytest.raises(ValueError, match="A must have rmatvec beside matvec, got Half"):
        recover(Half(), np.ones(3), 1)
    bent = Products(np.ones((3, 4)))
    for shape, words in {
        (3,): "two dimensions",
        (3, 2.5): r"A.shape\[1\] must be an integer",
        (0, 4): "at least 1",
    }.items():
        bent.shape = shape
        with pytest.raises(ValueError, match=words):
            recover(bent, np.ones(3), 1)
    with pytest.raises(ValueError, match="A must multiply numbers, got dtype"):
        recover(Products(np.ones((3, 4)), "U3"), np.ones(3), 1)


class Pylops(Products):
    """As pylops: products with vectors and matrices, which insist on their shapes; `dims` and `dimsd`."""

    def __init__(self, A):
        super().__init__(A, A.dtype)
        self.dims, self.dimsd = (A.shape[1],), (A.shape[0],)
        self.together = 0

    def matvec(self, x):
        assert x.shape in ((self.shape[1],), (self.shape[1], 1))
        return self.A @ x

    def matmat(self, X):
        self.together += 1
        return self.A @ X

    def rmatmat(self, R):
        return self.A.conj().T @ R


class Sigpy:
    """As SigPy's Linop: from arrays of `ishape` to arrays of `oshape` (lists), by a call; `H`; no shape, no dtype."""

    def __init__(self, A, ishape, oshape):
        self.A, self.ishape, self.oshape = A, list(ishape), list(oshape)

    def __call__(self, x):
        assert list(x.shape) == self.ishape
        return (self.A @ x.ravel()).reshape(self.oshape)

    @property
    def H(self):
        return Sigpy(self.A.conj().T, self.oshape, self.ishape)


def of_vectors(A):
    """Functions that only vectors can be given to."""

    def matvec(x):
        (_,) = x.shape
        return A @ x

    def rmatvec(r):
        (_,) = r.shape
        return A.conj().T @ r

    return matvec, rmatvec, A.shape


FOREIGN = {
    "pylops": Pylops,
    "sigpy": lambda A: Sigpy(A, (8, 16), (60, 1)),
    "functions": of_vectors,
    "list": lambda A: list(of_vectors(A)),
}


@pytest.mark.parametrize("kind", [float, complex])
@pytest.mark.parametrize("make", FOREIGN.values(), ids=FOREIGN)
def test_foreign_operators_recover_what_the_matrix_does(make, kind):
    rng = np.random.default_rng(0)
    A = rng.standard_normal((60, 128)) + (1j * rng.standard_normal((60, 128)) if kind is complex else 0.0)
    x = np.zeros((128, 3), kind)
    x[[3, 50, 90], 0], x[[7, 8], 1], x[100, 2] = [1.0, -2.0, 3.0], [4.0, 1.0], 2.0
    for y, truth in ((A @ x[:, 0], x[:, 0]), (A @ x, x)):
        for algorithm in ("auto", "sp", "niht"):
            found = recover(make(A), y, 3, algorithm=algorithm, check_adjoint=True)
            np.testing.assert_allclose(found.x, truth, atol=1e-7)
            assert found.x.dtype == kind


def test_products_with_many_vectors_are_used_if_there_are_any():
    A = np.random.default_rng(0).standard_normal((30, 40))
    operator = Pylops(A)
    recover(operator, A[:, :2], 1)
    assert operator.together > 0


def test_numbers_are_no_operator():
    assert as_operator([[1.0, 2.0], [3.0, 4.0]]) is None
    assert as_operator(np.ones((2, 2))) is None


@pytest.mark.parametrize("A", [None, "abc", {"a": 1}, 3.0, object()], ids=["None", "text", "dict", "number", "object"])
def test_what_is_neither_a_matrix_nor_an_operator_is_refused(A):
    with pytest.raises(ValueError, match="A must be an array, a sparse matrix or an operator, got "):
        recover(A, np.ones(3), 1)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda f, g, shape: f, r"with an adjoint, got function alone; give A as"),
        (lambda f, g, shape: (f, g), r"A must be two functions and a shape, got \(function, function\); give A"),
        (lambda f, g, shape: (f, shape, g), r"A must be two functions and a shape, got \(function, tuple, function\)"),
        (lambda f, g, shape: (f, g, 12), r"A must be two functions and a shape, got \(function, function, int\)"),
        (lambda f, g, shape: (f, g, (3, 4, 5)), r"A must have two dimensions, got shape \(3, 4, 5\)"),
        (lambda f, g, shape: (f, g, (3, 0)), r"A.shape\[1\] must be at least 1, got 0"),
        (lambda f, g, shape: (g, f, shape), r"matvec must give 3 numbers for a vector of 4, got"),
        (lambda f, g, shape: (f, f, shape), r"rmatvec must give 4 numbers for a vector of 3, got"),
        (lambda f, g, shape: (f, lambda r: 1j * g(r), shape), r"rmatvec gives complex numbers; return the real part"),
    ],
)  # fmt: skip
def test_what_is_no_operator_is_refused_with_a_remedy(make, words):
    A = np.arange(12.0).reshape(3, 4)

    def matvec(x):
        return A[:, : x.size] @ x if x.size == 4 else x

    def rmatvec(r):
        return A.T @ r if r.size == 3 else r

    with pytest.raises(ValueError, match=words):
        recover(make(matvec, rmatvec, A.shape), np.ones(3), 1)
