"""What tests of phase diagrams share: a small grid, a quick algorithm, and the command in processes."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
from typer.testing import CliRunner

from ksparse.cli import app

SMALL = {"d": 32, "n": [8, 16, 24], "K": [1, 4], "trials": 6, "verbose": False}


def matched(A, y, k, *, noise, random_state):
    """The least squares fit on the columns that look most like y: an algorithm that fails often, and draws nothing."""
    chosen = np.argsort(-np.abs(A.T @ y), kind="stable")[:k]
    x = np.zeros(A.shape[1])
    x[chosen] = np.linalg.lstsq(A[:, chosen], y, rcond=None)[0]
    return x


def start(*arguments):
    return subprocess.Popen(
        [sys.executable, "-m", "ksparse.cli", "phase", *map(str, arguments)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        env={**os.environ, "COLUMNS": "150", "TERM": "dumb"},
    )  # fmt: skip


def finish(process, code=0):
    out, err = process.communicate(timeout=600)
    assert process.returncode == code, err + out
    assert "Traceback" not in err, err
    return out, err


def invoke(*arguments, code=0):
    """The command in this process."""
    done = CliRunner().invoke(app, ["phase", *map(str, arguments)])
    assert done.exit_code == code, done.output
    return done


def files(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
