"""How many ranks, split how, reach a target rate: the bound says where to begin, simulated runs where to end."""

from collections.abc import Callable
from math import ceil, isfinite
from typing import Any, Literal

import msgspec

from springtide.core.errors import UsageError
from springtide.simulation.bound import Limits, limits
from springtide.simulation.cluster import Cluster
from springtide.simulation.script import Work
from springtide.simulation.simulate import elastic
from springtide.simulation.strategy import Strategy
from springtide.simulation.summary import summarise

Limit = Literal["rollout", "training", "staleness", "environments"]

MOST_RANKS = 2**20
"""Nobody is told to book more."""


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A simulated number of ranks. In turns (sync), all ranks are in rollout and all train."""

    ranks: int
    rollout_ranks: int
    training_ranks: int
    goodput_tokens_per_s: float
    bound_tokens_per_s: float
    bound_fraction: float
    step_seconds: float
    limit: Limit
    """The smallest term of the bound at this split."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """`ranks` is the smallest simulated number that reaches `target`; None: there is none up to `ranks_max`."""

    workload: str
    cluster: str
    target_tokens_per_s: float
    strategy: dict[str, Any]
    groups_per_step: int
    seeds: list[int]
    ranks_max: int
    ranks: int | None
    ranks_bound: int | None
    """With fewer, no schedule reaches the target."""
    limit: Limit | None
    """What the answer is limited by, or, where there is none, what stands in the way."""
    remedy: str
    """Where there is no answer: why, and what would help."""
    monotone: bool
    """No simulated number of ranks above the answer falls short of the target."""
    candidates: list[Candidate]
    """All that were simulated, fewest ranks first."""


class Ceiling:
    """What no schedule of a strategy can beat, for any number of ranks, and which of its parts is the smallest."""

    def __init__(self, found: Limits, strategy: Strategy, environment_slots: int) -> None:
        self._limits, self._strategy = found, strategy
        self.in_turns = strategy.mode == "sync"
        self.staleness = strategy.bound
        self.caps: dict[Limit, float] = {
            "staleness": found.staleness(self.staleness),
            "environments": found.environments(environment_slots),
        }
        """Rates that more ranks do not raise."""
        self.cap: Limit = min(self.caps, key=lambda name: self.caps[name])

    @property
    def fewest(self) -> int:
        """Ranks that a run needs at least."""
        return max(2, self._strategy.rollout_ranks + (not self.in_turns))

    def fluid(self, ranks: int) -> float:
        """Trained tokens per second with everything at hand: of the split, or of ranks that change sides at will."""
        found = self._limits
        if self.in_turns:
            return 1 / (1 / found.rollout(ranks) + 1 / found.training(ranks))
        if elastic(self._strategy):
            seconds = found.rollout_seconds + found.training_seconds
            return min(ranks * found.tokens / seconds, found.training(ranks))
        rollout = self._strategy.rollout_ranks or found.split(ranks)
        return min(found.rollout(rollout), found.training(ranks - rollout))

    def slower(self, ranks: int) -> Limit:
        """The side that limits `fluid`."""
        rollout = self._strategy.rollout_ranks or self._limits.split(ranks)
        return "rollout" if self._limits.rollout(rollout) < self._limits.training(ranks - rollout) else "training"

    def limit(self, rollout: int, training: int) -> Limit:
        """The smallest part at a split."""
        parts: dict[Limit, float] = {
            "rollout": self._limits.rollout(rollout),
            "training": self._limits.training(training),
            **self.caps,
        }
        return min(parts, key=lambda name: parts[name])

    def reached_with(self, target: float, most: int) -> int | None:
        """The fewest ranks of which this reaches `target`, up to `most`."""
        if self.caps[self.cap] < target or self.fluid(most) < target:
            return None
        below, at = self.fewest - 1, most
        while at - below > 1:
            middle = (below + at) // 2
            below, at = (below, middle) if self.fluid(middle) >= target else (middle, at)
        return at

    def staleness_for(self, target: float) -> int:
        """The least K that allows `target`."""
        return max(self.staleness + 1, ceil(target / self._limits.staleness(0)) - 1)


def plan(
    workload: Work,
    cluster: Cluster,
    strategy: Strategy,
    *,
    target: float,
    ranks_max: int,
    seeds: list[int],
    steps: int,
    warm_steps: int,
    watch: Callable[[int], None] = lambda ranks: None,
) -> Plan:
    """Search up to `ranks_max` ranks of this cluster's kind; its `environment_slots` stay as they are.

    `target` is in trained tokens per second; `watch` is told the number of ranks before each is simulated.
    UsageError for a target or a number of ranks that cannot be.
    """
    if not (isfinite(target) and target > 0):
        raise UsageError(f"target = {target:g} is no rate; give trained tokens per second above 0.")
    found = limits(workload, cluster, reference=strategy.reference)
    ceiling = Ceiling(found, strategy, cluster.environment_slots)
    if ranks_max < ceiling.fewest:
        raise UsageError(f"ranks_max = {ranks_max} is less than a run needs; give {ceiling.fewest} or more.")
    tried: dict[int, Candidate] = {}

    def reaches(ranks: int) -> bool:
        if ranks not in tried:
            watch(ranks)
            hardware = cluster.model_copy(update={"ranks": ranks})
            tried[ranks] = _candidate(workload, hardware, strategy, ceiling, seeds, steps, warm_steps)
        return tried[ranks].goodput_tokens_per_s >= target

    low = ceiling.reached_with(target, ranks_max)
    answer = None if low is None else smallest(reaches, low=low, high=ranks_max)
    above = [count for count in tried if answer is not None and count > answer]
    limit, remedy = (tried[answer].limit, "") if answer is not None else _refusal(ceiling, tried, target, ranks_max)
    return Plan(
        workload=workload.name,
        cluster=cluster.name,
        target_tokens_per_s=target,
        strategy=strategy.model_dump(),
        groups_per_step=workload.groups_per_step,
        seeds=seeds,
        ranks_max=ranks_max,
        ranks=answer,
        ranks_bound=low,
        limit=limit,
        remedy=remedy,
        monotone=all(reaches(count) for count in above),
        candidates=[tried[count] for count in sorted(tried)],
    )


def smallest(reaches: Callable[[int], bool], *, low: int, high: int) -> int | None:
    """The smallest number in low..high that reaches, if what reaches goes on reaching; None if none is met.

    Two numbers below the answer and one above it are tried too: should one of those below reach, it goes on from there.
    """
    below, at, stride = low - 1, low, 1
    while not reaches(at):
        if at == high:
            return None
        below, at, stride = at, min(high, at + stride), 2 * stride
    while at - below > 1:
        middle = (below + at) // 2
        below, at = (below, middle) if reaches(middle) else (middle, at)
    while lower := [number for number in (at - 2, at - 1) if number >= low and reaches(number)]:
        at = lower[0]
    if at < high:
        reaches(at + 1)
    return at


def _candidate(
    workload: Work,
    cluster: Cluster,
    strategy: Strategy,
    ceiling: Ceiling,
    seeds: list[int],
    steps: int,
    warm_steps: int,
) -> Candidate:
    summary, runs = summarise(workload, cluster, strategy, seeds=seeds, steps=steps, warm_steps=warm_steps)
    rollout = runs[0].splits[-1]
    training = cluster.ranks - rollout or cluster.ranks
    return Candidate(
        ranks=cluster.ranks,
        rollout_ranks=rollout,
        training_ranks=training,
        goodput_tokens_per_s=summary.goodput_tokens_per_s,
        bound_tokens_per_s=summary.bound_tokens_per_s,
        bound_fraction=summary.bound_fraction,
        step_seconds=summary.step_seconds,
        limit=ceiling.limit(rollout, training),
    )


def _refusal(ceiling: Ceiling, tried: dict[int, Candidate], target: float, ranks_max: int) -> tuple[Limit, str]:
    """What stands in the way of the target; a sentence that says why and what would help."""
    last = tried.get(ranks_max)
    best = max(tried.values(), key=lambda candidate: candidate.goodput_tokens_per_s, default=None)
    came_to = "" if best is None else f"{best.ranks} ranks come closest, to {best.goodput_tokens_per_s:,.0f}; "
    if ceiling.caps[ceiling.cap] < target or (last is not None and last.limit == ceiling.cap):
        return ceiling.cap, came_to + _no_more_ranks(ceiling, target)
    limit = ceiling.slower(ranks_max) if last is None else last.limit
    enough = ceiling.reached_with(target, MOST_RANKS)
    if enough is None:
        return limit, (
            f"{limit} stands in the way, however many ranks there are: take larger batches, of which each shares one "
            "optimizer step, or leave rollout_ranks to the bound."
        )
    if last is None:
        return limit, f"no schedule reaches it with {ranks_max} ranks: allow {enough} or more."
    return limit, came_to + f"{limit} is the limit of {ranks_max} ranks: allow more."


def _no_more_ranks(ceiling: Ceiling, target: float) -> str:
    caps = ceiling.caps
    if ceiling.cap == "environments":
        return (
            f"the environments at the same time (environment_slots) allow no more than {caps['environments']:,.0f} "
            "however many ranks there are: have more of them, or faster ones."
        )
    larger = f"a larger K (staleness = {ceiling.staleness_for(target)} or more)"
    text = (
        f"the staleness bound K = {ceiling.staleness} allows no more than {caps['staleness']:,.0f} however many "
        "ranks there are, as a batch waits for its slowest episode: take "
        f"{'mode = async and ' if ceiling.in_turns else ''}{larger} or larger batches."
    )
    if caps["environments"] < target:
        text += f" Beyond {caps['environments']:,.0f} it takes more environment_slots as well."
    return text
