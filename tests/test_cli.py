"""The command line, in real processes."""

from __future__ import annotations

import bz2
import gzip
import json
import os
import resource
import subprocess
import sys

import numpy as np
import pytest
from sklearn.datasets import dump_svmlight_file, load_diabetes

from ksparse import theory
from ksparse.sources import read_table


def run(*arguments, code=0, **environment):
    done = subprocess.run(
        [sys.executable, "-m", "ksparse.cli", *map(str, arguments)],
        capture_output=True, text=True, timeout=300, env={**os.environ, "COLUMNS": "100", **environment},
    )  # fmt: skip
    assert done.returncode == code, done.stderr + done.stdout
    assert "Traceback" not in done.stderr
    return done


@pytest.fixture(scope="module")
def diabetes(tmp_path_factory):
    data = load_diabetes()
    path = tmp_path_factory.mktemp("data") / "diabetes.csv"
    names = ",".join([*data.feature_names, "progression"])
    np.savetxt(path, np.column_stack([data.data, data.target]), delimiter=",", header=names, comments="")
    return path


def test_bound_prints_a_table():
    out = run("bound", "-k", 36, "-K", 4, "-d", 256).stdout
    for number in ("1.1805", "2.0000", "1.9344", "0.2995", "0.1768", "never"):
        assert number in out
    assert "rho = 0.111111, nu = 1.39349" in out


def test_bound_as_json_is_the_library():
    facts = json.loads(run("bound", "-k", 20, "-K", 1, "--rate", 0.8, "--json").stdout)
    assert facts["nu"] == theory.nu(20, 1)
    assert facts["deviation_factor"] == {"tight": theory.deviation_factor(20, 1), "classic": 2.0, "jain": None}
    assert facts["rip_threshold"]["cosamp"]["tight"] == theory.rip_threshold("cosamp", 20, 1, rate=0.8)
    assert facts["rip_threshold"]["iht"]["order"] == 41


def test_bound_answers_fast_and_without_numba():
    """Under half a second for a whole process, in CPU time, for the machine may be busy."""
    seconds = []
    for _ in range(4):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        run("bound", "-k", 36, "-K", 4, "-d", 256)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(seconds) < 0.5
    code = "import sys; from ksparse.cli import _bound_facts; _bound_facts(36, 4, 256, 0.5); print(sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "'ksparse.theory.bounds'" in loaded
    assert "'numba" not in loaded
    assert "'scipy" not in loaded
    assert "'sklearn" not in loaded


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("bound", "-k", 3, "-K", 4), "error: K must be at most k = 3, got 4"),
        (("bound", "-k", 30, "-K", 4, "-d", 20), "error: k must be at most d = 20, got 30"),
        (("bound", "-k", 0, "-K", 0), "error: k must be at least 1, got 0"),
        (("bound", "-k", 4, "-K", 4, "--rate", 2), "error: rate must be at most 1, got 2"),
        (("bound", "-k", "4.5", "-K", 4), "-k"),
        (("bound", "-K", 4), "-k"),
        (("plan", "nowhere.csv", "-K", 4), "error: DATA must be a file, got 'nowhere.csv', which is not there"),
        (("nothing",), "nothing"),
    ],
)
def test_bad_input_ends_with_a_message_and_code_2(arguments, message):
    assert message in run(*arguments, code=2).stderr


def test_plan_prints_predicted_and_observed_rate(diabetes):
    done = run("plan", diabetes, "-K", 1)
    assert done.stdout.startswith("diabetes.csv: 442 rows, 10 columns, standardized\nk = 5, step = ")
    assert "rate a stage: predicted none, observed 0." in done.stdout
    assert "not certified: losses of single rows" in done.stdout
    assert done.stderr == ""  # no progress bar in a pipe


def test_plan_certifies_with_a_ridge_and_says_so_in_json(tmp_path):
    rng = np.random.default_rng(0)
    A = rng.standard_normal((300, 200))
    A /= np.linalg.norm(A, axis=1, keepdims=True)
    np.savez(tmp_path / "rows.npz", A=A, y=3 * A[:, 5])
    arguments = ("plan", tmp_path / "rows.npz", "-K", 1, "--l2", 20, "--radius", 5, "--no-standardize", "--json")
    facts = json.loads(run(*arguments).stdout)
    assert facts["source"] == "theory"
    assert facts["certificate"]["verdict"] == "certified"
    assert facts["observed_rate"] < facts["certificate"]["beta"] <= 2 / 3 + 1e-9
    same = theory.plan(A, 3 * A[:, 5] - 3 * A[:, 5].mean(), 1, l2=20.0, radius=5.0)
    assert facts["k"] == same.k
    assert facts["step"] == same.step


def test_plan_reads_labels_and_chosen_targets(diabetes, tmp_path):
    table = read_table(diabetes)
    libsvm = tmp_path / "half.svm"
    dump_svmlight_file(table.A, (table.y > 140).astype(int) + 1, str(libsvm))  # labels 1 and 2
    assert "predicted none" in run("plan", libsvm, "-K", 2, "--loss", "logistic", "--no-trial").stdout
    facts = json.loads(run("plan", diabetes, "-K", 2, "--target", "bmi", "--no-trial", "--json").stdout)
    assert facts["certificate"]["d"] == 10
    assert facts["observed_rate"] is None
    assert "no column 'nose'" in run("plan", diabetes, "-K", 2, "--target", "nose", code=2).stderr
    assert "--target is for CSV" in run("plan", libsvm, "-K", 2, "--target", "bmi", code=2).stderr


def test_tables_are_the_same_from_every_format(diabetes, tmp_path):
    table = read_table(diabetes)
    assert table.names[:3] == ["age", "sex", "bmi"]
    text = diabetes.read_bytes()
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(text, mtime=0))
    (tmp_path / "a.csv.bz2").write_bytes(bz2.compress(text))
    (tmp_path / "a.tsv").write_bytes(text.replace(b",", b"\t").replace(b"\n", b"\r\n"))
    np.savez(tmp_path / "a.npz", X=table.A, y=table.y)
    dump_svmlight_file(table.A, table.y, str(tmp_path / "a.svm"))
    (tmp_path / "a.libsvm.bz2").write_bytes(bz2.compress((tmp_path / "a.svm").read_bytes()))
    for name in ("a.csv.gz", "a.csv.bz2", "a.tsv", "a.npz", "a.svm", "a.libsvm.bz2"):
        other = read_table(tmp_path / name)
        dense = other.A.toarray() if hasattr(other.A, "toarray") else other.A
        np.testing.assert_allclose(dense, table.A, rtol=1e-12)
        np.testing.assert_allclose(other.y, table.y)
    middle = read_table(diabetes, "bmi")
    np.testing.assert_array_equal(middle.y, table.A[:, 2])
    assert middle.names == ["age", "sex", *table.names[3:], "progression"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"x,y\n1,2\n3,oops\n", "'oops'"),
        ("a.csv", b"x,y\n1,2\n3\n", "a.csv cannot be read"),
        ("a.csv", b"x,y\n1,\n", "cannot be read"),
        ("a.csv", b"x,x\n1,2\n", "'x' is there twice"),
        ("a.csv", b"x,y,z\n1,2\n", "3 names in its header, but rows of 2"),
        ("a.csv", b"x\n1\n", "at least two columns"),
        ("a.csv", b"x,y\n1,2\nnan,3\n", "in row 1 .from 0., column 'x'"),
        ("a.csv", b"x,y\n1,2\n3,inf\n", "in the target of row 1"),
        ("a.csv", b"1,2\n3,4\n", "a header with the names"),
        ("a.csv.gz", gzip.compress(b"x,y\n1,2\n" * 50, mtime=0)[:-20] + b"12345678901234567890", "cannot be read"),
        ("a.svm", b"1 3000000000:1\n", "cannot be read as LIBSVM"),
        ("a.svm", b"", "cannot be read as LIBSVM"),
        ("a.csv", b"x,y\n", "no rows behind the header"),
        ("a.csv", b"", "cannot be read"),
        ("a.csv.gz", b"no gzip", "cannot be read"),
        ("a.npz", b"no zip", "cannot be read"),
        ("a.svm", b"1 2:x\n", "cannot be read as LIBSVM"),
        ("a.pdf", b"", "DATA must end in one of .csv"),
        ("noend", b"", "DATA must end in one of .csv"),
    ],
)
def test_hostile_files_are_named(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_table(tmp_path / name)


def test_npz_files_that_are_none(tmp_path):
    np.save(tmp_path / "single.npy", np.ones((3, 2)))
    (tmp_path / "single.npy").rename(tmp_path / "single.npz")
    np.savez(tmp_path / "text.npz", A=np.array([["a"]]), y=np.ones(1))
    np.savez(tmp_path / "whole.npz", A=np.ones((3, 2)), y=np.ones(3))
    (tmp_path / "cut.npz").write_bytes((tmp_path / "whole.npz").read_bytes()[:-40])
    for name, message in (("single", "single array"), ("text", "real numbers"), ("cut", "cannot be read")):
        with pytest.raises(ValueError, match=message):
            read_table(tmp_path / f"{name}.npz")


def test_columns_of_any_size_and_constant_ones_are_planned_with(tmp_path):
    rng = np.random.default_rng(0)
    A = rng.standard_normal((60, 6)) * np.array([1, 1e150, 1e-150, 1, 1, 0])
    names = ['"a, in metres"', "b", "c", "d", "e", "f", "y"]
    table = "\n".join([",".join(names), *(",".join(map(repr, row)) for row in np.column_stack([A, A[:, 0]]).tolist())])
    (tmp_path / "t.csv").write_text(table)
    assert read_table(tmp_path / "t.csv").names[0] == "a, in metres"
    done = run("plan", tmp_path / "t.csv", "-K", 1)
    assert done.stderr == ""
    (tmp_path / "flat.csv").write_text("a,b,y\n" + "1,2,3\n" * 5)
    assert "nothing to learn" in run("plan", tmp_path / "flat.csv", "-K", 1).stdout


def test_the_command_line_knows_every_loss():
    """It lists them itself, for the losses would load numba."""
    from ksparse.cli import Loss
    from ksparse.losses import LOSSES

    assert [loss.value for loss in Loss] == list(LOSSES)


def test_help_and_version():
    import ksparse

    assert run("--version").stdout.strip() == ksparse.__version__
    for command in ("bound", "plan"):
        assert "-K" in run(command, "--help").stdout
