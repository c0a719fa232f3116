"""What an estimator says of a table that holds no numbers: which column, which row, and what to do."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array
from sklearn.utils.validation import validate_data

from ksparse import KSparseClassifier, KSparseRegressor, KSparseRegressorCV, KSparseSelector, k_path, support_stability
from ksparse.estimators import tables

N = 20
MISSING = r"X: the value in row 3, column 'city' is missing \(NaN\); impute it"
DATES = r"X: column 'city' holds dates or times \(.*\), not numbers; turn dates into numbers first"
TEXT = r"X: 'Bern' stands in row 3, column 'city', which must hold numbers; encode it"


def table(column=None):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.standard_normal(N), "city": rng.standard_normal(N)})
    return frame if column is None else frame.assign(city=column)


def with_value(value):
    return pd.Series([1.5, *[2.5] * 2, value, *[3.5] * (N - 4)], dtype=object)


BAD = {
    "text": (table(with_value("Bern")), TEXT),
    "all text": (table(["1"] * 3 + ["Bern"] * (N - 3)), TEXT),
    "category": (table(pd.Categorical(["1"] * 3 + ["Bern"] * (N - 3))), TEXT),
    "missing": (table(with_value(np.nan).astype(float)), MISSING),
    "none": (table(with_value(None)), MISSING),
    "not there": (table(pd.array([1, 2, 3, None] * (N // 4), dtype="Int64")), MISSING),
    "infinite": (table(with_value(-np.inf).astype(float)), "row 3, column 'city' is -inf: numbers must be finite"),
    "too large": (table(with_value(10**400)), r"row 3, column 'city' is 10*\.\.\.: numbers must be finite"),
    "dates": (table(pd.date_range("2020-01-01", periods=N)), DATES),
    "nothing but dates": (table(pd.date_range("2020-01-01", periods=N))[["city"]], DATES),
    "zones": (table(pd.date_range("2020-01-01", periods=N, tz="UTC")), DATES),
    "durations": (table(pd.to_timedelta(np.arange(N), unit="D")), DATES),
    "periods": (table(pd.period_range("2020-01-01", periods=N)), "2020-01-01 stands in row 0, column 'city'"),
    "days": (table([day.date() for day in pd.date_range("2020-01-01", periods=N)]), "2020-01-01 stands in row 0"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_column_is_named_with_its_row_and_the_remedy(name):
    frame, words = BAD[name]
    y = np.arange(N, dtype=float)
    fitted = KSparseRegressor(k=1).fit(table()[frame.columns], y)
    for call in (
        lambda: KSparseRegressor(k=1).fit(frame, y),
        lambda: KSparseRegressor(k=1, standardize=False).fit(frame, y),
        lambda: KSparseClassifier(k=1).fit(frame, y > 9),
        lambda: KSparseRegressor(k=1).partial_fit(frame, y),
        lambda: KSparseRegressorCV([1], cv=2).fit(frame, y),
        lambda: KSparseSelector(k=1).fit(frame, y),
        lambda: k_path(frame, y, [1]),
        lambda: support_stability(frame, y, n_resamples=2),
        lambda: fitted.predict(frame),
    ):
        with pytest.raises(ValueError, match=words):
            call()


@pytest.mark.parametrize("name", ["all text", "missing", "dates", "nothing but dates"])
def test_arrow_tables_are_read_alike(name):
    arrow = pytest.importorskip("pyarrow")
    frame, words = BAD[name]
    with pytest.raises(ValueError, match=words):
        KSparseRegressor(k=1).fit(arrow.Table.from_pandas(frame), np.arange(N))


def test_the_index_is_named_where_it_says_more():
    frame = table(with_value(np.nan).astype(float)).set_index(pd.Index([f"day {i}" for i in range(N)]))
    model = KSparseRegressor(k=1).fit(table(), np.arange(N))
    with pytest.raises(ValueError, match=r"row 3 \(index 'day 3'\), column 'city' is missing"):
        model.predict(frame)


def test_arrays_and_targets_are_named_too():
    X, y = table().to_numpy().copy(), np.arange(N, dtype=float)
    for bad in (np.nan, np.inf):
        X[7, 1] = bad
        for rows in (X, X.astype(np.float32), csr_array(X), csr_array(X.astype(np.float32))):
            for model in (KSparseRegressor(k=1), KSparseRegressor(k=1, standardize=False)):
                with pytest.raises(ValueError, match="X: the value in row 7, column 1 is"):
                    model.fit(rows, y)
    with pytest.raises(ValueError, match="X: 'a' stands in row 0, column 1"):
        KSparseRegressor(k=1).fit([[1.0, "a"]] * N, y)
    with pytest.raises(ValueError, match="X holds dates or times"):
        KSparseRegressor(k=1).fit(np.zeros((N, 2), "datetime64[D]"), y)
    with pytest.raises(ValueError, match=r"y: the value in row 2 is missing \(NaN\)"):
        KSparseRegressor(k=1).fit(table(), [1.0, 2.0, np.nan] + [3.0] * (N - 3))
    with pytest.raises(ValueError, match="y: 'high' stands in row 0, which must hold numbers"):
        KSparseRegressor(k=1).fit(table(), pd.Series(["high"] * N))


def test_other_errors_stay_what_they_are():
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        KSparseClassifier(k=1).fit(table(), ["a", "b"] * 3)
    with pytest.raises(ValueError, match="feature names"):
        KSparseRegressor(k=1).fit(table(), np.arange(N)).predict(table().rename(columns={"age": "x"}))
    with pytest.raises(ValueError, match="Complex data not supported"):
        KSparseRegressor(k=1).fit(table(1j * np.arange(N)), np.arange(N))
    assert KSparseRegressor(k=1).fit(table(["1.5", "2.5"] * (N // 2)), np.arange(N)).k_ == 1  # numbers, if as text


# --- plain arrays ----------------------------------------------------------------------------------------------------
A, B = np.arange(12.0).reshape(4, 3), np.arange(4.0)
PAIRS = {  # X, y, whether scikit-learn's checks would change nothing
    "floats": (A, B, True),
    "single precision": (A.astype(np.float32), B.astype(np.float32), True),
    "whole numbers": (A, np.arange(4), True),
    "booleans": (A, B > 1, True),
    "read-only": (np.frombuffer(A.tobytes()).reshape(4, 3), B, True),
    "columns first": (np.asfortranarray(A), B, False),
    "every second row": (np.repeat(A, 2, axis=0)[::2], B, False),
    "X of whole numbers": (A.astype(int), B, False),
    "other byte order": (A.astype(">f8"), B, False),
    "half precision": (A.astype(np.float16), B, False),
    "a subclass": (A.view(np.recarray), B, False),
    "lists": (A.tolist(), B, False),
    "targets in other byte order": (A, B.astype(">f8"), False),
    "a column of targets": (A, B[:, np.newaxis], False),
    "text": (A, np.array(list("abab")), False),
    "objects": (A, np.array(list("abab"), dtype=object), False),
    "too few targets": (A, B[:3], False),
    "no rows": (A[:0], B[:0], False),
    "no columns": (A[:, :0], B, False),
    "not finite": (np.where(A == 5.0, np.nan, A), B, False),
    "infinite": (np.where(A == 5.0, np.inf, A), B, False),
    "a target that is not finite": (A, np.where(B == 1.0, np.nan, B), False),
    "a sum that overflows": (np.full((4, 3), 1e308), B, False),
    "no targets": (A, None, False),
}


@pytest.mark.parametrize("kind", PAIRS)
def test_plain_arrays_are_those_that_scikit_learn_would_leave_alone(kind):
    X, y, plain = PAIRS[kind]
    assert tables._is_plain(KSparseRegressor(), X, y, order="C", y_numeric=True) is plain
    if plain:
        expected, ours = KSparseRegressor(), KSparseRegressor()
        ours.feature_names_in_ = np.array(["of", "another", "fit"])
        settings = {"accept_sparse": "csr", "dtype": [np.float64, np.float32], "order": "C", "y_numeric": True}
        for found in (validate_data(expected, X, y, **settings), tables.check_rows(ours, X, y, order="C")):
            for given, checked in zip((X, y), found, strict=True):
                assert np.shares_memory(given, checked)
                assert (checked.dtype, checked.shape) == (given.dtype, given.shape)
        assert vars(ours) == vars(expected)
    fitted = KSparseRegressor(1).fit(A, B)
    assert tables._is_plain(fitted, A, "no_validation", reset=False)
    assert not tables._is_plain(fitted, A[:, :2].copy(), "no_validation", reset=False)
    assert not tables._is_plain(fitted, A, B, ensure_min_samples=5)
    fitted.feature_names_in_ = np.array(["a", "b", "c"])
    assert not tables._is_plain(fitted, A, "no_validation", reset=False)  # scikit-learn warns
