"""Hostile files, kills, pipes, full disks on the command line: one clear line, its exit code, nothing half-written."""

from __future__ import annotations

import errno
import gzip
import json
import os
import pty
import random
import re
import resource
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from commands import listing, refused, run, write_csv

import ksparse

pa = pytest.importorskip("pyarrow", reason="files need the files extra")
from pyarrow import parquet  # noqa: E402

pytestmark = pytest.mark.usefixtures("no_lines_of_progress")

ROWS = "a,b,y\n" + "".join(f"{i},{i * i % 7},{3 * i}\n" for i in range(20))
NAN = ROWS.replace("\n4,2,", "\n4,nan,")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A Parquet file of several groups of rows, as bytes."""
    path = tmp_path_factory.mktemp("whole") / "a.parquet"
    rng = np.random.default_rng(0)
    table = pa.table({"a": rng.standard_normal(3000), "b": rng.standard_normal(3000), "y": rng.standard_normal(3000)})
    parquet.write_table(table, path, row_group_size=500)
    return path.read_bytes()


HOSTILE = [
    ("ragged.csv", ROWS + "1,2\n", ["ragged.csv", "line 22"]),
    ("ragged.csv", ROWS + "1,2,3,4\n", ["ragged.csv", "line 22"]),
    ("nan.csv", NAN, ["nan.csv", "row 4 (line 6)", "'b'"]),
    ("empty.csv", ROWS.replace("\n4,2,", "\n4,,"), ["row 4 (line 6)", "'b'"]),
    ("inf.csv", ROWS.replace("\n4,2,", "\n4,inf,"), ["row 4 (line 6)", "'b'"]),
    ("gap.csv", ROWS.replace(",12\n", ",\n"), ["gap.csv", "row 4 (line 6)", "'y'"]),
    ("header.csv", ROWS.replace("a,b,y", "a,b,z"), ["'y'", "'a', 'b', 'z'"]),
    ("twice.csv", ROWS.replace("a,b,y", "a,a,y"), ["twice.csv", "'a'", "twice"]),
    ("none.csv", ROWS.split("\n", 1)[1], ["none.csv", "header"]),
    ("rowless.csv", "a,b,y\n", ["rowless.csv", "no rows"]),
    ("nothing.csv", "", ["nothing.csv"]),
    ("binary.csv", b"\x00\xff\xfe" * 50, ["binary.csv"]),
    ("packed.csv.gz", b"no gzip", ["packed.csv.gz"]),
    ("cut.csv.gz", gzip.compress(ROWS.encode() * 50)[:-30], ["cut.csv.gz"]),
    ("bad.svm", "1 1:2 2:3\n1 2:x\n", ["bad.svm"]),
    ("falling.svm", "1 3:2 2:3\n", ["falling.svm"]),
    ("both.svm", "1 0:2 2:3\n-1 1:2\n", None),  # 0-based: fine
    ("huge.svm", "1 3000000000000:1\n", ["huge.svm"]),
    ("page.pdf", "%PDF", ["page.pdf"]),
    ("nowhere.csv", None, ["nowhere.csv", "not there"]),
]


@pytest.mark.parametrize(
    ("name", "content", "wanted"),
    HOSTILE,
    ids=lambda value: value if isinstance(value, str) and "." in value[:14] else "",
)
def test_hostile_files_are_named(tmp_path, name, content, wanted):
    if content is not None:
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    target = () if ".svm" in name else ("--target", "y")
    arguments = ("fit", tmp_path / name, *target, "-k", 1, "--out", tmp_path / "m.json", "--checkpoint", tmp_path / "c")
    if wanted is None:
        run(*arguments)
        return
    before = listing(tmp_path)
    message = refused(*arguments)
    for part in wanted:
        assert part in message, message
    assert listing(tmp_path) == before


@pytest.mark.long
def test_text_in_a_column_of_numbers_is_named(tmp_path):
    """Beyond what is looked at to know a column's kind; before that, it is a column of categories."""
    lines = [f"{i},{i % 7},{3 * i}" for i in range(200_000)]
    lines[150_000] = "oops,2,3"
    (tmp_path / "text.csv").write_text("a,b,y\n" + "\n".join(lines))
    message = refused("fit", tmp_path / "text.csv", "--target", "y", "-k", 1, "--out", tmp_path / "m.json")
    assert "'oops'" in message
    assert "'a'" in message
    assert [path.name for path in tmp_path.iterdir()] == ["text.csv"]


def test_truncated_parquet_is_named(tmp_path, whole):
    (tmp_path / "a.parquet").write_bytes(whole[: len(whole) // 2])
    arguments = ("fit", tmp_path / "a.parquet", "--target", "y", "-k", 1, "--out", tmp_path / "m.json")
    before = listing(tmp_path)
    assert "a.parquet" in refused(*arguments)
    assert listing(tmp_path) == before
    broken = bytearray(whole)
    broken[1000:6000] = bytes(5000)  # the end is whole, some rows are not
    (tmp_path / "a.parquet").write_bytes(broken)
    before = listing(tmp_path)
    assert "a.parquet" in refused(*arguments)
    assert listing(tmp_path) == before


def test_names_with_html_are_text_in_the_report(tmp_path):
    pytest.importorskip("jinja2", reason="pages need the report extra")
    rng = np.random.default_rng(0)
    X = rng.standard_normal((80, 3))
    evil = "<script>alert(1)</script>"
    path = write_csv(
        tmp_path / "<b>.csv", [evil, "b", "\x1b[2Jc", "y&amp;"], np.column_stack([X, X @ [2, 1, 1]]).tolist()
    )
    done = run("fit", path, "--target", "y&amp;", "-k", 3, "--report", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert evil not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "<b>.csv" not in page
    assert "y&amp;amp;" in page
    assert "\x1b" not in done.stdout
    assert "\\x1b[2Jc" in done.stdout


@pytest.mark.long
def test_a_report_has_held_out_rows_a_path_and_the_curve_of_cross_validation(tmp_path):
    pytest.importorskip("jinja2", reason="pages need the report extra")
    rng = np.random.default_rng(0)
    X = rng.standard_normal((150, 8))
    label = np.where(X[:, 1] - X[:, 4] + 0.5 * rng.standard_normal(150) > 0, "yes", "no")
    path = write_csv(
        tmp_path / "a.csv", [*"abcdefgh", "y"], [[*row, t] for row, t in zip(X.tolist(), label, strict=True)]
    )
    report = tmp_path / "page.html"
    facts = json.loads(
        run(
            "fit",
            path,
            "--target",
            "y",
            "--cv",
            3,
            "--ks",
            "1:4",
            "--report",
            report,
            "--out",
            tmp_path / "m.json",
            "--json",
        ).stdout
    )
    assert facts["files"] == {"out": str(tmp_path / "m.json"), "report": str(report)}
    assert {row["feature"] for row in facts["features"]} == {"b", "e"}
    page = report.read_text()
    assert page.startswith("<!DOCTYPE html>")
    for word in ("held-out", "m.json", "cross-validation"):
        assert word in page
    run("fit", path, "--target", "y", "-k", 2, "--report", report, "--held-out", 0)
    assert "calibration" not in report.read_text().lower()


# --- processes -------------------------------------------------------------------------------------------------------
def start(*arguments, **settings):
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **settings}
    return subprocess.Popen([sys.executable, "-m", "ksparse.cli", *map(str, arguments)], text=True, **pipes)


@pytest.fixture(scope="module")
def slow(tmp_path_factory):
    """A command of some seconds, several fits, many stages."""
    folder = tmp_path_factory.mktemp("slow")
    rng = np.random.default_rng(0)
    X = rng.standard_normal((2000, 60))
    y = X[:, :8].sum(axis=1) + rng.standard_normal(2000)
    names = [*(f"x{j}" for j in range(60)), "y"]
    parquet.write_table(pa.table([*X.T, y], names=names), folder / "a.parquet")
    common = ("fit", folder / "a.parquet", "--target", "y", "--solver", "ht-svrg", "--m", 300_000, "--quiet")
    return (*common, "--cv", 2, "--ks", "1:3")


def stamp(path):
    """What changes whenever the file is replaced."""
    found = path.stat() if path.exists() else None
    return found and (found.st_ino, found.st_mtime_ns)


def wait_for_fit(process, saved, writes=1):
    """Wait until the command has written its checkpoint: the first time it opens it, then stages are done."""
    for _ in range(writes):
        before = stamp(saved)
        while process.poll() is None and stamp(saved) == before:
            time.sleep(0.005)


def kill_and_resume(arguments, tmp_path, kills):
    """Kill the fit at random moments, go on, and compare the model with that of an undisturbed run."""
    moments, alone, folder = random.Random(0), tmp_path / "alone.json", tmp_path / "killed"
    run(*arguments, "--out", alone)
    model = ksparse.load(alone)
    folder.mkdir()
    out, saved = folder / "model.json", folder / "checkpoint"
    arguments = (*arguments, "--out", out, "--checkpoint", saved)
    killed, said = 0, ""
    for _ in range(kills):
        with start(*arguments) as process:
            wait_for_fit(process, saved, moments.randint(1, 4))
            time.sleep(moments.uniform(0, 0.1))
            process.kill()
            said += process.stderr.read()
        killed += not out.exists()
        if out.exists():  # it was done before: a new one
            np.testing.assert_array_equal(ksparse.load(out).coef_, model.coef_)
            out.unlink()
    said += run(*arguments).stderr
    assert killed > kills / 2
    assert re.search(r"^note: going on from \S+/checkpoint: .*(done|from stage \d+)$", said, re.MULTILINE)
    found = ksparse.load(out)
    np.testing.assert_array_equal(found.coef_, model.coef_)
    assert found.intercept_ == model.intercept_
    assert [path.name for path in folder.iterdir()] == ["model.json"]


@pytest.mark.long  # kills of a fit that is not a command are in test_checkpoint.py
def test_a_killed_fit_goes_on_and_ends_with_the_same_model(slow, tmp_path):
    kill_and_resume(slow, tmp_path, 3)


@pytest.mark.long
def test_ten_kills(slow, tmp_path):
    kill_and_resume((*slow, "--ks", "1:8"), tmp_path, 10)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.long)]
)
def test_an_interrupted_fit_says_what_was_kept(slow, tmp_path, number, code):
    saved = tmp_path / "checkpoint"
    with start(*slow, "--out", tmp_path / "m.json", "--checkpoint", saved) as process:
        wait_for_fit(process, saved)
        while process.poll() is None and b"solved" not in saved.read_bytes():
            time.sleep(0.005)
        process.send_signal(number)
        _, said = process.communicate(timeout=600)
    assert process.returncode == code, said
    assert said == f"interrupted: {saved} keeps the stages written to it, the same command goes on from there\n"
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint"]


@pytest.mark.long
def test_another_fit_does_not_take_the_checkpoint(slow, tmp_path):
    saved = tmp_path / "checkpoint"
    run(*slow, "--checkpoint", saved, "--max-time", "1e-9")
    before = saved.read_bytes()
    assert "seed" in refused(*slow, "--checkpoint", saved, "--max-time", "1e-9", "--seed", 7)
    assert saved.read_bytes() == before


@pytest.mark.long
def test_progress_is_shown_on_a_terminal(slow):
    ours, theirs = pty.openpty()
    with start(*(part for part in slow if part != "--quiet"), stderr=theirs) as process:
        os.close(theirs)
        shown = b""
        while b"stage" not in shown:
            shown += os.read(ours, 1000)
        process.kill()
    os.close(ours)
    assert b"cross-validation, 2 folds: run 1 of 7, stage" in shown


def test_pipes_in_and_out(tmp_path):
    (tmp_path / "a.csv").write_text(ROWS)
    line = f"{sys.executable} -m ksparse.cli"
    learn = f"cat a.csv | {line} fit - --format csv --target y -k 1 --l2 0 --out m.json -q"
    command = f"{learn} && cat a.csv | {line} predict m.json - --format csv"
    done = subprocess.run(["sh", "-c", command], cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    values = done.stdout.split("prediction\n")[1].split()
    np.testing.assert_allclose(np.array(values, float), 3.0 * np.arange(20), atol=1e-9)


@pytest.mark.long
def test_a_reader_that_leaves_is_no_error(tmp_path):
    (tmp_path / "long.csv").write_text("a,b,y\n" + "".join(f"{i},{i * i % 7},{3 * i}\n" for i in range(100_000)))
    run("fit", tmp_path / "long.csv", "--target", "y", "-k", 1, "--out", tmp_path / "m.json")
    with start("predict", tmp_path / "m.json", tmp_path / "long.csv", "--quiet") as process:
        assert process.stdout.readline() == "prediction\n"
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 1


@pytest.mark.long
def test_a_full_disk_leaves_nothing_behind(tmp_path):
    (tmp_path / "long.csv").write_text("a,b,y\n" + "".join(f"{i},{i * i % 7},{3 * i}\n" for i in range(30_000)))
    run("fit", tmp_path / "long.csv", "--target", "y", "-k", 1, "--out", tmp_path / "m.json")
    before = listing(tmp_path)
    for name in ("p.csv", "p.parquet", "p.npy"):
        out = tmp_path / name
        said = on_a_full_disk(100_000, "predict", tmp_path / "m.json", tmp_path / "long.csv", "--out", out, "--quiet")
        assert said == f"error: {out}: File too large; nothing was written\n"
        assert listing(tmp_path) == before


def on_a_full_disk(size, *arguments):
    """Run a command that cannot write files of more than `size` bytes; what it says, with exit code 1."""
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))  # noqa: E731
    # Python keeps the beginning of what it compiled, which it cannot import later
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    with start(*arguments, preexec_fn=limit, env=environment) as process:
        _, said = process.communicate(timeout=600)
    assert process.returncode == 1, said
    return said


def test_a_disk_that_is_full_before_the_report(tmp_path):
    """The model is there, the page is not, and the message says so."""
    (tmp_path / "a.csv").write_text(ROWS)
    out, page = tmp_path / "m.json", tmp_path / "p.html"
    said = on_a_full_disk(
        20_000, "fit", tmp_path / "a.csv", "--target", "y", "-k", 1, "--out", out, "--report", page, "--quiet"
    )
    assert said == f"error: {page}: File too large; {out} was written\n"
    assert ksparse.load(out).k == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.csv", "m.json"]


def test_a_disk_that_is_full_before_the_checkpoint(tmp_path):
    (tmp_path / "a.csv").write_text(ROWS)
    saved = tmp_path / "c"
    fit = "fit", tmp_path / "a.csv", "--target", "y", "-k", 1, "--quiet", "--checkpoint", saved
    assert on_a_full_disk(100, *fit) == f"error: {saved}: File too large; nothing was written\n"
    assert [path.name for path in tmp_path.iterdir()] == ["a.csv"]


@pytest.mark.long
def test_a_disk_that_fills_up_under_the_checkpoint(slow, tmp_path):
    """It is as it was before, and still of use."""
    arguments = slow
    saved, out = tmp_path / "c", tmp_path / "m.json"
    run(*arguments, "--checkpoint", saved, "--max-time", 0.05)
    before = listing(tmp_path)
    said = on_a_full_disk(100, *arguments, "--checkpoint", saved, "--out", out, "--max-time", 0.05)
    keeps = f"{saved} keeps the stages written to it, the same command goes on from there"
    assert said == f"error: {saved}: File too large; {keeps}\n"
    assert listing(tmp_path) == before


LONG = pytest.mark.long


@pytest.mark.parametrize(
    ("before", "size"), [(1, 1000), pytest.param(0, 100, marks=LONG), pytest.param(0, 20_000, marks=LONG)]
)
def test_a_disk_that_is_full_under_trials(tmp_path, before, size):
    """After some trials, at once, or with the picture: what is there is whole, and the same command goes on."""
    out, trials = tmp_path / "p", tmp_path / "p" / "results.jsonl"
    phase = "phase", "--algorithm", "omp", "-d", 16, "--n", "4,8", "--K", "2", "--jobs", 1, "--quiet"
    if before:
        run(*phase, "--trials", before, "--out", out)
    said = on_a_full_disk(size, *phase, "--trials", 8, "--out", out)
    kept = f"{out} keeps the trials done, the same command goes on from there"
    assert said.startswith(f"error: {out}")
    assert said.endswith(f": File too large; {'no trial was kept' if size == 100 else kept}\n")
    lines = trials.read_bytes()
    assert lines.count(b"\n") == {100: 0, 1000: 2, 20_000: 16}[size]
    assert lines.endswith(b"\n") == bool(lines)
    assert not list(out.glob(".*"))
    run(*phase, "--trials", 8, "--out", out)
    run(*phase, "--trials", 8, "--out", tmp_path / "undisturbed")
    assert listing(out) == listing(tmp_path / "undisturbed")


@pytest.mark.long
def test_a_disk_that_is_full_under_the_paper(tmp_path):
    said = on_a_full_disk(20_000, "paper", "--figures", "theory", "--out", tmp_path / "p", "--jobs", 1, "--quiet")
    assert said.startswith(f"error: {tmp_path / 'p'}")
    assert said.endswith(": File too large; no trial was kept\n")
    assert not (tmp_path / "p" / "index.html").exists()


@pytest.mark.long
@pytest.mark.parametrize(("option", "size"), [("--out", 1000), ("--plot", 5000), ("--report", 20_000)])
def test_a_disk_that_is_full_under_a_path(tmp_path, option, size):
    (tmp_path / "a.csv").write_text(ROWS)
    before, file = listing(tmp_path), tmp_path / "p.svg"
    said = on_a_full_disk(size, "path", tmp_path / "a.csv", "--target", "y", "--ks", "1:2", option, file, "--quiet")
    assert said == f"error: {file}: File too large; nothing was written\n"
    assert listing(tmp_path) == before


def test_no_room_for_a_temporary_file_is_a_full_disk(tmp_path, monkeypatch):
    """What checks the outputs meets the full disk first."""

    def full(**_):
        raise OSError(errno.ENOSPC, "No space left on device")

    (tmp_path / "a.csv").write_text(ROWS)
    monkeypatch.setattr("tempfile.TemporaryFile", full)
    done = run("fit", tmp_path / "a.csv", "-k", 1, "--out", tmp_path / "m.json", code=1)
    assert done.stderr == f"error: {tmp_path / 'm.json'}: No space left on device; nothing was written\n"


def shell(command, folder):
    """A line for the shell with `ksparse` in it: exit code, and what went to stderr."""
    line = command.replace("ksparse", f"{sys.executable} -m ksparse.cli", 1)
    done = subprocess.run(["sh", "-c", line], cwd=folder, capture_output=True, text=True, timeout=600)
    return done.returncode, done.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_an_output_that_is_full_does_not_deny_the_files(tmp_path):
    (tmp_path / "a.csv").write_text(ROWS)
    found = shell("ksparse fit a.csv --target y -k 1 --out m.json --quiet >/dev/full", tmp_path)
    assert found == (1, "error: the standard output: No space left on device; m.json was written\n")
    assert ksparse.load(tmp_path / "m.json").k == 1


@pytest.mark.long
def test_other_commands_on_a_full_output(tmp_path):
    (tmp_path / "a.csv").write_text(ROWS)
    run("fit", tmp_path / "a.csv", "--target", "y", "-k", 1, "--out", tmp_path / "m.json")
    full = "error: the standard output: No space left on device"
    found = shell("ksparse predict m.json a.csv --quiet >/dev/full", tmp_path)
    assert found == (1, f"{full}; the predictions are not complete\n")
    assert shell("ksparse fit a.csv -k 1 --quiet >/dev/full", tmp_path) == (1, f"{full}; nothing was written\n")
    assert shell("ksparse plan a.csv -K 1 --no-trial >/dev/full", tmp_path) == (1, f"{full}\n")
    assert shell("ksparse bound -k 9 -K 1 >/dev/full", tmp_path) == (1, f"{full}\n")


def test_a_closed_output_is_refused(tmp_path):
    closed = "error: the standard output is closed; send it to a file or to /dev/null\n"
    assert shell("ksparse fit a.csv --out m.json >&-", tmp_path) == (2, closed)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
def test_other_closed_streams(tmp_path):
    (tmp_path / "a.csv").write_text(ROWS)
    code, said = shell("ksparse fit - --format csv <&-", tmp_path)
    assert (code, said.count("\n")) == (2, 1)
    assert said.startswith("error: the standard input ")
    assert shell("ksparse fit a.csv --target y -k 1 --out m.json 2>&-", tmp_path) == (0, "")
    assert ksparse.load(tmp_path / "m.json").k == 1


def test_help_starts_fast():
    code = "import sys, ksparse.cli; print([m for m in ('numba', 'numpy', 'sklearn', 'pyarrow') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=os.environ, check=True)
    assert done.stdout == "[]\n"
