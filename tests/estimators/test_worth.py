"""What a feature is worth: the objective of an independent refit without it, for every loss and every kind of model."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import optimize, sparse
from scipy.special import logsumexp
from sklearn.datasets import load_breast_cancer, load_iris, load_wine
from sklearn.exceptions import ConvergenceWarning

from ksparse import HTSVRG, PGD, KSparseClassifier, KSparseClassifierCV, KSparseRegressor, k_path, load
from ksparse.estimators import certificate, worth
from ksparse.losses import resolve

# value and derivative of a row, by NumPy alone
LOSSES = {
    "squared": (lambda z, y: 0.5 * (z - y) ** 2, lambda z, y: z - y),
    "huber": (
        lambda z, y: np.where(abs(z - y) <= 1.35, 0.5 * (z - y) ** 2, 1.35 * (abs(z - y) - 0.675)),
        lambda z, y: np.clip(z - y, -1.35, 1.35),
    ),
    "poisson": (lambda z, y: np.exp(z) - y * z, lambda z, y: np.exp(z) - y),
    "gamma": (lambda z, y: y * np.exp(-z) + z, lambda z, y: 1.0 - y * np.exp(-z)),
    "logistic": (lambda z, y: np.logaddexp(0.0, -y * z), lambda z, y: -y / (1.0 + np.exp(y * z))),
    "squared_hinge": (
        lambda z, y: np.maximum(0.0, 1.0 - y * z) ** 2,
        lambda z, y: -2.0 * y * np.maximum(0.0, 1.0 - y * z),
    ),
}


def least(loss, Z, Y, *, weight, offset, l2, intercept, positive=False):
    """The least objective on all columns of Z, by SciPy's L-BFGS-B."""
    n, p = Z.shape
    outputs = int(Y.max()) + 1 if loss == "softmax" else Y.shape[1] if Y.ndim == 2 else 1
    B = np.column_stack([Z, np.full(n, float(intercept))])
    share = weight * n / weight.sum()

    def objective(v):
        v = v.reshape(outputs, p + 1)
        z = B @ v.T + offset
        if loss == "softmax":
            probability = np.exp(z - logsumexp(z, axis=1, keepdims=True))
            value, slope = logsumexp(z, axis=1) - z[np.arange(n), Y], probability - np.eye(outputs)[Y]
        else:
            target = Y.reshape(n, -1)
            value, slope = LOSSES[loss][0](z, target).sum(axis=1), LOSSES[loss][1](z, target)
        gradient = (share[:, None] * slope).T @ B / n
        gradient[:, :p] += l2 * v[:, :p]
        return share @ value / n + 0.5 * l2 * np.sum(v[:, :p] ** 2), gradient.ravel()

    bounds = ([(0.0 if positive else None, None)] * p + [(None, None)]) * outputs
    found, options = np.zeros(outputs * (p + 1)), {"maxiter": 4000, "ftol": 1e-15, "gtol": 1e-10}
    for _ in range(3):
        found = optimize.minimize(objective, found, jac=True, method="L-BFGS-B", bounds=bounds, options=options).x
    return objective(found)[0]


def data(loss, n=160, d=7, seed=0):
    """Columns that are correlated, of different units, and targets for a loss."""
    rng = np.random.default_rng(seed)
    X = (rng.standard_normal((n, d)) @ (np.eye(d) + 0.4 * rng.standard_normal((d, d)))) * np.geomspace(0.1, 10, d) + 3.0
    z = (X - X.mean(axis=0)) / X.std(axis=0) @ np.linspace(1.0, -0.7, d)
    y = {
        "poisson": rng.poisson(np.exp(0.4 * z)).astype(float),
        "gamma": np.exp(0.4 * z) * (1.0 + 0.5 * np.sin(9.0 * z)),
        "logistic": rng.random(n) < 1.0 / (1.0 + np.exp(-z)),
        "squared_hinge": z + rng.standard_normal(n) > 0,
        "softmax": np.argmax(np.column_stack([z, -z, 0.5 * X[:, 2] / X[:, 2].std()]) + rng.gumbel(size=(n, 3)), axis=1),
        "targets": np.column_stack([z, 2.0 * z - X[:, 1], X[:, 4]]) + rng.standard_normal((n, 3)),
    }.get(loss, z + rng.standard_t(3, n))
    return X, y, rng


def check(model, X, y, *, weight=None, offset=None, groups=None):
    """`feature_worth_` of a fitted model against refits."""
    n, S = len(X), model.support_
    weight = np.ones(n) if weight is None else weight
    loss, target = model.loss, y
    if isinstance(model, KSparseClassifier):
        target = np.where(y, 1.0, -1.0) if len(model.classes_) == 2 else y
        loss = "softmax" if model.multi_class_ == "softmax" else loss
    share = weight / weight.sum()
    Z = X[:, S].copy()
    if model.standardize:
        centre = share @ Z if model.fit_intercept else 0.0
        Z = (Z - centre) / np.sqrt(share @ (Z - centre) ** 2)
    shift = 0.0 if offset is None else offset.reshape(n, -1)
    unit, zero = getattr(model, "unit_", 1.0), 0.0
    if loss == "huber":
        zero = (np.median(y) if weight.min() == weight.max() else None) if model.fit_intercept else 0.0
        zero = 0.0 if zero is None else zero  # the intercept takes it up
        target, shift = (y - zero) / unit, shift / unit
    settings = {"weight": weight, "offset": shift, "l2": model.l2_, "intercept": model.fit_intercept}
    settings["positive"] = model.positive
    assert model.objective_ == pytest.approx(least(loss, Z, target, **settings), rel=1e-5)
    labels = np.arange(X.shape[1]) if groups is None else np.asarray(groups)
    kept = set(model.kept_.tolist())
    for at, j in enumerate(S):
        out = [i for i, other in enumerate(S) if i == at or (labels[other] == labels[j] and not {j, other} & kept)]
        rise = least(loss, np.delete(Z, out, axis=1), target, **settings) - model.objective_
        assert model.feature_worth_[j] == pytest.approx(max(rise, 0.0), rel=2e-4, abs=1e-6 * abs(model.objective_))
    assert not np.delete(model.feature_worth_, S).any()
    if np.atleast_2d(model.coef_).shape[0] == 1:
        np.testing.assert_array_equal(np.atleast_2d(model.worth_)[0], model.feature_worth_)
    chosen = [j for j in S if j not in kept]
    assert model.certificate_.least_worth == pytest.approx(model.feature_worth_[chosen].min())


def estimator(loss, **settings):
    kind = KSparseClassifier if loss in ("logistic", "squared_hinge") else KSparseRegressor
    return kind(k=settings.pop("k", 4), loss=loss, **settings)


GROUPS = [0, 0, 1, 1, 2, 2, 3]
VARIANTS = {
    "plain": {},
    "no intercept": {"fit_intercept": False},
    "as they are": {"standardize": False, "l2": 0.01},
    "no ridge": {"l2": 0.0},
    "kept": {"always_keep": [1, 6]},
    "positive": {"positive": True, "solver": PGD(tol=1e-12)},
    "groups": {"groups": GROUPS, "k": 2},
    "groups, kept": {"groups": GROUPS, "k": 2, "always_keep": [1]},
}


def _cases():
    """Every loss with every variant; PGD compiles for seconds."""
    for loss in LOSSES:
        for variant in VARIANTS:
            slow = variant == "positive" and loss not in ("squared", "logistic")
            yield pytest.param(loss, variant, marks=[pytest.mark.long] if slow else [])


@pytest.mark.parametrize(("loss", "variant"), list(_cases()))
def test_worth_is_what_a_refit_says(loss, variant):
    X, y, _ = data(loss)
    settings = VARIANTS[variant]
    check(estimator(loss, **settings).fit(X, y), X, y, groups=settings.get("groups"))


@pytest.mark.parametrize("loss", LOSSES)
def test_refits_respect_a_sign_constraint(loss):
    X, y, rng = data(loss)
    y = np.where(y, 1.0, -1.0) if y.dtype == bool else y
    weight = rng.random(len(y)) + 0.5
    weight /= weight.mean()
    Z = (X - weight @ X / len(y)) / X.std(axis=0)
    refits = worth.LeaveOutRefits(worth.OneOutput(resolve(loss), y, weight), Z, 0.0, 0.01, True, positive=True)
    x, constant = refits.best(np.zeros((1, 7)), np.zeros(1))
    assert (x >= 0).all()
    assert 0 < np.count_nonzero(x) < 7  # the constraint is felt
    settings = {"weight": weight, "offset": 0.0, "l2": 0.01, "intercept": True, "positive": True}
    floor = least(loss, Z, y, **settings)
    groups = [np.array([j]) for j in range(7)] + [np.array([0, 2, 3])]
    rises = [least(loss, np.delete(Z, group, axis=1), y, **settings) - floor for group in groups]
    np.testing.assert_allclose(refits.rises(x, constant, groups), rises, rtol=1e-3, atol=1e-6 * abs(floor))
    assert np.count_nonzero(np.array(rises) > 1e-3 * abs(floor)) > 1


@pytest.mark.parametrize("loss", LOSSES)
def test_weights_and_offsets_are_respected(loss):
    X, y, rng = data(loss)
    weight = rng.integers(0, 4, len(y)).astype(float)
    check(estimator(loss).fit(X, y, sample_weight=weight), X, y, weight=weight)
    if loss not in ("logistic", "squared_hinge"):
        offset = 0.3 * rng.standard_normal(len(y))
        check(estimator(loss).fit(X, y, offset=offset), X, y, offset=offset)
        grouped = estimator(loss, groups=GROUPS).fit(X, y, offset=offset)
        check(grouped, X, y, offset=offset, groups=GROUPS)


@pytest.mark.parametrize("variant", ["plain", "no intercept", "kept", "groups", "groups, kept"])
@pytest.mark.parametrize("kind", ["softmax", "targets"])
def test_worth_of_several_outputs_is_one_number_per_feature(kind, variant):
    X, y, rng = data(kind)
    settings = {"k": 4, **VARIANTS[variant]}
    model = (KSparseClassifier if kind == "softmax" else KSparseRegressor)(**settings)
    weight = rng.random(len(y)) + 0.5
    check(model.fit(X, y, sample_weight=weight), X, y, weight=weight, groups=settings.get("groups"))
    assert model.worth_.shape == model.coef_.shape
    if (
        kind == "targets" and "groups" not in settings
    ):  # given their features, targets have nothing to do with each other
        np.testing.assert_allclose(model.worth_.sum(axis=0), model.feature_worth_, rtol=1e-6)


def test_one_against_the_rest_is_a_model_for_each_class():
    X, y, _ = data("softmax")
    model = KSparseClassifier(k=3, multi_class="ovr").fit(X, y)
    np.testing.assert_allclose(model.feature_worth_, model.worth_.sum(axis=0))
    for c in range(3):
        alone = KSparseClassifier(k=3).fit(X, y == c)
        np.testing.assert_allclose(model.worth_[c], alone.feature_worth_, rtol=1e-6, atol=1e-12)
    assert "in that class" in str(model.summary())


def test_numbers_that_were_wrong():
    """The quadratic estimate said 0.102, 0.0487 and 1.7e-9."""
    X, y = load_breast_cancer(return_X_y=True)
    assert KSparseClassifier(k=1).fit(X, y).feature_worth_.max() == pytest.approx(0.467, abs=5e-4)
    assert KSparseClassifier(k=3).fit(X, y).feature_worth_.max() == pytest.approx(0.0822, abs=5e-5)
    model = KSparseClassifier(k=1, l2=0.0).fit(np.column_stack([X[:, :3], y]), y)
    share = y.mean()
    empty = -(share * np.log(share) + (1 - share) * np.log(1 - share))
    assert model.feature_worth_[3] == pytest.approx(empty - model.objective_, rel=1e-6)
    assert empty == pytest.approx(0.66, abs=1e-3)


def test_columns_that_separate_without_a_ridge_have_finite_worth():
    """Without one of two separating columns the other still separates: the infimum stays 0, and nothing is attained."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 4))
    y = X[:, 0] + X[:, 1] > 0
    X = np.column_stack([X, np.where(y, 1.0, -1.0), np.where(y, 2.0, -1.0) + 0.01 * rng.standard_normal(60)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = KSparseClassifier(k=3, l2=0.0, always_keep=[4, 5]).fit(X, y)
    assert np.isfinite(model.feature_worth_).all()
    assert model.feature_worth_.max() < 1e-3


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("l2", [0.0, 0.03])
def test_a_formula_says_it_for_the_squared_loss(l2, intercept):
    """Against least squares, also where columns are combinations of others."""
    rng = np.random.default_rng(3)
    A = rng.standard_normal((50, 5))
    X = np.column_stack([A, A[:, 0], A[:, 1] - 2.0 * A[:, 2]]) + 1.0
    y = X @ rng.standard_normal(7) + rng.standard_normal(50)
    model = KSparseRegressor(k=7, l2=l2, fit_intercept=intercept, standardize=False).fit(X, y)

    def objective(columns):
        B = np.vstack([X[:, columns], np.sqrt(50 * l2) * np.eye(len(columns))])
        B = np.column_stack([B, np.append(np.full(50, float(intercept)), np.zeros(len(columns)))])
        target = np.append(y, np.zeros(len(columns)))
        return 0.5 * np.sum((target - B @ np.linalg.lstsq(B, target, rcond=1e-10)[0]) ** 2) / 50

    used = model.support_.tolist()
    for j in used:
        rise = objective([i for i in used if i != j]) - model.objective_
        assert model.feature_worth_[j] == pytest.approx(rise, rel=1e-6, abs=1e-8)


def test_an_unfinished_model_is_compared_as_it_is():
    X, y, _ = data("logistic")
    with pytest.warns(ConvergenceWarning):
        model = KSparseClassifier(k=4, solver=HTSVRG(stages=1), random_state=0).fit(X, y)
    assert (model.feature_worth_ >= 0).all()
    Z = ((X - X.mean(axis=0)) / X.std(axis=0))[:, model.support_]
    settings = {"weight": np.ones(len(y)), "offset": 0.0, "l2": model.l2_, "intercept": True}
    signs = np.where(y, 1.0, -1.0)
    assert least("logistic", Z, signs, **settings) < model.objective_
    for at, j in enumerate(model.support_):
        rise = least("logistic", np.delete(Z, at, axis=1), signs, **settings) - model.objective_
        assert model.feature_worth_[j] == pytest.approx(max(rise, 0.0), rel=1e-3, abs=1e-7)


def test_sparse_rows_and_blocks_are_dense_rows():
    from ksparse.sources import Blocks

    X, y, _ = data("logistic")
    dense = KSparseClassifier(k=3).fit(X, y)
    for other in (sparse.csr_array(X), Blocks([X[:50], X[50:]])):
        np.testing.assert_allclose(KSparseClassifier(k=3).fit(other, y).feature_worth_, dense.feature_worth_, rtol=1e-4)


# --- many rows -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", ["logistic", "softmax"])
def test_many_rows_start_from_refits_on_some(monkeypatch, kind):
    X, y, _ = data(kind, n=2000)
    plain = KSparseClassifier(k=4).fit(X, y)
    monkeypatch.setattr(worth, "SAMPLE", 400)
    monkeypatch.setattr(worth, "MAX_NUMBERS", 5000)  # in batches too
    some = KSparseClassifier(k=4).fit(X, y)
    np.testing.assert_allclose(some.feature_worth_, plain.feature_worth_, rtol=1e-3)


def test_some_rows_may_lack_a_column(monkeypatch):
    """The Hessian of some rows knows nothing of a column that is zero there; the derivatives of all rows do."""
    X, y, rng = data("logistic", n=400)
    X[:, 6] = 0.0
    X[rng.choice(400, 12, replace=False), 6] = 1.0
    settings = {"k": 3, "always_keep": [6], "standardize": False, "l2": 0.0, "fit_intercept": False}
    plain = KSparseClassifier(**settings).fit(X, y)
    monkeypatch.setattr(worth, "SAMPLE", 20)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        some = KSparseClassifier(**settings).fit(X, y)
    np.testing.assert_allclose(some.feature_worth_, plain.feature_worth_, rtol=0.02, atol=1e-6)


@pytest.mark.parametrize("rare", [False, True])
def test_of_very_many_rows_a_sample_is_enough_and_the_table_says_so(monkeypatch, tmp_path, rare):
    X, y, rng = data("logistic", n=20_000)
    y = y & (rng.random(y.size) < 0.03) if rare else y
    plain = KSparseClassifier(k=4).fit(X, y)
    assert plain.worth_rows_ == 20_000
    monkeypatch.setattr(certificate, "MAX_ROWS", 4000)
    some = KSparseClassifier(k=4).fit(X, y)
    assert 2000 < some.worth_rows_ <= 4000
    np.testing.assert_allclose(some.feature_worth_, plain.feature_worth_, rtol=0.1)
    words = f"estimated from {some.worth_rows_:,} of 20,000 rows"
    assert words in str(some.summary())
    some.save(tmp_path / "model.json")
    assert words in str(load(tmp_path / "model.json").summary())
    np.testing.assert_array_equal(KSparseClassifier(k=4).fit(X, y).feature_worth_, some.feature_worth_)


def test_a_bounded_fit_of_everything_is_the_fit_itself():
    """Refits without nothing give what the model has."""
    X, y, _ = data("poisson")
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    refits = worth.LeaveOutRefits(worth.OneOutput(resolve("poisson"), y, np.ones(len(y))), Z, 0.0, 0.01, True)
    x, constant = refits.best(np.zeros((1, 7)), np.zeros(1))
    assert refits.rises(x, constant, [np.empty(0, np.int64)])[0] == pytest.approx(0.0, abs=1e-9)


# --- where it is shown -----------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def grouped():
    X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    groups = {name: " ".join(name.split()[1:]) if name.startswith(("mean", "worst")) else name for name in X.columns}
    return KSparseClassifier(k=3, groups=groups, always_keep=["radius error"]).fit(X, np.array(["bad", "good"])[y])


def test_one_row_for_each_group(grouped, tmp_path):
    summary = grouped.summary()
    assert len(summary.rows) == 4  # three groups, and the column that is always kept
    columns = grouped.support_.size - 1
    assert f"3 of 19 groups ({columns} columns, and 1 always kept)" in summary.title
    assert {row[1] for row in summary.rows} == {*grouped.groups_, "radius error"}
    text = str(summary)
    assert "radius error (always kept)" in text
    assert "A positive coefficient speaks for class good." in text
    assert "without the group (the others refitted)" in text
    for (_, label, weights, shown), names in zip(summary.rows, summary.columns, strict=True):
        at = [list(grouped.feature_names_in_).index(name) for name in names]
        np.testing.assert_allclose(np.atleast_1d(weights), grouped.coef_[0, at])
        np.testing.assert_allclose(grouped.feature_worth_[at], shown)
        assert label in text
    page = summary._repr_html_()
    assert "always kept" in page
    assert "speaks for class good" in page
    grouped.save(tmp_path / "model.json")
    loaded = load(tmp_path / "model.json")
    assert str(loaded.summary()) == text
    np.testing.assert_array_equal(loaded.feature_worth_, grouped.feature_worth_)
    np.testing.assert_array_equal(loaded.kept_, grouped.kept_)
    loaded.save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_text() == (tmp_path / "model.json").read_text()


def test_a_group_of_many_columns_is_a_range():
    X, y, _ = data("squared")
    text = str(KSparseRegressor(k=1, groups=["a"] * 5 + ["b"] * 2).fit(X, y).summary())
    assert "1 of 2 groups (5 columns)" in text
    assert "5 from " in text


def test_softmax_tables_show_the_worth_in_all_classes():
    X, y = load_wine(return_X_y=True)
    model = KSparseClassifier(k=2).fit(X, y)
    for _, name, _, shown in model.summary().rows:
        assert shown == model.feature_worth_[int(name[1:])]
    assert "without the feature in all classes (the others refitted)" in str(model.summary())
    assert model.summary().positive is None


def test_older_files_say_that_they_hold_estimates(tmp_path):
    X, y = load_iris(return_X_y=True)
    for model in (KSparseClassifier(k=2).fit(X, y), KSparseClassifier(k=2).fit(X, y > 0)):
        model.save(tmp_path / "model.json")
        content = json.loads((tmp_path / "model.json").read_text())
        for name in ("feature_worth", "kept", "n_groups"):
            del content[name]
        (tmp_path / "model.json").write_text(json.dumps(content))
        old = load(tmp_path / "model.json")
        np.testing.assert_allclose(old.feature_worth_, np.sum(model.worth_, axis=0))
        assert "by about how much" in str(old.summary())
        assert "older version" in str(old.summary())
        old.save(tmp_path / "again.json")  # and it stays so
        assert "older version" in str(load(tmp_path / "again.json").summary())
    squared = KSparseRegressor(k=2).fit(X, y)
    squared.save(tmp_path / "model.json")
    content = json.loads((tmp_path / "model.json").read_text())
    del content["feature_worth"]
    (tmp_path / "model.json").write_text(json.dumps(content))
    assert str(load(tmp_path / "model.json").summary()) == str(squared.summary())  # they were exact


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m["feature_worth"].update(columns=[0]), "the columns in use"),
        (lambda m: m["feature_worth"]["worth"].pop(), "a number of at least 0"),
        (lambda m: m["feature_worth"]["worth"].__setitem__(0, -1.0), "a number of at least 0"),
        (lambda m: m["feature_worth"].update(rows=0), "how many rows"),
        (lambda m: m["feature_worth"].update(groups=None), "the group of its columns"),
        (lambda m: m["feature_worth"]["groups"].__setitem__(0, 99), "the group of its columns"),
        (lambda m: m.update(kept=[30]), "kept must be"),
        (lambda m: m.update(n_groups=1), "n_groups must"),
    ],
)
def test_malformed_worths_are_refused(grouped, tmp_path, change, message):
    grouped.save(tmp_path / "model.json")
    content = json.loads((tmp_path / "model.json").read_text())
    change(content)
    (tmp_path / "model.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match=message):
        load(tmp_path / "model.json")


def test_paths_and_cross_validation_carry_it():
    X, y, _ = data("logistic")
    path = k_path(X, y, [1, 3], KSparseClassifier())
    chosen = KSparseClassifierCV([3], cv=3).fit(X, y)
    np.testing.assert_allclose(path.models[1].feature_worth_, chosen.feature_worth_, rtol=1e-4)
    assert str(chosen.summary()) == str(chosen.estimator_.summary())


def test_pictures_and_pages_show_the_same(grouped):
    pytest.importorskip("matplotlib", reason="figures need the report extra")
    from ksparse.report import fit_page

    ax = grouped.plot()
    names = [label.get_text() for label in ax.get_yticklabels()]
    assert "radius error (always kept)" in names
    assert ax.get_title().startswith("3 of 19 groups (")
    page = fit_page(grouped, data="cells", rows=569, target="kind")
    assert "3 of 19 groups (" in page
    assert "always kept" in page
    assert "without the group (the others refitted)" in page
    X, y = load_wine(return_X_y=True)
    model = KSparseClassifier(k=2).fit(pd.DataFrame(X).rename(columns=str), y)
    page = fit_page(model, data="wine", rows=178, target="kind")
    for value in model.feature_worth_[model.support_]:
        assert page.count(f"<span>{value:.3g}</span>") == 4  # once in all, and beside each class
