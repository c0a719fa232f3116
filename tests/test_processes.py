"""Start-up, cache and stale kernels: with real processes, as a user would meet them."""

from __future__ import annotations

import operator
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import ksparse

PACKAGE = Path(ksparse.__file__).parent


def python(code, cache, path=None, **env):
    """Run code in a fresh interpreter; return what it printed."""
    environment = {**os.environ, **env}
    if cache is not None:
        environment["NUMBA_CACHE_DIR"] = str(cache)
    if path is not None:
        environment["PYTHONPATH"] = str(path)
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], env=environment, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("numba")


def test_import_is_cheap(cache):
    """It loads no other package; NumPy alone when a function of it is called, and numba when something is fitted."""
    code = "import sys, {}; print(*{{name.partition('.')[0] for name in sys.modules}} - sys.stdlib_module_names)"
    packages = set(python(code.format("os"), cache).split())
    assert set(python(code.format("ksparse"), cache).split()) - packages == {"ksparse"}
    use = "numpy; from ksparse import hard_threshold; hard_threshold([1.0], 1)"
    assert set(python(code.format(use), cache).split()) - packages == {"ksparse", "numpy"}


RECOVER = """
    import sys
    import numpy as np
    from scipy.sparse import csr_array
    from scipy.sparse.linalg import aslinearoperator
    from ksparse import {0} recover
    A = np.random.default_rng(0).standard_normal((80, 200))
    X = np.zeros((200, 9))
    X[:5] = np.arange(1.0, 10.0)
    for kind in (np.array, csr_array, aslinearoperator):
        for Y in (A @ X, (A @ X)[:, 0]):
            found = recover(kind(A), Y, 5, algorithm={1})
            assert np.allclose(found.x, X if Y.ndim == 2 else X[:, 0])
    print("numba" in sys.modules)
"""


@pytest.mark.parametrize("algorithm", ["'auto'", "'sp'", "'htp'", "'omp'", "CoSaMP(refit=True)"])
def test_recover_without_compiled_code_does_not_load_numba(cache, algorithm):
    names = "CoSaMP," if "CoSaMP" in algorithm else ""
    assert python(RECOVER.format(names, algorithm), cache).split() == ["False"]


def test_a_solver_that_needs_compiled_code_loads_it(cache):
    assert python(RECOVER.format("", "'niht'"), cache).split() == ["True"]


FIRST = """
    import sys
    import numpy as np
    from numba.core.event import install_recorder
    import ksparse
    A = np.random.default_rng(0).standard_normal((50, 30))
    with install_recorder("numba:compile") as compiled:
        ksparse.minimize(A, A[:, 0], 3, random_state=0)
    print(len(compiled.buffer), "numba.np.linalg" in sys.modules)
"""


def test_no_warm_up_in_the_second_process():
    """Nothing is compiled, and what numba loads for compiling is not loaded either.

    The cache of kernels is the ordinary one: the first process may compile.
    """
    python(FIRST, None)
    assert python(FIRST, None).split() == ["0", "False"]


EVERYTHING = """
    import numpy as np
    from scipy import sparse
    import ksparse
    from ksparse import _jit
    from ksparse.design import kernels as passes
    from ksparse.solvers import descent, htsaga, htsvrg, screen
    rng = np.random.default_rng(0)
    A = rng.standard_normal((40, 30))
    for X in (A, sparse.csr_array(A)):
        for loss in ksparse.losses.LOSSES:
            y = np.sign(A[:, 0]) if loss in ("logistic", "squared_hinge") else abs(A[:, 0])
            for solver in (ksparse.HTSVRG(stages=3), ksparse.HTSAGA(epochs=3), ksparse.PGD(iterations=3)):
                print(ksparse.minimize(X, y, 3, loss=loss, solver=solver, random_state=0).x.tobytes().hex())
        for step in ("theory", "spectral"):
            print(ksparse.minimize(X, A[:, 0], 3, solver=ksparse.HTSVRG(step=step, stages=2), random_state=0).objective)
    kernels = [value for module in (passes, htsaga, htsvrg, descent, screen) for value in vars(module).values()
               if isinstance(value, _jit.Kernel)]
    stats = [kernel._cached.stats for kernel in kernels]
    print(";", sum(sum(s.cache_hits.values()) for s in stats), sum(sum(s.cache_misses.values()) for s in stats))
"""


@pytest.mark.long
def test_every_kernel_is_found_in_the_cache_and_gives_the_same_bits():
    """All losses and layouts from disk: code that is loaded without numba's registries must find all it calls.

    In the ordinary cache, which the other tests fill too: the first process compiles what is missing there.
    """
    first, _ = python(EVERYTHING, None).split(";")
    second, counts = python(EVERYTHING, None).split(";")
    hits, misses = map(int, counts.split())
    assert hits > 30
    assert misses == 0
    assert second == first


@pytest.mark.long
def test_an_edited_loss_gives_new_numbers(tmp_path):
    """Numba alone would go on with the old loss: it looks at the kernel's file only."""
    shutil.copytree(PACKAGE, tmp_path / "ksparse", ignore=shutil.ignore_patterns("__pycache__"))
    code = f"""
        import numpy as np
        import ksparse
        assert ksparse.__file__.startswith({str(tmp_path)!r}), ksparse.__file__
        r = ksparse.minimize(np.eye(4), np.arange(4.0), 4, solver=ksparse.PGD(step=1.0, iterations=1))
        print(r.history.objective[0])
    """
    cache = tmp_path / "cache"
    before = float(python(code, cache, path=tmp_path))
    assert before == 14 / 8
    losses = tmp_path / "ksparse" / "losses.py"
    text = losses.read_text()
    assert "return 0.5 * (z - y) * (z - y)" in text
    losses.write_text(text.replace("return 0.5 * (z - y) * (z - y)", "return 2.0 * (z - y) * (z - y)"))
    assert float(python(code, cache, path=tmp_path)) == 4 * before
    losses.write_text(text)
    assert float(python(code, cache, path=tmp_path)) == before


@pytest.mark.long
def test_a_foreign_loss_never_enters_the_cache(tmp_path):
    """Two processes, two losses of the same name: each gets its own numbers."""
    code = """
        from typing import NamedTuple
        import numpy as np
        import ksparse
        from ksparse.losses import curvature, curvature_bound, deriv, value
        class Mine(NamedTuple):
            pass
        @value.rule(Mine)
        def _(loss, z, y): return {0} * (z - y) ** 2
        @deriv.rule(Mine)
        def _(loss, z, y): return 2 * {0} * (z - y)
        @curvature.rule(Mine)
        def _(loss, z, y): return 2.0 * {0}
        @curvature_bound.rule(Mine)
        def _(loss): return 2.0 * {0}
        r = ksparse.minimize(np.eye(4), np.arange(4.0), 4, loss=Mine(), solver=ksparse.PGD(step=1.0, iterations=1))
        print(r.history.objective[0])
    """
    assert float(python(code.format(1.0), tmp_path)) == 14 / 4
    assert float(python(code.format(3.0), tmp_path)) == 3 * 14 / 4


@pytest.mark.long
def test_it_works_where_nothing_can_be_written(tmp_path):
    """No cache directory: slower, but no error."""
    (tmp_path / "blocked").write_text("a file, where a folder would have to be")
    code = """
        import numpy as np
        from numba.core import caching
        caching.InTreeCacheLocator.from_function = caching.UserWideCacheLocator.from_function = lambda *a: None
        import ksparse
        print(ksparse.minimize(np.eye(3), np.array([3.0, 1.0, 1.0]), 1, solver=ksparse.PGD()).support)
    """
    assert "[0]" in python(code, tmp_path / "blocked" / "cache")


def test_the_same_code_runs_without_compilation():
    """NUMBA_DISABLE_JIT=1: the kernels as plain Python give the same result."""
    code = """
        import numpy as np
        from scipy import sparse
        import ksparse
        rng = np.random.default_rng(0)
        A = rng.standard_normal((30, 20)) * (rng.random((30, 20)) < 0.5)
        y = np.sign(A[:, 0] - A[:, 1] + 0.1)
        for X in (A, sparse.csr_array(A)):
            for solver in (ksparse.HTSVRG(stages=3, m=40), ksparse.HTSAGA(epochs=3), ksparse.PGD(iterations=5)):
                r = ksparse.minimize(X, y, 4, loss="logistic", solver=solver, intercept=True, random_state=0)
                print(*(f"{v:.9f}" for v in r.x))
    """
    assert python(code, None) == python(code, None, NUMBA_DISABLE_JIT="1")


@pytest.mark.long
def test_a_damaged_cache_is_mended(tmp_path):
    """Truncated files, or files of another signature under this name, are compiled anew, not believed."""
    code = """
        import numpy as np
        import ksparse
        y = np.array([1.0, -1.0, 1.0, -1.0])
        for loss in ("squared", "logistic"):
            print(ksparse.minimize(np.eye(4), y, 2, loss=loss, solver=ksparse.PGD(iterations=2)).history.objective[0])
    """
    right = python(code, tmp_path)
    files = sorted(tmp_path.rglob("*.nbc"))
    sweeps = [path for path in files if path.name.startswith("kernels.sweep")]
    assert len(sweeps) == 2
    first, second = (path.read_bytes() for path in sweeps)
    sweeps[0].write_bytes(second)  # the other loss
    sweeps[1].write_bytes(first)
    assert python(code, tmp_path) == right
    for path in files:
        path.write_bytes(path.read_bytes()[:100])
    assert python(code, tmp_path) == right


LONG = (pytest.param(place, marks=pytest.mark.long) for place in (0.0, 0.01, 0.3, 0.7, 0.95, 1.0))


@pytest.mark.parametrize("place", [0.5, *LONG])
def test_one_inverted_byte_in_every_file_of_the_cache(warm_cache, tmp_path, place):
    """Damaged machine code is not loaded, where it could end the process: it is compiled again, and mended."""
    whole, code, right = warm_cache
    shutil.copytree(whole, tmp_path, dirs_exist_ok=True)
    files = sorted(tmp_path.rglob("*.nbc"))
    assert files
    for path in files:
        content = bytearray(path.read_bytes())
        content[int(place * (len(content) - 1))] ^= 0xFF
        path.write_bytes(content)
    damaged = [path.read_bytes() for path in files]
    assert python(code, tmp_path) == right
    mended = [path.read_bytes() for path in files]
    assert all(map(operator.ne, mended, damaged))
    assert python(code, tmp_path) == right
    assert [path.read_bytes() for path in files] == mended  # loaded, not compiled once more


@pytest.fixture(scope="module")
def warm_cache(tmp_path_factory):
    """A folder with compiled code, the program that filled it, and what that prints."""
    folder = tmp_path_factory.mktemp("whole")
    code = """
        import numpy as np
        from ksparse.sources.encoding import all_finite
        print(all_finite(np.array([1.0, 2.0])), all_finite(np.array([1.0, np.nan])))
    """
    return folder, code, python(code, folder)


@pytest.mark.long
def test_two_processes_may_compile_at_once(tmp_path):
    code = """
        import numpy as np
        import ksparse
        y = np.array([1.0, -1.0, 1.0, -1.0])
        print(ksparse.minimize(np.eye(4), y, 2, loss={!r}, solver=ksparse.PGD(iterations=2)).history.objective[0])
    """
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    commands = [[sys.executable, "-c", textwrap.dedent(code.format(loss))] for loss in ("squared", "logistic")]
    for _ in range(2):
        both = [subprocess.Popen(c, env=environment, stdout=subprocess.PIPE, text=True) for c in commands]
        outs = [float(process.communicate(timeout=600)[0]) for process in both]
        assert outs == [0.5, pytest.approx(0.6931471805599453)]
