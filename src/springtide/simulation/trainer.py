"""The training ranks, modelled: what a step takes on all of them together."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path

from springtide.core.errors import UsageError
from springtide.core.group import Group
from springtide.core.version import PolicyVersion
from springtide.ports.trainer import StepReport
from springtide.runtime.mover import SWITCH
from springtide.scheduling.pipelining import Schedule, StageCosts
from springtide.simulation.cluster import Cluster
from springtide.simulation.pipeline import Pipeline, dealt, divided, micro_batches
from springtide.simulation.player import ModelledTrajectory


class ModelledTrainer:
    """Implements the Trainer port on `ranks` data-parallel ranks.

    `spent` is what is left to wait for of the last call, in seconds by bin; a negative "rollout" gives back what has
    been booked as waiting while work went on. `colocated`: the ranks also roll out, so that weights, gradients and
    optimizer are moved in before a step and out after it. `pipelining`: how reference and actor work share ranks that
    only train; all but "full" begin with groups as they come (`prepare`). `updates`: of the optimizer, that a step's
    groups are divided into; ranks wait for each other at each. `now`: the clock that `ready` is of.
    """

    exact = True

    def __init__(
        self,
        cluster: Cluster,
        *,
        ranks: int,
        reference: bool,
        colocated: bool,
        pipelining: str = "full",
        updates: int = 1,
        now: Callable[[], float] = lambda: 0.0,
    ) -> None:
        if colocated and pipelining not in ("full", "adaptive"):
            raise UsageError(
                f"pipelining = {pipelining} needs ranks that only train, and all {ranks} also roll out; "
                "use mode = async with fewer rollout_ranks, or pipelining = full."
            )
        self._cluster = cluster
        self._costs = cluster.costs
        self._ranks = ranks
        self._reference = reference
        self._colocated = colocated
        self._updates = updates
        self._now = now
        stages = StageCosts.of(cluster.costs, reference=reference)
        self.pipeline = None if pipelining == "full" else Pipeline(pipelining, ranks=ranks, costs=stages)
        self._ready: dict[int, float] = {}
        self._number = 0
        self._away_until = 0.0
        self.spent: dict[str, float] = {}

    @property
    def version(self) -> PolicyVersion:
        return PolicyVersion(self._number, str(self._number))

    def resize(self, ranks: int, *, colocated: bool, lost: bool = False) -> None:
        """From the next step on; until all ranks know each other, none of them trains. `lost`: a rank has died, and
        what was done of the open step, or ahead of it, is done again."""
        now, self._ranks, self._colocated = self._now(), ranks, colocated
        self._away_until = now + self._costs.role_switch
        if lost:
            self._ready = dict.fromkeys(self._ready, now)
        if self.pipeline is not None:
            self.pipeline.resize(ranks, until=now if lost else None)
            self.pipeline.occupy(self._away_until)
        self.spent = {}

    def prepare(self, *, step: int, group: Group, ready: float, idle: bool) -> None:
        """What is done ahead is worked out at the step: nothing that comes later changes what it would be."""
        self.spent = {}
        self._ready[group.id] = ready

    def step(self, *, step: int, groups: tuple[Group, ...]) -> StepReport:
        members = [member for group in groups for member in group.valid_members]
        if self.pipeline is None or self._colocated:
            self.spent = self._whole(groups)
        else:
            self.spent = self._pipelined(self.pipeline, groups)
        self._number = step
        trained = sum(member.trained_tokens for member in members)
        flat = sum(m.trained_tokens for g in groups if _flat(g) for m in g.valid_members)
        return StepReport(step=step, version=self.version, trained_tokens=trained, zero_advantage_tokens=flat)

    def _whole(self, groups: Sequence[Group]) -> dict[str, float]:
        """The whole batch at once: the reference is swapped in, scores it, and makes room for the actor."""
        for group in groups:
            self._ready.pop(group.id, None)
        busiest = sum(self._busiest(part) for part in divided(groups, self._updates))
        spent = {"actor": self._costs.actor(busiest), "optimizer": self._updates * self._costs.optimizer}
        if self._reference:
            spent["reference"] = self._costs.reference_token * self._busiest(groups)
            spent["swap"] = 2 * self._costs.swap
        if self._colocated:
            spent["swap"] = spent.get("swap", 0.0) + 2 * self._costs.swap
        if self._away_until > self._now():
            spent[SWITCH] = self._away_until - self._now()
        return spent

    def _busiest(self, groups: Sequence[Group]) -> int:
        """Tokens of the rank that has most of them."""
        return max(dealt((length for group in groups for length in self._lengths(group)), self._ranks))

    def _pipelined(self, pipeline: Pipeline, groups: Sequence[Group]) -> dict[str, float]:
        """A group that was not announced is ready now."""
        now = self._now()
        most = self._cluster.micro_batch_tokens
        arrivals = [
            (self._ready.pop(group.id, now), micro_batches(self._lengths(group), ranks=self._ranks, most=most))
            for group in groups
        ]
        done = pipeline.step(arrivals, self._updates)
        spent = booked(done, now, optimizer=self._updates * self._costs.optimizer)
        pipeline.occupy(now + math.fsum(spent.values()))
        return spent

    def _lengths(self, group: Group) -> list[int]:
        """Of the sequences, in tokens without context."""
        lengths: list[int] = []
        for member in group.valid_members:
            assert isinstance(member, ModelledTrajectory)
            lengths += member.lengths
        return [self._costs.training_tokens(length) for length in lengths]

    def publish(self) -> str:
        """The ranks send weights until all others serve them."""
        if self.pipeline is not None:
            self.pipeline.occupy(self._now() + self._costs.publish)
        self.spent = {}
        return str(self._number)

    def save(self, folder: Path) -> None:
        self.spent = {}

    def load(self, folder: Path) -> None:
        self.spent = {}


def booked(done: Schedule, now: float, *, optimizer: float) -> dict[str, float]:
    """Seconds by bin, a mean over ranks, of all of a step's work. They sum to what is left to wait for at `now`: work
    from before is taken out of "rollout", as which its time has been booked."""
    bins = done.seconds()
    spent = {name: bins[name] / done.ranks for name in ("actor", "reference", "swap")}
    spent["optimizer"] = optimizer
    left = max(0.0, done.finish - now) + optimizer
    return spent | {"rollout": left - sum(spent.values())}


def _flat(group: Group) -> bool:
    rewards = {member.reward for member in group.valid_members}
    return len(rewards) == 1
