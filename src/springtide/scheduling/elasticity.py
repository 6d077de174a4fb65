"""How many ranks roll out and how many train: where the slower of the two is fastest, or all in turns.

Rates come from what episodes are like now (readiness) and what work takes (service costs), not from how busy ranks
were: a rank whose batch is half empty is busy all the time.
"""

from dataclasses import dataclass, field

import msgspec

from springtide.scheduling.costs import CurrentCosts
from springtide.scheduling.readiness import Readiness


class Demand(msgspec.Struct, frozen=True, kw_only=True):
    """What the split is chosen for. `ranks` in all, of which `least` at least train. `batch`: episodes of a train step;
    `live`: that the staleness bound allows in flight. `reference`: training needs its log-probs. `turns`: all ranks may
    roll out and train in turns, too."""

    ranks: int
    batch: int
    live: int
    reference: bool
    least: int = 1
    turns: bool = False


@dataclass(frozen=True, kw_only=True)
class Rates:
    """Episodes per second of `ranks` that roll out or that train; None while too little is known."""

    costs: CurrentCosts
    kv_tokens: int
    max_batch: int

    def rollout(self, seen: Readiness, ranks: int, live: int) -> float | None:
        """With `live` episodes in flight, of which each rank has its share: on the device or with its environment."""
        found = self._busy(seen, ranks, live)
        if found is None or seen.turns is None:
            return None
        turn, batch = found
        return ranks * batch / (turn * seen.turns)

    def slowest(self, seen: Readiness, ranks: int, live: int) -> float:
        """Seconds of a step's longest episode among `live` ones; 0 while too little is known."""
        found = self._busy(seen, ranks, live)
        if found is None or seen.longest is None:
            return 0.0
        turn, _ = found
        return seen.longest * (turn + (seen.environment or 0.0))

    def _busy(self, seen: Readiness, ranks: int, live: int) -> tuple[float, float] | None:
        """Seconds of a turn on the device, and the turns that share it."""
        if seen.context is None or seen.output is None or seen.appended is None:
            return None
        most = max(1.0, min(self.max_batch, self.kv_tokens / seen.context))
        share = live / ranks
        turn, batch = 0.0, most
        # The batch that is left when the others are with their environments; a few rounds settle it.
        for _ in range(ROUNDS):
            turn = self._turn_seconds(seen, batch)
            batch = min(most, share * turn / (turn + (seen.environment or 0.0)))
        return turn, batch

    def training(self, seen: Readiness, ranks: int, *, reference: bool) -> float | None:
        if seen.trained is None:
            return None
        costs = self.costs()
        token = costs.actor(1) + (costs.reference_token if reference else 0.0)
        return ranks / (token * seen.trained)

    def _turn_seconds(self, seen: Readiness, batch: float) -> float:
        assert seen.context is not None
        assert seen.output is not None
        assert seen.appended is not None
        costs = self.costs()
        step = costs.decode_base + batch * (costs.decode_sequence + costs.decode_context * seen.context)
        prefill = costs.prefill(round(seen.appended), round(seen.context)) - costs.prefill_base
        return seen.output * step + batch * prefill

    def throughput(self, seen: Readiness, rollout: int, demand: Demand) -> float | None:
        """Of the slower side; each step costs both a publication, and the trainer an update. Of both in turns where all
        ranks roll out."""
        if rollout == demand.ranks:
            return self._in_turns(seen, demand)
        made = self.rollout(seen, rollout, demand.live)
        used = self.training(seen, demand.ranks - rollout, reference=demand.reference)
        if made is None or used is None:
            return None
        costs = self.costs()
        update = costs.optimizer + costs.publish
        return demand.batch / max(demand.batch / made + costs.publish, demand.batch / used + update)

    def _in_turns(self, seen: Readiness, demand: Demand) -> float | None:
        """Optimizer and gradients are swapped in and out for each step, and so is the reference. An episode lives
        through no more rollouts than the staleness bound allows, so that they take as long as the longest needs."""
        made = self.rollout(seen, demand.ranks, demand.live)
        used = self.training(seen, demand.ranks, reference=demand.reference)
        if made is None or used is None:
            return None
        needed = self.slowest(seen, demand.ranks, demand.live) * demand.batch / demand.live
        costs = self.costs()
        swaps = (4 if demand.reference else 2) * costs.swap
        trains = demand.batch / used + costs.optimizer + costs.publish + swaps
        return (1 - DOUBT) * demand.batch / (max(demand.batch / made, needed) + trains)


ROUNDS = 8

DOUBT = 0.08
"""By how much taking turns has to be better than the best split: as much as the prediction may be wrong, of two ways to
work that have little in common."""

LEAST_GAIN = 0.05
"""Of throughput, that a move has to promise."""

COOLDOWN = 2
"""Versions after a move before ranks move back: by then its effect shows."""

EPISODES = 64
"""That have to end before anything is moved."""


@dataclass
class Elasticity:
    """Asked once per version, between steps. Moves at once where a single step gains what the move costs; a smaller
    gain has to be seen two times in a row, and a move back has to wait.

    `_wanted`: the split that was seen to be better last time; `_moved`: in which direction ranks moved last, and
    `_quiet`: for how many versions they do not move back.
    """

    rates: Rates
    _wanted: int | None = field(default=None, init=False)
    _moved: int = field(default=0, init=False)
    _quiet: int = field(default=0, init=False)

    def split(self, seen: Readiness, rollout: int, demand: Demand) -> int:
        """Ranks that roll out from now on; `rollout` while nothing else is better by enough to be worth a move."""
        self._quiet = max(0, self._quiet - 1)
        now = self.rates.throughput(seen, rollout, demand)
        if now is None or seen.ended < EPISODES:
            return rollout
        splits = [*range(1, demand.ranks - demand.least + 1), *([demand.ranks] if demand.turns else [])]
        best: int = max(splits, key=lambda n: (self._at(seen, n, demand), -abs(n - rollout)))
        gain = self._at(seen, best, demand) / now - 1
        back = self._quiet > 0 and (best - rollout) * self._moved < 0
        if gain < LEAST_GAIN or back:
            self._wanted = None
            return rollout
        again = self._wanted is not None and (self._wanted - rollout) * (best - rollout) > 0
        self._wanted = best
        saved = gain / (1 + gain) * demand.batch / now
        if saved < self.rates.costs().role_switch and not again:
            return rollout
        self._moved, self._quiet, self._wanted = best - rollout, COOLDOWN + 1, None
        return best

    def _at(self, seen: Readiness, rollout: int, demand: Demand) -> float:
        rate = self.rates.throughput(seen, rollout, demand)
        assert rate is not None
        return rate
