"""Recovery: every algorithm is the textbook's, whatever A is made of, and bad input is named."""

from __future__ import annotations

import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import oracle
import pursuits
import pytest
from scipy import sparse
from scipy.optimize import linprog
from scipy.sparse.linalg import LinearOperator, aslinearoperator
from sklearn.linear_model import orthogonal_mp

import ksparse
from ksparse import HTP, IHT, NIHT, OMP, OMPR, PGD, ROMP, CoSaMP, GraHTP, GraSP, SubspacePursuit, minimize, recover
from ksparse._threads import blas_threads
from ksparse.sensing import ensembles, signals

ALL = ("auto", "iht", "niht", "pgd", "htp", "cosamp", "sp", "omp", "romp", "ompr", "grasp", "grahtp", "stoiht",
       "ht-svrg", "ht-saga", "bp", "lasso", "dantzig")  # fmt: skip
SAMPLED = ("stoiht", "ht-svrg", "ht-saga")  # they draw rows: real arrays and sparse matrices only
ROUGH = 1e-5  # of fits by conjugate gradients
GREEDY = ("niht", "htp", "cosamp", "sp", "omp", "romp", "ompr", "grasp", "grahtp")


def problem(n=60, d=128, K=6, *, noise=0.0, complex_=False, signals=None, uneven=False, seed=0):
    """Gaussian A with columns of norm about one (uneven: between ½ and 2), entries of at least ½; A, y and x."""
    rng = np.random.default_rng(seed)

    def normal(*shape):
        return rng.standard_normal(shape) + (1j * rng.standard_normal(shape) if complex_ else 0)

    A = normal(n, d) / np.sqrt(n * (2 if complex_ else 1))
    if uneven:
        A = A * rng.uniform(0.5, 2.0, d)
    more = () if signals is None else (signals,)
    x = np.zeros((d, *more), A.dtype)
    for column in x.reshape(d, -1).T:
        values = normal(K)
        column[rng.choice(d, K, replace=False)] = values * (1 + 0.5 / np.abs(values))
    return A, A @ x + noise * normal(n, *more) / np.sqrt(n), x


PROBLEMS = {
    "exact": {},
    "noisy": {"n": 80, "noise": 0.2, "seed": 1},
    "complex": {"complex_": True, "seed": 2},
    "complex, noisy": {"complex_": True, "noise": 0.2, "seed": 3},
    "uneven": {"n": 90, "uneven": True, "noise": 0.1, "seed": 4},
    "tall": {"n": 150, "d": 60, "noise": 0.5, "seed": 5},
    "tiny": {"n": 12, "d": 8, "K": 2, "noise": 0.1, "seed": 6},
}
# what we run (given n), and the textbook's version of it
PAIRS = {
    "iht": (lambda n: IHT(iterations=5000, tol=0), pursuits.iht),
    "niht": (lambda n: NIHT(iterations=5000, tol=1e-15), pursuits.niht),
    "pgd": (
        lambda n: PGD(step="spectral", iterations=5000, tol=0),
        lambda A, y, k: pursuits.pgd(A, y, k, 2 / np.linalg.norm(A, 2) ** 2),
    ),
    "htp": (lambda n: HTP(), pursuits.htp),
    "htp, unit step": (lambda n: HTP(step=n), lambda A, y, k: pursuits.htp(A, y, k, 1.0)),
    "grahtp": (lambda n: GraHTP(step=0.5 * n), lambda A, y, k: pursuits.htp(A, y, k, 0.5)),
    "cosamp": (lambda n: CoSaMP(), pursuits.cosamp),
    "cosamp, k": (lambda n: CoSaMP(select=1), lambda A, y, k: pursuits.cosamp(A, y, k, select=1)),
    "cosamp, refit": (lambda n: CoSaMP(refit=True), lambda A, y, k: pursuits.cosamp(A, y, k, refit=True)),
    "grasp": (lambda n: GraSP(), pursuits.cosamp),
    "sp": (lambda n: SubspacePursuit(), pursuits.subspace_pursuit),
    "omp": (lambda n: OMP(), pursuits.omp),
    "romp": (lambda n: ROMP(), pursuits.romp),
    "ompr": (lambda n: OMPR(), pursuits.ompr),
    "ompr, fixed step": (lambda n: OMPR(step=0.7 * n), lambda A, y, k: pursuits.ompr(A, y, k, 0.7)),
}


def close(x, z, tol=1e-8):
    """The same support, and the same numbers beside the largest."""
    np.testing.assert_array_equal(x != 0, z != 0)
    np.testing.assert_allclose(x, z, rtol=0, atol=tol * np.max(np.abs(z), initial=1e-300))


# --- the textbook's --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("kind", ["exact", "complex"])
def test_the_oracles_recover(name, kind):
    A, y, x = problem(**PROBLEMS[kind])
    A, y = (A / 2, y / 2) if name == "iht" else (A, y)  # the unit step is too long for a wide matrix
    np.testing.assert_allclose(PAIRS[name][1](A, y, 6), x, atol=1e-9)


@pytest.mark.parametrize("kind", PROBLEMS)
@pytest.mark.parametrize("name", PAIRS)
def test_as_in_the_textbook(name, kind):
    A, y, x = problem(**PROBLEMS[kind])
    k = np.count_nonzero(x)
    scale = np.linalg.norm(A, 2) if name == "iht" else 1.0  # where the unit step converges
    ours, theirs = PAIRS[name]
    result = recover(A / scale, y, k, algorithm=ours(len(y)))
    close(result.x, theirs(A / scale, y, k), 1e-6 if name in ("iht", "niht") else 1e-8)  # these end slowly
    np.testing.assert_array_equal(result.support, np.flatnonzero(result.x))
    np.testing.assert_allclose(result.residual, np.linalg.norm(y - A @ result.x / scale), atol=1e-12)
    np.testing.assert_allclose(result.objective, result.residual**2 / (2 * len(y)), atol=1e-24)
    assert result.products > 0


@pytest.mark.parametrize("k", [3, 6, 12])
def test_omp_is_scikit_learns(k):
    A, y, _ = problem(n=80, noise=0.3, seed=7)
    close(recover(A, y, k, algorithm="omp").x, orthogonal_mp(A, y, n_nonzero_coefs=k))


@pytest.mark.parametrize("name", ALL)
def test_every_name_recovers(name):
    A, y, x = problem(n=100, d=80, K=3, seed=8)
    scale = np.linalg.norm(A, 2) if name == "iht" else 1.0
    result = recover(A / scale, y / scale, 3, algorithm=name, random_state=0)
    assert result.algorithm == name
    np.testing.assert_array_equal(result.support, np.flatnonzero(x))
    # the convex ones shrink, stochastic steps end early
    np.testing.assert_allclose(result.x, x, atol=1e-2 if name in (*SAMPLED, "lasso", "dantzig") else 1e-3)


@pytest.mark.filterwarnings("ignore:k = 30:UserWarning")
def test_convex_programs_are_solved():
    """With all entries kept: by duality, by the conditions of optimality, and beside each other."""
    A, y, _ = problem(n=20, d=30, K=5, noise=0.5, seed=9)
    bp = recover(A, y, 30, algorithm="bp").x
    np.testing.assert_allclose(A @ bp, y, atol=1e-8)
    dual = linprog(-y, A_ub=np.vstack([A.T, -A.T]), b_ub=np.ones(60), bounds=(None, None))
    np.testing.assert_allclose(np.abs(bp).sum(), -dual.fun)

    noise = 0.1
    penalty = noise * np.sqrt(2 * np.log(30)) * np.linalg.norm(A, axis=0).max()
    lasso = recover(A, y, 30, algorithm="lasso", noise=noise).x
    slopes = A.T @ (y - A @ lasso)
    np.testing.assert_allclose(slopes[lasso != 0], penalty * np.sign(lasso[lasso != 0]), rtol=1e-3)
    assert np.abs(slopes).max() <= penalty * (1 + 1e-3)

    dantzig = recover(A, y, 30, algorithm="dantzig", noise=noise).x
    assert np.abs(A.T @ (y - A @ dantzig)).max() <= penalty * (1 + 1e-6)
    assert np.abs(dantzig).sum() <= np.abs(lasso).sum() * (1 + 1e-3)  # the Lasso's x is one of its candidates


# --- what A is made of -----------------------------------------------------------------------------------------------
LAYOUTS = {
    "fortran": np.asfortranarray,
    "every second column": lambda A: np.repeat(A, 2, axis=1)[:, ::2],
    "csr": sparse.csr_array,
    "csc": sparse.csc_array,
    "coo matrix": sparse.coo_matrix,
    "operator": aslinearoperator,
    "list": lambda A: A.tolist(),
}


def thin(**settings):
    """A problem whose A has zeros, so that sparse layouts are sparse."""
    A, _, x = problem(**settings)
    A = np.where(np.random.default_rng(9).random(A.shape) < 0.5, A, 0)
    return A, A @ x, x


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("complex_", [False, True])
@pytest.mark.parametrize("name", ["auto", "pgd", *GREEDY])
def test_layouts_agree(name, layout, complex_):
    A, y, _ = thin(n=80, complex_=complex_, seed=10)
    y = y + 0.02 * np.random.default_rng(0).standard_normal(80)
    dense, other = (recover(B, y, 6, algorithm=name) for B in (A, LAYOUTS[layout](A)))
    close(other.x, dense.x, ROUGH if (name, layout) == ("auto", "operator") else 1e-6)


@pytest.mark.parametrize("name", ["auto", *GREEDY])
def test_single_precision(name):
    A, y, _ = problem(n=80, noise=0.1, seed=11)
    A, y = A.astype(np.float32), y.astype(np.float32)
    whole = recover(A.astype(float), y.astype(float), 6, algorithm=name)
    half = recover(A, y, 6, algorithm=name)
    np.testing.assert_array_equal(half.support, whole.support)
    np.testing.assert_allclose(half.x, whole.x, atol=1e-4)


@pytest.mark.parametrize("name", ["omp", "htp", "sp", "cosamp"])
def test_complex_is_the_real_embedding_with_pairs_of_columns(name):
    A, y, _ = problem(complex_=True, noise=0.2, seed=12)
    pair = PAIRS[name][1](*pursuits.embed(A, y), 6, choose=pursuits.pairs)
    close(recover(A, y, 6, algorithm=name).x, pair[:128] + 1j * pair[128:])


@pytest.mark.parametrize("layout", ["fortran", "csr", "operator"])
@pytest.mark.parametrize("name", ["auto", "pgd", *GREEDY])
def test_complex_measurements_by_a_real_matrix(name, layout):
    A, y, _ = problem(n=80, noise=0.1, seed=12)
    y = y + 1j * (A @ recover(A, y, 6).x[::-1])
    whole = recover(A.astype(complex), y, 12, algorithm=name)
    part = recover(LAYOUTS[layout](A), y, 12, algorithm=name)
    close(part.x, whole.x, ROUGH if (name, layout) == ("auto", "operator") else 1e-6)


@pytest.mark.parametrize("name", ["auto", *GREEDY])
def test_a_real_problem_in_complex_numbers(name):
    A, y, _ = problem(noise=0.1, seed=13)
    real, imaginary = recover(A, y, 6, algorithm=name), recover(A * 1j, y, 6, algorithm=name)
    close(imaginary.x, real.x / 1j, 1e-7)


# --- many right-hand sides -------------------------------------------------------------------------------------------
@pytest.mark.parametrize("complex_", [False, True])
@pytest.mark.parametrize("layout", ["fortran", "csr", "operator"])
@pytest.mark.parametrize("name", ["auto", *GREEDY])
def test_many_right_hand_sides_are_one_by_one(name, layout, complex_):
    A, Y, _ = problem(n=70, complex_=complex_, signals=9, noise=0.1, seed=14)
    Y[:, 4] = 0
    A = LAYOUTS[layout](A)
    whole = recover(A, Y, 6, algorithm=name)
    assert whole.x.shape == (128, 9)
    assert whole.residual.shape == whole.objective.shape == (9,)
    for j, y in enumerate(Y.T):
        single = recover(A, y, 6, algorithm=name)
        close(whole.x[:, j], single.x, 1e-6)
        np.testing.assert_array_equal(whole.support[j], single.support)
        np.testing.assert_allclose(whole.residual[j], single.residual, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", ["iht", "pgd", "bp", "lasso", "dantzig"])
def test_many_right_hand_sides_of_the_others(name):
    A, Y, X = problem(n=100, d=80, K=3, signals=3, seed=15)
    scale = np.linalg.norm(A, 2) if name == "iht" else 1.0
    whole = recover(A / scale, Y / scale, 3, algorithm=name, random_state=0)
    np.testing.assert_allclose(whole.x, X, atol=1e-2)
    assert [support.size for support in whole.support] == [3, 3, 3]


def joint_problem(complex_=False):
    """Four signals on one support, so few measurements and so much noise that no single one shows it."""
    A, _, _ = problem(n=40, complex_=complex_, seed=16)
    rng = np.random.default_rng(17)
    X = np.zeros((128, 4), A.dtype)
    X[rng.choice(128, 8, replace=False)] = rng.choice([-1.0, 1.0], (8, 4))
    return A, A @ X + 0.1 * rng.standard_normal((40, 4)) / np.sqrt(40), X


@pytest.mark.parametrize("complex_", [False, True])
@pytest.mark.parametrize("name", ["omp", "htp", "sp", "cosamp", "niht"])
def test_joint_support_is_simultaneous_pursuit(name, complex_):
    A, Y, _ = joint_problem(complex_)
    ours, theirs = PAIRS[name]
    result = recover(A, Y, 8, algorithm=ours(len(Y)), joint=True)
    close(result.x, theirs(A, Y, 8), 1e-6)
    np.testing.assert_array_equal(result.support, np.flatnonzero(np.any(result.x, axis=1)))


def test_joint_finds_what_single_signals_do_not_show():
    A, Y, X = joint_problem()
    truth = np.flatnonzero(X[:, 0])
    np.testing.assert_array_equal(recover(A, Y, 8, joint=True).support, truth)
    assert any(set(support) != set(truth) for support in recover(A, Y, 8, algorithm="omp").support)


# --- k, noise, residual ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("bound", [6, 12, 20])
def test_k_is_an_upper_bound_for_auto(bound):
    A, y, x = problem(seed=18)
    result = recover(A, y, bound)
    np.testing.assert_array_equal(result.support, np.flatnonzero(x))
    np.testing.assert_allclose(result.x, x, atol=1e-10)


@pytest.mark.parametrize("ensemble", ensembles.ENSEMBLES)
def test_auto_recovers_from_every_ensemble(ensemble):
    A = ensembles.ENSEMBLES[ensemble](100, 256, random_state=0)
    x = signals.gaussian(256, 10, random_state=1, dtype=A.dtype)
    result = recover(A, A @ x, 40)
    np.testing.assert_array_equal(result.support, np.flatnonzero(x))
    np.testing.assert_allclose(result.x, x, atol=1e-9)


def test_a_larger_bound_gives_the_same_answer():
    for seed in range(5):
        A, y, _ = problem(n=64, K=12, seed=seed)
        close(recover(A, y, 24).x, recover(A, y, 48).x)


@pytest.mark.parametrize("name", ALL)
def test_never_more_than_k(name):
    A, y, _ = problem(noise=0.5, seed=19)
    A /= np.linalg.norm(A, 2)
    assert recover(A, y, 5, algorithm=name, random_state=0).support.size <= 5


@pytest.mark.parametrize("noise", [None, 0.05])
def test_auto_with_noise_is_near_the_best_fit(noise):
    """Told the level or not: no spurious entries to speak of."""
    errors = []
    for seed in range(10):
        A, y, x = problem(n=90, noise=0.05 * np.sqrt(90), seed=seed)
        best = pursuits.fit(A, y, np.flatnonzero(x))
        answer = recover(A, y, 24, noise=noise).x
        errors.append(np.linalg.norm(answer - x) / np.linalg.norm(best - x))
    assert np.median(errors) < 1.1


@pytest.mark.parametrize("name", GREEDY)
def test_residual_stops(name):
    """A run that may stop early does, with a residual as small as was asked."""
    A, y, _ = problem(n=80, noise=0.1, seed=20)
    wanted = 0.6 * np.linalg.norm(y)
    early, late = recover(A, y, 6, algorithm=name, residual=wanted), recover(A, y, 6, algorithm=name)
    assert early.residual <= wanted
    assert early.products <= late.products
    np.testing.assert_allclose(early.residual, np.linalg.norm(y - A @ early.x))


def test_omp_stops_at_the_residual_as_in_the_textbook():
    A, y, _ = problem(n=80, noise=0.5, seed=21)
    wanted = 0.3 * np.linalg.norm(y)
    close(recover(A, y, 40, algorithm="omp", residual=wanted).x, pursuits.omp(A, y, 40, residual=wanted))


def test_noise_stops_omp_near_the_truth():
    A, y, x = problem(n=100, noise=0.05 * np.sqrt(100), seed=22)
    told = recover(A, y, 40, algorithm="omp", noise=0.05)
    assert set(np.flatnonzero(x)) <= set(told.support)
    assert told.support.size <= 12


# --- scale and order -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["auto", "pgd", *GREEDY])
def test_scale_changes_nothing_but_the_scale(name):
    for seed in range(21, 26):  # sp took one stage more in some, depending on how the last one was rounded
        A, y, _ = problem(n=80, noise=0.1, seed=seed)
        plain, scaled = recover(A, y, 6, algorithm=name), recover(1e3 * A, 1e-6 * y, 6, algorithm=name)
        close(scaled.x * 1e9, plain.x, 1e-6)
        assert scaled.n_stages == plain.n_stages


@pytest.mark.parametrize("name", ["auto", "pgd", "bp", *GREEDY])
def test_order_of_columns_does_not_matter(name):
    A, y, _ = problem(n=80, noise=0.1, seed=24)
    order = np.random.default_rng(0).permutation(128)
    plain, moved = recover(A, y, 6, algorithm=name), recover(A[:, order], y, 6, algorithm=name)
    close(moved.x, plain.x[order], 1e-6)


# --- the same as solvers of minimize ---------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "solver", [HTP(), CoSaMP(), SubspacePursuit(), OMP(), ROMP(), OMPR(), GraSP(), GraHTP(), NIHT(tol=1e-15),
               PGD(tol=1e-15), PGD(step="spectral", tol=1e-15)],
    ids=lambda solver: type(solver).__name__,
)  # fmt: skip
def test_minimize_gives_the_same(solver):
    A, y, _ = problem(n=80, noise=0.1, seed=25)
    ours, theirs = recover(A, y, 6, algorithm=solver), minimize(A, y, 6, solver=solver)
    close(ours.x, theirs.x, 1e-6)
    np.testing.assert_allclose(ours.objective, theirs.objective)


@pytest.mark.parametrize("name", SAMPLED)
def test_sampling_solvers_draw_the_same_rows(name):
    A, y, _ = problem(n=80, noise=0.1, seed=25)
    ours = recover(A, y, 6, algorithm=name, random_state=3)
    np.testing.assert_array_equal(ours.x, minimize(A, y, 6, solver=name, random_state=3).x)


def glm(loss, seed=0, n=200, d=60):
    """Targets of a model with five of the columns."""
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((n, d))
    z = A[:, :5] @ np.array([1.0, -1.0, 0.7, 0.5, -0.5])
    if loss == "logistic":
        return A, np.where(z + rng.logistic(size=n) > 0, 1.0, -1.0)
    if loss == "poisson":
        return A, rng.poisson(np.exp(np.clip(z, -5, 3))).astype(float)
    return A, z + rng.standard_t(2, n)


@pytest.mark.parametrize("start", [False, True])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("loss", ["logistic", "poisson", "huber"])
@pytest.mark.parametrize("solver", [GraSP(), GraSP(refit=True), GraHTP()], ids=["GraSP", "refit", "GraHTP"])
def test_gradient_pursuits_of_other_losses(solver, loss, seed, start):
    A, y = glm(loss, seed)
    x0 = np.random.default_rng(seed).standard_normal(60) * 0.1 if start else None
    result = minimize(A, y, 5, loss=loss, solver=solver, x0=x0)
    assert result.objective <= result.history.objective[0] + 1e-12
    np.testing.assert_allclose(result.objective, np.mean(oracle.value(loss, A @ result.x, y)))
    assert result.support.size <= 5
    if solver != GraSP():  # which as published does not fit what it has pruned
        gradient = A.T @ oracle.slope(loss, A @ result.x, y) / len(y)
        assert np.max(np.abs(gradient[result.support])) < 1e-4


@pytest.mark.parametrize("loss", ["squared", "logistic", "poisson"])
def test_gradient_pursuits_are_the_textbooks(loss):
    A, y = glm(loss, 5)
    close(minimize(A, y, 5, loss=loss, solver=GraSP()).x, pursuits.grasp(A, y, 5, loss), 1e-4)
    step = 0.05 if loss == "poisson" else 1.0
    close(minimize(A, y, 5, loss=loss, solver=GraHTP(step=step)).x, pursuits.grahtp(A, y, 5, step, loss), 1e-5)


# --- hard input ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ALL)
def test_nothing_measured_is_nothing_found(name):
    A, y, _ = problem(seed=26)
    result = recover(A, 0 * y, 6, algorithm=name, random_state=0)
    assert not result.x.any()
    assert result.support.size == 0
    assert result.residual == result.objective == 0
    assert result.converged


@pytest.mark.parametrize("layout", ["fortran", "csr", "operator"])
@pytest.mark.parametrize("name", ["auto", *GREEDY])
def test_columns_that_are_there_twice_or_zero(name, layout):
    """The fit is as good as with the column once, and nothing is infinite."""
    A, y, _ = problem(n=80, seed=27)
    A = np.hstack([A, A, np.zeros((80, 5))])
    result = recover(LAYOUTS[layout](A), y, 6 if name != "ompr" else 12, algorithm=name)
    assert np.isfinite(result.x).all()
    assert result.support.size == 0 or result.support.max() < 256
    np.testing.assert_allclose(result.residual, np.linalg.norm(y - A @ result.x), atol=1e-9)
    if name == "omp" or (name == "auto" and layout != "operator"):  # products alone do not tell twins
        assert result.residual < 1e-6 * np.linalg.norm(y)


@pytest.mark.parametrize("name", ["auto", *GREEDY])
def test_only_zeros(name):
    result = recover(np.zeros((20, 40)), np.ones(20), 3, algorithm=name)
    assert not result.x.any()
    np.testing.assert_allclose(result.residual, np.sqrt(20))


@pytest.mark.parametrize("name", ["auto", *GREEDY])
@pytest.mark.parametrize("k", [20, 25])
def test_as_many_as_there_are_measurements_is_warned_about(name, k):
    A, y, _ = problem(n=20, d=40, K=3, seed=28)
    with pytest.warns(UserWarning, match=rf"k.*{k}.*20"):
        result = recover(A, y, k, algorithm=name)
    assert np.isfinite(result.x).all()
    assert result.support.size <= k


def test_fewer_than_measurements_is_not_warned_about():
    A, y, _ = problem(n=20, d=40, K=3, seed=28)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        recover(A, y, 19)


@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("name", ["auto", *GREEDY])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_smallest_problems(name, n):
    assert recover(np.ones((n, 1)), np.full(n, 3.0), 1, algorithm=name).x == pytest.approx([3.0])
    if name == "auto" and n == 2:
        return  # of two measurements one may well be noise
    x = recover(np.eye(n, 3), np.ones(n), 1, algorithm=name).x
    np.testing.assert_allclose(x, [1.0, 0.0, 0.0], atol=1e-9)


def _broken(A):
    return LinearOperator(A.shape, matvec=lambda x: A @ x, rmatvec=lambda r: 2 * (A.T @ r), dtype=A.dtype)


def test_a_wrong_adjoint_is_named():
    A, y, _ = problem(seed=29)
    with pytest.raises(ValueError, match="adjoint"):
        recover(_broken(A), y, 6, check_adjoint=True)
    recover(aslinearoperator(A), y, 6, check_adjoint=True)
    complex_ = problem(complex_=True, seed=29)[0]
    forgot = LinearOperator(
        complex_.shape, matvec=lambda x: complex_ @ x, rmatvec=lambda r: complex_.T @ r, dtype=complex
    )
    with pytest.raises(ValueError, match="adjoint"):
        recover(forgot, complex_ @ np.ones(128), 6, check_adjoint=True)


def _operator(A, forward=lambda x: x, back=lambda r: r):
    return LinearOperator(A.shape, matvec=lambda x: forward(A @ x), rmatvec=lambda r: back(A.T @ r), dtype=float)


def _changed(value, where="A"):
    def change(A, y):
        A, y = A.copy(), y.copy()
        (A if where == "A" else y)[3, ...] = value
        return A, y

    return change


BAD = {
    "NaN in A": (_changed(np.nan), {}, "A"),
    "infinity in A": (_changed(np.inf), {}, "A"),
    "NaN in a sparse A": (lambda A, y: (sparse.csr_array(_changed(np.nan)(A, y)[0]), y), {}, "A"),
    "NaN in y": (_changed(np.nan, "y"), {}, "y"),
    "infinity in y": (_changed(np.inf, "y"), {}, "y"),
    "complex NaN in y": (lambda A, y: (A, np.where(np.arange(60) == 3, complex(0, np.nan), y)), {}, "y"),
    "an operator that gives NaN": (lambda A, y: (_operator(A, lambda x: x * np.nan), y), {}, "A"),
    "an adjoint that gives NaN": (lambda A, y: (_operator(A, back=lambda r: r * np.nan), y), {}, "A"),
    "no adjoint": (lambda A, y: (LinearOperator(A.shape, matvec=lambda x: A @ x, dtype=float), y), {}, "A"),
    "text in A": (lambda A, y: (A.astype(str), y), {}, "A"),
    "text in y": (lambda A, y: (A, ["a"] * 60), {}, "y"),
    "objects": (lambda A, y: (np.full(A.shape, None), y), {}, "A"),
    "no rows": (lambda A, y: (A[:0], y[:0]), {}, "A"),
    "no columns": (lambda A, y: (A[:, :0], y), {}, "A"),
    "no signals": (lambda A, y: (A, y[:, np.newaxis][:, :0]), {}, "y"),
    "A is a vector": (lambda A, y: (A[0], y), {}, "A"),
    "A has three axes": (lambda A, y: (A[np.newaxis], y), {}, "A"),
    "y is too short": (lambda A, y: (A, y[:-1]), {}, "y"),
    "y is a row": (lambda A, y: (A, y[np.newaxis]), {}, "y"),
    "y has three axes": (lambda A, y: (A, y[:, np.newaxis, np.newaxis]), {}, "y"),
    "k = 0": (None, {"k": 0}, "k"),
    "k < 0": (None, {"k": -1}, "k"),
    "k is no integer": (None, {"k": 2.5}, "k"),
    "k > d": (None, {"k": 129}, "k"),
    "an unknown algorithm": (None, {"algorithm": "omg"}, "algorithm"),
    "no algorithm": (None, {"algorithm": 3}, "algorithm"),
    "a class": (None, {"algorithm": HTP}, "algorithm"),
    "noise < 0": (None, {"noise": -1.0}, "noise"),
    "noise is NaN": (None, {"noise": np.nan}, "noise"),
    "residual < 0": (None, {"residual": -1.0}, "residual"),
    "max_time = 0": (None, {"max_time": 0.0}, "max_time"),
    "joint is no flag": (None, {"joint": "yes"}, "joint"),
    "joint of one": (None, {"joint": True}, "joint"),
    "callback": (None, {"callback": 3}, "callback"),
    "a seed": (None, {"random_state": "x"}, "random_state"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input_is_named(what):
    A, y, _ = problem(seed=30)
    change, arguments, name = BAD[what]
    A, y = change(A, y) if change else (A, y)
    with pytest.raises(ValueError, match=rf"(?i)\b{name}\b"):
        recover(A, y, **{"k": 6, **arguments})


@pytest.mark.parametrize("name", SAMPLED)
def test_what_samples_rows_takes_real_rows(name):
    A, y, _ = problem(complex_=True, seed=31)
    with pytest.raises(ValueError, match=r"complex"):
        recover(A, y, 6, algorithm=name)
    with pytest.raises(ValueError, match="LinearOperator"):
        recover(aslinearoperator(A.real.copy()), y.real, 6, algorithm=name)


# --- what it tells ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["auto", *GREEDY])
@pytest.mark.parametrize("seconds", [1e-9, 0.1])
def test_time_is_kept(name, seconds, clock):
    """Of an operator that takes its time, which is looked at after every product, or every few."""
    A, y, _ = problem(n=80, K=20, noise=0.5, seed=32)

    def slow(v):
        clock.sleep(0.02)
        return v

    operator = LinearOperator(A.shape, matvec=lambda x: slow(A @ x), rmatvec=lambda r: slow(A.T @ r), dtype=float)
    result = recover(operator, y, 20, algorithm=name, max_time=seconds)
    assert clock.now < seconds + 10 * 0.02, clock.now
    assert result.status == "time limit"
    assert result.residual <= np.linalg.norm(y) * (1 + 1e-12)


def test_a_callback_stops():
    A, Y, _ = problem(signals=2, seed=32)
    told = []
    result = recover(A, Y, 6, algorithm="omp", callback=lambda p: told.append(p) or p.stage == 2)
    assert result.status == "stopped"
    assert [support.size for support in result.support] == [2, 2]
    np.testing.assert_array_equal(told[-1].x, result.x)


@pytest.mark.parametrize("p", [1, 3])
def test_products_are_counted(p):
    A, y, _ = problem(signals=p, seed=33)
    calls = [0]

    def counted(product):
        def call(v):
            calls[0] += 1
            return product(v)

        return call

    operator = LinearOperator(A.shape, matvec=counted(lambda x: A @ x), rmatvec=counted(lambda r: A.T @ r), dtype=float)
    for name in ("htp", "sp", "omp"):
        calls[0] = 0
        assert recover(operator, y, 6, algorithm=name).products == calls[0]


def test_input_stays_as_it_is():
    A, Y, _ = problem(signals=3, seed=34)
    before = A.copy(), Y.copy()
    A.flags.writeable = Y.flags.writeable = False
    for name in ("auto", *GREEDY):
        recover(A, Y, 6, algorithm=name)
    np.testing.assert_array_equal(A, before[0])
    np.testing.assert_array_equal(Y, before[1])


def test_calls_at_once_leave_the_threads_of_blas_as_they_were():
    """Each call wants a single thread for a while; who comes first may go last."""
    A, y, _ = problem()
    before = blas_threads()
    alone = recover(A, y, 6, algorithm="sp").x
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: recover(A, y, 6, algorithm="sp").x, range(40)))
    assert blas_threads() == before
    for x in found:
        np.testing.assert_allclose(x, alone, rtol=1e-9)


# --- hard cases ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("factor", [3.0, -1.0])
@pytest.mark.parametrize("name", ["auto", "sp", "omp"])
def test_a_wrong_adjoint_is_found_in_the_first_fit(name, factor):
    A, y, _ = problem()
    wrong = LinearOperator(A.shape, matvec=A.dot, rmatvec=lambda v: factor * (A.T @ v), dtype=float)
    with pytest.raises(ValueError, match="not the adjoint"):
        recover(wrong, y, 6, algorithm=name)


@pytest.mark.parametrize("seed", range(12))
def test_a_fit_that_was_given_up_is_not_called_converged(seed):
    """Twelve orders of magnitude between columns are too many for conjugate gradients, and none for an array."""
    rng = np.random.default_rng(seed)
    A, y = rng.standard_normal((40, 15)) * 10.0 ** rng.integers(-6, 7, 15), rng.standard_normal(40)
    unit = A / np.linalg.norm(A, axis=0)
    best = pytest.approx(np.linalg.norm(y - unit @ np.linalg.lstsq(unit, y, rcond=None)[0]), rel=1e-9)
    rough = recover(aslinearoperator(A), y, 15, algorithm="omp")
    assert rough.status == "stalled" or rough.residual == best
    assert rough.status == "converged" or "scale A's columns" in rough.status.remedy
    assert recover(A, y, 15, algorithm="omp").residual == best


@pytest.mark.parametrize("scale", [1e-12, 1e8])
@pytest.mark.parametrize("name", ["bp", "dantzig", "lasso"])
def test_convex_programs_do_not_see_the_scale_of_A(name, scale):
    A, y, _ = problem(n=40)
    np.testing.assert_allclose(
        scale * recover(scale * A, y, 6, algorithm=name).x, recover(A, y, 6, algorithm=name).x, atol=1e-6
    )


def test_extreme_goals_and_scales():
    A, y, x = problem()
    assert not recover(A, y, 6, algorithm="sp", residual=1e300).x.any()
    assert recover(A, y, 6, noise=1e300).status == "converged"
    np.testing.assert_allclose(recover(A, 1e200 * y, 6).x, 1e200 * x, rtol=1e-9)
    np.testing.assert_allclose(recover(A, 1e-200 * y, 6).x, 1e-200 * x, rtol=1e-9)
    with pytest.raises(ValueError, match="range of floats"):
        recover(1e-100 * A, 1e250 * y, 6)
    with pytest.raises(ValueError, match="wrong scale"):
        recover(1e-170 * A, y, 6)


def test_entries_that_are_there_twice():
    A, y, x = problem()
    indices = np.repeat(np.tile(np.arange(A.shape[1]), len(A)), 2)
    starts = 2 * A.shape[1] * np.arange(len(A) + 1)
    twice = sparse.csr_array((np.repeat(A.ravel() / 2, 2), indices, starts), shape=A.shape)
    assert not twice.has_canonical_format
    entries = twice.nnz
    np.testing.assert_allclose(recover(twice, y, 6, algorithm="htp").x, x, atol=1e-9)
    assert twice.nnz == entries


def test_the_residual_of_an_operator_is_that_of_its_signal():
    """Nearly equal columns: conjugate gradients pass through large numbers, whose rounding stays in their residual."""
    rng = np.random.default_rng(0)
    A = rng.standard_normal((6, 20))
    A[:, 10:] = A[:, :10] * (1 + 1e-6 * rng.standard_normal((6, 10)))
    y = rng.standard_normal(6)
    found = ksparse.recover(aslinearoperator(A), y, 3, algorithm="sp")
    assert found.residual == pytest.approx(np.linalg.norm(y - A @ found.x), rel=1e-9)
