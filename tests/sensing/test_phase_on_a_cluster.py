"""Trials on a Dask cluster, which is a real one of two processes: the same bytes, whoever dies."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time

import pytest
from trials import SMALL, files, finish, invoke, matched, start

import ksparse
from ksparse import _dask
from ksparse._threads import blas_threads, threads
from ksparse.sensing import phase
from ksparse.sensing.phase import Cluster, Experiment, Ledger, Pool, collect, make_pool, workers

distributed = pytest.importorskip("distributed", reason="the dask extra is not installed")


@pytest.fixture(scope="module")
def dask():
    with distributed.LocalCluster(
        n_workers=2,
        threads_per_worker=2,
        processes=True,
        dashboard_address="127.0.0.1:0",
        memory_limit=None,
        scheduler_kwargs={"allowed_failures": 1},
    ) as cluster:
        yield cluster


@pytest.fixture
def address(dask):
    dask.wait_for_workers(2, timeout=600)  # those that were killed come again
    return dask.scheduler_address


@pytest.fixture
def nowhere():
    with socket.socket() as taken:  # bound, but nobody listens
        taken.bind(("127.0.0.1", 0))
        yield f"tcp://127.0.0.1:{taken.getsockname()[1]}"


def numbers():
    return os.getpid(), threads(), blas_threads()


def broken(A, y, k, *, noise, random_state):
    raise ArithmeticError("as it was")


def test_results_come_in_order_from_one_thread_each(address):
    with make_pool(scheduler=address) as pool:
        assert pool.jobs == 4
        assert list(pool.map(divmod, [(i, 7) for i in range(1000)])) == [divmod(i, 7) for i in range(1000)]
        shift = 5
        assert list(pool.map(lambda i: i + shift, [(i,) for i in range(9)])) == list(range(5, 14))
        found = list(pool.map(numbers, [()] * 200))
        assert {(kernels, blas) for _, kernels, blas in found} == {(1, 1)}
        assert os.getpid() not in {pid for pid, *_ in found}
        lazily = pool.map(divmod, ((i, 0 if i == 900 else 7) for i in range(10**9)))
        with pytest.raises(ZeroDivisionError):
            list(lazily)
        assert list(pool.map(divmod, [(9, 7)])) == [(1, 2)]  # an error leaves the cluster as it was
    assert threads() >= 1


def test_the_same_bytes_as_here(address, tmp_path):
    phase.run(matched, jobs=1, out=tmp_path / "here", **SMALL)
    phase.run(matched, scheduler=address, out=tmp_path / "there", **SMALL)
    assert files(tmp_path / "there") == files(tmp_path / "here")
    search = {"d": 32, "step": 4, "trials": 20, "rate": 0.5, "verbose": False}
    found = phase.minimum_n(matched, 1, scheduler=address, **search)
    assert found == phase.minimum_n(matched, 1, jobs=1, **search)
    assert found.n is not None


def test_an_error_in_a_trial_is_the_same_error(address):
    texts = []
    for where in ({"jobs": 1}, {"scheduler": address}):
        with pytest.raises(ValueError, match="broken at n = 8, K = 1, k = 1, trial 0: as it was") as caught:
            phase.run(broken, **where, **SMALL)
        texts.append(str(caught.value))
    assert texts[0] == texts[1]


def test_another_version_on_the_workers_is_refused(address, monkeypatch):
    monkeypatch.setattr(ksparse, "__version__", "9.9")
    with pytest.raises(
        ValueError, match=r"worker tcp://.* has ksparse 0.*, and this is ksparse 9.9; install ksparse==9.9"
    ):
        Cluster(address)
    _, _, results, error = workers.do_trials("8.8", b"")  # a worker that came later
    assert results == []
    assert "worker that joined has ksparse 9.9, and this is ksparse 8.8" in str(error)
    with pytest.raises(ValueError, match=r"cannot import ksparse \(No module"):
        _dask.check_version("9.9", ModuleNotFoundError("No module named 'ksparse'"), "tcp://a:1")


def test_a_scheduler_that_is_not_there(nowhere, tmp_path, monkeypatch):
    monkeypatch.setattr(workers, "CONNECT", 0.5)
    for _ in range(3):  # again and again: what is left of the first must not be in the way of the next
        with pytest.raises(ValueError, match=f"no Dask scheduler can be reached at {nowhere} .*dask scheduler"):
            make_pool(scheduler=nowhere)
    for bad in ("nonsense", "foo://x:1"):
        with pytest.raises(ValueError, match=f"no Dask scheduler can be reached at {bad}"):
            make_pool(scheduler=bad)
    for bad in ("", 8786):
        with pytest.raises(ValueError, match="scheduler must be the address"):
            make_pool(scheduler=bad)
    out = tmp_path / "out"
    done = invoke("--scheduler", nowhere, "--out", out, "-q", code=2)
    assert done.stderr.startswith(f"error: no Dask scheduler can be reached at {nowhere}")
    assert not out.exists()


def test_something_else_at_the_address(dask, address, monkeypatch):
    with pytest.raises(ValueError, match=r"\(a Worker is there\)"):
        make_pool(scheduler=next(iter(dask.scheduler.workers)))
    monkeypatch.setattr(workers, "CONNECT", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.listen()
        place = f"tcp://127.0.0.1:{server.getsockname()[1]}"  # takes connections and says nothing
        with pytest.raises(ValueError, match=rf"can be reached at {place} \(no answer in 0.5 s\)"):
            make_pool(scheduler=place)


def test_jobs_or_scheduler(nowhere, monkeypatch):
    with pytest.raises(ValueError, match="give one of them"):
        make_pool(2, nowhere)
    assert "give one of them" in invoke("--scheduler", nowhere, "--jobs", 2, code=2).stderr
    with make_pool(1) as pool:
        assert isinstance(pool, Pool)
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ValueError, match=r"pip install 'ksparse\[dask\]'"):
        make_pool(scheduler=nowhere)


def test_a_cluster_without_workers(monkeypatch):
    monkeypatch.setattr(workers, "JOIN", 0.5)
    with (
        distributed.LocalCluster(n_workers=0, processes=False, dashboard_address="127.0.0.1:0") as empty,
        pytest.raises(ValueError, match=r"has no workers; start some with: dask worker .*--nthreads 1"),
    ):
        Cluster(empty.scheduler_address)


def test_ctrl_c_leaves_nothing_behind(address, tmp_path):
    process = start("-d", 64, "--trials", 1000, "--out", tmp_path, "--scheduler", address, "-q")
    results = tmp_path / "results.jsonl"
    while not (results.exists() and results.stat().st_size):
        time.sleep(0.05)
        assert process.poll() is None
    os.killpg(process.pid, signal.SIGINT)
    assert finish(process, 130) == (
        "", f"stopped; the finished work is in {results}; run the same again to continue\n"
    )  # fmt: skip
    with distributed.Client(address, set_as_default=False) as client:
        for _ in range(2000):
            left = client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks))
            if not left:
                break
            time.sleep(0.05)
    assert left == 0


class Murderer:
    """A cluster one of whose workers is killed after some results."""

    def __init__(self, pool, pid):
        self.pool, self.pid = pool, pid

    def map(self, function, items):
        for i, result in enumerate(self.pool.map(function, items)):
            if i == 40:
                os.kill(self.pid, signal.SIGKILL)
            yield result


def test_a_killed_worker_costs_time_alone(dask, address, tmp_path):
    experiment, calls = Experiment(matched, d=48, seed=3), tmp_path / "calls"
    items = [(24, 3, t) for t in range(400)]

    def slowly(n, K, t):
        with calls.open("ab", buffering=0) as file:
            file.write(b".")
        time.sleep(0.005)
        return experiment.run(n, K, t)

    def write(name, function, pool):
        with Ledger(tmp_path / name, ("K", "n", "trial")) as ledger:
            collect(function, items, ledger, pool, verbose=False)
        return (tmp_path / name).read_bytes()

    with Cluster(address) as pool:
        victim = min(dask.scheduler.workers.values(), key=lambda worker: worker.name)
        there = write("there", slowly, Murderer(pool, dask.workers[victim.name].pid))
    assert calls.stat().st_size > len(items)  # what was lost has been done again
    with Pool(1) as pool:
        assert there == write("here", experiment.run, pool)


@pytest.mark.filterwarnings("ignore:the cluster at .* has no workers:UserWarning")  # if both are dead at once
def test_work_that_kills_workers_is_no_endless_work(address):
    with (
        Cluster(address) as pool,
        pytest.raises(RuntimeError, match=r"2 workers of the cluster at .* died of the same"),
    ):
        list(pool.map(os._exit, [(1,)]))
