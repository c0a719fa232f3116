"""Choosing k and looking at a model, in five pictures, as they stand in docs/estimators.

python examples/estimator_figures.py [FOLDER]        (needs the `report` extra)
"""

from __future__ import annotations

import sys
from pathlib import Path

from sklearn.datasets import load_breast_cancer

from ksparse import KSparseClassifier, KSparseClassifierCV, k_path, support_stability


def main(folder: str | Path = "docs/estimators") -> list[Path]:
    X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    ks = range(1, 13)
    model = KSparseClassifier(k=5).fit(X, y)
    pictures = {
        "coefficients": model.plot,
        "convergence": model.plot_convergence,
        "path": k_path(X, y, ks, KSparseClassifier()).plot,
        "cv": KSparseClassifierCV(ks).fit(X, y).plot,
        "stability": support_stability(X, y, model, random_state=0).plot,
    }
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name, plot in pictures.items():
        plot(folder / f"{name}.svg")
        print(f"wrote {folder / name}.svg")
    return [folder / f"{name}.svg" for name in pictures]


if __name__ == "__main__":
    main(*sys.argv[1:2])
