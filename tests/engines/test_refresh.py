"""KV that is computed again while its session pauses is that of a session computed from scratch."""

from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engines.episodes import engine, play, request, sample, text
from engines.models import tiny
from springtide.core.sampling import Sampled, SamplingParams
from springtide.engines.session import Session
from springtide.engines.torch_engine import TorchEngine
from springtide.policy.digest import named_weights

PROMPT = text(1, 50)
WARM = SamplingParams(max_tokens=9, temperature=0.8)


def weights(number: int) -> dict[str, torch.Tensor]:
    """Those of version `number`; 0 is what an engine is made with."""
    return {name: tensor + 0.01 * number * torch.sign(tensor) for name, tensor in named_weights(tiny())}


def load(player: TorchEngine, number: int, kv: str = "refresh") -> None:
    player.load_weights(number=number, weights=weights(number), kv=kv)  # type: ignore[arg-type]


def refresh_all(player: TorchEngine, piece: int) -> int:
    """Until nothing is stale; the number of pieces."""
    pieces = 0
    while stale := player.stale():
        assert player.refresh(stale[0].member, piece) > 0
        pieces += 1
    return pieces


def from_scratch(number: int, path: tuple[int, ...], **options: Any) -> Sampled:
    fresh = engine(**options)
    load(fresh, number)
    return sample(fresh, request(path, turn=1))


@pytest.mark.parametrize("piece", [7, 1000])
@pytest.mark.parametrize("native", [True, False])
def test_after_a_refresh_a_session_goes_on_as_one_computed_from_scratch(native: bool, piece: int) -> None:
    player = engine(native_kernels=native)
    path = PROMPT + sample(player, request(PROMPT)).tokens + text(2, 10)
    load(player, 1)
    (stale,) = player.stale()
    assert (stale.tokens, stale.fresh, stale.oldest) == (61, 0, 0)
    assert refresh_all(player, piece) == -(-61 // piece)
    went_on, expected = sample(player, request(path, turn=1)), from_scratch(1, path, native_kernels=native)
    assert went_on.tokens == expected.tokens
    assert went_on.logprobs == pytest.approx(expected.logprobs, abs=1e-5)
    assert went_on.versions == (1,) * 12
    stats = player.stats()
    assert (stats.refreshed, stats.reprefilled, stats.reused) == (61, 0, 61)


def test_in_double_precision_it_goes_on_to_the_last_digits() -> None:
    player = engine(model=tiny().double())
    path = PROMPT + sample(player, request(PROMPT)).tokens + text(2, 10)
    load(player, 1)
    refresh_all(player, 16)
    went_on, expected = sample(player, request(path, turn=1)), from_scratch(1, path, model=tiny().double())
    assert went_on.tokens == expected.tokens
    # Log-probs are taken in float32; keys and values are not.
    assert went_on.logprobs == pytest.approx(expected.logprobs, abs=1e-6)


def test_what_resumes_before_it_is_refreshed_goes_on_with_what_there_is() -> None:
    player, kept = engine(), engine()
    path = PROMPT + sample(player, request(PROMPT)).tokens + text(2, 10)
    sample(kept, request(PROMPT))
    for each in (player, kept):
        load(each, 1)
    player.refresh(request(PROMPT).member, 40)
    went_on, old = sample(player, request(path, turn=1)), sample(kept, request(path, turn=1))
    expected = from_scratch(1, path)
    error = [abs(each.logprobs[0] - expected.logprobs[0]) for each in (went_on, old)]
    assert 1e-5 < error[0] != error[1]
    assert player.stats().reprefilled == kept.stats().reprefilled == 0


def test_a_group_s_prompt_is_refreshed_once() -> None:
    player = engine()
    results = play(player, [request(PROMPT, slot=slot, params=WARM) for slot in range(3)])
    load(player, 1)
    refresh_all(player, 1000)
    own = sum(len(sampled.tokens) - 1 for sampled in results.values())
    assert player.stats().refreshed == len(PROMPT) + own
    for slot in range(3):
        member = request(PROMPT, slot=slot).member
        path = PROMPT + results[member].tokens + text(3, 5)
        went_on = sample(player, request(path, slot=slot, turn=1))
        assert went_on.logprobs == pytest.approx(from_scratch(1, path).logprobs, abs=1e-5)


def test_kv_older_than_the_gap_is_computed_again_when_its_turn_comes() -> None:
    for gap, expected in ((1, 61), (2, 0)):
        player = engine(kv_gap=gap)
        path = PROMPT + sample(player, request(PROMPT)).tokens + text(2, 10)
        load(player, 1)
        load(player, 2)
        went_on = sample(player, request(path, turn=1))
        assert player.stats().reprefilled == expected
        if expected:
            assert went_on.logprobs == pytest.approx(from_scratch(2, path).logprobs, abs=1e-5)


@pytest.mark.parametrize("place", ["hot", "warm"])
def test_what_was_refreshed_of_kv_that_is_too_old_is_kept(place: str) -> None:
    player = engine()
    path = PROMPT + sample(player, request(PROMPT)).tokens + text(2, 10)
    load(player, 1)
    load(player, 2)
    player.refresh(request(PROMPT).member, 40)
    if place == "warm":
        player.demote(request(PROMPT).member, "warm")
    went_on = sample(player, request(path, turn=1))
    assert (player.stats().reprefilled, player.stats().reused) == (21, 40)
    assert went_on.logprobs == pytest.approx(from_scratch(2, path).logprobs, abs=1e-5)


def test_a_running_turn_whose_kv_becomes_too_old_computes_it_again() -> None:
    player = engine()
    player.submit([request(PROMPT)])
    player.step(max_decode_steps=4)
    load(player, 1, "keep")
    player.step(max_decode_steps=2)
    assert player.stats().reprefilled == 0
    load(player, 2, "keep")
    player.step(max_decode_steps=2)
    assert player.stats().reprefilled > len(PROMPT)


def test_only_paused_sessions_on_the_device_are_refreshed() -> None:
    player = engine()
    sample(player, request(PROMPT))
    sample(player, request(PROMPT, group=1))
    load(player, 1)
    player.submit([request(PROMPT + text(4, 60), turn=1)])
    player.demote(request(PROMPT, group=1).member, "warm")
    assert player.stale() == []
    for group in (0, 1, 7):
        assert player.refresh(request(PROMPT, group=group).member, 100) == 0
    assert player.stats().refreshed == 0


def test_diverged_weights_that_nobody_sampled_from_leave_nothing_behind() -> None:
    player = engine()
    path = PROMPT + sample(player, request(PROMPT)).tokens + text(2, 10)
    bad = {name: tensor * float("nan") for name, tensor in weights(0).items()}
    player.load_weights(number=1, weights=bad, kv="refresh")
    refresh_all(player, 1000)
    load(player, 2)
    assert sample(player, request(path, turn=1)).logprobs == pytest.approx(from_scratch(2, path).logprobs, abs=1e-5)


ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["turn", "turn", "play", "step", "update", "refresh", "refresh", "warm", "prefetch", "cancel"]),
        st.integers(0, 3),
        st.integers(1, 30),
    ),
    min_size=12,
    max_size=40,
)


def keys_and_values(player: TorchEngine, session: Session, tokens: int) -> list[torch.Tensor]:
    if session.block is not None:
        return list(player._storage.save(session.block, tokens))
    assert session.host is not None
    return [planes[:, :, :tokens] for planes in session.host]


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(actions=ACTIONS, capacity=st.sampled_from([256, 1024]))
def test_what_is_tagged_with_a_version_is_what_that_version_computes(
    actions: list[tuple[str, int, int]], capacity: int
) -> None:
    """I5. Members 0-1 and 2-3 share a group: whatever happens, the beginning that a session has under the present
    version, which is all that its group may copy, equals one computed from scratch, and no token is sampled over KV
    that is older than the gap."""
    player = engine(capacity_tokens=capacity, host_capacity_tokens=300, max_batch=3)
    paths = [text(index // 2, 40) for index in range(4)]
    turns, busy, number = [0] * 4, set(), 0
    for kind, index, amount in actions:
        member = request((1,), group=index // 2, slot=index % 2).member
        if kind == "turn" and index not in busy and len(paths[index]) < 150:
            if turns[index]:
                paths[index] += text(amount, amount)
            turn = request(paths[index], group=index // 2, slot=index % 2, turn=turns[index], params=WARM)
            player.submit([turn])
            busy.add(index)
        elif kind in ("play", "step"):
            for each in player.step(max_decode_steps=20 if kind == "play" else 1 + amount % 5):
                which = 2 * each.member.group + each.member.slot
                paths[which] += each.sampled.tokens
                turns[which] += 1
                busy.discard(which)
        elif kind == "update":
            _check_tags(player, number)
            number += 1
            load(player, number)
        elif kind == "refresh":
            player.refresh(member, amount)
        elif kind == "warm":
            player.demote(member, "warm")
        elif kind == "prefetch":
            player.prefetch(member)
        elif kind == "cancel" and index in busy:
            player.cancel(member)
            busy.discard(index)
    _check_tags(player, number)


def _check_tags(player: TorchEngine, number: int) -> None:
    scratch = engine()
    load(scratch, number)
    for group, session in enumerate(player._residents):
        assert session.versions.tokens == session.computed
        assert not session.running or session.versions.gap(number) <= 1
        tokens = min(session.versions.leading(number), session.computed)
        if tokens > 1:
            sample(scratch, request(session.tokens[: tokens + 1], group=group))
            truth = scratch._residents.get(request((1,), group=group).member)
            assert truth is not None
            ours, theirs = (keys_and_values(*each, tokens) for each in ((player, session), (scratch, truth)))
            for one, other in zip(ours, theirs, strict=True):
                assert torch.allclose(one, other, atol=1e-4)
