"""Orders of ready turns, decided by hand in small cases; and what holds in all."""

from itertools import permutations
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from springtide.core.member import Member, Purpose
from springtide.scheduling.priority import Switch, priority
from springtide.scheduling.progress import Progress
from springtide.scheduling.readiness import ReadinessFold

RULES = ("oldest", "value", "longest", "switch")


def member(group, slot=0, purpose=Purpose.TRAIN):
    return Member(purpose, group, slot)


def rule(name, *, sync=False, staleness=1):
    return priority(name, aging=300.0, staleness=staleness, batch=4, sync=sync)


def order(made, members):
    return [(each.group, each.slot) for each in sorted(members, key=lambda each: (made.of(each), each))]


def play(progress):
    """Episodes have 100 tokens in turns of 20. Group 1 is half done, 2 has one short member left, 3 is a long one."""
    progress.issued(0, base=0, left=5, now=0.0)
    for slot in range(5):
        progress.started(member(0, slot), 0.0)
        for _ in range(5):
            progress.sampled(member(0, slot), 20)
        progress.ended(member(0, slot), 10.0, valid=True, done=True)
    for group, size, sampled in ((1, 2, (40, 60)), (2, 1, (80,)), (3, 2, (20, 180))):
        progress.issued(group, base=1, left=size, now=10.0)
        for slot, tokens in enumerate(sampled):
            progress.started(member(group, slot), 10.0)
            for _ in range(tokens // 20):
                progress.sampled(member(group, slot), 20)


WAITING = [member(1, 0), member(1, 1), member(2, 0), member(3, 0), member(3, 1)]
# Left of members: 60, 40 of group 1; 20 of group 2; 180, 20 of group 3, whose episodes have at least 200.


def test_by_default_the_oldest_group_goes_first_and_nothing_is_overdue():
    made = rule("oldest")
    assert order(made, reversed(WAITING)) == [(1, 0), (1, 1), (2, 0), (3, 0), (3, 1)]
    assert made.patience == inf


def test_the_last_member_of_a_group_goes_before_younger_ones_and_within_a_group_the_longest():
    made = rule("value")
    play(made.progress)
    assert [made.progress.group_left(group) for group in (1, 2, 3)] == [100.0, 20.0, 200.0]
    assert order(made, WAITING) == [(2, 0), (1, 0), (1, 1), (3, 0), (3, 1)]


def test_the_episode_with_most_before_it_goes_first():
    made = rule("longest")
    play(made.progress)
    assert order(made, WAITING) == [(3, 0), (1, 0), (1, 1), (2, 0), (3, 1)]


def test_evaluation_goes_first_by_every_rule():
    evaluation = member(99, purpose=Purpose.EVALUATE)
    for name in RULES:
        made = rule(name)
        if name != "oldest":
            play(made.progress)
            made.progress.published(2, 20.0)
        assert order(made, [*WAITING, evaluation])[0] == (99, 0)


@pytest.mark.parametrize("name", ["value", "longest", "switch"])
def test_groups_that_the_trainer_would_wait_for_go_first_the_oldest_version_before_others(name):
    made = rule(name, staleness=0)
    play(made.progress)
    made.progress.issued(7, base=2, left=1, now=11.0)
    assert order(made, [*WAITING, member(7)])[0] != (1, 0)
    made.progress.published(1, 12.0)
    # Version 1 is that of groups 1 to 3, which the next step waits for; nobody waits for group 7 yet.
    assert order(made, [*WAITING, member(7)])[-1] == (7, 0)
    made.progress.published(2, 13.0)
    made.progress.issued(8, base=1, left=1, now=14.0)
    assert order(made, [member(7), member(8)]) == [(8, 0), (7, 0)]


def test_a_switch_finishes_groups_while_the_trainer_would_wait_and_begins_long_ones_while_it_has_enough():
    made = rule("switch")
    assert isinstance(made, Switch)
    play(made.progress)
    fold = ReadinessFold(lambda: 0)
    assert not made.look(fold.snapshot(0.0), 0.0)
    by_value, by_length = [(2, 0), (1, 0), (1, 1), (3, 0), (3, 1)], [(3, 0), (1, 0), (1, 1), (2, 0), (3, 1)]
    for group, now in enumerate((10.0, 20.0, 30.0)):
        fold.group_complete(group, now)
        made.look(fold.snapshot(now), now)
        assert order(made, WAITING) == by_value, "one of four is missing, and the trainer is free"
    fold.group_complete(3, 40.0)
    assert made.look(fold.snapshot(40.0), 40.0)
    assert order(made, WAITING) == by_length
    made.training(40.0)
    fold.groups_taken((0, 1, 2, 3))
    made.trained(100.0)
    made.look(fold.snapshot(100.0), 100.0)
    # A step takes 60 s, groups come every 10 s: the next batch is complete 40 s after a step has begun.
    made.training(100.0)
    assert made.look(fold.snapshot(100.0), 100.0)
    assert order(made, WAITING) == by_length
    assert made.look(fold.snapshot(121.0), 121.0), "they have not come"
    assert order(made, WAITING) == by_value


def test_in_sync_a_switch_is_for_the_longest():
    made = rule("switch", sync=True)
    play(made.progress)
    assert order(made, WAITING)[0] == (3, 0)


EVENTS = st.lists(
    st.tuples(st.sampled_from(("issue", "start", "sample", "end", "publish")), st.integers(0, 4), st.integers(0, 2)),
    max_size=60,
)


def apply(progress, events):
    version = 0
    for now, (kind, group, slot) in enumerate(events):
        if kind == "issue":
            progress.issued(group, base=version, left=3, now=now)
        elif kind == "start":
            progress.started(member(group, slot), now)
        elif kind == "sample":
            progress.sampled(member(group, slot), 10 * slot + group + 1)
        elif kind == "end":
            progress.ended(member(group, slot), now, valid=bool(slot), done=True)
        else:
            version += 1
            progress.published(version, now)


@given(EVENTS, st.sampled_from(("value", "longest", "switch")))
def test_the_order_is_total_and_the_same_for_the_same_events(events, name):
    first, second = rule(name), rule(name)
    apply(first.progress, events)
    apply(second.progress, events)
    members = [member(group, slot) for group in range(5) for slot in range(3)]
    members += [member(group, purpose=Purpose.EVALUATE) for group in range(2)]
    found = order(first, members)
    assert found == order(second, reversed(members))
    assert len(set(found[2:])) == 15
    assert all(first.of(each).band == 0 for each in members if each.purpose is Purpose.EVALUATE)
    bands = [first.of(each).band for each in sorted(members, key=first.of)]
    assert bands == sorted(bands)


@given(EVENTS)
def test_nobody_has_less_than_nothing_before_him(events):
    progress = Progress(staleness=1)
    apply(progress, events)
    for group in range(5):
        assert progress.group_left(group) >= 0
        assert all(progress.member_left(member(group, slot)) >= 0 for slot in range(3))


def test_ready_turns_of_a_group_can_be_put_in_any_order_before_they_are_told_apart():
    made = rule("value")
    for members in permutations(WAITING[:3]):
        assert order(made, members) == [(1, 0), (1, 1), (2, 0)]
