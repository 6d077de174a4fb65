"""Coefficients of work that go along with what is measured: seconds = sum of coefficient times amount.

Recursive least squares with three changes.

*Forgetting by direction.* What an observation says replaces part of what was known about the same mixture of work, and
of no other (L. Cao and H. M. Schwartz, A directional forgetting algorithm based on the decomposition of the information
matrix, Automatica 36, 2000). What is never observed, or never apart from something else, keeps what it had: at first
the prior, which with plain exponential forgetting would be lost and the uncertainty grow without bound.

*Errors are relative, and stalls count little.* Times scatter in proportion to what they are, so each observation is
divided by its prediction. One that took more than `STALL` times as long is divided by what it took, and so weighs the
less the longer it took: the influence of an outlier is bounded and goes to zero (a redescending estimator: F. R. Hampel
and others, Robust Statistics, 1986). A stall of the host says nothing about the work; a cost that has really changed
goes on saying so.

*Nothing is negative.* A coefficient that would be is put to the lowest that is allowed, and the others to what is most
likely then.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

NOISE = 0.3
"""Standard deviation of a measured time, as a share of it. With the doubt about the prior it says for how many
observations that has a say, and nothing else."""

STALL = 2.0

LEAST = 1e-6
"""Share of its prior that a coefficient has at least."""


class OnlineFit:
    """`prior`: a coefficient for each kind of work, in seconds per unit; one of 0 stays 0. `doubt`: its standard
    deviation, as a share of it. After `half_life` observations of a mixture of work the earlier ones of it count half.
    O(k^3) per observation of k kinds.
    """

    def __init__(self, prior: Sequence[float], *, half_life: float, doubt: float = 1.0) -> None:
        self._prior = np.array(prior, dtype=float)
        self._shares = np.ones(len(prior))
        self._information = np.eye(len(prior)) / doubt**2
        self._forget = 1 - 0.5 ** (1 / half_life)

    @property
    def coefficients(self) -> list[float]:
        found: list[float] = (self._prior * self._shares).tolist()
        return found

    def predict(self, amounts: Sequence[float]) -> float:
        """Seconds of so much work of each kind."""
        return float(self._prior * self._shares @ np.array(amounts, dtype=float))

    def observe(self, amounts: Sequence[float], seconds: float) -> None:
        """So much work of each kind took `seconds`. Without any, nothing is learned."""
        parts = self._prior * np.array(amounts, dtype=float)
        predicted = float(parts @ self._shares)
        if predicted <= 0:
            return
        whole = max(predicted, seconds / STALL)
        row, error = parts / whole, (seconds - predicted) / whole
        self._learn(row)
        self._shares += self._solved(row) * error / NOISE**2
        self._lift()

    def _learn(self, row: NDArray[np.float64]) -> None:
        """Forget along `row`, then add it."""
        seen = self._information @ row
        known = float(row @ seen)
        if known > 0:
            self._information -= self._forget / known * np.outer(seen, seen)
        self._information += np.outer(row, row) / NOISE**2

    def _solved(self, column: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(np.linalg.solve(self._information, column), dtype=np.float64)

    def _lift(self) -> None:
        """Put what is too low to `LEAST`, one by one, and the others each time to what is most likely then."""
        for _ in self._shares:
            low = int(self._shares.argmin())
            if self._shares[low] >= LEAST:
                return
            unit = np.zeros(len(self._shares))
            unit[low] = 1.0
            along = self._solved(unit)
            self._shares += along * ((LEAST - self._shares[low]) / along[low])
            self._shares[low] = LEAST
        np.maximum(self._shares, LEAST, out=self._shares)
