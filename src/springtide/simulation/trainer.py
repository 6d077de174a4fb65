"""The training ranks, modelled: what a step takes on all of them together."""

import heapq
from collections.abc import Iterable
from pathlib import Path

from springtide.core.group import Group
from springtide.core.version import PolicyVersion
from springtide.ports.trainer import StepReport
from springtide.simulation.cluster import Cluster
from springtide.simulation.player import ModelledTrajectory


class ModelledTrainer:
    """Implements the Trainer port on `ranks` data-parallel ranks.

    `spent` is what the last call took: seconds by bin. `colocated`: the ranks also roll out, so that weights, gradients
    and optimizer are moved in before a step and out after it.
    """

    exact = True

    def __init__(self, cluster: Cluster, *, ranks: int, reference: bool, colocated: bool) -> None:
        self._costs = cluster.costs
        self._ranks = ranks
        self._reference = reference
        self._colocated = colocated
        self._number = 0
        self.spent: dict[str, float] = {}

    @property
    def version(self) -> PolicyVersion:
        return PolicyVersion(self._number, str(self._number))

    def prepare(self, *, step: int, group: Group, ready: float) -> None:
        self.spent = {}

    def step(self, *, step: int, groups: tuple[Group, ...]) -> StepReport:
        """The whole batch at once: the reference is swapped in, scores it, and makes room for the actor."""
        members = [member for group in groups for member in group.valid_members]
        lengths = [length for member in members for length in _lengths(member)]
        busiest = longest_load(lengths, self._ranks)
        self.spent = {"actor": self._costs.actor(busiest), "optimizer": self._costs.optimizer}
        if self._reference:
            self.spent["reference"] = self._costs.reference_token * busiest
            self.spent["swap"] = 2 * self._costs.swap
        if self._colocated:
            self.spent["swap"] = self.spent.get("swap", 0.0) + 2 * self._costs.swap
        self._number = step
        trained = sum(member.trained_tokens for member in members)
        flat = sum(m.trained_tokens for g in groups if _flat(g) for m in g.valid_members)
        return StepReport(step=step, version=self.version, trained_tokens=trained, zero_advantage_tokens=flat)

    def publish(self) -> str:
        self.spent = {}
        return str(self._number)

    def save(self, folder: Path) -> None:
        self.spent = {}

    def load(self, folder: Path) -> None:
        self.spent = {}


def longest_load(lengths: Iterable[int], ranks: int) -> int:
    """Tokens of the busiest rank when each sequence, longest first, goes to the least busy one."""
    loads = [0] * ranks
    for length in sorted(lengths, reverse=True):
        heapq.heapreplace(loads, loads[0] + length)
    return max(loads)


def _lengths(member: object) -> tuple[int, ...]:
    assert isinstance(member, ModelledTrajectory)
    return member.lengths


def _flat(group: Group) -> bool:
    rewards = {member.reward for member in group.valid_members}
    return len(rewards) == 1
