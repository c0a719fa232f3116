"""`recover`: sparse signals from linear measurements, by any algorithm, for any kind of A."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .._text import progress
from .._threads import one_blas_thread
from .._validate import check_choice, check_count, check_flag, check_generator, check_number
from ..engine import loop
from ..engine.loop import BLOW_UP, PATIENCE, Clock
from ..result import Progress, Record, Result, Status
from ..solvers import SOLVERS
from ..solvers.base import Solver
from ..solvers.pursuit import Course, Iterate, Steps, entered
from . import convex
from .auto import AutoSearch, most
from .linear import Linear
from .measurements import REACHED, Measurements, Recovery, SignalRun, summary

ALGORITHMS = ("auto", *(name for name in SOLVERS if name != "exchange"), *convex.PROGRAMS)


def recover(
    A: Any,
    y: ArrayLike,
    k: int,
    *,
    algorithm: Any = "auto",
    noise: float | None = None,
    residual: float | None = None,
    joint: bool = False,
    check_adjoint: bool = False,
    random_state: Any = None,
    callback: Callable[[Progress], Any] | None = None,
    max_time: float | None = None,
    verbose: bool = False,
) -> Recovery:
    r"""Recover a signal with at most k non-zeros from linear measurements y = Ax + noise.

    Parameters
    ----------
    A : array, sparse matrix, or operator of shape (n, d), real or complex
        An operator is a `scipy.sparse.linalg.LinearOperator`, one of pylops or SigPy, anything with `shape`, `matvec`
        and `rmatvec` (`dtype`, `matmat` and `rmatmat` are used if they are there), or a tuple of two functions of a
        vector and the shape, ``(matvec, rmatvec, (n, d))``.
        Arrays of float64 or complex128 are not copied, except by "auto" if the norms of the columns differ much, and
        for eight right-hand sides or more: in single precision, and transposed unless the array has Fortran order.  An
        operator is never turned into a matrix.
    y : array of shape (n,) or (n, p)
        One right-hand side or several, which go through A together.
    k : int
        How many non-zeros there may be.  For "auto" an upper bound, which may be several times too large.
    algorithm : str or solver, default="auto"
        "auto" (see Notes), "htp", "cosamp", "sp" (subspace pursuit), "omp", "romp", "ompr", "iht", "niht", "pgd",
        "grasp", "grahtp"; the stochastic "ht-svrg", "ht-saga", "stoiht", which need the rows of a real matrix; the
        convex "bp" (basis pursuit), "lasso" and "dantzig", whose k largest entries are taken.  Or an instance with
        settings, such as ``CoSaMP(select=1)``.
    noise : float, default=None
        The standard deviation of the noise in an entry of y (for complex noise, the root of E|e|²).  A run stops once
        the residual is as small as such noise.
    residual : float, default=None
        Stop once ‖y − Ax‖ is at most this.
    joint : bool, default=False
        Several right-hand sides have their non-zeros in the same places.
    check_adjoint : bool, default=False
        Test first that an operator's `rmatvec` is the adjoint of its `matvec`, at the cost of two products.
    random_state : None, int or Generator, default=None
        For the stochastic algorithms.
    callback : function of a `Progress`, default=None
        Called after every stage; the run stops if it returns something true.
    max_time : float, default=None
        Seconds after which the best points so far are returned.
    verbose : bool, default=False
        Show a line of progress.

    Returns
    -------
    Recovery
        A `Result` with the residual and the number of products.

    Notes
    -----
    "auto" searches for at most min(k, n/2) non-zeros (k, if n ≥ d).  It tries methods of increasing cost, until one
    fits y exactly, or up to noise with enough measurements to be certain: subspace pursuits for growing k, each of
    which starts from the support of the last one (for an operator, one at the largest k comes first, because it takes
    the fewest products); and, for an array or a sparse matrix with n²d up to 10⁹, least squares with a variance for
    every coefficient (sparse Bayesian learning), which costs up to 80·2n products and needs fewer measurements than
    pursuits that are told K.  If y is noisy, columns are removed again as long as a criterion for the size of the
    support improves.

    Examples
    --------
    >>> import numpy as np
    >>> from ksparse import recover, sensing
    >>> A = sensing.ensembles.gaussian(80, 400, random_state=0)
    >>> x = sensing.signals.gaussian(400, 10, random_state=1)
    >>> found = recover(A, A @ x, k=30)  # 30 is only a bound: there are 10
    >>> found.support.size, bool(np.allclose(found.x, x))
    (10, True)
    """
    name, algorithm = _check_algorithm(algorithm)
    joint, verbose = check_flag(joint, "joint"), check_flag(verbose, "verbose")
    check_adjoint = check_flag(check_adjoint, "check_adjoint")
    noise = None if noise is None else check_number(noise, "noise")
    residual = None if residual is None else check_number(residual, "residual")
    max_time = None if max_time is None else check_number(max_time, "max_time", strict=True, infinite=True)
    if callback is not None and not callable(callback):
        raise ValueError(f"callback must be a function of one argument, got {callback!r}")
    rng = check_generator(random_state)
    given = Measurements.create(A, y, joint)
    k = check_count(k, "k", high=given.d, high_text="the number of columns of A")
    if check_adjoint:
        given.check_adjoint()
    _warn_if_too_large(k, given.n, given.d, name)
    if name in convex.PROGRAMS or not isinstance(algorithm, (str, Steps)):
        _refuse_ignored(name, noise=noise, residual=residual, callback=callback, max_time=max_time)
        return _one_by_one(given, k, name, algorithm, noise, rng, callback, max_time, verbose)

    clock = Clock(max_time, 1)
    given = given.with_even_columns() if name == "auto" else given
    system = given.system(clock.check)
    with progress(verbose, callback) as tell, one_blas_thread():
        task: SignalRun
        if isinstance(algorithm, Steps):
            task = PursuitRun(given, system, name, noise, residual, algorithm, k)
        else:
            task = AutoSearch(given, system, noise, residual, k)
        result = loop.run(task, clock, tell)
    assert isinstance(result, Recovery)
    return result


class PursuitRun(SignalRun):
    """A pursuit: steps of all signals together, each until it has converged."""

    def __init__(
        self,
        given: Measurements,
        system: Linear,
        name: str,
        noise: float | None,
        residual: float | None,
        pursuit: Steps,
        k: int,
    ) -> None:
        super().__init__(given, system, name, noise, residual)
        self.pursuit, self.k, self.limit = pursuit, k, pursuit.limit
        self.courses = [Course(point, point.misfit) for point in self.now]

    def stages(self, state: Any) -> Iterator[Record]:
        self.ends = [REACHED if self.reached(point) else None for point in self.now]
        yield self.record(0)
        stage = 0
        while active := [i for i, end in enumerate(self.ends) if end is None]:
            self.system.check()
            stage += 1
            points = [self.now[i] for i in active]
            moved = self.pursuit.advance(self.system, self.k, points)
            for i, before, point in zip(active, points, moved, strict=True):
                self.now[i] = point
                end = self.courses[i].take(self.pursuit, before, point)
                self.best[i] = self.courses[i].best
                self.ends[i] = self._end(end, point, stage)
            yield self.record(entered(points, moved))

    def _end(self, end: str | None, point: Iterate, stage: int) -> Status | None:
        """How the run of a signal ended with this point, from what its course says."""
        if not point.misfit <= BLOW_UP * self.courses[point.signal].first:
            remedy = "use 'niht' or 'auto', which choose their steps"
            return Status("diverged", f"the residual grew in stage {stage}", remedy)
        if self.reached(point):
            return REACHED
        if end == "converged":
            return Status(end, f"stage {stage} left the support as it was")
        if end == "stalled":
            message = f"no stage of the last {PATIENCE} made the residual smaller"
            return Status(end, message, "try algorithm='auto', or a larger k")
        return None

    def exhausted(self) -> Status:
        remedy = "allow more iterations, or a larger tol"
        return Status("stage limit", f"all {self.limit} stages done", remedy)


def _check_algorithm(algorithm: Any) -> tuple[str, Any]:
    """The name of an algorithm and its solver; "auto" and the convex programs have no solver: their name again."""
    if isinstance(algorithm, str):
        name = check_choice(algorithm, "algorithm", ALGORITHMS)
        return name, SOLVERS[name]() if name in SOLVERS else name
    if isinstance(algorithm, type) or not isinstance(algorithm, (Steps, Solver)):
        known = ", ".join(map(repr, ALGORITHMS))
        raise ValueError(
            f"algorithm must be one of {known}, or an instance such as CoSaMP(select=1), got {algorithm!r}"
        )
    return SOLVERS.name_of(algorithm), algorithm


def _refuse_ignored(name: str, **settings: Any) -> None:
    """Refuse settings that the algorithm would silently ignore."""
    known = ("noise",) if name in convex.PROGRAMS else ("callback", "max_time")
    for setting, value in settings.items():
        if value is not None and setting not in known:
            raise ValueError(f"algorithm={name!r} has no use for {setting}, got {value!r}; leave it out, or use 'auto'")


def _warn_if_too_large(k: int, n: int, d: int, name: str) -> None:
    if k < n:
        return
    why = f"k = {k} is not below the number of measurements, {n}: any {n} columns fit y exactly"
    remedy = (
        f"at most {most(k, n, d)} non-zeros are searched for" if name == "auto" else "give a smaller k, or measure more"
    )
    warnings.warn(f"{why}; {remedy}", UserWarning, stacklevel=3)


def _one_by_one(
    given: Measurements,
    k: int,
    name: str,
    algorithm: Any,
    noise: float | None,
    rng: np.random.Generator,
    callback: Callable[[Progress], Any] | None,
    max_time: float | None,
    verbose: bool,
) -> Recovery:
    """Algorithms that take one real right-hand side at a time."""
    from .._minimize import minimize

    given.need_real_matrix(name)
    found: list[Result] = []
    with progress(verbose, callback) as tell:
        for y in np.ascontiguousarray(given.y.T):
            if not y.any():
                found.append(convex.zero(given.d))
            elif name in convex.PROGRAMS:
                found.append(convex.solve(name, given.A, y, k, given.scaled(noise)))
            else:
                found.append(
                    minimize(given.A, y, k, solver=algorithm, random_state=rng, callback=tell, max_time=max_time)
                )
    x = np.stack([result.x for result in found], axis=1)
    with np.errstate(over="ignore", invalid="ignore"):  # if x leaves the range of floats, `signals` refuses it
        residuals = given.residuals(list((given.y - given.A @ x).T[:, np.newaxis]))
    x, ends = given.signals(x), tuple(result.status for result in found)
    return Recovery(
        x, 0.0, given.supports(x), given.objective(residuals), summary(ends), max(result.n_stages for result in found),
        found[0].history, None, None, residuals, 0, name, ends,
    )  # fmt: skip
