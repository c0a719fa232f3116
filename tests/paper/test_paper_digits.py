"""The digit figures of the paper: where digits come from, what trials record, what is said of them."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import struct
import xml.etree.ElementTree as ElementTree
from urllib.error import URLError

import numpy as np
import pytest
import sklearn.datasets

from ksparse.paper import classification, digits, l1, models
from ksparse.paper.lab import Lab
from ksparse.sensing.phase import Pool

FIGURES = (digits, classification, models, l1)


# --- MNIST's files, with an MNIST of our own -------------------------------------------------------------------------
def idx(values):
    shape = values.shape if values.ndim == 1 else (len(values), 28, 28)
    return struct.pack(f">{1 + len(shape)}I", 0x0800 + len(shape), *shape) + values.tobytes()


@pytest.fixture
def mnist(tmp_path, monkeypatch):
    """A folder with files like MNIST's, and their content."""
    rng = np.random.default_rng(0)
    content = {}
    for part, n in (("train", 40), ("t10k", 20)):
        content[f"{part}-images-idx3-ubyte"] = rng.integers(0, 256, (n, 784)).astype(np.uint8)
        content[f"{part}-labels-idx1-ubyte"] = (np.arange(n) % 10).astype(np.uint8)
    files = {}
    for name, values in content.items():
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(idx(values), 1))
        files[name] = digits.IdxFile(values.shape, hashlib.sha256(idx(values)).hexdigest())
    monkeypatch.setattr(digits, "FILES", files)
    digits.load.cache_clear()
    yield tmp_path, content
    digits.load.cache_clear()
    digits._pair.cache_clear()


def test_sizes_of_the_files_are_the_published_ones():
    sizes = [file.size for file in digits.FILES.values()]
    assert sizes == [47_040_016, 60_008, 7_840_016, 10_008]
    assert list(digits.FILES) == [
        "train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte",
    ]  # fmt: skip


def test_files_are_read_packed_and_unpacked(mnist):
    folder, content = mnist
    unpacked = "train-images-idx3-ubyte"
    (folder / unpacked).write_bytes(gzip.decompress((folder / f"{unpacked}.gz").read_bytes()))
    (folder / f"{unpacked}.gz").unlink()
    found = digits.load(folder)
    for values, expected in zip(found, content.values(), strict=False):
        np.testing.assert_array_equal(values, expected)
    assert (found.train.shape[1], found.ink, digits.name_of(folder)) == (28 * 28, 255, "mnist")
    pair = digits.load_pair("mnist", folder, "1v7")
    assert pair.A.shape == (8, 784)
    assert (pair.A.min(), pair.A.max()) == (0.0, 1.0)
    labels = content["train-labels-idx1-ubyte"]
    rows = np.isin(labels, (1, 7))
    np.testing.assert_array_equal(pair.A, content["train-images-idx3-ubyte"][rows] / 255)
    np.testing.assert_array_equal(pair.y, np.where(labels[rows] == 1, 1, -1))


def cut(path):
    path.write_bytes(path.read_bytes()[:-20])


def flip(path):
    content = bytearray(gzip.decompress(path.read_bytes()))
    content[-1] ^= 1
    path.write_bytes(gzip.compress(bytes(content)))


def shorten(path):
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes())[:-1]))


def lengthen(path):
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes()) + bytes(1000)))


def scribble(path):
    path.write_bytes(b"<html>Not found</html>")


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (cut, "cannot be read: expected 15,696 bytes"),
        (flip, "expected SHA-256 [0-9a-f]{64}, found [0-9a-f]{64};"),
        (shorten, "expected 15,696 bytes .unpacked., found 15,695;"),
        (lengthen, "expected 15,696 bytes .unpacked., found more;"),
        (scribble, "cannot be read: expected 15,696 bytes .unpacked., found Not a gzipped file"),
        (lambda path: path.unlink(), "found neither"),
    ],
)
def test_files_that_are_not_mnist_are_named_with_a_remedy(mnist, damage, words):
    folder, _ = mnist
    damage(folder / "t10k-images-idx3-ubyte.gz")
    with pytest.raises(ValueError, match=words) as error:
        digits.load(folder)
    assert "t10k-images-idx3-ubyte" in str(error.value)
    assert "download it again" in str(error.value)


def test_folders_that_cannot_be_read_are_named(tmp_path):
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "nowhere", tmp_path / "file"):
        with pytest.raises(ValueError, match=folder.name):
            digits.load(folder)


# --- OpenML ----------------------------------------------------------------------------------------------------------
@pytest.fixture
def openml(mnist, monkeypatch):
    """What OpenML would send: the images of `mnist` as floats, in another order within each part."""
    _, content = mnist
    train, train_labels, test, test_labels = content.values()
    order = np.random.default_rng(1).permutation(len(train))
    sent = np.vstack([train[order], test]).astype(float), np.append(train_labels[order], test_labels).astype(str)
    prints = (digits.fingerprint(train, train_labels), digits.fingerprint(test, test_labels))
    monkeypatch.setattr(digits, "CONTENT", prints)
    monkeypatch.setattr(sklearn.datasets, "fetch_openml", lambda *_, **__: sent)
    return sent, order


def test_a_download_is_the_same_digits_in_any_order(mnist, openml):
    (sent, _), order = openml
    found = digits.load("openml")
    np.testing.assert_array_equal(found.train, sent[:40])
    np.testing.assert_array_equal(found.train_labels, mnist[1]["train-labels-idx1-ubyte"][order])
    assert (found.train.dtype, len(found.test)) == (np.uint8, 20)


def test_a_download_of_something_else_is_refused(openml):
    sent = openml[0][0]
    sent[50, 3] = 255.0 - sent[50, 3]
    with pytest.raises(ValueError, match="is not MNIST: expected a fingerprint"):
        digits.load("openml")


@pytest.mark.parametrize("trouble", [URLError("no route"), TimeoutError("timed out"), ImportError("needs pandas")])
def test_without_a_network_the_remedy_is_said(mnist, monkeypatch, trouble):
    def fail(*_, **__):
        raise trouble

    monkeypatch.setattr(sklearn.datasets, "fetch_openml", fail)
    with pytest.raises(ValueError, match=r"cannot be downloaded from OpenML: .*; give the folder"):
        digits.load("openml")


# --- the small digits ------------------------------------------------------------------------------------------------
def test_small_digits_are_split_digit_by_digit():
    found = digits.load(None)
    images, labels = sklearn.datasets.load_digits(return_X_y=True)
    assert len(found.train) + len(found.test) == len(images) == 1797
    both = np.vstack([found.train, found.test]).astype(float)
    assert sorted(map(bytes, both)) == sorted(map(bytes, images))
    counts = np.bincount(found.test_labels)
    np.testing.assert_array_equal(counts, np.bincount(labels) // 5)
    pair = digits.load_pair("sklearn 8x8", None, "4v5")
    assert pair.A.max() == 1.0
    assert set(pair.y) == set(pair.truth) == {-1.0, 1.0}
    assert pair.accuracy(np.zeros(64), 1.0) == round(float(np.mean(pair.truth > 0)), 5) <= pair.majority
    assert pair.loss(np.zeros(64)) == pytest.approx(np.log(2))


def test_trials_of_other_digits_are_refused(tmp_path):
    with pytest.raises(ValueError, match="about mnist digits, got sklearn 8x8"):
        digits.load_pair("mnist", None, "0v9")
    with pytest.raises(ValueError, match="about sklearn 8x8 digits, got mnist"):
        digits.trial(0, "sklearn 8x8", 3, 2, digits_folder=tmp_path)


def test_pictures_are_kept_as_text():
    found = digits.load(None)
    image = digits.unpack(digits.pack(found.train[0], found.ink))
    assert image.shape == (8, 8)
    np.testing.assert_allclose(image.ravel(), found.train[0] / 16, atol=0.5 / 15 + 1e-9)


# --- trials ----------------------------------------------------------------------------------------------------------
def few(figure):
    """Some trials of every kind."""
    config = figure.CONFIG["quick"]
    if figure is models:
        return figure.items(config)
    found = figure.items(config, digits="sklearn 8x8")
    return [item for item in found if item.get("pair", "1v7") in ("1v7", "4v5")]


def work(out, figure, items):
    with Pool(1) as pool:
        lab = Lab("quick", out, pool, context={"digits_folder": None}, verbose=False)
        with lab.open(figure) as ledger:
            lab.collect(figure, items, ledger)
            ledger.sort()
        return list(lab.records(figure)), lab.path(figure).read_bytes()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Records, files and summaries of all figures, the summaries as they come back from disk."""
    out = tmp_path_factory.mktemp("digits")
    done = {figure.NUMBER: work(out, figure, few(figure)) if few(figure) else ([], b"") for figure in FIGURES}
    summaries = {figure.NUMBER: figure.summarise(done[figure.NUMBER][0]) for figure in FIGURES}
    return done, json.loads(json.dumps(summaries, allow_nan=False))


@pytest.mark.parametrize("figure", [digits, l1], ids=lambda figure: figure.NUMBER)
def test_what_is_done_in_pieces_is_the_same_to_the_byte(run, figure, tmp_path):
    items = few(figure)
    work(tmp_path, figure, items[1::2])
    assert work(tmp_path, figure, items)[1] == run[0][figure.NUMBER][1]


def test_a_trial_depends_on_its_item_and_seed_alone(run):
    records = [record for record in run[0]["8"][0] if record["rule"] in ("paper", "random")]
    record = records[-1]
    item = {name: record[name] for name in classification.KEY}
    again = classification.trial(record["seed"], **item)
    assert {**item, **again} == {name: value for name, value in record.items() if name not in ("version", "seed")}
    other = classification.trial(record["seed"] + 1, **item)
    assert other["objective"] != again["objective"]


@pytest.mark.parametrize("preset", ["quick", "standard", "full"])
@pytest.mark.parametrize("name", ["mnist", "sklearn 8x8"])
@pytest.mark.parametrize("figure", [digits, classification, l1], ids=lambda figure: figure.NUMBER)
def test_every_preset_has_trials_that_differ(figure, name, preset):
    items = figure.items(figure.CONFIG[preset], digits=name)
    keys = [tuple(item[field] for field in figure.KEY) for item in items]
    assert len({*keys}) == len(keys) > 0
    assert all(type(part) is type(first) for key in keys for part, first in zip(key, keys[0], strict=True))
    assert all(item["digits"] == name for item in items)


@pytest.mark.parametrize("preset", ["quick", "standard", "full"])
def test_the_third_model_of_the_second_row_is_1_against_7_at_30(preset):
    items = [item for item in classification.items(classification.CONFIG[preset]) if item["rule"] == "paper"]
    pairs = sorted({item["pair"] for item in items})
    assert pairs[1] == "1v7"
    assert sorted({item["k"] for item in items if item["pair"] == "1v7"})[2] == 30


def test_the_step_of_small_digits_makes_stages_as_long_as_mnists():
    assert classification.step_of("mnist", 11_000) == 1e-3
    n = 290
    assert 3 * n * classification.step_of("sklearn 8x8", n) == pytest.approx(3 * 12_000 * 1e-3)


def test_records_hold_what_was_learnt(run):
    for record in run[0]["8"][0]:
        pair = digits.load_pair("sklearn 8x8", None, record["pair"])
        assert record["nonzeros"] <= record["k"]
        assert len(record["objective"]) == (1 if record["rule"] == "lowest" else classification.MORE_STAGES + 1)
        if record["rule"] != "lowest":
            assert record["objective"][0] == pytest.approx(np.log(2), rel=1e-3)
        if "pixels" in record:
            x = models.weights_of(record, 64).ravel()
            assert np.count_nonzero(x) == record["nonzeros"]
            assert abs(pair.accuracy(x) - record["accuracy"]) < 0.03  # weights are kept in per cent
            assert pair.loss(x) == pytest.approx(record["objective"][classification.STAGES], rel=0.1)
            assert np.mean(pair.A[pair.y > 0] @ x) > 0 > np.mean(pair.A[pair.y < 0] @ x)  # the smaller digit is blue


def test_the_computed_step_is_the_papers_formula(run):
    for pair in ("1v7", "4v5"):
        A = digits.load_pair("sklearn 8x8", None, pair).A
        steps = run[1]["8"]["steps"][pair]
        assert steps["spectral"] == pytest.approx(2 / np.linalg.norm(A, 2) ** 2, rel=1e-3)
        unit = A / np.sqrt((A**2).sum(axis=1))[:, np.newaxis]
        assert steps["unit rows"] == pytest.approx(2 / np.linalg.norm(unit, 2) ** 2, rel=1e-3)


def test_the_lowest_objective_is_below_the_papers_at_the_same_k(run):
    lowest, paper = (classification.runs_of(run[1]["8"], rule) for rule in ("lowest", "paper"))
    assert lowest
    for pair, by_size in lowest.items():
        for k, found in by_size.items():
            assert found["objective"][0] < paper[pair][k]["objective"][-1]


# --- the l1 norm -----------------------------------------------------------------------------------------------------
def test_the_optimum_is_one():
    pair = digits.load_pair("sklearn 8x8", None, "4v5")
    for penalty in (0.03, 0.003):
        x = l1._fit(pair, "optimum", 0, penalty, 0, 0).coef_[0]
        slope = -pair.A.T @ (pair.y / (1 + np.exp(pair.y * (pair.A @ x)))) / len(pair.y)
        assert np.abs(slope).max() <= 1.05 * penalty
        np.testing.assert_allclose(slope[x != 0], -penalty * np.sign(x[x != 0]), rtol=0.05)
        early, later = (l1._fit(pair, "saga", 0, penalty, passes, 0).coef_[0] for passes in (1, 200))
        values = [pair.loss(z) + penalty * np.abs(z).sum() for z in (early, later, x)]
        assert values[0] > values[1] >= values[2] * (1 - 1e-3)


def test_models_of_the_l1_figure(run):
    records = run[0]["l1"][0]
    kinds = {record["method"] for record in records}
    assert kinds == {*l1.METHODS}
    for record in records:
        if record["method"] == "auto":
            assert record["nonzeros"] <= record["k"]
            assert record["accuracy"] > 0.9
    short = [record for record in records if record["method"] == "saga" and record["passes"] == 1]
    assert short
    assert not any(record["converged"] for record in short)
    assert all(record["converged"] for record in records if record["method"] == "optimum")
    for by_method in run[1]["l1"]["models"].values():
        losses = [model["loss"] for model in sorted(by_method["optimum"], key=lambda model: -model["penalty"])]
        assert losses == sorted(losses, reverse=True)


def test_hard_thresholding_comes_from_figure_8(run):
    found = l1.all_models(run[1], "1v7")["ht-svrg"]
    runs = classification.runs_of(run[1]["8"])["1v7"]
    assert [model["accuracy"] for model in found] == [run["accuracy"] for run in runs.values()]
    assert "ht-svrg" not in l1.all_models({"l1": run[1]["l1"]}, "1v7")
    assert "ht-svrg" not in l1.all_models({**run[1], "8": {**run[1]["8"], "digits": "mnist"}}, "1v7")


# --- summaries, pictures ---------------------------------------------------------------------------------------------
def test_summaries_do_not_mix_sets(run):
    records = run[0]["6"][0]
    mixed = [*records, {**records[0], "digits": "mnist", "train": 6000}]
    assert digits.summarise(mixed)["train"] == {"0": 6000}
    assert digits.summarise(mixed)["digits"] == "mnist"


def test_draws_are_averaged(run):
    record = next(record for record in run[0]["8"][0] if record["rule"] == "paper")
    other = {**record, "draw": 1, "accuracy": record["accuracy"] - 0.1, "objective": [1.0] * len(record["objective"])}
    cell = classification.summarise([record, other])["runs"][0]
    assert cell["draws"] == 2
    assert cell["accuracy"] == pytest.approx(record["accuracy"] - 0.05)
    assert (cell["accuracy_low"], cell["accuracy_high"]) == (other["accuracy"], record["accuracy"])
    np.testing.assert_allclose(cell["objective"], (np.array(record["objective"]) + 1) / 2, rtol=1e-3)


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.NUMBER)
def test_pictures_come_from_summaries_alone(run, figure, monkeypatch):
    pytest.importorskip("matplotlib", reason="figures need the report extra")
    from ksparse._style import as_svg

    monkeypatch.setattr(digits, "load", None)
    panels = figure.plot(run[1])
    pairs = {"1v7", "4v5"}
    assert {*panels} == {"6": {"samples"}, "7": pairs, "8": {*pairs, "accuracy"}, "l1": {*pairs, "passes"}}[
        figure.NUMBER
    ]
    drawn = {name: as_svg(ax) for name, ax in panels.items()}
    assert all(ElementTree.fromstring(picture).tag.endswith("svg") for picture in drawn.values())
    last = [*drawn][-1]
    assert drawn[last] == as_svg(figure.plot(run[1])[last])
    assert figure.plot({}) == {}
    assert figure.claims({}) == []
    alone = {number: summary for number, summary in run[1].items() if number == figure.NUMBER}
    figure.plot(alone)  # what it needs from others may be missing
    figure.claims(alone)
    nothing = {other.NUMBER: other.summarise([]) for other in FIGURES}
    assert figure.plot(nothing) == {}
    assert figure.claims(nothing) == []


def test_a_model_is_drawn_where_its_pixels_are(run):
    model = {"pixels": [9, 62], "percent": [100, -50], "largest": 2.0}
    picture = models.weights_of(model, 64)
    assert (picture[1, 1], picture[7, 6], np.count_nonzero(picture)) == (2.0, -1.0, 2)


# --- claims ----------------------------------------------------------------------------------------------------------
def curve(end, later, rule="paper", pair="0v9", k=70, accuracy=0.99):
    """A run whose objective is log 2 at first, `end` from stage 10 on and `later` from stage 30 on."""
    history = [0.6931] + [0.3] * 9 + [end] * 20 + [later] * 11
    return {"pair": pair, "rule": rule, "k": k, "objective": history, "accuracy": accuracy, "nonzeros": k, "eta": 1e-3}


def said(runs, spectral=4e-6, name="mnist"):
    step = {"n": 12_000, "majority": 0.5, "spectral": spectral, "unit rows": 4e-4}
    summary = {"digits": name, "d": 784, "runs": runs, "models": {}, "steps": {"0v9": step}}
    return {claim.claim: claim for claim in classification.claims({"8": summary}) + models.claims({"8": summary})}


FLAT, LOWEST = "Fast convergence", "The minimum is reached"
GOOD = [curve(0.05, 0.05), curve(0.02, 0.02, k=784), {**curve(0, 0, "lowest"), "objective": [0.049]}]


def test_claims_agree_where_they_hold():
    found = said(GOOD, spectral=1.2e-3)
    assert {claim.verdict for claim in found.values()} == {"agrees"}
    assert len(found) == 6


@pytest.mark.parametrize(
    ("runs", "name", "verdict", "words"),
    [
        ([curve(0.1, 0.05)], FLAT, "differs", "continues to fall"),
        ([curve(0.05, 0.05)], LOWEST, "open", "not tried"),
        ([*GOOD[:2], {**GOOD[2], "objective": [0.02]}], LOWEST, "differs", "linear axis"),
        ([*GOOD[:2], {**GOOD[2], "objective": [1e-9]}], LOWEST, "differs", "linear axis"),
        ([GOOD[0], curve(0.06, 0.06, k=784)], "Larger k, lower objective", "differs", "from k = 70 to 784: .20.0%"),
        ([GOOD[0]], "Larger k, lower objective", "open", "fewer than two"),
        ([curve(0.05, 0.05, accuracy=0.97), GOOD[1]], "k = 70 of 784 suffices", "differs", "2.00 points less"),
        ([GOOD[0]], "k = 70 of 784 suffices", "open", "incomplete"),
        (GOOD, "The heuristic step on MNIST", "differs", "from 0 to 1/16"),
        ([curve(0.05, 0.05, accuracy=0.8)], "The models tell digits apart", "differs", "make more errors"),
    ],
)
def test_claims_differ_or_stay_open_where_they_do_not_hold(runs, name, verdict, words):
    claim = said(runs)[name]
    assert claim.verdict == verdict
    assert re.search(words, claim.reason)


@pytest.mark.parametrize(("most", "verdict"), [(400, "agrees"), (200, "open"), (60, "differs")])
def test_two_cuts_decide_whether_l1_is_sparse(most, verdict):
    model = {"k": 0, "penalty": 1e-3, "nonzeros": most, "accuracy": 0.99, "loss": 0.1, "converged": True}
    pairs = ("0v9", "1v7", "2v3")
    summary = {"digits": "mnist", "ink": dict.fromkeys(pairs, 600), "looks": {}}
    summary["models"] = {pair: {"optimum": [model]} for pair in pairs}
    (claim,) = [claim for claim in l1.claims({"l1": summary}) if "not sparse" in claim.claim]
    assert claim.verdict == verdict


@pytest.mark.parametrize(
    ("fair", "other", "verdict"), [(200, 200, "agrees"), (105, 171, "open"), (160, 120, "open"), (105, 120, "differs")]
)
def test_every_penalty_counts_for_the_sparsity_of_saga(fair, other, verdict):
    """The solution has 100 non-zeros; SAGA `fair` at λ = 1e-3, and `other` at 3e-4, after fewer passes."""

    def models(counts):
        return [{"k": 0, "penalty": penalty, "nonzeros": n, "accuracy": 0.99} for penalty, n in counts.items()]

    by_method = {"optimum": models({1e-3: 100, 3e-4: 100}), "saga": models({1e-3: 300, 3e-4: other})}
    looks = [{"passes": passes, "nonzeros": n} for passes, n in ((20, 300), (l1.FAIR, fair))]
    summary = {
        "digits": "mnist",
        "passes": 20,
        "ink": {"0v9": 600},
        "models": {"0v9": by_method},
        "looks": {"0v9": looks},
    }
    (claim,) = [claim for claim in l1.claims({"l1": summary}) if "Stochastic" in claim.claim]
    assert claim.verdict == verdict
    assert f"{other / 100:.2f} at λ = 0.0003" in claim.ours


def test_small_digits_decide_nothing_about_mnist(run):
    found = [claim for figure in FIGURES for claim in figure.claims(run[1])]
    assert len(found) >= 10
    assert {claim.verdict for claim in found} == {"open"}
    assert all("8 × 8" in claim.reason for claim in found)
