"""When a share of invalid episodes counts as risen, and what is counted."""

import pytest

from springtide.runtime.invalid_rate import InvalidRates
from springtide.scheduling.commands import CancelGroup
from springtide.scheduling.events import CANCELLED, GroupScored, MemberFinished, ProcessStarted, Published


def play(rates, version, *, ended, invalid):
    rates.on(Published(version), [])
    for number in range(ended):
        rates.on(finished(number, None if number < invalid else 1.0), [])


def finished(slot, reward, *, group=0, reason="x"):
    return MemberFinished(group=group, slot=slot, attempt=1, epoch=0, reward=reward, reason=reason)


@pytest.mark.parametrize(
    ("versions", "risen"),
    [
        ([(20, 0), (20, 8)], True),  # z = 0.4 / sqrt(0.2 * 0.8 * 0.1) = 3.16
        ([(20, 0), (20, 7)], False),  # z = 0.35 / sqrt(0.175 * 0.825 * 0.1) = 2.91
        ([(20, 8), (20, 0)], False),
        ([(20, 20), (20, 20)], False),
        ([(20, 0), (20, 0)], False),
        ([(19, 0), (20, 20)], False),  # 19 are too few, and with the next 20 nothing is left to compare
        ([(20, 0), (19, 19)], False),
        ([(16, 0), (16, 0), (16, 16), (16, 16)], True),  # versions of few episodes are taken together
        ([(20, 0), (20, 20), (20, 0)], False),
    ],
)
def test_a_rise_is_of_the_newest_versions_over_the_first_by_more_than_chance(versions, risen):
    rates = InvalidRates(scores_groups=False)
    for version, (ended, invalid) in enumerate(versions):
        play(rates, version, ended=ended, invalid=invalid)
    assert (rates.rise() is not None) is risen


def test_an_episode_counts_for_the_version_that_served_when_it_ended_over_processes():
    rates = InvalidRates(scores_groups=False)
    play(rates, 0, ended=4, invalid=1)
    play(rates, 1, ended=2, invalid=0)
    rates.on(ProcessStarted(1), [])
    play(rates, 1, ended=2, invalid=2)
    assert (rates.rate(0), rates.rate(1), rates.rate(2)) == (0.25, 0.5, None)
    assert (rates.total.ended, rates.total.invalid) == (8, 3)


def test_the_cancelled_count_nowhere():
    rates = InvalidRates(scores_groups=False)
    rates.on(finished(0, None, reason=CANCELLED), [])
    assert rates.total.ended == 0


def test_where_groups_are_graded_each_member_counts_once_with_its_last_word():
    rates = InvalidRates(scores_groups=True)
    rates.on(Published(0), [])
    for slot, reward in ((0, 1.0), (1, None), (2, 1.0)):
        rates.on(finished(slot, reward), [])
    rates.on(finished(0, 1.0, group=1), [])
    rates.on(finished(1, None, group=1), [CancelGroup(1)])
    assert (rates.total.ended, rates.total.invalid) == (2, 2)
    rates.on(GroupScored(group=0, epoch=0, rewards=(1.0, None, None), reasons=("", "x", "y")), [])
    rates.on(GroupScored(group=1, epoch=0, rewards=(None, None), reasons=("x", "x")), [])
    assert (rates.total.ended, rates.total.invalid) == (4, 3), "group 1 had been given up"
