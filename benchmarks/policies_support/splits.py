"""Baselines of elasticity: a planner with a gain threshold, and one that knows what is to come."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from springtide.scheduling.elasticity import Demand, Rates
from springtide.scheduling.readiness import Readiness

COOLDOWN = 1
"""Plans after a reconfiguration in which nothing is moved."""

EPISODES = 64
"""That have to end before anything is moved, as in ours."""


@dataclass
class Planner:
    """Moves to the best split when what it gains until the next plan is worth more than moving costs, and at least a
    share `gain` of the throughput: Libra's rule (arXiv 2606.03077), with our rates as its model.

    `every`: versions from plan to plan. `cost`: seconds.
    """

    rates: Rates
    gain: float
    every: int
    cost: float
    _asked: int = field(default=0, init=False)
    _quiet: int = field(default=0, init=False)

    def split(self, seen: Readiness, rollout: int, demand: Demand) -> int:
        self._asked += 1
        if self._asked % self.every:
            return rollout
        if self._quiet:
            self._quiet -= 1
            return rollout
        splits = range(1, demand.ranks - demand.least + 1)
        rate = {split: self.rates.throughput(seen, split, demand) or 0.0 for split in splits}
        if seen.ended < EPISODES or not rate[rollout]:
            return rollout
        best = max(splits, key=lambda split: (rate[split], -abs(split - rollout)))
        gain = rate[best] / rate[rollout] - 1
        saved = self.every * demand.batch * (1 / rate[rollout] - 1 / rate[best])
        if gain < self.gain or saved <= self.cost:
            return rollout
        self._quiet = COOLDOWN
        return best


class Planned(NamedTuple):
    """Makes a `Planner`."""

    gain: float
    every: int
    cost: float

    def __call__(self, rates: Rates) -> Planner:
        return Planner(rates, self.gain, self.every, self.cost)


@dataclass
class Told:
    """Takes each version's split from a list, and the last one from then on."""

    splits: Sequence[int]
    _version: int = field(default=0, init=False)

    def split(self, seen: Readiness, rollout: int, demand: Demand) -> int:
        # Version 0 may be published more than once, before any episode.
        self._version += seen.ended > 0
        return self.splits[min(self._version, len(self.splits) - 1)]


class Known(NamedTuple):
    """Makes one that is told `splits`."""

    splits: tuple[int, ...]

    def __call__(self, rates: Rates) -> Told:
        return Told(self.splits)
