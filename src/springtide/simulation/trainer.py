"""The training ranks, modelled: what a step takes on all of them together."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from springtide.core.errors import UsageError
from springtide.core.group import Group
from springtide.core.version import PolicyVersion
from springtide.ports.trainer import Passes, StepReport, StepWork
from springtide.runtime.mover import SWITCH
from springtide.scheduling.costs import CurrentCosts, ServiceCosts, given
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
    groups are divided into; ranks wait for each other at each. `expected`: the costs that a step's mode is chosen by,
    if not those that it takes. `now`: the clock that `ready` is of.
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
        expected: CurrentCosts | None = None,
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
        self.pipeline: Pipeline | None = None
        asked = expected or given(cluster.costs)
        if pipelining != "full":
            self.pipeline = Pipeline(
                pipelining,
                ranks=ranks,
                costs=StageCosts.of(cluster.costs, reference=reference),
                expected=lambda: StageCosts.of(asked(), reference=reference),
            )
        self._work = StepWork()
        self._ready: dict[int, float] = {}
        self._number = 0
        self._away_until = 0.0
        self.spent: dict[str, float] = {}

    @property
    def version(self) -> PolicyVersion:
        return PolicyVersion(self._number, str(self._number))

    def change(self, costs: ServiceCosts) -> None:
        """From now on work takes this."""
        self._costs = costs
        if self.pipeline is not None:
            self.pipeline.costs = StageCosts.of(costs, reference=self._reference)

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
        return StepReport(
            step=step, version=self.version, trained_tokens=trained, zero_advantage_tokens=flat, work=self._work
        )

    def _whole(self, groups: Sequence[Group]) -> dict[str, float]:
        """The whole batch at once: the reference is swapped in, scores it, and makes room for the actor."""
        for group in groups:
            self._ready.pop(group.id, None)
        busiest = sum(self._busiest(part) for part in divided(groups, self._updates))
        whole = self._busiest(groups)
        spent = {"actor": self._costs.actor(busiest), "optimizer": self._updates * self._costs.optimizer}
        if self._reference:
            spent["reference"] = self._costs.reference_token * whole
            spent["swap"] = 2 * self._costs.swap
        if self._colocated:
            spent["swap"] = spent.get("swap", 0.0) + 2 * self._costs.swap
        swaps = 2 * (int(self._reference) + int(self._colocated))
        self._work = self._consisted(groups, spent, actor=busiest, reference=whole, swaps=swaps)
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
        tokens = sum(unit for _, units in arrivals for unit in units) / self._ranks
        swaps = sum(each.stage == "swap" for each in done.passes) / self._ranks
        self._work = self._consisted(groups, spent, actor=tokens, reference=tokens, swaps=swaps)
        pipeline.occupy(now + math.fsum(spent.values()))
        return spent

    def _consisted(
        self, groups: Sequence[Group], spent: Mapping[str, float], *, actor: float, reference: float, swaps: float
    ) -> StepWork:
        """Of a rank with `actor` tokens without context to train on and `reference` to score: a share of all."""
        lengths = _sequences(groups)
        alike = sum(self._costs.training_tokens(length) for length in lengths)
        attended = sum(length * (length - 1) / 2 for length in lengths)

        def passes(tokens: float, seconds: float) -> Passes:
            share = tokens / alike if alike else 0.0
            return Passes(tokens=share * sum(lengths), attended=share * attended, seconds=seconds)

        return StepWork(
            actor=passes(actor, spent["actor"]),
            reference=passes(reference, spent["reference"]) if "reference" in spent else Passes(),
            updates=self._updates,
            update_seconds=spent["optimizer"],
            swaps=swaps,
            swap_seconds=spent.get("swap", 0.0),
        )

    def _lengths(self, group: Group) -> list[int]:
        """Of the sequences, in tokens without context."""
        return [self._costs.training_tokens(length) for length in _sequences([group])]

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


def _sequences(groups: Sequence[Group]) -> list[int]:
    """Their lengths."""
    lengths: list[int] = []
    for member in (member for group in groups for member in group.valid_members):
        assert isinstance(member, ModelledTrajectory)
        lengths += member.lengths
    return lengths


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
