"""Beside skscope: on the problems of its file our IHT, HTP, OMP and GraSP find the same columns and objectives."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from ksparse import HTP, IHT, OMP, Exchange, GraHTP, GraSP, minimize

TESTS = Path(__file__).parents[1]
FILE = json.loads((TESTS / "data" / "skscope.json").read_text())["problems"]


@pytest.fixture(scope="module")
def problem():
    """The function that made the problems; it needs neither skscope nor jax."""
    folder = str(TESTS.parent / "benchmarks")
    sys.path.insert(0, folder)
    try:
        spec = importlib.util.spec_from_file_location("agree_skscope", f"{folder}/agree_skscope.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(folder)
        sys.modules.pop("_store", None)
    return module.problem


def ours(name, loss, n):
    """The solver with skscope's settings: its step 1 is on the sum over the rows, ours on the mean."""
    if name == "htp":
        return HTP(step=n) if loss == "squared" else GraHTP(step=n)
    return {"iht": IHT(iterations=5000, tol=1e-13), "omp": OMP(), "grasp": GraSP(), "foba": Exchange()}[name]


CASES = [
    (name, solver)
    for name, case in FILE.items()
    for solver in ("iht", "htp", "omp", "grasp", "foba")
    if solver != "omp" or case["settings"]["loss"] == "squared"  # which is what OMP is for
]


@pytest.mark.parametrize(("name", "solver"), CASES, ids=lambda value: str(value))
def test_the_same_columns_and_objectives_as_skscope(problem, name, solver):
    settings, theirs = FILE[name]["settings"], FILE[name]["solutions"][solver]
    loss = settings["loss"]
    A, y, k = problem(**settings)
    result = minimize(A, y, k, loss=loss, solver=ours(solver, loss, len(y)))
    if solver == "foba":  # another algorithm for the same problem
        assert result.objective <= theirs["objective"] * (1 + 1e-9)
        return
    np.testing.assert_array_equal(result.support, theirs["support"])
    np.testing.assert_allclose(result.objective, theirs["objective"], rtol=1e-7)
    if solver == "grasp":  # which skscope does not fit after pruning; we can
        refit = minimize(A, y, k, loss=loss, solver=GraSP(refit=True))
        assert refit.objective <= theirs["objective"] * (1 + 1e-9)
