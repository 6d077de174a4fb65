import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GraniteConfig,
    GraniteForCausalLM,
)

from springtide.policy.attention import NAME, PIECE, prepare_for_training
from springtide.policy.config import TinyModelConfig
from springtide.policy.logits import selected_logits
from springtide.policy.model import build_tiny

SHAPE = {
    "vocab_size": 50,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "intermediate_size": 40,
    "max_position_embeddings": 512,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def qwen():
    return build_tiny(
        TinyModelConfig(layers=2, hidden=32, heads=4, kv_heads=2, intermediate=40), vocabulary_size=50, seed=0
    )


def gemma_with_soft_capped_logits():
    torch.manual_seed(0)
    return Gemma2ForCausalLM(Gemma2Config(**SHAPE, final_logit_softcapping=0.5, attn_logit_softcapping=None))


def gemma_with_sliding_window():
    torch.manual_seed(0)
    return Gemma3ForCausalLM(Gemma3TextConfig(**SHAPE, sliding_window=8))


def granite_with_scaled_logits():
    torch.manual_seed(0)
    return GraniteForCausalLM(GraniteConfig(**{k: v for k, v in SHAPE.items() if k != "head_dim"}, logits_scaling=4.0))


MODELS = [qwen, gemma_with_soft_capped_logits, gemma_with_sliding_window, granite_with_scaled_logits]


@pytest.mark.parametrize("make", MODELS)
@pytest.mark.parametrize("fast_attention", [False, True])
def test_selected_logits_and_gradients_equal_those_of_full_sequences(make, fast_attention):
    full, sparse = make(), make()
    if fast_attention:
        prepare_for_training(sparse)
    generator = torch.Generator().manual_seed(1)
    lengths = [2 * PIECE + 13, 20, 1]
    width = max(lengths)
    tokens = torch.zeros(3, width, dtype=torch.long)
    expected, positions = [], []
    for row, length in enumerate(lengths):
        sequence = torch.randint(3, 50, (length,), generator=generator)
        tokens[row, :length] = sequence
        chosen = torch.randperm(length, generator=generator)[: max(1, length // 3)].sort().values
        expected.append(full(input_ids=sequence[None], use_cache=False).logits[0, chosen])
        positions.append(row * width + chosen)
    wanted = torch.cat(expected)
    found = selected_logits(sparse, tokens, torch.cat(positions))
    torch.testing.assert_close(found, wanted, atol=2e-5, rtol=1e-4)
    weights = torch.randn(wanted.shape, generator=generator)
    (wanted * weights).sum().backward()
    (found * weights).sum().backward()
    for ours, theirs in zip(sparse.parameters(), full.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, atol=2e-4, rtol=1e-3)


def test_the_hook_does_not_stay():
    model = qwen()
    selected_logits(model, torch.zeros(1, 4, dtype=torch.long), torch.tensor([1]))
    assert model(input_ids=torch.zeros(1, 4, dtype=torch.long)).logits.shape == (1, 4, 50)


@given(st.integers(2, 3 * PIECE), st.integers(1, 3))
@settings(max_examples=8, deadline=None)
def test_attention_in_pieces_is_attention(length, batch):
    plain, pieces = qwen(), qwen()
    prepare_for_training(pieces)
    assert pieces.config._attn_implementation == NAME
    tokens = torch.arange(batch * length).reshape(batch, length) % 50
    with torch.no_grad():
        torch.testing.assert_close(
            pieces(input_ids=tokens).logits, plain(input_ids=tokens).logits, atol=1e-5, rtol=1e-4
        )


def test_padding_masks_and_caches_still_work():
    plain, pieces = qwen(), qwen()
    prepare_for_training(pieces)
    tokens = torch.arange(2 * 9).reshape(2, 9)
    mask = torch.ones_like(tokens)
    mask[1, :4] = 0
    options = {"max_new_tokens": 5, "do_sample": False, "attention_mask": mask, "pad_token_id": 0}
    assert torch.equal(pieces.generate(tokens, **options), plain.generate(tokens, **options))
