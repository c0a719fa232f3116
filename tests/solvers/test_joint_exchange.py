"""Joint supports: small problems against enumeration, and special cases."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from scipy import optimize, sparse
from sklearn.datasets import load_diabetes, load_digits, load_iris
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.preprocessing import StandardScaler

from ksparse import HTSVRG, Exchange, Result, joint, minimize

CASES = ["targets", "softmax", "groups", "softmax groups", "target groups"]


# --- against enumeration ---------------------------------------------------------------------------------------------
def small_problem(case, seed):
    rng = np.random.default_rng(seed)
    n, d = 60, 8
    groups = None
    if "groups" in case:
        groups = np.repeat(np.arange(d), rng.integers(1, 4, d))
        d = groups.size
    A = rng.standard_normal((n, d))
    A[:, 1:] = 0.7 * A[:, :-1] + 0.7 * A[:, 1:]
    x = rng.standard_normal((d, 3)) * (rng.random((d, 1)) < 0.5)
    z = A @ x + rng.standard_normal((n, 3))
    if "softmax" in case:
        y, loss = np.unique(np.argmax(z, axis=1), return_inverse=True)[1], "softmax"
    else:
        y, loss = (z if "target" in case else z[:, 0]), "squared"
    return A, y, loss, groups


def fitted(A, y, loss, l2):
    """The least objective on all columns of A, with an intercept, by other people's code."""
    n = len(y)
    if loss == "softmax":
        C, onehot = y.max() + 1, np.eye(y.max() + 1)[y]

        def value(w):
            W, b = w[:-C].reshape(-1, C), w[-C:]
            z = A @ W + b
            top = z.max(axis=1, keepdims=True)
            e = np.exp(z - top)
            slope = (e / e.sum(axis=1, keepdims=True) - onehot) / n
            f = np.mean(np.log(e.sum(axis=1)) + top[:, 0] - z[np.arange(n), y]) + l2 / 2 * np.sum(W * W)
            return f, np.concatenate([(A.T @ slope + l2 * W).ravel(), slope.sum(axis=0)])

        start = np.zeros((A.shape[1] + 1) * C)
        return optimize.minimize(value, start, jac=True, method="L-BFGS-B", options={"ftol": 1e-14, "gtol": 1e-9}).fun
    X, Y = A - A.mean(axis=0), (y - y.mean(axis=0)).reshape(n, -1)
    W = np.linalg.solve(X.T @ X / n + l2 * np.eye(X.shape[1]), X.T @ Y / n)
    return np.sum((X @ W - Y) ** 2) / (2 * n) + l2 / 2 * np.sum(W * W)


@pytest.mark.parametrize("case", CASES)
def test_it_finds_the_best_units_of_small_problems(case):
    """All supports tried: most are the very best, and no single exchange improves any of them."""
    hits, seeds, l2 = 0, range(6), 0.05
    for seed in seeds:
        A, y, loss, groups = small_problem(case, seed)
        label = np.arange(8) if groups is None else groups
        k = 2 + seed % 2
        value = {units: fitted(A[:, np.isin(label, units)], y, loss, l2) for units in combinations(range(8), k)}
        found = joint(A, y, k, loss=loss, groups=groups, l2=l2, intercept=True)
        units = tuple(np.unique(label[found.support]))
        assert len(units) == k
        np.testing.assert_array_equal(np.flatnonzero(np.isin(label, units)), found.support)
        assert found.objective == pytest.approx(value[units], rel=1e-7)
        best = min(value.values())
        hits += found.objective <= best * (1 + 1e-6)
        assert found.objective <= 1.02 * best
        for other, objective in value.items():
            if len(set(other) & set(units)) == k - 1:
                assert objective >= found.objective * (1 - 1e-5)
        assert found.status == "converged"
    assert hits >= len(seeds) - 1


@pytest.mark.parametrize("case", CASES)
def test_a_start_is_never_made_worse(case):
    """From the best groups of all, found by trying them, and from poor ones."""
    A, y, loss, groups = small_problem(case, 3)
    numbers = np.arange(A.shape[1]) if groups is None else groups
    values = {S: fitted(A[:, np.isin(numbers, S)], y, loss, 0.05) for S in combinations(np.unique(numbers).tolist(), 2)}
    for S in (min(values, key=values.get), max(values, key=values.get)):
        start = np.isin(numbers, S)[:, np.newaxis] * np.ones((1, 3 if np.ndim(y) == 2 or loss == "softmax" else 1))
        found = joint(A, y, 2, loss=loss, groups=groups, l2=0.05, intercept=True, start=start)
        assert found.objective <= values[S] * (1 + 1e-6)


# --- special cases ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("loss", ["squared", "logistic", "poisson", "huber", "squared_hinge"])
def test_one_output_without_groups_is_exchange(loss):
    rng = np.random.default_rng(0)
    A = rng.standard_normal((200, 60))
    z = A[:, :5] @ np.array([1.0, -1.0, 0.7, 0.5, 0.4]) + 0.5 * rng.standard_normal(200)
    y = {"logistic": np.sign(z), "squared_hinge": np.sign(z), "poisson": rng.poisson(np.exp(0.5 * z))}.get(loss, z)
    settings = {"loss": loss, "l2": 0.01, "intercept": True, "always_keep": [9]}
    ours, theirs = joint(A, y, 5, **settings), minimize(A, y, 5, solver=Exchange(), **settings)
    assert ours.objective <= 1.001 * theirs.objective
    assert ours.x.shape == (60, 1)
    assert ours.intercept.shape == (1,)
    again = joint(A, y, 5, groups=np.arange(60)[::-1], **settings)  # every column a group, in another order
    assert again.objective == pytest.approx(ours.objective, rel=1e-3)


def test_all_columns_are_least_squares():
    X, y = load_diabetes(return_X_y=True)
    Y = np.column_stack([y, np.sqrt(y), -2 * y + X[:, 0]])
    plain = LinearRegression().fit(X, Y)
    found = joint(X, Y, 10, intercept=True)
    np.testing.assert_allclose(found.x, plain.coef_.T, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(found.intercept, plain.intercept_, rtol=1e-8)


@pytest.mark.parametrize("load", [load_iris, load_digits])
def test_all_columns_are_multinomial_regression(load):
    X, y = load(return_X_y=True)
    X, y = StandardScaler().fit_transform(X)[:600], y[:600]
    l2, d = 0.01, X.shape[1]
    found = joint(X, y, d, loss="softmax", l2=l2, intercept=True, solver=Exchange())
    plain = LogisticRegression(C=1 / (l2 * len(y)), tol=1e-10, max_iter=10_000).fit(X, y)
    z = X @ found.x + found.intercept
    p = np.exp(z - z.max(axis=1, keepdims=True))
    np.testing.assert_allclose(p / p.sum(axis=1, keepdims=True), plain.predict_proba(X), atol=1e-5)
    np.testing.assert_allclose(found.x.sum(axis=1), 0.0, atol=1e-9)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("layout", ["csr", "float32"])
def test_layouts_agree(case, layout):
    A, y, loss, groups = small_problem(case, 3)
    rng = np.random.default_rng(0)
    A = (np.round(A, 2) * (rng.random(A.shape) < 0.7)).astype(np.float32).astype(float)
    settings = {
        "loss": loss, "groups": groups, "l2": 0.05, "intercept": True, "always_keep": [2],
        "sample_weight": rng.uniform(0.5, 2.0, len(y)),
    }  # fmt: skip
    dense = joint(A, y, 3, **settings)
    same = joint(sparse.csr_array(A) if layout == "csr" else A.astype(np.float32), y, 3, **settings)
    np.testing.assert_allclose(same.x, dense.x, atol=1e-8)
    np.testing.assert_allclose(same.intercept, dense.intercept, atol=1e-8)
    assert 2 in dense.support


@pytest.mark.parametrize("case", CASES)
def test_weights_are_repetitions(case):
    A, y, loss, groups = small_problem(case, 4)
    weight = np.random.default_rng(0).integers(1, 4, len(y))
    settings = {"loss": loss, "groups": groups, "l2": 0.05, "intercept": True}
    weighted = joint(A, y, 3, sample_weight=weight, **settings)
    repeated = joint(np.repeat(A, weight, axis=0), np.repeat(y, weight, axis=0), 3, **settings)
    np.testing.assert_allclose(weighted.x, repeated.x, atol=1e-7)
    assert weighted.objective == pytest.approx(repeated.objective, rel=1e-9)


def test_offsets_are_added_to_the_predictions():
    A, Y, _, _ = small_problem("targets", 1)
    shift = np.random.default_rng(0).standard_normal(Y.shape)
    by_offset, by_hand = joint(A, Y, 3, offset=shift, intercept=True), joint(A, Y - shift, 3, intercept=True)
    np.testing.assert_allclose(by_offset.x, by_hand.x, atol=1e-10)
    same = joint(A, Y, 3, offset=shift[:, 0], intercept=True)
    np.testing.assert_allclose(same.x, joint(A, Y - shift[:, :1], 3, intercept=True).x, atol=1e-10)
    labels = np.unique(np.argmax(Y, axis=1), return_inverse=True)[1]
    known = joint(A, labels, 3, loss="softmax", l2=0.1, offset=50.0 * np.eye(3)[labels])
    assert known.objective < 1e-6  # the offset knows all labels: nothing is left to learn


# --- what is planted is found ----------------------------------------------------------------------------------------
def test_a_shared_support_is_found_where_separate_fits_fail():
    together = apart = 0
    for seed in range(5):
        rng = np.random.default_rng(seed)
        A = rng.standard_normal((80, 200))
        S = np.sort(rng.choice(200, 6, replace=False))
        Y = A[:, S] @ rng.standard_normal((6, 6)) + 2.0 * rng.standard_normal((80, 6))
        together += np.array_equal(joint(A, Y, 6, intercept=True).support, S)
        apart += sum(np.array_equal(minimize(A, y, 6, solver=Exchange(), intercept=True).support, S) for y in Y.T) / 6
    assert together >= 4
    assert together > apart + 2


@pytest.mark.parametrize("loss", ["squared", "logistic", "poisson", "huber", "squared_hinge"])
def test_planted_groups_are_found(loss):
    rng = np.random.default_rng(1)
    groups = np.array([f"g{j // 4}" for j in range(200)])
    rng.shuffle(groups)
    A = rng.standard_normal((400, 200))
    chosen = ["g3", "g17", "g40"]
    z = A @ (np.isin(groups, chosen) * rng.choice([-0.5, 0.5], 200)) + 0.3 * rng.standard_normal(400)
    y = {"logistic": np.sign(z), "squared_hinge": np.sign(z), "poisson": rng.poisson(np.exp(0.6 * z))}.get(loss, z)
    found = joint(A, y, 3, loss=loss, groups=groups, l2=1e-3, intercept=True)
    assert sorted(set(groups[found.support])) == sorted(chosen)
    assert found.support.size == 12
    kept = joint(A, y, 3, loss=loss, groups=groups, l2=1e-3, intercept=True, always_keep=np.flatnonzero(groups == "g3"))
    assert kept.support.size == 16  # what is kept does not count


# --- manners ---------------------------------------------------------------------------------------------------------
def test_warm_starts_callbacks_and_time():
    A, y, loss, groups = small_problem("softmax groups", 2)
    first = joint(A, y, 3, loss=loss, groups=groups, l2=0.05, intercept=True)
    again = joint(A, y, 3, loss=loss, groups=groups, l2=0.05, intercept=True, start=first)
    assert again.objective <= first.objective * (1 + 1e-9)
    assert isinstance(again, Result)
    smaller = joint(A, y, 2, loss=loss, groups=groups, l2=0.05, intercept=True, start=first)
    assert np.unique(groups[smaller.support]).size == 2
    seen = []
    stopped = joint(A, y, 3, loss=loss, l2=0.05, callback=lambda told: seen.append(told.x.shape) or True)
    assert stopped.status == "stopped"
    assert seen == [first.x.shape]
    assert (np.diff(first.history.objective) <= 1e-12).all()
    late = joint(A, y, 3, loss=loss, l2=0.05, max_time=1e-9)
    assert late.status == "time limit"
    assert late.objective == pytest.approx(np.log(3))
    assert joint(A, y, 3, loss=loss, l2=0.05, solver=Exchange(stages=1)).status == "stage limit"

    def interrupt(told):
        raise KeyboardInterrupt

    cut = joint(A, y, 3, loss=loss, l2=0.05, callback=interrupt)
    assert cut.status == "interrupted"
    assert cut.support.size == 3


@pytest.mark.parametrize("case", CASES)
def test_data_that_are_hard_to_like(case):
    A, y, loss, groups = small_problem(case, 5)
    A[:, 0], A[:, 1] = 0.0, 7.0  # zero, constant
    A[:, 3] = A[:, 2]
    A[:, 4] = A[:, 5] + A[:, 6]
    A[:, 5] *= 1e6
    for k in (1, 3, 8):
        for l2 in (0.0, 0.01):
            found = joint(A, y, k, loss=loss, groups=groups, l2=l2, intercept=True)
            assert np.isfinite(found.objective)
            assert np.isfinite(found.x).all()
            assert not set(found.support) & {0, 1}
    few = joint(A[:5], y[:5], 3, loss=loss, groups=groups, l2=0.1) if loss != "softmax" else found
    assert np.isfinite(few.objective)


def test_separable_classes_and_many_of_them():
    rng = np.random.default_rng(0)
    A = rng.standard_normal((90, 12))
    y = np.argmax(A[:, :3], axis=1)
    apart = joint(A, y, 3, loss="softmax")
    assert apart.objective < 1e-3
    np.testing.assert_array_equal(apart.support, [0, 1, 2])
    # so many classes that the model has one curvature a row for all of them
    n, C, d = 2000, 40, 100
    X = rng.standard_normal((n, d))
    labels = np.argmax(X[:, :20] @ rng.standard_normal((20, C)) + rng.gumbel(size=(n, C)), axis=1)
    labels = np.unique(labels, return_inverse=True)[1]
    found = joint(X, labels, 20, loss="softmax", l2=1e-3, intercept=True, solver=Exchange())
    np.testing.assert_array_equal(found.support, np.arange(20))


@pytest.mark.parametrize("k", [3, 6])
def test_no_exchange_on_digits_is_better(k):
    """All exchanges refitted: the quadratic model has missed none that lowers the softmax itself."""
    X, y = load_digits(return_X_y=True)
    X, y = X[:500], y[:500]
    X = (X - X.mean(axis=0)) / np.where(X.std(axis=0) > 0, X.std(axis=0), 1.0)
    found = joint(X, y, k, loss="softmax", l2=1e-2, intercept=True)
    for out in found.support:
        for other in np.setdiff1d(np.arange(64), found.support):
            S = np.sort([*np.setdiff1d(found.support, out), other])
            refit = joint(X[:, S], y, k, loss="softmax", l2=1e-2, intercept=True, solver=Exchange(effort="fast"))
            assert refit.objective >= found.objective * (1 - 1e-6)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"loss": "cubic"}, "loss must be one of .*'softmax'"),
        ({"loss": "logistic"}, "loss must be 'squared' for a Y of several columns"),
        ({"loss": "softmax"}, "class numbers 0, 1, ..."),
        ({"k": 9}, "k must be at most the number of columns, 8, got 9"),
        ({"k": 5, "groups": np.arange(8) // 2}, "k must be at most the number of groups, 4, got 5"),
        ({"k": 0}, "k must be at least 1"),
        ({"groups": [1, 2]}, "groups must have one label per column"),
        ({"groups": [np.nan] * 8}, "groups must be labels, got nan at column 0"),
        ({"always_keep": np.arange(8)}, "always_keep must leave columns"),
        ({"solver": HTSVRG()}, "solver must be an Exchange"),
        ({"start": np.zeros(8)}, "start must have shape"),
        ({"offset": np.zeros((60, 2))}, "offset must have shape"),
        ({"callback": 3}, "callback must be a function"),
        ({"Y": np.full((60, 2), np.nan)}, "Y must be finite"),
        ({"Y": np.ones((5, 6, 2))}, r"Y must have one entry or one row per row of A, got shape \(5, 6, 2\)"),
        ({"Y": np.full(60, 2), "loss": "softmax"}, "without gaps, got 2"),
        ({"Y": np.zeros(60), "loss": "softmax"}, "np.unique"),
    ],
)
def test_bad_input_is_named(settings, message):
    A, Y, _, _ = small_problem("targets", 0)
    settings = {"Y": Y, "k": 2} | settings
    with pytest.raises(ValueError, match=message):
        joint(A, **settings)
    with pytest.raises(ValueError, match="gain must be"):
        Exchange(gain=-1.0)
