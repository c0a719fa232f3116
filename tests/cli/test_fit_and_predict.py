"""fit, predict, path and info on the command line: what they print, write and refuse."""

from __future__ import annotations

import csv
import doctest
import json
import os
import re
import shlex
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from commands import listing, refused, run, write_csv
from sklearn.datasets import dump_svmlight_file, load_breast_cancer, load_diabetes, load_iris
from sklearn.linear_model import GammaRegressor

import ksparse
from ksparse import KSparseClassifier, KSparseRegressor, KSparseRegressorCV, k_path
from ksparse.losses import LOSSES

pa = pytest.importorskip("pyarrow", reason="files need the files extra")
from pyarrow import parquet  # noqa: E402

pytestmark = pytest.mark.usefixtures("no_lines_of_progress")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Diabetes (numbers), cancer and iris (labels) as files."""
    folder = tmp_path_factory.mktemp("data")
    data = load_diabetes()
    rows = np.column_stack([data.data, data.target])
    names = [*data.feature_names, "progression"]
    np.savetxt(folder / "diabetes.csv", rows, delimiter=",", header=",".join(names), comments="", fmt="%.17g")
    parquet.write_table(pa.table(list(rows.T), names=names), folder / "diabetes.parquet")
    dump_svmlight_file(data.data, data.target, str(folder / "diabetes.svm"), zero_based=False)
    iris = load_iris()
    write_csv(
        folder / "iris.csv",
        ["sepal length", "sepal width", "petal length", "petal width", "kind"],
        [[*row, iris.target_names[label]] for row, label in zip(iris.data.tolist(), iris.target, strict=True)],
    )
    cancer = load_breast_cancer()
    write_csv(
        folder / "cancer.csv",
        [*cancer.feature_names, "malignant"],
        [[*row, 1 - label] for row, label in zip(cancer.data.tolist(), cancer.target, strict=True)],
    )
    return folder


@pytest.fixture(scope="module")
def model(folder):
    path = folder / "model.json"
    run("fit", folder / "diabetes.csv", "--target", "progression", "-k", 3, "--out", path)
    return path


# --- fit -------------------------------------------------------------------------------------------------------------
def test_fit_prints_the_features_and_their_certificate(folder):
    done = run("fit", folder / "diabetes.csv", "--target", "progression", "-k", 3)
    assert done.stdout.startswith("diabetes.csv: 442 rows, 10 columns, in memory, target progression; squared loss\n")
    assert re.search(r"^bmi +603\.\d+ ", done.stdout, flags=re.MULTILINE)
    assert "swap-optimal: no exchange of a chosen feature for another lowers the objective" in done.stdout
    assert "written" not in done.stdout
    assert done.stderr == ""


def test_fit_as_json_is_the_library(folder, tmp_path):
    out = tmp_path / "model.json"
    done = run("fit", folder / "diabetes.csv", "--target", "progression", "-k", 3, "--out", out, "--json")
    facts = json.loads(done.stdout)
    X, y = load_diabetes(return_X_y=True, as_frame=True)
    same = KSparseRegressor(k=3).fit(X, y)
    assert [row["feature"] for row in facts["features"]] == [row[1] for row in same.summary().rows]
    np.testing.assert_allclose([row["coefficient"] for row in facts["features"]], [r[2] for r in same.summary().rows])
    np.testing.assert_allclose([row["worth"] for row in facts["features"]], [r[3] for r in same.summary().rows])
    assert facts["objective"] == pytest.approx(same.objective_, rel=1e-12)
    assert (facts["rows"], facts["columns"], facts["k"], facts["target"]) == (442, 10, 3, "progression")
    assert facts["converged"] is True
    assert facts["files"] == {"out": str(out)}
    assert facts["seconds"] > 0
    assert facts["peak_memory"] > 1e7
    loaded = ksparse.load(out)
    np.testing.assert_allclose(loaded.coef_, same.coef_)
    assert list(loaded.get_feature_names_out()) == ["bmi", "bp", "s5"]


@pytest.mark.parametrize("name", ["diabetes.parquet", "diabetes.svm"])
def test_formats_give_the_same_model(folder, name):
    target = () if name.endswith("svm") else ("--target", "progression")
    facts = json.loads(run("fit", folder / name, *target, "-k", 3, "--json").stdout)
    same = KSparseRegressor(k=3).fit(*load_diabetes(return_X_y=True))
    np.testing.assert_allclose(
        [row["coefficient"] for row in facts["features"]], [row[2] for row in same.summary().rows], rtol=1e-9
    )


def test_rows_beyond_the_memory_are_streamed_and_give_the_same_model(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((6000, 20))
    y = X[:, 3] - 2 * X[:, 7] + rng.standard_normal(6000)
    names = [*(f"x{j}" for j in range(20)), "y"]
    parquet.write_table(pa.table([*X.T, y], names=names), tmp_path / "rows.parquet")
    common = ("fit", tmp_path / "rows.parquet", "--target", "y", "-k", 2, "--json")
    done = run(*common, "--memory", "2MB")
    assert [row["feature"] for row in json.loads(done.stdout)["features"]] == ["x7", "x3"]
    assert done.stderr == ""
    streamed, whole = json.loads(done.stdout), json.loads(run(*common, "--memory", "1GB").stdout)
    assert (whole["streamed"], streamed["streamed"]) == (False, True)
    assert [one["certificate"][0]["verdict"] for one in (whole, streamed)] == ["swap-optimal"] * 2
    np.testing.assert_allclose(streamed["objective"], whole["objective"], rtol=1e-9)
    assert 3 <= streamed["passes"] <= 15
    same_steps = (*common, "--solver", "ht-svrg", "--m", 1500)
    whole, streamed = (json.loads(run(*same_steps, "--memory", size).stdout) for size in ("1GB", "2MB"))
    assert (whole["streamed"], streamed["streamed"]) == (False, True)
    for name in ("coefficient", "worth"):
        np.testing.assert_allclose(
            [row[name] for row in streamed["features"]], [row[name] for row in whole["features"]], rtol=1e-9
        )


def test_texts_are_classes(folder, tmp_path):
    facts = json.loads(run("fit", folder / "iris.csv", "--target", "kind", "-k", 2, "--json").stdout)
    assert facts["class"] == "KSparseClassifier"
    assert facts["classes"] == ["setosa", "versicolor", "virginica"]
    X, y = load_iris(return_X_y=True)
    same = KSparseClassifier(k=2).fit(X, load_iris().target_names[y])
    assert facts["objective"] == pytest.approx(same.objective_, rel=1e-9)
    message = refused("fit", folder / "iris.csv", "--target", "kind", "--loss", "squared")
    assert "the target 'kind' holds texts such as 'setosa'" in message
    write_csv(tmp_path / "ids.csv", ["x", "id"], [[i % 7, f"row{i}"] for i in range(50)])
    assert "labels must repeat" in refused("fit", tmp_path / "ids.csv", "--target", "id")


def test_two_numbers_may_be_classes(folder):
    done = run("fit", folder / "cancer.csv", "--target", "malignant", "-k", 3)
    assert (
        "note: the target 'malignant' holds two numbers only: if they are classes, use --loss logistic" in done.stderr
    )
    done = run("fit", folder / "cancer.csv", "--target", "malignant", "-k", 3, "--loss", "logistic", "--json")
    facts = json.loads(done.stdout)
    assert facts["class"] == "KSparseClassifier"
    assert facts["notes"] == []
    assert done.stderr == ""


def test_cross_validation_chooses_k(folder):
    facts = json.loads(run("fit", folder / "diabetes.csv", "--target", "progression", "--cv", 5, "--json").stdout)
    same = ksparse.KSparseRegressorCV().fit(*load_diabetes(return_X_y=True))
    assert facts["k"] == facts["cv"]["chosen_k"] == same.k_
    np.testing.assert_allclose(facts["cv"]["score"], same.mean_score_)
    assert facts["cv"]["ks"] == list(range(1, 11))
    done = run("fit", folder / "diabetes.csv", "--target", "progression", "--cv", 3, "-k", 2)
    assert "k = 2 of 1 to 2 by cross-validation" in done.stdout
    done = run("fit", folder / "diabetes.csv", "--target", "progression", "--cv", 2, "-k", 0.25)
    assert " of 1 to 3 by cross-validation" in done.stdout  # a share of the 10 columns
    done = run("fit", folder / "diabetes.csv", "--target", "progression", "--cv", 2, "-k", "1e12")
    assert " of 1 to 10 by cross-validation" in done.stdout
    assert "--ks is for --cv" in refused("fit", folder / "diabetes.csv", "--target", "progression", "--ks", "1:3")


def test_fit_chooses_the_ridge_by_cross_validation(folder, tmp_path):
    X, y = load_diabetes(return_X_y=True)
    command = ("fit", folder / "diabetes.csv", "--target", "progression", "--cv", 3, "--ks", "1:4")
    for text, l2s in (("auto", "auto"), ("1,0.01", [0.01, 1.0])):
        facts = json.loads(run(*command, "--l2s", text, "--json").stdout)
        search = KSparseRegressorCV(range(1, 5), l2s=l2s, cv=3).fit(X, y)
        assert facts["k"] == facts["cv"]["chosen_k"] == search.k_
        assert facts["l2"] == facts["cv"]["chosen_l2"] == pytest.approx(search.l2_)
        assert facts["cv"]["l2s"] == pytest.approx(search.l2s_.tolist())
    done = run(*command, "--l2s", "0.5", "--out", tmp_path / "model.json")
    assert "of 1 to 4 and l2 = 0.5 by cross-validation" in done.stdout
    assert json.loads((tmp_path / "model.json").read_text())["parameters"]["l2"] == 0.5


def test_options_reach_the_estimator(folder, tmp_path):
    common = ("fit", folder / "diabetes.csv", "--target", "progression", "--json", "-k", 2)
    features = lambda *more: [row["feature"] for row in json.loads(run(*common, *more).stdout)["features"]]  # noqa: E731
    assert set(features("--keep", "age")) == {"age", "bmi", "s5"}
    assert set(features("--drop", "bmi,s5")).isdisjoint({"bmi", "s5"})
    assert set(features("--columns", "age,sex,bp")) <= {"age", "sex", "bp"}
    assert all(row["coefficient"] > 0 for row in json.loads(run(*common, "--positive").stdout)["features"])
    assert json.loads(run(*common, "--l2", "0.5").stdout)["l2"] == 0.5
    assert json.loads(run(*common, "--loss", "huber").stdout)["loss"] == "huber"
    facts = json.loads(run(*common, "--solver", "ht-svrg", "--m", 1000, "--seed", 3).stdout)
    X, y = load_diabetes(return_X_y=True)
    same = KSparseRegressor(k=2, solver=ksparse.HTSVRG(m=1000), random_state=3).fit(X, y)
    assert facts["objective"] == pytest.approx(same.objective_, rel=1e-12)
    assert "there are only 10 columns" in run(*common[:-1], 99).stderr


def test_a_loss_of_the_registry_is_a_loss_of_the_command_line(folder, monkeypatch):
    """No list of losses has to be edited: one that is in the registry is an option at once."""
    monkeypatch.setitem(LOSSES, "counts", LOSSES["poisson"])
    monkeypatch.setenv("COLUMNS", "200")
    assert "|counts" in run("fit", "--help").stdout
    common = ("fit", folder / "diabetes.csv", "--target", "progression", "--json", "-k", 2, "--l2", 0)
    counts, poisson = (json.loads(run(*common, "--loss", loss).stdout) for loss in ("counts", "poisson"))
    assert (counts["class"], counts["loss"]) == ("KSparseRegressor", "counts")
    assert counts["objective"] == poisson["objective"]


def test_gamma_models_positive_targets(folder):
    common = ("fit", folder / "diabetes.csv", "--target", "progression", "--json", "-k", 3, "--loss", "gamma")
    found = json.loads(run(*common, "--l2", 0).stdout)
    X, y = load_diabetes(return_X_y=True)
    model = KSparseRegressor(k=3, loss="gamma", l2=0.0).fit(X, y)
    assert found["objective"] == pytest.approx(model.objective_, rel=1e-9)
    truth = GammaRegressor(alpha=0.0, max_iter=1000, tol=1e-10).fit(X[:, model.support_], y)
    np.testing.assert_allclose(model.predict(X), truth.predict(X[:, model.support_]), rtol=1e-4)


def test_weights_weigh_rows(tmp_path):
    rng = np.random.default_rng(1)
    X, w = rng.standard_normal((60, 4)), rng.integers(0, 3, 60)
    y = X[:, 0] + np.where(w > 0, X[:, 1], 9 * X[:, 2])
    rows = np.column_stack([X, w, y])
    path = write_csv(tmp_path / "w.csv", ["a", "b", "c", "d", "w", "y"], rows.tolist())
    facts = json.loads(run("fit", path, "--target", "y", "--weights", "w", "-k", 2, "--json").stdout)
    same = KSparseRegressor(k=2).fit(X, y, sample_weight=w)
    assert facts["columns"] == 4
    assert facts["objective"] == pytest.approx(same.objective_, rel=1e-9)
    rows[3, 4] = -1
    write_csv(path, ["a", "b", "c", "d", "w", "y"], rows.tolist())
    assert "--weights 'w'" in refused("fit", path, "--target", "y", "--weights", "w")
    rows[3, 4] = np.nan
    write_csv(path, ["a", "b", "c", "d", "w", "y"], rows.tolist())
    message = refused("fit", path, "--target", "y", "--weights", "w")
    assert "'w' (the weights) is missing" in message
    assert "cannot weigh itself" in refused("fit", path, "--target", "y", "--weights", "y")


def test_weights_beside_a_column_of_categories(tmp_path):
    """Numbers with one text among them are read only as categories."""
    rows = [["x" if i == 9 else i % 3, 1 + i % 2, i % 3] for i in range(30)]
    path = write_csv(tmp_path / "w.csv", ["id", "w", "y"], rows)
    done = run("fit", path, "--target", "y", "--weights", "w", "--categories", "id", "-k", 2, "--json")
    assert {row["feature"] for row in json.loads(done.stdout)["features"]} <= {"id=0", "id=1", "id=2", "id=x"}
    dump_svmlight_file(np.eye(3), np.arange(3), str(tmp_path / "w.svm"))
    assert "error: --weights is for files with named columns" in refused("fit", tmp_path / "w.svm", "--weights", "w")


def test_remedies_are_options_that_work(tmp_path):
    values = [f"{i}" for i in range(40)]
    values[30] = "1,5"
    rows = [f"{value};{i}" for i, value in enumerate(values)]
    path = tmp_path / "a.csv"
    path.write_text("\n".join(["a;y", *rows]))
    assert "--delimiter ';'" in refused("fit", path, "--target", "y")
    message = refused("fit", path, "--target", "y", "--delimiter", ";")
    option = re.search(r"--na \S+", message)[0].rstrip(",")
    assert option == """--na '"1,5"'"""
    run("fit", path, "--target", "y", "--delimiter", ";", "--missing", "zero", *shlex.split(option))
    whole = write_csv(tmp_path / "whole.csv", ["a", "y"], [[i, 2 * i] for i in range(20)])
    run("fit", whole, "--target", "y", "-k", 1, "--out", tmp_path / "m.json")
    gap = write_csv(tmp_path / "gap.csv", ["a", "b"], [["" if i == 4 else i, 1] for i in range(20)])
    assert "--missing zero imputes it" in refused("fit", gap, "--target", "b")
    message = refused("predict", tmp_path / "m.json", gap)
    assert message.endswith("(options of ksparse fit: a model reads data as its own were read)")


def test_a_name_of_two_lines_is_one_line_of_the_table(tmp_path):
    (tmp_path / "a.csv").write_text('"a\nb",y\n' + "".join(f"{i},{2 * i}\n" for i in range(20)))
    out = tmp_path / "m.json"
    done = run("fit", tmp_path / "a.csv", "--target", "y", "-k", 1, "--out", out)
    for text in (done.stdout, run("info", out).stdout):
        assert re.search(r"^a\\nb +[12]\.", text, flags=re.MULTILINE), text
    assert "+a\\nb\n" in run("path", tmp_path / "a.csv", "--target", "y", "--ks", "1").stdout


def test_a_fit_that_is_not_done_is_noted(folder):
    done = run("fit", folder / "diabetes.csv", "--target", "progression", "-k", 3, "--max-time", "1e-9", "--json", "-q")
    facts = json.loads(done.stdout)
    assert facts["converged"] is False
    assert facts["status"]["status"] == "time limit"
    assert done.stderr.startswith("note: time limit: ")
    assert facts["notes"] == [done.stderr.strip().removeprefix("note: ")]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("-k", "0"), "-k must be an integer of at least 1, or a share of the columns between 0 and 1, got 0"),
        (("-k", "2.5"), "-k must be an integer"),
        (("-k", "2.5", "--cv", "2"), "-k must be an integer"),
        (("-k", "inf", "--cv", "2"), "-k must be an integer"),
        (("-k", "nan", "--cv", "2"), "-k must be an integer"),
        (("--memory", "9" * 400 + "GB"), "--memory must be a size such as 500MB"),
        (("--weights", "nope"), "error: --weights: there is no column 'nope'"),
        (("--drop", "nope"), "error: --drop: there is no column 'nope'"),
        (("--columns", "nope"), "error: --columns: there is no column 'nope'"),
        (("--target", "nope"), "error: --target: there is no column 'nope'"),
        (("--keep", "age,sex,bmi,bp,s1,s2,s3,s4,s5,s6"), "error: --keep must leave columns to choose from"),
        (("--na", ""), "--na must be texts such as ?,none, got ''"),
        (("--cache", "/nope"), "error: --cache must be no or a folder that is there, got '/nope'"),
        (
            ("--loss", "logistic", "--target", "bmi"),
            "--loss logistic needs classes, but the target 'bmi' holds numbers such as",
        ),
        (("--solver", "magic"), "--solver must be one of 'auto', 'ht-svrg'"),
        (("--loss", "magic"), "error: --loss must be one of 'squared', 'logistic', 'poisson', 'gamma'"),
        (("--missing", "magic"), "error: --missing must be one of 'error', 'mean', 'zero', got 'magic'"),
        (("--m", "5"), "--m is for --solver ht-svrg"),
        (("--l2", "much"), "--l2 must be 'auto' or a number, got 'much'"),
        (("--l2", "-1"), "l2 must be a finite number of at least 0"),
        (("--cv", "1"), "--cv must be at least 2 folds"),
        (("--cv", "500"), "--cv must be at most the 442 rows"),
        (("--cv", "5", "--ks", "3:x"), "--ks must be whole numbers from 1 on"),
        (("--cv", "5", "--ks", "1:999999999999"), "--ks must be whole numbers from 1 on"),
        (
            ("--cv", "5", "--l2s", "0.1,much"),
            "--l2s must be 'auto' or numbers of at least 0 such as 0.01,0.1, got '0.1,m",
        ),
        (("--cv", "5", "--l2s", "-1"), "--l2s must be 'auto' or numbers of at least 0"),
        (("--cv", "5", "--l2s", "nan"), "--l2s must be 'auto' or numbers of at least 0"),
        (("--cv", "5", "--l2s", ""), "--l2s must be 'auto' or numbers of at least 0"),
        (("--l2s", "auto"), "--l2s is for --cv, which chooses among them; add --cv 5"),
        (("--cv", "5", "--l2s", "auto", "--l2", "0"), "--l2s auto tries multiples of --l2, which is 0; give numbers"),
        (("--max-time", "0"), "--max-time must be above 0"),
        (("--seed", "-1"), "--seed must be at least 0"),
        (("--keep", "nose"), "--keep names the column 'nose'"),
        (("--columns", "age,,sex"), "--columns must be names of columns"),
        (("--columns", "age\nsex"), "--columns must be names of columns such as a,b, got 'age\\nsex'"),
        (("--drop", "a" * 200_000), "--drop must be names of columns such as a,b, got 'aaa"),
        (("--held-out", "2"), "--held-out must be a share"),
        (("--loss", "poisson", "--target", "age"), "negative"),
    ],
)
def test_options_that_make_no_sense(folder, options, message):
    assert message in refused("fit", folder / "diabetes.csv", "--target", "progression", *options)


# --- where things are written ----------------------------------------------------------------------------------------
def test_outputs_that_cannot_be_are_refused_before_the_work(folder, model, tmp_path, monkeypatch):
    before = listing(folder)

    def opened(*_, **__):
        raise AssertionError("the work began")

    for module in ("models", "saved"):
        monkeypatch.setattr(f"ksparse.cli.{module}.open_files", opened)
    data = folder / "diabetes.csv"
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link.json").symlink_to(data)
    fit = ("fit", data, "--target", "progression")
    for option in ("--out", "--report", "--checkpoint"):
        assert f"{option} must be a file, got '{tmp_path}', which is a folder" in refused(*fit, option, tmp_path)
        assert "is not there" in refused(*fit, option, tmp_path / "nowhere" / "x")
        assert "over what is read" in refused(*fit, option, data)
        assert "over what is read" in refused(*fit, option, "link.json")
        assert "no plain file" in refused(*fit, option, "/dev/null")
        if Path("/proc/self").exists():
            assert "cannot be written: " in refused(*fit, option, "/proc/x.json")
    assert "are the same file" in refused(*fit, "--out", "a", "--report", "a")
    assert "over what is read" in refused("fit", folder, "--target", "y", "--out", folder / "m.json")
    assert "over what is read" in refused("predict", model, data, "--out", model)
    assert "must end in" in refused("predict", model, data, "--out", "p.xlsx")
    assert "--plot must end in" in refused("path", data, "--target", "progression", "--plot", "p.gif")
    assert listing(folder) == before
    assert [path.name for path in tmp_path.iterdir()] == ["link.json"]


# --- predict ---------------------------------------------------------------------------------------------------------
def read_back(path):
    if path.suffix == ".npy":
        return np.load(path)
    if path.suffix == ".parquet":
        return parquet.read_table(path)["prediction"].to_numpy()
    return np.loadtxt(path, skiprows=1)


@pytest.mark.parametrize("end", ["csv", "npy", "parquet"])
def test_predictions_are_those_of_the_model(folder, model, tmp_path, end):
    out = tmp_path / f"p.{end}"
    done = run("predict", model, folder / "diabetes.csv", "--out", out)
    X, y = load_diabetes(return_X_y=True, as_frame=True)
    wanted = ksparse.load(model).predict(X)
    np.testing.assert_allclose(read_back(out), wanted, rtol=1e-13)
    score = ksparse.load(model).score(X, y)
    assert done.stdout == ""
    assert done.stderr == f"R2 {score:.6g} on 442 rows\nwritten: {out}\n"
    facts = json.loads(run("predict", model, folder / "diabetes.csv", "--out", out, "--json").stdout)
    assert facts["rows"] == 442
    assert facts["score"]["R2"] == pytest.approx(score)
    assert [path.name for path in tmp_path.iterdir()] == [out.name]


def test_predictions_go_to_the_standard_output(folder, model):
    done = run("predict", model, folder / "diabetes.csv", "--quiet")
    head, *lines = done.stdout.splitlines()
    assert head == "prediction"
    X, _ = load_diabetes(return_X_y=True, as_frame=True)
    np.testing.assert_allclose(np.array(lines, dtype=float), ksparse.load(model).predict(X), rtol=1e-13)
    assert done.stderr == ""
    assert "add --out FILE" in refused("predict", model, folder / "diabetes.csv", "--json")


def test_predicting_needs_only_the_columns_of_the_model(folder, model, tmp_path):
    data = load_diabetes(as_frame=True).frame[["s5", "bp", "bmi"]].head(5)
    data.insert(1, "comment", "text, of no use")
    data.to_csv(tmp_path / "some.csv", index=False)
    whole = run("predict", model, folder / "diabetes.csv").stdout.splitlines()[:6]
    done = run("predict", model, tmp_path / "some.csv")
    np.testing.assert_allclose(np.array(done.stdout.split()[1:], float), np.array(whole[1:], float), rtol=1e-13)
    assert done.stderr == ""  # no target, no score
    data.drop(columns="bp").to_csv(tmp_path / "less.csv", index=False)
    before = listing(tmp_path)
    assert "'bp'" in refused("predict", model, tmp_path / "less.csv", "--out", tmp_path / "p.csv")
    assert listing(tmp_path) == before


def test_classes_and_probabilities(folder, tmp_path):
    out = tmp_path / "iris.json"
    run("fit", folder / "iris.csv", "--target", "kind", "-k", 2, "--out", out)
    done = run("predict", out, folder / "iris.csv")
    X, y = load_iris(return_X_y=True, as_frame=True)
    X.columns = ["sepal length", "sepal width", "petal length", "petal width"]
    loaded = ksparse.load(out)
    assert done.stdout.splitlines()[1:] == list(loaded.predict(X))
    labels = load_iris().target_names[y]
    chances = loaded.predict_proba(X)
    surprise = -np.log(chances[np.arange(150), y]).mean()
    assert done.stderr == f"accuracy {loaded.score(X, labels):.6g}, log-loss {surprise:.6g} on 150 rows\n"
    head, *lines = run("predict", out, folder / "iris.csv", "--proba").stdout.splitlines()
    assert head == "setosa,versicolor,virginica"
    np.testing.assert_allclose([[float(p) for p in line.split(",")] for line in lines], chances, rtol=1e-12)
    run("predict", out, folder / "iris.csv", "--out", tmp_path / "labels.npy")
    assert np.load(tmp_path / "labels.npy").tolist() == loaded.predict(X).tolist()


def test_labels_are_no_formulas_to_a_spreadsheet(tmp_path):
    labels = ["=1+1", "-cheap", "+3", "-1.5", "@x", "\tt", "\rr", "a=b"]
    safe = ["'=1+1", "'-cheap", "+3", "-1.5", "'@x", "'\tt", "'\rr", "a=b"]
    X = np.eye(8).repeat(4, axis=0) * 9
    model = KSparseClassifier(8).fit(X, np.repeat(labels, 4))
    model.save(tmp_path / "m.json")
    write_csv(tmp_path / "a.csv", [f"x{j}" for j in range(8)], X[::4].tolist())
    predict = "predict", tmp_path / "m.json", tmp_path / "a.csv", "--quiet"

    def cells(*options):
        run(*predict, *options, "--out", tmp_path / "p.csv")
        with open(tmp_path / "p.csv", newline="") as file:
            return list(csv.reader(file))

    assert cells() == [["prediction"], *([label] for label in labels)]
    assert cells("--safe-csv") == [["prediction"], *([label] for label in safe)]
    assert cells("--proba", "--safe-csv")[0] == [dict(zip(labels, safe, strict=True))[c] for c in model.classes_]
    assert "--safe-csv is for CSV" in refused(*predict, "--safe-csv", "--out", tmp_path / "p.npy")


def test_probabilities_need_a_model_that_has_them(folder, model):
    message = refused("predict", model, folder / "diabetes.csv", "--proba")
    assert "--proba is for models with the logistic loss, this one has 'squared'" in message


def test_categories_and_missing_values_are_read_as_in_the_fit(tmp_path):
    rng = np.random.default_rng(0)
    colour, size = rng.choice(["red", "green", "blue"], 90), rng.standard_normal(90)
    y = 2.0 * (colour == "red") - 3.0 * (colour == "blue") + size
    shown = [["" if i == 5 else s, c, t] for i, (s, c, t) in enumerate(zip(size, colour, y, strict=True))]
    path, out = write_csv(tmp_path / "a.csv", ["size", "colour", "y"], shown), tmp_path / "m.json"
    message = refused("fit", path, "--target", "y", "-k", 3, "--out", out)
    assert "'size'" in message
    assert "row 5 (line 7)" in message
    assert not out.exists()
    run("fit", path, "--target", "y", "-k", 3, "--missing", "mean", "--out", out)
    mean = size[np.arange(90) != 5].mean()
    new = write_csv(tmp_path / "b.csv", ["colour", "size"], [["blue", 1.0], ["red", ""], ["violet", 0.0]])
    found = np.array(run("predict", out, new).stdout.split()[1:], float)
    loaded = ksparse.load(out)
    names = list(loaded.feature_names_in_)
    rows = np.zeros((3, len(names)))
    rows[:, names.index("size")] = [1.0, mean, 0.0]
    rows[0, names.index("colour=blue")] = rows[1, names.index("colour=red")] = 1.0
    np.testing.assert_allclose(found, rows @ loaded.coef_ + loaded.intercept_, rtol=1e-9)


def test_models_that_know_nothing_of_files(folder, tmp_path):
    X, y = load_diabetes(return_X_y=True, as_frame=True)
    named = KSparseRegressor(k=3).fit(X, y)
    named.save(tmp_path / "named.json")
    found = np.array(run("predict", tmp_path / "named.json", folder / "diabetes.csv").stdout.split()[1:], float)
    np.testing.assert_allclose(found, named.predict(X), rtol=1e-13)
    nameless = KSparseRegressor(k=3).fit(X.to_numpy(), y)
    nameless.save(tmp_path / "nameless.json")
    message = refused("predict", tmp_path / "nameless.json", folder / "diabetes.csv")
    assert "nameless.json knows no names of columns" in message
    X.to_csv(tmp_path / "x.csv", index=False)
    found = np.array(run("predict", tmp_path / "nameless.json", tmp_path / "x.csv").stdout.split()[1:], float)
    np.testing.assert_allclose(found, named.predict(X), rtol=1e-12)


def test_libsvm_counts_columns_as_in_the_fit(folder, tmp_path):
    out = tmp_path / "m.json"
    run("fit", folder / "diabetes.svm", "-k", 3, "--out", out)
    X, y = load_diabetes(return_X_y=True)
    wanted = KSparseRegressor(k=3).fit(X, y).predict(X)
    found = np.array(run("predict", out, folder / "diabetes.svm").stdout.split()[1:], float)
    np.testing.assert_allclose(found, wanted, rtol=1e-9)
    dump_svmlight_file(X[:, :9], y, str(tmp_path / "short.svm"), zero_based=False)  # rows without the last column
    X[:, 9] = 0.0
    found = np.array(run("predict", out, tmp_path / "short.svm").stdout.split()[1:], float)
    np.testing.assert_allclose(found, KSparseRegressor(k=3).fit(*load_diabetes(return_X_y=True)).predict(X), rtol=1e-9)
    (tmp_path / "wide.svm").write_text("1 1:1 12:3\n")
    assert "note: wide.svm: 1 numbers are in columns after the 10" in run("predict", out, tmp_path / "wide.svm").stderr
    (tmp_path / "zero.svm").write_text("1 0:1 3:3\n")
    assert "zero.svm" in refused("predict", out, tmp_path / "zero.svm")


# --- path and info ---------------------------------------------------------------------------------------------------
def test_path_is_the_library(folder, tmp_path):
    data = ("path", folder / "diabetes.csv", "--target", "progression", "--ks", "1:6")
    done = run(*data, "--cv", 5, "--out", tmp_path / "path.json", "--plot", tmp_path / "path.svg", "--json")
    facts = json.loads(done.stdout)
    X, y = load_diabetes(return_X_y=True, as_frame=True)
    same = k_path(X, y, range(1, 7))
    for name in ("k", "objective", "loss", "aic", "bic", "ebic"):
        np.testing.assert_allclose([row[name] for row in facts["path"]], getattr(same, name), rtol=1e-9)
    assert facts["path"][4]["enters"] == ["sex", "s3"]
    assert facts["path"][4]["leaves"] == ["s1"]
    assert facts["best"] == {name: same.best(name).k_ for name in ("aic", "bic", "ebic")}
    cv = ksparse.KSparseRegressorCV(range(1, 7)).fit(X, y)
    np.testing.assert_allclose(facts["cv"]["score"], cv.mean_score_)
    written = json.loads((tmp_path / "path.json").read_text())
    assert written["path"] == facts["path"]
    assert ">bmi<" in (tmp_path / "path.svg").read_text()
    lines = run(*data).stdout.splitlines()
    assert lines[1].split() == ["k", "objective", "loss", "aic", "bic", "ebic", "enters", "and", "leaves"]
    assert lines[6].endswith("+sex +s3 -s1")
    assert lines[-1] == "best: aic k = 6, bic k = 5, ebic k = 5"


def test_info_says_what_a_model_holds(folder, model, tmp_path):
    text = run("info", model).stdout
    assert re.search(r"^needs +bmi, bp, s5$", text, flags=re.MULTILINE)
    assert re.search(r"^target +progression$", text, flags=re.MULTILINE)
    assert re.search(r"^s5 +543\.", text, flags=re.MULTILINE)
    facts = json.loads(run("info", model, "--json").stdout)
    loaded = ksparse.load(model)
    assert (facts["class"], facts["loss"], facts["k"], facts["columns"]) == ("KSparseRegressor", "squared", 3, 10)
    assert facts["encoding"] == loaded.encoding_
    assert {row["feature"] for row in facts["features"]} == {"bmi", "bp", "s5"}


def test_info_names_no_more_columns_than_the_model_uses(model, tmp_path):
    wide = tmp_path / "wide.json"
    content = {**json.loads(model.read_text()), "n_features": 1_000_000, "features": None, "encoding": None}
    wide.write_text(json.dumps(content))
    run("info", model)  # loads what it needs
    tracemalloc.start()
    try:
        text = run("info", wide).stdout
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 40e6  # a few numbers a column; a name is 60 bytes
    assert "KSparseRegressor: 3 of 1000000 features" in text
    assert re.search(r"^needs +x2, x3, x8$", text, flags=re.MULTILINE)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is not a model: Expecting value"),
        ("{}", "it is not of the format 'ksparse-model'"),
        ("[1]", "it is not of the format"),
        ({"version": 99}, "its version is 99"),
        ({"class": "os.system"}, "its class 'os.system' is not one of"),
        ({"n_features": -1}, "n_features must be a positive integer"),
        ({"encoding": 3}, "encoding must be an object"),
        ({"encoding": {"kind": "magic"}}, "encoding"),
        ({"encoding": {"version": 1, "kind": "table", "columns": None}}, "encoding: columns must be a list"),
        ({"encoding": {"version": 1, "kind": "table", "columns": "abc"}}, "encoding: columns must be a list"),
        (
            {"encoding": {"version": 1, "kind": "table", "columns": [{"name": "bmi", "fill": 10**400}]}},
            "encoding: ",
        ),
    ],
)
def test_malformed_models_are_named(folder, model, tmp_path, content, message):
    bad = tmp_path / "bad.json"
    bad.write_text(content if isinstance(content, str) else json.dumps({**json.loads(model.read_text()), **content}))
    predicted = refused("predict", bad, folder / "diabetes.csv", "--out", tmp_path / "p.csv")
    assert message in predicted
    assert "bad.json" in predicted
    assert message in refused("info", bad)
    assert [path.name for path in tmp_path.iterdir()] == ["bad.json"]
    assert "nowhere.json" in refused("info", tmp_path / "nowhere.json")


# --- the page --------------------------------------------------------------------------------------------------------
@pytest.mark.long
def test_the_examples_of_the_page_run(tmp_path, monkeypatch):
    """Those of one command in this process, those with a pipe by a shell; what is printed is what the page shows."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ksparse").write_text(f'#!/bin/sh\nexec {sys.executable} -m ksparse.cli "$@"\n')
    (tmp_path / "ksparse").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.setenv("COLUMNS", "120")
    page = (Path(__file__).parents[2] / "docs" / "command-line.md").read_text()
    examples = [
        example.split("\n", 1)
        for block in re.findall(r"```\n(\$ .*?)```", page, flags=re.DOTALL)
        for example in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
    ]
    assert len(examples) >= 8
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    for command, shown in examples:
        if command.startswith("ksparse ") and "|" not in command:
            printed = run(*shlex.split(command)[1:]).stdout
        else:
            done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=600)
            assert done.returncode == 0, done.stderr
            printed = done.stdout
        assert doctest.OutputChecker().check_output(shown, printed, flags), f"{command}\n{printed}"
