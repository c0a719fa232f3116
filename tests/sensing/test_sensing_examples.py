"""The examples of compressed sensing, small: what their pictures claim is so."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

pytest.importorskip("matplotlib", reason="figures need the report extra")

FOLDER = Path(__file__).parents[2] / "examples"


def run(name, *argv):
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.main(list(map(str, argv)))


def test_a_head_from_half_of_its_frequencies(tmp_path):
    pytest.importorskip("pywt", reason="wavelets need the sensing extra")
    out = tmp_path / "new" / "head.png"
    errors = run("mri_phantom", "--size", 64, "--share", 0.55, "--out", out)
    assert errors["ksparse"] < -100  # exact, up to the rounding of the solver
    assert -20 < errors["zero-filled"] < -5
    assert out.stat().st_size > 10_000


def test_a_heart_in_mains_hum_from_a_third_of_its_samples(tmp_path):
    out = tmp_path / "heart.svg"
    errors = run("ecg", "--size", 1024, "--out", out)
    assert errors["ksparse"] < min(errors["linear"], errors["cubic"]) - 7
    assert errors["ksparse"] < -17
    assert errors["without hum"] < -17
    assert f"−{-errors['ksparse']:.0f} dB" in "".join(re.findall(r"<text[^>]*>([^<]+)<", out.read_text()))


def test_many_signals_at_once(tmp_path):
    out = tmp_path / "many.png"
    found = run("many_signals", "--size", 256, "--signals", 8, "--out", out)
    assert found["together"] == found["alone"] == 1
    assert found["joint"] <= 4 * 256 // 32  # so few measurements suffice if all share their non-zeros
    assert found["apart"] < 0.5  # and do not otherwise
    assert out.stat().st_size > 10_000
