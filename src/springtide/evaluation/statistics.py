"""Intervals for success rates and their differences; pure, exact where that is cheap.

Wilson's interval is used for one rate because it stays inside [0, 1] and keeps its coverage at 0 and n successes. The
differences are Newcombe's hybrid-score intervals, which square up two Wilson intervals.
"""

import math
from statistics import NormalDist

import msgspec

from springtide.evaluation.count import Count

CONFIDENCE = 0.95


class Interval(msgspec.Struct, frozen=True):
    """`low` to `high` around `estimate`, with the stated confidence."""

    estimate: float
    low: float
    high: float

    @property
    def excludes_zero(self) -> bool:
        return self.low > 0 or self.high < 0


class Paired(msgspec.Struct, frozen=True, kw_only=True):
    """The same tasks under two policies: how many both solved, only the first, only the second, neither."""

    both: int
    only_first: int
    only_second: int
    neither: int

    @property
    def n(self) -> int:
        return self.both + self.only_first + self.only_second + self.neither


def wilson(k: int, n: int, *, confidence: float = CONFIDENCE) -> Interval | None:
    """The score interval of k / n (Wilson 1927, without continuity correction); None where n is 0."""
    if n == 0:
        return None
    z = _z(confidence)
    rate = k / n
    centre = (rate + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n))
    low = 0.0 if k == 0 else max(0.0, centre - half)
    high = 1.0 if k == n else min(1.0, centre + half)
    return Interval(rate, low, high)


def rate_interval(count: Count, *, confidence: float = CONFIDENCE) -> Interval | None:
    """Wilson's interval of a count's rate; invalid episodes take no part."""
    return wilson(count.k, count.n, confidence=confidence)


def difference(before: Count, after: Count, *, confidence: float = CONFIDENCE) -> Interval | None:
    """The interval of after's rate minus before's, for independent episodes (Newcombe 1998b, method 10).

    None where either side has no valid episode.
    """
    first = rate_interval(before, confidence=confidence)
    second = rate_interval(after, confidence=confidence)
    if first is None or second is None:
        return None
    return _hybrid(first, second, correlation=0.0)


def paired_difference(table: Paired, *, confidence: float = CONFIDENCE) -> Interval | None:
    """The interval of the second rate minus the first on the same tasks (Newcombe 1998c, method 10)."""
    n = table.n
    if n == 0:
        return None
    first = wilson(table.both + table.only_first, n, confidence=confidence)
    second = wilson(table.both + table.only_second, n, confidence=confidence)
    assert first is not None
    assert second is not None
    return _hybrid(first, second, correlation=_phi(table))


def mcnemar(table: Paired) -> float:
    """Two-sided exact p-value that neither policy is better: a binomial test on the tasks where they differ."""
    differing = table.only_first + table.only_second
    smaller = min(table.only_first, table.only_second)
    tail = sum(math.comb(differing, i) for i in range(smaller + 1))
    return min(1.0, 2 * tail / (1 << differing))


def _hybrid(first: Interval, second: Interval, *, correlation: float) -> Interval:
    """Two score intervals squared up to one for second minus first."""
    estimate = second.estimate - first.estimate
    down_second, up_second = second.estimate - second.low, second.high - second.estimate
    down_first, up_first = first.estimate - first.low, first.high - first.estimate
    down = down_second**2 - 2 * correlation * down_second * up_first + up_first**2
    up = up_second**2 - 2 * correlation * up_second * down_first + down_first**2
    low = max(-1.0, estimate - math.sqrt(max(0.0, down)))
    high = min(1.0, estimate + math.sqrt(max(0.0, up)))
    return Interval(estimate, low, high)


def _phi(table: Paired) -> float:
    """The correlation of the two outcomes, its positive cross product reduced by n / 2 but not below zero.

    Zero where a margin is empty.
    """
    a, b, c, d = table.both, table.only_first, table.only_second, table.neither
    margins = (a + b) * (c + d) * (a + c) * (b + d)
    if margins == 0:
        return 0.0
    cross = float(a * d - b * c)
    if cross > 0:
        cross = max(0.0, cross - table.n / 2)
    return cross / math.sqrt(margins)


def _z(confidence: float) -> float:
    """Standard-normal quantile for a two-sided interval."""
    if not 0 < confidence < 1:
        raise ValueError(f"confidence = {confidence} is not allowed: it takes a number between 0 and 1.")
    return NormalDist().inv_cdf(0.5 + confidence / 2)
