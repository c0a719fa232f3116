"""What helps to choose and to trust a model: the support over resamples, classes in threads, chosen models as files."""

from __future__ import annotations

import threading
import warnings

import numpy as np
import pytest
from sklearn.datasets import load_digits, load_iris
from sklearn.exceptions import ConvergenceWarning

from ksparse import HTSVRG, Exchange, KSparseClassifier, KSparseRegressor


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
        np.testing.assert_array_equal(model.coef_, models[0].coef_)
        np.testing.assert_array_equal(model.worth_, models[0].worth_)
        assert model.k_ == 4
        assert model.status_ == models[0].status_


def test_classes_are_learned_in_threads():
    X, y = load_digits(return_X_y=True)
    seen = []
    meet = threading.Barrier(2, timeout=20)  # both threads must be under way at once

    def note(progress):
        if threading.get_ident() not in seen:
            seen.append(threading.get_ident())
            meet.wait()

    KSparseClassifier(k=2, n_jobs=2, callback=note).fit(X, y)
    assert len(seen) == 2
    seen = []
    KSparseClassifier(k=2, callback=lambda progress: seen.append(threading.get_ident())).fit(X, y)
    assert set(seen) == {threading.get_ident()}


@pytest.mark.parametrize("jobs", [None, 2])
def test_warnings_point_at_the_line_that_called(jobs):
    X, y = load_iris(return_X_y=True)
    regressor, classifier = (
        cls(k=3, solver=Exchange(stages=1), n_jobs=jobs) for cls in (KSparseRegressor, KSparseClassifier)
    )
    for call in (
        lambda: regressor.fit(X, X @ np.arange(4)),
        lambda: classifier.fit(X, y),
        lambda: classifier.partial_fit(X, y),
    ):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            call()
        assert caught
        for warning in caught:
            assert issubclass(warning.category, ConvergenceWarning)
            assert warning.filename == __file__
