"""Who is moved and who goes on, decided by hand in small cases."""

from springtide.core.member import Member, Purpose
from springtide.scheduling.lazy_heap import SLACK, LazyHeap
from springtide.scheduling.residency import Plan, Residency
from springtide.scheduling.retention import Cap, Recency, ResidencyCap, Ttl


def member(group, slot=0):
    return Member(Purpose.TRAIN, group, slot)


def rank(policy, *, capacity=1000, host=0, max_batch=8):
    return Residency(policy, capacity=capacity, host=host, max_batch=max_batch, decode_steps=1)


def first_turn(residency, group, tokens, *, now=0.0, hot=0):
    """Its turn enters, and pauses with `tokens` tokens."""
    residency.ready(member(group), 0, tokens - 10, now)
    assert member(group) in residency.plan(now, hot).submit
    residency.paused(member(group), tokens, now)


def test_what_fits_enters_in_order_of_group_and_nobody_moves():
    residency = rank(Recency())
    for group in (2, 0, 1):
        residency.ready(member(group), 0, 100, 0.0)
    assert residency.plan(0.0, 0) == Plan(submit=[member(0), member(1), member(2)])


def test_a_group_s_prompt_needs_room_once():
    residency = rank(Recency(), capacity=250)
    for slot in range(4):
        residency.ready(member(0, slot), 0, 200, 0.0)
    assert len(residency.plan(0.0, 0).submit) == 4


def test_where_every_member_has_the_prompt_in_its_own_tokens_each_needs_the_room():
    residency = Residency(Recency(), capacity=450, host=0, max_batch=8, decode_steps=1, shares_prompts=False)
    for slot in range(4):
        residency.ready(member(0, slot), 0, 200, 0.0)
    assert len(residency.plan(0.0, 0).submit) == 2


def test_an_engine_that_rounds_up_is_given_no_more_than_its_blocks_hold():
    residency = Residency(
        Recency(),
        capacity=1024,
        host=0,
        max_batch=8,
        decode_steps=1,
        reserved=lambda tokens: -(-tokens // 512) * 512,
        shares_prompts=False,
    )
    for group in range(3):
        residency.ready(member(group), 0, 300, 0.0)
    assert residency.plan(0.0, 0).submit == [member(0), member(1)], "tokens alone would let three in"
    for group in range(2):
        residency.paused(member(group), 310, 1.0)
    assert residency.plan(2.0, 1024) == Plan(demote=[(member(0), "cold")], submit=[member(2)])


def test_room_is_made_when_it_is_needed_and_only_as_much():
    residency = rank(Recency())
    for group, now in ((0, 1.0), (1, 2.0), (2, 3.0)):
        first_turn(residency, group, 300, now=now)
    residency.ready(member(3), 0, 350, 4.0)
    assert residency.plan(4.0, 900) == Plan(demote=[(member(0), "cold")], submit=[member(3)])


def test_a_guarded_session_keeps_its_room_from_turns_without_kv_until_its_time_is_over():
    residency = rank(Ttl(4.0))
    first_turn(residency, 0, 300, now=0.0)
    residency.ready(member(1), 0, 300, 0.0)
    residency.plan(0.0, 300)
    residency.ready(member(2), 0, 600, 1.0)
    assert residency.plan(1.0, 600) == Plan()
    assert residency.plan(4.0, 600) == Plan(demote=[(member(0), "cold")], submit=[member(2)])


def test_somebody_always_runs():
    residency = rank(ResidencyCap(0.5))
    first_turn(residency, 0, 900)
    residency.ready(member(1), 0, 900, 1.0)
    assert residency.plan(1.0, 900) == Plan(demote=[(member(0), "cold")], submit=[member(1)])


def test_a_turn_whose_kv_is_at_hand_goes_before_an_older_one_that_must_be_computed():
    residency = rank(Recency(), max_batch=1)
    first_turn(residency, 5, 100)
    residency.ready(member(5), 1, 120, 1.0)
    residency.ready(member(1), 0, 100, 1.0)
    assert residency.plan(1.0, 100).submit == [member(5)]
    residency.paused(member(5), 130, 2.0)
    assert residency.plan(2.0, 130).submit == [member(1)]


def test_a_ready_session_is_not_moved_for_another_and_goes_on_when_there_is_room():
    residency = rank(Recency(), max_batch=1)
    first_turn(residency, 0, 400)
    first_turn(residency, 1, 400)
    residency.ready(member(1), 1, 500, 1.0)
    residency.ready(member(0), 1, 500, 1.0)
    assert residency.plan(1.0, 800) == Plan(submit=[member(0)])
    residency.paused(member(0), 510, 2.0)
    assert residency.plan(2.0, 910) == Plan(demote=[(member(0), "cold")], submit=[member(1)])


def test_the_longest_pause_makes_way_where_paused_sessions_have_a_cap():
    residency = rank(Cap(0.5))
    first_turn(residency, 0, 300, now=0.0)
    first_turn(residency, 1, 300, now=1.0)
    for session in residency._sessions.values():
        assert session.common == 290
    # Only what is their own counts, and of a prompt of 290 tokens that is 10 each.
    assert residency.plan(1.0, 600) == Plan()
    for group in (0, 1):
        residency.ready(member(group), 1, 600, 2.0 + group)
        residency.plan(2.0 + group, 600)
        residency.paused(member(group), 600, 2.0 + group)
    assert residency.plan(3.0, 1000).demote == [(member(0), "cold")]


def test_host_memory_is_filled_by_worth_and_a_reload_starts_while_the_batch_is_full():
    residency = rank(Recency(), capacity=700, host=400, max_batch=1)
    for group in (0, 1):
        first_turn(residency, group, 300, now=float(group), hot=300 * group)
    residency.ready(member(2), 0, 600, 2.0)
    # Host memory has room for one of them: the longer pause is worth less.
    assert residency.plan(2.0, 600).demote == [(member(0), "warm"), (member(0), "cold"), (member(1), "warm")]
    residency.paused(member(2), 610, 3.0)
    residency.released(member(2), 3.0)
    residency.ready(member(3), 0, 100, 3.0)
    assert residency.plan(3.0, 0).submit == [member(3)]
    residency.ready(member(1), 1, 320, 4.0)
    assert residency.plan(4.0, 100) == Plan(prefetch=[member(1)])
    assert residency.place(member(1)) == "hot"


def test_after_an_update_that_drops_all_kv_everybody_computes_again():
    residency = rank(Recency(), host=1000)
    first_turn(residency, 0, 300)
    residency.dropped(1.0)
    residency.ready(member(0), 1, 320, 2.0)
    assert residency.place(member(0)) == "cold"
    assert residency.plan(2.0, 0) == Plan(submit=[member(0)])


def test_a_heap_forgets_who_left_and_does_not_grow():
    heap = LazyHeap()
    for number in range(10_000):
        heap.push(member(number % 5), -float(number))
    assert len(heap._heap) <= 2 * 5 + SLACK + 1
    assert heap.first() == (-9999.0, member(4))
    heap.discard(member(4))
    assert heap.first() == (-9998.0, member(3))
    assert len(heap) == 4
