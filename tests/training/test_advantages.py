import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from springtide.training.advantages import STD_FLOOR, group_advantages

rewards = st.floats(-10, 10, allow_nan=False)


def test_by_hand_with_and_without_std():
    assert group_advantages([1.0, 0.0, 0.0, 1.0], normalize_std=False) == [0.5, -0.5, -0.5, 0.5]
    std = math.sqrt(1 / 3)  # four deviations of 0.5, divided by n - 1
    expected = 0.5 / (std + STD_FLOOR)
    assert group_advantages([1.0, 0.0, 0.0, 1.0], normalize_std=True) == pytest.approx(
        [expected, -expected, -expected, expected]
    )


def test_invalid_members_are_no_part_of_the_baseline():
    assert group_advantages([3.0, None, 1.0], normalize_std=False) == [1.0, 0.0, -1.0]


@pytest.mark.parametrize("group", [[], [1.0], [None, None], [1.0, None, None], [0.7, 0.7, None, 0.7]])
def test_no_signal_is_zero_everywhere(group):
    assert group_advantages(group, normalize_std=True) == [0.0] * len(group)


@given(st.lists(rewards, min_size=2, max_size=9), st.lists(st.integers(0, 9), max_size=5), st.booleans(), st.data())
def test_invalid_members_change_no_valid_advantage(valid, places, normalize, data):
    alone = group_advantages(valid, normalize_std=normalize)
    mixed: list[float | None] = list(valid)
    for place in places:
        mixed.insert(min(place, len(mixed)), None)
    among = group_advantages(mixed, normalize_std=normalize)
    assert [a for a, reward in zip(among, mixed, strict=True) if reward is not None] == alone
    assert all(a == 0.0 for a, reward in zip(among, mixed, strict=True) if reward is None)


@given(st.lists(rewards, min_size=2, max_size=9), st.randoms())
def test_order_of_members_does_not_matter(valid, random):
    order = list(range(len(valid)))
    random.shuffle(order)
    shuffled = group_advantages([valid[i] for i in order], normalize_std=True)
    straight = group_advantages(valid, normalize_std=True)
    assert shuffled == [straight[i] for i in order]


@given(st.lists(rewards, min_size=2, max_size=9))
def test_advantages_are_centred(valid):
    assert sum(group_advantages(valid, normalize_std=False)) == pytest.approx(0.0, abs=1e-9)
