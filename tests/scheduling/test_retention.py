"""Policies of retention against values computed by hand."""

from math import inf

import pytest

from springtide.core.errors import UsageError
from springtide.core.member import Member, Purpose
from springtide.scheduling.costs import ServiceCosts, given
from springtide.scheduling.priority import oldest
from springtide.scheduling.retention import (
    BreakEven,
    Cap,
    Decay,
    Load,
    MinWaste,
    Oracle,
    ResidencyCap,
    Session,
    Ttl,
    policy,
)

PLAIN = ServiceCosts(
    prefill_base=0.5,
    prefill_token=0.01,
    prefill_attention=1e-4,
    decode_base=1.0,
    decode_sequence=0.125,
    decode_context=0.001,
    reload_base=0.25,
    reload_token=0.001,
    reference_token=0.01,
    forward_token=0.01,
    backward_token=0.02,
    optimizer=1.0,
    swap=1.0,
    publish=1.0,
    role_switch=1.0,
)
COSTS = given(PLAIN)
FULL = Load(running=2, context=1000.0, host_free=0)
ROOMY = Load(running=2, context=1000.0, host_free=5000)


def session(kv=1000, *, group=0, since=0.0, common=0):
    member = Member(Purpose.TRAIN, group, 0)
    return Session(member, common, oldest(member), kv=kv, place="hot", state="paused", since=since)


def test_the_price_of_a_token_second_is_the_share_of_throughput_that_it_would_add():
    # A step of two sequences of 1000 takes 1 + 2 (0.125 + 1) = 3.25 s; a third of that size adds 1 / (2 * 3.25).
    assert BreakEven(COSTS).price(FULL) * 1000 == pytest.approx(1 / 6.5)


def test_a_session_is_guarded_until_holding_it_costs_as_much_as_getting_it_back():
    recompute = 0.5 + 0.01 * 1000 + 1e-4 * 1000 * 999 / 2
    assert BreakEven(COSTS).hold(session(), FULL, 100.0).until == pytest.approx(100 + recompute * 6.5)
    # With a host copy only so much counts as the rank stands still for it.
    assert BreakEven(COSTS, exposed=1.0).hold(session(), ROOMY, 100.0).until == pytest.approx(100 + 1.25 * 6.5)
    assert BreakEven(COSTS).hold(session(), ROOMY, 100.0).until == 100.0


def test_a_session_twice_as_long_costs_twice_as_much_to_hold():
    one, two = (BreakEven(COSTS, exposed=1.0).hold(session(kv), ROOMY, 0.0).until for kv in (1000, 2000))
    assert two / one == pytest.approx((0.25 + 2.0) / (0.25 + 1.0) / 2)


def test_host_memory_keeps_what_saves_most_per_token():
    rule = BreakEven(COSTS)
    assert rule.worth(session(1000), 0.0) == pytest.approx((60.45 - 1.25) / 1000)
    assert rule.worth(session(2000), 0.0) > rule.worth(session(1000), 0.0)


def test_a_pinned_session_is_guarded_for_its_time_and_a_capped_one_for_ever():
    assert Ttl(4.0).hold(session(), FULL, 10.0) == (14.0, 10.0)
    assert Cap(0.5).hold(session(), FULL, 10.0) == (inf, 10.0)
    assert Cap(0.5).cap == 0.5
    assert ResidencyCap(0.8).room(ROOMY) == 0.8
    assert BreakEven(COSTS).room(FULL) < BreakEven(COSTS).room(ROOMY) == 1.0


def test_paused_tokens_decay_by_half_and_the_shortest_go_first():
    rule = Decay(4.0)
    first, second = session(1000, since=0.0), session(600, since=4.0, group=1)
    assert rule.hold(first, FULL, 0.0).order == 1000
    assert rule.hold(second, FULL, 4.0).order == 600
    assert rule.demand(4.0) == pytest.approx(500 + 600)
    rule.left(first, 8.0)
    assert rule.demand(8.0) == pytest.approx(300)
    rule.left(second, 20.0)
    assert rule.demand(24.0) == pytest.approx(0.0)


def test_the_least_waste_depends_on_how_long_pauses_are_and_what_coming_back_costs():
    rule = MinWaste(COSTS, weight=1.0)
    # Discarding 1000 tokens wastes 60.45 s of theirs and of the 2000 that run: 181 s of the pause. Swapping: 1.25 s.
    for pause, load, until in [(181.0, FULL, inf), (182.0, FULL, 0.0), (1.2, ROOMY, inf), (1.3, ROOMY, 0.0)]:
        rule.returned(session(), pause)
        assert rule.hold(session(), load, 0.0).until == until


def test_the_oracle_guards_what_returns_in_time_and_lets_go_of_what_returns_last():
    pauses = {0: 300.0, 1: 500.0, 2: inf}
    rule = Oracle(COSTS, lambda member, turn: pauses[member.group])
    holds = [rule.hold(session(group=group), FULL, 10.0) for group in pauses]
    assert [hold.until for hold in holds] == [inf, 10.0, 10.0]
    assert holds[2].order < holds[1].order < holds[0].order


@pytest.mark.parametrize(
    "text", ["fifo", "cap-0", "cap-1.1", "ttl", "ttl--1", "lru-2", "decay-nan", "break-even-1", ""]
)
def test_a_policy_that_does_not_exist_is_refused_with_those_that_do(text):
    with pytest.raises(UsageError, match=r"retention: '.*' is none of lru, .*break-even"):
        policy(text, COSTS, lambda member, turn: inf)


def test_every_policy_can_be_named():
    for text in ("lru-ordered", "cap-0.5", "ttl-4", "decay-4", "min-waste", "residency-0.8", "oracle", "break-even"):
        assert policy(text, COSTS, lambda member, turn: inf) is not None
    assert policy("lru", COSTS, lambda member, turn: inf) is None
