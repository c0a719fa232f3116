"""The theory at the ends: numbers of any size, and flags that are none."""

from __future__ import annotations

import decimal
import itertools

import numpy as np
import pytest

from ksparse import theory


def test_numbers_beyond_floats_are_named():
    with pytest.raises(ValueError, match=r"K asks for k = inf here, which is beyond 2\^53; d bounds it"):
        theory.minimum_k(1e308, 4)
    assert theory.minimum_k(1e308, 4, 100) == theory.minimum_k(1e308, 4, 100, bound="jain") == 100
    for L, alpha in ((1e300, 2**63), (1e20, 1), (1e308, 1e-308)):
        with pytest.raises(ValueError, match=r"L / alpha = .* and K = 2 ask for a k beyond 2\^53"):
            theory.recipe(L, alpha, 2)
    for unit in (1e-308, 1e308):
        with pytest.raises(ValueError, match=r"L = .* rescale L and alpha"):
            theory.recipe(unit, unit, 2)
    assert theory.recipe(2e290, 1e290, 3)[1:3] == theory.recipe(2.0, 1.0, 3)[1:3]
    with pytest.raises(ValueError, match="L, alpha must be numbers, or arrays whose shapes broadcast"):
        theory.condition_number([1.0, 2.0], [1.0, 1.0, 1.0])
    with pytest.raises(ValueError, match="constant must be a number, got True"):
        theory.measurements("iht", 2, 1, 100, constant=True)


@pytest.mark.parametrize("power", [-1000, -600, 600, 1000])
def test_a_bound_on_vectors_of_any_size(power):
    b, x = np.random.default_rng(0).standard_normal((2, 3, 20))
    far = theory.deviation_bound(np.ldexp(b, power), np.ldexp(x, power), 5)
    np.testing.assert_allclose(np.ldexp(far, -power), theory.deviation_bound(b, x, 5), rtol=1e-14)


def test_data_of_any_size():
    A = np.random.default_rng(0).standard_normal((12, 6))
    for huge in (1e200 * A, 1e300 * A):
        for refuse in (theory.coherence, lambda A: theory.restricted_isometry(A, 2)):
            with pytest.raises(ValueError, match="A must have columns whose squared norm is a float; rescale them"):
                refuse(huge)
    assert theory.curvature(A, "logistic", 2, radius=1e308).alpha.upper == 0.0  # a prediction may be anything
    with pytest.raises(ValueError, match="exact must be True or False, got 'no'"):
        theory.curvature(A, "squared", 2, exact="no")


PRINTED = {
    "largest_nu": (0.1, 1.0, 0.5),
    "rate": (0.1, 100, 1.01, 1.0, 0.1),
    "tail": (1.0, 0.01, 100, 1.01, 1.0, 0.1, 1.0),
    "Q": (1.0, 0.01, 100, 1.01, 1.0, 0.1, 1.0),
    "minimum_m": (0.1, 1.01, 1.0, 0.1, 1.0),
    "recipe_tail": (1.0, 1.0, 0.5, 1.0),
    "objective_bound": (1, 1.0, 1.0, 1.0, 0.5, 1.0),
    "distance_bound": (1, 1.0, 1.0, 1.0, 0.5, 1.0),
    "noise_amplification": ("iht", 0.1, 4, 2, 100, "tight"),
}


@pytest.mark.parametrize("name", PRINTED)
def test_printed_is_a_flag(name):
    function = getattr(theory, name)
    assert function(*PRINTED[name], printed=np.True_) == function(*PRINTED[name], printed=True) > 0
    for bad in ("no", 1, None, np.nan):
        with pytest.raises(ValueError, match="printed must be True or False"):
            function(*PRINTED[name], printed=bad)


SIZES = [1e308, 1e300, 1e160, 1e20, 3.0, 1.0, 0.5, 1e-9, 1e-160, 1e-300]


def test_formulas_are_right_for_numbers_of_any_size():
    """Against sixty digits, with exponents that do not end; warnings are errors here."""
    digits = decimal.Context(prec=60, Emax=10**6, Emin=-(10**6))

    def check(got, want):
        assert got == pytest.approx(float(want) if want < 1.7e308 else np.inf, rel=1e-12)

    with decimal.localcontext(digits):
        for size in SIZES:
            r = decimal.Decimal(size)
            check(theory.nu_from_rho(size), 1 + (r + ((4 + r) * r).sqrt()) / 2)
            if size >= 1:
                check(theory.rho_from_nu(size), (r - 1) ** 2 / r)
            check(theory.cost(10, 10, 1.0, 1.0, min(size, 0.5)).ht_svrg, 110 * -min(r, decimal.Decimal("0.5")).ln())
        for L, alpha in itertools.product(SIZES, SIZES):
            if alpha > L:
                continue
            long, a = decimal.Decimal(L), decimal.Decimal(alpha)
            check(theory.condition_number(L, alpha), long / a)
            check(theory.pgd_rate(1.0, L, alpha), (long - a) / (long + a))
            check(theory.saga_rate(7, 1.0, L, alpha), 1 - a / (2 * (7 * a + long)))
            check(theory.largest_nu(1.0, L, alpha, printed=True), 4 * long / (4 * long - a))


def at_any_size(g, eta, m, nu, L, alpha, radius, printed):
    """The name of every formula with these letters, and its arguments."""
    return {
        "rate": (eta, m, nu, L, alpha, printed),
        "minimum_m": (eta, nu, L, alpha, 1.0, printed),
        "tail": (g, eta, m, nu, L, alpha, radius, printed),
        "Q": (g, eta, m, nu, L, alpha, radius, printed),
        "recipe_tail": (g, L, alpha, radius, printed),
        "distance_bound": (2, radius, g, L, alpha, radius, printed),
    }


def test_nothing_becomes_nan_or_negative_or_warns():
    rng, refused = np.random.default_rng(0), 0
    for turn in range(400):
        g, eta, m, nu, L, alpha, radius = (float(v) for v in rng.choice(SIZES, 7))
        for name, arguments in at_any_size(
            g, eta, max(m, 1), max(nu, 1), max(L, alpha), alpha, radius, turn % 2 > 0
        ).items():
            try:
                value = getattr(theory, name)(*arguments)
            except ValueError:
                refused += 1
                with pytest.raises(ValueError, match="are too far apart: the result leaves the range of floats"):
                    getattr(theory, name)(*arguments)
            else:
                assert value >= 0
    assert refused < 24  # one in a hundred, all beyond 1e150


def test_largest_k_takes_one_rate_and_one_constant():
    for name in ("rate", "constant"):
        with pytest.raises(ValueError, match=f"{name} must be a number"):
            theory.largest_k("iht", 2000, 4, 1000, **{name: np.array([0.3, 0.5])})
