"""The beginning and the end of a run, as sets of completions: a measure is compared with the run's own beginning."""

from collections.abc import Sequence
from dataclasses import dataclass

from springtide.diagnosis.completions.sample import Sample, groups

PART = 5
"""The beginning and the end are each a fifth of the steps."""

FEWEST_GROUPS = 4
"""Groups in either, below which nothing is compared."""


@dataclass(frozen=True)
class Window:
    """`early` is empty where there is one step only."""

    early: tuple[Sample, ...]
    late: tuple[Sample, ...]
    steps: tuple[int, ...]

    @property
    def last_steps(self) -> tuple[int, ...]:
        return tuple(sorted({sample.step for sample in self.late}))

    @property
    def comparable(self) -> bool:
        return min(len(groups(self.early)), len(groups(self.late))) >= FEWEST_GROUPS


def window(samples: Sequence[Sample]) -> Window:
    steps = tuple(sorted({sample.step for sample in samples}))
    if len(steps) < 2:
        return Window((), tuple(samples), steps)
    size = max(1, len(steps) // PART)
    first, last = set(steps[:size]), set(steps[-size:])
    early = tuple(sample for sample in samples if sample.step in first)
    late = tuple(sample for sample in samples if sample.step in last)
    return Window(early, late, steps)


def mean_reward(samples: Sequence[Sample]) -> float | None:
    """None where no reward is known."""
    rewards = [sample.reward for sample in samples if sample.reward is not None]
    return sum(rewards) / len(rewards) if rewards else None
