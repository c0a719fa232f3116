"""The certificate of a fit: what is certain of it, and what is not."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.exceptions import ConvergenceWarning

from ksparse import HTSVRG, KSparseClassifier, KSparseRegressor


def test_certificates_say_what_is_certain():
    X, y = load_diabetes(return_X_y=True)
    certificate = KSparseRegressor(k=4).fit(X, y).certificate_
    assert certificate.verdict == "swap-optimal"
    assert certificate.exact
    assert "no exchange of a chosen feature for another lowers the objective," in str(certificate)
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    model = KSparseRegressor(k=4).fit(X, y)
    curvature = np.linalg.eigvalsh(Z[:, model.support_].T @ Z[:, model.support_] / len(y)) + model.l2_
    assert (certificate.alpha, certificate.L) == pytest.approx((curvature[0], curvature[-1]))
    without = [
        KSparseRegressor(k=3, l2=model.l2_).fit(np.delete(X[:, model.support_], j, axis=1), y).objective_
        for j in range(4)
    ]
    assert certificate.least_worth == pytest.approx(min(without) - model.objective_)
    assert certificate.to_dict()["verdict"] == "swap-optimal"


def test_certificates_say_what_is_not():
    X, y = load_breast_cancer(return_X_y=True)
    with pytest.warns(ConvergenceWarning):
        model = KSparseClassifier(k=4, solver=HTSVRG(stages=1), random_state=0).fit(X, y)
    assert model.certificate_.verdict == "unfinished"
    assert model.certificate_.fall > 0
    found = KSparseClassifier(k=4, solver=HTSVRG(tol=1e-9, stages=1000), random_state=0).fit(X, y)
    assert found.certificate_.verdict == "stationary"  # it does not look at exchanges
    assert "other features may do better" in str(found.certificate_)
