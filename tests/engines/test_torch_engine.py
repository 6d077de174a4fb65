"""Sessions, sharing, sampling, limits and updates, as a caller sees them."""

import pytest
import torch

from engines.episodes import engine, play, request, sample, text
from engines.models import reference_greedy, tiny
from springtide.core.member import Member, Purpose
from springtide.core.sampling import Sampled, SampleRequest, SampleStop, SamplingParams
from springtide.engines.torch_engine import TorchEngine
from springtide.policy.digest import digest_tensors, named_weights

PROMPT = text(1, 50)
SHARP = SamplingParams(max_tokens=20, temperature=0.6)


def _weights(change: float = 0.0) -> dict[str, torch.Tensor]:
    return {name: tensor + change * torch.sign(tensor) for name, tensor in named_weights(tiny())}


def test_a_groups_prompt_is_prefilled_once() -> None:
    player = engine(capacity_tokens=2048)
    play(player, [request(PROMPT, slot=slot) for slot in range(4)])
    stats = player.stats()
    # The newest token of each prompt is computed per member: its logits start the turn.
    assert (stats.prefilled, stats.reused, stats.reprefilled) == (50 + 3, 3 * 49, 0)
    play(player, [request(PROMPT, group=1), request(PROMPT, purpose=Purpose.EVALUATE)])
    assert player.stats().reused == 3 * 49, "nothing is shared between groups or purposes"


def test_a_session_prefills_only_what_is_new() -> None:
    player = engine()
    first = sample(player, request(PROMPT))
    path = PROMPT + first.tokens + text(2, 10)
    second = sample(player, request(path, turn=1))
    assert second.tokens == reference_greedy("qwen3", path, 12)
    stats = player.stats()
    # Of the first turn's 12 sampled tokens the last was never fed back.
    assert (stats.reused, stats.prefilled, stats.decoded) == (50 + 11, 50 + 1 + 10, 24)
    changed = path[:30] + text(3, 20)
    assert sample(player, request(changed, turn=2)).tokens == reference_greedy("qwen3", changed, 12)
    assert player.stats().reused == 61 + 30


def test_warm_sessions_are_reloaded_and_cold_ones_prefilled_again() -> None:
    player = engine()
    member = request(PROMPT).member
    path = PROMPT + sample(player, request(PROMPT)).tokens
    player.demote(member, "warm")
    assert (player.stats().hot_tokens, player.stats().warm_tokens) == (0, 61)
    path += sample(player, request(path, turn=1)).tokens
    assert (player.stats().reloads, player.stats().reused, player.stats().reprefilled) == (1, 61, 0)
    player.demote(member, "warm")
    player.prefetch(member)
    assert (player.stats().hot_sessions, player.stats().reloads) == (1, 2)
    player.demote(member, "cold")
    assert player.stats().hot_sessions == 0
    sample(player, request(path, turn=2))
    assert player.stats().reprefilled == 73
    player.release(member)
    sample(player, request(path, turn=2))
    assert player.stats().reprefilled == 73, "a released session is forgotten"


def test_without_host_memory_a_demoted_session_goes_cold() -> None:
    player = engine(host_capacity_tokens=60)
    sample(player, request(PROMPT))
    player.demote(request(PROMPT).member, "warm")
    assert (player.stats().hot_sessions, player.stats().warm_tokens) == (0, 0)


def test_pressure_moves_out_the_session_used_longest_ago() -> None:
    player = engine(capacity_tokens=128, host_capacity_tokens=61)
    for group in (0, 1, 0, 2):
        sample(player, request(PROMPT, group=group))
    # A block of 64 tokens each: groups 0 and 1 fill the capacity, group 1 was used longest ago.
    assert (player.stats().hot_sessions, player.stats().warm_tokens, player.stats().demotions) == (2, 61, 1)
    sample(player, request(PROMPT, group=1))
    assert player.stats().reloads == 1
    assert player.stats().hot_tokens <= 128


def test_running_turns_that_outgrow_the_capacity_give_way_and_come_back() -> None:
    player = engine(capacity_tokens=320, max_batch=4)
    long = SamplingParams(max_tokens=150, temperature=0.0)
    requests = [request(text(group, 40), group=group, params=long) for group in range(4)]
    results = play(player, requests)
    assert player.stats().preemptions > 0
    for each in requests:
        assert results[each.member].tokens == reference_greedy("qwen3", each.tokens, 150)


def test_stop_tokens_end_a_turn_and_are_part_of_it() -> None:
    free = reference_greedy("qwen3", PROMPT, 12)
    stop = free[5]
    count = free.index(stop) + 1
    params = SamplingParams(max_tokens=12, temperature=0.0, stop_tokens=(96, stop))
    other = request(PROMPT, group=1)
    results = play(engine(), [request(PROMPT, params=params), other])
    stopped = results[request(PROMPT).member]
    assert (stopped.tokens, stopped.stop) == (free[:count], SampleStop.STOP_TOKEN)
    assert len(stopped.logprobs) == len(stopped.versions) == count
    assert (results[other.member].tokens, results[other.member].stop) == (free, SampleStop.LENGTH)


@pytest.mark.parametrize(("capacity", "limit"), [(4096, 256), (130, 128)])
def test_a_turn_ends_where_context_or_capacity_does(capacity: int, limit: int) -> None:
    params = SamplingParams(max_tokens=1000, temperature=0.0)
    player = engine(capacity_tokens=capacity)
    assert player.capabilities.max_context == limit
    sampled = sample(player, request(text(0, limit - 20), params=params))
    assert (len(sampled.tokens), sampled.stop) == (20, SampleStop.CONTEXT)
    with pytest.raises(ValueError, match=rf"has {limit} tokens, the engine's context holds {limit}"):
        player.submit([request(text(0, limit))])
    assert not player.has_work()


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (request(()), "has 0 tokens"),
        (request(PROMPT, params=SamplingParams(max_tokens=0)), "max_tokens 0"),
    ],
)
def test_impossible_requests_are_named(bad: SampleRequest, words: str) -> None:
    player = engine()
    with pytest.raises(ValueError, match=words):
        player.submit([request(PROMPT, group=1), bad])
    assert not player.has_work(), "none of a refused submission is queued"


def test_a_step_returns_as_soon_as_a_turn_finishes() -> None:
    player = engine()
    short = SamplingParams(max_tokens=3, temperature=0.0)
    player.submit([request(PROMPT), request(PROMPT, slot=1, params=short)])
    steps = 0
    while not (finished := player.step(max_decode_steps=1000)):
        steps += 1
    assert [each.member.slot for each in finished] == [1]
    assert player.has_work()
    assert player.step(max_decode_steps=1000)[0].member.slot == 0
    assert player.step(max_decode_steps=5) == []


def test_a_full_engine_goes_on_while_turns_wait_for_a_place() -> None:
    player = engine(max_batch=2)
    lengths = [SamplingParams(max_tokens=length, temperature=0.0) for length in (2, 9, 3, 9)]
    player.submit([request(text(group, 50), group=group, params=params) for group, params in enumerate(lengths)])
    finished = player.step(max_decode_steps=1000)
    # Group 2 takes the place of 0, and 3 that of 2; then nobody waits, and 1 is the next to end.
    assert [each.member.group for each in finished] == [0, 2]
    assert [each.member.group for each in player.step(max_decode_steps=1000)] == [1]


def test_long_prompts_are_prefilled_in_chunks_while_others_decode() -> None:
    player = engine(prefill_chunk=16)
    player.submit([request(text(0, 5), params=SamplingParams(max_tokens=100, temperature=0.0))])
    player.step(max_decode_steps=2)
    player.submit([request(text(1, 70), group=1)])
    before = player.stats()
    player.step(max_decode_steps=3)
    after = player.stats()
    assert (after.prefilled - before.prefilled, after.decoded - before.decoded) == (48, 3)


def _samples(player: TorchEngine, requests: list[SampleRequest]) -> dict[Member, Sampled]:
    return play(player, requests, steps=3)


def test_a_member_samples_the_same_tokens_in_any_batch() -> None:
    requests = [request(text(group, 10 + 7 * group), group=group, params=SHARP) for group in range(5)]
    together = _samples(engine(seed=4), requests)
    for each in requests:
        alone = engine(seed=4)
        sample(alone, request(text(99, 90), group=77))
        assert sample(alone, each).tokens == together[each.member].tokens
    assert _samples(engine(seed=5), requests) != together
    twins = _samples(engine(seed=4), [request(PROMPT, slot=slot, params=SHARP) for slot in range(4)])
    assert len({each.tokens for each in twins.values()}) == 4


def test_the_same_submissions_and_steps_give_the_same_bits() -> None:
    def run() -> list[object]:
        player = engine(capacity_tokens=640, host_capacity_tokens=100)
        log: list[object] = []
        mixed = [SHARP, SamplingParams(max_tokens=30, top_k=3), SamplingParams(max_tokens=9, top_p=0.5)]
        for turn in range(3):
            player.submit(
                [request(text(g, 20) + text(turn, 9 * turn), group=g, turn=turn, params=mixed[g % 3]) for g in range(6)]
            )
            while player.has_work():
                log.append(player.step(max_decode_steps=3))
        return [*log, player.stats()]

    assert run() == run()


def test_weights_arrive_with_the_digest_of_what_the_engine_holds() -> None:
    player = engine()
    weights = _weights(0.01)
    version = player.load_weights(number=3, weights=weights, kv="keep")
    assert (version.number, version.digest) == (3, digest_tensors(weights.items()))
    # Tied weights may come under both of their names.
    both = weights | {"lm_head.weight": weights["model.embed_tokens.weight"]}
    assert player.load_weights(number=4, weights=both, kv="keep").digest == version.digest
    with pytest.raises(ValueError, match=r"missing \['model.norm.weight'\]"):
        player.load_weights(number=5, weights={k: v for k, v in weights.items() if k != "model.norm.weight"}, kv="keep")
    with pytest.raises(ValueError, match=r"'model.norm.weight' have shape \(3,\)"):
        player.load_weights(number=5, weights=weights | {"model.norm.weight": torch.ones(3)}, kv="keep")


@pytest.mark.parametrize("kv", ["keep", "recompute"])
def test_an_update_in_the_middle_of_a_turn(kv: str) -> None:
    player = engine()
    player.submit([request(PROMPT)])
    player.step(max_decode_steps=7)
    new = _weights(0.05)
    player.load_weights(number=1, weights=new, kv=kv)  # type: ignore[arg-type]
    finished = []
    while player.has_work():
        finished += player.step(max_decode_steps=5)
    sampled = finished[0].sampled
    old_count = sampled.versions.count(0)
    assert sampled.versions == (0,) * old_count + (1,) * (12 - old_count)
    assert 0 < old_count < 12
    assert sampled.tokens[:old_count] == reference_greedy("qwen3", PROMPT, old_count)
    model = tiny()
    model.load_state_dict(new, strict=False)
    with torch.inference_mode():
        logits = model(input_ids=torch.tensor([PROMPT + sampled.tokens])).logits[0, len(PROMPT) - 1 : -1]
    logprobs = logits.log_softmax(-1).gather(-1, torch.tensor(sampled.tokens)[:, None]).squeeze(-1)
    difference = (logprobs - torch.tensor(sampled.logprobs)).abs()[old_count:].max()
    if kv == "recompute":
        assert difference < 1e-5
        assert player.stats().reprefilled >= len(PROMPT)
    else:
        assert difference > 1e-4, "old keys and values show in the log-probs"
        assert player.stats().reprefilled == 0


@pytest.mark.parametrize("kv", ["keep", "recompute"])
def test_weights_that_diverged_leave_nothing_behind(kv: str) -> None:
    player = engine()
    bad = {name: tensor * float("nan") for name, tensor in _weights().items()}
    player.load_weights(number=1, weights=bad, kv="keep")
    assert all(value != value for value in sample(player, request(text(0, 100), group=1)).logprobs)
    player.load_weights(number=2, weights=_weights(), kv=kv)  # type: ignore[arg-type]
    assert sample(player, request(PROMPT)).tokens == reference_greedy("qwen3", PROMPT, 12)


def test_prompts_are_not_shared_across_versions() -> None:
    player = engine()
    sample(player, request(PROMPT))
    player.load_weights(number=1, weights=_weights(0.05), kv="keep")
    late = request(PROMPT, slot=1)
    fresh = engine()
    fresh.load_weights(number=1, weights=_weights(0.05), kv="keep")
    assert sample(player, late).logprobs == pytest.approx(sample(fresh, late).logprobs, abs=1e-5)
    assert (player.stats().reused, player.stats().reprefilled) == (0, 49)


def test_a_cancelled_turn_is_dropped_and_its_session_stays() -> None:
    player = engine()
    player.submit([request(PROMPT), request(PROMPT, slot=1)])
    player.step(max_decode_steps=4)
    player.cancel(request(PROMPT).member)
    player.cancel(request(PROMPT, group=9).member)
    results = {}
    while player.has_work():
        results.update({each.member: each.sampled for each in player.step(max_decode_steps=4)})
    assert list(results) == [request(PROMPT, slot=1).member]
    assert sample(player, request(PROMPT)).tokens == reference_greedy("qwen3", PROMPT, 12)
    assert player.stats().reprefilled == 0
