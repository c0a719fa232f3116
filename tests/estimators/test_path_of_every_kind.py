"""Paths of all kinds of models are one search for every output: groups, targets, classes, signs, rows in blocks; they
can be interrupted, and continue from a checkpoint."""

from __future__ import annotations

import numpy as np
import pytest
from oracle import mean_loss
from scipy.sparse import csr_array
from sklearn.exceptions import ConvergenceWarning

from ksparse import KSparseClassifier, KSparseClassifierCV, KSparseRegressor, KSparseRegressorCV, checkpoint, k_path
from ksparse.solvers.exchange import path as runs
from ksparse.sources import Blocks

N, D, KS = 150, 24, range(1, 6)
GROUPS = np.arange(D) // 2
L2 = 1e-3


def rows():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, D)) + 0.5 * rng.standard_normal((N, 1))
    return X, X[:, :4] @ np.array([2.0, -1.0, 1.0, 0.5]) + rng.standard_normal(N), rng


def kinds():
    X, y, rng = rows()
    several = np.column_stack([y, X[:, 7] + rng.standard_normal(N)])
    classes = np.digitize(y, [-1.5, 1.5])
    counts = rng.poisson(np.exp(0.3 * y.clip(-3, 3)))
    return {
        "groups": (KSparseRegressor(l2=L2, groups=GROUPS), y),
        "groups of a loss": (KSparseRegressor(l2=L2, loss="huber", groups=GROUPS), y),
        "targets": (KSparseRegressor(l2=L2), several),
        "targets and groups": (KSparseRegressor(l2=L2, groups=GROUPS), several),
        "positive": (KSparseRegressor(l2=L2, positive=True), y),
        "poisson": (KSparseRegressor(l2=L2, loss="poisson"), counts),
        "softmax": (KSparseClassifier(l2=L2), classes),
        "ovr": (KSparseClassifier(l2=L2, multi_class="ovr"), classes),
        "kept": (KSparseClassifier(l2=L2, always_keep=[5]), classes > 1),
    }


KINDS = list(kinds())


def count_searches(monkeypatch):
    made, plain = [], runs.Search
    monkeypatch.setattr(runs, "Search", lambda *args: made.append(args) or plain(*args))
    return made


@pytest.mark.parametrize("layout", ["array", "csr", "blocks"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_path_is_one_search_for_every_output(kind, layout, monkeypatch):
    X, _, _ = rows()
    settings, y = kinds()[kind]
    given = {"array": lambda: X, "csr": lambda: csr_array(X), "blocks": lambda: Blocks([X[:70], X[70:]])}[layout]()
    made = count_searches(monkeypatch)
    path = k_path(given, y, KS, settings)
    assert len(made) == (3 if kind == "ovr" else 1)
    assert path.k.tolist() == list(KS)
    assert (np.diff(path.objective) <= 1e-9 * path.objective[:-1]).all()
    for k, model, loss in zip(KS, path.models, path.loss, strict=True):
        assert loss == pytest.approx(mean_loss(model, X, y), rel=1e-9)
        scaled = model.coef_ * model.scale_ / getattr(model, "unit_", 1.0)
        outputs = 3 if kind == "ovr" else 1
        assert model.objective_ == pytest.approx(loss + 0.5 * L2 * np.sum(scaled**2), rel=1e-8)
        chosen = len(model.groups_) if "groups" in kind else np.setdiff1d(model.support_, model.kept_).size
        assert chosen <= k * outputs
        if kind == "positive":
            assert (model.coef_ >= 0.0).all()


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "positive"])
def test_a_path_of_rows_whose_columns_do_not_fit_into_memory(kind, monkeypatch):
    monkeypatch.setattr(Blocks, "room_for_columns", 0.0)
    X, _, _ = rows()
    settings, y = kinds()[kind]
    path = k_path(Blocks([X[:70], X[70:]]), y, KS, settings)
    assert path.k.tolist() == list(KS)
    assert (np.diff(path.objective) <= 1e-9 * path.objective[:-1]).all()
    for model, loss in zip(path.models, path.loss, strict=True):
        assert loss == pytest.approx(mean_loss(model, X, y), rel=1e-9)
        assert model.status_ == "converged" or kind == "ovr"


@pytest.mark.parametrize("kind", KINDS)
def test_cross_validation_is_made_of_the_paths_of_its_folds(kind):
    X, _, _ = rows()
    settings, y = kinds()[kind]
    order = np.random.default_rng(1).permutation(N)
    folds = [(np.sort(np.setdiff1d(order, order[f::3])), np.sort(order[f::3])) for f in range(3)]
    CV = KSparseClassifierCV if isinstance(settings, KSparseClassifier) else KSparseRegressorCV
    search = CV([1, 2, 4], estimator=settings, cv=folds).fit(X, y)
    for f, (train, test) in enumerate(folds):
        path = k_path(X[train], y[train], [1, 2, 4], settings)
        expected = [mean_loss(model, X[test], y[test]) for model in path.models]
        np.testing.assert_allclose(-search.scores_[f], expected, rtol=1e-7)
    whole = k_path(X, y, [1, 2, 4], settings).models[[1, 2, 4].index(search.k_)]
    np.testing.assert_allclose(search.coef_, whole.coef_, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_a_time_limit_gives_the_path_so_far(kind):
    X, _, _ = rows()
    settings, y = kinds()[kind]
    with pytest.warns(ConvergenceWarning, match="time limit: max_time = 1e-09 s is over"):
        path = k_path(X, y, KS, settings.set_params(max_time=1e-9))
    assert 1 <= len(path.models) <= len(KS)
    assert np.isfinite(path.objective).all()
    whole = k_path(X, y, KS, settings.set_params(max_time=1e9))
    assert whole.k.tolist() == list(KS)


class Killed(Exception):
    pass


@pytest.mark.parametrize("kind", KINDS)
def test_the_callback_sees_every_size_and_can_stop_or_interrupt(kind):
    X, _, _ = rows()
    settings, y = kinds()[kind]
    seen = []
    whole = k_path(X, y, KS, settings.set_params(callback=lambda told: seen.append(told.support.size)))
    assert len(whole.models) == len(KS)
    assert len(seen) >= len(KS)

    def interrupt(told):
        raise KeyboardInterrupt

    for stop in (lambda told: True, interrupt):
        path = k_path(X, y, KS, settings.set_params(callback=stop))
        assert 1 <= len(path.models) <= len(KS)
        assert np.isfinite(path.objective).all()


@pytest.mark.parametrize("kind", ["groups", "softmax", "poisson", "positive"])
def test_a_path_that_was_killed_continues_from_its_checkpoint(kind, tmp_path):
    X, _, _ = rows()
    settings, y = kinds()[kind]
    whole, calls = k_path(X, y, KS, settings), []

    def kill(told):
        calls.append(told)
        if len(calls) == 2:
            raise Killed

    with pytest.raises(Killed), checkpoint(tmp_path / "saved"):
        k_path(X, y, KS, settings.set_params(callback=kill))
    with checkpoint(tmp_path / "saved") as saved:
        again = k_path(X, y, KS, settings.set_params(callback=None))
        assert saved.resumed is not None
        twice = k_path(X[:, ::-1], y, KS, settings)
    np.testing.assert_allclose(again.coefs, whole.coefs, rtol=1e-9, atol=1e-12)
    with checkpoint(tmp_path / "other", keep=True):
        k_path(X, y, KS, settings)
    with checkpoint(tmp_path / "other") as saved:
        restored = k_path(X, y, KS, settings)
        assert "1 run done" in saved.resumed
    np.testing.assert_array_equal(restored.coefs, whole.coefs)
    assert twice.k.tolist() == list(KS)
