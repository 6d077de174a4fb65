"""Whatever is parked, moved, preempted, cancelled or updated in between, greedy output stays the same."""

from functools import cache

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from engines.episodes import engine, request, text
from engines.models import reference_greedy, tiny
from springtide.core.member import Member
from springtide.core.sampling import SampleRequest, SamplingParams
from springtide.engines.torch_engine import TorchEngine
from springtide.policy.digest import named_weights

MEMBERS = 6
TURNS = 3


ACTIONS = st.one_of(
    st.tuples(st.just("submit"), st.integers(0, MEMBERS - 1)),
    st.tuples(st.just("submit_all"), st.just(0)),
    st.tuples(st.just("step"), st.integers(1, 6)),
    st.tuples(st.just("step"), st.integers(1, 6)),
    st.tuples(st.just("warm"), st.integers(0, MEMBERS - 1)),
    st.tuples(st.just("cold"), st.integers(0, MEMBERS - 1)),
    st.tuples(st.just("prefetch"), st.integers(0, MEMBERS - 1)),
    st.tuples(st.just("cancel"), st.integers(0, MEMBERS - 1)),
    st.tuples(st.just("refresh"), st.integers(0, MEMBERS - 1)),
    st.tuples(st.just("update"), st.sampled_from(["keep", "recompute"])),
    st.tuples(st.just("suspend"), st.just(0)),
)


@cache
def _turn(name: str, index: int, turn: int) -> tuple[tuple[int, ...], SamplingParams, tuple[int, ...]]:
    """Prompt, settings and expected tokens of a member's turn. Members 0-2 and 3-5 share a group and its prompt."""
    if turn == 0:
        prompt = text(index // 3, (9, 40)[index // 3])
    else:
        before, _, said = _turn(name, index, turn - 1)
        prompt = before + said + text(100 + 10 * index + turn, 1 + (7 * index + 5 * turn) % 11)
    params = SamplingParams(max_tokens=3 + (5 * index + 3 * turn) % 14, temperature=0.0)
    return prompt, params, reference_greedy(name, prompt, params.max_tokens)


class Play:
    """Members that take their turns in one engine under a schedule."""

    def __init__(self, name: str, player: TorchEngine) -> None:
        self.name = name
        self.engine = player
        self.weights = dict(named_weights(tiny(name)))
        self.done = [0] * MEMBERS
        self.active: set[int] = set()
        self.number = 0

    def request(self, index: int) -> SampleRequest:
        prompt, params, _ = _turn(self.name, index, self.done[index])
        return request(prompt, group=index // 3, slot=index % 3, turn=self.done[index], params=params)

    def act(self, action: str, value: int | str) -> None:
        if action == "step":
            self.step(int(value))
        elif action == "update":
            self.number += 1
            self.engine.load_weights(number=self.number, weights=self.weights, kv=value)  # type: ignore[arg-type]
        elif action == "submit_all":
            self.submit(list(range(MEMBERS)))
        elif action == "suspend":
            self.engine.suspend()
            assert self.engine.stats().hot_tokens == self.engine.stats().running == 0
        elif action == "submit":
            self.submit([int(value)])
        else:
            self.move(action, int(value))

    def submit(self, indices: list[int]) -> None:
        ready = [index for index in indices if index not in self.active and self.done[index] < TURNS]
        self.active.update(ready)
        self.engine.submit([self.request(index) for index in ready])

    def move(self, action: str, index: int) -> None:
        member = _member(index)
        if action == "cancel":
            self.engine.cancel(member)
            self.active.discard(index)
        elif action == "prefetch":
            self.engine.prefetch(member)
        elif action == "refresh":
            self.engine.refresh(member, 13)
        else:
            self.engine.demote(member, "warm" if action == "warm" else "cold")

    def step(self, steps: int) -> None:
        for each in self.engine.step(max_decode_steps=steps):
            index = 3 * each.member.group + each.member.slot
            assert each.turn == self.done[index]
            assert each.sampled.tokens == _turn(self.name, index, each.turn)[2]
            self.done[index] += 1
            self.active.remove(index)
        stats = self.engine.stats()
        assert stats.hot_tokens <= self.engine.capabilities.capacity_tokens


def _member(index: int) -> Member:
    return request((1,), group=index // 3, slot=index % 3).member


@pytest.mark.parametrize(("name", "native"), [("qwen3", True), ("gemma3", False)])
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    actions=st.lists(ACTIONS, min_size=5, max_size=40),
    capacity=st.sampled_from([192, 320, 1024]),
    host=st.sampled_from([0, 90, 1000]),
    batch=st.integers(1, MEMBERS),
)
def test_any_schedule_gives_the_same_greedy_output(
    name: str, native: bool, actions: list[tuple[str, int | str]], capacity: int, host: int, batch: int
) -> None:
    player = engine(
        name,
        capacity_tokens=capacity,
        host_capacity_tokens=host,
        max_batch=batch,
        prefill_chunk=16,
        native_kernels=native,
    )
    play = Play(name, player)
    for action, value in actions:
        play.act(action, value)
        assert player.stats().warm_tokens <= host
    while any(done < TURNS for done in play.done):
        play.submit(list(range(MEMBERS)))
        play.step(4)
    for index in range(MEMBERS):
        player.release(_member(index))
    stats = player.stats()
    assert (stats.hot_tokens, stats.warm_tokens, stats.hot_sessions, stats.running) == (0, 0, 0, 0)
