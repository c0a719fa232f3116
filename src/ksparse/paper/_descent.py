"""PGD and IHT on the Gram matrix, many iterations in one call.

The same iterates as `ksparse.PGD` with a fixed step: a test compares them.  A trial may take 70,000 iterations on a
256 x 256 problem, and the solver, which is made for data, spends nine tenths of its time between them.
"""

from __future__ import annotations

import numpy as np

from .._jit import SUMS, kernel


@kernel(fastmath=SUMS)
def descend(G, b, x, k, eta, count, before):
    """Take `count` steps x = H_k(x − η(Gx − b)) in place.

    Returns how many columns entered, and whether an iterate was the given one again: a fixed point or a cycle.
    """
    d = x.size
    z = np.empty(d)
    on = np.empty(d + 4, np.int64)  # the columns in use, and up to three of no weight, to have a multiple of four
    weight = np.empty(d + 4)
    chosen = np.zeros(d, np.bool_)
    entered = 0
    square = 0.0
    for j in range(d):
        square += before[j] * before[j]
        chosen[j] = x[j] != 0.0
    size = np.count_nonzero(chosen)
    for _ in range(count):
        used = 0
        for j in range(d):
            z[j] = x[j] + eta * b[j]
            if x[j] != 0.0:
                on[used], weight[used] = j, -eta * x[j]
                used += 1
        on[used : used + 3] = 0
        weight[used : used + 3] = 0.0
        for u in range(0, used, 4):  # z −= η G x, four columns at a time: z is read and written a quarter as often
            w0, w1, w2, w3 = weight[u], weight[u + 1], weight[u + 2], weight[u + 3]
            g0, g1, g2, g3 = G[on[u]], G[on[u + 1]], G[on[u + 2]], G[on[u + 3]]
            for j in range(d):
                z[j] += w0 * g0[j] + w1 * g1[j] + w2 * g2[j] + w3 * g3[j]
        while True:
            # the smallest that stays and the largest that does not; ties: the lower index stays
            least, low = np.inf, -1
            most, high = -1.0, -1
            for j in range(d):
                size_j = abs(z[j])
                if chosen[j]:
                    if size_j <= least:
                        least, low = size_j, j
                elif size_j > most:
                    most, high = size_j, j
            if high < 0:
                break
            if size < k:
                size += 1
            elif most > least or (most == least and high < low):
                chosen[low] = False
            else:
                break
            chosen[high] = True
            entered += 1
        apart = 0.0
        norm = 0.0
        for j in range(d):
            x[j] = z[j] if chosen[j] else 0.0
            apart += (x[j] - before[j]) ** 2
            norm += x[j] * x[j]
        if apart <= 1e-26 * square:
            return entered, True
        if not norm < np.inf:
            return entered, False
    return entered, False
