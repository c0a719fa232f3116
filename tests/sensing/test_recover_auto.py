"""recover's default: a bound on K is enough, with and without noise, for every kind of A."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.sparse.linalg import aslinearoperator

from ksparse import recover
from ksparse.sensing import auto, ensembles, operators, signals
from ksparse.sensing.auto import Removal, Sizes, affordable, remove
from ksparse.sensing.matrix_system import Matrix


def error(x, truth):
    return np.linalg.norm(x - truth) / np.linalg.norm(truth)


def gaussian(rng, *shape, dtype=float):
    z = rng.standard_normal(shape)
    return (z + 1j * rng.standard_normal(shape)) / np.sqrt(2) if dtype is complex else z


def problem(seed, n, d, K, dtype=float, noise=0.0):
    rng = np.random.default_rng(seed)
    A = gaussian(rng, n, d, dtype=dtype) / np.sqrt(n)
    x = signals.gaussian(d, K, random_state=rng, dtype=dtype)
    return A, A @ x + noise * gaussian(rng, n, dtype=dtype), x


def on_truth(A, y, x):
    """Least squares by one who knows the support."""
    best = np.zeros_like(x)
    best[x != 0] = np.linalg.lstsq(A[:, x != 0], y, rcond=None)[0]
    return best


@pytest.mark.parametrize("dtype", [float, complex])
@pytest.mark.parametrize("times", [1, 2, 4, 8])
def test_a_bound_is_enough(times, dtype):
    for seed in range(4):
        A, y, x = problem(seed, 100, 256, 12, dtype)
        found = recover(A, y, 12 * times)
        assert found.converged
        assert np.array_equal(found.support, np.flatnonzero(x))
        assert error(found.x, x) < 1e-10


def test_fewer_measurements_than_a_pursuit_that_is_told_K():
    # where subspace pursuit, told K, finds hardly any (±1 is what pursuits like least), reweighting finds all
    n, d, K = 72, 256, 16
    hits = np.zeros(2, int)
    for seed in range(6):
        A = ensembles.gaussian(n, d, random_state=seed)
        x = signals.sign(d, K, random_state=seed + 50)
        hits += [error(recover(A, A @ x, k, algorithm=name).x, x) < 1e-3 for name, k in (("auto", 4 * K), ("sp", K))]
    assert hits[0] == 6
    assert hits[1] <= 3


@pytest.mark.parametrize("dtype", [float, complex])
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("K", [1, 4, 16])
def test_noise(K, known, dtype):
    for seed in range(3):
        rng = np.random.default_rng(seed)
        A = gaussian(rng, 128, 256, dtype=dtype) / np.sqrt(128)
        x = signals.sign(256, K, random_state=rng, dtype=dtype)
        y = A @ x + 0.1 * gaussian(rng, 128, dtype=dtype)
        found = recover(A, y, 64, noise=0.1 if known else None)
        assert np.isin(np.flatnonzero(x), found.support).all()
        assert found.support.size <= K + 1
        assert np.allclose(found.x, on_truth(A, y, found.x))  # least squares on what it chose


@pytest.mark.parametrize("dtype", [float, complex])
def test_half_as_far_off_as_a_pursuit_with_the_same_bound(dtype):
    errors = np.zeros((6, 3))
    for seed in range(6):
        A, y, x = problem(seed, 128, 256, 16, dtype, noise=0.03)
        found = [recover(A, y, k, algorithm=name).x for name, k in (("auto", 64), ("sp", 64), ("sp", 16))]
        errors[seed] = [error(z, x) for z in found]
    told_bound, told_K = np.median(errors[:, 1:], axis=0)
    assert np.median(errors[:, 0]) < 0.5 * told_bound
    assert np.median(errors[:, 0]) < 1.1 * told_K


@pytest.mark.parametrize("noise", [None, 1.0])
def test_nothing_but_noise_has_no_support(noise):
    sizes = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        sizes.append(recover(gaussian(rng, 64, 256), gaussian(rng, 64), 16, noise=noise).support.size)
    assert np.median(sizes) == 0
    assert max(sizes) <= 1


@pytest.mark.filterwarnings("ignore:k = 1 is not below")
def test_the_smallest_problems():
    A, y, x = problem(0, 40, 256, 1, noise=0.01)
    assert np.array_equal(recover(A, y, 20).support, np.flatnonzero(x))
    assert recover(A, np.zeros(40), 20).support.size == 0
    assert recover(np.ones((1, 1)), [2.0], 1).x == pytest.approx([2.0])


@pytest.mark.parametrize("kind", [np.asarray, aslinearoperator])
@pytest.mark.parametrize("share", [0.1, 0.3])
def test_a_residual_is_met_with_few_columns(share, kind):
    A, y, _ = problem(3, 100, 256, 20)
    found = recover(kind(A), y, 40, residual=share * np.linalg.norm(y))
    assert 0.2 * share * np.linalg.norm(y) < found.residual <= share * np.linalg.norm(y)
    assert found.support.size < 20


@pytest.mark.parametrize("kind", [np.asarray, csr_array, aslinearoperator])
def test_small_coefficients_are_not_dropped(kind):
    A, _, x = problem(5, 120, 256, 10)
    x[np.flatnonzero(x)[:3]] = 1e-5, -1e-7, 1e-8
    found = recover(kind(A), A @ x, 30)
    assert np.array_equal(found.support, np.flatnonzero(x))
    assert error(found.x, x) < 1e-10


@pytest.mark.parametrize("kind", [np.asarray, csr_array, aslinearoperator])
@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_together_is_one_by_one(kind, noise):
    rng = np.random.default_rng(1)
    A = gaussian(rng, 90, 200) / np.sqrt(90)
    X = np.stack([signals.gaussian(200, K, random_state=rng) for K in (3, 9, 14)], axis=1)
    Y = A @ X + noise * gaussian(rng, 90, 3)
    together = recover(kind(A), Y, 30)
    for column, y in zip(together.x.T, Y.T, strict=True):
        assert np.allclose(column, recover(kind(A), y, 30).x, atol=1e-3 * noise + 1e-10)
    if not noise:
        assert np.allclose(together.x, X)


def test_a_shared_support_needs_fewer_measurements():
    # 14 non-zeros and 32 measurements: hopeless for one signal, easy for six that share them
    rng = np.random.default_rng(2)
    A = gaussian(rng, 32, 200) / np.sqrt(32)
    X = np.zeros((200, 6))
    X[rng.choice(200, 14, replace=False)] = gaussian(rng, 14, 6)
    found = recover(A, A @ X, 16, joint=True)
    assert np.array_equal(found.support, np.flatnonzero(X[:, 0]))
    assert np.allclose(found.x, X)


@pytest.mark.parametrize("noise", [0.0, 0.005])
def test_an_operator_in_few_products(noise):
    n, d, K = 2**11, 2**14, 20
    A = operators.partial_fourier(n, d, random_state=0)
    x = signals.gaussian(d, K, random_state=1, dtype=complex)
    y = A @ x + noise * gaussian(np.random.default_rng(2), n, dtype=complex)
    found = recover(A, y, 4 * K)
    assert found.products <= 70
    assert error(found.x, x) < (0.01 if noise else 1e-10)
    if not noise:
        assert np.array_equal(found.support, np.flatnonzero(x))


def test_pure_noise_through_an_operator():
    A = operators.partial_dct(256, 1024, random_state=0)
    assert recover(A, gaussian(np.random.default_rng(1), 256), 20).support.size == 0


def test_a_hard_operator_is_led_along_the_path():
    A = operators.partial_dct(100, 256, random_state=3)
    x = signals.gaussian(256, 22, random_state=4)
    found = recover(A, A @ x, 50)
    assert np.array_equal(found.support, np.flatnonzero(x))


def test_callback_and_time_limit_leave_the_best_so_far():
    A, y, _ = problem(0, 60, 256, 25)
    seen = []
    stopped = recover(A, y, 50, callback=lambda progress: seen.append(progress.objective) or len(seen) == 3)
    assert stopped.status == "stopped"
    assert stopped.n_stages == 3
    assert stopped.objective <= 0.5 * y @ y / 60
    assert recover(A, y, 50, max_time=1e-9).status == "time limit"


# --- the parts ----------------------------------------------------------------------------------------------------
def test_removal_is_backward_elimination():
    A, y, _ = problem(7, 30, 40, 5, complex, noise=0.3)
    system = Matrix(A, y[np.newaxis, np.newaxis], lambda: None)
    columns = np.array([2, 3, 11, 17, 25, 30, 39])
    [point] = system.fit(system.start(), [columns])
    removal = remove(system, point, system.start()[0].misfit)

    def rest(some):
        some = list(some)
        return np.linalg.norm(y - A[:, some] @ np.linalg.lstsq(A[:, some], y, rcond=None)[0]) ** 2

    left = set(columns.tolist())
    for size in range(7, 0, -1):
        assert removal.squares[size] == pytest.approx(rest(left))
        assert set(removal.left(size).tolist()) == left
        left.remove(min(left, key=lambda j: rest(left - {j})))
    assert removal.squares[0] == pytest.approx(np.linalg.norm(y) ** 2)


def test_the_criterion_counts_choices():
    A, y, _ = problem(0, 30, 40, 5)
    sizes = Sizes(Matrix(A, y[np.newaxis, np.newaxis], lambda: None), 0.5)
    assert sizes.cost(3, 6.0) == pytest.approx([0.0, 2 * np.log(40) + 6, 2 * np.log(780) + 12])
    # a second column costs 2 log 19.5 + 6 = 11.94 times the noise
    for square, columns in ((1.0, [4, 7]), (1.1, [4])):
        sizes.seen = [
            Removal(np.array([7, 3]), np.array([60.0, 8.0, 7.5])),
            Removal(np.array([4]), np.array([60.0, 7.0])),
        ]
        sizes.seen.append(Removal(np.array([7, 4]), np.array([60.0, 9.0, square])))
        assert sizes.best().tolist() == columns


def test_rungs_and_reach():
    assert auto.rungs(1) == [1]
    assert auto.rungs(20) == [1, 2, 3, 5, 8, 12, 18, 20]
    assert auto.rungs(640)[0] == 10
    cases = ((5, 100, 300), (80, 100, 300), (3, 1, 9), (55, 100, 60))
    assert [auto.most(*case) for case in cases] == [5, 50, 1, 55]
    system = Matrix(np.ones((10, 20)), np.ones((1, 1, 10)), lambda: None)
    assert affordable(system)
    system.n, system.d = 2560, 10240
    assert not affordable(system)


@pytest.mark.parametrize("times", [1, 4])
@pytest.mark.parametrize("seed", range(3))
def test_columns_of_different_norms_and_columns_that_are_alike(seed, times):
    """Where pursuits compare what is not comparable, or take a column for its neighbour."""
    rng = np.random.default_rng(seed)
    uneven = rng.standard_normal((64, 256)) * 10.0 ** rng.uniform(0.0, 1.5, 256)
    alike = ensembles.correlated(80, 256, rho=0.99, random_state=seed)
    for A in (uneven, csr_array(uneven), alike):
        x = signals.gaussian(256, 8, random_state=seed)
        found = recover(A, A @ x, 8 * times)
        np.testing.assert_allclose(found.x, x, atol=1e-6)
        np.testing.assert_allclose(found.residual, np.linalg.norm(A @ x - A @ found.x), atol=1e-9)
    y = alike @ x + 1e-4 * rng.standard_normal(80)
    known = recover(alike, y, 8 * times, noise=1e-4)
    assert known.residual < 2e-4 * np.sqrt(80)  # no more is left than noise


def test_more_measurements_than_unknowns():
    A, x = ensembles.gaussian(100, 60, random_state=0), signals.gaussian(60, 55, random_state=1)
    np.testing.assert_allclose(recover(A, A @ x, 58).x, x, atol=1e-9)
