"""Does length pay? The correlation of reward and length among completions of the same prompt.

Between prompts it says nothing: hard ones take longer and pay less.
"""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from springtide.diagnosis.completions.sample import Sample, groups
from springtide.evaluation.statistics import Interval

RESAMPLES = 400
"""Resamples of groups for the interval."""

FEWEST = 6
"""Groups with different rewards below which nothing is said."""


def length_reward(samples: Iterable[Sample]) -> Interval | None:
    """The pooled correlation within groups of reward and the logarithm of length, with a 95 % interval over groups.

    None where too few groups have different rewards.
    """
    sums = []
    for members in groups(samples):
        pairs = [(each.reward, np.log1p(each.length)) for each in members if each.reward is not None]
        if len(pairs) < 2:
            continue
        reward, length = np.array(pairs, dtype=float).T
        reward, length = reward - reward.mean(), length - length.mean()
        if np.abs(reward).max() > 1e-12:
            sums.append((float(reward @ length), float(reward @ reward), float(length @ length)))
    if len(sums) < FEWEST:
        return None
    table = np.array(sums)
    picked = np.random.default_rng(0).integers(len(table), size=(RESAMPLES, len(table)))
    resampled = _correlation(table[picked].sum(axis=1))
    low, high = np.quantile(resampled, [0.025, 0.975])
    return Interval(float(_correlation(table.sum(axis=0))), float(low), float(high))


def _correlation(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    both = np.sqrt(sums[..., 1] * sums[..., 2])
    return np.divide(sums[..., 0], both, out=np.zeros_like(both), where=both > 0)


def mean_length(samples: Iterable[Sample]) -> float | None:
    lengths = [sample.length for sample in samples]
    return sum(lengths) / len(lengths) if lengths else None
