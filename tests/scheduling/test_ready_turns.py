"""Who enters the engine before whom, where it matters whose KV is where and who has waited how long."""

from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from springtide.core.member import Member, Purpose
from springtide.scheduling.priority import EVALUATION, REST, URGENT, Precedence
from springtide.scheduling.residency import Plan, Residency
from springtide.scheduling.retention import Recency, Ttl

AGING = 10.0
LONGEST = 3
"""Visits that a turn runs at most; a visit is a second."""


def member(group, slot=0, purpose=Purpose.TRAIN):
    return Member(purpose, group, slot)


def rank(policy=None, *, capacity=1000, max_batch=8, patience=AGING, host=0):
    return Residency(
        policy or Recency(),
        capacity=capacity,
        host=host,
        max_batch=max_batch,
        decode_steps=1,
        shares_prompts=False,
        patience=patience,
    )


def rest(first, then=0.0):
    return Precedence(REST, 0, first, then)


def on_device(residency, group, tokens, *, now=0.0):
    """Its first turn has ended."""
    residency.ready(member(group), 0, tokens - 10, now, rest(group))
    assert member(group) in residency.plan(now, 0).submit
    residency.paused(member(group), tokens, now)


def test_evaluation_then_what_is_urgent_by_version_then_the_rest_wherever_their_kv_is():
    residency = rank()
    for group in (5, 6):
        on_device(residency, group, 100)
    residency.ready(member(5), 1, 110, 1.0, rest(-7.0))
    residency.ready(member(0), 0, 50, 1.0, rest(-9.0))
    residency.ready(member(1), 0, 50, 1.0, Precedence(URGENT, 4, 1.0, 0.0))
    residency.ready(member(2), 0, 50, 1.0, Precedence(URGENT, 3, 9.0, 0.0))
    residency.ready(member(6), 1, 110, 1.0, Precedence(URGENT, 4, 2.0, 0.0))
    residency.ready(member(9, purpose=Purpose.EVALUATE), 0, 50, 1.0, Precedence(EVALUATION, 0, 9.0, 0.0))
    entered = [(each.purpose.value, each.group) for each in residency.plan(1.0, 200).submit]
    # 0 has the better index and no KV: it comes after 5, as 1 does after 6.
    assert entered == [("evaluate", 9), *(("train", group) for group in (2, 6, 1, 5, 0))]


def test_at_an_equal_index_the_device_goes_before_host_memory_and_both_before_what_must_be_computed():
    residency = rank(capacity=1000, max_batch=3, host=1000)
    for group in (1, 2):
        on_device(residency, group, 400)
    residency.ready(member(3), 0, 390, 1.0, rest(0.0))
    assert residency.plan(1.0, 800).demote == [(member(1), "warm")]
    residency.paused(member(3), 400, 1.0)
    residency.ready(member(0), 0, 50, 2.0, rest(0.0))
    for group in (1, 2):
        residency.ready(member(group), 1, 410, 2.0, rest(0.0))
    assert residency.plan(2.0, 800).submit == [member(2), member(1), member(0)]


def test_a_turn_that_is_put_elsewhere_in_line_goes_there_and_one_that_runs_stays():
    residency = rank(max_batch=1)
    for group in (0, 1, 2):
        residency.ready(member(group), 0, 100, 0.0, rest(group))
    residency.reordered(member(2), rest(-1.0))
    assert residency.plan(0.0, 0).submit == [member(2)]
    residency.reordered(member(2), rest(5.0))
    residency.reordered(member(7), rest(5.0))
    residency.paused(member(2), 110, 1.0)
    residency.reordered(member(0), rest(3.0))
    assert residency.plan(1.0, 110).submit == [member(1)]


@pytest.mark.parametrize(("patience", "entered"), [(AGING, 10), (inf, None)])
def test_a_turn_without_kv_waits_while_others_go_on_and_for_no_longer_than_the_limit(patience, entered):
    """Two sessions fill the device and always come back before anybody looks."""
    residency = rank(patience=patience)
    for group in (1, 2):
        on_device(residency, group, 450)
    residency.ready(member(0), 0, 300, 0.0, rest(-1.0))
    back = [member(1), member(2)]
    for second in range(1, 40):
        for each in back:
            residency.paused(each, 450, float(second))
            residency.ready(each, second, 450, float(second), rest(each.group))
        back = residency.plan(float(second), 900).submit
        if member(0) in back:
            break
    assert (second if member(0) in back else None) == entered


def test_for_one_that_is_overdue_a_ready_session_gives_up_its_room_and_a_guarded_one_too():
    residency = rank(Ttl(1000.0), host=0)
    for group in (1, 2, 3):
        on_device(residency, group, 300)
    residency.ready(member(0), 0, 850, 0.0, rest(0.0))
    residency.ready(member(2), 1, 320, 9.0, rest(2.0))
    assert residency.plan(9.0, 900) == Plan(submit=[member(2)])
    residency.paused(member(2), 330, 9.5)
    for group in (1, 2):
        residency.ready(member(group), 2, 340, 9.5, rest(group))
    plan = residency.plan(10.0, 930)
    assert plan.submit == [member(0)]
    assert plan.demote == [(member(3), "cold"), (member(2), "cold"), (member(1), "cold")]
    assert residency.place(member(1)) == residency.place(member(2)) == "cold"


class Adversary:
    """Sessions whose environments answer when `data` says so, in the order that it says."""

    def __init__(self, data, residency, sizes):
        self.data, self.residency, self.sizes = data, residency, sizes
        self.running = {}
        self.waiting = {}
        self.paused = list(range(len(sizes)))
        self.turns = dict.fromkeys(self.paused, 0)

    def visit(self, now):
        for group, left in list(self.running.items()):
            if left > 1:
                self.running[group] = left - 1
                continue
            del self.running[group]
            self.residency.paused(member(group), self.sizes[group], now)
            self.paused.append(group)
        back = self.data.draw(st.sets(st.sampled_from(self.paused))) if self.paused else ()
        for group in sorted(back):
            self.paused.remove(group)
            precedence = rest(self.data.draw(st.integers(0, 3)))
            self.residency.ready(member(group), self.turns[group], self.sizes[group], now, precedence)
            self.turns[group] += 1
            self.waiting[group] = now
        hot = sum(session.kv for session in self.residency._sessions.values() if session.place == "hot")
        for each in self.residency.plan(now, hot).submit:
            del self.waiting[each.group]
            self.running[each.group] = self.data.draw(st.integers(1, LONGEST))


@settings(deadline=None)
@given(st.data(), st.lists(st.integers(50, 900), min_size=2, max_size=6), st.integers(1, 4))
def test_every_turn_runs_within_the_limit_and_the_turns_of_those_before_it(data, sizes, max_batch):
    policy = data.draw(st.sampled_from([Recency(), Ttl(4.0)]))
    residency = rank(policy, max_batch=max_batch, patience=AGING)
    adversary = Adversary(data, residency, sizes)
    for second in range(60):
        now = float(second)
        adversary.visit(now)
        longest = now - min(adversary.waiting.values(), default=now)
        assert longest <= AGING + LONGEST * len(sizes), "an overdue turn waits for those that run or waited longer"
