"""Cross-validation over pairs of k and l2."""

from __future__ import annotations

import numpy as np
import pytest
from oracle import mean_loss
from sklearn.base import clone

from ksparse import KSparseClassifier, KSparseClassifierCV, KSparseRegressor, KSparseRegressorCV, k_path

KS = [1, 2, 3, 4]
FACTORS = (0.1, 1.0, 10.0, 100.0)


def data(classify, n=60, d=40, seed=0):
    """Few rows and correlated columns, so that the ridge matters."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) + 1.5 * rng.standard_normal((n, 1))
    z = X[:, :4] @ np.array([1.0, -1.0, 0.7, 0.5]) + 1.5 * rng.standard_normal(n)
    rows = rng.permutation(n)
    folds = [(np.sort(np.setdiff1d(rows, part)), np.sort(part)) for part in np.array_split(rows, [15, 35])]
    return X, np.where(z > 0, "yes", "no") if classify else z, folds  # folds of different sizes


def searcher(classify, **settings):
    return (KSparseClassifierCV if classify else KSparseRegressorCV)(KS, **settings)


def rule(classify, k, d, n):
    """l2="auto" of the estimators."""
    return 0.1 * min(1.0, k * np.log(d + 1) / n) ** (1 if classify else 2)


def choose(mean, error, ridges):
    """A plain loop over the pairs (ks, l2s): the best l2 of every k, then the smallest good k."""
    own = []
    for k in range(len(mean)):
        at = 0
        for i in range(len(mean[k])):
            if mean[k][i] > mean[k][at] or (mean[k][i] == mean[k][at] and ridges[k][i] > ridges[k][at]):
                at = i
        own.append(at)
    best = max(range(len(mean)), key=lambda k: (mean[k][own[k]], -k))
    for k in range(len(mean)):
        if mean[k][own[k]] >= mean[best][own[best]] - error[best][own[best]]:
            return k, own, best
    raise AssertionError


@pytest.mark.parametrize("classify", [False, True])
@pytest.mark.parametrize("l2s", [None, "auto", [1.0, 0.0, 0.01, 0.1, 0.1]])
@pytest.mark.parametrize("weighted", [False, True])
def test_pairs_are_scored_and_chosen_as_by_hand(classify, l2s, weighted):
    X, y, folds = data(classify)
    if l2s is not None and l2s != "auto" and classify:
        l2s = [1.0, 1e-3, 0.01, 0.1, 0.1]  # separable classes need a ridge
    n, d = X.shape
    weight = np.random.default_rng(5).integers(1, 4, n).astype(float) if weighted else None
    extra = {} if weight is None else {"sample_weight": weight}
    search = searcher(classify, l2s=l2s, cv=folds).fit(X, y, **extra)
    tried = {None: (1.0,), "auto": FACTORS}.get(l2s if isinstance(l2s, str) or l2s is None else "")

    def ridges(k, rows):
        return sorted(set(l2s)) if tried is None else [f * rule(classify, k, d, rows) for f in tried]

    template = KSparseClassifier() if classify else KSparseRegressor()
    count = len(ridges(1, n))
    scores = np.empty((len(folds), len(KS), count))
    for f, (train, test) in enumerate(folds):
        own = {} if weight is None else {"sample_weight": weight[train]}
        rows = len(train) if weight is None else weight[train].sum()
        for i in range(count):
            for k in KS:
                model = clone(template).set_params(l2=ridges(k, rows)[i])
                if tried is not None:  # the ridge of a path depends on k
                    model.set_params(l2="auto")
                    model._l2_factor = tried[i]
                    path = k_path_with(model, X[train], y[train], own)
                else:
                    path = k_path(X[train], y[train], KS, model, **own)
                fitted = path.models[KS.index(k)]
                assert fitted.l2_ == pytest.approx(ridges(k, rows)[i], rel=1e-12)
                held = None if weight is None else weight[test]
                scores[f, KS.index(k), i] = -mean_loss(fitted, X[test], y[test], held)
    total = n if weight is None else weight.sum()
    values = np.array([ridges(k, total) for k in KS])
    table = search.cv_results_
    np.testing.assert_array_equal(table["k"], np.repeat(KS, count))
    np.testing.assert_allclose(table["l2"], values.ravel(), rtol=1e-12)
    for f in range(len(folds)):
        np.testing.assert_allclose(table[f"split{f}_test_score"], scores[f].ravel(), rtol=1e-8)
    mean = scores.mean(axis=0)
    np.testing.assert_allclose(table["mean_test_score"], mean.ravel(), rtol=1e-8)
    np.testing.assert_allclose(table["std_test_score"], scores.std(axis=0).ravel(), rtol=1e-6)
    np.testing.assert_array_equal(
        table["rank_test_score"],
        [1 + sum(m > own for m in table["mean_test_score"]) for own in table["mean_test_score"]],
    )
    assert {len(column) for column in table.values()} == {len(KS) * count}
    error = scores.std(axis=0, ddof=1) / np.sqrt(len(folds))
    at, own, best = choose(mean, error, values)
    assert search.k_ == KS[at]
    assert search.best_k_ == KS[best]
    np.testing.assert_allclose(search.l2s_, [values[k][own[k]] for k in range(len(KS))], rtol=1e-12)
    assert search.l2_ == search.estimator_.l2_ == pytest.approx(values[at][own[at]], rel=1e-12)
    np.testing.assert_allclose(search.mean_score_, [mean[k][own[k]] for k in range(len(KS))], rtol=1e-8)
    np.testing.assert_allclose(search.standard_error_, [error[k][own[k]] for k in range(len(KS))], rtol=1e-6)
    assert search.scores_.shape == (len(folds), len(KS))
    # the final model is that of the path of all rows at the chosen pair, and its settings give it again
    final = clone(template) if l2s is None else clone(template).set_params(l2=search.l2_)
    whole = k_path(X, y, KS, final, **extra).models[at]
    np.testing.assert_allclose(search.coef_, whole.coef_, rtol=1e-8)
    assert search.objective_ == pytest.approx(whole.objective_, rel=1e-12)
    assert search.estimator_.get_params()["l2"] == ("auto" if l2s is None else search.l2_)
    assert search.estimator_.get_params()["k"] == search.k_


def k_path_with(model, X, y, extra):
    """`k_path` under multiples of the rule, which only a cross-validation tries."""
    factor, fresh = model._l2_factor, type(model)._fresh
    try:
        type(model)._fresh = lambda self: fresh(self)._changed(_l2_factor=factor)
        return k_path(X, y, KS, model, **extra)
    finally:
        del type(model)._fresh


@pytest.mark.parametrize("classify", [False, True])
def test_equal_scores_take_the_larger_ridge(classify):
    X, y, folds = data(classify)
    search = searcher(classify, l2s=[0.1, 1.0, 10.0], cv=folds, scoring=lambda model, X, y: 1.0).fit(X, y)
    assert search.k_ == 1
    assert search.l2_ == 10.0
    np.testing.assert_array_equal(search.l2s_, np.full(4, 10.0))
    np.testing.assert_array_equal(search.cv_results_["rank_test_score"], np.ones(12))
    best = searcher(classify, l2s="auto", cv=folds, one_standard_error=False).fit(X, y)
    table = best.cv_results_
    first = int(np.argmax(table["mean_test_score"]))
    assert (best.k_, best.l2_) == (table["k"][first], pytest.approx(table["l2"][first]))
    assert table["rank_test_score"][first] == 1


FITTED_ONE_BY_ONE = {
    "groups": lambda y: (KSparseRegressor(groups=np.arange(40) // 2), y),
    "positive": lambda y: (KSparseRegressor(positive=True), y),
    "targets": lambda y: (KSparseRegressor(), np.column_stack([y, -y])),
    "softmax": lambda y: (KSparseClassifier(), np.digitize(y, [-1, 1])),
    "solver": lambda y: (KSparseRegressor(solver="exchange"), y),
}


@pytest.mark.parametrize("kind", FITTED_ONE_BY_ONE)
def test_models_that_are_fitted_one_by_one_try_the_same_ridges(kind):
    X, y, folds = data(False)
    template, y = FITTED_ONE_BY_ONE[kind](y)
    classify = isinstance(template, KSparseClassifier)
    make = KSparseClassifierCV if classify else KSparseRegressorCV
    search = make([1, 2], l2s="auto", estimator=template, cv=folds).fit(X, y)
    table = search.cv_results_
    np.testing.assert_allclose(table["l2"], [f * rule(classify, k, 40, 60) for k in (1, 2) for f in FACTORS])
    assert len(set(table["mean_test_score"])) > 2  # the ridge made a difference
    assert search.l2_ == pytest.approx(search.l2s_[search.k_ - 1])
    train, test = folds[0]
    model = clone(template).set_params(k=1, l2=10.0 * rule(classify, 1, 40, len(train))).fit(X[train], y[train])
    assert table["split0_test_score"][2] == pytest.approx(-mean_loss(model, X[test], y[test]), rel=1e-6)


@pytest.mark.parametrize("l2s", ["magic", [], [-1.0], [np.nan], [0.1, np.inf], [True], ["0.1"], {"a": 1}])
def test_ridges_that_cannot_be_are_refused(l2s):
    X, y, folds = data(False)
    with pytest.raises(ValueError, match=r"l2s must be 'auto', finite numbers of at least 0 such as .*, got "):
        searcher(False, l2s=l2s, cv=folds).fit(X, y)


def test_multiples_of_no_ridge_are_refused():
    X, y, folds = data(False)
    with pytest.raises(ValueError, match=r"l2s='auto' tries multiples of the estimator's l2, got l2=0\.0; give"):
        searcher(False, l2s="auto", estimator=KSparseRegressor(l2=0.0), cv=folds).fit(X, y)
    search = searcher(False, l2s="auto", estimator=KSparseRegressor(l2=0.5), cv=folds).fit(X, y)
    np.testing.assert_allclose(search.cv_results_["l2"], np.tile([0.05, 0.5, 5.0, 50.0], 4))
    search = searcher(False, l2s=0.5, cv=folds).fit(X, y)  # a single number
    assert search.l2_ == 0.5


def test_a_score_that_is_not_finite_names_the_pair():
    X, y, folds = data(False)
    with pytest.raises(ValueError, match=r"scoring gave nan for k = 1, l2 = 0.25 on fold 0; use another one"):
        searcher(False, l2s=[0.25, 1.0], cv=folds, scoring=lambda model, X, y: np.nan).fit(X, y)


def test_threads_change_nothing():
    X, y, folds = data(False)
    one, two = (searcher(False, l2s="auto", cv=folds, n_jobs=jobs).fit(X, y) for jobs in (None, 2))
    for name, column in one.cv_results_.items():
        np.testing.assert_array_equal(column, two.cv_results_[name])
