"""Checks of arguments: the error names the argument, its value and the remedy."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

# the settings of solvers that are whole numbers, and those of them that may be None
COUNTS = ("m", "stages", "epochs", "iterations", "batch_size", "working_set", "select", "exchange")
OPTIONAL = ("m", "working_set", "breaths", "gain")


class ArgumentError(ValueError):
    """An argument with a value that it cannot take: its name, and what is wrong.

    >>> try:
    ...     check_count(0, "k")
    ... except ArgumentError as error:
    ...     print([error.argument, error.problem, str(error)])
    ['k', 'must be at least 1, got 0', 'k must be at least 1, got 0']
    """

    def __init__(self, argument: str, problem: str) -> None:
        super().__init__(argument, problem)
        self.argument, self.problem = argument, problem

    def __str__(self) -> str:
        return f"{self.argument} {self.problem}"


@contextmanager
def renamed(inner: str, outer: str) -> Iterator[None]:
    """An error whose message begins with `inner`, an argument of a function called inside, begins with `outer`."""
    try:
        yield
    except ValueError as error:
        if not str(error).startswith(inner):
            raise
        raise ValueError(outer + str(error).removeprefix(inner)) from None


def check_count(value: Any, name: str, *, low: int = 1, high: int | None = None, high_text: str = "") -> int:
    """A whole number in [low, high]."""
    try:
        if isinstance(value, (bool, np.bool_)):
            raise TypeError
        count = operator.index(value)
    except TypeError:
        raise ArgumentError(name, f"must be an integer, got {value!r}") from None
    if count < low:
        raise ArgumentError(name, f"must be at least {low}, got {count}")
    if high is not None and count > high:
        raise ArgumentError(name, f"must be at most {high}{f' ({high_text})' if high_text else ''}, got {count}")
    return count


def check_number(value: Any, name: str, *, low: float = 0.0, strict: bool = False, infinite: bool = False) -> float:
    """A real number >= low (> low if strict)."""
    try:
        if (
            isinstance(value, (str, bytes, bool, np.bool_, complex, np.complexfloating, np.ndarray))
            or value is np.ma.masked
        ):
            raise TypeError
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise ArgumentError(name, f"must be a number, got {_shown(value)}") from None
    if np.isnan(number) or (np.isinf(number) and not infinite) or number < low or (strict and number == low):
        kind = "a number" if infinite else "a finite number"
        raise ArgumentError(name, f"must be {kind} {'above' if strict else 'of at least'} {low:g}, got {value!r}")
    return number


def check_counts(value: Any, name: str) -> NDArray[np.int64]:
    """A whole number or an array of them, each at least 1."""
    array = as_real(value, name)
    if array.dtype.kind not in "iu":
        whole = array.dtype.kind == "f" and array.ndim > 0 and bool((array == np.floor(array)).all())
        if not whole:  # an array may have become one of floats on the way; a number 3.0 is more likely a mistake
            raise ArgumentError(
                name, f"must be an integer{' or an array of them' * (array.ndim > 0)}, got {_shown(value)}"
            )
    refuse(array < 1, lambda at: f"{name} must be at least 1, got {array[at]}")
    refuse(array > 2**53, lambda at: f"{name} must be at most 2^53, got {array[at]}")
    return array.astype(np.int64)


def check_numbers(
    value: Any, name: str, *, low: float = 0.0, strict: bool = False, infinite: bool = False
) -> NDArray[np.float64]:
    """A real number or an array of them, each >= low (> low if strict)."""
    array = as_real(value, name)
    if array.dtype.kind == "b":
        raise ArgumentError(name, f"must be a number, got {_shown(value)}")
    array = array.astype(np.float64)
    bad = np.isnan(array) | (array < low) | (strict & (array == low)) | (not infinite) & np.isinf(array)
    kind = "a number" if infinite else "a finite number"
    refuse(bad, lambda at: f"{name} must be {kind} {'above' if strict else 'of at least'} {low:g}, got {array[at]:g}")
    return array


def refuse(bad: NDArray[np.bool_], explain: Callable[[tuple[Any, ...]], str]) -> None:
    """Raise if any entry is bad; `explain` gives the message for the first one, beginning with the argument's name."""
    if bad.any():
        argument, problem = explain(tuple(int(i) for i in np.argwhere(bad)[0])).split(" ", 1)
        raise ArgumentError(argument, problem)


def check_flag(value: Any, name: str) -> bool:
    """True or False."""
    if not isinstance(value, (bool, np.bool_)):
        raise ArgumentError(name, f"must be True or False, got {_shown(value)}")
    return bool(value)


def check_choice(value: Any, name: str, known: Iterable[str]) -> str:
    """One of a list of names."""
    known = list(known)
    if not isinstance(value, str) or value not in known:
        raise ArgumentError(name, f"must be one of {', '.join(map(repr, known))}, got {_shown(value)}")
    return value


def check_generator(random_state: Any) -> np.random.Generator:
    """What numpy.random.default_rng makes of it."""
    try:
        return np.random.default_rng(random_state)
    except (TypeError, ValueError) as error:
        problem = "must be None, a non-negative integer or a numpy Generator"
        raise ArgumentError("random_state", f"{problem}, got {_shown(random_state)} ({error})") from None


def check_vector(value: Any, name: str, n: int, per: str) -> NDArray[np.float64]:
    """A finite float64 vector of length n, one number for each row or column (as `per` says)."""
    vector = as_real(value, name)
    if vector.ndim == 2 and vector.shape[1] == 1:
        vector = vector[:, 0]
    if vector.shape != (n,):
        raise ArgumentError(name, f"must have one number per {per}, that is shape ({n},), got shape {np.shape(value)}")
    with np.errstate(over="ignore"):  # a long double too large becomes inf, and that is refused next
        vector = np.ascontiguousarray(vector, dtype=np.float64)
    if not np.isfinite(vector).all():
        at = int(np.flatnonzero(~np.isfinite(vector))[0])
        raise ArgumentError(name, f"must be finite, got {vector[at]} at index {at}; remove or impute it first")
    return vector


def as_array(value: Any, name: str) -> NDArray[Any]:
    """An array of whatever the value holds."""
    try:
        return np.asarray(value)
    except ValueError:
        raise ArgumentError(name, "must be an array, got a list whose parts differ in length") from None


def as_real(value: Any, name: str) -> NDArray[Any]:
    """An array of real numbers of some kind; no text, dates, complex numbers or masks."""
    if np.ma.isMaskedArray(value) and np.ma.is_masked(value):
        raise ArgumentError(name, "has masked entries; fill or drop them first")
    if hasattr(value, "tocsr") and hasattr(value, "nnz"):
        raise ArgumentError(name, f"must be dense, got {type(value).__name__}; .toarray() makes it so")
    array = as_array(value, name)
    if array.dtype.kind == "O":
        return _from_objects(array, name)
    if array.dtype.kind == "c":
        raise ArgumentError(name, f"must hold real numbers, got {array.dtype}; complex signals are for ksparse.recover")
    if array.dtype.kind not in "biuf":
        raise ArgumentError(name, f"must hold real numbers, got dtype {array.dtype}; encode text and dates first")
    return array


def _from_objects(array: NDArray[Any], name: str) -> NDArray[np.float64]:
    out = np.empty(array.shape)
    for at, item in np.ndenumerate(array):
        try:
            if isinstance(item, (str, bytes)):
                raise TypeError
            out[at] = np.nan if item is None else float(item)
        except (TypeError, ValueError, OverflowError):
            where = f"row {at[0]}, column {at[1]}" if len(at) == 2 else f"index {', '.join(map(str, at))}"
            raise ArgumentError(
                name,
                f"must hold real numbers, got {_shown(item)} at {where}; encode text and dates, "
                "remove or impute what is missing",
            ) from None
    return out


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


# --- settings of solvers ----------------------------------------------------------------------------------------------
def check_fields(solver: Any, steps: tuple[str, ...] = ()) -> None:
    """Check the fields of a frozen solver and store them as plain ints and floats; `steps` are the named steps.

    A setting has the same meaning in every solver, so its name says what to check.
    """
    for field in dataclasses.fields(solver):
        name, value = field.name, getattr(solver, field.name)
        if value is None and name in OPTIONAL:
            continue
        if name == "step":
            value = check_step(value, steps)
        elif name in COUNTS:
            value = check_count(value, name)
        elif name == "breaths":
            value = check_count(value, name, low=0)
        elif name in ("tol", "gain"):
            value = check_number(value, name)
        elif name in ("stop_on_divergence", "refit"):
            value = check_flag(value, name)
        elif name == "output":
            value = check_choice(value, name, ("last", "random"))
        object.__setattr__(solver, name, value)


def check_step(step: Any, names: tuple[str, ...]) -> float | str:
    """A positive number or one of the names."""
    if isinstance(step, str):
        return check_choice(step, "step", names)
    try:
        return check_number(step, "step", strict=True)
    except ValueError as error:
        raise ValueError(f"{error}; or one of {', '.join(map(repr, names))}") from None


def canonical(A: Any, name: str = "A") -> Any:
    """A sparse matrix as valid CSR that stores every entry once, columns in ascending order; anything else as it is.

    Sums are the same if an entry is stored in two parts, but counts, shifts and squares of entries are not: so every
    matrix goes through here before it is measured.  The caller's object is never changed.
    """
    if not hasattr(A, "tocsr"):
        return A
    A = A.tocsr()
    # a shell of its own around the same arrays, so that SciPy's checks and repairs leave the caller's object alone
    try:
        own = type(A)((A.data, A.indices, A.indptr), shape=A.shape)
        own.check_format(full_check=True)
    except ValueError as error:
        raise ValueError(f"{name} is not a valid sparse matrix: {error}") from None
    if not own.has_canonical_format:
        own = own.copy()
        own.sum_duplicates()
    return own
