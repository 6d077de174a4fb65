import pytest
from hypothesis import given
from hypothesis import strategies as st

from springtide.core.member import Member, Purpose
from springtide.scheduling.readiness import Mean, ReadinessFold

A, B = (Member(Purpose.TRAIN, 0, slot) for slot in (0, 1))


def test_a_mean_is_plain_at_first_and_then_forgets():
    mean = Mean(weight=0.25)
    for value in (4.0, 8.0, 3.0, 9.0):
        mean.add(value)
    assert mean.value == pytest.approx(6.0)
    mean.add(10.0)
    assert mean.value == pytest.approx(0.75 * 6.0 + 0.25 * 10.0)


def test_turns_tell_of_the_environment_and_of_their_contexts():
    fold = ReadinessFold(prefilled=lambda: 260)
    fold.opened()
    fold.turn_ready(A, 0.0)
    fold.turn_ended(A, 2.0, context=100, output=10)
    fold.turn_ready(A, 5.0)
    fold.turn_ended(A, 6.0, context=140, output=20)
    seen = fold.snapshot(6.0)
    assert seen.environment == 3.0, "the first turn was preceded by none"
    assert seen.context == (110 + 160) / 2
    assert seen.output == 15
    assert seen.appended == 130, "what engines say, over all turns"
    assert (seen.open, seen.ended) == (1, 0)


def test_an_episode_that_is_over_leaves_nothing():
    fold = ReadinessFold(prefilled=lambda: 0)
    fold.opened()
    fold.turn_ended(A, 2.0, context=100, output=10)
    fold.closed(A)
    fold.turn_ready(A, 9.0)
    seen = fold.snapshot(9.0)
    assert seen.environment is None
    assert (seen.open, seen.ended) == (0, 1)


def test_complete_groups_wait_until_a_step_takes_them():
    fold = ReadinessFold(prefilled=lambda: 0)
    for group, now in ((7, 1.0), (5, 3.0), (6, 9.0)):
        fold.group_complete(group, now)
    seen = fold.snapshot(10.0)
    assert (seen.backlog, seen.oldest, seen.interval) == (3, 9.0, 4.0)
    fold.groups_taken((5, 7))
    assert fold.snapshot(10.0).backlog == 1
    assert fold.snapshot(10.0).oldest == 1.0
    fold.groups_taken((6,))
    assert (fold.snapshot(10.0).backlog, fold.snapshot(10.0).oldest) == (0, 0.0)


def test_nothing_is_known_before_anything_happened():
    seen = ReadinessFold(prefilled=lambda: 0).snapshot(0.0)
    assert (seen.environment, seen.context, seen.output, seen.appended, seen.interval) == (None,) * 5


@given(st.lists(st.floats(0, 1e3), min_size=1, max_size=600))
def test_a_mean_stays_within_what_it_has_seen(values):
    mean = Mean(weight=1 / 16)
    for value in values:
        mean.add(value)
    assert min(values) - 1e-6 <= mean.value <= max(values) + 1e-6
