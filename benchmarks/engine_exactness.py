"""Greedy tokens against `generate` and log-probs against a full forward, on tiny models of four architectures.

The weights are initialised widely, so that the likeliest token stands out by more than rounding.
"""

from typing import Any

import torch
import transformers

from springtide.core.member import Member, Purpose
from springtide.core.sampling import Sampled, SampleRequest, SamplingParams
from springtide.engines.config import TorchEngineConfig
from springtide.engines.torch_engine import TorchEngine

SHAPE: dict[str, Any] = {
    "vocab_size": 256,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 512,
    "initializer_range": 0.1,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": 0,
}
LENGTHS = (5, 90, 17, 64, 130, 33, 1, 65)
NEW = 64


def exactness() -> dict[str, Any]:
    """Per architecture: whether all greedy tokens are identical, the largest error of a log-prob, and the least gap
    between the two likeliest tokens, without which identity would be luck."""
    identical: dict[str, bool] = {}
    errors: dict[str, float] = {}
    gaps: dict[str, float] = {}
    for name, build in ARCHITECTURES.items():
        prompts = _prompts()
        results = _play(build(), prompts)
        reference = build()
        identical[name] = all(
            _generated(reference, prompt) == result.tokens for prompt, result in zip(prompts, results, strict=True)
        )
        compared = [_compared(reference, prompt, result) for prompt, result in zip(prompts, results, strict=True)]
        errors[name] = max(error for error, _ in compared)
        gaps[name] = min(gap for _, gap in compared)
    return {"token_identical": identical, "max_logprob_error": errors, "least_gap_of_top_two": gaps}


def _qwen3() -> Any:
    return _seeded(transformers.Qwen3ForCausalLM, transformers.Qwen3Config(**SHAPE, tie_word_embeddings=True))


def _llama() -> Any:
    return _seeded(transformers.LlamaForCausalLM, transformers.LlamaConfig(**SHAPE))


def _gemma3() -> Any:
    kinds = ["sliding_attention", "full_attention", "sliding_attention"]
    config = transformers.Gemma3TextConfig(**SHAPE, sliding_window=24, layer_types=kinds, query_pre_attn_scalar=16)
    return _seeded(transformers.Gemma3ForCausalLM, config)


def _qwen3_moe() -> Any:
    experts = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 48, "norm_topk_prob": True}
    model = _seeded(transformers.Qwen3MoeForCausalLM, transformers.Qwen3MoeConfig(**SHAPE, **experts))
    model.set_experts_implementation("grouped_mm")
    return model


ARCHITECTURES = {"qwen3": _qwen3, "llama": _llama, "gemma3": _gemma3, "qwen3_moe": _qwen3_moe}


def _seeded(kind: Any, config: Any) -> Any:
    torch.manual_seed(0)
    return kind(config).eval()


def _prompts() -> list[tuple[int, ...]]:
    generator = torch.Generator().manual_seed(1)
    return [tuple(torch.randint(1, SHAPE["vocab_size"], (n,), generator=generator).tolist()) for n in LENGTHS]


def _play(model: Any, prompts: list[tuple[int, ...]]) -> list[Sampled]:
    engine = TorchEngine(model, TorchEngineConfig(capacity_tokens=8192, prefill_chunk=128), 0)
    params = SamplingParams(max_tokens=NEW, temperature=0.0)
    members = [Member(Purpose.TRAIN, group, 0) for group in range(len(prompts))]
    engine.submit(
        [
            SampleRequest(member=member, turn=0, tokens=prompt, params=params)
            for member, prompt in zip(members, prompts, strict=True)
        ]
    )
    results: dict[Member, Sampled] = {}
    while engine.has_work():
        results |= {each.member: each.sampled for each in engine.step(max_decode_steps=8)}
    return [results[member] for member in members]


def _generated(model: Any, prompt: tuple[int, ...]) -> tuple[int, ...]:
    tokens = torch.tensor([prompt])
    mask = torch.ones_like(tokens)
    result = model.generate(tokens, attention_mask=mask, max_new_tokens=NEW, do_sample=False, eos_token_id=None)
    return tuple(result[0, len(prompt) :].tolist())


def _compared(model: Any, prompt: tuple[int, ...], sampled: Sampled) -> tuple[float, float]:
    """The largest error of a log-prob, and the least distance of the two likeliest tokens."""
    with torch.inference_mode():
        logits = model(input_ids=torch.tensor([prompt + sampled.tokens]), use_cache=False).logits[0]
    logprobs = logits.log_softmax(-1)[len(prompt) - 1 : -1]
    expected = logprobs.gather(-1, torch.tensor(sampled.tokens)[:, None]).squeeze(-1)
    best = logprobs.topk(2).values
    return float((expected - torch.tensor(sampled.logprobs)).abs().max()), float((best[:, 0] - best[:, 1]).min())
