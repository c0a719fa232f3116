"""Replay: every solver gives the iterates of a plain NumPy loop fed the same draws, to 1e-9, through many
support changes."""

from __future__ import annotations

import dataclasses

import numpy as np
import oracle
import pytest
from scipy import sparse

from ksparse import HTSAGA, HTSVRG, IHT, PGD, StoIHT, losses, minimize
from ksparse.problem import Problem, Snapshot
from ksparse.solvers.htsvrg import stage_steps
from ksparse.solvers.screen import SWAPS, forget_rows, make_screen

LOSSES = tuple(losses.LOSSES)
LAYOUTS = {
    "dense": lambda A: A,
    "dense32": lambda A: A.astype(np.float32),
    "csr": sparse.csr_array,
    "csr64": lambda A: _wide(sparse.csr_array(A)),
    "csr32": lambda A: sparse.csr_array(A.astype(np.float32)),
}


def _wide(A):
    A.indices, A.indptr = A.indices.astype(np.int64), A.indptr.astype(np.int64)
    return A


def make_data(loss, seed, n=40, d=90, ties=False):
    """Sparse rows (so that CSR is not dense in disguise), with a planted model."""
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((n, d)) * (rng.random((n, d)) < 0.4) / 3
    if ties:  # whole numbers and repeated columns: exact ties in every look
        A = np.round(3 * A)
        A[:, d // 2 :] = A[:, : d - d // 2]
    A = A.astype(np.float32).astype(np.float64)
    z = A[:, :8] @ rng.standard_normal(8) + 0.3 * rng.standard_normal(n)
    if loss in ("logistic", "squared_hinge"):
        y = np.where(z > np.median(z), 1.0, -1.0)
    elif loss == "poisson":
        y = rng.poisson(np.exp(np.clip(z, -3, 1.5))).astype(float)
    elif losses.kind_of_targets(loss) == "positive":
        y = np.exp(np.clip(z, -3, 1.5))
    else:
        y = np.round(z * 4) if ties else z
    return A, y


SETTINGS = {
    "plain": {},
    "weights": {"weight": True},
    "ridge": {"l2": 0.05},
    "radius": {"radius": 0.4},
    "kept": {"kept": (2, 5, 60)},
    "intercept": {"intercept": True, "offset": True},
    "positive": {"positive": True},
    "all": {
        "weight": True,
        "l2": 0.1,
        "radius": 1.0,
        "kept": (2, 60),
        "intercept": True,
        "positive": True,
        "offset": True,
    },
}
RUNS = {
    # solver with a step, its oracle; the steps are large, so that supports churn
    "ht-svrg": (
        lambda eta: HTSVRG(step=eta, m=60, stages=5, tol=0, stop_on_divergence=False),
        lambda p, eta, s: oracle.ht_svrg(p, eta, 60, 5, s),
    ),
    "ht-svrg-random": (
        lambda eta: HTSVRG(step=eta, m=60, stages=8, output="random", tol=0, stop_on_divergence=False),
        lambda p, eta, s: oracle.ht_svrg(p, eta, 60, 8, s, output="random"),
    ),
    "ht-svrg-batch": (
        lambda eta: HTSVRG(step=eta, m=40, stages=5, batch_size=3, tol=0, stop_on_divergence=False),
        lambda p, eta, s: oracle.ht_svrg(p, eta, 40, 5, s, batch_size=3),
    ),
    "ht-saga": (
        lambda eta: HTSAGA(step=eta, epochs=8, tol=0, stop_on_divergence=False),
        lambda p, eta, s: oracle.ht_saga(p, eta, 8, s),
    ),
    "stoiht": (
        lambda eta: StoIHT(step=eta, epochs=5, tol=0, stop_on_divergence=False),
        lambda p, eta, s: oracle.stoiht(p, eta, 5, s),
    ),
    "stoiht-batch": (
        lambda eta: StoIHT(step=eta, epochs=20, batch_size=4, tol=0, stop_on_divergence=False),
        lambda p, eta, s: oracle.stoiht(p, eta, 20, s, batch_size=4),
    ),
    "iht": (
        lambda eta: IHT(iterations=12, tol=0, stop_on_divergence=False),
        lambda p, eta, s: oracle.pgd(p, float(p.n), 12),
    ),
    "pgd": (
        lambda eta: PGD(step=3 * eta, iterations=60, tol=0, stop_on_divergence=False),
        lambda p, eta, s: oracle.pgd(p, 3 * eta, 60),
    ),
}
ETA = {"squared": 0.4, "logistic": 4.0, "poisson": 0.1, "gamma": 0.1, "huber": 0.4, "squared_hinge": 0.1}


def replay(run, A, y, k, loss, eta, seed, setting):
    """Run both; return (ours, oracle's, support changes), snapshot by snapshot."""
    setting = dict(setting)
    rng = np.random.default_rng(seed + 1)
    weight = rng.random(y.size) * (rng.random(y.size) < 0.9) if setting.pop("weight", False) else None
    offset = 0.2 * rng.standard_normal(y.size) if setting.pop("offset", False) else None
    make, plain = RUNS[run]
    kept = setting.pop("kept", ())
    ours = []
    result = minimize(
        A, y, k, loss=loss, solver=make(eta), random_state=seed, sample_weight=weight, offset=offset,
        always_keep=list(kept), callback=lambda p: ours.append(np.append(p.x, p.intercept)), **setting,
    )  # fmt: skip
    p = oracle.Plain(A, y, k, loss=loss, weight=weight, offset=offset, kept=kept, **setting)
    theirs = plain(p, eta, seed)
    if not p.kept[-1] or p.A.shape[1] == p.d:
        theirs = [np.append(x, 0.0) for x in theirs]
    objectives = [p.objective(x if p.A.shape[1] > p.d else x[:-1]) for x in theirs]
    np.testing.assert_allclose(result.history.objective, objectives, rtol=1e-9, atol=1e-12)
    return ours, theirs[1:], int(result.history.support_changes.sum())


def assert_same(ours, theirs):
    assert len(ours) == len(theirs)
    for stage, (x, z) in enumerate(zip(ours, theirs, strict=True), 1):
        assert np.max(np.abs(x - z)) <= 1e-9 * max(1e-3, np.max(np.abs(z))), f"stage {stage}"
        np.testing.assert_array_equal(np.flatnonzero(x), np.flatnonzero(z))


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("loss", ["squared", "logistic"])
@pytest.mark.parametrize("layout", ["dense", "csr"])
@pytest.mark.parametrize("run", RUNS)
def test_replay(run, layout, loss, setting):
    changes = 0
    eta = ETA[loss] * {"ht-svrg-batch": 3.0, "stoiht-batch": 2.0}.get(run, 1.0)
    for seed in range(3):
        A, y = make_data(loss, seed)
        ours, theirs, swaps = replay(run, LAYOUTS[layout](A), y, 8, loss, eta, seed, SETTINGS[setting])
        assert_same(ours, theirs)
        changes += swaps
    # the full gradient soon settles; test_replay_through_a_thousand_support_changes keeps it from doing so
    assert changes >= (10 if run in ("pgd", "iht") else 40), "too few support changes to prove anything"


EVERY = [*(("dense", loss) for loss in LOSSES if loss != "logistic"), *((layout, "logistic") for layout in LAYOUTS)]
# each takes seconds to compile: HT-SVRG goes through most of them, for HT-SAGA one more loss and layout will do
USUAL = {("ht-svrg", *case) for case in EVERY if case[0] not in ("csr64", "dense32")} | {
    ("ht-saga", "dense", "huber"),
    ("ht-saga", "csr32", "logistic"),
}


@pytest.mark.parametrize(
    ("run", "layout", "loss"),
    [
        pytest.param(run, *case, marks=[] if (run, *case) in USUAL else pytest.mark.long)
        for run in ("ht-svrg", "ht-saga")
        for case in EVERY
    ],
)
def test_replay_all_losses_and_layouts(run, layout, loss):
    A, y = make_data(loss, 7)
    assert_same(*replay(run, LAYOUTS[layout](A), y, 6, loss, ETA[loss], 7, SETTINGS["intercept"])[:2])


@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("layout", ["dense", "csr"])
@pytest.mark.parametrize("run", RUNS)
def test_replay_with_ties(run, layout, positive):
    """Whole numbers, repeated columns, a step that is a power of two: many exact ties, all to the lower index."""
    for seed in range(4):
        A, y = make_data("squared", seed, n=16, ties=True)
        eta = 2.0**-6 if run != "pgd" else 2.0**-5
        assert_same(*replay(run, LAYOUTS[layout](A), y, 5, "squared", eta, seed, {"positive": positive})[:2])


@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("layout", ["dense", "csr"])
@pytest.mark.parametrize("run", ["ht-svrg", "ht-svrg-batch", "stoiht", "pgd"])
def test_replay_with_ties_in_many_blocks(run, layout, positive):
    """A full scan keeps extremes of blocks of 64 columns and 64 slots: here equal columns lie in different blocks."""
    changes = 0
    for seed in range(3):
        A, y = make_data("squared", seed, n=16, d=300, ties=True)
        ours, theirs, swaps = replay(run, LAYOUTS[layout](A), y, 100, "squared", 2.0**-6, seed, {"positive": positive})
        assert_same(ours, theirs)
        changes += swaps
    assert changes >= 100


@pytest.mark.parametrize("k", [1, 23, 89, 90])
@pytest.mark.parametrize("layout", ["dense", "csr"])
@pytest.mark.parametrize("run", RUNS)
def test_replay_from_one_to_all_columns(run, layout, k):
    A, y = make_data("squared", 3)
    assert_same(*replay(run, LAYOUTS[layout](A), y, k, "squared", 0.1, 3, {})[:2])


@pytest.mark.parametrize("layout", ["dense", "csr"])
@pytest.mark.parametrize("run", ["ht-svrg", "ht-saga", "stoiht", "pgd"])
def test_replay_through_a_thousand_support_changes(run, layout):
    """A step far too large, held by a radius: supports never settle, remembered rows are patched again and again."""
    rng = np.random.default_rng(5)
    A = rng.standard_normal((30, 400)) * (rng.random((30, 400)) < 0.5) / 5
    y = A[:, :20] @ rng.standard_normal(20) + rng.standard_normal(30)
    eta = {"ht-svrg": 5.0, "ht-saga": 5.0, "stoiht": 5.0, "pgd": 200.0}[run]
    ours, theirs, changes = replay(run, LAYOUTS[layout](A), y, 20, "squared", eta, 5, {"radius": 1.0})
    assert changes >= (400 if run == "pgd" else 1000)  # pgd takes 60 steps, the others 150 to 300
    assert_same(ours, theirs)


def test_a_start_is_thresholded_and_projected():
    A, y = make_data("squared", 4)
    x0 = np.random.default_rng(4).standard_normal(90)
    for run in ("ht-svrg", "ht-saga", "stoiht", "pgd"):
        make, _ = RUNS[run]
        seen = []
        minimize(A, y, 6, x0=x0, radius=0.7, solver=make(0.1), random_state=4, callback=lambda p, s=seen: s.append(p.x))
        p = oracle.Plain(A, y, 6, radius=0.7)
        plain = {
            "ht-svrg": lambda p=p: oracle.ht_svrg(p, 0.1, 60, 5, 4, x0),
            "ht-saga": lambda p=p: oracle.ht_saga(p, 0.1, 8, 4, x0),
            "stoiht": lambda p=p: oracle.stoiht(p, 0.1, 5, 4, x0),
            "pgd": lambda p=p: oracle.pgd(p, 0.3, 60, x0),
        }[run]
        assert_same(seen, plain()[1:])


@pytest.mark.parametrize("layout", ["dense", "csr"])
@pytest.mark.parametrize("kind", ["ht-svrg", "ht-saga"])
def test_the_automatic_step_replays_from_its_history(kind, layout):
    """A rejected stage leaves the snapshot (and the table is filled anew); the draws go on.

    The steps in the history are all that a replay needs.
    """
    rejected = 0
    for seed in range(6):
        rng = np.random.default_rng(seed)
        n = 30
        A = rng.standard_normal((n, 80)) * (rng.random((n, 80)) < 0.6)
        y = A[:, :8] @ rng.standard_normal(8) + rng.standard_normal(n)
        seen = []
        solver = HTSVRG(m=60, stages=25, tol=0) if kind == "ht-svrg" else HTSAGA(epochs=25, tol=0)
        result = minimize(
            LAYOUTS[layout](A), y, 6, solver=solver, random_state=seed, callback=lambda p, s=seen: s.append(p.x)
        )
        assert (np.diff(result.history.objective) <= 1e-12).all()
        p = oracle.Plain(A, y, 6)
        rng = np.random.default_rng(seed)
        x, fresh = p.start(), True
        for stage, eta in enumerate(result.history.step[1:]):
            if kind == "ht-svrg" or fresh:
                table = p.slopes(x)
                average = A.T @ table / n
            z = x
            for i in rng.integers(0, n, size=60 if kind == "ht-svrg" else n):
                new = p.slopes(z, [i])[0]
                z = p.project(z - eta * ((new - table[i]) * A[i] + average))
                if kind == "ht-saga":
                    average = average + (new - table[i]) * A[i] / n
                    table[i] = new
            fresh = not p.objective(z) <= p.objective(x) * (1 + 1e-12)
            x = x if fresh else z
            rejected += fresh
            np.testing.assert_allclose(seen[stage], x, rtol=0, atol=1e-7 * np.abs(x).max())
    assert rejected > 5


def test_equal_columns_get_equal_bits_in_ht_saga():
    """Repeated columns and slots at zero: the average must be summed on and off the slots in the same order."""
    for seed in range(60):
        rng = np.random.default_rng(seed)
        half = rng.standard_normal((8, 6))
        A, y = np.hstack([half, half]), rng.standard_normal(8)
        seen = []
        solver = HTSAGA(step=0.2, epochs=20, tol=0, stop_on_divergence=False)
        minimize(A, y, 5, positive=True, solver=solver, random_state=seed, callback=lambda p, s=seen: s.append(p.x))
        theirs = oracle.ht_saga(oracle.Plain(A, y, 5, positive=True), 0.2, 20, seed)
        for x, z in zip(seen, theirs[1:], strict=True):
            np.testing.assert_array_equal(np.flatnonzero(x), np.flatnonzero(z))


@pytest.mark.parametrize("layout", ["dense", "csr"])
@pytest.mark.parametrize("batch", [1, 3])
def test_steps_after_an_overflow_are_those_of_a_new_run(batch, layout):
    """An adaptive step goes back to its snapshot: nothing that the overflow left in the screen may matter there."""
    A, y = make_data("squared", 2)
    problem = Problem.create(LAYOUTS[layout](A), y)
    idx = np.random.default_rng(0).integers(0, 40, (100, batch))
    results = []
    for overflows in (False, True):
        slots, screen = problem.slots(6), make_screen(problem, 6, batch)
        stage, start = problem.stage(slots, idx), Snapshot(slots)
        if overflows:
            assert stage_steps(problem, stage, slots, screen, 1e200)(0, 100) < 100
            start.give(slots)
            forget_rows(screen)
        assert stage_steps(problem, stage, slots, screen, 1.0)(0, 100) == 100
        assert screen.tally[SWAPS] > 10
        results.append(problem.vector(slots))
    np.testing.assert_allclose(*results, rtol=1e-9)  # the slots may be in another order


@pytest.mark.parametrize("layout", ["dense", "csr"])
def test_a_stage_on_the_sampled_rows_alone_is_the_same(layout):
    """A stage whose rows are only the sampled ones, and idx points into them, gives the same iterates, bit for bit."""
    A, y = make_data("logistic", 1)
    problem = Problem.create(LAYOUTS[layout](A), y, loss="logistic", sample_weight=np.arange(1.0, 41.0))
    idx = np.random.default_rng(0).integers(0, 40, 200)
    results = []
    for sampled in (False, True):
        slots = problem.slots(6)
        stage = problem.stage(slots, idx.reshape(-1, 1))
        home = problem
        if sampled:  # as a file or a cluster would deliver them
            order = np.unique(idx)
            part = Problem.create(LAYOUTS[layout](A[order]), y[order])
            stage = stage._replace(
                rows=part.design.rows, y=y[order], weight=problem.weight[order], offset=problem.offset[order],
                derivative=stage.derivative[order], row_max=part.row_max,
                idx=np.searchsorted(order, idx).reshape(-1, 1),
            )  # fmt: skip
            home = dataclasses.replace(part, loss=problem.loss)
        screen = make_screen(home, 6, 1)
        assert stage_steps(home, stage, slots, screen, 1.0)(0, 200) == 200
        assert screen.tally[SWAPS] > 10
        results.append(problem.vector(slots).tobytes())
    assert results[0] == results[1]
