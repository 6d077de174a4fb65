"""Whether KV of earlier versions may be kept: as long as it distorts log-probs less than the budget says. Pure.

The engine computes the log-probs of a small share of the turns that went on over old KV a second time, with fresh KV.
From their difference d = log p_fresh - log p_kept at the tokens sampled, exp(d) - 1 - d estimates the KL divergence
without bias and is never negative (k3, Schulman, Approximating KL divergence, 2020).
"""

from math import exp

MEMORY = 1024
"""Probed tokens after which what was found counts for 1/e."""

EVIDENCE = 256
"""Probed tokens without which nothing is decided."""

RETURN = 0.5
"""Share of the budget below which KV is kept again."""


class DivergenceBudget:
    """`budget` is the mean k3 per token, in nats. `trusted`: whether KV is kept at present.

    Once the estimate exceeds the budget it starts afresh, and only the turns that are probed go on over old KV; below
    half of the budget KV is kept again. Nothing in between changes anything.
    """

    def __init__(self, budget: float) -> None:
        self.budget = budget
        self.trusted = True
        self._tokens = 0.0
        self._k3 = 0.0

    @property
    def estimate(self) -> float | None:
        """Mean k3 per token; None without enough evidence."""
        return self._k3 / self._tokens if self._tokens >= EVIDENCE else None

    def observed(self, *, tokens: int, k3: float) -> float | None:
        """`tokens` more were probed, with `k3` in sum. The estimate that changed the verdict; None if none did."""
        fade = exp(-tokens / MEMORY)
        self._tokens = self._tokens * fade + tokens
        self._k3 = self._k3 * fade + k3
        estimate = self.estimate
        if estimate is None:
            return None
        if self.trusted and estimate > self.budget:
            self.trusted = False
            self._tokens = self._k3 = 0.0
            return estimate
        if not self.trusted and estimate < RETURN * self.budget:
            self.trusted = True
            return estimate
        return None
