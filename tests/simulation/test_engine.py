"""The modelled rank against rules that need no model: conservation, capacity, and a token-by-token oracle."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from springtide.core.member import Member, Purpose
from springtide.scheduling.costs import ServiceCosts
from springtide.simulation.cluster import Cluster
from springtide.simulation.engine import ModelledEngine
from springtide.simulation.turn import ModelledRequest

COSTS = ServiceCosts(
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


class Visited(ModelledEngine):
    """Time passes as visits take it."""

    def __init__(self, cluster, **options):
        self.time = 0.0
        super().__init__(cluster, now=lambda: self.time, **options)

    def step(self, *, max_decode_steps):
        finished = super().step(max_decode_steps=max_decode_steps)
        self.time += sum(self.spent.values())
        return finished


def rank(kv_tokens=10_000, host_tokens=0, max_batch=8, costs=COSTS, shares_prompts="all", **options):
    cluster = Cluster(
        name="test",
        about="",
        kv_tokens=kv_tokens,
        host_tokens=host_tokens,
        max_batch=max_batch,
        shares_prompts=shares_prompts,
        costs=costs,
    )
    return Visited(cluster, **options)


def held(engine):
    """Tokens on the device and in host memory."""
    return engine.stats().hot_tokens, engine.stats().warm_tokens


def member(group, slot=0):
    return Member(Purpose.TRAIN, group, slot)


def turn(who, number=0, *, context=100, reusable=0, output=10, prefix=60, shared=20):
    return ModelledRequest(
        member=who, turn=number, context=context, reusable=reusable, output=output, prefix=prefix, shared=shared
    )


def play(engine, decode_steps=16):
    """Until idle: what finished, in order, and the seconds by bin."""
    finished, spent = [], {}
    while engine.has_work():
        finished += engine.step(max_decode_steps=decode_steps)
        for name, seconds in engine.spent.items():
            spent[name] = spent.get(name, 0.0) + seconds
    return finished, spent


def test_one_turn_costs_what_the_model_says():
    engine = rank()
    engine.submit([turn(member(0))])
    finished, spent = play(engine)
    assert [each.member for each in finished] == [member(0)]
    assert finished[0].sampled.counts == ((0, 10),)
    assert spent["prefill"] == pytest.approx(COSTS.prefill(100, 0))
    assert spent["decode"] == pytest.approx(sum(COSTS.decode_step(1, 100 + step) for step in range(10)))


def test_visits_turns_and_passes_that_prefill_joins_cost_what_they_are_said_to():
    engine = rank(costs=COSTS.model_copy(update={"visit": 3.0, "join": 7.0, "turn": 11.0}))
    engine.submit([turn(member(0), context=100, output=8), turn(member(1), context=100, output=8)])
    engine.step(max_decode_steps=4)
    # Two turns enter an idle rank in one pass.
    tokens = 2 * (COSTS.prefill(100, 0) - COSTS.prefill_base) - (COSTS.prefill(100, 0) - COSTS.prefill(80, 20))
    assert engine.spent["prefill"] == pytest.approx(COSTS.prefill_base + 2 * 11.0 + tokens)
    assert engine.spent["decode"] == pytest.approx(3.0 + sum(COSTS.decode_step(2, 200 + 2 * k) for k in range(4)))
    engine.submit([turn(member(2), context=100, output=8)])
    engine.step(max_decode_steps=4)
    # A third one joins them.
    alone = COSTS.prefill(80, 20) - COSTS.prefill_base
    assert engine.spent["prefill"] == pytest.approx(7.0 + 11.0 + alone)


def test_an_engine_that_shares_prompts_in_groups_only_computes_them_for_each_group():
    for shares_prompts, reused in (("all", 20), ("group", 0)):
        engine = rank(shares_prompts=shares_prompts)
        engine.submit([turn(member(0)), turn(member(1))])
        play(engine)
        assert engine.stats().prefilled == 200 - reused


@given(
    turns=st.lists(st.tuples(st.integers(61, 300), st.integers(1, 60)), min_size=1, max_size=8),
    decode_steps=st.integers(1, 64),
)
def test_decoding_in_stretches_costs_what_it_costs_token_by_token(turns, decode_steps):
    engine = rank()
    engine.submit([turn(member(n), context=context, output=output) for n, (context, output) in enumerate(turns)])
    finished, spent = play(engine, decode_steps)
    expected = 0.0
    for step in range(max(output for _, output in turns)):
        running = [context + step for context, output in turns if output > step]
        expected += COSTS.decode_step(len(running), sum(running))
    assert spent["decode"] == pytest.approx(expected)
    order = sorted(range(len(turns)), key=lambda n: (turns[n][1], n))
    assert [each.member.group for each in finished] == order
    assert engine.stats().decoded == sum(output for _, output in turns)


def test_a_group_s_prompt_is_computed_once_and_what_all_share_once_per_version():
    engine = rank()
    engine.submit([turn(member(0, slot), context=60) for slot in range(4)])
    play(engine)
    assert engine.stats().prefilled == 60
    engine.submit([turn(member(1), context=60)])
    play(engine)
    assert engine.stats().prefilled == 60 + 40
    assert engine.stats().hot_tokens == 2 * 60 + 5 * 10


@pytest.mark.parametrize("through_host", [False, True])
def test_a_group_s_prompt_of_an_older_version_is_not_a_newcomer_s(through_host):
    engine = rank(host_tokens=1000)
    engine.submit([turn(member(0, 0))])
    play(engine)
    if through_host:
        engine.demote(member(0, 0), "warm")
    engine.load_weights(number=1, weights="", kv="keep")
    engine.submit([turn(member(0, 0), 1, context=110, reusable=110)])
    play(engine)
    before = engine.stats().prefilled
    engine.submit([turn(member(0, 1))])
    play(engine)
    assert engine.stats().prefilled - before == 100


def test_a_pause_keeps_the_session_and_the_next_turn_computes_what_is_new():
    engine = rank()
    engine.submit([turn(member(0))])
    play(engine)
    engine.submit([turn(member(0), 1, context=150, reusable=110)])
    _, spent = play(engine)
    assert spent["prefill"] == pytest.approx(COSTS.prefill(40, 110))
    assert "recompute" not in spent
    assert engine.stats().reused == 110


def test_a_cold_session_computes_again_what_it_had_and_says_so():
    engine = rank()
    engine.submit([turn(member(0))])
    play(engine)
    engine.demote(member(0), "cold")
    assert engine.stats().hot_tokens == 0
    engine.submit([turn(member(0), 1, context=150, reusable=110)])
    _, spent = play(engine)
    # What every episode has is still there.
    assert engine.stats().reused == 20
    assert engine.stats().reprefilled == 90
    assert spent["recompute"] + spent["prefill"] == pytest.approx(COSTS.prefill(130, 20))


def paused_warm(engine, *members):
    """Sessions of 110 tokens in host memory."""
    for who in members:
        engine.submit([turn(who)])
    play(engine)
    for who in members:
        engine.demote(who, "warm")


def test_a_lone_turn_waits_for_its_reload_unless_it_was_asked_for_ahead():
    for ahead in (0.0, 0.1, 5.0):
        engine = rank(host_tokens=1000)
        paused_warm(engine, member(0))
        assert held(engine) == (0, 110)
        if ahead:
            engine.prefetch(member(0))
            assert not engine.has_work()
            engine.time += ahead
        engine.submit([turn(member(0), 1, context=150, reusable=110)])
        _, spent = play(engine)
        assert spent.get("reload", 0.0) == pytest.approx(max(0.0, COSTS.reload(110) - ahead))
        assert spent["prefill"] == pytest.approx(COSTS.prefill(40, 110))
        assert engine.stats().reused == 110


def test_the_batch_decodes_while_a_reload_is_under_way_and_its_turn_joins_at_the_next_step():
    engine = rank(host_tokens=5000)
    paused_warm(engine, member(1), member(2))
    engine.submit([turn(member(0), output=40)])
    engine.step(max_decode_steps=1)
    begin = engine.time
    engine.submit([turn(who, 1, context=111, reusable=110, output=100) for who in (member(1), member(2))])
    # One after the other on the copy stream: 0.36 s each; a decode step of this batch takes 1.2 to 1.6 s.
    engine.step(max_decode_steps=1)
    assert "reload" not in engine.spent
    assert engine.stats().running == 1
    assert engine.time - begin == pytest.approx(COSTS.decode_step(1, 101))
    engine.step(max_decode_steps=1)
    assert engine.stats().running == 3
    # What the two lack rides on the decode step, so it does not cost a pass of its own.
    assert engine.spent["prefill"] == pytest.approx(2 * (COSTS.prefill(1, 110) - COSTS.prefill_base))
    assert engine.spent["decode"] == pytest.approx(COSTS.decode_step(3, 102 + 2 * 111))


def test_a_stretch_of_decode_steps_ends_when_kv_arrives():
    slow = COSTS.model_copy(update={"reload_token": 0.1})
    cluster = Cluster(name="test", about="", kv_tokens=10_000, host_tokens=5000, max_batch=8, costs=slow)
    engine = Visited(cluster)
    paused_warm(engine, member(1))
    engine.submit([turn(member(0), output=40), turn(member(1), 1, context=111, reusable=110)])
    engine.step(max_decode_steps=30)
    seconds, steps = COSTS.prefill(80, 20), 0
    while seconds < slow.reload(110):
        seconds += COSTS.decode_step(1, 100 + steps)
        steps += 1
    assert steps == 8
    # Seven steps alone are too few, the ninth is of two sequences.
    assert engine.stats().decoded == 10 + steps + 2 * 10
    assert "reload" not in engine.spent


def test_a_session_that_came_back_keeps_its_host_copy_until_the_room_is_needed():
    engine = rank(host_tokens=300)
    paused_warm(engine, member(0))
    engine.submit([turn(member(0), 1, context=150, reusable=110)])
    play(engine)
    assert held(engine) == (160, 110)
    paused_warm(engine, member(1), member(2))
    assert held(engine) == (160, 220)
    engine.demote(member(0), "warm")
    # The oldest copy made room for the newest.
    assert held(engine) == (0, 270)


def test_new_weights_mark_what_is_sampled_and_drop_or_keep_the_kv():
    for kv in ("keep", "recompute"):
        engine = rank(gap=3)
        engine.submit([turn(member(0), output=10)])
        engine.step(max_decode_steps=4)
        engine.load_weights(number=3, weights="w", kv=kv)
        (finished,), spent = play(engine)
        assert finished.sampled.counts == ((0, 4), (3, 6))
        assert ("recompute" in spent) == (kv == "recompute")
        assert engine.stats().decoded == 10


def test_a_paused_session_is_refreshed_piece_by_piece_at_the_price_of_its_prefill():
    engine = rank()
    engine.submit([turn(member(0))])
    play(engine)
    engine.load_weights(number=1, weights="w", kv="refresh")
    (stale,) = engine.stale()
    assert (stale.tokens, stale.fresh, stale.oldest) == (110, 0, 0)
    for before, done in ((0, 40), (40, 40), (80, 30)):
        assert engine.refresh(member(0), 40) == done
        assert engine.spent == {"refresh": pytest.approx(COSTS.prefill(done, before))}
    assert engine.stale() == []
    assert engine.spent == {}
    engine.load_weights(number=2, weights="w", kv="refresh")
    engine.submit([turn(member(0), 1, context=150, reusable=110)])
    _, spent = play(engine)
    assert "recompute" not in spent
    assert (engine.stats().refreshed, engine.stats().reprefilled) == (110, 0)


@pytest.mark.parametrize("place", ["hot", "warm"])
def test_kv_older_than_the_gap_is_computed_again_when_its_turn_comes(place):
    engine = rank(host_tokens=1000)
    engine.submit([turn(member(0))])
    play(engine)
    engine.demote(member(0), place)
    for number in (1, 2):
        engine.load_weights(number=number, weights="w", kv="keep")
    assert held(engine) == ((110, 0) if place == "hot" else (0, 110))
    engine.submit([turn(member(0), 1, context=150, reusable=110)])
    _, spent = play(engine)
    assert spent["recompute"] + spent["prefill"] == pytest.approx(COSTS.prefill(150, 0))
    assert engine.stats().reprefilled == 110


def test_a_running_turn_whose_kv_becomes_too_old_computes_its_context_again():
    engine = rank()
    engine.submit([turn(member(0), output=10)])
    for number in (1, 2):
        engine.step(max_decode_steps=3)
        engine.load_weights(number=number, weights="w", kv="keep")
    (finished,), spent = play(engine)
    assert finished.sampled.counts == ((0, 3), (1, 3), (2, 4))
    assert engine.stats().reprefilled == 106
    assert "recompute" in spent


def test_a_group_s_prompt_is_refreshed_once_and_serves_newcomers():
    engine = rank()
    engine.submit([turn(member(0, slot), context=100) for slot in range(3)])
    play(engine)
    engine.load_weights(number=1, weights="w", kv="refresh")
    while stale := engine.stale():
        engine.refresh(stale[0].member, 1000)
    assert engine.stats().refreshed == 110 + 2 * 50
    before = engine.stats().prefilled
    engine.submit([turn(member(0, 3))])
    play(engine)
    assert engine.stats().prefilled - before == 40


def test_a_prompt_that_is_refreshed_in_part_serves_nobody_yet():
    engine = rank()
    engine.submit([turn(member(0))])
    play(engine)
    engine.load_weights(number=1, weights="w", kv="refresh")
    engine.refresh(member(0), 59)
    before = engine.stats().prefilled
    engine.submit([turn(member(0, 1))])
    play(engine)
    assert engine.stats().prefilled - before == 100


def test_what_does_not_fit_waits_and_what_grows_too_large_is_preempted():
    engine = rank(kv_tokens=250)
    engine.submit([turn(member(n), context=100, output=40, prefix=0, shared=0) for n in range(3)])
    finished, _ = play(engine)
    assert sorted(each.member.group for each in finished) == [0, 1, 2]
    assert engine.stats().preemptions > 0
    assert all(sum(tokens for _, tokens in each.sampled.counts) == 40 for each in finished)


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(
            ["turn", "step", "warm", "cold", "prefetch", "release", "cancel", "keep", "recompute", "refresh"]
        ),
        st.integers(0, 7),
        st.integers(1, 40),
    ),
    max_size=80,
)


@given(events=EVENTS, host=st.sampled_from([0, 300, 5000]), evicts=st.sampled_from(["warm", "cold"]))
def test_whatever_happens_capacity_holds_and_every_turn_ends_once(events, host, evicts):
    engine = rank(kv_tokens=700, host_tokens=host, max_batch=4, evicts=evicts)
    contexts, waiting, ended, version = {}, {}, {}, 0
    for kind, number, amount in events:
        who = member(number // 2, number % 2)
        if kind == "turn" and who not in waiting:
            before = contexts.get(who, 0)
            context = before + amount if before else 60 + amount
            if context + amount > 300:
                continue
            index = ended.get(who, 0)
            waiting[who] = amount
            engine.submit([turn(who, index, context=context, reusable=before, output=amount)])
            contexts[who] = context + amount
        elif kind == "step":
            for each in engine.step(max_decode_steps=amount):
                assert sum(tokens for _, tokens in each.sampled.counts) == waiting.pop(each.member)
                ended[each.member] = ended.get(each.member, 0) + 1
            assert all(seconds >= 0 for seconds in engine.spent.values())
        elif kind in ("warm", "cold"):
            engine.demote(who, kind)
        elif kind == "prefetch":
            engine.prefetch(who)
        elif kind == "release" and who not in waiting:
            engine.release(who)
            contexts.pop(who, None)
        elif kind == "cancel" and who in waiting:
            engine.cancel(who)
            engine.release(who)
            del waiting[who]
            contexts.pop(who, None)
        elif kind in ("keep", "recompute"):
            version += 1
            engine.load_weights(number=version, weights="w", kv=kind)
        elif kind == "refresh":
            engine.refresh(who, amount)
        assert 0 <= engine.stats().hot_tokens <= 700
        assert 0 <= engine.stats().warm_tokens <= host
    for each in play(engine)[0]:
        assert sum(tokens for _, tokens in each.sampled.counts) == waiting.pop(each.member)
    assert not waiting
    for who in list(contexts):
        engine.release(who)
    assert held(engine) == (0, 0)
