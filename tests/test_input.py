"""Bad input: a ValueError that names the argument, and nothing changed."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from ksparse import HTSAGA, HTSVRG, IHT, PGD, KSparseRegressor, StoIHT, joint, k_path, minimize

A = np.random.default_rng(0).standard_normal((6, 4))
Y = A[:, 0]
SIGNS = np.array([1.0, -1, 1, -1, 1, -1])


def spoiled(at, what, like=A):
    copy = np.array(like)
    copy[at] = what
    return copy


CASES = {
    "NaN in A": ({"A": spoiled((2, 1), np.nan)}, "A must be finite, got nan in row 2, column 1"),
    "inf in A": ({"A": spoiled((5, 3), -np.inf)}, "A must be finite, got -inf in row 5, column 3"),
    "NaN in sparse A": (
        {"A": sparse.csr_array(spoiled((2, 1), np.nan))},
        "A must be finite, got nan in row 2, column 1",
    ),
    "NaN in float32": ({"A": spoiled((2, 1), np.nan).astype(np.float32)}, "A must be finite, got nan in row 2"),
    "overflow": ({"A": spoiled((2, 1), 1e200)}, "that of row 2 overflows; rescale"),
    "NaN in y": ({"y": spoiled(3, np.nan, Y)}, "y must be finite, got nan at index 3"),
    "inf in y": ({"y": spoiled(0, np.inf, Y)}, "y must be finite, got inf at index 0"),
    "text in y": ({"y": list("abcdef")}, "y must hold real numbers"),
    "complex y": ({"y": Y + 1j}, "y must hold real numbers"),
    "short y": ({"y": Y[:5]}, r"y must have one number per row, that is shape \(6,\), got shape \(5,\)"),
    "wide y": ({"y": np.ones((6, 2))}, r"y must have one number per row.*got shape \(6, 2\)"),
    "text in A": ({"A": np.array([["a"] * 4] * 6)}, "A must hold real numbers"),
    "complex A": ({"A": A + 1j}, "A must hold real numbers, got complex128"),
    "flat A": ({"A": A[:, 0]}, r"A must be a matrix.*got shape \(6,\)"),
    "no rows": ({"A": A[:0], "y": Y[:0]}, "at least one row and one column"),
    "no columns": ({"A": A[:, :0]}, "at least one row and one column"),
    "k = 0": ({"k": 0}, "k must be at least 1, got 0"),
    "k < 0": ({"k": -3}, "k must be at least 1, got -3"),
    "k > d": ({"k": 5}, "k must be at most the number of columns, 4, got 5"),
    "k > d - kept": (
        {"k": 3, "always_keep": [0, 1]},
        "k must be at most the number of columns beside the 2 always kept, 2",
    ),
    "k = 2.5": ({"k": 2.5}, "k must be an integer, got 2.5"),
    "k = 2.0": ({"k": 2.0}, "k must be an integer, got 2.0"),
    "k = True": ({"k": True}, "k must be an integer, got True"),
    "k = 'a'": ({"k": "a"}, "k must be an integer, got 'a'"),
    "k = None": ({"k": None}, "k must be an integer, got None"),
    "three classes": (
        {"loss": "logistic", "y": [0, 1, 2, 0, 1, 2]},
        "y must be -1 or \\+1 for the logistic loss.*0, 1, 2",
    ),
    "0/1 labels": ({"loss": "logistic", "y": [0, 1, 0, 0, 1, 0]}, r"got the values 0, 1; np.where\(y == 1, 1, -1\)"),
    "one class": ({"loss": "squared_hinge", "y": np.ones(6)}, "two classes for the squared_hinge loss, got only 1"),
    "negative counts": (
        {"loss": "poisson", "y": [1, 2, -1, 0, 0, 1]},
        "negative for the poisson loss, got -1 at index 2",
    ),
    "unknown loss": (
        {"loss": "sqared"},
        "loss must be one of 'squared', 'logistic', 'poisson', 'gamma', 'huber', 'squared_hinge', got 'sqared'",
    ),
    "negative weight": (
        {"sample_weight": spoiled(1, -2, np.ones(6))},
        "sample_weight must not be negative, got -2 at index 1",
    ),
    "zero weights": ({"sample_weight": np.zeros(6)}, "sample_weight must not be all zero"),
    "NaN weight": ({"sample_weight": spoiled(1, np.nan, np.ones(6))}, "sample_weight must be finite"),
    "short weights": ({"sample_weight": np.ones(5)}, "sample_weight must have one number per row"),
    "short offset": ({"offset": np.ones(5)}, "offset must have one number per row"),
    "l2 < 0": ({"l2": -0.1}, "l2 must be a finite number of at least 0, got -0.1"),
    "l2 = inf": ({"l2": np.inf}, "l2 must be a finite number"),
    "radius = 0": ({"radius": 0}, "radius must be a number above 0, got 0"),
    "radius = NaN": ({"radius": np.nan}, "radius must be a number above 0"),
    "keep out of range": ({"always_keep": [4]}, "always_keep must be columns between 0 and 3"),
    "keep text": ({"always_keep": ["a"]}, "always_keep must be column numbers or a mask"),
    "keep short mask": ({"always_keep": [True, False]}, r"always_keep as a mask must have one entry per column \(4\)"),
    "short x0": ({"x0": np.ones(3)}, "x0 must have one number per column"),
    "NaN x0": ({"x0": [1, np.nan, 0, 0]}, "x0 must be finite"),
    "solver class": ({"solver": HTSVRG}, "solver must be an instance such as HTSVRG"),
    "unknown solver": (
        {"solver": "svrg"},
        "solver must be one of 'auto', 'ht-svrg', 'ht-saga', .*'exchange', got 'svrg'",
    ),
    "masked y": ({"y": np.ma.masked_array(Y, mask=Y > 0)}, "y has masked entries; fill or drop"),
    "masked A": ({"A": np.ma.masked_array(A, mask=A > 1)}, "A has masked entries; fill or drop"),
    "dates in A": ({"A": np.zeros((6, 4), "M8[s]")}, "A must hold real numbers, got dtype datetime64"),
    "digits as text": ({"A": np.array([["1"] * 4] * 6)}, "A must hold real numbers, got dtype <U1"),
    "text in objects": ({"y": np.array([1, 2, "3", 4, 5, 6], object)}, "y must hold real numbers, got '3' at index 2"),
    "missing": (
        {"A": pd.DataFrame(A).astype("Float64").mask(lambda t: t > 1.2)},
        "A must hold real numbers, got <NA> at row|A must be finite, got nan",
    ),
    "ragged": ({"A": [[1.0, 2.0], [3.0]]}, "A must be an array, got a list whose parts differ"),
    "sparse y": ({"y": sparse.csr_array(Y[:, None])}, "y must be dense, got csr_array; .toarray"),
    "huge integer": ({"l2": 10**400}, "l2 must be a number"),
    "complex l2": ({"l2": 1 + 0j}, "l2 must be a number"),
    "seed": ({"random_state": "a"}, "random_state must be None, a non-negative integer or a numpy Generator, got 'a'"),
    "negative seed": ({"random_state": -1}, "random_state must be"),
    "intercept": ({"intercept": "no"}, "intercept must be True or False, got 'no'"),
    "positive": ({"positive": 1}, "positive must be True or False, got 1"),
    "answer": ({"callback": lambda p: np.zeros(2)}, "callback must return something true or false, got ndarray"),
    "tiny A": ({"A": A * 1e-160}, "A must not be so small that the squares"),
    "huge y": ({"y": Y * 1e200}, "the objective is not finite at the start"),
    "all kept": ({"always_keep": [0, 1, 2, 3]}, "always_keep must leave columns to choose from"),
    "callback": ({"callback": 3}, "callback must be a function"),
    "max_time": ({"max_time": 0}, "max_time must be a number above 0"),
}


@pytest.mark.parametrize("case", CASES)
def test_minimize_refuses(case):
    change, text = CASES[case]
    arguments = {"A": A, "y": Y, "k": 2, **change}
    before = {name: np.array(value) for name, value in arguments.items() if isinstance(value, np.ndarray)}
    with pytest.raises(ValueError, match=text):
        minimize(**arguments)
    for name, value in before.items():
        np.testing.assert_array_equal(arguments[name], value)


SETTINGS = [
    (HTSVRG, {"step": 0}, "step must be a finite number above 0, got 0; or one of 'auto', 'theory', 'spectral'"),
    (HTSVRG, {"step": -1.0}, "step must be"),
    (HTSVRG, {"step": np.nan}, "step must be"),
    (HTSVRG, {"step": "fast"}, "step must be one of 'auto', 'theory', 'spectral', got 'fast'"),
    (PGD, {"step": "theory"}, "step must be one of 'auto', 'spectral'"),
    (HTSVRG, {"m": 0}, "m must be at least 1, got 0"),
    (HTSVRG, {"m": 1.5}, "m must be an integer"),
    (HTSVRG, {"stages": 0}, "stages must be at least 1"),
    (HTSVRG, {"output": "best"}, "output must be one of 'last', 'random', got 'best'"),
    (HTSVRG, {"batch_size": 0}, "batch_size must be at least 1"),
    (HTSVRG, {"tol": -1}, "tol must be a finite number of at least 0"),
    (HTSAGA, {"epochs": 0}, "epochs must be at least 1"),
    (HTSAGA, {"step": 0.0}, "step must be"),
    (PGD, {"iterations": -1}, "iterations must be at least 1"),
    (IHT, {"iterations": 0}, "iterations must be at least 1"),
    (StoIHT, {"batch_size": 2.5}, "batch_size must be an integer"),
]


@pytest.mark.parametrize(("solver", "setting", "text"), SETTINGS, ids=lambda p: str(p)[:30])
def test_solvers_refuse(solver, setting, text):
    with pytest.raises(ValueError, match=text):
        solver(**setting)


def test_numpy_scalars_are_numbers():
    result = minimize(A, Y, np.int64(2), solver=HTSVRG(step=np.float32(0.1), stages=np.int32(3)), l2=np.float64(0.1))
    assert result.n_stages <= 3
    solver = HTSVRG(batch_size=np.uint8(10), stages=np.int8(127), tol=Decimal("1e-6"), m=np.int8(100))
    assert (solver.batch_size, solver.stages, solver.tol, solver.m) == (10, 127, 1e-6, 100)
    assert all(type(v) in (int, float) for v in (solver.batch_size, solver.stages, solver.tol, solver.m))
    minimize(A, Y, 2, solver=solver, random_state=0)
    np.testing.assert_array_equal(minimize(A, Y[:, None], 2, random_state=0).x, minimize(A, Y, 2, random_state=0).x)


def test_nothing_the_caller_owns_is_written_to():
    parts = {"A": A.copy(), "y": Y.copy(), "x0": np.ones(4), "sample_weight": np.ones(6), "offset": np.zeros(6)}
    for part in parts.values():
        part.flags.writeable = False
    for solver in (HTSVRG(), HTSAGA(), PGD(), StoIHT()):
        minimize(**parts, k=2, solver=solver, random_state=0)


@pytest.mark.parametrize("name", ["always_keep", "groups"])
def test_ragged_lists_are_named(name):
    A = np.random.default_rng(0).standard_normal((30, 4))
    ragged = [[1.0], [1.0, 2.0]]
    with pytest.raises(ValueError, match=name):
        joint(A, A[:, 0], 1, **{name: ragged})
    with pytest.raises(ValueError, match=name):
        KSparseRegressor(**{name: ragged}).fit(A, A[:, 0])
    with pytest.raises(ValueError, match="start"):
        joint(A, A[:, 0], 1, start=0.5)
    with pytest.raises(ValueError, match="X must be an array"):
        k_path(ragged, A[:, 0])
