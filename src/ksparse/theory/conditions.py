"""The conditions of Theorem 10 for given data: which of them hold, and which changes make the others hold."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from . import bounds, rates
from .curvature import Landscape
from .rates import allowed_condition
from .spectrum import Bracket

TINY = 1e-12  # an α below this share of L is a rounding error
MARGIN = 0.99  # "below a limit" means below this share of it
SHARES = {0.125: 0.75, 0.2: 0.96}  # ηL, and the share 4ηL(2 − 4ηL) of ν/(4(ν − 1)) that c may then reach
GOALS = [0.99 * MARGIN * share for share in SHARES.values()]  # shares to which a remedy reduces c; smaller step first


class Condition(NamedTuple):
    """A condition of the theorem; `holds` is None if the bounds on α are too far apart to decide it."""

    name: str
    holds: bool | None
    text: str


class Remedy(NamedTuple):
    """Changes that give a certificate: new values of some of "k", "l2", "batch_size", "step", "m", "output"."""

    changes: dict[str, Any]

    @property
    def text(self) -> str:
        """The changes as text, such as "l2 = 3.8, m = 1500"."""
        return ", ".join(
            f"{name} = {value:.4g}" if isinstance(value, float) else f"{name} = {value!r}"
            for name, value in self.changes.items()
        )


class Judgement(NamedTuple):
    """What the theorem says for a k and a K: constants, step, conditions and remedies."""

    nu: float
    L: float
    alpha: Bracket
    step: float
    conditions: tuple[Condition, ...]
    remedies: tuple[Remedy, ...]


@dataclass(frozen=True, eq=False)
class Case:
    """The curvature of the data and the parameters of a run: decides the conditions for any k and K."""

    ground: Landscape
    d: int  # columns that are not always kept
    m: int
    batch_size: int
    step: float | None = None  # None: 1/(8L)

    def smoothness(self, k: int, K: int) -> float:
        """L of a step, at sparsity 3k + K."""
        return self.ground.batch_smoothness(min(3 * k + K, self.d), self.batch_size)

    def floor(self, k: int, K: int) -> float:
        """A lower bound on α, at sparsity k + K."""
        return self.ground.convexity_floor(min(k + K, self.d))

    def largest_K(self, k: int) -> int:
        """The largest K for which all conditions hold at this k; 0 if there is none."""
        low, high = 0, k  # ν, L and −α grow with K: if a K fails, larger ones fail too
        while low < high:
            K = (low + high + 1) // 2
            if self.holds(k, K):
                low = K
            else:
                high = K - 1
        return low

    def holds(self, k: int, K: int) -> bool:
        """Whether the theorem proves a rate below 1."""
        L, alpha = self.smoothness(k, K), self.floor(k, K)
        if not (alpha > TINY * L and math.isfinite(L)):
            return False
        step = self.step or 1.0 / (8.0 * L)
        return float(rates.rate(step, self.m, bounds.nu(k, K, self.d), L, min(alpha, L))) < 1.0

    def judge(self, k: int, K: int, output: str, random_state: Any) -> Judgement:
        """Decide all conditions, and look for remedies if one does not hold."""
        nu, L = float(bounds.nu(k, K, self.d)), self.smoothness(k, K)
        alpha = self.ground.convexity(min(k + K, self.d), random_state=random_state)
        step = self.step or (1.0 / (8.0 * L) if 0 < L < math.inf else 1.0)
        conditions = tuple(self._conditions(k, K, nu, L, alpha, step, output))
        remedies = () if all(entry.holds for entry in conditions) else tuple(self._remedies(k, K, nu, L, conditions))
        return Judgement(nu, L, alpha, step, conditions, remedies)

    def _conditions(
        self, k: int, K: int, nu: float, L: float, alpha: Bracket, step: float, output: str
    ) -> Iterator[Condition]:
        if L == 0:
            yield Condition("smoothness", False, "all rows are zero or have weight zero: there is nothing to learn")
            return
        if not math.isfinite(L):
            kept = ", and a radius does not bound the intercept and the kept columns"
            more = kept if self.ground.n_kept else "; give one, not too large"
            yield Condition("smoothness", False, f"the curvature of this loss has no bound without a radius{more}")
            return
        yield Condition("smoothness", True, f"L at {_level('3k + K', 3 * k + K, self.d)} is {L:.4g}")
        yield Condition(
            "convexity", True if alpha.lower > TINY * L else None if alpha.upper > TINY * L else False,
            f"alpha at {_level('k + K', k + K, self.d)} is at least {alpha.lower:.4g} ({alpha.lower_from}) "
            f"and at most {alpha.upper:.4g} ({alpha.upper_from})",
        )  # fmt: skip
        yield Condition("step", step < 0.25 / L, f"eta = {step:.4g} against 1/(4L) = {0.25 / L:.4g}")
        ends = [min(a, L) if a > TINY * L else None for a in (alpha.lower, alpha.upper)]
        limits = [1.0 if a is None else float(rates.largest_nu(step, L, a)) for a in ends]
        text = f"nu = {nu:.4f} has to be below {limits[0]:.4f}"
        if nu >= limits[0]:
            best = allowed_condition(nu)
            text += f"; with the best step c < {best:.3g} would be enough" if best > 1 else "; no data allow it"
        yield Condition("sparsity", _decide(nu < limits[0], nu < limits[1]), text)
        needed = [math.inf if a is None else float(rates.minimum_m(step, nu, L, a)) for a in ends]
        if math.isfinite(needed[1]):
            yield Condition(
                "stage length", _decide(self.m > needed[0], self.m > needed[1]),
                f"m = {self.m} has to be above {needed[0]:.4g}",
            )  # fmt: skip
        yield Condition(
            "output", output == "random", "the next snapshot is drawn from the iterates of a stage"
            if output == "random" else "the theorem is about output='random'; it proves nothing about the last iterate",
        )  # fmt: skip

    # --- remedies ------------------------------------------------------------------------------------------------
    def _remedies(self, k: int, K: int, nu: float, L: float, conditions: tuple[Condition, ...]) -> Iterator[Remedy]:
        """Changes that the lower bound on α proves sufficient.

        First another step and m are tried; then a ridge, a batch size or a larger k; then a larger k with one of them.
        """
        failed = {entry.name for entry in conditions if not entry.holds}
        output = {"output": "random"} if "output" in failed else {}
        if "smoothness" in failed:  # without a radius there are no bounds to work with
            return
        alpha = self.floor(k, K)
        if failed == {"output"}:
            yield Remedy(output)
        elif best_share(nu, L, alpha) is not None:  # the data are fine, the parameters are not
            yield Remedy(self._parameters(nu, L, alpha) | output)
        else:
            for goal in GOALS:
                found = [*self._by_ridge(k, K, goal), *self._by_batch(k, K, goal), *self._by_k(k, K, goal)]
                if not found:
                    found = [*self._by_k_and(self._by_ridge, k, K, goal), *self._by_k_and(self._by_batch, k, K, goal)]
                if found:
                    yield from (Remedy(changes | output) for changes in found)
                    return

    def _by_ridge(self, k: int, K: int, goal: float) -> Iterator[dict[str, Any]]:
        """The l2 that brings c below its limit; none with an intercept, which a ridge does not penalise."""
        nu, L, alpha = float(bounds.nu(k, K, self.d)), self.smoothness(k, K), self.floor(k, K)
        limit = goal * allowed_condition(nu)
        if 1.0 < limit < math.inf and not self.ground.first:
            more = max(0.0, (L - limit * alpha) / (limit - 1.0))
            yield {"l2": self.ground.l2 + more} | self._parameters(nu, L + more, alpha + more)

    def _by_batch(self, k: int, K: int, goal: float) -> Iterator[dict[str, Any]]:
        """The batch size that brings c below its limit, if the smoothness of F itself allows it."""
        nu, alpha = float(bounds.nu(k, K, self.d)), self.floor(k, K)
        if goal * allowed_condition(nu) <= 1 or alpha == 0.0:
            return
        r = min(3 * k + K, self.d)
        single, full = self.ground.smoothness(r), self.ground.full_ceiling(r)
        room = goal * allowed_condition(nu) * alpha - full
        if 0 < room < math.inf:
            batch = max(1, math.ceil((single - full) / room))
            yield {"batch_size": batch} | self._parameters(nu, self.ground.batch_smoothness(r, batch), alpha)

    def _by_k(self, k: int, K: int, goal: float) -> Iterator[dict[str, Any]]:
        """A larger k, below the number of columns."""
        for other in sparsities(k + 1, self.d - 1):
            if self.allows(other, K, goal):
                nu, L, alpha = float(bounds.nu(other, K, self.d)), self.smoothness(other, K), self.floor(other, K)
                yield {"k": other} | self._parameters(nu, L, alpha)
                return

    def _by_k_and(
        self, remedy: Callable[[int, int, float], Iterator[dict[str, Any]]], k: int, K: int, goal: float
    ) -> Iterator[dict[str, Any]]:
        """The first larger k at which another remedy works with a ridge not above the data's own curvature; if there
        is none, the k with the smallest ridge."""
        weakest: dict[str, Any] | None = None
        for other in sparsities(k + 1, self.d - 1):
            for changes in remedy(other, K, goal):
                found = {"k": other} | changes
                if changes.get("l2", 0.0) <= self.smoothness(other, K):
                    yield found
                    return
                if weakest is None or changes["l2"] < weakest["l2"]:
                    weakest = found
        if weakest is not None:
            yield weakest

    def never(self, k: int) -> bool:
        """Whether no data can be certified: single rows without a ridge have c ≥ min(k + K, d), too large if k < d."""
        return self.ground.l2 == 0 and self.batch_size == 1 and k < self.d

    def allows(self, k: int, K: int, share: float) -> bool:
        """Whether c is proven to be below the share `share` of the limit for ν(k)."""
        if self.never(k):
            return False
        limit = share * allowed_condition(float(bounds.nu(k, K, self.d)))
        if limit <= 1:  # c is never below 1
            return False
        alpha = self.floor(k, K)
        return alpha > 0 and self.smoothness(k, K) < limit * alpha

    def _parameters(self, nu: float, L: float, alpha: float) -> dict[str, Any]:
        """A step, and an m for which β is at most halfway between its limit for large m and 1."""
        alpha = min(alpha, L)
        step = (best_share(nu, L, alpha) or 0.125) / L
        limit = float(rates.rate(step, 1e15, nu, L, alpha))
        m = max(self.m, math.ceil(float(rates.minimum_m(step, nu, L, alpha, 0.5 * (1.0 + limit)))))
        return {"step": step, "m": m}


def best_share(nu: float, L: float, alpha: float) -> float | None:
    """ηL of a step that converges at this c with a margin: 1/8 if possible, else 1/5, else None (1/4 is the limit)."""
    for share, of_limit in SHARES.items():
        if alpha > 0 and MARGIN * of_limit * allowed_condition(nu) * alpha > L:
            return share
    return None


def sparsities(low: int, high: int) -> list[int]:
    """About 40 values of k from low to high, a constant ratio apart, both ends included."""
    if low > high:
        return []
    return sorted({round(low * (high / low) ** (i / 40)) for i in range(41)})


def _level(name: str, r: int, d: int) -> str:
    return f"{name} = {r}" if r <= d else f"{name} > d = {d}"


def _decide(surely: bool, perhaps: bool) -> bool | None:
    return True if surely else None if perhaps else False
