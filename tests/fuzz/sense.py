"""`recover` with every algorithm, real and complex, one signal or several."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sparse
from draws import chance, pick, shape, spoil, values
from scipy.sparse.linalg import aslinearoperator

import ksparse
from ksparse.sensing.recovery import ALGORITHMS


def fuzz_recover(rng, watch):
    n, d = shape(rng, 30, 40)
    A = values(rng, n, d) / pick(rng, 1.0, np.sqrt(n))
    if chance(rng, 0.15):
        A = A + 1j * np.nan_to_num(values(rng, n, d))
    truth = rng.standard_normal((d, pick(rng, 1, 1, 1, 2, 9))) * (rng.random((d, 1)) < rng.random() * min(n, d) / d)
    with np.errstate(all="ignore"):
        y = np.nan_to_num(A @ truth, posinf=0.0, neginf=0.0)
        y = y + pick(rng, 0.0, 0.0, 0.01) * np.abs(y).max() * rng.standard_normal(y.shape)
        y = y * float(f"1e{pick(rng, 0, 0, 0, 0, 0, 0, 0, 0, -300, -150, 100)}")
    y = y[:, 0] if y.shape[1] == 1 else y
    make = pick(
        rng, np.asarray, np.asarray, np.asfortranarray, sparse.csr_matrix, sparse.csc_array, aslinearoperator, to_single
    )
    k = int(rng.integers(1, min(n, d) + 1)) if chance(rng, 0.8) else int(rng.integers(1, d + 2))
    arguments = {"A": make(A), "y": y, "k": k, "random_state": 0}
    if chance(rng, 0.8):
        arguments["algorithm"] = pick(rng, *ALGORITHMS)
    if chance(rng, 0.2):
        arguments["noise"] = pick(rng, 0.0, 0.01, 1.0, 1e300)
    if chance(rng, 0.1):
        arguments["residual"] = pick(rng, 0.0, 1e-6, 1.0, 1e-320)
    if y.ndim == 2 and chance(rng, 0.5):
        arguments["joint"] = True
    if chance(rng, 0.1):
        arguments["check_adjoint"] = True
    arguments = spoil(rng, arguments)
    watch.note("recover", arguments)
    found = watch.call(ksparse.recover, **arguments)
    if np.shape(arguments["A"]) != np.shape(A):  # what should have been wrong was another matrix
        return
    if make is to_single:
        A = to_single(A).astype(complex if np.iscomplexobj(A) else float)
    check(watch, A, np.asarray(arguments["y"]), found, k, arguments.get("joint", False))


def to_single(A):
    with np.errstate(all="ignore"):
        return A.astype(np.complex64 if np.iscomplexobj(A) else np.float32)


def check(watch, A, y, found, k, joint):
    n, Y = len(A), y.reshape(len(A), -1)
    x = found.x.reshape(A.shape[1], -1)
    watch.expect(x.shape[1] == Y.shape[1], "shape", f"{found.x.shape}")
    count = np.count_nonzero(x.any(axis=1)) if joint else np.count_nonzero(x, axis=0).max()
    watch.expect(count <= k, "support", f"{count} chosen, k = {k}")
    if not np.isfinite(x).all():
        watch.expect("converged" not in found.statuses, "not finite", f"status {found.status}")
        return
    unit = float(np.abs(Y).max()) or 1.0  # squares are taken of numbers around one
    with np.errstate(all="ignore"):
        rest = np.linalg.norm(Y / unit - A @ (x / unit), axis=0)
        error = 1e-13 * (np.linalg.norm(np.abs(A) @ (np.abs(x) / unit), axis=0) + np.linalg.norm(Y / unit, axis=0))
        error += (1.0 + np.linalg.norm(np.abs(A).sum(axis=1))) * (1e-323 / unit)  # the smallest number there is
        size = np.linalg.norm(Y / unit, axis=0)
        reported, objective = np.atleast_1d(found.residual) / unit, np.atleast_1d(found.objective)
        close = ~(np.abs(reported - rest) > 1e-6 * rest + error)
        wanted = 0.5 * (np.atleast_1d(found.residual) ** 2) / n
        same = (np.abs(objective - wanted) <= 1e-6 * wanted + 1e-300) | ~np.isfinite(wanted)
    watch.expect(
        close.all() or not np.isfinite(rest).all(), "residual", f"reported {reported}, true {rest} ({found.status})"
    )
    watch.expect(same.all(), "objective", f"reported {objective}, from the residual {wanted}")
    done = np.array([status == "converged" for status in found.statuses])
    if done.size == rest.size:
        worse = done & (rest > size * (1.0 + 1e-6) + error)
        watch.expect(
            not worse.any(), "worse than nothing", f"residual {rest[worse]}, |y| {size[worse]}, {found.algorithm}"
        )
