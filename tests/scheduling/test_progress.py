"""What groups have before them, computed by hand."""

import pytest

from springtide.core.member import Member, Purpose
from springtide.scheduling.progress import Progress


def member(group, slot=0, attempt=1):
    return Member(Purpose.TRAIN, group, slot, attempt)


def begun(progress, group, *, base=0, size=2, started=None):
    progress.issued(group, base=base, left=size, now=0.0)
    for slot in range(size if started is None else started):
        progress.started(member(group, slot), 0.0)


def ended(progress, group, slot, *, turns, now):
    for tokens in turns:
        progress.sampled(member(group, slot), tokens)
    progress.ended(member(group, slot), now, valid=True, done=True)


def test_before_anything_is_known_nobody_has_anything_before_him():
    progress = Progress(staleness=1)
    begun(progress, 0)
    assert progress.member_left(member(0)) == progress.group_left(0) == progress.group_left(7) == 0.0


def test_a_group_is_as_long_as_its_ended_members_with_all_others_as_a_prior():
    progress = Progress(staleness=1)
    begun(progress, 0, size=1)
    ended(progress, 0, 0, turns=[40, 60], now=10.0)
    begun(progress, 1, size=3)
    assert progress.member_left(member(1)) == 100.0
    assert progress.group_left(1) == 300.0
    ended(progress, 1, 0, turns=[220], now=20.0)
    # The mean of all is (100 + 220) / 2 = 160 and counts twice, its own once: (2 * 160 + 220) / 3.
    assert progress.member_left(member(1, 1)) == pytest.approx(180.0)
    progress.sampled(member(1, 1), 30)
    assert progress.member_left(member(1, 1)) == pytest.approx(150.0)
    assert progress.group_left(1) == pytest.approx(2 * 180 - 30)


def test_the_furthest_member_says_how_long_its_group_is_before_any_of_it_has_ended():
    progress = Progress(staleness=1)
    begun(progress, 0, size=1)
    ended(progress, 0, 0, turns=[50, 50], now=10.0)
    begun(progress, 1, size=4, started=2)
    for tokens in (100, 150):
        progress.sampled(member(1, 0), tokens)
    # At least the 250 that it has and one more turn, of (50 + 50 + 100 + 150) / 4 tokens; two have not begun.
    assert progress.member_left(member(1, 0)) == pytest.approx(87.5)
    assert progress.member_left(member(1, 1)) == pytest.approx(337.5)
    assert progress.group_left(1) == pytest.approx(4 * 337.5 - 250)


def test_an_invalid_attempt_begins_again_and_says_nothing_about_lengths():
    progress = Progress(staleness=1)
    begun(progress, 0, size=1)
    ended(progress, 0, 0, turns=[100], now=10.0)
    begun(progress, 1, size=2)
    progress.sampled(member(1), 20)
    progress.ended(member(1), 11.0, valid=False, done=False)
    assert progress.group_left(1) == 200.0
    progress.started(member(1, attempt=2), 12.0)
    progress.sampled(member(1, attempt=2), 30)
    assert progress.member_left(member(1, attempt=2)) == 70.0
    progress.ended(member(1, attempt=2), 13.0, valid=False, done=True)
    assert progress.group_left(1) == 100.0
    progress.given_up(1)
    assert progress.group_left(1) == 0.0


def test_a_group_is_urgent_when_the_trainer_would_have_to_wait_for_it():
    progress = Progress(staleness=1)
    begun(progress, 0, size=1)
    progress.published(0, 0.0)
    ended(progress, 0, 0, turns=[100], now=50.0)
    begun(progress, 1, base=0)
    assert progress.urgent(1) is None, "nothing is known of how often versions come"
    progress.published(1, 60.0)
    assert progress.urgent(1) == 0, "the next step waits for everything of version 0"
    progress.issued(2, base=1, left=2, now=60.0)
    # Versions come every 60 s, an episode of 100 tokens takes 50 s: it can be done at 110, the version is there at 120.
    assert progress.urgent(2) is None
    progress.issued(3, base=1, left=2, now=80.0)
    assert progress.urgent(3) == 1


@pytest.mark.parametrize(("turns", "urgent"), [(4, None), (2, 1)])
def test_whoever_has_come_far_is_urgent_later(turns, urgent):
    progress = Progress(staleness=1)
    progress.published(0, 0.0)
    begun(progress, 0, size=1)
    ended(progress, 0, 0, turns=[100], now=50.0)
    progress.published(1, 60.0)
    progress.issued(1, base=1, left=2, now=60.0)
    for slot in range(2):
        progress.started(member(1, slot), 60.0)
    for _ in range(turns):
        progress.sampled(member(1, 1), 20)
    progress.ended(member(1), 101.0, valid=False, done=True)
    # 19 s before the version at 120. With 80 tokens the other needs one more turn, of (100 + 4 * 20) / 5 = 36 tokens,
    # which take 18 s; with 40 it needs 60 tokens, which take 30 s.
    assert progress.urgent(1) == urgent
