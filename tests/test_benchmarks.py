"""What the benchmarks share: cells that survive an interruption, folds, and the tables made of them."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import LinearRegression

from ksparse import KSparseClassifier, KSparseRegressor

FOLDER = Path(__file__).parent.parent / "benchmarks"


@pytest.fixture
def benchmarks(monkeypatch):
    """The scripts import each other by name, as they do when one of them is run."""
    monkeypatch.syspath_prepend(str(FOLDER))
    import _store
    import _works
    import bench_choosing
    import bench_heldout
    import bench_peers
    import bench_planted
    import bench_recovery
    import bench_transitions
    import compare
    import show_peers

    modules = (
        _store, _works, bench_choosing, bench_heldout, bench_peers, bench_planted, bench_recovery, bench_transitions,
        compare, show_peers,
    )  # fmt: skip
    yield {m.__name__: m for m in modules}
    for path in FOLDER.glob("*.py"):
        sys.modules.pop(path.stem, None)


def tiny(works, loss="squared"):
    """A work of forty rows that needs no file."""

    def read(_):
        X, y, _ = works.planted(40, 12, 2, 0.3, 5)
        return X, y if loss == "squared" else np.where(y > 0, 1.0, -1.0)

    return works.Work(read, loss, (2,), l2=0.0 if loss == "squared" else 1e-2)


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_choosing_k_beside_abess(benchmarks, monkeypatch, loss):
    """The script runs; its refit is the least objective on a support."""
    pytest.importorskip("abess", reason="abess is in the bench extra")
    choosing, works = benchmarks["bench_choosing"], benchmarks["_works"]
    monkeypatch.setitem(choosing.WORKS, "tiny", (tiny(works, loss).read, loss, 3, True))
    row = choosing.measure("tiny", None, 1)
    assert {"path_s", "cv_s", "fit_s"} <= set(row)
    assert row["objective_default"]["worst"] <= 1.001


def test_refits_of_the_choosing_benchmark(benchmarks):
    X, y, _ = benchmarks["_works"].planted(40, 6, 2, 0.3, 5)
    residual = y - y.mean() - (B := X[:, [1, 4]] - X[:, [1, 4]].mean(axis=0)) @ np.linalg.lstsq(B, y, rcond=None)[0]
    found = benchmarks["bench_choosing"].refitted(X, y, "squared", np.array([4, 1]))
    assert found == pytest.approx(0.5 * np.mean(residual**2), rel=1e-10)


def test_a_rerun_skips_what_is_there(benchmarks, tmp_path):
    Store, path, calls = benchmarks["_store"].Store, tmp_path / "deep" / "cells.json", []

    def make():
        calls.append(1)
        return {"value": len(calls)}

    assert Store(path).made("a", "1", make)["value"] == 1
    assert Store(path).made("a", "1", make)["value"] == 1
    assert len(calls) == 1
    assert Store(path).made("a", "2", make)["value"] == 2  # another version of the method
    again = Store(path, again=True)
    assert not again.holds("a", "2")
    assert again.made("a", "2", make)["value"] == 3
    assert again.made("a", "2", make)["value"] == 3  # once in a run is enough
    assert json.loads(path.read_text())["cells"] == {"a": {"version": "2", "value": 3}}


def test_what_was_there_survives_an_interruption(benchmarks, tmp_path, monkeypatch):
    store_module, path = benchmarks["_store"], tmp_path / "cells.json"
    store = store_module.Store(path)
    store.made("a", "1", lambda: {"value": 1})
    before = path.read_text()

    def stopped():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):  # during a fit
        store.made("b", "1", stopped)
    assert path.read_text() == before

    def disk_full(_):
        raise OSError("no space left")

    monkeypatch.setattr(store_module.os, "fsync", disk_full)
    with pytest.raises(OSError, match="no space"):  # during the write
        store.made("c", "1", lambda: {"value": 3})
    assert path.read_text() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_quick_fit_is_timed_five_times_after_a_warm_up(benchmarks):
    store_module, calls = benchmarks["_store"], []
    answer, seconds, fits = store_module.timed(lambda: calls.append(1) or "done")
    assert (answer, fits, len(calls)) == ("done", 5, 6)
    assert seconds >= 0


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_a_tiny_work_goes_through_the_store(benchmarks, tmp_path, capsys, loss):
    works, peers = benchmarks["_works"], benchmarks["bench_peers"]
    work, path = tiny(works, loss), tmp_path / "peers.json"
    methods = {"ksparse": "1", "omp": "1"}
    peers.measure(benchmarks["_store"].Store(path), "tiny", work, methods, None)
    assert "(kept)" not in capsys.readouterr().out
    store = benchmarks["_store"].Store(path)
    peers.measure(store, "tiny", work._replace(read=None), methods, None)  # nothing is read
    assert capsys.readouterr().out.count("(kept)") == 2
    cell = store.cells["tiny|k=2|ksparse"]
    assert cell["features"] == 2
    assert cell["fits"] in (1, 5)  # one alone if it took long, as compiling does
    assert ("skipped" in store.cells["tiny|k=2|omp"]) == (loss == "logistic")
    assert "tiny" in peers.final_table(store.cells)


def test_held_out_losses_of_a_tiny_work(benchmarks, tmp_path):
    works, heldout = benchmarks["_works"], benchmarks["bench_heldout"]
    store = benchmarks["_store"].Store(tmp_path / "heldout.json")
    variants = {m: ("1", partial(heldout.fit_with, m, None if m == "ksparse" else 0.0)) for m in ("ksparse", "omp")}
    heldout.measure(store, "tiny", tiny(works), variants, None)
    (row,) = heldout.compare(store.cells)
    assert row["best"] == "omp"
    folds = row["methods"]["ksparse"]
    assert folds.shape == (2, 5)
    # by hand: the first fold
    X, y, _ = works.planted(40, 12, 2, 0.3, 5)
    train, test = heldout.folds_of(y, "squared")[0]
    model = KSparseRegressor(k=2).fit(X[train], y[train])
    np.testing.assert_allclose(folds[0, 0], np.mean((model.predict(X[test]) - y[test]) ** 2) / 2)
    np.testing.assert_allclose(folds[1, 0], model.score(X[test], y[test]))
    assert row["within"] == (row["difference"] <= row["peer_error"])


def test_a_work_without_its_file_is_said_and_skipped(benchmarks, tmp_path, capsys):
    works, peers = benchmarks["_works"], benchmarks["bench_peers"]
    store = benchmarks["_store"].Store()
    peers.measure(store, "riboflavin", works.WORKS["riboflavin"], {"ksparse": "1"}, tmp_path)
    assert "riboflavin skipped" in capsys.readouterr().out
    assert not store.cells


def test_a_peer_that_is_not_installed_is_said_and_skipped(benchmarks, capsys, monkeypatch):
    works = benchmarks["_works"]
    monkeypatch.setattr(works, "installed", lambda package: None)
    assert list(works.available(["ksparse", "abess"])) == ["ksparse"]
    assert "abess is not installed" in capsys.readouterr().out


def test_planted_cells_count_recoveries(benchmarks, monkeypatch):
    planted = benchmarks["bench_planted"]
    monkeypatch.setattr(planted, "N", 60)
    monkeypatch.setattr(planted, "D", 30)
    monkeypatch.setattr(planted, "K", 2)
    cells = {planted.key(0.5, 100, m, 3): planted.cell(m, 0.5, 100, 3) for m in ("ksparse", "omp")}
    ((rho, snr, by),) = planted.rows_of(cells)
    assert (rho, snr, by["ksparse"][:2]) == ("0.5", "100", (1.0, 1.0))
    assert "at least omp in every cell (exact recoveries): yes" in planted.final_table(cells)


def test_the_page_holds_the_numbers_of_the_files(benchmarks, tmp_path):
    pytest.importorskip("matplotlib", reason="figures need the report extra")
    works, peers, show = (benchmarks[name] for name in ("_works", "bench_peers", "show_peers"))
    store = benchmarks["_store"].Store()
    peers.measure(store, "tiny", tiny(works), {"ksparse": "1", "omp": "1"}, None)
    text = show.page({"peers": store.report})
    ours, omp = (store.cells[f"tiny|k=2|{method}"] for method in ("ksparse", "omp"))
    assert f"| {ours['objective']:.5g} | {omp['objective']:.5g} | {ours['objective'] / omp['objective']:.4f} |" in text
    assert f"| {ours['cpu_s']:.3g} s | {omp['cpu_s']:.3g} s ({omp['cpu_s'] / ours['cpu_s']:.3g}×) |" in text
    assert store.report["machine"]["numpy"] in text
    show.draw(store.report, tmp_path / "peers.svg")
    assert "tiny, k = 2" in (tmp_path / "peers.svg").read_text()


def test_l1_gives_k_features_and_its_refit_is_the_best_on_them(benchmarks):
    works = benchmarks["_works"]
    X, y, _ = works.planted(60, 20, 3, 0.3, 5)
    fit = works.by_l1(5 * X + 1, y, 3, 0.0, "squared")
    S = np.flatnonzero(fit.x)
    assert S.size == 3
    best = LinearRegression().fit(5 * X[:, S] + 1, y)
    np.testing.assert_allclose(fit.x[S], best.coef_)
    np.testing.assert_allclose(fit.constant, best.intercept_)


def test_speed_of_recovery_is_measured_on_equal_answers(benchmarks, tmp_path, capsys):
    recovery = benchmarks["bench_recovery"]
    report = recovery.measure(80, 160, 4, 3)
    assert [row["algorithm"] for row in report["single"]] == ["htp", "cosamp", "sp", "omp"]
    assert [row["algorithm"] for row in report["many"]] == ["auto", "htp", "sp"]
    for row in report["single"] + report["many"]:
        assert row["apart"] < 1e-9
        assert row["error"] < 1e-9
        assert row["ratio"] > 0
    assert report["checks"][-1]["ok"]
    assert "MISSED" in capsys.readouterr().out  # so small a problem is all overhead
    assert "cosamp" in recovery.show(report["single"])


def test_transitions_are_walked_to_and_kept(benchmarks, tmp_path):
    transitions, path = benchmarks["bench_transitions"], tmp_path / "transitions.json"
    bench = transitions.Bench(benchmarks["_store"].Store(path), 5, map)
    up = bench.smallest("omp", "gaussian", 2, 2, 4)
    down = bench.smallest("omp", "gaussian", 2, 2, 60)
    assert 8 <= up <= down <= 40
    assert bench.smallest("iht", "gaussian", 26, 26, None) is None
    again = transitions.Bench(benchmarks["_store"].Store(path), 5, None)  # it could not make a cell
    assert again.smallest("omp", "gaussian", 2, 2, 4) == up
    row = bench.noise(2, 60, 30)
    # equal where both fit the same columns, but for rounding: 60 rows, two columns that are nearly orthogonal
    assert row["oracle"] * (1 - 1e-12) <= row["sp"] < 0.2


@pytest.mark.long
def test_every_algorithm_needs_as_many_measurements_as_before(benchmarks):
    """Twenty trials a cell tell less than a hundred: sixteen to either side."""
    transitions = benchmarks["bench_transitions"]
    bench = transitions.Bench(benchmarks["_store"].Store(), 20, map)
    for algorithm, before in transitions.REFERENCE["gaussian", 8].items():
        assert abs(bench.smallest(algorithm, "gaussian", 8, 8, before) - before) <= 16, algorithm
    for bound in (2, 4):
        assert bench.smallest("auto", "gaussian", 16, bound * 16, 60) <= 68


def test_medians_beside_an_earlier_commit(benchmarks, monkeypatch):
    """Both sides take turns; the first run compiles and does not count; a row that only one side has is left out."""
    module, order = benchmarks["compare"], []
    seconds = {"before": [9.0, 1.0, 5.0, 1.0], "now": [9.0, 1.2, 0.1, 1.2]}

    def bench(side, options):
        order.append(side)
        rows = {("fit", "s"): seconds[side][order.count(side) - 1], ("fit", "objective"): 1.0}
        return rows | {(f"only {side}", "s"): 1.0}

    monkeypatch.setitem(module.BENCHES, "steps", bench)
    rows = list(module.compare("steps", ("before", "now"), Namespace(runs=3)))
    assert order == ["now", "before", "before", "now", "now", "before", "before", "now"]
    assert [(row["row"], row["unit"], row["before"], row["now"], row["worse"]) for row in rows] == [
        ("steps: fit", "s", 1.0, 1.2, True), ("steps: fit", "objective", 1.0, 1.0, False)
    ]  # fmt: skip


def test_a_script_with_names_that_the_package_lacks_is_taken_from_the_other_checkout(benchmarks, tmp_path, monkeypatch):
    module, side = benchmarks["compare"], benchmarks["compare"].Side(tmp_path / "old", tmp_path / "scratch")
    for folder, line in (("new", "import ksparse.no_such_name"), ("old/benchmarks", "import json, sys")):
        (tmp_path / folder).mkdir(parents=True)
        script = f"{line}\nimport time\nsame = time.perf_counter is time.process_time\n"
        script += "open(sys.argv[-1], 'w').write(json.dumps([same, sys.argv[1]]))"
        (tmp_path / folder / "bench.py").write_text(script)
    monkeypatch.setattr(module, "HERE", tmp_path / "new")
    assert side.report("bench.py", "--quick") == [True, "--quick"]  # on CPU time
    (tmp_path / "old" / "benchmarks" / "bench.py").unlink()
    with pytest.raises(SystemExit, match=r"bench\.py failed with the package in .*old"):
        side.report("bench.py")


def test_the_page_of_ridges_is_that_of_its_numbers(benchmarks):
    import show_ridge

    report, heldout = (json.loads((show_ridge.FOLDER / f"{name}.json").read_text()) for name in ("ridge", "heldout"))
    assert show_ridge.page(report, heldout) == (show_ridge.FOLDER / "ridge.md").read_text()


@pytest.mark.parametrize("classify", [False, True])
def test_one_times_the_rule_is_the_default_ridge(benchmarks, classify):
    import choose_ridge

    X, z, _ = benchmarks["_works"].planted(80, 30, 3, 0.3, 5)
    y, model = (np.sign(z), KSparseClassifier) if classify else (z, KSparseRegressor)
    found = model(k=3).fit(X, y)
    assert choose_ridge.rule(*X.shape, 3, "logistic" if classify else "squared") == pytest.approx(found.l2_, rel=1e-12)


def test_a_ridge_over_the_share_of_entries_is_the_plain_one_without_zeros(benchmarks):
    import choose_ridge

    X, z, _ = benchmarks["_works"].planted(80, 30, 3, 0.3, 5)
    same, plain = (fit(1.0, X, np.sign(z), "logistic", 3) for fit in (choose_ridge.fit_rare, choose_ridge.fit_at))
    np.testing.assert_allclose(same.x, plain.x, rtol=1e-5, atol=1e-8)
    X[40:, np.flatnonzero(plain.x)[0]] = 0.0
    rare, plain = (fit(1.0, X, np.sign(z), "logistic", 30) for fit in (choose_ridge.fit_rare, choose_ridge.fit_at))
    thin = choose_ridge.fit_rare(1.0, sparse.csr_matrix(X), np.sign(z), "logistic", 30)
    np.testing.assert_allclose(thin.x, rare.x, rtol=1e-5, atol=1e-8)
    assert np.max(np.abs(rare.x - plain.x)) > 1e-3
