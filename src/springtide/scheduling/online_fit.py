"""Coefficients of work that go along with what is measured: seconds = sum of coefficient times amount.

Least squares on the logarithms of times, observation by observation: an extended Kalman filter whose state is the
logarithms of the coefficients. Times scatter in proportion to what they are, and priors are wrong by factors, not by
amounts; so both count alike whatever a unit of work takes, and no coefficient can become negative. What makes a
prediction too long or too short is sought in each part by its share of the prediction, and by how uncertain it is.

*Forgetting by direction.* What an observation says replaces part of what was known about the same mixture of work, and
of no other (L. Cao and H. M. Schwartz, A directional forgetting algorithm based on the decomposition of the information
matrix, Automatica 36, 2000). What is never observed, or never apart from something else, keeps what it had: at first
the prior, which with plain exponential forgetting would be lost and the uncertainty grow without bound.

*A common factor is forgotten faster.* Hosts get slower and faster as a whole: clocks, power limits, others at work. So
a factor that all has in common that was seen so far is forgotten in the same way, with a half-life of its own. Without
it such a change is put down to whatever is known least, and parts come out wrong whose sum is right.

*No observation counts for more than a factor.* A stall of the host says nothing about the work. In logarithms it weighs
little, and its error is cut off at `MOST` (P. J. Huber, Robust estimation of a location parameter, Annals of
Mathematical Statistics 35, 1964). A cost that has really changed goes on saying so, and gets through.
"""

from collections.abc import Sequence
from math import exp, log

import numpy as np
from numpy.typing import NDArray

NOISE = 0.3
"""Standard deviation of the logarithm of a measured time. With the doubt about the prior it says for how many
observations that has a say, and nothing else."""

MOST = 3.0
"""Powers of e: a factor of 20."""


class OnlineFit:
    """`prior`: a coefficient for each kind of work, in seconds per unit; one of 0 stays 0. `doubt`: the standard
    deviation of its logarithm. After `half_life` observations of a mixture of work the earlier ones of it count half;
    after `common` ones, what is known of a common factor. O(k^3) per observation of k kinds.
    """

    def __init__(
        self, prior: Sequence[float], *, half_life: float, common: float | None = None, doubt: float = 1.0
    ) -> None:
        self._coefficients = np.array(prior, dtype=float)
        self._information = np.eye(len(prior)) / doubt**2
        self._forget = 1 - 0.5 ** (1 / half_life)
        self._forget_common = 0.0 if common is None else 1 - 0.5 ** (1 / common)
        self._seen = np.zeros(len(prior))

    @property
    def coefficients(self) -> list[float]:
        found: list[float] = self._coefficients.tolist()
        return found

    def predict(self, amounts: Sequence[float]) -> float:
        """Seconds of so much work of each kind."""
        return float(self._coefficients @ np.array(amounts, dtype=float))

    def observe(self, amounts: Sequence[float], seconds: float) -> None:
        """So much work of each kind took `seconds`. Without any that takes time, nothing is learned."""
        parts = self._coefficients * np.array(amounts, dtype=float)
        predicted = float(parts.sum())
        if predicted <= 0:
            return
        longest, shortest = predicted * exp(MOST), predicted * exp(-MOST)
        error = log(min(max(seconds, shortest), longest) / predicted)
        shares = parts / predicted
        self._learn(shares)
        self._coefficients *= np.exp(np.linalg.solve(self._information, shares) * (error / NOISE**2))

    def _learn(self, shares: NDArray[np.float64]) -> None:
        """Forget what is to be forgotten, then add `shares`."""
        self._seen[shares > 0] = 1.0
        self._lose(self._seen, self._forget_common)
        self._lose(shares, self._forget)
        self._information += np.outer(shares, shares) / NOISE**2

    def _lose(self, direction: NDArray[np.float64], part: float) -> None:
        """So much of what is known along `direction`."""
        known = self._information @ direction
        self._information -= part / float(direction @ known) * np.outer(known, known)
