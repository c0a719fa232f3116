"""The command line, in real processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from sklearn.datasets import dump_svmlight_file, load_diabetes

from ksparse import theory
from ksparse.sources import open_files


def run(*arguments, code=0, **environment):
    done = subprocess.run(
        [sys.executable, "-m", "ksparse.cli", *map(str, arguments)],
        capture_output=True, text=True, timeout=600, env={**os.environ, "COLUMNS": "100", **environment},
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


BARE = """
import numpy, typer
from rich.console import Console
from rich.table import Table
app = typer.Typer()
@app.command()
def table(k: int = 1): Console().print(Table())
@app.command()
def other(k: int = 1): pass
app(["table"], standalone_mode=False)
"""


def test_bound_answers_fast_and_without_numba():
    """It loads nothing that a program with NumPy and a table does not load."""

    def loaded(code):
        code += "\nimport sys\nprint(*{name.partition('.')[0] for name in sys.modules} - sys.stdlib_module_names)"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        return set(done.stdout.splitlines()[-1].split())

    bound = ["bound", "-k", "36", "-K", "4", "-d", "256"]
    ours = loaded(f"from ksparse.cli import app\napp({bound}, standalone_mode=False)")
    assert ours - loaded(BARE) == {"ksparse"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("bound", "-k", 3, "-K", 4), "error: -K must be at most k = 3, got 4"),
        (("bound", "-k", 30, "-K", 4, "-d", 20), "error: -k must be at most d = 20, got 30"),
        (("bound", "-k", 0, "-K", 0), "error: -k must be at least 1, got 0"),
        (("bound", "-k", 4, "-K", 4, "--rate", 2), "error: --rate must be at most 1, got 2"),
        (("bound", "-k", "4.5", "-K", 4), "-k"),
        (("bound", "-K", 4), "-k"),
        (("plan", "nowhere.csv", "-K", 4), "error: 'nowhere.csv' is not there"),
        (("plan", "nowhere.csv", "-K", 4, "--loss", "magic"), "error: --loss must be one of 'squared', 'logistic'"),
        (("nothing",), "nothing"),
    ],
)
def test_bad_input_ends_with_a_message_and_code_2(arguments, message):
    assert message in run(*arguments, code=2).stderr


def test_plan_prints_predicted_and_observed_rate(diabetes):
    done = run("plan", diabetes, "-K", 1)
    assert done.stdout.startswith("diabetes.csv: 442 rows, 10 columns, standardized\nk = 5, step = ")
    assert "rate per stage: predicted none, observed 0." in done.stdout
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
    table = open_files(diabetes)
    libsvm = tmp_path / "half.svm"
    dump_svmlight_file(table.load(), (table.y > 140).astype(int) + 1, str(libsvm))  # labels 1 and 2
    assert "predicted none" in run("plan", libsvm, "-K", 2, "--loss", "logistic", "--no-trial").stdout
    facts = json.loads(run("plan", diabetes, "-K", 2, "--target", "bmi", "--no-trial", "--json").stdout)
    assert facts["certificate"]["d"] == 10
    assert facts["observed_rate"] is None
    assert "no column 'nose'" in run("plan", diabetes, "-K", 2, "--target", "nose", code=2).stderr
    assert "target is for files with names" in run("plan", libsvm, "-K", 2, "--target", "bmi", code=2).stderr


def test_columns_of_any_size_and_constant_ones_are_planned_with(tmp_path):
    rng = np.random.default_rng(0)
    A = rng.standard_normal((60, 6)) * np.array([1, 1e150, 1e-150, 1, 1, 0])
    names = ['"a, in metres"', "b", "c", "d", "e", "f", "y"]
    table = "\n".join([",".join(names), *(",".join(map(repr, row)) for row in np.column_stack([A, A[:, 0]]).tolist())])
    (tmp_path / "t.csv").write_text(table)
    assert open_files(tmp_path / "t.csv").names[0] == "a, in metres"
    done = run("plan", tmp_path / "t.csv", "-K", 1)
    assert done.stderr == ""
    (tmp_path / "flat.csv").write_text("a,b,y\n" + "1,2,3\n" * 5)
    assert "nothing to learn" in run("plan", tmp_path / "flat.csv", "-K", 1).stdout


@pytest.mark.parametrize("command", ["fit", "path", "plan"])
def test_the_help_lists_every_loss(command):
    from ksparse.losses import LOSSES

    assert "|".join(LOSSES) in run(command, "--help", COLUMNS="200").stdout


def test_help_and_version():
    import ksparse

    assert run("--version").stdout.strip() == ksparse.__version__
    for command in ("bound", "plan"):
        assert "-K" in run(command, "--help").stdout
