"""Files, whole and damaged: tables and matrices, saved models, and the command line in this process."""

from __future__ import annotations

import contextlib
import io
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import scipy.sparse as sparse
from draws import chance, pick, shape, spoil
from invariants import same
from pyarrow import feather, parquet
from sklearn.datasets import dump_svmlight_file
from typer.testing import CliRunner

import ksparse
from ksparse.cli import app
from ksparse.sources import open_files


def write(rng, folder):
    """A small file: its path, the arguments that open it, and the rows and targets that were written."""
    n, d = shape(rng, 20, 6)
    X, y = rng.standard_normal((n, d)), rng.standard_normal(n)
    if chance(rng, 0.3):
        X = X * float(f"1e{pick(rng, -310, -30, 30, 300)}")
    kind = pick(rng, "csv", "csv", "tsv", "csv.gz", "parquet", "arrow", "svm", "npy", "npz")
    path, names = Path(folder, f"data.{kind}"), [f"x{j}" for j in range(d)]
    table = pa.table([*X.T, y], names=[*names, "y"])
    if kind in ("csv", "tsv", "csv.gz"):
        delimiter = "\t" if kind == "tsv" else ","
        rows = np.column_stack([X, y])
        np.savetxt(path, rows, delimiter=delimiter, header=delimiter.join([*names, "y"]), comments="", fmt="%.17g")
    elif kind == "parquet":
        parquet.write_table(table, path, row_group_size=int(rng.integers(1, n + 1)))
    elif kind == "arrow":
        feather.write_feather(table, path)
    elif kind == "svm":
        dump_svmlight_file(sparse.csr_matrix(X), y, str(path), zero_based=False)
    elif kind == "npy":
        np.save(path, np.column_stack([X, y]))
    else:
        np.savez(path, A=X, y=y)
    return path, {"path": path, "target": d} if kind == "npy" else {"path": path}, X, y


def damage(rng, path):
    """Bytes flipped, cut off, removed, doubled or put in."""
    content = bytearray(path.read_bytes())
    for _ in range(int(rng.integers(1, 4))):
        at = int(rng.integers(len(content) + 1))
        junk = pick(
            rng, b"\x00", b"\xff\xfe", b",", b'"', b"\n", b"nan", b"1e999", b":", b"\r", b"a=1", b"-" * 50, b"[" * 2000
        )
        change = rng.integers(5)
        if change == 0 and at < len(content):
            content[at] ^= 1 << int(rng.integers(8))
        elif change == 1:
            del content[at:]
        elif change == 2:
            del content[at : at + int(rng.integers(1, 20))]
        elif change == 3:
            content[at:at] = content[at : at + int(rng.integers(1, 200))]
        else:
            content[at:at] = junk
    path.write_bytes(content)


def fuzz_files(rng, watch):
    with tempfile.TemporaryDirectory() as folder:
        path, arguments, X, y = write(rng, folder)
        whole = chance(rng, 0.4)
        if not whole:
            damage(rng, path)
        else:
            arguments = spoil(rng, {**arguments, "missing": "error", "memory": "1GB"}, 0.3)
        watch.note("open_files", {**arguments, "bytes": path.read_bytes()})
        names = [path.name, str(arguments["path"]), "columns", "row", "target", "block"]
        source = watch.call(open_files, names=names, **arguments)
        rows = watch.call(source.load, names=names)
        rows = rows.toarray() if sparse.issparse(rows) else rows
        watch.expect(np.isfinite(rows).all(), "not finite", "in what was read")
        if whole and arguments["path"] == path and arguments.get("target") in (None, X.shape[1]):
            wanted = X[:, : rows.shape[1]] if path.suffix == ".svm" else X  # the last columns may hold no entry
            watch.expect(same(rows, wanted) and same(source.y, y), "content", f"of {path.name} was read differently")


def fuzz_model(rng, watch):
    """A saved model, damaged: it is refused, or it predicts numbers."""
    n, d = shape(rng, 30, 6)
    X = rng.standard_normal((n + 5, d))
    model = pick(rng, ksparse.KSparseRegressor, ksparse.KSparseClassifier)(k=2)
    y = np.arange(n + 5) % int(rng.integers(2, 4)) if hasattr(model, "multi_class") else X[:, 0] + rng.random(n + 5)
    model.fit(X, y)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.json")
        model.save(path)
        damage(rng, path)
        watch.note("load", {"path": path, "bytes": path.read_bytes()})
        loaded = watch.call(ksparse.load, path, names=[path.name])
    watch.expect(loaded.n_features_in_ > 0, "features", f"{loaded.n_features_in_}")
    if loaded.n_features_in_ < 10**4:
        watch.call(loaded.predict, np.ones((2, loaded.n_features_in_)))
    watch.call(lambda: str(loaded.summary()))


def fuzz_command(rng, watch):
    """The command line ends with 0, or with one line that begins with "error:" and the code 1 or 2."""
    with tempfile.TemporaryDirectory() as folder:
        path, arguments, _, _ = write(rng, folder)
        if chance(rng, 0.5):
            damage(rng, path)
        model = Path(folder, "model.json")
        target = ["--target", str(arguments["target"])] if "target" in arguments else []
        options = pick(rng, ["-k", "2"], ["-k", "0.5"], ["-k", "1", "--json"], ["--missing", "zero"], ["-k", "0"])
        command = pick(rng, ["fit", path, *target, *options, "--out", model], ["path", path, *target], ["info", path])
        commands = [command, ["predict", model, path]] if command[0] == "fit" else [command]
        for words in commands:
            words = [str(word) for word in words]
            watch.note("ksparse", {"words": words, "bytes": path.read_bytes()})
            with contextlib.redirect_stderr(io.StringIO()):
                done = watch.call(CliRunner().invoke, app, words)
            if done.exception is not None and not isinstance(done.exception, SystemExit):
                watch.expect(False, f"{type(done.exception).__name__} on the command line", f"{done.exception!r}")
            errors = [line for line in done.stderr.splitlines() if line.lower().startswith(("error", "usage"))]
            watch.expect(done.exit_code == 0 or errors, "exit without a word", f"{done.exit_code}: {done.stderr}")
            watch.expect(done.exit_code in (0, 1, 2), "exit code", f"{done.exit_code}")
            if done.exit_code:
                return
