"""Textbook versions of the recovery algorithms: plain NumPy, every product dense, every fit by lstsq.  Nothing shared
with the package.

Each takes (A, y, k, ...), real or complex, and returns x.  y of shape (n, p) is a joint problem: rows of x are chosen
by their norms.  `choose` says what is chosen: `rows`, or `pairs`, columns j and j + d of the real embedding of a
complex problem (`embed`) together.
"""

from __future__ import annotations

import itertools

import numpy as np
from oracle import slope, value
from scipy import optimize

ENOUGH = 1e-12  # a residual this small beside y is no residual


# --- what they share: the largest entries, and least squares on a few columns -----------------------------------------
def sizes(v):
    return np.linalg.norm(v.reshape(len(v), -1), axis=1)


def rows(v, k):
    """The k largest entries (or rows), the lower index first among equals, sorted."""
    return np.sort(np.argsort(-sizes(v), kind="stable")[:k])


def pairs(v, k):
    """Both columns of the k largest pairs."""
    d = len(v) // 2
    chosen = rows(np.stack([sizes(v[:d]), sizes(v[d:])], axis=1), k)
    return np.concatenate([chosen, chosen + d])


def embed(A, y):
    """[Re −Im; Im Re] and [Re; Im]: the real problem whose pairs of columns are the columns of a complex one."""
    return np.block([[A.real, -A.imag], [A.imag, A.real]]), np.concatenate([y.real, y.imag])


def only(v, T):
    """v on T, zero elsewhere."""
    out = np.zeros_like(v)
    out[T] = v[T]
    return out


def fit(A, y, T):
    """Least squares on the columns T."""
    x = np.zeros((A.shape[1], *y.shape[1:]), np.result_type(A, y, float))
    if len(T):
        x[T] = np.linalg.lstsq(A[:, T], y, rcond=None)[0]
    return x


def small(r, y):
    return np.linalg.norm(r) <= ENOUGH * np.linalg.norm(y)


# --- one step and a threshold -----------------------------------------------------------------------------------------
def iht(A, y, k, iterations=5000, choose=rows):
    """Blumensath & Davies, ACHA 27(3), 2009: the unit step."""
    return pgd(A, y, k, 1.0, iterations, choose)


def pgd(A, y, k, step, iterations=5000, choose=rows):
    """x ← H_k(x + step·Aᴴ(y − Ax)); step = 2/σ₁² is the paper's."""
    x = fit(A, y, ())
    for _ in range(iterations):
        b = x + step * A.conj().T @ (y - A @ x)
        new = only(b, choose(b, k))
        if np.linalg.norm(new - x) <= 1e-15 * np.linalg.norm(new):
            return new
        x = new
    return x


def niht(A, y, k, iterations=5000, choose=rows, c=0.01, kappa=2.0):
    """Blumensath & Davies, IEEE J. Sel. Topics Signal Process. 4(2), 2010: the step of the support, shrunk where it
    changes the support by too much."""
    x = fit(A, y, ())
    S = choose(A.conj().T @ y, k)
    for _ in range(iterations):
        g = A.conj().T @ (y - A @ x)
        on = only(g, S)
        down = np.linalg.norm(A @ on) ** 2
        if down <= 1e-30 * np.linalg.norm(A) ** 2 * np.linalg.norm(y) ** 2:
            return x
        mu = np.linalg.norm(on) ** 2 / down
        while True:
            b = x + mu * g
            T = choose(b, k)
            new = only(b, T)
            if set(T) == set(S):
                break
            move = new - x
            if mu <= (1 - c) * np.linalg.norm(move) ** 2 / np.linalg.norm(A @ move) ** 2:
                break
            mu /= kappa * (1 - c)
        if np.linalg.norm(new - x) <= 1e-15 * np.linalg.norm(new):
            return new
        x, S = new, T
    return x


# --- a step, a threshold and a fit ------------------------------------------------------------------------------------
def mean_step(A):
    """One over the mean squared norm of a column: 1 if they have norm one."""
    return A.shape[1] / np.linalg.norm(A) ** 2


def htp(A, y, k, step=None, iterations=500, choose=rows):
    """Foucart, SIAM J. Numer. Anal. 49(6), 2011, until a support comes again; the best iterate counts."""
    x = best = fit(A, y, ())
    seen = set()
    for _ in range(iterations):
        T = choose(x + (step or mean_step(A)) * A.conj().T @ (y - A @ x), k)
        if tuple(T) in seen:
            break
        seen.add(tuple(T))
        x = fit(A, y, T)
        best = min(best, x, key=lambda x: np.linalg.norm(y - A @ x))
    return best


def cosamp(A, y, k, select=2, refit=False, iterations=500, choose=rows):
    """Needell & Tropp, ACHA 26(3), 2009: the iterate is the pruned fit (refit: fitted again), and the best one
    counts; select=1 as Shen & Li print it."""
    x = best = fit(A, y, ())
    for _ in range(iterations):
        r = y - A @ x
        if small(r, y):
            break
        b = fit(A, y, np.union1d(choose(A.conj().T @ r, select * k), np.flatnonzero(sizes(x))))
        T = choose(b, k)
        new = fit(A, y, T) if refit else only(b, T)
        best = min(best, new, key=lambda x: np.linalg.norm(y - A @ x))
        if np.linalg.norm(new - x) <= 1e-13 * np.linalg.norm(new):
            break
        x = new
    return best


def subspace_pursuit(A, y, k, iterations=500, choose=rows):
    """Dai & Milenkovic, IEEE Trans. Inf. Theory 55(5), 2009: until the residual no longer falls."""
    T = choose(A.conj().T @ y, k)
    x = fit(A, y, T)
    for _ in range(iterations):
        r = y - A @ x
        u = fit(A, y, np.union1d(T, choose(A.conj().T @ r, k)))
        T = choose(u, k)
        new = fit(A, y, T)
        if np.linalg.norm(y - A @ new) >= np.linalg.norm(r):
            break
        x = new
        if small(y - A @ x, y):
            break
    return x


def ompr(A, y, k, step=None, iterations=2000, choose=rows):
    """Jain, Tewari & Dhillon, NIPS 2011: one column in, one out, by the size of x + step·g, from the k largest of Aᴴy;
    until the support stays."""
    S = choose(A.conj().T @ y, k)
    x = fit(A, y, S)
    for _ in range(iterations):
        g = A.conj().T @ (y - A @ x)
        outside = g.copy()
        outside[S] = 0
        z = x + (step or mean_step(A)) * g
        T = choose(only(z, np.union1d(S, choose(outside, 1))), k)
        if set(T) == set(S):
            break
        x, S = fit(A, y, T), T
    return x


# --- growing supports -------------------------------------------------------------------------------------------------
def omp(A, y, k, residual=0.0, choose=rows):
    """Pati et al., 1993; Tropp, IEEE Trans. Inf. Theory 50(10), 2004; y of several columns: simultaneous OMP, Tropp,
    Gilbert & Strauss, Signal Processing 86(3), 2006, with Euclidean norms of rows."""
    S, x, r = np.array([], int), fit(A, y, ()), y
    for _ in range(k):
        if np.linalg.norm(r) <= residual or small(r, y):
            break
        g = A.conj().T @ r
        g[S] = 0
        S = np.union1d(S, choose(g, 1))
        x = fit(A, y, S)
        r = y - A @ x
    return x


def romp(A, y, k):
    """Needell & Vershynin, Found. Comput. Math. 9(3), 2009: of the k largest the comparable ones (within a factor 2)
    with the most energy, until 2k columns are in; at the end the k largest, refitted."""
    S, x, r = np.array([], int), fit(A, y, ()), y
    for _ in range(k):
        if small(r, y) or len(S) >= 2 * k:
            break
        u = sizes(A.conj().T @ r)
        u[S] = 0
        J = [j for j in np.argsort(-u, kind="stable")[:k] if u[j] > 0]
        runs = ([j for j in J[i:] if u[first] <= 2 * u[j]] for i, first in enumerate(J))
        best = max(runs, key=lambda run: sum(u[j] ** 2 for j in run), default=[])
        if not best:
            break
        S = np.union1d(S, best).astype(int)
        x = fit(A, y, S)
        r = y - A @ x
    return fit(A, y, rows(x, k)) if len(S) > k else x


def best_subset(A, y, k):
    """The truth, by trying all supports."""
    fits = (fit(A, y, np.array(T)) for T in itertools.combinations(range(A.shape[1]), k))
    return min(fits, key=lambda x: np.linalg.norm(y - A @ x))


# --- other losses -----------------------------------------------------------------------------------------------------
def objective(A, y, x, loss):
    return float(np.mean(value(loss, A @ x, y)))


def gradient(A, y, x, loss):
    return A.T @ slope(loss, A @ x, y) / len(y)


def refit(A, y, T, loss, start=None):
    """The minimum over the columns T, by a quasi-Newton method and then Newton steps with differences of gradients."""
    B, w = A[:, T], np.zeros(len(T)) if start is None else start[T]
    w = optimize.minimize(lambda w: objective(B, y, w, loss), w, jac=lambda w: gradient(B, y, w, loss), method="BFGS").x
    for _ in range(5):
        g, near = gradient(B, y, w, loss), 1e-6 * np.eye(len(T))
        H = np.stack([gradient(B, y, w + h, loss) - gradient(B, y, w - h, loss) for h in near]) / 2e-6
        new = w - np.linalg.lstsq(H, g, rcond=None)[0]
        if np.linalg.norm(gradient(B, y, new, loss)) >= np.linalg.norm(g):
            break
        w = new
    x = np.zeros(A.shape[1])
    x[T] = w
    return x


def grasp(A, y, k, loss="squared", iterations=100):
    """Bahmani, Raj & Boufounos, JMLR 14, 2013: CoSaMP with gradients; the best iterate counts."""
    x = best = np.zeros(A.shape[1])
    for _ in range(iterations):
        b = refit(A, y, np.union1d(rows(gradient(A, y, x, loss), 2 * k), np.flatnonzero(x)), loss, x)
        new = only(b, rows(b, k))
        best = min(best, new, key=lambda x: objective(A, y, x, loss))
        if np.linalg.norm(new - x) <= 1e-10 * np.linalg.norm(new):
            break
        x = new
    return best


def grahtp(A, y, k, step, loss="squared", iterations=500):
    """Yuan, Li & Zhang, ICML 2014 and JMLR 18, 2018: HTP with gradients; step multiplies ∇F, F the mean loss."""
    x, S = np.zeros(A.shape[1]), None
    for _ in range(iterations):
        T = rows(x - step * gradient(A, y, x, loss), k)
        if S is not None and set(T) == set(S):
            break
        x, S = refit(A, y, T, loss, x), T
    return x
