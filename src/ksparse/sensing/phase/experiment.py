"""What is tried: the settings of an experiment, its trials, and the grid of (n, K) that they are run on.

A trial is a function of (experiment, n, K, trial) and of nothing else.  Its random numbers come from a seed that is a
digest of these, so that the order of trials, the number of workers and an interruption cannot change it.  The problem
does not depend on the algorithm: all algorithms are given the same matrices and signals.
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
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..._validate import check_choice, check_count, check_counts, check_number, check_numbers
from ...solvers import SOLVERS
from ..ensembles import ENSEMBLES
from ..recovery import ALGORITHMS, recover
from ..signals import SIGNALS
from .ledger import check_settings

OUTCOME = ("K", "n", "trial", "error", "success")  # the fields of a record that follow the settings
SET_BY_TRIAL = ("random_state", "dtype")  # parameters of ensembles and signals that users cannot choose
MATRICES = ("trial", "cell")
KEY = ("algorithm", "k", "K", "n", "trial")  # the fields that identify a trial in a file, and give its order

SETTINGS = """\
    algorithm : str, solver or function, default="htp"
        What `recover` takes; a name with settings, such as ``"pgd(step='spectral')"``; or a function
        f(A, y, k, *, noise, random_state) that returns x.  Result files store a function by its name only.
    ensemble : str or function, default="gaussian"
        A name in ``ENSEMBLES``, with parameters if needed, such as ``"correlated(rho=0.9)"``; or a function with the
        same arguments.
    signal : str or function, default="gaussian"
        A name in ``SIGNALS``, or a function with the same arguments.
    d : int, default=256
        Length of the signals.
    k : str or int, default="K"
        The sparsity given to the algorithm: "K", a multiple such as "2K", or a number; at most d is used.
    noise_db : float, default=None
        Signal-to-noise ratio ‖Ax‖²/E‖e‖² in decibels; the algorithm is given the standard deviation of the noise.
        None: no noise.
    matrix : {"trial", "cell"}, default="trial"
        Draw a new matrix for every trial, or one matrix per cell, as in the paper.  Trials that share a matrix are not
        independent: a bad matrix makes all of them fail, so that confidence intervals are too narrow.
    success : float, default=1e-3
        A trial succeeds if ‖x − x*‖/‖x*‖ is below this.
    seed : int, default=0
        The same seed gives the same trials, whatever the order and the number of workers, and the same problems for
        every algorithm."""

Documented = TypeVar("Documented", bound=Callable[..., Any])


def fill_doc(**texts: str) -> Callable[[Documented], Documented]:
    """Decorator that replaces ``{name}`` in a docstring by a text that several docstrings share."""

    def fill(documented: Documented) -> Documented:
        for name, text in texts.items():
            documented.__doc__ = (documented.__doc__ or "").replace(f"    {{{name}}}", text)
        return documented

    return fill


class Trial(NamedTuple):
    """A problem: measurements y = A x + noise of a signal x; `noise` is the standard deviation."""

    A: Any
    x: NDArray[Any]
    y: NDArray[Any]
    noise: float | None


@fill_doc(settings=SETTINGS)
@dataclass(frozen=True)
class Experiment:
    """The settings that all trials of an experiment share.

    Parameters
    ----------
    {settings}

    Examples
    --------
    >>> record = Experiment("htp", d=32).run(n=24, K=2, trial=0)
    >>> record["success"]
    True
    """

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
        object.__setattr__(self, "k", _sparsity_rule(self.k))
        describe(self.algorithm, "algorithm")
        _solver(self.algorithm)
        _drawer(self.ensemble, "ensemble", ENSEMBLES)
        _drawer(self.signal, "signal", SIGNALS)

    @functools.cached_property
    def settings(self) -> dict[str, Any]:
        """The settings as every record holds them."""
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
        """The sparsity k that the algorithm is given for signals with K non-zeros."""
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
        """Run a trial and return its record."""
        problem = self.problem(n, K, trial)
        rng = self._stream("algorithm", self.settings["algorithm"], n, K, trial)
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")  # failed and diverged runs are expected: they are what is counted
            try:
                found = self._solve(problem, self.told(K), rng)
            except (ValueError, ArithmeticError, np.linalg.LinAlgError) as trouble:
                where = f"{self.settings['algorithm']} at n = {n}, K = {K}, k = {self.told(K)}, trial {trial}"
                raise ValueError(f"{where}: {trouble}") from trouble
            error = float(np.linalg.norm(found - problem.x) / np.linalg.norm(problem.x))
        return {
            **self.settings,
            "K": K,
            "n": n,
            "trial": trial,
            "error": float(f"{error:.3e}") if np.isfinite(error) else None,
            "success": error < self.success,
        }

    def _solve(self, problem: Trial, k: int, rng: np.random.Generator) -> NDArray[Any]:
        A, _, y, noise = problem
        if inspect.isfunction(self.algorithm) or isinstance(self.algorithm, functools.partial):
            return np.asarray(self.algorithm(A, y, k, noise=noise, random_state=rng))
        return recover(A, y, k, algorithm=_solver(self.algorithm), noise=noise, random_state=rng).x

    def _stream(self, *what: Any) -> np.random.Generator:
        return stream(self.seed, self.settings["signal"], self.d, *what)

    def key(self, n: int, K: int, trial: int) -> tuple[str, str, int, int, int]:
        """The values of the fields `KEY` in the record of a trial."""
        return self.settings["algorithm"], self.k, K, n, trial

    def check(self, record: dict[str, Any]) -> None:
        """Raise `OtherSettings` if a record has other settings; only the algorithm and its k may differ."""
        check_settings({name: here for name, here in self.settings.items() if name not in KEY}, record)


@functools.lru_cache(maxsize=2)  # the trials of a cell may share their matrix
def _matrix(ensemble: Any, d: int, seed: int, n: int, K: int, trial: int | None) -> Any:
    draw = _drawer(ensemble, "ensemble", ENSEMBLES)
    return draw(n, d, random_state=stream(seed, "matrix", describe(ensemble, "ensemble"), d, n, K, trial))


def stream(*what: Any) -> np.random.Generator:
    """A random generator whose seed is a digest of these texts and numbers: the same on every machine.

    >>> int(stream("noise", 0).integers(1000))
    660
    """
    digest = hashlib.sha256(json.dumps(what).encode()).digest()
    return np.random.default_rng(int.from_bytes(digest[:16], "big"))


# --- the grid --------------------------------------------------------------------------------------------------------
class Grid(NamedTuple):
    """Cell i has n[i] measurements and signals with K[i] non-zeros; cells are sorted by K, then by n."""

    n: NDArray[np.int64]
    K: NDArray[np.int64]


def make_grid(d: int, n: Any = None, K: Any = None, delta: Any = None, rho: Any = None) -> Grid:
    """The grid of all pairs of n and K, or of delta = n/d and rho = K/n, rounded and without duplicates.

    Parameters
    ----------
    d : int
        Length of the signals.
    n, K : int or array, default=None
        Numbers of measurements and of non-zeros; by default about 32 values of n up to d, and K up to d/10.
    delta, rho : float or array, default=None
        The same as shares: n = delta d and K = rho n.  Give n and K, or delta and rho.

    Examples
    --------
    >>> make_grid(100, n=[20, 40], K=[1, 2])
    Grid(n=array([20, 40, 20, 40]), K=array([1, 1, 2, 2]))
    """
    if delta is not None or rho is not None:
        if n is not None or K is not None:
            raise ValueError("a grid is of n and K or of delta and rho, got some of both; leave one pair out")
        if delta is None or rho is None:
            raise ValueError("delta and rho belong together, got one of them; give the other too")
        delta = np.atleast_1d(check_numbers(delta, "delta", strict=True))
        rho = np.atleast_1d(check_numbers(rho, "rho", strict=True))
        _limit(delta, "delta", 1, "1")
        _limit(rho, "rho", 1, "1")
        rows = np.maximum(np.rint(delta * d), 1)[:, None]
        pairs = np.stack(np.broadcast_arrays(np.maximum(np.rint(rho * rows), 1), rows), axis=-1)
    else:
        n = np.arange(max(d // 32, 1), d + 1, max(d // 32, 1)) if n is None else np.atleast_1d(check_counts(n, "n"))
        K = np.arange(1, max(d // 10, 1) + 2, max(d // 128, 1)) if K is None else np.atleast_1d(check_counts(K, "K"))
        _limit(n, "n", d, f"d = {d}")
        _limit(K, "K", d, f"d = {d}")
        pairs = np.stack(np.meshgrid(K, n), axis=-1)
    cells = np.unique(pairs.reshape(-1, 2).astype(np.int64), axis=0)
    return Grid(cells[:, 1], cells[:, 0])


def _limit(values: NDArray[Any], name: str, high: int, text: str) -> None:
    if values.max(initial=0) > high:
        raise ValueError(f"{name} must be at most {text}, got {values.max():g}")


# --- names -----------------------------------------------------------------------------------------------------------
def describe(thing: Any, name: str) -> str:
    """A text that identifies a setting: a name, the name of a function, or a solver with its settings."""
    if isinstance(thing, str):
        return thing
    if isinstance(thing, functools.partial) and not thing.args:
        return f"{describe(thing.func, name)}({', '.join(f'{key}={value!r}' for key, value in thing.keywords.items())})"
    text = thing.__qualname__ if inspect.isfunction(thing) else repr(thing)
    if "<" in text.replace("<locals>.", "") or " at 0x" in text:
        raise ValueError(f"{name} must have a name that says what it is, got {text}; define a function with def")
    return text


def split(text: str, name: str) -> tuple[str, dict[str, Any]]:
    """Split a text such as "correlated(rho=0.9)" into a name and its parameters.

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
    """The algorithm as `recover` takes it: a name, or a solver if the name comes with settings."""
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
    """The function of an ensemble or a signal, with its parameters filled in."""
    if callable(thing):
        describe(thing, name)
        return thing
    word, parameters = split(thing, name) if isinstance(thing, str) else (thing, {})
    function = known[check_choice(word, name, known)]
    own = list(inspect.signature(function).parameters)[2:]
    _check_names(parameters, f"{name} {word!r}", [parameter for parameter in own if parameter not in SET_BY_TRIAL])
    return functools.partial(function, **parameters)


def _check_names(given: dict[str, Any], owner: str, own: list[str]) -> None:
    for parameter in given:
        if parameter not in own:
            known = f"the parameters {', '.join(own)}" if own else "no parameters"
            raise ValueError(f"{owner} has {known}, got {parameter!r}")


def _sparsity_rule(k: Any) -> str:
    """The rule for the sparsity that the algorithm is given, as a text: 'K', '2K' or a number."""
    text = "K" if k is None else str(k)
    match = re.fullmatch(r"([1-9]\d*)?\*?(K?)", text)
    if isinstance(k, bool) or not text or match is None:
        raise ValueError(f"k must be 'K', a multiple such as '2K', or a whole number, got {k!r}")
    factor, times = match[1] or "", match[2]
    return "K" if times and factor == "1" else factor + times
