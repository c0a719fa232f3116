"""`minimize`: a loss over k-sparse vectors, by any solver of the package; and the run of a solver in the loop."""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ._validate import check_choice, check_count, check_flag, check_generator, check_number, check_vector
from .design import Design, Standardized, as_design
from .design import standardize as standardize_columns
from .engine import loop
from .engine.loop import Clock, State, Stopping, Task, Trace
from .engine.resume import fingerprint, rebuilt
from .problem import Problem, Slots, Snapshot, check_weight, copy_slots
from .result import Progress, Record, Result, Status, judged
from .solvers import HTSVRG, PGD, SOLVERS, Exchange
from .solvers.base import Solver
from .solvers.exchange.sample import columns_fit, sample_fits
from .solvers.newton import Refitter
from .sources import as_source


def minimize(
    A: Any,
    y: ArrayLike,
    k: int,
    *,
    loss: Any = "squared",
    solver: Any = "auto",
    standardize: bool = False,
    l2: float = 0.0,
    radius: float = math.inf,
    always_keep: ArrayLike | None = None,
    intercept: bool = False,
    positive: bool = False,
    offset: ArrayLike | None = None,
    x0: ArrayLike | Result | None = None,
    sample_weight: ArrayLike | None = None,
    random_state: Any = None,
    callback: Callable[[Progress], Any] | None = None,
    max_time: float | None = None,
) -> Result:
    r"""Minimise a loss over vectors with at most k non-zeros.

    .. math:: \min_x\ F(x) = \frac1n \sum_{i=1}^n \tilde w_i\,\varphi(a_i\cdot x, y_i) + \frac{\lambda}{2}\|x\|_2^2
              \quad\text{s.t.}\quad \|x\|_0 \le k,\ \|x\|_2 \le \omega

    Parameters
    ----------
    A : array, sparse matrix, DataFrame or source of shape (n, d)
        Its rows are samples.  C-ordered arrays and CSR matrices of float64 or float32 are not copied.  Rows that do not
        fit into memory come from a source: see `ksparse.sources`.
    y : array of shape (n,)
        Targets; −1 and +1 for the losses "logistic" and "squared_hinge", counts for "poisson", positive for "gamma".
    k : int
        How many non-zeros there may be, beside the kept columns.
    loss : str or loss
        "squared", "logistic", "poisson", "gamma", "huber", "squared_hinge", or an instance such as
        ``losses.Huber(0.5)``.
    solver : solver or str
        "auto": `Exchange`, whose result does not depend on the units of the columns; `PGD` with a radius;
        `HTSVRG` for a source whose columns do not fit into memory, if positive=True or if there are millions of
        columns.  Or an instance such as ``HTSVRG(step=0.1)``, or a name: "ht-svrg", "ht-saga", "pgd", "iht", "stoiht",
        "exchange", "grasp", "grahtp"; for the squared loss also "niht", "htp", "cosamp", "sp", "omp", "romp", "ompr".
    standardize : bool
        Work on columns of variance one, centred if there is an intercept (of mean square one without); λ and ω then act
        on their coefficients.  x and x0 stay in the units of A.  Every solver but "exchange" depends on those
        units: give it columns of one size, or standardize=True.
    l2 : float
        λ, the weight of the ridge.
    radius : float
        ω; the kept columns are outside it.
    always_keep : columns or mask, optional
        Columns that are in every model and do not count towards k.
    intercept : bool
        Fit a constant too: kept, never shrunk, ``result.intercept``.
    positive : bool
        No negative coefficients (the kept ones and the intercept are free).
    offset : array of shape (n,), optional
        Added to every prediction a·x.
    x0 : array of shape (d,) or Result, optional
        The start; Π_ω(H_k(x0)) is taken.  A `Result` brings its intercept along.  "omp" and "romp" grow their support
        from nothing and do not use it.
    sample_weight : array of shape (n,), optional
        Scaled to mean one; zero leaves a row out.
    random_state : None, int or Generator
        As in ``numpy.random.default_rng``; the same seed gives the same result, bit for bit.
    callback : function of a `Progress`, optional
        Called after every stage; the run stops if it returns something true.
    max_time : float, optional
        Seconds after which the best point so far is returned.

    Returns
    -------
    Result
        The point, its objective, how the run ended, and the history.  Ctrl-C too ends a run with the best point so far.

    Warns
    -----
    ConvergenceWarning
        The result is no better than the intercept and the kept columns alone (not for a solver with ``tol=0``).

    Examples
    --------
    >>> import numpy as np
    >>> from ksparse import minimize
    >>> rng = np.random.default_rng(0)
    >>> A = rng.standard_normal((200, 1000))
    >>> y = A[:, 5] - A[:, 42] + 0.1 * rng.standard_normal(200)
    >>> minimize(A, y, k=2).support
    array([ 5, 42])
    """
    result = solve(
        A, y, k, loss=loss, solver=solver, standardize=standardize, l2=l2, radius=radius, always_keep=always_keep,
        intercept=intercept, positive=positive, offset=offset, x0=x0, sample_weight=sample_weight,
        random_state=random_state, callback=callback, max_time=max_time,
    )  # fmt: skip
    null = result.null_objective
    nothing_to_gain = result.converged or result.objective == null == 0.0
    if null is not None and result.objective >= null and not nothing_to_gain:
        from sklearn.exceptions import ConvergenceWarning

        beside = f"no better than the intercept and the kept columns alone, {null:.6g}"
        message = f"the objective is {result.objective:.6g}, {beside} ({result.status.explain()})"
        warnings.warn(message, ConvergenceWarning, stacklevel=2)
    return result


def solve(
    A: Any,
    y: ArrayLike,
    k: int,
    *,
    loss: Any,
    solver: Any,
    standardize: bool,
    l2: float,
    radius: float = math.inf,
    always_keep: ArrayLike | None,
    intercept: bool,
    positive: bool,
    offset: ArrayLike | None,
    x0: Any,
    sample_weight: ArrayLike | None,
    random_state: Any,
    callback: Callable[[Progress], Any] | None,
    max_time: float | None,
) -> Result:
    """`minimize` without its warning, for callers that warn themselves; A may also be a design."""
    if callback is not None and not callable(callback):
        raise ValueError(f"callback must be a function of one argument, got {callback!r}")
    if max_time is not None:
        max_time = check_number(max_time, "max_time", strict=True, infinite=True)
    k = check_count(k, "k")
    rng = check_generator(random_state)
    design = as_design(as_source(A))
    radius = check_number(radius, "radius", strict=True, infinite=True)
    solver = pick_solver(solver, design, k, check_flag(positive, "positive"), radius)
    x0, intercept0 = (x0.x, x0.intercept) if isinstance(x0, Result) else (x0, 0.0)
    scaled = None
    if check_flag(standardize, "standardize"):
        weight = None if sample_weight is None else check_weight(sample_weight, design.shape[0])
        design = scaled = standardize_columns(
            design, weight, check_flag(intercept, "intercept"), by_rows=not solver.reads_columns
        )
        if x0 is not None:
            x0, intercept0 = scaled.to_scaled(check_vector(x0, "x0", design.shape[1], "column"), intercept0)
        callback = None if callback is None else _in_units_of_A(callback, scaled)
    problem = Problem.create(
        design, y, loss=loss, sample_weight=sample_weight, offset=offset, l2=l2,
        always_keep=always_keep, intercept=intercept, positive=positive, radius=radius,
    )  # fmt: skip
    free = problem.d - problem.kept.size
    if free == 0:
        raise ValueError("always_keep must leave columns to choose from, got all of them; take one out, k will keep it")
    if k > free:
        beside = f" beside the {problem.kept.size} always kept" if problem.kept.size else ""
        raise ValueError(f"k must be at most the number of columns{beside}, {free}, got {k}")
    clock = Clock(max_time, problem.d * solver.batch_size)
    result = loop.run(SolverRun(solver, problem, k, x0, intercept0, rng, clock), clock, callback)
    if scaled is None:
        return result
    x, constant = scaled.to_original(result.x, result.intercept)
    status = judged(result.status, result.objective, None, 0.0, bool(np.isfinite(x).all() and math.isfinite(constant)))
    return dataclasses.replace(result, x=x, intercept=constant, support=np.flatnonzero(x), status=status)


def pick_solver(
    solver: Any, design: Design, k: int, positive: bool, radius: float = math.inf, effort: str = "default"
) -> Solver:
    """The solver that is meant by an instance, a name or "auto", for `minimize` and the estimators."""
    if isinstance(solver, str) and solver == "auto":
        if radius != math.inf:
            return PGD()  # Exchange knows no balls
        if not columns_fit(design, k) and (positive or not sample_fits(design)):
            return HTSVRG()  # holds a sample of rows, and less for every column
        return Exchange(effort=effort)
    if isinstance(solver, str):
        solver = SOLVERS[check_choice(solver, "solver", ["auto", *SOLVERS])]()
    if isinstance(solver, type) or not isinstance(solver, Solver):
        names = ", ".join(map(repr, ["auto", *SOLVERS]))
        raise ValueError(f"solver must be an instance such as HTSVRG(), or one of {names}, got {solver!r}")
    return solver


def _in_units_of_A(callback: Callable[[Progress], Any], scaled: Standardized) -> Callable[[Progress], Any]:
    def tell(progress: Progress) -> Any:
        x, constant = scaled.to_original(progress.x, progress.intercept)
        return callback(progress._replace(x=x, intercept=constant))

    return tell


class SolverRun(Task[Result]):
    """The run of a solver: its iterate is in the slots of a problem."""

    start_argument = "x0"
    resumable = True

    def __init__(
        self,
        solver: Solver,
        problem: Problem,
        k: int,
        x0: ArrayLike | None,
        intercept0: float,
        rng: np.random.Generator,
        clock: Clock,
    ) -> None:
        self.solver, self.problem, self.k, self.x0, self.intercept0 = solver, problem, k, x0, intercept0
        self.rng: np.random.Generator = rng
        self.clock, self.limit, self.numbers = clock, solver.limit, problem.design.entries
        self.slots = problem.slots(k, x0, intercept0)
        self.best = Snapshot(self.slots)
        self.null: float | None = None  # the objective of the empty model, once it is known
        self.rules = Stopping(0.0 if solver.knows_its_end else solver.tol)

    def stages(self, state: State | None) -> Iterator[Record]:
        return self.solver.iterate(self.problem, self.slots, self.rng, self.clock, state)

    def take(self, record: Record, stage: int) -> Status | None:
        objective, problem, x = record.objective, self.problem, self.slots.x
        if stage == 0:
            if not math.isfinite(objective):
                raise ValueError(f"the objective is not finite at the start ({objective}); rescale y, offset or x0")
            at_zero = self.slots._replace(x=np.zeros_like(x))
            self.rules.begin(objective, objective if self.x0 is None else problem.objective(at_zero))
            self.null = record.null
        finite = math.isfinite(objective) and bool(np.isfinite(x).all())
        if not finite or (self.rules.blown(objective) and self.solver.stop_on_divergence):
            return self.diverged(record.step)
        self.best.keep_better(objective, self.slots)
        return None

    def shown(self) -> tuple[NDArray[np.float64], float, NDArray[np.intp]]:
        x = self.problem.vector(self.slots)
        return x, self.problem.constant(self.slots), np.flatnonzero(x)

    def judge(self, record: Record, stage: int) -> Status | None:
        if record.status is not None:
            return record.status
        remedy = self.solver.remedies.get("stalled", "")
        return self.rules.judge(record, stage, lambda: self.problem.predicted_decrease(self.slots), remedy)

    def exhausted(self) -> Status:
        remedy = "" if self.solver.tol == 0 else self.solver.remedies["stage limit"]
        return Status("stage limit", f"all {self.limit} stages done", remedy)

    def diverged(self, step: float) -> Status:
        return Status("diverged", *self.solver.explain_divergence(self.problem, self.k, step))

    def result(self, status: Status, trace: Trace) -> Result:
        """The last iterate of a run that ended well; the best one of others."""
        problem, tol, best = self.problem, self.solver.tol, self.best
        if status in ("converged", "stage limit", "stalled") and self.null is None and tol > 0.0:
            self.null = Refitter(problem, lambda: None).empty_fit().objective
        if status in ("converged", "stage limit", "stopped"):
            last = float(trace.records[-1][0])
            status = judged(status, last, self.null, self.rules.slack(tol, self.null), True)
            if status != "stalled":
                return self._result(self.slots, last, status, trace, trace.swap_optimal)
        if status in ("time limit", "interrupted"):
            best = self._best_of_all()
            if not trace.records:  # the start itself had not been evaluated
                trace.add(Record(best.objective, 0, 0, 1.0, math.nan, math.nan))
        return self._result(best.slots, best.objective, status, trace)

    def _best_of_all(self) -> Snapshot:
        """The best snapshot or the iterate of the stage that was cut short, which may be better.

        Ctrl-C may have come in the middle of a copy: so both are built anew from their coefficients, and their
        objectives computed.  But a pass over a source takes long: there the snapshot judged last is good enough.
        """
        problem, best = self.problem, self.best
        points: tuple[Slots, ...] = (best.slots, self.slots)
        if problem.design.in_memory:
            best = Snapshot(problem.slots(self.k))
        else:
            points = () if math.isfinite(best.objective) else (self.slots,)
        for point in points:
            again = problem.slots(self.k, problem.vector(point), problem.constant(point))
            objective = problem.objective(again)
            best.keep_better(objective if math.isfinite(objective) else math.inf, again)
        return best

    def _result(
        self, slots: Slots, objective: float, status: Status, trace: Trace, swap_optimal: bool | None = None
    ) -> Result:
        x, constant = self.problem.vector(slots), self.problem.constant(slots)
        history = trace.history()
        return Result(x, constant, np.flatnonzero(x), objective, status, trace.stages, history, swap_optimal, self.null)

    # --- checkpoints ---------------------------------------------------------------------------------------------
    def fingerprint(self) -> State:
        return fingerprint(self.solver, self.problem, self.k, self.x0, self.intercept0, self.rng)

    def state(self) -> State:
        best = self.best.slots
        return {
            "slots": [self.slots.column.copy(), self.slots.x.copy()],
            "best": [best.column.copy(), best.x.copy(), self.best.objective],
            "null": self.null,
            "rules": vars(self.rules).copy(),
        }

    def restore(self, state: State) -> None:
        copy_slots(rebuilt(self.problem, self.slots, *state["slots"]), self.slots)
        *best, objective = state["best"]
        self.best.take(objective, rebuilt(self.problem, self.slots, *best))
        self.null = state["null"]
        vars(self.rules).update(state["rules"])
