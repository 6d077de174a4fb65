"""The scheduler's invariants under arbitrary orders of events, and the cases that a reader can follow by hand."""

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from springtide.core.group import End
from springtide.scheduling.codec import decode_command, decode_event, encode
from springtide.scheduling.commands import (
    Abort,
    CancelGroup,
    Evaluate,
    Finish,
    IssueGroup,
    Prepare,
    Publish,
    SaveCheckpoint,
    ScoreGroup,
    SetDeadline,
    StartMember,
    Train,
)
from springtide.scheduling.config import SchedulingConfig
from springtide.scheduling.events import (
    Boundary,
    CheckpointSaved,
    DeadlinePassed,
    EvaluationFinished,
    GroupScored,
    MemberFinished,
    ProcessStarted,
    Published,
    RunStarted,
    StepFinished,
)
from springtide.scheduling.milestones import Milestones
from springtide.scheduling.scheduler import Scheduler


class World(RuleBasedStateMachine):
    """A hostile runtime: it finishes, fails, delays and kills in any order, and keeps its own books."""

    def __init__(self):
        super().__init__()
        self.started = {}
        self.pending = []
        self.ends = {}
        self.issued = {}
        self.trained_steps = []
        self.log = []
        self.epoch = 0
        self.done = False
        self.in_sync_open = []
        self.prepared = {}

    @initialize(
        mode=st.sampled_from(["sync", "async"]),
        batch=st.integers(1, 3),
        size=st.integers(1, 3),
        steps=st.integers(1, 4),
        staleness=st.integers(0, 3),
        window=st.none() | st.integers(0, 3),
        concurrent=st.integers(1, 6),
        attempts=st.integers(1, 2),
        filtering=st.booleans(),
        evaluate=st.sampled_from([0, 3]),
    )
    def begin(self, mode, batch, size, steps, staleness, window, concurrent, attempts, filtering, evaluate):
        self.config = SchedulingConfig(
            mode=mode,
            groups_per_step=batch,
            group_size=size,
            steps=steps,
            staleness=staleness,
            window=None if window is None else min(window, batch),
            max_concurrent=concurrent,
            max_attempts=attempts,
            min_valid=1,
            filter_zero_variance=filtering,
            max_filtered_per_step=2,
        )
        self.milestones = Milestones(last=steps, evaluation_tasks=evaluate, evaluation_every=2, checkpoint_every=2)
        self.scheduler = Scheduler(self.config, self.milestones)
        self.feed(RunStarted(Boundary()))
        self.feed(ProcessStarted(0))

    def feed(self, event):
        self.log.append(event)
        for command in self.scheduler.on(event):
            assert decode_command(encode(command)) == command
            self.execute(command)
        for record in self.scheduler.ends():
            key = (record.group, record.slot)
            assert key not in self.ends, f"{key} ended twice"
            self.ends[key] = record

    def execute(self, command):
        match command:
            case IssueGroup():
                assert command.group not in self.issued or self.config.mode == "sync"
                self.issued[command.group] = command
            case StartMember():
                key = (command.group, command.slot)
                assert key not in self.started, "one episode at a time per slot"
                self.started[key] = command
                assert len(self.started) <= self.config.max_concurrent
            case CancelGroup(group):
                for key in [key for key in self.started if key[0] == group]:
                    self.pending.append(("member", self.started[key]))
            case Prepare():
                assert self.config.mode == "async"
                assert command.step > len(self.trained_steps)
                self.prepared.setdefault(command.step, set()).add(command.group)
            case Train():
                assert command.step == len(self.trained_steps) + 1
                assert list(command.groups) == sorted(command.groups)
                assert len(command.groups) == self.config.groups_per_step
                bound = 0 if self.config.mode == "sync" else self.config.staleness
                for group in command.groups:
                    assert command.step - 1 - self.issued[group].base_version <= bound, "staleness bound"
                if self.config.mode == "async":
                    assert self.prepared[command.step] == set(command.groups), "known before, one by one"
                self.trained_steps.append(command)
                self.pending.append(("train", command))
            case Publish() | SaveCheckpoint() | Evaluate():
                self.pending.append((type(command).__name__, command))
            case Finish() | Abort():
                self.done = True
            case SetDeadline():
                pass

    @precondition(lambda self: self.started)
    @rule(data=st.data(), reward=st.sampled_from([None, 0.0, 1.0]))
    def member_finishes(self, data, reward):
        key = data.draw(st.sampled_from(sorted(self.started)))
        command = self.started.pop(key)
        self.feed(
            MemberFinished(
                group=command.group,
                slot=command.slot,
                attempt=command.attempt,
                epoch=command.epoch,
                reward=reward,
                reason="x",
            )
        )

    @precondition(lambda self: self.pending)
    @rule(data=st.data())
    def something_completes(self, data):
        index = data.draw(st.integers(0, len(self.pending) - 1))
        kind, command = self.pending.pop(index)
        match kind:
            case "train":
                self.feed(StepFinished(step=command.step, digest="d", trained_tokens=1))
            case "Publish":
                self.feed(Published(command.version))
            case "SaveCheckpoint":
                self.feed(CheckpointSaved(command.step))
            case "Evaluate":
                self.feed(EvaluationFinished(version=command.version, successes=1, valid=2, invalid=1))
            case "member":
                if (command.group, command.slot) in self.started:
                    del self.started[(command.group, command.slot)]
                    self.feed(
                        MemberFinished(
                            group=command.group,
                            slot=command.slot,
                            attempt=command.attempt,
                            epoch=command.epoch,
                            reward=None,
                        )
                    )

    @precondition(lambda self: self.config.mode == "async" and self.scheduler.groups)
    @rule(data=st.data())
    def deadline(self, data):
        self.feed(DeadlinePassed(data.draw(st.sampled_from(sorted(self.scheduler.groups))), self.epoch))

    @rule()
    def kill_and_resume(self):
        rebuilt = Scheduler(self.config, self.milestones)
        for event in self.log:
            rebuilt.on(decode_event(encode(event)))
        assert repr(vars(self.scheduler)) == repr(vars(rebuilt)), "replaying the events gives the same state"
        open_train = [command for kind, command in self.pending if kind == "train"]
        self.started.clear()
        self.pending.clear()
        self.scheduler = rebuilt
        self.epoch += 1
        finished = [StepFinished(step=command.step, digest="d", trained_tokens=1) for command in open_train]
        self.done = False
        self.feed(ProcessStarted(self.epoch, *finished))
        self.done = self.scheduler.finished

    @invariant()
    def never_stuck(self):
        if getattr(self, "config", None) is not None:
            assert self.done or self.started or self.pending, (
                "nothing runs, nothing is pending, and the run is not done"
            )

    @invariant()
    def all_ends_at_the_finish(self):
        if self.done and not self.scheduler.aborted and not self.pending and not self.started:
            assert len(self.trained_steps) == self.config.steps
            last = max((command.boundary.next_group for command in self.trained_steps), default=0)
            expected = {
                (group, slot) for group in self.issued if group < last for slot in range(self.config.group_size)
            }
            assert expected == set(self.ends)
            trained = {key for key, record in self.ends.items() if record.end is End.TRAINED}
            assert {group for group, _ in trained} <= {g for command in self.trained_steps for g in command.groups}


TestScheduler = World.TestCase
TestScheduler.settings = settings(
    max_examples=300, stateful_step_count=60, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


def scheduler(**changes):
    defaults = {"groups_per_step": 1, "group_size": 2, "steps": 2, "max_concurrent": 8, "min_valid": 1}
    made = Scheduler(SchedulingConfig(**(defaults | changes)), Milestones(last=2, checkpoint_every=1))
    made.on(RunStarted(Boundary()))
    made.on(ProcessStarted(0))
    return made


def finish(made, group, slot, reward, attempt=1):
    return made.on(MemberFinished(group=group, slot=slot, attempt=attempt, epoch=0, reward=reward, reason="box died"))


def test_sync_goes_step_by_step():
    made = scheduler()
    issued = made.on(Published(0))
    assert issued == [
        IssueGroup(group=0, task=0, base_version=0, size=2),
        StartMember(group=0, slot=0, attempt=1, task=0, epoch=0),
        StartMember(group=0, slot=1, attempt=1, task=0, epoch=0),
    ]
    assert finish(made, 0, 1, 0.0) == []
    (train,) = finish(made, 0, 0, 1.0)
    assert train == Train(step=1, groups=(0,), boundary=Boundary(step=1, next_group=1, next_task=1))
    assert [(r.slot, r.end, r.step) for r in made.ends()] == [(0, End.TRAINED, 1), (1, End.TRAINED, 1)]
    assert made.on(StepFinished(step=1, digest="d", trained_tokens=9)) == [
        SaveCheckpoint(1, train.boundary),
        Publish(1),
    ]


def test_an_invalid_member_is_tried_again_and_then_has_no_vote():
    made = scheduler(max_attempts=2)
    made.on(Published(0))
    finish(made, 0, 0, 1.0)
    (retry,) = finish(made, 0, 1, None)
    assert retry == StartMember(group=0, slot=1, attempt=2, task=0, epoch=0, delay=0.1)
    (train,) = finish(made, 0, 1, None, attempt=2)
    assert isinstance(train, Train)
    assert [(r.slot, r.end, r.reason) for r in made.ends()] == [(0, End.TRAINED, ""), (1, End.INVALID, "box died")]


def test_a_group_with_too_few_valid_members_expires_and_its_prompt_is_issued_again():
    made = scheduler(max_attempts=1, min_valid=2, max_reissues=1)
    made.on(Published(0))
    finish(made, 0, 0, 1.0)
    cancel, issue, *starts = finish(made, 0, 1, None)
    assert cancel == CancelGroup(0)
    assert issue == IssueGroup(group=1, task=0, base_version=0, size=2, reissue=1)
    assert len(starts) == 2


def test_a_late_result_of_an_older_attempt_is_dropped():
    made = scheduler(max_attempts=3)
    made.on(Published(0))
    finish(made, 0, 1, None)
    before = set(made.in_flight)
    assert finish(made, 0, 1, 1.0, attempt=1) == []
    assert not made.groups[0].slots[1].done
    assert made.in_flight == before, "it frees nobody's place"


def test_a_result_that_comes_twice_or_from_an_earlier_process_changes_nothing():
    made = scheduler(mode="async", groups_per_step=3, max_concurrent=2)
    made.on(Published(0))
    started = [c for c in finish(made, 0, 0, 1.0) if isinstance(c, StartMember)]
    assert len(started) == 1
    assert finish(made, 0, 0, 1.0) == []
    assert made.on(MemberFinished(group=0, slot=1, attempt=1, epoch=-1, reward=1.0)) == []
    assert made.in_flight == {(0, 1, 1), (1, 0, 1)}


def test_dynamic_sampling_sets_equal_rewards_aside_and_issues_another_task():
    made = scheduler(filter_zero_variance=True)
    made.on(Published(0))
    finish(made, 0, 0, 1.0)
    issue, *_ = finish(made, 0, 1, 1.0)
    assert issue == IssueGroup(group=1, task=1, base_version=0, size=2)
    finish(made, 1, 0, 1.0)
    (train,) = finish(made, 1, 1, 0.0)
    assert train.groups == (1,)
    assert {(r.group, r.end) for r in made.ends()} == {(0, End.FILTERED), (1, End.TRAINED)}


def test_async_waits_for_the_oldest_group_only_when_the_bound_demands_it():
    made = scheduler(mode="async", staleness=1, steps=4, group_size=1)
    made.on(Published(0))
    assert sorted(made.groups) == [0, 1]
    (train, *_) = [c for c in finish(made, 1, 0, 1.0) if isinstance(c, Train)]
    assert train.groups == (1,), "group 0 may still be overtaken at version 0"
    made.on(StepFinished(step=1, digest="d", trained_tokens=1))
    made.on(CheckpointSaved(1))
    made.on(Published(1))
    assert finish(made, 2, 0, 1.0) == [], "group 0 has base 0: step 2 must take it"
    (train, *_) = [c for c in finish(made, 0, 0, 1.0) if isinstance(c, Train)]
    assert train.groups == (0,)


@pytest.mark.parametrize("early", [True, False])
def test_who_is_in_a_step_does_not_depend_on_when_the_trainer_is_free(early):
    made = scheduler(mode="async", groups_per_step=2, group_size=1, staleness=2, steps=9, max_concurrent=99)
    made.on(Published(0))
    finish(made, 0, 0, 1.0)
    (first,) = [c for c in finish(made, 1, 0, 1.0) if isinstance(c, Train)]
    commands = []
    if early:
        commands += made.on(StepFinished(step=1, digest="d", trained_tokens=1))
    for group in (4, 2, 3):
        commands += finish(made, group, 0, 1.0)
    if not early:
        commands += made.on(StepFinished(step=1, digest="d", trained_tokens=1))
    assert first.groups == (0, 1)
    assert [(c.step, c.group) for c in commands if isinstance(c, Prepare)][:2] == [(2, 4), (2, 2)]
    assert [c.groups for c in commands if isinstance(c, Train)] == [(2, 4)]


@pytest.mark.parametrize("early", [True, False])
def test_who_is_in_a_step_does_not_depend_on_how_many_waited_for_the_trainer(early):
    made = scheduler(mode="async", group_size=1, staleness=9, steps=9, max_concurrent=99)
    made.on(Published(0))
    commands = [*finish(made, 0, 0, 1.0), *finish(made, 1, 0, 1.0)]
    step = StepFinished(step=1, digest="d", trained_tokens=1)
    events = [MemberFinished(group=group, slot=0, attempt=1, epoch=0, reward=1.0) for group in (3, 2)]
    for event in [step, *events] if early else [*events, step]:
        commands += made.on(event)
    assert [c.group for c in commands if isinstance(c, Prepare)][:3] == [0, 1, 3]


@pytest.mark.parametrize("batch", [1, 2, 3])
@pytest.mark.parametrize("staleness", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("missing", [0, 1, 3])
def test_a_window_of_up_to_a_batch_leaves_the_oldest_groups_their_places(batch, staleness, missing):
    """Where the youngest group is always the fastest, as many young ones overtake as ever can."""
    made = scheduler(
        mode="async",
        groups_per_step=batch,
        group_size=1,
        staleness=staleness,
        steps=9,
        window=max(0, batch - missing),
        max_concurrent=99,
    )
    bases, steps = {}, []
    commands = made.on(Published(0))
    while not made.finished:
        bases |= {command.group: command.base_version for command in commands if isinstance(command, IssueGroup)}
        train = next((command for command in commands if isinstance(command, Train)), None)
        if train is None:
            youngest = max(group.id for group in made.groups.values() if not group.complete)
            commands = finish(made, youngest, 0, 1.0)
            continue
        steps.append(train.step)
        assert max(train.step - 1 - bases[group] for group in train.groups) <= staleness
        commands = made.on(StepFinished(step=train.step, digest="d", trained_tokens=1))
        commands += made.on(CheckpointSaved(train.step))
        commands += made.on(Published(train.step))
    assert steps == list(range(1, 10))


def test_a_wider_window_is_no_setting_of_the_scheduler():
    with pytest.raises(AssertionError, match="window"):
        scheduler(mode="async", groups_per_step=2, staleness=2, window=3)


def abort_of(commands):
    (reason,) = [command.reason for command in commands if isinstance(command, Abort)]
    return reason


def test_a_run_in_which_everything_fails_stops_and_says_why_and_what_to_do():
    made = scheduler(max_attempts=1, max_reissues=0)
    made.on(Published(0))
    last = []
    for group in range(3):
        finish(made, group, 0, None)
        last = finish(made, group, 1, None)
    reason = abort_of(last)
    assert reason.startswith("The last 3 groups all failed; the last failure: box died; ")
    assert "springtide show RUN" in reason
    assert "scheduling.group_deadline" in reason


def late(made):
    """Let the deadlines of the live groups pass until the run gives up; why it did."""
    while True:
        commands = made.on(DeadlinePassed(min(made.groups), made.epoch))
        if made.aborted:
            return abort_of(commands)


def test_groups_that_are_late_are_not_blamed_on_what_happened_before():
    made = scheduler(mode="async", max_attempts=1, max_reissues=0, group_deadline=90.0)
    made.on(Published(0))
    finish(made, 0, 0, None)
    assert "the last failure: not complete after 90 s;" in late(made)
    made.on(ProcessStarted(1))
    made.on(Published(0))
    assert made.patience.reason == "", "what an earlier process met says nothing about this one"


def test_a_group_that_works_clears_the_blame():
    made = scheduler(max_attempts=1, steps=4)
    made.on(Published(0))
    finish(made, 0, 0, 1.0)
    finish(made, 0, 1, None)
    assert made.patience.reason == ""


def test_a_group_is_graded_as_a_whole_before_it_counts_as_complete():
    made = Scheduler(
        SchedulingConfig(mode="async", groups_per_step=1, group_size=2, steps=1, min_valid=1, max_attempts=1),
        Milestones(last=1),
        score_groups=True,
    )
    made.on(RunStarted(Boundary()))
    made.on(ProcessStarted(0))
    made.on(Published(0))
    assert finish(made, 0, 0, 0.0) == []
    assert finish(made, 0, 1, None) == [ScoreGroup(0, 0)]
    resumed = made.on(ProcessStarted(1))
    assert ScoreGroup(0, 1) in resumed, "the verdict died with the old process"
    made.on(Published(0))
    scored = {"group": 0, "rewards": (1.0, None), "reasons": ("", "box died")}
    assert made.on(GroupScored(epoch=0, **scored)) == [], "late, from the old process"
    prepare, train = made.on(GroupScored(epoch=1, **scored))
    assert prepare == Prepare(step=1, group=0)
    assert isinstance(train, Train)
    assert [(r.end, r.reason) for r in made.ends()] == [(End.TRAINED, ""), (End.INVALID, "box died")]


def test_one_step_off_issues_the_next_batch_when_the_last_one_is_complete():
    made = scheduler(mode="async", groups_per_step=2, group_size=1, staleness=1, steps=4, batchwise=True)
    issued = [c.group for c in made.on(Published(0)) if isinstance(c, IssueGroup)]
    assert issued == [0, 1, 2, 3], "before the first step there is nothing to wait for"
    for group in (0, 1, 2):
        finish(made, group, 0, 1.0)
    made.on(StepFinished(step=1, digest="d", trained_tokens=1))
    made.on(CheckpointSaved(1))
    assert not [c for c in made.on(Published(1)) if isinstance(c, IssueGroup)], "group 3 is still played"
    commands = finish(made, 3, 0, 1.0)
    assert [c.group for c in commands if isinstance(c, IssueGroup)] == [4, 5]


def test_what_came_after_an_abort_counts_when_the_run_goes_on():
    made = scheduler(mode="async", group_size=1, max_attempts=1)
    made.on(Published(0))
    last = 0
    while not made.aborted:
        made.on(DeadlinePassed(last, 0))
        last += 1
    others = sorted(made.groups)
    assert others, "else nothing shows"
    for group in others:
        assert finish(made, group, 0, None) == []
    made.on(ProcessStarted(1))
    assert not set(others) & set(made.groups), "they are judged"
    commands = made.on(Published(0))
    tasks = {command.task for command in commands if isinstance(command, StartMember)}
    assert tasks, "prompts are issued again"
