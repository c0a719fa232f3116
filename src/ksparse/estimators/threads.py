"""Several fits at a time, in threads that share the cores: the work is in kernels and BLAS, and X is not copied."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from joblib import Parallel, delayed, effective_n_jobs

from .._threads import at_most_threads, threads


def in_threads(function: Callable[..., Any], work: Iterable[tuple[Any, ...]], n_jobs: int | None) -> list[Any]:
    """What the function gives for every tuple of arguments, in `n_jobs` threads at most.

    Passes over the rows in each of them use their share of the cores; with n_jobs=None there is one thread, whose
    passes use all of them.
    """
    jobs = int(effective_n_jobs(n_jobs))
    share = None if jobs == 1 and n_jobs is None else max(1, threads() // jobs) if jobs > 1 else 1

    def one(arguments: tuple[Any, ...]) -> Any:
        with at_most_threads(share):
            return function(*arguments)

    if jobs == 1:
        return [one(arguments) for arguments in work]
    return list(Parallel(n_jobs=jobs, prefer="threads")(delayed(one)(arguments) for arguments in work))
