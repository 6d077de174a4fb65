"""The engine samples what the model says."""

import copy
from typing import Any

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import Qwen3Config, Qwen3ForCausalLM

from engines.episodes import engine, play, request, sample, text
from engines.models import ARCHITECTURES, SHAPE, reference_logprobs, tiny
from springtide.core.sampling import SampleRequest, SamplingParams
from springtide.policy.device import CPU, autocast
from springtide.policy.model import served_copy

LENGTHS = (3, 60, 17, 130, 64, 65, 1, 30)
COUNTS = (40, 5, 70, 20, 64, 1, 33, 50)


def _ragged() -> list[SampleRequest]:
    return [
        request(text(i, length), group=i, params=SamplingParams(max_tokens=count, temperature=0.0))
        for i, (length, count) in enumerate(zip(LENGTHS, COUNTS, strict=True))
    ]


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_greedy_tokens_equal_generate_and_log_probs_a_full_forward(name: str, native: bool) -> None:
    requests = _ragged()
    results = play(engine(name, native_kernels=native), requests)
    model = tiny(name)
    for each in requests:
        sampled = results[each.member]
        prompt = torch.tensor([each.tokens])
        with torch.inference_mode():
            expected = model.generate(
                prompt,
                attention_mask=torch.ones_like(prompt),
                max_new_tokens=each.params.max_tokens,
                do_sample=False,
                eos_token_id=None,
            )
        assert sampled.tokens == tuple(expected[0, len(each.tokens) :].tolist())
        difference = torch.tensor(sampled.logprobs) - reference_logprobs(name, each.tokens, sampled.tokens)
        assert difference.abs().max() < 1e-5


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("name", ["qwen3", "gemma3"])
def test_turns_that_continue_kept_keys_and_values_equal_one_full_forward(name: str, native: bool) -> None:
    player = engine(name, native_kernels=native)
    path: tuple[int, ...] = ()
    for turn, length in enumerate((20, 1, 35, 7)):
        path += text(turn, length)
        sampled = sample(player, request(path, turn=turn))
        difference = torch.tensor(sampled.logprobs) - reference_logprobs(name, path, sampled.tokens)
        assert difference.abs().max() < 1e-5
        path += sampled.tokens
    assert player.stats().reprefilled == 0


def test_log_probs_are_of_the_distribution_that_was_sampled_from() -> None:
    params = SamplingParams(max_tokens=30, temperature=0.7, top_k=5, top_p=0.8)
    prompt = text(0, 10)
    sampled = sample(engine(), request(prompt, params=params))
    with torch.inference_mode():
        logits = tiny()(input_ids=torch.tensor([prompt + sampled.tokens])).logits[0, len(prompt) - 1 : -1]
    for position, (token, logprob) in enumerate(zip(sampled.tokens, sampled.logprobs, strict=True)):
        ranked = sorted((logits[position].double() / 0.7).tolist(), reverse=True)[:5]
        weights = torch.tensor(ranked).softmax(0)
        kept = int((weights.cumsum(0) - weights < 0.8).sum())
        chosen = logits[position, token].double() / 0.7
        expected = chosen - torch.tensor(ranked[:kept], dtype=torch.float64).logsumexp(0)
        assert logprob == pytest.approx(float(expected), abs=1e-5)
        assert chosen >= ranked[kept - 1] - 1e-5


def test_reduced_precision_follows_the_models_own_forward() -> None:
    model = tiny().to(torch.bfloat16)
    prompt = text(0, 40)
    sampled = sample(engine(model=tiny().to(torch.bfloat16)), request(prompt))
    with torch.inference_mode():
        logits = model(input_ids=torch.tensor([prompt + sampled.tokens])).logits[0, len(prompt) - 1 : -1].float()
    logprobs = logits.log_softmax(-1).gather(-1, torch.tensor(sampled.tokens)[:, None]).squeeze(-1)
    assert (logprobs - torch.tensor(sampled.logprobs)).abs().max() < 0.15


@pytest.mark.parametrize("name", ["qwen3", "gemma3"])
def test_contexts_too_long_for_shared_masks_give_the_same_tokens(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = play(engine(name, prefill_chunk=512), _ragged())
    monkeypatch.setattr("springtide.engines.group.STACKED_MASK", 0)
    monkeypatch.setattr("springtide.engines.batch.GROUP_MASK", 0)
    results = play(engine(name, prefill_chunk=512), _ragged())
    assert {m: s.tokens for m, s in results.items()} == {m: s.tokens for m, s in expected.items()}


@pytest.mark.parametrize("name", ["qwen3", "gemma3"])
def test_both_ways_to_attend_to_long_contexts_give_the_same_tokens(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = play(engine(name, prefill_chunk=512), _ragged())
    monkeypatch.setattr("springtide.engines.group.PRODUCTS_REACH", 0)
    monkeypatch.setattr("springtide.engines.group.PRODUCTS_QUERIES", 2)
    results = play(engine(name, prefill_chunk=48), _ragged())
    assert {m: s.tokens for m, s in results.items()} == {m: s.tokens for m, s in expected.items()}


def _far_error(model: Any, served: Any) -> float:
    """Mean difference in log-probs, behind position 600, of the engine with `served` to `model` under autocast."""
    prompt = text(0, 600)
    params = SamplingParams(max_tokens=32, temperature=0.0)
    sampled = sample(engine(model=served, prefill_chunk=1024), request(prompt, params=params))
    tokens = torch.tensor([prompt + sampled.tokens])
    with torch.inference_mode(), autocast(CPU, torch.bfloat16):
        logits = model(input_ids=tokens, use_cache=False).logits[0, len(prompt) - 1 : -1].float()
    logprobs = logits.log_softmax(-1).gather(-1, torch.tensor(sampled.tokens)[:, None]).squeeze(-1)
    return float((logprobs - torch.tensor(sampled.logprobs)).abs().mean())


def test_far_positions_in_bfloat16_are_those_of_the_model_that_is_trained() -> None:
    torch.manual_seed(0)
    shape = SHAPE | {"max_position_embeddings": 1024, "head_dim": 32, "hidden_size": 64, "initializer_range": 0.1}
    model = Qwen3ForCausalLM(Qwen3Config(**shape, tie_word_embeddings=True)).eval()
    for name, weight in model.named_parameters():
        if "q_norm" in name or "k_norm" in name:
            torch.nn.init.constant_(weight, 1.5)  # attention that looks at where a token stands
    error = _far_error(model, served_copy(model, torch.bfloat16))
    assert error < 0.02
    rounded = copy.deepcopy(model).to(torch.bfloat16)
    assert error < _far_error(model, rounded) / 2, "rotary frequencies that were rounded with the weights show"


@pytest.mark.parametrize("stacked", [1 << 22, 0], ids=["heads together", "heads in turn"])
def test_a_kernel_may_return_its_own_strides(stacked: int, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = play(engine(native_kernels=False, prefill_chunk=512), _ragged())
    seen = []

    def transposed(*arguments: object, **options: object) -> torch.Tensor:
        result = scaled_dot_product_attention(*arguments, **options)  # type: ignore[arg-type]
        seen.append(result.shape)
        return result.transpose(1, 2).contiguous().transpose(1, 2)

    monkeypatch.setattr("springtide.engines.group.scaled_dot_product_attention", transposed)
    monkeypatch.setattr("springtide.engines.group.STACKED_MASK", stacked)
    results = play(engine(native_kernels=False, prefill_chunk=512), _ragged())
    assert seen
    assert {m: s.tokens for m, s in results.items()} == {m: s.tokens for m, s in expected.items()}
