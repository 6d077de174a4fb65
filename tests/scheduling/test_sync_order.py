"""In sync nothing may depend on who was faster: the same results in any order of arrival give the same decisions."""

import itertools

import hypothesis.strategies as st
from hypothesis import given, settings

from springtide.scheduling.commands import IssueGroup, StartMember, Train
from springtide.scheduling.config import SchedulingConfig
from springtide.scheduling.events import Boundary, MemberFinished, ProcessStarted, Published, RunStarted
from springtide.scheduling.milestones import Milestones
from springtide.scheduling.scheduler import Scheduler


def fate(start, chance):
    """What becomes of an episode is a function of who it is."""
    return chance[hash((start.group, start.slot, start.attempt)) % len(chance)]


def play(config, chance, order):
    """Rounds as lockstep makes them: all that run finish before the next batch forms, in the order that `order` says.

    Returns what each round consisted of, and what was trained on and how every slot ended; None for a hopeless run.
    """
    made = Scheduler(config, Milestones(last=config.steps))
    made.on(RunStarted(Boundary()))
    made.on(ProcessStarted(0))
    commands = made.on(Published(0))
    rounds, issued, ends = [], [], []
    for _ in range(200):
        issued += [command for command in commands if isinstance(command, IssueGroup)]
        if made.aborted:
            return None
        trains = [command for command in commands if isinstance(command, Train)]
        if trains:
            return rounds, issued, trains, sorted(ends)
        starts = [command for command in commands if isinstance(command, StartMember)]
        rounds.append(sorted((start.group, start.slot, start.attempt, start.task) for start in starts))
        commands = []
        for start in sorted(starts, key=lambda start: order[(7 * start.group + start.slot) % len(order)]):
            reward = fate(start, chance)
            commands += made.on(
                MemberFinished(
                    group=start.group, slot=start.slot, attempt=start.attempt, epoch=0, reward=reward, reason="x"
                )
            )
            ends += [(end.group, end.slot, end.end, end.reason) for end in made.ends()]
    raise AssertionError("the step never filled")


@given(
    chance=st.lists(st.sampled_from([0.0, 0.0, 1.0, None]), min_size=1, max_size=7),
    order=st.permutations(range(6)),
    concurrent=st.sampled_from([2, 3, 100]),
    quota=st.integers(0, 4),
)
@settings(max_examples=300)
def test_the_order_of_arrival_changes_nothing(chance, order, concurrent, quota):
    config = SchedulingConfig(
        groups_per_step=3,
        group_size=2,
        steps=1,
        max_concurrent=concurrent,
        max_attempts=2,
        min_valid=1,
        max_reissues=1,
        filter_zero_variance=True,
        max_filtered_per_step=quota,
    )
    assert play(config, chance, order) == play(config, chance, sorted(order))


def test_the_last_place_among_the_filtered_goes_to_the_earlier_group():
    config = SchedulingConfig(
        groups_per_step=2, group_size=2, steps=1, filter_zero_variance=True, max_filtered_per_step=1
    )
    for order in itertools.permutations([(0, 0), (0, 1), (1, 0), (1, 1)]):
        made = Scheduler(config, Milestones(last=1))
        made.on(RunStarted(Boundary()))
        made.on(ProcessStarted(0))
        made.on(Published(0))
        for group, slot in order:
            made.on(MemberFinished(group=group, slot=slot, attempt=1, epoch=0, reward=1.0))
        assert sorted(made.groups) == [1, 2], order
