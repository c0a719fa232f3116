"""Models as files: saved and loaded, and files that are no models."""

from __future__ import annotations

import json
import os
import stat

import numpy as np
import pytest
from problems import three_of_eight
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris

from ksparse import KSparseClassifier, KSparseRegressor, load


@pytest.fixture(scope="module")
def diabetes():
    return load_diabetes(return_X_y=True, as_frame=True)


@pytest.fixture(scope="module")
def cancer():
    return load_breast_cancer(return_X_y=True, as_frame=True)


@pytest.mark.parametrize("case", ["regressor", "binary", "several", "poisson"])
def test_models_are_saved_and_loaded(tmp_path, diabetes, cancer, case):
    model, (X, y) = {
        "regressor": (KSparseRegressor(k=3), diabetes),
        "poisson": (KSparseRegressor(k=3, loss="poisson"), diabetes),
        "binary": (KSparseClassifier(k=3), (cancer[0], np.array(["no", "yes"])[cancer[1]])),
        "several": (KSparseClassifier(k=2, multi_class="ovr"), load_iris(return_X_y=True)),
    }[case]
    model.fit(X, y).save(tmp_path / "model.json")
    loaded = load(tmp_path / "model.json")
    np.testing.assert_allclose(loaded.coef_, model.coef_)
    same = np.array_equal if case in ("binary", "several") else np.allclose
    assert same(loaded.predict(X), model.predict(X))
    assert loaded.get_params()["k"] == model.k
    assert str(loaded.summary()) == str(model.summary())
    assert [path.name for path in tmp_path.iterdir()] == ["model.json"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m.update(format="other"), "not of the format"),
        (lambda m: m.update(version=99), "version is 99"),
        (lambda m: m.update({"class": "os.system"}), "is not one of"),
        (lambda m: m["parameters"].pop("k"), "parameters must be"),
        (lambda m: m["parameters"].update(loss="cubic"), "loss must be one of"),
        (lambda m: m.update(n_features=-1), "n_features"),
        (lambda m: m.update(outputs=[]), "outputs must be"),
        (lambda m: m.update(features=["a"]), "features must be 10 names"),
        (lambda m: m["outputs"][0]["columns"].append(3), "a coefficient, a worth and a scale per column"),
        (lambda m: m["outputs"][0]["columns"].__setitem__(0, 10), "different numbers below 10"),
        (lambda m: m["outputs"][0]["columns"].__setitem__(0, m["outputs"][0]["columns"][1]), "different numbers"),
        (lambda m: m["outputs"][0]["coefficients"].__setitem__(0, "1"), "finite numbers"),
        (lambda m: m["outputs"][0].update(intercept=None), "finite numbers"),
        (lambda m: m.update(classes=[0, 1]), "no classes"),
    ],
)
def test_malformed_models_are_refused(tmp_path, diabetes, change, message):
    KSparseRegressor(k=3).fit(*diabetes).save(tmp_path / "model.json")
    content = json.loads((tmp_path / "model.json").read_text())
    change(content)
    (tmp_path / "model.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match=message):
        load(tmp_path / "model.json")


def test_files_that_are_no_models(tmp_path):
    for content in (b"", b"{", b"[]", b"\xff\xfe", b"null"):
        (tmp_path / "x.json").write_bytes(content)
        with pytest.raises(ValueError, match=r"x\.json is not a model"):
            load(tmp_path / "x.json")
    with pytest.raises(FileNotFoundError, match=r"nowhere\.json"):
        load(tmp_path / "nowhere.json")


def test_files_that_cannot_be_models(tmp_path):
    X, y = three_of_eight()
    path = tmp_path / "model.json"
    with pytest.raises(ValueError, match="must be texts or numbers"):
        KSparseRegressor(1, groups={0: ("a", 1), 1: ("a", 1)}).fit(X, y).save(path)
    assert not path.exists()
    before = os.umask(0o022)
    try:
        KSparseRegressor(2).fit(X, y).save(path)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644  # for others to read, as any file
    content = json.loads(path.read_text())
    for change in ({"version": True}, {"n_features": 2**31}, {"objective": 10**400}):
        path.write_text(json.dumps({**content, **change}))
        with pytest.raises(ValueError, match=r"model\.json is not a model"):
            load(path)
    for text in ("[" * 100_000, "1" * 5000):
        path.write_text(text)
        with pytest.raises(ValueError, match=r"model\.json is not a model"):
            load(path)
