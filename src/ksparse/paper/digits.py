"""Figure 6: some of the digits."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..sensing.phase import stream
from ._digits import MNIST, as_paper, check_set, load, of_one_set, pack, unpack
from ._lab import Claim, Item, Summary

NUMBER = "6"
TITLE = "Sample images in the MNIST database"
TEXT = (
    "MNIST, consisting of 60 thousands training samples and 10 thousands samples for testing. There is one digit on "
    "each image of size 28-by-28, hence totally 10 classes."
)
NEEDS: tuple[str, ...] = ()
KEY = ("digits", "label", "samples")
KEEP = ()


class Config(NamedTuple):
    samples: int  # of every digit


CONFIG = {"quick": Config(5), "standard": Config(5), "full": Config(5)}


def items(config: Config, digits: str = MNIST) -> list[Item]:
    return [{"digits": digits, "label": label, "samples": config.samples} for label in range(10)]


def trial(seed: int, digits: str, label: int, samples: int, digits_folder: str | Path | None = None) -> Item:
    """Some training images of a digit, drawn at random."""
    check_set(digits, digits_folder)
    found = load(digits_folder)
    rows = np.flatnonzero(found.train_labels == label)
    drawn = stream(seed, "samples", digits, label).choice(rows, samples, replace=False)
    return {
        "train": int(rows.size),
        "test": int(np.sum(found.test_labels == label)),
        "images": [pack(found.train[row], found.ink) for row in drawn],
    }


def summarise(records: Iterable[Item]) -> Summary:
    records = sorted(of_one_set(records), key=lambda record: record["label"])
    return {
        "digits": records[0]["digits"] if records else MNIST,
        **{name: {str(record["label"]): record[name] for record in records} for name in ("train", "test", "images")},
    }


def plot(summaries: dict[str, Summary]) -> dict[str, Any]:
    from .._style import new_axes

    images = summaries.get(NUMBER, {}).get("images")
    if not images:
        return {}
    columns = [np.vstack([_framed(text) for text in texts]) for texts in images.values()]
    ax = new_axes(None, (4.2, 4.2 * len(columns[0]) / sum(column.shape[1] for column in columns) + 0.2))
    ax.imshow(np.hstack(columns), cmap="gray_r", vmin=0, vmax=1, interpolation="nearest")
    ax.set_axis_off()
    return {"samples": ax}


def _framed(text: str) -> Any:
    """A picture with a little paper around it, so that pictures do not touch; small ones are made of larger dots."""
    image = unpack(text)
    dots = max(1, 28 // image.shape[0])
    return np.pad(np.kron(image, np.ones((dots, dots))), 2)


def claims(summaries: dict[str, Summary]) -> list[Claim]:
    summary = summaries.get(NUMBER, {})
    if not summary.get("images"):
        return []
    train, test = sum(summary["train"].values()), sum(summary["test"].values())
    side = unpack(summary["images"]["0"][0]).shape[0] if "0" in summary["images"] else 0
    ours = f"{train:,} for training and {test:,} for testing of {side} × {side} pixels, {len(summary['train'])} digits"
    same = (train, test, side, len(summary["train"])) == (60_000, 10_000, 28, 10)
    paper = (
        "“60 thousands training samples and 10 thousands samples for testing. There is one digit on each image of size "
        "28-by-28, hence totally 10 classes.”"
    )
    reason = "" if same else "another set, or only some of its digits"
    claim = Claim("The digits that models are trained on", paper, ours, "agrees" if same else "differs", reason)
    return as_paper([claim], summary["digits"])
