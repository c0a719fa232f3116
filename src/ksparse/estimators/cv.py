"""KSparseRegressorCV and KSparseClassifierCV: k by cross-validation, the simplest model within one standard error."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, is_classifier
from sklearn.metrics import get_scorer
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from .._style import BLACK, BLUE, new_axes
from .._text import data_frame, html_table
from .._validate import check_numbers
from ..design import Design, Source, as_design
from ..result import Result
from ..solvers.exchange.folds import squared_folds
from .certificate import EXAMINED, ExaminedLater
from .classifier import KSparseClassifier, has_probabilities
from .fitting import Fitting, mean_losses
from .folds import Fold, make_folds
from .path import check_ks
from .regressor import KSparseRegressor, shares_docs
from .summary import Shown, Summary, plain, plot_method, whole_numbers
from .tables import Selected, check_weights, count_choices
from .threads import in_threads

FACTORS = (0.1, 1.0, 10.0, 100.0)  # of the ridge, with l2s="auto"
COLUMNS = ("n_features_in_", "feature_names_in_")

SHARED = (
    "coef_", "intercept_", "support_", "k_", "n_iter_", "objective_", "history_", "status_", "swap_optimal_",
    "classes_", "multi_class_", "groups_", "support_groups_", "n_groups_", "kept_", "n_rows_", "l2_", "scale_",
)  # fmt: skip


def solve_folds(whole: Fitting, fittings: Sequence[Fitting], n_jobs: int | None = None) -> list[list[list[Result]]]:
    """What `solve` gives for each of the fittings, which differ from that of all rows in weights, units and ridges.

    In one thread, fits with the squared loss share their sums over the rows.
    """
    if effective_n_jobs(n_jobs) == 1 and whole.plain:
        problems, ridges = [own.problem for own in fittings], [own.ridges for own in fittings]
        shared = squared_folds(whole.problem, problems, whole.sizes, ridges, whole.solver.effort)
        if shared is not None:
            for own, results in zip(fittings, shared, strict=True):
                own.tell(results)
            return [[results] for results in shared]
    return in_threads(Fitting.solve, [(own,) for own in fittings], n_jobs)


def _table(ks: Any, ridges: NDArray[np.float64], scores: NDArray[np.float64]) -> dict[str, NDArray[Any]]:
    """`cv_results_` from the scores (l2s, folds, ks), with one entry for every pair of k and l2."""
    pairs = scores.transpose(2, 0, 1).reshape(-1, scores.shape[1])  # (pairs, folds)
    mean, unit = pairs.mean(axis=1), np.abs(pairs).max() or 1.0
    return {
        "k": np.repeat(ks, len(ridges)),
        "l2": ridges.T.ravel(),
        **{f"split{i}_test_score": own for i, own in enumerate(pairs.T)},
        "mean_test_score": mean,
        "std_test_score": unit * (pairs / unit).std(axis=1),  # so that no square overflows
        "rank_test_score": 1 + np.searchsorted(np.sort(-mean), -mean),
    }


class _KSparseCV(ExaminedLater, Shown, BaseEstimator):
    """What both estimators share."""

    _default: type

    def __init__(
        self,
        ks: ArrayLike | None = None,
        *,
        l2s: ArrayLike | str | None = None,
        estimator: Any = None,
        cv: Any = 5,
        scoring: Any = None,
        one_standard_error: bool = True,
        n_jobs: int | None = None,
    ) -> None:
        self.ks = ks
        self.l2s = l2s
        self.estimator = estimator
        self.cv = cv
        self.scoring = scoring
        self.one_standard_error = one_standard_error
        self.n_jobs = n_jobs

    def _template(self) -> Any:
        """The model whose settings are used."""
        template = self._default() if self.estimator is None else self.estimator
        if not isinstance(template, self._default):
            raise ValueError(f"estimator must be a {self._default.__name__}, got {template!r}")
        return template

    def fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Any:
        """Choose k (and l2) by cross-validation, then fit the model on all rows.

        Parameters
        ----------
        X : array, sparse matrix, table (pandas, polars, Arrow), Dask collection or source, of shape (n, d)
        y : array of shape (n,) or, for a regressor, (n, targets)
        sample_weight : array of shape (n,), default=None
            Weights of the rows; a weight of two counts as two rows.

        Returns
        -------
        self
        """
        template = self._template()
        settings, classify = template._fresh(), is_classifier(template)
        X, y = settings._check_pairs(X, y, owner=self, ensure_min_samples=2)
        vars(settings).update({name: vars(self)[name] for name in COLUMNS if name in vars(self)})
        weight, d = check_weights(sample_weight, X), X.shape[1]
        free = count_choices(settings.groups, d, settings._names()) - settings._kept(d).size
        ks = check_ks(self.ks, max(1, free))
        tried, folds = self._tried(settings), make_folds(self.cv, y, weight, classify)
        design = as_design(X)
        whole = Fitting.begin(settings, X, settings._given(y, weight), ks, design)
        ks = np.array(whole.sizes)
        scores, results = self._scores([own._unnamed(d) for own in tried], X, y, folds, design, whole)
        ridges = np.array([whole.under(own).ridges for own in tried])
        k, l2 = self._choose(ks, ridges, scores)
        if self.l2s is not None:
            whole, results = whole.under(settings._changed(l2=l2)), None
        found = results or whole.solve()
        at = min(whole.sizes.index(k), min(map(len, found)) - 1)  # there may be fewer if the time was short
        one = replace(whole, sizes=[whole.sizes[at]], ridges=[whole.ridges[at]])
        [self.estimator_] = one.models([[own[at]] for own in found])
        for name in EXAMINED:
            self.__dict__.pop(name, None)
        for name in SHARED:
            if hasattr(self.estimator_, name):
                setattr(self, name, getattr(self.estimator_, name))
        return self

    def _tried(self, settings: Any) -> list[Any]:
        """The settings with every ridge to try, in ascending order."""
        if self.l2s is None:
            return [settings]
        if isinstance(self.l2s, str) and self.l2s == "auto":
            if settings.l2 == 0.0:
                remedy = "give numbers, or an estimator with l2='auto'"
                raise ValueError(f"l2s='auto' tries multiples of the estimator's l2, got l2={settings.l2!r}; {remedy}")
            return [settings._changed(_l2_factor=factor) for factor in FACTORS]
        try:
            values = np.unique(check_numbers(self.l2s, "l2s"))
        except ValueError:
            values = np.empty(0)
        if values.size == 0:
            raise ValueError(
                "l2s must be 'auto', finite numbers of at least 0 such as [0.01, 0.1], or None for the estimator's l2 "
                f"alone, got {self.l2s!r}"
            )
        return [settings._changed(l2=float(value)) for value in values]

    def _choose(self, ks: Any, ridges: NDArray[np.float64], scores: NDArray[np.float64]) -> tuple[int, float]:
        """The k and l2 to take, from the scores (l2s, folds, ks); sets the attributes that tell what was tried."""
        if not np.isfinite(scores).all():
            which, fold, at = np.argwhere(~np.isfinite(scores))[0]
            pair = f"k = {ks[at]}" + ("" if self.l2s is None else f", l2 = {ridges[which, at]:.4g}")
            raise ValueError(f"scoring gave {scores[which, fold, at]} for {pair} on fold {fold}; use another one")
        every, folds = np.arange(len(ks)), scores.shape[1]
        means = scores.mean(axis=1)
        own = len(means) - 1 - np.argmax(means[::-1], axis=0)  # the best l2 of every k, the largest of equal ones
        self.ks_, self.l2s_, self.scores_ = ks, ridges[own, every], scores[own, :, every].T
        self.mean_score_ = mean = means[own, every]
        self.standard_error_ = spread = np.zeros(len(ks))
        if folds > 1:  # one fold has no standard error
            unit = np.abs(scores).max() or 1.0  # so that no square overflows
            spread[:] = unit * (self.scores_ / unit).std(axis=0, ddof=1) / np.sqrt(folds)
        best = int(np.argmax(mean))
        good = mean >= mean[best] - (spread[best] if self.one_standard_error else 0.0)
        chosen = int(np.flatnonzero(good)[0])
        self.best_k_, self.best_score_ = int(ks[best]), float(mean[best])
        self.cv_results_ = _table(ks, ridges, scores)
        return int(ks[chosen]), float(self.l2s_[chosen])

    def _examine(self) -> None:
        for name in EXAMINED if hasattr(self, "estimator_") else ():
            setattr(self, name, getattr(self.estimator_, name))

    def _scores(
        self, tried: list[Any], X: Any, y: Any, folds: list[Fold], design: Design, whole: Fitting
    ) -> tuple[NDArray[np.float64], list[list[Result]] | None]:
        """The scores on the rows held out, (settings that are tried, folds, ks); and the path of all rows, if found."""
        # a fold is a set of weights, so that X is not copied; the problem of a fold serves every ridge
        first, ks = tried[0], whole.sizes
        begun = [Fitting.begin(first, X, first._given(y, fold.weight), ks, design) for fold in folds]
        every = [(fold, fitting.under(own)) for own in tried for fold, fitting in zip(folds, begun, strict=True)]
        fittings = [fitting for _, fitting in every]
        if len(tried) == 1:  # with several ridges, it is not known yet under which one
            fittings.append(whole)
        solved = solve_folds(whole, fittings, self.n_jobs)
        work = [(X, y, fold, fitting, results) for (fold, fitting), results in zip(every, solved, strict=False)]
        scores = np.array(in_threads(self._score, work, self.n_jobs)).reshape(len(tried), len(folds), len(ks))
        return scores, solved[-1] if len(tried) == 1 else None

    def _score(self, X: Any, y: Any, fold: Fold, fitting: Fitting, results: list[list[Result]]) -> Any:
        """The score of every k on the rows held out."""
        count, test = len(fitting.sizes), fold.test
        results = [own + own[-1:] * (count - len(own)) for own in results]  # what was found if the time was short
        if isinstance(X, Source) and np.unique(test).size < test.size:
            raise ValueError("cv must not hold a row out twice in one fold when rows come from a source")
        if self.scoring is None:
            return -mean_losses(fitting.given, *fitting.coefficients(results), X, test, fold.held_weight)
        test = np.sort(test) if isinstance(X, Source) else test
        held: Any = Selected(X, test) if isinstance(X, Source) else X[test]
        scorer = get_scorer(self.scoring) if isinstance(self.scoring, str) else self.scoring
        return [float(scorer(model, held, y[test])) for model in fitting.models(results)]

    def _chosen(self) -> Any:
        """The fitted model with the chosen k."""
        check_is_fitted(self)
        return self.estimator_

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the predictions of the chosen model."""
        return self._chosen().predict(X)

    def summary(self) -> Summary:
        """Return a table of the features of the chosen model: names, coefficients, and what each is worth."""
        return self._chosen().summary()

    def save(self, path: Any, *, encoding: dict[str, Any] | None = None, target: str | None = None) -> None:
        """Write the chosen model as JSON; `ksparse.load` reads it as a KSparseRegressor or KSparseClassifier.

        Parameters
        ----------
        path : str or Path
            The file to write.
        encoding : dict, default=None
            How the columns of a file became those of X (see `ksparse.sources.Files`).
        target : str, default=None
            The name of what is predicted.
        """
        self._chosen().save(path, encoding=encoding, target=target)

    def to_sklearn(self) -> Any:
        """Return the chosen model as one of scikit-learn's own, for deployment without ksparse."""
        return self._chosen().to_sklearn()

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Return the names of the chosen features."""
        return self._chosen().get_feature_names_out(input_features)

    def _draw(self, ax: Any = None) -> Any:
        """Draw the score against k, with one standard error and the chosen k."""
        check_is_fitted(self)
        ax = new_axes(ax)
        ax.errorbar(self.ks_, self.mean_score_, self.standard_error_, color=BLUE, marker="o", capsize=2, linewidth=1.5)
        ax.axvline(self.k_, color=BLACK, linewidth=1, linestyle=":")
        ax.set(xlabel="k", ylabel="minus the held-out loss" if self.scoring is None else plain(self.scoring))
        ax.set_title(f"chosen: k = {self.k_} (best mean: {self.best_k_})", fontsize=10)
        whole_numbers(ax)
        return ax

    plot = plot_method(_draw)

    def _minimized(self, X: Any, y: Any, sample_weight: Any, offset: Any) -> Any:
        return self._chosen()._minimized(X, y, sample_weight, offset)

    def to_frame(self) -> Any:
        """Return a pandas.DataFrame of the scores with one row per k, and which k was chosen."""
        check_is_fitted(self)
        columns = {"k": self.ks_, "mean_score": self.mean_score_, "standard_error": self.standard_error_}
        folds = {f"fold_{i}": scores for i, scores in enumerate(self.scores_)}
        return data_frame({**columns, **folds, "chosen": self.ks_ == self.k_})

    def _shown(self) -> tuple[list[str], list[Callable[[], Any]]]:
        tables, pictures = self._chosen()._shown()
        rows = [("k", "mean score", "±", "")]
        for k, mean, error in zip(self.ks_, self.mean_score_, self.standard_error_, strict=True):
            rows.append((f"{k}", f"{mean:.5g}", f"{error:.2g}", "chosen" if k == self.k_ else ""))
        title = f"cross-validation, {len(self.scores_)} folds: k = {self.k_} (best mean: {self.best_k_})"
        return [*tables, html_table(rows, title, ())], [*pictures, self._draw]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        template = self._template()
        tags.target_tags.multi_output = not is_classifier(template) and getattr(template, "loss", None) == "squared"
        return tags


@shares_docs(KSparseRegressor)
class KSparseRegressorCV(RegressorMixin, _KSparseCV):
    """`KSparseRegressor` with k, and the ridge if asked to, chosen by cross-validation.

    Parameters
    ----------
    ks : array of int, default=None
        The numbers of features to try; by default 1, 2, ..., 20, or up to the number of columns (or groups) if there
        are fewer.
    l2s : array of float, "auto" or None, default=None
        The ridges to try with every k; by default that of the estimator alone.  "auto" tries 0.1, 1, 10 and 100 times
        the estimator's; where that is "auto" too, each fold applies the rule to its own number of rows.
    estimator : KSparseRegressor, default=None
        The model whose other settings are used.
    cv : int, splitter of scikit-learn or list of pairs (train, test), default=5
        The folds.
    scoring : str or scorer of scikit-learn, default=None
        The score, larger is better; by default minus the mean loss on the rows held out.
    one_standard_error : bool, default=True
        Whether to take the smallest k whose score is within one standard error of the best, instead of the best k.
    n_jobs : int, default=None
        Number of threads; a fold uses one.  In one thread, least-squares folds share their passes over the rows.

    Attributes
    ----------
    ks_ : array of int
        The numbers of features that were tried.
    l2s_ : array of shape (ks,)
        For every k the ridge with the best mean score on the rows held out, the largest of equal ones; as it is for all
        rows.
    scores_ : array of shape (folds, ks)
        The score of every fold and k, with that ridge.
    mean_score_ : array of shape (ks,)
        The mean score of every k.
    standard_error_ : array of shape (ks,)
        The standard error of the mean score.
    best_k_ : int
        The k with the best mean score.
    best_score_ : float
        The best mean score.
    cv_results_ : dict of arrays
        What was tried, with one entry for every pair of k and l2: "k", "l2" (for all rows), "mean_test_score",
        "std_test_score", "rank_test_score" (1 is best), and "split0_test_score", "split1_test_score", ... of the folds.
    estimator_ : KSparseRegressor
        The model with the chosen k, fitted on all rows.  The attributes below are its own.
    k_ : int
        The chosen k.
    {coef_} {intercept_} {support_} {feature_worth_} {worth_} {worth_rows_} {groups_} {support_groups_} {n_groups_}
    {kept_} {scale_} {l2_} {n_rows_} {n_iter_} {objective_} {history_} {status_} {swap_optimal_} {certificate_}
    {n_features_in_} {feature_names_in_}

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from ksparse import KSparseRegressorCV
    >>> X, y = load_diabetes(return_X_y=True)
    >>> KSparseRegressorCV().fit(X, y).k_
    5
    """

    _default = KSparseRegressor


@shares_docs(KSparseClassifier, KSparseRegressorCV)
class KSparseClassifierCV(ClassifierMixin, _KSparseCV):
    """`KSparseClassifier` with k, and the ridge if asked to, chosen by cross-validation.

    Parameters
    ----------
    {ks} {l2s}
    estimator : KSparseClassifier, default=None
        The model whose other settings are used.
    {cv} {scoring} {one_standard_error}
    n_jobs : int, default=None
        Number of threads; a fold uses one.

    Attributes
    ----------
    {ks_} {l2s_} {scores_} {mean_score_} {standard_error_} {best_k_} {best_score_} {cv_results_}
    estimator_ : KSparseClassifier
        The model with the chosen k, fitted on all rows.  The attributes below are its own.
    k_ : int
        The chosen k.
    {coef_} {intercept_} {classes_} {multi_class_} {support_} {feature_worth_} {worth_} {worth_rows_} {groups_}
    {support_groups_} {n_groups_} {kept_} {scale_} {l2_} {n_rows_} {n_iter_} {objective_} {history_} {status_}
    {swap_optimal_} {certificate_} {n_features_in_} {feature_names_in_}

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from ksparse import KSparseClassifierCV
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = KSparseClassifierCV([1, 2, 4, 8]).fit(X, y)
    >>> model.k_ < 30 and model.score(X, y) > 0.95
    True
    """

    _default = KSparseClassifier

    def decision_function(self, X: Any) -> NDArray[Any]:
        """Return the scores of the chosen model: (n,) for two classes, (n, classes) for more."""
        return self._chosen().decision_function(X)

    @available_if(lambda model: has_probabilities(model._template()))
    def predict_proba(self, X: Any) -> NDArray[Any]:
        """Return the probabilities of the chosen model, (n, classes)."""
        return self._chosen().predict_proba(X)

    @available_if(lambda model: has_probabilities(model._template()))
    def predict_log_proba(self, X: Any) -> NDArray[Any]:
        """Return the logarithms of `predict_proba`, (n, classes)."""
        return self._chosen().predict_log_proba(X)
