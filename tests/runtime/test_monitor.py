"""The numbers of a run, by hand: three groups of two, one of them flat, two episodes without a verdict."""

import logging

import pytest

from springtide.core.group import Group
from springtide.core.member import Member, Purpose
from springtide.core.outcome import Valid
from springtide.core.segment import Segment
from springtide.core.trajectory import Trajectory
from springtide.core.version import PolicyVersion
from springtide.ports.engine import EngineStats
from springtide.ports.trainer import StepReport
from springtide.runtime.invalid_rate import InvalidRates
from springtide.runtime.monitor import Monitor
from springtide.scheduling.commands import IssueGroup, StartMember, Train
from springtide.scheduling.config import SchedulingConfig
from springtide.scheduling.costs import ServiceCosts
from springtide.scheduling.events import (
    CANCELLED,
    Boundary,
    CheckpointFailed,
    GroupScored,
    MemberFinished,
    ProcessStarted,
    Published,
    StepFinished,
)
from springtide.scheduling.milestones import Milestones
from springtide.scheduling.scheduler import Scheduler
from springtide.telemetry.ledger import Ledger
from springtide.telemetry.names import describe
from springtide.telemetry.sink import SinkGroup
from springtide.telemetry.status import StatusBoard


class Clock:
    time = 0.0

    def now(self):
        return self.time


class Memory:
    name = "memory"

    def __init__(self):
        self.records = []

    def write(self, record):
        self.records.append(record)

    def close(self):
        pass


def group(number, rewards, *, version=0):
    members = tuple(
        Trajectory(
            member=Member(Purpose.TRAIN, number, slot),
            task_id="t",
            segments=(
                Segment(tokens=(1,)),
                Segment(tokens=(2, 3), parent=0, sampled=True, logprobs=(-1.0, -1.0), versions=(version, version + 1)),
            ),
            outcome=Valid(reward=reward),
            turns=1,
        )
        for slot, reward in enumerate(rewards)
    )
    return Group(id=number, base_version=version, members=members)


def report(step, tokens, idle=0):
    version = PolicyVersion(step, "d")
    return StepReport(step=step, version=version, trained_tokens=tokens, zero_advantage_tokens=idle)


def ended(slot, reward, reason=""):
    return MemberFinished(group=0, slot=slot, attempt=1, epoch=0, reward=reward, reason=reason)


class Watch:
    def __init__(self, folder, *, scores_groups=False, costs=None):
        self.clock, self.sink = Clock(), Memory()
        self.scheduler = Scheduler(SchedulingConfig(), Milestones(last=1), score_groups=scores_groups)
        self.board = StatusBoard(folder / "status.json", run="r")
        self.monitor = Monitor(
            sinks=SinkGroup([self.sink]),
            board=self.board,
            ledger=Ledger(self.clock.now),
            clock=self.clock,
            scheduler=self.scheduler,
            engine_stats=EngineStats,
            invalid_rates=InvalidRates(scores_groups=scores_groups),
            success_reward=1.0,
            costs=costs,
        )

    def tell(self, time, event, *commands):
        self.clock.time = time
        self.monitor.decided(event, commands)

    def train(self, time, report, groups):
        self.clock.time = time
        self.monitor.trained(report, groups)
        return self.sink.records[-1].metrics


@pytest.fixture
def watch(tmp_path):
    return Watch(tmp_path)


def test_goodput_starts_with_the_first_group_and_counts_the_step_itself(watch):
    watch.tell(5.0, ProcessStarted(0))
    watch.tell(10.0, ProcessStarted(0), IssueGroup(group=0, task=0, base_version=0, size=2))
    metrics = watch.train(20.0, report(1, tokens=100, idle=40), [group(0, [1.0, 0.0])])
    assert metrics["rollout/goodput_tokens_per_s"] == pytest.approx(10.0)
    assert metrics["rollout/zero_advantage_tokens_per_s"] == pytest.approx(4.0)
    assert metrics["step/seconds"] == pytest.approx(10.0)
    watch.tell(21.0, StepFinished(step=1, digest="d", trained_tokens=100, zero_advantage_tokens=40))
    assert watch.board.status.goodput == pytest.approx(10.0)
    metrics = watch.train(35.0, report(2, tokens=150), [group(1, [1.0, 0.0])])
    assert metrics["rollout/goodput_tokens_per_s"] == pytest.approx(10.0)
    assert metrics["step/seconds"] == pytest.approx(15.0)


@pytest.mark.parametrize(
    "first",
    [
        IssueGroup(group=7, task=0, base_version=3, size=2),
        StartMember(group=7, slot=0, attempt=1, task=0, epoch=1),
        Train(step=4, groups=(7,), boundary=Boundary()),
    ],
)
def test_goodput_of_a_resumed_process_starts_with_the_first_work_on_any_group(watch, first):
    """Groups that lived on are not issued again; all of them may even be complete."""
    watch.tell(5.0, ProcessStarted(1))
    watch.tell(10.0, Published(3), first)
    watch.tell(18.0, ProcessStarted(1), IssueGroup(group=8, task=1, base_version=3, size=2))
    metrics = watch.train(20.0, report(4, tokens=100), [group(7, [1.0, 0.0], version=2)])
    assert metrics["rollout/goodput_tokens_per_s"] == pytest.approx(10.0)
    assert metrics["step/seconds"] == pytest.approx(10.0)


def test_goodput_that_is_not_known_is_not_claimed_to_be_nothing(watch):
    metrics = watch.train(20.0, report(1, tokens=100), [group(0, [1.0, 0.0])])
    assert {name for name in metrics if "per_s" in name} == set()
    assert watch.monitor.goodput is None


def test_a_step_that_was_finished_in_recovery_has_its_own_numbers_and_no_rates(watch):
    watch.tell(0.0, ProcessStarted(0), IssueGroup(group=0, task=0, base_version=0, size=2))
    whole = watch.train(1.0, report(4, 4), [group(0, [1.0, 0.0], version=1)])
    watch.monitor.recovered(report(4, 4), [group(0, [1.0, 0.0], version=1)])
    first, second = watch.sink.records
    assert second.step == first.step == 4
    assert second.metrics.items() <= whole.items()
    assert {"reward/mean", "staleness/max", "rollout/turns"} <= set(second.metrics)
    around = ("per_s", "step/", "groups/filtered", "groups/expired", "invalid/", "engine/", "ledger/")
    assert [name for name in second.metrics if any(part in name for part in around)] == []
    assert watch.monitor.goodput == pytest.approx(4.0), "its tokens are no work of this process"


def test_a_member_that_its_group_leaves_without_a_verdict_is_in_the_invalid_rate(tmp_path):
    watch = Watch(tmp_path, scores_groups=True)
    watch.tell(0.0, ProcessStarted(0), IssueGroup(group=0, task=0, base_version=0, size=4))
    watch.tell(0.5, Published(0))
    for event in (ended(0, 1.0), ended(1, None, "box died"), ended(1, 0.0), ended(2, None, "box died"), ended(3, 0.0)):
        watch.tell(1.0, event)
    reasons = ("", "the judge is away", "box died", "")
    watch.tell(2.0, GroupScored(group=0, epoch=0, rewards=(1.0, None, None, 0.0), reasons=reasons))
    metrics = watch.train(3.0, report(1, 4), [group(0, [1.0, 0.0])])
    assert metrics["invalid/rate"] == pytest.approx(3 / 5), "two boxes died, one member was not graded, two were"


def test_a_rise_of_the_invalid_rate_with_training_is_an_alarm_and_is_warned_of_once(watch, caplog):
    watch.tell(0.0, ProcessStarted(0))
    for version, invalid in ((0, 1), (1, 1), (2, 10), (3, 10), (4, 0)):
        watch.tell(float(version), Published(version))
        for slot in range(20):
            watch.tell(float(version), ended(slot, 1.0) if slot >= invalid else ended(slot, None, "box died"))
    alarms = [watch.board.status.alarm]
    watch.tell(9.0, Published(5))
    alarms.append(watch.board.status.alarm)
    assert alarms == [
        "the invalid rate rose from 5.0% (20 episodes up to version 0) to 50.0% (20 up to version 3)",
        "",
    ]
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "5.0%" in caplog.text
    assert "50.0%" in caplog.text
    rates = {r.step: r.metrics["invalid/version_rate"] for r in watch.sink.records}
    assert rates == pytest.approx({0: 0.05, 1: 0.05, 2: 0.5, 3: 0.5, 4: 0.0})
    assert describe("invalid/version_rate") is not None


def test_the_invalid_rate_is_of_the_episodes_since_the_last_step_without_the_cancelled(watch):
    watch.tell(0.0, ProcessStarted(0), IssueGroup(group=0, task=0, base_version=0, size=2))
    for event in (ended(0, 1.0), ended(1, None, "box died"), ended(1, None, CANCELLED), ended(1, 0.0), ended(2, 0.0)):
        watch.tell(1.0, event)
    assert watch.board.status.invalid_rate == pytest.approx(0.25)
    assert watch.train(2.0, report(1, 4), [group(0, [1.0, 0.0])])["invalid/rate"] == pytest.approx(0.25)
    watch.tell(3.0, ended(0, 1.0))
    assert watch.train(4.0, report(2, 4), [group(1, [1.0, 0.0])])["invalid/rate"] == 0.0
    assert "invalid/rate" not in watch.train(5.0, report(3, 4), [group(2, [1.0, 0.0])]), "nothing ended since"


def test_groups_that_were_given_up_are_counted_from_step_to_step(watch):
    watch.scheduler.expired = 7
    watch.tell(0.0, ProcessStarted(1), IssueGroup(group=0, task=0, base_version=0, size=2))
    watch.scheduler.expired, watch.scheduler.filtered = 8, 3
    metrics = watch.train(1.0, report(1, 4), [group(0, [1.0, 0.0])])
    assert (metrics["groups/expired"], metrics["groups/filtered"]) == (1.0, 3.0)
    metrics = watch.train(2.0, report(2, 4), [group(1, [1.0, 0.0])])
    assert (metrics["groups/expired"], metrics["groups/filtered"]) == (0.0, 0.0)


def test_staleness_is_of_the_oldest_token_and_every_name_is_canonical(watch):
    watch.tell(0.0, ProcessStarted(0), IssueGroup(group=0, task=0, base_version=0, size=2))
    watch.tell(0.5, ended(0, 1.0))
    metrics = watch.train(1.0, report(4, 4), [group(0, [1.0, 0.0], version=1), group(1, [1.0, 0.0], version=3)])
    assert (metrics["staleness/max"], metrics["staleness/mean"]) == (2.0, 1.0)
    assert [name for name in metrics if describe(name) is None] == []


def test_a_checkpoint_that_could_not_be_written_is_said(watch, caplog):
    with caplog.at_level(logging.WARNING):
        watch.tell(0.0, CheckpointFailed(3, "The disk is full"))
    assert "The disk is full" in caplog.text


def test_costs_that_are_fitted_are_told_as_they_are_at_each_step(tmp_path):
    costs = ServiceCosts(**(dict.fromkeys(ServiceCosts.model_fields, 0.0) | {"decode_base": 0.25}))
    watch = Watch(tmp_path, costs=lambda: costs)
    first = watch.train(1.0, report(1, 8), [group(0, [1.0, 0.0])])
    costs = costs.model_copy(update={"decode_base": 0.5, "publish": 3.0})
    second = watch.train(2.0, report(2, 8), [group(1, [1.0, 0.0])])
    told = [{name: n for name, n in metrics.items() if name.startswith("costs/")} for metrics in (first, second)]
    assert told == [{"costs/decode_base": 0.25}, {"costs/decode_base": 0.5, "costs/publish": 3.0}]
    assert all(describe(name) is not None for name in told[1])
