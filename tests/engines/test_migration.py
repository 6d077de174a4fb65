"""A session that goes on in another engine with the same weights samples what it would have where it was."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engines.episodes import engine, request, sample, text
from engines.models import reference_greedy, tiny
from springtide.policy.digest import named_weights
from springtide.ports.engine import EngineStats

PROMPT = text(1, 20)
APPENDED = text(2, 7)


def turns(name, count):
    """Prompts of successive turns and the greedy answers to them, by a model without any cache."""
    found, context = [], PROMPT
    for _ in range(count):
        answer = reference_greedy(name, context, 12)
        found.append((context, answer))
        context = context + answer + APPENDED
    return found


def migrate(before, after, member):
    handed = before.hand_over(member)
    return 0 if handed is None else after.take_over(member, handed)


@pytest.mark.parametrize(("name", "native"), [("qwen3", True), ("gemma3", False), ("llama", False)])
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    ways=st.lists(st.sampled_from(["stay", "move", "warm and move", "cold and move"]), min_size=3, max_size=3),
    host=st.sampled_from([0, 30, 1000]),
)
def test_greedy_tokens_do_not_depend_on_moves_between_engines(name, native, ways, host):
    players = [engine(name, host_capacity_tokens=host, native_kernels=native) for _ in range(2)]
    at = 0
    for number, (prompt, answer) in enumerate(turns(name, 4)):
        asked = request(prompt, turn=number)
        assert sample(players[at], asked).tokens == answer
        way = ways[number] if number < len(ways) else "stay"
        if "and" in way:
            players[at].demote(asked.member, way.split()[0])
        if "move" in way:
            migrate(players[at], players[1 - at], asked.member)
            assert players[at].stats().hot_tokens == players[at].stats().warm_tokens == 0
            at = 1 - at
        assert all(player.stats().warm_tokens <= host for player in players)
    for player in players:
        player.release(asked.member)
        stats = player.stats()
        assert (stats.hot_tokens, stats.warm_tokens, stats.hot_sessions) == (0, 0, 0)


def test_kv_that_moves_is_not_computed_again():
    one, other = (engine(host_capacity_tokens=1000) for _ in range(2))
    (first, answer), (second, expected) = turns("qwen3", 2)
    member = request(first).member
    assert sample(one, request(first)).tokens == answer
    taken = migrate(one, other, member)
    assert taken == len(first) + len(answer) - 1, "the last token sampled has no KV yet"
    assert other.stats().warm_tokens == taken
    assert sample(other, request(second, turn=1)).tokens == expected
    stats = other.stats()
    assert (stats.reprefilled, stats.reused, stats.reloads) == (0, taken, 1)
    assert stats.prefilled == len(second) - taken
    assert one.hand_over(member) is None, "it has left"


def test_without_room_in_host_memory_it_is_computed_again():
    one, other = engine(host_capacity_tokens=1000), engine(host_capacity_tokens=8)
    (first, _), (second, expected) = turns("qwen3", 2)
    sample(one, request(first))
    assert migrate(one, other, request(first).member) == 0
    assert sample(other, request(second, turn=1)).tokens == expected
    stats: EngineStats = other.stats()
    assert (stats.reused, stats.warm_tokens) == (0, 0)
    assert stats.reprefilled == len(first) + 11, "what was known is told apart from what is new"


@pytest.mark.parametrize(("kv", "kept"), [("keep", True), ("refresh", True), ("recompute", False)])
def test_kv_from_before_an_update_is_taken_only_where_such_kv_was_kept(kv, kept):
    one, other = (engine(host_capacity_tokens=1000) for _ in range(2))
    (first, _), (second, expected) = turns("qwen3", 2)
    sample(one, request(first))
    handed = one.hand_over(request(first).member)
    other.load_weights(number=1, weights=dict(named_weights(tiny())), kv=kv)
    assert (other.take_over(request(first).member, handed) > 0) is kept
    assert sample(other, request(second, turn=1)).tokens == expected, "the weights are the same"
