"""support_stability: how often each feature is chosen when the model is fitted on random parts of the rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone, is_classifier

from .._text import data_frame, html_table, table
from .._validate import check_count, check_generator, check_number
from ..design import as_design
from .fitting import Fitting
from .path import check_template
from .summary import SHOWN, draw_bars, feature_names, image, plot_method
from .tables import check_weights
from .threads import in_threads


@dataclass(frozen=True, eq=False)
class Stability:
    """How often each feature was chosen; ``print`` shows it as a table.

    Attributes
    ----------
    frequency : array of shape (d,)
        The share of resamples whose model uses the feature.
    names : list of str
        The names of the features.
    k : int
        The number of features that a model may have (per class with multi_class="ovr").
    n_resamples : int
        The number of resamples.
    supports : list of arrays
        The columns that each resample's model uses.
    """

    frequency: NDArray[np.float64]
    names: list[str] = field(repr=False)
    k: int
    n_resamples: int
    supports: list[NDArray[np.intp]] = field(repr=False)

    def stable(self, threshold: float = 0.6) -> NDArray[np.intp]:
        """Return the columns that at least a share `threshold` of the resamples chose.

        Parameters
        ----------
        threshold : float, default=0.6
            Above 0 and at most 1.
        """
        if check_number(threshold, "threshold", strict=True) > 1.0:
            raise ValueError(f"threshold must be a share of the resamples, at most 1, got {threshold!r}")
        return np.flatnonzero(self.frequency >= threshold - 1e-12)  # 0.6 of 50 is 30, whatever the rounding

    @property
    def agreement(self) -> float:
        """How similar the supports are: 1 if they are all the same, about 0 if they were drawn at random.

        The index of Nogueira, Sechidis and Brown (2018).  Unlike the mean overlap (Jaccard's index) it subtracts what
        chance alone would give, which grows with k/d.  It equals Kuncheva's index if all supports have the same size,
        and allows any sizes.
        """
        M, p = self.n_resamples, self.frequency
        share = float(p.mean())
        if share in (0.0, 1.0):  # nothing, or everything, was always chosen
            return 1.0
        return 1.0 - float(np.mean(p * (1.0 - p))) * M / (M - 1) / (share * (1.0 - share))

    def __str__(self) -> str:
        title, rows, rest = self._said()
        return "\n".join([title, table(rows), *rest])

    def _repr_html_(self) -> str:
        title, rows, rest = self._said()
        return html_table(rows, title) + "".join(f"<p>{line}</p>" for line in rest) + image(self._draw)

    def _said(self) -> tuple[str, list[tuple[str, str]], list[str]]:
        """The title, the table of the most frequent features, and how many more there are."""
        order = self._order()
        rows = [("feature", "chosen"), *((self.names[j], f"{self.frequency[j]:.0%}") for j in order[:SHOWN])]
        title = f"Stability: {self.n_resamples} resamples, k = {self.k}, agreement {self.agreement:.2f}"
        return title, rows, [f"and {order.size - SHOWN} more, less often"] if order.size > SHOWN else []

    def to_frame(self) -> Any:
        """Return every feature and its frequency as a pandas.DataFrame, the most frequent first."""
        order = np.argsort(-self.frequency, kind="stable")
        return data_frame({"feature": [self.names[j] for j in order], "frequency": self.frequency[order]})

    def _order(self) -> NDArray[np.intp]:
        """The features that were ever chosen, the most frequent first."""
        order = np.argsort(-self.frequency, kind="stable")
        return order[self.frequency[order] > 0]

    def _draw(self, ax: Any = None) -> Any:
        """Draw bars of the frequencies, the most frequent feature on top."""
        order = self._order()[:SHOWN]
        values = self.frequency[order]
        ax = draw_bars(ax, [self.names[j] for j in order], values, [f"{value:.0%}" for value in values])
        left_out = int(np.count_nonzero(self.frequency)) - order.size
        more = f"; {left_out} more less often" if left_out else ""
        ax.set(xlabel=f"chosen by this share of {self.n_resamples} resamples", xlim=(0.0, 1.12))
        ax.set_xticks(np.linspace(0.0, 1.0, 6))
        ax.set_title(f"agreement {self.agreement:.2f}{more}", fontsize=10)
        return ax

    plot = plot_method(_draw)


def support_stability(
    X: Any,
    y: ArrayLike,
    estimator: Any = None,
    *,
    n_resamples: int = 50,
    share: float = 0.5,
    random_state: Any = None,
    n_jobs: int | None = None,
    sample_weight: ArrayLike | None = None,
) -> Stability:
    """Return how often each feature is chosen when the model is fitted on random parts of the rows.

    A feature that depends on a few rows is missing from the models of many parts.  Halves are drawn in complementary
    pairs, which have no row in common (Shah and Samworth, 2013), so that every row is used equally often.

    Parameters
    ----------
    X : array, sparse matrix, table (pandas, polars, Arrow), Dask collection or source, of shape (n, d)
    y : array of shape (n,) or (n, targets)
    estimator : KSparseRegressor or KSparseClassifier, default=None
        The model whose settings are used; by default KSparseRegressor().
    n_resamples : int, default=50
        The number of random parts, at least 2.
    share : float, default=0.5
        The share of the rows in each part, above 0 and below 1.  For a classifier the share of every class, and at
        least one row of it.
    random_state : None, int or Generator, default=None
        For drawing the parts, which do not depend on n_jobs.
    n_jobs : int, default=None
        Number of threads.
    sample_weight : array of shape (n,), default=None
        Weights of the rows.  A row of weight zero is in no part.

    Returns
    -------
    Stability

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from ksparse import KSparseRegressor, support_stability
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
    >>> stability = support_stability(X, y, KSparseRegressor(k=3), n_resamples=20, random_state=0)
    >>> [stability.names[j] for j in stability.stable(0.9)]
    ['bmi', 's5']
    """
    count = check_count(n_resamples, "n_resamples", low=2)
    if check_number(share, "share", strict=True) >= 1.0:
        raise ValueError(f"share must be below 1, got {share!r}: all rows would be in every resample")
    template = clone(check_template(estimator))
    X, y = template._check_pairs(X, y)
    weight = check_weights(sample_weight, X)
    weight = np.ones(X.shape[0]) if weight is None else weight
    plain = template._unnamed(X.shape[1])
    strata = np.unique(y, return_inverse=True)[1] if is_classifier(template) else np.zeros(X.shape[0], dtype=int)
    used = np.flatnonzero(weight > 0)
    groups = [used[strata[used] == s] for s in np.unique(strata[used])]
    parts = _parts(groups, float(share), count, check_generator(random_state))

    design = as_design(X)

    def fit(part: NDArray[np.intp]) -> tuple[int, NDArray[np.intp]]:
        masked = np.zeros_like(weight)  # a resample is a set of weights, so that X is not copied
        masked[part] = weight[part]
        own = plain._fresh()  # with random numbers of its own, in whatever order the threads come
        fitting = Fitting.begin(own, X, own._given(y, masked), design=design)
        coef = fitting.coefficients(fitting.solve())[0]
        return fitting.sizes[0], np.flatnonzero(coef.any(axis=(0, 1)))

    fits = in_threads(fit, ((part,) for part in parts), n_jobs)
    supports = [support for _, support in fits]
    frequency = np.bincount(np.concatenate(supports), minlength=X.shape[1]) / count
    return Stability(frequency, feature_names(template), fits[0][0], count, supports)


def _parts(groups: list[NDArray[np.intp]], share: float, count: int, rng: Any) -> Iterator[NDArray[np.intp]]:
    """Yield `count` random sets of rows with a share of every group; halves come in pairs without a common row."""
    pair: list[NDArray[np.intp]] = []
    for _ in range(count):
        if not pair:
            mixed = [(rng.permutation(rows), max(1, int(share * rows.size + 1e-9))) for rows in groups]
            pair = [np.concatenate([rows[-size:] for rows, size in mixed])] if share == 0.5 else []
            pair.append(np.concatenate([rows[:size] for rows, size in mixed]))
        yield pair.pop()
