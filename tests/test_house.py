"""The house: imports point downwards only, and a solver knows neither losses, matrices nor scikit-learn."""

from __future__ import annotations

import ast
import collections
import importlib
from pathlib import Path

import pytest

import ksparse

ROOT = Path(ksparse.__file__).parent

# a module may import from the layers below its own
LAYERS = [
    {"_cores", "_dask", "_files", "_jit", "_text", "_threads", "_validate"},
    {"operators", "losses", "result"},
    {"design"},
    {"problem"},
    {"engine"},
    {"solvers"},
    {"sources"},
    {"_minimize"},
    {"_style", "theory"},
    {"estimators", "sensing"},
    {"report"},
    {"paper"},
    {"cli"},
]
FREE = {
    "_dask": set(),
    "_files": set(),
    "_validate": set(),
    "_text": set(),
    "_cores": set(),
    "_jit": set(),
    "_threads": {"_cores"},
    "theory": {"_style"},
}  # inside a layer
EXTRA = {
    "_dask": {"distributed"},
    "_threads": {"threadpoolctl"},
    "_text": {"pandas", "rich"},
    "_minimize": {"sklearn"},
    "cli": {"pyarrow", "rich", "sklearn", "typer"},
    "sources": {"cloudpickle", "dask", "distributed", "psutil", "pyarrow", "sklearn"},
    "estimators": {"joblib", "sklearn"},
    "report": {"jinja2", "markupsafe", "matplotlib", "sklearn"},
    "paper": {"matplotlib", "sklearn"},
    "sensing": {"distributed", "joblib", "pywt", "rich", "sklearn", "threadpoolctl"},
}  # beside NumPy, SciPy and numba


def imports(path):
    """(module inside ksparse, names) and outside packages that a file imports at any place."""
    inside, outside = set(), set()
    parts = path.relative_to(ROOT).with_suffix("").parts
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            outside |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            if node.level == 0:
                outside.add(node.module.split(".")[0])
            else:
                base = parts[: len(parts) - node.level]
                full = (*base, *(node.module.split(".") if node.module else ()))
                for alias in node.names:
                    if full or alias.name != "__version__":
                        inside.add((full[0] if full else alias.name, alias.name))
    return inside, outside


FILES = sorted(p for p in ROOT.rglob("*.py") if p.name != "__init__.py" or p.parent != ROOT)


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_downwards(path):
    own = path.relative_to(ROOT).with_suffix("").parts[0]
    level = next((i for i, layer in enumerate(LAYERS) if own in layer), None)
    assert level is not None, f"{own} has no place in the house: give it one in LAYERS"
    inside, outside = imports(path)
    for module, _ in inside:
        below = set().union(*LAYERS[:level])
        assert module == own or module in below or module in FREE.get(own, set()), f"{own} must not import {module}"
    if own == "solvers":
        assert "sklearn" not in outside
        concrete = {"Squared", "Logistic", "Poisson", "Huber", "SquaredHinge"}
        known = {name for module, name in inside if module == "losses"}
        assert not known & concrete, "a solver must not know a concrete loss"
    allowed = {"__future__", "numpy", "scipy", "numba", *__import__("sys").stdlib_module_names, *EXTRA.get(own, ())}
    if path.name in ("figures.py", "_style.py"):
        allowed.add("matplotlib")
    assert outside <= allowed


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_name_that_is_imported_exists(path):
    """Also imports inside functions, which are found otherwise only when the function is called."""
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            home = ".".join([*parts[: len(parts) - node.level], *([node.module] if node.module else [])])
            module = importlib.import_module(home)
            for alias in node.names:
                assert hasattr(module, alias.name) or importlib.import_module(f"{home}.{alias.name}")


def test_a_class_name_has_one_meaning():
    homes = collections.defaultdict(list)
    for path in FILES:
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                homes[node.name].append(str(path.relative_to(ROOT)))
    assert {name: found for name, found in homes.items() if len(found) > 1} == {}


def test_modules_stay_small():
    for path in FILES:
        assert len(path.read_text().splitlines()) <= 450, f"{path.name} wants splitting"


def test_public_names():
    for name in ksparse.__all__:
        assert getattr(ksparse, name) is not None
    assert set(ksparse.__all__) <= set(dir(ksparse))
    with pytest.raises(AttributeError, match="nothing"):
        ksparse.nothing  # noqa: B018


def test_folders_of_tests_are_folders_of_the_package():
    tests = Path(__file__).parent
    beside = {"data", "fuzz"}
    folders = {path.parent.relative_to(tests).parts[0] for path in tests.rglob("*/*.py")} - beside
    assert folders <= {path.name for path in ROOT.iterdir() if path.is_dir()}
    names = collections.Counter(path.name for path in tests.rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []
