r"""Newton refits on a block of columns, compiled: what every search for losses other than squares spends its time on.

For columns S of a block (`block.py`),

.. math:: F(x) = \frac1n\sum_i \tilde w_i\,\varphi(o_i + b_{iS}\cdot x,\, y_i) + \frac12\sum_{s\in S}\lambda_s x_s^2 .

With C outputs (the classes of a softmax) a column has C coefficients, and a row of the data C predictions and
derivatives, one output after the other.  Coefficient c of column s is number sC + c.  V holds the numbers of those in
play: whole columns in any order.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .._jit import SUMS, inner
from ..losses import evaluate
from .block import combine, curve, project

DAMPING, MOST_DAMPING = 1e-6, 1e3  # Levenberg damping, as shares of the largest curvature that a column can have
HELD = 1e300  # damping of a coefficient that stays at its bound
SHORTEST, DAMPED = 0.05, 1e-4  # the shortest part of a step that is tried, and the damping that follows


@inner
def columns_of(V, C):
    """The columns whose coefficients are in play."""
    S = np.empty(V.size // C, np.int64)
    for s in range(S.size):
        S[s] = V[s * C] // C
    return S


@inner
def hessian(block, V, room, whole, G):
    """Fill G with the second derivatives of the data term; rows of little weight are left out unless it is `whole`."""
    curve(block.loss, block, columns_of(V, block.outputs), room, whole, G)


@inner
def predict(block, V, x, out):
    """out = Σ_s x_s·b_s for every output."""
    n, C, S = block.weight.size, block.outputs, columns_of(V, block.outputs)
    own = np.empty(S.size)
    for c in range(C):
        for s in range(S.size):
            own[s] = x[s * C + c]
        combine(block.B, S, own, out[c * n : (c + 1) * n])


@inner
def gradient(block, V, derivative, out):
    """The mean over the rows of derivative·b, for every coefficient."""
    n, C, S = block.weight.size, block.outputs, columns_of(V, block.outputs)
    own = np.empty(S.size)
    for c in range(C):
        project(block.B, S, derivative[c * n : (c + 1) * n], own)
        for s in range(S.size):
            out[s * C + c] = own[s]


@inner(fastmath=SUMS)
def solve_damped(G, damping, g, L, x):
    """x = (G + diag(damping))⁻¹g by Cholesky; whether that worked."""
    k = g.size
    for a in range(k):
        La = L[a]
        for b in range(a):
            Lb, total = L[b], G[a, b]
            for c in range(b):
                total -= La[c] * Lb[c]
            La[b] = total / Lb[b]
        own = G[a, a] + damping[a]
        left = own
        for c in range(a):
            left -= La[c] * La[c]
        if not left > 1e-15 * own:
            return False
        La[a] = np.sqrt(left)
    for a in range(k):
        total = g[a]
        for c in range(a):
            total -= L[a, c] * x[c]
        x[a] = total / L[a, a]
    for a in range(k - 1, -1, -1):
        total = x[a]
        for c in range(a + 1, k):
            total -= L[c, a] * x[c]
        x[a] = total / L[a, a]
    return True


@inner
def bounded_step(lowest, G, damping, g, x, L, step):
    """The step to where the quadratic model is least among the coefficients that are allowed.

    Coefficients that reach their bound are held there, and let go where the model falls inwards, as Lawson and Hanson
    do.  Returns twice the decrease of the model, or NaN.
    """
    k, slope, part, own, held = g.size, g.copy(), np.empty(g.size), np.empty(g.size), np.empty(g.size, np.bool_)
    for a in range(k):
        step[a], held[a] = 0.0, x[a] <= lowest[a] and g[a] >= 0.0
    for _ in range(4 * k + 4):  # ends long before, but for rounding
        for a in range(k):
            own[a] = HELD if held[a] else damping[a]
        if not solve_damped(G, own, slope, L, part):
            return np.nan
        first, length = -1, 1.0
        for a in range(k):
            room = x[a] + step[a] - lowest[a]
            if not held[a] and room < length * part[a]:
                first, length = a, room / part[a]
        for a in range(k):
            if not held[a]:
                step[a] -= length * part[a]
        if first >= 0:
            step[first], held[first] = lowest[first] - x[first], True
        found, steepest = -1, 0.0
        for a in range(k):
            slope[a] = g[a] + damping[a] * step[a]
            for b in range(k):
                slope[a] += G[a, b] * step[b]
            if held[a] and slope[a] < steepest:
                found, steepest = a, slope[a]
        if first < 0 and found < 0:
            break
        if first < 0:
            held[found] = False
    predicted = 0.0
    for a in range(k):
        predicted -= (g[a] + slope[a]) * step[a]
    return predicted


@inner
def direction(block, V, x, G, g, share, damping, L, step):
    """A damped Newton step, and twice the decrease that the quadratic model predicts for it; NaN if there is none."""
    k, allowed = g.size, True
    for a in range(k):
        damping[a] = share * block.steepest + block.ridge[V[a]]
        if not block.bounded:
            damping[a] = max(damping[a], 1e-13 * G[a, a])  # where the curvature is far above its usual size
    if not solve_damped(G, damping, g, L, step):
        return np.nan
    predicted = 0.0
    for a in range(k):
        predicted += g[a] * step[a]
        step[a] = -step[a]
        allowed = allowed and not x[a] + step[a] < block.lowest[V[a]]
    return predicted if allowed else bounded_step(block.lowest[V], G, damping, g, x, L, step)


@inner
def penalty(ridge, V, x):
    total = 0.0
    for s in range(V.size):
        if ridge[V[s]] > 0.0:  # without a ridge the square may overflow
            total += ridge[V[s]] * x[s] * x[s]
    return 0.5 * total


@inner
def objective_at(block, V, x, room):
    """F at x; the predictions and the derivatives of the rows stay in `room`."""
    predict(block, V, x, room.z)
    for i in range(room.z.size):
        room.z[i] += block.offset[i]
    total = evaluate(block.loss, room.z, block.y, block.weight, room.derivative, room.curvature)
    return total / block.weight.size + penalty(block.ridge, V, x)


@inner
def shorter_start(block, V, x, other, objective, room):
    """Where F is too large at x: start on the way from `other` to x instead, or at `other`; x is overwritten."""
    n, N, k, x_there = block.weight.size, room.z.size, V.size, np.empty(V.size)
    for s in range(k):
        x_there[s] = other[V[s]]
    for i in range(N):
        room.along[i] = room.z[i]
    there = objective_at(block, V, x_there, room)
    for i in range(N):
        room.z_trial[i] = room.z[i]
        room.along[i] -= room.z[i]
    length = 1.0
    while length > SHORTEST and not (objective < there and np.isfinite(objective)):
        length *= 0.4
        for s in range(k):
            x[s] = x_there[s] + 0.4 * (x[s] - x_there[s])
        for i in range(N):
            room.z[i] = room.z_trial[i] + length * room.along[i]
        objective = evaluate(block.loss, room.z, block.y, block.weight, room.derivative, room.curvature)
        objective = objective / n + penalty(block.ridge, V, x)
    if length < 1.0 and objective < there:
        return objective
    if length < 1.0:
        for s in range(k):
            x[s] = x_there[s]
    return objective_at(block, V, x, room)


class Precision(NamedTuple):
    """How closely a refit approaches the minimum."""

    steps: int  # Newton steps at most
    tol: float  # the share of F that may be left to gain
    polish: bool  # all rows enter the Hessian, and steps go on where the change of F is below its rounding


@inner
def newton(block, V, x, other, before, hopeless, precision, state, room, guided, G_near):
    """Minimise F over the coefficients V from x, which is overwritten; returns F, whose derivatives are in `room`.

    If F is above `before` at x, those of `other` (which has all coefficients) may be the better start.  Gives up
    where the quadratic model says that F will stay above `hopeless`.  A `guided` refit uses the Hessian `G_near`, of
    all coefficients, as long as it serves.  state[0] is the damping with which the last refit began.
    """
    n, N, k, polish = block.weight.size, room.z.size, V.size, precision.polish
    objective, tol = objective_at(block, V, x, room), precision.tol
    if not objective <= before:
        objective = shorter_start(block, V, x, other, objective, room)
    least = 1e-3 * DAMPING if polish else DAMPING
    share = least if polish else max(least, 0.1 * state[0])
    g, step, damping = np.empty(k), np.empty(k), np.empty(k)
    G, L, x_trial = np.empty((k, k)), np.empty((k, k)), np.empty(k)
    old, last, blind = guided, np.inf, 0
    if old:
        for a in range(k):
            for b in range(k):
                G[a, b] = G_near[V[a], V[b]]
    for turn in range(precision.steps):
        gradient(block, V, room.derivative, g)
        for s in range(k):
            g[s] += block.ridge[V[s]] * x[s]
        if not old:
            hessian(block, V, room, polish, G)
        predicted = direction(block, V, x, G, g, least, damping, L, step)
        if old and turn > 0 and not predicted < 0.5 * last:  # the Hessian no longer serves
            hessian(block, V, room, polish, G)
            old = False
            predicted = direction(block, V, x, G, g, least, damping, L, step)
        doubt = 2.0 if turn == 0 and old else 1.0  # a Hessian from elsewhere may predict too little
        if doubt * predicted <= tol * abs(objective) or objective - doubt * predicted > hopeless:
            break  # at the bottom, or too far from it
        if polish and predicted <= 1e-7 * abs(objective) and predicted > 0.05 * last:
            break  # no longer Newton's pace: something runs away, and may
        last = predicted
        if share > least:
            predicted = direction(block, V, x, G, g, share, damping, L, step)
        moved, value, length = False, objective, 1.0
        predict(block, V, step, room.along)
        while True:
            for i in range(N):
                room.z_trial[i] = room.z[i] + length * room.along[i]
            for s in range(k):
                x_trial[s] = x[s] + length * step[s]
            value = evaluate(
                block.loss, room.z_trial, block.y, block.weight, room.derivative_trial, room.curvature_trial
            )
            value = value / n + penalty(block.ridge, V, x_trial)
            if value <= objective - 1e-3 * length * predicted:
                moved = True
                break
            if polish and predicted <= 1e-12 * abs(objective):  # beneath the rounding of F
                blind += 1
                moved = not (value > objective + 1e-13 * abs(objective) or blind > 4 or np.isnan(value))
                break
            if length == 1.0 and not old:
                length *= 0.3
                continue
            if old:  # the Hessian from elsewhere does not serve
                hessian(block, V, room, polish, G)
                old = False
            elif share >= MOST_DAMPING:
                break
            else:
                share = max(10.0 * share, DAMPED)
            predicted, length = direction(block, V, x, G, g, share, damping, L, step), 1.0
            predict(block, V, step, room.along)
        if not moved:
            break
        if length < 1.0:
            share = max(10.0 * share, DAMPED)
        if turn == 0:
            state[0] = share
        before = objective
        objective = value
        for s in range(k):
            x[s] = x_trial[s]
        for i in range(N):
            room.z[i] = room.z_trial[i]
            room.derivative[i] = room.derivative_trial[i]
            room.curvature[i] = room.curvature_trial[i]
        # where the quadratic predicted the step well, its Hessian serves another one
        old = length == 1.0 and (abs(before - objective - 0.5 * predicted) < 0.35 * predicted or (old and polish))
        share = max(0.1 * share, least) if length == 1.0 else share
    return objective
