"""Who does what as ranks are moved, die and come back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from springtide.scheduling.events import RankDied, RankJoined, RolesSet
from springtide.scheduling.membership import Membership


def test_the_last_of_a_role_leave_first_and_the_first_of_the_other_come_first():
    members = Membership.of(5, 3)
    assert (members.rollout, members.training) == ((0, 1, 2), (3, 4))
    fewer = members.split(1)
    assert (fewer.rollout, fewer.training, fewer.epoch) == ((0,), (1, 2, 3, 4), 1)
    more = fewer.split(3)
    assert (more.rollout, more.training) == ((0, 1, 2), (3, 4))
    assert members.split(9).training == (4,), "one is left to train"
    assert members.split(3) == members


def test_a_rank_that_dies_is_missing_where_it_was_and_comes_back_there():
    members = Membership.of(5, 3).died(1)
    assert (members.rollout, members.training, members.alive) == ((0, 2), (3, 4), 4)
    back = members.joined(1)
    assert (back.rollout, back.training) == ((0, 1, 2), (3, 4))
    trainer = Membership.of(5, 3).died(4).joined(4)
    assert (trainer.rollout, trainer.training) == ((0, 1, 2), (3, 4))


@pytest.mark.parametrize(
    ("ranks", "rollout", "dead", "expected"),
    [(4, 1, 0, ((1,), (2, 3))), (4, 3, 3, ((0, 1), (2,))), (2, 1, 0, ((), (1,))), (2, 1, 1, ((0,), ()))],
)
def test_a_role_that_loses_its_last_rank_gets_one_if_there_is_one_to_spare(ranks, rollout, dead, expected):
    members = Membership.of(ranks, rollout).died(dead)
    assert (members.rollout, members.training) == expected
    assert members.complete is (ranks > 2)


def test_ranks_that_take_turns_do_both_until_none_is_left():
    members = Membership.of(2, 2).died(0)
    assert (members.rollout, members.training, members.complete) == ((1,), (1,), True)
    assert members.joined(0).rollout == (0, 1)
    assert members.split(1) == members
    assert not members.died(1).complete


def test_what_is_said_of_an_earlier_life_changes_nothing():
    members = Membership.of(3, 2)
    dead = RankDied(0, 0).of(members)
    assert not dead.hears(0, 0)
    assert RankDied(0, 0).of(dead) == dead
    back = RankJoined(0).of(dead)
    assert RankJoined(0).of(back) == back
    assert not back.hears(0, 0)
    assert back.hears(0, back.since[0])
    assert RankDied(0, 0).of(back) == back, "it says so too late"
    assert RankDied(0, back.since[0]).of(back) != back
    assert back.hears(1, 0), "others go on as they were"


@given(
    ranks=st.integers(2, 7),
    rollout=st.integers(1, 7),
    changes=st.lists(st.tuples(st.sampled_from(["split", "turns", "died", "joined"]), st.integers(0, 6)), max_size=40),
)
def test_every_living_rank_has_one_role_and_no_role_is_left_alone(ranks, rollout, changes):
    members = Membership.of(ranks, min(rollout, ranks))
    for kind, number in changes:
        rank = number % ranks
        before = members
        events = {"split": RolesSet(number), "turns": RolesSet(number, together=True), "joined": RankJoined(rank)}
        event = events.get(kind) or RankDied(rank, members.since[rank])
        members = event.of(members)
        living = [rank for rank in range(ranks) if members.lives(rank)]
        if members.together:
            assert list(members.rollout) == list(members.training) == living
        else:
            assert sorted(members.rollout + members.training) == living
            assert members.complete or len(living) < 2
        assert list(members.rollout) == sorted(members.rollout)
        assert (members.epoch == before.epoch) == (members == before)
        assert members.epoch <= before.epoch + 1
