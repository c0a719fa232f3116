"""Handwritten digits for the paper's classification: MNIST, or scikit-learn's own small ones where there is none."""

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

from ._lab import Claim, Item

MNIST, SMALL = "mnist", "sklearn 8x8"
OPENML = "openml"  # instead of a folder: scikit-learn downloads MNIST
PAIRS = ("0v9", "1v7", "2v3", "4v5", "6v8")
TEST_SHARE = 5  # of the small digits every fifth is for testing
LEVELS = 15  # of grey, in pictures that are kept: a hexadecimal digit a pixel
REMEDY = "download it again from a mirror of MNIST, or leave --mnist out for scikit-learn's 8 x 8 digits"


class File(NamedTuple):
    """What an idx file holds: its SHA-256 (unpacked), and the shape behind its header."""

    sha256: str
    shape: tuple[int, ...]

    @property
    def header(self) -> int:
        return 4 + 4 * (3 if len(self.shape) == 2 else 1)  # images have rows and columns of their own

    @property
    def size(self) -> int:
        return self.header + int(np.prod(self.shape))


FILES = {
    "train-images-idx3-ubyte": File(
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db", (60_000, 784)
    ),
    "train-labels-idx1-ubyte": File("65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5", (60_000,)),
    "t10k-images-idx3-ubyte": File("0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7", (10_000, 784)),
    "t10k-labels-idx1-ubyte": File("ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2", (10_000,)),
}  # fmt: skip
# training and test images with their labels, whatever their order: a copy from elsewhere may have another one
CONTENT = (
    "3655811c0e1223700a4714a92a51f55bd215ed7dc1fa2baa4326a2b58042d82d",
    "634538fb34c5277fce98470b8b285d1e8419eb87f328da42ef1faf690d2c3911",
)


class Digits(NamedTuple):
    """Images as rows of bytes, and what they show."""

    train: NDArray[np.uint8]
    train_labels: NDArray[np.uint8]
    test: NDArray[np.uint8]
    test_labels: NDArray[np.uint8]
    ink: int  # the byte of a pixel that is all ink

    @property
    def side(self) -> int:
        return round(self.train.shape[1] ** 0.5)


class Pair(NamedTuple):
    """Two digits to be told apart: pixels from 0 to 1, and +1 for the smaller digit, −1 for the other."""

    A: NDArray[np.float64]
    y: NDArray[np.float64]
    test: NDArray[np.float64]
    truth: NDArray[np.float64]

    def accuracy(self, x: NDArray[np.float64], intercept: float = 0.0) -> float:
        """The share of test images that a model names correctly."""
        return round(float(np.mean((self.test @ x + intercept > 0) == (self.truth > 0))), 5)

    def loss(self, x: NDArray[np.float64], intercept: float = 0.0) -> float:
        """The mean logistic loss over the training images."""
        return float(np.mean(np.logaddexp(0.0, -self.y * (self.A @ x + intercept))))

    @property
    def majority(self) -> float:
        """The accuracy of always naming the digit that is the more frequent one in the test."""
        share = float(np.mean(self.truth > 0))
        return round(max(share, 1 - share), 5)


def name_of(folder: str | Path | None) -> str:
    """Which digits these are, for records."""
    return SMALL if folder is None else MNIST


@functools.lru_cache(maxsize=1)
def load(folder: str | Path | None) -> Digits:
    """A set of digits.

    Parameters
    ----------
    folder : path, "openml" or None
        Where the four files of MNIST are, as they come or unpacked; "openml" has scikit-learn download MNIST; None is
        for scikit-learn's own 8 × 8 digits.
    """
    if folder is None:
        return _small()
    return _download() if folder == OPENML else _read_folder(Path(folder))


@functools.lru_cache(maxsize=1)  # trials come pair by pair
def _pair(folder: str | Path | None, pair: str) -> Pair:
    digits = load(folder)
    first, second = (int(digit) for digit in pair.split("v"))

    def chosen(images: NDArray[np.uint8], labels: NDArray[np.uint8]) -> tuple[NDArray[Any], NDArray[Any]]:
        rows = (labels == first) | (labels == second)
        return images[rows] / digits.ink, np.where(labels[rows] == first, 1.0, -1.0)

    return Pair(*chosen(digits.train, digits.train_labels), *chosen(digits.test, digits.test_labels))


def load_pair(digits: str, folder: str | Path | None, pair: str) -> Pair:
    """Two digits of the set that a trial is about, which must be the one at hand."""
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


def _read_file(path: Path, file: File) -> NDArray[np.uint8]:
    opened: Any = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rb") as stream:
            content = stream.read(file.size + 1)  # more would be wrong, however much it is
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
        # no network, half an answer, a torn copy, no such data, no pandas to read it with
        remedy = "give the folder of its four files instead, or leave --mnist out for scikit-learn's 8 x 8 digits"
        raise ValueError(f"MNIST cannot be had from OpenML: {error}; {remedy}") from None
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
    for label in range(10):  # digit by digit: their order has a period, which a plain stride would meet
        test[np.flatnonzero(named == label)[TEST_SHARE - 1 :: TEST_SHARE]] = True
    return Digits(pixels[~test], named[~test], pixels[test], named[test], ink=16)


# --- records ---------------------------------------------------------------------------------------------------------
def of_one_set(records: Iterable[Item]) -> list[Item]:
    """The records of MNIST, if there are any, else those of the small digits: pictures do not mix them."""
    records = list(records)
    return [record for record in records if record["digits"] == MNIST] or records


def as_paper(claims: list[Claim], digits: str) -> list[Claim]:
    """Claims about MNIST stay open where the digits are others; what came out is shown all the same."""
    if digits == MNIST:
        return claims
    reason = "these are scikit-learn's 8 × 8 digits, the paper's are MNIST: its folder or a download decides this"
    return [replace(claim, verdict="open", reason=reason) for claim in claims]


def title_of(pair: str, digits: str) -> str:
    return pair.replace("v", " against ") + ("" if digits == MNIST else ", 8 × 8 digits")


def pack(image: NDArray[np.uint8], ink: int) -> str:
    """A picture as text, a hexadecimal digit a pixel.

    >>> pack(np.array([0, 128, 255], np.uint8), 255)
    '08f'
    """
    return "".join(f"{round(LEVELS * int(value) / ink):x}" for value in image)


def unpack(text: str) -> NDArray[np.float64]:
    """The picture of a text, from 0 to 1, as a square."""
    values = np.array([int(letter, 16) for letter in text]) / LEVELS
    side = round(values.size**0.5)
    return values.reshape(side, side)
