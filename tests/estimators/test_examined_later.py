"""What a fitted model shows is computed when somebody asks for it, and is what it was at the time of the fit."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone

from ksparse import KSparseClassifier, KSparseClassifierCV, KSparseRegressor, KSparseRegressorCV, k_path, load
from ksparse.estimators import fitting
from ksparse.estimators.certificate import EXAMINED, Examined
from ksparse.sources import Blocks

RNG = np.random.default_rng(0)
N, D = 120, 9
X = RNG.standard_normal((N, D)) * np.arange(1, D + 1) + np.arange(D)
Z = (X[:, :3] / np.arange(1, 4)) @ np.array([2.0, -1.0, 1.0]) + RNG.standard_normal(N)
WEIGHT, OFFSET = RNG.uniform(0.5, 2.0, N), RNG.standard_normal(N)
FITS = {  # model, targets, arguments of fit
    "squared": (KSparseRegressor(3), Z, {}),
    "weights and offset": (KSparseRegressor(3), Z, {"sample_weight": WEIGHT, "offset": OFFSET}),
    "huber": (KSparseRegressor(3, loss="huber"), 100.0 * Z, {}),
    "poisson": (KSparseRegressor(3, loss="poisson", effort="fast"), np.floor(np.exp(0.2 * Z)), {"offset": OFFSET}),
    "positive": (KSparseRegressor(3, positive=True), Z, {}),
    "groups": (KSparseRegressor(2, groups=np.arange(D) // 2, always_keep=[8]), Z, {"sample_weight": WEIGHT}),
    "targets": (KSparseRegressor(3), np.column_stack([Z, -Z + X[:, 4]]), {}),
    "two classes": (KSparseClassifier(3, class_weight="balanced"), Z > 1, {"sample_weight": WEIGHT}),
    "softmax": (KSparseClassifier(3), np.digitize(Z, [0, 4]), {}),
    "ovr": (KSparseClassifier(3, multi_class="ovr"), np.digitize(Z, [0, 4]), {}),
}


def shown(model):
    return {name: copy.deepcopy(getattr(model, name)) for name in EXAMINED}


def assert_same(found, expected):
    for name in ("worth_", "feature_worth_"):
        np.testing.assert_array_equal(found[name], expected[name])
    assert found["worth_rows_"] == expected["worth_rows_"]
    assert found["certificate_"] == expected["certificate_"]


@pytest.mark.parametrize("kind", FITS)
@pytest.mark.parametrize("layout", ["array", "csr", "source"])
def test_the_answer_is_that_of_the_time_of_the_fit(monkeypatch, kind, layout):
    settings, y, arguments = FITS[kind]
    rows = {"array": np.array, "csr": sparse.csr_array, "source": lambda A: Blocks([A[:50], A[50:]])}[layout](X)
    y, arguments = y.copy(), {name: value.copy() for name, value in arguments.items()}
    with monkeypatch.context() as patch:
        patch.setattr(fitting, "HELD", 0)
        at_once = clone(settings).fit(rows, y, **arguments)
        assert all(each.func is Examined for each in at_once._waiting)
        expected = shown(at_once)
    model = clone(settings).fit(rows, y, **arguments)
    assert not set(EXAMINED) & set(vars(model))
    if layout == "array":
        rows[:] = 0.0
    elif layout == "csr":
        rows.data[:] = 0.0
    y[:] = y[::-1].copy()
    for value in arguments.values():
        value[:] = 7.0
    assert_same(shown(model), expected)
    assert "_waiting" not in vars(model)  # the data are dropped
    assert model.worth_ is model.worth_
    assert model.worth_.shape == model.coef_.shape


@pytest.mark.parametrize("kind", ["squared", "huber", "two classes"])
def test_models_of_a_path_share_one_copy_of_their_columns(kind):
    settings, y, arguments = FITS[kind]
    rows, targets = X.copy(), y.copy()
    path = k_path(rows, targets, range(1, 6), settings, **arguments)
    data = {id(examine.func.__self__): examine.func.__self__ for model in path.models for examine in model._waiting}
    assert len(data) == 1
    [held] = data.values()
    assert held.block.shape == (np.unique(np.concatenate(path.supports)).size, N)
    rows[:], targets[:] = 1.0, targets[::-1].copy()
    for model in path.models:
        alone = k_path(X, y, [*range(1, 6)], settings, **arguments).models[model.k_ - 1]
        assert_same(shown(model), shown(alone))
        single = clone(settings).set_params(k=model.k_).fit(X, y, **arguments)
        if np.array_equal(single.support_, model.support_):
            np.testing.assert_allclose(model.feature_worth_, single.feature_worth_, rtol=1e-4)


@pytest.mark.parametrize("kind", ["squared", "softmax", "groups"])
def test_copies_and_files_hold_the_answer(kind, tmp_path):
    settings, y, arguments = FITS[kind]
    expected = shown(clone(settings).fit(X, y, **arguments))
    for duplicate in (lambda model: pickle.loads(pickle.dumps(model)), copy.deepcopy, copy.copy):
        model = clone(settings).fit(X, y, **arguments)
        other = duplicate(model)
        assert "_waiting" not in vars(other)
        assert_same(shown(other), expected)
        assert_same(shown(model), expected)
    clone(settings).fit(X, y, **arguments).save(tmp_path / "model.json")
    loaded = load(tmp_path / "model.json")
    np.testing.assert_array_equal(loaded.feature_worth_, expected["feature_worth_"])
    assert not hasattr(loaded, "certificate_")


@pytest.mark.parametrize("cls", [KSparseRegressor, KSparseClassifier, KSparseRegressorCV, KSparseClassifierCV])
def test_before_a_fit_there_is_nothing(cls):
    model = cls()
    for name in EXAMINED:
        assert not hasattr(model, name)
        with pytest.raises(AttributeError, match=f"'{cls.__name__}' object has no attribute '{name}'"):
            getattr(model, name)
    pickle.loads(pickle.dumps(model))


def test_another_fit_gives_another_answer():
    model = KSparseRegressor(2).fit(X, Z)
    first = shown(model)
    model.fit(X[:, ::-1], Z)
    np.testing.assert_allclose(model.feature_worth_, first["feature_worth_"][::-1])
    search = KSparseRegressorCV([2, 3], cv=3).fit(X, Z)
    first = shown(search)
    search.fit(X[:, ::-1], Z)
    np.testing.assert_allclose(search.feature_worth_, first["feature_worth_"][::-1], rtol=1e-6)
    assert_same(shown(pickle.loads(pickle.dumps(search))), shown(search))
    model = KSparseRegressor(2).partial_fit(X[:60], Z[:60])
    first = shown(model)
    model.partial_fit(X[60:], Z[60:])
    assert not np.array_equal(model.feature_worth_, first["feature_worth_"])
    np.testing.assert_allclose(model.feature_worth_, KSparseRegressor(2).fit(X, Z).feature_worth_, rtol=1e-9)
