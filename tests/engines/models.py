"""Tiny models whose greedy choice is clear, and a reference that knows no cache.

Freshly initialised models have nearly uniform logits, where rounding decides the argmax. A larger initialisation
makes the likeliest token stand out by far more than the rounding between batch shapes.
"""

import copy
from functools import cache
from typing import Any

import torch
from transformers import (
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

VOCABULARY = 97
ARCHITECTURES = ("qwen3", "llama", "gemma3", "qwen3_moe")

SHAPE: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 256,
    "initializer_range": 0.3,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": 0,
}


@cache
def _built(name: str) -> Any:
    torch.manual_seed(7)
    if name == "qwen3":
        model: Any = Qwen3ForCausalLM(Qwen3Config(**SHAPE, tie_word_embeddings=True))
    elif name == "llama":
        model = LlamaForCausalLM(LlamaConfig(**SHAPE))
    elif name == "gemma3":
        kinds = ["sliding_attention", "full_attention"]
        model = Gemma3ForCausalLM(
            Gemma3TextConfig(**SHAPE, sliding_window=9, layer_types=kinds, query_pre_attn_scalar=8)
        )
    else:
        moe = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "norm_topk_prob": True}
        model = Qwen3MoeForCausalLM(Qwen3MoeConfig(**SHAPE, **moe))
        model.set_experts_implementation("eager")
    return model.eval()


def tiny(name: str = "qwen3") -> Any:
    """A copy of the tiny model of an architecture; the same weights at each call."""
    return copy.deepcopy(_built(name))


def reference_greedy(name: str, prompt: tuple[int, ...], count: int, stops: tuple[int, ...] = ()) -> tuple[int, ...]:
    """`count` greedy tokens after `prompt`, or fewer up to a stop token, by a full forward for every token."""
    model = _built(name)
    tokens = list(prompt)
    with torch.inference_mode():
        for _ in range(count):
            logits = model(input_ids=torch.tensor([tokens]), use_cache=False).logits[0, -1]
            tokens.append(int(logits.argmax()))
            if tokens[-1] in stops:
                break
    return tuple(tokens[len(prompt) :])


def reference_logprobs(name: str, prompt: tuple[int, ...], sampled: tuple[int, ...]) -> torch.Tensor:
    """Log-probs of `sampled` after `prompt` at temperature 1, from one full forward."""
    with torch.inference_mode():
        logits = _built(name)(input_ids=torch.tensor([prompt + sampled]), use_cache=False).logits[0]
    logprobs = logits.log_softmax(-1)[len(prompt) - 1 : -1]
    return logprobs.gather(-1, torch.tensor(sampled)[:, None]).squeeze(-1)
