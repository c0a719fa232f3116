"""Lean: the data is not copied, and a run needs little beside it; measured in a process of its own."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

CODE = """
    import resource
    import numpy as np
    from scipy import sparse
    import ksparse

    def peak():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

    def make(n, d):
        rng = np.random.default_rng(0)
        y = rng.standard_normal(n)
        if {csr}:
            indices = np.sort(rng.integers(0, d, size=(n, 50)).astype(np.int32), axis=1).ravel()
            starts = np.arange(0, 50 * n + 1, 50, dtype=np.int32)
            X = sparse.csr_array((rng.standard_normal(n * 50), indices, starts), shape=(n, d))
            X.sum_duplicates()
            return X, y
        X = np.empty((n, d))
        for row in X:
            row[:] = rng.standard_normal(d)
        return X, y

    def run(X, y, k):
        {call}

    run(*make(300, 200), 3)  # compile, and load all libraries
    X, y = make({n}, {d})
    before = peak()
    run(X, y, {k})
    print((peak() - before) / 8)
"""
INTERPRETER = 2**18  # 2 MB for what Python and the allocator do by themselves
SHAPES = [(False, 500_000, 40, 4), (False, 20_000, 2_000, 20), (False, 1_000, 40_000, 20), (True, 100_000, 200_000, 20)]


@pytest.mark.parametrize(
    "solver",
    ["HTSVRG(stages=3)", *(pytest.param(s, marks=pytest.mark.long) for s in ("HTSAGA(epochs=3)", "PGD(iterations=3)"))],
)
@pytest.mark.parametrize(("csr", "n", "d", "k"), SHAPES)
def test_memory_beyond_the_data(solver, csr, n, d, k):
    call = f"ksparse.minimize(X, y, k, solver=ksparse.{solver}, random_state=0)"
    used = numbers_used(call, csr, n, d, k)
    size = 50 * n * 1.5 if csr else n * d
    allowed = min(n * k, size / 4) + 10 * (n + d)
    assert used <= allowed + INTERPRETER, f"{used:.0f} numbers, allowed {allowed:.0f}"


@pytest.mark.parametrize(
    ("csr", "n", "d", "k"), [SHAPES[1], *(pytest.param(*shape, marks=pytest.mark.long) for shape in SHAPES[2:])]
)
def test_estimators_do_not_copy_the_data(csr, n, d, k):
    """Standardised, with an intercept: beside X only the columns of the model, a few times, and products of the k."""
    used = numbers_used("ksparse.KSparseRegressor(k).fit(X, y)", csr, n, d, k)
    model = max(4 * k, k + 50)
    allowed = 3 * n * model + 6 * k * d + 20 * (n + d)
    assert used <= allowed + INTERPRETER, f"{used:.0f} numbers, allowed {allowed:.0f}"
    assert csr or allowed < n * d


def numbers_used(call, csr, n, d, k):
    """By how many numbers the peak of memory rises during a call."""
    code = textwrap.dedent(CODE.format(call=call, csr=csr, n=n, d=d, k=k))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return float(done.stdout)


def test_a_million_unknowns_without_a_matrix():
    """Partial Fourier, d = 2²⁰, n = 2¹⁷, K = 1000: to 1e-8, in under 200 products and 400 MB with everything."""
    code = """
        import re
        import numpy as np
        from ksparse import recover, sensing
        A = sensing.operators.partial_fourier(2**17, 2**20, random_state=0)
        x = sensing.signals.gaussian(2**20, 1000, random_state=1, dtype=complex)
        found = recover(A, A @ x, 4000)
        error = np.linalg.norm(found.x - x) / np.linalg.norm(x)
        # the peak of this program; that of getrusage would count the parent's before the fork too
        peak = int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1]) / 1024
        print(error, found.support.size, found.products, peak)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True)
    error, size, products, megabytes = map(float, done.stdout.split())
    assert error < 1e-8
    assert size == 1000
    assert products < 200
    assert megabytes < 400
