"""Models the engine cannot run are refused by name; architectures beyond the common ones are run."""

import pytest
import torch
import transformers

from engines.episodes import engine, request, sample, text
from engines.models import SHAPE
from springtide.core.errors import UsageError
from springtide.engines.network import Network

SMALL = {"vocab_size": 97, "hidden_size": 32, "num_hidden_layers": 2}


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (
            lambda: transformers.MambaForCausalLM(transformers.MambaConfig(**SMALL, state_size=4)),
            "MambaForCausalLM keeps a recurrent state",
        ),
        (
            lambda: transformers.T5ForConditionalGeneration(
                transformers.T5Config(vocab_size=97, d_model=32, d_kv=8, d_ff=32, num_layers=1, num_heads=4)
            ),
            "T5ForConditionalGeneration is an encoder-decoder",
        ),
        (
            lambda: transformers.BloomForCausalLM(transformers.BloomConfig(**SMALL, n_head=4)),
            "BloomForCausalLM does not hand its attention to the attention interface",
        ),
        (
            lambda: transformers.Llama4ForCausalLM(
                transformers.Llama4TextConfig(
                    **SHAPE, intermediate_size_mlp=32, num_local_experts=2, attention_chunk_size=8
                )
            ),
            "Llama4ForCausalLM has layers of type chunked_attention",
        ),
    ],
)
def test_models_with_another_cache_are_refused_by_name(model: object, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        Network(model())  # type: ignore[operator]


HALF = {"short_factor": [1.0] * 4, "long_factor": [2.0] * 4, "original_max_position_embeddings": 64}


@pytest.mark.parametrize(
    ("model", "kind"),
    [
        (
            lambda: transformers.LlamaForCausalLM(
                transformers.LlamaConfig(
                    **SHAPE, rope_parameters={"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}
                )
            ),
            "dynamic",
        ),
        (
            lambda: transformers.Phi3ForCausalLM(
                transformers.Phi3Config(
                    **{name: value for name, value in SHAPE.items() if name != "head_dim"},
                    rope_parameters={"rope_type": "longrope", "rope_theta": 1e4, "partial_rotary_factor": 1.0, **HALF},
                    original_max_position_embeddings=64,
                )
            ),
            "longrope",
        ),
        (
            lambda: transformers.Gemma3ForCausalLM(
                transformers.Gemma3TextConfig(
                    **SHAPE,
                    layer_types=["sliding_attention", "full_attention"],
                    rope_parameters={
                        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
                        "full_attention": {"rope_type": "dynamic", "rope_theta": 1e6, "factor": 2.0},
                    },
                )
            ),
            "dynamic",
        ),
    ],
    ids=["dynamic", "longrope", "one type of layer"],
)
def test_frequencies_that_follow_the_longest_sequence_of_a_batch_are_refused_by_name(model: object, kind: str) -> None:
    with pytest.raises(UsageError, match=f"has rope_type '{kind}', whose rotary frequencies follow the longest"):
        Network(model())  # type: ignore[operator]


def test_frequencies_that_are_scaled_for_good_are_run() -> None:
    torch.manual_seed(3)
    scaled = {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0}
    Network(transformers.LlamaForCausalLM(transformers.LlamaConfig(**SHAPE, rope_parameters=scaled)))


def test_a_model_that_forgets_its_context_is_refused() -> None:
    class Forgetful(transformers.Qwen3ForCausalLM):  # type: ignore[misc]
        def forward(self, **arguments: object) -> object:
            arguments.pop("position_ids", None)
            return super().forward(**arguments)

    torch.manual_seed(0)
    with pytest.raises(UsageError, match="Forgetful computes something else when its context is continued"):
        Network(Forgetful(transformers.Qwen3Config(**SHAPE)))


@pytest.mark.parametrize(
    "model",
    [
        lambda: transformers.Gemma2ForCausalLM(
            transformers.Gemma2Config(**SHAPE, sliding_window=9, attn_logit_softcapping=5.0, query_pre_attn_scalar=8),
        ),
        lambda: transformers.MistralForCausalLM(transformers.MistralConfig(**SHAPE, sliding_window=11)),
        lambda: transformers.GptOssForCausalLM(
            transformers.GptOssConfig(
                **SHAPE,
                sliding_window=9,
                num_local_experts=4,
                num_experts_per_tok=2,
                layer_types=["sliding_attention", "full_attention"],
            )
        ),
        lambda: transformers.GPT2LMHeadModel(
            transformers.GPT2Config(
                vocab_size=97, n_embd=32, n_layer=2, n_head=4, n_positions=256, initializer_range=0.3
            )
        ),
    ],
    ids=["gemma2-softcap", "mistral-window", "gpt-oss-sinks", "gpt2-learned-positions"],
)
def test_soft_caps_windows_sinks_and_learned_positions_are_exact(model: object) -> None:
    torch.manual_seed(3)
    built = model().eval()  # type: ignore[operator]
    built.set_attn_implementation("eager")
    prompt = text(0, 30)
    tokens = list(prompt)
    with torch.inference_mode():
        for _ in range(12):
            logits = built(input_ids=torch.tensor([tokens]), use_cache=False).logits[0]
            tokens.append(int(logits[-1].argmax()))
        logprobs = built(input_ids=torch.tensor([tokens]), use_cache=False).logits[0].log_softmax(-1)
    sampled = sample(engine(model=built), request(prompt))
    assert sampled.tokens == tuple(tokens[30:])
    expected = logprobs[29:-1].gather(-1, torch.tensor(tokens[30:])[:, None]).squeeze(-1)
    assert (expected - torch.tensor(sampled.logprobs)).abs().max() < 1e-5
