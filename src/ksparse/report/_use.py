"""How to use the model: from Python, without ksparse, and from the command line."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import NamedTuple

from ._fit import Fit

NAMED = 25  # columns


class Use(NamedTuple):
    python: str
    sklearn: str  # nothing where scikit-learn has no such model
    command: str
    saved: bool
    needs: list[str]  # columns that matter
    more: int  # of them than are named


def use(fit: Fit, model_file: str | Path | None) -> Use:
    """Lines to copy."""
    file = "model.json" if model_file is None else str(model_file)
    method = "predict_proba" if fit.has_probabilities else "predict"
    python = [
        "import ksparse",
        "",
        *([f"model.save({file!r})"] if model_file is None else []),
        f"model = ksparse.load({file!r})",
        f"model.{method}(X)",
    ]
    plain = (fit.model.loss in ("squared", "huber")) if not fit.is_classifier else (
        fit.has_probabilities and fit.kind != "ovr"
    )  # fmt: skip
    sklearn = "plain = model.to_sklearn()\nplain.predict(X)" if plain else ""
    suffixes = Path(fit.data[-200:]).suffixes
    suffix = "".join(suffixes[-2:] if suffixes[-1:] in ([".gz"], [".bz2"], [".zst"]) else suffixes[-1:])
    rows = f"new-rows{suffix}" if suffix and suffix.replace(".", "").isalnum() else "DATA"
    command = f"ksparse predict {_shell(file)} {rows} --out predictions.csv"
    names = [fit.feature(j) for j in fit.model.support_[: NAMED + 1]] if fit.chosen < fit.columns else []
    return Use(
        "\n".join(python),
        sklearn,
        command,
        model_file is not None,
        names[:NAMED],
        fit.chosen - NAMED if len(names) > NAMED else 0,
    )


def _shell(file: str) -> str:
    return shlex.quote(f"./{file}" if file.startswith("-") else file)
