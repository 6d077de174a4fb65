"""Shares of completions, with intervals for which the group is the unit: completions of one prompt are alike, and as
many independent ones would claim too much."""

from collections.abc import Callable, Iterable

from springtide.diagnosis.completions.sample import Sample, groups
from springtide.evaluation.count import Count
from springtide.evaluation.statistics import Interval, difference, wilson

Holds = Callable[[Sample], bool | None]
"""Whether something is true of a completion; None where that is not known."""


def share(samples: Iterable[Sample], holds: Holds) -> Interval | None:
    """Mean over groups of the share within the group; None if it is known of no completion."""
    rates = _rates(samples, holds)
    around = wilson(round(sum(rates)), len(rates))
    if around is None:
        return None
    estimate = sum(rates) / len(rates)
    return Interval(estimate, min(around.low, estimate), max(around.high, estimate))


def rise(early: Iterable[Sample], late: Iterable[Sample], holds: Holds) -> Interval | None:
    """By how much the share grew."""
    before, after = _count(early, holds), _count(late, holds)
    return None if before is None or after is None else difference(before, after)


def paid_more(samples: Iterable[Sample], holds: Holds) -> float | None:
    """By how much the reward is higher where it holds than where it does not, within groups that have both; None if
    there are no such groups."""
    gains = []
    for members in groups(samples):
        with_it = [member.reward for member in members if member.reward is not None and holds(member)]
        without = [member.reward for member in members if member.reward is not None and holds(member) is False]
        if with_it and without:
            gains.append(sum(with_it) / len(with_it) - sum(without) / len(without))
    return sum(gains) / len(gains) if gains else None


def _rates(samples: Iterable[Sample], holds: Holds) -> list[float]:
    rates = []
    for members in groups(samples):
        known = [found for member in members if (found := holds(member)) is not None]
        if known:
            rates.append(sum(known) / len(known))
    return rates


def _count(samples: Iterable[Sample], holds: Holds) -> Count | None:
    rates = _rates(samples, holds)
    return Count(round(sum(rates)), len(rates)) if rates else None
