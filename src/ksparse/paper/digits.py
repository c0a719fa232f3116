"""Figure 6: sample images of handwritten digits; and the digits themselves, for all figures that need them.

They are MNIST, from its four files or from OpenML, or scikit-learn's own 8 x 8 digits if MNIST is not given.
"""

from __future__ import annotations

import functools
import gzip
import hashlib
import zlib
from collections.abc import Iterable
from dataclasses import replace
from http.client import HTTPException
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..sensing.phase import stream
from .lab import Claim, Item, Summary, judge

NUMBER = "6"
TITLE = "Sample images in the MNIST database"
TEXT = (
    "MNIST, consisting of 60 thousands training samples and 10 thousands samples for testing. There is one digit on "
    "each image of size 28-by-28, hence totally 10 classes."
)
NEEDS: tuple[str, ...] = ()
KEY = ("digits", "label", "samples")

MNIST, SMALL = "mnist", "sklearn 8x8"  # names of the sets of digits, in records
OPENML = "openml"  # instead of a folder: download MNIST by scikit-learn
PAIRS = ("0v9", "1v7", "2v3", "4v5", "6v8")
TEST_SHARE = 5  # every fifth of the small digits is for testing
LEVELS = 15  # of grey, in the images of a record: one hexadecimal digit per pixel
REMEDY = "download it again from a mirror of MNIST, or leave --mnist out for scikit-learn's 8 x 8 digits"


class IdxFile(NamedTuple):
    """An idx file: the shape of the array after its header, and its SHA-256 (unpacked)."""

    shape: tuple[int, ...]
    sha256: str

    @property
    def header(self) -> int:
        return 4 + 4 * (3 if len(self.shape) == 2 else 1)  # for images the header gives their height and width as well

    @property
    def size(self) -> int:
        return self.header + int(np.prod(self.shape))


FILES = {
    "train-images-idx3-ubyte": IdxFile(
        (60_000, 784), "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"
    ),
    "train-labels-idx1-ubyte": IdxFile((60_000,), "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"),
    "t10k-images-idx3-ubyte": IdxFile(
        (10_000, 784), "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"
    ),
    "t10k-labels-idx1-ubyte": IdxFile((10_000,), "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"),
}
# fingerprints of the training and of the test images with their labels; they do not depend on the order
CONTENT = (
    "3655811c0e1223700a4714a92a51f55bd215ed7dc1fa2baa4326a2b58042d82d",
    "634538fb34c5277fce98470b8b285d1e8419eb87f328da42ef1faf690d2c3911",
)


class Digits(NamedTuple):
    """Images as rows of bytes, and their labels."""

    train: NDArray[np.uint8]
    train_labels: NDArray[np.uint8]
    test: NDArray[np.uint8]
    test_labels: NDArray[np.uint8]
    ink: int  # the value of a black pixel


class Pair(NamedTuple):
    """Images of two digits: pixels from 0 to 1; the label is +1 for the smaller digit and −1 for the other."""

    A: NDArray[np.float64]
    y: NDArray[np.float64]
    test: NDArray[np.float64]
    truth: NDArray[np.float64]

    def accuracy(self, x: NDArray[np.float64], intercept: float = 0.0) -> float:
        """The share of test images that a model classifies correctly."""
        return round(float(np.mean((self.test @ x + intercept > 0) == (self.truth > 0))), 5)

    def loss(self, x: NDArray[np.float64], intercept: float = 0.0) -> float:
        """The mean logistic loss over the training images."""
        return float(np.mean(np.logaddexp(0.0, -self.y * (self.A @ x + intercept))))

    @property
    def majority(self) -> float:
        """The test accuracy of always predicting the more frequent digit."""
        share = float(np.mean(self.truth > 0))
        return round(max(share, 1 - share), 5)


def name_of(folder: str | Path | None) -> str:
    """The name of the set of digits, for records."""
    return SMALL if folder is None else MNIST


@functools.lru_cache(maxsize=1)
def load(folder: str | Path | None) -> Digits:
    """Load a set of digits.

    Parameters
    ----------
    folder : path, "openml" or None
        The folder of MNIST's four files, compressed or unpacked; "openml" downloads MNIST by scikit-learn; None for
        scikit-learn's own 8 × 8 digits.
    """
    if folder is None:
        return _small()
    return _download() if folder == OPENML else _read_folder(Path(folder))


@functools.lru_cache(maxsize=1)  # trials are ordered by pair
def _pair(folder: str | Path | None, pair: str) -> Pair:
    digits = load(folder)
    first, second = (int(digit) for digit in pair.split("v"))

    def chosen(images: NDArray[np.uint8], labels: NDArray[np.uint8]) -> tuple[NDArray[Any], NDArray[Any]]:
        rows = (labels == first) | (labels == second)
        return images[rows] / digits.ink, np.where(labels[rows] == first, 1.0, -1.0)

    return Pair(*chosen(digits.train, digits.train_labels), *chosen(digits.test, digits.test_labels))


def load_pair(digits: str, folder: str | Path | None, pair: str) -> Pair:
    """The images of two digits; raises if `digits` is not the set in this folder."""
    check_set(digits, folder)
    return _pair(folder, pair)


def check_set(digits: str, folder: str | Path | None) -> None:
    if digits != name_of(folder):
        raise ValueError(f"the trials are about {digits} digits, got {name_of(folder)}; give the same digits as before")


# --- MNIST -----------------------------------------------------------------------------------------------------------
def _read_folder(folder: Path) -> Digits:
    try:
        names = {path.name for path in folder.iterdir()}
    except OSError as error:
        wanted = "a folder with the four files of MNIST"
        raise ValueError(f"--mnist must be {wanted}, got {str(folder)!r}: {error.strerror}") from None
    parts = []
    for name, file in FILES.items():
        found = next((candidate for candidate in (name, f"{name}.gz") if candidate in names), None)
        if found is None:
            raise ValueError(f"{folder} must hold {name} or {name}.gz, found neither; {REMEDY}")
        parts.append(_read_file(folder / found, file))
    train, train_labels, test, test_labels = parts
    return Digits(train, train_labels, test, test_labels, ink=255)


def _read_file(path: Path, file: IdxFile) -> NDArray[np.uint8]:
    opened: Any = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rb") as stream:
            content = stream.read(file.size + 1)  # one byte more shows that the file is too long
    except (OSError, EOFError, zlib.error) as error:
        wanted = f"expected {file.size:,} bytes (unpacked)"
        raise ValueError(f"{path} cannot be read: {wanted}, found {error}; {REMEDY}") from None
    if len(content) != file.size:
        many = f"{len(content):,}" if len(content) < file.size else "more"
        raise ValueError(f"{path} is not MNIST's: expected {file.size:,} bytes (unpacked), found {many}; {REMEDY}")
    found = hashlib.sha256(content).hexdigest()
    if found != file.sha256:
        raise ValueError(f"{path} is not MNIST's: expected SHA-256 {file.sha256}, found {found}; {REMEDY}")
    return np.frombuffer(content, np.uint8, offset=file.header).reshape(file.shape)


def _download() -> Digits:
    from sklearn.datasets import fetch_openml

    try:
        images, labels = fetch_openml("mnist_784", version=1, return_X_y=True, as_frame=False)
    except (OSError, HTTPException, EOFError, zlib.error, ValueError, ImportError) as error:
        # no network, an incomplete answer, a damaged copy, no such data, or no pandas
        remedy = "give the folder of its four files instead, or leave --mnist out for scikit-learn's 8 x 8 digits"
        raise ValueError(f"MNIST cannot be downloaded from OpenML: {error}; {remedy}") from None
    pixels, named = np.asarray(images).astype(np.uint8), np.asarray(labels).astype(np.uint8)
    n = FILES["train-labels-idx1-ubyte"].shape[0]
    for part, expected in zip((slice(n), slice(n, None)), CONTENT, strict=True):
        found = fingerprint(pixels[part], named[part])
        if found != expected:
            raise ValueError(
                f"what OpenML calls mnist_784 is not MNIST: expected a fingerprint of {expected}, found {found}; "
                "remove it from scikit-learn's data folder, or give the folder of MNIST's four files"
            )
    return Digits(pixels[:n], named[:n], pixels[n:], named[n:], ink=255)


def fingerprint(images: NDArray[np.uint8], labels: NDArray[np.uint8]) -> str:
    """A digest of labelled images that does not depend on their order."""
    rows = np.column_stack([labels, images])
    return hashlib.sha256(b"".join(sorted(hashlib.sha256(row).digest() for row in rows))).hexdigest()


# --- scikit-learn's digits -------------------------------------------------------------------------------------------
def _small() -> Digits:
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    pixels, named = images.astype(np.uint8), labels.astype(np.uint8)
    test = np.zeros(named.size, bool)
    for label in range(10):  # digit by digit: the digits come in a periodic order
        test[np.flatnonzero(named == label)[TEST_SHARE - 1 :: TEST_SHARE]] = True
    return Digits(pixels[~test], named[~test], pixels[test], named[test], ink=16)


# --- Figure 6 ---------------------------------------------------------------------------------------------------------
class DigitsConfig(NamedTuple):
    samples: int  # images of every digit


CONFIG = {"quick": DigitsConfig(5), "standard": DigitsConfig(5), "full": DigitsConfig(5)}


def items(config: DigitsConfig, digits: str = MNIST) -> list[Item]:
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


def _framed(text: str) -> NDArray[np.float64]:
    """An image with a white margin; small images are enlarged."""
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
    claim = Claim("The digits that models are trained on", paper, ours, judge(same), reason)
    return as_paper([claim], summary["digits"])


# --- what the figures of digits share --------------------------------------------------------------------------------
def of_one_set(records: Iterable[Item]) -> list[Item]:
    """The records of MNIST if there are any, else those of the small digits: pictures do not mix them."""
    records = list(records)
    return [record for record in records if record["digits"] == MNIST] or records


def as_paper(claims: list[Claim], digits: str) -> list[Claim]:
    """Leave claims about MNIST open if the digits are others; our results are shown all the same."""
    if digits == MNIST:
        return claims
    reason = "these are scikit-learn's 8 × 8 digits, the paper's are MNIST: run with MNIST to decide this"
    return [replace(claim, verdict="open", reason=reason) for claim in claims]


def versus(pair: str) -> str:
    """The name of a pair.

    >>> versus("0v9")
    '0 vs 9'
    """
    return pair.replace("v", " vs ")


def title_of(pair: str, digits: str) -> str:
    return pair.replace("v", " against ") + ("" if digits == MNIST else ", 8 × 8 digits")


def pack(image: NDArray[np.uint8], ink: int) -> str:
    """An image as text, one hexadecimal digit per pixel.

    >>> pack(np.array([0, 128, 255], np.uint8), 255)
    '08f'
    """
    return "".join(f"{round(LEVELS * int(value) / ink):x}" for value in image)


def unpack(text: str) -> NDArray[np.float64]:
    """The image of a text: a square of numbers from 0 to 1."""
    values = np.array([int(letter, 16) for letter in text]) / LEVELS
    side = round(values.size**0.5)
    return values.reshape(side, side)
