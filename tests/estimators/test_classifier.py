"""Classifiers: labels of any kind, weights of rows and classes, and classes in threads."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from problems import three_of_eight
from sklearn.datasets import load_breast_cancer, load_digits, load_iris
from sklearn.linear_model import LogisticRegression

from ksparse import HTSVRG, KSparseClassifier


@pytest.fixture(scope="module")
def cancer():
    return load_breast_cancer(return_X_y=True, as_frame=True)


@pytest.mark.parametrize("labels", [["no", "yes"], [False, True], [3, 7], [-1.0, 1.0]])
def test_labels_of_any_kind(cancer, labels):
    X, y = cancer
    model = KSparseClassifier(k=3).fit(X, np.array(labels)[y])
    assert set(model.predict(X)) <= set(labels)
    assert model.classes_.tolist() == sorted(labels)
    assert (model.predict(X) == np.array(labels)[y]).mean() > 0.95
    assert model.coef_.shape == (1, 30)
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1.0)
    assert ((model.predict_proba(X)[:, 1] > 0.5) == (model.predict(X) == model.classes_[1])).all()


def test_several_classes_one_against_the_rest():
    X, y = load_iris(return_X_y=True)
    model = KSparseClassifier(k=2, multi_class="ovr").fit(X, y)
    assert model.coef_.shape == (3, 4)
    assert (np.count_nonzero(model.coef_, axis=1) <= 2).all()
    assert model.score(X, y) > 0.9
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1.0)
    assert model.decision_function(X).shape == (150, 3)
    assert str(model.summary()).count("(intercept)") == 3


def test_separable_classes_keep_their_weights():
    X = np.random.default_rng(0).standard_normal((100, 5))
    model = KSparseClassifier(k=2).fit(X, X[:, 0] > 0)
    assert model.score(X, X[:, 0] > 0) > 0.98
    assert np.abs(model.coef_).max() < 100  # the default ridge holds them
    free = KSparseClassifier(k=2, l2=0.0).fit(X, X[:, 0] > 0)
    assert np.isfinite(free.coef_).all()


def test_balanced_classes_whose_weights_differ_beyond_all_measure():
    X, y = load_breast_cancer(return_X_y=True)
    weight = np.where(y == 1, 1e300, 1e-200)
    model = KSparseClassifier(k=2, l2=1e-3, class_weight="balanced").fit(X, y, sample_weight=weight)
    assert np.array_equal(model.support_, KSparseClassifier(k=2, l2=1e-3, class_weight="balanced").fit(X, y).support_)


def test_balanced_classes_know_the_weights():
    X, y = three_of_eight()
    labels = (y > 0).astype(int)
    weight = np.where((labels == 1) & (np.arange(60) > 20), 0.0, 1.0)
    model = KSparseClassifier(8, class_weight="balanced", l2=0.01, standardize=False)
    weighted, dropped = model.fit(X, labels, sample_weight=weight).intercept_, None
    dropped = model.fit(X[weight > 0], labels[weight > 0]).intercept_
    np.testing.assert_allclose(weighted, dropped, atol=1e-8)
    share = np.count_nonzero(weight) / 60
    count = np.bincount(labels[weight > 0])
    plain = LogisticRegression(C=1 / (0.01 * 60 * share), tol=1e-10, max_iter=1000)
    plain.fit(X[weight > 0], labels[weight > 0], sample_weight=(count.sum() / (2 * count))[labels[weight > 0]])
    np.testing.assert_allclose(weighted, plain.intercept_, atol=1e-5)


def test_the_default_ridge_counts_rows_by_weight():
    X, y = three_of_eight()
    one, many = (KSparseClassifier(3).fit(X, y > 0, sample_weight=np.full(60, s)).l2_ for s in (1.0, 1.0 + 1e-9))
    assert one == pytest.approx(many)
    twice = KSparseClassifier(3).fit(np.vstack([X, X]), np.r_[y, y] > 0)
    assert KSparseClassifier(3).fit(X, y > 0, sample_weight=np.full(60, 2)).l2_ == pytest.approx(twice.l2_)
    weights = [KSparseClassifier(3, class_weight={False: 1, True: w}).fit(X, y > 0).l2_ for w in (10, 10.5)]
    assert weights[0] == weights[1] == pytest.approx(one)  # class weights are no rows
    assert KSparseClassifier(3).fit(X, y > 0, sample_weight=np.full(60, 1e-9)).l2_ == pytest.approx(0.1)


# --- classes in threads ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("solver", ["auto", HTSVRG(stages=3, tol=0.0)], ids=["exchange", "stochastic"])
@pytest.mark.parametrize("seed", [0, np.random.RandomState, np.random.default_rng], ids=["int", "legacy", "generator"])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_model_is_the_same_whatever_the_threads(solver, seed):
    X, y = load_digits(n_class=4, return_X_y=True)
    models = [
        KSparseClassifier(k=4, solver=solver, n_jobs=jobs, random_state=seed(7) if callable(seed) else seed).fit(X, y)
        for jobs in (None, 2, 4)
    ]
    for model in models:
        np.testing.assert_allclose(model.coef_, models[0].coef_, rtol=1e-9)
        np.testing.assert_allclose(model.worth_, models[0].worth_, rtol=1e-9)
        assert model.k_ == 4
        assert model.status_ == models[0].status_


def test_classes_are_learned_in_threads():
    X, y = load_digits(return_X_y=True)
    seen = []
    meet = threading.Barrier(2, timeout=100)  # both threads must be under way at once

    def note(progress):
        if threading.get_ident() not in seen:
            seen.append(threading.get_ident())
            meet.wait()

    KSparseClassifier(k=2, multi_class="ovr", n_jobs=2, callback=note).fit(X, y)
    assert len(seen) == 2
    seen = []
    KSparseClassifier(k=2, multi_class="ovr", callback=lambda progress: seen.append(threading.get_ident())).fit(X, y)
    assert set(seen) == {threading.get_ident()}
