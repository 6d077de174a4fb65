"""Intervals for success rates and their differences; pure, exact where that is cheap.

Wilson's interval is used for one rate because it stays inside [0, 1] and keeps its coverage at 0 and n successes. That
of a difference is Newcombe's hybrid-score interval, which squares up two Wilson intervals.
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
    estimate = second.estimate - first.estimate
    low = estimate - math.hypot(second.estimate - second.low, first.high - first.estimate)
    high = estimate + math.hypot(second.high - second.estimate, first.estimate - first.low)
    return Interval(estimate, max(-1.0, low), min(1.0, high))


def _z(confidence: float) -> float:
    """Standard-normal quantile for a two-sided interval."""
    if not 0 < confidence < 1:
        raise ValueError(f"confidence = {confidence} is not allowed: it takes a number between 0 and 1.")
    return NormalDist().inv_cdf(0.5 + confidence / 2)
