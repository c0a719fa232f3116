"""Figures 4, 5 and the floor: trials, what they amount to, pictures and claims."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from ksparse._style import as_svg
from ksparse.paper import floor, parameters, small_steps
from ksparse.paper.histories import (
    OTHERS,
    STANDARD,
    as_powers,
    early_stages,
    even_stages,
    log_mean,
    logs_at,
    power,
    quantile,
)
from ksparse.paper.lab import Lab, write_summary
from ksparse.sensing.phase import Pool

FIGURES = (parameters, small_steps, floor)
SMALL = {
    "4": parameters.ParametersConfig(2, 60, k=(4, 36), m=(100, 300), steps=("spectral", "1", "3", "5", "8")),
    "5": small_steps.SmallStepsConfig(
        (
            small_steps.Sweep("3e-3", 3e-3, (3_000, 30_000), 30, 1),
            small_steps.Sweep(small_steps.LONG, small_steps.PAPER_ETA, (300,), 200, 1),
        )
    ),
    "floor": floor.FloorConfig(2, 20),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """All trials of small configurations: records and summaries, the latter as they come back from their files."""
    out = tmp_path_factory.mktemp("paper")
    lab = Lab("quick", out, Pool(1), verbose=False)
    records, summaries = {}, {}
    for figure in FIGURES:
        with lab.open(figure) as ledger:
            lab.collect(figure, figure.items(SMALL[figure.NUMBER]), ledger)
        records[figure.NUMBER] = list(lab.records(figure))
        path = out / "summary" / f"figure{figure.NUMBER}.json"
        write_summary(path, figure.summarise(iter(records[figure.NUMBER])))
        summaries[figure.NUMBER] = json.loads(path.read_text())
    return records, summaries


def claim(figure, summaries, words):
    return next(c for c in figure.claims(summaries) if words in c.claim)


# --- histories -------------------------------------------------------------------------------------------------------
def test_kept_stages_are_few_and_hold_the_ends():
    assert early_stages(1500)[:5] == [0, 1, 2, 3, 4]
    assert early_stages(1500)[-1] == even_stages(1500)[-1] == 1500
    assert len(early_stages(1500)) <= 61
    assert len(even_stages(30_000)) == 101
    assert even_stages(7) == list(range(8))


def test_logarithms():
    assert logs_at([1.0, 1e-3, math.inf], [0, 1, 2, 5]) == [0.0, -3.0, None]
    assert logs_at(np.array([0.123456]), [0], digits=6) == [-0.908488]


def test_log_mean_ends_with_the_first_history():
    assert log_mean([[0.0, -2.0, -4.0], [0.0, -4.0, None]]) == [0.0, -3.0, None]
    assert log_mean([]) == []


def test_quantile_counts_what_never_happened():
    assert quantile([3, 1, 2]) == 2
    assert quantile([1, 2]) == 1.5
    assert quantile([1, None, None]) is None
    assert quantile([1, 2, None]) == 2
    assert quantile([]) is None


def test_powers_of_ten_beyond_floats():
    assert power(55.2) == "10^55"
    assert power(None) == "beyond floats"
    drawn = as_powers([None, 2.0, 400.0])
    assert math.isnan(drawn[0])
    assert drawn[1:] == [100.0, 1e300]


def test_curves_can_be_told_apart():
    """No two curves of a panel share colour and dashes, whatever the preset."""
    assert len({str(style) for style in (*OTHERS, STANDARD)}) == len(OTHERS) + 1
    for config in parameters.CONFIG.values():
        assert max(map(len, (config.k, config.m, config.steps))) <= len(OTHERS) + 1
    for config in small_steps.CONFIG.values():
        assert max(len(sweep.m) for sweep in config.sweeps) <= len(OTHERS)
    for config in floor.CONFIG.values():
        assert len(config.steps) <= len(floor.GREYS) == len(set(zip(floor.GREYS, floor.DASHES, strict=True)))


# --- what all three share --------------------------------------------------------------------------------------------
@pytest.mark.parametrize("figure", FIGURES, ids=lambda f: f.NUMBER)
def test_presets_have_distinct_plain_keys(figure):
    assert set(figure.CONFIG) == {"quick", "standard", "full"}
    sizes = []
    for config in figure.CONFIG.values():
        items = figure.items(config)
        keys = [tuple(item[name] for name in figure.KEY) for item in items]
        assert len(set(keys)) == len(keys)
        assert len({tuple(map(type, key)) for key in keys}) == 1
        assert keys == sorted(keys), "a sorted file must not change the order of an undisturbed run"
        sizes.append(len(items))
    assert sizes == sorted(sizes)


@pytest.mark.parametrize("figure", FIGURES, ids=lambda f: f.NUMBER)
def test_a_trial_depends_on_seed_and_item_alone(figure, made):
    records, _ = made
    for record in records[figure.NUMBER][-1], records[figure.NUMBER][0]:
        item = {name: record[name] for name in figure.KEY}
        assert {**record, **figure.trial(seed=0, **item)} == record
        assert {**record, **figure.trial(seed=1, **item)} != record


@pytest.mark.parametrize("figure", FIGURES, ids=lambda f: f.NUMBER)
def test_records_are_small_and_json(figure, made):
    for record in made[0][figure.NUMBER]:
        assert len(json.dumps(record, allow_nan=False)) < 2000


@pytest.mark.parametrize("figure", FIGURES, ids=lambda f: f.NUMBER)
def test_pictures_and_claims_need_summaries_alone(figure, made, monkeypatch):
    monkeypatch.setattr(figure, "minimize", None)
    assert figure.plot({}) == {}
    assert figure.claims({}) == []
    assert figure.summarise([]) == {}
    assert figure.plot({figure.NUMBER: {}}) == {}
    for name, ax in figure.plot(made[1]).items():
        assert ax.get_xlabel(), name
        assert ax.get_ylabel(), name
        assert len(ax.lines) >= 1
        assert as_svg(ax).startswith(b"<?xml")
    for claim in figure.claims(made[1]):
        assert claim.ours
        assert "nan" not in claim.ours
        assert claim.verdict == "agrees" or claim.reason


@pytest.mark.parametrize("figure", FIGURES, ids=lambda f: f.NUMBER)
def test_a_run_that_is_not_finished_is_drawn_too(figure, made):
    part = {figure.NUMBER: figure.summarise(made[0][figure.NUMBER][:1])}
    assert figure.plot(part)
    figure.claims(part)


def test_no_path_of_a_machine_in_the_sources():
    for figure in FIGURES:
        assert "/work" not in Path(figure.__file__).read_text()


# --- figure 4 --------------------------------------------------------------------------------------------------------
def setting(summary, **wanted):
    return next(s for s in summary["settings"] if all(s[name] == value for name, value in wanted.items()))


def test_the_step_is_the_papers(made):
    standard = setting(made[1]["4"], k=36, m=300, step="spectral")
    A = parameters.problem(100, 4, 0, seed=0).A
    assert standard["eta"] == pytest.approx(2 / np.linalg.norm(A, 2) ** 2, rel=1e-3)
    rows = np.sort(A**2, axis=1)[:, ::-1][:, : 3 * 36 + 4].sum(axis=1)
    assert made[1]["4"]["covered"] == pytest.approx(1 / (4 * rows.max()), rel=1e-3)


def test_large_steps_diverge_and_are_told(made):
    records, summaries = made
    for record in records["4"]:
        assert record["diverged"] == (record["step"] in ("3", "5", "8"))
        if record["step"] == "8":
            assert record["beyond"] <= 3
            assert not record["success"]
            assert record["error"] is None
    five = setting(summaries["4"], step="5")
    assert five["beyond"] > 3
    assert five["mean_over"] == "failures"
    assert 40 < five["after_three"] < 80
    assert claim(parameters, summaries, "divergence").verdict == "agrees"
    found = claim(parameters, summaries, "how fast")
    assert found.verdict == "differs"
    assert f"exceeds 1e120 after {five['beyond']:.0f} stages" in found.reason


def made_up(successes, history, **other):
    """Records of one setting, of which so many succeed."""
    base = {"seed": 0, "k": 36, "m": 300, "step": "spectral", "stages": 3, "eta": 0.3, "error": 0.0, "beyond": None}
    base |= {"diverged": False, "ended": 3, "settled": 2, "last": -9.0} | other
    return [
        {**base, "trial": t, "success": t < successes, "history": history if t < successes else [0.0] * 4}
        for t in range(20)
    ]


@pytest.mark.parametrize(("successes", "over", "last"), [(20, "successes", -6.0), (19, "failures", 0.0)])
def test_the_mean_is_over_successes_above_95_per_cent_only(successes, over, last):
    summary = parameters.summarise(made_up(successes, [0.0, -2.0, -4.0, -6.0]))
    (only,) = summary["settings"]
    assert only["mean_over"] == over
    assert only["history"][-1] == last


def test_a_run_that_ended_stays_or_is_off_the_scale():
    (small,) = parameters.summarise(made_up(20, [0.0, -5.0]))["settings"]
    assert small["history"] == [0.0, -5.0, -9.0, -9.0]
    (large,) = parameters.summarise(made_up(0, [], diverged=True, beyond=1))["settings"]
    assert large["history"][-1] == 0.0  # the made-up failures have whole histories
    (cut,) = parameters.summarise([{**r, "history": [0.0, 50.0]} for r in made_up(0, [], diverged=True)])["settings"]
    assert cut["history"] == [0.0, 50.0, None, None]


@pytest.mark.parametrize(
    ("at_k", "usual", "verdict"), [(2, 20, "agrees"), (20, 20, "open"), (15, 20, "open"), (20, 2, "differs")]
)
def test_verdict_on_k(at_k, usual, verdict):
    records = made_up(at_k, [0.0] * 4, k=4) + made_up(usual, [0.0] * 4)
    assert claim(parameters, {"4": parameters.summarise(records)}, "larger than K").verdict == verdict


@pytest.mark.parametrize(
    ("slow", "fast", "stages", "gradients"),
    [(900, 100, "agrees", "agrees"), (200, 100, "agrees", "differs"), (90, 100, "differs", "differs")],
)
def test_verdicts_on_m(slow, fast, stages, gradients):
    records = made_up(20, [0.0] * 4, m=50, settled=slow) + made_up(20, [0.0] * 4, settled=fast)
    summaries = {"4": parameters.summarise(records)}
    assert claim(parameters, summaries, "in stages").verdict == stages
    assert claim(parameters, summaries, "full gradients").verdict == gradients
    unknown = made_up(20, [0.0] * 4, m=50, settled=None) + made_up(20, [0.0] * 4)
    assert claim(parameters, {"4": parameters.summarise(unknown)}, "in stages").verdict == "open"


# --- figure 5 --------------------------------------------------------------------------------------------------------
def test_small_steps_follow_the_flow(made):
    """Where nothing is thrown out any more the slope is that of the slowest direction."""
    curve = max((c for c in made[1]["5"]["curves"] if c["panel"] == "3e-3"), key=lambda c: c["m"])
    assert curve["straight"] > 0.99
    assert curve["rate"] == pytest.approx(1, abs=0.3)


def falling(slopes, eta=3e-5, m=1000, stages=100, panel="3e-5", success=True):
    """A record whose objective falls with these shares of the final slope, one after the other."""
    final = -2 * eta * 0.1 * m / small_steps.N / math.log(10)
    steps = np.repeat(slopes, 100 // len(slopes)) * final * stages / 100
    history = [0.0, *np.cumsum(steps).tolist()]
    return {
        "seed": 0, "panel": panel, "eta": eta, "m": m, "stages": stages, "trial": 0, "error": 0.0, "success": success,
        "eigenvalue": 0.1, "early": None, "history": history,
    }  # fmt: skip


def test_where_a_line_begins():
    (curve,) = small_steps.summarise([falling([4.0, 1.0])])["curves"]
    assert curve["straight_from"] == 50
    assert curve["straight"] == pytest.approx(1, abs=1e-6)
    assert curve["rate"] == pytest.approx(1, abs=1e-3)
    (never,) = small_steps.summarise([falling([4.0, 2.0])])["curves"]
    assert never["straight_from"] is None
    assert never["rate"] == pytest.approx(2, abs=1e-3)


@pytest.mark.parametrize(
    ("slopes", "success", "verdict", "rate"),
    [
        ([4.0, 1.0], True, "agrees", "agrees"),
        ([4.0, 1.0], False, "open", "agrees"),
        ([4.0, 2.0], True, "agrees", "open"),
        ([1.0, 1.0, 50.0, 1.0], True, "agrees", "differs"),
    ],
)
def test_verdicts_on_small_steps(slopes, success, verdict, rate):
    summaries = {"5": small_steps.summarise([falling(slopes, success=success)])}
    assert claim(small_steps, summaries, "large enough").verdict == verdict
    assert claim(small_steps, summaries, "geometric").verdict == rate


def test_steps_that_get_stuck_are_a_difference():
    summaries = {"5": small_steps.summarise([falling([4.0, 0.0], success=False)])}
    found = claim(small_steps, summaries, "large enough")
    assert found.verdict == "differs"
    assert "no longer falls at η = 3e-05" in found.reason


def test_values_of_m_are_compared_at_the_same_number_of_steps():
    same = [falling([1.0], m=m) for m in (1_000, 4_000)]
    assert "factor of 1 between" in claim(small_steps, {"5": small_steps.summarise(same)}, "large enough").reason
    other = [falling([2.0], m=1_000, stages=10_000), falling([1.0], m=4_000, stages=10_000)]
    gap = 10 ** (2 * 3e-5 * 0.1 * 1000 * 10_000 / 100 / math.log(10))
    text = claim(small_steps, {"5": small_steps.summarise(other)}, "large enough").reason
    assert f"factor of {gap:.2g} between" in text


def test_a_slope_met_just_before_the_end_is_not_the_beginning_of_a_line():
    (curve,) = small_steps.summarise([falling([4.0, 4.0, 4.0, 4.0, 1.0])])["curves"]
    assert curve["straight_from"] is None


@pytest.mark.parametrize(
    ("slopes", "verdict", "text"),
    [
        ([[4.0, 1.0, 1.0, 1.0]], "agrees", "it holds for stages"),
        ([[4.0]], "differs", "holds for no m"),
        ([[4.0, 1.0, 1.0, 1.0], [4.0]], "open", "it holds for stages"),
    ],
)
def test_verdict_on_the_smallest_step(slopes, verdict, text):
    runs = [
        falling(one, m=m, stages=40_000, panel=small_steps.LONG) for m, one in zip((300, 500), slopes, strict=False)
    ]
    found = claim(small_steps, {"5": small_steps.summarise(runs)}, "3e-5")
    assert found.verdict == verdict
    assert text in found.reason
    short = {"5": small_steps.summarise([falling(slopes[0], stages=1000, panel=small_steps.LONG)])}
    assert "too short" in claim(small_steps, short, "3e-5").reason


# --- the floor -------------------------------------------------------------------------------------------------------
def test_a_floor_with_noise_and_none_without(made):
    curves = {(c["noisy"], c["method"], c["step"]): c for c in made[1]["floor"]["curves"]}
    floors = [curves[True, "stoiht", step]["fit_floor"] for step in (8.0, 2.0, 0.5)]
    assert floors == sorted(floors, reverse=True)
    assert min(floors) > -4
    assert curves[True, "ht-svrg", 2.0]["fit_floor"] < -10
    assert curves[False, "stoiht", 8.0]["truth_floor"] < -10
    oracle = curves[True, "ht-svrg", 2.0]["oracle"]
    assert oracle < 10 ** curves[True, "ht-svrg", 2.0]["truth_floor"] < 10 * oracle
    assert claim(floor, made[1], "an error stays").verdict == "agrees"


def test_both_methods_have_the_same_gradients(made):
    ends = {c["passes"][-1] for c in made[1]["floor"]["curves"]}
    assert ends == {20 * floor.PASSES_A_STAGE}
    for curve in made[1]["floor"]["curves"]:
        assert len(curve["passes"]) == len(curve["truth"]) == len(curve["fit"])


@pytest.mark.parametrize(("last", "verdict"), [(-2.0, "differs"), (-3.0, "open")])
def test_verdict_on_the_floor_can_fail(made, last, verdict):
    """An error of HT-SVRG that stays is a difference; one that still falls says nothing yet."""
    curves = [dict(c) for c in made[1]["floor"]["curves"]]
    for curve in curves:
        if curve["method"] == "ht-svrg":
            curve |= {"fit_floor": -2.0, "fit": [0.0, -1.0, last]}
    assert claim(floor, {"floor": {"curves": curves}}, "an error stays").verdict == verdict
