"""Keeps a rule of priority up to date with what the controller decides, and ready turns in its order."""

from collections.abc import Callable, Sequence

from springtide.core.group import Group
from springtide.core.member import Member, Purpose
from springtide.core.trajectory import Trajectory
from springtide.ports.trainer import StepReport
from springtide.runtime.dispatch import Dispatch
from springtide.runtime.observer import Observer
from springtide.scheduling.commands import CancelGroup, Command, IssueGroup, Prepare, StartMember, Train
from springtide.scheduling.config import SchedulingConfig
from springtide.scheduling.events import Event, MemberFinished, ProcessStarted, Published, StepFinished
from springtide.scheduling.priority import Priority, Ranked, Switch, priority
from springtide.scheduling.scheduler import Scheduler


class PriorityFeed:
    """An observer. Turns are put into another order only when a member of their group ended, at a new version, and when
    the rule itself changes. A resumed run takes over the groups that are live.
    """

    def __init__(self, rule: Ranked, dispatch: Dispatch, scheduler: Scheduler, now: Callable[[], float]) -> None:
        self._rule = rule
        self._dispatch = dispatch
        self._scheduler = scheduler
        self._now = now

    def decided(self, event: Event, commands: Sequence[Command]) -> None:
        now, progress = self._now(), self._rule.progress
        match event:
            case ProcessStarted():
                for group in self._scheduler.groups.values():
                    left = sum(not slot.done for slot in group.slots)
                    if left:
                        progress.issued(group.id, base=group.base_version, left=left, now=now)
            case MemberFinished():
                member = Member(Purpose.TRAIN, event.group, event.slot, event.attempt)
                valid, attempts = event.reward is not None, self._scheduler.config.max_attempts
                progress.ended(member, now, valid=valid, done=valid or event.attempt >= attempts)
                self._dispatch.reorder([event.group])
            case Published(version=version):
                progress.published(version, now)
                self._dispatch.reorder()
        for command in commands:
            match command:
                case IssueGroup():
                    progress.issued(command.group, base=command.base_version, left=command.size, now=now)
                case StartMember():
                    progress.started(Member(Purpose.TRAIN, command.group, command.slot, command.attempt), now)
                case CancelGroup():
                    progress.given_up(command.group)
        if isinstance(self._rule, Switch):
            self._follow(self._rule, event, commands, now)

    def _follow(self, rule: Switch, event: Event, commands: Sequence[Command], now: float) -> None:
        """What the trainer does, and what is ready for it."""
        if isinstance(event, StepFinished):
            rule.trained(now)
        trains = any(isinstance(command, Train) for command in commands)
        if trains:
            rule.training(now)
        supplied = any(isinstance(command, Prepare) for command in commands)
        if (trains or supplied or isinstance(event, StepFinished)) and rule.look(
            self._dispatch.readiness.snapshot(now), now
        ):
            self._dispatch.reorder()

    def trained(self, report: StepReport, groups: Sequence[Group]) -> None:
        pass

    def recovered(self, report: StepReport, groups: Sequence[Group]) -> None:
        pass

    def evaluated(self, version: int, trajectories: Sequence[Trajectory]) -> None:
        pass


def rule_of(config: SchedulingConfig) -> Priority:
    return priority(
        config.priority,
        aging=config.aging,
        staleness=config.staleness,
        batch=config.groups_per_step,
        sync=config.mode == "sync",
    )


def feeds(rule: Priority, dispatch: Dispatch, scheduler: Scheduler, now: Callable[[], float]) -> list[Observer]:
    """What keeps `rule` up to date, if it goes by anything."""
    return [PriorityFeed(rule, dispatch, scheduler, now)] if isinstance(rule, Ranked) else []
