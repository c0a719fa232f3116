"""Do we compute what skscope computes?  Its IHT, HTP, OMP, GraSP and FoBa on shared problems, in a file for the tests.

    python benchmarks/agree_skscope.py [--out tests/data/skscope.json]

Needs skscope (and its jax); `tests/solvers/test_beside_skscope.py` needs only the file, makes the problems again from
their seeds, and compares supports and objectives.

Its solvers are told what makes both sides run the same algorithm.  The loss is the sum over the rows, squared: half the
square, and the step of IHT and HTP is 1 (0.005 by default, in whatever unit the loss has), as in compressed sensing;
fits on a support go to a gradient of 1e-10 (by default L-BFGS ends near 1e-5), in double precision.  Objectives are
written as means.  What differs still: its IHT ends once two supports in a row are the same and then fits; its GraSP
and HTP end at the first support seen before, and give the best iterate; its GraSP does not fit what it has pruned.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

import numpy as np
from _store import installed, write_whole

PROBLEMS = {
    "gaussian": {"seed": 1, "n": 120, "d": 256, "K": 8, "noise": 0.02, "loss": "squared"},
    "gaussian, noisy": {"seed": 2, "n": 200, "d": 400, "K": 10, "noise": 0.3, "loss": "squared"},
    "correlated": {"seed": 3, "n": 200, "d": 100, "K": 6, "noise": 0.1, "rho": 0.4, "loss": "squared"},
    "k too large": {"seed": 4, "n": 800, "d": 60, "K": 5, "k": 8, "noise": 0.1, "loss": "squared"},
    "logistic": {"seed": 5, "n": 600, "d": 60, "K": 5, "loss": "logistic"},
    "logistic, wide": {"seed": 6, "n": 500, "d": 150, "K": 4, "loss": "logistic"},
}


def problem(seed, n, d, K, loss, k=None, noise=0.0, rho=0.0):
    """Rows of an AR(rho) process with variance 1/n, K coefficients of ±U(1, 2); A, y and k.  Labels are ±1, drawn with
    the logistic probabilities of 2√n·Ax."""
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((n, d))
    for j in range(1, d):
        A[:, j] = rho * A[:, j - 1] + np.sqrt(1 - rho**2) * A[:, j]
    A /= np.sqrt(n)
    x = np.zeros(d)
    x[rng.choice(d, K, replace=False)] = rng.choice([-1.0, 1.0], K) * rng.uniform(1.0, 2.0, K)
    if loss == "logistic":
        y = np.where(2 * np.sqrt(n) * (A @ x) + rng.logistic(size=n) > 0, 1.0, -1.0)
    else:
        y = A @ x + noise * rng.standard_normal(n) / np.sqrt(n)
    return A, y, k or K


def fit_on(objective, value_and_grad, start, columns, data):
    """skscope's L-BFGS, to the end."""
    from scipy.optimize import minimize

    def both(w):
        start[columns] = w
        value, gradient = value_and_grad(start, data)
        return float(value), np.asarray(gradient, float)[columns]

    options = {"ftol": 0.0, "gtol": 1e-10, "maxiter": 10_000, "maxfun": 100_000}
    best = minimize(both, start[columns], method="L-BFGS-B", jac=True, options=options)
    start[columns] = best.x
    return best.fun, start


def solutions(A, y, k, loss):
    """What each solver of skscope finds: its support and its objective, a mean over the rows."""
    import jax.numpy as jnp
    from skscope import FobaSolver, GraspSolver, HTPSolver, IHTSolver, OMPSolver

    X, t = jnp.asarray(A), jnp.asarray(y)

    def total(x):
        z = X @ x
        return jnp.sum((t - z) ** 2) / 2 if loss == "squared" else jnp.sum(jnp.logaddexp(0.0, -t * z))

    solvers = {
        "iht": IHTSolver(A.shape[1], k, numeric_solver=fit_on, step_size=1.0, max_iter=2000),
        "htp": HTPSolver(A.shape[1], k, numeric_solver=fit_on, step_size=1.0),
        "omp": OMPSolver(A.shape[1], k, numeric_solver=fit_on),
        "grasp": GraspSolver(A.shape[1], k, numeric_solver=fit_on),
        "foba": FobaSolver(A.shape[1], k, numeric_solver=fit_on),
    }
    found = {}
    for name, solver in solvers.items():
        x = np.asarray(solver.solve(total, jit=True), float)
        found[name] = {"support": np.flatnonzero(x).tolist(), "objective": float(total(x)) / len(y)}
    return found


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = Path(__file__).parent.parent / "tests" / "data" / "skscope.json"
    parser.add_argument("--out", type=Path, default=default, help="JSON")
    options = parser.parse_args(arguments)
    os.environ["JAX_ENABLE_X64"] = "1"  # read when jax is loaded
    report = {"skscope": installed("skscope"), "jax": installed("jax"), "problems": {}}
    for name, settings in PROBLEMS.items():
        found = solutions(*problem(**settings), settings["loss"])
        report["problems"][name] = {"settings": settings, "solutions": found}
        print(name, {solver: round(row["objective"], 6) for solver, row in found.items()}, flush=True)
    write_whole(options.out, json.dumps(report, indent=1) + "\n")
    print(f"written to {options.out}")


if __name__ == "__main__":
    main()
