"""The number of cores: affinity, quotas of control groups of both versions (from files made for it), the variable."""

from __future__ import annotations

import math
import os

import numpy as np
import pytest

from ksparse import KSparseRegressor, _cores, _threads, minimize
from ksparse._text import watch_pass
from ksparse.estimators.threads import in_threads
from ksparse.sources import Blocks


def write(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


V2, V1 = "sys/fs/cgroup", "sys/fs/cgroup/cpu,cpuacct"
CASES = {
    "no control groups": ({}, math.inf),
    "version 2, no limit": ({"proc/self/cgroup": "0::/a\n", f"{V2}/a/cpu.max": "max 100000\n"}, math.inf),
    "version 2, one and a half": ({"proc/self/cgroup": "0::/a\n", f"{V2}/a/cpu.max": "150000 100000\n"}, 1.5),
    "version 2, the group above": (
        {
            "proc/self/cgroup": "0::/a/b\n",
            f"{V2}/a/cpu.max": "50000 100000\n",
            f"{V2}/a/b/cpu.max": "max 100000\n",
        },
        0.5,
    ),
    "version 2, in a container": ({"proc/self/cgroup": "0::/\n", f"{V2}/cpu.max": "200000 100000\n"}, 2.0),
    "version 2, a path of the host": (
        {"proc/self/cgroup": "0::/docker/1f\n", f"{V2}/cpu.max": "300000 100000\n"},
        3.0,
    ),
    "version 2 beside version 1": (
        {"proc/self/cgroup": "4:memory:/x\n0::/a\n", f"{V2}/unified/a/cpu.max": "100000 100000\n"},
        1.0,
    ),
    "version 1, no limit": (
        {
            "proc/self/cgroup": "3:cpu,cpuacct:/a\n",
            f"{V1}/a/cpu.cfs_quota_us": "-1\n",
            f"{V1}/a/cpu.cfs_period_us": "100000\n",
        },
        math.inf,
    ),
    "version 1, two": (
        {
            "proc/self/cgroup": "5:memory:/z\n3:cpu,cpuacct:/a\n",
            f"{V1}/a/cpu.cfs_quota_us": "100000\n",
            f"{V1}/a/cpu.cfs_period_us": "50000\n",
        },
        2.0,
    ),
    "version 1, mounted as cpu, a path of the host": (
        {
            "proc/self/cgroup": "3:cpu:/docker/1f\n",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "25000\n",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
        },
        0.25,
    ),
    "nonsense": ({"proc/self/cgroup": "what\n0::/a\n", f"{V2}/a/cpu.max": "many few\n"}, math.inf),
}


@pytest.mark.parametrize("case", CASES)
def test_quota_of_control_groups(case, tmp_path):
    files, expected = CASES[case]
    write(tmp_path, files)
    assert _cores.cpu_quota(tmp_path) == expected


@pytest.mark.parametrize(("quota", "expected"), [(math.inf, 8), (16.0, 8), (2.5, 3), (0.3, 1)])
def test_the_lesser_of_affinity_and_quota(quota, expected, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    monkeypatch.setattr(_cores, "cpu_quota", lambda root: quota)
    assert _cores.given_cores.__wrapped__() == expected


def test_the_variable_decides(monkeypatch):
    monkeypatch.setenv("KSPARSE_NUM_THREADS", "3")
    assert _cores.cores() == _threads.threads() == 3
    monkeypatch.setenv("KSPARSE_NUM_THREADS", "")
    assert _cores.cores() == _cores.given_cores()
    for wrong in ("0", "-2", "two", "1.5"):
        monkeypatch.setenv("KSPARSE_NUM_THREADS", wrong)
        with pytest.raises(ValueError, match=f"KSPARSE_NUM_THREADS must be a whole number.*{wrong}"):
            _threads.threads()


def test_threads_inside_limits(monkeypatch):
    monkeypatch.setenv("KSPARSE_NUM_THREADS", "8")
    with _threads.at_most_threads(3):
        assert _threads.threads() == 3
        with _threads.at_most_threads(5):  # what is outside counts too
            assert _threads.threads() == 3
    assert _threads.threads() == 8


@pytest.mark.parametrize(("n_jobs", "each"), [(None, 8), (1, 1), (2, 4), (16, 1)])
def test_several_fits_share_the_cores(n_jobs, each, monkeypatch):
    monkeypatch.setenv("KSPARSE_NUM_THREADS", "8")
    assert in_threads(lambda number: (number, _threads.threads()), [(0,), (1,)], n_jobs) == [(0, each), (1, each)]


@pytest.mark.parametrize(("n_jobs", "most"), [(None, 8), (1, 1), (3, 3)])
def test_a_fit_uses_n_jobs_threads(n_jobs, most, monkeypatch):
    monkeypatch.setenv("KSPARSE_NUM_THREADS", "8")
    X, y = np.random.default_rng(0).standard_normal((2, 50, 4))
    seen = []
    KSparseRegressor(k=1, n_jobs=n_jobs, callback=lambda now: seen.append(_threads.threads())).fit(X, y[:, 0])
    assert set(seen) == {most}


def test_large_searches_hold_blas_to_one_thread():
    """The product inside a search of many numbers is that of one BLAS thread; afterwards BLAS has what it had."""
    before = _threads.blas_threads()
    X = np.random.default_rng(0).standard_normal((_threads.QUIET // 8, 8))
    seen = []
    minimize(X, X[:, 0], 1, callback=lambda now: seen.append(_threads.blas_threads()))
    assert set(seen) == {1}
    assert _threads.blas_threads() == before


def test_progress_of_a_pass():
    shares = []
    token = watch_pass.set(lambda share, seconds: shares.append(share))
    A = np.arange(40.0).reshape(20, 2)
    Blocks([A[:5], A[5:15], A[15:]]).load()
    watch_pass.reset(token)
    assert shares == [0.25, 0.75, 1.0]
