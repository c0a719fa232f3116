"""Rows of Dask collections: the same numbers as from memory, on threads, processes and a cluster, whoever dies."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

import numpy as np
import pytest
from dask_tasks import die, gradient, large, noted, picky, pid, slow, total, total_of, worker
from scipy import sparse
from trials import SMALL, files, matched

import ksparse
from ksparse import HTSVRG, KSparseClassifier, KSparseRegressor, minimize
from ksparse.sensing import phase

dask = pytest.importorskip("dask", reason="the dask extra is not installed")
distributed = pytest.importorskip("distributed", reason="the dask extra is not installed")
da = pytest.importorskip("dask.array")
dd = pytest.importorskip("dask.dataframe")
pd = pytest.importorskip("pandas")

from ksparse._dask import ClusterWatch  # noqa: E402
from ksparse.sources import Partitions, Source, dask_cluster  # noqa: E402
from ksparse.sources.dask_cluster import REMEMBERED, SentArrays  # noqa: E402

HERE = "127.0.0.1:0"  # any free port
LOCAL = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": HERE}


def start():
    return distributed.LocalCluster(memory_limit=None, scheduler_kwargs={"allowed_failures": 1}, **LOCAL)


@pytest.fixture(scope="module")
def started():
    clusters = []
    yield clusters
    for cluster in clusters:
        cluster.close()


@pytest.fixture
def cluster(started):
    """Two workers in processes of their own.  Those that were killed come again, or else a new cluster does."""
    if started:
        try:
            started[-1].wait_for_workers(2, timeout=100)
        except TimeoutError:
            with contextlib.suppress(KeyError):  # Dask's own, of a worker that it has forgotten
                started.pop().close()
    if not started:
        started.append(start())
    return started[-1]


@pytest.fixture
def client(cluster):
    with distributed.Client(cluster, set_as_default=False) as client:
        yield client


def data(kind, dtype=np.float64, n=700, d=30, seed=0):
    """A matrix in memory, the same as a Dask collection with awkward chunks, targets."""
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((n, d)).astype(dtype)
    if kind == "sparse":
        A *= rng.random((n, d)) < 0.2
    y = A[:, [2, 5, 11]] @ np.array([2.0, -1.0, 1.5]) + 0.1 * rng.standard_normal(n)
    if kind == "frame":
        frame = pd.DataFrame(A, columns=[f"c{j}" for j in range(d)])
        return A, dd.from_pandas(frame, npartitions=5), y
    X = da.from_array(A, chunks=((200, 13, n - 213), (7, 11, d - 18)))
    return (sparse.csr_array(A), X.map_blocks(sparse.csr_matrix), y) if kind == "sparse" else (A, X, y)


def fit(X, y, stages=6, **options):
    return minimize(X, y, 3, solver=HTSVRG(m=400, stages=stages, tol=0), random_state=5, **options)


def assert_same(X, A, y):
    """The same iterates stage by stage, here and there."""
    here, there = [], []
    fit(A, y, callback=lambda at: here.append(at.x.copy()))
    fit(X, y, callback=lambda at: there.append(at.x.copy()))
    assert len(here) == len(there) >= 6
    np.testing.assert_allclose(there, here, rtol=1e-9, atol=1e-11)
    assert set(np.flatnonzero(here[-1])) == {2, 5, 11}


# --- the same numbers ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("scheduler", "kind"), [("threads", "dense"), ("threads", "sparse"), ("threads", "frame"), ("sync", "dense")]
)
def test_the_same_iterates_here(scheduler, kind):
    A, X, y = data(kind)
    with dask.config.set(scheduler=scheduler):
        rows = Partitions(X, y=da.from_array(y, chunks=90))
        assert isinstance(rows, Source)
        assert (rows.shape, rows.dtype, rows.sparse, rows.held) == (A.shape, np.float64, kind == "sparse", False)
        assert rows.entries == (A.nnz if kind == "sparse" else A.size)
        assert rows.names == ([f"c{j}" for j in range(30)] if kind == "frame" else None)
        np.testing.assert_array_equal(rows.y, y)
        assert_same(rows, A, y)
        loaded = rows.load()
        np.testing.assert_array_equal(*((M.toarray() if kind == "sparse" else M) for M in (loaded, A)))


def test_the_same_iterates_from_processes():
    with (
        ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool,  # starting them takes seconds
        dask.config.set(scheduler="processes", pool=pool),
    ):
        for kind in ("dense", "sparse", "frame"):
            A, X, y = data(kind)
            rows = Partitions(X)
            assert os.getpid() not in set(rows.map(slow))
            assert_same(rows, A, y)
            rows.close()
            with pytest.raises(ValueError, match="the source is closed"):
                next(rows.map(pid))


@pytest.mark.parametrize("kind", ["dense", "sparse", pytest.param("frame", marks=pytest.mark.long)])
def test_the_same_iterates_from_a_cluster(client, kind):
    A, X, y = data(kind)
    rows = Partitions(X, client=client)
    assert rows.held
    assert "held by a cluster" in repr(rows)
    assert_same(rows, A, y)
    assert os.getpid() not in set(rows.map(pid))  # on workers; how many of them is up to Dask on a busy machine


@pytest.mark.long
def test_partitions_that_do_not_fit_are_computed_in_the_task(client, monkeypatch, tmp_path):
    monkeypatch.setattr(dask_cluster.ClusterWorkers, "_free", lambda self: 0)
    A, _, y = data("dense")
    for i in range(7):
        np.save(tmp_path / f"{i}.npy", A[100 * i : 100 * i + 100])
    X = [dask.delayed(np.load)(tmp_path / f"{i}.npy") for i in range(7)]
    rows = Partitions(X, client=client)
    assert not rows.held
    assert_same(rows, A, y)
    (tmp_path / "3.npy").unlink()
    with pytest.raises(FileNotFoundError, match=r"3\.npy"):
        rows.load()


@pytest.mark.long
def test_estimators_take_partitions_and_plain_collections(client):
    A, X, y = data("frame")
    plain = KSparseRegressor(k=3, random_state=0).fit(pd.DataFrame(A, columns=X.columns), y)
    for given in (X, Partitions(X, client=client)):
        model = KSparseRegressor(k=3, random_state=0).fit(given, y)
        np.testing.assert_allclose(model.coef_, plain.coef_, rtol=1e-6, atol=1e-9)
        assert list(model.feature_names_in_) == list(X.columns)
        np.testing.assert_allclose(model.predict(given), plain.predict(pd.DataFrame(A, columns=X.columns)), rtol=1e-6)


@pytest.mark.long
def test_classes_from_partitions(client):
    A, X, y = data("frame")
    labels = np.where(y > 0, "yes", "no")
    there = KSparseClassifier(k=3, random_state=0).fit(Partitions(X, client=client), labels)
    here = KSparseClassifier(k=3, random_state=0).fit(pd.DataFrame(A, columns=X.columns), labels)
    np.testing.assert_allclose(there.coef_, here.coef_, rtol=1e-4, atol=1e-6)


# --- kinds of collections --------------------------------------------------------------------------------------------
def test_collections_of_every_kind():
    A, X, y = data("dense", np.float32)
    assert Partitions(X).dtype == np.float32
    assert Partitions(X.astype(int)).dtype == np.float64
    some = X[X[:, 0] > 0]  # nobody knows how many rows
    assert np.isnan(some.shape[0])
    rows = Partitions(some, y=da.from_array(y, chunks=90)[X[:, 0] > 0])
    np.testing.assert_array_equal(rows.load(), A[A[:, 0] > 0])
    np.testing.assert_array_equal(rows.y, y[A[:, 0] > 0])
    assert np.isnan(some.shape[0])  # the caller's array is as it was
    few = X[:, X.sum(axis=0) > 0]
    np.testing.assert_array_equal(Partitions(few).load(), A[:, A.sum(axis=0) > 0])
    hollow = Partitions(da.concatenate([X[:0], X[:50], X[50:50], X[50:60]]))
    assert all(len(block) for block in hollow.blocks())
    np.testing.assert_array_equal(hollow.load(), A[:60])
    np.testing.assert_array_equal(np.concatenate(list(hollow.blocks(np.array([1, 4])))), A[:60, [1, 4]])
    tiny = da.from_array(A[:600], chunks=(1, 30))
    rows = Partitions(tiny)
    assert len(list(rows.map(np.shape))) < 10
    np.testing.assert_array_equal(rows.load(), A[:600])
    wide = Partitions(da.zeros((100, 3_000_000), chunks=(100, 300_000)))  # 2.4 GB if it were one partition
    assert max(wide._runner.rows) * 8 * 3_000_000 <= 2**27


def test_dataframes_of_all_numbers():
    frame = pd.DataFrame(
        {
            "a": np.arange(6, dtype=np.int8),
            "b": np.array([True, False] * 3),
            "c": pd.array([1, 2, None, 4, 5, 6], dtype="Int64"),
            "d": pd.array([0.5] * 6, dtype="double[pyarrow]"),
        }
    )
    rows = Partitions(dd.from_pandas(frame, npartitions=2), y=dd.from_pandas(frame["c"], npartitions=3))
    wanted = frame.to_numpy(dtype=np.float64, na_value=np.nan)
    np.testing.assert_array_equal(rows.load(), wanted)
    np.testing.assert_array_equal(rows.y, wanted[:, 2])
    with pytest.raises(ValueError, match="got nan in row 2, column 2"):
        minimize(rows, np.zeros(6), 1)
    single = frame[["a"]].astype(np.float32)
    assert Partitions(dd.from_pandas(single, npartitions=2)).dtype == np.float32
    thin = pd.DataFrame.sparse.from_spmatrix(sparse.eye_array(6, format="csr"))
    rows = Partitions([dask.delayed(thin)])
    assert rows.sparse
    np.testing.assert_array_equal(rows.load().toarray(), np.eye(6))


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:the cluster at .* has no workers:UserWarning")
def test_futures_of_a_cluster(client):
    A, X, _ = data("dense")
    held = client.persist(X.rechunk((100, -1)))
    np.testing.assert_array_equal(Partitions(held, client=client).load(), A)
    futures = client.map(np.full, [(4, 3)] * 5, range(5))
    np.testing.assert_array_equal(Partitions(futures).load(), np.repeat(np.arange(5.0), 4)[:, None] * np.ones(3))
    with dask.config.set(scheduler="threads"):  # the data know where they are
        np.testing.assert_array_equal(Partitions(held + 1).load(), A + 1)
    rows = Partitions(client.scatter([A[:300], A[300:]]), client=client)
    np.testing.assert_array_equal(rows.load(), A)
    for number in client.run(os.getpid).values():
        os.kill(number, signal.SIGKILL)
    with pytest.raises(RuntimeError, match=r"lost data that it cannot make again .*scattered"):
        rows.load()


# --- what travels ----------------------------------------------------------------------------------------------------
def test_functions_travel_once_a_pass_and_read_only_parts_once(client, monkeypatch):
    A, X, y = data("dense")
    rows, sent = Partitions(X.rechunk((70, -1)), client=client), []
    task, tasks = dask_cluster.ClusterWorkers._task, dask_cluster.ClusterWorkers._tasks

    def count(self, function, *arguments, **near):
        sent.append(function.__name__)
        return task(self, function, *arguments, **near)

    def count_all(self, function, which, *columns, **common):
        sent.extend([function.__name__] * len(which))
        return tasks(self, function, which, *columns, **common)

    monkeypatch.setattr(dask_cluster.ClusterWorkers, "_task", count)
    monkeypatch.setattr(dask_cluster.ClusterWorkers, "_tasks", count_all)
    y.flags.writeable = False
    for small, orders in ((1 << 16, 0), (0, 3)):  # a small order goes with the tasks, a large one is sent by itself
        monkeypatch.setattr(dask_cluster, "SMALL", small)
        for array in (y[:], y[:], y.copy()):  # another view, another array of the same numbers
            array.flags.writeable = False
            total = sum(rows.map(partial(gradient, np.ones(30)), array))
            np.testing.assert_allclose(total, gradient(np.ones(30), A, y), rtol=1e-12)
        assert [sent.count(name) for name in ("_unpack", "_unpack_slice", "_run")] == [orders, 0 if orders else 10, 30]
        sent.clear()
    loose = np.ones(700)
    view = loose.view()
    view.flags.writeable = False
    assert sum(rows.map(total_of, view)) == 700
    loose += 1  # a read-only view of what its owner may write to
    assert sum(rows.map(total_of, view)) == 1400
    assert sum(rows.map(total_of, loose)) == 1400
    flags = np.arange(700) % 3 == 0
    assert sum(rows.map(total_of, flags)) == flags.sum()
    with pytest.raises(ValueError, match="no entry for each of 700 rows"):
        next(rows.map(total_of, np.ones(699)))


def test_only_a_few_arrays_are_remembered():
    forgotten, arrays = [], [np.full(3, i) for i in range(REMEMBERED + 2)]
    sent = SentArrays(forgotten.append)
    for i, array in enumerate(arrays):
        assert sent.find(array, lambda i=i: i) == i
    assert forgotten == [0, 1]
    assert sent.find(arrays[-1], list) == REMEMBERED + 1
    assert sent.find(arrays[-1].copy(), list) == REMEMBERED + 1
    assert sent.find(arrays[0], list) == []


def test_times_are_measured_where_the_work_is(client):
    _, X, _ = data("dense")
    for rows, threads in ((Partitions(X.rechunk((70, -1)), client=client), 2), (Partitions(X), dask.system.CPU_COUNT)):
        list(rows.map(partial(slow, seconds=0.02)))
        times, parts = rows.times, len(rows._starts) - 1
        assert 0.02 * parts <= times.compute < times.wall * threads
        assert times.read + times.compute + times.transfer == pytest.approx(times.wall * threads)


@pytest.mark.long
def test_results_wait_in_the_memory_allowed(client):
    rows = Partitions(da.zeros((200, 4), chunks=(1, 4)), client=client, memory="1MB")
    assert len(rows._starts) == 201
    began = set()
    submit = rows._runner.submit

    def note(sent, spans):
        began.update(i for i, *_ in spans)
        return submit(sent, spans)

    rows._runner.submit = note
    results = rows.map(large)
    next(results)
    next(results)
    assert max(began) < 12  # 2 threads, 2 ahead of each, and a little
    results.close()


# --- whoever dies ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("lazily", [False, pytest.param(True, marks=pytest.mark.long)])
def test_a_killed_worker_costs_time_alone(cluster, client, lazily, monkeypatch):
    if lazily:
        monkeypatch.setattr(dask_cluster.ClusterWorkers, "_free", lambda self: 0)
    A, X, y = data("dense", n=3000)
    rows, killed = Partitions(X.rechunk((300, -1)), client=client), []
    assert rows.held is not lazily
    victims = [worker.pid for worker in cluster.workers.values()]

    def kill(at):
        if at.stage == 3:
            killed.append(victims[0])
            threading.Timer(0.02, os.kill, (victims[0], signal.SIGKILL)).start()

    there = fit(rows, y, stages=8, callback=kill)
    assert killed
    np.testing.assert_allclose(there.x, fit(A, y, stages=8).x, rtol=1e-9, atol=1e-11)


@pytest.mark.long
def test_a_worker_killed_amid_a_pass(cluster, client):
    A, X, y = data("dense")
    rows = Partitions(X.rechunk((35, -1)), client=client)
    victims = set(rows.map(pid))
    results = rows.map(slow)
    found = [next(results)]
    os.kill(found[0], signal.SIGKILL)
    found += results
    assert len(found) == 20
    assert len(victims | set(found)) >= 2
    np.testing.assert_allclose(
        sum(rows.map(partial(gradient, np.ones(30)), y)), gradient(np.ones(30), A, y), rtol=1e-12
    )


@pytest.mark.long
def test_a_killed_process_costs_time_alone():
    A, X, y = data("dense")
    with dask.config.set(scheduler="processes", num_workers=2):
        rows = Partitions(X.rechunk((70, -1)))
    results = rows.map(slow)
    found = [next(results)]
    os.kill(found[0], signal.SIGKILL)
    found += results
    assert len(found) == 10
    assert_same(rows, A, y)
    rows.close()


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:.*has no workers; waiting for some")  # said if a busy machine is slow to restart
def test_a_cluster_that_was_restarted(client):
    _, X, y = data("dense")
    rows = Partitions(X, client=client)
    y.flags.writeable = False
    before = sum(rows.map(partial(gradient, np.ones(30)), y))
    client.restart(wait_for_workers=False)  # whichever comes back: the other one may take its time
    np.testing.assert_allclose(sum(rows.map(partial(gradient, np.ones(30)), y)), before, rtol=1e-12)


@pytest.mark.long
def test_workers_that_come_late_and_a_scheduler_that_goes(monkeypatch):
    A, X, _ = data("dense")
    with (
        distributed.LocalCluster(n_workers=0, threads_per_worker=1, processes=False, dashboard_address=HERE) as late,
        distributed.Client(late, set_as_default=False) as client,
    ):
        look = ClusterWatch.look
        monkeypatch.setattr(ClusterWatch, "look", lambda watch: (look(watch), watch.told and late.scale(1)))
        with pytest.warns(UserWarning, match="has no workers; waiting for some"):
            rows = Partitions(X, client=client)
        np.testing.assert_array_equal(rows.load(), A)
        late.close()
        with pytest.raises(RuntimeError, match="scheduler"):
            rows.load()
        with pytest.raises(ValueError, match="client is clos"):
            Partitions(X, client=client)


@pytest.mark.long
def test_workers_that_join_get_their_share():
    A, X, _ = data("dense")
    with (
        distributed.LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=HERE) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        rows = Partitions(X.rechunk((70, -1)), client=client)
        assert len(set(rows.map(worker))) == 1
        cluster.scale(2)
        cluster.wait_for_workers(2, timeout=600)
        found = list(rows.map(worker))
        assert sorted(found.count(name) for name in set(found)) == [5, 5]
        np.testing.assert_array_equal(rows.load(), A)


@pytest.mark.long
def test_a_pass_that_is_left_is_cancelled(client, tmp_path):
    rows = Partitions(da.zeros((400, 2), chunks=(4, 2)), client=client)
    results = rows.map(partial(noted, tmp_path))
    next(results)
    results.close()
    del results
    assert sum(rows.map(total)) == 0
    assert len(list(tmp_path.iterdir())) < 12  # of 100: 2 threads, 2 ahead of each, and a little
    rows.close()
    deadline = time.monotonic() + 100
    while left := client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks)):
        assert time.monotonic() < deadline, left
        time.sleep(0.05)


# --- errors ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("scheduler", ["threads", "sync", "cluster"])
def test_errors_of_the_function_come_as_themselves(scheduler, client):
    _, X, y = data("dense")
    with dask.config.set(scheduler="threads" if scheduler == "cluster" else scheduler):
        rows = Partitions(X, client=client if scheduler == "cluster" else None)
    with pytest.raises(ArithmeticError, match=r"^as it was$"):
        list(rows.map(picky, np.ones(700)))
    assert len(list(rows.map(pid))) == 3
    bad = X.copy()
    bad[310, 4] = np.inf
    with pytest.raises(ValueError, match="A must be finite, got inf in row 310, column 4"):
        minimize(Partitions(bad, client=client if scheduler == "cluster" else None), y, 2)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:the cluster at .* has no workers:UserWarning")  # if both are dead at once
def test_work_that_kills_workers_is_no_endless_work(client):
    rows = Partitions(da.zeros((4, 2), chunks=(4, 2)), client=client)
    with pytest.raises(RuntimeError, match=r"2 workers of the cluster at .* died of the same partition"):
        list(rows.map(die))


def test_other_versions_are_refused(client, monkeypatch):
    rows = Partitions(da.zeros((4, 2), chunks=(4, 2)), client=client)
    monkeypatch.setattr(ksparse, "__version__", "9.9")
    with pytest.raises(ValueError, match=r"worker tcp://.* has ksparse 0.*, and this is ksparse 9.9; install"):
        Partitions(da.zeros((4, 2), chunks=(4, 2)), client=client)
    with pytest.raises(ValueError, match=r"worker that joined has ksparse 0.*, and this is ksparse 9.9; install"):
        list(rows.map(pid))


def test_bad_input():
    zeros = da.zeros((6, 3), chunks=2)
    frame = pd.DataFrame({"a": [1.0, 2.0], "b": ["x", "y"]})
    for X, text in (
        (np.zeros((3, 2)), "X must be a Dask array or dataframe.*got ndarray"),
        ([], "X must be a Dask array or dataframe.*got list"),
        ([np.zeros(2)], "got list"),
        (da.zeros(6), "X must be a matrix .* got 1 dimensions"),
        (zeros.astype(complex), "complex numbers"),
        (zeros.astype(str), "text"),
        (zeros[:0], "X has no rows"),
        (zeros[:, :0], "X has no columns"),
        (zeros[zeros[:, 0] > 0], "X has no rows"),
        (dd.from_pandas(frame, npartitions=1), "column 'b' of X holds text.*get_dummies.*drop"),
        (dd.from_pandas(frame.astype({"b": "category"}), npartitions=1), "column 'b' of X holds categories"),
        (dd.from_pandas(frame[["a"]].astype("datetime64[ns]"), npartitions=1), "column 'a' of X holds dates"),
        (dd.from_pandas(frame["a"], npartitions=1), r"X is a Dask series.*to_frame"),
        ([dask.delayed(np.zeros)((2, 3)), dask.delayed(np.zeros)((2, 4))], "partitions of 3 and of 4 columns"),
        ([dask.delayed(frame[["a"]]), dask.delayed(frame[["a"]].set_axis(["z"], axis=1))], "other columns"),
        ([dask.delayed(7)], "a partition of X is int"),
        (da.ma.masked_equal(da.arange(6, chunks=3).reshape(6, 1), 3), "masked"),
    ):
        with pytest.raises(ValueError, match=text):
            Partitions(X).load()
    with pytest.raises(ValueError, match="y has 5 entries, and X has 6 rows"):
        Partitions(zeros, y=da.zeros(5))
    with pytest.raises(ValueError, match="memory must be"):
        Partitions(zeros, memory="much")
    with pytest.raises(ValueError, match=r"client must be a distributed.Client, got str"):
        Partitions(zeros, client="tcp://127.0.0.1:8786")
    lies = da.map_blocks(np.delete, zeros, 0, axis=0, chunks=zeros.chunks, dtype=float, meta=np.empty((0, 0)))
    with pytest.raises(ValueError, match=r"has shape \(1, 3\) where \(2, 3\) was expected"):
        Partitions(lies).load()


def test_importing_ksparse_does_not_import_dask():
    text = "import sys, ksparse, ksparse.sources; print({'dask', 'distributed'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", text], capture_output=True, text=True).stdout == "set()\n"
    text = "import sys; sys.modules['dask'] = None; from ksparse.sources import Partitions; Partitions(None)"
    said = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True).stderr
    assert "pip install 'ksparse[dask]'" in said.splitlines()[-1]


# --- one cluster for all ---------------------------------------------------------------------------------------------
def test_a_fit_and_a_phase_run_share_a_cluster(client, tmp_path):
    A, X, y = data("dense")
    rows = Partitions(X, client=client)
    phase.run(matched, scheduler=client.scheduler.address, out=tmp_path / "there", **SMALL)
    assert_same(rows, A, y)
    phase.run(matched, jobs=1, out=tmp_path / "here", **SMALL)
    assert files(tmp_path / "there") == files(tmp_path / "here")


@pytest.mark.long
def test_the_paper_runs_on_a_cluster(client, tmp_path):
    for name, where in (("there", ["--scheduler", client.scheduler.address]), ("here", ["--jobs", "1"])):
        command = ["paper", "--preset", "quick", "--figures", "theory,4", "--out", str(tmp_path / name), "-q", *where]
        done = subprocess.run([sys.executable, "-m", "ksparse.cli", *command], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    for folder in ("results", "summary", "figures"):
        assert files(tmp_path / "there" / folder) == files(tmp_path / "here" / folder)
    assert "figure4.jsonl" in files(tmp_path / "here" / "results")
