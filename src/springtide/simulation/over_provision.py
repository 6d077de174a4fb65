"""A baseline: more is started than a step needs, and what is unfinished at the barrier goes on in the next step.

APRIL's rule (arXiv 2509.18521). All ranks roll out; when enough groups for a step are complete they stop, train, get
the new weights and go on where they stopped, with the KV computed again. Where the description is silent, and so that
all that is compared is held to the same bound: no token may be older than K versions, so that a step waits for a group
that would become too old; environments go on while the ranks train; ranks stop at no cost.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from springtide.core.group import Group
from springtide.core.trajectory import Trajectory
from springtide.ports.trainer import StepReport
from springtide.scheduling.commands import Command, Train
from springtide.scheduling.config import SchedulingConfig
from springtide.scheduling.events import Event, Published
from springtide.scheduling.milestones import Milestones
from springtide.scheduling.scheduler import Scheduler
from springtide.simulation.contention import CoreSharing
from springtide.simulation.executor import Cost, InlineExecutor, Watch
from springtide.telemetry.ledger import Ledger

T = TypeVar("T")


class OverProvision(Scheduler):
    """With `surplus` times the groups of a step in flight, and a barrier at each step."""

    def __init__(self, config: SchedulingConfig, milestones: Milestones, *, surplus: float) -> None:
        super().__init__(config, milestones)
        self._started = round(surplus * config.groups_per_step)

    def _rollout_allowed(self) -> bool:
        return super()._rollout_allowed() and not self.training and not self.publishing

    def _weights_free(self) -> bool:
        return self.published == self.trained and not self.publishing

    def _issue_groups(self) -> Iterator[Command]:
        """No more than the staleness bound allows, and none beyond the last step."""
        batch = self.config.groups_per_step
        whole = min((self.published + self.bound + 1) * batch, self.config.steps * batch)
        allowed = min(self.trained * batch + self._started, whole)
        while self.trained * batch + len(self.groups) < allowed:
            yield from self._issue_group()


class Turns(InlineExecutor):
    """Ranks that train and roll out in turns: from a train step's decision until its weights serve, no rank generates.

    An observer of the controller, too.
    """

    def __init__(
        self, cost: Cost, ledger: Ledger, *, watch: Watch | None = None, sharing: CoreSharing | None = None
    ) -> None:
        super().__init__(cost, ledger, watch=watch, sharing=sharing)
        self._rollout = asyncio.Event()

    async def run(self, lane: str, work: Callable[[], T], *, name: str) -> T:
        if name == "generate" and not self._rollout.is_set():
            self._ledger.lane(lane).wait_for("training")
            await self._rollout.wait()
        return await super().run(lane, work, name=name)

    def decided(self, event: Event, commands: Sequence[Command]) -> None:
        if isinstance(event, Published):
            self._rollout.set()
        if any(isinstance(command, Train) for command in commands):
            self._rollout.clear()

    def trained(self, report: StepReport, groups: Sequence[Group]) -> None:
        pass

    def recovered(self, report: StepReport, groups: Sequence[Group]) -> None:
        pass

    def evaluated(self, version: int, trajectories: Sequence[Trajectory]) -> None:
        pass
