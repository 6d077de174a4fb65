from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from springtide.core.member import Member, Purpose
from springtide.scheduling.placement import GroupAffinity


def member(group, slot):
    return Member(Purpose.TRAIN, group, slot)


def test_a_group_stays_together_and_groups_spread():
    placement = GroupAffinity(4)
    homes = {group: {placement.place(member(group, slot)) for slot in range(8)} for group in range(4)}
    assert all(len(ranks) == 1 for ranks in homes.values())
    assert len(set.union(*homes.values())) == 4


def test_a_rank_that_is_too_busy_gets_no_more_of_its_group():
    placement = GroupAffinity(2)
    ranks = Counter(placement.place(member(0, slot)) for slot in range(40))
    assert abs(ranks[0] - ranks[1]) <= 2 * (0.25 * 20 + 8)


@given(
    ranks=st.integers(1, 9),
    moves=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3), st.booleans()), max_size=200),
)
def test_loads_are_the_episodes_that_live_there_and_stay_balanced(ranks, moves):
    placement, homes = GroupAffinity(ranks), {}
    for group, slot, leaves in moves:
        who = member(group, slot)
        if leaves and who in homes:
            placement.forget(who)
            del homes[who]
        elif not leaves and who not in homes:
            mean = len(homes) / ranks
            homes[who] = rank = placement.place(who)
            assert placement.loads[rank] <= 1.25 * mean + 8 + 1
        assert placement.loads == [sum(home == rank for home in homes.values()) for rank in range(ranks)]


def test_a_rank_that_rolls_out_no_longer_gets_nobody_until_it_is_back():
    placement = GroupAffinity(3, together=0)
    first = [placement.place(member(group, 0)) for group in range(3)]
    placement.restrict([0])
    assert [placement.place(member(group, 0)) for group in range(3, 7)] == [0, 0, 0, 0]
    for group in range(3):
        placement.forget(member(group, 0))
    placement.restrict(range(3))
    assert sorted(first) == [0, 1, 2]
    assert {placement.place(member(group, 0)) for group in range(10, 12)} == {1, 2}


def test_a_group_leaves_the_rank_that_rolls_out_no_longer():
    placement = GroupAffinity(2, together=9)
    placement.place(member(0, 0))
    assert placement.place(member(1, 0)) == 1
    assert placement.place(member(1, 1)) == 1, "with its group"
    placement.restrict([0])
    assert placement.place(member(1, 2)) == 0
