"""Keeps the readiness up to date with what the controller decides and the trainer has trained on."""

from collections.abc import Callable, Sequence

from springtide.core.group import Group
from springtide.core.trajectory import Trajectory
from springtide.ports.trainer import StepReport
from springtide.scheduling.commands import Command, Prepare, Train
from springtide.scheduling.events import Event
from springtide.scheduling.readiness import ReadinessFold


class ReadinessFeed:
    """An observer."""

    def __init__(self, fold: ReadinessFold, now: Callable[[], float]) -> None:
        self._fold = fold
        self._now = now

    def decided(self, event: Event, commands: Sequence[Command]) -> None:
        for command in commands:
            if isinstance(command, Prepare):
                self._fold.group_complete(command.group, self._now())
            elif isinstance(command, Train):
                self._fold.groups_taken(command.groups)

    def trained(self, report: StepReport, groups: Sequence[Group]) -> None:
        members = [member for group in groups for member in group.valid_members]
        for member in members:
            self._fold.played(member.turns, sum(member.lengths))
        self._fold.stepped(max(member.turns for member in members))

    def recovered(self, report: StepReport, groups: Sequence[Group]) -> None:
        self.trained(report, groups)

    def evaluated(self, version: int, trajectories: Sequence[Trajectory]) -> None:
        pass
