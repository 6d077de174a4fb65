"""How many completions will be cut off: the base model's lengths against the limit.

Lengths are given as they were counted, or as a median and a 95th percentile, between which and beyond they are taken to
be log-normal.
"""

from math import log
from statistics import NormalDist

import msgspec
import numpy as np

from springtide.core.errors import UsageError
from springtide.diagnosis.completions.content import number
from springtide.evaluation.statistics import wilson

FEWEST = 20
"""Completions below which nothing is predicted."""

NORMAL_95 = 1.6448536269514722
"""The standard normal distribution's 95th percentile."""


class Truncation(msgspec.Struct, frozen=True, kw_only=True):
    """`share` of completions beyond `limit` tokens; `enough`: the length that 99 % stay below."""

    share: float
    limit: int
    median: float
    p95: float
    enough: int
    low: float | None = None
    high: float | None = None
    completions: int = 0


def of_lengths(lengths: tuple[float, ...], limit: int) -> Truncation | None:
    """None where too few are known."""
    if len(lengths) < FEWEST:
        return None
    values = np.array(lengths)
    cut = int((values >= limit).sum())
    around = wilson(cut, len(values))
    median, p95, p99 = (float(value) for value in np.quantile(values, [0.5, 0.95, 0.99]))
    return Truncation(
        share=cut / len(values),
        limit=limit,
        median=median,
        p95=p95,
        enough=_round(p99),
        low=None if around is None else around.low,
        high=None if around is None else around.high,
        completions=len(values),
    )


def of_quantiles(text: str, limit: int) -> Truncation:
    """From `300:1200`, the median and the 95th percentile in tokens."""
    median_text, colon, p95_text = text.partition(":")
    median, p95 = number(median_text), number(p95_text)
    if not colon or median is None or p95 is None or not 0 < median < p95:
        raise UsageError(
            f"--answer-tokens {text}: write the median and the 95th percentile of the base model's completions in "
            "tokens, such as 300:1200."
        )
    spread = (log(p95) - log(median)) / NORMAL_95
    lengths = NormalDist(log(median), spread)
    enough = median * (p95 / median) ** (NormalDist().inv_cdf(0.99) / NORMAL_95)
    return Truncation(share=1 - lengths.cdf(log(limit)), limit=limit, median=median, p95=p95, enough=_round(enough))


def _round(tokens: float) -> int:
    """Up to a multiple of 64."""
    return int(-(-tokens // 64) * 64)
