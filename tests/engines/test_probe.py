"""What the probe finds is what fresh KV gives, and it changes nothing."""

import pytest
import torch

from engines.episodes import engine, request, sample, text
from engines.models import tiny
from engines.test_refresh import load, weights
from springtide.core.member import Member, Purpose
from springtide.core.sampling import Sampled, SamplingParams
from springtide.engines.probe import Probe
from springtide.engines.torch_engine import TorchEngine

SETTINGS = [
    SamplingParams(max_tokens=12, temperature=0.8),
    SamplingParams(max_tokens=5, temperature=0.0),
    SamplingParams(max_tokens=20, top_k=30, top_p=0.95),
]


def _turns(player: TorchEngine, *, update: int = 1) -> list[Sampled]:
    """Three sessions of two turns with new weights in between, and once more in the middle of the last turns."""
    found, paths = [], []
    for group, params in enumerate(SETTINGS):
        prompt = text(group, 30 + group)
        sampled = sample(player, request(prompt, group=group, params=params))
        paths.append(prompt + sampled.tokens + text(9, 4))
        found.append(sampled)
    load(player, update)
    player.submit([request(path, group=g, turn=1, params=SETTINGS[g]) for g, path in enumerate(paths)])
    while player.has_work():
        found += [each.sampled for each in player.step(max_decode_steps=3)]
        player.probe()
    return found


def test_the_probe_alters_no_token_and_no_log_prob() -> None:
    without, probed = engine(probe_share=0.0), engine(probe_share=1.0)
    assert _turns(without) == _turns(probed)
    assert without.stats().probed == 0
    assert probed.stats().probed > 0
    assert probed.stats().hot_tokens == without.stats().hot_tokens


def test_it_finds_the_difference_to_log_probs_over_fresh_kv() -> None:
    player = engine(probe_share=1.0)
    prompt = text(0, 40)
    path = prompt + sample(player, request(prompt)).tokens + text(9, 4)
    load(player, 1)
    kept = sample(player, request(path, turn=1, params=SamplingParams(max_tokens=15)))
    assert player.stats().probes_due == 1
    player.probe()
    model = tiny()
    model.load_state_dict(weights(1), strict=False)
    with torch.inference_mode():
        logits = model(input_ids=torch.tensor([path + kept.tokens])).logits[0, len(path) - 1 : -1]
    fresh = logits.log_softmax(-1).gather(-1, torch.tensor(kept.tokens)[:, None]).squeeze(-1).double()
    difference = fresh - torch.tensor(kept.logprobs).double()
    stats = player.stats()
    assert (stats.probed, stats.probes_due) == (15, 0)
    assert stats.probe_difference == pytest.approx(float(difference.abs().sum()), rel=1e-3)
    assert stats.probe_k3 == pytest.approx(float((difference.exp() - 1 - difference).sum()), rel=1e-2)
    assert stats.probe_k3 > 1e-4


def test_of_a_turn_that_meets_another_update_only_the_tokens_of_the_last_version_count() -> None:
    player = engine(probe_share=1.0, kv_gap=2)
    prompt = text(0, 40)
    path = prompt + sample(player, request(prompt)).tokens + text(9, 4)
    load(player, 1)
    player.submit([request(path, turn=1)])
    player.step(max_decode_steps=5)
    load(player, 2)
    (finished,) = player.step(max_decode_steps=20)
    player.probe()
    assert player.stats().probed == finished.sampled.versions.count(2) < len(finished.sampled.tokens)


def test_nothing_is_probed_that_sampled_over_fresh_kv() -> None:
    player = engine(probe_share=1.0)
    prompt = text(0, 40)
    path = prompt + sample(player, request(prompt)).tokens
    load(player, 1)
    player.refresh(request(prompt).member, 1000)
    sample(player, request(path, turn=1))
    assert player.stats().probes_due == 0


def test_new_weights_end_what_is_due() -> None:
    player = engine(probe_share=1.0)
    prompt = text(0, 40)
    path = prompt + sample(player, request(prompt)).tokens
    load(player, 1)
    sample(player, request(path, turn=1))
    load(player, 2)
    player.probe()
    assert player.stats().probed == 0


def test_without_trust_only_probed_turns_go_on_over_old_kv() -> None:
    for share, again in ((0.0, 51), (1.0, 0)):
        player = engine(probe_share=share)
        prompt = text(0, 40)
        path = prompt + sample(player, request(prompt)).tokens
        load(player, 1)
        player.trust_kv(False)
        sample(player, request(path, turn=1))
        assert player.stats().reprefilled == again
        assert player.stats().probes_due == (again == 0)


def test_the_choice_is_a_seeded_share_of_the_turns() -> None:
    network = engine()._network
    members = [Member(Purpose.TRAIN, group, slot) for group in range(50) for slot in range(8)]

    def chosen(seed: int) -> list[bool]:
        probe = Probe(network, seed=seed, share=0.05, chunk=32)
        return [probe.chooses(member, turn) for member in members for turn in range(5)]

    assert chosen(1) == chosen(1) != chosen(2)
    assert sum(chosen(1)) == pytest.approx(0.05 * 2000, rel=0.3)
