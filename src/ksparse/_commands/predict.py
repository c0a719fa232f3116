"""``ksparse predict``: a model on the rows of a file, block by block."""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from . import _options as opt
from . import print_json
from ._session import Session, peak_memory, session


def predict(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A file that ksparse fit or model.save wrote.")],
    data: opt.Data,
    out: Annotated[
        str,
        typer.Option(metavar="FILE", help="Where predictions go: .csv, .parquet or .npy; - is CSV on the standard "
                     "output.", rich_help_panel=opt.OUTPUT),
    ] = "-",
    proba: Annotated[
        bool, typer.Option("--proba", help="Probabilities, a column a class.", rich_help_panel=opt.OUTPUT)
    ] = False,
    format: opt.Format = None,
    memory: opt.Memory = "1GB",
    as_json: opt.Json = False,
    quiet: opt.Quiet = False,
) -> None:  # fmt: skip
    """What a model predicts for the rows of DATA, in their order; with the target among them also how good that is.

    Rows are read in blocks, and of their columns only those that the model uses.
    """
    with session(not quiet) as work:
        from ..estimators import load
        from ._outputs import check_outputs
        from ._writers import check_end, writing

        file = check_outputs([data, model], out=None if out == "-" else out).get("out")
        if file is not None:
            check_end(file)
        elif as_json:
            raise ValueError("--json prints what was done, so predictions need a file; add --out FILE")
        loaded = load(model)
        if proba and getattr(loaded, "loss", None) != "logistic":
            raise ValueError(f"--proba is for models with the logistic loss, this one has {loaded.loss!r}")
        with work.progress():
            work.begin(f"reading {data}")
            source = _open(loaded, model, data, format, memory)
            judge = Judge(loaded, source.y, work)
            names = [str(c) for c in loaded.classes_] if proba else _outputs(loaded)
            with writing(file, names, source.shape[0]) as write:
                for values in _blocks(loaded, source, proba, judge, work):
                    write(values)
        score = judge.score()
        if as_json:
            print_json(
                {
                    "model": model,
                    "data": data,
                    "rows": source.shape[0],
                    "score": score or None,
                    "files": {"out": str(file)},
                    "notes": work.notes,
                    "seconds": work.seconds,
                    "peak_memory": peak_memory(),
                }
            )
        elif not quiet:
            said = ", ".join(f"{name} {value:.6g}" for name, value in score.items())
            if said:
                print(f"{said} on {source.shape[0]:,} rows", file=sys.stderr)
            if file is not None:
                print(f"written: {file}", file=sys.stderr)


def _open(model: Any, name: str, data: str, format: str | None, memory: str) -> Any:
    """The data as the model's own were read; of a model that knows nothing of files, by its names or its width."""
    from ..sources import Files, open_files

    encoding = getattr(model, "encoding_", None)
    if encoding is not None:
        return Files.like(data, encoding, memory=memory)
    named = getattr(model, "feature_names_in_", None)
    source = open_files(data, columns=None if named is None else list(named), format=format, memory=memory)
    if source.shape[1] != model.n_features_in_:
        raise ValueError(
            f"{name} knows no names of columns, so {data} must have its {model.n_features_in_} columns in their order, "
            f"but it has {source.shape[1]}; models that ksparse fit writes know names"
        )
    return source


def used_columns(model: Any) -> Any:
    """The numbers of the columns with a coefficient; one at least, for blocks have columns."""
    import numpy as np

    used = np.flatnonzero(np.atleast_2d(model.coef_).any(axis=0))
    return used if used.size else np.zeros(1, dtype=np.int64)


def _narrow(model: Any, used: Any) -> Any:
    """The same model for rows that have these columns only."""
    narrow = copy.copy(model)
    narrow.coef_, narrow.n_features_in_ = model.coef_[..., used], used.size
    narrow.__dict__.pop("feature_names_in_", None)
    return narrow


def _blocks(model: Any, source: Any, proba: bool, judge: Judge, work: Session) -> Iterator[Any]:
    """Predictions, a block at a time."""
    used = used_columns(model)
    narrow, done = _narrow(model, used), 0

    def both(block: Any) -> tuple[Any, Any]:
        return narrow.predict(block), narrow.predict_proba(block) if proba or judge.likely else None

    for prediction, chances in source.map(both, columns=used):
        judge.see(slice(done, done + len(prediction)), prediction, chances)
        done += len(prediction)
        work.tell(f"{done:,} of {source.shape[0]:,} rows")
        yield chances if proba else prediction


def _outputs(model: Any) -> list[str]:
    several = model._kind() == "targets"
    return [f"prediction {name}" for name in model._output_names()] if several else ["prediction"]


class Judge:
    """How good predictions are, where the targets are known."""

    def __init__(self, model: Any, y: Any, work: Session) -> None:
        import numpy as np

        self._y, self._classes, self._total, self._surprise = y, getattr(model, "classes_", None), 0.0, 0.0
        if y is not None and (model._kind() == "targets" or not self._comparable(y)):
            work.note("no score: the target in the data is not of the kind that the model predicts")
            self._y = None
        self.likely = self._y is not None and model.loss == "logistic"
        if self.likely:
            self._at = np.searchsorted(self._classes, y).clip(max=len(model.classes_) - 1)

    def _comparable(self, y: Any) -> bool:
        import numpy as np

        numbers = y.dtype.kind in "fiub"
        if self._classes is None:
            return numbers
        return numbers == (self._classes.dtype.kind in "fiub") and bool(np.isin(y, self._classes).all())

    def see(self, part: slice, prediction: Any, chances: Any) -> None:
        """Take the predictions of some rows into account."""
        import numpy as np

        if self._y is None:
            return
        truth = self._y[part]
        if self._classes is None:
            self._total += float(np.square(truth - prediction).sum())
            return
        self._total += float(np.count_nonzero(truth == prediction))
        if chances is not None:
            given = chances[np.arange(len(truth)), self._at[part]]
            self._surprise -= float(np.log(np.maximum(given, np.finfo(float).tiny)).sum())

    def score(self) -> dict[str, float]:
        """By name; nothing where the targets are not known."""
        if self._y is None:
            return {}
        n = len(self._y)
        if self._classes is None:
            spread = float(self._y.var()) * n
            return {"R2": 1.0 - self._total / spread} if spread > 0 else {"mean squared error": self._total / n}
        return {"accuracy": self._total / n, **({"log-loss": self._surprise / n} if self.likely else {})}
