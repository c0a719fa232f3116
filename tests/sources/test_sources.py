"""Rows in blocks: the same iterates as from memory, whatever brings the rows, and what is refused."""

from __future__ import annotations

import bz2
import doctest
import gzip
import itertools
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from ksparse import (
    HTP,
    HTSAGA,
    HTSVRG,
    NIHT,
    OMP,
    PGD,
    CoSaMP,
    Exchange,
    GraSP,
    KSparseClassifier,
    KSparseClassifierCV,
    KSparseRegressor,
    KSparseRegressorCV,
    KSparseSelector,
    StoIHT,
    k_path,
    minimize,
    support_stability,
)
from ksparse.design import matrix as matrix_module
from ksparse.design.blocks import AHEAD, DRAW
from ksparse.problem import Problem
from ksparse.sources import Blocks, Source, open_files

N, D = 600, 40
OTHERS = ("poisson", "huber", "squared_hinge")


class Again:
    """Blocks that can be read again, and count how often they were."""

    def __init__(self, blocks):
        self.blocks, self.times = blocks, 0

    def __iter__(self):
        self.times += 1
        return iter(self.blocks)


@pytest.fixture(scope="module")
def dense():
    rng = np.random.default_rng(0)
    A = rng.standard_normal((N, D))
    return A, A[:, 3] - 2 * A[:, 7] + 0.5 * A[:, 30] + 0.3 * rng.standard_normal(N)


@pytest.fixture(scope="module")
def thin(dense):
    A = sparse.random(N, D, 0.15, format="csr", random_state=1)
    return A, A @ np.where(np.arange(D) % 9 == 3, 2.0, 0.0) + 0.1 * dense[1]


def targets(loss, y):
    if loss in ("logistic", "squared_hinge"):
        return np.where(y > 0, 1.0, -1.0)
    return np.round(np.abs(y)) if loss == "poisson" else y


def cuts(A):
    return [A[:7], A[7:250], A[250:251], A[251:]]


def as_npy(A, folder):
    np.save(folder / "A.npy", A)
    return folder / "A.npy"


DENSE = {
    "a list": lambda A, folder: Blocks(cuts(A)),
    "an iterable": lambda A, folder: Blocks(Again(cuts(A))),
    "a .npy file": lambda A, folder: Blocks(as_npy(A, folder), memory="1MB"),
    "a memory map": lambda A, folder: Blocks(np.load(as_npy(A, folder), mmap_mode="r"), memory="1MB"),
    "a part of a map": lambda A, folder: Blocks(np.load(as_npy(np.repeat(A, 2, 0), folder), mmap_mode="r")[::2]),
    "Fortran order": lambda A, folder: Blocks(np.asfortranarray(A), memory="1MB"),
}


@pytest.mark.parametrize("kind", DENSE)
def test_the_same_iterates_from_blocks(kind, dense, tmp_path):
    A, y = dense
    source = DENSE[kind](A, tmp_path)
    solver = HTSVRG(m=500, stages=8, tol=0, batch_size=2)
    here = minimize(A, y, 5, solver=solver, intercept=True, random_state=3)
    there = minimize(source, y, 5, solver=solver, intercept=True, random_state=3)
    np.testing.assert_allclose(there.x, here.x, rtol=0, atol=1e-12)
    np.testing.assert_allclose(there.history.objective, here.history.objective, rtol=1e-12)
    assert here.history.support_changes.tolist() == there.history.support_changes.tolist()


SOLVERS = (
    HTSVRG(m=300, stages=6, tol=0),
    HTSVRG(m=300, stages=6, tol=0, output="random"),
    HTSVRG(step="theory", m=200, stages=3),
    HTSVRG(step="spectral", m=200, stages=3),
    StoIHT(epochs=3, step=0.01),
    PGD(iterations=20),
    Exchange(),
    GraSP(),
)
SQUARED = (CoSaMP(), HTP(), NIHT(), OMP())


@pytest.mark.filterwarnings("ignore:the objective is .* no better")  # few stages
@pytest.mark.parametrize("layout", ["dense", "thin"])
@pytest.mark.parametrize(
    "loss", ["squared", "logistic", *(pytest.param(loss, marks=pytest.mark.long) for loss in OTHERS)]
)
def test_every_solver_and_loss(loss, layout, request):
    A, y = request.getfixturevalue(layout)
    y, weight = targets(loss, y), np.random.default_rng(1).uniform(0.0, 2.0, N)
    settings = {"loss": loss, "l2": 0.01, "intercept": True, "always_keep": [2], "sample_weight": weight}
    source = Blocks(cuts(A))
    for solver in SOLVERS + (SQUARED if loss == "squared" else ()):
        if loss == "poisson" and solver in SOLVERS[2:4]:
            continue  # no step by theory where curvature has no bound
        here = minimize(A, y, 4, solver=solver, random_state=0, **settings)
        there = minimize(source, y, 4, solver=solver, random_state=0, **settings)
        np.testing.assert_allclose(there.x, here.x, rtol=0, atol=1e-9, err_msg=repr(solver))
        np.testing.assert_allclose(there.objective, here.objective, rtol=1e-9)
        assert there.status == here.status


def test_radius_sign_offset_and_start(dense):
    A, y = dense
    source, solver = Blocks(cuts(A)), HTSVRG(m=300, stages=5, tol=0)
    for extra in ({"radius": 1.0}, {"positive": True}, {"offset": 0.1 * y}, {"x0": np.arange(D) / D}):
        here = minimize(A, y, 4, solver=solver, random_state=0, **extra)
        there = minimize(source, y, 4, solver=solver, random_state=0, **extra)
        np.testing.assert_allclose(there.x, here.x, rtol=0, atol=1e-11)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=8), st.integers(0, 2**31), st.booleans())
def test_any_cuts_give_the_same_stage(sizes, seed, is_sparse):
    rng = np.random.default_rng(seed)
    n = sum(sizes)
    A = rng.standard_normal((n, 9)) * (rng.random((n, 9)) < 0.5)
    A = sparse.csr_array(A) if is_sparse else A
    edges = np.cumsum([0, *sizes])
    source = Blocks([A[low:high] for low, high in itertools.pairwise(edges)])
    y, idx = rng.standard_normal(n), rng.integers(0, n, (11, 1))
    here, there = Problem.create(A, y), Problem.create(source, y)
    slots = here.slots(3, rng.standard_normal(9))
    one, other = here.stage(slots, idx), there.stage(slots, idx)
    np.testing.assert_allclose(other.mu, one.mu, atol=1e-13)
    assert other.value == pytest.approx(one.value, rel=1e-13)
    rows = other.rows if not is_sparse else sparse.csr_array(
        (other.rows.data, other.rows.indices.view(np.int32), other.rows.indptr.view(np.int32)), shape=(other.y.size, 9)
    ).toarray()  # fmt: skip
    everything = A.toarray() if is_sparse else A
    np.testing.assert_array_equal(rows[other.idx.ravel()], everything[idx.ravel()])
    np.testing.assert_allclose(other.derivative[other.idx], one.derivative[idx], atol=1e-14)
    np.testing.assert_array_equal(other.y[other.idx], y[idx])
    assert other.row_max.size == np.unique(idx).size


def test_one_stage_is_one_pass(dense):
    A, y = dense
    blocks = Again(cuts(A))
    source = Blocks(blocks)
    problem = Problem.create(source, y)
    before = blocks.times
    problem.stage(problem.slots(3), np.random.default_rng(0).integers(0, N, (100, 1)))
    assert blocks.times == before + 1


def test_m_is_what_the_memory_holds(dense):
    A, y = dense
    source = Blocks(np.tile(A, (40, 1)), memory="1MB")
    m = source.sample_rows
    assert m * (D * 8 + DRAW) <= 2**18 < (m + 1) * (D * 8 + DRAW)
    result = minimize(source, np.tile(y, 40), 3, solver=HTSVRG(stages=2, tol=0, step=0.01), random_state=0)
    assert np.diff(result.history.gradients).tolist() == [m + 40 * N, m]
    assert Problem.create(A, y).sample(1) == 3 * N


# --- estimators ------------------------------------------------------------------------------------------------------
MODELS = {
    "regressor": lambda X, y: KSparseRegressor(k=4).fit(X, y),
    "not scaled": lambda X, y: KSparseRegressor(k=4, standardize=False, fit_intercept=False).fit(X, y),
    "huber": lambda X, y: KSparseRegressor(k=4, loss="huber").fit(X, y),
    "positive": lambda X, y: KSparseRegressor(k=4, positive=True).fit(X, y),
    "ht-svrg": lambda X, y: KSparseRegressor(k=4, solver=HTSVRG(m=300), random_state=0).fit(X, y),
    "classifier": lambda X, y: KSparseClassifier(k=4).fit(X, y > 0),
    "softmax": lambda X, y: KSparseClassifier(k=4).fit(X, np.digitize(y, [-1, 1])),
    "one against the rest": lambda X, y: KSparseClassifier(k=3, multi_class="ovr").fit(X, np.digitize(y, [-1, 1])),
    "targets": lambda X, y: KSparseRegressor(k=4).fit(X, np.column_stack([y, y**2])),
    "groups": lambda X, y: KSparseRegressor(k=2, groups=np.arange(D) // 4).fit(X, y),
    "cv": lambda X, y: KSparseRegressorCV(ks=[1, 3], cv=3).fit(X, y),
    "cv by a scorer": lambda X, y: KSparseClassifierCV(ks=[1, 3], cv=3, scoring="roc_auc").fit(X, y > 0),
    "weights": lambda X, y: KSparseRegressor(k=4).fit(X, y, sample_weight=np.arange(N) % 3),
}


def verdicts(model):
    certificates = model.certificate_
    return [c.verdict for c in (certificates if isinstance(certificates, list) else [certificates])]


@pytest.mark.parametrize("layout", ["dense", "thin"])
@pytest.mark.parametrize("kind", MODELS)
def test_estimators_take_a_source(kind, layout, request):
    A, y = request.getfixturevalue(layout)
    if layout == "dense":
        A = A * np.where(np.arange(D) == 7, 1e3, 1.0) + np.where(np.arange(D) == 30, 1e6, 0.0)
        A[:, 1] = 4.0
    source = Blocks(cuts(A))
    here, there = MODELS[kind](A, y), MODELS[kind](source, y)
    np.testing.assert_allclose(there.coef_, here.coef_, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(there.intercept_, here.intercept_, rtol=1e-8, atol=1e-8)
    np.testing.assert_array_equal(there.support_, here.support_)
    np.testing.assert_allclose(np.asarray(there.predict(source), float), np.asarray(here.predict(A), float), atol=1e-6)
    assert verdicts(there) == verdicts(here)


def test_path_stability_and_selector_take_a_source(dense):
    A, y = dense
    source = Blocks(cuts(A), names=[f"column {j}" for j in range(D)])
    np.testing.assert_allclose(k_path(source, y, [1, 2]).ebic, k_path(A, y, [1, 2]).ebic, rtol=1e-10)
    settings = {"estimator": KSparseRegressor(k=2), "n_resamples": 2, "random_state": 0}
    there = support_stability(source, y, **settings)
    np.testing.assert_array_equal(there.frequency, support_stability(A, y, **settings).frequency)
    selector = KSparseSelector(k=2).fit(source, y)
    np.testing.assert_array_equal(selector.transform(source), A[:, selector.estimator_.support_])
    assert list(selector.get_feature_names_out()) == ["column 3", "column 7"]


def test_columns_that_do_not_fit_are_not_held(dense):
    A, y = dense
    source = Blocks(np.tile(A, (10, 1)), memory="1MB")
    model = KSparseRegressor(k=3, random_state=0).fit(source, np.tile(y, 10))
    assert model.swap_optimal_  # by passes over all rows, after a search on a sample
    assert model.support_.tolist() == [3, 7, 30]
    assert KSparseRegressor(k=3).fit(Blocks(A), y).swap_optimal_


# --- what is refused -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("blocks", "words"),
    [
        ((block for block in [np.ones((2, 2))]), "read again.*generator"),
        ([], "at least one block"),
        (3, "must be a .npy file.*got int"),
        ([np.ones((2, 2)), np.ones((2, 3))], "block 1 must be like the first, dense with 2 columns, got dense with 3"),
        ([np.ones((2, 2)), sparse.eye_array(2)], "got sparse with 2"),
        ([np.ones(3)], "block 0 must be a matrix"),
        ([np.array([["a", "b"]])], "real numbers"),
        ([[1, 2]], "block 0 must be an array or a sparse matrix, got list"),
        (np.ones((0, 3)), "at least one row"),
        ("nowhere.npy", "nowhere.npy cannot be read"),
    ],
)
def test_bad_blocks(blocks, words):
    with pytest.raises(ValueError, match=words):
        Blocks(blocks)


@pytest.mark.parametrize("memory", ["1 elephant", "12", 100, -1, 1.5, "MB"])
def test_bad_memory(memory):
    with pytest.raises(ValueError, match="memory must"):
        Blocks(np.ones((3, 2)), memory=memory)


def test_names_and_targets_must_fit():
    with pytest.raises(ValueError, match=r"names must be one per column \(2\), got 1"):
        Blocks(np.ones((3, 2)), names=["a"])
    with pytest.raises(ValueError, match=r"y must have one entry per row \(3\), got 2"):
        Blocks(np.ones((3, 2)), y=[1, 2])


def test_blocks_that_change_between_passes(dense):
    A, y = dense
    pieces = cuts(A)
    source = Blocks(pieces)
    pieces[1] = pieces[1][:-1]
    with pytest.raises(ValueError, match="only 599 rows came of 600: blocks must be the same"):
        minimize(source, y, 3)
    pieces[1] = np.ones((244, D))
    with pytest.raises(ValueError, match="behind row 252 of a source of shape"):
        minimize(source, y, 3)


def test_a_file_that_becomes_shorter(dense, tmp_path):
    source = Blocks(as_npy(dense[0], tmp_path), memory="1MB")
    with open(tmp_path / "A.npy", "r+b") as file:
        file.truncate(N * D * 4)
    with pytest.raises(ValueError, match=r"A\.npy has changed since it was opened"):
        minimize(source, dense[1], 3)


def test_a_number_that_is_not_finite_is_named(dense, tmp_path):
    A = dense[0].copy()
    A[300, 11] = np.nan
    for source in (Blocks(cuts(A)), Blocks(cuts(sparse.csr_array(A)))):
        with pytest.raises(ValueError, match="got nan in row 300, column 11"):
            minimize(source, dense[1], 3)
        with pytest.raises(ValueError, match="got nan in row 300, column 11"):
            KSparseRegressor(k=3).fit(source, dense[1])


def test_what_needs_rows_in_memory_says_so(dense):
    A, y = dense
    with pytest.raises(ValueError, match=r"HTSAGA draws from all rows.*use HTSVRG"):
        minimize(Blocks(A), y, 3, solver=HTSAGA())
    with pytest.raises(ValueError, match="partial_fit takes arrays, got a source"):
        KSparseRegressor().partial_fit(Blocks(A), y)
    with pytest.raises(ValueError, match=r"y must be given.*source\.y"):
        KSparseRegressor().fit(Blocks(A), None)
    with pytest.raises(ValueError, match=r"y must have one entry per row of X \(600\), got 3"):
        KSparseRegressor().fit(Blocks(A), y[:3])
    with pytest.raises(ValueError, match="columns of the fit in their order, got 'b' where 'a' was"):
        KSparseRegressor(k=1).fit(Blocks(A[:, :2], names=["a", "c"]), y).predict(Blocks(A[:, :2], names=["b", "c"]))
    with pytest.raises(ValueError, match="must have the 2 columns of the fit, got a source with 40"):
        KSparseRegressor(k=1).fit(Blocks(A[:, :2]), y).predict(Blocks(A))


def test_blocks_without_rows_are_passed_over(dense, thin):
    for A, y in (dense, thin):
        source = Blocks([A[:0], A[:100], A[100:100], A[100:], A[:0]])
        here, there = KSparseRegressor(k=3).fit(A, y), KSparseRegressor(k=3).fit(source, y)
        np.testing.assert_allclose(there.coef_, here.coef_, atol=1e-12)
        assert minimize(source, y, 3, random_state=0).support.size == 3


def test_an_iterable_may_fill_the_same_memory_again(dense):
    A, y = dense

    class Refilled:
        def __iter__(self):
            room = np.empty((100, D))
            for low in range(0, N, 100):
                room[:] = A[low : low + 100]
                yield room

    np.testing.assert_array_equal(Blocks(Refilled()).load(), A)
    assert minimize(Blocks(Refilled()), y, 3, random_state=0).support.tolist() == [3, 7, 30]


def test_every_kind_of_matrix(dense, thin, tmp_path):
    for kind in ("coo", "csc", "bsr", "lil", "dok"):
        np.testing.assert_array_equal(Blocks(thin[0].asformat(kind)).load().toarray(), thin[0].toarray())
    np.save(tmp_path / "a.npy", np.asfortranarray(dense[0]))
    np.testing.assert_array_equal(Blocks(tmp_path / "a.npy", memory="1MB").load(), dense[0])
    np.save(tmp_path / "b.npy", dense[0].astype(">f4"))
    np.testing.assert_array_equal(Blocks(tmp_path / "b.npy").load(), dense[0].astype(np.float32))
    mine = np.load(as_npy(dense[0], tmp_path), mmap_mode="c")
    mine[5] = 7.0  # in memory only
    np.testing.assert_array_equal(Blocks(mine).load(), mine)
    with pytest.raises(ValueError, match="block 0 has masked entries"):
        Blocks(np.ma.masked_invalid(np.where(dense[0] > 2, np.nan, dense[0])))


def test_a_file_that_was_replaced(dense, tmp_path):
    source = Blocks(as_npy(dense[0], tmp_path))
    as_npy(np.ones((N, D + 1)), tmp_path)
    with pytest.raises(ValueError, match=r"A\.npy has changed since it was opened"):
        source.load()
    (tmp_path / "A.npy").unlink()
    with pytest.raises(ValueError, match=r"A\.npy cannot be read: No such file"):
        source.load()


def test_folds_of_any_form(dense):
    A, y = dense
    even = np.arange(N) % 2 == 0
    folds = [(~even, even), (np.flatnonzero(even), -1 - np.arange(0, N, 2))]
    fits = [KSparseRegressorCV(ks=[1, 3], cv=folds).fit(X, y).scores_ for X in (A, Blocks(cuts(A)))]
    np.testing.assert_allclose(fits[1], fits[0], rtol=1e-9)
    with pytest.raises(ValueError, match="must not hold a row out twice"):
        KSparseRegressorCV(ks=[1], cv=[(np.arange(N), [1, 1, 2])]).fit(Blocks(cuts(A)), y)


def test_a_model_without_features(tmp_path):
    (tmp_path / "a.csv").write_text("a,b,t\n" + "".join(f"{i},{i * i},2\n" for i in range(20)))
    source = open_files(tmp_path / "a.csv", target="t")
    model = KSparseRegressor(k=1).fit(source, source.y)
    assert model.support_.size == 0
    np.testing.assert_allclose(model.predict(source), 2.0)


def test_the_time_limit_is_heard_between_blocks(dense, clock):
    A, y = dense

    class Slow(Again):
        read = 0

        def __iter__(self):
            self.times += 1
            for block in self.blocks:
                if self.times > 3:  # the start has been judged
                    self.read += 1
                    clock.sleep(0.05)
                yield block

    slow = Slow(np.array_split(A, 40))
    result = minimize(Blocks(slow), y, 3, solver=HTSVRG(m=100), max_time=0.3, random_state=0)
    assert result.status == "time limit"
    assert slow.read <= 7 + AHEAD + 2  # one waits to be handed over, one is being read


def test_several_threads_read_one_source(dense, tmp_path):
    A, y = dense
    source = Blocks(as_npy(A, tmp_path), memory="1MB")
    alone = KSparseRegressorCV(ks=[1, 3], cv=3).fit(source, y)
    together = KSparseRegressorCV(ks=[1, 3], cv=3, n_jobs=3).fit(source, y)
    np.testing.assert_allclose(together.scores_, alone.scores_, rtol=1e-9)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_sparse_sample_is_scaled_in_place_and_goes_before_the_next_one(monkeypatch):
    monkeypatch.setattr(matrix_module, "SOME", 1 << 12)
    rng = np.random.default_rng(0)
    n, d, each = 20_000, 500, 50
    A = sparse.random_array((n, d), density=each / d, rng=rng, format="csr")
    y = np.asarray(A[:, :3].sum(axis=1)).ravel()
    source = Blocks([A[low : low + 500] for low in range(0, n, 500)])
    fit = KSparseRegressor(k=3, solver=HTSVRG(m=n, stages=3, tol=0.0), random_state=0).fit
    fit(source, y)  # compiles
    tracemalloc.start()
    try:
        fit(source, y)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    sample = (1 - np.exp(-1)) * n * each * (8 + 4)
    # the rows as they come and as they are put together, a block in hand, and vectors; without that nearly five samples
    assert peak < 2.2 * sample + 30 * 8 * n, peak / sample


def test_times_and_load(dense):
    A, _ = dense
    source = Blocks(cuts(A))
    np.testing.assert_array_equal(source.load(), A)
    assert 0 < source.times.compute < source.times.wall
    assert isinstance(source, Source)
    assert len(source) == N


# --- files -----------------------------------------------------------------------------------------------------------
def write_table(A, y, path):
    """Numbers and a target "y" in the format that the suffix says."""
    import pyarrow as pa
    from pyarrow import csv, feather, parquet
    from sklearn.datasets import dump_svmlight_file

    kinds = path.suffixes
    if kinds[0] == ".svm":
        with (gzip.open if kinds[-1] == ".gz" else open)(path, "wb") as file:
            dump_svmlight_file(A, y, file, zero_based=False)
        return path
    if kinds[0] == ".npy":
        np.save(path, np.column_stack([A, y]))
        return path
    A = A.toarray() if sparse.issparse(A) else A
    table = pa.table({**{f"x{j}": A[:, j] for j in range(A.shape[1])}, "y": y})
    if kinds[0] == ".parquet":
        parquet.write_table(table, path, row_group_size=250)
    elif kinds[0] == ".arrow":
        feather.write_feather(table, str(path), compression="uncompressed", chunksize=130)
    else:
        with bz2.open(path, "wb") if kinds[-1] == ".bz2" else open(path, "wb") as file:
            csv.write_csv(table, file)
    return path


FEWER = [pytest.param(kind, marks=pytest.mark.long) for kind in (".arrow", ".csv.bz2", ".svm.gz")]


@pytest.mark.parametrize("layout", ["dense", "thin"])
@pytest.mark.parametrize("kind", [".npy", ".parquet", ".csv", ".svm", *FEWER])
def test_the_same_iterates_from_files(kind, layout, request, tmp_path):
    if layout == "thin" and kind == ".npy":
        return
    A, y = request.getfixturevalue(layout)
    path = write_table(A, y, tmp_path / f"rows{kind}")
    source = open_files(path, memory="1MB", **({} if ".svm" in kind or kind == ".npy" else {"target": "y"}))
    assert source.shape == (N, D)
    assert source.sparse == (".svm" in kind)
    seen = []
    for X, targets in ((A, y), (source, source.y)):
        iterates = []

        def note(now, iterates=iterates):
            iterates.append(now.x)

        solver = HTSVRG(m=400, stages=6, tol=0)
        minimize(X, targets, 4, solver=solver, intercept=True, random_state=5, callback=note)
        seen.append(np.array(iterates))
    assert len(seen[0]) == 6
    np.testing.assert_allclose(seen[1], seen[0], rtol=0, atol=1e-9)
    model = KSparseRegressor(k=3).fit(source, source.y)
    np.testing.assert_allclose(model.coef_, KSparseRegressor(k=3).fit(A, y).coef_, rtol=0, atol=1e-9)


def test_the_page_is_true():
    page = Path(__file__).parents[2] / "docs" / "sources.md"
    failed, tried = doctest.testfile(str(page), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert failed == 0
    assert tried > 15
