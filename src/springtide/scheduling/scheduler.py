"""The run as a pure state machine: `on(event)` returns commands.

No clock, no randomness, no await. Feeding the journalled events to a fresh scheduler gives the same state and the same
commands, which is how a run is recovered.

Invariants (v: applied steps, K: staleness bound, B: groups per step):
- issued groups, less those filtered or expired, never exceed (published + K + 1) * B, and they are consumed whole, in
  issue order within a window of W <= B groups. So the v * B that were trained on are among the first (v + 1) * B, as
  are all whose base is v - K or less: at most B of these are live, and step v + 1 can and does wait for them (the
  mandatory set). No token is older than K versions when it is trained on. (With W > B, younger groups could take the
  places that the older ones need.)
- in sync no decision depends on which episode was faster: complete groups are judged in issue order, and those that
  wait to run start in order of group and slot.
- each slot of an issued group is ended once. In sync the ends of a step are recorded with its `Train` command, so that
  a killed step starts again as if it had never been tried; in async each end is recorded when it happens.
"""

from collections import deque
from collections.abc import Iterator

from springtide.core.group import End
from springtide.ports.journal import EndRecord
from springtide.scheduling.commands import (
    Abort,
    CancelGroup,
    Command,
    Evaluate,
    Finish,
    IssueGroup,
    MoveRanks,
    Prepare,
    Publish,
    SaveCheckpoint,
    ScoreGroup,
    SetDeadline,
    StartMember,
    Train,
)
from springtide.scheduling.config import SchedulingConfig
from springtide.scheduling.consumption import Places
from springtide.scheduling.endings import Endings
from springtide.scheduling.events import (
    Boundary,
    CheckpointFailed,
    CheckpointSaved,
    ConcurrencySet,
    DeadlinePassed,
    EvaluationFinished,
    Event,
    GroupScored,
    MemberFinished,
    ProcessStarted,
    Published,
    RankDied,
    RankJoined,
    RolesSet,
    RunStarted,
    StepFinished,
)
from springtide.scheduling.live_group import LiveGroup, Slot
from springtide.scheduling.membership import Membership
from springtide.scheduling.milestones import Milestones
from springtide.scheduling.patience import Patience
from springtide.scheduling.waiting import Waiting, backoff


class Scheduler:
    """Decides; never acts. `ends()`: what the last `on` recorded. `filtered`, `expired`: groups since the run began."""

    def __init__(
        self,
        config: SchedulingConfig,
        milestones: Milestones,
        *,
        retry_backoff: float = 0.1,
        score_groups: bool = False,
        membership: Membership | None = None,
    ) -> None:
        self.config = config
        self._score_groups = score_groups
        self.milestones = milestones
        self.sync = config.mode == "sync"
        self.bound = 0 if self.sync else config.staleness
        self.window = (0 if self.sync else config.groups_per_step) if config.window is None else config.window
        assert self.window <= config.groups_per_step, "the recipe refuses a wider window"
        self._retry_backoff = retry_backoff
        self.epoch = 0
        self.trained, self.training = 0, False
        self.published, self.publishing = -1, False
        self.saved, self.saving = -1, False
        self._save_failed_at = -1
        self.evaluated: set[int] = set()
        self.groups: dict[int, LiveGroup] = {}
        self.next_group = self.next_task = 0
        self.reissue: deque[tuple[int, int]] = deque()
        self.waiting = Waiting(ordered=self.sync)
        self.in_flight: set[tuple[int, int, int]] = set()
        self.concurrent = config.max_concurrent
        self.evaluating = self.finished = self.aborted = False
        self.filtered = self.expired = self._filtered_this_step = 0
        self._places = Places(1, config.groups_per_step, self.window, self.bound)
        self.patience = Patience(config.groups_per_step)
        self.boundary = Boundary()
        self._endings = Endings(self.sync)
        self._all_ranks = self.membership = membership or Membership.of(1, 1)

    def on(self, event: Event) -> list[Command]:
        """Apply `event`; the commands are to be journalled with it and then executed, in order."""
        self._endings.recorded = []
        commands: list[Command] = []
        match event:
            case RunStarted(boundary):
                self._start(boundary)
            case ProcessStarted(epoch, open_step):
                commands += self._take_over(epoch, open_step)
            case MemberFinished():
                commands += self._member_finished(event)
            case GroupScored():
                commands += self._group_scored(event)
            case StepFinished():
                self._step_finished(event)
            case Published(version):
                self.published, self.publishing = version, False
            case CheckpointSaved(step):
                self.saved, self.saving = max(self.saved, step), False
            case CheckpointFailed():
                self.saving, self._save_failed_at = False, self.trained
            case EvaluationFinished(version=version):
                self.evaluated.add(version)
                self.evaluating = False
            case ConcurrencySet(concurrent):
                self.concurrent = min(concurrent, self.config.max_concurrent)
            case RolesSet() | RankDied() | RankJoined():
                commands += self._ranks_changed(event)
            case DeadlinePassed(group, epoch):
                commands += self._deadline_passed(group, epoch)
        if not self.finished:
            commands += self._advance()
        return commands

    def ends(self) -> list[EndRecord]:
        """Ends to be journalled with the commands of the last `on`."""
        return self._endings.recorded

    def expects(self, event: MemberFinished) -> bool:
        """Whether that attempt is in flight: the message is neither a second one nor of an earlier process."""
        return event.epoch == self.epoch and (event.group, event.slot, event.attempt) in self.in_flight

    # -- starting and resuming ---------------------------------------------------------------------------------------

    def _start(self, boundary: Boundary) -> None:
        self.boundary = boundary
        self.trained = self.saved = boundary.step
        self.milestones = self.milestones.starting_at(boundary.step)
        self._restore(boundary)

    def _restore(self, boundary: Boundary) -> None:
        self.next_group = boundary.next_group
        self.next_task = boundary.next_task
        self.reissue = deque(boundary.reissue)
        self._places = Places(boundary.step + 1, self.config.groups_per_step, self.window, self.bound)

    def _step_finished(self, event: StepFinished) -> None:
        assert event.step == self.trained + 1
        self.trained, self.training = event.step, False

    def _take_over(self, epoch: int, open_step: StepFinished | None) -> list[Command]:
        """Everything in flight died with the old process, except that an open step was trained to its end."""
        assert self.training == (open_step is not None)
        if open_step is not None:
            self._step_finished(open_step)
        self.epoch = epoch
        self.publishing = self.saving = self.evaluating = False
        self.published = -1
        self.membership = self._all_ranks
        self.finished, self.aborted = self.finished and not self.aborted, False
        self.patience.worked()
        if self.finished:
            return [Finish()]
        if self.sync:
            self.groups.clear()
            self._endings.forget()
            self._filtered_this_step = 0
            self._restore(self.boundary)
        self.waiting.clear()
        self.in_flight.clear()
        return [command for group in list(self.groups.values()) for command in self._continue_group(group)]

    def _continue_group(self, group: LiveGroup) -> Iterator[Command]:
        """Of an async run: what was finished stays (and is judged, if it came after an abort), the rest is repeated."""
        if group.step is not None:
            yield Prepare(step=group.step, group=group.id)
        for index in group.restart():
            self.waiting.add(group.id, index)
        if not group.complete:
            yield SetDeadline(group=group.id, epoch=self.epoch, seconds=self.config.group_deadline)
        if group.unscored:
            yield ScoreGroup(group.id, self.epoch)
        if group.complete and not group.judged:
            yield from self._judge(group)

    # -- what happens to members -------------------------------------------------------------------------------------

    def _member_finished(self, event: MemberFinished) -> list[Command]:
        group = self.groups.get(event.group)
        if not self.expects(event):
            return []
        self.in_flight.remove((event.group, event.slot, event.attempt))
        if group is None:
            return []
        slot = group.slots[event.slot]
        if slot.finish(event.reward, event.reason, attempts=self.config.max_attempts):
            self.patience.failed(slot.reason)
        else:
            self.waiting.add(group.id, event.slot, backoff(slot.attempt, self._retry_backoff))
        if group.unscored:
            return [ScoreGroup(group.id, self.epoch)]
        return self._judge(group) if group.complete else []

    def _group_scored(self, event: GroupScored) -> list[Command]:
        group = self.groups.get(event.group)
        if group is None or event.epoch != self.epoch:
            return []
        group.score(event.rewards, event.reasons)
        self.patience.failed(next(filter(None, event.reasons), ""))
        return self._judge(group)

    def _judge(self, completed: LiveGroup) -> list[Command]:
        """In sync in issue order, and the place of a group that is given up is filled before the next is judged."""
        commands: list[Command] = []
        for group in list(self.groups.values()) if self.sync else [completed]:
            if not group.complete or self.finished:
                break
            if not group.judged:
                group.judged = True
                commands += self._group_completed(group)
                if self.sync and not self.finished:
                    commands += self._issue_groups()
        return commands

    def _group_completed(self, group: LiveGroup) -> list[Command]:
        needed = min(self.config.min_valid, self.config.group_size)
        if len(group.rewards) < needed:
            reason = f"{len(group.rewards)} of {len(group.slots)} members were valid, {needed} needed"
            return self._expire(group, reason)
        self.patience.worked()
        may_filter = self.config.filter_zero_variance and self._filtered_this_step < self.config.max_filtered_per_step
        if may_filter and group.zero_variance:
            self.filtered += 1
            self._filtered_this_step += 1
            self._end(group, End.FILTERED, f"all rewards were {group.rewards[0]:g}")
        else:
            self._places.kept(group)
        return []

    def _deadline_passed(self, group_id: int, epoch: int) -> list[Command]:
        group = self.groups.get(group_id)
        if group is None or group.complete or epoch != self.epoch:
            return []
        reason = f"not complete after {self.config.group_deadline:g} s"
        self.patience.failed(reason)
        return self._expire(group, reason)

    def _expire(self, group: LiveGroup, reason: str) -> list[Command]:
        self.expired += 1
        self.patience.group_expired()
        self._end(group, End.EXPIRED, reason)
        self.waiting.drop(group.id)
        if group.reissue < self.config.max_reissues:
            self.reissue.append((group.task, group.reissue + 1))
        cancel: list[Command] = [CancelGroup(group.id)]
        if self.patience.exhausted:
            self.finished = self.aborted = True
            return [*cancel, Abort.hopeless(self.patience.expired, self.patience.reason or reason)]
        return cancel

    def _end(self, group: LiveGroup, end: End, reason: str, step: int | None = None) -> None:
        del self.groups[group.id]
        if end is not End.TRAINED:
            self._places.given_up(group)
        records = group.ends(end, reason, step=self.trained + 1 if step is None else step)
        self._endings.add(records, trained=end is End.TRAINED)

    # -- what happens to ranks ---------------------------------------------------------------------------------------

    def _ranks_changed(self, event: RolesSet | RankDied | RankJoined) -> list[Command]:
        before, self.membership = self.membership, event.of(self.membership)
        if not self.membership.complete:
            self.finished = self.aborted = True
            return [Abort.too_few(self.membership)]
        return [MoveRanks(self.membership)] if self.membership != before else []

    # -- what to do next ---------------------------------------------------------------------------------------------

    def _advance(self) -> list[Command]:
        """Everything that the present state allows, in a fixed order."""
        commands: list[Command] = [*self._checkpoint(), *self._publish(), *self._evaluate()]
        if self._finish_ready():
            self.finished = True
            return [*commands, Finish()]
        if self._rollout_allowed():
            commands += [*self._issue_groups(), *self._start_members()]
        return [*commands, *self._fill_steps(), *self._train()]

    def _checkpoint(self) -> Iterator[Command]:
        due = self.milestones.checkpoint(self.trained)
        blocked = self.saving or self.training or self._save_failed_at == self.trained
        if due and self.saved < self.trained and not blocked:
            self.saving = True
            yield SaveCheckpoint(self.trained, self.boundary)

    def _publish(self) -> Iterator[Command]:
        if self.published < self.trained and not self.publishing and not self.evaluating and not self.training:
            self.publishing = True
            yield Publish(self.trained)

    def _evaluate(self) -> Iterator[Command]:
        tasks = self.milestones.evaluation(self.published)
        if tasks and self.published not in self.evaluated and not self.evaluating and not self.publishing:
            self.evaluating = True
            yield Evaluate(version=self.published, tasks=tasks)

    def _finish_ready(self) -> bool:
        busy = self.training or self.publishing or self.saving or self.evaluating
        return self.trained == self.config.steps and self.published == self.trained and not busy

    def _rollout_allowed(self) -> bool:
        """Evaluation shares the engine: in sync, and at the start of a run, rollouts wait for it."""
        if self.published < 0:
            return False
        exclusive = self.sync or self.published == self.milestones.first
        return not (self.evaluating and exclusive) and not (self.sync and (self.training or self.publishing))

    def _issue_groups(self) -> Iterator[Command]:
        if self.config.batchwise and (self.in_flight or self.waiting):
            return
        batch = self.config.groups_per_step
        consumed = (self.trained + (1 if self.training else 0)) * batch
        allowed = min((self.published + self.bound + 1) * batch, self.config.steps * batch)
        while consumed + len(self.groups) < allowed:
            yield from self._issue_group()

    def _start_members(self) -> Iterator[Command]:
        while self.waiting and len(self.in_flight) < self.concurrent:
            group_id, index, delay = self.waiting.pop()
            group = self.groups[group_id]
            slot = group.slots[index]
            slot.running = True
            self.in_flight.add((group_id, index, slot.attempt))
            yield StartMember(
                group=group_id, slot=index, attempt=slot.attempt, task=group.task, epoch=self.epoch, delay=delay
            )

    def _issue_group(self) -> Iterator[Command]:
        if self.reissue:
            task, reissue = self.reissue.popleft()
        else:
            task, reissue = self.next_task, 0
            self.next_task += 1
        slots = [Slot() for _ in range(self.config.group_size)]
        group = LiveGroup(self.next_group, task, self.published, reissue, slots, scored=not self._score_groups)
        self.next_group += 1
        self.groups[group.id] = group
        self._places.issued(group)
        for index in range(len(group.slots)):
            self.waiting.add(group.id, index)
        yield IssueGroup(group=group.id, task=task, base_version=self.published, size=len(slots), reissue=reissue)
        if not self.sync:
            yield SetDeadline(group=group.id, epoch=self.epoch, seconds=self.config.group_deadline)

    def _fill_steps(self) -> Iterator[Command]:
        """The next one, and when that is full and waits for the trainer, those after it."""
        for group in self._places.fill(self.groups):
            if not self.sync:
                assert group.step is not None
                yield Prepare(step=group.step, group=group.id)

    def _train(self) -> Iterator[Command]:
        step = self.trained + 1
        if not self._places.full(step) or self.training or not self._weights_free():
            return
        batch = [group for group in self.groups.values() if group.step == step]
        self.training = True
        self._endings.settle()
        self._filtered_this_step = 0
        for group in batch:
            self._end(group, End.TRAINED, "", step)
        reissue = (*self.reissue, *((group.task, group.reissue) for group in self.groups.values()))
        self.boundary = Boundary(step=step, next_group=self.next_group, next_task=self.next_task, reissue=reissue)
        yield Train(step=step, groups=tuple(group.id for group in batch), boundary=self.boundary)

    def _weights_free(self) -> bool:
        """May the next step change the trainer's weights?

        In async the trainer's lane takes the copies for saving and publication first, in order, so only a version that
        has to be evaluated must reach the engines before.
        """
        if self.sync or self.published < 0:
            return not self.saving and not self.publishing and self.published == self.trained
        return self.published == self.trained or not self.milestones.evaluation(self.trained)
