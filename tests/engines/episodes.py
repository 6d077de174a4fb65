"""Requests, and playing them to the end."""

from collections.abc import Iterable, Sequence

import torch

from engines.models import VOCABULARY, tiny
from springtide.core.member import Member, Purpose
from springtide.core.sampling import Sampled, SampleRequest, SamplingParams
from springtide.engines.config import TorchEngineConfig
from springtide.engines.torch_engine import TorchEngine

GREEDY = SamplingParams(max_tokens=12, temperature=0.0)


def engine(name: str = "qwen3", *, seed: int = 0, model: object = None, **settings: object) -> TorchEngine:
    config = TorchEngineConfig.model_validate({"capacity_tokens": 4096, "prefill_chunk": 32} | settings)
    return TorchEngine(model or tiny(name), config, seed)


def text(seed: int, length: int) -> tuple[int, ...]:
    """`length` random tokens."""
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randint(1, VOCABULARY, (length,), generator=generator).tolist())


def request(
    tokens: Iterable[int],
    *,
    group: int = 0,
    slot: int = 0,
    turn: int = 0,
    params: SamplingParams = GREEDY,
    purpose: Purpose = Purpose.TRAIN,
) -> SampleRequest:
    return SampleRequest(member=Member(purpose, group, slot), turn=turn, tokens=tuple(tokens), params=params)


def play(player: TorchEngine, requests: Sequence[SampleRequest], *, steps: int = 8) -> dict[Member, Sampled]:
    """Submit together, step until all are finished."""
    player.submit(list(requests))
    results: dict[Member, Sampled] = {}
    while player.has_work():
        for each in player.step(max_decode_steps=steps):
            results[each.member] = each.sampled
    return results


def sample(player: TorchEngine, single: SampleRequest) -> Sampled:
    return play(player, [single])[single.member]
