"""What is tried: an algorithm, a matrix, a signal, and everything that decides the outcome of a trial.

A trial is a function of (experiment, n, K, trial) and of nothing else.  Its random numbers come from a seed that is a
digest of these, so that the order of trials, the number of workers and an interruption cannot change it.  The problem
does not depend on the algorithm: all of them meet the same matrices and signals, and luck does not blur a comparison.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import inspect
import json
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..._validate import check_choice, check_count, check_number
from ...solvers import SOLVERS
from ..ensembles import ENSEMBLES
from ..recovery import ALGORITHMS, recover
from ..signals import SIGNALS

OUTCOME = ("K", "n", "trial", "error", "success")  # behind the settings in a record
DRAWN = ("random_state", "dtype")  # parameters of ensembles and signals that a trial sets itself
MATRICES = ("trial", "cell")
KEY = ("algorithm", "k", "K", "n", "trial")  # what tells the trials of a file apart, and orders them


class OtherSettings(ValueError):
    """Results that do not belong together."""


class Trial(NamedTuple):
    """A problem: measurements y = A x + noise of a signal x."""

    A: Any
    x: NDArray[Any]
    y: NDArray[Any]
    noise: float | None


@dataclass(frozen=True)
class Experiment:
    """Settings that all trials share; see `run`."""

    algorithm: Any = "htp"
    ensemble: Any = "gaussian"
    signal: Any = "gaussian"
    d: int = 256
    k: Any = "K"
    noise_db: float | None = None
    matrix: str = "trial"
    success: float = 1e-3
    seed: int = 0

    def __post_init__(self) -> None:
        check_count(self.d, "d")
        check_choice(self.matrix, "matrix", MATRICES)
        check_number(self.success, "success", strict=True)
        check_count(self.seed, "seed", low=0)
        if self.noise_db is not None:
            object.__setattr__(self, "noise_db", check_number(self.noise_db, "noise_db", low=-300.0))
        object.__setattr__(self, "k", _rule(self.k))
        describe(self.algorithm, "algorithm")
        _solver(self.algorithm)
        _drawer(self.ensemble, "ensemble", ENSEMBLES)
        _drawer(self.signal, "signal", SIGNALS)

    @functools.cached_property
    def settings(self) -> dict[str, Any]:
        """As they stand in every record."""
        from ... import __version__

        return {
            "version": __version__,
            "seed": self.seed,
            "ensemble": describe(self.ensemble, "ensemble"),
            "signal": describe(self.signal, "signal"),
            "d": self.d,
            "noise_db": self.noise_db,
            "matrix": self.matrix,
            "below": self.success,
            "algorithm": describe(self.algorithm, "algorithm"),
            "k": self.k,
        }

    def told(self, K: int) -> int:
        """The k that the algorithm is told."""
        factor, times, _ = self.k.partition("K")
        return min(int(factor or 1) * (K if times else 1), self.d)

    def problem(self, n: int, K: int, trial: int) -> Trial:
        """The matrix, the signal and the measurements of a trial."""
        A = _matrix(self.ensemble, self.d, self.seed, n, K, None if self.matrix == "cell" else trial)
        draw = _drawer(self.signal, "signal", SIGNALS)
        x = draw(self.d, K, random_state=self._stream("signal", n, K, trial), dtype=A.dtype)
        y = A @ x
        if self.noise_db is None:
            return Trial(A, x, y, None)
        noise = float(np.linalg.norm(y)) / np.sqrt(n) * 10 ** (-self.noise_db / 20)
        rng = self._stream("noise", n, K, trial)
        e = rng.standard_normal(n)
        if y.dtype.kind == "c":
            e = (e + 1j * rng.standard_normal(n)) / np.sqrt(2)
        return Trial(A, x, y + noise * e, noise)

    def run(self, n: int, K: int, trial: int) -> dict[str, Any]:
        """Make a trial; its record."""
        A, x, y, noise = self.problem(n, K, trial)
        rng = self._stream("algorithm", describe(self.algorithm, "algorithm"), n, K, trial)
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")  # that k is too large for n, or a run diverged, is what trials are for
            try:
                found = _solve(self.algorithm, A, y, self.told(K), noise, rng)
            except (ValueError, ArithmeticError, np.linalg.LinAlgError) as trouble:
                where = f"{self.settings['algorithm']} at n = {n}, K = {K}, k = {self.told(K)}, trial {trial}"
                raise ValueError(f"{where}: {trouble}") from trouble
            error = float(np.linalg.norm(found - x) / np.linalg.norm(x))
        return {
            **self.settings,
            "K": K,
            "n": n,
            "trial": trial,
            "error": float(f"{error:.3e}") if np.isfinite(error) else None,
            "success": error < self.success,
        }

    def _stream(self, *what: Any) -> np.random.Generator:
        return stream(self.seed, describe(self.signal, "signal"), self.d, *what)

    def key(self, n: int, K: int, trial: int) -> tuple[str, str, int, int, int]:
        return self.settings["algorithm"], self.k, K, n, trial

    def check(self, record: dict[str, Any]) -> None:
        """Refuse a record that was made with other settings; other algorithms, told other k, may stand beside."""
        different = [name for name, here in self.settings.items() if record.get(name) != here and name not in KEY]
        if different:
            parts = (f"{name} is {record.get(name)!r} there and {self.settings[name]!r} here" for name in different)
            raise OtherSettings("; ".join(parts))


def _solve(algorithm: Any, A: Any, y: Any, k: int, noise: float | None, rng: np.random.Generator) -> NDArray[Any]:
    if _is_function(algorithm):
        return np.asarray(algorithm(A, y, k, noise=noise, random_state=rng))
    return recover(A, y, k, algorithm=_solver(algorithm), noise=noise, random_state=rng).x


@functools.lru_cache(maxsize=2)  # the trials of a cell may share their matrix
def _matrix(ensemble: Any, d: int, seed: int, n: int, K: int, trial: int | None) -> Any:
    draw = _drawer(ensemble, "ensemble", ENSEMBLES)
    return draw(n, d, random_state=stream(seed, "matrix", describe(ensemble, "ensemble"), d, n, K, trial))


def stream(*what: Any) -> np.random.Generator:
    """A generator whose seed is a digest of these words and numbers: the same on every machine."""
    digest = hashlib.sha256(json.dumps(what).encode()).digest()
    return np.random.default_rng(int.from_bytes(digest[:16], "big"))


def _is_function(algorithm: Any) -> bool:
    return inspect.isfunction(algorithm) or isinstance(algorithm, functools.partial)


# --- names -----------------------------------------------------------------------------------------------------------
def describe(thing: Any, name: str) -> str:
    """A text that tells settings apart: a name, a function's name, a solver with its settings."""
    if isinstance(thing, str):
        return thing
    if isinstance(thing, functools.partial) and not thing.args:
        return f"{describe(thing.func, name)}({', '.join(f'{key}={value!r}' for key, value in thing.keywords.items())})"
    text = thing.__qualname__ if inspect.isfunction(thing) else repr(thing)
    if "<" in text.replace("<locals>.", "") or " at 0x" in text:
        raise ValueError(f"{name} must have a name that says what it is, got {text}; define a function with def")
    return text


def split(text: str, name: str) -> tuple[str, dict[str, Any]]:
    """A name and its parameters.

    >>> split("correlated(rho=0.9)", "ensemble")
    ('correlated', {'rho': 0.9})
    """
    match = re.fullmatch(r"([\w-]+)(?:\((.*)\))?", text.strip())
    try:
        if match is None:
            raise ValueError
        call: Any = ast.parse(f"f({match[2] or ''})", mode="eval").body
        if call.args or any(word.arg is None for word in call.keywords):
            raise ValueError
        return match[1], {word.arg: ast.literal_eval(word.value) for word in call.keywords}
    except (ValueError, SyntaxError):
        raise ValueError(
            f"{name} must be a name, with its parameters in brackets if it has any, such as 'correlated(rho=0.9)', "
            f"got {text!r}"
        ) from None


def _solver(thing: Any) -> Any:
    """What `recover` takes: a name, or a solver made from a name with settings."""
    if not isinstance(thing, str):
        return thing
    name, settings = split(thing, "algorithm")
    check_choice(name, "algorithm", ALGORITHMS)
    if not settings:
        return name
    own = [field.name for field in fields(SOLVERS[name])] if name in SOLVERS else []
    _check_names(settings, f"algorithm {name!r}", own)
    return SOLVERS[name](**settings)


def _drawer(thing: Any, name: str, known: dict[str, Callable[..., Any]]) -> Callable[..., Any]:
    """The function that draws, with its parameters."""
    if callable(thing):
        describe(thing, name)
        return thing
    word, parameters = split(thing, name) if isinstance(thing, str) else (thing, {})
    function = known[check_choice(word, name, known)]
    own = list(inspect.signature(function).parameters)[2:]
    _check_names(parameters, f"{name} {word!r}", [parameter for parameter in own if parameter not in DRAWN])
    return functools.partial(function, **parameters)


def _check_names(given: dict[str, Any], owner: str, own: list[str]) -> None:
    for parameter in given:
        if parameter not in own:
            known = f"the parameters {', '.join(own)}" if own else "no parameters"
            raise ValueError(f"{owner} has {known}, got {parameter!r}")


def _rule(k: Any) -> str:
    """What the algorithm is told, as a text: 'K', '2K' or a number."""
    text = "K" if k is None else str(k)
    match = re.fullmatch(r"([1-9]\d*)?\*?(K?)", text)
    if isinstance(k, bool) or not text or match is None:
        raise ValueError(f"k must be 'K', a multiple such as '2K', or a whole number, got {k!r}")
    factor, times = match[1] or "", match[2]
    return "K" if times and factor == "1" else factor + times
