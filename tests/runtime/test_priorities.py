"""What a rule of priority is told, and when turns that wait are put into another order."""

from types import SimpleNamespace

import pytest

from springtide.core.member import Member, Purpose
from springtide.runtime.priorities import feeds, rule_of
from springtide.scheduling.commands import CancelGroup, IssueGroup, Prepare, StartMember, Train
from springtide.scheduling.config import SchedulingConfig
from springtide.scheduling.events import (
    Boundary,
    ConcurrencySet,
    MemberFinished,
    ProcessStarted,
    Published,
    StepFinished,
)
from springtide.scheduling.live_group import LiveGroup, Slot
from springtide.scheduling.milestones import Milestones
from springtide.scheduling.readiness import ReadinessFold
from springtide.scheduling.scheduler import Scheduler
from springtide.simulation.cluster import cluster
from springtide.simulation.simulate import simulate
from springtide.simulation.strategy import OURS
from springtide.simulation.workload import preset


class Dispatch:
    """Remembers whose turns were to be put into another order."""

    def __init__(self):
        self.readiness = ReadinessFold(lambda: 0)
        self.reordered = []

    def reorder(self, groups=None):
        self.reordered.append(groups)


def member(group, slot=0, attempt=1):
    return Member(Purpose.TRAIN, group, slot, attempt)


def fed(name):
    """The feed of a rule, what it reorders, its rule, and the clock."""
    config = SchedulingConfig(mode="async", priority=name, max_attempts=2, groups_per_step=2, group_size=2)
    scheduler = Scheduler(config, Milestones(last=100))
    rule = rule_of(config)
    dispatch, clock = Dispatch(), SimpleNamespace(now=0.0)
    (feed,) = feeds(rule, dispatch, scheduler, lambda: clock.now)
    return feed, dispatch, rule, clock, scheduler


def issue(group, size=2):
    start = [StartMember(group=group, slot=slot, attempt=1, task=group, epoch=0, delay=0.0) for slot in range(size)]
    return [IssueGroup(group=group, task=group, base_version=0, size=size), *start]


def finished(group, slot, *, attempt=1, reward=1.0):
    return MemberFinished(group=group, slot=slot, attempt=attempt, epoch=0, reward=reward)


def test_the_oldest_first_is_told_nothing():
    assert feeds(rule_of(SchedulingConfig()), Dispatch(), None, None) == []


def test_only_the_end_of_a_member_and_a_new_version_put_turns_into_another_order():
    feed, dispatch, rule, clock, _ = fed("value")
    feed.decided(Published(0), [*issue(0), *issue(1)])
    feed.decided(ConcurrencySet(7), [])
    assert dispatch.reordered == [None]
    rule.sampled(member(0), 100)
    clock.now = 10.0
    feed.decided(finished(0, 0), [Prepare(step=1, group=0)])
    assert dispatch.reordered == [None, [0]]
    assert rule.progress.group_left(0) == 100.0
    assert rule.progress.group_left(1) == 200.0


def test_an_invalid_attempt_is_made_up_for_and_the_last_one_is_not():
    feed, _, rule, _, _ = fed("value")
    feed.decided(Published(0), issue(0))
    rule.sampled(member(0), 100)
    feed.decided(finished(0, 0), [])
    feed.decided(finished(0, 1, reward=None), [])
    assert rule.progress.group_left(0) == 100.0
    feed.decided(ConcurrencySet(9), [StartMember(group=0, slot=1, attempt=2, task=0, epoch=0)])
    feed.decided(finished(0, 1, attempt=2, reward=None), [])
    assert rule.progress.group_left(0) == 0.0
    feed.decided(Published(1), issue(1))
    assert rule.progress.group_left(1) == 200.0
    feed.decided(ConcurrencySet(9), [CancelGroup(1)])
    assert rule.progress.group_left(1) == 0.0


def test_a_resumed_run_takes_over_the_groups_that_are_live():
    feed, _, rule, _, scheduler = fed("value")
    slots = [Slot(done=True, reward=1.0), Slot()]
    scheduler.groups = {3: LiveGroup(3, 3, 0, 0, slots), 4: LiveGroup(4, 4, 0, 0, [Slot(done=True, reward=1.0)] * 2)}
    feed.decided(ProcessStarted(1), [])
    feed.decided(ConcurrencySet(9), [StartMember(group=3, slot=1, attempt=1, task=3, epoch=1)])
    rule.sampled(member(3, 1), 50)
    assert rule.progress.group_left(3) == 50.0, "as long as it is and one more turn, less what it has"
    assert rule.progress.group_left(4) == 0.0


def test_a_switch_follows_what_the_trainer_does_and_is_told_to_all_turns_at_once():
    feed, dispatch, _, clock, _ = fed("switch")
    fold = dispatch.readiness
    feed.decided(Published(0), [*issue(0), *issue(1)])
    dispatch.reordered.clear()
    for group in (0, 1):
        fold.group_complete(group, clock.now)
        feed.decided(ConcurrencySet(9), [Prepare(step=1, group=group)])
        clock.now += 10.0
    assert dispatch.reordered == [None], "the batch is complete: the long ones now"
    fold.groups_taken((0, 1))
    feed.decided(ConcurrencySet(9), [Train(step=1, groups=(0, 1), boundary=Boundary())])
    assert dispatch.reordered == [None, None], "how long a step takes is not known yet"
    clock.now = 60.0
    feed.decided(StepFinished(step=1, digest="", trained_tokens=1), [])
    feed.decided(ConcurrencySet(9), [Train(step=2, groups=(), boundary=Boundary())])
    assert dispatch.reordered == [None, None, None], "a step takes 40 s, and a batch 20"


@pytest.mark.parametrize("rule", ["value", "longest", "switch"])
def test_every_rule_sees_a_modelled_run_through_and_is_not_switched_off(rule, caplog):
    strategy = OURS.model_copy(update={"priority": rule, "rollout_ranks": 4})
    done = simulate(preset("tau", 4), cluster("h100-14b"), strategy, seed=0, steps=3)
    assert max(done.staleness) <= 1
    assert not caplog.records
