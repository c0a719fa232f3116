"""Checkpoints: a fit that was killed anywhere ends as an undisturbed one does; and files that will not do."""

from __future__ import annotations

import errno
import json
import os
import runpy
import signal
import subprocess
import sys
import threading
from pathlib import Path

import dask.array as da
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_iris

import ksparse
from ksparse import (
    HTP,
    HTSAGA,
    HTSVRG,
    IHT,
    NIHT,
    OMP,
    OMPR,
    PGD,
    ROMP,
    CoSaMP,
    Exchange,
    GraHTP,
    GraSP,
    KSparseClassifier,
    KSparseRegressor,
    KSparseRegressorCV,
    StoIHT,
    SubspacePursuit,
    checkpoint,
    joint,
    k_path,
    losses,
    minimize,
)
from ksparse._files import open_locked, replace_locked
from ksparse.design import as_design
from ksparse.engine import checkpoint as module
from ksparse.problem import Problem
from ksparse.sources import Blocks

SAME = {"data": "a.csv", "rows": 60}
LOSSES = tuple(losses.LOSSES)


def refused(words, path, identity=None, fit=lambda: None):
    """A checkpoint is not used, or not for this fit, and says why."""
    with pytest.raises(ValueError, match=words), checkpoint(path, identity, keep=True):
        fit()


class Killed(BaseException):
    """As good as a SIGKILL, but for what is written on the way out."""


def data(loss="squared", n=60, d=25, seed=0):
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((n, d)) + 0.5 * rng.standard_normal((n, 1))
    z = A[:, 3] - 2 * A[:, 7] + A[:, 11] + 0.5 * rng.standard_normal(n)
    if loss == "poisson":
        return A, rng.poisson(np.exp(np.clip(z, -3, 2))).astype(float)
    if losses.kind_of_targets(loss) == "positive":
        return A, np.exp(np.clip(z, -3, 2))
    return A, z if loss in ("squared", "huber") else np.where(z > 0, 1.0, -1.0)


def killed_after(keeps, fit, path, monkeypatch, identity=None):
    """Fit in a checkpoint, with a kill once so many states have been kept; whether it came to that."""
    left = [keeps]
    keep = module.Entry.keep

    def counting(entry, state):
        keep(entry, state)
        left[0] -= 1
        if left[0] == 0:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(module.Entry, "keep", counting)
        try:
            with checkpoint(path, identity, keep=True):
                fit()
        except Killed:
            return True
    path.unlink()
    return False


def same(one, other, digits=0):
    """Every part of two results, in all bits or so many digits, but for the seconds."""
    close = np.array_equal if digits == 0 else lambda a, b, **_: np.allclose(a, b, rtol=10.0**-digits, atol=1e-14)
    assert np.array_equal(one.support, other.support)
    assert close(one.x, other.x)
    assert close(one.intercept, other.intercept)
    assert close(one.objective, other.objective)
    assert one.status.explain() == other.status.explain()
    assert (one.n_stages, one.swap_optimal) == (other.n_stages, other.swap_optimal)
    for name in ("objective", "support_changes", "screened", *(() if digits else ("gradients", "step"))):
        mine, others = getattr(one.history, name), getattr(other.history, name)
        assert mine.dtype == others.dtype
        assert close(mine, others, equal_nan=True), name
    assert (np.diff(one.history.seconds) >= 0).all()


def resumed_everywhere(fit, path, monkeypatch, digits=0, step=1):
    """Kill a fit after every state it keeps, and let it go on; returns how often."""
    expected, keeps = fit(), 1
    while killed_after(keeps, fit, path, monkeypatch):
        with checkpoint(path) as saved:
            result = fit()
        assert not path.exists()
        assert "goes on from stage" in saved.resumed
        same(result, expected, digits)
        keeps += step
    return keeps - 1


EXACT = {
    "ht-svrg": (HTSVRG(), {}),
    "fixed step": (HTSVRG(step=0.02, stages=12), {"intercept": True, "l2": 0.01}),
    "theory": (HTSVRG(step="theory", stages=8), {"sample_weight": np.linspace(0.1, 2, 60)}),
    "batches": (HTSVRG(batch_size=3, output="random"), {"intercept": True, "offset": np.linspace(-1, 1, 60)}),
    "radius": (HTSVRG(), {"radius": 1.5, "always_keep": [2, 9], "intercept": True}),
    "positive": (HTSVRG(stages=15, tol=0), {"positive": True}),
    "x0": (HTSVRG(), {"x0": np.arange(25.0)}),
    "stoiht": (StoIHT(epochs=12, batch_size=2), {"intercept": True}),
    "stoiht, spectral": (StoIHT(epochs=5, step="spectral"), {"always_keep": [0]}),
    "pgd": (PGD(), {"intercept": True, "always_keep": [1]}),
    "pgd, ball": (PGD(), {"radius": 1.0, "l2": 0.1}),
    "pgd, spectral": (PGD(step="spectral"), {}),
    "iht": (IHT(), {}),
    "niht": (NIHT(), {"intercept": True, "always_keep": [1], "sample_weight": np.linspace(0.1, 2, 60)}),
    "niht, x0": (NIHT(), {"x0": np.ones(25)}),
}


@pytest.mark.parametrize("name", EXACT)
def test_a_gradient_method_goes_on_bit_for_bit(name, tmp_path, monkeypatch):
    solver, extra = EXACT[name]
    A, y = data()
    A = A / (1.2 * np.linalg.norm(A, 2)) if name == "iht" else A

    def fit():
        return minimize(A, y, 4, solver=solver, random_state=5, **extra)

    stages = fit().n_stages
    assert stages >= 4
    kept = resumed_everywhere(fit, tmp_path / "c", monkeypatch, step=1 if stages < 40 else 7)
    assert kept >= min(stages - 1, 30)


@pytest.mark.parametrize("loss", [LOSSES[1], *(pytest.param(loss, marks=pytest.mark.long) for loss in LOSSES[2:])])
def test_other_losses_and_sparse_rows(loss, tmp_path, monkeypatch):
    A, y = data(loss)
    A[np.abs(A) < 0.8] = 0.0
    rows = sparse.csr_matrix(A)
    for solver in (HTSVRG(stages=8), PGD(iterations=12)):
        kept = resumed_everywhere(
            lambda solver=solver: minimize(rows, y, 3, loss=loss, l2=0.01, solver=solver, random_state=1),
            tmp_path / "c", monkeypatch, step=2,
        )  # fmt: skip
        assert kept > 3


@pytest.mark.parametrize(
    "solver", [HTSVRG(stages=8), StoIHT(epochs=6), PGD(), Exchange()], ids=lambda s: type(s).__name__
)
def test_rows_that_come_in_blocks(solver, tmp_path, monkeypatch):
    """How many steps a stage has follows from the memory; what was begun with one goes on, whatever it is later."""
    A, y = data(n=600, d=200)

    def fit(memory=2**20):
        source = Blocks([A[:250], A[250:400], A[400:]], memory=memory)
        return minimize(source, y, 4, solver=solver, random_state=3, intercept=True)

    exact = 11 if isinstance(solver, Exchange) else 0
    expected = fit()
    assert resumed_everywhere(fit, tmp_path / "c", monkeypatch, exact, step=3) >= 2
    assert killed_after(2, fit, tmp_path / "c", monkeypatch)
    with checkpoint(tmp_path / "c"):
        same(fit(memory=2**21), expected, digits=9)  # other blocks: the sums of a pass are rounded otherwise


ANEW = (HTSAGA(epochs=10), HTP(), CoSaMP(), SubspacePursuit(), OMP(), ROMP(), OMPR(), GraSP(), GraHTP())


@pytest.mark.long
@pytest.mark.parametrize("solver", ANEW, ids=lambda solver: type(solver).__name__)
def test_others_start_anew_from_the_same_random_numbers(solver, tmp_path):
    A, y = data()
    expected = minimize(A, y, 4, solver=solver, random_state=5, intercept=True)

    def stop(progress):
        raise Killed

    with pytest.raises(Killed), checkpoint(tmp_path / "c"):
        minimize(A, y, 4, solver=solver, random_state=5, intercept=True, callback=stop)
    with checkpoint(tmp_path / "c") as saved:
        same(minimize(A, y, 4, solver=solver, random_state=5, intercept=True), expected)
    assert saved.resumed == "run 1 goes on from stage 0"


@pytest.mark.parametrize("loss", [*LOSSES[:2], *(pytest.param(loss, marks=pytest.mark.long) for loss in LOSSES[2:])])
@pytest.mark.parametrize(
    ("effort", "extra"),
    [("default", {}), ("best", {"always_keep": [2], "sample_weight": np.linspace(0.1, 2, 60)}),
     ("default", {"x0": np.ones(25)})],
)  # fmt: skip
def test_exchange_goes_on_from_every_model(loss, effort, extra, tmp_path, monkeypatch):
    A, y = data(loss)

    def fit():
        return minimize(A, y, 5, loss=loss, solver=Exchange(effort=effort), intercept=True, l2=0.01, **extra)

    least = 2 if loss == "squared" else 3  # least squares is quickly done again
    assert resumed_everywhere(fit, tmp_path / "c", monkeypatch, 11, step=5 if effort == "best" else 1) >= least


@pytest.mark.parametrize("kind", ["softmax", *(pytest.param(k, marks=pytest.mark.long) for k in ("targets", "groups"))])
def test_joint_exchange_goes_on_from_every_model(kind, tmp_path, monkeypatch):
    A, y = data("logistic" if kind == "groups" else "squared")
    Y = {"targets": np.column_stack([y, A[:, 2] + A[:, 7]]), "softmax": np.digitize(y, [-1, 1]), "groups": y}[kind]
    extra = {"groups": np.arange(25) // 2, "loss": "logistic"} if kind == "groups" else {}
    extra |= {"loss": "softmax"} if kind == "softmax" else {}

    def fit():
        return joint(A, Y, 3, intercept=True, l2=0.01, always_keep=[1], **extra)

    least = 2 if kind == "targets" else 3  # least squares is quickly done again
    assert resumed_everywhere(fit, tmp_path / "c", monkeypatch, digits=10) >= least


# --- several runs ----------------------------------------------------------------------------------------------------
def models():
    """Estimators of every kind, with their coefficients; 30 runs and more."""
    A, y = data()
    X, labels = load_iris(return_X_y=True)
    path = k_path(A, y, [1, 2, 4])
    chosen = KSparseRegressorCV(ks=[1, 3], cv=3).fit(A, y)
    each = KSparseClassifier(k=2, multi_class="ovr").fit(X, labels)
    softmax = KSparseClassifier(k=2).fit(X, labels)
    drawn = KSparseRegressor(k=3, solver=HTSVRG(stages=30), random_state=np.random.RandomState(2)).fit(A, y)
    both = KSparseRegressor(k=3).fit(A, np.column_stack([y, A[:, 1]]))
    all_ = [*path.models, chosen.estimator_, each, softmax, drawn, both]
    return [np.ravel(model.coef_) for model in all_] + [chosen.scores_.ravel()]


def test_estimators_paths_and_cross_validation_in_one_checkpoint(tmp_path, monkeypatch):
    expected = models()
    path, said = tmp_path / "c", []
    for keeps in (2, 9, 16, 23, 30, 40):
        if not killed_after(keeps, models, path, monkeypatch):
            break
        with checkpoint(path) as saved:
            found = models()
        said.append(saved.resumed)
        assert all(np.allclose(one, other, rtol=1e-10, atol=1e-13) for one, other in zip(found, expected, strict=True))
    assert len(said) > 3
    assert "runs done, run" in said[-1]


def test_runs_that_ended_are_answered_without_a_look_at_the_data(tmp_path, monkeypatch):
    A, y = data("logistic")
    settings_ = [{"solver": HTSVRG(), "random_state": 1}, {"solver": Exchange()}, {"solver": PGD(step=1e6)}]

    def fits():
        return [minimize(A, y, 3, loss="logistic", **extra) for extra in settings_]

    with checkpoint(tmp_path / "c", keep=True):
        first = fits()
    monkeypatch.setattr(Problem, "stage", None)
    monkeypatch.setattr(Problem, "objective", None)
    with checkpoint(tmp_path / "c", keep=True) as saved:
        again = fits()
    assert saved.resumed == "3 runs done"
    assert [result.status for result in first] == ["converged", "converged", "diverged"]
    for one, other in zip(again, first, strict=True):
        same(one, other)
        assert np.array_equal(one.history.seconds, other.history.seconds)
        assert one.status.remedy == other.status.remedy
    assert again[1].swap_optimal is True


@pytest.mark.parametrize("kind", ["PCG64", "MT19937", "Philox", "SFC64"])
def test_a_generator_that_runs_share_is_where_they_left_it(kind, tmp_path, monkeypatch):
    A, y = data()

    def fits():
        rng = np.random.Generator(getattr(np.random, kind)(3))
        return [minimize(A, y, 3, solver=HTSVRG(stages=6, tol=0), random_state=rng) for _ in range(3)][-1], rng.random()

    expected = fits()
    assert killed_after(15, fits, tmp_path / "c", monkeypatch)
    with checkpoint(tmp_path / "c") as saved:
        result, number = fits()
    assert saved.resumed == "2 runs done, run 3 goes on from stage 2"
    same(result, expected[0])
    assert number == expected[1]


def test_without_a_seed_the_numbers_of_the_first_try_are_used(tmp_path, monkeypatch):
    A, y = data()
    path = tmp_path / "c"
    assert killed_after(1, lambda: minimize(A, y, 3), path, monkeypatch)
    content = path.read_bytes()
    ends = []
    for _ in range(2):
        path.write_bytes(content)
        with checkpoint(path):
            ends.append(minimize(A, y, 3))
    same(*ends)


def test_fits_in_callbacks_threads_and_forks_are_not_noted_down(tmp_path):
    A, y = data()
    inner = []

    def callback(progress):
        inner.append(minimize(A, y, 2, solver=PGD()))

    with checkpoint(tmp_path / "c", keep=True) as saved:
        minimize(A, y, 3, solver=HTSVRG(stages=3), random_state=0, callback=callback)
        thread = threading.Thread(target=lambda: inner.append(minimize(A, y, 2, solver=PGD())))
        thread.start()
        thread.join()
        KSparseClassifier(k=1, n_jobs=2, multi_class="ovr").fit(*load_iris(return_X_y=True))
    assert len(inner) > 2
    with checkpoint(tmp_path / "c") as saved:
        pass
    assert saved.resumed == "1 run done"


# --- how a block ends ------------------------------------------------------------------------------------------------
def test_the_file_goes_after_success_and_stays_after_an_error(tmp_path):
    A, y = data()
    path = tmp_path / "c"
    with checkpoint(path):
        assert path.exists()
        minimize(A, y, 3, random_state=0)
    assert not path.exists()

    def fail(progress):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), checkpoint(path):
        minimize(A, y, 3, random_state=0, callback=fail)
    with checkpoint(path, keep=True) as saved:
        minimize(A, y, 3, random_state=0)
    assert saved.resumed == "run 1 goes on from stage 0"
    assert os.listdir(tmp_path) == ["c"]
    path.unlink()
    with pytest.raises(ValueError, match="k must be"), checkpoint(path):  # nothing had been done
        minimize(A, y, 300)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("solver", [HTSVRG(tol=0, stages=12), Exchange(effort="best")], ids=["ht-svrg", "exchange"])
def test_ctrl_c_gives_the_best_so_far_and_the_next_call_goes_on(solver, tmp_path):
    A, y = data("logistic")
    arguments = {"loss": "logistic", "solver": solver, "random_state": 4}
    expected = minimize(A, y, 4, **arguments)

    def interrupt(progress):
        if progress.stage == 2:
            raise KeyboardInterrupt

    with checkpoint(tmp_path / "c"):
        cut = minimize(A, y, 4, **arguments, callback=interrupt)
        assert minimize(A, y, 2, solver=PGD()).converged  # of another k, because of the cut: not noted down
    assert cut.status == "interrupted"
    assert cut.n_stages == 2
    with checkpoint(tmp_path / "c") as saved:
        same(minimize(A, y, 4, **arguments), expected, digits=0 if isinstance(solver, HTSVRG) else 11)
    assert saved.resumed == "run 1 goes on from stage 1"
    assert os.listdir(tmp_path) == []


def test_max_time_is_had_again_by_the_next_call(tmp_path, clock):
    A, y = data()
    expected = minimize(A, y, 4, solver=PGD(step=0.05, iterations=20, tol=0))
    ends = []
    while not ends or ends[-1] == "time limit":
        with checkpoint(tmp_path / "c"):
            result = minimize(
                A, y, 4, solver=PGD(step=0.05, iterations=20, tol=0), max_time=0.24,
                callback=lambda progress: clock.sleep(0.05),
            )  # fmt: skip
        ends.append(result.status)
        assert (tmp_path / "c").exists() == (result.status == "time limit")
    assert ends == ["time limit"] * 3 + ["stage limit"]  # five stages each, then those that are left
    same(result, expected)
    assert result.history.seconds[-1] == pytest.approx(19 * 0.05)  # the twentieth sleep is after the last record


def test_time_before_a_kill_counts(tmp_path, clock):
    A, y = data()

    def slow(progress):
        clock.sleep(0.1)
        if progress.stage == 5:
            raise Killed

    arguments = {"solver": PGD(step=0.05, tol=0), "max_time": 0.6}
    with pytest.raises(Killed), checkpoint(tmp_path / "c"):
        minimize(A, y, 4, **arguments, callback=slow)
    with checkpoint(tmp_path / "c"):
        result = minimize(A, y, 4, **arguments, callback=lambda progress: clock.sleep(0.02))
    assert result.status == "time limit"
    assert "max_time = 0.6 s" in result.status.message
    assert 0.57 < result.history.seconds[-1] < 0.63  # 0.4 of them before the kill


def test_a_result_at_the_time_limit_stands_once_another_run_follows(tmp_path, clock):
    A, y = data()

    def fits():
        first = minimize(
            A, y, 3, solver=PGD(step=1e-4, tol=0), max_time=0.05, callback=lambda progress: clock.sleep(0.01)
        )
        return first, minimize(A, y, 3, solver=PGD(), x0=first)

    with checkpoint(tmp_path / "c", keep=True):
        before = fits()
    assert before[0].status == "time limit"
    with checkpoint(tmp_path / "c", keep=True) as saved:
        after = fits()
    assert saved.resumed == "2 runs done"
    same(after[0], before[0])
    same(after[1], before[1])


def test_little_is_done_again(tmp_path, monkeypatch):
    A, y = data()
    passes = [0]
    stage = Problem.stage

    def counted(*arguments):
        passes[0] += 1
        return stage(*arguments)

    monkeypatch.setattr(Problem, "stage", counted)

    def fit():
        return minimize(A, y, 3, solver=HTSVRG(step=0.01, stages=10, tol=0), random_state=0)

    fit()
    alone, passes[0] = passes[0], 0
    assert killed_after(6, fit, tmp_path / "c", monkeypatch)
    with checkpoint(tmp_path / "c"):
        fit()
    assert passes[0] == alone + 1


def test_short_stages_are_not_all_written(tmp_path, monkeypatch, clock):
    A, y = data()
    writes, replace = [0], module.replace_locked

    def counted(*arguments):
        writes[0] += 1
        return replace(*arguments)

    monkeypatch.setattr(module, "replace_locked", counted)
    with checkpoint(tmp_path / "c"):
        result = minimize(
            A, y, 3, solver=PGD(step=0.001, iterations=2000, tol=0), callback=lambda progress: clock.sleep(0.001)
        )
    assert result.n_stages == 2000
    assert 10 < writes[0] <= 2 + 2000 * 0.001 / module.PAUSE


def test_a_full_disk_does_not_end_the_fit(tmp_path, monkeypatch):
    A, y = data()
    expected = minimize(A, y, 3, random_state=0)

    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "PAUSE", 0.0)
    monkeypatch.setattr(module, "SHARE", 0.0)
    with checkpoint(tmp_path / "c"), monkeypatch.context() as patch:
        patch.setattr(module, "replace_locked", full)
        with pytest.warns(UserWarning, match="could not be written .No space left on device.; the fit goes on"):
            same(minimize(A, y, 3, random_state=0), expected)


# --- files that are not this fit's -----------------------------------------------------------------------------------
@pytest.fixture
def written(tmp_path, monkeypatch):
    """A checkpoint with a run that ended and one under way."""
    A, y = data()
    path = tmp_path / "c"

    def fits():
        minimize(A, y, 3, random_state=0, solver=PGD())
        minimize(A, y, 3, random_state=0, solver=HTSVRG(tol=0))

    assert killed_after(25, fits, path, monkeypatch, SAME)
    return path


def test_the_file_is_plain_json(written):
    def refuse(name):
        raise AssertionError(f"{name} is not JSON")

    header, *runs, end = [json.loads(line, parse_constant=refuse) for line in written.read_text().splitlines()]
    assert header["identity"] == {"data": "a.csv", "rows": 60}
    assert len(runs) == 2
    assert list(end) == ["sha256"]


def test_another_identity_is_refused(written):
    before = written.read_bytes()
    words = "c was made by another fit: rows is 61 and was 60; remove the file or give another"
    refused(words, written, {"data": "a.csv", "rows": 61})
    refused("data is None and was 'a.csv'; rows is None and was 60", written)
    refused("identity must be a dict", written, ["a.csv"])
    refused("identity must hold plain strings, numbers", written, {"a": written})
    assert written.read_bytes() == before


CHANGES = {
    "k is 4 and was 3": {"k": 4},
    "the solver is .PGD.*iterations=10": {"solver": PGD(iterations=10)},
    "loss is 'Huber": {"loss": "huber"},
    "y differs": {"y": data()[1] + np.eye(1, 60, 17)[0] * 1e-4},
    "the data differs": {"A": data()[0] + np.eye(60, 25, 3) * 1e-4},
    "(the data) differs": {"A": data()[0][::-1]},
    "sample_weight differs": {"sample_weight": np.linspace(1, 2, 60)},
    "offset differs": {"offset": np.ones(60)},
    "x0 differs": {"x0": np.ones(25)},
    "always_keep differs": {"always_keep": [3]},
    "l2 is 0.1 and was 0.0": {"l2": 0.1},
    "intercept is True": {"intercept": True},
    "positive is True": {"positive": True},
    "radius differs": {"radius": 2.0},
    "random_state is": {"random_state": 1},
    "the number of columns is 24 and was 25": {"A": data()[0][:, :24]},
}


@pytest.mark.parametrize("words", CHANGES)
def test_another_fit_is_refused(words, written):
    A, y = data()
    arguments = {"A": A, "y": y, "k": 3, "random_state": 0, "solver": PGD(), **CHANGES[words]}
    words = f"c was made by another fit: in run 1 .*{words}.*; remove the file or give"
    refused(words, written, SAME, lambda: minimize(**arguments))
    with checkpoint(written, SAME) as saved:  # it is as it was
        minimize(A, y, 3, random_state=0, solver=PGD())
        minimize(A, y, 3, random_state=0, solver=HTSVRG(tol=0))
    assert saved.resumed == "1 run done, run 2 goes on from stage 16"


KINDS = {
    "squared": KSparseRegressor(k=3),
    "huber": KSparseRegressor(k=3, loss="huber"),
    "poisson": KSparseRegressor(k=3, loss="poisson"),
    "positive": KSparseRegressor(k=3, positive=True),
    "raw columns": KSparseRegressor(k=3, standardize=False, solver="htp"),
    "drawn rows": KSparseRegressor(k=3, solver=HTSVRG(stages=3), random_state=0),
    "groups": KSparseRegressor(k=2, groups=np.arange(25) // 2),
    "targets": KSparseRegressor(k=3),
    "logistic": KSparseClassifier(k=3),
    "squared_hinge": KSparseClassifier(k=3, loss="squared_hinge"),
    "one against the rest": KSparseClassifier(k=3, multi_class="ovr"),
    "softmax": KSparseClassifier(k=3),
}
SOURCES = {
    "blocks": lambda X: Blocks([X[:25], X[25:]]),
    "sparse blocks": lambda X: Blocks([sparse.csr_matrix(X[:25]), sparse.csr_matrix(X[25:])]),
    "dask": lambda X: da.from_array(X, chunks=(20, 25)),
}
LAYOUTS = {"dense": np.array, "csr": sparse.csr_array, **SOURCES}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("layout", ["dense", "csr", *(pytest.param(name, marks=pytest.mark.long) for name in SOURCES)])
@pytest.mark.parametrize("kind", KINDS)
def test_an_estimator_goes_on_with_its_own_rows_only(kind, layout, tmp_path):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 25)) * (rng.random((60, 25)) < 0.6)
    X[:, 1] *= 1e9  # beside such numbers a small change is lost in any sum
    weight, offset, model = rng.random(60), rng.standard_normal(60), KINDS[kind]
    y = X[:, 3] - 2 * X[:, 7] + rng.standard_normal(60)
    if kind == "targets":
        y = np.column_stack([y, X[:, 4]])
    elif kind == "poisson":
        y = np.round(np.abs(y))
    elif isinstance(model, KSparseClassifier):
        y = np.digitize(y, [-1, 1] if kind in ("softmax", "one against the rest") else [0])
    start = {"X": X, "y": y, "sample_weight": weight}
    small = X.copy()
    small[17, 3] += 1e-6
    changes = {
        "the data differs": [{"X": X[rng.permutation(60)]}, {"X": X[::-1]}, {"X": X[:, ::-1]}, {"X": small}],
        "(y|Y|Y, less the offset,) differs": [{"y": np.roll(y, 1, axis=0)}],
        "sample_weight differs": [{"sample_weight": weight[::-1].copy()}],
    }
    if isinstance(model, KSparseRegressor) and kind != "targets":
        start["offset"] = offset
        changes["offset differs"] = [{"offset": np.roll(offset, 1)}]

    def fit(**change):
        given = {**start, **change}
        return clone(model).fit(LAYOUTS[layout](given.pop("X")), given.pop("y"), **given)

    with checkpoint(tmp_path / "c", keep=True):
        first = fit()
    with checkpoint(tmp_path / "c", keep=True) as saved:
        np.testing.assert_array_equal(fit().coef_, first.coef_)
    assert "done" in saved.resumed
    for words, several in changes.items():
        for change in several:
            refused(words, tmp_path / "c", None, lambda change=change: fit(**change))


def test_rows_have_codes_by_their_values_whatever_their_layout():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((70, 9)) * (rng.random((70, 9)) < 0.5)
    X[5] = 0.0
    codes = as_design(X).row_codes()
    for same in (sparse.csr_array(X), np.where(X == 0, -0.0, X), Blocks([X[:9], X[9:]]), Blocks([sparse.csr_array(X)])):
        np.testing.assert_array_equal(as_design(same).row_codes(), codes)
    changed = [-X, np.where(np.arange(9) < 2, -X, X), 2 * X, X[:, ::-1], np.roll(X, 1, axis=1), np.nextafter(X, 9)]
    for other in changed:
        different = (other != X).any(axis=1)
        np.testing.assert_array_equal(as_design(other).row_codes() != codes, different)


def test_joint_fits_are_told_apart(tmp_path):
    A, y = data()
    labels = np.digitize(y, [-1, 1])
    with checkpoint(tmp_path / "c", keep=True):
        joint(A, labels, 2, loss="softmax")
    for words, change in {
        "Y differs": {"Y": np.roll(labels, 1)},
        "groups differs": {"groups": np.arange(25) // 5},
        "the solver is": {"solver": Exchange(effort="fast")},
        "the kind of targets is 'Single'": {"loss": "squared"},
    }.items():
        arguments = {"A": A, "Y": labels, "k": 2, "loss": "softmax", **change}
        refused(words, tmp_path / "c", None, lambda arguments=arguments: joint(**arguments))


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """A file, and its content."""
    path = tmp_path_factory.mktemp("torn") / "c"
    with checkpoint(path, keep=True):
        minimize(*data(), 3, solver=PGD())
    return path, path.read_bytes()


@settings(max_examples=100, deadline=None)
@given(share=st.floats(0.0, 1.0), change=st.integers(0, 255) | st.none())
def test_a_file_cut_short_or_changed_anywhere_is_refused(share, change, ended):
    path, content = ended
    at = int(share * (len(content) - 1))
    torn = content[:at] if change is None else content[:at] + bytes([change]) + content[at + 1 :]
    if torn in (content, b""):
        return
    path.write_bytes(torn)
    refused("c is (damaged|no checkpoint of ksparse)", path)
    assert path.read_bytes() == torn


@pytest.mark.parametrize("content", [b"a,b\n1,2\n", b"\x80\x04\x95", b"{}", b"PK\x03\x04", b"\n\n", b"null"])
def test_a_foreign_file_is_left_alone(content, tmp_path):
    (tmp_path / "model.json").write_bytes(content)
    refused("model.json is no checkpoint of ksparse; give another file", tmp_path / "model.json")
    assert (tmp_path / "model.json").read_bytes() == content
    assert os.listdir(tmp_path) == ["model.json"]


def forged(path, change):
    """A file whose checksum is right all the same."""
    lines = [json.loads(line) for line in path.read_text().splitlines()[:-1]]
    change(lines)
    lines = [json.dumps(line).encode() for line in lines]
    end = json.dumps({"sha256": module._digest(lines)}).encode()
    path.write_bytes(b"\n".join([*lines, end]) + b"\n")


@pytest.mark.parametrize("column", [-1, 25, 10**12])
def test_columns_that_do_not_exist_reach_no_kernel(column, written):
    A, y = data()

    def change(lines):
        slots = module.decoded(lines[2]["told"]["state"]["slots"])
        slots[0][1] = column
        lines[2]["told"]["state"]["slots"] = module.encoded(slots)

    forged(written, change)

    def fits():
        minimize(A, y, 3, random_state=0, solver=PGD())
        minimize(A, y, 3, random_state=0, solver=HTSVRG(tol=0))

    refused("columns that this problem does not have", written, SAME, fits)


def test_forged_files(written):
    content = written.read_bytes()
    for change in (
        lambda lines: lines[1].pop("told"),
        lambda lines: lines[1]["told"].update(another=1),
        lambda lines: lines[1]["told"]["result"]["x"].update({"$array": "|O"}),
        lambda lines: lines[1]["told"]["result"]["x"].update(shape=[10**9]),
        lambda lines: lines.pop(0),
        lambda lines: lines.__setitem__(1, [1, 2]),
    ):
        written.write_bytes(content)
        forged(written, change)
        refused("c is (damaged|no checkpoint)", written, SAME)
    written.write_bytes(content)
    forged(written, lambda lines: lines[0].update(ksparse="0.0.1"))
    refused(f"it is of 0.0.1, and this is {ksparse.__version__}; remove", written, SAME)


def test_two_at_once(tmp_path):
    A, y = data()
    path = tmp_path / "c"
    with checkpoint(path):
        minimize(A, y, 3, random_state=0)
        refused("c is being written by another run; wait for it, or give another", path)
        code = f"import ksparse\nwith ksparse.checkpoint({str(path)!r}): pass"
        other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert other.returncode == 1
        assert "is being written by another run" in other.stderr
        with checkpoint(tmp_path / "another"):
            minimize(A, y, 3, random_state=0)


def test_a_place_that_cannot_be_written_is_known_before_any_work(tmp_path, monkeypatch):
    def never():
        raise AssertionError("the block was entered")

    refused("there is no folder .*none; make it first", tmp_path / "none" / "c", None, never)
    refused("is a folder; give a name in it", tmp_path, None, never)
    folder = tmp_path / "locked"
    folder.mkdir(mode=0o500)
    if not os.access(folder, os.W_OK):  # root may write everywhere
        refused("cannot be written .Permission denied.", folder / "c", None, never)

    def refuse(*arguments):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(module, "replace_locked", refuse)
    refused("c cannot be written .Permission denied.; give one in", tmp_path / "c", None, never)
    assert os.listdir(tmp_path) == ["locked"]


def test_a_full_disk_does_not_hide_the_first_error(tmp_path, monkeypatch):
    A, y = data()

    def full(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    def fits():
        with checkpoint(tmp_path / "c"):
            minimize(A, y, 3, random_state=0)
            monkeypatch.setattr(module, "replace_locked", full)
            1 / 0  # noqa: B018

    with pytest.raises(ZeroDivisionError), pytest.warns(UserWarning, match="it holds what was written before"):
        fits()
    with pytest.raises(OSError, match="No space left"), checkpoint(tmp_path / "another"):
        raise AssertionError("the block was entered")


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_characters="$")), inner),
    max_leaves=20,
)


@settings(max_examples=100, deadline=None)
@given(value=values)
def test_what_is_kept_comes_back(value):
    text = json.dumps(module.encoded(value), allow_nan=False)
    assert repr(module.decoded(json.loads(text))) == repr(value)


@settings(max_examples=60, deadline=None)
@given(size=st.integers(1, 200), seed=st.integers(0, 9), share=st.floats(1e-6, 10.0))
def test_sums_tell_vectors_apart_but_not_their_rounding(size, seed, share):
    vector = np.random.default_rng(seed).standard_normal(size)
    mine = module.sums(vector)
    assert module._same(mine, module.sums(vector * (1 + 1e-13)))
    changed = vector.copy()
    changed[seed % size] += share * np.abs(vector).sum()
    assert not module._same(mine, module.sums(changed))
    assert size < 3 or not module._same(mine, module.sums(np.roll(vector, 1)))


# --- real kills ------------------------------------------------------------------------------------------------------
SCRIPT = """
import json
import os
import signal
import sys
import threading
from pathlib import Path
import numpy as np
import ksparse
from ksparse import HTSVRG, Exchange, minimize
from ksparse.engine import checkpoint as module

module.PAUSE = module.SHARE = 0.0  # every stage is written, however short
stages, delay = int(sys.argv[4]), float(sys.argv[5])
kill = threading.Timer(delay, os.kill, (os.getpid(), signal.SIGKILL))
seen = 0


def die(progress):  # some time after so many stages, and at most four later
    global seen
    seen += 1
    if seen == stages:
        kill.start()
    if seen == stages + 4 and stages:
        kill.join()


rng = np.random.default_rng(0)
A = rng.standard_normal((2000, 200))
z = A[:, :8] @ rng.standard_normal(8) + rng.standard_normal(2000)
y = np.where(z > 0, 1.0, -1.0)
with ksparse.checkpoint(sys.argv[1], {"script": 1}) as saved:
    with open(sys.argv[2], "a") as log:
        print(saved.resumed, file=log)
    first = minimize(A, z, 8, solver=HTSVRG(tol=0, stages=30, m=40000), random_state=1, callback=die)
    second = minimize(A, y, 8, loss="logistic", solver=Exchange(effort="best"), intercept=True, callback=die)
    random = HTSVRG(tol=0, stages=30, m=40000, output="random")
    third = minimize(A, y, 8, loss="logistic", solver=random, random_state=2, callback=die)
    found = {"first": first.x, "second": second.x, "third": third.x, "objectives": third.history.objective}
    Path(sys.argv[3]).write_text(json.dumps({name: values.tolist() for name, values in found.items()}))
"""


def killed_at_random(kills, low, high, tmp_path, monkeypatch):
    """A fit in a process of its own, killed so many times, each time a moment after low to high stages; what it said
    whenever it began, once it has ended."""
    rng = np.random.default_rng(kills)
    script, path, log = tmp_path / "fit.py", tmp_path / "c", tmp_path / "log"
    script.write_text(SCRIPT)
    for name in ("PAUSE", "SHARE"):  # which the script sets
        monkeypatch.setattr(module, name, getattr(module, name))
    monkeypatch.setattr(sys, "argv", ["", str(tmp_path / "alone"), os.devnull, str(tmp_path / "expected"), "0", "0"])
    runpy.run_path(str(script))
    environment = {**os.environ, "PYTHONPATH": str(Path(ksparse.__file__).parents[1])}
    moments = [(rng.integers(low, high + 1), rng.uniform(0, 0.05)) for _ in range(kills)]
    for stages, delay in (*moments, (0, 0.0)):
        arguments = [script, path, log, tmp_path / "found", stages, delay]
        done = subprocess.run([sys.executable, *map(str, arguments)], env=environment)
        assert done.returncode == (-signal.SIGKILL if stages else 0)
    assert not path.exists()
    expected, found = (json.loads((tmp_path / name).read_text()) for name in ("expected", "found"))
    for name in ("first", "third", "objectives"):
        assert expected[name] == found[name], name
    assert np.array_equal(np.flatnonzero(expected["second"]), np.flatnonzero(found["second"]))
    np.testing.assert_allclose(found["second"], expected["second"], rtol=1e-10)
    return log.read_text().splitlines()


def test_three_kills(tmp_path, monkeypatch):
    said = killed_at_random(3, 10, 15, tmp_path, monkeypatch)  # of 60 stages and more
    assert said[0] == "None"
    assert all("goes on from stage" in line or "done" in line for line in said[1:])


@pytest.mark.long
def test_ten_kills_at_random_moments(tmp_path, monkeypatch):
    said = killed_at_random(10, 1, 2, tmp_path, monkeypatch)
    assert sum("goes on from stage" in line for line in said) >= 8


def test_a_link_is_followed_and_what_is_no_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="is a device or a pipe"), checkpoint(tmp_path / "pipe"):
        pass
    assert (tmp_path / "pipe").is_fifo()
    with pytest.raises(ValueError, match="must be the path of a file, got None"), checkpoint(None):
        pass
    (tmp_path / "link").symlink_to(tmp_path / "real")
    X = np.random.default_rng(0).standard_normal((50, 5))
    with checkpoint(tmp_path / "link", keep=True):
        minimize(X, X[:, 0], 1, random_state=0)
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").stat().st_size > 0


def test_a_replaced_file_keeps_its_descriptor_and_its_lock(tmp_path):
    """An interrupt between two lines must not leave the owner with a descriptor that is closed."""
    path = tmp_path / "file"
    file = open_locked(path, "wait")
    for content in (b"first", b"second"):
        replace_locked(path, content, file, "wait")
        assert path.read_bytes() == content
        assert os.fstat(file).st_ino == path.stat().st_ino
        with pytest.raises(ValueError, match="being written by another run"):
            open_locked(path, "wait")
    os.close(file)
