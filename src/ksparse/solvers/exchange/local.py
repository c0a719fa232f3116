"""The search for losses that are not squares, compiled: steps from one number of choices to the next, with exchanges.

At a fit F is modelled by a quadratic on the columns of a block.  In the model choices (columns, groups of columns, or
columns with the coefficients of all classes) enter, leave and are exchanged, exactly; a Newton refit from where the
model is least tells what that is worth.  One model per size serves all steps from there.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..._jit import generic, inner, kernel
from ..block import Array, Columns, new_room
from ..refit import DAMPING, Precision, gradient, hessian, newton, objective_at
from .group_pivots import GroupTableau
from .pivots import (
    BARRED,
    Tableau,
    best_entry,
    best_exchange,
    choice,
    least_needed,
    let_in,
    let_out,
    mark_open,
    perturb,
    plain,
    restart,
    size,
    twice_value,
)
from .positive import PositiveTableau, bounded_gain, first_slot, next_pair, place_of

FLAT_CLASSES = 1e-5  # the share of its curvature that a coefficient of a class gets in directions without any
WORK = 30_000_000  # products of a sweep between two looks at the clock


class Rules(NamedTuple):
    """How the search goes about it."""

    gain: float  # an exchange counts if it lowers F by this share
    exchanges: int  # in a model before F is computed
    trials: int  # models at one size, each after a fit that was better
    singles: int  # best exchanges that are tried one by one at the end
    trial: Precision
    close: Precision
    polish: Precision


class BestFits(NamedTuple):
    """The best fits found so far, one per size that is visited."""

    size: Columns  # how many choices
    value: Array  # F; infinite where no fit is known
    choices: Columns  # (sizes, choices)
    x: Array  # (sizes, slots): coefficients of the fixed columns, then of the choices
    up: NDArray[np.bool_]  # a step to the next larger size has not been tried from this fit
    down: NDArray[np.bool_]
    modelled: NDArray[np.bool_]  # whether G and c are the model at this fit
    G: Array  # (sizes, coefficients, coefficients)
    c: Array  # (sizes, coefficients)


# --- choices: columns, or groups of coefficients ---------------------------------------------------------------------
@generic
def describe(t, G, c, ridge):
    """Have this model in the tableau."""


@describe.rule(object)
def _(t, G, c, ridge):
    base = plain(t)
    for a in range(c.size):
        base.c[a], base.ridge[a], base.own[a] = c[a], ridge[a], G[a, a] + ridge[a]


@generic
def spread_out(t, choices, V):
    """Fill V with the numbers of the coefficients of some choices, behind those of the fixed columns; how many."""


@spread_out.rule(object)
def _(t, choices, V):
    fixed = plain(t).fixed
    for a in range(fixed):
        V[a] = a
    for s in range(choices.size):
        V[fixed + s] = choices[s]
    return fixed + choices.size


@inner
def minimiser(t, full):
    """Fill `full` with the coefficients where the model is least."""
    base = plain(t)
    for a in range(full.size):
        full[a] = 0.0
    for s in range(base.held[0]):
        full[base.columns[s]] = base.v[s]


@generic
def best_exchanges(t, least, gains, entering, leaving):
    """The exchanges worth most by themselves, best first; how many are worth more than `least`."""


@best_exchanges.rule(Tableau)
def _(t, least, gains, entering, leaving):
    count = 0
    mark_open(t)
    for s in range(t.fixed, t.held[0]):
        e = 1.0 / t.Q[s, s]
        w = t.v[s] * e
        for a in range(t.u.size):
            r = t.u[a] + t.T[s, a] * w
            gain = r * r / (t.open[a] + t.T[s, a] * t.T[s, a] * e) - t.v[s] * w
            if gain > least and t.open[a] < BARRED:
                count += 1
                list_exchange(count, gain, a, s - t.fixed, gains, entering, leaving)
    return count


@inner
def list_exchange(count, gain, i, s, gains, entering, leaving):
    """Have an exchange in the list of the best, which is sorted; it is number `count` of those found."""
    most = gains.size
    if count <= most or gain > gains[most - 1]:
        place = min(count, most) - 1
        while place > 0 and gains[place - 1] < gain:
            gains[place] = gains[place - 1]
            entering[place], leaving[place] = entering[place - 1], leaving[place - 1]
            place -= 1
        gains[place], entering[place], leaving[place] = gain, i, s


@best_exchanges.rule(PositiveTableau)
def _(t, least, gains, entering, leaving):
    count = 0
    mark_open(t)
    s, i, _ = next_pair(t, least, first_slot(t), 0)
    while i >= 0:
        gain = bounded_gain(t, s, i)
        if gain > least:
            count += 1
            list_exchange(count, gain, i, place_of(t, s), gains, entering, leaving)
        s, i, _ = next_pair(t, least, s, i + 1)
    return count


@describe.rule(GroupTableau)
def _(t, G, c, ridge):
    describe(t.base, G, c, ridge)
    for a in range(t.base.fixed):
        t.own_blocks[a] = t.base.own[a]
    for g in range(t.starts.size - 1):
        low, width = t.starts[g], t.starts[g + 1] - t.starts[g]
        for a in range(width):
            for b in range(width):
                t.own_blocks[t.at[g] + a * width + b] = G[low + a, low + b]
            t.own_blocks[t.at[g] + a * width + a] = t.base.own[low + a]


@spread_out.rule(GroupTableau)
def _(t, choices, V):
    count = t.base.fixed
    for a in range(count):
        V[a] = a
    for s in range(choices.size):
        for a in range(t.starts[choices[s]], t.starts[choices[s] + 1]):
            V[count] = a
            count += 1
    return count


@best_exchanges.rule(GroupTableau)
def _(t, least, gains, entering, leaving):
    """Without a list of them: 0 if there is none, else −1."""
    mark_open(t)
    return -1 if best_exchange(t, least)[0] >= 0 else 0


# --- the model -------------------------------------------------------------------------------------------------------
@inner
def model_at(block, V, x, room, every, G, c):
    """The quadratic model ½vᵀGv − cᵀv of F, without the ridge, on all columns of the block, at the fit in `room`."""
    hessian(block, every, room, False, G)
    gradient(block, every, room.derivative, c)
    # where no row is curved, a little is assumed; and the same number added to all classes changes no prediction
    flat = 0.0 if block.outputs == 1 else FLAT_CLASSES
    for a in range(every.size):
        G[a, a] += DAMPING * block.steepest + flat * G[a, a]
        c[a] = -c[a]
    for s in range(V.size):
        row, x_s = G[V[s]], x[s]
        for a in range(every.size):
            c[a] += row[a] * x_s


@inner
def load_model(t, G, c, ridge, fixed, choices, every):
    """Have a model in the tableau, and these choices."""
    describe(t, G, c, ridge)
    restart(t, every[:fixed], G, every)
    for s in range(choices.size):
        let_in(t, choices[s], G, every)


@inner
def resize(t, G, every, wanted):
    """Let choices in or out until so many are in; whether that is possible."""
    while size(t) < wanted:
        mark_open(t)
        i = best_entry(t)
        if i < 0:
            return False
        let_in(t, i, G, every)
    while size(t) > wanted:
        let_out(t, least_needed(t), G, every)
    return True


@inner
def exchange(t, G, every, least, most, first, full):
    """Make up to `most` exchanges, each worth `least` or more of twice the model.

    `first` and `full` get the choices and the coefficients after the first one.
    """
    for made in range(most):
        mark_open(t)
        i, s = best_exchange(t, least)
        if i < 0:
            return made
        let_out(t, s, G, every)
        let_in(t, i, G, every)
        if made == 0:
            chosen(t, first)
            minimiser(t, full)
    return most


@inner
def chosen(t, choices):
    for s in range(choices.size):
        choices[s] = choice(t, s)


@inner
def gather(full, V, x):
    for s in range(V.size):
        x[s] = full[V[s]]


@inner
def scatter(V, x, full):
    for a in range(full.size):
        full[a] = 0.0
    for s in range(V.size):
        full[V[s]] = x[s]


@inner
def same_set(some, others):
    """Whether the same choices are in both, in any order."""
    for a in range(some.size):
        found = False
        for b in range(some.size):
            found = found or others[b] == some[a]
        if not found:
            return False
    return True


@inner
def next_step(path, at, last):
    """The first size from `at` towards `last` from which a step is due; `last` if there is none."""
    while at != last and not (path.up[at] if last > at else path.down[at]):
        at += 1 if last > at else -1
    return at


# --- the search ------------------------------------------------------------------------------------------------------
STEP, SETTLE, POLISH, START, PERTURB = range(5)  # tasks of `search`


@kernel
def search(task, block, t, path, fixed, at, last, rules, state, given, priority):
    """Find better fits; one entry for all tasks, since every entry would compile the same code again.

    state[0] is the damping with which the last refit began, state[1] counts the models that were computed.

    STEP: from the best fit of every size between `at` and `last` for which that is due, a step to the next size;
    returns where to go on after some work, or −1.  SETTLE: exchange choices at the best fit of the size `at` until
    nothing is gained; 1 if all exchanges that the model favours were tried in vain.  POLISH: refit it to full
    precision.  START: search from `given` choices, PERTURB: from its own with `last` of the highest priority replaced;
    1 if that is better.
    """
    M, most = block.ridge.size, path.x.shape[1]
    room, every, done, guided = new_room(block), np.arange(M), 0, True
    G, c, full, full_new, full_first = np.empty((M, M)), np.empty(M), np.zeros(M), np.zeros(M), np.zeros(M)
    gains, entering, leaving = (
        np.empty(rules.singles),
        np.empty(rules.singles, np.int64),
        np.empty(rules.singles, np.int64),
    )
    V_room, V_new_room = np.empty(most, np.int64), np.empty(most, np.int64)
    while True:
        # --- the fit to begin with
        to = at
        if task == STEP:
            at = next_step(path, at, last)
            if at == last:
                return -1
            if done > WORK:
                return at
            done += M * block.weight.size
            to = at + 1 if last > at else at - 1
            if last > at:
                path.up[at] = False
            else:
                path.down[at] = False
        k, m = path.size[at], path.size[to]
        choices, value, model, model_c = path.choices[at, :k].copy(), path.value[at], path.G[at], path.c[at]
        V = V_room[: spread_out(t, choices, V_room)]
        x = path.x[at, : V.size].copy()
        scatter(V, x, full)
        guided = task in (STEP, PERTURB)
        if guided and not path.modelled[at]:
            objective_at(block, V, x, room)
            model_at(block, V, x, room, every, model, model_c)
            path.modelled[at] = True
            state[1] += 1
        new, first = np.empty(m, np.int64), np.empty(m, np.int64)
        made, expected, least = 0, -np.inf, 2.0 * rules.gain * abs(value)
        if guided:
            load_model(t, model, model_c, block.ridge, fixed, choices, every)
            here = twice_value(t)
        if task == STEP:
            if not resize(t, model, every, m):  # no more of them lower the model
                m = size(t)
                if m <= k:
                    return -1
                path.size[to], new, first = m, new[:m], first[:m]
            expected = value + 0.5 * (twice_value(t) - here)
            chosen(t, first)
            known = np.isfinite(path.value[to])
            if known and same_set(first, path.choices[to]):
                at = to
                continue
            plain = first.copy()
            minimiser(t, full_first)
            full_plain = full_first.copy()
            made = exchange(t, model, every, least, rules.exchanges, first, full_first)
            chosen(t, new)
            minimiser(t, full_new)
            if known and same_set(new, path.choices[to]):
                at = to
                continue
        elif task == PERTURB:
            barred = np.empty(last, np.int64)
            if not perturb(t, model, every, last, priority, barred, 0.0, least) or twice_value(t) > here - least:
                return 0
            chosen(t, new)
            minimiser(t, full_new)
        else:
            for s in range(m):
                new[s] = given[s] if task == START else choices[s]
            for a in range(M):
                full_new[a] = full[a]
        V = V_new_room[: spread_out(t, new, V_new_room)].copy()
        x = np.empty(V.size)
        gather(full_new, V, x)
        precision = rules.polish if task == POLISH else rules.close if task == SETTLE else rules.trial
        value_new = newton(block, V, x, full, value, np.inf, precision, state, room, guided, model)
        if made > 0 and not value_new <= expected:  # the exchanges did not keep what the model predicted
            V_plain = V_new_room[: spread_out(t, plain, V_new_room)].copy()
            x_plain = np.empty(V_plain.size)
            gather(full_plain, V_plain, x_plain)
            other = newton(block, V_plain, x_plain, full, value, value_new, rules.trial, state, room, guided, model)
            if other < value_new:
                value_new, V, x, new = other, V_plain, x_plain, plain
            else:
                objective_at(block, V, x, room)
        at = to
        if task == STEP and known and same_set(new, path.choices[to]):
            continue
        # --- exchanges while F falls
        choices, value, modelled, vain, trials = new.copy(), value_new, False, False, 0
        while task != POLISH and trials < rules.trials and m > 0:
            trials += 1
            least = 2.0 * rules.gain * abs(value)
            model_at(block, V, x, room, every, G, c)
            state[1] += 1
            load_model(t, G, c, block.ridge, fixed, choices, every)
            scatter(V, x, full)
            count = best_exchanges(t, least, gains, entering, leaving) if task == SETTLE else 0
            made = exchange(t, G, every, least, rules.exchanges, first, full_first)
            chosen(t, new)
            minimiser(t, full_new)
            modelled, vain, better, number = True, 0 <= count <= rules.singles, False, 0
            guided = trials > 0  # not the literal, for which `newton` would be compiled a second time
            while made > 0 and not better:
                V_new = V_new_room[: spread_out(t, new, V_new_room)].copy()
                x_new = np.empty(V_new.size)
                gather(full_new, V_new, x_new)
                value_new = newton(block, V_new, x_new, full, value, value, rules.trial, state, room, guided, G)
                better = value_new < value - rules.gain * abs(value)
                if better:
                    value, V, x, choices, modelled = value_new, V_new, x_new, new.copy(), False
                elif made > 1:
                    made = 1
                    for s in range(m):
                        new[s] = first[s]
                    for a in range(M):
                        full_new[a] = full_first[a]
                elif number < min(count, rules.singles):
                    load_model(t, G, c, block.ridge, fixed, choices, every)
                    let_out(t, leaving[number], G, every)
                    let_in(t, entering[number], G, every)
                    chosen(t, new)
                    minimiser(t, full_new)
                    number += 1
                else:
                    made = 0
            if not better:
                objective_at(block, V, x, room)
                break
        # --- the better fit stays
        better = task in (SETTLE, POLISH)
        if not better and (not np.isfinite(path.value[to]) or value < path.value[to] + 1e-3 * abs(path.value[to])):
            value = newton(block, V, x, full, np.inf, np.inf, rules.close, state, room, modelled, G)
            better = np.isfinite(value) and value < path.value[to] - rules.gain * abs(value)
        if better:
            path.value[to], path.modelled[to] = value, modelled and task == STEP
            for s in range(m):
                path.choices[to, s] = choices[s]
            for s in range(V.size):
                path.x[to, s] = x[s]
            path.up[to], path.down[to] = to + 1 < path.size.size, to > 1
            if path.modelled[to]:
                for a in range(M):
                    path.c[to, a] = c[a]
                    for b in range(M):
                        path.G[to, a, b] = G[a, b]
        if task != STEP:
            return 1 if (vain if task == SETTLE else better) else 0
